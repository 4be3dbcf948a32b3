// SPDX-License-Identifier: BSL-1.0
#include <heddle/balance/smooth_curve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace heddle;

void check_derivatives(smooth_curve const& curve, double x, double scale) {
    double const h = 1e-5;
    auto const before = curve.at(x - h), at = curve.at(x), after = curve.at(x + h);
    CAPTURE(x);
    CHECK(std::abs((after.value - before.value) / (2 * h) - at.slope) < 1e-5 * scale);
    CHECK(std::abs((after.slope - before.slope) / (2 * h) - at.curvature) < 1e-5 * scale);
    auto const line = curve.tangent(x);
    CHECK(line.at(x) == doctest::Approx(at.value));
    CHECK(line.slope == at.slope);
}

/// The efficiency (r + a) / (1 + a) rises from a part of the rate to all of it.
curve_point rising(double r) { return {(r + 0.5) / 1.5, 1 / 1.5, 0}; }

} // namespace

TEST_CASE("curves have the derivatives they give") {
    smooth_curve const efficiency = work_at_efficiency(seconds(3), rising, false);
    smooth_curve const volume = exchanged_volume(seconds(1), seconds(4));
    for (double x : {0.01, 0.1, 0.3, 0.5, 0.9}) {
        check_derivatives(efficiency, x, 30);
        check_derivatives(volume, x, 30);
        for (double scale : {0.02, 0.3, 5.0}) check_derivatives(saturating_work(seconds(2), scale), x, 30 / scale);
        for (double scale : {0.02, 0.3, 5.0})
            check_derivatives(saturating_work(seconds(2), scale, 0.2), x, 300 / scale);
        check_derivatives(larger_of(saturating_work(seconds(2), 0.3), {1.5, -1}, 0.1), x, 300);
    }
    CHECK(efficiency.at(0.5).value == doctest::Approx(3 * 0.5 * 1.5));
    CHECK(volume.at(0.25).value == doctest::Approx(1 + 4 * 0.1875));
}

TEST_CASE("the larger of a curve and a line is rounded off where they meet, and keeps what is convex") {
    auto const curve = saturating_work(seconds(2), 0.3);
    affine const line{1.5, -1};
    auto const larger = larger_of(curve, line, 0.01);
    CHECK(larger.is_convex);
    CHECK_FALSE(larger_of(exchanged_volume(seconds(0), seconds(1)), line, 0.01).is_convex);
    for (double x = 0; x <= 1; x += 1.0 / 128) {
        double const most = std::max(curve.at(x).value, line.at(x));
        CHECK(larger.at(x).value >= most);
        CHECK(larger.at(x).value <= most + 0.005);
        CHECK(larger.at(x).curvature >= 0);
    }
}

TEST_CASE("work that starts from a part of the rate takes that of it at first, all of it in the end, and always longer "
          "for more") {
    auto const work = saturating_work(seconds(2), 0.1, 0.25);
    CHECK_FALSE(work.is_convex);
    CHECK(work.at(0).value == 0);
    CHECK(work.at(0).slope == doctest::Approx(2 / 0.25));
    CHECK(work.at(0).curvature < 0);
    CHECK(work.at(1).value == doctest::Approx(2).epsilon(1e-4));
    for (double x = 0; x <= 1; x += 1.0 / 64) CHECK(work.at(x).slope > 0);
}

TEST_CASE("saturating work takes its scale at first and its share in the end, and is smooth where its series ends") {
    auto const work = saturating_work(seconds(2), 0.1);
    CHECK(work.at(0).value == doctest::Approx(0.2));
    CHECK(work.at(1).value == doctest::Approx(2).epsilon(1e-4));
    double const edge = 0.05 * 0.1;
    auto const below = work.at(edge * (1 - 1e-12)), above = work.at(edge * (1 + 1e-12));
    CHECK(below.value == doctest::Approx(above.value).epsilon(1e-13));
    CHECK(below.slope == doctest::Approx(above.slope).epsilon(1e-10));
    CHECK(below.curvature == doctest::Approx(above.curvature).epsilon(1e-8));
}
