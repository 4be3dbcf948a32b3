// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best program on a mesh of two axes: its axes are planned in turn, and bounded together.
#pragma once

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/synthesis/mesh_bound.hpp>
#include <heddle/synthesis/mesh_realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/loosened_space.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct mesh_search_options {
    training_options training{};
    /// For the search of one axis at the other's fixed program.
    synthesis_options synthesis{.relaxation_rounds = 8, .search = {.limits = {.labels = 2'000}}};
    /// How many times an axis is planned anew from each start, and how many times shares and programs take turns.
    int turns = 8, rounds = 4;
    /// The rounds in which costs are split between axes for the bound.
    int bound_rounds = 400;
    /// States kept per cut.
    std::size_t width = 20'000;
    /// Where a cut has more, tensors are loosened for the bound.
    std::size_t bound_width = 400;
    /// If set, shares stay at these, by type of devices.
    std::optional<std::vector<double>> ratios{};
    /// Programs of as many seconds are not wanted: nothing is searched where the bound at the first shares is no less.
    double worth_below = std::numeric_limits<double>::infinity();
    search::limits limits{};
};

/// A program on a mesh. Cost and bound are at its shares, before these are rounded to whole atoms; the bound is of the
/// programs of which each axis keeps to those of one axis.
struct mesh_search_result : search::outcome<> {
    std::optional<mesh_program> program;
    /// The costs of the program's steps.
    std::vector<step_work> steps;
    /// The shares of the outermost axis, by type of its devices.
    std::vector<double> ratios;
    /// Seconds of an iteration, and bytes by type.
    double cost = std::numeric_limits<double>::infinity();
    std::vector<double> memory;
    /// In words, what the bound is of.
    std::string space;
    search::statistics statistics;
};

namespace detail {

using ratio_function = std::function<std::optional<std::vector<double>>(ratio_problem const&)>;

/// Returns a solver's ratios, if it solves a problem. *Lifetime:* refers to the solver.
template <ratio_solver Solver>
[[nodiscard]] ratio_function solve_with(Solver& solver) {
    return [&solver](ratio_problem const& p) -> std::optional<std::vector<double>> {
        if (!solves(solver, p)) return std::nullopt;
        auto found = solver.solve(p);
        if (!found.feasible) return std::nullopt;
        return std::move(found.ratios);
    };
}

/// Allows all but gathering a parameter again for the backward pass, or for one operator alone.
[[nodiscard]] inline instruction_filter gathered_once() {
    return {[](instruction const& i) { return !i.is<instruction::unshard>() && !i.is<instruction::reshard>(); },
            instruction_filter::no_mark};
}

/// Searches a program on a mesh of two axes.
template <time_accumulator Accumulator>
class mesh_searcher {
public:
    mesh_searcher(indexed_program const& program, cluster const& c, mesh const& m, mesh_search_options const& options,
                  ratio_function const& solve);
    [[nodiscard]] mesh_search_result run();

private:
    /// What one axis does, or both, as instructions of the searched program.
    using one_axis = std::vector<instruction>;
    struct found_program {
        mesh_instructions list;
        path_cost cost{std::numeric_limits<double>::infinity(), {}};
        std::optional<multipliers> weights;
    };

    using number_of = std::function<double(instruction const&)>;
    /// Returns a program of one axis with the least of a number that is summed over instructions.
    [[nodiscard]] one_axis least(number_of const& number) const;
    /// Few where data is cut, or parameters are.
    [[nodiscard]] number_of cuts_data() const;
    [[nodiscard]] number_of cuts_tensors() const;
    /// Bounds programs at the shares at hand, and weights of classes.
    [[nodiscard]] double bound_at(relaxation_weights const& weights, double target);
    /// Bounds programs at the first shares, all classes of devices weighing the same.
    void bound_evenly();
    /// Explores the programs of one axis; where there are too many, those in the forms that its cheapest ones have as the
    /// bound splits costs, or some that cut data or tensors.
    void explore();
    /// A program of one axis, and the other axis that is to be planned first.
    using beginning = std::pair<axis_number, one_axis>;
    /// The programs of least numbers, for each axis to be planned first.
    [[nodiscard]] std::vector<beginning> beginnings(number_of const& number) const {
        return {{0, least(number)}, {1, least(number)}};
    }
    /// The programs that agree most with the cheapest ones as the bound splits costs.
    [[nodiscard]] std::vector<beginning> beginnings_of_bound();
    /// Plans one axis where the other's program is given.
    [[nodiscard]] found_program plan(axis_number axis, one_axis const& other);
    /// Plans the axes in turn, beginning with one of them, until nothing changes.
    void take_turns(axis_number axis, one_axis other);
    /// Plans from each beginning, as long as the best program is not close to the bound.
    void begin_from(std::vector<beginning> list);
    /// Balances the shares for the best program. Returns whether they changed.
    [[nodiscard]] bool balance();
    /// Balances shares and plans in turn, until nothing changes.
    void settle();
    [[nodiscard]] program_steps steps_of(mesh_instructions const& given) const;

    cluster const cluster_;
    mesh const& mesh_;
    mesh_search_options const& options_;
    ratio_function const& solve_;
    search::deadline until_;
    searched_program searched_;
    instruction_filter allowed_;
    loosened_space bounding_;
    bool is_narrow_ = false; ///< whether those are narrow enough to be bounded
    std::optional<mesh_bound> bound_;
    double lower_bound_ = 0; ///< at the shares at hand
    cut_space space_;
    cut_graph graph_;
    device_types types_;
    cost_model model_;
    std::vector<double> ratios_, preferred_, best_ratios_;
    found_program best_;
    search::statistics statistics_;
};

[[nodiscard]] mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             mesh_search_options const& options, ratio_function const& solve);

} // namespace detail

/// Finds a program on a mesh of machines and their devices, for devices that are alike inside every machine.
///
/// Each axis is planned at the other's fixed program, in turn, until nothing changes; the outermost axis's shares are
/// balanced between. It begins with programs that cut data, with those that are cheapest as the bound splits costs between
/// the axes, and with programs that cut tensors, in both orders, until one is close to the bound. Axes inside cut evenly.
/// *Throws* `input_error` if the machines are not as many as the mesh's outer size, each with as many devices as its
/// inner one.
/// *Returns* status and bound at the program's shares; the bound is zero if gradients overlap.
template <ratio_solver Solver>
[[nodiscard]] mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             Solver&& solver, mesh_search_options const& options = {}) {
    return detail::search_mesh(program, c, m, options, detail::solve_with(solver));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

template <time_accumulator Accumulator>
mesh_searcher<Accumulator>::mesh_searcher(indexed_program const& program, cluster const& c, mesh const& m,
                                          mesh_search_options const& options, ratio_function const& solve)
    : cluster_(with_grouped_machines(c)), mesh_(m), options_(options), solve_(solve), until_(options.limits),
      searched_(program), allowed_(searched_.as_searched(gathered_once())), bounding_(searched_.program()),
      space_(searched_.program(), operator_kinds(searched_.program())), types_(cluster_),
      model_(cluster_, types_.classes, main_type(searched_.given()), options.training.reduction()),
      preferred_(compute_proportional(model_, main_type(searched_.given()))) {
    bool const fits = m.axis_count() == 2 && cluster_.devices().size() == m.size(0) &&
                      algorithm::all_of(cluster_.group_sizes(),
                                        [&](int size) { return static_cast<std::size_t>(size) == m.size(1); });
    if (!fits)
        throw input_error("mesh", "is " + to_string(m) +
                                      ", expected as many machines as its outer axis has places, each of "
                                      "as many devices as its inner one");
    ratios_ = options.ratios.value_or(preferred_);
}

template <time_accumulator Accumulator>
auto mesh_searcher<Accumulator>::least(number_of const& number) const -> one_axis {
    std::vector<double> numbers;
    for (auto const& i : space_.instructions()) numbers.push_back(number(i));
    auto const paths = search::paths_to_goal(graph_, [&](cut_space::action a) {
        double sum = 0;
        for (auto i : space_.moves()[a].instructions) sum += numbers[i];
        return sum;
    });
    one_axis result;
    auto const path = search::follow(graph_, paths);
    for (std::size_t level = 0; level < path.size(); ++level)
        for (auto i : space_.moves()[path[level]].instructions)
            result.push_back(space_.at(space_.operator_of(level, path[level]), space_.instructions()[i]));
    return result;
}

template <time_accumulator Accumulator>
auto mesh_searcher<Accumulator>::cuts_data() const -> number_of {
    return [this](instruction const& i) {
        auto const* const read = i.as<instruction::read>();
        if (!read) return !i.is<instruction::compute>() ? 1.0 : is_split(i) ? 0.0 : 0.1;
        bool const is_trained = searched_.program().tensors[read->tensor].is_parameter();
        return is_trained && (read->from != read->to || !read->to.is_whole()) ? 1.0 : 0.0;
    };
}

template <time_accumulator Accumulator>
auto mesh_searcher<Accumulator>::cuts_tensors() const -> number_of {
    return [this](instruction const& i) {
        auto const* const read = i.as<instruction::read>();
        if (!read) return !i.is<instruction::compute>() ? 0.01 : is_split(i) ? 0.0 : 0.1;
        return searched_.program().tensors[read->tensor].is_parameter() && !read->to.is_shard() ? 1.0 : 0.0;
    };
}

template <time_accumulator Accumulator>
double mesh_searcher<Accumulator>::bound_at(relaxation_weights const& weights, double target) {
    equal_shares const shares(ratios_);
    mesh_prices const prices{searched_, mesh_, model_, shares, options_.training, weights};
    if (bound_) bound_->reprice(prices);
    else bound_.emplace(bounding_, prices);
    return bound_->improve(target, options_.bound_rounds, until_);
}

template <time_accumulator Accumulator>
void mesh_searcher<Accumulator>::bound_evenly() {
    std::size_t const classes = model_.class_count();
    relaxation_weights const even{std::vector<double>(classes, 1.0 / static_cast<double>(classes))};
    double const bound = bound_at(even, options_.worth_below);
    if (Accumulator::relaxation == relaxation_kind::clocks) lower_bound_ = bound;
}

template <time_accumulator Accumulator>
void mesh_searcher<Accumulator>::explore() {
    auto const explore_allowed = [this] {
        space_.restrict_to(allowed_);
        graph_ = search::explore(space_, options_.width);
    };
    if (!loosen_until_narrow(bounding_, allowed_, options_.bound_width, false, until_)) return explore_allowed();
    is_narrow_ = true;
    if (std::isfinite(options_.worth_below)) bound_evenly();
    if (lower_bound_ >= options_.worth_below) return;
    auto const& loose = bounding_.program;
    if (loose.loosened().empty()) return explore_allowed();
    if (!bound_) bound_evenly();
    form_table forms(searched_.program().tensors.size());
    for (axis_number a = 0; a < 2; ++a) add_forms(bounding_, bound_->cheapest(a), forms);
    auto const& space = *bounding_.space;
    for (auto const& number : {cuts_data(), cuts_tensors()}) {
        auto const paths = search::paths_to_goal(bounding_.graph, [&](cut_space::action a) {
            double sum = 0;
            for (auto n : space.moves()[a].instructions)
                if (auto const& i = space.instructions()[n]; !i.change() || !loose.is_late(i.change()->tensor))
                    sum += number(i);
            return sum;
        });
        add_forms(bounding_, search::follow(bounding_.graph, paths), forms);
    }
    join_by_whole_copies(forms);
    auto const all = allowed_;
    for (bool everywhere : {false, true}) {
        allowed_ = in_forms(searched_.program(), all, forms,
                            [&](tensor_id t) { return everywhere || loose.late(t).has_value(); });
        explore_allowed();
        if (graph_.is_complete) break;
    }
}

template <time_accumulator Accumulator>
auto mesh_searcher<Accumulator>::beginnings_of_bound() -> std::vector<beginning> {
    std::vector<beginning> list;
    auto const& program = searched_.program();
    for (axis_number axis = 0; axis < 2; ++axis) {
        form_table forms(program.tensors.size());
        add_forms(bounding_, bound_->cheapest(axis), forms);
        auto const is_other = [&](tensor_id t, tensor_form f) { return forms[t].contains(f.code()) ? 0.0 : 1.0; };
        list.push_back({1 - axis, least([&](instruction const& i) {
                            if (auto const* change = i.change())
                                return is_other(change->tensor, change->to) + (i.is<instruction::convert>() ? 0.01 : 0);
                            auto const& compute = *i.as<instruction::compute>();
                            auto const& op = program.operators[compute.op];
                            double sum = 0;
                            for (std::size_t k = 0; k < op.operands.size(); ++k)
                                sum += is_other(op.operands[k], compute.operands[k]);
                            for (std::size_t k = 0; k < op.results.size(); ++k)
                                sum += is_other(op.results[k], compute.results[k]);
                            return sum;
                        })});
    }
    return list;
}

template <time_accumulator Accumulator>
auto mesh_searcher<Accumulator>::plan(axis_number axis, one_axis const& other) -> found_program {
    mesh_axis const programs(searched_, mesh_, axis, other, allowed_, options_.training, options_.width);
    auto asked = options_.synthesis;
    asked.weights = best_.weights;
    asked.search.limits = until_.rest(asked.search.limits);
    auto found = synthesise<Accumulator>(programs.price(model_, ratios_), asked);
    statistics_ += found.statistics;
    if (!found.path) return {};
    return {programs.instructions_of(*found.path), std::move(found.cost), std::move(found.weights)};
}

template <time_accumulator Accumulator>
void mesh_searcher<Accumulator>::take_turns(axis_number axis, one_axis other) {
    double before = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < options_.turns && !until_.is_over(); ++turn, axis = 1 - axis) {
        auto found = plan(axis, other);
        if (found.cost.seconds >= before * (1 - 1e-9)) return; // this axis did best already
        before = found.cost.seconds;
        other = on_axis(searched_.program(), found.list, axis);
        if (before < best_.cost.seconds * (1 - 1e-9)) {
            best_ = std::move(found);
            best_ratios_ = ratios_;
        }
    }
}

template <time_accumulator Accumulator>
program_steps mesh_searcher<Accumulator>::steps_of(mesh_instructions const& given) const {
    program_steps result;
    auto const& p = searched_.given();
    saved_so_far saved(p);
    for (auto const& i : given) {
        result.steps.push_back(make_step(p, i, mesh_, options_.training));
        for (auto const& [t, f] : saved.by(i))
            result.saved.push_back(
                {held_bytes(p.tensors[t], f, mesh_), f[0].is_shard() ? share_ref{t, f[0].factor()} : share_ref{}});
    }
    return result;
}

template <time_accumulator Accumulator>
bool mesh_searcher<Accumulator>::balance() {
    if (options_.ratios || types_.classes.size() == 1) return false;
    auto program = steps_of(in_given(searched_, best_.list));
    equal_shares const shares(best_ratios_);
    for (auto& s : program.steps) s = model_.decided(std::move(s), shares);
    auto const found = solve_(make_ratio_problem(program, model_, preferred_));
    if (!found) return false;
    double moved = 0;
    for (std::size_t k = 0; k < ratios_.size(); ++k) moved = std::max(moved, std::abs((*found)[k] - ratios_[k]));
    ratios_ = *found;
    return moved > 1e-6;
}

template <time_accumulator Accumulator>
void mesh_searcher<Accumulator>::begin_from(std::vector<beginning> list) {
    constexpr double is_close = 1.01;
    for (auto& [axis, other] : list)
        if (best_.cost.seconds > lower_bound_ * is_close) take_turns(axis, std::move(other));
}

template <time_accumulator Accumulator>
void mesh_searcher<Accumulator>::settle() {
    for (int n = 0; n < options_.rounds && !until_.is_over() && balance(); ++n) {
        double const before = best_.cost.seconds;
        auto const list = best_.list;
        for (axis_number axis = 0; axis < 2; ++axis) take_turns(axis, on_axis(searched_.program(), list, 1 - axis));
        if (best_.cost.seconds >= before * (1 - 1e-7)) break;
    }
    ratios_ = best_ratios_;
}

template <time_accumulator Accumulator>
mesh_search_result mesh_searcher<Accumulator>::run() {
    mesh_search_result result;
    explore();
    if (lower_bound_ >= options_.worth_below) {
        result.status = search::status::infeasible;
        result.reason = "no program at the first shares takes less time than asked for";
        return result;
    }
    if (bound_) begin_from(beginnings_of_bound());
    begin_from(beginnings(cuts_data()));
    result.space = "programs on a mesh of two axes, each of which keeps to the programs of one axis that are not "
                   "slower for less memory, at these shares";
    if (best_.list.empty()) {
        result.status = until_.is_over() ? search::status::limit : search::status::infeasible;
        if (until_.is_over()) result.which_limit = search::limit_kind::time;
        result.reason = "no program that was met fits into memory";
        return result;
    }
    settle();
    bool const has_bound = is_narrow_ && best_.weights && Accumulator::relaxation == relaxation_kind::clocks;
    for (bool is_last = false;;) {
        // Costs split at the shares found may have better programs, which may have other shares.
        bool const is_split_anew = has_bound && (types_.classes.size() > 1 || !bound_);
        if (is_split_anew) lower_bound_ = bound_at(best_.weights->time, best_.cost.added);
        if (is_last || until_.is_over()) break;
        double const before = best_.cost.seconds;
        auto const is_better = [&] { return best_.cost.seconds < before * (1 - 1e-7); };
        if (is_split_anew) begin_from(beginnings_of_bound());
        if (!is_better()) {
            begin_from(beginnings(cuts_tensors()));
            is_last = true;
        }
        if (!is_better()) break;
        settle();
    }
    if (has_bound) result.lower_bound = std::min(best_.cost.seconds, lower_bound_);
    result.cost = best_.cost.seconds;
    result.memory = best_.cost.memory;
    result.ratios = best_ratios_;
    auto& program = result.program.emplace(mesh_program{mesh_, in_given(searched_, best_.list), {}, {}});
    std::vector<double> outer, inner(mesh_.size(1), 1.0 / static_cast<double>(mesh_.size(1)));
    for (auto k : types_.of_device) outer.push_back(best_ratios_[k]);
    program.cuts = mesh_cuts(searched_.given(), mesh_, program.steps, std::vector<ratio_table>{{outer}, {inner}});
    result.steps = steps_of(program.steps).steps;
    statistics_.seconds = until_.elapsed();
    result.statistics = statistics_;
    search::conclude(result, result.cost, result.lower_bound);
    return result;
}

HEDDLE_INLINE mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             mesh_search_options const& options, ratio_function const& solve) {
    if (options.training.overlaps_gradients) return mesh_searcher<overlapped>(program, c, m, options, solve).run();
    return mesh_searcher<serial>(program, c, m, options, solve).run();
}

} // namespace heddle::detail

#endif
