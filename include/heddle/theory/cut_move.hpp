// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Moves from cut to cut, and their instructions, each stored once.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/operator_kinds.hpp>

#include <boost/container/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace heddle {

/// What leads from one cut to the next: the sources read and conversions made for one operator, then the operator, then
/// what is resharded. Numbers refer to the instructions of a `move_table`.
struct cut_move {
    /// The first of the operators that it can lead over; at the end, the number of operators.
    operator_id kind = 0;
    /// How far the operator is from the level in the given order; 0 if operators run in that order.
    std::int32_t ahead = 0;
    boost::container::small_vector<std::uint32_t, 4> instructions;
    /// What is kept for the backward pass and was not kept before.
    boost::container::small_vector<formed_tensor, 4> saved;
    /// The move begins a stage, if micro-batches take turns.
    bool begins_stage = false;
    /// The forms in which tensors are given up that others restore, and those that are restored; see
    /// `cut_space::restore`.
    boost::container::small_vector<formed_tensor, 4> given_up{}, restored{};
    friend bool operator==(cut_move const&, cut_move const&) = default;
};

/// The moves of one program, by number.
using move_list = std::vector<std::uint32_t>;

/// An instruction for operator `from` as one for operator `to`, which is of the same kind.
[[nodiscard]] instruction counterpart(indexed_program const& p, instruction const& i, operator_id from, operator_id to);

/// The instructions and moves of a space, each under a number.
///
/// *Invariant.* Equal ones have one number. Numbers are dense, in the order in which they are first met, and
/// stay. *Complexity.* `intern` is linear in the size of what it is given, expected.
class move_table {
public:
    [[nodiscard]] std::vector<instruction> const& instructions() const { return instructions_; }
    [[nodiscard]] std::vector<cut_move> const& moves() const { return moves_; }

    /// `kind`: the operator that the instruction is for, or that it is. Equal instructions for two operators are two.
    std::uint32_t intern(operator_id kind, instruction i);
    std::uint32_t intern(cut_move const& move);
    /// Forgets instructions and moves of these numbers and above.
    void cut_back(std::size_t instructions, std::size_t moves);

private:
    using numbers = search::numbering<std::vector<std::uint32_t>, search::list_hash<std::uint32_t>>;

    std::vector<instruction> instructions_;
    std::vector<cut_move> moves_;
    numbers instruction_numbers_, move_numbers_;
    std::vector<std::uint32_t> key_; // kept for its memory
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE instruction counterpart(indexed_program const& p, instruction const& i, operator_id from,
                                      operator_id to) {
    auto result = i;
    if (from == to) return result;
    if (auto* compute = result.as<instruction::compute>()) compute->op = to;
    else result.change()->tensor = counterpart(p, i.change()->tensor, from, to);
    return result;
}

HEDDLE_INLINE void move_table::cut_back(std::size_t instructions, std::size_t moves) {
    instruction_numbers_.cut_back(instructions);
    move_numbers_.cut_back(moves);
    instructions_.erase(instructions_.begin() + static_cast<std::ptrdiff_t>(instructions), instructions_.end());
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(moves), moves_.end());
}

HEDDLE_INLINE std::uint32_t move_table::intern(operator_id kind, instruction i) {
    auto const add = [&](std::initializer_list<std::uint32_t> words) { key_.insert(key_.end(), words); };
    auto const* const unshard = i.as<instruction::unshard>();
    key_.assign({static_cast<std::uint32_t>(i.type()) | std::uint32_t{unshard && unshard->is_resharded} << 8, kind});
    if (auto const* change = i.change()) {
        add({change->tensor, change->from.code(), change->to.code()});
    } else {
        auto const& compute = *i.as<instruction::compute>();
        add({static_cast<std::uint32_t>(compute.loop)});
        for (auto const* forms : {&compute.operands, &compute.results})
            for (tensor_form f : *forms) add({f.code()});
    }
    auto const [number, is_new] = instruction_numbers_.insert(key_);
    if (is_new) instructions_.push_back(std::move(i));
    return number;
}

HEDDLE_INLINE std::uint32_t move_table::intern(cut_move const& move) {
    auto const add = [&](std::initializer_list<std::uint32_t> words) { key_.insert(key_.end(), words); };
    key_.assign(move.instructions.begin(), move.instructions.end());
    add({~0u, move.kind, static_cast<std::uint32_t>(move.ahead), std::uint32_t{move.begins_stage}});
    for (auto const* list : {&move.saved, &move.given_up, &move.restored}) {
        add({static_cast<std::uint32_t>(list->size())});
        for (auto const& [t, f] : *list) add({t, f.code()});
    }
    auto const [number, is_new] = move_numbers_.insert(key_);
    if (is_new) moves_.push_back(move);
    return number;
}

} // namespace heddle

#endif
