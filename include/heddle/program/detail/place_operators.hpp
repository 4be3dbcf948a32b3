// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that repeat, shift, pad, pick and scatter elements.
#pragma once

#include <heddle/program/detail/pointwise_operators.hpp>
#include <heddle/program/detail/view_operators.hpp>

#include <array>
#include <cmath>
#include <limits>

namespace heddle::detail {

/// A copy of elements, linear, whose result is a tensor of its own.
inline described_operator copy_of(call_view const& c, std::vector<tensor_id> operands, std::vector<entries> const& from, entries const& to, std::string const& terms = "0") {
    described_operator op{rule_text(from, {to}, terms), std::move(operands)};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(element_count(c.result_shape()));
    return op;
}

/// Copies of a whole tensor side by side: the copies are an index of the result alone.
inline description repeat(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const& dims = c.shape_of(x);
    shape target = c.result_shape();
    if (target.size() < dims.size()) return {};
    auto const times = c.integers(1, c.find(1, "dims") ? "dims" : "repeats");
    for (std::size_t d = 0; d < target.size() && !times.empty(); ++d) {
        auto const from_end = [&](auto const& list) { return d + list.size() < target.size() ? 1 : list[d + list.size() - target.size()]; };
        extent const copies = from_end(times);
        c.expect_within("repeats", copies, 1, target[d]);
        target[d] = from_end(dims) * copies;
    }
    entries const from = numbered(dims);
    entries to;
    index_extents extents;
    for (std::size_t d = 0; d < target.size(); ++d) {
        std::string const copies = "r" + std::to_string(d);
        bool const is_new = d + dims.size() < target.size();
        extent const size = is_new ? 1 : dims[d + dims.size() - target.size()];
        std::string const place = is_new ? "1" : from[d + dims.size() - target.size()];
        if (target[d] % size != 0) return {};
        if (target[d] == size) to.push_back(place);
        else to.push_back(place == "1" ? copies : "(" + copies + " " + place + ")");
        if (target[d] != size) extents[copies] = target[d] / size;
    }
    auto op = copy_of(c, {x}, {from}, to);
    op.options.extents = extents;
    return op;
}

/// Each element of a dimension several times.
inline description repeat_interleave(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const* times = c.find(1, "repeats");
    shape const& dims = c.shape_of(x);
    if (!times || !times->as<std::int64_t>() || !c.find(2, "dim")) return {};
    std::size_t const axis = c.axis(c.integer(2, "dim"), dims.size());
    extent const count = *times->as<std::int64_t>();
    if (count < 1 || c.result_shape().size() != dims.size()) return {};
    c.expect_within("repeats", count, 1, c.result_shape()[axis]);
    entries const from = numbered(dims);
    entries to = from;
    if (count > 1) to[axis] = to[axis] == "1" ? "r" : "(" + to[axis] + " r)";
    auto op = copy_of(c, {x}, {from}, to);
    if (count > 1) op.options.extents = {{"r", count}};
    return op;
}

/// Dimensions whose places move are blocked.
inline described_operator moved(call_view const& c, tensor_id x, std::vector<bool> const& moves, shape const& result, bool linear = true) {
    shape const& dims = c.shape_of(x);
    entries from = numbered(dims), to = from;
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (moves[d]) {
            from[d] = entry("_", dims[d]);
            to[d] = entry("_", result[d]);
        }
    auto op = copy_of(c, {x}, {from}, to, linear ? "0" : "");
    op.options.results = {result};
    return op;
}

inline std::vector<bool> flags_of(std::vector<double> const& dims, std::size_t rank) {
    std::vector<bool> flags(rank);
    for (auto d : dims) flags[static_cast<std::size_t>(d)] = true;
    return flags;
}

inline std::vector<double> axes(call_view const& c, std::size_t position, std::size_t rank) {
    std::vector<double> list;
    for (auto d : c.integers(position, "dims")) list.push_back(static_cast<double>(c.axis(d, rank, "dims")));
    return list;
}

/// One integer or a list of them.
inline std::vector<double> integers_at(call_view const& c, std::size_t position, std::string_view name) {
    auto const* found = c.find(position, name);
    if (found && found->as<std::int64_t>()) return just(*found->as<std::int64_t>());
    std::vector<double> list;
    for (auto i : c.integers(position, name)) list.push_back(static_cast<double>(i));
    return list;
}

inline description roll(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    auto const shifts = integers_at(c, 1, "shifts");
    std::vector<double> dims;
    for (auto d : integers_at(c, 2, "dims")) dims.push_back(static_cast<double>(c.axis(static_cast<std::int64_t>(d), rank, "dims")));
    if (dims.empty() || dims.size() != shifts.size()) return {}; // of the flattened tensor
    auto op = moved(c, x, flags_of(dims, rank), c.shape_of(x));
    op.options.attributes = {{"dims", dims}, {"shifts", shifts}};
    return op;
}

inline description flip(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    auto const dims = axes(c, 1, rank);
    auto op = moved(c, x, flags_of(dims, rank), c.shape_of(x));
    op.options.attributes["dims"] = dims;
    return op;
}

/// Elements before and after the last dimensions; by a number other than zero it is affine.
inline description padding(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    auto const sides = c.integers(1, "pad");
    constexpr std::array<std::string_view, 4> modes{"constant", "reflect", "replicate", "circular"};
    auto const mode = std::ranges::find(modes, c.text(2, "mode", "constant"));
    if (sides.size() % 2 != 0 || sides.size() > 2 * rank) c.fail("pad", "expected two numbers for each of at most " + std::to_string(rank) + " dimensions");
    if (mode == modes.end()) return {};
    std::vector<double> pad(2 * rank);
    std::vector<bool> moves(rank);
    shape result = c.shape_of(x);
    for (std::size_t s = 0; s < sides.size(); ++s) {
        std::size_t const d = rank - 1 - s / 2;
        extent const size = c.shape_of(x)[d];
        if (*mode == "circular" && sides[s] < 0) return {};
        c.expect_within("pad", sides[s], -size, *mode == "reflect" ? size - 1 : *mode == "circular" ? size : std::numeric_limits<std::int32_t>::max());
        pad[2 * d + s % 2] = static_cast<double>(sides[s]);
        result[d] += sides[s];
        if (sides[s] != 0) moves[d] = true;
    }
    double const value = c.number(3, "value").value_or(0);
    auto op = moved(c, x, moves, result, mode != modes.begin() || value == 0);
    op.options.attributes = {{"pad", pad}, {"mode", just(mode - modes.begin())}, {"value", just(value)}};
    return op;
}

/// Every slice along a dimension as a result of its own.
inline description unbind(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    entries from = numbered(c.shape_of(x));
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), from.size());
    entries to = from;
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    from[axis] = entry("_", c.shape_of(x)[axis]);
    c.expect_results(static_cast<std::size_t>(c.shape_of(x)[axis]));
    described_operator op{rule_text({from}, std::vector<entries>(c.result_count(), to), "0"), {x}};
    op.options.attributes["dim"] = just(axis);
    op.options.is_view = true;
    return op;
}
inline description stack(call_view const& c) {
    auto const& operands = c.call().operands;
    if (operands.empty()) return {};
    shape const& dims = c.shape_of(operands.front());
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), dims.size() + 1);
    entries to = numbered(dims);
    std::vector<entries> const from(operands.size(), to);
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), entry("_", static_cast<extent>(operands.size())));
    for (auto t : operands)
        if (c.shape_of(t) != dims) return {};
    auto op = copy_of(c, operands, from, to, all_terms(operands.size(), " + "));
    shape result = dims;
    result.insert(result.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<extent>(operands.size()));
    op.options.results = {result};
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// What a mask of some dimensions picks takes their place, as long as the result says: what is picked from and by is whole.
inline description slices_of_mask(call_view const& c, tensor_id x, std::size_t axis, tensor_id mask) {
    shape const &dims = c.shape_of(x), &places = c.shape_of(mask), &result = c.result_shape();
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

/// Whole slices at the places that a tensor holds, whose dimensions take the place of the one they are of: parallel along them.
inline description slices_at(call_view const& c, tensor_id x, std::size_t axis, tensor_id index) {
    if (c.type_of(index) == element_type::boolean) return slices_of_mask(c, x, axis, index);
    if (is_floating(c.type_of(index))) return {};
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
inline description index_select(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index");
    if (c.shape_of(index).size() != 1) return {};
    return slices_at(c, x, c.axis(c.integer(1, "dim"), c.shape_of(x).size()), index);
}
/// Integers and slices, or one tensor of places beside dimensions taken whole; `absent` says whether none takes one whole too, or adds one.
inline description index_by(call_view const& c, bool absent) {
    auto const* index = c.find(1, "index");
    if (!index) return get_item(c);
    auto const* several = index->as<literal::list>();
    literal::list const items = several ? *several : literal::list{*index};
    auto const tensors = std::ranges::count_if(items, [](literal const& i) { return i.as<literal::tensor>() != nullptr; });
    if (tensors == 0 && !absent) return get_item(c);
    if (tensors != 1) return {};
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    std::size_t next = 0, axis = rank;
    tensor_id places = 0;
    for (std::size_t n = 0; n < items.size(); ++n) {
        auto const* slice = items[n].as<literal::slice>();
        if (auto const* t = items[n].as<literal::tensor>()) {
            axis = next++;
            places = t->id;
        } else if (items[n].as<literal::ellipsis>() && items.size() <= rank + 1) {
            next = rank + n + 1 - items.size();
        } else if ((slice && slice->is_whole()) || (absent && items[n].is_none())) {
            ++next;
        } else {
            return {};
        }
    }
    return axis < rank && next <= rank ? slices_at(c, x, axis, places) : description{};
}
inline description get_item_at(call_view const& c) { return index_by(c, false); }
inline description index_list(call_view const& c) { return index_by(c, true); }

/// What is left of a dimension from which elements are picked.
enum class kept_dimension { several, one, none };

/// The largest or smallest of a dimension, and where they are.
inline described_operator ranked(call_view const& c, std::size_t axis, kept_dimension kept, bool largest, extent count = 1) {
    tensor_id const x = c.tensor(0, "input");
    shape const& dims = c.shape_of(x);
    shape result = dims;
    result[axis] = count;
    if (kept == kept_dimension::none) result.erase(result.begin() + static_cast<std::ptrdiff_t>(axis));
    entries from = numbered(dims), to = from;
    from[axis] = entry("_", dims[axis]);
    if (kept == kept_dimension::none) to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    else to[axis] = kept == kept_dimension::one ? "1" : entry("_", count);
    described_operator op{rule_text({from}, {to, to}), {x}};
    op.options.results = {result, result};
    op.options.category = operator_class::reduction;
    op.options.forward = flops(element_count(dims) * (kept == kept_dimension::several ? std::log2(static_cast<double>(dims[axis]) + 1) : 1));
    op.options.backward = flops(element_count(result));
    op.options.saved_operands = operand_numbers{};
    op.options.saved_results = {1};
    op.options.attributes = {{"dim", just(axis)}, {"largest", just(largest)}};
    return op;
}
inline description largest(call_view const& c) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
    if (c.result_count() != 2 || dims.empty()) return {};
    std::size_t const axis = c.axis(c.integer(2, "dim", -1), dims.size());
    extent const count = c.integer(1, "k");
    c.expect_within("k", count, 1, dims[axis]);
    return ranked(c, axis, kept_dimension::several, c.flag(3, "largest", true), count);
}

/// All of a dimension in order, and where it was.
inline description sorted(call_view const& c) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
    if (c.result_count() != 2 || dims.empty() || c.flag(3, "stable", false)) return {};
    std::size_t const axis = c.axis(c.integer(1, "dim", -1), dims.size());
    auto op = ranked(c, axis, kept_dimension::several, c.flag(2, "descending", false), dims[axis]);
    op.kind = "topk";
    return op;
}

/// A one at the place that each element names, along a dimension of its own at the end.
inline description one_hot(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
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

/// Elements at a place each, along a dimension; the others must be whole.
inline description gather_elements(call_view const& c) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index");
    shape const &dims = c.shape_of(x), &places = c.shape_of(index);
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

/// The first operand plus slices, or elements, of the third at the places of the second: a sum over the places.
inline description scattered(call_view const& c, bool for_each_element) {
    tensor_id const x = c.tensor(0, "input"), index = c.tensor(2, "index"), source = c.tensor(3, for_each_element ? "src" : "source");
    shape const &dims = c.shape_of(x), &from = c.shape_of(source);
    std::size_t const axis = c.axis(c.integer(1, "dim"), dims.size());
    bool const is_scaled = c.find(4, "alpha") && c.number(4, "alpha") != 1.0;
    if (from.size() != dims.size() || is_scaled) return {};
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (d != axis && dims[d] != from[d]) return {};
    if (c.shape_of(index) != (for_each_element ? from : shape{from[axis]})) return {};
    entries to = numbered(dims), access = to;
    to[axis] = entry("_", dims[axis]);
    access[axis] = entry("j", from[axis]);
    auto op = copy_of(c, {x, index, source}, {to, for_each_element ? access : entries{access[axis]}, access}, to, "0 + 2");
    op.options.results = {dims};
    op.options.forward = flops(element_count(from));
    op.options.saved_operands = operand_numbers{1};
    op.options.attributes["dim"] = just(axis);
    return op;
}
inline description index_add(call_view const& c) { return scattered(c, false); }
inline description scatter_add(call_view const& c) { return scattered(c, true); }

/// What of the last two dimensions lies on one side of a diagonal: each element by its place in the whole.
inline description triangle(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    if (c.shape_of(x).size() < 2) return {};
    entries const access = numbered(c.shape_of(x));
    auto op = copy_of(c, {x}, {access}, access);
    op.options.attributes["diagonal"] = just(c.integer(1, "diagonal", 0));
    return op;
}

} // namespace heddle::detail
