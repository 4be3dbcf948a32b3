// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"

#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/plan/evaluate.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

extern template class heddle::eigen_kernels<double>;

namespace heddle::test {

namespace {

using tensor = dense_tensor<double>;

eigen_kernels<double> const& kernels() {
    static eigen_kernels<double> const all;
    return all;
}

/// max |a - b| over max(max |b|, 1); not a number if either is none.
double difference(tensor const& a, tensor const& b) {
    if (a.dims != b.dims) return std::numeric_limits<double>::infinity();
    double most = 0, scale = 1;
    for (std::size_t n = 0; n < a.data.size(); ++n) {
        double const d = std::abs(a.data[n] - b.data[n]);
        most = most >= d ? most : d;
        scale = std::max(scale, std::abs(b.data[n]));
    }
    return most / scale;
}

/// What a rank of a plan has of a whole tensor in a form.
tensor part_of(tensor const& whole, tensor_id t, form f, indexed_program const& indexed, plan const& what, std::size_t rank) {
    if (!f.is_shard()) return whole;
    auto const cut = std::ranges::find_if(what.cuts, [&](atom_class const& c) { return std::ranges::find(c.members, cut_factor{t, f.factor()}) != c.members.end(); });
    auto const& factor = indexed.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    extent const unit = factor.extent / cut->atoms;
    extent begin = 0;
    for (std::size_t r = 0; r < rank; ++r) begin += cut->counts[r] * unit;
    return take(whole, factor, begin, cut->counts[rank] * unit);
}

void fill(tensor& value, tensor_id t, program const& p, random_source& random) {
    extent bound = 4;
    bool positive = false;
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const operands = p.operands(o);
        auto const& attributes = p.attributes(o);
        auto const& kind = p.kind(o);
        for (std::size_t k = 0; k < operands.size(); ++k) {
            if (operands[k] != t) continue;
            auto const is_named = [&](char const* name) {
                auto const found = attributes.find(name);
                return found != attributes.end() && !found->second.empty() && found->second[0] == static_cast<double>(k);
            };
            bool const loss = kind == "nll_loss" || kind == "cross_entropy";
            positive |= is_named("running_var") || (loss && is_named("weight"));
            shape const& scores = p.tensor(operands[0]).shape;
            if (kind == "embedding" && k == 0) bound = p.tensor(operands[1]).shape[0];
            if (loss && k == 1) bound = scores[scores.size() > 1 ? 1 : 0];
        }
    }
    auto const& info = p.tensor(t);
    extent const last = info.shape.empty() ? 1 : info.shape.back();
    for (extent n = 0; n < value.elements(); ++n) {
        // The first key of a mask stays free, the first label counts: else nothing is left to normalise by.
        if (info.type == element_type::boolean) value[n] = n % last != 0 && random.chance(0.3);
        else if (!is_floating(info.type)) value[n] = n == 0 ? 0 : static_cast<double>(random.below(static_cast<std::size_t>(bound)));
        else value[n] = positive ? random.between(0.5, 2.0) : random.between(-1.0, 1.0);
    }
}

/// Runs `work(communicator, result, check)` on every rank; `check(mine, part)` compares what a rank has with its part of what
/// the single device has.
template <class Work>
emulation compare(std::size_t ranks, program const& p, source_values<double> const& sources, std::uint64_t seed, Work work) {
    emulation result;
    auto const expected = run_single_device(p, sources, kernels(), seed);
    std::mutex lock;
    auto const check = [&](iteration_result<double> const& mine, auto const& part) {
        std::lock_guard const guard(lock);
        auto const worse = [&](double d) {
            if (!(d <= result.difference)) result.difference = d;
        };
        worse(std::abs(mine.loss - expected.loss) / std::max(1.0, std::abs(expected.loss)));
        if (mine.gradients.size() != expected.gradients.size()) worse(std::numeric_limits<double>::infinity());
        for (auto const& [t, held] : mine.gradients) {
            auto const& [f, gradient] = held;
            worse(difference(gradient, part(expected.gradients.at(t).second, t, f)));
        }
    };
    try {
        run_ranks(ranks, [&](in_process_communicator& world) {
            emulation mine;
            work(world, mine, check);
            std::lock_guard const guard(lock);
            result.carried = mine.carried;
        });
    } catch (std::exception const& e) {
        result.problem = e.what();
    }
    return result;
}

/// A device group whose ranks all compute the same: for a sum each gives another fraction of it.
class summands_inside : public grouped_communicator<double, in_process_communicator, in_process_communicator> {
    using base = grouped_communicator<double, in_process_communicator, in_process_communicator>;

public:
    summands_inside(in_process_communicator& inner, in_process_communicator* across, std::size_t group, std::size_t groups)
        : base(inner, across, group, groups) {
        double const n = static_cast<double>(inner.size()), r = static_cast<double>(inner.rank() + 1);
        fraction_ = 2 * r / (n * (n + 1));
    }
    void all_reduce(std::span<double> data) {
        for (auto& x : data) x *= fraction_;
        base::all_reduce(data);
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

source_values<double> random_sources(program const& p, random_source& random) {
    source_values<double> sources;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        if (p.tensor(t).role == tensor_role::value) continue;
        tensor value(p.tensor(t).shape);
        fill(value, t, p, random);
        sources.emplace(t, std::move(value));
    }
    return sources;
}

emulation emulate(program const& p, indexed_program const& indexed, plan const& what, source_values<double> const& sources, std::uint64_t seed) {
    return compare(what.devices.size(), p, sources, seed, [&](in_process_communicator& world, emulation& result, auto const& check) {
        interpreter<double, in_process_communicator, eigen_kernels<double>> run(p, indexed, what, world, kernels(), seed);
        auto const mine = run.run(sources);
        check(mine, [&](tensor const& whole, tensor_id t, form f) { return part_of(whole, t, f, indexed, what, world.rank()); });
        for (std::size_t k = 0; k < collective_count; ++k) result.carried[k] = world.traffic().of(static_cast<collective>(k)).payload.value / sizeof(double);
    });
}

emulation emulate_on_groups(std::size_t inside, program const& p, indexed_program const& indexed, plan const& what, source_values<double> const& sources,
                            std::uint64_t seed) {
    std::size_t const groups = what.devices.size();
    return compare(inside * groups, p, sources, seed, [&](in_process_communicator& world, emulation&, auto const& check) {
        std::size_t const group = world.rank() / inside;
        std::vector<std::size_t> members, firsts;
        for (std::size_t m = 0; m < inside; ++m) members.push_back(group * inside + m);
        for (std::size_t g = 0; g < groups; ++g) firsts.push_back(g * inside);
        auto inner = world.group(members);
        std::optional<in_process_communicator> across;
        if (inner.rank() == 0) across = world.group(firsts);
        summands_inside communicator(inner, across ? &*across : nullptr, group, groups);
        interpreter<double, summands_inside, eigen_kernels<double>> run(p, indexed, what, communicator, kernels(), seed);
        auto const mine = run.run(sources);
        check(mine, [&](tensor const& whole, tensor_id t, form f) { return part_of(whole, t, f, indexed, what, group); });
    });
}

carried_elements charged_elements(indexed_program const& indexed, plan const& what) {
    cluster c;
    c.types = {{"device", bytes(1e12), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}}};
    c.machines = {{0, 1, static_cast<int>(what.devices.size())}};
    c.inter = network_link{bytes_per_second(1e9), seconds(0)};
    auto const model = per_device_model(c, element_type::float32);
    auto const shares = shares_of(what);
    carried_elements charged{};
    auto const largest = [&](share_ref ref) { return ref.is_split() ? std::ranges::max(shares(ref)) : 1; };
    for (auto const& s : what.steps)
        for (auto const& t : {s.step.forward_transfer, s.step.backward_transfer, s.step.deferred_transfer})
            if (t) charged[static_cast<std::size_t>(t->kind)] += model.payload(*t, largest(t->from), largest(t->to)).value / element_size(s.step.type);
    bool const partial = std::ranges::any_of(what.steps, [&](plan_step const& s) {
        auto const& i = s.instruction;
        if (i.what != instruction::kind::compute) return i.tensor == indexed.loss && i.to == form::partial();
        auto const& results = indexed.operators[i.op].results;
        auto const at = std::ranges::find(results, indexed.loss);
        return at != results.end() && i.results[static_cast<std::size_t>(at - results.begin())] == form::partial();
    });
    if (partial) charged[static_cast<std::size_t>(collective::all_reduce)] += 1;
    return charged;
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
