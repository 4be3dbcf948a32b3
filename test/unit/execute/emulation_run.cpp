// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace heddle::test {

namespace {

/// A device group whose ranks all compute the same: for a sum each gives another fraction of it.
class summands_inside : public grouped_communicator<double, in_process_communicator, in_process_communicator> {
    using base = grouped_communicator<double, in_process_communicator, in_process_communicator>;

public:
    summands_inside(in_process_communicator& inner, in_process_communicator* across, std::size_t group, std::size_t groups)
        : base(inner, across, group, groups) {
        double const n = static_cast<double>(inner.size()), r = static_cast<double>(inner.rank() + 1);
        fraction_ = 2 * r / (n * (n + 1));
    }
    void all_reduce(std::span<double> data, reduction how = reduction::sum) {
        if (how == reduction::sum)
            for (auto& x : data) x *= fraction_;
        base::all_reduce(data, how);
    }
    void reduce_scatter_v(std::span<double const> whole, std::span<double> mine, shard_counts counts, uneven kind) {
        std::vector<double> part(whole.begin(), whole.end());
        for (auto& x : part) x *= fraction_;
        base::reduce_scatter_v(part, mine, counts, kind);
    }

private:
    double fraction_ = 1;
};

} // namespace

proof emulate(program const& p, plan const& what, std::uint64_t seed) { return prove(p, what, kernels(), {.seed = seed}); }

double error_on_groups(std::size_t inside, program const& p, plan const& what, std::uint64_t seed) {
    auto const indexed = index_program(p);
    auto const sources = random_sources<double>(p, seed);
    auto const expected = run_single_device(p, sources, kernels(), seed);
    source_values<double> gradients;
    double scale = std::max(1e-300, std::abs(expected.loss));
    for (auto const& [t, gradient] : expected.gradients) {
        gradients.emplace(t, gradient.second);
        for (double x : gradient.second.data) scale = std::max(scale, std::abs(x));
    }
    std::size_t const groups = what.devices.size();
    std::mutex lock;
    double worst = 0;
    auto const note = [&](double difference) {
        std::scoped_lock const guard(lock);
        if (!(difference <= worst)) worst = difference;
    };
    run_ranks(inside * groups, [&](in_process_communicator& world) {
        std::size_t const group = world.rank() / inside;
        std::vector<std::size_t> members, firsts;
        for (std::size_t m = 0; m < inside; ++m) members.push_back(group * inside + m);
        for (std::size_t g = 0; g < groups; ++g) firsts.push_back(g * inside);
        auto inner = world.group(members);
        std::optional<in_process_communicator> across;
        if (inner.rank() == 0) across = world.group(firsts);
        summands_inside communicator(inner, across ? &*across : nullptr, group, groups);
        interpreter<double, summands_inside, eigen_kernels<double>> run(p, indexed, what, communicator, kernels(), seed);
        auto const mine = run.run(run.place(sources));
        note(std::abs(run.whole_loss(mine) - expected.loss));
        for (auto const& [t, part] : run.place(gradients)) {
            auto const found = mine.gradients.find(t);
            if (found == mine.gradients.end() || found->second.second.dims != part.dims) { note(std::numeric_limits<double>::infinity()); continue; }
            for (std::size_t n = 0; n < part.data.size(); ++n) note(std::abs(found->second.second.data[n] - part.data[n]));
        }
    });
    return worst / scale;
}

std::string describe(plan const& what) {
    std::string text = "  ranks: " + std::to_string(what.devices.size()) + "\n";
    for (auto const& s : what.steps) text += "  " + describe(s.instruction) + " (loop " + std::to_string(s.instruction.loop) + ")\n";
    for (auto const& cut : what.cuts) {
        text += "  cut of " + std::to_string(cut.atoms) + ":";
        for (auto const& m : cut.members) text += " " + std::to_string(m.tensor) + "." + std::to_string(m.factor);
        text += " =";
        for (extent n : cut.counts) text += " " + std::to_string(n);
        text += "\n";
    }
    return text;
}

} // namespace heddle::test
