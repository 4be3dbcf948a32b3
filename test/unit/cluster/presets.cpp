// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/fitted.hpp>
#include <heddle/cluster/presets.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {
using namespace heddle;
}

TEST_CASE("presets are devices of a valid cluster, slower than their peaks") {
    std::set<std::string_view> names;
    for (auto const& peaks : presets::all) {
        CAPTURE(peaks.name);
        CHECK(names.insert(peaks.name).second);
        auto const type = presets::find(peaks.name);
        REQUIRE(type.has_value());
        cluster c;
        c.types = {*type};
        c.machines = {{0, 1, 1}};
        CHECK_NOTHROW(validate(c));
        CHECK(type->bandwidth < peaks.bandwidth);
        auto const& single = type->rates.at(element_type::float32);
        CHECK(single.at(operator_class::matmul) < peaks.float32);
        CHECK(single.at(operator_class::normalisation) < single.fallback);
        CHECK(type->rates.contains(element_type::bfloat16) == (peaks.bfloat16.value > 0));
    }
    CHECK(!presets::find("abacus"));
}

TEST_CASE("the V100 of the presets is the one fitted") {
    auto const v100 = presets::make(presets::v100);
    auto const matmul = v100.rates.at(element_type::float32).of(operator_class::matmul);
    CHECK(matmul.rate->value == doctest::Approx(14.01e12).epsilon(1e-3));
    CHECK(matmul.overhead->value == doctest::Approx(55.88e-6).epsilon(1e-3));
    CHECK(v100.bandwidth.value == doctest::Approx(745.1e9).epsilon(1e-3));
    CHECK(v100.rates.at(element_type::float32).at(operator_class::normalisation).value ==
          doctest::Approx(0.3932e12).epsilon(1e-3));
}

TEST_CASE("fitted models that fit a cluster go where they belong") {
    cluster c;
    c.types = {presets::make(presets::p100)};
    c.machines = {{0, 2, 1}};
    c.intra = network_link{bytes_per_second(1e9), seconds(0)};
    fitted_models models{2, {{collective::all_gather, {{{seconds(1), seconds_per_byte(2)}}}}}, {}};
    class_speed const speed{flops_per_second(1e12), {}, seconds(1e-5)};
    models.speeds["P100"][element_type::float32].by_class[operator_class::convolution] = speed;
    models.speeds["P100"][element_type::float64].by_class[operator_class::matmul] = speed;
    models.speeds["abacus"][element_type::float32].by_class[operator_class::matmul] = speed;
    models.speeds["P100"][element_type::float32].by_operator[{"softmax", true}] = speed;
    auto const before = c.types[0].rates.at(element_type::float32);
    auto const left_out = put_into(c, models);
    CHECK_NOTHROW(validate(c));
    REQUIRE(left_out.size() == 1);
    CHECK(left_out[0] == "the cluster has no device type 'abacus': its rates are left out");
    CHECK(c.measured.at(collective::all_gather).time(bytes(3)) == seconds(7));
    auto const& single = c.types[0].rates.at(element_type::float32);
    CHECK(single.by_operator.at({"softmax", true}).rate == speed.rate);
    CHECK(single.of(operator_class::convolution).overhead == seconds(1e-5));
    CHECK(single.at(operator_class::matmul) == before.at(operator_class::matmul));
    auto const& twice = c.types[0].rates.at(element_type::float64);
    CHECK(twice.at(operator_class::matmul).value == 1e12);
    CHECK(twice.fallback == before.fallback);
    CHECK(!twice.by_class.contains(operator_class::convolution));

    models.ranks = 4;
    models.speeds.clear();
    models.link = network_link{bytes_per_second(3e9), seconds(2)};
    CHECK(put_into(c, models).size() == 1);
    CHECK(c.intra->bandwidth.value == 3e9); // the first two devices are of one machine
    CHECK(!c.inter);
}
