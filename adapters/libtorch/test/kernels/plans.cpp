// SPDX-License-Identifier: BSL-1.0
// Whole plans on tensors of libtorch, on ranks in threads: nothing but sources, losses and gradients to compare is
// brought to or from dense tensors.
#include <heddle/libtorch/kernels.hpp>
#undef CHECK // one of libtorch's and one of doctest's

#include <heddle/execute/prove.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/json/all.hpp>
#include <heddle/plan/verify.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using namespace heddle;

namespace {

libtorch::kernels<double> const& kernels() {
    static libtorch::kernels<double> const all;
    return all;
}

/// The largest error of what was proven.
class worst_of_all {
public:
    void add(proof const& shown) {
        INFO(shown.worst_tensor);
        CHECK_MESSAGE(shown, shown.problem);
        worst_ = std::max(worst_, shown.worst_error);
    }
    ~worst_of_all() { MESSAGE("the largest relative error is ", worst_); }

private:
    double worst_ = 0;
};

} // namespace

TEST_CASE("random plans run on tensors of libtorch") {
    worst_of_all worst;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(1, 5));
        auto const indexed = index_program(p, test::random_segments(p, random));
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(2, 6)), random);
        worst.add(prove(p, plan, kernels(), {.seed = seed}));
    }
}

TEST_CASE("so do plans of device groups") {
    worst_of_all worst;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        auto const made = test::random_grouped_case(seed);
        worst.add(prove(made.program, made.plan, kernels(), {.seed = seed}));
    }
}

TEST_CASE("so do micro-batches that take turns") {
    worst_of_all worst;
    int run = 0;
    for (std::uint64_t seed = 1; run < 40 && seed <= 2000; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const grown = test::find_catalogue_program(random, random.between(1, 5));
        if (!grown) continue;
        auto const& p = *grown;
        int const count = test::divisor_of_batch(p, random);
        if (count == 0) continue;
        auto const indexed = index_program(micro_batch_of(p, count));
        auto const ranks = static_cast<std::size_t>(random.between(2, 4));
        auto const what =
            test::interleaved(test::random_plan(indexed, ranks, random), indexed, {.micro_batches = count}, random);
        worst.add(prove(p, what, kernels(), {.seed = seed}));
        ++run;
    }
    CHECK(run == 40);
}

TEST_CASE("so do pipelines") {
    worst_of_all worst;
    int run = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const grown = test::find_catalogue_program(random, random.between(2, 6));
        if (!grown) continue;
        auto const& p = *grown;
        std::vector<std::size_t> cuts{0};
        for (std::size_t o = 1; o < p.operator_count(); ++o)
            if (random.chance(0.3)) cuts.push_back(o);
        cuts.push_back(p.operator_count());
        auto const plan =
            test::pipeline_of(p, cuts, static_cast<std::size_t>(random.between(1, 3)), random.between(1, 5));
        if (!verify(p, plan)) continue; // some programs cannot run in micro-batches
        worst.add(prove(p, plan, kernels(), {.seed = seed}));
        ++run;
    }
    CHECK(run > 60);
}

TEST_CASE("so do the shipped models, smaller") {
    worst_of_all worst;
    int run = 0;
    for (auto const& entry : std::filesystem::directory_iterator("examples/models")) {
        if (!entry.path().string().ends_with(".json.gz")) continue;
        CAPTURE(entry.path());
        auto const model = json::read_model(entry.path().string());
        test::random_source random(1);
        auto const small = shrink(model.program, test::random_plan(index_program(model.program), 3, random));
        REQUIRE(verify(small.program, small.plan));
        worst.add(prove(small.program, small.plan, kernels()));
        ++run;
    }
    CHECK(run >= 7);
}
