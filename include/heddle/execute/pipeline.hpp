// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a pipeline plan on one rank, which is a device's part of a stage of a copy: micro-batch by micro-batch,
/// forward and backward in turn.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/group_tensors.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// What a rank has after an iteration.
template <class Scalar, rank_tensor Tensor = dense_tensor<Scalar>>
struct pipeline_result {
    /// The whole loss, on the ranks of the last stage.
    std::optional<Scalar> loss;
    /// The gradients of the parameters that the stage uses, in the form in which its group stores them.
    iteration_result<Scalar, Tensor> gradients;
    /// The bytes sent to the next stage and to the one before, counted by the program's element types.
    bytes activations, cotangents;
    /// The largest number of micro-batches of which the rank held activations at one time.
    std::int64_t most_in_flight = 0;
};

/// One rank of a pipeline. Every stage that values pass hands them on, and their cotangents too.
///
/// A tensor is held in two ways at once: a micro-batch holds a form of it in the batch (`batch_split`), and this device
/// holds a form of that in a tensor group (`stage_program`). Both are forms of the theory, but over other devices and
/// of other factors, so each conversion acts on what the other leaves.
///
/// *Preconditions.* The split and the layout are of the program; the communicator has `layout.ranks()` ranks, all of
/// which run this. References to all arguments are kept.
template <class Scalar, point_to_point_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class pipeline_rank {
public:
    using tensor = typename Backend::tensor;
    using values_type = tensor_values<tensor>;
    using result_type = pipeline_result<Scalar, tensor>;

    pipeline_rank(program const& p, indexed_program const& indexed, batch_split const& split,
                  pipeline_layout const& layout, Communicator& world, Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), split_(split), layout_(layout), world_(world), backend_(backend), seed_(seed),
          at_(layout.place_of(world.rank())), stage_(layout.computation(at_.stage)),
          enter_(values_across(indexed, layout.operators(at_.stage).first)),
          leave_(values_across(indexed, layout.operators(at_.stage).second)), group_(group_of_stage()),
          whole_(indexed, layout.group_plan(at_.stage), group_) {}

    /// Turns whole sources into what this rank keeps between iterations: the parameters that its stage uses, as its
    /// group stores them, and the other sources whole. It can be used for gradients too, which have the same form.
    [[nodiscard]] values_type place(source_values<Scalar> const& whole) const {
        values_type mine;
        for (auto const& i : stage_.once)
            if (auto const* read = i.template as<instruction::read>())
                if (auto const found = whole.find(read->tensor); found != whole.end()) {
                    if (is_parameter(read->tensor) && read->to.is_shard())
                        mine.emplace(read->tensor, whole_.layout.cut(read->tensor, read->to, found->second, at_.part));
                    else mine.emplace(read->tensor, found->second);
                }
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }

    /// Runs one iteration on placed sources.
    template <class Schedule = one_f_one_b>
    [[nodiscard]] result_type run(values_type const& sources, Schedule const& schedule = {}) {
        result_ = {};
        sources_ = slots(indexed_.tensors.size());
        gradients_ = slots(indexed_.tensors.size());
        for (auto const& i : stage_.once) {
            auto const& [t, from, to] = *i.change();
            if (!i.template is<instruction::read>()) {
                sources_.set(t, to, whole_.exchange.convert(t, from, to, source(t, from), uneven::padded));
                continue;
            }
            auto made = held::of(sources.at(t));
            if (!is_parameter(t) && to.is_shard()) made = whole_.layout.cut(t, to, *made, at_.part);
            if (to == tensor_form::partial()) made = whole_.exchange.scaled(std::move(made));
            sources_.set(t, to, arriving(std::move(made)));
        }
        std::optional<tensor> loss;
        for (auto const& pass : schedule.passes(at_.stage, layout_.shape())) {
            auto const [begin, count] = layout_.places(at_.copy, pass.micro_batch);
            begin_ = begin;
            count_ = count;
            auto& mine = in_flight_.try_emplace(pass.micro_batch, indexed_.tensors.size()).first->second;
            result_.most_in_flight = std::max(result_.most_in_flight, static_cast<std::int64_t>(in_flight_.size()));
            if (pass.is_forward) {
                forward(mine, loss);
                continue;
            }
            backward(mine);
            mine.values.drop_all();
            mine.cotangents.drop_all();
            in_flight_.erase(pass.micro_batch);
        }
        for (auto i = stage_.once.rbegin(); i != stage_.once.rend(); ++i) transpose_once(*i);
        sources_.drop_all();
        gradients_.drop_all();
        add_up_gradients();
        for (auto& s : sent_) s.second.wait();
        sent_.clear();
        if (loss) {
            among_copies().all_reduce(loss->flat());
            result_.loss = loss->number();
        }
        return std::move(result_);
    }

    /// Returns the whole loss of an iteration on every rank; this is a collective.
    [[nodiscard]] Scalar whole_loss(result_type const& result) {
        tensor loss(tensor_shape{}, result.loss.value_or(0));
        world_.broadcast(loss.flat(), layout_.rank({layout_.stages() - 1, 0, 0}));
        return loss.number();
    }

    /// Returns the Euclidean norm of the gradients of all parameters; this is a collective.
    [[nodiscard]] Scalar gradient_norm(iteration_result<Scalar, tensor> const& gradients) {
        tensor sum(tensor_shape{});
        for (auto const& [t, gradient] : gradients.gradients) // each element on one rank
            if (at_.stage == layout_.stage_of(indexed_.tensors[t].consumers.front()) && at_.copy == 0 &&
                (gradient.first.is_shard() || at_.part == 0))
                sum += sum_of_squares(gradient.second);
        world_.all_reduce(sum.flat());
        return std::sqrt(sum.number());
    }

private:
    using group_type = decltype(std::declval<Communicator&>().group(std::vector<std::size_t>{}));
    using tensors = detail::group_tensors<tensor, group_type>;
    using exchange = detail::tensor_exchange<tensor, group_type>;
    using request = typename exchange::request;
    using held = detail::held<tensor>;
    using arriving = typename exchange::result;
    using slots = detail::form_slots<detail::slot<tensor, request>>;
    /// What is kept of a micro-batch until its backward pass.
    using kept = detail::micro_batch_state<tensor, request>;
    using messages = starter<Scalar, Communicator>;
    static_assert(std::same_as<request, typename messages::request>, "A group's operations are as those of all ranks.");

    [[nodiscard]] bool has_cotangent(tensor_id t) const { return indexed_.tensors[t].has_cotangent; }
    [[nodiscard]] bool is_parameter(tensor_id t) const { return indexed_.tensors[t].is_parameter(); }
    [[nodiscard]] bool is_value(tensor_id t) const { return program_.tensor(t).role == tensor_role::value; }
    /// Returns the form in which a value passes from stage to stage.
    [[nodiscard]] tensor_form passed(tensor_id t) const {
        return canonical(tensor_form::mirrored(), indexed_.tensors[t]);
    }
    [[nodiscard]] held& source(tensor_id t, tensor_form f) { return sources_.find(t, f)->get(); }

    /// Returns the group's tensors for the size of the current micro-batch.
    [[nodiscard]] tensors& here() {
        return sizes_
            .try_emplace(count_, detail::part_of_batch(indexed_, split_, count_), layout_.group_plan(at_.stage), group_)
            .first->second;
    }

    // ---- one micro-batch

    void forward(kept& mine, std::optional<tensor>& loss) {
        auto const convert = [&](tensor_id t, tensor_form from, tensor_form to) {
            mine.values.set(t, to,
                            here().exchange.convert(t, from, to, mine.values.find(t, from)->get(), uneven::padded));
        };
        for (auto t : enter_) mine.values.set(t, passed(t), received(t, at_.stage - 1));
        for (auto const& [t, f] : stage_.enter) convert(t, passed(t), f);
        for (auto const& i : stage_.each) {
            if (auto const* const change = i.change()) {
                convert(change->tensor, change->from, change->to);
                continue;
            }
            auto const& compute = *i.template as<instruction::compute>();
            detail::run_forward(
                backend_, compute, call(compute, mine), [&](std::size_t k) { return operand(compute, k, mine); },
                [&](std::size_t k, tensor made) {
                    mine.values.set(program_.results(compute.op)[k], compute.results[k], arriving(std::move(made)));
                });
        }
        for (auto const& [t, f] : stage_.leave)
            if (f != passed(t)) convert(t, f, passed(t));
        for (auto t : leave_) send(mine.values.find(t, passed(t))->get(), t, at_.stage + 1, result_.activations);
        if (auto* const found = mine.values.find(program_.loss(), passed(program_.loss()))) {
            auto of_part = *found->get();
            of_part *= loss_share();
            if (loss) *loss += of_part;
            else loss = std::move(of_part);
        }
    }

    void backward(kept& mine) {
        if (tensor_id const loss = program_.loss(); mine.values.find(loss, passed(loss)))
            mine.cotangents.set(loss, passed(loss), arriving(tensor(program_.tensor(loss).shape, loss_share())));
        for (auto t : leave_)
            if (has_cotangent(t)) mine.cotangents.set(t, passed(t), received(t, at_.stage + 1));
        for (auto const& [t, f] : stage_.leave)
            if (f != passed(t)) transpose(mine.cotangents, t, f, passed(t), here());
        for (auto i = stage_.each.rbegin(); i != stage_.each.rend(); ++i) {
            if (auto const* change = i->change())
                transpose(mine.cotangents, change->tensor, change->from, change->to, here());
            else backward(*i->template as<instruction::compute>(), mine);
        }
        for (auto const& [t, f] : stage_.enter) transpose(mine.cotangents, t, passed(t), f, here());
        for (auto t : enter_) {
            if (!has_cotangent(t)) continue;
            auto cotangent = mine.cotangents.take(t, passed(t));
            send(cotangent ? cotangent->get() : held(tensor(held_shape(t))), t, at_.stage - 1, result_.cotangents);
        }
    }
    void backward(instruction::compute const& i, kept& mine) {
        std::vector<held> given(i.results.size());
        for (std::size_t k = 0; k < given.size(); ++k)
            if (auto* const found = mine.cotangents.find(program_.results(i.op)[k], i.results[k]))
                given[k] = found->get();
        if (algorithm::none_of(given, [](held const& g) { return static_cast<bool>(g); })) return;
        detail::run_backward(
            backend_, i, call(i, mine), [&](std::size_t k) { return operand(i, k, mine); },
            [&](std::size_t k) { return mine.values.find(program_.results(i.op)[k], i.results[k])->get(); }, given,
            [&](std::size_t k, tensor gradient) {
                tensor_id const t = program_.operands(i.op)[k];
                if (has_cotangent(t))
                    detail::accumulate(is_value(t) ? mine.cotangents : gradients_, t, i.operands[k],
                                       arriving(of_tensor(t, i.operands[k], batch_use(i, k), std::move(gradient))));
            });
    }
    /// Adds what a conversion makes of the cotangent of its result when transposed.
    void transpose(slots& cotangents, tensor_id t, tensor_form from, tensor_form to, tensors& of) {
        if (auto found = cotangents.take(t, to))
            detail::accumulate(cotangents, t, from,
                               of.exchange.transpose(t, from, to, std::move(found->get()), uneven::padded));
    }

    // ---- between stages

    /// Sends to those parts of the other stage's group that are equal to this one modulo the size of this group; all of
    /// this group have the same.
    void send(held const& value, tensor_id t, std::size_t stage, bytes& counter) {
        auto const theirs = layout_.degree(stage), ours = layout_.degree(at_.stage);
        for (std::size_t part = at_.part; part < theirs; part += ours) {
            sent_.emplace_back(value, messages::send(world_, value->flat(), layout_.rank({stage, at_.copy, part})));
            counter += bytes(static_cast<double>(value->elements()) * element_size(program_.tensor(t).type));
        }
    }
    [[nodiscard]] arriving received(tensor_id t, std::size_t stage) {
        held value(tensor(held_shape(t)));
        auto started = messages::receive(world_, value.own().flat(),
                                         layout_.rank({stage, at_.copy, at_.part % layout_.degree(stage)}));
        return {std::move(started), [value = std::move(value)] { return value; }};
    }

    // ---- one operator

    /// A whole loss is the same in every part of the batch, so each part adds its share.
    [[nodiscard]] Scalar loss_share() const {
        return split_.forms[program_.loss()] == tensor_form::partial() ? Scalar{1} : share();
    }
    [[nodiscard]] Scalar share() const { return Scalar{1} / static_cast<Scalar>(layout_.parts()); }

    [[nodiscard]] tensor_call<tensor> call(instruction::compute const& i, kept& mine) {
        auto const& op = indexed_.operators[i.op];
        tensor_call<tensor> result = whole_call(program_, i.op, seed_);
        if (auto const loop = split_.computations[i.op].loop; loop >= 0)
            split_call(result, program_, indexed_, i.op, op.loops[static_cast<std::size_t>(loop)], begin_, count_);
        if (i.loop < 0) return result;
        auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
        if (loop.exchanges()) {
            detail::split_exchange(result, program_, indexed_, i, loop, whole_.layout, at_.part, 0);
            result.send = [this, &i, &mine](std::size_t which, tensor const& rows, shard_counts sent,
                                            shard_counts received) {
                whole_.exchange.count_as(program_.results(i.op)[0]);
                if (auto const found = mine.statistics.find({i.op, which}); found != mine.statistics.end())
                    return found->second;
                return mine.statistics.try_emplace({i.op, which}, detail::exchanged(group_, rows, sent, received))
                    .first->second;
            };
            return result;
        }
        std::pair<extent, extent> range{0, loop.extent};
        auto const look = [&](std::vector<tensor_id> const& of, form_list const& forms) {
            for (std::size_t k = 0; k < forms.size(); ++k) {
                if (!forms[k].is_shard()) continue;
                auto const counts = whole_.layout.places(of[k], forms[k]);
                range = {whole_.layout.begin_of(counts, at_.part), counts[at_.part]};
            }
        };
        look(op.operands, i.operands);
        look(op.results, i.results);
        split_call(result, program_, indexed_, i.op, loop, range.first, range.second);
        if (detail::has_statistics(loop))
            result.combine = [this, &i, &mine](std::size_t which, reduction how, tensor& rows) {
                detail::combine_once(mine, i.op, which, rows, [&](tensor& joined) {
                    whole_.exchange.count_as(program_.results(i.op)[0]);
                    group_.all_reduce(joined.flat(), how);
                });
            };
        return result;
    }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return indexed_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }
    /// Returns the shape of a value that is whole in the group.
    [[nodiscard]] tensor_shape held_shape(tensor_id t) const {
        tensor_form const f = split_.forms[t];
        return f.is_shard() ? part_shape(program_.tensor(t).shape, factor_of(t, f), count_) : program_.tensor(t).shape;
    }
    [[nodiscard]] tensor_form batch_use(instruction::compute const& i, std::size_t k) const {
        return split_.computations[i.op].operands[k];
    }
    /// Returns the batch's factor of a tensor, within what the group's device holds of the tensor.
    [[nodiscard]] factor batch_factor(tensor_id t, tensor_form held_as, tensor_form use) const {
        auto const f = factor_of(t, use);
        return held_as.is_shard() ? within(f, factor_of(t, held_as), whole_.layout.places(t, held_as)[at_.part]) : f;
    }

    /// Returns an operand as an operator uses it in the micro-batch.
    [[nodiscard]] held operand(instruction::compute const& i, std::size_t k, kept& mine) {
        tensor_id const t = program_.operands(i.op)[k];
        tensor_form const use = batch_use(i, k);
        held value = (is_value(t) ? mine.values : sources_).find(t, i.operands[k])->get();
        if (use == split_.forms[t]) return value;
        if (use.is_shard()) return take(*value, batch_factor(t, i.operands[k], use), begin_, count_);
        if (use == tensor_form::partial()) value.own() *= share();
        return value;
    }
    /// Turns the cotangent of an operand into that of the tensor; it is the transpose of `operand`.
    [[nodiscard]] tensor of_tensor(tensor_id t, tensor_form held_as, tensor_form use, tensor gradient) const {
        if (use == split_.forms[t]) return gradient;
        if (use.is_shard())
            return pad(gradient, whole_.layout.held_shape(t, held_as, at_.part), batch_factor(t, held_as, use), begin_,
                       count_);
        gradient *= share();
        return gradient;
    }

    // ---- the end of an iteration

    [[nodiscard]] group_type group_of_stage() {
        std::vector<std::size_t> members;
        for (std::size_t part = 0; part < layout_.degree(at_.stage); ++part)
            members.push_back(layout_.rank({at_.stage, at_.copy, part}));
        return world_.group(std::move(members));
    }
    /// Returns the communicator of some ranks, which they form when they first meet.
    [[nodiscard]] group_type& group_of(std::vector<std::size_t> const& members) {
        auto const known = groups_.find(members);
        return known != groups_.end() ? known->second : groups_.emplace(members, world_.group(members)).first->second;
    }
    /// Returns the ranks that hold the same part of the stage, one of each copy.
    [[nodiscard]] group_type& among_copies() {
        std::vector<std::size_t> members;
        for (std::size_t copy = 0; copy < layout_.copies(); ++copy)
            members.push_back(layout_.rank({at_.stage, copy, at_.part}));
        return group_of(members);
    }
    /// Returns all ranks of these stages.
    [[nodiscard]] group_type& all_of(std::vector<std::size_t> const& stages) {
        std::vector<std::size_t> members;
        for (auto const stage : stages)
            for (std::size_t copy = 0; copy < layout_.copies(); ++copy)
                for (std::size_t part = 0; part < layout_.degree(stage); ++part)
                    members.push_back(layout_.rank({stage, copy, part}));
        return group_of(members);
    }

    /// Transposes an instruction on a source; for a parameter that is read, this sums what the group has.
    void transpose_once(instruction const& i) {
        auto const& [t, from, to] = *i.change();
        if (!i.template is<instruction::read>()) return transpose(gradients_, t, from, to, whole_);
        if (!program_.tensor(t).trainable) return;
        auto taken = gradients_.take(t, to);
        auto gradient = taken ? std::move(taken->get()) : held(tensor(whole_.layout.held_shape(t, to, at_.part)));
        reduced_.insert_or_assign(t, std::pair(to.is_shard() ? to : tensor_form::replicated(),
                                               to == tensor_form::replicated()
                                                   ? whole_.exchange.reduced(t, std::move(gradient))
                                                   : arriving(std::move(gradient))));
    }

    /// Sums gradients over copies, and over the stages that use a parameter.
    void add_up_gradients() {
        auto& copies = among_copies();
        auto& gradients = result_.gradients.gradients;
        for (auto& [t, reduced] : reduced_)
            gradients.emplace(t, std::pair(reduced.first, std::move(reduced.second.get()).release()));
        reduced_.clear();
        std::vector<request> started;
        for (auto& [t, gradient] : gradients)
            started.push_back(starter<Scalar, group_type>::all_reduce(copies, gradient.second.flat()));
        for (auto& r : started) r.wait();
        for (auto& [t, result] : gradients) {
            auto& [stored_as, gradient] = result;
            std::vector<std::size_t> users;
            for (auto o : indexed_.tensors[t].consumers)
                if (auto const s = layout_.stage_of(o); users.empty() || users.back() != s) users.push_back(s);
            if (users.size() == 1) continue;
            bool const is_cut = stored_as.is_shard();
            tensor whole = is_cut ? *whole_.exchange.gathered(t, stored_as, held::of(gradient), uneven::padded).get()
                                  : std::move(gradient);
            if (at_.copy > 0 || at_.part > 0) whole *= Scalar{0}; // one of a stage speaks for all
            all_of(users).all_reduce(whole.flat());
            gradient = is_cut ? whole_.layout.cut(t, stored_as, whole, at_.part) : std::move(whole);
        }
    }

    program const& program_;
    indexed_program const& indexed_;
    batch_split const& split_;
    pipeline_layout const& layout_;
    Communicator& world_;
    Backend const& backend_;
    std::uint64_t seed_;
    pipeline_layout::place at_;
    stage_program const& stage_;
    /// The values that come from the stage before, and those that go to the next.
    std::vector<tensor_id> enter_, leave_;
    group_type group_;
    std::map<std::vector<std::size_t>, group_type> groups_;
    /// The group's tensors in the whole batch, as sources are held; and those in micro-batches, by size.
    tensors whole_;
    std::map<extent, tensors> sizes_;
    /// The places of the batch that the current micro-batch has.
    extent begin_ = 0, count_ = 0;
    std::map<std::int64_t, kept> in_flight_;
    slots sources_{0}, gradients_{0};
    std::map<tensor_id, std::pair<tensor_form, arriving>> reduced_;
    /// What other stages may still be reading.
    std::vector<std::pair<held, request>> sent_;
    result_type result_;
};

} // namespace heddle
