// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Small random profiles on small random clusters.
#pragma once

#include <heddle/pipeline/template_problem.hpp>

#include <support/random_programs.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>

namespace heddle::test {

struct template_sizes {
    int most_layers = 7, most_machines = 3, most_types = 2;
};

/// Half of the problems have few small whole numbers, so that there are zeros, equals and ties.
inline template_problem random_template_problem(random_source& random, template_sizes sizes = {}) {
    bool const whole = random.chance(0.5), flat = random.chance(0.2);
    auto const amount = [&](int most) {
        if (!whole) return random.chance(0.1) ? 0.0 : random.log_between(0.01, most);
        return flat ? 1.0 : static_cast<double>(random.between(0, most));
    };
    template_problem p;
    p.split = random.chance(0.5) ? machine_split::halves : machine_split::free;
    p.micro_batches = random.between(1, 12);
    int const layers = random.between(1, sizes.most_layers), types = random.between(1, sizes.most_types);
    double kept = 0, saved = 0;
    for (int l = 0; l < layers; ++l) {
        p.memory.push_back({bytes(amount(9)), bytes(amount(5)), bytes(amount(3))});
        kept += p.memory.back().kept.value;
        saved += p.memory.back().saved.value;
    }
    bool const tight = random.chance(0.4);
    int machines = random.between(1, sizes.most_machines);
    for (int t = 0; t < types; ++t) {
        auto& type = p.types.emplace_back();
        type.name = "type " + std::to_string(t);
        for (int l = 0; l < layers; ++l) {
            type.times.forward.push_back(seconds(amount(4)));
            type.times.backward.push_back(seconds(amount(8)));
        }
        type.devices_per_machine = static_cast<std::size_t>(random.between(1, 4));
        type.machines = static_cast<std::size_t>(t + 1 == types ? machines : random.between(0, machines));
        machines -= static_cast<int>(type.machines);
        bool const shared = random.chance(0.5);
        for (std::size_t group = 2; group <= type.devices_per_machine; ++group)
            for (int l = 0; l < layers; ++l) type.all_reduce[group].push_back(seconds(shared ? 0 : 0.25 * amount(3)));
        if (tight)
            type.memory_limit =
                bytes(std::floor((kept + saved * static_cast<double>(p.micro_batches)) * random.between(0.15, 0.7)));
    }
    return p;
}

inline std::string text(template_problem const& p) {
    std::ostringstream out;
    out << p.micro_batches << " micro-batches, split " << static_cast<int>(p.split);
    for (auto const& t : p.types) {
        out << "\n" << t.machines << " x " << t.devices_per_machine << ", limit " << t.memory_limit.value << ", times";
        for (std::size_t l = 0; l < p.layer_count(); ++l)
            out << ' ' << t.times.forward[l].value << '+' << t.times.backward[l].value;
        for (auto const& [group, row] : t.all_reduce) {
            out << "\n  all-reduce on " << group << ':';
            for (auto const& x : row) out << ' ' << x.value;
        }
    }
    out << "\nmemory";
    for (auto const& m : p.memory) out << ' ' << m.kept.value << '+' << m.saved.value;
    return out.str();
}

} // namespace heddle::test
