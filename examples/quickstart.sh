#!/bin/sh
# Builds the command line and plans a vision transformer on two kinds of GPU.
# Writes plan.json and trace.json into the current directory.
set -eu
root=$(cd -P "$(dirname "$0")/.." && pwd)
log=$root/build/quickstart.log

"$root/.ci/packages.sh" core >&2

build_heddle() {
    cd "$root" &&
        # Tests and benches need more packages; a tree that is configured already is left as it is.
        { [ -f build/release/build.ninja ] ||
            cmake --preset release -DHEDDLE_BUILD_TESTS=OFF -DHEDDLE_BUILD_BENCH=OFF; } &&
        cmake --build --preset release --target heddle_cli
}
echo "Building heddle ..." >&2
mkdir -p "$root/build"
if ! (build_heddle) >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

"$root/build/release/heddle" plan \
    --model "$root/examples/models/vit_12.json.gz" \
    --cluster "$root/examples/clusters/v100x2_p100x6.json" \
    --out plan.json --trace trace.json
echo "The command is $root/build/release/heddle; plan.json and trace.json are in $(pwd)." >&2
