// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the operators of a program need from the data in its sources.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/inverse_ranges.hpp>
#include <heddle/execute/detail/known_ranges.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The ranges of probabilities and of what must be positive, so that one less such a number is positive too.
inline constexpr number_range probability_range{0.25, 0.75}, log_probability_range{-2, -0.1};

/// What the users of a tensor need from its elements.
struct wanted_values {
    /// For integers, what their users look up in.
    number_range places{};
    /// A label that does not count. It need not be in the range if all who look it up ignore it.
    std::optional<extent> ignored{};
    int lookups = 0, ignoring = 0;
    /// Where an operator is a function at all, for variances, class weights, operands of roots and logarithms, and
    /// probabilities.
    std::optional<number_range> range{};
    /// For truth values, tells whether those that are set take part; otherwise those that are not set do.
    bool takes_part = false;
    /// For a mask by which elements are taken, how many are set.
    std::optional<extent> ones{};
    /// The number of terms that one element of a result adds up.
    extent fan_in = 1;

    [[nodiscard]] bool may_be_ignored() const { return ignored && lookups == ignoring; }
    void ignore(extent label);
    /// If ranges have nothing in common, the first holds.
    void restrict_to(number_range r);
    /// Takes over what the user of a copy needs.
    void take_over(wanted_values const& other);
};

/// Walks the operators backwards: what is needed from a result is asked of its operands, by the tables of inverses.
class value_requests {
public:
    explicit value_requests(program const& p);
    [[nodiscard]] wanted_values const& of(tensor_id t) const { return wanted_[t]; }
    /// Tells whether a source has as many ones as are wanted, and zeros elsewhere.
    [[nodiscard]] bool has_ones(tensor_id t) const {
        return wanted_[t].ones && wanted_[t].places.contains(truth_range);
    }
    /// Returns what is asked of tensors and cannot be ensured by drawing sources in ranges, or is not known to be: it
    /// may hold by chance, and perhaps always.
    [[nodiscard]] std::vector<std::string> const& left_to_chance() const { return left_; }

private:
    [[nodiscard]] static std::string has_text(number_range const& r) {
        return "is in [" + text(r.low) + ", " + text(r.high) + ")";
    }
    [[nodiscard]] static std::string has_text(extent ones) { return "has " + std::to_string(ones) + " ones"; }
    [[nodiscard]] static std::string text(double bound) {
        return std::isfinite(bound) ? std::to_string(static_cast<extent>(bound)) : bound < 0 ? "-inf" : "inf";
    }

    void leave(tensor_id t, std::string const& what);
    void ask(tensor_id t, number_range const& r);
    void ask(tensor_id t, extent ones);
    /// Asks of a source what is asked of another that has its data.
    void ask_as_of(tensor_id t, tensor_id other);
    /// Asks of the operands what is asked of the results.
    void hand_back(operator_id o);
    /// Asks the range of a product, quotient or sum with a number of its operand.
    void hand_back_range(operator_id o);

    [[nodiscard]] std::optional<double> attribute(operator_id o, char const* name) const {
        return number_of(program_, o, name);
    }
    [[nodiscard]] wanted_values& operand(operator_id o, std::size_t k) { return wanted_[program_.operands(o)[k]]; }
    [[nodiscard]] tensor_shape const& operand_shape(operator_id o, std::size_t k) const {
        return program_.tensor(program_.operands(o)[k]).shape;
    }

    void visit(operator_id o);

    /// Asks that places be within what is looked up in, and of a mask that it have as many ones as elements are taken.
    void ask_places(operator_id o);

    /// A result is a sum over indices that it does not have. A rule may also name indices inside an operator (heads):
    /// there are no more terms than the dimensions of a weight other than the first make.
    void count_terms(operator_id o, std::size_t k);

    program const& program_;
    std::vector<number_range> known_;
    std::vector<wanted_values> wanted_;
    std::vector<std::string> left_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/lookups.hpp>

namespace heddle::detail {

HEDDLE_INLINE void wanted_values::ignore(extent label) {
    ignored = label;
    ++ignoring;
}

HEDDLE_INLINE void wanted_values::restrict_to(number_range r) {
    number_range const both = range ? *range & r : r;
    if (!both.is_empty()) range = both;
}

HEDDLE_INLINE void wanted_values::take_over(wanted_values const& other) {
    if (other.may_be_ignored()) ignore(*other.ignored);
    if (other.range) restrict_to(*other.range);
    takes_part |= other.takes_part;
    fan_in = std::max(fan_in, other.fan_in);
}

HEDDLE_INLINE value_requests::value_requests(program const& p)
    : program_(p), known_(known_ranges(p)), wanted_(p.tensor_count()) {
    for (auto o = static_cast<operator_id>(p.operator_count()); o-- > 0;) visit(o);
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (auto const data = p.data_of(t); data != t) ask_as_of(data, t);
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (auto const ones = wanted_[t].ones; ones && p.tensor(t).role != tensor_role::value && !has_ones(t))
            leave(t, has_text(*ones));
}

HEDDLE_INLINE void value_requests::leave(tensor_id t, std::string const& what) {
    auto entry = "'" + program_.tensor(t).name + "' " + what;
    if (algorithm::find(left_, entry) == left_.end()) left_.push_back(std::move(entry));
}

HEDDLE_INLINE void value_requests::ask(tensor_id t, number_range const& r) {
    auto const type = program_.tensor(t).type;
    bool const is_truth = type == element_type::boolean;
    auto& places = wanted_[t].places;
    if (r.contains(is_truth ? truth_range : known_[t])) return;
    ++wanted_[t].lookups;
    auto const both = is_truth ? places & r & truth_range : places & r;
    if (is_floating(type)) leave(t, has_text(r));
    else if (both.is_empty()) leave(t, has_text(r) + " and in [" + text(places.low) + ", " + text(places.high) + ")");
    else places = both;
}

HEDDLE_INLINE void value_requests::ask(tensor_id t, extent ones) {
    auto& wanted = wanted_[t].ones;
    if (wanted && *wanted != ones) leave(t, has_text(ones) + " and " + std::to_string(*wanted) + " ones");
    wanted = ones;
}

HEDDLE_INLINE void value_requests::ask_as_of(tensor_id t, tensor_id other) {
    auto const& asked = wanted_[other];
    if (!asked.places.contains({})) ask(t, asked.places);
    if (asked.ones) ask(t, *asked.ones);
    wanted_[t].take_over(asked);
}

HEDDLE_INLINE void value_requests::hand_back(operator_id o) {
    for (std::size_t j = 0; j < program_.results(o).size(); ++j)
        for (std::size_t k = 0; k < program_.operands(o).size(); ++k) {
            tensor_id const result = program_.results(o)[j], operand = program_.operands(o)[k];
            auto const [places, ones] = std::pair(wanted_[result].places, wanted_[result].ones);
            backward_step const step{program_, o, j, k, known_};
            if (!places.contains({})) {
                auto const range = inverse_of(places, step);
                if (range && !range->is_empty()) ask(operand, *range);
                else leave(result, has_text(places));
            }
            if (ones) {
                if (auto const count = inverse_count(*ones, step)) ask(operand, *count);
                else leave(result, has_text(*ones));
            }
        }
}

HEDDLE_INLINE void value_requests::hand_back_range(operator_id o) {
    auto const& kind = program_.kind(o);
    auto const& range = wanted_[program_.results(o)[0]].range;
    auto const number = attribute(o, "number");
    if (!range || !number || attribute(o, "number_is_first").value_or(0) != 0) return;
    double const c = *number,
                 factor = kind == "mul"   ? 1 / c
                          : kind == "div" ? c
                                          : 1,
                 shift = kind == "add"   ? -c
                         : kind == "sub" ? c
                                         : 0;
    if ((factor == 1 && shift == 0) || !std::isfinite(factor) || factor == 0) return;
    auto const [low, high] = std::minmax({factor * range->low + shift, factor * range->high + shift});
    operand(o, 0).restrict_to({low, high});
}

HEDDLE_INLINE void value_requests::visit(operator_id o) {
    hand_back(o);
    hand_back_range(o);
    ask_places(o);
    auto const& kind = program_.kind(o);
    auto const among = [&](std::initializer_list<char const*> kinds) {
        return algorithm::find(kinds, kind) != kinds.end();
    };
    auto const positive = [&](char const* name) {
        if (auto const k = attribute(o, name)) operand(o, static_cast<std::size_t>(*k)).restrict_to(probability_range);
    };
    if (is_copy(program_, o))
        for (std::size_t k = 0; k < program_.operands(o).size(); ++k)
            for (auto r : program_.results(o)) operand(o, k).take_over(wanted_[r]);
    else if (among({"sqrt", "log", "rsqrt", "log1p", "log2", "log10", "reciprocal", "pow", "power"}))
        operand(o, 0).restrict_to(probability_range);
    else if (kind == "binary_cross_entropy") operand(o, 0).restrict_to(probability_range);
    else if (kind == "kl_div") operand(o, 0).restrict_to(log_probability_range);
    if (kind == "binary_cross_entropy" || (kind == "kl_div" && attribute(o, "log_target").value_or(0) == 0))
        operand(o, 1).restrict_to(probability_range);
    else if (kind == "kl_div") operand(o, 1).restrict_to(log_probability_range);
    if (kind == "scaled_dot_product_attention" && program_.operands(o).size() > 3) operand(o, 3).takes_part = true;
    positive("running_var");
    if (among({"nll_loss", "cross_entropy"})) positive("weight");
    for (std::size_t k = 0; k < program_.operands(o).size(); ++k) count_terms(o, k);
}

HEDDLE_INLINE void value_requests::ask_places(operator_id o) {
    auto const axis = attribute(o, "dim");
    if (axis && attribute(o, "is_mask"))
        ask(program_.operands(o)[1], program_.tensor(program_.results(o)[0]).shape[static_cast<std::size_t>(*axis)]);
    bool const has_labels = program_.kind(o) == "cross_entropy" || program_.kind(o).starts_with("nll");
    for (auto const& l : lookups_of(program_, o)) {
        ask(l.places, l.range(program_.tensor(l.table).shape[l.dimension]));
        if (auto const ignored = attribute(o, "ignore_index"); has_labels && ignored)
            wanted_[l.places].ignore(static_cast<extent>(*ignored));
    }
}

HEDDLE_INLINE void value_requests::count_terms(operator_id o, std::size_t k) {
    auto const& rule = program_.rule(o);
    if (algorithm::find(program_.work(o).sparse_operands, k) != program_.work(o).sparse_operands.end()) return;
    auto const has = [](indexed_access const& access, std::uint16_t i) {
        return algorithm::any_of(
            access, [&](auto const& dimension) { return algorithm::find(dimension, i) != dimension.end(); });
    };
    extent terms = 1, rest = 1;
    for (std::uint16_t i = 0; i < rule.indices.size(); ++i)
        if (has(rule.operands[k], i) &&
            algorithm::none_of(rule.results, [&](auto const& access) { return has(access, i); }))
            terms *= rule.indices[i].extent;
    tensor_shape const& dims = operand_shape(o, k);
    for (std::size_t d = 1; d < dims.size(); ++d) rest *= dims[d];
    operand(o, k).fan_in = std::max(operand(o, k).fan_in, std::min(terms, rest));
}

} // namespace heddle::detail

#endif
