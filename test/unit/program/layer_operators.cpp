// SPDX-License-Identifier: BSL-1.0
// Rules and work of recurrent layers, bags of embeddings, and operators that replace and rearrange elements.
#include "one_call.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

using numbers = std::vector<std::uint8_t>;

/// Makes layers of 5 steps, 4 samples, 3 features and 2 hidden units, without biases.
one_call recurrent(char const* name, extent gates, bool has_pair, extent layers, extent directions,
                   double dropout = 0) {
    tensor_shape const state{layers * directions, 4, 2};
    one_call c{std::string("torch.") + name, {{5, 4, 3}, state}, {T(0), T(1)}, {}, {{5, 4, 2 * directions}, state}};
    if (has_pair) {
        c.operands.push_back(state);
        c.results.push_back(state);
        c.arguments[1] = list({T(1), T(2)});
    }
    literal::list weights;
    for (extent run = 0; run < layers * directions; ++run)
        for (extent const columns : {run < directions ? 3 : 2 * directions, extent{2}}) {
            weights.push_back(T(static_cast<tensor_id>(c.operands.size())));
            c.operands.push_back({2 * gates, columns});
        }
    for (auto argument :
         {literal{weights}, flag(false), number(layers), real(dropout), flag(true), flag(directions == 2), flag(false)})
        c.arguments.push_back(argument);
    return c;
}

} // namespace

TEST_CASE("recurrent layers cut the batch alone") {
    auto const one = add(recurrent("lstm", 4, true, 1, 1));
    CHECK(one.is_known);
    CHECK(one.loops == "4 0:1 1:0 2:0 -> 0:1 1:0 2:0\n");
    CHECK(terms(one.rule).empty());
    // 8 rows of 3 + 2 products and 20 operations for each of 2 units, 20 times.
    CHECK(one.work.forward.value == 20 * (2 * 40 + 20 * 2));
    CHECK(one.work.backward.value == 2 * one.work.forward.value);
    CHECK(one.work.extra_saved.value == 4 * 20 * (4 + 1) * 2);
    CHECK(one.work.saved_operands == numbers{0, 1, 2, 3, 4});
    CHECK(one.work.saved_results == numbers{0});
    CHECK(one.work.category == operator_class::matmul);
    auto const several = add(recurrent("gru", 3, false, 2, 2));
    CHECK(several.is_known);
    CHECK(several.loops == "4 0:1 1:1 -> 0:1 1:1\n");
    CHECK(several.work.forward.value ==
          20 * (2 * 2 * (6 * 5 + 6 * 6) + 20 * 4 * 2)); // of 4 runs two read the 4 units of both before
    CHECK(several.work.extra_saved.value == 4 * 20 * (4 * 3 + 2) * 2);
    for (char const* name : {"rnn_tanh", "rnn_relu"}) CHECK(add(recurrent(name, 1, false, 2, 1)).is_known);
}

TEST_CASE("recurrent layers that are not described have no rule") {
    CHECK_FALSE(add(recurrent("gru", 3, false, 2, 1, 0.5)).is_known);
    CHECK(add(recurrent("gru", 3, false, 1, 1, 0.5)).is_known); // there is nothing to drop between layers
    auto evaluated = recurrent("gru", 3, false, 2, 1, 0.5);
    evaluated.arguments[6] = flag(false);
    CHECK(add(evaluated).is_known);
    one_call const packed{
        "torch.gru",
        {{9, 3}, {5}, {1, 4, 2}, {6, 3}, {6, 2}},
        {T(0), T(1), T(2), list({T(3), T(4)}), flag(false), number(1), real(0), flag(true), flag(false)},
        {},
        {{9, 2}, {1, 4, 2}}};
    CHECK_FALSE(add(packed).is_known);
    auto projected = recurrent("lstm", 4, true, 1, 1);
    projected.operands.push_back({1, 2});
    projected.arguments[2] = list({T(3), T(4), T(5)});
    CHECK_FALSE(add(projected).is_known);
    auto misfit = recurrent("gru", 3, false, 1, 1);
    misfit.operands[3] = {6, 3};
    CHECK(message_of(misfit) == "operator 'op', argument 'params': has shape [6, 3], expected [6, 2]");
    auto stateless = recurrent("gru", 3, false, 1, 1);
    stateless.operands[1] = {2, 4, 2};
    CHECK(message_of(stateless) == "operator 'op', argument 'hx': has shape [2, 4, 2], expected [1, 4, 2]");
}

TEST_CASE("bags of embeddings are parallel in lines and features, and a sum over the vocabulary") {
    one_call c{"torch.nn.functional.embedding_bag",
               {{8, 5}, {100, 6}},
               {T(0), T(1)},
               {{"mode", text("sum")}},
               {{8, 6}},
               {element_type::int64}};
    auto const sum = add(c);
    CHECK(sum.loops == "100+ 1:0 ->\n6 1:1 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(terms(sum.rule) == "1");
    CHECK(sum.work.sparse_operands == numbers{1});
    CHECK(sum.work.saved_operands == numbers{0});
    CHECK(sum.work.forward.value == 8 * 5 * 6);
    CHECK(sum.work.backward.value == 8 * 5 * 6);
    auto weighted = c;
    weighted.operands.push_back({8, 5});
    weighted.keywords["per_sample_weights"] = T(2);
    auto const factors = add(weighted);
    CHECK(terms(factors.rule) == "1*2");
    CHECK(factors.work.saved_operands == numbers{0, 1, 2});
    CHECK(factors.work.backward.value == 4 * 8 * 5 * 6);
    auto running = c;
    running.operands = {{40}, {100, 6}, {8}};
    running.operand_types.resize(3, element_type::int64);
    running.operand_types[1] = element_type::float32;
    running.keywords["offsets"] = T(2);
    CHECK(add(running).is_known);
}

TEST_CASE("elements are replaced along one dimension, which is whole") {
    one_call c{"torch.scatter",
               {{8, 6}, {8, 3}, {8, 3}},
               {T(0), number(1), T(1), T(2)},
               {},
               {{8, 6}},
               {element_type::float32, element_type::int64}};
    auto const replaced = add(c);
    CHECK(replaced.loops == "8 0:0 1:0 2:0 -> 0:0\n");
    CHECK(terms(replaced.rule) == "0 + 2");
    CHECK(replaced.work.saved_operands == numbers{1});
    c.operands.pop_back();
    for (double value : {0.0, 2.5}) {
        c.arguments[3] = real(value);
        CHECK(terms(add(c).rule) == (value == 0 ? "0" : ""));
    }
    c.keywords["reduce"] = text("add");
    CHECK_FALSE(add(c).is_known);
}

TEST_CASE("pixel shuffles are parallel in all factors") {
    auto const fine = add({"torch.pixel_shuffle", {{7, 12, 5, 1}}, {T(0), number(2)}, {}, {{7, 3, 10, 2}}});
    CHECK(fine.loops == "2 0:2 -> 0:3\n2 0:3 -> 0:4\n3 0:1 -> 0:1\n5 0:4 -> 0:2\n7 0:0 -> 0:0\n");
    CHECK(terms(fine.rule) == "0");
    CHECK(add({"torch.pixel_unshuffle", {{7, 3, 10, 2}}, {T(0), number(2)}, {}, {{7, 12, 5, 1}}}).loops ==
          "2 0:3 -> 0:2\n2 0:4 -> 0:3\n3 0:1 -> 0:1\n5 0:2 -> 0:4\n7 0:0 -> 0:0\n");
    CHECK(message_of({"torch.pixel_shuffle", {{6, 5, 5}}, {T(0), number(2)}, {}, {{1, 10, 10}}}) ==
          "operator 'op', argument 'upscale_factor': does not divide [6, 5, 5]");
}

TEST_CASE("diagonals are parallel in other dimensions") {
    auto const o = add({"torch.diagonal", {{3, 8, 5}}, {T(0), number(1), number(0), number(-1)}, {}, {{8, 3}}});
    CHECK(o.is_known);
    CHECK(o.loops == "8 0:1 -> 0:0\n");
    CHECK(terms(o.rule) == "0");
    CHECK(message_of({"torch.diagonal", {{3, 8}}, {T(0), number(8)}, {}, {{1}}}) ==
          "operator 'op', argument 'offset': is 8, expected -2 to 7");
}
