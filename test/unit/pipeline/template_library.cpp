// SPDX-License-Identifier: BSL-1.0
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_library.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <vector>

namespace {

using namespace heddle;
using machines = std::vector<std::size_t>;

/// Sixty layers of two bytes, machines of one device with forty: three of them hold the model.
template_problem cluster_of(std::vector<std::size_t> const& counts) {
    template_problem p;
    p.memory.assign(60, {bytes(2), bytes(0), bytes(0)});
    p.micro_batches = 32;
    for (std::size_t t = 0; t < counts.size(); ++t) {
        auto& type = p.types.emplace_back();
        type.name = "x" + std::to_string(t + 1);
        type.times = {std::vector(60, seconds(1.0 / static_cast<double>(t + 1))),
                      std::vector(60, seconds(2.0 / static_cast<double>(t + 1)))};
        type.machines = counts[t];
        type.memory_limit = bytes(40);
    }
    return p;
}
auto const exact = [](template_problem const& p) { return plan_template(p); };

} // namespace

TEST_CASE("every number of survivors down to the minimum is a combination of templates") {
    auto const p = cluster_of({40});
    template_library const library(p, 5, exact);
    CHECK(library.templates().size() == 3); // of 3, 4 and 5 machines
    for (std::size_t left = 0; left <= 40; ++left) {
        CAPTURE(left);
        auto const found = library.find(machines{left});
        std::size_t used = 0;
        double rate = 0;
        for (auto const n : found.templates) {
            used += library.templates()[n].machines[0];
            rate += 32 / library.templates()[n].plan.cost->total.value;
        }
        CHECK(used == (left >= 3 ? left : 0));
        CHECK(found.idle[0] == left - used);
        CHECK(found.rate == doctest::Approx(rate));
    }
}

TEST_CASE("survivors of two types get the best of all combinations") {
    auto const p = cluster_of({4, 4});
    template_library const library(p, 4, exact);
    auto const& templates = library.templates();
    auto const rate_of = [&](std::size_t n) { return 32 / templates[n].plan.cost->total.value; };
    auto const best = [&](auto&& self, machines const& left, std::size_t from) -> double {
        double most = 0;
        for (auto n = from; n < templates.size(); ++n) {
            auto rest = left;
            bool fits = true;
            for (std::size_t t = 0; t < rest.size(); ++t) {
                fits &= templates[n].machines[t] <= rest[t];
                rest[t] -= std::min(rest[t], templates[n].machines[t]);
            }
            if (fits) most = std::max(most, rate_of(n) + self(self, rest, n));
        }
        return most;
    };
    for (std::size_t a = 0; a <= 4; ++a)
        for (std::size_t b = 0; b <= 4; ++b) {
            auto const found = library.find(machines{a, b});
            CHECK(found.rate == doctest::Approx(best(best, {a, b}, 0)));
            CHECK((found.templates.empty()) == (a + b < 3));
            auto used = found.idle;
            for (auto const n : found.templates)
                for (std::size_t t = 0; t < 2; ++t) used[t] += templates[n].machines[t];
            CHECK(used == machines{a, b});
        }
}

TEST_CASE("machines that are not the cluster's are refused") {
    template_library const library(cluster_of({3, 1}), 4, exact);
    CHECK_THROWS_WITH_AS((void)library.find(machines{3}), "template library: 1 types, expected 2", input_error);
    CHECK_THROWS_WITH_AS((void)library.find(machines{3, 2}),
                         "template library, type 1: 2 machines, expected 1 at the most", input_error);
    CHECK_THROWS_AS(template_library(cluster_of({2000, 2000}), 1, exact), input_error);
}
