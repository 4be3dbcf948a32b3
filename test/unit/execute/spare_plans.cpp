// SPDX-License-Identifier: BSL-1.0
// After a loss the next plan is looked up, and devices keep as much of what they have as they can.
#include "support/block_programs.hpp"
#include "support/cases.hpp"

#include <heddle/base/error.hpp>
#include <heddle/clp/ratio_solver.hpp>
#include <heddle/execute/spare_plans.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/search/deadline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace {

using namespace heddle;

/// Three slow machines and a fast one, of two devices each.
cluster four_machines() {
    cluster c;
    c.name = "four machines";
    for (double const speed : {1e6, 2e6})
        c.types.push_back({speed > 1e6 ? "fast" : "slow",
                           bytes(1e9),
                           bytes_per_second(1e8),
                           seconds(1e-6),
                           {{element_type::float32, {flops_per_second(speed)}}}});
    c.machines = {{.type = 0, .devices = 2, .count = 3}, {.type = 1, .devices = 2}};
    c.intra = network_link{bytes_per_second(1e7), seconds(1e-6)};
    c.inter = network_link{bytes_per_second(1e6), seconds(1e-5)};
    return c;
}

/// By machine and device: the elements of each tensor that it stores, by their places.
using elements_stored = std::vector<std::vector<std::map<tensor_id, std::set<extent>>>>;

elements_stored elements_of(program const& p, staged_plan const& plan) {
    elements_stored stored(plan.device_count / 2, {2, std::map<tensor_id, std::set<extent>>{}});
    auto const ranks = stored_parts_of(p, plan);
    std::size_t rank = 0;
    for (auto const& s : plan.stages)
        for (auto d : s.devices) {
            for (auto const& [t, part] : ranks[rank])
                detail::for_each_common_run(tensor_part::whole(p.tensor(t).shape), part,
                                            [&, id = t](extent from, extent, extent length) {
                                                for (extent n = 0; n < length; ++n)
                                                    stored[d / 2][d % 2][id].insert(from + n);
                                            });
            ++rank;
        }
    return stored;
}

/// The bytes of what the first has of the second.
double common_bytes(program const& p, std::map<tensor_id, std::set<extent>> const& had,
                    std::map<tensor_id, std::set<extent>> const& wanted) {
    double sum = 0;
    for (auto const& [t, elements] : wanted) {
        auto const found = had.find(t);
        for (auto n : elements)
            if (found != had.end() && found->second.contains(n))
                sum += p.tensor(t).role == tensor_role::parameter ? 12 : 4; // with two moments
    }
    return sum;
}

} // namespace

TEST_CASE("what is looked up after a loss moves least, and says what only lost machines had") {
    auto const p = test::residual_blocks(24, 8, 4);
    auto const layers = repeated_layers(index_program(p));
    auto const c = four_machines();
    int planned = 0;
    // Half of the layers on half of the devices: with all of them the first half, with fewer the second.
    auto const plan_on = [&](cluster const& on) {
        ++planned;
        std::size_t const devices = on.devices().size(), middle = layers.size() / 2;
        pipeline_draft draft{{{0, middle, {}}, {middle, layers.size(), {}}}, 2};
        for (std::size_t d = 0; d < devices; ++d)
            draft.stages[(d < devices / 2) == (devices == 8) ? 0 : 1].devices.push_back(d);
        return plan_draft(p, layers, on, draft, clp::ratio_solver{});
    };
    auto const running = plan_on(c);
    REQUIRE(running.reason == "");
    spare_plans const spares(p, c, running, 2, plan_on);
    CHECK(planned == 5); // one or two of four machines, of which three are alike
    CHECK(spares.entries().size() == 5);
    CHECK(spares.find({}).state.received() == bytes(0));
    CHECK_THROWS_AS((void)spares.find(std::vector<std::size_t>{0, 1, 2}), input_error);
    CHECK_THROWS_AS((void)spares.find(std::vector<std::size_t>{4}), input_error);
    CHECK_THROWS_AS((void)spares.find(std::vector<std::size_t>{1, 1}), input_error);
    CHECK_THROWS_AS((void)spares.find(std::vector<std::size_t>{1}, std::vector<std::size_t>{2}), input_error);

    // What is read from files says the same.
    spare_plans const read(p, c, running, {spares.entries().begin() + 1, spares.entries().end()});
    for (auto const& lost : {std::vector<std::size_t>{}, {3}, {2, 0}}) {
        auto const one = spares.find(lost), other = read.find(lost);
        CHECK(one.machines == other.machines);
        CHECK(one.state.kept == other.state.kept);
        CHECK(one.state.lost == other.state.lost);
    }
    for (auto const& lost : {std::vector{4, 0}, {0, -1}, {1}})
        CHECK_THROWS_AS(spare_plans(p, c, running, {{lost, running}}), input_error);
    CHECK_THROWS_AS(spare_plans(p, c, running, {{{1, 0}, running}}), input_error);
    CHECK(spare_plans::numbers_of(c, std::vector<std::size_t>{2, 3, 0}) == std::vector{2, 1});

    int moved = 0, from_checkpoint = 0, in_other_places = 0;
    auto const check = [&](std::vector<std::size_t> const& lost, std::vector<std::size_t> const& before) {
        CAPTURE(lost);
        CAPTURE(before);
        auto const found = spares.find(lost, before), now = spares.find(before);
        REQUIRE(found.plan->exists());
        CHECK(found.plan->device_count == 2 * (4 - lost.size()));
        auto const had = elements_of(p, *now.plan), wants = elements_of(p, *found.plan);
        auto const kept_by = [&](std::vector<std::size_t> const& machines) {
            double kept = 0;
            for (std::size_t place = 0; place < machines.size(); ++place) {
                auto const at = std::ranges::find(now.machines, machines[place]) - now.machines.begin();
                for (std::size_t d = 0; d < 2; ++d)
                    kept += common_bytes(p, had[static_cast<std::size_t>(at)][d], wants[place][d]);
            }
            return kept;
        };
        std::vector<std::size_t> order; // that of the cluster, in which its fast machine is the last one
        for (std::size_t m = 0; m < 4; ++m)
            if (std::ranges::find(lost, m) == lost.end()) order.push_back(m);
        auto const end_of_slow = order.back() == 3 ? order.end() - 1 : order.end();
        double best = 0;
        do best = std::max(best, kept_by(order));
        while (std::next_permutation(order.begin(), end_of_slow));
        CHECK(found.state.kept.value == best);
        CHECK(kept_by(found.machines) == best);
        in_other_places += !std::ranges::is_sorted(found.machines);
        auto used = found.machines;
        std::ranges::sort(used);
        std::ranges::sort(order);
        CHECK(used == order);
        double all = 0;
        for (auto const& machine : wants)
            for (auto const& device : machine) all += common_bytes(p, device, device);
        CHECK(found.state.stored.value == all);
        std::map<tensor_id, std::set<extent>> left, gone;
        for (std::size_t place = 0; place < had.size(); ++place)
            for (auto const& device : had[place])
                for (auto const& [t, elements] : device)
                    (std::ranges::find(lost, now.machines[place]) == lost.end() ? left : gone)[t].insert(
                        elements.begin(), elements.end());
        double const only_there = common_bytes(p, gone, gone) - common_bytes(p, left, gone);
        CHECK(found.state.lost.value == only_there);
        moved += found.state.received() > bytes(0);
        from_checkpoint += only_there > 0;
    };
    for (std::size_t a = 0; a < 4; ++a) {
        check({a}, {});
        for (std::size_t b = 0; b < 4; ++b)
            if (a != b) check({a, b}, {}), check({b, a}, {a});
    }
    CHECK(moved > 10);
    CHECK(from_checkpoint > 0);
    CHECK(in_other_places > 0);

    search::deadline const clock;
    constexpr int times = 1000;
    double received = 0;
    std::vector<std::size_t> const two{0, 2};
    for (int n = 0; n < times; ++n) received += spares.find(two).state.received().value;
    CHECK(received > 0);
    CHECK((clock.elapsed() < 1e-3 * times || test::sanitized));
}
