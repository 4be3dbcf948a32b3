// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A program with other extents of some factors, for another batch, more experts or wider layers.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/factor_set.hpp>

#include <concepts>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Calls `visit(index, stride, tensor, factor)` for every factor of an operator's tensors, with the index that it is in
/// and its stride there.
template <class Visit>
void for_each_indexed_factor(program const& p, indexed_program const& indexed, operator_id o, Visit&& visit) {
    auto const& rule = p.rule(o);
    auto const walk = [&](tensor_id t, indexed_access const& access) {
        auto const& factors = indexed.tensors[t].factors;
        for (std::size_t d = 0; d < access.size(); ++d) {
            extent low = 1;
            for (auto i = access[d].rbegin(); i != access[d].rend(); ++i) {
                extent const high = low * rule.indices[*i].extent;
                for (std::size_t f = 0; f < factors.size(); ++f)
                    if (factors[f].dimension == d && factors[f].widths.empty() && factors[f].stride >= low &&
                        factors[f].stride * factors[f].extent <= high) {
                        visit(*i, factors[f].stride / low, cut_factor{t, static_cast<factor_number>(f)});
                        for (auto piece : rule.indices[*i].pieces) // which shrink or grow with their whole
                            visit(piece, factors[f].stride / low, cut_factor{t, static_cast<factor_number>(f)});
                    }
                low = high;
            }
        }
    };
    for (std::size_t k = 0; k < rule.operands.size(); ++k) walk(p.operands(o)[k], rule.operands[k]);
    for (std::size_t k = 0; k < rule.results.size(); ++k) walk(p.results(o)[k], rule.results[k]);
}

[[nodiscard]] program with_samples(program const& p, extent samples, bool whole_inputs_too);

} // namespace detail

/// Returns the program in which the extents of some factors, numbered as in `index_program(p)`, and of all that rules
/// tie to them, are multiplied by `numerator / denominator`. Attributes of operators stay, so the result is for
/// planning, not for running.
///
/// *Throws* `input_error` if an extent is then no whole number or rules contradict each other.
/// *Complexity.* That of indexing the program, times the longest chain of ties against the order of operators.
[[nodiscard]] program rescaled(program const& p, std::vector<cut_factor> const& factors, extent numerator,
                               extent denominator = 1);

/// Returns the program for a batch of another size. *Throws* `input_error` if no input has a batch, and as `rescaled`
/// does.
[[nodiscard]] program with_batch_size(program const& p, extent size);
/// Returns the program of a part of the batch, of so many samples: inputs that every part has whole stay as they are.
/// *Throws* `input_error` as above.
[[nodiscard]] program with_part_of_batch(program const& p, extent samples);
template <single_device_program Program>
    requires(!std::same_as<Program, program>)
[[nodiscard]] program with_batch_size(Program const& p, extent size) {
    (void)index_program(p);
    return with_batch_size(program_of(p), size);
}
template <single_device_program Program>
    requires(!std::same_as<Program, program>)
[[nodiscard]] program with_part_of_batch(Program const& p, extent samples) {
    (void)index_program(p);
    return with_part_of_batch(program_of(p), samples);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE program rescaled(program const& p, std::vector<cut_factor> const& factors, extent numerator,
                               extent denominator) {
    auto const indexed = index_program(p);
    factor_set scaled(indexed);
    scaled.insert(factors);
    std::vector<std::set<std::pair<std::size_t, extent>>> pieces(p.operator_count()); // of indices, by their stride
    for (bool changed = true; changed;) {
        changed = false;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            detail::for_each_indexed_factor(p, indexed, o, [&](std::size_t index, extent stride, cut_factor f) {
                bool const is_scaled = scaled.contains(f);
                if (is_scaled) changed |= pieces[o].insert({index, stride}).second;
                else if (pieces[o].contains({index, stride})) scaled.insert(f), changed = true;
            });
    }
    std::vector<std::vector<extent>> extents;
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto& mine = extents.emplace_back();
        for (auto const& index : p.rule(o).indices) mine.push_back(index.extent);
        for (auto const& [index, stride] : pieces[o]) {
            mine[index] *= numerator;
            if (mine[index] % denominator != 0 || mine[index] < denominator)
                throw input_error("operator '" + std::string(p.name(o)) + "', index '" + p.rule(o).indices[index].name +
                                      "'",
                                  "its extent times " + std::to_string(numerator) + " / " +
                                      std::to_string(denominator) + " is no whole number");
            mine[index] /= denominator;
        }
    }
    return p.resized(extents);
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE program with_samples(program const& p, extent samples, bool whole_inputs_too) {
    auto const indexed = index_program(p);
    auto const now = batch_size_of(indexed);
    if (samples < 1) throw input_error("batch", "is " + std::to_string(samples) + ", expected one at least");
    auto result = rescaled(p, batch_of_inputs(indexed, whole_inputs_too), samples, now);
    for (tensor_id t = 0; t < p.tensor_count() && whole_inputs_too; ++t)
        if (result.tensor(t).shape != result.tensor(p.data_of(t)).shape)
            throw input_error("input '" + p.tensor(t).name + "'",
                              "is the whole of '" + p.tensor(t).whole_of + "', but where its batch is cannot be told");
    return result;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program with_batch_size(program const& p, extent size) { return detail::with_samples(p, size, true); }

HEDDLE_INLINE program with_part_of_batch(program const& p, extent samples) {
    return detail::with_samples(p, samples, false);
}

} // namespace heddle

#endif
