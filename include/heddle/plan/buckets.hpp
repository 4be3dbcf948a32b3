// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The buckets in which a plan's gradients are reduced.
#pragma once

#include <heddle/cost/buckets.hpp>
#include <heddle/plan/plan.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// `transfer_of(n)` returns the deferred transfer of step n, with its way of moving shards decided. See
/// `bucket_filler`.
template <class TransferOf>
[[nodiscard]] std::vector<gradient_bucket> gradient_buckets(plan const& p, TransferOf&& transfer_of) {
    bucket_filler filler(p.provenance.training.bucket);
    for (std::size_t n = p.steps.size(); n-- > 0;) {
        auto const& i = p.steps[n].instruction;
        auto const& s = p.steps[n].step;
        auto const* const change = i.change();
        if (!change) continue;
        bool const has_gradient = !s.deferred_transfers.empty() && s.reduces_gradients();
        if (has_gradient || i.template is<instruction::convert>() || i.template is<instruction::unshard>())
            filler.pass(change->tensor);
        if (has_gradient) filler.add(n, change->tensor, transfer_of(n), s.type);
    }
    return filler.buckets();
}
/// Returns the buckets of a plan. Shards whose way of moving is not decided count as padded.
[[nodiscard]] inline std::vector<gradient_bucket> gradient_buckets(plan const& p) {
    return gradient_buckets(p, [&](std::size_t n) { return p.steps[n].step.deferred_transfers.front(); });
}

/// A collective of gradients: its seconds, and the bytes that it carries.
struct gradient_collective {
    double seconds = 0;
    bytes payload;
};

/// Returns, for each step, the collective of the bucket that the step is the last of; nothing for other steps.
template <class Shares>
[[nodiscard]] std::vector<gradient_collective> gradient_collectives(plan const& p, cost_model const& model,
                                                                    Shares const& shares) {
    auto const transfer_of = [&](std::size_t n) {
        return model.decided(p.steps[n].step.deferred_transfers.front(), shares, true).what;
    };
    std::vector<gradient_collective> result(p.steps.size());
    for (auto const& bucket : gradient_buckets(p, transfer_of)) {
        auto& sent = result[bucket.steps.back()];
        transfer const first = transfer_of(bucket.steps.front());
        bucket_load all;
        for (auto n : bucket.steps) all += model.load(transfer_of(n), shares);
        sent.payload = all.payload;
        sent.seconds = bucket.steps.size() == 1 ? model.time(first, shares) * model.part_of_update()
                                                : model.time_of_bucket(first, all);
    }
    return result;
}

} // namespace heddle
