// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that look up or choose: embedding, classification losses, routing.
#pragma once

#include <heddle/execute/detail/pointwise_kernels.hpp>

namespace heddle::detail {

/// Calls `visit(id number, row)` for every id whose row of the table this rank holds.
template <class Scalar, class Visitor>
void for_each_row(kernel_call const& call, tensor_view<Scalar> x, Visitor&& visit) {
    auto const& rows = call.operands[1][0];
    extent const all = call.whole_shape(call.rule->operands[1])[0];
    for (extent n = 0; n < x[0]->elements(); ++n) {
        auto const id = static_cast<extent>((*x[0])[n]);
        if (id < 0 || id >= all) call.fail("looks up row " + std::to_string(id) + " of " + std::to_string(all));
        if (!rows) visit(n, id, id);
        else if (auto const found = std::ranges::lower_bound(*rows, id); found != rows->end() && *found == id) visit(n, id, found - rows->begin());
    }
}

/// Ids outside a part of the table give zeros: a summand of the result. The row `padding_idx` has no gradient.
template <class Scalar>
operator_kernel<Scalar> embedding_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const width = x[1]->dims[1];
                for_each_row(call, x, [&](extent n, extent, extent row) { std::copy_n(x[1]->data.begin() + row * width, width, y.data.begin() + n * width); });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result(2);
                result[1] = dense_tensor<Scalar>(x[1]->dims);
                extent const width = x[1]->dims[1], padding = static_cast<extent>(call.number("padding_idx", -1));
                for_each_row(call, x, [&](extent n, extent id, extent row) {
                    for (extent w = 0; id != padding && w < width; ++w) (*result[1])[row * width + w] += (*g[0])[n * width + w];
                });
                return result;
            }};
}

/// The loss of each sample is minus the sum of its log-probabilities times `shares`; a mean divides by `divisor`.
///
/// Samples are numbered by the scores' dimensions without the classes; each is a line. A mean over labels needs the
/// whole target, whatever part of the scores a rank holds, so labels are found by their place in the whole. Of the classes a rank
/// may hold some: its summand of the loss is theirs.
template <class Scalar>
class classification {
public:
    classification(kernel_call const& call, tensor_view<Scalar> x)
        : call_(call), x_(x), axis_(x[0]->dims.size() > 1 ? 1 : 0), view(x[0]->dims, axis_), shares(x[0]->dims),
          share_sums(static_cast<std::size_t>(view.lines())), smoothing_(static_cast<Scalar>(call.number("label_smoothing", 0))) {
        auto const weight = call.operand("weight");
        weight_ = weight ? x[*weight] : nullptr;
        has_labels = x[1]->dims.size() < x[0]->dims.size();
        if (has_labels) share_labels();
        else share_probabilities();
    }

    [[nodiscard]] bool is_mean() const { return call_.flag("mean", true); }
    /// The factor that the loss of sample `n` enters the result with, given the result's cotangent.
    [[nodiscard]] Scalar weight_of(dense_tensor<Scalar> const& cotangent, extent n) const {
        return is_mean() ? cotangent[0] / divisor : cotangent.dims.empty() ? cotangent[0] : cotangent[n];
    }
    [[nodiscard]] Scalar smoothing() const { return smoothing_; }

private:
    kernel_call const& call_;
    tensor_view<Scalar> x_;
    std::size_t axis_;

public:
    axis_view view;
    dense_tensor<Scalar> shares;
    /// Of a sample's shares, over all classes.
    std::vector<Scalar> share_sums;
    Scalar divisor = 1;
    bool has_labels = true;

private:
    [[nodiscard]] Scalar class_weight(extent label) const { return weight_ ? (*weight_)[label] : Scalar(1); }
    [[nodiscard]] bool counts(extent label) const { return !call_.has("ignore_index") || label != static_cast<extent>(call_.number("ignore_index", 0)); }

    template <class Item>
    static std::vector<Item> without(std::vector<Item> list, std::size_t place) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(place));
        return list;
    }

    void share_labels() {
        auto const& target = *x_[1];
        held_part const held = without(call_.operands[0], axis_);
        shape const whole = without(call_.whole_shape(call_.rule->operands[0]), axis_);
        bool const target_is_cut = std::ranges::any_of(call_.operands[1], [](auto const& p) { return p.has_value(); });
        auto const numbers = whole_numbers(whole, held);
        auto const& held_classes = call_.operands[0][axis_];
        extent const classes = call_.whole_shape(call_.rule->operands[0])[axis_];
        Scalar const smooth = smoothing_ / static_cast<Scalar>(classes);
        Scalar all_weights = 0;
        for (extent c = 0; c < classes; ++c) all_weights += class_weight(c);
        view.for_each_line([&](extent first, extent n) {
            auto const label = static_cast<extent>(target[target_is_cut ? n : numbers[static_cast<std::size_t>(n)]]);
            if (!counts(label)) return;
            if (label < 0 || label >= classes) call_.fail("has label " + std::to_string(label) + " of " + std::to_string(classes) + " classes");
            share_sums[static_cast<std::size_t>(n)] = smooth * all_weights + (1 - smoothing_) * class_weight(label);
            for (extent place = 0; place < view.size; ++place) {
                extent const c = held_classes ? (*held_classes)[static_cast<std::size_t>(place)] : place;
                shares[first + place * view.inner] = smooth * class_weight(c) + (c == label ? (1 - smoothing_) * class_weight(c) : Scalar(0));
            }
        });
        if (!is_mean()) return;
        bool const all_count = !call_.has("ignore_index") && !weight_;
        if (target_is_cut && !all_count) call_.fail("is a mean over targets that are cut");
        divisor = all_count ? static_cast<Scalar>(count_elements(whole)) : Scalar(0);
        for (extent n = 0; !all_count && n < target.elements(); ++n)
            if (auto const label = static_cast<extent>(target[n]); counts(label)) divisor += class_weight(label);
    }

    void share_probabilities() {
        shares = *x_[1];
        for (auto& s : shares.data) s = s * (1 - smoothing_) + smoothing_ / static_cast<Scalar>(view.size);
        view.for_each_line([&](extent first, extent n) {
            for (extent c = 0; c < view.size; ++c) share_sums[static_cast<std::size_t>(n)] += shares[first + c * view.inner];
        });
        shape const whole = call_.whole_shape(call_.rule->operands[0]);
        divisor = static_cast<Scalar>(count_elements(whole) / whole[axis_]);
    }

    Scalar smoothing_;
    dense_tensor<Scalar> const* weight_ = nullptr;
};

template <class Scalar>
operator_kernel<Scalar> classification_kernel(bool of_scores) {
    auto const logarithms = [=](kernel_call const& call, tensor_view<Scalar> x, axis_view const& view) { return of_scores ? softmax_of(call, *x[0], view, true) : *x[0]; };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                classification<Scalar> const c(call, x);
                auto const logs = logarithms(call, x, c.view);
                dense_tensor<Scalar> y(call.result_shape(0));
                c.view.for_each_line([&](extent first, extent sample) {
                    Scalar loss = 0;
                    for (extent k = 0; k < c.view.size; ++k) {
                        extent const n = first + k * c.view.inner;
                        if (c.shares[n] != 0) loss -= c.shares[n] * logs[n];
                    }
                    y[y.dims.empty() ? 0 : sample] += loss;
                });
                if (c.is_mean()) y[0] /= c.divisor;
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                classification<Scalar> const c(call, x);
                auto const logs = logarithms(call, x, c.view);
                gradients<Scalar> result(x.size());
                dense_tensor<Scalar> dx(x[0]->dims), dtarget(c.has_labels ? shape{} : x[1]->dims);
                c.view.for_each_line([&](extent first, extent sample) {
                    Scalar const weight = c.weight_of(*g[0], sample);
                    for (extent n = first; n < first + c.view.size * c.view.inner; n += c.view.inner) {
                        dx[n] = ((of_scores ? std::exp(logs[n]) * c.share_sums[static_cast<std::size_t>(sample)] : Scalar(0)) - c.shares[n]) * weight;
                        if (!c.has_labels) dtarget[n] = -(1 - c.smoothing()) * logs[n] * weight;
                    }
                });
                result[0] = std::move(dx);
                if (!c.has_labels) result[1] = std::move(dtarget);
                return result;
            }};
}

template <class Scalar>
operator_kernel<Scalar> squared_error_kernel() {
    auto const divisor = [](kernel_call const& call) {
        return call.flag("mean", true) ? static_cast<Scalar>(count_elements(call.whole_shape(call.rule->operands[0]))) : Scalar(1);
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for (extent n = 0; n < x[0]->elements(); ++n) {
                    Scalar const d = (*x[0])[n] - (*x[1])[n];
                    y[y.dims.empty() ? 0 : n] += d * d / divisor(call);
                }
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                for (extent n = 0; n < x[0]->elements(); ++n) {
                    Scalar const d = 2 * ((*x[0])[n] - (*x[1])[n]) / divisor(call) * (*g[0])[g[0]->dims.empty() ? 0 : n];
                    (*result[0])[n] = d;
                    (*result[1])[n] = -d;
                }
                return result;
            }};
}

/// Routes each token to the one or two experts of largest probability, first come first served.
///
/// Of two, the weights are normalised to sum to one, and all second choices come after the first choices. Every
/// expert has `capacity` slots in each batch row; a token that finds none is dropped by that expert. The combine mask
/// holds the weight in the token's slot, the dispatch mask a one. The choice has no derivative: gradients
/// flow through the combine weights alone.
template <class Scalar>
class routing {
public:
    struct choice { extent row, expert, slot; int rank; };

    routing(dense_tensor<Scalar> const& tokens, dense_tensor<Scalar> const& gate, int choices, shape const& masks)
        : experts_(gate.dims[1]), probabilities(shape{tokens.dims[0] * tokens.dims[1], gate.dims[1]}), choices_(choices), masks_(masks) {
        extent const rows = probabilities.dims[0], width = gate.dims[0], length = tokens.dims[1];
        if (rows == 0) return;
        matrix_map<Scalar>(probabilities.data.data(), rows, experts_).noalias() =
            const_matrix_map<Scalar>(tokens.data.data(), rows, width) * const_matrix_map<Scalar>(gate.data.data(), width, experts_);
        axis_view const lines(probabilities.dims, 1);
        probabilities = softmax_of({}, std::move(probabilities), lines, false);
        for (extent b = 0; b < tokens.dims[0]; ++b) {
            std::vector<extent> used(static_cast<std::size_t>(experts_));
            for (int rank = 0; rank < std::min<extent>(choices_, experts_); ++rank)
                for (extent row = b * length; row < (b + 1) * length; ++row) {
                    extent const expert = best(row, rank == 0 ? -1 : best(row, -1));
                    if (extent const slot = used[static_cast<std::size_t>(expert)]++; slot < masks[3]) taken.push_back({row, expert, slot, rank});
                }
        }
    }

    [[nodiscard]] extent place(choice const& c) const { return (c.row * experts_ + c.expert) * masks_[3] + c.slot; }
    [[nodiscard]] Scalar weight(choice const& c) const { return p(c.row, c.expert) / (choices_ == 1 ? Scalar(1) : sum(c.row)); }
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
    /// The likeliest expert but one; the first of equals.
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
    shape masks_;
};

/// Results are the dispatch and the combine mask.
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
            [=](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                routing<Scalar> const r(*x[0], *x[1], choices, y[0]->dims);
                dense_tensor<Scalar> scores(r.probabilities.dims);
                for (auto const& c : r.taken) r.backward(c, (*g[1])[r.place(c)], scores);
                axis_view const lines(scores.dims, 1);
                scores = softmax_adjoint({}, r.probabilities, std::move(scores), lines, false);
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                extent const rows = scores.dims[0], experts = scores.dims[1], width = x[1]->dims[0];
                if (rows == 0) return result;
                const_matrix_map<Scalar> const ds(scores.data.data(), rows, experts);
                matrix_map<Scalar>(result[0]->data.data(), rows, width).noalias() = ds * const_matrix_map<Scalar>(x[1]->data.data(), width, experts).transpose();
                matrix_map<Scalar>(result[1]->data.data(), width, experts).noalias() = const_matrix_map<Scalar>(x[0]->data.data(), rows, width).transpose() * ds;
                return result;
            }};
}

template <class Scalar>
void add_lookup_kernels(kernel_table<Scalar>& table) {
    table["embedding"] = embedding_kernel<Scalar>();
    table["nll_loss"] = classification_kernel<Scalar>(false);
    table["cross_entropy"] = classification_kernel<Scalar>(true);
    table["mse_loss"] = squared_error_kernel<Scalar>();
    table["top_2_gating"] = routing_kernel<Scalar>(2);
    table["switch_gating"] = routing_kernel<Scalar>(1);
}

} // namespace heddle::detail
