// SPDX-License-Identifier: BSL-1.0
// Random programs of random forms on in-process ranks equal the single device: loss and every gradient.
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/realise.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

extern template class heddle::eigen_kernels<double>;

namespace {

using namespace heddle;
using tensor = dense_tensor<double>;

eigen_kernels<double> const& kernels() {
    static eigen_kernels<double> const all = [] {
        eigen_kernels<double> made;
        made.set("nll", made.library_kernel("nll_loss"));
        return made;
    }();
    return all;
}

/// One more than the largest value of an integer tensor: what its users look up in.
extent bound_of(program const& p, tensor_id t) {
    extent bound = 1'000'000;
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const operands = p.operands(o);
        if (std::ranges::find(operands, t) == operands.end()) continue;
        auto const& kind = p.kind(o);
        if (kind == "embedding") bound = std::min(bound, p.tensor(operands[1]).shape[0]);
        else if (kind.starts_with("nll") || kind == "cross_entropy") bound = std::min(bound, p.tensor(operands[0]).shape.at(1));
        else bound = 1;
    }
    return bound;
}

source_values<double> random_sources(program const& p, test::random_source& random) {
    source_values<double> sources;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& info = p.tensor(t);
        if (info.role == tensor_role::value) continue;
        tensor value(info.shape);
        for (auto& x : value.data)
            x = is_floating(info.type) ? random.between(-1.0, 1.0) : static_cast<double>(random.below(static_cast<std::size_t>(bound_of(p, t))));
        sources.emplace(t, std::move(value));
    }
    return sources;
}

/// max |a - b| over max(max |b|, 1).
double difference(tensor const& a, tensor const& b) {
    REQUIRE(a.dims == b.dims);
    double most = 0, scale = 1;
    for (std::size_t n = 0; n < a.data.size(); ++n) {
        most = std::max(most, std::abs(a.data[n] - b.data[n]));
        scale = std::max(scale, std::abs(b.data[n]));
    }
    return most / scale;
}

/// A path through the cuts chosen blindly: forms no planner would choose.
move_list random_path(cut_graph const& graph, test::random_source& random) {
    auto const steps = search::paths_to_goal(graph, [](auto) { return 1.0; });
    move_list path;
    for (std::size_t node = 0; !graph.is_last(node);) {
        std::vector<cut_graph::edge> open;
        for (auto const& e : graph.out(node))
            if (std::isfinite(steps.to_goal[e.to])) open.push_back(e);
        auto const& e = random.of(open);
        path.push_back(e.action);
        node = e.to;
    }
    return path;
}

std::vector<double> random_ratios(std::size_t ranks, test::random_source& random) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += ratios.emplace_back(random.chance(0.2) ? 0.0 : random.between(0.05, 1.0));
    if (sum == 0) sum = ratios[0] = 1;
    for (auto& x : ratios) x /= sum;
    return ratios;
}

} // namespace

TEST_CASE("random plans of random programs compute what the single device does") {
    std::map<std::string, int> seen;
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 2, .most_operators = 6});
        auto const indexed = index_program(p);
        cut_space space(indexed);
        auto const graph = search::explore(space, 2000);
        std::vector<step> steps;
        for (auto const& i : space.instructions()) steps.push_back(make_step(indexed, i, {}));
        cluster c;
        c.types = {{"device", bytes(1e12), bytes_per_second(1e9), seconds(0), {{element_type::float32, {flops_per_second(1e9)}}}}};
        auto const ranks = static_cast<std::size_t>(random.between(1, 7));
        c.machines = {{0, 1, static_cast<int>(ranks)}};
        c.inter = network_link{bytes_per_second(1e9), seconds(1e-6)};
        auto const [plan, cost] = realise(random_path(graph, random), space, steps, c, random_ratios(ranks, random));
        CAPTURE(seed);
        CAPTURE(ranks);
        INFO(test::describe(p));
        auto const verified = verify(indexed, plan);
        INFO(verified.problem);
        REQUIRE(verified);
        for (auto const& s : plan.steps) {
            auto const& i = s.instruction;
            auto const word = [](form f) { return f.is_shard() ? std::string("shard") : to_string(f); };
            if (i.what == instruction::kind::read) ++seen["read " + word(i.to)];
            else if (i.what == instruction::kind::convert) ++seen[word(i.from) + " to " + word(i.to)];
            else ++seen[i.loop >= 0 ? "compute split" : "compute " + word(i.operands.empty() ? form::replicated() : i.operands[0])];
        }

        auto const sources = random_sources(p, random);
        auto const expected = run_single_device(p, sources, kernels());
        std::mutex lock;
        double worst = 0;
        run_ranks(ranks, [&](in_process_communicator& communicator) {
            interpreter<double, in_process_communicator, eigen_kernels<double>> run(p, indexed, plan, communicator, kernels());
            auto const result = run.run(sources);
            std::lock_guard const guard(lock);
            worst = std::max(worst, std::abs(result.loss - expected.loss) / std::max(1.0, std::abs(expected.loss)));
            for (auto const& [t, whole] : expected.gradients) {
                if (!result.gradients.contains(t)) { worst = 1e9; continue; }
                auto const& [f, mine] = result.gradients.at(t);
                if (!f.is_shard()) { worst = std::max(worst, difference(mine, whole.second)); continue; }
                auto const cut = std::ranges::find_if(plan.cuts, [&, tensor = t, factor = f.factor()](atom_class const& k) {
                    return std::ranges::find(k.members, cut_factor{tensor, factor}) != k.members.end();
                });
                auto const& factor = indexed.tensors[t].factors[static_cast<std::size_t>(f.factor())];
                extent const unit = factor.extent / cut->atoms;
                extent begin = 0;
                for (std::size_t r = 0; r < communicator.rank(); ++r) begin += cut->counts[r] * unit;
                worst = std::max(worst, difference(mine, take(whole.second, factor, begin, cut->counts[communicator.rank()] * unit)));
            }
        });
        CHECK(worst < 1e-10);
    }
    // Every kind of read, of conversion and of computation has been there.
    for (auto const* kind : {"read replicated", "read mirrored", "read partial", "read shard", "partial to replicated", "partial to shard", "partial to mirrored",
                             "replicated to shard", "replicated to partial", "replicated to mirrored", "mirrored to replicated", "mirrored to shard",
                             "mirrored to partial", "shard to replicated", "shard to mirrored", "shard to shard", "compute split",
                             "compute replicated", "compute mirrored", "compute partial"}) {
        CAPTURE(kind);
        CHECK(seen[kind] > 0);
    }
}
