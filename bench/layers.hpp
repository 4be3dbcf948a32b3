// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Transformers of any depth and width, built without a model file.
#pragma once

#include <heddle/program/program.hpp>

#include <string>
#include <utility>

namespace heddle::bench {

struct layer_sizes {
    extent batch = 256, tokens = 65, width = 768, heads = 12;
};

/// Layers of attention and a perceptron, each after a normalisation and beside what it adds to.
class layer_builder {
public:
    explicit layer_builder(layer_sizes sizes) : sizes_(sizes) {}

    program build(int count) {
        auto x = b_.input("x", {sizes_.batch, sizes_.tokens, sizes_.width});
        auto const width = sizes_.width;
        for (; number_ < count; ++number_) {
            x = add(x, dropout(attend(normalised("norm1", x))));
            auto const h = linear("up", normalised("norm2", x), width, 4 * width);
            auto const g = b_.apply("gelu", "(b s k) -> (b s k)", {h},
                                    {.category = operator_class::elementwise, .saved_operands = {{0}}});
            x = add(x, dropout(linear("down", dropout(g), 4 * width, width)));
        }
        return b_.finish(b_.apply("sum", "(b s k) -> (); 0", {x}, {.category = operator_class::reduction}));
    }

private:
    tensor_id parameter(char const* what, char const* part, tensor_shape dims) {
        return b_.parameter("layer" + std::to_string(number_) + "." + what + "." + part, std::move(dims));
    }
    tensor_id linear(char const* what, tensor_id x, extent from, extent to) {
        return b_.apply("linear", "(b s k), (n k), (n) -> (b s n); 0*1 + 2",
                        {x, parameter(what, "weight", {to, from}), parameter(what, "bias", {to})},
                        {.category = operator_class::matmul});
    }
    tensor_id normalised(char const* what, tensor_id x) {
        return b_.apply("layer_norm", "(b s !k), (!k), (!k) -> (b s !k)",
                        {x, parameter(what, "weight", {sizes_.width}), parameter(what, "bias", {sizes_.width})},
                        {.category = operator_class::normalisation, .saved_operands = {{0, 1}}});
    }
    tensor_id add(tensor_id x, tensor_id y) {
        return b_.apply("add", "(b s k), (b s k) -> (b s k); 0 + 1", {x, y}, {.category = operator_class::elementwise});
    }
    tensor_id dropout(tensor_id x) {
        return b_.apply("dropout", "(b s k) -> (b s k); 0", {x},
                        {.category = operator_class::elementwise,
                         .extra_saved = bytes(static_cast<double>(b_.tensor(x).elements()))});
    }
    tensor_id swapped(tensor_id x) { return b_.apply("transpose", "(b s k) -> (s b k); 0", {x}, {.is_view = true}); }
    tensor_id attend(tensor_id x) {
        auto const [batch, tokens, width, heads] = sizes_;
        auto const w = parameter("attention", "in_weight", {3 * width, width}),
                   bias = parameter("attention", "in_bias", {3 * width});
        auto const out = parameter("attention", "out_weight", {width, width}),
                   out_bias = parameter("attention", "out_bias", {width});
        auto const t = swapped(x);
        flops const work(2.0 * static_cast<double>(batch * tokens * width * (4 * width + 2 * tokens)));
        return swapped(b_.apply("attention",
                                "(!s b !e), (!t b !e), (!t b !e), ((!three h !d) !e), ((!three h !d)), (!o (h !d)), "
                                "(!o) -> (!s b !o); 5 + 6",
                                {t, t, t, w, bias, out, out_bias},
                                {.category = operator_class::attention,
                                 .extents = {{"three", 3}, {"h", heads}},
                                 .forward = work,
                                 .backward = 2 * work,
                                 .extra_saved = bytes(4.0 * static_cast<double>(batch * heads * tokens * tokens)),
                                 .saved_operands = {{0, 1, 2, 3, 5}}}));
    }

    layer_sizes sizes_;
    program_builder b_;
    int number_ = 0;
};

} // namespace heddle::bench
