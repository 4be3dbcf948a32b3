#!/bin/sh
# coverage.sh [OUT]: builds the doctest programs unoptimised and instrumented, runs them, and prints which part of the lines of include/ they reach, file by file; the page OUT/coverage.html (build/coverage
# unless told otherwise) shows the lines. Takes about as long as a test run.
set -eu
cd "$(dirname "$0")/.."
out=${1-build/coverage}
.ci/packages.sh test
cmake --preset debug -B "$out" -DCMAKE_CXX_FLAGS="-ffp-contract=off --coverage -O0" -DHEDDLE_FEW_UNITS=ON -DHEDDLE_BUILD_BENCH=OFF >/dev/null
cmake --build "$out" --parallel "$(nproc)" --target heddle_doctests
ctest --test-dir "$out" --parallel "$(nproc)" --label-regex doctest
# Threads that count at once may leave a count below zero, which gcovr takes for an error.
gcovr --root . --filter include/ --object-directory "$out" --exclude-throw-branches --gcov-ignore-parse-errors --html-details "$out/coverage.html" --txt
