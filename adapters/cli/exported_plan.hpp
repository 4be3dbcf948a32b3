// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan as exports see it.
#pragma once

#include <heddle/plan/plan.hpp>
#include <heddle/program/program.hpp>

#include <nlohmann/json.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace heddle::cli {

/// Says why a framework cannot express a plan, or, if that is because of its model, any plan of it.
class inexpressible : public std::runtime_error {
public:
    explicit inexpressible(std::string const& why) : std::runtime_error(why) {}
    [[nodiscard]] static inexpressible model(std::string const& why) {
        inexpressible e(why);
        e.is_of_model_ = true;
        return e;
    }
    [[nodiscard]] bool is_of_model() const { return is_of_model_; }

private:
    bool is_of_model_ = false;
};

/// A strategy that a framework can do, and what it costs.
struct priced_strategy {
    std::string name;
    double cost = 0;
};

/// A plan of one stage or several.
struct exported_plan {
    std::vector<plan const*> stages;
    int micro_batches = 1;
    double cost = 0;
    /// The cheapest that the framework can do of what the plan knows the cost of; with an infinite cost if none fits.
    std::optional<priced_strategy> nearest;
    /// How often micro-batches pass the devices, which have a stage of each round.
    std::size_t rounds = 1;
};

/// Returns the placements of every stage's inputs and parameters in the words of PyTorch's DTensor. With the model of a
/// plan of one stage, also what its modules do to their inputs and results, or why that is not all of the plan.
[[nodiscard]] nlohmann::ordered_json placements_of(exported_plan const& whole, program const* model);

} // namespace heddle::cli
