// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Finds tokens that are sorted by their experts, and makes them one operator.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/expert_operators.hpp>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Recognises the last step of experts as they are written for one device: choices are sorted, tokens are taken in that
/// order, go through products whose runs end where counts say, to which rows of their experts may be added, are
/// weighted, brought back and summed over choices. What lies before, how choices are made and weights normalised, does
/// not matter.
///
/// What is written otherwise stays as it is; so do values of the region that something else uses, too.
class expert_region {
public:
    /// Returns the call of one operator in place of a sum that ends such a region. The builder must be the same for all
    /// calls. *Complexity.* Linear in the operators that were added since the last sum.
    [[nodiscard]] std::optional<traced_call> ending_in(program_builder const& builder, traced_call const& sum);

private:
    using found = std::optional<tensor_id>;

    /// What makes a tensor, if it is one of these kinds.
    [[nodiscard]] operator_info const* maker(tensor_id t, std::initializer_list<std::string_view> kinds) const;
    [[nodiscard]] tensor_shape const& shape_of(tensor_id t) const { return builder_->tensor(t).shape; }
    /// What a tensor of this shape is another view of.
    [[nodiscard]] found viewed(tensor_id t, tensor_shape const& from) const;
    /// What a tensor is in another type, or itself.
    [[nodiscard]] tensor_id in_any_type(tensor_id t) const {
        while (auto const* const op = maker(t, {"to", "float"})) t = op->operands[0];
        return t;
    }
    /// What is taken along the first dimension at places, and the places.
    [[nodiscard]] std::optional<std::pair<tensor_id, tensor_id>> taken(tensor_id t) const;
    /// The two factors of a product, either first.
    [[nodiscard]] std::vector<std::pair<tensor_id, tensor_id>> factors(tensor_id t) const;
    /// The sort of whose places a tensor is the inverse.
    [[nodiscard]] operator_info const* sort_inverted_by(tensor_id t) const;
    [[nodiscard]] operator_info const* sort_of(tensor_id places) const;
    /// Whether runs end where those of equal numbers in a sort's result do, from zero on.
    [[nodiscard]] bool are_ends(tensor_id ends, operator_info const& sort, extent experts) const;
    /// Runs of rows times their matrices, and what is added to each row of a run.
    struct product {
        operator_info const* of_runs;
        found bias{};
    };
    [[nodiscard]] std::optional<product> product_of(tensor_id t, operator_info const& sort) const;
    /// What is between the products: an activation's operand, and the arguments of `routed_experts` that say the rest.
    struct activated {
        tensor_id from = 0;
        std::map<std::string, literal, std::less<>> how{};
    };
    [[nodiscard]] std::optional<activated> activation_of(tensor_id t) const;
    /// An activation's operand, and its name.
    [[nodiscard]] std::optional<activated> function(tensor_id t) const;
    /// x sigmoid(alpha x)
    [[nodiscard]] std::optional<activated> scaled_silu(tensor_id t) const;
    /// What two tensors are the halves of, and how they lie in it.
    [[nodiscard]] std::optional<activated> halves_of(tensor_id first, tensor_id second) const;
    /// What a tensor is an operator's result of, if that has one operand and one of these kinds.
    [[nodiscard]] operator_info const* on_one(tensor_id t, std::initializer_list<std::string_view> kinds) const {
        auto const* const op = maker(t, kinds);
        return op && op->operands.size() == 1 ? op : nullptr;
    }
    [[nodiscard]] static double number(operator_info const& op, char const* attribute, double absent) {
        auto const at = op.attributes.find(attribute);
        return at == op.attributes.end() || at->second.empty() ? absent : at->second.front();
    }

    program_builder const* builder_ = nullptr;
    static constexpr auto none = ~std::size_t{0};
    std::vector<std::size_t> makers_; // by tensor
    std::size_t known_ = 0;           // operators
};

} // namespace heddle::detail

namespace heddle::detail {

inline std::optional<traced_call> expert_region::ending_in(program_builder const& builder, traced_call const& sum) {
    builder_ = &builder;
    if (sum.operands.size() != 1 || sum.results.size() != 1) return {};
    tensor_shape const &added = shape_of(sum.operands[0]), &result = sum.results[0].shape;
    if (added.size() != 3 || result != tensor_shape{added[0], added[2]}) return {};
    auto const dims = call_arguments(sum).integers(1, "dim");
    if (dims.size() != 1 || (dims[0] != 1 && dims[0] != -2)) return {};
    auto const operators = builder.operators();
    for (; known_ < operators.size(); ++known_)
        for (tensor_id t : operators[known_].results) {
            if (t >= makers_.size()) makers_.resize(t + std::size_t{1}, none);
            makers_[t] = known_;
        }
    extent const tokens = added[0], choices = added[1], rows = tokens * choices;
    auto const by_token = viewed(sum.operands[0], {rows, added[2]});
    auto const back = by_token ? taken(*by_token) : std::nullopt;
    auto const* const sort = back ? sort_inverted_by(back->second) : nullptr;
    if (!sort) return {};
    tensor_id const order = sort->results[1];
    auto const ids = viewed(sort->operands[0], {tokens, choices});
    if (!ids) return {};
    for (auto const& [made, factor] : factors(back->first)) {
        auto const second = product_of(made, *sort);
        auto const sorted = viewed(factor, {rows});
        auto const of_choice = sorted ? taken(*sorted) : std::nullopt;
        auto const weights = of_choice ? viewed(of_choice->first, {tokens, choices}) : std::nullopt;
        if (!second || !weights || of_choice->second != order) continue;
        auto const& down = second->of_runs->operands;
        auto const hidden = activation_of(down[0]);
        auto const first = hidden ? product_of(hidden->from, *sort) : std::nullopt;
        if (!first) continue;
        auto const& up = first->of_runs->operands;
        if (up[2] != down[2] || !are_ends(up[2], *sort, shape_of(down[1])[0])) continue;
        auto const given = taken(up[0]);
        if (!given || shape_of(given->first).size() != 2 || shape_of(given->first)[0] != tokens) continue;
        auto const* const division = maker(given->second, {"floor_divide"});
        bool const are_tokens = division ? division->operands == std::vector{order} &&
                                               number(*division, "number", 0) == static_cast<double>(choices)
                                         : choices == 1 && given->second == order;
        if (!are_tokens) continue;
        traced_call call{sum.name, "heddle.routed_experts", {}, hidden->how, {}, sum.results};
        for (tensor_id t : {given->first, *ids, *weights, up[1], down[1]}) {
            call.arguments.push_back({literal::tensor{t}});
            call.operands.push_back(t);
        }
        for (auto const& [name, bias] : {std::pair("up_bias", first->bias), std::pair("down_bias", second->bias)}) {
            if (!bias) continue;
            call.keywords[name].value = literal::tensor{*bias};
            call.operands.push_back(*bias);
        }
        return call;
    }
    return {};
}

inline operator_info const* expert_region::maker(tensor_id t, std::initializer_list<std::string_view> kinds) const {
    if (t >= makers_.size() || makers_[t] == none) return nullptr;
    auto const& op = builder_->operators()[makers_[t]];
    return algorithm::find(kinds, op.kind) != kinds.end() ? &op : nullptr;
}

inline expert_region::found expert_region::viewed(tensor_id t, tensor_shape const& from) const {
    for (;;) {
        if (shape_of(t) == from) return t;
        auto const* const op = maker(t, {"view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "to"});
        if (!op || op->operands.size() != 1 ||
            is_floating(builder_->tensor(t).type) != is_floating(builder_->tensor(op->operands[0]).type))
            return {};
        t = op->operands[0];
    }
}

inline std::optional<std::pair<tensor_id, tensor_id>> expert_region::taken(tensor_id t) const {
    auto const* const op = maker(t, {"getitem", "index", "index_select"});
    if (!op || op->operands.size() != 2 || op->attributes.contains("is_mask") || number(*op, "dim", -1) != 0 ||
        shape_of(op->operands[1]).size() != 1)
        return {};
    return std::pair(op->operands[0], op->operands[1]);
}

inline std::vector<std::pair<tensor_id, tensor_id>> expert_region::factors(tensor_id t) const {
    auto const* const op = maker(t, {"mul"});
    if (!op || op->operands.size() != 2) return {};
    return {{op->operands[0], op->operands[1]}, {op->operands[1], op->operands[0]}};
}

inline operator_info const* expert_region::sort_of(tensor_id places) const {
    auto const* const op = maker(places, {"topk"});
    bool const ascends = op && op->results.size() == 2 && op->results[1] == places && op->operands.size() == 1 &&
                         number(*op, "largest", 1) == 0 && shape_of(op->operands[0]).size() == 1 &&
                         shape_of(places) == shape_of(op->operands[0]);
    return ascends ? op : nullptr;
}

inline operator_info const* expert_region::sort_inverted_by(tensor_id t) const {
    if (auto const* const again = sort_of(t)) return sort_of(again->operands[0]); // the order of an order
    auto const* const put = maker(t, {"index_put"});
    if (!put || put->operands.size() != 3 || number(*put, "accumulate", 1) != 0 || number(*put, "dim", -1) != 0)
        return nullptr;
    auto const* const counted = maker(put->operands[2], {"arange"});
    if (!counted || number(*counted, "start", 1) != 0 || number(*counted, "step", 0) != 1) return nullptr;
    return sort_of(put->operands[1]);
}

inline bool expert_region::are_ends(tensor_id ends, operator_info const& sort, extent experts) const {
    auto const* const sums = maker(in_any_type(ends), {"cumsum"});
    auto const* const counts = sums ? maker(in_any_type(sums->operands[0]), {"histc"}) : nullptr;
    auto const most = static_cast<double>(experts - 1);
    if (!counts || number(*counts, "min", -1) != 0 || number(*counts, "max", -1) != most ||
        number(*counts, "bins", 0) != most + 1)
        return false;
    return in_any_type(counts->operands[0]) == sort.results[0];
}

inline std::optional<expert_region::product> expert_region::product_of(tensor_id t, operator_info const& sort) const {
    if (auto const* const alone = maker(t, {"grouped_mm"})) return product{alone};
    auto const* const sum = maker(t, {"add"});
    if (!sum || sum->operands.size() != 2 || sum->attributes.contains("alpha")) return {};
    for (auto const k : {std::size_t{0}, std::size_t{1}}) {
        auto const* const of_runs = maker(sum->operands[k], {"grouped_mm"});
        auto const bias = taken(sum->operands[1 - k]);
        if (of_runs && bias && bias->second == sort.results[0] && shape_of(bias->first).size() == 2)
            return product{of_runs, bias->first};
    }
    return {};
}

inline std::optional<expert_region::activated> expert_region::function(tensor_id t) const {
    if (t >= makers_.size() || makers_[t] == none) return {};
    auto const& op = builder_->operators()[makers_[t]];
    if (op.operands.size() != 1 || algorithm::find(expert_activations, op.kind) == expert_activations.end()) return {};
    activated result{op.operands[0], {{"activation", {op.kind}}}};
    if (number(op, "approximate", 0) != 0) result.how["approximate"].value = std::string("tanh");
    return result;
}

inline std::optional<expert_region::activated> expert_region::scaled_silu(tensor_id t) const {
    for (auto const& [x, other] : factors(t)) {
        auto const* const sigmoid = on_one(other, {"sigmoid"});
        auto const* const scaled = sigmoid ? on_one(sigmoid->operands[0], {"mul"}) : nullptr;
        if (scaled && scaled->operands[0] == x)
            return activated{x, {{"activation", {std::string("silu")}}, {"alpha", {number(*scaled, "number", 1)}}}};
    }
    return {};
}

inline std::optional<expert_region::activated> expert_region::halves_of(tensor_id first, tensor_id second) const {
    if (shape_of(first) != shape_of(second)) return {};
    if (auto const* const both = maker(first, {"chunk", "split", "split_with_sizes"})) {
        bool const are_all = both->results == std::vector{first, second} && number(*both, "dim", -1) == 1;
        return are_all ? std::optional(activated{both->operands[0], {}}) : std::nullopt;
    }
    auto const *const a = on_one(first, {"getitem", "slice", "narrow"}), *const b = on_one(
                                                                             second, {"getitem", "slice", "narrow"});
    if (!a || !b || a->operands != b->operands) return {};
    tensor_shape whole = shape_of(first);
    whole.back() *= 2;
    if (whole.size() != 2 || shape_of(a->operands[0]) != whole) return {};
    auto const lies = [](operator_info const& op, double start, double step) {
        auto const is = [&](char const* name, std::vector<double> const& numbers) {
            auto const at = op.attributes.find(name);
            return at != op.attributes.end() && at->second == numbers;
        };
        return is("start", {0, start}) && is("step", {1, step});
    };
    activated result{a->operands[0], {}};
    if (lies(*a, 0, 2) && lies(*b, 1, 2)) result.how["interleaved"].value = true;
    else if (!lies(*a, 0, 1) || !lies(*b, 1, 1)) return {}; // the first piece of two, and the second
    return result;
}

inline std::optional<expert_region::activated> expert_region::activation_of(tensor_id t) const {
    if (auto const alone = function(t)) return alone;
    for (auto const& [active, factor] : factors(t)) {
        auto result = function(active);
        if (!result) result = scaled_silu(active);
        if (!result) continue;
        auto other = factor;
        if (auto const* const sum = on_one(other, {"add"})) {
            result->how["offset"].value = number(*sum, "number", 0);
            other = sum->operands[0];
        }
        auto const *const below = on_one(result->from, {"clamp"}), *const within = on_one(other, {"clamp"});
        if ((below == nullptr) != (within == nullptr)) continue;
        if (below) {
            double const limit = number(*within, "max", 0);
            bool const are_limits = limit > 0 && number(*within, "min", 0) == -limit &&
                                    number(*below, "max", 0) == limit && !below->attributes.contains("min");
            if (!are_limits) continue;
            result->how["limit"].value = limit;
            result->from = below->operands[0];
            other = within->operands[0];
        }
        auto const halves = halves_of(result->from, other);
        if (!halves) continue;
        result->from = halves->from;
        result->how.insert(halves->how.begin(), halves->how.end());
        result->how["gated"].value = true;
        return result;
    }
    return {};
}

} // namespace heddle::detail
