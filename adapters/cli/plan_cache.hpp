// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans that were made before, in a folder: of the same model, cluster, plan before, options and version.
#pragma once

#include "commands.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace heddle::cli {

/// One place in a folder of plans. An entry is a compressed file of what it is a plan of, and the plan as its own file
/// has it.
class plan_cache {
public:
    /// *Throws* `file_error` if the folder cannot be made or written to.
    plan_cache(std::filesystem::path const& folder, plan_arguments const& arguments, plan_input const& input);

    /// Returns the plan if it was made before. An entry that is damaged is said so on stderr, and is none.
    [[nodiscard]] std::optional<any_plan> find() const;
    /// Keeps a plan, unless nothing was found or its planner was stopped, which another run need not be.
    void keep(any_plan const& p) const;

private:
    /// What a plan is of, a line each; and the file.
    std::string key_;
    std::filesystem::path entry_;
};

} // namespace heddle::cli
