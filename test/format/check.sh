#!/bin/sh
# check.sh: every C++ file of the repository is as .clang-format has it. Skipped, with exit status 77, where there is no
# clang-format-19: other versions format differently.
set -eu
cd "$(dirname "$0")/../.."
command -v clang-format-19 >/dev/null || {
    echo "clang-format-19 is not installed"
    exit 77
}
find adapters bench examples include test \( -name '*.hpp' -o -name '*.cpp' \) -print0 |
    xargs -0 clang-format-19 --dry-run -Werror
