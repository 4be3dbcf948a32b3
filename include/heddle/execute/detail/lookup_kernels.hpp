// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that choose among elements, or move them by places held in a tensor.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/place_kernels.hpp>

namespace heddle::detail {

/// Negative places are counted from the end.
inline void check_place(kernel_call const& call, extent place, extent size) {
    if (place < -size || place >= size)
        call.fail("has index " + std::to_string(place) + " into " + std::to_string(size) + " places");
}

/// Visits the elements (outer, place, inner) at the places that a tensor of indices holds: one index for all
/// (`index_select`), or one for each (`gather`, as many along the axis as the result has). Places are of one dimension,
/// or of several numbered together. It calls `visit(in the tensor, in the picked elements)`.
template <class Index, class Visitor>
void for_each_indexed(kernel_call const& call, tensor_shape const& dims, dense_tensor<Index> const& index,
                      bool for_each_element, Visitor&& visit, std::size_t over = 1) {
    axis_view const view(dims, axis_of(call), over);
    extent const count = !for_each_element ? index.elements() : view.lines() == 0 ? 0 : index.elements() / view.lines();
    for (extent o = 0; o < view.outer; ++o)
        for (extent k = 0; k < count; ++k)
            for (extent i = 0; i < view.inner; ++i) {
                extent const at = (o * count + k) * view.inner + i;
                auto place = static_cast<extent>(index[for_each_element ? at : k]);
                check_place(call, place, view.size);
                if (place < 0) place += view.size;
                visit((o * view.size + place) * view.inner + i, at);
            }
}

/// Returns the places as one number each. The operands after the first hold places of one dimension each, and
/// broadcast.
template <class Scalar>
dense_tensor<extent> joint_places(kernel_call const& call, tensor_view<Scalar> x) {
    tensor_shape joint;
    for (auto const* index : x.subspan(1)) {
        if (index->dims.size() > joint.size()) joint.insert(joint.begin(), index->dims.size() - joint.size(), 1);
        for (std::size_t d = index->dims.size(), j = joint.size(); d > 0; --d, --j)
            if (index->dims[d - 1] != 1) joint[j - 1] = index->dims[d - 1];
    }
    dense_tensor<extent> places(joint);
    for (std::size_t k = 1; k < x.size(); ++k) {
        extent const size = x[0]->dims[axis_of(call) + k - 1];
        auto const from = broadcast_places(call, k, joint);
        for (extent n = 0; n < places.elements(); ++n) {
            auto const place = static_cast<extent>((*x[k])[from[static_cast<std::size_t>(n)]]);
            check_place(call, place, size);
            places[n] = places[n] * size + place + (place < 0 ? size : 0);
        }
    }
    return places;
}

template <class Scalar>
operator_kernel<Scalar> index_kernel(bool for_each_element) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_indexed(
                    call, x[0]->dims, joint_places(call, x), for_each_element,
                    [&](extent from, extent to) { y[to] = (*x[0])[from]; }, x.size() - 1);
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_indexed(
                    call, dx.dims, joint_places(call, x), for_each_element,
                    [&](extent from, extent to) { dx[from] += (*g[0])[to]; }, x.size() - 1);
                return only(std::move(dx), x.size());
            }};
}

/// Calls `visit(in the tensor, in the picked elements)` where a mask of some of the dimensions has ones.
template <class Scalar, class Visitor>
void for_each_unmasked(kernel_call const& call, tensor_shape const& dims, dense_tensor<Scalar> const& mask,
                       extent count, Visitor&& visit) {
    axis_view const view(dims, axis_of(call), mask.dims.size());
    std::vector<extent> places;
    for (extent p = 0; p < view.size; ++p)
        if (mask[p] != 0) places.push_back(p);
    if (static_cast<extent>(places.size()) != count)
        call.fail("has a mask of " + std::to_string(places.size()) + " ones, the result has " + std::to_string(count) +
                  " places");
    for (extent o = 0; o < view.outer; ++o)
        for (extent k = 0; k < count; ++k)
            for (extent i = 0; i < view.inner; ++i)
                visit((o * view.size + places[static_cast<std::size_t>(k)]) * view.inner + i,
                      (o * count + k) * view.inner + i);
}
template <class Scalar>
operator_kernel<Scalar> mask_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_unmasked(call, x[0]->dims, *x[1], y.dims[axis_of(call)],
                                  [&](extent from, extent to) { y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_unmasked(call, dx.dims, *x[1], g[0]->dims[axis_of(call)],
                                  [&](extent from, extent to) { dx[from] = (*g[0])[to]; });
                return only(std::move(dx), 2);
            }};
}

/// Runs the kernel that `choose(call, operands)` selects.
template <class Scalar, class Choice>
operator_kernel<Scalar> chosen(Choice choose, std::vector<operator_kernel<Scalar>> kernels) {
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) {
                return kernels[choose(call, x)].forward(call, x);
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                return kernels[choose(call, x)].backward(call, x, y, g);
            }};
}

/// Picks what slices pick of one operand; other operands hold places, or a mask with ones at the places.
template <class Scalar>
operator_kernel<Scalar> slices_or_places() {
    return chosen<Scalar>(
        [](kernel_call const& call, tensor_view<Scalar> x) {
            return x.size() < 2 ? 0U : call.flag("is_mask") ? 2U : 1U;
        },
        {picking<Scalar>(), index_kernel<Scalar>(false), mask_kernel<Scalar>()});
}

/// Sorts the largest or smallest of a dimension, the first of equal ones first; the second result is where they are.
template <class Scalar>
operator_kernel<Scalar> largest_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                tensors<Scalar> y{dense_tensor<Scalar>(call.result_shape(0)),
                                  dense_tensor<Scalar>(call.result_shape(1))};
                axis_view const from(x[0]->dims, axis_of(call));
                extent const count = from.lines() == 0 ? 0 : y[0].elements() / from.lines();
                bool const largest = call.flag("largest", true);
                if (count > from.size)
                    call.fail("takes " + std::to_string(count) + " of " + std::to_string(from.size) + " places");
                from.for_each_line([&](extent first, extent line) {
                    auto places = every_place(from.size);
                    auto const value = [&](extent place) { return (*x[0])[first + place * from.inner]; };
                    algorithm::sort(places, [&](extent a, extent b) {
                        return value(a) == value(b) ? a < b : (value(a) > value(b)) == largest;
                    });
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

/// Finds an extreme of all elements or of dimensions; with a second result for places, of one dimension.
template <class Scalar, class Compare>
operator_kernel<Scalar> extreme_or_places(Compare before) {
    return chosen<Scalar>(
        [](kernel_call const& call, tensor_view<Scalar>) { return call.results.size() > 1 ? 1U : 0U; },
        {extreme_kernel<Scalar>(before), largest_kernel<Scalar>()});
}

/// Finds where the largest or smallest element of a dimension is, or of all elements; of equal ones, the first.
template <class Scalar>
operator_kernel<Scalar> place_kernel(bool largest) {
    return piecewise_constant<Scalar>([=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
        dense_tensor<Scalar> y(call.result_shape(0));
        axis_view const view =
            call.has("dim") ? axis_view(x[0]->dims, axis_of(call)) : axis_view({x[0]->elements()}, 0);
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

/// Sets a one at each place that the operand names, among the classes that are held.
template <class Scalar>
operator_kernel<Scalar> one_hot_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const classes = call.whole_shape(call.rule->results[0]).back();
                auto const& held = call.results[0].back();
                extent const width = y.dims.back();
                for (extent n = 0; n < x[0]->elements(); ++n) {
                    auto const c = static_cast<extent>((*x[0])[n]);
                    if (c < 0 || c >= classes)
                        call.fail("has class " + std::to_string(c) + " of " + std::to_string(classes));
                    for (extent place = 0; place < width; ++place)
                        y[n * width + place] = (held ? (*held)[static_cast<std::size_t>(place)] : place) == c;
                }
                return {std::move(y)};
            },
            [](kernel_call const&, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar>) {
                return gradients<Scalar>(1);
            }};
}

/// Adds elements of the third operand to the first at the places that the second holds.
template <class Scalar>
operator_kernel<Scalar> scatter_kernel(bool for_each_element) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                for_each_indexed(call, y.dims, *x[1], for_each_element,
                                 [&](extent to, extent from) { y[to] += (*x[2])[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(3);
                result[0] = *g[0];
                result[2] = dense_tensor<Scalar>(x[2]->dims);
                for_each_indexed(call, g[0]->dims, *x[1], for_each_element,
                                 [&](extent to, extent from) { (*result[2])[from] = (*g[0])[to]; });
                return result;
            }};
}

/// Replaces elements of the first operand by those of the third, or by the attribute `value`, at the places that the
/// second holds; of equal places the last counts.
template <class Scalar>
operator_kernel<Scalar> replacing_kernel() {
    /// For each element of the result, this is the number of the element that comes there; -1 if none does.
    auto const replaced = [](kernel_call const& call, tensor_view<Scalar> x) {
        std::vector<extent> by(x[0]->data.size(), -1);
        for_each_indexed(call, x[0]->dims, *x[1], true,
                         [&](extent to, extent from) { by[static_cast<std::size_t>(to)] = from; });
        return by;
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                auto const by = replaced(call, x);
                for (std::size_t n = 0; n < by.size(); ++n)
                    if (by[n] >= 0)
                        y.data[n] = x.size() > 2 ? (*x[2])[by[n]] : static_cast<Scalar>(call.number("value", 0));
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(x.size());
                result[0] = *g[0];
                if (x.size() > 2) result[2] = dense_tensor<Scalar>(x[2]->dims);
                auto const by = replaced(call, x);
                for (std::size_t n = 0; n < by.size(); ++n)
                    if (by[n] >= 0) {
                        result[0]->data[n] = 0;
                        if (x.size() > 2) (*result[2])[by[n]] = g[0]->data[n];
                    }
                return result;
            }};
}

/// The first operand with elements of the last at the places that those between hold, of one dimension each: in place
/// of what is there, where of equal places the last counts, or added to it.
template <class Scalar>
operator_kernel<Scalar> putting_kernel() {
    /// Calls `visit(in the tensor, in what is put)`.
    auto const for_each_place = [](kernel_call const& call, tensor_view<Scalar> x, auto const& visit) {
        auto const indexed = x.first(x.size() - 1);
        for_each_indexed(call, x[0]->dims, joint_places(call, indexed), false, visit, indexed.size() - 1);
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                bool const adds = call.flag("accumulate");
                for_each_place(call, x,
                               [&](extent to, extent from) { y[to] = (adds ? y[to] : Scalar(0)) + (*x.back())[from]; });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(x.size());
                result[0] = *g[0];
                auto& dv = result.back().emplace(x.back()->dims);
                bool const adds = call.flag("accumulate");
                std::vector<extent> last(g[0]->data.size(), -1);
                for_each_place(call, x, [&](extent to, extent from) {
                    if (adds) dv[from] = (*g[0])[to];
                    last[static_cast<std::size_t>(to)] = from;
                });
                for (std::size_t to = 0; !adds && to < last.size(); ++to)
                    if (last[to] >= 0) {
                        dv[last[to]] = g[0]->data[to];
                        result[0]->data[to] = 0;
                    }
                return result;
            }};
}

/// Calls `visit(id number, row)` for every id whose row of the table this rank holds.
template <class Scalar, class Visitor>
void for_each_row(kernel_call const& call, tensor_view<Scalar> x, Visitor&& visit) {
    auto const& rows = call.operands[1][0];
    extent const all = call.whole_shape(call.rule->operands[1])[0];
    for (extent n = 0; n < x[0]->elements(); ++n) {
        auto const id = static_cast<extent>((*x[0])[n]);
        if (id < 0 || id >= all) call.fail("looks up row " + std::to_string(id) + " of " + std::to_string(all));
        if (!rows) visit(n, id, id);
        else if (auto const found = algorithm::lower_bound(*rows, id); found != rows->end() && *found == id)
            visit(n, id, found - rows->begin());
    }
}

/// Ids outside a part of the table give zeros: the result is a summand. The row `padding_idx` has no gradient.
template <class Scalar>
operator_kernel<Scalar> embedding_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const width = x[1]->dims[1];
                for_each_row(call, x, [&](extent n, extent, extent row) {
                    std::copy_n(x[1]->data.begin() + row * width, width, y.data.begin() + n * width);
                });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(2);
                result[1] = dense_tensor<Scalar>(x[1]->dims);
                extent const width = x[1]->dims[1], padding = static_cast<extent>(call.number("padding_idx", -1));
                for_each_row(call, x, [&](extent n, extent id, extent row) {
                    for (extent w = 0; id != padding && w < width; ++w)
                        (*result[1])[row * width + w] += (*g[0])[n * width + w];
                });
                return result;
            }};
}

/// Sums of each line's rows, times an operand's factors, or means; the row `padding_idx` does not count. Lines are rows
/// of ids, or runs that begin where an operand says. Ids outside a part of the table give zeros.
template <class Scalar>
operator_kernel<Scalar> embedding_bag_kernel() {
    /// Calls `visit(id number, line, row, factor)` for every id whose row counts and is held, line by line.
    auto const for_each_summand = [](kernel_call const& call, tensor_view<Scalar> x, auto const& visit) {
        extent const padding = static_cast<extent>(call.number("padding_idx", -1)), ids = x[0]->elements();
        std::vector<extent> rows(static_cast<std::size_t>(ids), -1);
        for_each_row(call, x, [&](extent n, extent id, extent row) {
            if (id != padding) rows[static_cast<std::size_t>(n)] = row;
        });
        auto const begins = call.operand("offsets"), factors = call.operand("factors");
        auto const& held = call.results[0][0];
        for (extent line = 0, lines = call.result_shape(0)[0]; line < lines; ++line) {
            extent first = 0, end = 0;
            if (begins) {
                auto const& at = *x[*begins];
                extent const bag = held ? (*held)[static_cast<std::size_t>(line)] : line;
                auto const begin = [&](extent b) {
                    return b < at.elements() ? std::clamp<extent>(static_cast<extent>(at[b]), 0, ids) : ids;
                };
                first = begin(bag);
                end = begin(bag + 1);
            } else {
                first = line * x[0]->dims[1];
                end = first + x[0]->dims[1];
            }
            Scalar count = 0;
            for (extent n = first; n < end; ++n)
                if (static_cast<extent>((*x[0])[n]) != padding) ++count;
            for (extent n = first; n < end; ++n)
                if (extent const row = rows[static_cast<std::size_t>(n)]; row >= 0)
                    visit(n, line, row, factors ? (*x[*factors])[n] : call.flag("is_mean") ? 1 / count : Scalar(1));
        }
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const width = x[1]->dims[1];
                for_each_summand(call, x, [&](extent, extent line, extent row, Scalar factor) {
                    for (extent w = 0; w < width; ++w) y[line * width + w] += factor * (*x[1])[row * width + w];
                });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(x.size());
                auto const factors = call.operand("factors");
                result[1] = dense_tensor<Scalar>(x[1]->dims);
                if (factors) result[*factors] = dense_tensor<Scalar>(x[*factors]->dims);
                extent const width = x[1]->dims[1];
                for_each_summand(call, x, [&](extent n, extent line, extent row, Scalar factor) {
                    for (extent w = 0; w < width; ++w) {
                        Scalar const cotangent = (*g[0])[line * width + w];
                        (*result[1])[row * width + w] += factor * cotangent;
                        if (factors) (*result[*factors])[n] += cotangent * (*x[1])[row * width + w];
                    }
                });
                return result;
            }};
}

template <class Scalar>
void add_lookup_kernels(kernel_table<Scalar>& table) {
    table["embedding"] = embedding_kernel<Scalar>();
    table["embedding_bag"] = embedding_bag_kernel<Scalar>();
    table["getitem"] = table["index"] = slices_or_places<Scalar>();
    table["topk"] = largest_kernel<Scalar>();
    table["argmax"] = place_kernel<Scalar>(true);
    table["argmin"] = place_kernel<Scalar>(false);
    table["max"] = extreme_or_places<Scalar>(std::ranges::greater{});
    table["min"] = extreme_or_places<Scalar>(std::ranges::less{});
    table["one_hot"] = one_hot_kernel<Scalar>();
    table["index_select"] = index_kernel<Scalar>(false);
    table["gather"] = index_kernel<Scalar>(true);
    table["index_add"] = scatter_kernel<Scalar>(false);
    table["scatter_add"] = scatter_kernel<Scalar>(true);
    table["scatter"] = replacing_kernel<Scalar>();
    table["index_put"] = putting_kernel<Scalar>();
}

} // namespace heddle::detail
