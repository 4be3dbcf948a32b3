// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Optimisers: how a step changes parameters by their gradients, on whatever part of them a rank holds.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Tells how one element of a parameter is stepped.
///
/// *Notation.* `r` is a const rule, `x` an element, `g` its gradient, `state` an array of `Rule::moments` elements, and
/// `n` the number of the step, from 1.
///
/// *Valid expressions.* `r.step(x, g, state, n)` changes `x` and `state`; at first `state` is zero. It is generic:
/// elements are numbers, or stand for those of a whole tensor, as `for_each_element` gives them.
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

    template <class Element>
    void step(Element& x, Element g, std::array<Element, moments>& state, std::uint64_t) const {
        state[0] = static_cast<Element>(momentum) * state[0] + g;
        x = x - static_cast<Element>(rate) * state[0];
    }
};

/// Adam with bias correction (Kingma and Ba 2015, algorithm 1).
struct adam {
    static constexpr std::size_t moments = 2;
    double rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

    template <class Element>
    void step(Element& x, Element g, std::array<Element, moments>& state, std::uint64_t n) const {
        using std::sqrt;
        auto const number = [](double value) { return static_cast<Element>(value); };
        auto const blend = [&](Element& mean, double beta, Element const& value) {
            mean = number(beta) * mean + number(1 - beta) * value;
        };
        auto const corrected = [&](Element const& mean, double beta) {
            return mean / number(1 - std::pow(beta, static_cast<double>(n)));
        };
        blend(state[0], beta1, g);
        blend(state[1], beta2, g * g);
        x = x - number(rate) * corrected(state[0], beta1) / (sqrt(corrected(state[1], beta2)) + number(epsilon));
    }
};

/// Adam whose weights decay beside it (Loshchilov and Hutter 2019, algorithm 2): x <- x - rate decay x, then as Adam.
struct adamw {
    static constexpr std::size_t moments = adam::moments;
    adam rule{};
    double decay = 0.01;

    template <class Element>
    void step(Element& x, Element g, std::array<Element, moments>& state, std::uint64_t n) const {
        x = x - static_cast<Element>(rule.rate * decay) * x;
        rule.step(x, g, state, n);
    }
};

/// Scales gradients, of which the tensor of one number `norm` is the norm over all ranks, so that it is at most `most`.
template <rank_tensor Tensor>
void clip(gradients_of<Tensor>& gradients, Tensor const& norm, typename Tensor::scalar_type most) {
    for (auto& [t, gradient] : gradients)
        for_each_element(
            [most]<class Element>(Element& g, Element const& of_all) {
                using std::min;
                g = g * min(Element(1), Element(most) / of_all);
            },
            gradient.second, norm);
}

/// A rule with the state of the parameters that it steps; each rank has one.
template <rank_tensor Tensor, optimizer_rule<typename Tensor::scalar_type> Rule>
class optimizer {
public:
    explicit optimizer(Rule rule = {}) : rule_(std::move(rule)) {}

    /// Steps every parameter that has a gradient; others stay as they are.
    /// *Precondition:* `parameters` and gradients are of one rank, each parameter in the form of its gradient.
    /// *Throws* `input_error` before anything is changed if a parameter is missing or does not have its gradient's
    /// shape.
    void step(tensor_values<Tensor>& parameters, gradients_of<Tensor> const& gradients) {
        step_by(parameters, gradients, [](Tensor const& gradient) -> Tensor const& { return gradient; });
    }
    /// As above, by gradients that may be of fewer bits, each times `factor`.
    template <rank_tensor Gradient>
    void step(tensor_values<Tensor>& parameters, gradients_of<Gradient> const& gradients, host_number<Tensor> factor) {
        step_by(parameters, gradients, [factor](Gradient const& gradient) {
            Tensor scaled(gradient);
            scaled *= factor;
            return scaled;
        });
    }

    /// The steps that were made, and the moments of each parameter that was stepped, which have its form.
    [[nodiscard]] std::uint64_t steps() const { return steps_; }
    [[nodiscard]] std::map<tensor_id, std::vector<Tensor>> const& moments() const { return state_; }
    /// Goes on from what those two have returned. *Precondition:* there are `Rule::moments` of each parameter.
    void resume(std::uint64_t steps, std::map<tensor_id, std::vector<Tensor>> moments) {
        steps_ = steps;
        state_ = std::move(moments);
    }

private:
    template <class Gradients, class Gradient>
    void step_by(tensor_values<Tensor>& parameters, Gradients const& gradients, Gradient&& of) {
        for (auto const& [t, gradient] : gradients)
            if (auto const found = parameters.find(t);
                found == parameters.end() || found->second.shape() != gradient.second.shape())
                throw input_error("parameter " + std::to_string(t), "is missing or not of the shape of its gradient");
        ++steps_;
        for (auto const& [t, gradient] : gradients) {
            auto& x = parameters.at(t);
            auto& state = state_[t];
            while (state.size() < Rule::moments) state.emplace_back(x.shape());
            step(x, of(gradient.second), state, std::make_index_sequence<Rule::moments>{});
        }
    }
    template <std::size_t... Moment>
    void step(Tensor& x, Tensor const& gradient, std::vector<Tensor>& state, std::index_sequence<Moment...>) const {
        for_each_element(
            [rule = rule_, n = steps_]<class Element>(Element& of_x, Element const& g, auto&... moments) {
                std::array<Element, Rule::moments> mine{moments...};
                rule.step(of_x, g, mine, n);
                ((moments = std::move(mine[Moment])), ...);
            },
            x, gradient, state[Moment]...);
    }

    Rule rule_;
    std::uint64_t steps_ = 0;
    std::map<tensor_id, std::vector<Tensor>> state_;
};

static_assert(optimizer_rule<sgd, double> && optimizer_rule<adam, float> && optimizer_rule<adamw, double>);

} // namespace heddle
