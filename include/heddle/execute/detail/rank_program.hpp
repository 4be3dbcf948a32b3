// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What one rank does in an iteration: steps, and the order in which its micro-batches run them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/region_turns.hpp>
#include <heddle/execute/detail/turns.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/batch_split.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::detail {

/// Receives a value from an earlier stage; backward, sends its cotangent there.
struct receive_value {
    tensor_id tensor = 0;
    product_form form;
};
/// Sends a value to later stages; backward, receives its cotangents from there.
struct send_value {
    tensor_id tensor = 0;
    product_form form;
};
/// Adds a micro-batch's share of the loss to the iteration's; backward, makes the share's cotangent.
struct add_loss {
    product_form form;
};
using rank_step = std::variant<plan_step, receive_value, send_value, add_loss>;

struct rank_turn {
    /// What a step made is dropped where it is to be made again. At its end, a micro-batch has nothing any more.
    enum class kind : std::uint8_t { forward, drop, backward, end };
    /// A step for all micro-batches, which only handles what they have in common.
    static constexpr auto all = std::numeric_limits<std::size_t>::max();

    kind what = kind::forward;
    std::size_t step = 0, micro_batch = 0;
};

/// *Lifetime:* refers to the plan of which it was made.
struct rank_program {
    static constexpr auto no_bucket = std::numeric_limits<std::size_t>::max();

    /// Says where shards lie.
    plan const* layout = nullptr;
    std::vector<rank_step> steps;
    std::vector<rank_turn> turns;
    /// The turns, ascending, before which a rank with several stages may go on with another one: behind what is done
    /// once before all micro-batches, and behind each pass.
    std::vector<std::size_t> pauses{};
    /// How micro-batches are parts of the batch, and the first place and the number of places that each has. The batch
    /// has `parts` parts on all ranks.
    batch_split split;
    std::vector<std::pair<extent, extent>> places;
    std::size_t parts = 1;
    /// The whole program, if the one that was indexed is a micro-batch's.
    std::optional<indexed_program> whole{};
    /// The tensors that a rank has once, for all micro-batches.
    std::vector<bool> is_common;
    /// The buckets of several gradients, and the bucket of each step.
    std::vector<gradient_bucket> buckets{};
    std::vector<std::size_t> bucket_of_step;

    /// Takes the buckets of a plan whose first step is the program's step number `first`; those of a single gradient
    /// are none, and neither are those of which a step is not `taken`.
    template <class Taken>
    void take_buckets(plan const& of, std::size_t first, Taken&& taken);
    [[nodiscard]] form_change const* change(std::size_t step) const {
        return std::get<plan_step>(steps[step]).instruction.change();
    }
};

template <class Taken>
void rank_program::take_buckets(plan const& of, std::size_t first, Taken&& taken) {
    bucket_of_step.assign(steps.size(), no_bucket);
    for (auto& bucket : gradient_buckets(of)) {
        if (bucket.steps.size() == 1 || !algorithm::all_of(bucket.steps, taken)) continue;
        for (auto& n : bucket.steps) bucket_of_step[n += first] = buckets.size();
        buckets.push_back(std::move(bucket));
    }
}

/// Returns the first form in which a plan makes the loss and may end.
[[nodiscard]] product_form form_of_loss(indexed_program const& p, plan const& what);

/// Returns a batch of one part, on which nothing is split.
[[nodiscard]] batch_split undivided_batch(indexed_program const& p);

/// Returns what every rank of a plan does. `indexed` is `index_for(p, what)`.
[[nodiscard]] rank_program program_of_rank(program const& p, indexed_program const& indexed, plan const& what);

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE batch_split undivided_batch(indexed_program const& p) {
    batch_split result;
    result.forms.assign(p.tensors.size(), tensor_form::replicated());
    for (operator_id o = 0; o < p.operators.size(); ++o)
        result.computations.push_back({o, form_list(p.operators[o].operands.size(), tensor_form::replicated()),
                                       form_list(p.operators[o].results.size(), tensor_form::replicated())});
    return result;
}

HEDDLE_INLINE product_form form_of_loss(indexed_program const& p, plan const& what) {
    for (auto const& s : what.steps) {
        if (auto const* compute = s.instruction.as<instruction::compute>()) {
            auto const& results = p.operators[compute->op].results;
            auto const k = static_cast<std::size_t>(algorithm::find(results, p.loss) - results.begin());
            if (k < results.size() && is_end(s.result(k))) return s.result(k);
        } else if (s.instruction.change()->tensor == p.loss && is_end(s.to())) {
            return s.to();
        }
    }
    return {1 + what.inner_sizes.size(), tensor_form::mirrored()};
}

HEDDLE_INLINE rank_program program_of_rank(program const& p, indexed_program const& indexed, plan const& what) {
    rank_program result;
    result.layout = &what;
    result.parts = static_cast<std::size_t>(what.provenance.training.micro_batches);
    if (result.parts == 1) {
        result.split = undivided_batch(indexed);
    } else {
        result.whole = index_program(p, what.segments);
        result.split = find_batch_split(*result.whole, batch_of_inputs(*result.whole));
    }
    extent const each = result.split.places / static_cast<extent>(result.parts);
    for (std::size_t m = 0; m < result.parts; ++m) result.places.push_back({static_cast<extent>(m) * each, each});
    for (auto const& t : indexed.tensors)
        result.is_common.push_back(t.is_parameter() || (result.parts == 1 && t.is_read_once()));
    for (auto const& s : what.steps) result.steps.push_back(s);
    auto const loss = result.steps.size();
    result.steps.push_back(add_loss{form_of_loss(indexed, what)});
    auto const order = turns_of(what);
    auto const add = [&](rank_turn::kind kind, turn const& t) {
        result.turns.push_back({kind, t.step, t.micro_batch});
    };
    region_turns const regions(what, indexed, {indexed.loss});
    for (auto const& t : order.forward) {
        add(rank_turn::kind::forward, t);
        for (auto n : regions.dropped_after(t.step)) add(rank_turn::kind::drop, {n, t.micro_batch});
    }
    for (std::size_t m = 0; m < result.parts; ++m) {
        add(rank_turn::kind::forward, {loss, m});
        for (auto n : regions.dropped_at_end()) add(rank_turn::kind::drop, {n, m});
    }
    for (std::size_t m = 0; m < result.parts; ++m) add(rank_turn::kind::backward, {loss, m});
    for (auto const& t : order.backward) {
        for (auto n : regions.again_before(t.step)) add(rank_turn::kind::forward, {n, t.micro_batch});
        add(rank_turn::kind::backward, t);
    }
    result.take_buckets(what, 0, [](std::size_t) { return true; });
    return result;
}

} // namespace heddle::detail

#endif
