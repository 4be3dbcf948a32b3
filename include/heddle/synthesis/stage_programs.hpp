// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs that a stage is planned with, and what they cost on a cluster.
#pragma once

#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/linked_bound.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/loose_links.hpp>
#include <heddle/theory/loosened_space.hpp>
#include <heddle/theory/searched_program.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Programs that bound those of a stage where these are too many: see `loosened_program`.
struct bounding_programs : loosened_space {
    using loosened_space::loosened_space;

    std::vector<step_work> steps;
    std::optional<loose_links> links;
};

/// Computations worth having, by kind of operators: forms of operands and results by their codes.
using computation_set = std::map<operator_id, std::set<computation_codes>>;

/// The programs at hand are those of a graph, which is explored under restrictions that keep the pins. Ratios are those
/// of device types.
class stage_programs {
public:
    stage_programs(indexed_program const& program, heddle::cluster const& c, planning_options const& options,
                   search::deadline const& until)
        : cluster_(c), options_(options), until_(until), searched_(program, tensors_of(options.pinned)),
          space_(searched_.program(), searched_.kinds(), options.cuts), types_(c), model_(model_on(c)) {
        if (options.training.interleaves()) space_.divide_into_stages();
        if (options.training.interleaves() || !options.training.accumulator.name.empty())
            return; // constants may run beside something else
        for (auto const& ways : searched_.constants()) {
            auto& steps = constants_.emplace_back();
            for (auto const& i : ways) steps.push_back(make_step(given(), i, options.training));
        }
    }

    [[nodiscard]] heddle::cluster const& cluster() const { return cluster_; }
    /// The one that is searched.
    [[nodiscard]] indexed_program const& program() const { return space_.program(); }
    /// The one that is planned: its tensors are the first of the other, under the same numbers.
    [[nodiscard]] indexed_program const& given() const { return searched_.given(); }
    [[nodiscard]] training_options const& training() const { return options_.training; }
    [[nodiscard]] cut_space const& space() const { return space_; }
    [[nodiscard]] cut_graph const& graph() const { return graph_; }
    /// Returns the steps of the instructions met.
    [[nodiscard]] std::vector<step_work> const& steps() const { return steps_; }
    /// Returns the steps that may compute each constant that counts; see `priced_graph`.
    [[nodiscard]] std::vector<std::vector<step_work>> const& constants() const { return constants_; }
    enum class gradients { as_computed, from_factors };
    /// Returns the steps of the bounding programs or, if there are none, of `graph()`, where the given program has
    /// other extents and is trained so; with gradients that may come from their factors then, if asked for, from these.
    [[nodiscard]] std::vector<step_work> steps_for(indexed_program const& given, training_options const& training,
                                                   gradients where = gradients::as_computed) const;
    [[nodiscard]] device_types const& types() const { return types_; }
    [[nodiscard]] cost_model const& model() const { return model_; }

    /// The programs of some instructions of the searched program; where time is over, few of them.
    /// Once states were left out, at most `width_after` are kept of the levels that follow.
    [[nodiscard]] cut_graph explore(instruction_filter allowed,
                                    std::size_t width_after = std::numeric_limits<std::size_t>::max());
    /// As above, under a restriction of the given program.
    [[nodiscard]] cut_graph explore_given(instruction_filter allowed) {
        return explore(searched_.as_searched(std::move(allowed)));
    }
    /// Takes the programs that may be the fastest if memory does not matter. Pins may forbid what is fastest without
    /// them; then all programs are taken.
    void take_fastest();
    /// Takes also the programs that are never faster, only smaller. Returns whether they were missing.
    bool take_all();
    [[nodiscard]] bool has_all() const { return has_all_; }
    /// How wide the cuts of bounding programs may be: wider ones bound better, and take longer.
    enum class bounding_cuts { narrow, wider };
    /// Keeps what was taken to these computations, by kinds of the searched program. Returns whether that is not so
    /// already. Where there are bounding programs, `graph()` is of use only after `keep_to_forms`.
    bool take_only(computation_set useful, bounding_cuts cuts = bounding_cuts::narrow);
    /// Takes all of it again. At hand are the programs that were before `take_only`.
    void take_again();
    [[nodiscard]] bounding_cuts cuts() const { return cuts_; }
    /// Where there are bounding programs, has at hand the programs of these computations; of many, those that do with
    /// some forms. What is taken, and bounded, stays. Without forms, returns whether there are some, and not too many.
    bool keep_near(computation_set const& useful);
    void keep_near(computation_set const& useful, form_table forms);
    /// Where there are bounding programs, takes the programs that do with these forms and with those that bounding
    /// programs need, or with these alone where that is too many.
    void keep_to_forms(form_table forms);
    /// Tells whether the graph has every program of the space.
    [[nodiscard]] bool is_complete() const { return graph_.is_complete && space_.is_complete() && !bounding_; }
    /// If it has not, programs that bound those of the space; none where time was over, or their cuts are too wide yet.
    [[nodiscard]] bounding_programs const* bounding() const { return bounding_.get(); }
    /// The potentials of links of bounding programs, as far as they are known.
    [[nodiscard]] known_potentials& potentials() { return potentials_; }
    /// Adds the forms that a program of the bounding ones has tensors in.
    void add_forms(bounding_programs const& bounding, move_list const& path, form_table& forms) const;
    [[nodiscard]] bool has_bound() const { return is_complete() || bounding_; }
    /// Tells whether orders were left out that may matter.
    [[nodiscard]] bool lacks_orders() const { return options_.training.interleaves() && !space_.cuts().is_complete(); }

    /// Returns ratios that are the same in every segment.
    [[nodiscard]] ratio_table everywhere(std::vector<double> const& per_type) const {
        return ratio_table(segment_count(program()), per_type);
    }
    [[nodiscard]] ratio_table compute_proportional_ratios() const {
        return everywhere(compute_proportional(model_, main_type(program())));
    }
    [[nodiscard]] ratio_table even_ratios() const { return everywhere(heddle::even_ratios(model_)); }
    [[nodiscard]] ratio_table memory_proportional_ratios() const { return everywhere(memory_proportional(model_)); }

    /// Returns prices of programs in which each type is priced as its device with the largest share.
    [[nodiscard]] priced_graph price(cut_graph const& graph, cost_model const& model, ratio_table const& ratios) const;
    [[nodiscard]] priced_graph price(ratio_table const& ratios) const { return price(graph_, model_, ratios); }
    /// Returns a model of device types, on the cluster or on one that differs from it in the numbers of the types.
    [[nodiscard]] cost_model model_on(heddle::cluster const& c) const {
        return {c, types_.classes, main_type(program()), options_.training.reduction()};
    }

    /// A plan of the given program.
    [[nodiscard]] std::pair<plan, plan_cost> realise(move_list const& path, ratio_table const& ratios,
                                                     training_options const& training) const {
        return realise_on_devices(path, types_.per_device(ratios), training);
    }
    [[nodiscard]] std::pair<plan, plan_cost> realise_on_devices(move_list const& path, ratio_table per_device,
                                                                training_options const& training) const;
    [[nodiscard]] std::pair<plan, plan_cost> realise(move_list const& path, ratio_table const& ratios) const {
        return realise(path, ratios, options_.training);
    }
    /// Tells whether a program of the graph, or of a restriction of it, keeps the pins.
    [[nodiscard]] bool keeps_pins(plan const& p) const {
        return algorithm::all_of(
            p.steps, [&](plan_step const& s) { return heddle::keeps_pins(given(), options_.pinned, s.instruction); });
    }
    /// Tells whether a path has an instruction, of the given program, that is sought.
    [[nodiscard]] bool has_instruction(move_list const& path,
                                       std::function<bool(instruction const&)> const& sought) const;

    /// The fastest program if work by other instructions than those sought took a thousand times as long, or, where it
    /// has none of these then, a million times, and so on.
    [[nodiscard]] std::optional<move_list> most_of(priced_graph const& priced,
                                                   std::function<bool(instruction const&)> const& sought) const;

    /// Returns the program of least memory. Its communication buffers count as if all existed at once, or not at all.
    [[nodiscard]] std::optional<move_list> least_memory(priced_graph const& priced, bool count_buffers) const;
    /// Tells whether none of the programs at hand fits, whatever the ratios: together, devices hold the same at all of
    /// them, and the least that a program needs is more than they have. Of device groups nothing is known.
    [[nodiscard]] bool none_fits() const;
    [[nodiscard]] std::optional<move_list> path_of(search::shortest_paths const& paths) const {
        return std::isfinite(paths.to_goal()) ? std::optional(search::follow(graph_, paths)) : std::nullopt;
    }

    /// Returns in words what status and bounds refer to.
    [[nodiscard]] std::string space_name() const;

private:
    /// The programs of some instructions of the given program or, where they are too many, bounding ones and those that
    /// do with their forms.
    void take(instruction_filter allowed);
    /// What was taken, of the searched program.
    [[nodiscard]] instruction_filter taken() const { return taken(useful_); }
    [[nodiscard]] instruction_filter taken(std::optional<computation_set> const& useful) const;
    /// Explores the programs that have these forms, everywhere or where the bounding ones have two tensors for one.
    /// Returns whether that was not too much, or goes on with as many at each level.
    bool explore_in(instruction_filter const& all, form_table const& forms, bool everywhere, std::size_t width_after);
    /// Explores what was taken, with bounding programs where it is too much.
    void explore_taken();
    /// Loosens tensors until cuts are narrow.
    [[nodiscard]] std::unique_ptr<bounding_programs> loosen(instruction_filter const& allowed);
    /// Adds the forms in which tensors are cut along the batch.
    void add_batch_forms(form_table& forms) const;
    /// Returns tables of forms of tensors, with fewer and fewer as a rule: a few that are given, and those in which
    /// the fastest and the smallest of the bounding programs have them; these few or, if there are none, those of the
    /// fastest and, where memory may matter, of the smallest; and those of the fastest, of the one that links are priced
    /// for last and, where memory may matter, of the smallest program.
    [[nodiscard]] std::array<form_table, 3> forms_of(bounding_programs const& bounding, form_table few);
    /// The costs of an instruction of the searched program, or of the bounding programs, for a given program.
    [[nodiscard]] step_work step_of(instruction const& i, indexed_program const& given,
                                    training_options const& training, gradients where = gradients::as_computed) const;
    [[nodiscard]] step_work step_of(loosened_program const& loose, instruction i, indexed_program const& given,
                                    training_options const& training, gradients where = gradients::as_computed) const;

    heddle::cluster const& cluster_;
    planning_options const& options_;
    search::deadline const& until_;
    searched_program searched_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
    std::vector<std::vector<step_work>> constants_;
    device_types types_;
    cost_model model_;
    /// The bounding programs; and those, and the graph, of before `take_only`.
    std::unique_ptr<bounding_programs> bounding_, bounding_all_;
    cut_graph graph_all_;
    known_potentials potentials_;
    instruction_filter taken_ = instruction_filter::everything();
    std::optional<computation_set> useful_;
    bool has_all_ = false;
    bounding_cuts cuts_ = bounding_cuts::narrow;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/balance_program.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/reductions.hpp>
#include <heddle/theory/view_conversions.hpp>

namespace heddle {

HEDDLE_INLINE cut_graph stage_programs::explore(instruction_filter allowed, std::size_t width_after) {
    constexpr std::size_t width_in_haste = 20;
    space_.restrict_to(std::move(allowed));
    auto graph = search::explore(
        space_, [&] { return until_.is_over() ? std::min(options_.width, width_in_haste) : options_.width; },
        width_after);
    while (steps_.size() < space_.instructions().size())
        steps_.push_back(step_of(space_.instructions()[steps_.size()], given(), options_.training));
    return graph;
}

HEDDLE_INLINE std::vector<step_work> stage_programs::steps_for(indexed_program const& given,
                                                               training_options const& training,
                                                               gradients where) const {
    std::vector<step_work> steps;
    for (auto const& i : (bounding_ ? *bounding_->space : space_).instructions())
        steps.push_back(bounding_ ? step_of(bounding_->program, i, given, training, where)
                                  : step_of(i, given, training, where));
    return steps;
}

HEDDLE_INLINE step_work stage_programs::step_of(instruction const& i, indexed_program const& given,
                                                training_options const& training, gradients where) const {
    auto there = searched_.in_given(i);
    if (!there) return {};
    if (auto* const computed = there->as<instruction::compute>(); computed && where == gradients::from_factors)
        take_factors(given, *computed);
    step_work s = make_step(given, *there, training);
    auto const* const compute = i.as<instruction::compute>();
    if (!compute || !s.share.is_split()) return s;
    auto const& op = program().operators[compute->op];
    for (auto const* list : {&op.results, &op.operands})
        if (algorithm::find(*list, s.share.tensor) != list->end()) return s;
    for (std::size_t k = 0; k < op.operands.size(); ++k) // cut at the same points
        if (compute->operands[k].is_shard() && program().tensors[op.operands[k]].at_cuts != tensor_at_cuts::fixed)
            s.share = {op.operands[k], compute->operands[k].factor()};
    return s;
}

HEDDLE_INLINE std::pair<plan, plan_cost> stage_programs::realise_on_devices(move_list const& path,
                                                                            ratio_table per_device,
                                                                            training_options const& training) const {
    auto const searched = steps_of(path, space_, steps_);
    auto const begins = stages_of(path, space_);
    std::vector<instruction> instructions;
    for (auto const& s : searched) instructions.push_back(s.instruction);
    std::vector<plan_step> steps;
    std::vector<std::size_t> stages;
    saved_so_far saved(given());
    auto begun = begins.begin();
    searched_.for_each_in_given(instructions, [&](instruction const& i, std::optional<std::size_t> n) {
        for (; n && begun != begins.end() && *begun <= *n; ++begun)
            if (stages.empty() || stages.back() != steps.size()) stages.push_back(steps.size());
        steps.push_back({i, make_step(given(), i, training), saved.by(i)});
    });
    return heddle::realise(given(), std::move(steps), std::move(stages), cluster_, std::move(per_device), training);
}

HEDDLE_INLINE void stage_programs::take(instruction_filter allowed) {
    taken_ = std::move(allowed);
    useful_.reset();
    cuts_ = bounding_cuts::narrow;
    bounding_all_.reset();
    explore_taken();
    keep_to_forms({});
}

HEDDLE_INLINE bool stage_programs::take_only(computation_set useful, bounding_cuts cuts) {
    if (useful_ == useful && cuts_ == cuts) return false;
    if (!useful_) {
        bounding_all_ = std::move(bounding_);
        graph_all_ = std::move(graph_);
    }
    useful_ = std::move(useful);
    cuts_ = cuts;
    explore_taken();
    return true;
}

HEDDLE_INLINE void stage_programs::take_again() {
    if (!bounding_all_) return take(taken_);
    useful_.reset();
    cuts_ = bounding_cuts::narrow;
    bounding_ = std::move(bounding_all_);
    graph_ = std::move(graph_all_);
}

HEDDLE_INLINE bool stage_programs::keep_near(computation_set const& useful) {
    graph_ = explore(converting_before_views(program(), taken(useful)), 0);
    space_.restrict_to(taken()); // what was there is not referred to any more
    return graph_.is_complete && graph_.has_goal();
}

HEDDLE_INLINE void stage_programs::keep_near(computation_set const& useful, form_table forms) {
    auto const all = taken(useful);
    add_batch_forms(forms);
    join_by_whole_copies(forms);
    if (!explore_in(all, forms, false, 0)) explore_in(all, forms, true, std::numeric_limits<std::size_t>::max());
    space_.restrict_to(taken());
}

HEDDLE_INLINE instruction_filter stage_programs::taken(std::optional<computation_set> const& useful) const {
    auto const& computations = options_.allowed_computations;
    auto all =
        searched_.as_searched(with_pins(given(), options_.pinned, computations ? both(*computations, taken_) : taken_));
    if (useful)
        all.allows = [this, useful = *useful, before = std::move(all.allows)](instruction const& i) {
            auto const* const compute = i.as<instruction::compute>();
            if (!compute) return before(i);
            auto const found = useful.find(space_.kind(compute->op));
            return found != useful.end() && found->second.contains(codes_of(*compute)) && before(i);
        };
    return all;
}

HEDDLE_INLINE void stage_programs::explore_taken() {
    auto const all = taken();
    auto const without_some_views = converting_before_views(program(), all);
    bounding_.reset();
    graph_ = explore(without_some_views, 1);
    if (is_complete() || until_.is_over()) return;
    bounding_ = loosen(all);
    if (!bounding_) graph_ = explore(without_some_views);
}

HEDDLE_INLINE void stage_programs::keep_to_forms(form_table forms) {
    if (!bounding_) return;
    auto const all = taken();
    constexpr auto any_width = std::numeric_limits<std::size_t>::max();
    auto const [most, few, fewest] = forms_of(*bounding_, std::move(forms));
    // A few good programs, and all that have their forms, rather than some of very many.
    bool const is_explored = explore_in(all, most, false, 0) || explore_in(all, most, true, 0) ||
                             explore_in(all, few, true, 0) || explore_in(all, fewest, true, 0);
    if (!is_explored) explore_in(all, most, true, any_width);
    space_.restrict_to(all); // what was there is not referred to any more
}

HEDDLE_INLINE bool stage_programs::explore_in(instruction_filter const& all, form_table const& forms, bool everywhere,
                                              std::size_t width_after) {
    auto const is_kept = [&](tensor_id t) { return everywhere || bounding_->program.late(t); };
    graph_ = explore(converting_before_views(program(), in_forms(program(), all, forms, is_kept)), width_after);
    return graph_.is_complete && graph_.has_goal();
}

HEDDLE_INLINE std::unique_ptr<bounding_programs> stage_programs::loosen(instruction_filter const& allowed) {
    constexpr std::size_t least = 8; // states of a cut at which nothing is left to be loosened are fewer
    auto result = std::make_unique<bounding_programs>(program());
    std::size_t const width = std::max(least, options_.width / (cuts_ == bounding_cuts::wider ? 1 : 5));
    if (!loosen_until_narrow(*result, converting_before_views(program(), allowed), width,
                             options_.training.interleaves(), until_))
        return nullptr;
    auto const& loose = result->program;
    for (auto const& i : result->space->instructions())
        result->steps.push_back(step_of(loose, i, given(), options_.training));
    result->links.emplace(loose, *result->space);
    return result;
}

HEDDLE_INLINE step_work stage_programs::step_of(loosened_program const& loose, instruction i,
                                                indexed_program const& given, training_options const& training,
                                                gradients where) const {
    std::vector<tensor_id> tensors; // in place of which its costs name others
    if (auto* const change = i.change()) {
        if (loose.is_free(change->tensor)) return {};
        tensors.push_back(change->tensor);
        change->tensor = loose.of(change->tensor);
    } else {
        tensors = loose.program().operators[i.as<instruction::compute>()->op].operands;
    }
    auto s = step_of(i, given, training, where);
    auto const replace = [&](share_ref& ref) {
        if (!ref.is_split()) return;
        for (auto t : tensors)
            if (loose.is_late(t) && loose.of(t) == ref.tensor) ref.tensor = t;
    };
    replace(s.share);
    for_each_transfer(s, [&](transfer& t) { replace(t.from), replace(t.to); });
    return s;
}

HEDDLE_INLINE void stage_programs::add_forms(bounding_programs const& bounding, move_list const& path,
                                             form_table& forms) const {
    forms.resize(program().tensors.size());
    heddle::add_forms(bounding, path, forms);
}

HEDDLE_INLINE void stage_programs::add_batch_forms(form_table& forms) const {
    forms.resize(program().tensors.size());
    auto const batch = batch_factors(given());
    for (tensor_id t = 0; t < given().tensors.size(); ++t)
        if (auto const f = batch.first_of(t); f != no_factor) forms[t].insert(tensor_form::shard(f).code());
}

HEDDLE_INLINE std::array<form_table, 3> stage_programs::forms_of(bounding_programs const& bounding, form_table few) {
    auto const& loose = bounding.program;
    auto forms = few;
    form_table fewest;
    for (auto* table : {&forms, &fewest}) add_batch_forms(*table);
    auto const ratios = types_.per_device(compute_proportional_ratios());
    largest_shares const shares(integral_shares(loose.program(), ratios), types_.of_device);
    priced_graph const priced(*bounding.space, bounding.graph, bounding.steps, model_, shares, options_.training, {},
                              &*bounding.links, constants_);
    auto const mean = [&](auto const& of_classes) {
        double sum = 0;
        for (double v : of_classes) sum += v;
        return sum / static_cast<double>(model_.class_count());
    };
    auto const time = [&](move_price const& m) {
        return mean(m.work) + mean(m.backward_work) + mean(m.update) + m.transfers.total();
    };
    auto const memory = [&](move_price const& m) { return mean(m.memory); };
    auto const fastest = priced.shortest_under(time), smallest = priced.shortest_under(memory);
    auto const take = [&](search::shortest_paths const& paths, form_table& into) {
        if (std::isfinite(paths.to_goal())) add_forms(bounding, search::follow(bounding.graph, paths), into);
    };
    for (auto* table : {&forms, &fewest}) take(fastest, *table);
    constexpr int rounds = 25;
    std::vector<double> const even(model_.class_count(), 1.0 / static_cast<double>(model_.class_count()));
    auto start = relax(priced, {{even}, std::vector<double>(model_.class_count(), 0.0)});
    if (std::isfinite(start.bound())) {
        constexpr double more = 1.3; // what links may cost, about
        double const most = more * start.bound();
        auto const last =
            improve_links(priced, *bounding.links, std::move(start), potentials_, most, rounds, until_).last;
        for (auto const& path : last) add_forms(bounding, path, forms);
        if (!last.empty()) add_forms(bounding, last.back(), fewest);
    }
    if (few.empty() && !has_all_) few = forms;
    take(smallest, forms);
    if (has_all_) take(smallest, fewest);
    if (few.empty()) few = forms;
    if (has_all_ && smallest.to_goal() > 0)
        for (double const part : {0.1, 0.3, 1.0, 3.0}) { // and some between
            double const price = part * fastest.to_goal() / smallest.to_goal();
            take(priced.shortest_under([&](move_price const& m) { return time(m) + price * memory(m); }), forms);
        }
    add_batch_forms(few);
    for (auto* table : {&forms, &few, &fewest}) join_by_whole_copies(*table);
    return {std::move(forms), std::move(few), std::move(fewest)};
}

HEDDLE_INLINE void stage_programs::take_fastest() {
    auto const gather = options_.training.interleaves()      ? best_gather::before_use
                        : options_.training.copies_gradients ? best_gather::either
                                                             : best_gather::after_update;
    bool const is_known = options_.training.accumulator.name.empty(); // which programs are never the fastest
    if (options_.pinned.empty() && is_known) take(fastest_programs(given(), gather));
    else take_all();
}

HEDDLE_INLINE bool stage_programs::take_all() {
    if (std::exchange(has_all_, true)) return false;
    take(instruction_filter::everything());
    return true;
}

HEDDLE_INLINE priced_graph stage_programs::price(cut_graph const& graph, cost_model const& model,
                                                 ratio_table const& ratios) const {
    largest_shares const shares(integral_shares(program(), types_.per_device(ratios)), types_.of_device);
    return {space_, graph, steps_, model, shares, options_.training, {}, nullptr, constants_};
}

HEDDLE_INLINE bool stage_programs::has_instruction(move_list const& path,
                                                   std::function<bool(instruction const&)> const& sought) const {
    return algorithm::any_of(path, [&](auto a) {
        return algorithm::any_of(space_.moves()[a].instructions,
                                 [&](auto i) { return sought(searched_.part_of(space_.instructions()[i])); });
    });
}

HEDDLE_INLINE std::optional<move_list> stage_programs::most_of(
    priced_graph const& priced, std::function<bool(instruction const&)> const& sought) const {
    for (double times = 1e3; times < 1e15; times *= 1e3) {
        auto const cost = [&](std::size_t level, cut_space::action a) {
            auto const price = priced.price(level, a);
            double const work = algorithm::max(price.work) + algorithm::max(price.backward_work);
            return price.transfers.total() + (has_instruction({a}, sought) ? 1 : times) * work;
        };
        auto const paths = search::paths_to_goal(priced.graph(), cost);
        if (!std::isfinite(paths.to_goal())) break;
        auto path = search::follow(priced.graph(), paths);
        if (has_instruction(path, sought)) return path;
    }
    return std::nullopt;
}

HEDDLE_INLINE std::optional<move_list> stage_programs::least_memory(priced_graph const& priced,
                                                                    bool count_buffers) const {
    return path_of(priced.shortest_under([&](move_price const& move) {
        double sum = 0;
        for (std::size_t k = 0; k < move.memory.size(); ++k)
            sum += (move.memory[k] + (count_buffers ? move.buffer : 0)) / model_.memory_limit(k);
        return sum;
    }));
}

HEDDLE_INLINE bool stage_programs::none_fits() const {
    if (has_groups(cluster_)) return false;
    auto const& classes = model_.classes();
    uniform_shares const shares(share_vector(classes.size(), 1 / static_cast<double>(types_.of_device.size())));
    priced_graph const priced(space_, graph_, steps_, model_, shares, options_.training, {}, nullptr, constants_);
    double room = 0;
    for (std::size_t k = 0; k < classes.size(); ++k) room += classes[k].count * model_.memory_limit(k);
    auto const least = priced.shortest_under([&](move_price const& move) {
        double sum = 0;
        for (std::size_t k = 0; k < classes.size(); ++k) sum += classes[k].count * move.memory[k];
        return sum;
    });
    return least.to_goal() > room;
}

HEDDLE_INLINE std::string stage_programs::space_name() const {
    auto const& training = options_.training;
    return std::string("one-axis programs") + (has_groups(cluster_) ? " of device groups" : "") +
           (training.interleaves() ? " of " + std::to_string(training.micro_batches) + " micro-batches in turn" : "") +
           (options_.allowed_computations ? " of the computations allowed" : "") +
           (options_.pinned.empty() ? "" : " that keep the pins");
}

} // namespace heddle

#endif
