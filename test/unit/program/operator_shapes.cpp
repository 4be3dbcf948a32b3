// SPDX-License-Identifier: BSL-1.0
#include "one_call.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

/// Returns what is said of a call that states these results.
std::string told(char const* target, std::vector<tensor_shape> operands, std::vector<literal> arguments,
                 std::vector<tensor_shape> results, std::map<std::string, literal, std::less<>> keywords = {},
                 std::vector<element_type> types = {}) {
    return message_of(
        {target, std::move(operands), std::move(arguments), std::move(keywords), std::move(results), std::move(types)});
}

} // namespace

TEST_CASE("what a call states of its results follows from its arguments") {
    CHECK(told("torch.cat", {{8, 4}, {2, 4}}, {list({T(0), T(1)}), number(0)}, {{11, 4}}) ==
          "operator 'op', result 0: has shape [11, 4], its operands and arguments give [10, 4]");
    CHECK(
        told("torch.cat", {{8, 1}, {8, 4}}, {list({T(0), T(1)}), number(0)}, {{16, 1}}) ==
        "operator 'op', argument 'tensors': has shapes [8, 1] and [8, 4], expected them alike in all dimensions but 0");
    CHECK(told("torch.stack", {{8, 4}, {8, 4}}, {list({T(0), T(1)})}, {{3, 8, 4}}).find("give [2, 8, 4]") !=
          std::string::npos);
    CHECK(told("torch.split", {{8, 4}}, {T(0), number(4)}, {{3, 4}, {3, 4}}) ==
          "operator 'op', result 0: has shape [3, 4], its operands and arguments give [4, 4]");
    CHECK(told("torch.split", {{8, 4}}, {T(0), ints({3, 3})}, {{3, 4}, {3, 4}}) ==
          "operator 'op', argument 'split_size_or_sections': is 6, expected 8 to 8");
    CHECK(told("chunk", {{8, 4}}, {T(0), number(3)}, {{4, 4}, {4, 4}}) == "operator 'op': has 2 results, expected 3");
    CHECK(told("torch.unbind", {{8, 4}}, {T(0)}, {{4}, {4}, {4}}) == "operator 'op': has 3 results, expected 8");
    CHECK(told("torch.nn.functional.pad", {{8}}, {T(0), ints({-4, 9})}, {{3}}).find("give [13]") != std::string::npos);
    CHECK(told("torch.topk", {{8, 4}}, {T(0), number(3)}, {{8, 2}, {8, 2}}).find("give [8, 3]") != std::string::npos);
    CHECK(told("torch.cumsum", {{8, 4}}, {T(0), number(1)}, {{8, 5}}).find("give [8, 4]") != std::string::npos);
    CHECK(told("repeat", {{8, 4}}, {T(0), ints({2, 1})}, {{24, 4}}).find("give [16, 4]") != std::string::npos);
    CHECK(told("torch.nn.functional.one_hot", {{8}}, {T(0), number(5)}, {{8, 4}}, {}, {element_type::int64})
              .find("give [8, 5]") != std::string::npos);
    CHECK(told("expand", {{1, 4}}, {T(0), ints({8, -1})}, {{9, 4}}) ==
          "operator 'op', argument 'size': is [8, -1], the result has shape [9, 4]");
    CHECK(told("reshape", {{8, 4}}, {T(0), ints({4, -1})}, {{2, 16}}) ==
          "operator 'op', argument 'shape': is [4, -1], the result has shape [2, 16]");
    CHECK(told("unsqueeze", {{8, 4}}, {T(0), number(9)}, {{8, 4, 1}}) ==
          "operator 'op', argument 'dim': is 9, expected a dimension of a tensor of 3");
    CHECK(told("unsqueeze", {{8, 4}}, {T(0), number(0)}, {{8, 4, 1}}) ==
          "operator 'op', argument 'dim': gives shape [1, 8, 4], the result has [8, 4, 1]");
}

TEST_CASE("slices and places are within what they are of") {
    auto const item = [](literal index, tensor_shape result) {
        return told("operator.getitem", {{8, 4}}, {T(0), std::move(index)}, {std::move(result)});
    };
    constexpr auto least = std::numeric_limits<std::int64_t>::min();
    CHECK(item(number(11), {4}) == "operator 'op', argument 'index': is 11, expected -8 to 7");
    CHECK(item(slice(0, {}, -1), {8, 4}) == "operator 'op', argument 'index': has step -1, expected at least 1");
    CHECK(item(slice(0, {}, 0), {8, 4}) == "operator 'op', argument 'index': has step 0, expected at least 1");
    CHECK(item(slice(5, {}), {4000, 4}) ==
          "operator 'op', result 0: has shape [4000, 4], its operands and arguments give [3, 4]");
    CHECK(item(slice(0, 3), {7, 4}) ==
          "operator 'op', result 0: has shape [7, 4], its operands and arguments give [3, 4]");
    CHECK(item(slice(9, {}), {1, 4}) == "operator 'op', argument 'index': takes places 8 to 8, expected at least one");
    CHECK(item(slice(least, {}), {8, 4}) == "nothing thrown");
    CHECK(told("select", {{8, 4}}, {T(0), number(0), number(99)}, {{4}}) ==
          "operator 'op', argument 'index': is 99, expected -8 to 7");
    CHECK(told("narrow", {{8, 4}}, {T(0), number(0), number(6), number(4)}, {{4, 4}}) ==
          "operator 'op', argument 'length': is 4, expected 1 to 2");
    CHECK(told("torch.roll", {{8, 4}}, {T(0), number(least), number(0)}, {{8, 4}}) == "nothing thrown");
    CHECK(told("torch.nn.functional.pad", {{8, 4}}, {T(0), ints({20, 16}), text("reflect")}, {{8, 40}}) ==
          "operator 'op', argument 'pad': is 20, expected -4 to 3");
    std::vector<element_type> const mask{element_type::float32, element_type::boolean};
    CHECK(told("operator.getitem", {{8, 4}, {8}}, {T(0), T(1)}, {{50, 4}}, {}, mask) ==
          "operator 'op', argument 'index': is 50, expected 1 to 8");
    CHECK(told("operator.getitem", {{8, 4}, {80}}, {T(0), T(1)}, {{5, 4}}, {}, mask) ==
          "operator 'op', argument 'index': has shape [80], expected [8]");
    CHECK(told("torch.nn.functional.embedding", {{3}, {8, 4}}, {T(0), T(1), number(1000)}, {{3, 4}}, {},
               {element_type::int64}) == "operator 'op', argument 'padding_idx': is 1000, expected -8 to 7");
}

TEST_CASE("a dimension taken whole keeps its index, however that is written") {
    auto const loops = [](char const* target, std::vector<literal> arguments) {
        return add({target, {{8, 4}}, std::move(arguments), {}, {{8, 4}}}).loops;
    };
    auto const both = loops("clone", {T(0)});
    CHECK(loops("operator.getitem", {T(0), slice(0, 8)}) == both);
    CHECK(loops("operator.getitem", {T(0), slice(-8, {})}) == both);
    CHECK(loops("narrow", {T(0), number(0), number(0), number(8)}) == both);
    CHECK(loops("slice", {T(0), number(0), number(0), number(std::numeric_limits<std::int64_t>::max()), number(1)}) ==
          both);
}

TEST_CASE("windows fit into what they slide over") {
    std::vector<tensor_shape> const image{{2, 3, 9, 9}, {4, 3, 3, 3}};
    auto const conv = [&](std::vector<literal> more, tensor_shape result) {
        more.insert(more.begin(), {T(0), T(1), none()});
        return told("torch.nn.functional.conv2d", image, more, {std::move(result)});
    };
    CHECK(conv({}, {2, 4, 7, 7}) == "nothing thrown");
    CHECK(conv({number(2), number(1), number(2)}, {2, 4, 4, 4}) == "nothing thrown");
    CHECK(conv({number(1), text("same"), number(2)}, {2, 4, 9, 9}) == "nothing thrown");
    CHECK(conv({}, {2, 4, 100, 100}) ==
          "operator 'op', result 0: has shape [2, 4, 100, 100], its operands and arguments give [2, 4, 7, 7]");
    CHECK(conv({number(0)}, {2, 4, 9, 9}) == "operator 'op', argument 'stride': is 0, expected 1 to 2147483647");
    CHECK(conv({number(std::int64_t{1} << 61)}, {2, 4, 1, 1}) ==
          "operator 'op', argument 'stride': is 2147483648, expected 1 to 2147483647");
    CHECK(conv({number(1), number(0), number(1), number(std::int64_t{1} << 62)}, {2, 4, 7, 7}) ==
          "operator 'op', argument 'groups': is 4611686018427387904, expected 1 to 3");
    CHECK(told("torch.nn.functional.conv_transpose2d", {{2, 4, 7, 7}, {4, 3, 3, 3}},
               {T(0), T(1), none(), number(2), number(1), number(1)}, {{2, 3, 14, 14}}) == "nothing thrown");
    CHECK(told("torch.nn.functional.conv_transpose2d", {{2, 4, 7, 7}, {4, 3, 3, 3}},
               {T(0), T(1), none(), number(2), number(1), number(2)},
               {{2, 3, 15, 15}}) == "operator 'op', argument 'output_padding': is 2, expected 0 to 1");
    auto const pool = [&](char const* target, std::vector<literal> more, tensor_shape result,
                          std::map<std::string, literal, std::less<>> named = {}) {
        more.insert(more.begin(), T(0));
        return told(target, {{2, 3, 9, 9}}, more, {std::move(result)}, std::move(named));
    };
    CHECK(pool("torch.nn.functional.max_pool2d", {number(2)}, {2, 3, 4, 4}) == "nothing thrown");
    CHECK(pool("torch.nn.functional.max_pool2d", {number(2)}, {2, 3, 5, 5}, {{"ceil_mode", flag(true)}}) ==
          "nothing thrown");
    CHECK(pool("torch.nn.functional.max_pool2d", {number(2)}, {2, 3, 5, 5}).find("give [2, 3, 4, 4]") !=
          std::string::npos);
    // A window larger than what there is overhangs; one that would begin behind the end is none.
    CHECK(pool("torch.nn.functional.avg_pool2d", {number(40)}, {2, 3, 1, 1}, {{"ceil_mode", flag(true)}}) ==
          "nothing thrown");
    CHECK(pool("torch.nn.functional.max_pool2d", {number(2), number(8), number(1)}, {2, 3, 2, 2},
               {{"ceil_mode", flag(true)}}) == "nothing thrown");
    CHECK(pool("torch.nn.functional.max_pool2d", {number(2), number(10), number(1)}, {2, 3, 1, 1},
               {{"ceil_mode", flag(true)}}) == "nothing thrown");
    CHECK(pool("torch.nn.functional.max_pool2d", {number(3), number(1), number(2)}, {2, 3, 11, 11}) ==
          "operator 'op', argument 'padding': is 2, expected 0 to 1");
    CHECK(pool("torch.nn.functional.avg_pool2d", {ints({-2, 2})}, {2, 3, 4, 4}) ==
          "operator 'op', argument 'kernel_size': is -2, expected 1 to 2147483647");
    CHECK(pool("torch.nn.functional.adaptive_avg_pool2d", {list({number(4), none()})}, {2, 3, 4, 9}) ==
          "nothing thrown");
    CHECK(pool("torch.nn.functional.adaptive_avg_pool2d", {number(4)}, {2, 3, 5, 4}).find("give [2, 3, 4, 4]") !=
          std::string::npos);
    CHECK(pool("torch.nn.functional.interpolate", {}, {2, 3, 15, 15}, {{"scale_factor", real(1.7)}}) ==
          "nothing thrown");
    CHECK(pool("torch.nn.functional.interpolate", {number(4)}, {2, 3, 5, 4}).find("give [2, 3, 4, 4]") !=
          std::string::npos);
}

TEST_CASE("targets, class weights, sizes and probabilities are what their operators take") {
    std::vector<element_type> const labels{element_type::float32, element_type::int64};
    auto const loss = [&](std::vector<tensor_shape> operands) {
        return told("torch.nn.functional.cross_entropy", operands, {T(0), T(1), operands.size() > 2 ? T(2) : none()},
                    {{}}, {}, labels);
    };
    CHECK(loss({{8, 4}, {8}, {4}}) == "nothing thrown");
    CHECK(loss({{8, 4}, {3}}) == "operator 'op', argument 'target': has shape [3], expected [8]");
    CHECK(loss({{8, 4}, {9}}) == "operator 'op', argument 'target': has shape [9], expected [8]");
    CHECK(loss({{8, 4}, {8}, {2}}) == "operator 'op', argument 'weight': has shape [2], expected [4]");
    CHECK(told("torch.nn.functional.layer_norm", {{8, 4}}, {T(0), ints({2, 2, 2})}, {{8, 4}}) ==
          "operator 'op', argument 'normalized_shape': is [2, 2, 2], expected the last of [8, 4]");
    CHECK(told("torch.nn.functional.layer_norm", {{8, 4}}, {T(0), ints({17})}, {{8, 4}}) ==
          "operator 'op', argument 'normalized_shape': is [17], expected the last of [8, 4]");
    for (double p : {2.5, -0.5, std::numeric_limits<double>::quiet_NaN()})
        CHECK(told("torch.nn.functional.dropout", {{8, 4}}, {T(0), real(p)}, {{8, 4}}).find("argument 'p'") !=
              std::string::npos);
}
