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
#include <utility>
#include <vector>

namespace heddle::detail {

/// An operator that takes a run of places of one dimension of its operand, and all of the others.
struct taken_run {
    std::size_t op, axis;
    extent start, length;
};

[[nodiscard]] inline std::optional<taken_run> run_of(program_builder const& builder, std::size_t n) {
    auto const& op = builder.operators()[n];
    auto const attribute = [&](char const* name) {
        auto const found = op.attributes.find(name);
        return found == op.attributes.end() ? std::vector<double>{} : found->second;
    };
    auto const start = attribute("start"), step = attribute("step"), pieces = attribute("pieces");
    if (op.operands.size() != 1 || op.results.size() != 1) return {};
    tensor_shape const &from = builder.tensor(op.operands[0]).shape, &to = builder.tensor(op.results[0]).shape;
    if (start.size() != from.size() || step.size() != from.size() || pieces.size() != from.size() ||
        to.size() != from.size() || algorithm::any_of(step, [](double s) { return s != 1; }))
        return {};
    std::optional<taken_run> run;
    for (std::size_t d = 0; d < from.size(); ++d) {
        if (from[d] == to[d]) continue;
        if (run) return {};
        auto const unit = pieces[d] > 0 ? static_cast<double>(from[d]) / pieces[d] : 1;
        run = taken_run{n, d, static_cast<extent>(start[d] * unit), to[d]};
    }
    return run;
}

/// Tells of each operator whether a tensor depends on it.
[[nodiscard]] inline std::vector<bool> operators_behind(program_builder const& builder, tensor_id t) {
    auto const operators = builder.operators();
    std::set<tensor_id> needed{t};
    std::vector<bool> result(operators.size());
    for (std::size_t n = operators.size(); n-- > 0;) {
        result[n] = algorithm::any_of(operators[n].results, [&](tensor_id r) { return needed.contains(r); });
        if (result[n]) needed.insert(operators[n].operands.begin(), operators[n].operands.end());
    }
    return result;
}

/// Makes one `split` of slices that together are all of a dimension, if there is a number that divides their lengths
/// and these differ: as pieces of one operator they are cut in the same shares, as `qkv[..., :a]`, `qkv[..., a:b]` and
/// `qkv[..., b:]` have to be for attention by groups of heads. Slices of one length are cut alike by themselves, and
/// those that the loss does not depend on do not count.
/// *Complexity.* Linear in the operators but for sorting.
inline void join_slices(program_builder& builder, tensor_id loss) {
    auto const counts = operators_behind(builder, loss);
    std::map<std::pair<tensor_id, std::size_t>, std::vector<taken_run>> found;
    for (std::size_t n = 0; n < builder.operators().size(); ++n)
        if (auto const run = counts[n] ? run_of(builder, n) : std::nullopt)
            found[{builder.operators()[n].operands[0], run->axis}].push_back(*run);
    for (auto& [place, runs] : found) {
        auto const& [x, axis] = place;
        algorithm::sort(runs, {}, &taken_run::start);
        extent at = 0;
        std::vector<extent> lengths;
        for (auto const& run : runs) {
            if (run.start == at) at += run.length;
            lengths.push_back(run.length);
        }
        auto const dims = builder.tensor(x).shape;
        bool const are_equal = algorithm::all_of(lengths, [&](extent e) { return e == lengths.front(); });
        bool const are_all = at == dims[axis] && at == std::accumulate(lengths.begin(), lengths.end(), extent{0});
        if (are_equal || !are_all || common_divisor(lengths) < 2) continue;
        std::vector<std::size_t> numbers;
        for (auto const& run : runs) numbers.push_back(run.op);
        auto split = split_of(x, dims, axis, lengths);
        builder.merge(numbers, "split", parse_index_rule(split.rule), std::move(split.options));
    }
}

} // namespace heddle::detail
