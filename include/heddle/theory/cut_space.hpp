// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The background theory as a layered state space: what is held at each cut between operators.
#pragma once

#include <heddle/theory/theory.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// The properties held at a cut, sorted.
struct cut_state {
    std::vector<property_id> held;
    friend bool operator==(cut_state const&, cut_state const&) = default;
};

} // namespace heddle

template <>
struct std::hash<heddle::cut_state> {
    std::size_t operator()(heddle::cut_state const& s) const {
        std::uint64_t h = 0x9e3779b97f4a7c15u;
        for (auto id : s.held) h = (h ^ id) * 0xff51afd7ed558ccdu, h ^= h >> 29;
        return static_cast<std::size_t>(h);
    }
};

namespace heddle {

/// Which instructions are to be considered.
using instruction_filter = std::function<bool(instruction const&)>;

/// Whether a tensor is one operand of one operator.
[[nodiscard]] inline bool is_used_once(indexed_program const& p, tensor_id t) {
    auto const& tensor = p.tensors[t];
    return tensor.consumers.size() == 1 && std::ranges::count(p.operators[tensor.consumers[0]].operands, t) == 1;
}

/// Whether the backward pass of an operator that uses a tensor reads it. *Precondition:* `is_used_once(p, t)`.
[[nodiscard]] inline bool is_read_again(indexed_program const& p, tensor_id t) {
    auto const& op = p.operators[p.tensors[t].consumers[0]];
    return std::ranges::any_of(op.work.saved_operands, [&](auto k) { return op.operands[k] == t; });
}

/// Programs as fast as any of `cut_space`, if not as small: what is used once, and whole, is whole between iterations, its
/// optimiser state in shards or not. To gather it for its use takes the same transfers, and one of them closes a stage.
[[nodiscard]] inline instruction_filter fastest_programs(indexed_program const& p) {
    return [&p](instruction const& i) {
        using enum instruction::kind;
        if (i.what == unshard || i.what == reshard) return false;
        return !(i.what == convert && i.from.is_shard() && i.to.is_whole() && p.tensors[i.tensor].is_parameter() && is_used_once(p, i.tensor));
    };
}

/// What leads from one cut to the next: the sources read and conversions made for one operator, then
/// the operator, then what is resharded. Numbers refer to `cut_space::instructions()`.
struct cut_move {
    boost::container::small_vector<std::uint32_t, 4> instructions;
    /// What is kept for the backward pass and was not kept before.
    boost::container::small_vector<std::pair<tensor_id, form>, 4> saved;
};

/// Programs with operators in their given order, each preceded by the conversions of its operands.
///
/// A state is what is held of the tensors still in use, with what of it is saved. Properties of tensors
/// that nobody uses any more are gone, reads are fused with the first use (HAP section 4.5).
/// Where costs add up, the order of independent instructions does not matter, so this space has a program
/// as cheap as any of the theory that keeps to the following. Each operator is computed once. A conversion
/// goes straight to a form its operator uses, or through a whole copy where nothing leads there straight. A
/// parameter is stored in the form of its first use or, where that is whole, along its finest factor; it may be unsharded
/// if one operator uses it.
/// Where a collective closes a stage, order matters a little; a bound from added costs holds for every order.
class cut_space {
public:
    using state = cut_state;
    /// Number of a move in `moves()`.
    using action = std::uint32_t;

    explicit cut_space(indexed_program const& p) : program_(p), properties_(p) {
        for (operator_id o = 0; o < p.operators.size(); ++o) computations_.push_back(computations(p, o));
        for (auto const& t : p.tensors) last_use_.push_back(t.consumers.empty() ? 0 : t.consumers.back() + 1);
        last_use_[p.loss] = static_cast<operator_id>(p.operators.size()) + 1;
    }

    /// From now on `for_each_successor` keeps to instructions for which this holds.
    void restrict_to(instruction_filter allowed) { allowed_ = std::move(allowed); }

    [[nodiscard]] std::size_t level_count() const { return program_.operators.size() + 2; }
    [[nodiscard]] state initial() const { return {}; }
    [[nodiscard]] std::vector<instruction> const& instructions() const { return instructions_; }
    [[nodiscard]] std::vector<cut_move> const& moves() const { return moves_; }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// False once an operator had more ways to bring its operands than are tried.
    [[nodiscard]] bool is_complete() const { return is_complete_; }

    /// Calls `visit(action, state const&)`; the state is good until it returns.
    /// Not const: numbers new instructions and moves.
    template <class Visit>
    void for_each_successor(std::size_t level, state const& s, Visit&& visit) {
        if (level == program_.operators.size()) return finish(s, visit);
        auto const op = static_cast<operator_id>(level);
        for (auto const& computation : computations_[op]) {
            if (!allowed_(computation)) continue;
            needs_.clear();
            for (std::size_t k = 0; k < computation.operands.size(); ++k) {
                std::pair const wanted{program_.operators[op].operands[k], computation.operands[k]};
                if (std::ranges::find(needs_, wanted) == needs_.end()) needs_.push_back(wanted);
            }
            gained_.clear();
            path_.clear();
            ways_ = 0;
            fulfil(0, op, s, computation, visit);
        }
    }

private:
    using need = std::pair<tensor_id, form>;

    /// Tries every way to hold the needs from number `at` on, then computes.
    template <class Visit>
    void fulfil(std::size_t at, operator_id op, state const& s, instruction const& computation, Visit& visit) {
        if (ways_ == most_ways) { is_complete_ = false; return; }
        if (at == needs_.size()) return compute(op, s, computation, visit);
        auto const [t, f] = needs_[at];
        if (holds(s, t, f)) return fulfil(at + 1, op, s, computation, visit);
        auto const& tensor = program_.tensors[t];
        auto const with = [&](std::initializer_list<instruction> steps) {
            auto const path_size = path_.size();
            auto const gained_size = gained_.size();
            if (!std::ranges::all_of(steps, allowed_)) return;
            for (auto const& i : steps) {
                if (holds(s, t, i.to)) continue; // a whole copy on the way may be there for another operand
                path_.push_back(number(i));
                gained_.push_back({t, i.to});
            }
            fulfil(at + 1, op, s, computation, visit);
            path_.resize(path_size);
            gained_.resize(gained_size);
        };
        form_list held;
        for (auto id : s.held)
            if (properties_.is_held(id) && properties_.tensor_and_form(id).first == t) held.push_back(properties_.tensor_and_form(id).second);
        for (auto const& [owner, gained] : gained_)
            if (owner == t) held.push_back(gained);
        for (form from : held) {
            if (find_conversion(from, f)) { with({instruction::convert(t, from, f)}); continue; }
            for (form hub : {form::replicated(), form::mirrored()})
                if (is_possible(hub, tensor)) with({instruction::convert(t, from, hub), instruction::convert(t, hub, f)});
        }
        // A parameter is stored once, in the form of its first read; anything else can be read again.
        if (!tensor.is_source() || (!held.empty() && tensor.is_parameter())) return;
        auto const readable = readable_forms(tensor);
        if (std::ranges::find(readable, f) != readable.end()) with({instruction::read(t, f)});
        else with({instruction::read(t, form::replicated()), instruction::convert(t, form::replicated(), f)});
        if (!tensor.is_parameter() || tensor.factors.empty() || !f.is_whole()) return;
        form const stored = form::shard(finest_factor(tensor));
        if (tensor.has_cotangent) with({instruction::read(t, stored, f)});
        with({instruction::read(t, stored), instruction::convert(t, stored, f)});
        // What gathers factors has its gradient after the backward pass only.
        if (!is_used_once(program_, t) || (gathers_factors(computation) && f == form::mirrored())) return;
        with({instruction::read(t, stored), instruction::unshard(t, stored, f, false)});
        if (!is_read_again(program_, t)) return; // nothing stays of it
        auto const unshard = instruction::unshard(t, stored, f, true);
        if (!allowed_(unshard)) return;
        resharded_.push_back(number(instruction::reshard(t, f, stored)));
        with({instruction::read(t, stored), unshard});
        resharded_.pop_back();
    }

    template <class Visit>
    void compute(operator_id op, state const& s, instruction const& computation, Visit& visit) {
        ++ways_;
        auto& move = move_;
        move.instructions.assign(path_.begin(), path_.end());
        move.instructions.push_back(number(computation));
        move.instructions.insert(move.instructions.end(), resharded_.begin(), resharded_.end());
        move.saved.clear();
        auto& next = next_.held;
        next.clear();
        auto const keep = [&](tensor_id t, property_id id) {
            if (last_use_[t] > op + 1) next.push_back(id);
        };
        for (auto id : s.held) keep(properties_.tensor_and_form(id < properties_.size() ? id : id - saved_offset()).first, id);
        for (auto const& [t, f] : gained_) keep(t, properties_.held(t, f));
        // The forms a parameter is stored in count as saved from the start.
        for (auto i : path_)
            if (auto const& read = instructions_[i]; read.what == instruction::kind::read && program_.tensors[read.tensor].is_parameter())
                for (form f : {read.to, form::replicated(), form::mirrored()})
                    if (is_stored(read.to, f)) keep(read.tensor, properties_.held(read.tensor, f) + saved_offset());
        for (std::size_t k = 0; k < computation.results.size(); ++k) {
            auto const t = program_.operators[op].results[k];
            keep(t, properties_.held(t, computation.results[k]));
        }
        for_each_saved(program_, computation, [&](tensor_id t, form f) {
            if (std::ranges::any_of(resharded_, [&](auto i) { return instructions_[i].tensor == t; })) return;
            property_id const id = properties_.held(t, f) + saved_offset();
            bool const stored = std::ranges::any_of(path_, [&](auto i) {
                auto const& read = instructions_[i];
                return program_.tensors[t].is_parameter() && read.what == instruction::kind::read && read.tensor == t && is_stored(read.to, f);
            });
            if (stored || std::ranges::find(s.held, id) != s.held.end()) return;
            if (std::pair const pair{t, f}; std::ranges::find(move.saved, pair) == move.saved.end()) move.saved.push_back(pair);
            keep(t, id);
        });
        std::ranges::sort(next);
        next.erase(std::unique(next.begin(), next.end()), next.end());
        visit(number(move), next_);
    }

    template <class Visit>
    void finish(state const& s, Visit& visit) {
        tensor_id const t = program_.loss;
        if (holds(s, t, form::partial()) || holds(s, t, form::mirrored())) return visit(number(cut_move{}), state{});
        if (holds(s, t, form::replicated())) visit(number(cut_move{{number(instruction::convert(t, form::replicated(), form::mirrored()))}, {}}), state{});
    }

    /// Whether a parameter read in form `read` takes no further memory in form `f`.
    static bool is_stored(form read, form f) { return read == f || (read.is_whole() && f.is_whole()); }

    [[nodiscard]] bool holds(state const& s, tensor_id t, form f) const {
        return std::ranges::find(s.held, properties_.held(t, f)) != s.held.end() ||
               std::ranges::find(gained_, need{t, f}) != gained_.end();
    }
    [[nodiscard]] property_id saved_offset() const { return static_cast<property_id>(properties_.size()); }

    std::uint32_t number(instruction const& i) {
        std::uint64_t const key = (std::uint64_t{static_cast<std::uint8_t>(i.what)} << 60) |
            (i.what == instruction::kind::compute ? (std::uint64_t{i.op} << 24) | static_cast<std::uint64_t>(&i - computations_[i.op].data())
                                                  : (std::uint64_t{i.tensor} << 28) | (std::uint64_t{i.from.code()} << 14) | i.to.code()) | (std::uint64_t{i.is_resharded} << 63);
        auto const [slot, is_new] = instruction_number_.try_emplace(key, static_cast<std::uint32_t>(instructions_.size()));
        if (is_new) instructions_.push_back(i);
        return slot->second;
    }

    action number(cut_move const& move) {
        key_.assign(move.instructions.begin(), move.instructions.end());
        key_.push_back(~0u);
        for (auto const& [t, f] : move.saved) key_.push_back(properties_.held(t, f));
        auto const found = move_number_.find(key_);
        if (found != move_number_.end()) return found->second;
        moves_.push_back(move);
        return move_number_.emplace(key_, static_cast<action>(moves_.size() - 1)).first->second;
    }

    struct hash_key {
        std::size_t operator()(std::vector<std::uint32_t> const& key) const {
            std::uint64_t h = key.size();
            for (auto v : key) h = (h ^ v) * 0xff51afd7ed558ccdu, h ^= h >> 31;
            return static_cast<std::size_t>(h);
        }
    };

    indexed_program const& program_;
    property_table properties_;
    std::vector<std::vector<instruction>> computations_;
    /// One past the last operator that uses a tensor.
    std::vector<operator_id> last_use_;
    std::vector<instruction> instructions_;
    std::unordered_map<std::uint64_t, std::uint32_t> instruction_number_;
    std::vector<cut_move> moves_;
    std::unordered_map<std::vector<std::uint32_t>, action, hash_key> move_number_;
    instruction_filter allowed_ = [](instruction const&) { return true; };
    // What is under way, kept for its memory.
    static constexpr std::size_t most_ways = 4096;
    bool is_complete_ = true;
    std::size_t ways_ = 0;
    std::vector<need> needs_, gained_;
    std::vector<std::uint32_t> path_, resharded_, key_;
    cut_move move_;
    cut_state next_;
};

} // namespace heddle
