// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The search behind `plan_template`: subsets of devices and layers, for intervals of the slowest stage's time.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/stage_kinds.hpp>
#include <heddle/pipeline/stage_memory.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/pipeline/template_subsets.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/partition/branch_on_largest.hpp>
#include <heddle/search/partition/end_window.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Branches on the interval in which the slowest stage's time lies, as `search::detail::branch_on_largest` does.
/// Relaxed it is a shortest path over (devices taken from the end, layers held by them, whether the chosen stage is
/// among them), and the number of stages where that matters.
///
/// For an interval, what devices can reach from either end with no stage above it bounds the layers that have to be
/// looked at for a subset of devices: near the optimum these are few.
/// *Complexity.* O(subsets * kinds * layers * range of stages behind) per interval and O(subsets * layers * range)
/// memory, with a monotone queue over the ends of a stage; there are tens of intervals as a rule. Numbers are whole
/// ticks, so small that no template takes 2^60 of them: stages of equal work are equal wherever they are.
template <pipeline_schedule Schedule>
class template_search {
    using ticks = search::detail::ticks;
    static constexpr ticks infinite = search::detail::infinite;
    static constexpr ticks tail_factor = Schedule::counts_tail ? 2 : 1;

public:
    template_search(template_problem const& p, Schedule const& schedule, template_options const& o)
        : problem_(p), schedule_(schedule), options_(o), budget_(o.limits),
          bytes_(o.limits.bytes.value_or(std::size_t{2} << 30)), layers_(p.layer_count()), walk_(p), kinds_(p) {
        for (auto const& t : p.types)
            is_limited_ |= t.device_count() > 0 && t.memory_limit.value < std::numeric_limits<double>::infinity();
        auto const most_stages = std::min(p.device_count(), layers_);
        double sum = 0;
        for (std::size_t l = 0; l < layers_; ++l) {
            double most = 0;
            for (std::size_t k = 0; k < kinds_.all().size(); ++k) most = std::max(most, time(k, l));
            sum += most;
        }
        // Times are multiples of this many ticks, so that the equal shares of a stage's devices are whole.
        ticks parts = 1;
        for (auto const& k : kinds_.all())
            if (auto const finer = std::lcm(parts, static_cast<ticks>(k.devices)); finer <= 1 << 16) parts = finer;
        int exponent = 0;
        std::frexp(sum * static_cast<double>(slots(0) + static_cast<ticks>(most_stages) + 3) *
                       static_cast<double>(parts),
                   &exponent);
        double const per_second = std::ldexp(1.0, std::min(60 - exponent, 1000));
        ticks_per_second_ = per_second * static_cast<double>(parts);
        for (auto const& k : kinds_.all()) {
            auto const group = static_cast<ticks>(k.devices);
            ticks const share = parts % group == 0 ? parts / group : 0;
            auto& before = before_.emplace_back(1, 0);
            for (std::size_t l = 0; l < layers_; ++l) {
                double const alone = p.time_on(k.type, l, 1).value,
                             shared = 2 * p.all_reduce_time(k.type, l, k.devices).value;
                ticks const work = share != 0 ? rounded(alone * per_second) * share
                                              : rounded(alone * ticks_per_second_ / static_cast<double>(group));
                before.push_back(before.back() + work + rounded(shared * per_second) * parts);
            }
        }
        if (o.cutoff.value * ticks_per_second_ < 0x1p61) best_ = rounded(o.cutoff.value * ticks_per_second_);
        if (!is_limited_) return;
        stage_memory const memory(p.memory, false);
        for (auto const& k : kinds_.all()) {
            auto& rows = reach_.emplace_back();
            for (std::size_t behind = 0; behind < most_stages; ++behind)
                rows.push_back(
                    memory.reach(p.types[k.type].memory_limit * static_cast<double>(k.devices), in_flight(behind)));
        }
    }

    pipeline_template run() {
        pipeline_template out;
        auto const bound = template_lower_bound(problem_, kinds_, walk_, schedule_);
        if (!prepare()) {
            out.which_limit = is_stopped() ? budget_.reached() : search::limit_kind::memory;
        } else {
            branch();
            out.which_limit = budget_.reached();
        }
        statistics_.seconds = budget_.elapsed();
        out.statistics = statistics_;
        bool const has_ended = out.which_limit == search::limit_kind::none;
        std::optional<seconds> cost;
        if (!stages_.empty()) {
            number_machines(problem_, stages_);
            out.stages = std::move(stages_);
            out.cost = cost_of(problem_, out.stages, schedule_);
            cost = out.cost->total;
        } else if (has_ended) {
            explain(out);
        }
        seconds const wanted = cost.value_or(options_.cutoff);
        search::conclude(out, cost,
                         has_ended ? wanted
                                   : std::min(wanted, std::max(bound, seconds(in_seconds(std::min(proven_, best_))))),
                         wanted);
        return out;
    }

private:
    using step = template_subsets::step;
    /// Templates whose slowest stage lies in an interval, relaxed.
    using node = search::detail::largest_interval;

    [[nodiscard]] double time(std::size_t kind, std::size_t layer) const {
        auto const& k = kinds_.all()[kind];
        return problem_.time_on(k.type, layer, k.devices).value;
    }
    [[nodiscard]] static ticks rounded(double x) { return static_cast<ticks>(x + 0.5); }
    [[nodiscard]] double in_seconds(ticks x) const { return static_cast<double>(x) / ticks_per_second_; }
    [[nodiscard]] ticks slots(std::size_t behind) const {
        return slots_of_slowest(schedule_, problem_.micro_batches, behind);
    }
    [[nodiscard]] std::int64_t in_flight(std::size_t behind) const {
        return schedule_.in_flight(0, {behind + 1, problem_.micro_batches});
    }
    [[nodiscard]] bool counts_stages() const { return Schedule::counts_tail || is_limited_; }
    /// Returns how many numbers of stages a subset may make, as far as they are told apart.
    [[nodiscard]] std::size_t rows(std::size_t subset) const {
        return counts_stages() ? subsets_[subset].most + 1 - subsets_[subset].fewest : 1;
    }
    [[nodiscard]] std::size_t row(std::size_t subset, std::size_t stages) const {
        return offset_[subset] + (counts_stages() ? stages - subsets_[subset].fewest : 0) * (layers_ + 1);
    }

    /// Lays out the tables; returns false if they would be too large, or if the search was stopped.
    bool prepare() {
        if (!subsets_.number(walk_, kinds_, layers_, bytes_ / 64, [&] { return is_stopped(); })) return false;
        std::size_t cells = 0;
        for (std::size_t n = 0; n < subsets_.size(); ++n) {
            offset_.push_back(cells);
            cells += rows(n) * (layers_ + 1);
            if (cells > bytes_ / (2 * sizeof(ticks))) return false;
        }
        for (auto* table : {&head_, &tail_}) {
            table->reserve(cells);
            while (table->size() < cells) { // a page at a time is what takes long
                if (is_stopped()) return false;
                table->resize(std::min(cells, table->size() + (std::size_t{1} << 20)), infinite);
            }
        }
        ends_ = search::detail::end_window(layers_ + 1);
        earliest_.resize(subsets_.size());
        latest_.resize(subsets_.size());
        statistics_.states = subsets_.size();
        return true;
    }

    void branch() {
        // The least time to which all stages can keep, memory aside.
        ticks least = -1, most = longest_stage();
        if (!bound_layers(most)) return;
        while (most - least > 1) {
            if (is_stopped()) return;
            auto const middle = least + (most - least) / 2;
            if (bound_layers(middle)) most = middle;
            else least = middle;
        }
        // The first interval is likely to have the optimum.
        ticks const likely = most + most / 16;
        search::detail::branch_on_largest(
            {{least, likely}, {likely, infinite / 4}}, budget_, best_, proven_, [this] { return is_stopped(); },
            [this](node& n) { return evaluate(n); });
    }
    [[nodiscard]] ticks longest_stage() const {
        ticks most = 0;
        for (auto const& before : before_) most = std::max(most, before.back());
        return most;
    }

    /// Fills, by subset, the earliest layer at which the stages behind may begin and the latest that those before may
    /// reach, with no stage above `upto`. Returns false if they cannot hold all layers, or if the search was stopped.
    bool bound_layers(ticks upto) {
        algorithm::fill(earliest_, layers_);
        algorithm::fill(latest_, std::size_t{0});
        bool reaches = false;
        for (std::size_t n = 1; n < subsets_.size(); ++n) {
            if (n % 1024 == 1023 && is_stopped()) return false;
            for (auto const& e : subsets_[n].into) {
                auto const& before = before_[e.kind];
                auto const end = earliest_[e.from];
                auto const first = std::lower_bound(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(end),
                                                    before[end] - upto) -
                                   before.begin();
                earliest_[n] = std::min(earliest_[n], static_cast<std::size_t>(first));
            }
            reaches |= subsets_[n].is_complete && earliest_[n] == 0;
        }
        if (!reaches) return false;
        for (std::size_t n = subsets_.size(); n-- > 1;) {
            if (n % 1024 == 1023 && is_stopped()) return false;
            for (auto const& e : subsets_[n].into) {
                auto const& before = before_[e.kind];
                auto const end = std::upper_bound(before.begin() + static_cast<std::ptrdiff_t>(latest_[n]),
                                                  before.end(), before[latest_[n]] + upto) -
                                 before.begin() - 1;
                latest_[e.from] = std::max(latest_[e.from], static_cast<std::size_t>(end));
            }
        }
        return latest_.front() == layers_;
    }

    /// Lowers `to[first]` for every stage [first, end) in (above, upto] to `factor * its time + from[end]`.
    void relax(std::size_t subset, step e, std::size_t behind, ticks const* from, ticks factor, ticks above, ticks upto,
               ticks* to) {
        auto const& before = before_[e.kind];
        std::size_t const highest = latest_[e.from];
        auto const through = [&](std::size_t end) {
            return from[end] == infinite ? infinite : from[end] + factor * before[end];
        };
        ends_.reset(earliest_[e.from], highest);
        for (std::size_t first = std::min(latest_[subset], highest == 0 ? 0 : highest - 1) + 1;
             first-- > earliest_[subset];) {
            std::size_t const end_limit = is_limited_ ? reach_[e.kind][behind][first] : highest;
            if (!ends_.move_to(first, end_limit, before, above, upto, through)) return;
            if (!ends_.empty()) to[first] = std::min(to[first], ends_.best().through - factor * before[first]);
        }
    }

    /// Finds the cheapest of the relaxed templates, and evaluates it as a template.
    bool evaluate(node& n) {
        if (is_stopped()) return false;
        ++statistics_.intervals;
        if (!bound_layers(n.upto)) return false;
        // The last of equally slow stages counts: if only one time is left for it, those behind it are faster.
        ticks const tail_upto = Schedule::counts_tail && n.upto - n.above == 1 ? n.above : n.upto;
        n.cost = infinite;
        std::size_t full = 0, stages = 0, work = 0;
        for (std::size_t subset = 0; subset < subsets_.size(); ++subset) {
            if (work > (1 << 18)) {
                if (is_stopped()) return false;
                work = 0;
            }
            for (auto* table : {&head_, &tail_})
                std::fill_n(table->begin() + static_cast<std::ptrdiff_t>(offset_[subset]), rows(subset) * (layers_ + 1),
                            infinite);
            if (subset == 0) tail_[layers_] = 0;
            if (subset == 0 || earliest_[subset] > latest_[subset]) continue;
            auto const cells = rows(subset) * (latest_[subset] + 1 - earliest_[subset]);
            statistics_.cells += cells;
            work += 16 + cells * subsets_[subset].into.size();
            for (auto const& e : subsets_[subset].into) {
                auto const fewest = subsets_[e.from].fewest;
                for (auto behind = fewest; behind < fewest + rows(e.from); ++behind) {
                    if (counts_stages() && behind + 1 > subsets_[subset].most) break;
                    auto const from = row(e.from, behind), to = row(subset, behind + 1);
                    relax(subset, e, behind, &head_[from], 1, -1, n.upto, &head_[to]);
                    relax(subset, e, behind, &tail_[from], slots(behind) + tail_factor, n.above, n.upto, &head_[to]);
                    relax(subset, e, behind, &tail_[from], tail_factor, -1, tail_upto, &tail_[to]);
                }
            }
            for (auto s = subsets_[subset].fewest;
                 subsets_[subset].is_complete && s < subsets_[subset].fewest + rows(subset); ++s)
                if (head_[row(subset, s)] < n.cost) {
                    n.cost = head_[row(subset, s)];
                    full = subset;
                    stages = s;
                }
        }
        if (n.cost == infinite) return false;
        follow(n, full, stages, tail_upto);
        return true;
    }

    /// Walks back through the tables along an equality that holds at every step.
    void follow(node& n, std::size_t full, std::size_t stages, ticks tail_upto) {
        std::vector<template_stage> found;
        std::vector<ticks> times;
        bool in_tail = false;
        for (std::size_t subset = full, first = 0; subset != 0;) {
            ticks const value = (in_tail ? tail_ : head_)[row(subset, stages) + first];
            auto const go_on = [&] {
                for (auto const& e : subsets_[subset].into) {
                    auto const& smaller = subsets_[e.from];
                    if (counts_stages() && (stages - 1 < smaller.fewest || stages - 1 > smaller.most)) continue;
                    std::size_t const behind = counts_stages() ? stages - 1 : smaller.fewest;
                    std::size_t const end_limit = is_limited_ ? reach_[e.kind][behind][first] : layers_;
                    auto const from = row(e.from, behind);
                    for (std::size_t end = std::max(first + 1, earliest_[e.from]);
                         end <= std::min(latest_[e.from], end_limit); ++end) {
                        ticks const t = before_[e.kind][end] - before_[e.kind][first];
                        if (t > (in_tail ? tail_upto : n.upto)) break;
                        auto const is = [&](std::vector<ticks> const& rest, ticks factor) {
                            return rest[from + end] != infinite && rest[from + end] + factor * t == value;
                        };
                        bool const chosen = !in_tail && t > n.above && is(tail_, slots(behind) + tail_factor);
                        if (!chosen && !is(in_tail ? tail_ : head_, in_tail ? tail_factor : 1)) continue;
                        auto const& kind = kinds_.all()[e.kind];
                        found.push_back({kind.type, 0, kind.devices, first, end});
                        times.push_back(t);
                        if (chosen) n.chosen = t;
                        in_tail |= chosen;
                        subset = e.from;
                        first = end;
                        stages = behind;
                        return true;
                    }
                }
                return false;
            };
            if (!go_on()) throw error("template search: a table contradicts itself");
        }
        ticks all = 0, tail = 0;
        std::size_t slowest = 0;
        n.largest = 0;
        for (std::size_t s = 0; s < times.size(); ++s) {
            if (times[s] >= n.largest) {
                n.largest = times[s];
                slowest = s;
                tail = 0;
            }
            tail += times[s];
            all += times[s];
        }
        ticks const cost = all + slots(times.size() - 1 - slowest) * n.largest + (Schedule::counts_tail ? tail : 0);
        if (cost >= best_) return;
        best_ = cost;
        stages_ = std::move(found);
    }

    bool is_stopped() { return budget_.is_spent(statistics_.cells); }

    void explain(pipeline_template& out) const {
        if (options_.cutoff.value < std::numeric_limits<double>::infinity())
            out.reason = "no template takes less than " + std::to_string(options_.cutoff.value) + " s";
        else detail::explain(problem_, kinds_, in_flight(0), out);
    }

    template_problem const& problem_;
    Schedule const& schedule_;
    template_options const& options_;
    search::budget budget_;
    /// That the tables may take.
    std::size_t bytes_;
    std::size_t layers_;
    device_walk walk_;
    stage_kinds kinds_;
    bool is_limited_ = false;
    double ticks_per_second_ = 1;
    /// For each kind, the sums of times over the layers before each layer.
    std::vector<std::vector<ticks>> before_;
    /// For each kind, number of stages behind and first layer, where memory ends the stage at the latest.
    std::vector<std::vector<std::vector<std::size_t>>> reach_;

    template_subsets subsets_;
    /// Where the rows of each subset begin.
    std::vector<std::size_t> offset_;
    /// The least cost by subset, stages and first layer, if the chosen stage is among them, and if it is still to come
    /// in front.
    std::vector<ticks> head_, tail_;
    std::vector<std::size_t> earliest_, latest_;
    search::detail::end_window ends_;

    ticks best_ = infinite, proven_ = 0;
    std::vector<template_stage> stages_;
    template_statistics statistics_;
};

} // namespace heddle::detail
