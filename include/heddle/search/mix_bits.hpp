// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Spreads numbers over all 64 bits.
#pragma once

#include <heddle/base/requirements.hpp>

#include <array>
#include <cstdint>

namespace heddle::search {

/// This is 2^64 over the golden ratio, made odd: its multiples are spread evenly.
inline constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15u;

/// By what `mix_bits` multiplies.
inline constexpr std::array<std::uint64_t, 2> mixing_factors{0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu};

/// The finaliser of SplitMix64, a bijection that spreads every bit over all (Steele, Lea and Flood 2014).
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x = (x ^ (x >> 30)) * mixing_factors[0];
    x = (x ^ (x >> 27)) * mixing_factors[1];
    return x ^ (x >> 31);
}

} // namespace heddle::search
