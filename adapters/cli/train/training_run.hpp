// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The training loop, for ranks of plans, of stages of plans and of pipelines, and the single device that they
/// are compared with.
#pragma once

#include "checkpoints.hpp"
#include "given_values.hpp"
#include "parameter_steps.hpp"
#include "train.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/mixed_precision.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/stage_links.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/stages_interpreter.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/checkpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

/// The single device as the only rank of a plan.
template <class Backend>
class single_rank {
public:
    using tensor = typename Backend::tensor;
    using number_type = host_number<tensor>;
    using result_type = iteration_result<number_type, tensor>;

    single_rank(program const& p, Backend const& backend) : program_(p), backend_(backend) {}

    template <rank_tensor Placed = tensor>
    [[nodiscard]] tensor_values<Placed> place(source_values<number_type> const& whole) const {
        tensor_values<Placed> mine;
        for (auto const& [t, value] : whole) mine.emplace(t, brought<Placed>(value, program_.tensor(t).type));
        return mine;
    }
    void reseed(std::uint64_t seed) { seed_ = seed; }
    void scale_gradients(number_type by) { scale_ = by; }
    [[nodiscard]] result_type run(tensor_values<tensor> const& sources) {
        return run_single_device(program_, sources, backend_, seed_, scale_);
    }
    [[nodiscard]] number_type whole_loss(result_type const& result) const { return result.loss; }
    [[nodiscard]] wide_of<tensor> gradient_norm(gradients_of<tensor> const& gradients) const {
        wide_of<tensor> sum(tensor_shape{});
        for (auto const& [t, gradient] : gradients) sum += sum_of_squares(widened(gradient.second));
        return wide_of<tensor>(tensor_shape{}, std::sqrt(sum.number()));
    }

private:
    program const& program_;
    Backend const& backend_;
    std::uint64_t seed_ = 0;
    number_type scale_ = 1;
};

/// One rank's training. What files do not give is random: parameters at first, inputs anew in every iteration; both are
/// equal for a seed on all ranks.
template <class Tensor, class Rank>
class training_run {
    using wide = wide_of<Tensor>;
    using number_type = host_number<Tensor>;

public:
    training_run(train_arguments const& arguments, program const& p, Rank& rank)
        : arguments_(arguments), program_(p), rank_(rank), optimizer_(parameter_steps<Tensor>::asked_for(arguments)),
          given_(arguments, p), seed_(arguments.seed) {
        if (arguments.precision == "float16") scale_.emplace().value = arguments.gradient_scale;
    }

    /// Begins with given and random parameters.
    void begin() {
        place_sources(seed_, [&](tensor_id t) { return program_.tensor(t).role != tensor_role::input; });
    }
    /// Goes on from a checkpoint, of which this rank stores these parts.
    void resume(json::checkpoint_reader& from, stored_parts const& parts) {
        auto const& c = from.index();
        std::map<tensor_id, std::vector<wide>> moments;
        for (auto const& [t, part] : parts) {
            auto const& info = program_.tensor(t);
            auto const value = from.read<number_type>(info.name, 0, part);
            if (info.trainable) optimizer_->set(t, wide(value), placed_);
            else placed_.insert_or_assign(t, brought<Tensor>(value, info.type));
            for (std::size_t n = 1; n <= optimizer_->moment_count() && c.tensors.at(info.name).has_moments; ++n)
                moments[t].emplace_back(from.read<number_type>(info.name, n, part));
        }
        optimizer_->resume(c.step, std::move(moments));
        iterations_ = c.iterations;
        seed_ = c.seed;
        if (scale_ && c.scale) {
            scale_->value = c.scale->value;
            scale_->steps = c.scale->steps;
        }
    }
    [[nodiscard]] std::uint64_t steps() const { return optimizer_->steps(); }
    /// The scale of gradients, if they are scaled.
    [[nodiscard]] std::optional<double> scale() const { return scale_ ? std::optional(scale_->value) : std::nullopt; }
    /// Adds where training is to an index.
    void describe(json::checkpoint& c) const {
        c.step = steps();
        c.iterations = iterations_;
        c.seed = seed_;
        c.moments = optimizer_->moment_count();
        c.type = json::type_of_scalar<number_type>;
        c.scale.reset();
        if (scale_) c.scale = {scale_->value, scale_->steps};
    }
    /// Saves what this rank stores.
    void save(std::filesystem::path const& folder, json::checkpoint const& c, std::size_t number,
              stored_parts const& parts) const {
        std::map<std::string, tensor_id> tensors;
        for (auto const& [t, part] : parts) tensors[program_.tensor(t).name] = t;
        json::save_rank<number_type>(folder, c, number, [&](std::string const& name, json::checkpoint_kind kind) {
            auto const t = tensors.at(name);
            if (kind > 0) return optimizer_->moments().at(t)[kind - 1].on_host();
            return program_.tensor(t).trainable ? optimizer_->weights(t, placed_).on_host() : placed_.at(t).on_host();
        });
    }

    /// What a step was: the mean loss of its iterations, and whether it was made or left out, as gradients were too
    /// large.
    struct outcome {
        double loss = 0;
        bool is_made = true;
    };
    [[nodiscard]] outcome step() {
        double loss = 0;
        if (scale_) rank_.scale_gradients(static_cast<number_type>(scale_->value));
        std::optional<gradients_of<Tensor>> sum;
        for (std::uint64_t n = 0; n < arguments_.accumulate; ++n) {
            next_inputs();
            auto result = rank_.run(placed_);
            loss += static_cast<double>(rank_.whole_loss(result)) / static_cast<double>(arguments_.accumulate);
            if (!sum) sum = std::move(result.gradients);
            else
                for (auto& [t, gradient] : *sum) gradient.second += result.gradients.at(t).second;
        }
        return {loss, apply(*sum)};
    }

private:
    /// Makes a step of gradients, which are the sums of all iterations, unless they are no finite numbers.
    [[nodiscard]] bool apply(gradients_of<Tensor>& sum) {
        auto const iterations = static_cast<number_type>(arguments_.accumulate);
        if constexpr (std::same_as<wide, Tensor>) {
            if (arguments_.accumulate > 1)
                for (auto& [t, gradient] : sum) gradient.second *= number_type{1} / iterations;
            if (arguments_.clip)
                heddle::clip(sum, rank_.gradient_norm(sum), static_cast<number_type>(*arguments_.clip));
            optimizer_->step(placed_, sum, 1);
        } else {
            number_type factor = 1 / (iterations * static_cast<number_type>(scale().value_or(1)));
            if (scale_ || arguments_.clip) {
                number_type const norm = rank_.gradient_norm(sum).number();
                if (scale_ && !scale_->update(static_cast<double>(norm))) return false;
                if (arguments_.clip)
                    factor *= std::min(number_type{1}, static_cast<number_type>(*arguments_.clip) / (norm * factor));
            }
            optimizer_->step(placed_, sum, factor);
        }
        return true;
    }
    /// Takes the inputs of the next iteration.
    void next_inputs() {
        std::uint64_t const seed = seed_ + iterations_ + 1;
        place_sources(seed, [&](tensor_id t) { return program_.tensor(t).role == tensor_role::input; });
        rank_.reseed(seed);
        ++iterations_;
    }
    /// Takes what files give of the sources that are `wanted`, tensor by tensor, and draws the others.
    template <class Wanted>
    void place_sources(std::uint64_t seed, Wanted const& wanted) {
        auto const place = [&](source_values<number_type> whole) {
            source_values<number_type> weights;
            for (auto t = whole.begin(); t != whole.end();) {
                auto const next = std::next(t);
                if (program_.tensor(t->first).trainable) weights.insert(whole.extract(t));
                t = next;
            }
            for (auto& [t, value] : rank_.place(whole)) placed_.insert_or_assign(t, std::move(value));
            for (auto& [t, value] : rank_.template place<wide>(weights)) optimizer_->set(t, std::move(value), placed_);
        };
        place(random_sources<number_type>(program_, seed, [&](tensor_id t) { return wanted(t) && !given_.has(t); }));
        for (tensor_id t = 0; t < program_.tensor_count(); ++t)
            if (given_.has(t) && wanted(t)) place({{t, given_.read<number_type>(t, iterations_)}});
    }

    train_arguments const& arguments_;
    program const& program_;
    Rank& rank_;
    std::unique_ptr<parameter_steps<Tensor>> optimizer_;
    std::optional<gradient_scale> scale_;
    given_values given_;
    tensor_values<Tensor> placed_;
    std::uint64_t seed_, iterations_ = 0;
};

/// Trains on one rank; the first rank reports, and with `check` is the single device too. `wait_for_all` returns when
/// all ranks have come there.
template <class Backend, class Rank, class Wait>
void train(train_arguments const& arguments, training const& what, Backend const& backend, Rank& rank,
           std::size_t number, Wait const& wait_for_all, step_report const& report) {
    using tensor = typename Backend::tensor;
    using clock = std::chrono::steady_clock;
    auto const& p = what.model.program;
    checkpoints kept(arguments, what);
    auto* const from = kept.source();
    training_run<tensor, Rank> run(arguments, p, rank);
    if (from) run.resume(*from, kept.of_rank(number));
    else run.begin();
    single_rank<Backend> alone(p, backend);
    std::optional<training_run<tensor, single_rank<Backend>>> expected;
    if (number == 0 && arguments.check) {
        expected.emplace(arguments, p, alone);
        if (from) expected->resume(*from, whole_parts(p, from->index()));
        else expected->begin();
    }
    while (run.steps() < arguments.steps) {
        auto const begun = clock::now();
        train_step step{.number = run.steps() + 1};
        auto const made = run.step();
        step.loss = made.loss;
        step.seconds = std::chrono::duration<double>(clock::now() - begun).count();
        if (!made.is_made) step.next_scale = run.scale();
        if (expected) step.expected = expected->step().loss;
        if (number == 0) report(step);
        if (!std::isfinite(step.loss))
            throw error("the loss of step " + std::to_string(step.number) + " is no finite number; training stops");
        if (made.is_made && kept.is_due(step.number)) kept.save(run, number, wait_for_all);
    }
}

/// Trains on a rank itself.
struct as_it_is {
    template <class Rank, class TrainOn>
    void operator()(Rank& rank, TrainOn&& train_on) const {
        train_on(rank);
    }
};

/// Trains as one rank of `world`, on what `with(rank, train_on)` calls `train_on` with.
template <class Backend, class World, class With = as_it_is>
void train_in(train_arguments const& arguments, training const& what, World& world, Backend const& backend,
              step_report const& report, With const& with = {}) {
    using tensor = typename Backend::tensor;
    auto const& p = what.model.program;
    auto const wait_for_all = [&] {
        tensor one(tensor_shape{});
        world.all_reduce(one.flat());
        (void)one.number();
    };
    auto const train_on = [&](auto& rank) {
        train(arguments, what, backend, rank, world.rank(), wait_for_all, report);
    };
    auto const train_by = [&](auto& here, auto const& of) {
        stages_interpreter rank(p, of, here, backend);
        with(rank, train_on);
    };
    if (auto const* const pipeline = std::get_if<pipeline_plan>(&what.planned)) {
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, *pipeline, split);
        stage_rank<tensor, World> here(indexed, split, layout, world);
        return train_by(here, indexed);
    }
    if (auto const* const staged = std::get_if<staged_plan>(&what.planned)) {
        staged_layout const layout(p, *staged);
        return on_stages<tensor>(layout, world, [&](auto& here) { train_by(here, layout); });
    }
    // A plan's ranks are those of the only stage, so that what runs is compiled once.
    auto const& spmd = std::get<plan>(what.planned);
    auto const indexed = index_for(p, spmd);
    on_device<typename tensor::scalar_type>(spmd, world, [&](auto& ranks) {
        stage_rank<tensor, World, std::remove_reference_t<decltype(ranks)>> here(
            detail::program_of_rank(p, indexed, spmd), links_of_only_stage(indexed), world, ranks);
        train_by(here, indexed);
    });
}

template <class Backend>
void train_in_threads_by(train_arguments const& arguments, training const& what, Backend const& backend,
                         step_report const& report) {
    run_ranks(what.ranks(), [&](in_process_communicator& world) { train_in(arguments, what, world, backend, report); });
}

} // namespace heddle::cli
