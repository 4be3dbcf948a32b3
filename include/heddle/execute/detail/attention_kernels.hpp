// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of attention.
#pragma once

#include <heddle/execute/detail/norm_kernels.hpp>

#include <limits>

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
    /// Replaces q, k, v and the scores by their cotangents, given those of the result and of the weights, which may
    /// have no elements. *Precondition:* `forward` has run.
    void backward(matrix<Scalar> const& result, matrix<Scalar> const& to_weights) {
        matrix<Scalar> scores = result * v.transpose();
        if (to_weights.size() > 0) scores += to_weights;
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

template <class Scalar>
matrix<Scalar> dropout_matrix(random_key key, extent rows, extent columns, extent number, double p) {
    if (p == 0) return {};
    matrix<Scalar> kept(rows, columns);
    for (extent r = 0; r < rows; ++r)
        for (extent c = 0; c < columns; ++c)
            kept(r, c) = static_cast<Scalar>(
                dropout_factor(key, static_cast<std::uint64_t>((number * rows + r) * columns + c), p));
    return kept;
}

/// Multi-head attention with a packed input projection, on the heads and batch rows of a part.
template <class Scalar>
class multi_head {
public:
    multi_head(kernel_call const& call, tensor_view<Scalar> x) : call_(call), x_(x) {
        auto const& rule = *call.rule;
        auto const& packed = rule.operands[3][0]; // three, heads, head size
        if (packed.size() != 3) call.fail("its input projection is not packed by heads");
        auto const values = held_values(call);
        head_numbers_ = values[packed[1]];
        heads_ = static_cast<extent>(head_numbers_.size());
        all_heads_ = rule.indices[packed[1]].extent;
        width_ = rule.indices[packed[2]].extent;
        batch_numbers_ = whole_numbers({call.whole_shape(rule.operands[0])[1]}, {call.operands[0][1]});
        rows_ = x[0]->dims[0];
        columns_ = x[1]->dims[0];
        batch_ = x[0]->dims[1];
        in_ = x[0]->dims[2];
        out_weight_ = call.has("in_proj_bias") ? 5 : 4;
        out_ = x[out_weight_]->dims[0];
    }

    tensors<Scalar> forward() const {
        tensors<Scalar> results;
        for (std::size_t r = 0; r < call_.results.size(); ++r) results.emplace_back(call_.result_shape(r));
        auto const bias = call_.operand("out_proj_bias");
        for (extent b = 0; b < batch_; ++b) {
            auto y = row_of(results[0], b);
            if (bias) y.rowwise() += const_matrix_map<Scalar>(x_[*bias]->data.data(), 1, out_).row(0);
            for (extent h = 0; h < heads_; ++h) {
                auto head = make_head(b, h);
                matrix<Scalar> const context = head.forward();
                y += context * out_weight(*x_[out_weight_], h).transpose();
                if (results.size() > 1)
                    matrix_map<Scalar>(results[1].data.data() + b * rows_ * columns_, rows_, columns_) +=
                        head.weights / static_cast<Scalar>(all_heads_);
            }
        }
        return results;
    }

    gradients<Scalar> backward(tensor_view<Scalar> cotangents) const {
        gradients<Scalar> g(x_.size());
        for (std::size_t k = 0; k < x_.size(); ++k) g[k] = dense_tensor<Scalar>(x_[k]->dims);
        auto const in_bias = call_.operand("in_proj_bias"), out_bias = call_.operand("out_proj_bias");
        for (extent b = 0; b < batch_; ++b) {
            matrix<Scalar> const dy = row_of(*cotangents[0], b);
            if (out_bias) matrix_map<Scalar>(g[*out_bias]->data.data(), 1, out_) += dy.colwise().sum();
            matrix<Scalar> to_weights;
            if (cotangents.size() > 1)
                to_weights =
                    const_matrix_map<Scalar>(cotangents[1]->data.data() + b * rows_ * columns_, rows_, columns_) /
                    static_cast<Scalar>(all_heads_);
            for (extent h = 0; h < heads_; ++h) {
                auto head = make_head(b, h);
                matrix<Scalar> const context = head.forward();
                out_weight(*g[out_weight_], h) += dy.transpose() * context;
                head.backward(dy * out_weight(*x_[out_weight_], h), to_weights);
                std::array<matrix<Scalar> const*, 3> const parts{&head.q, &head.k, &head.v};
                for (std::size_t part = 0; part < 3; ++part) {
                    row_of(*g[part], b) += *parts[part] * projection(*x_[3], part, h);
                    projection(*g[3], part, h) += parts[part]->transpose() * matrix<Scalar>(row_of(*x_[part], b));
                    if (in_bias) bias_of(*g[*in_bias], part, h) += parts[part]->colwise().sum();
                }
                add_to_masks(g, head.bias, b, h);
            }
        }
        for (char const* mask : {"padding_mask", "mask"})
            if (auto const k = call_.operand(mask); k && call_.flag(std::string(mask) + "_is_boolean")) g[*k].reset();
        return g;
    }

private:
    /// Returns row `b` of a (sequence, batch, features) tensor.
    template <class Tensor>
    auto row_of(Tensor& t, extent b) const {
        using plain = std::conditional_t<std::is_const_v<Tensor>, matrix<Scalar> const, matrix<Scalar>>;
        extent const features = t.dims[2];
        return Eigen::Map<plain, 0, Eigen::OuterStride<>>(t.data.data() + b * features, t.dims[0], features,
                                                          Eigen::OuterStride<>(batch_ * features));
    }
    template <class Tensor>
    auto projection(Tensor& weight, std::size_t part, extent head) const {
        using plain = std::conditional_t<std::is_const_v<Tensor>, matrix<Scalar> const, matrix<Scalar>>;
        return Eigen::Map<plain>(weight.data.data() + (static_cast<extent>(part) * heads_ + head) * width_ * in_,
                                 width_, in_);
    }
    template <class Tensor>
    auto bias_of(Tensor& bias, std::size_t part, extent head) const {
        using plain = std::conditional_t<std::is_const_v<Tensor>, matrix<Scalar> const, matrix<Scalar>>;
        return Eigen::Map<plain>(bias.data.data() + (static_cast<extent>(part) * heads_ + head) * width_, 1, width_);
    }
    template <class Tensor>
    auto out_weight(Tensor& weight, extent head) const {
        using plain = std::conditional_t<std::is_const_v<Tensor>, matrix<Scalar> const, matrix<Scalar>>;
        return Eigen::Map<plain, 0, Eigen::OuterStride<>>(weight.data.data() + head * width_, out_, width_,
                                                          Eigen::OuterStride<>(heads_ * width_));
    }
    [[nodiscard]] extent mask_offset(extent k, extent b, extent h) const {
        return x_[static_cast<std::size_t>(k)]->dims.size() == 2 ? 0 : (b * heads_ + h) * rows_ * columns_;
    }

    [[nodiscard]] attention_head<Scalar> make_head(extent b, extent h) const {
        attention_head<Scalar> head;
        head.scale = 1 / std::sqrt(static_cast<Scalar>(width_));
        auto const in_bias = call_.operand("in_proj_bias");
        std::array<matrix<Scalar>*, 3> const parts{&head.q, &head.k, &head.v};
        for (std::size_t part = 0; part < 3; ++part) {
            *parts[part] = row_of(*x_[part], b) * projection(*x_[3], part, h).transpose();
            if (in_bias) parts[part]->rowwise() += bias_of(*x_[*in_bias], part, h).row(0);
        }
        auto const padding = call_.operand("padding_mask"), mask = call_.operand("mask");
        if (padding || mask) head.bias = matrix<Scalar>::Zero(rows_, columns_);
        auto const added = [](Scalar value, bool boolean) {
            return !boolean ? value : value != 0 ? -std::numeric_limits<Scalar>::infinity() : Scalar(0);
        };
        for (extent s = 0; s < rows_; ++s)
            for (extent t = 0; t < columns_; ++t) {
                if (padding)
                    head.bias(s, t) += added((*x_[*padding])[b * columns_ + t], call_.flag("padding_mask_is_boolean"));
                if (mask)
                    head.bias(s, t) +=
                        added((*x_[*mask])[mask_offset(static_cast<extent>(*mask), b, h) + s * columns_ + t],
                              call_.flag("mask_is_boolean"));
            }
        extent const number =
            batch_numbers_[static_cast<std::size_t>(b)] * all_heads_ + head_numbers_[static_cast<std::size_t>(h)];
        head.kept = dropout_matrix<Scalar>(call_.random, rows_, columns_, number, call_.number("p", 0));
        return head;
    }

    void add_to_masks(gradients<Scalar>& g, matrix<Scalar> const& scores, extent b, extent h) const {
        auto const padding = call_.operand("padding_mask"), mask = call_.operand("mask");
        for (extent s = 0; s < rows_; ++s)
            for (extent t = 0; t < columns_; ++t) {
                if (padding) (*g[*padding])[b * columns_ + t] += scores(s, t);
                if (mask) (*g[*mask])[mask_offset(static_cast<extent>(*mask), b, h) + s * columns_ + t] += scores(s, t);
            }
    }

    kernel_call const& call_;
    tensor_view<Scalar> x_;
    std::vector<extent> head_numbers_, batch_numbers_;
    extent heads_ = 0, all_heads_ = 0, width_ = 0, rows_ = 0, columns_ = 0, batch_ = 0, in_ = 0, out_ = 0;
    std::size_t out_weight_ = 4;
};

/// Attention over the last two dimensions, for each place of the indices of the others. An operand that lacks one of
/// these indices broadcasts.
template <class Scalar>
class dot_product {
public:
    dot_product(kernel_call const& call, tensor_view<Scalar> x)
        : call_(call), x_(x), result_(call.result_shape(0)), mask_(call.operand("mask")) {
        auto const& rule = *call.rule;
        auto const whole = call.whole_shape(rule.results[0]);
        numbers_ = whole_numbers(tensor_shape(whole.begin(), whole.end() - 2),
                                 held_part(call.results[0].begin(), call.results[0].end() - 2));
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
            head.backward(map(cotangent, at[3]), {});
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
        std::size_t n = 0;
        for_each_point<5>(leading_, strides_, [&](auto const& at) {
            attention_head<Scalar> head{map(*x_[0], at[0]), map(*x_[1], at[1]), map(*x_[2], at[2])};
            head.scale = static_cast<Scalar>(call_.number("scale", 1 / std::sqrt(static_cast<double>(head.q.cols()))));
            if (mask_ || call_.flag("is_causal")) head.bias = matrix<Scalar>::Zero(head.q.rows(), head.k.rows());
            if (call_.flag("is_causal"))
                for (Eigen::Index s = 0; s < head.bias.rows(); ++s)
                    for (Eigen::Index t = s + 1; t < head.bias.cols(); ++t) head.bias(s, t) = never;
            if (mask_) // of truth values, those that are set take part
                for_each_masked(at[4], [&](extent m, extent s, extent t) {
                    Scalar const value = (*x_[*mask_])[m];
                    head.bias(s, t) += !call_.flag("mask_is_boolean") ? value : value != 0 ? Scalar(0) : never;
                });
            head.kept =
                dropout_matrix<Scalar>(call_.random, head.q.rows(), head.k.rows(), numbers_[n++], call_.number("p", 0));
            visit(std::move(head), at);
        });
    }

    kernel_call const& call_;
    tensor_view<Scalar> x_;
    tensor_shape result_, leading_;
    std::optional<std::size_t> mask_;
    std::vector<extent> numbers_;
    /// The strides of the three operands, the result and the mask.
    std::array<std::vector<extent>, 5> strides_;
};

template <class Scalar>
void add_attention_kernels(kernel_table<Scalar>& table) {
    table["multi_head_attention_forward"] = {
        [](kernel_call const& call, tensor_view<Scalar> x) { return multi_head<Scalar>(call, x).forward(); },
        [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
            return multi_head<Scalar>(call, x).backward(g);
        }};
    table["scaled_dot_product_attention"] = {
        [](kernel_call const& call, tensor_view<Scalar> x) {
            return tensors<Scalar>{dot_product<Scalar>(call, x).forward()};
        },
        [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
            return dot_product<Scalar>(call, x).backward(*g[0]);
        }};
}

} // namespace heddle::detail
