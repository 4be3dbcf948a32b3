// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How plans compute operators, for programs that have operators of the same kinds.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/operator_kinds.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace heddle {

/// Collects the computations of plans by kinds of operators. Programs that have the same layers need not be searched
/// for these anew: few programs are made of them, and the best of these is mostly as good as any.
class known_computations {
public:
    explicit known_computations(kinds_alike by) : kinds_(by) {}

    /// Adds the computations of a plan on one axis.
    void add(indexed_program const& p, plan const& of);
    /// Allows for an operator the computations that are known of its kind, or all where there are none. Returns nothing
    /// unless some are known for most operators. *Lifetime:* of this.
    [[nodiscard]] std::optional<instruction_filter> keeping_to(indexed_program const& p);

private:
    kind_numbers kinds_;
    std::map<std::uint32_t, std::set<computation_codes>> known_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>

#include <cstddef>
#include <utility>

namespace heddle {

HEDDLE_INLINE void known_computations::add(indexed_program const& p, plan const& of) {
    auto const kinds = kinds_.of(p);
    for (auto const& s : of.steps)
        if (auto const* const compute = s.instruction.as<instruction::compute>())
            known_[kinds[compute->op]].insert(codes_of(*compute));
}

HEDDLE_INLINE std::optional<instruction_filter> known_computations::keeping_to(indexed_program const& p) {
    std::vector<std::set<computation_codes> const*> known;
    for (auto const kind : kinds_.of(p)) {
        auto const found = known_.find(kind);
        known.push_back(found == known_.end() ? nullptr : &found->second);
    }
    auto const unknown = static_cast<std::size_t>(algorithm::count(known, nullptr));
    if (2 * unknown > known.size()) return std::nullopt;
    auto const allows = [known = std::move(known)](instruction const& i) {
        auto const* const compute = i.as<instruction::compute>();
        return !compute || !known[compute->op] || known[compute->op]->contains(codes_of(*compute));
    };
    return instruction_filter{allows, instruction_filter::no_mark};
}

} // namespace heddle

#endif
