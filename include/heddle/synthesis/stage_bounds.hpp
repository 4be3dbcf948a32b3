// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What any stage of some layers takes on some devices at least, whatever its forms, shares and mesh.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/stage_programs.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace heddle {

/// Machines of one size and device type, and what one of them computes like.
struct machine_kind {
    std::size_t type = 0;
    int devices = 1, count = 0, network_cards = 1;
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

/// Lower bounds of the time in which layers are trained on the whole batch.
///
/// Every program of a stage, on one axis or a mesh, is one on machines: a machine holds what its devices hold together.
/// A machine is then a device as fast as all of its devices together, and what they send each other costs nothing. Of
/// these programs the cheapest path between two cuts is taken, each instruction at the shares that are best for it
/// (`global_lower_bound`); what forms the stage begins and ends with is free. Devices of one machine are an axis, or a mesh
/// of two: then either axis has half of the work, and its lines a link each.
/// *Lifetime:* refers to all that it is made of.
class stage_bounds {
public:
    stage_bounds(indexed_program const& p, cluster const& c, program_layers const& layers,
                 planning_options const& options, search::deadline const& until);
    stage_bounds(stage_bounds const&) = delete;

    /// Tells whether the programs are known.
    [[nodiscard]] bool exist() const { return graph_ != nullptr; }
    /// Returns the least seconds of the layers [first, end) on these devices: of a batch, a reduction of its gradients
    /// and an update.
    [[nodiscard]] double least(stage_devices const& on, std::size_t first, std::size_t end);
    /// Returns the least seconds of the whole program in parts that take turns on all devices: no less than its work,
    /// its collectives, and any mean of both.
    [[nodiscard]] double least_in_turns() const;

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

    /// The prices on an axis.
    struct axis_prices {
        cluster devices;
        cost_model model;
        multipliers weights;
        detail::least_prices prices;

        axis_prices(stage_bounds const& of, axis a);
    };
    /// The prices of each shape, and by the layer behind the last, the bounds from each first one.
    struct known_devices {
        std::vector<std::vector<std::unique_ptr<axis_prices>>> shapes;
        std::map<std::size_t, std::vector<double>> bounds;
    };

    /// Returns the axes of each shape that the devices may have.
    [[nodiscard]] std::vector<std::vector<axis>> shapes_of(stage_devices const& on) const;
    /// Returns so many devices of the type, each as fast as `joined` of them.
    [[nodiscard]] cluster alike(std::size_t type, int count, int joined) const;
    /// Returns how many layers before two ends are alike, level by level.
    [[nodiscard]] std::size_t alike_before(std::size_t end, std::size_t other) const;
    [[nodiscard]] std::vector<double> bounds_by_paths(known_devices const& known, std::size_t end) const;

    cluster const& cluster_;
    std::vector<machine_kind> kinds_;
    stage_programs programs_;
    std::vector<levels> cuts_;
    /// By the layer behind the last: another one that is bounded by paths, and how many layers before both are alike; none if it
    /// is bounded by paths itself.
    std::vector<std::pair<std::size_t, std::size_t>> models_;
    /// By level: whether nothing of its operator is differentiated, so that any stage may compute it.
    std::vector<char> is_constant_;
    cut_space const* space_ = nullptr;
    cut_graph const* graph_ = nullptr;
    std::vector<step_work> const* steps_ = nullptr;
    std::map<stage_devices, known_devices> known_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

/// Returns a type as fast as so many devices of it.
HEDDLE_INLINE device_type together(device_type type, double devices) {
    type.memory *= devices;
    type.bandwidth *= devices;
    for (auto& [element, table] : type.rates) {
        table.fallback *= devices;
        for (auto& [category, speed] : table.by_class) {
            if (speed.rate) *speed.rate *= devices;
            if (speed.bandwidth) *speed.bandwidth *= devices;
        }
    }
    return type;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<machine_kind> machine_kinds(cluster const& c) {
    std::vector<machine_kind> kinds;
    for (auto const& m : c.machines) {
        auto found = algorithm::find_if(kinds, [&](machine_kind const& k) {
            return k.type == m.type && k.devices == m.devices && k.network_cards == m.network_cards;
        });
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

HEDDLE_INLINE stage_bounds::stage_bounds(indexed_program const& p, cluster const& c, program_layers const& layers,
                                         planning_options const& options, search::deadline const& until)
    : cluster_(c), kinds_(machine_kinds(c)), programs_(p, c, options, until) {
    programs_.take_fastest();
    if (!programs_.has_bound()) return;
    if (auto const* bounding = programs_.bounding())
        space_ = &*bounding->space, graph_ = &bounding->graph, steps_ = &bounding->steps;
    else space_ = &programs_.space(), graph_ = &programs_.graph(), steps_ = &programs_.steps();
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

HEDDLE_INLINE cluster stage_bounds::alike(std::size_t type, int count, int joined) const {
    cluster result;
    result.name = cluster_.name;
    result.types = {detail::together(cluster_.types[type], joined)};
    result.machines = {{.type = 0, .count = count}};
    result.inter = cluster_.intra;
    if (result.inter) result.inter->bandwidth *= joined; // each has a link of its own
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
    cluster machines;
    machines.name = cluster_.name;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        if (on.machines[k] == 0) continue;
        machines.machines.push_back({.type = machines.types.size(), .count = on.machines[k]});
        machines.types.push_back(detail::together(cluster_.types[kinds_[k].type], kinds_[k].devices));
    }
    machines.inter = cluster_.inter;
    if (machines.inter) machines.inter->bandwidth *= network_cards(cluster_);
    shapes.push_back({{std::move(machines)}});
    return shapes;
}

HEDDLE_INLINE stage_bounds::axis_prices::axis_prices(stage_bounds const& of, axis a)
    : devices(std::move(a.devices)), model(devices, alike_devices(devices).classes, main_type(of.programs_.program()),
                                           of.programs_.training().reduction()),
      weights{{compute_proportional(model, main_type(of.programs_.program()))},
              std::vector<double>(model.class_count(), 0.0)},
      prices(*of.space_, *of.steps_, model, weights) {
    for (std::size_t k = 0; k < model.class_count(); ++k) weights.time.clock[k] *= a.work * model.classes()[k].count;
}

HEDDLE_INLINE double stage_bounds::least(stage_devices const& on, std::size_t first, std::size_t end) {
    auto& known = known_[on];
    if (known.shapes.empty())
        for (auto& axes : shapes_of(on)) {
            auto& prices = known.shapes.emplace_back();
            for (auto& a : axes) prices.push_back(std::make_unique<axis_prices>(*this, std::move(a)));
        }
    auto& bounds = known.bounds[end];
    if (bounds.empty()) {
        auto const [other, count] = models_[end];
        if (count == 0) {
            bounds = bounds_by_paths(known, end);
        } else { // those before the layers that are alike are bounded by themselves
            for (std::size_t l = 0; l < end; ++l)
                bounds.push_back(l + count < end ? least(on, l, end - count) + least(on, other - count, other)
                                                 : least(on, l + other - end, other));
        }
    }
    return bounds[first];
}

HEDDLE_INLINE std::vector<double> stage_bounds::bounds_by_paths(known_devices const& known, std::size_t end) const {
    std::vector<double> bounds(end, std::numeric_limits<double>::infinity());
    for (auto const& axes : known.shapes) {
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

HEDDLE_INLINE double stage_bounds::least_in_turns() const {
    auto const mean = [&](double work) { // concave in the weight of work
        auto on = cluster_;
        for (auto* link : {&on.intra, &on.inter})
            if (*link) (*link)->latency *= 1 - work, (*link)->bandwidth = (*link)->bandwidth / (1 - work);
        axis_prices const known(*this, {std::move(on), work});
        return search::paths_to_goal(*graph_, differentiated{known.prices, is_constant_}).to_goal();
    };
    double low = 0, high = 0.999, best = 0;
    for (int round = 0; round < 8; ++round) {
        double const left = low + (high - low) / 3, right = high - (high - low) / 3, at_left = mean(left),
                     at_right = mean(right);
        best = std::max({best, at_left, at_right});
        (at_left < at_right ? low : high) = at_left < at_right ? left : right;
    }
    return best;
}

} // namespace heddle

#endif
