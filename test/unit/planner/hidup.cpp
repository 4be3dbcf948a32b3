// SPDX-License-Identifier: BSL-1.0
// The HiDup planner: its optimum against every program and every stage, engines against each other, what it refuses.
#include <heddle/clp/all.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/synthesis/exchange_moves.hpp>
#include <heddle/synthesis/planned_prices.hpp>
#include <heddle/synthesis/stage_programs.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <support/cases.hpp>
#include <support/errors.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// Three layers of a perceptron.
program perceptron(char const* last = "(b n) -> (); 0", extent batch = 8) {
    program_builder b;
    auto h = b.input("x", {batch, 64});
    for (int l = 0; l < 3; ++l) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("w" + std::to_string(l), {64, 64})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", last, {h}));
}

cluster two(double bandwidth, double second_rate = 1e6) {
    cluster c;
    c.name = "two";
    c.types = {
        {"A", bytes(1e9), bytes_per_second(1e9), seconds(1e-3), {{element_type::float32, {flops_per_second(1e6)}}}},
        {"B",
         bytes(1e9),
         bytes_per_second(1e9),
         seconds(1e-3),
         {{element_type::float32, {flops_per_second(second_rate)}}}}};
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(bandwidth), seconds(1e-3)};
    return c;
}

/// The graph of a program of micro-batches at even ratios, and its prices.
struct searched {
    indexed_program program;
    training_options training{.micro_batches = 2};
    cut_space space;
    cost_model model;
    std::vector<step_work> steps;
    cut_graph graph;
    std::optional<priced_graph> priced;

    searched(indexed_program p, cluster const& c, std::size_t cuts = 1)
        : program(std::move(p)), space(program, operator_kinds(program), cuts), model(c, device_types(c).classes) {
        space.divide_into_stages();
        graph = search::explore(space);
        for (auto const& i : space.instructions()) steps.push_back(make_step(program, i, training));
        priced.emplace(space, graph, steps, model,
                       uniform_shares(share_vector(model.class_count(), 1.0 / model.ranks())), training);
    }
};

/// The least time over all paths, one after the other.
void least_of_all(searched const& s, program_clock<duplex> const& clock, search::graph_node at,
                  cost_label<duplex> const& label, double& least, std::size_t& paths) {
    if (paths > 300'000) return;
    if (at.level + 1 == s.graph.level_count()) {
        ++paths;
        least = std::min(least, clock.time().total(label.time));
        return;
    }
    for (auto const& edge : s.graph.out(at)) {
        auto next = label;
        clock.extend(next, at.level, edge.action);
        least_of_all(s, clock, {at.level + 1, edge.to}, next, least, paths);
    }
}

/// Two branches from one input, of one or two products or activations each, and the sum of what they end in.
program branches(test::random_source& random) {
    program_builder b;
    auto const x = b.input("x", {8, 8});
    std::vector<tensor_id> ends;
    for (int branch = 0; branch < 2; ++branch) {
        auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, b.parameter("v" + std::to_string(branch), {8, 8})},
                         {.category = operator_class::matmul});
        if (random.chance(0.5)) h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
        if (random.chance(0.5)) h = b.apply("norm", "(b !n) -> (b !n)", {h}, {.saved_results = {0}});
        ends.push_back(h);
    }
    auto const sum = b.apply("add", "(b n), (b n) -> (b n); 0 + 1", ends);
    return b.finish(b.apply("sum", "(b n) -> (); 0", {sum}));
}

/// Visits the program with its operators in every order in which they can run.
template <class Visit>
void for_each_order(indexed_program const& p, std::vector<operator_id>& order, Visit&& visit) {
    auto const is_done = [&](operator_id o) { return std::ranges::find(order, o) != order.end(); };
    if (order.size() == p.operators.size()) {
        indexed_program other = p;
        std::vector<operator_id> place(order.size());
        for (operator_id n = 0; n < order.size(); ++n) other.operators[n] = p.operators[order[n]], place[order[n]] = n;
        for (auto& t : other.tensors) {
            for (auto& o : t.consumers) o = place[o];
            std::ranges::sort(t.consumers);
        }
        visit(other);
        return;
    }
    for (operator_id o = 0; o < p.operators.size(); ++o) {
        bool can_run = !is_done(o);
        for (operator_id before = 0; before < p.operators.size(); ++before)
            for (auto t : p.operators[before].results)
                if (std::ranges::find(p.operators[o].operands, t) != p.operators[o].operands.end())
                    can_run = can_run && is_done(before);
        if (!can_run) continue;
        order.push_back(o);
        for_each_order(p, order, visit);
        order.pop_back();
    }
}

} // namespace

TEST_CASE("cuts of the graph find the fastest of all orders of operators") {
    int compared = 0, better = 0;
    for (std::uint64_t seed = 2001; seed <= 2000 + test::cases(60u); ++seed) {
        test::random_source random(seed);
        auto const p = index_program(branches(random));
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
        CAPTURE(seed);
        double least = std::numeric_limits<double>::infinity();
        std::size_t orders = 0;
        std::vector<operator_id> order;
        auto const least_of = [](searched const& s) {
            auto const found = synthesise<duplex>(*s.priced, {.engine = search_engine::pareto_dp, .search = {}});
            return found.cost.seconds;
        };
        for_each_order(p, order, [&](indexed_program const& other) {
            ++orders;
            least = std::min(least, least_of(searched(other, c)));
        });
        CHECK(orders > 1);
        ++compared;
        searched const all(p, c, 100), narrow(p, c, 1);
        REQUIRE(all.priced->has_all_orders());
        REQUIRE_FALSE(narrow.priced->has_all_orders());
        auto const found = synthesise<duplex>(*all.priced, {.engine = search_engine::pareto_dp, .search = {}});
        CHECK(found.status == search::status::optimal);
        CHECK(found.cost.seconds == doctest::Approx(least).epsilon(1e-9));
        // A plan of the given order alone claims nothing that another order would refute.
        auto const given = synthesise<duplex>(*narrow.priced, {.engine = search_engine::pareto_dp, .search = {}});
        CHECK(given.lower_bound <= least * (1 + 1e-9));
        bool const is_worse = given.cost.seconds > least * (1 + 1e-9);
        better += is_worse;
        if (is_worse) CHECK(given.status != search::status::optimal);
    }
    MESSAGE("another order than the given one is faster in " << better << " of " << compared);
    CHECK((better > 0 || test::sanitized));
}

TEST_CASE("both engines find the fastest of all programs and stages") {
    int compared = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 2, .most_operators = 3});
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
        searched const s(index_program(p), c);
        program_clock<duplex> const clock(*s.priced);
        double least = std::numeric_limits<double>::infinity();
        std::size_t paths = 0;
        least_of_all(s, clock, {}, clock.start(), least, paths);
        if (paths > 300'000) continue;
        ++compared;
        CAPTURE(seed);
        CAPTURE(paths);
        for (auto engine : {search_engine::best_first, search_engine::pareto_dp}) {
            auto const found = synthesise<duplex>(*s.priced, {.engine = engine, .search = {}});
            CHECK(found.status == search::status::optimal);
            CHECK(found.cost.seconds == doctest::Approx(least).epsilon(1e-9));
        }
        // With the other accumulator too.
        auto const best = synthesise<serial>(*s.priced, {.search = {}}),
                   by_levels = synthesise<serial>(*s.priced, {.engine = search_engine::pareto_dp, .search = {}});
        CHECK(best.cost.seconds == doctest::Approx(by_levels.cost.seconds).epsilon(1e-9));
    }
    CHECK(compared > test::cases(20));
}

TEST_CASE("a plan of micro-batches is verified, priced, simulated, and no slower than its bound") {
    auto const p = perceptron();
    for (double bandwidth : {1e4, 1e6, 1e8})
        for (double rate : {1e6, 3e6}) {
            auto const c = two(bandwidth, rate);
            auto const made = plan_hidup(p, c, clp::ratio_solver{});
            CAPTURE(bandwidth);
            CAPTURE(rate);
            REQUIRE(made.exists());
            auto const checked = verify(p, made);
            INFO(checked.problem);
            CHECK(checked);
            CHECK(made.cost() == doctest::Approx(evaluate(made, c).time.total()));
            CHECK(made.lower_bound <= made.cost() * (1 + 1e-9));
            CHECK(simulate(made, c, {.barriers = true}).total == doctest::Approx(made.cost()).epsilon(1e-9));
            CHECK(simulate(made, c).total <= made.cost() * (1 + 1e-9));
            CHECK(made.baselines.contains("whole batch"));
        }
}

TEST_CASE("more bandwidth never costs more, a longer turn never less") {
    auto const p = perceptron();
    double before = std::numeric_limits<double>::infinity();
    for (double bandwidth : {1e4, 1e5, 1e6, 1e7}) {
        auto const made =
            plan_hidup(p, two(bandwidth), clp::ratio_solver{},
                       {.planning = {.synthesis = {.engine = search_engine::pareto_dp}}, .compares = false});
        CHECK(made.status == search::status::optimal);
        CHECK(made.cost() <= before * (1 + 1e-9));
        before = made.cost();
        auto const slower =
            plan_hidup(p, two(bandwidth), clp::ratio_solver{}, {.turn = seconds(0.01), .compares = false});
        CHECK(slower.cost() >= made.cost());
    }
}

TEST_CASE("a beam that finds nothing better than what there is has ended the search") {
    int open = 0;
    for (std::uint64_t seed = 2001; seed <= 2000 + test::cases(40u); ++seed) {
        test::random_source random(seed);
        auto const p = branches(random);
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
        CAPTURE(seed);
        searched const s(index_program(p), c, 100);
        synthesis_options options{.engine = search_engine::pareto_dp, .search = {}};
        auto const best = synthesise<duplex>(*s.priced, options);
        options.beam = 1;
        options.start = best.path;
        auto const narrow = synthesise<duplex>(*s.priced, options);
        CHECK(narrow.cost.seconds == best.cost.seconds);
        CHECK(narrow.which_limit == search::limit_kind::none);
        CHECK(narrow.status != search::status::limit);
        open += narrow.status == search::status::feasible;
        // Where orders are left out, the plan says so.
        auto const made =
            plan_hidup(p, c, clp::ratio_solver{},
                       {.planning = {.synthesis = {.engine = search_engine::pareto_dp}, .cuts = 1}, .compares = false});
        bool const is_optimal = made.status == search::status::optimal;
        CHECK((is_optimal || made.status == search::status::limit));
        CHECK(made.which_limit == (is_optimal ? search::limit_kind::none : search::limit_kind::width));
    }
    CHECK((open > 0 || test::sanitized));
}

TEST_CASE("turning is in the bound, and devices of a type with unequal shares have one") {
    auto const p = perceptron("(b n) -> (); 0", 20);
    cluster one = two(1e6);
    one.machines = {{0, 1, 1}};
    auto const alone = plan_hidup(p, one, clp::ratio_solver{}, {.turn = seconds(0.5), .compares = false});
    CHECK(alone.status == search::status::optimal);
    CHECK(alone.cost() > 2);
    for (int slow : {1, 2, 3}) {
        cluster c = two(1e6, 3e6);
        c.machines = {{0, 1, slow}, {1, 1, 3}};
        CAPTURE(slow);
        auto const made = plan_hidup(p, c, clp::ratio_solver{}, {.compares = false});
        CHECK(made.lower_bound > 0.5 * made.cost());
        CHECK(made.lower_bound <= made.cost());
    }
}

TEST_CASE("a time limit is for all of a plan, and no reason to speak of memory") {
    hidup_options options;
    options.planning.limits.seconds = 1e-9;
    auto const made = plan_hidup(perceptron(), two(1e6), clp::ratio_solver{}, options);
    CHECK_FALSE(made.exists());
    CHECK(made.which_limit == search::limit_kind::time);
    CHECK(made.reason.empty());
    CHECK(made.baselines.empty()); // no time was left for these
    CHECK(std::ranges::count(made.warnings, "no time was left to plan the whole batch at once") == 1);
}

TEST_CASE("memory counts what all micro-batches save, in segments too") {
    indexed_program p;
    p.tensors.resize(3);
    for (auto& t : p.tensors) t.info = {"h", {4, 8}};
    p.tensors[1].info.role = tensor_role::parameter;
    p.tensors[2].region = 0;
    p.counted_of_regions = {0.25};
    auto const saved = [&](tensor_id t) { return saved_bytes(p, t, tensor_form::replicated(), 3).whole.value; };
    double const one = held_bytes(p.tensors[0], tensor_form::replicated()).whole.value;
    CHECK(saved(0) == 3 * one);
    CHECK(saved(1) == one);
    CHECK(saved(2) == one / 4);
}

TEST_CASE("what the parts of a batch do not add up to is refused") {
    auto const plan_of = [](program const& p, hidup_options const& options = {}) {
        return plan_hidup(p, two(1e6), clp::ratio_solver{}, options);
    };
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_of(perceptron(), {.micro_batches = 3})),
                         doctest::Contains("divide the batch of 8"), input_error);
    // Parts of one sample cannot be cut as the batch can, so forms would have other numbers.
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_of(perceptron(), {.micro_batches = 8})),
                         doctest::Contains("tensor 'x' can be cut in other ways"), input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_of(perceptron("(b n) -> (); 0", 1))),
                         doctest::Contains("no input has a batch of two or more"), input_error);
    {
        program_builder b; // a loss with a summand that has no batch
        auto const x = b.input("x", {8, 4});
        auto const w = b.parameter("w", {4});
        auto const product = b.apply("mul", "(b k), (k) -> (b k); 0*1", {x, w});
        auto const loss = b.apply("add", "(), () -> (); 0 + 1",
                                  {b.apply("sum", "(b k) -> (); 0", {product}), b.apply("decay", "(k) -> (); 0", {w})},
                                  {.name = "total"});
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_of(b.finish(loss))), doctest::Contains("'total'"), input_error);
    }
    {
        program_builder b; // not linear after the sum over the batch
        auto const product = b.apply("mul", "(b k), (k) -> (b k); 0*1", {b.input("x", {8, 4}), b.parameter("w", {4})});
        auto const sum = b.apply("sum", "(b k) -> (k); 0", {product});
        auto const root = b.apply("sqrt", "(k) -> (k)", {sum}, {.name = "root"});
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_of(b.finish(b.apply("total", "(k) -> (); 0", {root})))),
                             doctest::Contains("'root'"), input_error);
    }
}

TEST_CASE("moves are exchanged until no two in turn can be, and programs that a graph does not have are left alone") {
    search::deadline const until{search::limits{}};
    std::size_t improved = 0;
    for (double const bandwidth : {1e3, 1e4, 1e5, 1e6}) {
        CAPTURE(bandwidth);
        searched const s(index_program(micro_batch_of(perceptron(), 2)), two(bandwidth));
        program_clock<duplex> const clock(*s.priced);
        auto const cost = [&](move_list const& path) { return clock.evaluate(clock.start(), 0, path).seconds; };
        auto const worst = search::follow(
            s.graph, s.priced->shortest_under([](move_price const& m) { return -m.transfers.total() - m.work[0]; }));
        auto const better = exchange_moves<duplex>(*s.priced, worst, 100, until);
        if (!better) continue;
        ++improved;
        CHECK(cost(*better) < cost(worst));
        auto const states = search::states_along(s.graph, *better);
        double least = cost(*better);
        auto other = *better;
        for (std::size_t level = 0; level + 1 < better->size(); ++level) {
            s.graph.for_each_edge(states[level], [&](std::uint32_t through, auto one) {
                s.graph.for_each_edge({states[level].level + 1, through}, [&](std::uint32_t to, auto second) {
                    if (to != states[level + 2].position) return;
                    other[level] = one, other[level + 1] = second;
                    least = std::min(least, cost(other));
                });
            });
            other = *better;
        }
        CHECK(least >= cost(*better) * (1 - 1e-8));
        CHECK_FALSE(exchange_moves<duplex>(*s.priced, *better, 100, until));
        auto foreign = worst;
        std::swap(foreign.front(), foreign.back());
        CHECK_FALSE(exchange_moves<duplex>(*s.priced, foreign, 100, until));
    }
    CHECK(improved >= 2);
}

TEST_CASE(
    "a narrow width leaves a bound that no program undercuts, and a plan no dearer than that of the given order") {
    unsigned narrow = 0, proven = 0, ordered = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 2100);
        auto const made = branches(random);
        auto const c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
        hidup_options several{.compares = false};
        several.planning.training.micro_batches = 2;
        auto all = several.planning;
        several.planning.cuts = 2;
        several.planning.width = static_cast<std::size_t>(random.between(2, 60));
        auto one = several;
        one.planning.cuts = 1;
        auto const found = plan_hidup(made, c, clp::ratio_solver{}, several);
        auto const given = plan_hidup(made, c, clp::ratio_solver{}, one);
        if (!given.exists()) continue;
        REQUIRE(found.exists());
        CHECK(found.cost() <= given.cost() * (1 + 1e-9));
        narrow += std::ranges::any_of(found.warnings,
                                      [](auto const& w) { return w.find("width bound") != std::string::npos; });
        for (auto const& w : found.warnings)
            if (test::contains(w, "orders of the operators")) {
                ++ordered;
                CHECK(test::contains(w, "by the bound of 2 cuts"));
            }
        auto unproven = several;
        unproven.planning.proves = false;
        unproven.planning.worth_below = 0;
        for (auto const& w : plan_hidup(made, c, clp::ratio_solver{}, unproven).warnings)
            CHECK_FALSE(test::contains(w, "lower bound"));
        search::deadline const until;
        stage_programs programs(index_program(micro_batch_of(made, 2)), c, all, until);
        programs.take_all();
        planned_prices const at(programs, found);
        auto const best = synthesise<duplex>(at.priced, {.engine = search_engine::pareto_dp, .search = {}});
        REQUIRE(best.path);
        CHECK(found.lower_bound <= best.cost.seconds * (1 + 1e-9));
        // Labels do not see what gradients wait for in their buckets, so an exact search need not prove its program
        // best.
        if (best.status != search::status::optimal) continue;
        ++proven;
        CHECK(found.cost() >= best.cost.seconds * (1 - 1e-9));
    }
    CHECK((narrow > 10 || test::sanitized));
    CHECK((ordered > 5 || test::sanitized));
    CHECK((proven > 30 || test::sanitized));
}
