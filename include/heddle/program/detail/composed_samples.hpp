// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Fourier transforms, and samples at places of a grid, by operators of the catalogue.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Fourier transforms and samples.
class composed_samples : public composer {
public:
    explicit composed_samples(composer const& c) : composer(c) {}

    /// A Fourier transform of some dimensions, one after the other. Complex numbers are pairs in a last dimension.
    results transformed() {
        auto const kind = kind_of(call().target);
        bool const of_real = kind == "_fft_r2c", to_real = kind == "_fft_c2r";
        auto x = view_.tensor(0, "input");
        auto axes = view_.integers(1, "dim");
        auto const rank = static_cast<std::int64_t>(shape_of(x).size()) - (of_real ? 0 : 1);
        if (axes.empty() || algorithm::any_of(axes, [&](auto d) { return d < 0 || d >= rank; })) return {};
        bool const forward = of_real || (!to_real && view_.flag(3, "forward", true));
        double places = 1;
        if (of_real) algorithm::reverse(axes); // the last one makes pairs, or ends them
        for (std::size_t n = 0; n < axes.size(); ++n) {
            auto const axis = static_cast<std::size_t>(axes[n]);
            bool const begins = of_real && n == 0, ends = to_real && n + 1 == axes.size();
            extent const from = shape_of(x)[axis], to = result().shape[axis];
            extent const period = ends ? to : from;
            places *= static_cast<double>(period);
            auto const matrix = roots_of_unity({from, begins ? 1 : 2, to, ends ? 1 : 2}, period, forward, ends);
            x = along(x, axis, rank, matrix);
        }
        auto const how = view_.integer(2, "normalization", 0);
        return one(placed(x, how == 0 ? 1 : how == 1 ? 1 / std::sqrt(places) : 1 / places, 0));
    }
    /// The places of a grid from -1 to 1, moved by an affine map for each image.
    results affine_grid() {
        auto const maps = view_.find_tensor(0, "theta");
        tensor_shape const made = result().shape;
        if (!maps || made.size() != 4 || shape_of(*maps) != tensor_shape{made[0], 2, 3}) return {};
        auto const type = result().type;
        bool const aligned = view_.flag(2, "align_corners", false);
        auto const along = [&](std::size_t axis) {
            auto const size = static_cast<double>(made[axis]);
            tensor_shape dims{1, 1, 1};
            dims[axis - 1] = made[axis];
            auto const number = in_type(counted(dims), type);
            auto const place = !aligned         ? placed(number, 2 / size, 1 / size - 1)
                               : made[axis] > 1 ? placed(number, 2 / (size - 1), -1)
                                                : number;
            return step("torch.expand", {{"input", of(place)}}, {made[1], made[2], 1}, type);
        };
        auto const ones = step("torch.ones", {}, {made[1], made[2], 1}, type);
        auto const grid =
            in_shape(joined({along(2), along(1), ones}, 2, {made[1], made[2], 3}), {made[1] * made[2], 3});
        auto const all = step("torch.expand", {{"input", of(in_shape(grid, {1, made[1] * made[2], 3}))}},
                              {made[0], made[1] * made[2], 3}, type);
        auto const turned = step("torch.transpose", {{"input", of(*maps)}, {"dim0", whole(1)}, {"dim1", whole(2)}},
                                 {made[0], 3, 2}, type);
        return one(in_shape(
            step("torch.matmul", {{"input", of(all)}, {"other", of(turned)}}, {made[0], made[1] * made[2], 2}, type),
            made));
    }
    /// Samples of images at places of a grid from -1 to 1: the nearest element, or the mean of four by distance. Beyond
    /// the edges there are zeros, or the edges go on.
    results sampled() {
        auto const x = view_.find_tensor(0, "input"), grid = view_.find_tensor(1, "grid");
        auto const mode = view_.integer(2, "interpolation_mode", 0), beyond = view_.integer(3, "padding_mode", 0);
        if (!x || !grid || shape_of(*x).size() != 4 || shape_of(*grid).size() != 4 || mode > 1 || beyond > 1) return {};
        bool const aligned = view_.flag(4, "align_corners", false);
        tensor_shape const dims = shape_of(*x), places = shape_of(*grid);
        extent const samples = dims[0], channels = dims[1], count = places[1] * places[2];
        auto const type = type_of(*x);
        // Of columns and rows: the elements before and after a place with their parts, or the nearest one.
        using neighbours = std::vector<std::pair<tensor_id, tensor_id>>; // their numbers, and their parts
        auto const around = [&](extent side, extent size) {
            auto const of_side =
                step("operator.getitem",
                     {{"input", of(*grid)}, {"index", {literal::list{{literal::ellipsis{}}, whole(side)}}}},
                     {samples, places[1], places[2]}, type);
            auto const width = static_cast<double>(size);
            auto place =
                placed(in_shape(of_side, {samples, count}), (aligned ? width - 1 : width) / 2, (width - 1) / 2);
            auto const limited = [&](tensor_id t, element_type of_type, bool is_whole) {
                auto const most = is_whole ? whole(size - 1) : literal{width - 1};
                return step("torch.clamp", {{"input", of(t)}, {"min", whole(0)}, {"max", most}}, shape_of(t), of_type);
            };
            if (beyond == 1) place = limited(place, type, false);
            auto const before = on(mode == 1 ? "torch.round" : "torch.floor", place);
            neighbours found;
            for (extent n = 0; n < (mode == 1 ? 1 : 2); ++n) {
                auto const number = in_type(placed(before, 1, static_cast<double>(n)), element_type::int64);
                auto const inside = limited(number, element_type::int64, true);
                auto part = in_type(step("torch.eq", {{"input", of(number)}, {"other", of(inside)}}, shape_of(number),
                                         element_type::boolean),
                                    type);
                if (mode == 0) {
                    auto const after = both("torch.sub", place, before);
                    auto const share =
                        n == 1 ? after
                               : step("torch.sub", {{"input", whole(1)}, {"other", of(after)}}, shape_of(after), type);
                    part = both("torch.mul", share, part);
                }
                found.emplace_back(inside, part);
            }
            return found;
        };
        auto const columns = around(0, dims[3]), rows = around(1, dims[2]);
        auto const elements = in_shape(*x, {samples, channels, dims[2] * dims[3]});
        std::optional<tensor_id> sum;
        for (auto const& [row, of_row] : rows)
            for (auto const& [column, of_column] : columns) {
                auto const number = both("torch.add", with("torch.mul", row, whole(dims[3])), column);
                auto const all = step("torch.expand", {{"input", of(in_shape(number, {samples, 1, count}))}},
                                      {samples, channels, count}, element_type::int64);
                auto const found =
                    step("torch.gather", {{"input", of(elements)}, {"dim", whole(2)}, {"index", of(all)}},
                         {samples, channels, count}, type);
                auto const part = in_shape(both("torch.mul", of_row, of_column), {samples, 1, count});
                auto const term = both("torch.mul", found, part);
                sum = sum ? both("torch.add", *sum, term) : term;
            }
        return one(in_shape(*sum, result().shape));
    }

private:
    /// Returns how number `p` of pair `j` acts on number `q` of pair `k`, for a matrix of shape (j, p, k, q): the
    /// cosine of j k / period turns, with a quarter of a turn between the numbers of a pair. Where the result is real,
    /// the half of the pairs that is given stands for the other half too.
    tensor_id roots_of_unity(tensor_shape const& dims, extent period, bool forward, bool is_half) {
        auto const type = result().type;
        auto const j = counted({dims[0], 1, 1, 1}), k = counted({dims[2], 1}), p = counted({dims[1], 1, 1}),
                   q = counted({dims[3]});
        auto const turns = with("torch.mul", both("torch.mul", j, k), whole(forward ? -4 : 4));
        auto const quarters = with("torch.mul", both("torch.sub", p, q), whole(period));
        auto const place = with("torch.remainder", both("torch.add", turns, quarters), whole(4 * period));
        double const quarter = std::acos(-1.0) / 2;
        auto const cosine = on("torch.cos", placed(in_type(place, type), quarter / static_cast<double>(period), 0));
        if (!is_half) return cosine;
        auto const is_at = [&](tensor_id number, extent at) {
            auto const truth = step("torch.eq", {{"input", of(number)}, {"other", whole(at)}}, shape_of(number),
                                    element_type::boolean);
            return in_type(truth, type);
        };
        auto const alone = both("torch.add", is_at(j, 0), is_at(with("torch.mul", j, whole(2)), period));
        auto const times = step("torch.sub", {{"input", whole(2)}, {"other", of(alone)}}, shape_of(alone), type);
        return both("torch.mul", cosine, times);
    }
    /// A product with a matrix of shape (j, p, k, q) along a dimension of `rank` ones, after which pairs may follow.
    tensor_id along(tensor_id x, std::size_t axis, std::int64_t rank, tensor_id matrix) {
        tensor_shape const of_matrix = shape_of(matrix);
        std::vector<std::int64_t> order, back(static_cast<std::size_t>(rank));
        for (std::int64_t d = 0; d < rank; ++d)
            if (d != static_cast<std::int64_t>(axis)) order.push_back(d);
        order.push_back(static_cast<std::int64_t>(axis));
        for (std::size_t d = 0; d < order.size(); ++d)
            back[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
        auto const permuted = [&](tensor_id t, std::vector<std::int64_t> dims) {
            for (auto d = rank; d < static_cast<std::int64_t>(shape_of(t).size()); ++d) dims.push_back(d);
            tensor_shape shape;
            for (auto d : dims) shape.push_back(shape_of(t)[static_cast<std::size_t>(d)]);
            return step("torch.permute", {{"input", of(t)}, {"dims", list_of(dims)}}, shape, type_of(t));
        };
        auto const moved = permuted(x, order);
        tensor_shape lines = shape_of(moved);
        lines.resize(static_cast<std::size_t>(rank));
        lines.back() = of_matrix[0] * of_matrix[1];
        auto const flat = in_shape(matrix, {lines.back(), of_matrix[2] * of_matrix[3]});
        tensor_shape made = lines;
        made.back() = shape_of(flat)[1];
        auto const product =
            step("torch.matmul", {{"input", of(in_shape(moved, lines))}, {"other", of(flat)}}, made, type_of(x));
        made.back() = of_matrix[2];
        if (of_matrix[3] > 1) made.push_back(of_matrix[3]);
        return permuted(in_shape(product, made), back);
    }
};

} // namespace heddle::detail
