// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a pipeline plan on one rank, which is a device's part of a stage of a copy: micro-batch by micro-batch,
/// forward and backward in turn.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/group_tensors.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
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
template <class Scalar>
struct pipeline_result {
    /// The whole loss, on the ranks of the last stage.
    std::optional<Scalar> loss;
    /// The gradients of the parameters that the stage uses, in the form in which its group stores them.
    iteration_result<Scalar> gradients;
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

    pipeline_rank(program const& p, indexed_program const& indexed, batch_split const& split,
                  pipeline_layout const& layout, Communicator& world, Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), split_(split), layout_(layout), world_(world), backend_(backend), seed_(seed),
          at_(layout.place_of(world.rank())), stage_(layout.computation(at_.stage)),
          enter_(values_across(indexed, layout.operators(at_.stage).first)),
          leave_(values_across(indexed, layout.operators(at_.stage).second)), group_(group_of_stage()),
          whole_(indexed, layout.group_plan(at_.stage), group_) {}

    /// Turns whole sources into what this rank keeps between iterations: the parameters that its stage uses, as its
    /// group stores them, and the other sources whole. It can be used for gradients too, which have the same form.
    [[nodiscard]] source_values<Scalar> place(source_values<Scalar> const& whole) const {
        source_values<Scalar> mine;
        for (auto const& i : stage_.once)
            if (auto const* read = i.template as<instruction::read>())
                if (auto const found = whole.find(read->tensor); found != whole.end())
                    mine.emplace(read->tensor,
                                 is_parameter(read->tensor) ? stored(*read, found->second) : found->second);
        return mine;
    }

    /// Random draws of the iterations that follow are of this seed.
    void reseed(std::uint64_t seed) { seed_ = seed; }

    /// Runs one iteration on placed sources.
    template <class Schedule = one_f_one_b>
    [[nodiscard]] pipeline_result<Scalar> run(source_values<Scalar> const& sources, Schedule const& schedule = {}) {
        result_ = {};
        sources_.clear();
        gradients_.clear();
        for (auto const& i : stage_.once) {
            auto const& [t, from, to] = *i.change();
            auto& made = sources_[{t, to}];
            auto const* const read = i.template as<instruction::read>();
            made = read ? is_parameter(t) ? sources.at(t) : stored(*read, sources.at(t))
                        : whole_.exchange.convert(t, from, to, sources_.at({t, from}), uneven::padded);
            if (read && to == tensor_form::partial()) made = whole_.exchange.scaled(std::move(made));
        }
        for (auto const& pass : schedule.passes(at_.stage, layout_.shape())) {
            auto const [begin, count] = layout_.places(at_.copy, pass.micro_batch);
            begin_ = begin;
            count_ = count;
            if (pass.is_forward) forward(in_flight_[pass.micro_batch]);
            result_.most_in_flight = std::max(result_.most_in_flight, static_cast<std::int64_t>(in_flight_.size()));
            if (pass.is_forward) continue;
            backward(in_flight_.at(pass.micro_batch));
            in_flight_.erase(pass.micro_batch);
        }
        for (auto i = stage_.once.rbegin(); i != stage_.once.rend(); ++i) transpose_once(*i);
        add_up_gradients();
        if (result_.loss) among_copies().all_reduce(std::span<Scalar>(&*result_.loss, 1));
        return std::move(result_);
    }

    /// Returns the whole loss of an iteration on every rank; this is a collective.
    [[nodiscard]] Scalar whole_loss(pipeline_result<Scalar> const& result) {
        Scalar loss = result.loss.value_or(0);
        world_.broadcast(std::span<Scalar>(&loss, 1), layout_.rank({layout_.stages() - 1, 0, 0}));
        return loss;
    }

    /// Returns the Euclidean norm of the gradients of all parameters; this is a collective.
    [[nodiscard]] Scalar gradient_norm(iteration_result<Scalar> const& gradients) {
        Scalar sum = 0;
        for (auto const& [t, gradient] : gradients.gradients) // each element on one rank
            if (at_.stage == layout_.stage_of(indexed_.tensors[t].consumers.front()) && at_.copy == 0 &&
                (gradient.first.is_shard() || at_.part == 0))
                sum += sum_of_squares(gradient.second).number();
        world_.all_reduce(std::span<Scalar>(&sum, 1));
        return std::sqrt(sum);
    }

private:
    using values = std::map<formed_tensor, tensor>;
    using group_type = decltype(std::declval<Communicator&>().group(std::vector<std::size_t>{}));
    using tensors = detail::group_tensors<Scalar, group_type>;
    /// What is kept of a micro-batch until its backward pass. The statistics of rows, over the whole group, are by
    /// operator and number.
    struct kept {
        values tensors;
        std::map<std::pair<operator_id, std::size_t>, tensor> statistics;
    };

    [[nodiscard]] bool has_cotangent(tensor_id t) const { return indexed_.tensors[t].has_cotangent; }
    [[nodiscard]] bool is_parameter(tensor_id t) const { return indexed_.tensors[t].is_parameter(); }
    [[nodiscard]] bool is_value(tensor_id t) const { return program_.tensor(t).role == tensor_role::value; }
    /// Returns the form in which a value passes from stage to stage.
    [[nodiscard]] tensor_form passed(tensor_id t) const {
        return canonical(tensor_form::mirrored(), indexed_.tensors[t]);
    }
    [[nodiscard]] tensor stored(instruction::read const& read, tensor const& whole) const {
        return read.to.is_shard() ? whole_.layout.cut(read.tensor, read.to, whole, at_.part) : whole;
    }

    /// Returns the group's tensors for the size of the current micro-batch.
    [[nodiscard]] tensors& here() {
        return sizes_
            .try_emplace(count_, detail::part_of_batch(indexed_, split_, count_), layout_.group_plan(at_.stage), group_)
            .first->second;
    }

    // ---- one micro-batch

    void forward(kept& mine) {
        for (auto t : enter_) receive(mine.tensors[{t, passed(t)}], t, at_.stage - 1);
        for (auto const& [t, f] : stage_.enter)
            mine.tensors[{t, f}] =
                here().exchange.convert(t, passed(t), f, mine.tensors.at({t, passed(t)}), uneven::padded);
        for (auto const& i : stage_.each) {
            auto const* const compute = i.template as<instruction::compute>();
            if (!compute) {
                auto const& [t, from, to] = *i.change();
                mine.tensors[{t, to}] =
                    here().exchange.convert(t, from, to, mine.tensors.at({t, from}), uneven::padded);
                continue;
            }
            std::vector<tensor> made;
            auto results = backend_.forward(call(*compute, mine), operands(*compute, mine.tensors, made));
            for (std::size_t k = 0; k < results.size(); ++k)
                mine.tensors[{program_.results(compute->op)[k], compute->results[k]}] = std::move(results[k]);
        }
        for (auto const& [t, f] : stage_.leave)
            if (f != passed(t))
                mine.tensors[{t, passed(t)}] =
                    here().exchange.convert(t, f, passed(t), mine.tensors.at({t, f}), uneven::padded);
        for (auto t : leave_) send(mine.tensors.at({t, passed(t)}), t, at_.stage + 1, result_.activations);
        if (auto const loss = mine.tensors.find({program_.loss(), passed(program_.loss())}); loss != mine.tensors.end())
            result_.loss = result_.loss.value_or(0) + loss->second[0] * loss_share();
    }

    void backward(kept& mine) {
        values cotangents;
        if (formed_tensor const loss{program_.loss(), passed(program_.loss())}; mine.tensors.contains(loss))
            cotangents[loss] = tensor(program_.tensor(loss.first).shape, loss_share());
        for (auto t : leave_)
            if (has_cotangent(t)) receive(cotangents[{t, passed(t)}], t, at_.stage + 1);
        for (auto const& [t, f] : stage_.leave)
            if (f != passed(t)) transpose(cotangents, t, f, passed(t), here());
        for (auto i = stage_.each.rbegin(); i != stage_.each.rend(); ++i) {
            if (auto const* change = i->change())
                transpose(cotangents, change->tensor, change->from, change->to, here());
            else backward(*i->template as<instruction::compute>(), mine, cotangents);
        }
        for (auto const& [t, f] : stage_.enter) transpose(cotangents, t, passed(t), f, here());
        for (auto t : enter_)
            if (has_cotangent(t))
                send(cotangents.try_emplace({t, passed(t)}, held_shape(t)).first->second, t, at_.stage - 1,
                     result_.cotangents);
    }
    void backward(instruction::compute const& i, kept& mine, values& cotangents) {
        std::vector<tensor const*> given, results;
        for (std::size_t k = 0; k < i.results.size(); ++k) {
            formed_tensor const place{program_.results(i.op)[k], i.results[k]};
            auto const found = cotangents.find(place);
            given.push_back(found == cotangents.end() ? nullptr : &found->second);
            results.push_back(&mine.tensors.at(place));
        }
        if (algorithm::all_of(given, [](auto const* g) { return g == nullptr; })) return;
        std::vector<tensor> made;
        auto gradients = backend_.backward(call(i, mine), operands(i, mine.tensors, made), results, given);
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            tensor_id const t = program_.operands(i.op)[k];
            if (!gradients[k] || !has_cotangent(t)) continue;
            accumulate(is_value(t) ? cotangents : gradients_, {t, i.operands[k]},
                       of_tensor(t, i.operands[k], batch_use(i, k), *std::move(gradients[k])));
        }
    }
    /// Adds what a conversion makes of the cotangent of its result when transposed.
    void transpose(values& cotangents, tensor_id t, tensor_form from, tensor_form to, tensors& of) {
        auto const found = cotangents.find({t, to});
        if (found != cotangents.end())
            accumulate(cotangents, {t, from}, of.exchange.transpose(t, from, to, found->second, uneven::padded));
    }

    // ---- between stages

    /// Sends to those parts of the other stage's group that are equal to this one modulo the size of this group; all of
    /// this group have the same.
    void send(tensor const& value, tensor_id t, std::size_t stage, bytes& counter) {
        auto const theirs = layout_.degree(stage), ours = layout_.degree(at_.stage);
        for (std::size_t part = at_.part; part < theirs; part += ours) {
            world_.send(std::span<Scalar const>(value.data), layout_.rank({stage, at_.copy, part}));
            counter += bytes(static_cast<double>(value.elements()) * element_size(program_.tensor(t).type));
        }
    }
    void receive(tensor& value, tensor_id t, std::size_t stage) {
        value = tensor(held_shape(t));
        world_.receive(std::span<Scalar>(value.data),
                       layout_.rank({stage, at_.copy, at_.part % layout_.degree(stage)}));
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
                auto const [known, is_new] = mine.statistics.try_emplace({i.op, which}, rows);
                if (is_new) {
                    whole_.exchange.count_as(program_.results(i.op)[0]);
                    group_.all_reduce(known->second.flat(), how);
                }
                rows = known->second;
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
    [[nodiscard]] factor batch_factor(tensor_id t, tensor_form held, tensor_form use) const {
        auto const f = factor_of(t, use);
        return held.is_shard() ? within(f, factor_of(t, held), whole_.layout.places(t, held)[at_.part]) : f;
    }

    /// Returns the operands as an operator uses them; `made` keeps those that are held otherwise in the micro-batch.
    [[nodiscard]] std::vector<tensor const*> operands(instruction::compute const& i, values const& mine,
                                                      std::vector<tensor>& made) const {
        std::vector<tensor const*> result;
        auto const of = program_.operands(i.op);
        made.reserve(of.size());
        for (std::size_t k = 0; k < of.size(); ++k) {
            tensor_form const use = batch_use(i, k);
            tensor const* held = &(is_value(of[k]) ? mine : sources_).at({of[k], i.operands[k]});
            if (use != split_.forms[of[k]]) {
                made.push_back(use.is_shard() ? take(*held, batch_factor(of[k], i.operands[k], use), begin_, count_)
                                              : *held);
                held = &made.back();
                if (use == tensor_form::partial()) made.back() *= share();
            }
            result.push_back(held);
        }
        return result;
    }
    /// Turns the cotangent of an operand into that of the tensor; it is the transpose of `operands`.
    [[nodiscard]] tensor of_tensor(tensor_id t, tensor_form held, tensor_form use, tensor gradient) const {
        if (use == split_.forms[t]) return gradient;
        if (use.is_shard())
            return pad(gradient, whole_.layout.held_shape(t, held, at_.part), batch_factor(t, held, use), begin_,
                       count_);
        gradient *= share();
        return gradient;
    }
    static void accumulate(values& into, formed_tensor const& of, tensor gradient) {
        auto const [slot, is_new] = into.try_emplace(of);
        if (is_new) slot->second = std::move(gradient);
        else slot->second += gradient;
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
        auto& gradient = gradients_.try_emplace({t, to}, whole_.layout.held_shape(t, to, at_.part)).first->second;
        if (to == tensor_form::replicated()) gradient = whole_.exchange.reduced(t, std::move(gradient));
        result_.gradients.gradients.insert_or_assign(
            t, std::pair(to.is_shard() ? to : tensor_form::replicated(), gradient));
    }

    /// Sums gradients over copies, and over the stages that use a parameter.
    void add_up_gradients() {
        auto& copies = among_copies();
        for (auto& [t, result] : result_.gradients.gradients) {
            auto& [stored_as, gradient] = result;
            copies.all_reduce(std::span<Scalar>(gradient.data));
            std::vector<std::size_t> users;
            for (auto o : indexed_.tensors[t].consumers)
                if (auto const s = layout_.stage_of(o); users.empty() || users.back() != s) users.push_back(s);
            if (users.size() == 1) continue;
            bool const is_cut = stored_as.is_shard();
            auto whole = is_cut ? whole_.exchange.gathered(t, stored_as, gradient, uneven::padded) : gradient;
            if (at_.copy > 0 || at_.part > 0) whole *= Scalar{0}; // one of a stage speaks for all
            all_of(users).all_reduce(std::span<Scalar>(whole.data));
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
    values sources_, gradients_;
    pipeline_result<Scalar> result_;
};

} // namespace heddle
