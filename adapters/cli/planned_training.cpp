// SPDX-License-Identifier: BSL-1.0
#include "planned_training.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/batch_split.hpp>

#include <algorithm>
#include <utility>

namespace heddle::cli {

namespace {

void place(plan const& p, training& in) {
    in.device_count = ranks_of(p);
    for (std::size_t d = 0; d < in.device_count; ++d) in.devices.push_back(d);
}

void place(pipeline_plan const& p, training& in) {
    in.device_count = p.devices.size();
    for (auto const& s : p.stages)
        for (auto const& copy : s.devices) in.devices.insert(in.devices.end(), copy.begin(), copy.end());
}

void place(staged_plan const& p, training& in) {
    in.device_count = p.device_count;
    in.devices = p.ranks();
}

} // namespace

std::vector<std::size_t> training::processes(std::size_t count, std::string const& plan) const {
    if (count == device_count) return devices;
    if (count != ranks())
        throw input_error(
            plan, "keeps " + std::to_string(ranks()) + " devices busy, and there are " + std::to_string(count) +
                      " processes; start one for each" +
                      (device_count > ranks() ? ", or for each of the cluster's " + std::to_string(device_count) : ""));
    auto busy = devices;
    std::ranges::sort(busy);
    std::vector<std::size_t> result;
    for (auto d : devices) result.push_back(static_cast<std::size_t>(std::ranges::lower_bound(busy, d) - busy.begin()));
    return result;
}

std::vector<stored_parts> training::stored() const {
    return std::visit([&](auto const& p) { return stored_parts_of(model.program, p); }, planned);
}

void require_no_whole_numbers_between_stages(training const& what, std::string const& plan) {
    auto const* const pipeline = std::get_if<pipeline_plan>(&what.planned);
    if (!pipeline) return;
    auto const& p = what.model.program;
    auto const indexed = index_program(p);
    auto const split = split_along_batch(indexed);
    pipeline_layout const layout(indexed, *pipeline, split);
    for (std::size_t stage = 0; stage < layout.stages(); ++stage)
        for (auto t : values_across(indexed, layout.operators(stage).second))
            if (!is_floating(p.tensor(t).type))
                throw input_error(plan, "lets stages send each other the whole numbers '" +
                                            printable(p.tensor(t).name) +
                                            "', for which scalars of 16 bits have too few; train in float32");
}

training read_training(std::string const& plan, std::string const& model) {
    auto const text = json::read_text(plan);
    training result;
    auto const take = [&](auto p) {
        result.model = read_planned_model(model, {}, p);
        if (auto const checked = verify(result.model.program, p); !checked) throw input_error(plan, checked.problem);
        place(p, result);
        result.planned = std::move(p);
    };
    if (is_pipeline_plan(plan, text)) take(json::parse_pipeline_plan(text, plan));
    else if (json::has_stages(text, plan)) take(json::parse_staged_plan(text, plan));
    else take(json::parse_plan(text, plan));
    // One stage that computes the whole batch is the plain case.
    if (auto const* const staged = std::get_if<staged_plan>(&result.planned); staged && staged->is_plain())
        result.planned = heddle::plan(staged->stages.front().plan);
    result.plan_digest = json::digest(text);
    return result;
}

} // namespace heddle::cli
