// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Weights under which the costs of steps add up to a bound of their time.
#pragma once

#include <heddle/cost/cost_model.hpp>

#include <cstddef>
#include <vector>

namespace heddle {

/// What the parts of a step count in a relaxation; which weights give a bound is the accumulator's to say.
struct relaxation_weights {
    /// Of each class's work; they sum to one.
    std::vector<double> clock;
    /// Of all that is done in the backward pass, and of the gradients' collectives after it or beside it.
    double backward = 1, gradients = 1;

    [[nodiscard]] double price(step_cost const& s) const {
        double sum = s.forward_transfer + s.refresh + backward * s.backward_transfer + gradients * s.deferred;
        for (std::size_t k = 0; k < clock.size(); ++k) sum += clock[k] * (s.forward[k] + s.update[k] + backward * s.backward[k]);
        return sum;
    }
};

} // namespace heddle
