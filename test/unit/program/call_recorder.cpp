// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/axioms.hpp>
#include <heddle/program/call_recorder.hpp>
#include <support/literals.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

using tensors = std::vector<tensor_id>;

/// Makes matrices of 4 by 4, and concatenations of them.
struct joins {
    call_recorder recorder;
    tensors results{};

    tensor_id matrix() { return recorder.builder.parameter("w" + std::to_string(made_++), {4, 4}); }
    tensor_id join(tensors const& parts, std::int64_t axis, std::string const& target = "torch.cat") {
        literal::list list;
        tensor_shape dims{4, 4};
        dims[static_cast<std::size_t>(axis)] = 0;
        for (auto t : parts) {
            list.push_back(T(t));
            dims[static_cast<std::size_t>(axis)] += recorder.builder.tensor(t).shape[static_cast<std::size_t>(axis)];
        }
        results.push_back(recorder
                              .add({"join_" + std::to_string(made_++),
                                    target,
                                    {},
                                    {{"tensors", {std::move(list)}}, {"dim", number(axis)}},
                                    parts,
                                    {{dims}}})
                              .front());
        return results.back();
    }
    /// The operands of each concatenation.
    [[nodiscard]] std::vector<tensors> operands() {
        tensors sums;
        for (auto t : results) sums.push_back(recorder.builder.apply("sum", "(i j) -> (); 0", {t}));
        std::string rule = "()", terms = "0";
        for (std::size_t k = 1; k < sums.size(); ++k) rule += ", ()", terms += " + " + std::to_string(k);
        auto const p = recorder.builder.finish(recorder.builder.apply("add", rule + " -> (); " + terms, sums));
        CHECK(broken_axioms(p).empty());
        std::vector<tensors> found;
        for (operator_id o = 0; o < results.size(); ++o) found.emplace_back(p.operands(o).begin(), p.operands(o).end());
        return found;
    }

private:
    int made_ = 0;
};

} // namespace

TEST_CASE("a concatenation goes on from one of its first operands") {
    joins j;
    auto const a = j.matrix(), b = j.matrix(), c = j.matrix(), d = j.matrix();
    auto const one = j.join({a}, 1), two = j.join({a, b}, 1), three = j.join({a, b, c}, 1),
               four = j.join({a, b, c, d}, 1);
    CHECK(j.operands() == std::vector<tensors>{{a}, {a, b}, {two, c}, {three, d}});
    CHECK((one != two && j.recorder.builder.tensor(four).shape == tensor_shape{4, 16}));
}

TEST_CASE("concatenations that do not go on from each other stay as they are") {
    joins j;
    auto const a = j.matrix(), b = j.matrix(), c = j.matrix();
    j.recorder.rules["torch.concat"] = "(i j), (i k), (i l) -> (i _)";
    j.join({a, b}, 1);
    j.join({a, b}, 1);
    j.join({b, a, c}, 1);
    j.join({a, b, c}, 0);
    j.join({a, b, c}, 1, "torch.concat"); // by a rule of the user's
    j.join({a, b, c}, 1);
    auto const operands = j.operands();
    CHECK(operands.back() == tensors{j.results[0], c});
    CHECK(std::vector(operands.begin(), operands.end() - 1) ==
          std::vector<tensors>{{a, b}, {a, b}, {b, a, c}, {a, b, c}, {a, b, c}});
}

namespace {

/// Slices of a parameter of 8 by 24, and what a program of their sum has.
struct runs {
    call_recorder recorder;
    tensor_id x = recorder.builder.parameter("x", {8, 24});
    std::vector<tensor_id> results{};

    void take(std::int64_t axis, extent start, extent stop, char const* target = "torch.slice") {
        tensor_shape dims{8, 24};
        dims[static_cast<std::size_t>(axis)] = stop - start;
        traced_call call{"run_" + std::to_string(results.size()), target, {T(x)}, {}, {x}, {{dims}}};
        if (call.target == "operator.getitem")
            call.arguments.push_back(axis == 0 ? slice(start, stop) : list({slice({}, {}), slice(start, stop)}));
        else if (call.target == "torch.narrow")
            for (auto n : {axis, static_cast<std::int64_t>(start), static_cast<std::int64_t>(stop - start)})
                call.arguments.push_back(number(n));
        else
            for (auto n : {axis, static_cast<std::int64_t>(start), static_cast<std::int64_t>(stop)})
                call.arguments.push_back(number(n));
        results.push_back(recorder.add(std::move(call)).front());
    }
    program finish() {
        std::vector<tensor_id> sums;
        for (auto t : results) sums.push_back(recorder.builder.apply("sum", "(i j) -> (); 0", {t}));
        std::string rule = "()", terms = "0";
        for (std::size_t k = 1; k < sums.size(); ++k) rule += ", ()", terms += " + " + std::to_string(k);
        auto p = recorder.finish(recorder.builder.apply("add", rule + " -> (); " + terms, sums));
        CHECK(broken_axioms(p).empty());
        return p;
    }
};

std::vector<std::string> kinds_of(program const& p) {
    std::vector<std::string> kinds;
    for (operator_id o = 0; o < p.operator_count(); ++o)
        if (p.kind(o) != "sum" && p.kind(o) != "add") kinds.push_back(p.kind(o));
    return kinds;
}

} // namespace

TEST_CASE("slices of different lengths that tile a dimension are one split, in whatever order and spelling") {
    runs r;
    r.take(1, 16, 20);
    r.take(1, 0, 16, "operator.getitem");
    r.take(1, 20, 24, "torch.narrow");
    auto const p = r.finish();
    REQUIRE(kinds_of(p) == std::vector<std::string>{"split"});
    CHECK(std::ranges::any_of(p.rule(0).indices, [](loop_index const& i) { return i.pieces.size() == 3; }));
    std::vector<extent> lengths;
    for (auto t : p.results(0)) lengths.push_back(p.tensor(t).shape[1]);
    CHECK(lengths == std::vector<extent>{16, 4, 4});
    CHECK(p.work(0).is_view);
}

TEST_CASE("slices that do not tile, overlap, or have no common unit stay as they are") {
    auto const stay = [](std::vector<std::pair<extent, extent>> const& places) {
        runs r;
        for (auto const& [start, stop] : places) r.take(1, start, stop);
        auto const kinds = kinds_of(r.finish());
        return kinds.size() == places.size() && std::ranges::count(kinds, "slice") == std::ssize(kinds);
    };
    CHECK(stay({{0, 16}, {16, 20}}));
    CHECK(stay({{0, 16}, {12, 24}}));
    CHECK(stay({{0, 16}, {16, 20}, {16, 20}, {20, 24}}));
    CHECK(stay({{0, 7}, {7, 24}}));
    CHECK_FALSE(stay({{0, 6}, {6, 24}}));
    CHECK_FALSE(stay({{0, 8}, {8, 16}, {16, 24}}));
    runs both; // along each dimension
    both.take(0, 0, 2);
    both.take(1, 0, 16);
    both.take(0, 2, 8);
    both.take(1, 16, 24);
    CHECK(kinds_of(both.finish()) == std::vector<std::string>{"split", "split"});
    runs half; // the loss depends on one of them
    half.take(1, 0, 16);
    half.take(1, 16, 24);
    half.results.pop_back();
    CHECK(kinds_of(half.finish()) == std::vector<std::string>{"slice"});
}

TEST_CASE("all places of a dimension that are taken one by one are one unbind") {
    auto const kinds = [](std::vector<extent> const& places, char const* target) {
        call_recorder recorder;
        auto const x = recorder.builder.parameter("x", {4, 3, 5});
        std::string rule, terms;
        std::vector<tensor_id> taken;
        for (auto at : places) {
            traced_call call{"place", target, {T(x)}, {}, {x}, {{{4, 5}}}};
            if (call.target == "torch.select") call.arguments.insert(call.arguments.end(), {number(1), number(at)});
            else call.arguments.push_back(list({whole(), number(at)}));
            taken.push_back(recorder.add(std::move(call)).front());
            rule += std::string(rule.empty() ? "" : ", ") + "(i j)";
            terms += (terms.empty() ? "" : " + ") + std::to_string(taken.size() - 1);
        }
        auto const p = recorder.finish(recorder.builder.apply("add", rule + " -> (); " + terms, taken));
        CHECK(broken_axioms(p).empty());
        if (p.kind(0) == "unbind")
            for (std::size_t n = 0; n < places.size(); ++n) // in the order of places
                CHECK(p.results(0)[static_cast<std::size_t>((places[n] + 3) % 3)] == p.operands(1)[n]);
        return kinds_of(p);
    };
    for (char const* target : {"torch.select", "operator.getitem"}) {
        CHECK(kinds({2, 0, 1}, target) == std::vector<std::string>{"unbind"});
        CHECK(kinds({-1, 0, 1}, target) == std::vector<std::string>{"unbind"});
        CHECK(kinds({0, 2}, target).size() == 2);
        CHECK(kinds({0, 1, 1, 2}, target).size() == 4);
    }
}

TEST_CASE("places that a recurrence takes in turn stay as they are") {
    call_recorder recorder;
    auto const x = recorder.builder.parameter("x", {4, 3, 5});
    auto state = recorder.builder.parameter("h", {4, 5});
    for (std::int64_t at = 0; at < 3; ++at) {
        traced_call call{"place", "torch.select", {T(x), number(1), number(at)}, {}, {x}, {{{4, 5}}}};
        auto const taken = recorder.add(std::move(call)).front();
        state = recorder.builder.apply("step", "(i j), (i j) -> (i j)", {taken, state});
    }
    auto const p = recorder.finish(recorder.builder.apply("sum", "(i j) -> (); 0", {state}));
    CHECK(std::ranges::count(kinds_of(p), "select") == 3);
}

TEST_CASE("multi-head attention is its products, one for operands that are the same tensor") {
    auto const made = [](std::vector<tensor_id> const& operands, std::map<std::string, literal, std::less<>> named,
                         std::vector<tensor_shape> results = {{5, 2, 12}}) {
        call_recorder recorder;
        std::vector<tensor_id> t;
        for (auto const* name : {"x", "y", "z"}) t.push_back(recorder.builder.parameter(name, {5, 2, 12}));
        traced_call call{"attention", "torch.nn.functional.multi_head_attention_forward", {}, std::move(named), {}, {}};
        char const* const names[] = {"query", "key", "value"};
        for (std::size_t n = 0; n < 3; ++n) call.keywords[names[n]] = T(t[operands[n]]);
        auto const add = [&](char const* name, tensor_shape dims) {
            call.keywords[name] = T(recorder.builder.parameter(name, std::move(dims)));
        };
        add("in_proj_weight", {36, 12});
        add("in_proj_bias", {36});
        add("out_proj_weight", {12, 12});
        call.keywords.emplace("num_heads", number(3));
        for (auto const& [name, value] : call.keywords)
            if (auto const* operand = value.as<literal::tensor>()) call.operands.push_back(operand->id);
        for (auto const& dims : results) call.results.push_back({dims});
        auto const y = recorder.add(std::move(call));
        CHECK(recorder.missing().empty());
        auto const p = recorder.finish(recorder.builder.apply("sum", "(i j k) -> (); 0", {y.back()}));
        CHECK(broken_axioms(p).empty());
        std::map<std::string, int> counts;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            if (!p.work(o).is_view && p.kind(o) != "sum") ++counts[p.kind(o)];
        return counts;
    };
    using counts = std::map<std::string, int>;
    CHECK(made({0, 0, 0}, {}) == counts{{"linear", 2}, {"scaled_dot_product_attention", 1}});
    CHECK(made({0, 1, 1}, {}) == counts{{"linear", 3}, {"scaled_dot_product_attention", 1}});
    CHECK(made({0, 0, 1}, {}) == counts{{"linear", 4}, {"scaled_dot_product_attention", 1}});
    auto const weights = made({0, 0, 0}, {{"dropout_p", real(0.1)}}, {{5, 2, 12}, {2, 5, 5}});
    CHECK(weights == counts{{"dropout", 1}, {"linear", 1}, {"matmul", 1}, {"mean", 1}, {"mul", 1}, {"softmax", 1}});
    CHECK_THROWS_WITH_AS(static_cast<void>(made({0, 0, 0}, {{"num_heads", number(5)}})),
                         doctest::Contains("'num_heads': is 5"), input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(made({0, 0, 0}, {{"num_heads", number(-3)}})),
                         doctest::Contains("num_heads"), input_error);
}
