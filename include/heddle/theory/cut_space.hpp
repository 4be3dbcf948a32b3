// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The background theory as a layered state space, whose states are what is held at the cuts between operators.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/block_vector.hpp>
#include <heddle/search/state_table.hpp>
#include <heddle/theory/alike_steps.hpp>
#include <heddle/theory/cut_move.hpp>
#include <heddle/theory/cut_state.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/operator_cuts.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/preparations.hpp>
#include <heddle/theory/restorations.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// The space of programs with operators in some order, each preceded by the conversions of its operands.
///
/// A state is what is held of the tensors still in use, with what of it is saved, and the tokens of those that are to
/// be restored. Properties of tensors that nobody uses any more are gone, reads are fused with the first use (HAP
/// section 4.5). Where costs add up, the order of independent instructions does not matter, so this space has a program
/// as cheap as any of the theory that keeps to the following. Each operator is computed once, and its operands are
/// brought as `preparations` has it, so that a parameter is stored for its first use. Where a collective closes a
/// stage, order matters: then the space has the orders that its cuts have (see `operator_cuts`); a bound from added
/// costs holds for every order.
///
/// Operators of one kind share instructions and moves, which are those of the first of the kind; `at` gives them to
/// another. What moves there are depends on what is held of the operator's own tensors alone; so they are made once for
/// each such holding (see `alike_steps`), and those that leave the same behind are a bundle.
class cut_space {
public:
    using state = cut_state;
    /// The number of a move in `moves()`.
    using action = std::uint32_t;

    /// `kinds` are those of `operator_kinds`; without them every operator is of its own kind. At most `width` cuts of
    /// equally many operators are kept; if it is one, those of the given order.
    explicit cut_space(indexed_program const& p, std::vector<operator_id> kinds = {}, std::size_t width = 1);

    /// Makes `for_each_successor` keep to instructions for which this holds.
    /// *Complexity.* Linear in the operators.
    void restrict_to(instruction_filter allowed);

    /// Makes moves that read or gather a parameter come twice, the second time as the beginning of a stage. A move that
    /// unshards one always begins a stage, for as long as the copies stay.
    void divide_into_stages();

    /// Makes moves say in which forms tensors are given up, and restores others in all the ways in which these may have
    /// been. One that has one use is restored in one of those forms. *Precondition:* there is one order, in which what
    /// restores comes later, and nothing that restores can be read anew.
    void restore(std::vector<restoration> const& list);

    /// Takes note that the program has changed from an operator on, with what kinds its operators are of, what restores
    /// and what is allowed. What leads over operators before it is kept, under its numbers. *Preconditions:* there is
    /// one order; operators are as many, and those before are as they were.
    void change_from(std::size_t op, std::vector<operator_id> kinds, std::vector<restoration> const& restored,
                     instruction_filter allowed);

    [[nodiscard]] std::size_t level_count() const { return program_.operators.size() + 2; }
    [[nodiscard]] state initial() const { return {}; }
    [[nodiscard]] std::uint64_t alike(std::size_t level);
    /// Returns the kind of an operator; the number of operators at the end.
    [[nodiscard]] operator_id kind(std::size_t op) const { return kinds_[op]; }
    /// Returns the operator that a move leads over at a level; the number of operators at the end.
    [[nodiscard]] std::size_t operator_of(std::size_t level, action move) const {
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(level) + moves()[move].ahead);
    }
    [[nodiscard]] operator_cuts const& cuts() const { return cuts_; }
    [[nodiscard]] std::vector<instruction> const& instructions() const { return table_.instructions(); }
    [[nodiscard]] std::vector<cut_move> const& moves() const { return table_.moves(); }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// Returns the tensor that takes the place, at an operator, of a tensor of an instruction or a move of its kind.
    [[nodiscard]] tensor_id at(std::size_t op, tensor_id t) const {
        return counterpart(program_, t, kinds_[op], static_cast<operator_id>(op));
    }
    /// Returns an instruction of an operator's kind as it is at the operator.
    [[nodiscard]] instruction at(std::size_t op, instruction const& i) const {
        return counterpart(program_, i, kinds_[op], static_cast<operator_id>(op));
    }
    /// Returns the instructions of a path of moves, from the first level on.
    [[nodiscard]] std::vector<instruction> instructions_of(std::vector<action> const& path) const;
    /// Is false once an operator had more ways to bring its operands than are tried.
    [[nodiscard]] bool is_complete() const { return preparations_.is_complete(); }
    /// Has a move instead that is no dearer; see `preparations`. Then the space is for bounds alone.
    void bound_what_is_left_out() { preparations_.bound_what_is_left_out(); }

    /// Returns the moves that lead from a state to the same state.
    [[nodiscard]] std::vector<action> const& bundle(std::uint32_t number) const { return bundles_[number]; }

    /// A state that a move leads to, which is put together when it is asked for. It is valid until the next.
    class successor {
    public:
        /// Successors of equal names, of one level and one after the other, are equal states.
        [[nodiscard]] std::uint64_t name() const { return std::uint64_t{other_} << 32 | left_; }
        operator state const&() const { return space_.joined(other_, left_); }

    private:
        friend cut_space;
        successor(cut_space& space, std::uint32_t other, std::uint32_t left)
            : space_(space), other_(other), left_(left) {}

        cut_space& space_;
        std::uint32_t other_, left_;
    };

    /// Calls `visit(bundle, successor)`. This is not const, as it numbers new instructions, moves and bundles.
    template <class Visit>
    void for_each_successor(std::size_t level, state const& s, Visit&& visit) {
        auto const& from = cuts_.of_level(std::min(level, program_.operators.size()))[s.cut];
        if (std::exchange(level_of_others_, level) != level) begin_level();
        if (level == program_.operators.size()) {
            own_ = s.held;
            auto const no_other = others_.insert(state{}).first;
            for (auto const& last : ways_from_own({level, from}, alike_.step(level, s.cut, 0)))
                visit(last.bundle, successor(*this, no_other, last.left));
            return;
        }
        for (std::size_t n = 0; n < from.advances.size(); ++n) {
            auto const& over = from.advances[n];
            split_off_own(s, over);
            passage const p{level, from, &over, &cuts_.of_level(level + 1)[over.next]};
            auto const& ways = ways_from_own(p, alike_.step(level, s.cut, n));
            if (ways.empty()) continue;
            auto const other = others_.insert(std::as_const(other_)).first;
            for (auto const& [bundle, left] : ways) visit(bundle, successor(*this, other, left));
        }
    }

private:
    /// A bundle, and the number of what it leaves of the operator's own tensors.
    struct way {
        std::uint32_t bundle, left;
    };
    /// From a cut over an operator to the next; at the end to none.
    struct passage {
        std::size_t level;
        operator_cuts::cut const& from;
        operator_cuts::advance const* over = nullptr;
        operator_cuts::cut const* to = nullptr;
    };

    /// Puts what is held of the operator's tensors in `own_`, and what is held of the others, as it is held at the next
    /// cut, in `other_`.
    void split_off_own(state const& s, operator_cuts::advance const& over);

    /// A state of what is held of other tensors and what is left of the own ones, by their numbers.
    [[nodiscard]] state const& joined(std::uint32_t other, std::uint32_t left);

    /// What can be done with what is held in `own_`, in the order in which it is found.
    std::vector<way> const& ways_from_own(passage const& p, std::uint64_t alike);
    void list_ways(passage const& p, std::vector<way>& ways);
    void forget_ways() {
        listed_ = {};
        ways_from_ = {};
        made_.clear();
        level_of_others_ = no_level;
    }
    void begin_level() {
        others_ = {};
        if (!made_.empty() && made_.back().level >= level_of_others_) return;
        made_.push_back({level_of_others_, instructions().size(), moves().size(), bundles_.size(), listed_.size(),
                         restorations_.sizes()});
    }
    void set_kinds(std::vector<operator_id> kinds, std::size_t from);
    /// Finds the cuts of the one order, and what is alike there.
    void find_cuts();
    /// The computations of an operator that are allowed, with their numbers.
    std::vector<std::pair<std::uint32_t, instruction::compute>> const& allowed_computations(operator_id op);

    /// The move that this preparation and its computation are, in `move_`, and what it leaves, in `left_`. `number` is
    /// that of the computation.
    void make_move(passage const& p, instruction::compute const& computation, std::uint32_t number,
                   preparation const& prepared);
    /// Visits the ways to restore the tensors that an operator restores, from number `from` on, with what is restored
    /// in `held_` and `restored_`.
    template <class Visit>
    void for_each_restoration(passage const& p, std::size_t from, Visit const& visit);
    /// Tells whether a form that is held before an operator is the token of a tensor that it restores.
    [[nodiscard]] bool is_token(passage const& p, held_form held) const {
        if (restorations_.empty()) return false;
        return algorithm::any_of(restorations_.restored_by(p.over->op),
                                 [&](auto const& numbered) { return numbered.second == p.from.live[held.slot()]; });
    }
    /// A code that tells, from where a tensor is given up to where it is restored, whether there was a whole copy. It
    /// stands in the slot of the tensor that restores it, which has no form yet.
    [[nodiscard]] static tensor_form token_of(restorations::form_codes const& forms) {
        bool const is_whole = algorithm::any_of(forms, [](auto c) { return tensor_form::from_code(c).is_whole(); });
        return is_whole ? tensor_form::replicated() : tensor_form::partial();
    }
    /// Notes in `move_` what it gives up and restores, and in `left_` the tokens of what is given up.
    void note_restorations(passage const& p, instruction::compute const& computation, preparation const& prepared);
    /// What reads the loss off, if it can be.
    [[nodiscard]] std::optional<action> finish(passage const& p);

    /// The number of an instruction for an operator.
    std::uint32_t intern(operator_id op, instruction const& i) {
        return table_.intern(kinds_[op], counterpart(program_, i, op, kinds_[op]));
    }

    indexed_program const& program_;
    /// The kind of each operator, and one for the end.
    std::vector<operator_id> kinds_;
    /// The computations of the first operator of each kind; and, by operator, those that are allowed, once asked for.
    std::vector<std::vector<instruction>> computations_;
    std::vector<std::optional<std::vector<std::pair<std::uint32_t, instruction::compute>>>> allowed_computations_;
    operator_cuts cuts_;
    alike_steps alike_;
    preparations preparations_;
    move_table table_;
    std::vector<std::vector<action>> bundles_;
    /// What is alike, in place of a cut, with what is held of the operator's tensors; and the ways from there.
    search::state_table<state> listed_;
    search::block_vector<std::vector<way>> ways_from_;
    bool has_stages_ = false;
    restorations restorations_;
    /// Numbers for levels that restore tensors, which are alike if as much may be restored.
    std::map<std::vector<std::uint64_t>, std::uint64_t> restoring_levels_;
    /// What moves leave of their operators' own tensors, and what is held of others at the next cuts of one level.
    search::state_table<state> lefts_, others_;
    static constexpr std::size_t no_level = ~std::size_t{0};
    std::size_t level_of_others_ = no_level;
    /// How much there was when a level was begun, by when that was.
    struct sizes {
        std::size_t level, instructions, moves, bundles, listed;
        std::vector<std::size_t> given_up;
    };
    std::vector<sizes> made_;
    // Scratch data of the current enumeration, kept for its memory.
    state next_, other_, left_, key_;
    held_codes own_;
    std::vector<formed_tensor> held_, restored_, given_up_;
    cut_move move_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/theory.hpp>

namespace heddle {

HEDDLE_INLINE cut_space::cut_space(indexed_program const& p, std::vector<operator_id> kinds, std::size_t width)
    : program_(p), cuts_(p, width), preparations_(p) {
    set_kinds(std::move(kinds), 0);
    restrict_to(instruction_filter::everything());
}

HEDDLE_INLINE std::vector<instruction> cut_space::instructions_of(std::vector<action> const& path) const {
    std::vector<instruction> result;
    for (std::size_t level = 0; level < path.size(); ++level)
        for (auto n : moves()[path[level]].instructions)
            result.push_back(at(operator_of(level, path[level]), instructions()[n]));
    return result;
}

HEDDLE_INLINE void cut_space::set_kinds(std::vector<operator_id> kinds, std::size_t from) {
    kinds_ = std::move(kinds);
    auto const count = static_cast<operator_id>(program_.operators.size());
    for (auto n = static_cast<operator_id>(kinds_.size()); n <= count; ++n) kinds_.push_back(n);
    computations_.resize(count);
    for (auto o = static_cast<operator_id>(from); o < count; ++o) {
        computations_[o].clear();
        if (kinds_[o] == o)
            for (auto& i : computations(program_, o)) computations_[o].push_back(std::move(i));
    }
}

HEDDLE_INLINE void cut_space::find_cuts() {
    cuts_ = operator_cuts(program_, 1, restorations_.awaited_after());
    alike_ = alike_steps(program_, cuts_, kinds_, preparations_.allowed().mark);
}

HEDDLE_INLINE void cut_space::restrict_to(instruction_filter allowed) {
    forget_ways();
    allowed_computations_.assign(program_.operators.size(), std::nullopt);
    alike_ = alike_steps(program_, cuts_, kinds_, allowed.mark);
    preparations_.restrict_to(std::move(allowed));
}

HEDDLE_INLINE void cut_space::divide_into_stages() {
    has_stages_ = true;
    forget_ways();
}

HEDDLE_INLINE void cut_space::restore(std::vector<restoration> const& list) {
    forget_ways();
    restorations_ = {};
    restorations_.set(program_, kinds_, list);
    find_cuts();
}

HEDDLE_INLINE void cut_space::change_from(std::size_t op, std::vector<operator_id> kinds,
                                          std::vector<restoration> const& restored, instruction_filter allowed) {
    level_of_others_ = no_level;
    auto const first = std::ranges::find_if(made_, [&](sizes const& s) { return s.level >= op; });
    if (first != made_.end()) {
        table_.cut_back(first->instructions, first->moves);
        bundles_.resize(first->bundles);
        listed_.cut_back(first->listed);
        ways_from_.cut_back(first->listed);
        restorations_.cut_back(first->given_up);
        made_.erase(first, made_.end());
    }
    set_kinds(std::move(kinds), op);
    for (auto o = op; o < program_.operators.size(); ++o) allowed_computations_[o].reset();
    preparations_.restrict_to(std::move(allowed));
    restorations_.set(program_, kinds_, restored);
    find_cuts();
}

HEDDLE_INLINE std::uint64_t cut_space::alike(std::size_t level) {
    bool const restores = level <= program_.operators.size() && !restorations_.empty();
    if (!restores || restorations_.restored_by(level).empty()) return alike_.level(level);
    std::vector<std::uint64_t> key{alike_.level(level)};
    restorations_.for_each_number(level, [&](std::uint64_t n) { key.push_back(n); });
    auto const number = restoring_levels_.try_emplace(std::move(key), restoring_levels_.size()).first->second;
    return (std::uint64_t{1} << 32) + number;
}

HEDDLE_INLINE void cut_space::split_off_own(state const& s, operator_cuts::advance const& over) {
    own_.clear();
    other_.held.clear();
    other_.cut = over.next;
    for (auto const code : s.held) {
        held_form const held(code);
        if (over.is_own[held.slot()]) own_.push_back(code);
        else other_.held.push_back(held.at(over.slot[held.slot()]).code());
    }
}

HEDDLE_INLINE cut_state const& cut_space::joined(std::uint32_t other, std::uint32_t left) {
    auto const &others = others_[other].held, &lefts = lefts_[left].held;
    next_.cut = others_[other].cut;
    next_.held.resize(others.size() + lefts.size());
    std::ranges::merge(lefts, others, next_.held.begin());
    return next_;
}

HEDDLE_INLINE std::vector<cut_space::way> const& cut_space::ways_from_own(passage const& p, std::uint64_t alike) {
    key_.cut = static_cast<std::uint32_t>(alike);
    key_.held.clear();
    if (p.over && !restorations_.empty())
        restorations_.for_each_number(p.over->op, [&](auto n) { key_.held.push_back(static_cast<std::uint32_t>(n)); });
    key_.held.insert(key_.held.end(), own_.begin(), own_.end());
    auto const [number, is_new] = listed_.insert(std::as_const(key_));
    if (is_new) list_ways(p, ways_from_.push_back({}));
    return ways_from_[number];
}

HEDDLE_INLINE void cut_space::list_ways(passage const& p, std::vector<way>& ways) {
    held_.clear();
    for (auto const code : own_)
        if (held_form const held(code); !held.is_saved() && !(p.over && is_token(p, held)))
            held_.push_back({p.from.live[held.slot()], held.form()});
    if (!p.over) {
        if (auto const move = finish(p)) {
            ways.push_back({static_cast<std::uint32_t>(bundles_.size()), lefts_.insert(state{}).first});
            bundles_.push_back({*move});
        }
        return;
    }
    std::unordered_map<std::uint32_t, std::uint32_t> bundle_that_leaves;
    auto const add = [&](bool begins_stage) {
        auto const left = lefts_.insert(std::as_const(left_)).first;
        auto const [slot, is_new] = bundle_that_leaves.try_emplace(left, static_cast<std::uint32_t>(bundles_.size()));
        if (is_new) {
            ways.push_back({slot->second, left});
            bundles_.emplace_back();
        }
        move_.begins_stage = begins_stage;
        bundles_[slot->second].push_back(table_.intern(move_));
    };
    for_each_restoration(p, 0, [&] {
        for (auto const& [number, computation] : allowed_computations(p.over->op)) {
            preparations_.for_each(computation, held_, [&](preparation const& prepared) {
                make_move(p, computation, number, prepared);
                if (!has_stages_) return add(false);
                bool const unshards = algorithm::any_of(
                    prepared.before, [](auto const& i) { return i.template is<instruction::unshard>(); });
                add(unshards);
                bool const takes_parameter = algorithm::any_of(prepared.gained, [&](formed_tensor const& made) {
                    return program_.tensors[made.first].is_parameter();
                });
                if (takes_parameter && !unshards) add(true);
            });
        }
    });
}

HEDDLE_INLINE std::vector<std::pair<std::uint32_t, instruction::compute>> const& cut_space::allowed_computations(
    operator_id op) {
    auto& known = allowed_computations_[op];
    if (known) return *known;
    known.emplace();
    for (auto const& of_kind : computations_[kinds_[op]])
        if (instruction const there = at(op, of_kind); preparations_.allowed()(there))
            known->push_back({intern(op, there), *there.as<instruction::compute>()});
    return *known;
}

template <class Visit>
void cut_space::for_each_restoration(passage const& p, std::size_t from, Visit const& visit) {
    if (restorations_.empty() || from == restorations_.restored_by(p.over->op).size()) return visit();
    auto const t = restorations_.restored_by(p.over->op)[from].second;
    auto const before = held_.size(), restored = restored_.size();
    auto const restore_in = [&](std::vector<std::uint16_t> const& forms) {
        for (auto code : forms) {
            held_.push_back({t, tensor_form::from_code(code)});
            restored_.push_back(held_.back());
        }
        for_each_restoration(p, from + 1, visit);
        held_.resize(before);
        restored_.resize(restored);
    };
    auto sets = restorations_.sets_for(t); // a copy: the operator may give up others there
    if (auto const slot = slot_of(p.from.live, t))
        std::erase_if(sets, [&](auto const& forms) {
            return !algorithm::binary_search(own_, held_form(*slot, token_of(forms), false).code());
        });
    auto const& operands = program_.operators[p.over->op].operands;
    bool const is_last = !slot_of(p.to->live, t) && !restorations_.is_given_up(t);
    if (!is_last || algorithm::count(operands, t) > 1) {
        for (auto const& forms : sets) restore_in(forms);
        return;
    }
    std::set<std::uint16_t> forms;
    for (auto const& of_set : sets) forms.insert(of_set.begin(), of_set.end());
    for (auto code : forms) restore_in({code});
}

HEDDLE_INLINE void cut_space::make_move(passage const& p, instruction::compute const& computation, std::uint32_t number,
                                        preparation const& prepared) {
    operator_id const op = p.over->op;
    move_.kind = kinds_[op];
    move_.ahead = static_cast<std::int32_t>(static_cast<std::ptrdiff_t>(op) - static_cast<std::ptrdiff_t>(p.level));
    move_.instructions.clear();
    for (auto const& i : prepared.before) move_.instructions.push_back(intern(op, i));
    move_.instructions.push_back(number);
    for (auto const& i : prepared.after) move_.instructions.push_back(intern(op, i));
    move_.saved.clear();
    auto& left = left_.held;
    left.clear();
    auto const keep = [&](tensor_id t, tensor_form f, bool is_saved) {
        if (auto const slot = slot_of(p.to->live, t)) left.push_back(held_form(*slot, f, is_saved).code());
    };
    for (auto const code : own_) {
        held_form const held(code);
        if (auto const slot = p.over->slot[held.slot()]; slot != operator_cuts::gone && !is_token(p, held))
            left.push_back(held.at(slot).code());
    }
    for (auto const* list : {&std::as_const(restored_), &prepared.gained})
        for (auto const& [t, f] : *list) keep(t, f, false);
    // The forms that a parameter is stored in count as saved from the start; its whole copies are of one size.
    auto const is_stored = [](tensor_form read, tensor_form f) {
        return read == f || (read.is_whole() && f.is_whole());
    };
    for (auto const& i : prepared.before)
        if (auto const* read = i.as<instruction::read>(); read && program_.tensors[read->tensor].is_parameter())
            for (tensor_form f : {read->to, tensor_form::replicated(), tensor_form::mirrored()})
                if (is_stored(read->to, f)) keep(read->tensor, f, true);
    for (std::size_t k = 0; k < computation.results.size(); ++k)
        keep(program_.operators[op].results[k], computation.results[k], false);
    constexpr std::array uncounted{tensor_at_cuts::free, tensor_at_cuts::restored};
    for_each_saved(program_, computation, [&](tensor_id t, tensor_form f) {
        // What is restored was saved when it was made, or is not counted.
        if (algorithm::find(uncounted, program_.tensors[t].at_cuts) != uncounted.end()) return;
        if (algorithm::any_of(prepared.after, [&](auto const& i) { return i.change()->tensor == t; })) return;
        bool const stored =
            program_.tensors[t].is_parameter() && algorithm::any_of(prepared.before, [&](auto const& i) {
                auto const* const read = i.template as<instruction::read>();
                return read && read->tensor == t && is_stored(read->to, f);
            });
        auto const slot = slot_of(p.from.live, t);
        if (stored || (slot && algorithm::binary_search(own_, held_form(*slot, f, true).code()))) return;
        formed_tensor const saved{counterpart(program_, t, op, kinds_[op]), f};
        if (algorithm::find(move_.saved, saved) == move_.saved.end()) move_.saved.push_back(saved);
        keep(t, f, true);
    });
    if (!restorations_.empty()) note_restorations(p, computation, prepared);
    algorithm::sort(left);
    left.erase(std::unique(left.begin(), left.end()), left.end());
}

HEDDLE_INLINE void cut_space::note_restorations(passage const& p, instruction::compute const& computation,
                                                preparation const& prepared) {
    operator_id const op = p.over->op;
    auto const of_kind = [&](tensor_id t) { return counterpart(program_, t, op, kinds_[op]); };
    move_.given_up.clear();
    move_.restored.clear();
    for (auto const& [t, f] : restored_) move_.restored.push_back({of_kind(t), f});
    given_up_.clear();
    auto const note = [&](tensor_id t, tensor_form f) {
        if (restorations_.is_given_up(t) && !slot_of(p.to->live, t)) given_up_.push_back({t, f});
    };
    for (auto const& [t, f] : held_) note(t, f);
    for (auto const& [t, f] : prepared.gained) note(t, f);
    for (std::size_t k = 0; k < computation.results.size(); ++k)
        note(program_.operators[op].results[k], computation.results[k]);
    algorithm::sort(given_up_);
    given_up_.erase(std::unique(given_up_.begin(), given_up_.end()), given_up_.end());
    for (auto at = given_up_.begin(); at != given_up_.end();) {
        auto const t = at->first;
        restorations::form_codes forms;
        for (; at != given_up_.end() && at->first == t; ++at) forms.push_back(at->second.code());
        auto const& noted = restorations_.note(t, program_.tensors[t], std::move(forms));
        for (auto code : noted) move_.given_up.push_back({of_kind(t), tensor_form::from_code(code)});
        if (auto const slot = slot_of(p.to->live, restorations_.late_of(t)))
            left_.held.push_back(held_form(*slot, token_of(noted), false).code());
    }
}

HEDDLE_INLINE std::optional<cut_space::action> cut_space::finish(passage const& p) {
    tensor_id const t = program_.loss;
    auto const end = static_cast<operator_id>(p.level);
    auto const holds = [&](tensor_form f) { return algorithm::find(held_, formed_tensor{t, f}) != held_.end(); };
    if (holds(tensor_form::partial()) || holds(tensor_form::mirrored()))
        return table_.intern(cut_move{end, 0, {}, {}, false});
    if (!holds(tensor_form::replicated())) return std::nullopt;
    auto const mirror = table_.intern(end, instruction::convert(t, tensor_form::replicated(), tensor_form::mirrored()));
    return table_.intern(cut_move{end, 0, {mirror}, {}, false});
}

} // namespace heddle

#endif
