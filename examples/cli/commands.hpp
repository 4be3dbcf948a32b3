// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The commands of the command line: what each takes, and the statuses they exit with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

enum exit_status { done = 0, bad_input = 1, usage = 2, infeasible = 3, nothing_found = 4 };

struct plan_arguments {
    std::string model, cluster, out, trace;
    std::string planner = "hap";
    std::optional<double> time_limit, memory_limit;
    std::size_t label_limit = 10'000;
    double optimizer_bytes = 8;
    std::optional<std::int64_t> batch;
    std::string element_type, segments;
    std::vector<std::string> pins;
    bool group_machines = false, overlap = false, json = false, times = true;
    /// Of the planner `hidup`.
    int micro_batches = 2;
    double turn = 0;
    std::optional<std::size_t> beam;
    bool batch_statistics = false;
};
int run_plan(plan_arguments const& arguments);

struct verify_arguments {
    std::string plan, model;
    std::uint64_t seed = 1;
    bool shrink = false, run = true, json = false;
};
int run_verify(verify_arguments const& arguments);

struct cost_arguments {
    std::string plan, cluster;
    bool group_machines = false, json = false;
};
int run_cost(cost_arguments const& arguments);

struct search_arguments {
    std::string theory;
    std::optional<double> time_limit, memory_limit;
    std::size_t label_limit = 4'000'000, solutions = 1;
    bool json = false;
};
int run_search(search_arguments const& arguments);

struct fit_arguments {
    std::string samples, cluster, out;
    std::optional<int> ranks;
    bool json = false;
};
int run_fit(fit_arguments const& arguments);

/// Whether somebody watches stderr.
bool is_watched();

} // namespace heddle::cli
