// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/aten_calls.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;

namespace {

literal whole(std::int64_t i) { return {i}; }

} // namespace

TEST_CASE("names of ATen become those of functionals") {
    auto const call = functional_call_of("aten::embedding",
                                         {{"weight", whole(1)}, {"indices", whole(2)}, {"padding_idx", whole(-1)}}, 2);
    CHECK(call.target == "torch.embedding");
    CHECK(call.keyword_order ==
          std::vector<std::string>{"input", "weight"}); // -1 is none for ATen, the last row for the functional
    CHECK(*call.keywords.at("input").as<std::int64_t>() == 2);
    auto const padded = functional_call_of("aten::embedding",
                                           {{"weight", whole(1)}, {"indices", whole(2)}, {"padding_idx", whole(3)}}, 2);
    CHECK(*padded.keywords.at("padding_idx").as<std::int64_t>() == 3);
    CHECK(functional_call_of("aten::add_", {{"self", whole(1)}, {"other", whole(2)}, {"alpha", whole(1)}}, 1)
              .keyword_order == std::vector<std::string>{"input", "other"});
    CHECK(functional_call_of("aten::relu_", {{"self", whole(1)}}, 1).target == "torch.relu");
    CHECK(functional_call_of("aten::rsub", {{"self", whole(1)}, {"other", whole(2)}}, 1)
              .keywords.at("input")
              .as<std::int64_t>()[0] == 2);
    CHECK(functional_call_of("aten::lstm", {{"input", whole(1)}, {"train", {true}}}, 3)
              .keywords.contains("train")); // elsewhere it is called training
    CHECK(functional_call_of("mine::scale", {{"self", whole(1)}}, 1).target == "mine.scale");
    CHECK(functional_call_of("aten::nll_loss_nd", {{"self", whole(1)}, {"reduction", whole(2)}}, 1)
              .keywords.at("reduction")
              .as<std::string>()[0] == "sum");
}

TEST_CASE("convolutions are named by rank, transposed or not") {
    std::vector<aten_argument> const arguments{{"input", whole(1)},
                                               {"transposed", {false}},
                                               {"output_padding", {literal::list{whole(0)}}},
                                               {"groups", whole(1)}};
    CHECK(functional_call_of("aten::_convolution", arguments, 4).target == "torch.conv2d");
    CHECK(functional_call_of("aten::_convolution", arguments, 4).keyword_order ==
          std::vector<std::string>{"input", "groups"});
    auto transposed = arguments;
    transposed[1].value = {true};
    CHECK(functional_call_of("aten::convolution", transposed, 5).target == "torch.conv_transpose3d");
}

TEST_CASE("resizing of every mode and rank is one functional") {
    literal const sizes{literal::list{whole(5), whole(7)}}, factors{literal::list{literal{1.3}, literal{1.5}}};
    auto const by_size = functional_call_of(
        "aten::upsample_bilinear2d",
        {{"input", whole(1)}, {"output_size", sizes}, {"align_corners", {true}}, {"scale_factors", {}}}, 4);
    CHECK(by_size.target == "torch.nn.functional.interpolate");
    CHECK(by_size.keyword_order == std::vector<std::string>{"input", "size", "align_corners", "mode"});
    CHECK(*by_size.keywords.at("mode").as<std::string>() == "bilinear");
    auto const by_factor = functional_call_of(
        "aten::upsample_nearest2d", {{"input", whole(1)}, {"output_size", {}}, {"scale_factors", factors}}, 4);
    CHECK(by_factor.keyword_order == std::vector<std::string>{"input", "scale_factor", "mode"});
    auto const one_by_one = functional_call_of(
        "aten::upsample_nearest2d",
        {{"self", whole(1)}, {"output_size", sizes}, {"scales_h", literal{1.3}}, {"scales_w", literal{1.5}}}, 4);
    CHECK(one_by_one.keyword_order == std::vector<std::string>{"input", "size", "scale_factor", "mode"});
    CHECK(one_by_one.keywords.at("scale_factor").as<literal::list>()->size() == 2);
    CHECK(*one_by_one.keywords.at("mode").as<std::string>() == "nearest");
}

TEST_CASE("selecting is indexing") {
    auto const select =
        functional_call_of("aten::select", {{"self", whole(0)}, {"dim", whole(-2)}, {"index", whole(3)}}, 3);
    CHECK(select.target == "operator.getitem");
    auto const& items = *select.keywords.at("index").as<literal::list>();
    REQUIRE(items.size() == 2);
    CHECK(items[0].as<literal::slice>()->is_whole());
    CHECK(*items[1].as<std::int64_t>() == 3);
    auto const slice = functional_call_of(
        "aten::slice",
        {{"self", whole(0)}, {"dim", whole(0)}, {"start", whole(1)}, {"end", whole(INT64_MAX)}, {"step", whole(2)}}, 3);
    auto const& part = *slice.keywords.at("index").as<literal::list>()->front().as<literal::slice>();
    CHECK(part.start == 1);
    CHECK_FALSE(part.stop.has_value());
    CHECK(part.step == 2);
    auto const places = functional_call_of(
        "aten::index", {{"self", whole(0)}, {"indices", {literal::list{literal{}, literal{literal::tensor{4}}}}}}, 3);
    CHECK(places.target == "operator.getitem");
    auto const& index = *places.keywords.at("index").as<literal::list>();
    REQUIRE(index.size() == 2);
    CHECK(index[0].as<literal::slice>()->is_whole());
    CHECK(index[1].as<literal::tensor>()->id == 4);
}
