// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that pick and scatter elements by places held in tensors, and that route tokens.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/piece_operators.hpp>
#include <heddle/program/detail/pointwise_operators.hpp>

#include <cmath>

namespace heddle::detail {

/// Picks elements by a mask of some dimensions. What is picked takes their place, and is as long as the result says.
/// Both the tensor and the mask are whole.
inline description slices_of_mask(call_view const& c, tensor_id x, std::size_t axis, tensor_id mask) {
    tensor_shape const &dims = c.shape_of(x), &places = c.shape_of(mask), &result = c.result_shape();
    std::size_t const count = places.size();
    if (count == 0 || axis + count > dims.size() || result.size() + count != dims.size() + 1) return {};
    auto const first = static_cast<std::ptrdiff_t>(axis);
    c.expect_shape("index", mask, {dims.begin() + first, dims.begin() + first + static_cast<std::ptrdiff_t>(count)});
    c.expect_within("index", result[axis], 1, static_cast<std::int64_t>(element_count(places)));
    entries from = numbered(dims), to = from;
    for (std::size_t d = 0; d < count; ++d) from[axis + d] = entry("_", dims[axis + d]);
    to.erase(to.begin() + first + 1, to.begin() + first + static_cast<std::ptrdiff_t>(count));
    to[axis] = entry("_", result[axis]);
    auto op = copy_of(c, {x, mask}, {from, blocked(places)}, to);
    op.options.results = {result};
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes = {{"dim", just(axis)}, {"is_mask", just(true)}};
    return op;
}

/// Picks whole slices at the places that a tensor holds; the tensor's dimensions take the place of the sliced one, and
/// the operator is parallel along them.
inline description slices_at(call_view const& c, tensor_id x, std::size_t axis, tensor_id index) {
    if (c.type_of(index) == element_type::boolean) return slices_of_mask(c, x, axis, index);
    c.expect_integers("index", index);
    entries from = numbered(c.shape_of(x)), to = from;
    entries const places = numbered(c.shape_of(index), "j");
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), places.begin(), places.end());
    from[axis] = entry("_", c.shape_of(x)[axis]);
    auto op = copy_of(c, {x, index}, {from, places}, to);
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes["dim"] = just(axis);
    return op;
}
/// Picks from several dimensions at places that one tensor for each of them holds; these tensors broadcast.
inline description slices_at_all(call_view const& c, tensor_id x, std::size_t axis,
                                 std::vector<tensor_id> const& indices) {
    if (indices.size() == 1) return slices_at(c, x, axis, indices.front());
    for (tensor_id t : indices) {
        if (c.type_of(t) == element_type::boolean) return {};
        c.expect_integers("index", t);
    }
    entries from = numbered(c.shape_of(x)), to = from;
    entries const places = numbered(broadcast(c, indices), "j");
    auto const first = to.begin() + static_cast<std::ptrdiff_t>(axis);
    to.insert(to.erase(first, first + static_cast<std::ptrdiff_t>(indices.size())), places.begin(), places.end());
    std::vector<tensor_id> operands{x};
    std::vector<entries> accesses{from};
    operand_numbers saved;
    for (std::size_t n = 0; n < indices.size(); ++n) {
        accesses.front()[axis + n] = entry("_", c.shape_of(x)[axis + n]);
        operands.push_back(indices[n]);
        accesses.push_back(broadcast_access(places, c.shape_of(indices[n])));
        saved.push_back(static_cast<std::uint8_t>(n + 1));
    }
    auto op = copy_of(c, std::move(operands), std::move(accesses), to);
    op.options.saved_operands = saved;
    op.options.attributes["dim"] = just(axis);
    return op;
}
inline description index_select(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index");
    c.expect_integers("index", index);
    if (c.shape_of(index).size() != 1) return {};
    return slices_at(c, x, c.axis(c.integer(1, "dim"), c.shape_of(x).size()), index);
}
/// Indexes by integers and slices, or by tensors of places of adjacent dimensions beside dimensions that are taken
/// whole. `absent` tells whether a missing argument also takes a dimension whole or adds one.
inline description index_by(call_view const& c, bool absent) {
    auto const* index = c.find(1, "index");
    if (!index) return get_item(c);
    auto const* several = index->as<literal::list>();
    literal::list const items = several ? *several : literal::list{*index};
    auto const tensors =
        algorithm::count_if(items, [](literal const& i) { return i.as<literal::tensor>() != nullptr; });
    if (tensors == 0) return absent ? description{} : get_item(c);
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    std::size_t next = 0, axis = rank;
    std::vector<tensor_id> places;
    for (std::size_t n = 0; n < items.size(); ++n) {
        auto const* slice = items[n].as<literal::slice>();
        if (auto const* t = items[n].as<literal::tensor>()) {
            if (places.empty()) axis = next;
            if (next++ != axis + places.size()) return {};
            places.push_back(t->id);
        } else if (items[n].as<literal::ellipsis>() && items.size() <= rank + 1) {
            next = rank + n + 1 - items.size();
        } else if ((slice && slice->is_whole()) || (absent && items[n].is_none())) {
            ++next;
        } else {
            return {};
        }
    }
    return axis < rank && next <= rank ? slices_at_all(c, x, axis, places) : description{};
}
inline description get_item_at(call_view const& c) { return index_by(c, false); }
inline description index_list(call_view const& c) { return index_by(c, true); }

/// What is left of a dimension from which elements are picked.
enum class kept_dimension { several, one, none };

/// Finds the largest or smallest elements of a dimension, and where they are.
inline described_operator ranked(call_view const& c, std::size_t axis, kept_dimension kept, bool largest,
                                 extent count = 1) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
    tensor_shape result = dims;
    result[axis] = count;
    if (kept == kept_dimension::none) result.erase(result.begin() + static_cast<std::ptrdiff_t>(axis));
    entries from = numbered(dims), to = from;
    from[axis] = entry("_", dims[axis]);
    if (kept == kept_dimension::none) to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    else to[axis] = kept == kept_dimension::one ? "1" : entry("_", count);
    described_operator op{rule_text({from}, {to, to}), {x}};
    op.options.results = {result, result};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(element_count(dims) *
                               (kept == kept_dimension::several ? std::log2(static_cast<double>(dims[axis]) + 1) : 1));
    op.options.backward = flops(element_count(result));
    op.options.saved_operands = operand_numbers{};
    op.options.saved_results = {1};
    op.options.attributes = {{"dim", just(axis)}, {"largest", just(largest)}};
    return op;
}
inline description largest(call_view const& c) {
    tensor_shape const& dims = c.shape_of(c.tensor(0, "input"));
    if (c.result_count() != 2 || dims.empty()) return {};
    std::size_t const axis = c.axis(c.integer(2, "dim", -1), dims.size());
    extent const count = c.integer(1, "k");
    c.expect_within("k", count, 1, dims[axis]);
    return ranked(c, axis, kept_dimension::several, c.flag(3, "largest", true), count);
}

/// Sorts a dimension; of equal elements the first goes first. The second result is where each element was.
inline description sorted(call_view const& c) {
    tensor_shape const& dims = c.shape_of(c.tensor(0, "input"));
    if (c.result_count() != 2 || dims.empty()) return {};
    std::size_t const axis = c.axis(c.integer(1, "dim", -1), dims.size());
    auto op = ranked(c, axis, kept_dimension::several, c.flag(2, "descending", false), dims[axis]);
    op.kind = "topk";
    return op;
}

/// Sets a one at the place that each element names, along a new dimension at the end.
inline description one_hot(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    c.expect_integers("input", x);
    if (c.result_shape().size() != c.shape_of(x).size() + 1) return {};
    entries const from = numbered(c.shape_of(x));
    entries to = from;
    to.push_back(entry("classes", c.result_shape().back()));
    auto const classes = c.integer(1, "num_classes", -1); // else what the result says
    auto op = copy_of(c, {x}, {from}, to, "");
    op.options.extents = {{"classes", classes < 0 ? c.result_shape().back() : classes}};
    op.options.saved_operands = operand_numbers{};
    return op;
}

/// Picks elements at a place each, along a dimension; the other dimensions must be whole.
inline description gather_elements(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index");
    c.expect_integers("index", index);
    tensor_shape const &dims = c.shape_of(x), &places = c.shape_of(index);
    std::size_t const axis = c.axis(c.integer(1, "dim"), dims.size());
    if (places.size() != dims.size()) return {};
    entries from = numbered(dims), to = from;
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (d != axis && dims[d] != places[d]) return {};
    from[axis] = entry("_", dims[axis]);
    to[axis] = entry("j", places[axis]);
    auto op = copy_of(c, {x, index}, {from, to}, to);
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// Adds slices, or elements, of the third operand to the first at the places of the second, which is a sum over the
/// places.
inline description scattered(call_view const& c, bool for_each_element) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index"),
                    source = c.tensor(3, for_each_element ? "src" : "source");
    c.expect_integers("index", index);
    tensor_shape const &dims = c.shape_of(x), &from = c.shape_of(source);
    std::size_t const axis = c.axis(c.integer(1, "dim"), dims.size());
    bool const is_scaled = c.find(4, "alpha") && c.number(4, "alpha") != 1.0;
    if (from.size() != dims.size() || is_scaled) return {};
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (d != axis && dims[d] != from[d]) return {};
    if (c.shape_of(index) != (for_each_element ? from : tensor_shape{from[axis]})) return {};
    entries to = numbered(dims), access = to;
    to[axis] = entry("_", dims[axis]);
    access[axis] = entry("j", from[axis]);
    auto op =
        copy_of(c, {x, index, source}, {to, for_each_element ? access : entries{access[axis]}, access}, to, "0 + 2");
    op.options.results = {dims};
    op.options.forward = flops(element_count(from));
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes["dim"] = just(axis);
    return op;
}
inline description index_add(call_view const& c) { return scattered(c, false); }
inline description scatter_add(call_view const& c) { return scattered(c, true); }

/// Replaces elements of the first operand at the places of the index by elements of another, or by a number.
inline description scatter(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index");
    auto const source = c.find_tensor(3, "src");
    auto const value = c.number(3, c.find(3, "value") ? "value" : "src");
    tensor_shape const &dims = c.shape_of(x), &places = c.shape_of(index);
    std::size_t const axis = c.axis(c.integer(1, "dim"), dims.size());
    if ((!source && !value) || c.find(4, "reduce") || places.size() != dims.size() ||
        (source && c.shape_of(*source) != places))
        return {};
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (d != axis && dims[d] != places[d]) return {};
    entries to = numbered(dims), access = to;
    to[axis] = entry("_", dims[axis]);
    access[axis] = entry("!j", places[axis]); // of equal places the last one counts
    auto op = source ? copy_of(c, {x, index, *source}, {to, access, access}, to, "0 + 2")
                     : copy_of(c, {x, index}, {to, access}, to, *value == 0 ? "0" : "");
    op.options.results = {dims};
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes = {{"dim", just(axis)}, {"value", just(value.value_or(0))}};
    return op;
}

inline description embedding(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    c.expect_integers("input", op.operands[0]);
    tensor_shape const &ids = c.shape_of(op.operands[0]), &table = c.shape_of(op.operands[1]);
    // Scaling by frequency counts an id in the whole batch.
    if (table.size() != 2 || c.find(3, "max_norm") || c.flag(5, "scale_grad_by_freq", false)) return {};
    entries result = numbered(ids);
    result.push_back(entry("d", table[1]));
    op.rule = rule_text({numbered(ids), {entry("v", table[0]), result.back()}}, {result}, "1");
    op.options.forward = flops(element_count(ids) * static_cast<double>(table[1]));
    op.options.saved_operands = operand_numbers{0};
    op.options.sparse_operands = {1};
    if (c.find(2, "padding_idx")) {
        op.options.attributes["padding_idx"] = just(c.place("padding_idx", c.integer(2, "padding_idx"), table[0]));
    }
    return op;
}

/// The sum or mean of a table's rows for each line of ids, or for each run of them, which begin at `offsets`: parallel
/// along lines and features, the vocabulary is summed. For runs all ids and places are whole.
inline description embedding_bag(call_view const& c) {
    auto const input = c.find_tensor(0, "input"), weight = c.find_tensor(1, "weight"),
               begins = c.find_tensor(2, "offsets");
    if (!input || !weight) return {};
    tensor_shape const &ids = c.shape_of(*input), &table = c.shape_of(*weight);
    if (ids.size() != (begins ? 1 : 2) || table.size() != 2 || c.find(3, "max_norm") ||
        c.flag(5, "scale_grad_by_freq", false))
        return {};
    std::string const mode = c.text(6, "mode", "mean");
    auto const factors = c.find_tensor(8, "per_sample_weights");
    if (mode != "sum" && (mode != "mean" || factors)) return {};
    if (begins && c.shape_of(*begins).size() != 1) return {};
    extent const lines = begins ? c.shape_of(*begins)[0] - (c.flag(9, "include_last_offset", false) ? 1 : 0) : ids[0];
    if (lines < 1) return {};
    entries const bag = begins ? entries{entry("_", ids[0])} : entries{entry("b", ids[0]), entry("!k", ids[1])};
    std::vector<entries> accesses{bag, {entry("v", table[0]), entry("d", table[1])}};
    described_operator op{{}, {*input, *weight}};
    op.options.saved_operands = operand_numbers{0};
    auto const add = [&](std::optional<tensor_id> t, entries access, char const* name) {
        if (!t) return;
        op.operands.push_back(*t);
        accesses.push_back(std::move(access));
        name_operand(op, name);
        op.options.saved_operands->push_back(static_cast<std::uint8_t>(op.operands.size() - 1));
    };
    add(factors, bag, "factors");
    if (factors) op.options.saved_operands->insert(op.options.saved_operands->begin() + 1, 1);
    if (begins) add(begins, {entry("_", c.shape_of(*begins)[0])}, "offsets");
    op.rule = rule_text(accesses, {{entry("b", lines), accesses[1][1]}}, factors ? "1*2" : "1");
    op.options.results = {{lines, table[1]}};
    op.options.forward = flops(element_count(ids) * static_cast<double>(table[1]) * (factors ? 2 : 1));
    op.options.backward = (factors ? 2 : 1) * *op.options.forward;
    op.options.sparse_operands = {1};
    op.options.attributes["is_mean"] = just(mode == "mean");
    if (c.find(10, "padding_idx"))
        op.options.attributes["padding_idx"] = just(c.place("padding_idx", c.integer(10, "padding_idx"), table[0]));
    return op;
}

/// Makes dispatch and combine masks (batch, sequence, expert, slot). A batch row has slots of its own, so only the
/// batch is parallel.
inline description gating(call_view const& c) {
    described_operator op{{}, c.call().operands};
    if (op.operands.size() != 2 || c.result_count() != 2) return {};
    tensor_shape const &tokens = c.shape_of(op.operands[0]), &gate = c.shape_of(op.operands[1]);
    if (tokens.size() != 3 || gate.size() != 2) return {};
    std::string const b = entry("b", tokens[0]);
    std::vector<entries> const results(2, entries{b, "_", "_", "_"});
    op.rule = rule_text({{b, "_", "_"}, {"_", "_"}}, results);
    if (c.result_shape().empty()) return {};
    op.options.results.assign(
        2, {tokens[0], tokens[1], gate[1], c.result_shape().back()}); // how many slots there are is the model's to say
    double const scores = element_count(tokens) / static_cast<double>(tokens[2]) * static_cast<double>(gate[1]);
    op.options.forward = flops(2 * scores * static_cast<double>(tokens[2]) + 2 * element_count(c.result_shape()));
    op.options.backward = 2 * *op.options.forward;
    op.options.saved_operands = operand_numbers{0, 1};
    op.options.extra_saved = bytes(2 * scores * element_size(c.type_of(op.operands[0])));
    return op;
}

} // namespace heddle::detail
