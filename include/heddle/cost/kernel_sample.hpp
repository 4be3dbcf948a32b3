// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a measured kernel is a sample of.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/sample.hpp>
#include <heddle/cost/work.hpp>
#include <heddle/program/indexed_program.hpp>

#include <string>

namespace heddle {

/// Reads a program whose calls are measured one by one: none adds up the cotangents of several uses.
[[nodiscard]] indexed_program index_calls(program const& p);

/// Returns a sample of a step's forward or backward kernel with this share of what is split, as its call is measured on
/// a device that computes in a type; the time is left to whoever measures. The step is of a program
/// from `index_calls`.
[[nodiscard]] sample sample_of(step_work const& s, bool is_backward, std::string device, element_type type,
                               double share = 1);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <algorithm>
#include <utility>

namespace heddle {

HEDDLE_INLINE indexed_program index_calls(program const& p) {
    auto indexed = index_program(p);
    for (auto& t : indexed.tensors) t.uses = std::min(t.uses, 1u);
    return indexed;
}

HEDDLE_INLINE sample sample_of(step_work const& s, bool is_backward, std::string device, element_type type,
                               double share) {
    auto const& work = s.work(is_backward);
    double const scale = is_floating(s.type) ? element_size(type) / element_size(s.type) : 1;
    auto const moved = [&](bytes whole, bytes split) { return (whole + split * share) * scale; };
    sample result{s.category, std::move(device), 0, type, work.operations * share, moved(work.whole, work.split)};
    if (!s.kind.empty()) result.of = {s.kind, is_backward};
    result.beside = moved(work.beside.whole, work.beside.split);
    result.kernels_beside = work.kernels_beside;
    return result;
}

} // namespace heddle

#endif
