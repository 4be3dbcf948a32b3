// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans no planner would choose: blind paths through the cuts at random ratios, some of them zero.
#pragma once

#include <heddle/planner/realise.hpp>
#include <support/random_programs.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace heddle::test {

/// A path through the cuts chosen blindly: forms no planner would choose.
[[nodiscard]] inline move_list random_path(cut_graph const& graph, random_source& random) {
    auto const steps = search::paths_to_goal(graph, [](auto) { return 1.0; });
    move_list path;
    for (std::size_t node = 0; !graph.is_last(node);) {
        std::vector<cut_graph::edge> open;
        for (auto const& e : graph.out(node))
            if (std::isfinite(steps.to_goal[e.to])) open.push_back(e);
        auto const& e = random.of(open);
        path.push_back(e.action);
        node = e.to;
    }
    return path;
}

[[nodiscard]] inline std::vector<double> random_ratios(std::size_t ranks, random_source& random) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += ratios.emplace_back(random.chance(0.2) ? 0.0 : random.between(0.05, 1.0));
    if (sum == 0) sum = ratios[0] = 1;
    for (auto& x : ratios) x /= sum;
    return ratios;
}

/// `ranks` equal devices; plans on them are made by `random_plan`, whatever they cost.
[[nodiscard]] inline cluster equal_devices(std::size_t ranks) {
    cluster c;
    c.types = {{"device", bytes(1e12), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{0, 1, static_cast<int>(ranks)}};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-6)};
    return c;
}

[[nodiscard]] inline plan random_plan(indexed_program const& indexed, std::size_t ranks, random_source& random) {
    cut_space space(indexed);
    auto const graph = search::explore(space, 2000);
    std::vector<step> steps;
    for (auto const& i : space.instructions()) steps.push_back(make_step(indexed, i, {}));
    auto const path = random_path(graph, random);
    auto p = realise(path, space, steps, equal_devices(ranks), random_ratios(ranks, random)).first;
    for (auto& s : p.steps)
        for_each_transfer(s.step, [&](transfer& t) {
            if (has_grouped_kind(t.kind)) t.how = random.chance(0.5) ? uneven::grouped : uneven::padded;
        });
    return p;
}

} // namespace heddle::test
