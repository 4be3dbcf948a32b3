// SPDX-License-Identifier: BSL-1.0
// Damaged pipeline plans are refused, or compute what the program does all the same.
#include "kernels.hpp"
#include "support/block_programs.hpp"
#include "support/cases.hpp"
#include "support/pipelines.hpp"

#include <heddle/execute/prove_pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

template <class Items>
auto& one_of(Items& items, random_source& random) {
    return items[random.below(items.size())];
}

/// Changes one thing; returns what.
std::string damage(pipeline_plan& p, random_source& random) {
    auto& stage = one_of(p.stages, random);
    auto& copy = one_of(stage.devices, random);
    auto& group = p.groups.begin()->second;
    switch (random.below(12)) {
    case 0: ++one_of(p.layers, random).operators; return "an operator more";
    case 1: {
        std::size_t const l = random.below(p.layers.size() - 1); // moves an operator to the next layer
        if (p.layers[l].operators > 0) --p.layers[l].operators, ++p.layers[l + 1].operators;
        return "layers cut elsewhere";
    }
    case 2: stage.first += random.chance(0.5) ? 1 : std::size_t(-1); return "a stage begins elsewhere";
    case 3: stage.end += random.chance(0.5) ? 1 : std::size_t(-1); return "a stage ends elsewhere";
    case 4: one_of(copy, random) = random.below(p.devices.size() + 1); return "another device";
    case 5:
        std::swap(one_of(copy, random), one_of(one_of(one_of(p.stages, random).devices, random), random));
        return "devices exchanged";
    case 6: copy.pop_back(); return "a device less";
    case 7: p.micro_batches = random.between(0, 6); return "other micro-batches";
    case 8: p.micro_batch_size = random.between(0, 4); return "micro-batches of another size";
    case 9: {
        auto& i = one_of(group.steps, random).instruction;
        auto& f = i.change() ? i.change()->to : one_of(i.as<instruction::compute>()->operands, random);
        f = tensor_form::from_code(static_cast<std::uint16_t>(random.below(5)));
        return "another form";
    }
    case 10:
        group.steps.erase(group.steps.begin() + static_cast<std::ptrdiff_t>(random.below(group.steps.size())));
        return "a step less";
    default: {
        if (group.cuts.empty()) return "nothing";
        auto& atoms = one_of(group.cuts, random).counts;
        extent const moved = random.between(0, 2);
        one_of(atoms, random) -= moved;
        one_of(atoms, random) += moved;
        return "other shares";
    }
    }
}

} // namespace

TEST_CASE("damaged pipeline plans are refused or compute what the program does") {
    auto const p = test::residual_blocks(6, 4, 1, true);
    auto const indexed = index_program(p);
    auto const batch = split_along_batch(indexed);
    std::vector<plan> groups;
    for (std::uint64_t seed = 1; groups.size() < 4; ++seed) {
        random_source random(seed);
        if (auto found = test::random_group(indexed, batch, 2, random, 1); found && !found->cuts.empty())
            groups.push_back(*std::move(found));
    }
    std::map<std::string, std::pair<int, int>> seen; // refused, equal
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        auto plan = test::pipeline_of(p, {0, 3, 5, p.operator_count()}, 2, 3, 1, {2, 1, 2});
        plan.global_batch = 6;
        plan.groups.emplace(2, one_of(groups, random));
        REQUIRE(verify(p, plan));
        auto const what = damage(plan, random);
        CAPTURE(what);
        auto& [refused, equal] = seen[what];
        if (!verify(p, plan)) {
            ++refused;
            continue;
        }
        auto const found = prove(p, plan, test::kernels(), {.seed = seed});
        CHECK_MESSAGE(found.is_equal, found.problem);
        ++equal;
    }
    for (auto const& [what, counts] : seen) MESSAGE(what, ": ", counts.first, " refused, ", counts.second, " equal");
    CHECK(seen["an operator more"].second == 0);
    CHECK(seen["devices exchanged"].first == 0);
    if (test::sanitized) return; // too few of each kind
    CHECK(seen["another device"].first > 10);
    CHECK(seen["another form"].first > 10);
    CHECK(seen["a step less"].first > 10);
    CHECK(seen["other shares"].second > 10);
}
