find_package(Torch QUIET)
set(heddle_libtorch_dependencies torch)
