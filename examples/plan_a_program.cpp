// SPDX-License-Identifier: BSL-1.0
// Builds a two-layer perceptron, plans it on two unlike devices and checks the plan.
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>

#include <cstdio>

int main() {
    using namespace heddle;

    program_builder b;
    auto const x = b.input("x", {4096, 1024});
    auto const w1 = b.parameter("w1", {4096, 1024});
    auto const w2 = b.parameter("w2", {1024, 4096});
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    auto const h = b.apply("linear", linear, {x, w1}, {.category = operator_class::matmul});
    auto const r = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    auto const y = b.apply("linear", linear, {r, w2}, {.category = operator_class::matmul});
    program const model = b.finish(b.apply("sum", "(b n) -> (); 0", {y}));

    cluster c;
    c.types = {{"fast",
                bytes(16e9),
                bytes_per_second(800e9),
                seconds(5e-6),
                {{element_type::float32, {flops_per_second(12e12)}}}},
               {"slow",
                bytes(16e9),
                bytes_per_second(400e9),
                seconds(5e-6),
                {{element_type::float32, {flops_per_second(4e12)}}}}};
    c.machines = {{.type = 0}, {.type = 1}};
    c.inter = network_link{bytes_per_second(3e9), seconds(2e-5)};

    staged_plan const p = find_plan(model, c, clp::ratio_solver{});
    std::printf("%s: %.2f ms per iteration; at least %.2f ms for %s\n", name(p.status), p.cost() * 1e3,
                p.lower_bound * 1e3, p.space.c_str());
    for (auto const& [name, family] : p.families)
        if (family.cost) std::printf("  %-15s %.2f ms\n", name.c_str(), *family.cost * 1e3);
    for (auto const& stage : p.stages)
        for (auto const& cut : stage.plan.cuts)
            std::printf("  %s is cut %lld : %lld\n", stage.plan.tensors[cut.members[0].tensor].name.c_str(),
                        static_cast<long long>(cut.counts[0]), static_cast<long long>(cut.counts[1]));
    std::printf("verified: %s\n", verify(model, p) ? "yes" : "no");
}
