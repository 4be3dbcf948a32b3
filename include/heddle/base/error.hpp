// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The one exception hierarchy: bad input data throws before any work starts.
///
/// Infeasible problems and spent limits are statuses of a result, never exceptions.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/printable.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace heddle {

/// Base of everything Heddle throws. Its message is one printable line, whatever names from files are in it; the middle
/// of a very long one is left out.
class error : public std::runtime_error {
public:
    explicit error(std::string const& message) : std::runtime_error(one_line(message)) {}

private:
    static std::string one_line(std::string_view message);
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

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::string error::one_line(std::string_view message) {
    constexpr std::size_t most = 1200, end = 400;
    if (message.size() <= most) return printable(message, most);
    return printable(message.substr(0, most - end), most) + "..." +
           printable(message.substr(message.size() - end), most);
}

} // namespace heddle

#endif
