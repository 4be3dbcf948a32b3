// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The order in which a pipeline may take the devices of a cluster, as steps between states.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/template_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace heddle {

/// A state is the machines used up of each type, and the machine of which some devices are taken. Every step takes the
/// devices of one stage and leads to a higher number, so the order of numbers is topological.
class device_walk {
public:
    using state = std::uint64_t;

    /// *Throws* `input_error` if there are 2^63 states or more.
    explicit device_walk(template_problem const& p);

    /// Returns a number that is more than any state; not every number below it is one.
    [[nodiscard]] state count() const { return count_; }
    /// Return the states in which nothing and in which everything is taken.
    [[nodiscard]] static state none() { return 0; }
    [[nodiscard]] state all() const { return all_; }

    /// Tells whether a template may use these devices and no others.
    [[nodiscard]] bool is_complete(state s) const {
        return s == all_ || (problem_->leaves_out() && s != none() && s % width_ == 0);
    }

    /// Returns how many machines of a type are used up.
    [[nodiscard]] std::size_t machines_used(state s, std::size_t type) const;

    /// Returns how many devices of a type are not taken yet.
    [[nodiscard]] std::size_t devices_left(state s, std::size_t type) const;

    /// Calls `visit(type, devices, next state)` for each choice of a next stage's devices.
    template <class Visit>
    void for_each_choice(state s, Visit&& visit) const {
        auto const open = s % width_;
        for (std::size_t t = 0; t < stride_.size(); ++t) {
            auto const& type = problem_->types[t];
            auto const taken = this->taken(s, t);
            if (type.device_count() == 0 || machines_used(s, t) == type.machines || (open != 0 && taken == 0)) continue;
            for (auto const group : groups_[t]) {
                if (!problem_->may_take(t, taken, group)) continue;
                bool const is_full = taken + group == type.devices_per_machine;
                visit(t, group, s - open + (is_full ? stride_[t] : first_open_[t] + taken + group - 1));
            }
        }
    }

private:
    /// Returns how many devices of the open machine are taken if it is of this type, else 0.
    [[nodiscard]] std::size_t taken(state s, std::size_t type) const;

    template_problem const* problem_;
    /// The numbers of devices that a stage may have, by type.
    std::vector<std::vector<std::size_t>> groups_;
    /// The numbers of open machines: 0 if there is none, then one for each number of devices taken, type by type.
    std::vector<std::size_t> first_open_;
    std::size_t width_ = 1;
    std::vector<state> stride_;
    state count_ = 0, all_ = 0;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE device_walk::device_walk(template_problem const& p) : problem_(&p) {
    for (std::size_t t = 0; t < p.types.size(); ++t) {
        auto const& type = p.types[t];
        auto& groups = groups_.emplace_back();
        for (std::size_t group = 1; group <= type.devices_per_machine; ++group)
            if (p.may_take(t, 0, group)) groups.push_back(group); // what the first devices cannot be, no later ones can
        first_open_.push_back(width_);
        width_ += type.device_count() == 0 ? 0 : type.devices_per_machine - 1;
    }
    state total = width_;
    for (auto const& type : p.types) {
        stride_.push_back(total);
        state const counts = (type.device_count() == 0 ? 0 : type.machines) + 1;
        if (total > std::numeric_limits<state>::max() / 2 / counts)
            throw input_error("template", "there are too many machines of too many types to number their subsets");
        total *= counts;
    }
    count_ = total;
    for (std::size_t t = 0; t < p.types.size(); ++t)
        all_ += p.types[t].device_count() == 0 ? 0 : stride_[t] * p.types[t].machines;
}

HEDDLE_INLINE std::size_t device_walk::machines_used(state s, std::size_t type) const {
    state const above = type + 1 < stride_.size() ? stride_[type + 1] : count_;
    return static_cast<std::size_t>(s % above / stride_[type]);
}

HEDDLE_INLINE std::size_t device_walk::devices_left(state s, std::size_t type) const {
    auto const& t = problem_->types[type];
    if (t.device_count() == 0) return 0;
    return (t.machines - machines_used(s, type)) * t.devices_per_machine - taken(s, type);
}

HEDDLE_INLINE std::size_t device_walk::taken(state s, std::size_t type) const {
    auto const open = static_cast<std::size_t>(s % width_), first = first_open_[type];
    return open >= first && open + 1 < first + problem_->types[type].devices_per_machine ? open - first + 1 : 0;
}

} // namespace heddle

#endif
