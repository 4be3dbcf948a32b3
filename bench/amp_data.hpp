// SPDX-License-Identifier: BSL-1.0
// Reads AMP's profiles and measured strategies as problems and strategies.
#pragma once

#include <heddle/json/document.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace heddle::bench {

namespace fs = std::filesystem;
using nlohmann::json;

// These are half-precision weight and gradient, single-precision weight, gradient and two moments.
inline constexpr double bytes_per_parameter = 2 + 2 + 4 + 4 + 8;
// These are logits in half precision and in single precision, and their gradient.
inline constexpr double bytes_per_logit = 2 + 4 + 4;

/// Is what CUDA reports of the device, less 1 GB for its context, communication buffers and fragmentation.
inline bytes usable_memory(std::string const& device) {
    return bytes((device == "T4" ? 15109.0 : 16160.0) * (1 << 20) - 1e9);
}

/// Activations that a transformer layer saves per sample (Korthikanti et al. 2022, table 2, tensor parallel).
inline group_bytes saved_by_transformer(double sequence, double hidden, double heads) {
    return {bytes(10 * sequence * hidden), bytes(24 * sequence * hidden + 5 * heads * sequence * sequence)};
}

/// A transformer layer, or an output with its vocabulary; zeros are neither.
struct layer_shape {
    double sequence = 0, hidden = 0, heads = 0, vocabulary = 0;
};

struct trial {
    strategy plan;
    double amp = 0;
    std::optional<double> measured;
    std::string status;

    [[nodiscard]] std::string name() const {
        auto const d = plan.degrees();
        char text[80];
        std::snprintf(text, sizeof text, "pp %2zu  dp %2zu  tmp %zu  mbs %2lld", d.pipeline, d.data, d.tensor,
                      static_cast<long long>(plan.micro_batch_size));
        return text;
    }
};

struct setting {
    strategy_problem problem;
    std::vector<trial> trials;
    /// Layers of the narrow kind, if there are two.
    std::vector<std::size_t> narrow;
    std::vector<layer_shape> shapes{};
};

inline double parameters_of(json const& file, std::size_t layer) {
    auto const& p = file.at("layer_params");
    if (p.is_array()) return p[layer].get<double>();
    return p.value(std::to_string(layer), 0.0);
}

inline setting read(fs::path const& path) {
    json const file = json::parse(std::ifstream(path));
    setting out;
    auto& p = out.problem;
    p.name = path.stem().string();
    p.global_batch = file.at("gbs").get<std::int64_t>();
    bool const is_gan = file.contains("amp_dp_layers");
    for (auto const& [device, rows] : file.at("layer_exec_s").items()) {
        auto& type = p.types.emplace_back(profiled_type{device, usable_memory(device), seconds(0), {}});
        for (auto const& [degree, times] : rows.items())
            for (std::size_t l = 0; l < times.size(); ++l) {
                // Layers that AMP leaves out rename or reshape tensors: their measured time is that of measuring.
                bool const counts =
                    !is_gan || std::ranges::find(file["amp_dp_layers"], json(l)) != file["amp_dp_layers"].end();
                type.profiles[std::stoul(degree)].layers.emplace_back(counts ? times[l].get<double>() : 0.0);
            }
    }
    std::size_t const count = p.types.front().profiles.begin()->second.layers.size();
    group_bytes previous;
    for (std::size_t l = 0; l < count; ++l) {
        auto& layer = p.layers.emplace_back();
        double const parameters = parameters_of(file, l);
        layer.gradients.split = bytes(4 * parameters);
        layer.kept.split = bytes(bytes_per_parameter * parameters);
        layer.input = previous;
        auto const& activations = file.at("activation_elems_per_sample");
        if (activations.is_number()) previous = {bytes(4 * activations.get<double>()), bytes(0)};
        else if (activations[l].is_number()) previous = {bytes(4 * activations[l].get<double>()), bytes(0)};
        else previous = {bytes(0), bytes(4.0 * 1024 * 52256)};
        auto& shape = out.shapes.emplace_back();
        if (!is_gan && file["layer_types"][l] == "transformer") shape = {1024, 1024, 16};
        if (!is_gan && file["layer_types"][l] == "embed2v") shape = {1024, 1024, 0, 52256};
        if (is_gan && parameters > 0) {
            bool const narrow = l > 40; // 16 wide on 72 x 72 positions, 1024 wide on 9 x 9; 4 heads
            if (narrow) out.narrow.push_back(l);
            shape = narrow ? layer_shape{5184, 16, 4} : layer_shape{81, 1024, 4};
        }
        if (shape.heads > 0) layer.saved = saved_by_transformer(shape.sequence, shape.hidden, shape.heads);
        if (shape.vocabulary > 0) layer.saved.split = bytes(bytes_per_logit * shape.sequence * shape.vocabulary);
    }
    for (auto const& node : file.at("nodes")) {
        std::string const name = node.at("name");
        std::size_t type = 0;
        while (name.find(p.types[type].name) == std::string::npos) ++type;
        auto const link = [&](char const* field) {
            return network_link{bytes_per_second(4 * node.at(field).get<double>()), seconds(0)};
        };
        p.machines.push_back(
            {type, file.at("gpus_per_node").get<std::size_t>(), link("intra_elems_per_s"), link("inter_elems_per_s")});
    }
    validate(p);
    strategy_model const model(p);
    for (auto const& s : file.at("strategies")) {
        parallel_degrees const degrees{s.at("pp").get<std::size_t>(), s.at("dp").get<std::size_t>(),
                                       s.at("tmp").get<std::size_t>()};
        auto const size = s.at("mbs").get<std::int64_t>();
        auto& t = out.trials.emplace_back();
        t.plan = {megatron_placement(degrees), size, p.global_batch / size / static_cast<std::int64_t>(degrees.data),
                  s.at("layer_bounds").get<std::vector<std::size_t>>()};
        t.amp = s.at("predicted_s").get<double>();
        if (s.contains("measured_s") && s["measured_s"].is_number()) t.measured = s["measured_s"].get<double>();
        t.status = s.value("status", "");
        model.check(t.plan);
    }
    return out;
}

} // namespace heddle::bench
