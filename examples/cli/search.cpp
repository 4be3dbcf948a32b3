// SPDX-License-Identifier: BSL-1.0
// heddle search: best-first search on a bare set of triples.
#include "commands.hpp"

#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <nlohmann/json.hpp>

#include <iostream>

namespace heddle::cli {

namespace {

struct progress {
    bool shown = is_watched();
    bool on_expand(search::statistics const& s, double bound) const {
        if (shown && s.expanded % 10'000 == 0) std::cerr << "\r\033[K" << s.expanded << " expanded, bound " << bound << std::flush;
        return true;
    }
};

} // namespace

int run_search(search_arguments const& arguments) {
    auto const task = json::read_theory(arguments.theory);
    search::property_space const space(task.properties.size(), task.actions, task.initial, task.goal, search::additive_cost(task.costs), search::blind_bound{});
    auto const result = search::best_first(space, {.label_limit = arguments.label_limit, .time_limit_seconds = arguments.time_limit}, progress{});
    if (is_watched()) std::cerr << "\r\033[K";

    if (arguments.json) {
        nlohmann::ordered_json out;
        out["status"] = search::name(result.status);
        if (result.status == search::status::limit) out["which_limit"] = search::name(result.which_limit);
        if (result.status == search::status::infeasible) out["reason"] = "no sequence of triples reaches the goal";
        out["cost"] = result.cost ? nlohmann::ordered_json(*result.cost) : nlohmann::ordered_json(nullptr);
        out["lower_bound"] = result.status == search::status::infeasible ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(result.lower_bound);
        out["expanded"] = result.statistics.expanded;
        out["generated"] = result.statistics.generated;
        out["seconds"] = result.statistics.seconds;
        out["steps"] = result.actions.size();
        out["program"] = result.actions;
        out["warnings"] = nlohmann::ordered_json::array();
        std::cout << out.dump() << '\n';
    } else {
        std::cout << search::name(result.status);
        if (result.cost) std::cout << ", cost " << *result.cost << " in " << result.actions.size() << " steps";
        std::cout << ", " << result.statistics.expanded << " expanded, " << result.statistics.generated << " generated\n";
        for (auto a : result.actions) std::cout << "  " << task.costs[a] << "  " << task.texts[a] << '\n';
    }
    if (result.status == search::status::infeasible) return infeasible;
    return result.cost ? done : nothing_found;
}

} // namespace heddle::cli
