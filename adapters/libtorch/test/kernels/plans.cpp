// SPDX-License-Identifier: BSL-1.0
// Whole plans on tensors of libtorch, on ranks in threads: nothing but sources, losses and gradients to compare is
// brought to or from dense tensors.
#include <heddle/libtorch/kernels.hpp>
#include <heddle/libtorch/module_rank.hpp>
#undef CHECK // one of libtorch's and one of doctest's

#include <heddle/execute/devices.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/mixed_precision.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/json/all.hpp>
#include <heddle/plan/verify.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/errors.hpp>
#include <support/interleaved_plans.hpp>
#include <support/pipelines.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
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

namespace {

using whole_gradients = std::map<tensor_id, dense_tensor<float>>;

/// Returns the norm of the difference of gradients, relative to that of `right`.
double difference(whole_gradients const& mine, whole_gradients const& right) {
    double wrong = 0, all = 0;
    for (auto const& [t, g] : right)
        for (extent n = 0; n < g.elements(); ++n) {
            double const by = static_cast<double>(mine.at(t)[n]) - static_cast<double>(g[n]);
            wrong += by * by;
            all += static_cast<double>(g[n]) * static_cast<double>(g[n]);
        }
    return std::sqrt(wrong / all);
}

template <class Scalar>
whole_gradients gradients_of_one(program const& p, source_values<float> const& sources) {
    using tensor = libtorch::tensor<Scalar>;
    tensor_values<tensor> placed;
    for (auto const& [t, value] : sources) placed.emplace(t, brought<tensor>(value, p.tensor(t).type));
    whole_gradients result;
    for (auto const& [t, g] : run_single_device(p, placed, libtorch::kernels<Scalar>()).gradients)
        result.emplace(t, g.second.on_host());
    return result;
}

template <class Scalar>
whole_gradients gradients_of_ranks(program const& p, plan const& what, source_values<float> const& sources) {
    libtorch::kernels<Scalar> const backend;
    auto const indexed = index_program(p, what.segments);
    whole_gradients result;
    run_ranks(what.devices.size(), [&](in_process_communicator& ranks) {
        interpreter run(p, indexed, what, ranks, backend);
        auto const mine = run.run(run.place(sources)).gradients;
        for (auto const& [t, g] : mine) {
            auto const whole = run.gather(t, g.second).on_host();
            if (ranks.rank() == 0) result.emplace(t, whole);
        }
    });
    return result;
}

} // namespace

TEST_CASE("while something is recorded, programs that draw random numbers are refused, and others run") {
    int drawing = 0, repeating = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 4);
        auto const sources = random_sources<double>(p, seed);
        auto const of_seed = [&](std::uint64_t draws) {
            auto const all = run_on_random_sources(p, sources, kernels(), draws);
            std::vector<double> numbers{all.loss};
            for (auto const& [t, gradient] : all.gradients)
                numbers.insert(numbers.end(), gradient.second.data.begin(), gradient.second.data.end());
            return numbers;
        };
        bool const draws = of_seed(1) != of_seed(2);
        libtorch::recording_scope const recorded;
        auto const said = test::error_of([&] { (void)of_seed(1); });
        if (said == "nothing thrown") CHECK_FALSE(draws);
        else CHECK(test::contains(said, "it cannot be recorded as a graph"));
        ++(draws ? drawing : repeating);
    }
    CHECK((drawing > 0 && repeating > 30));
}

TEST_CASE("scalars of 16 bits are as near on uneven ranks as on one") {
    double one = 0, ranks = 0, apart = 0;
    int run = 0;
    for (char const* name : {"gpt2_12", "vit_2", "bert_moe_2", "vgg19"}) {
        auto const file = std::string("examples/models/") + name + ".json.gz";
        auto const model = json::read_model(file);
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            CAPTURE(name);
            CAPTURE(seed);
            test::random_source random(seed);
            auto const small = shrink(model.program, test::random_plan(index_program(model.program),
                                                                       1 + static_cast<std::size_t>(seed), random));
            auto const sources = random_sources<float>(small.program, seed);
            auto const right = gradients_of_one<float>(small.program, sources),
                       alone = gradients_of_one<c10::BFloat16>(small.program, sources),
                       together = gradients_of_ranks<c10::BFloat16>(small.program, small.plan, sources);
            one = std::max(one, difference(alone, right));
            ranks = std::max(ranks, difference(together, right));
            apart = std::max(apart, difference(together, alone));
            ++run;
        }
    }
    MESSAGE(run, " plans: largest relative errors of bfloat16 ", one, " on one, ", ranks, " on ranks, ", apart,
            " apart");
    CHECK(run == 12);
    CHECK(one > 1e-4); // it does compute in few bits
    CHECK(ranks < std::max(2 * one, 0.02));
}

TEST_CASE("if the gradients of one rank are too large, all leave the step out") {
    program_builder builder;
    auto const x = builder.input("x", {6, 4}), w = builder.parameter("w", {4, 2});
    auto const p = builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {x, w})}));
    auto const indexed = index_program(p);
    auto sources = random_sources<float>(p, 1);
    // A gradient of w is the sum of a column of x. Those of the last place are too large at the first two scales.
    for (extent n = 0; n < 24; ++n) sources.at(x)[n] = n % 4 == 3 ? 1.0F : 0.125F;
    test::random_source random(1);
    for (bool cuts_w = false; !cuts_w;) { // until a plan stores w in parts, and several ranks have some
        auto const plan = test::random_plan(indexed, 3, random);
        cuts_w = std::ranges::any_of(plan.steps, [&](auto const& s) {
            auto const* const read = s.instruction.template as<instruction::read>();
            return read && read->tensor == w && read->from.is_shard() &&
                   indexed.tensors[w].factors[static_cast<std::size_t>(read->from.factor())].dimension == 0;
        });
        if (!cuts_w) continue;
        libtorch::kernels<c10::Half> const backend;
        using tensor = libtorch::tensor<c10::Half>;
        std::vector<std::vector<double>> scales(3);
        std::vector<int> own(3);
        run_ranks(3, [&](in_process_communicator& ranks) {
            interpreter rank(p, indexed, plan, ranks, backend);
            master_optimizer<tensor, sgd> steps(sgd{.rate = 0.5});
            auto placed = rank.place(sources);
            for (auto& [t, weights] : rank.template place<wide_of<tensor>>({{w, sources.at(w)}}))
                steps.set(t, weights, placed);
            gradient_scale scale;
            for (int n = 0; n < 3; ++n) {
                rank.scale_gradients(static_cast<float>(scale.value));
                auto const before = steps.weights(w, placed).on_host();
                auto const mine = rank.run(placed).gradients;
                double const factor = 1 / scale.value;
                bool const is_made = scale.update(static_cast<double>(rank.gradient_norm(mine).number()));
                if (n == 0) {
                    auto const here = mine.at(w).second.on_host();
                    own[ranks.rank()] = std::ranges::any_of(here.data, [](float g) { return !std::isfinite(g); });
                }
                if (is_made) steps.step(placed, mine, static_cast<float>(factor));
                CHECK(is_made == (n == 2));
                auto const after = steps.weights(w, placed).on_host();
                for (extent e = 0; e < after.elements(); ++e) { // each element is stepped by its own column's sum
                    float const by = before[e] - after[e];
                    CHECK((is_made ? std::abs(by - 3) < 1e-5F || std::abs(by - 0.375F) < 1e-5F : by == 0));
                }
                scales[ranks.rank()].push_back(scale.value);
            }
            CHECK(steps.steps() == 1);
        });
        CHECK(std::ranges::count(own, 1) == 1); // only one rank has seen it itself
        for (auto const& of_rank : scales) CHECK(of_rank == std::vector<double>{16384, 8192, 8192});
    }
    gradient_scale grows{.value = 1024, .steps = 0, .steps_to_grow = 2};
    CHECK(grows.update(1));
    CHECK(grows.value == 1024);
    CHECK(grows.update(1));
    CHECK(grows.value == 2048);
    gradient_scale smallest{.value = gradient_scale::least};
    CHECK_THROWS_AS((void)smallest.update(std::numeric_limits<double>::infinity()), error);
}

TEST_CASE("on a mesh a module's parameters are parts, and whole again after a step") {
    int parts = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(1, 4));
        auto const indexed = index_program(p);
        auto const plan = plan_on_mesh(indexed, test::random_mesh_program(indexed, test::random_mesh(random), random));
        auto const sources = random_sources<double>(p, seed);
        tensor_values<libtorch::tensor<double>> placed;
        for (auto const& [t, value] : sources) placed.emplace(t, libtorch::tensor<double>(value));
        auto const expected = run_single_device(p, placed, kernels());
        std::mutex lock;
        run_devices<double>(plan, [&](auto& ranks) {
            torch::nn::Module module;
            std::vector<std::pair<std::string, at::Tensor>> inputs;
            std::map<tensor_id, at::Tensor> parameters;
            for (auto const& [t, value] : sources) {
                auto const& info = p.tensor(t);
                auto const whole = libtorch::tensor<double>(value).value();
                if (info.role == tensor_role::input) inputs.emplace_back(info.name, whole);
                else if (info.role == tensor_role::buffer) module.register_buffer(info.name, whole);
                else parameters[t] = module.register_parameter(info.name, whole, info.trainable);
            }
            interpreter rank(p, indexed, plan, ranks, kernels());
            libtorch::module_rank<double, decltype(rank)> tied(module, p, rank);
            double const loss = tied.run(inputs);
            int mine = 0;
            for (auto& [t, parameter] : parameters) {
                at::NoGradGuard const no_graph;
                mine += parameter.numel() < count_elements(p.tensor(t).shape);
                if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.125);
            }
            tied.make_whole();
            std::scoped_lock const guard(lock);
            parts += mine;
            CHECK(loss == doctest::Approx(expected.loss).epsilon(1e-10));
            for (auto const& [t, gradient] : expected.gradients) {
                if (p.tensor(t).role != tensor_role::parameter) continue;
                auto const right = placed.at(t).value() - 0.125 * gradient.second.value();
                auto const error = (parameters.at(t).detach() - right).abs().max().template item<double>();
                CHECK(error <= 1e-10 * std::max(1.0, right.abs().max().template item<double>()));
            }
        });
    }
    CHECK(parts > 20);
}
