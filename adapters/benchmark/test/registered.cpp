// SPDX-License-Identifier: BSL-1.0
// What is registered runs, counts what it found, and fails where there is no plan.
#include <heddle/benchmark/all.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

struct countdown {
    using state = std::uint32_t;
    using label = int;
    using action = int;

    std::pair<state, label> initial() const { return {9, 0}; }
    bool is_goal(state s) const { return s == 0; }
    double total(label l) const { return l; }
    double bound(state s, label l) const { return l + static_cast<double>(s) / 2; }
    bool dominates(label a, label b) const { return a <= b; }
    template <class Emit>
    void for_each_successor(state s, label l, Emit&& emit) const {
        for (state step : {1u, 2u})
            if (step <= s) emit(static_cast<int>(step), s - step, l + 1);
    }
};

struct outcome {
    double seconds = 0;
    std::string reason;

    bool exists() const { return reason.empty(); }
    double cost() const { return seconds; }
    double gap() const { return 0.25; }
};

struct collected : benchmark::BenchmarkReporter {
    std::map<std::string, Run> runs;

    bool ReportContext(Context const&) override { return true; }
    void ReportRuns(std::vector<Run> const& several) override {
        for (auto const& run : several) runs.emplace(run.benchmark_name(), run);
    }
};

collected run_all() {
    char name[] = "test", least[] = "--benchmark_min_time=0.001";
    char* arguments[] = {name, least, nullptr};
    int count = 2;
    benchmark::Initialize(&count, arguments);
    collected result;
    benchmark::RunSpecifiedBenchmarks(&result);
    benchmark::ClearRegisteredBenchmarks();
    return result;
}

} // namespace

TEST_CASE("a problem is measured whole and by its parts") {
    bench::register_search("countdown", std::make_shared<countdown const>());
    auto const runs = run_all().runs;
    CHECK(runs.size() == 4);
    for (auto const* part : {"expand", "bound", "insert"}) CHECK(runs.count(std::string("countdown/") + part) == 1);
    auto const& search = runs.at("countdown/search");
    CHECK(search.counters.at("expanded") >= 5);
    CHECK(search.counters.at("generated") >= search.counters.at("expanded"));
}

TEST_CASE("a planning run counts cost and gap, and fails without a plan") {
    bench::register_planner("found", [] { return outcome{.seconds = 2, .reason = {}}; });
    bench::register_planner("none", [] { return outcome{.reason = "no room"}; });
    auto const runs = run_all().runs;
    CHECK(runs.at("found").counters.at("plan_s") == doctest::Approx(2));
    CHECK(runs.at("found").counters.at("gap_%") == doctest::Approx(25));
    CHECK_FALSE(runs.at("found").error_occurred);
    CHECK(runs.at("none").error_occurred);
    CHECK(runs.at("none").error_message == "no room");
}
