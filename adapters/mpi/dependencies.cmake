set(MPI_CXX_SKIP_MPICXX ON) # the C++ bindings, which MPI has dropped
find_package(MPI QUIET COMPONENTS CXX)
set(heddle_mpi_dependencies MPI::MPI_CXX)
