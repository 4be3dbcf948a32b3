// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans for all sets of machines that may be lost, so that after a failure the next plan is looked up, with
/// what has to move.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// What the devices of a plan store of parameters, the optimiser's state, and buffers, in all; how much of it they have
/// already; and how much of the model only lost machines had, which a checkpoint has to give.
struct moved_state {
    bytes stored, kept, lost;
    /// What devices get from others, or from a checkpoint.
    [[nodiscard]] bytes received() const { return stored - kept; }
};

/// What to go on with after a loss.
struct spare_plan {
    /// A plan for the machines that are left, in the cluster's order. It lives as long as the library.
    staged_plan const* plan = nullptr;
    /// For each machine of that plan, the machine of the whole cluster that takes its place.
    std::vector<std::size_t> machines{};
    moved_state state{};
};

/// A plan for every set of machines that may be lost, and what the state of training has to do with one another.
///
/// Machines of a group are alike, so plans are told apart by how many of each group are lost. Which of those left takes
/// which place in the plan is chosen so that devices keep most of what they have.
/// Ditto keeps a library of pipeline templates for this (`template_library`); here plans are of any stages.
class spare_plans {
public:
    /// What is lost, by group of machines; and the plan for the others, which does not exist where nothing fits.
    struct entry {
        std::vector<int> lost;
        staged_plan plan;
    };

    /// Plans for the loss of up to `most` machines by `plan(cluster)`, which returns a `staged_plan` for a part of the
    /// cluster. `running` is the plan for all of it.
    /// *Precondition:* `verify` accepts the plans. *Throws* `input_error` for device groups, for a plan of another
    /// number of devices, and what `plan` throws.
    /// *Complexity.* A plan for each set of lost machines by group; and for each two of them, of which one loses more,
    /// O(devices^2 parameters).
    template <std::invocable<cluster const&> Plan>
    spare_plans(program const& p, cluster const& c, staged_plan running, int most, Plan&& plan)
        : spare_plans(p, c, std::move(running), planned(c, most, plan)) {}

    /// Takes plans that were made before. `running` is the plan for all machines.
    /// *Precondition:* `verify` accepts the plans. *Throws* `input_error` for device groups, for losses of machines
    /// that there are not, and for a plan of another number of devices.
    spare_plans(program const& p, cluster const& c, staged_plan running, std::vector<entry> spares);

    /// Returns how many machines of each group these are. *Throws* `input_error` for machines that there are not, or
    /// named twice.
    [[nodiscard]] static std::vector<int> numbers_of(cluster const& c, std::span<std::size_t const> machines) {
        return numbers_of(counts_of(c), machines);
    }
    /// Returns the machines that are left where so many of each group are lost.
    /// *Throws* `input_error` for machines that there are not.
    [[nodiscard]] static cluster without(cluster const& c, std::vector<int> const& lost);

    /// The first one has lost nothing.
    [[nodiscard]] std::vector<entry> const& entries() const { return entries_; }

    /// Returns the plan to go on with where these machines are lost, of which some may have been lost before: training
    /// went on with what was found for those. If there is none, it is the reason that `plan` has.
    /// *Throws* `input_error` for machines that there are not, or more than the library is for. *Complexity.*
    /// O(machines^3), and no planning. *Thread safety.* Concurrent calls are safe.
    [[nodiscard]] spare_plan find(std::span<std::size_t const> lost,
                                  std::span<std::size_t const> lost_before = {}) const;

private:
    /// The bytes of the model that just these machines of a plan have.
    using held_bytes_by_machines = std::map<std::vector<std::size_t>, double>;
    /// What is stored under a plan: by device, and by machine the group and the first device; then all bytes, and who
    /// has them.
    struct layout {
        std::vector<stored_parts> parts;
        std::vector<std::size_t> group, first_device;
        double stored = 0;
        held_bytes_by_machines held;
    };

    /// Returns the number of machines of each group. *Throws* `input_error` for device groups.
    [[nodiscard]] static std::vector<int> counts_of(cluster const& c);
    template <class Plan>
    [[nodiscard]] static std::vector<entry> planned(cluster const& c, int most, Plan& plan) {
        auto const counts = counts_of(c);
        std::vector<entry> result;
        std::vector<int> lost(counts.size());
        for (;;) { // all numbers of lost machines
            std::size_t g = 0;
            while (g < lost.size() && lost[g] == counts[g]) lost[g++] = 0;
            if (g == lost.size()) return result;
            ++lost[g];
            int sum = 0, all = 0;
            for (std::size_t n = 0; n < lost.size(); ++n) sum += lost[n], all += counts[n];
            if (sum <= most && sum < all) result.push_back({lost, plan(without(c, lost))});
        }
    }
    void add(program const& p, entry e);
    /// Finds what machines of one plan have that machines of another want.
    void compare_all();
    [[nodiscard]] static std::vector<int> numbers_of(std::vector<int> const& counts,
                                                     std::span<std::size_t const> machines);

    std::vector<int> counts_, devices_;
    /// By tensor: the bytes of state for each element.
    std::vector<double> bytes_per_element_;
    std::vector<entry> entries_;
    std::vector<layout> layouts_;
    std::map<std::vector<int>, std::size_t> numbers_;
    /// For two entries: by machine of the first and of the second, the bytes that stay where they are.
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::vector<double>>> kept_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/tensor_part.hpp>
#include <heddle/program/tensor.hpp>

namespace heddle::detail {

/// Returns for each row the column that it is given, each once, for the largest sum. *Precondition:* as many columns as
/// rows.
/// *Complexity.* O(n^3). *Reference.* Kuhn, "The Hungarian method for the assignment problem" (1955), by shortest
/// augmenting paths.
[[nodiscard]] std::vector<std::size_t> best_assignment(std::vector<std::vector<double>> const& gains);

HEDDLE_INLINE std::vector<std::size_t> best_assignment(std::vector<std::vector<double>> const& gains) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    std::size_t const n = gains.size();
    // Rows and columns count from one; column 0 begins each path.
    std::vector<double> of_row(n + 1), of_column(n + 1);
    std::vector<std::size_t> row(n + 1), before(n + 1);
    for (std::size_t next = 1; next <= n; ++next) {
        row[0] = next;
        std::vector<double> least(n + 1, infinite);
        std::vector<char> is_reached(n + 1);
        std::size_t at = 0;
        do {
            is_reached[at] = 1;
            std::size_t closest = 0;
            double step = infinite;
            for (std::size_t c = 1; c <= n; ++c) {
                if (is_reached[c]) continue;
                double const reduced = -gains[row[at] - 1][c - 1] - of_row[row[at]] - of_column[c];
                if (reduced < least[c]) least[c] = reduced, before[c] = at;
                if (least[c] < step) step = least[c], closest = c;
            }
            for (std::size_t c = 0; c <= n; ++c) {
                if (is_reached[c]) of_row[row[c]] += step, of_column[c] -= step;
                else least[c] -= step;
            }
            at = closest;
        } while (row[at] != 0);
        for (; at != 0; at = before[at]) row[at] = row[before[at]];
    }
    std::vector<std::size_t> column(n);
    for (std::size_t c = 1; c <= n; ++c) column[row[c] - 1] = c - 1;
    return column;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<int> spare_plans::counts_of(cluster const& c) {
    std::vector<int> counts;
    for (auto const& m : c.machines) {
        if (m.is_group) throw input_error("cluster '" + c.name + "'", "has device groups, expected single devices");
        counts.push_back(m.count);
    }
    return counts;
}

HEDDLE_INLINE spare_plans::spare_plans(program const& p, cluster const& c, staged_plan running,
                                       std::vector<entry> spares)
    : counts_(counts_of(c)) {
    for (auto const& m : c.machines) devices_.push_back(m.devices);
    bytes_per_element_ = stored_bytes_per_element(p, running.provenance.training);
    add(p, {std::vector<int>(counts_.size()), std::move(running)});
    for (auto& e : spares) {
        (void)without(c, e.lost);
        add(p, std::move(e));
    }
    compare_all();
}

HEDDLE_INLINE cluster spare_plans::without(cluster const& c, std::vector<int> const& lost) {
    auto const is_there = [](int n, machine_group const& m) { return n >= 0 && n <= m.count; };
    if (!algorithm::equal(lost, c.machines, is_there))
        throw input_error("lost machines",
                          "expected a number for each group of the cluster's, of those that there are");
    auto result = c;
    result.machines.clear();
    for (std::size_t g = 0; g < lost.size(); ++g) {
        auto machines = c.machines[g];
        machines.count -= lost[g];
        if (machines.count > 0) result.machines.push_back(machines);
    }
    result.measured = measured_on(result, c);
    return result;
}

HEDDLE_INLINE void spare_plans::add(program const& p, entry e) {
    layout made;
    std::size_t device = 0;
    for (std::size_t g = 0; g < counts_.size(); ++g)
        for (int n = e.lost[g]; n < counts_[g]; ++n) {
            made.group.push_back(g), made.first_device.push_back(device);
            device += static_cast<std::size_t>(devices_[g]);
        }
    made.parts.resize(device);
    if (e.plan.exists()) {
        if (e.plan.device_count != device)
            throw input_error("plan for a loss", "is for " + std::to_string(e.plan.device_count) +
                                                     " devices, expected " + std::to_string(device));
        auto ranks = e.plan.is_plain() ? stored_parts_of(p, e.plan.stages.front().plan) : stored_parts_of(p, e.plan);
        std::size_t rank = 0;
        for (auto d : e.plan.ranks()) made.parts[d] = std::move(ranks[rank++]);
    }
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        // Of the tensor, parts that have nothing in common, with the machines that have each.
        std::vector<std::pair<tensor_part, std::vector<std::size_t>>> pieces;
        for (std::size_t m = 0; m < made.group.size(); ++m)
            for (int n = 0; n < devices_[made.group[m]]; ++n) {
                auto const& here = made.parts[made.first_device[m] + static_cast<std::size_t>(n)];
                auto const found = here.find(t);
                if (found == here.end()) continue;
                made.stored += static_cast<double>(found->second.elements()) * bytes_per_element_[t];
                std::vector<tensor_part> left{found->second};
                for (std::size_t k = 0, count = pieces.size(); k < count; ++k) {
                    auto const piece = pieces[k];
                    if (count_common(piece.first, found->second) == 0) continue;
                    std::vector<tensor_part> others;
                    for (auto const& part : left)
                        for (auto& other : detail::difference(part, piece.first)) others.push_back(std::move(other));
                    left = std::move(others);
                    if (piece.second.back() == m) continue;
                    for (auto& other : detail::difference(piece.first, found->second))
                        pieces.emplace_back(std::move(other), piece.second);
                    pieces[k].first = detail::intersection(piece.first, found->second);
                    pieces[k].second.push_back(m);
                }
                for (auto& part : left) pieces.emplace_back(std::move(part), std::vector{m});
            }
        for (auto const& [part, machines] : pieces)
            made.held[machines] += static_cast<double>(part.elements()) * bytes_per_element_[t];
    }
    numbers_[e.lost] = entries_.size();
    entries_.push_back(std::move(e));
    layouts_.push_back(std::move(made));
}

HEDDLE_INLINE void spare_plans::compare_all() {
    for (std::size_t a = 0; a < entries_.size(); ++a)
        for (std::size_t b = 0; b < entries_.size(); ++b) {
            auto const &from = entries_[a], &to = entries_[b];
            bool const loses_no_less = algorithm::equal(from.lost, to.lost, std::less_equal());
            if (!loses_no_less || !from.plan.exists() || !to.plan.exists()) continue;
            auto const &had = layouts_[a], &wants = layouts_[b];
            auto& kept = kept_[{a, b}];
            for (std::size_t m = 0; m < had.group.size(); ++m) {
                auto& row = kept.emplace_back(wants.group.size());
                for (std::size_t n = 0; n < wants.group.size(); ++n) {
                    if (wants.group[n] != had.group[m]) continue;
                    for (std::size_t d = 0; d < static_cast<std::size_t>(devices_[had.group[m]]); ++d) {
                        auto const& here = had.parts[had.first_device[m] + d];
                        for (auto const& [t, part] : wants.parts[wants.first_device[n] + d])
                            if (auto const found = here.find(t); found != here.end())
                                row[n] +=
                                    static_cast<double>(count_common(found->second, part)) * bytes_per_element_[t];
                    }
                }
            }
        }
}

HEDDLE_INLINE std::vector<int> spare_plans::numbers_of(std::vector<int> const& counts,
                                                       std::span<std::size_t const> machines) {
    std::vector<int> numbers(counts.size());
    std::set<std::size_t> known;
    for (auto const m : machines) {
        std::size_t g = 0, first = 0; // of the group
        while (g < counts.size() && m - first >= static_cast<std::size_t>(counts[g]))
            first += static_cast<std::size_t>(counts[g++]);
        if (g == counts.size())
            throw input_error("lost machines", "machine " + std::to_string(m) + " is not one of the cluster's " +
                                                   std::to_string(first) + ", which are counted from 0");
        if (!known.insert(m).second)
            throw input_error("lost machines", "machine " + std::to_string(m) + " is named twice");
        ++numbers[g];
    }
    return numbers;
}

HEDDLE_INLINE spare_plan spare_plans::find(std::span<std::size_t const> lost,
                                           std::span<std::size_t const> lost_before) const {
    auto const number_of = [&](std::span<std::size_t const> machines) {
        auto const found = numbers_.find(numbers_of(counts_, machines));
        if (found == numbers_.end())
            throw input_error("lost machines",
                              std::to_string(machines.size()) + ", expected no more than plans were made for");
        return found->second;
    };
    auto const b = number_of(lost), a = number_of(lost_before);
    for (auto m : lost_before)
        if (algorithm::find(lost, m) == lost.end())
            throw input_error("lost machines",
                              "machine " + std::to_string(m) + " was lost before, expected it among these");
    spare_plan result;
    result.plan = &entries_[b].plan;
    auto const& wants = layouts_[b];
    result.state.stored = bytes(wants.stored);
    std::vector<std::size_t> had; // the machine of the whole cluster in each place before
    if (a == 0)
        for (std::size_t m = 0; m < layouts_[0].group.size(); ++m) had.push_back(m);
    else had = find(lost_before).machines;
    auto const is_lost = [&](std::size_t place) { return algorithm::find(lost, had[place]) != lost.end(); };
    auto const known = kept_.find({a, b});
    result.machines.resize(wants.group.size());
    for (std::size_t g = 0, first = 0; g < counts_.size(); ++g) { // places of a group follow each other
        std::vector<std::size_t> left;
        for (std::size_t place = 0; place < had.size(); ++place)
            if (layouts_[a].group[place] == g && !is_lost(place)) left.push_back(place);
        std::vector<std::vector<double>> gains(left.size(), std::vector<double>(left.size()));
        for (std::size_t n = 0; known != kept_.end() && n < left.size(); ++n)
            for (std::size_t k = 0; k < left.size(); ++k) gains[n][k] = known->second[left[n]][first + k];
        auto const place_of = detail::best_assignment(gains);
        for (std::size_t n = 0; n < left.size(); ++n) {
            result.machines[first + place_of[n]] = had[left[n]];
            result.state.kept += bytes(gains[n][place_of[n]]);
        }
        first += left.size();
    }
    for (auto const& [machines, size] : layouts_[a].held)
        if (algorithm::all_of(machines, is_lost)) result.state.lost += bytes(size);
    return result;
}

} // namespace heddle

#endif
