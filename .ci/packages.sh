#!/bin/sh
# packages.sh core|test: installs the Debian packages that are missing, for the library and its command line (core),
# or for the tests and benches as well (test).
set -eu
wanted=${1-}
set -- libboost-graph-dev libboost-container-dev libeigen3-dev coinor-libclp-dev coinor-libipopt-dev libmetis-dev nlohmann-json3-dev libcli11-dev \
    zlib1g-dev libzip-dev pkg-config cmake ninja-build g++
case $wanted in
core) ;;
test) set -- "$@" doctest-dev librapidcheck-dev libbenchmark-dev clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev python3 python3-venv python3-clang-19 python3-torch python3-torchvision libtorch-dev libopenmpi-dev openmpi-bin chromium mkdocs mkdocs-material doxygen valgrind gcovr debhelper lintian zsh fish ;;
*)
    echo "usage: packages.sh core|test" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian system; needed are the counterparts of: $*" >&2
    exit 0
fi
for package; do
    shift
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=missing
    [ "$status" = installed ] || set -- "$@" "$package"
done
[ $# -gt 0 ] || exit 0

set -- apt-get install --yes --no-install-recommends "$@"
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    sudo=sudo
else
    printf 'Packages are missing. As root, run:\n    %s\n' "$*" >&2
    exit 1
fi
$sudo apt-get update --quiet || echo "The package lists could not all be refreshed; going on." >&2
$sudo env DEBIAN_FRONTEND=noninteractive "$@"
