// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Concepts of what can be searched.
#pragma once

#include <heddle/base/requirements.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace heddle::search {

/// A shortest-path problem whose path costs are labels.
///
/// *Notation.* `p` problem, `s`, `t` states, `a`, `b` labels.
/// *Axioms.* `p.dominates` is a preorder on labels that every extension preserves, and `p.dominates(a, b)` implies
/// `p.total(a) <= p.total(b)` at goals. `p.bound(s, a)` is at most the total of every completion from `(s, a)`. There
/// are no infinite paths of bounded cost. A path ends at the first goal it meets.
/// *Optional.* `p.memory(s)` and `p.memory(a)` are the bytes that a state or a label holds beyond its size.
/// `p.for_each_successor(s, a, visit, is_wanted)` may leave out successors before their labels are made, if
/// `is_wanted(b)` is false for a number `b` that is at most the total of every completion through them.
template <class Problem>
concept problem = requires(Problem const& p, typename Problem::state const& s, typename Problem::label const& a) {
    requires std::equality_comparable<typename Problem::state> && std::default_initializable<typename Problem::action>;
    { p.initial() } -> std::convertible_to<std::pair<typename Problem::state, typename Problem::label>>;
    { p.is_goal(s) } -> std::convertible_to<bool>;
    { p.total(a) } -> std::convertible_to<double>;
    { p.bound(s, a) } -> std::convertible_to<double>;
    { p.dominates(a, a) } -> std::convertible_to<bool>;
    p.for_each_successor(s, a,
                         [](typename Problem::action const&, typename Problem::state, typename Problem::label) {});
    { std::hash<typename Problem::state>{}(s) } -> std::convertible_to<std::size_t>;
};

/// Visits the successors of a label except those that the problem leaves out as not wanted.
template <problem Problem, class Visit, class IsWanted>
void for_each_wanted_successor(Problem const& p, typename Problem::state const& s, typename Problem::label const& a,
                               Visit const& visit, IsWanted const& is_wanted) {
    if constexpr (requires { p.for_each_successor(s, a, visit, is_wanted); })
        p.for_each_successor(s, a, visit, is_wanted);
    else p.for_each_successor(s, a, visit);
}

/// A problem that can tell that one state is at least as good as another, and has an index to find such states.
///
/// *Axioms.* `p.subsumes(s, t)` is a preorder; whatever completes `t` completes `s` with the same steps or fewer. For
/// an index `i`, `i.insert(n, s)` adds a state under a number, and `i.candidates(t)` is a range of added numbers that
/// should include those of the states that subsume `t`. A state that it misses costs time and nothing else.
template <class Problem>
concept subsuming_problem = problem<Problem> && requires(Problem const& p, typename Problem::state const& s,
                                                         typename Problem::subsumption_index& i) {
    { p.subsumes(s, s) } -> std::convertible_to<bool>;
    i.insert(std::uint32_t{}, s);
    i.candidates(s);
};

} // namespace heddle::search
