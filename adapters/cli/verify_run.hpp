// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What heddle verify does with plans of either kind: it runs at most a minute or two on one core, and says how
/// that went.
#pragma once

#include "commands.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove_pieces.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/prove_stages.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/execute/shrink_stages.hpp>
#include <heddle/plan/detail/report_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

/// Reads the cluster to price a plan on again, if one is given.
template <class Plan>
std::optional<cluster> read_cluster_of(verify_arguments const& arguments, Plan const& p,
                                       std::vector<std::string>& warnings) {
    if (arguments.cluster.empty()) return std::nullopt;
    return counted_by(p, read_planned_cluster(arguments.cluster, p.provenance, warnings), arguments.group_machines);
}

/// Prints what was checked, and the fields that nothing was derived from.
inline void print_extent(char const* what, std::vector<std::string> const& claims) {
    std::string text = std::string(what) + '\n', all;
    for (auto const& claim : claims) all += (all.empty() ? "" : ", ") + claim;
    detail::add_paragraph(text, "claims of its planner: ", all);
    std::cout << text << std::flush;
}

inline void check_ranks(verify_arguments const& arguments, std::size_t ranks) {
    constexpr std::size_t most = 1024;
    if (ranks > most)
        throw input_error(arguments.plan, "is for " + std::to_string(ranks) + " devices, at most " +
                                              std::to_string(most) + " can be run; see --no-run");
}

/// What may be run at once, whole or with smaller dimensions: kernels may take twice the memory of tensors, and a core
/// is given half a minute.
inline execution_size most_at_once(verify_arguments const& arguments) {
    return {bytes(arguments.run_memory / 3), flops(2e10)};
}
inline bool fits(execution_size const& size, execution_size const& most) {
    return size.memory <= most.memory && size.work <= most.work;
}

/// Runs a plan of either kind, with its program, beside the single device.
template <class Planned>
proof run(verify_arguments const& arguments, Planned const& planned) {
    try {
        return prove(planned.program, planned.plan, eigen_kernels<double>(), {.seed = arguments.seed});
    } catch (input_error const& e) { throw input_error(arguments.model, e.what()); }
}

/// How a plan of either kind was run, and what that showed.
template <class Planned>
struct executed_plan {
    proof shown;
    bool is_shrunk = false;
    /// Unless it was run piece by piece.
    std::optional<Planned> at_once{};
    std::optional<piecewise_proof> pieces{};

    [[nodiscard]] double share() const { return pieces ? pieces->share() : 1; }
};

/// Whole, with smaller dimensions, or in pieces, whichever is the first that may be. `size_of(planned)` is an
/// `execution_size`, `smaller(options)` a planned program with smaller dimensions.
template <class Planned, class SizeOf, class Smaller>
executed_plan<Planned> execute(verify_arguments const& arguments, Planned whole, SizeOf&& size_of, Smaller&& smaller) {
    auto const most = most_at_once(arguments);
    if (!arguments.shrink && fits(size_of(whole), most)) return {cli::run(arguments, whole), false, std::move(whole)};
    shrink_options const less{.memory = std::min(most.memory, shrink_options{}.memory)};
    if (auto small = smaller(less); fits(size_of(small), most))
        return {cli::run(arguments, small), true, std::move(small)};
    auto pieces = prove_in_pieces(whole.program, whole.plan, eigen_kernels<double>(),
                                  {.most = {most.memory, flops(4e9)},
                                   .shrink = less,
                                   .seconds = arguments.run_seconds,
                                   .each = {.seed = arguments.seed}});
    return {pieces.shown, true, {}, std::move(pieces)};
}

/// Begins the object of `--json`.
inline nlohmann::ordered_json verdict(std::string const& problem) {
    nlohmann::ordered_json out;
    out["valid"] = problem.empty();
    if (!problem.empty()) out["problem"] = problem;
    return out;
}

/// Says what is wrong with a plan, if anything is. *Returns* the exit status.
inline int conclude(verify_arguments const& arguments, std::string const& problem) {
    if (!problem.empty()) std::cerr << "heddle: " << printable(arguments.plan + ": " + problem, 1000) << '\n';
    return problem.empty() ? done : bad_input;
}

inline void add_differences(nlohmann::ordered_json& out, proof const& shown) {
    out["ranks"] = shown.ranks;
    out["loss"] = shown.loss;
    out["single_device_loss"] = shown.expected_loss;
    // It is null if it is no number.
    out["max_relative_error"] = shown.worst_error;
    out["worst_tensor"] = shown.worst_tensor;
}
inline void print_differences(proof const& shown) {
    if (std::isfinite(shown.expected_loss)) // not of pieces
        std::printf("loss %.17g on %zu ranks, %.17g on a single device\n", shown.loss, shown.ranks,
                    shown.expected_loss);
    std::printf("largest relative error %.2g, in %s\n", shown.worst_error, printable(shown.worst_tensor).c_str());
}

/// How much was run, and how.
template <class Planned>
void add_extent(nlohmann::ordered_json& out, std::optional<executed_plan<Planned>> const& ran) {
    out["executed"] = ran ? ran->share() : 0;
    out["shrunk"] = ran && ran->is_shrunk;
    out["pieces"] = ran && ran->pieces ? ran->pieces->pieces : 0;
}
/// Whether every cut had the atoms and counts with which it was planned.
template <class Planned>
bool has_planned_shares(executed_plan<Planned> const& ran) {
    return ran.pieces ? ran.pieces->has_planned_counts : ran.at_once->has_planned_counts;
}
inline char const* words_for_shares(bool are_planned) {
    return are_planned ? "as planned" : "of the finest cuts rounded";
}
template <class Planned>
void print_pieces(executed_plan<Planned> const& ran) {
    if (!ran.pieces) return;
    std::printf("run in %zu pieces with smaller dimensions: %zu of %zu distinct steps, %.4g %%; shares %s\n",
                ran.pieces->pieces, ran.pieces->executed, ran.pieces->distinct, 100 * ran.share(),
                words_for_shares(ran.pieces->has_planned_counts));
    std::fflush(stdout);
}
/// What was not run, and why.
template <class Planned>
void add_warnings(std::vector<std::string>& warnings, executed_plan<Planned> const& ran) {
    if (!ran.pieces) return;
    for (auto const& step : ran.pieces->left) warnings.push_back("not run: " + step);
}

} // namespace heddle::cli
