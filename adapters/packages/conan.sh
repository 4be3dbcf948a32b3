#!/bin/sh
# conan.sh SCRATCH: puts the Conan recipe and the sources of this tree into a cache in the folder SCRATCH, and makes sure that it is
# of the tree's version. Skipped, with exit status 77, where there is no Conan 2. What it builds needs Conan's packages of Boost
# and Eigen: conan create adapters/packages
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
conan --version 2>/dev/null | grep -q 'version 2' || {
    echo "Conan 2 is not installed"
    exit 77
}
version=$(sed -n 's/.*library_version = "\(.*\)".*/\1/p' "$root/include/heddle/base/version.hpp")
export CONAN_HOME="$1"
conan export "$root/adapters/packages"
conan list "heddle/$version" | grep -q "heddle/$version"
