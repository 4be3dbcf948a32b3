// SPDX-License-Identifier: BSL-1.0
// Where a program computes places and masks, its sources are drawn so that they fit.
#include "emulation.hpp"
#include "kernels.hpp"
#include "place_program.hpp"

#include <heddle/execute/random_sources.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/program/operators.hpp>
#include <support/literals.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;
using test::arguments, test::integer_operator, test::place_program, test::random_operator, test::T;

namespace {

constexpr char const *embedding = "torch.nn.functional.embedding", *getitem = "operator.getitem",
                     *index_select = "torch.index_select";

/// Runs on five seeds and gives the sources of the last.
source_values<double> run(program const& p) {
    source_values<double> sources;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        sources = random_sources<double>(p, seed);
        CHECK(std::isfinite(run_on_random_sources(p, sources, test::kernels()).loss));
    }
    CHECK(detail::value_requests(p).left_to_chance().empty());
    return sources;
}

std::string problem_of(program const& p) {
    try {
        static_cast<void>(run_on_random_sources(p, random_sources<double>(p, 1), test::kernels()));
    } catch (input_error const& e) { return e.what(); }
    return "none";
}

} // namespace

TEST_CASE("an inverse range is all that an operator brings into the range") {
    test::random_source random(1);
    int empty = 0, all = 0, some = 0;
    for (int n = 0; n < 400; ++n) {
        auto const op = random_operator(random);
        place_program of;
        auto const x = of.ids("x", {161});
        auto const y = of.call(op.target, arguments(op, x), {161});
        auto const p = of.finish({of.look_up(embedding, 5, y)});
        double const low = random.between(-8, 8);
        detail::number_range const wanted{low, low + random.between(1, 9)};
        auto const found = detail::inverse_of(wanted, {p, 0, 0, 0, detail::known_ranges(p)});
        REQUIRE(found);
        dense_tensor<double> values({161});
        for (extent e = 0; e < 161; ++e) values[e] = static_cast<double>(e - 80);
        dense_tensor<double> const* const operands[] = {&values};
        auto const results = test::kernels().forward(whole_call(p, 0), operands);
        int within = 0;
        for (extent e = 0; e < 161; ++e) {
            bool const holds = results[0][e] >= wanted.low && results[0][e] < wanted.high,
                       asked = values[e] >= found->low && values[e] < found->high;
            CAPTURE(op.target);
            CAPTURE(values[e]);
            CAPTURE(results[0][e]);
            if (asked) CHECK(holds);
            // A remainder comes again with every period, of which one is taken; a size comes with two signs, of which
            // one is taken unless both hold.
            if (holds && op.target != "operator.mod" && !(op.target == "torch.abs" && wanted.low > 0)) CHECK(asked);
            if (holds && !asked) CHECK_FALSE(found->is_empty());
            within += asked;
        }
        ++(within == 0 ? empty : within == 161 ? all : some);
    }
    CHECK(std::min({empty, all, some}) > 10);
}

TEST_CASE("places are computed of integers that are drawn for it") {
    for (char const* target : {embedding, getitem, index_select}) {
        CAPTURE(target);
        for (auto const& op : std::vector<integer_operator>{{"operator.sub", {test::number(3)}},
                                                            {"operator.add", {test::number(1)}},
                                                            {"operator.floordiv", {test::number(2)}},
                                                            {"operator.mod", {test::number(3)}},
                                                            {"operator.mod", {test::number(30)}},
                                                            {"torch.clamp", {test::number(0), test::number(2)}},
                                                            {"torch.clamp", {test::number(-1), test::number(40)}},
                                                            {"operator.mul", {test::number(2)}},
                                                            {"operator.sub", {test::number(2)}, false}}) {
            CAPTURE(op.target);
            place_program of;
            auto const ids = of.ids("ids", {40});
            auto const p = of.finish({of.look_up(target, 3, of.call(op.target, arguments(op, ids), {40}))});
            if (op.target == "torch.clamp" && detail::value_requests(p).of(ids).places.contains({}))
                continue; // whatever they are
            run(p);
        }
    }
    place_program of; // x[i - 3] of three rows
    auto const i = of.ids("i", {60});
    auto const places =
        run(of.finish({of.look_up(index_select, 3, of.call("operator.sub", {T(i), test::number(3)}, {60}))}))
            .at(i)
            .data;
    CHECK(std::ranges::min(places) == 3);
    CHECK(std::ranges::max(places) == 5);
}

TEST_CASE("places are views, pieces, joins and choices of integers, or what others look up") {
    place_program of;
    auto const a = of.ids("a", {4, 6}), b = of.ids("b", {4, 6}), mask = of.ids("mask", {4, 6}, element_type::boolean),
               old = of.ids("old", {9});
    auto const turned = of.call(
        "reshape", {T(of.call("transpose", {T(a), test::number(0), test::number(1)}, {6, 4})), test::number(24)}, {24});
    auto const part = of.call("operator.getitem", {T(turned), test::slice(2, 20)}, {18});
    auto const joined = of.call("torch.cat", {test::list({T(a), T(b)}), test::number(1)}, {4, 12});
    auto const chosen = of.call("torch.where", {T(mask), T(a), T(b)}, {4, 6});
    auto const summed =
        of.call("operator.add", {T(a), T(of.call("operator.mul", {T(b), test::number(2)}, {4, 6}))}, {4, 6});
    auto const picked = of.call("torch.index_select", {T(old), test::number(0), T(part)}, {18});
    auto const p = of.finish({of.look_up(index_select, 8, part), of.look_up(embedding, 7, joined),
                              of.look_up(embedding, 6, chosen), of.look_up(embedding, 5, summed),
                              of.look_up(embedding, 4, picked)});
    auto const sources = run(p);
    CHECK(std::ranges::max(sources.at(old).data) == 3);
    CHECK(std::ranges::max(sources.at(a).data) == 2); // half of what the sum may be
    CHECK(std::ranges::max(sources.at(b).data) == 1);
}

TEST_CASE("positions are counted along a mask") {
    for (auto type : {element_type::boolean, element_type::int64}) {
        place_program of;
        auto const mask = of.ids("mask", {3, 7}, type);
        auto const counted = of.call("torch.cumsum", {T(of.call("long", {T(mask)}, {3, 7})), test::number(1)}, {3, 7});
        auto const last = of.call("torch.sum", {T(mask), test::number(1)}, {3});
        auto const sources =
            run(of.finish({of.look_up(embedding, 8, counted),
                           of.look_up(getitem, 7, of.call("operator.sub", {T(last), test::number(1)}, {3}))}));
        CHECK(std::ranges::max(sources.at(mask).data) == 1);
        CHECK(std::ranges::min(sources.at(mask).data) == 0);
        place_program whole; // less one there must be a first one in each line
        auto const ones = whole.ids("mask", {3, 7}, type);
        auto const positions = whole.call(
            "operator.sub",
            {T(whole.call("torch.cumsum", {T(whole.call("long", {T(ones)}, {3, 7})), test::number(1)}, {3, 7})),
             test::number(1)},
            {3, 7});
        CHECK(std::ranges::min(run(whole.finish({whole.look_up(embedding, 7, positions)})).at(ones).data) == 1);
    }
}

TEST_CASE("what is known is not asked of sources, and leaves the rest to them") {
    place_program of;
    auto const counted = of.call("torch.arange", {test::number(6)}, {6});
    auto const mask = of.ids("mask", {4, 6}, element_type::boolean), offset = of.ids("offset", {4, 1});
    auto const positions = of.call("operator.add", {T(counted), test::number(2)}, {6});
    auto const shifted = of.call("operator.add", {T(counted), T(offset)}, {4, 6});
    auto const back = of.call("operator.sub", {T(offset), T(counted)}, {4, 6});
    auto const along = of.call("torch.cumsum", {T(of.call("long", {T(mask)}, {4, 6})), test::number(1)}, {4, 6});
    auto const sources = run(of.finish({of.look_up(embedding, 8, positions), of.look_up(embedding, 9, shifted),
                                        of.look_up(getitem, 6, back), of.look_up(embedding, 7, along)}));
    CHECK(std::ranges::min(sources.at(mask).data) == 0); // they need not be ones
    CHECK(std::ranges::max(sources.at(offset).data) <= 3);
    place_program beyond;
    auto const far =
        beyond.call("operator.add", {T(beyond.call("torch.arange", {test::number(6)}, {6})), test::number(2)}, {6});
    CHECK(problem_of(beyond.finish({beyond.look_up(embedding, 7, far)})).find("looks up row 7 of 7") !=
          std::string::npos);
}

TEST_CASE("places of extremes fit whatever they are of") {
    place_program of;
    auto const x = of.ids("x", {12, 4}, element_type::float32);
    run(of.finish({of.look_up(embedding, 4, of.call("torch.argmax", {T(x), test::number(1)}, {12}))}));
}

TEST_CASE("a mask has as many ones as its users take elements, its opposite the others") {
    place_program of;
    auto const mask = of.ids("mask", {12}, element_type::boolean), flags = of.ids("flags", {12}),
               others = of.ids("others", {3, 4});
    auto const truth = [&](char const* target, std::vector<literal> arguments) {
        return of.call(target, std::move(arguments), {12}, element_type::boolean);
    };
    auto const opposite = truth("torch.logical_not", {T(mask)}), equal = truth("torch.eq", {T(flags), test::number(1)}),
               zero = truth("torch.le", {T(flags), test::number(0)});
    auto const flat = truth("bool", {T(of.call("reshape", {T(others), test::number(12)}, {12}))});
    auto const sources =
        run(of.finish({of.rows_of_mask(12, 5, mask), of.rows_of_mask(12, 7, opposite), of.rows_of_mask(12, 3, equal),
                       of.rows_of_mask(12, 9, zero), of.rows_of_mask(12, 8, flat)}));
    CHECK(std::ranges::count(sources.at(mask).data, 1.0) == 5);
    CHECK(std::ranges::count(sources.at(flags).data, 1.0) == 3);
    CHECK(std::ranges::count(sources.at(others).data, 1.0) == 8);
}

TEST_CASE("what cannot be had is told with the tensor's name") {
    auto const advice = "; make it an input of the model, or do not run it";
    place_program two;
    auto const mask = two.ids("mask", {12}, element_type::boolean);
    CHECK(problem_of(two.finish({two.rows_of_mask(12, 3, mask), two.rows_of_mask(12, 5, mask)})) ==
          std::string("operator 'operator.getitem_1': has a mask of 3 ones, the result has 5 places: no random data "
                      "are known for which 'mask' has 3 ones and 5 ones") +
              advice);
    place_program apart;
    auto const ids = apart.ids("ids", {12});
    auto const far = apart.call("operator.sub", {T(ids), test::number(9)}, {12});
    auto const problem = problem_of(apart.finish({apart.look_up(embedding, 4, ids), apart.look_up(embedding, 5, far)}));
    CHECK(problem.find(": no random data are known for which 'ids' is in [9, 14) and in [0, 4)" +
                       std::string(advice)) != std::string::npos);
    place_program product;
    auto const a = product.ids("a", {12}), b = product.ids("b", {12});
    auto const of_both =
        problem_of(product.finish({product.look_up(embedding, 3, product.call("operator.mul", {T(a), T(b)}, {12}))}));
    CHECK(of_both.find("looks up row ") != std::string::npos);
    CHECK(of_both.find(" of 3: no random data are known for which 'operator.mul_0' is in [0, 3)" +
                       std::string(advice)) != std::string::npos);
}

TEST_CASE("plans of programs that compute places compute what the single device does") {
    int looked_up = 0, left = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        place_program of;
        extent const count = random.between(1, 9), rows = random.between(1, 9);
        tensor_id x = of.ids("ids", {count});
        for (int n = random.between(1, 4); n > 0; --n) {
            auto const op = random_operator(random);
            if (random.chance(0.2)) x = of.call("torch.cumsum", {T(x), test::number(0)}, {count});
            else if (random.chance(0.2))
                x = of.call("operator.add", {T(x), T(of.ids(("more" + std::to_string(n)).c_str(), {count}))}, {count});
            else x = of.call(op.target, arguments(op, x), {count});
        }
        auto const p =
            of.finish({of.look_up(random.of(std::vector<char const*>{embedding, getitem, index_select}), rows, x)});
        if (!detail::value_requests(p).left_to_chance().empty()) { // a clamp, say, to where no place is
            ++left;
            continue;
        }
        ++looked_up;
        auto const indexed = index_program(p);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        REQUIRE(verify(indexed, plan));
        auto const shown = test::emulate(p, plan, seed);
        CHECK_MESSAGE(shown, shown.problem);
    }
    CHECK(looked_up > 150);
    CHECK(left > 0);
}
