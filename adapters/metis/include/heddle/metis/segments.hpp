// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Segments of a program as a balanced partition of its operators.
#pragma once

#include <heddle/planner/segments.hpp>
#include <heddle/program/indexed_program.hpp>

#include <metis.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::metis {

/// Operators in `count` segments of about equal work, few bytes being between them (HAP section 5.2). Work is operations, forward and backward.
/// The same program gives the same segments; fewer than `count` where METIS leaves some empty.
/// *Throws* `input_error` if there are not as many operators as segments; `error` if METIS fails.
/// *Complexity.* Linear in the program, but for a logarithm.
template <single_device_program Program>
[[nodiscard]] std::vector<segment_number> segments(Program const& p, std::size_t count) {
    indexed_program const indexed = index_program(p);
    std::size_t const operators = indexed.operators.size();
    if (count < 1 || count > operators)
        throw input_error("segments", std::to_string(count) + ", expected one at least and at most " + std::to_string(operators) + ", the operators");
    if (count == 1) return std::vector<segment_number>(operators, 0);

    // METIS wants whole numbers: a millionth of all work, or of all bytes, is one.
    std::vector<double> work;
    std::map<std::pair<operator_id, operator_id>, double> bytes_between;
    std::vector<operator_id> maker(indexed.tensors.size(), static_cast<operator_id>(operators));
    for (operator_id o = 0; o < operators; ++o) {
        auto const& op = indexed.operators[o];
        work.push_back(op.work.forward.value + op.work.backward.value);
        for (auto t : op.operands)
            if (auto const from = maker[t]; from < operators && from != o)
                for (auto const& edge : {std::pair(from, o), std::pair(o, from)}) bytes_between[edge] += indexed.tensors[t].info.size().value;
        for (auto t : op.results) maker[t] = o;
    }
    auto const scaled = [](double value, double all) { return static_cast<idx_t>(1 + std::llround(value / std::max(all, 1e-300) * 1e6)); };
    double all_work = 0, all_bytes = 0;
    for (double w : work) all_work += w;
    for (auto const& [edge, size] : bytes_between) all_bytes += size / 2;

    std::vector<idx_t> first{0}, neighbours, vertex_weights, edge_weights;
    auto edge = bytes_between.begin();
    for (operator_id o = 0; o < operators; ++o) {
        vertex_weights.push_back(scaled(work[o], all_work));
        for (; edge != bytes_between.end() && edge->first.first == o; ++edge) {
            neighbours.push_back(static_cast<idx_t>(edge->first.second));
            edge_weights.push_back(scaled(edge->second, all_bytes));
        }
        first.push_back(static_cast<idx_t>(neighbours.size()));
    }
    auto vertices = static_cast<idx_t>(operators), constraints = idx_t{1}, parts = static_cast<idx_t>(count), cut = idx_t{0};
    idx_t options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = 1;
    std::vector<idx_t> part(operators);
    int const status = METIS_PartGraphRecursive(&vertices, &constraints, first.data(), neighbours.data(), vertex_weights.data(), nullptr, edge_weights.data(),
                                                &parts, nullptr, nullptr, options, &cut, part.data());
    if (status != METIS_OK) throw error("METIS finds no partition of " + std::to_string(operators) + " operators into " + std::to_string(count));
    std::vector<segment_number> result;
    for (idx_t n : part) result.push_back(static_cast<segment_number>(n));
    return numbered_in_order(std::move(result));
}

} // namespace heddle::metis
