// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs on a mesh that a search has found, as programs of the given program.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/mesh_axis.hpp>
#include <heddle/theory/searched_program.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// Returns instructions of the given program for those of the searched one, with its constants: each is computed once
/// before its first use, in the form in which all use it or else whole on all axes, and cut from that.
[[nodiscard]] mesh_instructions in_given(searched_program const& searched, mesh_instructions const& list);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle::detail {

/// Makes constants of a program on a mesh in the forms in which they are used.
class mesh_constants {
public:
    mesh_constants(searched_program const& searched, mesh_instructions const& list);

    /// Tells whether a constant is computed, not read.
    [[nodiscard]] bool is_computed(tensor_id t) const { return producer_[t] != none; }
    /// Notes that a tensor is held in a form. Returns whether it was not.
    bool hold(tensor_id t, product_form const& f) { return made_.insert({t, f}).second; }
    /// Adds what makes a constant in a form, if it is not there.
    void make(tensor_id t, product_form const& f, mesh_instructions& into);

private:
    static constexpr operator_id none = ~operator_id{0};
    /// A computation that makes the results in these forms; nothing if there is none.
    [[nodiscard]] std::optional<mesh_instruction> find(operator_id o,
                                                       std::vector<std::optional<product_form>> const& f) const;

    indexed_program const& given_;
    /// By tensor, the operator that computes it as a constant.
    std::vector<operator_id> producer_;
    std::map<operator_id, mesh_instruction> chosen_;
    std::set<std::pair<tensor_id, product_form>> made_;
};

HEDDLE_INLINE mesh_constants::mesh_constants(searched_program const& searched, mesh_instructions const& list)
    : given_(searched.given()), producer_(searched.program().tensors.size(), none) {
    product_form const whole(list.empty() ? 1 : list.front().axes.size(), tensor_form::replicated());
    for (operator_id o = 0; o < given_.operators.size(); ++o)
        for (auto t : given_.operators[o].results)
            if (searched.program().tensors[t].at_cuts == tensor_at_cuts::free) producer_[t] = o;
    std::map<tensor_id, std::set<product_form>> used;
    for (auto const& i : list)
        if (i.axes[0].is<instruction::read>() && is_computed(i.tensor())) used[i.tensor()].insert(i.to());
    for (auto o = static_cast<operator_id>(given_.operators.size()); o-- > 0;) {
        auto const& op = given_.operators[o];
        if (producer_[op.results[0]] != o) continue;
        std::vector<std::optional<product_form>> forms;
        bool is_used = false;
        for (auto t : op.results) {
            auto const& all = used[t];
            is_used = is_used || !all.empty();
            forms.push_back(all.empty() ? std::nullopt : std::optional(all.size() == 1 ? *all.begin() : whole));
        }
        if (!is_used) continue;
        auto found = find(o, forms);
        if (!found) found = find(o, std::vector<std::optional<product_form>>(op.results.size(), whole));
        for (std::size_t k = 0; k < op.operands.size(); ++k) used[op.operands[k]].insert(found->operand(k));
        chosen_.emplace(o, std::move(*found));
    }
}

HEDDLE_INLINE std::optional<mesh_instruction> mesh_constants::find(
    operator_id o, std::vector<std::optional<product_form>> const& f) const {
    auto const all = computations(given_, o);
    auto const fits = [&](instruction::compute const& i, axis_number axis) {
        for (std::size_t k = 0; k < f.size(); ++k)
            if (f[k] && i.results[k] != (*f[k])[axis]) return false;
        return algorithm::none_of(i.operands, [](tensor_form x) { return x == tensor_form::partial(); });
    };
    std::size_t const axes = algorithm::find_if(f, [](auto const& form) { return form.has_value(); })->value().size();
    mesh_instructions begun{mesh_instruction(std::vector<instruction>{})}; // of the outer axes
    for (axis_number a = 0; a < axes; ++a) {
        mesh_instructions longer;
        for (auto const& outside : begun)
            for (auto const& i : all)
                if (fits(i, a))
                    if (auto together = outside.with_axis(a, i); goes_together(given_, together))
                        longer.push_back(std::move(together));
        begun = std::move(longer);
    }
    return begun.empty() ? std::nullopt : std::optional(std::move(begun.front()));
}

HEDDLE_INLINE void mesh_constants::make(tensor_id t, product_form const& f, mesh_instructions& into) {
    if (made_.contains({t, f})) return;
    if (!is_computed(t)) {
        hold(t, f);
        into.push_back(mesh_instruction::read(t, f));
        return;
    }
    auto const& op = given_.operators[producer_[t]];
    auto const& computed = chosen_.at(producer_[t]);
    auto const k = static_cast<std::size_t>(algorithm::find(op.results, t) - op.results.begin());
    if (!made_.contains({t, computed.result(k)})) {
        for (std::size_t n = 0; n < op.operands.size(); ++n) make(op.operands[n], computed.operand(n), into);
        into.push_back(computed);
        for (std::size_t n = 0; n < op.results.size(); ++n) hold(op.results[n], computed.result(n));
    }
    auto form = computed.result(k);
    for (axis_number a = 0; a < f.size(); ++a) { // cuts are put on from outside in
        if (form[a] == f[a]) continue;
        auto const from = form;
        form = form.with(a, f[a]);
        if (hold(t, form)) into.push_back(mesh_instruction::convert(t, from, a, f[a]));
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE mesh_instructions in_given(searched_program const& searched, mesh_instructions const& list) {
    detail::mesh_constants constants(searched, list);
    mesh_instructions result;
    for (auto const& i : list) {
        if (i.axes[0].is<instruction::read>() &&
            searched.program().tensors[i.tensor()].at_cuts == tensor_at_cuts::free) {
            constants.make(i.tensor(), i.to(), result);
            continue;
        }
        bool const is_for_use = algorithm::any_of(i.axes, [](instruction const& on_axis) {
            return on_axis.is<instruction::unshard>() || on_axis.is<instruction::reshard>();
        });
        if (!i.axes[0].is<instruction::compute>() && !is_for_use && !constants.hold(i.tensor(), i.to()))
            continue; // there already
        mesh_instruction there = i;
        bool counts = true;
        for (auto& of_axis : there.axes) {
            auto part = searched.in_given(of_axis);
            counts = counts && part;
            if (part) of_axis = std::move(*part);
        }
        if (counts) result.push_back(std::move(there));
    }
    return result;
}

} // namespace heddle

#endif
