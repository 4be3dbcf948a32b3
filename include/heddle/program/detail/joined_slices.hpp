// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Finds slices that together are all of a tensor, and makes them one operator.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/piece_operators.hpp>
#include <heddle/program/program.hpp>

#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::detail {

/// An operator that takes a run of places of one dimension of its operand, or one place without the dimension, and all
/// of the others.
struct taken_run {
    std::size_t op, axis;
    extent start, length;
    bool is_place;
};

[[nodiscard]] inline std::optional<taken_run> run_of(program_builder const& builder, std::size_t n) {
    auto const& op = builder.operators()[n];
    auto const attribute = [&](char const* name) {
        auto const found = op.attributes.find(name);
        return found == op.attributes.end() ? std::vector<double>{} : found->second;
    };
    auto const start = attribute("start"), step = attribute("step"), count = attribute("count"),
               pieces = attribute("pieces");
    if (op.operands.size() != 1 || op.results.size() != 1) return {};
    tensor_shape const &from = builder.tensor(op.operands[0]).shape, &to = builder.tensor(op.results[0]).shape;
    for (auto const* numbers : {&start, &step, &count, &pieces})
        if (numbers->size() != from.size()) return {};
    if (algorithm::any_of(step, [](double s) { return s != 1; })) return {};
    if (to.size() + 1 == from.size()) {
        auto const axis = static_cast<std::size_t>(algorithm::find(count, 1.0) - count.begin());
        if (algorithm::count(count, 0.0) != std::ssize(to) || axis == count.size()) return {};
        for (std::size_t d = 0; d < to.size(); ++d)
            if (to[d] != from[d < axis ? d : d + 1]) return {};
        return taken_run{n, axis, static_cast<extent>(start[axis]), 1, true};
    }
    if (to.size() != from.size()) return {};
    std::optional<taken_run> run;
    for (std::size_t d = 0; d < from.size(); ++d) {
        if (from[d] == to[d]) continue;
        if (run) return {};
        auto const unit = pieces[d] > 0 ? static_cast<double>(from[d]) / pieces[d] : 1;
        run = taken_run{n, d, static_cast<extent>(start[d] * unit), to[d], false};
    }
    return run;
}

/// Tells whether all of these tensors but the first are used beside what was made of others, as by the steps of a
/// recurrence, which may want each in another form.
[[nodiscard]] inline bool are_used_in_turn(program_builder const& builder, std::vector<tensor_id> const& tensors) {
    std::set<tensor_id> const given(tensors.begin(), tensors.end());
    std::set<tensor_id> made, late;
    for (auto const& op : builder.operators()) {
        bool const follows = algorithm::any_of(op.operands, [&](tensor_id t) { return made.contains(t); });
        bool uses = false;
        for (auto t : op.operands) {
            if (!given.contains(t)) continue;
            uses = true;
            if (follows) late.insert(t);
        }
        if (uses || follows) made.insert(op.results.begin(), op.results.end());
    }
    return late.size() + 1 >= given.size();
}

/// Makes one `split` of slices that together are all of a dimension, if there is a number that divides their lengths,
/// and one `unbind` of its places, unless these are used in turn. As pieces of one operator they are cut in the same
/// shares, as `qkv[..., :a]`, `qkv[..., a:b]` and `qkv[..., b:]` have to be for attention by groups of heads, and the
/// gradient of what they are taken from is put together once. Slices that the loss does not depend on do not count.
/// *Complexity.* Linear in the operators but for sorting, for each dimension of which all places are taken.
inline void join_slices(program_builder& builder, tensor_id loss) {
    auto const counts = operators_behind(builder.operators(), loss);
    std::map<std::tuple<tensor_id, std::size_t, bool>, std::vector<taken_run>> found;
    for (std::size_t n = 0; n < builder.operators().size(); ++n)
        if (auto const run = counts[n] ? run_of(builder, n) : std::nullopt)
            found[{builder.operators()[n].operands[0], run->axis, run->is_place}].push_back(*run);
    for (auto& [place, runs] : found) {
        auto const& [x, axis, are_places] = place;
        algorithm::sort(runs, {}, &taken_run::start);
        extent at = 0;
        std::vector<extent> lengths;
        std::vector<std::size_t> numbers;
        std::vector<tensor_id> results;
        for (auto const& run : runs) {
            if (run.start == at) at += run.length;
            lengths.push_back(run.length);
            numbers.push_back(run.op);
            results.push_back(builder.operators()[run.op].results[0]);
        }
        auto const dims = builder.tensor(x).shape;
        bool const are_all = at == dims[axis] && at == std::accumulate(lengths.begin(), lengths.end(), extent{0});
        if (!are_all || runs.size() < 2 || (!are_places && common_divisor(lengths) < 2)) continue;
        if (are_places && are_used_in_turn(builder, results)) continue;
        auto made = are_places ? unbound(x, dims, axis) : split_of(x, dims, axis, lengths);
        builder.merge(numbers, are_places ? "unbind" : "split", parse_index_rule(made.rule), std::move(made.options));
    }
}

} // namespace heddle::detail
