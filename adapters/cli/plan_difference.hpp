// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief In what two plans differ, and what that costs.
#pragma once

#include "plan_file.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace heddle::cli {

/// What is compared of a plan: by name, seconds of terms, bytes on the fullest device of each type, words, and the ways
/// in which parameters are held, with their bytes.
struct compared_plan {
    std::string title;
    /// What has which operators: stages, their devices, micro-batches, meshes.
    std::string arrangement;
    /// A few words on both.
    std::string in_short;
    double cost = 0;
    std::map<std::string, double> terms, memory;
    std::map<std::string, std::string> words, parameters;
    std::map<std::string, double> parameter_bytes;
};

/// Tells whether two plans are one strategy: they arrange operators alike, and hold all but 5 % of the bytes of
/// parameters in the same ways. Shares may differ.
[[nodiscard]] bool is_same_strategy(compared_plan const& one, compared_plan const& other);

[[nodiscard]] compared_plan compared(any_plan const& p);

/// Returns a few words on another strategy; where those on the first are the same, what the other does otherwise.
[[nodiscard]] std::string strategy_instead(compared_plan const& first, compared_plan const& other);

/// Returns seconds by term beside each other, memory, what the plans do otherwise, and which parameters they hold in
/// another way, within 80 columns. `one` and `other` name the plans.
[[nodiscard]] std::string difference_report(compared_plan const& first, compared_plan const& second,
                                            std::string const& one = "one", std::string const& other = "other");

/// Returns what differs, each as a pair.
[[nodiscard]] nlohmann::ordered_json difference(compared_plan const& first, compared_plan const& second);

} // namespace heddle::cli
