// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"
#include "kernels.hpp"

#include <heddle/execute/devices.hpp>

namespace heddle::test {

proof emulate(program const& p, plan const& what, std::uint64_t seed) {
    return prove(p, what, kernels(), {.seed = seed});
}

proof emulate(program const& p, mesh_program const& what, std::uint64_t seed, bool counts_bytes) {
    training_options training; // gradients go one by one, in small buckets, or in one
    training.bucket = bytes(seed % 3 == 0 ? 0 : seed % 3 == 1 ? 400 : 25e6);
    auto const as_plan = plan_on_mesh(index_program(p, what.segments), what, training);
    plan_proof<eigen_kernels<double>> all(p, as_plan, kernels(), {.seed = seed});
    run_devices<double>(as_plan, [&](auto& ranks) { all.run_rank(ranks); });
    return counts_bytes ? all.finish() : all.compared();
}

bool is_unstable(program const& p, std::uint64_t seed) {
    auto const sources = random_sources<double>(p, seed);
    auto const expected = run_on_random_sources(p, sources, kernels(), seed);
    source_values<double> gradients;
    for (auto const& [t, gradient] : expected.gradients) gradients.emplace(t, gradient.second);
    auto const is_zero = [](auto const& g) {
        return std::ranges::all_of(g.second.data, [](double x) { return x == 0; });
    };
    if (expected.loss == 0 && std::ranges::all_of(gradients, is_zero)) return true;
    random_source random(seed);
    proof seen;
    for (int tries = 0; tries < 5; ++tries) {
        auto rounded = sources;
        for (auto& [t, x] : rounded)
            if (is_floating(p.tensor(t).type))
                for (auto& number : x.data) number *= 1 + 1e-15 * random.between(-4, 4);
        auto const result = run_on_random_sources(p, rounded, kernels(), seed);
        heddle::detail::proof_builder builder(p, expected, seen);
        builder.compare_loss(result.loss);
        builder.compare_gradients(result.gradients, gradients);
    }
    return !seen.problem.empty() || !(seen.worst_error <= proof_options{}.tolerance / 10);
}

std::string describe(plan const& what) {
    std::string text = "  ranks: " + std::to_string(what.devices.size()) + "\n";
    for (auto const& s : what.steps) {
        auto const* const compute = s.instruction.as<instruction::compute>();
        text += "  " + describe(s.instruction) + (compute ? " (loop " + std::to_string(compute->loop) + ")\n" : "\n");
    }
    for (auto const& cut : what.cuts) {
        text += "  cut of " + std::to_string(cut.atoms) + ":";
        for (auto const& m : cut.members) text += " " + std::to_string(m.tensor) + "." + std::to_string(m.factor);
        text += " =";
        for (extent n : cut.counts) text += " " + std::to_string(n);
        text += "\n";
    }
    return text;
}

} // namespace heddle::test
