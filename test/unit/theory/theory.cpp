// SPDX-License-Identifier: BSL-1.0
#include "support/forms.hpp"

#include "support/random_programs.hpp"

#include <heddle/cost/step.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

namespace {

using namespace heddle;
using test::M;
using test::P;
using test::R;
using test::S0;
using test::S1;

std::string text(conversion_half const& half) {
    if (half.collective) return name(*half.collective);
    switch (half.local) {
    case conversion_half::work::none: return "none";
    case conversion_half::work::slice: return "slice";
    case conversion_half::work::pad: return "pad";
    case conversion_half::work::scale: return "scale";
    }
    return {};
}

std::string text(tensor_form from, tensor_form to) {
    auto const c = find_conversion(from, to);
    return c ? text(c->forward) + " / " + text(c->backward) : "-";
}

std::set<std::string> ways(indexed_program const& p, operator_id o) {
    std::set<std::string> result;
    for (auto const& i : computations(p, o)) {
        CHECK(i.op == o);
        std::string line;
        for (auto f : i.operands) line += to_string(f) + ' ';
        line += "->";
        for (auto f : i.results) line += ' ' + to_string(f);
        CHECK(result.insert(line).second); // each once
    }
    return result;
}

} // namespace

TEST_CASE("forms have names, codes and factors") {
    CHECK(tensor_form() == R);
    CHECK(tensor_form::from_code(S1.code()) == S1);
    CHECK(S1.is_shard());
    CHECK(S1.factor() == 1);
    CHECK(S1.type() == tensor_form::kind::shard);
    CHECK_FALSE(M.is_shard());
    CHECK(to_string(S1) == "shard(1)");
    CHECK(to_string(P) == "partial");
}

TEST_CASE("conversions and their adjoints are those of the table of the design") {
    CHECK(text(P, R) == "all_reduce / all_reduce");
    CHECK(text(S0, R) == "all_gather / reduce_scatter");
    CHECK(text(P, S0) == "reduce_scatter / all_gather");
    CHECK(text(S0, S1) == "all_to_all / all_to_all");
    CHECK(text(R, S0) == "slice / pad");
    CHECK(text(R, P) == "scale / scale");
    CHECK(text(P, M) == "all_reduce / none");
    CHECK(text(M, R) == "none / all_reduce");
    CHECK(text(R, M) == "none / scale");
    CHECK(text(M, S0) == "slice / all_gather");
    CHECK(text(S0, M) == "all_gather / slice");
    CHECK(text(M, P) == "scale / none");
    CHECK(text(S0, P) == "-");
    for (tensor_form f : {R, P, M, S0}) CHECK(text(f, f) == "-");
}

TEST_CASE("what a tensor can be held as depends on its type and on whether it has a cotangent") {
    indexed_tensor t;
    t.factors = {{0, 2, 1}};
    CHECK(is_possible(R, t));
    CHECK(is_possible(S0, t));
    CHECK_FALSE(is_possible(S1, t));
    CHECK(is_possible(P, t));
    CHECK_FALSE(is_possible(M, t));
    CHECK(canonical(M, t) == R);
    t.has_cotangent = true;
    CHECK(is_possible(M, t));
    CHECK(canonical(M, t) == M);
    t.info.type = element_type::int64;
    CHECK_FALSE(is_possible(P, t));
}

TEST_CASE("a linear operator with bias has these ways to compute it") {
    program_builder b;
    auto const x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3}), c = b.parameter("c", {4});
    auto const h = b.apply("linear", "(b k), (n k), (n) -> (b n); 0*1 + 2", {x, w, c});
    auto const y =
        b.apply("linear", "(b k), (n k), (n) -> (b n); 0*1 + 2", {h, b.parameter("v", {5, 4}), b.parameter("d", {5})});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    CHECK(ways(p, 1) ==
          std::set<std::string>{
              "shard(0) replicated replicated -> shard(0)", // the batch
              "shard(0) mirrored mirrored -> shard(0)",     // likewise, gradients from factors
              "replicated shard(0) shard(0) -> shard(1)",   // the outputs
              "shard(1) shard(1) partial -> partial",       // the inputs: a whole bias would be added once per device
              "replicated replicated replicated -> replicated",
              "mirrored mirrored mirrored -> mirrored",
              "partial replicated partial -> partial",
              "replicated partial partial -> partial",
          });
    // The input has no cotangent, so its whole copies are all alike.
    CHECK(ways(p, 0).contains("replicated mirrored mirrored -> mirrored"));
    CHECK(ways(p, 2) == std::set<std::string>{"shard(0) -> partial", "shard(1) -> partial", "replicated -> replicated",
                                              "mirrored -> mirrored", "partial -> partial"});
}

TEST_CASE("an index outside the terms is one of the terms that have it") {
    // As in attention: heads are summed over by the output projection, whose bias is added once.
    program_builder b;
    auto const x = b.input("x", {4, 6});
    auto const inner = b.parameter("inner", {3, 6});
    auto const outer = b.parameter("outer", {5, 3});
    auto const bias = b.parameter("bias", {5});
    auto const y = b.apply("attend", "(b _), (h _), (!o h), (!o) -> (b !o); 2 + 3", {x, inner, outer, bias},
                           {.extents = {{"b", 4}}});
    auto const p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    bool split_heads = false;
    for (auto const& i : computations(p, 0)) {
        if (i.loop < 0 || !p.operators[0].loops[static_cast<std::size_t>(i.loop)].is_reduction) continue;
        split_heads = true;
        CHECK(i.results[0] == tensor_form::partial());
        CHECK(i.operands[3] == tensor_form::partial()); // else it would be added once per device
    }
    CHECK(split_heads);
}

TEST_CASE("no partial sum flows through what is not linear") {
    program_builder b;
    auto const w = b.parameter("w", {2, 3});
    auto const y = b.apply("relu", "(a b) -> (a b)", {w});
    auto const p = index_program(b.finish(b.apply(
        "sum", "(a b) -> (); 0", {b.apply("layer_norm", "(a !b), (!b) -> (a !b); 1", {y, b.parameter("g", {3})})})));
    CHECK(ways(p, 0) == std::set<std::string>{"shard(0) -> shard(0)", "shard(1) -> shard(1)",
                                              "replicated -> replicated", "mirrored -> mirrored"});
    // Blocked: the normalised axis is not cut; the scale is linear.
    CHECK(ways(p, 1) == std::set<std::string>{"shard(0) replicated -> shard(0)", "replicated replicated -> replicated",
                                              "mirrored mirrored -> mirrored", "replicated partial -> partial"});
}

TEST_CASE("sources can be read in these forms") {
    indexed_tensor t;
    t.factors = {{0, 2, 1}};
    t.info.role = tensor_role::input;
    CHECK(readable_forms(t) == form_list{R, S0});
    t.info.role = tensor_role::parameter;
    CHECK(readable_forms(t) == form_list{R, S0}); // frozen
    t.has_cotangent = true;
    CHECK(readable_forms(t) == form_list{R, M, P, S0});
}

TEST_CASE("a property is a number, and back") {
    program_builder b;
    auto const x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w})));
    property_table const table(p);
    std::set<property_id> ids;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        for (std::uint16_t code = 0; code < 3 + p.tensors[t].factors.size(); ++code) {
            auto const id = table.held(t, tensor_form::from_code(code));
            CHECK(table.is_held(id));
            CHECK(table.tensor_and_form(id) == std::pair{t, tensor_form::from_code(code)});
            CHECK(ids.insert(id).second);
        }
    }
    for (tensor_id t = 0; t < p.tensors.size(); ++t) CHECK(ids.insert(table.unread(t)).second);
    CHECK(ids.insert(table.finished()).second);
    CHECK(ids.size() == table.size());
    CHECK(*ids.rbegin() + 1 == table.size());
}

TEST_CASE("the theory of a program reads a parameter once, and no triple removes what another adds") {
    program_builder b;
    auto const x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w})));
    property_table const table(p);
    auto const t = make_theory(p, table);
    CHECK(t.property_count == table.size());
    CHECK(t.initial == std::vector<property_id>{table.unread(w)});
    CHECK(t.goal == std::vector<property_id>{table.finished()});
    std::set<property_id> added, removed;
    int reads = 0, finishes = 0;
    for (auto const& one : t.triples) {
        added.insert(one.add.begin(), one.add.end());
        removed.insert(one.remove.begin(), one.remove.end());
        for (auto id : one.remove) CHECK(std::ranges::find(one.pre, id) != one.pre.end());
        if (auto const* read = one.action.as<instruction::read>(); read && read->tensor == w) {
            ++reads;
            CHECK(one.remove == std::vector<property_id>{table.unread(w)});
        }
        finishes += one.add == t.goal;
    }
    CHECK(reads == 7); // in five forms, two of them with the state in shards
    CHECK(finishes == 2);
    for (auto id : removed) CHECK_FALSE(added.contains(id));
}

TEST_CASE("the cuts of a program lead to its end") {
    program_builder b;
    auto const x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w})));
    cut_space space(p);
    CHECK(space.level_count() == 3);
    std::set<std::string> seen;
    space.for_each_successor(0, space.initial(), [&](auto bundle, cut_state const& s) {
        CHECK(s.held.size() == 1); // the loss, in one form
        for (auto action : space.bundle(bundle)) {
            std::string line;
            for (auto i : space.moves()[action].instructions) line += test::describe(space.instructions()[i]) + "; ";
            seen.insert(line);
        }
    });
    CHECK(seen.contains("read 0 shard(0); read 1 replicated; compute 0: shard(0) replicated -> partial; "));
    CHECK(seen.contains("read 0 replicated; read 1 shard(0); compute 0: replicated shard(0) -> partial; "));
    CHECK(seen.contains("read 0 shard(1); read 1 shard(1); compute 0: shard(1) shard(1) -> partial; "));
    CHECK(seen.contains("read 0 replicated; read 1 mirrored; compute 0: replicated mirrored -> mirrored; "));
    // Gathered: stored along the finest factor.
    CHECK(seen.contains("read 0 shard(0); read 1 shard(0); convert 1 shard(0) -> replicated; compute 0: shard(0) "
                        "replicated -> partial; "));
}

TEST_CASE("a parameter that may not be read along its finest factor is gathered along the finest that is left") {
    program_builder b;
    auto const x = b.input("x", {2, 3}), w = b.parameter("w", {4, 3});
    auto const p = index_program(b.finish(b.apply("loss", "(b k), (n k) -> (); 0*1", {x, w})));
    cut_space space(p);
    space.restrict_to([&](instruction const& i) {
        auto const* const read = i.as<instruction::read>();
        return !read || read->tensor != w || read->to == S1;
    });
    std::set<std::string> seen;
    space.for_each_successor(0, space.initial(), [&](auto bundle, cut_state const&) {
        for (auto action : space.bundle(bundle)) {
            std::string line;
            for (auto i : space.moves()[action].instructions) line += test::describe(space.instructions()[i]) + "; ";
            seen.insert(line);
        }
    });
    CHECK(seen.contains("read 0 shard(1); read 1 shard(1); compute 0: shard(1) shard(1) -> partial; "));
    CHECK(seen.contains("read 0 shard(0); read 1 shard(1); convert 1 shard(1) -> replicated; compute 0: shard(0) "
                        "replicated -> partial; "));
    for (auto const& line : seen) CHECK(line.find("read 1 shard(1)") != std::string::npos);
}
