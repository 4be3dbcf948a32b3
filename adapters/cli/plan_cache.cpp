// SPDX-License-Identifier: BSL-1.0
// heddle plan --cache: what was planned before is read, not planned again.
#include "plan_cache.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/base/version.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>

#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>

namespace heddle::cli {

plan_cache::plan_cache(std::filesystem::path const& folder, plan_arguments const& arguments, plan_input const& input)
    : key_("model " + input.from.model_digest + "\ncluster " + input.from.cluster_digest + "\nversion " +
           library_version + "\n") {
    if (!arguments.from.empty()) key_ += "from " + json::digest(json::read_text(arguments.from)) + '\n';
    for (auto const& option : arguments.planning) key_ += option + '\n';
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw file_error(folder.string() + ": cannot be made: " + error.message());
    entry_ = folder / (json::digest(key_) + ".plan.gz");
    json::require_writable(entry_);
}

std::optional<any_plan> plan_cache::find() const {
    if (!std::filesystem::exists(entry_)) return std::nullopt;
    try {
        auto const text = json::read_text(entry_);
        if (!text.starts_with(key_ + '\n')) throw input_error(entry_.string(), "is of another plan");
        return parse_any_plan(text.substr(key_.size() + 1), entry_.string());
    } catch (error const& e) {
        std::cerr << "warning: " << printable(e.what(), 1000) << "; planned anew\n";
        return std::nullopt;
    }
}

void plan_cache::keep(any_plan const& made) const {
    std::visit(
        [&]<class Plan>(Plan const& p) {
            bool const was_stopped =
                p.which_limit == search::limit_kind::time || p.which_limit == search::limit_kind::stopped;
            if (!p.exists() || was_stopped) return;
            auto const text = [&] {
                if constexpr (std::is_same_v<Plan, pipeline_plan>) return json::write_pipeline_plan(p);
                else return json::write_plan(p);
            }();
            json::write_file_atomically(entry_, key_ + '\n' + text);
        },
        made);
}

} // namespace heddle::cli
