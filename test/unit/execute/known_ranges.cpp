// SPDX-License-Identifier: BSL-1.0
// What is known of integers that are computed from counted places.
#include "kernels.hpp"
#include "place_program.hpp"

#include <heddle/execute/detail/known_ranges.hpp>
#include <heddle/execute/single_device.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace heddle;
using test::place_program, test::T;

namespace {

/// The values of all tensors if sources are zeros.
source_values<double> values_of(program const& p) {
    source_values<double> known;
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (p.tensor(t).role != tensor_role::value) known.emplace(t, dense_tensor<double>(p.tensor(t).shape));
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        std::vector<dense_tensor<double> const*> operands;
        for (auto t : p.operands(o)) operands.push_back(&known.at(t));
        auto results = test::kernels().forward(whole_call(p, o), operands);
        for (std::size_t k = 0; k < results.size(); ++k) known[p.results(o)[k]] = std::move(results[k]);
    }
    return known;
}

} // namespace

TEST_CASE("a known range has all that operators compute of counted places, and mostly nothing else") {
    int known = 0, exact = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        place_program of;
        extent const count = random.between(1, 9);
        auto const whole = [&](int low, int high) { return test::number(random.between(low, high)); };
        auto const counted = [&] {
            int const begin = random.between(-4, 4), step = random.chance(0.3) ? -2 : random.between(1, 3);
            return of.call(
                "torch.arange",
                {test::number(begin), test::number(begin + static_cast<int>(count) * step), test::number(step)},
                {count});
        };
        auto x = counted();
        int const steps = random.between(1, 4);
        for (int n = 0; n < steps; ++n) {
            auto const op = test::random_operator(random);
            auto const y = random.chance(0.5)
                               ? counted()
                               : of.call("torch.full", {test::list({test::number(1)}), whole(-3, 3)}, {1});
            auto const of_two = [&](char const* target) { return of.call(target, {T(x), T(y)}, {count}); };
            switch (random.between(0, 8)) {
            case 0: x = of_two("operator.add"); break;
            case 1: x = of_two("operator.sub"); break;
            case 2: x = of_two("operator.mul"); break;
            case 3: x = of_two(random.chance(0.5) ? "torch.minimum" : "torch.maximum"); break;
            case 4: x = of.call("torch.cumsum", {T(x), test::number(0)}, {count}); break;
            case 5: {
                auto const mask = of.call("torch.gt", {T(x), whole(-3, 3)}, {count}, element_type::boolean);
                x = of.call("torch.where", {T(mask), T(x), T(y)}, {count});
                break;
            }
            default: x = of.call(op.target, test::arguments(op, x), {count});
            }
        }
        auto const weight = of.builder.parameter("weight", {count});
        auto const p = of.finish({of.call("operator.mul", {T(x), T(weight)}, {count}, element_type::float32)});
        auto const ranges = detail::known_ranges(p);
        for (auto const& [t, value] : values_of(p)) {
            if (!ranges[t].is_finite()) continue;
            CAPTURE(p.tensor(t).name);
            auto const [least, most] = std::ranges::minmax(value.data);
            CHECK(least >= ranges[t].low);
            CHECK(most < ranges[t].high);
            ++known;
            exact += least == ranges[t].low && most == ranges[t].high - 1;
        }
    }
    CHECK(known > 1000);
    CHECK(exact > known / 2);
}

TEST_CASE("a place is known by the extent that it is in, a truth value by its type, and a source not at all") {
    place_program of;
    auto const x = of.ids("x", {5, 7}, element_type::float32), ids = of.ids("ids", {5});
    auto const best = of.call("torch.argmax", {T(x), test::number(1)}, {5});
    auto const positive = of.call("torch.gt", {T(ids), test::number(0)}, {5}, element_type::boolean);
    auto const along = of.call("torch.cumsum", {T(of.call("long", {T(positive)}, {5})), test::number(0)}, {5});
    auto const p = of.finish({of.look_up("torch.nn.functional.embedding", 9, best),
                              of.look_up("torch.nn.functional.embedding", 9, along),
                              of.look_up("torch.nn.functional.embedding", 9, ids)});
    auto const named = [&](std::string const& name) {
        for (tensor_id t = 0; t < p.tensor_count(); ++t)
            if (p.tensor(t).name == name) return t;
        throw error("no tensor " + name);
    };
    auto const is = [](detail::number_range const& r, double low, double high) {
        return r.low == low && r.high == high;
    };
    auto const known = detail::known_ranges(p);
    CHECK(is(known[named("torch.argmax_0")], 0, 7));
    CHECK(is(known[named("torch.gt_1")], 0, 2));
    CHECK(is(known[named("torch.cumsum_3")], 0, 6));
    CHECK_FALSE(known[named("ids")].is_finite());
    auto const smaller = detail::known_ranges(p, [](tensor_id, std::size_t) { return extent{3}; });
    CHECK(is(smaller[named("torch.argmax_0")], 0, 3));
}
