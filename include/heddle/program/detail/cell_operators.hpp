// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of recurrent cells.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

/// A cell of so many gates: parallel in the batch and in the hidden units, `m`, of which each reads the whole input and state.
///
/// What of the state enters unit by unit is an operand of its own: the cell's of an LSTM, of a GRU the state once more.
inline description recurrent_cell(call_view const& c, extent gates, bool has_pair, bool reads_unit) {
    described_operator op{{}, {c.tensor(0, "input")}};
    if (has_pair) { // (h, c)
        auto const* pair = c.find(1, "hx");
        auto const* list = pair ? pair->as<literal::list>() : nullptr;
        if (!list || list->size() != 2) return {};
        for (auto const& item : *list) {
            if (!item.as<literal::tensor>()) return {};
            op.operands.push_back(item.as<literal::tensor>()->id);
        }
    } else {
        op.operands.push_back(c.tensor(1, "hx"));
        if (reads_unit) op.operands.push_back(op.operands.back());
    }
    auto const w_input = c.tensor(2, "w_ih"), w_state = c.tensor(3, "w_hh");
    op.operands.insert(op.operands.end(), {w_input, w_state});
    for (char const* name : {"b_ih", "b_hh"})
        if (auto const bias = c.find_tensor(name == std::string_view("b_ih") ? 4 : 5, name)) op.operands.push_back(*bias);
    shape const &x = c.shape_of(op.operands[0]), &h = c.shape_of(op.operands[1]);
    std::size_t const first = has_pair || reads_unit ? 3 : 2;
    if (x.size() != 2 || h.size() != 2 || c.shape_of(w_state) != shape{gates * h[1], h[1]}) return {};
    if (op.operands.size() != first + 2 && op.operands.size() != first + 4) return {};
    std::string const b = entry("b", x[0]), m = entry("m", h[1]);
    auto const gated = gates == 1 ? m : h[1] == 1 ? "!q" : "(!q m)";
    auto const inner = [](char const* index, extent size) { return entry(std::string("!") + index, size); };
    std::vector<entries> operands{{b, inner("i", x[1])}, {b, inner("j", h[1])}};
    if (first == 3) operands.push_back({b, m});
    operands.push_back({gated, inner("i", x[1])});
    operands.push_back({gated, inner("j", h[1])});
    while (operands.size() < op.operands.size()) operands.push_back({gated});
    op.rule = rule_text(operands, std::vector<entries>(c.result_count(), entries{b, m}));
    if (gates > 1) op.options.extents = {{"q", gates}};
    op.options.category = operator_class::matmul;
    double const products = static_cast<double>(x[0] * gates * h[1]) * static_cast<double>(x[1] + h[1]);
    op.options.forward = flops(2 * products + 20 * static_cast<double>(x[0] * h[1]));
    op.options.backward = flops(4 * products + 40 * static_cast<double>(x[0] * h[1]));
    op.options.saved_operands.emplace(); // all but the biases
    for (std::uint8_t k = 0; k < first + 2; ++k) op.options.saved_operands->push_back(k);
    op.options.extra_saved = bytes(static_cast<double>(x[0] * gates * h[1]) * element_size(c.type_of(op.operands[0])));
    return op;
}

inline description rnn_cell(call_view const& c) { return recurrent_cell(c, 1, false, false); }
inline description lstm_cell(call_view const& c) { return recurrent_cell(c, 4, true, false); }
inline description gru_cell(call_view const& c) { return recurrent_cell(c, 3, false, true); }

} // namespace heddle::detail
