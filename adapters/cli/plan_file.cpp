// SPDX-License-Identifier: BSL-1.0
// Plan files, by their content.
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/json/file.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>

#include <string>

namespace heddle::cli {

any_plan read_any_plan(std::string const& path) {
    auto const text = json::read_text(path);
    if (is_pipeline_plan(path, text)) return json::parse_pipeline_plan(text, path);
    if (json::has_stages(text, path)) return json::parse_staged_plan(text, path);
    return json::parse_plan(text, path);
}

} // namespace heddle::cli
