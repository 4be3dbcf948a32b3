// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs made to be searched against the given ones: the same costs, in whatever order operators are given;
/// and loosened ones, which bound them.
#include "support/random_plans.hpp"
#include "support/random_programs.hpp"

#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/planned_prices.hpp>
#include <heddle/synthesis/stage_programs.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/theory.hpp>
#include <heddle/theory/view_conversions.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>
#include <support/cases.hpp>
#define HEDDLE_TEST_HAS_SOLVER 1
#endif

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Branches from one input or several that end at one operator, which may sum over an index; what is computed from a
/// mask alone is used in each.
program branches(random_source& random) {
    program_builder b;
    operator_options const matmul{.category = operator_class::matmul, .saved_operands = {{0, 1}}};
    operator_options const elementwise{.category = operator_class::elementwise};
    int const count = random.between(3, 4);
    extent const rows = 4, width = 2 * random.between(1, 2);
    auto const x = b.input("x", {rows, width});
    bool const masks = random.chance(0.5);
    auto masking = b.input("mask", {rows});
    if (masks) masking = b.apply("view", "(b) -> (b)", {masking}, {.is_view = true});
    std::vector<tensor_id> ends;
    std::string rule, terms;
    bool const multiplies = random.chance(0.5);
    for (int n = 0; n < count; ++n) {
        auto const w = b.parameter("w" + std::to_string(n), {width, width});
        auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, matmul);
        if (masks) h = b.apply("mask", "(b n), (b) -> (b n); 0", {h, masking}, elementwise);
        bool const has_rows_alone = n + 1 == count && random.chance(0.5);
        if (has_rows_alone) h = b.apply("rows", "(b n) -> (b); 0", {h}, {.category = operator_class::reduction});
        ends.push_back(h);
        rule += std::string(n == 0 ? "" : ", ") + (has_rows_alone ? "(b)" : "(b n)");
        terms += (n == 0 ? "" : multiplies ? "*" : " + ") + std::to_string(n);
    }
    auto join = elementwise;
    if (multiplies) join.saved_operands = {{0, 1, 2}};
    std::string const left = random.chance(0.5) ? "b n" : random.chance(0.5) ? "b" : "n";
    auto const joined = b.apply("join", rule + " -> (" + left + "); " + terms, ends, join);
    return b.finish(b.apply("sum", "(" + left + ") -> (); 0", {joined}, {.category = operator_class::reduction}));
}

/// Blocks that add to one stream, as transformers have them. What is made early is used late: the stream itself, a
/// value beside it, a mask, weights that blocks share.
program streams(random_source& random) {
    program_builder b;
    operator_options const elementwise{.category = operator_class::elementwise};
    operator_options const matmul{.category = operator_class::matmul, .saved_operands = {{0, 1}}};
    extent const rows = random.chance(0.5) ? 2 : 4, width = 4; // of few rows factors are smaller than gradients
    auto const add = [&](tensor_id one, tensor_id other) {
        return b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {one, other}, elementwise);
    };
    auto const multiply = [&](tensor_id one, tensor_id other) {
        auto options = elementwise;
        options.saved_operands = {{0, 1}};
        return b.apply("mul", "(b n), (b n) -> (b n); 0*1", {one, other}, options);
    };
    int names = 0;
    std::vector<tensor_id> weights;
    double const anew = random.chance(0.5) ? 0.7 : 0.2;
    auto const weight = [&] {
        if (weights.empty() || random.chance(anew))
            weights.push_back(b.parameter("w" + std::to_string(++names), {width, width}));
        return random.of(weights);
    };
    auto const linear = [&](tensor_id x) {
        return b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, weight()}, matmul);
    };
    auto stream = linear(b.input("x", {rows, width}));
    auto const masking = random.chance(0.5) ? b.input("mask", {rows, width}) : b.buffer("table", {rows, width});
    auto const scale = b.parameter("scale", {width});
    std::optional<tensor_id> beside;
    if (random.chance(0.6)) beside = random.chance(0.5) ? linear(stream) : multiply(stream, masking);
    for (int block = 0, blocks = random.between(1, 3); block < blocks; ++block) {
        auto h = stream;
        if (random.chance(0.4)) {
            auto options = elementwise;
            options.category = operator_class::normalisation;
            options.saved_operands = {{0, 1}};
            h = b.apply("norm", "(b !e), (!e) -> (b !e); 1", {h, scale}, options);
        }
        auto const before = h;
        if (random.chance(0.7)) h = linear(h);
        if (random.chance(0.4)) {
            auto options = elementwise;
            options.is_view = true;
            options.extents = {{"h", 2}};
            auto const split = b.apply("view", "(b (h d)) -> (b h d); 0", {h}, options);
            options.is_view = false, options.extents = {}, options.saved_results = {0};
            auto const rows_of = b.apply("softmax", "(b h~~d) -> (b h~d)", {split}, options);
            options.is_view = true, options.saved_results = {};
            h = b.apply("view", "(b h d) -> (b (h d)); 0", {rows_of}, options);
        }
        if (random.chance(0.4)) h = multiply(h, random.chance(0.5) ? linear(before) : beside.value_or(stream));
        if (random.chance(0.3)) h = multiply(h, masking);
        stream = h == stream ? linear(h) : add(h, stream);
    }
    if (beside && random.chance(0.7)) stream = random.chance(0.5) ? add(stream, *beside) : multiply(stream, *beside);
    return b.finish(b.apply("sum", "(b n) -> (); 0", {stream}, {.category = operator_class::reduction}));
}

/// The order of an indexed program's operators, at random.
indexed_program in_random_order(indexed_program const& p, random_source& random) {
    std::vector<bool> is_made(p.tensors.size()), is_done(p.operators.size());
    for (tensor_id t = 0; t < p.tensors.size(); ++t) is_made[t] = p.tensors[t].is_source();
    std::vector<operator_id> order;
    while (order.size() < p.operators.size()) {
        std::vector<operator_id> ready;
        for (operator_id o = 0; o < p.operators.size(); ++o)
            if (!is_done[o] && std::ranges::all_of(p.operators[o].operands, [&](auto t) { return is_made[t]; }))
                ready.push_back(o);
        auto const o = ready[static_cast<std::size_t>(random.between(0, static_cast<int>(ready.size()) - 1))];
        order.push_back(o);
        is_done[o] = true;
        for (auto t : p.operators[o].results) is_made[t] = true;
    }
    return in_order(p, order);
}

double sum_of(move_price const& m) {
    double sum = m.transfers.total();
    for (double v : m.work) sum += v;
    for (double v : m.backward_work) sum += v;
    for (double v : m.update) sum += v;
    return sum;
}

/// The least sum of costs of a program as it is given, at whole shares.
double least_sum(indexed_program const& p, stage_programs const& programs, ratio_table const& ratios,
                 instruction_filter const& allowed = instruction_filter::everything()) {
    cut_space space(p, operator_kinds(p));
    space.restrict_to(allowed);
    auto const graph = search::explore(space);
    std::vector<step_work> steps;
    for (auto const& i : space.instructions()) {
        auto const* const read = i.as<instruction::read>();
        bool const is_free = read && p.tensors[read->tensor].at_cuts == tensor_at_cuts::free;
        steps.push_back(is_free ? step_work{} : make_step(p, i, {}));
    }
    largest_shares const shares(integral_shares(p, programs.types().per_device(ratios)), programs.types().of_device);
    priced_graph const priced(space, graph, steps, programs.model(), shares);
    return priced.shortest_under(sum_of).to_goal();
}

struct made_program {
    program made;
    indexed_program indexed;
};
made_program random_case(random_source& random, int most_operators = 6) {
    auto made =
        random.chance(0.5) ? branches(random) : test::random_program(random, {.most_operators = most_operators});
    auto indexed = index_program(made);
    return {std::move(made), std::move(indexed)};
}

} // namespace

TEST_CASE("a searched program has programs that cost what those of the given one do") {
    int divided = 0, free = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        random_source random(seed + 810000);
        auto const [made, p] = random_case(random);
        auto const c = test::random_cluster(random);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        planning_options options;
        search::deadline const until;
        stage_programs programs(p, c, options, until);
        programs.take_all();
        auto const ratios = programs.even_ratios();
        auto const& searched = programs.program();
        bool const has_free =
            std::ranges::any_of(searched.tensors, [](auto const& t) { return t.at_cuts == tensor_at_cuts::free; });
        divided += searched.tensors.size() > p.tensors.size();
        free += has_free;
        REQUIRE(programs.is_complete());
        for (operator_id o = 0; o < p.operators.size(); ++o) { // each way to compute an operator, on its own
            auto const all = computations(p, o);
            auto const way = random.of(all);
            instruction_filter const by_way = [&](instruction const& i) {
                auto const* const compute = i.as<instruction::compute>();
                return !compute || compute->op != o || *compute == way;
            };
            auto const graph = programs.explore_given(by_way);
            double const least = programs.price(graph, programs.model(), ratios).shortest_under(sum_of).to_goal();
            double const given = least_sum(p, programs, ratios, by_way);
            CHECK((least <= given || least <= given * (1 + 1e-9)));
            if (!has_free) CHECK((least == given || least == doctest::Approx(given).epsilon(1e-9)));
        }
        programs.take_again();
        auto const priced = programs.price(ratios);
        double const given = least_sum(p, programs, ratios);
        auto const paths = priced.shortest_under(sum_of);
        CHECK(paths.to_goal() <= given * (1 + 1e-9));
        if (!has_free) CHECK(paths.to_goal() == doctest::Approx(given).epsilon(1e-9));
        auto const plan = programs.realise(search::follow(programs.graph(), paths), ratios).first;
        auto const checked = verify(p, plan);
        CHECK_MESSAGE(checked.valid, checked.problem);
    }
    MESSAGE("divided " << divided << ", with free tensors " << free);
    CHECK(divided > test::cases(60));
    CHECK(free > test::cases(20));
}

namespace {

/// Values of one shape, each product with a weight of its own.
class square_layers {
public:
    tensor_id input() { return linear(builder_.input("x", {8, 8})); }
    tensor_id linear(tensor_id x) {
        auto const weight = builder_.parameter("w" + std::to_string(++weights_), {8, 8});
        return builder_.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, weight},
                              {.category = operator_class::matmul, .saved_operands = {{0, 1}}});
    }
    tensor_id add(tensor_id one, tensor_id other) {
        return builder_.apply("add", "(b n), (b n) -> (b n); 0 + 1", {one, other}, elementwise_);
    }
    program finish(tensor_id x) { return builder_.finish(builder_.apply("sum", "(b n) -> (); 0", {x}, elementwise_)); }

private:
    program_builder builder_;
    operator_options elementwise_{.category = operator_class::elementwise};
    int weights_ = 0;
};

/// Two blocks in which a sum gives up both of its operands, one of which is restored by a projection alone: in the
/// first block the first of them, in the second the other.
program crossing() {
    square_layers of;
    auto h = of.input();
    for (bool const is_other : {false, true}) {
        auto const one = of.linear(h), other = of.linear(h);
        auto const product = of.linear(of.add(one, other));
        auto const sum = of.add(product, of.linear(is_other ? other : one));
        h = of.add(sum, is_other ? one : other);
    }
    return of.finish(h);
}

/// Layers whose values are projected alone, the last one first, and added to what is made of the last.
program ladder(int layers) {
    square_layers of;
    std::vector<tensor_id> made{of.input()};
    for (int n = 0; n < layers; ++n) made.push_back(of.linear(made.back()));
    auto h = made.back();
    for (int n = layers; n-- > 0;) {
        auto const product = of.linear(h);
        h = of.add(product, of.linear(made[static_cast<std::size_t>(n)]));
    }
    return of.finish(h);
}

} // namespace

TEST_CASE("tokens leave cuts narrow, and are of one tensor at a cut") {
    auto const p = index_program(ladder(14));
    auto const allowed = converting_before_views(p, instruction_filter::everything());
    for (std::size_t const most : {100u, 200u, 2500u}) {
        CAPTURE(most);
        loosened_space without(p), with(p, tokens::of_whole_copies);
        search::deadline const until;
        bool const is_narrow = loosen_until_narrow(without, allowed, most, false, until);
        CHECK(loosen_until_narrow(with, allowed, most, false, until) == is_narrow);
        for (std::size_t level = 0; level < p.operators.size(); ++level)
            CHECK(algorithm::count_if(with.program.restorations(), [&](restoration const& r) {
                      return r.has_token && r.giver < level && level <= r.restorer;
                  }) <= 1);
    }
}

TEST_CASE("operators of one kind give up tensors of which others have tokens") {
    auto const p = index_program(crossing());
    loosened_program loose(p, tokens::of_whole_copies);
    for (operator_id o = 3; o < p.operators.size(); ++o) // once two products are added up, and before another
        if (p.operators[o].kind == "linear" && p.operators[o - 1].kind == "add" &&
            p.operators[o - 2].kind == "linear" && p.operators[o - 3].kind == "linear")
            for (int n = 0; n < 2; ++n) static_cast<void>(loose.loosen_at(o));
    CHECK(algorithm::count_if(loose.restorations(), [](auto const& r) { return r.has_token; }) == 2);
    auto const steps = [&](std::vector<operator_id> kinds) { // from a state to a state, by level
        cut_space space(loose.program(), std::move(kinds));
        space.restore(loose.restorations());
        std::set<std::tuple<std::size_t, held_codes, held_codes>> met;
        std::set<held_codes> here{space.initial().held};
        for (std::size_t level = 0; level + 1 < space.level_count(); ++level) {
            std::set<held_codes> next;
            for (auto const& from : here)
                space.for_each_successor(level, {from, 0}, [&](std::uint32_t, cut_state const& to) {
                    met.insert({level, from, to.held});
                    next.insert(to.held);
                });
            here = std::move(next);
        }
        return met;
    };
    CHECK(steps(loose.kinds()) == steps({}));
}

TEST_CASE("a program that was loosened step by step has the programs that it has when explored at once") {
    int loosened = 0, in_part = 0, told = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(80u); ++seed) {
        random_source random(seed + 870000);
        auto const made = random.chance(0.75) ? streams(random) : random_case(random, 9).made;
        auto const p = index_program(made);
        CAPTURE(seed);
        INFO(test::describe(made));
        auto const allowed = converting_before_views(p, instruction_filter::everything());
        auto const most = static_cast<std::size_t>(random.between(4, 60));
        bool const in_stages = random.chance(0.3);
        loosened_space narrow(p, seed % 2 == 0 ? tokens::of_whole_copies : tokens::none);
        search::deadline const until;
        bool const is_narrow = loosen_until_narrow(narrow, allowed, most, in_stages, until);
        auto const& loose = narrow.program;
        if (!is_narrow || loose.loosened().empty()) continue;
        ++loosened;
        auto const here = operator_kinds(loose.program()), given = operator_kinds(p), kinds = loose.kinds();
        for (operator_id o = 0; o < p.operators.size(); ++o) // restrictions tell the given kinds apart
            for (operator_id other = 0; other < o; ++other)
                CHECK((kinds[o] == kinds[other]) == (here[o] == here[other] && given[o] == given[other]));
        cut_space space(loose.program(), loose.kinds());
        if (in_stages) space.divide_into_stages();
        space.bound_what_is_left_out();
        space.restore(loose.restorations());
        space.restrict_to(loose.as_loosened(allowed));
        auto const graph = search::explore(space);
        CHECK(graph.is_complete);
        CHECK(graph.first_of_level == narrow.graph.first_of_level);
        CHECK(graph.segment_of_level == narrow.graph.segment_of_level);
        CHECK(graph.actions == narrow.graph.actions);
        CHECK(graph.first_action == narrow.graph.first_action);
        CHECK(graph.segments == narrow.graph.segments);
        CHECK(space.instructions() == narrow.space->instructions());
        CHECK(space.moves() == narrow.space->moves());
        // As many states as where no two operators are of one kind.
        cut_space each(loose.program());
        if (in_stages) each.divide_into_stages();
        each.bound_what_is_left_out();
        each.restore(loose.restorations());
        each.restrict_to(loose.as_loosened(allowed));
        CHECK(search::explore(each).first_of_level == graph.first_of_level);
        in_part += loose.loosened().size() > 1;
        told += algorithm::any_of(loose.restorations(), [](auto const& r) { return r.has_token; });
    }
    MESSAGE("loosened " << loosened << ", several tensors " << in_part << ", with tokens " << told);
    CHECK(loosened > test::cases(20));
    CHECK(in_part > 0);
    CHECK(told > 0);
}

TEST_CASE("a loosened program costs no more than the given one, whatever the potentials of its links") {
    int loosened = 0, restored_twice = 0, late_parameters = 0, at_one_cut = 0, told = 0, told_more = 0, restricted = 0,
        raised = 0, exact = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(80u); ++seed) {
        random_source random(seed + 840000);
        auto const made = random.chance(0.75) ? streams(random) : random_case(random, 9).made;
        auto const p = index_program(made);
        auto const c = test::random_cluster(random, {.most_types = random.chance(0.7) ? 1 : 3});
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        planning_options const options;
        search::deadline const until;
        stage_programs const programs(p, c, options, until);
        auto const ratios = programs.even_ratios().front();
        loosened_program loose(p, seed % 2 == 0 ? tokens::of_whole_copies : tokens::none);
        for (int n = 0, count = random.between(1, 8); n < count; ++n) {
            auto const level = static_cast<std::size_t>(random.between(1, static_cast<int>(p.operators.size())));
            for (int times = random.chance(0.3) ? 3 : 1; times > 0 && loose.loosen_at(level); --times) {}
        }
        if (loose.loosened().empty()) continue;
        ++loosened;
        for (auto t : loose.loosened()) {
            restored_twice += loose.is_late(t);
            late_parameters += p.tensors[loose.of(t)].is_parameter();
            at_one_cut += loose.program().tensors[t].consumers.empty();
        }
        for (operator_id o = 0; o < p.operators.size(); ++o)
            CHECK(computations(loose.program(), o) == computations(p, o));
        // Programs of some computations alone, mostly those of a few good ones.
        cut_space all(p, operator_kinds(p));
        auto allowed = instruction_filter::everything();
        if (random.chance(0.5)) {
            auto const first = search::explore(all);
            std::set<std::uint32_t> useful;
            for (int n = 0, count = random.between(1, 6); n < count; ++n) {
                std::vector<double> price;
                auto const cost = [&](cut_space::action a) {
                    while (price.size() <= a) price.push_back(random.between(0.5, 1.0));
                    return price[a];
                };
                for (auto a : search::follow(first, search::paths_to_goal(first, cost)))
                    for (auto i : all.moves()[a].instructions) useful.insert(i);
            }
            std::map<operator_id, std::vector<std::pair<form_list, form_list>>> computed;
            for (auto i : useful)
                if (auto const* compute = all.instructions()[i].as<instruction::compute>())
                    computed[all.kind(compute->op)].push_back({compute->operands, compute->results});
            auto const kinds = operator_kinds(p);
            allowed.allows = [computed, kinds](instruction const& i) {
                auto const* const compute = i.as<instruction::compute>();
                if (!compute) return true;
                auto const found = computed.find(kinds[compute->op]);
                return found != computed.end() &&
                       algorithm::find(found->second, std::pair(compute->operands, compute->results)) !=
                           found->second.end();
            };
            ++restricted;
        }
        auto const filter = converting_before_views(p, allowed);
        all.restrict_to(filter);
        cut_space space(loose.program(), loose.kinds());
        space.restore(loose.restorations());
        space.restrict_to(loose.as_loosened(filter));
        auto const all_programs = search::explore(all);
        auto const graph = search::explore(space, 1000);
        if (!graph.is_complete) continue; // it takes too long
        auto const steps_of = [&](cut_space const& of) {
            std::vector<step_work> steps;
            for (auto i : of.instructions()) {
                auto* const change = i.change();
                bool const is_free = change && loose.is_free(change->tensor);
                if (change) change->tensor = loose.of(change->tensor);
                steps.push_back(is_free ? step_work{} : make_step(p, i, {}));
            }
            return steps;
        };
        auto const steps = steps_of(space);
        loose_links const links(loose, space);
        priced_graph const priced(space, graph, steps, programs.model(), uniform_shares(ratios), {}, {}, &links);
        auto const classes = programs.model().class_count();
        multipliers weights{{test::random_ratios(classes, random)}, std::vector<double>(classes, 0.0)};
        std::vector<step_work> all_steps;
        for (auto const& i : all.instructions()) all_steps.push_back(make_step(p, i, {}));
        double const given =
            relax(priced_graph(all, all_programs, all_steps, programs.model(), uniform_shares(ratios)), weights)
                .bound();
        if (!std::isfinite(given)) continue;
        auto const unlinked = relax(priced, weights);
        CHECK(unlinked.bound() <= given * (1 + 1e-9));
        if (loose.drop_tokens()) {
            cut_space untold(loose.program(), loose.kinds());
            untold.restore(loose.restorations());
            untold.restrict_to(loose.as_loosened(filter));
            auto const programs_untold = search::explore(untold);
            auto const prices = steps_of(untold);
            double const bound =
                relax(priced_graph(untold, programs_untold, prices, programs.model(), uniform_shares(ratios)), weights)
                    .bound();
            CHECK(bound <= unlinked.bound() * (1 + 1e-9));
            ++told;
            told_more += bound < unlinked.bound() * (1 - 1e-6);
        }
        std::vector<double> potentials;
        for (int n = 0; n < 3; ++n) {
            potentials.clear();
            for (std::size_t s = 0; s < links.sides().size(); ++s)
                potentials.push_back(random.between(-0.3, 0.3) * given);
            weights.links = links.at(potentials).of_side;
            CHECK(relax(priced, weights).bound() <= given * (1 + 1e-9));
        }
        if (classes > 1) continue; // weights of clocks would be moved
        known_potentials known;
        auto const linked = improve_links(priced, links, unlinked, known, given, 40, until).best;
        CHECK(linked.bound() >= unlinked.bound() * (1 - 1e-9));
        CHECK(linked.bound() <= given * (1 + 1e-9));
        raised += linked.bound() > unlinked.bound() * (1 + 1e-6);
        exact += linked.bound() > given * (1 - 1e-6);
    }
    MESSAGE("loosened " << loosened << ", again " << restored_twice << ", parameters " << late_parameters
                        << ", at one cut " << at_one_cut << ", with tokens " << told << ", which raise " << told_more
                        << ", restricted " << restricted << ", raised " << raised << ", exact " << exact);
    CHECK(loosened > test::cases(30));
    CHECK(restored_twice > 0);
    CHECK(told > test::cases(5));
    CHECK(told_more > 0);
    CHECK(late_parameters > 0);
    CHECK(at_one_cut > 0);
    CHECK(raised > 0);
    CHECK(exact > 0);
}

#ifdef HEDDLE_TEST_HAS_SOLVER

TEST_CASE("a plan does not depend on the order in which operators are given") {
    int optimal = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(100u); ++seed) {
        random_source random(seed + 820000);
        auto const [made, p] = random_case(random);
        auto const c = test::random_cluster(random);
        auto const other = in_random_order(p, random);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        auto const plan_of = [&](indexed_program const& indexed) {
            return detail::plan_hap([&](auto const&) { return indexed; }, c, ratio_balancer(solver), {});
        };
        auto const a = plan_of(p), b = plan_of(other);
        REQUIRE(a.exists());
        REQUIRE(b.exists());
        CHECK(a.cost() == doctest::Approx(b.cost()).epsilon(1e-9));
        for (auto const* both : {&p, &other}) {
            auto const checked = verify(*both, both == &p ? a : b);
            CHECK_MESSAGE(checked.valid, checked.problem);
        }
        optimal += a.status == search::status::optimal;
    }
    MESSAGE("optimal " << optimal);
}

TEST_CASE("a bound counts what constants cost") {
    program_builder b;
    auto mask = b.buffer("mask", {64, 64});
    for (int n = 0; n < 5; ++n) mask = b.apply("relu", "(b k) -> (b k)", {mask});
    auto const x = b.input("x", {1 << 20, 64}), w = b.parameter("w", {64, 64});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
    auto const masked = b.apply("mm", "(b k), (k n) -> (b n); 0*1", {y, mask});
    auto const made = b.finish(b.apply("sum", "(b n) -> (); 0", {masked}));
    constexpr double kernel = 1e-3;
    cluster c;
    c.types = {{"gpu",
                bytes(64e9),
                bytes_per_second(800e9),
                seconds(kernel),
                {{element_type::float32, {flops_per_second(12e12)}}}}};
    c.machines = {{.type = 0}, {.type = 0}};
    c.inter = {bytes_per_second(10e9), seconds(1e-5)};
    clp::ratio_solver solver;
    hap_options options;
    for (bool const overlaps : {false, true}) {
        options.training.overlaps_gradients = overlaps;
        auto const found = plan_hap(made, c, solver, options);
        REQUIRE(found.exists());
        CHECK(std::ranges::count_if(
                  found.steps, [](auto const& s) { return s.instruction.template is<instruction::compute>(); }) == 8);
        CHECK(found.lower_bound > found.cost() - kernel);
        CHECK(found.lower_bound <= found.cost() * (1 + 1e-9));
    }
}

TEST_CASE("a narrow width leaves a bound that no program undercuts") {
    int bounded = 0;
    std::vector<std::uint64_t> seeds{100108, 100349, 101173}; // where prices of links once outlived their programs
    for (std::uint64_t seed = 1; seed <= test::cases(40u); ++seed) seeds.push_back(seed);
    for (auto const seed : seeds) {
        random_source random(seed + 830000);
        auto const made = random.chance(0.75) ? streams(random) : random_case(random).made;
        auto const p = index_program(made);
        auto const memory = random.chance(0.3) ? test::memory_kind::tight : test::memory_kind::loose;
        auto const c = test::random_cluster(random, {.memory = memory});
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(c));
        clp::ratio_solver solver;
        hap_options options;
        options.training.overlaps_gradients = random.chance(0.5);
        auto narrow = options;
        narrow.width =
            static_cast<std::size_t>(random.chance(0.5) ? random.between(2, 100) : random.between(100, 1000));
        auto const found = plan_hap(made, c, solver, options), other = plan_hap(made, c, solver, narrow);
        CHECK((found.exists() || memory == test::memory_kind::tight));
        if (!found.exists()) continue;
        if (!other.exists()) continue;
        CHECK(other.lower_bound > 0);
        bounded += std::ranges::any_of(
            other.warnings, [](auto const& text) { return text.find("holds for them too") != std::string::npos; });
        auto const checked = verify(p, other);
        CHECK_MESSAGE(checked.valid, checked.problem);
        CHECK(other.lower_bound <= other.cost() * (1 + 1e-9));
        if (other.global_lower_bound) CHECK(*other.global_lower_bound <= found.cost() * (1 + 1e-9));
        // At the shares of the narrow plan.
        search::deadline const until;
        stage_programs programs(p, c, options, until);
        programs.take_all();
        planned_prices const at(programs, other);
        auto const best = options.training.overlaps_gradients ? synthesise<overlapped>(at.priced, {})
                                                              : synthesise<serial>(at.priced, {});
        if (best.path) CHECK(other.lower_bound <= best.cost.seconds * (1 + 1e-9));
    }
    MESSAGE("bounded " << bounded);
    CHECK((bounded > 5 || test::sanitized));
}

#endif
