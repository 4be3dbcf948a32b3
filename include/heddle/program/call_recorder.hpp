// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Makes a program of traced calls and remembers which of them no rule describes: what readers of graphs have in common.
#pragma once

#include <heddle/program/operators.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A target that neither the catalogue nor the user has a rule for.
struct missing_rule {
    std::string target;
    std::size_t calls = 0;
};

/// A builder for traced calls, with the user's rules.
class call_recorder {
public:
    program_builder builder;
    /// The user's own; they go before the catalogue's.
    rule_table rules;

    /// Adds an operator and returns its results. *Throws* `input_error`, as `add_call` does.
    std::vector<tensor_id> add(traced_call const& call) {
        auto added = add_call(builder, call, rules);
        if (!added.is_known) {
            auto known = std::ranges::find(missing_, call.target, &missing_rule::target);
            if (known == missing_.end()) known = missing_.insert(missing_.end(), {call.target, 0});
            ++known->calls;
        }
        return std::move(added.results);
    }

    /// In order of first use.
    [[nodiscard]] std::vector<missing_rule> const& missing() const { return missing_; }
    /// One for each target without a rule.
    [[nodiscard]] std::vector<std::string> warnings() const {
        std::vector<std::string> texts;
        for (auto const& m : missing_) texts.push_back(missing_rule_warning(m.target));
        return texts;
    }

private:
    std::vector<missing_rule> missing_;
};

} // namespace heddle
