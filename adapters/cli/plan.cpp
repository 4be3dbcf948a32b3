// SPDX-License-Identifier: BSL-1.0
// heddle plan picks the planner; for HAP and HiDup it reads model and cluster and writes table, plan and trace.
#include "attended_run.hpp"
#include "output.hpp"
#include "plan_input.hpp"
#include "program_plans.hpp"

#include <heddle/heddle.hpp>
#include <heddle/html/all.hpp>
#include <heddle/json/all.hpp>

#ifdef HEDDLE_HAS_METIS
#include <heddle/metis/all.hpp>
#endif

#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

pinned_tensor pin_of(program const& p, std::string const& text) {
    auto const fail = [&](std::string const& problem) { throw input_error("--pin " + text, problem); };
    auto const at = text.rfind('=');
    if (at == std::string::npos) fail("expected NAME=FORM");
    std::string const name = text.substr(0, at), wanted = text.substr(at + 1);
    tensor_id t = 0;
    while (t < p.tensor_count() && p.tensor(t).name != name) ++t;
    if (t == p.tensor_count()) fail("there is no tensor '" + name + "'");
    auto const tensor = index_program(p).tensors[t];
    for (tensor_form f : {tensor_form::replicated(), tensor_form::mirrored(), tensor_form::partial()})
        if (to_string(f) == wanted) {
            if (!is_possible(f, tensor)) fail("the tensor cannot be " + wanted);
            return {t, f};
        }
    if (!wanted.starts_with("shard(") || !wanted.ends_with(")"))
        fail("expected replicated, mirrored, partial, shard(DIMENSION) or shard(DIMENSION.FACTOR)");
    auto const numbers = std::string_view(wanted).substr(6, wanted.size() - 7);
    auto const point = numbers.find('.');
    auto const read = [&](std::string_view digits) {
        std::size_t number = 0;
        auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error != std::errc() || end != digits.data() + digits.size())
            fail("expected numbers in shard(DIMENSION) or shard(DIMENSION.FACTOR)");
        return number;
    };
    std::size_t const dimension = read(numbers.substr(0, point)),
                      nth = point == std::string_view::npos ? 0 : read(numbers.substr(point + 1));
    std::vector<factor_number> cuts;
    for (std::size_t f = 0; f < tensor.factors.size(); ++f)
        if (tensor.factors[f].dimension == dimension) cuts.push_back(static_cast<factor_number>(f));
    if (nth >= cuts.size())
        fail("dimension " + std::to_string(dimension) + " of the tensor has " + std::to_string(cuts.size()) +
             " factors that can be cut, numbered from 0");
    return {t, tensor_form::shard(cuts[nth])};
}

} // namespace

int run_plan(plan_arguments const& arguments) {
    if (arguments.planner == "amp") return run_plan_amp(arguments);
    if (arguments.planner == "ditto") return run_plan_ditto(arguments);
    if (arguments.planner == "joint") return run_plan_joint(arguments);
    auto const& asked = arguments.hap;
    auto input = read_input(arguments);
    auto& model = input.model;
    bool const is_on_mesh = !asked.mesh.empty();
    cluster const c = asked.group_machines || is_on_mesh ? with_grouped_machines(input.cluster) : input.cluster;

    for (auto const& file : {arguments.out, arguments.trace, arguments.html})
        if (!file.empty()) json::require_writable(file);

    hap_options options;
    options.training = training_of(arguments);
    options.training.overlaps_gradients = asked.overlap;
    options.training.bucket = bytes(asked.bucket);
    options.segments = segments_of(model.program, asked.segments);
    for (auto const& pin : asked.pins) options.pinned.push_back(pin_of(model.program, pin));
    auto const labels = arguments.label_limit.value_or(10'000);
    options.synthesis.search.limits.labels = labels;
    options.last_search.limits.labels = 20 * labels;
    options.limits.seconds = arguments.time_limit;
    chosen_ratio_solver const solver(asked.solver);
    std::optional<attended_run> attended(std::in_place);
    attended->show(arguments.planner);
    options.limits.stop = attended->stop();
    options.progress = shown_by(*attended, arguments.planner);
    plan result = [&] {
        if (arguments.planner == "hidup") return plan_interleaved(model.program, c, options, arguments.hidup, solver);
        if (is_on_mesh) return plan_on_axes(model.program, input.cluster, mesh(asked.mesh), options, solver);
        return plan_whole(model.program, c, options, solver);
    }();
    attended.reset();
    add_origin(result.provenance, input);
    result.warnings.insert(result.warnings.begin(), model.warnings.begin(), model.warnings.end());

    std::vector<json::staged_file> files; // what cannot be written is told before anything is printed
    if (result.exists()) {
        if (!arguments.out.empty())
            files.emplace_back(arguments.out, json::write_plan(result, {.times = arguments.times}));
        auto const shown = arguments.trace.empty() && arguments.html.empty() ? timeline() : timeline_of(result, c);
        if (!arguments.trace.empty()) files.emplace_back(arguments.trace, json::write_trace(result, shown));
        if (!arguments.html.empty())
            files.emplace_back(arguments.html, html::plan_page(result, index_program(model.program), shown));
    }
    if (arguments.json) std::cout << json::plan_summary(result, {.times = arguments.times}) << '\n';
    else show(result, arguments);
    deliver(std::move(files));
    return exit_status_of(result.status, result.exists());
}

} // namespace heddle::cli
