// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Recipes that repeat, shift, pad, pick and scatter elements.
#pragma once

#include <support/function_growth.hpp>

#include <utility>

namespace heddle::test {

class place_growth : public function_growth {
public:
    using function_growth::function_growth;

protected:
    /// Returns places below `size`, held in a tensor.
    tensor_id places(tensor_shape extents) { return input(std::move(extents), element_type::int64); }

    void repeat(std::string const& kind) {
        auto const x = operand();
        std::vector<std::int64_t> times;
        tensor_shape y = dims(x);
        if (y.empty() || random_.chance(0.2)) y.insert(y.begin(), 1);
        for (auto& e : y) {
            times.push_back(random_.between(1, 2));
            e *= times.back();
        }
        keep(not_plain(call(kind, {T(x), ints(times)}, y)));
    }
    void repeat_each(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        extent const times = random_.between(1, 3);
        tensor_shape y = dims(x);
        y[d] *= times;
        keep(not_plain(call(kind, {T(x), number(times), axis(d, y.size())}, y)));
    }
    void shift(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        if (kind == "roll")
            return keep(same(kind, x, {ints({random_.between(-3, 7)}), ints({static_cast<std::int64_t>(d)})}));
        keep(same(kind, x, {ints({static_cast<std::int64_t>(d)})}));
    }
    void pad(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const* const mode =
            random_.of(std::vector<char const*>{"constant", "constant", "reflect", "replicate", "circular"});
        tensor_shape y = dims(x);
        std::vector<std::int64_t> sides;
        for (std::size_t n = 0, count = 1 + random_.below(y.size()); n < count; ++n) {
            auto& e = y[y.size() - 1 - n];
            int const most = static_cast<int>(std::min<extent>(e - (mode == std::string("reflect") ? 1 : 0), 2));
            sides.insert(sides.end(), {random_.between(0, most),
                                       random_.between(mode == std::string("constant") && e > 1 ? -1 : 0, most)});
            e += sides[2 * n] + sides[2 * n + 1];
        }
        keywords named{{"mode", text(mode)}};
        if (mode == std::string("constant") && random_.chance(0.3)) named["value"] = real(1.5);
        keep(not_plain(call(kind, {T(x), ints(sides)}, y, named)));
    }
    void unbind(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        tensor_shape slice = dims(x);
        slice.erase(slice.begin() + static_cast<std::ptrdiff_t>(d));
        auto const slices = call_multi(kind, {T(x), axis(d, rank(x))},
                                       std::vector<tensor_shape>(static_cast<std::size_t>(dims(x)[d]), slice));
        constexpr std::size_t most = 3;
        for (std::size_t n = 0; n < std::min(most, slices.size()); ++n) keep(slices[n]);
    }
    void stack(std::string const& kind) {
        auto const x = operand();
        std::vector<literal> items{T(x)};
        for (int n = random_.between(0, 2); n-- > 0;) items.push_back(T(weight(dims(x))));
        tensor_shape y = dims(x);
        auto const d = random_.below(y.size() + 1);
        y.insert(y.begin() + static_cast<std::ptrdiff_t>(d), static_cast<extent>(items.size()));
        keep(not_plain(call(kind, {list(items), axis(d, y.size())}, y)));
    }
    void pick(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        extent const size = dims(x)[d], first = random_.between(0, static_cast<int>(size) - 1);
        tensor_shape y = dims(x);
        std::vector<literal> arguments{T(x), axis(d, y.size()),
                                       number(first - (random_.chance(0.5) && kind != "narrow" ? size : 0))};
        if (kind == "select") {
            y.erase(y.begin() + static_cast<std::ptrdiff_t>(d));
        } else if (kind == "narrow") {
            y[d] = random_.between(1, static_cast<int>(size - first));
            arguments.push_back(number(y[d]));
        } else {
            extent const step = random_.between(1, 2);
            y[d] = (size - first + step - 1) / step;
            arguments.insert(arguments.end(), {number(size), number(step)});
        }
        keep(call(kind, arguments, y));
    }
    void look_up(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        tensor_shape y = dims(x);
        y[d] = size();
        if (kind == "gather") return keep(not_plain(call(kind, {T(x), axis(d, y.size()), T(places(y))}, y)));
        if (kind == "index_select") return keep(not_plain(call(kind, {T(x), axis(d, y.size()), T(places({y[d]}))}, y)));
        tensor_shape index{y[d]};
        if (random_.chance(0.3)) index.push_back(size(3));
        if (d + 1 < y.size() && random_.chance(0.5)) return look_up_several(kind, x, d, index);
        y.insert(y.begin() + static_cast<std::ptrdiff_t>(d) + 1, index.begin() + 1, index.end());
        std::vector<literal> items(d, kind == "index" ? none() : whole());
        items.push_back(T(places(index)));
        keep(not_plain(call(kind, {T(x), list(items)}, y)));
    }
    /// Looks up along this dimension and the next one, by tensors that broadcast to `index`.
    void look_up_several(std::string const& kind, tensor_id x, std::size_t d, tensor_shape const& index) {
        auto const from = dims(x);
        tensor_shape y(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(d));
        y.insert(y.end(), index.begin(), index.end());
        y.insert(y.end(), from.begin() + static_cast<std::ptrdiff_t>(d) + 2, from.end());
        std::vector<literal> items(d, kind == "index" ? none() : whole());
        items.push_back(T(places(index)));
        items.push_back(T(places(random_.chance(0.5) ? index : tensor_shape{index.back()})));
        if (random_.chance(0.5)) std::swap(items[d], items[d + 1]);
        keep(not_plain(call(kind, {T(x), list(items)}, y)));
    }
    void scatter(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        tensor_shape from = dims(x);
        from[d] = size();
        auto const index = places(kind == "index_add" ? tensor_shape{from[d]} : from);
        keep(call(kind, {T(x), axis(d, from.size()), T(index), T(weight(from))}, dims(x)));
    }
    /// Replaces some elements by those of a tensor or by a number.
    void replace_at(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        tensor_shape from = dims(x);
        from[d] = size();
        auto const index = T(places(from));
        keep(not_plain(call(kind,
                            {T(x), axis(d, from.size()), index,
                             random_.chance(0.7) ? T(weight(from)) : real(random_.chance(0.5) ? 0 : 1.5)},
                            dims(x))));
    }
    /// Shuffles copies side by side, so that there is something to divide.
    void shuffle_pixels(std::string const& kind) {
        auto const x = of_rank(3 + random_.below(2));
        std::size_t const n = rank(x);
        extent const times = random_.between(1, 2);
        bool const is_finer = kind == "pixel_shuffle";
        std::vector<std::int64_t> copies(n, 1);
        tensor_shape y = dims(x), copied = y;
        for (std::size_t d = n - 3; d < n; ++d) {
            if (is_finer == (d == n - 3)) copied[d] *= copies[d] = is_finer ? times * times : times;
            else y[d] *= is_finer ? times : times * times;
        }
        keep(not_plain(call(kind, {T(call("repeat", {T(x), ints(copies)}, copied)), number(times)}, y)));
    }
    void diagonal(std::string const& kind) {
        auto const x = at_least_rank(2);
        auto const row = any_axis(x), column = (row + 1 + random_.below(rank(x) - 1)) % rank(x);
        extent const rows = dims(x)[row], columns = dims(x)[column],
                     offset = random_.between(1 - static_cast<int>(rows), static_cast<int>(columns) - 1);
        tensor_shape y;
        for (std::size_t d = 0; d < rank(x); ++d)
            if (d != row && d != column) y.push_back(dims(x)[d]);
        y.push_back(std::min(rows + std::min<extent>(offset, 0), columns - std::max<extent>(offset, 0)));
        keep(call(kind, {T(x), number(offset), axis(row, rank(x)), axis(column, rank(x))}, y));
    }
    void triangle(std::string const& kind) {
        keep(not_plain(same(kind, at_least_rank(2), {number(random_.between(-2, 2))})));
    }
    void largest(std::string const& kind) {
        auto const x = operand_that([&](tensor_id t) { return rank(t) > 0 && is_plain(t); }, 2);
        auto const d = any_axis(x);
        tensor_shape y = dims(x);
        if (kind == "topk") y[d] = random_.between(1, static_cast<int>(y[d]));
        literal const by = flag(random_.chance(0.7));
        std::vector<literal> const arguments = kind == "sort" ? std::vector{T(x), axis(d, y.size()), by}
                                                              : std::vector{T(x), number(y[d]), axis(d, y.size()), by};
        keywords named;
        if (kind == "sort" && random_.chance(0.5)) named["stable"] = flag(true);
        auto const found = call_multi(kind, arguments, {y, y}, named, {}, element_type::int64);
        bool const looks_up = random_.chance(0.5); // then the loss may depend on the places alone
        if (!looks_up || random_.chance(0.5)) keep(not_plain(found[0]));
        if (looks_up) keep(not_plain(call("gather", {T(weight(dims(x))), axis(d, y.size()), T(found[1])}, y)));
    }
    void move_dimension(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const from = any_axis(x), to = any_axis(x);
        tensor_shape y = dims(x);
        y.erase(y.begin() + static_cast<std::ptrdiff_t>(from));
        y.insert(y.begin() + static_cast<std::ptrdiff_t>(to), dims(x)[from]);
        keep(call(kind, {T(x), axis(from, y.size()), axis(to, y.size())}, y));
    }
    void product_of_fewer(std::string const& kind) {
        auto const x = of_rank(kind == "addbmm" ? 3 : 1);
        auto const e = dims(x);
        extent const m = size();
        if (kind == "outer") return keep(not_plain(call(kind, {T(x), T(weight({m}))}, {e[0], m})));
        if (kind == "addmv")
            return keep(
                not_plain(call(kind, {T(weight({m})), T(weight({m, e[0]})), T(x)}, {m}, {{"alpha", real(0.5)}})));
        keep(not_plain(
            call(kind, {T(weight({m})), T(x), T(weight({e[0], e[2], m}))}, {e[1], m}, {{"beta", real(0.5)}})));
    }
    void one_hot(std::string const& kind) {
        tensor_shape y = sizes(1 + random_.below(2));
        auto const ids = places(y);
        y.push_back(size());
        auto const ones = call(kind, {T(ids), number(y.back())}, y, {}, element_type::int64);
        keep(not_plain(call("float", {T(ones)}, y, {}, element_type::float32)));
    }

    // ---- recurrent cells and layers

    void cell(std::string const& kind) {
        auto const x = of_rank(2, true);
        extent const gates = kind == "lstm_cell" ? 4 : kind == "gru_cell" ? 3 : 1, hidden = size(4);
        tensor_shape const state{dims(x)[0], hidden};
        std::vector<literal> arguments{T(x), T(weight(state))};
        if (kind == "lstm_cell") arguments[1] = list({arguments[1], T(weight(state))});
        arguments.push_back(T(weight({gates * hidden, dims(x)[1]})));
        arguments.push_back(T(weight({gates * hidden, hidden})));
        if (random_.chance(0.5)) arguments.insert(arguments.end(), 2, T(weight({gates * hidden})));
        for (auto y : call_multi(kind, arguments, std::vector<tensor_shape>(kind == "lstm_cell" ? 2 : 1, state)))
            keep(not_plain(y));
    }
    /// Adds one layer or two, in one direction or both.
    void recurrent_layers(std::string const& kind) {
        auto const x = of_rank(3, true);
        tensor_shape const e = dims(x);
        bool const is_batch_first = random_.chance(0.5), is_biased = random_.chance(0.5), both = random_.chance(0.5);
        extent const gates = kind == "lstm"  ? 4
                             : kind == "gru" ? 3
                                             : 1,
                     hidden = size(3), layers = random_.between(1, 2), directions = both ? 2 : 1;
        tensor_shape const state{layers * directions, e[is_batch_first ? 0 : 1], hidden};
        std::vector<literal> arguments{T(x), T(weight(state))}, weights;
        if (kind == "lstm") arguments[1] = list({arguments[1], T(weight(state))});
        for (extent run = 0; run < layers * directions; ++run) {
            weights.push_back(T(weight({gates * hidden, run < directions ? e[2] : directions * hidden})));
            weights.push_back(T(weight({gates * hidden, hidden})));
            for (int bias = 0; is_biased && bias < 2; ++bias) weights.push_back(T(weight({gates * hidden})));
        }
        arguments.insert(arguments.end(), {list(weights), flag(is_biased), number(layers), real(0), flag(true),
                                           flag(both), flag(is_batch_first)});
        std::vector<tensor_shape> results{{e[0], e[1], directions * hidden}, state};
        if (kind == "lstm") results.push_back(state);
        for (auto y : call_multi(kind, arguments, results)) keep(not_plain(y));
    }
};

} // namespace heddle::test
