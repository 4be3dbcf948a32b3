// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the concept `time_accumulator` asks for beyond its syntax, as checks on random steps.
///
/// These are for the tests of whoever writes an accumulator: `CHECK(broken_axioms<mine>().empty())` works in any
/// framework.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/cost/time_accumulator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// How long `broken_axioms` tries. Equal options give equal cases on any compiler.
struct axiom_options {
    std::uint64_t seed = 1;
    int cases = 2000;
    std::size_t most_classes = 3, most_steps = 8;
};

namespace detail {

/// Makes priced steps as a program may have them: computations, some of which wait for what they exchange, collectives,
/// and collectives of parameters once for all micro-batches.
class random_step_costs {
public:
    explicit random_step_costs(std::uint64_t seed) : engine_(seed) {}

    [[nodiscard]] std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
    [[nodiscard]] bool chance(double part) { return unit() < part; }
    [[nodiscard]] double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
    /// Costs are often zero and else one of a few values, so that maxima are equal now and then.
    [[nodiscard]] double cost() { return chance(0.4) ? 0 : static_cast<double>(1 + below(8)); }

    [[nodiscard]] step_cost nothing(std::size_t classes) const {
        step_cost s;
        s.forward = s.backward = s.update = s.memory = per_class(classes, 0.0);
        return s;
    }
    [[nodiscard]] step_cost step(std::size_t classes) {
        auto s = nothing(classes);
        if (chance(0.5)) {
            for (std::size_t k = 0; k < classes; ++k) s.forward[k] = cost(), s.backward[k] = cost();
            s.waits = chance(0.3);
            if (s.waits) s.forward_transfer = cost(), s.backward_transfer = cost();
            return s;
        }
        s.once = chance(0.4); // of a parameter
        s.forward_transfer = cost(), s.backward_transfer = cost();
        if (!s.once) return s;
        s.transient = chance(0.5) ? 1 : 0;
        s.deferred = cost(), s.refresh = cost();
        for (std::size_t k = 0; k < classes; ++k) s.update[k] = cost();
        return s;
    }
    [[nodiscard]] std::vector<step_cost> steps(std::size_t classes, std::size_t most) {
        std::vector<step_cost> result;
        for (auto n = below(most + 1); n > 0; --n) result.push_back(step(classes));
        return result;
    }
    /// Makes a step that costs more of something that it costs already. What it costs nothing of may begin a stage.
    [[nodiscard]] step_cost dearer(step_cost s) {
        std::vector<double*> parts{&s.forward_transfer, &s.backward_transfer, &s.deferred, &s.refresh};
        for (auto* list : {&s.forward, &s.backward, &s.update})
            for (double& part : *list) parts.push_back(&part);
        std::erase_if(parts, [](double const* part) { return *part == 0; });
        if (!parts.empty()) *parts[below(parts.size())] += 1 + cost();
        return s;
    }
    [[nodiscard]] relaxation_weights weights(relaxation_kind kind, std::size_t classes, std::size_t levels) {
        relaxation_weights w;
        for (auto* list : {&w.clock, &w.update}) {
            double sum = 0;
            for (std::size_t k = 0; k < classes; ++k) sum += list->emplace_back(unit() + 1e-3);
            for (double& weight : *list) weight /= sum;
        }
        if (kind == relaxation_kind::turns) {
            w.turns.emplace();
            for (auto n = below(5); n > 0; --n)
                w.turns->move(unit(), chance(0.2) ? std::nullopt : std::optional(below(levels + 1)));
        }
        if (kind == relaxation_kind::directions)
            for (auto* side : {&w.forward, &w.backward}) {
                side->work = unit();
                side->network = 1 - side->work;
                side->patient = side->network * unit();
            }
        return w;
    }

private:
    std::mt19937_64 engine_;
};

template <time_accumulator Accumulator>
class accumulator_check {
public:
    using label = typename Accumulator::label;

    accumulator_check(training_options const& training, axiom_options const& options)
        : training_(training), options_(options), random_(options.seed) {}

    std::vector<std::string> run() {
        for (int n = 0; n < options_.cases; ++n) check_case();
        return std::move(broken_);
    }

private:
    /// Allows for rounding.
    [[nodiscard]] static bool is_at_most(double a, double b) { return a <= b * (1 + 1e-12) + 1e-12; }

    void require(bool holds, std::string const& sentence) {
        if (holds || algorithm::find(broken_, sentence) != broken_.end()) return;
        broken_.push_back(sentence);
    }

    void check_case() {
        classes_ = 1 + random_.below(options_.most_classes);
        Accumulator const clock(classes_, training_);
        auto const steps = random_.steps(classes_, options_.most_steps);
        check_totals(clock, steps);
        check_dominance(clock, steps);
        if constexpr (Accumulator::relaxation != relaxation_kind::none) check_relaxation(clock, steps);
        if constexpr (joining_accumulator<Accumulator>) check_joining(clock, steps);
    }

    [[nodiscard]] label label_of(Accumulator const& clock, std::span<step_cost const> steps, label const& from) const {
        label result = from;
        for (auto const& s : steps) clock.extend(result, s);
        return result;
    }

    void check_totals(Accumulator const& clock, std::vector<step_cost> const& steps) {
        require(clock.total(clock.initial()) == 0, "no steps take time");
        auto at = clock.initial();
        double before = clock.total(at);
        for (auto const& s : steps) {
            auto const kept = at;
            clock.extend(at, s);
            double const now = clock.total(at);
            require(is_at_most(before, now), "a step makes the total less");
            require(clock.total(kept) == before, "a label changes when a copy of it is extended");
            before = now;
        }
        if (steps.empty()) return;
        auto changed = steps;
        auto const which = random_.below(steps.size());
        changed[which] = random_.dearer(changed[which]);
        require(is_at_most(before, clock.total(label_of(clock, changed, clock.initial()))),
                "the total is less where a step costs more");
        changed = steps;
        changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(which), random_.nothing(classes_));
        require(clock.total(label_of(clock, changed, clock.initial())) == before,
                "a step that costs nothing changes the total");
    }

    void check_dominance(Accumulator const& clock, std::vector<step_cost> const& common) {
        auto const start = label_of(clock, common, clock.initial());
        auto const a = label_of(clock, random_.steps(classes_, 2), start),
                   b = label_of(clock, random_.steps(classes_, 3), start);
        require(clock.dominates(a, a), "a label does not dominate itself");
        if (!clock.dominates(a, b)) return;
        for (int n = 0; n < 20; ++n) {
            auto const rest = random_.steps(classes_, 4);
            require(is_at_most(clock.total(label_of(clock, rest, a)), clock.total(label_of(clock, rest, b))),
                    "steps after a label that dominates take longer than after the other");
        }
    }

    void check_relaxation(Accumulator const& clock, std::vector<step_cost> const& steps) {
        auto const weights = random_.weights(Accumulator::relaxation, classes_, steps.size());
        double const total = clock.total(label_of(clock, steps, clock.initial()));
        double rest = 0;
        for (std::size_t level = steps.size() + 1; level-- > 0;) {
            if (level < steps.size()) rest += weights.price(steps[level], level, training_.micro_batches);
            auto const first = label_of(clock, std::span(steps).first(level), clock.initial());
            require(is_at_most(clock.relaxed(first, weights, level) + rest, total),
                    "a relaxation is above the total that it bounds");
        }
    }

    void check_joining(Accumulator const& clock, std::vector<step_cost> const& common) {
        auto const start = label_of(clock, common, clock.initial());
        auto const weights = random_.weights(Accumulator::relaxation, classes_, 1);
        auto a = label_of(clock, random_.steps(classes_, 3), start),
             b = label_of(clock, random_.steps(classes_, 3), start);
        if (random_.chance(0.5)) a = clock.joined(a, label_of(clock, random_.steps(classes_, 3), start), weights);
        auto const both = clock.joined(a, b, weights);
        auto aside = random_.nothing(classes_);
        aside.refresh = random_.chance(0.5) ? -random_.cost() : random_.cost();
        auto delayed = a;
        clock.extend(delayed, aside);
        for (int n = 0; n < 20; ++n) {
            auto const rest = random_.steps(classes_, 4);
            double const after_a = clock.total(label_of(clock, rest, a)),
                         after_b = clock.total(label_of(clock, rest, b));
            require(is_at_most(clock.total(label_of(clock, rest, both)), std::min(after_a, after_b)),
                    "steps after a joined label take longer than after one that is part of it");
            require(is_at_most(after_a, after_b + clock.most_later(a, b)),
                    "steps after a label take longer than after another by more than the most");
            double const without = clock.total(label_of(clock, rest, delayed)) - aside.refresh;
            require(is_at_most(without, after_a) && is_at_most(after_a, without),
                    "what follows the update is not part of every total");
        }
    }

    training_options const& training_;
    axiom_options const& options_;
    random_step_costs random_;
    std::size_t classes_ = 1;
    std::vector<std::string> broken_;
};

} // namespace detail

/// Returns a sentence for each axiom of `time_accumulator` that random steps show to be broken. An empty result is no
/// proof.
template <time_accumulator Accumulator>
[[nodiscard]] std::vector<std::string> broken_axioms(training_options const& training = {},
                                                     axiom_options const& options = {}) {
    return detail::accumulator_check<Accumulator>(training, options).run();
}

} // namespace heddle
