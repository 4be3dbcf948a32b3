// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of softmax and norms: functions of whole rows; a rank may hold parts of them.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <limits>

namespace heddle::detail {

/// Computes a number for each line of an axis from its elements: from `start`, by `step(number, element's number,
/// line)`. If `call` holds parts of the lines, the number is that of the whole lines.
template <class Scalar, class Step>
std::vector<double> line_statistic(dense_call<Scalar> const& call, std::size_t which, reduction how,
                                   axis_view const& view, double start, Step const& step) {
    std::vector<double> rows(static_cast<std::size_t>(view.lines()), start);
    view.for_each_line([&](extent first, extent line) {
        auto& row = rows[static_cast<std::size_t>(line)];
        for (extent n = first; n < first + view.size * view.inner; n += view.inner)
            row = step(row, n, static_cast<std::size_t>(line));
    });
    combine(call, which, how, rows);
    return rows;
}

/// Softmax over lines of an axis, or its logarithm.
template <class Scalar>
dense_tensor<Scalar> softmax_of(dense_call<Scalar> const& call, dense_tensor<Scalar> x, axis_view const& view,
                                bool logarithm) {
    auto const largest =
        line_statistic(call, 0, reduction::maximum, view, -std::numeric_limits<double>::infinity(),
                       [&](double row, extent n, std::size_t) { return std::max(row, static_cast<double>(x[n])); });
    auto const sum = line_statistic(call, 1, reduction::sum, view, 0, [&](double row, extent n, std::size_t line) {
        return row + std::exp(x[n] - largest[line]);
    });
    view.for_each_line([&](extent first, extent number) {
        auto const line = static_cast<std::size_t>(number);
        for (extent n = first; n < first + view.size * view.inner; n += view.inner)
            x[n] = static_cast<Scalar>(logarithm ? x[n] - largest[line] - std::log(sum[line])
                                                 : std::exp(x[n] - largest[line]) / sum[line]);
    });
    return x;
}

/// Returns the operand's cotangent, from the result and the result's cotangent.
template <class Scalar>
dense_tensor<Scalar> softmax_adjoint(dense_call<Scalar> const& call, dense_tensor<Scalar> const& y,
                                     dense_tensor<Scalar> g, axis_view const& view, bool logarithm) {
    auto const sum = line_statistic(call, 2, reduction::sum, view, 0, [&](double row, extent n, std::size_t) {
        return row + (logarithm ? g[n] : g[n] * y[n]);
    });
    view.for_each_line([&](extent first, extent line) {
        auto const of_line = static_cast<Scalar>(sum[static_cast<std::size_t>(line)]);
        for (extent n = first; n < first + view.size * view.inner; n += view.inner)
            g[n] = logarithm ? g[n] - std::exp(y[n]) * of_line : y[n] * (g[n] - of_line);
    });
    return g;
}

template <class Scalar>
operator_kernel<Scalar> softmax_kernel(bool logarithm) {
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                return {softmax_of(call, *x[0], axis_view(x[0]->dims, axis_of(call)), logarithm)};
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar>, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                return only(softmax_adjoint(call, *y[0], *g[0], axis_view(g[0]->dims, axis_of(call)), logarithm));
            }};
}

/// How a norm sees its first operand, dimension by dimension.
struct norm_shape {
    /// The number of equal runs in which a dimension is normalised; zero if each of its places has rows of its own.
    std::vector<extent> runs;
    /// Tells whether weight and bias have the dimension.
    std::vector<bool> scaled;

    explicit norm_shape(std::size_t rank) : runs(rank), scaled(rank) {}
};

/// The row with which each element of a part is normalised, and where its weight is.
struct norm_places {
    std::vector<std::size_t> row{0}, parameter{0};
    std::size_t rows = 1;
    /// The number of elements of each row; if ranks combine rows, of the whole row.
    std::vector<double> size;

    template <class Scalar>
    norm_places(dense_call<Scalar> const& call, norm_shape const& norm) {
        tensor_shape const whole = call.whole_shape(call.rule->operands[0]), held = call.operand_shape(0);
        double complete = 1;
        for (std::size_t d = 0; d < whole.size(); ++d) {
            std::vector<std::size_t> next_row, next_parameter;
            auto const& positions = call.operands[0][d];
            auto const runs = static_cast<std::size_t>(norm.runs[d] == 0 ? held[d] : norm.runs[d]);
            for (std::size_t n = 0; n < row.size(); ++n)
                for (extent p = 0; p < held[d]; ++p) {
                    extent const at = positions ? (*positions)[static_cast<std::size_t>(p)] : p;
                    next_row.push_back(row[n] * runs +
                                       static_cast<std::size_t>(norm.runs[d] == 0 ? p : at * norm.runs[d] / whole[d]));
                    next_parameter.push_back(norm.scaled[d] ? parameter[n] * static_cast<std::size_t>(held[d]) +
                                                                  static_cast<std::size_t>(p)
                                                            : parameter[n]);
                }
            row = std::move(next_row);
            parameter = std::move(next_parameter);
            rows *= runs;
            if (norm.runs[d] > 0) complete *= static_cast<double>(whole[d] / norm.runs[d]);
        }
        size.assign(rows, call.combine ? complete : 0.0);
        if (!call.combine)
            for (auto r : row) ++size[r];
    }
};

/// Computes (x - mean) / deviation of each row, or x / root mean square; then multiplies by a weight and adds a bias,
/// if there are any.
template <class Scalar>
class normalisation {
public:
    /// Normalises by the rows' own moments.
    normalisation(dense_call<Scalar> const& call, dense_tensor<Scalar> const& x, norm_places const& places,
                  bool centred)
        : call_(call), x_(x), places_(places), centred_(centred), mean_(places.rows), scale_(places.rows) {
        if (centred) mean_ = mean_of(0, [&](std::size_t n) { return x.data[n]; });
        auto const variance =
            mean_of(centred ? 1 : 0, [&](std::size_t n) { return square(x.data[n] - mean_[places.row[n]]); });
        set_scale(variance);
    }
    /// Normalises by given moments.
    normalisation(dense_call<Scalar> const& call, dense_tensor<Scalar> const& x, norm_places const& places,
                  std::vector<Scalar> mean, std::vector<Scalar> const& variance)
        : call_(call), x_(x), places_(places), fixed_(true), mean_(std::move(mean)), scale_(places.rows) {
        set_scale(variance);
    }

    [[nodiscard]] dense_tensor<Scalar> forward(dense_tensor<Scalar> const* weight,
                                               dense_tensor<Scalar> const* bias) const {
        dense_tensor<Scalar> y(x_.dims);
        for (std::size_t n = 0; n < y.data.size(); ++n) {
            auto const p = places_.parameter[n];
            y.data[n] = normal(n) * (weight ? weight->data[p] : 1) + (bias ? bias->data[p] : 0);
        }
        return y;
    }
    /// Returns the operand's cotangent; adds those of weight and bias to what is given for them.
    [[nodiscard]] dense_tensor<Scalar> backward(dense_tensor<Scalar> const& g, dense_tensor<Scalar> const* weight,
                                                dense_tensor<Scalar>* to_weight, dense_tensor<Scalar>* to_bias) const {
        dense_tensor<Scalar> dx(x_.dims);
        for (std::size_t n = 0; n < dx.data.size(); ++n) {
            auto const p = places_.parameter[n];
            if (to_weight) to_weight->data[p] += g.data[n] * normal(n);
            if (to_bias) to_bias->data[p] += g.data[n];
            dx.data[n] = g.data[n] * (weight ? weight->data[p] : 1);
        }
        std::vector<Scalar> sum(places_.rows), product(places_.rows);
        if (!fixed_ && centred_) sum = mean_of(2, [&](std::size_t n) { return dx.data[n]; });
        if (!fixed_) product = mean_of(centred_ ? 3 : 1, [&](std::size_t n) { return dx.data[n] * normal(n); });
        for (std::size_t n = 0; n < dx.data.size(); ++n) {
            auto const k = places_.row[n];
            dx.data[n] = scale_[k] * (dx.data[n] - sum[k] - normal(n) * product[k]);
        }
        return dx;
    }

private:
    static Scalar square(Scalar x) { return x * x; }
    [[nodiscard]] Scalar normal(std::size_t n) const {
        return (x_.data[n] - mean_[places_.row[n]]) * scale_[places_.row[n]];
    }

    template <class Value>
    [[nodiscard]] std::vector<Scalar> mean_of(std::size_t which, Value const& value) const {
        std::vector<double> sums(places_.rows);
        for (std::size_t n = 0; n < x_.data.size(); ++n) sums[places_.row[n]] += value(n);
        combine(call_, which, reduction::sum, sums);
        std::vector<Scalar> means;
        for (std::size_t r = 0; r < sums.size(); ++r)
            means.push_back(static_cast<Scalar>(sums[r] / std::max(places_.size[r], 1.0)));
        return means;
    }
    void set_scale(std::vector<Scalar> const& variance) {
        for (std::size_t k = 0; k < scale_.size(); ++k)
            scale_[k] = 1 / std::sqrt(variance[k] + static_cast<Scalar>(call_.number("eps", 1e-5)));
    }

    dense_call<Scalar> const& call_;
    dense_tensor<Scalar> const& x_;
    norm_places const& places_;
    bool centred_ = true, fixed_ = false;
    std::vector<Scalar> mean_, scale_;
};

/// The weight and bias of a norm. In a call without attributes they are operands 1 and 2.
struct norm_operands {
    std::optional<std::size_t> weight, bias;

    explicit norm_operands(kernel_call const& call) : weight(call.operand("weight")), bias(call.operand("bias")) {
        if (!call.attributes->empty()) return;
        if (call.operands.size() > 1) weight = 1;
        if (call.operands.size() > 2) bias = 2;
    }
};

/// Returns the shape of a norm of the last dimensions: as many as the call says, or its weight has, or its rule does
/// more than split.
[[nodiscard]] inline norm_shape trailing_norm_shape(kernel_call const& call) {
    auto const& access = call.rule->operands[0];
    std::size_t first = access.size();
    auto const is_split = [&](indexed_dimension const& d) {
        return !d.empty() && call.rule->indices[d[0]].kind != index_kind::blocked &&
               call.rule->indices[d[0]].forward_statistics == 0;
    };
    if (call.has("normalised")) first -= static_cast<std::size_t>(call.number("normalised", 0));
    else if (call.operands.size() > 1) first -= call.operands[1].size();
    else
        while (first > 0 && !is_split(access[first - 1])) --first;
    norm_shape norm(access.size());
    for (std::size_t d = first; d < access.size(); ++d) {
        norm.runs[d] = 1;
        norm.scaled[d] = true;
    }
    return norm;
}

/// Returns the shape of a norm of everything but the channels, and perhaps the samples; channels form this many groups,
/// or each is by itself.
[[nodiscard]] inline norm_shape channel_norm_shape(kernel_call const& call, bool of_samples, extent groups) {
    norm_shape norm(call.operands[0].size());
    for (std::size_t d = 2; d < norm.runs.size(); ++d) norm.runs[d] = 1;
    norm.runs[0] = of_samples ? 1 : 0;
    norm.runs[1] = groups;
    norm.scaled[1] = true;
    return norm;
}

/// A norm whose shape is `shape_of(call)`. Running moments are used if they are operands and the norm is not in
/// training.
template <class Scalar>
operator_kernel<Scalar> norm_kernel(std::function<norm_shape(kernel_call const&)> shape_of, bool centred = true) {
    auto const with = [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, auto const& visit) {
        norm_places const places(call, shape_of(call));
        if (call.flag("training", true)) return visit(normalisation<Scalar>(call, *x[0], places, centred));
        auto const mean = call.operand("running_mean"), variance = call.operand("running_var");
        if (!mean || !variance) call.fail("has no running moments");
        return visit(normalisation<Scalar>(call, *x[0], places, x[*mean]->data, x[*variance]->data));
    };
    auto const at = [](tensor_view<Scalar> x, std::optional<std::size_t> k) { return k ? x[*k] : nullptr; };
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                norm_operands const extra(call);
                return {with(call, x,
                             [&](auto const& norm) { return norm.forward(at(x, extra.weight), at(x, extra.bias)); })};
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                norm_operands const extra(call);
                gradients<Scalar> result(x.size());
                for (auto k : {extra.weight, extra.bias})
                    if (k) result[*k] = dense_tensor<Scalar>(x[*k]->dims);
                auto const to = [&](std::optional<std::size_t> k) { return k ? &*result[*k] : nullptr; };
                result[0] = with(call, x, [&](auto const& norm) {
                    return norm.backward(*g[0], at(x, extra.weight), to(extra.weight), to(extra.bias));
                });
                return result;
            }};
}

template <class Scalar>
void add_norm_kernels(kernel_table<Scalar>& table) {
    table["softmax"] = softmax_kernel<Scalar>(false);
    table["log_softmax"] = softmax_kernel<Scalar>(true);
    table["layer_norm"] = norm_kernel<Scalar>(trailing_norm_shape);
    table["rms_norm"] = norm_kernel<Scalar>(trailing_norm_shape, false);
    table["batch_norm"] =
        norm_kernel<Scalar>([](kernel_call const& call) { return channel_norm_shape(call, true, 0); });
    table["instance_norm"] =
        norm_kernel<Scalar>([](kernel_call const& call) { return channel_norm_shape(call, false, 0); });
    table["group_norm"] = norm_kernel<Scalar>([](kernel_call const& call) {
        return channel_norm_shape(call, false, static_cast<extent>(call.number("groups", 1)));
    });
}

} // namespace heddle::detail
