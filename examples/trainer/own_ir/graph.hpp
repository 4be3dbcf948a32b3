// SPDX-License-Identifier: BSL-1.0
// Somebody's own representation of programs with its own kernels. It knows nothing of Heddle.
#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace mine {

/// A matrix somewhere in memory, row-major; a number is one of a row and a column.
template <class Number>
struct matrix {
    Number* data;
    long rows, columns;
    Number& operator()(long row, long column) const { return data[row * columns + column]; }
};
using input = matrix<double const>;
using output = matrix<double>;

enum class opcode { matmul, relu, squared_error };

struct tensor {
    std::string name;
    long rows, columns;
    bool is_parameter = false, is_computed = false;
};
struct node {
    opcode code;
    std::vector<unsigned> operands;
    unsigned result;
};

/// Nodes are in the order in which they run; the last one makes the loss.
struct graph {
    std::vector<tensor> tensors;
    std::vector<node> nodes;

    unsigned add(tensor t) {
        tensors.push_back(std::move(t));
        return static_cast<unsigned>(tensors.size()) - 1;
    }
    unsigned add(opcode code, std::vector<unsigned> operands, long rows, long columns) {
        auto const result = add(tensor{"value" + std::to_string(nodes.size()), rows, columns, false, true});
        nodes.push_back({code, std::move(operands), result});
        return result;
    }
};

/// A perceptron of one hidden layer with its loss.
inline graph perceptron(long batch, long inputs, long hidden, long outputs) {
    graph g;
    auto const x = g.add({"x", batch, inputs}), y = g.add({"y", batch, outputs});
    auto const first = g.add({"first", inputs, hidden, true}), second = g.add({"second", hidden, outputs, true});
    auto const active = g.add(opcode::relu, {g.add(opcode::matmul, {x, first}, batch, hidden)}, batch, hidden);
    g.add(opcode::squared_error, {g.add(opcode::matmul, {active, second}, batch, outputs), y}, 1, 1);
    return g;
}

// ---- kernels: they read and write matrices of any size

inline void forward(opcode code, std::vector<input> const& x, output y) {
    switch (code) {
    case opcode::matmul:
        for (long i = 0; i < y.rows; ++i)
            for (long j = 0; j < y.columns; ++j) {
                y(i, j) = 0;
                for (long k = 0; k < x[0].columns; ++k) y(i, j) += x[0](i, k) * x[1](k, j);
            }
        break;
    case opcode::relu:
        for (long n = 0; n < y.rows * y.columns; ++n) y.data[n] = x[0].data[n] > 0 ? x[0].data[n] : 0;
        break;
    case opcode::squared_error:
        *y.data = 0;
        for (long n = 0; n < x[0].rows * x[0].columns; ++n) *y.data += std::pow(x[0].data[n] - x[1].data[n], 2);
        break;
    }
}

/// Writes the derivatives of the loss by the operands, of that by the result.
inline void backward(opcode code, std::vector<input> const& x, input of_y, std::vector<output> const& of_x) {
    switch (code) {
    case opcode::matmul:
        for (long i = 0; i < of_x[0].rows; ++i)
            for (long k = 0; k < of_x[0].columns; ++k) {
                of_x[0](i, k) = 0;
                for (long j = 0; j < of_y.columns; ++j) of_x[0](i, k) += of_y(i, j) * x[1](k, j);
            }
        for (long k = 0; k < of_x[1].rows; ++k)
            for (long j = 0; j < of_x[1].columns; ++j) {
                of_x[1](k, j) = 0;
                for (long i = 0; i < of_y.rows; ++i) of_x[1](k, j) += x[0](i, k) * of_y(i, j);
            }
        break;
    case opcode::relu:
        for (long n = 0; n < of_y.rows * of_y.columns; ++n) of_x[0].data[n] = x[0].data[n] > 0 ? of_y.data[n] : 0;
        break;
    case opcode::squared_error:
        for (long n = 0; n < x[0].rows * x[0].columns; ++n) {
            of_x[0].data[n] = 2 * *of_y.data * (x[0].data[n] - x[1].data[n]);
            of_x[1].data[n] = -of_x[0].data[n];
        }
        break;
    }
}

// ---- values of tensors by number

using values = std::map<unsigned, std::vector<double>>;

/// What stands for parameters at first, or for the inputs of a step.
inline values made_up(graph const& g, bool parameters, int step) {
    values made;
    for (unsigned t = 0; t < g.tensors.size(); ++t) {
        auto const& tensor = g.tensors[t];
        if (tensor.is_computed || tensor.is_parameter != parameters) continue;
        auto& data = made[t];
        for (long n = 0; n < tensor.rows * tensor.columns; ++n)
            data.push_back(std::sin(static_cast<double>((n + 1) * (n + 3 * t + step % 2))) / 4);
    }
    return made;
}
inline values initial_parameters(graph const& g) { return made_up(g, true, 0); }
inline values inputs_of_step(graph const& g, int step) { return made_up(g, false, step); }

} // namespace mine
