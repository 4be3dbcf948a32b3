// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Templates for all sets of machines that may survive, so that a failure takes a look-up instead of a search.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A template, and the machines of each type that it uses.
struct sized_template {
    std::vector<std::size_t> machines;
    pipeline_template plan;
};

/// Pipelines that run side by side as copies of the model, in no particular order.
struct template_combination {
    /// The numbers of the library's templates; a template may occur several times.
    std::vector<std::size_t> templates;
    /// The machines of each type that no pipeline uses.
    std::vector<std::size_t> idle;
    /// The micro-batches per second, if each pipeline runs as many as the problem says.
    double rate = 0;
};

/// Holds all templates of up to a number of machines and, for every set of surviving machines, the fastest combination
/// of them.
class template_library {
public:
    /// `plan(problem)` makes a template that uses all the problem's machines, or none.
    /// *Throws* `input_error` on a bad problem or more than 2^20 sets of machines, and what `plan` throws.
    /// *Complexity.* One plan per set of machines up to the size and the number of layers; then O(sets * templates).
    template <std::invocable<template_problem const&> Plan>
    template_library(template_problem const& p, std::size_t most_machines, Plan&& plan) {
        detail::check(p);
        std::size_t count = 1;
        for (auto const& t : p.types) {
            limits_.push_back(t.device_count() > 0 ? t.machines : 0);
            strides_.push_back(count);
            if (count > (std::size_t{1} << 20) / (limits_.back() + 1))
                throw input_error("template library", "more than 2^20 sets of machines");
            count *= limits_.back() + 1;
        }
        std::vector<std::size_t> numbers; // of the templates' sets
        for (std::size_t set = 1; set < count; ++set) {
            auto machines = machines_of(set);
            std::size_t sum = 0;
            for (auto const n : machines) sum += n;
            if (sum > most_machines) continue;
            auto q = p;
            for (std::size_t t = 0; t < machines.size(); ++t) q.types[t].machines = machines[t];
            if (q.leaves_out()) continue; // a smaller set is as good
            pipeline_template made = plan(std::as_const(q));
            if (!made.cost) continue;
            numbers.push_back(set);
            rates_.push_back(static_cast<double>(p.micro_batches) / made.cost->total.value);
            templates_.push_back({std::move(machines), std::move(made)});
        }
        combine(count, numbers);
    }

    [[nodiscard]] std::vector<sized_template> const& templates() const { return templates_; }

    /// Returns the fastest combination for the machines of each type that are left, and among equally fast ones one
    /// that uses most machines. It has no templates if none can hold the model.
    /// *Throws* `input_error` if these are not machines of the cluster. *Complexity.* O(types + machines).
    [[nodiscard]] template_combination find(std::span<std::size_t const> survivors) const;

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    /// A set's best combination: a template and the combination of the rest. If there is no template, all machines are
    /// idle.
    struct entry {
        double rate = 0;
        std::size_t used = 0, number = none, rest = 0;
    };

    [[nodiscard]] std::vector<std::size_t> machines_of(std::size_t set) const;

    void combine(std::size_t count, std::vector<std::size_t> const& numbers);

    /// The machines of each type, and what one of them counts in a set's number.
    std::vector<std::size_t> limits_, strides_;
    std::vector<sized_template> templates_;
    std::vector<double> rates_;
    std::vector<entry> best_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE template_combination template_library::find(std::span<std::size_t const> survivors) const {
    if (survivors.size() != limits_.size())
        throw input_error("template library",
                          std::to_string(survivors.size()) + " types, expected " + std::to_string(limits_.size()));
    std::size_t set = 0;
    for (std::size_t t = 0; t < survivors.size(); ++t) {
        if (survivors[t] > limits_[t])
            throw input_error("template library, type " + std::to_string(t),
                              std::to_string(survivors[t]) + " machines, expected " + std::to_string(limits_[t]) +
                                  " at the most");
        set += survivors[t] * strides_[t];
    }
    template_combination out;
    out.rate = best_[set].rate;
    for (; best_[set].number != none; set = best_[set].rest) out.templates.push_back(best_[set].number);
    out.idle = machines_of(set);
    return out;
}

HEDDLE_INLINE std::vector<std::size_t> template_library::machines_of(std::size_t set) const {
    std::vector<std::size_t> machines;
    for (std::size_t t = 0; t < limits_.size(); ++t) machines.push_back(set / strides_[t] % (limits_[t] + 1));
    return machines;
}

HEDDLE_INLINE void template_library::combine(std::size_t count, std::vector<std::size_t> const& numbers) {
    best_.resize(count);
    for (std::size_t set = 1; set < count; ++set) {
        auto const machines = machines_of(set);
        for (std::size_t n = 0; n < templates_.size() && numbers[n] <= set; ++n) {
            if (!algorithm::equal(templates_[n].machines, machines, std::less_equal())) continue;
            auto const rest = set - numbers[n];
            std::size_t used = best_[rest].used;
            for (auto const m : templates_[n].machines) used += m;
            entry const found{rates_[n] + best_[rest].rate, used, n, rest};
            if (std::pair(found.rate, used) > std::pair(best_[set].rate, best_[set].used)) best_[set] = found;
        }
    }
}

} // namespace heddle

#endif
