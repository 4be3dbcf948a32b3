// SPDX-License-Identifier: BSL-1.0
// heddle cost: what a plan costs on this or another cluster.
#include "commands.hpp"

#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>

namespace heddle::cli {

int run_cost(cost_arguments const& arguments) {
    auto const p = json::read_plan(arguments.plan);
    auto const cluster_text = json::read_text(arguments.cluster);
    cluster c = json::parse_cluster(cluster_text, arguments.cluster);
    if (arguments.group_machines) c = with_grouped_machines(std::move(c));
    auto const cost = evaluate(p, c);
    auto const types = c.devices();
    std::vector<std::string> warnings;
    if (p.provenance.cluster_digest != json::digest(cluster_text)) warnings.push_back("this is not the cluster the plan was made for, or it has changed since");

    std::string reason;
    for (std::size_t d = 0; d < types.size() && reason.empty(); ++d)
        if (auto const limit = c.types[types[d]].memory.value; cost.memory[d].total() > limit)
            reason = "device " + std::to_string(d) + " (" + c.types[types[d]].name + ") would need " + std::to_string(cost.memory[d].total() / 1e9) +
                     " GB of " + std::to_string(limit / 1e9) + " GB";
    if (arguments.json) {
        nlohmann::ordered_json out;
        out["status"] = cost.fits ? "feasible" : "infeasible";
        if (!cost.fits) out["reason"] = reason;
        out["cost"] = cost.fits ? nlohmann::ordered_json(cost.time.total()) : nlohmann::ordered_json(nullptr);
        out["cost_when_planned"] = p.cost();
        out["time"] = {{"compute", cost.time.compute}, {"forward_communication", cost.time.forward_communication},
                       {"backward_communication", cost.time.backward_communication},
                       {"gradient_communication", cost.time.gradient_communication}, {"update", cost.time.update}};
        for (std::size_t d = 0; d < types.size(); ++d) {
            out["memory_bytes"].push_back(cost.memory[d].total());
            out["memory_limit_bytes"].push_back(c.types[types[d]].memory.value);
        }
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << w << '\n';
        std::printf("%.6g s per iteration (%.6g s when planned)\n", cost.time.total(), p.cost());
        std::printf("  compute %.6g, forward communication %.6g, backward communication %.6g, gradients %.6g, update %.6g\n", cost.time.compute,
                    cost.time.forward_communication, cost.time.backward_communication, cost.time.gradient_communication, cost.time.update);
        if (!cost.fits) std::printf("does not fit: %s\n", reason.c_str());
    }
    return cost.fits ? done : infeasible;
}

} // namespace heddle::cli
