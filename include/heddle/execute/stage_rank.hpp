// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The stages of a plan as ranks: what one does, and how it meets the others.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/detail/rank_tensors.hpp>
#include <heddle/execute/devices.hpp>
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/stage_links.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/program/program.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <type_traits>
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

/// One rank's place in a plan of stages: what `interpreter` runs there, the ranks that share its stage, and its ways to
/// the other stages and to other copies of its own.
///
/// In a pipeline plan, a tensor is held in two ways at once: a micro-batch holds a form of it in the batch
/// (`batch_split`), and a device holds a form of that in a tensor group (`stage_program`). Both are forms of the
/// theory, but over other devices and of other factors, so each conversion acts on what the other leaves.
///
/// `Ranks` are those that share a stage: a communicator, or what `on_device` makes of one for meshes and device groups.
/// *Preconditions.* All ranks of `world` make this, each with its part of the same plan.
/// References to the world and to the ranks of the stage are kept.
template <rank_tensor Tensor, point_to_point_of<typename Tensor::scalar_type> World,
          class Ranks = std::remove_cvref_t<decltype(std::declval<World&>().group(std::vector<std::size_t>{}))>>
class stage_rank {
public:
    using scalar = typename Tensor::scalar_type;
    using world_group = std::remove_cvref_t<decltype(std::declval<World&>().group(std::vector<std::size_t>{}))>;
    using group_type = Ranks;
    using request = typename starter<scalar, World>::request;
    using arriving_tensor = detail::arriving<detail::held<Tensor>, request>;
    using way = stage_links::way;
    using tensors = detail::rank_tensors<Tensor, Ranks>;
    static_assert(std::same_as<request, typename starter<scalar, detail::line_of<Ranks>>::request>,
                  "A group's operations are as those of all ranks.");
    static constexpr bool is_alone = false;

    /// Runs the steps of `what`, which refers to its plan, with the ranks that share the stage. `earlier` is another
    /// stage of this rank, if there is one, with which it shares the groups that ranks form.
    stage_rank(detail::rank_program what, stage_links links, World& world, Ranks& ranks, stage_rank* earlier = nullptr)
        : world_(world), what_(std::move(what)), links_(std::move(links)), group_(&ranks) {
        if (earlier) groups_ = earlier->groups_;
        meet();
    }
    /// A rank of a pipeline plan. The split and the layout are of the program, and references to them are kept too.
    template <pipeline_schedule Schedule = one_f_one_b>
    stage_rank(indexed_program const& p, batch_split const& split, pipeline_layout const& layout, World& world,
               Schedule const& schedule = {})
        requires std::same_as<Ranks, world_group>
        : world_(world), links_(links_of(p, layout, world.rank())) {
        auto const at = layout.place_of(world.rank());
        what_ = detail::program_of_rank(p, split, layout, at, schedule.passes(at.stage, layout.shape()));
        std::vector<std::size_t> members;
        for (std::size_t part = 0; part < layout.degree(at.stage); ++part)
            members.push_back(layout.rank({at.stage, at.copy, part}));
        group_ = &formed_.emplace(world.group(members));
        meet();
    }
    stage_rank(stage_rank const&) = delete;

    [[nodiscard]] detail::rank_program const& program() const { return what_; }
    [[nodiscard]] Ranks& group() { return *group_; }
    [[nodiscard]] std::size_t world_rank() const { return world_.rank(); }
    /// The bytes of all iterations that were sent to later stages and to earlier ones, counted by the elements' types.
    [[nodiscard]] bytes activations() const { return sent_bytes_[0]; }
    [[nodiscard]] bytes cotangents() const { return sent_bytes_[1]; }

    /// Sends a tensor of a micro-batch that is held in this form, or its cotangent in the dual form, to the stages that
    /// use it or made it.
    void send(tensors& here, std::size_t micro_batch, tensor_id t, product_form const& f, detail::held<Tensor> mine,
              way w) {
        mine = here.collected(t, f, std::move(mine));
        if (!here.inside.is_first()) return;
        if (w == way::cotangents) mine = std::move(here.gradient(t, f, f, std::move(mine), uneven::padded).get());
        auto const found = links_.of(w).sent.find({t, micro_batch % links_.turns});
        if (found == links_.of(w).sent.end()) return;
        for (auto const& part : found->second) {
            auto const sent = part.ranges.empty() ? mine : detail::held(detail::elements_in(*mine, part.ranges));
            sent_.emplace_back(sent, messages::send(world_, sent->flat(), part.rank));
            sent_bytes_[static_cast<std::size_t>(w)] +=
                bytes(static_cast<double>(sent->elements()) * element_size(here.indexed.tensors[t].info.type));
        }
    }
    /// Receives what other stages send of it.
    [[nodiscard]] arriving_tensor received(tensors& here, std::size_t micro_batch, tensor_id t, product_form const& f,
                                           way w) {
        auto const shape = here.layout.held_shape(t, f);
        auto all = here.inside.is_first() ? parts_received(shape, {t, micro_batch % links_.turns}, w)
                                          : arriving_tensor(detail::held<Tensor>(Tensor(shape)));
        // Of copies whose cotangents are summands, the first has all of it.
        bool counts = true;
        for (axis_number a = 0; a < f.size() && w == way::cotangents; ++a)
            counts = counts && (f[a] != tensor_form::replicated() || here.layout.here()[a] == 0);
        if (!counts) all.get() = Tensor(shape);
        return here.spread(t, f, std::move(all));
    }

    /// Waits until all is sent, so that others come as far, and sums gradients over copies.
    void finish(gradients_of<Tensor>& gradients) {
        for (auto& s : sent_) s.second.wait();
        sent_.clear();
        if (links_.copies.size() > 1) {
            auto& copies = group_of(links_.copies);
            std::vector<request> started;
            for (auto& [t, gradient] : gradients)
                started.push_back(starter<scalar, world_group>::all_reduce(copies, gradient.second.flat()));
            for (auto& r : started) r.wait();
        }
    }
    /// Returns the trained parameters that other stages use too, ascending.
    [[nodiscard]] std::vector<tensor_id> shared() const {
        std::vector<tensor_id> result;
        for (auto const& [t, members] : links_.shared) result.push_back(t);
        return result;
    }
    /// Sums the gradient of one of these over the stages that use it.
    void share(tensor_id t, gradients_of<Tensor>& gradients, tensors& of) {
        auto const found = gradients.find(t);
        if (found == gradients.end()) return;
        auto& [stored_as, gradient] = found->second;
        bool const is_cut = algorithm::any_of(stored_as, [](tensor_form f) { return f.is_shard(); });
        product_form const whole_form(stored_as.size(), tensor_form::replicated());
        Tensor whole =
            is_cut ? *of.read(t, stored_as, whole_form, detail::held<Tensor>::of(gradient), uneven::padded).get()
                   : std::move(gradient);
        if (!links_.is_first) whole = Tensor(whole.shape()); // one of a stage speaks for all
        group_of(links_.shared.at(t)).all_reduce(whole.flat());
        gradient = is_cut ? of.layout.cut(t, stored_as, whole) : std::move(whole);
    }

    /// Returns the sum of all ranks' tensors.
    template <rank_tensor Any>
    [[nodiscard]] Any total(Any mine) {
        world_.all_reduce(mine.flat());
        return mine;
    }
    /// Tells whether the gradient of a parameter counts here, of all stages and copies that have it.
    [[nodiscard]] bool speaks_for(tensor_id t) const { return links_.counts_here[t]; }

private:
    using messages = starter<scalar, World>;

    /// Receives a tensor of this shape, part by part, or the sum of what several stages send.
    [[nodiscard]] arriving_tensor parts_received(tensor_shape const& shape, common_parts::key_type const& what, way w) {
        struct message {
            Tensor data;
            request started;
            std::vector<std::vector<place_range>> const* ranges;
        };
        auto const found = links_.of(w).received.find(what);
        if (found == links_.of(w).received.end()) return detail::held<Tensor>(Tensor(shape));
        auto const parts = std::make_shared<std::vector<message>>();
        parts->reserve(found->second.size());
        for (auto const& part : found->second) {
            parts->push_back({Tensor(detail::shape_in(shape, part.ranges)), {}, &part.ranges});
            parts->back().started = messages::receive(world_, parts->back().data.flat(), part.rank);
        }
        return {request{}, [parts, shape] {
                    detail::held<Tensor> all;
                    for (auto& m : *parts) {
                        m.started.wait();
                        auto came = m.ranges->empty() ? std::move(m.data)
                                                      : detail::spread_over(shape, *m.ranges, std::move(m.data));
                        if (all) all.own() += came;
                        else all = std::move(came);
                    }
                    parts->clear();
                    return all;
                }};
    }
    /// Exchanges a number with everyone that values or cotangents will go to or come from: on devices, ranks join for
    /// their first message, and a host that waits for its device then would keep another waiting.
    void meet() {
        auto const ranks_of = [](common_parts const& all) {
            std::set<std::size_t> ranks;
            for (auto const& [what, parts] : all)
                for (auto const& part : parts) ranks.insert(part.rank);
            return ranks;
        };
        std::deque<std::pair<Tensor, request>> met;
        for (auto const& passing : links_.passings)
            for (auto const rank : ranks_of(passing.sent)) {
                auto& m = met.emplace_back(Tensor(tensor_shape{}), request{});
                m.second = messages::send(world_, std::as_const(m.first).flat(), rank);
            }
        for (auto const& passing : links_.passings)
            for (auto const rank : ranks_of(passing.received)) {
                auto& m = met.emplace_back(Tensor(tensor_shape{}), request{});
                m.second = messages::receive(world_, m.first.flat(), rank);
            }
        for (auto& m : met) m.second.wait();
    }
    /// Returns the communicator of some ranks, which they form when they first meet.
    [[nodiscard]] world_group& group_of(std::vector<std::size_t> const& members) {
        auto const known = groups_->find(members);
        return known != groups_->end() ? known->second : groups_->emplace(members, world_.group(members)).first->second;
    }

    World& world_;
    detail::rank_program what_;
    stage_links links_;
    std::optional<world_group> formed_;
    Ranks* group_;
    using groups = std::map<std::vector<std::size_t>, world_group>;
    std::shared_ptr<groups> groups_ = std::make_shared<groups>();
    /// What other stages may still be reading.
    std::vector<std::pair<detail::held<Tensor>, request>> sent_;
    std::array<bytes, 2> sent_bytes_{};
};

/// Calls `work(stages)` with the `stage_rank` of each of this rank's stages, in a sequence. All ranks call it.
/// *Precondition:* `world` has `layout.ranks()` ranks.
template <rank_tensor Tensor, point_to_point_of<typename Tensor::scalar_type> World, class Work>
void on_stages(staged_layout const& layout, World& world, Work&& work) {
    auto const mine = layout.stages_of(world.rank());
    auto group = divided(world, layout.ranks_of(mine.front()));
    on_device<typename Tensor::scalar_type>(layout.plan_of(mine.front()), group, [&](auto& ranks) {
        std::deque<stage_rank<Tensor, World, std::remove_reference_t<decltype(ranks)>>> here;
        for (auto const stage : mine)
            here.emplace_back(layout.program_of(stage), layout.links_of(stage, world.rank()), world, ranks,
                              here.empty() ? nullptr : &here.front());
        work(here);
    });
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/layers.hpp>

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
