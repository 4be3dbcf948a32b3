// SPDX-License-Identifier: BSL-1.0
// heddle cost: what a plan costs on this or another cluster, and whether it fits.
#include "commands.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/synthesis/price_pipeline.hpp>
#include <heddle/synthesis/program_pipeline.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

/// Refuses a plan whose memory, or other figures, contradict its steps or each other.
void require_valid(verification const& checked, cost_arguments const& arguments) {
    if (!checked) throw input_error(arguments.plan, checked.problem);
}

struct held_memory {
    std::string type;
    bytes needed, limit;
};

/// A part of the price by its name in a file and in words.
struct price_term {
    char const *field, *words;
    double seconds;
};

/// The price of a plan of either kind on the named cluster.
struct plan_price {
    double total = 0, when_planned = 0;
    std::vector<price_term> terms;
    std::vector<held_memory> devices;
    std::vector<std::string> warnings;
};

plan_price price(plan const& p, cluster const& c) {
    auto const cost = evaluate(p, c);
    auto const& t = cost.time;
    plan_price out{t.total(),
                   p.cost(),
                   {{"compute", "compute", t.compute},
                    {"forward_communication", "forward communication", t.forward_communication},
                    {"backward_communication", "backward communication", t.backward_communication},
                    {"gradient_communication", "gradient communication", t.gradient_communication},
                    {"update", "update", t.update},
                    {"parameter_communication", "gathers of updated parameters", t.parameter_communication}},
                   {},
                   {}};
    auto const types = c.devices();
    for (std::size_t d = 0; d < types.size(); ++d)
        out.devices.push_back({c.types[types[d]].name, bytes(cost.memory[d].total()), c.types[types[d]].memory});
    return out;
}

plan_price price(staged_plan const& p, cluster const& c) {
    auto const cost = evaluate(p, c);
    auto const& t = cost.time;
    plan_price out{t.total().value,
                   p.cost(),
                   {{"pipeline", "pipeline", t.pipeline.value},
                    {"shared_gradients", "gradients of what stages share", t.shared.value},
                    {"gradients", "gradients", t.gradients.value},
                    {"update", "update", t.update.value},
                    {"parameters", "gathers of updated parameters", t.parameters.value}},
                   {},
                   {}};
    auto const places = placed_devices(c);
    for (auto const& place : places) out.devices.push_back({place.type, bytes(0), place.memory_limit});
    for (std::size_t place = 0; place < p.places(); ++place) {
        auto const& s = p.stages[place];
        auto device = s.devices.begin();
        for (std::size_t d = 0; d < s.plan.devices.size(); ++d)
            for (int n = 0; n < s.plan.devices[d].group_size; ++n)
                out.devices[*device++].needed = cost.memory[place][d];
    }
    return out;
}

plan_price price(pipeline_plan const& p, cluster const& c, cost_arguments const& arguments) {
    if (arguments.model.empty()) throw input_error("--model", "is needed to price the pipeline plan " + arguments.plan);
    auto const model = read_planned_model(arguments.model, arguments.inputs, p);
    require_valid(verify_figures(model.program, p), arguments);
    auto const again = priced(model.program, p, c);
    auto const& t = again.time;
    plan_price out{t.total(),
                   p.cost(),
                   {{"pipeline", "pipeline", t.pipeline.value},
                    {"synchronisation", "gradients", t.synchronisation.value},
                    {"update", "update", t.update.value}},
                   {},
                   model.warnings};
    for (auto const& d : again.devices) out.devices.push_back({d.type, d.memory, d.memory_limit});
    return out;
}

/// Says why the plan does not fit; it is empty if it does.
std::string reason_of(plan_price const& p) {
    for (std::size_t d = 0; d < p.devices.size(); ++d)
        if (auto const& [type, needed, limit] = p.devices[d]; needed > limit)
            return "device " + std::to_string(d) + " (" + type + ") would need " + std::to_string(needed.value / 1e9) +
                   " GB of " + std::to_string(limit.value / 1e9) + " GB";
    return {};
}

void print(plan_price const& p, std::string const& reason) {
    for (auto const& w : p.warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
    std::printf("%.6g s per iteration (%.6g s when planned)\n ", p.total, p.when_planned);
    char const* separator = "";
    for (auto const& [field, words, seconds] : p.terms) {
        std::printf("%s %s %.6g", separator, words, seconds);
        separator = ",";
    }
    std::printf("\n");
    if (!reason.empty()) std::printf("does not fit: %s\n", reason.c_str());
}

void print_json(plan_price const& p, std::string const& reason) {
    nlohmann::ordered_json out;
    out["status"] = reason.empty() ? "feasible" : "infeasible";
    if (!reason.empty()) out["reason"] = reason;
    out["cost"] = reason.empty() ? nlohmann::ordered_json(p.total) : nlohmann::ordered_json(nullptr);
    out["cost_when_planned"] = p.when_planned;
    for (auto const& [field, words, seconds] : p.terms) out["time"][field] = seconds;
    for (auto const& d : p.devices) {
        out["memory_bytes"].push_back(d.needed.value);
        out["memory_limit_bytes"].push_back(d.limit.value);
    }
    out["warnings"] = p.warnings;
    std::cout << out.dump() << '\n';
}

} // namespace

int run_cost(cost_arguments const& arguments) {
    auto const text = json::read_text(arguments.plan);
    std::vector<std::string> warnings;
    auto const cluster_for = [&](auto const& p) {
        return counted_by(p, read_planned_cluster(arguments.cluster, p.provenance, warnings, arguments.changes),
                          arguments.group_machines);
    };
    plan_price found;
    if (is_pipeline_plan(arguments.plan, text)) {
        auto const p = json::parse_pipeline_plan(text, arguments.plan);
        found = price(p, cluster_for(p), arguments);
    } else {
        if (!arguments.model.empty())
            throw input_error("--model", "is for pipeline plans: others hold what their price needs");
        if (json::has_stages(text, arguments.plan)) {
            auto const p = json::parse_staged_plan(text, arguments.plan);
            require_valid(verify_figures(p), arguments);
            found = price(p, cluster_for(p));
        } else {
            auto const p = json::parse_plan(text, arguments.plan);
            require_valid(verify_figures(p), arguments);
            found = price(p, cluster_for(p));
        }
    }
    found.warnings.insert(found.warnings.end(), warnings.begin(), warnings.end());
    auto const reason = reason_of(found);
    if (arguments.json) print_json(found, reason);
    else print(found, reason);
    return reason.empty() ? done : infeasible;
}

} // namespace heddle::cli
