// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Algorithms of std::ranges that headers call most, without the constraints that a compiler checks at each
/// call.
///
/// They mean what those of the same names mean. Compiling a call takes a tenth of the time (g++ 12: 25 ms, of a sort
/// 48), and there are hundreds in all headers together, which every user's unit compiles.
#pragma once

#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace heddle::algorithm {

namespace detail {

// Overloads, since a compiler would look at traits of each projection anew.
template <class Projection, class Value>
constexpr decltype(auto) projected(Projection& by, Value&& value) {
    return by(std::forward<Value>(value));
}
template <class Value>
constexpr Value&& projected(std::identity&, Value&& value) {
    return std::forward<Value>(value);
}
template <class Member, class Class, class Value>
constexpr decltype(auto) projected(Member Class::*& by, Value&& value) {
    if constexpr (std::is_function_v<Member>) return (std::forward<Value>(value).*by)();
    else return (std::forward<Value>(value).*by);
}

} // namespace detail

template <class Range, class Predicate, class Projection = std::identity>
constexpr auto find_if(Range&& range, Predicate wanted, Projection by = {}) {
    auto at = std::begin(range);
    for (auto const end = std::end(range); at != end; ++at)
        if (detail::projected(wanted, detail::projected(by, *at))) break;
    return at;
}
template <class Range, class Value, class Projection = std::identity>
constexpr auto find(Range&& range, Value const& value, Projection by = {}) {
    auto at = std::begin(range);
    for (auto const end = std::end(range); at != end; ++at)
        if (detail::projected(by, *at) == value) break;
    return at;
}
template <class Range, class Predicate, class Projection = std::identity>
[[nodiscard]] constexpr bool any_of(Range&& range, Predicate wanted, Projection by = {}) {
    for (auto&& value : range)
        if (detail::projected(wanted, detail::projected(by, value))) return true;
    return false;
}
template <class Range, class Predicate, class Projection = std::identity>
[[nodiscard]] constexpr bool none_of(Range&& range, Predicate wanted, Projection by = {}) {
    return !algorithm::any_of(range, std::move(wanted), std::move(by));
}
template <class Range, class Predicate, class Projection = std::identity>
[[nodiscard]] constexpr bool all_of(Range&& range, Predicate wanted, Projection by = {}) {
    for (auto&& value : range)
        if (!detail::projected(wanted, detail::projected(by, value))) return false;
    return true;
}
template <class Range, class Predicate, class Projection = std::identity>
[[nodiscard]] constexpr std::ptrdiff_t count_if(Range&& range, Predicate wanted, Projection by = {}) {
    std::ptrdiff_t count = 0;
    for (auto&& value : range) count += detail::projected(wanted, detail::projected(by, value)) ? 1 : 0;
    return count;
}
template <class Range, class Value, class Projection = std::identity>
[[nodiscard]] constexpr std::ptrdiff_t count(Range&& range, Value const& value, Projection by = {}) {
    std::ptrdiff_t count = 0;
    for (auto&& element : range) count += detail::projected(by, element) == value ? 1 : 0;
    return count;
}

/// Ranges of one length whose elements agree, one after the other.
template <class Range, class Other, class Predicate = std::equal_to<>, class Projection = std::identity,
          class OtherProjection = std::identity>
[[nodiscard]] constexpr bool equal(Range&& range, Other&& others, Predicate agree = {}, Projection by = {},
                                   OtherProjection other_by = {}) {
    auto at = std::begin(range);
    auto other = std::begin(others);
    auto const end = std::end(range);
    auto const other_end = std::end(others);
    for (; at != end && other != other_end; ++at, ++other)
        if (!agree(detail::projected(by, *at), detail::projected(other_by, *other))) return false;
    return at == end && other == other_end;
}

/// The first of the largest. *Precondition* of `max` and `min`: there is one.
template <class Range, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto max_element(Range&& range, Less less = {}, Projection by = {}) {
    auto most = std::begin(range);
    for (auto at = most; at != std::end(range); ++at)
        if (less(detail::projected(by, *most), detail::projected(by, *at))) most = at;
    return most;
}
template <class Range, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto min_element(Range&& range, Less less = {}, Projection by = {}) {
    auto least = std::begin(range);
    for (auto at = least; at != std::end(range); ++at)
        if (less(detail::projected(by, *at), detail::projected(by, *least))) least = at;
    return least;
}
template <class Range, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto max(Range&& range, Less less = {}, Projection by = {}) {
    return *algorithm::max_element(range, std::move(less), std::move(by));
}
template <class Range, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto min(Range&& range, Less less = {}, Projection by = {}) {
    return *algorithm::min_element(range, std::move(less), std::move(by));
}

template <class Range, class Less = std::less<>, class Projection = std::identity>
constexpr void sort(Range&& range, Less less = {}, Projection by = {}) {
    std::sort(std::begin(range), std::end(range),
              [&](auto const& a, auto const& b) { return less(detail::projected(by, a), detail::projected(by, b)); });
}
template <class Range, class Value, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto lower_bound(Range&& range, Value const& value, Less less = {}, Projection by = {}) {
    return std::lower_bound(std::begin(range), std::end(range), value, [&](auto const& element, Value const& wanted) {
        return less(detail::projected(by, element), wanted);
    });
}
template <class Range, class Value, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr auto upper_bound(Range&& range, Value const& value, Less less = {}, Projection by = {}) {
    return std::upper_bound(std::begin(range), std::end(range), value, [&](Value const& wanted, auto const& element) {
        return less(wanted, detail::projected(by, element));
    });
}
template <class Range, class Value, class Less = std::less<>, class Projection = std::identity>
[[nodiscard]] constexpr bool binary_search(Range&& range, Value const& value, Less less = {}, Projection by = {}) {
    auto const at = algorithm::lower_bound(range, value, less, by);
    return at != std::end(range) && !less(value, detail::projected(by, *at));
}

template <class Range, class Value>
constexpr void fill(Range&& range, Value const& value) {
    std::fill(std::begin(range), std::end(range), value);
}
template <class Range, class Iterator>
constexpr Iterator copy(Range&& range, Iterator to) {
    return std::copy(std::begin(range), std::end(range), to);
}
template <class Range>
constexpr void reverse(Range&& range) {
    std::reverse(std::begin(range), std::end(range));
}

} // namespace heddle::algorithm
