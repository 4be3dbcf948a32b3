// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/inside.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
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

TEST_CASE("collectives measured inside machines hold on other numbers of devices, and where a machine is all") {
    cluster c;
    c.types = {
        {"a", bytes(1e9), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{0, 8, 2}};
    c.intra = network_link{bytes_per_second(1e10), seconds(1e-5)};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-4)};
    auto const links = c;
    // Twice what the link says and, of large ones, three times; an all-to-all half of it.
    auto const line = [&](collective kind) { return line_inside(kind, 8, *c.intra); };
    auto const sum = line(collective::all_reduce), exchange = line(collective::all_to_all);
    c.measured_inside = {8,
                         {{collective::all_reduce, {{{2 * sum.latency, 2 * sum.slope}, {seconds(0), 3 * sum.slope}}}},
                          {collective::all_to_all, {{{0.5 * exchange.latency, 0.5 * exchange.slope}}}}}};
    validate(c);
    auto const time = [](cluster const& of, inside_step kind, int members, double size) {
        return cost_model(of, {{0, 2, 8}}).inside({kind, {}, {}, members}, 0)(size);
    };
    for (int const members : {2, 4, 8})
        for (double const size : {0.0, 1e3, 1e9}) {
            CAPTURE(members);
            CAPTURE(size);
            auto const of_link = [&](inside_step kind) { return time(links, kind, members, size); };
            auto const [latency, slope] = time_inside(inside_step::all_reduce, members, *c.intra);
            CHECK(time(c, inside_step::all_reduce, members, size) ==
                  doctest::Approx(std::max(2 * (latency.value + slope.value * size), 3 * slope.value * size)));
            CHECK(time(c, inside_step::all_to_all, members, size) ==
                  doctest::Approx(0.5 * of_link(inside_step::all_to_all)));
            for (auto const not_measured : {inside_step::all_gather, inside_step::broadcast, inside_step::scatter})
                CHECK(time(c, not_measured, members, size) == of_link(not_measured));
        }

    auto one = c, other = links;
    for (auto* const machine : {&one, &other}) machine->machines = {{0, 4, 1}};
    for (double const size : {1e3, 1e9}) {
        CHECK(model_of(one, collective::all_to_all).time(bytes(size)).value ==
              doctest::Approx(0.5 * model_of(other, collective::all_to_all).time(bytes(size)).value));
        // Also along the axis of groups of such a machine, on whichever way they were made.
        std::vector<std::size_t> const devices{4, 5, 6, 7};
        auto const pairs = with_groups_of(one, 2);
        auto const of_plan = cluster_of(c, devices, std::vector<int>{2, 2});
        auto const pairs_by_link = with_groups_of(other, 2);
        auto const sums = [&](cluster const& of) {
            return model_of(of, collective::all_to_all).time(bytes(size)).value;
        };
        CHECK(sums(pairs) == doctest::Approx(0.5 * sums(pairs_by_link)));
        CHECK(sums(of_plan) == doctest::Approx(sums(pairs)));
    }
    // Across machines the links say more than what is known of one.
    CHECK(model_of(c, collective::all_reduce).pieces.size() == 1);
    auto measured = c;
    measured.measured[collective::all_reduce].pieces = {{seconds(1), seconds_per_byte(1)}};
    CHECK(model_of(cluster_of(measured, std::vector<std::size_t>{0, 1, 2, 3}, std::vector<int>{2, 2}),
                   collective::all_reduce)
              .time(bytes(1e3)) < seconds(1)); // what was measured across machines says nothing of a part of one
    // All devices of one machine tell of what is inside once they are in groups.
    auto alone = links;
    alone.machines = {{0, 8, 1}};
    alone.measured[collective::all_gather].pieces = {{seconds(7), seconds_per_byte(0)}};
    CHECK(time(with_grouped_machines(alone), inside_step::all_gather, 8, 1e3) == doctest::Approx(7));
    std::vector<std::size_t> const all{0, 1, 2, 3, 4, 5, 6, 7};
    CHECK(time(cluster_of(alone, all, std::vector<int>{8}), inside_step::all_gather, 8, 1e3) == doctest::Approx(7));
    CHECK(time(cluster_of(alone, all, std::vector<int>{4, 4}), inside_step::all_gather, 4, 1e3) ==
          time(with_groups_of(alone, 4), inside_step::all_gather, 4, 1e3));
    CHECK(model_of(with_groups_of(with_grouped_machines(alone), 2), collective::all_gather).time(bytes(1e3)) ==
          model_of(with_groups_of(alone, 2), collective::all_gather).time(bytes(1e3)));
    alone.measured_inside = {4, {{collective::broadcast, {{{seconds(3), seconds_per_byte(0)}}}}}};
    CHECK(time(with_grouped_machines(alone), inside_step::all_gather, 8, 1e3) == doctest::Approx(7));
    CHECK(time(with_grouped_machines(alone), inside_step::broadcast, 4, 1e3) == doctest::Approx(3));

    auto const fast = with_links_within_measured(c);
    CHECK(fast.measured_inside.models.empty());
    CHECK(fast.inter->bandwidth == c.inter->bandwidth);
    for (int const members : {2, 4, 8})
        for (double const size : {0.0, 1e3, 1e9})
            for (std::size_t s = 1; s < inside_step_count; ++s) {
                auto const kind = static_cast<inside_step>(s);
                CHECK(time(fast, kind, members, size) <= time(c, kind, members, size) * (1 + 1e-12));
            }

    c.measured_inside.devices = 1;
    CHECK_THROWS_WITH_AS(validate(c), doctest::Contains("collectives_inside, devices"), input_error);
    c.measured_inside = {2, {{collective::broadcast, {}}}};
    CHECK_THROWS_WITH_AS(validate(c), doctest::Contains("collectives_inside, broadcast"), input_error);
}

TEST_CASE("collectives measured along a line of machines are the time of such lines") {
    auto links = two_kinds();
    links.machines = {{0, 8, 4}};
    auto c = links;
    auto const sum = line_inside(collective::all_reduce, 4, *c.inter);
    c.measured_across = {4, {{collective::all_reduce, {{{2 * sum.latency, 3 * sum.slope}}}}}};
    validate(c);
    auto const differs_by = [&](cluster const& of, cluster const& by_links, collective kind, double latencies,
                                double slopes) {
        auto const measured = model_of(of, kind).pieces.at(0), line = model_of(by_links, kind).pieces.at(0);
        CHECK(measured.latency.value == doctest::Approx(latencies * line.latency.value));
        CHECK(measured.slope.value == doctest::Approx(slopes * line.slope.value));
    };
    differs_by(with_grouped_machines(c), with_grouped_machines(links), collective::all_reduce, 2, 3);
    CHECK(model_of(with_grouped_machines(c), collective::all_reduce).pieces.at(0).slope == 3 * sum.slope);
    differs_by(with_grouped_machines(c), with_grouped_machines(links), collective::all_gather, 1, 1);
    differs_by(with_groups_of(c, 16), with_groups_of(links, 16), collective::all_reduce, 2, 3);
    differs_by(c, links, collective::all_reduce, 1,
               1); // all devices are no such line, and groups of one machine neither
    differs_by(with_groups_of(c, 4), with_groups_of(links, 4), collective::all_reduce, 1, 1);
    std::vector<std::size_t> const two_machines{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    std::vector<int> const whole{8, 8}, halves{4, 4};
    differs_by(cluster_of(c, two_machines, whole), cluster_of(links, two_machines, whole), collective::all_reduce, 2,
               3);
    std::vector<int> const all_halves{4, 4, 4, 4};
    differs_by(cluster_of(c, two_machines, all_halves), cluster_of(links, two_machines, all_halves),
               collective::all_reduce, 1, 1);
    std::vector<std::size_t> const one_machine{0, 1, 2, 3, 4, 5, 6, 7};
    differs_by(cluster_of(c, one_machine, halves), cluster_of(links, one_machine, halves), collective::all_reduce, 1,
               1);
    // What was measured along lines tells more of them than what was measured on all devices.
    auto both = c, on_all = links;
    for (auto* const of : {&both, &on_all})
        of->measured[collective::all_reduce] =
            scaled(model_of(links, collective::all_reduce), {seconds(5), seconds_per_byte(5)},
                   {seconds(1), seconds_per_byte(1)});
    differs_by(with_grouped_machines(both), with_grouped_machines(links), collective::all_reduce, 2, 3);
    differs_by(with_grouped_machines(on_all), with_grouped_machines(links), collective::all_reduce, 5, 5);
    differs_by(both, links, collective::all_reduce, 5, 5);
    // A line that is all devices was measured itself.
    auto line = both;
    line.machines = {{0, 1, 4}};
    CHECK(measured_on(line, line).at(collective::all_reduce).pieces.at(0).slope ==
          line.measured.at(collective::all_reduce).pieces.at(0).slope);
    line.measured.clear();
    auto by_links = line;
    by_links.measured_across = {};
    differs_by(line, by_links, collective::all_reduce, 2, 3);
    // So it does of the link, where several machines are a slice.
    CHECK(measured_link(both).bandwidth.value == doctest::Approx(links.inter->bandwidth.value / 3));
    CHECK(measured_link(both).latency.value == doctest::Approx(links.inter->latency.value * 2));
    CHECK(measured_link(on_all).bandwidth.value == doctest::Approx(links.inter->bandwidth.value / 5));

    c.measured_across.models[collective::all_gather].pieces = {{seconds(0), seconds_per_byte(1e-15)}};
    auto const fast = with_links_within_measured(c);
    CHECK(fast.measured_across.models.empty());
    CHECK(fast.intra->bandwidth == c.intra->bandwidth);
    for (auto const kind : {collective::all_reduce, collective::all_gather, collective::all_to_all})
        for (double const size : {0.0, 1e3, 1e9})
            CHECK(model_of(with_grouped_machines(fast), kind).time(bytes(size)) <=
                  model_of(with_grouped_machines(c), kind).time(bytes(size)) * (1 + 1e-12));

    c.measured_across.devices = 1;
    CHECK_THROWS_WITH_AS(validate(c), doctest::Contains("collectives_across, machines"), input_error);
    c.measured_across.devices = 4;
    c.inter.reset();
    c.machines = {{0, 8, 1}};
    CHECK_THROWS_WITH_AS(validate(c), doctest::Contains("collectives_across"), input_error);
}
