// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program of a TorchScript module.
#pragma once

#include <heddle/libtorch/detail/graph_tracer.hpp>
#include <heddle/program/call_recorder.hpp>
#include <heddle/program/program.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::libtorch {

/// A loss put behind a module that returns predictions: a function of `torch.nn.functional` that takes input, target and reduction.
struct appended_loss {
    std::string function = "cross_entropy";
    std::string reduction = "mean";
    /// An example, with the real batch.
    at::Tensor target;
    std::string target_name = "target";
};

struct trace_options {
    /// Default: the module's type.
    std::string name{};
    /// Rules of the user's own, by target: `torch.roll`, or `mine.scale` of the operator `mine::scale`.
    rule_table rules{};
    /// None: the module returns the loss.
    std::optional<appended_loss> loss{};
};

struct traced_model {
    std::string name;
    heddle::program program;
    /// The targets without a rule, and one warning for each.
    std::vector<missing_rule> missing_rules;
    std::vector<std::string> warnings;
};

/// The training program of a module, traced or scripted, in the mode it is in, for inputs of these shapes and types.
///
/// Nothing is computed but shapes: neither parameters nor inputs are read, and operators of which this release of libtorch cannot tell
/// the shape are run on zeros. Parameters keep their names; a tied one is one parameter, one that needs no gradient is frozen. In-place
/// operators become values. Control flow is followed as long as it does not ask for the contents of a tensor.
/// *Throws* `input_error`, naming the module, for what a program cannot express, and for a result that is no scalar loss.
[[nodiscard]] inline traced_model trace(torch::jit::Module const& module, std::vector<at::Tensor> const& inputs, trace_options options = {}) {
    c10::NoGradGuard const no_gradients;
    call_recorder recorder;
    recorder.rules = std::move(options.rules);
    detail::graph_tracer tracer(module, recorder);
    auto const& arguments = module.get_method("forward").function().getSchema().arguments();
    if (inputs.size() + 1 > arguments.size())
        throw input_error("inputs", "there are " + std::to_string(inputs.size()) + ", forward takes " + std::to_string(arguments.size() - 1));
    std::vector<c10::IValue> values{module._ivalue()};
    for (std::size_t i = 0; i < inputs.size(); ++i) values.emplace_back(tracer.input(arguments[i + 1].name(), inputs[i]));
    std::optional<at::Tensor> target;
    if (options.loss) target = tracer.input(options.loss->target_name, options.loss->target);

    auto const result = tracer.call_method("forward", std::move(values));
    if (!result.isTensor() || !tracer.is_traced(result.toTensor())) throw input_error("forward", std::string("returns a ") + result.tagKind() + ", expected one tensor that depends on the inputs");
    at::Tensor loss = result.toTensor();
    if (options.loss) {
        detail::functional_call call{"torch.nn.functional." + options.loss->function};
        call.add("input", {literal::tensor{tracer.id(loss)}});
        call.add("target", {literal::tensor{tracer.id(*target)}});
        call.add("reduction", {options.loss->reduction});
        at::Tensor const whole = at::empty({}, loss.options());
        return {options.name.empty() ? module.type()->name()->name() : options.name,
                recorder.builder.finish(tracer.record(std::move(call), {whole}).front()), recorder.missing(), recorder.warnings()};
    }
    return {options.name.empty() ? module.type()->name()->name() : options.name, recorder.builder.finish(tracer.id(loss)), recorder.missing(), recorder.warnings()};
}

/// As above, from a file that `torch.jit.save` wrote. *Throws* `file_error` if it cannot be read.
[[nodiscard]] inline traced_model trace(std::string const& path, std::vector<at::Tensor> const& inputs, trace_options options = {}) {
    try {
        return trace(torch::jit::load(path, at::kCPU), inputs, std::move(options));
    } catch (c10::Error const& e) {
        throw file_error(path + ": " + std::string(e.what_without_backtrace()).substr(0, std::string(e.what_without_backtrace()).find('\n')));
    }
}

} // namespace heddle::libtorch
