// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sharding ratios of a fixed program as a convex problem in one ratio per device type.
///
/// HAP section 5.1, with both directions, constants and memory kept. Devices of one type have equal
/// ratios: the problem is convex and symmetric in them, so some optimum has.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// constant + slope * x.
struct affine {
    double constant = 0, slope = 0;
    [[nodiscard]] double at(double x) const { return constant + slope * x; }
    affine& operator+=(affine other) { constant += other.constant; slope += other.slope; return *this; }
    friend bool operator==(affine, affine) = default;
};

/// Maximum of affine functions.
using convex_pieces = std::vector<affine>;

/// Time of one type in one stage: an affine part plus kernels whose roofline bends within [0, 1].
struct stage_work {
    affine straight;
    std::vector<convex_pieces> bent;

    [[nodiscard]] double at(double ratio) const {
        double sum = straight.at(ratio);
        for (auto const& pieces : bent) sum += std::ranges::max(pieces, {}, [&](affine a) { return a.at(ratio); }).at(ratio);
        return sum;
    }
    stage_work& operator+=(stage_work const& other) {
        straight += other.straight;
        bent.insert(bent.end(), other.bent.begin(), other.bent.end());
        return *this;
    }
    friend bool operator==(stage_work const&, stage_work const&) = default;
};

/// Minimise, over one ratio r_t >= 0 per type with sum_t count_t r_t = 1,
/// `constant + sum over stages of max_t work(r_t) + sum over transfers of max over pieces at max_t r_t`
/// so that `memory_t(r_t) <= limit_t`.
struct ratio_problem {
    std::vector<int> counts;
    /// Ratios to prefer among equals: proportional to computing speed.
    std::vector<double> preferred;
    double constant = 0;
    /// Per stage, per type.
    std::vector<std::vector<stage_work>> stages;
    /// Transfers as functions of the largest ratio.
    std::vector<convex_pieces> transfers;
    /// Bytes of a device of each type. Communication buffers count where their size is the same at all ratios.
    std::vector<affine> memory;
    std::vector<double> memory_limits;

    [[nodiscard]] std::size_t type_count() const { return counts.size(); }

    /// The objective at ratios that need not fit into memory.
    [[nodiscard]] double objective(std::span<double const> ratios) const {
        double sum = constant;
        for (auto const& stage : stages) {
            double most = 0;
            for (std::size_t t = 0; t < stage.size(); ++t) most = std::max(most, stage[t].at(ratios[t]));
            sum += most;
        }
        double const largest = std::ranges::max(ratios);
        for (auto const& pieces : transfers) sum += std::ranges::max(pieces, {}, [&](affine a) { return a.at(largest); }).at(largest);
        return sum;
    }
    [[nodiscard]] bool fits(std::span<double const> ratios, double tolerance = 1e-9) const {
        for (std::size_t t = 0; t < memory.size(); ++t)
            if (memory[t].at(ratios[t]) > memory_limits[t] * (1 + tolerance)) return false;
        return true;
    }
};

namespace detail {

inline void check_finite(affine a, std::string const& place) {
    if (!std::isfinite(a.constant) || !std::isfinite(a.slope)) throw input_error(place, "expected finite numbers");
}
inline void check_pieces(convex_pieces const& pieces, std::string const& place) {
    if (pieces.empty()) throw input_error(place, "a maximum of no functions, expected at least one");
    for (auto a : pieces) check_finite(a, place);
}
inline void check_work(stage_work const& work, std::string const& place) {
    check_finite(work.straight, place);
    for (auto const& pieces : work.bent) check_pieces(pieces, place);
}

} // namespace detail

/// Throws `input_error` naming the first thing in a ratio problem that cannot be.
inline void validate(ratio_problem const& p) {
    auto const types = p.type_count();
    auto const place = [](char const* list, std::size_t n) { return std::string("ratio problem, ") + list + " " + std::to_string(n); };
    if (types == 0) throw input_error("ratio problem, counts", "there is none, expected at least one device type");
    if (p.preferred.size() != types) throw input_error("ratio problem, preferred", "expected one ratio per type");
    if (!p.memory.empty() && (p.memory.size() != types || p.memory_limits.size() != types))
        throw input_error("ratio problem, memory", "expected one row and one limit per type, or no row");
    for (std::size_t t = 0; t < types; ++t) {
        if (p.counts[t] < 1) throw input_error(place("type", t), "expected at least one device");
        if (!(std::isfinite(p.preferred[t]) && p.preferred[t] >= 0)) throw input_error(place("type", t), "expected a preferred ratio, not negative");
        if (p.memory.empty()) continue;
        detail::check_finite(p.memory[t], place("memory of type", t));
        if (std::isnan(p.memory_limits[t])) throw input_error(place("memory of type", t), "expected a limit");
    }
    if (!std::isfinite(p.constant)) throw input_error("ratio problem, constant", "expected a finite number");
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const stage = place("stage", s);
        if (p.stages[s].size() != types) throw input_error(stage, "expected the work of every type");
        for (auto const& work : p.stages[s]) detail::check_work(work, stage);
    }
    for (std::size_t n = 0; n < p.transfers.size(); ++n) detail::check_pieces(p.transfers[n], place("transfer", n));
}

struct ratio_solution {
    bool feasible = false;
    /// One per type.
    std::vector<double> ratios;
    double objective = 0;
};

/// Solves ratio problems.
///
/// *Axioms.* If `feasible`, the ratios keep every constraint and no feasible ratios have a smaller
/// objective (within the solver's tolerance, at most 1e-7 relative); among equal ones they are nearest to `preferred`, see `tie_cost`.
template <class Solver>
concept ratio_solver = requires(Solver& solver, ratio_problem const& p) {
    { solver.solve(p) } -> std::convertible_to<ratio_solution>;
};

/// Ratios proportional to each type's speed on matrix products, per device; of a group, to that of all its devices.
[[nodiscard]] inline std::vector<double> compute_proportional(cost_model const& model, element_type type) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t t = 0; t < model.class_count(); ++t) {
        ratios.push_back(model.speed(t, type, operator_class::matmul).rate * model.classes()[t].group_size);
        sum += ratios.back() * model.classes()[t].count;
    }
    for (auto& r : ratios) r /= sum;
    return ratios;
}

/// Equal ratios.
[[nodiscard]] inline std::vector<double> even(cost_model const& model) {
    return std::vector<double>(model.class_count(), 1.0 / model.ranks());
}

namespace detail {

/// A kernel's time on a type, as a function of its ratio.
inline stage_work kernel_curve(cost_model const& model, kernel const& all, step const& s, std::size_t t, bool split) {
    stage_work result;
    if (all.kernels_beside > 0) {
        auto const beside = model.beside(all, t, s.type);
        result.straight += {beside.constant, beside.slope};
    }
    if (!all.launches) return result;
    kernel const work = model.on_member(all, t);
    auto const& speed = model.speed(t, s.type, s.category);
    double const operations = work.operations.value / speed.rate;
    affine const compute = split ? affine{0, operations} : affine{operations, 0};
    affine const traffic{work.whole.value / speed.bandwidth, work.split.value / speed.bandwidth};
    result.straight.constant += speed.overhead;
    bool const low = compute.at(0) >= traffic.at(0), high = compute.at(1) >= traffic.at(1);
    if (low && high) result.straight += compute;
    else if (compute.at(0) <= traffic.at(0) && compute.at(1) <= traffic.at(1)) result.straight += traffic;
    else result.bent.push_back({compute, traffic});
    return result;
}
/// The same of what a group's devices exchange.
inline affine inside_line(cost_model const& model, inside_list const& list, std::size_t t) {
    affine sum;
    for (auto const& x : list) {
        auto const& line = model.inside(x.kind, t);
        sum += {line.latency.value + line.slope.value * x.whole.value, line.slope.value * x.split.value};
    }
    return sum;
}
/// A collective's time as a function of the largest ratio. *Precondition:* there is more than one rank.
inline convex_pieces transfer_curve(cost_model const& model, transfer const& t) {
    // Launches and the sum of all shards: the same at all ratios, where the model is one line.
    if (t.how == uneven::grouped) return {{model.time_across(t, uniform_shares(even(model))), 0}};
    double const at_zero = payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
    double const at_one = payload(t, model.ranks(), 1, 1).value;
    convex_pieces pieces;
    for (auto const& p : model.model(t.kind).pieces)
        pieces.push_back({p.latency.value + p.slope.value * at_zero, p.slope.value * (at_one - at_zero)});
    return pieces;
}
/// The bytes of its buffer that are there at all ratios.
inline double least_buffer(cost_model const& model, transfer const& t) {
    return payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
}

/// Builds the problems of all segments side by side: stage by stage, each with the work of its own ratios.
class ratio_problem_builder {
public:
    ratio_problem_builder(cost_model const& model, std::vector<double> const& preferred, std::size_t segments) : model_(model), problems_(segments) {
        for (auto& p : problems_) {
            for (std::size_t t = 0; t < model.class_count(); ++t) {
                p.counts.push_back(model.classes()[t].count);
                p.memory_limits.push_back(model.memory_limit(t));
            }
            p.preferred = preferred;
            p.memory.resize(model.class_count());
        }
        for (auto* open : {&forward_, &backward_, &update_}) *open = empty_stage();
    }

    /// `segment_of(share_ref)` is the segment whose ratios a share follows.
    template <class SegmentOf>
    void add(step const& s, SegmentOf const& segment_of) {
        add_transfers(s.forward_transfers, &forward_, segment_of);
        add_transfers(s.backward_transfers, &backward_, segment_of);
        add_transfers(s.deferred_transfers, nullptr, segment_of);
        add_transfers(s.update_transfers, nullptr, segment_of);
        buffer_ = std::max(buffer_, 2 * s.transient.value);
        bool const split = s.share.is_split();
        std::size_t const g = split ? segment_of(s.share) : 0;
        for (std::size_t t = 0; t < model_.class_count(); ++t) {
            forward_[g][t] += kernel_curve(model_, s.forward, s, t, split);
            backward_[g][t] += kernel_curve(model_, s.backward, s, t, split);
            update_[g][t] += kernel_curve(model_, s.deferred, s, t, false);
            update_[g][t].straight += {s.update.whole.value / model_.bandwidth(t), s.update.split.value / model_.bandwidth(t)};
            forward_[g][t].straight += inside_line(model_, s.inside_forward, t);
            backward_[g][t].straight += inside_line(model_, s.inside_backward, t);
            update_[g][t].straight += inside_line(model_, s.inside_update, t);
        }
        add_memory(s.stored, g);
        add_memory(s.saved, g);
    }
    void add_memory(holding const& h, std::size_t segment) {
        auto& memory = problems_[segment].memory;
        for (std::size_t t = 0; t < memory.size(); ++t) {
            holding const mine = model_.on_member(h, t);
            memory[t] += {mine.whole.value, mine.split.value};
        }
    }

    [[nodiscard]] std::vector<ratio_problem> finish() {
        for (std::size_t g = 0; g < problems_.size(); ++g)
            for (std::size_t t = 0; t < model_.class_count(); ++t) forward_[g][t] += backward_[g][t];
        close(forward_);
        close(update_);
        for (auto& row : problems_[0].memory) row.constant += buffer_;
        return std::move(problems_);
    }

    /// What moves between the cuts of two segments, as functions of the larger of their largest ratios.
    struct exchange {
        std::size_t from = 0, to = 0;
        convex_pieces pieces;
    };
    std::vector<exchange> exchanges;

private:
    /// By segment and type.
    using stage = std::vector<std::vector<stage_work>>;
    [[nodiscard]] stage empty_stage() const { return stage(problems_.size(), std::vector<stage_work>(model_.class_count())); }

    void close(stage& open) {
        auto closed = std::exchange(open, empty_stage());
        for (std::size_t g = 0; g < problems_.size(); ++g) problems_[g].stages.push_back(std::move(closed[g]));
    }

    /// Transfers that close a stage, if they do.
    template <class SegmentOf>
    void add_transfers(transfer_list const& transfers, stage* open, SegmentOf const& segment_of) {
        for (auto const& t : transfers) {
            add_inside_groups(t.before, t.size, t.from, segment_of);
            add_inside_groups(t.after, t.size, t.to, segment_of);
        }
        if (model_.ranks() == 1 || transfers.empty()) return;
        if (open) close(*open);
        double buffer = 0;
        for (auto const& t : transfers) buffer += add_transfer(t, segment_of);
        buffer_ = std::max(buffer_, buffer);
    }

    /// Gives the size of its buffer where that is the same at all ratios.
    template <class SegmentOf>
    double add_transfer(transfer const& t, SegmentOf const& segment_of) {
        auto pieces = transfer_curve(model_, t);
        auto const segment = [&](share_ref ref, share_ref other) -> std::size_t {
            return ref.is_split() ? segment_of(ref) : other.is_split() ? segment_of(other) : 0;
        };
        if (pieces.size() == 1 && pieces[0].slope == 0) problems_[0].constant += pieces[0].constant;
        else if (auto const from = segment(t.from, t.to), to = segment(t.to, t.from); from == to) problems_[from].transfers.push_back(std::move(pieces));
        else exchanges.push_back({from, to, std::move(pieces)});
        return least_buffer(model_, t);
    }

    /// A step of all groups, bounded by what it would be if all had the largest share.
    template <class SegmentOf>
    void add_inside_groups(inside_step kind, bytes size, share_ref cut, SegmentOf const& segment_of) {
        convex_pieces pieces;
        bool const split = cut.is_split();
        for (std::size_t t = 0; t < model_.class_count(); ++t) {
            auto const& line = model_.inside(kind, t);
            double const all = line.slope.value * size.value;
            if (line.latency.value + all > 0) pieces.push_back(split ? affine{line.latency.value, all} : affine{line.latency.value + all, 0});
        }
        if (!pieces.empty()) problems_[split ? segment_of(cut) : 0].transfers.push_back(std::move(pieces));
    }
    cost_model const& model_;
    std::vector<ratio_problem> problems_;
    stage forward_, backward_, update_;
    double buffer_ = 0;
};

} // namespace detail

/// The ratio problem of a program: its steps in order, and what it saves beside them.
/// `model` has one class per device type.
/// An all-to-all is charged on its largest shard, so everything is convex in the ratios.
[[nodiscard]] inline ratio_problem make_ratio_problem(std::span<step const> steps, std::span<holding const> saved,
                                                      cost_model const& model, std::vector<double> const& preferred) {
    detail::ratio_problem_builder builder(model, preferred, 1);
    auto const segment_of = [](share_ref) { return std::size_t{0}; };
    for (auto const& s : steps) builder.add(s, segment_of);
    for (auto const& h : saved) builder.add_memory(h, 0);
    return std::move(builder.finish().front());
}

} // namespace heddle
