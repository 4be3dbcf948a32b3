// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sets of the factors of a program's tensors, and what loops tie to them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

namespace heddle {

/// A factor of a tensor, as the thing that is cut.
struct cut_factor {
    tensor_id tensor = 0;
    factor_number factor = 0;
    friend auto operator<=>(cut_factor const&, cut_factor const&) = default;
};

/// Some of the factors of a program.
class factor_set {
public:
    explicit factor_set(indexed_program const& p);
    void insert(cut_factor f) { holds_[first_[f.tensor] + static_cast<std::size_t>(f.factor)] = true; }
    void insert(std::vector<cut_factor> const& factors) {
        for (auto const& f : factors) insert(f);
    }
    [[nodiscard]] bool contains(cut_factor f) const {
        return holds_[first_[f.tensor] + static_cast<std::size_t>(f.factor)];
    }
    /// Returns the first of a tensor's factors in the set, or `no_factor`.
    [[nodiscard]] factor_number first_of(tensor_id t) const;
    /// Returns a number that differs between tensors whose factors in the sets differ.
    [[nodiscard]] static std::uint64_t mark(std::initializer_list<factor_set const*> sets, tensor_id t);

private:
    std::vector<std::size_t> first_;
    std::vector<bool> holds_;
};

/// Visits the factors that a loop is in, which are cut at the same points. Of an exchange, these are where rows are
/// sent to: the rows themselves are cut as by another loop.
template <std::invocable<cut_factor> Visit>
void for_each_factor_of(indexed_operator const& op, split_loop const& loop, Visit&& visit) {
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (loop.operands[k] != no_factor && (!loop.exchanges() || loop.is_destination[k]))
            visit(cut_factor{op.operands[k], loop.operands[k]});
    for (std::size_t k = 0; k < op.results.size() && !loop.exchanges(); ++k)
        if (loop.results[k] != no_factor) visit(cut_factor{op.results[k], loop.results[k]});
}

/// Tells whether a loop is in some of these factors.
[[nodiscard]] inline bool is_of(indexed_operator const& op, split_loop const& loop, factor_set const& factors) {
    bool is_in = false;
    for_each_factor_of(op, loop, [&](cut_factor f) { is_in |= factors.contains(f); });
    return is_in;
}

/// Returns these factors and all that loops tie to them.
[[nodiscard]] factor_set tied_factors(indexed_program const& p, factor_set factors);

namespace detail {

/// Returns the factor of a tensor's first dimension that most operators can be split along, the outermost of
/// equals. *Precondition:* there is one.
[[nodiscard]] std::size_t most_used_factor(indexed_program const& p, tensor_id t);

} // namespace detail

/// The batch where a program gets it: in the first dimension of the first input, the factor that most operators can be
/// split along, the outermost of equals; of each other input the factor at that place, if it has the same extent. Inputs
/// that every part of the batch has whole are left out, unless they are asked for as well.
[[nodiscard]] std::vector<cut_factor> batch_of_inputs(indexed_program const& p, bool with_whole = false);

/// The samples of a program's batch, all pieces that it may be taken apart into together. *Throws* `input_error` if no
/// input has one of two or more.
[[nodiscard]] extent batch_size_of(indexed_program const& p);

/// Returns the batch and all factors that loops tie to it.
[[nodiscard]] factor_set batch_factors(indexed_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE factor_set::factor_set(indexed_program const& p) {
    first_.push_back(0);
    for (auto const& t : p.tensors) first_.push_back(first_.back() + t.factors.size());
    holds_.resize(first_.back());
}

HEDDLE_INLINE factor_number factor_set::first_of(tensor_id t) const {
    for (std::size_t f = first_[t]; f < first_[t + 1]; ++f)
        if (holds_[f]) return static_cast<factor_number>(f - first_[t]);
    return no_factor;
}

HEDDLE_INLINE std::uint64_t factor_set::mark(std::initializer_list<factor_set const*> sets, tensor_id t) {
    std::uint64_t bits = 1;
    for (auto const* set : sets)
        for (auto f = set->first_[t]; f < set->first_[t + 1]; ++f) {
            if (bits >> 62 != 0) return (std::uint64_t{1} << 63) | t;
            bits = bits << 1 | std::uint64_t{set->holds_[f]};
        }
    return bits;
}

HEDDLE_INLINE factor_set tied_factors(indexed_program const& p, factor_set factors) {
    // Operators are in topological order: a pass forward reaches what is computed from a factor, one backward what it
    // is computed from, such as the rows of a table that is expanded to the batch.
    bool is_grown = true;
    auto const tie = [&](indexed_operator const& op) {
        for (auto const& loop : op.loops) {
            if (!is_of(op, loop, factors)) continue;
            for_each_factor_of(op, loop, [&](cut_factor f) {
                is_grown |= !factors.contains(f);
                factors.insert(f);
            });
        }
    };
    while (std::exchange(is_grown, false)) {
        for (auto const& op : p.operators) tie(op);
        for (auto const& op : p.operators | std::views::reverse) tie(op);
    }
    return factors;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE std::size_t most_used_factor(indexed_program const& p, tensor_id t) {
    auto const& factors = p.tensors[t].factors;
    auto const is_alike = [&](factor const& f) {
        return f.dimension == 0 && f.segment == factors[0].segment && f.widths.empty();
    };
    auto const last = static_cast<std::size_t>(algorithm::count_if(factors, is_alike)) - 1;
    auto const uses = [&](std::size_t f) {
        factor_set tied(p);
        tied.insert({t, static_cast<factor_number>(f)});
        tied = tied_factors(p, std::move(tied));
        return algorithm::count_if(p.operators, [&](auto const& op) {
            return algorithm::any_of(op.loops, [&](auto const& loop) { return is_of(op, loop, tied); });
        });
    };
    std::size_t best = 0;
    for (std::size_t f = 1; f <= last; ++f)
        if (uses(f) > uses(best)) best = f;
    return best;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<cut_factor> batch_of_inputs(indexed_program const& p, bool with_whole) {
    std::vector<tensor_id> inputs;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        auto const& factors = p.tensors[t].factors;
        if (p.tensors[t].info.role == tensor_role::input && !factors.empty() && factors[0].dimension == 0)
            inputs.push_back(t);
    }
    auto const is_divided = [&](tensor_id t) { return p.tensors[t].info.is_divided_input(); };
    auto const first = algorithm::find_if(inputs, is_divided);
    if (first == inputs.end()) return {};
    auto const place = detail::most_used_factor(p, *first);
    auto const size = p.tensors[*first].factors[place].extent;
    std::vector<cut_factor> batch;
    for (auto const t : inputs) {
        auto const& factors = p.tensors[t].factors;
        if (!with_whole && !is_divided(t)) continue;
        if (place >= factors.size() || factors[place].dimension != 0 || factors[place].extent != size) continue;
        for (std::size_t f = 0; f < factors.size(); ++f) // in every segment
            if (is_same_place(factors[f], factors[place])) batch.push_back({t, static_cast<factor_number>(f)});
    }
    return batch;
}

HEDDLE_INLINE extent batch_size_of(indexed_program const& p) {
    auto const batch = batch_of_inputs(p);
    if (batch.empty())
        throw input_error(
            "batch", "no input has one of two or more samples, expected inputs whose first dimension is the batch");
    auto const& tensor = p.tensors[batch.front().tensor];
    return tensor.info.shape[0] / tensor.factors[static_cast<std::size_t>(batch.front().factor)].stride;
}

HEDDLE_INLINE factor_set batch_factors(indexed_program const& p) {
    factor_set batch(p);
    batch.insert(batch_of_inputs(p));
    return tied_factors(p, std::move(batch));
}

} // namespace heddle

#endif
