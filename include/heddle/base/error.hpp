// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The one exception hierarchy: bad input data throws before any work starts.
///
/// Infeasible problems and spent limits are statuses of a result, never exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace heddle {

/// Base of everything Heddle throws.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Input data that breaks its format or contradicts itself. The message names the place, what is
/// wrong there and what was expected.
class input_error : public error {
public:
    input_error(std::string const& place, std::string const& problem)
        : error(place.empty() ? problem : place + ": " + problem) {}
};

/// A file that cannot be opened, read or written.
class file_error : public error {
public:
    using error::error;
};

} // namespace heddle
