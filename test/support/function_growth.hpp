// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Recipes for functions of elements, reductions and losses of elements.
#pragma once

#include <support/product_growth.hpp>

#include <algorithm>

namespace heddle::test {

class function_growth : public product_growth {
public:
    using product_growth::product_growth;

protected:
    static bool among(std::string const& kind, std::initializer_list<char const*> kinds) {
        return std::ranges::find(kinds, kind) != kinds.end();
    }

    tensor_id positive(tensor_id x) { return call("add", {T(same("sigmoid", x)), real(0.5)}, dims(x)); }
    /// Returns a value in (0, 1), far enough from both.
    tensor_id probability(tensor_id x) { return same("sigmoid", same("tanh", x)); }

    // ---- of one element

    void smooth_function(std::string const& kind) {
        auto x = operand();
        if (among(kind, {"rsqrt", "reciprocal", "log1p", "log2", "log10", "pow"})) x = positive(x);
        if (among(kind, {"expm1", "exp2", "sinh", "cosh", "tan"})) x = same("tanh", x);
        if (kind == "pow" && random_.chance(0.3)) return keep(same(kind, x, {T(broadcasting(x))}));
        if (kind == "pow")
            return keep(same(kind, x, {random_.of(std::vector<literal>{number(2), real(0.5), real(-1)})}));
        keep(same(kind, x));
    }
    /// Applies a function that has a kink, or jumps.
    void bent_function(std::string const& kind) {
        auto const x = plain_operand();
        keywords named;
        if (kind == "leaky_relu" && random_.chance(0.5)) named["negative_slope"] = real(0.2);
        if (among(kind, {"elu", "celu"}) && random_.chance(0.5)) named["alpha"] = real(0.7);
        if (kind == "softplus" && random_.chance(0.5)) named = {{"beta", real(2)}, {"threshold", real(0.5)}};
        if (kind == "hardtanh" && random_.chance(0.5)) named = {{"min_val", real(-0.3)}, {"max_val", real(0.6)}};
        if (among(kind, {"softshrink", "hardshrink"}) && random_.chance(0.5)) named["lambd"] = real(0.1);
        if (kind == "threshold") named = {{"threshold", real(0.1)}, {"value", real(-0.4)}};
        if (kind == "clamp") named[random_.chance(0.5) ? "min" : "max"] = real(0.1);
        keep(not_plain(kind.starts_with("clamp_")                   ? same(kind, x, {real(0.1)})
                       : among(kind, {"floor_divide", "remainder"}) ? same(kind, x, {real(-0.7)})
                                                                    : same(kind, x, {}, named)));
    }
    void drop(std::string const& kind) {
        if (kind == "stochastic_depth")
            return keep(
                not_plain(same("torchvision.ops.stochastic_depth.stochastic_depth", at_least_rank(1),
                               {real(0.4), text(random_.chance(0.7) ? "row" : "batch"), flag(random_.chance(0.8))})));
        auto const x = of_rank(2 + static_cast<std::size_t>(kind[7] - '0'));
        keep(not_plain(same(kind, x, {}, {{"p", real(0.4)}, {"training", flag(random_.chance(0.8))}})));
    }

    // ---- of several

    /// Returns a weight that broadcasts to `x`.
    tensor_id broadcasting(tensor_id x) {
        tensor_shape other = dims(x);
        if (random_.chance(0.5)) {
            for (auto& e : other)
                if (random_.chance(0.4)) e = 1;
            if (!other.empty() && random_.chance(0.3)) other.erase(other.begin());
        }
        return weight(other);
    }
    tensor_id compared(std::string const& kind, tensor_id x) {
        bool const of_number = random_.chance(0.3) && !kind.starts_with("logical");
        return call(kind, {T(x), of_number ? real(0.2) : T(broadcasting(x))}, dims(x), {}, element_type::boolean);
    }
    void compare(std::string const& kind) {
        auto const x = plain_operand();
        keep(not_plain(call("float", {T(compared(kind, x))}, dims(x), {}, element_type::float32)));
    }
    void function_of_two(std::string const& kind) {
        auto const x = plain_operand(), y = broadcasting(x);
        keep(not_plain(call(kind, {T(x), T(kind == "atan2" ? positive(y) : y)}, dims(x))));
    }
    void choose(std::string const& kind) {
        auto const x = operand();
        auto const mask =
            is_plain(x) && random_.chance(0.5) ? compared("gt", x) : input(dims(x), element_type::boolean);
        if (kind == "masked_fill")
            return keep(not_plain(call(kind, {T(x), T(mask), random_.chance(0.5) ? number(0) : real(1.5)}, dims(x))));
        auto const other = random_.chance(0.5) ? T(broadcasting(x)) : random_.chance(0.5) ? number(0) : real(-0.5);
        bool const swapped = random_.chance(0.5), method = !swapped && random_.chance(0.3);
        if (method) return keep(not_plain(call(kind, {T(x), T(mask), other}, dims(x))));
        keep(not_plain(call("torch." + kind, {T(mask), swapped ? other : T(x), swapped ? T(x) : other}, dims(x))));
    }
    void combine_masks(std::string const& kind) {
        if (kind != "logical_xor" && random_.chance(0.5)) return combine_bits(kind);
        auto const x = plain_operand();
        std::vector<literal> masks{T(compared("gt", x))};
        if (kind != "invert") masks.push_back(T(compared("lt", x)));
        auto const mask = call(kind, masks, dims(x), {}, element_type::boolean);
        keep(not_plain(call("float", {T(mask)}, dims(x), {}, element_type::float32)));
    }
    /// Counts the bits of whole numbers in the loss by way of floating-point ones.
    void combine_bits(std::string const& kind) {
        auto const x = input(sizes(2), element_type::int64);
        std::vector<literal> numbers{T(x)};
        if (kind != "invert")
            numbers.push_back(random_.chance(0.5) ? number(3) : T(input(dims(x), element_type::int64)));
        auto const bits = call(kind, numbers, dims(x), {}, element_type::int64);
        keep(not_plain(call("float", {T(bits)}, dims(x), {}, element_type::float32)));
    }
    void constant(std::string const& kind) {
        auto const x = operand();
        keep(not_trained(kind == "detach"
                             ? same(kind, x)
                             : not_plain(kind == "full_like" ? same(kind, x, {real(0.7)}) : same(kind, x))));
    }
    void prelu(std::string const& kind) {
        auto const x = operand_that([&](tensor_id t) { return rank(t) > 1 && is_plain(t); }, 2);
        keep(not_plain(same(kind, x, {T(weight({random_.chance(0.5) ? 1 : dims(x)[1]}))})));
    }
    void gate(std::string const& kind) {
        auto const x = at_least_rank(1);
        auto const d = any_axis(x);
        tensor_shape both = dims(x);
        both[d] *= 2;
        auto const halves = call("cat", {list({T(x), T(weight(dims(x)))}), axis(d, both.size())}, both);
        keep(not_plain(call(kind, {T(halves), axis(d, both.size())}, dims(x))));
    }
    void subtract_from(std::string const& kind) {
        auto const x = operand();
        if (random_.chance(0.4)) return keep(same(kind, x, {real(0.3)}));
        keywords named;
        if (random_.chance(0.5)) named["alpha"] = real(0.5);
        keep(same(kind, x, {T(broadcasting(x))}, named));
    }
    void place_of_extreme(std::string const& kind) {
        auto const x = operand_that([&](tensor_id t) { return rank(t) > 0 && is_plain(t); }, 2);
        auto const d = any_axis(x);
        tensor_shape y = dims(x);
        y.erase(y.begin() + static_cast<std::ptrdiff_t>(d));
        bool const of_all = random_.chance(0.3);
        if (of_all) y.clear();
        auto const found =
            call(kind, of_all ? std::vector<literal>{T(x)} : std::vector<literal>{T(x), axis(d, rank(x))}, y, {},
                 element_type::int64);
        keep(not_plain(call("float", {T(found)}, y, {}, element_type::float32)));
    }
    void function_of_three(std::string const& kind) {
        auto const x = operand();
        if (kind == "lerp")
            return keep(
                call(kind, {T(x), T(broadcasting(x)), random_.chance(0.5) ? T(broadcasting(x)) : real(0.3)}, dims(x)));
        if (kind == "addcdiv")
            return keep(
                call(kind, {T(x), T(broadcasting(x)), T(positive(broadcasting(x)))}, dims(x), {{"value", real(0.5)}}));
        keep(call(kind, {T(x), T(broadcasting(x)), T(broadcasting(x))}, dims(x), {{"value", real(0.5)}}));
    }

    // ---- over dimensions

    struct reduced_dims {
        std::vector<std::int64_t> axes{};
        tensor_shape result{};
        extent elements = 1;
    };
    reduced_dims some_reduced(tensor_id x, bool keep_dims) {
        reduced_dims r;
        for (std::size_t d = 0; d < rank(x); ++d) {
            bool const reduced = random_.chance(0.4) || (d + 1 == rank(x) && r.axes.empty());
            if (reduced) r.axes.push_back(static_cast<std::int64_t>(d));
            if (reduced) r.elements *= dims(x)[d];
            if (!reduced || keep_dims) r.result.push_back(reduced ? 1 : dims(x)[d]);
        }
        return r;
    }
    /// Reduces by a sum, or by another function of whole rows.
    void reduce(std::string const& kind) {
        bool const sum = among(kind, {"sum", "mean", "logsumexp"});
        auto const good = [&](tensor_id t) { return rank(t) > 0 && is_plain(t); };
        auto const x = sum ? at_least_rank(1) : operand_that(good, 2);
        if (among(kind, {"max", "min"}))
            return random_.chance(0.4) ? keep(not_plain(call(kind, {T(x)}, {}))) : extremes(kind, x);
        bool const keep_dims = random_.chance(0.3), spread = among(kind, {"var", "std", "var_mean", "std_mean"});
        auto const r = some_reduced(x, keep_dims);
        keywords named{{"keepdim", flag(keep_dims)}};
        if (spread && (r.elements < 2 || random_.chance(0.5))) named["unbiased"] = flag(false);
        if (kind.starts_with("std") && r.elements < 2)
            return keep(same("square", x)); // of one element there is no slope
        if (kind.ends_with("_mean")) {
            for (auto y : call_multi(kind, {T(x), ints(r.axes)}, {r.result, r.result}, named)) keep(not_plain(y));
            return;
        }
        auto const y = kind == "norm" ? call(kind, {T(x), number(2), ints(r.axes)}, r.result, named)
                                      : call(kind, {T(x), ints(r.axes)}, r.result, named);
        keep(spread ? not_plain(y) : y);
    }
    /// Takes extremes of one dimension, and what another tensor has at their places.
    void extremes(std::string const& kind, tensor_id x) {
        auto const d = any_axis(x);
        bool const keep_dims = random_.chance(0.5);
        tensor_shape kept = dims(x), y = kept;
        kept[d] = 1;
        if (keep_dims) y = kept;
        else y.erase(y.begin() + static_cast<std::ptrdiff_t>(d));
        auto const found =
            call_multi(kind, {T(x), axis(d, rank(x))}, {y, y}, {{"keepdim", flag(keep_dims)}}, {}, element_type::int64);
        bool const looks_up = random_.chance(0.5); // then the loss may depend on the places alone
        if (!looks_up || random_.chance(0.5)) keep(not_plain(found[0]));
        if (!looks_up) return;
        auto const places =
            keep_dims ? found[1] : call("unsqueeze", {T(found[1]), axis(d, rank(x))}, kept, {}, element_type::int64);
        keep(not_plain(call("gather", {T(weight(dims(x))), axis(d, rank(x)), T(places)}, kept)));
    }
    void accumulate(std::string const& kind) {
        auto const x = at_least_rank(1);
        keep(same(kind, x, {axis(any_axis(x), rank(x))}));
    }

    // ---- losses of elements

    void element_loss(std::string const& kind) {
        auto x = among(kind, {"l1_loss", "smooth_l1_loss", "huber_loss"}) ? plain_operand() : operand();
        keywords named;
        auto const target = weight(dims(x));
        if (kind == "smooth_l1_loss") named["beta"] = real(random_.chance(0.5) ? 1 : 0.3);
        if (kind == "huber_loss") named["delta"] = real(random_.chance(0.5) ? 1 : 0.3);
        if (kind == "binary_cross_entropy") x = probability(x);
        if (kind == "kl_div") x = same("logsigmoid", x);
        auto wanted = target;
        if (kind == "kl_div" && random_.chance(0.3)) named["log_target"] = flag(true);
        else if (among(kind, {"binary_cross_entropy", "kl_div"}))
            wanted = random_.chance(0.5) ? probability(target) : input(dims(x));
        char const* reduction = random_.of(std::vector<char const*>{"mean", "sum", "none"});
        if (kind == "kl_div" && rank(x) > 0 && random_.chance(0.3)) reduction = "batchmean";
        named["reduction"] = text(reduction);
        if (kind.starts_with("binary_cross_entropy") && random_.chance(0.4)) named["weight"] = T(broadcasting(x));
        if (kind.ends_with("with_logits") && random_.chance(0.4)) named["pos_weight"] = T(broadcasting(x));
        keep(not_plain(
            call(kind, {T(x), T(wanted)}, reduction == std::string("none") ? dims(x) : tensor_shape{}, named)));
    }
};

} // namespace heddle::test
