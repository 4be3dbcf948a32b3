// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What integers an operand may hold for an operator's result to be in a range.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::detail {

/// Numbers from `low` on that are below `high`; for integers, the bounds are whole or infinite.
struct number_range {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();

    [[nodiscard]] bool is_empty() const { return !(low < high); }
    [[nodiscard]] bool is_finite() const { return std::isfinite(low) && std::isfinite(high); }
    [[nodiscard]] bool contains(number_range const& other) const { return low <= other.low && other.high <= high; }
    friend number_range operator&(number_range const& a, number_range const& b) {
        return {std::max(a.low, b.low), std::min(a.high, b.high)};
    }
};
inline constexpr number_range truth_range{0, 2};

/// Returns the first number of an attribute, if there is one.
[[nodiscard]] std::optional<double> number_of(program const& p, operator_id o, char const* name);

/// A step from a result of an operator to one of its operands.
struct backward_step {
    program const& of;
    operator_id op;
    std::size_t result, operand;
    /// What is known of tensors whatever the sources hold; see `known_ranges`.
    std::vector<number_range> const& known;

    [[nodiscard]] std::optional<double> attribute(char const* name) const { return number_of(of, op, name); }
    [[nodiscard]] tensor_info const& from() const { return of.tensor(of.results(op)[result]); }
    [[nodiscard]] tensor_info const& to() const { return of.tensor(of.operands(op)[operand]); }
    [[nodiscard]] number_range const& known_operand(std::size_t k) const { return known[of.operands(op)[k]]; }
};

/// Returns the integers x for which c x is in `r`.
[[nodiscard]] number_range divided(number_range const& r, double c);
/// Returns the range of the first or second of two integers, as even as possible, whose sum is in `r`.
[[nodiscard]] number_range half(number_range const& r, bool is_first);
/// Returns the range of one of two integers whose sum is in `r`: what the other one leaves, if that is known, or half.
[[nodiscard]] number_range part(number_range const& r, bool is_first, number_range const& mine,
                                number_range const& other);
/// Returns the range of each of `least` to `most` integers whose sum is in `r`.
[[nodiscard]] number_range summand(number_range const& r, double least, double most);

/// Returns nothing if the inverse is not known; every number if the operand does not matter; an empty range if no
/// operand will do.
using inverse_range = std::optional<number_range> (*)(number_range const&, backward_step const&);
/// The inverses by kind. An operator's result is in a range if all its operands are in their inverses. These are the
/// largest possible, with three exceptions: the operands of a sum have even parts of the range if neither is known,
/// `remainder` has one period, and `abs` has the positive half if there must be a choice.
[[nodiscard]] std::map<std::string_view, inverse_range> const& inverse_ranges();

/// Tells whether an operator's results have the elements of its operands.
[[nodiscard]] bool is_copy(program const& p, operator_id o);

/// Returns the inverse of any operator.
[[nodiscard]] std::optional<number_range> inverse_of(number_range const& r, backward_step const& s);

/// The truth values that an operator gives for a zero and for a one, which it may compare with a number, by kind.
[[nodiscard]] std::map<std::string_view, bool (*)(double, double)> const& truth_functions();
/// Returns how many elements of the operand have to be ones, and the others zeros, for the result to have this many
/// ones; nothing if it is not known.
[[nodiscard]] std::optional<extent> inverse_count(extent ones, backward_step const& s);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::optional<double> number_of(program const& p, operator_id o, char const* name) {
    auto const found = p.attributes(o).find(name);
    return found == p.attributes(o).end() || found->second.empty() ? std::nullopt
                                                                   : std::optional(found->second.front());
}

HEDDLE_INLINE number_range divided(number_range const& r, double c) {
    if (c > 0) return {std::ceil(r.low / c), std::ceil(r.high / c)};
    if (c < 0) return {std::floor(r.high / c) + 1, std::floor(r.low / c) + 1};
    return r.low <= 0 && 0 < r.high ? number_range{} : number_range{0, 0};
}

HEDDLE_INLINE number_range half(number_range const& r, bool is_first) {
    auto const of = [&](double n) { return is_first ? std::ceil(n / 2) : std::floor(n / 2); };
    return {of(r.low), of(r.high - 1) + 1};
}

HEDDLE_INLINE number_range part(number_range const& r, bool is_first, number_range const& mine,
                                number_range const& other) {
    if (mine.is_finite()) return {};
    return other.is_finite() ? number_range{r.low - other.low, r.high - other.high + 1} : half(r, is_first);
}

HEDDLE_INLINE number_range summand(number_range const& r, double least, double most) {
    double const last = r.high - 1;
    return {std::ceil(r.low / (r.low > 0 ? least : most)), std::floor(last / (last > 0 ? most : least)) + 1};
}

HEDDLE_INLINE std::map<std::string_view, inverse_range> const& inverse_ranges() {
    using range = number_range;
    using step = backward_step const&;
    using found = std::optional<number_range>;
    constexpr inverse_range same = [](range const& r, step) -> found { return r; };
    constexpr inverse_range any = [](range const&, step) -> found { return range{}; };
    constexpr inverse_range first = [](range const& r, step s) -> found { return s.operand == 0 ? r : range{}; };
    constexpr inverse_range chosen = [](range const& r, step s) -> found { return s.operand > 0 ? r : range{}; };
    constexpr inverse_range value = [](range const& r, step s) -> found {
        return s.result == 0 ? r : range{};
    }; // the second result are places
    constexpr inverse_range bounded = [](range const& r, step s) -> found {
        double const low = s.attribute("min").value_or(range{}.low), high = s.attribute("max").value_or(range{}.high);
        range x = r;
        if (low >= r.low) x.low = range{}.low;
        if (high < r.high) x.high = range{}.high;
        return low < r.high && high >= r.low ? x : range{0, 0};
    };
    static std::map<std::string_view, inverse_range> const table{
        {"pad", same},
        {"amax", same},
        {"amin", same},
        {"minimum", same},
        {"maximum", same},
        {"max", value},
        {"min", value},
        {"topk", value},
        {"argmax", any},
        {"argmin", any},
        {"full_like", any},
        {"where", chosen},
        {"masked_fill", chosen},
        {"getitem", first},
        {"index", first},
        {"index_put",
         [](range const& r, step s) -> found {
             return s.operand == 0 || s.operand + 1 == s.of.operands(s.op).size() ? r : range{};
         }},
        {"index_select", first},
        {"gather", first},
        {"clamp", bounded},
        {"clamp_min", bounded},
        {"clamp_max", bounded},
        {"neg", [](range const& r, step) -> found { return divided(r, -1); }},
        {"abs", [](range const& r, step) -> found { return r.low > 0 ? r : range{1 - r.high, r.high}; }},
        {"add",
         [](range const& r, step s) -> found {
             if (auto const c = s.attribute("number")) return range{r.low - *c, r.high - *c};
             if (s.attribute("alpha")) return {};
             return part(r, s.operand == 0, s.known_operand(s.operand), s.known_operand(1 - s.operand));
         }},
        {"sub",
         [](range const& r, step s) -> found {
             auto const c = s.attribute("number");
             if (c && s.attribute("number_is_first").value_or(0) != 0) return range{*c - r.high + 1, *c - r.low + 1};
             if (c) return range{r.low + *c, r.high + *c};
             if (s.attribute("alpha")) return {};
             auto const &x = s.known_operand(0), y = divided(s.known_operand(1), -1);
             return s.operand == 0 ? part(r, true, x, y) : divided(part(r, false, y, x), -1);
         }},
        {"mul",
         [](range const& r, step s) -> found {
             auto const c = s.attribute("number");
             return c ? divided(r, *c) : found{};
         }},
        {"floor_divide",
         [](range const& r, step s) -> found {
             auto const c = s.attribute("number");
             if (!c) return {};
             return *c > 0 ? range{std::ceil(r.low * *c), std::ceil(r.high * *c)}
                           : range{std::floor(r.high * *c) + 1, std::floor(r.low * *c) + 1};
         }},
        {"remainder",
         [](range const& r, step s) -> found {
             auto const c = s.attribute("number");
             if (!c) return {};
             range const all = *c > 0 ? range{0, *c} : range{*c + 1, 1}; // where it is what it is of
             return r.contains(all) ? range{} : r & all;
         }},
        {"sum",
         [](range const& r, step s) -> found {
             double const terms = static_cast<double>(s.to().elements()) / static_cast<double>(s.from().elements());
             return summand(r, terms, terms);
         }},
        {"cumsum",
         [](range const& r, step s) -> found {
             auto const axis = s.attribute("dim");
             return axis ? summand(r, 1, static_cast<double>(s.to().shape[static_cast<std::size_t>(*axis)])) : found{};
         }},
    };
    return table;
}

HEDDLE_INLINE bool is_copy(program const& p, operator_id o) {
    constexpr std::string_view kinds[]{"cat",  "stack", "clone", "to", "repeat", "tile", "repeat_interleave",
                                       "roll", "flip"};
    return p.work(o).is_view || algorithm::find(kinds, p.kind(o)) != std::end(kinds);
}

HEDDLE_INLINE std::optional<number_range> inverse_of(number_range const& r, backward_step const& s) {
    if (is_copy(s.of, s.op)) return r;
    auto const entry = inverse_ranges().find(s.of.kind(s.op));
    return entry == inverse_ranges().end() ? std::nullopt : entry->second(r, s);
}

HEDDLE_INLINE std::map<std::string_view, bool (*)(double, double)> const& truth_functions() {
    static std::map<std::string_view, bool (*)(double, double)> const table{
        {"logical_not", [](double x, double) { return x == 0; }}, {"eq", [](double x, double c) { return x == c; }},
        {"ne", [](double x, double c) { return x != c; }},        {"lt", [](double x, double c) { return x < c; }},
        {"le", [](double x, double c) { return x <= c; }},        {"gt", [](double x, double c) { return x > c; }},
        {"ge", [](double x, double c) { return x >= c; }},
    };
    return table;
}

HEDDLE_INLINE std::optional<extent> inverse_count(extent ones, backward_step const& s) {
    if (s.of.operands(s.op).size() > 1 || s.to().elements() != s.from().elements()) return {};
    if (is_copy(s.of, s.op)) return ones;
    auto const entry = truth_functions().find(s.of.kind(s.op));
    if (entry == truth_functions().end()) return {};
    double const number = s.attribute("number").value_or(0);
    bool const of_one = entry->second(1, number), of_zero = entry->second(0, number);
    if (of_one == of_zero) return {};
    return of_one ? ones : s.from().elements() - ones;
}

} // namespace heddle::detail

#endif
