// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A bound for programs whose gradients are reduced in buckets, each of which has all of its latency.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Returns a lower bound, at most `most`, of the time of every program of the graph that fits, with the operators in
/// the graph's order, if gradients follow the backward pass. It is the relaxation's, but what is left empty of a bucket
/// counts too.
///
/// The relaxation takes a gradient as its part of a full bucket. To begin the next bucket where a gradient does not fit
/// takes the fewest, from either end of the program. So labels go through the graph from its start. Each has the
/// relaxation's cost so far, with what the buckets that were closed left empty, and the room in those that are open.
/// More room is never worse, and less may take one bucket more. Where a state has more than `front` labels, two become
/// one, with the lesser cost and the larger rooms.
/// *Precondition:* the relaxation's weights count gradients in full, and are for all sets of small buckets.
/// *Complexity.* Linear in the links and moves of programs whose relaxed cost is at most `most`, times `front`, and for
/// new labels times `front` again.
[[nodiscard]] double bound_with_whole_buckets(priced_graph const& priced, relaxation const& under, double most,
                                              std::size_t front = 16);

namespace detail {

class whole_buckets {
public:
    whole_buckets(priced_graph const& priced, relaxation const& under, double most, std::size_t front);
    [[nodiscard]] double bound();

private:
    /// Gradients of kinds beyond these count as in the relaxation.
    static constexpr std::size_t most_kinds = 8;
    struct label {
        /// The relaxation's cost and what closed buckets left empty; and that with all of the open buckets.
        double closed = 0, whole = 0;
        /// The bytes for which open buckets have room, by kind.
        std::array<double, most_kinds> room{};
    };
    /// A move's price in the relaxation, and its gradients.
    struct way {
        double price = 0;
        std::vector<bucket_share> gradients;
    };

    /// The ways over a bundle of moves on a level, each at its least price.
    std::vector<way> const& ways_over(std::size_t level, std::uint32_t bundle);
    [[nodiscard]] label extended(label l, way const& by) const;
    [[nodiscard]] bool dominates(label const& a, label const& b) const;
    /// What no other label dominates stays; of a full list one becomes part of another.
    void insert(std::vector<label>& labels, label l) const;
    [[nodiscard]] label joined(label a, label const& b) const;
    /// Returns what a label may cost less as part of others.
    [[nodiscard]] double loss(label const& all, label const& part) const;

    priced_graph const& priced_;
    relaxation const& under_;
    double most_;
    std::size_t front_;
    std::span<bucket_charge const> charges_;
    /// By bundle, its ways and the level that they were made for.
    std::vector<std::vector<way>> ways_;
    std::vector<std::size_t> made_for_;
};

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE whole_buckets::whole_buckets(priced_graph const& priced, relaxation const& under, double most,
                                           std::size_t front)
    : priced_(priced), under_(under), most_(most - under.beside()), front_(front),
      charges_(std::span(priced.bucket_charges()).first(std::min(priced.bucket_charges().size(), most_kinds))),
      ways_(priced.graph().bundle_count()), made_for_(priced.graph().bundle_count(), priced.graph().level_count()) {}

HEDDLE_INLINE double whole_buckets::bound() {
    auto const& graph = priced_.graph();
    std::vector<std::vector<label>> here(1), there;
    here[0].emplace_back();
    for (std::size_t level = 0; level + 1 < graph.level_count(); ++level) {
        auto const& segment = graph.from_level(level);
        there.assign(graph.first_of_level[level + 2] - graph.first_of_level[level + 1], {});
        for (std::size_t n = 0; n < here.size(); ++n) {
            if (here[n].empty()) continue;
            double const least = algorithm::min_element(here[n], {}, &label::closed)->closed;
            for (auto const& link : segment.out(n)) {
                if (least + under_.paths.through(level, link) > most_) continue;
                double const rest = under_.paths.to_goal({static_cast<std::uint32_t>(level + 1), link.to});
                for (auto const& by : ways_over(level, segment.bundles[link.bundle])) {
                    if (least + by.price + rest > most_) continue;
                    for (auto const& l : here[n])
                        if (auto next = extended(l, by); next.closed + rest <= most_) insert(there[link.to], next);
                }
            }
        }
        here.swap(there);
    }
    double best = most_;
    for (auto const& labels : here)
        for (auto const& l : labels) best = std::min(best, l.whole);
    return best + under_.beside();
}

HEDDLE_INLINE std::vector<whole_buckets::way> const& whole_buckets::ways_over(std::size_t level, std::uint32_t bundle) {
    auto& ways = ways_[bundle];
    if (std::exchange(made_for_[bundle], level) == level) return ways;
    ways.clear();
    for (auto a : priced_.graph().bundle(bundle)) {
        way one{weighted_price(priced_, under_.weights, level, a), priced_.gradients(level, a)};
        std::erase_if(one.gradients, [this](bucket_share const& g) { return g.kind >= charges_.size(); });
        auto const same = algorithm::find(ways, one.gradients, &way::gradients);
        if (same == ways.end()) ways.push_back(std::move(one));
        else same->price = std::min(same->price, one.price);
    }
    return ways;
}

HEDDLE_INLINE whole_buckets::label whole_buckets::extended(label l, way const& by) const {
    l.closed += by.price;
    for (auto const& [kind, size] : by.gradients) {
        auto const& charge = charges_[kind];
        double& room = l.room[kind];
        if (size > room) {
            l.closed += charge.first + charge.per_byte * room;
            room = charge.capacity;
        }
        room -= size;
    }
    l.whole = l.closed;
    for (std::size_t k = 0; k < charges_.size(); ++k) l.whole += charges_[k].per_byte * l.room[k];
    return l;
}

HEDDLE_INLINE bool whole_buckets::dominates(label const& a, label const& b) const {
    double most = a.whole;
    for (std::size_t k = 0; k < charges_.size(); ++k) most += a.room[k] < b.room[k] ? charges_[k].latency : 0;
    return most <= b.whole;
}

HEDDLE_INLINE void whole_buckets::insert(std::vector<label>& labels, label l) const {
    if (algorithm::any_of(labels, [&](label const& other) { return dominates(other, l); })) return;
    std::erase_if(labels, [&](label const& other) { return dominates(l, other); });
    if (labels.size() < front_) return labels.push_back(l);
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t n = 0; n < labels.size(); ++n) {
        auto const both = joined(labels[n], l);
        double const lost = std::max(loss(both, labels[n]), loss(both, l));
        if (lost < least) least = lost, best = n;
    }
    l = joined(labels[best], l);
    std::erase_if(labels, [&](label const& other) { return dominates(l, other); });
    labels.push_back(l);
}

HEDDLE_INLINE whole_buckets::label whole_buckets::joined(label a, label const& b) const {
    a.closed = a.whole = std::min(a.whole, b.whole);
    for (std::size_t k = 0; k < charges_.size(); ++k) {
        a.room[k] = std::max(a.room[k], b.room[k]);
        a.closed -= charges_[k].per_byte * a.room[k];
    }
    return a;
}

HEDDLE_INLINE double whole_buckets::loss(label const& all, label const& part) const {
    double sum = part.whole - all.whole;
    for (std::size_t k = 0; k < charges_.size(); ++k)
        if (all.room[k] > part.room[k])
            sum += charges_[k].per_byte > 0 ? charges_[k].per_byte * (all.room[k] - part.room[k]) : charges_[k].latency;
    return sum;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE double bound_with_whole_buckets(priced_graph const& priced, relaxation const& under, double most,
                                              std::size_t front) {
    if (under.bound() >= most) return most;
    return detail::whole_buckets(priced, under, most, front).bound();
}

} // namespace heddle

#endif
