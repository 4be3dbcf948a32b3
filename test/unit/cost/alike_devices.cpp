// SPDX-License-Identifier: BSL-1.0
#include <heddle/cost/alike_devices.hpp>
#include <heddle/cost/atoms.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace heddle;
using class_numbers = std::vector<std::size_t>;

TEST_CASE("devices are alike by type, and told apart by what they have") {
    cluster c;
    c.types.resize(2);
    c.machines = {{.type = 1, .devices = 2}, {.type = 0, .devices = 3}, {.type = 1}};
    alike_devices alike(c);
    CHECK(alike.of_device == class_numbers{0, 0, 1, 1, 1, 0});
    REQUIRE(alike.classes.size() == 2);
    CHECK(alike.classes[0].type == 1);
    CHECK(alike.classes[0].count == 3);
    CHECK(alike.classes[1].count == 3);
    alike.refine(std::vector<extent>{4, 4, 4, 4, 4, 4});
    CHECK(alike.classes.size() == 2);
    alike.refine(std::vector<extent>{5, 4, 4, 5, 4, 5});
    CHECK(alike.of_device == class_numbers{0, 1, 2, 3, 2, 0}); // in order of first device
    CHECK(alike.classes[0].count == 2);
    CHECK(alike.classes[3].type == 0);
    CHECK(alike.first_devices() == class_numbers{0, 1, 2, 3});
    alike.renumber({2, 3, 0, 1});
    CHECK(alike.of_device == class_numbers{2, 3, 0, 1, 0, 2});
    CHECK(alike.first_devices() == class_numbers{2, 3, 0, 1});
    CHECK(alike.classes[1].type == 0);
    CHECK(alike.classes[2].count == 2);
    c.machines[1].is_group = true;
    CHECK(alike_devices(c).of_device == class_numbers{0, 0, 1, 0});
    CHECK(alike_devices(c).classes[1].group_size == 3);
}

TEST_CASE("what is left of atoms goes to the largest remainders, of equal ones to the first") {
    CHECK(apportion(10, std::vector{0.25, 0.25, 0.25, 0.25}) == std::vector<extent>{3, 3, 2, 2});
    CHECK(apportion(10, std::vector{0.1, 0.33, 0.24, 0.33}) == std::vector<extent>{1, 3, 3, 3});
    CHECK(apportion(3, std::vector<double>(10'000, 1e-4)) == [] {
        std::vector<extent> counts(10'000);
        counts[0] = counts[1] = counts[2] = 1;
        return counts;
    }());
}
