// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells which operators of a program have sharding ratios in common.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/module_names.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// Numbers segments from zero, in the order in which they are first met.
[[nodiscard]] std::vector<segment_number> numbered_in_order(std::vector<segment_number> segments);

/// Makes one segment per layer: an operator belongs to the layer that its parameters' names say, up to their first part
/// with a digit (`encoder.layers.3.linear1.weight` gives `encoder.layers.3`); an operator without parameters belongs to
/// the layer of the operator before it.
/// *Throws* `input_error` if there are more layers than segment numbers.
template <single_device_program Program>
[[nodiscard]] std::vector<segment_number> segments_by_layer(Program const& p) {
    using access = program_access<Program>;
    std::map<std::string, segment_number> numbers;
    std::vector<segment_number> segments;
    segment_number current = 0;
    for (operator_id o = 0; o < static_cast<std::size_t>(access::operator_count(p)); ++o) {
        for (tensor_id t : access::operands(p, o)) {
            tensor_info const& info = access::tensor(p, t);
            if (info.role != tensor_role::parameter) continue;
            auto const layer = numbered_module(info.name);
            if (!layer) continue;
            if (numbers.size() > 65534) throw input_error("segments", "more than 65534 layers");
            current = numbers.try_emplace(*layer, static_cast<segment_number>(numbers.size())).first->second;
            break;
        }
        segments.push_back(current);
    }
    return numbered_in_order(std::move(segments));
}

/// Makes segments that begin at the operators of these names.
/// *Throws* `input_error` that names an operator that does not exist.
template <single_device_program Program>
[[nodiscard]] std::vector<segment_number> segments_from(Program const& p,
                                                        std::vector<std::string> const& first_operators) {
    using access = program_access<Program>;
    std::vector<segment_number> segments;
    segment_number current = 0;
    std::vector<bool> found(first_operators.size());
    for (operator_id o = 0; o < static_cast<std::size_t>(access::operator_count(p)); ++o) {
        auto const name = algorithm::find(first_operators, std::string(access::name(p, o)));
        if (name != first_operators.end()) {
            found[static_cast<std::size_t>(name - first_operators.begin())] = true;
            if (o > 0) ++current;
        }
        segments.push_back(current);
    }
    if (auto const missing = algorithm::find(found, false); missing != found.end())
        throw input_error("segments", "there is no operator '" +
                                          first_operators[static_cast<std::size_t>(missing - found.begin())] + "'");
    return segments;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<segment_number> numbered_in_order(std::vector<segment_number> segments) {
    std::map<segment_number, segment_number> numbers;
    for (auto& s : segments) s = numbers.try_emplace(s, static_cast<segment_number>(numbers.size())).first->second;
    return segments;
}

} // namespace heddle

#endif
