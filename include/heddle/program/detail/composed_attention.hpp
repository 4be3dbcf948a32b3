// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Attention with its projections, by operators of the catalogue.
#pragma once

#include <heddle/program/detail/composer.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::detail {

/// `multi_head_attention_forward` as PyTorch computes it: products with the packed weight, one for operands that are
/// the same tensor, attention head by head, and a product with the output weight. Operands are (sequence, batch,
/// features).
class composed_attention : public composer {
public:
    explicit composed_attention(composer const& c) : composer(c) {}

    results multi_head() {
        bool const is_extended = view_.find(7, "bias_k") || view_.find(8, "bias_v") ||
                                 view_.flag(9, "add_zero_attn", false) || view_.find(21, "static_k") ||
                                 view_.find(22, "static_v");
        std::array<tensor_id, 3> const x{view_.tensor(0, "query"), view_.tensor(1, "key"), view_.tensor(2, "value")};
        auto const packed = view_.find_tensor(5, "in_proj_weight");
        if (is_extended || !packed || result().shape.size() != 3) return {};
        for (auto t : x)
            if (shape_of(t).size() != 3) return {};
        heads_ = view_.integer(4, "num_heads");
        width_ = shape_of(*packed)[0] / 3;
        view_.expect_within("num_heads", heads_, 1, width_);
        if (shape_of(*packed)[0] % 3 != 0 || width_ % heads_ != 0)
            view_.fail("num_heads", "is " + std::to_string(heads_) + ", by which the " +
                                        std::to_string(shape_of(*packed)[0]) +
                                        " rows of 'in_proj_weight' are not divided in three");
        auto const [q, k, v] = projected(x, *packed, view_.find_tensor(6, "in_proj_bias"));
        auto const mask = added_mask();
        double const p = view_.flag(13, "training", true) ? view_.probability(10, "dropout_p", 0) : 0;
        bool const with_weights = call().results.size() > 1;
        std::optional<tensor_id> weights;
        if (with_weights) weights = weights_of(q, k, mask, p);
        auto const context = with_weights ? product(*weights, v) : attended(q, k, v, mask, p);
        std::vector<tensor_id> made{
            linear(merged(context), view_.tensor(11, "out_proj_weight"), view_.find_tensor(12, "out_proj_bias"))};
        if (with_weights)
            made.push_back(view_.flag(23, "average_attn_weights", true)
                               ? step("torch.mean", {{"input", of(*weights)}, {"dim", list_of({1})}},
                                      call().results[1].shape, type_of(*weights))
                               : *weights);
        return made;
    }

private:
    tensor_id linear(tensor_id x, tensor_id weight, std::optional<tensor_id> bias) {
        tensor_shape dims = shape_of(x);
        dims.back() = shape_of(weight)[0];
        return step("torch.nn.functional.linear",
                    {{"input", of(x)}, {"weight", of(weight)}, {"bias", bias ? of(*bias) : literal{}}}, dims,
                    type_of(x));
    }
    tensor_id product(tensor_id a, tensor_id b) {
        tensor_shape dims = shape_of(a);
        dims.back() = shape_of(b).back();
        return step("torch.matmul", {{"input", of(a)}, {"other", of(b)}}, dims, type_of(a));
    }
    tensor_id permuted(tensor_id x, std::vector<std::int64_t> const& order) {
        tensor_shape dims;
        for (auto d : order) dims.push_back(shape_of(x)[static_cast<std::size_t>(d)]);
        return step("torch.permute", {{"input", of(x)}, {"dims", list_of(order)}}, dims, type_of(x));
    }
    /// Pieces of a dimension, each so many times the inner width.
    std::vector<tensor_id> pieces(tensor_id x, std::size_t axis, std::vector<std::int64_t> widths) {
        std::vector<traced_call::result> made;
        for (auto& w : widths) {
            w *= width_;
            made.push_back({shape_of(x), type_of(x)});
            made.back().shape[axis] = w;
        }
        return steps("torch.split",
                     {{"tensor", of(x)},
                      {"split_size_or_sections", list_of(widths)},
                      {"dim", whole(static_cast<std::int64_t>(axis))}},
                     made);
    }

    /// Queries, keys and values of (batch, head, place, feature).
    std::array<tensor_id, 3> projected(std::array<tensor_id, 3> const& x, tensor_id weight,
                                       std::optional<tensor_id> bias) {
        // Operands that are one tensor are projected by one product.
        std::vector<std::int64_t> widths{1};
        for (std::size_t n = 1; n < 3; ++n) {
            if (x[n] == x[n - 1] && (n == 2 || x[0] == x[2])) ++widths.back();
            else widths.push_back(1);
        }
        bool const is_one = widths.size() == 1;
        auto const weights = is_one ? std::vector{weight} : pieces(weight, 0, widths);
        auto const biases = !bias || is_one ? std::vector<tensor_id>{} : pieces(*bias, 0, widths);
        std::vector<tensor_id> parts;
        for (std::size_t n = 0; n < widths.size(); ++n) {
            auto const of_piece = biases.empty() ? bias : biases[n];
            auto const made = linear(x[parts.size()], weights[n], of_piece);
            auto const apart = widths[n] == 1
                                   ? std::vector{made}
                                   : pieces(made, 2, std::vector<std::int64_t>(static_cast<std::size_t>(widths[n]), 1));
            parts.insert(parts.end(), apart.begin(), apart.end());
        }
        return {by_heads(parts[0]), by_heads(parts[1]), by_heads(parts[2])};
    }
    tensor_id by_heads(tensor_id x) {
        tensor_shape const dims = shape_of(x);
        return permuted(in_shape(x, {dims[0], dims[1], heads_, width_ / heads_}), {1, 2, 0, 3});
    }
    tensor_id merged(tensor_id x) {
        auto const back = permuted(x, {2, 0, 1, 3});
        return in_shape(back, {shape_of(back)[0], shape_of(back)[1], width_});
    }

    /// What is added to scores; where a mask of truth values is true, nothing is attended to.
    std::optional<tensor_id> added_mask() {
        auto mask = view_.find_tensor(16, "attn_mask"), padding = view_.find_tensor(14, "key_padding_mask");
        tensor_shape const dims = shape_of(view_.tensor(0, "query"));
        extent const keys = shape_of(view_.tensor(1, "key"))[0];
        if (mask && shape_of(*mask).size() == 3)
            mask = in_shape(*mask, shape_of(*mask)[0] == 1 ? tensor_shape{1, 1, dims[0], keys}
                                                           : tensor_shape{dims[1], heads_, dims[0], keys});
        if (padding) padding = in_shape(*padding, {dims[1], 1, 1, keys});
        for (auto* t : {&mask, &padding})
            if (*t && type_of(**t) == element_type::boolean) *t = forbidding(**t);
        return mask && padding ? both("torch.add", *padding, *mask) : mask ? mask : padding;
    }
    tensor_id forbidding(tensor_id truth) {
        tensor_shape const dims = shape_of(truth);
        auto const zeros = step("torch.zeros_like", {{"input", of(truth)}}, dims, result().type);
        return step("torch.masked_fill",
                    {{"input", of(zeros)}, {"mask", of(truth)}, {"value", {-std::numeric_limits<double>::infinity()}}},
                    dims, result().type);
    }

    tensor_id attended(tensor_id q, tensor_id k, tensor_id v, std::optional<tensor_id> mask, double p) {
        // A mask that is said to be causal need not be read.
        bool const is_causal = view_.flag(24, "is_causal", false) && !view_.find_tensor(14, "key_padding_mask");
        return step("torch.nn.functional.scaled_dot_product_attention",
                    {{"query", of(q)},
                     {"key", of(k)},
                     {"value", of(v)},
                     {"attn_mask", mask && !is_causal ? of(*mask) : literal{}},
                     {"dropout_p", {p}},
                     {"is_causal", {is_causal}}},
                    shape_of(q), type_of(q));
    }
    tensor_id weights_of(tensor_id q, tensor_id k, std::optional<tensor_id> mask, double p) {
        auto const scaled = placed(q, 1 / std::sqrt(static_cast<double>(width_ / heads_)), 0);
        auto scores = product(scaled, permuted(k, {0, 1, 3, 2}));
        if (mask) scores = both("torch.add", scores, *mask);
        auto const shares =
            step("torch.softmax", {{"input", of(scores)}, {"dim", whole(-1)}}, shape_of(scores), type_of(scores));
        return p == 0 ? shares
                      : step("torch.nn.functional.dropout", {{"input", of(shares)}, {"p", {p}}}, shape_of(shares),
                             type_of(shares));
    }

    extent heads_ = 1, width_ = 1;
};

} // namespace heddle::detail
