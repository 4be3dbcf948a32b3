find_package(CUDAToolkit QUIET)
# A libtorch of PyTorch's wheels has the NCCL beside it that it was built for.
get_filename_component(nccl_of_wheels "${Torch_DIR}/../../../../nvidia/nccl" ABSOLUTE)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_of_wheels}/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${nccl_of_wheels}/lib ${CUDAToolkit_LIBRARY_DIR})
if(TARGET CUDA::cudart AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY AND NOT TARGET NCCL::NCCL)
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR}
                          INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()
set(heddle_nccl_dependencies NCCL::NCCL)
