// SPDX-License-Identifier: BSL-1.0
// Strategies cost what a second, plain model says; AMP's planner agrees with every strategy of small problems, and with
// itself on changed ones.
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/planner/amp.hpp>
#include <support/cases.hpp>

#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;
using machine_list = std::vector<std::size_t>;
using test::infinite;

struct limits {
    std::size_t most_devices = 4;
    bool gradients = true, inputs = true, mixed = true, tight = true;
};

strategy_problem random_problem(random_source& random, limits most) {
    strategy_problem p;
    std::size_t const layers = 2 + random.below(4);
    bool const counts = random.chance(0.5); // small whole numbers tie
    auto const amount = [&](double high) {
        return counts ? std::floor(random.between(0.0, 4.0)) : random.log_between(high / 100, high);
    };
    double all = 0;
    for (std::size_t l = 0; l < layers; ++l) {
        auto& layer = p.layers.emplace_back();
        if (most.gradients) layer.gradients = {bytes(0), bytes(amount(4))};
        if (most.inputs) layer.input = {bytes(amount(1)), bytes(amount(1))};
        layer.kept = {bytes(0), bytes(amount(4))};
        layer.saved = {bytes(amount(1)), bytes(amount(2))};
        all += layer.kept.split.value + layer.saved.whole.value + layer.saved.split.value;
    }
    std::size_t devices = 0;
    std::size_t const per = 1 + random.below(2);
    while (devices == 0 || (devices + per <= most.most_devices && random.chance(0.7))) {
        auto const link = [&](double least) {
            return network_link{bytes_per_second(random.log_between(least, 10 * least)),
                                seconds(random.chance(0.3) ? 0.1 : 0)};
        };
        bool const like_last = !p.machines.empty() && random.chance(0.4);
        p.machines.push_back(like_last ? p.machines.back()
                                       : profiled_machine{most.mixed ? random.below(2) : 0, per, link(2), link(0.3)});
        devices += per;
    }
    for (int t = 0; t < 2; ++t) {
        auto& type = p.types.emplace_back();
        type.name = "type " + std::to_string(t);
        type.memory = bytes(most.tight && random.chance(0.5) ? 1 + all * random.between(0.2, 2.0) : 1e9);
        type.launch = seconds(random.chance(0.5) ? 0 : amount(2));
        for (std::size_t degree : {1u, 2u}) {
            if (degree == 2 && random.chance(0.3)) continue;
            auto& profile = type.profiles[degree];
            profile.scale = random.between(0.5, 2.0);
            for (std::size_t l = 0; l < layers; ++l) profile.layers.emplace_back(amount(4));
        }
    }
    p.global_batch = 1 + random.between(0, 7);
    if (most.gradients && random.chance(0.4)) {
        auto& parameter = p.shared.emplace_back();
        for (std::size_t l = 0; l < layers; ++l)
            if (parameter.layers.size() < 2 || random.chance(0.3)) parameter.layers.push_back(l);
        parameter.gradients.split = p.layers[parameter.layers.front()].gradients.split;
        for (auto l : parameter.layers)
            parameter.gradients.split = std::min(parameter.gradients.split, p.layers[l].gradients.split);
    }
    return p;
}

std::string text(strategy_problem const& p) {
    std::ostringstream out;
    out << "batch " << p.global_batch << "\n";
    for (auto const& m : p.machines)
        out << "machine of " << m.devices << " type " << m.type << " inside " << m.inside.bandwidth.value << '+'
            << m.inside.latency.value << " outside " << m.outside.bandwidth.value << '+' << m.outside.latency.value
            << '\n';
    for (auto const& t : p.types) {
        out << t.name << " memory " << t.memory.value << " launch " << t.launch.value << '\n';
        for (auto const& [degree, profile] : t.profiles) {
            out << "  degree " << degree << " scale " << profile.scale << ':';
            for (auto const time : profile.layers) out << ' ' << time.value;
            out << '\n';
        }
    }
    for (auto const& l : p.layers)
        out << "gradients " << l.gradients.split.value << " kept " << l.kept.split.value << " saved "
            << l.saved.whole.value << '/' << l.saved.split.value << " input " << l.input.whole.value << '/'
            << l.input.split.value << '\n';
    for (auto const& s : p.shared) {
        out << s.gradients.split.value << " bytes of gradients shared by layers";
        for (auto l : s.layers) out << ' ' << l;
        out << '\n';
    }
    return out.str();
}

/// Returns nothing if the batch and the devices leave no degrees.
std::optional<strategy> draw(strategy_problem const& p, std::uint64_t seed) {
    search::random_stream random(seed);
    try {
        return random_strategy(p, random);
    } catch (input_error const&) { return {}; }
}

struct plain_cost {
    double time = 0;
    bool fits = true;
};

/// The machine of each device, and the bytes that each device sums.
struct plain_ring {
    machine_list machines;
    double size = 0;
};

/// Returns the latency, and the seconds of a byte, of a sum over a ring; so many rings join each machine to another
/// one.
std::pair<double, double> plain_line(strategy_problem const& p, machine_list const& machines,
                                     std::vector<double> const& crossing) {
    double bandwidth = infinite, latency = 0;
    std::set<std::size_t> const span(machines.begin(), machines.end());
    for (auto const x : span) {
        auto const& machine = p.machines[x];
        if (std::ranges::count(machines, x) > 1) {
            bandwidth = std::min(bandwidth, machine.inside.bandwidth.value);
            latency = std::max(latency, machine.inside.latency.value);
        }
        if (span.size() > 1) latency = std::max(latency, machine.outside.latency.value);
    }
    // Machines are visited in order; a link between two is as slow as either's and as busy as the busier.
    machine_list const order(span.begin(), span.end());
    for (std::size_t i = 0; order.size() > 1 && i < order.size(); ++i) {
        auto const a = order[i], b = order[(i + 1) % order.size()];
        bandwidth =
            std::min(bandwidth, std::min(p.machines[a].outside.bandwidth, p.machines[b].outside.bandwidth).value /
                                    std::max(crossing[a], crossing[b]));
    }
    double const n = static_cast<double>(machines.size());
    return {2 * (n - 1) * latency, 2 * (n - 1) / n / bandwidth};
}

double plain_all_reduce(strategy_problem const& p, std::vector<plain_ring> const& rings) {
    auto const sums = [](plain_ring const& ring) { return ring.machines.size() > 1 && ring.size > 0; };
    std::vector<double> crossing(p.machines.size());
    for (auto const& ring : rings) {
        std::set<std::size_t> const span(ring.machines.begin(), ring.machines.end());
        if (span.size() > 1 && sums(ring))
            for (auto const x : span) ++crossing[x];
    }
    double slowest = 0;
    for (auto const& ring : rings) {
        if (!sums(ring)) continue;
        auto const [latency, slope] = plain_line(p, ring.machines, crossing);
        double time = latency + slope * ring.size;
        bool const crosses = std::ranges::count(ring.machines, ring.machines.front()) != std::ssize(ring.machines);
        if (p.all_reduce && (crosses || p.machines.size() == 1)) { // as much slower as over all devices
            auto const [of_all, per_byte] = plain_line(p, p.machine_of_device(), std::vector(p.machines.size(), 1.0));
            time = 0;
            for (auto const& piece : p.all_reduce->pieces)
                time = std::max(time, piece.latency.value * (of_all > 0 ? latency / of_all : 1) +
                                          piece.slope.value * slope / per_byte * ring.size);
        }
        slowest = std::max(slowest, time);
    }
    return slowest;
}

/// Computes the cost from its definition, device by device.
plain_cost plain(strategy_problem const& p, strategy const& s) {
    machine_list machine_of;
    for (std::size_t m = 0; m < p.machines.size(); ++m)
        for (std::size_t d = 0; d < p.machines[m].devices; ++d) machine_of.push_back(m);
    auto const [stages, copies, parts] = s.degrees();
    double const m = static_cast<double>(s.micro_batch_size), passes = static_cast<double>(s.micro_batches),
                 t = static_cast<double>(parts);
    auto const device = [&](std::size_t stage, std::size_t copy, std::size_t part) {
        return s.placement.devices[(stage * copies + copy) * parts + part];
    };
    plain_cost out;
    for (std::size_t copy = 0; copy < copies; ++copy) {
        double sum = 0, pace = 0;
        for (std::size_t stage = 0; stage < stages; ++stage) {
            auto const& type = p.types[p.machines[machine_of[device(stage, copy, 0)]].type];
            double time = 0, held = 0;
            for (auto l = s.cuts[stage]; l < s.cuts[stage + 1]; ++l) {
                double const one = type.profiles.at(parts).layers[l].value, fixed = std::min(one, type.launch.value);
                time += type.profiles.at(parts).scale * (fixed + m * (one - fixed));
                held += p.layers[l].kept.split.value / t +
                        m * std::min(passes, static_cast<double>(stages - stage)) *
                            (p.layers[l].saved.whole.value + p.layers[l].saved.split.value / t);
            }
            out.fits &= held <= type.memory.value * (1 + 1e-12);
            sum += time;
            pace = std::max(pace, time);
            if (stage == 0) continue;
            double bandwidth = infinite, latency = 0;
            for (std::size_t part = 0; part < parts; ++part) {
                auto const a = machine_of[device(stage - 1, copy, part)], b = machine_of[device(stage, copy, part)];
                auto const &x = a == b ? p.machines[a].inside : p.machines[a].outside,
                           &y = a == b ? p.machines[a].inside : p.machines[b].outside;
                bandwidth = std::min({bandwidth, x.bandwidth.value, y.bandwidth.value});
                latency = std::max({latency, x.latency.value, y.latency.value});
            }
            auto const& input = p.layers[s.cuts[stage]].input;
            double const sent = latency + m * (input.whole.value + input.split.value / t) / bandwidth;
            sum += sent;
            pace = std::max(pace, sent);
        }
        out.time = std::max(out.time, (passes - 1) * pace + sum);
    }
    std::vector<plain_ring> rings;
    for (std::size_t stage = 0; stage < stages; ++stage)
        for (std::size_t part = 0; part < parts; ++part) {
            auto& ring = rings.emplace_back();
            for (std::size_t copy = 0; copy < copies; ++copy)
                ring.machines.push_back(machine_of[device(stage, copy, part)]);
            for (auto l = s.cuts[stage]; l < s.cuts[stage + 1]; ++l) ring.size += p.layers[l].gradients.split.value / t;
            for (auto const& shared : p.shared) {
                auto const here = std::ranges::count_if(
                    shared.layers, [&](auto l) { return l >= s.cuts[stage] && l < s.cuts[stage + 1]; });
                if (here > 1) ring.size -= static_cast<double>(here - 1) * shared.gradients.split.value / t;
            }
        }
    out.time += plain_all_reduce(p, rings);
    for (auto const& shared : p.shared) {
        rings.clear();
        for (std::size_t copy = 0; copy < copies; ++copy)
            for (std::size_t part = 0; part < parts; ++part) {
                auto& ring = rings.emplace_back();
                ring.size = shared.gradients.split.value / t;
                std::set<std::size_t> users;
                for (auto l : shared.layers)
                    users.insert(static_cast<std::size_t>(std::ranges::upper_bound(s.cuts, l) - s.cuts.begin()) - 1);
                for (auto stage : users) ring.machines.push_back(machine_of[device(stage, copy, part)]);
            }
        out.time += plain_all_reduce(p, rings);
    }
    return out;
}

/// Returns the least time of all strategies that fit, over every permutation of devices that keeps tensor groups on one
/// machine.
double best_of_all(strategy_problem const& p) {
    double best = infinite;
    auto const machine_of = p.machine_of_device();
    std::size_t const devices = p.device_count();
    for (auto const& grid : spread_shapes(devices, p.global_batch)) {
        auto const& d = grid.degrees;
        auto const usable = p.usable_degrees();
        if (std::ranges::find(usable, d.tensor) == usable.end() || d.pipeline > p.layer_count()) continue;
        strategy s{megatron_placement(d), grid.micro_batch_size, grid.micro_batches, {}};
        do {
            bool together = true;
            for (std::size_t i = 0; i < devices; ++i)
                together &= machine_of[s.placement.devices[i]] == machine_of[s.placement.devices[i - i % d.tensor]];
            if (!together) continue;
            std::vector<bool> chosen(p.layer_count() - 1); // a cut before layer i + 1
            std::fill(chosen.end() - static_cast<std::ptrdiff_t>(d.pipeline - 1), chosen.end(), true);
            do {
                s.cuts = {0};
                for (std::size_t i = 0; i < chosen.size(); ++i)
                    if (chosen[i]) s.cuts.push_back(i + 1);
                s.cuts.push_back(p.layer_count());
                auto const c = plain(p, s);
                if (c.fits) best = std::min(best, c.time);
            } while (std::next_permutation(chosen.begin(), chosen.end()));
        } while (std::ranges::next_permutation(s.placement.devices).found);
    }
    return best;
}

} // namespace

TEST_CASE("a strategy costs what the plain model says") {
    int full = 0, unequal = 0, sharing = 0;
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, {.most_devices = 8});
        auto const s = draw(p, seed);
        if (!s) continue;
        CAPTURE(seed);
        INFO(text(p));
        auto const cost = evaluate(p, *s);
        auto const expected = plain(p, *s);
        CHECK(cost.total.value == doctest::Approx(expected.time).epsilon(1e-12));
        CHECK(cost.fits() == expected.fits);
        full += !expected.fits;
        unequal += cost.synchronisation.value > 0 && p.machines.size() > 1;
        sharing += !p.shared.empty() && s->degrees().pipeline > 1;
    }
    CHECK(full > 200);
    CHECK(unequal > 200);
    CHECK(sharing > 200);
}

TEST_CASE("the bound is below, and what is found above, the best of all strategies") {
    int infeasible = 0, met = 0, all = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        random_source random(seed);
        auto p = random_problem(random, {});
        if (random.chance(0.3))
            p.all_reduce = {{{seconds(random.between(0.0, 1.0)), seconds_per_byte(random.log_between(0.01, 1))}}};
        CAPTURE(seed);
        INFO(text(p));
        double const best = best_of_all(p);
        auto const found = plan_amp(p);
        CHECK(found.lower_bound.value <= best * (1 + 1e-9));
        if (best == infinite) {
            ++infeasible;
            CHECK(found.record.empty());
            CHECK(!found.reason.empty());
            continue;
        }
        REQUIRE_MESSAGE(!found.record.empty(), found.reason);
        auto const& first = found.record.front();
        auto const again = plain(p, first.plan);
        CHECK(again.fits);
        CHECK(again.time == doctest::Approx(first.cost.total.value).epsilon(1e-12));
        CHECK(first.cost.total.value >= best * (1 - 1e-9));
        if (found.status == search::status::optimal) CHECK(first.cost.total.value <= best * (1 + 1e-9));
        met += first.cost.total.value <= best * (1 + 1e-9);
        ++all;
    }
    MESSAGE("best of all found in ", met, " of ", all, ", none in ", infeasible);
    CHECK(met * 10 >= all * 9);
    CHECK(infeasible > test::cases(3));
}

TEST_CASE("without gradients and boundaries on one type of device the best of all is found") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        random_source random(seed);
        auto p = random_problem(random, {.gradients = false, .inputs = false, .mixed = false});
        for (auto& m : p.machines) m.inside.latency = m.outside.latency = seconds(0);
        CAPTURE(seed);
        INFO(text(p));
        double const best = best_of_all(p);
        auto const found = plan_amp(p);
        REQUIRE(found.record.empty() == (best == infinite));
        if (best < infinite) CHECK(found.record.front().cost.total.value == doctest::Approx(best).epsilon(1e-9));
    }
}

TEST_CASE("on one copy placements are exact, whatever the types and links") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        random_source random(seed);
        auto p = random_problem(random, {.inputs = false});
        p.global_batch = 1; // leaves one copy
        p.shared.clear();
        for (auto& m : p.machines) m.inside.latency = m.outside.latency = seconds(0);
        CAPTURE(seed);
        INFO(text(p));
        double const best = best_of_all(p);
        auto const found = plan_amp(p);
        if (found.record.empty()) CHECK(best == infinite);
        else CHECK(found.record.front().cost.total.value == doctest::Approx(best).epsilon(1e-9));
    }
}

TEST_CASE("a strategy's cost changes as it must on a changed problem") {
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, {.most_devices = 8});
        auto const drawn = draw(p, seed);
        if (!drawn) continue;
        auto const& s = *drawn;
        double const before = evaluate(p, s).total.value;
        CAPTURE(seed);
        INFO(text(p));

        auto faster = p;
        auto& machine = faster.machines[random.below(faster.machines.size())];
        machine.inside.bandwidth *= 2;
        machine.outside.bandwidth *= 2;
        CHECK(evaluate(faster, s).total.value <= before * (1 + 1e-12));

        auto slower = p;
        for (auto& type : slower.types)
            for (auto& [degree, profile] : type.profiles) profile.scale *= 2;
        for (auto& m : slower.machines)
            for (auto* link : {&m.inside, &m.outside}) {
                link->bandwidth *= 0.5;
                link->latency *= 2;
            }
        CHECK(evaluate(slower, s).total.value == doctest::Approx(2 * before).epsilon(1e-12));

        // This matrix has the same links.
        auto matrix = p;
        strategy_model const model(p);
        matrix.bandwidths.assign(p.device_count(), std::vector<bytes_per_second>(p.device_count()));
        for (std::size_t a = 0; a < p.device_count(); ++a)
            for (std::size_t b = 0; b < p.device_count(); ++b)
                if (a != b) matrix.bandwidths[a][b] = model.link(a, b).bandwidth;
        CHECK(evaluate(matrix, s).total.value == doctest::Approx(before).epsilon(1e-12));
    }
}

TEST_CASE("the order of machines changes no plan's time, nor does planning again") {
    for (std::uint64_t seed = 1; seed <= test::cases(150u); ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, {.most_devices = 6});
        CAPTURE(seed);
        INFO(text(p));
        amp_options const o{.annealing = {.steps = 0}};
        auto const found = plan_amp(p, o);
        auto const time = [](amp_result const& r) {
            return r.record.empty() ? infinite : r.record.front().cost.total.value;
        };
        auto turned = p;
        std::ranges::reverse(turned.machines);
        if (p.machines.size() < 4) { // every pair of three machines is next to each other in a ring
            double const again = time(plan_amp(turned, o));
            CHECK((again == time(found) || again == doctest::Approx(time(found)).epsilon(1e-9)));
        }
        CHECK(time(plan_amp(p, o)) == time(found)); // the same every time
    }
}
