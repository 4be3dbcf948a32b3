// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The HAP planner: program synthesis at fixed ratios and ratios of a fixed program, in turn.
///
/// HAP (EuroSys '24), sections 3 to 5.
#pragma once

#include <heddle/balance/segmented_ratio_problem.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/planner/baselines.hpp>
#include <heddle/planner/device_types.hpp>
#include <heddle/planner/realise.hpp>
#include <heddle/planner/segments.hpp>
#include <heddle/planner/synthesis.hpp>

#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// A tensor that is to have a form, as its source is read or its operator leaves it.
struct pinned_tensor {
    tensor_id tensor = 0;
    heddle::form form = heddle::form::replicated();
};

struct hap_options {
    training_options training{};
    synthesis_options synthesis{};
    /// Limits of one last search at the best ratios, run where a search before it was cut short.
    search::options last_search{.label_limit = 200'000, .comparison_limit = 50'000'000};
    /// Pairs of program and ratios tried from each start.
    int rounds = 6;
    /// States kept per cut; where that leaves any out, no bound is proven.
    std::size_t width = 20'000;
    /// Of each operator: segments may have ratios of their own. None: the program is one segment. See planner/segments.hpp.
    std::vector<segment_number> segments{};
    /// Tensors that are read or computed in these forms alone; baselines that do otherwise are priced all the same.
    std::vector<pinned_tensor> pinned{};
    std::optional<double> time_limit_seconds{};
    /// Called with every pair of program and ratios that was priced.
    std::function<void(trajectory_point const&)> progress{};
};

namespace detail {

/// The run of one planning task; see `plan_hap`.
template <class Accumulator, ratio_solver Solver>
class hap_run {
public:
    hap_run(indexed_program const& program, cluster const& c, Solver& solver, hap_options const& options)
        : cluster_(c), solver_(solver), options_(options), space_(program, operator_kinds(program)), types_(c), model_(c, types_.classes, main_type(program)),
          proportional_(everywhere(compute_proportional(model_, main_type(program)))), even_(everywhere(even(model_))) {
        if (interleaves) space_.divide_into_stages();
    }

    plan run() {
        if (!interleaves) run_baselines();
        if (interleaves && proportional_ == even_) return alternate_from({{"even", even_}});
        return alternate_from({{"compute-proportional", proportional_}, {"even", even_}});
    }
    /// From ratios per device alone, and without baselines.
    plan run_from(ratio_table const& per_device) { return alternate_from({{"segments", types_.per_type(per_device)}}); }

private:
    static constexpr bool interleaves = requires { Accumulator::interleaves; };
    struct starting_point {
        std::string name;
        ratio_table ratios;
    };
    plan alternate_from(std::vector<starting_point> starts) {
        graph_ = explore(pinned(fastest_programs(space_.program())));
        for (auto const& s : starts) alternate(s.name, s.ratios);
        if (memory_binds_ && widen()) {
            which_limit_ = search::limit_kind::none;
            starts.push_back({"memory-proportional", everywhere(memory_proportional(model_))});
            for (auto const& s : starts) alternate(s.name + ", any storage", s.ratios);
        }
        if (!best_) return infeasible();
        if (which_limit_ != search::limit_kind::none) search_longer();
        prove();
        finish(*best_);
        return std::move(*best_);
    }

    /// The same ratios in every segment.
    [[nodiscard]] ratio_table everywhere(std::vector<double> const& per_type) const { return ratio_table(segment_count(space_.program()), per_type); }

    [[nodiscard]] bool keeps_pins(instruction const& i) const {
        auto const keeps = [&](tensor_id t, form f) {
            return std::ranges::all_of(options_.pinned, [&](pinned_tensor const& pin) { return pin.tensor != t || pin.form == f; });
        };
        if (i.what == instruction::kind::read) return keeps(i.tensor, i.to);
        if (i.what != instruction::kind::compute) return true;
        auto const& results = space_.program().operators[i.op].results;
        for (std::size_t k = 0; k < results.size(); ++k)
            if (!keeps(results[k], i.results[k])) return false;
        return true;
    }
    /// The filter, but what is pinned.
    [[nodiscard]] instruction_filter pinned(instruction_filter filter) const {
        if (options_.pinned.empty()) return filter;
        auto const mark = [this, filter](tensor_id t) {
            bool const is_pinned = std::ranges::find(options_.pinned, t, &pinned_tensor::tensor) != options_.pinned.end();
            return is_pinned ? (std::uint64_t{1} << 63) | t : filter.mark(t);
        };
        return {[this, filter](instruction const& i) { return filter(i) && keeps_pins(i); }, mark};
    }

    /// The programs of some instructions; `steps_` then has all instructions met.
    [[nodiscard]] cut_graph explore(instruction_filter allowed) {
        space_.restrict_to(std::move(allowed));
        auto graph = search::explore(space_, options_.width);
        while (steps_.size() < space_.instructions().size())
            steps_.push_back(make_step(space_.program(), space_.instructions()[steps_.size()], options_.training));
        return graph;
    }

    /// Takes in programs that are never faster, only smaller. Returns whether they were missing.
    bool widen() {
        if (std::exchange(has_all_programs_, true)) return false;
        graph_ = explore(pinned(instruction_filter::everything()));
        return true;
    }

    /// Classes are device types here; each is priced as its device with the largest share.
    [[nodiscard]] priced_graph price(cut_graph const& graph, ratio_table const& ratios) const {
        largest_shares const shares(integral_shares(space_.program(), types_.per_device(ratios)), types_.of_device);
        return {space_, graph, steps_, model_, shares, options_.training};
    }
    [[nodiscard]] priced_graph price(ratio_table const& ratios) const { return price(graph_, ratios); }

    /// Prices a pair on integral shares and keeps it if it is the best so far.
    std::optional<double> consider(std::string origin, move_list const& path, ratio_table const& ratios) {
        auto [p, cost] = realise(path, space_, steps_, cluster_, types_.per_device(ratios), options_.training);
        std::optional<double> seconds;
        if (cost.fits) seconds = p.cost();
        trajectory_.push_back({std::move(origin), p.ratios, seconds});
        if (options_.progress) options_.progress(trajectory_.back());
        bool const is_allowed = options_.pinned.empty() || std::ranges::all_of(p.steps, [&](plan_step const& s) { return keeps_pins(s.instruction); });
        if (seconds && is_allowed && (!best_ || *seconds < best_->cost())) {
            best_ = std::move(p);
            best_path_ = path;
            best_ratios_ = ratios;
        }
        return seconds;
    }

    /// The strategies that trainers offer, each at its best. Data parallelism without gradient overlap is told apart, if the plan overlaps.
    void run_baselines() {
        for (auto const& b : baselines_of(space_.program())) {
            auto const graph = explore(b.allowed);
            bool const differs = Accumulator::overlaps_gradients && b.also_without_overlap;
            auto const run = [&](std::string const& name, ratio_table const& ratios) {
                auto const bounds = improve_bounds<Accumulator>(price(graph, ratios), 6);
                std::string const as_planned = differs ? name + ", overlapped" : name;
                if (!bounds.path && bounds.memory_binds) keep_least(as_planned, std::nullopt); // there are such programs, none that fits
                if (!bounds.path || !has_instruction(*bounds.path, b.witness)) return;
                keep_least(as_planned, consider(name, *bounds.path, ratios));
                if (!differs) return;
                auto apart = options_.training;
                apart.overlaps_gradients = false;
                auto const [p, cost] = realise(*bounds.path, space_, steps_, cluster_, types_.per_device(ratios), apart);
                keep_least(name, cost.fits ? std::optional(p.cost()) : std::nullopt);
            };
            run(b.at_even, even_);
            run(b.at_proportional, proportional_);
        }
    }
    void keep_least(std::string const& name, std::optional<double> cost) {
        auto& entry = baselines_[name];
        if (cost && (!entry || *cost < *entry)) entry = cost;
    }
    [[nodiscard]] bool has_instruction(move_list const& path, std::function<bool(instruction const&)> const& wanted) const {
        return std::ranges::any_of(path, [&](auto a) {
            return std::ranges::any_of(space_.moves()[a].instructions, [&](auto i) { return wanted(space_.instructions()[i]); });
        });
    }

    /// Program, ratios, program, ... until a pair repeats or rounds are over (HAP section 3.1).
    void alternate(std::string const& start, ratio_table ratios) {
        std::set<move_list> seen;
        for (int round = 0; round < options_.rounds && !out_of_time(); ++round) {
            auto const found = synthesise_at(ratios, options_.synthesis);
            std::string const origin = start + ", round " + std::to_string(round + 1);
            if (!found.path) {
                if (auto const roomier = make_room(origin, ratios); roomier && round == 0) {
                    ratios = *roomier;
                    continue;
                }
                return;
            }
            consider(origin + ", program", *found.path, ratios);
            bool const is_new = seen.insert(*found.path).second;
            auto const balanced = balance(*found.path, ratios);
            if (!balanced) return;
            consider(origin + ", ratios", *found.path, *balanced);
            double change = 0;
            for (std::size_t g = 0; g < ratios.size(); ++g)
                for (std::size_t k = 0; k < ratios[g].size(); ++k) change = std::max(change, std::abs(ratios[g][k] - (*balanced)[g][k]));
            if (!is_new || change < 1e-6) return;
            ratios = *balanced;
        }
    }

    synthesis_result synthesise_at(ratio_table const& ratios, synthesis_options options) {
        if (options_.time_limit_seconds) options.search.time_limit_seconds = std::max(0.0, *options_.time_limit_seconds - elapsed());
        auto found = synthesise<Accumulator>(price(ratios), options);
        statistics_ += found.statistics;
        if (found.which_limit != search::limit_kind::none) which_limit_ = found.which_limit;
        memory_binds_ |= found.memory_binds;
        return found;
    }

    /// The program of least memory, its communication buffers counted as if all were there at once, or not at all.
    [[nodiscard]] std::optional<move_list> least_memory(priced_graph const& priced, bool count_buffers) const {
        auto const paths = priced.shortest_under([&](move_price const& move) {
            double sum = 0;
            for (std::size_t k = 0; k < move.memory.size(); ++k) sum += (move.memory[k] + (count_buffers ? move.buffer : 0)) / model_.memory_limit(k);
            return sum;
        });
        if (!std::isfinite(paths.to_goal())) return std::nullopt;
        return search::follow(graph_, paths);
    }

    /// Where nothing fits: ratios at which the program of least memory does, if the solver finds any.
    std::optional<ratio_table> make_room(std::string const& origin, ratio_table const& ratios) {
        auto const priced = price(ratios);
        for (bool count_buffers : {true, false}) {
            auto const path = least_memory(priced, count_buffers);
            if (!path) continue;
            consider(origin + ", least memory", *path, ratios);
            auto const balanced = balance(*path, ratios);
            if (!balanced) continue;
            consider(origin + ", least memory, ratios", *path, *balanced);
            return *balanced;
        }
        return std::nullopt;
    }

    /// Searches on at the best ratios, with the best program as incumbent.
    void search_longer() {
        if (out_of_time()) return;
        which_limit_ = search::limit_kind::none;
        auto options = options_.synthesis;
        options.search = options_.last_search;
        options.start = best_path_;
        auto const ratios = best_ratios_;
        auto const found = synthesise_at(ratios, options);
        if (!found.path) return;
        consider("longer search, program", *found.path, ratios);
        if (auto const balanced = balance(*found.path, ratios)) consider("longer search, ratios", *found.path, *balanced);
    }

    /// The best ratios of a program whose shards move in the way that is best at `ratios`, by segment and type.
    std::optional<ratio_table> balance(move_list const& path, ratio_table const& ratios) {
        auto const& program = space_.program();
        auto const segment_of = [&](share_ref ref) -> std::size_t { return program.tensors[ref.tensor].factors[static_cast<std::size_t>(ref.factor)].segment; };
        segment_shares const shares(program, ratios);
        std::vector<step> steps;
        std::vector<std::pair<std::size_t, holding>> saved;
        for (auto const& s : steps_of(path, space_, steps_)) {
            steps.push_back(model_.decided(s.step, shares));
            for (auto const& [t, f] : s.saved) saved.push_back({f.is_shard() ? segment_of({t, f.factor()}) : 0, held_bytes(program.tensors[t], f)});
        }
        auto problem = make_ratio_problem(steps, saved, model_, proportional_.front(), ratios.size(), segment_of);
        if (ratios.size() == 1) {
            auto solution = solver_.solve(problem.segments.front());
            return solution.feasible ? std::optional<ratio_table>({std::move(solution.ratios)}) : std::nullopt;
        }
        if constexpr (segmented_ratio_solver<Solver>) {
            auto solution = solver_.solve(problem);
            if (solution.feasible) return std::move(solution.ratios);
        }
        return std::nullopt;
    }

    /// A bound for every program at the plan's integral shares. A better program met on the way is
    /// taken up, and the bound taken anew.
    void prove() {
        if constexpr (interleaves) return prove_by_search();
        for (int left = 4;; --left) {
            if (memory_binds_) widen(); // a bound that prices memory is for programs of the graph alone
            auto const model = per_device_model(cluster_, main_type(space_.program()));
            priced_graph const priced(space_, graph_, steps_, model, integral_shares(space_.program(), best_->ratios, best_->cuts));
            auto const bounds = improve_bounds<Accumulator>(priced, 2 * options_.synthesis.relaxation_rounds);
            if (bounds.memory_binds && !has_all_programs_) {
                memory_binds_ = true;
                continue;
            }
            double const cost = best_->cost();
            assert(bounds.lower_bound <= cost * (1 + 1e-9));
            best_->lower_bound = is_complete() ? std::min(std::max(bounds.lower_bound, 0.0), cost) : 0;
            if (left == 0 || !bounds.path || bounds.cost.seconds >= cost * (1 - 1e-9)) return;
            auto [p, found] = realise(*bounds.path, space_, steps_, cluster_, best_->ratios, options_.training);
            if (!found.fits || p.cost() >= cost) return;
            trajectory_.push_back({"integral shares, round " + std::to_string(5 - left), p.ratios, p.cost()});
            best_ = std::move(p);
        }
    }

    /// The same where weights alone are a loose bound. Classes stand for their devices if that makes no difference to the plan.
    void prove_by_search() {
        if (memory_binds_) widen();
        double const cost = best_->cost();
        best_->lower_bound = 0;
        auto options = options_.synthesis;
        options.search = options_.last_search;
        options.start = best_path_;
        auto const priced = price(best_ratios_);
        if (!is_complete() || out_of_time() || std::abs(priced.template evaluate<Accumulator>(best_path_).seconds - cost) > 1e-9 * cost) return;
        auto const found = synthesise_at(best_ratios_, options);
        if (found.path && found.cost.seconds < cost * (1 - 1e-9)) consider("longer search, program", *found.path, ratio_table(best_ratios_));
        best_->lower_bound = std::min(found.lower_bound, best_->cost());
    }

    /// Whether the graph has every program of the space.
    [[nodiscard]] bool is_complete() const { return graph_.is_complete && space_.is_complete(); }

    void finish(plan& p) {
        p.status = p.lower_bound >= p.cost() * (1 - 1e-9) ? search::status::optimal
                   : which_limit_ == search::limit_kind::none && is_complete() ? search::status::feasible : search::status::limit;
        p.which_limit = p.status != search::status::limit ? search::limit_kind::none
                        : which_limit_ != search::limit_kind::none ? which_limit_ : search::limit_kind::labels;
        if (p.status == search::status::optimal) p.lower_bound = p.cost();
        fill(p);
    }

    void fill(plan& p) {
        p.baselines = baselines_;
        p.trajectory = std::move(trajectory_);
        statistics_.seconds = elapsed();
        p.statistics = statistics_;
        p.provenance.planner = "hap";
        p.provenance.cluster = cluster_.name;
        if (!is_complete())
            p.warnings.push_back("programs were left out, by the width bound of " + std::to_string(options_.width) +
                                 " states per cut or because an operator has too many operands; no lower bound is proven");
    }

    /// No program found at any ratios tried: says what the one of least memory would need.
    plan infeasible() {
        auto const ratios = everywhere(memory_proportional(model_));
        plan result;
        result.provenance.training = options_.training;
        if (auto const path = least_memory(price(ratios), true)) {
            auto [p, cost] = realise(*path, space_, steps_, cluster_, types_.per_device(ratios), options_.training);
            result.reason = memory_reason(p);
            result.devices = p.devices;
        } else {
            result.reason = "the theory has no program for this model";
        }
        bool const stopped = which_limit_ != search::limit_kind::none || !is_complete();
        result.status = stopped ? search::status::limit : search::status::infeasible;
        if (stopped) result.which_limit = which_limit_ != search::limit_kind::none ? which_limit_ : search::limit_kind::labels;
        fill(result);
        return result;
    }

    static std::string memory_reason(plan const& p) {
        std::size_t worst = 0;
        auto const use = [&](std::size_t d) { return p.memory[d].total() / p.devices[d].memory_limit.value; };
        for (std::size_t d = 1; d < p.devices.size(); ++d)
            if (use(d) > use(worst)) worst = d;
        auto const& m = p.memory[worst];
        char text[320];
        std::snprintf(text, sizeof text,
                      "memory: at the ratios tried nothing fits; in a program of little memory device %zu (%.60s) would need %.3g GB of %.3g GB: parameters %.3g, gradients %.3g, "
                      "optimizer %.3g, inputs %.3g, activations %.3g, communication %.3g",
                      worst, p.devices[worst].name().c_str(), m.total() / 1e9, p.devices[worst].memory_limit.value / 1e9, m.parameters / 1e9,
                      m.gradients / 1e9, m.optimizer / 1e9, m.inputs / 1e9, m.activations / 1e9, m.communication / 1e9);
        return text;
    }

    [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    [[nodiscard]] bool out_of_time() {
        if (!options_.time_limit_seconds || elapsed() < *options_.time_limit_seconds) return false;
        which_limit_ = search::limit_kind::time;
        return true;
    }

    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    cluster const& cluster_;
    Solver& solver_;
    hap_options const& options_;
    cut_space space_;
    cut_graph graph_;
    device_types types_;
    cost_model model_;
    ratio_table proportional_, even_;
    std::vector<step> steps_;
    std::optional<plan> best_;
    move_list best_path_;
    ratio_table best_ratios_;
    std::map<std::string, std::optional<double>> baselines_;
    std::vector<trajectory_point> trajectory_;
    search::statistics statistics_;
    search::limit_kind which_limit_ = search::limit_kind::none;
    bool memory_binds_ = false, has_all_programs_ = false;
};

} // namespace detail

namespace detail {

template <ratio_solver Solver>
[[nodiscard]] plan with_accumulator(indexed_program const& p, cluster const& c, Solver& solver, hap_options const& options, auto&& use) {
    if (options.training.interleaves()) return use(hap_run<duplex, Solver>(p, c, solver, options));
    if (options.training.overlaps_gradients) return use(hap_run<overlapped, Solver>(p, c, solver, options));
    return use(hap_run<serial, Solver>(p, c, solver, options));
}

/// The two segments whose ratios differ least over all devices. *Precondition:* there are two at least.
[[nodiscard]] inline std::pair<segment_number, segment_number> nearest_segments(ratio_table const& ratios) {
    std::pair<segment_number, segment_number> nearest{0, 1};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < ratios.size(); ++a)
        for (std::size_t b = a + 1; b < ratios.size(); ++b) {
            double distance = 0;
            for (std::size_t d = 0; d < ratios[a].size(); ++d) distance += std::abs(ratios[a][d] - ratios[b][d]);
            if (distance < least) {
                least = distance;
                nearest = {static_cast<segment_number>(a), static_cast<segment_number>(b)};
            }
        }
    return nearest;
}

/// Goes on from a plan in one segment: all segments with ratios of their own, then, one pair after the other, segments whose ratios
/// are nearest get the same again; keeps the cheapest.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_segments(Program const& program, cluster const& c, Solver& solver, hap_options const& options, plan best) {
    auto segments = numbered_in_order(options.segments);
    auto const start = best.ratios.front();
    for (;;) {
        auto const indexed = index_program(program, segments);
        std::size_t const count = segment_count(indexed);
        if (count == 1) return best;
        auto found = with_accumulator(indexed, c, solver, options, [&](auto&& run) { return run.run_from(ratio_table(count, start)); });
        if (!found.exists()) return best;
        best.statistics += found.statistics;
        auto const [kept, merged] = nearest_segments(found.ratios);
        bool const is_better = found.cost() < best.cost();
        if (is_better) {
            found.baselines = best.baselines;
            found.statistics = best.statistics;
            found.trajectory.insert(found.trajectory.begin(), best.trajectory.begin(), best.trajectory.end());
            best = std::move(found);
        } else if (!best.segments.empty()) {
            return best;
        }
        for (auto& s : segments)
            if (s == merged) s = kept;
        segments = numbered_in_order(std::move(segments));
    }
}

} // namespace detail

/// Plans a program on a cluster.
///
/// Alternates between the best program at fixed ratios and the best ratios of a fixed program, from
/// compute-proportional and from even ratios, prices every pair on integral shards, baselines included, and
/// returns the cheapest that fits into memory, with a bound for its shares. Device groups are planned as one device each, data parallel
/// inside. Segments, where there are any, start from the best ratios of one.
/// *Throws* `input_error` for a cluster that `validate` refuses, a program that is not well formed, or segments that do not fit it.
/// *Complexity.* Linear in the operators for a bounded number of tensors in use at a cut.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan plan_hap(Program const& program, cluster const& c, Solver&& solver, hap_options const& options = {}) {
    validate(c);
    if (!options.segments.empty()) {
        if (options.segments.size() != static_cast<std::size_t>(program_access<Program>::operator_count(program)))
            throw input_error("segments", "there are " + std::to_string(options.segments.size()) + ", expected one per operator");
        if (has_groups(c)) throw input_error("segments", "device groups are planned in one segment only");
        if (!segmented_ratio_solver<std::remove_reference_t<Solver>>) throw input_error("segments", "the ratio solver solves for one segment only");
    }
    indexed_program indexed = index_program(program);
    if (has_groups(c) && options.training.interleaves()) throw input_error("cluster '" + c.name + "'", "has device groups, whose micro-batches do not take turns");
    if (has_groups(c)) split_inside(indexed);
    plan one = detail::with_accumulator(indexed, c, solver, options, [](auto&& run) { return run.run(); });
    return options.segments.empty() || !one.exists() ? one : detail::plan_segments(program, c, solver, options, std::move(one));
}

/// The one call for the common case.
template <single_device_program Program, ratio_solver Solver>
[[nodiscard]] plan find_plan(Program const& program, cluster const& c, Solver&& solver, hap_options const& options = {}) {
    return plan_hap(program, c, solver, options);
}

/// Refuses what is no program with a sentence that says why.
template <class Program, ratio_solver Solver>
    requires(!single_device_program<Program>)
plan find_plan(Program const&, cluster const&, Solver&&, hap_options const& = {}) {
    static_assert(require_single_device_program<Program>());
    return {};
}

} // namespace heddle
