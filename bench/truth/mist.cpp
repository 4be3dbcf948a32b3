// SPDX-License-Identifier: BSL-1.0
// Predicts Aceso's measured plans on L4 (mist/aceso_l4/) from its own tables of operators and links. Nothing is fitted.
#include "report.hpp"

#include <heddle/json/document.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <nlohmann/json.hpp>

#include <map>
#include <tuple>

namespace {

using namespace heddle;
using namespace heddle::bench;
using nlohmann::json;

/// An L4's memory by its data sheet, of which large kernels reach nine tenths.
bytes_per_second const memory(0.9 * 300e9);

struct operator_cost {
    seconds forward, backward;
    double parameters;
};

/// Runs of [value, count] as a value for each operator.
std::vector<std::size_t> expanded(json const& runs) {
    std::vector<std::size_t> out;
    for (auto const& r : runs) out.insert(out.end(), r[1].get<std::size_t>(), r[0].get<std::size_t>());
    return out;
}

class predictor {
public:
    explicit predictor(fs::path const& data) {
        for (auto const& r : read_table(data / "op_costs.csv")) {
            auto const number = [&](char const* field) { return std::stod(r.at(field)); };
            auto const of = [&](char const* field) { return static_cast<std::size_t>(number(field)); };
            operators_[{r.at("model"), of("mbs"), of("tp"), of("algo"), of("op")}] = {
                seconds(1e-6 * number("fwd_us")), seconds(1e-6 * number("bwd_us")), number("weights_mb") * 1048576 / 2};
        }
        for (auto const& r : read_table(data / "p2p.csv"))
            links_[r.at("link")][1048576 * std::stod(r.at("data_mb"))] = 1e9 * std::stod(r.at("bandwidth"));
    }

    /// *Throws* `input_error` for a plan that is not of pipelines of tensor groups.
    [[nodiscard]] double predict(json const& plan) const {
        auto const blocks = plan.at("num_layers").get<std::size_t>(),
                   size = plan.at("micro_batch_size").get<std::size_t>();
        auto const& stages = plan.at("stage");
        std::size_t const count = stages.size();
        // A device for each stage, of a type of its own, which holds one layer: all of the stage's operators.
        strategy_problem p;
        p.sends_block = true;
        p.global_batch = plan.at("global_batch_size").get<std::int64_t>() / static_cast<std::int64_t>(size);
        p.bandwidths.assign(count, std::vector<bytes_per_second>(count));
        bytes const sent(2.0 * static_cast<double>(size) * plan.at("seq_length").get<double>() *
                         plan.at("hidden_size").get<double>());
        std::size_t next = 0, devices = 0;
        strategy s{megatron_placement({count, 1, 1}), 1, p.global_batch, {0}};
        for (std::size_t k = 0; k < count; ++k) {
            auto const& stage = stages[k];
            auto const tensor = expanded(stage.at("tp")), data = expanded(stage.at("dp")),
                       again = expanded(stage.at("recompute")), variant = expanded(stage.at("algo"));
            seconds time;
            double parameters = 0;
            for (std::size_t i = 0; i < stage.at("ops").get<std::size_t>(); ++i) {
                if (data[i] != 1) throw input_error("data degree", std::to_string(data[i]) + ", expected 1");
                auto const found =
                    operators_.find({plan.at("model"), size, tensor[i], variant[i], number_of(next++, blocks)});
                if (found == operators_.end()) throw input_error("operator " + std::to_string(next - 1), "no costs");
                auto const& cost = found->second;
                time += (1 + static_cast<double>(again[i])) * cost.forward + cost.backward;
                parameters += cost.parameters;
            }
            // The table does not have that each micro-batch's gradients, of 16 bits, are added to those of 32.
            time += bytes(10 * parameters) / memory;
            profiled_type type{"stage " + std::to_string(k), bytes(24e9), seconds(0), {}};
            auto& profile = type.profiles[1];
            profile.layers.assign(count, seconds(0));
            profile.update.assign(count, seconds(0));
            profile.layers[k] = time;
            profile.update[k] = bytes(50 * parameters) / memory; // weights, gradients and moments in two precisions
            p.types.push_back(std::move(type));
            p.machines.push_back({k, 1, {}, {}});
            p.layers.push_back({"", {}, {}, {}, {sent, bytes(0)}});
            if (k > 0) p.bandwidths[k][k - 1] = p.bandwidths[k - 1][k] = bandwidth(devices % 8 == 0, sent.value);
            devices += stage.at("gpus").get<std::size_t>();
            s.cuts.push_back(k + 1);
        }
        validate(p);
        return strategy_model(p).cost(s).total.value;
    }

private:
    /// An operator's number in the table: the embedding, 13 of a block, and two behind all.
    [[nodiscard]] static std::size_t number_of(std::size_t i, std::size_t blocks) {
        if (i == 0) return 0;
        return i <= 13 * blocks ? 1 + (i - 1) % 13 : i - 13 * (blocks - 1);
    }
    /// On lines between measured sizes.
    [[nodiscard]] bytes_per_second bandwidth(bool between_machines, double size) const {
        auto const& table = links_.at(between_machines ? "inter_node" : "intra_node");
        auto const above = table.lower_bound(size);
        if (above == table.begin()) return bytes_per_second(above->second);
        if (above == table.end()) return bytes_per_second(table.rbegin()->second);
        auto const below = std::prev(above);
        double const part = (size - below->first) / (above->first - below->first);
        return bytes_per_second(below->second + part * (above->second - below->second));
    }

    std::map<std::tuple<std::string, std::size_t, std::size_t, std::size_t, std::size_t>, operator_cost> operators_;
    std::map<std::string, std::map<double, double>> links_;
};

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 0);
    auto const data = arguments.data / "aceso_l4";
    predictor const model(data);
    std::map<std::string, double> measured, aceso;
    auto const key = [](row const& r) { return r.at("model") + ", " + r.at("stages") + " stages"; };
    for (auto const& r : read_table(data / "measured.csv")) {
        auto& most = measured[key(r)];
        most = std::max(most, std::stod(r.at("step_ms")) / 1e3);
    }
    for (auto const& r : read_table(data / "predicted.csv")) {
        auto& most = aceso[key(r)];
        most = std::max(most, std::stod(r.at("time_ms")) / 1e3);
    }
    std::vector<prediction> all;
    for (auto const& plan : nlohmann::json::parse(std::ifstream(data / "plans.json"))) {
        auto const name =
            plan.at("model").get<std::string>() + ", " + std::to_string(plan.at("stages").get<int>()) + " stages";
        if (!plan.value("measured", false) || !measured.contains(name)) continue;
        try {
            all.push_back({name, "Aceso's plans, nothing fitted", model.predict(plan), measured.at(name), false});
            all.push_back({name, "the same by Aceso", aceso.at(name), measured.at(name), false});
        } catch (input_error const& e) { std::printf("Left out: %s: %s.\n", name.c_str(), e.what()); }
    }
    print_errors_header();
    print_errors(all, "Aceso's plans, nothing fitted", "Aceso 9.2 %");
    print_errors(all, "the same by Aceso", "");
    std::puts("\nThe form of the model was chosen with these plans in view. Memory is not predicted, and Mist's own "
              "plans are not compared.");
    write_predictions(arguments.csv, all);
}
