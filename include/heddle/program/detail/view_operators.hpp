// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that move elements and compute nothing.
#pragma once

#include <heddle/program/detail/described_operator.hpp>

#include <limits>
#include <numeric>
#include <set>
#include <utility>

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

/// The result has these sizes, of which -1 may be any.
inline void expect_sizes(call_view const& c, std::size_t position, std::string_view name) {
    auto const* found = c.find(position, name);
    auto const* list = found ? found->as<literal::list>() : nullptr;
    if (!found || (list && !std::ranges::all_of(*list, [](literal const& l) { return l.as<std::int64_t>() != nullptr; }))) return;
    auto const sizes = c.integers(position, name);
    shape const& stated = c.result_shape();
    if (!sizes.empty() && !std::ranges::equal(sizes, stated, [](std::int64_t size, extent e) { return size == -1 || size == e; }))
        c.fail(name, "is " + to_text(shape(sizes.begin(), sizes.end())) + ", the result has shape " + to_text(stated));
}

/// Any change of shape that keeps the elements in order.
inline description reshape(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const &from = c.shape_of(x), &to = c.result_shape();
    if (element_count(from) != element_count(to))
        c.fail("input", "has shape " + to_text(from) + ", another number of elements than the result of shape " + to_text(to));
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
    if (c.shape_of(c.tensor(1, "other")) != c.result_shape()) c.fail("other", "has another shape than the result, " + to_text(c.result_shape()));
    return reshape(c);
}

/// Adds a dimension of one element, or leaves such dimensions out.
inline description unsqueeze(call_view const& c) {
    shape dims = c.shape_of(c.tensor(0, "input"));
    if (c.find(1, "dim")) {
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(c.axis(c.integer(1, "dim"), dims.size() + 1)), 1);
        if (dims != c.result_shape()) c.fail("dim", "gives shape " + to_text(dims) + ", the result has " + to_text(c.result_shape()));
    }
    return reshape(c);
}
inline description squeeze(call_view const& c) {
    shape const& dims = c.shape_of(c.tensor(0, "input"));
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
    std::ranges::reverse(order);
    return permuted(c, x, order);
}

/// The properties `T` and `mT`.
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
    std::ranges::sort(sorted);
    if (sorted != identity_order(rank)) c.fail("dims", "expected each dimension once");
    return permuted(c, x, order);
}

/// Dimensions at other places, the others in order.
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
    if (from.size() != to.size() || std::set(from.begin(), from.end()).size() != from.size() || std::set(to.begin(), to.end()).size() != to.size())
        c.fail("destination", "expected as many different dimensions as in 'source'");
    std::vector<std::size_t> order(rank, rank), rest;
    for (std::size_t k = 0; k < from.size(); ++k) order[to[k]] = from[k];
    for (std::size_t d = 0; d < rank; ++d)
        if (std::ranges::find(from, d) == from.end()) rest.push_back(d);
    auto next = rest.begin();
    for (auto& d : order)
        if (d == rank) d = *next++;
    auto op = permuted(c, x, order);
    op->kind = "permute";
    return op;
}

/// The new places of an expanded dimension are an index of the result alone.
inline description expand(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    shape const &dims = c.shape_of(x), &target = c.result_shape();
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

/// Concatenation is linear in all its operands together.
inline description concatenate(call_view const& c) {
    described_operator op{{}, c.call().operands};
    if (op.operands.empty()) return {};
    shape const& first = c.shape_of(op.operands.front());
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), first.size());
    entries access = numbered(first);
    access[axis] = "_";
    shape whole = first;
    whole[axis] = 0;
    for (tensor_id t : op.operands) {
        shape alike = c.shape_of(t);
        if (alike.size() != first.size()) return {};
        whole[axis] += std::exchange(alike[axis], first[axis]);
        if (alike != first)
            c.fail("tensors", "has shapes " + to_text(first) + " and " + to_text(c.shape_of(t)) + ", expected them alike in all dimensions but " + std::to_string(axis));
    }
    op.rule = rule_text(std::vector<entries>(op.operands.size(), access), {access}, all_terms(op.operands.size(), " + "));
    op.options.results = {whole};
    op.options.forward = flops(element_count(whole));
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// How long pieces of a dimension are: `split` and `chunk` by a length, `tensor_split` as evenly as they can be, or as a list says.
inline std::vector<extent> piece_lengths(call_view const& c, extent whole) {
    literal const* sizes = nullptr;
    for (char const* name : {"split_size_or_sections", "split_size", "split_sizes", "chunks", "sections", "indices", "indices_or_sections"})
        if (sizes = c.find(1, name); sizes) break;
    if (!sizes) c.fail("split_size_or_sections", "expected an integer or a list of them");
    bool const evenly = c.call().target.ends_with("tensor_split"), chunks = c.call().target.ends_with("chunk");
    std::vector<extent> lengths;
    auto const number = [&](literal const& l) {
        if (!l.as<std::int64_t>()) c.fail("split_size_or_sections", "expected integers");
        return *l.as<std::int64_t>();
    };
    if (auto const* list = sizes->as<literal::list>()) {
        extent at = 0;
        for (auto const& item : *list) {
            lengths.push_back(evenly ? number(item) - at : number(item));
            at += lengths.back();
            c.expect_within("split_size_or_sections", at, 0, whole);
        }
        if (evenly) lengths.push_back(whole - at);
        else c.expect_within("split_size_or_sections", at, whole, whole);
        return lengths;
    }
    extent const n = number(*sizes);
    c.expect_within("split_size_or_sections", n, 1, std::numeric_limits<extent>::max());
    c.expect_within("split_size_or_sections", static_cast<std::int64_t>(c.result_count()), 1, whole); // there is no piece of nothing
    if (evenly) {
        c.expect_results(static_cast<std::size_t>(n));
        for (extent k = 0; k < n; ++k) lengths.push_back(whole / n + (k < whole % n ? 1 : 0));
        return lengths;
    }
    extent const length = chunks ? (whole - 1) / n + 1 : n;
    c.expect_results(static_cast<std::size_t>((whole - 1) / length + 1));
    for (extent at = 0; at < whole; at += std::min(length, whole - at)) lengths.push_back(std::min(length, whole - at));
    return lengths;
}

/// Several results along one blocked dimension.
inline description divide(call_view const& c) {
    tensor_id const x = c.tensor(0, c.call().keywords.contains("tensor") ? "tensor" : "input"); // as torch.functional.split has it
    shape const& dims = c.shape_of(x);
    entries access = numbered(dims);
    std::size_t const axis = c.axis(c.integer(2, "dim", 0), access.size());
    access[axis] = "_";
    described_operator op{rule_text({access}, std::vector<entries>(c.result_count(), access), "0"), {x}};
    for (extent length : piece_lengths(c, dims[axis])) op.options.results.emplace_back(dims)[axis] = length;
    c.expect_results(op.options.results.size());
    op.options.attributes["dim"] = just(axis);
    op.options.is_view = true;
    return op;
}

/// What integers and slices take of a tensor, dimension by dimension: one that is taken whole keeps its index, any other is blocked.
class slicing {
public:
    slicing(call_view const& c, tensor_id x) : call_(c), x_(x), dims_(c.shape_of(x)), indices_(numbered(dims_)) {}

    /// Dimensions that nothing has been said of yet.
    [[nodiscard]] std::size_t left() const { return dims_.size() - from_.size(); }
    [[nodiscard]] std::size_t result_rank() const { return to_.size(); }

    void keep() {
        to_.push_back(indices_[from_.size()]);
        result_.push_back(size());
        take(to_.back(), 0, 1, 0);
    }
    void keep(std::size_t count) {
        while (count-- > 0) keep();
    }
    /// A dimension of its own.
    void insert() {
        to_.emplace_back("1");
        result_.push_back(1);
    }
    void pick(std::string_view name, std::int64_t index) { take(entry("_", size()), call_.place(name, index, size()), 1, 1); }
    /// *Precondition:* `count` places from `start` on are there.
    void run(extent start, extent count, extent step) {
        if (count == size()) return keep();
        to_.push_back(entry("_", count));
        result_.push_back(count);
        take("_", start, step, count);
    }
    void range(std::string_view name, literal::slice const& s) {
        auto const bound = [&](std::int64_t at) { return std::clamp<extent>(at < 0 ? at + size() : at, 0, size()); };
        extent const start = bound(s.start.value_or(0)), stop = bound(s.stop.value_or(size())), step = s.step.value_or(1);
        if (step < 1) call_.fail(name, "has step " + std::to_string(step) + ", expected at least 1");
        if (stop <= start) call_.fail(name, "takes places " + std::to_string(start) + " to " + std::to_string(stop) + ", expected at least one");
        run(start, (stop - start - 1) / step + 1, step);
    }

    [[nodiscard]] described_operator finish() const {
        auto op = view_of(x_, from_, to_);
        op.options.results = {result_};
        op.options.attributes = {{"start", start_}, {"step", step_}, {"count", count_}};
        return op;
    }

private:
    [[nodiscard]] extent size() const { return dims_[from_.size()]; }
    void take(std::string access, extent start, extent step, extent count) {
        from_.push_back(std::move(access));
        start_.push_back(static_cast<double>(start));
        step_.push_back(static_cast<double>(step));
        count_.push_back(static_cast<double>(count));
    }

    call_view const& call_;
    tensor_id x_;
    shape const& dims_;
    entries indices_, from_{}, to_{};
    shape result_{};
    std::vector<double> start_{}, step_{}, count_{}; // by dimension; a count of zero takes all of it
};

/// Integers and slices.
inline description get_item(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const* index = c.find(1, "index");
    literal const absent{};
    if (!index && c.call().arguments.size() > 1) index = &absent; // x[None]
    if (!index) return {};
    auto const* several = index->as<literal::list>();
    literal::list const items = several ? *several : literal::list{*index};
    auto const kept = static_cast<std::size_t>(std::ranges::count_if(items, [](literal const& i) { return !i.is_none() && !i.as<literal::ellipsis>(); }));
    std::size_t const rank = c.shape_of(x).size();
    if (kept > rank) c.fail("index", "is of " + std::to_string(kept) + " dimensions, there are " + std::to_string(rank));
    slicing slices(c, x);
    for (auto const& item : items) {
        if (item.is_none()) slices.insert();
        else if (item.as<literal::ellipsis>()) slices.keep(std::min(rank - kept, slices.left()));
        else if (slices.left() == 0) return {};
        else if (auto const* slice = item.as<literal::slice>()) slices.range("index", *slice);
        else if (auto const* at = item.as<std::int64_t>()) slices.pick("index", *at);
        else return {};
        if (slices.result_rank() > c.result_shape().size()) return {}; // a list of integers picks elements
    }
    slices.keep(slices.left());
    return slices.result_rank() == c.result_shape().size() ? description{slices.finish()} : description{};
}
/// One place of a dimension, or places from a start on: as an index would pick them.
template <class Take>
description slice_axis(call_view const& c, std::int64_t dimension, Take take) {
    tensor_id const x = c.tensor(0, "input");
    std::size_t const axis = c.axis(dimension, c.shape_of(x).size());
    slicing slices(c, x);
    slices.keep(axis);
    take(slices, c.shape_of(x)[axis]);
    slices.keep(slices.left());
    return slices.finish();
}
inline description select(call_view const& c) {
    return slice_axis(c, c.integer(1, "dim"), [&](slicing& s, extent) { s.pick("index", c.integer(2, "index")); });
}
inline description narrow(call_view const& c) {
    return slice_axis(c, c.integer(1, "dim"), [&](slicing& s, extent size) {
        auto start = c.integer(2, "start");
        c.expect_within("start", start, -size, size);
        if (start < 0) start += size;
        auto const length = c.integer(3, "length");
        c.expect_within("length", length, 1, size - start);
        s.run(start, length, 1);
    });
}
inline description slice(call_view const& c) {
    return slice_axis(c, c.integer(1, "dim", 0), [&](slicing& s, extent size) {
        s.range("end", {c.integer(2, "start", 0), c.integer(3, "end", size), c.integer(4, "step", 1)});
    });
}

/// Puts a class token before each sequence.
inline description append_class_token(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "x"), c.tensor(1, "cls_token")}};
    shape const &x = c.shape_of(op.operands[0]), &token = c.shape_of(op.operands[1]);
    if (x.size() != 3 || token != shape{1, 1, x[2]}) return {};
    entries access = numbered(x);
    access[1] = "_";
    op.rule = rule_text({access, {"1", "1", access[2]}}, {access}, "0 + 1");
    op.options.results = {{x[0], x[1] + 1, x[2]}};
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
