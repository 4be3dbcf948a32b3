// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The background theory as a layered state space: what is held at each cut between operators.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/operator_cuts.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/theory.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// What is held at a cut, sorted: codes of forms of the tensors in use there, which are numbered as they came into use.
/// So cuts at the same place of repeated blocks have the same states.
struct cut_state {
    std::vector<std::uint32_t> held;
    /// Which of the cuts of its level.
    std::uint32_t cut = 0;
    friend bool operator==(cut_state const&, cut_state const&) = default;
};

} // namespace heddle

template <>
struct std::hash<heddle::cut_state> {
    std::size_t operator()(heddle::cut_state const& s) const {
        std::uint64_t h = 0x9e3779b97f4a7c15u + s.cut;
        for (auto id : s.held) h = (h ^ id) * 0xff51afd7ed558ccdu, h ^= h >> 29;
        return static_cast<std::size_t>(h);
    }
};

namespace heddle {

/// What leads from one cut to the next: the sources read and conversions made for one operator, then
/// the operator, then what is resharded. Numbers refer to `cut_space::instructions()`.
struct cut_move {
    /// The first of the operators that it can lead over; the number of operators at the end.
    operator_id kind = 0;
    /// How far from the level the operator is in the given order: 0 where operators run in that order.
    std::int32_t ahead = 0;
    boost::container::small_vector<std::uint32_t, 4> instructions;
    /// What is kept for the backward pass and was not kept before.
    boost::container::small_vector<std::pair<tensor_id, form>, 4> saved;
    /// Of micro-batches that take turns: it begins a stage.
    bool begins_stage = false;
};

/// Programs with operators in some order, each preceded by the conversions of its operands.
///
/// A state is what is held of the tensors still in use, with what of it is saved. Properties of tensors that nobody
/// uses any more are gone, reads are fused with the first use (HAP section 4.5). Where costs add up, the order of
/// independent instructions does not matter, so this space has a program as cheap as any of the theory that keeps to
/// the following. Each operator is computed once. A conversion goes straight to a form its operator uses, or through a
/// whole copy where nothing leads there straight. A parameter is stored in the form of its first use or, where that is
/// whole, along its finest factor of those that are allowed; it may be unsharded if one operator uses it. Where a
/// collective closes a stage, order matters: then the space has the orders that its cuts have (see `operator_cuts`); a
/// bound from added costs holds for every order.
///
/// Operators of one kind share instructions and moves, which are those of the first of the kind; `at` gives them to
/// another. What moves there are depends on what is held of the operator's own tensors alone; so they are made once for
/// each such holding, and those that leave the same behind are a bundle.
class cut_space {
public:
    using state = cut_state;
    /// Number of a move in `moves()`.
    using action = std::uint32_t;

    /// `kinds` as of `operator_kinds`; without it every operator is of its own kind. At most `width` cuts of equally
    /// many operators are kept; one: those of the given order.
    explicit cut_space(indexed_program const& p, std::vector<operator_id> kinds = {}, std::size_t width = 1);

    /// From now on `for_each_successor` keeps to instructions for which this holds.
    /// *Complexity.* Linear in the operators.
    void restrict_to(instruction_filter allowed);

    /// From now on moves that read or gather a parameter come twice, the second time as the beginning of a stage; those
    /// that unshard one begin a stage in any case, for as long as the copies stay.
    void divide_into_stages();

    [[nodiscard]] std::size_t level_count() const { return program_.operators.size() + 2; }
    [[nodiscard]] state initial() const { return {}; }
    [[nodiscard]] std::uint64_t alike(std::size_t level) const { return alike_[level]; }
    /// The kind of an operator; the number of operators at the end.
    [[nodiscard]] operator_id kind(std::size_t op) const { return kinds_[op]; }
    /// The operator that a move leads over at a level; the number of operators at the end.
    [[nodiscard]] std::size_t operator_of(std::size_t level, action move) const {
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(level) + moves_[move].ahead);
    }
    [[nodiscard]] operator_cuts const& cuts() const { return cuts_; }
    [[nodiscard]] std::vector<instruction> const& instructions() const { return instructions_; }
    [[nodiscard]] std::vector<cut_move> const& moves() const { return moves_; }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// What an instruction or a move has in place of a tensor of its kind at an operator.
    [[nodiscard]] tensor_id at(std::size_t op, tensor_id t) const {
        return in_place_of(t, kinds_[op], static_cast<operator_id>(op));
    }
    /// An instruction of the kind of an operator, there.
    [[nodiscard]] instruction at(std::size_t op, instruction i) const {
        return moved(std::move(i), kinds_[op], static_cast<operator_id>(op));
    }
    /// False once an operator had more ways to bring its operands than are tried.
    [[nodiscard]] bool is_complete() const { return is_complete_; }

    /// The moves that lead from a state to the same state.
    [[nodiscard]] std::vector<action> const& bundle(std::uint32_t number) const { return bundles_[number]; }

    /// Calls `visit(bundle, state const&)`; the state is good until it returns.
    /// Not const: numbers new instructions, moves and bundles.
    template <class Visit>
    void for_each_successor(std::size_t level, state const& s, Visit&& visit) {
        level_ = level;
        from_ = &cuts_.of_level(std::min(level, program_.operators.size()))[s.cut].live;
        if (level == program_.operators.size()) {
            op_ = static_cast<operator_id>(level);
            own_.held = s.held;
            for (auto const& [bundle, left] : ways_from_own(alike_steps_[level].front())) visit(bundle, left);
            return;
        }
        std::size_t number = 0; // of the step among those of the level
        for (std::uint32_t c = 0; c < s.cut; ++c) number += cuts_.of_level(level)[c].advances.size();
        for (auto const& over : cuts_.of_level(level)[s.cut].advances) {
            op_ = over.op;
            over_ = &over;
            to_ = &cuts_.of_level(level + 1)[over.next].live;
            own_.held.clear();
            other_.clear();
            for (auto id : s.held) {
                auto const place = id >> place_shift;
                if (over.is_own[place]) own_.held.push_back(id);
                else other_.push_back(id - (place << place_shift) + (over.place[place] << place_shift));
            }
            next_.cut = over.next;
            for (auto const& [bundle, left] : ways_from_own(alike_steps_[level][number++])) {
                next_.held.clear();
                std::ranges::merge(left.held, other_, std::back_inserter(next_.held));
                visit(bundle, std::as_const(next_));
            }
        }
    }

private:
    using need = std::pair<tensor_id, form>;
    /// A bundle, and what it leaves of the operator's own tensors.
    struct way {
        std::uint32_t bundle;
        state left;
    };

    /// What can be done with what is held of the operator's tensors in `own_`, in the order in which it is found.
    std::vector<way> const& ways_from_own(std::uint64_t alike);
    void list_ways(operator_id op, std::vector<way>& ways);

    /// Tries every way to hold the needs from number `at` on, then computes.
    template <class Visit>
    void fulfil(std::size_t at, operator_id op, state const& s, instruction::compute const& computation, Visit& visit) {
        if (ways_ == most_ways) {
            is_complete_ = false;
            return;
        }
        if (at == needs_.size()) return compute(op, s, computation, visit);
        auto const [t, f] = needs_[at];
        if (holds(s, t, f)) return fulfil(at + 1, op, s, computation, visit);
        auto const& tensor = program_.tensors[t];
        auto const with = [&](std::initializer_list<instruction> steps) {
            auto const path_size = path_.size();
            auto const gained_size = gained_.size();
            if (!algorithm::all_of(steps, std::cref(allowed_))) return;
            for (auto const& i : steps) {
                form const to = i.change()->to;
                if (holds(s, t, to)) continue; // a whole copy on the way may be there for another operand
                path_.push_back(i);
                path_numbers_.push_back(number(i));
                gained_.push_back({t, to});
            }
            fulfil(at + 1, op, s, computation, visit);
            path_.resize(path_size);
            path_numbers_.resize(path_size);
            gained_.resize(gained_size);
        };
        form_list held;
        if (auto const place = place_in(*from_, t))
            for (auto id : s.held)
                if (id >= code(*place, form::from_code(0)) && id < code(*place, form::from_code(0), true))
                    held.push_back(form::from_code(static_cast<std::uint16_t>(id & form_mask)));
        for (auto const& [owner, gained] : gained_)
            if (owner == t) held.push_back(gained);
        for (form from : held) {
            if (find_conversion(from, f)) {
                with({instruction::convert(t, from, f)});
                continue;
            }
            for (form hub : {form::replicated(), form::mirrored()})
                if (is_possible(hub, tensor))
                    with({instruction::convert(t, from, hub), instruction::convert(t, hub, f)});
        }
        // A parameter is stored once, in the form of its first read; anything else can be read again.
        if (!tensor.is_source() || (!held.empty() && tensor.is_parameter())) return;
        auto const readable = readable_forms(tensor);
        if (algorithm::find(readable, f) != readable.end()) with({instruction::read(t, f)});
        else with({instruction::read(t, form::replicated()), instruction::convert(t, form::replicated(), f)});
        if (!tensor.is_parameter() || tensor.factors.empty() || !f.is_whole()) return;
        form const stored = form::shard(gathered_along(t));
        if (tensor.has_cotangent) with({instruction::read(t, stored, f)});
        with({instruction::read(t, stored), instruction::convert(t, stored, f)});
        // What gathers factors has its gradient after the backward pass only.
        if (!is_used_once(program_, t) || (gathers_factors(computation) && f == form::mirrored())) return;
        with({instruction::read(t, stored), instruction::unshard(t, stored, f, false)});
        if (!is_read_again(program_, t)) return; // nothing stays of it
        instruction const unshard = instruction::unshard(t, stored, f, true);
        if (!allowed_(unshard)) return;
        resharded_.push_back(instruction::reshard(t, f, stored));
        with({instruction::read(t, stored), unshard});
        resharded_.pop_back();
    }

    template <class Visit>
    void compute(operator_id op, state const& s, instruction::compute const& computation, Visit& visit) {
        ++ways_;
        auto& move = move_;
        move.kind = kinds_[op];
        move.ahead = static_cast<std::int32_t>(static_cast<std::ptrdiff_t>(op) - static_cast<std::ptrdiff_t>(level_));
        move.instructions.assign(path_numbers_.begin(), path_numbers_.end());
        move.instructions.push_back(computation_number_);
        for (auto const& i : resharded_) move.instructions.push_back(number(i));
        move.saved.clear();
        auto& next = left_.held;
        next.clear();
        auto const keep = [&](tensor_id t, form f, bool saved) {
            if (auto const place = place_in(*to_, t)) next.push_back(code(*place, f, saved));
        };
        for (auto id : s.held) {
            auto const place = id >> place_shift;
            if (over_->place[place] != operator_cuts::gone)
                next.push_back(id - (place << place_shift) + (over_->place[place] << place_shift));
        }
        for (auto const& [t, f] : gained_) keep(t, f, false);
        // The forms a parameter is stored in count as saved from the start.
        for (auto const& i : path_)
            if (auto const* read = i.as<instruction::read>(); read && program_.tensors[read->tensor].is_parameter())
                for (form f : {read->to, form::replicated(), form::mirrored()})
                    if (is_stored(read->to, f)) keep(read->tensor, f, true);
        for (std::size_t k = 0; k < computation.results.size(); ++k)
            keep(program_.operators[op].results[k], computation.results[k], false);
        for_each_saved(program_, computation, [&](tensor_id t, form f) {
            if (algorithm::any_of(resharded_, [&](auto const& i) { return i.change()->tensor == t; })) return;
            bool const stored = program_.tensors[t].is_parameter() && algorithm::any_of(path_, [&](auto const& i) {
                                    auto const* const read = i.template as<instruction::read>();
                                    return read && read->tensor == t && is_stored(read->to, f);
                                });
            auto const here = place_in(*from_, t);
            if (stored || (here && algorithm::binary_search(s.held, code(*here, f, true)))) return;
            std::pair const pair{in_place_of(t, op, kinds_[op]), f};
            if (algorithm::find(move.saved, pair) == move.saved.end()) move.saved.push_back(pair);
            keep(t, f, true);
        });
        algorithm::sort(next);
        next.erase(std::unique(next.begin(), next.end()), next.end());
        bool const unshards = has_stages_ && algorithm::any_of(path_, [](auto const& i) {
                                  return i.template is<instruction::unshard>();
                              });
        move.begins_stage = unshards;
        visit(number(move), left_);
        move.begins_stage = has_stages_ && !unshards && algorithm::any_of(path_, [&](auto const& i) {
                                return program_.tensors[i.change()->tensor].is_parameter();
                            });
        if (move.begins_stage) visit(number(move), left_);
    }

    template <class Visit>
    void finish(state const& s, Visit& visit) {
        tensor_id const t = program_.loss;
        auto const end = op_;
        gained_.clear();
        if (holds(s, t, form::partial()) || holds(s, t, form::mirrored()))
            return visit(number(cut_move{end, 0, {}, {}, false}), state{});
        if (holds(s, t, form::replicated()))
            visit(number(cut_move{
                      end, 0, {number(instruction::convert(t, form::replicated(), form::mirrored()))}, {}, false}),
                  state{});
    }

    /// Of the factors along which a parameter may be read, that of most atoms; of all where it may be read along none.
    [[nodiscard]] factor_number gathered_along(tensor_id t) const;

    /// Whether a parameter read in form `read` takes no further memory in form `f`.
    static bool is_stored(form read, form f) { return read == f || (read.is_whole() && f.is_whole()); }

    [[nodiscard]] bool holds(state const& s, tensor_id t, form f) const;

    /// In a state, a tensor in use stands for itself by its place among them.
    static constexpr std::uint32_t place_shift = 15, form_mask = (1u << 14) - 1;
    static std::uint32_t code(std::uint32_t place, form f, bool saved = false) {
        return (place << place_shift) | (std::uint32_t{saved} << (place_shift - 1)) | f.code();
    }
    static std::optional<std::uint32_t> place_in(std::vector<tensor_id> const& live, tensor_id t);

    template <class Visit>
    void for_each_position(operator_id o, Visit&& visit) const {
        auto const& op = program_.operators[o];
        for (std::size_t k = 0; k < op.operands.size() + op.results.size(); ++k) visit(tensor_at(op, k));
    }

    /// All that the moves over an operator depend on, beside what is held and allowed.
    void describe(std::size_t level, operator_cuts::cut const& cut, operator_cuts::advance const& over,
                  std::vector<std::uint64_t>& key) const;

    /// The tensor of operator `to` in the position that another has in `from`, an operator of the same kind.
    [[nodiscard]] tensor_id in_place_of(tensor_id t, operator_id from, operator_id to) const {
        return from == to ? t : tensor_at(program_.operators[to], position_of(program_.operators[from], t));
    }
    [[nodiscard]] instruction moved(instruction i, operator_id from, operator_id to) const;

    /// Of an instruction for operator `op_`, the number of the one of its kind.
    std::uint32_t number(instruction const& there);

    action number(cut_move const& move);

    using key_hash = search::list_hash<std::uint32_t>;

    indexed_program const& program_;
    /// By operator, and one for the end.
    std::vector<operator_id> kinds_;
    /// Of the first of each kind.
    std::vector<std::vector<instruction::compute>> computations_;
    operator_cuts cuts_;
    /// By level: a number for what is alike. And by operator that can be next, of all its cuts.
    std::vector<std::uint64_t> alike_;
    std::vector<std::vector<std::uint64_t>> alike_steps_;
    std::vector<instruction> instructions_;
    std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, key_hash> instruction_number_;
    std::vector<cut_move> moves_;
    std::unordered_map<std::vector<std::uint32_t>, action, key_hash> move_number_;
    std::vector<std::vector<action>> bundles_;
    /// By levels that are alike and what is held of the operator's tensors.
    std::unordered_map<std::vector<std::uint32_t>, std::vector<way>, key_hash> ways_from_;
    instruction_filter allowed_ = instruction_filter::everything();
    // What is under way, kept for its memory.
    static constexpr std::size_t most_ways = 4096;
    bool is_complete_ = true, has_stages_ = false;
    std::size_t ways_ = 0;
    std::size_t level_ = 0;
    operator_id op_ = 0;
    operator_cuts::advance const* over_ = nullptr;
    std::vector<tensor_id> const *from_ = nullptr, *to_ = nullptr;
    std::vector<need> needs_, gained_;
    std::vector<instruction> path_, resharded_;
    std::vector<std::uint32_t> path_numbers_, key_, other_;
    std::uint32_t computation_number_ = 0;
    cut_move move_;
    cut_state next_, own_, left_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE cut_space::cut_space(indexed_program const& p, std::vector<operator_id> kinds, std::size_t width)
    : program_(p), kinds_(std::move(kinds)), cuts_(p, width) {
    auto const count = static_cast<operator_id>(p.operators.size());
    for (auto n = static_cast<operator_id>(kinds_.size()); n <= count; ++n) kinds_.push_back(n);
    computations_.resize(count);
    for (operator_id o = 0; o < count; ++o)
        if (kinds_[o] == o) computations_[o] = computations(p, o);
    restrict_to(instruction_filter::everything());
}

HEDDLE_INLINE void cut_space::restrict_to(instruction_filter allowed) {
    allowed_ = std::move(allowed);
    ways_from_.clear();
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> steps, levels;
    alike_.clear();
    alike_steps_.clear();
    std::vector<std::uint64_t> key, whole;
    for (std::size_t level = 0; level + 1 < level_count(); ++level) {
        auto& here = alike_steps_.emplace_back();
        whole.clear();
        for (auto const& cut : cuts_.of_level(level)) {
            for (auto const& over : cut.advances) {
                describe(level, cut, over, key);
                if (!allowed_.mark) key.push_back(level);
                else for_each_position(over.op, [&](tensor_id t) { key.push_back(allowed_.mark(t)); });
                here.push_back(steps.insert(key).first);
                whole.insert(whole.end(), {here.back(), over.next});
            }
            whole.push_back(~std::uint64_t{0}); // the end of a cut
        }
        if (level == program_.operators.size()) {
            key = {kinds_[level]};
            here.push_back(steps.insert(key).first);
            whole.push_back(here.back());
        }
        alike_.push_back(levels.insert(whole).first);
    }
    alike_.push_back(levels.size());
}

HEDDLE_INLINE void cut_space::divide_into_stages() {
    has_stages_ = true;
    ways_from_.clear();
}

HEDDLE_INLINE std::vector<cut_space::way> const& cut_space::ways_from_own(std::uint64_t alike) {
    key_.assign({static_cast<std::uint32_t>(alike)});
    key_.insert(key_.end(), own_.held.begin(), own_.held.end());
    auto const [slot, is_new] = ways_from_.try_emplace(key_);
    if (is_new) list_ways(op_, slot->second);
    return slot->second;
}

HEDDLE_INLINE void cut_space::list_ways(operator_id op, std::vector<way>& ways) {
    std::unordered_map<state, std::size_t> outcomes;
    auto const add = [&](action move, state const& left) {
        auto const [slot, is_new] = outcomes.try_emplace(left, ways.size());
        if (is_new) {
            ways.push_back({static_cast<std::uint32_t>(bundles_.size()), left});
            bundles_.emplace_back();
        }
        bundles_[ways[slot->second].bundle].push_back(move);
    };
    if (op == program_.operators.size()) return finish(own_, add);
    for (auto const& of_kind : computations_[kinds_[op]]) {
        instruction const at_op = at(op, of_kind);
        if (!allowed_(at_op)) continue;
        auto const& computation = *at_op.as<instruction::compute>();
        needs_.clear();
        for (std::size_t k = 0; k < computation.operands.size(); ++k) {
            std::pair const wanted{program_.operators[op].operands[k], computation.operands[k]};
            if (algorithm::find(needs_, wanted) == needs_.end()) needs_.push_back(wanted);
        }
        gained_.clear();
        path_.clear();
        path_numbers_.clear();
        computation_number_ = number(at_op);
        ways_ = 0;
        fulfil(0, op, own_, computation, add);
    }
}

HEDDLE_INLINE factor_number cut_space::gathered_along(tensor_id t) const {
    auto const& tensor = program_.tensors[t];
    std::optional<factor_number> best;
    for (factor_number f = 0; f < static_cast<factor_number>(tensor.factors.size()); ++f) {
        auto const atoms = [&](factor_number g) { return tensor.factors[static_cast<std::size_t>(g)].extent; };
        if (allowed_(instruction::read(t, form::shard(f))) && (!best || atoms(f) > atoms(*best))) best = f;
    }
    return best.value_or(finest_factor(tensor));
}

HEDDLE_INLINE bool cut_space::holds(state const& s, tensor_id t, form f) const {
    if (algorithm::find(gained_, need{t, f}) != gained_.end()) return true;
    auto const place = place_in(*from_, t);
    return place && algorithm::binary_search(s.held, code(*place, f));
}

HEDDLE_INLINE std::optional<std::uint32_t> cut_space::place_in(std::vector<tensor_id> const& live, tensor_id t) {
    auto const found = algorithm::find(live, t);
    if (found == live.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - live.begin());
}

HEDDLE_INLINE void cut_space::describe(std::size_t level, operator_cuts::cut const& cut,
                                       operator_cuts::advance const& over, std::vector<std::uint64_t>& key) const {
    key = {kinds_[over.op], over.op - level, cut.live.size()};
    key.insert(key.end(), over.place.begin(), over.place.end());
    auto const& to = cuts_.of_level(level + 1)[over.next].live;
    for_each_position(over.op, [&](tensor_id t) {
        for (auto const* live : {&cut.live, &to}) key.push_back(place_in(*live, t).value_or(operator_cuts::gone));
    });
}

HEDDLE_INLINE instruction cut_space::moved(instruction i, operator_id from, operator_id to) const {
    if (from == to) return i;
    if (auto* compute = i.as<instruction::compute>()) compute->op = to;
    if (auto* change = i.change()) change->tensor = in_place_of(change->tensor, from, to);
    return i;
}

HEDDLE_INLINE std::uint32_t cut_space::number(instruction const& there) {
    operator_id const kind = kinds_[op_];
    instruction i = moved(there, op_, kind);
    auto const* const unshard = i.as<instruction::unshard>();
    key_.assign({static_cast<std::uint32_t>(i.type()) | (std::uint32_t{unshard && unshard->is_resharded} << 8), kind});
    if (auto const* change = i.change())
        for (std::uint32_t v : {change->tensor, std::uint32_t{change->from.code()}, std::uint32_t{change->to.code()}})
            key_.push_back(v);
    else
        key_.push_back(static_cast<std::uint32_t>(algorithm::find(computations_[kind], *i.as<instruction::compute>()) -
                                                  computations_[kind].begin()));
    auto const [slot, is_new] = instruction_number_.try_emplace(key_, static_cast<std::uint32_t>(instructions_.size()));
    if (is_new) instructions_.push_back(std::move(i));
    return slot->second;
}

HEDDLE_INLINE cut_space::action cut_space::number(cut_move const& move) {
    key_.assign(move.instructions.begin(), move.instructions.end());
    for (std::uint32_t v : {~0u, move.kind, static_cast<std::uint32_t>(move.ahead), std::uint32_t{move.begins_stage}})
        key_.push_back(v);
    for (auto const& [t, f] : move.saved)
        for (std::uint32_t v : {t, std::uint32_t{f.code()}}) key_.push_back(v);
    auto const found = move_number_.find(key_);
    if (found != move_number_.end()) return found->second;
    moves_.push_back(move);
    return move_number_.emplace(key_, static_cast<action>(moves_.size() - 1)).first->second;
}

} // namespace heddle

#endif
