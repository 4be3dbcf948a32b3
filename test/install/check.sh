#!/bin/sh
# check.sh package|subdirectory SOURCE BUILD SCRATCH [CMAKE-ARGUMENT...]
#
# Configures, builds and runs the outside project against an install of BUILD, or with SOURCE as a subdirectory.
set -eu
route=$1 source=$2 build=$3 scratch=$4
shift 4

rm -rf "$scratch"
case $route in
package)
    cmake --install "$build" --prefix "$scratch/prefix"
    set -- "$@" -DCMAKE_PREFIX_PATH="$scratch/prefix"
    ;;
subdirectory)
    set -- "$@" -DHEDDLE_SOURCE="$source"
    ;;
esac
cmake -S "$source/test/install/project" -B "$scratch/build" "$@"
cmake --build "$scratch/build"
"$scratch/build/consumer"
