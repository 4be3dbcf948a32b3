// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells by its name to which module of a model a parameter belongs.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// Returns the module of a name up to its first part with a digit: `encoder.layers.3` of
/// `encoder.layers.3.linear1.weight`; nothing if no part but the last has one.
[[nodiscard]] std::optional<std::string> numbered_module(std::string_view name);

/// Returns the numbered module; if there is none, the name up to its last dot, or all of it if it has no dot.
[[nodiscard]] inline std::string module_of(std::string_view name) {
    return numbered_module(name).value_or(std::string(name.substr(0, name.rfind('.'))));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::optional<std::string> numbered_module(std::string_view name) {
    for (std::size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
        end = name.find('.', begin);
        auto const part = name.substr(begin, end == std::string_view::npos ? end : end - begin);
        if (end != std::string_view::npos &&
            algorithm::any_of(part, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }))
            return std::string(name.substr(0, end));
    }
    return std::nullopt;
}

} // namespace heddle

#endif
