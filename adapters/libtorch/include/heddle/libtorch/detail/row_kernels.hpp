// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of libtorch: softmax, norms, reductions and losses; of the first two a rank may hold parts of rows.
#pragma once

#include <heddle/execute/detail/norm_kernels.hpp>
#include <heddle/libtorch/detail/pointwise_kernels.hpp>

#include <tuple>

namespace heddle::libtorch::detail {

// ---- softmax

/// Softmax along an axis, or its logarithm.
[[nodiscard]] inline at::Tensor softmax_of(joined_call const& call, at::Tensor const& x, extent axis, bool logarithm) {
    if (!call.combine_rows) return logarithm ? at::log_softmax(x, axis) : at::softmax(x, axis);
    auto dims = x.sizes().vec();
    dims[static_cast<std::size_t>(axis)] = 1;
    auto const mine =
        x.size(axis) > 0 ? x.amax(axis, true) : at::full(dims, -std::numeric_limits<double>::infinity(), x.options());
    auto const shifted = x - combined(call, 0, reduction::maximum, mine);
    auto const sum = combined(call, 1, reduction::sum, shifted.exp().sum(axis, true));
    return logarithm ? shifted - sum.log() : shifted.exp() / sum;
}

[[nodiscard]] inline operator_kernel softmax_kernel(bool logarithm) {
    return {[=](joined_call const& call, tensor_list const& x) {
                return tensor_list{softmax_of(call, x[0], static_cast<extent>(axis_of(call)), logarithm)};
            },
            [=](joined_call const& call, tensor_list const&, tensor_list const& y, tensor_list const& g) {
                auto const axis = static_cast<extent>(axis_of(call));
                if (!call.combine_rows)
                    return gradient_list{logarithm
                                             ? at::_log_softmax_backward_data(g[0], y[0], axis, y[0].scalar_type())
                                             : at::_softmax_backward_data(g[0], y[0], axis, y[0].scalar_type())};
                auto const sum = combined(call, 2, reduction::sum, (logarithm ? g[0] : g[0] * y[0]).sum(axis, true));
                return gradient_list{logarithm ? g[0] - y[0].exp() * sum : y[0] * (g[0] - sum)};
            }};
}

// ---- norms

/// Sums over the rows of a norm. A row has whole dimensions and perhaps a run of another.
class norm_rows {
public:
    norm_rows(joined_call const& call, heddle::detail::norm_shape const& norm, at::Tensor const& x) : call_(call) {
        auto const whole = call.whole_shape(call.rule->operands[0]);
        for (std::size_t d = 0; d < whole.size(); ++d) {
            if (norm.runs[d] == 0) continue;
            size_ *= static_cast<double>(norm.runs[d] > 1    ? whole[d] / norm.runs[d]
                                         : call.combine_rows ? whole[d]
                                                             : x.size(static_cast<extent>(d)));
            if (norm.runs[d] == 1) over_.push_back(static_cast<extent>(d));
            else {
                run_axis_ = static_cast<extent>(d);
                runs_ = norm.runs[d];
                run_of_ = at::div(positions(call.operands[0][d], whole[d], x.device()) * runs_, whole[d], "floor");
            }
        }
        for (std::size_t d = 0; d < whole.size(); ++d)
            parameter_shape_.push_back(norm.scaled[d] ? x.size(static_cast<extent>(d)) : 1);
    }

    /// Returns the mean of each row.
    [[nodiscard]] at::Tensor mean(std::size_t which, at::Tensor const& x) const {
        auto sum = over_.empty() ? x : x.sum(over_, true);
        if (run_of_.defined()) {
            auto dims = sum.sizes().vec();
            dims[static_cast<std::size_t>(run_axis_)] = runs_;
            sum = at::zeros(dims, x.options()).index_add(run_axis_, run_of_, sum);
        }
        return combined(call_, which, reduction::sum, sum) / std::max(size_, 1.0);
    }
    /// Returns the number of its row for each element.
    [[nodiscard]] at::Tensor of_elements(at::Tensor const& rows) const {
        return run_of_.defined() ? rows.index_select(run_axis_, run_of_) : rows;
    }
    [[nodiscard]] at::Tensor parameter(at::Tensor const& x) const { return x.reshape(parameter_shape_); }
    /// Returns the sums over what has the same parameter.
    [[nodiscard]] at::Tensor of_parameters(at::Tensor const& x, at::Tensor const& parameter) const {
        return at::sum_to(x, parameter_shape_).reshape(parameter.sizes());
    }

private:
    joined_call const& call_;
    std::vector<extent> over_;
    extent run_axis_ = 0, runs_ = 1;
    at::Tensor run_of_;
    double size_ = 1;
    tensor_shape parameter_shape_;
};

/// (x - mean) / deviation of each row, or x / root mean square; by running moments if they are operands and the norm is
/// not in training.
struct normalised {
    norm_rows rows;
    at::Tensor scale, value;
    bool is_fixed, centred;

    normalised(joined_call const& call, heddle::detail::norm_shape const& norm, tensor_list const& x, bool is_centred)
        : rows(call, norm, x[0]), value(x[0]), is_fixed(!call.flag("training", true)), centred(is_centred) {
        at::Tensor variance;
        if (is_fixed) {
            auto const mean_at = call.operand("running_mean"), variance_at = call.operand("running_var");
            if (!mean_at || !variance_at) call.fail("has no running moments");
            value = value - rows.parameter(x[*mean_at]);
            variance = rows.parameter(x[*variance_at]);
        } else {
            if (centred) value = value - rows.of_elements(rows.mean(0, value));
            variance = rows.of_elements(rows.mean(centred ? 1 : 0, value * value));
        }
        scale = (variance + call.number("eps", 1e-5)).rsqrt();
        value = value * scale;
    }
};

/// The norm of rows that are the last dimensions, which libtorch computes at once where no row is on several ranks.
class trailing_norm {
public:
    trailing_norm(joined_call const& call, tensor_list const& x) : x_(x), extra_(call) {
        auto const rows = heddle::detail::trailing_norm_shape(call).runs;
        auto const dims = static_cast<std::size_t>(algorithm::count(rows, 1));
        shape_ = x[0].sizes().slice(rows.size() - dims);
        std::tie(result_, mean_, scale_) =
            at::native_layer_norm(x[0], shape_, of(extra_.weight), of(extra_.bias), call.number("eps", 1e-5));
    }
    [[nodiscard]] at::Tensor const& result() const { return result_; }
    [[nodiscard]] gradient_list gradients(at::Tensor const& g) const {
        auto const [dx, dweight, dbias] =
            at::native_layer_norm_backward(g, x_[0], shape_, mean_, scale_, of(extra_.weight), of(extra_.bias),
                                           {true, extra_.weight.has_value(), extra_.bias.has_value()});
        gradient_list result(x_.size());
        result[0] = dx;
        if (extra_.weight) result[*extra_.weight] = dweight;
        if (extra_.bias) result[*extra_.bias] = dbias;
        return result;
    }

private:
    [[nodiscard]] c10::optional<at::Tensor> of(std::optional<std::size_t> operand) const {
        return operand ? c10::optional<at::Tensor>(x_[*operand]) : c10::nullopt;
    }

    tensor_list const& x_;
    heddle::detail::norm_operands extra_;
    at::IntArrayRef shape_;
    at::Tensor result_, mean_, scale_;
};

/// A norm whose shape is `shape_of(call)`.
template <class Shape>
[[nodiscard]] operator_kernel norm_kernel(Shape shape_of, bool centred = true) {
    return {[=](joined_call const& call, tensor_list const& x) {
                heddle::detail::norm_operands const extra(call);
                normalised const n(call, shape_of(call), x, centred);
                auto y = n.value;
                if (extra.weight) y = y * n.rows.parameter(x[*extra.weight]);
                if (extra.bias) y = y + n.rows.parameter(x[*extra.bias]);
                return tensor_list{y};
            },
            [=](joined_call const& call, tensor_list const& x, tensor_list const&, tensor_list const& g) {
                heddle::detail::norm_operands const extra(call);
                normalised const n(call, shape_of(call), x, centred);
                gradient_list result(x.size());
                if (extra.bias) result[*extra.bias] = n.rows.of_parameters(g[0], x[*extra.bias]);
                if (extra.weight) result[*extra.weight] = n.rows.of_parameters(g[0] * n.value, x[*extra.weight]);
                auto dx = extra.weight ? g[0] * n.rows.parameter(x[*extra.weight]) : g[0];
                if (!n.is_fixed) {
                    at::Tensor const mean = centred ? n.rows.of_elements(n.rows.mean(2, dx)) : at::Tensor();
                    auto const product = n.value * n.rows.of_elements(n.rows.mean(centred ? 3 : 1, dx * n.value));
                    dx = centred ? dx - mean - product : dx - product;
                }
                result[0] = n.scale * dx;
                return result;
            }};
}

inline void add_norm_kernels(kernel_table& table) {
    using heddle::detail::channel_norm_shape, heddle::detail::trailing_norm_shape;
    table["softmax"] = softmax_kernel(false);
    table["log_softmax"] = softmax_kernel(true);
    auto const apart = norm_kernel(trailing_norm_shape);
    auto const is_apart = [](joined_call const& call) {
        return call.combine_rows || algorithm::count(trailing_norm_shape(call).runs, 1) == 0;
    };
    table["layer_norm"] = {
        [=](joined_call const& call, tensor_list const& x) {
            return is_apart(call) ? apart.forward(call, x) : tensor_list{trailing_norm(call, x).result()};
        },
        [=](joined_call const& call, tensor_list const& x, tensor_list const& y, tensor_list const& g) {
            return is_apart(call) ? apart.backward(call, x, y, g) : trailing_norm(call, x).gradients(g[0]);
        }};
    table["rms_norm"] = norm_kernel(trailing_norm_shape, false);
    table["batch_norm"] = norm_kernel([](joined_call const& call) { return channel_norm_shape(call, true, 0); });
    table["instance_norm"] = norm_kernel([](joined_call const& call) { return channel_norm_shape(call, false, 0); });
    table["group_norm"] = norm_kernel([](joined_call const& call) {
        return channel_norm_shape(call, false, static_cast<extent>(call.number("groups", 1)));
    });
}

// ---- reductions that are no sums

/// Returns a tensor with the dimensions that the attribute `dim` lists as the last, and all others before it.
[[nodiscard]] inline at::Tensor rows_of(kernel_call const& call, at::Tensor const& x) {
    auto const over = call.numbers("dim");
    std::vector<extent> order, last;
    extent size = 1;
    tensor_shape shape;
    for (extent d = 0; d < x.dim(); ++d)
        if (algorithm::find(over, static_cast<double>(d)) != over.end()) {
            last.push_back(d);
            size *= x.size(d);
        } else {
            order.push_back(d);
            shape.push_back(x.size(d));
        }
    order.insert(order.end(), last.begin(), last.end());
    shape.push_back(size);
    return x.permute(order).reshape(shape);
}

inline void add_reduction_kernels(kernel_table& table) {
    using tensor = at::Tensor;
    /// Computes numbers of the rows.
    auto const set = [&](std::string const& kind, auto... functions) {
        table[kind] = {[=](kernel_call const& call, tensor_list const& x) {
            auto const rows = rows_of(call, x[0]);
            tensor_list y{functions(call, rows)...};
            for (std::size_t r = 0; r < y.size(); ++r) y[r] = y[r].reshape(call.result_shape(r));
            return y;
        }};
    };
    auto const largest = [](kernel_call const&, tensor const& x) { return x.amax(-1); };
    auto const smallest = [](kernel_call const&, tensor const& x) { return x.amin(-1); };
    auto const mean = [](kernel_call const&, tensor const& x) { return x.mean(-1); };
    auto const variance = [](kernel_call const& call, tensor const& x) {
        auto const difference = x - x.mean(-1, true);
        return (difference * difference).sum(-1) / (static_cast<double>(x.size(-1)) - call.number("correction", 1));
    };
    auto const deviation = [=](kernel_call const& call, tensor const& x) { return variance(call, x).sqrt(); };
    set("amax", largest);
    set("amin", smallest);
    set("logsumexp", [](kernel_call const&, tensor const& x) { return x.logsumexp(-1); });
    set("norm", [](kernel_call const&, tensor const& x) { return at::linalg_vector_norm(x, 2, -1); });
    set("var", variance);
    set("std", deviation);
    set("var_mean", variance, mean);
    set("std_mean", deviation, mean);
    set("prod", [](kernel_call const&, tensor const& x) { // libtorch's derivative asks on the host for zeros
        auto const fixed = x.detach();
        auto sizes = x.sizes().vec();
        sizes.back() = 1;
        auto const one = at::ones(sizes, fixed.options());
        auto const before = at::cat({one, fixed}, -1).cumprod(-1).narrow(-1, 0, x.size(-1));
        auto const after = at::cat({one, fixed.flip(-1)}, -1).cumprod(-1).narrow(-1, 0, x.size(-1)).flip(-1);
        return with_derivative(fixed.prod(-1), (x * before * after).sum(-1));
    });
    table["cumsum"] = one_result(
        [](kernel_call const& call, tensor_list const& x) { return x[0].cumsum(static_cast<extent>(axis_of(call))); });

    /// Finds places too: of equal elements the first.
    auto const extreme = [&](char const* kind, bool of_largest) {
        auto const reduced = table[of_largest ? "amax" : "amin"];
        table[kind] = {[=](joined_call const& call, tensor_list const& x) -> tensor_list {
            if (call.results.size() < 2) return reduced.forward(call, x);
            auto const axis = static_cast<extent>(axis_of(call));
            auto const [values, places] = of_largest ? x[0].max(axis) : x[0].min(axis);
            return {values.reshape(call.result_shape(0)), places.reshape(call.result_shape(1))};
        }};
    };
    extreme("max", true);
    extreme("min", false);
    auto const place = [&](char const* kind, bool of_largest) {
        table[kind] = one_result([=](kernel_call const& call, tensor_list const& x) {
            c10::optional<std::int64_t> axis;
            if (call.has("dim")) axis = static_cast<extent>(axis_of(call));
            return (of_largest ? x[0].argmax(axis) : x[0].argmin(axis)).reshape(call.result_shape(0));
        });
    };
    place("argmax", true);
    place("argmin", false);
    table["topk"] = {[](kernel_call const& call, tensor_list const& x) -> tensor_list {
        auto const axis = static_cast<extent>(axis_of(call));
        extent const count = call.result_shape(0)[axis_of(call)];
        if (count > x[0].size(axis))
            call.fail("takes " + std::to_string(count) + " of " + std::to_string(x[0].size(axis)) + " places");
        auto const [values, places] = x[0].sort(true, axis, call.flag("largest", true)); // of equals the first
        return {values.narrow(axis, 0, count), places.narrow(axis, 0, count)};
    }};
}

// ---- losses

/// Losses of samples with labels. The loss of a sample is minus the log-probability of its label times the class's
/// weight; with smoothing, each class has a share. Labels are found by their place in the whole, because a mean needs
/// the whole target. A rank may hold some of the classes; then its summand of the loss is that of these classes.
class labelled_loss {
public:
    labelled_loss(joined_call const& call, tensor_list const& x, bool of_scores)
        : call_(call), axis_(x[0].dim() > 1 ? 1 : 0), smoothing_(call.number("label_smoothing", 0)),
          classes_(call.whole_shape(call.rule->operands[0])[axis_]),
          logs_(of_scores ? softmax_of(call, x[0], axis(), true) : x[0]), of_scores_(of_scores) {
        if (auto const k = call.operand("weight")) weight_ = x[*k];
        auto without_classes = [&](auto list) {
            list.erase(list.begin() + axis());
            return list;
        };
        held_part const held = without_classes(call.operands[0]);
        tensor_shape const whole = without_classes(call.whole_shape(call.rule->operands[0]));
        auto const is_cut = [](auto const& p) { return p.has_value(); };
        bool const target_is_cut = algorithm::any_of(call.operands[1], is_cut);
        auto labels = whole_number(x[1]);
        set_divisor(labels, whole, target_is_cut);
        if (!target_is_cut && algorithm::any_of(held, is_cut))
            labels = labels.reshape(-1).index({whole_numbers(whole, held, x[0].device())});
        auto samples = without_classes(x[0].sizes().vec());
        labels = labels.reshape(samples);
        counts_ = counting(labels);
        labels = safe(labels, counts_);
        held_classes_ = call.operands[0][axis_];
        share_ = class_weights(labels) * (1 - smoothing_);
        if (counts_.defined()) share_ = share_.masked_fill(counts_.logical_not(), 0);
        places_ = found_places(held_classes_, labels);
    }

    [[nodiscard]] at::Tensor forward() const {
        at::Tensor loss = at::zeros(share_.sizes(), logs_.options());
        if (!places_->is_empty) {
            auto const held = places_->held_of(share_);
            auto const picked = logs_.gather(axis(), places_->place.unsqueeze(axis())).squeeze(axis());
            loss = (held * picked).masked_fill(held == 0, 0).neg();
        }
        if (smoothing_ > 0) loss = loss - (smooth_shares() * logs_).sum(axis());
        if (!call_.result_shape(0).empty()) return loss;
        return is_mean() ? loss.sum() / divisor_ : loss.sum();
    }

    [[nodiscard]] at::Tensor backward(at::Tensor const& g) const {
        auto const factor = is_mean() ? g / divisor_ : g;
        auto const of_samples = [&](at::Tensor const& x) { return (x * factor).unsqueeze(axis()); };
        at::Tensor dx;
        if (of_scores_) {
            auto sums = share_;
            if (smoothing_ > 0) {
                auto all = class_weights(at::arange(classes_, places_->place.options())).sum() * smoothing_ /
                           static_cast<double>(classes_);
                sums = sums + (counts_.defined() ? all * counts_ : all);
            }
            dx = logs_.exp().mul_(of_samples(sums));
        } else dx = at::zeros_like(logs_);
        if (smoothing_ > 0) dx -= smooth_shares() * (factor.dim() == 0 ? factor : factor.unsqueeze(axis()));
        if (!places_->is_empty)
            dx.scatter_add_(axis(), places_->place.unsqueeze(axis()), of_samples(places_->held_of(share_)).neg());
        return dx;
    }

private:
    [[nodiscard]] extent axis() const { return static_cast<extent>(axis_); }
    [[nodiscard]] bool is_mean() const { return call_.flag("mean", true); }
    /// Returns undefined if all labels count.
    [[nodiscard]] at::Tensor counting(at::Tensor const& labels) const {
        if (!call_.has("ignore_index")) return {};
        return labels != static_cast<std::int64_t>(call_.number("ignore_index", 0));
    }
    [[nodiscard]] static at::Tensor safe(at::Tensor const& labels, at::Tensor const& counts) {
        return counts.defined() ? labels.masked_fill(counts.logical_not(), 0) : labels;
    }
    [[nodiscard]] at::Tensor class_weights(at::Tensor const& labels) const {
        return weight_.defined() ? weight_.index({labels}) : at::ones(labels.sizes(), logs_.options());
    }
    /// Returns what smoothing gives each class that is held, for each sample that counts.
    [[nodiscard]] at::Tensor smooth_shares() const {
        auto shares = class_weights(positions(held_classes_, classes_, logs_.device())) * smoothing_ /
                      static_cast<double>(classes_);
        for (extent d = axis() + 1; d < logs_.dim(); ++d) shares = shares.unsqueeze(-1);
        return counts_.defined() ? shares * counts_.unsqueeze(axis()) : shares.expand_as(logs_);
    }
    void set_divisor(at::Tensor const& labels, tensor_shape const& whole, bool target_is_cut) {
        if (!is_mean()) return;
        bool const all_count = !call_.has("ignore_index") && !weight_.defined();
        if (target_is_cut && !all_count) call_.fail("is a mean over targets that are cut");
        if (all_count) {
            divisor_ = at::full({}, static_cast<double>(heddle::count_elements(whole)), logs_.options());
            return;
        }
        auto const counts = counting(labels);
        auto weights = class_weights(safe(labels, counts));
        divisor_ = (counts.defined() ? weights * counts : weights).sum();
    }

    joined_call const& call_;
    std::size_t axis_;
    double smoothing_;
    extent classes_;
    at::Tensor logs_;
    bool of_scores_;
    at::Tensor weight_, divisor_, counts_, share_;
    held_positions held_classes_;
    std::optional<found_places> places_;
};

[[nodiscard]] inline operator_kernel classification_kernel(bool of_scores) {
    auto const has_labels = [](tensor_list const& x) { return x[1].dim() < x[0].dim(); };
    auto const of_probabilities = one_result([=](joined_call const& call, tensor_list const& x) {
        extent const axis = x[0].dim() > 1 ? 1 : 0;
        auto const whole = call.whole_shape(call.rule->operands[0]);
        double const smoothing = call.number("label_smoothing", 0);
        auto shares = x[1] * (1 - smoothing) + smoothing / static_cast<double>(x[0].size(axis));
        if (auto const k = call.operand("weight")) {
            auto weight = x[*k];
            for (extent d = axis + 1; d < x[0].dim(); ++d) weight = weight.unsqueeze(-1);
            shares = shares * weight;
        }
        auto const loss = (shares * (of_scores ? softmax_of(call, x[0], axis, true) : x[0])).sum(axis).neg();
        if (!call.result_shape(0).empty()) return loss;
        double const samples =
            static_cast<double>(heddle::count_elements(whole) / whole[static_cast<std::size_t>(axis)]);
        return call.flag("mean", true) ? loss.sum() / samples : loss.sum();
    });
    return {[=](joined_call const& call, tensor_list const& x) {
                return has_labels(x) ? tensor_list{labelled_loss(call, x, of_scores).forward()}
                                     : of_probabilities.forward(call, x);
            },
            [=](joined_call const& call, tensor_list const& x, tensor_list const&, tensor_list const& g) {
                if (!has_labels(x)) return differentiate(of_probabilities, call, x, g);
                gradient_list result(x.size());
                result[0] = labelled_loss(call, x, of_scores).backward(g[0]);
                return result;
            }};
}

/// Computes the sum, the mean over all elements of the whole tensor, or each element by itself, of `loss(call, input,
/// target, factor)`, times a weight if there is one.
template <class Loss>
[[nodiscard]] operator_kernel paired_loss_kernel(Loss loss) {
    return one_result([loss](kernel_call const& call, tensor_list const& operands) {
        auto const x = aligned(call, operands);
        auto const weight = call.operand("weight"), factor = call.operand("pos_weight");
        auto y = loss(call, x[0], x[1], factor ? x[*factor] : at::ones({}, x[0].options()));
        if (weight) y = y * x[*weight];
        if (!call.result_shape(0).empty()) return y;
        tensor_shape const whole = call.whole_shape(call.rule->operands[0]);
        if (call.flag("batch_mean")) return y.sum() / static_cast<double>(whole[0]);
        if (call.flag("mean", true)) return y.sum() / static_cast<double>(heddle::count_elements(whole));
        return y.sum();
    });
}

inline void add_loss_kernels(kernel_table& table) {
    using tensor = at::Tensor;
    table["nll_loss"] = classification_kernel(false);
    table["cross_entropy"] = classification_kernel(true);
    auto const of_difference = [&](char const* kind, auto value) {
        table[kind] = paired_loss_kernel([=](kernel_call const& call, tensor const& x, tensor const& t, tensor const&) {
            return value(call, x - t);
        });
    };
    of_difference("mse_loss", [](kernel_call const&, tensor const& d) { return d * d; });
    of_difference("l1_loss", [](kernel_call const&, tensor const& d) { return d.abs(); });
    of_difference("smooth_l1_loss", [](kernel_call const& call, tensor const& d) {
        return at::smooth_l1_loss(d, at::zeros_like(d), at::Reduction::None, call.number("beta", 1));
    });
    of_difference("huber_loss", [](kernel_call const& call, tensor const& d) {
        return at::huber_loss(d, at::zeros_like(d), at::Reduction::None, call.number("delta", 1));
    });
    table["binary_cross_entropy"] =
        paired_loss_kernel([](kernel_call const&, tensor const& p, tensor const& t, tensor const&) {
            return -t * p.log() - (1 - t) * (1 - p).log();
        });
    table["binary_cross_entropy_with_logits"] =
        paired_loss_kernel([](kernel_call const&, tensor const& x, tensor const& t, tensor const& factor) {
            return (1 - t) * x - (1 + (factor - 1) * t) * at::log_sigmoid(x);
        });
    table["kl_div"] = paired_loss_kernel([](kernel_call const& call, tensor const& x, tensor const& t, tensor const&) {
        if (call.flag("log_target")) return t.exp() * (t - x);
        auto const positive = t > 0;
        return at::where(positive, t * (t.where(positive, at::ones_like(t)).log() - x), at::zeros_like(t));
    });
}

} // namespace heddle::libtorch::detail
