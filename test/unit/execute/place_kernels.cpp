// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <algorithm>
#include <functional>
#include <string>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("repetition is right, and splits as its rules say") {
    check({"repeat", {{2, 3}}, {T(0), ints({2, 1, 3})}, {}, {{2, 2, 9}}});
    check({"repeat", {{1, 3}}, {T(0), number(4), number(2)}, {}, {{4, 6}}});
    check({"torch.repeat_interleave", {{4, 3}}, {T(0), number(2), number(0)}, {}, {{8, 3}}});
    check({"torch.repeat_interleave", {{4, 1}}, {T(0), number(3)}, {{"dim", number(-1)}}, {{4, 3}}});
    operator_check each({"torch.repeat_interleave", {{2}}, {T(0), number(2), number(0)}, {}, {{4}}}, 1);
    auto const x = each.operands()[0].data;
    CHECK(each.results()[0].data == std::vector<double>{x[0], x[0], x[1], x[1]});
    operator_check all({"repeat", {{2}}, {T(0), number(2)}, {}, {{4}}}, 1);
    CHECK(all.results()[0].data ==
          std::vector<double>{all.operands()[0][0], all.operands()[0][1], all.operands()[0][0], all.operands()[0][1]});
}

TEST_CASE("operators that move places are right") {
    check({"torch.roll", {{4, 5}}, {T(0), ints({2, -1}), ints({0, 1})}, {}, {{4, 5}}});
    check({"torch.roll", {{4, 5}}, {T(0), number(7), number(1)}, {}, {{4, 5}}});
    check({"torch.flip", {{4, 5, 3}}, {T(0), ints({1, -1})}, {}, {{4, 5, 3}}});
    operator_check rolled({"torch.roll", {{3}}, {T(0), number(1), number(0)}, {}, {{3}}}, 1);
    auto const x = rolled.operands()[0].data;
    CHECK(rolled.results()[0].data == std::vector<double>{x[2], x[0], x[1]});
    for (char const* mode : {"constant", "reflect", "replicate", "circular"})
        check(
            {"torch.nn.functional.pad", {{2, 3, 4}}, {T(0), ints({1, 2, 2, 0})}, {{"mode", text(mode)}}, {{2, 5, 7}}});
    check(
        {"torch.nn.functional.pad", {{2, 3, 4}}, {T(0), ints({-1, 2}), text("constant"), real(1.5)}, {}, {{2, 3, 5}}});
    operator_check mirrored({"torch.nn.functional.pad", {{3}}, {T(0), ints({2, 1}), text("reflect")}, {}, {{6}}}, 1);
    auto const y = mirrored.operands()[0].data;
    CHECK(mirrored.results()[0].data == std::vector<double>{y[2], y[1], y[0], y[1], y[2], y[1]});
    CHECK_THROWS_AS(operator_check({"torch.nn.functional.pad", {{2, 3}}, {T(0), ints({1, 2, 3})}, {}, {{2, 6}}}, 1),
                    input_error);
}

TEST_CASE("slices come apart and together") {
    for (std::int64_t dim : {0, 1, -1}) {
        tensor_shape whole{2, 3, 4}, slice = whole;
        auto const axis = static_cast<std::size_t>(dim < 0 ? 2 : dim);
        auto const count = static_cast<std::size_t>(whole[axis]);
        slice.erase(slice.begin() + static_cast<std::ptrdiff_t>(axis));
        check({"unbind", {whole}, {T(0), number(dim)}, {}, std::vector<tensor_shape>(count, slice)});
        literal::list items;
        for (std::size_t k = 0; k < count; ++k) items.push_back(T(static_cast<tensor_id>(k)));
        check({"torch.stack", std::vector<tensor_shape>(count, slice), {list(items), number(dim)}, {}, {whole}});
    }
    check({"select", {{4, 3, 2}}, {T(0), number(1), number(-1)}, {}, {{4, 2}}});
    check({"narrow", {{4, 6}}, {T(0), number(1), number(2), number(3)}, {}, {{4, 3}}});
    check({"slice", {{4, 6}}, {T(0), number(1), number(1), number(6), number(2)}, {}, {{4, 3}}});
    operator_check picked({"slice", {{6}}, {T(0), number(0), number(1), number(6), number(2)}, {}, {{3}}}, 1);
    auto const x = picked.operands()[0].data;
    CHECK(picked.results()[0].data == std::vector<double>{x[1], x[3], x[5]});
}

TEST_CASE("places that are held in a tensor are looked up") {
    operator_case select{"torch.index_select", {{4, 3, 2}, {5}},       {T(0), number(1), T(1)}, {},
                         {{4, 5, 2}},          {{1, domain::below(3)}}};
    check(select);
    check({"torch.gather", {{4, 3, 2}, {4, 5, 2}}, {T(0), number(1), T(1)}, {}, {{4, 5, 2}}, {{1, domain::below(3)}}});
    check({"index_add", {{4, 3}, {5}, {5, 3}}, {T(0), number(0), T(1), T(2)}, {}, {{4, 3}}, {{1, domain::below(4)}}});
    check({"scatter_add",
           {{4, 3}, {4, 5}, {4, 5}},
           {T(0), number(1), T(1), T(2)},
           {},
           {{4, 3}},
           {{1, domain::below(3)}}});
    select.domains = {{1, {7, 8, element_type::int64}}};
    CHECK_THROWS_WITH_AS(operator_check(select, 1), "operator 'op': has index 7 into 3 places", input_error);
}

TEST_CASE("indexing by a tensor of places is right") {
    check({"operator.getitem",
           {{4, 3, 2}, {5}},
           {T(0), list({whole(), T(1)})},
           {},
           {{4, 5, 2}},
           {{1, domain::below(3)}}});
    check({"operator.getitem", {{4, 3, 2}, {5, 2}}, {T(0), T(1)}, {}, {{5, 2, 3, 2}}, {{1, domain::below(4)}}});
    check({"operator.getitem",
           {{4, 3, 2}, {5}},
           {T(0), list({{literal::ellipsis{}}, T(1)})},
           {},
           {{4, 3, 5}},
           {{1, domain::below(2)}}});
    check({"torch.index", {{4, 3, 2}, {5}}, {T(0), list({none(), T(1)})}, {}, {{4, 5, 2}}, {{1, domain::below(3)}}});
    operator_case pairs{"operator.getitem",
                        {{4, 3, 2}, {5}, {6, 1}},
                        {T(0), list({T(1), T(2)})},
                        {},
                        {{6, 5, 2}},
                        {{1, domain::below(4)}, {2, domain::below(3)}}};
    check(pairs);
    operator_check picked(pairs, 1);
    auto const &all = picked.operands()[0], &rows = picked.operands()[1], &columns = picked.operands()[2];
    for (extent a = 0; a < 6; ++a)
        for (extent b = 0; b < 5; ++b)
            CHECK(picked.results()[0][(a * 5 + b) * 2 + 1] ==
                  all[(static_cast<extent>(rows[b]) * 3 + static_cast<extent>(columns[a])) * 2 + 1]);
    pairs.domains[2] = {-3, 0, element_type::int64}; // counted from the end
    check(pairs);
    pairs.domains[2] = {3, 4, element_type::int64};
    CHECK_THROWS_WITH_AS(operator_check(pairs, 1), "operator 'op': has index 3 into 3 places", input_error);
    check({"operator.getitem",
           {{2, 4, 3}, {5}, {5}},
           {T(0), list({whole(), T(1), T(2)})},
           {},
           {{2, 5}},
           {{1, domain::below(4)}, {2, domain::below(3)}}});
    operator_case negative{
        "operator.getitem", {{3}, {1}}, {T(0), T(1)}, {}, {{1}}, {{1, {-1, 0, element_type::int64}}}};
    operator_check last(negative, 1);
    CHECK(last.results()[0][0] == last.operands()[0][2]);
    CHECK_THROWS_AS(
        operator_check(
            {"operator.getitem", {{4, 3}, {4}}, {T(0), T(1)}, {}, {{2, 3}}, {{1, domain::positive()}}, {}, true}, 1),
        input_error);
}

TEST_CASE("indexing by a mask is right") {
    domain const ones{1, 2, element_type::boolean};
    check({"operator.getitem", {{3, 4, 2}, {4}}, {T(0), list({whole(), T(1)})}, {}, {{3, 4, 2}}, {{1, ones}}});
    check({"operator.getitem", {{3, 4, 2}, {3, 4}}, {T(0), T(1)}, {}, {{12, 2}}, {{1, ones}}});
    program_builder b;
    auto const x = b.parameter("x", {2, 4}), mask = b.input("mask", {4}, element_type::boolean);
    auto const picked = add_call(b, {"op",
                                     "operator.getitem",
                                     {T(x), list({whole(), T(mask)})},
                                     {},
                                     {x, mask},
                                     {{{2, 2}, element_type::float32}}})
                            .results[0];
    auto const p = b.finish(b.apply("sum", "(a b) -> (); 0", {picked}));
    dense const values(tensor_shape{2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), some(tensor_shape{4}, {0, 1, 0, 1}),
        all(tensor_shape{4}, {1, 1, 1, 1});
    eigen_kernels<double> const backend;
    auto const run = [&](dense const& ones_and_zeros) {
        std::vector<dense const*> const operands{&values, &ones_and_zeros};
        return backend.forward(whole_call(p, 0), operands)[0].data;
    };
    CHECK(run(some) == std::vector<double>{2, 4, 6, 8});
    CHECK_THROWS_WITH_AS(run(all), "operator 'op': has a mask of 4 ones, the result has 2 places", input_error);
}

TEST_CASE("the largest of a dimension, and ones at places, are right") {
    for (bool const largest : {true, false})
        check({"torch.topk", {{4, 5, 2}}, {T(0), number(3), number(1), flag(largest)}, {}, {{4, 3, 2}, {4, 3, 2}}});
    for (char const* kind : {"max", "min"}) {
        check({kind, {{4, 5, 2}}, {T(0), number(1)}, {}, {{4, 2}, {4, 2}}});
        check({kind, {{4, 5, 2}}, {T(0), number(-1), flag(true)}, {}, {{4, 5, 1}, {4, 5, 1}}});
        operator_check most({kind, {{6}}, {T(0), number(0)}, {}, {{}, {}}}, 2);
        auto const& x = most.operands()[0].data;
        auto const at = kind == std::string("max") ? std::ranges::max_element(x) : std::ranges::min_element(x);
        CHECK(most.results()[0].data == std::vector<double>{*at});
        CHECK(most.results()[1].data == std::vector<double>{static_cast<double>(at - x.begin())});
    }
    operator_check top({"torch.topk", {{4}}, {T(0), number(2)}, {}, {{2}, {2}}}, 2);
    auto sorted = top.operands()[0].data;
    std::ranges::sort(sorted, std::greater{});
    CHECK(top.results()[0].data == std::vector<double>{sorted[0], sorted[1]});
    for (extent k = 0; k < 2; ++k)
        CHECK(top.operands()[0][static_cast<extent>(top.results()[1][k])] == top.results()[0][k]);
    CHECK_THROWS_WITH_AS(operator_check({"torch.topk", {{4}}, {T(0), number(5)}, {}, {{5}, {5}}}, 1),
                         "operator 'op', argument 'k': is 5, expected 1 to 4", input_error);
    program_builder b;
    auto const ids = b.input("ids", {3, 2}, element_type::int64), w = b.parameter("w", {3, 2, 5});
    auto const hot =
        add_call(
            b,
            {"op", "torch.nn.functional.one_hot", {T(ids), number(5)}, {}, {ids}, {{{3, 2, 5}, element_type::float32}}})
            .results[0];
    auto const p = b.finish(b.apply("total", "(a b c), (a b c) -> (); 0*1", {hot, w}));
    auto const indexed = index_program(p);
    dense places(tensor_shape{3, 2}, {0, 4, 2, 2, 1, 3});
    std::vector<dense const*> const operands{&places};
    eigen_kernels<double> const backend;
    auto const y = backend.forward(whole_call(p, 0), operands)[0];
    for (extent n = 0; n < 6; ++n)
        for (extent c = 0; c < 5; ++c) CHECK(y[n * 5 + c] == (places[n] == static_cast<double>(c)));
    auto const& loops = indexed.operators[0].loops;
    REQUIRE(loops.size() == 3);
    auto const classes = std::ranges::find(loops, 5, &split_loop::extent);
    auto const part = backend.forward(split_call(p, indexed, 0, *classes, 2, 2), operands)[0]; // classes 2 and 3
    CHECK(part.data == std::vector<double>{0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1});
}

TEST_CASE("triangles are right by the place in the whole tensor") {
    for (char const* name : {"triu", "tril"})
        for (std::int64_t diagonal : {-1, 0, 2})
            check({std::string("torch.") + name, {{2, 4, 5}}, {T(0), number(diagonal)}, {}, {{2, 4, 5}}});
    operator_check upper({"torch.triu", {{2, 2}}, {T(0)}, {}, {{2, 2}}}, 1);
    auto const x = upper.operands()[0].data;
    CHECK(upper.results()[0].data == std::vector<double>{x[0], x[1], 0, x[3]});
}
