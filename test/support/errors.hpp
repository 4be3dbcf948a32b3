// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What errors say, for tests.
#pragma once

#include <heddle/base/error.hpp>

#include <string>

namespace heddle::test {

/// Returns the message of the error that `action` throws.
template <class Error = input_error, class Action>
std::string error_of(Action&& action) {
    try {
        action();
    } catch (Error const& e) { return e.what(); }
    return "nothing thrown";
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

} // namespace heddle::test
