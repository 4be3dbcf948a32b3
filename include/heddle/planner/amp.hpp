// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief AMP: degrees of pipeline, data and tensor parallelism, micro-batch, placement and layers of each stage.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/placement.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/pipeline/strategy_bound.hpp>
#include <heddle/pipeline/strategy_walk.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/planning_progress.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

struct amp_options {
    /// How many of the best strategies are kept, no two of one shape.
    std::size_t record = 10;
    /// How many of them are tried for real, where the visitor can.
    std::size_t trials = 0;
    /// Tensor degrees to consider; none: all that are profiled on every type and divide every machine.
    std::vector<std::size_t> tensor_degrees{};
    /// Pipeline and data degree, if they are given.
    std::optional<std::size_t> pipeline{}, data{};
    /// Copies may get numbers of samples that differ by one; else only those that divide the batch are considered.
    bool spread_unevenly = true;
    /// All placements of a shape are tried if there are no more than this, else so many orders of machines.
    std::size_t all_placements = 1000, machine_orders = 48;
    /// Steps of Algorithm 2 after that, from the best strategy.
    search::annealing_options annealing{.steps = 500};
    std::optional<double> time_limit_seconds{};
    std::stop_token stop{};
    progress_function progress{};
};

struct ranked_strategy {
    strategy plan;
    strategy_cost cost;
    /// Tried, and the time of an iteration; nothing where the trial failed.
    bool is_tried = false;
    std::optional<seconds> measured{};
};

struct amp_statistics {
    /// Shapes: all, those whose bound left them out, those that fit no placement. Placements whose layers were
    /// assigned.
    std::size_t shapes = 0, bounded = 0, infeasible = 0, placements = 0;
    search::partition_statistics assignment;
    search::annealing_statistics annealing;
    double seconds = 0;
};

/// The bound is one on every strategy's predicted time, whatever its placement and layers.
struct amp_result : search::outcome<seconds> {
    /// Best first, by predicted time; equal ones by shape.
    std::vector<ranked_strategy> record;
    /// The strategy to use, in the record: the fastest of those tried; the first not tried where all trials failed.
    std::optional<std::size_t> best;
    /// What status and bound are of, in words that follow "optimal among".
    std::string space;
    /// Tensor degrees that divide every machine but lack a profile, so were not considered.
    std::vector<std::size_t> unprofiled_degrees;
    amp_statistics statistics;
};

/// A visitor may have `std::optional<seconds> on_trial(strategy const&, strategy_cost const&)`, which runs the strategy
/// and returns the time of an iteration, or nothing if it failed.
struct no_amp_visitor {};

namespace detail {

class amp_run {
public:
    amp_run(strategy_problem const& p, amp_options const& o);

    template <class Visitor>
    amp_result run(Visitor& visitor) {
        bound_shapes();
        for (std::size_t i = 0; i < shapes_.size() && !is_stopped(); ++i) {
            if (shapes_[i].bound >= cutoff()) {
                out_.statistics.bounded = shapes_.size() - i;
                break;
            }
            tell("shape " + std::to_string(i + 1) + " of " + std::to_string(shapes_.size()));
            search_placements(shapes_[i].grid);
        }
        if (options_.annealing.steps > 0 && !out_.record.empty() && !is_stopped()) anneal();
        conclude();
        if constexpr (requires(ranked_strategy const& r) {
                          { visitor.on_trial(r.plan, r.cost) } -> std::convertible_to<std::optional<seconds>>;
                      })
            try_for_real(visitor);
        out_.statistics.seconds = until_.elapsed();
        return std::move(out_);
    }

private:
    struct candidate {
        parallel_shape grid;
        seconds bound;
    };

    void tell(std::string const& phase) const;

    void collect_degrees();

    void collect_shapes();

    void bound_shapes();

    /// What no strategy of a shape beats: its layers in equal parts on the fastest type.
    [[nodiscard]] seconds quick_bound(parallel_shape const& grid) const;

    void search_placements(parallel_shape const& grid);

    /// Of a grid of these degrees, all or Megatron's and those of other orders.
    std::vector<device_placement> const& placements(parallel_degrees d);

    /// The time at which a strategy no longer enters the record.
    [[nodiscard]] seconds cutoff() const {
        return out_.record.size() < std::max<std::size_t>(options_.record, 1)
                   ? seconds(std::numeric_limits<double>::infinity())
                   : out_.record.back().cost.total;
    }

    void keep(strategy s);

    void anneal();

    void conclude();

    template <class Visitor>
    void try_for_real(Visitor& visitor) {
        std::optional<std::size_t> fastest;
        for (std::size_t i = 0; i < std::min(options_.trials, out_.record.size()); ++i) {
            auto& entry = out_.record[i];
            entry.is_tried = true;
            entry.measured = visitor.on_trial(entry.plan, entry.cost);
            if (entry.measured && (!fastest || *entry.measured < *out_.record[*fastest].measured)) fastest = i;
        }
        std::size_t const tried = std::min(options_.trials, out_.record.size());
        if (fastest) out_.best = fastest;
        else if (tried > 0) out_.best = tried < out_.record.size() ? std::optional(tried) : std::nullopt;
    }

    bool is_stopped();

    strategy_problem const& problem_;
    amp_options const& options_;
    search::deadline until_;
    strategy_model model_;
    std::vector<std::size_t> degrees_;
    std::vector<candidate> shapes_;
    std::map<parallel_degrees, std::vector<device_placement>> placements_;
    amp_result out_;
};

} // namespace detail

/// Ranks strategies by predicted time: all shapes by rising bound; for each all placements, or orders of machines with
/// either copies or stages next to each other; layers assigned exactly for the pipeline's time; then, if asked,
/// annealing over shapes and tilings. What is found is optimal only where the bound says so: layers are not assigned
/// for the all-reduce of gradients, and not all placements are tried.
///
/// *Returns* `optimal`, `feasible`, `limit` or `infeasible` with the reason. *Throws* `input_error` before work starts.
/// *Complexity.* Of a shape, placements times that of `assign_layers`.
/// *Reference.* AMP, Algorithms 1 and 2.
template <class Visitor = no_amp_visitor>
[[nodiscard]] amp_result plan_amp(strategy_problem const& p, amp_options const& o = {}, Visitor&& visitor = {}) {
    validate(p);
    return detail::amp_run(p, o).run(visitor);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE amp_run::amp_run(strategy_problem const& p, amp_options const& o)
    : problem_(p), options_(o), until_(o.time_limit_seconds, o.stop), model_(p) {
    collect_degrees();
    collect_shapes();
}

HEDDLE_INLINE void amp_run::tell(std::string const& phase) const {
    if (!options_.progress) return;
    auto const best = out_.record.empty() ? std::nullopt : std::optional(out_.record.front().cost.total.value);
    options_.progress({phase, best, shapes_.empty() ? std::nullopt : std::optional(shapes_.front().bound.value)});
}

HEDDLE_INLINE void amp_run::collect_degrees() {
    auto const usable = problem_.usable_degrees();
    degrees_ = options_.tensor_degrees.empty() ? usable : options_.tensor_degrees;
    std::size_t common = 0;
    for (std::size_t m = 0; m < problem_.machines.size(); ++m) {
        auto const& machine = problem_.machines[m];
        common = std::gcd(common, machine.devices);
        for (auto const degree : degrees_) {
            if (degree == 0 || machine.devices % degree != 0)
                throw input_error("tensor degree " + std::to_string(degree),
                                  "does not divide the " + std::to_string(machine.devices) + " devices of machine " +
                                      std::to_string(m));
            if (auto const& type = problem_.types[machine.type]; !type.profiles.contains(degree))
                throw input_error("tensor degree " + std::to_string(degree),
                                  "no profile on device type '" + type.name + "'");
        }
    }
    for (auto const degree : divisors(static_cast<std::int64_t>(common)))
        if (auto const d = static_cast<std::size_t>(degree); !algorithm::binary_search(usable, d))
            out_.unprofiled_degrees.push_back(d);
    if (degrees_.empty())
        throw input_error("tensor degrees", "none divides every machine and is profiled on every type");
}

HEDDLE_INLINE void amp_run::collect_shapes() {
    auto const devices = problem_.device_count();
    bool multiplies = false;
    for (auto const& grid : options_.spread_unevenly ? spread_shapes(devices, problem_.global_batch)
                                                     : all_shapes(devices, problem_.global_batch)) {
        auto const& d = grid.degrees;
        if (algorithm::find(degrees_, d.tensor) == degrees_.end()) continue;
        if (d.pipeline != options_.pipeline.value_or(d.pipeline) || d.data != options_.data.value_or(d.data)) continue;
        multiplies = true;
        if (d.pipeline <= problem_.layer_count()) shapes_.push_back({grid, seconds(0)});
    }
    if (!multiplies)
        throw input_error("degrees", "none of those asked for multiply to " + std::to_string(devices) +
                                         " devices with a batch of " + std::to_string(problem_.global_batch) +
                                         " samples");
    if (shapes_.empty())
        out_.reason =
            "more stages than the " + std::to_string(problem_.layer_count()) + " layers: every stage needs one";
    out_.statistics.shapes = shapes_.size();
}

HEDDLE_INLINE void amp_run::bound_shapes() {
    std::vector<candidate> kept;
    double least_excess = std::numeric_limits<double>::infinity();
    for (auto c : shapes_) {
        if (is_stopped()) {
            c.bound = quick_bound(c.grid);
            kept.push_back(c);
            continue;
        }
        auto const found = bound_shape(model_, c.grid);
        out_.statistics.assignment += found.assignment.statistics;
        if (found.assignment.cost) {
            c.bound = found.bound;
            kept.push_back(c);
            continue;
        }
        ++out_.statistics.infeasible;
        auto const& shortage = found.assignment.shortage;
        double const excess = shortage ? shortage->needed / shortage->limit : std::numeric_limits<double>::max();
        if (excess >= least_excess) continue;
        least_excess = excess;
        auto const& [d, size, passes] = c.grid;
        out_.reason = "the least that exceeds memory: pipeline, data, tensor degree " + std::to_string(d.pipeline) +
                      ", " + std::to_string(d.data) + ", " + std::to_string(d.tensor) + " with micro-batches of " +
                      std::to_string(size) + ": " + found.assignment.reason;
    }
    shapes_ = std::move(kept);
    algorithm::sort(shapes_, {},
                    [](candidate const& c) { return std::tuple(c.bound, c.grid.degrees, c.grid.micro_batch_size); });
}

HEDDLE_INLINE seconds amp_run::quick_bound(parallel_shape const& grid) const {
    std::set<std::size_t> types;
    for (auto const& m : problem_.machines) types.insert(m.type);
    seconds sum;
    for (std::size_t l = 0; l < problem_.layer_count(); ++l) {
        seconds least(std::numeric_limits<double>::infinity());
        for (auto const t : types)
            least = std::min(least, problem_.time_on(t, grid.degrees.tensor, l, grid.micro_batch_size));
        sum += least;
    }
    return sum * ((1 + static_cast<double>(grid.micro_batches - 1) / static_cast<double>(grid.degrees.pipeline)) *
                  (1 - 1e-12));
}

HEDDLE_INLINE void amp_run::search_placements(parallel_shape const& grid) {
    for (auto const& placement : placements(grid.degrees)) {
        if (is_stopped()) return;
        ++out_.statistics.placements;
        layer_assignment_options o;
        o.cutoff = cutoff();
        o.time_limit_seconds = until_.left();
        o.stop = until_.stop();
        if (auto s = assign_strategy(model_, grid, placement, o)) keep(*std::move(s));
    }
}

HEDDLE_INLINE std::vector<device_placement> const& amp_run::placements(parallel_degrees d) {
    auto const [at, is_new] = placements_.try_emplace(d);
    if (!is_new) return at->second;
    placement_space const space(problem_, d.tensor);
    if (auto all = space.all(d, options_.all_placements)) return at->second = *std::move(all);
    std::set<std::vector<std::size_t>> seen;
    for (auto const& machines : space.machine_orders(options_.machine_orders))
        for (auto const order : {placement_order::copies_first, placement_order::stages_first})
            if (auto p = space.in_order(d, machines, order); seen.insert(p.devices).second)
                at->second.push_back(std::move(p));
    return at->second;
}

HEDDLE_INLINE void amp_run::keep(strategy s) {
    auto const key = [](strategy const& x) { return std::pair(x.degrees(), x.micro_batch_size); };
    auto cost = model_.cost(s);
    if (!(cost.total < cutoff())) return;
    auto const same = algorithm::find_if(out_.record, [&](auto const& r) { return key(r.plan) == key(s); });
    if (same != out_.record.end()) {
        if (!(cost.total < same->cost.total)) return;
        out_.record.erase(same);
    }
    auto const less = [&](ranked_strategy const& a, ranked_strategy const& b) {
        return a.cost.total != b.cost.total ? a.cost.total < b.cost.total : key(a.plan) < key(b.plan);
    };
    ranked_strategy entry{std::move(s), std::move(cost)};
    out_.record.insert(algorithm::upper_bound(out_.record, entry, less), std::move(entry));
    if (out_.record.size() > std::max<std::size_t>(options_.record, 1)) out_.record.pop_back();
}

HEDDLE_INLINE void amp_run::anneal() {
    tell("annealing");
    std::vector<parallel_shape> shapes;
    for (auto const& c : shapes_) shapes.push_back(c.grid);
    auto const& best = out_.record.front().plan;
    auto const first = algorithm::find_if(shapes, [&](auto const& s) {
        return s.degrees == best.degrees() && s.micro_batch_size == best.micro_batch_size;
    });
    strategy_walk const walk(model_, shapes, static_cast<std::size_t>(first - shapes.begin()));
    auto o = options_.annealing;
    o.lower_bound = std::max(o.lower_bound, shapes_.front().bound.value);
    o.stop = options_.stop;
    o.time_limit_seconds = until_.left();
    auto const found = search::anneal(walk, o);
    out_.statistics.annealing = found.statistics;
    if (!found.state || !found.cost) return;
    if (auto s = walk.decode(*found.state)) keep(*std::move(s));
}

HEDDLE_INLINE void amp_run::conclude() {
    (void)is_stopped();
    bool const restricts =
        options_.pipeline || options_.data || !options_.tensor_degrees.empty() || !options_.spread_unevenly;
    out_.space = std::string("pipelines of equal tensor groups and copies in these layers") +
                 (restricts ? " of the degrees asked for" : "");
    if (!shapes_.empty()) out_.lower_bound = shapes_.front().bound;
    if (out_.record.empty()) {
        if (shapes_.empty()) { // proven before any limit was looked at
            out_.which_limit = search::limit_kind::none;
            return;
        }
        out_.status = search::status::limit;
        if (out_.which_limit != search::limit_kind::none) return;
        out_.which_limit = search::limit_kind::labels;
        out_.reason = "no placement tried fits memory";
        return;
    }
    out_.reason.clear();
    out_.best = 0;
    search::conclude(out_, out_.record.front().cost.total, out_.lower_bound);
}

HEDDLE_INLINE bool amp_run::is_stopped() {
    if (out_.which_limit == search::limit_kind::none) out_.which_limit = until_.reached();
    return out_.which_limit != search::limit_kind::none;
}

} // namespace heddle::detail

#endif
