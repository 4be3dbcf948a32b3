// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program of a TorchScript module.
#pragma once

#include <heddle/libtorch/detail/graph_tracer.hpp>
#include <heddle/program/call_recorder.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/whole_inputs.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::libtorch {

/// A loss put behind a module that returns predictions: a function of `torch.nn.functional` that takes input, target
/// and reduction. If the module returns several predictions, as some classifiers do in training, the loss is that of
/// the first and a part of that of each other.
struct appended_loss {
    std::string function = "cross_entropy";
    std::string reduction = "mean";
    /// An example target, with the real batch.
    at::Tensor target;
    std::string target_name = "target";
    double auxiliary_weight = 0.3;
};

namespace detail {

/// Returns the predictions of a module, without results that are none.
[[nodiscard]] inline std::vector<at::Tensor> traced_results(graph_tracer const& tracer, c10::IValue const& result,
                                                            bool may_be_several) {
    if (may_be_several && result.isTuple()) {
        std::vector<at::Tensor> all;
        for (auto const& item : result.toTupleRef().elements())
            if (!item.isNone()) all.push_back(traced_results(tracer, item, false).front());
        if (!all.empty()) return all;
    }
    if (!result.isTensor() || !tracer.is_traced(result.toTensor()))
        throw input_error("forward", std::string("returns a ") + result.tagKind() +
                                         ", expected one tensor that depends on the inputs");
    return {result.toTensor()};
}

/// Adds the losses of predictions and their sum.
[[nodiscard]] inline tensor_id append_loss(graph_tracer& tracer, appended_loss const& loss,
                                           std::vector<at::Tensor> const& predictions, at::Tensor const& target) {
    at::Tensor const scalar = at::empty({}, predictions.front().options());
    auto const add = [&](std::string function, std::vector<std::pair<std::string, literal>> arguments) {
        functional_call call{std::move(function)};
        for (auto& [name, value] : arguments) call.add(std::move(name), std::move(value));
        return literal{literal::tensor{tracer.record(std::move(call), {scalar}).front()}};
    };
    auto const loss_of = [&](at::Tensor const& prediction) {
        return add("torch.nn.functional." + loss.function, {{"input", {literal::tensor{tracer.id(prediction)}}},
                                                            {"target", {literal::tensor{tracer.id(target)}}},
                                                            {"reduction", {loss.reduction}}});
    };
    literal sum = loss_of(predictions.front());
    for (std::size_t i = 1; i < predictions.size(); ++i)
        sum = add(
            "torch.add",
            {{"input", sum},
             {"other", add("torch.mul", {{"input", loss_of(predictions[i])}, {"other", {loss.auxiliary_weight}}})}});
    return sum.as<literal::tensor>()->id;
}

} // namespace detail

struct trace_options {
    /// If empty, it is the module's type.
    std::string name{};
    /// The user's rules by target: `torch.roll`, or `mine.scale` for the operator `mine::scale`.
    rule_table rules{};
    /// If absent, the module returns the loss.
    std::optional<appended_loss> loss{};
};

struct traced_model {
    std::string name;
    heddle::program program;
    /// The targets without a rule, and one warning for each.
    std::vector<missing_rule> missing_rules;
    std::vector<std::string> warnings;
};

/// Returns the training program of a module, traced or scripted, in the mode in which it is, for inputs of these shapes
/// and types.
///
/// Only shapes are computed: neither parameters nor inputs are read, and operators whose shape this release of libtorch
/// cannot tell are run on zeros. Parameters keep their names; a tied one is one parameter; one that needs no gradient
/// is frozen. In-place operators become values. Control flow is followed as long as it does not ask for the contents of
/// a tensor.
/// *Throws* `input_error` that names the module, for what a program cannot express and for a result that is no scalar
/// loss.
[[nodiscard]] inline traced_model trace(torch::jit::Module const& module, std::vector<at::Tensor> const& inputs,
                                        trace_options options = {}) {
    c10::NoGradGuard const no_gradients;
    call_recorder recorder;
    recorder.rules = std::move(options.rules);
    detail::graph_tracer tracer(module, recorder);
    auto const& arguments = module.get_method("forward").function().getSchema().arguments();
    if (inputs.size() + 1 > arguments.size())
        throw input_error("inputs", "there are " + std::to_string(inputs.size()) + ", forward takes " +
                                        std::to_string(arguments.size() - 1));
    std::vector<c10::IValue> values{module._ivalue()};
    for (std::size_t i = 0; i < inputs.size(); ++i)
        values.emplace_back(tracer.input(arguments[i + 1].name(), inputs[i]));
    std::optional<at::Tensor> target;
    if (options.loss) target = tracer.input(options.loss->target_name, options.loss->target);

    auto const result = tracer.call_method("forward", std::move(values));
    auto const predictions = detail::traced_results(tracer, result, options.loss.has_value());
    auto const loss = options.loss ? detail::append_loss(tracer, *options.loss, predictions, *target)
                                   : tracer.id(predictions.front());
    return {options.name.empty() ? module.type()->name()->name() : options.name,
            with_whole_inputs(recorder.finish(loss)), recorder.missing(), recorder.warnings()};
}

/// As above, from a file that `torch.jit.save` wrote. *Throws* `file_error` if it cannot be read.
[[nodiscard]] inline traced_model trace(std::string const& path, std::vector<at::Tensor> const& inputs,
                                        trace_options options = {}) {
    try {
        return trace(torch::jit::load(path, at::kCPU), inputs, std::move(options));
    } catch (c10::Error const& e) {
        throw file_error(
            path + ": " +
            std::string(e.what_without_backtrace()).substr(0, std::string(e.what_without_backtrace()).find('\n')));
    }
}

} // namespace heddle::libtorch
