// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Cuts a program into layers, which pipeline planners take as the smallest parts of a stage.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Layers of a program: consecutive operators, in the program's order.
struct program_layers {
    /// Layer l holds the operators [cuts[l], cuts[l + 1]); cuts rise from 0 to the number of operators.
    std::vector<operator_id> cuts;
    std::vector<std::string> names;

    [[nodiscard]] std::size_t size() const { return names.size(); }
    [[nodiscard]] std::size_t layer_of(operator_id o) const {
        return static_cast<std::size_t>(algorithm::upper_bound(cuts, o) - cuts.begin()) - 1;
    }
};

/// Returns the values that pass a cut: an operator before it makes them, and an operator after it uses them.
[[nodiscard]] std::vector<tensor_id> values_across(indexed_program const& p, operator_id cut);

/// Returns the bytes of the values that pass each cut, from before operator 0 to behind the last. A skip connection
/// counts at every cut that it passes.
/// *Complexity.* Linear in the program.
[[nodiscard]] std::vector<bytes> bytes_across(indexed_program const& p);

/// Makes layers between these cuts, each named after the module of the first parameter that it uses, or else after its
/// first operator.
/// *Throws* `input_error` unless the cuts rise from 0 to the number of operators.
[[nodiscard]] program_layers layers_at(indexed_program const& p, std::vector<operator_id> cuts);

/// Makes a layer for each run of operators of one module, which is that of an operator's first parameter, or else that
/// of the operator before. Modules are the longest of the prefixes with which a parameter's name begins; if there are
/// no prefixes, those of `module_of`.
/// *Throws* `input_error` that names a prefix which no parameter of an operator has.
[[nodiscard]] program_layers layers_by_name(indexed_program const& p, std::vector<std::string> const& prefixes = {});

namespace detail {

/// Finds repeats in a row of operator kinds; see `repeated_layers`.
class repeat_finder {
public:
    explicit repeat_finder(indexed_program const& p);

    /// Appends where the layers of [begin, end) end.
    void cut(std::size_t begin, std::size_t end, std::vector<operator_id>& ends) const;

private:
    struct repeats {
        std::size_t first = 0, period = 0, count = 0;
        [[nodiscard]] std::size_t operators() const { return period * count; }
    };

    /// Returns the blocks that make up most of [begin, end), and the shortest of equal ones. They are cut where the
    /// fewest bytes pass; among such places, before a parameter's first use.
    [[nodiscard]] repeats longest(std::size_t begin, std::size_t end) const;
    [[nodiscard]] repeats at_waist(std::size_t at, std::size_t same, std::size_t period) const;
    [[nodiscard]] std::pair<bytes, bool> rank(repeats const& r) const {
        return {across_[r.first + r.period], trained_before_[r.first + 1] == trained_before_[r.first]};
    }

    std::vector<operator_id> kinds_;
    std::vector<bytes> across_;
    std::vector<std::size_t> trained_before_;
};

} // namespace detail

/// Makes a layer for each of the blocks that a program repeats, operator by operator of one kind (`operator_kinds`,
/// without regard to uses), with parameters of their own. What is before, between and behind the blocks is searched for
/// repeats again; where it has none, it is one layer.
/// *Complexity.* Quadratic in the operators.
[[nodiscard]] program_layers repeated_layers(indexed_program const& p);

/// Makes a number of layers of nearly balanced cost from the cost of each operator: among the cuts by which no layer
/// costs more than `1 + slack` times the least possible cost of the costliest layer, it takes those across which the
/// fewest bytes pass. *Throws* `input_error` unless there is a cost for each operator, and an operator for each layer.
[[nodiscard]] program_layers balanced_layers(indexed_program const& p, std::span<seconds const> costs,
                                             std::size_t count, double slack = 0.1);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/program/module_names.hpp>
#include <heddle/search/partition/partition.hpp>
#include <heddle/theory/operator_kinds.hpp>

namespace heddle {

HEDDLE_INLINE std::vector<tensor_id> values_across(indexed_program const& p, operator_id cut) {
    std::vector<tensor_id> values;
    for (operator_id o = 0; o < cut; ++o)
        for (auto t : p.operators[o].results)
            if (!p.tensors[t].consumers.empty() && p.tensors[t].consumers.back() >= cut) values.push_back(t);
    return values;
}

HEDDLE_INLINE std::vector<bytes> bytes_across(indexed_program const& p) {
    std::vector<double> change(p.operators.size() + 2);
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].results) {
            if (p.tensors[t].consumers.empty()) continue;
            change[o + 1] += p.tensors[t].info.size().value;
            change[p.tensors[t].consumers.back() + 1] -= p.tensors[t].info.size().value;
        }
    std::vector<bytes> across;
    double sum = 0;
    for (std::size_t cut = 0; cut <= p.operators.size(); ++cut) across.emplace_back(sum += change[cut]);
    return across;
}

HEDDLE_INLINE program_layers layers_at(indexed_program const& p, std::vector<operator_id> cuts) {
    bool const rises = cuts.size() > 1 && cuts.front() == 0 && cuts.back() == p.operators.size() &&
                       std::ranges::adjacent_find(cuts, std::greater_equal<>{}) == cuts.end();
    if (!rises) throw input_error("layers", "expected cuts that rise from 0 to " + std::to_string(p.operators.size()));
    program_layers layers{std::move(cuts), {}};
    for (std::size_t l = 0; l + 1 < layers.cuts.size(); ++l) {
        std::string name;
        for (auto o = layers.cuts[l]; o < layers.cuts[l + 1] && name.empty(); ++o)
            for (auto t : p.operators[o].operands)
                if (name.empty() && p.tensors[t].is_parameter()) name = module_of(p.tensors[t].info.name);
        if (name.empty()) name = p.operators[layers.cuts[l]].name;
        layers.names.push_back(std::move(name));
    }
    return layers;
}

HEDDLE_INLINE program_layers layers_by_name(indexed_program const& p, std::vector<std::string> const& prefixes) {
    std::vector<bool> found(prefixes.size());
    auto const module = [&](std::string const& name) {
        if (prefixes.empty()) return module_of(name);
        std::string longest;
        for (std::size_t k = 0; k < prefixes.size(); ++k) {
            if (!name.starts_with(prefixes[k])) continue;
            found[k] = true;
            if (prefixes[k].size() > longest.size()) longest = prefixes[k];
        }
        return longest;
    };
    std::vector<operator_id> cuts{0};
    std::string current;
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].operands) {
            if (!p.tensors[t].is_parameter()) continue;
            auto const next = module(p.tensors[t].info.name);
            if (next.empty()) continue;
            if (!current.empty() && next != current) cuts.push_back(o);
            current = next;
            break;
        }
    if (auto const missing = algorithm::find(found, false); missing != found.end())
        throw input_error("layers", "no operator's parameter has a name that begins with '" +
                                        prefixes[static_cast<std::size_t>(missing - found.begin())] + "'");
    cuts.push_back(static_cast<operator_id>(p.operators.size()));
    return layers_at(p, std::move(cuts));
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE repeat_finder::repeat_finder(indexed_program const& p)
    : kinds_(operator_kinds(p, kinds_alike::in_size)), across_(bytes_across(p)), trained_before_(1) {
    for (auto const& op : p.operators) {
        bool const trains = algorithm::any_of(
            op.operands, [&](auto t) { return p.tensors[t].is_parameter() && p.tensors[t].has_cotangent; });
        trained_before_.push_back(trained_before_.back() + trains);
    }
}

HEDDLE_INLINE void repeat_finder::cut(std::size_t begin, std::size_t end, std::vector<operator_id>& ends) const {
    if (begin == end) return;
    auto const found = longest(begin, end);
    if (found.count < 2) return ends.push_back(static_cast<operator_id>(end));
    cut(begin, found.first, ends);
    std::size_t at = found.first;
    for (std::size_t n = 0; n < found.count; ++n) ends.push_back(static_cast<operator_id>(at += found.period));
    cut(at, end, ends);
}

HEDDLE_INLINE repeat_finder::repeats repeat_finder::longest(std::size_t begin, std::size_t end) const {
    repeats best;
    for (std::size_t period = 1; 2 * period <= end - begin; ++period)
        for (std::size_t at = begin; at + 2 * period <= end; ++at) {
            std::size_t same = 0;
            while (at + same + period < end && kinds_[at + same] == kinds_[at + same + period]) ++same;
            if (same >= period && (same / period + 1) * period > best.operators())
                if (auto const found = at_waist(at, same, period); found.operators() > best.operators()) best = found;
            at += same;
        }
    return best;
}

HEDDLE_INLINE repeat_finder::repeats repeat_finder::at_waist(std::size_t at, std::size_t same,
                                                             std::size_t period) const {
    repeats best;
    for (std::size_t shift = 0; shift < period && shift + period <= same; ++shift) {
        repeats const here{at + shift, period, (same - shift) / period + 1};
        bool const trains = trained_before_[here.first + period] > trained_before_[here.first];
        if (trains && (best.count == 0 || rank(here) < rank(best))) best = here;
    }
    return best;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program_layers repeated_layers(indexed_program const& p) {
    std::vector<operator_id> cuts{0};
    detail::repeat_finder(p).cut(0, p.operators.size(), cuts);
    return layers_at(p, std::move(cuts));
}

HEDDLE_INLINE program_layers balanced_layers(indexed_program const& p, std::span<seconds const> costs,
                                             std::size_t count, double slack) {
    if (costs.size() != p.operators.size())
        throw input_error("layers", "there are " + std::to_string(costs.size()) + " costs, expected one for each of " +
                                        std::to_string(p.operators.size()) + " operators");
    if (count < 1 || count > costs.size())
        throw input_error("layers", std::to_string(count) + ", expected 1 to the number of operators, " +
                                        std::to_string(costs.size()));
    search::partition_problem problem;
    problem.kinds.assign(count, 0);
    problem.largest_weight = 1;
    auto& sizes = problem.sizes.emplace_back();
    for (auto const c : costs) sizes.push_back(c.value);
    auto const even = search::partition(problem).cuts;
    auto const cost_of = [&](std::size_t first, std::size_t end) {
        double sum = 0;
        for (auto o = first; o < end; ++o) sum += sizes[o];
        return sum;
    };
    double most = 0;
    for (std::size_t l = 0; l < count; ++l) most = std::max(most, cost_of(even[l], even[l + 1]));
    std::vector<std::size_t> reach(costs.size() + 1, costs.size());
    std::size_t end = 0;
    double held = 0;
    for (std::size_t first = 0; first < costs.size(); ++first) {
        while (end < costs.size() && held + sizes[end] <= most * (1 + slack) * (1 + 1e-12)) held += sizes[end++];
        reach[first] = end;
        held -= sizes[first];
    }
    problem.largest_weight = 0;
    problem.reach.assign(count, reach);
    std::vector<double> across;
    for (auto const b : bytes_across(p)) across.push_back(b.value);
    problem.cut_costs.assign(count - 1, across);
    auto const found = search::partition(problem).cuts;
    auto const& best = found.empty() ? even : found;
    return layers_at(p, {best.begin(), best.end()});
}

} // namespace heddle

#endif
