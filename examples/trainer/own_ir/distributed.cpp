// SPDX-License-Identifier: BSL-1.0
// Trains a program in a representation of one's own on the devices of a cluster, one process for each.
#include "access.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/mpi/all.hpp>

#include <cstdio>

int train(heddle::mpi::communicator& world, char const* cluster) {
    auto const g = mine::perceptron(96, 32, 64, 8);
    auto const p = heddle::program_of(g);
    auto const plan = heddle::plan_hap(p, heddle::json::read_cluster(cluster), heddle::clp::ratio_solver{});
    auto const indexed = heddle::index_for(p, plan);
    mine::kernels const kernels;
    heddle::interpreter rank(p, indexed, plan, world, kernels);
    auto parameters = rank.place(dense(g, mine::initial_parameters(g)));

    for (int step = 1; step <= 10; ++step) {
        auto tensors = rank.place(dense(g, mine::inputs_of_step(g, step)));
        tensors.insert(parameters.begin(), parameters.end());
        auto const result = rank.run(tensors);
        for (auto const& [t, gradient] : result.gradients)
            for (heddle::extent n = 0; n < gradient.second.elements(); ++n)
                parameters.at(t)[n] -= 0.005 * gradient.second[n];
        auto const loss = rank.whole_loss(result);
        if (world.rank() == 0) std::printf("step %d, loss %.12f\n", step, loss);
    }
    return 0;
}

int main(int argc, char** argv) {
    return heddle::mpi::run_job(argc, argv, {}, [&](auto& world) { return train(world, argv[1]); });
}
