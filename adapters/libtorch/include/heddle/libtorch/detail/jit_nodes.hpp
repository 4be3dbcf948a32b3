// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What nodes of a TorchScript graph and their values say of themselves.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/requirements.hpp>

#include <heddle/libtorch/detail/shape_evaluation.hpp>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::libtorch::detail {

[[nodiscard]] inline std::string first_line(std::string const& text) { return text.substr(0, text.find('\n')); }

/// A number with which a tensor was computed is a tensor in a trace. It decides no type, and a saved file has lost the
/// mark that says so.
[[nodiscard]] inline c10::IValue constant_of(torch::jit::Node const& node) {
    auto const value = torch::jit::toIValue(node.output());
    if (value && value->isTensor() && value->toTensor().defined() && value->toTensor().dim() == 0)
        value->toTensor().unsafeGetTensorImpl()->set_wrapped_number(true);
    return value ? *value : c10::IValue();
}

[[nodiscard]] inline c10::IValue list_of(torch::jit::Node const& node, std::vector<c10::IValue> const& items) {
    c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
    for (auto const& item : items) list.push_back(item);
    return list;
}
[[nodiscard]] inline std::vector<c10::IValue> items_of(c10::impl::GenericList const& list) {
    std::vector<c10::IValue> items;
    for (std::size_t i = 0; i < list.size(); ++i) items.push_back(list.get(i));
    return items;
}

[[nodiscard]] inline std::vector<at::Tensor> tensors_in(std::vector<c10::IValue> const& values) {
    std::vector<at::Tensor> tensors;
    for (auto const& value : values)
        static_cast<void>(with_each_tensor(value, [&](at::Tensor const& t) {
            tensors.push_back(t);
            return t;
        }));
    return tensors;
}

[[nodiscard]] inline bool is_among(torch::jit::Node const& node, std::initializer_list<std::string_view> names) {
    return algorithm::find(names, std::string_view(node.kind().toQualString())) != names.end();
}
[[nodiscard]] inline bool needs_contents(torch::jit::Node const& node) {
    return is_among(node, {"aten::Bool", "aten::Int", "aten::Float", "aten::item", "aten::IntImplicit",
                           "aten::FloatImplicit", "aten::ScalarImplicit", "aten::nonzero", "aten::masked_select"});
}
/// Tells whether the result has nothing of its first argument except type and shape, so that its contents are known.
[[nodiscard]] inline bool makes_constant(torch::jit::Node const& node) {
    return is_among(node, {"aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::zeros_like", "aten::ones_like",
                           "aten::full_like"});
}
/// Tells whether it sets all elements to one number.
[[nodiscard]] inline bool makes_same(torch::jit::Node const& node) {
    return is_among(node, {"aten::zero_", "aten::fill_"});
}

/// Returns the tensor that an operator changes, if it does so and returns it.
[[nodiscard]] inline std::optional<at::Tensor> written_argument(torch::jit::Node const& node,
                                                                std::vector<c10::IValue> const& arguments) {
    auto const& schema = node.schema();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        auto const* alias = schema.arguments()[i].alias_info();
        if (alias && alias->isWrite() && arguments[i].isTensor() && schema.returns().size() == 1)
            return arguments[i].toTensor();
    }
    return {};
}

} // namespace heddle::libtorch::detail
