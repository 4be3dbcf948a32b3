// SPDX-License-Identifier: BSL-1.0
// Trains a classifier on the devices of a cluster, one process for each.
#include "model.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/libtorch/kernels.hpp>
#include <heddle/libtorch/module_rank.hpp>
#include <heddle/libtorch/trace_module.hpp>
#include <heddle/mpi/all.hpp>
#include <torch/optim.h>
#include <torch/utils.h>

#include <cstdio>

int train(heddle::mpi::communicator& world, char const* cluster) {
    torch::manual_seed(1);
    classifier model;
    model.to(torch::kDouble);
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2));
    auto const loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        rings().map(torch::data::transforms::Stack<>()), 96);

    auto const example = *loader->begin();
    auto const traced =
        heddle::libtorch::trace(model, {{"points", example.data}, {"rings", example.target}},
                                [&](auto const& inputs) { return loss_of(model, inputs[0], inputs[1]); });
    auto const plan =
        heddle::plan_hap(traced.program, heddle::json::read_cluster(cluster), heddle::clp::ratio_solver{});
    auto const indexed = heddle::index_for(traced.program, plan);
    heddle::libtorch::kernels<double> const kernels;
    heddle::interpreter rank(traced.program, indexed, plan, world, kernels);
    heddle::libtorch::module_rank<double, decltype(rank)> part(model, traced.program, rank);

    for (int epoch = 1; epoch <= 5; ++epoch) {
        double loss = 0;
        for (auto& batch : *loader) {
            optimizer.zero_grad();
            loss = part.run({{"points", batch.data}, {"rings", batch.target}});
            optimizer.step();
        }
        if (world.rank() == 0) std::printf("epoch %d, loss %.12f\n", epoch, loss);
    }
    part.make_whole();
    auto const first = *loader->begin();
    auto const evaluated = loss_of(model, first.data, first.target).item<double>();
    if (world.rank() == 0) std::printf("evaluated, loss %.12f\n", evaluated);
    return 0;
}

int main(int argc, char** argv) {
    return heddle::mpi::run_job(argc, argv, {}, [&](auto& world) { return train(world, argv[1]); });
}
