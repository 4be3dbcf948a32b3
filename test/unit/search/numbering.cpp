// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/numbering.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>

using heddle::search::numbering;

TEST_CASE("values that are forgotten are new again, and others keep their numbers") {
    numbering<std::string> names;
    for (auto const* name : {"a", "b", "c", "d"}) names.insert(std::string(name));
    names.cut_back(2);
    CHECK(names.size() == std::size_t{2});
    CHECK(names.insert(std::string("b")) == std::pair(1u, false));
    CHECK(names.insert(std::string("d")) == std::pair(2u, true));
    CHECK(names[2] == "d");
}

TEST_CASE("a copy of numbered values is on its own") {
    numbering<std::string> copy;
    {
        numbering<std::string> names;
        for (auto const* name : {"a", "b", "c"}) names.insert(std::string(name));
        copy = names;
        names.cut_back(0);
    }
    CHECK(copy.size() == std::size_t{3});
    CHECK(copy[1] == "b");
    CHECK(copy.insert(std::string("c")) == std::pair(2u, false));
}
