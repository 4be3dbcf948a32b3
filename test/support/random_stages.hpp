// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans of stages that no planner made: a program is cut anywhere, and each part has a random program on ranks
/// of its own.
#pragma once

#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <support/interleaved_plans.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// A chain of linear operators with a loss, of which some have the weight of one before.
[[nodiscard]] inline program random_chain(random_source& random) {
    program_builder b;
    auto const samples = extent{12} * random.between(1, 2);
    auto x = b.input("x", {samples, 4});
    std::vector<tensor_id> weights;
    for (int n = 0, count = random.between(6, 12); n < count; ++n) {
        if (weights.empty() || random.chance(0.8)) weights.push_back(b.parameter("w" + std::to_string(n), {4, 4}));
        auto const w = random.chance(0.8) ? weights.back() : weights[random.below(weights.size())];
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        if (random.chance(0.3)) x = b.apply("tanh", "(b n) -> (b n)", {x}, {.category = operator_class::elementwise});
    }
    auto const weighed = b.apply("mul", "(b n), (b n) -> (b n); 0*1", {x, b.input("y", {samples, 4})},
                                 {.category = operator_class::elementwise});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {weighed}, {.category = operator_class::reduction}));
}

/// The ranks of a stage: a line, a mesh of two by two, or device groups, of which one has two.
struct stage_ranks {
    std::size_t count = 1;
    bool is_mesh = false;
    std::optional<std::size_t> pair{};
};

/// Returns as many ranks as this at most.
[[nodiscard]] inline stage_ranks random_ranks(std::size_t most, random_source& random) {
    if (most >= 4 && random.chance(0.3)) return {4, true};
    auto const ranks = static_cast<std::size_t>(random.between(1, static_cast<int>(std::min<std::size_t>(most, 4))));
    if (ranks == 1 || random.chance(0.7)) return {ranks};
    return {ranks, false, random.below(ranks - 1)};
}

/// Returns a random plan of a part. Parts of a micro-batch take turns on a line of ranks.
[[nodiscard]] inline plan random_stage(program_part const& part, stage_ranks const& on,
                                       training_options const& training, random_source& random) {
    auto indexed = index_program(part.program);
    if (training.interleaves()) return interleaved(random_plan(indexed, on.count, random), indexed, training, random);
    auto const restep = [&](plan made) {
        for (auto& s : made.steps) s.step = make_step(indexed, s.instruction, training);
        made.provenance.training = training;
        return made;
    };
    if (on.is_mesh) return plan_on_mesh(indexed, random_mesh_program(indexed, mesh({2, 2}), random), training);
    if (!on.pair) return restep(random_plan(indexed, on.count, random));
    split_inside(indexed);
    auto made = restep(random_plan(indexed, on.count - 1, random));
    made.devices[*on.pair].group_size = 2;
    return made;
}

/// Cuts a program into one to three stages on so many ranks together at most, with micro-batches where the
/// program can run in them; in several rounds, into two or three of each. If asked for, parts of a micro-batch take
/// turns in some stages. Returns nothing where the program cannot be cut so.
[[nodiscard]] inline std::optional<staged_plan> random_stages(program const& p, std::size_t most_ranks,
                                                              random_source& random, std::size_t rounds = 1,
                                                              bool takes_turns = false) try {
    staged_plan made;
    if (rounds > 1 && most_ranks < 2) return std::nullopt;
    auto const places = random.between(rounds > 1 ? 2 : 1, std::min(3, static_cast<int>(most_ranks)));
    made.status = search::status::feasible;
    made.micro_batches = 1;
    auto const indexed = index_program(p);
    auto const [statistic, operation] = obstacles_to_micro_batches(indexed);
    if (!statistic && !operation && !batch_of_inputs(indexed).empty()) {
        auto const samples = batch_size_of(indexed);
        std::vector<int> fit{1};
        for (int n = 2; n <= (rounds > 1 ? 12 : 4); ++n)
            if (samples % n == 0 && one_f_one_b{rounds}.can_run({static_cast<std::size_t>(places), n}))
                fit.push_back(n);
        made.micro_batches =
            fit.size() > 1 && random.chance(rounds > 1 ? 1 : 0.8) ? fit[1 + random.below(fit.size() - 1)] : 1;
    }
    auto const last = static_cast<int>(p.operator_count());
    std::vector<operator_id> cuts{0};
    for (int left = places * static_cast<int>(rounds); --left > 0 && static_cast<int>(cuts.back()) + left < last;)
        cuts.push_back(static_cast<operator_id>(
            random.between(static_cast<int>(cuts.back()) + 1, rounds > 1 ? last - left : last - 1)));
    cuts.push_back(static_cast<operator_id>(last));
    made.stages.resize(cuts.size() - 1);
    if (made.is_plain()) return std::nullopt; // no more than a plan
    if (rounds > 1 && cuts.size() - 1 != static_cast<std::size_t>(places) * rounds) return std::nullopt;
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) made.stages[s].first = cuts[s], made.stages[s].end = cuts[s + 1];
    auto const count = made.stages.size();
    std::vector<stage_ranks> ranks;
    for (std::size_t n = 0; n < count / rounds; ++n) {
        auto const left = count / rounds - n - 1;
        ranks.push_back(random_ranks(most_ranks - made.device_count - left, random));
        for (std::size_t d = 0; d < ranks.back().count; ++d) made.stages[n].devices.push_back(made.device_count++);
    }
    for (std::size_t n = ranks.size(); n < count; ++n) made.stages[n].devices = made.stages[n - ranks.size()].devices;
    auto const is_line = [](stage_ranks const& r) { return !r.is_mesh && !r.pair; };
    takes_turns = takes_turns && made.micro_batches > 1;
    bool const in_all = takes_turns && random.chance(0.3);
    for (std::size_t n = 0; n < count && takes_turns; ++n)
        if (is_line(ranks[n % ranks.size()]) && (in_all || random.chance(0.6)))
            made.stages[n].plan.provenance.training.micro_batches = in_all ? 2 : random.between(2, 3);
    auto const parts = parts_of(p, made);
    for (std::size_t n = 0; n < parts.size(); ++n) {
        auto const in_flight = static_cast<int>(made.schedule().in_flight(n, made.shape()));
        auto& stage = made.stages[n];
        stage.plan = random_stage(
            parts[n], ranks[n % ranks.size()],
            {.micro_batches = stage.turns(), .accumulated = made.micro_batches, .in_flight = in_flight}, random);
        // What enters is read once, in one form, which a random walk does not know.
        std::set<tensor_id> read;
        for (auto const& s : stage.plan.steps)
            if (auto const* const i = s.instruction.as<instruction::read>();
                i && stage.plan.tensors[i->tensor].trainable && !read.insert(i->tensor).second)
                return std::nullopt;
    }
    return made;
} catch (input_error const&) { return std::nullopt; }

} // namespace heddle::test
