// SPDX-License-Identifier: BSL-1.0
// Predicts vTrain's measured iterations of Megatron on A100s (vtrain/) from the models' shapes and its all-reduce
// tables.
#include "report.hpp"
#include "transformer.hpp"

#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <map>
#include <span>
#include <tuple>

namespace {

using namespace heddle;
using namespace heddle::bench;

/// All-reduce times inside a node by number of devices and bytes.
class all_reduce_tables {
public:
    explicit all_reduce_tables(fs::path const& folder) {
        for (std::size_t const n : {2u, 4u, 8u})
            for (auto const& r : read_table(folder / ("a100_" + std::to_string(n) + "gpu.csv")))
                tables_[n][std::stod(r.at("bytes"))] = std::stod(r.at("seconds"));
    }
    [[nodiscard]] bool empty() const { return tables_.empty(); }
    /// Between sizes and below the least on lines, beyond the largest in proportion.
    [[nodiscard]] seconds time(std::size_t devices, double size) const {
        auto const& table = tables_.at(devices);
        auto above = table.lower_bound(size);
        if (above == table.end()) return seconds(size / table.rbegin()->first * table.rbegin()->second);
        if (above == table.begin()) ++above;
        auto const below = std::prev(above);
        return seconds(std::max(1e-5, below->second + (size - below->first) / (above->first - below->first) *
                                                          (above->second - below->second)));
    }
    /// The link that gives the largest table's least and largest time as a ring.
    [[nodiscard]] network_link link() const {
        auto const& [devices, table] = *tables_.rbegin();
        double const n = static_cast<double>(devices), hops = 2 * (n - 1);
        auto const [size, time] = *table.rbegin();
        double const bandwidth = hops * size / n / time;
        return {bytes_per_second(bandwidth),
                seconds(std::max(0.0, table.begin()->second / hops - table.begin()->first / n / bandwidth))};
    }

private:
    std::map<std::size_t, std::map<double, double>> tables_;
};

struct run {
    std::int64_t number;
    std::string set;
    transformer_shape shape;
    std::size_t devices, layers, data, tensor, pipeline;
    std::int64_t micro_batch, micro_batches, batch;
    double measured;

    /// What a layer's kernels depend on.
    [[nodiscard]] auto kind() const { return std::tuple(shape.hidden, shape.sequence, tensor, micro_batch); }
};

std::vector<run> read_runs(fs::path const& path, std::string const& set) {
    std::vector<run> runs;
    for (auto const& r : read_table(path)) {
        auto const number = [&](char const* field) { return std::stod(r.at(field)); };
        auto const count = [&](char const* field) { return static_cast<std::size_t>(number(field)); };
        double const h = number("hidden");
        run x{std::stoll(r.at("row")),
              set,
              {h, 4 * h, number("heads"), number("seq"), number("vocab_assumed")},
              count("gpus"),
              count("layers"),
              count("dp"),
              count("tp"),
              count("pp"),
              std::stoll(r.at("micro_batch")),
              std::stoll(r.at("num_microbatches")),
              std::stoll(r.at("global_batch")),
              number("measured_iteration_s")};
        if (x.tensor <= 8) runs.push_back(x); // larger groups span nodes, of which there is no table
    }
    return runs;
}

/// What is fitted, in the order of `priors`.
struct rates {
    double products, memory, forward, backward, tensor, ends, optimiser, step, collectives, outside;
    /// The factor of a kind of layer that its measurements say.
    double layer = 1;
};

// An A100's products of half precision reach 312 Tflop/s and its memory 1.56 TB/s by its data sheet: about four fifths
// are reached in large kernels. A block is about 60 kernels forward, as many again and 100 backward, of 10 to 20 us on
// the host each.
std::vector<prior_parameter> const priors{{250e12, 0.2}, {1.25e12, 0.2}, {1.1e-3, 0.4}, {2.3e-3, 0.4}, {1e-5, 1},
                                          {2e-3, 0.5},   {1.25e12, 0.4}, {2e-3, 1},     {1, 0.3},      {1, 0.5}};
constexpr double layer_deviation = 0.1;

class model {
public:
    explicit model(fs::path const& data) : tables_(data / "allreduce") {}
    [[nodiscard]] bool has_tables() const { return !tables_.empty(); }

    [[nodiscard]] double predict(run const& r, rates const& x) const {
        strategy_problem p;
        p.global_batch = r.batch;
        p.sends_block = true;
        auto const inside = tables_.link();
        // 800 Gbit/s a node, by vTrain's configurations.
        network_link const outside{bytes_per_second(100e9 * x.outside), seconds(1e-5)};
        std::size_t const in_node = std::min<std::size_t>(8, r.devices);
        p.machines.assign(r.devices / in_node, {0, in_node, inside, outside});
        p.types = {{"A100", bytes(80e9), seconds(0), {}}};
        auto& profile = p.types[0].profiles[r.tensor];
        kernel_rates const kernels{flops_per_second(x.products), bytes_per_second(x.memory)};
        auto const t = static_cast<double>(r.tensor), samples = static_cast<double>(r.micro_batch);
        double const activation = 2 * samples * r.shape.sequence * r.shape.hidden;
        seconds const reduce = r.tensor > 1 ? x.collectives * tables_.time(r.tensor, activation) : seconds(0);
        auto block = block_work(r.shape, samples, t, kernels);
        // The forward pass is computed again before the backward pass; each reduces twice.
        block = {block.forward + 2 * reduce, block.forward + block.backward + 4 * reduce};
        double const groups = r.tensor > 1 ? 1 : 0;
        pass_times const launch{seconds(x.forward + 2 * groups * x.tensor),
                                seconds(x.backward + 4 * groups * x.tensor)};
        auto& times = profile.sizes[r.micro_batch];
        auto const add = [&](pass_times const& work, pass_times const& launches, double parameters, double scale) {
            times.push_back(scale * (work.forward + work.backward));
            profile.launches.push_back({scale * launches.forward, scale * launches.backward});
            profile.update.push_back(seconds(optimiser_bytes * parameters / t / x.optimiser));
            p.layers.push_back({"", {bytes(0), bytes(2 * parameters)}, {}, {}, {}});
            p.layers.back().input = {bytes(activation / samples), bytes(0)};
        };
        pass_times const ends{seconds(x.ends / 4), seconds(x.ends / 4)};
        add(embedding_work(r.shape, samples, kernels), ends, r.shape.embedding_parameters(), 1);
        for (std::size_t l = 0; l < r.layers; ++l) add(block, launch, r.shape.block_parameters(), x.layer);
        add(head_work(r.shape, samples, t, kernels), ends, r.shape.embedding_parameters(), 1);
        p.shared = {{{0, r.layers + 1}, p.layers[0].gradients}};
        profile.layers = times; // of the one size that runs
        profile.forward = block.forward / (block.forward + block.backward);
        strategy s{megatron_placement({r.pipeline, r.data, r.tensor}), r.micro_batch, r.micro_batches, {0}};
        for (std::size_t stage = 1; stage < r.pipeline; ++stage) s.cuts.push_back(1 + stage * r.layers / r.pipeline);
        s.cuts.push_back(r.layers + 2);
        return strategy_model(p).cost(s).total.value + x.step;
    }

private:
    all_reduce_tables tables_;
};

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 0.05);
    model const m(arguments.data);
    auto runs = read_runs(arguments.data / "ground_truth_single.csv", "one node");
    auto const several = read_runs(arguments.data / "ground_truth_multi.csv", "several nodes");
    auto const fit_of = [&](std::vector<run> const& of) {
        std::vector<std::int64_t> numbers;
        for (auto const& r : of) numbers.push_back(r.number);
        return rows_to_fit(numbers, arguments.fit);
    };
    auto fitted_on = fit_of(runs);
    for (auto const i : fit_of(several)) fitted_on.push_back(runs.size() + i);
    runs.insert(runs.end(), several.begin(), several.end());
    if (runs.empty() || !m.has_tables()) {
        std::fprintf(stderr, "%s: no runs or tables\n", arguments.data.string().c_str());
        return 2;
    }
    auto known = priors;
    std::map<decltype(runs[0].kind()), std::size_t> kinds;
    for (auto const i : fitted_on)
        if (kinds.try_emplace(runs[i].kind(), known.size()).second) known.push_back({1, layer_deviation});
    auto const predict = [&](run const& r, std::span<double const> v) {
        auto const kind = kinds.find(r.kind());
        return m.predict(
            r, {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], kind == kinds.end() ? 1 : v[kind->second]});
    };
    auto const fitted = fit_parameters(known,
                                       [&](std::span<double const> v) {
                                           std::vector<double> errors;
                                           for (auto const i : fitted_on)
                                               errors.push_back(predict(runs[i], v) / runs[i].measured - 1);
                                           return errors;
                                       },
                                       {.noise = 0.03});
    std::vector<double> values, assumed;
    for (auto const& p : fitted) values.push_back(p.value);
    for (auto const& p : known) assumed.push_back(p.value);
    std::vector<prediction> all;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        bool const is_fitted = std::ranges::find(fitted_on, i) != fitted_on.end();
        all.push_back(
            {std::to_string(runs[i].number), runs[i].set, predict(runs[i], values), runs[i].measured, is_fitted});
        all.push_back({std::to_string(runs[i].number), runs[i].set + ", nothing fitted", predict(runs[i], assumed),
                       runs[i].measured, false});
    }
    print_errors_header();
    print_errors(all, "one node", "vTrain 8.37 %");
    print_errors(all, "several nodes", "vTrain 14.73 %");
    print_errors(all, "one node, nothing fitted", "");
    print_errors(all, "several nodes, nothing fitted", "");
    std::printf("\nFitted on %zu of %zu rows, with intervals of 95 %%:\n\n", fitted_on.size(), runs.size());
    char const* const names[] = {"products, flop/s",
                                 "memory, bytes/s",
                                 "block's launches forward, s",
                                 "block's launches backward, s",
                                 "more per collective, s",
                                 "launches of embedding and head, s",
                                 "optimiser's bytes/s",
                                 "fixed time of a step, s",
                                 "factor on all-reduces of tensor groups",
                                 "factor on links between nodes"};
    for (std::size_t i = 0; i < std::size(names); ++i)
        std::printf("- %s: %.3g (%.3g to %.3g)%s\n", names[i], fitted[i].value, fitted[i].low(), fitted[i].high(),
                    fitted[i].is_determined() ? "" : ", as assumed: the rows do not say");
    std::printf("- and a factor for each of %zu kinds of layer (width, tensor degree, micro-batch) among them\n",
                kinds.size());
    std::puts(
        "\nGroups of 16 span nodes, for which there is no table: such rows are left out. The form of the model and the "
        "launches assumed were chosen with 154 of the 1,549 rows in view.");
    write_predictions(arguments.csv, all);
}
