// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief HAP's reductions of a theory (HAP section 4.5), each on its own, so that what it saves and what it loses can
/// be shown. The third, about properties that nobody can still use, depends on the state; `search::property_space` does
/// it.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/theory/theory.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

/// Makes each action a list of one, which is the form in which triples can be fused.
template <class Action>
[[nodiscard]] theory<std::vector<Action>> as_sequences(theory<Action> const& t) {
    theory<std::vector<Action>> result{t.property_count, t.initial, t.goal, {}};
    for (auto const& one : t.triples) result.triples.push_back({one.pre, one.add, one.remove, {one.action}});
    return result;
}

/// Fuses triples that need nothing (or nothing but a budget that they consume) with those that use what they add: `{} a
/// {p}` and `{p, q} b {r}` become `{q} a b {p, r}`. The source triples themselves are dropped unless they reach the
/// goal; their consumers stay, for when the property is there already. No program is lost, because reading a source may
/// always wait for its first use.
template <class Action>
[[nodiscard]] theory<std::vector<Action>> fuse_sources(theory<std::vector<Action>> const& t) {
    auto const contains = [](std::vector<property_id> const& ids, property_id id) {
        return algorithm::find(ids, id) != ids.end();
    };
    auto const unite = [](std::vector<property_id> a, std::vector<property_id> const& b) {
        a.insert(a.end(), b.begin(), b.end());
        algorithm::sort(a);
        a.erase(std::unique(a.begin(), a.end()), a.end());
        return a;
    };
    using triple_type = triple<std::vector<Action>>;
    std::vector<triple_type> sources;
    theory<std::vector<Action>> result{t.property_count, t.initial, t.goal, {}};
    for (auto const& one : t.triples)
        (one.pre == one.remove && one.add.size() == 1 && !contains(t.goal, one.add[0]) ? sources : result.triples)
            .push_back(one);
    for (auto const& source : sources) {
        property_id const posted = source.add[0];
        // Consumers that are fused with another source are consumers too, so a triple may take up several.
        std::size_t const count = result.triples.size();
        for (std::size_t n = 0; n < count; ++n) {
            auto const& consumer = result.triples[n];
            // One budget cannot be spent twice.
            auto const shares_budget = [&](property_id id) { return contains(consumer.remove, id); };
            if (!contains(consumer.pre, posted) || algorithm::any_of(source.remove, shares_budget)) continue;
            triple_type fused{consumer.pre, unite(consumer.add, source.add), unite(consumer.remove, source.remove),
                              source.action};
            std::erase(fused.pre, posted);
            fused.pre = unite(std::move(fused.pre), source.pre);
            fused.action.insert(fused.action.end(), consumer.action.begin(), consumer.action.end());
            result.triples.push_back(std::move(fused));
        }
    }
    return result;
}

/// Lets each tensor be converted once, and sources not at all if `is_source` says so: a conversion consumes the
/// tensor's budget, which is a property numbered from `property_count` on. `tensor_of(action)` is the tensor that an
/// action converts, or nothing. Programs are lost: those in which two consumers want a tensor in two converted forms.
template <class Action, class TensorOf, class IsSource>
[[nodiscard]] theory<Action> convert_once(theory<Action> t, std::size_t tensor_count, TensorOf const& tensor_of,
                                          IsSource const& is_source) {
    auto const first = static_cast<property_id>(t.property_count);
    t.property_count += tensor_count;
    for (property_id n = 0; n < tensor_count; ++n)
        if (!is_source(n)) t.initial.push_back(first + n);
    std::erase_if(t.triples, [&](triple<Action> const& one) {
        auto const converted = tensor_of(one.action);
        return converted && is_source(*converted);
    });
    for (auto& one : t.triples)
        if (auto const converted = tensor_of(one.action)) {
            one.pre.push_back(first + *converted);
            one.remove.push_back(first + *converted);
        }
    return t;
}

} // namespace heddle
