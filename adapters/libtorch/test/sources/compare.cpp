// SPDX-License-Identifier: BSL-1.0
// compare [--width STATES] FOLDER CLUSTER NAME...: for each name, FOLDER has a model file that export_fx.py wrote
// (NAME.json) and the same module as PyTorch traced it, with the loss (NAME.loss.pt) and perhaps without it (NAME.pt).
// All must give the same program, in which every operator has a rule, and the same plan. Prints a row of a table for
// each name. With --width, the planner keeps at most this many states per cut.
#include "traced.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/model.hpp>
#include <heddle/pipeline/program_summary.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/axioms.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace heddle;

void expect(bool holds, std::string const& what) {
    if (!holds) throw input_error("the sources differ", what);
}

bool are_equal(index_rule const& a, index_rule const& b) {
    auto const same_index = [](loop_index const& i, loop_index const& j) {
        return i.extent == j.extent && i.kind == j.kind && i.forward_statistics == j.forward_statistics &&
               i.backward_statistics == j.backward_statistics;
    };
    return std::ranges::equal(a.indices, b.indices, same_index) && a.operands == b.operands && a.results == b.results &&
           a.terms == b.terms;
}

bool are_equal(operator_work const& a, operator_work const& b) {
    return a.forward == b.forward && a.backward == b.backward && a.extra_saved == b.extra_saved &&
           a.saved_operands == b.saved_operands && a.saved_results == b.saved_results &&
           a.sparse_operands == b.sparse_operands && a.category == b.category && a.is_view == b.is_view;
}

/// Tells whether an operator does nothing: a dropout of no elements or branches, which PyTorch leaves out of a trace.
bool is_idle(program const& p, operator_id o) {
    auto const probability = p.attributes(o).find("p");
    return (p.kind(o) == "dropout" || p.kind(o) == "stochastic_depth") && probability != p.attributes(o).end() &&
           probability->second == std::vector<double>{0};
}

/// Two programs have equal operators on equal tensors in the same order, apart from idle ones and from names other than
/// those of sources.
void expect_equal(program const& a, program const& b) {
    expect(broken_axioms(b).empty(), "axioms");
    std::map<tensor_id, tensor_id> same; // of b, by tensor of a
    auto const expect_same = [&](tensor_id x, tensor_id y, std::string const& place) {
        auto const &s = a.tensor(x), &t = b.tensor(y);
        expect(same.try_emplace(x, y).first->second == y, place + ", on other tensors");
        expect(s.shape == t.shape && s.type == t.type && s.role == t.role && s.trainable == t.trainable,
               place + ": " + s.name + " and " + t.name);
        expect(s.role == tensor_role::value || s.name == t.name, place + ": the names " + s.name + " and " + t.name);
    };
    operator_id q = 0;
    for (operator_id o = 0; o < a.operator_count(); ++o) {
        if (is_idle(a, o)) {
            same.emplace(a.results(o)[0], same.at(a.operands(o)[0]));
            continue;
        }
        expect(q < b.operator_count(), "the traced module has too few operators");
        auto const place = "operators " + a.name(o) + " and " + b.name(q);
        expect(a.kind(o) == b.kind(q) && a.operands(o).size() == b.operands(q).size() &&
                   a.results(o).size() == b.results(q).size(),
               place);
        expect(are_equal(a.rule(o), b.rule(q)), place + ", their rules");
        expect(are_equal(a.work(o), b.work(q)), place + ", their work");
        for (std::size_t k = 0; k < a.operands(o).size(); ++k) expect_same(a.operands(o)[k], b.operands(q)[k], place);
        for (std::size_t k = 0; k < a.results(o).size(); ++k) expect_same(a.results(o)[k], b.results(q)[k], place);
        ++q;
    }
    expect(q == b.operator_count(), "the traced module has too many operators");
    expect_same(a.loss(), b.loss(), "the loss");
}

/// Returns the form in which each parameter is stored.
std::map<std::string, std::string> parameter_forms(plan const& p) {
    std::map<std::string, std::string> forms;
    for (auto const& step : p.steps)
        if (auto const* read = step.instruction.as<instruction::read>())
            forms.emplace(p.tensors[read->tensor].name, to_string(read->to));
    return forms;
}

void compare(std::string const& folder, cluster const& c, std::string const& name, hap_options const& options) {
    auto const model = json::read_model(folder + "/" + name + ".json");
    auto const& file = model.program;
    for (auto const& warning : model.warnings) throw input_error(name + ".json", warning);
    auto const start = std::chrono::steady_clock::now();
    auto const planned = plan_hap(file, c, clp::ratio_solver{}, options);
    std::chrono::duration<double> const planning = std::chrono::steady_clock::now() - start;
    expect(planned.exists(), "there is no plan");
    heddle::tensor_shape images;
    for (tensor_id t = 0; t < file.tensor_count(); ++t)
        if (file.tensor(t).name == "x") images = file.tensor(t).shape;
    for (bool const returns_loss : {true, false}) {
        auto const path = folder + "/" + name + (returns_loss ? ".loss.pt" : ".pt");
        if (!returns_loss && !std::filesystem::exists(path)) continue;
        auto const traced = traced_classifier(path, images, returns_loss);
        expect_equal(file, traced);
        auto const plan = plan_hap(traced, c, clp::ratio_solver{}, options);
        expect(plan.exists() && std::abs(plan.cost() - planned.cost()) <= 1e-9 * planned.cost(),
               "plans cost " + std::to_string(planned.cost()) + " and " + std::to_string(plan.cost()));
        expect(parameter_forms(plan) == parameter_forms(planned), "forms of parameters");
    }
    auto const summary = summarise(file);
    std::cout << "| `" << name << "` | " << summary.operators << " | "
              << summary.trained.elements + summary.frozen.elements << std::fixed << std::setprecision(1) << " | "
              << (summary.forward + summary.backward).value / 1e9 << " | " << std::setprecision(4) << planned.cost()
              << " | " << std::setprecision(1) << planning.count() << " |" << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    hap_options options;
    if (arguments.size() > 1 && arguments[0] == "--width") {
        options.width = std::stoul(arguments[1]);
        arguments.erase(arguments.begin(), arguments.begin() + 2);
    }
    bool good = arguments.size() > 2;
    for (std::size_t i = 2; i < arguments.size(); ++i) try {
            compare(arguments[0], json::read_cluster(arguments[1]), arguments[i], options);
        } catch (std::exception const& e) {
            std::cerr << arguments[i] << ": " << e.what() << '\n';
            good = false;
        }
    return good ? 0 : 1;
}
