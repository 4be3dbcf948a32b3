// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Profiled layers, machines and a batch, for which a pipeline, data and tensor parallel strategy is sought.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// What each device of a tensor group holds: all of `whole`, and an equal part of `split`.
struct group_bytes {
    bytes whole, split;

    [[nodiscard]] bytes on(std::size_t degree) const { return whole + split / static_cast<double>(degree); }
};

struct profiled_layer {
    std::string name;
    /// These are summed over the copies of the model in every iteration.
    group_bytes gradients;
    /// What is held all the time: parameters, gradients and optimiser state.
    group_bytes kept;
    /// What is saved per sample for the backward pass, including the layer's input; and the activations per sample that
    /// enter the layer.
    group_bytes saved, input;
    /// What each device of a group of several needs per sample, for a moment, for the collectives of the layer.
    bytes buffer{};
};

/// A parameter that several layers use. Each stage with such layers keeps a copy, and the copies' gradients are summed.
struct shared_parameter {
    /// The layers, ascending, at least two.
    std::vector<std::size_t> layers;
    /// The gradients of a copy, which are part of the gradients of each of its layers.
    group_bytes gradients;
};

/// The times of a forward and of a backward pass.
struct pass_times {
    seconds forward, backward;
};

/// The forward and backward times of the layers for one sample, measured where this many devices share each layer.
struct degree_profile {
    std::vector<seconds> layers;
    /// A factor on the times; 1 trusts the profile.
    double scale = 1;
    /// The part of each layer's time that does not grow with the micro-batch. If empty, the type's `launch` determines
    /// it.
    std::vector<seconds> fixed{};
    /// The time of the optimiser's step for each layer's part on a device. If empty, it is zero.
    std::vector<seconds> update{};
    /// The host's times to queue the kernels of each layer. The host queues ahead of the device, so a pass over a layer
    /// takes as long as the longer of queueing and work, which `scale` does not touch. If empty, they are zero.
    std::vector<pass_times> launches{};
    /// The forward pass's part of the layers' work. A backward pass is two of the forward pass's products; one that
    /// computes the forward pass again leaves a quarter.
    double forward = 1.0 / 3;
    /// The layers' times by size of micro-batch, where more than one was measured. Others lie on the lines between, and
    /// beyond the largest in proportion to it. Below the least, `layers` are those of one sample.
    std::map<std::int64_t, std::vector<seconds>> sizes{};
};

/// A type of device.
struct profiled_type {
    std::string name;
    bytes memory;
    /// The part of a layer's time that does not grow with the micro-batch; it is at most the layer's time. Zero, as in
    /// AMP, makes time proportional to the micro-batch.
    seconds launch{0};
    /// The profiles by tensor degree.
    std::map<std::size_t, degree_profile> profiles;
};

/// `devices` devices of one type, the links between them, and the links from the machine to others.
struct profiled_machine {
    std::size_t type = 0, devices = 1;
    network_link inside, outside;
};

/// Devices are numbered machine by machine.
struct strategy_problem {
    std::string name;
    std::vector<profiled_type> types;
    std::vector<profiled_layer> layers;
    std::vector<shared_parameter> shared;
    std::vector<profiled_machine> machines;
    /// The bandwidths between each two devices, in place of those of the machines' links; zero if there is no link. If
    /// empty, the machines' links are used.
    std::vector<std::vector<bytes_per_second>> bandwidths;
    /// What an all-reduce over all devices was measured to take, if it was. Those of fewer devices, unless of one
    /// machine of several, are as much slower than links say.
    std::optional<collective_model> all_reduce;
    std::int64_t global_batch = 1;
    /// Whether stages wait while they send to each other, as Megatron's and DeepSpeed's do.
    bool sends_block = false;

    [[nodiscard]] std::size_t layer_count() const { return layers.size(); }
    [[nodiscard]] std::size_t device_count() const {
        return std::accumulate(machines.begin(), machines.end(), std::size_t{0},
                               [](std::size_t n, auto const& m) { return n + m.devices; });
    }
    /// Returns the machine of every device.
    [[nodiscard]] std::vector<std::size_t> machine_of_device() const;
    /// Returns the time of a layer's forward and backward pass over a micro-batch. *Precondition:* the degree is
    /// profiled on the type.
    [[nodiscard]] seconds time_on(std::size_t type, std::size_t degree, std::size_t layer,
                                  std::int64_t micro_batch) const;
    /// Returns the tensor degrees that divide every machine and are profiled on all types of machines, ascending.
    [[nodiscard]] std::vector<std::size_t> usable_degrees() const;
};

namespace detail {

/// Returns the first device that no path of links joins to device 0, or the number of devices.
std::size_t first_unreachable(std::vector<std::vector<bytes_per_second>> const& bandwidths);

void check_bandwidths(std::vector<std::vector<bytes_per_second>> const& bandwidths, std::size_t devices);

} // namespace detail

/// *Throws* `input_error` that names the first thing in the problem that is invalid.
void validate(strategy_problem const& p);

/// Returns the problem with profiles of the given tensor degrees added where a type lacks them. They lie between the
/// next degrees on either side, linear in the logarithms of degree and time. Nothing does this unasked: a guessed
/// profile is not a profile.
/// *Throws* `input_error` that names type and degree if there are not two such degrees.
[[nodiscard]] strategy_problem interpolate_degrees(strategy_problem p, std::vector<std::size_t> const& degrees);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

/// Returns what devices compute, forward and backward, without the profile's scale.
HEDDLE_INLINE seconds unscaled_work(profiled_type const& type, degree_profile const& profile, std::size_t layer,
                                    std::int64_t micro_batch) {
    seconds const sample = profile.layers[layer];
    auto const samples = static_cast<double>(micro_batch);
    if (profile.sizes.empty()) {
        seconds const fixed = profile.fixed.empty() ? std::min(sample, type.launch) : profile.fixed[layer];
        return fixed + samples * (sample - fixed);
    }
    auto const above = profile.sizes.lower_bound(micro_batch);
    if (above == profile.sizes.end()) {
        auto const& [largest, times] = *profile.sizes.rbegin();
        return samples / static_cast<double>(largest) * times[layer];
    }
    auto const [size, time] = std::pair(static_cast<double>(above->first), above->second[layer]);
    bool const is_least = above == profile.sizes.begin();
    auto const [less, before] =
        is_least ? std::pair(1.0, sample)
                 : std::pair(static_cast<double>(std::prev(above)->first), std::prev(above)->second[layer]);
    return size > less ? before + (samples - less) / (size - less) * (time - before) : time;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<std::size_t> strategy_problem::machine_of_device() const {
    std::vector<std::size_t> of;
    for (std::size_t m = 0; m < machines.size(); ++m) of.insert(of.end(), machines[m].devices, m);
    return of;
}

HEDDLE_INLINE seconds strategy_problem::time_on(std::size_t type, std::size_t degree, std::size_t layer,
                                                std::int64_t micro_batch) const {
    auto const& profile = types[type].profiles.at(degree);
    seconds const work = profile.scale * detail::unscaled_work(types[type], profile, layer, micro_batch);
    if (profile.launches.empty()) return work;
    auto const& launch = profile.launches[layer];
    return std::max(launch.forward, profile.forward * work) + std::max(launch.backward, (1 - profile.forward) * work);
}

HEDDLE_INLINE std::vector<std::size_t> strategy_problem::usable_degrees() const {
    std::vector<std::size_t> usable;
    for (auto const& [degree, profile] : types[machines.front().type].profiles)
        if (algorithm::all_of(machines, [&](auto const& m) {
                return m.devices % degree == 0 && types[m.type].profiles.contains(degree);
            }))
            usable.push_back(degree);
    return usable;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE std::size_t first_unreachable(std::vector<std::vector<bytes_per_second>> const& bandwidths) {
    std::size_t const n = bandwidths.size();
    std::vector<bool> reached(n);
    std::vector<std::size_t> open{0};
    reached[0] = true;
    while (!open.empty()) {
        auto const from = open.back();
        open.pop_back();
        for (std::size_t to = 0; to < n; ++to)
            if (!reached[to] && bandwidths[from][to].value > 0) {
                reached[to] = true;
                open.push_back(to);
            }
    }
    return static_cast<std::size_t>(algorithm::find(reached, false) - reached.begin());
}

HEDDLE_INLINE void check_bandwidths(std::vector<std::vector<bytes_per_second>> const& bandwidths, std::size_t devices) {
    auto const fail = [](std::string const& place, std::string const& problem) {
        throw input_error("bandwidths" + place, problem);
    };
    auto const at = [](std::size_t a, std::size_t b) {
        return ", devices " + std::to_string(a) + " and " + std::to_string(b);
    };
    if (bandwidths.size() != devices)
        fail("", std::to_string(bandwidths.size()) + " rows, expected one per device, " + std::to_string(devices));
    for (std::size_t a = 0; a < devices; ++a)
        if (bandwidths[a].size() != devices)
            fail(", row " + std::to_string(a), std::to_string(bandwidths[a].size()) +
                                                   " numbers, expected one per device, " + std::to_string(devices));
    for (std::size_t a = 0; a < devices; ++a)
        for (std::size_t b = 0; b < a; ++b) {
            double const there = bandwidths[b][a].value, back = bandwidths[a][b].value;
            if (!(there >= 0 && std::isfinite(there)))
                fail(at(b, a), std::to_string(there) + ", expected bytes per second, not negative");
            if (there != back)
                fail(at(b, a),
                     std::to_string(there) + " one way and " + std::to_string(back) + " the other, expected the same");
        }
    if (auto const lost = first_unreachable(bandwidths); lost < devices)
        fail("", "no links lead from device 0 to device " + std::to_string(lost));
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void validate(strategy_problem const& p) {
    auto const fail = [](std::string const& place, std::string const& problem) { throw input_error(place, problem); };
    auto const check_amount = [&](std::string const& place, double x) {
        if (!(x >= 0 && x <= 1e100)) fail(place, std::to_string(x) + ", expected a number from 0 to 1e100");
    };
    if (p.layers.empty()) fail("layers", "none, expected one at least");
    if (p.machines.empty()) fail("machines", "none, expected one at least");
    if (p.global_batch < 1) fail("global batch", std::to_string(p.global_batch) + " samples, expected one at least");
    for (std::size_t l = 0; l < p.layers.size(); ++l) {
        auto const& layer = p.layers[l];
        std::string const place = "layer " + std::to_string(l) + (layer.name.empty() ? "" : " '" + layer.name + "'");
        for (auto const& [what, amount] : {std::pair{", gradients", layer.gradients},
                                           {", kept", layer.kept},
                                           {", saved", layer.saved},
                                           {", input", layer.input}}) {
            check_amount(place + what, amount.whole.value);
            check_amount(place + what, amount.split.value);
        }
        check_amount(place + ", buffer", layer.buffer.value);
    }
    for (std::size_t i = 0; i < p.shared.size(); ++i) {
        auto const& parameter = p.shared[i];
        std::string const place = "shared parameter " + std::to_string(i);
        check_amount(place + ", gradients", parameter.gradients.whole.value);
        check_amount(place + ", gradients", parameter.gradients.split.value);
        if (parameter.layers.size() < 2 || parameter.layers.back() >= p.layers.size() ||
            std::ranges::adjacent_find(parameter.layers, std::greater_equal<>{}) != parameter.layers.end())
            fail(place + ", layers", "expected two at least, rising, below " + std::to_string(p.layers.size()));
    }
    for (std::size_t l = 0; l < p.layers.size(); ++l) {
        bytes shared;
        for (auto const& parameter : p.shared)
            if (algorithm::binary_search(parameter.layers, l)) shared += parameter.gradients.on(1);
        if (shared > (1 + 1e-9) * p.layers[l].gradients.on(1))
            fail("layer " + std::to_string(l) + ", gradients",
                 "less than those of its shared parameters, expected them to be part");
    }
    for (auto const& type : p.types) {
        std::string const place = "device type '" + type.name + "'";
        if (!(type.memory.value > 0))
            fail(place + ", memory", std::to_string(type.memory.value) + ", expected a positive number of bytes");
        check_amount(place + ", launch", type.launch.value);
        for (auto const& [degree, profile] : type.profiles) {
            std::string const row = place + ", tensor degree " + std::to_string(degree);
            if (degree == 0) fail(row, "expected one device at least");
            if (profile.layers.size() != p.layers.size())
                fail(row,
                     std::to_string(profile.layers.size()) + " layers, expected " + std::to_string(p.layers.size()));
            if (!(profile.scale > 0 && profile.scale <= 1e100))
                fail(row + ", scale", std::to_string(profile.scale) + ", expected a positive number");
            if (!profile.fixed.empty() && profile.fixed.size() != p.layers.size())
                fail(row + ", fixed", std::to_string(profile.fixed.size()) + " layers, expected " +
                                          std::to_string(p.layers.size()) + ", or none");
            if (!profile.update.empty() && profile.update.size() != p.layers.size())
                fail(row + ", update", std::to_string(profile.update.size()) + " layers, expected " +
                                           std::to_string(p.layers.size()) + ", or none");
            for (auto const time : profile.update) check_amount(row + ", update", time.value);
            if (!profile.launches.empty() && profile.launches.size() != p.layers.size())
                fail(row + ", launches", std::to_string(profile.launches.size()) + " layers, expected " +
                                             std::to_string(p.layers.size()) + ", or none");
            for (auto const& [forward, backward] : profile.launches) {
                check_amount(row + ", launches, forward", forward.value);
                check_amount(row + ", launches, backward", backward.value);
            }
            if (!(profile.forward >= 0 && profile.forward <= 1))
                fail(row + ", forward", std::to_string(profile.forward) + ", expected a part, from 0 to 1");
            for (auto const& [size, times] : profile.sizes) {
                std::string const at = row + ", micro-batches of " + std::to_string(size);
                if (size < 1) fail(at, "expected one sample at least");
                if (times.size() != p.layers.size())
                    fail(at, std::to_string(times.size()) + " layers, expected " + std::to_string(p.layers.size()));
                for (auto const time : times) check_amount(at, time.value);
            }
            for (std::size_t l = 0; l < profile.layers.size(); ++l) {
                std::string const at = row + ", layer " + std::to_string(l);
                check_amount(at, profile.layers[l].value);
                if (!profile.fixed.empty() && !(profile.fixed[l].value >= 0 && profile.fixed[l] <= profile.layers[l]))
                    fail(at + ", fixed",
                         std::to_string(profile.fixed[l].value) + ", expected a number from 0 to the layer's time");
            }
        }
    }
    std::size_t devices = 0;
    for (std::size_t m = 0; m < p.machines.size(); ++m) {
        auto const& machine = p.machines[m];
        std::string const place = "machine " + std::to_string(m);
        if (machine.type >= p.types.size())
            fail(place, "type " + std::to_string(machine.type) + ", expected one of " + std::to_string(p.types.size()));
        if (machine.devices < 1) fail(place, "0 devices, expected one at least");
        if ((devices += machine.devices) > 65536) fail("machines", "more than 65536 devices");
        for (auto const& [what, link] : {std::pair{", inside", machine.inside}, {", outside", machine.outside}}) {
            check_amount(place + what + ", latency", link.latency.value);
            bool const used =
                p.bandwidths.empty() && (what == std::string(", inside") ? machine.devices > 1 : p.machines.size() > 1);
            if (used && !(link.bandwidth.value >= 1e-100))
                fail(place + what + ", bandwidth",
                     std::to_string(link.bandwidth.value) + ", expected positive bytes per second");
        }
    }
    if (!p.bandwidths.empty()) detail::check_bandwidths(p.bandwidths, devices);
    if (!p.all_reduce) return;
    if (p.all_reduce->pieces.empty()) fail("all-reduce", "is measured without a piece, expected one at least");
    for (auto const& [latency, slope] : p.all_reduce->pieces) {
        check_amount("all-reduce, latency", latency.value);
        check_amount("all-reduce, seconds per byte", slope.value);
    }
}

HEDDLE_INLINE strategy_problem interpolate_degrees(strategy_problem p, std::vector<std::size_t> const& degrees) {
    validate(p);
    for (auto& type : p.types) {
        auto const measured = type.profiles;
        for (auto const degree : degrees) {
            auto const above = measured.lower_bound(degree);
            if (above != measured.end() && above->first == degree) continue;
            if (above == measured.begin() || above == measured.end())
                throw input_error("device type '" + type.name + "', tensor degree " + std::to_string(degree),
                                  "no profile, and none on either side to interpolate");
            auto const below = std::prev(above);
            double const at = std::log(static_cast<double>(degree) / static_cast<double>(below->first)) /
                              std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
            auto const between = [at](double a, double b) {
                return a > 0 && b > 0 ? std::exp((1 - at) * std::log(a) + at * std::log(b)) : (1 - at) * a + at * b;
            };
            auto& made = type.profiles[degree];
            made.scale = between(below->second.scale, above->second.scale);
            for (std::size_t l = 0; l < p.layer_count(); ++l)
                made.layers.emplace_back(between(below->second.layers[l].value, above->second.layers[l].value));
            auto const fixed_of = [&](degree_profile const& q, std::size_t l) {
                return q.fixed.empty() ? std::min(q.layers[l], type.launch) : q.fixed[l];
            };
            auto const all_between = [&](std::vector<seconds> const& a, std::vector<seconds> const& b) {
                std::vector<seconds> out;
                for (std::size_t l = 0; l < std::min(a.size(), b.size()); ++l)
                    out.emplace_back(between(a[l].value, b[l].value));
                return out;
            };
            made.update = all_between(below->second.update, above->second.update);
            made.forward = between(below->second.forward, above->second.forward);
            for (std::size_t l = 0; l < std::min(below->second.launches.size(), above->second.launches.size()); ++l) {
                auto const &a = below->second.launches[l], &b = above->second.launches[l];
                made.launches.push_back({seconds(between(a.forward.value, b.forward.value)),
                                         seconds(between(a.backward.value, b.backward.value))});
            }
            for (auto const& [size, times] : below->second.sizes)
                if (auto const same = above->second.sizes.find(size); same != above->second.sizes.end())
                    made.sizes[size] = all_between(times, same->second);
            for (std::size_t l = 0;
                 l < p.layer_count() && !(below->second.fixed.empty() && above->second.fixed.empty()); ++l)
                made.fixed.push_back(std::min(made.layers[l], seconds(between(fixed_of(below->second, l).value,
                                                                              fixed_of(above->second, l).value))));
        }
    }
    return p;
}

} // namespace heddle

#endif
