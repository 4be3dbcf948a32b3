// SPDX-License-Identifier: BSL-1.0
// heddle plan with HAP and HiDup.
#include "program_plans.hpp"

#include <heddle/plan/simulate.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/mesh.hpp>

namespace heddle::cli {

plan plan_whole(program const& p, cluster const& c, hap_options const& options, chosen_ratio_solver const& solver) {
    return plan_hap(p, c, solver, options);
}

plan plan_on_axes(program const& p, cluster const& c, mesh const& m, hap_options const& options,
                  chosen_ratio_solver const& solver) {
    return plan_mesh(p, c, m, solver, {.training = options.training, .limits = options.limits});
}

plan plan_interleaved(program const& p, cluster const& c, hap_options const& planning, hidup_arguments const& arguments,
                      chosen_ratio_solver const& solver) {
    hidup_options options;
    auto const defaults = options.planning;
    options.planning = planning;
    options.planning.cuts = arguments.cuts.value_or(defaults.cuts);
    options.planning.synthesis.engine = defaults.synthesis.engine;
    options.planning.synthesis.beam = arguments.labels_per_cut.value_or(defaults.synthesis.beam);
    options.micro_batches = arguments.micro_batches;
    options.turn = seconds(arguments.turn);
    options.allows_batch_statistics = arguments.batch_statistics;
    return plan_hidup(p, c, solver, options);
}

staged_plan plan_of_all(program const& p, cluster const& c, joint_options const& options,
                        chosen_ratio_solver const& solver) {
    return find_plan(p, c, solver, options);
}

timeline timeline_of(plan const& p, cluster const& c) {
    auto const& training = p.provenance.training;
    if (!training.interleaves()) return run_serial(p, c);
    return simulate(p, c, {.barriers = training.turn.value > 0}); // turning takes its time where slots begin together
}

} // namespace heddle::cli
