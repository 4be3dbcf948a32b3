// SPDX-License-Identifier: BSL-1.0
#include "support/forms.hpp"

#include "support/random_programs.hpp"

#include <heddle/theory/alike_steps.hpp>
#include <heddle/theory/cut_move.hpp>
#include <heddle/theory/cut_state.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/preparations.hpp>
#include <heddle/theory/restorations.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace heddle;
using test::M;
using test::P;
using test::R;
using test::S0;
using test::S1;

/// loss = x w, with w used once.
struct product {
    tensor_id x = 0, w = 0;
    indexed_program p;

    product() {
        program_builder b;
        x = b.input("x", {2, 3});
        w = b.parameter("w", {4, 3});
        operator_options saving;
        saving.saved_operands = {0, 1};
        p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w}, saving)));
    }
    [[nodiscard]] instruction::compute computation(form_list const& operands) const {
        for (auto const& i : computations(p, 0))
            if (i.operands == operands) return i;
        FAIL("no such computation");
        return {};
    }
    [[nodiscard]] std::set<std::string> ways(preparations& all, form_list const& operands,
                                             std::vector<formed_tensor> const& held) const {
        std::set<std::string> lines;
        all.for_each(computation(operands), held, [&](preparation const& one) {
            std::string line;
            for (auto const& i : one.before) line += test::describe(i) + "; ";
            if (!one.after.empty()) line += "then ";
            for (auto const& i : one.after) line += test::describe(i) + "; ";
            CHECK(lines.insert(line).second);
            REQUIRE(one.gained.size() == one.before.size());
            for (std::size_t n = 0; n < one.gained.size(); ++n) {
                CHECK(one.gained[n] == formed_tensor{one.before[n].change()->tensor, one.before[n].change()->to});
                CHECK(std::ranges::count(held, one.gained[n]) == 0);
            }
        });
        return lines;
    }
};

} // namespace

TEST_CASE("a held form is packed and ordered by slot, whether it is saved, and form") {
    held_form const h(5, S1, true);
    CHECK(h.slot() == 5);
    CHECK(h.form() == S1);
    CHECK(h.is_saved());
    CHECK(held_form(h.code()).code() == h.code());
    CHECK(h.at(7).code() == held_form(7, S1, true).code());
    CHECK(held_form(5, S1, false).code() < held_form(5, R, true).code());
    CHECK(held_form(5, S1, true).code() < held_form(6, R, false).code());
    CHECK(slot_of({3, 8}, 8) == 1);
    CHECK_FALSE(slot_of({3, 8}, 5));
}

TEST_CASE("what is held needs no preparation") {
    product const s;
    preparations all(s.p);
    CHECK(s.ways(all, {S0, R}, {{s.x, S0}, {s.w, R}}) == std::set<std::string>{""});
    CHECK(all.is_complete());
}

TEST_CASE("a parameter that is held is converted, straight or through a whole copy, and not read again") {
    product const s;
    preparations all(s.p);
    CHECK(s.ways(all, {S0, R}, {{s.x, S0}, {s.w, S1}}) == std::set<std::string>{"convert 1 shard(1) -> replicated; "});
    CHECK(s.ways(all, {R, P}, {{s.x, R}, {s.w, S0}}) ==
          std::set<std::string>{"convert 1 shard(0) -> replicated; convert 1 replicated -> partial; ",
                                "convert 1 shard(0) -> mirrored; convert 1 mirrored -> partial; "});
}

TEST_CASE("a parameter that is used whole is read so, or along its finest factor and gathered in every way") {
    product const s;
    preparations all(s.p);
    std::vector<formed_tensor> const held{{s.x, S0}};
    CHECK(
        s.ways(all, {S0, R}, held) ==
        std::set<std::string>{"read 1 replicated; ", "read 1 replicated, state shard(0); ",
                              "read 1 shard(0); convert 1 shard(0) -> replicated; ",
                              "read 1 shard(0); unshard 1 shard(0) -> replicated; ",
                              "read 1 shard(0); unshard 1 shard(0) -> replicated, twice; then reshard 1 replicated -> "
                              "shard(0); "});
    all.restrict_to([](instruction const& i) {
        auto const* const read = i.as<instruction::read>();
        return !i.is<instruction::unshard>() && (!read || read->to == S1);
    });
    CHECK(s.ways(all, {S0, R}, held) == std::set<std::string>{"read 1 shard(1); convert 1 shard(1) -> replicated; "});
}

TEST_CASE("equal instructions and moves have one number, dense and in the order in which they are met") {
    move_table table;
    product const s;
    auto const read = table.intern(0, instruction::read(1, S0, R));
    auto const kept = table.intern(0, instruction::unshard(1, S0, R, false));
    CHECK(read == 0);
    CHECK(kept == 1);
    CHECK(table.intern(0, instruction::read(1, S0, R)) == read);
    std::set<std::uint32_t> different{read, kept};
    different.insert(table.intern(0, instruction::unshard(1, S0, R, true)));
    different.insert(table.intern(0, instruction::reshard(1, S0, R)));
    different.insert(table.intern(0, instruction::convert(1, S0, R)));
    different.insert(table.intern(0, instruction::read(1, R)));
    different.insert(table.intern(0, instruction::read(2, S0, R)));
    different.insert(table.intern(3, instruction::read(1, S0, R))); // for another operator
    for (auto const& i : computations(s.p, 0)) different.insert(table.intern(0, i));
    auto const count = 8 + computations(s.p, 0).size();
    CHECK(different.size() == count);
    CHECK(table.instructions().size() == count);
    CHECK(table.instructions()[kept] == instruction::unshard(1, S0, R, false));

    cut_move const move{0, 0, {read, kept}, {{1, R}}, false};
    CHECK(table.intern(move) == 0);
    CHECK(table.intern(move) == 0);
    CHECK(table.intern(cut_move{1, 0, {read, kept}, {{1, R}}, false}) == 1);
    CHECK(table.intern(cut_move{0, 1, {read, kept}, {{1, R}}, false}) == 2);
    CHECK(table.intern(cut_move{0, 0, {read}, {{1, R}}, false}) == 3);
    CHECK(table.intern(cut_move{0, 0, {read, kept}, {{1, M}}, false}) == 4);
    CHECK(table.intern(cut_move{0, 0, {read, kept}, {{1, R}}, true}) == 5);
    CHECK(table.moves().size() == 6);
}

TEST_CASE("an instruction of one operator is that of another of its kind, on the tensors in the same positions") {
    program_builder b;
    auto x = b.input("x", {8, 4});
    std::vector<tensor_id> weights;
    for (char const* name : {"u", "v", "w"}) { // the first is of another kind: its operand has no cotangent
        weights.push_back(b.parameter(name, {4, 4}));
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, weights.back()});
    }
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {x})));
    REQUIRE(operator_kinds(p)[2] == 1);
    CHECK(counterpart(p, weights[1], 1, 2) == weights[2]);
    CHECK(counterpart(p, instruction::unshard(weights[2], S0, R, true), 2, 1) ==
          instruction::unshard(weights[1], S0, R, true));
    auto const first = computations(p, 1), second = computations(p, 2);
    REQUIRE(first.size() == second.size());
    for (std::size_t n = 0; n < first.size(); ++n) CHECK(counterpart(p, first[n], 1, 2) == instruction(second[n]));
}

TEST_CASE("operators that compute different things are of different kinds, as their speeds may differ") {
    program_builder b;
    auto x = b.input("x", {8, 4});
    for (char const* kind : {"linear", "linear", "linear", "other"})
        x = b.apply(kind, "(b k), (n k) -> (b n); 0*1", {x, b.parameter("w", {4, 4})});
    auto const kinds = operator_kinds(index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {x}))));
    CHECK(kinds[2] == kinds[1]);
    CHECK(kinds[3] != kinds[1]);
}

TEST_CASE("steps of repeated blocks are alike, unless marks tell them apart or nothing says that they may be") {
    program_builder b;
    auto x = b.input("x", {8, 4});
    std::vector<tensor_id> weights;
    for (int layer = 0; layer < 4; ++layer) {
        weights.push_back(b.parameter("w" + std::to_string(layer), {4, 4}));
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, weights.back()});
    }
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {x})));
    operator_cuts const cuts(p, 1);
    auto kinds = operator_kinds(p);
    kinds.push_back(static_cast<operator_id>(p.operators.size()));
    auto const levels = [&](std::function<std::uint64_t(tensor_id)> const& mark) {
        alike_steps const alike(p, cuts, kinds, mark);
        std::vector<std::uint64_t> numbers;
        for (std::size_t level = 0; level <= p.operators.size() + 1; ++level) {
            numbers.push_back(alike.level(level));
            for (std::size_t before = 0; before < level && level <= p.operators.size(); ++before)
                CHECK((alike.step(before, 0, 0) == alike.step(level, 0, 0)) == (numbers[before] == numbers[level]));
        }
        return numbers;
    };
    // The first layer takes what has no cotangent.
    CHECK(levels([](tensor_id) { return 0; }) == std::vector<std::uint64_t>{0, 1, 1, 1, 2, 3, 4});
    CHECK(levels([&](tensor_id t) { return t == weights[2]; }) == std::vector<std::uint64_t>{0, 1, 2, 1, 3, 4, 5});
    CHECK(levels({}) == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("few sets of forms are told apart of what is restored") {
    program_builder b;
    auto const x = b.input("x", {2, 4});
    auto const w = b.parameter("w", {4, 4}), late = b.parameter("late", {4, 4}), bias = b.parameter("bias", {4});
    auto const y =
        b.apply("add", "(b n), (n) -> (b n)", {b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}), bias});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {y, late})));
    auto const codes_of = [&](tensor_id t) {
        restorations::form_codes codes;
        for (auto f : possible_forms(p.tensors[t])) codes.push_back(f.code());
        return codes;
    };
    CHECK(codes_of(w) == restorations::form_codes{R.code(), P.code(), M.code(), S0.code(), S1.code()});
    restorations r;
    r.set(p, operator_kinds(p), {{w, late, 0, 0}, {bias, late, 0, 0}});
    std::vector<restorations::form_codes> sets; // of two and more of seven codes
    for (unsigned subset = 1; subset < 128; ++subset) {
        restorations::form_codes codes;
        for (std::uint16_t code = 0; code < 7; ++code)
            if (subset >> code & 1) codes.push_back(code);
        if (codes.size() > 1 && codes != codes_of(w)) sets.push_back(codes);
    }
    for (std::size_t n = 0; n < sets.size(); ++n)
        CHECK(r.note(w, p.tensors[w], sets[n]) == (n < 64 ? sets[n] : codes_of(w)));
    CHECK(r.note(w, p.tensors[w], sets.front()) == sets.front());
    CHECK(r.note(w, p.tensors[w], {S0.code()}) == restorations::form_codes{S0.code()});
    CHECK(r.note(bias, p.tensors[bias], {S0.code()}) == codes_of(bias));
}
