// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace heddle::test {

/// Whether this is the sanitized build of a program that draws many cases, which an optimised build draws all of.
#if defined(HEDDLE_DRAWS_MANY) && defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(HEDDLE_DRAWS_MANY) && defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

/// Returns how many random cases a test draws where `count` are enough to find what is rare: an eighth of them with
/// sanitizers, which are slow and look for what almost every case does. Counts of what was met are scaled alike.
template <class Count>
constexpr Count cases(Count count) {
    return sanitized ? (count + 7) / 8 : count;
}

/// Returns whether a test that goes over all there is takes the n-th: every eighth with sanitizers.
template <class Number>
constexpr bool is_drawn(Number n) {
    return !sanitized || n % 8 == 0;
}

} // namespace heddle::test
