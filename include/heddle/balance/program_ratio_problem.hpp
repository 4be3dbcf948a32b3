// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ratio problem of a program: its steps in order, as functions of the ratios.
///
/// HAP, sections 5.1 and 5.2.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace heddle {

/// Bytes that a device saves beside the steps of a program, and the share whose ratio they follow, if any.
struct saved_tensor {
    holding held;
    share_ref share{};
};

/// A program as steps in order, and what it saves beside them.
struct program_steps {
    std::vector<step_work> steps{};
    std::vector<saved_tensor> saved{};
    /// In order, the steps with which a stage begins, where micro-batches take turns.
    std::vector<std::size_t> stage_starts{};
};

struct program_ratio_options {
    std::size_t segments = 1;
    /// The segment whose ratios a share follows; not asked where there is one segment.
    std::function<std::size_t(share_ref)> segment_of{};
    /// Whether efficiencies that depend on the size are smooth curves, or lines below these (see `saturated_work`).
    bool follows_curves = false;
};

/// The ratio problem of a program. `model` has one class per device type, and `preferred` one ratio for each, in all
/// segments. An all-to-all is charged on its largest shard; so without curves everything is convex in the ratios.
///
/// With curves stages that are alike, as those of layers are, become one that takes as long as all of them.
[[nodiscard]] ratio_problem make_ratio_problem(program_steps const& program, cost_model const& model,
                                               std::vector<double> const& preferred,
                                               program_ratio_options const& options = {});

namespace detail {

inline affine times(double factor, affine a) { return {factor * a.constant, factor * a.slope}; }
/// Returns work that takes so many times as long. *Precondition:* it has no curves.
template <class Work>
    requires requires(Work w) { w.straight, w.bent; }
Work times(double factor, Work w) {
    w.straight = times(factor, w.straight);
    for (auto& pieces : w.bent)
        for (auto& piece : pieces) piece = times(factor, piece);
    return w;
}

/// A kernel whose efficiency depends on its size takes the larger of the times of arithmetic and of memory traffic.
struct saturated_kernel {
    saturated_work arithmetic;
    affine traffic;

    /// The curve is smooth: where both times are nearly equal it is above the larger, by up to 0.05 % of the whole
    /// kernel's time.
    [[nodiscard]] smooth_curve curve() const;
    /// These lines are nowhere above the kernel's time.
    [[nodiscard]] convex_pieces lines_below() const;
    friend bool operator==(saturated_kernel const&, saturated_kernel const&) = default;
};

saturated_kernel times(double factor, saturated_kernel k);

/// Lists the distinct items of a list in order, each with how often it occurs. *Complexity.* O(d n) for d distinct
/// items among n.
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

/// The time of one type in one stage of a program.
struct program_work {
    affine straight{};
    std::vector<convex_pieces> bent{};
    std::vector<saturated_kernel> saturated{};

    program_work& operator+=(program_work const& other);
    /// Replaces curves by lines.
    [[nodiscard]] stage_work in_lines() const;
    /// The work of so many stages of this kind.
    [[nodiscard]] stage_work in_curves(int count) const;
    friend bool operator==(program_work const&, program_work const&) = default;
};

/// A kernel's time on a type, as a function of its ratio.
program_work kernel_work(cost_model const& model, local_work const& all, kernel_kind const& kernel, std::size_t t,
                         bool split);
/// Returns the time of what a group's devices exchange, as a function of the type's ratio.
program_work inside_work(cost_model const& model, inside_list const& list, std::size_t t);
/// Returns a collective's time as a function of the largest ratio. A gradient's includes its part of its bucket's
/// latency.
/// *Precondition:* there is more than one rank.
convex_pieces transfer_curve(cost_model const& model, transfer const& t, bool is_gradient);
/// Returns the bytes of its buffer that are needed at all ratios.
inline double least_buffer(cost_model const& model, transfer const& t) {
    return payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
}

/// Where a step's time counts; work on what deferred transfers bring counts as that of the update.
enum class step_part : std::uint8_t { forward, backward, deferred, update };

/// The walk over a program's steps that makes its ratio problem, with memory and buffers. What makes a stage is up to
/// `Stages`:
///
/// - `take(s, part, transfers, problem)` the times of a step's transfers of one part, of which there are some,
/// - `take(s, part, n, work)` the work of one segment and type.
class program_walk {
public:
    program_walk(cost_model const& model, std::vector<double> const& preferred, program_ratio_options const& options);

    template <class Stages>
    void add(step_work const& s, Stages& stages) {
        add_transfers(s, step_part::forward, s.forward_transfers, stages);
        add_transfers(s, step_part::backward, s.backward_transfers, stages);
        add_transfers(s, step_part::deferred, s.deferred_transfers, stages);
        add_transfers(s, step_part::update, s.update_transfers, stages);
        buffer_ = std::max(buffer_, 2 * s.transient.value);
        bool const split = s.share.is_split();
        std::size_t const segment = segment_of(s.share), types = model_.class_count();
        for (std::size_t t = 0, n = segment * types; t < types; ++t, ++n) {
            stages.take(s, step_part::forward, n, kernel_work(model_, s.forward, kernel_of(s, false), t, split));
            stages.take(s, step_part::backward, n, kernel_work(model_, s.backward, kernel_of(s, true), t, split));
            if (s.runs_again)
                stages.take(s, step_part::backward, n, kernel_work(model_, s.forward, kernel_of(s, false), t, split));
            stages.take(s, step_part::update, n, kernel_work(model_, s.deferred, kernel_of(s, true), t, false));
            stages.take(s, step_part::update, n,
                        {times(model_.part_of_update(), affine{s.update.whole.value / model_.bandwidth(t),
                                                               s.update.split.value / model_.bandwidth(t)})});
            stages.take(s, step_part::forward, n, inside_work(model_, s.inside_forward, t));
            stages.take(s, step_part::backward, n, inside_work(model_, s.inside_backward, t));
            stages.take(s, step_part::update, n,
                        times(model_.part_of_update(), inside_work(model_, s.inside_update, t)));
        }
        add_memory(s.stored, segment);
        add_memory(s.counted * s.saved, segment);
    }
    void add(saved_tensor const& s) { add_memory(s.held, segment_of(s.share)); }

    /// `stages.finish(problem)` adds the stages.
    template <class Stages>
    [[nodiscard]] ratio_problem finish(Stages& stages) {
        stages.finish(problem_);
        for (std::size_t t = 0; t < model_.class_count(); ++t) problem_.memory[t].constant += buffer_;
        return std::move(problem_);
    }

private:
    [[nodiscard]] std::size_t segment_of(share_ref ref, share_ref other = {}) const;
    void add_memory(holding const& h, std::size_t segment);
    /// Adds a step inside all groups, bounded by its time if every group had the largest share.
    void add_inside_groups(inside_step kind, bytes size, share_ref cut);
    [[nodiscard]] std::vector<transfer_work> times_of(transfer_list const& transfers, bool are_gradients,
                                                      bool are_of_update);

    template <class Stages>
    void add_transfers(step_work const& s, step_part part, transfer_list const& transfers, Stages& stages) {
        for (auto const& t : transfers) {
            add_inside_groups(t.before, t.size, t.from);
            add_inside_groups(t.after, t.size, t.to);
        }
        bool const are_gradients = part == step_part::deferred && s.reduces_gradients();
        auto times = times_of(transfers, are_gradients, are_gradients || part == step_part::update);
        if (!times.empty()) stages.take(s, part, std::move(times), problem_);
    }

    cost_model const& model_;
    program_ratio_options const& options_;
    ratio_problem problem_;
    double buffer_ = 0;
};

/// Stages that collectives of the forward and the backward pass end.
class serial_stages {
public:
    serial_stages(std::size_t ratios, bool follows_curves);

    void take(step_work const& s, step_part part, std::vector<transfer_work> transfers, ratio_problem& into);
    void take(step_work const&, step_part part, std::size_t n, program_work const& work) { open(part)[n] += work; }
    void finish(ratio_problem& into);

private:
    /// Per segment and type.
    using stage = std::vector<program_work>;
    stage& open(step_part part) {
        return part == step_part::forward ? forward_ : part == step_part::backward ? backward_ : update_;
    }
    void close(stage& open) { closed_.push_back(std::exchange(open, stage(open.size()))); }
    static std::vector<stage_work> in_lines(stage const& s);

    bool follows_curves_;
    stage forward_, backward_, update_;
    std::vector<stage> closed_;
};

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE ratio_problem make_ratio_problem(program_steps const& program, cost_model const& model,
                                               std::vector<double> const& preferred,
                                               program_ratio_options const& options) {
    detail::program_walk walk(model, preferred, options);
    detail::serial_stages stages(options.segments * model.class_count(), options.follows_curves);
    for (auto const& s : program.steps) walk.add(s, stages);
    for (auto const& s : program.saved) walk.add(s);
    return walk.finish(stages);
}

} // namespace heddle

namespace heddle::detail {
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
    straight += other.straight;
    bent.insert(bent.end(), other.bent.begin(), other.bent.end());
    saturated.insert(saturated.end(), other.saturated.begin(), other.saturated.end());
    return *this;
}

HEDDLE_INLINE stage_work program_work::in_lines() const {
    stage_work result{straight, bent};
    for (auto const& kernel : saturated) result.bent.push_back(kernel.lines_below());
    return result;
}

HEDDLE_INLINE stage_work program_work::in_curves(int count) const {
    auto result = times(count, stage_work{straight, bent});
    for (auto const& [kernel, of_stage] : counted(saturated))
        result.curves.push_back(times(count * of_stage, kernel).curve());
    return result;
}

HEDDLE_INLINE program_work kernel_work(cost_model const& model, local_work const& all, kernel_kind const& kernel,
                                       std::size_t t, bool split) {
    program_work result;
    auto& straight = result.straight;
    if (all.kernels_beside > 0) {
        auto const beside = model.beside(all, t, kernel.type);
        straight += {beside.constant, beside.slope};
    }
    if (!all.launches) return result;
    local_work const work = model.on_member(all, t);
    auto const speed = model.speed(t, kernel, all);
    affine const traffic{work.whole.value / speed.bandwidth, work.split.value / speed.bandwidth};
    straight.constant += speed.overhead;
    if (split && speed.efficiency && work.operations > flops(0)) {
        result.saturated.push_back({speed.arithmetic_curve(work.operations), traffic});
        return result;
    }
    double const operations = speed.arithmetic(work.operations, 1);
    affine const compute = split ? affine{0, operations} : affine{operations, 0};
    bool const low = compute.at(0) >= traffic.at(0), high = compute.at(1) >= traffic.at(1);
    if (low && high) straight += compute;
    else if (compute.at(0) <= traffic.at(0) && compute.at(1) <= traffic.at(1)) straight += traffic;
    else result.bent.push_back({compute, traffic});
    return result;
}

HEDDLE_INLINE program_work inside_work(cost_model const& model, inside_list const& list, std::size_t t) {
    program_work sum;
    for (auto const& x : list) {
        auto const time = model.inside(x, t);
        if (x.split == bytes(0)) {
            sum.straight.constant += time(x.whole.value);
            continue;
        }
        convex_pieces pieces;
        time.for_each_line(x.whole.value, x.split.value,
                           [&](double constant, double slope) { pieces.push_back({constant, slope}); });
        if (pieces.size() == 1) sum.straight += pieces.front();
        else if (!pieces.empty()) sum.bent.push_back(std::move(pieces));
    }
    return sum;
}

HEDDLE_INLINE convex_pieces transfer_curve(cost_model const& model, transfer const& t, bool is_gradient) {
    uniform_shares const evenly(even_ratios(model));
    // Launches and the sum of all shards are the same at all ratios if the model is one line.
    if (t.how == uneven::grouped)
        return {
            {is_gradient ? model.time_in_bucket(t, evenly) / model.part_of_update() : model.time_across(t, evenly), 0}};
    double const latencies = is_gradient ? model.part_of_bucket(t) : 1;
    double const at_zero = payload(t, model.ranks(), t.from.is_split() ? 0 : 1, t.to.is_split() ? 0 : 1).value;
    double const at_one = payload(t, model.ranks(), 1, 1).value;
    auto const slope_of = [&](auto const& piece) { return piece.slope.value * model.crowding(t); };
    convex_pieces pieces;
    for (auto const& p : model.model(t.kind).pieces)
        pieces.push_back({latencies * p.latency.value + slope_of(p) * at_zero, slope_of(p) * (at_one - at_zero)});
    return pieces;
}

HEDDLE_INLINE program_walk::program_walk(cost_model const& model, std::vector<double> const& preferred,
                                         program_ratio_options const& options)
    : model_(model), options_(options) {
    problem_.segments = options.segments;
    for (std::size_t t = 0; t < model.class_count(); ++t) {
        problem_.counts.push_back(model.classes()[t].count);
        problem_.memory_limits.push_back(model.memory_limit(t));
    }
    for (std::size_t g = 0; g < options.segments; ++g)
        problem_.preferred.insert(problem_.preferred.end(), preferred.begin(), preferred.end());
    problem_.memory.resize(problem_.preferred.size());
}

HEDDLE_INLINE std::size_t program_walk::segment_of(share_ref ref, share_ref other) const {
    if (!ref.is_split()) ref = other;
    return options_.segments > 1 && ref.is_split() ? options_.segment_of(ref) : 0;
}

HEDDLE_INLINE void program_walk::add_memory(holding const& h, std::size_t segment) {
    auto const types = model_.class_count();
    for (std::size_t t = 0; t < types; ++t) {
        holding const mine = model_.on_member(h, t);
        problem_.memory[segment * types + t] += {mine.whole.value, mine.split.value};
    }
}

HEDDLE_INLINE void program_walk::add_inside_groups(inside_step kind, bytes size, share_ref cut) {
    convex_pieces pieces;
    bool const split = cut.is_split();
    for (std::size_t t = 0; t < model_.class_count(); ++t) {
        model_.inside(kind, t).for_each_line(split ? 0 : size.value, split ? size.value : 0,
                                             [&](double constant, double slope) {
                                                 if (constant + slope > 0) pieces.push_back({constant, slope});
                                             });
    }
    if (pieces.empty()) return;
    auto const segment = segment_of(cut);
    problem_.transfers.push_back({std::move(pieces), segment, segment});
}

HEDDLE_INLINE std::vector<transfer_work> program_walk::times_of(transfer_list const& transfers, bool are_gradients,
                                                                bool are_of_update) {
    std::vector<transfer_work> result;
    if (model_.ranks() == 1) return result;
    double buffer = 0;
    for (auto const& t : transfers) {
        auto const from = segment_of(t.from, t.to), to = segment_of(t.to, t.from);
        if (t.redistributes && from == to) continue; // what is cut alike stays where it is
        result.push_back({transfer_curve(model_, t, are_gradients), from, to});
        for (auto& piece : result.back().pieces) piece = times(are_of_update ? model_.part_of_update() : 1, piece);
        buffer += least_buffer(model_, t);
    }
    buffer_ = std::max(buffer_, buffer);
    return result;
}

HEDDLE_INLINE serial_stages::serial_stages(std::size_t ratios, bool follows_curves)
    : follows_curves_(follows_curves), forward_(ratios), backward_(ratios), update_(ratios) {}

HEDDLE_INLINE void serial_stages::take(step_work const&, step_part part, std::vector<transfer_work> transfers,
                                       ratio_problem& into) {
    if (part == step_part::forward || part == step_part::backward) close(open(part));
    for (auto& t : transfers)
        if (t.pieces.size() == 1 && t.pieces[0].slope == 0) into.constant += t.pieces[0].constant;
        else into.transfers.push_back(std::move(t));
}

HEDDLE_INLINE void serial_stages::finish(ratio_problem& into) {
    for (std::size_t n = 0; n < forward_.size(); ++n) forward_[n] += backward_[n];
    close(forward_);
    close(update_);
    // Segment by segment, then what moves between them.
    auto const place = [&](transfer_work const& t) { return t.from == t.to ? t.from : into.segments; };
    std::vector<transfer_work> in_order;
    for (std::size_t g = 0; g <= into.segments; ++g)
        std::copy_if(into.transfers.begin(), into.transfers.end(), std::back_inserter(in_order),
                     [&](transfer_work const& t) { return place(t) == g; });
    into.transfers = std::move(in_order);
    if (!follows_curves_) {
        for (auto const& s : closed_) into.stages.push_back(in_lines(s));
        return;
    }
    for (auto const& [s, count] : counted(closed_)) {
        if (algorithm::all_of(s, [](auto const& work) { return work.saturated.empty(); })) {
            into.stages.insert(into.stages.end(), static_cast<std::size_t>(count), in_lines(s));
            continue;
        }
        auto& curved = into.stages.emplace_back();
        for (auto const& work : s) curved.push_back(work.in_curves(count));
    }
}

HEDDLE_INLINE std::vector<stage_work> serial_stages::in_lines(stage const& s) {
    std::vector<stage_work> result;
    for (auto const& work : s) result.push_back(work.in_lines());
    return result;
}

} // namespace heddle::detail

#endif
