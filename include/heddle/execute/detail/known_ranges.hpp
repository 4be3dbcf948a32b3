// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What integers operators compute whatever the sources hold: places, which are counted, and what is computed
/// from them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/inverse_ranges.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace heddle::detail {

/// Returns the extent of a dimension, which may differ from the program's.
using dimension_sizes = std::function<extent(tensor_id, std::size_t)>;

/// A step from the operands of an operator to one of its results.
struct forward_step {
    program const& of;
    operator_id op;
    std::size_t result;
    std::vector<number_range> const& known;
    dimension_sizes const& size;

    [[nodiscard]] std::optional<double> attribute(char const* name) const { return number_of(of, op, name); }
    [[nodiscard]] std::size_t operands() const { return of.operands(op).size(); }
    [[nodiscard]] number_range const& operand(std::size_t k) const { return known[of.operands(op)[k]]; }
    /// What an argument that is an operand or a number may be; the attribute `name` has the operand's place.
    [[nodiscard]] number_range argument(char const* name, char const* number) const;
    /// All that any of the operands may be.
    [[nodiscard]] number_range any_operand() const;
    /// The places of the first operand along the dimension that the operator names, or among all elements.
    [[nodiscard]] double places() const;
    [[nodiscard]] double elements(tensor_id t) const;
};

/// Returns the range of a single whole number; every number if it is not whole.
[[nodiscard]] number_range only(double number);
/// Returns the range that has both.
[[nodiscard]] number_range hull(number_range const& a, number_range const& b);
/// Returns the ranges of x + y and x * y.
[[nodiscard]] number_range sum_of(number_range const& x, number_range const& y);
[[nodiscard]] number_range product_of(number_range const& x, number_range const& y);

using known_range = number_range (*)(forward_step const&);
/// What is known of an operator's results if its operands are in their ranges, by kind.
[[nodiscard]] std::map<std::string_view, known_range> const& range_functions();

/// Returns what is known of the integers of each tensor; every number of sources, and where nothing is known.
/// *Complexity.* Linear in the program.
[[nodiscard]] std::vector<number_range> known_ranges(program const& p, dimension_sizes const& size);
/// As above, with the program's extents.
[[nodiscard]] std::vector<number_range> known_ranges(program const& p);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE number_range only(double number) {
    return number == std::floor(number) ? number_range{number, number + 1} : number_range{};
}

HEDDLE_INLINE number_range hull(number_range const& a, number_range const& b) {
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

HEDDLE_INLINE number_range sum_of(number_range const& x, number_range const& y) {
    return {x.low + y.low, x.high + y.high - 1};
}

HEDDLE_INLINE number_range product_of(number_range const& x, number_range const& y) {
    if (!x.is_finite() || !y.is_finite()) return {};
    auto const [low, high] =
        std::minmax({x.low * y.low, x.low * (y.high - 1), (x.high - 1) * y.low, (x.high - 1) * (y.high - 1)});
    return {low, high + 1};
}

HEDDLE_INLINE number_range forward_step::argument(char const* name, char const* number) const {
    if (auto const k = attribute(name)) return operand(static_cast<std::size_t>(*k));
    auto const value = attribute(number);
    return value ? only(*value) : number_range{};
}

HEDDLE_INLINE number_range forward_step::any_operand() const {
    auto all = operand(0);
    for (std::size_t k = 1; k < operands(); ++k) all = hull(all, operand(k));
    return all;
}

HEDDLE_INLINE double forward_step::elements(tensor_id t) const {
    double count = 1;
    for (std::size_t d = 0; d < of.tensor(t).shape.size(); ++d) count *= static_cast<double>(size(t, d));
    return count;
}

HEDDLE_INLINE double forward_step::places() const {
    auto const axis = attribute("dim");
    tensor_id const x = of.operands(op)[0];
    return axis ? static_cast<double>(size(x, static_cast<std::size_t>(*axis))) : elements(x);
}

HEDDLE_INLINE std::map<std::string_view, known_range> const& range_functions() {
    using range = number_range;
    using step = forward_step const&;
    constexpr known_range number = [](step s) { return only(s.attribute("value").value_or(0.5)); };
    constexpr known_range first = [](step s) { return s.operand(0); };
    constexpr known_range place = [](step s) { return range{0, s.places()}; };
    constexpr known_range value_and_place = [](step s) { return s.result == 0 ? s.operand(0) : range{0, s.places()}; };
    constexpr known_range truth = [](step) { return truth_range; };
    constexpr known_range added = [](step s) {
        auto const x = s.operand(0), y = s.operands() > 1 ? s.operand(1) : only(s.attribute("number").value_or(0.5));
        return sum_of(x, product_of(only(s.attribute("alpha").value_or(1)), y));
    };
    constexpr known_range bounded = [](step s) {
        double const least = s.attribute("min").value_or(range{}.low), most = s.attribute("max").value_or(range{}.high);
        auto const limit = [&](double x) { return std::min(std::max(x, least), most); };
        range const x{limit(s.operand(0).low), limit(s.operand(0).high - 1) + 1};
        return x.low == std::floor(x.low) && x.high == std::floor(x.high) ? x : range{};
    };
    constexpr known_range chosen = [](step s) {
        return hull(s.argument("where", "where_number"), s.argument("otherwise", "otherwise_number"));
    };
    static std::map<std::string_view, known_range> const table{
        {"full", number},
        {"full_like", number},
        {"arange",
         [](step s) {
             auto const count = s.elements(s.of.results(s.op)[0]);
             auto const begin = only(s.attribute("start").value_or(0)), by = only(s.attribute("step").value_or(1));
             return sum_of(begin, product_of(by, range{0, count}));
         }},
        {"add", added},
        {"sub",
         [](step s) {
             auto const x = s.operand(0),
                        y = s.operands() > 1 ? s.operand(1) : only(s.attribute("number").value_or(0.5));
             bool const turned = s.attribute("number_is_first").value_or(0) != 0;
             auto const less = product_of(only(-s.attribute("alpha").value_or(1)), turned ? x : y);
             return sum_of(turned ? y : x, less);
         }},
        {"mul",
         [](step s) {
             return product_of(s.operand(0),
                               s.operands() > 1 ? s.operand(1) : only(s.attribute("number").value_or(0.5)));
         }},
        {"neg", [](step s) { return product_of(only(-1), s.operand(0)); }},
        {"abs",
         [](step s) {
             auto const& x = s.operand(0);
             return range{std::max({0.0, x.low, 1 - x.high}), std::max(1 - x.low, x.high)};
         }},
        {"sign", [](step) { return range{-1, 2}; }},
        {"floor_divide",
         [](step s) {
             auto const c = s.attribute("number").value_or(0);
             auto const& x = s.operand(0);
             return c > 0 ? range{std::floor(x.low / c), std::floor((x.high - 1) / c) + 1} : range{};
         }},
        {"remainder",
         [](step s) {
             auto const c = s.attribute("number").value_or(0);
             range const all{0, std::ceil(c)};
             return c <= 0 ? range{} : all.contains(s.operand(0)) ? s.operand(0) : all;
         }},
        {"clamp", bounded},
        {"clamp_min", bounded},
        {"clamp_max", bounded},
        {"minimum",
         [](step s) {
             auto const &x = s.operand(0), &y = s.operand(1);
             return range{std::min(x.low, y.low), std::min(x.high, y.high)};
         }},
        {"maximum",
         [](step s) {
             auto const &x = s.operand(0), &y = s.operand(1);
             return range{std::max(x.low, y.low), std::max(x.high, y.high)};
         }},
        {"where", chosen},
        {"masked_fill", chosen},
        {"triu", [](step s) { return hull(s.operand(0), only(0)); }},
        {"tril", [](step s) { return hull(s.operand(0), only(0)); }},
        {"pad", [](step s) { return hull(s.operand(0), only(s.attribute("value").value_or(0))); }},
        {"one_hot", truth},
        {"argmax", place},
        {"argmin", place},
        {"max", value_and_place},
        {"min", value_and_place},
        {"topk", value_and_place},
        {"amax", first},
        {"amin", first},
        {"gather", first},
        {"index_select", first},
        {"getitem", first},
        {"index", first},
        {"embedding", [](step s) { return s.operand(1); }},
        {"index_put", [](step s) { return hull(s.operand(0), s.operand(s.operands() - 1)); }},
        {"sum",
         [](step s) {
             auto const terms = s.elements(s.of.operands(s.op)[0]) / s.elements(s.of.results(s.op)[0]);
             return product_of(only(terms), s.operand(0));
         }},
        {"cumsum", [](step s) { return product_of(range{1, s.places() + 1}, s.operand(0)); }},
    };
    return table;
}

HEDDLE_INLINE std::vector<number_range> known_ranges(program const& p, dimension_sizes const& size) {
    std::vector<number_range> known(p.tensor_count());
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const function = range_functions().find(p.kind(o));
        for (std::size_t k = 0; k < p.results(o).size(); ++k) {
            auto& range = known[p.results(o)[k]];
            forward_step const step{p, o, k, known, size};
            if (is_copy(p, o) && step.operands() > 0) range = step.any_operand();
            else if (function != range_functions().end()) range = function->second(step);
            if (p.tensor(p.results(o)[k]).type == element_type::boolean && !truth_range.contains(range))
                range = truth_range;
        }
    }
    return known;
}

HEDDLE_INLINE std::vector<number_range> known_ranges(program const& p) {
    return known_ranges(p, [&](tensor_id t, std::size_t d) { return p.tensor(t).shape[d]; });
}

} // namespace heddle::detail

#endif
