// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The shapes of the strategies of a problem, by how fast they can be at most.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/degrees.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/partition/partition_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

struct shape_options {
    /// The tensor degrees to consider; if empty, all that are profiled on every type and divide every machine.
    std::vector<std::size_t> tensor_degrees{};
    /// The pipeline and data degrees, if they are given.
    std::optional<std::size_t> pipeline{}, data{};
    /// If set, copies may get numbers of samples that differ by one; otherwise only numbers of copies that divide the
    /// batch are considered.
    bool spread_unevenly = true;

    /// Whether they leave out any.
    [[nodiscard]] bool restrict_shapes() const {
        return pipeline || data || !tensor_degrees.empty() || !spread_unevenly;
    }
};

struct shapes_by_bound {
    /// Shapes that may fit and what no strategy of each beats, by rising bound.
    std::vector<parallel_shape> shapes;
    std::vector<seconds> bounds;
    /// Those looked at, and those that fit no placement.
    std::size_t looked_at = 0, infeasible = 0;
    /// Names the shape that exceeds memory by least, if there is one, or says that layers are too few.
    std::string reason;
    search::partition_statistics statistics;
};

/// The tensor degrees to consider. *Throws* `input_error` for one that does not divide a machine or has no profile, and
/// where there is none.
[[nodiscard]] std::vector<std::size_t> tensor_degrees_of(strategy_problem const& p, shape_options const& o);

/// Tensor degrees that divide every machine but lack a profile.
[[nodiscard]] std::vector<std::size_t> unprofiled_degrees(strategy_problem const& p);

/// Shapes with no more stages than layers, of these degrees. *Throws* `input_error` as `tensor_degrees_of`, and where
/// no degrees multiply to the devices.
[[nodiscard]] std::vector<parallel_shape> shapes_of(strategy_problem const& p, shape_options const& o);

/// Bounds of all of them by `bound_shape`; once the budget is spent, of the rest by layers in equal parts on the
/// fastest type. *Throws* `input_error` as `shapes_of`.
[[nodiscard]] shapes_by_bound bound_shapes(strategy_model const& model, shape_options const& o, search::budget& left);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/strategy_bound.hpp>

namespace heddle::detail {

/// What no strategy of a shape beats: its layers in equal parts on the fastest type.
HEDDLE_INLINE seconds quick_bound(strategy_problem const& p, parallel_shape const& grid) {
    std::set<std::size_t> types;
    for (auto const& m : p.machines) types.insert(m.type);
    seconds sum;
    for (std::size_t l = 0; l < p.layer_count(); ++l) {
        seconds least(std::numeric_limits<double>::infinity());
        for (auto const t : types) least = std::min(least, p.time_on(t, grid.degrees.tensor, l, grid.micro_batch_size));
        sum += least;
    }
    return sum * ((1 + static_cast<double>(grid.micro_batches - 1) / static_cast<double>(grid.degrees.pipeline)) *
                  (1 - 1e-12));
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<std::size_t> tensor_degrees_of(strategy_problem const& p, shape_options const& o) {
    auto degrees = o.tensor_degrees.empty() ? p.usable_degrees() : o.tensor_degrees;
    for (std::size_t m = 0; m < p.machines.size(); ++m) {
        auto const& machine = p.machines[m];
        for (auto const degree : degrees) {
            if (degree == 0 || machine.devices % degree != 0)
                throw input_error("tensor degree " + std::to_string(degree),
                                  "does not divide the " + std::to_string(machine.devices) + " devices of machine " +
                                      std::to_string(m));
            if (auto const& type = p.types[machine.type]; !type.profiles.contains(degree))
                throw input_error("tensor degree " + std::to_string(degree),
                                  "no profile on device type '" + type.name + "'");
        }
    }
    if (degrees.empty())
        throw input_error("tensor degrees", "none divides every machine and is profiled on every type");
    return degrees;
}

HEDDLE_INLINE std::vector<std::size_t> unprofiled_degrees(strategy_problem const& p) {
    std::size_t common = 0;
    for (auto const& m : p.machines) common = std::gcd(common, m.devices);
    auto const usable = p.usable_degrees();
    std::vector<std::size_t> lacking;
    for (auto const degree : divisors(static_cast<std::int64_t>(common)))
        if (auto const d = static_cast<std::size_t>(degree); !algorithm::binary_search(usable, d)) lacking.push_back(d);
    return lacking;
}

HEDDLE_INLINE std::vector<parallel_shape> shapes_of(strategy_problem const& p, shape_options const& o) {
    auto const tensor_degrees = tensor_degrees_of(p, o);
    auto const devices = p.device_count();
    auto shapes = o.spread_unevenly ? spread_shapes(devices, p.global_batch) : all_shapes(devices, p.global_batch);
    std::erase_if(shapes, [&](parallel_shape const& grid) {
        auto const& d = grid.degrees;
        return algorithm::find(tensor_degrees, d.tensor) == tensor_degrees.end() ||
               d.pipeline != o.pipeline.value_or(d.pipeline) || d.data != o.data.value_or(d.data);
    });
    if (shapes.empty())
        throw input_error("degrees", "none of those asked for multiply to " + std::to_string(devices) +
                                         " devices with a batch of " + std::to_string(p.global_batch) + " samples");
    std::erase_if(shapes, [&](parallel_shape const& grid) { return grid.degrees.pipeline > p.layer_count(); });
    return shapes;
}

HEDDLE_INLINE shapes_by_bound bound_shapes(strategy_model const& model, shape_options const& o, search::budget& left) {
    auto const& p = model.problem();
    auto const shapes = shapes_of(p, o);
    shapes_by_bound out;
    out.looked_at = shapes.size();
    if (shapes.empty())
        out.reason = "more stages than the " + std::to_string(p.layer_count()) + " layers: every stage needs one";
    std::vector<std::pair<seconds, parallel_shape>> kept;
    double least_excess = std::numeric_limits<double>::infinity();
    for (auto const& grid : shapes) {
        if (left.is_spent()) {
            kept.emplace_back(detail::quick_bound(p, grid), grid);
            continue;
        }
        auto const found = bound_shape(model, grid);
        out.statistics += found.assignment.statistics;
        if (found.assignment.cost) {
            kept.emplace_back(found.bound, grid);
            continue;
        }
        ++out.infeasible;
        auto const& shortage = found.assignment.shortage;
        double const excess = shortage ? shortage->needed / shortage->limit : std::numeric_limits<double>::max();
        if (excess >= least_excess) continue;
        least_excess = excess;
        auto const& [d, size, passes] = grid;
        out.reason = "the least that exceeds memory: pipeline, data, tensor degree " + std::to_string(d.pipeline) +
                     ", " + std::to_string(d.data) + ", " + std::to_string(d.tensor) + " with micro-batches of " +
                     std::to_string(size) + ": " + found.assignment.reason;
    }
    algorithm::sort(kept, {},
                    [](auto const& c) { return std::tuple(c.first, c.second.degrees, c.second.micro_batch_size); });
    for (auto const& [bound, grid] : kept) {
        out.bounds.push_back(bound);
        out.shapes.push_back(grid);
    }
    return out;
}

} // namespace heddle

#endif
