// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random programs of every operator of the catalogue.
#pragma once

#include <support/source_growth.hpp>

#include <array>
#include <optional>

namespace heddle::test {

/// Grows a program by recipes, one for each kind of operator.
class catalogue_growth : public source_growth {
public:
    using source_growth::source_growth;

    /// Applies this many recipes, then a loss that depends on every value.
    program build(int recipes) {
        auto const& table = all_recipes();
        auto const x = input(sizes(2 + random_.below(3)));
        keep(random_.chance(0.5) ? same("mul", x, {T(trained_weight({dims(x).back()}))})
                                 : product("linear", x, trained_weight({size(), dims(x).back()})));
        for (int n = 0; n < recipes; ++n) {
            auto const& [kind, recipe] =
                *std::next(table.begin(), static_cast<std::ptrdiff_t>(random_.below(table.size())));
            (this->*recipe)(kind);
        }
        return builder_.finish(total_loss());
    }

    [[nodiscard]] static bool has_recipe(std::string const& kind) { return all_recipes().contains(kind); }

private:
    using self = catalogue_growth;
    using recipe_table = std::map<std::string, void (catalogue_growth::*)(std::string const&)>;

    static recipe_table const& all_recipes() {
        static recipe_table const table = [] {
            recipe_table made;
            auto const add = [&](std::initializer_list<char const*> kinds, void (self::*recipe)(std::string const&)) {
                for (auto const* kind : kinds) made[kind] = recipe;
            };
            add({"neg", "clone", "to", "type_as", "float", "double", "half", "bfloat16", "contiguous", "relu", "tanh",
                 "sigmoid", "exp", "sqrt", "log", "gelu", "silu", "dropout"},
                &self::unary);
            add({"add", "sub", "mul", "multiply", "div", "truediv"}, &self::binary);
            add({"rsqrt", "reciprocal", "expm1",      "log1p",       "log2",     "log10",     "exp2", "tan",
                 "atan",  "sinh",       "cosh",       "erfc",        "sin",      "cos",       "erf",  "square",
                 "pow",   "mish",       "logsigmoid", "log_sigmoid", "softsign", "tanhshrink"},
                &self::smooth_function);
            add({"abs",         "clamp",      "clamp_min",   "clamp_max",  "floor_divide", "remainder", "relu6",
                 "hardsigmoid", "hardswish",  "selu",        "leaky_relu", "elu",          "celu",      "softplus",
                 "hardtanh",    "softshrink", "hardshrink",  "threshold",  "sign",         "floor",     "ceil",
                 "trunc",       "round",      "logical_not", "isnan",      "isinf"},
                &self::bent_function);
            add({"dropout1d", "dropout2d", "dropout3d", "stochastic_depth"}, &self::drop);
            add({"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"}, &self::compare);
            add({"minimum", "maximum", "atan2", "logaddexp"}, &self::function_of_two);
            add({"where", "masked_fill"}, &self::choose);
            add({"addcmul", "addcdiv", "lerp"}, &self::function_of_three);
            add({"and_", "or_", "xor", "invert", "logical_xor"}, &self::combine_masks);
            add({"detach", "full_like", "zeros_like", "ones_like", "rand_like", "randn_like", "bernoulli"},
                &self::constant);
            add({"prelu"}, &self::prelu);
            add({"glu"}, &self::gate);
            add({"rsub"}, &self::subtract_from);
            add({"argmax", "argmin"}, &self::place_of_extreme);
            add({"movedim"}, &self::move_dimension);
            add({"addmv", "addbmm", "outer"}, &self::product_of_fewer);
            add({"linear"}, &self::linear);
            add({"matmul", "mm", "bmm"}, &self::matmul);
            add({"mv", "dot"}, &self::vector_product);
            add({"bilinear"}, &self::bilinear);
            add({"addmm", "baddbmm"}, &self::matmul_added);
            add({"einsum"}, &self::einsum);
            add({"conv1d", "conv2d", "conv3d"}, &self::convolution);
            add({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}, &self::convolution_transpose);
            add({"scaled_dot_product_attention"}, &self::dot_product);
            add({"embedding"}, &self::embedding);
            add({"embedding_bag"}, &self::embedding_bag);
            add({"softmax", "log_softmax"}, &self::softmax);
            add({"layer_norm", "rms_norm"}, &self::layer_norm);
            add({"batch_norm"}, &self::batch_norm);
            add({"group_norm", "instance_norm"}, &self::sample_norm);
            add({"sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "var", "std", "var_mean", "std_mean",
                 "norm"},
                &self::reduce);
            add({"cumsum"}, &self::accumulate);
            add({"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"}, &self::pool);
            add({"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
                 "adaptive_max_pool2d", "adaptive_max_pool3d"},
                &self::adaptive_pool);
            add({"interpolate"}, &self::interpolate);
            add({"l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
                 "kl_div"},
                &self::element_loss);
            add({"nll_loss", "cross_entropy"}, &self::classification);
            add({"mse_loss"}, &self::squared_error);
            add({"transpose", "swapaxes", "swapdims", "permute", "t", "getattr"}, &self::permute);
            add({"reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"},
                &self::reshape);
            add({"expand", "expand_as"}, &self::expand);
            add({"cat", "concat"}, &self::concatenate);
            add({"split", "split_with_sizes", "tensor_split", "chunk"}, &self::divide);
            add({"getitem"}, &self::get_item);
            add({"repeat", "tile"}, &self::repeat);
            add({"repeat_interleave"}, &self::repeat_each);
            add({"roll", "flip"}, &self::shift);
            add({"pad"}, &self::pad);
            add({"unbind"}, &self::unbind);
            add({"stack"}, &self::stack);
            add({"select", "narrow", "slice"}, &self::pick);
            add({"index_select", "gather", "index"}, &self::look_up);
            add({"index_add", "scatter_add"}, &self::scatter);
            add({"scatter"}, &self::replace_at);
            add({"pixel_shuffle", "pixel_unshuffle"}, &self::shuffle_pixels);
            add({"diagonal"}, &self::diagonal);
            add({"triu", "tril"}, &self::triangle);
            add({"topk", "sort"}, &self::largest);
            add({"one_hot"}, &self::one_hot);
            add({"rnn_tanh_cell", "rnn_relu_cell", "lstm_cell", "gru_cell"}, &self::cell);
            add({"rnn_tanh", "rnn_relu", "lstm", "gru"}, &self::recurrent_layers);
            add({"top_2_gating", "switch_gating"}, &self::gating);
            add({"arange", "full", "rand", "randn"}, &self::source);
            add({"acos", "asin", "acosh", "asinh", "atanh"}, &self::narrow_function);
            add({"histc"}, &self::histogram);
            add({"grouped_mm"}, &self::grouped_product);
            add({"index_put"}, &self::put);
            add({"routed_experts"}, &self::experts);
            add({"complex_mul"}, &self::complex_product);
            add({"append_cls_token", "get_cls_token"}, &self::class_token);
            return made;
        }();
        return table;
    }

    // ---- element by element

    void unary(std::string const& kind) {
        if (kind == "relu") return keep(not_plain(same(kind, plain_operand())));
        auto const x = operand();
        if (kind == "to") return convert_type(x);
        if (kind == "half") return keep(call(kind, {T(x)}, dims(x), {}, element_type::float16));
        if (kind == "bfloat16") return keep(call(kind, {T(x)}, dims(x), {}, element_type::bfloat16));
        if (kind == "double") return keep(call(kind, {T(x)}, dims(x), {}, element_type::float64));
        if (kind == "type_as") return keep(same(kind, x, {T(x)}));
        if (kind == "float") return keep(call(kind, {T(x)}, dims(x), {}, element_type::float32));
        if (kind == "exp") return keep(same(kind, same("tanh", x)));
        if (kind == "sqrt" || kind == "log") return keep(same(kind, positive(x)));
        if (kind == "gelu")
            return keep(same(kind, x, {}, {{"approximate", text(random_.chance(0.5) ? "tanh" : "none")}}));
        if (kind == "dropout")
            return keep(not_plain(same(kind, x, {}, {{"p", real(0.4)}, {"training", flag(random_.chance(0.8))}})));
        keep(same(kind, x));
    }
    /// Counts the whole numbers of an input in the loss by way of floating-point ones, or raises the precision.
    void convert_type(tensor_id x) {
        if (random_.chance(0.5)) return keep(call("to", {T(x)}, dims(x), {}, element_type::float64));
        auto const x0 = input(sizes(2));
        auto const data = call("mul", {T(x0), real(3)}, dims(x0));
        auto const whole = call("to", {T(data)}, dims(data), {}, element_type::int64);
        keep(not_plain(call("float", {T(whole)}, dims(whole), {}, element_type::float32)));
    }

    void binary(std::string const& kind) {
        auto const x = operand();
        bool const division = kind == "div" || kind == "truediv";
        if (random_.chance(0.3)) {
            bool const first = random_.chance(0.5);
            auto const y = division && first ? positive(x) : x;
            double const c = random_.chance(0.2) && !division ? 0 : 1.5;
            auto const z = first ? call(kind, {real(c), T(y)}, dims(y)) : call(kind, {T(y), real(c)}, dims(y));
            return keep(c == 0 ? not_plain(z) : z);
        }
        tensor_shape other = dims(x); // what broadcasts, or is equal
        if (random_.chance(0.5)) {
            for (auto& e : other)
                if (random_.chance(0.4)) e = 1;
            if (!other.empty() && random_.chance(0.3)) other.erase(other.begin());
        }
        std::vector<tensor_id> fitting;
        for (auto t : values_)
            if (dims(t) == other) fitting.push_back(t);
        auto y = fitting.empty() || random_.chance(0.3) ? weight(other) : random_.of(fitting);
        if (division) y = positive(y);
        keywords named;
        if ((kind == "add" || kind == "sub") && random_.chance(0.2)) named["alpha"] = real(2.5);
        bool const swapped = !division && random_.chance(0.3);
        auto const z = call(kind, {T(swapped ? y : x), T(swapped ? x : y)}, dims(x), named);
        keep(x == y ? not_plain(z) : z);
    }

    // ---- over axes

    void softmax(std::string const& kind) {
        auto const x = at_least_rank(1);
        keep(not_plain(same(kind, x, {axis(any_axis(x), rank(x))})));
    }
    void layer_norm(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const first = any_axis(x);
        tensor_shape const all = dims(x), tail(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
        keywords named{{"normalized_shape", ints({tail.begin(), tail.end()})}};
        if (random_.chance(0.5)) named["eps"] = real(1e-3);
        keep(norm(kind, x, tail, named));
    }
    /// Normalises each sample's channels, in groups or each by itself.
    void sample_norm(std::string const& kind) {
        auto const x = at_least_rank(2);
        extent const channels = dims(x)[1];
        keywords named;
        if (kind == "group_norm")
            named["num_groups"] = number(random_.chance(0.3) ? channels : channels % 2 == 0 ? 2 : 1);
        keep(norm(kind, x, {channels}, named));
    }
    void batch_norm(std::string const& kind) {
        auto const x = at_least_rank(2);
        tensor_shape const channels{dims(x)[1]};
        bool const training = random_.chance(0.5);
        keywords named{{"training", flag(training)}};
        if (!training)
            for (char const* moment : {"running_mean", "running_var"})
                named[moment] = T(builder_.buffer(fresh_name(moment), channels));
        keep(norm(kind, x, channels, named));
    }
    tensor_id norm(std::string const& kind, tensor_id x, tensor_shape const& parameters, keywords named) {
        for (char const* name : {"weight", "bias"})
            if (random_.chance(0.6) && (kind != "rms_norm" || name != std::string("bias")))
                named[name] = T(weight(parameters));
        return not_plain(same(kind, x, {}, named));
    }
    void pool(std::string const& kind) {
        bool const largest = kind.starts_with("max");
        auto const over = static_cast<std::size_t>(kind[kind.size() - 2] - '0');
        auto const x = of_rank(over + 1 + random_.below(2), largest);
        tensor_shape y = dims(x);
        std::array<std::vector<std::int64_t>, 4> sides; // window, stride, padding, dilation
        for (std::size_t d = y.size() - over; d < y.size(); ++d) {
            extent const in = y[d], window = random_.between(1, static_cast<int>(std::min<extent>(in, 3)));
            extent const padding = window > 1 ? random_.between(0, 1) : 0, stride = random_.between(1, 2);
            extent const dilation = largest && padding == 0 && 2 * (window - 1) < in ? random_.between(1, 2) : 1;
            y[d] = (in + 2 * padding - dilation * (window - 1) - 1) / stride + 1;
            sides[0].push_back(window);
            sides[1].push_back(stride);
            sides[2].push_back(padding);
            sides[3].push_back(dilation);
        }
        keywords named;
        if (largest) named["dilation"] = ints(sides[3]);
        else if (random_.chance(0.3)) named["divisor_override"] = number(3);
        else named["count_include_pad"] = flag(random_.chance(0.5));
        std::vector<literal> const arguments{T(x), ints(sides[0]), ints(sides[1]), ints(sides[2])};
        if (!largest || random_.chance(0.6)) return keep(not_plain(call(kind, arguments, y, named)));
        auto const found = call_multi(kind, arguments, {y, y}, named, {}, element_type::int64);
        keep(not_plain(found[0]));
        keep(not_plain(call("float", {T(found[1])}, y, {}, element_type::float32)));
    }
    void adaptive_pool(std::string const& kind) {
        auto const over = static_cast<std::size_t>(kind[kind.size() - 2] - '0');
        auto const x = of_rank(over + 1 + random_.below(2), kind.starts_with("adaptive_max"));
        tensor_shape y = dims(x);
        for (std::size_t d = y.size() - over; d < y.size(); ++d) y[d] = size(3);
        keep(not_plain(call(kind, {T(x), ints({y.end() - static_cast<std::ptrdiff_t>(over), y.end()})}, y)));
    }
    void interpolate(std::string const& kind) {
        auto const x = of_rank(3 + random_.below(2));
        tensor_shape y = dims(x);
        for (std::size_t d = 2; d < y.size(); ++d) y[d] = size();
        bool const smooth = random_.chance(0.6);
        keywords named{{"mode", text(!smooth               ? "nearest"
                                     : y.size() == 3       ? "linear"
                                     : random_.chance(0.5) ? "bicubic"
                                                           : "bilinear")}};
        if (smooth) named["align_corners"] = flag(random_.chance(0.5));
        keep(not_plain(call(kind, {T(x), ints({y.begin() + 2, y.end()})}, y, named)));
    }

    // ---- losses

    void classification(std::string const& kind) { keep(not_plain(class_loss(kind, at_least_rank(1)))); }
    tensor_id class_loss(std::string const& kind, tensor_id x) {
        tensor_shape samples = dims(x);
        std::size_t const at = samples.size() > 1 ? 1 : 0;
        extent const classes = samples[at];
        samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(at));
        auto const* const reduction = random_.of(std::vector<char const*>{"mean", "mean", "sum", "none"});
        keywords named{{"reduction", text(reduction)}};
        tensor_shape const result = reduction == std::string("none") ? samples : tensor_shape{};
        bool const entropy = kind == "cross_entropy";
        if (entropy && random_.chance(0.3)) named["label_smoothing"] = real(0.2);
        if (random_.chance(0.3)) named["weight"] = T(builder_.buffer(fresh_name("class_weight"), {classes}));
        if (entropy && random_.chance(0.2)) return call(kind, {T(x), T(weight(dims(x)))}, result, named);
        if (random_.chance(0.5)) named["ignore_index"] = number(1);
        return call(kind, {T(x), T(input(samples, element_type::int64))}, result, named);
    }
    void squared_error(std::string const& kind) { keep(squared_error_of(kind, operand())); }
    tensor_id squared_error_of(std::string const& kind, tensor_id x) {
        auto const* const reduction = random_.of(std::vector<char const*>{"mean", "sum", "none"});
        return call(kind, {T(x), T(weight(dims(x)))}, reduction == std::string("none") ? dims(x) : tensor_shape{},
                    {{"reduction", text(reduction)}});
    }
    /// Returns the sum of a scalar of every value that no operator uses.
    tensor_id total_loss() {
        std::optional<tensor_id> total;
        for (std::size_t n = 0; n < values_.size(); ++n) {
            auto x = values_[n];
            if (used_.contains(x)) continue;
            if (rank(x) > 0 && random_.chance(0.4))
                x = random_.chance(0.3) ? squared_error_of("mse_loss", x)
                                        : class_loss(random_.chance(0.5) ? "nll_loss" : "cross_entropy", x);
            if (rank(x) > 0) { // weighed: what a normalisation makes would add up to nothing but rounding
                x = call("mul", {T(x), T(input(dims(x)))}, dims(x));
                x = call(random_.chance(0.5) ? "sum" : "mean", {T(x)}, {});
            }
            total = total ? call("add", {T(*total), T(x)}, {}) : x;
        }
        if (!is_trained(*total)) total = call("mul", {T(*total), T(trained_weight({}))}, {});
        return random_.chance(0.1) ? reshaped(*total, {1}, "unsqueeze") : *total;
    }
};

/// A program of catalogue operators whose loss depends on a trained parameter.
[[nodiscard]] inline program catalogue_program(random_source& random, int recipes) {
    return catalogue_growth(random).build(recipes);
}

/// As above; none where the random shapes do not go together.
[[nodiscard]] inline std::optional<program> find_catalogue_program(random_source& random, int recipes) try {
    return catalogue_program(random, recipes);
} catch (input_error const&) { return std::nullopt; }

} // namespace heddle::test
