// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of attention.
#pragma once

#include <heddle/execute/detail/norm_kernels.hpp>

#include <limits>
#include <span>

namespace heddle::detail {

/// One head of one batch row: softmax(scale q k^T + bias) with dropout, times v. Attention to nothing gives zeros.
template <class Scalar>
struct attention_head {
    matrix<Scalar> q, k, v;
    Scalar scale = 1;
    /// Is added to the scores; if it has no elements, nothing is.
    matrix<Scalar> bias{};
    /// The factors by which dropout multiplies the weights; if it has no elements, they are one.
    matrix<Scalar> kept{};
    matrix<Scalar> softmax{}, weights{};

    matrix<Scalar> forward() {
        softmax = scale * q * k.transpose();
        if (bias.size() > 0) softmax += bias;
        for (Eigen::Index r = 0; r < softmax.rows() && softmax.cols() > 0; ++r) {
            Scalar const largest = softmax.row(r).maxCoeff();
            if (largest == -std::numeric_limits<Scalar>::infinity()) {
                softmax.row(r).setZero();
                continue;
            }
            softmax.row(r) = (softmax.row(r).array() - largest).exp();
            softmax.row(r) /= softmax.row(r).sum();
        }
        weights = softmax;
        if (kept.size() > 0) weights.array() *= kept.array();
        return weights * v;
    }
    /// Replaces q, k, v and the scores by their cotangents, given that of the result. *Precondition:* `forward` has
    /// run.
    void backward(matrix<Scalar> const& result) {
        matrix<Scalar> scores = result * v.transpose();
        if (kept.size() > 0) scores.array() *= kept.array();
        for (Eigen::Index r = 0; r < scores.rows(); ++r) {
            Scalar const sum = scores.row(r).dot(softmax.row(r));
            scores.row(r) = (softmax.row(r).array() * (scores.row(r).array() - sum)).matrix();
        }
        v = weights.transpose() * result;
        matrix<Scalar> const dq = scale * scores * k;
        k = (scale * scores.transpose() * q).eval();
        q = dq;
        bias = scores;
    }
};

/// The factors of dropout for rows of a head's scores, given by their numbers among those of all heads.
template <class Scalar>
matrix<Scalar> dropout_matrix(random_key key, std::span<extent const> rows, extent columns, double p) {
    if (p == 0) return {};
    matrix<Scalar> kept(static_cast<extent>(rows.size()), columns);
    for (extent r = 0; r < kept.rows(); ++r)
        for (extent c = 0; c < columns; ++c)
            kept(r, c) = static_cast<Scalar>(
                dropout_factor(key, static_cast<std::uint64_t>(rows[static_cast<std::size_t>(r)] * columns + c), p));
    return kept;
}

/// Attention over the last two dimensions, for each place of the indices of the others. An operand that lacks one of
/// these indices broadcasts.
template <class Scalar>
class dot_product {
public:
    dot_product(kernel_call const& call, tensor_view<Scalar> x)
        : call_(call), x_(x), result_(call.result_shape(0)), mask_(call.operand("mask")) {
        auto const& rule = *call.rule;
        auto const whole = call.whole_shape(rule.results[0]);
        rows_ = whole_numbers(tensor_shape(whole.begin(), whole.end() - 1),
                              held_part(call.results[0].begin(), call.results[0].end() - 1));
        whole_rows_ = whole.end()[-2];
        auto const extents = held_extents(call);
        std::vector<std::size_t> leading;
        for (auto d = rule.results[0].begin(); d != rule.results[0].end() - 2; ++d)
            for (auto i : *d) {
                leading.push_back(i);
                leading_.push_back(extents[i]);
            }
        auto const strides_of = [&](indexed_access const& access, tensor_shape const& dims) {
            std::vector<extent> of_index(extents.size());
            extent stride = dims[dims.size() - 2] * dims.back();
            for (auto d = access.rbegin() + 2; d != access.rend(); ++d)
                for (auto i = d->rbegin(); i != d->rend(); ++i) {
                    of_index[*i] = stride;
                    stride *= extents[*i];
                }
            std::vector<extent> strides;
            for (auto i : leading) strides.push_back(of_index[i]);
            return strides;
        };
        for (std::size_t k = 0; k < 3; ++k) strides_[k] = strides_of(rule.operands[k], x[k]->dims);
        strides_[3] = strides_of(rule.results[0], result_);
        strides_[4] = mask_ ? strides_of(rule.operands[*mask_], x[*mask_]->dims) : std::vector<extent>(leading.size());
    }

    [[nodiscard]] dense_tensor<Scalar> forward() const {
        dense_tensor<Scalar> y(result_);
        for_each([&](auto head, auto const& at) { map(y, at[3]) = head.forward(); });
        return y;
    }
    [[nodiscard]] gradients<Scalar> backward(dense_tensor<Scalar> const& cotangent) const {
        gradients<Scalar> g;
        for (auto const* t : x_) g.push_back(dense_tensor<Scalar>(t->dims));
        for_each([&](auto head, auto const& at) {
            static_cast<void>(head.forward());
            head.backward(map(cotangent, at[3]));
            map(*g[0], at[0]) += head.q;
            map(*g[1], at[1]) += head.k;
            map(*g[2], at[2]) += head.v;
            if (mask_ && !call_.flag("mask_is_boolean"))
                for_each_masked(at[4], [&](extent n, extent s, extent t) { (*g[*mask_])[n] += head.bias(s, t); });
        });
        if (mask_ && call_.flag("mask_is_boolean")) g[*mask_].reset();
        return g;
    }

private:
    template <class Tensor>
    static auto map(Tensor& t, extent offset) {
        using plain = std::conditional_t<std::is_const_v<Tensor>, matrix<Scalar> const, matrix<Scalar>>;
        return Eigen::Map<plain>(t.data.data() + offset, t.dims[t.dims.size() - 2], t.dims.back());
    }
    /// Calls `visit(n, s, t)` where element `n` of the mask is added to score (s, t).
    template <class Visitor>
    void for_each_masked(extent offset, Visitor&& visit) const {
        tensor_shape const& dims = x_[*mask_]->dims;
        extent const rows = dims[dims.size() - 2], columns = dims.back();
        for (extent s = 0; s < result_[result_.size() - 2]; ++s)
            for (extent t = 0; t < x_[1]->dims[x_[1]->dims.size() - 2]; ++t)
                visit(offset + (rows == 1 ? 0 : s * columns) + (columns == 1 ? 0 : t), s, t);
    }
    template <class Visitor>
    void for_each(Visitor&& visit) const {
        constexpr Scalar never = -std::numeric_limits<Scalar>::infinity();
        std::span<extent const> rows = rows_;
        for_each_point<5>(leading_, strides_, [&](auto const& at) {
            attention_head<Scalar> head{map(*x_[0], at[0]), map(*x_[1], at[1]), map(*x_[2], at[2])};
            head.scale = static_cast<Scalar>(call_.number("scale", 1 / std::sqrt(static_cast<double>(head.q.cols()))));
            auto const own = rows.first(static_cast<std::size_t>(head.q.rows()));
            rows = rows.subspan(own.size());
            if (mask_ || call_.flag("is_causal")) head.bias = matrix<Scalar>::Zero(head.q.rows(), head.k.rows());
            if (call_.flag("is_causal"))
                for (Eigen::Index s = 0; s < head.bias.rows(); ++s)
                    for (extent t = own[static_cast<std::size_t>(s)] % whole_rows_ + 1; t < head.bias.cols(); ++t)
                        head.bias(s, t) = never;
            if (mask_) // of truth values, those that are set take part
                for_each_masked(at[4], [&](extent m, extent s, extent t) {
                    Scalar const value = (*x_[*mask_])[m];
                    head.bias(s, t) += !call_.flag("mask_is_boolean") ? value : value != 0 ? Scalar(0) : never;
                });
            head.kept = dropout_matrix<Scalar>(call_.random, own, head.k.rows(), call_.number("p", 0));
            visit(std::move(head), at);
        });
    }

    kernel_call const& call_;
    tensor_view<Scalar> x_;
    tensor_shape result_, leading_;
    std::optional<std::size_t> mask_;
    /// The number of each row of the result in the whole one, whose heads have `whole_rows_` each.
    std::vector<extent> rows_;
    extent whole_rows_ = 0;
    /// The strides of the three operands, the result and the mask.
    std::array<std::vector<extent>, 5> strides_;
};

template <class Scalar>
void add_attention_kernels(kernel_table<Scalar>& table) {
    table["scaled_dot_product_attention"] = {
        [](kernel_call const& call, tensor_view<Scalar> x) {
            return tensors<Scalar>{dot_product<Scalar>(call, x).forward()};
        },
        [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
            return dot_product<Scalar>(call, x).backward(*g[0]);
        }};
}

} // namespace heddle::detail
