// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What each rank of a plan keeps between iterations, and what has to move when another plan goes on.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/execute/tensor_part.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/program.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// The parts of parameters and buffers that a rank keeps; see `interpreter::place`.
using stored_parts = std::map<tensor_id, tensor_part>;

/// Returns what each rank of a plan stores. *Precondition:* `verify` accepts the plan.
[[nodiscard]] std::vector<stored_parts> stored_parts_of(program const& p, plan const& what);
/// As above. *Throws* `input_error` if the plan is none of the program; see `pipeline_layout`.
[[nodiscard]] std::vector<stored_parts> stored_parts_of(program const& p, pipeline_plan const& what);
/// As above; see `staged_layout`. *Precondition:* `verify` accepts the plan.
[[nodiscard]] std::vector<stored_parts> stored_parts_of(program const& p, staged_plan const& what);

/// Returns, by tensor, the bytes stored for each element: of its value and, if it is trained, of the optimizer's state.
[[nodiscard]] std::vector<double> stored_bytes_per_element(program const& p, training_options const& training);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/batch_split.hpp>

namespace heddle {

namespace detail {

/// Returns what a device stores of the tensors that some steps read, each in a form.
[[nodiscard]] inline stored_parts parts_read(program const& p,
                                             std::span<std::pair<tensor_id, product_form> const> reads,
                                             mesh_layout const& layout) {
    stored_parts parts;
    for (auto const& [t, f] : reads) {
        auto const& info = p.tensor(t);
        if (info.role == tensor_role::input) continue;
        bool const may_be_cut = info.role == tensor_role::parameter;
        parts.emplace(t, may_be_cut ? layout.part(t, stored_form(f)) : tensor_part::whole(info.shape));
    }
    return parts;
}

/// Adds what each rank of a plan stores. The plan's cuts are of `indexed`, whose tensors are numbered as those of `p`.
inline void add_parts(program const& p, indexed_program const& indexed, plan const& what,
                      std::vector<stored_parts>& ranks) {
    std::vector<std::pair<tensor_id, product_form>> reads;
    for (auto const& s : what.steps)
        if (s.instruction.is<instruction::read>()) reads.emplace_back(s.instruction.change()->tensor, s.from());
    auto const m = what.mesh();
    for (std::size_t device = 0; device < m.device_count(); ++device) {
        mesh_layout const layout(indexed, what.cuts, m, device);
        auto const copies = what.has_groups() ? static_cast<std::size_t>(what.devices[device].group_size) : 1;
        ranks.insert(ranks.end(), copies, parts_read(p, reads, layout));
    }
}

} // namespace detail

HEDDLE_INLINE std::vector<stored_parts> stored_parts_of(program const& p, plan const& what) {
    std::vector<stored_parts> ranks;
    detail::add_parts(p, index_for(p, what), what, ranks);
    return ranks;
}

HEDDLE_INLINE std::vector<stored_parts> stored_parts_of(program const& p, staged_plan const& what) {
    staged_layout const layout(p, what);
    std::vector<stored_parts> ranks(layout.ranks());
    for (std::size_t s = 0; s < layout.stages(); ++s) {
        std::vector<stored_parts> of_stage;
        detail::add_parts(p, layout.indexed(s), layout.plan_of(s), of_stage);
        auto part = of_stage.begin();
        for (auto const r : layout.ranks_of(s)) ranks[r].merge(std::move(*part++));
    }
    return ranks;
}

HEDDLE_INLINE std::vector<stored_parts> stored_parts_of(program const& p, pipeline_plan const& what) {
    auto const indexed = index_program(p);
    auto const split = split_along_batch(indexed);
    pipeline_layout const layout(indexed, what, split);
    std::vector<stored_parts> ranks;
    for (std::size_t rank = 0; rank < layout.ranks(); ++rank) {
        auto const at = layout.place_of(rank);
        std::vector<std::pair<tensor_id, product_form>> reads;
        for (auto const& i : layout.computation(at.stage).once)
            if (auto const* const read = i.as<instruction::read>()) reads.emplace_back(read->tensor, read->from);
        detail::mesh_layout const devices(indexed, layout.group_plan(at.stage).cuts, mesh({layout.degree(at.stage)}),
                                          at.part);
        ranks.push_back(detail::parts_read(p, reads, devices));
    }
    return ranks;
}

HEDDLE_INLINE std::vector<double> stored_bytes_per_element(program const& p, training_options const& training) {
    std::vector<double> result;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& info = p.tensor(t);
        bool const is_trained = info.role == tensor_role::parameter && info.trainable;
        result.push_back(element_size(info.type) + (is_trained ? training.state_bytes_per_element(info.type) : 0));
    }
    return result;
}

} // namespace heddle

#endif
