// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Gradients in buckets: what is put together, its price, its bound, and its events.
#include "support/interleaved_plans.hpp"
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/plan/buckets.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/simulate.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

struct bucketed_case {
    cluster machines;
    plan what;
};

/// Draws buckets of no, some or all gradients of a random plan. `micro_batches` is how many take turns, 1 for none.
bucketed_case random_bucketed_case(random_source& random, int micro_batches = 1) {
    auto const p = test::random_program(random, {.least_operators = 6, .most_operators = 20});
    auto const indexed = index_program(p);
    bucketed_case x{test::random_cluster(random, {.most_types = 3, .most_devices = 5}), {}};
    x.what = test::random_plan(indexed, x.machines.devices().size(), random);
    training_options training{.bucket = bytes(random.of(std::vector<double>{0, 200, 1000, 1e9, 1e9})),
                              .micro_batches = micro_batches};
    training.overlaps_gradients = random.chance(0.5);
    if (micro_batches > 1) x.what = test::interleaved(std::move(x.what), indexed, training, random);
    else x.what.provenance.training = training;
    return x;
}

double seconds_with_buckets(plan p, cluster const& c, bytes bucket) {
    p.provenance.training.bucket = bucket;
    return evaluate(p, c).time.total();
}

/// Returns the time of a plan as searches add it up: every gradient by what it adds to its bucket.
double added_up_by_gradient(plan const& p, cluster const& c) {
    auto const model = per_device_model(c, p);
    auto const shares = shares_of(p);
    auto const total = [&](auto const& clock) {
        auto label = clock.initial();
        auto stage = p.stages.begin();
        for (std::size_t n = 0; n < p.steps.size(); ++n) {
            if constexpr (requires { clock.close(label); })
                if (stage != p.stages.end() && *stage == n) ++stage, clock.close(label);
            clock.extend(label, model.price(p.steps[n].step, shares));
        }
        return clock.total(label);
    };
    if (p.provenance.training.interleaves()) return total(duplex(model.class_count(), p.provenance.training));
    return p.provenance.training.overlaps_gradients ? total(overlapped(model.class_count()))
                                                    : total(serial(model.class_count()));
}

} // namespace

TEST_CASE("every gradient is in one bucket, of one kind, filled in the order of the backward pass") {
    int several = 0, sent_early = 0;
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        random_source random(seed);
        auto const [machines, p] = random_bucketed_case(random);
        CAPTURE(seed);
        bytes const limit = p.provenance.training.bucket;
        std::set<std::size_t> met;
        std::map<std::tuple<collective, bool, element_type>, std::size_t> last; // the bucket of each kind that is open
        auto const buckets = gradient_buckets(p);
        for (std::size_t b = 0; b < buckets.size(); ++b) {
            bytes size;
            std::set<tensor_id> tensors;
            auto const& first = p.steps[buckets[b].steps.front()].step;
            auto const kind =
                std::tuple(first.deferred_transfers.at(0).kind, is_one_by_one(first.deferred_transfers[0]), first.type);
            for (auto n : buckets[b].steps) {
                auto const& s = p.steps[n].step;
                CHECK(met.insert(n).second);
                CHECK(s.deferred_transfers.size() == 1);
                CHECK(tensors.insert(p.steps[n].instruction.change()->tensor).second);
                CHECK(std::tuple(s.deferred_transfers[0].kind, is_one_by_one(s.deferred_transfers[0]), s.type) == kind);
                size += s.deferred_transfers[0].size;
            }
            CHECK(std::ranges::is_sorted(buckets[b].steps, std::greater{}));
            CHECK(size == buckets[b].size);
            CHECK((buckets[b].steps.size() == 1 || size <= limit));
            several += buckets[b].steps.size() > 1;
            if (auto const before = last.find(kind); before != last.end() && first.deferred_transfers[0].size < limit) {
                auto const& full = buckets[before->second];
                sent_early += full.size + first.deferred_transfers[0].size <=
                              limit; // a second collective of one of its parameters
                CHECK(full.steps.back() > buckets[b].steps.front());
            }
            if (first.deferred_transfers[0].size < limit) last[kind] = b;
        }
        for (std::size_t n = 0; n < p.steps.size(); ++n)
            CHECK(met.contains(n) ==
                  (!p.steps[n].step.deferred_transfers.empty() && p.steps[n].step.reduces_gradients()));
    }
    CHECK(several > 40);
    CHECK(sent_early > 0);
}

TEST_CASE(
    "a plan costs what its events take, no more than tensor by tensor, and no less than what its gradients add up to") {
    int cheaper = 0, exact = 0;
    for (std::uint64_t seed = 1; seed <= 800; ++seed) {
        random_source random(seed + 1000);
        auto const [machines, p] = random_bucketed_case(random);
        CAPTURE(seed);
        double const cost = evaluate(p, machines).time.total(),
                     one_by_one = seconds_with_buckets(p, machines, bytes(0)),
                     added = added_up_by_gradient(p, machines);
        CHECK(run_serial(p, machines).total == doctest::Approx(cost).epsilon(1e-9));
        CHECK(added <= cost * (1 + 1e-9));
        if (!p.provenance.training.overlaps_gradients)
            CHECK(cost <= one_by_one * (1 + 1e-9)); // a bucket that overlaps waits for its last gradient
        if (p.provenance.training.bucket == bytes(0)) CHECK(added == doctest::Approx(cost).epsilon(1e-9));
        cheaper += cost < one_by_one * (1 - 1e-6);
        exact += added > cost * (1 - 1e-9);
    }
    CHECK(cheaper > 20);
    CHECK(exact > 100);
}

TEST_CASE("every gradient of micro-batches in turn is in one bucket, of one kind") {
    int cheaper = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        random_source random(seed + 2000);
        auto const [machines, p] = random_bucketed_case(random, 2);
        CAPTURE(seed);
        double const cost = evaluate(p, machines).time.total();
        CHECK(simulate(p, machines, {.barriers = true}).total == doctest::Approx(cost).epsilon(1e-9));
        CHECK(simulate(p, machines).total <= cost * (1 + 1e-9));
        CHECK(added_up_by_gradient(p, machines) <= cost * (1 + 1e-9));
        cheaper += cost < seconds_with_buckets(p, machines, bytes(0)) * (1 - 1e-6);
    }
    CHECK(cheaper > 3);
}
