// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/placement.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace {

using namespace heddle;
using list = std::vector<std::size_t>;

strategy_problem machines_of(std::vector<std::size_t> const& types, std::size_t devices) {
    strategy_problem p;
    for (auto const t : types)
        p.machines.push_back({t, devices, {bytes_per_second(4), seconds(0)}, {bytes_per_second(1), seconds(0)}});
    return p;
}

/// The machine of every rank, with like machines renamed in order of appearance.
list pattern(strategy_problem const& p, device_placement const& placement) {
    auto const machine_of = p.machine_of_device();
    list out;
    std::vector<std::pair<std::size_t, std::size_t>> named; // machine, its name
    for (auto const d : placement.devices) {
        auto const m = machine_of[d];
        auto found = std::ranges::find(named, m, [](auto const& n) { return n.first; });
        if (found == named.end()) {
            auto const same_type = std::ranges::count_if(
                named, [&](auto const& n) { return p.machines[n.first].type == p.machines[m].type; });
            named.emplace_back(m, 100 * p.machines[m].type + static_cast<std::size_t>(same_type));
            found = named.end() - 1;
        }
        out.push_back(found->second);
    }
    return out;
}

} // namespace

TEST_CASE("orders of machines count like ones once") {
    auto const p = machines_of({0, 0, 1, 0}, 4);
    placement_space const space(p, 1);
    auto const orders = space.machine_orders(100);
    REQUIRE(orders.size() == 4);
    CHECK(orders[0] == list{0, 1, 3, 2});
    CHECK(orders[3] == list{2, 0, 1, 3});
    CHECK(space.machine_orders(2).size() == 2);
    CHECK(placement_space(machines_of({0, 0, 0, 0, 0, 0}, 1), 1).machine_orders(100).size() == 1);
    CHECK(placement_space(machines_of({0, 1, 2, 3}, 1), 1).machine_orders(100).size() == 24);
    auto apart = machines_of({0, 0}, 1);
    apart.machines[1].outside.bandwidth = bytes_per_second(2);
    CHECK(placement_space(apart, 1).machine_orders(100).size() == 2);
}

TEST_CASE("a placement in order puts copies first as Megatron does, or stages first") {
    auto const p = machines_of({0, 1}, 4);
    placement_space const space(p, 2);
    parallel_degrees const d{2, 2, 2};
    CHECK(space.in_order(d, list{0, 1}, placement_order::copies_first).devices == megatron_placement(d).devices);
    CHECK(space.in_order(d, list{1, 0}, placement_order::copies_first).devices == list{4, 5, 6, 7, 0, 1, 2, 3});
    auto const stages = space.in_order(d, list{0, 1}, placement_order::stages_first);
    CHECK(stages.pipeline_group(0, 0) == list{0, 2});
    CHECK(stages.pipeline_group(1, 1) == list{5, 7});
}

TEST_CASE("all placements are all assignments of tensor groups to machines") {
    for (auto const& types : {list{0, 0}, list{0, 1}, list{0, 0, 0}, list{0, 1, 0}})
        for (std::size_t tensor : {1u, 2u}) {
            auto const p = machines_of(types, 2);
            placement_space const space(p, tensor);
            std::size_t const units = types.size() * 2 / tensor;
            parallel_degrees const d{units, 1, tensor};
            std::set<list> expected;
            device_placement any = megatron_placement(d);
            do {
                bool together = true;
                for (std::size_t i = 0; i < any.devices.size(); i += tensor)
                    together &= any.devices[i] / 2 == any.devices[i + tensor - 1] / 2;
                if (together) expected.insert(pattern(p, any));
            } while (std::ranges::next_permutation(any.devices).found);
            auto const all = space.all(d, 1000);
            REQUIRE(all);
            std::set<list> found;
            for (auto const& placement : *all) found.insert(pattern(p, placement));
            CHECK(found == expected);
            CHECK(all->size() == expected.size());
            CHECK(space.all(d, all->size()));
            CHECK_FALSE(space.all(d, all->size() - 1));
        }
}

TEST_CASE("tilings have blocks of copies, upright or lying, or do not exist if one does not fit") {
    auto const p = machines_of({0, 0, 0, 0}, 4); // a mesh of four columns and four rows
    placement_space const space(p, 1);
    parallel_degrees const d{8, 2, 1};
    list const order{0, 1, 2, 3};
    auto const upright = space.tile(d, order, list(8, 2));
    REQUIRE(upright);
    CHECK(upright->devices == megatron_placement(d).devices);
    auto const lying = space.tile(d, order, list(8, 1));
    REQUIRE(lying);
    CHECK(lying->data_group(0, 0) == list{0, 4});
    CHECK(lying->data_group(4, 0) == list{8, 12});
    auto const mixed = space.tile(d, order, list{2, 1, 1, 2, 2, 1, 1, 2}); // AMP's figure 5 has such dominoes
    REQUIRE(mixed);
    CHECK(mixed->data_group(0, 0) == list{0, 1});
    CHECK(mixed->data_group(1, 0) == list{2, 4});
    auto devices = mixed->devices;
    std::ranges::sort(devices);
    CHECK(devices == megatron_placement(d).devices);
    CHECK_FALSE(space.tile(d, order, list{1, 2, 2, 2, 2, 2, 2, 2})); // three cells are left in the first column
    auto const turned = space.tile(d, list{3, 2, 1, 0}, list(8, 2));
    CHECK(turned->data_group(0, 0) == list{12, 13});
}
