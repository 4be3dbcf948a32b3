// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ratio solver that `heddle plan` is asked for.
#pragma once

#include <heddle/clp/all.hpp>

#ifdef HEDDLE_HAS_IPOPT
#include <heddle/ipopt/all.hpp>
#endif

#include <string>
#include <vector>

namespace heddle::cli {

/// Is CLP, or Ipopt for problems of one segment; it is chosen at run time, so that planners are compiled once.
class chosen_ratio_solver {
public:
    /// *Throws* `input_error` for a solver without which the executable was built.
    explicit chosen_ratio_solver([[maybe_unused]] std::string const& name) {
#ifdef HEDDLE_HAS_IPOPT
        is_ipopt_ = name == "ipopt";
#else
        if (name == "ipopt") throw input_error("--solver", "this executable was built without Ipopt");
#endif
    }

    [[nodiscard]] bool solves(ratio_problem const& p) const { return uses_ipopt(p) || clp_.solves(p); }
    [[nodiscard]] ratio_solution solve(ratio_problem const& p) const { return solve(p, p.preferred); }
    [[nodiscard]] ratio_solution solve(ratio_problem const& p, std::vector<double> const& start) const {
#ifdef HEDDLE_HAS_IPOPT
        if (uses_ipopt(p)) return ipopt_.solve(p, start);
#endif
        return clp_.solve(p, start);
    }

private:
    [[nodiscard]] bool uses_ipopt(ratio_problem const& p) const { return is_ipopt_ && p.segments == 1; }

    bool is_ipopt_ = false;
    clp::ratio_solver clp_;
#ifdef HEDDLE_HAS_IPOPT
    ipopt::ratio_solver ipopt_;
#endif
};

} // namespace heddle::cli
