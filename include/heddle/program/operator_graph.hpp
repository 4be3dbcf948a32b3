// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A program as a graph of operators, for the algorithms of Boost.Graph. Not part of
/// `heddle.hpp`: it takes a second to compile.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/concepts.hpp>

#include <boost/graph/adjacency_list.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace heddle {

/// Vertex `o` is operator `o`; an edge leads from the operator that computes a tensor to each that uses it.
using operator_graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

/// Returns the operator graph of a program, with one edge per pair of operators however many tensors join them.
/// *Complexity.* O(n log n) in operands and results.
template <single_device_program Program>
[[nodiscard]] operator_graph make_operator_graph(Program const& p) {
    using access = program_access<Program>;
    constexpr auto nobody = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> producer(access::tensor_count(p), nobody);
    std::vector<std::pair<std::size_t, std::size_t>> edges;
    std::size_t const count = access::operator_count(p);
    for (operator_id o = 0; o < count; ++o) {
        for (tensor_id t : access::operands(p, o))
            if (producer[t] != nobody) edges.emplace_back(producer[t], o);
        for (tensor_id t : access::results(p, o)) producer[t] = o;
    }
    algorithm::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return {edges.begin(), edges.end(), count};
}

} // namespace heddle
