// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs in which some uses of a tensor do not wait for how it is made: their cuts are narrow.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/restorations.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// What states tell of a tensor from where it is given up to where it is restored.
enum class tokens : bool { none, of_whole_copies };

/// A program whose cuts are narrower than another's, with all of its programs: some tensors are given up before their
/// late uses, which have another tensor in its place. One that is computed, or a parameter, is *restored* at the first
/// of these, in forms in which it may have been given up, or in all; if they are those in which it was, that is the
/// other's program, at its cost. What can be read anew is had late in any form, for nothing.
///
/// An operator that takes a restored tensor with no other value takes it in whatever form suits what comes after: no
/// program pays for a whole copy, for keys, of what it has in shards for queries. With tokens states tell, for such an
/// operator, whether there was one when the tensor was given up; of one tensor at most at a cut, since each may double
/// the states there.
///
/// Operators have the numbers of the other program, and so have tensors but for those of late uses, which come after.
class loosened_program {
public:
    explicit loosened_program(indexed_program p, tokens told = tokens::none);

    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// Returns for each operator the first of its kind: they are of one kind in the other program, and are here as well
    /// (`operator_kinds`).
    [[nodiscard]] std::vector<operator_id> kinds() const;
    /// The tensor of the other program.
    [[nodiscard]] tensor_id of(tensor_id t) const {
        while (is_late(t)) t = late_of_[t - count_];
        return t;
    }
    [[nodiscard]] bool is_late(tensor_id t) const { return t >= count_; }
    /// Tells whether a tensor is for late uses, which have it for nothing.
    [[nodiscard]] bool is_free(tensor_id t) const {
        return is_late(t) && program_.tensors[t].at_cuts == tensor_at_cuts::free;
    }
    /// The tensors with late uses, which may be those of late uses of others.
    [[nodiscard]] std::vector<tensor_id> const& loosened() const { return late_of_; }
    /// The one for late uses of a tensor that has some.
    [[nodiscard]] std::optional<tensor_id> late(tensor_id t) const {
        auto const found = algorithm::find(late_of_, t);
        if (found == late_of_.end()) return std::nullopt;
        return number_of(static_cast<std::size_t>(found - late_of_.begin()));
    }

    /// Cuts of the other program's factors, with those of late uses beside theirs. `Cuts` is a list of `atom_class`.
    template <class Cuts>
    [[nodiscard]] Cuts with_late(Cuts cuts) const {
        for (auto& cut : cuts)
            for (std::size_t n = 0; n < cut.members.size(); ++n) // with those that are added
                if (auto const t = late(cut.members[n].tensor)) {
                    auto member = cut.members[n];
                    member.tensor = *t;
                    cut.members.push_back(member);
                }
        return cuts;
    }

    /// Loosens a tensor in use at the cut before an operator, the one that stays in use longest, with all that are made
    /// and used alike. Returns the first operator that has one of them; none if there is nothing to be loosened.
    std::optional<std::size_t> loosen_at(std::size_t level);

    /// Has no more tokens. Returns whether there were any.
    bool drop_tokens();

    /// Returns the tensors that are given up and restored.
    [[nodiscard]] std::vector<restoration> restorations() const {
        std::vector<restoration> result;
        for (std::size_t n = 0; n < late_of_.size(); ++n)
            if (!is_free(number_of(n))) result.push_back(restoration_of(n));
        return result;
    }

    /// A filter of instructions of the other program as one for this, which has what becomes of every program that the
    /// filter leaves. *Lifetime:* refers to this.
    [[nodiscard]] instruction_filter as_loosened(instruction_filter const& allowed) const;

private:
    void loosen(tensor_id t, operator_id first_late);
    [[nodiscard]] tensor_id number_of(std::size_t late) const { return static_cast<tensor_id>(count_ + late); }
    [[nodiscard]] restoration restoration_of(std::size_t late) const;
    void give_token(std::size_t late);

    indexed_program program_;
    std::size_t count_;
    std::vector<operator_id> kinds_; ///< in the other program
    /// The operators that make tensors.
    std::vector<operator_id> makers_;
    std::vector<tensor_id> late_of_;
    std::vector<bool> has_token_; ///< by place in that list
    tokens tokens_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/operator_order.hpp>
#include <heddle/theory/searched_program.hpp>

namespace heddle {

HEDDLE_INLINE loosened_program::loosened_program(indexed_program p, tokens told)
    : program_(std::move(p)), count_(program_.tensors.size()), kinds_(operator_kinds(program_)), makers_(count_),
      tokens_(told) {
    for (operator_id o = 0; o < program_.operators.size(); ++o)
        for (auto t : program_.operators[o].results) makers_[t] = o;
}

HEDDLE_INLINE std::vector<operator_id> loosened_program::kinds() const {
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<operator_id> first, result;
    for (operator_id o = 0; o < program_.operators.size(); ++o) {
        std::vector<std::uint64_t> key{kinds_[o]};
        for_each_tensor(program_.operators[o], [&](tensor_id t) { // nothing else of them changes that kinds tell apart
            key.push_back(static_cast<std::uint64_t>(program_.tensors[t].info.role));
        });
        auto const [number, is_new] = numbers.insert(std::move(key));
        if (is_new) first.push_back(o);
        result.push_back(first[number]);
    }
    return result;
}

HEDDLE_INLINE restoration loosened_program::restoration_of(std::size_t late) const {
    auto const early = late_of_[late], t = number_of(late);
    auto const& uses = program_.tensors[early].consumers;
    return {early, t, uses.empty() ? makers_[early] : static_cast<operator_id>(uses.back()),
            static_cast<operator_id>(program_.tensors[t].consumers.front()), has_token_[late]};
}

HEDDLE_INLINE void loosened_program::give_token(std::size_t late) {
    auto const mine = restoration_of(late);
    bool const is_alone = algorithm::all_of(program_.operators[mine.restorer].operands, [&](tensor_id t) {
        return t == mine.late || program_.tensors[t].is_source();
    });
    if (tokens_ == tokens::none || is_free(mine.late) || !is_alone) return;
    for (std::size_t n = 0; n < late; ++n)
        if (auto const other = restoration_of(n);
            other.has_token && other.giver < mine.restorer && mine.giver < other.restorer)
            return;
    has_token_[late] = true;
}

HEDDLE_INLINE bool loosened_program::drop_tokens() {
    tokens_ = tokens::none;
    bool const had_any = algorithm::find(has_token_, true) != has_token_.end();
    has_token_.assign(has_token_.size(), false);
    return had_any;
}

HEDDLE_INLINE std::optional<std::size_t> loosened_program::loosen_at(std::size_t level) {
    // When a tensor is there, by level: after its operator, or its first use.
    auto const begins = [&](tensor_id t) {
        auto const& tensor = program_.tensors[t];
        bool const is_there = tensor.is_source() || is_late(t);
        return is_there ? std::size_t{tensor.consumers.front()} : std::size_t{makers_[t]};
    };
    auto const can_be = [&](tensor_id t) {
        auto const& tensor = program_.tensors[t];
        return t != program_.loss && !tensor.consumers.empty() && !late(t) && tensor.at_cuts != tensor_at_cuts::free;
    };
    std::optional<tensor_id> best;
    auto const span_of = [&](tensor_id t) { return program_.tensors[t].consumers.back() - begins(t); };
    for (tensor_id t = 0; t < program_.tensors.size(); ++t) {
        if (!can_be(t) || begins(t) >= level || program_.tensors[t].consumers.back() < level) continue;
        // A parameter's gradient is reduced once, however it is used: it comes after others. What is at this cut alone,
        // or a way to compute an operator, comes last.
        auto const rank = [&](tensor_id u) {
            auto const& tensor = program_.tensors[u];
            bool const is_last = span_of(u) == 1 || tensor.at_cuts == tensor_at_cuts::fixed;
            return std::tuple(!is_last, !tensor.is_parameter() || is_late(u), span_of(u));
        };
        if (!best || rank(t) > rank(*best)) best = t;
    }
    if (!best) return std::nullopt;
    // How it is made and used: kinds of operators, from where it is there on.
    auto const looks = [&](tensor_id t) {
        std::vector<std::size_t> list{program_.tensors[t].is_source(), is_late(t), kinds_[begins(t)]};
        for (auto o : program_.tensors[t].consumers) list.insert(list.end(), {kinds_[o], o - begins(t)});
        return list;
    };
    auto const wanted = looks(*best);
    // Uses that begin before this level keep it.
    auto const first = static_cast<operator_id>(level) - static_cast<operator_id>(begins(*best));
    std::vector<std::pair<tensor_id, operator_id>> all;
    std::size_t first_changed = level;
    for (tensor_id t = 0; t < program_.tensors.size(); ++t)
        if (can_be(t) && looks(t) == wanted) {
            all.push_back({t, static_cast<operator_id>(begins(t)) + first});
            first_changed = std::min(first_changed, begins(t));
        }
    auto const before = late_of_.size();
    for (auto const& [t, from] : all) loosen(t, from);
    count_uses(program_);
    for (auto n = before; n < late_of_.size(); ++n) give_token(n);
    return first_changed;
}

HEDDLE_INLINE void loosened_program::loosen(tensor_id t, operator_id first_late) {
    auto late = program_.tensors[t];
    if (late.is_source() && !late.is_parameter()) {
        late.info.role = tensor_role::buffer;
        late.at_cuts = tensor_at_cuts::free;
    } else if (late.at_cuts == tensor_at_cuts::held) {
        late.at_cuts = tensor_at_cuts::restored; // a parameter, too: it is held in some form, so it is not read again
    }
    auto const number = static_cast<tensor_id>(program_.tensors.size());
    program_.tensors.push_back(std::move(late));
    late_of_.push_back(t);
    has_token_.push_back(false);
    for (auto o : program_.tensors[t].consumers)
        if (o >= first_late)
            for (auto& operand : program_.operators[o].operands)
                if (operand == t) operand = number;
}

HEDDLE_INLINE instruction_filter loosened_program::as_loosened(instruction_filter const& allowed) const {
    auto const allows = [this, allowed](instruction const& i) {
        auto given = i;
        if (auto* const change = given.change()) {
            if (is_free(change->tensor)) return true;
            change->tensor = of(change->tensor);
        }
        return allowed(given);
    };
    if (!allowed.mark) return allows;
    std::vector<std::uint64_t> marks;
    for (tensor_id t = 0; t < program_.tensors.size(); ++t)
        marks.push_back(4 * allowed.mark(of(t)) + 2 * std::uint64_t{late(t).has_value()} + std::uint64_t{is_late(t)});
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

} // namespace heddle

#endif
