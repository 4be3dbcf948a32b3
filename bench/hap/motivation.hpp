// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Section 2 of HAP: ratios (figure 2), uneven gathers (figure 4), sufficient factors (section 2.5.2).
#pragma once

#include "../layers.hpp"
#include "setting.hpp"

#include <cstdio>

namespace heddle::bench {

/// Allows what intra-operator parallelism that gathers and scatters activations does: nothing along the batch, matrices
/// in shards, no all-reduce of activations.
inline instruction_filter gathered_activations(indexed_program const& p) {
    auto const batch = batch_factors(p);
    auto const allows = [&p, batch](instruction const& i) {
        if (auto const* compute = i.as<instruction::compute>())
            return !is_along(p, *compute, batch) && !gathers_factors(*compute);
        auto const [t, from, to] = *i.change();
        auto const& tensor = p.tensors[t];
        auto const is_batch = [&batch, owner = t](tensor_form f) {
            return f.is_shard() && batch.contains({owner, f.factor()});
        };
        bool const is_matrix = tensor.is_parameter() && tensor.info.shape.size() > 1;
        if (i.is<instruction::read>()) return from == to && !is_batch(to) && (!is_matrix || to.is_shard());
        if (!i.is<instruction::convert>() || tensor.is_parameter() || is_batch(from) || is_batch(to)) return false;
        auto const how = find_conversion(from, to);
        return t == p.loss || (how && how->forward.collective != collective::all_reduce &&
                               how->backward.collective != collective::all_reduce);
    };
    return {allows, [batch](tensor_id t) { return factor_set::mark({&batch}, t); }};
}

/// Compares ratios proportional to computation (CP) with even ones (EV) and the best ones between, as the width of a
/// transformer grows.
inline void figure_2() {
    auto c = a100_and_p100();
    for (auto& type : c.types) type.memory = bytes(1e15);
    std::printf(
        "4 layers, 8 x 128 tokens, activations gathered and scattered, on 2 A100 and 2 P100; memory is left out\n");
    std::printf("%8s %12s %12s %12s %12s %12s %16s\n", "width", "comp/comm", "EV s", "CP s", "best s", "CP / EV",
                "best, EV to CP");
    for (extent width : {1024, 2048, 4096, 6144, 8192, 10240, 16384, 32768, 65536}) {
        auto const p = layer_builder({.batch = 8, .tokens = 128, .width = width, .heads = width / 64}).build(4);
        strategy const programs(p, c, gathered_activations, true);
        auto const even = programs.even(), proportional = programs.proportional();
        constexpr int grid = 20;
        double ev = 0, cp = 0, best = 0, where = 0, ratio = 0;
        for (int n = 0; n <= grid; ++n) {
            double const x = static_cast<double>(n) / grid;
            std::vector<double> ratios;
            for (std::size_t t = 0; t < even.size(); ++t) ratios.push_back((1 - x) * even[t] + x * proportional[t]);
            auto const made = programs.at(ratios);
            if (!made) continue;
            double const cost = made->cost();
            if (n == 0) ev = cost, ratio = made->time.compute / (cost - made->time.compute - made->time.update);
            if (n == grid) cp = cost;
            if (best == 0 || cost < best) best = cost, where = x;
        }
        std::printf("%8lld %12.3f %12.4f %12.4f %12.4f %12.3f %16.2f\n", static_cast<long long>(width), ratio, ev, cp,
                    best, cp / ev, where);
    }
}

/// Compares the bandwidth of a padded all-gather with that of broadcasts from every device, for 4 MB whose largest
/// shard is the first device's.
inline void figure_4() {
    auto const c = make_cluster({{presets::a100, 2}}, 2);
    auto const model = per_device_model(c, element_type::float32);
    constexpr double size = 4e6;
    std::printf("4 MB on 2 machines of 2 A100, bandwidth in MB/s; the first device has the largest shard, the others "
                "equal ones\n");
    std::printf("%14s %12s %12s %12s\n", "largest shard", "padded", "grouped", "faster");
    for (double first : {0.25, 0.3, 0.325, 0.35, 0.375, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}) {
        uniform_shares const shares({first, (1 - first) / 3, (1 - first) / 3, (1 - first) / 3});
        transfer gather{collective::all_gather, bytes(size), {0, 0}, {}, uneven::padded};
        auto const bandwidth = [&](uneven how) {
            gather.how = how;
            return size / model.time(gather, shares) * 1e-6;
        };
        double const padded = bandwidth(uneven::padded), grouped = bandwidth(uneven::grouped);
        gather.how.reset();
        std::printf("%14.3f %12.1f %12.1f %12s\n", first, padded, grouped,
                    name(model.decided(gather, shares).what.how.value()));
    }
}

/// Compares data parallelism with whole gradients and with sufficient factors instead, for a fully connected layer.
inline void sufficient_factors() {
    std::printf(
        "a layer of 4096 x 4096, data parallel at even ratios; gathered: MB of factors, of 67.1 MB of gradients\n");
    std::printf("%-8s %8s %14s %14s %14s %12s %10s\n", "cluster", "batch", "all-reduce ms", "SFB ms", "gathered MB",
                "faster", "plan ms");
    for (int machines : {2, 4, 8}) {
        auto const c = make_cluster({{presets::p100, machines}}, 1);
        for (extent batch : {64, 256, 1024, 2048, 3072, 4096, 8192}) {
            program_builder b;
            auto const x = b.input("x", {batch, 4096}), w = b.parameter("w", {4096, 4096});
            auto const y =
                b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
            auto const p = b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
            auto const gathering = [](indexed_program const& i) {
                return instruction_filter(
                    [&i, dense = data_parallel(i, parameter_storage::replicated)](instruction const& what) {
                        auto const* const compute = what.as<instruction::compute>();
                        if (compute && i.operators[compute->op].work.category == operator_class::matmul)
                            return gathers_factors(*compute);
                        if (!compute && i.tensors[what.change()->tensor].is_parameter())
                            return what == instruction::read(what.change()->tensor, tensor_form::mirrored());
                        return dense(what);
                    });
            };
            strategy const reduced(
                p, c, [](indexed_program const& i) { return data_parallel(i, parameter_storage::replicated); });
            strategy const gathered(p, c, gathering);
            auto const whole = reduced.at(reduced.even()), factors = gathered.at(gathered.even());
            std::printf("%-8s %8lld", c.name.c_str(), static_cast<long long>(batch));
            std::printf(" %14.2f", whole.value().cost() * 1e3);
            if (factors) {
                double const moved =
                    charged_traffic(*factors)[static_cast<std::size_t>(collective::all_gather)].total().value;
                std::printf(" %14.2f %14.1f %12s", factors->cost() * 1e3, moved * 1e-6,
                            factors->cost() < whole.value().cost() ? "SFB" : "all-reduce");
            } else {
                std::printf(" %14s %14s %12s", "-", "-", "all-reduce");
            }
            std::printf(" %10.2f\n", hap_plan(p, c).cost() * 1e3);
        }
    }
}

} // namespace heddle::bench
