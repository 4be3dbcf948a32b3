// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The order in which a rank runs the steps of a plan for each of its micro-batches.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace heddle::detail {

/// A step for one micro-batch; steps of parameters are run once, as of the first.
struct turn {
    std::size_t step = 0, micro_batch = 0;
    friend bool operator==(turn const&, turn const&) = default;
};

struct turns {
    std::vector<turn> forward, backward;
};

/// A plan's steps are in order if there is one micro-batch. Otherwise they run as `simulate` has them: the collectives
/// of a stage are started for a micro-batch when it has computed the stage before, and then another micro-batch
/// computes; what a kernel waits for is part of what it computes. Parameters are gathered a stage ahead, those that are
/// kept, or for the second micro-batch's computation.
[[nodiscard]] turns turns_of(plan const& p);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE turns turns_of(plan const& p) {
    turns result;
    auto const count = static_cast<std::size_t>(p.provenance.training.micro_batches);
    if (count == 1) {
        for (std::size_t n = 0; n < p.steps.size(); ++n) result.forward.push_back({n, 0});
        result.backward.assign(result.forward.rbegin(), result.forward.rend());
        return result;
    }
    /// What a micro-batch has to do: collectives and what comes before them; then the rest. Steps of parameters are
    /// apart: those that are kept, those that are there for one operator, and those that drop them.
    struct stage {
        std::vector<std::size_t> transfers, work, kept, momentary, dropped;
    };
    std::vector<stage> stages(1);
    bool computes = false;
    auto forced = p.stages.begin();
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto const& i = p.steps[n].instruction;
        auto const& s = p.steps[n].step;
        auto const works = [](local_work const& w) { return w.launches || w.kernels_beside > 0; };
        bool const begins = forced != p.stages.end() && *forced == n;
        if (begins) ++forced;
        bool const communicates = !s.once && !(s.forward_transfers.empty() && s.backward_transfers.empty()),
                   is_collective = communicates && !s.waits;
        if (begins || (is_collective && computes)) {
            stages.emplace_back();
            computes = false;
        }
        auto& now = stages.back();
        computes = computes || (!s.once && (works(s.forward) || works(s.backward))) || (communicates && s.waits);
        bool const drops = i.is<instruction::reshard>();
        if (s.once && !drops) (s.transient.value > 0 ? now.momentary : now.kept).push_back(n);
        else now.work.push_back(n);
        if (drops) now.dropped.push_back(n);
        if (!is_collective) continue;
        now.transfers.insert(now.transfers.end(), now.work.begin(), now.work.end());
        now.work.clear();
    }
    auto const once = [](std::vector<turn>& to, std::vector<std::size_t> const& steps) {
        for (auto n : steps) to.push_back({n, 0});
    };
    auto const last = stages.size() - 1;
    // Drops are once for all: when the last micro-batch has computed, and, back again, before the first does.
    auto const each = [&](std::vector<turn>& to, std::vector<std::size_t> const& steps, std::size_t j) {
        for (auto n : steps)
            if (!p.steps[n].step.once) to.push_back({n, j});
            else if (j == count - 1) to.push_back({n, 0});
    };
    auto& forward = result.forward;
    once(forward, stages[0].kept);
    once(forward, stages[0].momentary);
    for (std::size_t j = 0; j < count; ++j) each(forward, stages[0].transfers, j);
    for (std::size_t i = 0; i <= last; ++i) {
        if (i < last) once(forward, stages[i + 1].kept);
        for (std::size_t j = 0; j < count; ++j) {
            each(forward, stages[i].work, j);
            if (i == last) continue;
            each(forward, stages[i + 1].transfers, j);
            if (j == 0) once(forward, stages[i + 1].momentary);
        }
    }
    auto const reversed = [](std::vector<std::size_t> const& steps) {
        return std::vector<std::size_t>(steps.rbegin(), steps.rend());
    };
    auto const each_back = [&](std::vector<std::size_t> const& steps, std::size_t j) {
        for (auto n : reversed(steps))
            if (!p.steps[n].step.once) result.backward.push_back({n, j});
    };
    once(result.backward, reversed(stages[last].dropped));
    for (std::size_t i = last + 1; i-- > 0;) {
        for (std::size_t j = 0; j < count; ++j) {
            if (j == count - 1 && i > 0) once(result.backward, reversed(stages[i - 1].dropped));
            each_back(stages[i].work, j);
            each_back(stages[i].transfers, j);
        }
        std::vector<std::size_t> parameters;
        std::ranges::merge(stages[i].kept, stages[i].momentary, std::back_inserter(parameters));
        once(result.backward, reversed(parameters));
    }
    return result;
}

} // namespace heddle::detail

#endif
