// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Bounds for `property_space`.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/properties/landmark_cuts.hpp>
#include <heddle/search/properties/property_set.hpp>
#include <heddle/search/properties/stubborn_set.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace heddle::search {

/// The members of a bound that looks at state and cost alone.
///
/// The memory of a bound is kept with each label and follows the path. `landmark` returns actions of which every way on
/// takes one, or none. Among equal labels, those by actions that a bound prefers are tried first. `bound(costs, state,
/// spent, memory)` is at most the total of every completion.
struct memoryless_bound {
    struct memory {};
    [[nodiscard]] memory start() const { return {}; }
    void follow(memory&, property_task::action) const {}
    [[nodiscard]] std::span<property_task::action const> landmark(memory const&) const { return {}; }
    [[nodiscard]] bool prefers(property_task::action) const { return false; }
    [[nodiscard]] std::size_t bytes(memory const&) const { return 0; }
};

/// The bound that knows nothing of what is to come: it is what has been spent.
struct blind_bound : memoryless_bound {
    template <class Accumulator>
    [[nodiscard]] double operator()(Accumulator const& costs, property_set const&,
                                    typename Accumulator::label const& spent, memory const&) const {
        return costs.total(spent);
    }
};

/// Adds to what has been spent the weights of the landmark cuts that the path has not met; if an accumulator has
/// several relaxations, each has cuts. Cuts are found once; a step takes time in the cuts it meets.
class landmark_bound {
public:
    struct memory {
        property_set met;
        /// What is left to pay in each relaxation.
        boost::container::small_vector<double, 2> rests;
    };

    /// `groups` are those of `find_landmark_cuts`. No references are kept.
    template <class Accumulator>
    landmark_bound(property_task const& task, Accumulator const& costs, std::span<std::uint32_t const> groups = {}) {
        std::vector<double> charged(task.action_count());
        for (std::size_t n = 0; n < costs.relaxation_count(); ++n) {
            for (property_task::action a = 0; a < charged.size(); ++a) charged[a] = costs.relaxed_cost(n, a);
            first_.push_back(count_);
            relaxations_.push_back(find_landmark_cuts(task, charged, groups));
            count_ += relaxations_.back().weights.size();
        }
    }

    /// Returns the cuts of each relaxation.
    [[nodiscard]] std::span<landmark_cuts const> cuts() const { return relaxations_; }
    /// Tells whether a cheapest way would cost what the bound says if nothing needed were ever removed; then A* goes
    /// straight to it.
    [[nodiscard]] bool is_tight() const {
        return algorithm::all_of(relaxations_, [](auto const& cuts) { return cuts.is_tight(); });
    }

    [[nodiscard]] memory start() const;
    void follow(memory& m, property_task::action a) const;
    [[nodiscard]] std::span<property_task::action const> landmark(memory const& m) const;
    [[nodiscard]] std::size_t bytes(memory const& m) const { return m.met.words().size_bytes(); }
    [[nodiscard]] bool prefers(property_task::action a) const { return relaxations_.front().on_way[a] != 0; }
    template <class Accumulator>
    [[nodiscard]] double operator()(Accumulator const& costs, property_set const&,
                                    typename Accumulator::label const& spent, memory const& m) const {
        return costs.total_after(spent, std::span<double const>(m.rests.data(), m.rests.size()));
    }

private:
    std::vector<landmark_cuts> relaxations_;
    /// The number of the first cut of each relaxation among all cuts.
    std::vector<std::size_t> first_;
    std::size_t count_ = 0;
};

} // namespace heddle::search

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE landmark_bound::memory landmark_bound::start() const {
    memory m{property_set(count_), {}};
    for (auto const& cuts : relaxations_) m.rests.push_back(cuts.total);
    return m;
}

HEDDLE_INLINE void landmark_bound::follow(memory& m, property_task::action a) const {
    for (std::size_t n = 0; n < relaxations_.size(); ++n)
        for (auto cut : relaxations_[n].cuts_of[a]) {
            if (m.met.contains(first_[n] + cut)) continue;
            m.met.insert(first_[n] + cut);
            m.rests[n] -= relaxations_[n].weights[cut];
        }
}

HEDDLE_INLINE std::span<property_task::action const> landmark_bound::landmark(memory const& m) const {
    auto const cut = m.met.first_missing();
    return cut < relaxations_.front().weights.size() ? relaxations_.front().actions[cut]
                                                     : std::span<property_task::action const>{};
}

} // namespace heddle::search

#endif
