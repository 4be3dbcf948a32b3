// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A restriction of the theory that makes nothing dearer: what passes through a view is converted before the
/// view.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// The results of views that are converted before the view, and the forms in which views make them.
class seen_through_views {
public:
    seen_through_views(indexed_program const& p, instruction_filter const& allowed);

    /// Returns false for instructions that the programs kept do without.
    [[nodiscard]] bool needs(instruction const& i) const;
    /// Describes all of a tensor that `needs` depends on.
    [[nodiscard]] std::vector<std::uint64_t> description(tensor_id t) const;

private:
    /// A form that a view's result has if the view's operand is cut alike; and whether the result is used in it, or
    /// converted to a form to which the operand has no counterpart.
    struct seen_form {
        tensor_form as;
        bool is_taken = false;
    };

    static bool contains(std::vector<tensor_form> const& list, tensor_form f) {
        return algorithm::find(list, f) != list.end();
    }
    [[nodiscard]] seen_form const* find(tensor_id t, tensor_form f) const;
    /// Tells whether an operator is a view of all of one tensor, which is no parameter; such a view costs nothing in
    /// any form.
    [[nodiscard]] bool is_free(operator_id o) const;
    /// Tells whether the operand of a view is also used elsewhere, and the result once, with no work between.
    [[nodiscard]] bool is_one_use_of_several(operator_id o) const;
    /// Tells whether conversions between such forms cost the same before and after the view.
    [[nodiscard]] bool is_split_alike(instruction::compute const& i) const;

    indexed_program const& program_;
    /// The seen forms of each tensor; only results of free views have any.
    std::vector<std::vector<seen_form>> seen_;
};

} // namespace detail

/// Restricts the programs of `allowed` in how they convert a tensor x with several uses. Let y be the result of a view
/// of x that is used once, with nothing but views between. Then y is not converted: x is converted before the view, if
/// that form may serve its other uses. Nor does the view make y in a form that nobody takes. So a use of three views of
/// one tensor meets them only in the forms that go together.
///
/// If costs add up, some kept program is as cheap and as small as any that is left out. Let a view make y from x in
/// form f', which gives y form f, and let y be converted to g, another form that the view could have made, from x in
/// form g'. Converting x from f' to g' and making y in form g at once costs the same: the view is free in either form,
/// and x and y are of one size and type, both or neither with a cotangent, cut along factors of the same segment and
/// extent, so in the same shares. Nothing else needs y in form f, as y has one use; x may stay in form f' for its other
/// uses, and may be in form g' already. If x was brought to f' first, it goes straight to g', which `cut_space` takes
/// to be no dearer than two steps. In either program y is saved in form g.
///
/// A collective stays at its place among all work, so if it closes a stage, it closes the same one. There is one
/// exception: if a stage begins with the parameters of the use, and at no collective, local conversions move to the
/// stage before.
/// *Precondition.* `allowed` holds for all conversions of tensors that are computed.
/// Keeps a reference to the program. *Complexity.* Linear in the program, expected.
[[nodiscard]] instruction_filter converting_before_views(indexed_program const& p, instruction_filter const& allowed);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle::detail {

HEDDLE_INLINE seen_through_views::seen_through_views(indexed_program const& p, instruction_filter const& allowed)
    : program_(p), seen_(p.tensors.size()) {
    auto const kinds = operator_kinds(p);
    std::vector<std::vector<instruction::compute>> of_kind(p.operators.size());
    auto const for_each_computation = [&](operator_id o, auto&& visit) {
        auto& list = of_kind[kinds[o]];
        if (list.empty()) list = computations(p, o);
        for (auto& i : list) {
            i.op = o;
            instruction const one = i;
            if (allowed(one) && needs(one)) visit(i);
        }
    };
    for (auto o = static_cast<operator_id>(p.operators.size());
         o-- > 0;) { // what uses a view's result comes before the view
        if (!is_free(o) || !is_one_use_of_several(o)) continue;
        auto const t = p.operators[o].results[0];
        auto const user = p.tensors[t].consumers[0];
        std::vector<tensor_form> same, taken;
        for_each_computation(o, [&](instruction::compute const& i) {
            if (is_split_alike(i)) same.push_back(i.results[0]);
        });
        for_each_computation(user, [&](instruction::compute const& i) {
            taken.push_back(i.operands[position_of(p.operators[user], t)]);
        });
        for (std::uint16_t code = 0; code < 3 + p.tensors[t].factors.size(); ++code)
            if (tensor_form const to = tensor_form::from_code(code);
                is_possible(to, p.tensors[t]) && !contains(same, to))
                std::ranges::copy_if(same, std::back_inserter(taken),
                                     [&](tensor_form f) { return find_conversion(f, to).has_value(); });
        for (tensor_form f : same) seen_[t].push_back({f, contains(taken, f)});
    }
}

HEDDLE_INLINE bool seen_through_views::needs(instruction const& i) const {
    if (auto const* convert = i.as<instruction::convert>())
        return !find(convert->tensor, convert->from) || !find(convert->tensor, convert->to);
    auto const* const compute = i.as<instruction::compute>();
    if (!compute) return true;
    auto const* result = find(program_.operators[compute->op].results[0], compute->results[0]);
    return !result || result->is_taken;
}

HEDDLE_INLINE std::vector<std::uint64_t> seen_through_views::description(tensor_id t) const {
    std::vector<std::uint64_t> result;
    for (auto const& s : seen_[t]) result.push_back(std::uint64_t{s.as.code()} << 1 | std::uint64_t{s.is_taken});
    return result;
}

HEDDLE_INLINE seen_through_views::seen_form const* seen_through_views::find(tensor_id t, tensor_form f) const {
    auto const found = algorithm::find(seen_[t], f, &seen_form::as);
    return found == seen_[t].end() ? nullptr : &*found;
}

HEDDLE_INLINE bool seen_through_views::is_free(operator_id o) const {
    auto const& op = program_.operators[o];
    auto const& work = op.work;
    if (!work.is_view || work.extra_saved.value > 0 || !work.saved_operands.empty() || !work.saved_results.empty())
        return false;
    if (algorithm::any_of(op.loops,
                          [](split_loop const& l) { return l.forward_statistics + l.backward_statistics > 0; }))
        return false;
    if (op.operands.size() != 1 || op.results.size() != 1) return false;
    auto const &x = program_.tensors[op.operands[0]], &y = program_.tensors[op.results[0]];
    bool const is_inside = x.inside != no_factor;
    return !x.is_parameter() && x.info.type == y.info.type && x.info.size() == y.info.size() &&
           x.has_cotangent == y.has_cotangent && is_inside == (y.inside != no_factor) &&
           is_inside == (op.inside_loop >= 0);
}

HEDDLE_INLINE bool seen_through_views::is_one_use_of_several(operator_id o) const {
    auto const t = program_.operators[o].results[0];
    if (is_used_once(program_, program_.operators[o].operands[0]) || t == program_.loss || !is_used_once(program_, t))
        return false;
    for (auto between = o + 1; between < program_.tensors[t].consumers[0]; ++between)
        if (!is_free(between)) return false;
    return true;
}

HEDDLE_INLINE bool seen_through_views::is_split_alike(instruction::compute const& i) const {
    tensor_form const before = i.operands[0], after = i.results[0];
    if (!before.is_shard() || !after.is_shard()) return before == after;
    auto const& op = program_.operators[i.op];
    auto const &x = program_.tensors[op.operands[0]], &y = program_.tensors[op.results[0]];
    auto const &f = x.factors[static_cast<std::size_t>(before.factor())],
               &g = y.factors[static_cast<std::size_t>(after.factor())];
    return f.extent == g.extent && f.segment == g.segment &&
           (x.inside == before.factor()) == (y.inside == after.factor());
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE instruction_filter converting_before_views(indexed_program const& p, instruction_filter const& allowed) {
    auto const seen = std::make_shared<detail::seen_through_views const>(p, allowed);
    auto const allows = [seen, allowed](instruction const& i) { return allowed(i) && seen->needs(i); };
    if (!allowed.mark) return allows;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<std::uint64_t> marks;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto key = seen->description(t);
        key.push_back(allowed.mark(t));
        marks.push_back(numbers.insert(std::move(key)).first);
    }
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

} // namespace heddle

#endif
