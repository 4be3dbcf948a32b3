// SPDX-License-Identifier: BSL-1.0
// Layer assignment agrees with all cuts, with AMP's recurrence, and with itself on changed problems.
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/search/partition/partition_with_tail.hpp>

#include <support/amp_recurrence.hpp>
#include <support/random_programs.hpp>
#include <support/shrinking.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;
using cuts = std::vector<std::size_t>;
using test::infinite;

enum class numbers { whole, real };

struct sizes {
    int most_layers = 9, most_devices = 4;
    numbers kind = numbers::whole;
    bool limited = true;
};

/// Whole numbers are few and small, so that there are zeros, equals and ties.
layer_assignment_problem random_problem(random_source& random, sizes s) {
    bool const flat = random.chance(0.2);
    auto const amount = [&](int most) {
        if (s.kind == numbers::real) return random.chance(0.1) ? 0.0 : random.log_between(0.01, most);
        return flat ? 1.0 : static_cast<double>(random.between(0, most));
    };
    layer_assignment_problem p;
    int const layers = random.between(1, s.most_layers), devices = random.between(1, s.most_devices),
              types = random.between(1, 3);
    for (int t = 0; t < types; ++t) {
        auto& on = p.times.emplace_back();
        for (int l = 0; l < layers; ++l) {
            on.forward.push_back(seconds(amount(4)));
            on.backward.push_back(seconds(amount(8)));
        }
    }
    double kept = 0, saved = 0;
    for (int l = 0; l < layers; ++l) {
        p.memory.push_back({bytes(amount(9)), bytes(amount(5)), bytes(amount(3))});
        kept += p.memory.back().kept.value;
        saved += p.memory.back().saved.value;
    }
    p.micro_batches = random.between(1, 4) * (random.chance(0.5) ? devices : 1);
    bool const tight = s.limited && random.chance(0.6);
    for (int d = 0; d < devices; ++d) {
        bytes limit(infinite);
        if (tight)
            limit = bytes(std::floor((kept + saved * static_cast<double>(p.micro_batches)) * random.between(0.2, 0.9)));
        p.devices.push_back({random.below(p.times.size()), limit});
    }
    if (random.chance(0.8))
        for (int d = 0; d + 1 < devices; ++d)
            p.links.push_back({bytes_per_second(random.chance(0.5) ? 1 : 0.25), seconds(amount(2))});
    p.back_link = {bytes_per_second(0.5), seconds(1)};
    p.recompute = random.chance(0.4);
    return p;
}

using any_schedule = std::variant<one_f_one_b, gpipe, oobleck_estimate>;
any_schedule random_schedule(random_source& random, layer_assignment_problem const& p) {
    if (random.chance(0.3)) return gpipe{};
    if (random.chance(0.3) && oobleck_estimate{}.can_run(p.shape())) return oobleck_estimate{};
    one_f_one_b const interleaved{2};
    return random.chance(0.5) && interleaved.can_run(p.shape()) ? interleaved : one_f_one_b{};
}
/// Writes down once more the weight of the slowest stage and the micro-batches held.
std::size_t chunks_of(any_schedule const& s) {
    return std::holds_alternative<one_f_one_b>(s) ? std::get<one_f_one_b>(s).chunks : 1;
}
bool counts_tail(any_schedule const& s) { return std::holds_alternative<oobleck_estimate>(s); }
double weight_of(any_schedule const& s, layer_assignment_problem const& p) {
    auto const m = static_cast<double>(p.micro_batches), k = static_cast<double>(p.devices.size());
    if (counts_tail(s)) return m - k;
    return chunks_of(s) == 1 ? m - 1 : 2 * m - k - 1;
}
double in_flight(any_schedule const& s, std::size_t stage, layer_assignment_problem const& p) {
    if (std::holds_alternative<gpipe>(s)) return static_cast<double>(p.micro_batches);
    if (chunks_of(s) == 1)
        return std::min(static_cast<double>(p.micro_batches), static_cast<double>(p.devices.size() - stage));
    return static_cast<double>(one_f_one_b{2}.in_flight(stage, p.shape()));
}

double needed(any_schedule const& schedule, layer_assignment_problem const& p, std::size_t stage, std::size_t first,
              std::size_t end) {
    double sum = 0, most = 0;
    for (auto l = first; l < end; ++l) {
        auto const& m = p.memory[l];
        sum += m.kept.value + in_flight(schedule, stage, p) * (p.recompute ? m.input.value : m.saved.value);
        most = std::max(most, m.saved.value);
    }
    return sum + (p.recompute ? most : 0);
}
double limit(any_schedule const& schedule, layer_assignment_problem const& p, std::size_t stage) {
    return p.devices[stage % p.devices.size()].memory_limit.value / static_cast<double>(chunks_of(schedule));
}

/// Returns nothing if something does not fit.
std::optional<double> seconds_of(any_schedule const& schedule, layer_assignment_problem const& p, cuts const& c) {
    double sum = 0, slowest = 0, tail = 0;
    for (std::size_t s = 0; s + 1 < c.size(); ++s) {
        if (needed(schedule, p, s, c[s], c[s + 1]) > limit(schedule, p, s)) return {};
        std::size_t const device = s % p.devices.size();
        auto const& on = p.times[p.devices[device].type];
        double time = 0;
        for (auto l = c[s]; l < c[s + 1]; ++l)
            time += on.forward[l].value * (p.recompute ? 2 : 1) + on.backward[l].value;
        if (time >= slowest * (1 - 1e-14)) {
            slowest = time;
            tail = static_cast<double>(s) * time;
        }
        tail += time;
        sum += time;
        if (s == 0 || p.links.empty()) continue;
        auto const& link = device == 0 ? p.back_link : p.links[device - 1];
        sum += link.latency.value + p.memory[c[s]].input.value / link.bandwidth.value;
    }
    return sum + weight_of(schedule, p) * slowest + (counts_tail(schedule) ? tail : 0);
}

struct enumeration {
    std::optional<double> best;
    cuts first_best;
};
/// Tries all cuts in lexicographic order.
enumeration try_all(any_schedule const& schedule, layer_assignment_problem const& p) {
    enumeration found;
    std::size_t const stages = p.devices.size() * chunks_of(schedule), layers = p.layer_count();
    cuts c{0};
    auto const extend = [&](auto&& self) -> void {
        if (c.size() == stages) {
            c.push_back(layers);
            auto const t = seconds_of(schedule, p, c);
            if (t && (!found.best || *t < *found.best)) found = {t, c};
            c.pop_back();
            return;
        }
        for (std::size_t next = c.back() + 1; next + stages - c.size() <= layers; ++next) {
            c.push_back(next);
            self(self);
            c.pop_back();
        }
    };
    if (stages <= layers) extend(extend);
    return found;
}

std::string text(layer_assignment_problem const& p, any_schedule const& s) {
    std::ostringstream out;
    out << (std::holds_alternative<gpipe>(s) ? "gpipe"
            : counts_tail(s)                 ? "oobleck"
                                             : "1f1b")
        << " chunks " << chunks_of(s) << " micro-batches " << p.micro_batches << " recompute " << p.recompute << '\n';
    for (auto const& on : p.times) {
        for (std::size_t l = 0; l < on.forward.size(); ++l)
            out << on.forward[l].value << '+' << on.backward[l].value << ' ';
        out << '\n';
    }
    for (auto const& m : p.memory) out << m.kept.value << '/' << m.saved.value << '/' << m.input.value << ' ';
    for (auto const& d : p.devices) out << "\ntype " << d.type << " limit " << d.memory_limit.value;
    for (auto const& l : p.links) out << "\nlink " << l.latency.value << " + bytes / " << l.bandwidth.value;
    return out.str();
}

layer_assignment solve(any_schedule const& schedule, layer_assignment_problem const& p,
                       layer_assignment_options const& o = {}) {
    return std::visit([&](auto const& s) { return assign_layers(p, o, s); }, schedule);
}

search::partition_problem random_partition(random_source& random, std::size_t items, std::size_t parts, numbers kind) {
    search::partition_problem p;
    auto const amount = [&](int most) {
        return kind == numbers::whole ? random.between(0, most) : random.log_between(0.01, most);
    };
    auto const types = random.below(3) + 1;
    p.sizes.resize(types);
    for (auto& row : p.sizes)
        for (std::size_t i = 0; i < items; ++i) row.push_back(amount(20));
    for (std::size_t n = 0; n < parts; ++n) p.kinds.push_back(random.below(types));
    if (random.chance(0.8))
        for (std::size_t n = 0; n + 1 < parts; ++n) {
            auto& row = p.cut_costs.emplace_back();
            for (std::size_t i = 0; i < items; ++i) row.push_back(amount(60));
        }
    p.largest_weight = random.of(std::vector{0, 1, 2, 5, 31});
    return p;
}

} // namespace

TEST_CASE("layer assignment is the best of all cuts, the first of equals") {
    int infeasible = 0, limited = 0;
    bool const holds =
        test::holds_when_drawn("assign_layers finds the best of all cuts", 3000, [&](random_source& random) {
            auto const kind = random.below(4) == 3 ? numbers::real : numbers::whole;
            auto const p = random_problem(random, {.kind = kind});
            auto const schedule = random_schedule(random, p);
            RC_LOG(text(p, schedule));
            auto const all = try_all(schedule, p);
            auto const found = solve(schedule, p);
            if (!all.best) {
                RC_ASSERT(found.status == search::status::infeasible);
                RC_ASSERT(!found.cost);
                RC_ASSERT(!found.reason.empty());
                RC_ASSERT(found.shortage.has_value() == (p.devices.size() * chunks_of(schedule) <= p.layer_count()));
                ++infeasible;
                if (!found.shortage) return;
                ++limited;
                auto const& s = *found.shortage;
                RC_ASSERT(s.needed.value == doctest::Approx(needed(schedule, p, s.stage, s.first, s.end)));
                RC_ASSERT(s.limit.value == doctest::Approx(limit(schedule, p, s.stage)));
                RC_ASSERT(s.needed > s.limit);
                // With enough memory there and everything else as it is, the same shortage is never reported again.
                auto more = p;
                more.devices[more.device_of(s.stage)].memory_limit = 2 * s.needed;
                auto const again = solve(schedule, more);
                if (again.shortage)
                    RC_ASSERT((again.shortage->stage != s.stage || again.shortage->first != s.first ||
                               again.shortage->end != s.end));
                return;
            }
            RC_ASSERT(found.status == search::status::optimal);
            RC_ASSERT(found.cost);
            RC_ASSERT(found.reason.empty());
            RC_ASSERT(found.cost->total.value == doctest::Approx(*all.best).epsilon(1e-12));
            RC_ASSERT(found.lower_bound == found.cost->total);
            auto const checked = seconds_of(schedule, p, found.cuts);
            RC_ASSERT(checked);
            RC_ASSERT(*checked == doctest::Approx(*all.best).epsilon(1e-12));
            if (kind == numbers::whole && !counts_tail(schedule))
                RC_ASSERT(found.cuts == all.first_best); // sums of whole numbers are exact
            for (std::size_t s = 0; s + 1 < found.cuts.size(); ++s)
                RC_ASSERT(found.cost->memory[s].value ==
                          doctest::Approx(needed(schedule, p, s, found.cuts[s], found.cuts[s + 1])));
        });
    CHECK(holds);
    if (!holds || std::getenv("RC_PARAMS") != nullptr) return; // such cases as somebody wants to see
    MESSAGE("infeasible " << infeasible << ", of which for memory " << limited);
    CHECK(infeasible < 2000);
    CHECK(limited > 100);
}

TEST_CASE("partition agrees with AMP's recurrence") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        random_source random(seed);
        auto const items = random.below(20) + 6;
        auto const p = random_partition(random, items, random.below(6) + 1, seed % 2 ? numbers::whole : numbers::real);
        CAPTURE(seed);
        auto const found = search::partition(p);
        REQUIRE(found.cost);
        CHECK(*found.cost == doctest::Approx(test::amp_recurrence(p)).epsilon(1e-12));
    }
}

TEST_CASE("partition with a tail is the best of all cuts") {
    std::size_t most = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        random_source random(seed);
        auto const items = random.below(9) + 1, parts = random.below(4) + 1;
        auto p = random_partition(random, items, parts, seed % 3 ? numbers::whole : numbers::real);
        if (random.chance(0.3))
            for (auto& row : p.sizes)
                for (auto& x : row) x = std::floor(x / 8); // zeros and equals
        if (random.chance(0.4))
            for (std::size_t n = 0; n < parts; ++n) {
                auto& row = p.reach.emplace_back(items + 1, items);
                for (std::size_t i = 0, end = 0; i < items; ++i)
                    row[i] = end =
                        std::min(items, std::max({end, i, i + random.below(items) + (random.chance(0.9) ? 1 : 0)}));
            }
        CAPTURE(seed);
        std::optional<double> best;
        cuts c{0};
        auto const cost = [&] {
            double slowest = -1, sum = 0, tail = 0, weight = 0;
            for (std::size_t n = 0; n < parts; ++n) {
                if (!p.reach.empty() && c[n + 1] > p.reach[n][c[n]]) return infinite;
                double size = 0;
                for (auto i = c[n]; i < c[n + 1]; ++i) size += p.sizes[p.kinds[n]][i];
                if (size >= slowest * (1 - 1e-15)) {
                    slowest = size;
                    tail = 0;
                    weight = static_cast<double>(p.largest_weight) + static_cast<double>(n);
                }
                tail += size;
                sum += size + (n == 0 || p.cut_costs.empty() ? 0 : p.cut_costs[n - 1][c[n]]);
            }
            return sum + tail + weight * slowest;
        };
        auto const extend = [&](auto&& self) -> void {
            if (c.size() == parts) {
                c.push_back(items);
                if (double const x = cost(); x < infinite && (!best || x < *best)) best = x;
                c.pop_back();
                return;
            }
            for (std::size_t next = c.back() + 1; next + parts - c.size() <= items; ++next) {
                c.push_back(next);
                self(self);
                c.pop_back();
            }
        };
        if (parts <= items) extend(extend);
        auto const found = search::partition_with_tail(p);
        most = std::max(most, found.statistics.thresholds);
        CHECK(found.cost.has_value() == best.has_value());
        CHECK(found.status == (best ? search::status::optimal : search::status::infeasible));
        if (!best) continue;
        CHECK(*found.cost == doctest::Approx(*best).epsilon(1e-12));
        CHECK(found.lower_bound == *found.cost);
        c = found.cuts;
        CHECK(cost() == doctest::Approx(*best).epsilon(1e-12));
    }
    MESSAGE("most intervals " << most);
}

TEST_CASE("layer assignment to some of the devices is the best over their number") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, {.kind = seed % 2 ? numbers::whole : numbers::real});
        auto const schedule = random_schedule(random, p);
        CAPTURE(seed);
        INFO(text(p, schedule));
        std::optional<double> best;
        std::size_t count = 0;
        for (std::size_t n = 1; n <= p.devices.size(); ++n) {
            auto some = p;
            some.devices.resize(n);
            if (!std::visit([&](auto const& s) { return s.can_run(some.shape()); }, schedule)) continue;
            auto const found = solve(schedule, some);
            if (!found.cost || (best && found.cost->total.value >= *best)) continue;
            best = found.cost->total.value;
            count = n;
        }
        auto const found = std::visit([&](auto const& s) { return assign_layers_to_some(p, {}, s); }, schedule);
        CHECK(found.cost.has_value() == best.has_value());
        CHECK(found.status == (best ? search::status::optimal : search::status::infeasible));
        CHECK(found.reason.empty() == best.has_value());
        if (!best) continue;
        CHECK(found.cost->total.value == doctest::Approx(*best).epsilon(1e-12));
        CHECK(found.lower_bound.value == doctest::Approx(*best).epsilon(1e-12));
        if (seed % 2) CHECK(found.stage_count() == count * chunks_of(schedule));
    }
}

TEST_CASE("layer assignment changes as it must on scaled, lengthened and loosened problems") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        random_source random(seed);
        auto const p = random_problem(random, {.most_layers = 60, .most_devices = 9, .kind = numbers::real});
        auto const schedule = random_schedule(random, p);
        CAPTURE(seed);
        INFO(text(p, schedule));
        auto const found = solve(schedule, p);

        auto scaled = p;
        for (auto& on : scaled.times)
            for (auto* row : {&on.forward, &on.backward})
                for (auto& t : *row) t *= 2;
        scaled.links.push_back(scaled.back_link);
        for (auto& link : scaled.links) {
            link.latency *= 2;
            link.bandwidth *= 0.5;
        }
        scaled.back_link = scaled.links.back();
        if (p.links.empty()) scaled.links.clear();
        auto const twice = solve(schedule, scaled);
        CHECK(twice.cuts == found.cuts);
        if (found.cost) CHECK(twice.cost->total == 2 * found.cost->total);

        auto looser = p;
        for (auto& d : looser.devices) d.memory_limit *= random.between(1.0, 3.0);
        auto const loose = solve(schedule, looser);
        if (found.cost) {
            REQUIRE(loose.cost);
            CHECK(loose.cost->total.value <= found.cost->total.value * (1 + 1e-12));
        }

        // With a layer more, the last stage would be left with less, unless it was its only one.
        auto longer = p;
        for (auto& on : longer.times) {
            on.forward.push_back(seconds(random.between(0.0, 4.0)));
            on.backward.push_back(seconds(random.between(0.0, 4.0)));
        }
        longer.memory.push_back({bytes(1), bytes(1), bytes(0)});
        auto const more = solve(schedule, longer);
        std::size_t const stages = p.devices.size() * chunks_of(schedule);
        if (more.cost && found.cost && p.layer_count() >= stages && more.cuts[stages - 1] < p.layer_count())
            CHECK(more.cost->total.value >= found.cost->total.value * (1 - 1e-12));

        auto const below = found.cost ? solve(schedule, p, {.cutoff = found.cost->total * (1 - 1e-9)}) : found;
        CHECK(below.status == search::status::infeasible);
        auto const stopped = solve(schedule, p, {.limits = {.labels = 1}});
        if (found.cost && stopped.status == search::status::limit) {
            CHECK(stopped.lower_bound.value <= found.cost->total.value * (1 + 1e-12));
            CHECK(stopped.cost->total.value >= found.cost->total.value * (1 - 1e-12));
        }
    }
}
