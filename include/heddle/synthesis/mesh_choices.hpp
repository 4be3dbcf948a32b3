// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the two axes of a mesh may do at an operator, and tables of what it costs together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/loosened_space.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
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
    largest_shares const& shares;
    training_options const& training;
    relaxation_weights const& weights;
    /// Seconds per byte that a class holds.
    std::vector<double> const& memory;
    /// What each axis may do, outermost first; if there is none, all that the programs at hand do.
    std::vector<instruction_filter> const* allowed = nullptr;
    /// An axis of a mesh of three that instructions leave out: they have there what is cheapest.
    std::optional<axis_number> left_out{};

    [[nodiscard]] double operator()(mesh_instruction const& in_searched) const;
    [[nodiscard]] bool allows(axis_number axis, instruction const& in_searched) const {
        return !allowed || (*allowed)[axis](in_searched);
    }

private:
    /// Returns the price of an instruction of all axes.
    [[nodiscard]] double of_all(mesh_instruction const& in_searched) const;
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
#include <heddle/search/numbering.hpp>
#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle::detail {

/// What bringing a tensor costs on both axes, or one that is like it.
class mesh_conversions {
public:
    mesh_conversions(indexed_tensor const& tensor, tensor_id t, mesh_prices const& price);
    mesh_conversions(mesh_conversions const&) = delete;

    /// How an axis brings a tensor: it reads it, or has it; converts it; and uses it in a form.
    struct way {
        std::optional<instruction> read{};
        std::vector<instruction> conversions{};
        tensor_form use{};
        /// The operator has it in several places, maybe in several forms.
        bool has_several_uses = false;
    };
    /// Returns the number of a way, whichever of the tensors that are alike it brings.
    [[nodiscard]] std::uint32_t number_of(way const& w);
    /// Returns what two ways cost together at least, by their numbers: the least of any list of conversions, from
    /// whatever is held, that has those of both. An axis may have made a form that it uses before, or convert once more
    /// to it.
    [[nodiscard]] double cost(std::uint32_t outer, std::uint32_t inner);

private:
    [[nodiscard]] double cost_of(std::uint32_t outer, std::uint32_t inner) const;
    /// What can be reached: forms, and what each costs at least; or what every form costs, with conversions to it.
    struct reached { // NOLINT(bugprone-exception-escape): moves of small vectors do not throw here
        boost::container::small_vector<std::pair<std::uint32_t, double>, 12> forms{};
        std::optional<std::size_t> of_all{}; ///< the number of these costs
    };

    /// The sum over the conversions of a way on an axis, each where the other axis makes it cheapest.
    [[nodiscard]] double apart(way const& w, axis_number axis) const;
    /// What the conversions of a way on an axis reach one after another, from what is reached before them.
    [[nodiscard]] std::vector<reached> alone(reached const& from, way const& w, axis_number axis) const;
    /// The number of a form, or `none`.
    [[nodiscard]] std::size_t number(tensor_form outer, tensor_form inner) const {
        return number_[outer.code() * codes_ + inner.code()];
    }
    static constexpr std::size_t none = ~std::size_t{0};
    [[nodiscard]] double to(reached const& from, std::size_t n) const;
    [[nodiscard]] reached after(reached const& from, instruction const& conversion, axis_number axis) const;
    /// The least cost of the conversions of two ways and any others, in whatever order, where it is known what those of
    /// each axis reach alone.
    [[nodiscard]] double finish(way const& outer, way const& inner, std::vector<reached> const& by_outer,
                                std::vector<reached> const& by_inner) const;

    indexed_tensor const& tensor_;
    mesh_prices const& price_;
    std::size_t codes_; ///< of the forms of one axis
    std::vector<std::size_t> number_;
    /// The cost of one conversion, and of any list of them, by the numbers of the form before and after.
    std::size_t forms_ = 0;
    std::vector<double> one_, any_;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers_;
    std::vector<way> ways_;
    /// Costs by form: if all are there for nothing, and then of what the conversions of ways reach, one after another.
    std::vector<std::vector<double>> costs_;
    /// By axis and way, what its conversions reach if all forms are there for nothing.
    std::array<std::vector<std::vector<reached>>, 2> alone_;
    /// The costs of two ways, by their numbers, where they are known.
    static constexpr double unknown = -1;
    std::vector<std::vector<double>> known_;
};

/// The conversions of tensors, once for all that are alike.
class all_conversions {
public:
    all_conversions(loosened_space const& programs, mesh_prices const& price) : programs_(programs), price_(price) {}
    /// Returns those of a tensor of the loosened program.
    [[nodiscard]] mesh_conversions& of(tensor_id t);

private:
    loosened_space const& programs_;
    mesh_prices const& price_;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers_;
    std::deque<mesh_conversions> list_;
};

HEDDLE_INLINE mesh_conversions& all_conversions::of(tensor_id t) {
    auto const& program = programs_.space->program();
    tensor_id const there = programs_.program.of(t);
    std::vector<std::uint64_t> key{static_cast<std::uint64_t>(program.tensors[t].at_cuts)};
    describe_tensor(program, t, kinds_alike::in_use, key);
    describe_tensor(price_.searched.program(), there, kinds_alike::in_use, key);
    key.push_back(
        is_saved(price_.searched.given(), there)); // what is gathered for all micro-batches may be held anyway
    auto const [number, is_new] = numbers_.insert(std::move(key));
    if (is_new) list_.emplace_back(program.tensors[t], there, price_);
    return list_[number];
}

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
    forms_ = forms.size();
    one_.assign(forms_ * forms_, never);
    costs_.emplace_back(forms_, 0.0); // all are there for nothing
    // An axis converts at the same cost wherever the other does not cut the tensor.
    std::vector<std::optional<double>> of_uncut(2 * codes_ * codes_);
    for (std::size_t n = 0; n < forms.size(); ++n)
        for (axis_number a = 0; a < 2; ++a)
            for (std::uint16_t code = 0; code < codes_; ++code) {
                auto const g = tensor_form::from_code(code);
                if (!find_conversion(forms[n], a, g, tensor)) continue;
                auto const to = forms[n].with(a, g);
                auto& cost = one_[n * forms_ + number(to[0], to[1])];
                if (forms[n][1 - a].is_shard()) {
                    cost = price(mesh_instruction::convert(t, forms[n], a, g));
                    continue;
                }
                auto& known = of_uncut[(a * codes_ + forms[n][a].code()) * codes_ + code];
                if (!known) known = price(mesh_instruction::convert(t, forms[n], a, g));
                cost = *known;
            }
    any_ = one_;
    auto const from = [&](std::size_t n) { return any_.data() + n * forms_; };
    for (std::size_t n = 0; n < forms_; ++n) from(n)[n] = 0;
    for (std::size_t via = 0; via < forms_; ++via)
        for (std::size_t n = 0; n < forms_; ++n) {
            double const first = from(n)[via];
            if (first >= never) continue;
            std::transform(from(n), from(n + 1), from(via), from(n),
                           [&](double cost, double then) { return std::min(cost, first + then); });
        }
}

HEDDLE_INLINE double mesh_conversions::to(reached const& from, std::size_t n) const {
    if (from.of_all) return costs_[*from.of_all][n];
    double least = never;
    for (auto const& [at, cost] : from.forms) least = std::min(least, cost + any_[at * forms_ + n]);
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
        if (before != none && then != none && one_[before * forms_ + then] < never)
            result.forms.push_back({static_cast<std::uint32_t>(then), to(from, before) + one_[before * forms_ + then]});
    }
    return result;
}

HEDDLE_INLINE auto mesh_conversions::alone(reached const& from, way const& w, axis_number axis) const
    -> std::vector<reached> {
    std::vector<reached> result;
    result.reserve(w.conversions.size() + 1);
    result.push_back(from);
    for (auto const& conversion : w.conversions) result.push_back(after(result.back(), conversion, axis));
    return result;
}

HEDDLE_INLINE double mesh_conversions::finish(way const& outer, way const& inner, std::vector<reached> const& by_outer,
                                              std::vector<reached> const& by_inner) const {
    auto const end = number(outer.use, inner.use);
    if (end == none) return never;
    if (by_inner.size() == 1) return std::min(never, to(by_outer.back(), end));
    if (by_outer.size() == 1) return std::min(never, to(by_inner.back(), end));
    // What so many conversions of both axes reach, in whatever order: the last was one of either axis.
    auto by_both = by_inner;
    for (std::size_t m = 1; m < by_outer.size(); ++m) {
        by_both[0] = by_outer[m];
        for (std::size_t n = 1; n < by_both.size(); ++n) {
            auto next = after(by_both[n], outer.conversions[m - 1], 0);
            for (auto const& there : after(by_both[n - 1], inner.conversions[n - 1], 1).forms)
                next.forms.push_back(there);
            by_both[n] = std::move(next);
        }
    }
    return std::min(never, to(by_both.back(), end));
}

HEDDLE_INLINE double mesh_conversions::apart(way const& w, axis_number axis) const {
    double sum = 0;
    for (auto const& conversion : w.conversions) {
        double least = never;
        for (auto const& [n, cost] : after({{}, 0}, conversion, axis).forms) least = std::min(least, cost);
        sum += least;
    }
    return sum;
}

HEDDLE_INLINE std::uint32_t mesh_conversions::number_of(way const& w) {
    std::vector<std::uint64_t> key{w.use.code(), w.has_several_uses, w.read.has_value()};
    auto const add = [&](instruction const& i) {
        key.insert(key.end(), {static_cast<std::uint64_t>(i.type()), i.change()->from.code(), i.change()->to.code()});
    };
    if (w.read) add(*w.read);
    for (auto const& i : w.conversions) add(i);
    auto const [number, is_new] = numbers_.insert(std::move(key));
    if (!is_new) return number;
    ways_.push_back(w);
    known_.emplace_back();
    for (axis_number axis = 0; axis < 2; ++axis) {
        auto list = alone({{}, 0}, w, axis);
        for (std::size_t k = 1; k < list.size(); ++k) {
            std::vector<double> costs(forms_);
            for (std::size_t n = 0; n < forms_; ++n) costs[n] = to(list[k], n);
            list[k] = {{}, costs_.size()};
            costs_.push_back(std::move(costs));
        }
        alone_[axis].push_back(std::move(list));
    }
    return number;
}

HEDDLE_INLINE double mesh_conversions::cost(std::uint32_t outer, std::uint32_t inner) {
    auto& beside = known_[outer];
    if (beside.size() <= inner) beside.resize(ways_.size(), unknown);
    if (beside[inner] == unknown) beside[inner] = cost_of(outer, inner);
    return beside[inner];
}

HEDDLE_INLINE double mesh_conversions::cost_of(std::uint32_t of_outer, std::uint32_t of_inner) const {
    auto const &outer = ways_[of_outer], &inner = ways_[of_inner];
    double const several = outer.has_several_uses ? apart(outer, 0) + apart(inner, 1) : 0;
    if (!tensor_.is_read_once() || !outer.read || !inner.read)
        return outer.has_several_uses ? several : finish(outer, inner, alone_[0][of_outer], alone_[1][of_inner]);
    mesh_instruction const read({*outer.read, *inner.read});
    if (!is_read_together(tensor_, read)) return never;
    if (outer.has_several_uses) return price_(read) + several;
    auto const at = read.to();
    reached const there{{{static_cast<std::uint32_t>(number(at[0], at[1])), price_(read)}}};
    return finish(outer, inner, alone(there, outer, 0), alone(there, inner, 1));
}

/// Tells whether an axis may bring a tensor so.
[[nodiscard]] inline bool allows(mesh_prices const& price, axis_number axis, mesh_conversions::way const& w) {
    return (!w.read || price.allows(axis, *w.read)) &&
           algorithm::all_of(w.conversions, [&](instruction const& i) { return price.allows(axis, i); });
}

HEDDLE_INLINE void add_choices(loosened_space const& programs, mesh_prices const& price, all_conversions& conversions,
                               mesh_choices& kind) {
    auto const& space = *programs.space;
    auto const& program = space.program();
    auto const is_brought = [&](tensor_id t) { // not where it is there, or had for nothing
        auto const at_cuts = program.tensors[t].at_cuts;
        return at_cuts == tensor_at_cuts::held || at_cuts == tensor_at_cuts::restored;
    };
    std::vector<instruction> computations;
    mesh_choice chosen;
    struct choice_of_ways {
        mesh_conversions& conversions;
        std::vector<std::uint32_t> numbers{}; ///< of the ways, there
        std::array<std::vector<bool>, 2> allowed{};
        mesh_choice choice{};
    };
    std::map<tensor_id, choice_of_ways> ways;
    // Tells the item that stands for something, and whether it is new.
    auto const find_item = [&](auto& list, auto const& what, mesh_choice& choice) {
        auto const found = static_cast<std::size_t>(algorithm::find(list, what) - list.begin());
        bool const is_new = found == list.size();
        if (is_new) {
            list.push_back(what);
            choice.items.push_back(kind.item_count++);
        }
        return std::pair(choice.items[found], is_new);
    };
    for (auto a : kind.moves) {
        auto& items = kind.items.emplace_back();
        std::map<tensor_id, mesh_conversions::way> brought;
        for (auto n : space.moves()[a].instructions) {
            auto const& i = space.instructions()[n];
            if (auto const* compute = i.as<instruction::compute>()) {
                items.push_back(find_item(computations, i, chosen).first);
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
        for (auto const& [t, way] : brought) {
            auto at = ways.find(t);
            if (at == ways.end()) at = ways.try_emplace(t, conversions.of(t)).first;
            auto& of_tensor = at->second;
            auto const [item, is_new] =
                find_item(of_tensor.numbers, of_tensor.conversions.number_of(way), of_tensor.choice);
            for (axis_number axis = 0; is_new && axis < 2; ++axis)
                of_tensor.allowed[axis].push_back(allows(price, axis, way));
            items.push_back(item);
        }
    }
    if (!computations.empty()) {
        chosen.set_costs([&](std::size_t outer, std::size_t inner) {
            auto const &on_outer = computations[outer], &on_inner = computations[inner];
            bool const is_possible = price.allows(0, on_outer) && price.allows(1, on_inner) &&
                                     goes_together(price.searched, mesh_instruction({on_outer, on_inner}));
            return is_possible ? price(mesh_instruction({on_outer, on_inner})) : never;
        });
        kind.choices.push_back(std::move(chosen));
    }
    for (auto& [t, of_tensor] : ways) {
        auto& [of_ways, numbers, allowed, choice] = of_tensor;
        choice.set_costs([&](std::size_t outer, std::size_t inner) {
            return allowed[0][outer] && allowed[1][inner] ? of_ways.cost(numbers[outer], numbers[inner]) : never;
        });
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
    if (!left_out) return of_all(in_searched);
    double least = never;
    auto const& program = searched.program();
    auto const try_with = [&](instruction i, auto const& is_possible) {
        auto const all = in_searched.with_axis(*left_out, std::move(i));
        if (is_possible(all)) least = std::min(least, of_all(all));
    };
    if (auto const* compute = in_searched.axes[0].as<instruction::compute>()) {
        for (auto& i : computations(program, compute->op))
            try_with(std::move(i), [&](mesh_instruction const& all) { return goes_together(searched, all); });
        return least;
    }
    auto const t = in_searched.tensor();
    auto const& tensor = program.tensors[t];
    auto const acting = in_searched.acting();
    for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code) {
        auto const f = tensor_form::from_code(code);
        if (acting) {
            try_with(instruction::convert(t, f, f), [&](mesh_instruction const& all) {
                auto const axis = *all.acting();
                return find_conversion(all.from(), axis, all.to()[axis], tensor).has_value();
            });
            continue;
        }
        for (auto const to : {f, tensor_form::replicated(), tensor_form::mirrored()}) {
            if (to != f && !f.is_shard()) continue;
            instruction::read read(t, to);
            read.from = f;
            try_with(read, [&](mesh_instruction const& all) { return is_read_together(tensor, all); });
        }
    }
    return least;
}

HEDDLE_INLINE double mesh_prices::of_all(mesh_instruction const& in_searched) const {
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
    detail::all_conversions conversions(programs, price);
    for (auto& kind : kinds) detail::add_choices(programs, price, conversions, kind);
    return kinds;
}

} // namespace heddle

#endif
