// SPDX-License-Identifier: BSL-1.0
// Every operator of the training graphs of today's models, and of the core set, by one call each.
#include "graphs.hpp"

#include <heddle/pt2/all.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <string>

using namespace heddle;

namespace {

/// Calls `visit(line)` for every call of a table.
template <class Visitor>
int for_each_call(char const* file, Visitor&& visit) {
    std::ifstream lines(std::string("adapters/pt2/test/") + file);
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty() || line[0] == '#') continue;
        visit(line);
        ++count;
    }
    return count;
}

/// The model of one call beside a loss.
json::model model_of(std::string const& line) {
    test::exported_graph g;
    auto const results = g.node(line);
    auto const x = g.parameter("f()", "scale");
    g.output(g.node("aten.mul.Tensor self=%" + x + " other=2.0 -> f()")[0]);
    auto model = pt2::parse_model(g.text(), "m");
    CHECK(model.program.operator_count() == 1); // what the loss does not depend on is gone
    return model;
}

} // namespace

TEST_CASE("every operator of the training graph has a rule") {
    std::set<std::string> seen;
    auto const count = for_each_call("training_operators.txt", [&](std::string const& line) {
        CAPTURE(line);
        for (auto const& missing : model_of(line).missing_rules) FAIL_CHECK(missing.target << " has no rule");
        seen.insert(line.substr(0, line.find(' ')));
    });
    CHECK(seen.size() == static_cast<std::size_t>(count));
    CHECK(count == 134); // and a call of a graph, and an item of its results
}

TEST_CASE("the operators of the core set have a rule, and others that models have") {
    auto const check = [](std::string const& line) {
        CAPTURE(line);
        auto const model = model_of(line);
        CHECK(model.missing_rules.empty());
        CHECK(model.warnings.empty());
    };
    CHECK(for_each_call("core_operators.txt", check) == 128); // 118 operators, some in several modes
    CHECK(for_each_call("other_operators.txt", check) == 45);
}
