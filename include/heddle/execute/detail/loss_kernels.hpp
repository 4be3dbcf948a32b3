// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of losses.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/norm_kernels.hpp>
#include <heddle/execute/detail/pointwise_kernels.hpp>

namespace heddle::detail {

/// Computes the losses of samples. The loss of a sample is minus the sum of its log-probabilities times `shares`; a
/// mean divides by `divisor`.
///
/// Samples are numbered by the scores' dimensions without the classes; each is a line. A mean over labels needs the
/// whole target, whatever part of the scores a rank holds, so labels are found by their place in the whole. A rank may
/// hold some of the classes; then its summand of the loss is that of these classes.
template <class Scalar>
class classification {
public:
    classification(kernel_call const& call, tensor_view<Scalar> x)
        : call_(call), x_(x), axis_(x[0]->dims.size() > 1 ? 1 : 0), view(x[0]->dims, axis_), shares(x[0]->dims),
          share_sums(static_cast<std::size_t>(view.lines())),
          smoothing_(static_cast<Scalar>(call.number("label_smoothing", 0))) {
        auto const weight = call.operand("weight");
        weight_ = weight ? x[*weight] : nullptr;
        has_labels = x[1]->dims.size() < x[0]->dims.size();
        if (has_labels) share_labels();
        else share_probabilities();
    }

    [[nodiscard]] bool is_mean() const { return call_.flag("mean", true); }
    /// Returns the factor with which the loss of sample `n` enters the result, given the result's cotangent.
    [[nodiscard]] Scalar weight_of(dense_tensor<Scalar> const& cotangent, extent n) const {
        return is_mean() ? cotangent[0] / divisor : cotangent.dims.empty() ? cotangent[0] : cotangent[n];
    }
    [[nodiscard]] Scalar smoothing() const { return smoothing_; }
    [[nodiscard]] Scalar class_weight(extent label) const { return weight_ ? (*weight_)[label] : Scalar(1); }
    [[nodiscard]] Scalar smoothed(Scalar probability) const {
        return probability * (1 - smoothing_) + smoothing_ / static_cast<Scalar>(view.size);
    }

private:
    kernel_call const& call_;
    tensor_view<Scalar> x_;
    std::size_t axis_;

public:
    axis_view view;
    dense_tensor<Scalar> shares;
    /// The sum of each sample's shares over all classes.
    std::vector<Scalar> share_sums;
    Scalar divisor = 1;
    bool has_labels = true;

private:
    [[nodiscard]] bool counts(extent label) const {
        return !call_.has("ignore_index") || label != static_cast<extent>(call_.number("ignore_index", 0));
    }

    template <class Item>
    static std::vector<Item> without(std::vector<Item> list, std::size_t place) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(place));
        return list;
    }

    void share_labels() {
        auto const& target = *x_[1];
        held_part const held = without(call_.operands[0], axis_);
        tensor_shape const whole = without(call_.whole_shape(call_.rule->operands[0]), axis_);
        bool const target_is_cut = algorithm::any_of(call_.operands[1], [](auto const& p) { return p.has_value(); });
        auto const numbers = whole_numbers(whole, held);
        auto const& held_classes = call_.operands[0][axis_];
        if (target.elements() != (target_is_cut ? view.lines() : count_elements(whole)))
            call_.fail("has " + std::to_string(target.elements()) + " targets, expected " +
                       std::to_string(target_is_cut ? view.lines() : count_elements(whole)));
        extent const classes = call_.whole_shape(call_.rule->operands[0])[axis_];
        if (weight_ && weight_->elements() != classes)
            call_.fail("has " + std::to_string(weight_->elements()) + " class weights, expected " +
                       std::to_string(classes));
        Scalar const smooth = smoothing_ / static_cast<Scalar>(classes);
        Scalar all_weights = 0;
        for (extent c = 0; c < classes; ++c) all_weights += class_weight(c);
        view.for_each_line([&](extent first, extent n) {
            auto const label = static_cast<extent>(target[target_is_cut ? n : numbers[static_cast<std::size_t>(n)]]);
            if (!counts(label)) return;
            if (label < 0 || label >= classes)
                call_.fail("has label " + std::to_string(label) + " of " + std::to_string(classes) + " classes");
            share_sums[static_cast<std::size_t>(n)] = smooth * all_weights + (1 - smoothing_) * class_weight(label);
            for (extent place = 0; place < view.size; ++place) {
                extent const c = held_classes ? (*held_classes)[static_cast<std::size_t>(place)] : place;
                shares[first + place * view.inner] =
                    smooth * class_weight(c) + (c == label ? (1 - smoothing_) * class_weight(c) : Scalar(0));
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
        view.for_each_line([&](extent first, extent n) {
            for (extent c = 0; c < view.size; ++c) {
                auto& share = shares[first + c * view.inner];
                share = smoothed(share) * class_weight(c);
                share_sums[static_cast<std::size_t>(n)] += share;
            }
        });
        tensor_shape const whole = call_.whole_shape(call_.rule->operands[0]);
        divisor = static_cast<Scalar>(count_elements(whole) / whole[axis_]);
    }

    Scalar smoothing_;
    dense_tensor<Scalar> const* weight_ = nullptr;
};

template <class Scalar>
operator_kernel<Scalar> classification_kernel(bool of_scores) {
    auto const logarithms = [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, axis_view const& view) {
        return of_scores ? softmax_of(call, *x[0], view, true) : *x[0];
    };
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
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
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                classification<Scalar> const c(call, x);
                auto const logs = logarithms(call, x, c.view);
                gradients<Scalar> result(x.size());
                dense_tensor<Scalar> dx(x[0]->dims), dtarget(c.has_labels ? tensor_shape{} : x[1]->dims),
                    dweight(tensor_shape{c.view.size});
                c.view.for_each_line([&](extent first, extent sample) {
                    Scalar const weight = c.weight_of(*g[0], sample);
                    for (extent k = 0; k < c.view.size; ++k) {
                        extent const n = first + k * c.view.inner;
                        dx[n] = ((of_scores ? std::exp(logs[n]) * c.share_sums[static_cast<std::size_t>(sample)]
                                            : Scalar(0)) -
                                 c.shares[n]) *
                                weight;
                        if (c.has_labels) continue;
                        dtarget[n] = -(1 - c.smoothing()) * c.class_weight(k) * logs[n] * weight;
                        dweight[k] -= c.smoothed((*x[1])[n]) * logs[n] * weight;
                    }
                });
                result[0] = std::move(dx);
                if (c.has_labels) return result;
                result[1] = std::move(dtarget);
                if (x.size() > 2) result[2] = std::move(dweight);
                return result;
            }};
}

/// What one element adds to a loss, and the slopes of this in the element, its target, and the factor of what is added
/// for the target.
template <class Scalar>
struct element_loss {
    Scalar value, to_input, to_target, to_factor = 0;
};

/// Computes the sum, the mean over all elements of the whole tensor, or each element by itself, of `loss(call, input,
/// target, factor)`, times a weight if there is one.
template <class Scalar, class Loss>
operator_kernel<Scalar> paired_loss_kernel(Loss loss) {
    auto const divisor = [](kernel_call const& call) {
        tensor_shape const whole = call.whole_shape(call.rule->operands[0]);
        if (call.flag("batch_mean")) return static_cast<Scalar>(whole[0]);
        return call.flag("mean", true) ? static_cast<Scalar>(count_elements(whole)) : Scalar(1);
    };
    // Calls `visit(n, places in each operand, weight, factor)`.
    auto const for_each_element = [](kernel_call const& call, tensor_view<Scalar> x, auto const& visit) {
        std::vector<std::vector<extent>> places;
        for (std::size_t k = 0; k < x.size(); ++k) places.push_back(broadcast_places(call, k, x[0]->dims));
        auto const weight = call.operand("weight"), factor = call.operand("pos_weight");
        for (std::size_t n = 0; n < places[0].size(); ++n) {
            auto const at = [&](std::size_t k) { return places[k][n]; };
            visit(static_cast<extent>(n), at, weight ? (*x[*weight])[at(*weight)] : Scalar(1),
                  factor ? (*x[*factor])[at(*factor)] : Scalar(1));
        }
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_element(call, x, [&](extent n, auto const&, Scalar weight, Scalar factor) {
                    y[y.dims.empty() ? 0 : n] +=
                        weight * loss(call, (*x[0])[n], (*x[1])[n], factor).value / divisor(call);
                });
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                for (auto const* t : x) result.push_back(dense_tensor<Scalar>(t->dims));
                for_each_element(call, x, [&](extent n, auto const& at, Scalar weight, Scalar factor) {
                    Scalar const share = (*g[0])[g[0]->dims.empty() ? 0 : n] / divisor(call);
                    auto const l = loss(call, (*x[0])[n], (*x[1])[n], factor);
                    (*result[0])[n] = l.to_input * weight * share;
                    (*result[1])[n] = l.to_target * weight * share;
                    if (auto const k = call.operand("weight")) (*result[*k])[at(*k)] += l.value * share;
                    if (auto const k = call.operand("pos_weight"))
                        (*result[*k])[at(*k)] += l.to_factor * weight * share;
                });
                return result;
            }};
}

/// A loss of the difference d of an element and its target: `value(call, d)`, with the derivative `slope(call, d)`.
template <class Scalar, class Value, class Slope>
operator_kernel<Scalar> difference_loss_kernel(Value value, Slope slope) {
    return paired_loss_kernel<Scalar>([=](kernel_call const& call, Scalar x, Scalar t, Scalar) -> element_loss<Scalar> {
        return {value(call, x - t), slope(call, x - t), -slope(call, x - t)};
    });
}

template <class Scalar>
void add_loss_kernels(kernel_table<Scalar>& table) {
    table["nll_loss"] = classification_kernel<Scalar>(false);
    table["cross_entropy"] = classification_kernel<Scalar>(true);
    auto const sign = [](Scalar d) { return Scalar(d > 0 ? 1 : d < 0 ? -1 : 0); };
    table["mse_loss"] = difference_loss_kernel<Scalar>([](kernel_call const&, Scalar d) { return d * d; },
                                                       [](kernel_call const&, Scalar d) { return 2 * d; });
    table["l1_loss"] = difference_loss_kernel<Scalar>([](kernel_call const&, Scalar d) { return std::abs(d); },
                                                      [=](kernel_call const&, Scalar d) { return sign(d); });
    auto const parameter = [](kernel_call const& call, char const* name) {
        return static_cast<Scalar>(call.number(name, 1));
    };
    table["smooth_l1_loss"] = difference_loss_kernel<Scalar>(
        [=](kernel_call const& call, Scalar d) {
            Scalar const beta = parameter(call, "beta"), size = std::abs(d);
            return size < beta ? d * d / (2 * beta) : size - beta / 2;
        },
        [=](kernel_call const& call, Scalar d) {
            return std::abs(d) < parameter(call, "beta") ? d / parameter(call, "beta") : sign(d);
        });
    table["huber_loss"] = difference_loss_kernel<Scalar>(
        [=](kernel_call const& call, Scalar d) {
            Scalar const delta = parameter(call, "delta"), size = std::abs(d);
            return size < delta ? d * d / 2 : delta * (size - delta / 2);
        },
        [=](kernel_call const& call, Scalar d) {
            return std::abs(d) < parameter(call, "delta") ? d : parameter(call, "delta") * sign(d);
        });
    table["binary_cross_entropy"] = paired_loss_kernel<Scalar>([](kernel_call const&, Scalar p, Scalar t,
                                                                  Scalar) -> element_loss<Scalar> {
        return {-t * std::log(p) - (1 - t) * std::log(1 - p), (p - t) / (p * (1 - p)), std::log(1 - p) - std::log(p)};
    });
    table["binary_cross_entropy_with_logits"] = paired_loss_kernel<Scalar>([](kernel_call const&, Scalar x, Scalar t,
                                                                              Scalar factor) -> element_loss<Scalar> {
        Scalar const missed = std::max(-x, Scalar(0)) + std::log1p(std::exp(-std::abs(x))),
                     share = 1 + (factor - 1) * t; // missed: -log(sigmoid(x))
        return {(1 - t) * x + share * missed, 1 - t - share / (1 + std::exp(x)), (factor - 1) * missed - x, t * missed};
    });
    table["kl_div"] =
        paired_loss_kernel<Scalar>([](kernel_call const& call, Scalar x, Scalar t, Scalar) -> element_loss<Scalar> {
            if (call.flag("log_target")) return {std::exp(t) * (t - x), -std::exp(t), std::exp(t) * (t - x + 1)};
            return t > 0 ? element_loss<Scalar>{t * (std::log(t) - x), -t, std::log(t) - x + 1}
                         : element_loss<Scalar>{0, 0, 0};
        });
}

} // namespace heddle::detail
