// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which gradients are reduced together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/cost_model.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// What all gradients of one bucket have in common.
struct bucket_kind {
    collective what = collective::all_reduce;
    /// If set, every rank's shard is moved by an operation of its own.
    bool one_by_one = false;
    element_type type = element_type::float32;
    friend auto operator<=>(bucket_kind const&, bucket_kind const&) = default;
};
/// *Precondition:* it is decided how shards are moved.
[[nodiscard]] inline bucket_kind kind_of(transfer const& gradient, element_type type) {
    return {gradient.kind, is_one_by_one(gradient), type};
}

/// Gradients that are reduced by one collective.
struct gradient_bucket {
    /// Their steps, in the order of the backward pass; each has one deferred transfer. The bucket is sent when the last
    /// step is done.
    std::vector<std::size_t> steps;
    bytes size;
};

/// Fills buckets in the order of the backward pass, one of each kind at a time. The next bucket is begun when a
/// gradient would exceed the limit; a gradient larger than the limit is alone. A waiting gradient is sent early if its
/// sum is needed, for example by a second collective of the same parameter.
/// *Complexity.* Linear in the gradients, times those of a bucket.
class bucket_filler {
public:
    explicit bucket_filler(bytes limit) : limit_(limit) {}

    /// Goes on to a step that converts a tensor, or whose gradient is added next.
    void pass(tensor_id t) {
        std::erase_if(open_, [t](open_bucket const& o) { return algorithm::find(o.tensors, t) != o.tensors.end(); });
    }
    /// Adds the gradient of a tensor that is ready after a step. *Precondition:* `pass(t)` was called.
    void add(std::size_t step, tensor_id t, transfer const& gradient, element_type type);
    [[nodiscard]] std::vector<gradient_bucket> const& buckets() const { return buckets_; }

private:
    struct open_bucket {
        bucket_kind kind;
        std::size_t number;
        std::vector<tensor_id> tensors;
    };
    bytes limit_;
    std::vector<gradient_bucket> buckets_;
    std::vector<open_bucket> open_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE void bucket_filler::add(std::size_t step, tensor_id t, transfer const& gradient, element_type type) {
    if (!fits_bucket(gradient, limit_)) {
        buckets_.push_back({{step}, gradient.size});
        return;
    }
    auto const kind = kind_of(gradient, type);
    auto at = algorithm::find(open_, kind, &open_bucket::kind);
    if (at != open_.end() && buckets_[at->number].size + gradient.size > limit_) {
        open_.erase(at);
        at = open_.end();
    }
    if (at == open_.end()) {
        at = open_.insert(open_.end(), {kind, buckets_.size(), {}});
        buckets_.emplace_back();
    }
    at->tensors.push_back(t);
    buckets_[at->number].steps.push_back(step);
    buckets_[at->number].size += gradient.size;
}

} // namespace heddle

#endif
