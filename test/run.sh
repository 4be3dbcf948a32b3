#!/bin/sh
# run.sh [--quick]: builds and tests with g++ all but the doctest programs that are light, then with clang++ and its sanitizers all
# doctest programs but the oracle, and compiles the benches. --quick builds and tests the units and the command line alone, unoptimised.
# Says which tests were skipped and why, and how long each step took. What needs a PyTorch that is new enough for adapters/pytorch, which is
# 6 GB, is skipped where there is none; so is Conan, which is no Debian package, where it can't be installed.
set -eu
cd "$(dirname "$0")/.."
case ${1-} in
'') presets='tests sanitize' ;;
--quick) presets='quick' ;;
*)
    echo "usage: test/run.sh [--quick]" >&2
    exit 2
    ;;
esac

begun=$(date +%s)
since=$begun
times=
results=
step() {
    name=$1
    shift
    "$@"
    now=$(date +%s)
    times="$times$(printf '%6d s  %s' $((now - since)) "$name")
"
    since=$now
}

jobs=$(nproc)
step packages .ci/packages.sh test
for preset in $presets; do
    step "$preset, configure" cmake --preset "$preset"
    step "$preset, build" cmake --build --preset "$preset" --parallel "$jobs"
    results="$results build/$preset/tests.xml"
    step "$preset, test" ctest --preset "$preset" --parallel "$jobs" --output-junit "$PWD/build/$preset/tests.xml"
done
test/support/skipped.py $results
printf '%s%6d s  in all\n' "$times" $((since - begun))
