// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of matrix products.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/pointwise_operators.hpp>

#include <cctype>
#include <map>
#include <set>

namespace heddle::detail {

inline description linear(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), c.tensor(1, "weight")}};
    tensor_shape const &input = c.shape_of(op.operands[0]), &weight = c.shape_of(op.operands[1]);
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

/// Returns the first of these arguments that is a tensor.
inline tensor_id tensor_of(call_view const& c, std::size_t position, std::initializer_list<char const*> names) {
    for (auto const* name : names)
        if (auto const found = c.find_tensor(position, name)) return *found;
    return c.tensor(position, *names.begin());
}

/// A vector on the left counts as a row, one on the right as a column; either gives the result no dimension.
inline description matmul(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"other", "mat2", "vec", "tensor"})}};
    tensor_shape const &x = c.shape_of(op.operands[0]), &y = c.shape_of(op.operands[1]);
    if (x.empty() || y.empty()) return {};
    auto const leading = [](tensor_shape const& s) { return s.size() < 2 ? 0 : s.size() - 2; };
    std::size_t const count = std::max(leading(x), leading(y));
    entries left, right, result;
    for (std::size_t d = 0; d < count; ++d) { // leading dimensions broadcast
        auto const has = [&](tensor_shape const& s) { return d + leading(s) >= count; };
        auto const extent_in = [&](tensor_shape const& s) { return has(s) ? s[d + leading(s) - count] : 1; };
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

/// Adds `beta` times a tensor that broadcasts to `alpha` times a product of matrices, or of batches of them.
inline description matmul_added(call_view const& c) {
    described_operator op{
        {}, {c.tensor(0, "input"), tensor_of(c, 1, {"mat1", "batch1"}), tensor_of(c, 2, {"mat2", "batch2"})}};
    tensor_shape const &added = c.shape_of(op.operands[0]), &x = c.shape_of(op.operands[1]),
                       &y = c.shape_of(op.operands[2]);
    if (x.size() < 2 || x.size() > 3 || y.size() != x.size() || added.size() > x.size()) return {};
    entries left{entry("m", x[x.size() - 2]), entry("k", x.back())},
        right{entry("k", y[y.size() - 2]), entry("n", y.back())}, result{left[0], right[1]};
    if (x.size() == 3)
        for (auto* access : {&left, &right, &result}) access->insert(access->begin(), entry("b", x[0]));
    entries addend(result.end() - static_cast<std::ptrdiff_t>(added.size()), result.end());
    for (std::size_t d = 0; d < added.size(); ++d)
        if (added[d] == 1) addend[d] = "1";
    op.rule = rule_text({addend, left, right}, {result}, "0 + 1*2");
    op.options.category = operator_class::matmul;
    op.options.attributes = {{"beta", just(c.number(3, "beta").value_or(1))},
                             {"alpha", just(c.number(4, "alpha").value_or(1))}};
    return op;
}

/// As above, for a product that has fewer dimensions: of a matrix and a vector, or of two batches of matrices that is
/// summed over the batch.
inline description product_added(call_view const& c, bool of_batches) {
    described_operator op{
        {}, {c.tensor(0, "input"), tensor_of(c, 1, {"mat", "batch1"}), tensor_of(c, 2, {"vec", "batch2"})}};
    tensor_shape const &added = c.shape_of(op.operands[0]), &x = c.shape_of(op.operands[1]),
                       &y = c.shape_of(op.operands[2]);
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
    op.options.attributes = {{"beta", just(c.number(3, "beta").value_or(1))},
                             {"alpha", just(c.number(4, "alpha").value_or(1))}};
    return op;
}

/// Multiplies each element of a vector by each of another.
inline description outer_product(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input"), tensor_of(c, 1, {"vec2"})}};
    tensor_shape const &x = c.shape_of(op.operands[0]), &y = c.shape_of(op.operands[1]);
    if (x.size() != 1 || y.size() != 1) return {};
    entries const rows{entry("i", x[0])}, columns{entry("j", y[0])};
    op.rule = rule_text({rows, columns}, {{rows[0], columns[0]}}, "0*1");
    op.kind = "einsum";
    op.options.category = operator_class::matmul;
    return op;
}

/// Returns the parts of an einsum equation: one string of letters per operand, and that of the result. Without `->` the
/// result has the ellipsis, then the letters that occur once, in alphabetical order.
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

/// Returns an index for each letter. The places of an ellipsis are aligned at the last and are named `e0`, `e1`, ...
/// from there on.
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
            c.fail("equation",
                   "has '" + std::string{letters[at]} + "', expected letters and one '...' for each operand");
        }
    }
    return indices;
}

/// Writes a list of numbers, perhaps with an ellipsis, as letters.
inline std::string einsum_letters(call_view const& c, literal const& list) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (!list.as<literal::list>()) c.fail("equation", "expected a list of numbers after each operand");
    std::string letters;
    for (auto const& item : *list.as<literal::list>()) {
        auto const* number = item.as<std::int64_t>();
        if (!item.as<literal::ellipsis>() &&
            (!number || *number < 0 || *number >= static_cast<std::int64_t>(alphabet.size())))
            c.fail("equation", "expected numbers from 0 to " + std::to_string(alphabet.size() - 1));
        letters += number ? std::string{alphabet[static_cast<std::size_t>(*number)]} : "...";
    }
    return letters;
}
/// Returns the equation; it may also be given as a list of numbers after each operand, and perhaps one for the result.
inline std::string einsum_equation(call_view const& c) {
    if (auto const* equation = c.find(0, "equation"); equation && equation->as<std::string>())
        return *equation->as<std::string>();
    auto const& arguments = c.call().arguments;
    std::string equation;
    for (std::size_t n = 0; n + 1 < arguments.size(); n += 2)
        equation += (n ? "," : "") + einsum_letters(c, arguments[n + 1]);
    return arguments.size() % 2 == 0 ? equation : equation + "->" + einsum_letters(c, arguments.back());
}

/// Sets the work of a product of several operands. They are multiplied two at a time, in order, and each product is
/// summed over what neither the result nor a later operand has.
inline void set_pairwise_work(call_view const& c, described_operator& op, std::vector<entries> const& operands,
                              entries const& result, std::map<std::string, extent> const& extents) {
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
            auto const has = [&](entries const& access) { return algorithm::find(access, index) != access.end(); };
            return !has(result) &&
                   std::none_of(operands.begin() + static_cast<std::ptrdiff_t>(k) + 1, operands.end(), has);
        });
    }
    op.options.forward = flops(forward);
    op.options.backward = flops(backward);
}

/// For each matrix of a weight, multiplies one vector, the matrix and another vector.
inline description bilinear(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "input1"), c.tensor(1, "input2"), c.tensor(2, "weight")}};
    tensor_shape const &x = c.shape_of(op.operands[0]), &y = c.shape_of(op.operands[1]),
                       &weight = c.shape_of(op.operands[2]);
    if (x.empty() || x.size() != y.size() || weight.size() != 3) return {};
    std::map<std::string, extent> extents{{"i", x.back()}, {"j", y.back()}, {"n", weight[0]}};
    entries left = numbered(x, "b"), right = left, result = left;
    for (std::size_t d = 0; d + 1 < x.size(); ++d) extents[left[d]] = x[d];
    left.back() = entry("i", x.back());
    right.back() = entry("j", y.back());
    result.back() = entry("n", weight[0]);
    std::vector<entries> operands{left, right, {result.back(), left.back(), right.back()}};
    set_pairwise_work(c, op, operands, result, extents);
    if (auto const bias = c.find_tensor(3, "bias")) {
        op.operands.push_back(*bias);
        operands.push_back({result.back()});
    }
    op.rule = rule_text(operands, {result}, op.operands.size() > 3 ? "0*1*2 + 3" : "0*1*2");
    op.kind = "einsum";
    op.options.category = operator_class::matmul;
    return op;
}

/// Describes the product of complex numbers, which are pairs in a whole last dimension: linear in each operand.
inline description complex_product(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), y = c.tensor(1, "other");
    for (auto const t : {x, y})
        if (c.shape_of(t).empty() || c.shape_of(t).back() != 2) return {};
    auto op = broadcast_operator(c, {x, y}, "0*1");
    tensor_shape const whole = broadcast(c, {x, y});
    entries result = numbered(whole);
    result.back() = "_";
    std::vector<entries> operands;
    for (auto const t : {x, y}) operands.push_back(broadcast_access(result, c.shape_of(t)));
    op.rule = rule_text(operands, {result}, "0*1");
    op.options.results = {whole};
    op.options.forward = flops(3 * element_count(whole));
    op.options.backward =
        flops(3 * element_count(whole) * ((c.is_differentiable(x) ? 1 : 0) + (c.is_differentiable(y) ? 1 : 0)));
    op.options.saved_operands = operand_numbers{0, 1};
    return op;
}

inline description einsum(call_view const& c) {
    auto const [letters, result_letters] = split_equation(einsum_equation(c));
    described_operator op{{}, c.call().operands};
    if (letters.size() != op.operands.size())
        c.fail("equation", "is of " + std::to_string(letters.size()) + " operands, there are " +
                               std::to_string(op.operands.size()));
    std::map<std::string, extent> extents; // the largest: 1 broadcasts
    std::vector<entries> operands;
    std::size_t most_places = 0;
    for (std::size_t k = 0; k < letters.size(); ++k) {
        tensor_shape const& dims = c.shape_of(op.operands[k]);
        bool const dots = letters[k].find("...") != std::string::npos;
        std::size_t const named = letters[k].size() - (dots ? 3 : 0),
                          places = dots && dims.size() > named ? dims.size() - named : 0;
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

} // namespace heddle::detail
