// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which operands of an operator hold places, and of which dimension.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/inverse_ranges.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <vector>

namespace heddle::detail {

/// A tensor of integers that are places of a dimension of another tensor.
struct lookup {
    tensor_id places, table;
    std::size_t dimension;
    /// Tells whether places may be counted from the dimension's end, as numbers below zero.
    bool from_end = false;

    /// Returns where places have to be if the dimension has this extent.
    [[nodiscard]] number_range range(extent size) const {
        auto const count = static_cast<double>(size);
        return {from_end ? -count : 0, count};
    }
};

/// Returns what an operator looks up; nothing of places that a mask says.
[[nodiscard]] std::vector<lookup> lookups_of(program const& p, operator_id o);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::vector<lookup> lookups_of(program const& p, operator_id o) {
    std::string_view const kind = p.kind(o);
    auto const of = p.operands(o);
    auto const rank = [&](std::size_t k) { return p.tensor(of[k]).shape.size(); };
    if (kind == "embedding" || kind == "embedding_bag") return {{of[0], of[1], 0}};
    if (kind == "routed_experts") return {{of[1], of[3], 0}};
    if (kind == "one_hot") return {{of[0], p.results(o)[0], p.tensor(p.results(o)[0]).shape.size() - 1}};
    if (kind == "nll_loss" || kind == "nll" || kind == "cross_entropy") {
        if (rank(1) >= rank(0)) return {}; // probabilities
        return {{of[1], of[0], rank(0) > 1 ? std::size_t{1} : 0}};
    }
    bool const is_index = kind == "getitem" || kind == "index", is_put = kind == "index_put";
    constexpr std::string_view kinds[]{"gather", "index_select", "index_add", "scatter_add", "scatter"};
    auto const axis = number_of(p, o, "dim");
    if (!axis || number_of(p, o, "is_mask") ||
        (!is_index && !is_put && algorithm::find(kinds, kind) == std::end(kinds)))
        return {};
    std::vector<lookup> all;
    std::size_t const last = is_index ? of.size() : is_put ? of.size() - 1 : std::min<std::size_t>(of.size(), 2);
    for (std::size_t k = 1; k < last; ++k)
        all.push_back({of[k], of[0], static_cast<std::size_t>(*axis) + k - 1, is_index || is_put});
    return all;
}

} // namespace heddle::detail

#endif
