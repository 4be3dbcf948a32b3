// SPDX-License-Identifier: BSL-1.0
// heddle plan: model and cluster in; table, plan and trace out.
#include "commands.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <algorithm>
#include <iostream>

namespace heddle::cli {

int run_plan(plan_arguments const& arguments) {
    auto const model = json::read_model(arguments.model);
    auto const cluster_text = json::read_text(arguments.cluster);
    cluster c = json::parse_cluster(cluster_text, arguments.cluster);
    if (arguments.group_machines) c = with_grouped_machines(std::move(c));
    if (arguments.memory_limit)
        for (auto& type : c.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));

    for (auto const& file : {arguments.out, arguments.trace})
        if (!file.empty()) json::require_writable(file);

    hap_options options;
    options.training.optimizer_bytes_per_element = arguments.optimizer_bytes;
    options.training.overlaps_gradients = arguments.overlap;
    options.synthesis.search.label_limit = arguments.label_limit;
    options.last_search.label_limit = 20 * arguments.label_limit;
    options.time_limit_seconds = arguments.time_limit;
    if (is_watched())
        options.progress = [](trajectory_point const& point) {
            std::cerr << "\r\033[K" << point.origin << ": ";
            if (point.cost) std::cerr << *point.cost << " s" << std::flush;
            else std::cerr << "does not fit" << std::flush;
        };
    plan result = find_plan(model.program, c, clp::ratio_solver{}, options);
    if (is_watched()) std::cerr << "\r\033[K";
    result.provenance.model = model.name;
    result.provenance.model_digest = model.digest;
    result.provenance.cluster_digest = json::digest(cluster_text);
    result.warnings.insert(result.warnings.begin(), model.warnings.begin(), model.warnings.end());

    // The files first: what is printed was also written.
    if (result.exists()) {
        if (!arguments.out.empty()) json::write_file_atomically(arguments.out, json::write_plan(result));
        if (!arguments.trace.empty()) json::write_file_atomically(arguments.trace, json::write_trace(result, run_serial(result, c)));
    }
    if (arguments.json) {
        std::cout << json::plan_summary(result) << '\n';
    } else {
        print(std::cout, result, {.times = arguments.times});
    }
    std::cout.flush();
    if (!std::cout) throw file_error("standard output cannot be written");
    switch (result.status) {
    case search::status::infeasible: return infeasible;
    case search::status::limit: return result.exists() ? done : nothing_found;
    case search::status::optimal:
    case search::status::feasible: break;
    }
    return done;
}

} // namespace heddle::cli
