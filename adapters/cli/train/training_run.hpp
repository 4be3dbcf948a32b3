// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The training loop, for ranks of plans, ranks of pipelines and the single device that they are compared with.
#pragma once

#include "given_values.hpp"
#include "train.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/pipeline.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/heddle.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/communicator.hpp>
#endif

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace heddle::cli {

/// The single device as the only rank of a plan.
template <class Scalar>
class single_rank {
public:
    single_rank(program const& p, eigen_kernels<Scalar> const& backend) : program_(p), backend_(backend) {}

    [[nodiscard]] source_values<Scalar> place(source_values<Scalar> const& whole) const { return whole; }
    void reseed(std::uint64_t seed) { seed_ = seed; }
    [[nodiscard]] iteration_result<Scalar> run(source_values<Scalar> const& sources) {
        return run_single_device(program_, sources, backend_, seed_);
    }
    [[nodiscard]] Scalar whole_loss(iteration_result<Scalar> const& result) const { return result.loss; }
    [[nodiscard]] Scalar gradient_norm(iteration_result<Scalar> const& result) const {
        Scalar sum = 0;
        for (auto const& [t, gradient] : result.gradients) sum += sum_of_squares(gradient.second).number();
        return std::sqrt(sum);
    }

private:
    program const& program_;
    eigen_kernels<Scalar> const& backend_;
    std::uint64_t seed_ = 0;
};

template <class Scalar>
[[nodiscard]] iteration_result<Scalar>& gradients_of(iteration_result<Scalar>& result) {
    return result;
}
template <class Scalar>
[[nodiscard]] iteration_result<Scalar>& gradients_of(pipeline_result<Scalar>& result) {
    return result.gradients;
}

/// One rank's training. What files do not give is random: parameters at first, inputs anew in every iteration; both are
/// equal for a seed on all ranks.
template <class Scalar, class Rank, class Rule>
class training_run {
public:
    training_run(train_arguments const& arguments, program const& p, Rank& rank, Rule rule)
        : arguments_(arguments), program_(p), rank_(rank), optimizer_(std::move(rule)), given_(arguments, p) {
        place_sources(arguments.seed, [&](tensor_id t) { return p.tensor(t).role != tensor_role::input; });
    }

    /// Makes a step, and returns the mean loss of its iterations.
    [[nodiscard]] double step() {
        double loss = 0;
        std::optional<iteration_result<Scalar>> sum;
        for (std::uint64_t n = 0; n < arguments_.accumulate; ++n) {
            next_inputs();
            auto result = rank_.run(placed_);
            loss += static_cast<double>(rank_.whole_loss(result)) / static_cast<double>(arguments_.accumulate);
            auto& gradients = gradients_of(result);
            if (!sum) sum = std::move(gradients);
            else
                for (auto& [t, gradient] : sum->gradients) gradient.second += gradients.gradients.at(t).second;
        }
        if (arguments_.accumulate > 1)
            for (auto& [t, gradient] : sum->gradients)
                gradient.second *= Scalar{1} / static_cast<Scalar>(arguments_.accumulate);
        if (arguments_.clip) heddle::clip(*sum, rank_.gradient_norm(*sum), static_cast<Scalar>(*arguments_.clip));
        optimizer_.step(placed_, *sum);
        return loss;
    }

private:
    /// Takes the inputs of the next iteration.
    void next_inputs() {
        std::uint64_t const seed = arguments_.seed + iterations_ + 1;
        place_sources(seed, [&](tensor_id t) { return program_.tensor(t).role == tensor_role::input; });
        rank_.reseed(seed);
        ++iterations_;
    }
    /// Takes what files give of the sources that are `wanted`, tensor by tensor, and draws the others.
    template <class Wanted>
    void place_sources(std::uint64_t seed, Wanted const& wanted) {
        auto const place = [&](source_values<Scalar> const& whole) {
            for (auto& [t, value] : rank_.place(whole)) placed_.insert_or_assign(t, std::move(value));
        };
        place(random_sources<Scalar>(program_, seed, [&](tensor_id t) { return wanted(t) && !given_.has(t); }));
        for (tensor_id t = 0; t < program_.tensor_count(); ++t)
            if (given_.has(t) && wanted(t)) place({{t, given_.read<Scalar>(t, iterations_)}});
    }

    train_arguments const& arguments_;
    program const& program_;
    Rank& rank_;
    optimizer<Scalar, Rule> optimizer_;
    given_values given_;
    source_values<Scalar> placed_;
    std::uint64_t iterations_ = 0;
};

/// Calls `work(rule)` with the optimiser that is asked for.
template <class Work>
void with_rule(train_arguments const& a, Work&& work) {
    adam const moments{.rate = a.rate.value_or(adam{}.rate)};
    if (a.optimizer == "adam") work(moments);
    else if (a.optimizer == "adamw") work(adamw{.rule = moments, .decay = a.decay});
    else work(sgd{.rate = a.rate.value_or(sgd{}.rate), .momentum = a.momentum});
}

/// Trains on one rank; the first rank reports, and with `check` is the single device too.
template <class Scalar, class Rank>
void train(train_arguments const& arguments, program const& p, eigen_kernels<Scalar> const& backend, Rank& rank,
           bool is_first, step_report const& report) {
    using clock = std::chrono::steady_clock;
    with_rule(arguments, [&](auto rule) {
        training_run<Scalar, Rank, decltype(rule)> run(arguments, p, rank, rule);
        single_rank<Scalar> alone(p, backend);
        std::optional<training_run<Scalar, single_rank<Scalar>, decltype(rule)>> expected;
        if (is_first && arguments.check) expected.emplace(arguments, p, alone, rule);
        for (std::uint64_t n = 1; n <= arguments.steps; ++n) {
            auto const begun = clock::now();
            train_step step{.number = n, .loss = run.step()};
            step.seconds = std::chrono::duration<double>(clock::now() - begun).count();
            if (expected) step.expected = expected->step();
            if (is_first) report(step);
            if (!std::isfinite(step.loss))
                throw error("the loss of step " + std::to_string(n) + " is no finite number; training stops");
        }
    });
}

/// Trains as one rank of `world`.
template <class Scalar, class World>
void train_in(train_arguments const& arguments, training const& what, World& world, step_report const& report) {
    auto const& p = what.model.program;
    bool const is_first = world.rank() == 0;
    eigen_kernels<Scalar> const backend;
    if (auto const* const pipeline = std::get_if<pipeline_plan>(&what.planned)) {
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, *pipeline, split);
        pipeline_rank<Scalar, World, eigen_kernels<Scalar>> rank(p, indexed, split, layout, world, backend);
        return train<Scalar>(arguments, p, backend, rank, is_first, report);
    }
    auto const& spmd = std::get<plan>(what.planned);
    auto const indexed = index_for(p, spmd);
    on_device<Scalar>(spmd, world, [&]<class Communicator>(Communicator& communicator) {
        interpreter<Scalar, Communicator, eigen_kernels<Scalar>> rank(p, indexed, spmd, communicator, backend);
        train<Scalar>(arguments, p, backend, rank, is_first, report);
    });
}

template <class Scalar>
void train_in_threads(train_arguments const& arguments, training const& what, step_report const& report) {
    run_ranks(what.ranks(), [&](in_process_communicator& world) { train_in<Scalar>(arguments, what, world, report); });
}

#ifdef HEDDLE_HAS_MPI
template <class Scalar>
void train_in_job(train_arguments const& arguments, training const& what, mpi::communicator& world,
                  step_report const& report) {
    train_in<Scalar>(arguments, what, world, report);
}
#endif

} // namespace heddle::cli
