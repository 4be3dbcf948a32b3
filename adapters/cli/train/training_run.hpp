// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The training loop, for ranks of plans, ranks of pipelines and the single device that they are compared with.
#pragma once

#include "checkpoints.hpp"
#include "given_values.hpp"
#include "train.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/checkpoint.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

/// The single device as the only rank of a plan.
template <class Backend>
class single_rank {
public:
    using tensor = typename Backend::tensor;
    using scalar = typename tensor::scalar_type;
    using result_type = iteration_result<scalar, tensor>;

    single_rank(program const& p, Backend const& backend) : program_(p), backend_(backend) {}

    [[nodiscard]] tensor_values<tensor> place(source_values<scalar> const& whole) const {
        tensor_values<tensor> mine;
        for (auto const& [t, value] : whole) mine.emplace(t, tensor(value));
        return mine;
    }
    void reseed(std::uint64_t seed) { seed_ = seed; }
    [[nodiscard]] result_type run(tensor_values<tensor> const& sources) {
        return run_single_device(program_, sources, backend_, seed_);
    }
    [[nodiscard]] scalar whole_loss(result_type const& result) const { return result.loss; }
    [[nodiscard]] tensor gradient_norm(gradients_of<tensor> const& gradients) const {
        tensor sum(tensor_shape{});
        for (auto const& [t, gradient] : gradients) sum += sum_of_squares(gradient.second);
        return tensor(tensor_shape{}, std::sqrt(sum.number()));
    }

private:
    program const& program_;
    Backend const& backend_;
    std::uint64_t seed_ = 0;
};

/// One rank's training. What files do not give is random: parameters at first, inputs anew in every iteration; both are
/// equal for a seed on all ranks.
template <class Tensor, class Rank, class Rule>
class training_run {
    using scalar = typename Tensor::scalar_type;

public:
    training_run(train_arguments const& arguments, program const& p, Rank& rank, Rule rule)
        : arguments_(arguments), program_(p), rank_(rank), optimizer_(std::move(rule)), given_(arguments, p),
          seed_(arguments.seed) {}

    /// Begins with given and random parameters.
    void begin() {
        place_sources(seed_, [&](tensor_id t) { return program_.tensor(t).role != tensor_role::input; });
    }
    /// Goes on from a checkpoint, of which this rank stores these parts.
    void resume(json::checkpoint_reader& from, stored_parts const& parts) {
        auto const& c = from.index();
        std::map<tensor_id, std::vector<Tensor>> moments;
        for (auto const& [t, part] : parts) {
            auto const& name = program_.tensor(t).name;
            placed_.insert_or_assign(t, Tensor(from.read<scalar>(name, 0, part)));
            for (std::size_t n = 1; n <= Rule::moments && c.tensors.at(name).has_moments; ++n)
                moments[t].emplace_back(from.read<scalar>(name, n, part));
        }
        optimizer_.resume(c.step, std::move(moments));
        iterations_ = c.iterations;
        seed_ = c.seed;
    }
    [[nodiscard]] std::uint64_t steps() const { return optimizer_.steps(); }
    /// Adds where training is to an index.
    void describe(json::checkpoint& c) const {
        c.step = steps();
        c.iterations = iterations_;
        c.seed = seed_;
        c.moments = Rule::moments;
        c.type = json::type_of_scalar<scalar>;
    }
    /// Saves what this rank stores.
    void save(std::filesystem::path const& folder, json::checkpoint const& c, std::size_t number,
              stored_parts const& parts) const {
        std::map<std::string, tensor_id> tensors;
        for (auto const& [t, part] : parts) tensors[program_.tensor(t).name] = t;
        json::save_rank<scalar>(folder, c, number, [&](std::string const& name, json::checkpoint_kind kind) {
            auto const t = tensors.at(name);
            return kind == 0 ? placed_.at(t).on_host() : optimizer_.moments().at(t)[kind - 1].on_host();
        });
    }

    /// Makes a step, and returns the mean loss of its iterations.
    [[nodiscard]] double step() {
        double loss = 0;
        std::optional<gradients_of<Tensor>> sum;
        for (std::uint64_t n = 0; n < arguments_.accumulate; ++n) {
            next_inputs();
            auto result = rank_.run(placed_);
            loss += static_cast<double>(rank_.whole_loss(result)) / static_cast<double>(arguments_.accumulate);
            if (!sum) sum = std::move(result.gradients);
            else
                for (auto& [t, gradient] : *sum) gradient.second += result.gradients.at(t).second;
        }
        if (arguments_.accumulate > 1)
            for (auto& [t, gradient] : *sum) gradient.second *= scalar{1} / static_cast<scalar>(arguments_.accumulate);
        if (arguments_.clip) heddle::clip(*sum, rank_.gradient_norm(*sum), static_cast<scalar>(*arguments_.clip));
        optimizer_.step(placed_, *sum);
        return loss;
    }

private:
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
        auto const place = [&](source_values<scalar> const& whole) {
            for (auto& [t, value] : rank_.place(whole)) placed_.insert_or_assign(t, std::move(value));
        };
        place(random_sources<scalar>(program_, seed, [&](tensor_id t) { return wanted(t) && !given_.has(t); }));
        for (tensor_id t = 0; t < program_.tensor_count(); ++t)
            if (given_.has(t) && wanted(t)) place({{t, given_.read<scalar>(t, iterations_)}});
    }

    train_arguments const& arguments_;
    program const& program_;
    Rank& rank_;
    optimizer<Tensor, Rule> optimizer_;
    given_values given_;
    tensor_values<Tensor> placed_;
    std::uint64_t seed_, iterations_ = 0;
};

/// Calls `work(rule)` with the optimiser that is asked for.
template <class Work>
void with_rule(train_arguments const& a, Work&& work) {
    adam const moments{.rate = a.rate.value_or(adam{}.rate)};
    if (a.optimizer == "adam") work(moments);
    else if (a.optimizer == "adamw") work(adamw{.rule = moments, .decay = a.decay});
    else work(sgd{.rate = a.rate.value_or(sgd{}.rate), .momentum = a.momentum});
}

/// Trains on one rank; the first rank reports, and with `check` is the single device too. `wait_for_all` returns when all
/// ranks have come there.
template <class Backend, class Rank, class Wait>
void train(train_arguments const& arguments, training const& what, Backend const& backend, Rank& rank,
           std::size_t number, Wait const& wait_for_all, step_report const& report) {
    using tensor = typename Backend::tensor;
    using clock = std::chrono::steady_clock;
    auto const& p = what.model.program;
    with_rule(arguments, [&](auto rule) {
        checkpoints kept(arguments, what);
        auto* const from = kept.source();
        training_run<tensor, Rank, decltype(rule)> run(arguments, p, rank, rule);
        if (from) run.resume(*from, kept.of_rank(number));
        else run.begin();
        single_rank<Backend> alone(p, backend);
        std::optional<training_run<tensor, single_rank<Backend>, decltype(rule)>> expected;
        if (number == 0 && arguments.check) {
            expected.emplace(arguments, p, alone, rule);
            if (from) expected->resume(*from, whole_parts(p, from->index()));
            else expected->begin();
        }
        while (run.steps() < arguments.steps) {
            auto const begun = clock::now();
            train_step step{.number = run.steps() + 1, .loss = run.step()};
            step.seconds = std::chrono::duration<double>(clock::now() - begun).count();
            if (expected) step.expected = expected->step();
            if (number == 0) report(step);
            if (!std::isfinite(step.loss))
                throw error("the loss of step " + std::to_string(step.number) + " is no finite number; training stops");
            if (kept.is_due(step.number)) kept.save(run, number, wait_for_all);
        }
    });
}

/// Trains as one rank of `world`.
template <class Backend, class World>
void train_in(train_arguments const& arguments, training const& what, World& world, Backend const& backend,
              step_report const& report) {
    using tensor = typename Backend::tensor;
    auto const& p = what.model.program;
    auto const wait_for_all = [&] {
        tensor one(tensor_shape{});
        world.all_reduce(one.flat());
        (void)one.number();
    };
    if (auto const* const pipeline = std::get_if<pipeline_plan>(&what.planned)) {
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, *pipeline, split);
        stage_rank<tensor, World> here(indexed, split, layout, world);
        interpreter rank(p, indexed, here, backend);
        return train(arguments, what, backend, rank, world.rank(), wait_for_all, report);
    }
    auto const& spmd = std::get<plan>(what.planned);
    auto const indexed = index_for(p, spmd);
    on_device<typename tensor::scalar_type>(spmd, world, [&](auto& communicator) {
        interpreter rank(p, indexed, spmd, communicator, backend);
        train(arguments, what, backend, rank, world.rank(), wait_for_all, report);
    });
}

template <class Backend>
void train_in_threads_by(train_arguments const& arguments, training const& what, Backend const& backend,
                         step_report const& report) {
    run_ranks(what.ranks(), [&](in_process_communicator& world) { train_in(arguments, what, world, backend, report); });
}

} // namespace heddle::cli
