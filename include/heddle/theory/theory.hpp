// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Properties, Hoare triples, and the background theory of one program.
///
/// HAP section 4.2; a property `e
/// I` there is a pair of tensor and form here.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A fact about a partial program, interned: "tensor `t` is held in form `f`".
using property_id = std::uint32_t;

/// `{pre} action {add}`. Properties in `remove` are consumed; they are part of `pre`.
template <class Action>
struct triple {
    std::vector<property_id> pre;
    std::vector<property_id> add;
    std::vector<property_id> remove;
    Action action;
};

/// A search problem made of triples: from `initial`, hold every property of `goal`.
/// *Invariant.* There are no negative preconditions: holding more never hurts.
template <class Action>
struct theory {
    std::size_t property_count = 0;
    std::vector<property_id> initial;
    std::vector<property_id> goal;
    std::vector<triple<Action>> triples;
};

/// Gives dense numbers to (tensor, form) and to "parameter not read yet".
class property_table {
public:
    explicit property_table(indexed_program const& p);
    [[nodiscard]] property_id held(tensor_id t, tensor_form f) const { return first_[t] + f.code(); }
    /// Returns the budget that says that the parameter has not been read: a parameter is stored once, in one form.
    [[nodiscard]] property_id unread(tensor_id t) const { return unread_ + t; }
    [[nodiscard]] property_id finished() const { return finished_; }
    [[nodiscard]] std::size_t size() const { return finished_ + 1; }

    /// Returns the group of each property: the forms of one tensor are a group (see `search::find_landmark_cuts`).
    [[nodiscard]] std::vector<std::uint32_t> groups() const;

    [[nodiscard]] bool is_held(property_id id) const { return id < unread_; }
    [[nodiscard]] std::pair<tensor_id, tensor_form> tensor_and_form(property_id id) const;

private:
    std::vector<property_id> first_;
    property_id unread_ = 0, finished_ = 0;
};

/// Returns the parameters whose gradients are worth taking from sufficient factors if a parallel loop is split: those
/// without the loop in which the result is linear.
///
/// The factors are the operands with the loop, which must be saved, and the results' cotangents; the backward pass may
/// read nothing else. The list is empty if the factors are more bytes than an all-reduce of the gradients moves, which
/// moves its bytes twice.
[[nodiscard]] std::vector<std::size_t> factored_parameters(indexed_program const& p, indexed_operator const& op,
                                                           split_loop const& loop);

/// Makes a computation take these gradients from their factors.
void take_factors(indexed_program const& p, instruction::compute& i);

/// Returns every way to compute one operator: split along one loop, on whole copies (replicated or mirrored), or with a
/// partial sum that flows through the operands in which it is linear.
///
/// Splitting a reduction leaves a partial result. A term that lacks the index must then be partial itself, or it would
/// be added once per device.
[[nodiscard]] std::vector<instruction::compute> computations(indexed_program const& p, operator_id number);

/// Returns how a single device computes an operator: on whole operands.
[[nodiscard]] instruction::compute whole_computation(indexed_program const& p, operator_id number);

/// Returns the forms in which a source can be read without another instruction. A parameter that is read as partial is
/// stored whole and masked.
[[nodiscard]] form_list readable_forms(indexed_tensor const& tensor);

/// Returns the factor with the most atoms, the first of equal ones: a parameter that is gathered for use is stored
/// along it. Only the evenness of its shards depends on the choice, and no factor gives more even ones as a rule.
/// *Precondition:* there is a factor.
[[nodiscard]] inline factor_number finest_factor(indexed_tensor const& tensor) {
    return static_cast<factor_number>(algorithm::max_element(tensor.factors, {}, &factor::extent) -
                                      tensor.factors.begin());
}

/// Returns the background theory of a program: triples from sources, conversions and index rules, one that finishes
/// with a partial loss and one with a mirrored loss. Resharding is not part of it: it saves memory, never time.
/// *Complexity.* Quadratic in the factors of a tensor, linear in the program.
[[nodiscard]] theory<instruction> make_theory(indexed_program const& p, property_table const& properties);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE property_table::property_table(indexed_program const& p) {
    first_.push_back(0);
    for (auto const& t : p.tensors) first_.push_back(first_.back() + 3 + static_cast<property_id>(t.factors.size()));
    unread_ = first_.back();
    finished_ = unread_ + static_cast<property_id>(p.tensors.size());
}

HEDDLE_INLINE std::vector<std::uint32_t> property_table::groups() const {
    std::vector<std::uint32_t> result;
    for (property_id id = 0; id < size(); ++id) result.push_back(is_held(id) ? first_[tensor_and_form(id).first] : id);
    return result;
}

HEDDLE_INLINE std::pair<tensor_id, tensor_form> property_table::tensor_and_form(property_id id) const {
    auto const next = algorithm::upper_bound(first_, id);
    auto const t = static_cast<tensor_id>(next - first_.begin() - 1);
    return {t, tensor_form::from_code(static_cast<std::uint16_t>(id - first_[t]))};
}

HEDDLE_INLINE std::vector<std::size_t> factored_parameters(indexed_program const& p, indexed_operator const& op,
                                                           split_loop const& loop) {
    std::vector<std::size_t> parameters;
    if (loop.is_reduction || loop.exchanges() || !op.work.saved_results.empty() || op.work.extra_saved.value > 0)
        return parameters;
    bytes factors, gradients;
    for (auto t : op.results)
        if (p.tensors[t].has_cotangent) factors += p.tensors[t].info.size();
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        auto const& tensor = p.tensors[op.operands[k]];
        if (loop.operands[k] != no_factor) {
            if (algorithm::find(op.work.saved_operands, k) == op.work.saved_operands.end()) return {};
            factors += tensor.info.size();
            continue;
        }
        bool const linear =
            algorithm::any_of(op.terms, [&](auto const& term) { return algorithm::find(term, k) != term.end(); });
        if (!linear || !tensor.is_parameter() || !tensor.has_cotangent) continue;
        parameters.push_back(k);
        gradients += tensor.info.size();
    }
    if (factors >= 2 * gradients) parameters.clear();
    return parameters;
}

HEDDLE_INLINE void take_factors(indexed_program const& p, instruction::compute& i) {
    if (i.loop < 0) return;
    auto const& op = p.operators[i.op];
    for (auto k : factored_parameters(p, op, op.loops[static_cast<std::size_t>(i.loop)]))
        i.operands[k] = tensor_form::mirrored();
}

HEDDLE_INLINE instruction::compute whole_computation(indexed_program const& p, operator_id number) {
    auto const forms = [&](std::vector<tensor_id> const& tensors) {
        form_list all;
        for (auto t : tensors) all.push_back(canonical(tensor_form::mirrored(), p.tensors[t]));
        return all;
    };
    return {number, forms(p.operators[number].operands), forms(p.operators[number].results)};
}

HEDDLE_INLINE std::vector<instruction::compute> computations(indexed_program const& p, operator_id number) {
    auto const& op = p.operators[number];
    std::vector<instruction::compute> result;
    for (auto const& listed : op.listed) {
        auto& i = result.emplace_back(instruction::compute{number, {}, {}, listed.loop});
        for (auto code : listed.operands) i.operands.push_back(tensor_form::from_code(code));
        for (auto code : listed.results) i.results.push_back(tensor_form::from_code(code));
    }
    if (!result.empty()) return result;
    constexpr std::size_t most = 512; // of operators with many terms, only so many choices of partial operands
    auto const emit = [&](form_list operands, form_list results, std::int16_t loop) {
        for (std::size_t k = 0; k < operands.size(); ++k) {
            auto const& tensor = p.tensors[op.operands[k]];
            operands[k] = canonical(operands[k], tensor);
            if (!is_possible(operands[k], tensor)) return;
        }
        for (std::size_t k = 0; k < results.size(); ++k) {
            auto const& tensor = p.tensors[op.results[k]];
            results[k] = canonical(results[k], tensor);
            if (!is_possible(results[k], tensor)) return;
        }
        instruction::compute i{number, std::move(operands), std::move(results), loop};
        if (algorithm::find(result, i) == result.end()) result.push_back(std::move(i));
    };
    // Chooses one operand of each listed term to be partial, in all combinations; there are none if one of the terms
    // has no operand.
    auto const emit_partial = [&](auto& self, std::vector<std::size_t> const& terms, std::size_t at,
                                  form_list& operands, form_list const& results, std::int16_t loop) -> void {
        if (result.size() >= most) return;
        if (at == terms.size()) return emit(operands, results, loop);
        for (auto k : op.terms[terms[at]]) {
            tensor_form const before = std::exchange(operands[k], tensor_form::partial());
            self(self, terms, at + 1, operands, results, loop);
            operands[k] = before;
        }
    };

    form_list const whole(op.operands.size(), tensor_form::replicated());
    form_list const partial_results(op.results.size(), tensor_form::partial());
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
        auto const& loop = op.loops[l];
        if (loop.exchanges() && p.is_split_inside) continue; // devices of a group do not send across groups
        form_list operands = whole, results = partial_results;
        for (std::size_t k = 0; k < operands.size(); ++k)
            if (loop.operands[k] != no_factor) operands[k] = tensor_form::shard(loop.operands[k]);
        if (!loop.is_reduction) {
            bool everywhere = true;
            for (std::size_t k = 0; k < results.size(); ++k) {
                everywhere &= loop.results[k] != no_factor;
                if (everywhere) results[k] = tensor_form::shard(loop.results[k]);
            }
            if (!everywhere) continue;
            emit(operands, results, static_cast<std::int16_t>(l));
            for (auto k : factored_parameters(p, op, loop)) operands[k] = tensor_form::mirrored();
            emit(std::move(operands), std::move(results),
                 static_cast<std::int16_t>(l)); // the same again is passed over
            continue;
        }
        std::vector<std::size_t> lacking;
        for (std::size_t t = 0; t < op.terms.size(); ++t)
            if (!cuts_term(op, loop, op.terms[t])) lacking.push_back(t);
        // If no term has the index, an operand outside the terms has it, and it is an index of every term.
        if (lacking.size() == op.terms.size()) lacking.clear();
        emit_partial(emit_partial, lacking, 0, operands, results, static_cast<std::int16_t>(l));
    }
    emit(whole, form_list(op.results.size(), tensor_form::replicated()), -1);
    emit(form_list(op.operands.size(), tensor_form::mirrored()), form_list(op.results.size(), tensor_form::mirrored()),
         -1);
    if (!op.terms.empty()) {
        std::vector<std::size_t> all(op.terms.size());
        for (std::size_t t = 0; t < all.size(); ++t) all[t] = t;
        form_list operands = whole;
        emit_partial(emit_partial, all, 0, operands, partial_results, -1);
    }
    return result;
}

HEDDLE_INLINE form_list readable_forms(indexed_tensor const& tensor) {
    form_list forms{tensor_form::replicated()};
    bool const is_free = tensor.at_cuts == tensor_at_cuts::free;
    if (tensor.has_cotangent && (tensor.is_read_once() || is_free)) forms.push_back(tensor_form::mirrored());
    if (tensor.has_cotangent && (tensor.is_parameter() || is_free)) forms.push_back(tensor_form::partial());
    for (std::size_t f = 0; f < tensor.factors.size(); ++f)
        forms.push_back(tensor_form::shard(static_cast<factor_number>(f)));
    return forms;
}

HEDDLE_INLINE theory<instruction> make_theory(indexed_program const& p, property_table const& properties) {
    theory<instruction> result;
    result.property_count = properties.size();
    result.goal = {properties.finished()};
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto const& tensor = p.tensors[t];
        auto const forms = possible_forms(tensor);
        if (tensor.is_source()) {
            bool const once = tensor.is_read_once();
            if (once) result.initial.push_back(properties.unread(t));
            for (tensor_form f : readable_forms(tensor)) {
                std::vector<property_id> budget;
                if (once) budget.push_back(properties.unread(t));
                result.triples.push_back({budget, {properties.held(t, f)}, budget, instruction::read(t, f)});
                if (f.is_whole() && tensor.is_parameter() && tensor.has_cotangent && !tensor.factors.empty())
                    result.triples.push_back({budget,
                                              {properties.held(t, f)},
                                              budget,
                                              instruction::read(t, tensor_form::shard(finest_factor(tensor)), f)});
            }
        }
        for (tensor_form from : forms)
            for (tensor_form to : forms)
                if (find_conversion(from, to))
                    result.triples.push_back(
                        {{properties.held(t, from)}, {properties.held(t, to)}, {}, instruction::convert(t, from, to)});
    }
    auto const sorted_unique = [](std::vector<property_id>& ids) {
        algorithm::sort(ids);
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    };
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto& i : computations(p, o)) {
            triple<instruction> t;
            for (std::size_t k = 0; k < i.operands.size(); ++k)
                t.pre.push_back(properties.held(p.operators[o].operands[k], i.operands[k]));
            for (std::size_t k = 0; k < i.results.size(); ++k)
                t.add.push_back(properties.held(p.operators[o].results[k], i.results[k]));
            sorted_unique(t.pre);
            sorted_unique(t.add);
            t.action = std::move(i);
            result.triples.push_back(std::move(t));
        }
    for (tensor_form f :
         {tensor_form::partial(), tensor_form::mirrored()}) // an empty action: reading off the loss costs nothing
        result.triples.push_back(
            {{properties.held(p.loss, f)}, {properties.finished()}, {}, instruction::convert(p.loss, f, f)});
    return result;
}

} // namespace heddle

#endif
