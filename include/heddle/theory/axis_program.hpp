// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs of one axis of a mesh, where what the other axes do is given.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/mesh_instruction.hpp>
#include <heddle/theory/searched_program.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// Tells whether the axes of a mesh may compute an operator in these ways together: all forms exist, and no axis cuts
/// the places to which another sends rows.
[[nodiscard]] bool goes_together(indexed_program const& p, mesh_instruction const& i);
/// As above, of the searched program and of the given one, whose operators these are parts of.
[[nodiscard]] bool goes_together(searched_program const& searched, mesh_instruction i);

/// Tells whether the axes of a mesh may read a tensor in these forms together: they exist, and whole copies of what is
/// in shards can be made from inside out.
[[nodiscard]] bool is_read_together(indexed_tensor const& tensor, mesh_instruction const& read);

/// A program on a mesh.
using mesh_instructions = std::vector<mesh_instruction>;

/// Returns what all axes but one do in a program: each form is made once.
[[nodiscard]] mesh_instructions without_axis(indexed_program const& p, mesh_instructions const& list, axis_number axis);

/// A searched program on one axis of a mesh, as a program of its own.
///
/// A tensor is one that the other axes hold in some form; so a tensor that they hold in two forms is two tensors. The
/// other axes' conversions are operators, from one of these tensors to another: on this axis they are computed in any
/// form in which the conversion may be made there. Operators are computed in the ways that go together with the other
/// axes'. So its programs are the programs on the mesh of which the other axes' part is the given one.
class axis_program {
public:
    /// `others` is a program of the searched program on the other axes: what is read, converted and computed, in the
    /// order of operators, each form made once. It unshards nothing.
    axis_program(searched_program const& searched, axis_number axis, mesh_instructions const& others);

    [[nodiscard]] axis_number axis() const { return axis_; }
    [[nodiscard]] searched_program const& searched() const { return searched_; }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// Returns for each operator the first of its kind: what all axes do with one they do with the other.
    [[nodiscard]] std::vector<operator_id> kinds() const;
    /// Returns what is allowed here, of what is allowed of the searched program.
    /// *Lifetime.* It refers to this.
    [[nodiscard]] instruction_filter filter(instruction_filter const& allowed) const;

    /// Returns what all axes do by an instruction of this program, as instructions of the searched one.
    [[nodiscard]] mesh_instruction on_mesh(instruction const& i) const;
    /// Returns the tensor of the searched program, and the form in which all axes hold it.
    [[nodiscard]] std::pair<tensor_id, product_form> on_mesh(tensor_id t, tensor_form f) const {
        return {tensors_[t].first, tensors_[t].second.with_axis(axis_, f)};
    }
    /// Returns what all axes do to compute an operator of the given program, of which an operator here is a part;
    /// nothing if it bears no costs.
    [[nodiscard]] std::optional<mesh_instruction> in_given(instruction const& i) const;

private:
    /// A tensor of the searched program, and the form in which the other axes hold it.
    using held_tensor = std::pair<tensor_id, product_form>;

    tensor_id add_tensor(tensor_id t, product_form const& f);
    void add_conversion(mesh_instruction const& i);
    void add_computation(mesh_instruction const& i);
    /// Returns the computations that go together with one of the other axes.
    [[nodiscard]] std::vector<listed_computation> beside(mesh_instruction const& i) const;
    /// The operator of the searched program that is computed at one here, if it is not a conversion.
    [[nodiscard]] instruction::compute const* computed_at(operator_id o) const {
        return others_[o].axes[0].as<instruction::compute>();
    }

    searched_program const& searched_;
    axis_number axis_;
    indexed_program program_;
    /// What the other axes do at each operator, and what they hold by tensor.
    mesh_instructions others_;
    std::vector<held_tensor> tensors_;
    /// Where the state is in other shards on the other axes.
    std::map<tensor_id, product_form> stored_;
    std::map<held_tensor, tensor_id> number_of_;
    /// The computations that go together with one of the other axes, by kind of operator, loops and forms.
    std::map<std::vector<std::uint32_t>, std::vector<listed_computation>> beside_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/operator_order.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle {

HEDDLE_INLINE bool goes_together(indexed_program const& p, mesh_instruction const& i) {
    auto const& op = p.operators[i.axes[0].as<instruction::compute>()->op];
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (!is_possible(i.operand(k), p.tensors[op.operands[k]])) return false;
    for (std::size_t k = 0; k < op.results.size(); ++k)
        if (!is_possible(i.result(k), p.tensors[op.results[k]])) return false;
    auto const loop_of = [&](instruction const& on_axis) {
        auto const loop = on_axis.as<instruction::compute>()->loop;
        return loop < 0 || op.loops.empty() ? nullptr : &op.loops[static_cast<std::size_t>(loop)];
    };
    for (auto const& sends : i.axes) {
        auto const* const exchange = loop_of(sends);
        if (!exchange || !exchange->exchanges()) continue;
        auto const k = exchange->destination();
        for (auto const& other : i.axes)
            if (auto const* const loop = loop_of(other);
                &other != &sends && loop && loop->operands[k] == exchange->operands[k])
                return false;
    }
    return true;
}

HEDDLE_INLINE bool goes_together(searched_program const& searched, mesh_instruction i) {
    if (!goes_together(searched.program(), i)) return false;
    for (auto& of_axis : i.axes) of_axis = searched.part_of(of_axis);
    return goes_together(searched.given(), i);
}

HEDDLE_INLINE bool is_read_together(indexed_tensor const& tensor, mesh_instruction const& read) {
    auto form = read.from();
    if (!is_possible(form, tensor) || !is_possible(read.to(), tensor)) return false;
    for (axis_number a = form.size(); a-- > 0; form = form.with(a, read.to()[a]))
        if (form[a] != read.to()[a] && !find_conversion(form, a, read.to()[a], tensor)) return false;
    return true;
}

namespace detail {

/// Appends what tells a mesh's computations of one kind of operator apart.
inline void append_choice(mesh_instruction const& i, auto& key) {
    for (auto const& of_axis : i.axes) {
        auto const& compute = *of_axis.as<instruction::compute>();
        key.push_back(static_cast<std::uint32_t>(compute.loop + 1));
        for (auto const* forms : {&compute.operands, &compute.results})
            for (tensor_form f : *forms) key.push_back(f.code());
    }
}

} // namespace detail

HEDDLE_INLINE mesh_instructions without_axis(indexed_program const& p, mesh_instructions const& list,
                                             axis_number axis) {
    mesh_instructions result;
    std::set<std::pair<tensor_id, product_form>> made;
    for (auto const& i : list) {
        if (i.acting() == axis) continue;
        auto others = i.without_axis(axis);
        if (auto const* compute = others.axes[0].as<instruction::compute>())
            for (std::size_t k = 0; k < compute->results.size(); ++k)
                made.insert({p.operators[compute->op].results[k], others.result(k)});
        else if (!made.insert({others.tensor(), others.to()}).second) continue;
        result.push_back(std::move(others));
    }
    return result;
}

HEDDLE_INLINE axis_program::axis_program(searched_program const& searched, axis_number axis,
                                         mesh_instructions const& others)
    : searched_(searched), axis_(axis) {
    auto const& from = searched.program();
    for (auto const& i : others) {
        if (i.axes[0].is<instruction::compute>()) {
            add_computation(i);
        } else if (i.axes[0].is<instruction::read>()) {
            auto const t = add_tensor(i.tensor(), i.to());
            if (i.from() != i.to()) stored_.emplace(t, i.from());
        } else {
            add_conversion(i);
        }
    }
    for (auto const& [held, t] : number_of_)
        if (held.first == from.loss && is_end(held.second)) program_.loss = t;
    count_uses(program_);
    program_.counted_of_regions = searched_.program().counted_of_regions;
}

HEDDLE_INLINE tensor_id axis_program::add_tensor(tensor_id t, product_form const& f) {
    auto const [slot, is_new] = number_of_.try_emplace({t, f}, static_cast<tensor_id>(tensors_.size()));
    if (is_new) {
        tensors_.push_back({t, f});
        program_.tensors.push_back(searched_.program().tensors[t]);
    }
    return slot->second;
}

HEDDLE_INLINE void axis_program::add_conversion(mesh_instruction const& i) {
    auto const t = i.tensor();
    auto const& tensor = searched_.program().tensors[t];
    auto const from = i.from(), to = i.to();
    indexed_operator op;
    op.name = "convert";
    op.work.is_view = true;
    op.operands = {add_tensor(t, from)};
    op.results = {add_tensor(t, to)};
    program_.tensors[op.results[0]].info.role = tensor_role::value;
    auto const acts = *i.acting();
    axis_number const acting = acts < axis_ ? acts : acts + 1;
    for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code)
        if (auto const f = tensor_form::from_code(code);
            find_conversion(from.with_axis(axis_, f), acting, to[acts], tensor))
            op.listed.push_back({{code}, {code}, -1});
    program_.operators.push_back(std::move(op));
    others_.push_back(i);
}

HEDDLE_INLINE void axis_program::add_computation(mesh_instruction const& i) {
    auto const o = i.axes[0].as<instruction::compute>()->op;
    auto op = searched_.program().operators[o];
    std::vector<std::uint32_t> key{searched_.kinds()[o]};
    detail::append_choice(i, key);
    auto const [known, is_new] = beside_.try_emplace(std::move(key));
    if (is_new) known->second = beside(i);
    op.listed = known->second;
    for (std::size_t k = 0; k < op.operands.size(); ++k) op.operands[k] = add_tensor(op.operands[k], i.operand(k));
    for (std::size_t k = 0; k < op.results.size(); ++k) op.results[k] = add_tensor(op.results[k], i.result(k));
    program_.operators.push_back(std::move(op));
    others_.push_back(i);
}

HEDDLE_INLINE std::vector<listed_computation> axis_program::beside(mesh_instruction const& i) const {
    auto const& from = searched_.program();
    std::vector<listed_computation> result;
    for (auto& here : computations(from, i.axes[0].as<instruction::compute>()->op)) {
        if (!goes_together(searched_, i.with_axis(axis_, here))) continue;
        listed_computation listed{{}, {}, here.loop};
        for (tensor_form f : here.operands) listed.operands.push_back(f.code());
        for (tensor_form f : here.results) listed.results.push_back(f.code());
        result.push_back(std::move(listed));
    }
    return result;
}

HEDDLE_INLINE std::vector<operator_id> axis_program::kinds() const {
    auto const alike = operator_kinds(program_);
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    auto const& in_searched = searched_.kinds();
    std::vector<operator_id> first, result;
    for (operator_id o = 0; o < program_.operators.size(); ++o) {
        std::vector<std::uint64_t> key{alike[o]};
        if (auto const* compute = computed_at(o)) {
            key.push_back(in_searched[compute->op]);
            detail::append_choice(others_[o], key);
        } else {
            for (auto const& of_axis : others_[o].axes)
                key.insert(key.end(), {of_axis.change()->from.code(), of_axis.change()->to.code()});
        }
        for_each_tensor(program_.operators[o], [&](tensor_id t) {
            if (auto const stored = stored_.find(t); stored == stored_.end()) key.push_back(0);
            else
                for (tensor_form f : stored->second) key.push_back(std::uint64_t{f.code()} + 1);
            key.push_back(searched_.program().tensors[tensors_[t].first].uses);
        });
        auto const [number, is_new] = numbers.insert(std::move(key));
        if (is_new) first.push_back(o);
        result.push_back(first[number]);
    }
    return result;
}

HEDDLE_INLINE instruction_filter axis_program::filter(instruction_filter const& allowed) const {
    auto const allows = [this, allowed](instruction const& i) {
        if (auto const* compute = i.as<instruction::compute>()) {
            auto const* const computed = computed_at(compute->op);
            if (!computed) return true;
            auto here = *compute;
            here.op = computed->op;
            return allowed(here);
        }
        auto const& change = *i.change();
        auto const& [t, other] = tensors_[change.tensor];
        auto const& tensor = searched_.program().tensors[t];
        auto there = i;
        there.change()->tensor = t;
        if (!allowed(there)) return false;
        if (i.is<instruction::read>()) return is_read_together(tensor, on_mesh(i));
        return find_conversion(other.with_axis(axis_, change.from), axis_, change.to, tensor).has_value();
    };
    if (!allowed.mark) return allows;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<std::uint64_t> marks;
    for (tensor_id t = 0; t < tensors_.size(); ++t) {
        auto const& [there, other] = tensors_[t];
        std::vector<std::uint64_t> key{allowed.mark(there)};
        for (tensor_form f : other) key.push_back(f.code());
        if (auto const stored = stored_.find(t); stored != stored_.end())
            for (tensor_form f : stored->second) key.push_back(f.code());
        marks.push_back(numbers.insert(std::move(key)).first);
    }
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

HEDDLE_INLINE mesh_instruction axis_program::on_mesh(instruction const& i) const {
    if (auto const* compute = i.as<instruction::compute>()) {
        auto const& others = others_[compute->op];
        if (auto const* const computed = computed_at(compute->op)) {
            auto here = *compute;
            here.op = computed->op;
            return others.with_axis(axis_, std::move(here));
        }
        tensor_form const f = compute->operands[0];
        return others.with_axis(axis_, instruction::convert(others.tensor(), f, f));
    }
    auto here = i;
    auto const& [t, f] = tensors_[i.change()->tensor];
    here.change()->tensor = t;
    if (!i.is<instruction::read>())
        return mesh_instruction::on_axis(axis_, std::move(here), f.with_axis(axis_, i.change()->from));
    auto const stored = stored_.find(i.change()->tensor);
    return mesh_instruction::read(t, stored == stored_.end() ? f : stored->second, f).with_axis(axis_, std::move(here));
}

HEDDLE_INLINE std::optional<mesh_instruction> axis_program::in_given(instruction const& i) const {
    auto on = on_mesh(i);
    for (auto& of_axis : on.axes) {
        auto there = searched_.in_given(of_axis);
        if (!there) return std::nullopt;
        of_axis = std::move(*there);
    }
    return on;
}

} // namespace heddle

#endif
