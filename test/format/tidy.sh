#!/bin/sh
# tidy.sh SCRATCH [--all | FILE...]: clang-tidy-19 finds nothing in the three headers of include/heddle that were changed
# last, as the history of the repository has them; in all C++ files; or in those given. Writes units to the folder SCRATCH.
# Skipped, with exit status 77, where there is no clang-tidy-19 or no history. Sources that need libtorch are left out.
#
# A header is checked in a unit of its own, which has its definitions, and of what it includes the declarations alone.
set -eu
scratch=$1
shift
cd "$(dirname "$0")/../.."
command -v clang-tidy-19 >/dev/null || {
    echo "clang-tidy-19 is not installed"
    exit 77
}
candidates() {
    grep -E '\.(hpp|cpp)$' | grep -vE '^(adapters/libtorch|test/compile_fail|test/install)/'
}
case ${1-} in
--all) files=$(git ls-files | candidates) ;;
'')
    files=$(git log -n 50 --format= --name-only -- include/heddle 2>/dev/null | candidates | awk '!seen[$0]++' |
        while read -r file; do [ ! -f "$file" ] || echo "$file"; done | head -n 3) || files=
    [ -n "$files" ] || {
        echo "there is no history to say what was changed last"
        exit 77
    }
    ;;
*) files=$(printf '%s\n' "$@") ;;
esac

root=$PWD # in full, as HeaderFilterRegex asks for
includes=$(printf -- "-I$root/%s " include test adapters/*/include)
mkdir -p "$scratch"
status=0
for file in $files; do
    unit=$root/$file
    case $file in
    include/heddle/* | adapters/*/include/heddle/*)
        header=${file##*include/}
        unit=$scratch/$(echo "${header#heddle/}" | tr / _).cpp
        cat >"$unit" <<EOF
#include <heddle/base/definitions.hpp>
#undef HEDDLE_DEFINITIONS
#define HEDDLE_DEFINITIONS (__INCLUDE_LEVEL__ == 1)
#undef HEDDLE_INLINE
#define HEDDLE_INLINE inline
#include <$header>
EOF
        ;;
    esac
    # What is found is in the file itself: what it includes has a turn of its own.
    clang-tidy-19 --quiet --config-file=.clang-tidy --warnings-as-errors='*' --header-filter="/${file}\$" "$unit" -- \
        -std=c++20 -xc++ -Wno-pragma-once-outside-header -DHEDDLE_COMPILED $includes \
        -isystem /usr/include/eigen3 -isystem /usr/include/coin -DHAVE_CSTDDEF \
        -DHEDDLE_EXAMPLES="\"$root/examples\"" 2>"$scratch/errors" || {
        status=1
        cat "$scratch/errors"
    }
done
exit $status
