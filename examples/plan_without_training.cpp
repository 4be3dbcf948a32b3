// SPDX-License-Identifier: BSL-1.0
// Property tasks on a problem that has nothing to do with training: the three cheapest ways to make a stool in a
// workshop. A property is something that one has; some of it is used up, the rest serves as often as one likes.
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/landmark_bound.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/search/properties/property_task.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace heddle::search;
using names = std::vector<std::string>;

/// Names in place of numbers, as they come.
struct workshop {
    names things, jobs;
    std::vector<property_action> actions;
    std::vector<double> minutes;

    std::vector<std::uint32_t> numbers(names const& list) {
        std::vector<std::uint32_t> ids;
        for (auto const& name : list) {
            auto const found = std::ranges::find(things, name);
            ids.push_back(static_cast<std::uint32_t>(found - things.begin()));
            if (found == things.end()) things.push_back(name);
        }
        std::ranges::sort(ids);
        return ids;
    }
    /// `used_up` is needed too; no job may make what another uses up.
    void job(std::string name, double takes, names needs, names const& used_up, names const& makes) {
        needs.insert(needs.end(), used_up.begin(), used_up.end());
        jobs.push_back(std::move(name));
        minutes.push_back(takes);
        actions.push_back({.pre = numbers(needs), .add = numbers(makes), .remove = numbers(used_up)});
    }
};

} // namespace

int main() {
    workshop w;
    w.job("saw the board by hand", 15, {}, {"board"}, {"seat"});
    w.job("set up the band saw", 12, {}, {}, {"band saw"});
    w.job("saw the board on the band saw", 2, {"band saw"}, {"board"}, {"seat"});
    w.job("saw three legs by hand", 9, {}, {"pole"}, {"legs"});
    w.job("saw three legs on the band saw", 3, {"band saw"}, {"pole"}, {"legs"});
    w.job("buy turned legs", 40, {}, {}, {"legs"});
    w.job("heat the glue", 10, {}, {}, {"glue"});
    w.job("glue the legs in", 5, {"seat", "legs", "glue"}, {}, {"stool"});
    w.job("screw the legs on", 13, {"seat", "legs"}, {"box of screws"}, {"stool"});
    auto const stock = w.numbers({"board", "pole", "box of screws"}), wanted = w.numbers({"stool"});

    property_task const task(w.things.size(), w.actions, stock, wanted);
    additive_cost const costs(w.minutes);
    landmark_bound const bound(task, costs);
    std::printf("no stool in less than %g minutes\n", bound.cuts()[0].total);

    property_space const space(task, costs, bound);
    auto const found = best_first(space, {.solution_count = 3});
    auto const print = [&](double cost, std::vector<std::uint32_t> const& way) {
        std::printf("%g minutes\n", cost);
        for (auto job : way) std::printf("  %-32s %2g\n", w.jobs[job].c_str(), w.minutes[job]);
    };
    std::printf("%s\n", name(found.status));
    print(found.cost.value(), found.actions);
    for (auto const& other : found.runners_up) print(other.cost, other.actions);
}
