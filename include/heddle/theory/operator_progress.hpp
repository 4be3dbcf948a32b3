// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which operators can run next, where some have run.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace heddle {

/// The sets of operators that contain all that their members depend on, one operator after the other.
///
/// *Preparations* are operators that depend on parameters alone and that others need. They could run at any time, so
/// their orders would multiply those of all others; they run where another operator needs one and can run but for
/// these.
class operator_progress {
public:
    struct set {
        std::vector<bool> done;
        /// The operators that can run now, but for preparations that they need, ascending.
        std::vector<operator_id> ready;
    };

    explicit operator_progress(indexed_program const& p);

    [[nodiscard]] set start() const;
    /// *Precondition:* the operator is one of `next_of(s)`.
    [[nodiscard]] set after(set const& s, operator_id op) const;
    /// Returns the operators that can run next, ascending.
    [[nodiscard]] std::vector<operator_id> next_of(set const& s) const;
    /// Returns what tells a set from all others.
    [[nodiscard]] std::vector<operator_id> key_of(set const& s) const;
    /// Returns an order of all operators with preparations moved to where they are needed.
    [[nodiscard]] std::vector<operator_id> with_preparations_moved(std::vector<operator_id> const& order) const;

    /// Returns the operator that makes a tensor, or the number of operators.
    [[nodiscard]] operator_id producer(tensor_id t) const { return producer_[t]; }

private:
    void find_preparations();
    [[nodiscard]] bool is_ready(operator_id o, std::vector<bool> const& done) const {
        return algorithm::all_of(program_->operators[o].operands, [&](tensor_id t) {
            auto const from = producer_[t];
            return from == done.size() || done[from] || is_preparation_[from];
        });
    }

    indexed_program const* program_;
    std::vector<operator_id> producer_;
    std::vector<bool> is_preparation_;
    /// For each operator the preparations that it depends on, ascending.
    std::vector<std::vector<operator_id>> preparations_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE operator_progress::operator_progress(indexed_program const& p)
    : program_(&p), producer_(p.tensors.size(), static_cast<operator_id>(p.operators.size())),
      is_preparation_(p.operators.size()), preparations_(p.operators.size()) {
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].results) producer_[t] = o;
    find_preparations();
}

HEDDLE_INLINE void operator_progress::find_preparations() {
    for (operator_id o = 0; o < program_->operators.size(); ++o) {
        auto const& op = program_->operators[o];
        is_preparation_[o] =
            algorithm::any_of(op.results, [&](tensor_id t) { return !program_->tensors[t].consumers.empty(); }) &&
            algorithm::all_of(op.operands, [&](tensor_id t) {
                auto const from = producer_[t];
                return from < o ? is_preparation_[from] : program_->tensors[t].is_parameter();
            });
        auto& needed = preparations_[o];
        for (auto const t : op.operands)
            if (auto const from = producer_[t]; from < o && is_preparation_[from]) {
                needed.insert(needed.end(), preparations_[from].begin(), preparations_[from].end());
                needed.push_back(from);
            }
        algorithm::sort(needed);
        needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    }
}

HEDDLE_INLINE operator_progress::set operator_progress::start() const {
    set s{std::vector<bool>(program_->operators.size()), {}};
    for (operator_id o = 0; o < program_->operators.size(); ++o)
        if (!is_preparation_[o] && is_ready(o, s.done)) s.ready.push_back(o);
    return s;
}

HEDDLE_INLINE operator_progress::set operator_progress::after(set const& s, operator_id op) const {
    set next = s;
    next.done[op] = true;
    if (is_preparation_[op]) return next;
    std::erase(next.ready, op);
    for (auto t : program_->operators[op].results)
        for (auto o : program_->tensors[t].consumers) {
            auto const at = algorithm::lower_bound(next.ready, o);
            bool const is_there = at != next.ready.end() && *at == o;
            if (!is_there && is_ready(o, next.done)) next.ready.insert(at, o);
        }
    return next;
}

HEDDLE_INLINE std::vector<operator_id> operator_progress::next_of(set const& s) const {
    std::vector<operator_id> next;
    for (auto const o : s.ready) {
        auto const needed = algorithm::find_if(preparations_[o], [&](operator_id p) { return !s.done[p]; });
        next.push_back(needed == preparations_[o].end() ? o : *needed);
    }
    algorithm::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    return next;
}

HEDDLE_INLINE std::vector<operator_id> operator_progress::with_preparations_moved(
    std::vector<operator_id> const& order) const {
    std::vector<operator_id> moved;
    std::vector<bool> done(order.size());
    auto const append = [&](operator_id o) {
        if (!done[o]) moved.push_back(o);
        done[o] = true;
    };
    for (auto const o : order)
        if (!is_preparation_[o]) {
            for (auto const p : preparations_[o]) append(p);
            append(o);
        }
    return moved;
}

HEDDLE_INLINE std::vector<operator_id> operator_progress::key_of(set const& s) const {
    auto key = s.ready;
    for (auto const o : s.ready)
        std::ranges::copy_if(preparations_[o], std::back_inserter(key), [&](auto p) { return !s.done[p]; });
    return key;
}

} // namespace heddle

#endif
