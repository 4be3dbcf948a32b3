// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Text of unknown origin made fit for one line of a message or a table.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/requirements.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

namespace detail {

/// The bytes of the UTF-8 character that a text begins with; 0 if it begins with none. *Precondition:* the text is not
/// empty.
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view text) {
    auto const byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    unsigned const first = byte(0);
    if (first < 0x80) return 1;
    std::size_t const length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    unsigned const second = byte(1);
    bool const is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    bool const is_no_character =
        (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f); // surrogates, and above the last
    return is_overlong || is_no_character ? 0 : length;
}

/// Whether a character moves the cursor, changes colours or the direction of writing, or ends a line.
[[nodiscard]] constexpr bool is_control(std::string_view character) {
    auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
    if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
    if (character.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0; // U+0080 to U+009F
    if (character.size() != 3 || byte(0) != 0xe2) return false;
    if (byte(1) == 0x80)
        return byte(2) == 0x8e || byte(2) == 0x8f ||
               (byte(2) >= 0xa8 && byte(2) <= 0xae);              // marks, separators, embeddings
    return byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9; // isolates
}

} // namespace detail

[[nodiscard]] constexpr bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        auto const length = detail::utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

/// The text with '?' for control characters and for what is not UTF-8, cut after `longest` bytes, which `...` then
/// follows.
[[nodiscard]] std::string printable(std::string_view text, std::size_t longest = 160);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::string printable(std::string_view text, std::size_t longest) {
    std::string result;
    while (!text.empty()) {
        auto const length = detail::utf8_length(text);
        auto const character = text.substr(0, length == 0 ? 1 : length);
        if (result.size() + character.size() > longest) return result + "...";
        if (length == 0 || detail::is_control(character)) result += '?';
        else result += character;
        text.remove_prefix(character.size());
    }
    return result;
}

} // namespace heddle

#endif
