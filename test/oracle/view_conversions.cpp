// SPDX-License-Identifier: BSL-1.0
// Programs that convert before views are as good as all programs.
#include "support/cases.hpp"
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/atoms.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Makes matrices and stacks of matrices of one size, by way of views that turn, join and split their dimensions, and
/// operators that use them.
program program_of_views(random_source& random) {
    program_builder b;
    extent const n = random.of(std::vector<extent>{2, 3, 4});
    int weights = 0;
    auto const weight = [&] { return b.parameter("w" + std::to_string(++weights), {n, n}); };
    struct value {
        tensor_id tensor;
        bool is_stack;
    };
    auto const view = [&](char const* kind, char const* rule, tensor_id t) {
        return b.apply(kind, rule, {t}, {.extents = {{"b", n}, {"c", n}}, .is_view = true});
    };
    std::vector<value> values{{b.input("x", {n * n, n}), false}};
    auto x = values.front();
    for (int count = random.between(3, 5); count > 0; --count) {
        x = random.chance(0.8) ? values.back() : random.of(values);
        switch (random.between(0, 6)) {
        case 0:
        case 1:
            if (x.is_stack)
                x.tensor =
                    view("transpose", random.chance(0.5) ? "(b c k) -> (c b k); 0" : "(b c k) -> (b k c); 0", x.tensor);
            else x = {view("split", "((b c) k) -> (b c k); 0", x.tensor), true};
            break;
        case 2:
            x = x.is_stack ? value{view("merge", "(b c k) -> ((b c) k); 0", x.tensor), false}
                           : value{view("copy", "(r k) -> (r k); 0", x.tensor), false};
            break;
        case 3:
            x.tensor = b.apply("relu", x.is_stack ? "(b c k) -> (b c k)" : "(r k) -> (r k)", {x.tensor},
                               {.saved_results = {0}});
            break;
        case 4:
            x.tensor = b.apply("linear", x.is_stack ? "(b c k), (m k) -> (b c m); 0*1" : "(r k), (m k) -> (r m); 0*1",
                               {x.tensor, weight()}, {.category = operator_class::matmul});
            break;
        case 5: {
            auto other = random.of(values);
            if (other.is_stack != x.is_stack) other = x;
            x.tensor =
                b.apply("add", x.is_stack ? "(b c k), (b c k) -> (b c k); 0 + 1" : "(r k), (r k) -> (r k); 0 + 1",
                        {x.tensor, other.tensor});
            break;
        }
        default: { // a product of views of one tensor
            if (!x.is_stack) x = {view("split", "((b c) k) -> (b c k); 0", x.tensor), true};
            auto const left = view("transpose", "(b c k) -> (c b k); 0", x.tensor),
                       right = view("transpose", "(b c k) -> (b k c); 0", x.tensor);
            x.tensor =
                b.apply("product",
                        random.chance(0.5) ? "(a b m), (a m c) -> (a b c); 0*1" : "(a b !m), (a !m c) -> (a b c); 0*1",
                        {left, right}, {.category = operator_class::matmul});
        }
        }
        values.push_back(x);
    }
    x.tensor = b.apply("linear", x.is_stack ? "(b c k), (m k) -> (b c m); 0*1" : "(r k), (m k) -> (r m); 0*1",
                       {x.tensor, weight()}, {.category = operator_class::matmul});
    return b.finish(b.apply("sum", x.is_stack ? "(b c k) -> (); 0" : "(r k) -> (); 0", {x.tensor}));
}

/// Makes devices on which a straight conversion takes no longer than two in its place; measured collectives are random.
cluster devices_of_links(random_source& random) {
    auto c = test::random_cluster(random, {.most_types = 3, .most_devices = 3});
    c.measured.clear();
    return c;
}

/// A program of views, devices to run it on and shares of it.
struct setting {
    program made;
    cluster devices;
    indexed_program indexed = index_program(made);
    cost_model model = per_device_model(devices, main_type(indexed));
    integral_shares shares;

    explicit setting(random_source& random)
        : made(program_of_views(random)), devices(devices_of_links(random)),
          shares(indexed, test::random_ratios(model.class_count(), random)) {}
    setting(setting const&) = delete;
    setting& operator=(setting const&) = delete;
    [[nodiscard]] std::string describe() const { return test::describe(made) + test::describe(devices); }
};

/// The programs that a filter leaves, and their prices.
struct priced_space {
    cut_space space;
    cut_graph graph;
    std::vector<step_work> steps;
    priced_graph priced;

    template <class Shares>
    priced_space(indexed_program const& p, instruction_filter allowed, cost_model const& model, Shares const& shares,
                 training_options const& training)
        : space(p, operator_kinds(p), training.interleaves() ? hidup_options{}.planning.cuts : 1),
          graph(explore(std::move(allowed), training.interleaves())), steps(steps_of(p, training)),
          priced(space, graph, steps, model, shares, training) {}

private:
    cut_graph explore(instruction_filter allowed, bool has_stages) {
        if (has_stages) space.divide_into_stages();
        space.restrict_to(std::move(allowed));
        return search::explore(space);
    }
    std::vector<step_work> steps_of(indexed_program const& p, training_options const& training) const {
        std::vector<step_work> result;
        for (auto const& i : space.instructions()) result.push_back(make_step(p, i, training));
        return result;
    }
};

multipliers random_weights(random_source& random, cost_model const& model, bool interleaves) {
    multipliers result{{test::random_ratios(model.class_count(), random)}, std::vector<double>(model.class_count())};
    for (auto* d : {&result.time.forward, &result.time.backward})
        if (interleaves) {
            d->network = d->patient = random.unit();
            d->work = 1 - d->network;
        }
    if (random.chance(0.5))
        for (auto& price : result.memory) price = random.log_between(1e-9, 1e-3);
    return result;
}

} // namespace

TEST_CASE("converting before views leaves a program of the least added cost, whatever is pinned") {
    std::size_t all_states = 0, states = 0;
    int pinned_count = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(600u); ++seed) {
        random_source random(seed + 770000);
        setting const s(random);
        auto const& p = s.indexed;
        training_options const training{.micro_batches = random.between(1, 2)};
        CAPTURE(seed);
        INFO(s.describe());
        auto allowed = random.chance(0.5) ? fastest_programs(p) : instruction_filter::everything();
        if (random.chance(0.3)) {
            auto const& op = random.of(p.operators);
            auto const t = op.results[0];
            if (!p.tensors[t].factors.empty()) {
                allowed = with_pins(
                    p, {{t, tensor_form::shard(static_cast<factor_number>(random.below(p.tensors[t].factors.size())))}},
                    allowed);
                ++pinned_count;
            }
        }
        priced_space const all(p, allowed, s.model, s.shares, training),
            fewer(p, converting_before_views(p, allowed), s.model, s.shares, training);
        all_states += all.graph.node_count();
        states += fewer.graph.node_count();
        for (int n = 0; n < 5; ++n) {
            auto const weights = random_weights(random, s.model, training.interleaves());
            CHECK(relax(fewer.priced, weights).bound() ==
                  doctest::Approx(relax(all.priced, weights).bound()).epsilon(1e-9));
        }
    }
    MESSAGE(states << " of " << all_states << " states, " << pinned_count << " programs with a pin");
    CHECK(states < all_states);
    CHECK(pinned_count > test::cases(100));
}

TEST_CASE("converting before views leaves a fastest program of micro-batches in turn") {
    int checked = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        random_source random(seed + 780000);
        setting const s(random);
        auto const& p = s.indexed;
        training_options const training{.micro_batches = 2};
        CAPTURE(seed);
        INFO(s.describe());
        priced_space const all(p, fastest_programs(p), s.model, s.shares, training),
            fewer(p, converting_before_views(p, fastest_programs(p)), s.model, s.shares, training);
        synthesis_options const options{.engine = search_engine::pareto_dp, .search = {.limits = {.labels = 100'000}}};
        auto const best = synthesise<duplex>(all.priced, options), found = synthesise<duplex>(fewer.priced, options);
        if (best.status != search::status::optimal || found.status != search::status::optimal) continue;
        ++checked;
        CHECK(found.cost.seconds == doctest::Approx(best.cost.seconds).epsilon(1e-9));
    }
    CHECK(checked > test::cases(300));
}
