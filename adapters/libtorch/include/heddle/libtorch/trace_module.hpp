// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program of a module of libtorch's C++ frontend.
#pragma once

#include <heddle/libtorch/trace.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace heddle::libtorch {

namespace detail {

/// Returns a TorchScript module that has the parameters and buffers of a module, and no methods.
[[nodiscard]] inline torch::jit::Module without_methods(torch::nn::Module const& module, std::string const& name) {
    torch::jit::Module made{c10::QualifiedName(name)};
    for (auto const& p : module.named_parameters(false)) made.register_parameter(p.key(), p.value(), false);
    for (auto const& b : module.named_buffers(false)) made.register_buffer(b.key(), b.value());
    for (auto const& child : module.named_children())
        made.register_module(child.key(), without_methods(*child.value(), "child"));
    return made;
}

} // namespace detail

/// Returns the training program of a module and its loss, for inputs of these names and shapes. `loss` takes the inputs
/// as a list, and returns a scalar; it is called once, with these tensors, and recorded: what it does with numbers,
/// such as branches and loops, is not part of the program. Parameters have the names of `module.named_parameters()`.
/// *Throws* as `trace` of a TorchScript module does.
template <class Loss>
[[nodiscard]] traced_model trace(torch::nn::Module const& module,
                                 std::vector<std::pair<std::string, at::Tensor>> const& inputs, Loss&& loss,
                                 trace_options options = {}) {
    auto recorded = detail::without_methods(module, "module");
    torch::jit::Stack values;
    std::vector<std::string> names;
    std::vector<at::Tensor> tensors;
    for (auto const& [name, tensor] : inputs) {
        values.emplace_back(tensor);
        names.push_back(name);
        tensors.push_back(tensor);
    }
    auto const run = [&](torch::jit::Stack arguments) {
        std::vector<at::Tensor> of_loss;
        for (auto const& a : arguments) of_loss.push_back(a.toTensor());
        return torch::jit::Stack{loss(of_loss)};
    };
    auto const unnamed = [](at::Tensor const&) { return std::string(); };
    auto const graph = [&] {
        c10::NoGradGuard const no_gradients;
        try {
            return torch::jit::tracer::trace(std::move(values), run, unnamed, true, false, &recorded, names)
                .first->graph;
        } catch (c10::Error const& e) {
            throw input_error("the loss", "cannot be computed: " + detail::first_line(e.what_without_backtrace()));
        }
    }();
    c10::QualifiedName const forward(*recorded.type()->name(), "forward");
    recorded.type()->addMethod(recorded._ivalue()->compilation_unit()->create_function(forward, graph));
    if (options.name.empty()) options.name = module.name();
    return trace(recorded, tensors, std::move(options));
}

} // namespace heddle::libtorch
