// SPDX-License-Identifier: BSL-1.0
// How Heddle reads the representation, and runs its kernels on the parts of tensors that a rank has.
#pragma once

#include "graph.hpp"

#include <heddle/execute/kernel.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/heddle.hpp>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

template <>
struct heddle::program_access<mine::graph> {
    using graph = mine::graph;
    static std::size_t tensor_count(graph const& g) { return g.tensors.size(); }
    static std::size_t operator_count(graph const& g) { return g.nodes.size(); }
    static tensor_info tensor(graph const& g, tensor_id t) {
        auto const& it = g.tensors[t];
        auto const role = it.is_computed    ? tensor_role::value
                          : it.is_parameter ? tensor_role::parameter
                                            : tensor_role::input;
        tensor_shape const shape = t == loss(g) ? tensor_shape{} : tensor_shape{it.rows, it.columns};
        return {it.name, shape, element_type::float64, role, it.is_parameter};
    }
    static std::string name(graph const& g, operator_id o) { return kind(g, o) + std::to_string(o); }
    static std::string kind(graph const& g, operator_id o) {
        return std::array{"matmul", "relu", "squared_error"}[static_cast<std::size_t>(g.nodes[o].code)];
    }
    static operator_attributes attributes(graph const&, operator_id) { return {}; }
    static std::vector<tensor_id> operands(graph const& g, operator_id o) { return g.nodes[o].operands; }
    static std::vector<tensor_id> results(graph const& g, operator_id o) { return {g.nodes[o].result}; }
    static tensor_id loss(graph const& g) { return g.nodes.back().result; }
    static index_rule rule(graph const& g, operator_id o) {
        constexpr std::array texts{"(m k), (k n) -> (m n); 0*1", "(m n) -> (m n)", "(m n), (m n) -> ()"};
        auto read = parse_index_rule(texts[static_cast<std::size_t>(g.nodes[o].code)]);
        std::vector<tensor_shape> shapes;
        for (auto t : operands(g, o)) shapes.push_back({g.tensors[t].rows, g.tensors[t].columns});
        bind_extents(read, shapes);
        return read;
    }
    static operator_work work(graph const& g, operator_id o) {
        bool const is_matmul = g.nodes[o].code == mine::opcode::matmul;
        double places = 1;
        for (auto const& index : rule(g, o).indices) places *= static_cast<double>(index.extent);
        operator_work made;
        made.forward = flops(is_matmul ? 2 * places : places);
        made.backward = 2 * made.forward;
        made.saved_operands = {0};
        if (operands(g, o).size() > 1) made.saved_operands.push_back(1);
        made.category = is_matmul ? operator_class::matmul : operator_class::elementwise;
        return made;
    }
};
static_assert(heddle::require_single_device_program<mine::graph>());

namespace mine {

/// Runs the kernels on parts: they take the sizes from the matrices.
struct kernels {
    using tensor = heddle::dense_tensor<double>;
    using tensors = std::span<tensor const* const>;

    [[nodiscard]] std::vector<tensor> forward(heddle::tensor_call<tensor> const& call, tensors x) const {
        std::vector<tensor> y{tensor(call.result_shape(0))};
        mine::forward(code_of(call), seen(x), seen(y[0]));
        return y;
    }
    [[nodiscard]] std::vector<std::optional<tensor>> backward(heddle::tensor_call<tensor> const& call, tensors x,
                                                              tensors, tensors of_y) const {
        std::vector<std::optional<tensor>> of_x;
        std::vector<output> written;
        for (auto const* operand : x) of_x.emplace_back(tensor(operand->dims));
        for (auto& operand : of_x) written.push_back(seen(*operand));
        mine::backward(code_of(call), seen(x), seen(*of_y[0]), written);
        return of_x;
    }

private:
    static opcode code_of(heddle::kernel_call const& call) {
        return call.kind == "matmul" ? opcode::matmul : call.kind == "relu" ? opcode::relu : opcode::squared_error;
    }
    static long rows(tensor const& t) { return t.dims.empty() ? 1 : t.dims[0]; }
    static long columns(tensor const& t) { return t.dims.empty() ? 1 : t.dims[1]; }
    static input seen(tensor const& t) { return {t.data.data(), rows(t), columns(t)}; }
    static output seen(tensor& t) { return {t.data.data(), rows(t), columns(t)}; }
    static std::vector<input> seen(tensors all) {
        std::vector<input> result;
        for (auto const* t : all) result.push_back(seen(*t));
        return result;
    }
};
static_assert(heddle::kernel_backend<kernels, double>);

/// Returns values as dense tensors.
inline heddle::source_values<double> dense(graph const& g, values const& of) {
    heddle::source_values<double> result;
    for (auto const& [t, data] : of)
        result.emplace(t, kernels::tensor({g.tensors[t].rows, g.tensors[t].columns}, data));
    return result;
}

} // namespace mine
