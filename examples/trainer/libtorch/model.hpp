// SPDX-License-Identifier: BSL-1.0
// A module, its loss and its data, as a project of its own would have them.
#pragma once

#include <torch/data.h>
#include <torch/nn.h>

#include <cstdint>

/// Classifies the points of a plane by the ring around the origin that they are in.
struct classifier : torch::nn::Module {
    classifier() {
        hidden = register_module("hidden", torch::nn::Linear(2, 64));
        norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})));
        mixed = register_module("mixed", torch::nn::Linear(64, 64));
        head = register_module("head", torch::nn::Linear(64, 4));
    }
    torch::Tensor forward(torch::Tensor const& points) {
        auto const x = torch::relu(norm(hidden(points)));
        return head(x + torch::gelu(mixed(x)));
    }

    torch::nn::Linear hidden{nullptr}, mixed{nullptr}, head{nullptr};
    torch::nn::LayerNorm norm{nullptr};
};

inline torch::Tensor loss_of(classifier& model, torch::Tensor const& points, torch::Tensor const& rings) {
    return torch::nn::functional::cross_entropy(model.forward(points), rings);
}

/// Points and their rings.
struct rings : torch::data::datasets::Dataset<rings> {
    torch::data::Example<> get(std::size_t index) override {
        auto const n = static_cast<std::int64_t>(index);
        auto const point = torch::tensor(
            {static_cast<double>(n * 37 % 101) / 50 - 1, static_cast<double>(n * 53 % 97) / 48 - 1}, torch::kDouble);
        return {point, (point.norm() * 3).clamp(0, 3).to(torch::kLong)};
    }
    torch::optional<std::size_t> size() const override { return 384; }
};
