// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <algorithm>
#include <random>
#include <utility>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("softmax and its logarithm are right, and split as their rules say") {
    for (char const* target : {"torch.softmax", "torch.log_softmax"})
        for (std::int64_t dim : {0, -2, 2}) check({target, {{4, 3, 5}}, {T(0), number(dim)}, {}, {{4, 3, 5}}});
    check({"torch.softmax", {{4, 1}}, {T(0), number(1)}, {}, {{4, 1}}});
}

TEST_CASE("layer norm is right, and splits as its rule says") {
    check({"torch.nn.functional.layer_norm", {{2, 3, 4}, {4}, {4}}, {T(0), ints({4}), T(1), T(2)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.layer_norm", {{4, 5}, {5}}, {T(0), ints({5}), T(1)}, {{"eps", real(0.1)}}, {{4, 5}}});
    check({"torch.nn.functional.layer_norm", {{4, 2, 3}}, {T(0), ints({2, 3})}, {}, {{4, 2, 3}}});
    // Affine in the bias alone: a partial bias would have the rest added once per device.
    check({"torch.nn.functional.layer_norm", {{4, 5}, {5}}, {T(0), ints({5})}, {{"bias", T(1)}}, {{4, 5}}});
    check({"torch.nn.functional.layer_norm", {{4, 1}, {1}, {1}}, {T(0), ints({1}), T(1), T(2)}, {}, {{4, 1}}});
}

TEST_CASE("batch norm is right, and splits as its rule says") {
    for (bool const training : {true, false}) {
        operator_case c{"torch.nn.functional.batch_norm",
                        {{4, 3, 2}, {3}, {3}, {3}, {3}},
                        {T(0), T(1), T(2), T(3), T(4), flag(training)},
                        {},
                        {{4, 3, 2}}};
        c.domains = {{2, domain::positive()}};
        c.constants = {1, 2};
        check(c);
    }
    check({"torch.nn.functional.batch_norm",
           {{4, 3}, {3}},
           {T(0)},
           {{"bias", T(1)}, {"training", flag(true)}},
           {{4, 3}}});
    check({"torch.nn.functional.batch_norm",
           {{4, 3}, {3}},
           {T(0)},
           {{"weight", T(1)}, {"training", flag(true)}},
           {{4, 3}}});
}

namespace {

/// A batch norm of so many samples whose loss is a weighed sum.
program norm_of_samples(extent samples, bool per_shard) {
    program_builder b;
    auto const x = b.parameter("x", {samples, 3, 2}), weight = b.parameter("weight", {3}),
               bias = b.parameter("bias", {3});
    rule_table const rules = per_shard ? rule_table{{"torch.nn.functional.batch_norm", "per_shard"}} : rule_table{};
    auto const y = add_call(b,
                            {"norm",
                             "torch.nn.functional.batch_norm",
                             {T(x), none(), none(), T(weight), T(bias), flag(true)},
                             {},
                             {x, weight, bias},
                             {{{samples, 3, 2}, element_type::float32}}},
                            rules);
    return b.finish(b.apply("sum", "(b c h) -> (); 0", {y.results[0]}));
}

} // namespace

TEST_CASE("batch norm per shard normalises a part of the batch by its own moments") {
    auto const whole = norm_of_samples(6, true);
    auto const indexed = index_program(whole);
    auto const& loops = indexed.operators[0].loops;
    auto const batch = std::ranges::find(loops, 6, &split_loop::extent);
    REQUIRE(batch != loops.end());
    CHECK(batch->forward_statistics + batch->backward_statistics == 0);
    CHECK(std::ranges::find(loops, 2, &split_loop::extent) == loops.end());
    eigen_kernels<double> const backend;
    std::mt19937 random(1);
    auto const draw = [&](tensor_shape dims) {
        dense t(std::move(dims));
        for (auto& v : t.data) v = std::uniform_real_distribution<double>(-1, 1)(random);
        return t;
    };
    dense const x = draw({6, 3, 2}), weight = draw({3}), bias = draw({3}), g = draw({6, 3, 2});
    auto const run = [&](program const& p, tensor_call<dense> const& call, dense const& part, dense const& cotangent) {
        std::vector<dense const*> const operands{&part, &weight, &bias}, cotangents{&cotangent};
        auto const y = backend.forward(call, operands);
        std::vector<dense const*> const results{&y[0]};
        REQUIRE(p.operator_count() == 2);
        return std::pair(y[0], backend.backward(call, operands, results, cotangents));
    };
    factor const samples{0, 6, 1};
    for (auto const& [begin, count] : {std::pair<extent, extent>{0, 2}, {2, 4}, {0, 6}, {3, 1}, {2, 0}}) {
        CAPTURE(begin);
        auto const part = take(x, samples, begin, count), cotangent = take(g, samples, begin, count);
        auto const [y, dx] = run(whole, split_call(whole, indexed, 0, *batch, begin, count), part, cotangent);
        CHECK(y.dims == tensor_shape{count, 3, 2});
        for (double v : y.data) CHECK(std::isfinite(v));
        if (count == 0) {
            CHECK(*dx[1] == dense(tensor_shape{3}));
            continue;
        }
        auto const alone = norm_of_samples(count, false);
        auto const [expected, expected_dx] = run(alone, whole_call(alone, 0), part, cotangent);
        for (extent n = 0; n < y.elements(); ++n) CHECK(y[n] == doctest::Approx(expected[n]));
        for (std::size_t k = 0; k < 3; ++k)
            for (extent n = 0; n < dx[k]->elements(); ++n) CHECK((*dx[k])[n] == doctest::Approx((*expected_dx[k])[n]));
    }
}

TEST_CASE("root-mean-square norm is right, and splits as its rule says") {
    check({"torch.nn.functional.rms_norm", {{2, 3, 4}, {4}}, {T(0), ints({4}), T(1), real(1e-3)}, {}, {{2, 3, 4}}});
    check({"torch.nn.functional.rms_norm", {{4, 2, 3}}, {T(0), ints({2, 3})}, {{"eps", real(0.1)}}, {{4, 2, 3}}});
    check({"torch.nn.functional.rms_norm", {{4, 3}}, {T(0), ints({3})}, {}, {{4, 3}}});
}

TEST_CASE("group norm and instance norm are right, and split as their rules say") {
    for (std::int64_t groups : {1, 2, 3, 6}) {
        operator_case c{"torch.nn.functional.group_norm",
                        {{3, 6, 2, 2}, {6}, {6}},
                        {T(0), number(groups), T(1), T(2)},
                        {},
                        {{3, 6, 2, 2}}};
        check(c);
    }
    check({"torch.nn.functional.group_norm", {{4, 6}}, {T(0), number(2)}, {}, {{4, 6}}});
    check({"torch.nn.functional.instance_norm",
           {{2, 3, 5}, {3}, {3}},
           {T(0)},
           {{"weight", T(1)}, {"bias", T(2)}},
           {{2, 3, 5}}});
    CHECK_THROWS_WITH_AS(
        operator_check({"torch.nn.functional.group_norm", {{4, 6}}, {T(0), number(4)}, {}, {{4, 6}}}, 1),
        "operator 'op', argument 'num_groups': is 4, expected a divisor of 6 channels", input_error);
}
