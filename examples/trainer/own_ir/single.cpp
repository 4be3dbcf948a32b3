// SPDX-License-Identifier: BSL-1.0
// Trains a program in a representation of one's own on one device.
#include "graph.hpp"

#include <cstdio>
#include <utility>

namespace {

/// Returns the loss and the gradients of the parameters.
std::pair<double, mine::values> differentiate(mine::graph const& g, mine::values tensors) {
    mine::values cotangents;
    auto const at = [&](auto& of, unsigned t) {
        return mine::matrix{of.at(t).data(), g.tensors[t].rows, g.tensors[t].columns};
    };
    auto const operands_of = [&](mine::node const& n) {
        std::vector<mine::input> x;
        for (auto t : n.operands) x.push_back(at(std::as_const(tensors), t));
        return x;
    };
    for (unsigned t = 0; t < g.tensors.size(); ++t)
        for (auto* all : {&tensors, &cotangents})
            (*all)[t].resize(static_cast<std::size_t>(g.tensors[t].rows * g.tensors[t].columns));
    for (auto const& n : g.nodes) forward(n.code, operands_of(n), at(tensors, n.result));
    auto const loss = g.nodes.back().result;
    cotangents[loss] = {1};
    for (auto n = g.nodes.rbegin(); n != g.nodes.rend(); ++n) { // every tensor has one use
        std::vector<mine::output> of_operands;
        for (auto t : n->operands) of_operands.push_back(at(cotangents, t));
        backward(n->code, operands_of(*n), at(std::as_const(cotangents), n->result), of_operands);
    }
    mine::values gradients;
    for (unsigned t = 0; t < g.tensors.size(); ++t)
        if (g.tensors[t].is_parameter) gradients[t] = cotangents[t];
    return {tensors[loss][0], gradients};
}

} // namespace

int main() {
    auto const g = mine::perceptron(96, 32, 64, 8);
    auto parameters = mine::initial_parameters(g);

    for (int step = 1; step <= 10; ++step) {
        auto tensors = mine::inputs_of_step(g, step);
        tensors.insert(parameters.begin(), parameters.end());
        auto const [loss, gradients] = differentiate(g, std::move(tensors));
        for (auto const& [t, gradient] : gradients)
            for (std::size_t n = 0; n < gradient.size(); ++n) parameters.at(t)[n] -= 0.005 * gradient[n];
        std::printf("step %d, loss %.12f\n", step, loss);
    }
}
