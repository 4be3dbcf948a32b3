// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Restrictions of the theory, by instruction.
#pragma once

#include <heddle/theory/instruction.hpp>
#include <heddle/theory/operator_kinds.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>

namespace heddle {

/// Which instructions are to be considered.
struct instruction_filter {
    std::function<bool(instruction const&)> allows;
    /// *Axiom.* Instructions for operators of one kind, on tensors of equal marks, are allowed alike. Without it there are no such operators.
    std::function<std::uint64_t(tensor_id)> mark{};

    template <std::predicate<instruction const&> Allows>
    instruction_filter(Allows a) : allows(std::move(a)) {}
    template <std::predicate<instruction const&> Allows, std::invocable<tensor_id> Mark>
    instruction_filter(Allows a, Mark m) : allows(std::move(a)), mark(std::move(m)) {}

    [[nodiscard]] bool operator()(instruction const& i) const { return allows(i); }
    static std::uint64_t no_mark(tensor_id) { return 0; }
    static instruction_filter everything() { return {[](instruction const&) { return true; }, no_mark}; }
};

/// Programs as fast as any of `cut_space`, if not as small: what is used once, and whole, is whole between iterations, its
/// optimiser state in shards or not. To gather it for its use takes the same transfers, and one of them closes a stage.
[[nodiscard]] inline instruction_filter fastest_programs(indexed_program const& p) {
    auto const allows = [&p](instruction const& i) {
        using enum instruction::kind;
        if (i.what == unshard || i.what == reshard) return false;
        return !(i.what == convert && i.from.is_shard() && i.to.is_whole() && p.tensors[i.tensor].is_parameter() && is_used_once(p, i.tensor));
    };
    return {allows, instruction_filter::no_mark};
}

} // namespace heddle
