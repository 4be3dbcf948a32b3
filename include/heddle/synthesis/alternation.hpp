// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Alternates between programs at fixed ratios and ratios of a fixed program.
///
/// HAP (EuroSys '24), section 3.1.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/stage_run.hpp>

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct starting_point {
    std::string name;
    ratio_table ratios;
};

/// Searches for the best pair of a program and ratios of device types.
class alternation {
public:
    alternation(stage_run& run, ratio_balancer const& balance)
        : run_(run), programs_(run.programs), record_(run.record), options_(run.options), balance_(balance),
          preferred_(run.programs.compute_proportional_ratios().front()) {}

    /// As many times what a plan has to beat is too much to search on for what takes turns; and for anything.
    static constexpr double by_far = 1.5, hopeless = 3;

    /// Alternates from each start in turn; if memory binds, among all programs and from more starts; then around the
    /// best found. If nothing fits, or plans cost too much beside `planning_options::worth_below`, that is all.
    void search_from(std::vector<starting_point> const& starts);
    /// Alternates once more, among other programs at hand than before: from the best ratios, and from each start.
    void search_again();

    /// Returns the best ratios of a program whose shards move in the way that is best at `ratios`.
    [[nodiscard]] std::optional<ratio_table> balance_at(move_list const& path, ratio_table const& ratios);

private:
    /// Alternates program, ratios, program, ... until one of them repeats or the rounds are used up.
    void alternate(std::string const& start, ratio_table ratios);
    /// Tells whether there is nothing to search for among the programs at hand, or no time to.
    [[nodiscard]] bool is_over() { return none_fits_ || run_.out_of_time(); }
    /// Tells whether what was found costs so much more than is of use that nothing near it will do.
    [[nodiscard]] bool costs_too_much() const {
        return !record_.is_empty() && std::isfinite(options_.worth_below) &&
               !run_.is_worth(options_.training.interleaves() ? by_far : hopeless);
    }
    /// Tells whether the programs at hand were searched at these ratios.
    [[nodiscard]] bool was_searched(ratio_table const& ratios) const;

    void alternate_in_all_storage(std::vector<starting_point> starts);
    /// Takes the fastest program at some ratios, whether or not it fits, moves to the ratios at which it fits and is
    /// fastest, and alternates from there.
    void shift(std::string const& start, ratio_table const& ratios);
    /// If nothing fits, returns ratios at which the program of least memory fits, if the solver finds any.
    std::optional<ratio_table> make_room(std::string const& origin, ratio_table const& ratios);

    /// Tells whether ratios can be balanced with curves instead of lines.
    [[nodiscard]] bool has_curves() const;
    /// Alternates once more, with efficiencies as they are instead of lines below them.
    void follow_curves(std::vector<starting_point> const& starts);

    /// Tries more candidates. Rounding turns near ratios into far plans, so what costs more before rounding may cost
    /// less after it. Candidates are also the best program without some type of device, and the programs of least work,
    /// collectives and memory, each at ratios of its own.
    void look_around();
    [[nodiscard]] std::vector<std::pair<std::string, move_list>> extremes(priced_graph const& priced) const;
    /// Returns the ratios with none for a type; nothing if no other type has any.
    [[nodiscard]] std::optional<ratio_table> without(ratio_table ratios, std::size_t type) const;

    /// Searches longer at the best ratios.
    void search_longer();

    stage_run& run_;
    stage_programs& programs_;
    plan_record& record_;
    planning_options const& options_;
    ratio_balancer const& balance_;
    /// For the types; if several ratios are best, one near these is taken.
    std::vector<double> preferred_;
    std::vector<starting_point> starts_;
    std::vector<ratio_table> searched_;
    /// Is set if ratios are balanced with efficiencies as they are, not with lines below them.
    bool follows_curves_ = false;
    /// Is set if a search of the programs at hand was cut short and a longer one may pay.
    bool search_pays_ = false;
    /// Is set if none of the programs at hand fits at any ratios.
    bool none_fits_ = false;
};

/// Moves atoms of the best plan of every program between devices, starting with the cheapest plan, as long as that
/// makes it cheaper.
void move_atoms_of_candidates(plan_record& record, stage_programs const& programs, search::deadline const& until);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

namespace heddle {

HEDDLE_INLINE void alternation::search_from(std::vector<starting_point> const& starts) {
    starts_ = starts;
    if (run_.nothing_fits) return;
    record_.tell("programs");
    programs_.take_fastest();
    for (auto const& s : starts) alternate(s.name, s.ratios);
    // Smaller programs may take less than what fits of these; but those that take turns do so to be fast.
    bool const must_be_fast = options_.training.interleaves() && std::isfinite(options_.worth_below);
    if (run_.memory_binds ? must_be_fast && !run_.is_worth(by_far) : costs_too_much()) {
        if (run_.memory_binds) run_.which_limit = search::limit_kind::width; // those are left out
        return;
    }
    if (run_.memory_binds) alternate_in_all_storage(starts);
    if (costs_too_much()) return;
    if (!record_.is_empty() && has_curves()) follow_curves(starts);
    if (!record_.is_empty()) look_around();
    bool const may_pay = search_pays_ || !run_.memory_binds || record_.is_empty();
    if (!run_.search_proves() && run_.which_limit != search::limit_kind::none && may_pay) search_longer();
}

HEDDLE_INLINE void alternation::search_again() {
    searched_.clear();
    none_fits_ = false;
    alternate("best ratios, other programs", record_.ratios());
    for (auto const& s : starts_) alternate(s.name + ", other programs", s.ratios);
}

HEDDLE_INLINE std::optional<ratio_table> alternation::balance_at(move_list const& path, ratio_table const& ratios) {
    return balance_(path, ratios,
                    {programs_.space(), programs_.steps(), programs_.model(), options_.training, preferred_},
                    follows_curves_);
}

HEDDLE_INLINE void alternation::alternate(std::string const& start, ratio_table ratios) {
    std::set<move_list> seen;
    for (int round = 0; round < options_.rounds && !is_over() && !was_searched(ratios); ++round) {
        searched_.push_back(ratios);
        auto options = options_.synthesis;
        if (run_.search_proves()) options.search.limits.labels = 0;
        options.patience = 2; // wider beams prove more, but that is for later
        std::string const origin = start + ", round " + std::to_string(round + 1);
        record_.tell(origin);
        auto const found = run_.synthesise_at(ratios, options);
        search_pays_ |= found.which_limit != search::limit_kind::none && found.search_pays;
        if (!found.path) {
            none_fits_ = programs_.none_fits();
            if (none_fits_) run_.which_limit = search::limit_kind::none; // no search would find any
            else if (auto const roomier = make_room(origin, ratios); roomier && round == 0) {
                ratios = *roomier;
                continue;
            }
            return;
        }
        record_.consider(origin + ", program", *found.path, ratios);
        auto const balanced = balance_at(*found.path, ratios);
        if (!balanced) return;
        record_.consider(origin + ", ratios", *found.path, *balanced);
        if (!seen.insert(*found.path).second) return;
        ratios = *balanced;
    }
}

HEDDLE_INLINE bool alternation::was_searched(ratio_table const& ratios) const {
    return algorithm::any_of(searched_, [&](ratio_table const& others) {
        double difference = 0;
        for (std::size_t g = 0; g < ratios.size(); ++g)
            for (std::size_t k = 0; k < ratios[g].size(); ++k)
                difference = std::max(difference, std::abs(ratios[g][k] - others[g][k]));
        return difference < 1e-6;
    });
}

HEDDLE_INLINE void alternation::alternate_in_all_storage(std::vector<starting_point> starts) {
    run_.which_limit = search::limit_kind::none;
    bool const is_wider = programs_.take_all();
    if (is_wider) {
        searched_.clear();
        search_pays_ = false;
        none_fits_ = record_.is_empty() && programs_.none_fits();
    }
    for (auto const& s : starts) shift(s.name, s.ratios);
    if (!is_wider) starts.clear();
    starts.push_back({"memory-proportional", programs_.memory_proportional_ratios()});
    for (auto const& s : starts) alternate(s.name + ", any storage", s.ratios);
}

HEDDLE_INLINE void alternation::shift(std::string const& start, ratio_table const& ratios) {
    if (is_over()) return;
    auto roomy = programs_.cluster();
    for (auto& type : roomy.types) type.memory = bytes(std::numeric_limits<double>::max());
    auto const model = programs_.model_on(roomy);
    auto const path =
        run_.by.improve_bounds(programs_.price(programs_.graph(), model, ratios), 6, {}, search::deadline()).path;
    if (!path) return;
    auto const balanced = balance_at(*path, ratios);
    if (!balanced || !record_.consider(start + ", memory aside, ratios", *path, *balanced)) return;
    alternate(start + ", memory aside", *balanced);
}

HEDDLE_INLINE std::optional<ratio_table> alternation::make_room(std::string const& origin, ratio_table const& ratios) {
    auto const priced = programs_.price(ratios);
    for (bool count_buffers : {true, false}) {
        auto const path = programs_.least_memory(priced, count_buffers);
        if (!path) continue;
        record_.consider(origin + ", least memory", *path, ratios);
        auto const balanced = balance_at(*path, ratios);
        if (!balanced) continue;
        record_.consider(origin + ", least memory, ratios", *path, *balanced);
        return balanced;
    }
    return std::nullopt;
}

HEDDLE_INLINE bool alternation::has_curves() const {
    return !options_.training.interleaves() && programs_.model().has_curves() &&
           balance_.takes(segment_count(programs_.program()), true);
}

HEDDLE_INLINE void alternation::follow_curves(std::vector<starting_point> const& starts) {
    follows_curves_ = true;
    searched_.clear(); // what follows them are other ratios
    alternate("best ratios, curved", record_.ratios());
    for (auto const& s : starts) alternate(s.name + ", curved", s.ratios);
}

HEDDLE_INLINE void alternation::look_around() {
    auto const& classes = programs_.types().classes;
    for (std::size_t k = 0; k < classes.size() && !run_.out_of_time(); ++k)
        if (auto const fewer = without(record_.ratios(), k))
            record_.consider("without " + programs_.cluster().types[classes[k].type].name, record_.path(), *fewer);
    auto const ratios = record_.ratios();
    for (auto const& [name, path] : extremes(programs_.price(ratios))) {
        if (run_.out_of_time()) return;
        record_.consider(name, path, ratios);
        if (auto const balanced = balance_at(path, ratios)) record_.consider(name + ", ratios", path, *balanced);
    }
}

HEDDLE_INLINE std::vector<std::pair<std::string, move_list>> alternation::extremes(priced_graph const& priced) const {
    auto const total = [](std::span<double const> list) { return std::accumulate(list.begin(), list.end(), 0.0); };
    auto const work = [&](move_price const& m) { return total(m.work) + total(m.backward_work) + total(m.update); };
    auto const network = [](move_price const& m) { return m.transfers.total(); };
    constexpr double slight = 1e-6; // tells apart what is equal otherwise
    std::vector<std::pair<std::string, move_list>> result;
    auto const add = [&](std::string name, std::optional<move_list> path) {
        if (path) result.push_back({std::move(name), *std::move(path)});
    };
    add("least work",
        programs_.path_of(priced.shortest_under([&](move_price const& m) { return work(m) + slight * network(m); })));
    add("least communication",
        programs_.path_of(priced.shortest_under([&](move_price const& m) { return slight * work(m) + network(m); })));
    add("least memory", programs_.least_memory(priced, true));
    return result;
}

HEDDLE_INLINE std::optional<ratio_table> alternation::without(ratio_table ratios, std::size_t type) const {
    for (auto& row : ratios) {
        double const left = 1 - row[type] * programs_.types().classes[type].count;
        if (row[type] == 0 || left < 1e-9) return std::nullopt;
        row[type] = 0;
        for (auto& r : row) r /= left;
    }
    return ratios;
}

HEDDLE_INLINE void alternation::search_longer() {
    if (is_over()) return;
    record_.tell("longer search");
    run_.which_limit = search::limit_kind::none;
    auto options = options_.synthesis;
    options.search = options_.last_search;
    auto const ratios = record_.is_empty() ? programs_.memory_proportional_ratios() : record_.ratios();
    auto const found = run_.synthesise_at(ratios, options);
    if (!found.path) return;
    record_.consider("longer search, program", *found.path, ratios);
    if (auto const balanced = balance_at(*found.path, ratios))
        record_.consider("longer search, ratios", *found.path, *balanced);
}

HEDDLE_INLINE void move_atoms_of_candidates(plan_record& record, stage_programs const& programs,
                                            search::deadline const& until) {
    std::size_t work = 40'000;
    auto const candidates = record.candidates();
    for (auto const& [path, ratios, cost] : candidates) {
        if (until.stop().stop_requested() || work < record.best().steps.size() * record.best().devices.size()) return;
        auto moved = programs.realise(path, ratios).first;
        if (detail::move_atoms(moved, programs.cluster(), programs.types().of_device, work) &&
            moved.cost() < record.best().cost())
            record.take("atoms moved", std::move(moved), path, ratios);
    }
}

} // namespace heddle

#endif
