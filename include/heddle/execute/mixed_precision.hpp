// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Training in scalars of few bits: weights of more bits that are stepped, and the scale of gradients.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace heddle {

/// An optimiser of weights in the wide type of `Tensor`, of which each rank has what it stores; iterations compute with
/// these rounded. If `Tensor` is its own wide type, the parameters are the weights, and nothing is kept twice. Memory
/// is what `training_options::state_bytes_per_element` counts. (Micikevicius et al. 2018, section 3.1)
template <rank_tensor Tensor, optimizer_rule<host_number<Tensor>> Rule>
class master_optimizer {
public:
    using wide = wide_of<Tensor>;

    explicit master_optimizer(Rule rule = {}) : rule_(std::move(rule)) {}

    /// Gives a parameter its weights, and rounds them into `parameters`.
    void set(tensor_id t, wide weights, tensor_values<Tensor>& parameters) {
        parameters.insert_or_assign(t, Tensor(weights));
        if constexpr (keeps_weights) weights_.insert_or_assign(t, std::move(weights));
    }
    /// Returns the weights of a parameter that was set.
    [[nodiscard]] wide const& weights(tensor_id t, tensor_values<Tensor> const& parameters) const {
        if constexpr (keeps_weights) return weights_.at(t);
        else return parameters.at(t);
    }

    /// Steps every parameter that has a gradient, of which `factor` times is meant.
    /// *Preconditions.* As for `optimizer::step`; the parameters were set. *Throws* `input_error` as it does.
    void step(tensor_values<Tensor>& parameters, gradients_of<Tensor> const& gradients,
              host_number<Tensor> factor = 1) {
        if constexpr (keeps_weights) {
            rule_.step(weights_, gradients, factor);
            for (auto const& [t, gradient] : gradients) parameters.insert_or_assign(t, Tensor(weights_.at(t)));
        } else if (factor == 1) {
            rule_.step(parameters, gradients);
        } else {
            rule_.step(parameters, gradients, factor);
        }
    }

    [[nodiscard]] std::uint64_t steps() const { return rule_.steps(); }
    [[nodiscard]] std::map<tensor_id, std::vector<wide>> const& moments() const { return rule_.moments(); }
    /// As `optimizer::resume`; the weights are those that are set.
    void resume(std::uint64_t steps, std::map<tensor_id, std::vector<wide>> moments) {
        rule_.resume(steps, std::move(moments));
    }

private:
    static constexpr bool keeps_weights = !std::same_as<wide, Tensor>;

    optimizer<wide, Rule> rule_;
    tensor_values<wide> weights_;
};

/// The scale of gradients whose scalars have few exponents: as large as goes. If a gradient is no finite number, the
/// step is left out and the scale halved; after enough steps without, it is doubled. Ranks that update it by the norm
/// of all gradients, which they have alike, keep it alike. (Micikevicius et al. 2018, section 3.2)
struct gradient_scale {
    /// The largest is the largest power of two that float16 has, since the loss's cotangent is one.
    static constexpr double most = 32768, least = 1.0 / 16384;

    double value = most;
    /// The steps since it was changed.
    std::uint64_t steps = 0;
    std::uint64_t steps_to_grow = 2000;

    /// Takes the norm of gradients, as large as they are scaled. Returns whether the step is to be made.
    /// *Throws* `error` if there is no smaller scale.
    [[nodiscard]] bool update(double norm) {
        if (std::isfinite(norm)) {
            if (++steps >= steps_to_grow) *this = {std::min(most, value * 2), 0, steps_to_grow};
            return true;
        }
        if (value <= least) throw error("gradients are no finite numbers, however small they are scaled");
        *this = {value / 2, 0, steps_to_grow};
        return false;
    }
};

} // namespace heddle
