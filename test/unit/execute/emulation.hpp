// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief "This distributed program emulates the single-device program", run and compared.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/program.hpp>
#include <support/random_programs.hpp>

#include <array>
#include <string>

namespace heddle::test {

/// Elements carried, by kind of collective.
using carried_elements = std::array<double, collective_count>;

struct emulation {
    /// Of the loss and every gradient on every rank: greatest difference, relative to the tensor's largest element or one.
    double difference = 0;
    /// What stopped a rank.
    std::string problem{};
    carried_elements carried{};
    [[nodiscard]] bool equal() const { return problem.empty() && difference < 1e-9; }
};

/// Values that operators can compute with: labels and ids within bounds, variances and class weights positive.
[[nodiscard]] source_values<double> random_sources(program const& p, random_source& random);

/// Runs a plan of the program, once on one device and once on as many ranks as the plan has devices.
[[nodiscard]] emulation emulate(program const& p, indexed_program const& indexed, plan const& what, source_values<double> const& sources, std::uint64_t seed);

/// As above, each device of the plan being a group of ranks that hold summands of its partial tensors, and copies of the rest.
[[nodiscard]] emulation emulate_on_groups(std::size_t inside, program const& p, indexed_program const& indexed, plan const& what,
                                          source_values<double> const& sources, std::uint64_t seed);

/// What a plan's steps charge; the partial loss, which is summed to be told, is no step.
[[nodiscard]] carried_elements charged_elements(indexed_program const& indexed, plan const& what);

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
