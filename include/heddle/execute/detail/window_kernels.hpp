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

/// The last dimensions of a tensor, which windows slide over.
[[nodiscard]] inline shape last(shape const& dims, std::size_t count) { return {dims.end() - static_cast<std::ptrdiff_t>(count), dims.end()}; }

[[nodiscard]] inline window_walk pool_walk(kernel_call const& call, shape const& x, shape const& y) {
    auto const sides = call.numbers("kernel_size");
    if (sides.empty()) call.fail("the size of its windows is not known");
    std::size_t const rank = sides.size();
    shape const window(sides.begin(), sides.end());
    return {last(x, rank), last(y, rank), window, sides_of(call, "stride", rank, window), sides_of(call, "padding", rank, shape(rank, 0)),
            sides_of(call, "dilation", rank, shape(rank, 1))};
}

/// For each result of one channel the elements it is made of and their weights.
struct pool_weights {
    extent channel = 0; ///< elements of the operand
    std::vector<std::vector<std::pair<extent, double>>> of;
};

[[nodiscard]] inline pool_weights average_weights(kernel_call const& call, shape const& x, shape const& y) {
    auto const walk = pool_walk(call, x, y);
    pool_weights weights{count_elements(walk.input), {}};
    weights.of.resize(static_cast<std::size_t>(count_elements(walk.output)));
    walk.for_each([&](extent o, extent from, extent) { weights.of[static_cast<std::size_t>(o)].emplace_back(from, 1); });
    std::vector<extent> at(walk.window.size());
    for (std::size_t o = 0; o < weights.of.size(); ++o) {
        window_walk::unravel(static_cast<extent>(o), walk.output, at);
        double divisor = static_cast<double>(weights.of[o].size());
        if (call.has("divisor_override")) divisor = call.number("divisor_override", 1);
        else if (call.flag("count_include_pad", true)) { // a window ends at the far padding
            divisor = 1;
            for (std::size_t d = 0; d < at.size(); ++d) {
                extent const begin = at[d] * walk.stride[d] - walk.padding[d];
                divisor *= static_cast<double>(std::min(begin + walk.window[d], walk.input[d] + walk.padding[d]) - begin);
            }
        }
        for (auto& [from, weight] : weights.of[o]) weight /= divisor;
    }
    return weights;
}

/// Of every combination of what the dimensions give: `along(d, size, results, o)` lists places and weights of result `o`.
template <class Along>
pool_weights product_weights(std::size_t rank, shape const& x, shape const& y, Along const& along) {
    shape const input = last(x, rank), output = last(y, rank);
    pool_weights weights{count_elements(input), {{{0, 1.0}}}};
    for (std::size_t d = 0; d < rank; ++d) {
        std::vector<std::vector<std::pair<extent, double>>> next;
        for (auto const& so_far : weights.of)
            for (extent o = 0; o < output[d]; ++o) {
                auto& combined = next.emplace_back();
                for (auto const& [from, weight] : so_far)
                    for (auto const& [place, factor] : along(input[d], output[d], o)) combined.emplace_back(from * input[d] + place, weight * factor);
            }
        weights.of = std::move(next);
    }
    return weights;
}

/// Windows whose ends are rounded outwards, so that they cover the input.
[[nodiscard]] inline std::pair<extent, extent> adaptive_window(extent size, extent results, extent o) {
    return {o * size / results, ((o + 1) * size + results - 1) / results};
}
[[nodiscard]] inline pool_weights adaptive_weights(kernel_call const& call, shape const& x, shape const& y) {
    return product_weights(static_cast<std::size_t>(call.number("rank", 2)), x, y, [](extent size, extent results, extent o) {
        auto const [begin, end] = adaptive_window(size, results, o);
        std::vector<std::pair<extent, double>> window;
        for (extent i = begin; i < end; ++i) window.emplace_back(i, 1 / static_cast<double>(end - begin));
        return window;
    });
}

/// The nearest element at or before each result's place, or the two around it; with `align_corners` the ends coincide, otherwise the edges.
[[nodiscard]] inline pool_weights resize_weights(kernel_call const& call, shape const& x, shape const& y) {
    bool const linear = call.flag("linear"), corners = call.flag("align_corners");
    return product_weights(static_cast<std::size_t>(call.number("rank", 2)), x, y, [=](extent size, extent results, extent o) {
        using places = std::vector<std::pair<extent, double>>;
        if (!linear) return places{{o * size / results, 1}};
        double const step = corners ? results > 1 ? static_cast<double>(size - 1) / static_cast<double>(results - 1) : 0
                                    : static_cast<double>(size) / static_cast<double>(results);
        double const at = corners ? static_cast<double>(o) * step : std::max(0.0, (static_cast<double>(o) + 0.5) * step - 0.5);
        extent const before = std::min(static_cast<extent>(at), size - 1), after = std::min(before + 1, size - 1);
        double const part = at - static_cast<double>(before);
        return places{{before, 1 - part}, {after, part}};
    });
}

template <class Scalar, class Visitor>
void for_each_weight(pool_weights const& weights, extent results, Visitor&& visit) {
    auto const windows = static_cast<extent>(weights.of.size());
    for (extent n = 0; n < results; ++n)
        for (auto const& [from, weight] : weights.of[static_cast<std::size_t>(n % windows)]) visit(n, n / windows * weights.channel + from, static_cast<Scalar>(weight));
}

template <class Scalar, class Weights>
operator_kernel<Scalar> averaging(Weights weights) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_weight<Scalar>(weights(call, x[0]->dims, y.dims), y.elements(), [&](extent to, extent from, Scalar weight) { y[to] += weight * (*x[0])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_weight<Scalar>(weights(call, dx.dims, call.result_shape(0)), g[0]->elements(),
                                        [&](extent to, extent from, Scalar weight) { dx[from] += weight * (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

/// Where the largest element under each window is: the first of equals. `for_each(visit)` visits (result, element) of one channel.
template <class Scalar, class ForEach>
std::vector<extent> places_of_maxima(kernel_call const& call, dense_tensor<Scalar> const& x, extent results, extent windows, extent channel, ForEach const& for_each) {
    std::vector<extent> places(static_cast<std::size_t>(results), -1);
    for (extent c = 0; windows > 0 && c < results / windows; ++c)
        for_each([&](extent o, extent from) {
            auto& place = places[static_cast<std::size_t>(c * windows + o)];
            if (place < 0 || x[c * channel + from] > x[place]) place = c * channel + from;
        });
    if (std::ranges::find(places, extent{-1}) != places.end()) call.fail("has a window over padding alone");
    return places;
}

template <class Scalar>
std::vector<extent> maxima_of_windows(kernel_call const& call, dense_tensor<Scalar> const& x, shape const& y) {
    auto const walk = pool_walk(call, x.dims, y);
    return places_of_maxima(call, x, count_elements(y), count_elements(walk.output), count_elements(walk.input), [&](auto const& visit) {
        walk.for_each([&](extent o, extent from, extent) { visit(o, from); });
    });
}
template <class Scalar>
std::vector<extent> maxima_of_regions(kernel_call const& call, dense_tensor<Scalar> const& x, shape const& y) {
    auto const weights = adaptive_weights(call, x.dims, y);
    return places_of_maxima(call, x, count_elements(y), static_cast<extent>(weights.of.size()), weights.channel, [&](auto const& visit) {
        for (std::size_t o = 0; o < weights.of.size(); ++o)
            for (auto const& [from, weight] : weights.of[o]) visit(static_cast<extent>(o), from);
    });
}

template <class Scalar, class Places>
operator_kernel<Scalar> max_pool_kernel(Places places_of) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const places = places_of(call, *x[0], y.dims);
                for (std::size_t n = 0; n < places.size(); ++n) y.data[n] = (*x[0])[places[n]];
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                auto const places = places_of(call, *x[0], call.result_shape(0));
                for (std::size_t n = 0; n < places.size(); ++n) dx[places[n]] += g[0]->data[n];
                return only(std::move(dx));
            }};
}

/// A transposed convolution: each element of the operand adds the weights' window times itself to the result.
///
/// Weights are of (groups and input channels, output channels of a group, window).
template <class Scalar>
class transposed_convolution {
public:
    transposed_convolution(kernel_call const& call, tensor_view<Scalar> x, shape const& result) {
        shape const &input = x[0]->dims, &weight = x[1]->dims;
        std::size_t const rank = input.size() - 2;
        walk_ = {last(result, rank), last(input, rank), last(weight, rank), sides_of(call, "stride", rank, shape(rank, 1)),
                 sides_of(call, "padding", rank, shape(rank, 0)), sides_of(call, "dilation", rank, shape(rank, 1))};
        auto const& channels = call.rule->operands[1][0];
        groups_ = channels.size() < 2 ? 1 : held_extents(call)[channels[0]];
        batch_ = input[0];
        in_ = groups_ == 0 ? 0 : weight[0] / groups_;
        out_ = weight[1];
        if (input[1] != weight[0]) call.fail("its input has channels that its weight has not");
    }

    /// Calls `visit(x, w, y)` with the numbers of all elements that a product x * w adds to.
    template <class Visitor>
    void for_each_product(Visitor&& visit) const {
        extent const sources = count_elements(walk_.output), targets = count_elements(walk_.input), places = count_elements(walk_.window);
        walk_.for_each([&](extent from, extent to, extent place) {
            for (extent b = 0; b < batch_; ++b)
                for (extent c = 0; c < groups_ * in_; ++c)
                    for (extent o = 0; o < out_; ++o)
                        visit((b * groups_ * in_ + c) * sources + from, (c * out_ + o) * places + place, ((b * groups_ + c / in_) * out_ + o) * targets + to);
        });
    }
    /// The output channel of a result's element.
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
                for (extent n = 0; x.size() > 2 && n < g[0]->elements(); ++n) (*result[2])[conv.channel(n)] += (*g[0])[n];
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
        table["max_pool" + rank] = max_pool_kernel<Scalar>(maxima_of_windows<Scalar>);
        table["adaptive_max_pool" + rank] = max_pool_kernel<Scalar>(maxima_of_regions<Scalar>);
        table["avg_pool" + rank] = averaging<Scalar>(average_weights);
        table["adaptive_avg_pool" + rank] = averaging<Scalar>(adaptive_weights);
    }
    table["interpolate"] = averaging<Scalar>(resize_weights);
}

} // namespace heddle::detail
