// SPDX-License-Identifier: BSL-1.0
// Predicts Sailor's measured plans (sailor/) from its layer profiles and its links by size.
#include "report.hpp"
#include "transformer.hpp"

#include <heddle/cluster/fit_parameters.hpp>
#include <heddle/json/document.hpp>
#include <heddle/pipeline/strategy.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <tuple>

namespace {

using namespace heddle;
using namespace heddle::bench;
using nlohmann::json;

/// Bandwidth between groups of devices by size of what is sent, a parabola in the logarithm of its megabytes.
class links_by_size {
public:
    explicit links_by_size(fs::path const& path) {
        for (auto const& r : read_table(path)) {
            lines_[{r.at("kind"), r.at("sender"), std::stoul(r.at("sender_gpus")), r.at("receiver"),
                    std::stoul(r.at("receiver_gpus"))}] = {std::stod(r.at("c2")), std::stod(r.at("c1")),
                                                           std::stod(r.at("c0")),
                                                           std::stod(r.at("max_bandwidth_bytes_per_s"))};
        }
    }
    /// Returns the link of `n` devices each, all together, or of the first other number that was measured.
    /// *Throws* `input_error` if there is none.
    [[nodiscard]] network_link at(bool inside, std::string const& from, std::string const& to, std::size_t n,
                                  double size) const {
        for (auto const width : {n, std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{8}})
            for (auto const& [a, b] : {std::pair(from, to), std::pair(to, from)})
                if (auto const found = lines_.find({inside ? "intra" : "inter", a, width, b, width});
                    found != lines_.end())
                    return found->second.at(size);
        throw input_error("links", "none of " + from + " and " + to);
    }

private:
    struct line {
        double c2, c1, c0, most;

        /// The line through the time of this size that has the largest bandwidth measured.
        [[nodiscard]] network_link at(double size) const {
            double const z = std::log2(size / 1e6), bandwidth = 1e9 * (c2 * z * z + c1 * z + c0);
            double const time = bandwidth > 0 ? size / bandwidth : size / most;
            return {bytes_per_second(most), seconds(std::max(0.0, time - size / most))};
        }
    };
    std::map<std::tuple<std::string, std::string, std::size_t, std::string, std::size_t>, line> lines_;
};

/// Products of 32 bits, in TF32 where there is one, and memory by the data sheets, of which large kernels reach about
/// 0.6 and 0.8. Shapes are counted in elements of two bytes, of which these move half as many.
kernel_rates rates_of(std::string const& device) {
    auto const of = [](double products, double memory) {
        return kernel_rates{flops_per_second(0.6 * products), bytes_per_second(0.8 * memory / 2)};
    };
    if (device == "GH-96") return of(495e12, 4e12);
    if (device == "RTX-3090") return of(35.6e12, 936e9);
    if (device == "Titan-RTX") return of(16.3e12, 672e9);
    if (device == "RTX-2080") return of(10.1e12, 448e9);
    throw input_error("devices", "no peaks of " + device);
}

/// Between steps the host reads the loss and gathers timers: seconds, assumed as for nanotron.
constexpr double fixed_step = 2e-2;

struct layer_rows {
    std::vector<double> forward, backward, update;
};

struct plan_row {
    std::string id, set;
    strategy_problem problem;
    strategy plan;
    double measured;
};

class reader {
public:
    explicit reader(fs::path const& data)
        : file_(json::parse(std::ifstream(data / "plans.json"))), links_(data / "links.csv") {
        for (auto const& r : read_table(data / "layer_times.csv")) {
            auto& rows =
                times_[{r.at("model"), r.at("device"), std::stoul(r.at("tp")), std::stoll(r.at("micro_batch"))}];
            rows.forward.push_back(std::stod(r.at("forward_s")));
            rows.backward.push_back(std::stod(r.at("backward_s")));
            rows.update.push_back(std::stod(r.at("update_s")));
        }
        for (auto const& r : read_table(data / "layer_memory.csv"))
            layers_[{r.at("model"), std::stoul(r.at("tp"))}].push_back(
                {std::stod(r.at("params_floats")), std::stod(r.at("act_output_floats"))});
    }

    std::vector<plan_row> read() {
        std::vector<plan_row> out;
        for (auto const& p : file_.at("plans")) {
            std::string const id = p.at("id"), flag = p.value("flag", "");
            if (flag.find("exclude") != std::string::npos) {
                std::printf("Left out: %s: %s.\n", id.c_str(), flag.c_str());
                continue;
            }
            try {
                out.push_back(row_of(p));
            } catch (input_error const& e) { std::printf("Left out: %s: %s.\n", id.c_str(), e.what()); }
        }
        return out;
    }

private:
    [[nodiscard]] plan_row row_of(json const& p) const {
        std::string const model = p.at("model");
        auto const micro_batch = p.at("micro_batch").get<std::int64_t>();
        auto const& stages = p.at("stages");
        std::size_t const data = stages[0].at("replicas").size(), tensor = stages[0].at("replicas")[0].at("tp");
        plan_row out{
            p.at("id"), p.at("cluster").get<std::string>() + ", " + model, {}, {}, p.at("measured_iteration_s")};
        auto& problem = out.problem;
        problem.global_batch = p.at("global_batch").get<std::int64_t>();
        problem.sends_block = true;
        auto const found = layers_.find({model, tensor});
        if (found == layers_.end()) throw input_error(model, "no memory profile of degree " + std::to_string(tensor));
        auto const& layers = found->second;
        // What goes on is the same behind every layer but the last.
        double const activation = 4 * layers[0].output, sent = activation * static_cast<double>(micro_batch);
        for (std::size_t l = 0; l < layers.size(); ++l)
            problem.layers.push_back(
                {"", {bytes(4 * layers[l].parameters), bytes(0)}, {}, {}, {bytes(0), bytes(activation)}});
        std::map<std::string, std::size_t> types;
        std::vector<std::string> device_types;
        strategy s{megatron_placement({stages.size(), data, tensor}),
                   micro_batch,
                   p.at("num_microbatches").get<std::int64_t>(),
                   {0}};
        std::string last;
        std::size_t room = 0;
        for (auto const& stage : stages) {
            if (stage.at("replicas").size() != data) throw input_error("stages", "not all have as many replicas");
            s.cuts.push_back(stage.at("last_layer").get<std::size_t>() + 1);
            for (auto const& r : stage.at("replicas")) {
                std::string const device = r.at("device");
                if (r.at("tp").get<std::size_t>() != tensor) throw input_error("replicas", "tensor degrees differ");
                auto const [type, is_new] = types.emplace(device, types.size());
                if (is_new) problem.types.push_back(type_of(model, device, tensor, micro_batch, layers));
                if (device != last || room < tensor) {
                    problem.machines.push_back({type->second, 0, {}, {}});
                    room = r.at("gpus_per_node").get<std::size_t>();
                    last = device;
                }
                problem.machines.back().devices += tensor;
                room -= tensor;
                device_types.insert(device_types.end(), tensor, device);
            }
        }
        set_links(problem, device_types, sent);
        out.plan = std::move(s);
        validate(problem);
        strategy_model(problem).check(out.plan);
        return out;
    }

    struct layer_size {
        double parameters, output;
    };

    [[nodiscard]] profiled_type type_of(std::string const& model, std::string const& device, std::size_t tensor,
                                        std::int64_t micro_batch, std::vector<layer_size> const& layers) const {
        auto const found = times_.find({model, device, tensor, micro_batch});
        if (found == times_.end())
            throw input_error(model, "no times on " + device + " at degree " + std::to_string(tensor) +
                                         ", micro-batch " + std::to_string(micro_batch));
        auto const& rows = found->second;
        profiled_type type{device, bytes(1e12), seconds(0), {}};
        auto& profile = type.profiles[tensor];
        auto& times = profile.sizes[micro_batch];
        for (std::size_t l = 0; l < rows.forward.size(); ++l) {
            times.emplace_back(rows.forward[l] + rows.backward[l]);
            profile.update.emplace_back(rows.update[l]); // of one layer: a stage's parameters in it would be 11 TB/s
        }
        // The last layer was profiled without the product that makes logits, whose matrix is the embedding's: it has no
        // parameters, and takes as long at any degree. It takes longer or less than a block as their shapes say.
        std::size_t const head = times.size() - 1, block = times.size() / 2;
        if (layers[head].parameters < layers[0].parameters / 2)
            times[head] += head_per_block(model, device, tensor, layers[0].parameters) * times[block];
        profile.layers = times; // of the one size that runs
        return type;
    }

    [[nodiscard]] double head_per_block(std::string const& model, std::string const& device, std::size_t tensor,
                                        double embedding) const {
        auto const& of = file_.at("models").at(model);
        double const hidden = of.at("hidden"), sequence = of.at("seq"), t = static_cast<double>(tensor);
        // A device has its part of the words, and all positions.
        transformer_shape const shape{hidden, 4 * hidden, of.at("heads"), sequence,
                                      (embedding / hidden - sequence) * t};
        auto const rates = rates_of(device);
        kernel_rates const of_loss{rates.products, 2 * rates.memory}; // which is in 32 bits as it is counted
        auto const head = head_work(shape, 1, t, of_loss), block = block_work(shape, 1, t, rates);
        return (head.forward + head.backward) / (block.forward + block.backward);
    }

    void set_links(strategy_problem& p, std::vector<std::string> const& device_types, double sent) const {
        std::size_t const n = device_types.size();
        auto const machine_of = p.machine_of_device();
        p.bandwidths.assign(n, std::vector<bytes_per_second>(n));
        std::map<std::tuple<std::string, std::string, std::size_t>, network_link> known;
        for (std::size_t a = 0; a < n; ++a)
            for (std::size_t b = 0; b < a; ++b) {
                auto& here = p.machines[machine_of[a]];
                auto& there = p.machines[machine_of[b]];
                bool const inside = machine_of[a] == machine_of[b];
                std::size_t const width = std::min(here.devices, there.devices);
                auto const [found, is_new] =
                    known.try_emplace({device_types[a] + (inside ? " inside" : ""), device_types[b], width});
                if (is_new) found->second = links_.at(inside, device_types[a], device_types[b], width, sent);
                auto const& link = found->second;
                p.bandwidths[a][b] = p.bandwidths[b][a] = link.bandwidth;
                for (auto* m : {&here, &there}) {
                    auto& latency = (inside ? m->inside : m->outside).latency;
                    latency = std::max(latency, link.latency);
                }
            }
    }

    json file_;
    links_by_size links_;
    std::map<std::tuple<std::string, std::string, std::size_t, std::int64_t>, layer_rows> times_;
    std::map<std::pair<std::string, std::size_t>, std::vector<layer_size>> layers_;
};

} // namespace

int main(int count, char** text) {
    auto const arguments = read_arguments(count, text, 1);
    auto const rows = reader(arguments.data).read();
    std::map<std::string, char const*> reported{{"clariden, OPT-350", "Sailor 8.9 %"},
                                                {"clariden, GPT-Neo-2.7", "Sailor 10.1 %"},
                                                {"mit, OPT-350", "Sailor 10.0 %"}};
    std::vector<std::string> types;
    for (auto const& r : rows) {
        reported.try_emplace(r.set, "");
        for (auto const& t : r.problem.types)
            if (std::ranges::find(types, t.name) == types.end()) types.push_back(t.name);
    }
    auto const predict = [&](plan_row const& r, std::span<double const> scales) {
        auto p = r.problem;
        for (auto& t : p.types)
            for (auto& [degree, profile] : t.profiles)
                profile.scale = scales[static_cast<std::size_t>(std::ranges::find(types, t.name) - types.begin())];
        return strategy_model(p).cost(r.plan).total.value + fixed_step;
    };
    std::vector<prior_parameter> const priors(types.size(), {1, 0.3});
    auto const fit_without = [&](std::size_t left_out) {
        return fit_parameters(priors, [&](std::span<double const> scales) {
            std::vector<double> errors;
            for (std::size_t i = 0; i < rows.size(); ++i)
                if (i != left_out) errors.push_back(predict(rows[i], scales) / rows[i].measured - 1);
            return errors;
        });
    };
    std::vector<prediction> all;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::vector<double> scales;
        for (auto const& p : fit_without(i)) scales.push_back(p.value);
        auto const& r = rows[i];
        all.push_back({r.id, r.set + ", one scale a type", predict(r, scales), r.measured, false});
        all.push_back(
            {r.id, r.set + ", nothing fitted", predict(r, std::vector(types.size(), 1.0)), r.measured, false});
    }
    std::puts("");
    print_errors_header();
    for (auto const& [set, anchor] : reported) {
        print_errors(all, set + ", nothing fitted", anchor);
        print_errors(all, set + ", one scale a type", "");
    }
    std::puts("\nA row's scales are fitted on all other rows. The form of the model was chosen with the 11 rows of "
              "GPT-Neo on one cluster in view. On all, with intervals of 95 %:\n");
    auto const fitted = fit_without(rows.size());
    for (std::size_t i = 0; i < types.size(); ++i)
        std::printf("- %s, scale of its profile: %.3g (%.3g to %.3g)%s\n", types[i].c_str(), fitted[i].value,
                    fitted[i].low(), fitted[i].high(),
                    fitted[i].is_determined() ? "" : ", as assumed: the rows do not say");
    write_predictions(arguments.csv, all);
}
