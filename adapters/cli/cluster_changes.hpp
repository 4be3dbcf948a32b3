// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Another cluster than a file's: `heddle cost --set inter.bandwidth=25e9`.
#pragma once

#include <string>
#include <vector>

namespace heddle::cli {

/// Returns the text of a cluster file with numbers in it changed, in order. Each change is `PLACE=NUMBER`; a place is
/// as messages write it, such as `links.inter.bandwidth` or `device_types[0].memory`, or begins with the name of a
/// link, or of a type of devices: `inter.bandwidth`, `V100.rates.float32`. *Throws* `input_error` if there is no number
/// at a place.
[[nodiscard]] std::string with_changes(std::string const& text, std::string const& name,
                                       std::vector<std::string> const& changes);

} // namespace heddle::cli
