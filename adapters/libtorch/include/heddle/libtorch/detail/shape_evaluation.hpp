// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs ATen operators for the shapes and types of their results alone.
#pragma once

#include <heddle/base/requirements.hpp>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::libtorch::detail {

/// Returns a tensor of the same shape, strides and type that has no data.
[[nodiscard]] inline at::Tensor without_data(at::Tensor const& t) {
    return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta).requires_grad(false));
}

/// Applies a function to every tensor of a value, in tuples and lists as well.
template <class Function>
[[nodiscard]] c10::IValue with_each_tensor(c10::IValue const& value, Function&& function) {
    if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
    if (value.isTuple()) {
        std::vector<c10::IValue> items;
        for (auto const& item : value.toTupleRef().elements()) items.push_back(with_each_tensor(item, function));
        return c10::ivalue::Tuple::create(std::move(items));
    }
    if (value.isList()) {
        auto const list = value.toList();
        c10::impl::GenericList result(list.elementType());
        for (std::size_t i = 0; i < list.size(); ++i) result.push_back(with_each_tensor(list.get(i), function));
        return result;
    }
    return value;
}

/// Returns the shape of a convolution, with a batch or without; not every release can tell it without computing.
[[nodiscard]] inline std::vector<std::int64_t> convolution_shape(at::Tensor const& input, at::Tensor const& weight,
                                                                 std::vector<std::int64_t> const& stride,
                                                                 std::vector<std::int64_t> const& padding,
                                                                 std::vector<std::int64_t> const& dilation) {
    bool const batched = input.dim() == weight.dim();
    std::vector<std::int64_t> shape{weight.size(0)};
    if (batched) shape.insert(shape.begin(), input.size(0));
    auto const of = [](std::vector<std::int64_t> const& list, std::size_t d) {
        return list.size() == 1 ? list[0] : list.at(d);
    };
    for (std::size_t d = 0; d + 2 < static_cast<std::size_t>(weight.dim()); ++d) {
        auto const axis = static_cast<std::int64_t>(d) + 2;
        shape.push_back((input.size(axis - (batched ? 0 : 1)) + 2 * of(padding, d) -
                         of(dilation, d) * (weight.size(axis) - 1) - 1) /
                            of(stride, d) +
                        1);
    }
    return shape;
}

/// Makes the result of a convolution if it is not transposed and its padding is given in numbers.
[[nodiscard]] inline bool evaluate_convolution(torch::jit::Node const& node, std::vector<c10::IValue>& stack) {
    auto const& schema = node.schema();
    auto const argument = [&](char const* name) -> c10::IValue const* {
        auto const index = schema.argumentIndexWithName(name);
        return index ? &stack.at(stack.size() - schema.arguments().size() + static_cast<std::size_t>(*index)) : nullptr;
    };
    auto const *input = argument("input"), *weight = argument("weight"), *stride = argument("stride"),
               *padding = argument("padding"), *dilation = argument("dilation"), *transposed = argument("transposed");
    bool const plain = input && weight && stride && padding && dilation && padding->isIntList() &&
                       !(transposed && transposed->toBool());
    if (!plain || !input->isTensor() || weight->toTensor().dim() < 3) return false;
    auto const shape = convolution_shape(input->toTensor(), weight->toTensor(), stride->toIntVector(),
                                         padding->toIntVector(), dilation->toIntVector());
    at::Tensor result = at::empty(shape, input->toTensor().options().device(at::kMeta));
    stack.assign({std::move(result)});
    return true;
}

/// Replaces the arguments on the stack by the results of a node's operator, as tensors without data. If this release of
/// libtorch has no such kernel, it is run on zeros. Tensors of numbers that are known while tracing keep their data.
/// *Throws* what the operator throws.
inline void evaluate(torch::jit::Node const& node, std::vector<c10::IValue>& stack) {
    bool any_without_data = false;
    for (auto const& value : stack)
        static_cast<void>(with_each_tensor(value, [&](at::Tensor const& t) {
            any_without_data |= t.is_meta();
            return t;
        }));
    if (any_without_data && evaluate_convolution(node, stack)) return;
    auto operation = node.getOperation();
    std::vector<c10::IValue> attempt = stack;
    try {
        operation(attempt);
        stack = std::move(attempt);
        return;
    } catch (c10::NotImplementedError const&) {
        if (!any_without_data) throw;
    }
    std::vector<c10::IValue> zeros;
    for (auto const& value : stack)
        zeros.push_back(with_each_tensor(value, [](at::Tensor const& t) {
            return t.is_meta() ? at::zeros(t.sizes(), t.options().device(at::kCPU)) : t;
        }));
    operation(zeros);
    for (auto& value : zeros) value = with_each_tensor(value, [](at::Tensor const& t) { return without_data(t); });
    stack = std::move(zeros);
}

} // namespace heddle::libtorch::detail
