// SPDX-License-Identifier: BSL-1.0
// Shows what each of HAP's reductions saves and loses, compared with the theory without it.
#include <heddle/cost/cost_model.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/theory/reductions.hpp>
#include <support/cases.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <optional>
#include <vector>

namespace {

using namespace heddle;

using sequence = std::vector<instruction>;

struct outcome {
    double cost = 0;
    std::size_t expanded = 0;
};

/// Prices actions with everything added up on two unequal devices, and searches.
std::optional<outcome> solve(indexed_program const& p, theory<sequence> const& t, bool fill_unused,
                             std::size_t label_limit = 10'000) {
    static cluster const c = [] {
        cluster made;
        made.types = {{"a",
                       bytes(1e12),
                       bytes_per_second(400),
                       seconds(0.01),
                       {{element_type::float32, {flops_per_second(900)}}}}};
        made.machines = {{0, 1, 2}};
        made.inter = network_link{bytes_per_second(500), seconds(0.02)};
        return made;
    }();
    cost_model const model(c, {{0, 2}});
    uniform_shares const shares({0.5});
    std::vector<double> costs;
    std::vector<search::property_action> actions;
    for (auto const& one : t.triples) {
        double sum = 0;
        for (auto const& i : one.action) {
            auto const cost = model.price(make_step(p, i, {}), shares);
            sum += cost.forward_transfer + cost.backward_transfer + cost.deferred + cost.refresh + cost.forward[0] +
                   cost.backward[0] + cost.update[0];
        }
        costs.push_back(sum);
        actions.push_back({one.pre, one.add, one.remove});
    }
    search::property_task const task(t.property_count, actions, t.initial, t.goal);
    search::property_space const space(task, search::additive_cost(costs), search::blind_bound{},
                                       {.fill_unused = fill_unused, .one_order = false});
    auto const result = search::best_first(space, {.limits = {.labels = label_limit}});
    if (result.status != search::status::optimal) return std::nullopt;
    return outcome{*result.cost, result.statistics.expanded};
}

theory<instruction> converting_once(indexed_program const& p, theory<instruction> const& whole) {
    return convert_once(
        whole, p.tensors.size(),
        [](instruction const& i) {
            auto const* const convert = i.as<instruction::convert>();
            return convert && convert->from != convert->to ? std::optional(convert->tensor) : std::nullopt;
        },
        [&](tensor_id t) { return p.tensors[t].is_source(); });
}

} // namespace

TEST_CASE("converting once loses a partial sum that is wanted whole and in shards") {
    program_builder b;
    auto const x = b.input("x", {8, 1024}), w = b.parameter("w", {4, 1024}), v = b.buffer("v", {64});
    auto const h = b.apply("linear", "(!b k), (!n k) -> (!b !n); 0*1", {x, w});
    auto const split = b.apply("outer", "(b n), (!m) -> (b n !m); 0*1", {h, v});
    auto const p = index_program(b.finish(b.apply("loss", "(b n !m), (!c !d) -> (); 0", {split, h})));
    property_table const properties(p);
    auto const all = make_theory(p, properties);
    constexpr std::size_t most = 300'000;
    auto const plain = solve(p, fuse_sources(as_sequences(all)), true, most),
               once = solve(p, fuse_sources(as_sequences(converting_once(p, all))), true, most);
    REQUIRE(plain);
    REQUIRE(once);
    CHECK(once->cost > plain->cost * 1.01);
}

TEST_CASE("fusing sources and filling in what is unused lose nothing; converting once is never cheaper") {
    int compared = 0, filled_fewer = 0, filled_more = 0;
    std::size_t plain_expanded = 0, filled_expanded = 0, once_expanded = 0, fused_expanded = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(72u); ++seed) {
        test::random_source random(seed);
        auto const p = index_program(test::random_program(random, {.least_operators = 2, .most_operators = 3}));
        property_table const properties(p);
        auto const whole = make_theory(p, properties);
        auto const once = converting_once(p, whole);
        auto const plain = solve(p, as_sequences(whole), false);
        auto const filled = solve(p, as_sequences(whole), true);
        auto const fused = solve(p, fuse_sources(as_sequences(whole)), true);
        auto const single = solve(p, as_sequences(once), true);
        auto const reduced = solve(p, fuse_sources(as_sequences(once)), true);
        if (!plain || !filled || !fused || !single || !reduced) continue;
        CAPTURE(seed);
        ++compared;
        CHECK(filled->cost == doctest::Approx(plain->cost).epsilon(1e-9));
        CHECK(fused->cost == doctest::Approx(plain->cost).epsilon(1e-9));
        CHECK(single->cost >= plain->cost * (1 - 1e-9));
        CHECK(reduced->cost == doctest::Approx(single->cost).epsilon(1e-9));
        plain_expanded += plain->expanded;
        filled_expanded += filled->expanded;
        filled_fewer += filled->expanded < plain->expanded;
        filled_more += filled->expanded > plain->expanded;
        once_expanded += single->expanded;
        fused_expanded += reduced->expanded;
    }
    MESSAGE(compared, " programs; expanded: ", plain_expanded, " plain, ", filled_expanded, " filled in, ",
            once_expanded, " converting once as well, ", fused_expanded, " fused as well");
    CHECK((compared >= 45 || test::sanitized));
    // Without a bound, what is filled in can mislead: in a few programs to twice as many labels.
    MESSAGE("filled in fewer in ", filled_fewer, ", more in ", filled_more);
    if (test::sanitized) return; // too few to compare
    CHECK(filled_fewer > 2 * filled_more);
    CHECK(once_expanded < filled_expanded);
    // Fusing pays if sources are not converted; otherwise each fused conversion is one more triple.
    CHECK(fused_expanded < once_expanded);
}
