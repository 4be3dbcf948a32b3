// SPDX-License-Identifier: BSL-1.0
// heddle verify: does a plan compute what its model does?
#include "commands.hpp"

#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <nlohmann/json.hpp>

#include <iostream>

namespace heddle::cli {

int run_verify(verify_arguments const& arguments) {
    auto const p = json::read_plan(arguments.plan);
    auto const model = json::read_model(arguments.model);
    auto const result = verify(model.program, p);
    auto warnings = model.warnings;
    if (p.provenance.model_digest != model.digest) warnings.push_back("the model has changed since the plan was made");
    if (arguments.json) {
        nlohmann::ordered_json out;
        out["valid"] = result.valid;
        if (!result.valid) out["problem"] = result.problem;
        out["steps"] = p.steps.size();
        out["warnings"] = warnings;
        std::cout << out.dump() << '\n';
    } else {
        for (auto const& w : warnings) std::cerr << "warning: " << w << '\n';
        if (result.valid)
            std::cout << "valid: " << p.steps.size() << " steps, every property re-derived from the index rules of " << model.name << '\n';
    }
    if (!result.valid) std::cerr << "heddle: " << arguments.plan << ": " << result.problem << '\n';
    return result.valid ? done : bad_input;
}

} // namespace heddle::cli
