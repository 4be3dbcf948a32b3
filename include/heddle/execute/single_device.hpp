// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What every plan is measured by: a program on one device, by the same kernels but without the interpreter.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/form.hpp>

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

/// What one rank has after an iteration: the loss or its summand of it, and the gradient of each trained parameter in
/// the form in which its parameter is stored.
template <class Scalar, rank_tensor Tensor = dense_tensor<Scalar>>
struct iteration_result {
    Scalar loss{};
    std::map<tensor_id, std::pair<tensor_form, Tensor>> gradients;
};

/// Runs one iteration on one device. Returns the loss and the whole gradient of every trained parameter by which it is
/// differentiated; see `indexed_tensor::has_cotangent`. *Throws* `input_error` if the backend cannot run an operator.
template <class Scalar, kernel_backend<Scalar> Backend>
[[nodiscard]] iteration_result<Scalar> run_single_device(program const& p, source_values<Scalar> const& sources,
                                                         Backend const& backend, std::uint64_t seed = 0) {
    using tensor = dense_tensor<Scalar>;
    std::map<tensor_id, tensor> values(sources.begin(), sources.end()), cotangents;
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
        for (std::size_t k = 0; k < results.size(); ++k) values[p.results(o)[k]] = std::move(results[k]);
    }
    cotangents[p.loss()] = tensor(p.tensor(p.loss()).shape, Scalar{1});
    for (auto o = static_cast<operator_id>(p.operator_count()); o-- > 0;) {
        auto const given = all(cotangents, p.results(o));
        if (algorithm::all_of(given, [](auto const* g) { return g == nullptr; })) continue;
        auto gradients =
            backend.backward(whole_call(p, o, seed), all(values, p.operands(o)), all(values, p.results(o)), given);
        for (std::size_t k = 0; k < gradients.size(); ++k) {
            if (!gradients[k]) continue;
            auto const [slot, is_new] = cotangents.try_emplace(p.operands(o)[k]);
            if (is_new) slot->second = std::move(*gradients[k]);
            else slot->second += *gradients[k];
        }
    }
    iteration_result<Scalar> result{values.at(p.loss())[0], {}};
    auto const indexed = index_program(p);
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        if (!p.tensor(t).trainable || !indexed.tensors[t].has_cotangent) continue;
        auto const found = cotangents.find(t);
        result.gradients[t] = {tensor_form::replicated(),
                               found == cotangents.end() ? tensor(p.tensor(t).shape) : std::move(found->second)};
    }
    return result;
}

} // namespace heddle
