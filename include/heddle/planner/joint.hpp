// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One planner of all: of one stage or several, on one axis or meshes, with even and uneven shares, in turns or
/// not; and one price by which they are compared.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/planner/draft_planner.hpp>
#include <heddle/planner/rounds_planner.hpp>
#include <heddle/planner/stage_planner.hpp>
#include <heddle/planner/turning_stages.hpp>
#include <heddle/synthesis/draft_pipelines.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle {

struct joint_options {
    /// Of stages, and of plans of one stage.
    planning_options stage{};
    /// Whether devices compute while they send to other stages.
    bool sends_beside = false;
    /// Whether activations may be recomputed, where these leave little memory. If `stage.training` asks for it, all are.
    bool recomputes = true;
    /// How many drafts of pipelines are planned in full, of those from profiles and of those from bounds each.
    std::size_t drafts = 4;
    /// How many of these are planned on meshes too.
    std::size_t in_full = 1;
    /// The most micro-batches of an iteration.
    std::int64_t most_micro_batches = 128;
    /// Whether the best plan of each family says where its seconds go.
    bool compares = false;
    /// What moving to a plan adds to each of its iterations, where training goes on from another plan: of the plans
    /// that are made, the one that takes least with it is returned. It is no part of costs and bounds.
    std::function<seconds(staged_plan const&)> moving{};
    /// How many plans, the best of different families, are tried, and what does that: it is called with the name of the
    /// family, cheapest first, and may run the plan and return the time of an iteration; nothing, or what is no positive
    /// number, is a plan that did not run. Of those that ran the one that took least is returned, so a prediction that
    /// misleads does no harm (AMP section 6). Trials are beyond the limits of the search.
    std::size_t trials = 0;
    std::function<std::optional<seconds>(std::string const& family, staged_plan const&)> try_out{};
    search::limits limits{};
    progress_function progress{};
};

namespace detail {

[[nodiscard]] staged_plan find_plan(program const& p, cluster const& c, stage_planners const& planners,
                                    joint_options const& options);
[[nodiscard]] staged_plan plan_draft(program const& p, program_layers const& layers, cluster const& c,
                                     pipeline_draft const& draft, stage_planners const& planners,
                                     joint_options const& options);

} // namespace detail

/// Plans every stage of a draft in full: on one axis, or on a mesh of its tensor groups if that is better.
/// *Returns* a plan without stages, with the reason, if a stage has none or cannot be cut out (`part_of`), or
/// micro-batches do not divide the batch or do not compute the same. *Throws* `input_error` as `find_plan` does.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] staged_plan plan_draft(Program const& program, program_layers const& layers, cluster const& c,
                                     pipeline_draft const& draft, Solver&& solver, joint_options const& options = {}) {
    return detail::plan_draft(program_of(program), layers, c, draft, detail::stage_planners_by(solver), options);
}

/// Plans a program on a cluster by all that the library knows, and returns the plan that costs least by `evaluate` of a
/// staged plan, or least with its part of `joint_options::moving`.
///
/// Families of one stage are planned as their planners do: one axis, with well-known strategies beside it, and proven
/// where it is within a tenth of the best or families are compared; machines as groups, a mesh of machines and devices,
/// and micro-batches in turn. Meshes and turns are left where a bound says that they cannot be better; turns are proven
/// where searches find them near (`planning_options::worth_below`). Pipelines are AMP's and Ditto's, with each stage
/// planned in full, and drafts of stages of any numbers of layers on parts of machines or several machines
/// (`draft_pipelines`), of which the best are planned in full: a stage is a program of its own, with uneven shares and
/// sharded parameters like any other.
/// Of plans that keep pins there are those on one axis alone, of devices or of machines as groups.
/// *Returns* the best plan, what each family has, and a bound of the space that it names: of plans of stages of whole
/// layers at any shares (`pipeline_bound`), or of all plans, from work alone (`work_bound`). *Throws* `input_error`
/// before work starts, for a cluster that `validate` refuses, or device groups.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] staged_plan find_plan(Program const& program, cluster const& c, Solver&& solver,
                                    joint_options const& options = {}) {
    return detail::find_plan(program_of(program), c, detail::stage_planners_by(solver), options);
}

/// Refuses what is no program, with a sentence that says why.
template <class Program, ratio_solver Solver>
    requires(!single_device_program<Program>)
staged_plan find_plan(Program const&, cluster const&, Solver&&, joint_options const& = {}) {
    static_assert(require_single_device_program<Program>());
    return {};
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/staged_terms.hpp>
#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/pipeline_bound.hpp>
#include <heddle/synthesis/stage_bounds.hpp>
#include <heddle/synthesis/turn_bounds.hpp>
#include <heddle/synthesis/work_bound.hpp>
#include <heddle/theory/micro_batch.hpp>

namespace heddle::detail {

/// Tells whether every stage is on whole machines or on one, and stages of one machine follow each other.
[[nodiscard]] bool is_machine_by_machine(staged_plan const& p, device_places const& places);

class joint_planner {
public:
    joint_planner(program const& p, cluster const& c, stage_planners const& planners, joint_options const& options)
        : program_(p), cluster_(checked(c)), fast_cluster_(with_links_within_measured(c)), options_(options),
          until_(options.limits), indexed_(index_program(p)), places_(c),
          stages_(c, planners, options.stage, until_, options.recomputes),
          drafts_(p, indexed_, c, stages_, options.stage.training, options.sends_beside) {}

    staged_plan plan() {
        plan_on_one_axis(); // families that are soon known come first: others are left where they cannot be better
        is_tight_ = !best_.exists() || is_tight(best_.stages.front().plan);
        if (options_.stage.pinned.empty()) plan_others();
        else plan_pinned_recomputed();
        return concluded();
    }

    staged_plan plan(program_layers const& layers, pipeline_draft const& draft) {
        if (auto const found = obstacles_to_micro_batches(indexed_);
            draft.micro_batches > 1 && (found.statistic || found.operation)) {
            reason_ = "micro-batches do not compute what the whole batch does";
            return concluded();
        }
        layers_ = layers;
        best_ = in_full(draft, stage_effort::groups);
        reason_ = best_.reason;
        return concluded();
    }

private:
    /// Plans the families of which a pin, which is a form on one axis of all devices, says nothing.
    void plan_others() {
        plan_pipelines();
        prove_one_axis();
        find_bounds();
        plan_accumulated();
        plan_recomputed();
        find_bounds();
        plan_in_turns();
        plan_on_mesh();
        find_bounds();
        plan_on_fewer();
        certify();
        plan_what_bounds_draft();
        plan_in_rounds();
        plan_stages_in_turns();
    }

    [[nodiscard]] static cluster const& checked(cluster const& c) {
        check_for_pipelines(c);
        return c;
    }

    /// Ends the search, and returns the best plan, with what is said of it.
    staged_plan concluded() {
        ended_ = {until_.reached(), until_.elapsed()};
        try_best();
        if (chosen_.exists()) {
            best_ = std::move(chosen_);
            for (auto& [name, f] : families_)
                if (f.cost && *f.cost < best_.cost()) // by itself, which is no choice then
                    f = {.cost = {},
                         .seconds = f.seconds,
                         .reason = "takes " + std::to_string(*f.cost) + " s" + why_chosen_};
        }
        best_.families = std::move(families_);
        conclude(best_);
        if (!best_.exists()) best_.reason = reason_;
        return std::move(best_);
    }
    /// Says of a plan where it comes from, and what is known of all.
    void conclude(staged_plan& p) const {
        p.device_count = places_.machine.size();
        p.provenance.cluster = cluster_.name;
        p.provenance.planner = "joint";
        p.which_limit = ended_.by;
        // Families leave out plans, so that none is found proves nothing of others.
        if (!p.exists() && p.which_limit == search::limit_kind::none && certificate_.space.empty())
            p.which_limit = search::limit_kind::width;
        double bound = certificate_.bound;
        p.space = certificate_.space;
        bool const turns =
            p.stages.size() > 1 && algorithm::any_of(p.stages, [](auto const& s) { return s.turns() > 1; });
        bool const is_elsewhere = p.exists() && !is_machine_by_machine(p, places_);
        if (!p.space.empty() && (p.rounds() > 1 || turns || is_elsewhere)) { // which is no plan of the space
            if (bound >= p.cost() || is_elsewhere) p.space.clear();
            else
                p.space += std::string(p.rounds() > 1 ? ", in one round" : "") +
                           (turns ? ", without turns in their stages" : "");
        }
        if (p.space.empty()) { // an accumulator of the user's own may take less time than the work does
            if (options_.stage.training.accumulator.name.empty()) bound = work_bound(indexed_, cluster_).value;
            p.space = "plans of all stages, forms, shares and micro-batches";
        }
        search::conclude(p, p.exists() ? std::optional(p.cost()) : std::nullopt, bound, p.cost());
        p.seconds = ended_.after;
    }

    /// Has the best plans of different families tried, and takes the one that was measured to take least.
    void try_best() {
        if (options_.trials == 0 || !options_.try_out) return;
        std::vector<std::pair<double, std::string>> by_cost;
        for (auto const& [family, found] : to_try_) by_cost.emplace_back(found.cost(), family);
        algorithm::sort(by_cost);
        auto const costs_the_same = [](auto const& a, auto const& b) { return b.first <= a.first * (1 + 1e-9); };
        by_cost.erase(std::unique(by_cost.begin(), by_cost.end(), costs_the_same), by_cost.end());
        by_cost.resize(std::min(by_cost.size(), options_.trials));
        double least = std::numeric_limits<double>::infinity();
        for (auto const& [cost, family] : by_cost) {
            auto& tried = to_try_[family];
            conclude(tried);
            auto const measured = options_.try_out(family, tried);
            if (!measured || !(measured->value > 0 && std::isfinite(measured->value))) continue;
            double const total = measured->value + (options_.moving ? options_.moving(tried).value : 0);
            if (total >= least) continue;
            least = total;
            chosen_ = std::move(tried);
            why_chosen_ = " by prediction; of the plans that were run another took least";
        }
    }

    /// Bounds stages, if that was not done, there is a plan, nothing was asked for that makes others cheaper, and time
    /// is left.
    void find_bounds() {
        if (stage_bounds_) return;
        auto const& training = options_.stage.training;
        bool const is_plain = training.accumulator.name.empty() && !training.overlaps_gradients;
        if (!is_plain || !best_.exists() || until_.is_over()) return;
        find_layers();
        stage_bounds_.emplace(program_, fast_cluster_, layers_, options_.stage, until_);
        if (!stage_bounds_->exist()) return;
        bounds_.emplace(indexed_, fast_cluster_, layers_, *stage_bounds_, options_.sends_beside);
        std::vector<stage_devices> others;
        stage_devices all;
        for (auto const& [least, on] : bounds_->of_one_stage())
            if (is_all(bounds_->devices_of(on))) all = on, least_on_all_ = least;
            else others.push_back(on);
        in_turns_.emplace(*stage_bounds_, all, others, best_.cost());
    }
    /// Tells whether a family whose plans take so much at least need not be planned; to be compared, it is.
    [[nodiscard]] bool is_excluded(double least) const { return least >= best_.cost() && !options_.compares; }
    [[nodiscard]] bool is_all(std::vector<std::size_t> const& devices) const {
        return devices.size() == places_.machine.size();
    }

    /// Bounds all plans of one stage and, if pipelines were looked for, all of whole layers on whole machines or in
    /// one, where the best plan is one of these.
    void certify() {
        if (!bounds_ || !is_machine_by_machine(best_, places_) || until_.is_over()) return;
        double const bound = std::min(bounds_->least(best_.cost()), in_turns_->nth(0, best_.cost()).least);
        if (bound <= work_bound(indexed_, cluster_).value) return;
        certificate_ = {bound, layers_.size() > 1 ? "plans of stages of whole layers, machine by machine"
                                                  : "plans of one stage"};
    }

    /// Tells whether one more plan of the whole program is worth making after so many where bounds leave any gain: if
    /// they have few operators together, so that of a small program all that matter are.
    [[nodiscard]] bool is_soon_planned(std::size_t planned) const {
        constexpr std::size_t operators = 250;
        return (planned + 1) * indexed_.operators.size() <= operators;
    }

    /// Plans one stage on a part of the devices where a bound says that it may be better.
    void plan_on_fewer() {
        if (!bounds_) return;
        std::size_t planned = 0;
        for (auto const& [least, on] : bounds_->of_one_stage()) {
            bool const is_soon = is_soon_planned(planned);
            if (least > (is_soon ? 1 : worth_planning) * best_.cost() || (planned > 0 && !is_soon)) break;
            auto const devices = bounds_->devices_of(on);
            if (is_all(devices)) continue;
            plan_on(devices, [&](cluster const& part) { return on_one_axis(part); });
            ++planned;
        }
        for (std::size_t n = 0; n < in_turns_->size(); ++n) {
            auto const& [least, on, is_best] = in_turns_->nth(n, best_.cost());
            if (least > worth_planning * best_.cost()) return;
            auto const devices = bounds_->devices_of(on);
            if (is_all(devices) || devices.size() == 1) continue;
            // They take as many times their bound as on all devices, about, where shares are of many atoms.
            if (is_soon_planned(0) || least * turns_longer_ < best_.cost())
                plan_on(devices, [&](cluster const& part) { return in_turns(part); });
            return;
        }
    }
    template <class Plan>
    void plan_on(std::vector<std::size_t> const& devices, Plan const& plan) {
        consider("fewer devices", [&](auto const& note) {
            auto const part = cluster_of(cluster_, devices, std::vector<int>(devices.size(), 1));
            note(staged(plan(part), cluster_, devices));
        });
    }

    /// Plans the pipelines that the bound is of, knowing what stages planned before take, and the best of them in full.
    /// Of a small program all are planned whose bounds are below the best plan.
    void plan_what_bounds_draft() {
        if (!bounds_ || layers_.size() < 2 || certificate_.bound == 0) return;
        consider("pipeline", [&](auto const& note) {
            std::vector<pipeline_draft> tried;
            auto const before = static_cast<std::ptrdiff_t>(drafts_.planned().size());
            std::size_t best = 0;
            double least = std::numeric_limits<double>::infinity();
            auto const is_new = [&](pipeline_draft const& d) {
                return algorithm::none_of(tried, [&](auto const& other) { return is_same(other, d); });
            };
            auto const next = [&]() -> std::optional<pipeline_draft> {
                for (bool const learns : {true, false}) {
                    if (learns ? tried.size() >= options_.drafts : !is_soon_planned(tried.size())) continue;
                    double const enough = (learns ? worth_planning : 1) * best_.cost();
                    std::span const known(drafts_.planned().begin() + before, drafts_.planned().end());
                    if (auto draft = bounds_->draft(enough, is_new, known, learns)) return draft;
                }
                return {};
            };
            while (!until_.is_over()) {
                auto draft = next();
                if (!draft) break;
                auto found = in_full(*draft, stage_effort::one_axis);
                if (double const takes = taken(found); takes < least) least = takes, best = tried.size();
                tried.push_back(std::move(*draft));
                note(std::move(found));
            }
            if (least < std::numeric_limits<double>::infinity()) note(in_full(tried[best], stage_effort::all));
        });
    }

    /// Plans the best pipeline in rounds, where that is expected to be better than the best plan.
    void plan_in_rounds() {
        if (once_.stages.size() < 2 || layer_times_.empty() || until_.is_over()) return;
        std::vector<std::int64_t> counts;
        auto const samples = batch_size_of(indexed_);
        for (std::int64_t m = 2; m <= std::min(samples, options_.most_micro_batches); ++m)
            if (samples % m == 0) counts.push_back(m);
        rounds_planner planner(once_, cluster_, layers_, layer_times_, counts, drafts_);
        double const enough = worth_planning_alike * best_.cost();
        if (planner.is_worth(enough)) consider("rounds", [&](auto const& note) { planner.search(enough, note); });
    }

    /// Plans stages in turns, where hiding what they communicate may make the best pipeline better than the best plan.
    void plan_stages_in_turns() {
        auto const given = best_.stages.size() > 1 ? best_ : once_;
        auto const is_worth = [&](turning_stages const& turns, int larger) {
            return turns.expected(larger) < worth_planning_alike * best_.cost();
        };
        // Returns whether twice as large micro-batches, whose parts are as large as those of the plan, are of use.
        auto const turn_stages_of = [&](staged_plan const& p) {
            if (p.stages.size() < 2 || until_.is_over()) return false;
            turning_stages const turns(p, cluster_, drafts_);
            if (!is_worth(turns, 1)) return false;
            consider("turning stages", [&](auto const& note) { note(turns.plan()); });
            return p.micro_batches % 2 == 0 && p.micro_batches > 2 && is_worth(turns, 2);
        };
        if (!turn_stages_of(given)) return;
        auto draft = draft_of(given, layers_);
        draft.micro_batches /= 2;
        staged_plan larger;
        consider(given.rounds() > 1 ? "rounds" : "pipeline",
                 [&](auto const& note) { note(larger = drafts_.plan(draft, layers_, stage_effort::one_axis)); });
        turn_stages_of(larger);
    }

    /// Adds what a family has, and keeps it if it is best.
    template <class Find>
    void consider(std::string const& family, Find const& find) {
        if (until_.is_over()) return;
        if (options_.progress)
            options_.progress({family, best_.exists() ? std::optional(best_.cost()) : std::nullopt, std::nullopt});
        search::deadline const clock;
        auto& result = families_[family];
        auto const note = [&](staged_plan found) {
            if (!found.exists()) {
                if (!result.cost) result.reason = found.reason;
                if (reason_.empty()) reason_ = found.reason;
                return;
            }
            if (!result.cost || found.cost() < *result.cost) {
                result.cost = found.cost();
                result.reason.clear();
                if (options_.compares) result.terms = terms_of(found, cluster_);
            }
            if (found.stages.size() > 1 && found.rounds() == 1 && (!once_.exists() || found.cost() < once_.cost()))
                once_ = found;
            if (options_.trials > 0)
                if (auto& best = to_try_[family]; !best.exists() || found.cost() < best.cost()) best = found;
            if (options_.moving)
                if (double const total = found.cost() + options_.moving(found).value; total < least_moved_)
                    chosen_ = found, why_chosen_ = ", without what has to move", least_moved_ = total;
            if (!best_.exists() || found.cost() < best_.cost()) best_ = std::move(found);
        };
        try {
            find(note);
        } catch (input_error const& e) { result.reason = e.what(); }
        result.seconds += clock.elapsed();
    }

    [[nodiscard]] bool has_machines_of_several() const {
        return has_several_machines(cluster_) &&
               algorithm::any_of(cluster_.machines, [](auto const& m) { return m.devices > 1; });
    }

    void plan_on_one_axis() {
        consider("one axis", [&](auto const& note) {
            auto asked = stages_.options();
            asked.proves = asked.proves && are_proven_at_once();
            auto found = stages_.planners().one_axis(program_, cluster_, asked);
            for (auto const& [name, cost] : found.baselines)
                if (cost) families_[name].cost = cost;
            if (!options_.stage.pinned.empty()) certificate_ = {found.lower_bound, found.space};
            note(staged(std::move(found), cluster_));
        });
        if (has_machines_of_several())
            consider("groups",
                     [&](auto const& note) { note(staged(on_one_axis(with_grouped_machines(cluster_)), cluster_)); });
    }
    /// Plans on one axis once more where it is near the best plan, as a proof may meet a better program.
    void prove_one_axis() {
        constexpr double near = 1.1;
        auto const known = families_.find("one axis");
        if (are_proven_at_once() || known == families_.end() || !known->second.cost) return;
        double const before = *known->second.cost;
        if (!options_.stage.proves || before > near * best_.cost()) return;
        consider("one axis", [&](auto const& note) {
            auto proven = staged(stages_.planners().one_axis(program_, cluster_, stages_.options()), cluster_);
            if (!proven.exists()) return;
            for (auto* same : {&best_, &chosen_, options_.trials > 0 ? &to_try_["one axis"] : nullptr})
                if (same && same->exists() && same->is_plain() && same->cost() == before && proven.cost() <= before)
                    *same = proven; // which has a bound of its own
            note(std::move(proven));
        });
    }
    [[nodiscard]] bool are_proven_at_once() const { return options_.compares || !options_.stage.pinned.empty(); }
    /// Tells whether one stage on all devices may take less time if it holds less: where memory is tight if all
    /// activations are held, and a bound leaves a gain.
    [[nodiscard]] bool is_worth_holding_less() const {
        return is_tight_ && (!bounds_ || least_on_all_ < worth_planning * best_.cost());
    }
    /// Plans one stage that recomputes activations, less of them first.
    void plan_recomputed() {
        bool const may = options_.recomputes && options_.stage.training.recomputes == recomputation::none;
        for (auto const how : {recomputation::selective, recomputation::full}) {
            if (!may || !is_worth_holding_less()) return;
            consider("recomputed", [&](auto const& note) {
                auto const note_on = [&](cluster const& c, heddle::plan found) {
                    note(staged(holding_more(std::move(found), indexed_, c), cluster_));
                };
                note_on(cluster_, on_one_axis(cluster_, how));
                if (has_machines_of_several()) {
                    auto const machines = with_grouped_machines(cluster_);
                    note_on(machines, on_one_axis(machines, how));
                }
                if (options_.stage.pinned.empty() && has_equal_machines())
                    note_on(machines_of(cluster_, machines_and_devices()), on_mesh(how));
            });
        }
    }
    void plan_pinned_recomputed() {
        double const cost = best_.exists() ? best_.cost() : 0;
        plan_recomputed();
        if (best_.exists() && best_.cost() != cost) certificate_ = {}; // it is of plans that hold all
    }
    /// Plans one stage on all devices that accumulates gradients over more and more micro-batches, as long as memory is
    /// tight with fewer.
    void plan_accumulated() {
        auto const obstacles = obstacles_to_micro_batches(indexed_);
        if (!is_worth_holding_less() || obstacles.statistic || obstacles.operation) return;
        find_layers();
        stage_draft all{0, layers_.size(), std::vector<std::size_t>(places_.machine.size())};
        std::iota(all.devices.begin(), all.devices.end(), std::size_t{0});
        auto const samples = batch_size_of(indexed_);
        consider("accumulated", [&](auto const& note) {
            for (std::int64_t m = 2; m <= std::min(samples, options_.most_micro_batches); m *= 2) {
                if (samples % m != 0 || until_.is_over()) return;
                auto found = in_full({{all}, m}, stage_effort::groups);
                auto const is_roomy = [](heddle::plan const& p) {
                    return p.provenance.training.recomputes == recomputation::none && !is_tight(p);
                };
                constexpr double by_far = 2; // more than is spared where more micro-batches leave more memory
                double const takes = taken(found);
                bool const is_dear = best_.exists() && std::isfinite(takes) && takes > by_far * best_.cost();
                bool const is_last = is_dear || (found.exists() && is_roomy(found.stages.front().plan));
                note(std::move(found));
                if (is_last) return;
            }
        });
    }
    void find_layers() {
        if (layers_.size() < 2) layers_ = layers_at(indexed_, {0, static_cast<operator_id>(indexed_.operators.size())});
    }
    /// Plans without baselines or proofs.
    [[nodiscard]] heddle::plan on_one_axis(cluster const& c) {
        return on_one_axis(c, options_.stage.training.recomputes);
    }
    [[nodiscard]] heddle::plan on_one_axis(cluster const& c, recomputation how) {
        auto asked = stages_.options();
        asked.training.recomputes = how;
        asked.compares = asked.proves = false;
        asked.worth_below = worth_below();
        return stages_.planners().one_axis(program_, c, asked);
    }

    void plan_in_turns() {
        if (bounds_ && is_excluded(in_turns_->on_typical())) return;
        consider("turns", [&](auto const& note) {
            auto found = in_turns(cluster_);
            if (bounds_ && found.exists()) turns_longer_ = found.cost() / in_turns_->on_typical();
            note(staged(std::move(found), cluster_));
        });
    }
    [[nodiscard]] heddle::plan in_turns(cluster const& c) {
        auto asked = stages_.options();
        asked.training.overlaps_gradients = false;
        if (best_.exists()) asked.worth_below = best_.cost();
        return stages_.planners().turns(program_, c, asked);
    }

    /// Tells whether machines and their devices are two axes.
    [[nodiscard]] bool has_equal_machines() const {
        return has_machines_of_several() && algorithm::all_of(cluster_.machines, [&](auto const& m) {
                   return m.devices == cluster_.machines.front().devices;
               });
    }
    void plan_on_mesh() {
        if (!has_equal_machines() || (bounds_ && is_excluded(least_on_all_))) return;
        consider("mesh",
                 [&](auto const& note) { note(staged(on_mesh(options_.stage.training.recomputes), cluster_)); });
    }
    [[nodiscard]] mesh machines_and_devices() const {
        auto const inner = static_cast<std::size_t>(cluster_.machines.front().devices);
        return mesh({places_.machine.size() / inner, inner});
    }
    [[nodiscard]] heddle::plan on_mesh(recomputation how) {
        auto asked = stages_.mesh_options(options_.stage.training);
        asked.training.recomputes = how;
        if (is_tight_) asked.rounds = 2; // which shares are best depends on what fits
        if (best_.exists()) asked.worth_below = best_.cost();
        return stages_.planners().on_mesh(program_, cluster_, machines_and_devices(), asked);
    }

    void plan_pipelines() {
        if (places_.machine.size() == 1) return;
        auto const obstacles = obstacles_to_micro_batches(indexed_);
        if (obstacles.statistic || obstacles.operation) return;
        layers_ = repeated_layers(indexed_);
        if (layers_.size() < 2) return;
        std::optional<strategy_problem> problem;
        consider("amp", [&](auto const& note) {
            problem = make_strategy_problem_within(until_, program_, layers_, cluster_,
                                                   {.training = options_.stage.training});
            if (!problem) return;
            amp_options asked;
            asked.limits = until_.rest();
            auto const ranked = plan_amp(*problem, asked);
            if (ranked.best) note(in_full(draft_of(ranked.record[*ranked.best].plan), stage_effort::groups));
        });
        consider("ditto", [&](auto const& note) {
            ditto_program_options asked;
            asked.profile.training = options_.stage.training;
            asked.planner.limits = until_.rest();
            auto const found = plan_ditto(program_, layers_, cluster_, asked);
            if (found.exists()) note(in_full(draft_of(found), stage_effort::groups));
        });
        if (!problem) return;
        layer_times_ = times_of_layers(*problem);
        consider("pipeline", [&](auto const& note) {
            std::vector<pipeline_draft> drafts;
            for (std::int64_t m = 2; m <= std::min(problem->global_batch, options_.most_micro_batches); ++m) {
                if (problem->global_batch % m != 0 || until_.is_over()) continue;
                auto found = draft_pipelines(*problem, m, options_.drafts);
                drafts.insert(drafts.end(), found.begin(), found.end());
            }
            algorithm::sort(drafts, {}, [](pipeline_draft const& d) {
                return std::tuple(d.estimate, d.micro_batches, d.stages.size());
            });
            drafts.resize(std::min(drafts.size(), options_.drafts));
            std::vector<std::pair<double, pipeline_draft>> planned; // and what they cost
            for (auto const& draft : drafts) {
                if (until_.is_over()) break;
                auto found = in_full(draft, stage_effort::one_axis);
                planned.emplace_back(taken(found), draft);
                note(std::move(found));
            }
            algorithm::sort(planned, {}, [](auto const& p) {
                return std::tuple(p.first, p.second.micro_batches, p.second.stages.size());
            });
            for (std::size_t n = 0; n < std::min(planned.size(), options_.in_full) && !until_.is_over(); ++n)
                note(in_full(planned[n].second, stage_effort::all));
        });
    }

    staged_plan in_full(pipeline_draft const& draft, stage_effort how) {
        return drafts_.plan(draft, layers_, how, worth_below());
    }
    /// Returns what a plan takes or, where a stage alone took too long, that stage; infinity if there is none.
    [[nodiscard]] static double taken(staged_plan const& p) {
        if (p.exists()) return p.cost();
        return p.lower_bound > 0 ? p.lower_bound : std::numeric_limits<double>::infinity();
    }
    /// Returns what a plan has to cost less than to be of use. To be compared, tried or moved to, others are, too.
    [[nodiscard]] double worth_below() const {
        bool const is_least_alone = !options_.compares && options_.trials == 0 && !options_.moving;
        return is_least_alone && best_.exists() ? best_.cost() : std::numeric_limits<double>::infinity();
    }

    [[nodiscard]] static bool is_same(pipeline_draft const& a, pipeline_draft const& b) {
        return a.micro_batches == b.micro_batches && a.stages == b.stages;
    }

    program const& program_;
    cluster const& cluster_;
    /// As fast at least; bounds are of it.
    cluster fast_cluster_;
    joint_options const& options_;
    search::deadline until_;
    indexed_program indexed_;
    device_places places_;
    stage_planner stages_;
    draft_planner drafts_;
    program_layers layers_;
    /// Whether memory is tight in plans of one stage that hold all activations.
    bool is_tight_ = false;
    std::map<std::string, family_result> families_;
    /// The best plan of each family, if some are tried.
    std::map<std::string, staged_plan> to_try_;
    std::string reason_;
    /// What is cheaper than the best plan by less is not worth planning.
    static constexpr double worth_planning = 0.97;
    /// What is expected of stages is known better where the same layers were planned on their devices.
    static constexpr double worth_planning_alike = 0.99;
    std::optional<stage_bounds> stage_bounds_;
    std::optional<pipeline_bounds> bounds_;
    /// What one stage on all devices takes at least, without turns; and how many times their bound turns took there.
    double least_on_all_ = 0, turns_longer_ = 1;
    std::optional<turn_bounds> in_turns_;
    struct {
        double bound = 0;
        std::string space;
    } certificate_;
    /// What ended the search, and after how many seconds.
    struct {
        search::limit_kind by = search::limit_kind::none;
        double after = 0;
    } ended_;
    /// The cheapest plan; and the one to return instead, as it takes least with its part of moving, or took least when
    /// it was tried.
    staged_plan best_, chosen_;
    /// The cheapest pipeline that passes its devices once, and how long layers take, relative to each other.
    staged_plan once_;
    std::vector<double> layer_times_;
    std::string why_chosen_;
    double least_moved_ = std::numeric_limits<double>::infinity();
};

HEDDLE_INLINE bool is_machine_by_machine(staged_plan const& p, device_places const& places) {
    std::map<std::size_t, std::size_t> sizes, last; // by machine: its devices, and the last stage that has some
    for (auto const m : places.machine) ++sizes[m];
    for (std::size_t s = 0; s < p.places(); ++s) {
        std::map<std::size_t, std::size_t> used;
        for (auto const d : p.stages[s].devices) ++used[places.machine[d]];
        for (auto const& [machine, count] : used) {
            if (used.size() > 1 && count < sizes[machine]) return false;
            if (auto const [at, is_new] = last.try_emplace(machine, s); !is_new && ++at->second != s) return false;
        }
    }
    return true;
}

HEDDLE_INLINE staged_plan find_plan(program const& p, cluster const& c, stage_planners const& planners,
                                    joint_options const& options) {
    return joint_planner(p, c, planners, options).plan();
}

HEDDLE_INLINE staged_plan plan_draft(program const& p, program_layers const& layers, cluster const& c,
                                     pipeline_draft const& draft, stage_planners const& planners,
                                     joint_options const& options) {
    return joint_planner(p, c, planners, options).plan(layers, draft);
}

} // namespace heddle::detail

#endif
