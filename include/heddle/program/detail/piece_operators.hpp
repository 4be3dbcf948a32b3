// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries that take tensors apart and put them together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/view_operators.hpp>

#include <limits>
#include <numeric>
#include <utility>

namespace heddle::detail {

/// Returns the largest extent that divides all of these.
inline extent common_divisor(std::vector<extent> const& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), extent{0}, std::gcd<extent, extent>);
}

/// Both sides of an axis that is put together of pieces, or taken apart. Equal pieces are cut at the same places,
/// others in the same shares, if there is a number that divides all of them.
struct pieced_axis {
    entries whole;
    std::vector<entries> pieces;

    pieced_axis(tensor_shape const& dims, std::size_t axis, std::vector<extent> const& lengths)
        : whole(numbered(dims)), pieces(lengths.size(), whole) {
        bool const are_equal = algorithm::all_of(lengths, [&](extent e) { return e == lengths.front(); });
        bool const are_shared = !are_equal && common_divisor(lengths) > 1;
        std::string side_by_side;
        for (std::size_t n = 0; n < lengths.size(); ++n) {
            auto& piece = pieces[n][axis] = are_equal    ? entry("p", lengths.front())
                                            : are_shared ? "p" + std::to_string(n)
                                                         : "_";
            side_by_side += (n > 0 ? " " : "") + piece;
        }
        whole[axis] = are_shared                        ? "[" + side_by_side + "]"
                      : are_equal && lengths.size() > 1 ? in_pieces(pieces[0][axis])
                                                        : pieces[0][axis];
    }
};

/// Concatenation is linear in all its operands together.
inline description concatenate(call_view const& c) {
    described_operator op{{}, c.call().operands};
    if (op.operands.empty()) return {};
    tensor_shape const& first = c.shape_of(op.operands.front());
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), first.size());
    tensor_shape whole = first;
    whole[axis] = 0;
    std::vector<extent> lengths;
    for (tensor_id t : op.operands) {
        tensor_shape alike = c.shape_of(t);
        if (alike.size() != first.size()) return {};
        lengths.push_back(alike[axis]);
        whole[axis] += std::exchange(alike[axis], first[axis]);
        if (alike != first)
            c.fail("tensors", "has shapes " + to_text(first) + " and " + to_text(c.shape_of(t)) +
                                  ", expected them alike in all dimensions but " + std::to_string(axis));
    }
    pieced_axis const sides(first, axis, lengths);
    op.rule = rule_text(sides.pieces, {sides.whole}, all_terms(op.operands.size(), " + "));
    op.options.results = {whole};
    op.options.forward = flops(element_count(whole));
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// Returns how long the pieces of a dimension are: `split` and `chunk` give a length, `tensor_split` makes them as even
/// as they can be, or a list gives all lengths.
inline std::vector<extent> piece_lengths(call_view const& c, extent whole) {
    literal const* sizes = nullptr;
    for (char const* name : {"split_size_or_sections", "split_size", "split_sizes", "chunks", "sections", "indices",
                             "indices_or_sections"})
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
    c.expect_within("split_size_or_sections", static_cast<std::int64_t>(c.result_count()), 1,
                    whole); // there is no piece of nothing
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

/// Takes a tensor of this shape apart into pieces of these lengths.
inline described_operator split_of(tensor_id x, tensor_shape const& dims, std::size_t axis,
                                   std::vector<extent> const& lengths) {
    pieced_axis const sides(dims, axis, lengths);
    described_operator op{rule_text({sides.whole}, sides.pieces, "0"), {x}};
    for (extent length : lengths) op.options.results.emplace_back(dims)[axis] = length;
    op.options.attributes["dim"] = just(axis);
    op.options.is_view = true;
    return op;
}

/// Several results along one dimension.
inline description divide(call_view const& c) {
    tensor_id const x =
        c.tensor(0, c.call().keywords.contains("tensor") ? "tensor" : "input"); // as torch.functional.split has it
    tensor_shape const& dims = c.shape_of(x);
    std::size_t const axis = c.axis(c.integer(2, "dim", 0), dims.size());
    auto const lengths = piece_lengths(c, dims[axis]);
    c.expect_results(lengths.size());
    return split_of(x, dims, axis, lengths);
}

/// What integers and slices take of a tensor, dimension by dimension: one that is taken whole keeps its index. One of
/// equal pieces, or every place that is alike in steps that divide the dimension, is cut as all of these are. A run is
/// cut in the shares of what lies before and after it. Any other is blocked.
class slicing {
public:
    slicing(call_view const& c, tensor_id x) : call_(c), x_(x), dims_(c.shape_of(x)), indices_(numbered(dims_)) {}

    /// Returns the number of dimensions that nothing has been said of yet.
    [[nodiscard]] std::size_t left() const { return dims_.size() - from_.size(); }
    [[nodiscard]] std::size_t result_rank() const { return to_.size(); }

    void keep() {
        to_.push_back(indices_[from_.size()]);
        result_.push_back(size());
        take(to_.back(), 0, 0);
    }
    void keep(std::size_t count) {
        while (count-- > 0) keep();
    }
    /// Adds a dimension of one element.
    void insert() {
        to_.emplace_back("1");
        result_.push_back(1);
    }
    void pick(std::string_view name, std::int64_t index) {
        take(entry("_", size()), call_.place(name, index, size()), 1);
    }
    /// *Precondition:* there are `count` places from `start` on.
    void run(extent start, extent count, extent step) {
        if (count == size()) return keep();
        result_.push_back(count);
        auto const number = std::to_string(from_.size());
        auto const& place = to_.emplace_back(indices_[from_.size()]);
        if (count > 1 && step == 1 && size() % count == 0 && start % count == 0)
            return take(in_pieces(place, number), start / count, 1, 1, size() / count);
        if (count > 1 && size() == step * count) return take("(" + place + " !step" + number + ")", start, 0, step);
        std::vector<extent> const lengths{start, count, size() - start - count};
        if (extent const unit = common_divisor(lengths); step == 1 && unit > 1) {
            entries const names{"before" + number, "run" + number, "after" + number};
            std::string side_by_side;
            for (std::size_t n = 0; n < names.size(); ++n) {
                if (lengths[n] == 0) continue;
                side_by_side += (side_by_side.empty() ? "" : " ") + names[n];
                extents_[names[n]] = lengths[n];
            }
            to_.back() = names[1];
            return take("[" + side_by_side + "]", start / unit, count / unit, 1, size() / unit);
        }
        to_.back() = entry("_", count);
        // What leaves out little, as shifted labels do, leaves out as much of a dimension of another size.
        extent const after = size() - start - count;
        take("_", start, step == 1 && start + after < count ? -after : count, step);
    }
    void range(std::string_view name, literal::slice const& s) {
        auto const bound = [&](std::int64_t at) { return std::clamp<extent>(at < 0 ? at + size() : at, 0, size()); };
        extent const start = bound(s.start.value_or(0)), stop = bound(s.stop.value_or(size())),
                     step = s.step.value_or(1);
        if (step < 1) call_.fail(name, "has step " + std::to_string(step) + ", expected at least 1");
        if (stop <= start)
            call_.fail(name, "takes places " + std::to_string(start) + " to " + std::to_string(stop) +
                                 ", expected at least one");
        run(start, (stop - start - 1) / step + 1, step);
    }

    [[nodiscard]] described_operator finish() const {
        auto op = view_of(x_, from_, to_);
        op.options.results = {result_};
        op.options.extents = extents_;
        op.options.attributes = {{"start", start_}, {"step", step_}, {"count", count_}, {"pieces", pieces_}};
        return op;
    }

private:
    [[nodiscard]] extent size() const { return dims_[from_.size()]; }
    void take(std::string access, extent start, extent count, extent step = 1, extent pieces = 0) {
        from_.push_back(std::move(access));
        start_.push_back(static_cast<double>(start));
        step_.push_back(static_cast<double>(step));
        count_.push_back(static_cast<double>(count));
        pieces_.push_back(static_cast<double>(pieces));
    }

    call_view const& call_;
    tensor_id x_;
    tensor_shape const& dims_;
    entries indices_, from_{}, to_{};
    tensor_shape result_{};
    /// Of runs and of what lies before and after them.
    index_extents extents_{};
    /// One per dimension. A count of zero takes all from the start on, a negative one leaves out so many at the end;
    /// starts and counts of pieces are numbers of them.
    std::vector<double> start_{}, step_{}, count_{}, pieces_{};
};

/// Indexes by integers and slices.
inline description get_item(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    auto const* index = c.find(1, "index");
    literal const absent{};
    if (!index && c.call().arguments.size() > 1) index = &absent; // x[None]
    if (!index) return {};
    auto const* several = index->as<literal::list>();
    literal::list const items = several ? *several : literal::list{*index};
    auto const kept = static_cast<std::size_t>(
        algorithm::count_if(items, [](literal const& i) { return !i.is_none() && !i.as<literal::ellipsis>(); }));
    std::size_t const rank = c.shape_of(x).size();
    if (kept > rank)
        c.fail("index", "is of " + std::to_string(kept) + " dimensions, there are " + std::to_string(rank));
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
/// Takes one place of a dimension, or places from a start on, as an index would pick them.
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

/// Returns every slice along a dimension as a result of its own.
inline described_operator unbound(tensor_id x, tensor_shape const& dims, std::size_t axis) {
    entries from = numbered(dims), to = from;
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    from[axis] = entry("_", dims[axis]);
    described_operator op{rule_text({from}, std::vector<entries>(static_cast<std::size_t>(dims[axis]), to), "0"), {x}};
    op.options.attributes["dim"] = just(axis);
    op.options.is_view = true;
    return op;
}
inline description unbind(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    tensor_shape const& dims = c.shape_of(x);
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), dims.size());
    c.expect_results(static_cast<std::size_t>(dims[axis]));
    return unbound(x, dims, axis);
}
inline description stack(call_view const& c) {
    auto const& operands = c.call().operands;
    if (operands.empty()) return {};
    tensor_shape const& dims = c.shape_of(operands.front());
    std::size_t const axis = c.axis(c.integer(1, "dim", 0), dims.size() + 1);
    entries to = numbered(dims);
    std::vector<entries> const from(operands.size(), to);
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), entry("_", static_cast<extent>(operands.size())));
    for (auto t : operands)
        if (c.shape_of(t) != dims) return {};
    auto op = copy_of(c, operands, from, to, all_terms(operands.size(), " + "));
    tensor_shape result = dims;
    result.insert(result.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<extent>(operands.size()));
    op.options.results = {result};
    op.options.attributes["dim"] = just(axis);
    return op;
}

/// Puts a class token before each sequence.
inline description append_class_token(call_view const& c) {
    described_operator op{{}, {c.tensor(0, "x"), c.tensor(1, "cls_token")}};
    tensor_shape const &x = c.shape_of(op.operands[0]), &token = c.shape_of(op.operands[1]);
    if (x.size() != 3 || token != tensor_shape{1, 1, x[2]}) return {};
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
