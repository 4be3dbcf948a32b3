// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Recipes for tensors made of numbers alone, for tokens sorted by their experts, and for complex numbers.
#pragma once

#include <support/place_growth.hpp>

namespace heddle::test {

class source_growth : public place_growth {
public:
    using place_growth::place_growth;

protected:
    /// Weighed, so that the loss has a derivative by what it is multiplied by.
    void source(std::string const& kind) {
        tensor_shape const y = kind == "arange" ? tensor_shape{size()} : sizes(random_.below(4));
        std::vector<literal> arguments;
        if (kind == "arange") arguments = {real(-1), real(-1 + 0.5 * static_cast<double>(y[0])), real(0.5)};
        if (kind == "full") arguments = {ints(y), real(1.5)};
        auto const made = call(kind, arguments, y, {}, element_type::float32);
        keep(not_plain(call("mul", {T(made), T(weight(y))}, y)));
    }
    /// Functions of a part of the numbers.
    void narrow_function(std::string const& kind) {
        auto const x = operand();
        if (kind == "acosh") return keep(same(kind, call("add", {T(positive(x)), real(1)}, dims(x))));
        auto const inside = call("mul", {T(same("tanh", x)), real(0.5)}, dims(x));
        keep(same(kind, inside));
    }
    /// Counts of an input's elements, weighed.
    void histogram(std::string const& kind) {
        auto const x = input({size()});
        tensor_shape const y{size()};
        auto const counts = call(kind, {T(x), number(y[0]), real(-0.75), real(1)}, y, {}, element_type::float32);
        keep(not_plain(call("mul", {T(counts), T(weight(y))}, y)));
    }
    void grouped_product(std::string const& kind) {
        auto const x = of_rank(2);
        extent const experts = size(), width = size();
        keep(not_plain(call(kind,
                            {T(x), T(weight({experts, dims(x)[1], width})), T(input({experts}, element_type::int64))},
                            {dims(x)[0], width})));
    }
    void experts(std::string const& kind) {
        auto const x = of_rank(2);
        extent const tokens = dims(x)[0], width = dims(x)[1], count = size(), hidden = size(3), out = size(),
                     choices = random_.between(1, 3);
        bool const gated = random_.chance(0.6);
        char const* const activation = random_.of(std::vector<char const*>{"silu", "gelu", "tanh"});
        auto const ids = input({tokens, choices}, element_type::int64);
        keep(not_plain(call("heddle." + kind,
                            {T(x), T(ids), T(weight({tokens, choices})),
                             T(weight({count, width, gated ? 2 * hidden : hidden})), T(weight({count, hidden, out}))},
                            {tokens, out}, {{"gated", flag(gated)}, {"activation", text(activation)}})));
    }
    void put(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        bool const two = d + 1 < rank(x) && random_.chance(0.4);
        tensor_shape const index{size(4)};
        tensor_shape values = dims(x);
        auto const first = values.begin() + static_cast<std::ptrdiff_t>(d);
        values.insert(values.erase(first, first + (two ? 2 : 1)), index[0]);
        std::vector<literal> items(d, none());
        items.push_back(T(places(index)));
        if (two) items.push_back(T(places(random_.chance(0.5) ? index : tensor_shape{1})));
        keep(not_plain(call(kind, {T(x), list(items), T(weight(values)), flag(random_.chance(0.5))}, dims(x))));
    }
    void complex_product(std::string const& kind) {
        tensor_shape pairs = dims(operand());
        if (pairs.size() > 3) pairs.resize(3);
        pairs.push_back(2);
        tensor_shape other = pairs;
        if (other.size() > 1 && random_.chance(0.4)) other.erase(other.begin());
        if (other.size() > 1 && random_.chance(0.3)) other.front() = 1;
        auto const x = weight(pairs), y = weight(other);
        keep(not_plain(call("heddle." + kind, {T(x), T(y)}, pairs)));
    }
};

} // namespace heddle::test
