// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The instructions of a distributed program on a mesh.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/product_form.hpp>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// One instruction of a mesh program: one of each axis, outermost first.
///
/// An operator restricted to a slice is the same operator with a smaller extent, so that each axis computes, reads and
/// converts by the theory of one axis, applied to the program of its slice. All axes read one source, or compute one
/// operator. A conversion, an unshard or a reshard is one on one axis, and the others keep the form: they `convert` it
/// to itself, which is nothing. On one axis it is an `instruction`.
struct mesh_instruction {
    std::vector<instruction> axes;

    mesh_instruction() = default;
    mesh_instruction(instruction one) : axes{std::move(one)} {}
    explicit mesh_instruction(std::vector<instruction> of_axes) : axes(std::move(of_axes)) {}

    /// Reads a source in a form.
    [[nodiscard]] static mesh_instruction read(tensor_id t, product_form const& to) { return read(t, to, to); }
    /// Reads a parameter of which axes may have the optimiser state in a shard.
    [[nodiscard]] static mesh_instruction read(tensor_id t, product_form const& from, product_form const& to);
    /// Does something on one axis with a tensor that is in a form. *Precondition:* `change` is no read and no
    /// computation, and begins in the form that the axis has.
    [[nodiscard]] static mesh_instruction on_axis(axis_number axis, instruction change, product_form const& form);
    [[nodiscard]] static mesh_instruction convert(tensor_id t, product_form const& from, axis_number axis,
                                                  tensor_form to) {
        return on_axis(axis, instruction::convert(t, from[axis], to), from);
    }

    /// Of a computation: the form of an operand and of a result. *Precondition:* every axis computes.
    [[nodiscard]] product_form operand(std::size_t k) const;
    [[nodiscard]] product_form result(std::size_t k) const;
    /// Of anything else: the tensor's form before and after. *Precondition:* no axis computes.
    [[nodiscard]] product_form from() const;
    [[nodiscard]] product_form to() const;
    [[nodiscard]] tensor_id tensor() const { return axes.front().change()->tensor; }
    /// Returns the axis of a conversion, an unshard or a reshard; of anything else, or if there is none or more than
    /// one, nothing.
    [[nodiscard]] std::optional<axis_number> acting() const;

    friend bool operator==(mesh_instruction const&, mesh_instruction const&) = default;
};

/// Tells whether an instruction leaves a tensor as it is.
[[nodiscard]] inline bool is_keep(instruction const& i) {
    auto const* const convert = i.as<instruction::convert>();
    return convert && convert->from == convert->to;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE mesh_instruction mesh_instruction::read(tensor_id t, product_form const& from, product_form const& to) {
    mesh_instruction result;
    for (axis_number a = 0; a < to.size(); ++a) {
        instruction::read i(t, to[a]);
        i.from = from[a];
        result.axes.push_back(i);
    }
    return result;
}

HEDDLE_INLINE mesh_instruction mesh_instruction::on_axis(axis_number axis, instruction change,
                                                         product_form const& form) {
    mesh_instruction result;
    tensor_id const t = change.change()->tensor;
    for (tensor_form f : form) result.axes.push_back(instruction::convert(t, f, f));
    result.axes[axis] = std::move(change);
    return result;
}

HEDDLE_INLINE product_form mesh_instruction::operand(std::size_t k) const {
    product_form f;
    for (auto const& i : axes) f.push_back(i.as<instruction::compute>()->operands[k]);
    return f;
}

HEDDLE_INLINE product_form mesh_instruction::result(std::size_t k) const {
    product_form f;
    for (auto const& i : axes) f.push_back(i.as<instruction::compute>()->results[k]);
    return f;
}

HEDDLE_INLINE product_form mesh_instruction::from() const {
    product_form f;
    for (auto const& i : axes) f.push_back(i.change()->from);
    return f;
}

HEDDLE_INLINE product_form mesh_instruction::to() const {
    product_form f;
    for (auto const& i : axes) f.push_back(i.change()->to);
    return f;
}

HEDDLE_INLINE std::optional<axis_number> mesh_instruction::acting() const {
    std::optional<axis_number> found;
    for (axis_number a = 0; a < axes.size(); ++a) {
        if (is_keep(axes[a])) continue;
        if (found || axes[a].is<instruction::compute>() || axes[a].is<instruction::read>()) return std::nullopt;
        found = a;
    }
    return found;
}

} // namespace heddle

#endif
