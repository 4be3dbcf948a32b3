// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline, data and tensor parallel strategy, and what an iteration under it costs.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/degrees.hpp>
#include <heddle/pipeline/layer_assignment_problem.hpp>
#include <heddle/pipeline/strategy_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// AMP's six-tuple (eq. (2)): degrees and placement, micro-batch, and the layers of each stage.
struct strategy {
    device_placement placement;
    /// The samples of a copy of the model per pass, and its passes per iteration; the last pass may have fewer samples.
    std::int64_t micro_batch_size = 1, micro_batches = 1;
    /// Stage s holds the layers [cuts[s], cuts[s + 1]).
    std::vector<std::size_t> cuts;

    [[nodiscard]] parallel_degrees degrees() const { return placement.degrees; }
};

/// The time of an iteration by term, and the memory of every stage.
struct strategy_cost {
    /// All of it; the slowest copy's pipeline; the slowest all-reduce of gradients plus those of shared parameters; the
    /// longest step of an optimiser.
    seconds total, pipeline, synchronisation, update;
    /// The times of one micro-batch in the slowest copy, per stage and per boundary.
    std::vector<seconds> stages, boundaries;
    /// The average share of the pipeline's time that its stages spend waiting.
    double bubble = 0;
    /// The memory of the fullest device of each stage, and the least limit of its devices.
    std::vector<bytes> memory, memory_limit;

    [[nodiscard]] bool fits() const { return algorithm::equal(memory, memory_limit, std::less_equal<>{}); }
};

/// Prices strategies of one problem. *Lifetime:* refers to the problem, which `validate` has accepted.
///
/// With g micro-batches, a copy whose stages take t_i and whose boundaries take e_i per micro-batch takes (g - 1)
/// max(t_i, e_i) + sum t_i + sum e_i. This is AMP's eq. (5), in which a sender goes on while it sends and a receiver
/// waits (section 6.1), so that a boundary slower than every stage sets the pace. If sends block, a stage exchanges
/// values and cotangents with each neighbour between its passes, both ways at once over a full-duplex link: a copy
/// takes (g - 1) max(e_{i-1} + t_i + e_i) + sum t_i + 2 sum e_i, and what leaves or enters a machine for one boundary
/// shares its link. A stage is as slow as its own device, not as a blend of types. The iteration ends with the slowest
/// copy and the slowest all-reduce of gradients (eq. (4)), which is 2 (n - 1) / n of the gradients over the slowest
/// link of a ring that visits machines one by one (eq. (3)); rings that leave a machine at the same time share its
/// link. Then stages with copies of one parameter sum its gradients likewise, one parameter at a time, and optimisers
/// step, all at once.
class strategy_model {
public:
    explicit strategy_model(strategy_problem const& p);

    [[nodiscard]] strategy_problem const& problem() const { return problem_; }
    [[nodiscard]] std::size_t machine_of(std::size_t device) const { return machine_of_[device]; }
    [[nodiscard]] std::size_t type_of(std::size_t device) const { return problem_.machines[machine_of_[device]].type; }

    [[nodiscard]] network_link link(std::size_t a, std::size_t b) const;

    /// Returns the problem that layer assignment solves for a placement: a stage is as slow, as full and as far from
    /// the next as in the copy where it is worst. Its cost is that of the pipeline if one copy is slowest in every
    /// stage, no boundary sets the pace and no sends block.
    [[nodiscard]] layer_assignment_problem assignment(device_placement const& at, std::int64_t micro_batch_size,
                                                      std::int64_t micro_batches) const;

    /// *Precondition:* the strategy passes `check`.
    [[nodiscard]] strategy_cost cost(strategy const& s) const;

    /// Returns how many times as fast as links say all-reduces were measured to be per byte, or 1 if they were slower.
    [[nodiscard]] double measured_speedup() const;

    /// *Throws* `input_error` if the strategy is none of this problem.
    void check(strategy const& s) const;

private:
    [[nodiscard]] static seconds transfer(network_link const& over, bytes size) {
        return size.value > 0 ? over.latency + size / over.bandwidth : over.latency;
    }
    [[nodiscard]] std::vector<layer_memory> layer_memories(std::size_t tensor, std::int64_t micro_batch_size) const;
    /// Returns the types of a stage's devices, each once, ascending.
    [[nodiscard]] std::vector<std::size_t> types_of(device_placement const& at, std::size_t stage) const;
    [[nodiscard]] layer_times slowest_times(std::vector<std::size_t> const& types, std::size_t tensor,
                                            std::int64_t micro_batch_size) const;
    [[nodiscard]] bytes limit(std::vector<std::size_t> const& types) const;
    /// Returns each copy's slowest link from a stage to the next.
    [[nodiscard]] std::vector<network_link> links_behind(device_placement const& at, std::size_t stage) const;
    [[nodiscard]] static network_link slower(network_link const& a, network_link const& b) {
        return {std::min(a.bandwidth, b.bandwidth), std::max(a.latency, b.latency)};
    }
    /// Returns the time of a copy's micro-batches.
    [[nodiscard]] seconds pipeline_time(std::vector<seconds> const& stages, std::vector<seconds> const& boundaries,
                                        std::int64_t micro_batches) const;

    /// Returns the time of the device whose layers' parameters take longest.
    [[nodiscard]] seconds update(strategy const& s) const;

    /// Devices each of which sums this many bytes.
    struct ring {
        std::vector<std::size_t> devices;
        bytes size;
    };

    [[nodiscard]] seconds synchronisation(strategy const& s) const;
    /// Returns how many layers of a stage use a parameter.
    [[nodiscard]] static std::size_t uses(strategy const& s, std::size_t stage, shared_parameter const& parameter) {
        return static_cast<std::size_t>(algorithm::lower_bound(parameter.layers, s.cuts[stage + 1]) -
                                        algorithm::lower_bound(parameter.layers, s.cuts[stage]));
    }
    /// Returns the gradients of one device of a stage.
    [[nodiscard]] bytes gradients(strategy const& s, std::size_t stage) const;
    /// Returns the time of the slowest of all-reduces at the same time. A ring that spans machines enters and leaves
    /// each of them once.
    [[nodiscard]] seconds all_reduce(std::vector<ring> rings) const;
    /// Returns the time of an all-reduce over devices, ascending, as it follows from their links. So many rings leave
    /// each machine.
    [[nodiscard]] collective_model::piece line_of_ring(std::vector<std::size_t> const& devices,
                                                       std::vector<std::size_t> const& leaving) const;
    [[nodiscard]] bool is_across_machines(std::vector<std::size_t> const& devices) const {
        return machine_of_[devices.front()] != machine_of_[devices.back()];
    }

    strategy_problem const& problem_;
    std::vector<std::size_t> machine_of_;
    /// If all-reduces over all devices were measured: what their time would be as it follows from links.
    collective_model::piece line_of_all_{};
};

/// Returns the time and memory of a strategy, whether or not it fits; the time is infinite if it needs a link that does
/// not exist.
/// *Throws* `input_error` for a bad problem or a strategy that is none of it.
/// *Complexity.* O(devices log copies + copies * layers).
[[nodiscard]] strategy_cost evaluate(strategy_problem const& p, strategy const& s);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE strategy_model::strategy_model(strategy_problem const& p)
    : problem_(p), machine_of_(p.machine_of_device()) {
    if (!p.all_reduce || machine_of_.size() < 2) return;
    std::vector<std::size_t> all(machine_of_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    line_of_all_ = line_of_ring(all, std::vector<std::size_t>(p.machines.size(), 1));
}

HEDDLE_INLINE network_link strategy_model::link(std::size_t a, std::size_t b) const {
    auto const &there = problem_.machines[machine_of_[a]], &here = problem_.machines[machine_of_[b]];
    network_link result = machine_of_[a] == machine_of_[b]
                              ? here.inside
                              : network_link{std::min(there.outside.bandwidth, here.outside.bandwidth),
                                             std::max(there.outside.latency, here.outside.latency)};
    if (!problem_.bandwidths.empty()) result.bandwidth = problem_.bandwidths[a][b];
    return result;
}

HEDDLE_INLINE layer_assignment_problem strategy_model::assignment(device_placement const& at,
                                                                  std::int64_t micro_batch_size,
                                                                  std::int64_t micro_batches) const {
    layer_assignment_problem out;
    out.memory = layer_memories(at.degrees.tensor, micro_batch_size);
    out.micro_batches = micro_batches;
    std::map<std::vector<std::size_t>, std::size_t> kinds;
    for (std::size_t stage = 0; stage < at.degrees.pipeline; ++stage) {
        auto const types = types_of(at, stage);
        auto const [kind, is_new] = kinds.emplace(types, out.times.size());
        if (is_new) out.times.push_back(slowest_times(types, at.degrees.tensor, micro_batch_size));
        out.devices.push_back({kind->second, limit(types)});
        if (stage == 0) continue;
        auto const links = links_behind(at, stage - 1);
        out.links.push_back(std::accumulate(links.begin() + 1, links.end(), links.front(), slower));
    }
    return out;
}

HEDDLE_INLINE strategy_cost strategy_model::cost(strategy const& s) const {
    auto const [pipeline, data, tensor] = s.degrees();
    auto const layers = layer_memories(tensor, s.micro_batch_size);
    stage_memory const memory(layers, false);
    strategy_cost out;
    std::vector<std::vector<network_link>> links;
    for (std::size_t stage = 0; stage + 1 < pipeline; ++stage) links.push_back(links_behind(s.placement, stage));
    for (std::size_t copy = 0; copy < data; ++copy) {
        std::vector<seconds> stages, boundaries;
        for (std::size_t stage = 0; stage < pipeline; ++stage) {
            auto const type = type_of(s.placement.device(stage, copy, 0));
            seconds time;
            for (auto l = s.cuts[stage]; l < s.cuts[stage + 1]; ++l)
                time += problem_.time_on(type, tensor, l, s.micro_batch_size);
            stages.push_back(time);
            if (stage > 0) boundaries.push_back(transfer(links[stage - 1][copy], layers[s.cuts[stage]].input));
        }
        seconds const time = pipeline_time(stages, boundaries, s.micro_batches);
        if (copy > 0 && time <= out.pipeline) continue;
        out.pipeline = time;
        out.stages = std::move(stages);
        out.boundaries = std::move(boundaries);
    }
    seconds busy;
    for (auto const& t : out.stages) busy += t;
    if (out.pipeline.value > 0)
        out.bubble = 1 - static_cast<double>(s.micro_batches) * (busy / out.pipeline) / static_cast<double>(pipeline);
    for (std::size_t stage = 0; stage < pipeline; ++stage) {
        auto const held = one_f_one_b{}.in_flight(stage, {pipeline, s.micro_batches});
        out.memory.push_back(memory.of(s.cuts[stage], s.cuts[stage + 1], held));
        out.memory_limit.push_back(limit(types_of(s.placement, stage)));
    }
    out.synchronisation = synchronisation(s);
    out.update = update(s);
    out.total = out.pipeline + out.synchronisation + out.update;
    return out;
}

HEDDLE_INLINE void strategy_model::check(strategy const& s) const {
    auto const fail = [](std::string const& place, std::string const& problem) {
        throw input_error("strategy, " + place, problem);
    };
    auto const [pipeline, data, tensor] = s.degrees();
    auto const number = [](auto n) { return std::to_string(n); };
    if (pipeline * data * tensor != machine_of_.size())
        fail("degrees", number(pipeline) + " x " + number(data) + " x " + number(tensor) + ", expected a product of " +
                            number(machine_of_.size()) + " devices");
    auto devices = s.placement.devices;
    algorithm::sort(devices);
    if (devices != megatron_placement(s.degrees()).devices) fail("placement", "expected every device once");
    for (std::size_t unit = 0; unit < s.placement.devices.size(); unit += tensor) {
        auto const machine = machine_of_[s.placement.devices[unit]];
        for (std::size_t part = 1; part < tensor; ++part)
            if (machine_of_[s.placement.devices[unit + part]] != machine)
                fail("placement", "a tensor group is on two machines, expected one: profiles are of one");
        auto const& type = problem_.types[problem_.machines[machine].type];
        if (!type.profiles.contains(tensor))
            fail("degrees", "no profile of tensor degree " + number(tensor) + " on device type '" + type.name + "'");
    }
    if (pipeline > problem_.layer_count())
        fail("degrees",
             number(pipeline) + " stages for " + number(problem_.layer_count()) + " layers: every stage needs one");
    bool const rises = s.cuts.size() == pipeline + 1 && s.cuts.front() == 0 &&
                       s.cuts.back() == problem_.layer_count() &&
                       std::ranges::adjacent_find(s.cuts, std::greater_equal<>{}) == s.cuts.end();
    if (!rises)
        fail("cuts",
             "expected " + number(pipeline + 1) + " numbers that rise from 0 to " + number(problem_.layer_count()));
    auto const copies = static_cast<std::int64_t>(data);
    auto const samples = (problem_.global_batch + copies - 1) / copies;
    if (s.micro_batch_size < 1 || s.micro_batches != (samples + s.micro_batch_size - 1) / s.micro_batch_size)
        fail("micro-batches", number(s.micro_batches) + " of " + number(s.micro_batch_size) +
                                  ", expected just enough for " + number(samples) + " samples a copy");
}

HEDDLE_INLINE std::vector<layer_memory> strategy_model::layer_memories(std::size_t tensor,
                                                                       std::int64_t micro_batch_size) const {
    auto const samples = static_cast<double>(micro_batch_size);
    std::vector<layer_memory> out;
    for (auto const& l : problem_.layers)
        out.push_back({l.kept.on(tensor), samples * l.saved.on(tensor), samples * l.input.on(tensor),
                       tensor > 1 ? samples * l.buffer : bytes(0)});
    return out;
}

HEDDLE_INLINE std::vector<std::size_t> strategy_model::types_of(device_placement const& at, std::size_t stage) const {
    std::vector<std::size_t> types;
    for (std::size_t copy = 0; copy < at.degrees.data; ++copy) types.push_back(type_of(at.device(stage, copy, 0)));
    algorithm::sort(types);
    types.erase(std::ranges::unique(types).begin(), types.end());
    return types;
}

HEDDLE_INLINE layer_times strategy_model::slowest_times(std::vector<std::size_t> const& types, std::size_t tensor,
                                                        std::int64_t micro_batch_size) const {
    layer_times out{std::vector<seconds>(problem_.layer_count()), std::vector<seconds>(problem_.layer_count())};
    for (auto const type : types)
        for (std::size_t l = 0; l < problem_.layer_count(); ++l)
            out.forward[l] =
                std::max(out.forward[l], problem_.time_on(type, tensor, l, micro_batch_size)); // both passes
    return out;
}

HEDDLE_INLINE bytes strategy_model::limit(std::vector<std::size_t> const& types) const {
    bytes least(std::numeric_limits<double>::infinity());
    for (auto const type : types) least = std::min(least, problem_.types[type].memory);
    return least;
}

HEDDLE_INLINE std::vector<network_link> strategy_model::links_behind(device_placement const& at,
                                                                     std::size_t stage) const {
    std::vector<double> leaving(problem_.machines.size()), entering(leaving);
    auto const each = [&](auto use) {
        for (std::size_t copy = 0; copy < at.degrees.data; ++copy)
            for (std::size_t part = 0; part < at.degrees.tensor; ++part)
                use(copy, at.device(stage, copy, part), at.device(stage + 1, copy, part));
    };
    each([&](std::size_t, std::size_t from, std::size_t to) {
        if (!problem_.sends_block || machine_of_[from] == machine_of_[to]) return;
        ++leaving[machine_of_[from]];
        ++entering[machine_of_[to]];
    });
    std::vector<network_link> links(at.degrees.data,
                                    {bytes_per_second(std::numeric_limits<double>::infinity()), seconds(0)});
    each([&](std::size_t copy, std::size_t from, std::size_t to) {
        auto here = link(from, to);
        if (machine_of_[from] != machine_of_[to])
            here.bandwidth = here.bandwidth / std::max({1.0, leaving[machine_of_[from]], entering[machine_of_[to]]});
        links[copy] = slower(links[copy], here);
    });
    return links;
}

HEDDLE_INLINE seconds strategy_model::pipeline_time(std::vector<seconds> const& stages,
                                                    std::vector<seconds> const& boundaries,
                                                    std::int64_t micro_batches) const {
    seconds sum, pace;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        seconds const before = stage > 0 ? boundaries[stage - 1] : seconds(0),
                      behind = stage < boundaries.size() ? boundaries[stage] : seconds(0);
        sum += stages[stage] + (problem_.sends_block ? 2 : 1) * before;
        pace =
            std::max({pace, problem_.sends_block ? before + stages[stage] + behind : std::max(stages[stage], before)});
    }
    return static_cast<double>(micro_batches - 1) * pace + sum;
}

HEDDLE_INLINE seconds strategy_model::update(strategy const& s) const {
    seconds longest;
    for (std::size_t stage = 0; stage < s.degrees().pipeline; ++stage)
        for (auto const type : types_of(s.placement, stage)) {
            auto const& times = problem_.types[type].profiles.at(s.degrees().tensor).update;
            seconds sum;
            for (auto l = s.cuts[stage]; l < s.cuts[stage + 1] && !times.empty(); ++l) sum += times[l];
            longest = std::max(longest, sum);
        }
    return longest;
}

HEDDLE_INLINE seconds strategy_model::synchronisation(strategy const& s) const {
    auto const [pipeline, data, tensor] = s.degrees();
    std::vector<ring> copies;
    for (std::size_t stage = 0; stage < pipeline; ++stage)
        for (std::size_t part = 0; part < tensor; ++part)
            copies.push_back({s.placement.data_group(stage, part), gradients(s, stage)});
    seconds time = all_reduce(std::move(copies));
    for (auto const& parameter : problem_.shared) {
        std::vector<ring> stages;
        for (std::size_t copy = 0; copy < data; ++copy)
            for (std::size_t part = 0; part < tensor; ++part) {
                auto& users = stages.emplace_back(ring{{}, parameter.gradients.on(tensor)}).devices;
                for (std::size_t stage = 0; stage < pipeline; ++stage)
                    if (uses(s, stage, parameter) > 0) users.push_back(s.placement.device(stage, copy, part));
            }
        time += all_reduce(std::move(stages));
    }
    return time;
}

HEDDLE_INLINE bytes strategy_model::gradients(strategy const& s, std::size_t stage) const {
    auto const tensor = s.degrees().tensor;
    bytes size;
    for (auto l = s.cuts[stage]; l < s.cuts[stage + 1]; ++l) size += problem_.layers[l].gradients.on(tensor);
    for (auto const& parameter : problem_.shared)
        if (auto const n = uses(s, stage, parameter); n > 1)
            size -= static_cast<double>(n - 1) * parameter.gradients.on(tensor);
    return size;
}

HEDDLE_INLINE seconds strategy_model::all_reduce(std::vector<ring> rings) const {
    std::erase_if(rings, [](ring const& r) { return r.devices.size() < 2 || !(r.size.value > 0); });
    std::vector<std::size_t> leaving(problem_.machines.size());
    for (auto& [devices, size] : rings) {
        algorithm::sort(devices);
        if (!is_across_machines(devices)) continue;
        for (std::size_t i = 0; i < devices.size(); ++i)
            if (auto const m = machine_of_[devices[i]]; i == 0 || machine_of_[devices[i - 1]] != m) ++leaving[m];
    }
    seconds slowest;
    for (auto const& [devices, size] : rings) {
        auto const line = line_of_ring(devices, leaving);
        bool const is_measured = problem_.all_reduce && (problem_.machines.size() == 1 || is_across_machines(devices));
        auto const model = is_measured ? scaled(*problem_.all_reduce, line, line_of_all_) : collective_model{{line}};
        slowest = std::max(slowest, model.time(size));
    }
    return slowest;
}

HEDDLE_INLINE double strategy_model::measured_speedup() const {
    if (!problem_.all_reduce || machine_of_.size() < 2) return 1;
    auto const steepest = *algorithm::max_element(problem_.all_reduce->pieces, {}, &collective_model::piece::slope);
    return std::max(1.0, line_of_all_.slope.value / steepest.slope.value);
}

HEDDLE_INLINE collective_model::piece strategy_model::line_of_ring(std::vector<std::size_t> const& devices,
                                                                   std::vector<std::size_t> const& leaving) const {
    network_link worst{bytes_per_second(std::numeric_limits<double>::infinity()), seconds(0)};
    for (std::size_t i = 0; i < devices.size(); ++i) {
        auto const a = devices[i], b = devices[(i + 1) % devices.size()];
        auto here = link(a, b);
        if (machine_of_[a] != machine_of_[b])
            here.bandwidth =
                here.bandwidth / static_cast<double>(std::max(leaving[machine_of_[a]], leaving[machine_of_[b]]));
        worst = {std::min(worst.bandwidth, here.bandwidth), std::max(worst.latency, here.latency)};
    }
    double const ranks = static_cast<double>(devices.size());
    return {2 * (ranks - 1) * worst.latency, seconds_per_byte(2 * (ranks - 1) / ranks / worst.bandwidth.value)};
}

HEDDLE_INLINE strategy_cost evaluate(strategy_problem const& p, strategy const& s) {
    validate(p);
    strategy_model const model(p);
    model.check(s);
    return model.cost(s);
}

} // namespace heddle

#endif
