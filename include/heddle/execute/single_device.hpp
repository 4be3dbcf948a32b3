// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What every plan is measured by: a program on one device, by the same kernels but without the interpreter.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/product_form.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Tensors of one type by their number in a program.
template <rank_tensor Tensor>
using tensor_values = std::map<tensor_id, Tensor>;

/// The values of a program's sources, whole.
template <class Scalar>
using source_values = tensor_values<dense_tensor<Scalar>>;

/// The gradient of each trained parameter, in the form in which the parameter is stored.
template <rank_tensor Tensor>
using gradients_of = std::map<tensor_id, std::pair<product_form, Tensor>>;

/// What a single device has after an iteration.
/// `Number` is `host_number<Tensor>`.
template <class Number, rank_tensor Tensor = dense_tensor<Number>>
struct iteration_result {
    Number loss{};
    gradients_of<Tensor> gradients;
};

/// What a rank has after an iteration: the loss, or its part of it, and the gradients of the parameters that it uses.
template <rank_tensor Tensor>
struct rank_result {
    Tensor loss;
    gradients_of<Tensor> gradients;
};

/// Runs one iteration on one device. Returns the loss and the whole gradient of every trained parameter by which it is
/// differentiated, times `scale`; see `indexed_tensor::has_cotangent`. *Throws* `input_error` if the backend cannot run
/// an operator.
template <class Backend>
    requires kernel_backend<Backend, typename Backend::tensor::scalar_type>
[[nodiscard]] iteration_result<host_number<typename Backend::tensor>, typename Backend::tensor> run_single_device(
    program const& p, tensor_values<typename Backend::tensor> const& sources, Backend const& backend,
    std::uint64_t seed = 0, host_number<typename Backend::tensor> scale = 1) {
    using tensor = typename Backend::tensor;
    std::map<tensor_id, tensor> values(sources.begin(), sources.end()), cotangents;
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (auto const data = sources.find(p.data_of(t)); data != sources.end()) values.emplace(t, data->second);
    auto const all = [](auto& map, std::span<tensor_id const> tensors) {
        std::vector<tensor const*> found;
        for (auto t : tensors) {
            auto const at = map.find(t);
            found.push_back(at == map.end() ? nullptr : &at->second);
        }
        return found;
    };
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto results = backend.forward(whole_call(p, o, seed), all(values, p.operands(o)));
        for (std::size_t k = 0; k < results.size(); ++k)
            values.insert_or_assign(p.results(o)[k], std::move(results[k]));
    }
    cotangents.insert_or_assign(p.loss(), tensor(p.tensor(p.loss()).shape, scale));
    for (auto o = static_cast<operator_id>(p.operator_count()); o-- > 0;) {
        auto const given = all(cotangents, p.results(o));
        if (algorithm::all_of(given, [](auto const* g) { return g == nullptr; })) continue;
        auto gradients =
            backend.backward(whole_call(p, o, seed), all(values, p.operands(o)), all(values, p.results(o)), given);
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            if (!gradients[k]) continue;
            auto const t = p.operands(o)[k];
            if (auto const sum = cotangents.find(t); sum != cotangents.end()) sum->second += *gradients[k];
            else cotangents.emplace(t, std::move(*gradients[k]));
        }
    }
    iteration_result<host_number<tensor>, tensor> result{values.at(p.loss()).number(), {}};
    auto const indexed = index_program(p);
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        if (!p.tensor(t).trainable || !indexed.tensors[t].has_cotangent) continue;
        auto const found = cotangents.find(t);
        result.gradients.emplace(t, std::pair(product_form(tensor_form::replicated()), found == cotangents.end()
                                                                                           ? tensor(p.tensor(t).shape)
                                                                                           : std::move(found->second)));
    }
    return result;
}

} // namespace heddle
