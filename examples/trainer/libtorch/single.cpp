// SPDX-License-Identifier: BSL-1.0
// Trains a classifier on one device.
#include "model.hpp"

#include <torch/optim.h>
#include <torch/utils.h>

#include <cstdio>

int main() {
    torch::manual_seed(1);
    classifier model;
    model.to(torch::kDouble);
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2));
    auto const loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        rings().map(torch::data::transforms::Stack<>()), 96);

    for (int epoch = 1; epoch <= 5; ++epoch) {
        double loss = 0;
        for (auto& batch : *loader) {
            auto const of_batch = loss_of(model, batch.data, batch.target);
            optimizer.zero_grad();
            of_batch.backward();
            optimizer.step();
            loss = of_batch.item<double>();
        }
        std::printf("epoch %d, loss %.12f\n", epoch, loss);
    }
    auto const first = *loader->begin();
    std::printf("evaluated, loss %.12f\n", loss_of(model, first.data, first.target).item<double>());
}
