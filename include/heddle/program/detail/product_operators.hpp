// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of matrix products, convolutions, attention and routing.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

#include <cctype>
#include <map>

namespace heddle::detail {

inline description linear(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]);
    if (input.empty() || weight.size() != 2) return {};
    entries x = numbered(input), result = x;
    x.back() = entry("k", input.back());
    result.back() = entry("n", weight[0]);
    std::vector<entries> operands{x, {result.back(), entry("k", weight[1])}};
    auto const bias = c.find_tensor(2, "bias");
    if (bias) {
        op.operands.push_back(*bias);
        operands.push_back({result.back()});
    }
    op.rule = rule_text(operands, {result}, bias ? "0*1 + 2" : "0*1");
    op.options.category = operator_class::matmul;
    return op;
}

/// The first of these arguments that is a tensor.
inline tensor_id tensor_of(call_view const& c, std::size_t position, std::initializer_list<char const*> names) {
    for (auto const* name : names)
        if (auto const found = c.find_tensor(position, name)) return *found;
    return c.tensor(position, *names.begin());
}

/// A vector on the left is a row, on the right a column, and gives the result no dimension.
inline description matmul(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"other", "mat2", "vec", "tensor"})}};
    shape const &x = c.shape_of(op.operands[0]), &y = c.shape_of(op.operands[1]);
    if (x.empty() || y.empty()) return {};
    auto const leading = [](shape const& s) { return s.size() < 2 ? 0 : s.size() - 2; };
    std::size_t const count = std::max(leading(x), leading(y));
    entries left, right, result;
    for (std::size_t d = 0; d < count; ++d) { // leading dimensions broadcast
        auto const has = [&](shape const& s) { return d + leading(s) >= count; };
        auto const extent_in = [&](shape const& s) { return has(s) ? s[d + leading(s) - count] : 1; };
        std::string const index = "b" + std::to_string(d);
        if (has(x)) left.push_back(entry(index, extent_in(x)));
        if (has(y)) right.push_back(entry(index, extent_in(y)));
        result.push_back(entry(index, std::max(extent_in(x), extent_in(y))));
    }
    if (x.size() > 1) {
        left.push_back(entry("m", x[x.size() - 2]));
        result.push_back(left.back());
    }
    left.push_back(entry("k", x.back()));
    right.push_back(entry("k", y.size() > 1 ? y[y.size() - 2] : y[0]));
    if (y.size() > 1) {
        right.push_back(entry("n", y.back()));
        result.push_back(right.back());
    }
    op.rule = rule_text({left, right}, {result}, "0*1");
    op.options.category = operator_class::matmul;
    return op;
}

/// `beta` times a tensor that broadcasts, plus `alpha` times a product of matrices, or of batches of them.
inline description matmul_added(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"mat1", "batch1"}), tensor_of(c, 2, {"mat2", "batch2"})}};
    shape const &added = c.shape_of(op.operands[0]), &x = c.shape_of(op.operands[1]), &y = c.shape_of(op.operands[2]);
    if (x.size() < 2 || x.size() > 3 || y.size() != x.size() || added.size() > x.size()) return {};
    entries left{entry("m", x[x.size() - 2]), entry("k", x.back())}, right{entry("k", y[y.size() - 2]), entry("n", y.back())}, result{left[0], right[1]};
    if (x.size() == 3)
        for (auto* access : {&left, &right, &result}) access->insert(access->begin(), entry("b", x[0]));
    entries addend(result.end() - static_cast<std::ptrdiff_t>(added.size()), result.end());
    for (std::size_t d = 0; d < added.size(); ++d)
        if (added[d] == 1) addend[d] = "1";
    op.rule = rule_text({addend, left, right}, {result}, "0 + 1*2");
    op.options.category = operator_class::matmul;
    op.options.attributes = {{"beta", just(c.number(3, "beta").value_or(1))}, {"alpha", just(c.number(4, "alpha").value_or(1))}};
    return op;
}

/// The parts of an einsum equation: one string of letters per operand, and of the result. Without
/// `->` the result has the ellipsis, then the letters that occur once, in alphabetical order.
inline std::pair<std::vector<std::string>, std::string> split_equation(std::string equation) {
    std::erase(equation, ' ');
    std::size_t const arrow = equation.find("->");
    std::vector<std::string> operands{{}};
    std::map<char, int> uses;
    for (char letter : equation.substr(0, arrow)) {
        if (letter == ',') operands.emplace_back();
        else ++uses[letter], operands.back() += letter;
    }
    if (arrow != std::string::npos) return {operands, equation.substr(arrow + 2)};
    std::string result = uses.erase('.') > 0 ? "..." : "";
    for (auto [letter, count] : uses)
        if (count == 1) result += letter;
    return {operands, result};
}

/// An index for each letter, and for the places of an ellipsis, aligned at the last, `e0`, `e1`, ... from there on.
inline entries einsum_indices(call_view const& c, std::string const& letters, std::size_t places) {
    entries indices;
    std::size_t const dots = letters.find("...");
    for (std::size_t at = 0; at < letters.size(); ++at) {
        if (at == dots) {
            for (std::size_t n = places; n-- > 0;) indices.push_back("e" + std::to_string(n));
            at += 2;
        } else if (std::isalpha(static_cast<unsigned char>(letters[at]))) {
            indices.emplace_back(1, letters[at]);
        } else {
            c.fail("equation", "has '" + std::string{letters[at]} + "', expected letters and one '...' for each operand");
        }
    }
    return indices;
}

inline description einsum(call_view const& c) {
    auto const* equation = c.find(0, "equation");
    if (!equation || !equation->as<std::string>()) return {}; // operands and lists of numbers
    auto const [letters, result_letters] = split_equation(*equation->as<std::string>());
    described_operator op{{}, c.call().operands};
    if (letters.size() != op.operands.size()) c.fail("equation", "is of " + std::to_string(letters.size()) + " operands, there are " + std::to_string(op.operands.size()));
    std::map<std::string, extent> extents; // the largest: 1 broadcasts
    std::vector<entries> operands;
    std::size_t most_places = 0;
    for (std::size_t k = 0; k < letters.size(); ++k) {
        shape const& dims = c.shape_of(op.operands[k]);
        bool const dots = letters[k].find("...") != std::string::npos;
        std::size_t const named = letters[k].size() - (dots ? 3 : 0), places = dots && dims.size() > named ? dims.size() - named : 0;
        most_places = std::max(most_places, places);
        auto& access = operands.emplace_back(einsum_indices(c, letters[k], places));
        for (std::size_t d = 0; d < access.size(); ++d) {
            extent const size = d < dims.size() ? dims[d] : 1;
            extents[access[d]] = std::max(extents[access[d]], size);
            access[d] = entry(access[d], size);
        }
    }
    entries result = einsum_indices(c, result_letters, most_places);
    for (auto& index : result) {
        if (!extents.contains(index)) c.fail("equation", "has '" + index + "' in the result alone");
        index = entry(index, extents[index]);
    }
    op.rule = rule_text(operands, {result}, all_terms(op.operands.size(), "*"));
    op.options.category = op.operands.size() > 1 ? operator_class::matmul : operator_class::reduction;
    return op;
}

inline description convolution(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]), &output = c.result_shape();
    extent const groups = c.integer(6, "groups", 1);
    if (input.size() < 3 || weight.size() != input.size() || output.size() != input.size()) return {};
    if (groups < 1) c.fail("groups", "is " + std::to_string(groups) + ", expected at least 1");
    if (weight[1] * groups != input[1])
        c.fail("weight", "has " + std::to_string(weight[1]) + " channels in each of " + std::to_string(groups) +
                         " groups, the input has " + std::to_string(input[1]));
    bool const grouped = groups > 1;
    entries x = blocked(input), w = blocked(weight), result = blocked(output);
    x[0] = result[0] = entry("b", input[0]);
    x[1] = grouped ? "(g i)" : entry("i", input[1]);
    w[0] = result[1] = grouped ? "(g o)" : entry("o", weight[0]);
    w[1] = entry("i", weight[1]);
    std::vector<entries> operands{x, w};
    if (auto const bias = c.find_tensor(2, "bias")) {
        op.operands.push_back(*bias);
        operands.push_back({w[0]});
    }
    op.rule = rule_text(operands, {result}, operands.size() == 3 ? "0*1 + 2" : "0*1");
    op.options.category = operator_class::convolution;
    std::size_t const rank = input.size() - 2;
    auto& attributes = op.options.attributes;
    attributes = {{"stride", sides(c, 3, "stride", rank)}, {"dilation", sides(c, 5, "dilation", rank)}, {"groups", just(groups)}};
    auto const* padding = c.find(4, "padding");
    if (!padding || !padding->as<std::string>()) {
        attributes["padding"] = sides(c, 4, "padding", rank);
    } else if (*padding->as<std::string>() == "same") { // what an odd total leaves over is at the end
        for (std::size_t d = 0; d < rank; ++d) {
            extent const dilation = attributes["dilation"].empty() ? 1 : static_cast<extent>(attributes["dilation"][d]);
            attributes["padding"].push_back(static_cast<double>(dilation * (weight[d + 2] - 1) / 2));
        }
    }
    if (grouped) op.options.extents = {{"g", groups}};
    op.options.forward = flops(2 * element_count(output) * element_count(weight) / static_cast<double>(weight[0]));
    return op;
}

/// The adjoint of a convolution: each input element adds a window to the output.
inline description convolution_transpose(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]), &output = c.result_shape();
    extent const groups = c.integer(6, "groups", 1);
    if (input.size() < 3 || weight.size() != input.size() || output.size() != input.size()) return {};
    if (groups < 1) c.fail("groups", "is " + std::to_string(groups) + ", expected at least 1");
    if (weight[0] != input[1]) c.fail("weight", "has " + std::to_string(weight[0]) + " input channels, the input has " + std::to_string(input[1]));
    bool const grouped = groups > 1;
    entries x = blocked(input), w = blocked(weight), result = blocked(output);
    x[0] = result[0] = entry("b", input[0]);
    x[1] = w[0] = grouped ? "(g i)" : entry("i", input[1]);
    w[1] = entry("o", weight[1]);
    result[1] = grouped ? "(g o)" : w[1];
    std::vector<entries> operands{x, w};
    if (auto const bias = c.find_tensor(2, "bias")) {
        op.operands.push_back(*bias);
        operands.push_back({result[1]});
    }
    op.rule = rule_text(operands, {result}, operands.size() == 3 ? "0*1 + 2" : "0*1");
    op.options.category = operator_class::convolution;
    std::size_t const rank = input.size() - 2;
    op.options.attributes = {{"stride", sides(c, 3, "stride", rank)}, {"padding", sides(c, 4, "padding", rank)},
                             {"dilation", sides(c, 7, "dilation", rank)}, {"groups", just(groups)}};
    if (grouped) op.options.extents = {{"g", groups}};
    op.options.forward = flops(2 * element_count(input) * element_count(weight) / static_cast<double>(weight[0]));
    return op;
}

/// Sizes of one multi-head attention: q is (s b e), the inner width is heads * (width / heads).
struct attention_sizes {
    double s, t, b, e, width, out, heads;

    [[nodiscard]] flops forward() const {
        double const projections = 2 * b * e * width * (s + 2 * t) + 2 * b * s * width * out;
        return flops(projections + 4 * b * s * t * width);
    }
    /// What the backward reads besides operands: q, k, v, the context, and the probabilities, again
    /// after dropout.
    [[nodiscard]] bytes saved(bool dropout, int size) const {
        return bytes((b * width * (2 * s + 2 * t) + (dropout ? 2 : 1) * b * heads * s * t) * size);
    }
};

/// Operands and their accesses, added one by one.
struct operand_list {
    std::vector<tensor_id> tensors;
    std::vector<entries> accesses;
    /// Numbers of the optional operands.
    operator_attributes attributes{};

    /// The operand's number, or nothing where there is no tensor.
    std::string add(std::optional<tensor_id> tensor, entries access, char const* optional = nullptr) {
        if (!tensor) return {};
        if (optional) attributes[optional] = just(tensors.size());
        tensors.push_back(*tensor);
        accesses.push_back(std::move(access));
        return std::to_string(tensors.size() - 1);
    }
};

inline bool is_plain_attention(call_view const& c) {
    bool const extended = c.find(7, "bias_k") || c.find(8, "bias_v") || c.flag(9, "add_zero_attn", false) || c.find(21, "static_k") || c.find(22, "static_v");
    if (extended || !c.find_tensor(5, "in_proj_weight")) return false;
    return c.shape_of(c.tensor(0, "query")).size() == 3 && c.shape_of(c.tensor(1, "key")).size() == 3 && !c.result_shape().empty();
}

inline void set_attention_work(call_view const& c, operator_options& options) {
    auto const size = [](extent e) { return static_cast<double>(e); };
    shape const &q = c.shape_of(c.tensor(0, "query")), &k = c.shape_of(c.tensor(1, "key"));
    double const packed = element_count(c.shape_of(c.tensor(5, "in_proj_weight")));
    attention_sizes const sizes{size(q[0]), size(k[0]), size(q[1]), size(q[2]), packed / size(q[2]) / 3,
                                size(c.result_shape().back()), size(c.integer(4, "num_heads"))};
    bool const dropout = c.flag(13, "training", true) && c.number(10, "dropout_p").value_or(0) > 0;
    options.category = operator_class::attention;
    options.forward = sizes.forward();
    options.backward = 2 * sizes.forward();
    options.extra_saved = sizes.saved(dropout, element_size(c.type_of(c.tensor(0, "query"))));
}

/// Attention with a packed input projection.
///
/// The output projection makes the result linear in its weight and bias: a sum over the heads, in
/// which the bias is a term without heads. Splitting the heads therefore leaves a partial result
/// and needs a partial bias; the other operands that have heads belong to the weight's term.
/// The attention weights, where they are a second result, average over the heads and are linear
/// in nothing: then heads are blocked.
inline description multi_head_attention(call_view const& c) {
    if (!is_plain_attention(c)) return {};
    extent const heads = c.integer(4, "num_heads");
    if (heads < 1) c.fail("num_heads", "is " + std::to_string(heads) + ", expected at least 1");
    shape const &q = c.shape_of(c.tensor(0, "query")), &k = c.shape_of(c.tensor(1, "key"));
    bool const with_weights = c.result_count() > 1;
    std::string const b = entry("b", q[1]), s = entry("!s", q[0]), t = entry("!t", k[0]), e = entry("!e", q[2]);
    std::string const o = entry("!o", c.result_shape().back()), h = with_weights ? "!h" : "h";
    operand_list list;
    list.add(c.tensor(0, "query"), {s, b, e});
    list.add(c.tensor(1, "key"), {t, b, e});
    list.add(c.tensor(2, "value"), {t, b, e});
    list.add(c.tensor(5, "in_proj_weight"), {"(!three " + h + " !d)", e});
    list.add(c.find_tensor(6, "in_proj_bias"), {"(!three " + h + " !d)"}, "in_proj_bias");
    std::string const weight = list.add(c.tensor(11, "out_proj_weight"), {o, "(" + h + " !d)"});
    std::string const bias = list.add(c.find_tensor(12, "out_proj_bias"), {o}, "out_proj_bias");
    auto const padding = c.find_tensor(14, "key_padding_mask"), mask = c.find_tensor(16, "attn_mask");
    list.add(padding, {b, t}, "padding_mask");
    if (mask) list.add(mask, c.shape_of(*mask).size() == 2 ? entries{s, t} : entries{b == "1" ? h : "(b " + h + ")", s, t}, "mask");
    described_operator op{{}, list.tensors};
    if (padding) op.options.attributes["padding_mask_is_boolean"] = just(c.type_of(*padding) == element_type::boolean);
    if (mask) op.options.attributes["mask_is_boolean"] = just(c.type_of(*mask) == element_type::boolean);
    std::string const terms = bias.empty() ? weight : weight + " + " + bias;
    op.rule = with_weights ? rule_text(list.accesses, {{s, b, o}, {b, s, t}}) : rule_text(list.accesses, {{s, b, o}}, terms);
    op.options.extents = {{"three", 3}, {"h", heads}};
    set_attention_work(c, op.options);
    op.options.attributes.insert(list.attributes.begin(), list.attributes.end());
    op.options.attributes["p"] = just(c.flag(13, "training", true) ? c.number(10, "dropout_p").value_or(0) : 0);
    op.options.saved_operands = std::vector<std::uint8_t>{0, 1, 2, 3, static_cast<std::uint8_t>(std::stoi(weight))};
    return op;
}

/// softmax(q k^T + mask) v over the last two dimensions; linear in v.
///
/// Grouped queries: each head of keys and values, `g`, serves `r` heads of queries.
inline description dot_product_attention(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "query"), c.tensor(1, "key"), c.tensor(2, "value")}};
    shape const &q = c.shape_of(op.operands[0]), &k = c.shape_of(op.operands[1]), &v = c.shape_of(op.operands[2]), &result = c.result_shape();
    std::size_t const rank = q.size();
    if (rank < 2 || k.size() != rank || v.size() != rank || result.size() != rank) return {};
    bool const grouped = rank > 2 && c.flag(7, "enable_gqa", false) && k[rank - 3] > 1 && k[rank - 3] < q[rank - 3];
    if (grouped && (q[rank - 3] % k[rank - 3] != 0 || v[rank - 3] != k[rank - 3]))
        c.fail("enable_gqa", "groups " + std::to_string(q[rank - 3]) + " heads of queries by " + std::to_string(k[rank - 3]) + " of keys and " + std::to_string(v[rank - 3]) + " of values");
    // Leading dimensions broadcast: they are numbered from the last one on.
    auto const access = [&](char const* heads, char const* rows, char const* columns, shape const& dims) {
        entries made;
        for (std::size_t d = 0, left = dims.size(); d < dims.size(); ++d, --left)
            made.push_back(entry(left == 1 ? columns : left == 2 ? rows : left == 3 && grouped ? heads : "i" + std::to_string(left), dims[d]));
        return made;
    };
    std::vector<entries> operands{access("(g r)", "!s", "!d", q), access("g", "!t", "!d", k), access("g", "!t", "!e", v)};
    if (auto const mask = c.find_tensor(3, "attn_mask")) {
        shape const& dims = c.shape_of(*mask);
        if (dims.size() > rank || dims.size() < 2) return {};
        op.operands.push_back(*mask);
        operands.push_back(access("(g r)", "!s", "!t", dims));
        name_operand(op, "mask");
        op.options.attributes["mask_is_boolean"] = just(c.type_of(*mask) == element_type::boolean);
    } else if (c.find(3, "attn_mask")) {
        return {};
    }
    op.rule = rule_text(operands, {access("(g r)", "!s", "!e", result)}, "2");
    if (grouped) op.options.extents = {{"g", k[rank - 3]}};
    double const scores = element_count(result) / static_cast<double>(result.back()) * static_cast<double>(k[rank - 2]);
    op.options.category = operator_class::attention;
    op.options.forward = flops(2 * scores * static_cast<double>(q.back() + v.back()));
    op.options.backward = 2 * *op.options.forward;
    op.options.extra_saved = bytes(scores * element_size(c.type_of(op.operands[0])));
    op.options.saved_operands = std::vector<std::uint8_t>{0, 1, 2};
    if (op.operands.size() > 3) op.options.saved_operands->push_back(3);
    op.options.attributes["p"] = just(c.number(4, "dropout_p").value_or(0));
    op.options.attributes["is_causal"] = just(c.flag(5, "is_causal", false));
    if (auto const scale = c.number(6, "scale")) op.options.attributes["scale"] = just(*scale);
    return op;
}

inline description embedding(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    shape const &ids = c.shape_of(op.operands[0]), &table = c.shape_of(op.operands[1]);
    // Scaling by frequency counts an id in the whole batch.
    if (table.size() != 2 || c.find(3, "max_norm") || c.flag(5, "scale_grad_by_freq", false)) return {};
    entries result = numbered(ids);
    result.push_back(entry("d", table[1]));
    op.rule = rule_text({numbered(ids), {entry("v", table[0]), result.back()}}, {result}, "1");
    op.options.forward = flops(element_count(ids) * static_cast<double>(table[1]));
    op.options.saved_operands = std::vector<std::uint8_t>{0};
    op.options.sparse_operands = {1};
    if (c.find(2, "padding_idx")) {
        auto const padding = c.integer(2, "padding_idx");
        op.options.attributes["padding_idx"] = just(padding < 0 ? padding + table[0] : padding);
    }
    return op;
}

/// Dispatch and combine masks (batch, sequence, expert, slot). A batch row has slots of its own, so
/// the batch alone is parallel.
inline description gating(call_view const& c) {
    described_operator op{{}, c.call().operands};
    if (op.operands.size() != 2 || c.result_count() != 2) return {};
    shape const &tokens = c.shape_of(op.operands[0]), &gate = c.shape_of(op.operands[1]);
    if (tokens.size() != 3 || gate.size() != 2) return {};
    std::string const b = entry("b", tokens[0]);
    std::vector<entries> const results(2, entries{b, "_", "_", "_"});
    op.rule = rule_text({{b, "_", "_"}, {"_", "_"}}, results);
    double const scores = element_count(tokens) / static_cast<double>(tokens[2]) * static_cast<double>(gate[1]);
    op.options.forward = flops(2 * scores * static_cast<double>(tokens[2]) + 2 * element_count(c.result_shape()));
    op.options.backward = 2 * *op.options.forward;
    op.options.saved_operands = std::vector<std::uint8_t>{0, 1};
    op.options.extra_saved = bytes(2 * scores * element_size(c.type_of(op.operands[0])));
    return op;
}

} // namespace heddle::detail
