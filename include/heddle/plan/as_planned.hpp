// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The program that a plan is for, made from its model's program.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <utility>

namespace heddle {

/// Returns a model's program with the batch and the element type that were planned. *Throws* `input_error` as
/// `with_batch_size` does.
[[nodiscard]] program as_planned(program p, provenance const& from);

namespace detail {

/// Tells whether a plan's program may have inputs that micro-batches have whole. Plans that were made before readers of
/// models told these apart have none.
[[nodiscard]] bool may_have_whole_inputs(plan const& p);
[[nodiscard]] bool may_have_whole_inputs(staged_plan const& p);
[[nodiscard]] bool may_have_whole_inputs(pipeline_plan const& p);

} // namespace detail

/// As above, with inputs that micro-batches have whole only if the plan has.
template <class Plan>
[[nodiscard]] program as_planned(program p, Plan const& what) {
    p = as_planned(std::move(p), what.provenance);
    return detail::may_have_whole_inputs(what) ? p : p.without_whole_inputs();
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle::detail {

HEDDLE_INLINE bool may_have_whole_inputs(plan const& p) {
    return algorithm::any_of(p.tensors, [](plan_tensor const& t) { return !t.whole_of.empty(); });
}
HEDDLE_INLINE bool may_have_whole_inputs(staged_plan const& p) {
    return algorithm::any_of(p.stages, [](planned_stage const& s) { return may_have_whole_inputs(s.plan); });
}
HEDDLE_INLINE bool may_have_whole_inputs(pipeline_plan const& p) {
    return p.groups.empty() ||
           algorithm::any_of(p.groups, [](auto const& g) { return may_have_whole_inputs(g.second); });
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program as_planned(program p, provenance const& from) {
    if (from.batch) p = with_batch_size(p, *from.batch);
    if (from.type) p = p.retyped(*from.type);
    return p;
}

} // namespace heddle

#endif
