// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief HAP's alternation on one indexed program.
///
/// HAP (EuroSys '24), sections 3 to 5.
#pragma once

#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/planner/balance_program.hpp>
#include <heddle/planner/baselines.hpp>
#include <heddle/planner/device_types.hpp>
#include <heddle/planner/global_bound.hpp>
#include <heddle/planner/memory_reason.hpp>
#include <heddle/planner/pins.hpp>
#include <heddle/planner/planning_progress.hpp>
#include <heddle/planner/synthesis.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

struct hap_options {
    training_options training{};
    synthesis_options synthesis{};
    /// Limits of one last search at the best ratios, run where one before it was cut short; where memory binds and something fits, or gradients overlap, only if
    /// one paid, see `synthesis_result::search_pays`.
    search::options last_search{.label_limit = 200'000, .comparison_limit = 50'000'000};
    /// Pairs of program and ratios tried from each start.
    int rounds = 6;
    /// States kept per cut; where that leaves any out, no bound is proven.
    std::size_t width = 20'000;
    /// Cuts of equally many operators that are kept: one, those of the order given. Other orders are of use where micro-batches take turns; where
    /// some are left out, their bound is that of added costs. See `operator_cuts`.
    std::size_t cuts = 1;
    /// Of each operator: segments may have ratios of their own. None: the program is one segment. See planner/segments.hpp.
    std::vector<segment_number> segments{};
    /// Tensors that are read or computed in these forms alone; baselines that do otherwise are priced all the same.
    std::vector<pinned_tensor> pinned{};
    std::optional<double> time_limit_seconds{};
    /// Once stop is requested, planning ends soon with the best found, as when time is over.
    std::stop_token stop{};
    progress_function progress{};
};

namespace detail {

/// The run of one planning task; see `plan_hap`.
template <class Accumulator, ratio_solver Solver>
class hap_run {
public:
    hap_run(indexed_program const& program, cluster const& c, Solver& solver, hap_options const& options)
        : cluster_(c), solver_(solver), options_(options), space_(program, operator_kinds(program), options.cuts), types_(c), model_(c, types_.classes, main_type(program), options.training.bucket),
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
    static constexpr int global_rounds = 4;
    /// Of devices that a bound at a plan's own shares keeps clocks for; rounding may make more kinds of them.
    static constexpr std::size_t most_clocks = 16;
    /// States kept per cut when time is over: a graph is finished all the same.
    static constexpr std::size_t width_in_haste = 20;
    static constexpr bool interleaves = requires { Accumulator::interleaves; };
    /// Whether a search proves more than relaxations do: those hold for instructions in any order, but where gradients overlap. There one
    /// search of the plan's own shares is all, and programs at other ratios are those that relaxations meet.
    static constexpr bool search_proves = Accumulator::overlaps_gradients;
    struct starting_point {
        std::string name;
        ratio_table ratios;
    };
    plan alternate_from(std::vector<starting_point> starts) {
        tell("programs");
        if (options_.pinned.empty()) graph_ = explore(wanted(fastest_programs(space_.program(), gather())));
        else widen(); // pins may forbid what is fastest without them
        for (auto const& s : starts) alternate(s.name, s.ratios);
        if (memory_binds_) {
            which_limit_ = search::limit_kind::none;
            bool const is_wider = widen();
            for (auto const& s : starts) shift(s.name, s.ratios);
            if (!is_wider) starts.clear();
            starts.push_back({"memory-proportional", everywhere(memory_proportional(model_))});
            for (auto const& s : starts) alternate(s.name + ", any storage", s.ratios);
        }
        if (best_ && has_curves()) {
            follows_curves_ = true;
            alternate("best ratios, curved", best_ratios_);
            for (auto const& s : starts) alternate(s.name + ", curved", s.ratios);
        }
        if (best_) look_around();
        if (!search_proves && which_limit_ != search::limit_kind::none && (search_pays_ || !memory_binds_ || !best_)) search_longer();
        if (!best_) return infeasible();
        move_atoms();
        prove();
        finish(*best_);
        return std::move(*best_);
    }

    [[nodiscard]] best_gather gather() const {
        return interleaves ? best_gather::before_use : options_.training.copies_gradients ? best_gather::either : best_gather::after_update;
    }
    /// The same ratios in every segment.
    [[nodiscard]] ratio_table everywhere(std::vector<double> const& per_type) const { return ratio_table(segment_count(space_.program()), per_type); }

    /// What is planned with: programs that keep the pins, and convert before views.
    [[nodiscard]] instruction_filter wanted(instruction_filter allowed) const {
        return converting_before_views(space_.program(), with_pins(space_.program(), options_.pinned, std::move(allowed)));
    }
    /// The programs of some instructions; `steps_` then has all instructions met.
    [[nodiscard]] cut_graph explore(instruction_filter allowed) {
        space_.restrict_to(std::move(allowed));
        auto graph = search::explore(space_, [&] { return out_of_time() ? std::min(options_.width, width_in_haste) : options_.width; });
        while (steps_.size() < space_.instructions().size())
            steps_.push_back(make_step(space_.program(), space_.instructions()[steps_.size()], options_.training));
        return graph;
    }

    /// Takes in programs that are never faster, only smaller. Returns whether they were missing.
    bool widen() {
        if (std::exchange(has_all_programs_, true)) return false;
        graph_ = explore(wanted(instruction_filter::everything()));
        search_pays_ = false;
        return true;
    }

    [[nodiscard]] cost_model model_on(cluster const& c, std::vector<device_class> const& classes, std::size_t clocks) const {
        return {c, classes, main_type(space_.program()), options_.training.bucket, clocks};
    }
    /// Classes are device types here; each is priced as its device with the largest share.
    [[nodiscard]] priced_graph price(cut_graph const& graph, cost_model const& model, ratio_table const& ratios) const {
        largest_shares const shares(integral_shares(space_.program(), types_.per_device(ratios)), types_.of_device);
        return {space_, graph, steps_, model, shares, options_.training};
    }
    [[nodiscard]] priced_graph price(ratio_table const& ratios) const { return price(graph_, model_, ratios); }
    /// The plan's own shares, and prices at them. Devices of one class have equal shares of everything: a class priced at larger ones would not bound them.
    /// Where rounding makes many classes, those with most to do in the plan have clocks; that is a bound for all.
    struct planned_prices {
        integral_shares shares;
        alike_devices devices;
        cost_model model;
        priced_graph priced;

        planned_prices(hap_run const& run, plan const& p)
            : shares(run.space_.program(), p.ratios, p.cuts), devices(parted(run, shares, p)), model(run.model_on(run.cluster_, devices.classes, most_clocks)),
              priced(run.space_, run.graph_, run.steps_, model, largest_shares(shares, devices.of_device), run.options_.training) {}
        planned_prices(planned_prices const&) = delete;
        planned_prices& operator=(planned_prices const&) = delete;

    private:
        static alike_devices parted(hap_run const& run, integral_shares const& shares, plan const& p) {
            alike_devices result(run.cluster_);
            std::set<share_vector const*> seen;
            auto const& tensors = run.space_.program().tensors;
            for (tensor_id t = 0; t < tensors.size(); ++t)
                for (std::size_t f = 0; f < tensors[t].factors.size(); ++f)
                    if (auto const& share = shares(share_ref{t, static_cast<factor_number>(f)}); seen.insert(&share).second) result.refine(share);
            if (result.classes.size() <= most_clocks) return result;
            auto const loads = loads_of(p, run.cluster_);
            auto const first = result.first_devices();
            std::vector<std::size_t> order(result.classes.size());
            std::iota(order.begin(), order.end(), std::size_t{0});
            std::ranges::sort(order, {}, [&](std::size_t k) { return std::pair(-loads[first[k]], k); });
            result.renumber(order);
            return result;
        }
        /// Seconds of work by device.
        static std::vector<double> loads_of(plan const& p, cluster const& c) {
            plan_devices const at(p, c);
            std::vector<double> of_class(at.model.class_count()), result;
            for (auto const& s : p.steps) {
                auto const cost = at.model.price(s.step, at.shares);
                for (std::size_t k = 0; k < of_class.size(); ++k) of_class[k] += cost.forward[k] + cost.backward[k] + cost.update[k];
            }
            for (auto k : at.alike.of_device) result.push_back(of_class[k]);
            return result;
        }
    };

    /// Prices a pair on integral shares and keeps it if it is the best so far.
    std::optional<double> consider(std::string origin, move_list const& path, ratio_table const& ratios) {
        auto [p, cost] = realise(path, space_, steps_, cluster_, types_.per_device(ratios), options_.training);
        std::optional<double> seconds;
        if (cost.fits) seconds = p.cost();
        trajectory_.push_back({std::move(origin), p.ratios, seconds});
        bool const is_allowed = std::ranges::all_of(p.steps, [&](plan_step const& s) { return keeps_pins(space_.program(), options_.pinned, s.instruction); });
        if (seconds && is_allowed) keep(path, ratios, *seconds);
        if (seconds && is_allowed && (!best_ || *seconds < best_->cost())) {
            best_ = std::move(p);
            best_path_ = path;
            best_ratios_ = ratios;
        }
        tell(trajectory_.back().origin);
        return seconds;
    }
    void keep(move_list const& path, ratio_table const& ratios, double cost) {
        if (auto const known = std::ranges::find(candidates_, path, &candidate::path); known != candidates_.end()) {
            if (known->cost <= cost) return;
            candidates_.erase(known);
        }
        candidates_.insert(std::ranges::upper_bound(candidates_, cost, {}, &candidate::cost), {path, ratios, cost});
    }
    void tell(std::string const& phase) const {
        if (!options_.progress) return;
        planning_progress now{phase};
        if (best_) now.cost = best_->cost();
        if (best_ && bound_.ratios == best_ratios_) now.lower_bound = bound_.seconds;
        options_.progress(now);
    }

    /// The strategies that trainers offer, each at its best: under the plan's options and, some of them, with the other choice of gradient overlap.
    void run_baselines() {
        using other_accumulator = std::conditional_t<Accumulator::overlaps_gradients, serial, overlapped>;
        auto other_training = options_.training;
        other_training.overlaps_gradients = !other_training.overlaps_gradients;
        std::string const otherwise = other_training.overlaps_gradients ? ", with gradient overlap" : ", without gradient overlap";
        for (auto const& b : baselines_of(space_.program())) {
            if (until_.is_over() && best_) return;
            tell("baseline " + b.at_even);
            auto const graph = explore(b.allowed);
            auto const run = [&](std::string const& name, ratio_table const& ratios) {
                auto const priced = price(graph, model_, ratios);
                run_baseline<Accumulator>(b, priced, name, baselines_, [&](move_list const& path) { return consider(name, path, ratios); });
                if (!b.in_both_overlaps) return;
                run_baseline<other_accumulator>(b, priced, name + otherwise, other_baselines_, [&](move_list const& path) {
                    auto const [p, cost] = realise(path, space_, steps_, cluster_, types_.per_device(ratios), other_training);
                    return cost.fits ? std::optional(p.cost()) : std::nullopt;
                });
            };
            run(b.at_even, even_);
            run(b.at_proportional, proportional_);
        }
    }
    /// Prices the strategy's best program at some ratios by `cost_of(path)`. There is an entry only if there are such programs.
    template <class AnyAccumulator, class CostOf>
    void run_baseline(baseline const& b, priced_graph const& priced, std::string const& name, strategy_costs& costs, CostOf const& cost_of) const {
        auto const bounds = improve_bounds<AnyAccumulator>(priced, 6);
        if (bounds.path ? !has_instruction(*bounds.path, b.witness) : !bounds.memory_binds) return;
        auto const cost = bounds.path ? cost_of(*bounds.path) : std::nullopt; // or none fits
        auto& least = costs[name];
        if (cost && (!least || *cost < *least)) least = cost;
    }
    [[nodiscard]] bool has_instruction(move_list const& path, std::function<bool(instruction const&)> const& sought) const {
        return std::ranges::any_of(path, [&](auto a) {
            return std::ranges::any_of(space_.moves()[a].instructions, [&](auto i) { return sought(space_.instructions()[i]); });
        });
    }

    /// Program, ratios, program, ... until a pair repeats or rounds are over (HAP section 3.1).
    void alternate(std::string const& start, ratio_table ratios) {
        std::set<move_list> seen;
        for (int round = 0; round < options_.rounds && !out_of_time(); ++round) {
            auto options = options_.synthesis;
            if (search_proves) options.search.label_limit = 0;
            options.patience = 2; // wider beams prove more, but that is for later
            std::string const origin = start + ", round " + std::to_string(round + 1);
            tell(origin);
            auto const found = synthesise_at(ratios, options);
            search_pays_ |= found.which_limit != search::limit_kind::none && found.search_pays;
            if (!found.path) {
                if (auto const roomier = make_room(origin, ratios); roomier && round == 0) {
                    ratios = *roomier;
                    continue;
                }
                return;
            }
            consider(origin + ", program", *found.path, ratios);
            bool const is_new = seen.insert(*found.path).second;
            auto const balanced = balance_at(*found.path, ratios);
            if (!balanced) return;
            consider(origin + ", ratios", *found.path, *balanced);
            double change = 0;
            for (std::size_t g = 0; g < ratios.size(); ++g)
                for (std::size_t k = 0; k < ratios[g].size(); ++k) change = std::max(change, std::abs(ratios[g][k] - (*balanced)[g][k]));
            if (!is_new || change < 1e-6) return;
            ratios = *balanced;
        }
    }

    [[nodiscard]] std::optional<ratio_table> balance_at(move_list const& path, ratio_table const& ratios) {
        return balance(path, ratios, {space_, steps_, model_, options_.training, proportional_.front()}, solver_, follows_curves_);
    }

    synthesis_result synthesise_within_time(priced_graph const& priced, synthesis_options options) {
        if (auto const left = until_.left()) options.search.time_limit_seconds = left;
        options.search.stop = options_.stop;
        if (is_stopped()) options.relaxation_rounds = 1;
        auto found = synthesise<Accumulator>(priced, options);
        statistics_ += found.statistics;
        return found;
    }
    synthesis_result synthesise_at(ratio_table const& ratios, synthesis_options options) {
        if (weights_) options.relaxation_rounds /= 2;
        options.weights = weights_;
        if (best_) options.start = best_path_;
        auto found = synthesise_within_time(price(ratios), std::move(options));
        if (found.weights) weights_ = found.weights;
        bound_ = {ratios, found.lower_bound};
        if (found.which_limit != search::limit_kind::none) which_limit_ = found.which_limit;
        memory_binds_ |= found.memory_binds;
        return found;
    }

    /// The last search, after one of a twentieth of it that paid.
    synthesis_result search_while_it_pays(priced_graph const& priced, synthesis_options options) {
        options.search = options_.last_search;
        options.search.label_limit /= 20;
        options.search.comparison_limit /= 20;
        auto first = synthesise_within_time(priced, options);
        if (first.which_limit == search::limit_kind::none || !first.search_pays) return first;
        options.search = options_.last_search;
        options.start = first.path;
        options.weights = first.weights; // as tight a relaxation in one round
        options.relaxation_rounds = 1;
        return synthesise_within_time(priced, std::move(options));
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
            auto const balanced = balance_at(*path, ratios);
            if (!balanced) continue;
            consider(origin + ", least memory, ratios", *path, *balanced);
            return *balanced;
        }
        return std::nullopt;
    }

    /// Where memory binds: the fastest program at these ratios, fitting or not, at the ratios where it fits and is fastest, and on from there.
    void shift(std::string const& start, ratio_table const& ratios) {
        if (out_of_time()) return;
        auto roomy = cluster_;
        for (auto& type : roomy.types) type.memory = bytes(std::numeric_limits<double>::max());
        auto const model = model_on(roomy, types_.classes, types_.classes.size());
        auto const path = improve_bounds<Accumulator>(price(graph_, model, ratios), 6).path;
        if (!path) return;
        auto const balanced = balance_at(*path, ratios);
        if (!balanced || !consider(start + ", memory aside, ratios", *path, *balanced)) return;
        alternate(start + ", memory aside", *balanced);
    }

    /// Rounding makes of near ratios far plans, so what is dearer before it may be cheaper after it. Candidates are besides: the best program without some
    /// type of device, and those of least work, collectives and memory at ratios of their own.
    void look_around() {
        for (std::size_t k = 0; k < types_.classes.size() && !out_of_time(); ++k)
            if (auto const fewer = without(best_ratios_, k)) consider("without " + cluster_.types[types_.classes[k].type].name, move_list(best_path_), *fewer);
        auto const ratios = best_ratios_;
        for (auto const& [name, path] : extremes(price(ratios))) {
            if (out_of_time()) return;
            consider(name, path, ratios);
            if (auto const balanced = balance_at(path, ratios)) consider(name + ", ratios", path, *balanced);
        }
    }
    [[nodiscard]] std::vector<std::pair<std::string, move_list>> extremes(priced_graph const& priced) const {
        auto const total = [](std::span<double const> list) { return std::accumulate(list.begin(), list.end(), 0.0); };
        auto const work = [&](move_price const& m) { return total(m.work) + total(m.backward_work) + total(m.update); };
        auto const network = [](move_price const& m) { return m.transfers.total(); };
        constexpr double slight = 1e-6; // tells apart what is equal otherwise
        std::vector<std::pair<std::string, move_list>> result;
        auto const add = [&](std::string name, search::shortest_paths const& paths) {
            if (std::isfinite(paths.to_goal())) result.push_back({std::move(name), search::follow(graph_, paths)});
        };
        add("least work", priced.shortest_under([&](move_price const& m) { return work(m) + slight * network(m); }));
        add("least communication", priced.shortest_under([&](move_price const& m) { return slight * work(m) + network(m); }));
        if (auto path = least_memory(priced, true)) result.push_back({"least memory", std::move(*path)});
        return result;
    }
    /// The ratios with none for a type; nothing if no other type has any.
    [[nodiscard]] std::optional<ratio_table> without(ratio_table ratios, std::size_t type) const {
        for (auto& row : ratios) {
            double const left = 1 - row[type] * types_.classes[type].count;
            if (row[type] == 0 || left < 1e-9) return std::nullopt;
            row[type] = 0;
            for (auto& r : row) r /= left;
        }
        return ratios;
    }
    /// Moves atoms of the best plan of every program between devices, cheapest first, as long as that makes it cheaper.
    void move_atoms() {
        std::size_t work = 40'000;
        for (auto const& [path, ratios, cost] : candidates_) {
            if (is_stopped() || work < best_->steps.size() * best_->devices.size()) return;
            auto moved = realise(path, space_, steps_, cluster_, types_.per_device(ratios), options_.training).first;
            if (!detail::move_atoms(moved, cluster_, types_.of_device, work) || moved.cost() >= best_->cost()) continue;
            trajectory_.push_back({"atoms moved", moved.ratios, moved.cost()});
            best_ = std::move(moved);
            best_path_ = path;
            best_ratios_ = ratios;
        }
    }

    /// Searches on at the best ratios.
    void search_longer() {
        if (out_of_time()) return;
        tell("longer search");
        which_limit_ = search::limit_kind::none;
        auto options = options_.synthesis;
        options.search = options_.last_search;
        auto const ratios = best_ ? best_ratios_ : everywhere(memory_proportional(model_));
        auto const found = synthesise_at(ratios, options);
        if (!found.path) return;
        consider("longer search, program", *found.path, ratios);
        if (auto const balanced = balance_at(*found.path, ratios)) consider("longer search, ratios", *found.path, *balanced);
    }

    /// A bound for every program at the plan's integral shares, and one at any. A better program met on the way is
    /// taken up, and the bound taken anew.
    void prove() {
        tell("proof");
        if constexpr (interleaves) return prove_by_search();
        auto options = options_.synthesis;
        options.relaxation_rounds *= search_proves ? 4 : 2;
        if (!search_proves) options.search.label_limit = 0;
        for (int left = 4;; --left) {
            if (memory_binds_) widen(); // a bound that prices memory is for programs of the graph alone
            planned_prices const at(*this, *best_);
            options.start = best_path_;
            if (search_proves && weights_) options.weights = spread(*weights_, at.devices);
            auto const found = search_proves ? search_while_it_pays(at.priced, options) : synthesise_within_time(at.priced, options);
            if (found.memory_binds && !has_all_programs_) {
                memory_binds_ = true;
                continue;
            }
            if (search_proves) which_limit_ = found.which_limit;
            double const cost = best_->cost();
            assert(found.lower_bound <= cost * (1 + 1e-9));
            best_->lower_bound = is_complete() ? std::min(found.lower_bound, cost) : 0;
            if (left == 0 || !found.path || found.cost.seconds >= cost * (1 - 1e-9)) break;
            auto [p, now] = realise(*found.path, space_, steps_, cluster_, best_->ratios, options_.training);
            if (!now.fits || p.cost() >= cost) break;
            std::string const origin = "integral shares, round " + std::to_string(5 - left);
            trajectory_.push_back({origin, p.ratios, p.cost()});
            best_ = std::move(p);
            best_path_ = *found.path;
            if (!search_proves) continue;
            if (auto const balanced = balance_at(best_path_, best_ratios_)) consider(origin + ", ratios", move_list(best_path_), *balanced);
        }
        if (!is_complete() || !weights_ || until_.is_over()) return;
        auto weights = *weights_; // of memory prices, those found and none: either is a bound
        double bound = 0;
        if (has_all_programs_ && std::ranges::any_of(weights.memory, [](double w) { return w > 0; }))
            bound = global_lower_bound(space_, graph_, steps_, model_, weights, proportional_.front(), global_rounds);
        std::ranges::fill(weights.memory, 0.0);
        bound = std::max(bound, global_lower_bound(space_, graph_, steps_, model_, weights, proportional_.front(), global_rounds));
        best_->global_lower_bound = std::min(bound, best_->lower_bound);
    }
    /// The same where weights alone are a loose bound.
    void prove_by_search() {
        auto options = options_.synthesis;
        options.search = options_.last_search;
        if (weights_) options.relaxation_rounds /= 2;
        for (int left = 4;; --left) {
            if (memory_binds_) widen();
            best_->lower_bound = 0;
            if (!is_complete() || out_of_time()) return;
            double const cost = best_->cost();
            planned_prices const at(*this, *best_);
            if (weights_) options.weights = spread(*weights_, at.devices);
            options.start = best_path_;
            auto const found = synthesise_within_time(at.priced, options);
            if (found.which_limit != search::limit_kind::none) which_limit_ = found.which_limit;
            if ((memory_binds_ |= found.memory_binds) && !has_all_programs_) continue; // programs that are only smaller count then
            if (left > 0 && found.path && found.cost.seconds < cost * (1 - 1e-9)) consider("longer search, program", *found.path, ratio_table(best_ratios_));
            if (best_->cost() < cost && !are_equal(at.shares, integral_shares(space_.program(), best_->ratios, best_->cuts))) continue; // the bound anew
            best_->lower_bound = std::min(found.lower_bound, best_->cost());
            return;
        }
    }
    /// Whether all factors have the same shares.
    [[nodiscard]] bool are_equal(integral_shares const& a, integral_shares const& b) const {
        auto const& tensors = space_.program().tensors;
        for (tensor_id t = 0; t < tensors.size(); ++t)
            for (std::size_t f = 0; f < tensors[t].factors.size(); ++f)
                if (share_ref const ref{t, static_cast<factor_number>(f)}; a(ref) != b(ref)) return false;
        return true;
    }

    /// From weights per type, shared evenly by its devices, to classes of devices; those of a class without a clock go to the first class of its type, or of all.
    [[nodiscard]] multipliers spread(multipliers const& per_type, alike_devices const& devices) const {
        auto result = per_type;
        std::size_t const clocks = std::min(most_clocks, devices.classes.size());
        result.time.clock.assign(clocks, 0.0);
        result.memory.assign(clocks, 0.0);
        for (std::size_t d = 0; d < devices.of_device.size(); ++d) {
            auto const from = types_.of_device[d];
            auto to = devices.of_device[d];
            if (to >= clocks) to = static_cast<std::size_t>(std::ranges::find(devices.classes, devices.classes[to].type, &device_class::type) - devices.classes.begin());
            if (to >= clocks) to = 0;
            result.time.clock[to] += per_type.time.clock[from] / types_.classes[from].count;
            result.memory[to] += per_type.memory[from] / types_.classes[from].count;
        }
        return result;
    }

    /// Whether ratios can be balanced by other than lines.
    [[nodiscard]] bool has_curves() const { return curved_ratio_solver<Solver> && !interleaves && model_.has_curves() && segment_count(space_.program()) == 1; }
    /// Whether the graph has every program of the space.
    [[nodiscard]] bool is_complete() const { return graph_.is_complete && space_.is_complete(); }
    /// Whether orders were left out that may matter.
    [[nodiscard]] bool lacks_orders() const { return interleaves && !space_.cuts().is_complete(); }
    /// What ended the search, if it was cut short.
    [[nodiscard]] search::limit_kind limit(bool lacks_programs) const {
        return which_limit_ == search::limit_kind::none && lacks_programs ? search::limit_kind::width : which_limit_;
    }

    void finish(plan& p) {
        bool const is_optimal = p.lower_bound >= p.cost() * (1 - 1e-9);
        if (is_stopped()) which_limit_ = search::limit_kind::stopped;
        p.space = space_name() + " at these shares";
        p.which_limit = is_optimal ? search::limit_kind::none : limit(!is_complete() || lacks_orders());
        p.status = is_optimal ? search::status::optimal : p.which_limit == search::limit_kind::none ? search::status::feasible : search::status::limit;
        if (is_optimal) p.lower_bound = p.cost();
        else if (p.lower_bound <= 0 && is_complete()) p.warnings.push_back("no lower bound is proven: there was no time left for it");
        fill(p);
    }

    void fill(plan& p) {
        p.baselines = baselines_;
        p.other_baselines = other_baselines_;
        p.trajectory = std::move(trajectory_);
        statistics_.seconds = until_.elapsed();
        p.statistics = statistics_;
        p.provenance.planner = "hap";
        p.provenance.cluster = cluster_.name;
        if (!is_complete())
            p.warnings.push_back("programs were left out, by the width bound of " + std::to_string(options_.width) +
                                 " states per cut, as time was over or because an operator has too many operands; no lower bound is proven");
        if (lacks_orders())
            p.warnings.push_back("orders of the operators were left out, by the bound of " + std::to_string(options_.cuts) + " cuts of equally many; the lower bound holds for them too");
    }

    /// No program found at any ratios tried: says what the one of least memory would need.
    plan infeasible() {
        auto const ratios = everywhere(memory_proportional(model_));
        plan result;
        result.provenance.training = options_.training;
        if (auto const path = least_memory(price(ratios), true)) {
            auto [p, cost] = realise(*path, space_, steps_, cluster_, types_.per_device(ratios), options_.training);
            if (memory_binds_ || which_limit_ == search::limit_kind::none) result.reason = memory_reason(p);
            result.devices = p.devices;
        } else {
            result.reason = options_.pinned.empty() ? "the theory has no program for this model" : "no program keeps what is pinned";
        }
        if (is_stopped()) which_limit_ = search::limit_kind::stopped;
        result.which_limit = limit(!is_complete());
        result.space = space_name() + " at the ratios tried";
        result.status = result.which_limit == search::limit_kind::none ? search::status::infeasible : search::status::limit;
        fill(result);
        return result;
    }

    [[nodiscard]] bool is_stopped() const { return options_.stop.stop_requested(); }
    [[nodiscard]] bool out_of_time() {
        auto const reached = until_.reached();
        if (reached != search::limit_kind::none) which_limit_ = reached;
        return reached != search::limit_kind::none;
    }

    /// Of what status and bounds are.
    [[nodiscard]] std::string space_name() const {
        return std::string("one-axis programs") + (has_groups(cluster_) ? " of device groups" : "") +
               (interleaves ? " of " + std::to_string(options_.training.micro_batches) + " micro-batches in turn" : "") + (options_.pinned.empty() ? "" : " that keep the pins");
    }

    cluster const& cluster_;
    Solver& solver_;
    hap_options const& options_;
    search::deadline until_{options_.time_limit_seconds, options_.stop};
    cut_space space_;
    cut_graph graph_;
    device_types types_;
    cost_model model_;
    ratio_table proportional_, even_;
    std::vector<step> steps_;
    /// What was found to fit, cheapest first: of each program, the best ratios.
    struct candidate {
        move_list path;
        ratio_table ratios;
        double cost;
    };
    std::vector<candidate> candidates_;
    std::optional<plan> best_;
    move_list best_path_;
    ratio_table best_ratios_;
    /// Of the relaxations at the last ratios, by type.
    std::optional<multipliers> weights_;
    strategy_costs baselines_, other_baselines_;
    std::vector<trajectory_point> trajectory_;
    search::statistics statistics_;
    search::limit_kind which_limit_ = search::limit_kind::none;
    /// Of the last search by type.
    struct {
        ratio_table ratios;
        double seconds = 0;
    } bound_;
    bool memory_binds_ = false, has_all_programs_ = false;
    /// Ratios are balanced with efficiencies as they are, not by lines below.
    bool follows_curves_ = false;
    /// Some search of the programs at hand was cut short, and paid.
    bool search_pays_ = false;
};

template <ratio_solver Solver>
[[nodiscard]] plan with_accumulator(indexed_program const& p, cluster const& c, Solver& solver, hap_options const& options, auto&& use) {
    if (options.training.interleaves()) return use(hap_run<duplex, Solver>(p, c, solver, options));
    if (options.training.overlaps_gradients) return use(hap_run<overlapped, Solver>(p, c, solver, options));
    return use(hap_run<serial, Solver>(p, c, solver, options));
}

} // namespace detail

} // namespace heddle
