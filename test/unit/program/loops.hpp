// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <string>
#include <vector>

/// The loops of an operator, sorted, one a line: extent, `+` for a reduction, then for the operands and after the arrow
/// for the results that have it `operand:factor`; `~` for each statistic, of the backward pass after the arrow.
inline std::string loops(heddle::indexed_program const& p, heddle::operator_id o) {
    std::vector<std::string> lines;
    auto const places = [](std::vector<heddle::factor_number> const& factors) {
        std::string text;
        for (std::size_t k = 0; k < factors.size(); ++k)
            if (factors[k] != heddle::no_factor) text += " " + std::to_string(k) + ":" + std::to_string(factors[k]);
        return text;
    };
    for (auto const& loop : p.operators[o].loops)
        lines.push_back(std::to_string(loop.extent) + (loop.is_reduction ? "+" : "") +
                        std::string(loop.forward_statistics, '~') + places(loop.operands) + " ->" +
                        std::string(loop.backward_statistics, '~') + places(loop.results) + "\n");
    std::ranges::sort(lines);
    std::string text;
    for (auto const& line : lines) text += line;
    return text;
}
