// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of recurrent cells, and of layers of them along a sequence.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

namespace heddle::detail {

/// A cell with this many gates. It is parallel in the batch and in the hidden units `m`, each of which reads the whole
/// input and state.
///
/// What of the state enters unit by unit is an operand of its own: for an LSTM the cell's state, for a GRU the state
/// once more.
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
        if (auto const bias = c.find_tensor(name == std::string_view("b_ih") ? 4 : 5, name))
            op.operands.push_back(*bias);
    tensor_shape const &x = c.shape_of(op.operands[0]), &h = c.shape_of(op.operands[1]);
    std::size_t const first = has_pair || reads_unit ? 3 : 2;
    if (x.size() != 2 || h.size() != 2 || c.shape_of(w_state) != tensor_shape{gates * h[1], h[1]}) return {};
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

/// Layers of cells with this many gates along a sequence, each layer in one direction or both. They are parallel in the
/// batch. Every layer and direction has two weights, and two biases or none.
inline description recurrent_layers(call_view const& c, extent gates, bool has_pair) {
    auto const input = c.find_tensor(0, "input");
    std::vector<tensor_id> states, weights;
    if (auto const* hx = c.find(1, "hx")) collect_tensors(*hx, states);
    if (auto const* params = c.find(2, "params")) collect_tensors(*params, weights);
    if (!input || states.size() != (has_pair ? 2 : 1)) return {};
    tensor_shape const &x = c.shape_of(*input), &state = c.shape_of(states[0]);
    if (x.size() != 3 || state.size() != 3) return {}; // a packed sequence
    bool const is_biased = c.flag(3, "has_biases", true), is_batch_first = c.flag(8, "batch_first", false);
    extent const layers = c.integer(4, "num_layers"), directions = c.flag(7, "bidirectional", false) ? 2 : 1,
                 runs = layers * directions;
    if (layers > 1 && c.number(5, "dropout").value_or(0) > 0 && c.flag(6, "train", false)) return {};
    if (static_cast<extent>(weights.size()) != runs * (is_biased ? 4 : 2))
        return {}; // projected states have weights of their own
    extent const length = x[is_batch_first ? 1 : 0], batch = x[is_batch_first ? 0 : 1], hidden = state[2];
    c.expect_shape("hx", states[0], {runs, batch, hidden});

    std::string const n = entry("n", batch), t = entry("!t", length), i = entry("!i", x[2]), h = entry("!h", hidden),
                      s = entry("!s", runs);
    std::string const k = entry("!k", hidden); // hidden units as columns of a weight
    auto const times = [&](std::string const& index, extent count, std::string const& units) {
        return count == 1 ? units : hidden == 1 ? index : "(" + index + " " + units + ")";
    };
    std::string const gated = times("!q", gates, h);
    auto const sequence = [&](std::string const& features) {
        return is_batch_first ? entries{n, t, features} : entries{t, n, features};
    };
    described_operator op{{}, {*input}};
    std::vector<entries> accesses{sequence(i)}, results{sequence(times("!d", directions, h))};
    op.options.saved_operands = operand_numbers{0};
    auto const add = [&](tensor_id tensor, entries access, bool is_saved) {
        if (is_saved) op.options.saved_operands->push_back(static_cast<std::uint8_t>(op.operands.size()));
        op.operands.push_back(tensor);
        accesses.push_back(std::move(access));
    };
    for (auto const id : states) {
        add(id, {s, n, h}, true);
        results.push_back({s, n, h});
    }
    double products = 0;
    auto next = weights.begin();
    for (extent run = 0; run < runs; ++run) {
        bool const is_first = run < directions;
        extent const columns = is_first ? x[2] : directions * hidden;
        c.expect_shape("params", *next, {gates * hidden, columns});
        add(*next++, {gated, is_first ? i : times("!d", directions, k)}, true);
        c.expect_shape("params", *next, {gates * hidden, hidden});
        add(*next++, {gated, k}, true);
        for (int bias = 0; is_biased && bias < 2; ++bias) add(*next++, {gated}, false);
        products += static_cast<double>(gates * hidden * (columns + hidden));
    }
    op.rule = rule_text(accesses, results);
    if (gates > 1) op.options.extents["q"] = gates;
    if (directions > 1) op.options.extents["d"] = directions;
    op.options.attributes = {{"directions", just(directions)}, {"batch_first", just(is_batch_first)}};
    op.options.category = operator_class::matmul;
    auto const steps = static_cast<double>(length * batch);
    op.options.forward = flops(steps * (2 * products + 20 * static_cast<double>(runs * hidden)));
    op.options.backward = 2 * *op.options.forward;
    op.options.saved_results = {0};
    // These are the gates, the states of LSTM cells, and what goes from layer to layer.
    extent const kept = runs * (gates + (has_pair ? 1 : 0)) + (layers - 1) * directions;
    op.options.extra_saved = bytes(steps * static_cast<double>(kept * hidden) * element_size(c.type_of(*input)));
    return op;
}

inline description rnn_layers(call_view const& c) { return recurrent_layers(c, 1, false); }
inline description lstm_layers(call_view const& c) { return recurrent_layers(c, 4, true); }
inline description gru_layers(call_view const& c) { return recurrent_layers(c, 3, false); }

} // namespace heddle::detail
