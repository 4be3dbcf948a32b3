// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Plans put together by hand, for tests of what becomes of a plan.
#pragma once

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// Two machines of one device each, one fast and one slow.
inline cluster two_devices() {
    cluster c;
    c.name = "one fast, one slow";
    c.types = {{"fast",
                bytes(32e9),
                bytes_per_second(800e9),
                seconds(5e-6),
                {{element_type::float32, {flops_per_second(10e12)}}}},
               {"slow",
                bytes(16e9),
                bytes_per_second(400e9),
                seconds(1e-5),
                {{element_type::float32, {flops_per_second(5e12)}}}}};
    c.machines = {{0, 1, 1}, {1, 1, 1}};
    c.inter = network_link{bytes_per_second(10e9), seconds(1e-4)};
    return c;
}

/// Writes a plan down instruction by instruction.
class plan_writer {
public:
    explicit plan_writer(indexed_program program) : program_(std::move(program)) {}

    void read(tensor_id t, tensor_form to) { instructions_.push_back(instruction::read(t, to)); }
    void convert(tensor_id t, tensor_form from, tensor_form to) {
        instructions_.push_back(instruction::convert(t, from, to));
    }
    void add(instruction i) { instructions_.push_back(std::move(i)); }
    void compute(operator_id op, std::int16_t loop, form_list operands, form_list results) {
        instructions_.push_back(instruction::compute{op, std::move(operands), std::move(results), loop});
    }

    plan finish(cluster const& c, std::vector<double> ratios) {
        plan p = blank_plan(program_);
        for (auto type : c.devices()) p.devices.push_back({c.types[type].name, c.types[type].memory});
        std::set<std::pair<tensor_id, tensor_form>> saved;
        for (auto const& i : instructions_) { // nothing more stays of these
            auto const* const unshard = i.as<instruction::unshard>();
            if (i.is<instruction::read>() || (unshard && unshard->is_resharded))
                saved.insert({i.change()->tensor, i.change()->to});
        }
        for (auto const& i : instructions_) {
            auto& s = p.steps.emplace_back(plan_step{i, make_step(program_, i, {}), {}});
            for_each_saved(program_, i, [&](tensor_id t, tensor_form f) {
                if (saved.insert({t, f}).second) s.saved.emplace_back(t, f);
            });
        }
        p.ratios = {std::move(ratios)};
        p.cuts = atom_classes(program_, instructions_);
        apportion(p.cuts, p.ratios);
        auto const cost = evaluate(p, c);
        p.time = cost.time;
        p.memory = cost.memory;
        p.status = search::status::feasible;
        p.lower_bound = p.cost() * 0.96875;
        p.provenance.cluster = c.name;
        p.provenance.planner = "hand";
        return p;
    }

private:
    indexed_program program_;
    std::vector<instruction> instructions_;
};

/// Makes three layers and a wide head: the batch is split first, the head's outputs at the end. The first weight is
/// stored in shards and gathered; the head's stays in shards.
inline plan layers_plan(cluster const& c, std::vector<double> ratios) {
    constexpr auto whole = tensor_form::replicated();
    program_builder b;
    auto const x = b.input("x", {6000, 8192});
    std::vector<tensor_id> weights;
    tensor_id y = x;
    for (std::string const n : {"0", "1", "2"}) {
        weights.push_back(b.parameter("layers." + n + ".weight", {8192, 8192}));
        operator_options options{.name = "linear_" + n, .category = operator_class::matmul};
        y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {y, weights.back()}, options);
        options = {.name = "relu_" + n, .category = operator_class::elementwise, .saved_results = {0}};
        y = b.apply("relu", "(b n) -> (b n)", {y}, options);
    }
    auto const head = b.parameter("head.weight", {32000, 8192});
    auto const scores = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {y, head},
                                {.name = "head", .category = operator_class::matmul});
    auto const target = b.input("target", {6000, 32000});
    auto const loss = b.apply("loss", "(b n), (b n) -> ()", {scores, target},
                              {.name = "loss", .saved_operands = std::vector<std::uint8_t>{0, 1}});
    plan_writer writer(index_program(b.finish(loss)));
    writer.read(x, tensor_form::shard(0));
    for (operator_id n = 0; n < 3; ++n) {
        writer.read(weights[n], n == 0 ? tensor_form::shard(0) : whole);
        if (n == 0) writer.convert(weights[n], tensor_form::shard(0), whole);
        writer.compute(2 * n, 0, {tensor_form::shard(0), whole}, {tensor_form::shard(0)});
        writer.compute(2 * n + 1, 0, {tensor_form::shard(0)}, {tensor_form::shard(0)});
    }
    writer.convert(y, tensor_form::shard(0), whole);
    writer.read(head, tensor_form::shard(0));
    writer.compute(6, 2, {whole, tensor_form::shard(0)}, {tensor_form::shard(1)});
    writer.read(target, tensor_form::shard(1));
    writer.compute(7, 1, {tensor_form::shard(1), tensor_form::shard(1)}, {tensor_form::partial()});
    writer.convert(loss, tensor_form::partial(), tensor_form::mirrored());
    plan p = writer.finish(c, std::move(ratios));
    p.provenance.model = "layers";
    p.provenance.model_digest = "0123456789abcdef";
    p.provenance.cluster_digest = "fedcba9876543210";
    p.baselines = {{"DP-EV", 1.5 * p.cost()}, {"DP-CP", 1.25 * p.cost()}, {"fully sharded", std::nullopt}};
    p.other_baselines = {{"DP-CP, with gradient overlap", 0.75 * p.cost()}};
    p.trajectory = {{"DP-EV", p.ratios, 1.5 * p.cost()},
                    {"even, round 1", p.ratios, std::nullopt},
                    {"even, round 2", p.ratios, p.cost()}};
    p.statistics = {12, 345, 67, 89, 10, 11, 0.123456789};
    p.warnings = {"made by hand"};
    return p;
}

inline plan layers_plan() { return layers_plan(two_devices(), {0.625, 0.375}); }

/// Makes one product and its sum, with the batch split.
inline plan tiny_plan() {
    program_builder b;
    auto const x = b.input("x", {6, 4});
    auto const w = b.parameter("w", {2, 4});
    auto const y =
        b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.name = "linear", .category = operator_class::matmul});
    auto const loss = b.apply("sum", "(b n) -> (); 0", {y}, {.name = "loss", .category = operator_class::reduction});
    plan_writer writer(index_program(b.finish(loss)));
    writer.read(x, tensor_form::shard(0));
    writer.read(w, tensor_form::shard(1));
    writer.convert(w, tensor_form::shard(1), tensor_form::replicated());
    writer.compute(0, 0, {tensor_form::shard(0), tensor_form::replicated()}, {tensor_form::shard(0)});
    writer.compute(1, 0, {tensor_form::shard(0)}, {tensor_form::partial()});
    plan p = writer.finish(two_devices(), {0.7, 0.3});
    p.provenance.model = "tiny";
    p.baselines = {{"DP-EV", p.cost()}, {"fully sharded", std::nullopt}};
    p.trajectory = {{"DP-EV", {{0.5, 0.5}}, p.cost()}};
    p.statistics = {5, 20, 3, 2, 8, 0, 0.0015};
    return p;
}

/// Makes two products with the batch split: the state of the first weight is in shards, and the second weight is
/// gathered twice.
inline plan zero_plan() {
    constexpr auto rows = tensor_form::shard(0), whole = tensor_form::replicated();
    program_builder b;
    auto const x = b.input("x", {6, 4});
    auto const v = b.parameter("v", {4, 4}), w = b.parameter("w", {2, 4});
    auto const h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, v}, {.category = operator_class::matmul});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, w}, {.category = operator_class::matmul});
    plan_writer writer(index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y}))));
    writer.read(x, rows);
    writer.add(instruction::read(v, rows, whole));
    writer.compute(0, 0, {rows, whole}, {rows});
    writer.read(w, rows);
    writer.add(instruction::unshard(w, rows, whole, true));
    writer.compute(1, 0, {rows, whole}, {rows});
    writer.add(instruction::reshard(w, whole, rows));
    writer.compute(2, 0, {rows}, {tensor_form::partial()});
    return writer.finish(two_devices(), {0.5, 0.5});
}

/// Two machines of two equal devices each, as the places of a mesh's outermost axis.
inline cluster two_machines() {
    auto c = two_devices();
    c.name = "two machines";
    c.machines = {{0, 2, 2, true}};
    c.intra = network_link{bytes_per_second(100e9), seconds(1e-5)};
    return c;
}

/// Makes a product and its sum: the batch is cut across machines, output features inside each; the weight's optimiser
/// state is in shards across.
inline plan mesh_plan() {
    auto const whole = tensor_form::replicated(), sum = tensor_form::partial(), mirrored = tensor_form::mirrored();
    auto const rows = tensor_form::shard(0), columns = tensor_form::shard(1);
    auto const on = [](tensor_form outside, tensor_form inside) {
        product_form f(outside);
        f.push_back(inside);
        return f;
    };
    program_builder b;
    auto const x = b.input("x", {6, 4}), w = b.parameter("w", {8, 4});
    auto const y =
        b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.name = "linear", .category = operator_class::matmul});
    auto const loss = b.apply("sum", "(b n) -> (); 0", {y}, {.name = "loss", .category = operator_class::reduction});
    auto const indexed = index_program(b.finish(loss));
    mesh_program what{
        mesh({2, 2}),
        {mesh_instruction::read(x, on(rows, whole)), mesh_instruction::read(w, on(columns, rows), on(whole, rows)),
         mesh_instruction(
             {instruction::compute{0, {rows, whole}, {rows}, 0}, instruction::compute{0, {whole, rows}, {columns}, 2}}),
         mesh_instruction({instruction::compute{1, {rows}, {sum}, 0}, instruction::compute{1, {columns}, {sum}, 1}}),
         mesh_instruction::convert(loss, on(sum, sum), 1, mirrored)},
        {}};
    what.cuts = mesh_cuts(indexed, what.mesh, what.steps, std::vector<ratio_table>{{{1 / 3.0, 2 / 3.0}}, {{0.5, 0.5}}});
    auto p = plan_on_mesh(indexed, what);
    auto const c = two_machines();
    for (auto& d : p.devices) d.type = c.types[0].name, d.memory_limit = c.types[0].memory;
    p.ratios = {{1 / 3.0, 2 / 3.0}};
    auto const cost = evaluate(p, c);
    p.time = cost.time;
    p.memory = cost.memory;
    p.status = search::status::feasible;
    p.provenance.model = "small";
    p.provenance.cluster = c.name;
    p.provenance.planner = "hand";
    return p;
}

} // namespace heddle::test
