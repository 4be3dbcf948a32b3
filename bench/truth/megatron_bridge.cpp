// SPDX-License-Identifier: BSL-1.0
// Predicts published steps of Megatron-Bridge (megatron_bridge/) from models' shapes and data sheets, with one scale
// for each release. Strategies have no experts and no interleaved stages yet, so stages are priced here.
#include "report.hpp"
#include "transformer.hpp"

#include <heddle/plan/schedule.hpp>

#include <map>
#include <optional>

namespace {

using namespace heddle;
using namespace heddle::bench;

/// A public checkpoint's shape; queries and keys are all heads' widths together.
struct model_shape {
    double layers, hidden, queries, keys, wide, vocabulary, experts = 0, chosen = 0;
};

std::map<std::string, model_shape> const shapes{
    {"LLAMA3_8B", {32, 4096, 4096, 1024, 14336, 128256}},
    {"LLAMA3_70B", {80, 8192, 8192, 1024, 28672, 128256}},
    {"LLAMA3.1_405B", {126, 16384, 16384, 1024, 53248, 128256}},
    {"Qwen3_30B_a3B", {48, 2048, 4096, 512, 768, 151936, 128, 8}},
    {"Qwen3_235B_a22B", {94, 4096, 8192, 512, 1536, 151936, 128, 8}},
    {"GPT OSS 120B", {36, 2880, 4096, 512, 2880, 201088, 128, 4}},
};

/// Peaks by the data sheets, without sparsity: products by precision, memory, links inside a domain of so many devices
/// and outside, one way.
struct system_peaks {
    double four_bits, eight_bits, sixteen_bits, memory, inside, outside, domain;
};

std::map<std::string, system_peaks> const systems{
    {"H100", {0, 1979e12, 989e12, 3.35e12, 450e9, 50e9, 8}},
    {"B200", {9000e12, 4500e12, 2250e12, 8e12, 900e9, 50e9, 8}},
    {"B300", {14000e12, 4500e12, 2250e12, 8e12, 900e9, 100e9, 8}},
    {"GB200", {10000e12, 5000e12, 2500e12, 8e12, 900e9, 50e9, 72}},
    {"GB300", {15000e12, 5000e12, 2500e12, 8e12, 900e9, 100e9, 72}},
};

// Large kernels reach about 0.62 of the peak of products, half of that in groups of experts, 0.8 of memory's and
// links'.
constexpr double products = 0.62, grouped = 0.5, moved = 0.8;
// The host waits for the numbers of tokens of experts, so the kernels of routing and permuting are not queued ahead:
// about a hundred in both passes of a layer, of 20 us each.
constexpr double experts_launches = 2e-3;

struct published {
    std::string name, release, set;
    double predicted, measured;
};

/// Returns the step's time, or why it is not predicted.
std::optional<double> predict(row const& r, std::string& why) {
    auto const number = [&](char const* field, double otherwise = 1) {
        auto const& text = r.at(field);
        return text.empty() ? otherwise : std::stod(text);
    };
    auto const name = r.at("model").substr(0, r.at("model").find(" (tokendrop)"));
    auto const shape = shapes.find(name);
    auto const system = systems.find(r.at("system").substr(r.at("system").find_last_of('-') + 1));
    if (shape == shapes.end()) return why = "a model of other layers", std::nullopt;
    if (system == systems.end()) return why = "no peaks of " + r.at("system"), std::nullopt;
    if (r.at("task") != "pre-training") return why = "another task", std::nullopt;
    if (r.at("step_s").empty()) return why = "no global batch or tokens", std::nullopt;
    auto const& m = shape->second;
    auto const& peak = system->second;
    auto const& precision = r.at("precision"); // none is said in 25.09, whose footnotes name two kinds of 8 bits
    bool const has_four_bits = precision.find("FP4") != std::string::npos;
    double const rate = products * (has_four_bits                 ? peak.four_bits
                                    : precision.starts_with("BF") ? peak.sixteen_bits
                                                                  : peak.eight_bits),
                 sixteen = products * peak.sixteen_bits, memory = moved * peak.memory, inside = moved * peak.inside,
                 outside = moved * peak.outside;
    if (!(rate > 0)) return why = "no peak of " + precision, std::nullopt;
    double const tensor = number("tp"), stages = number("pp"), context = number("cp"), chunks = number("vp"),
                 experts = number("ep"), samples = number("mbs"), sequence = number("seq"), gpus = number("gpus"),
                 copies = gpus / (tensor * stages * context), passes = number("gbs") / (copies * samples),
                 tokens = samples * sequence / context / tensor;
    // Attention is causal and computed in 16 bits.
    double const attention =
                     4 * tokens * m.hidden * (m.queries + m.keys) / rate + 2 * tokens * sequence * m.queries / sixteen,
                 chosen = m.experts > 0 ? m.chosen : 1,
                 perceptron = 6 * tokens * chosen * m.hidden * m.wide / (m.experts > 0 ? grouped * rate : rate),
                 // Rows of tokens are permuted and summed for each expert that is chosen.
        moving =
            2 * tokens * (20 * m.hidden + 3 * chosen * m.wide + (m.experts > 0 ? 8 * chosen * m.hidden : 0)) / memory;
    // A token crosses to each domain with an expert that it chose once.
    double exchange = 0;
    if (experts > 1) {
        double const domains = std::max(1.0, experts / peak.domain),
                     remote = (domains - 1) * (1 - std::pow(1 - 1 / domains, chosen));
        exchange = 2 * 2 * tokens * m.hidden * std::max(remote / outside, chosen / inside);
    }
    // These configurations send for tensor groups and of keys while products run: half of both passes is hidden.
    double const whole = tokens * tensor * m.hidden * 2,
                 reduce = tensor > 1 ? 4 * (tensor - 1) / tensor * whole / inside : 0,
                 keys = context > 1 ? 4 * (context - 1) * tokens * m.keys * 2 /
                                          (context * tensor <= peak.domain ? inside : outside)
                                    : 0;
    // What products read forward and backward is read in 16 bits, and written in 8 or 4 as it is and transposed.
    double const byte_count = 2 + 2 * (has_four_bits ? 0.5 : 1.0),
                 cast = rate > sixteen
                            ? byte_count * tokens *
                                  (2 * (m.hidden + m.queries + m.keys) + chosen * (2 * m.hidden + 3 * m.wide)) / memory
                            : 0,
                 layer = 3 * (attention + perceptron + moving) + cast + (m.experts > 0 ? experts_launches : 0) +
                         2 * exchange + reduce + keys,
                 head = 6 * tokens * m.hidden * m.vocabulary / sixteen + 16 * tokens * m.vocabulary / memory,
                 all = m.layers * layer + head;
    one_f_one_b const schedule{static_cast<std::size_t>(chunks)};
    auto const slots =
        schedule.bottleneck_weight({static_cast<std::size_t>(stages), static_cast<std::int64_t>(std::ceil(passes))});
    // Where layers do not divide evenly, embedding and head count as one each; else the head is beside the last layers.
    bool const ends_count = std::fmod(m.layers, stages * chunks) != 0;
    double const held = (m.layers + (ends_count ? 2 : 0)) / stages,
                 slowest = std::max(held * layer, (held - (ends_count ? 1 : 0)) * layer + head);
    return static_cast<double>(slots) * slowest / chunks + all;
}

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 1);
    std::map<std::string, std::vector<published>> releases;
    std::map<std::string, int> left_out;
    for (auto const& r : read_table(arguments.data / "performance.csv")) {
        std::string why;
        if (auto const time = predict(r, why))
            releases[r.at("release")].push_back({r.at("model") + " on " + r.at("gpus") + " " + r.at("system"),
                                                 r.at("release"), r.at("model"), *time, std::stod(r.at("step_s"))});
        else ++left_out[why];
    }
    std::vector<prediction> all;
    for (auto& [release, rows] : releases)
        for (std::size_t i = 0; i < rows.size() && rows.size() > 1; ++i) {
            // The scale is the median ratio of the release's other rows.
            std::vector<double> ratios;
            for (std::size_t k = 0; k < rows.size(); ++k)
                if (k != i) ratios.push_back(rows[k].measured / rows[k].predicted);
            std::ranges::sort(ratios);
            double const scale = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
            all.push_back({rows[i].name, release, scale * rows[i].predicted, rows[i].measured, false});
            all.push_back({rows[i].name, "all", scale * rows[i].predicted, rows[i].measured, false});
            all.push_back({rows[i].name, "all, nothing fitted", rows[i].predicted, rows[i].measured, false});
        }
    print_errors_header();
    print_errors(all, "all", "");
    print_errors(all, "all, nothing fitted", "");
    for (auto const& [release, rows] : releases) print_errors(all, release, "");
    std::puts("\nA row's scale is fitted on the other rows of its release. The form of the model was chosen with these "
              "rows in view. Left out:\n");
    for (auto const& [why, rows] : left_out) std::printf("- %d: %s\n", rows, why.c_str());
    write_predictions(arguments.csv, all);
}
