// SPDX-License-Identifier: BSL-1.0
// Random plans on random device groups compute what the single device computes, and carry across and inside the groups
// the bytes that they charge.
#include "emulation.hpp"

#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/device_groups.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>

using namespace heddle;

namespace {

/// How often each step inside groups has been charged, and operators have been split inside or not.
void count(test::grouped_case const& c, std::map<std::string, int>& seen) {
    for (auto const& s : c.plan.steps) {
        for_each_transfer(s.step, [&](transfer const& t) {
            ++seen[std::string(name(t.before)) + ", " + name(t.kind) + ", " + name(t.after)];
        });
        for (auto const* list : {&s.step.inside_forward, &s.step.inside_backward, &s.step.inside_update})
            for (auto const& t : *list) ++seen[name(t.kind)];
        auto const* const compute = s.instruction.as<instruction::compute>();
        if (!compute) continue;
        auto const& op = c.indexed.operators[compute->op];
        ++seen[op.inside_loop < 0                ? "whole inside"
               : op.inside_loop == compute->loop ? "split along the batch twice"
               : compute->loop >= 0              ? "split two ways"
                                                 : "split inside"];
        if (gathers_factors(*compute)) ++seen["factors"];
    }
}

} // namespace

TEST_CASE("random plans on device groups compute what the single device does and carry what they charge") {
    std::map<std::string, int> seen;
    int trivial = 0;
    for (std::uint64_t seed = 1; seed <= (test::sanitized ? 60 : 600); ++seed) {
        CAPTURE(seed);
        std::optional<test::grouped_case> made;
        try {
            made = test::random_grouped_case(seed);
        } catch (input_error const&) {
            continue; // no program of the catalogue
        }
        INFO(test::describe(made->program), test::describe(made->plan));
        auto const verified = verify(made->indexed, made->plan);
        REQUIRE_MESSAGE(verified, verified.problem);
        auto const shown = test::emulate(made->program, made->plan, seed);
        if (!shown && std::abs(shown.expected_loss) < 1e-12) { // all of it is rounding
            ++trivial;
            continue;
        }
        CHECK_MESSAGE(shown, shown.problem);
        count(*made, seen);
    }
    CHECK(trivial < 5);
    if (test::sanitized) return;
    for (char const* kind : {"reduce",
                             "all_reduce",
                             "all_gather",
                             "broadcast",
                             "gather",
                             "scatter",
                             "none, all_gather, broadcast",
                             "none, all_reduce, none",
                             "none, all_reduce, broadcast",
                             "none, reduce_scatter, none",
                             "gather, all_gather, scatter",
                             "gather, all_to_all, scatter",
                             "gather, reduce_scatter, scatter",
                             "gather, all_reduce, scatter",
                             "gather, all_gather, none",
                             "whole inside",
                             "split along the batch twice",
                             "split two ways",
                             "split inside",
                             "factors"}) {
        CAPTURE(kind);
        CHECK(seen[kind] > 0);
    }
}

TEST_CASE("a plan on groups of other sizes is as right") {
    for (std::uint64_t seed : {3u, 5u, 7u, 11u}) {
        auto made = test::random_grouped_case(seed);
        for (int size : {2, 3, 5}) {
            for (auto& d : made.plan.devices) d.group_size = size;
            CAPTURE(seed);
            CAPTURE(size);
            REQUIRE(verify(made.program, made.plan));
            auto const shown = test::emulate(made.program, made.plan, seed);
            CHECK_MESSAGE(shown, shown.problem);
            CHECK(shown.ranks == made.plan.devices.size() * static_cast<std::size_t>(size));
        }
    }
}

TEST_CASE("what a plan says of its groups is checked against the model") {
    auto const made = test::random_grouped_case(3);
    REQUIRE(verify(made.program, made.plan));
    auto single = made.plan;
    for (auto& d : single.devices) d.group_size = 1;
    CHECK_FALSE(verify(made.program, single));
    bool any = false;
    for (std::size_t t = 0; t < made.plan.tensors.size(); ++t) {
        if (made.plan.tensors[t].inside == no_factor) continue;
        auto other = made.plan;
        other.tensors[t].inside = no_factor;
        CHECK_FALSE(verify(made.program, other));
        any = true;
    }
    CHECK(any);
    bool changed = false;
    for (std::size_t n = 0; n < made.plan.steps.size(); ++n) {
        auto other = made.plan;
        if (other.steps[n].step.inside_update.empty()) continue;
        other.steps[n].step.inside_update.clear();
        CHECK_FALSE(verify(made.program, other));
        changed = true;
    }
    CHECK(changed);
}
