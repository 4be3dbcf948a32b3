// SPDX-License-Identifier: BSL-1.0
// Times the parts of a search one by one (see heddle/benchmark/search.hpp): on chains side by side, on a grid and, if
// $HEDDLE_REFERENCE_DATA is set, on the theories there.
#include "grid.hpp"

#include <heddle/benchmark/search.hpp>
#include <heddle/json/all.hpp>
#include <heddle/search/properties/property_space.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Makes `branches` chains of `length` links side by side, joined at the end. Each link has two forms, each made from
/// either form of the link before, at costs of their own.
json::bare_theory chains(std::uint32_t branches, std::uint32_t length) {
    json::bare_theory theory;
    auto const form_of = [=](std::uint32_t branch, std::uint32_t link, std::uint32_t form) {
        return 2 * (branch * length + link) + form;
    };
    std::uint32_t const joined = form_of(branches, 0, 0);
    theory.properties.resize(joined + 1);
    for (std::uint32_t p = 0; p <= joined; ++p) theory.groups.push_back(p / 2 * 2);
    auto const add = [&](std::vector<std::uint32_t> pre, std::uint32_t made, double cost) {
        theory.actions.push_back({std::move(pre), {made}, {}});
        theory.costs.push_back(cost);
    };
    std::vector<std::uint32_t> ends;
    for (std::uint32_t b = 0; b < branches; ++b) {
        for (std::uint32_t n = 0; n < length; ++n)
            for (std::uint32_t to : {0u, 1u}) {
                if (n == 0) add({}, form_of(b, n, to), 1 + to);
                else
                    for (std::uint32_t from : {0u, 1u})
                        add({form_of(b, n - 1, from)}, form_of(b, n, to), 1 + (7 * n + 3 * b + 5 * from + 2 * to) % 4);
            }
        ends.push_back(form_of(b, length - 1, 0));
    }
    add(std::move(ends), joined, 1);
    theory.goal = {joined};
    return theory;
}

/// A theory with everything that refers to it.
struct instance {
    json::bare_theory theory;
    search::property_task task{theory.properties.size(), theory.actions, theory.initial, theory.goal};
    search::additive_cost costs{theory.costs};
    search::landmark_bound bound{task, costs, theory.groups};
    search::property_space<search::additive_cost, search::landmark_bound> space{task, costs, bound};

    explicit instance(json::bare_theory t) : theory(std::move(t)) {}
};

void add(std::string const& name, json::bare_theory theory) {
    auto const whole = std::make_shared<instance const>(std::move(theory));
    bench::register_search(name, std::shared_ptr<decltype(whole->space) const>(whole, &whole->space),
                           {.limits = {.labels = 100'000}});
    bench::register_bound(name, whole->space, std::shared_ptr<decltype(whole->bound) const>(whole, &whole->bound));
}

} // namespace

int main(int argc, char** argv) {
    for (std::uint32_t branches : {1u, 4u, 16u}) add("chains_" + std::to_string(branches), chains(branches, 20));
    bench::grid const map(100);
    bench::register_search("grid_100", std::make_shared<bench::grid_problem const>(map));

    char const* const data = std::getenv("HEDDLE_REFERENCE_DATA");
    auto const folder = std::filesystem::path(data ? data : "") / "theories";
    if (data && std::filesystem::is_directory(folder)) {
        std::vector<std::filesystem::path> files;
        for (auto const& entry : std::filesystem::directory_iterator(folder))
            if (entry.path().string().ends_with(".json.gz")) files.push_back(entry.path());
        std::ranges::sort(files);
        for (auto const& file : files) add(file.stem().stem().string(), json::read_theory(file));
    } else {
        std::cout << "theories are skipped: HEDDLE_REFERENCE_DATA names no folder with theories/\n";
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
