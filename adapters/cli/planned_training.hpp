// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan of any kind with the model that it trains.
#pragma once

#include <heddle/execute/stored_parts.hpp>
#include <heddle/json/model.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace heddle::cli {

struct training {
    json::model model;
    std::variant<plan, pipeline_plan, staged_plan> planned;
    std::string plan_digest;

    /// Returns the number of processes or threads that run the plan.
    [[nodiscard]] std::size_t ranks() const;
    /// Returns what each of them stores.
    [[nodiscard]] std::vector<stored_parts> stored() const;
};

/// *Throws* `input_error` if stages of a pipeline send each other whole numbers, for which scalars of 16 bits have too few.
void require_no_whole_numbers_between_stages(training const& what, std::string const& plan);

/// Reads a plan and its model, and verifies it. *Throws* `error` if it cannot be read or is none of the model.
[[nodiscard]] training read_training(std::string const& plan, std::string const& model);

} // namespace heddle::cli
