// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A random program under construction: sources, values to go on from, traced calls.
#pragma once

#include <heddle/program/operators.hpp>
#include <support/literals.hpp>
#include <support/random_programs.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// What recipes for single operators share. Extents are small, and some are one.
///
/// A value is *plain* if its elements are equal or zero only by accident. A kink (`relu`) or a choice (a maximum) may
/// be applied only to a plain value, since sums in another order must not decide between branches.
class program_growth {
public:
    explicit program_growth(random_source& random) : random_(random) {}

protected:
    using keywords = std::map<std::string, literal, std::less<>>;

    /// Returns a copy, since the builder's own moves when a tensor is added.
    [[nodiscard]] tensor_shape dims(tensor_id t) const { return builder_.tensor(t).shape; }
    [[nodiscard]] std::size_t rank(tensor_id t) const { return dims(t).size(); }
    [[nodiscard]] bool is_trained(tensor_id t) const { return trained_.contains(t); }
    [[nodiscard]] bool is_plain(tensor_id t) const { return plain_.contains(t); }
    extent size(int most = 6) { return random_.chance(0.15) ? 1 : random_.between(1, most); }
    tensor_shape sizes(std::size_t rank) {
        tensor_shape result;
        for (std::size_t d = 0; d < rank; ++d) result.push_back(size(rank < 4 ? 6 : 4));
        return result;
    }
    std::string fresh_name(char const* stem) { return stem + std::to_string(++names_); }
    literal axis(std::size_t d, std::size_t rank) {
        return number(static_cast<std::int64_t>(d) - (random_.chance(0.5) ? static_cast<std::int64_t>(rank) : 0));
    }
    std::size_t any_axis(tensor_id t) { return random_.below(rank(t)); }

    // ---- sources

    tensor_id input(tensor_shape extents, element_type type = element_type::float32) {
        auto const t = builder_.input(fresh_name("input"), std::move(extents), type);
        if (is_floating(type)) plain_.insert(t);
        return t;
    }
    /// Returns a new weight, or one of this shape that is there already (tied); now and then it is frozen, or a buffer.
    tensor_id weight(tensor_shape const& extents) {
        if (random_.chance(0.4))
            for (auto t : weights_)
                if (dims(t) == extents) return t;
        bool const constant = random_.chance(0.1), trained = random_.chance(0.8);
        auto const t = constant ? builder_.buffer(fresh_name("buffer"), extents)
                                : builder_.parameter(fresh_name("weight"), extents, element_type::float32, trained);
        if (!constant && trained) trained_.insert(t);
        plain_.insert(t);
        weights_.push_back(t);
        return t;
    }
    tensor_id trained_weight(tensor_shape const& extents) {
        auto const t = builder_.parameter(fresh_name("weight"), extents);
        trained_.insert(t);
        plain_.insert(t);
        weights_.push_back(t);
        return t;
    }

    // ---- calls

    /// Results are of one type, except for the last one if it is said.
    std::vector<tensor_id> call_multi(std::string const& target, std::vector<literal> arguments,
                                      std::vector<tensor_shape> const& results, keywords named = {},
                                      std::optional<element_type> type = {},
                                      std::optional<element_type> last_type = {}) {
        traced_call call{fresh_name((target + "_").c_str()), target, std::move(arguments), std::move(named), {}, {}};
        auto const collect = [&](auto& self, literal const& l) -> void {
            if (auto const* t = l.as<literal::tensor>()) call.operands.push_back(t->id);
            if (auto const* items = l.as<literal::list>())
                for (auto const& item : *items) self(self, item);
        };
        for (auto const& a : call.arguments) collect(collect, a);
        for (auto const& [name, a] : call.keywords) collect(collect, a);
        bool trained = false, plain = true;
        for (auto t : call.operands) {
            if (!type && is_floating(builder_.tensor(t).type)) type = builder_.tensor(t).type;
            trained |= is_trained(t);
            plain &= is_plain(t) || !is_floating(builder_.tensor(t).type);
            used_.insert(t);
        }
        for (auto const& s : results) call.results.push_back({s, type.value_or(element_type::float32)});
        if (last_type) call.results.back().type = *last_type;
        auto const added = add_call(builder_, call);
        if (!added.is_known)
            throw error("the catalogue does not know " + target + " with the arguments of " + call.name);
        for (auto t : added.results) {
            if (trained && is_floating(builder_.tensor(t).type)) trained_.insert(t);
            if (plain) plain_.insert(t);
        }
        return added.results;
    }
    tensor_id call(std::string const& target, std::vector<literal> arguments, tensor_shape const& result,
                   keywords named = {}, std::optional<element_type> type = {}) {
        return call_multi(target, std::move(arguments), {result}, std::move(named), type).front();
    }
    tensor_id same(std::string const& target, tensor_id x, std::vector<literal> more = {}, keywords named = {}) {
        more.insert(more.begin(), T(x));
        return call(target, std::move(more), dims(x), std::move(named));
    }
    tensor_id reshaped(tensor_id x, tensor_shape const& to, std::string const& target = "reshape") {
        return call(target, {T(x)}, to);
    }
    tensor_id not_trained(tensor_id t) {
        trained_.erase(t);
        return t;
    }
    tensor_id not_plain(tensor_id t) {
        plain_.erase(t);
        return t;
    }

    // ---- values to go on from

    void keep(tensor_id t) {
        constexpr extent most = 300;
        while (builder_.tensor(t).elements() > most) {
            tensor_shape rest = dims(t);
            auto const largest = static_cast<std::size_t>(std::ranges::max_element(rest) - rest.begin());
            rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(largest));
            t = call("mean", {T(t), axis(largest, rest.size() + 1)}, rest);
        }
        values_.push_back(t);
    }
    /// Returns mostly the newest value; of the others, some are used several times.
    tensor_id operand() { return random_.chance(0.6) ? values_.back() : random_.of(values_); }
    template <class Good>
    tensor_id operand_that(Good good, std::size_t wanted_rank) {
        if (auto const t = operand(); good(t)) return t;
        std::vector<tensor_id> fitting;
        std::ranges::copy_if(values_, std::back_inserter(fitting), good);
        return fitting.empty() || random_.chance(0.1) ? input(sizes(wanted_rank)) : random_.of(fitting);
    }
    tensor_id plain_operand() {
        return operand_that([&](tensor_id t) { return is_plain(t); }, 2);
    }
    /// Returns a value of this many dimensions: one that is there, a view of one, or an input.
    tensor_id of_rank(std::size_t wanted, bool plain = false) {
        auto const good = [&](tensor_id t) { return rank(t) == wanted && (!plain || is_plain(t)); };
        auto const x = operand();
        if (good(x) || (plain && !is_plain(x)) || random_.chance(0.3)) return operand_that(good, wanted);
        tensor_shape to = dims(x);
        while (to.size() > wanted) {
            std::size_t const d = random_.below(to.size() - 1);
            to[d] *= to[d + 1];
            to.erase(to.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        }
        while (to.size() < wanted) {
            std::size_t const d = random_.below(to.size() + 1);
            extent const part = d < to.size() && to[d] % 2 == 0 ? 2 : d < to.size() && to[d] % 3 == 0 ? 3 : 1;
            if (part > 1) to[d] /= part;
            to.insert(to.begin() + static_cast<std::ptrdiff_t>(d), part);
        }
        return reshaped(x, to, random_.chance(0.5) ? "view" : "reshape");
    }
    tensor_id at_least_rank(std::size_t least) {
        auto const x = operand();
        return rank(x) >= least ? x : of_rank(least);
    }

    random_source& random_;
    program_builder builder_;
    std::vector<tensor_id> values_, weights_;
    std::set<tensor_id> trained_, plain_, used_;
    int names_ = 0;
};

} // namespace heddle::test
