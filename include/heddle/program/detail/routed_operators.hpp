// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of tokens that are sorted by their experts, and of what is put at places held in tensors.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/lookup_operators.hpp>
#include <heddle/program/detail/product_operators.hpp>

#include <cmath>

namespace heddle::detail {

/// How many elements there are in each of `bins` equal parts of a range: a sum over the elements.
inline description histogram(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const bins = c.integer(1, "bins", 100);
    auto const low = c.number(2, "min").value_or(0), high = c.number(3, "max").value_or(0);
    if (c.shape_of(x).size() != 1 || !(low < high)) return {}; // else of the range that the elements have
    c.expect_within("bins", bins, 1, c.result_shape().empty() ? 0 : c.result_shape()[0]);
    described_operator op{rule_text({numbered(c.shape_of(x))}, {{entry("bins", bins)}}), {x}};
    op.options.results = {{bins}};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(element_count(c.shape_of(x)));
    op.options.saved_operands = operand_numbers{};
    op.options.stops_gradient = true;
    op.options.attributes = {{"bins", just(bins)}, {"min", just(low)}, {"max", just(high)}};
    return op;
}

/// The product of each run of rows and a matrix of its own; the third operand holds where the runs end.
///
/// A part of the rows is the same with less of the runs, a part of the matrices leaves the other runs zero: the result
/// is a sum over the matrices.
inline description grouped_product(call_view const& c) {
    tensor_id const x = c.tensor(0, c.call().keywords.contains("mat1") ? "mat1" : "input"),
                    weight = tensor_of(c, 1, {"weight", "mat2"});
    auto const ends = c.find_tensor(2, "offs");
    if (!ends || c.find(3, "bias")) return {};
    c.expect_integers("offs", *ends);
    tensor_shape const &rows = c.shape_of(x), &matrices = c.shape_of(weight);
    if (rows.size() != 2 || matrices.size() != 3) return {};
    c.expect_shape("offs", *ends, {matrices[0]});
    entries const access{entry("n", rows[0]), entry("k", rows[1])};
    entries const by{entry("e", matrices[0]), entry("k", matrices[1]), entry("m", matrices[2])};
    described_operator op{rule_text({access, by, {entry("_", matrices[0])}}, {{access[0], by[2]}}, "0*1"),
                          {x, weight, *ends}};
    op.options.category = operator_class::matmul;
    op.options.forward = flops(2 * element_count(rows) * static_cast<double>(matrices[2]));
    op.options.backward = *op.options.forward *
                          static_cast<double>((c.is_differentiable(x) ? 1 : 0) + (c.is_differentiable(weight) ? 1 : 0));
    op.options.saved_operands = operand_numbers{0, 1, 2};
    return op;
}

/// The first operand with elements of the last in place of those at the places that the others hold, of adjacent
/// dimensions; of equal places the last one counts, or all are added.
inline description index_put(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), values = c.tensor(2, "values");
    auto const* indices = c.find(1, "indices");
    auto const* items = indices ? indices->as<literal::list>() : nullptr;
    if (!items) return {};
    std::vector<tensor_id> places;
    std::size_t axis = 0;
    for (std::size_t n = 0; n < items->size(); ++n) {
        auto const* slice = (*items)[n].as<literal::slice>();
        if (auto const* t = (*items)[n].as<literal::tensor>()) {
            if (places.empty()) axis = n;
            if (axis + places.size() != n || is_floating(c.type_of(t->id)) || c.type_of(t->id) == element_type::boolean)
                return {};
            places.push_back(t->id);
        } else if (!(*items)[n].is_none() && !(slice && slice->is_whole())) {
            return {};
        }
    }
    tensor_shape const& dims = c.shape_of(x);
    if (places.empty() || axis + places.size() > dims.size()) return {};
    bool const adds = c.flag(3, "accumulate", false);
    tensor_shape const at = broadcast(c, places);
    tensor_shape put = dims; // of the values, once they are broadcast
    auto const first = static_cast<std::ptrdiff_t>(axis);
    put.erase(put.begin() + first, put.begin() + first + static_cast<std::ptrdiff_t>(places.size()));
    put.insert(put.begin() + first, at.begin(), at.end());
    if (c.shape_of(values) != put) return {};
    entries to = numbered(dims), from = to;
    entries const index = numbered(at, adds ? "j" : "!j");
    from.erase(from.begin() + first, from.begin() + first + static_cast<std::ptrdiff_t>(places.size()));
    from.insert(from.begin() + first, index.begin(), index.end());
    for (std::size_t n = 0; n < places.size(); ++n) to[axis + n] = entry("_", dims[axis + n]);
    std::vector<entries> accesses{to};
    operand_numbers saved;
    for (auto const t : places) {
        saved.push_back(static_cast<std::uint8_t>(accesses.size()));
        accesses.push_back(broadcast_access(index, c.shape_of(t)));
    }
    accesses.push_back(from);
    std::vector<tensor_id> operands{x};
    operands.insert(operands.end(), places.begin(), places.end());
    operands.push_back(values);
    auto op = copy_of(c, std::move(operands), std::move(accesses), to, "0 + " + std::to_string(places.size() + 1));
    op.options.results = {dims};
    op.options.forward = flops(element_count(put));
    op.options.saved_operands = saved;
    op.options.attributes = {{"dim", just(axis)}, {"accumulate", just(adds)}};
    return op;
}

} // namespace heddle::detail
