// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that move elements and compute nothing.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/described_operator.hpp>

#include <numeric>
#include <set>
#include <utility>

namespace heddle::detail {

inline described_operator view_of(tensor_id operand, entries const& from, entries const& to) {
    described_operator op{rule_text({from}, {to}, "0"), {operand}};
    op.options.is_view = true;
    return op;
}

/// A linear copy of elements; its result is a tensor of its own.
inline described_operator copy_of(call_view const& c, std::vector<tensor_id> operands, std::vector<entries> const& from,
                                  entries const& to, std::string const& terms = "0") {
    described_operator op{rule_text(from, {to}, terms), std::move(operands)};
    op.options.category = operator_class::elementwise;
    op.options.forward = flops(element_count(c.result_shape()));
    return op;
}

/// Writes both sides of a reshape in the coarsest factors that make up both shapes.
///
/// Dimensions fall into groups, the shortest runs of both sides that hold the same elements. If in a group the cuts of
/// both sides divide each other in a chain, all of them are cuts of both sides. Otherwise (24 as 6 x 4 and as 8 x 3)
/// only the least cut that all of them divide is one, and the rest is blocked.
class regrouping {
public:
    /// *Precondition:* both shapes hold the same number of elements.
    regrouping(tensor_shape const& before, tensor_shape const& after) {
        std::size_t i = 0, j = 0;
        while (i < before.size() || j < after.size()) {
            tensor_shape left_run, right_run;
            extent left = 1, right = 1;
            do
                if (left <= right && i < before.size()) left *= left_run.emplace_back(before[i++]);
                else right *= right_run.emplace_back(after[j++]);
            while (left != right);
            add_group(left, left_run, right_run);
        }
    }

    entries from, to;
    index_extents extents;

private:
    void add_group(extent total, tensor_shape const& left, tensor_shape const& right) {
        std::set<extent> cuts{1, total};
        for (auto const* side : {&left, &right}) {
            extent stride = 1;
            for (auto e = side->rbegin(); e != side->rend(); ++e) cuts.insert(stride *= *e);
        }
        extent previous = 1, common = 1;
        bool chain = true;
        for (extent cut : cuts) {
            chain &= cut % previous == 0;
            previous = cut;
            if (cut < total) common = std::lcm(common, cut);
        }
        if (!chain) cuts = {common, total};
        write(total, left, cuts, from, "x");
        write(total, right, cuts, to, "y");
        ++number_;
    }

    /// Writes the dimensions of one side. A piece that no two cuts bound belongs to that side alone and is blocked.
    void write(extent high, tensor_shape const& dims, std::set<extent> const& cuts, entries& side,
               std::string const& own) {
        for (extent e : dims) {
            extent const bottom = high / e;
            std::vector<std::string> pieces;
            while (high > bottom) {
                auto const cut = cuts.lower_bound(high);
                extent const low = cut == cuts.begin() ? bottom : std::max(bottom, *std::prev(cut));
                bool const shared = cuts.contains(high) && cuts.contains(low);
                std::string const name = (shared ? "g" : own) + std::to_string(number_) + "_" + std::to_string(low);
                extents[name] = high / low;
                pieces.push_back((shared ? "" : "!") + name);
                high = low;
            }
            std::string text = pieces.empty() ? "1" : pieces.front();
            for (std::size_t p = 1; p < pieces.size(); ++p) text += " " + pieces[p];
            side.push_back(pieces.size() > 1 ? "(" + text + ")" : text);
        }
    }

    int number_ = 0;
};

/// Checks that the result has these sizes; -1 stands for any size.
inline void expect_sizes(call_view const& c, std::size_t position, std::string_view name) {
    auto const* found = c.find(position, name);
    auto const* list = found ? found->as<literal::list>() : nullptr;
    if (!found || (list && !algorithm::all_of(*list, [](literal const& l) { return l.as<std::int64_t>() != nullptr; })))
        return;
    auto const sizes = c.integers(position, name);
    tensor_shape const& stated = c.result_shape();
    if (!sizes.empty() &&
        !algorithm::equal(sizes, stated, [](std::int64_t size, extent e) { return size == -1 || size == e; }))
        c.fail(name,
               "is " + to_text(tensor_shape(sizes.begin(), sizes.end())) + ", the result has shape " + to_text(stated));
}

/// Any change of shape that keeps the elements in order.
inline description reshape(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const &from = c.shape_of(x), &to = c.result_shape();
    if (element_count(from) != element_count(to))
        c.fail("input",
               "has shape " + to_text(from) + ", another number of elements than the result of shape " + to_text(to));
    regrouping const groups(from, to);
    described_operator op = view_of(x, groups.from, groups.to);
    op.options.extents = groups.extents;
    return op;
}

inline description reshape_to(call_view const& c) {
    expect_sizes(c, 1, c.find(1, "shape") ? "shape" : "size");
    return reshape(c);
}
inline description reshape_like(call_view const& c) {
    if (c.shape_of(c.tensor(1, "other")) != c.result_shape())
        c.fail("other", "has another shape than the result, " + to_text(c.result_shape()));
    return reshape(c);
}

/// Adds a dimension of one element, or removes such dimensions.
inline description unsqueeze(call_view const& c) {
    tensor_shape dims = c.shape_of(c.tensor(0, "input"));
    if (c.find(1, "dim")) {
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(c.axis(c.integer(1, "dim"), dims.size() + 1)), 1);
        if (dims != c.result_shape())
            c.fail("dim", "gives shape " + to_text(dims) + ", the result has " + to_text(c.result_shape()));
    }
    return reshape(c);
}
inline description squeeze(call_view const& c) {
    tensor_shape const& dims = c.shape_of(c.tensor(0, "input"));
    for (auto d : c.integers(1, "dim")) static_cast<void>(c.axis(d, dims.size()));
    return reshape(c);
}

inline description permuted(call_view const& c, tensor_id x, std::vector<std::size_t> const& order) {
    entries const from = numbered(c.shape_of(x));
    entries to;
    for (std::size_t d : order) to.push_back(from[d]);
    return view_of(x, from, to);
}

inline std::vector<std::size_t> identity_order(std::size_t rank) {
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

inline description transpose(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto order = identity_order(c.shape_of(x).size());
    auto const axis = [&](std::size_t position, std::string_view name, std::string_view other) { // by either name
        return c.axis(c.integer(position, c.find(position, name) ? name : other), order.size(), name);
    };
    std::swap(order[axis(1, "dim0", "axis0")], order[axis(2, "dim1", "axis1")]);
    return permuted(c, x, order);
}

inline description reversed(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto order = identity_order(c.shape_of(x).size());
    algorithm::reverse(order);
    return permuted(c, x, order);
}

/// Handles the properties `T` and `mT`.
inline description attribute(call_view const& c) {
    std::string const name = c.text(1, "name", "");
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    if (name == "T" || (name == "mT" && rank == 2)) return reversed(c);
    if (name != "mT" || rank < 2) return {};
    auto order = identity_order(rank);
    std::swap(order[rank - 1], order[rank - 2]);
    return permuted(c, c.tensor(0, "input"), order);
}

inline description permute(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    std::vector<std::size_t> order;
    for (auto dimension : c.integers(1, "dims")) order.push_back(c.axis(dimension, rank, "dims"));
    auto sorted = order;
    algorithm::sort(sorted);
    if (sorted != identity_order(rank)) c.fail("dims", "expected each dimension once");
    return permuted(c, x, order);
}

/// Moves dimensions to other places; the others stay in order.
inline description move_dimensions(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    auto const listed = [&](std::size_t position, char const* name) {
        std::vector<std::size_t> axes;
        auto const* found = c.find(position, name);
        if (found && found->as<std::int64_t>()) return std::vector{c.axis(*found->as<std::int64_t>(), rank, name)};
        for (auto d : c.integers(position, name)) axes.push_back(c.axis(d, rank, name));
        return axes;
    };
    auto const from = listed(1, "source"), to = listed(2, "destination");
    if (from.size() != to.size() || std::set(from.begin(), from.end()).size() != from.size() ||
        std::set(to.begin(), to.end()).size() != to.size())
        c.fail("destination", "expected as many different dimensions as in 'source'");
    std::vector<std::size_t> order(rank, rank), rest;
    for (std::size_t k = 0; k < from.size(); ++k) order[to[k]] = from[k];
    for (std::size_t d = 0; d < rank; ++d)
        if (algorithm::find(from, d) == from.end()) rest.push_back(d);
    auto next = rest.begin();
    for (auto& d : order)
        if (d == rank) d = *next++;
    auto op = permuted(c, x, order);
    op->kind = "permute";
    return op;
}

/// The new places of an expanded dimension are an index that only the result has.
inline description expand(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const &dims = c.shape_of(x), &target = c.result_shape();
    if (target.size() < dims.size()) return {};
    expect_sizes(c, 1, "size");
    if (auto const other = c.find_tensor(1, "other")) c.expect_shape("other", *other, target);
    entries const to = numbered(target);
    entries from(to.end() - static_cast<std::ptrdiff_t>(dims.size()), to.end());
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (dims[d] == 1) from[d] = "1";
    auto op = view_of(x, from, to);
    op.options.results = {target};
    return op;
}

} // namespace heddle::detail
