// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/inside.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace heddle;

cluster two_kinds() {
    cluster c;
    c.types = {
        {"a", bytes(1e9), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}},
        {"b", bytes(1e9), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{0, 8, 1, true}, {1, 2, 1}, {1, 4, 2, true}};
    c.intra = network_link{bytes_per_second(1e10), seconds(1e-5)};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-4)};
    return c;
}

} // namespace

TEST_CASE("a grouped machine is one device") {
    auto c = two_kinds();
    validate(c);
    CHECK(has_groups(c));
    CHECK(c.devices() == std::vector<std::size_t>{0, 1, 1, 1, 1});
    CHECK(c.group_sizes() == std::vector<int>{8, 1, 1, 4, 4});
    // A ring of five, whatever the groups hold.
    auto const ring = model_of(c, collective::all_reduce).pieces.at(0);
    CHECK(ring.latency.value == doctest::Approx(8e-4));
    CHECK(ring.slope.value == doctest::Approx(2 * 0.8e-9));
    c.intra.reset();
    CHECK_THROWS_AS(validate(c), input_error);
    for (auto& m : c.machines) m.devices = 1;
    CHECK_NOTHROW(validate(c));
    CHECK_FALSE(has_groups(c));
}

TEST_CASE("all machines of several devices become groups") {
    auto c = two_kinds();
    for (auto& m : c.machines) m.is_group = false;
    CHECK(c.devices().size() == 18);
    auto const grouped = with_grouped_machines(c);
    CHECK(grouped.group_sizes() == std::vector<int>{8, 2, 4, 4});
}

TEST_CASE("machines divide into groups") {
    auto c = two_kinds();
    auto const pairs = with_groups_of(c, 2);
    validate(pairs);
    CHECK(pairs.group_sizes() == std::vector<int>(9, 2));
    CHECK(pairs.devices() == std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 1, 1, 1});
    CHECK(pairs.inter->bandwidth.value == c.inter->bandwidth.value);
    CHECK_THROWS_WITH_AS((void)with_groups_of(c, 4), doctest::Contains("a machine of 2 devices"), input_error);
    c.machines = {{0, 8, 1}}; // groups of one machine are joined by its own links
    auto const halves = with_groups_of(c, 4);
    CHECK(halves.group_sizes() == std::vector<int>{4, 4});
    CHECK(halves.inter->bandwidth.value == c.intra->bandwidth.value);
    CHECK(network_cards(halves) == 4);
}

TEST_CASE("collectives on a part, or on groups, are as much slower than links say as those that were measured") {
    auto c = two_kinds();
    for (auto& m : c.machines) m.is_group = false;
    auto const links = model_of(c, collective::all_reduce).pieces.at(0);
    c.measured[collective::all_reduce].pieces = {{3 * links.latency, 0.5 * links.slope},
                                                 {links.latency, 2 * links.slope}};
    auto const check = [&](cluster part) {
        auto const measured = measured_on(part, c);
        part.measured.clear();
        auto const line = model_of(part, collective::all_reduce).pieces.at(0);
        auto const& pieces = measured.at(collective::all_reduce).pieces;
        REQUIRE(pieces.size() == 2);
        CHECK(measured.size() == 1);
        CHECK(pieces[0].latency.value == doctest::Approx(3 * line.latency.value));
        CHECK(pieces[0].slope.value == doctest::Approx(0.5 * line.slope.value));
        CHECK(pieces[1].latency.value == doctest::Approx(line.latency.value));
        CHECK(pieces[1].slope.value == doctest::Approx(2 * line.slope.value));
    };
    check(c);
    check(with_grouped_machines(c));
    check(with_groups_of(c, 2));
    auto part = c;
    part.machines = {{0, 3, 1}, {1, 1, 2}};
    check(part);
    part.machines = {{0, 8, 1}}; // what was measured says nothing of links inside
    CHECK(measured_on(part, c).empty());
    auto const grouped = with_grouped_machines(c);
    CHECK(with_grouped_machines(grouped).measured.at(collective::all_reduce).time(bytes(1e6)) ==
          grouped.measured.at(collective::all_reduce).time(bytes(1e6)));

    auto const fast = with_links_within_measured(c);
    CHECK(fast.measured.empty());
    for (double const size : {0.0, 1e3, 1e9}) {
        auto const within = model_of(fast, collective::all_reduce).time(bytes(size)),
                   measured = model_of(c, collective::all_reduce).time(bytes(size));
        CHECK(within <= measured * (1 + 1e-12));
        CHECK(within > seconds(0.1 * measured.value * (size > 0)) - seconds(1e-12));
    }
}

TEST_CASE("steps inside a group are lines in the bytes of the whole tensor") {
    network_link const link{bytes_per_second(1e10), seconds(1e-5)};
    struct {
        inside_step kind;
        double latencies, passes;
    } const expected[]{{inside_step::reduce, 3, 1},       {inside_step::broadcast, 3, 1},
                       {inside_step::gather, 4, 0.8},     {inside_step::scatter, 4, 0.8},
                       {inside_step::all_gather, 4, 0.8}, {inside_step::all_reduce, 8, 1.6},
                       {inside_step::none, 0, 0}};
    for (auto const& e : expected) {
        CAPTURE(std::string(name(e.kind)));
        auto const line = time_inside(e.kind, 5, link);
        CHECK(line.latency.value == doctest::Approx(e.latencies * 1e-5));
        CHECK(line.slope.value == doctest::Approx(e.passes * 1e-10));
        CHECK(time_inside(e.kind, 1, link).latency == seconds(0));
        CHECK(time_inside(e.kind, 1, link).slope == seconds_per_byte(0));
    }
}
