// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The duplex accumulators: totals against explicit schedules, dominance against continuations, bounds.
#include "support/random_programs.hpp"

#include <heddle/cost/duplex.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

// ---- one direction, two halves: the paper's recurrence

using pair_list = std::vector<std::pair<double, double>>; // communication and computation of one half, by stage

/// Counts slot by slot: halves take turns, each with one processor and one network.
double paper_seconds(pair_list const& stages) {
    double now = 0;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        now += std::max(i > 0 ? stages[i - 1].second : 0, stages[i].first); // second half computes the stage before
        now += std::max(stages[i].first, stages[i].second);                 // first half computes
    }
    return now + (stages.empty() ? 0 : stages.back().second);
}

forward_duplex::label paper_label(pair_list const& stages) {
    forward_duplex::label l;
    for (auto [m, c] : stages) forward_duplex::extend(l, m, c);
    return l;
}

pair_list random_stages(random_source& random, int least, int most) {
    pair_list stages;
    for (int n = random.between(least, most); n-- > 0;) stages.push_back({random.between(0, 9), random.between(0, 9)});
    return stages;
}

// ---- both directions

struct staged_step {
    step_cost cost;
    bool begins_stage = false;
};
using staged_list = std::vector<staged_step>;

staged_step random_staged_step(random_source& random, std::size_t classes) {
    staged_step result;
    auto& s = result.cost;
    auto const number = [&](double chance) {
        return random.chance(chance) ? static_cast<double>(random.between(1, 9)) : 0.0;
    };
    s.once = random.chance(0.4);
    s.waits = !s.once && random.chance(0.3);
    if (s.once && random.chance(0.5)) s.transient = 1;
    s.forward_transfer = number(0.4);
    s.backward_transfer = number(0.4);
    s.deferred = s.once ? number(0.5) : 0;
    s.refresh = number(0.1);
    for (std::size_t k = 0; k < classes; ++k) {
        s.forward.push_back(s.once ? 0 : number(0.7));
        s.backward.push_back(s.once ? 0 : number(0.7));
        s.update.push_back(number(0.2));
    }
    result.begins_stage = random.chance(0.2);
    return result;
}
staged_list random_staged_steps(random_source& random, std::size_t classes, int least, int most) {
    staged_list steps;
    for (int n = random.between(least, most); n-- > 0;) steps.push_back(random_staged_step(random, classes));
    return steps;
}
staged_list joined(staged_list first, staged_list const& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

duplex::label label_of(duplex const& clock, staged_list const& steps) {
    auto l = clock.initial();
    for (auto const& s : steps) {
        if (s.begins_stage) clock.close(l);
        clock.extend(l, s.cost);
    }
    return l;
}

std::string text(staged_list const& steps) {
    std::ostringstream out;
    for (auto const& [s, begins] : steps) {
        out << (begins ? "| " : "  ")
            << (s.waits  ? "waits "
                : s.once ? s.transient > 0 ? "unsharded " : "once "
                         : "")
            << "transfers " << s.forward_transfer << ' ' << s.backward_transfer << ' ' << s.deferred << ", forward";
        for (double v : s.forward) out << ' ' << v;
        out << ", backward";
        for (double v : s.backward) out << ' ' << v;
        out << '\n';
    }
    return out.str();
}

/// What one direction of one stage consists of.
struct stage {
    double transfer = 0, urgent = 0, patient = 0, again = 0;
    /// What kernels wait for, the work before the last of that, and the rest.
    double waits = 0, awaited = 0;
    per_class work;

    [[nodiscard]] double computation() const { return awaited + std::ranges::max(work); }
    void wait(double seconds) {
        if (seconds == 0) return;
        awaited = computation();
        std::ranges::fill(work, 0.0);
        waits += seconds;
    }
};

/// A network that carries what a slot has to, and in the rest of the slot what may wait.
class explicit_schedule {
public:
    double now = 0;
    /// Runs a slot: computation beside collectives; what may wait and is ready follows them. Nothing is beside what
    /// kernels wait for.
    void slot(double computation, double collectives, double waits = 0) {
        double const length = std::max(computation, collectives);
        now += length + waits;
        pending_ = std::max(0.0, pending_ - (length - collectives));
    }
    void add(double patient) { pending_ += patient; }
    void drain() { now += std::exchange(pending_, 0); }

private:
    double pending_ = 0;
};

/// Returns the seconds by the definition, slot by slot in time.
double explicit_seconds(staged_list const& steps, std::size_t classes, int count, double turn) {
    std::vector<std::array<stage, 2>> stages;
    double update = 0, refresh = 0;
    per_class updates(classes, 0.0);
    bool computes = false;
    auto const open = [&] {
        stages.push_back({});
        for (auto& s : stages.back()) s.work.assign(classes, 0.0);
        computes = false;
    };
    open();
    for (auto const& [s, begins] : steps) {
        bool const has_transfers = s.forward_transfer > 0 || s.backward_transfer > 0;
        if (begins || (!s.once && !s.waits && computes && has_transfers)) open();
        auto& [f, b] = stages.back();
        if (s.waits) f.wait(s.forward_transfer), b.wait(s.backward_transfer), computes = computes || has_transfers;
        else if (!s.once) f.transfer += s.forward_transfer, b.transfer += s.backward_transfer;
        else if (s.transient > 0) f.urgent += s.forward_transfer, b.urgent += s.backward_transfer;
        else f.patient += s.forward_transfer, b.again += s.backward_transfer;
        b.patient += s.deferred;
        for (std::size_t k = 0; k < classes; ++k) {
            f.work[k] += s.forward[k], b.work[k] += s.backward[k], updates[k] += s.update[k];
            computes = computes || s.forward[k] > 0 || s.backward[k] > 0;
        }
        refresh += s.refresh;
    }
    update = std::ranges::max(updates);
    std::size_t const last = stages.size() - 1;
    // Forward, a parameter comes when the network was free; if it comes too late, it takes time of its own.
    double now = 0, free = 0;
    for (std::size_t i = 0; i <= last; ++i) {
        auto const& f = stages[i][0];
        auto const slot = [&](double computation, double collectives, double waits) {
            now += std::max(computation, collectives) + waits;
            free += std::max(0.0, computation - collectives);
        };
        slot(i > 0 ? stages[i - 1][0].computation() : 0, f.transfer + f.urgent, i > 0 ? stages[i - 1][0].waits : 0);
        double const early = std::min(free, f.patient);
        free -= early;
        now += f.patient - early;
        for (int j = 1; j < count; ++j) slot(f.computation(), f.transfer, f.waits);
        slot(count * turn, 0, 0);
    }
    double between = 0;
    for (std::size_t k = 0; k < classes; ++k)
        between = std::max(between, stages[last][0].work[k] + stages[last][1].work[k]);
    auto const& [f, b] = stages[last];
    now += std::max(f.awaited + between + b.awaited, b.again + b.computation()) + f.waits + b.waits;
    // Backward: gradients wait for a free network.
    explicit_schedule run;
    for (std::size_t i = last + 1; i-- > 0;) {
        auto const& back = stages[i][1];
        if (i < last) run.slot(back.computation(), stages[i + 1][1].transfer + stages[i + 1][1].urgent, back.waits);
        for (int j = 2; j <= count; ++j)
            run.slot(back.computation(), back.transfer + (j == count && i > 0 ? stages[i - 1][1].again : 0),
                     back.waits);
        run.slot(count * turn, 0);
        run.add(back.patient);
    }
    run.slot(0, stages[0][1].transfer + stages[0][1].urgent);
    run.drain();
    return now + run.now + update + refresh;
}

training_options halves(int count = 2, double turn = 0) { return {.micro_batches = count, .turn = seconds(turn)}; }

/// Makes stages that have one kind of cost each, or computation alone, and that end what was open: together they show a
/// difference if there is one.
std::vector<staged_list> telling_continuations(std::size_t classes) {
    std::vector<staged_list> result{{}};
    constexpr double much = 4096;
    auto const empty = [&](bool once) {
        staged_step s;
        s.cost.once = once;
        s.cost.forward.assign(classes, 0.0), s.cost.backward.assign(classes, 0.0), s.cost.update.assign(classes, 0.0);
        return s;
    };
    // Each direction has nothing, a long collective, or much that may wait for the network; and long computation or
    // none.
    for (int f = 0; f < 6; ++f)
        for (int b = 0; b < 6; ++b)
            for (std::size_t k = 0; k < classes; ++k) {
                auto transfer = empty(false), parameter = empty(true), work = empty(false);
                if (f % 3 == 1) transfer.cost.forward_transfer = much;
                if (b % 3 == 1) transfer.cost.backward_transfer = much;
                if (f % 3 == 2) parameter.cost.forward_transfer = 16 * much;
                if (b % 3 == 2) parameter.cost.deferred = 16 * much;
                if (f >= 3) work.cost.forward.assign(classes, 2 * much);
                if (b >= 3) work.cost.backward.assign(classes, 2 * much);
                work.cost.update[k] = 16 * much;
                result.push_back({transfer, parameter, work});
            }
    return result;
}

} // namespace

TEST_CASE("the paper's recurrence is the explicit schedule of two halves") {
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        random_source random(seed);
        auto const stages = random_stages(random, 0, 8);
        CAPTURE(seed);
        CHECK(forward_duplex::total(paper_label(stages)) == paper_seconds(stages));
    }
}

TEST_CASE("dominance on psi and psi + phi is exact, and the paper's, which implies it, keeps more") {
    int weaker = 0;
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        random_source random(seed);
        auto const first = random_stages(random, 0, 4), second = random_stages(random, 0, 4);
        auto const a = paper_label(first), b = paper_label(second);
        bool const dominates = forward_duplex::dominates(a, b), as_published = a.psi <= b.psi && a.phi <= b.phi;
        CAPTURE(seed);
        if (as_published) CHECK(dominates);
        weaker += dominates && !as_published;
        auto const cheaper_after_b = [&](pair_list const& rest) {
            auto x = first, y = second;
            x.insert(x.end(), rest.begin(), rest.end());
            y.insert(y.end(), rest.begin(), rest.end());
            return paper_seconds(x) > paper_seconds(y);
        };
        bool shown = cheaper_after_b({}) || cheaper_after_b({{100, 0}});
        for (int n = 0; n < 20; ++n) shown = shown || cheaper_after_b(random_stages(random, 1, 3));
        CHECK(shown == !dominates);
    }
    CHECK(weaker > 100);
}

TEST_CASE("under duplex the total of a label is the time of the explicit schedule") {
    for (std::uint64_t seed = 1; seed <= test::cases(6000u); ++seed) {
        random_source random(seed);
        auto const classes = static_cast<std::size_t>(random.between(1, 3));
        int const count = random.between(2, 4);
        double const turn = random.chance(0.5) ? 0 : random.between(1, 3);
        auto const steps = random_staged_steps(random, classes, 0, 12);
        duplex const clock(classes, halves(count, turn));
        CAPTURE(seed);
        INFO(text(steps));
        CHECK(clock.total(label_of(clock, steps)) == explicit_seconds(steps, classes, count, turn));
    }
}

TEST_CASE(
    "duplex: without backward pass and parameters it is the paper's, with the backward pass the recurrence of both") {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        random_source random(seed);
        duplex const clock(1, halves());
        auto l = clock.initial();
        double a = 0, c = 0, b = 0;
        auto const stages = random_stages(random, 1, 6), back = random_stages(random, 6, 6);
        bool const both = random.chance(0.5);
        for (std::size_t i = 0; i < stages.size(); ++i) {
            double const m = stages[i].first, c2 = stages[i].second, n = both ? back[i].first : 0,
                         b2 = both ? back[i].second : 0;
            if (i > 0) clock.close(l);
            clock.extend(l, {.forward_transfer = m,
                             .backward_transfer = n,
                             .forward = {c2},
                             .backward = {b2},
                             .update = {0},
                             .memory = {}});
            a += std::max(c, m) + std::max(m, c2) + std::max(b, n) + std::max(n, b2);
            c = c2, b = b2;
        }
        CAPTURE(seed);
        CHECK(clock.total(l) == a + c + b);
        if (!both) CHECK(clock.total(l) == forward_duplex::total(paper_label(stages)));
    }
}

TEST_CASE(
    "duplex: no continuation is cheaper after a label that is dominated; at the end of a stage, if it is not, one is") {
    int dominates = 0, does_not = 0, exact = 0, unshown = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(6000u); ++seed) {
        random_source random(seed);
        auto const classes = static_cast<std::size_t>(random.between(1, 2));
        int const count = random.between(2, 3);
        duplex const clock(classes, halves(count));
        auto const common = random_staged_steps(random, classes, 0, 2);
        auto first = joined(common, random_staged_steps(random, classes, 0, 2)),
             second = joined(common, random_staged_steps(random, classes, 0, 3));
        bool const at_end = random.chance(0.5);
        auto const end = [&](staged_list& steps) {
            staged_step nothing;
            nothing.begins_stage = true;
            nothing.cost.forward.assign(classes, 0.0), nothing.cost.backward.assign(classes, 0.0),
                nothing.cost.update.assign(classes, 0.0);
            steps.push_back(nothing);
        };
        if (at_end) end(first), end(second);
        auto const a = label_of(clock, first), b = label_of(clock, second);
        bool const holds = clock.dominates(a, b);
        (holds ? dominates : does_not)++;
        CAPTURE(seed);
        CAPTURE(count);
        INFO("first\n" << text(first) << "second\n" << text(second));
        bool shown = false;
        auto const run_on = [&](staged_list const& rest) {
            double const after_first = clock.total(label_of(clock, joined(first, rest))),
                         after_second = clock.total(label_of(clock, joined(second, rest)));
            shown = shown || after_first > after_second;
            if (!holds) return;
            INFO("continuation\n" << text(rest));
            CHECK(after_first <= after_second);
            CHECK(clock.dominates(label_of(clock, joined(first, rest)), label_of(clock, joined(second, rest))));
        };
        for (int n = 0; n < 40; ++n) run_on(random_staged_steps(random, classes, 0, 4));
        for (auto const& rest : telling_continuations(classes)) run_on(rest);
        if (at_end && !holds) (shown ? exact : unshown)++;
    }
    CHECK(dominates > test::cases(500));
    CHECK(does_not > test::cases(500));
    CHECK(exact > test::cases(500));
    CHECK(unshown == 0);
}

TEST_CASE("under duplex weighted costs are a bound, and two sums are not enough") {
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        random_source random(seed);
        auto const classes = static_cast<std::size_t>(random.between(1, 3));
        int const count = random.between(2, 3);
        auto const steps = random_staged_steps(random, classes, 0, 8);
        duplex const clock(classes, halves(count, random.chance(0.5) ? 0 : random.between(1, 3)));
        relaxation_weights w;
        for (auto* d : {&w.forward, &w.backward}) {
            d->network = random.chance(0.2) ? 0 : random.chance(0.2) ? 1 : random.unit();
            d->work = 1 - d->network;
            d->patient = d->network * random.unit();
        }
        for (auto* list : {&w.clock, &w.update}) {
            double sum = 0;
            for (std::size_t k = 0; k < classes; ++k) sum += list->emplace_back(random.unit() + 1e-3);
            for (auto& x : *list) x /= sum;
        }
        double const total = clock.total(label_of(clock, steps));
        double rest = 0;
        CAPTURE(seed);
        for (std::size_t n = steps.size() + 1; n-- > 0;) {
            if (n < steps.size()) rest += w.price(steps[n].cost, n, count);
            auto const part = label_of(clock, {steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(n)});
            CHECK(clock.relaxed(part, w, n) + rest <= total * (1 + 1e-12) + 1e-12);
        }
    }
    // If there is nothing but turning, or a parameter to gather, the bound is exact, whatever the weights.
    auto const bound = [](duplex const& c, duplex::label const& l) {
        relaxation_weights w{{1}};
        w.forward = w.backward = {0.25, 0.75, 0.5};
        return c.relaxed(l, w, 0);
    };
    duplex const turning(1, halves(3, 2));
    CHECK(bound(turning, turning.initial()) == turning.total(turning.initial()));
    auto gathered = turning.initial();
    turning.extend(gathered,
                   {.forward_transfer = 9, .forward = {0}, .backward = {0}, .update = {0}, .memory = {}, .once = true});
    CHECK(bound(turning, gathered) == turning.total(gathered));
    // The first label has less time up to a stage and less without its computation, in both directions together, and
    // yet is slower after a collective.
    duplex const clock(1, halves());
    auto const staged = [&](double transfer, double forward, double backward) {
        auto l = clock.initial();
        clock.extend(
            l,
            {.forward_transfer = transfer, .forward = {forward}, .backward = {backward}, .update = {0}, .memory = {}});
        clock.close(l);
        return l;
    };
    auto a = staged(0, 1, 9), b = staged(0, 9, 1);
    auto const sum = [](duplex::label const& l) { return l.forward.slots + l.backward.slots; };
    auto const all = [&](duplex::label const& l) { return sum(l) + l.forward.last + l.backward.last; };
    CHECK(sum(a) <= sum(b));
    CHECK(all(a) <= all(b));
    CHECK(!clock.dominates(a, b));
    auto const longer = [&](duplex::label l) {
        clock.extend(l, {.forward_transfer = 9, .forward = {0}, .backward = {0}, .update = {0}, .memory = {}});
        return clock.total(l);
    };
    CHECK(longer(a) > longer(b));
}
