// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Numbers element by element, norms and random numbers, by operators of the catalogue.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace heddle::detail {

/// Numbers element by element, norms and random numbers.
class composed_values : public composer {
public:
    explicit composed_values(composer const& c) : composer(c) {}

    /// Whether any element is true, or all are.
    results truth_of_all() {
        auto const x = view_.tensor(0, "input");
        auto const truth =
            type_of(x) == element_type::boolean
                ? x
                : step("torch.ne", {{"input", of(x)}, {"other", whole(0)}}, shape_of(x), element_type::boolean);
        auto const dims = view_.integers(1, "dim");
        char const* const target = kind_of(call().target) == "any" ? "torch.amax" : "torch.amin";
        return one(step(target,
                        {{"input", of(truth)}, {"dim", list_of(dims)}, {"keepdim", {view_.flag(2, "keepdim", false)}}},
                        result().shape, result().type));
    }
    results clamped() {
        auto const least = view_.find_tensor(1, "min"), most = view_.find_tensor(2, "max");
        if (!least && !most) return {};
        if ((view_.find(1, "min") && !least) || (view_.find(2, "max") && !most)) return {};
        tensor_id x = view_.tensor(0, "input");
        if (least) x = step("torch.maximum", {{"input", of(x)}, {"other", of(*least)}}, result().shape, result().type);
        if (most) x = step("torch.minimum", {{"input", of(x)}, {"other", of(*most)}}, result().shape, result().type);
        return one(x);
    }
    /// Of a number and so many times a tensor.
    results sum_with_multiple() {
        auto const number = view_.number(0, "input"), alpha = view_.number(2, "alpha");
        auto const y = view_.find_tensor(1, "other");
        if (!number || !alpha || !y) return {};
        double const sign = kind_of(call().target) == "add" ? 1 : -1;
        return one(placed(in_type(*y, result().type), sign * *alpha, *number));
    }
    /// With the quotient of tensors, or one that is rounded towards zero.
    results rounded_quotient() {
        bool const is_floor_divide = kind_of(call().target) == "floor_divide";
        auto const mode = is_floor_divide ? "floor" : view_.text(2, "rounding_mode", "");
        auto const by = view_.find_tensor(1, "other");
        auto const x = view_.find_tensor(0, "input");
        if (!x || (mode != "floor" && mode != "trunc") || (mode == "floor" && !by)) return {};
        auto const* other = view_.find(1, "other");
        if (!other) return {};
        auto const q = step("torch.div", {{"input", of(*x)}, {"other", *other}}, result().shape, real_type());
        return one(in_type(on(mode == "floor" ? "torch.floor" : "torch.trunc", q), result().type));
    }
    /// What is left by a tensor, or, with the sign of what it is of, by a number.
    results remainder() {
        bool const truncates = kind_of(call().target) == "fmod";
        auto const x = view_.find_tensor(0, "input"), by = view_.find_tensor(1, "other");
        auto const* other = view_.find(1, "other");
        if (!x || !other || (!truncates && !by)) return {};
        auto const q = step("torch.div", {{"input", of(*x)}, {"other", *other}}, result().shape, real_type());
        auto const times = on(truncates ? "torch.trunc" : "torch.floor", q);
        auto const taken = step("torch.mul", {{"input", of(times)}, {"other", *other}}, result().shape, real_type());
        return one(step("torch.sub", {{"input", of(*x)}, {"other", of(taken)}}, result().shape, result().type));
    }
    results fraction() {
        auto const x = view_.tensor(0, "input");
        return one(
            step("torch.sub", {{"input", of(x)}, {"other", of(on("torch.trunc", x))}}, result().shape, result().type));
    }
    results power_of_number() {
        auto const base = view_.number(0, "input");
        auto const exponent = view_.find_tensor(1, "exponent");
        if (!base || !exponent) return {};
        auto const same = step("torch.full_like", {{"input", of(*exponent)}, {"fill_value", {*base}}},
                               shape_of(*exponent), result().type);
        return one(
            step("torch.pow", {{"input", of(same)}, {"exponent", of(*exponent)}}, result().shape, result().type));
    }
    results scaled_elu() {
        auto const scale = view_.number(2, "scale").value_or(1), before = view_.number(3, "input_scale").value_or(1);
        if (!call().keywords.contains("scale") || (scale == 1 && before == 1)) return {};
        auto x = view_.tensor(0, "input");
        auto const times = [&](tensor_id t, double by) {
            return by == 1 ? t : step("torch.mul", {{"input", of(t)}, {"other", {by}}}, result().shape, result().type);
        };
        x = step("torch.elu", {{"input", of(times(x, before))}, {"alpha", {view_.number(1, "alpha").value_or(1)}}},
                 result().shape, result().type);
        return one(times(x, scale));
    }
    /// Norms but the Euclidean: the greatest or least size of an element, or a root of the sum of powers of sizes.
    results norm() {
        auto const x = view_.tensor(0, "input");
        auto const p = view_.number(1, "p");
        if (!p || *p == 2 || *p == 0 || *p == -std::numeric_limits<double>::infinity()) return {};
        auto const dims = view_.find(2, "dim") ? *view_.find(2, "dim") : literal{};
        auto const over = [&](char const* target, tensor_id t) {
            return step(target, {{"input", of(t)}, {"dim", dims}, {"keepdim", {view_.flag(3, "keepdim", false)}}},
                        result().shape, result().type);
        };
        auto const sizes = in_type(on("torch.abs", x), result().type);
        if (std::isinf(*p)) return one(over("torch.amax", sizes));
        if (*p == 1) return one(over("torch.sum", sizes));
        auto const raised = [&](tensor_id t, double by) {
            return step("torch.pow", {{"input", of(t)}, {"exponent", {by}}}, shape_of(t), type_of(t));
        };
        return one(raised(over("torch.sum", raised(sizes, *p)), 1 / *p));
    }
    /// The cosine of the angle between vectors along a dimension.
    results cosine() {
        auto const x = view_.find_tensor(0, "x1"), y = view_.find_tensor(1, "x2");
        if (!x || !y || shape_of(*x).size() != shape_of(*y).size()) return {};
        auto const axis = view_.axis(view_.integer(2, "dim", 1), shape_of(*x).size());
        auto const over = [&](char const* target, tensor_id t) {
            tensor_shape dims = shape_of(t);
            dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
            return step(target, {{"input", of(t)}, {"dim", list_of({static_cast<std::int64_t>(axis)})}}, dims,
                        type_of(t));
        };
        auto const length = [&](tensor_id t) {
            auto const norm = over("torch.norm", t);
            return step("torch.clamp_min", {{"input", of(norm)}, {"min", {view_.number(3, "eps").value_or(1e-8)}}},
                        shape_of(norm), type_of(norm));
        };
        auto const lengths = both("torch.mul", length(*x), length(*y));
        return one(both("torch.div", over("torch.sum", both("torch.mul", *x, *y)), lengths));
    }
    /// The norm of the difference of vectors along the last dimension, with a little added to each element.
    results distance_of_vectors() {
        auto const x = view_.find_tensor(0, "x1"), y = view_.find_tensor(1, "x2");
        if (!x || !y) return {};
        auto const apart = placed(both("torch.sub", *x, *y), 1, view_.number(3, "eps").value_or(1e-6));
        return one(step("torch.norm",
                        {{"input", of(apart)},
                         {"p", {view_.number(2, "p").value_or(2)}},
                         {"dim", list_of({-1})},
                         {"keepdim", {view_.flag(4, "keepdim", false)}}},
                        result().shape, result().type));
    }
    results is_finite() {
        auto const x = view_.tensor(0, "input");
        return one(step("torch.lt",
                        {{"input", of(on("torch.abs", x))}, {"other", {std::numeric_limits<double>::infinity()}}},
                        result().shape, result().type));
    }
    /// Ones where row and column are the same.
    results identity() {
        if (result().shape.size() != 2) return {};
        auto const is_same = step(
            "torch.eq", {{"input", of(counted({result().shape[0], 1}))}, {"other", of(counted({result().shape[1]}))}},
            result().shape, element_type::boolean);
        return one(in_type(is_same, result().type));
    }
    results places_in_order() {
        auto const x = view_.tensor(0, "input");
        return one(steps("torch.sort",
                         {{"input", of(x)},
                          {"dim", whole(view_.integer(1, "dim", -1))},
                          {"descending", {view_.flag(2, "descending", false)}}},
                         {{result().shape, type_of(x)}, result()})[1]);
    }
    results exclusive() {
        auto const x = view_.find_tensor(0, "input"), y = view_.find_tensor(1, "other");
        if (!x || !y || (type_of(*x) == element_type::boolean && type_of(*y) == element_type::boolean)) return {};
        auto const truth = [&](tensor_id t) {
            return step("torch.ne", {{"input", of(t)}, {"other", whole(0)}}, shape_of(t), element_type::boolean);
        };
        return one(
            step("torch.ne", {{"input", of(truth(*x))}, {"other", of(truth(*y))}}, result().shape, result().type));
    }
    /// What the elements of a dimension up to each make together: steps double how many are in it.
    results scanned() {
        char const* const target = kind_of(call().target) == "cumprod" ? "torch.mul" : "torch.logaddexp";
        auto made = in_type(view_.tensor(0, "input"), result().type);
        tensor_shape const dims = shape_of(made);
        if (dims.empty()) return {};
        auto const axis = view_.axis(view_.integer(1, "dim"), dims.size());
        for (extent reach = 1; reach < dims[axis]; reach *= 2) {
            auto const later = piece(made, axis, reach, dims[axis]), earlier = piece(made, axis, 0, dims[axis] - reach);
            made = joined({piece(made, axis, 0, reach), both(target, later, earlier)}, axis, dims);
        }
        return one(made);
    }
    /// Makes the differences of neighbours along a dimension.
    results differences() {
        if (view_.integer(1, "n", 1) != 1) return {};
        auto const x = view_.tensor(0, "input");
        if (type_of(x) == element_type::boolean) return {};
        auto const axis = view_.axis(view_.integer(2, "dim", -1), shape_of(x).size());
        tensor_shape dims = shape_of(x);
        std::vector<tensor_id> pieces{x};
        if (auto const before = view_.find_tensor(3, "prepend")) pieces.insert(pieces.begin(), *before);
        if (auto const after = view_.find_tensor(4, "append")) pieces.push_back(*after);
        dims[axis] = 0;
        for (auto t : pieces) {
            if (shape_of(t).size() != dims.size()) return {};
            dims[axis] += shape_of(t)[axis];
        }
        if (dims[axis] < 2) return {};
        auto const all = joined(pieces, axis, dims);
        auto const later = piece(all, axis, 1, dims[axis]), earlier = piece(all, axis, 0, dims[axis] - 1);
        return one(step("torch.sub", {{"input", of(later)}, {"other", of(earlier)}}, result().shape, result().type));
    }

    /// Euclidean distances of the rows of two matrices, or of many.
    results distances() {
        auto const x = view_.find_tensor(0, "x1"), y = view_.find_tensor(1, "x2");
        if (!x || !y || view_.number(2, "p").value_or(2) != 2 || shape_of(*x).size() != shape_of(*y).size() ||
            shape_of(*x).size() < 2 || result().shape.size() != shape_of(*x).size())
            return {};
        auto const rank = static_cast<std::ptrdiff_t>(shape_of(*x).size());
        tensor_shape rows = shape_of(*x), columns = shape_of(*y), all = result().shape;
        if (rows.back() != columns.back()) return {};
        all.push_back(rows.back());
        rows.insert(rows.begin() + rank - 1, 1);
        columns.insert(columns.begin() + rank - 2, 1);
        auto const difference = step(
            "torch.sub", {{"input", of(in_shape(*x, rows))}, {"other", of(in_shape(*y, columns))}}, all, type_of(*x));
        return one(step("torch.norm", {{"input", of(difference)}, {"p", whole(2)}, {"dim", list_of({-1})}},
                        result().shape, result().type));
    }

    /// Euclidean distances of every row of a matrix to those after it.
    results distances_of_pairs() {
        auto const x = view_.find_tensor(0, "input");
        if (!x || view_.number(1, "p").value_or(2) != 2 || shape_of(*x).size() != 2 || shape_of(*x)[0] < 2) return {};
        extent const rows = shape_of(*x)[0], pairs = rows * (rows - 1) / 2;
        auto const first = counted({rows, 1}), second = counted({rows});
        auto const is_pair = in_shape(
            step("torch.lt", {{"input", of(first)}, {"other", of(second)}}, {rows, rows}, element_type::boolean),
            {rows * rows});
        auto const end = [&](tensor_id number) {
            auto const all = step("torch.expand", {{"input", of(number)}}, {rows, rows}, element_type::int64);
            return picked(*x, picked(in_shape(all, {rows * rows}), is_pair, pairs), pairs);
        };
        auto const difference = both("torch.sub", end(first), end(second));
        return one(step("torch.norm", {{"input", of(difference)}, {"p", whole(2)}, {"dim", list_of({-1})}},
                        result().shape, result().type));
    }

    /// Scales a weight to the given length along a dimension, or in all.
    results normed_weight() {
        auto const v = view_.find_tensor(0, "v"), g = view_.find_tensor(1, "g");
        if (!v || !g || shape_of(*v) != result().shape) return {};
        auto const kept = view_.integer(2, "dim", 0), rank = static_cast<std::int64_t>(shape_of(*v).size());
        std::vector<std::int64_t> dims;
        tensor_shape lengths = shape_of(*v);
        for (std::int64_t d = 0; d < rank; ++d)
            if (d != kept) {
                dims.push_back(d);
                lengths[static_cast<std::size_t>(d)] = 1;
            }
        if (shape_of(*g) != lengths) return {};
        auto const norm =
            step("torch.norm", {{"input", of(*v)}, {"dim", list_of(dims)}, {"keepdim", {true}}}, lengths, type_of(*v));
        auto const scale = step("torch.div", {{"input", of(*g)}, {"other", of(norm)}}, lengths, type_of(*v));
        return one(step("torch.mul", {{"input", of(*v)}, {"other", of(scale)}}, result().shape, result().type));
    }

    results bernoulli() {
        auto const p = view_.number(1, "p");
        if (!p) return {};
        auto const x = view_.tensor(0, "input");
        auto const type = is_floating(type_of(x)) ? type_of(x) : element_type::float32;
        auto const same = step("torch.full_like", {{"input", of(x)}, {"fill_value", {*p}}}, shape_of(x), type);
        return one(step("torch.bernoulli", {{"input", of(same)}}, result().shape, result().type));
    }
    /// In the place of a tensor, uniform in a range or of a normal distribution.
    results drawn_in_place() {
        bool const is_uniform = kind_of(call().target) == "uniform";
        auto const x = view_.find_tensor(0, "input");
        if (!x || shape_of(*x) != result().shape || view_.find_tensor(1, "std")) return {};
        double const first = view_.number(1, is_uniform ? "from" : "mean").value_or(0),
                     second = view_.number(2, is_uniform ? "to" : "std").value_or(1);
        auto const u = step(is_uniform ? "torch.rand_like" : "torch.randn_like", {{"input", of(*x)}}, result().shape,
                            result().type);
        return one(placed(u, is_uniform ? second - first : second, first));
    }
    /// In the place of a tensor, of an exponential distribution: the logarithm of a uniform one.
    results drawn_of_waits() {
        auto const x = view_.find_tensor(0, "input");
        double const rate = view_.number(1, "lambd").value_or(1);
        if (!x || shape_of(*x) != result().shape || !(rate > 0)) return {};
        auto const u = step("torch.rand_like", {{"input", of(*x)}}, result().shape, result().type);
        return one(placed(on("torch.log", placed(u, -1, 1)), -1 / rate, 0));
    }
    results random_integers() {
        auto const low = view_.number(0, "low"), high = view_.number(1, "high");
        if (!call().keywords.contains("high") || !high) return {};
        auto const u = step("torch.rand", {}, result().shape, element_type::float32);
        double const from = low.value_or(0);
        auto const drawn = on("torch.floor", placed(u, *high - from, 0));
        return one(in_type(placed(drawn, 1, from), result().type));
    }
    results random_order() {
        if (result().shape.size() != 1) return {};
        auto const u = step("torch.rand", {}, result().shape, element_type::float32);
        return one(steps("torch.sort", {{"input", of(u)}}, {{result().shape, element_type::float32}, result()})[1]);
    }
};

} // namespace heddle::detail
