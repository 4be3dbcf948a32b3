// SPDX-License-Identifier: BSL-1.0
// Plans by HAP, HiDup and the planner of all, whose engine is compiled here.
#include "make_plan.hpp"
#include "form_rules.hpp"
#include "ratio_solver.hpp"

#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/planner/mesh.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/synthesis/segments.hpp>

#ifdef HEDDLE_HAS_METIS
#include <heddle/metis/all.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

std::vector<segment_number> segments_of(program const& p, std::string const& text) {
    if (text.empty()) return {};
    if (text == "layers") return segments_by_layer(p);
    if (std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
#ifdef HEDDLE_HAS_METIS
        return metis::segments(p, text.size() > 5 ? 100'000 : std::stoul(text));
#else
        throw input_error("--segments", "a number of parts needs METIS, which this executable was built without");
#endif
    }
    return segments_from(p, split_at_commas(text));
}

recomputation recomputation_of(plan_arguments const& arguments) {
    return arguments.recompute == "selective" ? recomputation::selective
           : arguments.recompute == "full"    ? recomputation::full
                                              : recomputation::none;
}

hap_options options_of(plan_arguments const& arguments, program const& p, attended_run& attended) {
    auto const& asked = arguments.hap;
    hap_options options;
    options.training = training_of(arguments);
    options.training.overlaps_gradients = asked.overlap;
    options.training.bucket = bytes(asked.bucket);
    options.training.recomputes = recomputation_of(arguments);
    options.segments = segments_of(p, asked.segments);
    if (asked.mesh.empty()) options.pinned = form_rules_of(p, asked);
    auto const labels = arguments.label_limit.value_or(10'000);
    options.synthesis.search.limits.labels = labels;
    options.last_search.limits.labels = 20 * labels;
    options.limits = {.seconds = arguments.time_limit, .stop = attended.stop()};
    options.progress = shown_by(attended, arguments.planner);
    return options;
}

hidup_options options_of(hidup_arguments const& arguments, hap_options const& planning) {
    hidup_options options;
    auto const defaults = options.planning;
    options.planning = planning;
    options.planning.cuts = arguments.cuts.value_or(defaults.cuts);
    options.planning.synthesis.engine = defaults.synthesis.engine;
    options.planning.synthesis.beam = arguments.labels_per_cut.value_or(defaults.synthesis.beam);
    options.micro_batches = arguments.micro_batches;
    options.turn = seconds(arguments.turn);
    options.allows_batch_statistics = arguments.batch_statistics;
    return options;
}

joint_options joint_options_of(plan_arguments const& arguments, program const& p, attended_run& attended,
                               joint_requests const& requests) {
    joint_options options;
    options.stage.pinned = form_rules_of(p, arguments.hap);
    options.stage.training = training_of(arguments);
    options.stage.training.recomputes = recomputation_of(arguments);
    options.recomputes = arguments.recompute.empty();
    options.stage.synthesis.search.limits.labels = 10'000;
    options.sends_beside = arguments.sends_beside;
    options.compares = arguments.compare;
    options.moving = requests.moving;
    if (requests.tried && arguments.record) {
        options.trials = *arguments.record;
        options.try_out = [tried = requests.tried](std::string const& family, staged_plan const& made) {
            tried->push_back({family, made});
            return std::optional<seconds>();
        };
    }
    options.limits = {.seconds = arguments.time_limit, .stop = attended.stop()};
    options.progress = shown_by(attended, "joint");
    return options;
}

/// Returns the mesh of sizes with `x` between.
mesh mesh_of(std::string const& text) {
    std::vector<std::size_t> sizes;
    for (auto const part : std::views::split(text, 'x'))
        sizes.push_back(std::stoul(std::string(part.begin(), part.end())));
    return mesh(std::move(sizes));
}

any_plan found_by_planner(plan_arguments const& arguments, plan_input const& input, cluster const& c,
                          attended_run& attended, joint_requests const& requests) {
    auto const& p = input.model.program;
    if (arguments.planner == "amp") return plan_by_amp(arguments, input, c, attended);
    if (arguments.planner == "ditto") return plan_by_ditto(arguments, input, c, attended);
    chosen_ratio_solver const solver(arguments.hap.solver);
    attended.show(arguments.planner);
    if (arguments.planner == "joint")
        return find_plan(p, c, solver, joint_options_of(arguments, p, attended, requests));
    auto const options = options_of(arguments, p, attended);
    if (arguments.planner == "hidup") return plan_hidup(p, c, solver, options_of(arguments.hidup, options));
    if (!arguments.hap.mesh.empty()) {
        search::deadline const until(options.limits);
        auto const given = arguments.hap.mesh == "auto" ? std::nullopt : std::optional(mesh_of(arguments.hap.mesh));
        mesh_search_options const asked{.training = options.training,
                                        .pinned = mesh_form_rules_of(p, arguments.hap, given ? given->axis_count() : 2),
                                        .limits = options.limits};
        auto on_mesh = given ? plan_mesh(p, c, *given, solver, asked) : plan_meshes(p, c, solver, asked);
        if (on_mesh.exists() && !until.is_over()) { // strategies of one axis
            auto on_one_axis = options;
            on_one_axis.limits = until.rest();
            auto beside = plan_hap(p, c, solver, on_one_axis);
            on_mesh.baselines.merge(beside.baselines);
            on_mesh.baselines["one axis"] = beside.exists() ? std::optional(beside.cost()) : std::nullopt;
        }
        return on_mesh;
    }
    return plan_hap(p, arguments.hap.group_machines ? with_grouped_machines(c) : c, solver, options);
}

} // namespace

void add_origin(any_plan& made, plan_input const& input) {
    std::visit(
        [&](auto& p) {
            add_origin(p.provenance, input);
            if constexpr (std::is_same_v<decltype(p), staged_plan&>)
                for (auto& s : p.stages) add_origin(s.plan.provenance, input);
            p.warnings.insert(p.warnings.begin(), input.model.warnings.begin(), input.model.warnings.end());
        },
        made);
}

any_plan make_plan(plan_arguments const& arguments, plan_input const& input, cluster const& c, attended_run& attended,
                   joint_requests const& requests) {
    auto found = found_by_planner(arguments, input, c, attended, requests);
    add_origin(found, input);
    return found;
}

} // namespace heddle::cli
