// SPDX-License-Identifier: BSL-1.0
// heddle model: what a model file holds.
#include "commands.hpp"
#include "plan_input.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/json/model.hpp>
#include <heddle/pipeline/program_summary.hpp>

#include <nlohmann/json.hpp>

#include <iostream>

namespace heddle::cli {

namespace {

using object = nlohmann::ordered_json;

object of_role(program_summary::tensors_of_role const& role) {
    return {{"tensors", role.count}, {"elements", role.elements}, {"bytes", role.size.value}};
}

object to_json(json::model const& model, program_summary const& s) {
    object out;
    out["model"] = model.name;
    out["operators"] = s.operators;
    for (auto const& k : s.kinds)
        out["kinds"].push_back({{"kind", k.kind},
                                {"count", k.count},
                                {"forward_flops", k.forward.value},
                                {"backward_flops", k.backward.value}});
    out["forward_flops"] = s.forward.value;
    out["backward_flops"] = s.backward.value;
    out["inputs"] = of_role(s.inputs);
    out["trained_parameters"] = of_role(s.trained);
    out["frozen_parameters"] = of_role(s.frozen);
    out["buffers"] = of_role(s.buffers);
    out["activation_bytes"] = s.activations.value;
    out["repeats"] = object::array();
    for (auto const& r : s.repeats)
        out["repeats"].push_back(
            {{"count", r.count}, {"operators", r.operators}, {"first", r.first}, {"last", r.last}});
    out["atoms"] = object::array();
    for (auto const& a : s.atoms)
        out["atoms"].push_back({{"atoms", a.atoms},
                                {"classes", a.classes},
                                {"tensors", a.tensors},
                                {"tensor", a.tensor},
                                {"dimension", a.dimension}});
    out["without_rule"] = object::array();
    for (auto const& m : model.missing_rules) out["without_rule"].push_back({{"target", m.target}, {"calls", m.calls}});
    out["warnings"] = model.warnings;
    return out;
}

} // namespace

int run_model(model_arguments const& arguments) {
    auto const model = read_model(arguments.model, arguments.inputs);
    auto const summary = summarise(model.program);
    if (arguments.json) {
        std::cout << to_json(model, summary).dump() << '\n';
        return done;
    }
    std::cout << "model " << printable(model.name) << "\n\n";
    print(std::cout, summary);
    if (!model.missing_rules.empty()) std::cout << "\nWithout a rule, computed in full on every device\n";
    for (auto const& m : model.missing_rules) std::cout << "  " << m.calls << " x " << printable(m.target) << '\n';
    if (!model.missing_rules.empty())
        std::cout << "give each a rule under its name in the file's 'rules': {\""
                  << printable(model.missing_rules.front().target)
                  << "\": \"(b s) -> (b s)\"}, if it works on elements alone\n";
    return done;
}

} // namespace heddle::cli
