// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of losses.
#pragma once

#include <heddle/program/detail/pointwise_operators.hpp>

namespace heddle::detail {

/// The indices of a classification loss: the classes, `index`, are dimension 1 of the scores, or their only dimension.
struct loss_indices {
    entries scores, target;

    loss_indices(tensor_shape const& scores_shape, char const* index) : scores(numbered(scores_shape)) {
        std::size_t const classes = scores.size() > 1 ? 1 : 0;
        if (scores[classes] != "1") scores[classes] = index;
        target = scores;
        target.erase(target.begin() + static_cast<std::ptrdiff_t>(classes));
    }
};

/// Tells whether a loss is asked for in a form that torch has given up, or in one that does not exist, neither of which
/// its reduction says.
inline bool has_other_reduction(call_view const& c, std::string const& reduction) {
    auto const is_given = [&](char const* name) {
        auto const found = c.call().keywords.find(name);
        return found != c.call().keywords.end() && !found->second.is_none();
    };
    return is_given("size_average") || is_given("reduce") ||
           (reduction != "mean" && reduction != "sum" && reduction != "none" && reduction != "batchmean");
}

/// The negative log-likelihood of labels, either of log-probabilities or of scores (cross-entropy).
///
/// A mean divides by the number of targets that count, which only all targets tell, so the target stays whole. Target
/// probabilities are cut like the scores; all of them count. Each class adds its own summand of the loss. For that,
/// scores need the maximum and the sum over all classes; with labels, the backward pass needs nothing more.
inline description classification_loss(call_view const& c, bool log_probabilities) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "target")}};
    tensor_shape const &scores = c.shape_of(op.operands[0]), &target = c.shape_of(op.operands[1]);
    std::string const reduction = c.text(6, "reduction", "mean");
    if (scores.empty() || has_other_reduction(c, reduction)) return {};
    bool const labels = target.size() + 1 == scores.size(), mean = reduction == "mean";
    if (labels) { // the rule does not tie what stays whole to the scores
        c.expect_integers("target", op.operands[1]);
        tensor_shape expected = scores;
        expected.erase(expected.begin() + (scores.size() > 1 ? 1 : 0));
        c.expect_shape("target", op.operands[1], expected);
    } else if (!is_floating(c.type_of(op.operands[1]))) {
        c.fail("target", "is of no floating-point type, expected probabilities, or labels of a dimension less");
    }
    loss_indices const indices(scores, !labels ? "!c" : log_probabilities ? "c" : "~~c");
    std::vector<entries> operands{indices.scores, !labels ? indices.scores : mean ? blocked(target) : indices.target};
    if (auto const weight = c.find_tensor(2, "weight")) {
        c.expect_shape("weight", *weight, {scores[scores.size() > 1 ? 1 : 0]});
        op.operands.push_back(*weight);
        operands.push_back(blocked(c.shape_of(*weight)));
        name_operand(op, "weight");
    }
    auto& attributes = op.options.attributes;
    if (labels) attributes["ignore_index"] = just(c.integer(4, "ignore_index", -100));
    attributes["mean"] = just(mean);
    if (auto const smoothing = c.number(7, "label_smoothing")) attributes["label_smoothing"] = just(*smoothing);
    op.rule = rule_text(operands, {reduction == "none" ? indices.target : entries{}}, log_probabilities ? "0" : "");
    op.options.category = operator_class::reduction;
    op.options.forward = flops(log_probabilities ? element_count(target) : 6 * element_count(scores));
    op.options.saved_operands = operand_numbers{1};
    if (!log_probabilities)
        op.options.extra_saved = bytes(element_count(scores) * element_size(c.type_of(op.operands[0])));
    return op;
}

inline description nll_loss(call_view const& c) { return classification_loss(c, true); }
inline description cross_entropy(call_view const& c) { return classification_loss(c, false); }

/// A factor of a loss: its place among the arguments and its name.
struct loss_factor {
    std::size_t position;
    char const* name;
};

/// A loss of each element and its target, times factors that broadcast; it is summed, averaged, or kept for each
/// element.
inline description paired_loss(call_view const& c, std::size_t reduction_position, double flops_per_element,
                               std::initializer_list<loss_factor> factors = {}) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "target")}};
    tensor_shape const& dims = c.shape_of(op.operands[0]);
    std::string const reduction = c.text(reduction_position, "reduction", "mean");
    if (has_other_reduction(c, reduction) || dims != c.shape_of(op.operands[1])) return {};
    entries const access = numbered(dims);
    std::vector<entries> accesses{access, access};
    op.options.saved_operands = operand_numbers{0, 1};
    for (auto const& [position, name] : factors) {
        auto const factor = c.find_tensor(position, name);
        if (!factor) continue;
        op.operands.push_back(*factor);
        if (c.shape_of(*factor).size() > dims.size() || broadcast(c, op.operands) != dims) return {};
        accesses.push_back(broadcast_access(access, c.shape_of(*factor)));
        op.options.saved_operands->push_back(static_cast<std::uint8_t>(op.operands.size() - 1));
        name_operand(op, name);
    }
    op.rule = rule_text(accesses, {reduction == "none" ? access : entries{}});
    op.options.category = operator_class::reduction;
    op.options.forward = flops(flops_per_element * element_count(dims));
    op.options.attributes["mean"] = just(reduction == "mean");
    return op;
}

inline description squared_error(call_view const& c) { return paired_loss(c, 4, 3); }
inline description absolute_error(call_view const& c) { return paired_loss(c, 4, 3); }
/// The error is squared below `beta`, and absolute above.
inline description smooth_absolute_error(call_view const& c) {
    auto op = paired_loss(c, 4, 5);
    if (op) op->options.attributes["beta"] = just(c.number(5, "beta").value_or(1));
    return op;
}
inline description huber(call_view const& c) {
    auto op = paired_loss(c, 2, 5);
    if (op) op->options.attributes["delta"] = just(c.number(3, "delta").value_or(1));
    return op;
}
inline description binary_cross_entropy(call_view const& c) { return paired_loss(c, 5, 6, {{2, "weight"}}); }
inline description binary_cross_entropy_with_logits(call_view const& c) {
    return paired_loss(c, 5, 8, {{2, "weight"}, {6, "pos_weight"}});
}
/// The divergence of log-probabilities from a target of probabilities or of their logarithms. A mean over the batch
/// divides by the first extent.
inline description divergence(call_view const& c) {
    std::string const reduction = c.text(4, "reduction", "mean");
    if (reduction == "batchmean" && c.shape_of(c.tensor(0, "input")).empty()) return {};
    auto op = paired_loss(c, 4, 4);
    if (!op) return {};
    op->options.attributes["batch_mean"] = just(reduction == "batchmean");
    op->options.attributes["log_target"] = just(c.flag(5, "log_target", false));
    return op;
}

} // namespace heddle::detail
