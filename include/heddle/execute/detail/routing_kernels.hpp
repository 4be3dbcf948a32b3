// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that route tokens to experts.
#pragma once

#include <heddle/execute/detail/norm_kernels.hpp>
#include <heddle/execute/detail/pointwise_kernels.hpp>

namespace heddle::detail {

/// Routes each token to the one or two experts of largest probability, first come first served.
///
/// If there are two, their weights are normalised to sum to one, and all second choices come after the first choices.
/// Every expert has `capacity` slots in each batch row; an expert drops a token that finds no slot. The combine mask
/// holds the weight in the token's slot, and the dispatch mask a one. The choice has no derivative: gradients flow only
/// through the combine weights.
template <class Scalar>
class routing {
public:
    struct choice {
        extent row, expert, slot;
        int rank;
    };

    routing(dense_tensor<Scalar> const& tokens, dense_tensor<Scalar> const& gate, int choices,
            tensor_shape const& masks)
        : experts_(gate.dims[1]), probabilities(tensor_shape{tokens.dims[0] * tokens.dims[1], gate.dims[1]}),
          choices_(choices), masks_(masks) {
        extent const rows = probabilities.dims[0], width = gate.dims[0], length = tokens.dims[1];
        if (rows == 0) return;
        matrix_map<Scalar>(probabilities.data.data(), rows, experts_).noalias() =
            const_matrix_map<Scalar>(tokens.data.data(), rows, width) *
            const_matrix_map<Scalar>(gate.data.data(), width, experts_);
        axis_view const lines(probabilities.dims, 1);
        probabilities = softmax_of({}, std::move(probabilities), lines, false);
        for (extent b = 0; b < tokens.dims[0]; ++b) {
            std::vector<extent> used(static_cast<std::size_t>(experts_));
            for (int rank = 0; rank < std::min<extent>(choices_, experts_); ++rank)
                for (extent row = b * length; row < (b + 1) * length; ++row) {
                    extent const expert = best(row, rank == 0 ? -1 : best(row, -1));
                    if (extent const slot = used[static_cast<std::size_t>(expert)]++; slot < masks[3])
                        taken.push_back({row, expert, slot, rank});
                }
        }
    }

    [[nodiscard]] extent place(choice const& c) const { return (c.row * experts_ + c.expert) * masks_[3] + c.slot; }
    [[nodiscard]] Scalar weight(choice const& c) const {
        return p(c.row, c.expert) / (choices_ == 1 ? Scalar(1) : sum(c.row));
    }
    /// Adds the cotangents of probabilities, given that of a choice's weight.
    void backward(choice const& c, Scalar g, dense_tensor<Scalar>& to) const {
        to[c.row * experts_ + c.expert] += choices_ == 1 ? g : g / sum(c.row);
        if (choices_ == 1) return;
        extent const first = best(c.row, -1), second = best(c.row, first);
        Scalar const shared = -g * p(c.row, c.expert) / (sum(c.row) * sum(c.row));
        to[c.row * experts_ + first] += shared;
        if (experts_ > 1) to[c.row * experts_ + second] += shared;
    }

private:
    [[nodiscard]] Scalar p(extent row, extent expert) const { return probabilities[row * experts_ + expert]; }
    /// Returns the likeliest expert other than `but`, the first of equal ones.
    [[nodiscard]] extent best(extent row, extent but) const {
        extent found = -1;
        for (extent e = 0; e < experts_; ++e)
            if (e != but && (found < 0 || p(row, e) > p(row, found))) found = e;
        return found;
    }
    [[nodiscard]] Scalar sum(extent row) const {
        extent const first = best(row, -1);
        return p(row, first) + (experts_ > 1 ? p(row, best(row, first)) : Scalar(0));
    }

    extent experts_;

public:
    dense_tensor<Scalar> probabilities;
    std::vector<choice> taken;

private:
    int choices_;
    tensor_shape masks_;
};

/// The results are the dispatch and the combine mask.
template <class Scalar>
operator_kernel<Scalar> routing_kernel(int choices) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> dispatch(call.result_shape(0)), combine(call.result_shape(1));
                routing<Scalar> const r(*x[0], *x[1], choices, dispatch.dims);
                for (auto const& c : r.taken) {
                    dispatch[r.place(c)] = 1;
                    combine[r.place(c)] = r.weight(c);
                }
                return {std::move(dispatch), std::move(combine)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                routing<Scalar> const r(*x[0], *x[1], choices, call.result_shape(0));
                dense_tensor<Scalar> scores(r.probabilities.dims);
                for (auto const& c : r.taken) r.backward(c, (*g[1])[r.place(c)], scores);
                axis_view const lines(scores.dims, 1);
                scores = softmax_adjoint({}, r.probabilities, std::move(scores), lines, false);
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                extent const rows = scores.dims[0], experts = scores.dims[1], width = x[1]->dims[0];
                if (rows == 0) return result;
                const_matrix_map<Scalar> const ds(scores.data.data(), rows, experts);
                matrix_map<Scalar>(result[0]->data.data(), rows, width).noalias() =
                    ds * const_matrix_map<Scalar>(x[1]->data.data(), width, experts).transpose();
                matrix_map<Scalar>(result[1]->data.data(), width, experts).noalias() =
                    const_matrix_map<Scalar>(x[0]->data.data(), rows, width).transpose() * ds;
                return result;
            }};
}

/// How many elements there are in each part of a range that is held; its end belongs to the last.
template <class Scalar>
operator_kernel<Scalar> histogram_kernel() {
    return piecewise_constant<Scalar>([](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
        dense_tensor<Scalar> y(call.result_shape(0));
        extent const bins = call.whole_shape(call.rule->results[0])[0];
        double const low = call.number("min", 0), high = call.number("max", 1);
        auto const& held = call.results[0][0];
        for (auto const e : x[0]->data) {
            if (!(e >= low && e <= high)) continue;
            auto const bin =
                std::min<extent>(static_cast<extent>((e - low) / (high - low) * static_cast<double>(bins)), bins - 1);
            if (!held) y[bin] += 1;
            else if (auto const found = algorithm::lower_bound(*held, bin); found != held->end() && *found == bin)
                y[found - held->begin()] += 1;
        }
        return {std::move(y)};
    });
}

/// Runs of rows, each times a matrix of its own; the third operand holds where the runs end. A part of the matrices
/// leaves the rows of the others zero.
template <class Scalar>
operator_kernel<Scalar> grouped_product_kernel() {
    /// Calls `visit(first row, row count, matrix)` for each run, as far as its rows and its matrix are held.
    auto const for_each_run = [](kernel_call const& call, tensor_view<Scalar> x, auto const& visit) {
        auto const &rows = call.operands[0][0], &matrices = call.operands[1][0];
        extent const count = x[0]->dims[0];
        auto const number = [&](extent row) { return rows ? (*rows)[static_cast<std::size_t>(row)] : row; };
        extent first = 0;
        extent const all = std::min(x[2]->elements(), call.whole_shape(call.rule->operands[1])[0]);
        for (extent m = 0; m < all; ++m) {
            auto const end = static_cast<extent>((*x[2])[m]);
            extent after = first;
            while (after < count && number(after) < end) ++after;
            auto place = m;
            if (matrices) {
                auto const found = algorithm::lower_bound(*matrices, m);
                place = found != matrices->end() && *found == m ? found - matrices->begin() : -1;
            }
            if (place >= 0 && after > first) visit(first, after - first, place);
            first = std::max(first, after);
        }
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const k = x[0]->dims[1], m = x[1]->dims[2];
                if (k == 0 || m == 0) return {std::move(y)};
                for_each_run(call, x, [&](extent first, extent count, extent matrix) {
                    matrix_map<Scalar>(y.data.data() + first * m, count, m).noalias() =
                        const_matrix_map<Scalar>(x[0]->data.data() + first * k, count, k) *
                        const_matrix_map<Scalar>(x[1]->data.data() + matrix * k * m, k, m);
                });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(3);
                auto& dx = result[0].emplace(x[0]->dims);
                auto& dw = result[1].emplace(x[1]->dims);
                extent const k = x[0]->dims[1], m = x[1]->dims[2];
                if (k == 0 || m == 0) return result;
                for_each_run(call, x, [&](extent first, extent count, extent matrix) {
                    const_matrix_map<Scalar> const rows(x[0]->data.data() + first * k, count, k),
                        weight(x[1]->data.data() + matrix * k * m, k, m), dy(g[0]->data.data() + first * m, count, m);
                    matrix_map<Scalar>(dx.data.data() + first * k, count, k).noalias() = dy * weight.transpose();
                    matrix_map<Scalar>(dw.data.data() + matrix * k * m, k, m).noalias() = rows.transpose() * dy;
                });
                return result;
            }};
}

template <class Scalar>
void add_routing_kernels(kernel_table<Scalar>& table) {
    table["top_2_gating"] = routing_kernel<Scalar>(2);
    table["switch_gating"] = routing_kernel<Scalar>(1);
    table["histc"] = histogram_kernel<Scalar>();
    table["grouped_mm"] = grouped_product_kernel<Scalar>();
}

} // namespace heddle::detail
