// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs one operator of a distributed program, forward and backward, on what one micro-batch has.
#pragma once

#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/theory/instruction.hpp>

#include <boost/container/small_vector.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// What one micro-batch has on one rank: values and cotangents, and by operator and number the statistics of rows,
/// combined, and the rows that others sent.
template <rank_tensor Tensor, class Request, class Form = tensor_form>
struct micro_batch_state {
    form_slots<slot<Tensor, Request>, Form> values, cotangents;
    std::map<std::pair<operator_id, std::size_t>, wide_of<Tensor>> statistics;
    std::map<std::pair<operator_id, std::size_t>, Tensor> rows;

    explicit micro_batch_state(std::size_t tensors) : values(tensors), cotangents(tensors) {}
    void drop_all() {
        values.drop_all();
        cotangents.drop_all();
        statistics.clear();
        rows.clear();
    }
};

template <class Slot, class Form, class Part>
void accumulate(form_slots<Slot, Form>& into, tensor_id t, std::type_identity_t<Form> const& f, Part&& gradient) {
    if (auto* const found = into.find(t, f)) found->add(std::forward<Part>(gradient));
    else into.set(t, f, std::forward<Part>(gradient));
}

/// Makes `rows` those of all ranks, by `join(rows)`; if they are known, as they are in the backward pass, without
/// asking.
template <class Tensor, class Request, class Form, class Join>
void combine_once(micro_batch_state<Tensor, Request, Form>& of, operator_id o, std::size_t which, wide_of<Tensor>& rows,
                  Join&& join) {
    auto const [known, is_new] = of.statistics.try_emplace({o, which}, rows);
    if (is_new) join(known->second);
    rows = known->second;
}

/// A list of an operator's operands or results; most are few.
template <class Value>
using short_list = boost::container::small_vector<Value, 4>;
template <class Value>
[[nodiscard]] std::span<Value const> all_of(short_list<Value> const& list) {
    return {list.data(), list.size()};
}

/// Runs an operator: `operand(k)` is what it is given, and `keep(k, result)` takes what it makes.
template <class Backend, class Operand, class Keep>
void run_forward(Backend const& backend, instruction::compute const& i,
                 tensor_call<typename Backend::tensor> const& call, Operand&& operand, Keep&& keep) {
    short_list<held<typename Backend::tensor>> given;
    short_list<typename Backend::tensor const*> operands;
    for (std::size_t k = 0; k < i.operands.size(); ++k) {
        given.push_back(operand(k));
        operands.push_back(given.back().get());
    }
    auto results = backend.forward(call, all_of(operands));
    for (std::size_t k = 0; k < results.size(); ++k) keep(k, std::move(results[k]));
}

/// Runs the adjoint of an operator: `result(k)` is what it has made, `cotangents` are those of the results, null where
/// nothing is differentiated; `add(k, gradient)` takes what it gives an operand.
template <class Backend, class Operand, class Result, class Add>
void run_backward(Backend const& backend, instruction::compute const& i,
                  tensor_call<typename Backend::tensor> const& call, Operand&& operand, Result&& result,
                  std::span<held<typename Backend::tensor> const> cotangents, Add&& add) {
    short_list<held<typename Backend::tensor>> given;
    short_list<typename Backend::tensor const*> operands, results, of_results;
    for (std::size_t k = 0; k < i.operands.size(); ++k) {
        given.push_back(operand(k));
        operands.push_back(given.back().get());
    }
    for (std::size_t k = 0; k < i.results.size(); ++k) {
        given.push_back(result(k));
        results.push_back(given.back().get());
        of_results.push_back(cotangents[k].get());
    }
    auto gradients = backend.backward(call, all_of(operands), all_of(results), all_of(of_results));
    for (std::size_t k = 0; k < gradients.size(); ++k)
        if (gradients[k]) add(k, std::move(*gradients[k]));
}

} // namespace heddle::detail
