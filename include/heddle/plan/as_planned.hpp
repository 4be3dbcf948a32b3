// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The program that a plan is for, made from its model's program.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>

#include <utility>

namespace heddle {

/// Returns a model's program with the batch and the element type that were planned. *Throws* `input_error` as
/// `with_batch_size` does.
[[nodiscard]] program as_planned(program p, provenance const& from);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/rescale.hpp>

namespace heddle {

HEDDLE_INLINE program as_planned(program p, provenance const& from) {
    if (from.batch) p = with_batch_size(p, *from.batch);
    if (from.type) p = p.retyped(*from.type);
    return p;
}

} // namespace heddle

#endif
