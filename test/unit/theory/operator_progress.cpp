// SPDX-License-Identifier: BSL-1.0
#include <heddle/theory/operator_cuts.hpp>
#include <heddle/theory/operator_progress.hpp>

#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

using order = std::vector<operator_id>;

/// A program of sums of vectors, each of two tensors at hand.
indexed_program sums(std::mt19937& random, int operators) {
    program_builder b;
    std::vector<tensor_id> at_hand{b.input("x", {4}), b.parameter("w", {4}), b.parameter("v", {4})};
    auto const any = [&] { return at_hand[random() % at_hand.size()]; };
    for (int o = 0; o < operators; ++o) {
        auto const first = any();
        at_hand.push_back(b.apply("add", "(n), (n) -> (n)", {first, any()}));
    }
    return index_program(b.finish(b.apply("loss", "(n), (n) -> (); 0*1", {at_hand.back(), at_hand[1]})));
}

/// Calls a visitor with every order that a progress allows.
void for_each_order(operator_progress const& progress, std::function<void(order const&)> const& visit) {
    order so_far;
    std::function<void(operator_progress::set const&)> const go_on = [&](operator_progress::set const& s) {
        auto const next = progress.next_of(s);
        if (next.empty()) visit(so_far);
        for (auto const o : next) {
            so_far.push_back(o);
            go_on(progress.after(s, o));
            so_far.pop_back();
        }
    };
    go_on(progress.start());
}

/// Returns every order in which no operator comes before one that makes its operands.
std::set<order> all_orders(indexed_program const& p) {
    order o;
    for (operator_id n = 0; n < p.operators.size(); ++n) o.push_back(n);
    std::set<order> all;
    do {
        std::set<tensor_id> to_come;
        for (auto const& op : p.operators) to_come.insert(op.results.begin(), op.results.end());
        bool is_one = true;
        for (auto const n : o) {
            for (auto const t : p.operators[n].operands) is_one = is_one && !to_come.contains(t);
            for (auto const t : p.operators[n].results) to_come.erase(t);
        }
        if (is_one) all.insert(o);
    } while (std::ranges::next_permutation(o).found);
    return all;
}

/// Tells which operators depend on parameters alone and are used, by walking back from each.
std::vector<bool> preparations_of(indexed_program const& p) {
    std::vector<bool> is_one;
    for (auto const& op : p.operators) {
        bool of_parameters = !p.tensors[op.results[0]].consumers.empty();
        for (auto const t : op.operands)
            if (p.tensors[t].is_source()) of_parameters = of_parameters && p.tensors[t].is_parameter();
            else
                for (std::size_t o = 0; o < is_one.size(); ++o)
                    if (p.operators[o].results[0] == t) of_parameters = of_parameters && is_one[o];
        is_one.push_back(of_parameters);
    }
    return is_one;
}

} // namespace

TEST_CASE("every order of what depends on inputs is there once, preparations where they are needed") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        auto const p = sums(random, 5);
        auto const is_preparation = preparations_of(p);
        auto const others = [&](order o) {
            std::erase_if(o, [&](auto n) { return is_preparation[n]; });
            return o;
        };
        operator_progress const progress(p);
        auto const all = all_orders(p);
        std::set<order> reached, reached_others, all_others;
        for_each_order(progress, [&](order const& o) {
            CHECK(all.contains(o));
            CHECK(reached.insert(o).second);
            reached_others.insert(others(o));
        });
        for (auto const& o : all) {
            all_others.insert(others(o));
            CHECK(reached.contains(progress.with_preparations_moved(o)));
            CHECK(others(progress.with_preparations_moved(o)) == others(o));
        }
        CHECK(reached_others == all_others);
        operator_cuts const given(p, 1);
        CHECK(given.is_complete() == (all.size() == 1));
        CHECK(operator_cuts(p, 1000).is_complete());
    }
}

TEST_CASE("sets of equally many operators are told apart by their keys") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        auto const p = sums(random, 6);
        operator_progress const progress(p);
        std::vector<operator_progress::set> sets{progress.start()};
        for (std::size_t level = 0; level < p.operators.size(); ++level) {
            std::set<std::vector<bool>> done;
            std::set<std::vector<operator_id>> keys;
            std::vector<operator_progress::set> next;
            for (auto const& s : sets)
                for (auto const o : progress.next_of(s)) {
                    auto after = progress.after(s, o);
                    keys.insert(progress.key_of(after));
                    if (done.insert(after.done).second) next.push_back(std::move(after));
                }
            CHECK(keys.size() == done.size());
            sets = std::move(next);
        }
        REQUIRE(sets.size() == 1);
        CHECK(progress.next_of(sets[0]).empty());
    }
}

TEST_CASE("slices of weights do not multiply the cuts") {
    auto const cuts_of = [](int weights) {
        program_builder b;
        auto x = b.input("x", {4});
        std::vector<tensor_id> slices;
        for (int w = 0; w < weights; ++w)
            slices.push_back(b.apply("neg", "(n) -> (n)", {b.parameter("w" + std::to_string(w), {4})}));
        for (auto const slice : slices) x = b.apply("add", "(n), (n) -> (n)", {x, slice});
        auto const p = index_program(b.finish(b.apply("sum", "(n) -> (); 0", {x})));
        operator_cuts const cuts(p, 1000);
        CHECK(cuts.is_complete());
        std::size_t count = 0;
        for (std::size_t level = 0; level <= p.operators.size(); ++level) count += cuts.of_level(level).size();
        CHECK(count == p.operators.size() + 1);
    };
    cuts_of(2);
    cuts_of(20);
}
