// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Spreads numbers over all 64 bits.
#pragma once

#include <heddle/base/requirements.hpp>

#include <cstdint>

namespace heddle::search {

/// This is 2^64 over the golden ratio, made odd: its multiples are spread evenly.
inline constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15u;

/// The finaliser of SplitMix64, a bijection that spreads every bit over all (Steele, Lea and Flood 2014).
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

} // namespace heddle::search
