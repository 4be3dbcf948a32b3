// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs beside this one, which are linked with more than it is.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace heddle::cli {

/// Becomes another program of this one's folder. Returns only if it cannot.
inline void become(char const* program, char** arguments) {
    std::error_code error;
    auto const self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) ::execv((self.parent_path() / program).c_str(), arguments);
}

} // namespace heddle::cli
