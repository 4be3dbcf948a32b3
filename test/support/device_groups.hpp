// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random plans on random device groups.
#pragma once

#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/batch.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_plans.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

struct grouped_case {
    heddle::program program;
    indexed_program indexed;
    heddle::plan plan;
};

/// Draws a random program of the catalogue and a random walk through its theory, on one to three groups of one to four
/// devices, one of which has several.
inline grouped_case random_grouped_case(std::uint64_t seed) {
    random_source random(seed);
    auto const recipes = static_cast<int>(1 + random.below(5));
    grouped_case made{catalogue_program(random, recipes), {}, {}};
    made.indexed = index_program(made.program);
    split_inside(made.indexed);
    made.plan = random_plan(made.indexed, 1 + random.below(3), random);
    for (auto& d : made.plan.devices) d.group_size = static_cast<int>(1 + random.below(4));
    if (!made.plan.has_groups()) made.plan.devices[0].group_size = 2;
    return made;
}

/// Makes machines of the sizes of a plan's groups, of two types in turn, one group each.
inline cluster cluster_of(plan const& p, double inside_bandwidth = 50e9, double inside_latency = 1e-5) {
    cluster c;
    c.name = "groups";
    c.types = {{"fast", bytes(1e12), bytes_per_second(8e8), seconds(5e-6), {}},
               {"slow", bytes(1e12), bytes_per_second(4e8), seconds(1e-5), {}}};
    for (std::size_t e = 0; e < element_type_count; ++e) {
        c.types[0].rates[static_cast<element_type>(e)] = {flops_per_second(1e9)};
        c.types[1].rates[static_cast<element_type>(e)] = {flops_per_second(4e8)};
    }
    for (std::size_t d = 0; d < p.devices.size(); ++d) c.machines.push_back({d % 2, p.devices[d].group_size, 1, true});
    c.intra = network_link{bytes_per_second(inside_bandwidth), seconds(inside_latency)};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-4)};
    return c;
}

} // namespace heddle::test
