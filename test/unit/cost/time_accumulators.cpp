// SPDX-License-Identifier: BSL-1.0
// Accumulators of time: what the axioms ask, and who keeps them.
#include <heddle/cost/accumulator_axioms.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/cost/serial_actions.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Has the least that the concept asks for: steps follow each other on the slowest device.
struct one_clock {
    static constexpr char const* name = "one clock";
    static constexpr auto relaxation = relaxation_kind::none;
    using label = double;
    one_clock(std::size_t, training_options const&) {}
    static label initial() { return 0; }
    static void extend(label& l, step_cost const& s) {
        l += s.forward_transfer + s.backward_transfer + s.deferred + s.refresh + std::ranges::max(s.forward) +
             std::ranges::max(s.backward) + std::ranges::max(s.update);
    }
    static double total(label l) { return l; }
    static bool dominates(label a, label b) { return a <= b; }
};

/// Makes one mistake.
struct forgetful : one_clock {
    using one_clock::one_clock;
    static void extend(label& l, step_cost const& s) {
        one_clock::extend(l, s);
        if (s.forward_transfer > 4) l /= 2;
    }
};
struct eager : one_clock {
    using one_clock::one_clock;
    struct label {
        double seconds = 0, hidden = 0;
    };
    static label initial() { return {}; }
    static void extend(label& l, step_cost const& s) {
        one_clock::extend(l.seconds, s);
        l.hidden += s.deferred;
    }
    static double total(label const& l) { return l.seconds + l.hidden * l.hidden; }
    static bool dominates(label const& a, label const& b) { return total(a) <= total(b); }
};
struct greedy : serial {
    using serial::serial;
    static constexpr char const* name = "greedy";
    double relaxed(label const& l, relaxation_weights const& w, std::size_t level) const {
        return serial::relaxed(l, w, level) + 1e-3;
    }
};
struct expensive : one_clock {
    using one_clock::one_clock;
    static void extend(label& l, step_cost const& s) { one_clock::extend(l, s), l += 1; }
};
struct hopeful : serial {
    using serial::serial;
    double most_later(label const& a, label const& b) const { return serial::most_later(a, b) - 1; }
    static label joined(label a, label const&, relaxation_weights const&) { return a; }
};
static_assert(joining_accumulator<overlapped> && !joining_accumulator<one_clock> && !joining_accumulator<duplex>);
static_assert(time_accumulator<one_clock> && !staged_accumulator<one_clock> && staged_accumulator<duplex>);
static_assert(!staged_accumulator<serial> && !staged_accumulator<overlapped>);
static_assert(!time_accumulator<forward_duplex>);
// Of steps and of numbered actions.
static_assert(!search::accumulator<serial> && search::accumulator<serial_actions>);
static_assert(!time_accumulator<serial_actions> && !time_accumulator<search::additive_cost>);

} // namespace

TEST_CASE_TEMPLATE("accumulators keep the axioms", Accumulator, serial, overlapped, one_clock) {
    for (auto const& sentence : broken_axioms<Accumulator>()) FAIL_CHECK(sentence);
}

TEST_CASE("duplex keeps the axioms, for any number of micro-batches, alone and in a stage of a pipeline") {
    for (int count : {2, 3, 5})
        for (int accumulated : {1, 4}) {
            training_options training;
            training.micro_batches = count;
            training.accumulated = accumulated;
            training.turn = seconds(count == 3 ? 0.25 : 0);
            CAPTURE(count);
            CAPTURE(accumulated);
            for (auto const& sentence : broken_axioms<duplex>(training))
                if (training.turn == seconds(0) || sentence != "no steps take time") // turning does
                    FAIL_CHECK(sentence);
        }
}

TEST_CASE("an accumulator that breaks an axiom is told so") {
    auto const broken = [](auto const& list, std::string const& sentence) {
        return std::ranges::find(list, sentence) != list.end();
    };
    CHECK(broken(broken_axioms<forgetful>(), "a step makes the total less"));
    CHECK(broken(broken_axioms<forgetful>(), "the total is less where a step costs more"));
    CHECK(broken(broken_axioms<eager>(), "steps after a label that dominates take longer than after the other"));
    CHECK(broken(broken_axioms<greedy>(), "a relaxation is above the total that it bounds"));
    CHECK(broken(broken_axioms<hopeful>(), "steps after a joined label take longer than after one that is part of it"));
    CHECK(broken(broken_axioms<hopeful>(), "steps after a label take longer than after another by more than the most"));
    CHECK(broken(broken_axioms<expensive>(), "a step that costs nothing changes the total"));
}

TEST_CASE("seconds of steps are the same behind one type") {
    detail::random_step_costs random(7);
    for (int n = 0; n < 200; ++n) {
        auto const steps = random.steps(2, 6);
        auto const behind = accumulator_of<serial>();
        CHECK(behind.name == "serial");
        CHECK(behind.total(2, {}, steps, {}) == total_time<serial>(2, {}, steps));
    }
}
