// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/folding.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using factors = std::vector<std::size_t>;

/// Types that are so many times as fast as one that needs a second forward and three backward for each of ten layers.
template_problem speeds(std::vector<double> const& times_as_fast, std::size_t machines = 2, std::size_t devices = 2) {
    template_problem p;
    p.memory.assign(10, {bytes(8), bytes(2), bytes(1)});
    p.micro_batches = 50;
    for (double const speed : times_as_fast) {
        auto& t = p.types.emplace_back();
        t.name = "x" + std::to_string(speed);
        t.times = {std::vector(10, seconds(1 / speed)), std::vector(10, seconds(3 / speed))};
        t.machines = machines;
        t.devices_per_machine = devices;
        for (std::size_t g = 2; g <= devices; ++g) t.all_reduce[g].assign(10, seconds(0));
    }
    return p;
}

} // namespace

TEST_CASE("folding factors are the nearest whole numbers, onto the weakest type unless told otherwise") {
    auto const f = fold(speeds({2, 1, 2.95, 3.8, 5.99})); // Ditto's Fig. 8
    CHECK(f.reference == 1);
    CHECK(f.factors == factors{2, 1, 3, 4, 6});
    CHECK(f.devices == 4 * (2 + 1 + 3 + 4 + 6));
    auto const onto_strongest = fold(speeds({2, 1, 2.95, 3.8, 5.99}), {.reference = 4});
    CHECK(onto_strongest.factors == factors{1, 1, 1, 1, 1}); // never zero
    auto const onto_middle = fold(speeds({2, 1, 2.95, 3.8, 5.99}), {.reference = 0});
    CHECK(onto_middle.factors == factors{1, 1, 1, 2, 3});
}

TEST_CASE("types without machines fold to nothing") {
    auto p = speeds({0.1, 1, 3});
    p.types[0].machines = 0;
    auto const f = fold(p);
    CHECK(f.reference == 1);
    CHECK(f.factors == factors{0, 1, 3});
    CHECK_THROWS_WITH_AS((void)fold(p, {.reference = 0}), "folding: reference type 0, expected one that has machines",
                         input_error);
    CHECK_THROWS_AS((void)fold(p, {.reference = 3}), input_error);
}

TEST_CASE("what folded devices would have to say makes a device worth fewer of them") {
    auto p = speeds({1, 4});
    CHECK(fold(p, {.communication = true}).factors == factors{1, 4});
    // p(d) = 40 / d + across: 40, 20, 13.3 + 10, 10 + 20 a whole machine more each two devices; the type alone takes
    // 10.
    CHECK(fold(p, {.communication = true, .across_machines = seconds(10)}).factors == factors{1, 3});
    // p(2) = 20 + 20, p(3) = 13.3 + 20 * 2/3, p(4) = 10 + 20, all far above 10: the least is nearest.
    p.types[0].all_reduce[2].assign(10, seconds(1));
    CHECK(fold(p, {.communication = true}).factors == factors{1, 3});
    p.types[0].devices_per_machine = 4;
    p.types[0].all_reduce[4].assign(10, seconds(1));
    CHECK_THROWS_WITH_AS((void)fold(p, {.communication = true}),
                         "folding, type 'x1.000000': no all-reduce times for 3 devices, which 3 folded devices need",
                         input_error);
}

TEST_CASE("a device stands for no more of the model than it can hold") {
    auto p = speeds({1, 8}, 1, 1); // 9 folded devices share 100 bytes
    p.types[1].memory_limit = bytes(90);
    CHECK(fold(p, {.memory = true}).factors == factors{1, 8});
    p.types[1].memory_limit = bytes(60); // 5 of 9 shares; then 6 devices share 100 bytes: 3; 4 share: 2; 3: 1
    CHECK(fold(p).factors == factors{1, 8});
    CHECK(fold(p, {.memory = true}).factors == factors{1, 1});
}

TEST_CASE("folded devices share the work evenly, to the nearest layer") {
    auto p = speeds({1, 2}, 1, 1);
    CHECK(folded_cuts(p, fold(p)) == std::vector<std::size_t>{0, 3, 7, 10});
    folding many = fold(p);
    many.devices = 20; // more than layers
    auto const cuts = folded_cuts(p, many);
    REQUIRE(cuts.size() == 21);
    CHECK(cuts.front() == 0);
    CHECK(cuts.back() == 10);
    CHECK(std::ranges::is_sorted(cuts));
}
