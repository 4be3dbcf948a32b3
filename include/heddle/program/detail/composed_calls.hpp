// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Calls that are several operators of the catalogue.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composed_attention.hpp>
#include <heddle/program/detail/composed_cells.hpp>
#include <heddle/program/detail/composed_samples.hpp>
#include <heddle/program/detail/composer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
    results exclusive() {
        auto const x = view_.find_tensor(0, "input"), y = view_.find_tensor(1, "other");
        if (!x || !y || (type_of(*x) == element_type::boolean && type_of(*y) == element_type::boolean)) return {};
        auto const truth = [&](tensor_id t) {
            return step("torch.ne", {{"input", of(t)}, {"other", whole(0)}}, shape_of(t), element_type::boolean);
        };
        return one(
            step("torch.ne", {{"input", of(truth(*x))}, {"other", of(truth(*y))}}, result().shape, result().type));
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

/// What is put at, or taken from, other places.
class composed_places : public composer {
public:
    explicit composed_places(composer const& c) : composer(c) {}

    results strided() {
        auto const x = view_.tensor(0, "input");
        auto const sizes = view_.integers(1, "size"), strides = view_.integers(2, "stride");
        extent dense = 1;
        if (sizes.size() != strides.size() || view_.integer(3, "storage_offset", 0) != 0) return {};
        for (std::size_t d = sizes.size(); d-- > 0; dense *= sizes[d])
            if (sizes[d] != 1 && strides[d] != dense) return {};
        bool const same =
            element_count(shape_of(x)) == element_count(result().shape) && algorithm::equal(sizes, result().shape);
        return same ? one(step("torch.reshape", {{"input", of(x)}}, result().shape, result().type)) : results{};
    }
    results broadcast_all() {
        std::vector<tensor_id> made;
        for (std::size_t k = 0; k < call().operands.size() && k < call().results.size(); ++k) {
            auto const x = call().operands[k];
            auto const& dims = call().results[k].shape;
            made.push_back(shape_of(x) == dims ? x : step("torch.expand", {{"input", of(x)}}, dims, type_of(x)));
        }
        return made;
    }
    results copied() {
        auto const from = view_.find_tensor(1, "src");
        if (!from) return {};
        auto const& dims = result().shape;
        auto const x =
            shape_of(*from) == dims ? *from : step("torch.expand", {{"input", of(*from)}}, dims, type_of(*from));
        return one(in_type(x, result().type));
    }
    /// With a slice, or a place, of a dimension replaced.
    results with_piece() {
        bool const is_place = kind_of(call().target) == "select_scatter";
        auto const x = view_.tensor(0, "input"), value = view_.tensor(1, "src");
        tensor_shape const dims = shape_of(x);
        auto const axis = view_.axis(view_.integer(2, "dim", 0), dims.size());
        extent const size = dims[axis];
        auto const bound = [&](std::int64_t at) { return std::clamp<extent>(at < 0 ? at + size : at, 0, size); };
        extent const first = bound(is_place ? view_.integer(3, "index") : view_.integer(3, "start", 0));
        extent const end = is_place ? first + 1 : bound(view_.integer(4, "end", size));
        tensor_shape part = dims;
        part[axis] = end - first;
        if ((!is_place && view_.integer(5, "step", 1) != 1) || first >= end || end > size ||
            element_count(part) != element_count(shape_of(value)) || result().shape != dims)
            return {};
        std::vector<tensor_id> pieces;
        if (first > 0) pieces.push_back(piece(x, axis, 0, first));
        pieces.push_back(in_shape(value, part));
        if (end < size) pieces.push_back(piece(x, axis, end, size));
        return one(joined(pieces, axis, dims));
    }
    /// A mask of the first dimensions that one number, or a tensor that broadcasts, takes the place of.
    results put_by_mask() {
        auto const* indices = view_.find(1, "indices");
        auto const* items = indices ? indices->as<literal::list>() : nullptr;
        auto const x = view_.tensor(0, "input"), value = view_.tensor(2, "values");
        if (!items || view_.flag(3, "accumulate", false)) return put_broadcast();
        auto const* mask = items->size() == 1 ? items->front().as<literal::tensor>() : nullptr;
        if (!mask || type_of(mask->id) != element_type::boolean || element_count(shape_of(value)) != 1)
            return put_broadcast();
        tensor_shape dims = shape_of(mask->id);
        if (dims.size() > shape_of(x).size()) return {};
        dims.resize(shape_of(x).size(), 1);
        auto const wide = in_shape(mask->id, dims);
        return one(step("torch.where", {{"condition", of(wide)}, {"input", of(in_shape(value, {}))}, {"other", of(x)}},
                        result().shape, result().type));
    }
    /// Values that broadcast to the places they are put at, as tensors of that shape.
    results put_broadcast() {
        auto const* indices = view_.find(1, "indices");
        auto const* items = indices ? indices->as<literal::list>() : nullptr;
        auto const x = view_.tensor(0, "input"), value = view_.tensor(2, "values");
        if (!items) return {};
        std::vector<tensor_id> places;
        tensor_shape put;
        for (std::size_t n = 0; n < items->size(); ++n)
            if (auto const* t = (*items)[n].as<literal::tensor>()) {
                if (type_of(t->id) == element_type::boolean) return {};
                places.push_back(t->id);
            }
        if (places.empty() || items->size() != places.size() || places.size() > shape_of(x).size()) return {};
        put = broadcast(view_, places);
        put.insert(put.end(), shape_of(x).begin() + static_cast<std::ptrdiff_t>(places.size()), shape_of(x).end());
        if (shape_of(value) == put || shape_of(value).size() > put.size()) return {};
        auto const wide = step("torch.expand", {{"input", of(value)}}, put, type_of(value));
        return one(step("torch.index_put",
                        {{"input", of(x)},
                         {"indices", *indices},
                         {"values", of(wide)},
                         {"accumulate", {view_.flag(3, "accumulate", false)}}},
                        result().shape, result().type));
    }
    /// Elements of a tensor, one after the other, where a mask is true.
    results scattered_by_mask() {
        auto const x = view_.tensor(0, "input"), mask = view_.tensor(1, "mask"), source = view_.tensor(2, "source");
        auto const& dims = result().shape;
        auto const count = static_cast<extent>(element_count(dims)),
                   last = static_cast<extent>(element_count(shape_of(source))) - 1;
        if (shape_of(x) != dims || type_of(mask) != element_type::boolean) return {};
        auto const wide =
            shape_of(mask) == dims ? mask : step("torch.expand", {{"input", of(mask)}}, dims, element_type::boolean);
        auto const line = in_type(in_shape(wide, {count}), element_type::int64);
        auto const order = step("torch.cumsum", {{"input", of(line)}, {"dim", whole(0)}}, {count}, element_type::int64);
        auto const number =
            step("torch.sub", {{"input", of(order)}, {"other", whole(1)}}, {count}, element_type::int64);
        auto const place = step("torch.clamp", {{"input", of(number)}, {"min", whole(0)}, {"max", whole(last)}},
                                {count}, element_type::int64);
        auto const taken = step("operator.getitem",
                                {{"input", of(in_shape(source, {last + 1}))}, {"index", {literal::list{of(place)}}}},
                                {count}, type_of(source));
        return one(step("torch.where",
                        {{"condition", of(wide)}, {"input", of(in_shape(taken, dims))}, {"other", of(x)}}, dims,
                        result().type));
    }
    /// Windows that are added up where they meet: a transposed convolution, whose weight puts each element at its place
    /// in the window.
    results summed_windows() {
        auto const x = view_.tensor(0, "input");
        auto const sizes = view_.integers(1, "output_size"), window = view_.integers(2, "kernel_size"),
                   dilation = view_.integers(3, "dilation"), padding = view_.integers(4, "padding"),
                   stride = view_.integers(5, "stride");
        for (auto const* numbers : {&sizes, &window, &dilation, &padding, &stride})
            if (numbers->size() != 2 || algorithm::any_of(*numbers, [](auto n) { return n < 0 || n > 1 << 20; }))
                return {};
        if (shape_of(x).size() != 3 || result().shape.size() != 4 || window[0] < 1 || window[1] < 1) return {};
        extent const places = window[0] * window[1], groups = result().shape[1];
        tensor_shape counts;
        std::vector<std::int64_t> more;
        for (std::size_t d = 0; d < 2; ++d) {
            if (stride[d] < 1) return {};
            auto const room = sizes[d] + 2 * padding[d] - dilation[d] * (window[d] - 1) - 1;
            if (room < 0) return {};
            counts.push_back(room / stride[d] + 1);
            more.push_back(room % stride[d]);
        }
        if (shape_of(x)[1] % places != 0 || shape_of(x)[1] / places != groups ||
            shape_of(x)[2] != counts[0] * counts[1])
            return {};
        auto const number = step("torch.arange", {{"end", whole(places)}}, {places}, element_type::int64);
        auto const is_own = step("torch.eq", {{"input", of(in_shape(number, {places, 1}))}, {"other", of(number)}},
                                 {places, places}, element_type::boolean);
        auto const own = in_shape(in_type(is_own, result().type), {1, places, 1, window[0], window[1]});
        auto const all =
            step("torch.expand", {{"input", of(own)}}, {groups, places, 1, window[0], window[1]}, result().type);
        auto const weight = in_shape(all, {groups * places, 1, window[0], window[1]});
        return one(step("torch.conv_transpose2d",
                        {{"input", of(in_shape(x, {shape_of(x)[0], groups * places, counts[0], counts[1]}))},
                         {"weight", of(weight)},
                         {"stride", list_of(stride)},
                         {"padding", list_of(padding)},
                         {"output_padding", list_of(more)},
                         {"groups", whole(groups)},
                         {"dilation", list_of(dilation)}},
                        result().shape, result().type));
    }
    results scattered_sum() {
        if (view_.text(4, "reduce", "") != "sum" || !view_.flag(5, "include_self", true)) return {};
        return one(step("torch.scatter_add",
                        {{"input", of(view_.tensor(0, "input"))},
                         {"dim", whole(view_.integer(1, "dim"))},
                         {"index", of(view_.tensor(2, "index"))},
                         {"src", of(view_.tensor(3, "src"))}},
                        result().shape, result().type));
    }
    results padded() {
        auto const kind = kind_of(call().target);
        return one(step("torch.pad",
                        {{"input", of(view_.tensor(0, "input"))},
                         {"pad", list_of(view_.integers(1, "padding"))},
                         {"mode", {std::string(kind.starts_with("reflection") ? "reflect" : "replicate")}}},
                        result().shape, result().type));
    }
    /// Bags that begin at equal distances are lines of ids.
    results bags_of_one_length() {
        auto const ids = view_.find_tensor(0, "input"), weight = view_.find_tensor(1, "weight"),
                   offsets = view_.find_tensor(2, "offsets");
        if (!ids || !weight || !offsets || shape_of(*ids).size() != 1 || shape_of(*offsets).size() != 1) return {};
        extent const bags = shape_of(*offsets)[0] - (view_.flag(9, "include_last_offset", false) ? 1 : 0);
        if (bags < 1 || shape_of(*ids)[0] % bags != 0) return {};
        auto const length = shape_of(*ids)[0] / bags;
        auto const made = algorithm::find_if(builder_.operators(), [&](operator_info const& op) {
            return op.kind == "arange" && op.results.front() == *offsets;
        });
        if (made == builder_.operators().end() || made->attributes.at("start").front() != 0 ||
            made->attributes.at("step").front() != static_cast<double>(length))
            return {};
        traced_call lines = call();
        auto const table = in_shape(*ids, {bags, length});
        lines.keywords.erase("offsets");
        lines.keywords.erase("include_last_offset");
        lines.keywords.insert_or_assign("input", of(table));
        lines.operands.clear();
        for (auto const& [name, value] : lines.keywords) collect_tensors(value, lines.operands);
        if (lines.keywords.contains("per_sample_weights") && view_.find_tensor(8, "per_sample_weights"))
            lines.keywords.insert_or_assign("per_sample_weights",
                                            of(in_shape(*view_.find_tensor(8, "per_sample_weights"), {bags, length})));
        lines.arguments.clear();
        lines.results.resize(1);
        return add_(std::move(lines));
    }
};

/// Makes operators of a call by a member function of one of these classes.
template <auto Make>
composer::results composed(composer const& c) {
    return [&]<class Topic>(composer::results (Topic::*make)()) { return (Topic(c).*make)(); }(Make);
}

/// Makes several operators of one call of torch. Where it returns nothing, it has added nothing.
inline composer::results compose(program_builder const& builder, traced_call const& call, composer::adder add) {
    auto const [module, name] = split_target(call.target);
    if (!is_torch_module(module) || call.results.empty()) return {};
    static std::map<std::string_view, composer::results (*)(composer const&)> const table{
        {"_cdist_forward", composed<&composed_values::distances>},
        {"_fft_c2c", composed<&composed_samples::transformed>},
        {"_fft_c2r", composed<&composed_samples::transformed>},
        {"_fft_r2c", composed<&composed_samples::transformed>},
        {"_pdist_forward", composed<&composed_values::distances_of_pairs>},
        {"_weight_norm", composed<&composed_values::normed_weight>},
        {"all", composed<&composed_values::truth_of_all>},
        {"any", composed<&composed_values::truth_of_all>},
        {"as_strided", composed<&composed_places::strided>},
        {"bernoulli", composed<&composed_values::bernoulli>},
        {"broadcast_tensors", composed<&composed_places::broadcast_all>},
        {"cdist", composed<&composed_values::distances>},
        {"clamp", composed<&composed_values::clamped>},
        {"col2im", composed<&composed_places::summed_windows>},
        {"copy", composed<&composed_places::copied>},
        {"diff", composed<&composed_values::differences>},
        {"div", composed<&composed_values::rounded_quotient>},
        {"elu", composed<&composed_values::scaled_elu>},
        {"embedding_bag", composed<&composed_places::bags_of_one_length>},
        {"floor_divide", composed<&composed_values::rounded_quotient>},
        {"fmod", composed<&composed_values::remainder>},
        {"frac", composed<&composed_values::fraction>},
        {"grid_sampler", composed<&composed_samples::sampled>},
        {"grid_sampler_2d", composed<&composed_samples::sampled>},
        {"gru", composed<&composed_cells::layers_with_dropout>},
        {"index_put", composed<&composed_places::put_by_mask>},
        {"logical_xor", composed<&composed_values::exclusive>},
        {"lstm", composed<&composed_cells::layers_with_dropout>},
        {"masked_scatter", composed<&composed_places::scattered_by_mask>},
        {"multi_head_attention_forward", composed<&composed_attention::multi_head>},
        {"norm", composed<&composed_values::norm>},
        {"normal", composed<&composed_values::drawn_in_place>},
        {"pow", composed<&composed_values::power_of_number>},
        {"randint", composed<&composed_values::random_integers>},
        {"randperm", composed<&composed_values::random_order>},
        {"reflection_pad1d", composed<&composed_places::padded>},
        {"reflection_pad2d", composed<&composed_places::padded>},
        {"reflection_pad3d", composed<&composed_places::padded>},
        {"remainder", composed<&composed_values::remainder>},
        {"replication_pad1d", composed<&composed_places::padded>},
        {"replication_pad2d", composed<&composed_places::padded>},
        {"replication_pad3d", composed<&composed_places::padded>},
        {"rnn_relu", composed<&composed_cells::layers_with_dropout>},
        {"rnn_tanh", composed<&composed_cells::layers_with_dropout>},
        {"scatter_reduce", composed<&composed_places::scattered_sum>},
        {"select_scatter", composed<&composed_places::with_piece>},
        {"slice_scatter", composed<&composed_places::with_piece>},
        {"uniform", composed<&composed_values::drawn_in_place>},
    };
    auto const found = table.find(kind_of(call.target));
    return found == table.end() ? composer::results{} : found->second(composer(builder, call, std::move(add)));
}

} // namespace heddle::detail
