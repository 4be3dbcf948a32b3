// SPDX-License-Identifier: BSL-1.0
// Random programs of every operator, in random forms, on random ranks compute what the single device computes, and
// carry the bytes that their plans charge. `RC_PARAMS` chooses other cases; a failure prints what repeats it.
#include "emulation.hpp"

#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

using namespace heddle;

namespace {

/// How often each kind of instruction, collective and operator has been executed.
using tally = std::map<std::string, int>;

void count(tally& seen, program const& p, indexed_program const& indexed, plan const& what) {
    auto const word = [](tensor_form f) { return f.is_shard() ? std::string("shard") : to_string(f); };
    for (auto const& s : what.steps) {
        auto const& i = s.instruction;
        for_each_transfer(
            s.step, [&](transfer const& t) { ++seen[name(t.kind) + (t.how ? " " + std::string(name(*t.how)) : "")]; });
        i.visit(
            [&](instruction::read const& r) {
                ++seen["read " + word(r.to) + (r.from == r.to ? "" : ", state in shards")];
            },
            [&](instruction::unshard const& u) { ++seen["unshard, " + word(u.to)]; },
            [&](instruction::reshard const& r) { ++seen["reshard, " + word(r.from)]; },
            [&](instruction::convert const& c) {
                bool const redistributes = std::ranges::any_of(s.step.forward_transfers, &transfer::redistributes);
                ++seen[redistributes ? "shard to the same factor in another segment"
                                     : word(c.from) + " to " + word(c.to)];
            },
            [&](instruction::compute const& c) {
                bool const partial = std::ranges::find(c.operands, tensor_form::partial()) != c.operands.end();
                auto const* const loop =
                    c.loop < 0 ? nullptr : &indexed.operators[c.op].loops[static_cast<std::size_t>(c.loop)];
                ++seen["operator " + p.kind(c.op)];
                if (gathers_factors(c)) ++seen["compute with factors"];
                else if (loop && loop->exchanges()) ++seen["compute with rows exchanged"];
                else if (loop && loop->forward_statistics > 0) ++seen["compute with statistics"];
                else if (loop)
                    ++seen[loop->is_reduction ? partial ? "compute split, partial added" : "compute split, summed"
                                              : "compute split"];
                else ++seen["compute " + (partial ? "partial" : word(c.results[0]))];
            });
    }
    std::map<tensor_id, std::set<tensor_form>> forms;
    for (operator_id o = 0; o < p.operator_count(); ++o)
        for (auto const& s : what.steps)
            if (auto const* compute = s.instruction.as<instruction::compute>(); compute && compute->op == o)
                for (std::size_t k = 0; k < p.operands(o).size(); ++k)
                    forms[p.operands(o)[k]].insert(compute->operands[k]);
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& tensor = indexed.tensors[t];
        if (forms[t].size() > 1) ++seen["used in several forms"];
        if (tensor.is_parameter())
            ++seen[!p.tensor(t).trainable        ? "frozen parameter"
                   : tensor.consumers.size() > 1 ? "tied parameter"
                                                 : "parameter"];
        if (tensor.is_source() && !is_floating(p.tensor(t).type)) ++seen["integer input"];
    }
    for (auto const& cut : what.cuts)
        if (std::ranges::find(cut.counts, 0) != cut.counts.end()) ++seen["empty shard"];
    if (what.ratios.size() > 1) ++seen["several segments"];
    ++seen[std::to_string(what.devices.size()) + " ranks"];
}

/// What is wrong with one random plan; empty if nothing.
std::string check_plan(std::uint64_t seed, int recipes, std::size_t ranks, tally& seen) {
    test::random_source random(seed);
    auto const p = test::catalogue_program(random, recipes);
    auto const indexed = index_program(p, test::random_segments(p, random));
    auto const plan = test::random_plan(indexed, ranks, random);
    auto const told = [&](std::string const& problem) {
        return problem + "\n" + test::describe(p) + test::describe(plan);
    };
    if (auto const verified = verify(indexed, plan); !verified) return told("refused: " + verified.problem);
    if (auto const shown = test::emulate(p, plan, seed); !shown) return told(shown.problem);
    count(seen, p, indexed, plan);
    return {};
}

/// Draws from the whole range at once, and shrinks all the same.
template <class T>
rc::Gen<T> full_size(rc::Gen<T> gen) {
    return rc::gen::resize(rc::kNominalSize, std::move(gen));
}

} // namespace

TEST_CASE("random plans compute what the single device does and carry what they charge") {
    bool const chosen = std::getenv("RC_PARAMS") != nullptr;
    setenv("RC_PARAMS", test::sanitized ? "seed=1 max_success=250" : "seed=1 max_success=2000", 0);
    tally seen;
    CHECK(rc::check("a random plan emulates the single device", [&] {
        auto const recipes = *full_size(rc::gen::inRange(1, 6));
        auto const ranks = *full_size(rc::gen::inRange<std::size_t>(1, 8));
        auto const seed = *full_size(rc::gen::arbitrary<std::uint32_t>());
        if (auto const problem = check_plan(seed, recipes, ranks, seen); !problem.empty()) RC_FAIL(problem);
    }));
    if (chosen || test::sanitized) return; // such cases as somebody wants to see, or too few to have the rare ones
    std::vector<std::string> wanted{"compute split",
                                    "compute split, summed",
                                    "compute split, partial added",
                                    "compute partial",
                                    "compute replicated",
                                    "compute mirrored",
                                    "compute with factors",
                                    "compute with statistics",
                                    "compute with rows exchanged",
                                    "read shard",
                                    "read replicated",
                                    "read mirrored",
                                    "read partial",
                                    "read replicated, state in shards",
                                    "read mirrored, state in shards",
                                    "unshard, replicated",
                                    "unshard, mirrored",
                                    "reshard, replicated",
                                    "reshard, mirrored",
                                    "all_reduce",
                                    "all_gather padded",
                                    "all_gather grouped",
                                    "reduce_scatter padded",
                                    "reduce_scatter grouped",
                                    "all_to_all",
                                    "used in several forms",
                                    "several segments",
                                    "shard to the same factor in another segment",
                                    "tied parameter",
                                    "frozen parameter",
                                    "integer input",
                                    "empty shard"};
    for (char const* from : {"replicated", "partial", "mirrored", "shard"})
        for (char const* to : {"replicated", "partial", "mirrored", "shard"})
            if (std::string const a = from, b = to; (a != b || a == "shard") && !(a == "shard" && b == "partial"))
                wanted.push_back(a + " to " + b);
    for (int ranks = 1; ranks <= 7; ++ranks) wanted.push_back(std::to_string(ranks) + " ranks");
    for (auto const* table : {&detail::torch_catalogue(), &detail::helper_catalogue()})
        for (auto const& [kind, describe] : *table) wanted.push_back("operator " + std::string(kind));
    std::string rarest;
    int least = 1 << 30;
    for (auto const& kind : wanted) {
        CAPTURE(kind);
        CHECK(seen[kind] > 0);
        if (seen[kind] < least) {
            least = seen[kind];
            rarest = kind;
        }
    }
    MESSAGE(wanted.size() << " kinds; rarest: " << rarest << ", " << least << " times");
}
