// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The stages of a pipeline as ranks: what one does, and how it meets the others.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/program/program.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Returns what a rank of a stage does, if its micro-batches pass in this order. Values come from the stage before and
/// go to the next mirrored.
[[nodiscard]] rank_program program_of_rank(indexed_program const& p, batch_split const& split,
                                           pipeline_layout const& layout, pipeline_layout::place const& at,
                                           std::span<pipeline_pass const> passes);

} // namespace detail

/// One rank's place in a pipeline: what `interpreter` runs there, the group that shares its stage of its copy, and its
/// ways to the other stages and copies.
///
/// A tensor is held in two ways at once: a micro-batch holds a form of it in the batch (`batch_split`), and a device
/// holds a form of that in a tensor group (`stage_program`). Both are forms of the theory, but over other devices and
/// of other factors, so each conversion acts on what the other leaves.
///
/// *Preconditions.* The split and the layout are of the program; `world` has `layout.ranks()` ranks, all of which make
/// this. References to all arguments are kept.
template <rank_tensor Tensor, point_to_point_of<typename Tensor::scalar_type> World>
class stage_rank {
public:
    using scalar = typename Tensor::scalar_type;
    using group_type = decltype(std::declval<World&>().group(std::vector<std::size_t>{}));
    using request = typename starter<scalar, World>::request;
    static_assert(std::same_as<request, typename starter<scalar, group_type>::request>,
                  "A group's operations are as those of all ranks.");
    static constexpr bool is_alone = false;
    static constexpr std::ptrdiff_t previous = -1, next = 1;

    template <pipeline_schedule Schedule = one_f_one_b>
    stage_rank(indexed_program const& p, batch_split const& split, pipeline_layout const& layout, World& world,
               Schedule const& schedule = {})
        : program_(p), layout_(layout), world_(world), at_(layout.place_of(world.rank())),
          what_(detail::program_of_rank(p, split, layout, at_, schedule.passes(at_.stage, layout.shape()))),
          group_(world.group(ranks_of(at_.stage, at_.copy))) {
        meet();
    }

    [[nodiscard]] pipeline_layout::place const& at() const { return at_; }
    [[nodiscard]] detail::rank_program const& program() const { return what_; }
    [[nodiscard]] group_type& group() { return group_; }
    /// The bytes of all iterations that were sent to the next stage and to the one before, counted by the program's
    /// element types.
    [[nodiscard]] bytes activations() const { return activations_; }
    [[nodiscard]] bytes cotangents() const { return cotangents_; }

    /// Sends to those parts of the other stage's group that are equal to this one modulo the size of this group; all of
    /// this group have the same.
    void send(detail::held<Tensor> const& value, tensor_id t, std::ptrdiff_t towards) {
        for (auto const rank : receivers(towards)) {
            sent_.emplace_back(value, messages::send(world_, value->flat(), rank));
            (towards == next ? activations_ : cotangents_) +=
                bytes(static_cast<double>(value->elements()) * element_size(program_.tensors[t].info.type));
        }
    }
    /// Receives what a rank of another stage sends next; `into` has its shape.
    [[nodiscard]] detail::arriving<detail::held<Tensor>, request> received(detail::held<Tensor> into,
                                                                           std::ptrdiff_t towards) {
        auto const data = into.own().flat();
        auto started = messages::receive(world_, data, sender(towards));
        return {std::move(started), [into = std::move(into)] { return into; }};
    }

    /// Waits until all is sent, so that others come as far, and sums gradients over copies, and over the stages that use
    /// a parameter.
    void finish(gradients_of<Tensor>& gradients, detail::rank_tensors<Tensor, group_type>& of) {
        for (auto& s : sent_) s.second.wait();
        sent_.clear();
        auto& copies = group_of(ranks_of_copies());
        std::vector<request> started;
        for (auto& [t, gradient] : gradients)
            started.push_back(starter<scalar, group_type>::all_reduce(copies, gradient.second.flat()));
        for (auto& r : started) r.wait();
        for (auto& [t, result] : gradients) {
            auto const users = stages_that_use(t);
            if (users.size() == 1) continue;
            auto& [stored_as, gradient] = result;
            bool const is_cut = stored_as[0].is_shard();
            Tensor whole = is_cut ? *of.read(t, stored_as, tensor_form::replicated(),
                                             detail::held<Tensor>::of(gradient), uneven::padded)
                                         .get()
                                  : std::move(gradient);
            if (at_.copy > 0 || at_.part > 0) whole = Tensor(whole.shape()); // one of a stage speaks for all
            std::vector<std::size_t> members;
            for (auto const stage : users)
                for (std::size_t copy = 0; copy < layout_.copies(); ++copy)
                    for (auto const rank : ranks_of(stage, copy)) members.push_back(rank);
            group_of(members).all_reduce(whole.flat());
            gradient = is_cut ? of.layout.cut(t, stored_as, whole) : std::move(whole);
        }
    }

    /// Returns the sum of all ranks' tensors.
    template <rank_tensor Any>
    [[nodiscard]] Any total(Any mine) {
        world_.all_reduce(mine.flat());
        return mine;
    }
    /// Tells whether the gradient of a parameter counts here, of all stages and copies that have it.
    [[nodiscard]] bool speaks_for(tensor_id t) const {
        return at_.copy == 0 && at_.stage == layout_.stage_of(program_.tensors[t].consumers.front());
    }

private:
    using messages = starter<scalar, World>;

    [[nodiscard]] std::size_t other(std::ptrdiff_t towards) const {
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at_.stage) + towards);
    }
    [[nodiscard]] std::vector<std::size_t> receivers(std::ptrdiff_t towards) const {
        std::vector<std::size_t> ranks;
        auto const stage = other(towards);
        for (std::size_t part = at_.part; part < layout_.degree(stage); part += layout_.degree(at_.stage))
            ranks.push_back(layout_.rank({stage, at_.copy, part}));
        return ranks;
    }
    [[nodiscard]] std::size_t sender(std::ptrdiff_t towards) const {
        auto const stage = other(towards);
        return layout_.rank({stage, at_.copy, at_.part % layout_.degree(stage)});
    }
    /// Exchanges a number with everyone that messages will go to or come from: on devices, ranks join for their first
    /// message, and a host that waits for its device then would keep another waiting.
    void meet() {
        std::vector<std::pair<Tensor, request>> met;
        Tensor const mine(tensor_shape{});
        for (auto const towards : {previous, next}) {
            if (other(towards) >= layout_.stages()) continue;
            for (auto const rank : receivers(towards))
                met.emplace_back(mine, messages::send(world_, mine.flat(), rank));
            Tensor theirs(tensor_shape{});
            auto started = messages::receive(world_, theirs.flat(), sender(towards));
            met.emplace_back(std::move(theirs), std::move(started));
        }
        for (auto& m : met) m.second.wait();
    }
    [[nodiscard]] std::vector<std::size_t> ranks_of(std::size_t stage, std::size_t copy) const {
        std::vector<std::size_t> members;
        for (std::size_t part = 0; part < layout_.degree(stage); ++part)
            members.push_back(layout_.rank({stage, copy, part}));
        return members;
    }
    /// Returns the ranks that hold the same part of the stage, one of each copy.
    [[nodiscard]] std::vector<std::size_t> ranks_of_copies() const {
        std::vector<std::size_t> members;
        for (std::size_t copy = 0; copy < layout_.copies(); ++copy)
            members.push_back(layout_.rank({at_.stage, copy, at_.part}));
        return members;
    }
    [[nodiscard]] std::vector<std::size_t> stages_that_use(tensor_id t) const {
        std::vector<std::size_t> users;
        for (auto o : program_.tensors[t].consumers)
            if (auto const s = layout_.stage_of(o); users.empty() || users.back() != s) users.push_back(s);
        return users;
    }
    /// Returns the communicator of some ranks, which they form when they first meet.
    [[nodiscard]] group_type& group_of(std::vector<std::size_t> const& members) {
        auto const known = groups_.find(members);
        return known != groups_.end() ? known->second : groups_.emplace(members, world_.group(members)).first->second;
    }

    indexed_program const& program_;
    pipeline_layout const& layout_;
    World& world_;
    pipeline_layout::place at_;
    detail::rank_program what_;
    group_type group_;
    std::map<std::vector<std::size_t>, group_type> groups_;
    /// What other stages may still be reading.
    std::vector<std::pair<detail::held<Tensor>, request>> sent_;
    bytes activations_, cotangents_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE rank_program program_of_rank(indexed_program const& p, batch_split const& split,
                                           pipeline_layout const& layout, pipeline_layout::place const& at,
                                           std::span<pipeline_pass const> passes) {
    auto const& stage = layout.computation(at.stage);
    auto const passed = [&](tensor_id t) { return canonical(tensor_form::mirrored(), p.tensors[t]); };
    rank_program result;
    result.layout = &layout.group_plan(at.stage);
    result.parts = layout.parts();
    result.split = split;
    for (auto const& t : p.tensors) result.is_common.push_back(t.is_source());
    for (std::int64_t m = 0; m < layout.shape().micro_batches; ++m) result.places.push_back(layout.places(at.copy, m));

    auto const [first, end] = layout.operators(at.stage);
    auto& steps = result.steps;
    auto const add = [&](instruction i) { steps.push_back(plan_step{std::move(i), {}, {}}); };
    auto const convert = [&](tensor_id t, tensor_form from, tensor_form to) {
        if (from != to) add(instruction::convert(t, from, to));
    };
    for (auto const& i : stage.once) add(i);
    auto const once = steps.size();
    for (auto t : values_across(p, first)) steps.push_back(receive_value{t, passed(t)});
    for (auto const& [t, f] : stage.enter) convert(t, passed(t), f);
    for (auto const& i : stage.each) add(i);
    for (auto const& [t, f] : stage.leave) convert(t, f, passed(t));
    for (auto t : values_across(p, end)) steps.push_back(send_value{t, passed(t)});
    if (algorithm::any_of(stage.leave, [&](formed_tensor const& held) { return held.first == p.loss; }))
        steps.push_back(add_loss{passed(p.loss)});

    using kind = rank_turn::kind;
    auto& turns = result.turns;
    for (std::size_t n = 0; n < once; ++n) turns.push_back({kind::forward, n, rank_turn::all});
    for (auto const& pass : passes) {
        auto const m = static_cast<std::size_t>(pass.micro_batch);
        if (pass.is_forward) {
            for (std::size_t n = once; n < steps.size(); ++n) turns.push_back({kind::forward, n, m});
            continue;
        }
        for (std::size_t n = steps.size(); n-- > once;) turns.push_back({kind::backward, n, m});
        turns.push_back({kind::end, 0, m});
    }
    for (std::size_t n = once; n-- > 0;) turns.push_back({kind::backward, n, rank_turn::all});
    result.bucket_of_step.assign(steps.size(), rank_program::no_bucket);
    return result;
}

} // namespace heddle::detail

#endif
