// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a pipeline plan on one rank: a stage of a copy, micro-batch by micro-batch, forward and backward in turn.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/pipeline/batch_split.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// What a rank has after an iteration.
template <class Scalar>
struct pipeline_result {
    /// The whole loss, on the ranks of the last stage.
    std::optional<Scalar> loss;
    /// Of the parameters that the stage uses, whole, and the same on all ranks that use one.
    iteration_result<Scalar> gradients;
    /// Bytes sent to the next stage and to the one before, as the program's element types count them.
    bytes activations, cotangents;
    /// The most micro-batches of which the rank held activations at one time.
    std::int64_t most_in_flight = 0;
};

/// A pipeline plan's stages as ranges of a program's operators, and its micro-batches as ranges of the batch.
///
/// Rank `stage * copies + copy` runs that stage of that copy.
class pipeline_layout {
public:
    /// *Throws* `input_error` if the plan is none of the program, or has tensor groups of several devices.
    pipeline_layout(indexed_program const& p, pipeline_plan const& what, extent places) : plan_(what) {
        validate(what);
        auto const fail = [](std::string const& place, std::string const& problem) { throw input_error("pipeline plan, " + place, problem); };
        if (!what.exists()) fail("stages", "there are none");
        if (what.operator_count() != p.operators.size())
            fail("layers", "of " + std::to_string(what.operator_count()) + " operators, expected those of the model, " + std::to_string(p.operators.size()));
        if (auto const devices = what.stages.front().devices.front().size(); devices != 1 || std::ranges::any_of(what.stages, [](auto const& s) { return s.devices.front().size() != 1; }))
            fail("stages", "tensor groups of several devices, expected one: execution has no tensor parallelism inside stages yet");
        if (what.global_batch > 0 && what.global_batch != places)
            fail("global batch", std::to_string(what.global_batch) + " samples, the model's batch has " + std::to_string(places));
        std::vector<operator_id> ends{0};
        for (auto const& l : what.layers) ends.push_back(ends.back() + static_cast<operator_id>(l.operators));
        cuts_.push_back(0);
        for (auto const& s : what.stages) cuts_.push_back(ends[s.end]);
        auto const copies = static_cast<extent>(what.copies());
        for (extent c = 0, begin = 0; c < copies; ++c) {
            extent const samples = places / copies + (c < places % copies ? 1 : 0), end = begin + samples;
            extent const size = what.micro_batch_size > 0 ? what.micro_batch_size : (samples + what.micro_batches - 1) / what.micro_batches;
            if (size * what.micro_batches < samples)
                fail("micro-batches", std::to_string(what.micro_batches) + " of " + std::to_string(size) + ", expected enough for a copy's " + std::to_string(samples) + " samples");
            for (extent m = 0; m < what.micro_batches; ++m) {
                extent const first = std::min(begin + m * size, end);
                ranges_.push_back({first, std::min(size, end - first)});
            }
            begin = end;
        }
    }

    [[nodiscard]] std::size_t stages() const { return plan_.stages.size(); }
    [[nodiscard]] std::size_t copies() const { return plan_.copies(); }
    [[nodiscard]] std::size_t rank(std::size_t stage, std::size_t copy) const { return stage * copies() + copy; }
    [[nodiscard]] pipeline_shape shape() const { return {stages(), plan_.micro_batches}; }
    /// The operators [first, end) of a stage.
    [[nodiscard]] std::pair<operator_id, operator_id> operators(std::size_t stage) const { return {cuts_[stage], cuts_[stage + 1]}; }
    [[nodiscard]] std::size_t stage_of(operator_id o) const { return static_cast<std::size_t>(std::ranges::upper_bound(cuts_, o) - cuts_.begin()) - 1; }
    /// Parts of the batch: of all copies.
    [[nodiscard]] std::size_t parts() const { return ranges_.size(); }
    /// A micro-batch of a copy: its first place and their number, which may be zero.
    [[nodiscard]] std::pair<extent, extent> places(std::size_t copy, std::int64_t micro_batch) const {
        return ranges_[copy * static_cast<std::size_t>(plan_.micro_batches) + static_cast<std::size_t>(micro_batch)];
    }

private:
    pipeline_plan const& plan_;
    std::vector<operator_id> cuts_;
    std::vector<std::pair<extent, extent>> ranges_;
};

/// One rank of a pipeline. Values that pass several stages are handed on by each of them, and so are their cotangents.
///
/// *Preconditions.* The split and the layout are of the program; the communicator has `stages * copies` ranks, all of which run this.
/// Keeps references to all it is given.
template <class Scalar, point_to_point_of<Scalar> Communicator, kernel_backend<Scalar> Backend>
class pipeline_rank {
public:
    using tensor = dense_tensor<Scalar>;

    pipeline_rank(program const& p, indexed_program const& indexed, batch_split const& split, pipeline_layout const& layout, Communicator& world, Backend const& backend,
                  std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), split_(split), layout_(layout), world_(world), backend_(backend), seed_(seed), stage_(world.rank() / layout.copies()),
          copy_(world.rank() % layout.copies()), operators_(layout.operators(stage_)), enter_(values_across(indexed, operators_.first)),
          leave_(values_across(indexed, operators_.second)) {}

    /// One iteration on whole sources, of which it reads those that its stage uses.
    template <class Schedule = one_f_one_b>
    [[nodiscard]] pipeline_result<Scalar> run(source_values<Scalar> const& sources, Schedule const& schedule = {}) {
        sources_ = &sources;
        result_ = {};
        gradients_.clear();
        for (auto const& pass : schedule.passes(stage_, layout_.shape())) {
            begin_ = layout_.places(copy_, pass.micro_batch).first;
            count_ = layout_.places(copy_, pass.micro_batch).second;
            if (pass.is_forward) forward(values_[pass.micro_batch]);
            result_.most_in_flight = std::max(result_.most_in_flight, static_cast<std::int64_t>(values_.size()));
            if (pass.is_forward) continue;
            backward(values_.at(pass.micro_batch));
            values_.erase(pass.micro_batch);
        }
        add_up_gradients();
        if (result_.loss) group({stage_}).all_reduce(std::span<Scalar>(&*result_.loss, 1));
        return std::move(result_);
    }

private:
    using values = std::map<tensor_id, tensor>;

    // ---- one micro-batch

    void forward(values& mine) {
        for (auto t : enter_) world_.receive(std::span<Scalar>((mine[t] = tensor(held_shape(t))).data), layout_.rank(stage_ - 1, copy_));
        for (auto o = operators_.first; o < operators_.second; ++o) {
            std::vector<tensor> made;
            auto results = backend_.forward(call(o), operands(o, mine, made));
            for (std::size_t k = 0; k < results.size(); ++k) mine[program_.results(o)[k]] = std::move(results[k]);
        }
        for (auto t : leave_) send(mine.at(t), t, stage_ + 1, result_.activations);
        if (auto const loss = mine.find(program_.loss()); loss != mine.end()) result_.loss = result_.loss.value_or(0) + loss->second[0] * loss_share();
    }

    void backward(values const& mine) {
        values cotangents;
        if (mine.contains(program_.loss())) cotangents[program_.loss()] = tensor(program_.tensor(program_.loss()).shape, loss_share());
        for (auto t : leave_)
            if (indexed_.tensors[t].has_cotangent) world_.receive(std::span<Scalar>((cotangents[t] = tensor(held_shape(t))).data), layout_.rank(stage_ + 1, copy_));
        for (auto o = operators_.second; o-- > operators_.first;) {
            auto const given = found(cotangents, program_.results(o));
            if (std::ranges::all_of(given, [](auto const* g) { return g == nullptr; })) continue;
            std::vector<tensor> made;
            auto gradients = backend_.backward(call(o), operands(o, mine, made), found(mine, program_.results(o)), given);
            for (std::size_t k = 0; k < gradients.size(); ++k) {
                tensor_id const t = program_.operands(o)[k];
                if (!gradients[k] || !indexed_.tensors[t].has_cotangent) continue;
                accumulate(program_.tensor(t).role == tensor_role::value ? cotangents : gradients_, t, of_tensor(t, split_.computations[o].operands[k], *std::move(gradients[k])));
            }
        }
        for (auto t : enter_)
            if (indexed_.tensors[t].has_cotangent) send(cotangents.try_emplace(t, held_shape(t)).first->second, t, stage_ - 1, result_.cotangents);
    }

    void send(tensor const& value, tensor_id t, std::size_t stage, bytes& counter) {
        world_.send(std::span<Scalar const>(value.data), layout_.rank(stage, copy_));
        counter += bytes(static_cast<double>(value.elements()) * element_size(program_.tensor(t).type));
    }

    /// A whole loss is the same in every part of the batch: each adds its share.
    [[nodiscard]] Scalar loss_share() const { return split_.forms[program_.loss()] == form::partial() ? Scalar{1} : share(); }
    [[nodiscard]] Scalar share() const { return Scalar{1} / static_cast<Scalar>(layout_.parts()); }

    [[nodiscard]] kernel_call call(operator_id o) const {
        auto const loop = split_.computations[o].loop;
        return loop < 0 ? whole_call(program_, o, seed_) : split_call(program_, indexed_, o, indexed_.operators[o].loops[static_cast<std::size_t>(loop)], begin_, count_, seed_);
    }
    [[nodiscard]] factor const& factor_of(tensor_id t, form f) const { return indexed_.tensors[t].factors[static_cast<std::size_t>(f.factor())]; }
    [[nodiscard]] heddle::shape held_shape(tensor_id t) const {
        form const f = split_.forms[t];
        return f.is_shard() ? part_shape(program_.tensor(t).shape, factor_of(t, f), count_) : program_.tensor(t).shape;
    }

    /// The operands as an operator uses them; `made` keeps those that are held otherwise.
    [[nodiscard]] std::vector<tensor const*> operands(operator_id o, values const& mine, std::vector<tensor>& made) const {
        std::vector<tensor const*> result;
        auto const of = program_.operands(o);
        made.reserve(of.size());
        for (std::size_t k = 0; k < of.size(); ++k) {
            form const use = split_.computations[o].operands[k];
            tensor const* held = program_.tensor(of[k]).role == tensor_role::value ? &mine.at(of[k]) : &sources_->at(of[k]);
            if (use != split_.forms[of[k]]) {
                made.push_back(use.is_shard() ? take(*held, factor_of(of[k], use), begin_, count_) : *held);
                held = &made.back();
                if (use == form::partial()) made.back() *= share();
            }
            result.push_back(held);
        }
        return result;
    }
    /// From the cotangent of an operand to that of the tensor: what `operands` transposes to.
    [[nodiscard]] tensor of_tensor(tensor_id t, form use, tensor gradient) const {
        if (use == split_.forms[t]) return gradient;
        if (use.is_shard()) return pad(gradient, program_.tensor(t).shape, factor_of(t, use), begin_, count_);
        gradient *= share();
        return gradient;
    }
    static std::vector<tensor const*> found(values const& in, std::span<tensor_id const> tensors) {
        std::vector<tensor const*> result;
        for (auto t : tensors) {
            auto const at = in.find(t);
            result.push_back(at == in.end() ? nullptr : &at->second);
        }
        return result;
    }
    static void accumulate(values& into, tensor_id t, tensor gradient) {
        auto const [slot, is_new] = into.try_emplace(t);
        if (is_new) slot->second = std::move(gradient);
        else slot->second += gradient;
    }

    // ---- the end of an iteration

    /// The ranks of these stages in all copies.
    [[nodiscard]] auto group(std::vector<std::size_t> const& stages) {
        std::vector<std::size_t> members;
        for (auto s : stages)
            for (std::size_t c = 0; c < layout_.copies(); ++c) members.push_back(layout_.rank(s, c));
        return world_.group(std::move(members));
    }

    void add_up_gradients() {
        for (tensor_id t = 0; t < program_.tensor_count(); ++t) {
            if (!program_.tensor(t).trainable) continue;
            std::vector<std::size_t> users;
            for (auto o : indexed_.tensors[t].consumers)
                if (auto const s = layout_.stage_of(o); users.empty() || users.back() != s) users.push_back(s);
            if (std::ranges::find(users, stage_) == users.end()) continue;
            auto& gradient = gradients_.try_emplace(t, program_.tensor(t).shape).first->second;
            group(users).all_reduce(std::span<Scalar>(gradient.data));
            result_.gradients.gradients.insert_or_assign(t, std::pair(form::replicated(), std::move(gradient)));
        }
    }

    program const& program_;
    indexed_program const& indexed_;
    batch_split const& split_;
    pipeline_layout const& layout_;
    Communicator& world_;
    Backend const& backend_;
    std::uint64_t seed_;
    std::size_t stage_, copy_;
    std::pair<operator_id, operator_id> operators_;
    /// Values that come from the stage before, and go to the next.
    std::vector<tensor_id> enter_, leave_;
    source_values<Scalar> const* sources_ = nullptr;
    /// Places of the batch of the micro-batch under way.
    extent begin_ = 0, count_ = 0;
    /// By micro-batch in flight.
    std::map<std::int64_t, values> values_;
    values gradients_;
    pipeline_result<Scalar> result_;
};

} // namespace heddle
