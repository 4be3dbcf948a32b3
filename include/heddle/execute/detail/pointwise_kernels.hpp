// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of element-wise functions, dropout, softmax and norms.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <limits>
#include <numbers>

namespace heddle::detail {

/// Element by element; `derivative` is of operand and result.
template <class Scalar, class Function, class Derivative>
operator_kernel<Scalar> elementwise(Function f, Derivative derivative) {
    return {[=](kernel_call const&, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                for (auto& e : y.data) e = f(e);
                return {std::move(y)};
            },
            [=](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                auto dx = *g[0];
                for (extent n = 0; n < dx.elements(); ++n) dx[n] *= derivative((*x[0])[n], (*y[0])[n]);
                return only(std::move(dx));
            }};
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
        return (1 + std::erf(x / std::numbers::sqrt2_v<Scalar>)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Scalar>);
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
                for (extent n = 0; n < dx.elements(); ++n) dx[n] *= function::derivative((*x[0])[n], call.flag("approximate"));
                return only(std::move(dx));
            }};
}

template <class Scalar>
dense_tensor<Scalar> dropped(kernel_call const& call, dense_tensor<Scalar> x) {
    double const p = call.number("p", 0.5);
    if (p == 0) return x;
    auto const numbers = whole_numbers(call.whole_shape(call.rule->results[0]), call.results[0]);
    for (extent n = 0; n < x.elements(); ++n)
        x[n] *= static_cast<Scalar>(dropout_factor(call.random, static_cast<std::uint64_t>(numbers[static_cast<std::size_t>(n)]), p));
    return x;
}

/// Linear with a fixed mask: its own adjoint.
template <class Scalar>
operator_kernel<Scalar> dropout_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> { return {dropped(call, *x[0])}; },
            [](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar> g) { return only(dropped(call, *g[0])); }};
}

/// A number for each line of an axis, made of its elements: from `start`, by `step(number, element's number, line)`; of the whole
/// lines where `call` holds parts of them.
template <class Step>
std::vector<double> line_statistic(kernel_call const& call, std::size_t which, reduction how, axis_view const& view, double start, Step const& step) {
    std::vector<double> rows(static_cast<std::size_t>(view.lines()), start);
    view.for_each_line([&](extent first, extent line) {
        auto& row = rows[static_cast<std::size_t>(line)];
        for (extent n = first; n < first + view.size * view.inner; n += view.inner) row = step(row, n, static_cast<std::size_t>(line));
    });
    if (call.combine) call.combine(which, how, rows);
    return rows;
}

/// Softmax over lines of an axis, or its logarithm.
template <class Scalar>
dense_tensor<Scalar> softmax_of(kernel_call const& call, dense_tensor<Scalar> x, axis_view const& view, bool logarithm) {
    auto const largest = line_statistic(call, 0, reduction::maximum, view, -std::numeric_limits<double>::infinity(),
                                        [&](double row, extent n, std::size_t) { return std::max(row, static_cast<double>(x[n])); });
    auto const sum = line_statistic(call, 1, reduction::sum, view, 0, [&](double row, extent n, std::size_t line) { return row + std::exp(x[n] - largest[line]); });
    view.for_each_line([&](extent first, extent number) {
        auto const line = static_cast<std::size_t>(number);
        for (extent n = first; n < first + view.size * view.inner; n += view.inner)
            x[n] = static_cast<Scalar>(logarithm ? x[n] - largest[line] - std::log(sum[line]) : std::exp(x[n] - largest[line]) / sum[line]);
    });
    return x;
}

/// The operand's cotangent from the result and its cotangent.
template <class Scalar>
dense_tensor<Scalar> softmax_adjoint(kernel_call const& call, dense_tensor<Scalar> const& y, dense_tensor<Scalar> g, axis_view const& view, bool logarithm) {
    auto const sum = line_statistic(call, 2, reduction::sum, view, 0, [&](double row, extent n, std::size_t) { return row + (logarithm ? g[n] : g[n] * y[n]); });
    view.for_each_line([&](extent first, extent line) {
        auto const of_line = static_cast<Scalar>(sum[static_cast<std::size_t>(line)]);
        for (extent n = first; n < first + view.size * view.inner; n += view.inner)
            g[n] = logarithm ? g[n] - std::exp(y[n]) * of_line : y[n] * (g[n] - of_line);
    });
    return g;
}

template <class Scalar>
operator_kernel<Scalar> softmax_kernel(bool logarithm) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                return {softmax_of(call, *x[0], axis_view(x[0]->dims, axis_of(call)), logarithm)};
            },
            [=](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                return only(softmax_adjoint(call, *y[0], *g[0], axis_view(g[0]->dims, axis_of(call)), logarithm));
            }};
}

/// (x - mean) / deviation of groups of elements, then times a weight and plus a bias where there are any.
///
/// `group(n)` numbers what an element is normalised with, `parameter(n)` its weight and bias.
template <class Scalar, class Group, class Parameter>
class normalisation {
public:
    normalisation(dense_tensor<Scalar> const& x, std::size_t groups, double eps, Group group, Parameter parameter)
        : x_(x), group_(group), parameter_(parameter), mean_(groups), scale_(groups), size_(groups) {
        for (extent n = 0; n < x.elements(); ++n) {
            mean_[group_(n)] += x[n];
            size_[group_(n)] += 1;
        }
        for (std::size_t k = 0; k < groups; ++k) mean_[k] /= size_[k];
        for (extent n = 0; n < x.elements(); ++n) {
            Scalar const d = x[n] - mean_[group_(n)];
            scale_[group_(n)] += d * d;
        }
        for (std::size_t k = 0; k < groups; ++k) scale_[k] = 1 / std::sqrt(scale_[k] / size_[k] + static_cast<Scalar>(eps));
    }
    /// With given moments.
    normalisation(dense_tensor<Scalar> const& x, std::vector<Scalar> mean, std::vector<Scalar> const& variance, double eps, Group group, Parameter parameter)
        : x_(x), group_(group), parameter_(parameter), mean_(std::move(mean)), fixed_(true) {
        for (Scalar v : variance) scale_.push_back(1 / std::sqrt(v + static_cast<Scalar>(eps)));
    }

    [[nodiscard]] dense_tensor<Scalar> forward(dense_tensor<Scalar> const* weight, dense_tensor<Scalar> const* bias) const {
        dense_tensor<Scalar> y(x_.dims);
        for (extent n = 0; n < y.elements(); ++n)
            y[n] = normal(n) * (weight ? (*weight)[parameter_(n)] : 1) + (bias ? (*bias)[parameter_(n)] : 0);
        return y;
    }
    /// Of the operand; adds those of weight and bias to what is given for them.
    [[nodiscard]] dense_tensor<Scalar> backward(dense_tensor<Scalar> const& g, dense_tensor<Scalar> const* weight, dense_tensor<Scalar>* to_weight,
                                                dense_tensor<Scalar>* to_bias) const {
        dense_tensor<Scalar> dx(x_.dims);
        std::vector<Scalar> sum(scale_.size()), product(scale_.size());
        for (extent n = 0; n < dx.elements(); ++n) {
            if (to_weight) (*to_weight)[parameter_(n)] += g[n] * normal(n);
            if (to_bias) (*to_bias)[parameter_(n)] += g[n];
            dx[n] = g[n] * (weight ? (*weight)[parameter_(n)] : 1);
            sum[group_(n)] += dx[n];
            product[group_(n)] += dx[n] * normal(n);
        }
        for (extent n = 0; n < dx.elements(); ++n) {
            auto const k = group_(n);
            dx[n] = scale_[k] * (fixed_ ? dx[n] : dx[n] - (sum[k] + normal(n) * product[k]) / size_[k]);
        }
        return dx;
    }

private:
    [[nodiscard]] Scalar normal(extent n) const { return (x_[n] - mean_[group_(n)]) * scale_[group_(n)]; }

    dense_tensor<Scalar> const& x_;
    Group group_;
    Parameter parameter_;
    std::vector<Scalar> mean_, scale_, size_;
    bool fixed_ = false;
};

/// Weight and bias of a norm. A call without attributes has them as operands 1 and 2.
struct norm_operands {
    std::optional<std::size_t> weight, bias;

    explicit norm_operands(kernel_call const& call) : weight(call.operand("weight")), bias(call.operand("bias")) {
        if (!call.attributes->empty()) return;
        if (call.operands.size() > 1) weight = 1;
        if (call.operands.size() > 2) bias = 2;
    }
};

/// Runs `visit` with the normalisation that a layer norm is: of the last dimensions, which its rule blocks.
template <class Scalar, class Visitor>
auto with_layer_norm(kernel_call const& call, dense_tensor<Scalar> const& x, Visitor&& visit) {
    auto const& access = call.rule->operands[0];
    std::size_t first = access.size();
    if (call.operands.size() > 1) first -= call.operands[1].size();
    else while (first > 0 && (access[first - 1].empty() || call.rule->indices[access[first - 1][0]].kind == index_kind::blocked)) --first;
    axis_view const view(x.dims, first, x.dims.size() - first);
    auto const group = [size = view.size](extent n) { return static_cast<std::size_t>(n / size); };
    auto const parameter = [size = view.size](extent n) { return n % size; };
    return visit(normalisation<Scalar, decltype(group), decltype(parameter)>(x, static_cast<std::size_t>(view.outer), call.number("eps", 1e-5), group, parameter));
}

/// As above for a batch norm: of each channel, by its own moments in training, else by given ones.
template <class Scalar, class Visitor>
auto with_batch_norm(kernel_call const& call, tensor_view<Scalar> operands, Visitor&& visit) {
    auto const& x = *operands[0];
    axis_view const view(x.dims, 1);
    auto const parameter = [view](extent n) { return n / view.inner % view.size; };
    auto const group = [view](extent n) { return static_cast<std::size_t>(n / view.inner % view.size); };
    using norm = normalisation<Scalar, decltype(group), decltype(parameter)>;
    double const eps = call.number("eps", 1e-5);
    auto const mean = call.operand("running_mean"), variance = call.operand("running_var");
    if (call.flag("training")) return visit(norm(x, static_cast<std::size_t>(view.size), eps, group, parameter));
    if (!mean || !variance) call.fail("has no running moments");
    return visit(norm(x, operands[*mean]->data, operands[*variance]->data, eps, group, parameter));
}

template <class Scalar, class With>
operator_kernel<Scalar> norm_kernel(With with) {
    auto const at = [](tensor_view<Scalar> x, std::optional<std::size_t> k) { return k ? x[*k] : nullptr; };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                norm_operands const extra(call);
                return {with(call, x, [&](auto const& norm) { return norm.forward(at(x, extra.weight), at(x, extra.bias)); })};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                norm_operands const extra(call);
                gradients<Scalar> result(x.size());
                for (auto k : {extra.weight, extra.bias})
                    if (k) result[*k] = dense_tensor<Scalar>(x[*k]->dims);
                auto const to = [&](std::optional<std::size_t> k) { return k ? &*result[*k] : nullptr; };
                result[0] = with(call, x, [&](auto const& norm) { return norm.backward(*g[0], at(x, extra.weight), to(extra.weight), to(extra.bias)); });
                return result;
            }};
}

template <class Scalar>
void add_pointwise_kernels(kernel_table<Scalar>& table) {
    auto const sigmoid = [](Scalar x) { return 1 / (1 + std::exp(-x)); };
    table["relu"] = elementwise<Scalar>([](Scalar x) { return x > 0 ? x : Scalar(0); }, [](Scalar x, Scalar) { return Scalar(x > 0 ? 1 : 0); });
    table["tanh"] = elementwise<Scalar>([](Scalar x) { return std::tanh(x); }, [](Scalar, Scalar y) { return 1 - y * y; });
    table["sigmoid"] = elementwise<Scalar>(sigmoid, [](Scalar, Scalar y) { return y * (1 - y); });
    table["exp"] = elementwise<Scalar>([](Scalar x) { return std::exp(x); }, [](Scalar, Scalar y) { return y; });
    table["sqrt"] = elementwise<Scalar>([](Scalar x) { return std::sqrt(x); }, [](Scalar, Scalar y) { return 1 / (2 * y); });
    table["log"] = elementwise<Scalar>([](Scalar x) { return std::log(x); }, [](Scalar x, Scalar) { return 1 / x; });
    table["silu"] = elementwise<Scalar>([=](Scalar x) { return x * sigmoid(x); },
                                        [=](Scalar x, Scalar) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); });
    table["gelu"] = gelu<Scalar>();
    table["dropout"] = dropout_kernel<Scalar>();
    table["softmax"] = softmax_kernel<Scalar>(false);
    table["log_softmax"] = softmax_kernel<Scalar>(true);
    table["layer_norm"] = norm_kernel<Scalar>([](kernel_call const& call, tensor_view<Scalar> x, auto&& visit) { return with_layer_norm(call, *x[0], visit); });
    table["batch_norm"] = norm_kernel<Scalar>([](kernel_call const& call, tensor_view<Scalar> x, auto&& visit) { return with_batch_norm(call, x, visit); });
}

} // namespace heddle::detail
