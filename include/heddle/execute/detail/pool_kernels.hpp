// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of pools and of resizing.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/window_kernels.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace heddle::detail {

[[nodiscard]] inline window_walk pool_walk(kernel_call const& call, tensor_shape const& x, tensor_shape const& y) {
    auto const sides = call.numbers("kernel_size");
    if (sides.empty()) call.fail("the size of its windows is not known");
    std::size_t const rank = sides.size();
    tensor_shape const window(sides.begin(), sides.end());
    return {last(x, rank),
            last(y, rank),
            window,
            sides_of(call, "stride", rank, window),
            sides_of(call, "padding", rank, tensor_shape(rank, 0)),
            sides_of(call, "dilation", rank, tensor_shape(rank, 1))};
}

/// For each result of one channel, the elements of which it is made and their weights.
struct pool_weights {
    extent channel = 0; ///< elements of the operand
    std::vector<std::vector<std::pair<extent, double>>> of;
};

[[nodiscard]] inline pool_weights average_weights(kernel_call const& call, tensor_shape const& x,
                                                  tensor_shape const& y) {
    auto const walk = pool_walk(call, x, y);
    pool_weights weights{count_elements(walk.input), {}};
    weights.of.resize(static_cast<std::size_t>(count_elements(walk.output)));
    walk.for_each(
        [&](extent o, extent from, extent) { weights.of[static_cast<std::size_t>(o)].emplace_back(from, 1); });
    std::vector<extent> at(walk.window.size());
    for (std::size_t o = 0; o < weights.of.size(); ++o) {
        window_walk::unravel(static_cast<extent>(o), walk.output, at);
        double divisor = static_cast<double>(weights.of[o].size());
        if (call.has("divisor_override")) divisor = call.number("divisor_override", 1);
        else if (call.flag("count_include_pad", true)) { // a window ends at the far padding
            divisor = 1;
            for (std::size_t d = 0; d < at.size(); ++d) {
                extent const begin = at[d] * walk.stride[d] - walk.padding[d];
                divisor *=
                    static_cast<double>(std::min(begin + walk.window[d], walk.input[d] + walk.padding[d]) - begin);
            }
        }
        for (auto& [from, weight] : weights.of[o]) weight /= divisor;
    }
    return weights;
}

/// Combines what the dimensions give: `along(d, size, results, o)` lists places and weights of result `o` in dimension
/// `d`.
template <class Along>
pool_weights product_weights(std::size_t rank, tensor_shape const& x, tensor_shape const& y, Along const& along) {
    tensor_shape const input = last(x, rank), output = last(y, rank);
    pool_weights weights{count_elements(input), {{{0, 1.0}}}};
    for (std::size_t d = 0; d < rank; ++d) {
        std::vector<std::vector<std::pair<extent, double>>> next;
        for (auto const& so_far : weights.of)
            for (extent o = 0; o < output[d]; ++o) {
                auto& combined = next.emplace_back();
                for (auto const& [from, weight] : so_far)
                    for (auto const& [place, factor] : along(d, input[d], output[d], o))
                        combined.emplace_back(from * input[d] + place, weight * factor);
            }
        weights.of = std::move(next);
    }
    return weights;
}

/// Returns a window whose ends are rounded outwards, so that the windows cover the input.
[[nodiscard]] inline std::pair<extent, extent> adaptive_window(extent size, extent results, extent o) {
    return {o * size / results, ((o + 1) * size + results - 1) / results};
}
[[nodiscard]] inline pool_weights adaptive_weights(kernel_call const& call, tensor_shape const& x,
                                                   tensor_shape const& y) {
    return product_weights(static_cast<std::size_t>(call.number("rank", 2)), x, y,
                           [](std::size_t, extent size, extent results, extent o) {
                               auto const [begin, end] = adaptive_window(size, results, o);
                               std::vector<std::pair<extent, double>> window;
                               for (extent i = begin; i < end; ++i)
                                   window.emplace_back(i, 1 / static_cast<double>(end - begin));
                               return window;
                           });
}

/// Returns the weights of four neighbours of a place that lies `part` of the way between the middle two, by cubic
/// convolution (Keys 1981) with a = -0.75, as in PyTorch.
[[nodiscard]] inline std::array<double, 4> cubic_weights(double part) {
    constexpr double a = -0.75;
    auto const near = [](double t) { return ((a + 2) * t - (a + 3)) * t * t + 1; };      // up to one away
    auto const far = [](double t) { return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a; }; // from one to two
    return {far(1 + part), near(part), near(1 - part), far(2 - part)};
}

/// Uses the nearest element at or before each result's place, or the two or four elements around it. With
/// `align_corners` the first and last elements coincide, otherwise the edges.
[[nodiscard]] inline pool_weights resize_weights(kernel_call const& call, tensor_shape const& x,
                                                 tensor_shape const& y) {
    auto const neighbours = static_cast<int>(call.number("neighbours", 1));
    bool const corners = call.flag("align_corners");
    auto const factors = call.numbers("factors");
    return product_weights(
        static_cast<std::size_t>(call.number("rank", 2)), x, y,
        [=](std::size_t d, extent size, extent results, extent o) {
            using places = std::vector<std::pair<extent, double>>;
            auto const inside = [&](extent place) { return std::clamp<extent>(place, 0, size - 1); };
            if (neighbours == 1)
                return places{{factors.empty() ? o * size / results
                                               : inside(static_cast<extent>(static_cast<double>(o) / factors.at(d))),
                               1}};
            double const step = corners
                                    ? results > 1 ? static_cast<double>(size - 1) / static_cast<double>(results - 1) : 0
                                : factors.empty() ? static_cast<double>(size) / static_cast<double>(results)
                                                  : 1 / factors.at(d);
            double const at = corners ? static_cast<double>(o) * step : (static_cast<double>(o) + 0.5) * step - 0.5;
            if (neighbours == 2) {
                extent const before = inside(static_cast<extent>(std::max(0.0, at)));
                double const part = std::max(0.0, at) - static_cast<double>(before);
                return places{{before, 1 - part}, {inside(before + 1), part}};
            }
            double const before = std::floor(at);
            places around;
            for (extent k = 0; auto const weight : cubic_weights(at - before))
                around.emplace_back(inside(static_cast<extent>(before) + k++ - 1), weight);
            return around;
        });
}

template <class Scalar, class Visitor>
void for_each_weight(pool_weights const& weights, extent results, Visitor&& visit) {
    auto const windows = static_cast<extent>(weights.of.size());
    for (extent n = 0; n < results; ++n)
        for (auto const& [from, weight] : weights.of[static_cast<std::size_t>(n % windows)])
            visit(n, n / windows * weights.channel + from, static_cast<Scalar>(weight));
}

template <class Scalar, class Weights>
operator_kernel<Scalar> averaging(Weights weights) {
    return {
        [=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
            dense_tensor<Scalar> y(call.result_shape(0));
            for_each_weight<Scalar>(weights(call, x[0]->dims, y.dims), y.elements(),
                                    [&](extent to, extent from, Scalar weight) { y[to] += weight * (*x[0])[from]; });
            return {std::move(y)};
        },
        [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
            dense_tensor<Scalar> dx(x[0]->dims);
            for_each_weight<Scalar>(weights(call, dx.dims, call.result_shape(0)), g[0]->elements(),
                                    [&](extent to, extent from, Scalar weight) { dx[from] += weight * (*g[0])[to]; });
            return only(std::move(dx));
        }};
}

/// Finds where the largest element under each window is, the first of equal ones. `for_each(visit)` visits (result,
/// element) of one channel.
template <class Scalar, class ForEach>
std::vector<extent> places_of_maxima(kernel_call const& call, dense_tensor<Scalar> const& x, extent results,
                                     extent windows, extent channel, ForEach const& for_each) {
    std::vector<extent> places(static_cast<std::size_t>(results), -1);
    for (extent c = 0; windows > 0 && c < results / windows; ++c)
        for_each([&](extent o, extent from) {
            auto& place = places[static_cast<std::size_t>(c * windows + o)];
            if (place < 0 || x[c * channel + from] > x[place]) place = c * channel + from;
        });
    if (algorithm::find(places, extent{-1}) != places.end()) call.fail("has a window over padding alone");
    return places;
}

template <class Scalar>
std::vector<extent> maxima_of_windows(kernel_call const& call, dense_tensor<Scalar> const& x, tensor_shape const& y) {
    auto const walk = pool_walk(call, x.dims, y);
    return places_of_maxima(
        call, x, count_elements(y), count_elements(walk.output), count_elements(walk.input),
        [&](auto const& visit) { walk.for_each([&](extent o, extent from, extent) { visit(o, from); }); });
}
template <class Scalar>
std::vector<extent> maxima_of_regions(kernel_call const& call, dense_tensor<Scalar> const& x, tensor_shape const& y) {
    auto const weights = adaptive_weights(call, x.dims, y);
    return places_of_maxima(call, x, count_elements(y), static_cast<extent>(weights.of.size()), weights.channel,
                            [&](auto const& visit) {
                                for (std::size_t o = 0; o < weights.of.size(); ++o)
                                    for (auto const& [from, weight] : weights.of[o])
                                        visit(static_cast<extent>(o), from);
                            });
}

template <class Scalar, class Places>
operator_kernel<Scalar> max_pool_kernel(Places places_of) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const places = places_of(call, *x[0], y.dims);
                for (std::size_t n = 0; n < places.size(); ++n) y.data[n] = (*x[0])[places[n]];
                if (call.results.size() < 2) return {std::move(y)};
                auto at = y; // numbers within a channel
                tensor_shape const channel = last(x[0]->dims, static_cast<std::size_t>(call.number("rank", 2)));
                for (std::size_t n = 0; n < places.size(); ++n)
                    at.data[n] = static_cast<Scalar>(places[n] % count_elements(channel));
                return {std::move(y), std::move(at)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                auto const places = places_of(call, *x[0], call.result_shape(0));
                for (std::size_t n = 0; n < places.size(); ++n) dx[places[n]] += g[0]->data[n];
                return only(std::move(dx));
            }};
}

template <class Scalar>
void add_pool_kernels(kernel_table<Scalar>& table) {
    for (std::string const rank : {"1d", "2d", "3d"}) {
        table["max_pool" + rank] = max_pool_kernel<Scalar>(maxima_of_windows<Scalar>);
        table["adaptive_max_pool" + rank] = max_pool_kernel<Scalar>(maxima_of_regions<Scalar>);
        table["avg_pool" + rank] = averaging<Scalar>(average_weights);
        table["adaptive_avg_pool" + rank] = averaging<Scalar>(adaptive_weights);
    }
    table["interpolate"] = averaging<Scalar>(resize_weights);
}

} // namespace heddle::detail
