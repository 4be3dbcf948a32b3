// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What heddle verify does with plans of either kind: it runs at most a minute or two on one core, and says how
/// that went.
#pragma once

#include "commands.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/size.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

extern template class heddle::eigen_kernels<double>;

namespace heddle::cli {

/// Reads the cluster to price a plan on again, if one is given.
inline std::optional<cluster> read_cluster_of(verify_arguments const& arguments, provenance const& from,
                                              std::vector<std::string>& warnings) {
    if (arguments.cluster.empty()) return std::nullopt;
    auto c = read_planned_cluster(arguments.cluster, from, warnings);
    return arguments.group_machines ? with_grouped_machines(std::move(c)) : std::move(c);
}

/// Prints what was checked, and the fields that nothing was derived from.
inline void print_extent(char const* what, std::vector<std::string> const& claims) {
    std::cout << what << "; claims of its planner:";
    char const* separator = " ";
    for (auto const& claim : claims) std::cout << std::exchange(separator, ", ") << claim;
    std::cout << std::endl;
}

inline void check_ranks(verify_arguments const& arguments, std::size_t ranks) {
    constexpr std::size_t most = 1024;
    if (ranks > most)
        throw input_error(arguments.plan, "is for " + std::to_string(ranks) + " devices, at most " +
                                              std::to_string(most) + " can be run; see --no-run");
}

inline void check_size(verify_arguments const& arguments, execution_size const& size) {
    constexpr execution_size most{bytes(4e9), flops(2e11)};
    if (size.memory <= most.memory && size.work <= most.work) return;
    char text[160];
    std::snprintf(text, sizeof text,
                  "running it takes about %.3g GB and %.3g Gflop, more than %.3g GB or %.3g Gflop; %s",
                  size.memory.value / 1e9, size.work.value / 1e9, most.memory.value / 1e9, most.work.value / 1e9,
                  arguments.shrink ? "it does not shrink any further"
                                   : "run it smaller with --shrink, or not at all with --no-run");
    throw input_error(arguments.model, text);
}

/// Runs a plan of either kind, with its program, beside the single device.
template <class Planned>
proof run(verify_arguments const& arguments, Planned const& planned) {
    try {
        return prove(planned.program, planned.plan, eigen_kernels<double>(), {.seed = arguments.seed});
    } catch (input_error const& e) { throw input_error(arguments.model, e.what()); }
}

/// Begins the object of `--json`.
inline nlohmann::ordered_json verdict(std::string const& problem) {
    nlohmann::ordered_json out;
    out["valid"] = problem.empty();
    if (!problem.empty()) out["problem"] = problem;
    return out;
}

/// Says what is wrong with a plan, if anything is. *Returns* the exit status.
inline int conclude(verify_arguments const& arguments, std::string const& problem) {
    if (!problem.empty()) std::cerr << "heddle: " << printable(arguments.plan + ": " + problem, 1000) << '\n';
    return problem.empty() ? done : bad_input;
}

inline void add_differences(nlohmann::ordered_json& out, proof const& shown) {
    out["ranks"] = shown.ranks;
    out["loss"] = shown.loss;
    out["single_device_loss"] = shown.expected_loss;
    // It is null if it is no number.
    out["max_relative_error"] = shown.worst_error;
    out["worst_tensor"] = shown.worst_tensor;
}
inline void print_differences(proof const& shown) {
    std::printf("loss %.17g on %zu ranks, %.17g on a single device\n", shown.loss, shown.ranks, shown.expected_loss);
    std::printf("largest relative error %.2g, in %s\n", shown.worst_error, printable(shown.worst_tensor).c_str());
}

} // namespace heddle::cli
