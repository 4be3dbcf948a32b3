// SPDX-License-Identifier: BSL-1.0
// Whoever waits for a planner hears how far it is, and may stop it: it then gives what it has.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

using namespace heddle;

namespace {

program six_blocks() {
    program_builder b;
    auto h = b.input("x", {32, 64});
    for (int l = 0; l < 6; ++l) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1",
                    {h, b.parameter("block." + std::to_string(l) + ".w", {64, 64})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

/// Two types of two machines each.
cluster four_devices() {
    cluster c;
    c.name = "four";
    for (double const rate : {1e6, 2.5e6})
        c.types.push_back({"x" + std::to_string(rate),
                           bytes(1e9),
                           bytes_per_second(1e9),
                           seconds(1e-3),
                           {{element_type::float32, {flops_per_second(rate)}}}});
    c.machines = {{.type = 0, .count = 2}, {.type = 1, .count = 2}};
    c.inter = network_link{bytes_per_second(1e6), seconds(1e-3)};
    return c;
}

/// Stops once there is a plan and somebody has been told `more` times since.
struct impatience {
    int more = 0;
    std::stop_source source{};
    std::vector<planning_progress> told{};

    progress_function listener() {
        return [this](planning_progress const& now) {
            told.push_back(now);
            if (now.cost && more-- <= 0) source.request_stop();
        };
    }
};

/// The best never gets worse, and no bound is above it.
void check_told(std::vector<planning_progress> const& told, double cost) {
    CHECK(told.size() > 1);
    std::optional<double> least;
    for (auto const& now : told) {
        CAPTURE(now.phase);
        CHECK_FALSE(now.phase.empty());
        if (least) CHECK(now.cost.value() <= *least);
        if (now.cost && now.lower_bound) CHECK(*now.lower_bound <= *now.cost * (1 + 1e-9));
        least = now.cost;
    }
    if (least) CHECK(*least >= cost * (1 - 1e-9));
}

} // namespace

TEST_CASE("hap and hidup stop with a valid plan, and say that they were stopped") {
    auto const model = six_blocks();
    for (bool const overlaps : {false, true})
        for (bool const turns : {false, true})
            for (int const more : {0, 3}) {
                CAPTURE(overlaps);
                CAPTURE(turns);
                impatience waiting{more};
                hidup_options options;
                if (!turns) options.planning = {};
                options.planning.training.overlaps_gradients = overlaps && !turns;
                options.planning.limits.stop = waiting.source.get_token();
                options.planning.progress = waiting.listener();
                auto const made = turns ? plan_hidup(model, four_devices(), clp::ratio_solver{}, options)
                                        : plan_hap(model, four_devices(), clp::ratio_solver{}, options.planning);
                REQUIRE(made.exists());
                if (made.status != search::status::optimal) CHECK(made.which_limit == search::limit_kind::stopped);
                CHECK(made.lower_bound <= made.cost());
                CHECK(verify(model, made));
                check_told(waiting.told, made.cost());
                CHECK(waiting.told.size() <= static_cast<std::size_t>(more) + 40);
            }
}

TEST_CASE("a planner that is stopped before it begins returns at once") {
    impatience waiting;
    waiting.source.request_stop();
    hap_options options;
    options.limits.stop = waiting.source.get_token();
    auto const made = plan_hap(six_blocks(), four_devices(), clp::ratio_solver{}, options);
    CHECK(made.status != search::status::infeasible);
    CHECK(made.which_limit == search::limit_kind::stopped);
}

TEST_CASE("amp and ditto stop with a valid plan, and say that they were stopped") {
    auto const model = six_blocks();
    auto const layers = layers_by_name(index_program(model));
    for (bool const by_amp : {false, true}) {
        CAPTURE(by_amp);
        impatience waiting;
        amp_options amp;
        amp.record = 100;
        ditto_program_options ditto;
        amp.limits.stop = ditto.planner.limits.stop = waiting.source.get_token();
        amp.progress = ditto.planner.progress = waiting.listener();
        auto const made =
            by_amp ? plan_amp(model, layers, four_devices(), amp) : plan_ditto(model, layers, four_devices(), ditto);
        REQUIRE(made.exists());
        CHECK_NOTHROW(validate(made));
        if (made.status != search::status::optimal) CHECK(made.which_limit == search::limit_kind::stopped);
        CHECK(made.lower_bound <= made.cost() * (1 + 1e-9));
        check_told(waiting.told, made.cost());
        if (by_amp) CHECK(waiting.told.size() < 10); // of many shapes
    }
}
