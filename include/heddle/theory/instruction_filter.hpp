// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Restrictions of the theory, by instruction.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>

namespace heddle {

/// Tells which instructions are to be considered.
struct instruction_filter {
    std::function<bool(instruction const&)> allows;
    /// *Axiom.* Instructions for operators of one kind, on tensors of equal marks, are allowed alike. If there is no
    /// mark, no two operators count as one kind.
    std::function<std::uint64_t(tensor_id)> mark{};

    template <std::predicate<instruction const&> Allows>
    instruction_filter(Allows a) : allows(std::move(a)) {}
    template <std::predicate<instruction const&> Allows, std::invocable<tensor_id> Mark>
    instruction_filter(Allows a, Mark m) : allows(std::move(a)), mark(std::move(m)) {}

    [[nodiscard]] bool operator()(instruction const& i) const { return allows(i); }
    static std::uint64_t no_mark(tensor_id) { return 0; }
    static instruction_filter everything() {
        return {[](instruction const&) { return true; }, no_mark};
    }
};

/// Allows what one of two filters allows.
[[nodiscard]] instruction_filter either(instruction_filter const& a, instruction_filter const& b);
/// Allows what both allow.
[[nodiscard]] instruction_filter both(instruction_filter const& a, instruction_filter const& b);

/// When a parameter that is used once, and whole, is best gathered.
enum class best_gather : std::uint8_t {
    after_update, ///< A collective takes as long anywhere, and one between two operators closes a stage: only the optimiser state is in shards.
    before_use,   ///< Beside work, which may hide it: the parameter itself is in shards.
    either        ///< To gather before use spares the gradient a copy.
};

/// Allows programs as fast as any of `cut_space`, though not as small: nothing is unsharded for a stage or resharded,
/// and what is used once, and whole, is gathered when that is best.
///
/// The transfers are the same in all of these programs. After the update nothing hides them. If micro-batches take
/// turns, a gather before use delays the forward pass by no more than it takes, and a replicated parameter and its
/// gradient cost no less whole than in shards. A mirrored parameter's gradient is cut into shards by a kernel of its
/// own, so both ways are kept for it. What is unsharded must be gathered within its stage, and its gradient reduced
/// there.
[[nodiscard]] instruction_filter fastest_programs(indexed_program const& p,
                                                  best_gather when = best_gather::after_update);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/operator_kinds.hpp>

#include <map>
#include <memory>

namespace heddle {

namespace detail {

/// A filter that tells tensors apart where one of two does.
HEDDLE_INLINE instruction_filter combined(std::function<bool(instruction const&)> allows, instruction_filter const& a,
                                          instruction_filter const& b) {
    if (!a.mark || !b.mark) return allows;
    auto const numbers = std::make_shared<std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>>();
    return {std::move(allows), [mark_of_a = a.mark, mark_of_b = b.mark, numbers](tensor_id t) {
                return numbers->try_emplace({mark_of_a(t), mark_of_b(t)}, numbers->size()).first->second;
            }};
}

} // namespace detail

HEDDLE_INLINE instruction_filter either(instruction_filter const& a, instruction_filter const& b) {
    return detail::combined([a, b](instruction const& i) { return a(i) || b(i); }, a, b);
}

HEDDLE_INLINE instruction_filter both(instruction_filter const& a, instruction_filter const& b) {
    return detail::combined([a, b](instruction const& i) { return a(i) && b(i); }, a, b);
}

HEDDLE_INLINE instruction_filter fastest_programs(indexed_program const& p, best_gather when) {
    auto const allows = [&p, when](instruction const& i) {
        if (i.is<instruction::compute>()) return true;
        if (i.is<instruction::unshard>() || i.is<instruction::reshard>()) return false;
        auto const& [t, from, to] = *i.change();
        if (!from.is_shard() || !to.is_whole() || !p.tensors[t].is_parameter() || !is_used_once(p, t)) return true;
        if (i.is<instruction::convert>()) return when != best_gather::after_update;
        return when != best_gather::before_use || to == tensor_form::mirrored();
    };
    return {allows, instruction_filter::no_mark};
}

} // namespace heddle

#endif
