// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the interpreter asks of tensors, dense tensors in memory, and cutting tensors along one factor of a
/// dimension.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/program/factor.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <cassert>
#include <concepts>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
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
    using scalar_type = Scalar;

    tensor_shape dims;
    std::vector<Scalar> data{Scalar{}};

    dense_tensor() = default;
    explicit dense_tensor(tensor_shape extents, Scalar value = {})
        : dims(std::move(extents)), data(static_cast<std::size_t>(count_elements(dims)), value) {}
    /// *Precondition:* there are as many values as elements.
    dense_tensor(tensor_shape extents, std::vector<Scalar> values) : dims(std::move(extents)), data(std::move(values)) {
        assert(static_cast<extent>(data.size()) == count_elements(dims));
    }

    [[nodiscard]] tensor_shape const& shape() const { return dims; }
    [[nodiscard]] extent elements() const { return static_cast<extent>(data.size()); }
    [[nodiscard]] std::span<Scalar> flat() { return data; }
    [[nodiscard]] std::span<Scalar const> flat() const { return data; }
    [[nodiscard]] Scalar number() const {
        assert(data.size() == 1);
        return data.front();
    }
    [[nodiscard]] dense_tensor const& on_host() const { return *this; }
    static void copy(std::span<Scalar const> from, std::span<Scalar> to) {
        assert(from.size() == to.size());
        std::ranges::copy(from, to.begin());
    }
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

/// Returns a single number, in a tensor without dimensions.
template <class Scalar>
[[nodiscard]] dense_tensor<Scalar> sum_of_squares(dense_tensor<Scalar> const& x) {
    return dense_tensor<Scalar>({}, std::inner_product(x.data.begin(), x.data.end(), x.data.begin(), Scalar{0}));
}

/// Calls `f(y[n], x[n]...)` for every place n of `y`. The others have its shape, or are a single element for all
/// places.
template <class Function, class Scalar, class... Others>
void for_each_element(Function&& f, dense_tensor<Scalar>& y, Others&... x) {
    [[maybe_unused]] auto const at = [](auto& of, extent n) -> auto& { return of[of.elements() == 1 ? 0 : n]; };
    for (extent n = 0; n < y.elements(); ++n) f(y[n], at(x, n)...);
}

namespace detail {

template <class Tensor>
struct wide_tensor {
    using type = Tensor;
};
template <class Tensor>
    requires requires { typename Tensor::wide_type; }
struct wide_tensor<Tensor> {
    using type = typename Tensor::wide_type;
};

} // namespace detail

/// The tensors that hold what the scalars of `Tensor` have too few bits for: weights that are stepped, norms,
/// statistics. A type of tensors with scalars of 16 bits names it `wide_type`; any other is its own.
template <class Tensor>
using wide_of = typename detail::wide_tensor<Tensor>::type;
/// The numbers of a tensor as the host has them.
template <class Tensor>
using host_number = typename wide_of<Tensor>::scalar_type;

/// A tensor as a rank holds it, in the memory of the host or of a device.
///
/// *Notation.* `x` and `y` are tensors of scalars `S`, `x` is const; `dims` is a shape, `f` a factor of the tensor, `s`
/// a number of type `N = host_number<Tensor>`; `from` and `to` are spans of scalars, `from` of const ones; `host` is a
/// `dense_tensor<N>`, and `w` a `wide_of<Tensor>`.
///
/// *Valid expressions.*
/// - `Tensor(dims)` is zero and `Tensor(dims, s)` is `s` everywhere, in the memory in which the calling thread works;
///   `Tensor(host)` is brought there, and `x.on_host()` is a dense tensor of the same numbers.
/// - `Tensor(w)` and `wide_of<Tensor>(x)` convert. A type with a wide type has `Tensor(host, type)` and `Tensor(w,
///   type)` too, for elements of a program's type: whole numbers, which its scalars cannot hold, are held exactly then,
///   and have no `flat()`.
/// - `x.shape()` and `x.elements()` are the shape and the number of elements.
/// - `x.flat()` is the storage: all elements, row-major. It may be memory of a device, which the host must not read.
/// - `x.number()` is the only element of a tensor of one; the host waits for it.
/// - `y += x` and `y *= s` change `y` element by element.
/// - `take(x, f, begin, count, to)` writes the places [begin, begin + count) of a factor to a span, row-major in the
///   shape `part_shape(x.shape(), f, count)`; `put(y, f, begin, count, from)` writes such a span to those places.
/// - `Tensor::copy(from, to)` copies elements between storages of tensors of this type.
/// - `sum_of_squares(x)` is a tensor of a single number.
/// - `for_each_element(f, y, x...)` calls `f` with the elements of `y`, which it may change, and of tensors `x`,
///   changed too if they are not const, that have its shape or a single element. `f` is generic: it is called once for
///   each place with numbers, or once for all with values that have `+`, `-`, `*`, `/`, `sqrt` and `min`, and are made
///   of numbers of type double. A device may call a copy of it later, so `f` refers to nothing that may change or end.
///
/// *Axioms.* Storage stays where it is while a tensor lives, also when the tensor is moved. Tensors of a thread are
/// computed in the order of its calls, though the host may be ahead of a device; only `number` and `on_host` wait.
template <class Tensor>
concept rank_tensor =
    std::copyable<Tensor> &&
    requires(Tensor const& x, Tensor& y, host_number<Tensor> s, wide_of<Tensor> const& w, tensor_shape const& dims,
             factor const& f, extent n, std::span<typename Tensor::scalar_type> to,
             std::span<typename Tensor::scalar_type const> from, dense_tensor<host_number<Tensor>> const& host) {
        Tensor(dims);
        Tensor(dims, s);
        Tensor(host);
        Tensor(w);
        wide_of<Tensor>(x);
        { x.on_host() } -> std::convertible_to<dense_tensor<host_number<Tensor>>>;
        { x.shape() } -> std::convertible_to<tensor_shape>;
        { x.elements() } -> std::same_as<extent>;
        { x.flat() } -> std::same_as<std::span<typename Tensor::scalar_type const>>;
        { y.flat() } -> std::same_as<std::span<typename Tensor::scalar_type>>;
        { x.number() } -> std::same_as<host_number<Tensor>>;
        y += x;
        y *= s;
        take(x, f, n, n, to);
        put(y, f, n, n, from);
        Tensor::copy(from, to);
        { sum_of_squares(x) } -> std::same_as<Tensor>;
        for_each_element([](auto& a, auto const& b) { a = a * b; }, y, x);
    };

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

/// Writes the places [begin, begin + count) of a factor, row-major, to a span.
/// *Preconditions.* The factor is one of the tensor's; the range lies within its extent; the span is as large.
template <class Scalar>
void take(dense_tensor<Scalar> const& whole, factor const& f, extent begin, extent count,
          std::type_identity_t<std::span<Scalar>> to) {
    assert(begin >= 0 && count >= 0 && begin + count <= f.extent);
    detail::for_each_run(whole.dims, f, begin, count, [&](extent from, extent at, extent length) {
        std::copy_n(whole.data.begin() + from, length, to.begin() + at);
    });
}

/// Writes what `take` has written back to its places. *Preconditions.* As for `take`.
template <class Scalar>
void put(dense_tensor<Scalar>& whole, factor const& f, extent begin, extent count,
         std::type_identity_t<std::span<Scalar const>> from) {
    detail::for_each_run(whole.dims, f, begin, count, [&](extent to, extent at, extent length) {
        std::copy_n(from.begin() + at, length, whole.data.begin() + to);
    });
}

static_assert(rank_tensor<dense_tensor<float>> && rank_tensor<dense_tensor<double>>);

/// Returns a tensor in its wide type: itself if it is of that.
template <rank_tensor Tensor>
[[nodiscard]] decltype(auto) widened(Tensor const& x) {
    if constexpr (std::same_as<wide_of<Tensor>, Tensor>) return (x);
    else return wide_of<Tensor>(x);
}

/// Brings a tensor of a program from the host to where a rank computes.
template <rank_tensor Tensor>
[[nodiscard]] Tensor brought(dense_tensor<host_number<Tensor>> const& host, [[maybe_unused]] element_type type) {
    if constexpr (requires { Tensor(host, type); }) return Tensor(host, type);
    else return Tensor(host);
}

/// Returns the shard of a tensor that holds the places [begin, begin + count) of a factor.
template <rank_tensor Tensor>
[[nodiscard]] Tensor take(Tensor const& whole, factor const& f, extent begin, extent count) {
    Tensor part(part_shape(whole.shape(), f, count));
    take(whole, f, begin, count, part.flat());
    return part;
}

/// Writes a shard back to the places [begin, begin + count) of a factor, which undoes `take`.
/// *Precondition:* the part has the shape that `take` returns.
template <rank_tensor Tensor>
void put(Tensor& whole, factor const& f, extent begin, extent count, Tensor const& part) {
    assert(part.shape() == part_shape(whole.shape(), f, count));
    put(whole, f, begin, count, part.flat());
}

/// Returns a tensor that is zero outside one shard, which is the adjoint of `take`.
template <rank_tensor Tensor>
[[nodiscard]] Tensor pad(Tensor const& part, tensor_shape const& whole, factor const& f, extent begin, extent count) {
    Tensor result(whole);
    put(result, f, begin, count, part);
    return result;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/program/indexed_program.hpp>

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
    dims[f.dimension] = f.extent == 0 ? 0 : dims[f.dimension] / f.extent * count; // of a part that is empty
    return dims;
}

HEDDLE_INLINE factor within(factor f, factor const& other, extent count) {
    if (other.dimension == f.dimension && other.stride < f.stride)
        f.stride = other.extent == 0 ? 0 : f.stride / other.extent * count;
    return f;
}

} // namespace heddle

#endif
