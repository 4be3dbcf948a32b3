#!/bin/sh
# run.sh PROGRAM [EXPECTED]: the program must succeed and, where EXPECTED is given, print exactly that file.
set -eu
actual=$(mktemp)
trap 'rm -f "$actual"' EXIT
"$1" >"$actual"
if [ $# -gt 1 ]; then
    diff -u --label expected --label actual "$2" "$actual"
fi
