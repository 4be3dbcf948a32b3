// SPDX-License-Identifier: BSL-1.0
#include "traced.hpp"

#include <heddle/libtorch/all.hpp>

heddle::program traced_classifier(std::string const& path, heddle::tensor_shape const& images, bool returns_loss) {
    auto const without_data = at::TensorOptions().device(at::kMeta);
    at::Tensor const labels = at::empty({images[0]}, without_data.dtype(at::kLong));
    std::vector<at::Tensor> inputs{at::empty(images, without_data.dtype(at::kFloat))};
    heddle::libtorch::trace_options options;
    if (returns_loss) inputs.push_back(labels);
    else options.loss = {.function = "cross_entropy", .reduction = "sum", .target = labels, .target_name = "target"};
    auto model = heddle::libtorch::trace(path, inputs, std::move(options));
    for (auto const& warning : model.warnings) throw heddle::input_error(path, warning);
    return std::move(model.program);
}
