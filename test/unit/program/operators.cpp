// SPDX-License-Identifier: BSL-1.0
#include "one_call.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

using numbers = std::vector<std::uint8_t>;

} // namespace

TEST_CASE("linear takes any leading dimensions, with bias or without") {
    auto const plain =
        add({"torch.nn.functional.linear", {{8, 4}, {3, 4}}, {T(0), T(1)}, {{"bias", none()}}, {{8, 3}}});
    CHECK(plain.is_known);
    CHECK(plain.loops == "3 1:0 -> 0:1\n4+ 0:1 1:1 ->\n8 0:0 -> 0:0\n");
    CHECK(terms(plain.rule) == "0*1");
    auto const biased = add({"torch.nn.functional.linear",
                             {{8, 5, 4}, {3, 4}, {3}},
                             {},
                             {{"input", T(0)}, {"weight", T(1)}, {"bias", T(2)}},
                             {{8, 5, 3}}});
    CHECK(biased.loops == "3 1:0 2:0 -> 0:2\n4+ 0:2 1:1 ->\n5 0:1 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(terms(biased.rule) == "0*1 + 2");
    CHECK(biased.work.forward.value == 2 * 8 * 5 * 4 * 3);
    CHECK(biased.work.backward.value == 2 * biased.work.forward.value);
    CHECK(biased.work.category == operator_class::matmul);
    CHECK(biased.work.saved_operands == numbers{0, 1});
    auto const vector = add({"torch._C._nn.linear", {{4}, {1, 4}}, {T(0), T(1)}, {}, {{1}}});
    CHECK(vector.loops == "4+ 0:0 1:0 ->\n");
}

TEST_CASE("matmul broadcasts leading dimensions") {
    auto const batched = add({"matmul", {{8, 1, 5, 4}, {3, 4, 6}}, {T(0), T(1)}, {}, {{8, 3, 5, 6}}});
    CHECK(batched.loops == "3 1:0 -> 0:1\n4+ 0:2 1:1 ->\n5 0:1 -> 0:2\n6 1:2 -> 0:3\n8 0:0 -> 0:0\n");
    CHECK(batched.work.forward.value == 2 * 8 * 3 * 5 * 4 * 6);
    CHECK(add({"torch.bmm", {{8, 5, 4}, {8, 4, 6}}, {}, {{"input", T(0)}, {"mat2", T(1)}}, {{8, 5, 6}}}).is_known);
    CHECK(add({"torch.matmul", {{4}, {4, 3}}, {T(0), T(1)}, {}, {{3}}}).loops == "3 1:1 -> 0:0\n4+ 0:0 1:0 ->\n");
    CHECK(add({"torch.matmul", {{2, 3, 4}, {4}}, {T(0), T(1)}, {}, {{2, 3}}}).loops ==
          "2 0:0 -> 0:0\n3 0:1 -> 0:1\n4+ 0:2 1:0 ->\n");
    CHECK(add({"torch.dot", {{4}, {4}}, {}, {{"input", T(0)}, {"tensor", T(1)}}, {{}}}).loops == "4+ 0:0 1:0 ->\n");
    auto const added = add({"torch.addmm", {{6}, {5, 4}, {4, 6}}, {T(0), T(1), T(2)}, {}, {{5, 6}}});
    CHECK(added.loops == "4+ 1:1 2:0 ->\n5 1:0 -> 0:0\n6 0:0 2:1 -> 0:1\n");
    CHECK(terms(added.rule) == "0 + 1*2");
    CHECK(added.work.forward.value == 2 * 5 * 4 * 6);
}

TEST_CASE("einsum may be explicit, implicit or broadcast, and have three operands") {
    auto const einsum = [](char const* equation, std::vector<tensor_shape> operands, tensor_shape result) {
        std::vector<literal> arguments{text(equation)};
        for (tensor_id k = 0; k < operands.size(); ++k) arguments.push_back(T(k));
        return one_call{"torch.functional.einsum", std::move(operands), arguments, {}, {std::move(result)}};
    };
    auto const experts = add(einsum("becd,edh->bech", {{2, 3, 5, 7}, {3, 7, 11}}, {2, 3, 5, 11}));
    CHECK(experts.loops == "11 1:2 -> 0:3\n2 0:0 -> 0:0\n3 0:1 1:0 -> 0:1\n5 0:2 -> 0:2\n7+ 0:3 1:1 ->\n");
    CHECK(terms(experts.rule) == "0*1");
    CHECK(experts.work.forward.value == 2 * 2 * 3 * 5 * 7 * 11);
    CHECK(add(einsum("ik, kj", {{2, 3}, {3, 5}}, {2, 5})).loops == "2 0:0 -> 0:0\n3+ 0:1 1:0 ->\n5 1:1 -> 0:1\n");
    CHECK(terms(add(einsum("a,a,a->", {{2}, {2}, {2}}, {})).rule) == "0*1*2");
    CHECK(add(einsum("ab,ab->ab", {{2, 3}, {1, 3}}, {2, 3})).loops == "2 0:0 -> 0:0\n3 0:1 1:0 -> 0:1\n");
    CHECK(terms(add(einsum("ab->ba", {{2, 3}}, {3, 2})).rule) == "0");
    CHECK(add(einsum("...a,ab->...b", {{2, 4, 3}, {3, 5}}, {2, 4, 5})).loops ==
          "2 0:0 -> 0:0\n3+ 0:2 1:0 ->\n4 0:1 -> 0:1\n5 1:1 -> 0:2\n");
    CHECK(add(einsum("a...,...", {{3, 2, 4}, {4}}, {2, 4, 3})).loops ==
          "2 0:1 -> 0:0\n3 0:0 -> 0:2\n4 0:2 1:0 -> 0:1\n");
    CHECK(add(einsum("...,...->", {{2, 4}, {1, 4}}, {})).loops == "2+ 0:0 ->\n4+ 0:1 1:0 ->\n");
    CHECK(add(einsum("ii->i", {{3, 3}}, {3})).loops.empty());
    CHECK(add({"torch.einsum", {{2, 3}, {3, 5}}, {T(0), ints({0, 1}), T(1), ints({1, 2}), ints({2, 0})}, {}, {{5, 2}}})
              .loops == "2 0:0 -> 0:1\n3+ 0:1 1:0 ->\n5 1:1 -> 0:0\n");
    CHECK(message_of({"torch.einsum", {{2, 3}}, {T(0), number(1)}, {}, {{3, 2}}}).find("expected a list of numbers") !=
          std::string::npos);
    CHECK(message_of(einsum("a.b,b->a", {{2, 3}, {3}}, {2})).find("expected letters and one '...'") !=
          std::string::npos);
    CHECK(message_of(einsum("ab,bc->ac", {{2, 3}}, {2, 3})).find("is of 2 operands, there are 1") != std::string::npos);
    CHECK(message_of(einsum("ab->abz", {{2, 3}}, {2, 3, 4})).find("has 'z' in the result alone") != std::string::npos);
    CHECK(message_of(einsum("ab,bc->ac", {{2, 3}, {4, 5}}, {2, 5}))
              .find("operator 'op': operand 1, dimension 0: extent 4") != std::string::npos);
}

TEST_CASE("convolution blocks windows and factors channels by groups") {
    auto const conv = [](std::int64_t groups, tensor_shape weight) {
        return one_call{"torch.conv2d",
                        {{2, 6, 9, 9}, weight, {4}},
                        {T(0), T(1), T(2), ints({1, 1}), ints({1, 1}), ints({1, 1}), number(groups)},
                        {},
                        {{2, 4, 9, 9}}};
    };
    auto const plain = add(conv(1, {4, 6, 3, 3}));
    CHECK(plain.loops == "2 0:0 -> 0:0\n4 1:0 2:0 -> 0:1\n6+ 0:1 1:1 ->\n");
    CHECK(terms(plain.rule) == "0*1 + 2");
    CHECK(plain.work.forward.value == 2. * 2 * 4 * 81 * 6 * 9);
    CHECK(plain.work.category == operator_class::convolution);
    // Groups are parallel through all; channels within a group are a sum, or parallel in the result.
    auto const grouped = add(conv(2, {4, 3, 3, 3}));
    CHECK(grouped.loops == "2 0:0 -> 0:0\n2 0:1 1:0 2:0 -> 0:1\n2 1:1 2:1 -> 0:2\n3+ 0:2 1:2 ->\n");
    CHECK(grouped.work.forward.value == 2. * 2 * 4 * 81 * 3 * 9);
    CHECK(message_of(conv(4, {4, 3, 3, 3})).find("argument 'weight'") != std::string::npos);
    CHECK(message_of(conv(-2, {4, 3, 3, 3})).find("argument 'groups'") != std::string::npos);
    CHECK(add({"torch.conv1d", {{6, 9}, {4, 6, 3}}, {T(0), T(1)}, {}, {{4, 7}}}).loops ==
          "4 1:0 -> 0:0\n6+ 0:0 1:1 ->\n"); // one sample
    CHECK(add({"torch.conv_transpose1d", {{6, 9}, {6, 4, 3}}, {T(0), T(1)}, {}, {{4, 11}}}).loops ==
          "4 1:1 -> 0:0\n6+ 0:0 1:0 ->\n");
}

TEST_CASE("embedding sums over vocabulary rows, and its table is sparse") {
    auto const o = add({"torch.nn.functional.embedding",
                        {{8, 5}, {100, 6}},
                        {T(0), T(1)},
                        {{"padding_idx", number(0)}},
                        {{8, 5, 6}},
                        {element_type::int64}});
    CHECK(o.loops == "100+ 1:0 ->\n5 0:1 -> 0:1\n6 1:1 -> 0:2\n8 0:0 -> 0:0\n");
    CHECK(terms(o.rule) == "1");
    CHECK(o.work.sparse_operands == numbers{1});
    CHECK(o.work.saved_operands == numbers{0});
    CHECK(o.work.forward.value == 8 * 5 * 6);
}

TEST_CASE("scaled dot-product attention is linear in the values, and its queries' rows are parallel") {
    auto const o = add({"torch.nn.functional.scaled_dot_product_attention",
                        {{2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 6}},
                        {T(0), T(1), T(2)},
                        {},
                        {{2, 3, 5, 6}}});
    CHECK(o.loops == "2 0:0 1:0 2:0 -> 0:0\n3 0:1 1:1 2:1 -> 0:1\n5 0:2 -> 0:2\n");
    CHECK(terms(o.rule) == "2");
    CHECK(o.work.forward.value == 2. * 2 * 3 * 5 * 7 * (4 + 6));
    // Grouped queries: two heads of keys, each for three of queries; the mask is the same for all samples.
    auto grouped = one_call{"torch.nn.functional.scaled_dot_product_attention",
                            {{4, 6, 5, 8}, {4, 2, 7, 8}, {4, 2, 7, 9}, {6, 5, 7}},
                            {T(0), T(1), T(2), T(3)},
                            {},
                            {{4, 6, 5, 9}}};
    CHECK_FALSE(message_of(grouped) == "nothing thrown");
    grouped.keywords["enable_gqa"] = flag(true);
    auto const g = add(grouped);
    CHECK(g.loops == "2 0:1 1:1 2:1 3:0 -> 0:1\n3 0:2 3:1 -> 0:2\n4 0:0 1:0 2:0 -> 0:0\n5 0:3 3:2 -> 0:3\n");
    CHECK(terms(g.rule) == "2");
    CHECK(g.work.forward.value == 2. * 4 * 6 * 5 * 7 * (8 + 9));
    CHECK(g.work.saved_operands == numbers{0, 1, 2, 3});
    grouped.operands[1][1] = grouped.operands[2][1] = 4;
    CHECK(message_of(grouped).find("groups 6 heads of queries by 4 of keys and 4 of values") != std::string::npos);
}

TEST_CASE("gating cuts the batch alone") {
    for (char const* target : {"heddle.top_2_gating", "models.top_2_gating", "models.switch_gating"}) {
        auto const o = add({target, {{8, 5, 6}, {6, 3}}, {}, {}, {{8, 5, 3, 2}, {8, 5, 3, 2}}});
        CHECK(o.is_known);
        CHECK(o.loops == "8 0:0 -> 0:0 1:0\n");
        CHECK(o.rule.terms.empty());
        CHECK(o.work.forward.value == 2. * 8 * 5 * 6 * 3 + 2 * 8 * 5 * 3 * 2);
    }
}

TEST_CASE("element-wise functions say what is linear, saved and a view") {
    struct {
        std::string target, terms;
        numbers operands, results;
        bool is_view;
    } const cases[] = {
        {"torch.nn.functional.relu", "", {}, {0}, false},
        {"relu", "", {}, {0}, false},
        {"torch.tanh", "", {}, {0}, false},
        {"torch.nn.functional.gelu", "", {0}, {}, false},
        {"torch.nn.functional.silu", "", {0}, {}, false},
        {"operator.neg", "0", {}, {}, false},
        {"contiguous", "0", {}, {}, true},
        {"clone", "0", {}, {}, false},
        {"float", "0", {}, {}, false},
    };
    for (auto const& c : cases) {
        CAPTURE(c.target);
        auto const o = add({c.target, {{8, 4}}, {T(0)}, {}, {{8, 4}}});
        CHECK(o.is_known);
        CHECK(o.loops == "4 0:1 -> 0:1\n8 0:0 -> 0:0\n");
        CHECK(terms(o.rule) == c.terms);
        CHECK(o.work.saved_operands == c.operands);
        CHECK(o.work.saved_results == c.results);
        CHECK(o.work.is_view == c.is_view);
    }
}

TEST_CASE("dropout is linear and keeps a byte per element, in training") {
    auto const dropout = [](bool training, double p) {
        return add({"torch.nn.functional.dropout",
                    {{8, 4}},
                    {},
                    {{"input", T(0)}, {"p", real(p)}, {"training", flag(training)}},
                    {{8, 4}}});
    };
    auto const active = dropout(true, 0.1);
    CHECK(terms(active.rule) == "0");
    CHECK(active.work.extra_saved.value == 32);
    CHECK_FALSE(active.work.is_view);
    CHECK(dropout(false, 0.1).work.is_view);
    CHECK(dropout(true, 0).work.extra_saved.value == 0);
}

TEST_CASE("arithmetic on two tensors broadcasts") {
    auto const binary = [](char const* target, tensor_shape x, tensor_shape y, tensor_shape result) {
        return add({target, {x, y}, {T(0), T(1)}, {}, {result}});
    };
    auto const sum = binary("operator.add", {8, 5, 4}, {1, 5, 4}, {8, 5, 4});
    CHECK(sum.loops == "4 0:2 1:1 -> 0:2\n5 0:1 1:0 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(terms(sum.rule) == "0 + 1");
    CHECK(sum.work.saved_operands.empty());
    CHECK(binary("torch.sub", {4}, {8, 4}, {8, 4}).loops == "4 0:0 1:1 -> 0:1\n8 1:0 -> 0:0\n");
    auto const product = binary("mul", {8, 4}, {4}, {8, 4});
    CHECK(terms(product.rule) == "0*1");
    CHECK(product.work.forward.value == 32);
    CHECK(product.work.backward.value == 64);
    CHECK(product.work.saved_operands == numbers{0, 1});
    CHECK(terms(binary("operator.truediv", {8, 4}, {8, 4}, {8, 4}).rule) == "0");
    CHECK(binary("operator.add", {1, 1}, {1, 1}, {1, 1}).loops.empty());
    CHECK(message_of({"operator.add", {{8, 4}, {8, 4}}, {T(0), T(1)}, {}, {{9, 4}}}) ==
          "operator 'op', result 0: has shape [9, 4], its operands and arguments give [8, 4]");
    CHECK(message_of({"operator.add", {{1, 4}, {1, 4}}, {T(0), T(1)}, {}, {{8, 4}}}) ==
          "operator 'op', result 0: has shape [8, 4], its operands and arguments give [1, 4]");
    CHECK(message_of({"operator.add", {{3, 4}, {8, 4}}, {T(0), T(1)}, {}, {{8, 4}}}).find("operand 1, dimension 0") !=
          std::string::npos);
}

TEST_CASE("arithmetic on a tensor and a number is affine if it adds something") {
    struct {
        std::string target;
        literal left, right;
        std::string terms;
    } const cases[] = {
        {"operator.add", T(0), real(1.5), ""},     {"operator.add", number(2), T(0), ""},
        {"operator.add", T(0), number(0), "0"},    {"operator.sub", T(0), real(1), ""},
        {"operator.sub", real(1), T(0), ""},       {"operator.mul", T(0), real(2), "0"},
        {"operator.mul", number(2), T(0), "0"},    {"operator.truediv", T(0), number(2), "0"},
        {"operator.truediv", number(1), T(0), ""},
    };
    for (auto const& c : cases) {
        auto const o = add({c.target, {{8, 4}}, {c.left, c.right}, {}, {{8, 4}}});
        CAPTURE(c.target);
        CHECK(o.is_known);
        CHECK(terms(o.rule) == c.terms);
        CHECK(o.work.saved_operands.empty());
    }
    CHECK_FALSE(add({"operator.add", {{8}}, {T(0), text("x")}, {}, {{8}}}).is_known);
}

TEST_CASE("norms combine numbers of rows and are linear in weight and bias") {
    auto const layer =
        add({"torch.nn.functional.layer_norm", {{8, 5, 4}, {4}, {4}}, {T(0), ints({4}), T(1), T(2)}, {}, {{8, 5, 4}}});
    CHECK(layer.loops == "4~~ 0:2 1:0 2:0 ->~~ 0:2\n5 0:1 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(terms(layer.rule) == "1 + 2");
    CHECK(layer.work.saved_operands == numbers{0});
    CHECK(layer.work.category == operator_class::normalisation);
    CHECK(terms(add({"torch.layer_norm", {{8, 4}, {4}}, {T(0), ints({4})}, {{"bias", T(1)}}, {{8, 4}}}).rule)
              .empty()); // affine in the bias alone
    CHECK(terms(add({"torch.layer_norm", {{8, 4}, {4}}, {T(0), ints({4}), T(1)}, {}, {{8, 4}}}).rule) == "1");
    CHECK(add({"torch.layer_norm", {{8, 5, 4}}, {T(0), ints({5, 4})}, {}, {{8, 5, 4}}}).loops ==
          "4~~ 0:2 ->~~ 0:2\n5~~ 0:1 ->~~ 0:1\n8 0:0 -> 0:0\n");
    CHECK(add({"torch.nn.functional.rms_norm", {{8, 4}, {4}}, {T(0), ints({4}), T(1)}, {}, {{8, 4}}}).loops ==
          "4~ 0:1 1:0 ->~ 0:1\n8 0:0 -> 0:0\n");
    CHECK(add({"torch.group_norm", {{8, 6, 5}, {6}}, {T(0), number(2), T(1)}, {}, {{8, 6, 5}}}).loops ==
          "2 0:1 1:0 -> 0:1\n3~~ 0:2 1:1 ->~~ 0:2\n5~~ 0:3 ->~~ 0:3\n8 0:0 -> 0:0\n");
    CHECK(add({"torch.instance_norm", {{8, 6, 5}}, {T(0)}, {}, {{8, 6, 5}}}).loops ==
          "5~~ 0:2 ->~~ 0:2\n6 0:1 -> 0:1\n8 0:0 -> 0:0\n");

    auto const batch = [](bool training, rule_table const& rules = {}) {
        return add({"torch.nn.functional.batch_norm",
                    {{8, 3, 5}, {3}, {3}, {3}, {3}},
                    {T(0), T(1), T(2), T(3), T(4), flag(training)},
                    {},
                    {{8, 3, 5}}},
                   rules);
    };
    CHECK(batch(true).loops == "3 0:1 1:0 2:0 3:0 4:0 -> 0:1\n5~~ 0:2 ->~~ 0:2\n8~~ 0:0 ->~~ 0:0\n");
    CHECK(batch(false).loops == "3 0:1 1:0 2:0 3:0 4:0 -> 0:1\n5 0:2 -> 0:2\n8 0:0 -> 0:0\n");
    CHECK(terms(batch(true).rule) == "3 + 4");
    auto const normalised = batch(true);
    // A number for each row, of 4 bytes: 3 channels, 8 * 5 places of a layer norm.
    for (auto const& loop : normalised.indexed.operators[0].loops)
        CHECK(loop.statistic.value == (loop.forward_statistics > 0 ? 4 * 3 : 0));
    for (auto const& loop : layer.indexed.operators[0].loops)
        CHECK(loop.statistic.value == (loop.forward_statistics > 0 ? 4 * 8 * 5 : 0));
    // The variant: the batch is cut without statistics, and then nothing else that rows extend along.
    rule_table const per_shard{{"torch.nn.functional.batch_norm", "per_shard"}};
    CHECK(batch(true, per_shard).loops == "3 0:1 1:0 2:0 3:0 4:0 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(batch(true, per_shard).is_known);
    CHECK(terms(batch(true, per_shard).rule) == "3 + 4");
    CHECK(batch(false, per_shard).loops == batch(false).loops);
    CHECK_THROWS_AS(check_rule("torch.nn.functional.batch_norm", "per_shards"), input_error);
    CHECK_THROWS_AS(check_rule("torch.nn.functional.layer_norm", "per_shard"), input_error);
    check_rule("torch.batch_norm", "per_shard");
    check_rule("my.op", "(b) -> (b)");

    for (char const* target : {"torch.softmax", "torch.log_softmax"}) {
        auto const o = add({target, {{8, 5, 4}}, {T(0)}, {{"dim", number(-2)}}, {{8, 5, 4}}});
        CHECK(o.loops == "4 0:2 -> 0:2\n5~~ 0:1 ->~ 0:1\n8 0:0 -> 0:0\n");
        CHECK(o.work.saved_results == numbers{0});
        CHECK(o.rule.terms.empty());
    }
    CHECK(message_of({"torch.softmax", {{8}}, {T(0), number(1)}, {}, {{8}}}).find("argument 'dim'") !=
          std::string::npos);
}

TEST_CASE("sums and means are linear over any dimensions") {
    for (char const* target : {"torch.sum", "mean"}) {
        auto const all = add({target, {{8, 4}}, {T(0)}, {}, {{}}});
        CHECK(all.loops == "4+ 0:1 ->\n8+ 0:0 ->\n");
        CHECK(terms(all.rule) == "0");
        CHECK(add({target, {{8, 4}}, {T(0), number(-1)}, {}, {{8}}}).loops == "4+ 0:1 ->\n8 0:0 -> 0:0\n");
        CHECK(add({target, {{8, 5, 4}}, {T(0)}, {{"dim", ints({0, 2})}, {"keepdim", flag(true)}}, {{1, 5, 1}}}).loops ==
              "4+ 0:2 ->\n5 0:1 -> 0:0\n8+ 0:0 ->\n");
    }
}

TEST_CASE("pools block their windows") {
    auto const max = add({"torch.nn.functional.max_pool2d", {{2, 3, 8, 8}}, {T(0), number(2)}, {}, {{2, 3, 4, 4}}});
    CHECK(max.loops == "2 0:0 -> 0:0\n3 0:1 -> 0:1\n");
    CHECK(max.rule.terms.empty());
    CHECK(max.work.saved_operands == numbers{0});
    CHECK(max.work.extra_saved.value == 8 * 2 * 3 * 16);
    CHECK(max.work.forward.value == 2 * 3 * 64);
    auto const average =
        add({"torch.nn.functional.avg_pool2d", {{2, 3, 8, 8}}, {T(0), ints({3, 3}), number(1)}, {}, {{2, 3, 6, 6}}});
    CHECK(terms(average.rule) == "0");
    CHECK(average.work.forward.value == 2 * 3 * 36 * 9);
    auto const adaptive =
        add({"torch.nn.functional.adaptive_avg_pool2d", {{2, 3, 8, 8}}, {T(0), number(1)}, {}, {{2, 3, 1, 1}}});
    CHECK(adaptive.loops == max.loops);
    CHECK(terms(adaptive.rule) == "0");
}

TEST_CASE("losses sum over the batch; a mean needs all targets") {
    auto const loss = [](char const* target, char const* reduction, tensor_shape scores, tensor_shape labels,
                         tensor_shape result) {
        return add({target,
                    {scores, labels},
                    {T(0), T(1)},
                    {{"reduction", text(reduction)}},
                    {result},
                    {element_type::float32, element_type::int64}});
    };
    auto const sum = loss("torch.nn.functional.nll_loss", "sum", {8, 10}, {8}, {});
    CHECK(sum.loops == "10+ 0:1 ->\n8+ 0:0 1:0 ->\n");
    CHECK(terms(sum.rule) == "0");
    CHECK(sum.work.saved_operands == numbers{1});
    CHECK(sum.work.forward.value == 8);
    CHECK(loss("torch.nn.functional.nll_loss", "sum", {8, 10, 5}, {8, 5}, {}).loops ==
          "10+ 0:1 ->\n5+ 0:2 1:1 ->\n8+ 0:0 1:0 ->\n");
    CHECK(loss("torch.nn.functional.nll_loss", "mean", {8, 10}, {8}, {}).loops == "10+ 0:1 ->\n8+ 0:0 ->\n");
    CHECK(loss("torch.nn.functional.nll_loss", "none", {8, 10}, {8}, {8}).loops == "10+ 0:1 ->\n8 0:0 1:0 -> 0:0\n");
    CHECK(loss("torch.nn.functional.nll_loss", "sum", {10}, {}, {}).loops == "10+ 0:0 ->\n");
    auto const entropy = loss("torch.nn.functional.cross_entropy", "sum", {8, 10}, {8}, {});
    CHECK(entropy.loops == "10+~~ 0:1 ->\n8+ 0:0 1:0 ->\n");
    CHECK(entropy.rule.terms.empty());
    CHECK(entropy.work.extra_saved.value == 320);
    CHECK(add({"torch.nn.functional.cross_entropy", {{8, 10}, {8, 10}}, {T(0), T(1)}, {}, {{}}}).loops ==
          "8+ 0:0 1:0 ->\n");
    CHECK(add({"torch.nn.functional.mse_loss", {{8, 4}, {8, 4}}, {T(0), T(1)}, {}, {{}}}).loops ==
          "4+ 0:1 1:1 ->\n8+ 0:0 1:0 ->\n");
}

TEST_CASE("views permute, refactor and pick dimensions") {
    struct test_case {
        std::string target;
        tensor_shape from, to;
        std::vector<literal> more;
        std::string loops;
    };
    std::vector<test_case> const cases{
        {"transpose", {2, 3, 5}, {5, 3, 2}, {number(0), number(-1)}, "2 0:0 -> 0:2\n3 0:1 -> 0:1\n5 0:2 -> 0:0\n"},
        {"permute",
         {2, 3, 5},
         {3, 5, 2},
         {number(1), number(2), number(0)},
         "2 0:0 -> 0:2\n3 0:1 -> 0:0\n5 0:2 -> 0:1\n"},
        {"torch.permute", {2, 3}, {3, 2}, {ints({1, 0})}, "2 0:0 -> 0:1\n3 0:1 -> 0:0\n"},
        {"t", {2, 3}, {3, 2}, {}, "2 0:0 -> 0:1\n3 0:1 -> 0:0\n"},
        {"getattr", {2, 3}, {3, 2}, {text("T")}, "2 0:0 -> 0:1\n3 0:1 -> 0:0\n"},
        {"torch.flatten", {2, 3, 5}, {2, 15}, {number(1)}, "2 0:0 -> 0:0\n3 0:1 -> 0:1\n5 0:2 -> 0:2\n"},
        {"view", {2, 12}, {2, 3, 4}, {}, "2 0:0 -> 0:0\n3 0:1 -> 0:1\n4 0:2 -> 0:2\n"},
        {"reshape", {6, 4}, {8, 3}, {}, "2 0:0 -> 0:0\n"}, // only the cut in the middle is one of both
        {"reshape", {6, 4}, {3, 8}, {}, "2 0:1 -> 0:1\n3 0:0 -> 0:0\n4 0:2 -> 0:2\n"},
        {"reshape", {2, 3}, {3, 2}, {}, ""},
        {"reshape", {1, 6}, {6, 1, 1}, {}, "6 0:0 -> 0:0\n"},
        {"reshape", {4, 5, 2, 3}, {4, 5, 3, 2}, {}, "4 0:0 -> 0:0\n5 0:1 -> 0:1\n"},
        {"reshape", {}, {1}, {}, ""},
        {"unsqueeze", {2, 3}, {2, 1, 3}, {number(1)}, "2 0:0 -> 0:0\n3 0:1 -> 0:1\n"},
        {"expand", {1, 3}, {5, 3}, {number(5), number(-1)}, "3 0:0 -> 0:1\n5 -> 0:0\n"},
        {"expand", {3}, {2, 3}, {}, "2 -> 0:0\n3 0:0 -> 0:1\n"},
        {"operator.getitem", {2, 3, 5}, {2, 5}, {list({whole(), number(0)})}, "2 0:0 -> 0:0\n5 0:2 -> 0:1\n"},
        {"operator.getitem", {2, 3, 5}, {3, 5}, {number(1)}, "3 0:1 -> 0:0\n5 0:2 -> 0:1\n"},
        {"operator.getitem",
         {2, 3, 5},
         {2, 3, 2},
         {list({{literal::ellipsis{}}, {literal::slice{1, 3, {}}}})},
         "2 0:0 -> 0:0\n3 0:1 -> 0:1\n"},
        {"operator.getitem", {2, 3}, {2, 1, 3}, {list({whole(), none()})}, "2 0:0 -> 0:0\n3 0:1 -> 0:1\n"},
        {"models.get_cls_token", {2, 3, 5}, {2, 5}, {}, "2 0:0 -> 0:0\n5 0:2 -> 0:1\n"},
    };
    for (auto const& c : cases) {
        CAPTURE(c.target);
        std::vector<literal> arguments{T(0)};
        arguments.insert(arguments.end(), c.more.begin(), c.more.end());
        auto const o = add({c.target, {c.from}, arguments, {}, {c.to}});
        CHECK(o.is_known);
        CHECK(o.loops == c.loops);
        CHECK(terms(o.rule) == "0");
        CHECK(o.work.is_view);
        CHECK(o.work.forward.value == 0);
        CHECK(o.work.saved_operands.empty());
    }
    CHECK_FALSE(add({"operator.getitem", {{4, 3}}, {T(0), ints({0, 1})}, {}, {{2, 3}}}).is_known); // picks rows
    std::vector<element_type> const types{element_type::float32, element_type::int64};
    CHECK(add({"operator.getitem", {{4, 3, 6}, {5, 2}}, {T(0), list({whole(), T(1)})}, {}, {{4, 5, 2, 6}}, types})
              .loops == "2 1:1 -> 0:2\n4 0:0 -> 0:0\n5 1:0 -> 0:1\n6 0:2 -> 0:3\n");
    CHECK(add({"torch.index", {{4, 3}, {5}}, {T(0), list({none(), T(1)})}, {}, {{4, 5}}, types}).loops ==
          "4 0:0 -> 0:0\n5 1:0 -> 0:1\n");
    CHECK_FALSE(add({"operator.getitem", {{4, 3}, {5}}, {T(0), list({T(1), number(0)})}, {}, {{5}}, types}).is_known);
    // What a mask masks is whole; the result says how many it picks.
    std::vector<element_type> const by_mask{element_type::float32, element_type::boolean};
    CHECK(add({"operator.getitem", {{4, 3, 6}, {3}}, {T(0), list({whole(), T(1)})}, {}, {{4, 2, 6}}, by_mask}).loops ==
          "4 0:0 -> 0:0\n6 0:2 -> 0:2\n");
    CHECK(add({"operator.getitem", {{4, 3, 6}, {4, 3}}, {T(0), T(1)}, {}, {{5, 6}}, by_mask}).loops ==
          "6 0:2 -> 0:1\n");
    CHECK_FALSE(add({"operator.getitem", {{4, 3}, {4, 3, 2}}, {T(0), T(1)}, {}, {{5}}, by_mask}).is_known);
    CHECK_FALSE(add({"getattr", {{4, 3}}, {T(0), text("H")}, {}, {{3, 4}}}).is_known);
    CHECK(message_of({"view", {{4, 3}}, {T(0)}, {}, {{13}}}).find("another number of elements") != std::string::npos);
    CHECK(message_of({"permute", {{4, 3}}, {T(0), number(0), number(0)}, {}, {{4, 4}}}).find("each dimension once") !=
          std::string::npos);
    CHECK(message_of({"transpose", {{4, 3}}, {T(0), number(0), number(2)}, {}, {{3, 4}}}).find("argument 'dim1'") !=
          std::string::npos);
    CHECK(message_of({"transpose", {{4, 3}}, {T(0), number(0), number(1)}, {}, {{4, 3}}}).find("result 0") !=
          std::string::npos);
}

TEST_CASE("concatenation and its reverse block the axis alone, where pieces differ") {
    auto const cat =
        add({"torch.cat", {{8, 2, 4}, {8, 3, 4}}, {list({T(0), T(1)})}, {{"dim", number(1)}}, {{8, 5, 4}}});
    CHECK(cat.loops == "4 0:2 1:2 -> 0:2\n8 0:0 1:0 -> 0:0\n");
    CHECK(terms(cat.rule) == "0 + 1");
    CHECK(cat.work.forward.value == 8 * 5 * 4);
    auto const token =
        add({"models.append_cls_token", {{8, 4, 6}, {1, 1, 6}}, {}, {{"x", T(0)}, {"cls_token", T(1)}}, {{8, 5, 6}}});
    CHECK(token.loops == "6 0:2 1:0 -> 0:2\n8 0:0 -> 0:0\n");
    CHECK(terms(token.rule) == "0 + 1");
    auto const chunks = add({"chunk", {{8, 7}}, {T(0), number(2)}, {{"dim", number(-1)}}, {{8, 4}, {8, 3}}});
    CHECK(chunks.loops == "8 0:0 -> 0:0 1:0\n");
    CHECK(terms(chunks.rule) == "0");
    one_call const split{"torch.functional.split",
                         {{8, 7}},
                         {},
                         {{"tensor", T(0)}, {"split_size_or_sections", number(4)}, {"dim", number(-1)}},
                         {{8, 4}, {8, 3}}};
    CHECK(add(split).loops == chunks.loops);
}

TEST_CASE("equal pieces are cut at the same places") {
    std::string const both = "3 0:2 -> 0:1 1:1\n8 0:0 -> 0:0 1:0\n"; // of the operand, the lesser factor of 6
    auto const in_two = [](char const* target, literal how) {
        return add({target, {{8, 6}}, {T(0), std::move(how)}, {{"dim", number(-1)}}, {{8, 3}, {8, 3}}}).loops;
    };
    CHECK(in_two("chunk", number(2)) == both);
    CHECK(in_two("split", number(3)) == both);
    CHECK(in_two("split_with_sizes", ints({3, 3})) == both);
    CHECK(in_two("tensor_split", number(2)) == both);
    CHECK(add({"chunk", {{8, 6}}, {T(0), number(1)}, {{"dim", number(-1)}}, {{8, 6}}}).loops ==
          "6 0:1 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(add({"torch.cat", {{8, 3}, {8, 3}}, {list({T(0), T(1)})}, {{"dim", number(1)}}, {{8, 6}}}).loops ==
          "3 0:1 1:1 -> 0:2\n8 0:0 1:0 -> 0:0\n");
    CHECK(add({"torch.nn.functional.glu", {{8, 6}}, {T(0)}, {}, {{8, 3}}}).loops == "3 0:2 -> 0:1\n8 0:0 -> 0:0\n");
}

TEST_CASE("a slice of one of equal pieces, or of every place of a step, is cut as all of them are") {
    auto const sliced = [](literal item, extent count) {
        return add({"operator.getitem", {{8, 12}}, {T(0), list({whole(), std::move(item)})}, {}, {{8, count}}}).loops;
    };
    std::string const batch = "8 0:0 -> 0:0\n";
    CHECK(sliced(slice(0, 4), 4) == "4 0:2 -> 0:1\n" + batch);
    CHECK(sliced(slice(-4, {}), 4) == "4 0:2 -> 0:1\n" + batch);
    CHECK(sliced(slice(1, {}, 3), 4) == "4 0:1 -> 0:1\n" + batch); // the greater factor
    CHECK(sliced(slice(2, 6), 4) == batch);
    CHECK(sliced(slice(0, 8), 8) == batch);
    CHECK(sliced(slice(0, 11), 11) == batch);
    CHECK(sliced(slice(0, 8, 2), 4) == batch);
    CHECK(sliced(slice(4, 5), 1) == batch);
    CHECK(add({"narrow", {{8, 12}}, {T(0), number(1), number(6), number(6)}, {}, {{8, 6}}}).loops ==
          "6 0:2 -> 0:1\n" + batch);
}

TEST_CASE("a target without a rule is blocked, one with a user's rule is not") {
    one_call const unknown{"my.op", {{8, 4}, {4}}, {T(0), T(1)}, {}, {{8, 4}}};
    auto const blocked = add(unknown);
    CHECK_FALSE(blocked.is_known);
    CHECK(blocked.loops.empty());
    CHECK(blocked.rule.terms.empty());
    CHECK(blocked.work.forward.value == 32 + 4 + 32); // not the product of all extents
    CHECK(blocked.work.saved_operands == numbers{0, 1});
    CHECK(missing_rule_warning("my.op").find("'my.op'") != std::string::npos);

    auto const known = add(unknown, {{"my.op", "(b d), (d) -> (b d); 0*1"}});
    CHECK(known.is_known);
    CHECK(known.loops == "4 0:1 1:0 -> 0:1\n8 0:0 -> 0:0\n");
    CHECK(known.work.forward.value == 2 * 32);

    one_call const relu{"torch.relu", {{8, 4}}, {T(0)}, {}, {{8, 4}}};
    CHECK(add(relu, {{"torch.relu", "(b _) -> (b _)"}}).loops == "8 0:0 -> 0:0\n"); // goes before the library's
    CHECK(message_of(relu, {{"torch.relu", "(b) -> (b)"}}).find("operator 'op': operand 0") != std::string::npos);
    one_call const odd{"torch.nn.functional.dropout", {{8}}, {T(0)}, {{"training", number(1)}}, {{8}}};
    CHECK(add(odd, {{"torch.nn.functional.dropout", "(b) -> (b)"}}).loops ==
          "8 0:0 -> 0:0\n"); // nor is the library's asked
    CHECK_FALSE(add({"models.linear", {{8, 4}, {3, 4}}, {T(0), T(1)}, {}, {{8, 3}}}).is_known); // not torch's
}

TEST_CASE("calls that cannot be are refused by name") {
    CHECK(message_of({"torch.relu", {{8, 4}}, {}, {}, {{8, 4}}}) ==
          "operator 'op', argument 'input': expected a tensor");
    CHECK(message_of({"torch.nn.functional.linear", {{8, 4}, {3, 5}}, {T(0), T(1)}, {}, {{8, 3}}})
              .find("operator 'op': operand 1, dimension 1") != std::string::npos);
    CHECK(message_of({"torch.nn.functional.dropout", {{8}}, {T(0)}, {{"training", number(1)}}, {{8}}})
              .find("argument 'training': expected true or false") != std::string::npos);
    program_builder b;
    traced_call call{
        "op", "my.op", {}, {}, std::vector<tensor_id>(256, b.input("x", {2})), {{{2}, element_type::float32}}};
    CHECK_THROWS_AS(add_call(b, call), input_error);
    call.operands.resize(1);
    call.results.clear();
    CHECK_THROWS_AS(add_call(b, call), input_error);
}

TEST_CASE("sources have other names for some operators, a program has one") {
    for (auto const& [alias, name] : detail::operator_aliases()) {
        CAPTURE(alias);
        CHECK((detail::torch_catalogue().contains(name) != detail::torch_forms().contains(name)));
        CHECK_FALSE(detail::torch_catalogue().contains(alias));
    }
    program_builder b;
    auto x = b.parameter("x", {4});
    auto const twice = [&](std::string const& target, rule_table const& rules = {}) {
        x = add_call(b, {target, target, {T(x), number(2)}, {}, {x}, {{{4}, element_type::float32}}}, rules)
                .results.front();
    };
    twice("operator.truediv");
    twice("torch.multiply", {{"torch.multiply", "(i) -> (i)"}}); // by a rule of the user's for that name
    twice("mine.multiply");
    twice("torch.div");
    auto const p = b.finish(b.apply("sum", "(i) -> ()", {x}));
    std::string kinds;
    for (operator_id o = 0; o < p.operator_count(); ++o) kinds += p.kind(o) + " ";
    CHECK(kinds == "div mul multiply div sum ");
}

TEST_CASE("the page on operators names every one of them") {
    std::ifstream file("docs/reference/operators.md");
    std::string const page{std::istreambuf_iterator<char>(file), {}};
    for (auto const* table : {&detail::torch_catalogue(), &detail::torch_forms(), &detail::helper_catalogue()})
        for (auto const& [kind, describe] : *table) {
            CAPTURE(kind);
            CHECK(page.find("`" + std::string(kind) + "`") != std::string::npos);
        }
    for (auto const& [alias, kind] : detail::operator_aliases())
        CHECK(page.find("`" + std::string(alias) + "`") != std::string::npos);
}
