// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of convolutions, and windows that slide.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <tuple>
#include <utility>

namespace heddle::detail {

/// Returns a number for each side of a window, from an attribute.
[[nodiscard]] inline std::vector<extent> sides_of(kernel_call const& call, std::string const& name, std::size_t rank,
                                                  std::vector<extent> absent) {
    auto const values = call.numbers(name);
    if (values.empty()) return absent;
    if (values.size() != rank) call.fail("'" + name + "' has another number of sides than the window");
    return {values.begin(), values.end()};
}

/// Windows sliding over the last dimensions of a tensor.
struct window_walk {
    tensor_shape input, output, window;
    std::vector<extent> stride, padding, dilation;

    /// Calls `visit(output, input, place)` for each element under each window, numbered within one channel
    /// and within the window; padding is left out.
    template <class Visitor>
    void for_each(Visitor&& visit) const {
        std::size_t const rank = window.size();
        std::vector<extent> out(rank), at(rank);
        extent const outputs = count_elements(output), places = count_elements(window);
        for (extent o = 0; o < outputs; ++o) {
            unravel(o, output, out);
            for (extent w = 0; w < places; ++w) {
                unravel(w, window, at);
                extent from = 0;
                bool inside = true;
                for (std::size_t d = 0; d < rank; ++d) {
                    extent const p = out[d] * stride[d] - padding[d] + at[d] * dilation[d];
                    inside &= p >= 0 && p < input[d];
                    from = from * input[d] + p;
                }
                if (inside) visit(o, from, w);
            }
        }
    }
    static void unravel(extent n, tensor_shape const& dims, std::vector<extent>& at) {
        for (std::size_t d = dims.size(); d-- > 0; n /= dims[d]) at[d] = n % dims[d];
    }
};

/// Returns the last dimensions of a tensor, over which windows slide.
[[nodiscard]] inline tensor_shape last(tensor_shape const& dims, std::size_t count) {
    return {dims.end() - static_cast<std::ptrdiff_t>(count), dims.end()};
}

/// Returns the samples and channels before `rank` dimensions over which windows slide; there may be no samples.
[[nodiscard]] inline std::pair<extent, extent> samples_and_channels(tensor_shape const& dims, std::size_t rank) {
    return {dims.size() == rank + 2 ? dims[0] : 1, dims[dims.size() - rank - 1]};
}

/// A convolution as products of matrices: for each group, the weights times the elements under all windows.
///
/// Local groups and channels follow from the parts: a group's input channels are those of the weight.
template <class Scalar>
class convolution_of {
public:
    convolution_of(kernel_call const& call, tensor_view<Scalar> x, tensor_shape const& result)
        : walk_(make_walk(call, *x[0], *x[1], result)) {
        auto const& channels = call.rule->operands[1][0];
        groups_ = channels.size() < 2 ? 1 : held_extents(call)[channels[0]];
        extent channels_held = 0;
        std::tie(batch_, channels_held) = samples_and_channels(x[0]->dims, x[1]->dims.size() - 2);
        in_ = x[1]->dims[1];
        out_ = groups_ == 0 ? 0 : x[1]->dims[0] / groups_;
        if (groups_ > 0 && channels_held != groups_ * in_) call.fail("its input has channels that its weight has not");
    }

    void forward(dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight, dense_tensor<Scalar> const* bias,
                 dense_tensor<Scalar>& y) const {
        for_each_group([&](extent b, extent g) {
            auto result = matrix_map<Scalar>(y.data.data() + (b * groups_ + g) * out_ * outputs(), out_, outputs());
            result.noalias() = weights(weight, g) * columns(x, b, g);
            for (extent o = 0; bias && o < out_; ++o) result.row(o).array() += (*bias)[g * out_ + o];
        });
    }
    void backward(dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight,
                  dense_tensor<Scalar> const& cotangent, dense_tensor<Scalar>& dx, dense_tensor<Scalar>& dweight,
                  dense_tensor<Scalar>* dbias) const {
        for_each_group([&](extent b, extent g) {
            const_matrix_map<Scalar> const dy(cotangent.data.data() + (b * groups_ + g) * out_ * outputs(), out_,
                                              outputs());
            matrix_map<Scalar>(dweight.data.data() + g * out_ * under(), out_, under()).noalias() +=
                dy * columns(x, b, g).transpose();
            for (extent o = 0; dbias && o < out_; ++o) (*dbias)[g * out_ + o] += dy.row(o).sum();
            matrix<Scalar> const spread = weights(weight, g).transpose() * dy;
            for_each_column_element(b, g, [&](extent row, extent column, extent at) { dx[at] += spread(row, column); });
        });
    }

private:
    static window_walk make_walk(kernel_call const& call, dense_tensor<Scalar> const& x,
                                 dense_tensor<Scalar> const& weight, tensor_shape const& result) {
        std::size_t const rank = weight.dims.size() - 2;
        std::vector<extent> const ones(rank, 1), zeros(rank, 0);
        return {last(x.dims, rank),
                last(result, rank),
                last(weight.dims, rank),
                sides_of(call, "stride", rank, ones),
                sides_of(call, "padding", rank, zeros),
                sides_of(call, "dilation", rank, ones)};
    }
    [[nodiscard]] extent outputs() const { return count_elements(walk_.output); }
    [[nodiscard]] extent under() const { return in_ * count_elements(walk_.window); }
    [[nodiscard]] const_matrix_map<Scalar> weights(dense_tensor<Scalar> const& weight, extent g) const {
        return {weight.data.data() + g * out_ * under(), out_, under()};
    }
    template <class Visitor>
    void for_each_group(Visitor&& visit) const {
        for (extent b = 0; b < batch_; ++b)
            for (extent g = 0; g < groups_; ++g) visit(b, g);
    }
    template <class Visitor>
    void for_each_column_element(extent b, extent g, Visitor&& visit) const {
        extent const size = count_elements(walk_.input), places = count_elements(walk_.window);
        walk_.for_each([&](extent to, extent from, extent place) {
            for (extent c = 0; c < in_; ++c) visit(c * places + place, to, ((b * groups_ + g) * in_ + c) * size + from);
        });
    }
    [[nodiscard]] matrix<Scalar> columns(dense_tensor<Scalar> const& x, extent b, extent g) const {
        matrix<Scalar> result = matrix<Scalar>::Zero(under(), outputs());
        for_each_column_element(b, g, [&](extent row, extent column, extent at) { result(row, column) = x[at]; });
        return result;
    }

    window_walk walk_;
    extent groups_ = 1, batch_ = 0, in_ = 0, out_ = 0;
};

template <class Scalar>
operator_kernel<Scalar> convolution_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const* bias = x.size() > 2 ? x[2] : nullptr;
                convolution_of<Scalar>(call, x, y.dims).forward(*x[0], *x[1], bias, y);
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                for (auto const* t : x) result.push_back(dense_tensor<Scalar>(t->dims));
                bool const bias = x.size() > 2;
                convolution_of<Scalar>(call, x, call.result_shape(0))
                    .backward(*x[0], *x[1], *g[0], *result[0], *result[1], bias ? &*result[2] : nullptr);
                return result;
            }};
}

/// A transposed convolution: each element of the operand adds the weights' window times itself to the result.
///
/// Weights are (groups and input channels, output channels of a group, window).
template <class Scalar>
class transposed_convolution {
public:
    transposed_convolution(kernel_call const& call, tensor_view<Scalar> x, tensor_shape const& result) {
        tensor_shape const &input = x[0]->dims, &weight = x[1]->dims;
        std::size_t const rank = weight.size() - 2;
        walk_ = {last(result, rank),
                 last(input, rank),
                 last(weight, rank),
                 sides_of(call, "stride", rank, tensor_shape(rank, 1)),
                 sides_of(call, "padding", rank, tensor_shape(rank, 0)),
                 sides_of(call, "dilation", rank, tensor_shape(rank, 1))};
        auto const& channels = call.rule->operands[1][0];
        groups_ = channels.size() < 2 ? 1 : held_extents(call)[channels[0]];
        extent channels_held = 0;
        std::tie(batch_, channels_held) = samples_and_channels(input, rank);
        in_ = groups_ == 0 ? 0 : weight[0] / groups_;
        out_ = weight[1];
        if (channels_held != weight[0]) call.fail("its input has channels that its weight has not");
    }

    /// Calls `visit(x, w, y)` with the numbers of all elements to which a product x * w is added.
    template <class Visitor>
    void for_each_product(Visitor&& visit) const {
        extent const sources = count_elements(walk_.output), targets = count_elements(walk_.input),
                     places = count_elements(walk_.window);
        walk_.for_each([&](extent from, extent to, extent place) {
            for (extent b = 0; b < batch_; ++b)
                for (extent c = 0; c < groups_ * in_; ++c)
                    for (extent o = 0; o < out_; ++o)
                        visit((b * groups_ * in_ + c) * sources + from, (c * out_ + o) * places + place,
                              ((b * groups_ + c / in_) * out_ + o) * targets + to);
        });
    }
    /// Returns the output channel of a result's element.
    [[nodiscard]] extent channel(extent y) const { return y / count_elements(walk_.input) % (groups_ * out_); }

private:
    window_walk walk_;
    extent groups_ = 1, batch_ = 0, in_ = 0, out_ = 0;
};

template <class Scalar>
operator_kernel<Scalar> transposed_convolution_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                transposed_convolution<Scalar> const conv(call, x, y.dims);
                for (extent n = 0; x.size() > 2 && n < y.elements(); ++n) y[n] = (*x[2])[conv.channel(n)];
                conv.for_each_product([&](extent from, extent w, extent to) { y[to] += (*x[0])[from] * (*x[1])[w]; });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                for (auto const* t : x) result.push_back(dense_tensor<Scalar>(t->dims));
                transposed_convolution<Scalar> const conv(call, x, g[0]->dims);
                for (extent n = 0; x.size() > 2 && n < g[0]->elements(); ++n)
                    (*result[2])[conv.channel(n)] += (*g[0])[n];
                conv.for_each_product([&](extent from, extent w, extent to) {
                    (*result[0])[from] += (*g[0])[to] * (*x[1])[w];
                    (*result[1])[w] += (*g[0])[to] * (*x[0])[from];
                });
                return result;
            }};
}

template <class Scalar>
void add_window_kernels(kernel_table<Scalar>& table) {
    for (std::string const rank : {"1d", "2d", "3d"}) {
        table["conv" + rank] = convolution_kernel<Scalar>();
        table["conv_transpose" + rank] = transposed_convolution_kernel<Scalar>();
    }
}

} // namespace heddle::detail
