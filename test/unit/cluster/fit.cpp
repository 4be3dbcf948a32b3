// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/fit.hpp>

#include <support/cases.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using piece = collective_model::piece;

piece line(double latency, double slope) { return {seconds(latency), seconds_per_byte(slope)}; }

std::vector<double> sizes(double first, double last, int count) {
    std::vector<double> result;
    for (int i = 0; i < count; ++i) result.push_back(first * std::pow(last / first, i / std::max(1.0, count - 1.0)));
    return result;
}

/// Returns what the model says at the sizes, each time off by a random part of at most `noise`.
std::vector<timed_transfer> measure(collective_model const& truth, std::vector<double> const& at,
                                    test::random_source* random = nullptr, double noise = 0) {
    std::vector<timed_transfer> points;
    for (double size : at)
        points.push_back({size, truth.time(bytes(size)).value * (1 + (random ? random->between(-noise, noise) : 0))});
    return points;
}

double worst_error(collective_model const& found, collective_model const& truth, double first, double last) {
    double worst = 0;
    for (double size : sizes(first, last, 200))
        worst = std::max(worst, std::abs(found.time(bytes(size)) / truth.time(bytes(size)) - 1));
    return worst;
}

double squared_error(collective_model const& model, std::vector<timed_transfer> const& points) {
    double sum = 0;
    for (auto const& p : points) sum += std::pow(model.time(bytes(p.size)).value / p.time - 1, 2);
    return sum;
}

/// Fits a line by its normal equations; if a coefficient is negative, takes the best of the two lines without one.
piece plain_line(std::vector<timed_transfer> const& points, std::size_t first, std::size_t last) {
    double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
    for (std::size_t i = first; i < last; ++i) {
        double const u = 1 / points[i].time, v = points[i].size / points[i].time;
        aa += u * u;
        ab += u * v;
        bb += v * v;
        a += u;
        b += v;
    }
    double const determinant = aa * bb - ab * ab;
    double const latency = (a * bb - b * ab) / determinant, slope = (b * aa - a * ab) / determinant;
    if (latency >= 0 && slope >= 0) return line(latency, slope);
    return a * a / aa > b * b / bb ? line(a / aa, 0) : line(0, b / bb);
}

/// Returns the least error of a maximum of at most `most` lines over all breakpoints, one line per range of at least
/// two sizes.
double brute_force(std::vector<timed_transfer> const& points, int most) {
    auto const n = points.size();
    double least = squared_error({{plain_line(points, 0, n)}}, points);
    for (std::size_t i = 2; most >= 2 && i + 2 <= n; ++i) {
        least = std::min(least, squared_error({{plain_line(points, 0, i), plain_line(points, i, n)}}, points));
        for (std::size_t j = i + 2; most >= 3 && j + 2 <= n; ++j)
            least = std::min(
                least, squared_error({{plain_line(points, 0, i), plain_line(points, i, j), plain_line(points, j, n)}},
                                     points));
    }
    return least;
}

sample transfer_sample(double size, double time, int ranks = 4) {
    return {collective::all_reduce, "", ranks, {}, flops(0), bytes(size), seconds(time)};
}
sample kernel_sample(operator_class category, double work, double size, double time) {
    return {category, "gpu", 0, element_type::float32, flops(work), bytes(size), seconds(time)};
}

} // namespace

TEST_CASE("a line is recovered and stays a line") {
    collective_model const truth{{line(5e-5, 2e-10)}};
    for (int count : {2, 3, 6, 12, 40, 300}) {
        CAPTURE(count);
        auto const found = fit_collective(measure(truth, sizes(1e3, 1e9, count)));
        REQUIRE(found.pieces.size() == 1);
        CHECK(found.pieces[0].latency.value == doctest::Approx(5e-5).epsilon(1e-9));
        CHECK(found.pieces[0].slope.value == doctest::Approx(2e-10).epsilon(1e-9));
    }
}

TEST_CASE("a maximum of lines is recovered, with its pieces") {
    collective_model const two{{line(8e-5, 1e-11), line(0, 4e-10)}},
        three{{line(1e-4, 0), line(5e-5, 1e-9), line(0, 1.2e-9)}};
    for (int count : {8, 12, 24, 33}) {
        CAPTURE(count);
        auto const found = fit_collective(measure(two, sizes(1e3, 1e8, count)));
        REQUIRE(found.pieces.size() == 2);
        CHECK(worst_error(found, two, 1e3, 1e9) < 1e-9);
    }
    collective_model const found = fit_collective(measure(three, sizes(5e3, 5e6, 30)));
    CHECK(worst_error(found, three, 1e3, 1e8) < 1e-9);
    CHECK(found.pieces.size() == 3);
}

TEST_CASE("with 5 % of noise a line is mostly a line, two pieces are mostly two, and both are near the truth") {
    collective_model const one{{line(5e-5, 2e-10)}}, two{{line(8e-5, 1e-11), line(1e-5, 4e-10)}};
    int lines = 0, pairs = 0;
    constexpr int trials = 100;
    for (std::uint64_t seed = 1; seed <= trials; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const at = sizes(1e3, 1e9, 20);
        auto const line_found = fit_collective(measure(one, at, &random, 0.05)),
                   pair_found = fit_collective(measure(two, at, &random, 0.05));
        lines += line_found.pieces.size() == 1;
        pairs += pair_found.pieces.size() == 2;
        CHECK(worst_error(line_found, one, 1e3, 1e9) < 0.08);
        CHECK(worst_error(pair_found, two, 1e3, 1e9) < 0.25);
    }
    CHECK(lines >= 80);
    CHECK(pairs >= 80);
}

TEST_CASE("no breakpoints give less error than those found") {
    for (std::uint64_t seed = 1; seed <= test::cases(300u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        int const count = random.between(4, 12);
        collective_model const truth{{line(random.log_between(1e-6, 1e-3), 0),
                                      line(random.log_between(1e-7, 1e-4), random.log_between(1e-11, 1e-9))}};
        auto const points = measure(truth, sizes(1e3, 1e8, count), &random, 0.3);
        for (int most : {1, 2, 3}) {
            auto const found = detail::fit_at_most(most, points);
            CHECK(squared_error({found.pieces}, points) == doctest::Approx(brute_force(points, most)).epsilon(1e-6));
        }
    }
}

TEST_CASE("fitted coefficients are never negative, and best among those") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        std::vector<timed_transfer> points;
        for (double size : sizes(1, 1e3, random.between(2, 6))) points.push_back({size, random.log_between(1, 100)});
        auto const best = detail::fit_line(points);
        CHECK(best.latency.value >= 0);
        CHECK(best.slope.value >= 0);
        double const least = squared_error({{best}}, points);
        for (double a : {0.0, 0.9, 0.99, 1.01, 1.1})
            for (double b : {0.0, 0.9, 0.99, 1.01, 1.1}) {
                CHECK(squared_error({{line(a * best.latency.value, b * best.slope.value)}}, points) >=
                      least * (1 - 1e-9));
                CHECK(squared_error({{line(a, b)}}, points) >= least * (1 - 1e-9));
            }
    }
}

TEST_CASE("one size has no latency; no bytes have nothing else") {
    CHECK(fit_collective({{1e6, 2e-3}}).pieces[0].latency.value == 0);
    CHECK(fit_collective({{1e6, 2e-3}}).time(bytes(1e6)).value == doctest::Approx(2e-3));
    CHECK(fit_collective({{0, 3e-5}}).time(bytes(1e9)).value == doctest::Approx(3e-5));
}

TEST_CASE("operators that are compute-bound, memory-bound or both are recovered") {
    auto const check = [](double overhead, double rate, double bandwidth, std::vector<timed_kernel> points,
                          operator_class category) {
        for (auto& p : points)
            p.time = overhead + std::max(rate > 0 ? p.work / rate : 0, bandwidth > 0 ? p.size / bandwidth : 0);
        std::ranges::sort(points, {}, [](timed_kernel const& p) { return std::pair(p.intensity(), p.work); });
        auto const found = fit_operator(points, category);
        CHECK(found.overhead->value == doctest::Approx(overhead).epsilon(1e-9));
        CHECK(found.rate.value_or(flops_per_second(0)).value == doctest::Approx(rate).epsilon(1e-9));
        CHECK(found.bandwidth.value_or(bytes_per_second(0)).value == doctest::Approx(bandwidth).epsilon(1e-9));
    };
    std::vector<timed_kernel> squares, vectors, both;
    for (double n : {64, 128, 256, 512, 1024, 2048}) squares.push_back({2 * n * n * n, 12 * n * n, 0});
    for (double n : {1e3, 1e4, 1e5, 1e6, 1e7, 1e8}) vectors.push_back({n, 8 * n, 0});
    both = vectors;
    for (double n : {1e5, 1e6, 1e7, 1e8}) both.push_back({300 * n, 4 * n, 0});
    check(2e-5, 14e12, 0, squares, operator_class::matmul);
    check(0, 14e12, 0, squares, operator_class::matmul);
    check(3e-6, 0, 750e9, vectors, operator_class::elementwise);
    check(4e-6, 14e12, 750e9, both, operator_class::other);
}

TEST_CASE("if one size or equal kernels do not tell what bounds an operator, its class does") {
    auto const one = [](operator_class category) { return fit_operator({{1e9, 1e6, 1e-3}}, category); };
    CHECK(one(operator_class::matmul).rate->value == doctest::Approx(1e12));
    CHECK(!one(operator_class::matmul).bandwidth);
    CHECK(one(operator_class::elementwise).bandwidth->value == doctest::Approx(1e9));
    CHECK(!one(operator_class::elementwise).rate);
    CHECK(one(operator_class::elementwise).overhead == seconds(0));
    CHECK(fit_operator({{0, 1e6, 1e-3}}, operator_class::matmul).bandwidth->value == doctest::Approx(1e9));
    CHECK(fit_operator({{1e9, 0, 1e-3}}, operator_class::elementwise).rate->value == doctest::Approx(1e12));
    auto const constant = fit_operator({{0, 0, 1e-3}}, operator_class::other);
    CHECK(constant.overhead->value == doctest::Approx(1e-3));
    CHECK((!constant.rate && !constant.bandwidth));
}

TEST_CASE("a report has groups, repeated sizes, errors and warnings") {
    std::vector<sample> samples;
    for (double size : sizes(1e4, 1e8, 5)) samples.push_back(transfer_sample(size, 1e-4 + size * 1e-9));
    samples.push_back(transfer_sample(1e4, 9)); // of three measurements of a size the median counts
    samples.push_back(transfer_sample(1e4, 1e-4 + 1e4 * 1e-9));
    samples.push_back(transfer_sample(1e6, 5e-3, 8));
    samples.push_back(kernel_sample(operator_class::matmul, 1e9, 1e6, 1e-3));
    samples.push_back(kernel_sample(operator_class::matmul, 2e9, 2e6, 1.5e-3));
    auto const report = fit_samples(samples);
    REQUIRE(report.collectives.size() == 2);
    auto const& four = report.collectives[0];
    CHECK(four.quality.samples == 7);
    CHECK(four.quality.sizes == 5);
    CHECK(four.quality.in_sample.worst < 1e-9);
    CHECK(four.quality.held_out->worst < 1e-9);
    CHECK(four.quality.warnings.empty());
    CHECK(report.collectives[1].ranks == 8);
    CHECK(!report.collectives[1].quality.held_out);
    CHECK(report.collectives[1].quality.warnings.size() == 1);
    REQUIRE(report.operators.size() == 1);
    CHECK(report.operators[0].speed.overhead->value == doctest::Approx(5e-4));
    CHECK(report.operators[0].quality.warnings.size() == 1);
    CHECK(rank_counts(report) == std::set{4, 8});
    auto const models = models_of(report, 8);
    CHECK(!models.link);
    CHECK(models.collectives.at(collective::all_reduce).time(bytes(2e6)).value == doctest::Approx(1e-2));
    CHECK(models.speeds.at("gpu").at(element_type::float32).by_class.contains(operator_class::matmul));
    CHECK(fit_samples(std::vector<sample>{}).collectives.empty());
}

TEST_CASE("kernels of a kind that take longer than its fit says are known one by one") {
    std::vector<sample> samples;
    for (double const size : sizes(1e6, 1e9, 8)) {
        bool const is_slow = samples.size() == 3 || samples.size() == 6;
        auto& s = samples.emplace_back(
            kernel_sample(operator_class::matmul, size, size / 10, size / 1e9 * (is_slow ? 2 : 1)));
        s.of = {"linear", false};
    }
    auto const speed =
        models_of(fit_samples(samples), 1).speeds.at("gpu").at(element_type::float32).by_operator.at({"linear", false});
    for (auto const& s : samples) {
        auto const factor = measured_factor(speed.measured, s.work, s.size).value_or(1);
        double const work = speed.rate ? (s.work / *speed.rate).value : 0,
                     moved = speed.bandwidth ? (s.size / *speed.bandwidth).value : 0,
                     fitted = speed.overhead->value + std::max(work, moved);
        CHECK(factor * fitted == doctest::Approx(s.time.value).epsilon(0.01));
    }
    CHECK(!measured_factor(speed.measured, samples[3].work, samples[4].size));
    CHECK(!measured_factor(speed.measured, samples[3].work * 1.01, samples[3].size));
}

TEST_CASE("kinds of operators have speeds in each pass, without the small kernels beside them") {
    std::vector<sample> samples;
    auto const add = [&](operator_class c, char const* kind, bool is_backward, double size, double time, int beside) {
        auto s = kernel_sample(c, 0, size, time + beside * (1e-6 + size / 1e9));
        s.of = {kind, is_backward};
        s.beside = bytes(beside * size);
        s.kernels_beside = beside;
        samples.push_back(s);
    };
    for (double const size : sizes(1e4, 1e8, 5)) {
        add(operator_class::elementwise, "add", false, size, 1e-6 + size / 1e9, 0);
        add(operator_class::normalisation, "layer_norm", false, size, 2e-6 + size / 5e8, 0);
        add(operator_class::normalisation, "layer_norm", true, size, 3e-6 + size / 2e8, 2);
    }
    auto const models = models_of(fit_samples(samples), 1);
    auto const& found = models.speeds.at("gpu").at(element_type::float32);
    REQUIRE(found.by_operator.size() == 3);
    CHECK(found.by_operator.at({"layer_norm", false}).bandwidth->value == doctest::Approx(5e8));
    CHECK(found.by_operator.at({"layer_norm", true}).bandwidth->value == doctest::Approx(2e8));
    CHECK(found.by_operator.at({"layer_norm", true}).overhead->value == doctest::Approx(3e-6));
    CHECK(found.by_operator.at({"layer_norm", true}).measured.empty()); // all take as long as the fit says
    double const both = found.by_class.at(operator_class::normalisation).bandwidth->value;
    CHECK((both > 2e8 && both < 5e8));
}

TEST_CASE("held-out errors are of a model that has not seen the size") {
    // The largest size alone shows the slope: every model fitted without it says 1e-3.
    std::vector<sample> samples;
    for (double size : {0.0, 1.0, 2.0, 3.0}) samples.push_back(transfer_sample(size, 1e-3));
    samples.push_back(transfer_sample(1e6, 4e-3));
    auto const report = fit_samples(samples);
    CHECK(report.collectives[0].quality.in_sample.worst < 1e-2);
    CHECK(report.collectives[0].quality.held_out->worst == doctest::Approx(0.75));
    CHECK(report.collectives[0].quality.warnings ==
          std::vector<std::string>{"off by up to 75 % at sizes held out: measure more of them"});
}

TEST_CASE("a slow outlier among many sizes moves the fit little, and is told") {
    std::vector<sample> samples;
    for (double size : sizes(1e4, 1e8, 15)) samples.push_back(transfer_sample(size, 1e-4 + size * 1e-9));
    samples[7].time = 20 * samples[7].time;
    auto const found = fit_samples(samples).collectives[0];
    CHECK(worst_error(found.model, {{line(1e-4, 1e-9)}}, 1e4, 1e8) < 0.05);
    REQUIRE(found.quality.warnings.size() == 1);
    CHECK(found.quality.warnings[0] == "off by more than 50 % at 1 of 15 sizes");
}

TEST_CASE("samples that cannot be are refused by number and column") {
    auto const good = kernel_sample(operator_class::matmul, 1, 1, 1);
    auto const message = [&](auto&& change) {
        auto bad = good;
        change(bad);
        try {
            static_cast<void>(fit_samples(std::vector{good, bad}));
        } catch (input_error const& e) { return std::string(e.what()); }
        return std::string("accepted");
    };
    double const nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
    for (double time : {0.0, -1.0, nan, infinity})
        CHECK(message([&](sample& s) { s.time = seconds(time); }) == "sample 1, seconds: expected a positive number");
    for (double size : {-1.0, nan, infinity}) {
        CHECK(message([&](sample& s) { s.size = bytes(size); }) ==
              "sample 1, bytes: expected a number that is not negative");
        CHECK(message([&](sample& s) { s.work = flops(size); }) ==
              "sample 1, flops: expected a number that is not negative");
    }
    CHECK(message([](sample& s) { s.device = ""; }) == "sample 1, device: expected the name of a device type");
    CHECK(message([](sample& s) { s.type.reset(); }) == "sample 1, dtype: expected an element type");
    CHECK(message([](sample& s) { s.what = collective::broadcast; }) == "sample 1, ranks: expected at least 1");
}
