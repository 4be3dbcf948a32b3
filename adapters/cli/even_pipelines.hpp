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

/// Returns pipelines in all of whose stages shares are even and the strategy is the same well-known one: with the
/// plan's stages if it has several, and with those of AMP's best strategies, which have equal degrees.
/// *Returns* those that fit into memory, those with the plan's stages first, and by name; none with these if the plan
/// is not of the model, and none of AMP's on device groups.
[[nodiscard]] std::vector<even_pipeline> even_pipelines(staged_plan const& of, program const& model, cluster const& c);

} // namespace heddle::cli
