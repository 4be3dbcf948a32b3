// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/mesh.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace heddle;

TEST_CASE("devices of a mesh have places, and lines through them") {
    mesh const m({2, 3});
    CHECK(to_string(m) == "2 x 3");
    CHECK(m.device_count() == 6);
    for (std::size_t d = 0; d < 6; ++d) CHECK(m.device_at(m.place_of(d)) == d);
    CHECK(m.place_of(5) == mesh::coordinates{1, 2});
    CHECK(m.line(4, 0) == std::vector<std::size_t>{1, 4});
    CHECK(m.line(4, 1) == std::vector<std::size_t>{3, 4, 5});
    CHECK(mesh().device_count() == 1);
}

TEST_CASE("a mesh has one to four axes, each of a device at least") {
    CHECK_THROWS_WITH_AS(mesh(std::vector<std::size_t>{}),
                         "mesh: is of no axis, expected 1 to 4 axes, each of a device at least", input_error);
    CHECK_THROWS_AS(mesh({2, 0}), input_error);
    CHECK_THROWS_AS(mesh({2, 2, 2, 2, 2}), input_error);
}
