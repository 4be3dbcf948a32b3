// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs of one axis of a mesh, explored and priced.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
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
    /// Prices programs at shares of the given program's factors, which are equal where extents are.
    [[nodiscard]] priced_graph price(cost_model const& model, largest_shares const& shares);
    /// Returns the program of a path on all axes.
    [[nodiscard]] mesh_instructions instructions_of(move_list const& path) const;

private:
    [[nodiscard]] step_work step_of(std::uint32_t number, std::size_t op);
    /// Returns a share in place of one of the given program: of a tensor here, and with the number of the cut as factor.
    [[nodiscard]] share_ref stand_in(share_ref given, tensor_id here);

    mesh mesh_;
    training_options training_;
    axis_program program_;
    cut_space space_;
    cut_graph graph_;
    std::vector<step_work> steps_;
    /// Cuts of the given program's factors: those of equal extent are one, if they are cut alike inside.
    std::vector<share_ref> cuts_;
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

HEDDLE_INLINE share_ref mesh_axis::stand_in(share_ref given, tensor_id here) {
    if (!given.is_split()) return given;
    auto const& tensors = program_.searched().given().tensors;
    auto const extent_of = [&](share_ref ref) {
        return tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].extent;
    };
    factor_number number = 0;
    for (auto const& cut : cuts_) {
        if (extent_of(cut) == extent_of(given) && cut.inside == given.inside) return {here, number};
        ++number;
    }
    cuts_.push_back(given);
    return {here, number};
}

HEDDLE_INLINE step_work mesh_axis::step_of(std::uint32_t number, std::size_t op) {
    auto const& i = space_.instructions()[number];
    auto const there = program_.in_given(i);
    if (!there) return {};
    auto s = make_step(program_.searched().given(), *there, mesh_, training_);
    auto const t = i.change() ? i.change()->tensor : program_.program().operators[op].results[0];
    auto const place = [&](share_ref& ref) { ref = stand_in(ref, t); };
    place(s.share);
    for_each_transfer(s, [&](transfer& x) { place(x.from), place(x.to); });
    return s;
}

namespace detail {

/// Shares of cuts, by their number in place of a factor.
struct shares_of_cuts {
    std::vector<share_ref> const& cuts;
    largest_shares const& shares;
    [[nodiscard]] bool is_by_extent() const { return shares.is_by_extent(); }
    share_vector const& operator()(share_ref ref) const { return shares(cuts[static_cast<std::size_t>(ref.factor)]); }
};

} // namespace detail

HEDDLE_INLINE priced_graph mesh_axis::price(cost_model const& model, largest_shares const& shares) {
    auto const held = [this](tensor_id t, tensor_form f) {
        auto const [there, form] = program_.on_mesh(t, f);
        return std::pair(saved_bytes(program_.searched().given(), there, form, mesh_, training_.held()),
                         stand_in(share_of(there, form, mesh_), t));
    };
    return {space_, graph_, steps_, model, detail::shares_of_cuts{cuts_, shares}, training_, held};
}

HEDDLE_INLINE mesh_instructions mesh_axis::instructions_of(move_list const& path) const {
    mesh_instructions result;
    for (auto const& i : space_.instructions_of(path)) result.push_back(program_.on_mesh(i));
    return result;
}

} // namespace heddle

#endif
