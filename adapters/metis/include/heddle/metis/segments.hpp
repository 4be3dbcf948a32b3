// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Segments of a program as a balanced partition of its operators.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/synthesis/segments.hpp>

#include <metis.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace heddle::metis {

namespace detail {

/// A graph of operators with their work, and the bytes between them. METIS takes whole numbers: one is a millionth of
/// all work, or of all bytes.
struct weighted_graph {
    std::vector<idx_t> work;
    std::vector<std::map<std::size_t, idx_t>> between;
};

[[nodiscard]] inline weighted_graph graph_of(indexed_program const& p) {
    auto const count = p.operators.size();
    std::vector<double> work;
    std::map<std::pair<std::size_t, std::size_t>, double> between;
    std::vector<std::size_t> maker(p.tensors.size(), count);
    for (std::size_t o = 0; o < count; ++o) {
        auto const& op = p.operators[o];
        work.push_back(op.work.forward.value + op.work.backward.value);
        for (auto t : op.operands)
            if (auto const from = maker[t]; from < count && from != o)
                between[{from, o}] += p.tensors[t].info.size().value;
        for (auto t : op.results) maker[t] = o;
    }
    double all_work = 0, all_bytes = 0;
    for (double w : work) all_work += w;
    for (auto const& [edge, size] : between) all_bytes += size;
    auto const scaled = [](double value, double all) {
        return static_cast<idx_t>(1 + std::llround(value / std::max(all, 1e-300) * 1e6));
    };
    weighted_graph out;
    for (double w : work) out.work.push_back(scaled(w, all_work));
    out.between.resize(count);
    for (auto const& [edge, size] : between)
        out.between[edge.first][edge.second] = out.between[edge.second][edge.first] = scaled(size, all_bytes);
    return out;
}

/// Runs METIS's recursive bisection, one bisection at a time: METIS's own recursion prints to the standard output if a
/// part gets no operator.
class bisection {
public:
    explicit bisection(weighted_graph const& graph)
        : graph_(graph), part_of_(graph.work.size()), place_(graph.work.size()) {}

    [[nodiscard]] std::vector<segment_number> run(std::size_t parts) {
        std::vector<std::size_t> all(graph_.work.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        divide(all, parts);
        return std::move(part_of_);
    }

private:
    void divide(std::vector<std::size_t> const& members, std::size_t parts) {
        parts = std::min(parts, members.size());
        if (parts == 0) return;
        if (parts == 1) {
            for (auto o : members) part_of_[o] = next_;
            ++next_;
            return;
        }
        std::size_t const left = parts / 2;
        auto const is_right = bisect(members, static_cast<real_t>(left) / static_cast<real_t>(parts));
        std::vector<std::size_t> sides[2];
        for (std::size_t k = 0; k < members.size(); ++k) sides[is_right[k] != 0].push_back(members[k]);
        divide(sides[0], sides[1].empty() ? 1 : left); // what cannot be divided is one part
        divide(sides[1], sides[0].empty() ? 1 : parts - left);
    }

    /// Returns which members are on the second side; the first has about `share` of their work.
    [[nodiscard]] std::vector<idx_t> bisect(std::vector<std::size_t> const& members, real_t share) {
        constexpr auto outside = static_cast<std::size_t>(-1);
        algorithm::fill(place_, outside);
        for (std::size_t k = 0; k < members.size(); ++k) place_[members[k]] = k;
        std::vector<idx_t> first{0}, neighbours, vertex_weights, edge_weights, side(members.size());
        for (auto o : members) {
            vertex_weights.push_back(graph_.work[o]);
            for (auto const& [other, size] : graph_.between[o])
                if (place_[other] != outside) {
                    neighbours.push_back(static_cast<idx_t>(place_[other]));
                    edge_weights.push_back(size);
                }
            first.push_back(static_cast<idx_t>(neighbours.size()));
        }
        auto vertices = static_cast<idx_t>(members.size()), constraints = idx_t{1}, parts = idx_t{2}, cut = idx_t{0};
        real_t shares[] = {share, 1 - share};
        idx_t options[METIS_NOPTIONS];
        METIS_SetDefaultOptions(options);
        options[METIS_OPTION_SEED] = 1;
        int const status =
            METIS_PartGraphRecursive(&vertices, &constraints, first.data(), neighbours.data(), vertex_weights.data(),
                                     nullptr, edge_weights.data(), &parts, shares, nullptr, options, &cut, side.data());
        if (status != METIS_OK)
            throw error("METIS does not divide " + std::to_string(members.size()) + " operators in two");
        return side;
    }

    weighted_graph const& graph_;
    std::vector<segment_number> part_of_;
    std::vector<std::size_t> place_;
    segment_number next_ = 0;
};

} // namespace detail

/// Returns operators in `count` segments of about equal work with few bytes between them (HAP section 5.2). Work is
/// operations, forward and backward. The same program gives the same segments. There are fewer than `count` if METIS
/// leaves a side of a bisection empty.
/// *Throws* `input_error` if there are fewer operators than segments, and `error` if METIS fails.
/// *Complexity.* Linear in the program, times the depth of bisection and logarithms.
template <single_device_program Program>
[[nodiscard]] std::vector<segment_number> segments(Program const& p, std::size_t count) {
    indexed_program const indexed = index_program(p);
    std::size_t const operators = indexed.operators.size();
    if (count < 1 || count > operators)
        throw input_error("segments", std::to_string(count) + ", expected one at least and at most " +
                                          std::to_string(operators) + ", the operators");
    auto const graph = detail::graph_of(indexed);
    return numbered_in_order(detail::bisection(graph).run(count));
}

} // namespace heddle::metis
