// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Dense tensors in memory, and cutting them along one factor of a dimension.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

[[nodiscard]] inline extent count_elements(tensor_shape const& dims) {
    return std::accumulate(dims.begin(), dims.end(), extent{1}, std::multiplies<>{});
}

/// A tensor whose elements are in row-major order. Integers and truth values are held as numbers of type `Scalar`. An
/// extent may be zero: then there are no elements.
template <class Scalar>
struct dense_tensor {
    tensor_shape dims;
    std::vector<Scalar> data{Scalar{}};

    dense_tensor() = default;
    explicit dense_tensor(tensor_shape extents, Scalar value = {})
        : dims(std::move(extents)), data(static_cast<std::size_t>(count_elements(dims)), value) {}
    /// *Precondition:* there are as many values as elements.
    dense_tensor(tensor_shape extents, std::vector<Scalar> values) : dims(std::move(extents)), data(std::move(values)) {
        assert(static_cast<extent>(data.size()) == count_elements(dims));
    }

    [[nodiscard]] extent elements() const { return static_cast<extent>(data.size()); }
    [[nodiscard]] Scalar& operator[](extent n) { return data[static_cast<std::size_t>(n)]; }
    [[nodiscard]] Scalar const& operator[](extent n) const { return data[static_cast<std::size_t>(n)]; }

    dense_tensor& operator+=(dense_tensor const& other) {
        assert(dims == other.dims);
        std::ranges::transform(data, other.data, data.begin(), std::plus<>{});
        return *this;
    }
    dense_tensor& operator*=(Scalar scale) {
        for (auto& x : data) x *= scale;
        return *this;
    }

    friend bool operator==(dense_tensor const&, dense_tensor const&) = default;
};

template <class Scalar>
[[nodiscard]] Scalar sum_of_squares(dense_tensor<Scalar> const& x) {
    return std::inner_product(x.data.begin(), x.data.end(), x.data.begin(), Scalar{0});
}

/// The global positions of one dimension that a rank holds, ascending; absent if it holds them all.
using held_positions = std::optional<std::vector<extent>>;

/// Returns the positions of a dimension of `size` whose place within a factor, (position / stride) % extent, is in
/// [begin, begin + count), ascending. If the factor has widths, the place of a position is that within its piece.
[[nodiscard]] std::vector<extent> positions_of(extent size, factor const& f, extent begin, extent count);

/// Returns the shape of the part of a tensor that lies in `count` places of a factor.
[[nodiscard]] tensor_shape part_shape(tensor_shape dims, factor const& f, extent count);

/// Returns a factor of a tensor of which only `count` places of another factor are held.
[[nodiscard]] factor within(factor f, factor const& other, extent count);

namespace detail {

/// Calls `visit(whole, part, length)` for each run of elements that a tensor and its part have in common.
template <class Visitor>
void for_each_run(tensor_shape const& whole, factor const& f, extent begin, extent count, Visitor&& visit) {
    if (count == 0 || count_elements(whole) == 0) return;
    extent inner = 1;
    for (std::size_t d = f.dimension + std::size_t{1}; d < whole.size(); ++d) inner *= whole[d];
    extent const outer = count_elements(whole) / (f.stride * inner * f.extent);
    extent piece = 0, part = 0; // where they begin
    auto const visit_piece = [&](extent width) {
        visit(piece + begin * width * inner, part, count * width * inner);
        piece += f.extent * width * inner;
        part += count * width * inner;
    };
    for (extent o = 0; o < outer; ++o)
        if (f.widths.empty()) visit_piece(f.stride);
        else std::ranges::for_each(f.widths, visit_piece);
}

} // namespace detail

/// Returns the shard of a tensor that holds the places [begin, begin + count) of a factor.
/// *Preconditions.* The factor is one of the tensor's; the range lies within its extent.
template <class Scalar>
[[nodiscard]] dense_tensor<Scalar> take(dense_tensor<Scalar> const& whole, factor const& f, extent begin,
                                        extent count) {
    assert(begin >= 0 && count >= 0 && begin + count <= f.extent);
    dense_tensor<Scalar> part(part_shape(whole.dims, f, count));
    detail::for_each_run(whole.dims, f, begin, count, [&](extent from, extent to, extent length) {
        std::copy_n(whole.data.begin() + from, length, part.data.begin() + to);
    });
    return part;
}

/// Writes a shard back to the places [begin, begin + count) of a factor, which undoes `take`.
/// *Preconditions.* As for `take`; the part has the shape that `take` returns.
template <class Scalar>
void put(dense_tensor<Scalar>& whole, factor const& f, extent begin, extent count, dense_tensor<Scalar> const& part) {
    assert(part.dims == part_shape(whole.dims, f, count));
    detail::for_each_run(whole.dims, f, begin, count, [&](extent to, extent from, extent length) {
        std::copy_n(part.data.begin() + from, length, whole.data.begin() + to);
    });
}

/// Returns a tensor that is zero outside one shard, which is the adjoint of `take`.
template <class Scalar>
[[nodiscard]] dense_tensor<Scalar> pad(dense_tensor<Scalar> const& part, tensor_shape whole, factor const& f,
                                       extent begin, extent count) {
    dense_tensor<Scalar> result(std::move(whole));
    put(result, f, begin, count, part);
    return result;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<extent> positions_of(extent size, factor const& f, extent begin, extent count) {
    std::vector<extent> positions;
    detail::for_each_run({size}, {0, f.extent, f.stride, f.segment, f.widths}, begin, count,
                         [&](extent from, extent, extent length) {
                             for (extent p = from; p < from + length; ++p) positions.push_back(p);
                         });
    return positions;
}

HEDDLE_INLINE tensor_shape part_shape(tensor_shape dims, factor const& f, extent count) {
    dims[f.dimension] = dims[f.dimension] / f.extent * count;
    return dims;
}

HEDDLE_INLINE factor within(factor f, factor const& other, extent count) {
    if (other.dimension == f.dimension && other.stride < f.stride) f.stride = f.stride / other.extent * count;
    return f;
}

} // namespace heddle

#endif
