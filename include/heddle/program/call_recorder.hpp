// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program of traced calls and remembers which of them no rule describes; all readers of graphs use it.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composed_calls.hpp>
#include <heddle/program/detail/expert_region.hpp>
#include <heddle/program/detail/joined_slices.hpp>
#include <heddle/program/operators.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// A target for which neither the catalogue nor the user has a rule.
struct missing_rule {
    std::string target;
    std::size_t calls = 0;
};

/// Builds a program of traced calls, with the user's rules.
class call_recorder {
public:
    program_builder builder;
    /// The user's rules, which go before the catalogue's.
    rule_table rules;

    /// Adds the operator of a call, or several where the catalogue has it as such, and returns its results. *Throws*
    /// `input_error`, as `add_call` does.
    ///
    /// If there is a concatenation of the first operands already, a concatenation extends it: after `cat(a, b)`,
    /// `cat(a, b, c)` becomes `cat(cat(a, b), c)`. So where every layer takes all layers before it, as in DenseNet, not
    /// all their results are in use at once, and plans are found soon. The values are the same, and as many elements
    /// are read, written and kept.
    ///
    /// A sum that ends a mixture of experts by sorting becomes the one operator of all of it, `routed_experts`.
    std::vector<tensor_id> add(traced_call call) {
        if (!rules.contains(call.target))
            if (auto made = detail::compose(builder, call, [&](traced_call step) { return add(std::move(step)); }))
                return *std::move(made);
        if (is_torchs(call, "sum"))
            if (auto experts = experts_.ending_in(builder, call)) call = *std::move(experts);
        auto const joined = concatenated(call);
        if (joined) shorten(call, *joined);
        auto added = add_call(builder, call, rules);
        if (joined && added.is_known) concatenations_.emplace(*joined, added.results.front());
        if (!added.is_known) {
            auto known = algorithm::find(missing_, call.target, &missing_rule::target);
            if (known == missing_.end()) known = missing_.insert(missing_.end(), {call.target, 0});
            ++known->calls;
        }
        return std::move(added.results);
    }

    /// Returns the program with this loss, as the builder does. Slices that tile a dimension are one operator in it;
    /// see `detail::join_slices`. The recorder must not be used afterwards.
    [[nodiscard]] program finish(tensor_id loss) {
        detail::join_slices(builder, loss);
        return std::move(builder).finish(loss);
    }

    /// Lists targets in the order of their first use.
    [[nodiscard]] std::vector<missing_rule> const& missing() const { return missing_; }
    /// Returns one warning for each target without a rule.
    [[nodiscard]] std::vector<std::string> warnings() const {
        std::vector<std::string> texts;
        for (auto const& m : missing_) texts.push_back(missing_rule_warning(m.target));
        return texts;
    }

private:
    /// An axis, and what is concatenated along it.
    using concatenation = std::pair<std::size_t, std::vector<tensor_id>>;

    /// Tells whether a call is one of torch's for which the user has no rule.
    [[nodiscard]] bool is_torchs(traced_call const& call, std::string_view kind) const {
        return detail::is_torch_module(detail::split_target(call.target).first) &&
               detail::kind_of(call.target) == kind && !rules.contains(call.target);
    }

    /// Returns what a call concatenates by the catalogue's rule, if it does.
    [[nodiscard]] std::optional<concatenation> concatenated(traced_call const& call) const {
        if (!is_torchs(call, "cat") || call.operands.empty()) return {};
        call_arguments const arguments(call);
        return concatenation{
            arguments.axis(arguments.integer(1, "dim", 0), builder.tensor(call.operands.front()).shape.size()),
            call.operands};
    }
    /// Replaces the first operands by the longest concatenation of them that there is.
    void shorten(traced_call& call, concatenation const& joined) const {
        auto part = joined;
        for (part.second.pop_back(); part.second.size() > 1; part.second.pop_back()) {
            auto const found = concatenations_.find(part);
            if (found == concatenations_.end()) continue;
            call.operands.erase(call.operands.begin() + 1,
                                call.operands.begin() + static_cast<std::ptrdiff_t>(part.second.size()));
            call.operands.front() = found->second;
            literal::list operands(call.operands.size());
            for (std::size_t k = 0; k < operands.size(); ++k) operands[k].value = literal::tensor{call.operands[k]};
            call.arguments = {{std::move(operands)}, {static_cast<std::int64_t>(joined.first)}};
            call.keywords.clear();
            return;
        }
    }

    std::vector<missing_rule> missing_;
    std::map<concatenation, tensor_id> concatenations_;
    detail::expert_region experts_;
};

} // namespace heddle
