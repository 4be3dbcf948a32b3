// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ratio problems of one segment, whatever their curves, as smooth programs solved by Ipopt.
#pragma once

#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/ties.hpp>
#include <heddle/ipopt/epigraph.hpp>

#include <IpIpoptApplication.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::ipopt {

struct options {
    /// If curves are not convex, this is the largest number of points to start from; the best optimum is taken.
    int most_starts = 8;
};

/// Solves ratio problems of one segment by their epigraph form with an interior-point method: globally if convex, else
/// to the best of several local optima. Of the optimal ratios it returns those of the least `tie_cost`.
/// *Throws* what `validate` does, before it starts, `input_error` for problems of several segments, and `error` if
/// Ipopt fails from every start, which would be a matter of numbers.
/// *Thread safety.* Any: calls wait for each other, in the whole process, because Ipopt's linear solver is not
/// thread-safe.
class ratio_solver {
public:
    explicit ratio_solver(ipopt::options const& o = {}) : options_(o) {}

    [[nodiscard]] static bool solves(ratio_problem const& p) { return p.segments == 1; }

    [[nodiscard]] ratio_solution solve(ratio_problem const& p) const { return solve(p, p.preferred); }
    /// Starts at ratios supposed to be good, such as the solution of a problem alike.
    [[nodiscard]] ratio_solution solve(ratio_problem const& p, std::vector<double> const& start) const {
        auto const what = !p.has_curves() ? kind::linear : p.is_convex() ? kind::convex : kind::other;
        auto const reduced = reduce(p);
        if (start.size() != p.type_count()) throw input_error("ratio problem, start", "expected one ratio per type");
        if (!reduced.is_feasible()) return {};
        if (p.type_count() == 1) { // no choice, and nothing inside its bounds to start from
            auto const only = reduced.clamped(start);
            return {true, only, p.objective(only)};
        }
        std::optional<std::vector<double>> best;
        auto const offer = [&](std::optional<std::vector<double>> found) {
            if (found && (!best || reduced.objective(*found) < reduced.objective(*best))) best = std::move(found);
        };
        for (auto const& from : starts(reduced, start, what)) {
            offer(run(reduced, from, what));
            if (what == kind::other) offer(from); // a corner, which interior points leave, may be the best optimum
        }
        if (!best) throw error("ratio problem: Ipopt finds no optimum, though one exists");
        auto const optimal = break_ties(reduced, *best, [&](double most) { return run(reduced, *best, what, most); });
        return {true, optimal, p.objective(optimal)};
    }

private:
    enum class kind { linear, convex, other };

    /// Returns the given start; if the problem is not convex, also even ratios, and as much as fits on one type after
    /// the other.
    [[nodiscard]] std::vector<std::vector<double>> starts(reduced_ratio_problem const& p,
                                                          std::vector<double> const& first, kind what) const {
        std::vector<std::vector<double>> result{p.clamped(first)};
        if (what != kind::other) return result;
        std::vector<double> even(p.type_count(), 0);
        result.push_back(p.clamped(even));
        for (std::size_t t = 0; t < p.type_count(); ++t) {
            auto corner = even;
            corner[t] = p.upper[t];
            result.push_back(p.clamped(std::move(corner)));
        }
        result.resize(std::min(result.size(), static_cast<std::size_t>(std::max(1, options_.most_starts))));
        return result;
    }

    static std::optional<std::vector<double>> run(reduced_ratio_problem const& p, std::vector<double> const& start,
                                                  kind what, std::optional<double> most = {}) {
        static std::mutex one_at_a_time;
        std::scoped_lock const lock(one_at_a_time);
        Ipopt::SmartPtr<Ipopt::IpoptApplication> const application = new Ipopt::IpoptApplication(false);
        auto const options = application->Options();
        options->SetNumericValue("tol", 1e-10);
        options->SetNumericValue("bound_relax_factor", 0);
        options->SetIntegerValue("print_level", 0);
        options->SetStringValue("sb", "yes");
        if (what == kind::linear)
            options->SetStringValue("mehrotra_algorithm", "yes"); // for linear programs, where no line search is needed
        if (application->Initialize(std::string()) != Ipopt::Solve_Succeeded) return std::nullopt; // no file of options
        auto* const program = new detail::epigraph(p, start, most);
        Ipopt::SmartPtr<Ipopt::TNLP> const held = program;
        application->OptimizeTNLP(held);
        return program->ratios();
    }

    ipopt::options options_;
};

static_assert(heddle::ratio_solver<ratio_solver>);

} // namespace heddle::ipopt
