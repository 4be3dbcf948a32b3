// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of element-wise functions, norms, reductions, pools and losses.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

using operand_numbers = std::vector<std::uint8_t>;

/// What is particular to a function of one tensor, element by element.
struct unary_traits {
    bool linear = false;
    /// What the backward reads.
    bool saves_operand = false, saves_result = false;
    double flops_per_element = 1;
    bool is_view = false;
};

inline description unary(call_view const& c, unary_traits const& traits) {
    tensor_id const x = c.tensor(0, "input");
    entries const access = numbered(c.shape_of(x));
    described_operator op{rule_text({access}, {access}, traits.linear ? "0" : ""), {x}};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(traits.flops_per_element * element_count(c.shape_of(x)));
    op.options.saved_operands = traits.saves_operand ? operand_numbers{0} : operand_numbers{};
    if (traits.saves_result) op.options.saved_results = {0};
    op.options.is_view = traits.is_view;
    if (auto const form = c.call().keywords.find("approximate"); form != c.call().keywords.end())
        op.options.attributes["approximate"] = just(c.text(1, "approximate", "none") == "tanh");
    if (is_floating(c.type_of(x)) && !c.call().results.empty() && !is_floating(c.call().results.front().type))
        op.options.attributes["truncate"] = just(true);
    return op;
}

/// The mask is drawn for elements of the whole tensor, so the same on every device: linear.
inline description dropout(call_view const& c) {
    bool const active = c.flag(2, "training", true) && c.number(1, "p").value_or(0.5) > 0;
    if (!active) {
        auto idle = unary(c, {.linear = true, .is_view = true});
        idle->options.attributes["p"] = just(0);
        return idle;
    }
    auto op = unary(c, {.linear = true});
    op->options.extra_saved = bytes(element_count(c.shape_of(op->operands[0])));
    op->options.attributes["p"] = just(c.number(1, "p").value_or(0.5));
    return op;
}

/// The shape several tensors broadcast to.
inline shape broadcast(call_view const& c, std::vector<tensor_id> const& tensors) {
    shape result;
    for (tensor_id t : tensors) {
        shape const& dims = c.shape_of(t);
        if (dims.size() > result.size()) result.insert(result.begin(), dims.size() - result.size(), 1);
        for (std::size_t d = 0; d < dims.size(); ++d) {
            extent& e = result[d + result.size() - dims.size()];
            e = std::max(e, dims[d]);
        }
    }
    return result;
}

/// Element-wise over broadcast operands: where one has extent 1 it has no index.
inline described_operator broadcast_operator(call_view const& c, std::vector<tensor_id> tensors, std::string const& terms) {
    shape const whole = broadcast(c, tensors);
    entries const result = numbered(whole);
    std::vector<entries> operands;
    for (tensor_id t : tensors) {
        shape const& dims = c.shape_of(t);
        auto& access = operands.emplace_back(result.end() - static_cast<std::ptrdiff_t>(dims.size()), result.end());
        for (std::size_t d = 0; d < dims.size(); ++d)
            if (dims[d] == 1) access[d] = "1";
    }
    described_operator op{rule_text(operands, {result}, terms), std::move(tensors)};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(element_count(whole));
    return op;
}

enum class arithmetic { add, subtract, multiply, divide };

/// A tensor and a number: adding one other than zero is affine, not linear.
inline description with_number(call_view const& c, arithmetic kind, tensor_id x, double number, bool tensor_first) {
    bool const additive = kind == arithmetic::add || kind == arithmetic::subtract;
    bool const linear = additive ? number == 0 : kind == arithmetic::multiply || tensor_first;
    auto op = broadcast_operator(c, {x}, linear ? "0" : "");
    if (!linear && !additive) op.options.saved_results = {0}; // number / x
    op.options.attributes = {{"number", just(number)}, {"number_is_first", just(!tensor_first)}};
    return op;
}

template <arithmetic Kind>
description binary(call_view const& c) {
    auto const x = c.find_tensor(0, "input"), y = c.find_tensor(1, "other");
    if (c.find(2, "rounding_mode")) return {}; // rounds: linear in nothing
    auto const alpha = c.number(2, "alpha"); // the factor of what is added
    if (x && y) {
        auto op = broadcast_operator(c, {*x, *y}, Kind == arithmetic::multiply ? "0*1" : Kind == arithmetic::divide ? "0" : "0 + 1");
        if (Kind == arithmetic::divide) op.options.saved_operands = operand_numbers{0, 1};
        if (alpha) op.options.attributes["alpha"] = just(*alpha);
        return op;
    }
    auto const number = x ? c.number(1, "other") : c.number(0, "input");
    if ((!x && !y) || !number || alpha) return {};
    return with_number(c, Kind, x ? *x : *y, *number, x.has_value());
}

inline description softmax(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    entries access = numbered(c.shape_of(x));
    if (access.empty() || !c.find(1, "dim")) return {};
    std::size_t const dimension = c.axis(c.integer(1, "dim"), access.size());
    entries result = access;
    if (access[dimension] != "1") {
        access[dimension] = "~~c"; // a maximum and a sum
        result[dimension] = "~c";
    }
    described_operator op{rule_text({access}, {result}), {x}};
    op.options.category = operator_class::normalisation;
    op.options.forward = flops(5 * element_count(c.shape_of(x)));
    op.options.saved_operands = operand_numbers{};
    op.options.saved_results = {0};
    op.options.attributes["dim"] = just(dimension);
    return op;
}

/// Weight and bias of a norm, in which its result, xhat * weight + bias, is linear. Without a weight it is
/// affine in the bias: xhat would be added once per summand.
inline void add_scale(call_view const& c, described_operator& op, std::vector<entries>& operands, std::string& terms,
                      std::size_t position, entries const& dims) {
    for (bool const is_weight : {true, false}) {
        auto const tensor = c.find_tensor(position + (is_weight ? 0 : 1), is_weight ? "weight" : "bias");
        if (!tensor) continue;
        op.operands.push_back(*tensor);
        operands.push_back(dims);
        name_operand(op, is_weight ? "weight" : "bias");
        if (is_weight) terms = std::to_string(operands.size() - 1);
        else if (!terms.empty()) terms += " + " + std::to_string(operands.size() - 1);
    }
}

inline void set_norm_work(described_operator& op, shape const& dims) {
    op.options.category = operator_class::normalisation;
    op.options.forward = flops(8 * element_count(dims));
    op.options.backward = flops(14 * element_count(dims));
    op.options.saved_operands = operand_numbers{0};
}

inline description layer_norm(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input")}};
    shape const& dims = c.shape_of(op.operands[0]);
    std::size_t const normalised = c.integers(1, "normalized_shape").size();
    if (normalised == 0 || normalised > dims.size()) return {};
    entries access = numbered(dims);
    for (std::size_t d = dims.size() - normalised; d < dims.size(); ++d)
        if (access[d] != "1") access[d].insert(0, "!");
    entries const tail(access.end() - static_cast<std::ptrdiff_t>(normalised), access.end());
    std::vector<entries> operands{access};
    std::string terms;
    add_scale(c, op, operands, terms, 2, tail);
    op.options.attributes["eps"] = just(c.number(4, "eps").value_or(1e-5));
    op.rule = rule_text(operands, {access}, terms);
    set_norm_work(op, dims);
    return op;
}

/// In training the moments of a channel are over everything else; otherwise they are given.
inline description batch_norm(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input")}};
    shape const& dims = c.shape_of(op.operands[0]);
    bool const training = c.flag(5, "training", false);
    if (dims.size() < 2) return {};
    entries access = numbered(dims);
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (training && d != 1 && access[d] != "1") access[d].insert(0, "!");
    std::vector<entries> operands{access};
    for (std::size_t const position : {std::size_t{1}, std::size_t{2}}) {
        char const* const name = position == 1 ? "running_mean" : "running_var";
        auto const moment = c.find_tensor(position, name);
        if (!moment) continue;
        op.operands.push_back(*moment);
        operands.push_back({access[1]});
        name_operand(op, name);
    }
    std::string terms;
    add_scale(c, op, operands, terms, 3, {access[1]});
    op.options.attributes["eps"] = just(c.number(7, "eps").value_or(1e-5));
    op.options.attributes["training"] = just(training);
    op.rule = rule_text(operands, {access}, terms);
    set_norm_work(op, dims);
    return op;
}

/// Sum or mean, over some dimensions or all. A mean divides by global extents, so it is linear too.
inline description reduce(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const& dims = c.shape_of(x);
    std::vector<bool> reduced(dims.size(), !c.find(1, "dim"));
    for (auto dimension : c.integers(1, "dim")) reduced[c.axis(dimension, dims.size())] = true;
    bool const keep = c.flag(2, "keepdim", false);
    entries const access = numbered(dims);
    entries result;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        if (!reduced[d]) result.push_back(access[d]);
        else if (keep) result.emplace_back("1");
    }
    described_operator op{rule_text({access}, {result}, "0"), {x}};
    op.options.category = operator_class::reduction;
    return op;
}

/// The last two dimensions are blocked: windows overlap.
inline described_operator pool(call_view const& c, bool linear, double window) {
    tensor_id const x = c.tensor(0, "input");
    shape const &dims = c.shape_of(x), &result = c.result_shape();
    entries from = numbered(dims), to = from;
    for (std::size_t d = dims.size() < 2 ? 0 : dims.size() - 2; d < dims.size(); ++d) {
        from[d] = "_";
        to[d] = d < result.size() ? entry("_", result[d]) : "_";
    }
    described_operator op{rule_text({from}, {to}, linear ? "0" : ""), {x}};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(std::max(element_count(dims), window * element_count(result)));
    return op;
}

inline double window_of(call_view const& c) {
    auto const window = sides(c, 1, "kernel_size", 2);
    return window.empty() ? 1 : window[0] * window[1];
}

inline void set_windows(call_view const& c, described_operator& op) {
    op.options.attributes = {{"kernel_size", sides(c, 1, "kernel_size", 2)}, {"stride", sides(c, 2, "stride", 2)}, {"padding", sides(c, 3, "padding", 2)}};
}

inline description max_pool(call_view const& c) {
    if (c.result_count() != 1) return {};
    auto op = pool(c, false, window_of(c));
    op.options.saved_operands = operand_numbers{0};
    op.options.extra_saved = bytes(8 * element_count(c.result_shape())); // places of the maxima
    set_windows(c, op);
    op.options.attributes["dilation"] = sides(c, 4, "dilation", 2);
    return op;
}

inline description average_pool(call_view const& c) {
    auto op = pool(c, true, window_of(c));
    set_windows(c, op);
    op.options.attributes["count_include_pad"] = just(c.flag(5, "count_include_pad", true));
    if (auto const divisor = c.number(6, "divisor_override")) op.options.attributes["divisor_override"] = just(*divisor);
    return op;
}
inline description adaptive_average_pool(call_view const& c) { return pool(c, true, 1); }

/// Indices of a classification loss: the classes, `index`, are dimension 1 of the scores, or their only one.
struct loss_indices {
    entries scores, target;

    loss_indices(shape const& scores_shape, char const* index) : scores(numbered(scores_shape)) {
        std::size_t const classes = scores.size() > 1 ? 1 : 0;
        if (scores[classes] != "1") scores[classes] = index;
        target = scores;
        target.erase(target.begin() + static_cast<std::ptrdiff_t>(classes));
    }
};

/// Negative log-likelihood of labels, `log_probabilities` given, or of scores (cross-entropy).
///
/// A mean divides by the number of targets that count, which are known only from all of them: the
/// target stays whole. Target probabilities are cut like the scores; all of them count. Each class adds its own summand of the
/// loss, for which scores need the maximum and the sum over all classes; with labels, nothing more in the backward pass.
inline description classification_loss(call_view const& c, bool log_probabilities) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "target")}};
    shape const &scores = c.shape_of(op.operands[0]), &target = c.shape_of(op.operands[1]);
    std::string const reduction = c.text(6, "reduction", "mean");
    if (scores.empty()) return {};
    bool const labels = target.size() + 1 == scores.size(), mean = reduction == "mean";
    loss_indices const indices(scores, !labels ? "!c" : log_probabilities ? "c" : "~~c");
    std::vector<entries> operands{indices.scores, !labels ? indices.scores : mean ? blocked(target) : indices.target};
    if (auto const weight = c.find_tensor(2, "weight")) {
        op.operands.push_back(*weight);
        operands.push_back(blocked(c.shape_of(*weight)));
        name_operand(op, "weight");
    }
    auto& attributes = op.options.attributes;
    if (labels) attributes["ignore_index"] = just(c.integer(4, "ignore_index", -100));
    attributes["mean"] = just(mean);
    if (auto const smoothing = c.number(7, "label_smoothing")) attributes["label_smoothing"] = just(*smoothing);
    if (!labels && operands.size() > 2) return {};
    op.rule = rule_text(operands, {reduction == "none" ? indices.target : entries{}}, log_probabilities ? "0" : "");
    op.options.category = operator_class::reduction;
    op.options.forward = flops(log_probabilities ? element_count(target) : 6 * element_count(scores));
    op.options.saved_operands = operand_numbers{1};
    if (!log_probabilities) op.options.extra_saved = bytes(element_count(scores) * element_size(c.type_of(op.operands[0])));
    return op;
}

inline description nll_loss(call_view const& c) { return classification_loss(c, true); }
inline description cross_entropy(call_view const& c) { return classification_loss(c, false); }

inline description squared_error(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "target")}};
    shape const& dims = c.shape_of(op.operands[0]);
    if (dims != c.shape_of(op.operands[1])) return {};
    bool const whole = c.text(4, "reduction", "mean") != "none";
    entries const access = numbered(dims);
    op.rule = rule_text({access, access}, {whole ? entries{} : access});
    op.options.category = operator_class::reduction;
    op.options.forward = flops(3 * element_count(dims));
    op.options.saved_operands = operand_numbers{0, 1};
    op.options.attributes["mean"] = just(c.text(4, "reduction", "mean") == "mean");
    return op;
}

} // namespace heddle::detail
