// SPDX-License-Identifier: BSL-1.0
#include "planned_training.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/plan/verify.hpp>

#include <numeric>
#include <utility>

namespace heddle::cli {

std::size_t training::ranks() const {
    if (auto const* const spmd = std::get_if<plan>(&planned)) return ranks_of(*spmd);
    auto const& pipeline = std::get<pipeline_plan>(planned);
    return std::accumulate(pipeline.stages.begin(), pipeline.stages.end(), std::size_t{0},
                           [&](std::size_t sum, auto const& s) { return sum + pipeline.copies() * s.degree(); });
}

std::vector<stored_parts> training::stored() const {
    return std::visit([&](auto const& p) { return stored_parts_of(model.program, p); }, planned);
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
    else take(json::parse_plan(text, plan));
    result.plan_digest = json::digest(text);
    return result;
}

} // namespace heddle::cli
