// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of element-wise functions and dropout.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>

namespace heddle::detail {

/// Computes a function of the call's parameters and the operand, element by element; `derivative` also takes the
/// result.
template <class Scalar, class Function, class Derivative>
operator_kernel<Scalar> parametric(Function f, Derivative derivative) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                for (auto& e : y.data) e = f(call, e);
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                auto dx = *g[0];
                for (extent n = 0; n < dx.elements(); ++n) dx[n] *= derivative(call, (*x[0])[n], (*y[0])[n]);
                return only(std::move(dx));
            }};
}
template <class Scalar, class Function, class Derivative>
operator_kernel<Scalar> elementwise(Function f, Derivative derivative) {
    return parametric<Scalar>([=](kernel_call const&, Scalar x) { return f(x); },
                              [=](kernel_call const&, Scalar x, Scalar y) { return derivative(x, y); });
}

/// The function is constant wherever it has a derivative, which is zero in every operand.
template <class Scalar, class Forward>
operator_kernel<Scalar> piecewise_constant(Forward forward) {
    return {forward, [](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar>) {
                gradients<Scalar> zeros;
                for (auto const* t : x) zeros.push_back(dense_tensor<Scalar>(t->dims));
                return zeros;
            }};
}

/// Returns, for each element of the result, the element of an operand that broadcasts to it. Each dimension of the
/// operand is one of the last of the result or, with the attribute `aligned_at`, one from there on; a dimension of one
/// place has no index.
[[nodiscard]] inline std::vector<extent> broadcast_places(kernel_call const& call, std::size_t operand,
                                                          tensor_shape const& result) {
    auto const& access = call.rule->operands[operand];
    std::vector<extent> places{0};
    std::size_t const first = operand > 0 && call.has("aligned_at")
                                  ? static_cast<std::size_t>(call.number("aligned_at", 0))
                                  : result.size() - access.size();
    for (std::size_t d = 0; d < result.size(); ++d) {
        bool const moves = d >= first && d - first < access.size() && !access[d - first].empty();
        std::vector<extent> next;
        for (auto p : places)
            for (extent n = 0; n < result[d]; ++n) next.push_back(moves ? p * result[d] + n : p);
        places = std::move(next);
    }
    return places;
}

/// Computes `f(call, elements)`, of one element per operand, element by element and broadcast; `derivatives(call,
/// elements, g)` returns one number for each operand.
template <class Scalar, class Function, class Derivatives>
operator_kernel<Scalar> broadcast_kernel(Function f, Derivatives derivatives) {
    using numbers = std::vector<Scalar>;
    auto const for_each_element = [](kernel_call const& call, tensor_view<Scalar> x, tensor_shape const& result,
                                     auto const& visit) {
        std::vector<std::vector<extent>> places;
        for (std::size_t k = 0; k < x.size(); ++k) places.push_back(broadcast_places(call, k, result));
        numbers elements(x.size());
        for (extent n = 0; n < count_elements(result); ++n) {
            auto const at = [&](std::size_t k) { return places[k][static_cast<std::size_t>(n)]; };
            for (std::size_t k = 0; k < x.size(); ++k) elements[k] = (*x[k])[at(k)];
            visit(n, elements, at);
        }
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_element(call, x, y.dims, [&](extent n, numbers const& e, auto const&) { y[n] = f(call, e); });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                for (auto const* t : x) result.push_back(dense_tensor<Scalar>(t->dims));
                for_each_element(call, x, g[0]->dims, [&](extent n, numbers const& e, auto const& at) {
                    numbers const d = derivatives(call, e, (*g[0])[n]);
                    for (std::size_t k = 0; k < x.size(); ++k) (*result[k])[at(k)] += d[k];
                });
                return result;
            }};
}

/// Compares two tensors, or a tensor and a number; gives one or zero.
template <class Scalar, class Compare>
operator_kernel<Scalar> comparison(Compare holds) {
    auto const both = broadcast_kernel<Scalar>(
        [=](kernel_call const& call, std::vector<Scalar> const& e) {
            return Scalar(holds(e[0], e.size() > 1 ? e[1] : static_cast<Scalar>(call.number("number", 0))) ? 1 : 0);
        },
        [](kernel_call const&, std::vector<Scalar> const& e, Scalar) { return std::vector<Scalar>(e.size()); });
    return piecewise_constant<Scalar>(both.forward);
}

/// Chooses one of two by a mask, which is operand 0; each of the two is an operand or a number.
template <class Scalar>
operator_kernel<Scalar> choice_kernel() {
    using numbers = std::vector<Scalar>;
    return broadcast_kernel<Scalar>(
        [](kernel_call const& call, numbers const& e) {
            char const* const name = e[0] != 0 ? "where" : "otherwise";
            auto const k = call.operand(name);
            return k ? e[*k] : static_cast<Scalar>(call.number(std::string(name) + "_number", 0));
        },
        [](kernel_call const& call, numbers const& e, Scalar g) {
            numbers d(e.size());
            if (auto const k = call.operand(e[0] != 0 ? "where" : "otherwise")) d[*k] = g;
            return d;
        });
}

template <class Scalar>
struct gelu_function {
    static Scalar slope_at_zero() { return std::sqrt(2 / std::numbers::pi_v<Scalar>); }
    static Scalar value(Scalar x, bool approximate) {
        if (approximate) return x / 2 * (1 + std::tanh(slope_at_zero() * (x + Scalar(0.044715) * x * x * x)));
        return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Scalar>));
    }
    static Scalar derivative(Scalar x, bool approximate) {
        if (approximate) {
            Scalar const t = std::tanh(slope_at_zero() * (x + Scalar(0.044715) * x * x * x));
            return (1 + t) / 2 + x / 2 * (1 - t * t) * slope_at_zero() * (1 + 3 * Scalar(0.044715) * x * x);
        }
        return (1 + std::erf(x / std::numbers::sqrt2_v<Scalar>)) / 2 +
               x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Scalar>);
    }
};

template <class Scalar>
operator_kernel<Scalar> gelu() {
    using function = gelu_function<Scalar>;
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                for (auto& e : y.data) e = function::value(e, call.flag("approximate"));
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                auto dx = *g[0];
                for (extent n = 0; n < dx.elements(); ++n)
                    dx[n] *= function::derivative((*x[0])[n], call.flag("approximate"));
                return only(std::move(dx));
            }};
}

/// Draws a number for each place of the first `drawn` dimensions of the whole tensor; if the call does not say, for
/// each element.
template <class Scalar>
dense_tensor<Scalar> dropped(kernel_call const& call, dense_tensor<Scalar> x) {
    double const p = call.number("p", 0.5);
    if (p == 0) return x;
    tensor_shape const whole = call.whole_shape(call.rule->results[0]);
    auto const drawn = static_cast<std::ptrdiff_t>(call.number("drawn", static_cast<double>(whole.size())));
    extent const elements = count_elements({whole.begin() + drawn, whole.end()});
    auto const numbers = whole_numbers(whole, call.results[0]);
    for (std::size_t n = 0; n < numbers.size(); ++n)
        x.data[n] *=
            static_cast<Scalar>(dropout_factor(call.random, static_cast<std::uint64_t>(numbers[n] / elements), p));
    return x;
}

/// Dropout is linear with a fixed mask, and so its own adjoint.
template <class Scalar>
operator_kernel<Scalar> dropout_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> { return {dropped(call, *x[0])}; },
            [](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return only(dropped(call, *g[0]));
            }};
}

/// Has functions of one element with their derivatives.
template <class Scalar>
void add_functions(kernel_table<Scalar>& table) {
    auto const sigmoid = [](Scalar x) { return 1 / (1 + std::exp(-x)); };
    auto const softplus = [](Scalar x) { return std::max(x, Scalar(0)) + std::log1p(std::exp(-std::abs(x))); };
    auto const number = [](kernel_call const& call, char const* name, double absent) {
        return static_cast<Scalar>(call.number(name, absent));
    };
    auto const set = [&](char const* kind, auto f, auto derivative) {
        table[kind] = elementwise<Scalar>(f, derivative);
    };

    set("relu", [](Scalar x) { return x > 0 ? x : Scalar(0); }, [](Scalar x, Scalar) { return Scalar(x > 0 ? 1 : 0); });
    set("tanh", [](Scalar x) { return std::tanh(x); }, [](Scalar, Scalar y) { return 1 - y * y; });
    set("sigmoid", sigmoid, [](Scalar, Scalar y) { return y * (1 - y); });
    set("exp", [](Scalar x) { return std::exp(x); }, [](Scalar, Scalar y) { return y; });
    set("expm1", [](Scalar x) { return std::expm1(x); }, [](Scalar, Scalar y) { return y + 1; });
    set("sqrt", [](Scalar x) { return std::sqrt(x); }, [](Scalar, Scalar y) { return 1 / (2 * y); });
    set("rsqrt", [](Scalar x) { return 1 / std::sqrt(x); }, [](Scalar, Scalar y) { return -y * y * y / 2; });
    set("reciprocal", [](Scalar x) { return 1 / x; }, [](Scalar, Scalar y) { return -y * y; });
    set("log", [](Scalar x) { return std::log(x); }, [](Scalar x, Scalar) { return 1 / x; });
    set("log1p", [](Scalar x) { return std::log1p(x); }, [](Scalar x, Scalar) { return 1 / (1 + x); });
    set(
        "log2", [](Scalar x) { return std::log2(x); },
        [](Scalar x, Scalar) { return 1 / (x * std::numbers::ln2_v<Scalar>); });
    set("sin", [](Scalar x) { return std::sin(x); }, [](Scalar x, Scalar) { return std::cos(x); });
    set("cos", [](Scalar x) { return std::cos(x); }, [](Scalar x, Scalar) { return -std::sin(x); });
    set("tan", [](Scalar x) { return std::tan(x); }, [](Scalar, Scalar y) { return 1 + y * y; });
    set("acos", [](Scalar x) { return std::acos(x); }, [](Scalar x, Scalar) { return -1 / std::sqrt(1 - x * x); });
    set("asin", [](Scalar x) { return std::asin(x); }, [](Scalar x, Scalar) { return 1 / std::sqrt(1 - x * x); });
    set("acosh", [](Scalar x) { return std::acosh(x); }, [](Scalar x, Scalar) { return 1 / std::sqrt(x * x - 1); });
    set("asinh", [](Scalar x) { return std::asinh(x); }, [](Scalar x, Scalar) { return 1 / std::sqrt(x * x + 1); });
    set("atanh", [](Scalar x) { return std::atanh(x); }, [](Scalar x, Scalar) { return 1 / (1 - x * x); });
    set("atan", [](Scalar x) { return std::atan(x); }, [](Scalar x, Scalar) { return 1 / (1 + x * x); });
    set("sinh", [](Scalar x) { return std::sinh(x); }, [](Scalar x, Scalar) { return std::cosh(x); });
    set("cosh", [](Scalar x) { return std::cosh(x); }, [](Scalar x, Scalar) { return std::sinh(x); });
    set(
        "exp2", [](Scalar x) { return std::exp2(x); },
        [](Scalar, Scalar y) { return y * std::numbers::ln2_v<Scalar>; });
    set(
        "log10", [](Scalar x) { return std::log10(x); },
        [](Scalar x, Scalar) { return 1 / (x * std::numbers::ln10_v<Scalar>); });
    set(
        "erfc", [](Scalar x) { return std::erfc(x); },
        [](Scalar x, Scalar) { return -2 * std::numbers::inv_sqrtpi_v<Scalar> * std::exp(-x * x); });
    set(
        "erf", [](Scalar x) { return std::erf(x); },
        [](Scalar x, Scalar) { return 2 * std::numbers::inv_sqrtpi_v<Scalar> * std::exp(-x * x); });
    set(
        "abs", [](Scalar x) { return std::abs(x); },
        [](Scalar x, Scalar) {
            return Scalar(x > 0 ? 1 : x < 0 ? -1 : 0);
        });
    set("square", [](Scalar x) { return x * x; }, [](Scalar x, Scalar) { return 2 * x; });
    set(
        "silu", [=](Scalar x) { return x * sigmoid(x); },
        [=](Scalar x, Scalar) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); });
    set(
        "mish", [=](Scalar x) { return x * std::tanh(softplus(x)); },
        [=](Scalar x, Scalar) {
            Scalar const t = std::tanh(softplus(x));
            return t + x * (1 - t * t) * sigmoid(x);
        });
    set("logsigmoid", [=](Scalar x) { return -softplus(-x); }, [=](Scalar x, Scalar) { return sigmoid(-x); });
    set(
        "softsign", [](Scalar x) { return x / (1 + std::abs(x)); },
        [](Scalar x, Scalar) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); });
    set(
        "tanhshrink", [](Scalar x) { return x - std::tanh(x); },
        [](Scalar x, Scalar) { return std::tanh(x) * std::tanh(x); });
    set(
        "relu6", [](Scalar x) { return std::clamp(x, Scalar(0), Scalar(6)); },
        [](Scalar x, Scalar) { return Scalar(x > 0 && x < 6 ? 1 : 0); });
    set(
        "hardsigmoid", [](Scalar x) { return std::clamp(x / 6 + Scalar(0.5), Scalar(0), Scalar(1)); },
        [](Scalar x, Scalar) { return x > -3 && x < 3 ? Scalar(1) / 6 : Scalar(0); });
    set(
        "hardswish", [](Scalar x) { return x * std::clamp(x + 3, Scalar(0), Scalar(6)) / 6; },
        [](Scalar x, Scalar) { return x <= -3  ? Scalar(0)
                                      : x >= 3 ? Scalar(1)
                                               : (2 * x + 3) / 6; });
    // Both constants are the paper's (Klambauer et al. 2017).
    constexpr double selu_alpha = 1.6732632423543772, selu_scale = 1.0507009873554805;
    auto const elu = [&](char const* kind, auto alpha_of, auto scale_of, auto inner_of) {
        table[kind] = parametric<Scalar>(
            [=](kernel_call const& call, Scalar x) {
                return scale_of(call) * (x > 0 ? x : alpha_of(call) * std::expm1(x * inner_of(call)));
            },
            [=](kernel_call const& call, Scalar x, Scalar) {
                return scale_of(call) *
                       (x > 0 ? Scalar(1) : alpha_of(call) * inner_of(call) * std::exp(x * inner_of(call)));
            });
    };
    auto const alpha = [=](kernel_call const& call) { return number(call, "alpha", 1); };
    auto const one = [](kernel_call const&) { return Scalar(1); };
    elu("elu", alpha, one, one);
    elu("celu", alpha, one, [=](kernel_call const& call) { return 1 / alpha(call); });
    elu(
        "selu", [](kernel_call const&) { return Scalar(selu_alpha); },
        [](kernel_call const&) { return Scalar(selu_scale); }, one);
    table["leaky_relu"] = parametric<Scalar>(
        [=](kernel_call const& call, Scalar x) { return x > 0 ? x : number(call, "negative_slope", 0.01) * x; },
        [=](kernel_call const& call, Scalar x, Scalar) {
            return x > 0 ? Scalar(1) : number(call, "negative_slope", 0.01);
        });
    auto const shrunk = [&](char const* kind, auto f) { // zero near zero
        table[kind] = parametric<Scalar>(
            [=](kernel_call const& call, Scalar x) {
                return std::abs(x) > number(call, "lambd", 0.5) ? f(x, number(call, "lambd", 0.5)) : Scalar(0);
            },
            [=](kernel_call const& call, Scalar x, Scalar) {
                return Scalar(std::abs(x) > number(call, "lambd", 0.5) ? 1 : 0);
            });
    };
    shrunk("softshrink", [](Scalar x, Scalar by) { return x > 0 ? x - by : x + by; });
    shrunk("hardshrink", [](Scalar x, Scalar) { return x; });
    table["threshold"] = parametric<Scalar>(
        [=](kernel_call const& call, Scalar x) {
            return x > number(call, "threshold", 0) ? x : number(call, "value", 0);
        },
        [=](kernel_call const& call, Scalar x, Scalar) { return Scalar(x > number(call, "threshold", 0) ? 1 : 0); });
    table["softplus"] = parametric<Scalar>(
        [=](kernel_call const& call, Scalar x) {
            Scalar const beta = number(call, "beta", 1);
            return x * beta > number(call, "threshold", 20) ? x : softplus(x * beta) / beta;
        },
        [=](kernel_call const& call, Scalar x, Scalar) {
            Scalar const beta = number(call, "beta", 1);
            return x * beta > number(call, "threshold", 20) ? Scalar(1) : sigmoid(x * beta);
        });
    table["pow"] =
        parametric<Scalar>([=](kernel_call const& call, Scalar x) { return std::pow(x, number(call, "exponent", 1)); },
                           [=](kernel_call const& call, Scalar x, Scalar) {
                               Scalar const e = number(call, "exponent", 1);
                               return e == 0 ? Scalar(0) : e * std::pow(x, e - 1);
                           });
    auto const clamp = [&](char const* kind, char const* least, char const* most, double low, double high) {
        auto const bounds = [=](kernel_call const& call) {
            return std::pair(number(call, least, low), number(call, most, high));
        };
        table[kind] =
            parametric<Scalar>([=](kernel_call const& call,
                                   Scalar x) { return std::min(std::max(x, bounds(call).first), bounds(call).second); },
                               [=](kernel_call const& call, Scalar x, Scalar) {
                                   return Scalar(x >= bounds(call).first && x <= bounds(call).second ? 1 : 0);
                               });
    };
    constexpr double infinite = std::numeric_limits<double>::infinity();
    for (char const* kind : {"clamp", "clamp_min", "clamp_max"}) clamp(kind, "min", "max", -infinite, infinite);
    clamp("hardtanh", "min_val", "max_val", -1, 1);
    auto const quotient = [=](kernel_call const& call, Scalar x) { return std::floor(x / number(call, "number", 1)); };
    table["floor_divide"] = parametric<Scalar>(quotient, [](kernel_call const&, Scalar, Scalar) { return Scalar(0); });
    table["remainder"] = parametric<Scalar>(
        [=](kernel_call const& call, Scalar x) { return x - quotient(call, x) * number(call, "number", 1); },
        [](kernel_call const&, Scalar, Scalar) { return Scalar(1); });
    table["gelu"] = gelu<Scalar>();
}

/// Multiplies pairs of numbers in the last dimension; all others are broadcast.
template <class Scalar>
operator_kernel<Scalar> complex_product_kernel() {
    /// Calls `visit(in one operand, in the other, in the result)`, the numbers of first elements of pairs.
    auto const for_each_pair = [](kernel_call const& call, tensor_shape const& result, auto const& visit) {
        auto const left = broadcast_places(call, 0, result), right = broadcast_places(call, 1, result);
        for (std::size_t n = 0; n < left.size(); n += 2) visit(left[n], right[n], static_cast<extent>(n));
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const &a = *x[0], &b = *x[1];
                for_each_pair(call, y.dims, [&](extent i, extent j, extent n) {
                    y[n] = a[i] * b[j] - a[i + 1] * b[j + 1];
                    y[n + 1] = a[i] * b[j + 1] + a[i + 1] * b[j];
                });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                auto const &a = *x[0], &b = *x[1], &d = *g[0];
                for_each_pair(call, d.dims, [&](extent i, extent j, extent n) {
                    (*result[0])[i] += d[n] * b[j] + d[n + 1] * b[j + 1];
                    (*result[0])[i + 1] += d[n + 1] * b[j] - d[n] * b[j + 1];
                    (*result[1])[j] += d[n] * a[i] + d[n + 1] * a[i + 1];
                    (*result[1])[j + 1] += d[n + 1] * a[i] - d[n] * a[i + 1];
                });
                return result;
            }};
}

template <class Scalar>
void add_pointwise_kernels(kernel_table<Scalar>& table) {
    add_functions(table);
    for (char const* kind : {"dropout", "dropout1d", "dropout2d", "dropout3d", "stochastic_depth"})
        table[kind] = dropout_kernel<Scalar>();
    using numbers = std::vector<Scalar>;
    auto const step = [&](char const* kind, auto f) {
        table[kind] = piecewise_constant<Scalar>([=](kernel_call const&, tensor_view<Scalar> x) -> tensors<Scalar> {
            auto y = *x[0];
            for (auto& e : y.data) e = f(e);
            return {std::move(y)};
        });
    };
    step("sign", [](Scalar x) { return Scalar(x > 0 ? 1 : x < 0 ? -1 : 0); });
    step("floor", [](Scalar x) { return std::floor(x); });
    step("ceil", [](Scalar x) { return std::ceil(x); });
    step("trunc", [](Scalar x) { return std::trunc(x); });
    step("round", [](Scalar x) { return std::nearbyint(x); });
    step("isnan", [](Scalar x) { return Scalar(std::isnan(x) ? 1 : 0); });
    step("isinf", [](Scalar x) { return Scalar(std::isinf(x) ? 1 : 0); });
    step("logical_not", [](Scalar x) { return Scalar(x == 0 ? 1 : 0); });
    auto const extreme = [&](char const* kind, auto before) { // of equals each has half the derivative
        table[kind] = broadcast_kernel<Scalar>(
            [=](kernel_call const&, numbers const& e) { return before(e[1], e[0]) ? e[1] : e[0]; },
            [=](kernel_call const&, numbers const& e, Scalar g) {
                if (e[0] == e[1]) return numbers{g / 2, g / 2};
                return before(e[1], e[0]) ? numbers{0, g} : numbers{g, 0};
            });
    };
    extreme("minimum", std::less<Scalar>{});
    extreme("maximum", std::greater<Scalar>{});
    table["atan2"] =
        broadcast_kernel<Scalar>([](kernel_call const&, numbers const& e) { return std::atan2(e[0], e[1]); },
                                 [](kernel_call const&, numbers const& e, Scalar g) {
                                     Scalar const square = e[0] * e[0] + e[1] * e[1];
                                     return numbers{g * e[1] / square, -g * e[0] / square};
                                 });
    table["logaddexp"] = broadcast_kernel<Scalar>(
        [](kernel_call const&, numbers const& e) {
            return std::max(e[0], e[1]) + std::log1p(std::exp(-std::abs(e[0] - e[1])));
        },
        [](kernel_call const&, numbers const& e, Scalar g) {
            return numbers{g / (1 + std::exp(e[1] - e[0])), g / (1 + std::exp(e[0] - e[1]))};
        });
    auto const part = [](kernel_call const& call, numbers const& e) {
        return e.size() > 2 ? e[2] : static_cast<Scalar>(call.number("weight", 0));
    };
    table["lerp"] = broadcast_kernel<Scalar>(
        [=](kernel_call const& call, numbers const& e) { return e[0] + part(call, e) * (e[1] - e[0]); },
        [=](kernel_call const& call, numbers const& e, Scalar g) {
            numbers d{g * (1 - part(call, e)), g * part(call, e)};
            if (e.size() > 2) d.push_back(g * (e[1] - e[0]));
            return d;
        });
    table["eq"] = comparison<Scalar>(std::equal_to<Scalar>{});
    table["ne"] = comparison<Scalar>(std::not_equal_to<Scalar>{});
    table["lt"] = comparison<Scalar>(std::less<Scalar>{});
    table["le"] = comparison<Scalar>(std::less_equal<Scalar>{});
    table["gt"] = comparison<Scalar>(std::greater<Scalar>{});
    table["ge"] = comparison<Scalar>(std::greater_equal<Scalar>{});
    table["logical_and"] = comparison<Scalar>([](Scalar a, Scalar b) { return a != 0 && b != 0; });
    table["logical_or"] = comparison<Scalar>([](Scalar a, Scalar b) { return a != 0 || b != 0; });
    // These are the kernels for whole numbers; for truth values the operators are others.
    auto const bits = [&](char const* kind, auto join) {
        auto const of_two = [=](Scalar a, Scalar b) {
            return static_cast<Scalar>(join(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
        };
        table[kind] = piecewise_constant<Scalar>(
            broadcast_kernel<Scalar>(
                [=](kernel_call const& call, numbers const& e) {
                    return of_two(e[0], e.size() > 1 ? e[1] : static_cast<Scalar>(call.number("number", 0)));
                },
                [](kernel_call const&, numbers const& e, Scalar) { return numbers(e.size()); })
                .forward);
    };
    bits("and_", std::bit_and<>{});
    bits("or_", std::bit_or<>{});
    bits("xor", std::bit_xor<>{});
    step("invert", [](Scalar x) { return -1 - x; });
    table["where"] = table["masked_fill"] = choice_kernel<Scalar>();
    table["full_like"] =
        piecewise_constant<Scalar>([](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
            return {dense_tensor<Scalar>(
                x[0]->dims, std::vector<Scalar>(x[0]->data.size(), static_cast<Scalar>(call.number("value", 0))))};
        });
    auto const drawn = [&](char const* kind, auto draw) {
        table[kind] =
            piecewise_constant<Scalar>([=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                auto const places = whole_numbers(call.whole_shape(call.rule->results[0]), call.results[0]);
                for (std::size_t n = 0; n < places.size(); ++n)
                    y.data[n] =
                        static_cast<Scalar>(draw(call.random, static_cast<std::uint64_t>(places[n]), y.data[n]));
                return {std::move(y)};
            });
    };
    drawn("rand_like", [](random_key key, std::uint64_t n, Scalar) { return random_unit(key, n); });
    drawn("randn_like", [](random_key key, std::uint64_t n, Scalar) { return random_normal(key, n); });
    drawn("bernoulli", [](random_key key, std::uint64_t n, Scalar p) { return random_unit(key, n) < p ? 1 : 0; });
    table["power"] =
        broadcast_kernel<Scalar>([](kernel_call const&, numbers const& e) { return std::pow(e[0], e[1]); },
                                 [](kernel_call const&, numbers const& e, Scalar g) {
                                     return numbers{e[1] == 0 ? Scalar(0) : g * e[1] * std::pow(e[0], e[1] - 1),
                                                    e[0] > 0 ? g * std::pow(e[0], e[1]) * std::log(e[0]) : Scalar(0)};
                                 });
    table["complex_mul"] = complex_product_kernel<Scalar>();
    table["prelu"] =
        broadcast_kernel<Scalar>([](kernel_call const&, numbers const& e) { return e[0] > 0 ? e[0] : e[1] * e[0]; },
                                 [](kernel_call const&, numbers const& e, Scalar g) {
                                     return e[0] > 0 ? numbers{g, 0} : numbers{g * e[1], g * e[0]};
                                 });
    table["addcdiv"] = broadcast_kernel<Scalar>(
        [](kernel_call const& call, numbers const& e) {
            return e[0] + static_cast<Scalar>(call.number("value", 1)) * e[1] / e[2];
        },
        [](kernel_call const& call, numbers const& e, Scalar g) {
            auto const v = static_cast<Scalar>(call.number("value", 1));
            return numbers{g, g * v / e[2], -g * v * e[1] / (e[2] * e[2])};
        });
    table["addcmul"] = broadcast_kernel<Scalar>(
        [](kernel_call const& call, numbers const& e) {
            return e[0] + static_cast<Scalar>(call.number("value", 1)) * e[1] * e[2];
        },
        [](kernel_call const& call, numbers const& e, Scalar g) {
            auto const v = static_cast<Scalar>(call.number("value", 1));
            return numbers{g, g * v * e[2], g * v * e[1]};
        });
}

} // namespace heddle::detail
