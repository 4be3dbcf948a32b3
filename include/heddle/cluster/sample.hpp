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
    /// Of an operator: the name of the device type.
    std::string device{};
    /// Of a collective.
    int ranks = 0;
    /// Of the operands; an operator has one.
    std::optional<element_type> type{};
    flops work{};
    /// Payload of the busiest rank, or memory read and written.
    bytes size{};
    seconds time{};
};

} // namespace heddle
