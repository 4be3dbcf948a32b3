# Beside another libtorch, CMake would take that one's part Caffe2.
if(Torch_DIR AND EXISTS ${Torch_DIR}/../Caffe2/Caffe2Config.cmake)
    set(Caffe2_DIR ${Torch_DIR}/../Caffe2)
endif()
# Torch's targets name each other in generator expressions, which are evaluated where a program links them.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
find_package(Torch QUIET)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
set(heddle_libtorch_dependencies torch)
