// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans stages of pipelines by the planners of one stage, those that are alike once.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/detail/device_places.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/known_computations.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/recomputed_plans.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::detail {

/// How plans of one stage are found, by whatever planner needs a solver of ratios.
struct stage_planners {
    std::function<plan(program const&, cluster const&, planning_options const&)> one_axis;
    std::function<plan(program const&, cluster const&, planning_options const&)> turns;
    /// As above, where the program is one of the micro-batches that take turns.
    std::function<plan(program const&, cluster const&, planning_options const&)> part_in_turns;
    std::function<plan(program const&, cluster const&, mesh const&, mesh_search_options const&)> on_mesh;
};

/// *Lifetime:* refers to the solver.
template <ratio_solver Solver>
[[nodiscard]] stage_planners stage_planners_by(Solver& solver) {
    stage_planners planners;
    planners.one_axis = [&solver](heddle::program const& p, cluster const& on, planning_options const& o) {
        return plan_hap(p, on, solver, o);
    };
    auto const as_hidup = [](planning_options asked) {
        auto const own = hidup_options{}.planning;
        asked.cuts = own.cuts;
        asked.synthesis.engine = own.synthesis.engine;
        asked.synthesis.beam = own.synthesis.beam;
        return asked;
    };
    planners.turns = [&solver, as_hidup](heddle::program const& p, cluster const& on, planning_options const& o) {
        hidup_options turns;
        turns.planning = as_hidup(o);
        turns.compares = false;
        return plan_hidup(p, on, solver, turns);
    };
    planners.part_in_turns = [&solver, as_hidup](heddle::program const& p, cluster const& on,
                                                 planning_options const& o) {
        return plan_part_in_turns(p, on, ratio_balancer(solver), as_hidup(o));
    };
    planners.on_mesh = [&solver](heddle::program const& p, cluster const& on, mesh const& m,
                                 mesh_search_options const& o) { return plan_mesh(p, on, m, solver, o); };
    return planners;
}

/// How a stage is planned: on one axis, also in the tensor groups asked for, or also on a mesh of machines.
enum class stage_effort : std::uint8_t { one_axis, groups, all };

/// Plans stages on devices of a cluster. *Lifetime:* refers to all that it is made of.
class stage_planner {
public:
    stage_planner(cluster const& c, stage_planners const& planners, planning_options const& options,
                  search::deadline const& until, bool recomputes)
        : cluster_(c), planners_(planners), options_(options), until_(until), recomputes_(recomputes), places_(c) {}

    /// Plans a stage's program on its devices, of which equally many after each other, `tensor`, may be an axis of a
    /// mesh. What takes `worth_below` or more is of no use, so that it need not fit.
    [[nodiscard]] heddle::plan plan(program const& part, std::vector<std::size_t> const& devices, std::size_t tensor,
                                    std::int64_t micro_batches, int in_flight, stage_effort how,
                                    double worth_below = std::numeric_limits<double>::infinity());
    /// Plans it on one axis, or on the mesh that has an axis of `inner` devices, with a part of the devices' memory.
    /// *Throws* `input_error` for a mesh into which machines do not divide.
    [[nodiscard]] heddle::plan plan_on(program const& part, std::vector<std::size_t> const& devices, std::size_t inner,
                                       std::int64_t micro_batches, int in_flight, double part_of_memory = 1,
                                       double worth_below = std::numeric_limits<double>::infinity());

    /// Plans it on one axis, where the program is one of so many parts of a micro-batch that take turns, to take less
    /// than a plan of the whole micro-batch, on one axis or a mesh. Where parts that compute as this plan does take no
    /// less, others are not searched. Of stages that are alike, the first one's is that of all.
    [[nodiscard]] heddle::plan plan_in_turns(program const& part, std::vector<std::size_t> const& devices, int turns,
                                             std::int64_t micro_batches, int in_flight, program const& whole,
                                             heddle::plan const& of_whole);

    /// Returns in words that a stage fits on its devices in no way; nothing if it may.
    [[nodiscard]] std::optional<std::string> why_nothing_fits(program const& part,
                                                              std::vector<std::size_t> const& devices,
                                                              std::int64_t micro_batches, int in_flight) const;

    /// Returns the type and machine of each device, machines numbered as they appear.
    [[nodiscard]] std::vector<std::size_t> where(std::vector<std::size_t> const& devices) const;

    [[nodiscard]] stage_planners const& planners() const { return planners_; }
    /// Returns what a planner is asked for, in the time that is left.
    [[nodiscard]] planning_options options() const;
    [[nodiscard]] mesh_search_options mesh_options(training_options const& training) const;

private:
    [[nodiscard]] training_options training_of(std::int64_t micro_batches) const;
    /// How plans on one axis compute.
    struct computations_on_devices {
        known_computations all{kinds_alike::in_size}, of_roomy_stages{kinds_alike::in_size};
    };
    /// Allows what is known of a program, where that spares time.
    [[nodiscard]] static std::optional<instruction_filter> keeping_to(known_computations& known,
                                                                      indexed_program const& p) {
        constexpr std::size_t few = 50; // operators, of which all programs are searched in no time
        return p.operators.size() > few ? known.keeping_to(p) : std::nullopt;
    }
    /// Returns what `search(options)` finds with what is asked for or, unless `is_enough(plan)`, the cheaper plan of that
    /// and of what it finds with all computations.
    template <class Search, class IsEnough>
    [[nodiscard]] heddle::plan allowed_first(planning_options asked, Search const& search,
                                             IsEnough const& is_enough) const {
        auto found = search(asked);
        if (!asked.allowed_computations || is_enough(found)) return found;
        asked.allowed_computations.reset();
        asked.limits = options().limits;
        auto other = search(asked);
        return found.exists() && !(other.exists() && other.cost() < found.cost()) ? found : other;
    }
    /// Plans a stage on one axis. Where most of its operators are known from other stages on such devices, programs that
    /// compute them alike are searched first, and others where these take nearly all memory, do not fit, or are known
    /// only from stages that take nearly all.
    [[nodiscard]] heddle::plan on_one_axis(program const& part, indexed_program const& indexed,
                                           std::vector<std::size_t> const& devices, cluster const& on,
                                           training_options const& training, double worth_below);

    /// By what a stage's plan is known again, beside its program: its devices, those of an inner axis, micro-batches,
    /// the parts of one that take turns, and the part of memory that it may use.
    using stage_key = std::tuple<std::vector<std::size_t>, std::size_t, std::int64_t, int, double>;
    struct known_stage {
        indexed_program program;
        int in_flight;
        recomputation recomputes;
        heddle::plan plan;
        double worth_below; // when it was planned
    };

    /// Returns a stage's plan, of those that `find(in flight, recomputation)` finds. Stages that are alike are planned
    /// once, and with one micro-batch in flight as long as what was found so fits with more. Where it does not, another
    /// one is planned, or the same recomputes activations, whichever takes least time; where nothing fits, plans that
    /// recompute are looked for, unless a bound says that one would take `worth_below` or more. What takes turns does not
    /// recompute.
    [[nodiscard]] heddle::plan alike(stage_key const& key, indexed_program const& p, cluster const& on, int in_flight,
                                     double worth_below, std::function<heddle::plan(int, recomputation)> const& find);

    cluster const& cluster_;
    stage_planners const& planners_;
    planning_options const& options_;
    search::deadline const& until_;
    /// Whether stages may recompute activations where these leave little memory.
    bool recomputes_;
    device_places places_;
    std::map<stage_key, std::deque<known_stage>> known_;                       // whose plans stay where they are
    std::map<std::vector<std::size_t>, computations_on_devices> computations_; // by `where`
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/equal_structure.hpp>
#include <heddle/synthesis/alternation.hpp>

namespace heddle::detail {

HEDDLE_INLINE planning_options stage_planner::options() const {
    auto asked = options_;
    asked.limits = until_.rest(asked.limits);
    asked.progress = {};
    return asked;
}

HEDDLE_INLINE mesh_search_options stage_planner::mesh_options(training_options const& training) const {
    return {.training = training,
            .turns = 4,
            .rounds = 1,
            .bound_rounds = 40,
            .bound_width = 100,
            .compares = false,
            .limits = until_.rest()};
}

HEDDLE_INLINE training_options stage_planner::training_of(std::int64_t micro_batches) const {
    auto training = options_.training;
    training.accumulated = static_cast<int>(micro_batches);
    if (micro_batches > 1) training.overlaps_gradients = false; // the last micro-batch alone could hide them
    return training;
}

HEDDLE_INLINE std::optional<std::string> stage_planner::why_nothing_fits(program const& part,
                                                                         std::vector<std::size_t> const& devices,
                                                                         std::int64_t micro_batches,
                                                                         int in_flight) const {
    auto training = training_of(micro_batches);
    training.in_flight = in_flight;
    auto least = least_memory(index_program(part), training);
    if (recomputes_ || training.recomputes != recomputation::none) least.activations = 0; // may be made again
    return heddle::why_nothing_fits(least, cluster_of(cluster_, devices, std::vector<int>(devices.size(), 1)));
}

HEDDLE_INLINE std::vector<std::size_t> stage_planner::where(std::vector<std::size_t> const& devices) const {
    std::vector<std::size_t> result;
    std::map<std::size_t, std::size_t> machines;
    for (auto device : devices) {
        result.push_back(cluster_.machines[places_.group_of_machine[device]].type);
        result.push_back(machines.try_emplace(places_.machine[device], machines.size()).first->second);
    }
    return result;
}

HEDDLE_INLINE plan stage_planner::plan(program const& part, std::vector<std::size_t> const& devices, std::size_t tensor,
                                       std::int64_t micro_batches, int in_flight, stage_effort how,
                                       double worth_below) {
    auto best = plan_on(part, devices, 1, micro_batches, in_flight, 1, worth_below);
    std::vector<std::size_t> inner; // axes of a mesh: the tensor groups asked for, or the devices of each machine
    std::size_t const machines = 1 + where(devices).back();
    if (how != stage_effort::one_axis && tensor > 1 && tensor < devices.size()) inner.push_back(tensor);
    if (auto const each = devices.size() / machines;
        how == stage_effort::all && machines > 1 && each > 1 && each * machines == devices.size() && each != tensor)
        inner.push_back(each);
    for (auto const n : inner) {
        try {
            if (best.exists()) worth_below = std::min(worth_below, best.cost());
            auto found = plan_on(part, devices, n, micro_batches, in_flight, 1, worth_below);
            if (found.exists() && !(best.exists() && best.cost() <= found.cost())) best = std::move(found);
        } catch (input_error const&) {} // groups that machines do not divide into
    }
    return best;
}

HEDDLE_INLINE plan stage_planner::plan_on(program const& part, std::vector<std::size_t> const& devices,
                                          std::size_t inner, std::int64_t micro_batches, int in_flight,
                                          double part_of_memory, double worth_below) {
    auto const training = training_of(micro_batches);
    auto on = cluster_of(cluster_, devices, std::vector<int>(devices.size() / inner, static_cast<int>(inner)));
    auto const types = on.types;
    for (auto& type : on.types) type.memory *= part_of_memory;
    auto const indexed = index_program(part);
    auto found = alike({where(devices), inner, micro_batches, 1, part_of_memory}, indexed, on, in_flight, worth_below,
                       [&](int held, recomputation how_much) {
                           auto here = training;
                           here.in_flight = held;
                           here.recomputes = how_much;
                           if (inner == 1) return on_one_axis(part, indexed, devices, on, here, worth_below);
                           auto asked = mesh_options(here);
                           asked.worth_below = worth_below;
                           return planners_.on_mesh(part, on, mesh({devices.size() / inner, inner}), asked);
                       });
    if (part_of_memory < 1) forget_others(found); // found in less
    for (auto& d : found.devices) d.memory_limit = algorithm::find(types, d.type, &device_type::name)->memory;
    return found;
}

HEDDLE_INLINE plan stage_planner::on_one_axis(program const& part, indexed_program const& indexed,
                                              std::vector<std::size_t> const& devices, cluster const& on,
                                              training_options const& training, double worth_below) {
    auto asked = options();
    asked.training = training;
    asked.compares = asked.proves = false;
    asked.rounds = 2;
    asked.worth_below = worth_below;
    auto& known = computations_[where(devices)];
    asked.allowed_computations = keeping_to(known.all, indexed);
    auto const search = [&](planning_options const& o) { return planners_.one_axis(part, on, o); };
    auto const is_useless = [&](heddle::plan const& p) { return p.cost() > alternation::hopeless * worth_below; };
    auto const is_enough = [&](heddle::plan const& p) { // which are best depends on how little memory there is
        return p.exists() &&
               (until_.is_over() || is_useless(p) || (!is_tight(p) && keeping_to(known.of_roomy_stages, indexed)));
    };
    auto found = allowed_first(std::move(asked), search, is_enough);
    if (!found.exists() || is_useless(found)) return found; // searches ended before they knew how it computes best
    known.all.add(indexed, found);
    if (!is_tight(found)) known.of_roomy_stages.add(indexed, found);
    return found;
}

HEDDLE_INLINE plan stage_planner::plan_in_turns(program const& part, std::vector<std::size_t> const& devices, int turns,
                                                std::int64_t micro_batches, int in_flight, program const& whole,
                                                heddle::plan const& of_whole) {
    auto const on = cluster_of(cluster_, devices, std::vector<int>(devices.size(), 1));
    auto const indexed = index_program(part);
    auto const find = [&](int held, recomputation) {
        auto asked = options();
        asked.compares = asked.proves = false;
        asked.training.overlaps_gradients = false;
        asked.training.micro_batches = turns;
        asked.training.accumulated = static_cast<int>(micro_batches);
        asked.training.in_flight = held;
        known_computations known(kinds_alike::in_structure);
        if (!of_whole.is_on_mesh()) known.add(index_program(whole), of_whole);
        asked.allowed_computations = keeping_to(known, indexed);
        if (!asked.allowed_computations)
            asked.allowed_computations = keeping_to(computations_[where(devices)].all, indexed);
        double worth = of_whole.cost();
        auto const search = [&](planning_options o) {
            o.worth_below = worth;
            auto found = planners_.part_in_turns(part, on, o);
            if (found.exists()) worth = std::min(worth, found.cost());
            return found;
        };
        auto const is_enough = [&](heddle::plan const& p) {
            return until_.is_over() || (p.exists() && p.cost() >= of_whole.cost());
        };
        return allowed_first(std::move(asked), search, is_enough);
    };
    return alike({where(devices), 1, micro_batches, turns, 1}, indexed, on, in_flight,
                 std::numeric_limits<double>::infinity(), find);
}

HEDDLE_INLINE plan stage_planner::alike(stage_key const& key, indexed_program const& p, cluster const& on,
                                        int in_flight, double worth_below,
                                        std::function<heddle::plan(int, recomputation)> const& find) {
    auto& all = known_[key];
    auto const unnamed = without_names(p);
    auto const is_excluded = [&](heddle::plan const& none) {
        return !none.exists() && none.lower_bound >= worth_below;
    };
    auto const planned = [&](int held, recomputation how) -> heddle::plan const& {
        auto known = algorithm::find_if(
            all, [&](auto const& k) { return k.in_flight == held && k.recomputes == how && k.program == unnamed; });
        if (known == all.end()) known = all.insert(known, {unnamed, held, how, find(held, how), worth_below});
        auto& plan = known->plan;
        bool const was_excluded = !plan.exists() && plan.lower_bound > 0; // by what it was to take less than
        bool const was_useless = plan.exists() && plan.cost() > alternation::by_far * known->worth_below;
        if ((was_excluded && !is_excluded(plan)) || (was_useless && worth_below > known->worth_below)) {
            plan = find(held, how);
            known->worth_below = worth_below;
        }
        return plan;
    };
    heddle::plan best;
    auto const consider = [&](heddle::plan found) {
        if (found.exists() && (!best.exists() || found.cost() < best.cost())) best = std::move(found);
        else if (!best.exists()) best.reason = found.reason;
    };
    bool const may_recompute = recomputes_ && std::get<int>(key) == 1;
    auto const named = [&](heddle::plan const& found, recomputation how) {
        return found.exists() ? with_in_flight(found, p, in_flight, how) : found;
    };
    auto const least = options_.training.recomputes;
    if (least != recomputation::none) return named(planned(in_flight, least), least);
    constexpr std::array kinds{recomputation::selective, recomputation::full};
    auto const& roomy = planned(1, recomputation::none);
    if (is_excluded(roomy)) return roomy;
    if (roomy.exists() && roomy.cost() >= worth_below) return named(roomy, recomputation::none);
    if (roomy.exists()) {
        auto result = named(roomy, recomputation::none);
        if (in_flight == 1 || evaluate(result, on).fits) return result;
        for (auto const how : kinds) {
            if (!may_recompute) break;
            auto again = named(roomy, how);
            auto const cost = evaluate(again, on);
            if (!cost.fits) continue;
            again.time = cost.time;
            again.memory = cost.memory;
            consider(holding_more(std::move(again), p, on));
        }
        consider(named(planned(in_flight, recomputation::none), recomputation::none));
    } else {
        best.reason = roomy.reason;
    }
    for (auto const how : kinds)
        if (may_recompute && !best.exists()) consider(holding_more(named(planned(in_flight, how), how), p, on));
    return best;
}

} // namespace heddle::detail

#endif
