// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Parts of tensors by the places that they have, whatever cut them, so that parts of one plan are compared with
/// those of another.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/program/factor.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// The places [begin, begin + count) of a dimension or of a factor.
struct place_range {
    extent begin = 0, count = 0;
    friend auto operator<=>(place_range const&, place_range const&) = default;
};

/// A part of a tensor: all elements whose place in each dimension is among some. What shards hold is such a part, since
/// each factor cuts one dimension.
struct tensor_part {
    /// Of each dimension, ranges that are ascending, not empty, and do not touch.
    std::vector<std::vector<place_range>> dimensions;

    /// Returns all of a tensor.
    [[nodiscard]] static tensor_part whole(tensor_shape const& shape);

    /// Returns the shape of the part as a tensor of its own.
    [[nodiscard]] tensor_shape shape() const;
    [[nodiscard]] extent elements() const { return count_elements(shape()); }
    /// Returns what `heddle::take` leaves of it. *Preconditions.* Those of `take`, of a tensor of this shape.
    [[nodiscard]] tensor_part take(factor const& f, extent begin, extent count) const;

    friend auto operator<=>(tensor_part const&, tensor_part const&) = default;
};

namespace detail {

/// A range of places that two parts have in common: where it begins, and as each of them counts its places.
struct common_range {
    extent begin = 0, in_first = 0, in_second = 0, count = 0;
};

/// Returns what the places of one dimension have in common, ascending.
[[nodiscard]] std::vector<common_range> common_ranges(std::span<place_range const> first,
                                                      std::span<place_range const> second);

/// Returns what is in one part of a tensor and not in another, in parts that have nothing in common.
[[nodiscard]] std::vector<tensor_part> difference(tensor_part const& of, tensor_part const& other);

/// Returns what two parts have in common.
[[nodiscard]] tensor_part intersection(tensor_part const& first, tensor_part const& second);

/// Calls `visit(first, second, length)` for runs of elements that two parts of a tensor have in common, with where they
/// begin in either.
template <class Visit>
void for_each_common_run(tensor_part const& first, tensor_part const& second, Visit&& visit) {
    std::vector<std::vector<common_range>> common;
    for (std::size_t d = 0; d < first.dimensions.size(); ++d)
        common.push_back(common_ranges(first.dimensions[d], second.dimensions[d]));
    auto const of_first = first.shape(), of_second = second.shape();
    auto const walk = [&](auto const& self, std::size_t d, extent a, extent b) -> void {
        if (d == common.size()) return visit(a, b, extent{1});
        bool const is_last = d + 1 == common.size();
        for (auto const& range : common[d]) {
            extent const from_a = a * of_first[d] + range.in_first, from_b = b * of_second[d] + range.in_second;
            if (is_last) visit(from_a, from_b, range.count);
            for (extent n = 0; n < range.count && !is_last; ++n) self(self, d + 1, from_a + n, from_b + n);
        }
    };
    walk(walk, 0, 0, 0);
}

} // namespace detail

/// Returns the number of elements that two parts of a tensor have in common.
[[nodiscard]] extent count_common(tensor_part const& first, tensor_part const& second);

/// Copies the elements that two parts of a tensor have in common from a tensor of the first part to one of the second.
/// *Preconditions.* The parts are of one tensor, and the tensors have their shapes. *Returns* how many those are.
template <class Scalar>
extent copy_common(tensor_part const& from, dense_tensor<Scalar> const& source, tensor_part const& to,
                   dense_tensor<Scalar>& result) {
    extent copied = 0;
    detail::for_each_common_run(from, to, [&](extent a, extent b, extent length) {
        std::copy_n(source.data.begin() + a, length, result.data.begin() + b);
        copied += length;
    });
    return copied;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/program/indexed_program.hpp>

namespace heddle {

HEDDLE_INLINE tensor_part tensor_part::whole(tensor_shape const& shape) {
    tensor_part result;
    for (extent n : shape) {
        auto& ranges = result.dimensions.emplace_back();
        if (n > 0) ranges.push_back({0, n});
    }
    return result;
}

HEDDLE_INLINE tensor_shape tensor_part::shape() const {
    tensor_shape result;
    for (auto const& ranges : dimensions) {
        extent places = 0;
        for (auto const& r : ranges) places += r.count;
        result.push_back(places);
    }
    return result;
}

HEDDLE_INLINE tensor_part tensor_part::take(factor const& f, extent begin, extent count) const {
    auto const& ranges = dimensions[f.dimension];
    std::vector<place_range> left;
    auto of = ranges.begin();
    extent passed = 0; // places of the ranges before
    for (extent const p : positions_of(shape()[f.dimension], f, begin, count)) {
        while (p >= passed + of->count) passed += (of++)->count;
        extent const place = of->begin + p - passed;
        if (!left.empty() && left.back().begin + left.back().count == place) ++left.back().count;
        else left.push_back({place, 1});
    }
    auto result = *this;
    result.dimensions[f.dimension] = std::move(left);
    return result;
}

namespace detail {

HEDDLE_INLINE std::vector<common_range> common_ranges(std::span<place_range const> first,
                                                      std::span<place_range const> second) {
    std::vector<common_range> result;
    extent of_first = 0, of_second = 0; // places of the ranges before
    for (std::size_t i = 0, k = 0; i < first.size() && k < second.size();) {
        auto const &a = first[i], &b = second[k];
        extent const begin = std::max(a.begin, b.begin);
        extent const end = std::min(a.begin + a.count, b.begin + b.count);
        if (begin < end)
            result.push_back({begin, of_first + begin - a.begin, of_second + begin - b.begin, end - begin});
        if (a.begin + a.count == end) of_first += a.count, ++i;
        else of_second += b.count, ++k;
    }
    return result;
}

HEDDLE_INLINE std::vector<place_range> common_places(std::span<place_range const> first,
                                                     std::span<place_range const> second) {
    std::vector<place_range> result;
    for (auto const& r : common_ranges(first, second)) result.push_back({r.begin, r.count});
    return result;
}

HEDDLE_INLINE std::vector<place_range> other_places(std::vector<place_range> const& of,
                                                    std::vector<place_range> const& left_out) {
    std::vector<place_range> result;
    for (auto const& r : of) {
        extent begin = r.begin;
        for (auto const& gap : common_ranges(std::span(&r, 1), left_out)) {
            if (gap.begin > begin) result.push_back({begin, gap.begin - begin});
            begin = gap.begin + gap.count;
        }
        if (begin < r.begin + r.count) result.push_back({begin, r.begin + r.count - begin});
    }
    return result;
}

HEDDLE_INLINE tensor_part intersection(tensor_part const& first, tensor_part const& second) {
    tensor_part result;
    for (std::size_t d = 0; d < first.dimensions.size(); ++d)
        result.dimensions.push_back(common_places(first.dimensions[d], second.dimensions[d]));
    return result;
}

HEDDLE_INLINE std::vector<tensor_part> difference(tensor_part const& of, tensor_part const& other) {
    std::vector<tensor_part> result;
    auto rest = of; // what is in the other part in all dimensions before
    for (std::size_t d = 0; d < of.dimensions.size(); ++d) {
        auto outside = rest;
        outside.dimensions[d] = other_places(of.dimensions[d], other.dimensions[d]);
        if (outside.elements() > 0) result.push_back(std::move(outside));
        rest.dimensions[d] = common_places(of.dimensions[d], other.dimensions[d]);
    }
    return result;
}

} // namespace detail

HEDDLE_INLINE extent count_common(tensor_part const& first, tensor_part const& second) {
    extent product = 1;
    for (std::size_t d = 0; d < first.dimensions.size(); ++d) {
        extent places = 0;
        for (auto const& r : detail::common_ranges(first.dimensions[d], second.dimensions[d])) places += r.count;
        product *= places;
    }
    return product;
}

} // namespace heddle

#endif
