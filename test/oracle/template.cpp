// SPDX-License-Identifier: BSL-1.0
// Pipeline templates agree with all templates, with the generic searches, and with themselves on changed problems.
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_space.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/pareto_dp.hpp>

#include <support/cases.hpp>
#include <support/random_programs.hpp>
#include <support/random_templates.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;
using test::random_template_problem;
using test::text;

using any_schedule = std::variant<one_f_one_b, gpipe, oobleck_estimate>;

any_schedule random_schedule(random_source& random, template_problem const& p) {
    if (random.chance(0.2)) return gpipe{};
    oobleck_estimate const tail{random.between(0, 1)};
    auto const most = std::min(p.device_count(), p.layer_count());
    if (random.chance(0.6) && p.micro_batches + tail.more_slots >= static_cast<std::int64_t>(most)) return tail;
    return one_f_one_b{};
}

/// Writes down once more the objective and the memory.
std::optional<double> seconds_of(any_schedule const& schedule, template_problem const& p,
                                 std::vector<template_stage> const& stages) {
    bool const all_in_flight = std::holds_alternative<gpipe>(schedule);
    double sum = 0, slowest = -1, behind_it = 0;
    std::size_t k = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        auto const& [type, machine, devices, first, end] = stages[s];
        auto const g = static_cast<double>(devices);
        auto const flight =
            all_in_flight ? p.micro_batches : std::min(p.micro_batches, static_cast<std::int64_t>(stages.size() - s));
        double time = 0, bytes = 0;
        for (auto l = first; l < end; ++l) {
            auto const& on = p.types[type];
            time += (on.times.forward[l].value + on.times.backward[l].value) / g +
                    (devices > 1 ? 2 * on.all_reduce.at(devices)[l].value : 0);
            bytes += p.memory[l].kept.value + static_cast<double>(flight) * p.memory[l].saved.value;
        }
        if (bytes > g * p.types[type].memory_limit.value) return {};
        sum += time;
        if (time >= slowest * (1 - 1e-13)) {
            slowest = time;
            k = s;
            behind_it = 0;
        }
        behind_it += time;
    }
    auto const m = static_cast<double>(p.micro_batches);
    if (auto const* tail = std::get_if<oobleck_estimate>(&schedule))
        return sum +
               (m - static_cast<double>(stages.size()) + static_cast<double>(tail->more_slots) +
                static_cast<double>(k)) *
                   slowest +
               behind_it;
    return sum + (m - 1) * slowest;
}

/// Returns how a machine may be divided.
std::vector<std::vector<std::size_t>> shares(std::size_t devices, machine_split split) {
    std::vector<std::vector<std::size_t>> all{{devices}};
    auto const append = [&](auto const& front, auto const& back) {
        for (auto const& a : front)
            for (auto const& b : back) {
                all.push_back(a);
                all.back().insert(all.back().end(), b.begin(), b.end());
            }
    };
    if (split == machine_split::free) {
        for (std::size_t first = 1; first < devices; ++first)
            append(std::vector<std::vector<std::size_t>>{{first}}, shares(devices - first, split));
    } else if (devices % 2 == 0) {
        auto const half = shares(devices / 2, split);
        append(half, half);
    }
    return all;
}

std::size_t machines_of(template_problem const& p) {
    std::size_t sum = 0;
    for (auto const& t : p.types) sum += t.devices_per_machine == 0 ? 0 : t.machines;
    return sum;
}

std::optional<double> try_all(any_schedule const& schedule, template_problem const& p) {
    std::optional<double> best;
    std::vector<template_stage> stages;
    std::vector<std::size_t> left;
    for (auto const& t : p.types) left.push_back(t.devices_per_machine == 0 ? 0 : t.machines);
    auto const cut = [&](auto&& self, std::size_t s) -> void {
        auto const first = s == 0 ? 0 : stages[s - 1].end;
        if (s == stages.size()) {
            if (first != p.layer_count()) return;
            if (auto const t = seconds_of(schedule, p, stages); t && (!best || *t < *best)) best = t;
            return;
        }
        stages[s].first = first;
        for (auto end = first + 1; end <= p.layer_count(); ++end) {
            stages[s].end = end;
            self(self, s + 1);
        }
    };
    auto const order = [&](auto&& self) -> void {
        bool any = false;
        for (std::size_t t = 0; t < left.size(); ++t) {
            if (left[t] == 0) continue;
            any = true;
            --left[t];
            for (auto const& share : shares(p.types[t].devices_per_machine, p.split)) {
                for (auto g : share) stages.push_back({t, 0, g, 0, 0});
                self(self);
                stages.resize(stages.size() - share.size());
            }
            ++left[t];
        }
        bool const may_end = !any || (!stages.empty() && machines_of(p) > p.layer_count());
        if (may_end && stages.size() <= p.layer_count()) cut(cut, 0);
    };
    order(order);
    return best;
}

pipeline_template solve(any_schedule const& schedule, template_problem const& p, template_options const& o = {}) {
    return std::visit([&](auto const& s) { return plan_template(p, o, s); }, schedule);
}

/// Checks that the devices of every stage are of one machine, that those of every machine are in consecutive stages,
/// and that all are used; if there are too many machines, all of a machine or none.
void check_structure(template_problem const& p, std::vector<template_stage> const& stages) {
    std::vector<std::vector<std::size_t>> taken;
    for (auto const& t : p.types) taken.emplace_back(t.devices_per_machine == 0 ? 0 : t.machines, 0);
    std::size_t layer = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        auto const& now = stages[s];
        CHECK(now.first == layer);
        CHECK(now.end > now.first);
        layer = now.end;
        auto& used = taken.at(now.type).at(now.machine);
        if (used > 0) {
            CHECK(stages[s - 1].type == now.type);
            CHECK(stages[s - 1].machine == now.machine);
        }
        CHECK(p.may_take(now.type, used, now.devices));
        used += now.devices;
    }
    CHECK(layer == p.layer_count());
    for (std::size_t t = 0; t < taken.size(); ++t)
        for (auto const used : taken[t])
            CHECK((used == p.types[t].devices_per_machine || (used == 0 && machines_of(p) > p.layer_count())));
}

} // namespace

TEST_CASE("templates cost what the best of all templates costs, and the generic searches agree") {
    std::size_t feasible = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(6000u); ++seed) {
        random_source random(seed);
        auto const p = random_template_problem(random);
        auto const schedule = random_schedule(random, p);
        CAPTURE(seed);
        INFO(text(p));
        auto const best = try_all(schedule, p);
        auto const found = solve(schedule, p);
        feasible += best.has_value();
        CHECK(found.status == (best ? search::status::optimal : search::status::infeasible));
        CHECK(found.reason.empty() == best.has_value());
        REQUIRE(found.cost.has_value() == best.has_value());
        if (best) {
            CHECK(found.cost->total.value == doctest::Approx(*best).epsilon(1e-11));
            CHECK(found.lower_bound == found.cost->total);
            check_structure(p, found.stages);
            CHECK(*seconds_of(schedule, p, found.stages) == doctest::Approx(*best).epsilon(1e-11));
        }
        std::visit(
            [&](auto const& s) {
                stage_kinds const kinds(p);
                device_walk const walk(p);
                auto const cuts = template_cuts::all(p.layer_count(), kinds);
                template_space const space(p, kinds, walk, cuts, s);
                auto const by_levels = search::pareto_dp(space);
                auto const by_bound = search::best_first(space);
                CHECK(by_levels.cost.has_value() == best.has_value());
                CHECK(by_bound.cost.has_value() == best.has_value());
                if (!best) return;
                CHECK(template_lower_bound(p, kinds, walk, s).value <= *best * (1 + 1e-12));
                CHECK(by_levels.status == search::status::optimal);
                CHECK(*by_levels.cost == doctest::Approx(*best).epsilon(1e-11));
                CHECK(*by_bound.cost == doctest::Approx(*best).epsilon(1e-11));
                CHECK(*seconds_of(schedule, p, space.stages_of(by_levels.actions)) ==
                      doctest::Approx(*best).epsilon(1e-11));
            },
            schedule);
    }
    CHECK(feasible > test::cases(3000));
    CHECK(feasible < test::cases(6000));
}

TEST_CASE("templates change as they must on scaled, loosened, renamed and stopped problems") {
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
        random_source random(seed);
        auto const p = random_template_problem(random, {.most_layers = 24, .most_machines = 5, .most_types = 3});
        auto const schedule = random_schedule(random, p);
        CAPTURE(seed);
        INFO(text(p));
        auto const found = solve(schedule, p);

        auto twice = p;
        for (auto& t : twice.types) {
            for (auto* row : {&t.times.forward, &t.times.backward})
                for (auto& x : *row) x *= 2;
            for (auto& [group, row] : t.all_reduce)
                for (auto& x : row) x *= 2;
        }
        auto const doubled = solve(schedule, twice);
        CHECK(doubled.cost.has_value() == found.cost.has_value());

        auto loose = p;
        for (auto& t : loose.types) t.memory_limit *= 2;
        auto const looser = solve(schedule, loose);

        auto renamed = p;
        std::ranges::reverse(renamed.types);
        auto const reversed = solve(schedule, renamed);

        if (!found.cost) continue;
        CHECK(doubled.cost->total.value == doctest::Approx(2 * found.cost->total.value).epsilon(1e-12));
        CHECK(looser.cost->total.value <= found.cost->total.value * (1 + 1e-12));
        CHECK(reversed.cost->total.value == doctest::Approx(found.cost->total.value).epsilon(1e-12));

        CHECK(solve(schedule, p, {.cutoff = found.cost->total * (1 - 1e-9)}).status == search::status::infeasible);
        auto const stopped = solve(schedule, p, {.limits = {.labels = 1}});
        CHECK(stopped.lower_bound.value <= found.cost->total.value * (1 + 1e-12));
        if (stopped.cost) CHECK(stopped.cost->total.value >= found.cost->total.value * (1 - 1e-12));
        CHECK(solve(schedule, p).stages == found.stages);
    }
}
