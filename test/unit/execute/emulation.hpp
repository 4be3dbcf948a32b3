// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief "This distributed program emulates the single-device program", run by the reference kernels; compiled once.
#pragma once

#include <heddle/execute/prove.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/program.hpp>
#include <support/random_programs.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::test {

/// `prove` on data of this seed.
[[nodiscard]] proof emulate(program const& p, plan const& what, std::uint64_t seed);

/// As above; what is carried is compared if that is asked for, of a mesh of several axes.
[[nodiscard]] proof emulate(program const& p, mesh_program const& what, std::uint64_t seed, bool counts_bytes = false);

/// Tells whether a single device itself gives other results of this seed's data if these are rounded differently, so
/// that an error says nothing of a plan: a maximum of equal numbers, the norm of a constant row, a loss whose terms
/// cancel.
[[nodiscard]] bool is_unstable(program const& p, std::uint64_t seed);

/// A plan's instructions, one a line.
[[nodiscard]] std::string describe(plan const& what);

} // namespace heddle::test
