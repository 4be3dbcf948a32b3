// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A bound for programs in the order in which they are searched, by labels of which each state keeps a few.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/program_cost.hpp>
#include <heddle/cost/relaxation.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// How many labels a state keeps for a bound by fronts, and how many labels are compared at most, about. Where a graph is
/// so wide that levels take more comparisons than their part, states of the next keep fewer labels; what is left when
/// all are spent counts as in the relaxation.
struct front_effort {
    std::size_t labels;
    double comparisons = 2e7;
};

namespace detail {

template <joining_accumulator Accumulator>
class front_bound {
public:
    front_bound(priced_graph const& priced, relaxation const& under, double most, front_effort const& effort)
        : priced_(priced), under_(under), clock_(priced), most_(most + under.credit), effort_(effort),
          front_(effort.labels), charges_(std::span(priced.bucket_charges()).first(kinds_of(priced))),
          ways_(priced.graph().bundle_count()), made_for_(priced.graph().bundle_count(), priced.graph().level_count()) {
        per_class const none(priced.model().class_count(), 0.0);
        aside_ = {.forward = none, .backward = none, .update = none, .memory = none};
    }

    [[nodiscard]] double bound() {
        auto const& graph = priced_.graph();
        std::vector<label_list> here(1), there;
        here[0].push_back(with_value({clock_.start().time}, 0));
        for (std::size_t level = 0; level + 1 < graph.level_count(); ++level) {
            if (comparisons_ > effort_.comparisons) return by_relaxation(here, level);
            auto const& segment = graph.from_level(level);
            there.assign(graph.first_of_level[level + 2] - graph.first_of_level[level + 1], {});
            for (std::size_t n = 0; n < here.size(); ++n) {
                if (here[n].empty()) continue;
                double const of_level = static_cast<double>(n) / static_cast<double>(here.size());
                keep_within_part((static_cast<double>(level) + of_level) / static_cast<double>(graph.level_count()));
                double const least = algorithm::min_element(here[n], {}, &label::value)->value;
                for (auto const& link : segment.out(n))
                    if (least + under_.paths.through(level, link) <= most_)
                        extend(here[n], least, level, link, segment.bundles[link.bundle], there[link.to]);
            }
            here.swap(there);
        }
        double best = most_;
        for (auto const& labels : here)
            for (auto const& l : labels) best = std::min(best, clock_.time().total(l.time) + left_empty(l));
        return std::max(best - under_.credit, under_.bound());
    }

private:
    /// Gradients of kinds beyond these count as in the relaxation, and so do all that something may run beside.
    static constexpr std::size_t most_kinds = 8;
    [[nodiscard]] static std::size_t kinds_of(priced_graph const& priced) {
        bool const follow_work = Accumulator::relaxation == relaxation_kind::clocks;
        return follow_work ? std::min(priced.bucket_charges().size(), most_kinds) : 0;
    }
    struct label {
        /// What the moves so far leave; what they add to memory and links, and closed buckets left empty, is in it.
        typename Accumulator::label time;
        /// The bytes for which open buckets have room, by kind.
        std::array<double, most_kinds> room{};
        /// What it is in the relaxation.
        double value = 0;
    };
    using label_list = std::vector<label>;
    /// A move: its price in the relaxation, its steps, what it adds to memory and links, and its gradients.
    struct way {
        cut_space::action move;
        double price, beside = 0;
        std::vector<step_cost const*> steps;
        std::vector<bucket_share> gradients;
    };

    /// Chooses how many labels states keep, where a part of the levels is done.
    void keep_within_part(double done) {
        constexpr std::size_t fewest = 2;
        bool const is_over = comparisons_ > done * effort_.comparisons;
        front_ =
            is_over ? std::max(front_ / 2, std::min(fewest, effort_.labels)) : std::min(2 * front_, effort_.labels);
    }
    /// Returns the bound of programs of which the first levels are labels, and the others as in the relaxation.
    [[nodiscard]] double by_relaxation(std::vector<label_list> const& here, std::size_t level) const {
        double best = most_;
        for (std::size_t n = 0; n < here.size(); ++n) {
            double const rest =
                under_.paths.to_goal({static_cast<std::uint32_t>(level), static_cast<std::uint32_t>(n)});
            for (auto const& l : here[n]) best = std::min(best, l.value + rest);
        }
        return std::max(best - under_.credit, under_.bound());
    }

    void extend(label_list const& from, double least, std::size_t level, search::segment_link const& link,
                std::uint32_t bundle, label_list& to) {
        double const rest = under_.paths.to_goal({static_cast<std::uint32_t>(level + 1), link.to});
        for (auto const& by : ways_over(level, bundle)) {
            if (least + by.price + rest > most_) return;
            for (auto const& l : from) {
                if (l.value + by.price + rest > most_) continue;
                if (auto next = extended(l, by, level); next.value + rest <= most_)
                    insert(to, std::move(next), level + 1);
            }
        }
    }

    /// Returns the moves of a bundle, the cheapest first.
    std::vector<way> const& ways_over(std::size_t level, std::uint32_t bundle) {
        auto& ways = ways_[bundle];
        if (std::exchange(made_for_[bundle], level) == level) return ways;
        ways.clear();
        auto const& weights = under_.weights;
        for (auto a : priced_.graph().bundle(bundle)) {
            auto const move = priced_.price(level, a);
            way one{a, weighted_price(move, weights, weights.time.at(level)), 0, {}, priced_.gradients(level, a)};
            std::erase_if(one.gradients, [this](bucket_share const& g) { return g.kind >= charges_.size(); });
            for (std::size_t k = 0; k < move.memory.size(); ++k) one.beside += weights.memory[k] * move.memory[k];
            if (!weights.links.empty())
                for (auto link : move.links) one.beside += weights.links[link];
            auto const op = priced_.space().operator_of(level, a);
            for (auto i : priced_.instructions_of(a)) one.steps.push_back(&priced_.instruction(op, i));
            ways.push_back(std::move(one));
        }
        algorithm::sort(ways, {}, [](way const& w) { return std::pair(w.price, w.move); });
        return ways;
    }

    [[nodiscard]] label extended(label l, way const& by, std::size_t level) {
        if constexpr (staged_accumulator<Accumulator>)
            if (priced_.space().moves()[by.move].begins_stage) clock_.time().close(l.time);
        for (auto const* step : by.steps) clock_.time().extend(l.time, *step);
        double beside = by.beside;
        for (auto const& [kind, size] : by.gradients) {
            auto const& charge = charges_[kind];
            double& room = l.room[kind];
            if (size > room) {
                beside += charge.first + charge.per_byte * room;
                room = charge.capacity;
            }
            room -= size;
        }
        delay(l, beside);
        return with_value(std::move(l), level + 1);
    }
    [[nodiscard]] label with_value(label l, std::size_t level) const {
        l.value = clock_.time().relaxed(l.time, under_.weights.time, level);
        return l;
    }
    /// Adds seconds to whatever the label's total becomes.
    void delay(label& l, double seconds) {
        aside_.refresh = seconds;
        clock_.time().extend(l.time, aside_);
    }
    /// Returns what the label's total lacks of open buckets, if nothing more comes into them.
    [[nodiscard]] double left_empty(label const& l) const {
        double sum = 0;
        for (std::size_t k = 0; k < charges_.size(); ++k) sum += charges_[k].per_byte * l.room[k];
        return sum;
    }

    /// Returns the most by which `a` may end later than `b`. More room is never worse, and less may take one bucket
    /// more.
    [[nodiscard]] double most_later(label const& a, label const& b) const {
        double sum = clock_.time().most_later(a.time, b.time);
        for (std::size_t k = 0; k < charges_.size(); ++k)
            sum += charges_[k].per_byte * (a.room[k] - b.room[k]) + (a.room[k] < b.room[k] ? charges_[k].latency : 0);
        return sum;
    }
    /// What no other label dominates stays; of a full list one becomes part of another.
    void insert(label_list& labels, label l, std::size_t level) {
        comparisons_ += static_cast<double>(labels.size() + 1);
        if (algorithm::any_of(labels, [&](label const& other) { return most_later(other, l) <= 0; })) return;
        std::erase_if(labels, [&](label const& other) { return most_later(l, other) <= 0; });
        if (labels.size() < front_) return labels.push_back(std::move(l));
        label best;
        double least = std::numeric_limits<double>::infinity();
        for (auto const& other : labels) {
            auto both = joined(other, l, level);
            double const lost = std::max(loss(other, both), loss(l, both));
            if (lost < least) least = lost, best = std::move(both);
        }
        std::erase_if(labels, [&](label const& other) { return most_later(best, other) <= 0; });
        labels.push_back(std::move(best));
    }
    /// Returns what a label loses as part of another one.
    [[nodiscard]] double loss(label const& part, label const& all) const {
        double sum = clock_.time().most_later(part.time, all.time) + left_empty(part) - left_empty(all);
        for (std::size_t k = 0; k < charges_.size(); ++k)
            if (double const more = all.room[k] - part.room[k]; more > 0)
                sum += charges_[k].per_byte > 0 ? charges_[k].per_byte * more : charges_[k].latency;
        return sum;
    }
    /// Returns a label that ends no later than either, whatever follows.
    [[nodiscard]] label joined(label a, label b, std::size_t level) {
        delay(a, left_empty(a));
        delay(b, left_empty(b));
        for (std::size_t k = 0; k < charges_.size(); ++k) a.room[k] = std::max(a.room[k], b.room[k]);
        a.time = clock_.time().joined(a.time, b.time, under_.weights.time);
        delay(a, -left_empty(a));
        return with_value(std::move(a), level);
    }

    priced_graph const& priced_;
    relaxation const& under_;
    program_clock<Accumulator> clock_;
    double most_;
    front_effort effort_;
    std::size_t front_;      // labels that a state keeps now
    double comparisons_ = 0; // so far
    std::span<bucket_charge const> charges_;
    step_cost aside_;
    /// By bundle, its ways and the level that they were made for.
    std::vector<std::vector<way>> ways_;
    std::vector<std::size_t> made_for_;
};

} // namespace detail

/// Returns a lower bound, at most `most`, of the time of every program of the graph that fits, with the operators in
/// the graph's order and conversions before what takes their results. It is the relaxation's at least; but devices wait
/// for each other at each collective, and what is left empty of a bucket counts.
///
/// The relaxation takes work as a mean over the classes, and a gradient as its part of a full bucket. Here labels of
/// the accumulator go through the graph from its start, each with the room in its open buckets: to begin the next
/// bucket where a gradient does not fit takes the fewest, from either end of the program. Where a state has more than
/// `effort.labels` labels, two become one that ends no later than either.
/// *Precondition:* the relaxation's weights are for all sets of small buckets.
/// *Complexity.* Linear in the links and moves of programs whose relaxed cost is at most `most`, times the labels, and
/// for new labels times the labels again; about `effort.comparisons` of these at most.
template <joining_accumulator Accumulator>
[[nodiscard]] double bound_by_fronts(priced_graph const& priced, relaxation const& under, double most,
                                     front_effort const& effort) {
    return under.bound() < most ? std::min(most, detail::front_bound<Accumulator>(priced, under, most, effort).bound())
                                : most;
}

} // namespace heddle
