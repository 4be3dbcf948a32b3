// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

using namespace heddle;
using namespace heddle::test;

namespace {

operator_case loss(char const* target, char const* reduction, tensor_shape scores, tensor_shape labels,
                   tensor_shape result, int classes) {
    operator_case c{target,
                    {std::move(scores), std::move(labels)},
                    {T(0), T(1)},
                    {{"reduction", text(reduction)}},
                    {std::move(result)}};
    c.domains = {{1, domain::below(classes)}};
    return c;
}

} // namespace

TEST_CASE("embedding gives zeros for ids outside a part of the table") {
    operator_case c{"torch.nn.functional.embedding", {{3, 4}, {6, 2}}, {T(0), T(1)}, {}, {{3, 4, 2}},
                    {{0, domain::below(6)}}};
    check(c);
    c.keywords = {{"padding_idx", number(-2)}};
    operator_check padded(c, 1);
    CHECK((*padded.derivatives()[1])[4 * 2] == 0);
    c.keywords = {{"scale_grad_by_freq", flag(true)}};
    c.is_blocked = true; // counts ids in the whole batch
    CHECK_THROWS_AS(operator_check(c, 1), input_error);
    operator_case out{"torch.nn.functional.embedding",   {{1}, {6, 2}}, {T(0), T(1)}, {}, {{1, 2}},
                      {{0, {7, 8, element_type::int64}}}};
    CHECK_THROWS_WITH_AS(operator_check(out, 1), "operator 'op': looks up row 7 of 6", input_error);
}

TEST_CASE("classification losses are right, and split as their rules say") {
    for (char const* target : {"torch.nn.functional.nll_loss", "torch.nn.functional.cross_entropy"}) {
        for (char const* reduction : {"sum", "mean"}) {
            check(loss(target, reduction, {5, 4}, {5}, {}, 4));
            check(loss(target, reduction, {2, 4, 3}, {2, 3}, {}, 4));
            auto ignoring = loss(target, reduction, {6, 4}, {6}, {}, 4);
            ignoring.keywords["ignore_index"] = number(1);
            ignoring.domains = {{1, {0, 3.5, element_type::int64}}};
            check(ignoring);
            auto weighted = loss(target, reduction, {5, 4}, {5}, {}, 4);
            weighted.operands.push_back({4});
            weighted.keywords["weight"] = T(2);
            weighted.domains[2] = domain::positive();
            weighted.constants = {2};
            check(weighted);
        }
        check(loss(target, "none", {5, 4}, {5}, {5}, 4));
        check(loss(target, "none", {2, 4, 3}, {2, 3}, {2, 3}, 4));
        check(loss(target, "mean", {4}, {}, {}, 4));
    }
}

TEST_CASE("cross-entropy takes smoothing and probabilities") {
    for (char const* reduction : {"sum", "mean"}) {
        auto smooth = loss("torch.nn.functional.cross_entropy", reduction, {5, 4}, {5}, {}, 4);
        smooth.keywords["label_smoothing"] = real(0.2);
        check(smooth);
        operator_case probable{"torch.nn.functional.cross_entropy",
                               {{5, 4}, {5, 4}},
                               {T(0), T(1)},
                               {{"reduction", text(reduction)}},
                               {{}}};
        check(probable);
        probable.keywords["label_smoothing"] = real(0.2);
        check(probable);
        probable.operands.push_back({4});
        probable.keywords["weight"] = T(2);
        check(probable);
    }
}

TEST_CASE("squared error is right, and splits as its rule says") {
    for (char const* reduction : {"sum", "mean"})
        check({"torch.nn.functional.mse_loss", {{4, 3}, {4, 3}}, {T(0), T(1)}, {{"reduction", text(reduction)}}, {{}}});
    check({"torch.nn.functional.mse_loss", {{4, 3}, {4, 3}}, {T(0), T(1)}, {{"reduction", text("none")}}, {{4, 3}}});
}

TEST_CASE("routing has slots for each batch row, and drops choices beyond capacity") {
    for (char const* target : {"heddle.top_2_gating", "models.switch_gating"})
        for (extent capacity : {1, 2, 5})
            check({target, {{3, 5, 4}, {4, 3}}, {T(0), T(1)}, {}, {{3, 5, 3, capacity}, {3, 5, 3, capacity}}});
    check({"heddle.top_2_gating", {{2, 3, 2}, {2, 1}}, {T(0), T(1)}, {}, {{2, 3, 1, 2}, {2, 3, 1, 2}}});
    operator_check two({"heddle.top_2_gating", {{1, 3, 4}, {4, 3}}, {T(0), T(1)}, {}, {{1, 3, 3, 6}, {1, 3, 3, 6}}}, 1);
    double dispatched = 0, combined = 0;
    for (double v : two.results()[0].data) dispatched += v;
    for (double v : two.results()[1].data) combined += v;
    CHECK(dispatched == 6);
    CHECK(combined == doctest::Approx(3));
    operator_check narrow({"models.switch_gating", {{1, 5, 4}, {4, 2}}, {T(0), T(1)}, {}, {{1, 5, 2, 1}, {1, 5, 2, 1}}},
                          1);
    for (extent expert = 0; expert < 2; ++expert) {
        double tokens = 0;
        for (extent s = 0; s < 5; ++s) tokens += narrow.results()[0][s * 2 + expert];
        CHECK(tokens <= 1);
    }
}

TEST_CASE("losses of elements and their targets are right") {
    for (char const* reduction : {"mean", "sum", "none"}) {
        CAPTURE(reduction);
        tensor_shape const result = reduction == std::string("none") ? tensor_shape{4, 3} : tensor_shape{};
        auto const pair = [&](char const* name) {
            return operator_case{std::string("torch.nn.functional.") + name,
                                 {{4, 3}, {4, 3}},
                                 {T(0), T(1)},
                                 {{"reduction", text(reduction)}},
                                 {result}};
        };
        for (char const* name : {"l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"})
            check(pair(name));
        auto narrow = pair("smooth_l1_loss");
        narrow.keywords["beta"] = real(0.3);
        check(narrow);
        auto huber = pair("huber_loss");
        huber.keywords["delta"] = real(0.3);
        check(huber);
        auto probable = pair("binary_cross_entropy");
        probable.domains = {{0, {0.1, 0.9}}, {1, {0, 1}}};
        check(probable);
        for (auto c : {probable, pair("binary_cross_entropy_with_logits")})
            for (tensor_shape const& weight : {tensor_shape{4, 3}, tensor_shape{3}, tensor_shape{4, 1}}) {
                c.operands.resize(2);
                c.operands.push_back(weight);
                c.keywords["weight"] = T(2);
                check(c);
            }
        auto positive = pair("binary_cross_entropy_with_logits");
        positive.operands.push_back({4, 1});
        positive.operands.push_back({3});
        positive.keywords["weight"] = T(2);
        positive.keywords["pos_weight"] = T(3);
        check(positive);
        auto divergence = pair("kl_div");
        divergence.domains = {{1, {0.1, 1}}};
        check(divergence);
        divergence.keywords["log_target"] = flag(true);
        check(divergence);
    }
    check({"torch.nn.functional.kl_div",
           {{4, 3}, {4, 3}},
           {T(0), T(1)},
           {{"reduction", text("batchmean")}},
           {{}},
           {{1, {0.1, 1}}}});
}
