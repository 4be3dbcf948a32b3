// SPDX-License-Identifier: BSL-1.0
// The search core on a problem that has nothing to do with training: crossing a bridge at night.
// Four people, one torch, at most two on the bridge; a pair walks at the pace of the slower one.
#include <heddle/search/best_first.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

namespace {

/// Bit p says that person p is across; bit 4 says that the torch is.
struct bridge {
    using state = unsigned;
    using label = double;
    using action = std::array<int, 2>;
    static constexpr std::array minutes{1.0, 2.0, 5.0, 10.0};

    std::pair<state, label> initial() const { return {0u, 0.0}; }
    bool is_goal(state s) const { return (s & 15u) == 15u; }
    double total(label l) const { return l; }
    bool dominates(label a, label b) const { return a <= b; }
    /// Whoever is slowest on this side still has to cross.
    double bound(state s, label l) const {
        double slowest = 0;
        for (unsigned p = 0; p < 4; ++p)
            if (!(s >> p & 1u)) slowest = std::max(slowest, minutes[p]);
        return l + slowest;
    }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        unsigned const here = s >> 4;
        for (int p = 0; p < 4; ++p)
            for (int q = p; q < 4; ++q) {
                unsigned const moved = 1u << p | 1u << q;
                if (((here ? ~s : s) & moved) != 0) continue;
                visit(action{p, q}, s ^ moved ^ 16u,
                      l + std::max(minutes[static_cast<unsigned>(p)], minutes[static_cast<unsigned>(q)]));
            }
    }
};

} // namespace

int main() {
    auto const result = heddle::search::best_first(bridge{});
    std::printf("%s: %g minutes\n", heddle::search::name(result.status), result.cost.value());
    bool back = false;
    for (auto const& [p, q] : result.actions) {
        std::printf("  %s", back ? "back  " : "across");
        std::printf(p == q ? " %g\n" : " %g and %g\n", bridge::minutes[static_cast<unsigned>(p)],
                    bridge::minutes[static_cast<unsigned>(q)]);
        back = !back;
    }
}
