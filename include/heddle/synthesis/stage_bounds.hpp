// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What any stage of some layers takes on some devices at least, whatever its forms, shares and mesh.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/stage_programs.hpp>

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// Machines of one size and device type, and what one of them computes like.
struct machine_kind {
    std::size_t type = 0;
    int devices = 1, count = 0, network_cards = 1;
    [[nodiscard]] bool has(machine_group const& m) const {
        return type == m.type && devices == m.devices && network_cards == m.network_cards;
    }
};
/// The kinds of a cluster's machines, in the order in which they appear.
[[nodiscard]] std::vector<machine_kind> machine_kinds(cluster const& c);

/// Devices of a stage: some machines of each kind, or, if `part` is not zero, so many devices of one machine.
struct stage_devices {
    std::vector<int> machines;
    int part = 0;

    [[nodiscard]] int machine_count() const;
    friend auto operator<=>(stage_devices const&, stage_devices const&) = default;
};

/// By first layer, and by the one behind the last less one: seconds, or bytes.
using layer_table = std::vector<std::vector<double>>;

/// Lower bounds of the time in which layers are trained on the whole batch.
///
/// Every program of a stage, on one axis or a mesh, is one on machines: a machine holds what its devices hold together.
/// A machine is then a device as fast as all of its devices together, and what they send each other costs nothing. Of
/// these programs the cheapest path between two cuts is taken, each instruction at the shares that are best for it
/// (`global_lower_bound`); what forms the stage begins and ends with is free. Devices of one machine are an axis, or a mesh
/// of two: then either axis has half of the work, and its lines a link each.
///
/// What is bounded is a number of micro-batches: their kernels and collectives start as often, and work on as little at
/// once. More take no less, so where a micro-batch cannot be cut as the batch can, the bound is one of fewer. A parameter is
/// gathered once for all: to unshard it for each takes longer than its gradient takes to be added to, unless links carry more
/// than memory does; then the bound is that of one.
///
/// Where devices cannot hold what they need to hold together, the bound is infinite: a copy of each parameter by which the
/// layers compute what is differentiated, with gradient and optimiser state if it is trained; of micro-batches in turn, which
/// recompute nothing, activations too.
/// *Lifetime:* refers to all that it is made of.
class stage_bounds {
public:
    stage_bounds(program const& p, cluster const& c, program_layers const& layers, planning_options const& options,
                 search::deadline const& until);
    stage_bounds(stage_bounds const&) = delete;

    /// Tells whether the programs are known.
    [[nodiscard]] bool exist() const { return graph_ != nullptr; }
    /// Returns the least seconds of all micro-batches, a reduction of their gradients and an update; or of their passes alone.
    [[nodiscard]] layer_table least(stage_devices const& on, std::int64_t micro_batches);
    [[nodiscard]] layer_table least_of_passes(stage_devices const& on, std::int64_t micro_batches);
    /// Returns the least seconds of the whole program where two micro-batches take turns on one axis of these devices: no
    /// less than any mean of its work and its collectives, of which this one counts work so much.
    [[nodiscard]] double least_in_turns(stage_devices const& on, double work);
    /// Returns about the largest of these, or one that is `enough`, and its weight of work.
    [[nodiscard]] std::pair<double, double> most_in_turns(stage_devices const& on, double enough);

private:
    struct levels {
        /// The first level at which only operators of behind a cut are left, and the last one before which all are of
        /// before it.
        std::size_t from = 0, to = 0;
    };
    /// An axis of a stage's devices, and the part of their work that counts on it.
    struct axis {
        cluster devices;
        double work = 1;
    };
    /// Prices of what is differentiated.
    struct differentiated {
        detail::least_prices const& prices;
        std::vector<char> const& is_constant;
        double operator()(std::size_t level, cut_space::action a) const {
            return is_constant[level] ? 0 : prices(level, a);
        }
        [[nodiscard]] std::uint64_t alike(std::size_t level) const {
            return 2 * prices.alike(level) + static_cast<std::uint64_t>(is_constant[level]);
        }
    };

    /// What the instructions do for one of some micro-batches: in all, and in its passes alone.
    struct micro_batch {
        std::int64_t count = 1;
        std::vector<step_work> steps{}, passes{};
    };

    /// The prices on an axis.
    struct axis_prices {
        cluster devices;
        cost_model model;
        multipliers weights;
        detail::least_prices prices;

        axis_prices(stage_bounds const& of, axis a, std::vector<step_work> const& steps, std::int64_t micro_batches);
    };
    using shape_prices = std::vector<std::unique_ptr<axis_prices>>;

    /// The prices of two micro-batches that take turns, and of their collectives alone.
    struct turn_prices {
        micro_batch const& parts;
        axis_prices all, collectives;

        turn_prices(stage_bounds& of, stage_devices const& on);
    };
    /// The prices of a mean of work and collectives, of which work counts so much.
    struct mean_prices {
        differentiated all, collectives;
        double work;
        double operator()(std::size_t level, cut_space::action a) const {
            double const sent = collectives(level, a);
            return work * (all(level, a) - sent) + (1 - work) * sent;
        }
        [[nodiscard]] std::uint64_t alike(std::size_t level) const { return all.alike(level); }
    };
    /// The least mean of which work counts so much, and how fast that of the same path rises with this weight.
    struct mean_in_turns {
        double work, seconds, slope = 0;
    };
    [[nodiscard]] mean_in_turns mean_at(turn_prices const& prices, double work) const;

    /// Finds what stages of layers hold at least.
    void find_least_memory();
    /// Tells whether devices may hold what two micro-batches in turn do.
    [[nodiscard]] bool may_turn(stage_devices const& on);
    /// Leaves uses that may be those of a stage behind: it adds their cotangents up, and sends them as one.
    void count_uses_of_one_stage(indexed_program& p) const;
    /// Returns what is known of so many micro-batches, or of the most below that can be cut as the batch can.
    [[nodiscard]] micro_batch const& parts_of_batch(std::int64_t count);
    /// Returns the axes of each shape that the devices may have.
    [[nodiscard]] std::vector<std::vector<axis>> shapes_of(stage_devices const& on) const;
    /// Returns the devices as they are.
    [[nodiscard]] cluster single(stage_devices const& on) const;
    /// Returns so many devices of the type, each as fast as `joined` of them.
    [[nodiscard]] cluster alike(std::size_t type, int count, int joined) const;
    /// Returns how many layers before two ends are alike, level by level.
    [[nodiscard]] std::size_t alike_before(std::size_t end, std::size_t other) const;
    [[nodiscard]] layer_table bounds(stage_devices const& on, std::vector<step_work> const& steps,
                                     std::int64_t micro_batches) const;
    [[nodiscard]] std::vector<double> bounds_by_paths(std::vector<shape_prices> const& shapes, std::size_t end) const;

    program const& program_;
    cluster const& cluster_;
    program_layers const& layers_;
    planning_options const& options_;
    indexed_program indexed_;
    std::vector<machine_kind> kinds_;
    stage_programs programs_;
    /// The bytes that layers need at least, and all of the program in turns.
    layer_table least_memory_;
    std::optional<double> least_in_turns_;
    std::vector<levels> cuts_;
    /// By the layer behind the last: another one that is bounded by paths, and how many layers before both are alike; none if it
    /// is bounded by paths itself.
    std::vector<std::pair<std::size_t, std::size_t>> models_;
    /// By level: whether nothing of its operator is differentiated, so that any stage may compute it.
    std::vector<char> is_constant_;
    cut_space const* space_ = nullptr;
    cut_graph const* graph_ = nullptr;
    bool gathers_once_ = true;
    std::map<std::int64_t, std::optional<micro_batch>> parts_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/micro_batch.hpp>

namespace heddle::detail {

/// Returns a type as fast as so many devices of it.
HEDDLE_INLINE device_type together(device_type type, double devices) {
    type.memory *= devices;
    type.bandwidth *= devices;
    for (auto& [element, table] : type.rates) {
        table.fallback *= devices;
        for_each_speed(table, [&](class_speed& speed) {
            if (speed.rate) *speed.rate *= devices;
            if (speed.bandwidth) *speed.bandwidth *= devices;
        });
    }
    return type;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<machine_kind> machine_kinds(cluster const& c) {
    std::vector<machine_kind> kinds;
    for (auto const& m : c.machines) {
        auto found = algorithm::find_if(kinds, [&](machine_kind const& k) { return k.has(m); });
        if (found == kinds.end()) found = kinds.insert(found, {m.type, m.devices, 0, m.network_cards});
        found->count += m.count;
    }
    return kinds;
}

HEDDLE_INLINE int stage_devices::machine_count() const {
    int sum = 0;
    for (int n : machines) sum += n;
    return sum;
}

HEDDLE_INLINE stage_bounds::stage_bounds(program const& given, cluster const& c, program_layers const& layers,
                                         planning_options const& options, search::deadline const& until)
    : program_(given), cluster_(c), layers_(layers), options_(options), indexed_(index_program(given)),
      kinds_(machine_kinds(c)), programs_(indexed_, c, options, until) {
    for (auto const& type : c.types) // two collectives of a parameter, or three times its gradient from or to memory
        for (auto const& link : {c.intra, c.inter})
            if (link && 3 * network_cards(c) * link->bandwidth > 2 * type.bandwidth) gathers_once_ = false;
    programs_.take_fastest();
    if (!programs_.has_bound()) return;
    if (auto const* bounding = programs_.bounding()) space_ = &*bounding->space, graph_ = &bounding->graph;
    else space_ = &programs_.space(), graph_ = &programs_.graph();
    find_least_memory();
    auto const& p = indexed_;
    // By level, the layer of the operator: that of the tensor which it makes, or helps to make.
    auto const& searched = space_->program();
    std::size_t const count = searched.operators.size();
    std::vector<std::size_t> of_tensor(searched.tensors.size()), layer(count);
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].results) of_tensor[t] = layers.layer_of(o);
    is_constant_.assign(graph_->level_count(), 0);
    for (std::size_t n = count; n-- > 0;) {
        auto const& results = searched.operators[n].results;
        for (auto t : results) {
            if (t >= p.tensors.size())
                for (auto user : searched.tensors[t].consumers) of_tensor[t] = layer[user];
            layer[n] = of_tensor[t];
        }
        is_constant_[n] = algorithm::any_of(results, [&](auto t) { return searched.tensors[t].has_cotangent; }) ? 0 : 1;
    }
    for (std::size_t l = 0; l <= layers.size(); ++l) {
        levels cut{0, graph_->level_count() - 1};
        for (std::size_t n = 0; n < count; ++n)
            if (!is_constant_[n] && layer[n] < l) cut.from = n + 1;
        for (std::size_t n = count; n-- > 0;)
            if (!is_constant_[n] && layer[n] >= l) cut.to = n;
        cuts_.push_back(cut);
    }
    models_.assign(cuts_.size(), {0, 0});
    for (std::size_t end = cuts_.size(); end-- > 1;)
        for (std::size_t other = cuts_.size() - 1; other > end; --other)
            if (auto const same = models_[other].second == 0 ? alike_before(end, other) : 0;
                2 * same >= end && same > models_[end].second)
                models_[end] = {other, same};
}

HEDDLE_INLINE void stage_bounds::find_least_memory() {
    auto const& p = indexed_;
    std::size_t const count = layers_.size();
    std::vector<std::vector<std::size_t>> users(p.tensors.size()); // by parameter, layers that train something by it
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const& op = p.operators[o];
        if (algorithm::any_of(op.results, [&](tensor_id t) { return p.tensors[t].has_cotangent; }))
            for (auto t : op.operands)
                if (p.tensors[t].is_parameter()) users[t].push_back(layers_.layer_of(o));
    }
    for (std::size_t first = 0; first < count; ++first) {
        std::vector<memory_terms> added(count); // by the layer that is the first of these to use a parameter
        for (tensor_id t = 0; t < users.size(); ++t)
            if (auto const next = algorithm::lower_bound(users[t], first); next != users[t].end())
                add_least_memory(added[*next], p.tensors[t], options_.training);
        auto& row = least_memory_.emplace_back();
        double sum = 0;
        for (std::size_t l = first; l < count; ++l) row.push_back(sum += added[l].total());
    }
}

HEDDLE_INLINE cluster stage_bounds::alike(std::size_t type, int count, int joined) const {
    cluster result;
    result.name = cluster_.name;
    result.types = {detail::together(cluster_.types[type], joined)};
    result.machines = {{.type = 0, .count = count}};
    result.inter = cluster_.intra;
    if (result.inter) result.inter->bandwidth *= joined; // each has a link of its own
    return result;
}

HEDDLE_INLINE cluster stage_bounds::single(stage_devices const& on) const {
    cluster result;
    result.name = cluster_.name;
    result.intra = cluster_.intra;
    result.inter = cluster_.inter;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        if (on.machines[k] == 0) continue;
        auto const& kind = kinds_[k];
        result.machines.push_back({.type = result.types.size(),
                                   .devices = on.part > 0 ? on.part : kind.devices,
                                   .count = on.machines[k],
                                   .network_cards = kind.network_cards});
        result.types.push_back(cluster_.types[kind.type]);
    }
    return result;
}

HEDDLE_INLINE std::vector<std::vector<stage_bounds::axis>> stage_bounds::shapes_of(stage_devices const& on) const {
    std::vector<std::vector<axis>> shapes;
    if (on.part > 0) {
        auto const type = kinds_[static_cast<std::size_t>(algorithm::find(on.machines, 1) - on.machines.begin())].type;
        shapes.push_back({{alike(type, on.part, 1)}});
        for (int inner = 2; 2 * inner <= on.part; ++inner)
            if (on.part % inner == 0)
                shapes.push_back(
                    {{alike(type, on.part / inner, inner), 0.5}, {alike(type, inner, on.part / inner), 0.5}});
        return shapes;
    }
    auto machines = single(on);
    for (auto& m : machines.machines)
        machines.types[m.type] = detail::together(std::move(machines.types[m.type]), std::exchange(m.devices, 1));
    if (machines.inter) machines.inter->bandwidth *= network_cards(cluster_);
    shapes.push_back({{std::move(machines)}});
    return shapes;
}

HEDDLE_INLINE stage_bounds::axis_prices::axis_prices(stage_bounds const& of, axis a,
                                                     std::vector<step_work> const& steps, std::int64_t micro_batches)
    : devices(std::move(a.devices)), model(devices, alike_devices(devices).classes, main_type(of.programs_.program()),
                                           {of.options_.training.bucket, 1.0 / static_cast<double>(micro_batches)}),
      weights{{compute_proportional(model, main_type(of.programs_.program()))},
              std::vector<double>(model.class_count(), 0.0)},
      prices(*of.space_, steps, model, weights) {
    for (std::size_t k = 0; k < model.class_count(); ++k) weights.time.clock[k] *= a.work * model.classes()[k].count;
    weights.time.update = weights.time.clock;
}

HEDDLE_INLINE void stage_bounds::count_uses_of_one_stage(indexed_program& p) const {
    constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> first(p.tensors.size(), none); // the layer that has it first
    for (auto& t : p.tensors) t.uses = 0;
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        auto const layer = layers_.layer_of(o);
        for (auto t : p.operators[o].results) first[t] = layer;
        for (auto t : p.operators[o].operands) {
            if (first[t] == none) first[t] = layer;
            if (first[t] == layer) ++p.tensors[t].uses;
        }
    }
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (auto& tensor = p.tensors[t];
            !tensor.is_source() && !tensor.consumers.empty() && layers_.layer_of(tensor.consumers.back()) > first[t])
            ++tensor.uses;
}

HEDDLE_INLINE stage_bounds::micro_batch const& stage_bounds::parts_of_batch(std::int64_t count) {
    auto const [at, is_new] = parts_.try_emplace(count);
    auto& known = at->second;
    if (is_new && batch_size_of(indexed_) % count == 0 && (count == 1 || gathers_once_)) {
        auto training = options_.training;
        training.accumulated = static_cast<int>(count);
        auto const made = [&](indexed_program part) {
            count_uses_of_one_stage(part);
            known = micro_batch{count, programs_.steps_for(part, training),
                                programs_.steps_for(part, training, stage_programs::gradients::from_factors)};
            for (auto& s : known->passes) { // also gradients that a plan takes from factors are put together once
                s.deferred_transfers.clear(), s.update_transfers.clear(), s.inside_update.clear();
                s.deferred = {}, s.update = {};
            }
        };
        try {
            if (count == 1) made(indexed_);
            else made(index_program(micro_batch_of(program_, training.accumulated)));
        } catch (input_error const&) {} // that of a single sample, as a rule
    }
    return known ? *known : parts_of_batch(count - 1);
}

HEDDLE_INLINE layer_table stage_bounds::least(stage_devices const& on, std::int64_t micro_batches) {
    auto const& parts = parts_of_batch(micro_batches);
    return bounds(on, parts.steps, parts.count);
}

HEDDLE_INLINE layer_table stage_bounds::least_of_passes(stage_devices const& on, std::int64_t micro_batches) {
    auto const& parts = parts_of_batch(micro_batches);
    return bounds(on, parts.passes, parts.count);
}

HEDDLE_INLINE layer_table stage_bounds::bounds(stage_devices const& on, std::vector<step_work> const& steps,
                                               std::int64_t micro_batches) const {
    std::vector<shape_prices> shapes;
    for (auto& axes : shapes_of(on)) {
        auto& prices = shapes.emplace_back();
        for (auto& a : axes) prices.push_back(std::make_unique<axis_prices>(*this, std::move(a), steps, micro_batches));
    }
    std::size_t const count = cuts_.size() - 1;
    std::vector<std::vector<double>> known(count + 1); // by the layer behind the last: from each first one
    auto const from = [&](auto const& self, std::size_t end) -> std::vector<double> const& {
        auto& row = known[end];
        if (row.empty()) {
            if (auto const [other, same] = models_[end]; same == 0) {
                row = bounds_by_paths(shapes, end);
            } else { // those before the layers that are alike are bounded by themselves
                auto const& there = self(self, other);
                for (std::size_t l = 0; l < end; ++l)
                    row.push_back(l + same < end ? self(self, end - same)[l] + there[other - same]
                                                 : there[l + other - end]);
            }
        }
        return row;
    };
    double const memory = memory_of(single(on)).value;
    layer_table result(count);
    for (std::size_t first = 0; first < count; ++first)
        for (std::size_t end = first + 1; end <= count; ++end)
            result[first].push_back(least_memory_[first][end - first - 1] <= memory
                                        ? static_cast<double>(micro_batches) * from(from, end)[first]
                                        : std::numeric_limits<double>::infinity());
    return result;
}

HEDDLE_INLINE std::vector<double> stage_bounds::bounds_by_paths(std::vector<shape_prices> const& shapes,
                                                                std::size_t end) const {
    std::vector<double> bounds(end, std::numeric_limits<double>::infinity());
    for (auto const& axes : shapes) {
        std::vector<double> sums(end);
        for (auto const& a : axes) {
            search::shortest_paths const paths(*graph_, differentiated{a->prices, is_constant_}, cuts_[end].to);
            for (std::size_t l = 0; l < end; ++l)
                if (cuts_[l].from < cuts_[end].to) sums[l] += paths.least_from(cuts_[l].from);
        }
        for (std::size_t l = 0; l < end; ++l) bounds[l] = std::min(bounds[l], sums[l]);
    }
    return bounds;
}

HEDDLE_INLINE std::size_t stage_bounds::alike_before(std::size_t end, std::size_t other) const {
    auto const here = cuts_[end].to, there = cuts_[other].to;
    std::size_t same = 0, count = 0;
    while (same < std::min(here, there) &&
           graph_->segment_of_level[here - same - 1] == graph_->segment_of_level[there - same - 1] &&
           is_constant_[here - same - 1] == is_constant_[there - same - 1])
        ++same;
    while (count < end && cuts_[end - count - 1].from + same >= here &&
           here - cuts_[end - count - 1].from == there - cuts_[other - count - 1].from)
        ++count;
    return count;
}

HEDDLE_INLINE stage_bounds::turn_prices::turn_prices(stage_bounds& of, stage_devices const& on)
    : parts(of.parts_of_batch(2)), all(of, {of.single(on)}, parts.steps, parts.count),
      collectives(of, {of.single(on), 0}, parts.steps, parts.count) {}

HEDDLE_INLINE stage_bounds::mean_in_turns stage_bounds::mean_at(turn_prices const& prices, double work) const {
    mean_prices const mean{{prices.all.prices, is_constant_}, {prices.collectives.prices, is_constant_}, work};
    auto const paths = search::paths_to_goal(*graph_, mean);
    auto const count = static_cast<double>(prices.parts.count);
    mean_in_turns result{work, count * paths.to_goal()};
    if (!std::isfinite(result.seconds)) return result;
    auto const path = search::follow(*graph_, paths);
    for (std::size_t level = 0; level < path.size(); ++level)
        result.slope += count * (mean.all(level, path[level]) - 2 * mean.collectives(level, path[level]));
    return result;
}

HEDDLE_INLINE bool stage_bounds::may_turn(stage_devices const& on) {
    if (!least_in_turns_) {
        auto training = options_.training;
        training.micro_batches = 2;
        least_in_turns_ = std::numeric_limits<double>::infinity();
        try {
            least_in_turns_ = least_memory(index_program(micro_batch_of(program_, 2)), training).total();
        } catch (input_error const&) {} // there is no such program
    }
    return *least_in_turns_ <= memory_of(single(on)).value;
}

HEDDLE_INLINE double stage_bounds::least_in_turns(stage_devices const& on, double work) {
    return may_turn(on) ? mean_at(turn_prices(*this, on), work).seconds : std::numeric_limits<double>::infinity();
}

HEDDLE_INLINE std::pair<double, double> stage_bounds::most_in_turns(stage_devices const& on, double enough) {
    constexpr int rounds = 12;
    constexpr double about = 1 + 1e-4;
    if (!may_turn(on)) return {std::numeric_limits<double>::infinity(), 1.0};
    turn_prices const prices(*this, on);
    auto low = mean_at(prices, 0), high = mean_at(prices, 1);
    auto best = low.seconds < high.seconds ? high : low;
    // The least mean is concave in the weight of work: no more than where the lines along both sides meet.
    for (int round = 0; round < rounds && best.seconds < enough && low.slope > 0 && high.slope < 0; ++round) {
        double const work =
            (high.seconds - high.slope * high.work - low.seconds + low.slope * low.work) / (low.slope - high.slope);
        if (low.seconds + low.slope * (work - low.work) <= about * best.seconds) break;
        auto const between = mean_at(prices, work);
        if (between.seconds > best.seconds) best = between;
        (between.slope > 0 ? low : high) = between;
    }
    return {best.seconds, best.work};
}

} // namespace heddle

#endif
