// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Well-known strategies of two axes, as restrictions of each.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle {

/// A strategy of one axis across machines and one inside them.
struct mesh_strategy {
    std::string name;
    std::vector<instruction_filter> allowed;
    /// What each axis must have to count as this strategy.
    std::array<std::function<bool(instruction const&)>, 2> witnesses;
};

/// Returns the strategies of two axes that fit a program, each by its strategies of one axis, the outer one first. They
/// keep a reference to the program.
[[nodiscard]] std::vector<mesh_strategy> mesh_strategies_of(indexed_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>

namespace heddle {

namespace detail {

/// Allows parameters in shards but for those that have one factor alone, which an axis inside may cut: they may be
/// whole too, as `whole` has them.
[[nodiscard]] HEDDLE_INLINE instruction_filter cut_outside(indexed_program const& p, instruction_filter const& shards,
                                                           instruction_filter const& whole) {
    auto const may_be_whole = [&p](tensor_id t) {
        return p.tensors[t].is_parameter() && p.tensors[t].factors.size() < 2;
    };
    auto const allows = [=](instruction const& i) {
        auto const* const change = i.change();
        return shards(i) || (change && may_be_whole(change->tensor) && whole(i));
    };
    auto const both = either(shards, whole);
    return {allows, [=](tensor_id t) { return 2 * both.mark(t) + std::uint64_t{may_be_whole(t)}; }};
}

} // namespace detail

HEDDLE_INLINE std::vector<mesh_strategy> mesh_strategies_of(indexed_program const& p) {
    struct pair {
        char const *name, *across, *inside;
    };
    // Data across and tensors inside is Megatron's (Narayanan et al. 2021), hybrid sharding that of FSDP (Zhao et al.
    // 2023).
    constexpr std::array pairs{pair{"data x ZeRO-1", "DP-EV", "ZeRO-1"},
                               pair{"hybrid sharding", "DP-EV", "fully sharded"},
                               pair{"data x tensor", "DP-EV", "tensor parallel"},
                               pair{"ZeRO-1 x tensor", "ZeRO-1", "tensor parallel"},
                               pair{"fully sharded x tensor", "fully sharded", "tensor parallel"},
                               pair{"data x expert", "DP-EV", "expert parallel"},
                               pair{"expert x tensor", "expert parallel", "tensor parallel"}};
    auto const of_one_axis = baselines_of(p);
    std::vector<mesh_strategy> result;
    for (auto const& [name, across, inside] : pairs) {
        auto const outer = algorithm::find(of_one_axis, across, &baseline::at_even),
                   inner = algorithm::find(of_one_axis, inside, &baseline::at_even);
        if (outer == of_one_axis.end() || inner == of_one_axis.end()) continue;
        auto const& data = of_one_axis.front(); // replicated
        auto const allowed = detail::cut_outside(p, outer->allowed, data.allowed);
        result.push_back({name, {allowed, inner->allowed}, {outer->witness, inner->witness}});
    }
    return result;
}

} // namespace heddle

#endif
