#!/bin/sh
# check.sh package|subdirectory|fetched SOURCE BUILD SCRATCH [CMAKE-ARGUMENT...]
#
# Configures, builds and runs the outside project against an install of BUILD, or with SOURCE as a subdirectory. The version of
# an install is also what pkg-config says, and with its flags the library compiles; with the command come its manual page and completions. As fetched content SOURCE is only configured.
set -eu
route=$1 source=$2 build=$3 scratch=$4
shift 4

rm -rf "$scratch"
case $route in
package)
    cmake --install "$build" --prefix "$scratch/prefix"
    set -- "$@" -DCMAKE_PREFIX_PATH="$scratch/prefix"
    heddle=$scratch/prefix/bin/heddle
    if [ -x "$heddle" ]; then
        "$heddle" help --man | cmp - "$scratch/prefix/share/man/man1/heddle.1"
        "$heddle" completion bash | cmp - "$scratch/prefix/share/bash-completion/completions/heddle"
        "$heddle" completion zsh | cmp - "$scratch/prefix/share/zsh/site-functions/_heddle"
        "$heddle" completion fish | cmp - "$scratch/prefix/share/fish/vendor_completions.d/heddle.fish"
    fi
    if command -v pkg-config >/dev/null; then
        version=$(sed -n 's/.*library_version = "\(.*\)".*/\1/p' "$source/include/heddle/base/version.hpp")
        export PKG_CONFIG_PATH="$scratch/prefix/share/pkgconfig"
        test "$(pkg-config --modversion heddle)" = "$version"
        echo '#include <heddle/heddle.hpp>' | c++ -std=c++20 -DHEDDLE_COMPILED -fsyntax-only $(pkg-config --cflags heddle) -xc++ -
    fi
    ;;
subdirectory)
    set -- "$@" -DHEDDLE_SOURCE="$source"
    ;;
fetched)
    cmake -S "$source/test/install/project" -B "$scratch/build" "$@" -DHEDDLE_FETCHED="$source"
    exit
    ;;
esac
cmake -S "$source/test/install/project" -B "$scratch/build" "$@"
cmake --build "$scratch/build"
"$scratch/build/consumer"
