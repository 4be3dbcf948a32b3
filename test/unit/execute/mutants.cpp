// SPDX-License-Identifier: BSL-1.0
// Plans with one thing wrong: `verify` refuses them, or they compute what the single device does all the same.
#include "emulation.hpp"
#include "instruction_mutation.hpp"

#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// Changes numbers of atoms, or moves members.
bool mutate_cuts(plan& p, test::random_source& random) {
    if (p.cuts.empty()) return false;
    auto& cut = p.cuts[random.below(p.cuts.size())];
    auto& other = p.cuts[random.below(p.cuts.size())];
    switch (random.below(7)) {
    case 0: ++cut.counts[random.below(cut.counts.size())]; return true;
    case 1: {
        extent const atoms = 1 + static_cast<extent>(random.below(8));
        return std::exchange(cut.atoms, atoms) != atoms;
    }
    case 2:
        cut.members.erase(cut.members.begin() + static_cast<std::ptrdiff_t>(random.below(cut.members.size())));
        return true;
    case 3:
        if (&cut == &other) return false;
        other.members.push_back(cut.members.back());
        cut.members.pop_back();
        return true;
    case 4: {
        auto& from = cut.counts[random.below(cut.counts.size())];
        auto& to = cut.counts[random.below(cut.counts.size())];
        if (&from == &to || from == 0) return false;
        --from;
        ++to;
        return true;
    }
    case 5: return std::ranges::next_permutation(cut.counts).found;
    default:
        --cut.counts.front();
        ++cut.counts.back();
        return true;
    }
}

bool mutate_ratios(plan& p, test::random_source& random) {
    auto& ratios = p.ratios[random.below(p.ratios.size())];
    auto& ratio = ratios[random.below(ratios.size())];
    switch (random.below(6)) {
    case 0: ratios.pop_back(); return true;
    case 1: ratios.push_back(0); return true;
    case 2: p.ratios.pop_back(); return true;
    case 3: p.ratios.push_back(ratios); return true;
    case 4: ratio = -ratio; return ratio != 0;
    default: ratio += 0.1; return true;
    }
}

/// Changes the work that a step says it is.
bool mutate_work(plan& p, test::random_source& random) {
    auto& s = p.steps[random.below(p.steps.size())].step;
    auto const change = [&](transfer_list& transfers) {
        if (transfers.empty() || random.chance(0.2))
            transfers.push_back({collective::all_reduce, bytes(4), {}, {}, {}});
        else if (random.chance(0.5)) transfers.pop_back();
        else transfers.back().size += bytes(4);
    };
    switch (random.below(10)) {
    case 0: s.forward.operations += flops(1); break;
    case 1: s.backward.operations += flops(1); break;
    case 2: s.forward.split += bytes(1); break;
    case 3: s.stored.whole += bytes(4); break;
    case 4: s.saved.split += bytes(4); break;
    case 5: s.share = s.share.is_split() ? share_ref{} : share_ref{0, 0}; break;
    case 6: s.update.whole += bytes(4); break;
    case 7: change(s.forward_transfers); break;
    case 8: change(s.backward_transfers); break;
    default: change(s.deferred_transfers);
    }
    return true;
}

/// Changes what a step says it saves.
bool mutate_saved(plan& p, test::random_source& random) {
    auto& s = p.steps[random.below(p.steps.size())].saved;
    if (s.empty() || random.chance(0.3))
        s.emplace_back(static_cast<tensor_id>(random.below(p.tensors.size())), tensor_form::replicated());
    else if (random.chance(0.3)) s.push_back(s.back());
    else if (random.chance(0.5)) s.pop_back();
    else
        s.back().second =
            s.back().second == tensor_form::replicated() ? tensor_form::partial() : tensor_form::replicated();
    return true;
}

/// Returns what a plan does, whatever the order of what is independent: the dataflow follows from who makes which form,
/// and each is made once.
auto meaning(plan const& p) {
    std::vector<std::string> done;
    for (auto const& s : p.steps) {
        auto const* const compute = s.instruction.as<instruction::compute>();
        done.push_back(test::describe(s.instruction) + (compute ? "," + std::to_string(compute->loop) : ""));
    }
    std::ranges::sort(done);
    std::map<cut_factor, std::pair<extent, std::vector<extent>>> cuts;
    for (auto const& c : p.cuts)
        for (auto const& m : c.members) cuts[m] = {c.atoms, c.counts};
    return std::pair(done, cuts);
}

/// Returns a problem without its names and numbers.
std::string part_of_verify(std::string text) {
    std::string result;
    bool quoted = false;
    for (std::size_t n = text.starts_with("step ") ? text.find(": ") + 2 : 0; n < text.size(); ++n) {
        if (text[n] == '\'') quoted = !quoted;
        else if (!quoted && std::isdigit(static_cast<unsigned char>(text[n])))
            result += result.ends_with('#') ? "" : "#";
        else if (!quoted) result += text[n];
    }
    return result;
}

struct mutant_counts {
    int rejected = 0, accepted = 0, equivalent = 0;
    std::map<std::string, int> by_part;
};

} // namespace

TEST_CASE("a mutant of a plan is refused or computes the same") {
    using change = test::instruction_mutation;
    std::vector<std::pair<char const*, bool (change::*)()>> const of_instructions{
        {"operand form", &change::operand_form},
        {"result form", &change::result_form},
        {"way to compute", &change::way},
        {"factor", &change::factor},
        {"conversion", &change::conversion},
        {"read form", &change::read_form},
        {"dropped", &change::drop},
        {"swapped", &change::swap},
        {"duplicated", &change::duplicate},
        {"loop", &change::loop},
        {"tensor", &change::tensor}};
    std::vector<std::pair<char const*, bool (*)(plan&, test::random_source&)>> const of_plans{
        {"cut", mutate_cuts}, {"ratios", mutate_ratios}, {"work record", mutate_work}, {"saved record", mutate_saved}};
    int const wanted = test::sanitized ? 200 : 1000;
    std::map<std::string, mutant_counts> table;
    int mutants = 0, accepted = 0;
    for (std::uint64_t seed = 1; mutants < wanted; ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(1, 3));
        auto const indexed = index_program(p, test::random_segments(p, random));
        auto const original = test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 4)), random);
        plan mutant = original;
        std::string kind;
        if (std::size_t const n = random.below(of_instructions.size() + of_plans.size()); n < of_instructions.size()) {
            std::vector<instruction> list;
            for (auto const& s : original.steps) list.push_back(s.instruction);
            kind = of_instructions[n].first;
            if (!(change(indexed, random, list).*of_instructions[n].second)() || list.empty()) continue;
            // The plan has the records of the new instructions, and the old cuts if the shards are the old ones.
            auto const cuts = original.cuts;
            mutant = test::plan_of(indexed, list, original.ratios, [&](atom_class const& c) {
                for (auto const& old : cuts)
                    if (old.atoms == c.atoms && old.segment == c.segment) return old.counts;
                return apportion(c.atoms, original.ratios[c.segment]);
            });
            if (random.chance(0.2)) mutant.cuts = cuts;
        } else {
            auto const& [name, mutate] = of_plans[n - of_instructions.size()];
            kind = name;
            if (!mutate(mutant, random)) continue;
        }
        CAPTURE(seed);
        CAPTURE(kind);
        INFO(test::describe(p), test::describe(original), "mutant\n", test::describe(mutant));
        REQUIRE(verify(indexed, original));
        auto& counts = table[kind];
        if (auto const verified = verify(indexed, mutant); !verified) {
            ++mutants;
            ++counts.rejected;
            ++counts.by_part[part_of_verify(verified.problem)];
            continue;
        }
        CHECK(kind != "work record");
        CHECK(kind != "saved record");
        if (meaning(mutant) == meaning(original)) {
            ++counts.equivalent;
            continue;
        }
        ++mutants;
        ++accepted;
        ++counts.accepted;
        for (std::uint64_t n = 0; n < 3; ++n) {
            auto const shown = test::emulate(p, mutant, seed + n);
            // What nobody uses any more has an adjoint that is charged and never run.
            CHECK_MESSAGE(shown.is_equal, shown.problem);
        }
    }
    CHECK(accepted > 0);
    CHECK(accepted < mutants);
    std::string text = std::to_string(mutants) + " mutants, " + std::to_string(accepted) + " accepted\n";
    for (auto const& [kind, counts] : table) {
        text += kind + ": " + std::to_string(counts.rejected) + " refused, " + std::to_string(counts.accepted) +
                " accepted, " + std::to_string(counts.equivalent) + " equivalent\n";
        for (auto const& [part, count] : counts.by_part) text += "    " + std::to_string(count) + "  " + part + "\n";
        CHECK(counts.rejected > 0);
    }
    CHECK(table.size() == of_instructions.size() + of_plans.size());
    MESSAGE(text);
}
