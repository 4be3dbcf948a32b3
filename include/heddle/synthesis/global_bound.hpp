// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A bound for every program at any sharding ratios.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/cost/work.hpp>
#include <heddle/theory/cut_space.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Returns the least of a sum over classes of convex functions of their shares, which sum to one over the devices, and
/// the shares at which it is reached. `at(k, x)` is the sum over class k's devices, each with share x; it is a line
/// between the shares `bends[k]`.
template <class Function>
[[nodiscard]] std::pair<double, share_vector> least_over_shares(std::span<device_class const> classes,
                                                                Function const& at,
                                                                std::vector<std::vector<double>> bends) {
    struct line {
        double slope, length;
        std::size_t k;
    };
    std::vector<line> lines;
    double value = 0;
    for (std::size_t k = 0; k < classes.size(); ++k) {
        double const all = 1.0 / classes[k].count;
        std::erase_if(bends[k], [all](double x) { return !(x > 0 && x < all); });
        bends[k].push_back(all);
        algorithm::sort(bends[k]);
        double from = 0, before = at(k, 0.0);
        value += before;
        for (double to : bends[k]) {
            if (to <= from) continue;
            double const after = at(k, to);
            lines.push_back({(after - before) / (to - from) / classes[k].count, to - from, k});
            from = to;
            before = after;
        }
    }
    algorithm::sort(lines, {}, &line::slope);
    share_vector shares(classes.size());
    double left = 1;
    for (auto const& l : lines) {
        double const length = std::min(l.length, left / classes[l.k].count);
        shares[l.k] += length;
        value += l.slope * length * classes[l.k].count;
        left -= length * classes[l.k].count;
    }
    return {value, std::move(shares)};
}

/// What instructions cost under weights if each has the shares that are best for it alone. A class stands for all
/// devices of a type: their weights are equal, and a mean of convex functions is no less than the function of the mean.
class least_prices {
public:
    least_prices(cut_space const& space, std::span<step_work const> steps, cost_model const& model,
                 multipliers const& weights)
        : space_(space), steps_(steps), model_(model), weights_(weights),
          even_(share_vector(model.class_count(), 1.0 / model.ranks())), none_(share_vector(model.class_count(), 0.0)),
          moves_(weights.time.part_count()), instructions_(2 * weights.time.part_count()),
          prices_memory_(algorithm::any_of(weights.memory, [](double w) { return w > 0; })) {}

    [[nodiscard]] double operator()(std::size_t level, cut_space::action a) const;
    [[nodiscard]] std::uint64_t alike(std::size_t level) const { return weights_.time.part_of(level); }

    /// Returns the seconds of each class's work, and of its update, in a path in which each instruction has its own
    /// best shares.
    [[nodiscard]] std::pair<std::vector<double>, std::vector<double>> loads(move_list const& path) const;

private:
    /// Returns the weights of a move, and whether they are those of the level.
    [[nodiscard]] std::pair<side_weights, bool> side_of(cut_space::action a, side_weights side) const;
    /// Returns the seconds of one device's work, as the weights count its directions, and of its update. If efficiency
    /// depends on the size they are a lower bound, so that they are convex in the share.
    [[nodiscard]] std::pair<double, double> seconds_of(step_work const& s, side_weights side, std::size_t k,
                                                       double share) const;
    [[nodiscard]] std::pair<double, share_vector> of(step_work const& s, side_weights side) const;
    /// Returns the weighted memory of what is kept.
    [[nodiscard]] double of(holding const& h, bool split) const;
    /// Returns a lower bound of the time of transfers. Padded and grouped shards alike move fastest when they are
    /// equal; what equal shares do not move at all may cost nothing.
    [[nodiscard]] double least(transfer_list const& transfers, bool are_gradients = false) const;

    cut_space const& space_;
    std::span<step_work const> steps_;
    cost_model const& model_;
    multipliers const& weights_;
    uniform_shares even_, none_;
    /// Numbers that are computed when they are asked for.
    struct number_list {
        std::vector<double> numbers;
        double& at(std::size_t n, std::size_t size);
    };
    /// The numbers of moves, by part of the program, and of instructions, by part and by whether the weights are those
    /// of the level.
    mutable std::vector<number_list> moves_, instructions_;
    bool prices_memory_;
};

} // namespace detail

/// Returns a lower bound of the time of every program of a graph at any ratios, of any segments and rounded in any way.
/// It is a relaxation (see `relaxation`) in which each instruction has the shares that are best for it. If the clocks'
/// weights are proportional to the speeds of classes, shares make little difference to it; the search starts from them
/// and takes subgradient steps. `model` has a class per type; `steps` are of the space's instructions; `weights` gives
/// those of turns and memory, by these classes.
/// *Complexity.* Linear in the graph, per round.
[[nodiscard]] double global_lower_bound(cut_space const& space, cut_graph const& graph,
                                        std::span<step_work const> steps, cost_model const& model, multipliers weights,
                                        std::vector<double> const& speeds, int rounds);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/relaxation.hpp>

namespace heddle::detail {

HEDDLE_INLINE double least_prices::operator()(std::size_t level, cut_space::action a) const {
    auto const part = alike(level);
    double& known = moves_[part].at(a, space_.moves().size());
    if (std::isnan(known)) {
        known = 0;
        auto const [side, is_usual] = side_of(a, weights_.time.of_part(part));
        for (auto i : space_.moves()[a].instructions) {
            double& price = instructions_[2 * part + std::size_t{is_usual}].at(i, steps_.size());
            if (std::isnan(price)) price = of(steps_[i], side).first;
            known += price;
        }
        if (prices_memory_)
            for (auto const& [t, f] : space_.moves()[a].saved)
                known += of(saved_bytes(space_.program(), t, f, 1), f.is_shard());
    }
    return known;
}

HEDDLE_INLINE std::pair<std::vector<double>, std::vector<double>> least_prices::loads(move_list const& path) const {
    std::vector<double> of_work(model_.class_count()), of_updates(model_.class_count());
    for (std::size_t level = 0; level < path.size(); ++level) {
        auto const side = side_of(path[level], weights_.time.at(level)).first;
        for (auto i : space_.moves()[path[level]].instructions) {
            auto const shares = of(steps_[i], side).second;
            for (std::size_t k = 0; k < of_work.size(); ++k) {
                auto const [work, update] = seconds_of(steps_[i], side, k, steps_[i].share.is_split() ? shares[k] : 1);
                of_work[k] += work;
                of_updates[k] += update;
            }
        }
    }
    return {std::move(of_work), std::move(of_updates)};
}

HEDDLE_INLINE std::pair<side_weights, bool> least_prices::side_of(cut_space::action a, side_weights side) const {
    bool const waits = gradients_follow_work(space_.moves()[a].instructions, steps_);
    if (!waits) side.backward = side.beside;
    return {side, waits};
}

HEDDLE_INLINE std::pair<double, double> least_prices::seconds_of(step_work const& s, side_weights side, std::size_t k,
                                                                 double share) const {
    auto const least = [&](bool is_backward) {
        return model_.least_time(s.work(is_backward), k, kernel_of(s, is_backward), s.share.is_split(), share);
    };
    double const forward = least(false);
    return {forward + model_.time(s.inside_forward, k, share) +
                side.backward *
                    (least(true) + (s.runs_again ? forward : 0) + model_.time(s.inside_backward, k, share)) +
                model_.time(s.deferred, k, kernel_of(s, true), false, 1),
            model_.part_of_update() *
                (cost_model::at(s.update, share) / model_.bandwidth(k) + model_.time(s.inside_update, k, share))};
}

HEDDLE_INLINE std::pair<double, share_vector> least_prices::of(step_work const& s, side_weights side) const {
    double const transfers = least(s.forward_transfers) + least(s.backward_transfers) +
                             model_.part_of_update() * least(s.update_transfers) +
                             side.gradients * least(s.deferred_transfers, s.reduces_gradients());
    auto const at = [&](std::size_t k, double share) {
        double const held = cost_model::at(model_.on_member(s.stored, k), share) +
                            s.counted * cost_model::at(model_.on_member(s.saved, k), share);
        auto const [work, update] = seconds_of(s, side, k, share);
        return weights_.time.clock[k] * work + weights_.time.update[k] * update + weights_.memory[k] * held;
    };
    if (!s.share.is_split()) {
        double sum = transfers;
        for (std::size_t k = 0; k < model_.class_count(); ++k) sum += at(k, 1);
        return {sum, {}};
    }
    if (model_.class_count() == 1) {
        double const share = 1.0 / model_.ranks();
        return {transfers + at(0, share), {share}};
    }
    std::vector<std::vector<double>> bends(model_.class_count());
    for (std::size_t k = 0; k < bends.size(); ++k)
        for (bool const is_backward : {false, true}) {
            auto const& work = s.work(is_backward);
            if (!work.launches) continue;
            auto const lines = model_.lines_below(work, k, kernel_of(s, is_backward));
            for (auto a = lines.begin(); a != lines.end(); ++a)
                for (auto b = lines.begin(); b != a; ++b)
                    if (a->slope != b->slope) bends[k].push_back((b->constant - a->constant) / (a->slope - b->slope));
        }
    auto result = least_over_shares(model_.classes(), at, std::move(bends));
    result.first += transfers;
    return result;
}

HEDDLE_INLINE double least_prices::of(holding const& h, bool split) const {
    auto const at = [&](std::size_t k, double share) {
        return weights_.memory[k] * cost_model::at(model_.on_member(h, k), share);
    };
    if (split)
        return least_over_shares(model_.classes(), at, std::vector<std::vector<double>>(model_.class_count())).first;
    double sum = 0;
    for (std::size_t k = 0; k < model_.class_count(); ++k) sum += at(k, 1);
    return sum;
}

HEDDLE_INLINE double least_prices::least(transfer_list const& transfers, bool are_gradients) const {
    double sum = 0;
    for (transfer t : transfers) {
        if (t.redistributes) continue;
        auto const time_across = [&] {
            return are_gradients && fits_bucket(t, model_.bucket())
                       ? model_.time_in_bucket(t, even_)
                       : (are_gradients ? model_.part_of_update() : 1) * model_.time_across(t, even_);
        };
        double across = time_across();
        if (!t.how && has_grouped_kind(t.kind)) {
            t.how = uneven::grouped;
            across = std::min(across, time_across());
        }
        sum += across + model_.time_inside_groups(t.before, t.size, t.from, none_) +
               model_.time_inside_groups(t.after, t.size, t.to, none_);
    }
    return sum;
}

HEDDLE_INLINE double& least_prices::number_list::at(std::size_t n, std::size_t size) {
    if (numbers.empty()) numbers.assign(size, std::numeric_limits<double>::quiet_NaN());
    return numbers[n];
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE double global_lower_bound(cut_space const& space, cut_graph const& graph,
                                        std::span<step_work const> steps, cost_model const& model, multipliers weights,
                                        std::vector<double> const& speeds, int rounds) {
    double best = 0, credit = 0;
    auto &clock = weights.time.clock, &update = weights.time.update;
    for (std::size_t k = 0; k < clock.size(); ++k) {
        clock[k] = speeds[k] * model.classes()[k].count;
        credit += weights.memory[k] * model.memory_limit(k);
    }
    shift_weights(clock, clock, 0);
    update = clock;
    for (int round = 0, setbacks = 0; round < rounds; ++round) {
        detail::least_prices const prices(space, steps, model, weights);
        auto const paths = search::paths_to_goal(graph, prices);
        if (!std::isfinite(paths.to_goal())) return best;
        double const bound = paths.to_goal() - credit;
        if (bound > best) best = bound;
        else ++setbacks;
        auto const [work, updates] = prices.loads(search::follow(graph, paths));
        shift_weights(clock, work, 0.2 / std::sqrt(1.0 + setbacks));
        shift_weights(update, updates, 0.2 / std::sqrt(1.0 + setbacks));
    }
    return best;
}

} // namespace heddle

#endif
