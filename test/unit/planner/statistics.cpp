// SPDX-License-Identifier: BSL-1.0
// Losses over a split vocabulary: what the row statistics cost, that they are the rule's, and when they are worth it.
#include "slow_links.hpp"
#include "support/forms.hpp"
#include "support/literals.hpp"

#include <heddle/plan/verify.hpp>
#include <heddle/program/operators.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::P;
using test::R;
using test::S0;
using test::S1;
using test::slow_links;
using test::T;

/// The loss of a head over many words, by one operator or by two.
program head(extent tokens, extent words, bool decomposed) {
    program_builder b;
    auto const apply = [&](char const* target, std::vector<tensor_id> operands, tensor_shape result,
                           std::map<std::string, literal, std::less<>> keywords = {}) {
        traced_call call{
            target, target, {}, std::move(keywords), operands, {{std::move(result), element_type::float32}}};
        for (auto t : operands) call.arguments.push_back(T(t));
        return add_call(b, call).results[0];
    };
    auto const x = b.input("x", {tokens, 256}), y = b.input("y", {tokens}, element_type::int64);
    auto const h = apply("torch.nn.functional.linear", {x, b.parameter("body", {256, 256})}, {tokens, 256});
    auto z = apply("torch.nn.functional.linear", {h, b.parameter("head", {words, 256})}, {tokens, words});
    if (decomposed) z = apply("torch.log_softmax", {z}, {tokens, words}, {{"dim", {std::int64_t{-1}}}});
    return b.finish(
        apply(decomposed ? "torch.nn.functional.nll_loss" : "torch.nn.functional.cross_entropy", {z, y}, {}));
}

plan best(program const& made, std::vector<double> const& ratios) {
    auto const p = index_program(made);
    auto const c = slow_links(static_cast<int>(ratios.size()));
    cut_space space(p);
    auto const graph = search::explore(space);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, {}));
    auto const model = per_device_model(c, element_type::float32);
    priced_graph const priced(space, graph, steps, model, integral_shares(p, ratios));
    auto const found = synthesise(priced, {});
    REQUIRE(found.path);
    auto result = realise(*found.path, space, steps, c, {ratios}, {}).first;
    auto const verified = verify(p, result);
    CHECK_MESSAGE(verified, verified.problem);
    return result;
}

/// Which operators a plan splits along loops with statistics.
std::vector<std::string> with_statistics(program const& made, plan const& what) {
    auto const p = index_program(made);
    std::vector<std::string> names;
    for (auto const& s : what.steps)
        if (auto const* i = s.instruction.as<instruction::compute>(); i && i->loop >= 0)
            if (p.operators[i->op].loops[static_cast<std::size_t>(i->loop)].forward_statistics > 0)
                names.push_back(made.kind(i->op));
    return names;
}

instruction::compute split_along(indexed_program const& p, operator_id o, tensor_form scores) {
    for (auto const& i : computations(p, o))
        if (i.operands[0] == scores) return i;
    FAIL("no such computation");
    return {};
}

} // namespace

TEST_CASE("cross-entropy over split classes combines a maximum and a sum per row forward, and nothing backward") {
    auto const made = head(64, 1000, false);
    auto const p = index_program(made);
    auto const i = split_along(p, 2, S1);
    CHECK(i.operands == form_list{S1, R});
    CHECK(i.results == form_list{P});
    auto const s = make_step(p, i, {}), by_rows = make_step(p, split_along(p, 2, S0), {});
    transfer const row{collective::all_reduce, bytes(64 * 4), {}, {}, {}};
    CHECK(s.forward_transfers == transfer_list{row, row});
    CHECK(s.backward_transfers.empty());
    CHECK(s.deferred_transfers.empty());
    CHECK(s.saved == by_rows.saved);
    CHECK(s.saved.split == bytes(64 * 1000 * 4));
    CHECK(by_rows.forward_transfers.empty());
}

TEST_CASE("softmax over split classes combines a sum per row backward too, and a likelihood needs none") {
    auto const made = head(64, 1000, true);
    auto const p = index_program(made);
    auto const softmax = make_step(p, split_along(p, 2, S1), {});
    CHECK(softmax.forward_transfers.size() == 2);
    CHECK(softmax.backward_transfers == transfer_list{{collective::all_reduce, bytes(64 * 4), {}, {}, {}}});
    auto const likelihood = split_along(p, 3, S1);
    CHECK(likelihood.results == form_list{P});
    CHECK(make_step(p, likelihood, {}).forward_transfers.empty());
}

TEST_CASE("on slow links a head over many words splits them, uneven as they are") {
    for (bool const decomposed : {false, true}) {
        CAPTURE(decomposed);
        auto const made = head(256, 50257, decomposed);
        auto const what = best(made, {0.4, 0.3, 0.2, 0.1});
        CHECK(with_statistics(made, what) == std::vector<std::string>{decomposed ? "log_softmax" : "cross_entropy"});
        auto const few = head(4096, 4, decomposed);
        CHECK(with_statistics(few, best(few, {0.25, 0.25, 0.25, 0.25})).empty());
    }
}

TEST_CASE("a verifier wants the statistics charged") {
    auto const made = head(256, 50257, false);
    auto bad = best(made, {0.5, 0.5});
    auto const step = std::ranges::find_if(bad.steps, [](plan_step const& s) {
        return s.instruction.is<instruction::compute>() && !s.step.forward_transfers.empty();
    });
    REQUIRE(step != bad.steps.end());
    step->step.forward_transfers.pop_back();
    CHECK(verify(made, bad).problem.find("the work it carries") != std::string::npos);
}
