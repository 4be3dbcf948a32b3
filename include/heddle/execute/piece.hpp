// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Some steps of a plan as a plan of their own, which can be run where the whole plan is too large.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A range of a plan's steps as a plan, with the program that it is of.
struct plan_piece {
    planned_program what;
    /// The plan's steps that it has, ascending.
    std::vector<std::size_t> steps;
};

/// The pieces of one plan.
///
/// A piece has the computations of a range of steps, and whatever reads and conversions bring their operands from where
/// they were read or computed, with the plan's forms, loops, counts of atoms and ways of moving shards. A value that is
/// computed before the range enters as a parameter, or an input if it has no cotangent, in the form that it was
/// computed in: devices hold independent summands of a partial one. The loss is a sum of products: each value that
/// later steps use, in the form that it is computed in, times a parameter of its own, of which the devices hold
/// independent summands if the value is replicated. So the gradients of the first are the cotangents that the piece
/// gives for independent cotangents of its results, and those of the second are its results, element by element: if a
/// set of pieces that has every step agrees with a single device, forward and adjoint, then by composition so does the
/// plan.
///
/// A piece runs one of the micro-batches that take turns, and one device of a device group.
class plan_pieces {
public:
    /// *Precondition:* `verify` accepts the plan of the program of which this is `one_in_turn`. Keeps a reference to the
    /// plan.
    plan_pieces(program part, plan const& what);

    /// Steps that bear on the loss, ascending.
    [[nodiscard]] std::vector<std::size_t> const& steps() const { return steps_; }
    /// Returns a computation's step with the reads and conversions that it takes; nothing for another step.
    [[nodiscard]] std::vector<std::size_t> const& of_computation(std::size_t n) const { return taken_[n]; }
    /// Tells whether a step computes.
    [[nodiscard]] bool computes(std::size_t n) const { return plan_.steps[n].instruction.is<instruction::compute>(); }
    /// The piece of steps [first, last). Nothing if it has no computation, or if factors have a meaning that only
    /// operators outside give them.
    /// *Complexity.* That of the plan, and of indexing the piece.
    [[nodiscard]] std::optional<plan_piece> of(std::size_t first, std::size_t last) const;
    /// What a step is and the forms of all that it touches, its extents and counts among them: steps of one text run
    /// alike, but for data.
    [[nodiscard]] std::string kind_of(std::size_t n) const;

private:
    [[nodiscard]] std::string text_of(tensor_id t, tensor_form f) const;
    void collect();

    program program_;
    indexed_program indexed_;
    plan const& plan_;
    std::vector<std::size_t> step_of_, steps_;
    std::vector<std::vector<std::size_t>> taken_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/piece_builder.hpp>

namespace heddle {

HEDDLE_INLINE plan_pieces::plan_pieces(program part, plan const& what)
    : program_(std::move(part)), indexed_(index_program(program_, what.segments)), plan_(what),
      step_of_(program_.operator_count()) {
    for (std::size_t n = 0; n < what.steps.size(); ++n)
        if (auto const* compute = what.steps[n].instruction.as<instruction::compute>()) step_of_[compute->op] = n;
    steps_ = detail::piece_builder(program_, indexed_, plan_, step_of_, 0, what.steps.size()).steps();
    collect();
}

HEDDLE_INLINE void plan_pieces::collect() {
    taken_.resize(plan_.steps.size());
    std::map<std::pair<tensor_id, tensor_form>, std::size_t> made_by;
    std::size_t loss = 0;
    for (auto n : steps_) {
        auto const& i = plan_.steps[n].instruction;
        if (auto const* reshard = i.as<instruction::reshard>()) {
            taken_[step_of_[indexed_.tensors[reshard->tensor].consumers.front()]].push_back(n);
        } else if (auto const* change = i.change()) {
            made_by[{change->tensor, change->to}] = n;
            if (change->tensor == indexed_.loss) taken_[loss].push_back(n);
        } else {
            auto const& compute = *i.as<instruction::compute>();
            auto const& op = indexed_.operators[compute.op];
            taken_[n].push_back(n);
            for (std::size_t k = 0; k < op.operands.size(); ++k)
                for (std::pair from(op.operands[k], compute.operands[k]);;) {
                    auto const step = made_by.find(from);
                    if (step == made_by.end()) break;
                    taken_[n].push_back(step->second);
                    auto const& way = plan_.steps[step->second].instruction;
                    if (way.is<instruction::read>()) break;
                    from.second = way.change()->from;
                }
            if (algorithm::find(op.results, indexed_.loss) != op.results.end()) loss = n;
        }
    }
}

HEDDLE_INLINE std::optional<plan_piece> plan_pieces::of(std::size_t first, std::size_t last) const {
    detail::piece_builder builder(program_, indexed_, plan_, step_of_, first, last);
    auto made = builder.build();
    if (!made) return {};
    return plan_piece{*std::move(made), builder.steps()};
}

HEDDLE_INLINE std::string plan_pieces::text_of(tensor_id t, tensor_form f) const {
    auto const& tensor = indexed_.tensors[t];
    std::string text = name(tensor.info.type);
    for (extent e : tensor.info.shape) text += ' ' + std::to_string(e);
    text += tensor.has_cotangent ? " differentiated " : " ";
    if (!f.is_shard()) return text + to_string(f);
    auto const& place = tensor.factors[static_cast<std::size_t>(f.factor())];
    text += "cut " + std::to_string(place.dimension) + ' ' + std::to_string(place.extent) + ' ' +
            std::to_string(place.stride);
    for (extent width : place.widths) text += '+' + std::to_string(width);
    text += ':';
    for (auto const& cut : plan_.cuts)
        if (algorithm::find(cut.members, cut_factor{t, f.factor()}) != cut.members.end())
            for (extent count : cut.counts) text += ' ' + std::to_string(count * (place.extent / cut.atoms));
    return text;
}

HEDDLE_INLINE std::string plan_pieces::kind_of(std::size_t n) const {
    auto const& i = plan_.steps[n].instruction;
    auto const& s = plan_.steps[n].step;
    std::string text = std::to_string(static_cast<int>(i.type()));
    auto const add = [&](auto const&... parts) { ((text += '|' + parts), ...); };
    for_each_transfer(s, [&](transfer const& t) {
        text += t.how ? std::to_string(static_cast<int>(*t.how)) + ',' : std::string(",");
    });
    if (auto const* change = i.change()) {
        auto const* const unshard = i.as<instruction::unshard>();
        add(text_of(change->tensor, change->from), text_of(change->tensor, change->to),
            std::to_string(unshard && unshard->is_resharded),
            std::to_string(static_cast<int>(indexed_.tensors[change->tensor].info.role)));
        return text;
    }
    auto const& compute = *i.as<instruction::compute>();
    auto const& op = indexed_.operators[compute.op];
    auto const& rule = program_.rule(compute.op);
    add(program_.kind(compute.op), std::to_string(compute.loop));
    for (std::size_t k = 0; k < compute.operands.size(); ++k) add(text_of(op.operands[k], compute.operands[k]));
    for (std::size_t k = 0; k < compute.results.size(); ++k) add(text_of(op.results[k], compute.results[k]));
    for (auto const* side : {&rule.operands, &rule.results})
        for (auto const& access : *side) {
            text += '|';
            for (auto const& dimension : access) {
                for (auto index : dimension) text += std::to_string(index) + ' ';
                text += ',';
            }
        }
    for (auto const& index : rule.indices) {
        add(std::to_string(index.extent), std::to_string(static_cast<int>(index.kind)));
        for (auto piece : index.pieces) text += '+' + std::to_string(piece);
    }
    for (auto const& term : rule.terms) {
        text += '|';
        for (auto k : term) text += std::to_string(k) + '*';
    }
    for (auto const& [attribute, numbers] : program_.attributes(compute.op)) {
        add(attribute);
        for (double number : numbers) text += ' ' + std::to_string(number);
    }
    return text;
}

} // namespace heddle

#endif
