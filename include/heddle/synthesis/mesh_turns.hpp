// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs on a mesh from planning its axes in turn.
#pragma once

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>
#include <heddle/synthesis/timed_searches.hpp>
#include <heddle/theory/searched_program.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Allows all but gathering a parameter again for the backward pass, or for one operator alone.
[[nodiscard]] instruction_filter gathered_once();
/// Returns the tensors that are pinned on any axis.
[[nodiscard]] std::vector<tensor_id> pinned_tensors(mesh_search_options const& options);

/// Plans the axes of a mesh in turn, each at the others' fixed programs, and balances the shares of the outermost one
/// between. Holds the best program that was met.
class mesh_turns {
public:
    mesh_turns(timed_searches const& by, indexed_program const& program, cluster const& c, mesh const& m,
               mesh_search_options const& options, ratio_function const& solve);
    mesh_turns(mesh_turns const&) = delete;

    struct found_program {
        mesh_instructions list; ///< of the searched program
        path_cost cost{std::numeric_limits<double>::infinity(), {}, std::numeric_limits<double>::infinity()};
        std::optional<multipliers> weights;
    };
    [[nodiscard]] found_program const& best() const { return best_; }
    [[nodiscard]] search::statistics const& statistics() const { return statistics_; }

protected:
    /// Plans one axis where the others' programs are given.
    [[nodiscard]] found_program plan(axis_number axis, mesh_instructions const& others);
    /// Plans the axes in turn, beginning with one of them, until nothing changes, or so many times. Returns the least
    /// cost.
    double take_turns(axis_number axis, mesh_instructions others, int most);
    /// Balances the shares for the best program. Returns whether they changed.
    [[nodiscard]] bool balance();
    /// Balances shares and plans in turn, until nothing changes.
    void settle();
    /// Returns the shares that slices have at some ratios of classes, in whole atoms.
    [[nodiscard]] largest_shares whole_shares(share_vector const& ratios) const;
    [[nodiscard]] program_steps steps_of(mesh_instructions const& given) const;
    /// What each axis may do, as instructions of the searched program; or what all may.
    [[nodiscard]] std::vector<instruction_filter> allowed_on_axes() const;
    /// Tells whether axes are not to do alike.
    [[nodiscard]] bool is_restricted() const { return allowed_.size() > 1; }
    /// Returns that there is no program, and why, unless time was over.
    [[nodiscard]] mesh_search_result nothing(std::string why) const;
    /// Returns the best program, with its costs and shares.
    [[nodiscard]] mesh_search_result found(double lower_bound);

    timed_searches const by_;
    cluster const cluster_;
    mesh const mesh_;
    mesh_search_options const options_;
    ratio_function const& solve_;
    search::deadline until_;
    searched_program searched_;
    std::vector<instruction_filter> const allowed_;
    /// What is kept of the programs of each axis, or of all.
    std::vector<instruction_filter> kept_;
    device_types types_;
    cost_model model_;
    std::vector<double> ratios_, preferred_, best_ratios_;
    found_program best_;
    search::statistics statistics_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/synthesis/mesh_realise.hpp>
#include <heddle/theory/axis_program.hpp>

#include <algorithm>
#include <cmath>

namespace heddle::detail {

HEDDLE_INLINE instruction_filter gathered_once() {
    return {[](instruction const& i) { return !i.is<instruction::unshard>() && !i.is<instruction::reshard>(); },
            instruction_filter::no_mark};
}

HEDDLE_INLINE std::vector<tensor_id> pinned_tensors(mesh_search_options const& options) {
    std::vector<tensor_id> result;
    for (auto const& of_axis : options.pinned)
        for (auto const& pin : of_axis) result.push_back(pin.tensor);
    return result;
}

/// Tells whether a program gathers a parameter for each use.
[[nodiscard]] inline bool gathers_for_uses(mesh_instructions const& list) {
    return algorithm::any_of(list, [](mesh_instruction const& i) {
        return algorithm::any_of(i.axes, [](instruction const& on_axis) { return on_axis.is<instruction::unshard>(); });
    });
}

HEDDLE_INLINE mesh_turns::mesh_turns(timed_searches const& by, indexed_program const& program, cluster const& c,
                                     mesh const& m, mesh_search_options const& options, ratio_function const& solve)
    : by_(by), cluster_(with_grouped_machines(c)), mesh_(m), options_(options), solve_(solve), until_(options.limits),
      searched_(program, pinned_tensors(options)), allowed_(allowed_on_axes()), kept_(allowed_), types_(cluster_),
      model_(cluster_, types_.classes, main_type(searched_.given()), options.training.reduction()),
      preferred_(compute_proportional(model_, main_type(searched_.given()))) {
    bool const fits = m.axis_count() >= 2 && cluster_.devices().size() == m.size(0) &&
                      algorithm::all_of(cluster_.group_sizes(), [&](int size) {
                          return static_cast<std::size_t>(size) == m.devices_inside(0);
                      });
    if (!fits)
        throw input_error("mesh", "is " + to_string(m) +
                                      ", expected as many machines as its outer axis has places, each of "
                                      "as many devices as its inner axes");
    ratios_ = options.ratios.value_or(preferred_);
}

HEDDLE_INLINE std::vector<instruction_filter> mesh_turns::allowed_on_axes() const {
    if (!restricts_axes(options_)) return {searched_.as_searched(gathered_once())};
    std::vector<instruction_filter> allowed;
    for (axis_number axis = 0; axis < mesh_.axis_count(); ++axis) {
        auto pinned = options_.pinned[axis];
        find_cuts(searched_.given(), pinned);
        allowed.push_back(searched_.as_searched(with_pins(
            searched_.given(), pinned, options_.strategy.empty() ? gathered_once() : options_.strategy[axis])));
    }
    return allowed;
}

HEDDLE_INLINE auto mesh_turns::plan(axis_number axis, mesh_instructions const& others) -> found_program {
    mesh_axis programs(searched_, mesh_, axis, others, kept_[axis % kept_.size()], options_.training, options_.width);
    if (!programs.graph().has_goal()) return {};
    auto asked = options_.synthesis;
    asked.weights = best_.weights;
    asked.search.limits = until_.rest(asked.search.limits);
    auto found = by_.synthesise(programs.price(model_, whole_shares(ratios_)), asked);
    statistics_ += found.statistics;
    if (!found.path) return {};
    return {programs.instructions_of(*found.path), std::move(found.cost), std::move(found.weights)};
}

HEDDLE_INLINE double mesh_turns::take_turns(axis_number axis, mesh_instructions others, int most) {
    double before = std::numeric_limits<double>::infinity();
    mesh_instructions list;
    std::size_t did_best = 0; // axes, one after another
    for (int turn = 0; turn < most && !until_.is_over(); ++turn) {
        if (gathers_for_uses(others)) break; // no program of one axis has another do so
        auto found = plan(axis, others);
        if (found.cost.seconds >= before * (1 - 1e-9)) {
            if (before == best_.cost.seconds && found.weights) best_.weights = std::move(found.weights);
            ++did_best;
        } else {
            did_best = 0;
            before = found.cost.seconds;
            list = found.list;
            if (before < best_.cost.seconds * (1 - 1e-9)) {
                best_ = std::move(found);
                best_ratios_ = ratios_;
            } else if (before < best_.cost.seconds * (1 + 1e-9)) {
                best_.weights = std::move(found.weights); // improved once more
            }
        }
        if (list.empty() || did_best + 1 == mesh_.axis_count()) break;
        axis = (axis + 1) % mesh_.axis_count();
        others = without_axis(searched_.program(), list, axis);
    }
    return before;
}

HEDDLE_INLINE largest_shares mesh_turns::whole_shares(share_vector const& ratios) const {
    return {integral_shares(searched_.given(), types_.per_device({ratios}).front()), types_.of_device};
}

HEDDLE_INLINE program_steps mesh_turns::steps_of(mesh_instructions const& given) const {
    program_steps result;
    auto const& p = searched_.given();
    saved_so_far saved(p);
    for (auto const& i : given) {
        result.steps.push_back(make_step(p, i, mesh_, options_.training));
        for (auto const& [t, f] : saved.by(i))
            result.saved.push_back({saved_bytes(p, t, f, mesh_, options_.training.held()), share_of(t, f, mesh_)});
    }
    return result;
}

HEDDLE_INLINE bool mesh_turns::balance() {
    if (options_.ratios || types_.classes.size() == 1) return false;
    auto program = steps_of(in_given(searched_, best_.list));
    auto const shares = whole_shares(best_ratios_);
    for (auto& s : program.steps) s = model_.decided(std::move(s), shares);
    auto const found = solve_(make_ratio_problem(program, model_, preferred_));
    if (!found) return false;
    double moved = 0;
    for (std::size_t k = 0; k < ratios_.size(); ++k)
        moved = std::max(moved, std::abs((*found)[k] - ratios_[k]) / ratios_[k]);
    ratios_ = *found;
    return moved > 1e-3;
}

HEDDLE_INLINE void mesh_turns::settle() {
    for (int n = 0; n < options_.rounds && !until_.is_over() && balance(); ++n) {
        double const before = best_.cost.seconds;
        auto const list = best_.list;
        for (axis_number axis = 0; axis < mesh_.axis_count(); ++axis)
            take_turns(axis, without_axis(searched_.program(), list, axis), options_.turns);
        if (best_.cost.seconds >= before * (1 - 1e-7)) break;
    }
    ratios_ = best_ratios_;
}

HEDDLE_INLINE mesh_search_result mesh_turns::nothing(std::string why) const {
    mesh_search_result result;
    bool const is_over = until_.is_over();
    result.status = is_over ? search::status::limit : search::status::infeasible;
    if (is_over) result.which_limit = search::limit_kind::time;
    result.reason = is_over ? "time was over before a program was found that fits into memory" : std::move(why);
    return result;
}

HEDDLE_INLINE mesh_search_result mesh_turns::found(double lower_bound) {
    mesh_search_result result;
    result.lower_bound = std::min(best_.cost.seconds, lower_bound);
    result.cost = best_.cost.seconds;
    result.memory = best_.cost.memory;
    result.ratios = best_ratios_;
    auto& program = result.program.emplace(mesh_program{mesh_, in_given(searched_, best_.list), {}, {}});
    std::vector<ratio_table> ratios;
    for (auto size : mesh_.sizes()) ratios.push_back({std::vector<double>(size, 1.0 / static_cast<double>(size))});
    for (std::size_t d = 0; d < types_.of_device.size(); ++d) ratios[0][0][d] = best_ratios_[types_.of_device[d]];
    program.cuts = mesh_cuts(searched_.given(), mesh_, program.steps, ratios);
    result.steps = steps_of(program.steps).steps;
    statistics_.seconds = until_.elapsed();
    result.statistics = statistics_;
    search::conclude(result, result.cost, result.lower_bound);
    return result;
}

} // namespace heddle::detail

#endif
