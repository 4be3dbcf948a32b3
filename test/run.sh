#!/bin/sh
# run.sh [--quick]: builds and tests everything with g++, then the doctest programs with clang++ and its sanitizers.
# --quick leaves the second half out.
set -eu
cd "$(dirname "$0")/.."
case ${1-} in
'') presets='release sanitize' ;;
--quick) presets='release' ;;
*)
    echo "usage: test/run.sh [--quick]" >&2
    exit 2
    ;;
esac

.ci/packages.sh test
jobs=$(nproc)
for preset in $presets; do
    cmake --preset "$preset"
    cmake --build --preset "$preset" --parallel "$jobs"
    ctest --preset "$preset" --parallel "$jobs"
done
