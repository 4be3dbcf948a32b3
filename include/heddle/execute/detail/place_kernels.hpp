// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that move or drop elements by their places.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/linear_kernels.hpp>
#include <heddle/execute/detail/pointwise_kernels.hpp>
#include <heddle/execute/detail/reduction_kernels.hpp>

namespace heddle::detail {

/// For each dimension, the place of the operand that each place of the result copies; -1 if it copies none.
using place_maps = std::vector<std::vector<extent>>;

/// Calls `visit(from, to)` for each element that is copied, and `visit(-1, to)` for each that is not.
template <class Visitor>
void for_each_mapped(kernel_call const& call, tensor_shape const& from, place_maps const& maps, Visitor&& visit) {
    std::vector<extent> sources{0};
    for (std::size_t d = 0; d < maps.size(); ++d) {
        for (auto place : maps[d])
            if (place >= from[d])
                call.fail("copies place " + std::to_string(place) + " of " + std::to_string(from[d]) +
                          " in dimension " + std::to_string(d));
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
[[nodiscard]] inline place_maps identity_maps(tensor_shape const& dims) {
    place_maps maps;
    for (extent size : dims) maps.push_back(every_place(size));
    return maps;
}

/// Copies by `maps_of(call, operand, result)`. Places of the result that copy nothing get the attribute `value`.
template <class Scalar, class Maps>
operator_kernel<Scalar> mapped_kernel(Maps maps_of) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0), static_cast<Scalar>(call.number("value", 0)));
                for_each_mapped(call, x[0]->dims, maps_of(call, x[0]->dims, y.dims), [&](extent from, extent to) {
                    if (from >= 0) y[to] = (*x[0])[from];
                });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_mapped(call, dx.dims, maps_of(call, dx.dims, g[0]->dims), [&](extent from, extent to) {
                    if (from >= 0) dx[from] += (*g[0])[to];
                });
                return only(std::move(dx));
            }};
}

/// Shifts along dimensions, around the end.
[[nodiscard]] inline place_maps rolled(kernel_call const& call, tensor_shape const& from, tensor_shape const&) {
    auto maps = identity_maps(from);
    auto const dims = call.numbers("dims"), shifts = call.numbers("shifts");
    for (std::size_t k = 0; k < dims.size(); ++k) {
        auto& map = maps[static_cast<std::size_t>(dims[k])];
        auto const size = static_cast<extent>(map.size());
        for (auto& place : map) place = ((place - static_cast<extent>(shifts[k])) % size + size) % size;
    }
    return maps;
}
[[nodiscard]] inline place_maps flipped(kernel_call const& call, tensor_shape const& from, tensor_shape const&) {
    auto maps = identity_maps(from);
    for (auto d : call.numbers("dims")) algorithm::reverse(maps[static_cast<std::size_t>(d)]);
    return maps;
}

enum class padding_mode { constant, reflect, replicate, circular };

/// Pads by the attribute `pad`, which has the numbers of elements before and after each dimension; negative ones cut.
[[nodiscard]] inline place_maps padded(kernel_call const& call, tensor_shape const& from, tensor_shape const& to) {
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

/// Returns the slices of a tensor along an axis, one after the other.
template <class Scalar>
operator_kernel<Scalar> unbinding() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) {
                tensors<Scalar> result;
                axis_view const view(x[0]->dims, axis_of(call));
                if (view.size != static_cast<extent>(call.results.size()))
                    call.fail("has " + std::to_string(call.results.size()) + " results, expected " +
                              std::to_string(view.size));
                for (std::size_t r = 0; r < call.results.size(); ++r) {
                    auto& y = result.emplace_back(call.result_shape(r));
                    view.for_each_line([&](extent first, extent line) {
                        y[line] = (*x[0])[first + static_cast<extent>(r) * view.inner];
                    });
                }
                return result;
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                axis_view const view(dx.dims, axis_of(call));
                for (std::size_t r = 0; r < g.size(); ++r)
                    view.for_each_line([&](extent first, extent line) {
                        dx[first + static_cast<extent>(r) * view.inner] = (*g[r])[line];
                    });
                return only(std::move(dx));
            }};
}
template <class Scalar>
operator_kernel<Scalar> stacking() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                axis_view const view(y.dims, axis_of(call));
                for (std::size_t k = 0; k < x.size(); ++k)
                    view.for_each_line([&](extent first, extent line) {
                        y[first + static_cast<extent>(k) * view.inner] = (*x[k])[line];
                    });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                axis_view const view(g[0]->dims, axis_of(call));
                for (std::size_t k = 0; k < x.size(); ++k) {
                    auto& dx = result.emplace_back(dense_tensor<Scalar>(x[k]->dims));
                    view.for_each_line([&](extent first, extent line) {
                        (*dx)[line] = (*g[0])[first + static_cast<extent>(k) * view.inner];
                    });
                }
                return result;
            }};
}

/// Multiplies half of a dimension by the sigmoid of the other half.
template <class Scalar>
operator_kernel<Scalar> gated_kernel() {
    auto const sigmoid = [](Scalar x) { return 1 / (1 + std::exp(-x)); };
    /// Calls `visit(value, gate, result)` with the numbers of elements.
    auto const for_each_pair = [](kernel_call const& call, tensor_shape const& dims, auto const& visit) {
        axis_view const view(dims, axis_of(call));
        extent const half = view.size / 2;
        for (extent o = 0; o < view.outer; ++o)
            for (extent n = 0; n < half * view.inner; ++n)
                visit(2 * o * half * view.inner + n, (2 * o + 1) * half * view.inner + n, o * half * view.inner + n);
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_pair(call, x[0]->dims, [&](extent value, extent gate, extent to) {
                    y[to] = (*x[0])[value] * sigmoid((*x[0])[gate]);
                });
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

/// Sets one side of a diagonal of the last two dimensions to zero.
template <class Scalar>
operator_kernel<Scalar> triangle_kernel(bool upper) {
    auto const cut = [=](kernel_call const& call, dense_tensor<Scalar> x) {
        tensor_shape const whole = call.whole_shape(call.rule->results[0]);
        auto const numbers = whole_numbers(whole, call.results[0]);
        extent const columns = whole.back(), rows = whole[whole.size() - 2],
                     diagonal = static_cast<extent>(call.number("diagonal", 0));
        for (std::size_t n = 0; n < numbers.size(); ++n) {
            extent const column = numbers[n] % columns, row = numbers[n] / columns % rows;
            if (upper ? column - row < diagonal : column - row > diagonal) x.data[n] = 0;
        }
        return x;
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> { return {cut(call, *x[0])}; },
            [=](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return only(cut(call, *g[0]));
            }};
}

/// Picks the elements at which two dimensions have the same place, up to an offset.
template <class Scalar>
operator_kernel<Scalar> diagonal_kernel() {
    /// Calls `visit(in the operand, in the result)`.
    auto const for_each_place = [](kernel_call const& call, tensor_shape const& dims, extent length,
                                   auto const& visit) {
        auto const row = static_cast<std::size_t>(call.number("dim1", 0)),
                   column = static_cast<std::size_t>(call.number("dim2", 1));
        auto const offset = static_cast<extent>(call.number("offset", 0));
        for (extent n = 0, elements = count_elements(dims); n < elements; ++n) {
            extent place[2]{}, line = 0;
            extent rest = n, stride = elements;
            for (std::size_t d = 0; d < dims.size(); ++d) {
                stride /= dims[d];
                extent const at = rest / stride;
                rest %= stride;
                if (d == row || d == column) place[d == column] = at;
                else line = line * dims[d] + at;
            }
            if (place[1] - place[0] == offset) visit(n, line * length + std::min(place[0], place[1]));
        }
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_place(call, x[0]->dims, y.dims.back(), [&](extent from, extent to) { y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_place(call, dx.dims, g[0]->dims.back(),
                               [&](extent from, extent to) { dx[from] = (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

template <class Scalar>
void add_place_kernels(kernel_table<Scalar>& table) {
    table["roll"] = mapped_kernel<Scalar>(rolled);
    table["flip"] = mapped_kernel<Scalar>(flipped);
    table["pad"] = mapped_kernel<Scalar>(padded);
    table["unbind"] = unbinding<Scalar>();
    table["stack"] = stacking<Scalar>();
    table["glu"] = gated_kernel<Scalar>();
    table["triu"] = triangle_kernel<Scalar>(true);
    table["diagonal"] = diagonal_kernel<Scalar>();
    table["tril"] = triangle_kernel<Scalar>(false);
}

} // namespace heddle::detail
