// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What programs of a priced graph cost under an accumulator.
#pragma once

#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace heddle {

/// What the first moves of a program cost.
template <time_accumulator Accumulator>
struct cost_label {
    typename Accumulator::label time;
    /// The bytes per class that stay, and the most that come and go.
    per_class memory;
    double buffer = 0;
    /// The small buckets whose latency is in the time.
    bucket_kinds begun = 0;
};

/// Adds up the costs of a program's moves, in order. It keeps a reference to the prices.
template <time_accumulator Accumulator>
class program_clock {
public:
    using label = cost_label<Accumulator>;

    explicit program_clock(priced_graph const& priced)
        : priced_(priced), time_(priced.model().class_count(), priced.training()) {}

    [[nodiscard]] Accumulator const& time() const { return time_; }

    /// Returns the cost of no moves: that of constants.
    [[nodiscard]] label start() const {
        label result{time_.initial(), per_class(priced_.model().class_count(), 0.0), 0};
        per_class const everywhere(result.memory.size(), priced_.constants()), none(result.memory.size(), 0.0);
        time_.extend(result.time, {.forward = everywhere, .backward = none, .update = none, .memory = none});
        return result;
    }
    /// Adds a move to what the moves before it cost.
    void extend(label& l, std::size_t level, cut_space::action a) const {
        auto const op = priced_.space().operator_of(level, a);
        begin_stage(l.time, a);
        bucket_kinds const begins = priced_.small_buckets(level, a) & ~l.begun;
        for (auto i : priced_.instructions_of(a)) {
            bucket_kinds const kind = begins ? priced_.small_bucket(op, i) & ~l.begun : 0;
            if (!kind) {
                time_.extend(l.time, priced_.instruction(op, i));
                continue;
            }
            auto first = priced_.instruction(op, i);
            first.deferred += priced_.latency(kind);
            time_.extend(l.time, first);
            l.begun |= kind;
        }
        l.buffer = std::max(l.buffer, priced_.buffer(level, a));
        auto const stays = priced_.memory(level, a);
        for (std::size_t k = 0; k < l.memory.size(); ++k) l.memory[k] += stays[k];
    }
    /// Returns the cost of a program, as the sum over its steps; the moves of its first `level` levels are in `made`,
    /// and `rest` has the others.
    [[nodiscard]] path_cost evaluate(label made, std::size_t level, std::span<cut_space::action const> rest) const {
        for (auto a : rest) extend(made, level++, a);
        double const total = time_.total(made.time);
        path_cost result{total, {made.memory.begin(), made.memory.end()}, total};
        for (auto& memory : result.memory) memory += made.buffer;
        return result;
    }
    /// Returns the cost of a whole program, with the time of its buckets.
    [[nodiscard]] path_cost evaluate(move_list const& path) const {
        auto result = evaluate(start(), 0, path);
        if (!priced_.has_buckets()) return result;
        auto const sent = priced_.sent_after(path);
        auto time = start().time;
        std::size_t n = 0;
        for (std::size_t level = 0; level < path.size(); ++level) {
            begin_stage(time, path[level]);
            for (auto i : priced_.instructions_of(path[level])) {
                auto cost = priced_.instruction(priced_.space().operator_of(level, path[level]), i);
                if (sent[n]) cost.deferred = *sent[n];
                time_.extend(time, cost);
                ++n;
            }
        }
        result.seconds = time_.total(time);
        return result;
    }

private:
    void begin_stage([[maybe_unused]] typename Accumulator::label& time, [[maybe_unused]] cut_space::action a) const {
        if constexpr (staged_accumulator<Accumulator>)
            if (priced_.space().moves()[a].begins_stage) time_.close(time);
    }

    priced_graph const& priced_;
    Accumulator time_;
};

} // namespace heddle
