// SPDX-License-Identifier: BSL-1.0
// One sample with few heads is cut along its sequence: queries in shards, keys and values gathered.
#include <heddle/clp/all.hpp>
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/mesh.hpp>
#include <support/traced_program.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

extent constexpr length = 48, width = 8;

/// One sample of one head; each token attends to those before it, and dropout takes some of its weights.
program one_sample() {
    traced_program t;
    auto const x = t.builder.input("x", {1, length, width});
    std::vector<literal> operands;
    for (auto const* name : {"q", "k", "v"}) operands.push_back(T(t.linear(x, name, width)));
    auto const mixed = t.call("torch.nn.functional.scaled_dot_product_attention", std::move(operands),
                              {1, length, width}, {{"is_causal", flag(true)}, {"dropout_p", real(0.25)}});
    return t.builder.finish(t.call("torch.sum", {T(t.linear(mixed, "out", width))}, {}));
}

/// Work as fast as its operations, a network without latency.
cluster devices_of(std::vector<double> const& rates) {
    cluster c;
    for (double const rate : rates) {
        c.machines.push_back({c.types.size(), 1, 2});
        c.types.push_back({"of " + std::to_string(rate),
                           bytes(32e9),
                           bytes_per_second(1e18),
                           seconds(0),
                           {{element_type::float32, {flops_per_second(rate)}}}});
    }
    c.intra = c.inter = network_link{bytes_per_second(1e9), seconds(0)};
    return c;
}

/// Checks that a plan has the rows of the queries in shards on one axis at least, and computes what one device does.
void check_cut_by_rows(program const& model, plan const& found) {
    auto const indexed = index_program(model);
    REQUIRE(found.exists());
    auto const attention =
        algorithm::find(indexed.operators, operator_class::attention, [](auto const& op) { return op.work.category; });
    REQUIRE(attention != indexed.operators.end());
    int cut = 0;
    for (auto const& s : found.steps)
        for (axis_number a = 0; a < s.axis_count(); ++a) {
            auto const* i = s.on_axis(a).as<instruction::compute>();
            if (!i || i->op != static_cast<operator_id>(attention - indexed.operators.begin())) continue;
            if (!i->operands[0].is_shard()) continue;
            CHECK(i->operands[1] == tensor_form::replicated());
            CHECK(i->operands[2] == tensor_form::replicated());
            CHECK(i->results[0].is_shard());
            ++cut;
        }
    CHECK(cut > 0);
    auto const shown = prove(model, found, eigen_kernels<double>());
    CHECK_MESSAGE(shown, shown.problem);
}

} // namespace

TEST_CASE("one sample of one head is cut along the rows of its queries, on like and unlike devices") {
    for (auto const& rates : {std::vector{1e9}, {1e9, 3e9}}) {
        auto const model = one_sample();
        check_cut_by_rows(model,
                          plan_hap(model, devices_of(rates), clp::ratio_solver{}, {.training = {.bucket = bytes(0)}}));
    }
}

TEST_CASE("rows of queries are cut on both axes of a mesh") {
    auto const model = one_sample();
    auto c = devices_of({1e9});
    c.machines.front().devices = 2;
    check_cut_by_rows(model, plan_mesh(model, c, mesh({2, 2}), clp::ratio_solver{}));
}
