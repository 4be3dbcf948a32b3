// SPDX-License-Identifier: BSL-1.0
// Axioms hold for every program of ours, and for each axiom there is a program that breaks it alone.
#include "support/random_programs.hpp"

#include <heddle/program/axioms.hpp>
#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// loss = sum(relu(x * w)), every part of which can be spoilt.
struct open_program {
    std::vector<tensor_info> tensors{{"x", {6, 4}, element_type::float32, tensor_role::input},
                                     {"w", {4}, element_type::float32, tensor_role::parameter, true},
                                     {"y", {6, 4}},
                                     {"z", {6, 4}},
                                     {"loss", {}}};
    std::vector<std::vector<tensor_id>> reads{{0, 1}, {2}, {3}}, writes{{2}, {3}, {4}};
    std::vector<index_rule> rules{parse_index_rule("(b d), (d) -> (b d); 0*1"), parse_index_rule("(b d) -> (b d)"),
                                  parse_index_rule("(b d) -> (); 0")};
    std::vector<operator_work> works{3};
    tensor_id last = 4;
    /// Another reading gives other operands.
    mutable int readings = 0;
    bool forgets = false;

    open_program() {
        for (std::size_t o = 0; o < rules.size(); ++o) {
            std::vector<tensor_shape> shapes;
            for (auto t : reads[o]) shapes.push_back(tensors[t].shape);
            bind_extents(rules[o], shapes);
        }
    }

    [[nodiscard]] std::size_t tensor_count() const { return tensors.size(); }
    [[nodiscard]] std::size_t operator_count() const { return rules.size(); }
    [[nodiscard]] tensor_info const& tensor(tensor_id t) const { return tensors[t]; }
    [[nodiscard]] std::string name(operator_id o) const { return "op" + std::to_string(o); }
    [[nodiscard]] std::vector<tensor_id> operands(operator_id o) const {
        return forgets && o == 0 && readings++ > 0 ? std::vector<tensor_id>{1, 0} : reads[o];
    }
    [[nodiscard]] std::vector<tensor_id> const& results(operator_id o) const { return writes[o]; }
    [[nodiscard]] index_rule const& rule(operator_id o) const { return rules[o]; }
    [[nodiscard]] operator_work const& work(operator_id o) const { return works[o]; }
    [[nodiscard]] tensor_id loss() const { return last; }
};

} // namespace

TEST_CASE("axioms hold for programs of the library's own") {
    CHECK(broken_axioms(open_program()).empty());
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random);
        CHECK(broken_axioms(p).empty());
        CHECK(broken_axioms(p.retyped(element_type::float16)).empty());
        std::vector<std::vector<extent>> doubled;
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            auto& row = doubled.emplace_back();
            for (auto const& index : p.rule(o).indices) row.push_back(index.extent);
        }
        CHECK(broken_axioms(p.resized(doubled)).empty());
    }
}

TEST_CASE("a broken axiom is told in a sentence") {
    struct broken {
        std::string sentence;
        std::function<void(open_program&)> spoil;
    };
    std::vector<broken> const cases{
        {"tensor 0 'x' has the extent 0", [](auto& p) { p.tensors[0].shape[1] = 0; }},
        {"tensor 2 'y' is trainable, but no parameter and no input", [](auto& p) { p.tensors[2].trainable = true; }},
        {"tensor 1 'w' is trainable, but not of a floating-point type",
         [](auto& p) { p.tensors[1].type = element_type::int32; }},
        {"tensor 5 'left' has the role value, but no operator computes it",
         [](auto& p) { p.tensors.push_back({"left", {2}}); }},
        {"operator 0 'op0' has other operands", [](auto& p) { p.forgets = true; }},
        {"operator 1 'op1' has no result", [](auto& p) { p.writes[1].clear(); }},
        {"operator 0 'op0' uses tensor 9 of 5", [](auto& p) { p.reads[0][0] = 9; }},
        {"operator 0 'op0' uses tensor 3 'z' before it is computed", [](auto& p) { p.reads[0][0] = 3; }},
        {"operator 1 'op1' computes tensor 9 of 5", [](auto& p) { p.writes[1][0] = 9; }},
        {"operator 1 'op1' computes tensor 0 'x', whose role is not value", [](auto& p) { p.writes[1][0] = 0; }},
        {"operator 1 'op1' computes tensor 2 'y' a second time", [](auto& p) { p.writes[1][0] = 2; }},
        {"operator 2 'op2' has 2 operands, its rule 1", [](auto& p) { p.reads[2].push_back(2); }},
        {"operator 1 'op1' has 1 results, its rule 2", [](auto& p) { p.rules[1].results.push_back({}); }},
        {"operator 0 'op0' has a rule that does not fit tensor 1 'w'", [](auto& p) { p.tensors[1].shape[0] = 5; }},
        {"operator 2 'op2' has no extent for the index 'b'", [](auto& p) { p.rules[2].indices[0].extent = 0; }},
        {"operator 1 'op1' reduces over the index 'b', which a result has",
         [](auto& p) { p.rules[1].indices[0].kind = index_kind::reduction; }},
        {"operator 2 'op2' is parallel in the index 'd', which no result has",
         [](auto& p) { p.rules[2].indices[1].kind = index_kind::parallel; }},
        {"operator 0 'op0' has a term of operand 7, there are 2", [](auto& p) { p.rules[0].terms[0][0] = 7; }},
        {"operator 0 'op0' has operand 1 in its terms twice", [](auto& p) { p.rules[0].terms.push_back({1}); }},
        {"operator 1 'op1' has 2 terms without an operand", [](auto& p) { p.rules[1].terms.assign(2, {}); }},
        {"operator 0 'op0' has a term without an operand", [](auto& p) { p.rules[0].terms.emplace_back(); }},
        {"operator 0 'op0' has work of -1", [](auto& p) { p.works[0].forward = flops(-1); }},
        {"operator 0 'op0' has work of inf",
         [](auto& p) { p.works[0].extra_saved = bytes(std::numeric_limits<double>::infinity()); }},
        {"operator 1 'op1' has work that names operand 1, there are 1",
         [](auto& p) { p.works[1].saved_operands = {1}; }},
        {"operator 1 'op1' has work that names result 1, there are 1", [](auto& p) { p.works[1].saved_results = {1}; }},
        {"the loss is tensor 8 of 5", [](auto& p) { p.last = 8; }},
        {"the loss is tensor 1 'w', which no operator computes", [](auto& p) { p.last = 1; }},
        {"the loss has 24 elements, expected one", [](auto& p) { p.last = 3; }},
        {"the loss depends on no trained parameter", [](auto& p) { p.tensors[1].trainable = false; }},
    };
    for (auto const& [sentence, spoil] : cases) {
        CAPTURE(sentence);
        open_program p;
        spoil(p);
        auto const told = broken_axioms(p);
        CHECK(std::ranges::any_of(told, [&](std::string const& t) { return t.find(sentence) != std::string::npos; }));
    }
}
