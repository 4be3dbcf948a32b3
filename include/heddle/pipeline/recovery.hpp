// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Turns a folded cluster back into its devices: coin change over folded devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/folding.hpp>
#include <heddle/pipeline/stage_kinds.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/pipeline/template_space.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/pareto_dp.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace heddle {

struct recovery_options {
    /// How many orders of devices are followed for each number of folded devices.
    std::size_t beam = 16;
    /// A stage may stand for up to this many folded devices more or fewer than its devices are worth. If nothing is
    /// found, more are allowed, and in the end cuts at any layer.
    std::size_t slack = 0;
    /// How many exchanges of two machines are tried afterwards at most, as long as one helps.
    std::size_t exchanges = 40;
    /// They hold for all of it together, but the labels, at most 4'000'000, for each dynamic programme.
    search::limits limits{};
};

namespace detail {

void cut(std::vector<template_stage>& stages, layer_assignment const& found);

/// Makes a template of stages; the layers are cut anew, exactly, for their devices in their order.
template <pipeline_schedule Schedule>
void accept(template_problem const& p, std::vector<template_stage> stages, search::deadline const& until,
            Schedule const& schedule, pipeline_template& out) {
    if (auto const best = assign_layers(p, stages, {.limits = until.rest()}, schedule); best.cost) cut(stages, best);
    out.cost = cost_of(p, stages, schedule);
    out.stages = std::move(stages);
}

/// Exchanges the places of two machines that are not shared out alike as long as the template gets faster; the layers
/// are cut anew, exactly, each time. It tries pairs in lexicographic order, round and round.
/// *Precondition:* the stages of a machine follow each other.
template <pipeline_schedule Schedule>
void exchange_machines(template_problem const& p, std::size_t most, search::deadline const& until,
                       Schedule const& schedule, pipeline_template& t) {
    using block = std::vector<template_stage>;
    auto const blocks_of = [](std::vector<template_stage> const& stages) {
        std::vector<block> blocks;
        for (auto const& s : stages) {
            bool const same =
                !blocks.empty() && blocks.back().back().type == s.type && blocks.back().back().machine == s.machine;
            if (!same) blocks.emplace_back();
            blocks.back().push_back(s);
        }
        return blocks;
    };
    auto const alike = [](block const& a, block const& b) {
        return algorithm::equal(
            a, b, [](auto const& x, auto const& y) { return x.type == y.type && x.devices == y.devices; });
    };
    auto blocks = blocks_of(t.stages);
    // This many pairs in a row without a gain are all pairs.
    std::size_t const pairs = blocks.size() * (blocks.size() - 1) / 2;
    for (std::size_t i = 0, j = 1, idle = 0; most > 0 && idle < pairs && !until.is_over(); ++idle) {
        if (!alike(blocks[i], blocks[j])) {
            --most;
            std::swap(blocks[i], blocks[j]);
            std::vector<template_stage> stages;
            for (auto const& b : blocks) stages.insert(stages.end(), b.begin(), b.end());
            auto const found = assign_layers(fixed_devices(p, stages),
                                             {.limits = until.rest(), .cutoff = t.cost->total * (1 - 1e-9)}, schedule);
            if (found.cost) {
                cut(stages, found);
                t.cost = found.cost;
                t.stages = std::move(stages);
                idle = 0;
            } else {
                std::swap(blocks[i], blocks[j]);
            }
        }
        if (++j < blocks.size()) continue;
        i = i + 2 < blocks.size() ? i + 1 : 0;
        j = i + 1;
    }
    number_machines(p, t.stages);
}

} // namespace detail

/// Recovers a template from a folded cluster. Its folded devices share the work evenly, and each group of real devices
/// takes over as many of them as it is worth, in the order that a dynamic programme finds best.
///
/// The key of the programme holds the devices used as well as the folded devices done. Merged stages cost what their
/// layers cost, need not have equal shares, and must fit their memory. Then the layers are cut anew for the order
/// found.
/// *Returns* `feasible` with a bound over all templates, `optimal` if the cost is equal to the bound, `infeasible` if
/// no template fits, or `limit`, also if the beam left out all that might fit. *Throws* `input_error`.
/// *Complexity.* O(folded devices * beam * kinds) labels, one `assign_layers`, and one more for each exchange.
/// *Reference.* Ditto section 6.2, Algorithm 2, which keeps one set of devices per number of folded ones.
template <pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] pipeline_template recover(template_problem const& p, folding const& f, recovery_options const& o = {},
                                        Schedule const& schedule = {}) {
    detail::check(p, schedule);
    search::deadline const until(o.limits);
    stage_kinds const kinds(p);
    device_walk const walk(p);
    pipeline_template out;
    out.lower_bound = template_lower_bound(p, kinds, walk, schedule);
    template_cuts cuts{folded_cuts(p, f), {}};
    for (std::size_t slack = o.slack; out.status == search::status::infeasible; slack = 2 * slack + 1) {
        bool const is_last = slack >= f.devices || p.leaves_out();
        cuts.spans.clear();
        for (auto const& k : kinds.all()) {
            auto const worth = k.devices * f.factors[k.type];
            cuts.spans.emplace_back(worth - std::min(worth - 1, slack), worth + slack);
        }
        if (is_last) cuts = template_cuts::all(p.layer_count(), kinds);
        template_space const space(p, kinds, walk, cuts, schedule);
        search::pareto_options options;
        options.beam = o.beam;
        options.limits = until.rest();
        if (o.limits.labels) options.limits.labels = std::min(*o.limits.labels, *options.all_limits().labels);
        auto const found = search::pareto_dp(space, options);
        out.statistics.states += found.statistics.expanded;
        out.statistics.cells += found.statistics.kept;
        if (found.cost) {
            auto stages = space.stages_of(found.actions);
            detail::number_machines(p, stages);
            detail::accept(p, std::move(stages), until, schedule, out);
            detail::exchange_machines(p, o.exchanges, until, schedule, out);
            search::conclude(out, out.cost->total, out.lower_bound);
        } else if (found.status == search::status::limit &&
                   (found.which_limit != search::limit_kind::labels || is_last)) {
            out.status = search::status::limit;
            out.which_limit = found.which_limit;
        } else if (is_last) {
            detail::explain(p, kinds, schedule.in_flight(0, {1, p.micro_batches}), out);
            break;
        }
    }
    out.statistics.seconds = until.elapsed();
    return out;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void cut(std::vector<template_stage>& stages, layer_assignment const& found) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
        stages[s].first = found.cuts[s];
        stages[s].end = found.cuts[s + 1];
    }
}

} // namespace heddle::detail

#endif
