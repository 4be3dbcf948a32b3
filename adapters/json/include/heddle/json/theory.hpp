// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads theory files: a search problem made of triples alone.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::json {

/// From `initial`, hold every property of `goal` by actions of the least total cost.
/// *Invariant.* What one action removes it needs, and none adds. Each `pre`, `add` and `remove` is
/// ascending without repetition, as `search::property_task` expects.
struct bare_theory {
    std::vector<std::string> properties;
    /// The number of each property's group. Properties whose texts agree up to the first '|' are a group; each budget
    /// is a group of its own.
    std::vector<std::uint32_t> groups;
    std::vector<search::property_action> actions;
    /// The cost of each action.
    std::vector<double> costs;
    std::vector<std::string> texts;
    std::vector<std::uint32_t> initial, goal;
    /// A program known to reach the goal, if the file has one.
    std::optional<std::vector<std::uint32_t>> program;
    /// The digest of the file's content, uncompressed.
    std::string digest;
};

/// Reads a theory from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] bare_theory parse_theory(std::string_view text, std::string const& name = "theory");

/// Reads a theory file.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] bare_theory read_theory(std::filesystem::path const& path);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace heddle::json {

namespace detail {

class theory_reader {
public:
    explicit theory_reader(document const& file) : file_(file) {}

    bare_theory read() {
        element const root = file_.root();
        root.at("properties").for_each([&](element const& e) {
            e.takes(128); // its text, group and place among those of its group
            result_.properties.push_back(e.text());
        });
        result_.initial = read_properties(root.at("initial"));
        result_.goal = {static_cast<std::uint32_t>(root.at("goal").integer(0, static_cast<std::int64_t>(count()) - 1))};
        removed_.resize(count());
        auto const triples = root.at("triples");
        triples.for_each([&](element const& e) { read_triple(e); });
        check_budgets(triples);
        find_groups();
        if (auto const program = root.find("program")) result_.program = program->numbers_below(result_.actions.size());
        result_.digest = file_.digest();
        return std::move(result_);
    }

private:
    [[nodiscard]] std::size_t count() const { return result_.properties.size(); }

    [[nodiscard]] std::vector<std::uint32_t> read_properties(element const& e) const {
        auto ids = e.numbers_below(count());
        algorithm::sort(ids);
        if (std::ranges::adjacent_find(ids) != ids.end())
            e.fail("has property " + std::to_string(*std::ranges::adjacent_find(ids)) + " twice");
        return ids;
    }

    void read_triple(element const& e) {
        search::property_action action;
        if (auto const pre = e.find("pre")) action.pre = read_properties(*pre);
        action.add = read_properties(e.at("add"));
        if (auto const remove = e.find("remove")) {
            action.remove = read_properties(*remove);
            if (!std::ranges::includes(action.pre, action.remove)) remove->expected("some of the properties in pre");
        }
        for (auto id : action.remove) removed_[id] = true;
        result_.costs.push_back(e.at("cost").non_negative());
        all_costs_ += result_.costs.back();
        if (!std::isfinite(all_costs_)) e.at("cost").expected("costs whose sum is a number");
        auto const text = e.find("text");
        result_.texts.push_back(text ? text->text() : std::string());
        result_.actions.push_back(std::move(action));
    }

    void find_groups() {
        std::map<std::string_view, std::uint32_t> number;
        for (std::uint32_t id = 0; id < count(); ++id) {
            std::string_view const text = result_.properties[id];
            auto const bar = text.find('|');
            bool const is_alone = removed_[id] || bar == std::string_view::npos;
            result_.groups.push_back(is_alone ? id : number.try_emplace(text.substr(0, bar), id).first->second);
        }
    }

    void check_budgets(element const& triples) const {
        for (std::size_t i = 0; i < result_.actions.size(); ++i)
            for (auto id : result_.actions[i].add)
                if (removed_[id])
                    triples.item(i).at("add").fail("has property " + std::to_string(id) +
                                                   ", which a triple removes; what is removed is never added");
    }

    document const& file_;
    bare_theory result_;
    std::vector<bool> removed_;
    double all_costs_ = 0;
};

} // namespace detail

HEDDLE_INLINE bare_theory parse_theory(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::theory_reader(document(name, text, "theory", 1)).read(); });
}

HEDDLE_INLINE bare_theory read_theory(std::filesystem::path const& path) {
    return parse_theory(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

} // namespace heddle::json

#endif
