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
    /// The device of the cluster that each rank is planned for, and how many the cluster has.
    std::vector<std::size_t> devices;
    std::size_t device_count = 0;

    /// Returns the number of processes or threads that run the plan.
    [[nodiscard]] std::size_t ranks() const { return devices.size(); }
    /// Returns which of so many processes runs each rank: one was started for each device of the cluster, or for each
    /// that the plan keeps busy. *Throws* `input_error` that names the plan's file if there are neither so many nor so
    /// few.
    [[nodiscard]] std::vector<std::size_t> processes(std::size_t count, std::string const& plan) const;
    /// Returns what each rank stores.
    [[nodiscard]] std::vector<stored_parts> stored() const;
};

/// *Throws* `input_error` if stages of a pipeline send each other whole numbers, for which scalars of 16 bits have too
/// few.
void require_no_whole_numbers_between_stages(training const& what, std::string const& plan);

/// Reads a plan and its model, and verifies it. *Throws* `error` if it cannot be read or is none of the model.
[[nodiscard]] training read_training(std::string const& plan, std::string const& model);

} // namespace heddle::cli
