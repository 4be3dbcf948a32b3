// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The search of programs on a mesh of two axes, which are planned in turn and bounded together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/mesh_bound.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>
#include <heddle/synthesis/mesh_turns.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/loosened_space.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace heddle::detail {

/// Searches a program on a mesh of two axes.
class two_axes_searcher : public mesh_turns {
public:
    two_axes_searcher(timed_searches const& by, indexed_program const& program, cluster const& c, mesh const& m,
                      mesh_search_options const& options, ratio_function const& solve);
    [[nodiscard]] mesh_search_result run();
    /// Searches once: does not bound and plan again at the shares that were found.
    void sketch() {
        begin();
        if (!best_.list.empty()) settle();
    }
    /// Programs of one axis that bound those that are searched, once it has run; nothing if cuts are too wide.
    [[nodiscard]] loosened_space const* bounding() const { return is_narrow_ ? &bounding_ : nullptr; }
    /// Tells whether each axis has programs that do what it may, as far as it is known once it has run.
    [[nodiscard]] bool has_programs() const { return has_programs_; }
    /// Returns what is kept of the programs of an axis that may do so much.
    [[nodiscard]] instruction_filter kept_of(instruction_filter const& allowed) const;

private:
    /// What one axis does, as instructions of the searched program.
    using one_axis = mesh_instructions;

    static constexpr int few_rounds = 8;
    static constexpr std::size_t pairs_of_states = 1'000;
    using number_of = std::function<double(instruction const&)>;
    /// The programs of an axis.
    struct own_programs {
        explicit own_programs(searched_program const& searched) : space(searched.program(), searched.kinds()) {}
        cut_space space;
        cut_graph graph;
    };
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
    /// Prices programs at the shares at hand, by the weights of classes and of their memory that suit the best program.
    void price();
    /// Prices programs, and drafts how costs are split. Returns the bound, with what priced memory adds.
    double draft(int rounds);
    /// Prices programs, and bounds them until the bound is `enough`, or as much as the best program takes.
    void bound(double enough);
    /// Takes a bound at the shares at hand, with what priced memory adds.
    void take_bound(double with_memory);
    /// Tells whether the best program is not close to the bound.
    [[nodiscard]] bool is_far() const { return best_.cost.seconds > lower_bound_ * (1 + options_.gap); }
    /// What memory within the limits adds to the bound's costs at most.
    [[nodiscard]] double credit() const;
    [[nodiscard]] static bool is_tight(std::vector<double> const& memory) {
        return algorithm::any_of(memory, [](double per_byte) { return per_byte > 0; });
    }
    /// Plans from the pairs of programs that are best as the bound has it. Returns what `begin_from` does.
    bool begin_from_pairs();
    /// Looks for a better pair of programs of both axes at once, if few may be, and plans from it. Returns whether that
    /// is better.
    bool begin_from_together();
    /// Plans from pairs of programs that hold less and less, until those fit that are no dearer than the best.
    void begin_with_less_memory();
    /// Explores the programs of each axis that are kept; where some are loosened, those in the forms of such programs.
    /// With `while_complete` they are left where a cut has more states than are kept.
    void explore_own(bool while_complete = false);
    [[nodiscard]] bool is_explored() const {
        return algorithm::all_of(own_, [](own_programs const& own) { return own.graph.is_complete; });
    }
    void explore_in_forms_of(std::vector<mesh_bound::path> const& paths);
    /// Tells whether programs that are explored have a tensor in `explored_forms_` alone.
    [[nodiscard]] bool is_kept(tensor_id t) const {
        return !explored_forms_.empty() && (!keeps_late_ || bounding_.program.late(t));
    }
    void keep_to_forms();
    /// Returns the forms that an axis may have each tensor in while the other converts it, if the former is to be like a
    /// bounding program.
    [[nodiscard]] form_table forms_beside(mesh_bound::path const& bounding) const;
    /// Explores programs, bounds them, and plans from beginnings at the shares at hand.
    void begin();
    /// An axis that is to be planned first, and what makes the other's program. If that is one of two that are best
    /// beside each other, as the bound has it, these cost so much at least.
    struct beginning {
        axis_number axis;
        std::function<one_axis()> other;
        double cost = 0;
    };
    /// The programs of least numbers, for each axis to be planned first.
    [[nodiscard]] std::vector<beginning> beginnings(number_of const& number) const {
        return {{0, [=, this] { return least(1, number); }}, {1, [=, this] { return least(0, number); }}};
    }
    /// A bounding program of least numbers.
    [[nodiscard]] mesh_bound::path least_bounding(axis_number axis, number_of const& number) const;
    /// Has a bounding program that cuts data, and one that cuts tensors, of each axis.
    void find_few();
    /// Pairs of bounding programs that are best beside each other, the cheapest first: those that are cheapest as the
    /// bound splits costs and, unless one of these costs hardly more than the bound, those that cut data or tensors, are
    /// where axes begin to take turns.
    [[nodiscard]] std::vector<mesh_bound::pair_of_programs> pairs_of_bound();
    /// Bounding programs' prices, at the shares at hand.
    struct prices_at_hand {
        explicit prices_at_hand(two_axes_searcher const& s);
        prices_at_hand(prices_at_hand const&) = delete;
        relaxation_weights weights;
        largest_shares shares;
        mesh_prices prices;
    };
    /// A bounding program of an axis or, where programs are others, the one that is cheapest beside the other axis's
    /// bounding program; none if none goes together with that.
    [[nodiscard]] one_axis beside_bounding(axis_number axis, mesh_bound::pair_of_programs const& pair,
                                           mesh_prices const& price) const;
    /// Plans from each beginning that may be better, as long as the best program is not close to the bound.
    /// Returns whether one was no better than the best, though it fits.
    bool begin_from(std::vector<beginning> const& list);
    /// The axis that was planned first, and the other's program.
    struct begun {
        axis_number axis;
        one_axis other;
        friend bool operator==(begun const&, begun const&) = default;
    };
    /// Tells whether that was planned from and fitted, at these shares and with the same programs explored.
    [[nodiscard]] bool was_begun(begun const& now);

    instruction_filter allowed_on_one_; ///< what one of the axes may do
    loosened_space bounding_;
    bool is_narrow_ = false;    ///< whether those are narrow enough to be bounded
    bool has_programs_ = false; ///< whether each axis has some
    /// Bounding programs that cut data or tensors, and the best pair before shares were balanced.
    std::vector<mesh_bound::path> few_;
    std::optional<mesh_bound> bound_;
    /// Seconds per byte that a class holds, as the bound counts them.
    std::vector<double> memory_;
    double lower_bound_ = 0; ///< at the shares at hand
    /// What the best pair of programs costs where memory has no price, or has its first.
    double least_pair_ = 0;
    std::vector<double> bounded_at_;
    bool is_excluded_ = false;  ///< whether all take longer than is asked for
    bool is_too_large_ = false; ///< whether nothing fits, or goes together with, a program that was begun with
    /// Programs of each axis, or of both, where those that are bounded are not these.
    std::deque<own_programs> own_;
    form_table explored_forms_;
    std::vector<begun> begun_;
    std::vector<double> begun_at_;
    /// Whether programs keep to these forms in tensors that are loosened alone. Where that was too wide, they keep to
    /// them in all, from then on, since forms are only added.
    bool keeps_late_ = true;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/synthesis/beside_bounding.hpp>
#include <heddle/theory/theory.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

namespace heddle::detail {

HEDDLE_INLINE two_axes_searcher::two_axes_searcher(timed_searches const& by, indexed_program const& program,
                                                   cluster const& c, mesh const& m, mesh_search_options const& options,
                                                   ratio_function const& solve)
    : mesh_turns(by, program, c, m, options, solve),
      allowed_on_one_(is_restricted() ? either(allowed_[0], allowed_[1]) : allowed_[0]),
      bounding_(searched_.program(), tokens::of_whole_copies) {}

HEDDLE_INLINE auto two_axes_searcher::least(axis_number axis, number_of const& number) const -> one_axis {
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

HEDDLE_INLINE auto two_axes_searcher::program_of(axis_number axis, std::vector<cut_space::action> const& path) const
    -> one_axis {
    auto const instructions = space(axis).instructions_of(path);
    return {instructions.begin(), instructions.end()};
}

HEDDLE_INLINE two_axes_searcher::prices_at_hand::prices_at_hand(two_axes_searcher const& s)
    : weights(s.best_.weights ? s.best_.weights->time
                              : relaxation_weights{std::vector<double>(
                                    s.model_.class_count(), 1.0 / static_cast<double>(s.model_.class_count()))}),
      shares(s.whole_shares(s.ratios_)),
      prices{s.searched_,         s.mesh_, s.model_,  shares,
             s.options_.training, weights, s.memory_, s.is_restricted() ? &s.allowed_ : nullptr} {}

HEDDLE_INLINE void two_axes_searcher::price() {
    if (best_.weights && is_tight(best_.weights->memory)) memory_ = best_.weights->memory;
    prices_at_hand const now(*this);
    if (bound_) bound_->reprice(now.prices);
    else bound_.emplace(bounding_, now.prices);
}

HEDDLE_INLINE double two_axes_searcher::draft(int rounds) {
    price();
    return bound_->draft({rounds, options_.gap, until_});
}

HEDDLE_INLINE void two_axes_searcher::bound(double enough) {
    price();
    double const target = std::min(best_.cost.added, enough), all = target + credit();
    double const gap = std::isfinite(all) && all > 0 ? options_.gap * target / all : options_.gap;
    take_bound(bound_->improve(all, {options_.bound_rounds, gap, until_}));
}

HEDDLE_INLINE void two_axes_searcher::take_bound(double with_memory) {
    if (by_.kind != relaxation_kind::clocks) return;
    double const found = with_memory - credit();
    lower_bound_ = std::exchange(bounded_at_, ratios_) == ratios_ ? std::max(lower_bound_, found) : found;
}

HEDDLE_INLINE double two_axes_searcher::credit() const {
    double sum = 0;
    for (std::size_t k = 0; k < memory_.size(); ++k) sum += memory_[k] * model_.memory_limit(k);
    return sum;
}

HEDDLE_INLINE void two_axes_searcher::explore_own(bool while_complete) {
    for (std::size_t n = 0; n < kept_.size(); ++n) {
        if (own_.size() == n) own_.emplace_back(searched_);
        own_[n].space.restrict_to(kept_[n]);
        own_[n].graph = search::explore(
            own_[n].space, [&] { return options_.width; },
            while_complete ? 0 : std::numeric_limits<std::size_t>::max());
        if (while_complete && !own_[n].graph.is_complete) return;
    }
}

HEDDLE_INLINE mesh_bound::path two_axes_searcher::least_bounding(axis_number axis, number_of const& number) const {
    auto const& space = *bounding_.space;
    auto const paths = search::paths_to_goal(bounding_.graph, [&](cut_space::action a) {
        double sum = 0;
        for (auto n : space.moves()[a].instructions)
            if (auto const& i = space.instructions()[n]; !i.change() || !bounding_.program.is_late(i.change()->tensor))
                sum += number(i) + (is_restricted() && !allowed_[axis](i) ? never : 0);
        return sum;
    });
    return search::follow(bounding_.graph, paths);
}

HEDDLE_INLINE void two_axes_searcher::find_few() {
    for (auto const& number : {cuts_data(), cuts_tensors()})
        for (axis_number axis = 0; axis < kept_.size(); ++axis) few_.push_back(least_bounding(axis, number));
    algorithm::sort(few_);
    few_.erase(std::unique(few_.begin(), few_.end()), few_.end());
}

HEDDLE_INLINE std::vector<mesh_bound::pair_of_programs> two_axes_searcher::pairs_of_bound() {
    std::vector<mesh_bound::pair_of_programs> pairs;
    for (axis_number axis = 0; axis < 2; ++axis) pairs.push_back(bound_->in_turn(axis, bound_->cheapest(1 - axis)));
    double const least = std::min(pairs[0].cost, pairs[1].cost);
    if (least > (lower_bound_ + credit()) * (1 + options_.gap / 2))
        for (axis_number axis = 0; axis < 2; ++axis)
            for (auto const& other : few_) pairs.push_back(bound_->in_turn(axis, other));
    algorithm::sort(pairs, {}, [](auto const& pair) { return std::tie(pair.cost, pair.programs); });
    auto const same = [](auto const& a, auto const& b) { return a.programs == b.programs; };
    pairs.erase(std::unique(pairs.begin(), pairs.end(), same), pairs.end());
    std::erase_if(pairs, [](auto const& pair) { return pair.cost >= never; });
    for (auto& pair : pairs) pair.cost -= credit();
    return pairs;
}

HEDDLE_INLINE void two_axes_searcher::explore_in_forms_of(std::vector<mesh_bound::path> const& paths) {
    if (bounding_.program.loosened().empty()) return;
    form_table forms(searched_.program().tensors.size());
    for (auto const& path : paths) add_forms(bounding_, path, forms);
    join_by_whole_copies(forms);
    if (!own_.empty() && forms == explored_forms_) return;
    explored_forms_ = std::move(forms);
    begun_.clear();
    for (; keeps_late_; keeps_late_ = false) {
        keep_to_forms();
        explore_own(true);
        if (is_explored()) return;
    }
    keep_to_forms();
    explore_own();
}

HEDDLE_INLINE void two_axes_searcher::keep_to_forms() {
    for (std::size_t n = 0; n < kept_.size(); ++n) kept_[n] = kept_of(allowed_[n]);
}

HEDDLE_INLINE instruction_filter two_axes_searcher::kept_of(instruction_filter const& allowed) const {
    if (explored_forms_.empty()) return allowed;
    return in_forms(searched_.program(), allowed, explored_forms_, [&](tensor_id t) { return is_kept(t); });
}

HEDDLE_INLINE form_table two_axes_searcher::forms_beside(mesh_bound::path const& bounding) const {
    auto const& tensors = searched_.program().tensors;
    form_table forms(tensors.size());
    add_forms(bounding_, bounding, forms);
    for (tensor_id t = 0; t < forms.size(); ++t) {
        if (is_kept(t)) forms[t] = explored_forms_[t];
        else // no axis can have parts added up that were not
            for (std::uint16_t code = 0; code < 3 + tensors[t].factors.size(); ++code)
                if (tensor_form::from_code(code) != tensor_form::partial()) forms[t].insert(code);
    }
    return forms;
}

HEDDLE_INLINE void two_axes_searcher::begin() {
    if (!options_.strategy.empty()) {
        explore_own();
        has_programs_ = graph(0).has_goal() && graph(1).has_goal();
        if (!has_programs_) return;
        for (auto const& number : {cuts_data(), cuts_tensors()})
            for (auto const& from : beginnings(number)) take_turns(from.axis, from.other(), options_.turns);
        return;
    }
    is_narrow_ = loosen_until_narrow(bounding_, allowed_on_one_, options_.bound_width, false, until_);
    bool const is_loosened = !bounding_.program.loosened().empty();
    if (!is_narrow_ || (!is_loosened && (is_restricted() || !bounding_.space->is_complete()))) explore_own();
    has_programs_ = !is_restricted() || own_.empty() || (graph(0).has_goal() && graph(1).has_goal());
    if (!has_programs_ || (is_narrow_ && !bounding_.graph.has_goal())) {
        has_programs_ = false;
        return;
    }
    if (!is_narrow_) {
        begin_from(beginnings(cuts_data()));
        return;
    }
    if (std::isfinite(options_.worth_below)) bound(options_.worth_below);
    is_excluded_ = lower_bound_ >= options_.worth_below;
    if (is_excluded_) return;
    find_few();
    if (types_.classes.size() > 1) { // the bound begins with the classes' weights, and shares, of some program
        explore_in_forms_of(few_);
        take_turns(0, least(1, cuts_data()), 2);
        if (!best_.list.empty()) static_cast<void>(balance());
        lower_bound_ = 0;
        draft(few_rounds);
    } else if (!bound_) {
        take_bound(draft(options_.bound_rounds));
    }
    begin_from_pairs();
    if (best_.list.empty()) begin_from(beginnings(cuts_data()));
    if (best_.list.empty()) begin_from(beginnings(cuts_tensors()));
    if (is_too_large_ && is_far()) begin_with_less_memory();
}

HEDDLE_INLINE bool two_axes_searcher::begin_from_pairs() {
    auto const pairs = pairs_of_bound();
    if (pairs.empty()) {
        has_programs_ = !is_restricted();
        return true;
    }
    if (memory_.empty() || least_pair_ == 0) least_pair_ = pairs.front().cost;
    for (auto const& programs : pairs.front().programs) few_.push_back(programs);
    explore_in_forms_of(few_);
    prices_at_hand const now(*this);
    std::vector<beginning> list;
    for (auto const& pair : pairs) list.push_back({1, [&] { return beside_bounding(0, pair, now.prices); }, pair.cost});
    return begin_from(list);
}

HEDDLE_INLINE bool two_axes_searcher::begin_from_together() {
    double const before = best_.cost.seconds;
    auto const [with_memory, pair] = bound_->together(best_.cost.added + credit(), pairs_of_states, until_);
    take_bound(with_memory);
    if (!pair) return false;
    for (auto const& program : pair->programs) few_.push_back(program);
    explore_in_forms_of(few_);
    prices_at_hand const now(*this);
    for (axis_number axis = 0; axis < 2; ++axis)
        begin_from({{1 - axis, [&] { return beside_bounding(axis, *pair, now.prices); }, pair->cost - credit()}});
    return best_.cost.seconds < before * (1 - 1e-7);
}

HEDDLE_INLINE void two_axes_searcher::begin_with_less_memory() {
    if (least_pair_ <= 0) return;
    auto const price_memory = [&](double worth) { // of a full memory, in what the cheapest programs take
        double const each = worth * least_pair_ / static_cast<double>(model_.class_count());
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
        bound(1.01 * too_much); // rounds end near it
        is_excluded_ = lower_bound_ >= too_much;
        if (is_excluded_) return;
    }
    for (double const worth : worths) {
        if (!std::exchange(is_too_large_, false) || until_.is_over()) return;
        price_memory(worth);
        draft(few_rounds);
        if (begin_from_pairs()) return; // more memory would be spared for nothing
    }
}

HEDDLE_INLINE auto two_axes_searcher::beside_bounding(axis_number axis, mesh_bound::pair_of_programs const& pair,
                                                      mesh_prices const& price) const -> one_axis {
    if (own_.empty()) return program_of(axis, pair.programs[axis]);
    if (!graph(axis).has_goal()) return {};
    auto const& other = pair.programs[1 - axis];
    auto const forms = forms_beside(other);
    prices_beside const beside(axis, space(axis), bounding_, other, forms, price);
    auto const paths = search::paths_to_goal(graph(axis), beside);
    return paths.to_goal() < never ? program_of(axis, search::follow(graph(axis), paths)) : one_axis();
}

HEDDLE_INLINE bool two_axes_searcher::begin_from(std::vector<beginning> const& list) {
    bool was_no_better = false;
    for (auto const& [axis, other, cost] : list) {
        double const before = best_.cost.seconds;
        if (until_.is_over() || before <= std::max(lower_bound_ * (1 + options_.gap), cost)) break;
        begun now{axis, other()};
        if (now.other.empty()) continue;
        if (was_begun(now)) {
            was_no_better = true;
            continue;
        }
        double const found = take_turns(axis, now.other, options_.turns);
        if (found == std::numeric_limits<double>::infinity()) {
            is_too_large_ = true;
            continue;
        }
        begun_.push_back(std::move(now));
        was_no_better = was_no_better || found >= before;
        if (was_no_better) break; // later ones are dearer still
    }
    return was_no_better;
}

HEDDLE_INLINE bool two_axes_searcher::was_begun(begun const& now) {
    if (std::exchange(begun_at_, ratios_) != ratios_) begun_.clear();
    return algorithm::find(begun_, now) != begun_.end();
}

HEDDLE_INLINE mesh_search_result two_axes_searcher::run() {
    mesh_search_result result;
    begin();
    if (is_excluded_) { // a bound tells so
        result.status = search::status::infeasible;
        result.lower_bound = lower_bound_;
        result.reason = "no program at the first shares takes less time than asked for";
        return result;
    }
    result.space = "programs on a mesh of two axes, each of which keeps to the programs of one axis that are not "
                   "slower for less memory" +
                   std::string(pinned_tensors(options_).empty() ? "" : " and that keep the pins") + ", at these shares";
    if (best_.list.empty()) {
        has_programs_ = has_programs_ && (own_.empty() || (graph(0).has_goal() && graph(1).has_goal()));
        return nothing(has_programs_                ? "no program that was met fits into memory"
                       : !options_.strategy.empty() ? "there is no program of this strategy"
                                                    : "no program keeps what is pinned or forbidden");
    }
    settle();
    bool const has_bound = is_narrow_ && best_.weights && by_.kind == relaxation_kind::clocks;
    while (has_bound && !until_.is_over() &&
           (types_.classes.size() > 1 || is_tight(best_.weights->memory) || is_far())) {
        // Costs split at the shares and the worth of memory that were found may have better programs, which may have
        // others.
        bound(options_.worth_below);
        if (until_.is_over()) break;
        double const before = best_.cost.seconds;
        begin_from_pairs();
        bool const is_better = best_.cost.seconds < before * (1 - 1e-7);
        if (!is_better && (!is_far() || !begin_from_together())) break;
        settle();
    }
    auto const space = std::move(result.space);
    result = found(has_bound && bounded_at_ == ratios_ ? lower_bound_ : 0);
    result.space = space;
    return result;
}

} // namespace heddle::detail

#endif
