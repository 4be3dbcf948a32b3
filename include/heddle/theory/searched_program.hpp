// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The program that a search sees in place of a given one: the same, with narrow cuts.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/operator_order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// A program rewritten so that a search over its cuts meets few states, and the way back.
///
/// Tensors have the numbers of the given program; those beyond are of the search alone. Operators come in the order of
/// `narrow_order`.
/// - *Constants*, that is tensors that nothing is differentiated by, computed from inputs and buffers by operators that
///   do next to nothing, are free: they are had in any form for nothing, where they are used. In the program itself
///   each is computed once before its first use, in the form in which all use it or else whole, and cut from that.
/// - An operator of three or more values *takes* them one by one, each as soon as it is there: what it has taken is one
///   tensor, whose form is the way in which the operator will be computed. So of branches that end at an operator none
///   waits for the others in all its forms.
/// - An operator of three or more results *gives* them one by one, from a tensor whose form is the way in which it was
///   computed.
///
/// Programs and costs are those of the given program, but for what constants cost, which is nothing here: `constants`
/// tells how they may be computed.
class searched_program {
public:
    /// Keeps a copy of the given program. Tensors `kept` are no constants.
    /// *Complexity.* That of `narrow_order`.
    explicit searched_program(indexed_program given, std::vector<tensor_id> const& kept = {});

    [[nodiscard]] indexed_program const& given() const { return given_; }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// Returns for each of its operators the first of its kind (`operator_kinds`).
    [[nodiscard]] std::vector<operator_id> const& kinds() const { return kinds_; }

    /// What an instruction of the searched program is in the given one; nothing where it only takes part in one that
    /// another stands for, or reads a constant.
    [[nodiscard]] std::optional<instruction> in_given(instruction const& i) const {
        auto const* const compute = i.as<instruction::compute>();
        auto const* const read = i.as<instruction::read>();
        bool const counts = compute ? origins_[compute->op].counts
                                    : !read || program_.tensors[read->tensor].at_cuts != tensor_at_cuts::free;
        return counts ? std::optional(part_of(i)) : std::nullopt;
    }
    /// As above, but a part becomes the whole that it is part of.
    [[nodiscard]] instruction part_of(instruction const& i) const;
    /// A filter of instructions of the given program as one of the searched. *Lifetime:* refers to this.
    [[nodiscard]] instruction_filter as_searched(instruction_filter allowed) const;

    /// Returns the ways to compute each constant, by operator of the given program, of all that is used.
    [[nodiscard]] std::vector<std::vector<instruction::compute>> constants() const;

    /// Instructions of the given program for those of the searched one, with constants computed; `visit(instruction,
    /// number)`, where `number` is that of the searched program's instruction, or nothing for what computes constants.
    template <class Visit>
    void for_each_in_given(std::vector<instruction> const& searched, Visit&& visit) const;

private:
    /// The operator that one stands for, and whether it bears its costs.
    struct origin {
        operator_id op;
        bool counts = true;
    };
    class constants_maker;

    [[nodiscard]] static bool has_shard(form_list const& forms) {
        return algorithm::any_of(forms, [](tensor_form f) { return f.is_shard(); });
    }
    void drop_constants(std::vector<tensor_id> const& kept);
    void divide_operators();
    tensor_id add_fixed(operator_id o, std::size_t part, std::size_t ways);

    indexed_program given_, program_;
    std::vector<origin> origins_;
    /// Tells which operators of the given program compute constants.
    std::vector<bool> is_constant_;
    std::vector<operator_id> given_kinds_, kinds_;
    /// Maps a kind of the given program's operators that are divided to the ways to compute it.
    std::map<operator_id, std::vector<instruction::compute>> ways_;
    /// The operators that the tensors beyond those of the given program belong to.
    std::vector<operator_id> operator_of_fixed_;
};

/// Makes constants of a program in the forms in which they are used.
class searched_program::constants_maker {
public:
    constants_maker(searched_program const& of, std::vector<instruction> const& searched);

    /// Calls `visit(instruction)` for what a constant in a form takes that is not there yet.
    template <class Visit>
    void make(tensor_id t, tensor_form f, Visit&& visit) {
        auto const o = producer_[t];
        if (o < chosen_.size() && chosen_[o] && !made_.contains({t, chosen_form(t).code()})) {
            auto const& op = of_.given_.operators[o];
            for (std::size_t k = 0; k < op.operands.size(); ++k) make(op.operands[k], chosen_[o]->operands[k], visit);
            visit(*chosen_[o]);
            for (std::size_t k = 0; k < op.results.size(); ++k)
                made_.insert({op.results[k], chosen_[o]->results[k].code()});
        }
        if (!made_.insert({t, f.code()}).second) return;
        if (o < chosen_.size() && chosen_[o]) visit(instruction::convert(t, chosen_form(t), f));
        else visit(instruction::read(t, f));
    }
    /// Whether that is for this class to see to.
    [[nodiscard]] bool is_made_here(tensor_id t) const { return producer_[t] < chosen_.size(); }
    /// A source is held in a form, or a constant is.
    bool hold(tensor_id t, tensor_form f) { return made_.insert({t, f.code()}).second; }

private:
    [[nodiscard]] tensor_form chosen_form(tensor_id t) const {
        auto const o = producer_[t];
        auto const& results = of_.given_.operators[o].results;
        return chosen_[o]->results[static_cast<std::size_t>(algorithm::find(results, t) - results.begin())];
    }

    searched_program const& of_;
    /// For each tensor, the operator that computes it as a constant, or the number of operators.
    std::vector<operator_id> producer_;
    std::vector<std::optional<instruction::compute>> chosen_;
    std::set<std::pair<tensor_id, std::uint16_t>> made_;
};

template <class Visit>
void searched_program::for_each_in_given(std::vector<instruction> const& searched, Visit&& visit) const {
    constants_maker constants(*this, searched);
    for (std::size_t n = 0; n < searched.size(); ++n) {
        auto const& i = searched[n];
        auto const* const read = i.as<instruction::read>();
        if (read && read->tensor < given_.tensors.size() && constants.is_made_here(read->tensor)) {
            constants.make(read->tensor, read->to, [&](instruction const& made) { visit(made, std::nullopt); });
            continue;
        }
        if (read || i.is<instruction::convert>())
            if (!constants.hold(i.change()->tensor, i.change()->to)) continue; // there already
        if (auto const there = in_given(i)) visit(*there, std::optional(n));
    }
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle {

HEDDLE_INLINE searched_program::searched_program(indexed_program given, std::vector<tensor_id> const& kept)
    : given_(std::move(given)), program_(given_), is_constant_(given_.operators.size()),
      given_kinds_(operator_kinds(given_)) {
    drop_constants(kept);
    divide_operators();
    auto const order = narrow_order(program_);
    program_ = in_order(std::move(program_), order);
    std::vector<origin> origins;
    for (auto o : order) origins.push_back(origins_[o]);
    origins_ = std::move(origins);
    kinds_ = operator_kinds(program_);
}

/// Constants may take one part in so many of the whole program's flops and bytes altogether.
inline constexpr double constants_part = 2000;

HEDDLE_INLINE void searched_program::drop_constants(std::vector<tensor_id> const& kept) {
    auto const bytes_of = [&](indexed_operator const& op) {
        double sum = 0;
        if (op.work.is_view) return sum;
        for (auto t : op.operands) sum += given_.tensors[t].info.size().value;
        for (auto t : op.results) sum += given_.tensors[t].info.size().value;
        return sum;
    };
    double most_bytes = 0, most_flops = 0;
    for (auto const& op : given_.operators) {
        most_bytes += bytes_of(op) / constants_part;
        most_flops += op.work.forward.value / constants_part;
    }
    std::vector<bool> is_constant(given_.tensors.size());
    for (tensor_id t = 0; t < given_.tensors.size(); ++t) {
        auto const& tensor = given_.tensors[t];
        is_constant[t] = tensor.is_source() && !tensor.is_parameter() && !tensor.has_cotangent;
    }
    std::vector<indexed_operator> operators;
    double all_bytes = 0, all_flops = 0;
    // The cheapest first would be more; in the order of their numbers what they need is dropped before them.
    for (operator_id o = 0; o < given_.operators.size(); ++o) {
        auto const& op = given_.operators[o];
        double const moved = all_bytes + bytes_of(op), done = all_flops + op.work.forward.value;
        bool const stays = algorithm::any_of(
            op.results, [&](tensor_id t) { return t == given_.loss || algorithm::find(kept, t) != kept.end(); });
        is_constant_[o] = !stays && moved <= most_bytes && done <= most_flops &&
                          algorithm::all_of(op.operands, [&](tensor_id t) { return is_constant[t]; }) &&
                          algorithm::none_of(op.results, [&](tensor_id t) { return given_.tensors[t].has_cotangent; });
        if (!is_constant_[o]) {
            operators.push_back(op);
            origins_.push_back({o});
            continue;
        }
        all_bytes = moved, all_flops = done;
        for (auto t : op.results) {
            is_constant[t] = true;
            auto& tensor = program_.tensors[t];
            tensor.info.role = tensor_role::buffer;
            tensor.at_cuts = tensor_at_cuts::free;
        }
    }
    program_.operators = std::move(operators);
    count_uses(program_);
}

HEDDLE_INLINE tensor_id searched_program::add_fixed(operator_id from, std::size_t part, std::size_t ways) {
    indexed_tensor tensor;
    tensor.info.name = given_.operators[from].name;
    // Not its extents: what tells it apart from parts of operators of other kinds.
    tensor.info.shape = {extent{given_kinds_[from]} + 1, static_cast<extent>(part) + 1};
    tensor.uses = 1;
    tensor.at_cuts = tensor_at_cuts::fixed;
    tensor.factors.assign(ways, {0, 1, 1, given_.operators[from].segment});
    tensor.is_contiguous.assign(ways, false);
    operator_of_fixed_.push_back(from);
    program_.tensors.push_back(std::move(tensor));
    return static_cast<tensor_id>(program_.tensors.size() - 1);
}

HEDDLE_INLINE void searched_program::divide_operators() {
    constexpr std::size_t least = 3, most_ways = 64;
    std::vector<indexed_operator> operators;
    std::vector<origin> origins;
    for (operator_id o = 0; o < program_.operators.size(); ++o) {
        auto const from = origins_[o].op;
        auto const& whole = given_.operators[from];
        std::vector<tensor_id> values;
        for (auto t : whole.operands)
            if (!program_.tensors[t].is_source() && algorithm::find(values, t) == values.end()) values.push_back(t);
        bool const takes = values.size() >= least, gives = whole.results.size() >= least;
        auto& ways = ways_[given_kinds_[from]];
        if ((takes || gives) && ways.empty()) ways = computations(given_, from);
        auto const is_taken_last = [&](tensor_id t) {
            return !takes || t == values.back() || algorithm::find(values, t) == values.end();
        };
        // The costs of one that is divided name no tensors but of its last part, which has one that is cut.
        auto const is_plain = [&](instruction::compute const& i) {
            bool is_cut = i.loop < 0 || (!gives && has_shard(i.results));
            for (std::size_t k = 0; k < whole.operands.size(); ++k)
                is_cut |= i.operands[k].is_shard() && is_taken_last(whole.operands[k]);
            auto const* const loop = i.loop < 0 ? nullptr : &whole.loops[static_cast<std::size_t>(i.loop)];
            if (loop && loop->exchanges()) {
                auto const t = whole.operands[loop->destination()];
                if (gives || (t != values.back() && !program_.tensors[t].is_source())) return false;
            }
            return is_cut && !gathers_factors(i);
        };
        if ((!takes && !gives) || ways.size() > most_ways || !algorithm::all_of(ways, is_plain)) {
            operators.push_back(std::move(program_.operators[o]));
            origins.push_back({from});
            continue;
        }
        std::optional<tensor_id> taken;
        std::size_t parts = 0;
        // A part that takes some operands of the whole and makes some of its results, or the next fixed tensor.
        auto const add = [&](std::vector<std::size_t> const& operands, std::vector<std::size_t> const& results,
                             bool counts) {
            indexed_operator part;
            part.name = whole.name;
            part.kind = whole.kind;
            part.work.category = whole.work.category;
            part.segment = whole.segment;
            auto const fixed = results.empty() ? std::optional(add_fixed(from, parts, ways.size())) : std::nullopt;
            ++parts;
            auto const saved_at = [](std::vector<std::uint8_t> const& list, std::size_t k) {
                return algorithm::find(list, k) != list.end();
            };
            if (taken) part.operands.push_back(*taken);
            for (auto k : operands) {
                if (saved_at(whole.work.saved_operands, k))
                    part.work.saved_operands.push_back(static_cast<std::uint8_t>(part.operands.size()));
                part.operands.push_back(whole.operands[k]);
            }
            for (auto k : results) {
                if (saved_at(whole.work.saved_results, k))
                    part.work.saved_results.push_back(static_cast<std::uint8_t>(part.results.size()));
                part.results.push_back(whole.results[k]);
            }
            if (fixed) part.results.push_back(*fixed);
            for (std::size_t way = 0; way < ways.size(); ++way) {
                auto const code = tensor_form::shard(static_cast<factor_number>(way)).code();
                listed_computation listed;
                listed.loop = ways[way].loop;
                if (taken) listed.operands.push_back(code);
                for (auto k : operands) listed.operands.push_back(ways[way].operands[k].code());
                for (auto k : results) listed.results.push_back(ways[way].results[k].code());
                if (fixed) listed.results.push_back(code);
                part.listed.push_back(std::move(listed));
            }
            operators.push_back(std::move(part));
            origins.push_back({from, counts});
            if (fixed) taken = fixed;
        };
        auto const places_of = [&](auto const& is_wanted) {
            std::vector<std::size_t> places;
            for (std::size_t k = 0; k < whole.operands.size(); ++k)
                if (is_wanted(whole.operands[k])) places.push_back(k);
            return places;
        };
        if (takes)
            for (std::size_t n = 0; n + 1 < values.size(); ++n)
                add(places_of([&](tensor_id t) { return t == values[n]; }), {}, false);
        std::vector<std::size_t> all(whole.results.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        add(places_of(is_taken_last), gives ? std::vector<std::size_t>{} : all, true);
        if (gives) {
            program_.tensors[*taken].uses = static_cast<std::uint32_t>(all.size());
            for (auto k : all) add({}, {k}, false);
        }
    }
    program_.operators = std::move(operators);
    origins_ = std::move(origins);
    count_uses(program_);
}

HEDDLE_INLINE instruction searched_program::part_of(instruction const& i) const {
    auto const* const part = i.as<instruction::compute>();
    if (!part) return i;
    auto const& op = program_.operators[part->op];
    auto result = *part;
    if (!op.listed.empty()) {
        bool const is_first = op.operands.empty() || program_.tensors[op.operands[0]].at_cuts != tensor_at_cuts::fixed;
        tensor_form const way = is_first ? part->results[0] : part->operands[0];
        result = ways_.at(given_kinds_[origins_[part->op].op])[static_cast<std::size_t>(way.factor())];
    }
    result.op = origins_[part->op].op;
    return result;
}

HEDDLE_INLINE instruction_filter searched_program::as_searched(instruction_filter allowed) const {
    auto const allows = [this, allowed](instruction const& i) { return allowed(part_of(i)); };
    if (!allowed.mark) return allows;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<std::uint64_t> marks;
    auto const count = static_cast<tensor_id>(given_.tensors.size());
    for (tensor_id t = 0; t < program_.tensors.size(); ++t) {
        std::vector<std::uint64_t> key{t < count};
        if (t < count) {
            key.push_back(allowed.mark(t));
        } else {
            auto const& op = given_.operators[operator_of_fixed_[t - count]];
            for (auto operand : op.operands) key.push_back(allowed.mark(operand));
            for (auto made : op.results) key.push_back(allowed.mark(made));
        }
        marks.push_back(numbers.insert(std::move(key)).first);
    }
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

HEDDLE_INLINE std::vector<std::vector<instruction::compute>> searched_program::constants() const {
    std::vector<std::vector<instruction::compute>> result;
    std::vector<bool> is_used(given_.tensors.size());
    for (auto o = given_.operators.size(); o-- > 0;) {
        auto const& op = given_.operators[o];
        if (is_constant_[o]) {
            if (algorithm::none_of(op.results, [&](tensor_id t) { return is_used[t]; })) continue;
            result.push_back(computations(given_, static_cast<operator_id>(o)));
        }
        for (auto t : op.operands) is_used[t] = true;
    }
    return result;
}

HEDDLE_INLINE searched_program::constants_maker::constants_maker(searched_program const& of,
                                                                 std::vector<instruction> const& searched)
    : of_(of) {
    auto const& p = of.given_;
    producer_.assign(of.program_.tensors.size(), static_cast<operator_id>(p.operators.size()));
    for (operator_id o = 0; o < p.operators.size(); ++o)
        if (of.is_constant_[o])
            for (auto t : p.operators[o].results) producer_[t] = o;
    chosen_.resize(p.operators.size());
    std::map<tensor_id, std::set<std::uint16_t>> used;
    for (auto const& i : searched)
        if (auto const* read = i.as<instruction::read>(); read && is_made_here(read->tensor))
            used[read->tensor].insert(read->to.code());
    for (auto o = static_cast<operator_id>(p.operators.size()); o-- > 0;) {
        if (!of.is_constant_[o]) continue;
        auto const& op = p.operators[o];
        auto const forms_of = [&](tensor_id t) -> std::set<std::uint16_t> const& { return used[t]; };
        if (algorithm::all_of(op.results, [&](tensor_id t) { return forms_of(t).empty(); })) continue;
        auto const fits = [&](instruction::compute const& c) {
            for (std::size_t k = 0; k < op.results.size(); ++k) {
                auto const& forms = forms_of(op.results[k]);
                if (!forms.empty() && (forms.size() > 1 || !forms.contains(c.results[k].code()))) return false;
            }
            return algorithm::none_of(c.operands, [](tensor_form f) { return f == tensor_form::partial(); });
        };
        auto const is_whole = [&](instruction::compute const& c) {
            return algorithm::all_of(c.results, [](tensor_form f) { return f == tensor_form::replicated(); });
        };
        auto const all = computations(p, o);
        auto found = algorithm::find_if(all, fits);
        if (found == all.end()) found = algorithm::find_if(all, is_whole);
        chosen_[o] = *found;
        for (std::size_t k = 0; k < op.operands.size(); ++k) used[op.operands[k]].insert(found->operands[k].code());
    }
}

} // namespace heddle

#endif
