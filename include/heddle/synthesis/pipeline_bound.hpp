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
#include <heddle/synthesis/draft_pipelines.hpp>
#include <heddle/synthesis/stage_bounds.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// Bounds of plans in which every stage has whole layers, on whole machines or a part of one, and stages that share a
/// machine follow each other; whatever their number, forms, shares, meshes and micro-batches. docs/explanation/stages.md
/// has the argument. *Lifetime:* refers to all that it is made of.
class pipeline_bounds {
public:
    pipeline_bounds(indexed_program const& p, cluster const& c, program_layers const& layers, stage_bounds& stages,
                    bool sends_beside);

    /// Returns the sets of devices that a stage may have, with what a plan of one stage on each takes at least; least
    /// first.
    [[nodiscard]] std::vector<std::pair<double, stage_devices>> of_one_stage();
    /// No plan takes less time. At most `enough` is returned.
    /// *Complexity.* Linear in sets of machines times runs of layers, for each of about a hundred paces; bounds of stages
    /// for a few numbers of micro-batches.
    [[nodiscard]] double least(double enough);
    /// Returns the devices of a set, of the first machines of each kind.
    [[nodiscard]] std::vector<std::size_t> devices_of(stage_devices const& on) const;
    /// Returns the pipeline that takes about the least, and less than `enough`, of those that are wanted: for each number of
    /// micro-batches for which `least` bounded stages there is one. Stages that were planned take what they do and, if that
    /// is to be learnt from, others of the same devices as many times their bounds as these on average.
    [[nodiscard]] std::optional<pipeline_draft> draft(double enough,
                                                      std::function<bool(pipeline_draft const&)> const& is_wanted,
                                                      std::span<planned_stage_time const> planned = {},
                                                      bool learns = false);

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    /// The least seconds of all micro-batches' passes, and of these with a reduction of gradients and an update.
    struct least_times {
        layer_table passes, all;
    };
    using known_times = std::map<std::int64_t, std::vector<least_times>>; // by micro-batches, of each set of devices

    /// What passes a cut and comes back: seconds for a batch at a link's bandwidth of one, and messages.
    struct crossing {
        double size = 0, values = 0;
    };
    /// By layer and number of devices used, the least sum over stages that share one machine from a layer on; and by the layer
    /// behind the last, that of all of them.
    struct on_machine {
        layer_table inside;
        std::vector<double> least;
    };

    void find_crossings(indexed_program const& p, program_layers const& layers);
    /// Returns what stages on each set of devices take at least, parts of machines before several machines.
    std::vector<least_times> const& known_at(std::int64_t micro_batches);
    /// Returns what is known of the most micro-batches of no more than these.
    [[nodiscard]] known_times::const_iterator known_up_to(std::int64_t micro_batches) const {
        return std::prev(known_.upper_bound(micro_batches));
    }

    /// The seconds of a micro-batch at a cut, at least, as devices on one side of it see them.
    [[nodiscard]] double between_machines(std::size_t cut, stage_devices const& on) const;
    [[nodiscard]] double inside_machine(std::size_t cut, stage_devices const& on) const;
    /// What a stage adds to the sum, with the times at its ends; infinite if it is slower than the pace that is allowed.
    [[nodiscard]] double added(double passes, double all, double before, double after) const;
    /// Finds what stages on a set of devices add to the sum, those that are slower than the pace that is allowed apart.
    void find_added(std::size_t set, least_times const& times);

    /// Assigns layers and machines for the least sum over stages of a micro-batch's time, where stages on each set of
    /// devices take so long and the slowest one has at most this pace. Returns the sum.
    double assign(std::vector<least_times> const& times, std::int64_t micro_batches, double pace);
    [[nodiscard]] on_machine assign_on_machine(std::size_t kind, std::size_t from) const;
    /// Calls `visit(devices, end, is_last, sum)` for stages of one machine from a layer on, where so many of its devices are used:
    /// the last of these stages, or not.
    template <class Visit>
    void for_each_part(std::size_t kind, std::size_t first, std::size_t used, Visit&& visit) const;
    /// Calls `visit(what, end, state, sum)` for what may come next from a layer on: one stage on a set of several machines, or,
    /// with numbers behind those of the sets, stages of one machine of a kind.
    template <class Visit>
    void for_each_next(std::size_t first, std::size_t state, Visit&& visit) const;
    /// Returns the number of a set of devices in what is known.
    [[nodiscard]] std::size_t set_of(std::vector<std::size_t> const& devices) const;
    /// Returns what stages take by what is known, with planned ones as they are; their passes are all of it.
    [[nodiscard]] known_times times_for_drafts(std::span<planned_stage_time const> planned, bool learns) const;
    /// Returns the stages that were assigned last; adds those of one machine, the last one first.
    [[nodiscard]] std::vector<stage_draft> assigned() const;
    void add_parts(std::size_t kind, std::size_t from, std::size_t end, std::size_t device,
                   std::vector<stage_draft>& stages) const;
    [[nodiscard]] std::vector<std::size_t> devices_of(stage_devices const& on, std::vector<int> const& used) const;
    [[nodiscard]] int used_of(std::size_t state, std::size_t kind) const {
        return static_cast<int>(state / step_[kind] % (static_cast<std::size_t>(kinds_[kind].count) + 1));
    }

    cluster const& cluster_;
    stage_bounds& stages_;
    std::vector<machine_kind> kinds_;
    std::size_t layer_count_;
    std::int64_t samples_;
    bool sends_beside_;
    /// Devices of one machine, those of a kind by their number, after the other; and sets of several machines.
    std::vector<stage_devices> parts_, several_;
    /// By kind: its first part; what one machine counts in a state; and the first device of each machine.
    std::vector<std::size_t> first_part_, step_;
    std::vector<std::vector<std::size_t>> machines_;
    std::size_t states_ = 1;
    known_times known_;
    std::vector<crossing> crossings_;
    double shared_ = 0;

    /// By state, the sets of several machines that are left, and the states that they lead to.
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> left_;

    /// What is assigned: the number of micro-batches, and the pace that is allowed; by set of devices what stages add, as
    /// they begin and end inside a machine or not; stages of one machine by kind and first layer; and by layer and state
    /// the least sum.
    double count_ = 1, pace_ = 0;
    std::vector<std::array<std::array<layer_table, 2>, 2>> added_;
    std::vector<std::vector<on_machine>> on_one_;
    layer_table sums_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/batch.hpp>

namespace heddle {

HEDDLE_INLINE pipeline_bounds::pipeline_bounds(indexed_program const& p, cluster const& c, program_layers const& layers,
                                               stage_bounds& stages, bool sends_beside)
    : cluster_(c), stages_(stages), kinds_(machine_kinds(c)), layer_count_(layers.size()), samples_(batch_size_of(p)),
      sends_beside_(sends_beside), machines_(kinds_.size()) {
    find_crossings(p, layers);
    std::vector<int> const none(kinds_.size());
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        auto machine = none;
        machine[k] = 1;
        first_part_.push_back(parts_.size());
        for (int d = 1; d <= kinds_[k].devices; ++d) parts_.push_back({machine, d});
        step_.push_back(states_);
        states_ *= static_cast<std::size_t>(kinds_[k].count) + 1;
    }
    for (std::size_t state = 1; state < states_; ++state) { // all sets of several machines
        stage_devices on{none};
        for (std::size_t k = 0; k < kinds_.size(); ++k) on.machines[k] = used_of(state, k);
        if (on.machine_count() > 1) several_.push_back(std::move(on));
    }
    left_.resize(states_);
    for (std::size_t state = 0; state < states_; ++state)
        for (std::size_t s = 0; s < several_.size(); ++s) {
            std::size_t to = state;
            bool is_left = true;
            for (std::size_t k = 0; k < kinds_.size(); ++k) {
                is_left = is_left && used_of(state, k) + several_[s].machines[k] <= kinds_[k].count;
                to += step_[k] * static_cast<std::size_t>(several_[s].machines[k]);
            }
            if (is_left) left_[state].emplace_back(s, to);
        }
    std::size_t device = 0;
    for (auto const& m : c.machines)
        for (int n = 0; n < m.count; ++n, device += static_cast<std::size_t>(m.devices))
            for (std::size_t k = 0; k < kinds_.size(); ++k)
                if (kinds_[k].has(m)) machines_[k].push_back(device);
}

HEDDLE_INLINE void pipeline_bounds::find_crossings(indexed_program const& p, program_layers const& layers) {
    for (auto const cut : layers.cuts) {
        crossing here;
        for (auto t : values_across(p, cut))
            if (p.tensors[t].has_cotangent) here.size += 2 * p.tensors[t].info.size().value, here.values += 2;
        crossings_.push_back(here);
    }
    for (auto const& t : p.tensors) { // used by the first layer and by the last: by two stages, if there are several
        if (!t.is_parameter() || !t.has_cotangent || t.consumers.empty()) continue;
        auto const [first, last] = std::ranges::minmax(t.consumers);
        if (layers.layer_of(first) > 0 || layers.layer_of(last) + 1 < layers.size()) continue;
        if (auto const& link = cluster_.inter ? cluster_.inter : cluster_.intra)
            shared_ += (t.info.size() / link->bandwidth + 2 * link->latency).value;
    }
}

HEDDLE_INLINE std::vector<pipeline_bounds::least_times> const& pipeline_bounds::known_at(std::int64_t micro_batches) {
    auto const [at, is_new] = known_.try_emplace(micro_batches);
    if (!is_new) return at->second;
    for (auto const* sets : {&parts_, &several_})
        for (auto const& on : *sets) {
            auto& times = at->second.emplace_back();
            times.all = stages_.least(on, micro_batches);
            constexpr std::int64_t many = 4; // of which one takes next to nothing in a sum over stages
            times.passes = micro_batches <= many ? stages_.least_of_passes(on, micro_batches)
                                                 : known_up_to(many)->second[at->second.size() - 1].passes;
        }
    return at->second;
}

HEDDLE_INLINE std::vector<std::pair<double, stage_devices>> pipeline_bounds::of_one_stage() {
    std::vector<std::pair<double, stage_devices>> result;
    auto const& times = known_at(1);
    for (std::size_t n = 0; n < times.size(); ++n)
        result.emplace_back(times[n].all[0].back(), n < parts_.size() ? parts_[n] : several_[n - parts_.size()]);
    std::ranges::sort(result);
    return result;
}

HEDDLE_INLINE double pipeline_bounds::least(double enough) {
    double best = std::min(enough, of_one_stage().front().first);
    if (layer_count_ < 2) return best;
    // Of numbers of micro-batches, and of paces of the slowest stage between `low` and `high`; by what is known of as many
    // micro-batches, or of fewer.
    struct range {
        double bound;
        std::int64_t micro_batches, known;
        double low, high, sum;
        bool operator>(range const& other) const {
            return std::tie(bound, micro_batches, low) > std::tie(other.bound, other.micro_batches, other.low);
        }
    };
    std::priority_queue<range, std::vector<range>, std::greater<>> open;
    auto const add = [&](std::int64_t m, double low, double high, double sum) {
        open.push({shared_ + low + sum, m, known_up_to(m)->first, low, high, sum});
    };
    auto const sum_at = [&](std::int64_t m, double pace) { return assign(known_up_to(m)->second, m, pace); };
    std::vector<std::int64_t> counts;
    for (std::int64_t m = 1; m <= samples_; ++m)
        if (samples_ % m == 0) counts.push_back(m), add(m, 0, enough, sum_at(m, enough));
    while (!open.empty()) {
        auto const [value, m, of, low, high, sum] = open.top();
        open.pop();
        if (value >= best) return best;
        if (of < known_up_to(m)->first) {
            add(m, low, high, sum_at(m, high));
        } else if (high - low > 0.002 * enough) {
            double const middle = (low + high) / 2;
            add(m, low, middle, sum_at(m, middle));
            add(m, middle, high, sum);
        } else if (of < m) { // what fewer take is too little
            auto const from = algorithm::lower_bound(counts, of), to = algorithm::lower_bound(counts, m);
            known_at(*(from + (to - from + 1) / 2));
            add(m, low, high, sum_at(m, high));
        } else {
            return value;
        }
    }
    return best;
}

HEDDLE_INLINE double pipeline_bounds::between_machines(std::size_t cut, stage_devices const& on) const {
    if (cut == 0 || cut == layer_count_ || !cluster_.inter) return 0;
    double const cards = network_cards(cluster_) * on.machine_count();
    return crossings_[cut].values * cluster_.inter->latency.value +
           crossings_[cut].size / count_ / cards / cluster_.inter->bandwidth.value;
}

HEDDLE_INLINE double pipeline_bounds::inside_machine(std::size_t cut, stage_devices const& on) const {
    return crossings_[cut].values * cluster_.intra->latency.value +
           crossings_[cut].size / count_ / on.part / cluster_.intra->bandwidth.value;
}

HEDDLE_INLINE double pipeline_bounds::added(double passes, double all, double before, double after) const {
    if (all == infinite) return infinite;
    double const one = passes / count_, rest = count_ - 1;
    double const own = all - one;
    double const pace = sends_beside_ ? std::max({own, rest * before, rest * after}) : own + rest * (before + after);
    return pace <= pace_ ? one + before : infinite;
}

HEDDLE_INLINE void pipeline_bounds::find_added(std::size_t set, least_times const& times) {
    bool const is_part = set < parts_.size();
    auto const& on = is_part ? parts_[set] : several_[set - parts_.size()];
    std::array<std::vector<double>, 2> at; // cuts between machines, and inside one
    for (std::size_t cut = 0; cut <= layer_count_; ++cut) {
        at[0].push_back(between_machines(cut, on));
        if (is_part && cluster_.intra) at[1].push_back(inside_machine(cut, on));
    }
    for (std::size_t begin = 0; begin < 2; ++begin)
        for (std::size_t end = 0; end < 2; ++end) {
            if (at[begin].empty() || at[end].empty()) continue;
            auto& sums = added_[set][begin][end];
            sums.resize(layer_count_);
            for (std::size_t first = 0; first < layer_count_; ++first) {
                auto const &passes = times.passes[first], &all = times.all[first];
                sums[first].resize(all.size());
                for (std::size_t n = 0; n < all.size(); ++n)
                    sums[first][n] = added(passes[n], all[n], at[begin][first], at[end][first + n + 1]);
            }
        }
}

HEDDLE_INLINE double pipeline_bounds::assign(std::vector<least_times> const& times, std::int64_t micro_batches,
                                             double pace) {
    count_ = static_cast<double>(micro_batches), pace_ = pace;
    added_.resize(times.size());
    for (std::size_t set = 0; set < times.size(); ++set) find_added(set, times[set]);
    on_one_.assign(kinds_.size(), {});
    for (std::size_t k = 0; k < kinds_.size(); ++k)
        for (std::size_t from = 0; from < layer_count_; ++from) on_one_[k].push_back(assign_on_machine(k, from));
    sums_.assign(layer_count_ + 1, std::vector<double>(states_, infinite));
    sums_[0][0] = 0;
    for (std::size_t first = 0; first < layer_count_; ++first)
        for (std::size_t state = 0; state < states_; ++state)
            if (sums_[first][state] < infinite)
                for_each_next(first, state, [&](std::size_t, std::size_t end, std::size_t to, double sum) {
                    sums_[end][to] = std::min(sums_[end][to], sum);
                });
    return algorithm::min(sums_[layer_count_]);
}

template <class Visit>
void pipeline_bounds::for_each_next(std::size_t first, std::size_t state, Visit&& visit) const {
    double const so_far = sums_[first][state];
    for (auto const& [s, to] : left_[state]) {
        auto const& sums = added_[parts_.size() + s][0][0][first];
        for (std::size_t end = first + 1; end <= layer_count_; ++end) visit(s, end, to, so_far + sums[end - first - 1]);
    }
    for (std::size_t k = 0; k < kinds_.size(); ++k)
        for (std::size_t end = first + 1; end <= layer_count_ && used_of(state, k) < kinds_[k].count; ++end)
            visit(several_.size() + k, end, state + step_[k], so_far + on_one_[k][first].least[end]);
}

template <class Visit>
void pipeline_bounds::for_each_part(std::size_t kind, std::size_t first, std::size_t used, Visit&& visit) const {
    auto const all = static_cast<std::size_t>(kinds_[kind].devices);
    for (std::size_t d = 1; used + d <= all; ++d) {
        auto const& added = added_[first_part_[kind] + d - 1][used == 0 ? 0 : 1];
        for (std::size_t end = first + 1; end <= layer_count_; ++end) {
            visit(d, end, true, added[0][first][end - first - 1]);
            if (used + d < all && end < layer_count_) visit(d, end, false, added[1][first][end - first - 1]);
        }
    }
}

HEDDLE_INLINE pipeline_bounds::on_machine pipeline_bounds::assign_on_machine(std::size_t kind, std::size_t from) const {
    auto const all = static_cast<std::size_t>(kinds_[kind].devices);
    on_machine result{layer_table(layer_count_ + 1, std::vector<double>(all, infinite)),
                      std::vector<double>(layer_count_ + 1, infinite)};
    result.inside[from][0] = 0;
    for (std::size_t first = from; first < layer_count_; ++first)
        for (std::size_t used = 0; used < all; ++used)
            if (double const so_far = result.inside[first][used]; so_far < infinite)
                for_each_part(kind, first, used, [&](std::size_t d, std::size_t end, bool is_last, double time) {
                    auto& sum = is_last ? result.least[end] : result.inside[end][used + d];
                    sum = std::min(sum, so_far + time);
                });
    return result;
}

HEDDLE_INLINE std::vector<std::size_t> pipeline_bounds::devices_of(stage_devices const& on) const {
    return devices_of(on, std::vector<int>(kinds_.size()));
}

HEDDLE_INLINE std::vector<std::size_t> pipeline_bounds::devices_of(stage_devices const& on,
                                                                   std::vector<int> const& used) const {
    std::vector<std::size_t> devices;
    for (std::size_t k = 0; k < kinds_.size(); ++k)
        for (int n = used[k]; n < used[k] + on.machines[k]; ++n)
            for (int d = 0; d < (on.part > 0 ? on.part : kinds_[k].devices); ++d)
                devices.push_back(machines_[k][static_cast<std::size_t>(n)] + static_cast<std::size_t>(d));
    algorithm::sort(devices);
    return devices;
}

HEDDLE_INLINE std::size_t pipeline_bounds::set_of(std::vector<std::size_t> const& devices) const {
    stage_devices on{std::vector<int>(kinds_.size())};
    std::size_t kind = 0;
    int here = 0; // of the devices, on the last machine that has some
    for (std::size_t k = 0; k < kinds_.size(); ++k)
        for (auto const first : machines_[k]) {
            auto const end = first + static_cast<std::size_t>(kinds_[k].devices);
            auto const count = algorithm::lower_bound(devices, end) - algorithm::lower_bound(devices, first);
            if (count > 0) ++on.machines[k], kind = k, here = static_cast<int>(count);
        }
    if (on.machine_count() == 1) return first_part_[kind] + static_cast<std::size_t>(here) - 1;
    return parts_.size() + static_cast<std::size_t>(algorithm::find(several_, on) - several_.begin());
}

HEDDLE_INLINE pipeline_bounds::known_times pipeline_bounds::times_for_drafts(
    std::span<planned_stage_time const> planned, bool learns) const {
    auto result = known_;
    std::map<std::size_t, std::pair<double, int>>
        longer; // by set of devices: how many times, added up, and of how many
    auto const bound_of = [&](planned_stage_time const& s, std::size_t set) -> double& {
        return result.at(s.micro_batches)[set].all[s.stage.first][s.stage.end - s.stage.first - 1];
    };
    for (auto const& s : planned) {
        auto const set = set_of(s.stage.devices);
        double const bound = known_.contains(s.micro_batches) ? bound_of(s, set) : 0;
        if (!learns || bound <= 0) continue;
        auto& [sum, count] = longer[set];
        sum += s.seconds / bound;
        ++count;
    }
    for (auto& [m, times] : result)
        for (auto const& [set, sum] : longer)
            for (auto& row : times[set].all)
                for (auto& bound : row) bound *= sum.first / sum.second;
    for (auto const& s : planned)
        if (known_.contains(s.micro_batches)) bound_of(s, set_of(s.stage.devices)) = s.seconds;
    // Bounds of passes leave to the end what a plan might; for drafts all that is done once is a part of each pass.
    for (auto& [m, times] : result)
        for (auto& of_set : times) of_set.passes = of_set.all;
    return result;
}

HEDDLE_INLINE std::optional<pipeline_draft> pipeline_bounds::draft(
    double enough, std::function<bool(pipeline_draft const&)> const& is_wanted,
    std::span<planned_stage_time const> planned, bool learns) {
    // The pace of the slowest stage is one of these parts of `enough`: one of those in (low, high].
    constexpr int paces = 40;
    struct range {
        double bound;
        std::int64_t micro_batches;
        int low, high;
        double sum;
        bool operator>(range const& other) const {
            return std::tie(bound, micro_batches, low) > std::tie(other.bound, other.micro_batches, other.low);
        }
    };
    std::priority_queue<range, std::vector<range>, std::greater<>> open;
    auto times = times_for_drafts(planned, learns);
    auto const pace = [&](int n) { return enough * n / paces; };
    auto const add = [&](std::int64_t m, int low, int high, double sum) {
        open.push({shared_ + pace(low + 1) + sum, m, low, high, sum});
    };
    auto const sum_at = [&](std::int64_t m, int n) { return assign(times.at(m), m, pace(n)); };
    for (auto const& [m, of_sets] : times) add(m, 0, paces, sum_at(m, paces));
    while (!open.empty() && open.top().bound < enough) {
        auto const [bound, m, low, high, sum] = open.top();
        open.pop();
        if (!times.contains(m)) continue;
        if (high - low > 1) {
            int const middle = (low + high) / 2;
            add(m, low, middle, sum_at(m, middle));
            add(m, middle, high, sum);
            continue;
        }
        sum_at(m, high);
        pipeline_draft result{assigned(), m, seconds(bound)};
        if ((result.stages.size() > 1 || m > 1) && is_wanted(result)) return result;
        times.erase(m);
    }
    return std::nullopt;
}

HEDDLE_INLINE std::vector<stage_draft> pipeline_bounds::assigned() const {
    std::vector<stage_draft> stages; // the last one first
    std::size_t end = layer_count_;
    auto state = static_cast<std::size_t>(algorithm::min_element(sums_[end]) - sums_[end].begin());
    while (end > 0) {
        struct step {
            std::size_t what, first, state;
        };
        std::optional<step> last;
        for (std::size_t first = 0; first < end && !last; ++first)
            for (std::size_t before = 0; before < states_ && !last; ++before)
                if (sums_[first][before] < infinite)
                    for_each_next(first, before, [&](std::size_t what, std::size_t to, std::size_t after, double sum) {
                        if (to == end && after == state && sum <= sums_[end][state]) last = {what, first, before};
                    });
        std::vector<int> used;
        for (std::size_t k = 0; k < kinds_.size(); ++k) used.push_back(used_of(last->state, k));
        if (last->what < several_.size()) stages.push_back({last->first, end, devices_of(several_[last->what], used)});
        else {
            auto const k = last->what - several_.size();
            add_parts(k, last->first, end, machines_[k][static_cast<std::size_t>(used[k])], stages);
        }
        end = last->first, state = last->state;
    }
    std::ranges::reverse(stages);
    return stages;
}

HEDDLE_INLINE void pipeline_bounds::add_parts(std::size_t kind, std::size_t from, std::size_t end, std::size_t device,
                                              std::vector<stage_draft>& stages) const {
    auto const& known = on_one_[kind][from];
    double sum = known.least[end];
    std::size_t used_after = 0; // none: it is the last
    while (end > from) {
        struct step {
            std::size_t first, used, count;
        };
        std::optional<step> last;
        for (std::size_t first = from; first < end && !last; ++first)
            for (std::size_t used = 0; used < known.inside[first].size() && !last; ++used)
                if (double const so_far = known.inside[first][used]; so_far < infinite)
                    for_each_part(kind, first, used, [&](std::size_t d, std::size_t to, bool is_last, double time) {
                        bool const leads_there = is_last ? used_after == 0 : used_after == used + d;
                        if (to == end && leads_there && so_far + time <= sum) last = {first, used, d};
                    });
        std::vector<std::size_t> devices(last->count);
        std::iota(devices.begin(), devices.end(), device + last->used);
        stages.push_back({last->first, end, std::move(devices)});
        end = last->first, used_after = last->used, sum = known.inside[last->first][last->used];
    }
}

} // namespace heddle

#endif
