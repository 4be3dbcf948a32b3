// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline plan and its program with smaller dimensions and fewer micro-batches, so that models too large to
/// run can be run.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A program and a pipeline plan of it.
struct pipelined_program {
    heddle::program program;
    pipeline_plan plan;
};

namespace detail {

/// Returns the number of samples that leaves each copy micro-batches of two samples, the last of the last copy one
/// sample short, if the plan has several samples in each.
[[nodiscard]] extent fewer_samples(pipeline_plan const& what, std::int64_t micro_batches);

} // namespace detail

/// Scales dimensions down and keeps every operator, stage, copy and tensor group, and the forms of their tensors; cuts
/// of groups are made coarse. If there are more micro-batches than stages, one more than stages remain: the first stage
/// then has as many in flight as planned.
///
/// The plan's predictions are left out, as they are for the large program. What cannot be made smaller is returned as
/// it is.
/// *Precondition:* `verify(p, what)`. *Complexity.* That of `shrink` of a plan.
[[nodiscard]] pipelined_program shrink(program const& p, pipeline_plan const& what);

/// Returns an upper bound of the size of `prove` of a pipeline plan: all tensors and cotangents of the single device
/// or, later, of all ranks that hold them whole, beside sources and gradients, in double precision.
[[nodiscard]] execution_size size_of_execution(indexed_program const& p, pipeline_plan const& what);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/size_ties.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/program/equal_structure.hpp>
#include <heddle/theory/batch.hpp>

namespace heddle::detail {

HEDDLE_INLINE extent fewer_samples(pipeline_plan const& what, std::int64_t micro_batches) {
    extent const each = what.micro_batch_size == 1 ? 1 : 2;
    return std::max<extent>(1, static_cast<extent>(what.copies()) * each * micro_batches - (each > 1 ? 1 : 0));
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE pipelined_program shrink(program const& p, pipeline_plan const& what) {
    auto const indexed = index_program(p);
    auto const batch = batch_of_inputs(indexed);
    pipelined_program result{p, what};
    auto& plan = result.plan;
    plan.micro_batches = std::min<std::int64_t>(what.micro_batches, static_cast<std::int64_t>(what.stages.size()) + 1);
    std::vector<atom_class> all;
    if (!batch.empty()) all.push_back({detail::fewer_samples(what, plan.micro_batches), batch, {}});
    for (auto& [devices, group] : plan.groups) {
        group.cuts = detail::coarser(std::move(group.cuts), 4 * static_cast<extent>(devices));
        algorithm::copy(group.cuts, std::back_inserter(all));
    }
    try {
        result.program = p.resized(detail::size_ties(p, all).small_extents());
    } catch (input_error const&) { return {p, what}; } // extents that rules do not agree about
    for (auto& [devices, group] : plan.groups) {
        auto made = detail::plan_of_smaller(indexed, index_for(result.program, group), group, group.cuts);
        if (!made) return {p, what};
        group = *std::move(made);
    }
    auto const after = index_program(result.program);
    if (!have_equal_structure(indexed, after)) return {p, what};
    if (!batch.empty()) {
        auto const samples = batch_size_of(after), copies = static_cast<extent>(what.copies()),
                   each = (samples + copies - 1) / copies;
        plan.micro_batch_size = (each + plan.micro_batches - 1) / plan.micro_batches;
        plan.micro_batches = (each + plan.micro_batch_size - 1) / plan.micro_batch_size;
        plan.global_batch = samples;
    }
    return verify(result.program, plan) ? std::move(result) : pipelined_program{p, what};
}

HEDDLE_INLINE execution_size size_of_execution(indexed_program const& p, pipeline_plan const& what) {
    double degree = 1;
    for (auto const& s : what.stages) degree = std::max(degree, static_cast<double>(s.degree()));
    double const ranks = degree * static_cast<double>(what.copies());
    bytes sources, values;
    flops work;
    for (auto const& t : p.tensors)
        (t.is_source() ? sources : values) +=
            bytes(8 * static_cast<double>(t.info.elements()) * (t.has_cotangent ? 2 : 1));
    for (auto const& op : p.operators) work += op.work.forward + op.work.backward;
    return {sources + std::max(sources + values, sources * ranks + values * degree), work * (1 + degree)};
}

} // namespace heddle

#endif
