// SPDX-License-Identifier: BSL-1.0
// Plans of every shipped model, shrunk, verified and executed beside the single device.
#include "kernels.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/json/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

using namespace heddle;

namespace {

/// Three devices of three speeds.
cluster small_cluster() {
    cluster c;
    c.name = "three";
    for (double speed : {1.0, 2.0, 4.0})
        c.types.push_back({"x" + std::to_string(static_cast<int>(speed)),
                           bytes(64e9),
                           bytes_per_second(speed * 3e11),
                           seconds(1e-6),
                           {{element_type::float32, {flops_per_second(speed * 4e12)}}}});
    c.machines = {{0, 1, 1}, {1, 1, 1}, {2, 1, 1}};
    c.inter = network_link{bytes_per_second(2e9), seconds(2e-5)};
    return c;
}

} // namespace

TEST_CASE("plans of shipped models, shrunk, compute what the models do") {
    hap_options options;
    options.synthesis.search.limits.labels = 500;
    options.last_search.limits.labels = 500;
    std::set<std::filesystem::path> files;
    for (auto const& entry : std::filesystem::directory_iterator("examples/models"))
        if (entry.path().string().ends_with(".json.gz")) files.insert(entry.path());
    CHECK(files.size() >= 7);
    int read = 0;
    for (auto const& file : files) {
        if (!test::is_drawn(read++)) continue;
        CAPTURE(file);
        auto const model = json::read_model(file);
        auto const p = plan_hap(model.program, small_cluster(), clp::ratio_solver{}, options);
        REQUIRE(p.exists());
        auto const small = shrink(model.program, p);
        auto const checked = verify(small.program, small.plan);
        INFO(checked.problem);
        REQUIRE(checked);
        // There are fewer atoms only where tokens, classes and experts are all cut, or where layers are wide.
        auto const name = file.filename().string();
        CHECK(small.has_planned_counts == !(name.starts_with("bert_moe") || name.starts_with("vgg19")));
        for (std::size_t k = 0; k < p.cuts.size() && small.has_planned_counts; ++k)
            CHECK(small.plan.cuts[k].counts == p.cuts[k].counts);
        auto const size = size_of_execution(index_program(small.program), small.plan);
        CHECK(size.memory <= bytes(5e8));
        auto const shown = prove(small.program, small.plan, test::kernels());
        INFO(shown.worst_tensor);
        CHECK_MESSAGE(shown, shown.problem);
    }
}
