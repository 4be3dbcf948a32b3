// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sharding ratios of a fixed program whose micro-batches take turns, as a ratio problem.
#pragma once

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// The ratio problem of a program in micro-batches that take turns, near some ratios, of one segment. `model` has one
/// class per device type, without groups.
///
/// Every slot of `duplex` is a maximum of work and network, so each becomes a stage of the problem. Work with what
/// kernels wait for in between is a sum of maxima: where it takes longer than the network at `ratios`, each becomes a
/// stage.
/// At `ratios`, patient collectives may make the network ready last at some stage; up to that stage the problem counts
/// the network instead of the slots. The objective is never above the recurrence's time, and is equal to it where the
/// network decides up to the same stage. If that holds at the problem's solution too, no ratios are better. (What is
/// gathered again at the turn counts at every type's own ratio, which is less than at the largest.)
[[nodiscard]] ratio_problem make_interleaved_ratio_problem(program_steps const& program, cost_model const& model,
                                                           std::vector<double> const& preferred,
                                                           training_options const& training,
                                                           std::span<double const> ratios);

namespace detail {

inline stage_work operator+(stage_work a, stage_work const& b) { return a += b; }

/// Returns the same function of a ratio of [0, 1] as one maximum. *Precondition:* no curves. *Complexity.* Quadratic in
/// the pieces.
convex_pieces as_maximum(stage_work const& work);

/// The work of each type, of which the longest counts.
using work_by_type = std::vector<stage_work>;

/// One direction of a program in stages. Kernels wait between the parts of the work. The time of the network is the
/// same for all types: it is taken at the largest ratio.
struct side_curves {
    std::vector<work_by_type> work;
    stage_work transfer, urgent, patient, again;
};

/// Stages that end as those of `duplex` do.
class stages_in_turn {
public:
    /// Where the network is the last to be ready at `ratios`, the sum counts the network up to there, in either
    /// direction.
    stages_in_turn(std::size_t types, training_options const& training, std::span<double const> ratios);

    void begin_stage();
    void take(step_work const& s, step_part part, std::vector<transfer_work> transfers, ratio_problem&);
    void take(step_work const& s, step_part part, std::size_t t, program_work const& work);
    void finish(ratio_problem& into);

private:
    /// A number of slots, each with the work of one micro-batch beside the collectives of another.
    struct weighted_slot {
        double weight = 1;
        std::vector<work_by_type> work;
        stage_work network;
    };

    /// Returns the seconds of parts of work one after the other.
    [[nodiscard]] double time_of(std::vector<work_by_type> const& parts) const;
    [[nodiscard]] double time_of(weighted_slot const& s) const {
        return s.weight * std::max(time_of(s.work), s.network.at(algorithm::max(ratios_)));
    }
    static stage_work most_of(stage_work const& a, stage_work const& b);
    static work_by_type together(std::vector<work_by_type> const& parts);
    /// Adds the longer of two, which is one stage unless it has several parts.
    void add_longer(double weight, std::vector<work_by_type> const& a, std::vector<work_by_type> const& b,
                    ratio_problem& into) const;
    /// The network's time grows with the largest ratio, so it may be counted at every type's own ratio.
    void add_slot(weighted_slot const& s, ratio_problem& into) const {
        if (s.weight > 0) add_longer(s.weight, s.work, {work_by_type(types_, s.network)}, into);
    }
    static void add_network(stage_work const& curve, ratio_problem& into) {
        into.transfers.push_back({as_maximum(curve)});
    }

    std::size_t types_;
    training_options const& training_;
    std::span<double const> ratios_;
    /// The curves of the forward and the backward pass, by stage.
    std::vector<std::pair<side_curves, side_curves>> stages_;
    std::vector<stage_work> update_;
    stage_work waits_, refresh_;
    bool computes_ = false;
};

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE convex_pieces as_maximum(stage_work const& work) {
    std::vector<double> bends{0, 1};
    for (auto const& pieces : work.bent)
        for (std::size_t a = 0; a < pieces.size(); ++a)
            for (std::size_t b = a + 1; b < pieces.size(); ++b)
                if (pieces[a].slope != pieces[b].slope)
                    if (double const x =
                            (pieces[b].constant - pieces[a].constant) / (pieces[a].slope - pieces[b].slope);
                        x > 0 && x < 1)
                        bends.push_back(x);
    algorithm::sort(bends);
    convex_pieces result;
    for (std::size_t n = 0; n + 1 < bends.size(); ++n) {
        double const middle = (bends[n] + bends[n + 1]) / 2;
        affine sum = work.straight;
        for (auto const& pieces : work.bent) sum += algorithm::max(pieces, {}, [&](affine a) { return a.at(middle); });
        if (result.empty() || result.back() != sum) result.push_back(sum);
    }
    return result;
}

HEDDLE_INLINE stages_in_turn::stages_in_turn(std::size_t types, training_options const& training,
                                             std::span<double const> ratios)
    : types_(types), training_(training), ratios_(ratios), update_(types) {
    begin_stage();
}

HEDDLE_INLINE void stages_in_turn::begin_stage() {
    side_curves const empty{{work_by_type(types_)}, {}, {}, {}, {}};
    stages_.push_back({empty, empty});
    computes_ = false;
}

HEDDLE_INLINE void stages_in_turn::take(step_work const& s, step_part part, std::vector<transfer_work> transfers,
                                        ratio_problem&) {
    bool const is_forward = part == step_part::forward, is_backward = part == step_part::backward;
    bool const waits = s.waits && (is_forward || is_backward);
    if (computes_ && !s.once && !waits && (is_forward || is_backward)) begin_stage();
    stage_work sum;
    for (auto& t : transfers)
        if (t.pieces.size() == 1) sum.straight += t.pieces.front();
        else sum.bent.push_back(std::move(t.pieces));
    auto& [f, b] = stages_.back();
    bool const is_unsharded = s.transient.value > 0;
    if (waits) {
        waits_ += sum;
        auto& parts = (is_forward ? f : b).work;
        if (algorithm::any_of(parts.back(), [](auto const& w) { return w.at(1) > 0; })) parts.emplace_back(types_);
        computes_ = true;
    } else if (is_forward) (!s.once ? f.transfer : is_unsharded ? f.urgent : f.patient) += sum;
    else if (is_backward) (!s.once ? b.transfer : is_unsharded ? b.urgent : b.again) += sum;
    else (part == step_part::deferred && training_.accumulated == 1 ? b.patient : refresh_) += sum;
}

HEDDLE_INLINE void stages_in_turn::take(step_work const& s, step_part part, std::size_t t, program_work const& work) {
    if (part == step_part::update) {
        update_[t] += work.in_lines();
        return;
    }
    auto const works = [](local_work const& k) { return k.launches || k.kernels_beside > 0; };
    computes_ = computes_ || (!s.once && (works(s.forward) || works(s.backward)));
    auto& [f, b] = stages_.back();
    (part == step_part::forward ? f : b).work.back()[t] +=
        times(s.once ? 1.0 / training_.micro_batches : 1, work.in_lines());
}

HEDDLE_INLINE void stages_in_turn::finish(ratio_problem& into) {
    auto const k = static_cast<double>(training_.micro_batches);
    for (bool const is_forward : {true, false}) {
        auto const side = [&](std::size_t i) -> side_curves& {
            return is_forward ? stages_[i].first : stages_[i].second;
        };
        // `slots` has those of each stage; the rest is the network's time up to the end of the first slot, and in the
        // other slots.
        std::vector<std::array<weighted_slot, 3>> slots;
        std::vector<stage_work> networks;
        auto const rest_of = [&](std::size_t i) {
            return times(k - 1, side(i).transfer) + (i > 0 ? side(i - 1).again : stage_work{});
        };
        side_curves const nothing{{work_by_type(types_)}, {}, {}, {}, {}};
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            auto const &now = side(i), &before = i > 0 ? side(i - 1) : nothing;
            stage_work const first = now.transfer + now.urgent;
            slots.push_back({{{1, before.work, first},
                              {k - 2, now.work, now.transfer},
                              {1, now.work, now.transfer + before.again}}});
            networks.push_back(first + now.patient);
        }
        // The stage up to which the network decides, if any, as the recurrence has it.
        std::optional<std::size_t> decides;
        double slot_time = 0, network_time = 0;
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            double const ready = network_time + networks[i].at(algorithm::max(ratios_)),
                         begun = slot_time + time_of(slots[i][0]);
            if (ready > begun) decides = i;
            slot_time = std::max(ready, begun);
            slot_time += time_of(slots[i][1]) + time_of(slots[i][2]);
            network_time += (networks[i] + rest_of(i)).at(algorithm::max(ratios_));
            into.constant += k * training_.turn.value;
            slot_time += k * training_.turn.value;
        }
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            if (decides && i < *decides) {
                add_network(networks[i] + rest_of(i), into);
                into.constant -= k * training_.turn.value;
                continue;
            }
            if (decides == i) add_network(networks[i], into);
            else add_slot(slots[i][0], into);
            add_slot(slots[i][1], into), add_slot(slots[i][2], into);
        }
    }
    auto const& [f, b] = stages_.back();
    auto again = b.work;
    for (std::size_t t = 0; t < types_; ++t) again.back()[t] += b.again;
    if (training_.accumulated > 1) { // passes do not meet
        add_longer(1, f.work, f.work, into);
        add_longer(1, again, again, into);
    } else { // each type does its work of both directions, unless gathering again and then the backward work takes longer
        auto turn = f.work;
        for (std::size_t t = 0; t < types_; ++t) turn.back()[t] += b.work.back()[t];
        turn.insert(turn.end(), b.work.begin(), b.work.end() - 1);
        add_longer(1, turn, again, into);
    }
    into.stages.push_back(update_);
    add_network(times(k, waits_), into);
    add_network(refresh_, into);
}

HEDDLE_INLINE double stages_in_turn::time_of(std::vector<work_by_type> const& parts) const {
    double sum = 0;
    for (auto const& part : parts) {
        double most = 0;
        for (std::size_t t = 0; t < types_; ++t) most = std::max(most, part[t].at(ratios_[t]));
        sum += most;
    }
    return sum;
}

HEDDLE_INLINE work_by_type stages_in_turn::together(std::vector<work_by_type> const& parts) {
    work_by_type sum = parts.front();
    for (auto part = parts.begin() + 1; part != parts.end(); ++part)
        for (std::size_t t = 0; t < sum.size(); ++t) sum[t] += (*part)[t];
    return sum;
}

HEDDLE_INLINE stage_work stages_in_turn::most_of(stage_work const& a, stage_work const& b) {
    auto pieces = as_maximum(a);
    for (auto piece : as_maximum(b)) pieces.push_back(piece);
    return {{}, {std::move(pieces)}};
}

HEDDLE_INLINE void stages_in_turn::add_longer(double weight, std::vector<work_by_type> const& a,
                                              std::vector<work_by_type> const& b, ratio_problem& into) const {
    auto const& longer = time_of(a) > time_of(b) ? a : b;
    auto const add = [&](auto const& of_type) {
        auto& stage = into.stages.emplace_back();
        for (std::size_t t = 0; t < types_; ++t) stage.push_back(times(weight, of_type(t)));
    };
    if (longer.size() > 1) {
        for (auto const& part : longer) add([&](std::size_t t) { return part[t]; });
    } else {
        auto const one = together(a), other = together(b);
        add([&](std::size_t t) { return most_of(one[t], other[t]); });
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE ratio_problem make_interleaved_ratio_problem(program_steps const& program, cost_model const& model,
                                                           std::vector<double> const& preferred,
                                                           training_options const& training,
                                                           std::span<double const> ratios) {
    program_ratio_options const one_segment;
    detail::program_walk walk(model, preferred, one_segment);
    detail::stages_in_turn stages(model.class_count(), training, ratios);
    auto start = program.stage_starts.begin();
    for (std::size_t n = 0; n < program.steps.size(); ++n) {
        if (start != program.stage_starts.end() && *start == n) {
            stages.begin_stage();
            ++start;
        }
        walk.add(program.steps[n], stages);
    }
    for (auto const& s : program.saved) walk.add(s);
    return walk.finish(stages);
}

} // namespace heddle

#endif
