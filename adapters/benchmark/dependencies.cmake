find_package(benchmark QUIET)
set(heddle_benchmark_dependencies benchmark::benchmark)
