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

/// A step of a program of micro-batches in turn, and whether a stage begins with it.
struct step_in_turn {
    heddle::step step;
    bool begins_stage = false;
};

namespace detail {

inline stage_work operator+(stage_work a, stage_work const& b) { return a += b; }

/// The same function of a ratio of [0, 1] as one maximum. *Complexity.* Quadratic in the pieces.
convex_pieces as_maximum(stage_work const& work);

/// One direction of a program in stages, per type; what the network does is the same for all types, at the largest
/// ratio.
struct side_curves {
    std::vector<stage_work> work;
    stage_work transfer, urgent, patient, again;
};

/// Builds the problem; stages end as those of `duplex` do.
class interleaved_problem_builder {
public:
    interleaved_problem_builder(cost_model const& model, std::vector<double> const& preferred,
                                training_options const& training);

    void add(step_in_turn const& staged);
    void add_memory(holding const& h);

    /// Where the network is the last to be ready at some ratios, the sum counts the network up to there, in either
    /// direction.
    ratio_problem finish(std::span<double const> ratios);

private:
    /// So many slots of the work of one micro-batch beside what the network does for another.
    struct weighted_slot {
        double weight = 1;
        std::vector<stage_work> work;
        stage_work network;
        [[nodiscard]] double at(std::span<double const> ratios) const;
    };

    void open();
    stage_work network(transfer_list const& transfers, bool are_gradients = false);
    static stage_work most_of(stage_work const& a, stage_work const& b);
    /// What the network takes grows with the largest ratio, so it may count at every type's own.
    void add_slot(weighted_slot const& s);
    void add_network(stage_work const& curve) { problem_.transfers.push_back(as_maximum(curve)); }

    cost_model const& model_;
    training_options const& training_;
    ratio_problem problem_;
    /// Forward and backward.
    std::vector<std::pair<side_curves, side_curves>> stages_;
    std::vector<stage_work> update_;
    stage_work refresh_;
    double buffer_ = 0;
    bool computes_ = false;
};

} // namespace detail

/// The ratio problem of a program in micro-batches that take turns: its steps in order, what it saves beside them, and
/// the ratios near which it is wanted. `model` has one class per device type, without groups.
///
/// Every slot of `duplex` is a maximum of work and network, so a stage of the problem. Where patient collectives make
/// the network the last to be ready, at the stage at which they do at `ratios`, it counts up to there instead of the
/// slots. So the objective is the recurrence's time where that stage is the same, and nowhere more: where it is the
/// time at the problem's solution too, no ratios are better. (What is gathered again at the turn counts at every type's
/// own ratio, less than at the largest.)
[[nodiscard]] ratio_problem make_interleaved_ratio_problem(std::span<step_in_turn const> steps,
                                                           std::span<holding const> saved, cost_model const& model,
                                                           std::vector<double> const& preferred,
                                                           training_options const& training,
                                                           std::span<double const> ratios);

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

HEDDLE_INLINE interleaved_problem_builder::interleaved_problem_builder(cost_model const& model,
                                                                       std::vector<double> const& preferred,
                                                                       training_options const& training)
    : model_(model), training_(training) {
    for (std::size_t t = 0; t < model.class_count(); ++t) {
        problem_.counts.push_back(model.classes()[t].count);
        problem_.memory_limits.push_back(model.memory_limit(t));
    }
    problem_.preferred = preferred;
    problem_.memory.resize(model.class_count());
    update_.resize(model.class_count());
    open();
}

HEDDLE_INLINE void interleaved_problem_builder::add(step_in_turn const& staged) {
    auto const& s = staged.step;
    auto const moves = [](transfer const& t) { return !t.redistributes; }; // what is cut alike stays where it is
    auto const works = [](kernel const& k) { return k.launches || k.kernels_beside > 0; };
    bool const communicates = model_.ranks() > 1 && (algorithm::any_of(s.forward_transfers, moves) ||
                                                     algorithm::any_of(s.backward_transfers, moves));
    if (staged.begins_stage || (computes_ && !s.once && communicates)) open();
    auto &f = stages_.back().first, &b = stages_.back().second;
    auto const forward = network(s.forward_transfers), backward = network(s.backward_transfers);
    if (s.once) {
        bool const is_unsharded = s.transient.value > 0;
        (is_unsharded ? f.urgent : f.patient) += forward;
        (is_unsharded ? b.urgent : b.again) += backward;
    } else {
        f.transfer += forward, b.transfer += backward;
    }
    b.patient += network(s.deferred_transfers, s.reduces_gradients());
    refresh_ += network(s.update_transfers);
    buffer_ = std::max(buffer_, 2 * s.transient.value);
    bool const split = s.share.is_split();
    double const part = s.once ? 1.0 / training_.micro_batches : 1;
    for (std::size_t t = 0; t < model_.class_count(); ++t) {
        f.work[t] += times(part, kernel_work(model_, s.forward, s, t, split).in_lines());
        b.work[t] += times(part, kernel_work(model_, s.backward, s, t, split).in_lines());
        update_[t] += kernel_work(model_, s.deferred, s, t, false).in_lines();
        update_[t].straight += {s.update.whole.value / model_.bandwidth(t), s.update.split.value / model_.bandwidth(t)};
        computes_ = computes_ || (!s.once && (works(s.forward) || works(s.backward)));
    }
    add_memory(s.stored), add_memory(s.saved);
}

HEDDLE_INLINE void interleaved_problem_builder::add_memory(holding const& h) {
    for (std::size_t t = 0; t < problem_.memory.size(); ++t) {
        holding const mine = model_.on_member(h, t);
        problem_.memory[t] += {mine.whole.value, mine.split.value};
    }
}

HEDDLE_INLINE ratio_problem interleaved_problem_builder::finish(std::span<double const> ratios) {
    auto const k = static_cast<double>(training_.micro_batches);
    for (bool const is_forward : {true, false}) {
        auto const side = [&](std::size_t i) -> side_curves& {
            return is_forward ? stages_[i].first : stages_[i].second;
        };
        // The slots of each stage, and what the network does up to its first one's end; and what it does in the others.
        std::vector<std::array<weighted_slot, 3>> slots;
        std::vector<stage_work> networks;
        auto const rest_of = [&](std::size_t i) {
            return times(k - 1, side(i).transfer) + (i > 0 ? side(i - 1).again : stage_work{});
        };
        side_curves const nothing{std::vector<stage_work>(model_.class_count()), {}, {}, {}, {}};
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            auto const &now = side(i), &before = i > 0 ? side(i - 1) : nothing;
            stage_work const first = now.transfer + now.urgent;
            slots.push_back({{{1, before.work, first},
                              {k - 2, now.work, now.transfer},
                              {1, now.work, now.transfer + before.again}}});
            networks.push_back(first + now.patient);
        }
        // Up to which stage the network decides, if any: as the recurrence has it.
        std::optional<std::size_t> decides;
        double slot_time = 0, network_time = 0;
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            double const ready = network_time + networks[i].at(algorithm::max(ratios)),
                         begun = slot_time + slots[i][0].at(ratios);
            if (ready > begun) decides = i;
            slot_time = std::max(ready, begun);
            slot_time += slots[i][1].at(ratios) + slots[i][2].at(ratios);
            network_time += (networks[i] + rest_of(i)).at(algorithm::max(ratios));
            problem_.constant += k * training_.turn.value;
            slot_time += k * training_.turn.value;
        }
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            if (decides && i < *decides) {
                add_network(networks[i] + rest_of(i));
                problem_.constant -= k * training_.turn.value;
                continue;
            }
            if (decides == i) add_network(networks[i]);
            else add_slot(slots[i][0]);
            add_slot(slots[i][1]), add_slot(slots[i][2]);
        }
    }
    // At the turn, each type's work in both directions; or what must be gathered again, and then the work back.
    auto const& [f, b] = stages_.back();
    auto& turn = problem_.stages.emplace_back();
    for (std::size_t t = 0; t < model_.class_count(); ++t)
        turn.push_back(most_of(f.work[t] + b.work[t], b.again + b.work[t]));
    problem_.stages.push_back(update_);
    add_network(refresh_);
    for (auto& row : problem_.memory) row.constant += buffer_;
    return std::move(problem_);
}

HEDDLE_INLINE double interleaved_problem_builder::weighted_slot::at(std::span<double const> ratios) const {
    double most = network.at(algorithm::max(ratios));
    for (std::size_t t = 0; t < work.size(); ++t) most = std::max(most, work[t].at(ratios[t]));
    return weight * most;
}

HEDDLE_INLINE void interleaved_problem_builder::open() {
    side_curves const empty{std::vector<stage_work>(model_.class_count()), {}, {}, {}, {}};
    stages_.push_back({empty, empty});
    computes_ = false;
}

HEDDLE_INLINE stage_work interleaved_problem_builder::network(transfer_list const& transfers, bool are_gradients) {
    stage_work sum;
    double buffer = 0;
    if (model_.ranks() == 1) return sum;
    for (auto const& t : transfers) {
        if (t.redistributes) continue;
        if (auto pieces = transfer_curve(model_, t, are_gradients); pieces.size() == 1) sum.straight += pieces.front();
        else sum.bent.push_back(std::move(pieces));
        buffer += least_buffer(model_, t);
    }
    buffer_ = std::max(buffer_, buffer);
    return sum;
}

HEDDLE_INLINE stage_work interleaved_problem_builder::most_of(stage_work const& a, stage_work const& b) {
    auto pieces = as_maximum(a);
    for (auto piece : as_maximum(b)) pieces.push_back(piece);
    return {{}, {std::move(pieces)}};
}

HEDDLE_INLINE void interleaved_problem_builder::add_slot(weighted_slot const& s) {
    if (s.weight == 0) return;
    auto& stage = problem_.stages.emplace_back();
    for (auto const& work : s.work) stage.push_back(most_of(times(s.weight, work), times(s.weight, s.network)));
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE ratio_problem make_interleaved_ratio_problem(std::span<step_in_turn const> steps,
                                                           std::span<holding const> saved, cost_model const& model,
                                                           std::vector<double> const& preferred,
                                                           training_options const& training,
                                                           std::span<double const> ratios) {
    detail::interleaved_problem_builder builder(model, preferred, training);
    for (auto const& s : steps) builder.add(s);
    for (auto const& h : saved) builder.add_memory(h);
    return builder.finish(ratios);
}

} // namespace heddle

#endif
