// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What all pages are made of: one file that carries its data, its style and its script.
#pragma once

#include <heddle/base/definitions.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace heddle::html::detail {

/// Returns a page with this body, whose script finds the data in the element `data`.
[[nodiscard]] std::string framed(nlohmann::ordered_json const& shown, std::string const& title,
                                 std::string const& page_style, std::string const& body,
                                 std::string const& page_script);

} // namespace heddle::html::detail

#if HEDDLE_DEFINITIONS

#include <heddle/html/detail/shared_script.hpp>

#include <cstddef>

namespace heddle::html::detail {

HEDDLE_INLINE std::string framed(nlohmann::ordered_json const& shown, std::string const& title,
                                 std::string const& page_style, std::string const& body,
                                 std::string const& page_script) {
    std::string data = shown.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
    return R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>)html" +
           title + "</title>\n<style>" + page_style + "</style>\n</head>\n<body>\n" + body +
           "<script type=\"application/json\" id=\"data\">" + data + "</script>\n<script>" + shared_script +
           page_script + "</script>\n</body>\n</html>\n";
}

} // namespace heddle::html::detail

#endif
