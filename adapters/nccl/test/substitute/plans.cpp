// SPDX-License-Identifier: BSL-1.0
#include "device_tensor.hpp"
#include "ranks.hpp"

#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/stage_rank.hpp>
#include <heddle/execute/staged_layout.hpp>
#include <heddle/execute/stages_interpreter.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/forms.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>
#include <support/random_stages.hpp>
#include <unit/execute/trap.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// What the single device gives, and how ranks on devices compare with it.
class expected_of {
public:
    expected_of(program const& p, std::uint64_t seed) : program_(p), sources(random_sources<double>(p, seed)) {
        expected_ = run_on_random_sources(p, sources, eigen_kernels<double>(), seed);
        for (auto const& [t, gradient] : expected_.gradients) gradients_.emplace(t, gradient.second);
    }

    /// Runs two iterations: when ranks have met, hosts need not wait, and a graph could record it. Then compares the
    /// second.
    template <class Rank>
    void run(Rank& rank) {
        auto const placed = rank.place(sources);
        auto const iterate = [&](auto&& run) {
            auto made = run();
            auto stepped = placed;
            auto gradients = made.gradients;
            clip(gradients, rank.gradient_norm(gradients), 1.0);
            optimizer<test::device_tensor, adamw> steps;
            steps.step(stepped, gradients);
            return made;
        };
        static_cast<void>(iterate([&] { return rank.run(placed); }));
        auto const result = [&] {
            test::substitute::iteration const marked;
            return iterate([&] {
                test::substitute::recording recorded(test::device_stream);
                auto made = rank.run(placed);
                recorded.end();
                return made;
            });
        }();
        double const loss = rank.whole_loss(result);
        std::scoped_lock const guard(lock_);
        proof shown;
        detail::proof_builder builder(program_, expected_, shown);
        builder.compare_loss(loss);
        auto const mine = rank.place(gradients_);
        for (auto const& [t, gradient] : result.gradients) CHECK(mine.contains(t));
        builder.compare_gradients(result.gradients, mine);
        CHECK(shown.problem == "");
        CHECK(shown.worst_error < 1e-10);
        ++compared;
    }

private:
    program const& program_;

public:
    source_values<double> const sources;
    std::size_t compared = 0;

private:
    iteration_result<double> expected_;
    source_values<double> gradients_;
    std::mutex lock_;
};

void compare(program const& p, plan const& what, std::uint64_t seed) {
    REQUIRE(verify(p, what));
    expected_of expected(p, seed);
    auto const indexed = index_for(p, what);
    test::device_kernels const kernels;
    test::on_ranks(ranks_of(what), [&](nccl::communicator& world, cudaStream_t on) {
        test::device_stream = on;
        on_device<double>(what, world, [&](auto& mine) {
            interpreter rank(p, indexed, what, mine, kernels, seed);
            expected.run(rank);
        });
    });
    CHECK(expected.compared == ranks_of(what));
}

} // namespace

TEST_CASE("random plans compute on devices what the single device does, without a wait of the host") {
    for (std::uint64_t seed = 0; seed < test::cases(200u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const indexed = index_program(p, test::random_segments(p, random));
        auto what = test::random_plan(indexed, 2 + seed % 7, random);
        what.provenance.training.overlaps_gradients = seed % 2 == 0; // so that parameters have a lane
        compare(p, what, seed);
    }
}

TEST_CASE("so do micro-batches that take turns, with lanes for parameters and for what kernels wait for") {
    int run = 0;
    for (std::uint64_t seed = 0; seed < test::cases(400u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 70'000);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        int const count = test::divisor_of_batch(p, random);
        if (count == 0) continue;
        auto const part = index_program(micro_batch_of(p, count));
        auto const what =
            test::interleaved(test::random_plan(part, 2 + seed % 4, random), part, {.micro_batches = count}, random);
        compare(p, what, seed);
        ++run;
    }
    CHECK(run > test::cases(15));
    test::trap t; // whose rows are cut
    auto const x = t.input({8, 6}), w = t.weight({6});
    auto const y = t.add("softmax", {t.add("mul", {x, w}, {8, 6})}, {8, 6}, {test::number(1)});
    t.finish(t.add("sum", {t.add("mul", {y, x}, {8, 6})}, {}));
    using test::P, test::S0, test::S1;
    t.read(x, S1).read(w, S0).compute({S1, S0}, {S1}).compute({S1}, {S1});
    t.convert(y, S1, S0).convert(x, S1, S0).compute({S0, S0}, {S0}).compute({S0}, {P});
    for (std::size_t const ranks : {std::size_t{2}, std::size_t{3}})
        compare(t.single_device(), t.planned_in_turn(ranks), ranks);
}

TEST_CASE("so do plans of device groups") {
    for (std::uint64_t seed = 0; seed < test::cases(30u); ++seed) {
        CAPTURE(seed);
        auto const made = test::random_grouped_case(seed);
        compare(made.program, made.plan, seed);
    }
}

TEST_CASE("so do plans on meshes, whose lines are communicators of their own") {
    std::vector<std::vector<std::size_t>> const sizes{{2, 2}, {2, 3}, {1, 4}, {4, 2}, {2, 2, 2}};
    for (std::uint64_t seed = 0; seed < test::cases(60u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const indexed = index_program(p);
        mesh const m(sizes[seed % sizes.size()]);
        compare(p, plan_on_mesh(indexed, test::random_mesh_program(indexed, m, random)), seed);
    }
}

TEST_CASE("so do pipelines, which send values and cotangents") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(200u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const grown = test::find_catalogue_program(random, random.between(2, 5));
        if (!grown) continue;
        auto const& p = *grown;
        std::vector<std::size_t> cuts{0};
        for (std::size_t o = 1; o < p.operator_count(); ++o)
            if (random.chance(0.3)) cuts.push_back(o);
        cuts.push_back(p.operator_count());
        auto const what =
            test::pipeline_of(p, cuts, static_cast<std::size_t>(random.between(1, 2)), random.between(1, 4));
        if (!verify(p, what)) continue; // some programs cannot run in micro-batches
        auto const indexed = index_program(p);
        auto const split = split_along_batch(indexed);
        pipeline_layout const layout(indexed, what, split);
        if (layout.ranks() > 8) continue;
        expected_of expected(p, seed);
        test::device_kernels const kernels;
        test::on_ranks(layout.ranks(), [&](nccl::communicator& world, cudaStream_t on) {
            test::device_stream = on;
            stage_rank<test::device_tensor, nccl::communicator> here(indexed, split, layout, world);
            interpreter rank(p, indexed, here, kernels, seed);
            expected.run(rank);
        });
        CHECK(expected.compared == layout.ranks());
        ++run;
    }
    CHECK(run > test::cases(30));
}

/// Runs a plan of stages on ranks of the substitute, and compares it with a single device.
void check_stages(program const& p, staged_plan const& what, std::uint64_t seed) {
    REQUIRE(verify(p, what).problem == "");
    staged_layout const layout(p, what);
    expected_of expected(p, seed);
    test::device_kernels const kernels;
    test::on_ranks(layout.ranks(), [&](nccl::communicator& world, cudaStream_t on) {
        test::device_stream = on;
        on_stages<test::device_tensor>(layout, world, [&](auto& here) {
            stages_interpreter rank(p, layout, here, kernels, seed);
            expected.run(rank);
        });
    });
    CHECK(expected.compared == layout.ranks());
}

TEST_CASE("so do stages, each a line, a mesh or device groups of its own") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(250u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 320'000);
        auto const grown = test::find_catalogue_program(random, random.between(2, 5));
        auto const what = grown ? test::random_stages(*grown, 6, random) : std::nullopt;
        if (!what) continue;
        check_stages(*grown, *what, seed);
        ++run;
    }
    CHECK(run > test::cases(50));
}

TEST_CASE("so do stages that pass their devices in rounds") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 325'000);
        auto const p = test::random_chain(random);
        auto const what = test::random_stages(p, 6, random, static_cast<std::size_t>(random.between(2, 3)));
        if (!what || !verify(p, *what)) continue;
        check_stages(p, *what, seed);
        ++run;
    }
    CHECK(run > test::cases(20));
}

TEST_CASE("so do stages in which parts of a micro-batch take turns") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(120u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed + 327'000);
        auto const p = test::random_chain(random);
        auto const what = test::random_stages(p, 6, random, 1, true);
        if (!what || std::ranges::none_of(what->stages, [](auto const& s) { return s.turns() > 1; })) continue;
        check_stages(p, *what, seed);
        ++run;
    }
    CHECK(run > test::cases(20));
}

/// Returns a parameter after three steps, of which nothing is read before the optimiser is gone.
template <class Tensor>
tensor_values<Tensor> stepped() {
    auto const of = [](double first) { return Tensor(dense_tensor<double>({2}, {first, -first})); };
    tensor_values<Tensor> x;
    x.emplace(0, of(1));
    optimizer<Tensor, adamw> steps;
    for (int n = 1; n <= 3; ++n) {
        gradients_of<Tensor> gradients;
        gradients.emplace(0, std::pair(tensor_form::replicated(), of(n)));
        clip(gradients, Tensor(tensor_shape{}, 2.0 * n), 1.5);
        steps.step(x, gradients);
    }
    return x;
}

TEST_CASE("an optimiser's kernels that run later step as the host does") {
    auto const expected = stepped<dense_tensor<double>>();
    test::on_ranks(1, [&](nccl::communicator&, cudaStream_t on) {
        test::device_stream = on;
        CHECK(stepped<test::device_tensor>().at(0).on_host() == expected.at(0));
    });
}

TEST_CASE("a host that reads a tensor inside an iteration is caught") {
    auto const problem = test::problem_of([] {
        test::on_ranks(1, [](nccl::communicator&, cudaStream_t on) {
            test::device_stream = on;
            test::device_tensor const loss(tensor_shape{}, 3.0);
            CHECK(loss.number() == 3.0);
            test::substitute::iteration const marked;
            static_cast<void>(loss.number());
        });
    });
    CHECK(problem.find("the host waits inside an iteration") != std::string::npos);
}
