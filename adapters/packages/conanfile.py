"""Conan recipe of the headers of Heddle and its adapters. In a clone: conan create adapters/packages"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake
from conan.tools.files import copy, load

OFF = ("CLI", "COMPILED", "EXAMPLES", "TESTS", "BENCH")


class Heddle(ConanFile):
    name = "heddle"
    description = "Search and cost models that split a training program over unequal devices"
    license = "BSL-1.0"
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    generators = "CMakeToolchain", "CMakeDeps"
    no_copy_source = True

    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root(), "include", "heddle", "base", "version.hpp"))
        self.version = re.search(r'library_version = "(.+)"', text).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "adapters/*"):
            copy(self, pattern, self._root(), self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.74]", options={"header_only": True})
        self.requires("eigen/3.4.0")

    def build(self):
        cmake = CMake(self)
        cmake.configure({f"HEDDLE_BUILD_{part}": "OFF" for part in OFF})
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")  # its own configuration is installed
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "heddle")]

    def package_id(self):
        self.info.clear()
