// SPDX-License-Identifier: BSL-1.0
// Predicts short pretraining runs of nanotron on nodes of 8 H100 (ultrascale/) from the models' shapes and what
// collectives reached on the same cluster.
#include "report.hpp"
#include "transformer.hpp"

#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/plan/schedule.hpp>

#include <map>
#include <set>
#include <span>

namespace {

using namespace heddle;
using namespace heddle::bench;

struct run {
    std::int64_t number;
    std::string set, model;
    std::size_t nodes, data, pipeline, tensor;
    bool shards_state;
    std::int64_t micro_batch, micro_batches;
    double measured, gibibytes;
};

struct model_shape {
    transformer_shape of;
    std::size_t layers;
    bool ties_embeddings;
};

/// The shapes that the set's README gives; that of 80B has 80.0e9 parameters with Llama's widths at 70B.
std::map<std::string, model_shape> const shapes{
    {"1B", {{2048, 8192, 32, 4096, 131072, true, true}, 16, true}},
    {"3B", {{3072, 8192, 32, 4096, 131072, true, true}, 28, true}},
    {"8B", {{4096, 14336, 32, 4096, 131072, true, true}, 32, false}},
    {"80B", {{8192, 28672, 64, 4096, 131072, true, true}, 80, false}},
};

struct known_parameter {
    char const* name;
    prior_parameter prior;
};

// An H100 reaches 989 Tflop/s in 16 bits and 3.35 TB/s by its data sheet, of which large kernels reach about 0.55 and
// 0.8. A block is about 45 kernels forward and twice that backward, of 10 to 30 us on the host. Gradients add up in 32
// bits, and the optimiser reads and writes about 60 bytes a parameter.
known_parameter const known[] = {
    {"products, flop/s", {0.55 * 989e12, 0.2}},
    {"memory, bytes/s", {0.8 * 3.35e12, 0.2}},
    {"block's launches forward, s", {1.2e-3, 0.5}},
    {"block's launches backward, s", {2e-3, 0.5}},
    {"launches of a collective, s", {5e-5, 1}},
    {"launches of embedding and head, s", {2e-3, 0.7}},
    {"latency of a collective inside a node, s", {3e-5, 1}},
    {"latency of a hop between nodes, s", {7e-5, 1}},
    {"collectives inside nodes, factor on what was measured", {1, 0.4}},
    {"collectives between nodes, factor on what was measured", {1, 0.5}},
    {"sends between stages, bytes/s", {2e10, 1}},
    {"optimiser's bytes/s", {0.8 * 3.35e12, 0.5}},
    {"fixed time of a step, s", {2e-2, 1}},
    {"pass over a block where stages are on several nodes takes at least, s", {4e-3, 0.7}},
    {"and for each device of its tensor group, s", {2.5e-3, 0.7}},
};

class predictor {
public:
    explicit predictor(fs::path const& data) {
        for (auto const& r : read_table(data / "collective_bandwidth.csv"))
            reached_[r.at("collective")][std::stoul(r.at("nodes"))] = 1e9 * std::stod(r.at("mid_gb_s"));
    }

    [[nodiscard]] double predict(run const& r, std::span<double const> x) const {
        auto const& [shape, blocks, ties] = shapes.at(r.model);
        double const t = static_cast<double>(r.tensor), d = static_cast<double>(r.data),
                     samples = static_cast<double>(r.micro_batch);
        kernel_rates const kernels{flops_per_second(x[0]), bytes_per_second(x[1])};
        strategy_problem p;
        p.sends_block = true;
        network_link const link{bytes_per_second(x[10]), seconds(0)};
        p.machines.assign(r.nodes, {0, 8, link, link});
        p.types = {{"H100", bytes(80e9), seconds(0), {}}};
        auto& profile = p.types[0].profiles[r.tensor];
        double const activation = 2 * samples * shape.sequence * shape.hidden;
        // Sequence parallelism: two all-gathers and two reduce-scatters in each pass, of this time each.
        bool const leaves = r.tensor > 8;
        double const speed = reached("all_gather", nodes_of(r, r.tensor)) * x[leaves ? 9 : 8];
        seconds const collective(r.tensor > 1 ? (t - 1) / t * activation / speed + (leaves ? (t - 1) * x[7] : x[6])
                                              : 0);
        auto block = sequence_parallel_block_work(shape, samples, t, kernels);
        block = {block.forward + 4 * collective, block.backward + 4 * collective};
        double const queued = r.tensor > 1 ? 4 * x[4] : 0;
        pass_times launch{seconds(x[2] + queued), seconds(x[3] + queued)};
        if (r.pipeline > 1 && r.data * r.tensor * r.pipeline > 8) {
            // Seen in all runs whose stages are on several nodes; we do not know the cause.
            double const least = x[13] + x[14] * t;
            launch = {std::max(launch.forward, seconds(0.4 * least)), std::max(launch.backward, seconds(0.6 * least))};
        }
        auto& times = profile.sizes[r.micro_batch];
        auto const add = [&](pass_times const& work, pass_times const& launches) {
            times.push_back(work.forward + work.backward);
            profile.launches.push_back(launches);
            p.layers.push_back({"", {}, {}, {}, {bytes(0), bytes(activation / samples)}});
        };
        pass_times const ends{seconds(x[5] / 4), seconds(x[5] / 4)};
        add(embedding_work(shape, samples / t, kernels), ends);
        for (std::size_t l = 0; l < blocks; ++l) add(block, launch);
        add(head_work(shape, samples, t, kernels), ends);
        profile.layers = times;
        profile.forward = block.forward / (block.forward + block.backward);
        strategy s{megatron_placement({r.pipeline, r.data, r.tensor}), r.micro_batch, r.micro_batches,
                   balanced_cuts(times, r.pipeline)};
        double const pipeline = strategy_model(p).cost(s).total.value;

        double const embeddings = shape.embedding_parameters() * (r.pipeline > 1 || ties ? 1 : 2),
                     parameters =
                         (static_cast<double>(blocks) * shape.block_parameters() / static_cast<double>(r.pipeline) +
                          embeddings) /
                         t;
        // ZeRO-1 scatters gradients in 32 bits and gathers weights in 16; otherwise gradients are all-reduced.
        std::size_t const nodes = nodes_of(r, r.data * r.tensor);
        double const factor = x[nodes > 1 ? 9 : 8], part = (d - 1) / d;
        double const sync = r.data == 1      ? 0
                            : r.shards_state ? 6 * part * parameters / (reached("all_gather", nodes) * factor)
                                             : 8 * part * parameters / (reached("all_reduce", nodes) * factor);
        return pipeline + sync + 60 * parameters / (r.shards_state ? d : 1) / x[11] + x[12];
    }

    /// Returns the memory of the fullest device, in GiB. A parameter has a weight of 16 bits, a gradient, a weight and
    /// two moments of 32, the last three cut by ZeRO. A block saves 14 tensors of the model's width (norms' inputs and
    /// results, queries, keys and values before and after rotation, the context and what it is added to) and four of
    /// the perceptron's, in 16 bits; logits have 16 bits, 32, and gradients of 32. 2.5 GB are the context and
    /// collectives' buffers.
    [[nodiscard]] static double memory(run const& r) {
        auto const& [shape, blocks, ties] = shapes.at(r.model);
        double const t = static_cast<double>(r.tensor),
                     held = std::ceil(static_cast<double>(blocks) / static_cast<double>(r.pipeline)),
                     embeddings = shape.embedding_parameters() * (r.pipeline > 1 || ties ? 1 : 2),
                     parameters = (held * shape.block_parameters() + embeddings) / t,
                     tokens = static_cast<double>(r.micro_batch) * shape.sequence;
        double most = 0;
        for (std::size_t const stage : {std::size_t{0}, r.pipeline - 1}) {
            auto const in_flight = static_cast<double>(one_f_one_b{}.in_flight(stage, {r.pipeline, r.micro_batches}));
            double const saved = in_flight * held * tokens * (28 * shape.hidden + 8 * shape.wide) / t,
                         logits = stage + 1 == r.pipeline ? 10 * tokens * shape.vocabulary / t : 0;
            most = std::max(most, saved + logits);
        }
        double const state = parameters * (6 + 12 / (r.shards_state ? static_cast<double>(r.data) : 1));
        return (state + most + 2.5e9) / (1 << 30);
    }

private:
    [[nodiscard]] static std::size_t nodes_of(run const& r, std::size_t devices) {
        return std::clamp<std::size_t>(devices / 8, 1, r.nodes);
    }
    /// Returns what was measured on the next number of nodes.
    [[nodiscard]] double reached(std::string const& what, std::size_t nodes) const {
        auto const& by_nodes = reached_.at(what);
        auto const found = by_nodes.lower_bound(nodes);
        return found == by_nodes.end() ? by_nodes.rbegin()->second : found->second;
    }
    /// Norms and what follows them work on a part of the sequence; the optimiser adds gradients in 32 bits.
    [[nodiscard]] static pass_times sequence_parallel_block_work(transformer_shape const& s, double samples,
                                                                 double tensor, kernel_rates const& r) {
        auto whole = block_work(s, samples, 1, r);
        seconds const additions = bytes(12 * s.block_parameters() / tensor) / r.memory;
        return {whole.forward / tensor, whole.backward / tensor + additions};
    }
    /// Returns cuts between layers where the time behind them passes a stage's equal part.
    [[nodiscard]] static std::vector<std::size_t> balanced_cuts(std::vector<seconds> const& times, std::size_t stages) {
        double all = 0, sum = 0;
        for (auto const t : times) all += t.value;
        std::vector<std::size_t> cuts{0};
        for (std::size_t l = 0; l < times.size() && cuts.size() < stages; ++l) {
            sum += times[l].value;
            double const part = all * static_cast<double>(cuts.size()) / static_cast<double>(stages);
            bool const must = times.size() - l - 1 == stages - cuts.size();
            if (sum + times[l].value / 2 > part || must) cuts.push_back(l + 1);
        }
        cuts.push_back(times.size());
        return cuts;
    }

    std::map<std::string, std::map<std::size_t, double>> reached_;
};

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 0.1);
    predictor const model(arguments.data);
    std::vector<run> runs;
    std::size_t unfinished = 0, contradicts = 0, empty = 0;
    std::int64_t number = 0;
    for (auto const& r : read_table(arguments.data / "runs.csv")) {
        auto const of = [&](char const* field) { return static_cast<std::size_t>(std::stoul(r.at(field))); };
        ++number;
        if (r.at("status") != "ok") ++unfinished;
        else if (r.at("gbs_consistent") != "1" || !shapes.contains(r.at("model"))) ++contradicts;
        else if (of("pp") > shapes.at(r.at("model")).layers + 2) ++empty;
        else
            runs.push_back({number, r.at("model") + " on " + r.at("nodes"), r.at("model"), of("nodes"), of("dp"),
                            of("pp"), of("tp"), of("zero") == 1, std::stoll(r.at("mbs")), std::stoll(r.at("gradacc")),
                            std::stod(r.at("step_s")), r.at("mem_gb").empty() ? 0 : std::stod(r.at("mem_gb"))});
    }
    std::vector<std::int64_t> numbers;
    for (auto const& r : runs) numbers.push_back(r.number);
    auto const rows = rows_to_fit(numbers, arguments.fit);
    std::vector<prior_parameter> priors;
    for (auto const& k : known) priors.push_back(k.prior);
    std::vector<double> values, assumed;
    for (auto const& p : priors) assumed.push_back(p.value);
    values = assumed;
    // Some runs take about a second more for each micro-batch, others of the same kind do not: those are set aside.
    double const second_mode = 0.4;
    auto const is_marked = [&](run const& r) {
        return r.measured - model.predict(r, values) > second_mode * static_cast<double>(r.micro_batches);
    };
    std::vector<fitted_parameter> fitted;
    for (int round = 0; round < 3; ++round) {
        std::vector<std::size_t> on;
        for (auto const i : rows)
            if (!is_marked(runs[i])) on.push_back(i);
        fitted = fit_parameters(
            priors,
            [&](std::span<double const> x) {
                std::vector<double> errors;
                for (auto const i : on)
                    errors.push_back(std::clamp(std::log(model.predict(runs[i], x) / runs[i].measured), -0.5, 0.5));
                return errors;
            },
            {.noise = 0.1});
        for (std::size_t k = 0; k < values.size(); ++k) values[k] = fitted[k].value;
    }
    std::vector<prediction> all;
    std::map<std::string, std::vector<std::size_t>> sets;
    std::size_t marked = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        auto const& r = runs[i];
        bool const is_fitted = std::ranges::binary_search(rows, i), aside = is_marked(r);
        marked += aside;
        double const predicted = model.predict(r, values);
        auto const name = std::to_string(r.number);
        all.push_back({name, "all that finished", predicted, r.measured, is_fitted});
        if (aside) continue;
        all.push_back({name, "without the second mode", predicted, r.measured, is_fitted});
        all.push_back({name, "without the second mode, nothing fitted", model.predict(r, assumed), r.measured, false});
        all.push_back({name, r.set + (r.nodes > 1 ? " nodes" : " node"), predicted, r.measured, is_fitted});
        sets[all.back().set].push_back(i);
    }
    std::printf("%zu runs that finished; left out: %zu that did not, %zu whose numbers contradict each other, %zu with "
                "more stages than layers. %zu are set aside where said, since they took %.1f s more for each "
                "micro-batch than predicted.\n\n",
                runs.size(), unfinished, contradicts, empty, marked, second_mode);
    print_errors_header();
    print_errors(all, "all that finished", "");
    print_errors(all, "without the second mode", "");
    print_errors(all, "without the second mode, nothing fitted", "");
    for (auto const& [set, members] : sets) print_errors(all, set, "");
    std::vector<double> regrets;
    for (auto const& [set, members] : sets) {
        std::vector<double> predicted, measured;
        for (auto const i : members) {
            predicted.push_back(model.predict(runs[i], values));
            measured.push_back(runs[i].measured);
        }
        regrets.push_back(100 * regret(predicted, measured, 1));
    }
    std::ranges::sort(regrets);
    std::printf("\nThe first choice for a model and a number of nodes, of the runs not set aside, is %.1f %% slower "
                "than the fastest in the median, %.1f %% at "
                "most.\n",
                regrets.empty() ? 0.0 : regrets[regrets.size() / 2], regrets.empty() ? 0.0 : regrets.back());
    std::vector<double> memory_errors;
    double bias = 0, fits = 0;
    for (auto const& r : runs) {
        double const gibibytes = predictor::memory(r);
        fits += gibibytes <= 80;
        if (!(r.gibibytes > 0)) continue;
        memory_errors.push_back(std::abs(gibibytes / r.gibibytes - 1));
        bias += gibibytes / r.gibibytes - 1;
    }
    std::ranges::sort(memory_errors);
    auto const of = static_cast<double>(memory_errors.size());
    std::printf(
        "\nMemory, nothing fitted: median error %.1f %%, nine tenths below %.1f %%, bias %+.1f %%; %.1f %% of the "
        "finished runs are predicted to fit 80 GiB.\n",
        100 * memory_errors[memory_errors.size() / 2], 100 * memory_errors[memory_errors.size() * 9 / 10],
        100 * bias / of, 100 * fits / static_cast<double>(runs.size()));
    std::printf("\nFitted on %zu of %zu rows, with intervals of 95 %%; the form of the model and what is assumed were "
                "chosen with 1,065 runs in view:\n\n",
                rows.size(), runs.size());
    for (std::size_t k = 0; k < fitted.size(); ++k)
        std::printf("- %s: %.3g (%.3g to %.3g)%s\n", known[k].name, fitted[k].value, fitted[k].low(), fitted[k].high(),
                    fitted[k].is_determined() ? "" : ", as assumed: the rows do not say");
    write_predictions(arguments.csv, all);
}
