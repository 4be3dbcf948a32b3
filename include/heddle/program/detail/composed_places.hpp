// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What is put at, or taken from, other places, by operators of the catalogue.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// What is put at, or taken from, other places.
class composed_places : public composer {
public:
    explicit composed_places(composer const& c) : composer(c) {}

    /// Groups of tensors, and these together, where they are more than one operator takes.
    results joined_in_groups() {
        auto const& all = call().operands;
        if (all.size() <= most_operands) return {};
        bool const stacks = kind_of(call().target) == "stack";
        std::size_t const rank = result().shape.size();
        if (!stacks && algorithm::any_of(all, [&](tensor_id t) { return shape_of(t).size() != rank; })) return {};
        auto const axis = view_.axis(view_.integer(1, "dim", 0), rank);
        auto const count = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(all.size()))));
        std::vector<tensor_id> groups;
        for (std::size_t first = 0; first < all.size(); first += count) {
            tensor_shape dims = result().shape;
            dims[axis] = 0;
            literal::list items;
            for (auto const t : std::span(all).subspan(first, std::min(count, all.size() - first))) {
                items.emplace_back().value = literal::tensor{t};
                dims[axis] += stacks ? 1 : shape_of(t)[axis];
            }
            groups.push_back(step(stacks ? "torch.stack" : "torch.cat",
                                  {{"tensors", {std::move(items)}}, {"dim", whole(static_cast<std::int64_t>(axis))}},
                                  std::move(dims), result().type));
        }
        return one(joined(groups, axis, result().shape));
    }
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
    /// The last two dimensions, each in place of the other.
    results last_swapped() {
        return one(step("torch.transpose",
                        {{"input", of(view_.tensor(0, "input"))}, {"dim0", whole(-2)}, {"dim1", whole(-1)}},
                        result().shape, result().type));
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
    /// Windows along a dimension, one after the other in it, with their elements in a last one.
    results windows_along() {
        auto const x = view_.tensor(0, "input");
        auto const* dimension = view_.find(1, "dimension");
        tensor_shape const dims = shape_of(x), made = result().shape;
        if (!dimension || !dimension->as<std::int64_t>() || dims.empty() || made.size() != dims.size() + 1) return {};
        auto const axis = view_.axis(*dimension->as<std::int64_t>(), dims.size());
        extent const size = view_.integer(2, "size"), stride = view_.integer(3, "step");
        if (size < 1 || stride < 1 || size > dims[axis] || made.back() != size ||
            made[axis] != (dims[axis] - size) / stride + 1)
            return {};
        extent const count = made[axis];
        tensor_shape line = dims, parted = dims;
        line[axis] = count * size;
        parted[axis] = count;
        parted.insert(parted.begin() + static_cast<std::ptrdiff_t>(axis) + 1, size);
        auto const all = [&] {
            if (size == stride) return piece(x, axis, 0, count * size);
            auto const first = with("torch.mul", counted({count, 1}), whole(stride));
            auto const places = in_shape(both("torch.add", first, counted({size})), {count * size});
            return step("torch.index_select",
                        {{"input", of(x)}, {"dim", whole(static_cast<std::int64_t>(axis))}, {"index", of(places)}},
                        line, type_of(x));
        }();
        std::vector<std::int64_t> order;
        for (std::size_t d = 0; d < parted.size(); ++d)
            if (d != axis + 1) order.push_back(static_cast<std::int64_t>(d));
        order.push_back(static_cast<std::int64_t>(axis) + 1);
        return one(step("torch.permute", {{"input", of(in_shape(all, parted))}, {"dims", list_of(order)}}, made,
                        result().type));
    }
    /// Windows of images side by side: a convolution, whose weight takes one element of the window each.
    results windows() {
        auto const x = view_.tensor(0, "input");
        auto const window = view_.integers(1, "kernel_size"), dilation = view_.integers(2, "dilation"),
                   padding = view_.integers(3, "padding"), stride = view_.integers(4, "stride");
        for (auto const* numbers : {&window, &dilation, &padding, &stride})
            if (numbers->size() != 2 || algorithm::any_of(*numbers, [](auto n) { return n < 0 || n > 1 << 20; }))
                return {};
        if (shape_of(x).size() != 4 || result().shape.size() != 3 || window[0] < 1 || window[1] < 1) return {};
        extent const groups = shape_of(x)[1];
        tensor_shape dims{shape_of(x)[0], groups * window[0] * window[1]};
        for (std::size_t d = 0; d < 2; ++d) {
            auto const room = shape_of(x)[d + 2] + 2 * padding[d] - dilation[d] * (window[d] - 1) - 1;
            if (room < 0 || stride[d] < 1) return {};
            dims.push_back(room / stride[d] + 1);
        }
        auto const made = step("torch.conv2d",
                               {{"input", of(x)},
                                {"weight", of(single_places(groups, window))},
                                {"stride", list_of(stride)},
                                {"padding", list_of(padding)},
                                {"dilation", list_of(dilation)},
                                {"groups", whole(groups)}},
                               dims, result().type);
        return one(in_shape(made, result().shape));
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
        auto const weight = single_places(groups, window);
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
    /// Elements brought together with what is at the places that they name. The greatest at a place is the last that is
    /// put there when they come in order.
    results scattered_together() {
        auto const how = view_.text(4, "reduce", "");
        bool const keeps = view_.flag(5, "include_self", true);
        auto const x = view_.tensor(0, "input"), index = view_.tensor(2, "index"), source = view_.tensor(3, "src");
        auto const axis = whole(view_.integer(1, "dim"));
        if (shape_of(index) != shape_of(source) || shape_of(x).size() != shape_of(index).size()) return {};
        auto const put = [&](char const* target, tensor_id to, tensor_id places, char const* name, literal value) {
            return step(target, {{"input", of(to)}, {"dim", axis}, {"index", of(places)}, {name, std::move(value)}},
                        result().shape, type_of(x));
        };
        if (how == "amax" || how == "amin") {
            auto const sorted =
                steps("torch.sort", {{"input", of(source)}, {"dim", axis}, {"descending", {how == "amin"}}},
                      {{shape_of(source), type_of(x)}, {shape_of(source), element_type::int64}});
            auto const places = step("torch.gather", {{"input", of(index)}, {"dim", axis}, {"index", of(sorted[1])}},
                                     shape_of(index), type_of(index));
            auto const made = put("torch.scatter", x, places, "src", of(sorted[0]));
            return one(keeps ? both(how == "amax" ? "torch.maximum" : "torch.minimum", x, made) : made);
        }
        if (how != "sum" && how != "mean") return {};
        // What is there first is part of it, or gone where something is put.
        auto const sum_at = [&](tensor_id first, tensor_id each) {
            auto const kept = keeps ? first : put("torch.scatter", first, index, "value", {0.0});
            return put("torch.scatter_add", kept, index, "src", of(each));
        };
        auto const sum = sum_at(x, source);
        if (how == "sum") return one(sum);
        auto const ones = [&](tensor_id like) {
            return step("torch.ones_like", {{"input", of(like)}}, shape_of(like), type_of(x));
        };
        auto const first = ones(x), each = ones(source);
        return one(both("torch.div", sum, sum_at(first, each)));
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

private:
    /// The weight of a convolution in groups of one channel that has a channel for each place of a window, with a one
    /// there and zeros elsewhere.
    tensor_id single_places(extent groups, std::vector<std::int64_t> const& window) {
        extent const places = window[0] * window[1];
        auto const is_own = step("torch.eq", {{"input", of(counted({places, 1}))}, {"other", of(counted({places}))}},
                                 {places, places}, element_type::boolean);
        auto const own = in_shape(in_type(is_own, result().type), {1, places, 1, window[0], window[1]});
        auto const all =
            step("torch.expand", {{"input", of(own)}}, {groups, places, 1, window[0], window[1]}, result().type);
        return in_shape(all, {groups * places, 1, window[0], window[1]});
    }
};

} // namespace heddle::detail
