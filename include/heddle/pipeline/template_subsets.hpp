// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The subsets of a cluster's devices that the end of a pipeline may have, and the steps between them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/stage_kinds.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The states that a `device_walk` reaches with no more stages than there are layers, numbered without gaps in
/// topological order; 0 is the state in which nothing is taken.
class template_subsets {
public:
    /// A step from a smaller subset, by one stage of a kind.
    struct step {
        std::uint32_t from, kind;
    };
    struct subset {
        std::vector<step> into;
        /// How many stages it may make, at most as many as there are layers; fewest > most if it must make more.
        std::size_t fewest = std::numeric_limits<std::size_t>::max(), most = 0;
        /// Tells whether a template may use this subset and no more.
        bool is_complete = false;
    };

    /// Returns false if there are more than `limit` states, or numbers that might be states, or once `is_stopped()` is
    /// true.
    template <class IsStopped>
    bool number(device_walk const& walk, stage_kinds const& kinds, std::size_t layers, std::size_t limit,
                IsStopped const& is_stopped) {
        if (walk.count() > limit) return false;
        std::vector<std::uint32_t> number(walk.count());
        std::vector<device_walk::state> met{device_walk::none()};
        for (std::size_t n = 0; n < met.size(); ++n) { // by the fewest stages
            if (n % 1024 == 1023 && is_stopped()) return false;
            if (number[met[n]] == layers) continue;
            walk.for_each_choice(met[n], [&](std::size_t, std::size_t, device_walk::state next) {
                if (next == device_walk::none() || number[next] != 0) return;
                number[next] = number[met[n]] + 1;
                met.push_back(next);
            });
        }
        algorithm::sort(met);
        for (std::uint32_t n = 0; n < met.size(); ++n) number[met[n]] = n + 1; // 0 is of those not met
        subsets_.resize(met.size());
        subsets_[0].fewest = 0;
        for (std::uint32_t n = 0; n < met.size(); ++n) {
            if (n % 1024 == 1023 && is_stopped()) return false;
            auto& from = subsets_[n];
            from.is_complete = walk.is_complete(met[n]);
            from.most = std::min(from.most, layers);
            from.fewest = std::min(from.fewest, from.most + 1);
            walk.for_each_choice(met[n], [&](std::size_t type, std::size_t devices, device_walk::state next) {
                if (number[next] == 0) return;
                auto& to = subsets_[number[next] - 1];
                to.into.push_back({n, static_cast<std::uint32_t>(kinds.number(type, devices))});
                to.fewest = std::min(to.fewest, from.fewest + 1);
                to.most = std::max(to.most, from.most + 1);
            });
        }
        return true;
    }

    [[nodiscard]] std::size_t size() const { return subsets_.size(); }
    [[nodiscard]] subset const& operator[](std::size_t n) const { return subsets_[n]; }

private:
    std::vector<subset> subsets_;
};

} // namespace heddle::detail
