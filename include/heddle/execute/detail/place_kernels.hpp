// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that move elements by their places, or by places held in a tensor, or choose among elements.
#pragma once

#include <heddle/execute/detail/linear_kernels.hpp>
#include <heddle/execute/detail/pointwise_kernels.hpp>
#include <heddle/execute/detail/reduction_kernels.hpp>

namespace heddle::detail {

/// For each dimension the place of the operand that each place of the result copies; -1 for none.
using place_maps = std::vector<std::vector<extent>>;

/// Calls `visit(from, to)` for each element that is copied, and `visit(-1, to)` for each that is not.
template <class Visitor>
void for_each_mapped(kernel_call const& call, shape const& from, place_maps const& maps, Visitor&& visit) {
    std::vector<extent> sources{0};
    for (std::size_t d = 0; d < maps.size(); ++d) {
        for (auto place : maps[d])
            if (place >= from[d]) call.fail("copies place " + std::to_string(place) + " of " + std::to_string(from[d]) + " in dimension " + std::to_string(d));
        std::vector<extent> next;
        for (auto s : sources)
            for (auto place : maps[d]) next.push_back(s < 0 || place < 0 ? -1 : s * from[d] + place);
        sources = std::move(next);
    }
    for (std::size_t to = 0; to < sources.size(); ++to) visit(sources[to], static_cast<extent>(to));
}

[[nodiscard]] inline std::vector<extent> every_place(extent size) {
    std::vector<extent> places(static_cast<std::size_t>(size));
    for (std::size_t p = 0; p < places.size(); ++p) places[p] = static_cast<extent>(p);
    return places;
}
[[nodiscard]] inline place_maps identity_maps(shape const& dims) {
    place_maps maps;
    for (extent size : dims) maps.push_back(every_place(size));
    return maps;
}

/// Copies by `maps_of(call, operand, result)`; what no place is copied to is the attribute `value`.
template <class Scalar, class Maps>
operator_kernel<Scalar> mapped_kernel(Maps maps_of) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0), static_cast<Scalar>(call.number("value", 0)));
                for_each_mapped(call, x[0]->dims, maps_of(call, x[0]->dims, y.dims), [&](extent from, extent to) { if (from >= 0) y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_mapped(call, dx.dims, maps_of(call, dx.dims, g[0]->dims), [&](extent from, extent to) { if (from >= 0) dx[from] += (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

/// Shifts along dimensions, around the end.
[[nodiscard]] inline place_maps rolled(kernel_call const& call, shape const& from, shape const&) {
    auto maps = identity_maps(from);
    auto const dims = call.numbers("dims"), shifts = call.numbers("shifts");
    for (std::size_t k = 0; k < dims.size(); ++k) {
        auto& map = maps[static_cast<std::size_t>(dims[k])];
        auto const size = static_cast<extent>(map.size());
        for (auto& place : map) place = ((place - static_cast<extent>(shifts[k])) % size + size) % size;
    }
    return maps;
}
[[nodiscard]] inline place_maps flipped(kernel_call const& call, shape const& from, shape const&) {
    auto maps = identity_maps(from);
    for (auto d : call.numbers("dims")) std::ranges::reverse(maps[static_cast<std::size_t>(d)]);
    return maps;
}

enum class padding_mode { constant, reflect, replicate, circular };

/// The attribute `pad` has elements before and after each dimension; negative ones cut.
[[nodiscard]] inline place_maps padded(kernel_call const& call, shape const& from, shape const& to) {
    auto const pad = call.numbers("pad");
    auto const mode = static_cast<padding_mode>(call.number("mode", 0));
    place_maps maps;
    for (std::size_t d = 0; d < from.size(); ++d) {
        extent const before = static_cast<extent>(pad[2 * d]), size = from[d];
        auto& map = maps.emplace_back();
        for (extent p = 0; p < to[d]; ++p) {
            extent place = p - before;
            if (place < 0 || place >= size) switch (mode) {
                case padding_mode::constant: place = -1; break;
                case padding_mode::replicate: place = std::clamp<extent>(place, 0, size - 1); break;
                case padding_mode::circular: place = (place % size + size) % size; break;
                case padding_mode::reflect: place = place < 0 ? -place : 2 * (size - 1) - place; break;
                }
            map.push_back(place);
        }
    }
    return maps;
}

/// The slices of a tensor along an axis, one after the other.
template <class Scalar>
operator_kernel<Scalar> unbinding() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) {
                tensors<Scalar> result;
                axis_view const view(x[0]->dims, axis_of(call));
                if (view.size != static_cast<extent>(call.results.size())) call.fail("has " + std::to_string(call.results.size()) + " results, expected " + std::to_string(view.size));
                for (std::size_t r = 0; r < call.results.size(); ++r) {
                    auto& y = result.emplace_back(call.result_shape(r));
                    view.for_each_line([&](extent first, extent line) { y[line] = (*x[0])[first + static_cast<extent>(r) * view.inner]; });
                }
                return result;
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                axis_view const view(dx.dims, axis_of(call));
                for (std::size_t r = 0; r < g.size(); ++r)
                    view.for_each_line([&](extent first, extent line) { dx[first + static_cast<extent>(r) * view.inner] = (*g[r])[line]; });
                return only(std::move(dx));
            }};
}
template <class Scalar>
operator_kernel<Scalar> stacking() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                axis_view const view(y.dims, axis_of(call));
                for (std::size_t k = 0; k < x.size(); ++k)
                    view.for_each_line([&](extent first, extent line) { y[first + static_cast<extent>(k) * view.inner] = (*x[k])[line]; });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                axis_view const view(g[0]->dims, axis_of(call));
                for (std::size_t k = 0; k < x.size(); ++k) {
                    auto& dx = result.emplace_back(dense_tensor<Scalar>(x[k]->dims));
                    view.for_each_line([&](extent first, extent line) { (*dx)[line] = (*g[0])[first + static_cast<extent>(k) * view.inner]; });
                }
                return result;
            }};
}

/// Elements (outer, place, inner) at the places that a tensor of indices holds: one index for all (`index_select`), or one for each
/// (`gather`, as many along the axis as the result has). Calls `visit(in the tensor, in the picked elements)`.
template <class Scalar, class Visitor>
void for_each_indexed(kernel_call const& call, shape const& dims, dense_tensor<Scalar> const& index, bool for_each_element, Visitor&& visit) {
    axis_view const view(dims, axis_of(call));
    extent const count = !for_each_element ? index.elements() : view.lines() == 0 ? 0 : index.elements() / view.lines();
    for (extent o = 0; o < view.outer; ++o)
        for (extent k = 0; k < count; ++k)
            for (extent i = 0; i < view.inner; ++i) {
                extent const at = (o * count + k) * view.inner + i;
                auto place = static_cast<extent>(index[for_each_element ? at : k]);
                if (place < -view.size || place >= view.size) call.fail("has index " + std::to_string(place) + " into " + std::to_string(view.size) + " places");
                if (place < 0) place += view.size;
                visit((o * view.size + place) * view.inner + i, at);
            }
}

template <class Scalar>
operator_kernel<Scalar> index_kernel(bool for_each_element) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_indexed(call, x[0]->dims, *x[1], for_each_element, [&](extent from, extent to) { y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(2);
                result[0] = dense_tensor<Scalar>(x[0]->dims);
                for_each_indexed(call, x[0]->dims, *x[1], for_each_element, [&](extent from, extent to) { (*result[0])[from] += (*g[0])[to]; });
                return result;
            }};
}

/// Calls `visit(in the tensor, in the picked elements)` for what a mask of some of the dimensions has ones at.
template <class Scalar, class Visitor>
void for_each_unmasked(kernel_call const& call, shape const& dims, dense_tensor<Scalar> const& mask, extent count, Visitor&& visit) {
    axis_view const view(dims, axis_of(call), mask.dims.size());
    std::vector<extent> places;
    for (extent p = 0; p < view.size; ++p)
        if (mask[p] != 0) places.push_back(p);
    if (static_cast<extent>(places.size()) != count) call.fail("has a mask of " + std::to_string(places.size()) + " ones, the result has " + std::to_string(count) + " places");
    for (extent o = 0; o < view.outer; ++o)
        for (extent k = 0; k < count; ++k)
            for (extent i = 0; i < view.inner; ++i) visit((o * view.size + places[static_cast<std::size_t>(k)]) * view.inner + i, (o * count + k) * view.inner + i);
}
template <class Scalar>
operator_kernel<Scalar> mask_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_unmasked(call, x[0]->dims, *x[1], y.dims[axis_of(call)], [&](extent from, extent to) { y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_unmasked(call, dx.dims, *x[1], g[0]->dims[axis_of(call)], [&](extent from, extent to) { dx[from] = (*g[0])[to]; });
                return only(std::move(dx), 2);
            }};
}

/// The kernel that `choose(call, operands)` says.
template <class Scalar, class Choice>
operator_kernel<Scalar> chosen(Choice choose, std::vector<operator_kernel<Scalar>> kernels) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) { return kernels[choose(call, x)].forward(call, x); },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) { return kernels[choose(call, x)].backward(call, x, y, g); }};
}

/// Of one operand what slices pick, with a second one the places that it holds or has ones at.
template <class Scalar>
operator_kernel<Scalar> slices_or_places() {
    return chosen<Scalar>([](kernel_call const& call, tensor_view<Scalar> x) { return x.size() < 2 ? 0U : call.flag("is_mask") ? 2U : 1U; },
                          {picking<Scalar>(), index_kernel<Scalar>(false), mask_kernel<Scalar>()});
}

/// The largest or smallest of a dimension in order, the first of equals first; the second result is where they are.
template <class Scalar>
operator_kernel<Scalar> largest_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                tensors<Scalar> y{dense_tensor<Scalar>(call.result_shape(0)), dense_tensor<Scalar>(call.result_shape(1))};
                axis_view const from(x[0]->dims, axis_of(call));
                extent const count = from.lines() == 0 ? 0 : y[0].elements() / from.lines();
                bool const largest = call.flag("largest", true);
                if (count > from.size) call.fail("takes " + std::to_string(count) + " of " + std::to_string(from.size) + " places");
                from.for_each_line([&](extent first, extent line) {
                    auto places = every_place(from.size);
                    auto const value = [&](extent place) { return (*x[0])[first + place * from.inner]; };
                    std::ranges::sort(places, [&](extent a, extent b) { return value(a) == value(b) ? a < b : (value(a) > value(b)) == largest; });
                    for (extent k = 0; k < count; ++k) {
                        extent const at = (line / from.inner * count + k) * from.inner + line % from.inner;
                        y[0][at] = value(places[static_cast<std::size_t>(k)]);
                        y[1][at] = static_cast<Scalar>(places[static_cast<std::size_t>(k)]);
                    }
                });
                return y;
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_indexed(call, dx.dims, *y[1], true, [&](extent from, extent to) { dx[from] += (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

/// Of all elements or of dimensions; with a second result for places, of one.
template <class Scalar, class Compare>
operator_kernel<Scalar> extreme_or_places(Compare before) {
    return chosen<Scalar>([](kernel_call const& call, tensor_view<Scalar>) { return call.results.size() > 1 ? 1U : 0U; }, {extreme_kernel<Scalar>(before), largest_kernel<Scalar>()});
}

/// Where the largest or smallest of a dimension is, or of all elements; of equals the first.
template <class Scalar>
operator_kernel<Scalar> place_kernel(bool largest) {
    return piecewise_constant<Scalar>([=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
        dense_tensor<Scalar> y(call.result_shape(0));
        axis_view const view = call.has("dim") ? axis_view(x[0]->dims, axis_of(call)) : axis_view({x[0]->elements()}, 0);
        view.for_each_line([&](extent first, extent line) {
            extent best = 0;
            auto const value = [&](extent place) { return (*x[0])[first + place * view.inner]; };
            for (extent place = 1; place < view.size; ++place)
                if (largest ? value(place) > value(best) : value(place) < value(best)) best = place;
            y[line] = static_cast<Scalar>(best);
        });
        return {std::move(y)};
    });
}

/// Half of a dimension times the sigmoid of the other half.
template <class Scalar>
operator_kernel<Scalar> gated_kernel() {
    auto const sigmoid = [](Scalar x) { return 1 / (1 + std::exp(-x)); };
    /// Calls `visit(value, gate, result)`, the numbers of elements.
    auto const for_each_pair = [](kernel_call const& call, shape const& dims, auto const& visit) {
        axis_view const view(dims, axis_of(call));
        extent const half = view.size / 2;
        for (extent o = 0; o < view.outer; ++o)
            for (extent n = 0; n < half * view.inner; ++n) visit(2 * o * half * view.inner + n, (2 * o + 1) * half * view.inner + n, o * half * view.inner + n);
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_pair(call, x[0]->dims, [&](extent value, extent gate, extent to) { y[to] = (*x[0])[value] * sigmoid((*x[0])[gate]); });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_pair(call, dx.dims, [&](extent value, extent gate, extent to) {
                    Scalar const s = sigmoid((*x[0])[gate]);
                    dx[value] = (*g[0])[to] * s;
                    dx[gate] = (*g[0])[to] * (*x[0])[value] * s * (1 - s);
                });
                return only(std::move(dx));
            }};
}

/// A one at each place that the operand names, among the classes that are held.
template <class Scalar>
operator_kernel<Scalar> one_hot_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const classes = call.whole_shape(call.rule->results[0]).back();
                auto const& held = call.results[0].back();
                extent const width = y.dims.back();
                for (extent n = 0; n < x[0]->elements(); ++n) {
                    auto const c = static_cast<extent>((*x[0])[n]);
                    if (c < 0 || c >= classes) call.fail("has class " + std::to_string(c) + " of " + std::to_string(classes));
                    for (extent place = 0; place < width; ++place) y[n * width + place] = (held ? (*held)[static_cast<std::size_t>(place)] : place) == c;
                }
                return {std::move(y)};
            },
            [](kernel_call const&, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar>) { return gradients<Scalar>(1); }};
}

/// The first operand plus elements of the third, added at the places that the second holds.
template <class Scalar>
operator_kernel<Scalar> scatter_kernel(bool for_each_element) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                for_each_indexed(call, y.dims, *x[1], for_each_element, [&](extent to, extent from) { y[to] += (*x[2])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(3);
                result[0] = *g[0];
                result[2] = dense_tensor<Scalar>(x[2]->dims);
                for_each_indexed(call, g[0]->dims, *x[1], for_each_element, [&](extent to, extent from) { (*result[2])[from] = (*g[0])[to]; });
                return result;
            }};
}

/// Zero on one side of a diagonal of the last two dimensions.
template <class Scalar>
operator_kernel<Scalar> triangle_kernel(bool upper) {
    auto const cut = [=](kernel_call const& call, dense_tensor<Scalar> x) {
        shape const whole = call.whole_shape(call.rule->results[0]);
        auto const numbers = whole_numbers(whole, call.results[0]);
        extent const columns = whole.back(), rows = whole[whole.size() - 2], diagonal = static_cast<extent>(call.number("diagonal", 0));
        for (std::size_t n = 0; n < numbers.size(); ++n) {
            extent const column = numbers[n] % columns, row = numbers[n] / columns % rows;
            if (upper ? column - row < diagonal : column - row > diagonal) x.data[n] = 0;
        }
        return x;
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> { return {cut(call, *x[0])}; },
            [=](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar> g) { return only(cut(call, *g[0])); }};
}

template <class Scalar>
void add_place_kernels(kernel_table<Scalar>& table) {
    table["roll"] = mapped_kernel<Scalar>(rolled);
    table["flip"] = mapped_kernel<Scalar>(flipped);
    table["pad"] = mapped_kernel<Scalar>(padded);
    table["unbind"] = unbinding<Scalar>();
    table["stack"] = stacking<Scalar>();
    table["getitem"] = table["index"] = slices_or_places<Scalar>();
    table["topk"] = largest_kernel<Scalar>();
    table["argmax"] = place_kernel<Scalar>(true);
    table["argmin"] = place_kernel<Scalar>(false);
    table["glu"] = gated_kernel<Scalar>();
    table["max"] = extreme_or_places<Scalar>(std::ranges::greater{});
    table["min"] = extreme_or_places<Scalar>(std::ranges::less{});
    table["one_hot"] = one_hot_kernel<Scalar>();
    table["index_select"] = index_kernel<Scalar>(false);
    table["gather"] = index_kernel<Scalar>(true);
    table["index_add"] = scatter_kernel<Scalar>(false);
    table["scatter_add"] = scatter_kernel<Scalar>(true);
    table["triu"] = triangle_kernel<Scalar>(true);
    table["tril"] = triangle_kernel<Scalar>(false);
}

} // namespace heddle::detail
