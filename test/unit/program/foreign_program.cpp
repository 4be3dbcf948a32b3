// SPDX-License-Identifier: BSL-1.0
#include "loops.hpp"

#include <heddle/program/axioms.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <list>
#include <ranges>
#include <string>
#include <vector>

namespace foreign {

/// A loss that is the sum of x * w, in a representation with nothing that Heddle's own has.
struct graph {
    heddle::tensor_info values[4]{{"x", {6, 4}, heddle::element_type::float32, heddle::tensor_role::input, false},
                                  {"w", {4}, heddle::element_type::float32, heddle::tensor_role::parameter, true},
                                  {"y", {6, 4}},
                                  {"loss", {}}};
    std::list<heddle::tensor_id> reads[2]{{0, 1}, {2}}; // forward iteration only
    heddle::index_rule rules[2];
    heddle::operator_work works[2];

    graph() {
        rules[0] = heddle::parse_index_rule("(b d), (d) -> (b d); 0*1");
        rules[1] = heddle::parse_index_rule("(b d) -> (); 0");
        heddle::bind_extents(rules[0], std::vector<heddle::tensor_shape>{{6, 4}, {4}});
        heddle::bind_extents(rules[1], std::vector<heddle::tensor_shape>{{6, 4}});
    }
};

struct no_rules {};

} // namespace foreign

template <>
struct heddle::program_access<foreign::graph> {
    static int tensor_count(foreign::graph const&) { return 4; }
    static short operator_count(foreign::graph const&) { return 2; }
    static tensor_info tensor(foreign::graph const& g, tensor_id t) { return g.values[t]; }
    static char const* name(foreign::graph const&, operator_id o) { return o ? "sum" : "mul"; }
    static auto const& operands(foreign::graph const& g, operator_id o) { return g.reads[o]; }
    static auto results(foreign::graph const&, operator_id o) { return std::views::single(o + 2); }
    static index_rule const& rule(foreign::graph const& g, operator_id o) { return g.rules[o]; }
    static operator_work const& work(foreign::graph const& g, operator_id o) { return g.works[o]; }
    static tensor_id loss(foreign::graph const&) { return 3; }
};

static_assert(heddle::single_device_program<foreign::graph>);
static_assert(heddle::single_device_program<heddle::program>);
static_assert(!heddle::single_device_program<foreign::no_rules>);
static_assert(!heddle::single_device_program<int>);
static_assert(!heddle::single_device_program<heddle::indexed_program>);

TEST_CASE("a foreign program is indexed without a copy of ours") {
    CHECK(heddle::broken_axioms(foreign::graph()).empty());
    auto const p = heddle::index_program(foreign::graph());
    REQUIRE(p.operators.size() == 2);
    CHECK(p.operators[0].name == "mul");
    CHECK(p.operators[1].operands == std::vector<heddle::tensor_id>{2});
    CHECK(p.loss == 3);
    CHECK(p.tensors[3].has_cotangent);
    CHECK_FALSE(p.tensors[0].has_cotangent);
    CHECK(loops(p, 0) == "4 0:1 1:0 -> 0:1\n6 0:0 -> 0:0\n");
    CHECK(loops(p, 1) == "4+ 0:1 ->\n6+ 0:0 ->\n");
}

TEST_CASE("what breaks the axioms of a program is refused by name") {
    auto const message = [](foreign::graph const& g) -> std::string {
        try {
            static_cast<void>(heddle::index_program(g));
        } catch (heddle::input_error const& e) { return e.what(); }
        return "nothing thrown";
    };
    foreign::graph g;
    g.reads[0] = {2, 1};
    CHECK(message(g) == "operator 'mul': uses tensor 'y' before it is computed");
    g.reads[0] = {3, 1};
    CHECK(message(g) == "operator 'mul': its rule does not fit tensor 'loss'");
    g.reads[0] = {9, 1};
    CHECK(message(g) == "operator 'mul': has tensor 9, the program has 4");
    g.reads[0] = {0};
    CHECK(message(g) == "operator 'mul': its rule is of another number of operands or results");
    g.reads[0] = {0, 1, 1};
    CHECK(message(g) == "operator 'mul': its rule is of another number of operands or results");
    g = {};
    g.rules[1].indices[0].extent = 0;
    CHECK(message(g) == "operator 'sum': its rule does not fit tensor 'y'");
}
