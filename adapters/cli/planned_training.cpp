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

#include <utility>

namespace heddle::cli {

std::size_t training::ranks() const {
    std::size_t sum = 0;
    if (auto const* const spmd = std::get_if<plan>(&planned)) sum = ranks_of(*spmd);
    if (auto const* const staged = std::get_if<staged_plan>(&planned))
        for (auto const& s : staged->stages) sum += ranks_of(s.plan);
    if (auto const* const pipeline = std::get_if<pipeline_plan>(&planned))
        for (auto const& s : pipeline->stages) sum += pipeline->copies() * s.degree();
    return sum;
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
        result.model = read_planned_model(model, {}, p.provenance);
        if (auto const checked = verify(result.model.program, p); !checked) throw input_error(plan, checked.problem);
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
