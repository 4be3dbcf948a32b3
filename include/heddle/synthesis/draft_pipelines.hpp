// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Pipelines with stages of unlike sizes and devices, drafted from profiles of layers: which layers are worth
/// planning in full, on which devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/strategy_problem.hpp>
#include <heddle/plan/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

/// The layers [first, end) on some devices, ascending.
struct stage_draft {
    std::size_t first = 0, end = 0;
    std::vector<std::size_t> devices;
    /// The devices that share a sample; equally many after each other do.
    std::size_t tensor = 1;
    friend bool operator==(stage_draft const&, stage_draft const&) = default;
};

/// What a planned stage takes for all micro-batches, its gradients and update included.
struct planned_stage_time {
    stage_draft stage;
    std::int64_t micro_batches = 1;
    double seconds = 0;
};

/// Stages may pass their devices in rounds: then those of each round are on the devices of the first one's, in order.
struct pipeline_draft {
    std::vector<stage_draft> stages;
    std::int64_t micro_batches = 1;
    seconds estimate{};

    /// Returns the number of stages of a round.
    [[nodiscard]] std::size_t places() const { return stages_of_round(stages); }
};

/// Divides the stages of a pipeline among rounds: of those on the same devices, each takes about as long, by the times
/// of layers relative to each other. Returns nothing if there are too few layers.
[[nodiscard]] std::optional<pipeline_draft> in_rounds(pipeline_draft const& once, std::size_t rounds,
                                                      std::vector<double> const& layers);

/// Returns how long layers take for one sample, relative to each other: on devices of the first machine.
[[nodiscard]] std::vector<double> times_of_layers(strategy_problem const& p);

/// Drafts pipelines that pass their devices once, for one number of micro-batches, best first, no two alike.
///
/// Stages are consecutive devices: equal parts of a machine, or whole machines one after the other, in the order given
/// or the reverse; machines at the end may stay out. A stage divides samples among its tensor groups as fast as these
/// are. For each number of stages, on which depends what is in flight, and each time that the slowest one may take, in
/// steps of 3 %, a dynamic program assigns layers and devices for the least sum of all. Like plans, drafts take what
/// AMP's formula says, or as long as they run pass by pass.
/// *Complexity.* O(d^2 l^3) for d devices and l layers, for each such time.
[[nodiscard]] std::vector<pipeline_draft> draft_pipelines(strategy_problem const& p, std::int64_t micro_batches,
                                                          std::size_t most);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/staged_run.hpp>

namespace heddle::detail {

class pipeline_drafter {
public:
    pipeline_drafter(strategy_problem const& p, std::int64_t micro_batches, bool is_reversed)
        : problem_(p), count_(micro_batches), samples_(p.global_batch / micro_batches) {
        std::size_t first = 0;
        for (std::size_t m = 0; m < p.machines.size(); first += p.machines[m++].devices) {
            machines_.push_back(m);
            first_device_.push_back(first);
        }
        if (is_reversed) std::ranges::reverse(machines_);
        offsets_.push_back(0);
        for (auto m : machines_) offsets_.push_back(offsets_.back() + p.machines[m].devices);
        find_places();
        sum_up();
    }

    /// With the slot of its slowest stage, and what each does for a micro-batch: a third of a pass is forward.
    struct timed_draft {
        pipeline_draft draft;
        double slowest = 0;
        std::vector<stage_times> times{};
    };

    /// Adds what is found to the list, with AMP's formula as estimates.
    void draft(std::vector<timed_draft>& into) {
        double const others = static_cast<double>(count_ - 1); // micro-batches that wait for the slowest stage
        double pace = std::numeric_limits<double>::infinity(), least = pace;
        for (auto found = assign(pace); !found.empty(); found = assign(pace)) {
            double most = 0;
            for (auto& d : found) {
                d.draft.estimate += others * seconds(d.slowest);
                least = std::min(least, d.draft.estimate.value), most = std::max(most, d.slowest);
                into.push_back(std::move(d));
            }
            pace = 0.97 * std::min(most, least / others); // at a slower one nothing takes less
        }
    }

private:
    /// The seconds of a micro-batch in a stage, its part of gradients and update included, with a tensor degree; and
    /// what devices hold for each that is in flight, of the bytes that they have left.
    struct stage_time {
        double seconds = 0;
        std::size_t tensor = 1;
        bytes in_flight{}, left{};
        [[nodiscard]] bool holds(std::int64_t count) const { return static_cast<double>(count) * in_flight <= left; }
    };
    /// Devices that are alike: the machines of one such stage with how many they have, and its times by first layer and
    /// by the last, the shortest first.
    struct place_kind {
        std::vector<std::pair<std::size_t, std::size_t>> machines;
        std::vector<std::vector<std::optional<std::vector<stage_time>>>> times{};
    };
    /// Devices of a stage in the order of machines here: positions [begin, end), and the link by which values enter.
    struct place {
        std::size_t begin = 0, end = 0;
        std::vector<std::size_t> devices{};
        std::size_t kind = 0;
        network_link entered{};
    };

    void find_places() {
        places_.resize(offsets_.back() + 1);
        for (std::size_t k = 0; k < machines_.size(); ++k) {
            auto const n = problem_.machines[machines_[k]].devices;
            for (std::size_t size = 1; size <= n; ++size)
                for (std::size_t at = 0; n % size == 0 && at < n; at += size)
                    add_place(offsets_[k] + at, offsets_[k] + at + size);
            for (std::size_t last = k + 1; last < machines_.size(); ++last) add_place(offsets_[k], offsets_[last + 1]);
        }
    }
    void add_place(std::size_t begin, std::size_t end) {
        place p{begin, end};
        std::map<std::size_t, std::size_t> of_machine;
        for (auto at = begin; at < end; ++at) {
            auto const k = place_of(at);
            p.devices.push_back(first_device_[machines_[k]] + at - offsets_[k]);
            ++of_machine[machines_[k]];
        }
        algorithm::sort(p.devices);
        auto const& first = problem_.machines[machines_[place_of(begin)]];
        p.entered = offsets_[place_of(begin)] < begin ? first.inside : first.outside;
        std::vector<std::pair<std::size_t, std::size_t>> types;
        for (auto const& [machine, count] : of_machine) types.emplace_back(problem_.machines[machine].type, count);
        algorithm::sort(types);
        auto const [known, is_new] = kind_of_types_.try_emplace(std::move(types), kinds_.size());
        if (is_new) {
            std::size_t const layers = problem_.layer_count();
            auto& kind = kinds_.emplace_back(place_kind{{of_machine.begin(), of_machine.end()}});
            for (std::size_t l = 0; l < layers; ++l) kind.times.emplace_back(layers - l);
        }
        p.kind = known->second;
        places_[begin].push_back(std::move(p));
    }
    /// Returns the place of a position's machine among those here.
    [[nodiscard]] std::size_t place_of(std::size_t position) const {
        return static_cast<std::size_t>(algorithm::upper_bound(offsets_, position) - offsets_.begin()) - 1;
    }

    /// Sums over the layers before each layer.
    void sum_up() {
        auto const& layers = problem_.layers;
        for (std::size_t t = 0; t < problem_.types.size(); ++t)
            for (auto const& [degree, profile] : problem_.types[t].profiles) {
                auto& [fixed, slope, update] = times_[{t, degree}];
                fixed.push_back(0), slope.push_back(0), update.push_back(0);
                for (std::size_t l = 0; l < layers.size(); ++l) {
                    double const one = problem_.time_on(t, degree, l, 1).value,
                                 all = problem_.time_on(t, degree, l, 2).value;
                    slope.push_back(slope.back() + all - one);
                    fixed.push_back(fixed.back() + 2 * one - all);
                    update.push_back(update.back() + (profile.update.empty() ? 0 : profile.update[l].value));
                }
            }
        gradients_.push_back({}), kept_.push_back({}), saved_.push_back({}), entered_.push_back({});
        auto const add = [](group_bytes a, group_bytes const& b) {
            return group_bytes{a.whole + b.whole, a.split + b.split};
        };
        for (auto const& l : layers) {
            gradients_.push_back(add(gradients_.back(), l.gradients));
            kept_.push_back(add(kept_.back(), l.kept));
            saved_.push_back(add(saved_.back(), l.saved));
            entered_.push_back(add(entered_.back(), l.input));
        }
    }
    [[nodiscard]] static bytes range(std::vector<group_bytes> const& sums, std::size_t first, std::size_t end,
                                     std::size_t degree) {
        return sums[end].on(degree) - sums[first].on(degree);
    }

    /// How much longer passes take if the forward pass, half as long as the backward pass, comes twice.
    static constexpr double with_recomputation = 4.0 / 3;

    [[nodiscard]] std::vector<stage_time> times_of(place_kind const& on, std::size_t first, std::size_t end) const {
        std::vector<stage_time> times;
        for (auto const degree : problem_.usable_degrees()) {
            if (algorithm::any_of(on.machines, [&](auto const& m) { return m.second % degree != 0; })) continue;
            double speed = 0, fixed = 0, update = 0, groups = 0;
            bytes limit(std::numeric_limits<double>::infinity());
            network_link link{bytes_per_second(std::numeric_limits<double>::infinity()), seconds(0)};
            for (auto const& [m, count] : on.machines) {
                auto const& machine = problem_.machines[m];
                auto const& [fix, slope, step] = times_.at({machine.type, degree});
                double const n = static_cast<double>(count / degree);
                groups += n;
                speed += n / (slope[end] - slope[first]);
                fixed = std::max(fixed, fix[end] - fix[first]);
                update = std::max(update, step[end] - step[first]);
                limit = std::min(limit, problem_.types[machine.type].memory);
                auto const& used = on.machines.size() > 1 ? machine.outside : machine.inside;
                link = {std::min(link.bandwidth, used.bandwidth), std::max(link.latency, used.latency)};
            }
            double const samples = static_cast<double>(samples_);
            if (groups > samples) continue;
            double reduce = 0;
            if (groups > 1) {
                double const lines = on.machines.size() > 1 ? static_cast<double>(degree) : 1;
                reduce = (2 * (groups - 1) / groups * lines * range(gradients_, first, end, degree) / link.bandwidth +
                          2 * (groups - 1) * link.latency)
                             .value;
            }
            double const passes = fixed + samples / speed, rest = (reduce + update) / static_cast<double>(count_),
                         each = samples / groups;
            bytes const left = limit - range(kept_, first, end, degree),
                        saved = each * range(saved_, first, end, degree),
                        entered = each * range(entered_, first, end, degree);
            bytes most; // of a layer: one is made again at a time
            for (auto l = first; l < end; ++l) most = std::max(most, each * problem_.layers[l].saved.on(degree));
            times.push_back({passes + rest, degree, saved, left});
            times.push_back({with_recomputation * passes + rest, degree, entered, left - most});
        }
        std::erase_if(times, [](stage_time const& t) { return !t.holds(1); });
        algorithm::sort(times, {}, &stage_time::seconds);
        return times;
    }

    /// Returns the times of a stage by tensor degree, with activations kept or recomputed, if one micro-batch is in
    /// flight at least, the shortest first.
    [[nodiscard]] std::vector<stage_time> const& known_times(place const& p, std::size_t first, std::size_t end) {
        auto& kind = kinds_[p.kind];
        auto& known = kind.times[first][end - first - 1];
        if (!known) known = times_of(kind, first, end);
        return *known;
    }

    /// The time of what enters a stage and of its cotangents.
    [[nodiscard]] double boundary(place const& at, std::size_t first) const {
        if (first == 0) return 0;
        return 2 * (at.entered.latency +
                    static_cast<double>(samples_) * problem_.layers[first].input.on(1) / at.entered.bandwidth)
                       .value;
    }

    /// Assigns for the least sum of times of a micro-batch, for each number of stages, if no stage takes longer than
    /// `pace`. The sum is in place of the estimate.
    [[nodiscard]] std::vector<timed_draft> assign(double pace) {
        std::size_t const layers = problem_.layer_count(), devices = offsets_.back();
        struct label {
            double sum = std::numeric_limits<double>::infinity(), slowest = 0, own = 0;
            place const* next = nullptr;
            std::size_t end = 0, tensor = 1;
        };
        // By the number of stages, first position and layer: the best of what comes from there on.
        std::vector best(layers + 1, std::vector(devices + 1, std::vector<label>(layers + 1)));
        for (auto& row : best[0]) row[layers].sum = 0;
        std::vector<timed_draft> found;
        for (std::size_t stages = 1; stages <= layers; ++stages) {
            auto const in_flight = std::min(count_, static_cast<std::int64_t>(stages));
            for (std::size_t at = devices; at-- > 0;)
                for (std::size_t first = 0; first + stages <= layers; ++first) {
                    auto& here = best[stages][at][first];
                    for (auto const& p : places_[at]) {
                        double const enters = boundary(p, first);
                        for (auto end = first + 1; end + stages <= layers + 1; ++end) {
                            auto const& rest = best[stages - 1][p.end][end];
                            if (rest.sum >= here.sum) continue;
                            auto const& times = known_times(p, first, end);
                            if (times.empty() || times.front().seconds + enters > pace) break; // nor do more layers
                            auto const time =
                                algorithm::find_if(times, [&](auto const& t) { return t.holds(in_flight); });
                            if (time == times.end()) break;
                            double const own = time->seconds;
                            double const leaves = rest.next ? boundary(*rest.next, end) : 0;
                            double const slot = own + enters + leaves;
                            if (slot > pace) continue;
                            double const sum = own + enters + rest.sum;
                            if (sum < here.sum) here = {sum, std::max(slot, rest.slowest), own, &p, end, time->tensor};
                        }
                    }
                }
            auto const& whole = best[stages][0][0];
            if (whole.next == nullptr) continue;
            auto& [draft, slowest, times] = found.emplace_back();
            draft.micro_batches = count_;
            draft.estimate = seconds(whole.sum);
            slowest = whole.slowest;
            for (std::size_t left = stages, at = 0, first = 0; left > 0; --left) {
                auto const& l = best[left][at][first];
                double const forward = l.own / 3, enters = boundary(*l.next, first) / 2;
                draft.stages.push_back({first, l.end, l.next->devices, l.tensor});
                times.push_back({forward, l.own - forward, enters, enters});
                at = l.next->end, first = l.end;
            }
        }
        return found;
    }

    strategy_problem const& problem_;
    std::int64_t count_, samples_;
    std::vector<std::size_t> machines_, first_device_, offsets_;
    std::vector<std::vector<place>> places_;
    std::map<std::pair<std::size_t, std::size_t>, std::array<std::vector<double>, 3>> times_;
    std::vector<group_bytes> gradients_, kept_, saved_, entered_;
    std::vector<place_kind> kinds_;
    /// By the types of a place's machines and how many devices each has.
    std::map<std::vector<std::pair<std::size_t, std::size_t>>, std::size_t> kind_of_types_;
};

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::optional<pipeline_draft> in_rounds(pipeline_draft const& once, std::size_t rounds,
                                                      std::vector<double> const& layers) {
    std::size_t const places = once.stages.size(), count = places * rounds;
    if (count > layers.size()) return {};
    std::vector<double> all, taken(places);
    for (auto const& s : once.stages)
        all.push_back(std::accumulate(layers.begin() + static_cast<std::ptrdiff_t>(s.first),
                                      layers.begin() + static_cast<std::ptrdiff_t>(s.end), 0.0));
    pipeline_draft result{{}, once.micro_batches, {}};
    std::size_t next = 0;
    for (std::size_t s = 0; s < count; ++s) {
        auto const place = s % places;
        auto stage = once.stages[place];
        double const until = all[place] * static_cast<double>(s / places + 1) / static_cast<double>(rounds);
        stage.first = next;
        std::size_t const left = count - s - 1; // of stages, each of which has a layer
        do taken[place] += layers[next++];
        while (next + left < layers.size() && (left == 0 || taken[place] + layers[next] / 2 < until));
        stage.end = next;
        result.stages.push_back(std::move(stage));
    }
    return result;
}

HEDDLE_INLINE std::vector<double> times_of_layers(strategy_problem const& p) {
    std::vector<double> times;
    auto const type = p.machines.front().type, degree = p.usable_degrees().front();
    for (std::size_t l = 0; l < p.layer_count(); ++l) times.push_back(p.time_on(type, degree, l, 1).value);
    return times;
}

HEDDLE_INLINE std::vector<pipeline_draft> draft_pipelines(strategy_problem const& p, std::int64_t micro_batches,
                                                          std::size_t most) {
    std::vector<detail::pipeline_drafter::timed_draft> all;
    for (bool const is_reversed : {false, true}) {
        if (is_reversed && p.types.size() == 1) continue;
        detail::pipeline_drafter(p, micro_batches, is_reversed).draft(all);
    }
    auto const in_order = [](pipeline_draft const& d) { return std::pair(d.estimate, d.stages.size()); };
    algorithm::sort(all, {}, [&](auto const& d) { return in_order(d.draft); });
    std::vector<pipeline_draft> result;
    for (auto& [d, slowest, times] : all) {
        // What is left takes no less than the formula says.
        if (result.size() == most && (most == 0 || result.back().estimate <= d.estimate)) break;
        if (algorithm::any_of(result, [&](auto const& other) { return other.stages == d.stages; })) continue;
        auto const run = run_stages(times, times.size(), static_cast<int>(micro_batches), 0, false).total;
        d.estimate = std::max(d.estimate, seconds(run));
        result.insert(algorithm::upper_bound(result, in_order(d), {}, in_order), std::move(d));
        if (result.size() > most) result.pop_back();
    }
    return result;
}

} // namespace heddle

#endif
