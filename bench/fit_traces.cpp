// SPDX-License-Identifier: BSL-1.0
// Fits device and collective models to the kernels and NCCL calls traced on 4 x V100-SXM2-32GB in fp32
// ($HEDDLE_REFERENCE_DATA/hidup_traces), and prints their errors beside those of simpler device models.
// The model behind the traces: hidden size 1024, sequence 256, 4 heads, 32 sequences per GPU.
#include "table_file.hpp"

#include <heddle/cluster/presets.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/fit_report.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace heddle;
namespace fs = std::filesystem;
using bench::read_table;

sample kernel_sample(operator_class category, double work, double size, double microseconds) {
    return {category, "V100", 0, element_type::float32, flops(work), bytes(size), seconds(microseconds * 1e-6)};
}

void add_products(fs::path const& folder, std::vector<sample>& samples) {
    for (auto const& r : read_table(folder / "gemm_v100_fp32.csv")) {
        double const batch = std::stod(r.at("batch")), m = std::stod(r.at("M")), n = std::stod(r.at("N")),
                     k = std::stod(r.at("K"));
        samples.push_back(kernel_sample(operator_class::matmul, 2 * batch * m * n * k,
                                        4 * batch * (m * k + k * n + m * n), std::stod(r.at("median_us"))));
    }
}

/// Copies inside a device stand for element-wise kernels: their sizes are in the trace. Layer norms are two kernels and
/// the attention's softmax is one, all on all elements of a micro-batch; work is as in the operator catalogue.
void add_timeline(fs::path const& folder, std::string const& system, std::vector<sample>& samples) {
    double const elements = (system == "ours" ? 16 : 32) * 256 * 1024.0;
    double const attention_scores = (system == "ours" ? 16 : 32) * 4 * 256 * 256.0;
    constexpr double longest_of_a_gate = 20; // microseconds; the gates' softmaxes are of 16 columns
    std::map<std::string, double> moments;
    for (auto const& r : read_table(folder / ("timeline_1x4_" + system + ".csv"))) {
        double const time = std::stod(r.at("dur_us"));
        std::string const &name = r.at("name_id"), &op = r.at("op"), &stream = r.at("stream");
        if (r.at("kind") == "comm_copy" && !r.at("bytes").empty())
            samples.push_back(kernel_sample(operator_class::elementwise, 0, 2 * std::stod(r.at("bytes")), time));
        else if (name == "12" && op == "aten::layer_norm") moments[stream] = time;
        else if (name == "13" && op == "aten::layer_norm")
            samples.push_back(
                kernel_sample(operator_class::normalisation, 8 * elements, 8 * elements, moments.at(stream) + time));
        else if (name == "9" && op == "aten::softmax" && time > longest_of_a_gate)
            samples.push_back(
                kernel_sample(operator_class::normalisation, 5 * attention_scores, 8 * attention_scores, time));
    }
}

/// Takes the least time of each size, because the times include that NCCL's kernels wait for other ranks.
void add_collectives(fs::path const& folder, std::vector<sample>& samples) {
    std::map<std::pair<collective, double>, double> least;
    for (auto const& r : read_table(folder / "collective_calls.csv")) {
        std::string const& name = r.at("collective");
        if (r.at("tensor_bytes").empty() || !(name.starts_with("AllGather") || name.starts_with("ReduceScatter")))
            continue;
        auto const kind = name.starts_with("AllGather") ? collective::all_gather : collective::reduce_scatter;
        auto const [slot, is_new] =
            least.try_emplace({kind, std::stod(r.at("tensor_bytes"))}, std::stod(r.at("dur_us")));
        slot->second = std::min(slot->second, std::stod(r.at("dur_us")));
    }
    for (auto const& [key, time] : least)
        samples.push_back({key.first, "", 4, element_type::float32, flops(0), bytes(key.second), seconds(time * 1e-6)});
}

void print_errors(char const* what, device_type type, operator_fit const& f) {
    cluster c;
    c.types.push_back(std::move(type));
    c.machines.push_back({});
    cost_model const model(c, {{0, 1}});
    std::vector<double> errors;
    for (auto const& p : f.points) {
        local_work const work{flops(p.work), bytes(p.size), bytes(0), true};
        errors.push_back(std::abs(model.time(work, 0, {f.type, f.category}, false, 1) / p.time - 1));
    }
    std::printf("%-33s %-40s %s\n", json::subject(f).c_str(), what,
                json::detail::percentages(summarise(errors)).c_str());
}

} // namespace

int main() {
    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    if (!data) {
        std::puts("HEDDLE_REFERENCE_DATA is not set: skipped");
        return 0;
    }
    fs::path const folder = fs::path(data) / "hidup_traces";
    std::vector<sample> samples;
    add_products(folder, samples);
    for (char const* system : {"ours", "ddp", "deepspeed", "fastmoe"}) add_timeline(folder, system, samples);
    add_collectives(folder, samples);
    if (samples.empty()) {
        std::printf("%s has no traces: skipped\n", folder.c_str());
        return 0;
    }
    auto const report = fit_samples(samples);
    std::cout << json::fit_table(report);
    for (auto const& w : json::warnings_of(report)) std::cout << "warning: " << w << '\n';

    device_type one_rate{"V100", bytes(32e9), bytes_per_second(830e9), seconds(0), {}};
    one_rate.rates[element_type::float32].fallback = flops_per_second(13e12);
    std::puts("\nerrors of device models, %                                                 median   90 %  worst");
    for (auto const& f : report.operators) {
        print_errors("one rate, 13 TFLOP/s and 830 GB/s", one_rate, f);
        print_errors("preset", presets::make(presets::v100), f);
    }
    for (auto const& f : report.operators) {
        std::printf("\n%s\n%14s %14s %14s %14s %14s\n", json::subject(f).c_str(), "flops", "bytes", "us", "TFLOP/s",
                    "GB/s");
        for (auto const& p : f.points)
            std::printf("%14.4g %14.4g %14.1f %14.2f %14.0f\n", p.work, p.size, p.time * 1e6, p.work / p.time * 1e-12,
                        p.size / p.time * 1e-9);
    }
}
