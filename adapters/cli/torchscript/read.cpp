// SPDX-License-Identifier: BSL-1.0
// In `heddle-torchscript`: the only unit of the command line that includes libtorch.
#include "../torchscript.hpp"

#include <heddle/libtorch/all.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace heddle::cli {

namespace {

at::ScalarType scalar_type_of(element_type type) {
    switch (type) {
    case element_type::float16: return at::kHalf;
    case element_type::bfloat16: return at::kBFloat16;
    case element_type::float32: return at::kFloat;
    case element_type::float64: return at::kDouble;
    case element_type::int8: return at::kChar;
    case element_type::int32: return at::kInt;
    case element_type::int64: return at::kLong;
    case element_type::boolean: return at::kBool;
    }
    return at::kFloat;
}

/// Returns examples of the inputs in the order of forward's arguments; those left out at the end have defaults.
std::vector<at::Tensor> examples_of(torch::jit::Module const& module, std::vector<torchscript_input> const& inputs) {
    auto const& arguments = module.get_method("forward").function().getSchema().arguments();
    std::string names;
    for (std::size_t i = 1; i < arguments.size(); ++i) names += (i > 1 ? ", " : "") + arguments[i].name();
    for (auto const& input : inputs)
        if (std::none_of(arguments.begin() + 1, arguments.end(), [&](auto const& a) { return a.name() == input.name; }))
            throw input_error("--input", "'" + input.name + "' is no argument of the module's forward, which takes " +
                                             (names.empty() ? "none" : names));
    std::vector<at::Tensor> examples;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        auto const& name = arguments[i].name();
        auto const found = std::ranges::find(inputs, name, &torchscript_input::name);
        if (found != inputs.end() && examples.size() + 1 == i)
            examples.push_back(
                at::empty(found->shape, at::TensorOptions().device(at::kMeta).dtype(scalar_type_of(found->type))));
        else if (!arguments[i].default_value() || examples.size() < inputs.size())
            throw input_error("--input", "is missing for '" + name + "' of the module's forward, which takes " + names +
                                             "; give its sizes and type, such as --input " + name + "=4x128:int64");
    }
    return examples;
}

} // namespace

void keep_arguments(char**) {}

json::model read_torchscript(std::string const& path, std::vector<torchscript_input> const& inputs) {
    try {
        auto const module = torch::jit::load(path, at::kCPU);
        auto traced = libtorch::trace(module, examples_of(module, inputs));
        json::model model;
        model.name = std::filesystem::path(path).stem().string();
        model.program = std::move(traced.program);
        model.missing_rules = std::move(traced.missing_rules);
        model.warnings = std::move(traced.warnings);
        return model;
    } catch (input_error const& e) {
        std::string const message = e.what();
        if (message.starts_with("--")) throw;
        throw input_error(path, message);
    } catch (c10::Error const& e) {
        std::string const message = e.what_without_backtrace();
        throw file_error(path + ": " + message.substr(0, message.find('\n')));
    }
}

} // namespace heddle::cli
