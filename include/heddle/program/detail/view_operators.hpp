// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that move elements and compute nothing.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

#include <numeric>
#include <set>

namespace heddle::detail {

inline described_operator view_of(tensor_id operand, entries const& from, entries const& to) {
    described_operator op{rule_text({from}, {to}, "0"), {operand}};
    op.options.is_view = true;
    return op;
}

/// Both sides of a reshape in the coarsest factors that make up both shapes.
///
/// Dimensions fall into groups, the least runs of both sides that hold the same elements. In a group
/// the places where either side cuts are cuts of both, if each divides the next; otherwise (24 as
/// 6 x 4 and as 8 x 3) only the least cut that all of them divide is one, and the rest is blocked.
class regrouping {
public:
    /// *Precondition:* both shapes hold the same number of elements.
    regrouping(shape const& before, shape const& after) {
        std::size_t i = 0, j = 0;
        while (i < before.size() || j < after.size()) {
            shape left_run, right_run;
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
    void add_group(extent total, shape const& left, shape const& right) {
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

    /// The dimensions of one side; a piece that no two cuts bound is that side's own, and blocked.
    void write(extent high, shape const& dims, std::set<extent> const& cuts, entries& side, std::string const& own) {
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

/// Any change of shape that keeps the elements in order.
inline description reshape(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const &from = c.shape_of(x), &to = c.result_shape();
    if (element_count(from) != element_count(to)) c.fail("input", "has another number of elements than the result");
    regrouping const groups(from, to);
    described_operator op = view_of(x, groups.from, groups.to);
    op.options.extents = groups.extents;
    return op;
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
    std::ranges::reverse(order);
    return permuted(c, x, order);
}

/// The properties `T` and `mT`.
inline description attribute(call_view const& c) {
    std::string const name = c.text(1, "name", "");
    std::size_t const rank = c.shape_of(c.tensor(0, "input")).size();
    return name == "T" || (name == "mT" && rank == 2) ? reversed(c) : description{};
}

inline description permute(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const rank = c.shape_of(x).size();
    std::vector<std::size_t> order;
    for (auto dimension : c.integers(1, "dims")) order.push_back(c.axis(dimension, rank, "dims"));
    auto sorted = order;
    std::ranges::sort(sorted);
    if (sorted != identity_order(rank)) c.fail("dims", "expected each dimension once");
    return permuted(c, x, order);
}

/// The new places of an expanded dimension are an index of the result alone.
inline description expand(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const &dims = c.shape_of(x), &target = c.result_shape();
    if (target.size() < dims.size()) return {};
    entries const to = numbered(target);
    entries from(to.end() - static_cast<std::ptrdiff_t>(dims.size()), to.end());
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (dims[d] == 1) from[d] = "1";
    return view_of(x, from, to);
}

/// Concatenation is linear in all its operands together.
inline description concatenate(call_view const& c) {
    described_operator op{{}, c.call().operands};
    if (op.operands.empty()) return {};
    std::size_t const rank = c.shape_of(op.operands.front()).size();
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), rank);
    std::vector<entries> operands;
    for (tensor_id t : op.operands) {
        operands.push_back(numbered(c.shape_of(t)));
        if (operands.back().size() != rank) return {};
        operands.back()[axis] = "_";
    }
    op.rule = rule_text(operands, {operands.front()}, all_terms(operands.size(), " + "));
    op.options.forward = flops(element_count(c.result_shape()));
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// `split`, `chunk`: several results along one blocked dimension.
inline description divide(call_view const& c) {
    tensor_id const x = c.tensor(0, c.call().keywords.contains("tensor") ? "tensor" : "input"); // as torch.functional.split has it
    entries access = numbered(c.shape_of(x));
    std::size_t const axis = c.axis(c.integer(2, "dim", 0), access.size());
    access[axis] = "_";
    described_operator op{rule_text({access}, std::vector<entries>(c.result_count(), access), "0"), {x}};
    op.options.attributes["dim"] = just(axis);
    op.options.is_view = true;
    return op;
}

/// Integers and slices. A dimension they take whole keeps its index, any other is blocked.
inline description get_item(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const* index = c.find(1, "index");
    if (!index) return {};
    auto const* several = index->as<literal::list>();
    literal::list const items = several ? *several : literal::list{*index};
    auto const kept = std::ranges::count_if(items, [](literal const& i) { return !i.is_none() && !i.as<literal::ellipsis>(); });
    entries from, to;
    std::vector<double> start, step, count; // by dimension; a count of zero takes all of it
    entries const dims = numbered(c.shape_of(x));
    if (static_cast<std::size_t>(kept) > dims.size()) return {};
    auto const keep = [&] {
        to.push_back(dims[from.size()]);
        from.push_back(to.back());
        start.push_back(0);
        step.push_back(1);
        count.push_back(0);
    };
    auto const place = [&](std::int64_t at) {
        extent const size = c.shape_of(x)[from.size() - 1];
        return static_cast<double>(std::clamp<extent>(at < 0 ? at + size : at, 0, size));
    };
    for (auto const& item : items) {
        auto const* slice = item.as<literal::slice>();
        if (item.is_none()) to.emplace_back("1");
        else if (item.as<literal::ellipsis>()) for (auto n = dims.size() - static_cast<std::size_t>(kept); n > 0; --n) keep();
        else if (slice && slice->is_whole()) keep();
        else if (slice || item.as<std::int64_t>()) { from.emplace_back("_"); if (slice) to.emplace_back("_"); }
        else return {};
        if (from.size() > dims.size()) return {};
        if (start.size() == from.size()) continue;
        start.push_back(place(slice ? slice->start.value_or(0) : *item.as<std::int64_t>()));
        step.push_back(slice ? static_cast<double>(slice->step.value_or(1)) : 1);
        count.push_back(slice && to.size() <= c.result_shape().size() ? static_cast<double>(c.result_shape()[to.size() - 1]) : 1);
    }
    while (from.size() < dims.size()) keep();
    shape const& result = c.result_shape();
    if (to.size() != result.size()) return {}; // a list of integers picks elements
    for (std::size_t d = 0; d < to.size(); ++d)
        if (to[d] == "_") to[d] = entry("_", result[d]);
    described_operator op = view_of(x, from, to);
    op.options.attributes = {{"start", start}, {"step", step}, {"count", count}};
    return op;
}

/// Puts a class token before each sequence.
inline description append_class_token(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "x"), c.tensor(1, "cls_token")}};
    shape const &x = c.shape_of(op.operands[0]), &token = c.shape_of(op.operands[1]);
    if (x.size() != 3 || token != shape{1, 1, x[2]}) return {};
    entries access = numbered(x);
    access[1] = "_";
    op.rule = rule_text({access, {"1", "1", access[2]}}, {access}, "0 + 1");
    op.options.forward = flops(element_count(c.result_shape()));
    return op;
}

inline description get_class_token(call_view const& c) {
    tensor_id const x = c.tensor(0, "x");
    entries access = numbered(c.shape_of(x));
    if (access.size() != 3) return {};
    access[1] = "_";
    return view_of(x, access, {access[0], access[2]});
}

} // namespace heddle::detail
