// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/anneal.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace {

using namespace heddle;

/// The order of towns on a circle that makes the tour short; swaps two towns.
struct tour {
    using state = std::vector<int>;
    int towns = 7;
    double scale = 1;

    [[nodiscard]] static double distance(int a, int b) { return 1 + (a * 7 + b * 7 + a * b * 3) % 11; }
    [[nodiscard]] state initial() const {
        state s(static_cast<std::size_t>(towns));
        std::iota(s.begin(), s.end(), 0);
        return s;
    }
    [[nodiscard]] state neighbour(state s, search::random_stream& random) const {
        std::swap(s[random.below(s.size())], s[random.below(s.size())]);
        return s;
    }
    [[nodiscard]] double cost(state const& s) const {
        double sum = 0;
        for (std::size_t n = 0; n < s.size(); ++n) sum += distance(s[n], s[(n + 1) % s.size()]);
        return sum * scale;
    }
    [[nodiscard]] double shortest() const {
        double best = std::numeric_limits<double>::infinity();
        auto s = initial();
        do best = std::min(best, cost(s));
        while (std::ranges::next_permutation(s).found);
        return best;
    }
};
static_assert(search::annealing_problem<tour>);
static_assert(!search::annealing_problem<search::annealing_options>);

/// Whole numbers 0 .. 99; walks one up or down, all but a few are no solutions.
struct line {
    using state = int;
    int first = 50;
    double outside = std::numeric_limits<double>::infinity();
    [[nodiscard]] state initial() const { return first; }
    [[nodiscard]] state neighbour(state s, search::random_stream& random) const {
        return std::clamp(s + (random.below(2) ? 1 : -1), 0, 99);
    }
    [[nodiscard]] double cost(state s) const { return s < 45 ? 1 + s : outside; }
};

} // namespace

TEST_CASE("random_stream is SplitMix64, and even") {
    search::random_stream known(1234567);
    for (auto expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u})
        CHECK(known.bits() == expected);
    search::random_stream random(3);
    std::array<int, 5> count{};
    double sum = 0;
    for (int n = 0; n < 10000; ++n) {
        ++count[random.below(5)];
        double const x = random.unit();
        CHECK((x >= 0 && x < 1));
        sum += x;
    }
    for (int c : count) CHECK(std::abs(c - 2000) < 200);
    CHECK(sum == doctest::Approx(5000).epsilon(0.02));
    CHECK(random.below(1) == 0);
}

TEST_CASE("decay is the exponential function") {
    for (double x : {0.0, 1e-9, 0.01, 0.5, 1.0, 3.3, 20.0, 63.0})
        CHECK(search::detail::decay(x) == doctest::Approx(std::exp(-x)).epsilon(1e-12));
    CHECK(search::detail::decay(64) == 0);
    CHECK(search::detail::decay(std::numeric_limits<double>::infinity()) == 0);
    CHECK(search::detail::decay(std::numeric_limits<double>::quiet_NaN()) == 0);
    CHECK(std::pow(search::detail::cooling_to_a_thousandth(501), 500) == doctest::Approx(1e-3));
}

TEST_CASE("anneal finds the shortest tour") {
    tour const p;
    double const shortest = p.shortest();
    CHECK(p.cost(p.initial()) > shortest);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        auto const r = search::anneal(p, {.seed = seed, .steps = 5000, .temperature = 0.3});
        CHECK(r.status == search::status::feasible);
        CHECK(r.cost == shortest);
        REQUIRE(r.state);
        CHECK(p.cost(*r.state) == shortest);
        CHECK(r.lower_bound == 0);
        CHECK(r.statistics.steps == 5000);
        CHECK(r.statistics.accepted >= r.statistics.improved);
        auto const bounded =
            search::anneal(p, {.seed = seed, .steps = 5000, .temperature = 0.3, .lower_bound = shortest});
        CHECK(bounded.status == search::status::optimal);
        CHECK(bounded.statistics.steps < 5000);
        CHECK(bounded.state == r.state);
    }
}

TEST_CASE("anneal without heat only goes down, with heat also up") {
    std::vector<double> costs;
    struct recorder {
        std::vector<double>& costs;
        bool on_accept(tour::state const&, double cost) {
            costs.push_back(cost);
            return true;
        }
    };
    auto const cold = search::anneal(tour{}, {.steps = 500, .temperature = 0}, recorder{costs});
    CHECK(std::ranges::is_sorted(costs, std::greater{}));
    CHECK(costs.size() == cold.statistics.accepted + 1);
    costs.clear();
    (void)search::anneal(tour{}, {.steps = 500, .temperature = 1, .cooling = 1}, recorder{costs});
    CHECK_FALSE(std::ranges::is_sorted(costs, std::greater{}));
    // At a constant temperature the walk visits a state with the probability that Boltzmann's law gives it.
    struct two {
        using state = int;
        [[nodiscard]] int initial() const { return 0; }
        [[nodiscard]] int neighbour(int s, search::random_stream&) const { return 1 - s; }
        [[nodiscard]] double cost(int s) const { return 1 + s; }
    };
    auto const r = search::anneal(two{}, {.steps = 100000, .temperature = 0.5, .cooling = 1});
    // From the cheap state a step is taken with probability e^-2 = 0.135, from the dear one always.
    double const moved = 2 * std::exp(-2) / (1 + std::exp(-2));
    CHECK(static_cast<double>(r.statistics.accepted) == doctest::Approx(moved * 100000).epsilon(0.02));
}

TEST_CASE("anneal takes the same walk for a seed, whatever the unit of cost") {
    auto const a = search::anneal(tour{9}, {.seed = 7, .steps = 300});
    auto const b = search::anneal(tour{9}, {.seed = 7, .steps = 300});
    auto const scaled = search::anneal(tour{9, 1024}, {.seed = 7, .steps = 300});
    auto const other = search::anneal(tour{9}, {.seed = 8, .steps = 300});
    CHECK(a.statistics.accepted == 45); // on every compiler
    CHECK(a.cost == 21);
    CHECK(a.state == b.state);
    CHECK(a.statistics.accepted == b.statistics.accepted);
    CHECK(a.state == scaled.state);
    CHECK(a.statistics.accepted == scaled.statistics.accepted);
    CHECK((a.statistics.accepted != other.statistics.accepted || a.state != other.state));
}

TEST_CASE("anneal crosses states that are no solutions") {
    auto const r = search::anneal(line{}, {.steps = 20000});
    CHECK(r.status == search::status::feasible);
    CHECK(r.cost == 1);
    auto const lost = search::anneal(line{99}, {.steps = 10});
    CHECK(lost.status == search::status::limit);
    CHECK(lost.which_limit == search::limit_kind::labels);
    CHECK_FALSE(lost.cost);
    CHECK_FALSE(lost.state);
    CHECK(lost.statistics.accepted == 10);
    CHECK(search::anneal(line{0}, {.steps = 0}).cost == 1);
}

TEST_CASE("anneal stops when told") {
    std::stop_source stop;
    stop.request_stop();
    auto const stopped = search::anneal(tour{}, {.limits = {.stop = stop.get_token()}});
    CHECK(stopped.status == search::status::limit);
    CHECK(stopped.which_limit == search::limit_kind::stopped);
    CHECK(stopped.state == tour{}.initial());
    CHECK(stopped.statistics.steps == 0);
    auto const late = search::anneal(tour{}, {.limits = {.seconds = 0}});
    CHECK(late.which_limit == search::limit_kind::time);
    struct impatient {
        int left = 5;
        bool on_accept(tour::state const&, double) { return --left > 0; }
    } visitor;
    auto const seen = search::anneal(tour{}, {.temperature = 1}, visitor);
    CHECK(seen.which_limit == search::limit_kind::stopped);
    CHECK(seen.statistics.accepted == 4);
}
