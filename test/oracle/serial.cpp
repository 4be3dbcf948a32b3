// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The totals of `serial` and `overlapped` are those of an event-by-event run, and their dominance holds for
/// continuations, random and constructed.
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/cost/timeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace {

using namespace heddle;
using test::random_source;

/// Costs are small whole numbers, so that sums are exact.
step_cost random_step(random_source& random, std::size_t classes, int most = 9) {
    step_cost s;
    auto const number = [&](double chance) {
        return random.chance(chance) ? static_cast<double>(random.between(1, most)) : 0.0;
    };
    s.forward_transfer = number(0.3);
    s.backward_transfer = number(0.3);
    s.deferred = number(0.3);
    s.refresh = number(0.2);
    double const f = random.unit(), b = random.unit(), u = random.unit();
    for (std::size_t k = 0; k < classes; ++k) {
        s.forward.push_back(number(f));
        s.backward.push_back(number(b));
        s.update.push_back(number(u));
    }
    return s;
}

std::vector<step_cost> random_steps(random_source& random, std::size_t classes, int least, int most) {
    std::vector<step_cost> steps;
    for (int n = random.between(least, most); n-- > 0;) steps.push_back(random_step(random, classes));
    return steps;
}

/// Returns the seconds of a list of steps by the definition: one clock per class, forward, adjoints in reverse,
/// deferred collectives, or those beside the adjoints, update, refreshes.
double seconds_of(std::vector<step_cost> const& steps, std::size_t classes, bool overlaps_gradients) {
    std::vector<double> clock(classes);
    auto const collective = [&](double time) {
        if (time > 0) clock.assign(classes, std::ranges::max(clock) + time);
    };
    double deferred = 0, refresh = 0;
    std::vector<std::pair<double, double>> gradients, transfers; // ready, for; from, to
    for (auto const& s : steps) {
        collective(s.forward_transfer);
        for (std::size_t k = 0; k < classes; ++k) clock[k] += s.forward[k];
    }
    for (auto s = steps.rbegin(); s != steps.rend(); ++s) {
        for (std::size_t k = 0; k < classes; ++k) clock[k] += s->backward[k];
        if (double const start = std::ranges::max(clock); s->backward_transfer > 0)
            transfers.push_back({start, start + s->backward_transfer});
        collective(s->backward_transfer);
        deferred += s->deferred;
        if (s->deferred > 0) gradients.push_back({std::ranges::max(clock), s->deferred});
        refresh += s->refresh;
    }
    double update = 0;
    for (std::size_t k = 0; k < classes; ++k) {
        double mine = 0;
        for (auto const& s : steps) mine += s.update[k];
        update = std::max(update, mine);
    }
    double const last = std::ranges::max(clock);
    // Between two moments at which anything starts, ends or becomes ready, the network carries a collective of the
    // pass, or else gradients.
    std::vector<double> moments;
    for (auto const& t : transfers) moments.insert(moments.end(), {t.first, t.second});
    for (auto const& g : gradients) moments.push_back(g.first);
    std::ranges::sort(moments);
    moments.push_back(std::numeric_limits<double>::infinity());
    double channel = 0;
    std::size_t first = 0;
    for (std::size_t m = 0; m + 1 < moments.size(); ++m) {
        double now = moments[m];
        if (std::ranges::any_of(transfers, [now](auto const& t) { return t.first <= now && now < t.second; })) continue;
        while (first < gradients.size() && gradients[first].first <= moments[m] && now < moments[m + 1]) {
            double const part = std::min(gradients[first].second, moments[m + 1] - now);
            channel = now += part;
            if ((gradients[first].second -= part) <= 0) ++first;
        }
    }
    return (overlaps_gradients ? std::max(last, channel) : last + deferred) + update + refresh;
}
double serial_seconds(std::vector<step_cost> const& steps, std::size_t classes) {
    return seconds_of(steps, classes, false);
}

std::vector<step_cost> joined(std::vector<step_cost> before, std::vector<step_cost> const& after) {
    before.insert(before.end(), after.begin(), after.end());
    return before;
}
double total(std::vector<step_cost> const& before, std::vector<step_cost> const& after, std::size_t classes) {
    return serial_seconds(joined(before, after), classes);
}

template <class Accumulator>
auto label_of(Accumulator const& clock, std::vector<step_cost> const& steps) {
    auto l = clock.initial();
    for (auto const& s : steps) clock.extend(l, s);
    return l;
}

std::string text(std::vector<step_cost> const& steps) {
    std::ostringstream out;
    for (auto const& s : steps) {
        out << "  transfers " << s.forward_transfer << ' ' << s.backward_transfer << ' ' << s.deferred << ' '
            << s.refresh;
        auto const write = [&](char const* what, per_class const& values) {
            out << ", " << what;
            for (double v : values) out << ' ' << v;
        };
        write("forward", s.forward);
        write("backward", s.backward);
        write("update", s.update);
        out << '\n';
    }
    return out.str();
}

/// Makes the step that tells most against `a`: work that lets the class in which `a` is furthest behind `b` decide each
/// direction's open clock, and the update; then barriers in both directions.
std::vector<step_cost> worst_continuation(serial::label const& a, serial::label const& b, std::size_t classes) {
    auto const behind = [](per_class const& x, per_class const& y) {
        std::size_t worst = 0;
        for (std::size_t k = 1; k < x.size(); ++k)
            if (x[k] - y[k] > x[worst] - y[worst]) worst = k;
        return worst;
    };
    constexpr double much = 1e6;
    per_class const none(classes, 0.0);
    step_cost work{0, 0, 0, none, none, none, {}}, barriers{1, 1, 0, none, none, none, {}};
    work.forward[behind(a.forward, b.forward)] = much;
    work.backward[behind(a.backward, b.backward)] = much;
    work.update[behind(a.update, b.update)] = much;
    return {work, barriers};
}

} // namespace

TEST_CASE("the total of a label is the time of its steps") {
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        random_source random(seed);
        auto const classes = static_cast<std::size_t>(random.between(1, 4));
        auto const steps = random_steps(random, classes, 0, 8);
        serial const clock(classes);
        CAPTURE(seed);
        INFO(text(steps));
        CHECK(clock.total(label_of(clock, steps)) == serial_seconds(steps, classes));
    }
}

TEST_CASE("dominance holds exactly when no continuation is cheaper after the dominated label") {
    int dominates = 0, does_not = 0;
    for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
        random_source random(seed + 10000);
        auto const classes = static_cast<std::size_t>(random.between(1, 4));
        auto const common = random_steps(random, classes, 0, 2);
        auto first = common, second = common;
        for (auto& s : random_steps(random, classes, 0, 2)) first.push_back(s);
        for (auto& s : random_steps(random, classes, 0, 3)) second.push_back(s);
        serial const clock(classes);
        auto const a = label_of(clock, first), b = label_of(clock, second);
        CAPTURE(seed);
        INFO("first\n" << text(first) << "second\n" << text(second));
        if (clock.dominates(a, b)) {
            ++dominates;
            CHECK(clock.total(a) <= clock.total(b));
            for (int n = 0; n < 20; ++n) {
                auto const rest = random_steps(random, classes, 0, 4);
                INFO("continuation\n" << text(rest));
                CHECK(total(first, rest, classes) <= total(second, rest, classes));
                // Extensions preserve dominance.
                CHECK(clock.dominates(label_of(clock, joined(first, rest)), label_of(clock, joined(second, rest))));
            }
            auto const worst = worst_continuation(a, b, classes);
            CHECK(total(first, worst, classes) <= total(second, worst, classes));
        } else {
            ++does_not;
            auto const worst = worst_continuation(a, b, classes);
            INFO("continuation\n" << text(worst));
            CHECK(total(first, worst, classes) > total(second, worst, classes));
        }
    }
    CHECK(dominates > 500);
    CHECK(does_not > 500);
}

TEST_CASE("under overlapped the total of a label is the time of its steps, and never more than one after the other") {
    int hidden = 0, exposed = 0;
    for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
        random_source random(seed + 40000);
        auto const classes = static_cast<std::size_t>(random.between(1, 4));
        auto const steps = random_steps(random, classes, 0, 10);
        overlapped const clock(classes);
        auto const label = label_of(clock, steps);
        CAPTURE(seed);
        INFO(text(steps));
        CHECK(clock.total(label) == seconds_of(steps, classes, true));
        CHECK(clock.total(label) <= serial_seconds(steps, classes));
        (clock.total(label) < serial_seconds(steps, classes) ? hidden : exposed)++;
        // Under any weights that the accumulator allows, costs add up to a bound, whatever part of them is in a label.
        relaxation_weights weights{{}, gradient_turns()};
        for (int n = random.between(0, 4); n-- > 0;)
            weights.turns->move(random.unit(),
                                random.chance(0.2) ? std::nullopt : std::optional(random.below(steps.size() + 1)));
        for (auto* list : {&weights.clock, &weights.update}) {
            double sum = 0;
            for (std::size_t k = 0; k < classes; ++k) sum += list->emplace_back(random.unit() + 1e-3);
            for (auto& w : *list) w /= sum;
        }
        auto in_turn = weights;
        in_turn.turns.reset();
        double rest = 0, rest_in_turn = 0, before = clock.total(label);
        for (std::size_t level = steps.size() + 1; level-- > 0;) {
            std::vector<step_cost> const part(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(level));
            if (level < steps.size()) {
                rest += weights.price(steps[level], level);
                rest_in_turn += in_turn.price(steps[level], level);
            }
            double const bound = overlapped::relaxed(label_of(clock, part), weights, level) + rest;
            CHECK(bound <= clock.total(label) * (1 + 1e-12) + 1e-12);
            CHECK(bound <= before * (1 + 1e-12) + 1e-12); // and never rises towards the start
            before = bound;
            CHECK(serial::relaxed(label_of(serial(classes), part), in_turn, level) + rest_in_turn <=
                  serial_seconds(steps, classes) * (1 + 1e-12) + 1e-12);
        }
        CHECK(rest == doctest::Approx(before));
    }
    CHECK(hidden > 500);
    CHECK(exposed > 500);
}

TEST_CASE("under overlapped no continuation is cheaper after a label that is dominated") {
    int dominates = 0, does_not = 0, shown = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(4000u); ++seed) {
        random_source random(seed + 50000);
        auto const classes = static_cast<std::size_t>(random.between(1, 3));
        auto const common = random_steps(random, classes, 0, 2);
        auto const first = joined(common, random_steps(random, classes, 0, 2)),
                   second = joined(common, random_steps(random, classes, 0, 3));
        overlapped const clock(classes);
        auto const a = label_of(clock, first), b = label_of(clock, second);
        CAPTURE(seed);
        INFO("first\n" << text(first) << "second\n" << text(second));
        bool const holds = clock.dominates(a, b);
        (holds ? dominates : does_not)++;
        bool contradicted = false;
        for (int n = 0; n < 60; ++n) {
            auto const rest = random_steps(random, classes, 0, 4);
            double const after_first = seconds_of(joined(first, rest), classes, true),
                         after_second = seconds_of(joined(second, rest), classes, true);
            contradicted = contradicted || after_first > after_second;
            if (!holds) continue;
            INFO("continuation\n" << text(rest));
            CHECK(after_first <= after_second);
            CHECK(clock.dominates(label_of(clock, joined(first, rest)), label_of(clock, joined(second, rest))));
        }
        shown += !holds && contradicted;
    }
    CHECK(dominates > test::cases(500));
    CHECK(does_not > test::cases(500));
    CHECK(shown * 4 > does_not * 3); // where it does not hold, a continuation mostly shows why
}

TEST_CASE("dominance is a preorder") {
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        random_source random(seed + 20000);
        auto const classes = static_cast<std::size_t>(random.between(1, 3));
        serial const clock(classes);
        auto const draw = [&] { return label_of(clock, random_steps(random, classes, 0, 2)); };
        auto const a = draw(), b = draw(), c = draw();
        CAPTURE(seed);
        CHECK(clock.dominates(a, a));
        if (clock.dominates(a, b) && clock.dominates(b, c)) CHECK(clock.dominates(a, c));
    }
}

TEST_CASE("a timeline takes as long as the accumulator says, and its events do not overlap") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        random_source random(seed + 30000);
        auto const c = test::random_cluster(random, {.most_types = 3, .most_devices = 5});
        std::vector<device_class> classes;
        share_vector shares;
        double sum = 0;
        for (auto type : c.devices()) {
            classes.push_back({type, 1});
            sum += shares.emplace_back(random.unit());
        }
        for (auto& s : shares) s /= sum;
        cost_model const model(c, classes);
        share_ref const split{0, 0};
        std::vector<step_work> steps;
        for (int n = random.between(1, 8); n-- > 0;) {
            step_work s;
            auto const size = [&] { return bytes(random.between(0, 500)); };
            if (random.chance(0.6)) s.share = split;
            auto const work = [&] {
                return local_work{flops(random.between(0, 500)), size(), s.share.is_split() ? size() : bytes(0),
                                  random.chance(0.8)};
            };
            auto const move = [&]() -> transfer_list {
                if (random.chance(0.6)) return {};
                auto const kind = static_cast<collective>(random.below(4));
                auto const is = [&](collective x, collective y) {
                    return kind == x || kind == y ? split : share_ref{};
                };
                return {{kind,
                         size(),
                         is(collective::all_gather, collective::all_to_all),
                         is(collective::reduce_scatter, collective::all_to_all),
                         {}}};
            };
            s.forward = work();
            s.backward = work();
            s.forward_transfers = move();
            s.backward_transfers = move();
            s.deferred_transfers = move();
            s.update_transfers = move();
            s.update = {size(), s.share.is_split() ? size() : bytes(0)};
            steps.push_back(s);
        }
        uniform_shares const all(shares);
        serial const clock(classes.size());
        auto l = clock.initial();
        auto beside = overlapped(classes.size()).initial();
        std::vector<step_cost> costs;
        for (auto const& s : steps) {
            costs.push_back(model.price(s, all));
            clock.extend(l, costs.back());
            overlapped(classes.size()).extend(beside, costs.back());
        }
        CAPTURE(seed);
        INFO(test::describe(c) << text(costs));
        for (bool const overlaps : {false, true}) {
            auto const run = run_serial(steps, model, all, overlaps);
            CHECK(run.total ==
                  doctest::Approx(overlaps ? overlapped(classes.size()).total(beside) : clock.total(l)).epsilon(1e-12));
            CHECK(run.total == doctest::Approx(seconds_of(costs, classes.size(), overlaps)).epsilon(1e-12));
            std::vector<double> busy_until(2 * classes.size());
            std::vector<double> busy(classes.size());
            auto phase = timeline_event::phase::forward;
            for (auto const& e : run.events) {
                bool const is_beside = overlaps && e.when == timeline_event::phase::gradient;
                if (!is_beside) {
                    CHECK(e.when >= phase);
                    phase = e.when;
                }
                auto& until = busy_until[e.device + (is_beside ? classes.size() : 0)];
                CHECK(e.start >= until * (1 - 1e-12));
                CHECK(e.duration > 0);
                until = e.start + e.duration;
                busy[e.device] += e.duration;
            }
            for (double until : busy_until) CHECK(until <= run.total * (1 + 1e-12));
            for (std::size_t d = 0; d < classes.size(); ++d) {
                double work = 0;
                for (auto const& s : costs)
                    work += s.forward_transfer + s.backward_transfer + s.deferred + s.refresh + s.forward[d] +
                            s.backward[d] + s.update[d];
                CHECK(busy[d] == doctest::Approx(work).epsilon(1e-9));
            }
        }
    }
}
