#!/bin/sh
# run.sh [--data DIR] [--out DIR]: builds the benches, writes DIR/figures.md and DIR/figures.json (DIR is build/figures unless told otherwise), and compares counts of instructions with those recorded.
# Takes about an hour of one core; figures that compare with others' measurements need the reference data.
set -eu
cd "$(dirname "$0")/.."
data=${HEDDLE_REFERENCE_DATA-}
out=build/figures
while [ $# -gt 0 ]; do
    case $1 in
    --data) data=${2:?} ;;
    --out) out=${2:?} ;;
    *)
        echo "usage: bench/run.sh [--data DIR] [--out DIR]" >&2
        exit 2
        ;;
    esac
    shift 2
done

.ci/packages.sh test
mkdir -p "$out"
cmake --preset release >/dev/null
cmake --build --preset release --parallel "$(nproc)" --target heddle_benches heddle
bench/figures.py build/release --data "$data" --out "$out/figures.md" --json "$out/figures.json"
cat "$out/figures.md"
bench/instructions.py build/release || [ $? -eq 77 ]
