// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ratio problem of a program: its steps in order, as functions of the ratios.
///
/// HAP section 5.1.
#pragma once

#include <heddle/balance/curved_ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

inline affine times(double factor, affine a) { return {factor * a.constant, factor * a.slope}; }
stage_work times(double factor, stage_work w);

/// A kernel whose efficiency depends on its size: the larger of arithmetic and memory traffic.
struct saturated_kernel {
    saturated_work arithmetic;
    affine traffic;

    /// Smooth: where both are nearly equal it is up to 0.05 % of the whole kernel above the larger.
    [[nodiscard]] smooth_curve curve() const;
    /// Nowhere above.
    [[nodiscard]] convex_pieces lines_below() const;
    friend bool operator==(saturated_kernel const&, saturated_kernel const&) = default;
};

saturated_kernel times(double factor, saturated_kernel k);

/// The distinct ones of a list, in order, each with how many there are. *Complexity.* Their number times the list's.
template <class Item>
std::vector<std::pair<Item, int>> counted(std::vector<Item> const& list) {
    std::vector<std::pair<Item, int>> result;
    for (auto const& item : list) {
        auto const same = algorithm::find(result, item, &std::pair<Item, int>::first);
        if (same == result.end()) result.push_back({item, 1});
        else ++same->second;
    }
    return result;
}

/// Time of one type in one stage of a program.
struct program_work {
    stage_work linear;
    std::vector<saturated_kernel> curved;

    program_work& operator+=(program_work const& other);
    /// With lines in place of curves.
    [[nodiscard]] stage_work in_lines() const;
    friend bool operator==(program_work const&, program_work const&) = default;
};

/// A kernel's time on a type, as a function of its ratio.
program_work kernel_work(cost_model const& model, kernel const& all, step const& s, std::size_t t, bool split);
/// The same of what a group's devices exchange.
affine inside_line(cost_model const& model, inside_list const& list, std::size_t t);
/// A collective's time as a function of the largest ratio, a gradient's with its part of its bucket's latency.
/// *Precondition:* there is more than one rank.
convex_pieces transfer_curve(cost_model const& model, transfer const& t, bool is_gradient = false);
/// The bytes of its buffer that are there at all ratios.
inline double least_buffer(cost_model const& model, transfer const& t) {
    return payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
}

/// Builds the problems of all segments side by side: stage by stage, each with the work of its own ratios.
class ratio_problem_builder {
public:
    ratio_problem_builder(cost_model const& model, std::vector<double> const& preferred, std::size_t segments);

    /// `segment_of(share_ref)` is the segment whose ratios a share follows.
    template <class SegmentOf>
    void add(step const& s, SegmentOf const& segment_of) {
        add_transfers(s.forward_transfers, &forward_, segment_of);
        add_transfers(s.backward_transfers, &backward_, segment_of);
        add_transfers(s.deferred_transfers, nullptr, segment_of, s.reduces_gradients());
        add_transfers(s.update_transfers, nullptr, segment_of);
        buffer_ = std::max(buffer_, 2 * s.transient.value);
        bool const split = s.share.is_split();
        std::size_t const g = split ? segment_of(s.share) : 0;
        for (std::size_t t = 0; t < model_.class_count(); ++t) {
            forward_[g][t] += kernel_work(model_, s.forward, s, t, split);
            backward_[g][t] += kernel_work(model_, s.backward, s, t, split);
            update_[g][t] += kernel_work(model_, s.deferred, s, t, false);
            update_[g][t].linear.straight +=
                {s.update.whole.value / model_.bandwidth(t), s.update.split.value / model_.bandwidth(t)};
            forward_[g][t].linear.straight += inside_line(model_, s.inside_forward, t);
            backward_[g][t].linear.straight += inside_line(model_, s.inside_backward, t);
            update_[g][t].linear.straight += inside_line(model_, s.inside_update, t);
        }
        add_memory(s.stored, g);
        add_memory(s.saved, g);
    }
    void add_memory(holding const& h, std::size_t segment);

    /// With lines in place of curves.
    [[nodiscard]] std::vector<ratio_problem> finish();
    /// Stages that are alike, as those of layers are, become one that takes as long as all of them. *Precondition:*
    /// there is one segment.
    [[nodiscard]] curved_ratio_problem finish_curved();

    /// What moves between the cuts of two segments, as functions of the larger of their largest ratios.
    struct exchange {
        std::size_t from = 0, to = 0;
        convex_pieces pieces;
    };
    std::vector<exchange> exchanges;

private:
    /// By segment and type.
    using stage = std::vector<std::vector<program_work>>;
    [[nodiscard]] stage empty_stage() const {
        return stage(problems_.size(), std::vector<program_work>(model_.class_count()));
    }

    void close(stage& open) { stages_.push_back(std::exchange(open, empty_stage())); }
    void close_last();
    static std::vector<stage_work> in_lines(std::vector<program_work> const& types);

    /// Transfers that close a stage, if they do.
    template <class SegmentOf>
    void add_transfers(transfer_list const& transfers, stage* open, SegmentOf const& segment_of,
                       bool are_gradients = false) {
        for (auto const& t : transfers) {
            add_inside_groups(t.before, t.size, t.from, segment_of);
            add_inside_groups(t.after, t.size, t.to, segment_of);
        }
        if (model_.ranks() == 1 || transfers.empty()) return;
        if (open) close(*open);
        double buffer = 0;
        for (auto const& t : transfers) buffer += add_transfer(t, segment_of, are_gradients);
        buffer_ = std::max(buffer_, buffer);
    }

    /// Gives the size of its buffer where that is the same at all ratios.
    template <class SegmentOf>
    double add_transfer(transfer const& t, SegmentOf const& segment_of, bool is_gradient) {
        auto pieces = transfer_curve(model_, t, is_gradient);
        auto const segment = [&](share_ref ref, share_ref other) -> std::size_t {
            return ref.is_split() ? segment_of(ref) : other.is_split() ? segment_of(other) : 0;
        };
        if (pieces.size() == 1 && pieces[0].slope == 0) problems_[0].constant += pieces[0].constant;
        else if (auto const from = segment(t.from, t.to), to = segment(t.to, t.from); from == to)
            problems_[from].transfers.push_back(std::move(pieces));
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
            if (line.latency.value + all > 0)
                pieces.push_back(split ? affine{line.latency.value, all} : affine{line.latency.value + all, 0});
        }
        if (!pieces.empty()) problems_[split ? segment_of(cut) : 0].transfers.push_back(std::move(pieces));
    }
    cost_model const& model_;
    std::vector<ratio_problem> problems_;
    std::vector<stage> stages_;
    stage forward_, backward_, update_;
    double buffer_ = 0;
};

} // namespace detail

/// The ratio problem of a program: its steps in order, and what it saves beside them. `model` has one class per device
/// type. An all-to-all is charged on its largest shard, and efficiencies that depend on the size are lines below (see
/// `saturated_work`), so everything is convex in the ratios.
[[nodiscard]] ratio_problem make_ratio_problem(std::span<step const> steps, std::span<holding const> saved,
                                               cost_model const& model, std::vector<double> const& preferred);

/// The same with efficiencies as they are.
template <std::ranges::input_range Holdings>
[[nodiscard]] curved_ratio_problem make_curved_ratio_problem(std::span<step const> steps, Holdings&& saved,
                                                             cost_model const& model,
                                                             std::vector<double> const& preferred) {
    detail::ratio_problem_builder builder(model, preferred, 1);
    for (auto const& s : steps) builder.add(s, [](share_ref) { return std::size_t{0}; });
    for (holding const& h : saved) builder.add_memory(h, 0);
    return builder.finish_curved();
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE stage_work times(double factor, stage_work w) {
    w.straight = times(factor, w.straight);
    for (auto& pieces : w.bent)
        for (auto& piece : pieces) piece = times(factor, piece);
    return w;
}

HEDDLE_INLINE smooth_curve saturated_kernel::curve() const {
    auto arithmetic_curve = curve_of(arithmetic);
    if (std::max(traffic.at(0), traffic.at(1)) <= arithmetic.at(0).value) return arithmetic_curve; // it rises
    double const width = 1e-3 * std::max(arithmetic.at(1).value, traffic.at(1));
    return larger_of(std::move(arithmetic_curve), traffic, width);
}

HEDDLE_INLINE convex_pieces saturated_kernel::lines_below() const {
    convex_pieces pieces{traffic};
    for (auto const& line : arithmetic.lines_below()) pieces.push_back({line.constant, line.slope});
    return pieces;
}

HEDDLE_INLINE saturated_kernel times(double factor, saturated_kernel k) {
    k.arithmetic.seconds *= factor;
    k.traffic = times(factor, k.traffic);
    return k;
}

HEDDLE_INLINE program_work& program_work::operator+=(program_work const& other) {
    linear += other.linear;
    curved.insert(curved.end(), other.curved.begin(), other.curved.end());
    return *this;
}

HEDDLE_INLINE stage_work program_work::in_lines() const {
    auto result = linear;
    for (auto const& kernel : curved) result.bent.push_back(kernel.lines_below());
    return result;
}

HEDDLE_INLINE program_work kernel_work(cost_model const& model, kernel const& all, step const& s, std::size_t t,
                                       bool split) {
    program_work result;
    auto& straight = result.linear.straight;
    if (all.kernels_beside > 0) {
        auto const beside = model.beside(all, t, s.type);
        straight += {beside.constant, beside.slope};
    }
    if (!all.launches) return result;
    kernel const work = model.on_member(all, t);
    auto const& speed = model.speed(t, s.type, s.category);
    affine const traffic{work.whole.value / speed.bandwidth, work.split.value / speed.bandwidth};
    straight.constant += speed.overhead;
    if (split && speed.efficiency && work.operations > flops(0)) {
        result.curved.push_back({speed.arithmetic_curve(work.operations), traffic});
        return result;
    }
    double const operations = speed.arithmetic(work.operations, 1);
    affine const compute = split ? affine{0, operations} : affine{operations, 0};
    bool const low = compute.at(0) >= traffic.at(0), high = compute.at(1) >= traffic.at(1);
    if (low && high) straight += compute;
    else if (compute.at(0) <= traffic.at(0) && compute.at(1) <= traffic.at(1)) straight += traffic;
    else result.linear.bent.push_back({compute, traffic});
    return result;
}

HEDDLE_INLINE affine inside_line(cost_model const& model, inside_list const& list, std::size_t t) {
    affine sum;
    for (auto const& x : list) {
        auto const& line = model.inside(x.kind, t);
        sum += {line.latency.value + line.slope.value * x.whole.value, line.slope.value * x.split.value};
    }
    return sum;
}

HEDDLE_INLINE convex_pieces transfer_curve(cost_model const& model, transfer const& t, bool is_gradient) {
    uniform_shares const evenly(even(model));
    // Launches and the sum of all shards: the same at all ratios, where the model is one line.
    if (t.how == uneven::grouped)
        return {{is_gradient ? model.time_in_bucket(t, evenly) : model.time_across(t, evenly), 0}};
    double const latencies = is_gradient ? model.part_of_bucket(t) : 1;
    double const at_zero = payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
    double const at_one = payload(t, model.ranks(), 1, 1).value;
    convex_pieces pieces;
    for (auto const& p : model.model(t.kind).pieces)
        pieces.push_back({latencies * p.latency.value + p.slope.value * at_zero, p.slope.value * (at_one - at_zero)});
    return pieces;
}

HEDDLE_INLINE ratio_problem_builder::ratio_problem_builder(cost_model const& model,
                                                           std::vector<double> const& preferred, std::size_t segments)
    : model_(model), problems_(segments) {
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

HEDDLE_INLINE void ratio_problem_builder::add_memory(holding const& h, std::size_t segment) {
    auto& memory = problems_[segment].memory;
    for (std::size_t t = 0; t < memory.size(); ++t) {
        holding const mine = model_.on_member(h, t);
        memory[t] += {mine.whole.value, mine.split.value};
    }
}

HEDDLE_INLINE std::vector<ratio_problem> ratio_problem_builder::finish() {
    close_last();
    for (auto const& closed : stages_)
        for (std::size_t g = 0; g < problems_.size(); ++g) problems_[g].stages.push_back(in_lines(closed[g]));
    return std::move(problems_);
}

HEDDLE_INLINE curved_ratio_problem ratio_problem_builder::finish_curved() {
    close_last();
    curved_ratio_problem result{std::move(problems_.front()), {}};
    for (auto const& [closed, count] : counted(stages_)) {
        auto const& types = closed.front();
        if (algorithm::all_of(types, [](auto const& work) { return work.curved.empty(); })) {
            result.linear.stages.insert(result.linear.stages.end(), static_cast<std::size_t>(count), in_lines(types));
            continue;
        }
        auto& curved = result.stages.emplace_back();
        for (std::size_t t = 0; t < types.size(); ++t) {
            curved.push_back({t, times(count, types[t].linear), {}});
            for (auto [kernel, of_stage] : counted(types[t].curved))
                curved.back().curves.push_back(times(count * of_stage, std::move(kernel)).curve());
        }
    }
    return result;
}

HEDDLE_INLINE void ratio_problem_builder::close_last() {
    for (std::size_t g = 0; g < problems_.size(); ++g)
        for (std::size_t t = 0; t < model_.class_count(); ++t) forward_[g][t] += backward_[g][t];
    close(forward_);
    close(update_);
    for (auto& row : problems_[0].memory) row.constant += buffer_;
}

HEDDLE_INLINE std::vector<stage_work> ratio_problem_builder::in_lines(std::vector<program_work> const& types) {
    std::vector<stage_work> result;
    for (auto const& work : types) result.push_back(work.in_lines());
    return result;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE ratio_problem make_ratio_problem(std::span<step const> steps, std::span<holding const> saved,
                                               cost_model const& model, std::vector<double> const& preferred) {
    detail::ratio_problem_builder builder(model, preferred, 1);
    auto const segment_of = [](share_ref) { return std::size_t{0}; };
    for (auto const& s : steps) builder.add(s, segment_of);
    for (auto const& h : saved) builder.add_memory(h, 0);
    return std::move(builder.finish().front());
}

} // namespace heddle

#endif
