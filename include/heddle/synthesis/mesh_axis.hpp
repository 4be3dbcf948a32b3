// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs of one axis of a mesh, explored and priced.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/cut_space.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// Return a number for an instruction of one axis, which sums to little for a program that cuts data, or parameters.
[[nodiscard]] double but_for_cut_data(indexed_program const& p, instruction const& i);
[[nodiscard]] double but_for_cut_tensors(indexed_program const& p, instruction const& i);

/// The programs of one axis where the others' are given, as a layered graph, and their steps.
class mesh_axis {
public:
    /// Keeps at most `width` states per cut.
    mesh_axis(searched_program const& searched, mesh const& m, axis_number axis, mesh_instructions const& others,
              instruction_filter const& allowed, training_options const& training, std::size_t width);
    mesh_axis(mesh_axis const&) = delete;

    [[nodiscard]] axis_program const& program() const { return program_; }
    [[nodiscard]] cut_graph const& graph() const { return graph_; }
    [[nodiscard]] priced_graph price(cost_model const& model, share_vector shares) const;
    /// Returns the program of a path on all axes.
    [[nodiscard]] mesh_instructions instructions_of(move_list const& path) const;

private:
    [[nodiscard]] step_work step_of(std::uint32_t number, std::size_t op) const;

    mesh mesh_;
    training_options training_;
    axis_program program_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_step.hpp>
#include <heddle/search/state_graph.hpp>

namespace heddle {

HEDDLE_INLINE double but_for_cut_data(indexed_program const& p, instruction const& i) {
    auto const* const read = i.as<instruction::read>();
    if (!read) return !i.is<instruction::compute>() ? 1.0 : is_split(i) ? 0.0 : 0.1;
    bool const is_trained = p.tensors[read->tensor].is_parameter();
    return is_trained && (read->from != read->to || !read->to.is_whole()) ? 1.0 : 0.0;
}

HEDDLE_INLINE double but_for_cut_tensors(indexed_program const& p, instruction const& i) {
    auto const* const read = i.as<instruction::read>();
    if (!read) return !i.is<instruction::compute>() ? 0.01 : is_split(i) ? 0.0 : 0.1;
    return p.tensors[read->tensor].is_parameter() && !read->to.is_shard() ? 1.0 : 0.0;
}

HEDDLE_INLINE mesh_axis::mesh_axis(searched_program const& searched, mesh const& m, axis_number axis,
                                   mesh_instructions const& others, instruction_filter const& allowed,
                                   training_options const& training, std::size_t width)
    : mesh_(m), training_(training), program_(searched, axis, others), space_(program_.program(), program_.kinds()) {
    space_.restrict_to(program_.filter(allowed));
    graph_ = search::explore(space_, width);
    steps_.resize(space_.instructions().size());
    std::vector<bool> is_made(steps_.size());
    for (auto const& move : space_.moves())
        for (auto i : move.instructions) {
            if (is_made[i]) continue;
            is_made[i] = true;
            steps_[i] = step_of(i, move.kind);
        }
}

HEDDLE_INLINE step_work mesh_axis::step_of(std::uint32_t number, std::size_t op) const {
    auto const& i = space_.instructions()[number];
    auto const there = program_.in_given(i);
    if (!there) return {};
    auto s = make_step(program_.searched().given(), *there, mesh_, training_);
    // Shares are equal everywhere, so that any tensor of the operator will do.
    auto const t = i.change() ? i.change()->tensor : program_.program().operators[op].results[0];
    auto const place = [&](share_ref& ref) {
        if (ref.is_split()) ref = {t, 0};
    };
    place(s.share);
    for_each_transfer(s, [&](transfer& x) { place(x.from), place(x.to); });
    return s;
}

HEDDLE_INLINE priced_graph mesh_axis::price(cost_model const& model, share_vector shares) const {
    auto const held = [this](tensor_id t, tensor_form f) {
        auto const [there, form] = program_.on_mesh(t, f);
        return std::pair(saved_bytes(program_.searched().given(), there, form, mesh_, training_.held()),
                         form[0].is_shard() ? share_ref{t, 0} : share_ref{});
    };
    return {space_, graph_, steps_, model, uniform_shares(std::move(shares)), training_, held};
}

HEDDLE_INLINE mesh_instructions mesh_axis::instructions_of(move_list const& path) const {
    mesh_instructions result;
    for (std::size_t level = 0; level < path.size(); ++level) {
        auto const op = space_.operator_of(level, path[level]);
        for (auto i : space_.moves()[path[level]].instructions)
            result.push_back(program_.on_mesh(space_.at(op, space_.instructions()[i])));
    }
    return result;
}

} // namespace heddle

#endif
