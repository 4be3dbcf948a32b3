// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The cuts of a program's graph: which operators may have run, and which tensors are in use then.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/operator_progress.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// Tensors, each after a number by which operators of one kind have the same ones.
using numbered_tensors = std::vector<std::pair<std::uint32_t, tensor_id>>;

/// Sets of operators that contain all that their members depend on (downsets of the order of operators), by their
/// number of operators. A path from the empty set to the whole one is an order in which the program may run.
/// Where there are several cuts of a size, what depends on parameters alone runs where it is needed; see
/// `operator_progress`.
///
/// HiDup section 4.1.
class operator_cuts {
public:
    /// Slot of a tensor that is no longer live.
    static constexpr std::uint32_t gone = ~std::uint32_t{0};
    /// From a cut over one operator to a cut of the next level. By slot in the cut: whether the tensor is of the
    /// operator, and its slot there.
    struct advance {
        operator_id op;
        std::uint32_t next;
        std::vector<bool> is_own;
        std::vector<std::uint32_t> slot;
    };
    struct cut {
        /// The tensors in use on both sides, or awaited, by when the given order first has them; the slot of one is
        /// where it stands.
        std::vector<tensor_id> live;
        /// There are no steps at the end.
        std::vector<advance> advances;
    };

    /// Keeps at most `width` cuts of every size, those met first; if it is one, they are the given order's.
    /// `awaited_after`, unless empty, has for each operator the tensors that are live once it has run, though it does
    /// not have them.
    /// *Preconditions:* `width > 0`; nothing is awaited unless it is one.
    /// *Complexity.* Linear in the cuts kept, their operators that can be next, and the tensors in use there.
    operator_cuts(indexed_program const& p, std::size_t width, std::vector<numbered_tensors> awaited_after = {});

    [[nodiscard]] std::vector<cut> const& of_level(std::size_t level) const { return levels_[level]; }
    /// Tells whether every order of operators is there, with those of parameters alone where they are needed; of a width
    /// of one, whether there is no other order at all.
    [[nodiscard]] bool is_complete() const { return is_complete_; }
    /// Returns what is awaited from an operator on.
    [[nodiscard]] numbered_tensors const& awaited_after(operator_id op) const {
        static numbered_tensors const nothing;
        return awaited_after_.empty() ? nothing : awaited_after_[op];
    }

private:
    /// The cuts of the given order.
    void keep_to_given_order();
    /// The cuts met first, of every size.
    void follow_orders(std::size_t width);
    /// Finds the tensors of an operator, each once, by their first use in the given order.
    void find_own(operator_id op);
    /// Calls `visit` for every tensor of an operator, and for what is awaited from it on.
    template <class Visit>
    void for_each_own(operator_id op, Visit const& visit) const {
        for_each_tensor(program_->operators[op], visit);
        for (auto const& [number, t] : awaited_after(op)) visit(t);
    }
    /// Returns what is live once the operator whose tensors were found has run.
    [[nodiscard]] std::vector<tensor_id> live_after(cut const& from, std::vector<bool> const& done) const;
    /// *Precondition:* the operator's tensors were found.
    [[nodiscard]] advance make_advance(cut const& from, operator_id op, std::uint32_t number, cut const& to) const;

    indexed_program const* program_;
    std::vector<numbered_tensors> awaited_after_;
    std::vector<std::vector<cut>> levels_;
    /// For each tensor, when it is first used.
    std::vector<std::uint32_t> rank_;
    std::vector<tensor_id> own_;
    bool is_complete_ = true;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/operator_kinds.hpp>

namespace heddle {

HEDDLE_INLINE operator_cuts::operator_cuts(indexed_program const& p, std::size_t width,
                                           std::vector<numbered_tensors> awaited_after)
    : program_(&p), awaited_after_(std::move(awaited_after)), levels_(p.operators.size() + 1),
      rank_(p.tensors.size(), gone) {
    std::uint32_t used = 0;
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for_each_own(o, [&](tensor_id t) {
            if (rank_[t] == gone) rank_[t] = used++;
        });
    levels_[0].resize(1);
    if (width == 1) keep_to_given_order();
    else follow_orders(width);
}

HEDDLE_INLINE void operator_cuts::keep_to_given_order() {
    std::vector<bool> done(program_->operators.size());
    for (operator_id o = 0; o < done.size(); ++o) {
        auto const waits_for = [&](tensor_id t) {
            return algorithm::find(program_->operators[o].operands, t) != program_->operators[o].operands.end();
        };
        is_complete_ = is_complete_ && (o == 0 || algorithm::any_of(program_->operators[o - 1].results, waits_for));
        done[o] = true;
        auto& from = levels_[o].front();
        find_own(o);
        levels_[o + 1].push_back({live_after(from, done), {}});
        from.advances.push_back(make_advance(from, o, 0, levels_[o + 1].front()));
    }
}

HEDDLE_INLINE void operator_cuts::follow_orders(std::size_t width) {
    operator_progress const progress(*program_);
    std::vector<operator_progress::set> here{progress.start()};
    for (std::size_t level = 0; level < program_->operators.size(); ++level) {
        std::map<std::vector<operator_id>, std::uint32_t> number;
        std::vector<operator_progress::set> there;
        auto& next_cuts = levels_[level + 1];
        for (std::size_t n = 0; n < here.size(); ++n) {
            auto& from = levels_[level][n];
            auto const choices = progress.next_of(here[n]);
            for (auto const op : choices) {
                find_own(op);
                auto next = progress.after(here[n], op);
                auto key = progress.key_of(next);
                auto found = number.find(key);
                if (found == number.end() && there.size() < width) {
                    found = number.emplace(std::move(key), static_cast<std::uint32_t>(there.size())).first;
                    next_cuts.push_back({live_after(from, next.done), {}});
                    there.push_back(std::move(next));
                }
                if (found != number.end())
                    from.advances.push_back(make_advance(from, op, found->second, next_cuts[found->second]));
            }
            is_complete_ = is_complete_ && from.advances.size() == choices.size();
        }
        here = std::move(there);
    }
}

HEDDLE_INLINE void operator_cuts::find_own(operator_id op) {
    own_.clear();
    for_each_own(op, [&](tensor_id t) { own_.push_back(t); });
    algorithm::sort(own_, {}, [&](tensor_id t) { return rank_[t]; });
    own_.erase(std::unique(own_.begin(), own_.end()), own_.end());
}

HEDDLE_INLINE std::vector<tensor_id> operator_cuts::live_after(cut const& from, std::vector<bool> const& done) const {
    std::vector<tensor_id> live;
    live.reserve(from.live.size() + own_.size());
    auto const add_own = [&](tensor_id t) {
        auto const& tensor = program_->tensors[t];
        bool const is_done = t != program_->loss && std::all_of(tensor.consumers.rbegin(), tensor.consumers.rend(),
                                                                [&](operator_id o) { return done[o]; });
        if (tensor.at_cuts != tensor_at_cuts::free && !is_done) live.push_back(t);
    };
    auto next = own_.begin();
    for (auto t : from.live) { // all are in one order
        while (next != own_.end() && rank_[*next] < rank_[t]) add_own(*next++);
        if (next != own_.end() && *next == t) add_own(*next++);
        else live.push_back(t);
    }
    while (next != own_.end()) add_own(*next++);
    return live;
}

HEDDLE_INLINE operator_cuts::advance operator_cuts::make_advance(cut const& from, operator_id op, std::uint32_t number,
                                                                 cut const& to) const {
    advance over{op, number, {}, {}};
    over.is_own.reserve(from.live.size());
    over.slot.reserve(from.live.size());
    auto next_own = own_.begin();
    auto next = to.live.begin();
    for (auto t : from.live) { // all three are in one order
        while (next_own != own_.end() && rank_[*next_own] < rank_[t]) ++next_own;
        while (next != to.live.end() && rank_[*next] < rank_[t]) ++next;
        over.is_own.push_back(next_own != own_.end() && *next_own == t);
        bool const stays = next != to.live.end() && *next == t;
        over.slot.push_back(stays ? static_cast<std::uint32_t>(next - to.live.begin()) : gone);
    }
    return over;
}

} // namespace heddle

#endif
