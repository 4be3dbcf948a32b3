// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random ratio problems in which stages repeat, kernels bend and some types never matter, and random ratios.
#pragma once

#include "support/random_programs.hpp"

#include <heddle/balance/ratio_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace heddle::test {

struct ratio_problem_limits {
    int most_types = 6, most_stages = 12, most_bent = 3;
    bool memory = true;
};

inline ratio_problem random_ratio_problem(random_source& random, ratio_problem_limits limits = {}) {
    ratio_problem p;
    int const types = random.between(1, limits.most_types);
    double sum = 0;
    for (int t = 0; t < types; ++t) {
        p.counts.push_back(random.between(1, 4));
        sum += p.counts.back() * p.preferred.emplace_back(random.between(0.1, 1.0));
    }
    for (auto& r : p.preferred) r /= sum;
    double const scale = random.log_between(1e-6, 1e3);
    auto const line = [&](double most) {
        return affine{random.chance(0.5) ? 0 : scale * random.between(0.0, most), scale * random.between(0.0, most)};
    };
    auto const pieces = [&](double most) {
        convex_pieces result;
        for (int n = random.between(1, 4); n-- > 0;) result.push_back(line(most));
        return result;
    };
    p.constant = random.chance(0.5) ? 0 : scale * random.unit();
    for (int n = random.between(0, limits.most_stages); n-- > 0;) {
        if (!p.stages.empty() && random.chance(0.4)) {
            p.stages.push_back(random.of(p.stages));
            continue;
        }
        auto& stage = p.stages.emplace_back();
        double const floor =
            random.chance(0.3) ? scale * random.between(0.0, 20.0) : 0; // on one type, which may hide the others
        auto const floored = random.below(p.type_count());
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            stage_work work{line(10)};
            for (int b = random.between(0, limits.most_bent); b-- > 0;) work.bent.push_back(pieces(8));
            if (t == floored) work.straight.constant += floor;
            stage.push_back(std::move(work));
        }
    }
    for (int n = random.between(0, 3); n-- > 0;) p.transfers.push_back({pieces(5)});
    if (!limits.memory || random.chance(0.5)) return p;
    for (int t = 0; t < types; ++t) {
        double const size = random.log_between(1e3, 1e10);
        p.memory.push_back({size * random.unit() * 0.2, size});
        p.memory_limits.push_back(size * random.between(0.2, 0.3 + 2.0 / types));
    }
    return p;
}

/// Ratios that sum to one over devices; some of them zero.
inline std::vector<double> random_ratios(random_source& random, ratio_problem const& p) {
    std::vector<double> ratios;
    double sum = 0;
    for (int count : p.counts) sum += count * ratios.emplace_back(random.chance(0.2) ? 0 : random.unit());
    if (sum == 0) sum = p.counts[0] * (ratios[0] = 1);
    for (auto& r : ratios) r /= sum;
    return ratios;
}

} // namespace heddle::test
