// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Documents with one thing changed, and what a reader says of them.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/json/file.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace heddle::test {

/// A page's first block of JSON.
[[nodiscard]] inline std::string example_of(char const* page) {
    auto const text = json::read_text(page);
    auto const begin = text.find("```json\n") + 8;
    return text.substr(begin, text.find("```", begin) - begin);
}

/// The document with `value` (JSON) at a place, or without it where that is empty.
[[nodiscard]] inline std::string with_change(std::string const& document, std::string const& pointer,
                                             std::string const& value) {
    auto root = nlohmann::json::parse(document);
    nlohmann::json::json_pointer const place(pointer);
    if (!value.empty()) {
        root[place] = nlohmann::json::parse(value);
    } else {
        auto& parent = root.at(place.parent_pointer());
        if (parent.is_array()) parent.erase(std::stoul(place.back()));
        else parent.erase(place.back());
    }
    return root.dump();
}

/// Every value in a document.
inline void collect(nlohmann::json& value, std::vector<nlohmann::json*>& all) {
    all.push_back(&value);
    if (value.is_structured())
        for (auto& item : value) collect(item, all);
}

/// What a reader says.
template <class Read>
[[nodiscard]] std::string message_of(Read const& read) {
    try {
        read();
    } catch (input_error const& e) { return e.what(); }
    return "nothing thrown";
}

} // namespace heddle::test
