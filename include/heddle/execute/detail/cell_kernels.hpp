// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of recurrent cells.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

namespace heddle::detail {

/// Computes the products of a cell: for each gate, the operand (batch, width) times the gate's rows of the weight
/// (gates hidden, width), plus the bias.
template <class Scalar>
class gate_products {
public:
    gate_products(dense_tensor<Scalar> const& x, dense_tensor<Scalar> const& weight, dense_tensor<Scalar> const* bias)
        : x_(x), weight_(weight), bias_(bias), batch_(x.dims[0]), width_(x.dims[1]), rows_(weight.dims[0]) {}

    [[nodiscard]] matrix<Scalar> forward() const {
        matrix<Scalar> y = const_matrix_map<Scalar>(x_.data.data(), batch_, width_) *
                           const_matrix_map<Scalar>(weight_.data.data(), rows_, width_).transpose();
        for (extent n = 0; bias_ && n < batch_; ++n) y.row(n) += const_matrix_map<Scalar>(bias_->data.data(), 1, rows_);
        return y;
    }
    void backward(matrix<Scalar> const& g, dense_tensor<Scalar>& dx, dense_tensor<Scalar>& dweight,
                  dense_tensor<Scalar>* dbias) const {
        matrix_map<Scalar>(dx.data.data(), batch_, width_).noalias() +=
            g * const_matrix_map<Scalar>(weight_.data.data(), rows_, width_);
        matrix_map<Scalar>(dweight.data.data(), rows_, width_).noalias() +=
            g.transpose() * const_matrix_map<Scalar>(x_.data.data(), batch_, width_);
        for (extent n = 0; dbias && n < batch_; ++n) matrix_map<Scalar>(dbias->data.data(), 1, rows_) += g.row(n);
    }

private:
    dense_tensor<Scalar> const &x_, &weight_;
    dense_tensor<Scalar> const* bias_;
    extent batch_, width_, rows_;
};

/// Computes one element of a cell from its gates' sums from the input and from the state, and from the state's
/// elements; backward, from the cotangents of the results.
///
/// Operands are the input, the state, then the states that enter element by element (`extra` of them), two weights, and
/// two biases or none. `forward(a, b, s, y)` and `backward(a, b, s, g, da, db, ds)` get the element's numbers.
template <class Scalar, class Forward, class Backward>
operator_kernel<Scalar> cell_kernel(std::size_t gates, std::size_t extra, std::size_t results, Forward forward,
                                    Backward backward) {
    struct layout {
        std::size_t weight, gates, extra;
        bool biased;
        explicit layout(tensor_view<Scalar> x, std::size_t g, std::size_t e)
            : weight(2 + e), gates(g), extra(e), biased(x.size() > 4 + e) {}
        [[nodiscard]] gate_products<Scalar> products(tensor_view<Scalar> x, std::size_t k) const {
            return {*x[k], *x[weight + k], biased ? x[weight + 2 + k] : nullptr};
        }
    };
    using numbers = std::vector<Scalar>;
    auto const visit = [=](layout const& l, tensor_view<Scalar> x, auto const& element) {
        auto const a = l.products(x, 0).forward(), b = l.products(x, 1).forward();
        extent const hidden = a.cols() / static_cast<extent>(gates);
        for (extent n = 0; n < a.rows(); ++n)
            for (extent h = 0; h < hidden; ++h) {
                numbers from_input, from_state, state;
                for (extent q = 0; q < static_cast<extent>(gates); ++q) {
                    from_input.push_back(a(n, q * hidden + h));
                    from_state.push_back(b(n, q * hidden + h));
                }
                for (std::size_t e = 0; e < extra; ++e) state.push_back((*x[2 + e])[n * hidden + h]);
                element(n, h, hidden, from_input, from_state, state);
            }
    };
    return {[=](kernel_call const&, tensor_view<Scalar> x) {
                tensors<Scalar> y(
                    results, dense_tensor<Scalar>({x[0]->dims[0], x[2 + extra]->dims[0] / static_cast<extent>(gates)}));
                visit(layout(x, gates, extra), x,
                      [&](extent n, extent h, extent hidden, numbers const& a, numbers const& b, numbers const& s) {
                          numbers made(results);
                          forward(a, b, s, made);
                          for (std::size_t r = 0; r < results; ++r) y[r][n * hidden + h] = made[r];
                      });
                return y;
            },
            [=](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                layout const l(x, gates, extra);
                gradients<Scalar> result;
                for (auto const* t : x) result.push_back(dense_tensor<Scalar>(t->dims));
                matrix<Scalar> da = matrix<Scalar>::Zero(x[0]->dims[0], x[l.weight]->dims[0]), db = da;
                visit(l, x,
                      [&](extent n, extent h, extent hidden, numbers const& a, numbers const& b, numbers const& s) {
                          numbers cotangents, to_input(gates), to_state(gates), to_extra(extra);
                          for (std::size_t r = 0; r < results; ++r) cotangents.push_back((*g[r])[n * hidden + h]);
                          backward(a, b, s, cotangents, to_input, to_state, to_extra);
                          for (std::size_t q = 0; q < gates; ++q) {
                              da(n, static_cast<extent>(q) * hidden + h) = to_input[q];
                              db(n, static_cast<extent>(q) * hidden + h) = to_state[q];
                          }
                          for (std::size_t e = 0; e < extra; ++e) (*result[2 + e])[n * hidden + h] = to_extra[e];
                      });
                auto const bias = [&](std::size_t k) { return l.biased ? &*result[l.weight + 2 + k] : nullptr; };
                l.products(x, 0).backward(da, *result[0], *result[l.weight], bias(0));
                l.products(x, 1).backward(db, *result[1], *result[l.weight + 1], bias(1));
                return result;
            }};
}

template <class Scalar>
void add_cell_kernels(kernel_table<Scalar>& table) {
    using numbers = std::vector<Scalar>;
    auto const sigmoid = [](Scalar x) { return 1 / (1 + std::exp(-x)); };
    table["rnn_tanh_cell"] = cell_kernel<Scalar>(
        1, 0, 1, [](numbers const& a, numbers const& b, numbers const&, numbers& y) { y[0] = std::tanh(a[0] + b[0]); },
        [](numbers const& a, numbers const& b, numbers const&, numbers const& g, numbers& da, numbers& db, numbers&) {
            Scalar const t = std::tanh(a[0] + b[0]);
            da[0] = db[0] = g[0] * (1 - t * t);
        });
    table["rnn_relu_cell"] = cell_kernel<Scalar>(
        1, 0, 1,
        [](numbers const& a, numbers const& b, numbers const&, numbers& y) { y[0] = std::max(a[0] + b[0], Scalar(0)); },
        [](numbers const& a, numbers const& b, numbers const&, numbers const& g, numbers& da, numbers& db, numbers&) {
            da[0] = db[0] = a[0] + b[0] > 0 ? g[0] : Scalar(0);
        });
    // The gates are input, forget, cell and output; the other state is the cell's.
    table["lstm_cell"] = cell_kernel<Scalar>(
        4, 1, 2,
        [=](numbers const& a, numbers const& b, numbers const& c, numbers& y) {
            y[1] = sigmoid(a[1] + b[1]) * c[0] + sigmoid(a[0] + b[0]) * std::tanh(a[2] + b[2]);
            y[0] = sigmoid(a[3] + b[3]) * std::tanh(y[1]);
        },
        [=](numbers const& a, numbers const& b, numbers const& c, numbers const& g, numbers& da, numbers& db,
            numbers& dc) {
            Scalar const i = sigmoid(a[0] + b[0]), f = sigmoid(a[1] + b[1]), u = std::tanh(a[2] + b[2]),
                         o = sigmoid(a[3] + b[3]);
            Scalar const t = std::tanh(f * c[0] + i * u), to_cell = g[1] + g[0] * o * (1 - t * t);
            da = {to_cell * u * i * (1 - i), to_cell * c[0] * f * (1 - f), to_cell * i * (1 - u * u),
                  g[0] * t * o * (1 - o)};
            db = da;
            dc[0] = to_cell * f;
        });
    // The gates are reset, update and new; the other state is the same state, element by element.
    table["gru_cell"] = cell_kernel<Scalar>(
        3, 1, 1,
        [=](numbers const& a, numbers const& b, numbers const& h, numbers& y) {
            Scalar const r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]), n = std::tanh(a[2] + r * b[2]);
            y[0] = (1 - z) * n + z * h[0];
        },
        [=](numbers const& a, numbers const& b, numbers const& h, numbers const& g, numbers& da, numbers& db,
            numbers& dh) {
            Scalar const r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]), n = std::tanh(a[2] + r * b[2]);
            Scalar const to_new = g[0] * (1 - z) * (1 - n * n), to_update = g[0] * (h[0] - n) * z * (1 - z),
                         to_reset = to_new * b[2] * r * (1 - r);
            da = {to_reset, to_update, to_new};
            db = {to_reset, to_update, to_new * r};
            dh[0] = g[0] * z;
        });
}

} // namespace heddle::detail
