// SPDX-License-Identifier: BSL-1.0
// heddle search: best-first search on a bare set of triples.
#include "attended_run.hpp"
#include "commands.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/json/all.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/properties/landmark_bound.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace heddle::cli {

namespace {

struct watcher {
    attended_run& attended;
    [[nodiscard]] bool on_expand(search::progress const& p) const {
        if (p.statistics.expanded % 10'000 == 0)
            attended.show(std::to_string(p.statistics.expanded) + " expanded", p.incumbent, p.lower_bound, "");
        return true;
    }
};

} // namespace

int run_search(search_arguments const& arguments) {
    auto const theory = json::read_theory(arguments.theory);
    std::optional<attended_run> attended(std::in_place);
    attended->show("bound");
    search::deadline const clock;
    search::property_task const task(theory.properties.size(), theory.actions, theory.initial, theory.goal);
    search::additive_cost const costs(theory.costs);
    search::landmark_bound bound(task, costs, theory.groups);
    search::property_space const space(task, costs, std::move(bound));
    double const preparation = clock.elapsed();
    auto const result = search::best_first(
        space,
        {.limits = {.seconds = arguments.time_limit,
                    .labels = arguments.label_limit,
                    .bytes = static_cast<std::size_t>(std::min(arguments.memory_limit.value_or(1e18), 1e18)),
                    .stop = attended->stop()},
         .solution_count = arguments.solutions},
        watcher{*attended});
    attended.reset();

    if (arguments.json) {
        using object = nlohmann::ordered_json;
        object out;
        out["status"] = search::name(result.status);
        if (result.status == search::status::limit) out["which_limit"] = search::name(result.which_limit);
        if (result.status == search::status::infeasible) out["reason"] = "no sequence of triples reaches the goal";
        out["cost"] = result.cost ? object(*result.cost) : object(nullptr);
        out["lower_bound"] = result.status == search::status::infeasible ? object(nullptr) : object(result.lower_bound);
        out["expanded"] = result.statistics.expanded;
        out["generated"] = result.statistics.generated;
        out["seconds"] = preparation + result.statistics.seconds;
        out["seconds_of"] = object{{"bound", preparation},
                                   {"successors", result.statistics.successor_seconds},
                                   {"insertion", result.statistics.insertion_seconds}};
        out["steps"] = result.actions.size();
        out["program"] = result.actions;
        if (arguments.solutions > 1) {
            out["runners_up"] = object::array();
            for (auto const& other : result.runners_up)
                out["runners_up"].push_back(object{{"cost", other.cost}, {"program", other.actions}});
        }
        out["warnings"] = object::array();
        std::cout << out.dump() << '\n';
    } else {
        std::cout << search::name(result.status);
        if (result.cost) std::cout << ", cost " << *result.cost << " in " << result.actions.size() << " steps";
        std::cout << ", " << result.statistics.expanded << " expanded, " << result.statistics.generated
                  << " generated\n";
        auto const print = [&](std::vector<std::uint32_t> const& actions) {
            for (auto a : actions) std::cout << "  " << theory.costs[a] << "  " << printable(theory.texts[a]) << '\n';
        };
        print(result.actions);
        for (auto const& other : result.runners_up) {
            std::cout << "next, cost " << other.cost << " in " << other.actions.size() << " steps\n";
            print(other.actions);
        }
    }
    if (result.status == search::status::infeasible) return infeasible;
    return result.cost ? done : nothing_found;
}

} // namespace heddle::cli
