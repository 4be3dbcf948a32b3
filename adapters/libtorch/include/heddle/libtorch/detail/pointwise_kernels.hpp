// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of libtorch: products and sums, functions of elements, dropout and sources.
#pragma once

#include <heddle/libtorch/detail/kernel_table.hpp>

#include <limits>
#include <numeric>

namespace heddle::libtorch::detail {

/// Computes the operators whose rules say all: sums of products, and moves of elements.
inline void add_product_kernels(kernel_table& table) {
    using numbers = std::vector<double>;
    auto const plain = from_rule([](kernel_call const&) { return numbers{}; });
    for (char const* kind :
         {"linear", "matmul", "mm", "bmm", "mv", "dot", "einsum", "sum", "transpose", "permute", "t", "getattr",
          "expand", "expand_as", "repeat", "tile", "repeat_interleave", "pixel_shuffle", "pixel_unshuffle"})
        table[kind] = plain;
    table["neg"] = from_rule([](kernel_call const&) { return numbers{-1}; });
    for (char const* kind : {"clone", "contiguous", "to", "type_as", "float", "double", "half", "bfloat16"})
        table[kind] = one_result([](kernel_call const& call, tensor_list const& x) {
            if (call.flag("to_truth")) return x[0] != 0;
            return call.flag("truncate") ? x[0].detach().trunc() : x[0].alias();
        });
    table["detach"] = function_of_one([](at::Tensor const& x) { return x.detach(); });
    table["mean"] = from_rule([](kernel_call const& call) {
        double points = 1;
        for (auto const& index : call.rule->indices)
            if (index.kind == index_kind::reduction) points *= static_cast<double>(index.extent);
        return numbers{1 / points};
    });
    table["addmm"] = table["baddbmm"] =
        from_rule([](kernel_call const& call) { return numbers{call.number("beta", 1), call.number("alpha", 1)}; });

    /// Takes one of two kernels: for a tensor and a number, or for tensors.
    auto const number_or = [](auto of_number, operator_kernel const& tensors) -> operator_kernel {
        auto const number = one_result([=](kernel_call const& call, tensor_list const& x) {
            return of_number(x[0], call.number("number", 0), call.flag("number_is_first"));
        });
        return {[=](joined_call const& call, tensor_list const& x) {
                    return (call.has("number") ? number : tensors).forward(call, x);
                },
                [=](joined_call const& call, tensor_list const& x, tensor_list const& y, tensor_list const& g) {
                    return call.has("number") ? differentiate(number, call, x, g) : tensors.backward(call, x, y, g);
                }};
    };
    table["add"] = number_or([](at::Tensor const& x, double c, bool) { return x + c; },
                             from_rule([](kernel_call const& call) { return numbers{1, call.number("alpha", 1)}; }));
    table["sub"] = number_or([](at::Tensor const& x, double c, bool first) { return first ? c - x : x - c; },
                             from_rule([](kernel_call const& call) { return numbers{1, -call.number("alpha", 1)}; }));
    table["mul"] = number_or([](at::Tensor const& x, double c, bool) { return x * c; }, plain);
    auto quotient = one_result([](kernel_call const& call, tensor_list const& x) {
        auto const& rule = *call.rule;
        return contraction(call)({{x[0], &rule.operands[0]}, {x[1].reciprocal(), &rule.operands[1]}}, rule.results[0],
                                 call.result_shape(0));
    });
    quotient.backward = [forward = quotient.forward](joined_call const& call, tensor_list const& x, tensor_list const&,
                                                     tensor_list const& g) {
        return differentiate({forward}, call, x, g);
    };
    table["div"] = number_or([](at::Tensor const& x, double c, bool first) { return first ? c / x : x / c; }, quotient);
}

/// Computes functions of one element, by libtorch's names where they are the same.
inline void add_functions(kernel_table& table) {
    using tensor = at::Tensor;
    auto const set = [&](char const* kind, auto f) { table[kind] = function_of_one(f); };
    auto const with = [&](char const* kind, auto f) { // a function of the call too
        table[kind] = one_result([f](kernel_call const& call, tensor_list const& x) { return f(call, x[0]); });
    };
    set("relu", [](tensor const& x) { return x.relu(); });
    set("tanh", [](tensor const& x) { return x.tanh(); });
    set("sigmoid", [](tensor const& x) { return x.sigmoid(); });
    set("exp", [](tensor const& x) { return x.exp(); });
    set("expm1", [](tensor const& x) { return x.expm1(); });
    set("exp2", [](tensor const& x) { return x.exp2(); });
    set("sqrt", [](tensor const& x) { return x.sqrt(); });
    set("rsqrt", [](tensor const& x) { return x.rsqrt(); });
    set("reciprocal", [](tensor const& x) { return x.reciprocal(); });
    set("log", [](tensor const& x) { return x.log(); });
    set("log1p", [](tensor const& x) { return x.log1p(); });
    set("log2", [](tensor const& x) { return x.log2(); });
    set("log10", [](tensor const& x) { return x.log10(); });
    set("sin", [](tensor const& x) { return x.sin(); });
    set("cos", [](tensor const& x) { return x.cos(); });
    set("tan", [](tensor const& x) { return x.tan(); });
    set("asin", [](tensor const& x) { return x.asin(); });
    set("acos", [](tensor const& x) { return x.acos(); });
    set("atan", [](tensor const& x) { return x.atan(); });
    set("sinh", [](tensor const& x) { return x.sinh(); });
    set("cosh", [](tensor const& x) { return x.cosh(); });
    set("asinh", [](tensor const& x) { return x.asinh(); });
    set("acosh", [](tensor const& x) { return x.acosh(); });
    set("atanh", [](tensor const& x) { return x.atanh(); });
    set("erf", [](tensor const& x) { return x.erf(); });
    set("erfc", [](tensor const& x) { return x.erfc(); });
    set("abs", [](tensor const& x) { return x.abs(); });
    set("square", [](tensor const& x) { return x * x; });
    set("silu", [](tensor const& x) { return at::silu(x); });
    set("mish", [](tensor const& x) { return at::mish(x); });
    set("logsigmoid", [](tensor const& x) { return at::log_sigmoid(x); });
    set("softsign", [](tensor const& x) { return x / (1 + x.abs()); });
    set("tanhshrink", [](tensor const& x) { return x - x.tanh(); });
    set("relu6", [](tensor const& x) { return at::hardtanh(x, 0, 6); });
    auto const gate = [](tensor const& x) { return at::clamp(x / 6 + 0.5, 0, 1); }; // libtorch's slopes are floats
    set("hardsigmoid", gate);
    set("hardswish", [=](tensor const& x) { return x * gate(x); });
    set("selu", [](tensor const& x) { return at::selu(x); });
    set("sign", [](tensor const& x) { return x.sign(); });
    set("floor", [](tensor const& x) { return x.floor(); });
    set("ceil", [](tensor const& x) { return x.ceil(); });
    set("trunc", [](tensor const& x) { return x.trunc(); });
    set("round", [](tensor const& x) { return x.round(); });
    set("isnan", [](tensor const& x) { return x.isnan(); });
    set("isinf", [](tensor const& x) { return x.isinf(); });
    set("logical_not", [](tensor const& x) { return x == 0; });
    set("invert", [](tensor const& x) { return (-1 - x).detach(); }); // of whole numbers, as the next ones
    with("gelu", [](kernel_call const& call, tensor const& x) {
        return at::gelu(x, call.flag("approximate") ? "tanh" : "none");
    });
    table["gelu"].backward = [](kernel_call const& call, tensor_list const& x, tensor_list const&,
                                tensor_list const& g) {
        return gradient_list{at::gelu_backward(g[0], x[0], call.flag("approximate") ? "tanh" : "none")};
    };
    with("elu", [](kernel_call const& call, tensor const& x) { return at::elu(x, call.number("alpha", 1)); });
    with("celu", [](kernel_call const& call, tensor const& x) { // libtorch's has a float for 1 / alpha
        double const alpha = call.number("alpha", 1);
        return x.relu() + (x.clamp_max(0) / alpha).expm1() * alpha;
    });
    with("leaky_relu", [](kernel_call const& call, tensor const& x) {
        return at::leaky_relu(x, call.number("negative_slope", 0.01));
    });
    with("softshrink",
         [](kernel_call const& call, tensor const& x) { return at::softshrink(x, call.number("lambd", 0.5)); });
    with("hardshrink",
         [](kernel_call const& call, tensor const& x) { return at::hardshrink(x, call.number("lambd", 0.5)); });
    with("threshold", [](kernel_call const& call, tensor const& x) {
        return at::threshold(x, call.number("threshold", 0), call.number("value", 0));
    });
    with("softplus", [](kernel_call const& call, tensor const& x) {
        return at::softplus(x, call.number("beta", 1), call.number("threshold", 20));
    });
    with("pow", [](kernel_call const& call, tensor const& x) { return x.pow(call.number("exponent", 1)); });
    auto const clamp = [&](char const* kind, char const* least, char const* most, double low, double high) {
        with(kind, [=](kernel_call const& call, tensor const& x) {
            return at::clamp(x, call.number(least, low), call.number(most, high));
        });
    };
    constexpr double infinite = std::numeric_limits<double>::infinity();
    for (char const* kind : {"clamp", "clamp_min", "clamp_max"}) clamp(kind, "min", "max", -infinite, infinite);
    clamp("hardtanh", "min_val", "max_val", -1, 1);
    auto const quotient = [](kernel_call const& call, tensor const& x) {
        return (x / call.number("number", 1)).floor();
    };
    with("floor_divide", quotient);
    with("remainder", [=](kernel_call const& call, tensor const& x) {
        return x - quotient(call, x).detach() * call.number("number", 1);
    });
    with("full_like",
         [](kernel_call const& call, tensor const& x) { return at::full_like(x, call.number("value", 0)); });
}

/// Computes functions of several tensors that broadcast.
inline void add_broadcast_kernels(kernel_table& table) {
    auto const set = [&](char const* kind, auto f) {
        table[kind] =
            one_result([f](kernel_call const& call, tensor_list const& x) { return f(call, aligned(call, x)); });
    };
    auto const of_two = [&](char const* kind, auto f) { // or of a tensor and a number
        set(kind, [f](kernel_call const& call, tensor_list const& x) {
            return f(x[0], x.size() > 1 ? x[1] : at::full({}, call.number("number", 0), x[0].options()));
        });
    };
    using tensor = at::Tensor;
    of_two("minimum", [](tensor const& a, tensor const& b) { return at::minimum(a, b); });
    of_two("maximum", [](tensor const& a, tensor const& b) { return at::maximum(a, b); });
    of_two("atan2", [](tensor const& a, tensor const& b) { return at::atan2(a, b); });
    of_two("logaddexp", [](tensor const& a, tensor const& b) { return at::logaddexp(a, b); });
    of_two("eq", [](tensor const& a, tensor const& b) { return a == b; });
    of_two("ne", [](tensor const& a, tensor const& b) { return a != b; });
    of_two("lt", [](tensor const& a, tensor const& b) { return a < b; });
    of_two("le", [](tensor const& a, tensor const& b) { return a <= b; });
    of_two("gt", [](tensor const& a, tensor const& b) { return a > b; });
    of_two("ge", [](tensor const& a, tensor const& b) { return a >= b; });
    of_two("logical_and", [](tensor const& a, tensor const& b) { return a.logical_and(b); });
    of_two("logical_or", [](tensor const& a, tensor const& b) { return a.logical_or(b); });
    of_two("and_", [](tensor const& a, tensor const& b) { return whole_number(a).bitwise_and(whole_number(b)); });
    of_two("or_", [](tensor const& a, tensor const& b) { return whole_number(a).bitwise_or(whole_number(b)); });
    of_two("xor", [](tensor const& a, tensor const& b) { return whole_number(a).bitwise_xor(whole_number(b)); });
    of_two("prelu", [](tensor const& x, tensor const& slope) { return at::where(x > 0, x, slope * x); });
    of_two("power", [](tensor const& a, tensor const& b) { // a power of what is not positive has none by its exponent
        auto const power = a.pow(b.detach());
        return with_derivative(power, power + power.detach() * a.detach().where(a > 0, at::ones_like(a)).log() * b);
    });
    of_two("complex_mul", [](tensor const& a, tensor const& b) {
        auto const pairs = [](tensor const& x) { return x.unflatten(-1, {x.size(-1) / 2, 2}); };
        auto const p = pairs(a), q = pairs(b);
        auto const real = p.select(-1, 0) * q.select(-1, 0) - p.select(-1, 1) * q.select(-1, 1);
        auto const imaginary = p.select(-1, 0) * q.select(-1, 1) + p.select(-1, 1) * q.select(-1, 0);
        return at::stack({real, imaginary}, -1).flatten(-2);
    });
    set("lerp", [](kernel_call const& call, tensor_list const& x) {
        auto const way = x[1] - x[0];
        return x[0] + (x.size() > 2 ? x[2] * way : way * call.number("weight", 0));
    });
    set("addcmul",
        [](kernel_call const& call, tensor_list const& x) { return x[0] + x[1] * x[2] * call.number("value", 1); });
    set("addcdiv",
        [](kernel_call const& call, tensor_list const& x) { return x[0] + x[1] / x[2] * call.number("value", 1); });
    for (char const* kind : {"where", "masked_fill"})
        set(kind, [](kernel_call const& call, tensor_list const& x) {
            auto const choice = [&](std::string const& name) {
                auto const k = call.operand(name);
                return k ? x[*k] : at::full({}, call.number(name + "_number", 0), x.back().options());
            };
            return at::where(x[0] != 0, choice("where"), choice("otherwise"));
        });
}

/// Computes dropout, and sources, which are on the thread's device.
inline void add_random_kernels(kernel_table& table) {
    /// Draws a number for each place of the first `drawn` dimensions; if the call does not say, for each element.
    auto const dropout = [](kernel_call const& call, at::Tensor const& x) {
        double const p = call.number("p", 0.5);
        if (p == 0) return x.alias();
        tensor_shape const whole = call.whole_shape(call.rule->results[0]), held = call.result_shape(0);
        auto const drawn = static_cast<std::ptrdiff_t>(call.number("drawn", static_cast<double>(whole.size())));
        auto const& part = call.results[0];
        auto const first = [&](auto const& of) { return std::decay_t<decltype(of)>(of.begin(), of.begin() + drawn); };
        return place_dropper(call, first(whole), first(part), first(held), p, x.device())(x);
    };
    for (char const* kind : {"dropout", "dropout1d", "dropout2d", "dropout3d", "stochastic_depth"})
        table[kind] = {[=](kernel_call const& call, tensor_list const& x) { return tensor_list{dropout(call, x[0])}; },
                       [=](kernel_call const& call, tensor_list const&, tensor_list const&, tensor_list const& g) {
                           return gradient_list{dropout(call, g[0])}; // linear with a fixed mask
                       }};
    table["bernoulli"] = one_result([](kernel_call const& call, tensor_list const& x) {
        return random_units(call, result_numbers(call, x[0].device())) < x[0].detach();
    });
    auto const source = [&](char const* kind, auto value) {
        table[kind] = one_result([=](kernel_call const& call, tensor_list const& x) {
            return value(call, result_numbers(call, x.empty() ? device_of_thread() : x[0].device()));
        });
    };
    for (char const* kind : {"rand", "rand_like"})
        source(kind, [](kernel_call const& call, at::Tensor const& n) { return random_units(call, n); });
    for (char const* kind : {"randn", "randn_like"})
        source(kind, [](kernel_call const& call, at::Tensor const& n) { return random_normals(call, n); });
    source("arange", [](kernel_call const& call, at::Tensor const& n) {
        return n.to(at::kDouble) * call.number("step", 1) + call.number("start", 0);
    });
    table["full"] = one_result([](kernel_call const& call, tensor_list const&) {
        return at::full(call.result_shape(0), call.number("value", 0),
                        at::TensorOptions(at::kDouble).device(device_of_thread()));
    });
}

} // namespace heddle::libtorch::detail
