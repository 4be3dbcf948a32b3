// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/degrees.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using list = std::vector<std::size_t>;

} // namespace

TEST_CASE("divisors are all numbers that divide, ascending") {
    for (std::int64_t n = 1; n <= 200; ++n) {
        std::vector<std::int64_t> expected;
        for (std::int64_t d = 1; d <= n; ++d)
            if (n % d == 0) expected.push_back(d);
        CHECK(divisors(n) == expected);
    }
}

TEST_CASE("degrees are all factorisations, of numbers that are no powers of two as well") {
    for (std::size_t n : {1u, 2u, 6u, 7u, 12u, 16u, 30u, 36u, 97u}) {
        std::vector<parallel_degrees> expected;
        for (std::size_t p = 1; p <= n; ++p)
            for (std::size_t d = 1; d <= n; ++d)
                for (std::size_t t = 1; t <= n; ++t)
                    if (p * d * t == n) expected.push_back({p, d, t});
        CHECK(all_degrees(n) == expected);
    }
    CHECK(all_degrees(16).size() == 15);
    CHECK(all_degrees(12).size() == 18);
    CHECK_THROWS_AS((void)all_degrees(0), input_error);
}

TEST_CASE("micro-batches divide what the copies leave") {
    auto const shapes = all_shapes(6, 12);
    std::size_t expected = 0;
    for (auto const& degrees : all_degrees(6)) {
        if (12 % degrees.data == 0) expected += divisors(12 / static_cast<std::int64_t>(degrees.data)).size();
    }
    CHECK(shapes.size() == expected);
    for (auto const& s : shapes) {
        CHECK(s.degrees.device_count() == 6);
        CHECK(static_cast<std::int64_t>(s.degrees.data) * s.micro_batch_size * s.micro_batches == 12);
    }
    for (auto const& s : all_shapes(4, 6)) CHECK(s.degrees.data != 4); // 6 samples are not spread over 4 copies
    CHECK_THROWS_AS((void)all_shapes(4, 0), input_error);
}

TEST_CASE("Megatron's placement keeps tensor groups together, then copies") {
    auto const p = megatron_placement({2, 3, 4});
    CHECK(p.tensor_group(0, 0) == list{0, 1, 2, 3});
    CHECK(p.tensor_group(1, 2) == list{20, 21, 22, 23});
    CHECK(p.data_group(0, 1) == list{1, 5, 9});
    CHECK(p.pipeline_group(2, 3) == list{11, 23});
    list all;
    for (std::size_t stage = 0; stage < 2; ++stage)
        for (std::size_t copy = 0; copy < 3; ++copy)
            for (std::size_t part = 0; part < 4; ++part) all.push_back(p.device(stage, copy, part));
    std::ranges::sort(all);
    CHECK(all == p.devices);
}

TEST_CASE("copies that do not divide the batch have every number of passes with its smallest micro-batch") {
    for (std::size_t devices : {1u, 4u, 6u, 12u})
        for (std::int64_t batch = 1; batch <= 24; ++batch) {
            auto const even = all_shapes(devices, batch);
            auto const spread = spread_shapes(devices, batch);
            CAPTURE(devices);
            CAPTURE(batch);
            auto const divides = [&](parallel_shape const& s) {
                return batch % static_cast<std::int64_t>(s.degrees.data) == 0;
            };
            CHECK(std::ranges::count_if(spread, divides) == static_cast<std::ptrdiff_t>(even.size()));
            for (auto const& degrees : all_degrees(devices)) {
                auto const copies = static_cast<std::int64_t>(degrees.data);
                auto const samples = (batch + copies - 1) / copies;
                std::vector<std::pair<std::int64_t, std::int64_t>> expected, found;
                for (std::int64_t size = 1, last = 0; copies <= batch && size <= samples; ++size) {
                    auto const passes = (samples + size - 1) / size;
                    bool const wanted = batch % copies == 0 ? samples % size == 0 : passes != last;
                    if (wanted) expected.emplace_back(size, passes);
                    last = passes;
                }
                for (auto const& s : spread)
                    if (s.degrees == degrees) found.emplace_back(s.micro_batch_size, s.micro_batches);
                CHECK(found == expected);
            }
        }
    CHECK_THROWS_AS((void)spread_shapes(4, 0), input_error);
}
