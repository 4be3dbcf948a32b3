// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of losses.
#pragma once

#include <heddle/execute/detail/norm_kernels.hpp>

namespace heddle::detail {

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
        if (target.elements() != (target_is_cut ? view.lines() : count_elements(whole)))
            call_.fail("has " + std::to_string(target.elements()) + " targets, expected " + std::to_string(target_is_cut ? view.lines() : count_elements(whole)));
        extent const classes = call_.whole_shape(call_.rule->operands[0])[axis_];
        if (weight_ && weight_->elements() != classes) call_.fail("has " + std::to_string(weight_->elements()) + " class weights, expected " + std::to_string(classes));
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

/// What one element adds to a loss, and its slopes in the element and its target.
template <class Scalar>
struct element_loss {
    Scalar value, to_input, to_target;
};

/// The sum, the mean over all elements of the whole tensor, or each by itself, of `loss(call, input, target)`.
template <class Scalar, class Loss>
operator_kernel<Scalar> paired_loss_kernel(Loss loss) {
    auto const divisor = [](kernel_call const& call) {
        shape const whole = call.whole_shape(call.rule->operands[0]);
        if (call.flag("batch_mean")) return static_cast<Scalar>(whole[0]);
        return call.flag("mean", true) ? static_cast<Scalar>(count_elements(whole)) : Scalar(1);
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for (extent n = 0; n < x[0]->elements(); ++n) y[y.dims.empty() ? 0 : n] += loss(call, (*x[0])[n], (*x[1])[n]).value / divisor(call);
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                for (extent n = 0; n < x[0]->elements(); ++n) {
                    Scalar const weight = (*g[0])[g[0]->dims.empty() ? 0 : n] / divisor(call);
                    auto const l = loss(call, (*x[0])[n], (*x[1])[n]);
                    (*result[0])[n] = l.to_input * weight;
                    (*result[1])[n] = l.to_target * weight;
                }
                return result;
            }};
}

/// Of the difference of an element and its target: `value(call, d)` and its derivative `slope(call, d)`.
template <class Scalar, class Value, class Slope>
operator_kernel<Scalar> difference_loss_kernel(Value value, Slope slope) {
    return paired_loss_kernel<Scalar>([=](kernel_call const& call, Scalar x, Scalar t) -> element_loss<Scalar> {
        return {value(call, x - t), slope(call, x - t), -slope(call, x - t)};
    });
}

template <class Scalar>
void add_loss_kernels(kernel_table<Scalar>& table) {
    table["nll_loss"] = classification_kernel<Scalar>(false);
    table["cross_entropy"] = classification_kernel<Scalar>(true);
    auto const sign = [](Scalar d) { return Scalar(d > 0 ? 1 : d < 0 ? -1 : 0); };
    table["mse_loss"] = difference_loss_kernel<Scalar>([](kernel_call const&, Scalar d) { return d * d; }, [](kernel_call const&, Scalar d) { return 2 * d; });
    table["l1_loss"] = difference_loss_kernel<Scalar>([](kernel_call const&, Scalar d) { return std::abs(d); }, [=](kernel_call const&, Scalar d) { return sign(d); });
    auto const parameter = [](kernel_call const& call, char const* name) { return static_cast<Scalar>(call.number(name, 1)); };
    table["smooth_l1_loss"] = difference_loss_kernel<Scalar>(
        [=](kernel_call const& call, Scalar d) {
            Scalar const beta = parameter(call, "beta"), size = std::abs(d);
            return size < beta ? d * d / (2 * beta) : size - beta / 2;
        },
        [=](kernel_call const& call, Scalar d) { return std::abs(d) < parameter(call, "beta") ? d / parameter(call, "beta") : sign(d); });
    table["huber_loss"] = difference_loss_kernel<Scalar>(
        [=](kernel_call const& call, Scalar d) {
            Scalar const delta = parameter(call, "delta"), size = std::abs(d);
            return size < delta ? d * d / 2 : delta * (size - delta / 2);
        },
        [=](kernel_call const& call, Scalar d) { return std::abs(d) < parameter(call, "delta") ? d : parameter(call, "delta") * sign(d); });
    table["binary_cross_entropy"] = paired_loss_kernel<Scalar>([](kernel_call const&, Scalar p, Scalar t) -> element_loss<Scalar> {
        return {-t * std::log(p) - (1 - t) * std::log(1 - p), (p - t) / (p * (1 - p)), std::log(1 - p) - std::log(p)};
    });
    table["binary_cross_entropy_with_logits"] = paired_loss_kernel<Scalar>([](kernel_call const&, Scalar x, Scalar t) -> element_loss<Scalar> {
        return {std::max(x, Scalar(0)) - x * t + std::log1p(std::exp(-std::abs(x))), 1 / (1 + std::exp(-x)) - t, -x};
    });
    table["kl_div"] = paired_loss_kernel<Scalar>([](kernel_call const& call, Scalar x, Scalar t) -> element_loss<Scalar> {
        if (call.flag("log_target")) return {std::exp(t) * (t - x), -std::exp(t), std::exp(t) * (t - x + 1)};
        return t > 0 ? element_loss<Scalar>{t * (std::log(t) - x), -t, std::log(t) - x + 1} : element_loss<Scalar>{0, 0, 0};
    });
}

} // namespace heddle::detail
