// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Recipes for the operators that move elements and compute nothing.
#pragma once

#include <support/program_growth.hpp>

#include <numeric>

namespace heddle::test {

class view_growth : public program_growth {
public:
    using program_growth::program_growth;

protected:
    void permute(std::string const& kind) {
        auto const x = operand();
        std::vector<std::int64_t> order(rank(x));
        std::iota(order.begin(), order.end(), 0);
        std::vector<literal> arguments{T(x)};
        if (kind == "permute") {
            for (std::size_t d = order.size(); d > 1; --d) std::swap(order[d - 1], order[random_.below(d)]);
            arguments.push_back(ints(order));
        } else if (kind == "transpose" || kind.starts_with("swap")) {
            if (order.empty()) return;
            std::size_t const a = any_axis(x), b = any_axis(x);
            std::swap(order[a], order[b]);
            arguments.insert(arguments.end(), {axis(a, order.size()), axis(b, order.size())});
        } else {
            std::ranges::reverse(order);
            if (kind == "getattr") arguments.push_back(text("T"));
        }
        tensor_shape y;
        for (auto d : order) y.push_back(dims(x)[static_cast<std::size_t>(d)]);
        keep(call(kind, arguments, y));
    }
    void reshape(std::string const& kind) {
        auto x = operand();
        tensor_shape y = dims(x);
        auto const place = [&](std::size_t d) { return y.begin() + static_cast<std::ptrdiff_t>(d); };
        if (kind == "squeeze" && std::ranges::find(y, 1) == y.end()) {
            y.push_back(1);
            x = reshaped(x, y, "unsqueeze");
        }
        if (kind == "squeeze") {
            y.erase(std::ranges::find(y, 1));
        } else if (kind == "unsqueeze") {
            y.insert(place(random_.below(y.size() + 1)), 1);
        } else if (kind == "flatten") {
            if (y.size() < 2) return;
            std::size_t const first = random_.below(y.size() - 1);
            for (std::size_t d = first + 1; d < y.size(); ++d) y[first] *= y[d];
            y.resize(first + 1);
        } else if (kind == "unflatten") {
            auto const even = std::ranges::find_if(y, [](extent e) { return e % 2 == 0; });
            if (even == y.end()) return;
            *even /= 2;
            y.insert(even, 2);
        } else {
            y = factors_of(builder_.tensor(x).elements());
        }
        if (kind.ends_with("_as")) return keep(call(kind, {T(x), T(input(y))}, y));
        keep(reshaped(x, y, kind));
    }
    /// A divisor of an extent, not one if there is another.
    extent piece_of(extent all) {
        std::vector<extent> divisors;
        for (extent d = 2; d <= all; ++d)
            if (all % d == 0) divisors.push_back(d);
        return divisors.empty() ? 1 : random_.of(divisors);
    }
    /// Returns some ordered factors of a number.
    tensor_shape factors_of(extent n) {
        tensor_shape result;
        while (n > 1) {
            result.push_back(piece_of(n));
            n /= result.back();
        }
        return result;
    }
    void expand(std::string const& kind) {
        auto const x = operand();
        tensor_shape y = dims(x);
        for (auto& e : y)
            if (e == 1) e = size(3);
        if (y.size() < 3 && random_.chance(0.5)) y.insert(y.begin(), size(3));
        keep(not_plain(call(kind, {T(x), kind == "expand_as" ? T(input(y)) : ints({y.begin(), y.end()})}, y)));
    }
    void concatenate(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        std::vector<tensor_id> pieces{x};
        bool const are_equal = random_.chance(0.4);
        for (int n = random_.between(1, 2); n-- > 0;) {
            tensor_shape other = dims(x);
            if (!are_equal) other[d] = size(3);
            pieces.push_back(random_.chance(0.3) ? x : weight(other));
        }
        if (random_.chance(0.5)) std::swap(pieces.front(), pieces.back());
        std::vector<literal> items;
        tensor_shape y = dims(x);
        y[d] = 0;
        for (auto t : pieces) {
            items.push_back(T(t));
            y[d] += dims(t)[d];
        }
        keep(not_plain(call(kind, {list(items), axis(d, y.size())}, y)));
    }
    /// Takes unequal pieces with a number of shares in common, which they are then seen as.
    void divide_in_shares(tensor_id x, std::size_t d, extent shares) {
        extent const steps = dims(x)[d] / shares, first = random_.between(1, static_cast<int>(steps) - 1);
        std::vector<tensor_shape> results;
        for (extent width : {first, steps - first}) {
            results.push_back(dims(x));
            results.back()[d] = width * shares;
        }
        bool const is_sliced = random_.chance(0.3);
        auto const pieces =
            is_sliced
                ? std::vector{call("narrow", {T(x), axis(d, rank(x)), number(0), number(results[0][d])}, results[0]),
                              call("narrow", {T(x), axis(d, rank(x)), number(results[0][d]), number(results[1][d])},
                                   results[1])}
                : call_multi("split_with_sizes", {T(x), ints({results[0][d], results[1][d]})}, results,
                             {{"dim", axis(d, rank(x))}});
        for (auto t : pieces) {
            tensor_shape y = dims(t);
            extent const width = y[d] / shares;
            y[d] = shares;
            y.insert(y.begin() + static_cast<std::ptrdiff_t>(d) + 1, width);
            keep(call("reshape", {T(t), ints({y.begin(), y.end()})}, y));
        }
    }
    void divide(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        extent const all = dims(x)[d];
        if (extent const shares = piece_of(all); kind == "split_with_sizes" && shares > 1 && all / shares > 2)
            return divide_in_shares(x, d, shares);
        extent piece = random_.chance(0.4) ? piece_of(all) : random_.between(1, static_cast<int>(all));
        if (kind == "chunk") piece = (all - 1) / ((all - 1) / piece + 1) + 1; // what torch makes of so many chunks
        extent const count = (all - 1) / piece + 1;
        std::vector<tensor_shape> results;
        for (extent n = 0; n < count; ++n) {
            results.push_back(dims(x));
            results.back()[d] =
                kind == "tensor_split" ? all / count + (n < all % count ? 1 : 0) : std::min(piece, all - n * piece);
        }
        std::vector<std::int64_t> extents;
        for (auto const& r : results) extents.push_back(r[d]);
        literal const argument = kind == "split"              ? number(piece)
                                 : kind == "split_with_sizes" ? ints(extents)
                                                              : number(static_cast<extent>(results.size()));
        auto const pieces = call_multi(kind, {T(x), argument}, results, {{"dim", axis(d, rank(x))}});
        std::size_t const most = 3;
        for (std::size_t n = 0; n < std::min(most, pieces.size()); ++n) keep(pieces[n]);
    }
    void get_item(std::string const& kind) {
        auto const x = operand();
        if (rank(x) > 0 && random_.chance(0.15)) return get_masked(kind, x);
        if (rank(x) > 0 && random_.chance(0.2)) { // places in a tensor
            tensor_shape y = dims(x);
            y.back() = size();
            return keep(not_plain(
                call(kind, {T(x), list({{literal::ellipsis{}}, T(input({y.back()}, element_type::int64))})}, y)));
        }
        std::vector<literal> items;
        tensor_shape y;
        for (std::size_t d = 0; d < rank(x); ++d) {
            extent const e = dims(x)[d];
            if (random_.chance(0.15)) {
                items.push_back(none());
                y.push_back(1);
            }
            switch (random_.below(6)) {
            case 4: { // one of equal pieces
                extent const length = piece_of(e),
                             first = length * random_.between(0, static_cast<int>(e / length) - 1);
                items.push_back(slice(first, first + length));
                y.push_back(length);
                break;
            }
            case 0:
                items.push_back(number(random_.between(0, static_cast<int>(e) - 1) - (random_.chance(0.5) ? e : 0)));
                break;
            case 1: {
                extent const first = random_.between(0, static_cast<int>(e) - 1), step = random_.between(1, 2);
                items.push_back(slice(first, {}, step));
                y.push_back((e - first + step - 1) / step);
                break;
            }
            default: items.push_back(whole()); y.push_back(e);
            }
        }
        if (items.empty() || random_.chance(0.2)) items.push_back({literal::ellipsis{}});
        keep(call(kind, {T(x), list(items)}, y));
    }
    /// Picks by a mask of one dimension, with ones at the places of the largest of some numbers.
    void get_masked(std::string const& kind, tensor_id x) {
        auto const d = any_axis(x);
        tensor_shape y = dims(x);
        extent const all = y[d], count = y[d] = random_.between(1, static_cast<int>(all));
        auto const ranks =
            call_multi("topk", {T(input({all})), number(count)}, {{count}, {count}}, {}, {}, element_type::int64);
        auto const ones = call("one_hot", {T(ranks[1]), number(all)}, {count, all}, {}, element_type::int64);
        auto const total = call("sum", {T(ones), number(0)}, {all}, {}, element_type::int64);
        auto const mask = call("gt", {T(total), number(0)}, {all}, {}, element_type::boolean);
        std::vector<literal> items(d, whole());
        items.push_back(T(mask));
        keep(not_plain(call(kind, {T(x), list(items)}, y)));
    }
    void class_token(std::string const& kind) {
        auto const x = of_rank(3);
        tensor_shape const& from = dims(x);
        if (kind == "get_cls_token") return keep(call("heddle." + kind, {T(x)}, {from[0], from[2]}));
        tensor_shape const token{1, 1, from[2]}, y{from[0], from[1] + 1, from[2]};
        keep(not_plain(call("heddle." + kind, {T(x), T(weight(token))}, y)));
    }
};

} // namespace heddle::test
