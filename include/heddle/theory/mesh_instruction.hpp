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
#include <map>
#include <optional>
#include <set>
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
    /// Returns this instruction with a further axis, which has that number then; and without an axis.
    [[nodiscard]] mesh_instruction with_axis(axis_number axis, instruction i) const;
    [[nodiscard]] mesh_instruction without_axis(axis_number axis) const;
    /// Returns the axis of a conversion, an unshard or a reshard; of anything else, or if there is none or more than
    /// one, nothing.
    [[nodiscard]] std::optional<axis_number> acting() const;

    friend bool operator==(mesh_instruction const&, mesh_instruction const&) = default;
};

/// What is kept for the backward pass, and the form in which it is.
using kept_tensor = std::pair<tensor_id, product_form>;

/// What each of a program's instructions keeps for the backward pass that was not kept before. Refers to the program.
class saved_so_far {
public:
    explicit saved_so_far(indexed_program const& p) : program_(p) {}
    /// Returns what the next instruction keeps.
    [[nodiscard]] std::vector<kept_tensor> by(mesh_instruction const& i);

private:
    indexed_program const& program_;
    std::set<kept_tensor> saved_;
    std::map<tensor_id, product_form> stored_;
    /// What unshards have made to stay; and, of parameters of the next computation that are not to stay as they are
    /// then, what does.
    std::map<tensor_id, product_form> staying_;
    std::map<tensor_id, std::optional<product_form>> resharded_;
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

HEDDLE_INLINE mesh_instruction mesh_instruction::with_axis(axis_number axis, instruction i) const {
    mesh_instruction result;
    result.axes.reserve(axes.size() + 1);
    auto const at = axes.begin() + static_cast<std::ptrdiff_t>(axis);
    result.axes.insert(result.axes.end(), axes.begin(), at);
    result.axes.push_back(std::move(i));
    result.axes.insert(result.axes.end(), at, axes.end());
    return result;
}

HEDDLE_INLINE mesh_instruction mesh_instruction::without_axis(axis_number axis) const {
    mesh_instruction result = *this;
    result.axes.erase(result.axes.begin() + static_cast<std::ptrdiff_t>(axis));
    return result;
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

HEDDLE_INLINE std::vector<kept_tensor> saved_so_far::by(mesh_instruction const& i) {
    std::vector<kept_tensor> result;
    auto const& first = i.axes.front();
    if (first.is<instruction::read>() && program_.tensors[i.tensor()].is_parameter())
        stored_.emplace(i.tensor(), i.to());
    for (auto const& of_axis : i.axes)
        if (auto const* unshard = of_axis.as<instruction::unshard>()) {
            auto const stays = staying_.find(unshard->tensor);
            if (!unshard->is_resharded) staying_.insert_or_assign(unshard->tensor, i.to());
            else
                resharded_.try_emplace(unshard->tensor,
                                       stays == staying_.end() ? std::nullopt : std::optional(stays->second));
        }
    auto const* const compute = first.as<instruction::compute>();
    if (!compute) return result;
    auto const& op = program_.operators[compute->op];
    auto const keep = [&](tensor_id t, product_form f) {
        if (auto const resharded = resharded_.find(t); resharded != resharded_.end()) {
            if (!resharded->second) return;
            f = *resharded->second;
        }
        auto const stored = stored_.find(t);
        bool const is_stored = stored != stored_.end() && has_same_parts(stored->second, f);
        if (!is_stored && saved_.insert({t, f}).second) result.push_back({t, f});
    };
    for (auto k : op.work.saved_operands) keep(op.operands[k], i.operand(k));
    for (auto k : op.work.saved_results) keep(op.results[k], i.result(k));
    if (!op.results.empty() && program_.tensors[op.results.front()].region != no_region)
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (keeps_to_run_again(program_, op.operands[k])) keep(op.operands[k], i.operand(k));
    resharded_.clear();
    return result;
}

} // namespace heddle

#endif
