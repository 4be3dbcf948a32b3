// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Recipes for products, convolutions, attention, routing and embeddings.
#pragma once

#include <support/view_growth.hpp>

#include <array>

namespace heddle::test {

class product_growth : public view_growth {
public:
    using view_growth::view_growth;

protected:
    tensor_id product(std::string const& kind, tensor_id x, tensor_id w, std::optional<tensor_id> bias = {}) {
        tensor_shape result = dims(x);
        result.back() = dims(w)[0];
        std::vector<literal> arguments{T(x), T(w)};
        if (bias) arguments.push_back(T(*bias));
        return call(kind, arguments, result);
    }
    void linear(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const w = weight({random_.chance(0.4) ? dims(x).back() : size(), dims(x).back()});
        keep(random_.chance(0.5) ? product(kind, x, w, weight({dims(w)[0]})) : product(kind, x, w));
    }
    void matmul(std::string const& kind) {
        auto const x = kind == "matmul" ? at_least_rank(2) : of_rank(kind == "mm" ? 2 : 3);
        tensor_shape other = dims(x), result = dims(x);
        std::swap(other[other.size() - 1], other[other.size() - 2]);
        other.back() = result.back() = random_.chance(0.5) ? other.back() : size();
        if (kind == "matmul")
            for (std::size_t d = 0; d + 2 < other.size(); ++d)
                if (random_.chance(0.3)) other[d] = 1;
        std::vector<tensor_id> fitting;
        for (auto t : values_)
            if (dims(t) == other) fitting.push_back(t);
        keep(call(kind, {T(x), T(fitting.empty() ? weight(other) : random_.of(fitting))}, result));
    }
    void bilinear(std::string const& kind) {
        auto const x = at_least_rank(1);
        tensor_shape other = dims(x), result = dims(x);
        other.back() = size();
        result.back() = size();
        std::vector<literal> arguments{T(x), T(weight(other)),
                                       T(weight({result.back(), dims(x).back(), other.back()}))};
        if (random_.chance(0.5)) arguments.push_back(T(weight({result.back()})));
        keep(not_plain(call(kind, arguments, result)));
    }
    void vector_product(std::string const& kind) {
        auto const x = of_rank(kind == "dot" ? 1 : 2);
        keep(
            call(kind, {T(x), T(weight({dims(x).back()}))}, kind == "dot" ? tensor_shape{} : tensor_shape{dims(x)[0]}));
    }
    void matmul_added(std::string const& kind) {
        auto const x = of_rank(kind == "addmm" ? 2 : 3);
        tensor_shape other = dims(x), result = dims(x);
        std::swap(other[other.size() - 1], other[other.size() - 2]);
        other.back() = result.back() = size();
        tensor_shape added = result;
        if (kind == "addmm" && random_.chance(0.5)) added.erase(added.begin());
        keywords named;
        if (random_.chance(0.5)) named = {{"beta", real(0.5)}, {"alpha", real(2)}};
        keep(call(kind, {T(weight(added)), T(x), T(weight(other))}, result, named));
    }
    void einsum(std::string const& kind) {
        struct choice {
            char const* equation;
            std::size_t rank;
        };
        static constexpr std::array<choice, 12> choices{{{"ab,cb->abc", 2},
                                                         {"ab,ab->a", 2},
                                                         {"ab,c->b", 2},
                                                         {"ab->ba", 2},
                                                         {"abc->cb", 3},
                                                         {"abc,cd->abd", 3},
                                                         {"abc,adc->abd", 3},
                                                         {"abc,c,b->a", 3},
                                                         {"ab,ab,b->", 2},
                                                         {"ab,bb->ab", 2},
                                                         {"...a,ab->...b", 3},
                                                         {"b...,...", 2}}};
        auto const& [equation, rank] = choices[random_.below(choices.size())];
        auto const x = of_rank(rank);
        auto const [letters, result] = heddle::detail::split_equation(equation);
        // An ellipsis stands for the dimensions that the first operand has left.
        auto const written_out = [places =
                                      std::string("XYZ").substr(0, rank + 3 - letters[0].size())](std::string list) {
            if (auto const dots = list.find("..."); dots != std::string::npos) list.replace(dots, 3, places);
            return list;
        };
        std::map<char, extent> extents;
        for (std::size_t d = 0; d < rank; ++d) extents[written_out(letters[0])[d]] = dims(x)[d];
        auto const shape_of = [&](std::string const& list) {
            tensor_shape s;
            for (char c : written_out(list)) s.push_back(extents.try_emplace(c, size()).first->second);
            return s;
        };
        std::vector<literal> operands{T(x)}, arguments{text(equation)};
        for (std::size_t k = 1; k < letters.size(); ++k) operands.push_back(T(weight(shape_of(letters[k]))));
        if (random_.chance(0.3)) { // operands with lists of numbers
            arguments.clear();
            for (std::size_t k = 0; k < letters.size(); ++k)
                arguments.insert(arguments.end(), {operands[k], numbers_of(letters[k])});
            arguments.push_back(numbers_of(result));
        } else {
            arguments.insert(arguments.end(), operands.begin(), operands.end());
        }
        keep(call(kind, arguments, shape_of(result)));
    }
    static literal numbers_of(std::string list) {
        std::vector<literal> items;
        if (auto const dots = list.find("..."); dots != std::string::npos) list.replace(dots, 3, ".");
        for (char c : list) items.push_back(c == '.' ? literal{literal::ellipsis{}} : number(c - 'a'));
        return test::list(items);
    }
    void convolution(std::string const& kind) {
        std::size_t const sides = static_cast<std::size_t>(kind[4] - '0');
        auto const x = of_rank(sides + (random_.chance(0.8) ? 2 : 1)); // samples may be missing
        std::size_t const first = rank(x) - sides;
        extent const channels = dims(x)[first - 1];
        extent groups = random_.chance(0.5) ? channels : channels % 2 == 0 ? 2 : 1;
        tensor_shape w{groups * random_.between(1, 3), channels / groups}, y = dims(x);
        y.resize(first);
        y.back() = w[0];
        bool const equal = random_.chance(0.2);
        std::vector<std::int64_t> stride, padding, dilation;
        for (std::size_t d = 0; d < sides; ++d) {
            extent const in = dims(x)[d + first];
            w.push_back(random_.between(1, static_cast<int>(std::min<extent>(in, 3))));
            padding.push_back(equal || w.back() == 1 ? 0 : random_.between(0, 1));
            dilation.push_back(2 * (w.back() - 1) < in ? random_.between(1, 2) : 1);
            stride.push_back(equal ? 1 : random_.between(1, 2));
            y.push_back(equal ? in
                              : (in + 2 * padding.back() - dilation.back() * (w.back() - 1) - 1) / stride.back() + 1);
        }
        keywords named{{"stride", ints(stride)},
                       {"dilation", ints(dilation)},
                       {"groups", number(groups)},
                       {"padding", equal ? text("same") : ints(padding)}};
        if (random_.chance(0.5)) named["bias"] = T(weight({w[0]}));
        keep(call(kind, {T(x), T(weight(w))}, y, named));
    }
    void convolution_transpose(std::string const& kind) {
        std::size_t const sides = static_cast<std::size_t>(kind[14] - '0');
        auto const x = of_rank(sides + (random_.chance(0.8) ? 2 : 1));
        std::size_t const first = rank(x) - sides;
        extent const channels = dims(x)[first - 1], groups = random_.chance(0.5) ? channels : channels % 2 == 0 ? 2 : 1;
        tensor_shape w{channels, random_.between(1, 3)}, y = dims(x);
        y.resize(first);
        y.back() = groups * w[1];
        std::vector<std::int64_t> stride, padding, dilation;
        for (std::size_t d = 0; d < sides; ++d) {
            w.push_back(random_.between(1, 3));
            stride.push_back(random_.between(1, 2));
            dilation.push_back(random_.between(1, 2));
            extent const reach = (dims(x)[d + first] - 1) * stride.back() + dilation.back() * (w.back() - 1) + 1;
            padding.push_back(reach > 2 ? random_.between(0, 1) : 0);
            y.push_back(reach - 2 * padding.back());
        }
        keywords named{{"stride", ints(stride)},
                       {"dilation", ints(dilation)},
                       {"groups", number(groups)},
                       {"padding", ints(padding)}};
        if (random_.chance(0.5)) named["bias"] = T(weight({y[first - 1]}));
        keep(call(kind, {T(x), T(weight(w))}, y, named));
    }
    void dot_product(std::string const& kind) {
        auto const q = of_rank(3 + random_.below(2));
        tensor_shape k = dims(q);
        std::size_t const n = k.size();
        bool const causal = random_.chance(0.3), masked = !causal && random_.chance(0.4);
        if (!causal) k[n - 2] = size();
        bool const grouped = n > 3 && k[1] % 2 == 0 && k[1] > 2 && random_.chance(0.6);
        if (grouped) k[1] /= 2;
        if (random_.chance(0.3)) k[0] = 1;
        tensor_shape v = k, y = dims(q);
        v[n - 1] = y[n - 1] = size();
        keywords named{{"is_causal", flag(causal)}, {"enable_gqa", flag(grouped)}};
        if (random_.chance(0.3)) named["dropout_p"] = real(0.3);
        if (masked) {
            tensor_shape mask{y[n - 2], k[n - 2]};
            if (random_.chance(0.5)) mask.insert(mask.begin(), random_.chance(0.5) ? dims(q)[n - 3] : 1);
            named["attn_mask"] = T(random_.chance(0.5) ? input(mask, element_type::boolean) : weight(mask));
        }
        keep(not_plain(
            call(kind, {T(q), T(k == dims(q) && random_.chance(0.5) ? q : weight(k)), T(weight(v))}, y, named)));
    }
    void gating(std::string const& kind) {
        auto const x = of_rank(3, true);
        extent const b = dims(x)[0], s = dims(x)[1], e = dims(x)[2], experts = random_.between(1, 4),
                     slots = random_.between(1, 3), h = size(4);
        tensor_shape const mask{b, s, experts, slots};
        auto const masks = call_multi("heddle." + kind, {T(x), T(weight({e, experts}))}, {mask, mask});
        auto const sent = call("einsum", {text("bsd,bsec->becd"), T(x), T(masks[0])}, {b, experts, slots, e});
        auto const done =
            call("einsum", {text("becd,edh->bech"), T(sent), T(weight({experts, e, h}))}, {b, experts, slots, h});
        keep(not_plain(call("einsum", {text("bech,bsec->bsh"), T(done), T(masks[1])}, {b, s, h})));
    }
    void embedding(std::string const& kind) {
        tensor_shape result = sizes(1 + random_.below(2));
        auto const ids = input(result, element_type::int64);
        auto const table = weight({size(), size()});
        result.push_back(dims(table)[1]);
        keywords named;
        if (random_.chance(0.3)) named["padding_idx"] = number(-1);
        keep(not_plain(call(kind, {T(ids), T(table)}, result, named)));
    }
    void embedding_bag(std::string const& kind) {
        bool const by_runs = random_.chance(0.3);
        tensor_shape const lines = by_runs ? tensor_shape{size() + 3} : sizes(2);
        auto const table = weight({size(), size()});
        bool const is_weighted = random_.chance(0.4);
        keywords named{{"mode", text(is_weighted || random_.chance(0.5) ? "sum" : "mean")}};
        if (is_weighted) named["per_sample_weights"] = T(weight(lines));
        if (random_.chance(0.3)) named["padding_idx"] = number(-1);
        extent const count = by_runs ? size() : lines[0];
        if (by_runs) named["offsets"] = T(input({count}, element_type::int64));
        keep(not_plain(call(kind, {T(input(lines, element_type::int64)), T(table)}, {count, dims(table)[1]}, named)));
    }
};

} // namespace heddle::test
