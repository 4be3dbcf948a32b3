// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random numbers by counter: a number depends only on its key, whoever draws it.
#pragma once

#include <heddle/search/mix_bits.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>

namespace heddle {

/// Identifies a stream of random numbers.
struct random_key {
    std::uint64_t seed = 0;
    /// The operator or tensor; streams of different ones are independent.
    std::uint64_t stream = 0;
};

/// Returns 64 random bits for element `n` of the whole tensor. Replicas agree, and a shard draws what the single device
/// draws for its elements.
[[nodiscard]] constexpr std::uint64_t random_bits(random_key key, std::uint64_t n) {
    using search::golden_gamma, search::mix_bits;
    std::uint64_t const state = mix_bits(key.seed + golden_gamma) ^ mix_bits(key.stream * golden_gamma + 1);
    return mix_bits(mix_bits(state + golden_gamma * (n + 1)) + state);
}

/// Returns a number of [0, 1).
[[nodiscard]] constexpr double random_unit(random_key key, std::uint64_t n) {
    return static_cast<double>(random_bits(key, n) >> 11) * 0x1p-53;
}

/// Returns the factor of dropout for element `n`: zero with probability `p`, and otherwise what keeps the mean.
[[nodiscard]] constexpr double dropout_factor(random_key key, std::uint64_t n, double p) {
    return random_unit(key, n) < p ? 0 : 1 / (1 - p);
}

/// Returns a number of the standard normal distribution.
[[nodiscard]] inline double random_normal(random_key key, std::uint64_t n) {
    return std::sqrt(-2 * std::log(1 - random_unit(key, 2 * n))) *
           std::cos(2 * std::numbers::pi * random_unit(key, 2 * n + 1)); // Box and Muller
}

} // namespace heddle
