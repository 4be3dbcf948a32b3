// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline plan with tensor groups, as text.
#pragma once

#include "documents.hpp"

#include <heddle/json/pipeline_plan.hpp>
#include <support/small_plan.hpp>

#include <string>

namespace heddle::test {

/// The example of the documents, its stages on groups of two devices.
[[nodiscard]] inline std::string grouped_pipeline() {
    auto p = json::parse_pipeline_plan(example_of("docs/reference/pipeline_plans.md"));
    p.stages[0].devices = {{0, 1}};
    p.stages[1].devices = {{2, 3}};
    p.groups.emplace(2, layers_plan());
    return json::write_pipeline_plan(p);
}

} // namespace heddle::test
