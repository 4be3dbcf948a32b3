// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace heddle::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
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

} // namespace heddle::test
