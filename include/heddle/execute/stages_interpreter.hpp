// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs all stages of a plan that a rank has.
#pragma once

#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// What a trainer has of a plan of stages on one rank: an interpreter of each of its stages, whose passes follow each
/// other as the schedule says. Members do what those of `interpreter` do.
///
/// `Stage` is a `stage_rank`. *Lifetime:* references to all arguments are kept.
template <class Stage, kernel_backend<typename Stage::scalar> Backend>
class stages_interpreter {
    using one = interpreter<typename Stage::scalar, typename Stage::group_type, Backend, Stage>;

public:
    using tensor = typename one::tensor;
    using number_type = typename one::number_type;
    using values_type = typename one::values_type;
    using result_type = typename one::result_type;

    /// `stages` are all of this rank (`on_stages`).
    template <class Stages>
    stages_interpreter(program const& p, staged_layout const& layout, Stages& stages, Backend const& backend,
                       std::uint64_t seed = 0) {
        auto const rank = stages.front().world_rank();
        auto const numbers = layout.stages_of(rank);
        for (std::size_t n = 0; n < numbers.size(); ++n) add(p, layout.indexed(numbers[n]), stages[n], backend, seed);
        order_ = layout.passes_of(rank);
    }
    /// The only stage of this rank.
    stages_interpreter(program const& p, indexed_program const& indexed, Stage& stage, Backend const& backend,
                       std::uint64_t seed = 0) {
        add(p, indexed, stage, backend, seed);
    }

    template <rank_tensor Placed = tensor>
    [[nodiscard]] tensor_values<Placed> place(source_values<number_type> const& whole) const {
        tensor_values<Placed> mine;
        for (auto const& s : stages_) mine.merge(s->template place<Placed>(whole));
        return mine;
    }
    void reseed(std::uint64_t seed) {
        for (auto& s : stages_) s->reseed(seed);
    }
    void scale_gradients(number_type by) {
        for (auto& s : stages_) s->scale_gradients(by);
    }

    [[nodiscard]] result_type run(values_type const& sources) {
        for (auto& s : stages_) s->begin(sources);
        for (auto& s : stages_) s->go_on(); // what is done once before all micro-batches
        for (auto const& pass : order_) stages_[pass.round]->go_on();
        for (auto& s : stages_)
            while (!s->is_through()) s->go_on();
        std::set<std::pair<tensor_id, std::size_t>> shared; // in one order on all ranks
        result_type result{tensor(tensor_shape{}), {}};
        for (std::size_t n = 0; n < stages_.size(); ++n) {
            auto of_stage = stages_[n]->end();
            result.loss = std::move(of_stage.loss); // the last stage of all has it
            result.gradients.merge(std::move(of_stage.gradients));
            for (auto t : stages_[n]->shared()) shared.emplace(t, n);
        }
        for (auto const& [t, n] : shared) stages_[n]->share(t, result.gradients);
        return result;
    }

    [[nodiscard]] number_type whole_loss(result_type const& result) { return stages_.back()->whole_loss(result); }
    [[nodiscard]] wide_of<tensor> gradient_norm(gradients_of<tensor> const& gradients) {
        wide_of<tensor> sum(tensor_shape{});
        for (auto const& s : stages_) sum += s->squares(gradients);
        return stages_.back()->norm_of(std::move(sum));
    }
    /// Of the rank's stage of a round.
    [[nodiscard]] std::int64_t most_in_flight(std::size_t round) const { return stages_[round]->most_in_flight(); }

private:
    void add(program const& p, indexed_program const& indexed, Stage& stage, Backend const& backend,
             std::uint64_t seed) {
        stages_.push_back(std::make_unique<one>(p, indexed, stage, backend, seed));
    }

    std::vector<std::unique_ptr<one>> stages_;
    std::vector<pipeline_pass> order_;
};

template <class Stages, class Backend>
stages_interpreter(program const&, staged_layout const&, Stages&, Backend const&, std::uint64_t = 0)
    -> stages_interpreter<typename Stages::value_type, Backend>;
template <class Stage, class Backend>
stages_interpreter(program const&, indexed_program const&, Stage&, Backend const&, std::uint64_t = 0)
    -> stages_interpreter<Stage, Backend>;

} // namespace heddle
