// SPDX-License-Identifier: BSL-1.0
// Strategies and templates as pipeline plans, and back.
#include <heddle/pipeline/micro_batch_sizes.hpp>
#include <heddle/pipeline/pipeline_figures.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/pipeline/strategy_layout.hpp>
#include <heddle/pipeline/strategy_record.hpp>
#include <heddle/pipeline/strategy_shapes.hpp>
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_copies.hpp>
#include <heddle/pipeline/template_layout.hpp>

#include <support/errors.hpp>
#include <support/random_templates.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Machines of two and of four devices, which update their parameters.
strategy_problem two_machines() {
    strategy_problem p;
    p.types = {{"gpu", bytes(1000), seconds(0.5), {}}};
    for (std::size_t degree : {1u, 2u})
        p.types[0].profiles[degree] = {
            std::vector(4, seconds(1.0 / static_cast<double>(degree))), 1, {}, std::vector(4, seconds(0.1))};
    p.layers.assign(4,
                    {"block", {bytes(0), bytes(8)}, {bytes(0), bytes(16)}, {bytes(0), bytes(2)}, {bytes(1), bytes(0)}});
    network_link const inside{bytes_per_second(4), seconds(0)}, outside{bytes_per_second(2), seconds(0)};
    p.machines = {{0, 2, inside, outside}, {0, 4, inside, outside}};
    p.global_batch = 8;
    return p;
}

bool same(strategy const& a, strategy const& b) {
    return a.degrees() == b.degrees() && a.placement.devices == b.placement.devices &&
           a.micro_batch_size == b.micro_batch_size && a.micro_batches == b.micro_batches && a.cuts == b.cuts;
}

} // namespace

TEST_CASE("a strategy is what its plan is a plan of, and its plan counts more than stages") {
    auto const p = two_machines();
    search::random_stream random(7);
    for (int n = 0; n < 50; ++n) {
        auto const s = random_strategy(p, random);
        auto const plan = make_pipeline_plan(p, s);
        CHECK(same(strategy_of(plan), s));
        CHECK_FALSE(plan.counts_stages_alone());
        CHECK(plan.provenance.planner.empty());
        CHECK(difference(plan, make_pipeline_plan(p, strategy_of(plan))) == "");
    }
}

TEST_CASE("groups of several sizes are no strategy") {
    auto plan = make_pipeline_plan(two_machines(), {megatron_placement({3, 1, 2}), 1, 8, {0, 1, 2, 4}});
    plan.stages[1].devices[0].pop_back();
    CHECK(test::error_of([&] { (void)strategy_of(plan); }).find("several sizes") != std::string::npos);
}

TEST_CASE("a template is what its plan is a plan of, and its plan counts stages alone") {
    int found = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_template_problem(random);
        auto const t = plan_template(p);
        auto const numbers = numbered_by_type(p);
        auto const plan = make_pipeline_plan(p, t, numbers);
        CHECK(plan.exists() == t.cost.has_value());
        CHECK(plan.counts_stages_alone());
        if (!t.cost) continue;
        ++found;
        auto const stages = template_of(p, plan, numbers);
        REQUIRE(stages.size() == t.stages.size());
        for (std::size_t s = 0; s < stages.size(); ++s) {
            CHECK(std::tie(stages[s].type, stages[s].machine, stages[s].devices) ==
                  std::tie(t.stages[s].type, t.stages[s].machine, t.stages[s].devices));
            CHECK(std::tie(stages[s].first, stages[s].end) == std::tie(t.stages[s].first, t.stages[s].end));
        }
        auto const equal = plan.baselines.at("equal layers");
        if (equal) CHECK(*equal >= plan.cost() * (1 - 1e-9));
    }
    CHECK(found > 10);
}

TEST_CASE("whatever counts beside stages makes a plan one of a strategy") {
    pipeline_plan plan;
    plan.stages = {{0, 1, {{0}}, seconds(1), seconds(0)}, {1, 2, {{1}}, seconds(1), seconds(0)}};
    plan.time.pipeline = seconds(3);
    CHECK(plan.counts_stages_alone());
    auto other = plan;
    other.stages[1].boundary = seconds(0.1);
    CHECK_FALSE(other.counts_stages_alone());
    other = plan;
    other.time.synchronisation = seconds(0.1);
    CHECK_FALSE(other.counts_stages_alone());
    other = plan;
    other.time.update = seconds(0.1);
    CHECK_FALSE(other.counts_stages_alone());
    other = plan;
    for (auto& s : other.stages) s.devices.push_back({s.devices[0][0] + 2});
    CHECK_FALSE(other.counts_stages_alone());
}

TEST_CASE("a record keeps the best strategies, one of each shape") {
    auto const p = two_machines();
    strategy_model const model(p);
    strategy_record record(model, 3);
    search::random_stream random(3);
    std::vector<seconds> met;
    for (int n = 0; n < 200; ++n) {
        auto const s = random_strategy(p, random);
        met.push_back(model.cost(s).total);
        record.keep(s);
    }
    auto const& kept = record.ranked();
    REQUIRE(kept.size() == 3);
    CHECK(record.best_cost() == *std::min_element(met.begin(), met.end()));
    CHECK(record.cutoff() == kept.back().cost.total);
    for (std::size_t n = 0; n + 1 < kept.size(); ++n) {
        CHECK(kept[n].cost.total <= kept[n + 1].cost.total);
        auto const shape = [&](std::size_t i) {
            return std::pair(kept[i].plan.degrees(), kept[i].plan.micro_batch_size);
        };
        CHECK(shape(n) != shape(n + 1));
    }
}

TEST_CASE("of strategies that are run the fastest is used, and none of those that failed") {
    std::vector<ranked_strategy> ranked(4);
    for (std::size_t n = 0; n < ranked.size(); ++n) ranked[n].cost.total = seconds(static_cast<double>(n));
    auto const backwards = [](strategy const&, strategy_cost const& c) { return std::optional(seconds(9) - c.total); };
    auto const fails = [](strategy const&, strategy_cost const&) { return std::optional<seconds>(); };
    CHECK(try_strategies(ranked, 3, backwards) == 2);
    CHECK(ranked[2].measured == seconds(7));
    CHECK_FALSE(ranked[3].is_tried);
    CHECK(try_strategies(ranked, 3, fails) == 3);
    CHECK_FALSE(try_strategies(ranked, 4, fails));
    CHECK(try_strategies(ranked, 0, fails) == 0);
    ranked.clear();
    CHECK_FALSE(try_strategies(ranked, 2, fails));
}

TEST_CASE("shapes are in the order of their bounds, and no strategy beats its shape's") {
    auto const p = two_machines();
    strategy_model const model(p);
    search::budget left(search::limits{});
    auto const found = bound_shapes(model, {}, left);
    REQUIRE(found.shapes.size() == found.bounds.size());
    CHECK(found.looked_at == found.shapes.size() + found.infeasible);
    CHECK(std::is_sorted(found.bounds.begin(), found.bounds.end()));
    search::budget spent({.seconds = 0});
    auto const quick = bound_shapes(model, {}, spent);
    search::random_stream random(11);
    for (int n = 0; n < 200; ++n) {
        auto const s = random_strategy(p, random);
        auto const cost = model.cost(s);
        if (!cost.fits()) continue;
        for (auto const* each : {&found, &quick})
            for (std::size_t i = 0; i < each->shapes.size(); ++i)
                if (each->shapes[i].degrees == s.degrees() && each->shapes[i].micro_batch_size == s.micro_batch_size)
                    CHECK(each->bounds[i] <= cost.total);
    }
}

TEST_CASE("sizes of micro-batch divide the batch, and those are left out that the schedule cannot run") {
    CHECK(micro_batch_sizes(12, {}) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 12});
    CHECK(micro_batch_sizes(12, 4) == std::vector<std::int64_t>{4});
    CHECK(test::error_of([] { (void)micro_batch_sizes(12, 5); }).find("divides the batch of 12") != std::string::npos);
    oobleck_estimate const schedule; // as many micro-batches as stages at least
    CHECK(sizes_that_run({1, 2, 3, 4, 6, 12}, 12, 4, schedule) == std::vector<std::int64_t>{1, 2, 3});
    CHECK(sizes_that_run({6, 12}, 12, 4, schedule) == std::vector<std::int64_t>{12});
}

TEST_CASE("the best plan of several sizes of micro-batch has a bound over all of them") {
    auto const plan_of = [](double cost, double bound, search::status status) {
        pipeline_plan p;
        static_cast<search::outcome<>&>(p) = {status, search::limit_kind::none, bound, ""};
        if (status == search::status::limit) p.which_limit = search::limit_kind::labels;
        if (cost > 0) p.stages.push_back({0, 1, {{0}}, seconds(cost), seconds(0)});
        p.time.pipeline = seconds(cost);
        return p;
    };
    search::deadline const never;
    using search::status;
    auto const best =
        best_of_sizes({1, 2, 4}, never, [&](std::int64_t size, search::limits const& part, auto best_cost) {
            CHECK_FALSE(part.seconds);
            CHECK(best_cost == (size == 1 ? std::optional<double>() : std::optional(5.0)));
            return size == 1   ? plan_of(5, 5, status::optimal)
                   : size == 2 ? plan_of(7, 4, status::feasible)
                               : plan_of(0, 0, status::infeasible);
        });
    CHECK(best.micro_batch_size == 1);
    CHECK(best.status == status::feasible);
    CHECK(best.lower_bound == 4);
    auto const open = best_of_sizes({1, 2}, never, [&](std::int64_t size, search::limits const&, auto) {
        return size == 1 ? plan_of(5, 5, status::optimal) : plan_of(0, 3, status::limit);
    });
    CHECK(open.status == status::limit);
    CHECK(open.which_limit == search::limit_kind::labels);
    CHECK(open.lower_bound == 3);
    int asked = 0;
    auto const late =
        best_of_sizes({1, 2}, search::deadline({.seconds = 0}), [&](auto, search::limits const& part, auto) {
            ++asked;
            CHECK(part.seconds == 0);
            return plan_of(5, 5, status::optimal);
        });
    CHECK(asked == 1);
    CHECK(late.status == status::limit);
    CHECK(late.which_limit == search::limit_kind::time);
    CHECK(late.lower_bound == 0);
}
