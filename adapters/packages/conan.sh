#!/bin/sh
# conan.sh SCRATCH: makes the Conan package of this tree in a cache in the folder SCRATCH, with the Boost and Eigen of the system, and makes
# sure that it is of the tree's version and that a project finds it. Conan 2 is installed there for it, if it is missing; skipped, with exit
# status 77, where that does not go.
# With Conan's own packages of Boost and Eigen: conan create adapters/packages
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$1
is_there() { conan --version 2>/dev/null | grep -q 'version 2'; }
rm -rf "$scratch"
mkdir -p "$scratch/project"
if ! is_there; then
    export PATH="$scratch/python/bin:$PATH"
    python3 -m venv "$scratch/python" && "$scratch/python/bin/pip" install --quiet --retries 1 --timeout 10 'conan>=2,<3' && is_there || {
        echo "Conan 2 is not installed, and could not be"
        exit 77
    }
fi
version=$(sed -n 's/.*library_version = "\(.*\)".*/\1/p' "$root/include/heddle/base/version.hpp")
export CONAN_HOME="$scratch/home"
conan profile detect >/dev/null 2>&1

# Packages that hold nothing: CMake finds what they are named after in the system.
for package in boost/1.74.0 eigen/3.4.0; do
    name=${package%/*}
    mkdir "$scratch/$name"
    cat >"$scratch/$name/conanfile.py" <<END
from conan import ConanFile

class Installed(ConanFile):
    name, version = "$name", "${package#*/}"
    options, default_options = {"header_only": [True, False]}, {"header_only": False}

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
END
    conan create "$scratch/$name" --no-remote --options '&:header_only=True' >"$scratch/$name.log" 2>&1
done
set -- --no-remote --options 'boost/*:header_only=True' --options 'eigen/*:header_only=True'
conan create "$root/adapters/packages" "$@"

cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(heddle $version EXACT CONFIG REQUIRED)
file(WRITE main.cpp "#include <heddle/base/version.hpp>\n#include <iostream>\nint main() { std::cout << heddle::library_version; }\n")
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE heddle::heddle)
END
cd "$scratch/project"
conan install --requires "heddle/$version" "$@" --generator CMakeToolchain --generator CMakeDeps --output-folder .
cmake -S . -B build -DCMAKE_TOOLCHAIN_FILE=conan_toolchain.cmake -DCMAKE_BUILD_TYPE=Release
cmake --build build
test "$(build/consumer)" = "$version"
