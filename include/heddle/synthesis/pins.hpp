// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tensors that are to have given forms, or not to have them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// A tensor that is to have a form, as its source is read or its operator leaves it, or any form but that. A parameter is
/// gathered along its finest factor (see `cut_space`); if it is pinned to another factor, it is gathered along that one.
struct pinned_tensor {
    tensor_id tensor = 0;
    tensor_form form = tensor_form::replicated();
    /// The factor of a shard, without regard to segments; planners fill it in.
    std::optional<factor> cut{};
    bool is_forbidden = false;
};

[[nodiscard]] inline std::vector<tensor_id> tensors_of(std::vector<pinned_tensor> const& pinned) {
    std::vector<tensor_id> tensors;
    for (auto const& pin : pinned) tensors.push_back(pin.tensor);
    return tensors;
}

/// Looks up the factors of pinned shards. *Precondition:* forms are those of the program `p` in one segment.
void find_cuts(indexed_program const& p, std::vector<pinned_tensor>& pinned);

/// Tells whether an instruction leaves what is pinned in forms that it may have. *Precondition:* `find_cuts` was called.
[[nodiscard]] bool keeps_pins(indexed_program const& p, std::vector<pinned_tensor> const& pinned, instruction const& i);

/// Returns the filter, further restricted to what keeps the pins. It keeps a reference to the program.
[[nodiscard]] instruction_filter with_pins(indexed_program const& p, std::vector<pinned_tensor> const& pinned,
                                           instruction_filter filter);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void find_cuts(indexed_program const& p, std::vector<pinned_tensor>& pinned) {
    for (auto& pin : pinned)
        if (pin.form.is_shard()) pin.cut = p.tensors[pin.tensor].factors[static_cast<std::size_t>(pin.form.factor())];
}

HEDDLE_INLINE bool keeps_pins(indexed_program const& p, std::vector<pinned_tensor> const& pinned,
                              instruction const& i) {
    auto const keeps = [&](tensor_id t, tensor_form f) {
        return algorithm::all_of(pinned, [&](pinned_tensor const& pin) {
            if (pin.tensor != t) return true;
            bool const is_form =
                pin.cut && f.is_shard()
                    ? is_same_place(*pin.cut, p.tensors[t].factors[static_cast<std::size_t>(f.factor())])
                    : pin.form == f;
            return is_form != pin.is_forbidden;
        });
    };
    if (auto const* read = i.as<instruction::read>()) return keeps(read->tensor, read->to);
    auto const* const compute = i.as<instruction::compute>();
    if (!compute) return true;
    auto const& results = p.operators[compute->op].results;
    for (std::size_t k = 0; k < results.size(); ++k)
        if (!keeps(results[k], compute->results[k])) return false;
    return true;
}

HEDDLE_INLINE instruction_filter with_pins(indexed_program const& p, std::vector<pinned_tensor> const& pinned,
                                           instruction_filter filter) {
    if (pinned.empty()) return filter;
    auto const allows = [&p, pinned, filter](instruction const& i) { return filter(i) && keeps_pins(p, pinned, i); };
    if (!filter.mark) return allows;
    auto const mark = [pinned, filter](tensor_id t) {
        bool const is_pinned = algorithm::find(pinned, t, &pinned_tensor::tensor) != pinned.end();
        return is_pinned ? (std::uint64_t{1} << 63) | t : filter.mark(t);
    };
    return {allows, mark};
}

} // namespace heddle

#endif
