// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What links the forms in which a loosened program gives up tensors to those in which it restores them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/loosened_program.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// The links of a loosened program: each leads from the move that gives up a tensor to the one that restores it. Links
/// between operators of the same kinds are one group.
///
/// A potential is a number for forms in which a group's tensors are restored. To restore them in these forms costs less
/// by it; to give them up costs the least potential of the forms in which they may be restored then. What a program of
/// the other kind pays for a link is then nothing or less. So a relaxation with these prices holds for it, whatever the
/// potentials are.
///
/// For every program of the other kind there is one of the loosened kind with the same instructions, which restores
/// each tensor in the forms in which it was given up. Its moves cost what the other's do, except that what late uses
/// save for the backward pass takes no memory; in whatever order moves are added up, that is no more. Where all forms
/// stand for those in which it was given up (see `restorations`), it lacks conversions to what is there, and costs
/// less. It is among those of the space where that is restricted by `loosened_program::as_loosened` of what restricts
/// the other, and where operators of one kind are of one kind in both programs.
class loose_links {
public:
    /// What a move has of a group: the forms in which the tensor is given up or restored, ascending.
    struct side {
        std::uint32_t group = 0;
        bool is_restored = false;
        std::vector<std::uint16_t> forms;
        friend auto operator<=>(side const&, side const&) = default;
    };
    /// By side: its price, and the side that restores of whose potential that is, or its own number if there is none.
    struct prices {
        std::vector<double> of_side;
        std::vector<std::uint32_t> potential_of_side;
    };

    /// `space` is of the loosened program, restores its tensors, and is explored.
    /// *Complexity.* Linear in the program and the space's moves, but for logarithms, and quadratic in a group's sides.
    loose_links(loosened_program const& p, cut_space const& space);

    [[nodiscard]] std::vector<side> const& sides() const { return sides_; }
    /// Returns the numbers of a move's sides.
    [[nodiscard]] std::span<std::uint32_t const> of(cut_space::action a) const {
        return {numbers_.data() + first_[a], numbers_.data() + first_[a + 1]};
    }
    /// Returns the tensors of each group, as the other program has them.
    [[nodiscard]] std::vector<std::vector<tensor_id>> const& groups() const { return groups_; }
    /// `potentials` has one for each side; those of sides that give up do not count.
    [[nodiscard]] prices at(std::vector<double> const& potentials) const;

private:
    /// A tensor of an operator, as the first of its kind has it.
    using place = std::pair<operator_id, tensor_id>;

    void find_groups(loosened_program const& p, cut_space const& space);
    void find_restorable();

    std::vector<side> sides_;
    std::vector<std::uint32_t> first_{0}, numbers_;
    std::vector<std::vector<tensor_id>> groups_;
    std::map<place, std::uint32_t> given_up_, restored_;
    /// By side that gives up, those that may restore.
    std::vector<std::vector<std::uint32_t>> restorable_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE loose_links::loose_links(loosened_program const& p, cut_space const& space) {
    find_groups(p, space);
    std::map<side, std::uint32_t> numbers;
    auto const add = [&](auto const& list, operator_id kind, bool is_restored) {
        for (std::size_t n = 0; n < list.size();) {
            auto const t = list[n].first;
            side s{(is_restored ? restored_ : given_up_).at({kind, t}), is_restored, {}};
            for (; n < list.size() && list[n].first == t; ++n) s.forms.push_back(list[n].second.code());
            auto const [slot, is_new] = numbers.try_emplace(s, static_cast<std::uint32_t>(sides_.size()));
            if (is_new) sides_.push_back(std::move(s));
            numbers_.push_back(slot->second);
        }
    };
    for (auto const& move : space.moves()) {
        add(move.given_up, move.kind, false);
        add(move.restored, move.kind, true);
        first_.push_back(static_cast<std::uint32_t>(numbers_.size()));
    }
    find_restorable();
}

HEDDLE_INLINE void loose_links::find_groups(loosened_program const& p, cut_space const& space) {
    auto const& program = p.program();
    auto const place_at = [&](operator_id o, tensor_id t) {
        return place(space.kind(o), counterpart(program, t, o, space.kind(o)));
    };
    std::vector<std::uint32_t> same; // by group, one that it is the same as, or itself
    auto const root = [&](std::uint32_t g) {
        while (same[g] != g) g = same[g];
        return g;
    };
    for (auto const& r : p.restorations()) {
        auto const mine = static_cast<std::uint32_t>(same.size());
        same.push_back(mine);
        groups_.push_back({p.of(r.early)});
        auto const join = [&](std::map<place, std::uint32_t>& list, place const& at) {
            auto const [found, is_new] = list.try_emplace(at, mine);
            if (!is_new) same[root(found->second)] = root(mine);
        };
        join(given_up_, place_at(r.giver, r.early));
        join(restored_, place_at(r.restorer, r.late));
    }
    for (std::uint32_t g = 0; g < same.size(); ++g)
        if (auto const into = root(g); into != g) {
            groups_[into].insert(groups_[into].end(), groups_[g].begin(), groups_[g].end());
            groups_[g].clear();
        }
    for (auto* list : {&given_up_, &restored_})
        for (auto& [at, group] : *list) group = root(group);
}

HEDDLE_INLINE void loose_links::find_restorable() {
    restorable_.resize(sides_.size());
    for (std::uint32_t n = 0; n < sides_.size(); ++n)
        for (std::uint32_t r = 0; r < sides_.size() && !sides_[n].is_restored; ++r) {
            auto const &from = sides_[n], &to = sides_[r];
            if (!to.is_restored || to.group != from.group) continue;
            // All of them, or, if it is used no more, any one.
            bool const is_one = to.forms.size() == 1 && algorithm::binary_search(from.forms, to.forms[0]);
            if (is_one || to.forms == from.forms) restorable_[n].push_back(r);
        }
}

HEDDLE_INLINE loose_links::prices loose_links::at(std::vector<double> const& potentials) const {
    prices result;
    for (std::uint32_t n = 0; n < sides_.size(); ++n) {
        result.potential_of_side.push_back(n);
        result.of_side.push_back(sides_[n].is_restored ? -potentials[n] : 0);
        double least = std::numeric_limits<double>::infinity();
        for (auto r : restorable_[n])
            if (potentials[r] < least) least = potentials[r], result.potential_of_side[n] = r;
        if (!restorable_[n].empty()) result.of_side[n] = least;
    }
    return result;
}

} // namespace heddle

#endif
