// SPDX-License-Identifier: BSL-1.0
#include <heddle/synthesis/draft_pipelines.hpp>
#include <support/cases.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace {

using namespace heddle;

constexpr std::size_t all_drafts = std::numeric_limits<std::size_t>::max();

/// Machines of two devices of two types, and layers of any sizes.
strategy_problem problem_to_draft(test::random_source& random) {
    strategy_problem p;
    std::size_t const layers = static_cast<std::size_t>(random.between(2, 6));
    for (double const slower : {1.0, random.log_between(1.0, 4.0)}) {
        auto& type =
            p.types.emplace_back(profiled_type{"gpu", bytes(1e9), seconds(random.log_between(1e-3, 1e-1)), {}});
        for (std::size_t const degree : {std::size_t{1}, std::size_t{2}}) {
            auto& times = type.profiles[degree].layers;
            for (std::size_t l = 0; l < layers; ++l)
                times.push_back(seconds(slower * random.between(0.5, 2.0) / static_cast<double>(degree)));
        }
    }
    for (std::size_t l = 0; l < layers; ++l)
        p.layers.push_back({"block",
                            {bytes(0), bytes(random.between(1.0, 8.0))},
                            {bytes(0), bytes(random.between(1.0, 16.0))},
                            {bytes(0), bytes(random.between(1.0, 8.0))},
                            {bytes(random.between(0.1, 2.0)), bytes(0)}});
    for (int n = random.between(1, 3); n > 0; --n)
        p.machines.push_back({random.below(p.types.size()),
                              2,
                              {bytes_per_second(random.log_between(4.0, 400.0)), {}},
                              {bytes_per_second(random.log_between(2.0, 40.0)), {}}});
    p.global_batch = 16;
    return p;
}

/// The least estimate, by number of stages.
std::map<std::size_t, double> least_estimates(strategy_problem const& p, std::int64_t micro_batches) {
    std::map<std::size_t, double> least;
    for (auto const& d : draft_pipelines(p, micro_batches, all_drafts)) {
        auto& known = least.try_emplace(d.stages.size(), d.estimate.value).first->second;
        known = std::min(known, d.estimate.value);
    }
    return least;
}

} // namespace

TEST_CASE("pipelines of any number of stages are drafted, and more memory makes none dearer by more than a step of the "
          "pace") {
    constexpr int cases = test::cases(100);
    int tight_cases = 0, strictly = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const roomy = problem_to_draft(random);
        auto tight = roomy;
        for (auto& type : tight.types) type.memory = bytes(random.log_between(20.0, 200.0));
        for (std::int64_t const micro_batches : {1, 4}) {
            auto const more = least_estimates(roomy, micro_batches), less = least_estimates(tight, micro_batches);
            CHECK(more.size() == std::min(roomy.layer_count(), roomy.device_count()));
            double const step = micro_batches == 1 ? 1 + 1e-9 : 1 / 0.97;
            double best = std::numeric_limits<double>::infinity(), best_of_less = best;
            for (auto const& [stages, estimate] : more) best = std::min(best, estimate);
            for (auto const& [stages, estimate] : less) {
                best_of_less = std::min(best_of_less, estimate);
                if (micro_batches == 1) CHECK(more.at(stages) <= estimate * step);
            }
            CHECK(best <= best_of_less * step);
            tight_cases += best_of_less < std::numeric_limits<double>::infinity();
            strictly += best < best_of_less * (1 - 1e-9);
        }
    }
    CHECK(tight_cases > cases / 2);
    CHECK(strictly > cases / 4);
}
