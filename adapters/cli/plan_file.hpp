// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan file of any kind.
#pragma once

#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <string>
#include <variant>

namespace heddle::cli {

using any_plan = std::variant<plan, staged_plan, pipeline_plan>;

/// What plans of all kinds have.
[[nodiscard]] bool exists(any_plan const& p);
[[nodiscard]] double cost_of(any_plan const& p);
[[nodiscard]] std::string const& reason_of(any_plan const& p);
[[nodiscard]] provenance& origin_of(any_plan& p);

/// Reads a plan file. *Throws* `input_error`, `file_error`.
[[nodiscard]] any_plan read_any_plan(std::string const& path);

/// Returns a plan of stages, or of one, as one of stages. *Throws* `input_error` that names the file for a strategy of
/// layers.
[[nodiscard]] staged_plan as_staged(any_plan made, std::string const& path, cluster const& c);

/// Reads the text of a plan file; `name` is for messages. *Throws* `input_error`.
[[nodiscard]] any_plan parse_any_plan(std::string const& text, std::string const& name);

} // namespace heddle::cli
