// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution of a plan of several stages: each stage's devices run its program, and what passes between
/// stages is handed over.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/devices.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// A stage's plan of a part whose ends are plain, as one of the part whose ends are parameters: what has a cotangent now is
/// mirrored where it was the same on all devices.
[[nodiscard]] inline plan with_parameters_at_ends(plan p, program_part const& part) {
    auto const indexed = index_program(part.program);
    auto& training = p.provenance.training;
    training.accumulated = training.in_flight = 1;
    training.bucket = bytes(0);
    std::map<tensor_id, std::vector<bool>> mirrored; // by cotangent and axis
    auto const is_cotangent = [&](tensor_id t) { return indexed.tensors[t].info.name.ends_with(cotangent_suffix); };
    auto const axes = 1 + p.inner_sizes.size();
    auto const instruction_of = [](plan_step& s, axis_number a) -> instruction& {
        return a == 0 ? s.instruction : s.inside[a - 1];
    };
    for (auto& s : p.steps)
        for (axis_number a = 0; a < axes; ++a)
            if (auto* const compute = instruction_of(s, a).as<instruction::compute>()) {
                auto const& operands = indexed.operators[compute->op].operands;
                if (operands.size() != 2 || !is_cotangent(operands[1])) continue;
                auto& of = mirrored[operands[1]];
                of.resize(axes);
                of[a] = compute->operands[0] == tensor_form::mirrored();
                if (of[a]) compute->operands[1] = tensor_form::mirrored();
            }
    auto const m = p.mesh();
    for (auto& s : p.steps) {
        if (!s.instruction.is<instruction::read>()) continue;
        auto const t = s.instruction.change()->tensor;
        bool const enters = p.tensors[t].role == tensor_role::input && p.tensors[t].trainable;
        if (!enters && !is_cotangent(t)) continue;
        for (axis_number a = 0; a < axes && !enters; ++a)
            if (mirrored[t][a]) instruction_of(s, a) = instruction::read(t, tensor_form::mirrored());
        s.step = make_step(indexed, s.on_mesh(), m, training);
    }
    for (std::size_t t = 0; t < p.tensors.size(); ++t) {
        p.tensors[t].role = indexed.tensors[t].info.role;
        p.tensors[t].trainable = indexed.tensors[t].info.trainable;
    }
    return p;
}

} // namespace detail

/// Runs one iteration of a plan stage by stage, each on a thread for each of its devices, and every micro-batch on a
/// single device, on the same random data in double precision; compares the losses' sum and the gradients' sums.
///
/// A stage is run for its values first, with cotangents of zero, and again when its cotangents are known.
/// *Precondition:* `verify(p, what)`. *Throws* as `prove` of a plan does.
template <kernel_backend<double> Backend>
[[nodiscard]] proof prove(program const& p, staged_plan const& what, Backend const& backend,
                          proof_options const& options = {}) {
    if (what.stages.size() == 1 && what.micro_batches == 1) return prove(p, what.stages.front().plan, backend, options);
    auto const parts = parts_of(p, what, part_ends::parameters);
    auto const samples = batch_size_of(index_program(p));
    auto const micro = what.micro_batches == 1 ? p : with_batch_size(p, samples / what.micro_batches);
    std::vector<plan> plans;
    proof result;
    for (std::size_t s = 0; s < parts.size(); ++s) {
        plans.push_back(detail::with_parameters_at_ends(what.stages[s].plan, parts[s]));
        result.ranks += ranks_of(plans.back());
        result.steps += plans.back().steps.size();
    }
    using values = std::map<std::string, dense_tensor<double>>;
    auto const add = [](values& sum, std::string const& name, dense_tensor<double> const& x) {
        if (auto const [at, is_new] = sum.try_emplace(name, x); !is_new) at->second += x;
    };
    /// Returns the loss and all gradients of a stage's program, by name; sources that are not known are zero.
    auto const run = [&](std::size_t s, values const& known) {
        auto const& part = parts[s].program;
        source_values<double> sources;
        for (tensor_id t = 0; t < part.tensor_count(); ++t) {
            if (part.tensor(t).role == tensor_role::value) continue;
            auto const found = known.find(part.tensor(t).name);
            sources.emplace(t, found == known.end() ? dense_tensor<double>(part.tensor(t).shape) : found->second);
        }
        auto const indexed = index_for(part, plans[s]);
        std::pair<double, values> found;
        std::mutex lock;
        run_devices<double>(plans[s], [&](auto& ranks) {
            interpreter<double, std::remove_reference_t<decltype(ranks)>, Backend> rank(part, indexed, plans[s], ranks,
                                                                                        backend, options.seed);
            auto const mine = rank.run(rank.place(sources));
            double const loss = rank.whole_loss(mine);
            values whole;
            for (auto const& [t, gradient] : mine.gradients)
                whole.emplace(part.tensor(t).name, rank.gather(t, gradient.second).on_host());
            std::scoped_lock const guard(lock);
            found = {loss, std::move(whole)};
        });
        return found;
    };
    iteration_result<double> expected{0, {}};
    values gradients;
    for (int k = 0; k < what.micro_batches; ++k) {
        auto sources = random_sources<double>(micro, options.seed + static_cast<std::uint64_t>(k));
        for (auto const& [t, first] : random_sources<double>(micro, options.seed))
            if (micro.tensor(t).role != tensor_role::input) sources.insert_or_assign(t, first);
        auto const alone = run_single_device(micro, sources, backend, options.seed);
        expected.loss += alone.loss;
        for (auto const& [t, gradient] : alone.gradients)
            if (auto const [at, is_new] = expected.gradients.try_emplace(t, gradient); !is_new)
                at->second.second += gradient.second;
        values known;
        for (auto const& [t, value] : sources) known.emplace(micro.tensor(t).name, value);
        for (std::size_t s = 0; s + 1 < parts.size(); ++s) {
            auto const found = run(s, known).second;
            for (auto t : parts[s].leaves)
                known.insert_or_assign(micro.tensor(t).name,
                                       found.at(micro.tensor(t).name + std::string(cotangent_suffix)));
        }
        values cotangents;
        for (std::size_t s = parts.size(); s-- > 0;) {
            auto given = known;
            for (auto t : parts[s].leaves) {
                auto const& name = micro.tensor(t).name;
                given.insert_or_assign(name + std::string(cotangent_suffix), cotangents.at(name));
            }
            auto const [loss, found] = run(s, given);
            if (parts[s].leaves.empty()) result.loss += loss;
            for (auto t : parts[s].enters) add(cotangents, micro.tensor(t).name, found.at(micro.tensor(t).name));
            for (tensor_id t = 0; t < micro.tensor_count(); ++t)
                if (auto const of = found.find(micro.tensor(t).name);
                    of != found.end() && micro.tensor(t).role != tensor_role::value)
                    add(gradients, of->first, of->second);
        }
    }
    result.expected_loss = expected.loss;
    detail::proof_builder builder(micro, expected, result);
    builder.compare_loss(result.loss);
    gradients_of<dense_tensor<double>> mine;
    source_values<double> wanted;
    for (auto const& [t, gradient] : expected.gradients) {
        wanted.emplace(t, gradient.second);
        if (auto const found = gradients.find(micro.tensor(t).name); found != gradients.end())
            mine.emplace(t, std::pair(product_form(tensor_form::replicated()), found->second));
    }
    builder.compare_gradients(mine, wanted);
    builder.conclude(options.tolerance);
    return result;
}

} // namespace heddle
