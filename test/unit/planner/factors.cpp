// SPDX-License-Identifier: BSL-1.0
// Parameter gradients from sufficient factors: which computations there are, what they cost, and when they are worth
// it.
#include "slow_links.hpp"
#include "support/forms.hpp"

#include <heddle/plan/verify.hpp>
#include <heddle/program/program.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::M;
using test::R;
using test::S0;
using test::slow_links;

/// The way to compute an operator that gathers factors, if there is one.
std::optional<instruction::compute> with_factors(indexed_program const& p, operator_id o) {
    std::optional<instruction::compute> found;
    for (auto const& i : computations(p, o))
        if (gathers_factors(i)) {
            CHECK_FALSE(found);
            found = i;
        }
    return found;
}

/// relu of a linear operator with bias, twice over; the sum.
program two_layers(extent batch, extent width) {
    program_builder b;
    auto x = b.input("x", {batch, width});
    for (char const* name : {"first", "second"}) {
        auto const w = b.parameter(std::string(name) + ".weight", {width, width}),
                   c = b.parameter(std::string(name) + ".bias", {width});
        operator_options linear, relu;
        linear.category = operator_class::matmul;
        relu.saved_results = {0};
        x = b.apply("linear", "(b k), (n k), (n) -> (b n); 0*1 + 2", {x, w, c}, linear);
        x = b.apply("relu", "(b n) -> (b n)", {x}, relu);
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}));
}

} // namespace

TEST_CASE("parameters are mirrored in a split product where factors are small") {
    auto const p = index_program(two_layers(2, 6)); // 2 * (6 + 6) elements for a gradient of 6 * 6 + 6
    auto const linear = with_factors(p, 2);
    REQUIRE(linear);
    CHECK(linear->operands == form_list{S0, M, M});
    CHECK(linear->results == form_list{S0});
    CHECK(p.operators[2].loops[static_cast<std::size_t>(linear->loop)].operands[0] == 0);
    CHECK_FALSE(with_factors(p, 1));                               // no parameters
    CHECK_FALSE(with_factors(index_program(two_layers(7, 6)), 2)); // 7 * 12 is twice 42
}

TEST_CASE("what reads more than operands and cotangents backward gathers no factors") {
    auto const ways = [](operator_options options) {
        program_builder b;
        auto const x = b.input("x", {2, 9});
        auto const y =
            b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter("w", {9, 9})}, std::move(options));
        auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
        return with_factors(p, 0).has_value();
    };
    CHECK(ways({}));
    CHECK_FALSE(ways({.saved_results = {0}}));
    CHECK_FALSE(ways({.extra_saved = bytes(1)}));
    CHECK_FALSE(ways({.saved_operands = std::vector<std::uint8_t>{1}}));
}

TEST_CASE("convolutions and embeddings have factors, frozen and computed weights have none") {
    program_builder b;
    auto const x = b.input("x", {2, 4, 3});
    auto const ids = b.input("ids", {2}, element_type::int64);
    auto const w = b.parameter("w", {16, 4, 3}), table = b.parameter("table", {50, 16});
    operator_options lookup;
    lookup.saved_operands = {0};
    lookup.sparse_operands = {1};
    auto const y = b.apply("conv1d", "(b i _), (o i _) -> (b o _); 0*1", {x, w}, {.results = {{2, 16, 1}}});
    auto const z = b.apply("reshape", "(b o 1) -> (b o); 0", {y}, {.is_view = true});
    auto const e = b.apply("embedding", "(b), (v d) -> (b d); 1", {ids, table}, lookup);
    auto const h = b.apply("mul", "(b d), (b d) -> (b d); 0*1", {z, e});
    auto const f = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                           {h, b.parameter("frozen", {30, 16}, element_type::float32, false)});
    auto const v = b.apply("neg", "(n k) -> (n k); 0", {b.parameter("v", {40, 30})});
    auto const g = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {f, v});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {g})));
    std::vector<bool> found;
    for (operator_id o = 0; o < p.operators.size(); ++o) found.push_back(with_factors(p, o).has_value());
    CHECK(found == std::vector<bool>{true, false, true, false, false, false, false, false});
}

TEST_CASE("a computation with factors costs their gathers, and its parameters' work in full") {
    auto const p = index_program(two_layers(4, 32));
    auto const i = *with_factors(p, 2);
    auto const& op = p.operators[2];
    tensor_id const x = op.operands[0], y = op.results[0];
    auto plain = i;
    plain.operands = {S0, R, R};
    auto const s = make_step(p, i, {}), ordinary = make_step(p, plain, {});
    CHECK(s.forward == ordinary.forward);
    CHECK(ordinary.backward.operations == flops(2 * 2 * 4 * 32 * 32)); // half the input's, half the weight's
    CHECK(s.backward.operations == flops(2 * 4 * 32 * 32));
    CHECK(s.deferred.operations == flops(2 * 4 * 32 * 32));
    CHECK(s.deferred.split == bytes(0));
    CHECK(s.deferred.whole == bytes(4 * (2 * 4 * 32 + 32 * 32 + 32))); // reads both factors, writes both gradients
    CHECK(s.backward.whole == ordinary.backward.whole - bytes(4 * (32 * 32 + 32)));
    CHECK(s.backward_transfers.empty());
    CHECK(s.deferred_transfers == transfer_list{{collective::all_gather, bytes(512), {x, 0}, {}, {}},
                                                {collective::all_gather, bytes(512), {y, 0}, {}, {}}});
    CHECK(s.saved == holding{bytes(0), bytes(512)}); // the cotangent waits
    // The first layer's input has no cotangent: all its backward work is the weight's.
    auto const first = make_step(p, *with_factors(p, 0), {});
    CHECK_FALSE(first.backward.launches);
    CHECK(first.deferred.operations == flops(2 * 4 * 32 * 32));
}

TEST_CASE("gathered factors are all there at once, and their work follows the collectives") {
    auto const p = index_program(two_layers(4, 32));
    auto const s = make_step(p, *with_factors(p, 2), {});
    cost_model const model(slow_links(2), {{0, 1}, {0, 1}});
    uniform_shares const shares({0.75, 0.25});
    auto const cost = model.price(s, shares);
    double both = 0;
    for (auto const& t : s.deferred_transfers) both += payload(model.decided(t, shares).what, 2, shares).value;
    CHECK(cost.buffer == both);
    CHECK(both >= 2 * 512);
    CHECK(cost.update[0] ==
          doctest::Approx(model.time(s.deferred, 0, {element_type::float32, operator_class::matmul}, false, 1)));
    CHECK(cost.update[0] == cost.update[1]);
    CHECK(cost.deferred > 0);
    CHECK(cost.backward_transfer == 0);
}

namespace {

/// The best program that splits everything along the batch and keeps whole parameters, on four devices; and how many of
/// its products gather factors.
std::pair<plan, int> best_along_batch(program const& made, bool factors) {
    auto const p = index_program(made);
    auto const c = slow_links(4);
    cut_space space(p);
    space.restrict_to([&](instruction const& i) {
        return i.visit(
            [&](instruction::read const& r) {
                return p.tensors[r.tensor].is_parameter() ? r.from == r.to && r.to.is_whole() : r.to == S0;
            },
            [&](instruction::convert const& r) { return r.tensor == p.loss; },
            [&](instruction::compute const& r) {
                bool const along_batch =
                    r.loop >= 0 && p.operators[r.op].loops[static_cast<std::size_t>(r.loop)].operands[0] == 0;
                return along_batch && (factors || !gathers_factors(r));
            },
            [](form_change const&) { return false; });
    });
    auto const graph = search::explore(space);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, {}));
    auto const model = per_device_model(c, element_type::float32);
    std::vector<double> const even(4, 0.25);
    priced_graph const priced(space, graph, steps, model, integral_shares(p, even));
    auto const bounds = improve_bounds(priced, 20);
    REQUIRE(bounds.path);
    auto found = realise(*bounds.path, space, steps, c, {even}, {}).first;
    auto const verified = verify(p, found);
    CHECK_MESSAGE(verified, verified.problem);
    auto const count = std::ranges::count_if(found.steps, [](plan_step const& s) {
        auto const* const compute = s.instruction.as<instruction::compute>();
        return compute && gathers_factors(*compute);
    });
    return {std::move(found), static_cast<int>(count)};
}

} // namespace

TEST_CASE("on slow links a small batch gathers factors, a large one reduces gradients") {
    // 2 rows are left over by two of four devices: their shards are empty.
    auto const [small, gathered] = best_along_batch(two_layers(2, 4096), true);
    CHECK(gathered == 2);
    auto const reducing = best_along_batch(two_layers(2, 4096), false);
    CHECK(reducing.second == 0);
    CHECK(small.cost() < reducing.first.cost() / 50);
    // Within what the theory offers (16384 < 2 * 4096), yet work in full costs more than the links save.
    auto const large = best_along_batch(two_layers(8000, 4096), true);
    CHECK(large.second == 0);
}

TEST_CASE("a verifier refuses factors where the backward has no use for them") {
    auto const made = two_layers(2, 4096);
    auto const p = index_program(made);
    auto const good = best_along_batch(made, true).first;
    auto const problem = [&](auto&& change) {
        auto bad = p;
        change(bad);
        return verify(bad, good).problem;
    };
    CHECK(verify(p, good));
    CHECK(problem([](auto& q) { q.operators[0].work.extra_saved = bytes(1); }).find("reads more than") !=
          std::string::npos);
    CHECK(problem([](auto& q) { q.operators[0].work.saved_operands = {}; }).find("is not saved") != std::string::npos);
    CHECK(problem([](auto& q) { q.operators[0].loops[0].is_reduction = true; }).find("a sum over the loop") !=
          std::string::npos);
}
