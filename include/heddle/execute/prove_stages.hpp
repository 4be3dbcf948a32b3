// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution of a plan of several stages: its ranks run on threads, and the program on a single device.
#pragma once

#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/stages_interpreter.hpp>
#include <heddle/plan/staged_plan.hpp>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

namespace heddle {

/// A proof whose ranks are somebody else's, as `plan_proof` is.
template <kernel_backend<double> Backend>
class staged_proof {
public:
    /// *Precondition:* `verify(p, what)`. *Throws* as `prove` does. References to all arguments are kept.
    staged_proof(program const& p, staged_plan const& what, Backend const& backend, proof_options const& options = {})
        : program_(p), plan_(what), backend_(backend), options_(options), layout_(p, what),
          sources_(random_sources<double>(p, options.seed)),
          expected_(run_on_random_sources(p, sources_, backend, options.seed)) {
        detail::require_finite(p, expected_);
        for (auto const& [t, gradient] : expected_.gradients) gradients_.emplace(t, gradient.second);
        result_.ranks = layout_.ranks();
        result_.expected_loss = expected_.loss;
        for (std::size_t s = 0; s < layout_.stages(); ++s) result_.steps += layout_.plan_of(s).steps.size();
        builder_.emplace(p, expected_, result_);
    }
    staged_proof(staged_proof const&) = delete;

    /// Runs the plan on one rank of `world`, and compares what this rank has. *Thread safety.* All ranks may call it at
    /// once.
    template <point_to_point_of<double> World>
    void run_rank(World& world) {
        on_stages<typename Backend::tensor>(layout_, world, [&](auto& here) {
            stages_interpreter rank(program_, layout_, here, backend_, options_.seed);
            auto const mine = rank.run(rank.place(sources_));
            double const loss = rank.whole_loss(mine);
            std::scoped_lock const guard(lock_);
            builder_->compare_loss(loss);
            builder_->compare_gradients(mine.gradients, rank.place(gradients_));
            auto const stages = layout_.stages_of(world.rank());
            for (std::size_t round = 0; round < stages.size(); ++round) {
                auto const said = plan_.stages[stages[round]].plan.provenance.training.held();
                if (auto const held = rank.most_in_flight(round); held > said)
                    builder_->fail("stage " + std::to_string(stages[round]) + " holds " + std::to_string(held) +
                                   " micro-batches, its plan says " + std::to_string(said));
            }
        });
    }

    [[nodiscard]] std::size_t ranks() const { return layout_.ranks(); }
    /// Returns what the ranks that were run have shown.
    [[nodiscard]] proof const& compared() {
        builder_->conclude(options_.tolerance);
        return result_;
    }

private:
    program const& program_;
    staged_plan const& plan_;
    Backend const& backend_;
    proof_options options_;
    staged_layout layout_;
    source_values<double> sources_, gradients_;
    iteration_result<double> expected_;
    proof result_;
    std::optional<detail::proof_builder> builder_;
    std::mutex lock_;
};

/// Runs one iteration of a plan, on a thread for each device of each stage, and of the program on a single device, on
/// the same random data in double precision.
///
/// Errors are measured as by `prove` of a plan. A plan is proven false by an error above the tolerance, a missing
/// gradient, a value that is not finite, or a stage that holds activations of more micro-batches than its schedule
/// says.
/// *Precondition:* `verify(p, what)`. *Throws* as `prove` of a plan does, and as `staged_layout`.
template <kernel_backend<double> Backend>
[[nodiscard]] proof prove(program const& p, staged_plan const& what, Backend const& backend,
                          proof_options const& options = {}) {
    if (what.is_plain()) return prove(p, what.stages.front().plan, backend, options);
    staged_proof<Backend> all(p, what, backend, options);
    run_ranks(all.ranks(), [&](in_process_communicator& world) { all.run_rank(world); });
    return all.compared();
}

} // namespace heddle
