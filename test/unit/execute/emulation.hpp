// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief "This distributed program emulates the single-device program", run by the reference kernels; compiled once.
#pragma once

#include <heddle/execute/prove.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/program.hpp>
#include <support/random_programs.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::test {

/// `prove` on data of this seed.
[[nodiscard]] proof emulate(program const& p, plan const& what, std::uint64_t seed);

/// A plan's instructions, one a line.
[[nodiscard]] std::string describe(plan const& what);

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

} // namespace heddle::test
