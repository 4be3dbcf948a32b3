// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Measures operators of a model on each kind of device, and collectives between the ranks.
#pragma once

#include "measure.hpp"
#include "profile.hpp"
#include "watched_kernels.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/cluster/sample.hpp>
#include <heddle/cost/kernel_sample.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/theory/theory.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::cli {

/// Returns the mean seconds of a call, of which as many are measured as take this long.
[[nodiscard]] inline double mean_seconds(std::function<void()> const& call, double enough) {
    call(); // the first one prepares what is kept between calls
    double together = 0;
    int times = 0;
    for (; times == 0 || together < enough; ++times) together += seconds_of(call);
    return together / times;
}

/// Measures each distinct call of the operators of programs, forward and backward, as it is in an iteration of one
/// process, which all of a program has to fit. Halves of operators, which no iteration has, are measured alone: what
/// whole ones take longer among others, halves do too.
template <class Backend>
class operator_profile {
public:
    using tensor = typename Backend::tensor;
    using scalar = typename tensor::scalar_type;

    /// What is measured together takes this long at least.
    operator_profile(Backend const& backend, std::string device, double least_seconds)
        : backend_(backend), device_(std::move(device)), least_seconds_(least_seconds) {}

    void measure(program const& p) {
        auto const indexed = index_calls(p);
        in_iteration_ = seconds_in_iteration(p, indexed);
        std::map<tensor_id, tensor> values;
        std::map<tensor_id, std::size_t> uses;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (auto t : p.operands(o)) ++uses[t];
        for (auto const& [t, value] : random_sources<scalar>(p, 1)) values.emplace(t, tensor(value));
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            std::vector<tensor const*> x;
            for (auto t : p.operands(o)) x.push_back(&values.at(t));
            among_others_ = {};
            auto const results = measure_call(indexed, whole_computation(indexed, o), whole_call(p, o), x);
            measure_halves(p, indexed, o, x);
            for (std::size_t k = 0; k < results.size(); ++k) values.insert_or_assign(p.results(o)[k], results[k]);
            for (auto t : p.operands(o))
                if (--uses[t] == 0) values.erase(t);
        }
    }
    [[nodiscard]] std::vector<sample> const& samples() const { return samples_; }

private:
    /// What calls are alike by: their class, kind and pass, operations and bytes.
    using likeness = std::tuple<operator_class, std::string, bool, double, double>;
    static likeness likeness_of(step_work const& s, bool is_backward, sample const& one) {
        return {s.category, s.kind, is_backward, one.work.value, one.size.value};
    }
    [[nodiscard]] sample sample_of_call(step_work const& s, bool is_backward, double share) const {
        constexpr auto type = sizeof(scalar) == 4 ? element_type::float32 : element_type::float64;
        return sample_of(s, is_backward, device_, type, share);
    }
    /// Returns the mean seconds of whole calls that are alike.
    [[nodiscard]] std::map<likeness, double> seconds_in_iteration(program const& p,
                                                                  indexed_program const& indexed) const {
        std::set<operator_call> calls;
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (bool is_backward : {false, true})
                if (make_step(indexed, whole_computation(indexed, o), {}).work(is_backward).launches)
                    calls.insert({o, is_backward});
        std::map<likeness, std::vector<double>> alike;
        for (auto const& [call, seconds] : seconds_of_calls(p, calls, backend_, least_seconds_)) {
            auto const step = make_step(indexed, whole_computation(indexed, call.op), {});
            alike[likeness_of(step, call.is_backward, sample_of_call(step, call.is_backward, 1))].push_back(seconds);
        }
        std::map<likeness, double> result;
        for (auto const& [of, each] : alike)
            result.emplace(of, std::reduce(each.begin(), each.end()) / static_cast<double>(each.size()));
        return result;
    }
    /// Measures an operator on the first half of the places of each loop along which it can be cut without a word to
    /// other devices, as devices have it that share a layer.
    void measure_halves(program const& p, indexed_program const& indexed, operator_id o,
                        std::vector<tensor const*> const& whole) {
        auto const& loops = indexed.operators[o].loops;
        std::set<std::int16_t> measured;
        for (auto const& i : computations(indexed, o)) {
            if (i.loop < 0 || std::ranges::find(i.operands, tensor_form::mirrored()) != i.operands.end()) continue;
            auto const& loop = loops[static_cast<std::size_t>(i.loop)];
            bool const is_local = !loop.exchanges() && loop.forward_statistics == 0 && loop.backward_statistics == 0;
            if (!is_local || loop.extent < 2 || !measured.insert(i.loop).second) continue;
            extent const half = loop.extent / 2;
            std::vector<tensor> parts;
            for (std::size_t k = 0; k < whole.size(); ++k) {
                auto const f = loop.operands[k];
                auto const& factors = indexed.tensors[p.operands(o)[k]].factors;
                parts.push_back(f == no_factor ? *whole[k]
                                               : take(*whole[k], factors[static_cast<std::size_t>(f)], 0, half));
            }
            std::vector<tensor const*> x;
            for (auto const& part : parts) x.push_back(&part);
            double const share = static_cast<double>(half) / static_cast<double>(loop.extent);
            (void)measure_call(indexed, i, split_call(p, indexed, o, loop, 0, half), x, share);
        }
    }
    /// Measures both directions of a computation that has this share of its loop. Returns its results.
    std::vector<tensor> measure_call(indexed_program const& indexed, instruction::compute const& how,
                                     tensor_call<tensor> const& call, std::vector<tensor const*> const& x,
                                     double share = 1) {
        auto results = backend_.forward(call, x);
        std::vector<tensor> ones;
        for (auto const& r : results) ones.emplace_back(r.shape(), scalar{1});
        std::vector<tensor const*> y, g;
        for (std::size_t k = 0; k < results.size(); ++k) {
            y.push_back(&results[k]);
            g.push_back(indexed.tensors[indexed.operators[how.op].results[k]].has_cotangent ? &ones[k] : nullptr);
        }
        auto const step = make_step(indexed, how, {});
        add(step, false, [&] { (void)backend_.forward(call, x); }, share);
        if (std::ranges::any_of(g, [](auto const* c) { return c != nullptr; }))
            add(step, true, [&] { (void)backend_.backward(call, x, y, g); }, share);
        return results;
    }
    void add(step_work const& s, bool is_backward, std::function<void()> const& call, double share) {
        if (!s.work(is_backward).launches) return;
        auto one = sample_of_call(s, is_backward, share);
        auto const of = likeness_of(s, is_backward, one);
        bool const is_whole = share == 1;
        auto const [known, is_new] = alone_.try_emplace({of, is_whole}, 0);
        if (is_new) known->second = mean_seconds(call, least_seconds_);
        if (auto const found = in_iteration_.find(of); is_whole && found != in_iteration_.end())
            among_others_[is_backward] = found->second - known->second;
        if (!is_new) return;
        one.time = seconds(std::max(known->second + among_others_[is_backward], known->second / 2));
        samples_.push_back(std::move(one));
    }

    Backend const& backend_;
    std::string device_;
    double least_seconds_;
    /// The seconds of calls that were measured alone, with whether they are whole.
    std::map<std::pair<likeness, bool>, double> alone_;
    /// The seconds of whole calls of this program in an iteration.
    std::map<likeness, double> in_iteration_;
    /// By how many seconds each pass of this operator takes longer in an iteration than alone.
    std::array<double, 2> among_others_{};
    std::vector<sample> samples_;
};

/// Measures collectives of a group, whose ranks may each be of another machine. All ranks of the group call it.
template <class Scalar, class Group>
void measure_collectives(Group& group, bool is_across, int repeats, std::vector<sample>& samples) {
    auto const n = group.size();
    constexpr std::size_t least = std::size_t{1} << 10, most = std::size_t{1} << 22;
    for (std::size_t size = least; size <= most; size *= 8) { // bytes of the whole tensor
        std::size_t const each = std::max<std::size_t>(1, size / sizeof(Scalar) / n), elements = each * n;
        std::vector<Scalar> whole(elements, Scalar{1}), mine(each, Scalar{1}), other(elements);
        std::vector<std::size_t> const counts(n, each), pieces(n, std::max<std::size_t>(1, each / n));
        std::size_t const sent = pieces[0] * n;
        auto const measure = [&](collective kind, std::size_t payload, std::function<void()> const& call,
                                 double parts = 1) {
            auto& s = samples.emplace_back();
            s.what = kind;
            s.ranks = static_cast<int>(n);
            s.is_across = is_across;
            s.size = bytes(static_cast<double>(payload * sizeof(Scalar)));
            s.time = seconds(slowest_seconds(group, repeats, call) / parts);
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
        // What plans have of broadcasts are those that a gather of unequal shards is made of, of each rank's shard.
        measure(
            collective::broadcast, each,
            [&] { group.all_gather_v(std::span<Scalar const>(mine), std::span(whole), counts, uneven::grouped); },
            static_cast<double>(n));
    }
}

/// Measures operators on this process. Each round measures all of them, so that what is slow for a while is slow in one.
template <class Backend>
[[nodiscard]] std::vector<sample> measure_operators(profile_arguments const& a, std::string const& device,
                                                    std::vector<program> const& sizes, Backend const& backend) {
    std::vector<sample> all;
    for (int round = 0; round < a.repeats; ++round) {
        operator_profile<Backend> operators(backend, device, a.least_seconds);
        for (auto const& p : sizes) operators.measure(p);
        std::ranges::copy(operators.samples(), std::back_inserter(all));
    }
    return all;
}

/// Measures operators on this process alone.
template <class Backend>
[[nodiscard]] std::vector<sample> profile_alone_by(profile_arguments const& a, std::vector<program> const& sizes,
                                                   Backend const& backend) {
    return measure_operators(a, a.devices.front(), sizes, backend);
}

/// Brings samples of operators from a rank to all, as text.
template <class World>
void share(std::vector<sample>& samples, std::size_t from, World& world) {
    auto const text = json::to_text(samples);
    std::vector<double> count{static_cast<double>(text.size())}, letters(text.begin(), text.end());
    world.broadcast(std::span(count), from);
    letters.resize(static_cast<std::size_t>(count[0]));
    world.broadcast(std::span(letters), from);
    if (world.rank() == from) return;
    std::string read;
    for (double letter : letters) read.push_back(static_cast<char>(letter));
    samples = json::parse_samples(read);
}

/// Measures as one rank of `world`: operators on the first rank of each type of device, one after the other while all
/// others wait; then collectives of 2, 4, ... and of all ranks, and of one rank of each machine where machines have
/// several. The first rank returns all samples.
template <class Backend, class World>
[[nodiscard]] std::vector<sample> profile_in(profile_arguments const& a, std::vector<program> const& sizes,
                                             World& world, Backend const& backend) {
    using scalar = typename Backend::tensor::scalar_type;
    std::vector<sample> all;
    std::set<std::string> measured;
    auto const tell = [&](std::string const& what) {
        if (world.rank() > 0) return;
        std::printf("measuring %s\n", printable(what).c_str());
        std::fflush(stdout);
    };
    for (std::size_t rank = 0; rank < world.size() && !sizes.empty(); ++rank) {
        auto const& device = a.devices[std::min(rank, a.devices.size() - 1)];
        if (!measured.insert(device).second) continue;
        tell("operators of " + device);
        std::vector<sample> of_device;
        if (world.rank() == rank) of_device = measure_operators(a, device, sizes, backend);
        share(of_device, rank, world);
        all.insert(all.end(), of_device.begin(), of_device.end());
    }
    auto const measure = [&](std::vector<std::size_t> const& members, bool is_across) {
        if (std::ranges::find(members, world.rank()) != members.end()) {
            auto group = world.group(members);
            measure_collectives<scalar>(group, is_across, a.repeats, all);
        }
        std::vector<double> here{1};
        world.all_reduce(std::span(here)); // who is not of a group waits
    };
    for (std::size_t n = 2; n < 2 * world.size(); n *= 2) {
        std::vector<std::size_t> members(std::min(n, world.size()));
        tell("collectives of " + std::to_string(members.size()) + " processes");
        std::iota(members.begin(), members.end(), std::size_t{0});
        measure(members, false);
    }
    auto const line = world.first_ranks_of_machines();
    if (line.size() > 1 && line.size() < world.size()) {
        tell("collectives of one process of each of " + std::to_string(line.size()) + " machines");
        measure(line, true);
    }
    return all;
}

} // namespace heddle::cli
