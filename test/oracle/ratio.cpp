// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The linear-programming solver agrees with a fine grid, and the objective of a ratio problem with the time of
/// the program that it was made from.
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>
#include <heddle/clp/ratio_solver.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/synthesis/realise.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

namespace {

using namespace heddle;
using test::random_source;

using test::infinite;

double value(convex_pieces const& pieces, double x) {
    double most = -infinite;
    for (auto const& a : pieces) most = std::max(most, a.constant + a.slope * x);
    return most;
}

/// Computes the objective as the documentation states it.
double objective(ratio_problem const& p, std::vector<double> const& ratios) {
    double sum = p.constant, largest = 0;
    for (double r : ratios) largest = std::max(largest, r);
    for (auto const& stage : p.stages) {
        double most = -infinite;
        for (std::size_t t = 0; t < ratios.size(); ++t) {
            double work = stage[t].straight.constant + stage[t].straight.slope * ratios[t];
            for (auto const& pieces : stage[t].bent) work += value(pieces, ratios[t]);
            most = std::max(most, work);
        }
        sum += most;
    }
    for (auto const& t : p.transfers) sum += value(t.pieces, largest);
    return sum;
}

bool fits(ratio_problem const& p, std::vector<double> const& ratios, double tolerance) {
    for (std::size_t t = 0; t < p.memory.size(); ++t)
        if (p.memory[t].constant + p.memory[t].slope * ratios[t] > p.memory_limits[t] * (1 + tolerance)) return false;
    return true;
}

double distance(ratio_problem const& p, std::vector<double> const& ratios) {
    double sum = 0;
    for (std::size_t t = 0; t < ratios.size(); ++t) sum += p.counts[t] * std::abs(ratios[t] - p.preferred[t]);
    return sum;
}

/// Calls `visit` with all ratios on a grid of `steps` parts; a part is the share of each type's devices together.
void for_grid(ratio_problem const& p, int steps, std::function<void(std::vector<double> const&)> const& visit) {
    std::vector<double> ratios(p.type_count());
    std::function<void(std::size_t, int)> const fill = [&](std::size_t t, int left) {
        if (t + 1 == ratios.size()) {
            ratios[t] = static_cast<double>(left) / steps / p.counts[t];
            return visit(ratios);
        }
        for (int n = 0; n <= left; ++n) {
            ratios[t] = static_cast<double>(n) / steps / p.counts[t];
            fill(t + 1, left - n);
        }
    };
    fill(0, steps);
}

double grid_optimum(ratio_problem const& p, int steps) {
    double best = infinite;
    for_grid(p, steps, [&](auto const& ratios) {
        if (fits(p, ratios, 0)) best = std::min(best, objective(p, ratios));
    });
    return best;
}

/// Returns how much the objective can change within one cell of the grid, memory aside.
double cell_error(ratio_problem const& p, int steps) {
    double slope = 0;
    auto const steepest = [](convex_pieces const& pieces) {
        double most = 0;
        for (auto const& a : pieces) most = std::max(most, std::abs(a.slope));
        return most;
    };
    for (auto const& stage : p.stages) {
        double most = 0;
        for (auto const& work : stage) {
            double mine = std::abs(work.straight.slope);
            for (auto const& pieces : work.bent) mine += steepest(pieces);
            most = std::max(most, mine);
        }
        slope += most;
    }
    for (auto const& t : p.transfers) slope += steepest(t.pieces);
    return slope * static_cast<double>(p.type_count()) / steps;
}

std::string text(ratio_problem const& p) {
    std::ostringstream out;
    out.precision(17);
    auto const line = [&](affine a) { out << " (" << a.constant << " + " << a.slope << " x)"; };
    out << "constant " << p.constant;
    for (std::size_t t = 0; t < p.type_count(); ++t) {
        out << "\n  type " << t << ": count " << p.counts[t] << ", preferred " << p.preferred[t];
        if (!p.memory.empty()) {
            out << ", memory";
            line(p.memory[t]);
            out << " <= " << p.memory_limits[t];
        }
    }
    for (auto const& stage : p.stages) {
        out << "\n  stage";
        for (auto const& work : stage) {
            out << " [";
            line(work.straight);
            for (auto const& pieces : work.bent) {
                out << " + max";
                for (auto a : pieces) line(a);
            }
            out << " ]";
        }
    }
    for (auto const& t : p.transfers) {
        out << "\n  transfer";
        for (auto a : t.pieces) line(a);
    }
    return out.str();
}

enum class memory_rows { none, loose, tight };

ratio_problem random_problem(random_source& random, memory_rows memory) {
    ratio_problem p;
    int const types = random.between(1, 3);
    double ranks = 0;
    for (int t = 0; t < types; ++t) ranks += p.counts.emplace_back(random.between(1, 4));
    double sum = 0;
    for (int t = 0; t < types; ++t)
        sum += p.counts[static_cast<std::size_t>(t)] * p.preferred.emplace_back(random.between(0.1, 1.0));
    for (auto& r : p.preferred) r /= sum;
    double const scale = random.log_between(1e-6, 1e3);
    p.constant = random.chance(0.5) ? 0 : scale * random.unit();
    auto const rising = [&](double most) {
        return affine{random.chance(0.5) ? 0 : scale * random.between(0.0, most), scale * random.between(0.0, most)};
    };
    for (int n = random.between(0, 4); n-- > 0;) {
        auto& stage = p.stages.emplace_back();
        for (int t = 0; t < types; ++t) {
            stage_work work{rising(10)};
            for (int b = random.between(0, 2); b-- > 0;) {
                auto& pieces = work.bent.emplace_back();
                for (int m = random.between(1, 3); m-- > 0;) pieces.push_back(rising(8));
            }
            stage.push_back(std::move(work));
        }
    }
    for (int n = random.between(0, 3); n-- > 0;) {
        auto& pieces = p.transfers.emplace_back().pieces;
        for (int m = random.between(1, 3); m-- > 0;) pieces.push_back(rising(5));
    }
    if (memory == memory_rows::none) return p;
    for (int t = 0; t < types; ++t) {
        double const size = random.log_between(1e3, 1e10);
        p.memory.push_back({size * random.unit() * 0.2, size});
        p.memory_limits.push_back(size * (memory == memory_rows::loose ? 2 : random.between(0.1, 0.2 + 1.5 / ranks)));
    }
    return p;
}

} // namespace

TEST_CASE("ratios are as good as the best of a fine grid") {
    int infeasible = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        random_source random(seed);
        auto const kind = random.chance(0.5)   ? memory_rows::tight
                          : random.chance(0.5) ? memory_rows::loose
                                               : memory_rows::none;
        auto const p = random_problem(random, kind);
        int const steps = p.type_count() == 3 ? 120 : 2000;
        CAPTURE(seed);
        INFO(text(p));
        auto const solution = clp::ratio_solver().solve(p);
        double const best = grid_optimum(p, steps);
        if (!solution.feasible) {
            CHECK(best == infinite);
            ++infeasible;
            continue;
        }
        REQUIRE(solution.ratios.size() == p.type_count());
        double sum = 0;
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            CHECK(solution.ratios[t] >= 0);
            sum += solution.ratios[t] * p.counts[t];
        }
        CHECK(sum == doctest::Approx(1).epsilon(1e-12));
        CHECK(fits(p, solution.ratios, 1e-6));
        CHECK(p.fits(solution.ratios, 1e-6) == fits(p, solution.ratios, 1e-6));
        double const mine = objective(p, solution.ratios);
        CHECK(solution.objective == doctest::Approx(mine).epsilon(1e-12));
        CHECK(mine <= best * (1 + 1e-6) + 1e-300);
        if (kind != memory_rows::tight) CHECK(mine >= best - cell_error(p, steps) * (1 + 1e-9));
    }
    CHECK(infeasible > 10);
    CHECK(infeasible < 150);
}

TEST_CASE("of equally good ratios the nearest to the preferred ones is taken") {
    for (std::uint64_t seed = 1001; seed <= 1200; ++seed) {
        random_source random(seed);
        auto p = random_problem(random, random.chance(0.3) ? memory_rows::tight : memory_rows::none);
        // Objectives are flat, so that there are ties: constant work on all types but one, and no transfers.
        auto const busy = random.below(p.type_count());
        double const floor = 1000;
        p.transfers.clear();
        for (auto& stage : p.stages)
            for (std::size_t t = 0; t < stage.size(); ++t) {
                stage[t].bent.clear();
                stage[t].straight = t == busy ? affine{floor, 0} : affine{0, random.between(0.0, 3 * floor)};
            }
        CAPTURE(seed);
        INFO(text(p));
        auto const solution = clp::ratio_solver().solve(p);
        int const steps = p.type_count() == 3 ? 100 : 1000;
        double const best = grid_optimum(p, steps);
        if (!solution.feasible) {
            CHECK(best == infinite);
            continue;
        }
        double nearest = infinite, cheapest = infinite;
        for_grid(p, steps, [&](auto const& ratios) {
            if (!fits(p, ratios, 0) || objective(p, ratios) > solution.objective * (1 + 1e-12)) return;
            nearest = std::min(nearest, distance(p, ratios));
            cheapest = std::min(cheapest, tie_cost(p, ratios));
        });
        CHECK(distance(p, solution.ratios) <= nearest + 1e-6);
        CHECK(tie_cost(p, solution.ratios) <= cheapest + 1e-8);
        if (fits(p, p.preferred, 0) && objective(p, p.preferred) <= solution.objective * (1 + 1e-12))
            CHECK(distance(p, solution.ratios) <= 1e-6);
    }
}

TEST_CASE("one type has no choice") {
    ratio_problem p;
    p.counts = {4};
    p.preferred = {0.25};
    p.stages = {{{{1, 8}}}};
    auto const solution = clp::ratio_solver().solve(p);
    REQUIRE(solution.feasible);
    CHECK(solution.ratios[0] == doctest::Approx(0.25));
    CHECK(solution.objective == doctest::Approx(3));
    p.memory = {{10, 100}};
    p.memory_limits = {34};
    CHECK_FALSE(clp::ratio_solver().solve(p).feasible);
    p.memory_limits = {35};
    CHECK(clp::ratio_solver().solve(p).feasible);
}

namespace {

struct made_problem {
    program made;
    indexed_program p;
    cluster on;
    cost_model model;
    program_steps in_steps;
    ratio_problem problem;

    explicit made_problem(random_source& random, test::memory_kind memory)
        : made(test::random_program(random)), p(index_program(made)),
          on(test::random_cluster(random, {.most_types = 3, .memory = memory})), model(on, types()) {
        cut_space space(p);
        auto const graph = search::explore(space);
        std::vector<step_work> all;
        for (auto const& i : space.instructions()) all.push_back(make_step(p, i, {}));
        std::vector<double> to_end(graph.node_count());
        for (std::size_t n = graph.node_count(); n-- > 0;) {
            to_end[n] = graph.is_last(n);
            for (auto const& e : graph.out(n)) to_end[n] += to_end[e.to];
        }
        move_list path;
        for (std::size_t node = 0; !graph.is_last(node);) { // a path at random
            std::vector<cut_graph::edge> open;
            for (auto const& e : graph.out(node))
                if (to_end[e.to] > 0) open.push_back(e);
            auto const& e = random.of(open);
            path.push_back(e.action);
            node = e.to;
        }
        for (auto const& s : steps_of(path, space, all)) {
            in_steps.steps.push_back(s.step);
            for_each_transfer(
                in_steps.steps.back(), [&](transfer& t) { // a grouped one is a constant where its model is a line
                    bool const may_group = model.model(collective::broadcast).pieces.size() == 1 && random.chance(0.5);
                    if (has_grouped_kind(t.kind)) t.how = may_group ? uneven::grouped : uneven::padded;
                });
            for (auto const& [t, f] : s.saved) in_steps.saved.push_back({held_bytes(p.tensors[t], f[0])});
        }
        problem = make_ratio_problem(in_steps, model, compute_proportional(model, element_type::float32));
    }

    /// One class per type.
    std::vector<device_class> types() const {
        std::vector<device_class> classes;
        for (auto type : on.devices()) {
            auto const found = std::ranges::find(classes, type, &device_class::type);
            if (found == classes.end()) classes.push_back({type, 1});
            else ++found->count;
        }
        return classes;
    }
    [[nodiscard]] double seconds(std::vector<double> const& ratios) const {
        return run_serial(in_steps.steps, model, uniform_shares(ratios)).total;
    }
    [[nodiscard]] double bytes(double ratio) const {
        double sum = 0;
        for (auto const& s : in_steps.steps)
            sum += s.stored.whole.value + s.saved.whole.value + ratio * (s.stored.split.value + s.saved.split.value);
        for (auto const& [held, share] : in_steps.saved) sum += held.whole.value + ratio * held.split.value;
        double buffer = 0; // what one direction of a step sends, or unshards with its gradient, whole at any ratio
        for (auto const& s : in_steps.steps) buffer = std::max(buffer, 2 * s.transient.value);
        for (auto const& s : in_steps.steps)
            for (auto const* list :
                 {&s.forward_transfers, &s.backward_transfers, &s.deferred_transfers, &s.update_transfers}) {
                double together = 0;
                for (auto const& t : *list)
                    if ((t.kind == collective::all_reduce || t.how == uneven::grouped) && on.devices().size() > 1)
                        together += t.size.value;
                buffer = std::max(buffer, together);
            }
        return sum + buffer;
    }
};

} // namespace

TEST_CASE("the objective of a program's ratio problem is its time") {
    for (std::uint64_t seed = 2001; seed <= 2000 + test::cases(300u); ++seed) {
        random_source random(seed);
        made_problem const x(random, test::memory_kind::loose);
        CAPTURE(seed);
        INFO(test::describe(x.made) << test::describe(x.on));
        auto const check = [&](std::vector<double> const& ratios) {
            double const seconds = x.seconds(ratios);
            CHECK(x.problem.objective(ratios) == doctest::Approx(seconds).epsilon(1e-9));
            CHECK(objective(x.problem, ratios) == doctest::Approx(seconds).epsilon(1e-9));
            for (std::size_t t = 0; t < ratios.size(); ++t)
                CHECK(x.problem.memory[t].at(ratios[t]) == doctest::Approx(x.bytes(ratios[t])).epsilon(1e-12));
        };
        for (int n = 0; n < 5; ++n) {
            std::vector<double> ratios;
            double sum = 0;
            for (std::size_t t = 0; t < x.problem.type_count(); ++t) {
                ratios.push_back(random.chance(0.2) ? 0.01 : random.between(0.01, 1.0));
                sum += ratios.back() * x.problem.counts[t];
            }
            for (auto& r : ratios) r /= sum;
            check(ratios);
        }
        auto const solution = clp::ratio_solver().solve(x.problem);
        REQUIRE(solution.feasible);
        CHECK(solution.objective == doctest::Approx(x.seconds(solution.ratios)).epsilon(1e-9));
        check(solution.ratios);
        check(even_ratios(x.model));
        // No other ratios make the program faster.
        double const best = grid_optimum(x.problem, x.problem.type_count() == 3 ? 60 : 500);
        CHECK(solution.objective <= best * (1 + 1e-6));
    }
}

TEST_CASE("a program's ratios keep its memory") {
    int feasible = 0, binding = 0, infeasible = 0;
    for (std::uint64_t seed = 3001; seed <= 3000 + test::cases(500u); ++seed) {
        random_source random(seed);
        made_problem const x(random, test::memory_kind::tight);
        CAPTURE(seed);
        INFO(test::describe(x.made) << test::describe(x.on));
        auto const solution = clp::ratio_solver().solve(x.problem);
        double const best = grid_optimum(x.problem, x.problem.type_count() == 3 ? 60 : 500);
        if (!solution.feasible) {
            CHECK(best == infinite);
            ++infeasible;
            continue;
        }
        ++feasible;
        CHECK(solution.objective <= best * (1 + 1e-6));
        auto unlimited = x.problem;
        unlimited.memory.clear();
        binding += clp::ratio_solver().solve(unlimited).objective < solution.objective * (1 - 1e-6);
        for (std::size_t t = 0; t < solution.ratios.size(); ++t)
            CHECK(x.bytes(solution.ratios[t]) <= x.model.memory_limit(t) * (1 + 1e-6));
    }
    MESSAGE("feasible " << feasible << ", of which memory binds " << binding << ", infeasible " << infeasible);
    CHECK(feasible > test::cases(20));
    CHECK((binding > 5 || test::sanitized));
}
#endif
