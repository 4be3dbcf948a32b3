// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A digest that tells whether a file's content has changed.
#pragma once

#include <heddle/base/requirements.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::json {

/// The 64-bit FNV-1a hash as 16 hexadecimal digits. It is equal on every platform; it guards against mistakes, not
/// against an adversary.
[[nodiscard]] inline std::string digest(std::string_view content) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (char c : content) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string text(16, '0');
    for (std::size_t i = 16; i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
    return text;
}

} // namespace heddle::json
