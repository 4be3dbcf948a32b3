// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Measurements of collectives and operators.
#pragma once

#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/program/tensor.hpp>

#include <optional>
#include <string>
#include <variant>

namespace heddle {

/// One measurement of a collective on `ranks` ranks, or of an operator class on a device type.
struct sample {
    std::variant<collective, operator_class> what;
    /// The name of the device type, if an operator is measured.
    std::string device{};
    /// The number of ranks, if a collective is measured.
    int ranks = 0;
    /// The element type of the operands; an operator has one.
    std::optional<element_type> type{};
    flops work{};
    /// The payload of the busiest rank, or the memory read and written.
    bytes size{};
    seconds time{};
    /// The kind of operator that is measured and its pass, if they are known.
    std::optional<operator_pass> of{};
    /// What small kernels beside the operator's own move, whose time is in that of the call, and how many they are.
    bytes beside{};
    int kernels_beside = 0;
    /// Whether each rank is of another machine, whose others wait.
    bool is_across = false;
};

} // namespace heddle
