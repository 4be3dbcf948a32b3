// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Pipeline schedules: what the slowest stage costs, and how many micro-batches a stage holds.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/requirements.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

struct pipeline_shape {
    std::size_t devices = 1;
    std::int64_t micro_batches = 1;
};

/// Returns the number of stages of a round: of those before the first one's devices come again.
template <class Stages>
[[nodiscard]] std::size_t stages_of_round(Stages const& stages) {
    std::size_t n = std::min<std::size_t>(1, stages.size());
    while (n < stages.size() && stages[n].devices != stages[0].devices) ++n;
    return n;
}

/// The forward or backward pass of one micro-batch through a stage; of a device that has several, of this round.
struct pipeline_pass {
    bool is_forward = true;
    std::int64_t micro_batch = 0;
    std::size_t round = 0;
    friend bool operator==(pipeline_pass const&, pipeline_pass const&) = default;
};

/// How micro-batches pass through stages. An iteration takes `bottleneck_weight * (slowest stage) + (all stages) + (all
/// boundaries)`, forward and backward together. If the tail counts, let k of 0 .. n - 1 be the slowest stage, the last
/// of equal ones: it counts k times more, and the stages from k on are added once more.
///
/// *Notation.* `s` schedule, `x` shape, `i` stage. There are `x.devices * s.stages_per_device()` stages; stage `i` runs
/// on device `i % x.devices`.
/// *Axioms.* Where `s.can_run(x)`, `s.bottleneck_weight(x) >= 0` and
/// `1 <= s.in_flight(i, x) <= x.micro_batches` is the most micro-batches whose activations stage `i` holds at one time.
template <class Schedule>
concept pipeline_schedule = requires(Schedule const& s, pipeline_shape x, std::size_t i) {
    { Schedule::counts_tail } -> std::convertible_to<bool>;
    { s.stages_per_device() } -> std::convertible_to<std::size_t>;
    { s.can_run(x) } -> std::convertible_to<bool>;
    { s.bottleneck_weight(x) } -> std::same_as<std::int64_t>;
    { s.in_flight(i, x) } -> std::same_as<std::int64_t>;
};

/// All forward passes come first, then all backward passes (GPipe). The time is that of 1F1B; GPipe takes longer if the
/// slowest forward and the slowest backward pass are in different stages.
struct gpipe {
    static constexpr char const* name = "gpipe";
    static constexpr bool counts_tail = false;

    [[nodiscard]] std::size_t stages_per_device() const { return 1; }
    [[nodiscard]] bool can_run(pipeline_shape) const { return true; }
    [[nodiscard]] std::int64_t bottleneck_weight(pipeline_shape x) const { return x.micro_batches - 1; }
    [[nodiscard]] std::int64_t in_flight(std::size_t, pipeline_shape x) const { return x.micro_batches; }
    /// Returns the passes in order.
    [[nodiscard]] std::vector<pipeline_pass> passes(std::size_t, pipeline_shape x) const;
};

/// One forward and one backward pass alternate: this is AMP's eq. (5), and Megatron's and DeepSpeed's schedule.
///
/// With v > 1 chunks a device holds v stages, one of every round (Megatron's interleaved schedule; Narayanan et al.
/// 2021, section 2.2). Groups of micro-batches pass the rounds one after the other: of the number of devices k, or a
/// few more so that all are equal, as PyTorch has them; there must be such groups of the m micro-batches. The schedule
/// has m * v + k - 1 slots of the length of the slowest chunk, of which k * v are the first micro-batch's pass and last
/// as long as their own chunk. So the weight is v * (m - k) + k - 1 (m - 1 for v = 1), and with equal chunks the idle
/// time is a v-th of the plain schedule's.
struct one_f_one_b {
    static constexpr char const* name = "1f1b";
    static constexpr bool counts_tail = false;
    std::size_t chunks = 1;

    [[nodiscard]] std::size_t stages_per_device() const { return chunks; }
    [[nodiscard]] bool can_run(pipeline_shape x) const {
        if (chunks < 2 || x.devices == 0) return chunks == 1;
        return x.micro_batches >= static_cast<std::int64_t>(x.devices) && x.micro_batches % group(x) == 0;
    }
    /// Returns how many micro-batches pass a round after each other. *Precondition:* there are as many as devices.
    [[nodiscard]] std::int64_t group(pipeline_shape x) const {
        return chunks == 1 ? x.micro_batches
                           : x.micro_batches / (x.micro_batches / static_cast<std::int64_t>(x.devices));
    }
    [[nodiscard]] std::int64_t bottleneck_weight(pipeline_shape x) const;
    [[nodiscard]] std::int64_t in_flight(std::size_t stage, pipeline_shape x) const;
    /// Returns the passes of a device in order: first forward passes alone, then backward and forward in turn. With
    /// several chunks, a group of micro-batches passes a round before the next group does.
    /// *Precondition:* `can_run(x)`.
    [[nodiscard]] std::vector<pipeline_pass> passes(std::size_t device, pipeline_shape x) const;
};

/// Oobleck's estimate T1 + T2 + T3 of 1F1B (Ditto eqs. (1)-(3)): all n stages, m - n + k slots of the slowest stage k,
/// and the stages from the slowest on.
///
/// It charges the stages behind the slowest their own time where 1F1B waits for the slowest, so it favours slivers of
/// work at the end of the pipeline; with equal stages it is one slot more than `one_f_one_b`. If there are fewer
/// micro-batches than stages, its slots may be negative, and it cannot run.
struct oobleck_estimate {
    static constexpr char const* name = "oobleck";
    static constexpr bool counts_tail = true;
    /// Is added to the slots of the slowest stage. Ditto's eq. (2) counts stages from one and adds none.
    std::int64_t more_slots = 0;

    [[nodiscard]] std::size_t stages_per_device() const { return 1; }
    [[nodiscard]] bool can_run(pipeline_shape x) const { return bottleneck_weight(x) >= 0; }
    [[nodiscard]] std::int64_t bottleneck_weight(pipeline_shape x) const {
        return x.micro_batches - static_cast<std::int64_t>(x.devices) + more_slots;
    }
    [[nodiscard]] std::int64_t in_flight(std::size_t stage, pipeline_shape x) const {
        return one_f_one_b{}.in_flight(stage, x);
    }
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<pipeline_pass> gpipe::passes(std::size_t, pipeline_shape x) const {
    std::vector<pipeline_pass> order;
    for (bool const forward : {true, false})
        for (std::int64_t m = 0; m < x.micro_batches; ++m) order.push_back({forward, m});
    return order;
}

HEDDLE_INLINE std::int64_t one_f_one_b::bottleneck_weight(pipeline_shape x) const {
    auto const k = static_cast<std::int64_t>(x.devices), v = static_cast<std::int64_t>(chunks);
    return v * (x.micro_batches - k) + k - 1;
}

HEDDLE_INLINE std::int64_t one_f_one_b::in_flight(std::size_t stage, pipeline_shape x) const {
    if (chunks == 1) return std::min(x.micro_batches, static_cast<std::int64_t>(x.devices - stage));
    std::int64_t now = 0, most = 0;
    for (auto const& pass : passes(stage % x.devices, x)) {
        if (pass.round != stage / x.devices) continue;
        now += pass.is_forward ? 1 : -1;
        most = std::max(most, now);
    }
    return most;
}

HEDDLE_INLINE std::vector<pipeline_pass> one_f_one_b::passes(std::size_t device, pipeline_shape x) const {
    auto const k = static_cast<std::int64_t>(x.devices), v = static_cast<std::int64_t>(chunks);
    std::int64_t const all = x.micro_batches * v, after = k - 1 - static_cast<std::int64_t>(device);
    std::int64_t const each = group(x);
    std::int64_t const ahead = std::min(all, v == 1 ? after + 1 : 2 * after + (v - 1) * each + 1);
    std::vector<pipeline_pass> order;
    auto const add = [&](bool is_forward, std::int64_t n) {
        auto const round = n / each % v;
        order.push_back({is_forward, n / (each * v) * each + n % each,
                         static_cast<std::size_t>(is_forward ? round : v - 1 - round)});
    };
    for (std::int64_t n = 0; n < all + ahead; ++n) {
        if (n >= ahead) add(false, n - ahead);
        if (n < all) add(true, n);
    }
    return order;
}

} // namespace heddle

#endif
