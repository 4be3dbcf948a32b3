// SPDX-License-Identifier: BSL-1.0
// Random data is the same for a seed, and what a program can work on.
#include "kernels.hpp"

#include <heddle/execute/random_sources.hpp>
#include <heddle/program/operators.hpp>
#include <support/literals.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace heddle;

namespace {

operator_options view(index_extents extents = {}) {
    operator_options options;
    options.is_view = true;
    options.extents = std::move(extents);
    return options;
}

bool all_in(dense_tensor<double> const& x, double low, double high) {
    return std::ranges::all_of(x.data, [&](double e) { return e >= low && e < high; });
}

} // namespace

TEST_CASE("a seed gives the same data, another seed others") {
    program_builder builder;
    auto const x = builder.input("x", {8, 8}), w = builder.parameter("w", {8, 8});
    auto const p = builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {x, w})}));
    CHECK(random_sources<double>(p, 1) == random_sources<double>(p, 1));
    auto const one = random_sources<double>(p, 1), two = random_sources<double>(p, 2);
    CHECK(one.size() == 2);
    CHECK(one.at(x) != two.at(x));
    CHECK(one.at(x).data != one.at(w).data);
    CHECK(all_in(one.at(x), -1, 1));
}

TEST_CASE("integers are within what they look up in, through views") {
    program_builder builder;
    auto const ids = builder.input("ids", {512}, element_type::int64),
               target = builder.input("target", {32, 16}, element_type::int64);
    auto const table = builder.parameter("table", {7, 5}), free = builder.input("free", {64}, element_type::int32);
    auto const batch = builder.apply("reshape", "((b s)) -> (b s); 0", {ids}, view({{"b", 32}}));
    auto const copy = builder.apply("clone", "(b s) -> (b s); 0", {batch});
    operator_options lookup;
    lookup.sparse_operands = {1};
    auto const rows = builder.apply("embedding", "(b s), (v d) -> (b s d); 1", {copy, table}, lookup);
    auto const scores = builder.apply("reshape", "(b s d) -> ((b s) d); 0", {rows}, view());
    operator_options labels;
    labels.attributes["ignore_index"] = {-100};
    auto const flat = builder.apply("reshape", "(b s) -> ((b s)); 0", {target}, view());
    auto const loss = builder.apply("cross_entropy", "(a !c), (_) -> ()", {scores, flat}, labels);
    auto const extra = builder.apply("to", "(a) -> (a); 0", {free}, {.result_type = element_type::float32});
    auto const p = builder.finish(
        builder.apply("add", "(), () -> (); 0 + 1", {loss, builder.apply("sum", "(a) -> (); 0", {extra})}));
    auto const sources = random_sources<double>(p, 3);
    CHECK(all_in(sources.at(ids), 0, 7));
    CHECK(std::ranges::max(sources.at(ids).data) == 6);
    auto labels_seen = sources.at(target);
    auto const ignored = std::ranges::count(labels_seen.data, -100.0);
    CHECK(ignored > 30);
    CHECK(ignored < 120);
    std::ranges::replace(labels_seen.data, -100.0, 0.0);
    CHECK(all_in(labels_seen, 0, 5));
    CHECK(std::ranges::max(labels_seen.data) == 4);
    CHECK(all_in(sources.at(free), 0, 10));
    CHECK(std::isfinite(run_single_device(p, sources, test::kernels()).loss));
    for (std::uint64_t seed = 0; seed < 200; ++seed) CHECK(random_sources<double>(p, seed).at(target)[0] >= 0);
}

TEST_CASE("labels that are looked up too are none to ignore") {
    program_builder builder;
    auto const ids = builder.input("ids", {64}, element_type::int64);
    operator_options lookup;
    lookup.sparse_operands = {1};
    auto const scores =
        builder.apply("embedding", "(b), (v d) -> (b d); 1", {ids, builder.parameter("table", {5, 5})}, lookup);
    operator_options labels;
    labels.attributes["ignore_index"] = {-100};
    auto const copy = builder.apply("clone", "(b) -> (b); 0", {ids});
    auto const p = builder.finish(builder.apply("cross_entropy", "(a !c), (_) -> ()", {scores, copy}, labels));
    for (std::uint64_t seed = 0; seed < 20; ++seed) CHECK(all_in(random_sources<double>(p, seed).at(ids), 0, 5));
}

TEST_CASE("a mask that elements are taken by has as many ones as the result has places, through views") {
    program_builder builder;
    auto const x = builder.parameter("x", {12, 3}), mask = builder.input("mask", {4, 3}, element_type::boolean);
    auto const flat = builder.apply("reshape", "(a b) -> ((a b)); 0", {mask}, view());
    operator_options taken;
    taken.results = {{5, 3}};
    taken.result_types = {element_type::float32};
    taken.attributes = {{"dim", {0}}, {"is_mask", {1}}};
    auto const rows =
        builder.apply_multi("getitem", parse_index_rule("(_ d), (_) -> (_ d); 0"), {x, flat}, taken).front();
    auto const p = builder.finish(builder.apply("sum", "(a d) -> (); 0", {rows}));
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        auto const sources = random_sources<double>(p, seed);
        CHECK(std::ranges::count(sources.at(mask).data, 1.0) == 5);
        CHECK(std::ranges::count(sources.at(mask).data, 0.0) == 7);
    }
    CHECK(std::isfinite(run_single_device(p, random_sources<double>(p, 1), test::kernels()).loss));
}

TEST_CASE("masks leave something in every line; variances are positive") {
    program_builder builder;
    auto const mask = builder.buffer("mask", {64, 8}, element_type::boolean),
               variance = builder.buffer("variance", {50});
    auto const w = builder.parameter("w", {50});
    operator_options norm;
    norm.attributes["running_var"] = {1};
    auto const y = builder.apply("batch_norm", "(c), (c) -> (c)", {w, variance}, norm);
    auto const p = builder.finish(builder.apply("whatever", "(c), (_ _) -> ()", {y, mask}));
    auto const sources = random_sources<double>(p, 1);
    auto const& m = sources.at(mask);
    CHECK(std::ranges::all_of(m.data, [](double e) { return e == 0 || e == 1; }));
    CHECK(std::ranges::count(m.data, 1.0) > 50);
    for (extent line = 0; line < 64; ++line) CHECK(m[line * 8] == 0);
    CHECK(all_in(sources.at(variance), 0.25, 0.75));
}

TEST_CASE("sources are where their users are functions at all") {
    program_builder builder;
    std::vector<tensor_id> sums;
    auto const use = [&](char const* target, std::vector<literal> arguments, tensor_shape result,
                         std::vector<tensor_id> operands, std::map<std::string, literal, std::less<>> named = {}) {
        auto const y = add_call(builder, {target + std::to_string(sums.size()),
                                          target,
                                          std::move(arguments),
                                          std::move(named),
                                          std::move(operands),
                                          {{result, element_type::float32}}})
                           .results[0];
        std::vector<std::vector<std::string>> const all{heddle::detail::numbered(result)};
        sums.push_back(builder.apply("sum", heddle::detail::rule_text(all, {{}}, "0"), {y}));
    };
    using test::T;
    std::vector<tensor_id> positive;
    for (char const* target : {"torch.rsqrt", "torch.log2", "torch.reciprocal", "torch.log1p"}) {
        positive.push_back(builder.parameter(target, {40}));
        use(target, {T(positive.back())}, {40}, {positive.back()});
    }
    auto const scaled = builder.parameter("scaled", {40});
    auto const times = [&](char const* target, tensor_id t, double number) {
        return add_call(builder, {target, target, {T(t), test::real(number)}, {}, {t}, {{{40}, element_type::float32}}})
            .results[0];
    };
    auto const shifted = times("operator.sub", times("operator.mul", scaled, -4.0), 0.5);
    use("torch.sqrt", {T(shifted)}, {40}, {shifted});
    auto const chance = builder.parameter("chance", {40}), wanted = builder.parameter("wanted", {40});
    use("torch.nn.functional.binary_cross_entropy", {T(chance), T(wanted)}, {}, {chance, wanted});
    auto const logarithm = builder.parameter("logarithm", {40}), share = builder.parameter("share", {40});
    use("torch.nn.functional.kl_div", {T(logarithm), T(share)}, {}, {logarithm, share});
    auto const table = builder.parameter("table", {5, 3}), ids = builder.input("ids", {60}, element_type::int64),
               rolled = builder.input("rolled", {60}, element_type::int64);
    use("torch.index_select", {T(table), test::number(0), T(ids)}, {60, 3}, {table, ids});
    auto const around = add_call(builder, {"around",
                                           "torch.roll",
                                           {T(rolled), test::number(1), test::number(0)},
                                           {},
                                           {rolled},
                                           {{{60}, element_type::int64}}})
                            .results[0];
    use("operator.getitem", {T(table), test::list({test::whole(), T(around)})}, {5, 60}, {table, around});
    auto const rows = builder.input("rows", {60}, element_type::int64),
               columns = builder.input("columns", {60}, element_type::int64);
    use("operator.getitem", {T(table), test::list({T(rows), T(columns)})}, {60}, {table, rows, columns});
    auto const q = builder.parameter("q", {8, 4}), mask = builder.input("mask", {8, 8}, element_type::boolean);
    use("torch.nn.functional.scaled_dot_product_attention", {T(q), T(q), T(q), T(mask)}, {8, 4}, {q, q, q, mask});
    auto const classes = builder.input("classes", {60}, element_type::int64);
    use("torch.nn.functional.one_hot", {T(classes), test::number(4)}, {60, 4}, {classes});
    std::vector<std::vector<std::string>> const scalars(sums.size());
    auto const p = builder.finish(builder.apply(
        "total", heddle::detail::rule_text(scalars, {{}}, heddle::detail::all_terms(sums.size(), " + ")), sums));
    auto const of_name = [&](source_values<double> const& sources, std::string const& name) {
        for (tensor_id t = 0; t < p.tensor_count(); ++t)
            if (p.tensor(t).name == name) return sources.at(t);
        throw error("no source " + name);
    };
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        auto const sources = random_sources<double>(p, seed);
        for (char const* name : {"torch.rsqrt", "torch.log2", "torch.reciprocal", "torch.log1p"})
            CHECK(all_in(of_name(sources, name), 0.25, 0.75));
        for (char const* name : {"chance", "wanted", "share"}) CHECK(all_in(of_name(sources, name), 0.25, 0.75));
        CHECK(all_in(of_name(sources, "logarithm"), -2, 0));
        CHECK(all_in(of_name(sources, "scaled"), -1.25 / 4, -0.75 / 4)); // -4 x - 0.5 is in [0.25, 0.75)
        CHECK(all_in(of_name(sources, "ids"), 0, 5));
        CHECK(all_in(of_name(sources, "rolled"), 0, 3));
        CHECK(all_in(of_name(sources, "rows"), 0, 5));
        CHECK(all_in(of_name(sources, "columns"), 0, 3));
        CHECK(all_in(of_name(sources, "classes"), 0, 4));
        auto const allowed = of_name(sources, "mask");
        CHECK(std::ranges::count(allowed.data, 1.0) > 32);
        for (extent line = 0; line < 8; ++line) CHECK(allowed[line * 8] == 1);
        CHECK(std::isfinite(run_single_device(p, sources, test::kernels()).loss));
    }
}

TEST_CASE("the signal of a deep stack neither explodes nor vanishes") {
    program_builder builder;
    auto x = builder.input("x", {16, 64});
    tensor_id first = 0;
    for (int layer = 0; layer < 40; ++layer) {
        auto const w = builder.parameter("w" + std::to_string(layer), {64, 64});
        if (layer == 0) first = w;
        x = builder.apply("relu", "(b n) -> (b n)", {builder.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w})});
    }
    auto const p = builder.finish(builder.apply("sum", "(b n) -> (); 0", {x}));
    auto const result = run_single_device(p, random_sources<double>(p, 1), test::kernels());
    double most = 0;
    for (double g : result.gradients.at(first).second.data) most = std::max(most, std::abs(g));
    CHECK(most > 1e-3);
    CHECK(most < 1e3);
}
