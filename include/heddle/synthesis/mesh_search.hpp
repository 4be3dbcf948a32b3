// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best program on a mesh of two axes: its axes are planned in turn, and bounded together.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

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

[[nodiscard]] mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             mesh_search_options const& options, ratio_function const& solve);

} // namespace detail

/// Finds a program on a mesh of machines and their devices, for devices that are alike inside every machine.
///
/// Each axis is planned at the other's fixed program, in turn, until nothing changes; the outermost axis's shares are
/// balanced between. It begins with programs that cut data, with those that are cheapest as the bound splits costs
/// between the axes, and with programs that cut tensors, in both orders, until one is close to the bound. Axes inside
/// cut evenly.
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

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/synthesis/mesh_bound.hpp>
#include <heddle/synthesis/mesh_realise.hpp>
#include <heddle/synthesis/timed_searches.hpp>
#include <heddle/theory/loosened_space.hpp>

namespace heddle::detail {

/// Allows all but gathering a parameter again for the backward pass, or for one operator alone.
[[nodiscard]] inline instruction_filter gathered_once() {
    return {[](instruction const& i) { return !i.is<instruction::unshard>() && !i.is<instruction::reshard>(); },
            instruction_filter::no_mark};
}

/// Tells whether a program gathers a parameter so.
[[nodiscard]] inline bool gathers_for_uses(std::vector<instruction> const& list) {
    return algorithm::any_of(list, [](instruction const& i) { return i.is<instruction::unshard>(); });
}

/// Returns the tensors that are pinned on either axis.
[[nodiscard]] inline std::vector<tensor_id> pinned_tensors(mesh_search_options const& options) {
    auto result = tensors_of(options.pinned[0]);
    for (auto const& pin : options.pinned[1]) result.push_back(pin.tensor);
    return result;
}

/// Searches a program on a mesh of two axes.
class mesh_searcher {
public:
    mesh_searcher(timed_searches const& by, indexed_program const& program, cluster const& c, mesh const& m,
                  mesh_search_options const& options, ratio_function const& solve);
    [[nodiscard]] mesh_search_result run();

private:
    /// What one axis does, or both, as instructions of the searched program.
    using one_axis = std::vector<instruction>;
    struct found_program {
        mesh_instructions list;
        path_cost cost{std::numeric_limits<double>::infinity(), {}, std::numeric_limits<double>::infinity()};
        std::optional<multipliers> weights;
    };

    using number_of = std::function<double(instruction const&)>;
    /// The programs of an axis.
    struct own_programs {
        explicit own_programs(searched_program const& searched) : space(searched.program(), searched.kinds()) {}
        cut_space space;
        cut_graph graph;
    };
    /// What an axis may do, as instructions of the given program.
    [[nodiscard]] instruction_filter allowed_on(axis_number axis) const;
    /// The programs of an axis that are kept.
    [[nodiscard]] cut_space const& space(axis_number axis) const {
        return own_.empty() ? *bounding_.space : own_[axis % own_.size()].space;
    }
    [[nodiscard]] cut_graph const& graph(axis_number axis) const {
        return own_.empty() ? bounding_.graph : own_[axis % own_.size()].graph;
    }
    /// Returns a program of an axis with the least of a number that is summed over instructions; none if it has no
    /// program.
    [[nodiscard]] one_axis least(axis_number axis, number_of const& number) const;
    [[nodiscard]] one_axis program_of(axis_number axis, std::vector<cut_space::action> const& path) const;
    [[nodiscard]] number_of cuts_data() const {
        return [this](instruction const& i) { return but_for_cut_data(searched_.program(), i); };
    }
    [[nodiscard]] number_of cuts_tensors() const {
        return [this](instruction const& i) { return but_for_cut_tensors(searched_.program(), i); };
    }
    /// Bounds programs at the shares at hand, by the weights of classes and of their memory that suit the best program.
    /// A draft is no bound.
    void bound(bool is_draft) { bound(is_draft, options_.worth_below); }
    /// As above, until the bound is `enough`, or as much as the best program takes.
    void bound(bool is_draft, double enough);
    /// What memory within the limits adds to the bound's costs at most.
    [[nodiscard]] double credit() const;
    [[nodiscard]] static bool is_tight(std::vector<double> const& memory) {
        return algorithm::any_of(memory, [](double per_byte) { return per_byte > 0; });
    }
    /// Plans from the pairs of programs that are best as the bound has it. Returns what `begin_from` does.
    bool begin_from_pairs();
    /// Plans from pairs of programs that hold less and less, until those fit that are no dearer than the best.
    void begin_with_less_memory();
    /// Explores the programs of each axis that are kept; where some are loosened, those in the forms of such programs.
    void explore_own();
    [[nodiscard]] bool is_explored() const {
        return algorithm::all_of(own_, [](own_programs const& own) { return own.graph.is_complete; });
    }
    void explore_in_forms_of(std::vector<mesh_bound::path> const& paths);
    /// Explores programs, bounds them, and plans from beginnings at the shares at hand.
    void begin();
    /// A program of one axis, and the other axis, which is to be planned first. With programs that are best beside each
    /// other, as the bound has it, these cost so much at least.
    struct beginning {
        axis_number axis;
        one_axis other;
        double cost = 0;
    };
    /// The programs of least numbers, for each axis to be planned first.
    [[nodiscard]] std::vector<beginning> beginnings(number_of const& number) const {
        return {{0, least(1, number)}, {1, least(0, number)}};
    }
    /// A bounding program of least numbers.
    [[nodiscard]] mesh_bound::path least_bounding(axis_number axis, number_of const& number) const;
    /// Has a bounding program that cuts data, and one that cuts tensors, of each axis.
    void find_few();
    /// Pairs of bounding programs that are best beside each other, the cheapest first: those that are cheapest as the
    /// bound splits costs, and those that cut data or tensors, are where axes begin to take turns.
    [[nodiscard]] std::vector<mesh_bound::pair_of_programs> pairs_of_bound();
    /// A bounding program, or that of the axis that agrees most with it.
    [[nodiscard]] one_axis like(axis_number axis, mesh_bound::path const& bounding) const;
    [[nodiscard]] std::vector<beginning> beginnings_of(std::vector<mesh_bound::pair_of_programs> const& pairs) const;
    /// Plans one axis where the other's program is given.
    [[nodiscard]] found_program plan(axis_number axis, one_axis const& other);
    /// Plans the axes in turn, beginning with one of them, until nothing changes, or so many times. Returns the least
    /// cost.
    double take_turns(axis_number axis, one_axis other, int most);
    /// Plans from each beginning that may be better, as long as the best program is not close to the bound.
    /// Returns whether the last was no better than the best, though it fits.
    bool begin_from(std::vector<beginning> list);
    /// Balances the shares for the best program. Returns whether they changed.
    [[nodiscard]] bool balance();
    /// Balances shares and plans in turn, until nothing changes.
    void settle();
    [[nodiscard]] program_steps steps_of(mesh_instructions const& given) const;

    timed_searches const by_;
    cluster const cluster_;
    mesh const& mesh_;
    mesh_search_options const& options_;
    ratio_function const& solve_;
    search::deadline until_;
    searched_program searched_;
    /// What each axis may do, where they are not to do alike; what one of them may; and what is kept of that, for
    /// each or for both.
    std::optional<std::array<instruction_filter, 2>> restricted_;
    instruction_filter allowed_;
    std::vector<instruction_filter> kept_;
    loosened_space bounding_;
    bool is_narrow_ = false;    ///< whether those are narrow enough to be bounded
    bool has_programs_ = false; ///< whether each axis has some
    /// Bounding programs that cut data or tensors, and the best pair before shares were balanced.
    std::vector<mesh_bound::path> few_;
    std::optional<mesh_bound> bound_;
    /// Seconds per byte that a class holds, as the bound counts them.
    std::vector<double> memory_;
    double lower_bound_ = 0; ///< at the shares at hand
    std::vector<double> bounded_at_;
    bool is_excluded_ = false;  ///< whether all take longer than is asked for
    bool is_too_large_ = false; ///< whether programs were met that do not fit beside the one that they began with
    /// Programs of each axis, or of both, where those that are bounded are not these.
    std::deque<own_programs> own_;
    device_types types_;
    cost_model model_;
    std::vector<double> ratios_, preferred_, best_ratios_;
    found_program best_;
    search::statistics statistics_;
};

HEDDLE_INLINE mesh_searcher::mesh_searcher(timed_searches const& by, indexed_program const& program, cluster const& c,
                                           mesh const& m, mesh_search_options const& options,
                                           ratio_function const& solve)
    : by_(by), cluster_(with_grouped_machines(c)), mesh_(m), options_(options), solve_(solve), until_(options.limits),
      searched_(program, pinned_tensors(options)), allowed_(searched_.as_searched(gathered_once())), kept_{allowed_},
      bounding_(searched_.program()), types_(cluster_),
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
    if (!options.strategy && pinned_tensors(options).empty()) return;
    restricted_ = {searched_.as_searched(allowed_on(0)), searched_.as_searched(allowed_on(1))};
    allowed_ = searched_.as_searched(either(allowed_on(0), allowed_on(1)));
    kept_.assign(restricted_->begin(), restricted_->end());
}

HEDDLE_INLINE instruction_filter mesh_searcher::allowed_on(axis_number axis) const {
    auto pinned = options_.pinned[axis];
    find_cuts(searched_.given(), pinned);
    return with_pins(searched_.given(), pinned, options_.strategy ? (*options_.strategy)[axis] : gathered_once());
}

HEDDLE_INLINE auto mesh_searcher::least(axis_number axis, number_of const& number) const -> one_axis {
    if (!graph(axis).has_goal()) return {};
    std::vector<double> numbers;
    for (auto const& i : space(axis).instructions()) numbers.push_back(number(i));
    auto const paths = search::paths_to_goal(graph(axis), [&](cut_space::action a) {
        double sum = 0;
        for (auto i : space(axis).moves()[a].instructions) sum += numbers[i];
        return sum;
    });
    return program_of(axis, search::follow(graph(axis), paths));
}

HEDDLE_INLINE auto mesh_searcher::program_of(axis_number axis, std::vector<cut_space::action> const& path) const
    -> one_axis {
    one_axis result;
    auto const& programs = space(axis);
    for (std::size_t level = 0; level < path.size(); ++level)
        for (auto i : programs.moves()[path[level]].instructions)
            result.push_back(programs.at(programs.operator_of(level, path[level]), programs.instructions()[i]));
    return result;
}

HEDDLE_INLINE void mesh_searcher::bound(bool is_draft, double enough) {
    constexpr int drafted_rounds = 8;
    std::size_t const classes = model_.class_count();
    relaxation_weights const weights =
        best_.weights ? best_.weights->time
                      : relaxation_weights{std::vector<double>(classes, 1.0 / static_cast<double>(classes))};
    uniform_shares const shares(ratios_);
    if (best_.weights && is_tight(best_.weights->memory)) memory_ = best_.weights->memory;
    mesh_prices const prices{searched_,         mesh_,   model_,  shares,
                             options_.training, weights, memory_, restricted_ ? &*restricted_ : nullptr};
    if (bound_) bound_->reprice(prices);
    else bound_.emplace(bounding_, prices);
    if (is_draft) {
        bound_->draft({drafted_rounds, options_.gap, until_});
        return;
    }
    double const target = std::min(best_.cost.added, enough), all = target + credit();
    double const gap = std::isfinite(all) && all > 0 ? options_.gap * target / all : options_.gap;
    double const found = bound_->improve(all, {options_.bound_rounds, gap, until_}) - credit();
    if (by_.kind != relaxation_kind::clocks) return;
    lower_bound_ = std::exchange(bounded_at_, ratios_) == ratios_ ? std::max(lower_bound_, found) : found;
}

HEDDLE_INLINE double mesh_searcher::credit() const {
    double sum = 0;
    for (std::size_t k = 0; k < memory_.size(); ++k) sum += memory_[k] * model_.memory_limit(k);
    return sum;
}

HEDDLE_INLINE void mesh_searcher::explore_own() {
    for (std::size_t n = 0; n < kept_.size(); ++n) {
        if (own_.size() == n) own_.emplace_back(searched_);
        own_[n].space.restrict_to(kept_[n]);
        own_[n].graph = search::explore(own_[n].space, options_.width);
    }
}

HEDDLE_INLINE mesh_bound::path mesh_searcher::least_bounding(axis_number axis, number_of const& number) const {
    auto const& space = *bounding_.space;
    auto const paths = search::paths_to_goal(bounding_.graph, [&](cut_space::action a) {
        double sum = 0;
        for (auto n : space.moves()[a].instructions)
            if (auto const& i = space.instructions()[n]; !i.change() || !bounding_.program.is_late(i.change()->tensor))
                sum += number(i) + (restricted_ && !(*restricted_)[axis](i) ? never : 0);
        return sum;
    });
    return search::follow(bounding_.graph, paths);
}

HEDDLE_INLINE void mesh_searcher::find_few() {
    for (auto const& number : {cuts_data(), cuts_tensors()})
        for (axis_number axis = 0; axis < kept_.size(); ++axis) few_.push_back(least_bounding(axis, number));
}

HEDDLE_INLINE std::vector<mesh_bound::pair_of_programs> mesh_searcher::pairs_of_bound() {
    std::vector<mesh_bound::pair_of_programs> pairs;
    for (axis_number axis = 0; axis < 2; ++axis) {
        pairs.push_back(bound_->in_turn(axis, bound_->cheapest(1 - axis)));
        for (auto const& other : few_) pairs.push_back(bound_->in_turn(axis, other));
    }
    algorithm::sort(pairs, {}, [](auto const& pair) { return std::tie(pair.cost, pair.programs); });
    auto const same = [](auto const& a, auto const& b) { return a.programs == b.programs; };
    pairs.erase(std::unique(pairs.begin(), pairs.end(), same), pairs.end());
    std::erase_if(pairs, [](auto const& pair) { return pair.cost >= never; });
    for (auto& pair : pairs) pair.cost -= credit();
    return pairs;
}

HEDDLE_INLINE void mesh_searcher::explore_in_forms_of(std::vector<mesh_bound::path> const& paths) {
    if (bounding_.program.loosened().empty()) return;
    form_table forms(searched_.program().tensors.size());
    for (auto const& path : paths) add_forms(bounding_, path, forms);
    join_by_whole_copies(forms);
    for (bool everywhere : {false, true}) {
        for (std::size_t n = 0; n < kept_.size(); ++n)
            kept_[n] = in_forms(searched_.program(), restricted_ ? (*restricted_)[n] : allowed_, forms,
                                [&](tensor_id t) { return everywhere || bounding_.program.late(t).has_value(); });
        explore_own();
        if (is_explored()) break;
    }
}

HEDDLE_INLINE void mesh_searcher::begin() {
    if (options_.strategy) {
        explore_own();
        has_programs_ = graph(0).has_goal() && graph(1).has_goal();
        if (!has_programs_) return;
        for (auto const& number : {cuts_data(), cuts_tensors()})
            for (auto const& from : beginnings(number)) take_turns(from.axis, from.other, options_.turns);
        return;
    }
    is_narrow_ = loosen_until_narrow(bounding_, allowed_, options_.bound_width, false, until_);
    bool const is_loosened = !bounding_.program.loosened().empty();
    if (!is_narrow_ || (!is_loosened && (restricted_ || !bounding_.space->is_complete()))) explore_own();
    has_programs_ = !restricted_ || own_.empty() || (graph(0).has_goal() && graph(1).has_goal());
    if (!has_programs_ || (is_narrow_ && !bounding_.graph.has_goal())) {
        has_programs_ = false;
        return;
    }
    if (!is_narrow_) {
        begin_from(beginnings(cuts_data()));
        return;
    }
    if (std::isfinite(options_.worth_below)) bound(false);
    is_excluded_ = lower_bound_ >= options_.worth_below;
    if (is_excluded_) return;
    find_few();
    if (types_.classes.size() > 1) { // the bound begins with the classes' weights, and shares, of some program
        explore_in_forms_of(few_);
        take_turns(0, least(1, cuts_data()), 2);
        if (!best_.list.empty()) static_cast<void>(balance());
        lower_bound_ = 0;
    }
    if (!bound_ || types_.classes.size() > 1) bound(types_.classes.size() > 1);
    begin_from_pairs();
    if (best_.list.empty()) begin_from(beginnings(cuts_data()));
    if (best_.list.empty()) begin_from(beginnings(cuts_tensors()));
    if (is_too_large_) begin_with_less_memory();
}

HEDDLE_INLINE bool mesh_searcher::begin_from_pairs() {
    auto const pairs = pairs_of_bound();
    if (pairs.empty()) {
        has_programs_ = !restricted_;
        return true;
    }
    for (auto const& programs : pairs.front().programs) few_.push_back(programs);
    explore_in_forms_of(few_);
    return begin_from(beginnings_of(pairs));
}

HEDDLE_INLINE void mesh_searcher::begin_with_less_memory() {
    auto const pairs = pairs_of_bound();
    if (pairs.empty()) return;
    auto const price_memory = [&](double worth) { // of a full memory, in what the cheapest programs take
        double const each = worth * pairs.front().cost / static_cast<double>(model_.class_count());
        memory_.clear();
        for (std::size_t k = 0; k < model_.class_count(); ++k) memory_.push_back(each / model_.memory_limit(k));
    };
    constexpr std::array worths{0.25, 1.0, 4.0, 16.0, 64.0};
    constexpr double by_far = 1.5; // more than other shares of unlike devices spare
    double const too_much = options_.worth_below * (types_.classes.size() > 1 ? by_far : 1);
    bool const may_exclude = std::isfinite(too_much) && by_.kind == relaxation_kind::clocks;
    for (double const worth : worths) {
        if (!may_exclude || until_.is_over()) break;
        price_memory(worth);
        bound(false, 1.01 * too_much); // rounds end near it
        is_excluded_ = lower_bound_ >= too_much;
        if (is_excluded_) return;
    }
    for (double const worth : worths) {
        if (!std::exchange(is_too_large_, false) || until_.is_over()) return;
        price_memory(worth);
        bound(true);
        if (begin_from_pairs()) return; // more memory would be spared for nothing
    }
}

HEDDLE_INLINE auto mesh_searcher::like(axis_number axis, mesh_bound::path const& bounding) const -> one_axis {
    if (own_.empty()) return program_of(axis, bounding);
    auto const& program = searched_.program();
    form_table forms(program.tensors.size());
    add_forms(bounding_, bounding, forms);
    auto const is_other = [&](tensor_id t, tensor_form f) { return forms[t].contains(f.code()) ? 0.0 : 1.0; };
    return least(axis, [&](instruction const& i) {
        if (auto const* change = i.change())
            return is_other(change->tensor, change->to) + (i.is<instruction::convert>() ? 0.01 : 0);
        auto const& compute = *i.as<instruction::compute>();
        auto const& op = program.operators[compute.op];
        double sum = 0;
        for (std::size_t k = 0; k < op.operands.size(); ++k) sum += is_other(op.operands[k], compute.operands[k]);
        for (std::size_t k = 0; k < op.results.size(); ++k) sum += is_other(op.results[k], compute.results[k]);
        return sum;
    });
}

HEDDLE_INLINE auto mesh_searcher::beginnings_of(std::vector<mesh_bound::pair_of_programs> const& pairs) const
    -> std::vector<beginning> {
    std::vector<beginning> list;
    for (auto const& [cost, programs] : pairs) list.push_back({1, like(0, programs[0]), cost});
    return list;
}

HEDDLE_INLINE auto mesh_searcher::plan(axis_number axis, one_axis const& other) -> found_program {
    mesh_axis const programs(searched_, mesh_, axis, other, kept_[axis % kept_.size()], options_.training,
                             options_.width);
    if (!programs.graph().has_goal()) return {};
    auto asked = options_.synthesis;
    asked.weights = best_.weights;
    asked.search.limits = until_.rest(asked.search.limits);
    auto found = by_.synthesise(programs.price(model_, ratios_), asked);
    statistics_ += found.statistics;
    if (!found.path) return {};
    return {programs.instructions_of(*found.path), std::move(found.cost), std::move(found.weights)};
}

HEDDLE_INLINE double mesh_searcher::take_turns(axis_number axis, one_axis other, int most) {
    double before = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < most && !until_.is_over(); ++turn, axis = 1 - axis) {
        if (gathers_for_uses(other)) break; // no program of one axis has the other do so
        auto found = plan(axis, other);
        if (found.cost.seconds >= before * (1 - 1e-9)) { // this axis did best already
            if (before == best_.cost.seconds && found.weights) best_.weights = std::move(found.weights);
            break;
        }
        before = found.cost.seconds;
        other = on_axis(searched_.program(), found.list, axis);
        if (before < best_.cost.seconds * (1 - 1e-9)) {
            best_ = std::move(found);
            best_ratios_ = ratios_;
        } else if (before < best_.cost.seconds * (1 + 1e-9)) {
            best_.weights = std::move(found.weights); // improved once more
        }
    }
    return before;
}

HEDDLE_INLINE program_steps mesh_searcher::steps_of(mesh_instructions const& given) const {
    program_steps result;
    auto const& p = searched_.given();
    saved_so_far saved(p);
    for (auto const& i : given) {
        result.steps.push_back(make_step(p, i, mesh_, options_.training));
        for (auto const& [t, f] : saved.by(i))
            result.saved.push_back({saved_bytes(p, t, f, mesh_, options_.training.held()),
                                    f[0].is_shard() ? share_ref{t, f[0].factor()} : share_ref{}});
    }
    return result;
}

HEDDLE_INLINE bool mesh_searcher::balance() {
    if (options_.ratios || types_.classes.size() == 1) return false;
    auto program = steps_of(in_given(searched_, best_.list));
    uniform_shares const shares(best_ratios_);
    for (auto& s : program.steps) s = model_.decided(std::move(s), shares);
    auto const found = solve_(make_ratio_problem(program, model_, preferred_));
    if (!found) return false;
    double moved = 0;
    for (std::size_t k = 0; k < ratios_.size(); ++k)
        moved = std::max(moved, std::abs((*found)[k] - ratios_[k]) / ratios_[k]);
    ratios_ = *found;
    return moved > 1e-3;
}

HEDDLE_INLINE bool mesh_searcher::begin_from(std::vector<beginning> list) {
    for (auto& [axis, other, cost] : list) {
        double const before = best_.cost.seconds;
        if (before <= std::max(lower_bound_ * (1 + options_.gap), cost)) return false;
        if (other.empty()) continue;
        double const found = take_turns(axis, std::move(other), options_.turns);
        is_too_large_ = is_too_large_ || found == std::numeric_limits<double>::infinity();
        if (found >= before && found < std::numeric_limits<double>::infinity())
            return true; // later ones are dearer still
    }
    return false;
}

HEDDLE_INLINE void mesh_searcher::settle() {
    for (int n = 0; n < options_.rounds && !until_.is_over() && balance(); ++n) {
        double const before = best_.cost.seconds;
        auto const list = best_.list;
        for (axis_number axis = 0; axis < 2; ++axis)
            take_turns(axis, on_axis(searched_.program(), list, 1 - axis), options_.turns);
        if (best_.cost.seconds >= before * (1 - 1e-7)) break;
    }
    ratios_ = best_ratios_;
}

HEDDLE_INLINE mesh_search_result mesh_searcher::run() {
    mesh_search_result result;
    begin();
    if (is_excluded_) {
        result.status = search::status::infeasible;
        result.reason = "no program at the first shares takes less time than asked for";
        return result;
    }
    result.space = "programs on a mesh of two axes, each of which keeps to the programs of one axis that are not "
                   "slower for less memory" +
                   std::string(pinned_tensors(options_).empty() ? "" : " and that keep the pins") + ", at these shares";
    if (best_.list.empty()) {
        has_programs_ = has_programs_ && (own_.empty() || (graph(0).has_goal() && graph(1).has_goal()));
        result.status = until_.is_over() ? search::status::limit : search::status::infeasible;
        if (until_.is_over()) result.which_limit = search::limit_kind::time;
        result.reason = has_programs_       ? "no program that was met fits into memory"
                        : options_.strategy ? "there is no program of this strategy"
                                            : "no program keeps what is pinned or forbidden";
        return result;
    }
    settle();
    bool const has_bound = is_narrow_ && best_.weights && by_.kind == relaxation_kind::clocks;
    while (has_bound && (types_.classes.size() > 1 || is_tight(best_.weights->memory))) {
        // Costs split at the shares and the worth of memory that were found may have better programs, which may have
        // others.
        bound(false);
        if (until_.is_over()) break;
        double const before = best_.cost.seconds;
        begin_from_pairs();
        if (best_.cost.seconds >= before * (1 - 1e-7)) break;
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
    auto const by = options.training.overlaps_gradients ? searches_by<overlapped>() : searches_by<serial>();
    return mesh_searcher(by, program, c, m, options, solve).run();
}

} // namespace heddle::detail

#endif
