// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Measures operators of a model on each kind of device, and collectives between the ranks.
#pragma once

#include "profile.hpp"

#include <heddle/cluster/sample.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/heddle.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::cli {

/// Returns the middle one of some numbers. *Precondition:* there is one.
[[nodiscard]] inline double median(std::vector<double> all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
}

/// Returns the seconds that a call takes.
[[nodiscard]] inline double seconds_of(std::function<void()> const& call) {
    using clock = std::chrono::steady_clock;
    auto const begun = clock::now();
    call();
    return std::chrono::duration<double>(clock::now() - begun).count();
}

/// Returns the median seconds of calls that together take this long at least.
[[nodiscard]] inline double median_seconds(std::function<void()> const& call, int repeats) {
    constexpr double enough = 2e-3;
    call(); // the first one finds caches cold
    auto const times = static_cast<int>(std::clamp(enough / std::max(seconds_of(call), 1e-9), 1.0, 1e5));
    std::vector<double> all;
    for (int n = 0; n < repeats; ++n)
        all.push_back(seconds_of([&] {
                          for (int k = 0; k < times; ++k) call();
                      }) /
                      times);
    return median(std::move(all));
}

/// Runs a program operator by operator, and measures each distinct call, forward and backward.
template <class Backend>
class operator_profile {
public:
    using tensor = typename Backend::tensor;
    using scalar = typename tensor::scalar_type;

    operator_profile(Backend const& backend, std::string device, int repeats)
        : backend_(backend), device_(std::move(device)), repeats_(repeats) {}

    void measure(program const& p) {
        auto const indexed = index_program(p);
        std::map<tensor_id, tensor> values;
        std::map<tensor_id, std::size_t> uses;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (auto t : p.operands(o)) ++uses[t];
        for (auto const& [t, value] : random_sources<scalar>(p, 1)) values.emplace(t, tensor(value));
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            std::vector<tensor const*> x, y, g;
            for (auto t : p.operands(o)) x.push_back(&values.at(t));
            tensor_call<tensor> const call = whole_call(p, o);
            auto const results = backend_.forward(call, x);
            std::vector<tensor> ones;
            for (auto const& r : results) ones.emplace_back(r.shape(), scalar{1});
            for (std::size_t k = 0; k < results.size(); ++k) {
                y.push_back(&results[k]);
                g.push_back(indexed.tensors[p.results(o)[k]].has_cotangent ? &ones[k] : nullptr);
            }
            auto const step = make_step(indexed, whole_computation(indexed, o), {});
            add(step, step.forward, [&] { (void)backend_.forward(call, x); });
            if (std::ranges::any_of(g, [](auto const* c) { return c != nullptr; }))
                add(step, step.backward, [&] { (void)backend_.backward(call, x, y, g); });
            for (std::size_t k = 0; k < results.size(); ++k) values.insert_or_assign(p.results(o)[k], results[k]);
            for (auto t : p.operands(o))
                if (--uses[t] == 0) values.erase(t);
        }
    }
    [[nodiscard]] std::vector<sample> const& samples() const { return samples_; }

private:
    void add(step_work const& s, local_work const& work, std::function<void()> const& call) {
        constexpr auto type = sizeof(scalar) == 4 ? element_type::float32 : element_type::float64;
        bytes const size = (work.whole + work.split) * (double{sizeof(scalar)} / element_size(s.type));
        if (!work.launches || !known_.insert({s.category, work.operations.value, size.value}).second) return;
        samples_.push_back(
            {s.category, device_, 0, type, work.operations, size, seconds(median_seconds(call, repeats_))});
    }

    Backend const& backend_;
    std::string device_;
    int repeats_;
    std::set<std::tuple<operator_class, double, double>> known_;
    std::vector<sample> samples_;
};

/// Measures collectives of the first ranks of `world`, as many as are in the group. All ranks of the group call it.
template <class Scalar, class Group>
void measure_collectives(Group& group, int repeats, std::vector<sample>& samples) {
    auto const n = group.size();
    constexpr std::size_t least = std::size_t{1} << 10, most = std::size_t{1} << 22;
    for (std::size_t size = least; size <= most; size *= 8) { // bytes of the whole tensor
        std::size_t const each = std::max<std::size_t>(1, size / sizeof(Scalar) / n), elements = each * n;
        std::vector<Scalar> whole(elements, Scalar{1}), mine(each, Scalar{1}), other(elements);
        std::vector<std::size_t> const counts(n, each), pieces(n, std::max<std::size_t>(1, each / n));
        std::size_t const sent = pieces[0] * n;
        auto const measure = [&](collective kind, std::size_t payload, std::function<void()> const& call) {
            std::vector<double> all;
            for (int r = -1; r < repeats; ++r) { // the first one is not counted
                std::vector<double> one{1};
                group.all_reduce(std::span(one));
                one[0] = seconds_of(call);
                group.all_reduce(std::span(one), reduction::maximum);
                if (r >= 0) all.push_back(one[0]);
            }
            samples.push_back({kind,
                               "",
                               static_cast<int>(n),
                               {},
                               {},
                               bytes(static_cast<double>(payload * sizeof(Scalar))),
                               seconds(median(std::move(all)))});
        };
        measure(collective::all_reduce, elements, [&] { group.all_reduce(std::span(whole)); });
        measure(collective::all_gather, elements,
                [&] { group.all_gather_v(std::span<Scalar const>(mine), std::span(whole), counts, uneven::padded); });
        measure(collective::reduce_scatter, elements, [&] {
            group.reduce_scatter_v(std::span<Scalar const>(other), std::span(mine), counts, uneven::padded);
        });
        measure(collective::all_to_all, sent, [&] {
            group.all_to_all_v(std::span<Scalar const>(other).first(sent), pieces, std::span(whole).first(sent),
                               pieces);
        });
        measure(collective::broadcast, elements, [&] { group.broadcast(std::span(whole), 0); });
    }
}

/// Measures operators on this process alone.
template <class Backend>
[[nodiscard]] std::vector<sample> profile_alone_by(profile_arguments const& a, std::vector<program> const& sizes,
                                                   Backend const& backend) {
    operator_profile<Backend> operators(backend, a.devices.front(), a.repeats);
    for (auto const& p : sizes) operators.measure(p);
    return operators.samples();
}

/// Brings samples of operators from a rank to all.
template <class World>
void share(std::vector<sample>& samples, std::string const& device, element_type type, std::size_t from, World& world) {
    constexpr std::size_t fields = 4;
    std::vector<double> numbers{static_cast<double>(samples.size())};
    world.broadcast(std::span(numbers), from);
    auto const count = static_cast<std::size_t>(numbers[0]);
    numbers.clear();
    for (auto const& s : samples)
        for (double x :
             {static_cast<double>(std::get<operator_class>(s.what)), s.work.value, s.size.value, s.time.value})
            numbers.push_back(x);
    numbers.resize(count * fields);
    world.broadcast(std::span(numbers), from);
    samples.clear();
    for (std::size_t n = 0; n < numbers.size(); n += fields)
        samples.push_back({static_cast<operator_class>(numbers[n]), device, 0, type, flops(numbers[n + 1]),
                           bytes(numbers[n + 2]), seconds(numbers[n + 3])});
}

/// Measures as one rank of `world`: operators on the first rank of each type of device, one after the other while all
/// others wait; then collectives of 2, 4, ... and of all ranks. Every rank returns all samples.
template <class Backend, class World>
[[nodiscard]] std::vector<sample> profile_in(profile_arguments const& a, std::vector<program> const& sizes,
                                             World& world, Backend const& backend) {
    using scalar = typename Backend::tensor::scalar_type;
    constexpr auto type = sizeof(scalar) == 4 ? element_type::float32 : element_type::float64;
    std::vector<sample> all;
    std::set<std::string> measured;
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
        auto const& device = a.devices[std::min(rank, a.devices.size() - 1)];
        if (!measured.insert(device).second) continue;
        std::vector<sample> of_device;
        if (world.rank() == rank) {
            operator_profile<Backend> operators(backend, device, a.repeats);
            for (auto const& p : sizes) operators.measure(p);
            of_device = operators.samples();
        }
        share(of_device, device, type, rank, world);
        all.insert(all.end(), of_device.begin(), of_device.end());
    }
    for (std::size_t n = 2; n < 2 * world.size(); n *= 2) {
        std::vector<std::size_t> members(std::min(n, world.size()));
        std::iota(members.begin(), members.end(), std::size_t{0});
        if (world.rank() < members.size()) {
            auto group = world.group(members);
            measure_collectives<scalar>(group, a.repeats, all);
        }
        std::vector<double> here{1};
        world.all_reduce(std::span(here)); // who is not of a group waits
    }
    return all;
}

} // namespace heddle::cli
