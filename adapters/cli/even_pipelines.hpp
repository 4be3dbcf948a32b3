// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/program.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

struct even_pipeline {
    std::string strategy;
    staged_plan plan;
};

/// Returns pipelines of a plan's stages, in all of which shares are even and the strategy is the same well-known one.
/// *Returns* those that fit into memory, the cheapest first; none of a plan of one stage. *Throws* `input_error` for a
/// model or cluster that the plan is not of.
[[nodiscard]] std::vector<even_pipeline> even_pipelines(staged_plan const& of, program const& model, cluster const& c);

} // namespace heddle::cli
