// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of convolutions and pools.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <limits>

namespace heddle::detail {

/// A number for each side of a window, from an attribute.
[[nodiscard]] inline std::vector<extent> sides_of(kernel_call const& call, std::string const& name, std::size_t rank, std::vector<extent> absent) {
    auto const values = call.numbers(name);
    if (values.empty()) return absent;
    if (values.size() != rank) call.fail("'" + name + "' has another number of sides than the window");
    return {values.begin(), values.end()};
}

/// Windows sliding over the last dimensions of a tensor.
struct window_walk {
    shape input, output, window;
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
    static void unravel(extent n, shape const& dims, std::vector<extent>& at) {
        for (std::size_t d = dims.size(); d-- > 0; n /= dims[d]) at[d] = n % dims[d];
    }
};

/// A convolution as products of matrices: of each group, the weights times the elements under all windows.
///
/// Local groups and channels follow from the parts: a group's input channels are those of the weight.
template <class Scalar>
class convolution_of {
public:
    convolution_of(kernel_call const& call, tensor_view<Scalar> x, shape const& result) : walk_(make_walk(call, *x[0], *x[1], result)) {
        auto const& channels = call.rule->operands[1][0];
        groups_ = channels.size() < 2 ? 1 : held_extents(call)[channels[0]];
        batch_ = x[0]->dims[0];
        in_ = x[1]->dims[1];
        out_ = groups_ == 0 ? 0 : x[1]->dims[0] / groups_;
        if (groups_ > 0 && x[0]->dims[1] != groups_ * in_) call.fail("its input has channels that its weight has not");
    }

    void forward(dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight, dense_tensor<Scalar> const* bias, dense_tensor<Scalar>& y) const {
        for_each_group([&](extent b, extent g) {
            auto result = matrix_map<Scalar>(y.data.data() + (b * groups_ + g) * out_ * outputs(), out_, outputs());
            result.noalias() = weights(weight, g) * columns(x, b, g);
            for (extent o = 0; bias && o < out_; ++o) result.row(o).array() += (*bias)[g * out_ + o];
        });
    }
    void backward(dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight, dense_tensor<Scalar> const& cotangent, dense_tensor<Scalar>& dx,
                  dense_tensor<Scalar>& dweight, dense_tensor<Scalar>* dbias) const {
        for_each_group([&](extent b, extent g) {
            const_matrix_map<Scalar> const dy(cotangent.data.data() + (b * groups_ + g) * out_ * outputs(), out_, outputs());
            matrix_map<Scalar>(dweight.data.data() + g * out_ * under(), out_, under()).noalias() += dy * columns(x, b, g).transpose();
            for (extent o = 0; dbias && o < out_; ++o) (*dbias)[g * out_ + o] += dy.row(o).sum();
            matrix<Scalar> const spread = weights(weight, g).transpose() * dy;
            for_each_column_element(b, g, [&](extent row, extent column, extent at) { dx[at] += spread(row, column); });
        });
    }

private:
    static window_walk make_walk(kernel_call const& call, dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight, shape const& result) {
        std::size_t const rank = x.dims.size() - 2;
        auto const spatial = [](shape const& dims) { return shape(dims.begin() + 2, dims.end()); };
        std::vector<extent> const ones(rank, 1), zeros(rank, 0);
        return {spatial(x.dims), spatial(result), spatial(weight.dims), sides_of(call, "stride", rank, ones),
                sides_of(call, "padding", rank, zeros), sides_of(call, "dilation", rank, ones)};
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
                convolution_of<Scalar>(call, x, call.result_shape(0)).backward(*x[0], *x[1], *g[0], *result[0], *result[1], bias ? &*result[2] : nullptr);
                return result;
            }};
}

/// A pool of windows over the last two dimensions.
[[nodiscard]] inline window_walk pool_walk(kernel_call const& call, shape const& x, shape const& y) {
    auto const last = [](shape const& dims) { return shape(dims.end() - 2, dims.end()); };
    auto const window = sides_of(call, "kernel_size", 2, {});
    if (window.empty()) call.fail("the size of its windows is not known");
    return {last(x), last(y), window, sides_of(call, "stride", 2, window), sides_of(call, "padding", 2, {0, 0}), sides_of(call, "dilation", 2, {1, 1})};
}

/// For each window of one channel the elements under it and their weights.
using pool_weights = std::vector<std::vector<std::pair<extent, double>>>;

[[nodiscard]] inline pool_weights average_weights(kernel_call const& call, shape const& x, shape const& y) {
    auto const walk = pool_walk(call, x, y);
    pool_weights weights(static_cast<std::size_t>(count_elements(walk.output)));
    walk.for_each([&](extent o, extent from, extent) { weights[static_cast<std::size_t>(o)].emplace_back(from, 1); });
    std::vector<extent> at(2);
    for (std::size_t o = 0; o < weights.size(); ++o) {
        window_walk::unravel(static_cast<extent>(o), walk.output, at);
        double divisor = static_cast<double>(weights[o].size());
        if (call.has("divisor_override")) divisor = call.number("divisor_override", 1);
        else if (call.flag("count_include_pad", true)) { // a window ends at the far padding
            divisor = 1;
            for (std::size_t d = 0; d < 2; ++d) {
                extent const begin = at[d] * walk.stride[d] - walk.padding[d];
                divisor *= static_cast<double>(std::min(begin + walk.window[d], walk.input[d] + walk.padding[d]) - begin);
            }
        }
        for (auto& [from, weight] : weights[o]) weight /= divisor;
    }
    return weights;
}

/// Windows whose ends are rounded outwards, so that they cover the input.
[[nodiscard]] inline pool_weights adaptive_weights(kernel_call const&, shape const& x, shape const& y) {
    extent const h = x[x.size() - 2], w = x.back(), rows = y[y.size() - 2], columns = y.back();
    pool_weights weights;
    for (extent r = 0; r < rows; ++r)
        for (extent c = 0; c < columns; ++c) {
            auto& window = weights.emplace_back();
            for (extent i = r * h / rows; i < ((r + 1) * h + rows - 1) / rows; ++i)
                for (extent j = c * w / columns; j < ((c + 1) * w + columns - 1) / columns; ++j) window.emplace_back(i * w + j, 1);
            for (auto& [from, weight] : window) weight = 1 / static_cast<double>(window.size());
        }
    return weights;
}

template <class Scalar, class Visitor>
void for_each_weight(pool_weights const& weights, shape const& x, extent results, Visitor&& visit) {
    extent const size = x[x.size() - 2] * x.back(), windows = static_cast<extent>(weights.size());
    for (extent n = 0; n < results; ++n)
        for (auto const& [from, weight] : weights[static_cast<std::size_t>(n % windows)]) visit(n, n / windows * size + from, static_cast<Scalar>(weight));
}

template <class Scalar, class Weights>
operator_kernel<Scalar> averaging(Weights weights) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_weight<Scalar>(weights(call, x[0]->dims, y.dims), x[0]->dims, y.elements(),
                                        [&](extent to, extent from, Scalar weight) { y[to] += weight * (*x[0])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_weight<Scalar>(weights(call, dx.dims, call.result_shape(0)), dx.dims, g[0]->elements(),
                                        [&](extent to, extent from, Scalar weight) { dx[from] += weight * (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

/// Where the largest element under each window is: the first of equals.
template <class Scalar>
std::vector<extent> places_of_maxima(kernel_call const& call, dense_tensor<Scalar> const& x, shape const& y) {
    auto const walk = pool_walk(call, x.dims, y);
    extent const windows = count_elements(walk.output), size = count_elements(walk.input), channels = windows == 0 ? 0 : count_elements(y) / windows;
    std::vector<extent> places(static_cast<std::size_t>(count_elements(y)), -1);
    for (extent c = 0; c < channels; ++c)
        walk.for_each([&](extent o, extent from, extent) {
            auto& place = places[static_cast<std::size_t>(c * windows + o)];
            if (place < 0 || x[c * size + from] > x[place]) place = c * size + from;
        });
    if (std::ranges::find(places, extent{-1}) != places.end()) call.fail("has a window over padding alone");
    return places;
}

template <class Scalar>
operator_kernel<Scalar> max_pool_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const places = places_of_maxima(call, *x[0], y.dims);
                for (std::size_t n = 0; n < places.size(); ++n) y.data[n] = (*x[0])[places[n]];
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                auto const places = places_of_maxima(call, *x[0], call.result_shape(0));
                for (std::size_t n = 0; n < places.size(); ++n) dx[places[n]] += g[0]->data[n];
                return only(std::move(dx));
            }};
}

template <class Scalar>
void add_window_kernels(kernel_table<Scalar>& table) {
    for (char const* kind : {"conv1d", "conv2d", "conv3d"}) table[kind] = convolution_kernel<Scalar>();
    table["max_pool2d"] = max_pool_kernel<Scalar>();
    table["avg_pool2d"] = averaging<Scalar>(average_weights);
    table["adaptive_avg_pool2d"] = averaging<Scalar>(adaptive_weights);
}

} // namespace heddle::detail
