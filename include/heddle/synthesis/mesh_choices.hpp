// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the two axes of a mesh may do at an operator, and tables of what it costs together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/loosened_space.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Prices of a searched program's instructions on a mesh, in weighted seconds of serial time, and of memory.
struct mesh_prices {
    searched_program const& searched;
    heddle::mesh const& mesh;
    cost_model const& model;
    uniform_shares const& shares;
    training_options const& training;
    relaxation_weights const& weights;
    /// Seconds per byte that a class holds.
    std::vector<double> const& memory;
    /// What each axis may do, outermost first; if there is none, all that the programs at hand do.
    std::array<instruction_filter, 2> const* allowed = nullptr;

    [[nodiscard]] double operator()(mesh_instruction const& in_searched) const;
    [[nodiscard]] bool allows(axis_number axis, instruction const& in_searched) const {
        return !allowed || (*allowed)[axis](in_searched);
    }
};

/// Alternatives at an operator, of which each axis takes one, by number; and what each pair costs at least. What cannot
/// be costs `never`.
struct mesh_choice {
    std::vector<std::uint32_t> items;
    /// By axis: for each alternative of the other axis, the costs of its own.
    std::array<std::vector<double>, 2> cost;
    [[nodiscard]] std::span<double const> beside(axis_number axis, std::size_t other) const {
        return {cost[axis].data() + other * items.size(), items.size()};
    }
    /// Sets costs to those of a function of the outer axis's alternative and the inner one's, by place.
    template <class Cost>
    void set_costs(Cost const& of) {
        for (auto& list : cost) list.resize(items.size() * items.size());
        for (std::size_t outer = 0; outer < items.size(); ++outer)
            for (std::size_t inner = 0; inner < items.size(); ++inner)
                cost[0][inner * items.size() + outer] = cost[1][outer * items.size() + inner] = of(outer, inner);
    }
    /// By move of the kind that takes one of them: its place among these moves, and that of the item.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> taken{};
};

/// Stands for what is impossible: no program takes as many seconds.
inline constexpr double never = 1e6;

/// The moves of a kind of operators of one axis: each takes one item of every choice, which are the computation and,
/// for each operand, how it is brought there.
struct mesh_choices {
    std::vector<cut_space::action> moves;
    std::vector<boost::container::small_vector<std::uint32_t, 6>> items;
    std::vector<mesh_choice> choices;
    std::uint32_t item_count = 0;
    /// By item: the number of its choice, and its place there.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> place_of_item;
};

/// Returns the choices of every kind of operators of a loosened searched program, and of the end.
[[nodiscard]] std::vector<mesh_choices> choices_of(loosened_space const& programs, mesh_prices const& price);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_step.hpp>
#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle::detail {

/// What bringing a tensor costs on both axes.
class mesh_conversions {
public:
    mesh_conversions(indexed_tensor const& tensor, tensor_id t, mesh_prices const& price);

    /// How an axis brings a tensor: it reads it, or has it; converts it; and uses it in a form.
    struct way {
        std::optional<instruction> read{};
        std::vector<instruction> conversions{};
        tensor_form use{};
        /// The operator has it in several places, maybe in several forms.
        bool has_several_uses = false;
        friend bool operator==(way const&, way const&) = default;
    };
    /// Returns what two ways cost together at least: the least of any list of conversions, from whatever is held, that
    /// has those of both. An axis may have made a form that it uses before, or convert once more to it.
    [[nodiscard]] double cost(way const& outer, way const& inner) const;
    /// Tells whether an axis may bring a tensor so.
    [[nodiscard]] bool allows(axis_number axis, way const& w) const {
        return (!w.read || price_.allows(axis, *w.read)) &&
               algorithm::all_of(w.conversions, [&](instruction const& i) { return price_.allows(axis, i); });
    }

private:
    /// Forms that can be reached, and what that costs at least; if it is empty, all are there for nothing.
    using reached = boost::container::small_vector<std::pair<std::size_t, double>, 8>;

    /// The sum over the conversions of a way on an axis, each where the other axis makes it cheapest.
    [[nodiscard]] double apart(way const& w, axis_number axis) const;
    /// The number of a form, or `none`.
    [[nodiscard]] std::size_t number(tensor_form outer, tensor_form inner) const {
        return number_[outer.code() * codes_ + inner.code()];
    }
    static constexpr std::size_t none = ~std::size_t{0};
    [[nodiscard]] double to(reached const& from, std::size_t n) const;
    [[nodiscard]] reached after(reached const& from, instruction const& conversion, axis_number axis) const;
    [[nodiscard]] double finish(reached const& from, way const& outer, std::size_t done_outer, way const& inner,
                                std::size_t done_inner) const;

    indexed_tensor const& tensor_;
    mesh_prices const& price_;
    std::size_t codes_; ///< of the forms of one axis
    std::vector<std::size_t> number_;
    /// The cost of one conversion, and of any list of them, by the number of the forms.
    std::vector<std::vector<double>> one_, any_;
};

HEDDLE_INLINE mesh_conversions::mesh_conversions(indexed_tensor const& tensor, tensor_id t, mesh_prices const& price)
    : tensor_(tensor), price_(price), codes_(3 + tensor.factors.size()), number_(codes_ * codes_, none) {
    std::vector<product_form> forms;
    for (std::uint16_t outer = 0; outer < codes_; ++outer)
        for (std::uint16_t inner = 0; inner < codes_; ++inner) {
            product_form f(tensor_form::from_code(outer));
            f.push_back(tensor_form::from_code(inner));
            if (!is_possible(f, tensor)) continue;
            number_[outer * codes_ + inner] = forms.size();
            forms.push_back(f);
        }
    one_.assign(forms.size(), std::vector<double>(forms.size(), never));
    for (std::size_t n = 0; n < forms.size(); ++n)
        for (axis_number a = 0; a < 2; ++a)
            for (std::uint16_t code = 0; code < codes_; ++code) {
                auto const g = tensor_form::from_code(code);
                if (!find_conversion(forms[n], a, g, tensor)) continue;
                auto const to = forms[n].with(a, g);
                one_[n][number(to[0], to[1])] = price(mesh_instruction::convert(t, forms[n], a, g));
            }
    any_ = one_;
    for (std::size_t n = 0; n < forms.size(); ++n) any_[n][n] = 0;
    for (std::size_t via = 0; via < forms.size(); ++via)
        for (std::size_t n = 0; n < forms.size(); ++n) {
            if (any_[n][via] >= never) continue;
            for (std::size_t m = 0; m < forms.size(); ++m)
                any_[n][m] = std::min(any_[n][m], any_[n][via] + any_[via][m]);
        }
}

HEDDLE_INLINE double mesh_conversions::to(reached const& from, std::size_t n) const {
    if (from.empty()) return 0;
    double least = never;
    for (auto const& [at, cost] : from) least = std::min(least, cost + any_[at][n]);
    return least;
}

HEDDLE_INLINE mesh_conversions::reached mesh_conversions::after(reached const& from, instruction const& conversion,
                                                                axis_number axis) const {
    reached result;
    auto const& change = *conversion.change();
    for (std::uint16_t code = 0; code < codes_; ++code) {
        auto const other = tensor_form::from_code(code);
        auto const before = axis == 0 ? number(change.from, other) : number(other, change.from),
                   then = axis == 0 ? number(change.to, other) : number(other, change.to);
        if (before != none && then != none && one_[before][then] < never)
            result.push_back({then, to(from, before) + one_[before][then]});
    }
    if (result.empty()) result.push_back({0, never});
    return result;
}

HEDDLE_INLINE double mesh_conversions::finish(reached const& from, way const& outer, std::size_t done_outer,
                                              way const& inner, std::size_t done_inner) const {
    double least = never;
    if (done_outer < outer.conversions.size())
        least = std::min(
            least, finish(after(from, outer.conversions[done_outer], 0), outer, done_outer + 1, inner, done_inner));
    if (done_inner < inner.conversions.size())
        least = std::min(
            least, finish(after(from, inner.conversions[done_inner], 1), outer, done_outer, inner, done_inner + 1));
    if (done_outer < outer.conversions.size() || done_inner < inner.conversions.size()) return least;
    auto const end = number(outer.use, inner.use);
    return end != none ? to(from, end) : never;
}

HEDDLE_INLINE double mesh_conversions::apart(way const& w, axis_number axis) const {
    double sum = 0;
    for (auto const& conversion : w.conversions) {
        double least = never;
        for (auto const& [n, cost] : after({}, conversion, axis)) least = std::min(least, cost);
        sum += least;
    }
    return sum;
}

HEDDLE_INLINE double mesh_conversions::cost(way const& outer, way const& inner) const {
    if (!allows(0, outer) || !allows(1, inner)) return never;
    double const several = outer.has_several_uses ? apart(outer, 0) + apart(inner, 1) : 0;
    if (!tensor_.is_read_once() || !outer.read || !inner.read)
        return outer.has_several_uses ? several : finish({}, outer, 0, inner, 0);
    mesh_instruction const read({*outer.read, *inner.read});
    if (!is_read_together(tensor_, read)) return never;
    if (outer.has_several_uses) return price_(read) + several;
    auto const at = read.to();
    return finish({{number(at[0], at[1]), price_(read)}}, outer, 0, inner, 0);
}

[[nodiscard]] inline bool go_together(searched_program const& searched, instruction const& outer,
                                      instruction const& inner) {
    return goes_together(searched.program(), mesh_instruction({outer, inner})) &&
           goes_together(searched.given(), mesh_instruction({searched.part_of(outer), searched.part_of(inner)}));
}

HEDDLE_INLINE void add_choices(loosened_space const& programs, mesh_prices const& price, mesh_choices& kind) {
    auto const& space = *programs.space;
    auto const& program = space.program();
    auto const is_brought = [&](tensor_id t) { // not where it is there, or had for nothing
        auto const at_cuts = program.tensors[t].at_cuts;
        return at_cuts == tensor_at_cuts::held || at_cuts == tensor_at_cuts::restored;
    };
    std::vector<instruction> computations;
    std::map<tensor_id, std::vector<mesh_conversions::way>> ways;
    std::map<tensor_id, std::vector<std::uint32_t>> items_of;
    mesh_choice chosen;
    auto const number_in = [&](auto& list, auto const& what, std::vector<std::uint32_t>& items) {
        auto const found = static_cast<std::size_t>(algorithm::find(list, what) - list.begin());
        if (found == list.size()) {
            list.push_back(what);
            items.push_back(kind.item_count++);
        }
        return items[found];
    };
    for (auto a : kind.moves) {
        auto& items = kind.items.emplace_back();
        std::map<tensor_id, mesh_conversions::way> brought;
        for (auto n : space.moves()[a].instructions) {
            auto const& i = space.instructions()[n];
            if (auto const* compute = i.as<instruction::compute>()) {
                items.push_back(number_in(computations, i, chosen.items));
                auto const& op = program.operators[compute->op];
                for (std::size_t k = 0; k < op.operands.size(); ++k)
                    if (is_brought(op.operands[k])) brought[op.operands[k]].use = compute->operands[k];
                for (auto& [t, way] : brought) way.has_several_uses = algorithm::count(op.operands, t) > 1;
            } else if (auto const t = i.change()->tensor; is_brought(t)) {
                auto& way = brought[t];
                way.use = i.change()->to; // if nothing computes with it
                (i.is<instruction::read>() ? way.read.emplace(i) : way.conversions.emplace_back(i)).change()->tensor =
                    programs.program.of(t);
            }
        }
        for (auto const& [t, way] : brought) items.push_back(number_in(ways[t], way, items_of[t]));
    }
    if (!computations.empty()) {
        chosen.set_costs([&](std::size_t outer, std::size_t inner) {
            auto const &on_outer = computations[outer], &on_inner = computations[inner];
            bool const is_possible = price.allows(0, on_outer) && price.allows(1, on_inner) &&
                                     go_together(price.searched, on_outer, on_inner);
            return is_possible ? price(mesh_instruction({on_outer, on_inner})) : never;
        });
        kind.choices.push_back(std::move(chosen));
    }
    for (auto const& [t, list] : ways) {
        mesh_choice choice{items_of[t], {}, {}};
        mesh_conversions const conversions(program.tensors[t], programs.program.of(t), price);
        choice.set_costs(
            [&](std::size_t outer, std::size_t inner) { return conversions.cost(list[outer], list[inner]); });
        kind.choices.push_back(std::move(choice));
    }
    kind.place_of_item.resize(kind.item_count);
    for (std::uint32_t c = 0; c < kind.choices.size(); ++c)
        for (std::uint32_t n = 0; n < kind.choices[c].items.size(); ++n)
            kind.place_of_item[kind.choices[c].items[n]] = {c, n};
    for (std::uint32_t m = 0; m < kind.moves.size(); ++m)
        for (auto item : kind.items[m]) {
            auto const [c, n] = kind.place_of_item[item];
            kind.choices[c].taken.push_back({m, n});
        }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE double mesh_prices::operator()(mesh_instruction const& in_searched) const {
    mesh_instruction on = in_searched;
    for (auto& of_axis : on.axes) {
        auto const there = searched.in_given(of_axis);
        if (!there) return 0;
        of_axis = *there;
    }
    auto const step = model.price(make_step(searched.given(), on, mesh, training), shares);
    return std::inner_product(memory.begin(), memory.end(), step.memory.begin(), weights.price(step, 0));
}

HEDDLE_INLINE std::vector<mesh_choices> choices_of(loosened_space const& programs, mesh_prices const& price) {
    auto const& space = *programs.space;
    std::vector<mesh_choices> kinds(space.level_count());
    for (cut_space::action a = 0; a < space.moves().size(); ++a) kinds[space.moves()[a].kind].moves.push_back(a);
    for (auto& kind : kinds) detail::add_choices(programs, price, kind);
    return kinds;
}

} // namespace heddle

#endif
