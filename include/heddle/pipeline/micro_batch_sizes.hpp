// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which sizes of micro-batch to plan for, and the best plan of several.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/deadline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// All sizes that divide a batch, or the one asked for. *Throws* `input_error` if that does not.
[[nodiscard]] std::vector<std::int64_t> micro_batch_sizes(std::int64_t samples, std::optional<std::int64_t> asked);

/// Those of which the schedule can run so many that a batch of `samples` has; where there are none the last, so that
/// whoever plans for it can say why not.
template <pipeline_schedule Schedule>
[[nodiscard]] std::vector<std::int64_t> sizes_that_run(std::vector<std::int64_t> sizes, std::int64_t samples,
                                                       std::size_t stages, Schedule const& schedule) {
    auto const last = sizes.back();
    std::erase_if(sizes, [&](std::int64_t size) { return !schedule.can_run({stages, samples / size}); });
    if (sizes.empty()) sizes.push_back(last);
    return sizes;
}

/// The cheapest of the plans that `plan(size, limits, best cost so far)` makes, one for each size of micro-batch, each
/// in an equal part of the time left. Its status, bound and time are over all sizes.
template <class Plan>
[[nodiscard]] pipeline_plan best_of_sizes(std::vector<std::int64_t> const& sizes, search::deadline const& until,
                                          Plan const& plan) {
    std::optional<pipeline_plan> best;
    double bound = std::numeric_limits<double>::infinity();
    search::limit_kind limit = search::limit_kind::none;
    bool is_open = false;
    for (std::size_t n = 0; n < sizes.size(); ++n) {
        if (best && until.is_over()) { // nothing is known of the sizes left
            limit = until.reached();
            is_open = true;
            bound = 0;
            break;
        }
        auto part = until.rest();
        if (part.seconds) *part.seconds /= static_cast<double>(sizes.size() - n);
        pipeline_plan found = plan(sizes[n], part, best && best->exists() ? std::optional(best->cost()) : std::nullopt);
        found.micro_batch_size = sizes[n];
        is_open = is_open || found.status == search::status::limit;
        if (limit == search::limit_kind::none) limit = found.which_limit;
        if (found.status != search::status::infeasible) bound = std::min(bound, found.lower_bound);
        bool const is_better = !best || (found.exists() && (!best->exists() || found.cost() < best->cost()));
        if (is_better) best = std::move(found);
    }
    best->seconds = until.elapsed();
    best->which_limit = is_open ? limit : search::limit_kind::none;
    if (best->exists()) search::conclude(*best, best->cost(), bound);
    else if (is_open) best->status = search::status::limit;
    return *std::move(best);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/degrees.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<std::int64_t> micro_batch_sizes(std::int64_t samples, std::optional<std::int64_t> asked) {
    auto sizes = divisors(samples);
    if (!asked) return sizes;
    if (algorithm::find(sizes, *asked) == sizes.end())
        throw input_error("micro-batch", std::to_string(*asked) +
                                             " samples, expected a number that divides the batch of " +
                                             std::to_string(samples));
    return {*asked};
}

} // namespace heddle

#endif
