// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution: runs a pipeline plan on in-process ranks, and the program on a single device, on the same
/// random data.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/pipeline/layers.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Runs one iteration of a pipeline plan, on a thread for each device of each stage of each copy, and of the program on
/// a single device, in double precision.
///
/// Errors are measured as by `prove` of a plan. A plan is proven false by an error above the tolerance, a missing
/// gradient, a value that is not finite, a stage that holds activations of more micro-batches than its schedule says,
/// or stages that send other bytes than pass their cuts.
/// *Throws* `input_error` if the plan is none of the program, or the program cannot run in micro-batches.
template <kernel_backend<double> Backend, pipeline_schedule Schedule = one_f_one_b>
[[nodiscard]] proof prove(program const& p, pipeline_plan const& what, Backend const& backend,
                          proof_options const& options = {}, Schedule const& schedule = {}) {
    auto const indexed = index_program(p);
    auto const split = split_along_batch(indexed);
    pipeline_layout const layout(indexed, what, split);
    auto const sources = random_sources<double>(p, options.seed);
    auto const expected = run_on_random_sources(p, sources, backend, options.seed);

    proof result;
    result.ranks = layout.ranks();
    result.steps = p.operator_count();
    result.expected_loss = expected.loss;
    detail::proof_builder builder(p, expected, result);
    std::mutex lock;
    std::vector<bytes> activations(layout.stages());
    run_ranks(result.ranks, [&](in_process_communicator& world) {
        stage_rank<typename Backend::tensor, in_process_communicator> here(indexed, split, layout, world, schedule);
        interpreter rank(p, indexed, here, backend, options.seed);
        auto const mine = rank.run(rank.place(sources));
        double const loss = rank.whole_loss(mine);
        auto const stage = layout.place_of(world.rank()).stage;
        source_values<double> wanted;
        for (auto const& [t, gradient] : expected.gradients)
            if (algorithm::any_of(indexed.tensors[t].consumers,
                                  [&](operator_id o) { return layout.stage_of(o) == stage; }))
                wanted.emplace(t, gradient.second);
        std::scoped_lock const guard(lock);
        builder.compare_loss(loss);
        builder.compare_gradients(mine.gradients, rank.place(wanted));
        activations[stage] += here.activations();
        if (auto const most = schedule.in_flight(stage, layout.shape()); rank.most_in_flight() > most)
            builder.fail("stage " + std::to_string(stage) + " holds " + std::to_string(rank.most_in_flight()) +
                         " micro-batches, its schedule says " + std::to_string(most));
    });
    for (std::size_t s = 0; s < layout.stages(); ++s) {
        bytes all; // what is cut along the batch once, what is whole in every part of it
        for (auto t : values_across(indexed, layout.operators(s).second))
            all +=
                indexed.tensors[t].info.size() * (split.forms[t].is_shard() ? 1 : static_cast<double>(layout.parts()));
        if (s + 1 < layout.stages())
            all = all * static_cast<double>(layout.degree(s + 1)); // to each device of the next group
        if (std::abs((activations[s] - all).value) > 1e-9 * all.value)
            builder.fail("stage " + std::to_string(s) + " sends " + detail::rounded(activations[s].value, 17) +
                         " bytes, expected " + detail::rounded(all.value, 17));
    }
    builder.conclude(options.tolerance);
    return result;
}

/// As above, for a program of another type.
template <single_device_program Program, kernel_backend<double> Backend, pipeline_schedule Schedule = one_f_one_b>
    requires(!std::same_as<Program, program>)
[[nodiscard]] proof prove(Program const& p, pipeline_plan const& what, Backend const& backend,
                          proof_options const& options = {}, Schedule const& schedule = {}) {
    static_assert(tells_kinds<Program>, "A program that is run tells what each operator computes: "
                                        "program_access<Program>::kind(p, o) is a string that the backend knows.");
    return prove(program_of(p), what, backend, options, schedule);
}

} // namespace heddle
