// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which steps from cut to cut are alike.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/theory/operator_cuts.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace heddle {

/// Numbers for the steps of a program's cuts, and for the levels that they leave.
///
/// *Invariant.* Steps of one number are over operators of one kind, whose tensors are of equal marks and in equal slots
/// before and after, as is what is awaited from them on; levels of one number have the same steps in the same order. So
/// what is possible in one is possible in the other, with other tensors.
class alike_steps {
public:
    alike_steps() = default;
    /// `kinds`: by operator, and one for the end. Without `mark` steps of different levels are not alike.
    /// *Complexity.* Linear in the steps and the tensors of their operators, expected.
    alike_steps(indexed_program const& p, operator_cuts const& cuts, std::vector<operator_id> const& kinds,
                std::function<std::uint64_t(tensor_id)> const& mark);

    /// The level after the last has a number of its own.
    [[nodiscard]] std::uint64_t level(std::size_t number) const { return levels_[number]; }
    /// Tells advances of the level's `cut`th cut apart. The end has one step, from its only cut.
    [[nodiscard]] std::uint64_t step(std::size_t level, std::uint32_t cut, std::size_t advance) const {
        return steps_[level][cut][advance];
    }

private:
    std::vector<std::uint64_t> levels_;
    std::vector<std::vector<std::vector<std::uint64_t>>> steps_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/cut_state.hpp>
#include <heddle/theory/operator_kinds.hpp>

namespace heddle {

HEDDLE_INLINE alike_steps::alike_steps(indexed_program const& p, operator_cuts const& cuts,
                                       std::vector<operator_id> const& kinds,
                                       std::function<std::uint64_t(tensor_id)> const& mark) {
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> steps, levels;
    std::vector<std::uint64_t> key, whole;
    for (std::size_t level = 0; level <= p.operators.size(); ++level) {
        auto& of_level = steps_.emplace_back();
        whole.clear();
        for (auto const& cut : cuts.of_level(level)) {
            auto& of_cut = of_level.emplace_back();
            for (auto const& over : cut.advances) {
                auto const& to = cuts.of_level(level + 1)[over.next].live;
                key = {kinds[over.op], over.op - level, cut.live.size()};
                key.insert(key.end(), over.slot.begin(), over.slot.end());
                auto const add_slots = [&](tensor_id t) {
                    for (auto const* live : {&cut.live, &to})
                        key.push_back(slot_of(*live, t).value_or(operator_cuts::gone));
                };
                for_each_tensor(p.operators[over.op], [&](tensor_id t) {
                    add_slots(t);
                    if (mark) key.push_back(mark(t));
                });
                for (auto const& [number, t] : cuts.awaited_after(over.op)) {
                    add_slots(t);
                    key.push_back(number);
                }
                if (!mark) key.push_back(level);
                of_cut.push_back(steps.insert(key).first);
                whole.insert(whole.end(), {of_cut.back(), over.next});
            }
            if (level == p.operators.size()) {
                of_cut.push_back(steps.insert({kinds[level]}).first);
                whole.push_back(of_cut.back());
            }
            whole.push_back(~std::uint64_t{0}); // the end of a cut
        }
        levels_.push_back(levels.insert(whole).first);
    }
    levels_.push_back(levels.size());
}

} // namespace heddle

#endif
