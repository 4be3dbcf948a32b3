# Torch's targets name each other in generator expressions, which are evaluated where a program links them.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
find_package(Torch QUIET)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
set(heddle_libtorch_dependencies torch)
