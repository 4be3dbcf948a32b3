#!/bin/sh
# check.sh SOURCE COMPILER [FLAG...]
#
# SOURCE starts with `// expect: <extended regular expression>`. It must not compile, and a line of the compiler's
# messages must match. With -DHEDDLE_TEST_POSITIVE it must compile: so it is refused for the one reason it states. A second line
# `// flags: <flags>` is for the compilation that must fail.
set -eu
export LC_ALL=C
source=$1
shift

fail() {
    printf '%s: %s\n' "$source" "$1" >&2
    exit 1
}
compile() {
    "$@" -fsyntax-only "$source" 2>&1
}

expected=$(sed -n '1s|^// expect: ||p' "$source")
[ -n "$expected" ] || fail "the first line is not '// expect: <regex>'"

messages=$(compile "$@" -DHEDDLE_TEST_POSITIVE) || fail "the positive twin does not compile:
$messages"
# shellcheck disable=SC2046 # flags are words
if messages=$(compile "$@" $(sed -n '2s|^// flags: ||p' "$source")); then
    fail "compiles, but must not"
fi
printf '%s\n' "$messages" | grep -qE -e "$expected" || fail "no message matches '$expected':
$messages"
