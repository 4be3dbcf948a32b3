// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of matrix products, convolutions, embedding and routing.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

#include <cctype>
#include <map>
#include <set>

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

/// Likewise of a product that has fewer dimensions: of a matrix and a vector, or of two batches of matrices, which is summed over.
inline description product_added(call_view const& c, bool of_batches) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"mat", "batch1"}), tensor_of(c, 2, {"vec", "batch2"})}};
    shape const &added = c.shape_of(op.operands[0]), &x = c.shape_of(op.operands[1]), &y = c.shape_of(op.operands[2]);
    if (x.size() != (of_batches ? 3U : 2U) || y.size() != (of_batches ? 3U : 1U) || added.size() > y.size()) return {};
    std::string const m = entry("m", x[x.size() - 2]), k = entry("k", x.back());
    entries left{m, k}, right{k}, result{m};
    if (of_batches) {
        left.insert(left.begin(), entry("b", x[0]));
        right = {left[0], k, entry("n", y[2])};
        result.push_back(right[2]);
    }
    if (added.size() > result.size()) return {};
    entries addend(result.end() - static_cast<std::ptrdiff_t>(added.size()), result.end());
    for (std::size_t d = 0; d < added.size(); ++d)
        if (added[d] == 1) addend[d] = "1";
    op.rule = rule_text({addend, left, right}, {result}, "0 + 1*2");
    op.kind = "addmm";
    op.options.category = operator_class::matmul;
    op.options.attributes = {{"beta", just(c.number(3, "beta").value_or(1))}, {"alpha", just(c.number(4, "alpha").value_or(1))}};
    return op;
}

/// Each element of a vector times each of another.
inline description outer_product(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"vec2"})}};
    shape const &x = c.shape_of(op.operands[0]), &y = c.shape_of(op.operands[1]);
    if (x.size() != 1 || y.size() != 1) return {};
    entries const rows{entry("i", x[0])}, columns{entry("j", y[0])};
    op.rule = rule_text({rows, columns}, {{rows[0], columns[0]}}, "0*1");
    op.kind = "einsum";
    op.options.category = operator_class::matmul;
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

/// A list of numbers, and perhaps an ellipsis, in letters.
inline std::string einsum_letters(call_view const& c, literal const& list) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (!list.as<literal::list>()) c.fail("equation", "expected a list of numbers after each operand");
    std::string letters;
    for (auto const& item : *list.as<literal::list>()) {
        auto const* number = item.as<std::int64_t>();
        if (!item.as<literal::ellipsis>() && (!number || *number < 0 || *number >= static_cast<std::int64_t>(alphabet.size())))
            c.fail("equation", "expected numbers from 0 to " + std::to_string(alphabet.size() - 1));
        letters += number ? std::string{alphabet[static_cast<std::size_t>(*number)]} : "...";
    }
    return letters;
}
/// The equation, or what operands with lists of numbers, and perhaps one for the result, say.
inline std::string einsum_equation(call_view const& c) {
    if (auto const* equation = c.find(0, "equation"); equation && equation->as<std::string>()) return *equation->as<std::string>();
    auto const& arguments = c.call().arguments;
    std::string equation;
    for (std::size_t n = 0; n + 1 < arguments.size(); n += 2) equation += (n ? "," : "") + einsum_letters(c, arguments[n + 1]);
    return arguments.size() % 2 == 0 ? equation : equation + "->" + einsum_letters(c, arguments.back());
}

/// The work of a product of several operands: of two at a time, in order, summed over what neither the result nor a later one has.
inline void set_pairwise_work(call_view const& c, described_operator& op, std::vector<entries> const& operands, entries const& result, std::map<std::string, extent> const& extents) {
    std::set<std::string> held(operands.front().begin(), operands.front().end());
    double forward = 0, backward = 0;
    bool differentiated = c.is_differentiable(op.operands.front());
    for (std::size_t k = 1; k < operands.size(); ++k) {
        held.insert(operands[k].begin(), operands[k].end());
        double points = 1;
        for (auto const& index : held) points *= index == "1" ? 1 : static_cast<double>(extents.at(index));
        bool const other = c.is_differentiable(op.operands[k]);
        forward += 2 * points;
        backward += 2 * points * ((differentiated ? 1 : 0) + (other ? 1 : 0));
        differentiated |= other;
        std::erase_if(held, [&](std::string const& index) {
            auto const has = [&](entries const& access) { return std::ranges::find(access, index) != access.end(); };
            return !has(result) && std::none_of(operands.begin() + static_cast<std::ptrdiff_t>(k) + 1, operands.end(), has);
        });
    }
    op.options.forward = flops(forward);
    op.options.backward = flops(backward);
}

inline description einsum(call_view const& c) {
    auto const [letters, result_letters] = split_equation(einsum_equation(c));
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
    if (op.operands.size() > 2) set_pairwise_work(c, op, operands, result, extents);
    op.options.category = op.operands.size() > 1 ? operator_class::matmul : operator_class::reduction;
    return op;
}

/// Where the windows of a convolution lie, by the attributes of its operator.
inline std::vector<window_line> convolution_windows(call_view const& c, described_operator const& op, std::size_t rank) {
    shape const& weight = c.shape_of(op.operands[1]);
    auto const numbers = [&](char const* name) {
        auto const found = op.options.attributes.find(name);
        return found == op.options.attributes.end() ? std::vector<double>{} : found->second;
    };
    return window_lines(c, {weight.end() - static_cast<std::ptrdiff_t>(rank), weight.end()}, numbers("stride"), numbers("padding"), numbers("dilation"));
}

/// A convolution over windows of `rank` dimensions, or its adjoint, in which each input element adds a window to the output. There may be no batch.
inline description windows_product(call_view const& c, std::size_t rank, bool adjoint) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]), &output = c.result_shape();
    bool const batched = input.size() == rank + 2;
    if (weight.size() != rank + 2 || input.size() + 1 < weight.size() || input.size() > weight.size() || output.size() != input.size()) return {};
    extent const groups = c.integer(6, "groups", 1);
    std::size_t const channels = batched ? 1 : 0;
    c.expect_within("groups", groups, 1, input[channels]);
    extent const in = adjoint ? weight[0] : weight[1] * groups, out = adjoint ? weight[1] * groups : weight[0];
    if (in != input[channels])
        c.fail("weight", "takes " + std::to_string(in) + " channels in " + std::to_string(groups) + " groups, the input has " + std::to_string(input[channels]));
    entries x = blocked(input), w = blocked(weight), result = blocked(output);
    if (batched) x[0] = result[0] = entry("b", input[0]);
    x[channels] = groups > 1 ? "(g i)" : entry("i", in);
    result[channels] = groups > 1 ? "(g o)" : entry("o", out);
    w[0] = adjoint ? x[channels] : result[channels];
    w[1] = adjoint ? entry("o", weight[1]) : entry("i", weight[1]);
    std::vector<entries> operands{x, w};
    if (auto const bias = c.find_tensor(2, "bias")) {
        op.operands.push_back(*bias);
        operands.push_back({result[channels]});
    }
    op.rule = rule_text(operands, {result}, operands.size() == 3 ? "0*1 + 2" : "0*1");
    op.options.category = operator_class::convolution;
    op.options.attributes = {{"stride", sides(c, 3, "stride", rank)}, {"dilation", sides(c, adjoint ? 7 : 5, "dilation", rank)}, {"groups", just(groups)}};
    if (groups > 1) op.options.extents = {{"g", groups}};
    op.options.forward = flops(2 * element_count(adjoint ? input : output) * element_count(weight) / static_cast<double>(weight[0]));
    return op;
}

template <std::size_t Rank>
description convolution(call_view const& c) {
    auto op = windows_product(c, Rank, false);
    if (!op) return {};
    auto& attributes = op->options.attributes;
    auto const* padding = c.find(4, "padding");
    bool const by_name = padding && padding->as<std::string>(), same = by_name && *padding->as<std::string>() == "same";
    if (!by_name) attributes["padding"] = sides(c, 4, "padding", Rank);
    auto lines = convolution_windows(c, *op, Rank);
    shape result = c.result_shape();
    for (std::size_t d = 0; d < Rank; ++d) {
        extent const places = c.shape_of(op->operands[0])[result.size() - Rank + d];
        if (same) attributes["padding"].push_back(static_cast<double>((lines[d].reach() - 1) / 2)); // what an odd total leaves over is at the end
        result[result.size() - Rank + d] = same ? places : lines[d].count(places);
        if (same && lines[d].stride != 1) c.fail("padding", "is 'same' with stride " + std::to_string(lines[d].stride) + ", expected stride 1");
    }
    op->options.results = {result};
    return op;
}
template <std::size_t Rank>
description convolution_transpose(call_view const& c) {
    auto op = windows_product(c, Rank, true);
    if (!op) return {};
    op->options.attributes["padding"] = sides(c, 4, "padding", Rank);
    auto const lines = convolution_windows(c, *op, Rank);
    auto more = sides(c, 5, "output_padding", Rank);
    more.resize(Rank);
    shape result = c.result_shape();
    for (std::size_t d = 0; d < Rank; ++d) {
        auto const& line = lines[d];
        extent const added = static_cast<extent>(more[d]), places = c.shape_of(op->operands[0])[result.size() - Rank + d];
        c.expect_within("output_padding", added, 0, std::max(line.stride, line.dilation) - 1);
        result[result.size() - Rank + d] = (places - 1) * line.stride - 2 * line.padding + line.reach() + added;
    }
    op->options.results = {result};
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
        op.options.attributes["padding_idx"] = just(c.place("padding_idx", c.integer(2, "padding_idx"), table[0]));
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
    if (c.result_shape().empty()) return {};
    op.options.results.assign(2, {tokens[0], tokens[1], gate[1], c.result_shape().back()}); // how many slots there are is the model's to say
    double const scores = element_count(tokens) / static_cast<double>(tokens[2]) * static_cast<double>(gate[1]);
    op.options.forward = flops(2 * scores * static_cast<double>(tokens[2]) + 2 * element_count(c.result_shape()));
    op.options.backward = 2 * *op.options.forward;
    op.options.saved_operands = std::vector<std::uint8_t>{0, 1};
    op.options.extra_saved = bytes(2 * scores * element_size(c.type_of(op.operands[0])));
    return op;
}

} // namespace heddle::detail
