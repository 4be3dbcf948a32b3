// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief An order of a program's operators in which few tensors are in use at once.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/operator_progress.hpp>

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// Tells whether what is held of a tensor is part of what is known at a cut: not if it is had for nothing.
[[nodiscard]] inline bool is_held_at_cuts(indexed_tensor const& t) { return t.at_cuts != tensor_at_cuts::free; }

namespace detail {

/// Numbers that tell operators apart by what they do and what they are made from, whatever the order they are given in.
[[nodiscard]] std::vector<std::uint64_t> looks_of(indexed_program const& p);

/// An order of operators: before each what it uses, operand by operand, or the operand first that takes the longest
/// chain of operators to make.
[[nodiscard]] std::vector<operator_id> depth_first(indexed_program const& p, bool longest_first);

/// Sets of operators done, grown one by one; of each size those are kept that were narrow so far.
class narrow_order_search {
public:
    narrow_order_search(indexed_program const& p, std::size_t beam);
    [[nodiscard]] std::vector<operator_id> run();

private:
    struct node {
        std::uint32_t from;
        operator_id op;
    };
    /// A set, and the logarithm of the forms of all tensors in use there.
    struct kept {
        operator_progress::set operators;
        std::int64_t width = 0;
        std::uint64_t sum = 0;
        std::uint32_t node = 0;
    };
    /// A step from one of the sets kept; those that are first are taken.
    struct candidate {
        bool leaves_guide = true;
        std::uint64_t sum = 0;
        std::int64_t width = 0;
        std::uint32_t from = 0, rank = 0;
        operator_id op = 0;
        friend auto operator<=>(candidate const&, candidate const&) = default;
    };

    [[nodiscard]] static std::uint64_t states_of(std::int64_t width) {
        return static_cast<std::uint64_t>(std::exp2(static_cast<double>(std::min<std::int64_t>(width, 64 * 40)) / 64));
    }
    /// The states of all cuts of an order, about.
    [[nodiscard]] std::uint64_t states_of(std::vector<operator_id> const& order) const;
    /// Returns by how much an operator widens the cut.
    [[nodiscard]] std::int64_t width_by(std::vector<bool> const& done, operator_id o) const;
    [[nodiscard]] bool ends_with(std::vector<bool> const& done, operator_id o, tensor_id t) const;
    template <class Visit>
    void for_each_tensor(operator_id o, Visit&& visit) const;

    indexed_program const& program_;
    std::size_t beam_;
    operator_progress progress_;
    /// For each tensor, the logarithm of its forms.
    std::vector<std::int64_t> forms_;
};

} // namespace detail

/// An order of a program's operators in which the forms of the tensors in use at cuts are few, in all combinations and
/// over all cuts: the best that a beam finds. It follows from the graph, not from the order that is given.
/// *Complexity.* Linear in the operators, times the beam and the operators that can be next.
[[nodiscard]] std::vector<operator_id> narrow_order(indexed_program const& p, std::size_t beam = 16);

/// The program with its operators in another order. *Precondition:* none comes before what it uses.
[[nodiscard]] indexed_program in_order(indexed_program p, std::vector<operator_id> const& order);

/// Brings up to date who uses what, of a program whose operators were changed.
void count_uses(indexed_program& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::vector<std::uint64_t> looks_of(indexed_program const& p) {
    auto const mix = [](std::uint64_t h, std::uint64_t v) {
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        return h ^ (h >> 29);
    };
    std::vector<std::uint64_t> of_tensor, result;
    for (auto const& t : p.tensors) {
        std::uint64_t h = mix(static_cast<std::uint64_t>(t.info.role), static_cast<std::uint64_t>(t.info.type));
        for (auto e : t.info.shape) h = mix(h, static_cast<std::uint64_t>(e));
        of_tensor.push_back(h);
    }
    for (auto const& op : p.operators) {
        auto h = mix(static_cast<std::uint64_t>(op.work.category), op.loops.size());
        h = mix(h, static_cast<std::uint64_t>(std::llround(op.work.forward.value)));
        for (auto t : op.operands) h = mix(h, of_tensor[t]);
        result.push_back(h);
        for (std::size_t k = 0; k < op.results.size(); ++k) of_tensor[op.results[k]] = mix(h, k);
    }
    return result;
}

HEDDLE_INLINE narrow_order_search::narrow_order_search(indexed_program const& p, std::size_t beam)
    : program_(p), beam_(beam), progress_(p) {
    for (auto const& t : p.tensors) {
        bool const is_fixed = t.at_cuts == tensor_at_cuts::fixed;
        double const forms = static_cast<double>(t.factors.size()) + (is_fixed ? 0 : t.has_cotangent ? 3 : 2);
        forms_.push_back(is_held_at_cuts(t) ? std::llround(64 * std::log2(forms)) : 0);
    }
}

template <class Visit>
void narrow_order_search::for_each_tensor(operator_id o, Visit&& visit) const {
    auto const& op = program_.operators[o];
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (algorithm::find(op.operands, op.operands[k]) == op.operands.begin() + static_cast<std::ptrdiff_t>(k))
            visit(op.operands[k]);
    for (auto t : op.results) visit(t);
}

HEDDLE_INLINE bool narrow_order_search::ends_with(std::vector<bool> const& done, operator_id o, tensor_id t) const {
    auto const& users = program_.tensors[t].consumers;
    return t != program_.loss &&
           std::all_of(users.rbegin(), users.rend(), [&](auto user) { return user == o || done[user]; });
}

HEDDLE_INLINE std::int64_t narrow_order_search::width_by(std::vector<bool> const& done, operator_id o) const {
    std::int64_t width = 0;
    for_each_tensor(o, [&](tensor_id t) {
        auto const from = progress_.producer(t);
        bool const was_in_use = from == done.size()
                                    ? algorithm::any_of(program_.tensors[t].consumers, [&](auto u) { return done[u]; })
                                    : from != o;
        width += forms_[t] * ((ends_with(done, o, t) ? 0 : 1) - (was_in_use ? 1 : 0));
    });
    return width;
}

HEDDLE_INLINE std::uint64_t narrow_order_search::states_of(std::vector<operator_id> const& order) const {
    std::vector<bool> done(program_.operators.size());
    std::int64_t width = 0;
    std::uint64_t sum = 0;
    for (auto o : order) {
        width += width_by(done, o);
        sum += states_of(width);
        done[o] = true;
    }
    return sum;
}

HEDDLE_INLINE std::vector<operator_id> depth_first(indexed_program const& p, bool longest_first) {
    auto const count = static_cast<operator_id>(p.operators.size());
    std::vector<operator_id> producer(p.tensors.size(), count);
    std::vector<std::size_t> chain(count);
    for (operator_id o = 0; o < count; ++o) {
        for (auto t : p.operators[o].operands)
            if (producer[t] < count) chain[o] = std::max(chain[o], chain[producer[t]] + 1);
        for (auto t : p.operators[o].results) producer[t] = o;
    }
    std::vector<operator_id> order;
    std::vector<bool> is_met(count);
    // Operators whose operands are being made, and those operands' operators, the next last.
    std::vector<std::pair<operator_id, std::vector<operator_id>>> under_way;
    auto const begin = [&](operator_id o) {
        if (is_met[o]) return;
        is_met[o] = true;
        std::vector<operator_id> needed;
        for (auto t : p.operators[o].operands)
            if (producer[t] < count) needed.push_back(producer[t]);
        std::reverse(needed.begin(), needed.end());
        if (longest_first) {
            std::vector<operator_id> in_order; // equals as they were
            for (auto const n : needed)
                in_order.insert(algorithm::upper_bound(in_order, chain[n], {}, [&](auto a) { return chain[a]; }), n);
            needed = std::move(in_order);
        }
        under_way.push_back({o, std::move(needed)});
    };
    auto const visit = [&](operator_id root) {
        begin(root);
        while (!under_way.empty()) {
            auto& [o, needed] = under_way.back();
            if (needed.empty()) {
                order.push_back(o);
                under_way.pop_back();
                continue;
            }
            auto const next = needed.back();
            needed.pop_back();
            begin(next);
        }
    };
    if (producer[p.loss] < count) visit(producer[p.loss]);
    if (order.size() < count) { // what the loss does not need
        auto const looks = looks_of(p);
        std::vector<operator_id> others;
        for (operator_id o = 0; o < count; ++o)
            if (!is_met[o]) others.push_back(o);
        algorithm::sort(others, {}, [&](operator_id o) { return std::tuple(count - chain[o], looks[o], o); });
        for (auto o : others) visit(o);
    }
    return order;
}

HEDDLE_INLINE std::vector<operator_id> narrow_order_search::run() {
    auto const count = static_cast<operator_id>(program_.operators.size());
    std::vector<node> nodes{{0, 0}};
    std::vector<kept> here{{progress_.start()}};
    // A set on the way of the better of two orders is always kept.
    auto guide = progress_.with_preparations_moved(depth_first(program_, false));
    if (auto other = progress_.with_preparations_moved(depth_first(program_, true));
        states_of(other) < states_of(guide))
        guide = std::move(other);
    std::vector<std::uint32_t> rank(count);
    for (std::uint32_t n = 0; n < count; ++n) rank[guide[n]] = n;
    std::vector<candidate> candidates;
    for (std::uint32_t level = 0; level < count; ++level) {
        candidates.clear();
        for (std::uint32_t n = 0; n < here.size(); ++n)
            for (auto o : progress_.next_of(here[n].operators)) {
                auto const width = here[n].width + width_by(here[n].operators.done, o);
                candidates.push_back(
                    {n != 0 || rank[o] != level, here[n].sum + states_of(width), width, n, rank[o], o});
            }
        algorithm::sort(candidates);
        std::map<std::vector<operator_id>, std::size_t> met;
        std::vector<kept> there;
        for (auto const& c : candidates) {
            auto operators = progress_.after(here[c.from].operators, c.op);
            auto key = progress_.key_of(operators);
            auto const found = met.find(key);
            bool const is_new = found == met.end();
            if (is_new ? there.size() == beam_ : c.sum >= there[found->second].sum) continue;
            nodes.push_back({here[c.from].node, c.op});
            auto const last = static_cast<std::uint32_t>(nodes.size() - 1);
            if (!is_new) { // the set that is always kept, by a better way
                there[found->second].sum = c.sum;
                there[found->second].node = last;
                continue;
            }
            met.emplace(std::move(key), there.size());
            there.push_back({std::move(operators), c.width, c.sum, last});
        }
        here = std::move(there);
    }
    std::vector<operator_id> order;
    for (auto n = here[0].node; n != 0; n = nodes[n].from) order.push_back(nodes[n].op);
    std::reverse(order.begin(), order.end());
    return order;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<operator_id> narrow_order(indexed_program const& p, std::size_t beam) {
    return detail::narrow_order_search(p, beam).run();
}

HEDDLE_INLINE indexed_program in_order(indexed_program p, std::vector<operator_id> const& order) {
    std::vector<indexed_operator> operators;
    for (auto o : order) operators.push_back(std::move(p.operators[o]));
    p.operators = std::move(operators);
    count_uses(p);
    return p;
}

HEDDLE_INLINE void count_uses(indexed_program& p) {
    for (auto& t : p.tensors) t.consumers.clear();
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].operands)
            if (auto& users = p.tensors[t].consumers; users.empty() || users.back() != o) users.push_back(o);
}

} // namespace heddle

#endif
