// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution for mesh programs.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/mesh_interpreter.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/plan/mesh_program.hpp>

#include <mutex>
#include <utility>

namespace heddle {

/// Runs one iteration of a mesh program on as many threads as it has devices, and of the program on a single device, on
/// the same random data in double precision; errors are those of `prove`. *Precondition:* `verify` accepts the program.
/// *Throws* as `prove` does.
template <kernel_backend<double> Backend>
[[nodiscard]] proof prove(program const& p, mesh_program const& what, Backend const& backend,
                          proof_options const& options = {}) {
    auto const indexed = index_program(p, what.segments);
    auto const sources = random_sources<double>(p, options.seed);
    auto const expected = run_on_random_sources(p, sources, backend, options.seed);
    detail::require_finite(p, expected);
    source_values<double> gradients;
    for (auto const& [t, gradient] : expected.gradients) gradients.emplace(t, gradient.second);
    proof result;
    result.ranks = what.mesh.device_count();
    result.steps = what.steps.size();
    result.expected_loss = expected.loss;
    detail::proof_builder builder(p, expected, result);
    std::mutex lock;
    run_mesh(what.mesh, [&](auto& communicator) {
        mesh_interpreter<double, std::remove_reference_t<decltype(communicator)>, Backend> run(
            p, indexed, what, communicator, backend, options.seed);
        auto mine = run.run(run.place(sources));
        double const loss = run.whole_loss(mine);
        gradients_of<typename Backend::tensor> compared;
        for (auto& [t, gradient] : mine.gradients) compared.emplace(t, std::pair(tensor_form(), std::move(gradient)));
        std::scoped_lock const guard(lock);
        builder.compare_loss(loss);
        builder.compare_gradients(compared, run.place(gradients));
    });
    if (!(result.worst_error <= options.tolerance))
        builder.fail("the relative error of '" + result.worst_tensor + "' is " +
                     detail::rounded(result.worst_error, 3) + ", expected at most " +
                     detail::rounded(options.tolerance, 3));
    result.is_equal = result.problem.empty();
    return result;
}

} // namespace heddle
