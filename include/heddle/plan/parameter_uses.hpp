// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How the devices of a plan hold its parameters, and what they use of them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// How the places on one axis hold a parameter.
enum class parameter_holding : std::uint8_t {
    replicated,              ///< whole, its gradient summed
    mirrored,                ///< whole, and each has the whole gradient at once
    masked,                  ///< whole, of which each uses a summand
    replicated_state_shards, ///< replicated, but the optimiser's state is in shards
    mirrored_state_shards,   ///< mirrored, likewise
    sharded,                 ///< in shards, and used in them
    gathered,                ///< in shards, gathered for its uses
    gathered_once,           ///< in shards, gathered for its one use
    gathered_twice           ///< in shards, gathered for its one use in each direction
};

[[nodiscard]] constexpr char const* name(parameter_holding s) {
    constexpr std::array names{"replicated",
                               "mirrored",
                               "replicated, masked for use",
                               "replicated, optimizer sharded",
                               "mirrored, optimizer sharded",
                               "sharded",
                               "sharded, gathered for use",
                               "sharded, gathered once",
                               "sharded, gathered twice"};
    return names[static_cast<std::size_t>(s)];
}

/// One parameter of a plan.
struct parameter_use {
    tensor_id tensor = 0;
    /// The form in which it, or its optimiser's state, stays, and the one in which it is used, gathered if it is.
    product_form stored, used;
    /// By axis, outermost first.
    std::vector<parameter_holding> storage;
    /// It is cut as a computation is that sends rows to the devices that hold what they need: expert parallelism.
    bool is_of_experts = false;
};

/// Returns the parameters that a plan reads, in the order of reading. *Complexity:* linear in steps and cuts, times a
/// logarithm.
[[nodiscard]] std::vector<parameter_use> parameter_uses(plan const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

/// Returns what is cut as the rows are that computations send.
HEDDLE_INLINE std::set<std::pair<tensor_id, factor_number>> cut_with_sent_rows(plan const& p) {
    std::set<std::pair<tensor_id, factor_number>> sent, result;
    for (auto const& s : p.steps)
        if (sends_rows(s)) sent.insert({s.step.share.tensor, s.step.share.factor});
    for (auto const& c : p.cuts)
        if (algorithm::any_of(c.members, [&](auto const& m) { return sent.contains({m.tensor, m.factor}); }))
            for (auto const& m : c.members) result.insert({m.tensor, m.factor});
    return result;
}

HEDDLE_INLINE parameter_holding holding_of(heddle::instruction::read const& read) {
    using enum parameter_holding;
    if (read.to.is_shard()) return sharded;
    if (read.to == tensor_form::partial()) return masked;
    bool const is_mirrored = read.to == tensor_form::mirrored();
    if (read.from.is_shard()) return is_mirrored ? mirrored_state_shards : replicated_state_shards;
    return is_mirrored ? mirrored : replicated;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<parameter_use> parameter_uses(plan const& p) {
    std::vector<parameter_use> uses;
    std::map<tensor_id, std::size_t> place;
    auto const with_rows = detail::cut_with_sent_rows(p);
    for (auto const& s : p.steps) {
        if (s.instruction.is<instruction::compute>()) continue;
        tensor_id const t = s.acting().change()->tensor;
        if (s.instruction.is<instruction::read>()) {
            if (p.tensors[t].role != tensor_role::parameter) continue;
            parameter_use use{t, s.from(), s.to(), {}};
            for (axis_number a = 0; a < s.axis_count(); ++a) {
                use.storage.push_back(detail::holding_of(*s.on_axis(a).as<instruction::read>()));
                if (use.storage[a] == parameter_holding::masked)
                    use.stored = use.stored.with(a, tensor_form::replicated());
            }
            use.is_of_experts = algorithm::any_of(
                use.used, [&](tensor_form f) { return f.is_shard() && with_rows.contains({t, f.factor()}); });
            place.try_emplace(t, uses.size());
            uses.push_back(std::move(use));
        } else if (auto const known = place.find(t); known != place.end()) {
            auto& use = uses[known->second];
            for (axis_number a = 0; a < s.axis_count(); ++a) {
                auto const* const unshard = s.on_axis(a).as<instruction::unshard>();
                auto const* const change = s.on_axis(a).change();
                if (s.on_axis(a).is<instruction::reshard>() || !change->from.is_shard() || change->to.is_shard())
                    continue;
                use.storage[a] = !unshard                ? parameter_holding::gathered
                                 : unshard->is_resharded ? parameter_holding::gathered_twice
                                                         : parameter_holding::gathered_once;
                use.used = use.used.with(a, change->to);
            }
        }
    }
    return uses;
}

} // namespace heddle

#endif
