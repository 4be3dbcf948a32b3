// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Optimisers: how a step changes parameters by their gradients, on whatever part of them a rank holds.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/single_device.hpp>

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Tells how one element of a parameter is stepped.
///
/// *Notation.* `r` is a const rule, `x` an element, `g` its gradient, `state` an array of `Rule::moments` numbers, and
/// `n` the number of the step, from 1.
///
/// *Valid expressions.* `r.step(x, g, state, n)` changes `x` and `state`; at first `state` is zero.
///
/// *Axioms.* Elements do not depend on each other, so a shard is stepped exactly as the whole is.
template <class Rule, class Scalar>
concept optimizer_rule = requires(Rule const& r, Scalar& x, std::array<Scalar, Rule::moments>& state, std::uint64_t n) {
    { r.step(x, Scalar{}, state, n) } -> std::same_as<void>;
};

/// Gradient descent: v <- momentum v + g, then x <- x - rate v.
struct sgd {
    static constexpr std::size_t moments = 1;
    double rate = 0.01, momentum = 0;

    template <class Scalar>
    void step(Scalar& x, Scalar g, std::array<Scalar, moments>& state, std::uint64_t) const {
        state[0] = static_cast<Scalar>(momentum) * state[0] + g;
        x -= static_cast<Scalar>(rate) * state[0];
    }
};

/// Adam with bias correction (Kingma and Ba 2015, algorithm 1).
struct adam {
    static constexpr std::size_t moments = 2;
    double rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

    template <class Scalar>
    void step(Scalar& x, Scalar g, std::array<Scalar, moments>& state, std::uint64_t n) const {
        auto const blend = [](Scalar& mean, double beta, Scalar value) {
            mean = static_cast<Scalar>(beta) * mean + static_cast<Scalar>(1 - beta) * value;
        };
        auto const corrected = [n](Scalar mean, double beta) {
            return mean / static_cast<Scalar>(1 - std::pow(beta, static_cast<double>(n)));
        };
        blend(state[0], beta1, g);
        blend(state[1], beta2, g * g);
        x -= static_cast<Scalar>(rate) * corrected(state[0], beta1) /
             (std::sqrt(corrected(state[1], beta2)) + static_cast<Scalar>(epsilon));
    }
};

/// Adam whose weights decay beside it (Loshchilov and Hutter 2019, algorithm 2): x <- x - rate decay x, then as Adam.
struct adamw {
    static constexpr std::size_t moments = adam::moments;
    adam rule{};
    double decay = 0.01;

    template <class Scalar>
    void step(Scalar& x, Scalar g, std::array<Scalar, moments>& state, std::uint64_t n) const {
        x -= static_cast<Scalar>(rule.rate * decay) * x;
        rule.step(x, g, state, n);
    }
};

/// Scales gradients, of which `norm` is the norm over all ranks, so that it is at most `most`.
template <class Scalar>
void clip(iteration_result<Scalar>& gradients, Scalar norm, Scalar most) {
    if (!(norm > most)) return;
    for (auto& [t, gradient] : gradients.gradients) gradient.second *= most / norm;
}

/// A rule with the state of the parameters that it steps; each rank has one.
template <class Scalar, optimizer_rule<Scalar> Rule>
class optimizer {
public:
    explicit optimizer(Rule rule = {}) : rule_(std::move(rule)) {}

    /// Steps every parameter that has a gradient; others stay as they are.
    /// *Precondition:* `parameters` and gradients are of one rank, each parameter in the form of its gradient.
    /// *Throws* `input_error` before anything is changed if a parameter is missing or does not have its gradient's
    /// shape.
    void step(source_values<Scalar>& parameters, iteration_result<Scalar> const& result) {
        for (auto const& [t, gradient] : result.gradients)
            if (auto const found = parameters.find(t);
                found == parameters.end() || found->second.dims != gradient.second.dims)
                throw input_error("parameter " + std::to_string(t), "is missing or not of the shape of its gradient");
        ++steps_;
        for (auto const& [t, gradient] : result.gradients) {
            auto& x = parameters.at(t);
            auto& state = state_[t];
            state.resize(x.data.size());
            for (std::size_t n = 0; n < x.data.size(); ++n)
                rule_.step(x.data[n], gradient.second.data[n], state[n], steps_);
        }
    }

private:
    Rule rule_;
    std::uint64_t steps_ = 0;
    std::map<tensor_id, std::vector<std::array<Scalar, Rule::moments>>> state_;
};

static_assert(optimizer_rule<sgd, double> && optimizer_rule<adam, float> && optimizer_rule<adamw, double>);

} // namespace heddle
