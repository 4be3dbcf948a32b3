// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the numbers among the options may be.
#pragma once

#include <CLI/CLI.hpp>

#include <regex>
#include <string>

namespace heddle::cli {

/// Accepts numbers above zero and below 2^63, so that they may stand for a count.
inline CLI::Validator const positive(
    [](std::string const& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value > 0 && value < 0x1p63
                   ? std::string()
                   : "'" + text + "' is no positive number";
    },
    "POSITIVE");

/// Accepts `auto`, and two to four sizes with `x` between.
inline CLI::Validator const mesh_or_auto(
    [](std::string const& text) {
        static std::regex const sizes("[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){1,3}");
        return text == "auto" || std::regex_match(text, sizes) ? std::string()
                                                               : "'" + text + "' is neither auto nor sizes such as 8x4";
    },
    "MESH");

/// Accepts numbers from zero to `most`.
inline CLI::Validator up_to(double most) {
    return {[most](std::string const& text) {
                double value = 0;
                return CLI::detail::lexical_cast(text, value) && value >= 0 && value <= most
                           ? std::string()
                           : "'" + text + "' is no number from 0 to " + std::to_string(most);
            },
            "NUMBER"};
}

} // namespace heddle::cli
