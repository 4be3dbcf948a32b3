// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The simulator of micro-batches in turn takes as long as the recurrence says with barriers, and never longer
/// without them.
#include "support/interleaved_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/simulate.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

struct interleaved_case {
    cluster machines;
    plan what;
};

interleaved_case random_case(std::uint64_t seed, bool turns) {
    random_source random(seed);
    auto const p = test::random_program(random, {.most_operators = 10});
    auto const indexed = index_program(p);
    interleaved_case result{test::random_cluster(random, {.most_types = 3, .most_devices = 5}), {}};
    training_options training{.micro_batches = random.between(2, 4),
                              .turn = seconds(turns && random.chance(0.5) ? random.between(0.01, 1.0) : 0)};
    result.what = test::interleaved(test::random_plan(indexed, result.machines.devices().size(), random), indexed,
                                    training, random);
    return result;
}

/// Checks that no device does two things of a kind at once.
bool is_in_order(timeline const& t) {
    std::map<std::pair<std::size_t, bool>, double> until;
    auto events = t.events;
    std::ranges::sort(events, {}, [](auto const& e) { return std::pair(e.start, e.duration); });
    for (auto const& e : events) {
        auto& last = until[{e.device, e.transfer.has_value()}];
        if (e.start < last - 1e-9 * t.total || e.start + e.duration > t.total * (1 + 1e-9)) return false;
        last = e.start + e.duration;
    }
    return true;
}

/// Tells whether a device does nothing else while its kernels wait for others.
bool waits_alone(timeline const& t, plan const& what) {
    auto const waits = [&](timeline_event const& e) {
        return what.steps[e.step].step.waits && e.transfer && e.when != timeline_event::phase::gradient &&
               e.when != timeline_event::phase::update;
    };
    return std::ranges::none_of(t.events, [&](auto const& w) {
        return waits(w) && std::ranges::any_of(t.events, [&](auto const& e) {
                   double const both =
                       std::min(w.start + w.duration, e.start + e.duration) - std::max(w.start, e.start);
                   return &e != &w && e.device == w.device && both > 1e-9 * t.total;
               });
    });
}

double work_of(timeline const& t) {
    double sum = 0;
    for (auto const& e : t.events) sum += e.duration;
    return sum;
}

} // namespace

TEST_CASE("with barriers a simulation takes as long as the recurrence says, without never longer") {
    int faster = 0, overlapping = 0, waiting = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        auto const [machines, what] = random_case(seed, true);
        double const expected = evaluate(what, machines).time.total();
        auto const strict = simulate(what, machines, {.barriers = true}), free = simulate(what, machines);
        CAPTURE(seed);
        CHECK(strict.total == doctest::Approx(expected).epsilon(1e-9));
        CHECK(free.total <= strict.total * (1 + 1e-9));
        CHECK(work_of(strict) == doctest::Approx(work_of(free)).epsilon(1e-9));
        CHECK(is_in_order(strict));
        CHECK(is_in_order(free));
        for (auto const* t : {&strict, &free}) CHECK(waits_alone(*t, what));
        waiting += std::ranges::any_of(what.steps, [](auto const& s) {
            return s.step.waits && !s.step.forward_transfers.empty() && !s.step.backward_transfers.empty();
        });
        faster += free.total < strict.total * (1 - 1e-6);
        overlapping += overlap_of(free, 0).ratio() > 0.1;
    }
    CHECK(faster > 200);
    CHECK(overlapping > 200);
    MESSAGE(waiting << " programs whose kernels wait");
    CHECK(waiting > 20);
}

TEST_CASE("interference slows what runs side by side, and nothing else") {
    int slower = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        auto const [machines, what] = random_case(seed + 5000, false);
        CAPTURE(seed);
        auto const alone = simulate(what, machines), work = simulate(what, machines, {.slower_work = 1.5}),
                   both = simulate(what, machines, {.slower_work = 1.5, .slower_collectives = 1.5});
        CHECK(work_of(work) <= 1.5 * work_of(alone) * (1 + 1e-9));
        CHECK(work_of(both) <= 1.5 * work_of(alone) * (1 + 1e-9));
        CHECK(both.total <= 1.5 * alone.total * (1 + 1e-9));
        bool any = false;
        for (std::size_t d = 0; d < what.devices.size(); ++d)
            any = any || overlap_of(alone, d).both > 1e-9 * alone.total;
        if (!any) CHECK(both.total == doctest::Approx(alone.total));
        slower += both.total > alone.total * (1 + 1e-6);
    }
    CHECK(slower > 50);
}

TEST_CASE("collectives in place, between kernels, or waiting for ranks do the same work, never sooner") {
    int placed_later = 0, held_up = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        auto const [machines, what] = random_case(seed + 9000, false);
        CAPTURE(seed);
        auto const free = simulate(what, machines), placed = simulate(what, machines, {.in_place = true});
        auto const held = simulate(what, machines, {.in_place = true, .between_kernels = true});
        for (auto const* t : {&placed, &held}) {
            CHECK(work_of(*t) == doctest::Approx(work_of(free)).epsilon(1e-9));
            CHECK(is_in_order(*t));
        }
        CHECK(placed.total >= free.total * (1 - 1e-9));
        CHECK(held.total >= placed.total * (1 - 1e-9));
        placed_later += placed.total > free.total * (1 + 1e-6);
        held_up += held.total > placed.total * (1 + 1e-6);
        double const wait = 0.125;
        std::set<std::tuple<std::size_t, std::size_t, int, timeline_event::phase>> collectives;
        for (auto const& e : free.events)
            if (e.transfer && e.when != timeline_event::phase::update)
                collectives.insert({e.step, *e.transfer, e.micro_batch, e.when});
        auto const waiting = simulate(what, machines, {.wait = seconds(wait)});
        double const added = wait * static_cast<double>(collectives.size() * what.devices.size());
        CHECK(work_of(waiting) == doctest::Approx(work_of(free) + added).epsilon(1e-9));
    }
    CHECK(placed_later > 30);
    CHECK(held_up > 30);
}
