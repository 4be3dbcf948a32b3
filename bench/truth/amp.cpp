// SPDX-License-Identifier: BSL-1.0
// Predicts AMP's measured strategies on a cluster of V100s and T4s (amp/) from its profiles, calibrated on its two
// other settings: one has T4s alone, the other V100s and another model.
#include "../amp_data.hpp"
#include "report.hpp"
#include "transformer.hpp"

#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/pipeline/calibrate.hpp>

#include <span>

namespace {

using namespace heddle;
using namespace heddle::bench;

struct known_parameter {
    char const* name;
    prior_parameter prior;
};

// Products in half precision and memory by the data sheets, of which large kernels reach about 0.6 and 0.8; what was
// measured or stated for launches and links. Groups queue and compute about as one device does.
known_parameter const known[] = {
    {"T4, launches", {1, 0.3}},
    {"V100, launches", {1, 0.3}},
    {"T4, products, flop/s", {0.6 * 65e12, 0.3}},
    {"V100, products, flop/s", {0.6 * 112e12, 0.3}},
    {"T4, memory, bytes/s", {0.8 * 320e9, 0.3}},
    {"V100, memory, bytes/s", {0.8 * 900e9, 0.3}},
    {"T4, links inside", {1, 0.3}},
    {"V100, links inside", {1, 0.3}},
    {"T4, links outside", {1, 0.3}},
    {"V100, links outside", {1, 0.3}},
    {"launches at degree 2", {1, 0.1}},
    {"launches at degree 4", {1, 0.1}},
    {"work at degree 2", {1, 0.1}},
    {"work at degree 4", {1, 0.1}},
};

/// AMP measured a layer's forward pass with one sample and took three times that for both passes. With one sample that
/// is mostly the host's time to queue it, so launches are what was measured, of a backward pass as much: twice the
/// kernels, which are queued from C++ rather than Python. Work is counted from the layers' shapes. Stages of DeepSpeed
/// send in turn with computing, each device of a tensor group a part.
strategy_problem queued(setting const& s, std::span<double const> x) {
    auto p = s.problem;
    p.sends_block = true;
    for (auto& layer : p.layers) layer.input = {bytes(0), layer.input.whole + layer.input.split};
    auto const of = [&](profiled_type const& type, std::size_t first) {
        return x[first + (type.name == "T4" ? 0 : 1)];
    };
    for (auto& m : p.machines) {
        m.inside.bandwidth *= of(p.types[m.type], 6);
        m.outside.bandwidth *= of(p.types[m.type], 8);
    }
    for (std::size_t t = 0; t < p.types.size(); ++t) {
        auto& type = p.types[t];
        kernel_rates const rates{flops_per_second(of(type, 2)), bytes_per_second(of(type, 4))};
        auto const inside = std::ranges::find(p.machines, t, &profiled_machine::type)->inside;
        for (auto& [degree, profile] : type.profiles) {
            auto const n = static_cast<double>(degree);
            double const launching = of(type, 0) * (degree == 1 ? 1 : x[degree == 2 ? 10 : 11]);
            profile.scale = degree == 1 ? 1 : x[degree == 2 ? 12 : 13];
            for (std::size_t l = 0; l < p.layer_count(); ++l) {
                seconds const launch = launching / 3 * profile.layers[l];
                profile.launches.push_back({launch, launch});
                auto const& shape = s.shapes[l];
                transformer_shape const counted{.hidden = shape.hidden,
                                                .wide = 4 * shape.hidden,
                                                .heads = shape.heads,
                                                .sequence = shape.sequence,
                                                .vocabulary = shape.vocabulary,
                                                .is_eager = true}; // by AMP's scripts
                auto work = shape.heads > 0        ? block_work(counted, 1, n, rates)
                            : shape.vocabulary > 0 ? head_work(counted, 1, n, rates)
                                                   : pass_times{};
                // Two all-reduces of 16-bit activations in each pass.
                if (shape.heads > 0 && degree > 1) {
                    seconds const reduce =
                        2 * 2 * (n - 1) / n * (bytes(2 * shape.sequence * shape.hidden) / inside.bandwidth);
                    work = {work.forward + reduce, work.backward + reduce};
                }
                profile.layers[l] = work.forward + work.backward;
                double const parameters = p.layers[l].gradients.on(degree).value / 4;
                profile.update.push_back(bytes(optimiser_bytes * parameters) / rates.memory);
            }
        }
    }
    return p;
}

std::vector<measured_strategy> finished(setting const& s) {
    std::vector<measured_strategy> out;
    for (auto const& t : s.trials)
        if (t.measured) out.push_back({t.plan, seconds(*t.measured)});
    return out;
}

/// What tables 8 and 9 of the paper say of strategies on the mixed cluster, where its file has no times.
void add_published(setting& s) {
    struct row {
        std::int64_t micro_batch;
        std::size_t tensor, pipeline;
        double time;
    };
    for (auto const& [micro_batch, tensor, pipeline, time] :
         {row{1, 1, 4, 1.47}, row{1, 1, 8, 1.28}, row{1, 1, 16, 1.52}, row{2, 1, 4, 1.52}, row{2, 1, 8, 1.54},
          row{2, 1, 2, 2.27}, row{4, 1, 2, 2.32}, row{8, 1, 4, 1.97}, row{8, 2, 2, 2.43}, row{16, 2, 4, 2.34}})
        for (auto& t : s.trials) {
            auto const d = t.plan.degrees();
            if (d.pipeline == pipeline && d.tensor == tensor && t.plan.micro_batch_size == micro_batch)
                t.measured = time;
        }
}

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 1);
    auto const path = [&](char const* name) { return arguments.data / (std::string(name) + ".json"); };
    std::vector<setting> const others{read(path("amp_homogeneous")), read(path("amp_het_model"))};
    auto mixed = read(path("amp_het_cluster"));
    bool const has_times = std::ranges::any_of(mixed.trials, [](auto const& t) { return t.measured.has_value(); });
    if (!has_times) add_published(mixed);

    std::vector<std::vector<measured_strategy>> trials;
    for (auto const& s : others) {
        auto const all = finished(s);
        std::vector<std::int64_t> numbers(all.size());
        std::iota(numbers.begin(), numbers.end(), 0);
        trials.emplace_back();
        for (auto const i : rows_to_fit(numbers, arguments.fit)) trials.back().push_back(all[i]);
    }
    std::vector<prior_parameter> priors;
    std::vector<double> assumed, values;
    for (auto const& k : known) {
        priors.push_back(k.prior);
        assumed.push_back(k.prior.value);
    }
    auto const fitted = fit_parameters(priors, [&](std::span<double const> x) {
        std::vector<double> errors;
        for (std::size_t k = 0; k < others.size(); ++k) {
            auto const p = queued(others[k], x);
            strategy_model const model(p);
            for (auto const& t : trials[k]) errors.push_back(model.cost(t.plan).total / t.time - 1);
        }
        return errors;
    });
    for (auto const& p : fitted) values.push_back(p.value);
    auto const profiled = queued(mixed, assumed), there = queued(mixed, values);
    std::vector<prediction> all;
    auto const add = [&](strategy_problem const& p, measured_strategy const& t, std::string const& set) {
        auto const d = t.plan.degrees();
        all.push_back({"pp" + std::to_string(d.pipeline) + " dp" + std::to_string(d.data) + " tp" +
                           std::to_string(d.tensor) + " mbs" + std::to_string(t.plan.micro_batch_size),
                       set, evaluate(p, t.plan).total.value, t.time.value, false});
    };
    std::string const name = has_times ? "mixed cluster" : "mixed cluster, the paper's ten";
    std::vector<double> predicted, measured, amp;
    for (auto const& t : mixed.trials) {
        if (!t.measured) continue;
        add(there, {t.plan, seconds(*t.measured)}, name);
        predicted.push_back(all.back().predicted);
        measured.push_back(*t.measured);
        amp.push_back(t.amp);
        add(profiled, {t.plan, seconds(*t.measured)}, name + ", nothing fitted");
    }
    for (auto const& s : others) {
        auto const p = queued(s, values);
        for (auto const& t : finished(s)) add(p, t, s.problem.name + ", fitted on");
    }
    char anchor[80];
    std::snprintf(anchor, sizeof anchor, "AMP: Spearman %.3f", spearman(amp, measured));
    print_errors_header();
    print_errors(all, name, anchor);
    print_errors(all, name + ", nothing fitted", "");
    for (auto const& s : others) print_errors(all, s.problem.name + ", fitted on", "");
    std::printf("\nThe first choice on the mixed cluster is %.1f %% slower than the fastest that finished.\n",
                100 * regret(predicted, measured, 1));
    std::puts("The form of the model was chosen with the two other settings and the paper's ten strategies in view.\n\n"
              "Fitted on the two other settings, with intervals of 95 %:\n");
    for (std::size_t k = 0; k < fitted.size(); ++k)
        std::printf("- %s: %.3g (%.3g to %.3g)%s\n", known[k].name, fitted[k].value, fitted[k].low(), fitted[k].high(),
                    fitted[k].is_determined() ? "" : ", as assumed: the trials do not say");
    write_predictions(arguments.csv, all);
}
