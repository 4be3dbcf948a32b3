// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs of one axis of a mesh, where what the other axis does is given.
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

/// Tells whether the axes of a mesh may read a tensor in these forms together: they exist, and whole copies of what is
/// in shards can be made from inside out.
[[nodiscard]] bool is_read_together(indexed_tensor const& tensor, mesh_instruction const& read);

/// A searched program on one axis of a mesh of two, as a program of its own.
///
/// A tensor is one that the other axis holds in some form; so a tensor that it holds in two forms is two tensors. The
/// other axis's conversions are operators, from one of these tensors to another: on this axis they are computed in any
/// form in which the conversion may be made there. Operators are computed in the ways that go together with the other
/// axis's. So its programs are the programs on the mesh of which the other axis's part is the given one.
class axis_program {
public:
    /// `other` is a program of the searched program on the other axis: what is read, converted and computed, in the
    /// order of operators, each form made once. It unshards nothing.
    axis_program(searched_program const& searched, axis_number axis, std::vector<instruction> const& other);

    [[nodiscard]] axis_number axis() const { return axis_; }
    [[nodiscard]] searched_program const& searched() const { return searched_; }
    [[nodiscard]] indexed_program const& program() const { return program_; }
    /// Returns for each operator the first of its kind: what both axes do with one they do with the other.
    [[nodiscard]] std::vector<operator_id> kinds() const;
    /// Returns what is allowed here, of what is allowed of the searched program.
    /// *Lifetime.* It refers to this.
    [[nodiscard]] instruction_filter filter(instruction_filter const& allowed) const;

    /// Returns what both axes do by an instruction of this program, as instructions of the searched one.
    [[nodiscard]] mesh_instruction on_mesh(instruction const& i) const;
    /// Returns the tensor of the searched program, and the form in which both axes hold it.
    [[nodiscard]] std::pair<tensor_id, product_form> on_mesh(tensor_id t, tensor_form f) const {
        return {tensors_[t].first, both(f, tensors_[t].second)};
    }
    /// Returns what both axes do to compute an operator of the given program, of which an operator here is a part;
    /// nothing if it bears no costs.
    [[nodiscard]] std::optional<mesh_instruction> in_given(instruction const& i) const;

private:
    /// The forms of this axis and of the other.
    [[nodiscard]] product_form both(tensor_form here, tensor_form other) const {
        product_form f(axis_ == 0 ? here : other);
        f.push_back(axis_ == 0 ? other : here);
        return f;
    }
    [[nodiscard]] mesh_instruction both(instruction here, instruction other) const {
        return axis_ == 0 ? mesh_instruction({std::move(here), std::move(other)})
                          : mesh_instruction({std::move(other), std::move(here)});
    }
    tensor_id add_tensor(tensor_id t, tensor_form f);
    void add_conversion(instruction::convert const& i);
    void add_computation(instruction::compute const& i);
    /// Returns the computations that go together with one of the other axis.
    [[nodiscard]] std::vector<listed_computation> beside(instruction::compute const& i) const;

    searched_program const& searched_;
    axis_number axis_;
    indexed_program program_;
    /// What the other axis does at each operator, and the tensor of the searched program and its form there by tensor.
    std::vector<instruction> others_;
    std::vector<formed_tensor> tensors_;
    /// Where only the state is in shards on the other axis.
    std::map<tensor_id, tensor_form> stored_;
    std::map<formed_tensor, tensor_id> number_of_;
    /// The computations that go together with one of the other axis, by kind of operator, loop and forms.
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

HEDDLE_INLINE bool is_read_together(indexed_tensor const& tensor, mesh_instruction const& read) {
    auto form = read.from();
    if (!is_possible(form, tensor) || !is_possible(read.to(), tensor)) return false;
    for (axis_number a = form.size(); a-- > 0; form = form.with(a, read.to()[a]))
        if (form[a] != read.to()[a] && !find_conversion(form, a, read.to()[a], tensor)) return false;
    return true;
}

HEDDLE_INLINE axis_program::axis_program(searched_program const& searched, axis_number axis,
                                         std::vector<instruction> const& other)
    : searched_(searched), axis_(axis) {
    auto const& from = searched.program();
    for (auto const& i : other) {
        if (auto const* read = i.as<instruction::read>()) {
            auto const t = add_tensor(read->tensor, read->to);
            if (read->from != read->to) stored_.emplace(t, read->from);
        } else if (auto const* convert = i.as<instruction::convert>()) {
            add_conversion(*convert);
        } else {
            add_computation(*i.as<instruction::compute>());
        }
    }
    for (tensor_form f : {tensor_form::mirrored(), tensor_form::partial()})
        if (auto const end = number_of_.find({from.loss, f}); end != number_of_.end()) program_.loss = end->second;
    count_uses(program_);
    program_.counted_of_regions = searched_.program().counted_of_regions;
}

HEDDLE_INLINE tensor_id axis_program::add_tensor(tensor_id t, tensor_form f) {
    auto const [slot, is_new] = number_of_.try_emplace({t, f}, static_cast<tensor_id>(tensors_.size()));
    if (is_new) {
        tensors_.push_back({t, f});
        program_.tensors.push_back(searched_.program().tensors[t]);
    }
    return slot->second;
}

HEDDLE_INLINE void axis_program::add_conversion(instruction::convert const& i) {
    auto const& tensor = searched_.program().tensors[i.tensor];
    indexed_operator op;
    op.name = "convert";
    op.work.is_view = true;
    op.operands = {add_tensor(i.tensor, i.from)};
    op.results = {add_tensor(i.tensor, i.to)};
    program_.tensors[op.results[0]].info.role = tensor_role::value;
    axis_number const acting = 1 - axis_;
    for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code)
        if (auto const f = tensor_form::from_code(code); find_conversion(both(f, i.from), acting, i.to, tensor))
            op.listed.push_back({{code}, {code}, -1});
    program_.operators.push_back(std::move(op));
    others_.push_back(i);
}

HEDDLE_INLINE void axis_program::add_computation(instruction::compute const& i) {
    auto op = searched_.program().operators[i.op];
    std::vector<std::uint32_t> key{searched_.kinds()[i.op], static_cast<std::uint32_t>(i.loop + 1)};
    for (auto const* forms : {&i.operands, &i.results})
        for (tensor_form f : *forms) key.push_back(f.code());
    auto const [known, is_new] = beside_.try_emplace(std::move(key));
    if (is_new) known->second = beside(i);
    op.listed = known->second;
    for (std::size_t k = 0; k < op.operands.size(); ++k) op.operands[k] = add_tensor(op.operands[k], i.operands[k]);
    for (std::size_t k = 0; k < op.results.size(); ++k) op.results[k] = add_tensor(op.results[k], i.results[k]);
    program_.operators.push_back(std::move(op));
    others_.push_back(i);
}

HEDDLE_INLINE std::vector<listed_computation> axis_program::beside(instruction::compute const& i) const {
    auto const& from = searched_.program();
    std::vector<listed_computation> result;
    instruction const whole = searched_.part_of(i);
    for (auto& here : computations(from, i.op)) {
        if (!goes_together(from, both(here, i)) ||
            !goes_together(searched_.given(), both(searched_.part_of(here), whole)))
            continue;
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
        if (auto const* compute = others_[o].as<instruction::compute>()) {
            key.insert(key.end(), {in_searched[compute->op], static_cast<std::uint64_t>(compute->loop + 1)});
            for (auto const* forms : {&compute->operands, &compute->results})
                for (tensor_form f : *forms) key.push_back(f.code());
        } else {
            key.insert(key.end(), {others_[o].change()->from.code(), others_[o].change()->to.code()});
        }
        for_each_tensor(program_.operators[o], [&](tensor_id t) {
            auto const stored = stored_.find(t);
            key.push_back(stored == stored_.end() ? 0 : std::uint64_t{stored->second.code()} + 1);
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
            if (!others_[compute->op].is<instruction::compute>()) return true;
            auto here = *compute;
            here.op = others_[compute->op].as<instruction::compute>()->op;
            return allowed(here);
        }
        auto const& change = *i.change();
        auto const& [t, other] = tensors_[change.tensor];
        auto const& tensor = searched_.program().tensors[t];
        auto there = i;
        there.change()->tensor = t;
        if (!allowed(there)) return false;
        if (i.is<instruction::read>()) return is_read_together(tensor, on_mesh(i));
        return find_conversion(both(change.from, other), axis_, change.to, tensor).has_value();
    };
    if (!allowed.mark) return allows;
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<std::uint64_t> marks;
    for (tensor_id t = 0; t < tensors_.size(); ++t) {
        auto const& [there, other] = tensors_[t];
        auto const stored = stored_.find(t);
        marks.push_back(
            numbers
                .insert({allowed.mark(there), other.code(),
                         stored == stored_.end() ? std::uint64_t{0} : std::uint64_t{stored->second.code()} + 1})
                .first);
    }
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

HEDDLE_INLINE mesh_instruction axis_program::on_mesh(instruction const& i) const {
    if (auto const* compute = i.as<instruction::compute>()) {
        auto const& other = others_[compute->op];
        if (other.is<instruction::compute>()) {
            auto here = *compute;
            here.op = other.as<instruction::compute>()->op;
            return both(std::move(here), other);
        }
        tensor_form const f = compute->operands[0];
        return both(instruction::convert(other.change()->tensor, f, f), other);
    }
    auto here = i;
    auto const [t, f] = tensors_[i.change()->tensor];
    here.change()->tensor = t;
    if (!i.is<instruction::read>()) return both(std::move(here), instruction::convert(t, f, f));
    instruction::read other(t, f);
    if (auto const stored = stored_.find(i.change()->tensor); stored != stored_.end()) other.from = stored->second;
    return both(std::move(here), other);
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
