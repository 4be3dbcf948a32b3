// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes and reads plan files.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/json/write_options.hpp>
#include <heddle/plan/plan.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

/// A plan as the text of a plan file. Equal plans give equal text, and reading it gives every number that was written
/// back exactly.
/// *Throws* `input_error` if a number is not finite.
[[nodiscard]] std::string write_plan(plan const& p, write_options const& options = {});

/// A plan's outcome, without program and tables, as one JSON object on one line.
/// *Throws* `input_error` if a number is not finite.
[[nodiscard]] std::string plan_summary(plan const& p, write_options const& options = {});

/// Reads a plan from text; `name` stands in messages. What a plan cannot be re-costed without is checked;
/// that its program is right for a model is for a verifier to say.
/// *Throws* `input_error`.
[[nodiscard]] plan parse_plan(std::string_view text, std::string const& name = "plan");

/// Reads a plan file.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] plan read_plan(std::filesystem::path const& path);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/plan_reader.hpp>
#include <heddle/json/detail/plan_writer.hpp>
#include <heddle/json/document.hpp>

namespace heddle::json {

HEDDLE_INLINE std::string write_plan(plan const& p, write_options const& options) {
    return detail::plan_writer(p, options).text();
}

HEDDLE_INLINE std::string plan_summary(plan const& p, write_options const& options) {
    return detail::plan_writer::dump(detail::plan_writer(p, options).summary());
}

HEDDLE_INLINE plan parse_plan(std::string_view text, std::string const& name) {
    auto p = detail::guarded(name, [&] { return detail::plan_reader(document(name, text, "plan", 5)).read(); });
    auto const& training = p.provenance.training;
    if (training.accumulated != 1 || training.in_flight != 1)
        throw input_error(name, "is of one stage of a pipeline, expected a plan that is whole");
    return p;
}

HEDDLE_INLINE plan read_plan(std::filesystem::path const& path) {
    return parse_plan(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

} // namespace heddle::json

#endif
