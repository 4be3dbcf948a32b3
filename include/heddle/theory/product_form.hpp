// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The forms of a tensor on a mesh, one per axis, and which of them exist.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace heddle {

/// The form of a tensor on each axis of a mesh, outermost first.
///
/// Read from outside in: the tensors of the outermost axis's slices relate to the whole as the first form says of
/// devices, and the devices of a slice hold the slice's tensor in the other forms. The cotangent is held in the product
/// of the duals. On one axis it is a `tensor_form`.
class product_form {
public:
    constexpr product_form() = default;
    /// The form of one axis.
    constexpr product_form(tensor_form f) : size_(1) { forms_[0] = f; }
    /// The same form on every axis. *Precondition:* `axes <= most_axes`.
    constexpr product_form(std::size_t axes, tensor_form everywhere) : size_(static_cast<std::uint8_t>(axes)) {
        std::fill_n(forms_.begin(), axes, everywhere);
    }

    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr tensor_form operator[](axis_number axis) const { return forms_[axis]; }
    [[nodiscard]] constexpr auto begin() const { return forms_.begin(); }
    [[nodiscard]] constexpr auto end() const { return forms_.begin() + size_; }

    /// Returns this form with another one on one axis.
    [[nodiscard]] constexpr product_form with(axis_number axis, tensor_form f) const {
        product_form result = *this;
        result.forms_[axis] = f;
        return result;
    }
    /// Appends the form of a further axis, inside the others. *Precondition:* `size() < most_axes`.
    constexpr void push_back(tensor_form f) { forms_[size_++] = f; }
    /// Returns this form with a further axis, which has that number then. *Precondition:* `size() < most_axes`.
    [[nodiscard]] constexpr product_form with_axis(axis_number axis, tensor_form f) const {
        product_form result = *this;
        std::copy_backward(forms_.begin() + axis, forms_.begin() + size_, result.forms_.begin() + size_ + 1);
        result.forms_[axis] = f;
        ++result.size_;
        return result;
    }

    /// As one number: a step of an iteration compares forms some twenty times.
    friend constexpr bool operator==(product_form const& f, product_form const& g) {
        return f.size_ == g.size_ && std::bit_cast<std::uint64_t>(f.forms_) == std::bit_cast<std::uint64_t>(g.forms_);
    }
    friend constexpr auto operator<=>(product_form const&, product_form const&) = default;

private:
    std::array<tensor_form, most_axes> forms_{};
    std::uint8_t size_ = 0;
};

/// Writes the forms of the axes in brackets: `(partial, shard(0))`.
[[nodiscard]] std::string to_string(product_form const& f);

/// Tells whether cuts of two factors of a tensor have elements of a dimension in common. The factors of a dimension are
/// refined against each other, so that two of them are disjoint unless they are the same elements, or one is of pieces,
/// which is all of the dimension.
[[nodiscard]] bool overlaps(factor const& a, factor const& b);

/// Tells whether devices can hold a tensor in this form at all: each axis can have its form, and a factor that an axis
/// cuts is still a factor of the slice that the axes outside leave: each of these cuts the same factor, or one that
/// does not overlap it.
[[nodiscard]] bool is_possible(product_form const& f, indexed_tensor const& tensor);

/// Tells whether devices hold the same in two forms: copies are equal, whatever their cotangents are.
[[nodiscard]] inline bool has_same_parts(product_form const& f, product_form const& g) {
    return std::equal(f.begin(), f.end(), g.begin(), g.end(),
                      [](tensor_form a, tensor_form b) { return a == b || (a.is_whole() && b.is_whole()); });
}

/// Tells whether a program may end with the loss in this form.
[[nodiscard]] inline bool is_end(product_form const& f) {
    return algorithm::all_of(f,
                             [](tensor_form x) { return x == tensor_form::partial() || x == tensor_form::mirrored(); });
}

/// Tells whether an axis may begin or end to cut a factor of a tensor that is held in a form: no axis inside it may cut
/// that factor or one that overlaps it. Otherwise the lines of devices along the axis would not hold corresponding
/// parts.
[[nodiscard]] bool may_change_cut(product_form const& f, axis_number axis, factor_number cut,
                                  indexed_tensor const& tensor);

/// Returns what turns a form into one that differs from it on one axis alone; nothing if no instruction does. Both
/// forms must exist, and axes inside may be in the way (`may_change_cut`).
[[nodiscard]] std::optional<conversion> find_conversion(product_form const& from, axis_number axis, tensor_form to,
                                                        indexed_tensor const& tensor);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::string to_string(product_form const& f) {
    std::string text;
    for (tensor_form of_axis : f) text += (text.empty() ? "(" : ", ") + to_string(of_axis);
    return text + ")";
}

HEDDLE_INLINE bool overlaps(factor const& a, factor const& b) {
    if (a.dimension != b.dimension) return false;
    if (!a.widths.empty() || !b.widths.empty()) return true;
    return a.stride < b.stride * b.extent && b.stride < a.stride * a.extent;
}

HEDDLE_INLINE bool is_possible(product_form const& f, indexed_tensor const& tensor) {
    for (axis_number a = 0; a < f.size(); ++a) {
        if (!is_possible(f[a], tensor)) return false;
        if (!f[a].is_shard()) continue;
        for (axis_number outside = 0; outside < a; ++outside)
            if (f[outside].is_shard() && f[outside] != f[a] &&
                overlaps(tensor.factors[static_cast<std::size_t>(f[outside].factor())],
                         tensor.factors[static_cast<std::size_t>(f[a].factor())]))
                return false;
    }
    return true;
}

HEDDLE_INLINE bool may_change_cut(product_form const& f, axis_number axis, factor_number cut,
                                  indexed_tensor const& tensor) {
    auto const& changed = tensor.factors[static_cast<std::size_t>(cut)];
    return std::none_of(f.begin() + static_cast<std::ptrdiff_t>(axis) + 1, f.end(), [&](tensor_form inside) {
        return inside.is_shard() && overlaps(tensor.factors[static_cast<std::size_t>(inside.factor())], changed);
    });
}

HEDDLE_INLINE std::optional<conversion> find_conversion(product_form const& from, axis_number axis, tensor_form to,
                                                        indexed_tensor const& tensor) {
    for (tensor_form f : {from[axis], to})
        if (f.is_shard() && !may_change_cut(from, axis, f.factor(), tensor)) return std::nullopt;
    if (!is_possible(from, tensor) || !is_possible(from.with(axis, to), tensor)) return std::nullopt;
    return find_conversion(from[axis], to);
}

} // namespace heddle

#endif
