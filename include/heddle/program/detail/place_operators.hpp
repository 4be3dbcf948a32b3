// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that repeat, shift, pad and mask elements by their places.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/view_operators.hpp>

#include <array>
#include <limits>

namespace heddle::detail {

/// Repeats a whole tensor side by side: the copies are an index that only the result has.
inline description repeat(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
    tensor_shape target = c.result_shape();
    if (target.size() < dims.size()) return {};
    auto const times = c.integers(1, c.find(1, "dims") ? "dims" : "repeats");
    for (std::size_t d = 0; d < target.size() && !times.empty(); ++d) {
        auto const from_end = [&](auto const& list) {
            return d + list.size() < target.size() ? 1 : list[d + list.size() - target.size()];
        };
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

/// Repeats each element of a dimension several times.
inline description repeat_interleave(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const* times = c.find(1, "repeats");
    tensor_shape const& dims = c.shape_of(x);
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

/// Blocks the dimensions whose places move.
inline described_operator moved(call_view const& c, tensor_id x, std::vector<bool> const& moves,
                                tensor_shape const& result, bool linear = true) {
    tensor_shape const& dims = c.shape_of(x);
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

/// Returns one integer or a list of them.
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
    for (auto d : integers_at(c, 2, "dims"))
        dims.push_back(static_cast<double>(c.axis(static_cast<std::int64_t>(d), rank, "dims")));
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

/// Adds elements before and after the last dimensions; if their value is not zero the operator is affine.
inline description padding(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    auto const sides = c.integers(1, "pad");
    constexpr std::array<std::string_view, 4> modes{"constant", "reflect", "replicate", "circular"};
    auto const mode = algorithm::find(modes, c.text(2, "mode", "constant"));
    if (sides.size() % 2 != 0 || sides.size() > 2 * rank)
        c.fail("pad", "expected two numbers for each of at most " + std::to_string(rank) + " dimensions");
    if (mode == modes.end()) return {};
    std::vector<double> pad(2 * rank);
    std::vector<bool> moves(rank);
    tensor_shape result = c.shape_of(x);
    for (std::size_t s = 0; s < sides.size(); ++s) {
        std::size_t const d = rank - 1 - s / 2;
        extent const size = c.shape_of(x)[d];
        if (*mode == "circular" && sides[s] < 0) return {};
        c.expect_within("pad", sides[s], -size,
                        *mode == "reflect"    ? size - 1
                        : *mode == "circular" ? size
                                              : std::numeric_limits<std::int32_t>::max());
        pad[2 * d + s % 2] = static_cast<double>(sides[s]);
        result[d] += sides[s];
        if (sides[s] != 0) moves[d] = true;
    }
    double const value = c.number(3, "value").value_or(0);
    auto op = moved(c, x, moves, result, mode != modes.begin() || value == 0);
    op.options.attributes = {{"pad", pad}, {"mode", just(mode - modes.begin())}, {"value", just(value)}};
    return op;
}

/// Keeps what of the last two dimensions lies on one side of a diagonal: each element by its place in the whole.
inline description triangle(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    if (c.shape_of(x).size() < 2) return {};
    entries const access = numbered(c.shape_of(x));
    auto op = copy_of(c, {x}, {access}, access);
    op.options.attributes["diagonal"] = just(c.integer(1, "diagonal", 0));
    return op;
}

/// Returns the entry of one dimension with these factors, major first.
[[nodiscard]] inline std::string entry_of(std::vector<std::pair<std::string, extent>> const& factors) {
    std::string text;
    std::size_t count = 0;
    for (auto const& [index, size] : factors)
        if (size > 1) text += (count++ > 0 ? " " : "") + index;
    return count == 0 ? "1" : count == 1 ? text : "(" + text + ")";
}

/// Turns channels into places of finer rows and columns, or the other way; only their factors move to other dimensions.
inline description shuffle_pixels(call_view const& c, char const* name, bool is_finer) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
    std::size_t const rank = dims.size();
    if (rank < 3) return {};
    extent const channels = dims[rank - 3], rows = dims[rank - 2], columns = dims[rank - 1], times = c.integer(1, name);
    c.expect_within(name, times, 1, is_finer ? channels : std::min(rows, columns));
    if (is_finer ? channels % (times * times) != 0 : rows % times != 0 || columns % times != 0)
        c.fail(name, "does not divide " + to_text(dims));
    std::pair<std::string, extent> const k{"k", is_finer ? channels / (times * times) : channels},
        h{"h", is_finer ? rows : rows / times}, w{"w", is_finer ? columns : columns / times}, r{"r", times},
        s{"s", times};
    entries coarse = numbered({dims.begin(), dims.end() - 3}), fine = coarse;
    coarse.insert(coarse.end(), {entry_of({k, r, s}), entry_of({h}), entry_of({w})});
    fine.insert(fine.end(), {entry_of({k}), entry_of({h, r}), entry_of({w, s})});
    auto op = copy_of(c, {x}, {is_finer ? coarse : fine}, is_finer ? fine : coarse);
    for (auto const& [index, size] : {k, h, w, r, s})
        if (size > 1) op.options.extents[index] = size;
    return op;
}
inline description pixel_shuffle(call_view const& c) { return shuffle_pixels(c, "upscale_factor", true); }
inline description pixel_unshuffle(call_view const& c) { return shuffle_pixels(c, "downscale_factor", false); }

/// Picks where two dimensions have the same place, up to an offset; a last dimension replaces the two.
inline description diagonal(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
    auto const offset = c.integer(1, "offset", 0);
    std::size_t const row = c.axis(c.integer(2, "dim1", 0), dims.size(), "dim1"),
                      column = c.axis(c.integer(3, "dim2", 1), dims.size(), "dim2");
    if (row == column) c.fail("dim2", "is the same dimension as 'dim1'");
    c.expect_within("offset", offset, 1 - dims[row], dims[column] - 1);
    extent const length = std::min(dims[row] + std::min<extent>(offset, 0), dims[column] - std::max<extent>(offset, 0));
    entries from = numbered(dims), to;
    for (std::size_t d : {row, column}) from[d] = entry("_", dims[d]);
    tensor_shape result;
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (d != row && d != column) {
            to.push_back(from[d]);
            result.push_back(dims[d]);
        }
    to.push_back(entry("_", length));
    result.push_back(length);
    auto op = copy_of(c, {x}, {from}, to);
    op.options.results = {result};
    op.options.attributes = {{"offset", just(offset)}, {"dim1", just(row)}, {"dim2", just(column)}};
    return op;
}

} // namespace heddle::detail
