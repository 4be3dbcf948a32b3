// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Simulated annealing: random steps between states, worse ones accepted ever more rarely.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/limits.hpp>
#include <heddle/search/mix_bits.hpp>
#include <heddle/search/outcome.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace heddle::search {

/// The random numbers of a seed, which are the same on every platform: SplitMix64 (Steele, Lea and Flood 2014).
class random_stream {
public:
    explicit random_stream(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() { return mix_bits(state_ += golden_gamma); }
    /// Returns a number of [0, 1).
    double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    /// Returns one of 0 .. count - 1, each equally likely. *Precondition:* count > 0.
    std::size_t below(std::size_t count);

private:
    std::uint64_t state_;
};

/// A set of states to walk in.
///
/// *Notation.* `p` problem, `s` state, `r` source of random numbers.
/// *Axioms.* `p.cost(s)` is not negative and not NaN, and infinite for a state that is no solution. `p.neighbour(s, r)`
/// draws a state near `s`, or `s` itself, and depends on nothing but `s` and the numbers drawn. Every state can be
/// reached from every other.
template <class Problem>
concept annealing_problem = requires(Problem const& p, typename Problem::state const& s, random_stream& r) {
    { p.initial() } -> std::convertible_to<typename Problem::state>;
    { p.neighbour(s, r) } -> std::convertible_to<typename Problem::state>;
    { p.cost(s) } -> std::convertible_to<double>;
};

struct annealing_options {
    std::uint64_t seed = 1;
    std::size_t steps = 10'000;
    /// The temperature as a fraction of the least cost met so far: a step that is worse by that much is accepted with
    /// probability 1/e.
    double temperature = 0.1;
    /// The factor by which a step multiplies the temperature. If unset, the last step has a thousandth of the first
    /// temperature.
    std::optional<double> cooling{};
    /// A state that costs no more than this ends the search and is optimal.
    double lower_bound = 0;
    /// Labels are steps.
    search::limits limits{};
};

struct annealing_statistics {
    std::size_t steps = 0;
    /// The number of steps taken, and of those that led to a new least cost.
    std::size_t accepted = 0, improved = 0;
    double seconds = 0;
};

/// The status is `feasible` after all steps, and `limit` if the search was stopped or met no state with a finite cost.
template <class State>
struct annealing_result : outcome<> {
    std::optional<double> cost;
    /// The first state met with the least cost.
    std::optional<State> state;
    annealing_statistics statistics;
};

/// A visitor may have `bool on_accept(state const&, double cost)`; if it returns false, the search stops.
struct no_annealing_visitor {};

namespace detail {

/// Returns e^-x for x >= 0 within 1e-12, by sums and products alone: library functions differ in their last bits.
[[nodiscard]] constexpr double decay(double x) {
    if (!(x < 64)) return 0;
    double const y = -x / 1024;
    double power = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6)))));
    for (int n = 0; n < 10; ++n) power *= power;
    return power;
}

/// Returns the factor that makes a thousandth of one in `steps` steps.
[[nodiscard]] constexpr double cooling_to_a_thousandth(std::size_t steps) {
    return decay(6.907755278982137 / static_cast<double>(steps > 1 ? steps - 1 : 1));
}

} // namespace detail

/// Walks from state to state and keeps the cheapest state met.
///
/// A step to a state that costs d more is taken with probability exp(-d / (temperature * least cost so far)). Until a
/// finite cost is met every step is taken. Nothing is proven except by `options.lower_bound`.
/// *Complexity.* One neighbour and one cost per step. Deterministic unless a wall clock stops it.
/// *Thread safety.* Uses the problem through const calls only.
/// *Reference.* AMP, Algorithm 2, which accepts by exp(-d / t) with t in seconds.
template <annealing_problem Problem, class Visitor = no_annealing_visitor>
[[nodiscard]] annealing_result<typename Problem::state> anneal(Problem const& p, annealing_options const& o = {},
                                                               Visitor&& visitor = {}) {
    using state_type = typename Problem::state;
    budget left(o.limits);
    annealing_result<state_type> out;
    random_stream random(o.seed);
    double least = std::numeric_limits<double>::infinity();

    std::optional<state_type> here;
    double here_cost = least;
    auto const accept = [&](state_type state, double cost) {
        here = std::move(state);
        here_cost = cost;
        if (cost < least) {
            least = cost;
            out.state = here;
        }
        if constexpr (requires {
                          { visitor.on_accept(*here, cost) } -> std::convertible_to<bool>;
                      })
            if (!visitor.on_accept(*here, cost)) left.stop();
    };
    {
        state_type first = p.initial();
        double const cost = p.cost(first);
        accept(std::move(first), cost);
    }
    double const cooling = o.cooling.value_or(detail::cooling_to_a_thousandth(o.steps));
    for (double temperature = o.temperature;
         out.statistics.steps < o.steps && least > o.lower_bound && !left.is_spent(out.statistics.steps);
         temperature *= cooling) {
        ++out.statistics.steps;
        state_type next = p.neighbour(*here, random);
        double const cost = p.cost(next), chance = random.unit();
        bool const take = cost <= here_cost || chance < detail::decay((cost - here_cost) / (temperature * least));
        if (!take) continue;
        ++out.statistics.accepted;
        out.statistics.improved += cost < least;
        accept(std::move(next), cost);
    }
    out.statistics.seconds = left.elapsed();
    if (out.state) out.cost = least;
    out.which_limit = left.reached();
    if (!out.cost && out.which_limit == limit_kind::none) out.which_limit = limit_kind::labels;
    conclude(out, out.cost, o.lower_bound, least);
    return out;
}

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE std::size_t random_stream::below(std::size_t count) {
    std::uint64_t const n = count, uneven = (0 - n) % n;
    std::uint64_t x = bits();
    while (x < uneven) x = bits();
    return static_cast<std::size_t>(x % n);
}

} // namespace heddle::search

#endif
