// SPDX-License-Identifier: BSL-1.0
// Small distributed programs, by hand, at the places where emulation is known to go wrong.
#include "emulation.hpp"
#include "trap.hpp"

#include <support/cases.hpp>
#include <support/forms.hpp>

#include <heddle/plan/verify.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;
using test::trap;

namespace {

using test::ints;
using test::M;
using test::number;
using test::P;
using test::R;
constexpr tensor_form cut(factor_number f) { return tensor_form::shard(f); }

} // namespace

TEST_CASE("trap: a dimension of one and a broadcast one are not cut") {
    trap t;
    auto const x = t.input({5, 3}), w = t.weight({1, 3});
    auto const y = t.add("add", {x, w}, {5, 3});
    t.finish(t.add("sum", {t.add("tanh", {y}, {5, 3})}, {}));
    CHECK(t.indexed().tensors[w].factors.size() == 1);
    t.read(x, cut(0))
        .read(w, R)
        .compute({cut(0), R}, {cut(0)})
        .compute({cut(0)}, {cut(0)})
        .compute({cut(0)}, {P})
        .emulates();
    t.again().read(x, cut(0)).read(w, cut(0)).compute({cut(0), cut(0)}, {cut(0)}).along(0);
    CHECK(t.is_refused_for("operand 1 of 'add3' does not have the form that the loop asks for"));
}

TEST_CASE("trap: dropout draws the same on replicas, and on shards what the whole draws") {
    trap t;
    auto const x = t.input({5, 4}), w = t.weight({4});
    auto const y = t.add("mul", {x, w}, {5, 4});
    auto const z = t.add("dropout", {y}, {5, 4}, {test::real(0.5)});
    t.finish(t.add("sum", {t.add("tanh", {z}, {5, 4})}, {}));
    t.read(x, R).read(w, R).compute({R, R}, {R}).compute({R}, {R}).compute({R}, {R}).compute({R}, {R});
    t.convert(t.indexed().loss, R, M).emulates();
    for (factor_number f = 0; f < 2; ++f) {
        t.again().read(x, cut(f)).read(w, f == 0 ? R : cut(0)).compute({cut(f), f == 0 ? R : cut(0)}, {cut(f)});
        t.compute({cut(f)}, {cut(f)}).compute({cut(f)}, {cut(f)}).compute({cut(f)}, {P}).emulates();
    }
    t.again().read(x, R).read(w, P).compute({R, P}, {P}).compute({P}, {P});
    t.convert(z, P, cut(1)).compute({cut(1)}, {cut(1)}).compute({cut(1)}, {P}).emulates();
}

TEST_CASE("trap: a mean over an unevenly split batch is the whole batch's") {
    trap t;
    auto const x = t.input({7, 2}), w = t.weight({3, 2});
    auto const y = t.add("linear", {x, w}, {7, 3});
    t.finish(t.add("mean", {t.add("tanh", {y}, {7, 3})}, {}));
    t.read(x, cut(0)).read(w, R).compute({cut(0), R}, {cut(0)}).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P});
    t.emulates({0.7, 0.1, 0.2});
    t.emulates({0, 1, 0});
}

TEST_CASE("trap: a mean of likelihoods with ignored labels over an uneven batch is the whole batch's") {
    for (char const* target : {"cross_entropy", "nll_loss"}) {
        trap t;
        auto const x = t.input({7, 4}), w = t.weight({4}), labels = t.input({7}, element_type::int64);
        auto const y = t.add("mul", {x, w}, {7, 4});
        t.finish(t.add(target, {y, labels}, {}, {}, {{"ignore_index", test::number(1)}}));
        t.read(x, cut(0)).read(w, R).compute({cut(0), R}, {cut(0)}).read(labels, R).compute({cut(0), R}, {P});
        t.emulates({0.6, 0.1, 0.3});
        t.emulates({0, 0.5, 0.5});
        t.again()
            .read(x, cut(0))
            .read(w, R)
            .compute({cut(0), R}, {cut(0)})
            .read(labels, cut(0))
            .compute({cut(0), cut(0)}, {P})
            .along(0);
        CHECK_FALSE(t.problem().empty()); // each would divide by its own count
    }
}

TEST_CASE("trap: slots of experts are filled in the order of a whole batch row") {
    for (char const* target : {"heddle.top_2_gating", "heddle.switch_gating"}) {
        trap t;
        auto const x = t.input({5, 4, 3}), gate = t.weight({3, 2});
        auto const masks = t.add_multi(target, {x, gate}, {{5, 4, 2, 1}, {5, 4, 2, 1}});
        t.finish(t.add("sum", {t.add("tanh", {t.add("mul", masks, {5, 4, 2, 1})}, {5, 4, 2, 1})}, {}));
        t.read(x, cut(0))
            .read(gate, R)
            .compute({cut(0), R}, {cut(0), cut(0)})
            .compute({cut(0), cut(0)}, {cut(0)})
            .compute({cut(0)}, {cut(0)});
        t.compute({cut(0)}, {P}).emulates();
        t.again().read(x, cut(1)).read(gate, R).compute({cut(1), R}, {cut(1), cut(1)}).along(0);
        CHECK(t.is_refused_for("does not have the form that the loop"));
    }
}

TEST_CASE("trap: unequal pieces are cut in shares of each") {
    for (bool const is_sliced : {false, true}) {
        trap t;
        auto const x = t.input({3, 20}), w = t.weight({20});
        auto const y = t.add("mul", {x, w}, {3, 20});
        // Four groups of three and two; where they are sliced, every slice knows only where it lies.
        auto const parts = is_sliced
                               ? std::vector{t.add("narrow", {y}, {3, 12}, {number(1), number(0), number(12)}),
                                             t.add("narrow", {y}, {3, 8}, {number(1), number(12), number(8)})}
                               : t.add_multi("split_with_sizes", {y}, {{3, 12}, {3, 8}}, {ints({12, 8}), number(1)});
        auto const q = t.add("reshape", {parts[0]}, {3, 4, 3}), k = t.add("reshape", {parts[1]}, {3, 4, 2});
        auto const sum_q = t.add("sum", {t.add("tanh", {q}, {3, 4, 3})}, {});
        t.finish(t.add("add", {sum_q, t.add("sum", {t.add("tanh", {k}, {3, 4, 2})}, {})}, {}));
        CAPTURE(is_sliced);
        factor const shares{.dimension = 0, .extent = 4, .stride = 5, .widths = {3, 2}};
        REQUIRE(t.indexed().tensors[w].factors.back() == shares);
        REQUIRE(t.indexed().tensors[y].factors.size() == 3);
        for (bool const is_converted : {false, true}) { // from places all over the dimension, and back for cotangents
            t.again().read(x, cut(is_converted ? 1 : 2)).read(w, cut(is_converted ? 0 : 1));
            if (is_converted) t.compute({cut(1), cut(0)}, {cut(1)}).convert(y, cut(1), cut(2));
            else t.compute({cut(2), cut(1)}, {cut(2)});
            if (is_sliced) t.compute({cut(2)}, {cut(1)}).compute({cut(2)}, {cut(1)});
            else t.compute({cut(2)}, {cut(1), cut(1)});
            t.compute({cut(1)}, {cut(1)}).compute({cut(1)}, {cut(1)}); // reshape
            for (int n = 0; n < 2; ++n) t.compute({cut(1)}, {cut(1)}).compute({cut(1)}, {P});
            t.compute({P, P}, {P});
            for (auto const& ratios :
                 {std::vector{0.5, 0.3, 0.2}, {0.8, 0.2}, {0.0, 1.0, 0.0}, {0.2, 0.2, 0.2, 0.2, 0.2}})
                t.emulates(ratios);
        }
    }
}

TEST_CASE("trap: a reshape that mixes a cut dimension is cut along the factors of both shapes") {
    trap t;
    auto const x = t.input({6, 4}), w = t.weight({4});
    auto const y = t.add("mul", {x, w}, {6, 4});
    auto const z = t.add("reshape", {y}, {3, 8});
    auto const u = t.add("reshape", {t.add("tanh", {z}, {3, 8})}, {24});
    t.finish(t.add("sum", {t.add("tanh", {u}, {24})}, {}));
    // 6 x 4 and 3 x 8 are 3 x 2 x 4: each is a factor of both, cut in strides where it is not the major one.
    REQUIRE(t.indexed().tensors[y].factors.size() == 3);
    REQUIRE(t.indexed().tensors[u].factors.size() == 3);
    for (factor_number f = 0; f < 3; ++f) {
        t.again()
            .read(x, cut(f))
            .read(w, f == 2 ? cut(0) : R)
            .compute({cut(f), f == 2 ? cut(0) : R}, {cut(f)})
            .compute({cut(f)}, {cut(f)});
        t.compute({cut(f)}, {cut(f)})
            .compute({cut(f)}, {cut(f)})
            .compute({cut(f)}, {cut(f)})
            .compute({cut(f)}, {P})
            .emulates();
        auto const g = static_cast<factor_number>((f + 1) % 3);
        t.again()
            .read(x, cut(f))
            .read(w, f == 2 ? cut(0) : R)
            .compute({cut(f), f == 2 ? cut(0) : R}, {cut(f)})
            .compute({cut(f)}, {cut(f)});
        t.convert(z, cut(f), cut(g))
            .compute({cut(g)}, {cut(g)})
            .compute({cut(g)}, {cut(g)})
            .compute({cut(g)}, {cut(g)})
            .compute({cut(g)}, {P})
            .emulates();
    }
    // 6 x 4 and 8 x 3 share but the major 2.
    trap other;
    auto const v = other.weight({6, 4});
    auto const r = other.add("reshape", {v}, {8, 3});
    other.finish(other.add("sum", {other.add("tanh", {r}, {8, 3})}, {}));
    REQUIRE(other.indexed().operators[0].loops.size() == 1);
    CHECK(other.indexed().operators[0].loops[0].extent == 2);
    other.read(v, cut(0)).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates();
    other.again().read(v, cut(1)).compute({cut(1)}, {cut(1)}).along(0);
    CHECK(other.is_refused_for("does not have the form that the loop asks for"));
}

TEST_CASE("trap: a softmax and a norm over a cut axis are of whole rows") {
    struct {
        char const* target;
        std::vector<literal> arguments;
    } const rows[] = {{"softmax", {test::number(1)}},
                      {"log_softmax", {test::number(1)}},
                      {"layer_norm", {test::ints({6})}},
                      {"rms_norm", {test::ints({6})}},
                      {"group_norm", {test::number(1)}}};
    for (auto const& [target, arguments] : rows) {
        CAPTURE(target);
        trap t;
        auto const x = t.weight({4, 6});
        t.finish(t.add("sum", {t.add("tanh", {t.add(target, {x}, {4, 6}, arguments)}, {4, 6})}, {}));
        t.read(x, cut(0)).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates();
        t.again()
            .read(x, cut(1))
            .compute({cut(1)}, {cut(1)})
            .compute({cut(1)}, {cut(1)})
            .compute({cut(1)}, {P})
            .emulates();
        t.emulates({0, 0.9, 0.1});
        t.again().read(x, cut(1)).compute({cut(1)}, {cut(1)}).along(-1);
        CHECK_FALSE(t.problem().empty());
        t.again().read(x, P).compute({P}, {P}); // of summands it is no function
        CHECK_FALSE(t.problem().empty());
    }
}

TEST_CASE("trap: a largest element, a variance or a running sum over a cut axis is refused") {
    for (char const* target : {"amax", "var", "logsumexp", "norm", "cumsum"}) {
        CAPTURE(target);
        trap t;
        auto const x = t.weight({4, 6});
        bool const keeps = target == std::string("cumsum");
        tensor_shape const y = keeps ? tensor_shape{4, 6} : tensor_shape{4};
        t.finish(t.add("sum", {t.add("tanh", {t.add(target, {x}, y, {}, {{"dim", test::number(1)}})}, y)}, {}));
        t.read(x, cut(0)).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates();
        for (std::int16_t loop = -1; loop < 2; ++loop) {
            t.again().read(x, cut(1)).compute({cut(1)}, {keeps ? cut(1) : P}).along(loop);
            CHECK_FALSE(t.problem().empty());
        }
        for (auto const& i : computations(t.indexed(), 0)) CHECK(i.operands[0] != cut(1));
    }
}

TEST_CASE("trap: a batch norm is of the whole batch, unless its rule says otherwise") {
    for (bool const per_shard : {false, true}) {
        CAPTURE(per_shard);
        trap t;
        if (per_shard) t.rules = {{"batch_norm", "per_shard"}};
        auto const x = t.input({6, 4, 3}), w = t.weight({4}), scale = t.weight({6, 4, 3});
        auto const z = t.add("mul", {x, scale}, {6, 4, 3});
        t.finish(t.add(
            "sum",
            {t.add("tanh",
                   {t.add("batch_norm", {z}, {6, 4, 3}, {}, {{"weight", test::T(w)}, {"training", test::flag(true)}})},
                   {6, 4, 3})},
            {}));
        // If both are cut by channels, they are exact.
        t.read(x, cut(1))
            .read(scale, cut(1))
            .compute({cut(1), cut(1)}, {cut(1)})
            .read(w, cut(0))
            .compute({cut(1), cut(0)}, {cut(1)});
        t.compute({cut(1)}, {cut(1)}).compute({cut(1)}, {P}).emulates();
        t.again()
            .read(x, cut(0))
            .read(scale, cut(0))
            .compute({cut(0), cut(0)}, {cut(0)})
            .read(w, R)
            .compute({cut(0), R}, {cut(0)});
        t.compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P});
        t.emulates({0, 1, 0}); // one device has the whole batch
        if (!per_shard) t.emulates();
        else CHECK_FALSE(test::emulate(t.single_device(), t.planned({0.5, 0.5}), 1));
    }
}

TEST_CASE("trap: operands that a loop ties are rounded together") {
    trap t;
    auto const x = t.input({3, 2}), v = t.weight({5, 2}), w = t.weight({2, 5});
    auto const y = t.add("linear", {x, v}, {3, 5});
    auto const z = t.add("linear", {y, w}, {3, 2});
    t.finish(t.add("sum", {t.add("tanh", {z}, {3, 2})}, {}));
    t.read(x, R).read(v, cut(0)).compute({R, cut(0)}, {cut(1)}).read(w, cut(1)).compute({cut(1), cut(1)}, {P});
    t.convert(z, P, R).compute({R}, {R}).compute({R}, {R}).convert(t.indexed().loss, R, M);
    t.emulates({0.5, 0.5});
    auto apart = t.planned({0.5, 0.5});
    REQUIRE(apart.cuts.size() == 1);
    auto const last = std::ranges::find(apart.cuts[0].members, cut_factor{w, 1});
    REQUIRE(last != apart.cuts[0].members.end());
    apart.cuts.push_back({5, {*last}, {apart.cuts[0].counts[1], apart.cuts[0].counts[0]}});
    apart.cuts[0].members.erase(last);
    CHECK(verify(t.indexed(), apart).problem.find("cut at different points") != std::string::npos);
}

TEST_CASE("trap: a bias is added once, not once per rank") {
    trap t;
    auto const x = t.input({3, 5}), w = t.weight({4, 5}), bias = t.weight({4});
    auto const y = t.add("linear", {x, w, bias}, {3, 4});
    t.finish(t.add("sum", {t.add("tanh", {y}, {3, 4})}, {}));
    t.read(x, cut(1)).read(w, cut(1)).read(bias, P).compute({cut(1), cut(1), P}, {P}).convert(y, P, cut(0));
    t.compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates();
    t.again().read(x, cut(1)).read(w, cut(1)).read(bias, R).compute({cut(1), cut(1), R}, {P});
    CHECK(t.is_refused_for("would be added once per device"));
    t.again().read(x, R).read(w, P).read(bias, R).compute({R, P, R}, {P});
    CHECK(t.is_refused_for("would be added once per device"));
}

TEST_CASE("trap: two consumers in two forms both add to the gradient") {
    trap t;
    auto const x = t.input({5, 3}), w = t.weight({4, 3});
    auto const y = t.add("linear", {x, w}, {5, 4});
    auto const a = t.add("tanh", {y}, {5, 4}), b = t.add("softmax", {y}, {5, 4}, {test::number(0)});
    auto const z = t.add("mul", {a, b}, {5, 4});
    t.finish(t.add("sum", {z}, {}));
    t.read(x, cut(0))
        .read(w, R)
        .compute({cut(0), R}, {cut(0)})
        .compute({cut(0)}, {cut(0)})
        .convert(y, cut(0), cut(1))
        .compute({cut(1)}, {cut(1)});
    t.convert(a, cut(0), R).convert(b, cut(1), R).compute({R, R}, {R}).compute({R}, {R});
    t.convert(t.indexed().loss, R, M).emulates();
    t.again().read(x, R).read(w, cut(0)).compute({R, cut(0)}, {cut(1)}).convert(y, cut(1), M).compute({M}, {M});
    t.compute({cut(1)}, {cut(1)})
        .convert(a, M, cut(1))
        .compute({cut(1), cut(1)}, {cut(1)})
        .compute({cut(1)}, {P})
        .emulates();
}

TEST_CASE("trap: tied weights are stored once and their gradients add up") {
    trap t;
    auto const x = t.input({5, 4}), w = t.weight({4, 4});
    auto const y = t.add("tanh", {t.add("linear", {x, w}, {5, 4})}, {5, 4});
    auto const z = t.add("linear", {y, w}, {5, 4});
    t.finish(t.add("sum", {t.add("tanh", {z}, {5, 4})}, {}));
    // Cut along its outputs for the first use and along its inputs, by way of an all-to-all, for the second.
    t.read(x, R)
        .read(w, cut(0))
        .compute({R, cut(0)}, {cut(1)})
        .compute({cut(1)}, {cut(1)})
        .convert(w, cut(0), cut(1))
        .compute({cut(1), cut(1)}, {P});
    t.convert(z, P, cut(0)).compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates();
    t.again().read(w, R).read(w, R);
    CHECK(t.is_refused_for("a second time"));
    // One operator that uses it twice.
    trap twice;
    auto const v = twice.weight({4, 3});
    twice.finish(twice.add("sum", {twice.add("tanh", {twice.add("mul", {v, v}, {4, 3})}, {4, 3})}, {}));
    twice.read(v, cut(0))
        .compute({cut(0), cut(0)}, {cut(0)})
        .compute({cut(0)}, {cut(0)})
        .compute({cut(0)}, {P})
        .emulates();
    twice.again().read(v, R).convert(v, R, P).compute({P, R}, {P}).convert(1, P, M);
    twice.compute({M}, {M}).compute({M}, {M}).emulates();
}

TEST_CASE("trap: frozen parameters have no gradient and no cotangent") {
    trap t;
    auto const x = t.input({5, 3}), frozen = t.weight({4, 3}, false), w = t.weight({4});
    auto const y = t.add("linear", {x, frozen}, {5, 4});
    auto const z = t.add("mul", {y, w}, {5, 4});
    t.finish(t.add("sum", {t.add("tanh", {z}, {5, 4})}, {}));
    t.read(x, R)
        .read(frozen, cut(0))
        .compute({R, cut(0)}, {cut(1)})
        .read(w, cut(0))
        .compute({cut(1), cut(0)}, {cut(1)});
    t.compute({cut(1)}, {cut(1)}).compute({cut(1)}, {P}).emulates();
    t.again().read(x, R).read(frozen, R).compute({R, R}, {R}).read(w, M).compute({R, M}, {M});
    t.compute({M}, {M}).compute({M}, {M}).emulates();
    t.again().read(frozen, P);
    CHECK(t.is_refused_for("only a trained parameter can be read partial"));
}

TEST_CASE("trap: a partial tensor may be scaled, not by another partial one") {
    trap t;
    auto const x = t.weight({4, 3}), y = t.weight({4, 3});
    auto const z = t.add("mul", {x, y}, {4, 3});
    t.finish(t.add("sum", {z}, {}));
    t.read(x, P).read(y, R).compute({P, R}, {P}).compute({P}, {P}).emulates();
    t.again().read(x, P).read(y, P).compute({P, P}, {P});
    CHECK(t.is_refused_for("would be added once per device"));
    t.again().read(x, P).read(y, M).compute({P, M}, {P});
    CHECK(t.is_refused_for("neither partial nor replicated"));
    t.again().read(x, P).read(y, cut(0)).compute({P, cut(0)}, {P}).along(0);
    CHECK(t.is_refused_for("has a partial operand and a loop that is no reduction"));
}

TEST_CASE("trap: scalar parameters are whole or partial, and never cut") {
    trap t;
    auto const x = t.input({5, 3}), scale = t.weight({}), shift = t.weight({});
    auto const y = t.add("add", {t.add("mul", {x, scale}, {5, 3}), shift}, {5, 3});
    t.finish(t.add("sum", {t.add("tanh", {y}, {5, 3})}, {}));
    CHECK(t.indexed().tensors[scale].factors.empty());
    auto const product = static_cast<tensor_id>(3);
    t.read(x, cut(0)).read(scale, R).compute({cut(0), R}, {cut(0)}).read(shift, R).compute({cut(0), R}, {cut(0)});
    t.compute({cut(0)}, {cut(0)}).compute({cut(0)}, {P}).emulates({0.5, 0, 0.5});
    t.again().read(x, R).read(scale, P).compute({R, P}, {P}).read(shift, P).compute({P, P}, {P});
    t.convert(product + 1, P, M).compute({M}, {M}).compute({M}, {M}).emulates();
    // A loss that is a parameter's own product: no dimension anywhere.
    trap alone;
    auto const w = alone.weight({});
    alone.finish(alone.add("mul", {w, w}, {}));
    alone.read(w, M).compute({M, M}, {M}).emulates();
    alone.again().read(w, R).convert(w, R, P).compute({R, P}, {P}).emulates();
}

TEST_CASE("trap: shards may be empty everywhere, and ranks more than atoms") {
    for (std::size_t ranks : {2u, 5u, 7u})
        for (std::uint64_t seed = 1; seed <= (test::sanitized ? 20 : 100); ++seed) {
            test::random_source random(seed);
            auto const p = test::catalogue_program(random, 4);
            auto const indexed = index_program(p);
            auto const instructions = test::theory_walk(indexed, random).instructions();
            // All atoms on one rank, not the first; or one atom each on the last ranks.
            std::vector<double> only(ranks), thin(ranks, 1.0 / static_cast<double>(ranks));
            only[1] = 1;
            for (auto const& ratios : {only, thin}) {
                auto const plan = test::plan_of(indexed, instructions, {ratios}, [&](atom_class const& c) {
                    auto counts = apportion(c.atoms, ratios);
                    std::ranges::reverse(counts);
                    return counts;
                });
                INFO(test::describe(p), test::describe(plan));
                REQUIRE(verify(indexed, plan));
                auto const shown = test::emulate(p, plan, seed);
                CHECK_MESSAGE(shown, shown.problem);
            }
        }
}
