// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a search may spend.
#pragma once

#include <heddle/base/requirements.hpp>

#include <cstddef>
#include <optional>
#include <stop_token>

namespace heddle::search {

/// Limits hold for a whole search, or for all the work of a planner together. What is not set is up to the search,
/// which says how much it takes.
struct limits {
    /// Looked at before every step, as is the token. All others are deterministic.
    std::optional<double> seconds{};
    /// What a search keeps, or, where it fills tables, looks at.
    std::optional<std::size_t> labels{};
    /// Pairs of labels that are compared.
    std::optional<std::size_t> comparisons{};
    /// Those of what is kept, as the problem counts them.
    std::optional<std::size_t> bytes{};
    /// Once stop is requested, work ends soon with the best found, as when time is over.
    std::stop_token stop{};

    /// These, and where they say nothing, others.
    [[nodiscard]] limits or_else(limits const& others) const {
        auto result = *this;
        auto const fill = [](auto& mine, auto const& theirs) {
            if (!mine && theirs) mine = *theirs;
        };
        fill(result.seconds, others.seconds);
        fill(result.labels, others.labels);
        fill(result.comparisons, others.comparisons);
        fill(result.bytes, others.bytes);
        if (!stop.stop_possible()) result.stop = others.stop;
        return result;
    }
};

} // namespace heddle::search
