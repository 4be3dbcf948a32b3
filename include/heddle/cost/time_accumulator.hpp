// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The concept of what makes the time of a program of its priced steps.
#pragma once

#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/relaxation_weights.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace heddle {

/// Tells which weights of a relaxation bound an accumulator's time.
enum class relaxation_kind : std::uint8_t {
    /// No weights give a bound: relaxations only propose programs, and a program is bounded by the time of its first
    /// steps.
    none,
    /// The clocks may have any weights that sum to one, and so may the updates; everything else counts in full.
    clocks,
    /// The clocks may have weights as above, and gradients those of `gradient_turns`.
    turns,
    /// The clocks may have weights as above, and in either direction work and network may have any weights that sum to
    /// one.
    directions
};

/// Adds up the time of a program, one step after another in the order of the forward pass.
///
/// A label is what the steps so far leave: `initial()` stands for no steps, `extend(label, step)` adds one, and
/// `total(label)` is the seconds if no more follow. An accumulator is constructed from the number of device classes and
/// the options of training.
///
/// *Axioms.* No step makes a total smaller, and a step that costs nothing leaves everything as it is. If `dominates(a,
/// b)`, the total after `a` and any steps is at most that after `b` and the same steps. Unless `relaxation` is `none`,
/// `relaxed(label, weights, level)` and the prices (`relaxation_weights::price`) of all steps from that level on add up
/// to at most the total of all, under any weights of that kind. `broken_axioms` tries them.
/// *Thread safety.* Only const calls are made.
template <class Accumulator>
concept time_accumulator =
    std::copy_constructible<Accumulator> &&
    std::constructible_from<Accumulator, std::size_t, training_options const&> &&
    std::copyable<typename Accumulator::label> &&
    requires(Accumulator const& clock, typename Accumulator::label& label, typename Accumulator::label const& other,
             step_cost const& step) {
        { Accumulator::name } -> std::convertible_to<std::string_view>;
        requires std::same_as<std::remove_cv_t<decltype(Accumulator::relaxation)>, relaxation_kind>;
        { clock.initial() } -> std::same_as<typename Accumulator::label>;
        clock.extend(label, step);
        { clock.total(other) } -> std::convertible_to<double>;
        { clock.dominates(other, other) } -> std::convertible_to<bool>;
    } &&
    (Accumulator::relaxation == relaxation_kind::none ||
     requires(Accumulator const& clock, typename Accumulator::label const& label, relaxation_weights const& weights) {
         { clock.relaxed(label, weights, std::size_t{}) } -> std::convertible_to<double>;
     });

/// An accumulator whose programs are divided into stages, which may begin at any step: `close(label)` ends one.
template <class Accumulator>
concept staged_accumulator =
    time_accumulator<Accumulator> &&
    requires(Accumulator const& clock, typename Accumulator::label& label) { clock.close(label); };

/// An accumulator with a relaxation of which two labels can become one, so that a bound can do with a few labels.
///
/// *Axioms.* The total after `a` and any steps is at most `most_later(a, b)` more than that after `b` and the same
/// steps. The total after `joined(a, b, weights)` and any steps is at most that after `a`, and after `b`, and the same
/// steps; the weights only say what is likely to count. A step of nothing but `refresh`, of which there may be less
/// than none, adds that to every total.
template <class Accumulator>
concept joining_accumulator =
    time_accumulator<Accumulator> && Accumulator::relaxation != relaxation_kind::none &&
    requires(Accumulator const& clock, typename Accumulator::label const& label, relaxation_weights const& weights) {
        { clock.most_later(label, label) } -> std::convertible_to<double>;
        { clock.joined(label, label, weights) } -> std::same_as<typename Accumulator::label>;
    };

/// Returns the largest excess of a class of `a` over the same class of `b`. *Precondition:* there is a class.
[[nodiscard]] inline double most_above(per_class const& a, per_class const& b) {
    double result = a[0] - b[0];
    for (std::size_t k = 1; k < a.size(); ++k) result = std::max(result, a[k] - b[k]);
    return result;
}

/// Takes the weighted mean of clocks off each of them, and returns it.
[[nodiscard]] inline double take_mean(per_class& clocks, std::vector<double> const& weights) {
    double const mean = std::inner_product(clocks.begin(), clocks.end(), weights.begin(), 0.0);
    for (double& clock : clocks) clock -= mean;
    return mean;
}

/// Makes clocks the lesser of both, where those of the other may first be raised by as many of `spare` seconds as these
/// are ahead; takes what it uses.
inline void take_least(per_class& clocks, per_class const& others, double& spare) {
    double const raised = std::clamp(most_above(clocks, others), 0.0, spare);
    spare -= raised;
    for (std::size_t k = 0; k < clocks.size(); ++k) clocks[k] = std::min(clocks[k], others[k] + raised);
}

/// Takes the least of clocks off each of them, and returns it.
[[nodiscard]] inline double take_minimum(per_class& clocks) {
    double const least = *std::min_element(clocks.begin(), clocks.end());
    for (double& clock : clocks) clock -= least;
    return least;
}

/// Returns the seconds of steps; those at `stages` begin a stage.
template <time_accumulator Accumulator>
[[nodiscard]] double total_time(std::size_t class_count, training_options const& training,
                                std::span<step_cost const> steps, std::span<std::size_t const> stages = {}) {
    Accumulator const clock(class_count, training);
    auto label = clock.initial();
    auto stage = stages.begin();
    for (std::size_t n = 0; n < steps.size(); ++n) {
        if (stage != stages.end() && *stage == n) {
            if constexpr (staged_accumulator<Accumulator>) clock.close(label);
            ++stage;
        }
        clock.extend(label, steps[n]);
    }
    return clock.total(label);
}

/// Makes the value for `training_options` with which programs are timed by this accumulator.
template <time_accumulator Accumulator>
[[nodiscard]] named_accumulator accumulator_of() {
    return {std::string(std::string_view(Accumulator::name)), &total_time<Accumulator>};
}

} // namespace heddle
