// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A bound of all plans of stages of whole layers, machine by machine.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/synthesis/stage_bounds.hpp>
#include <heddle/theory/batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// No plan takes less time in which every stage has whole layers, on whole machines or a part of one, and stages that
/// share a machine follow each other; whatever their number, forms, shares, meshes and micro-batches. At most `enough`
/// is returned. docs/explanation/stages.md has the argument.
/// *Complexity.* Linear in sets of machines times runs of layers, for each of about a hundred paces.
[[nodiscard]] double pipeline_bound(indexed_program const& p, cluster const& c, program_layers const& layers,
                                    stage_bounds& stages, bool sends_beside, double enough);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

class pipeline_bounder {
public:
    pipeline_bounder(indexed_program const& p, cluster const& c, program_layers const& layers, stage_bounds& stages,
                     bool sends_beside, double enough)
        : cluster_(c), kinds_(machine_kinds(c)), layer_count_(layers.size()), sends_beside_(sends_beside),
          enough_(enough) {
        find_crossings(p, layers);
        std::vector<int> none(kinds_.size());
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            auto machine = none;
            machine[k] = 1;
            parts_.emplace_back();
            for (int d = 1; d <= kinds_[k].devices; ++d) parts_[k].push_back({{machine, d}});
        }
        for (auto next = none;;) { // all sets of several machines
            std::size_t k = 0;
            while (k < kinds_.size() && next[k] == kinds_[k].count) next[k++] = 0;
            if (k == kinds_.size()) break;
            ++next[k];
            if (stage_devices const on{next}; on.machine_count() > 1) several_.push_back({on});
        }
        for (auto& kind : parts_)
            for (auto& s : kind) fill(s, p, layers, stages);
        for (auto& s : several_) fill(s, p, layers, stages);
    }

    [[nodiscard]] double bound(std::int64_t samples) {
        double best = enough_; // of one stage, or of several
        for (auto const& kind : parts_)
            for (auto const& s : kind) best = std::min(best, s.least[0][layer_count_]);
        for (auto const& s : several_) best = std::min(best, s.least[0][layer_count_]);
        if (layer_count_ < 2) return best;
        // Of the paces of the slowest stage between `low` and `high`.
        using range = std::tuple<double, std::int64_t, double, double, double>; // bound, micro-batches, low, high, sum
        std::priority_queue<range, std::vector<range>, std::greater<>> open;
        for (std::int64_t m = 1; m <= samples; ++m)
            if (samples % m == 0) {
                double const sum = least_sum(m, enough_);
                open.emplace(shared_ + sum, m, 0.0, enough_, sum);
            }
        while (!open.empty()) {
            auto const [value, m, low, high, sum] = open.top();
            open.pop();
            if (value >= best) return best;
            if (high - low <= 0.002 * enough_) return value;
            double const middle = (low + high) / 2, sum_below = least_sum(m, middle);
            open.emplace(shared_ + low + sum_below, m, low, middle, sum_below);
            open.emplace(shared_ + middle + sum, m, middle, high, sum);
        }
        return best;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    using layer_table = std::vector<std::vector<double>>;

    /// Devices of a stage and, by first layer and the one behind the last, its seconds of work and in all for a batch.
    struct devices {
        stage_devices on;
        layer_table work{}, least{};
    };
    /// What passes a cut and comes back: seconds for a batch at a link's bandwidth of one, and messages.
    struct crossing {
        double size = 0, values = 0;
    };

    void find_crossings(indexed_program const& p, program_layers const& layers) {
        for (auto const cut : layers.cuts) {
            crossing here;
            for (auto t : values_across(p, cut))
                if (p.tensors[t].has_cotangent) here.size += 2 * p.tensors[t].info.size().value, here.values += 2;
            crossings_.push_back(here);
        }
        for (auto const& t :
             p.tensors) { // used by the first layer and by the last: by two stages, if there are several
            if (!t.is_parameter() || !t.has_cotangent || t.consumers.empty()) continue;
            auto const [first, last] = std::ranges::minmax(t.consumers);
            if (layers.layer_of(first) > 0 || layers.layer_of(last) + 1 < layers.size()) continue;
            if (auto const& link = cluster_.inter ? cluster_.inter : cluster_.intra)
                shared_ += (t.info.size() / link->bandwidth + 2 * link->latency).value;
        }
    }

    void fill(devices& s, indexed_program const& p, program_layers const& layers, stage_bounds& stages) {
        auto const work = work_by_layer(s.on, p, layers);
        s.work = s.least = layer_table(layer_count_, std::vector<double>(layer_count_ + 1));
        for (std::size_t first = 0; first < layer_count_; ++first)
            for (std::size_t end = first + 1; end <= layer_count_; ++end) {
                s.work[first][end] = s.work[first][end - 1] + work[end - 1];
                s.least[first][end] = s.work[first][end];
                if (s.work[first][end] < enough_)
                    s.least[first][end] = std::max(s.least[first][end], stages.least(s.on, first, end));
            }
    }

    /// As `work_bound` has it, for each layer.
    [[nodiscard]] std::vector<double> work_by_layer(stage_devices const& on, indexed_program const& p,
                                                    program_layers const& layers) {
        std::vector<double> weights;
        std::vector<std::vector<seconds> const*> times;
        double sum = 0;
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            if (on.machines[k] == 0) continue;
            auto& of_type = times_[kinds_[k].type];
            if (of_type.empty()) of_type = times_on(p, kinds_[k].type);
            double all = 0;
            for (auto const t : of_type) all += t.value;
            times.push_back(&of_type);
            weights.push_back((on.part > 0 ? on.part : on.machines[k] * kinds_[k].devices) / all);
            sum += weights.back();
            per_device_.resize(weights.size());
            per_device_[weights.size() - 1] = 1 / all;
        }
        std::vector<double> work(layer_count_);
        for (operator_id o = 0; o < p.operators.size(); ++o) {
            double least = infinite;
            for (std::size_t k = 0; k < times.size(); ++k)
                least = std::min(least, (*times[k])[o].value * per_device_[k] / sum);
            if (std::isfinite(least)) work[layers.layer_of(o)] += least;
        }
        return work;
    }
    [[nodiscard]] std::vector<seconds> times_on(indexed_program const& p, std::size_t type) const {
        auto counted = p;
        for (auto& t : counted.tensors) t.uses = std::min(t.uses, decltype(t.uses){1});
        return operator_times(counted, cluster_, type);
    }

    /// The seconds of a micro-batch at a cut, at least, as devices on one side of it see them.
    [[nodiscard]] double between_machines(std::size_t cut, stage_devices const& on) const {
        if (cut == 0 || cut == layer_count_ || !cluster_.inter) return 0;
        double const cards = network_cards(cluster_) * on.machine_count();
        return crossings_[cut].values * cluster_.inter->latency.value +
               crossings_[cut].size / count_ / cards / cluster_.inter->bandwidth.value;
    }
    [[nodiscard]] double inside_machine(std::size_t cut, stage_devices const& on) const {
        return crossings_[cut].values * cluster_.intra->latency.value +
               crossings_[cut].size / count_ / on.part / cluster_.intra->bandwidth.value;
    }

    /// What a stage adds to the sum, if its pace is at most `pace_`; the times at its ends are given.
    [[nodiscard]] double added(devices const& s, std::size_t first, std::size_t end, double before,
                               double after) const {
        double const one = s.work[first][end] / count_, rest = count_ - 1;
        double const own = s.least[first][end] - one;
        double const pace =
            sends_beside_ ? std::max({own, rest * before, rest * after}) : own + rest * (before + after);
        return pace <= pace_ ? one + before : infinite;
    }

    /// Returns the least sum over stages of a micro-batch's time, where the slowest stage has at most this pace.
    [[nodiscard]] double least_sum(std::int64_t micro_batches, double pace) {
        count_ = static_cast<double>(micro_batches), pace_ = pace;
        std::vector<layer_table> on_one;
        for (auto const& kind : parts_) on_one.push_back(on_one_machine(kind));
        std::size_t states = 1;
        std::vector<std::size_t> step;
        for (auto const& k : kinds_) step.push_back(states), states *= static_cast<std::size_t>(k.count) + 1;
        auto const used_of = [&](std::size_t state, std::size_t k) {
            return static_cast<int>(state / step[k] % (static_cast<std::size_t>(kinds_[k].count) + 1));
        };
        layer_table least(layer_count_ + 1, std::vector<double>(states, infinite));
        least[0][0] = 0;
        for (std::size_t first = 0; first < layer_count_; ++first)
            for (std::size_t state = 0; state < states; ++state) {
                double const so_far = least[first][state];
                if (so_far == infinite) continue;
                for (std::size_t k = 0; k < kinds_.size(); ++k) {
                    if (used_of(state, k) == kinds_[k].count) continue;
                    for (std::size_t end = first + 1; end <= layer_count_; ++end)
                        least[end][state + step[k]] =
                            std::min(least[end][state + step[k]], so_far + on_one[k][first][end]);
                }
                for (auto const& s : several_) {
                    std::size_t to = state;
                    bool fits = true;
                    for (std::size_t k = 0; k < kinds_.size(); ++k) {
                        fits = fits && used_of(state, k) + s.on.machines[k] <= kinds_[k].count;
                        to += step[k] * static_cast<std::size_t>(s.on.machines[k]);
                    }
                    if (!fits) continue;
                    double const before = between_machines(first, s.on);
                    for (std::size_t end = first + 1; end <= layer_count_; ++end)
                        least[end][to] = std::min(least[end][to],
                                                  so_far + added(s, first, end, before, between_machines(end, s.on)));
                }
            }
        return algorithm::min(least[layer_count_]);
    }

    /// Returns, by first layer and the one behind the last, the least sum over stages that share one machine.
    [[nodiscard]] layer_table on_one_machine(std::vector<devices> const& parts) const {
        std::size_t const all = parts.size();
        layer_table least(layer_count_, std::vector<double>(layer_count_ + 1, infinite));
        for (std::size_t from = 0; from < layer_count_; ++from) {
            layer_table inside(layer_count_ + 1, std::vector<double>(all + 1, infinite)); // by devices used
            inside[from][0] = 0;
            for (std::size_t first = from; first < layer_count_; ++first)
                for (std::size_t used = 0; used < all; ++used) {
                    double const so_far = inside[first][used];
                    if (so_far == infinite) continue;
                    for (std::size_t d = 1; used + d <= all; ++d) {
                        auto const& s = parts[d - 1];
                        double const before =
                            first == from ? between_machines(first, s.on) : inside_machine(first, s.on);
                        for (std::size_t end = first + 1; end <= layer_count_; ++end) {
                            auto& last = least[from][end];
                            last = std::min(last, so_far + added(s, first, end, before, between_machines(end, s.on)));
                            if (used + d == all || end == layer_count_) continue;
                            auto& next = inside[end][used + d];
                            next = std::min(next, so_far + added(s, first, end, before, inside_machine(end, s.on)));
                        }
                    }
                }
        }
        return least;
    }

    cluster const& cluster_;
    std::vector<machine_kind> kinds_;
    std::size_t layer_count_;
    bool sends_beside_;
    double enough_;
    /// By kind of machine and number of devices of one; and sets of several machines.
    std::vector<std::vector<devices>> parts_;
    std::vector<devices> several_;
    std::map<std::size_t, std::vector<seconds>> times_;
    std::vector<double> per_device_;
    std::vector<crossing> crossings_;
    double shared_ = 0;
    /// The number of micro-batches, and the pace that is allowed.
    double count_ = 1, pace_ = 0;
};

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE double pipeline_bound(indexed_program const& p, cluster const& c, program_layers const& layers,
                                    stage_bounds& stages, bool sends_beside, double enough) {
    return detail::pipeline_bounder(p, c, layers, stages, sends_beside, enough).bound(batch_size_of(p));
}

} // namespace heddle

#endif
