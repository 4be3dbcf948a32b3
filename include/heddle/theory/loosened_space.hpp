// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs of a loosened program whose cuts are narrow, as a layered graph.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/loosened_program.hpp>
#include <heddle/theory/operator_kinds.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace heddle {

/// A loosened program and all of its programs.
struct loosened_space {
    explicit loosened_space(indexed_program p) : program(std::move(p)) {}
    loosened_space(loosened_space const&) = delete;

    loosened_program program;
    std::optional<cut_space> space;
    search::state_graph<cut_space::action> graph;
};

/// Loosens tensors of a program in `result` until no cut has more than `most` states, under a restriction of the
/// program; `in_stages` has programs divided into stages. False if nothing is left to be loosened, or time is over.
[[nodiscard]] bool loosen_until_narrow(loosened_space& result, instruction_filter const& allowed, std::size_t most,
                                       bool in_stages, search::deadline const& until);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE bool loosen_until_narrow(loosened_space& result, instruction_filter const& allowed, std::size_t most,
                                       bool in_stages, search::deadline const& until) {
    auto& loose = result.program;
    // Restrictions tell the operators of these kinds apart, so a program with more of one kind must too.
    auto const kinds = operator_kinds(loose.program());
    while (!until.is_over()) {
        auto& space = result.space.emplace(loose.program(), alike_in_both(operator_kinds(loose.program()), kinds), 1);
        if (in_stages) space.divide_into_stages();
        space.restore(loose.restorations());
        space.bound_what_is_left_out();
        space.restrict_to(loose.as_loosened(allowed));
        result.graph = search::explore(space, [&] { return most; }, 1);
        if (result.graph.is_complete) return true;
        auto const& first = result.graph.first_of_level;
        std::size_t level = 0;
        while (first[level + 1] - first[level] < most) ++level;
        if (!loose.loosen_at(level)) return false;
    }
    return false;
}

} // namespace heddle

#endif
