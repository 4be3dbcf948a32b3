// SPDX-License-Identifier: BSL-1.0
// What the verifier says of parameters that are unsharded, in the right way and in wrong ones.
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/verify.hpp>
#include <support/errors.hpp>
#include <support/small_plan.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

constexpr tensor_form whole = tensor_form::replicated(), rows = tensor_form::shard(0);

/// Two layers, the weight of each in shards, that of the second unsharded for it.
struct two_layers {
    tensor_id x, w, v, h, y, loss;
    indexed_program p;

    two_layers() {
        program_builder b;
        x = b.input("x", {6, 4});
        w = b.parameter("w", {4, 4});
        v = b.parameter("v", {4, 4});
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w});
        y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, v});
        p = index_program(b.finish(loss = b.apply("sum", "(b n) -> (); 0", {y})));
    }
    [[nodiscard]] std::vector<instruction> program(bool is_resharded) const {
        auto const layer = [](operator_id o) { return instruction::compute{o, {rows, whole}, {rows}, 0}; };
        std::vector<instruction> list{instruction::read(x, rows),
                                      instruction::read(w, rows, whole),
                                      layer(0),
                                      instruction::read(v, rows),
                                      instruction::unshard(v, rows, whole, is_resharded),
                                      layer(1)};
        if (is_resharded) list.push_back(instruction::reshard(v, whole, rows));
        list.push_back(instruction::compute{2, {rows}, {tensor_form::partial()}, 0});
        return list;
    }
    /// What is wrong with a plan of these instructions; `saves` says whether v's copy is kept.
    [[nodiscard]] std::string problem(std::vector<instruction> const& list, bool saves) const {
        plan made = blank_plan(p);
        made.devices = {{"a", bytes(1e9)}, {"b", bytes(1e9)}};
        made.ratios = {{0.5, 0.5}};
        for (auto const& i : list) {
            auto& s = made.steps.emplace_back(plan_step{i, make_step(p, i, {}), {}});
            for_each_saved(p, i, [&](tensor_id t, tensor_form f) {
                if (t != w && (t != v || saves)) s.saved.emplace_back(t, f);
            });
        }
        made.cuts = atom_classes(p, list);
        apportion(made.cuts, made.ratios);
        return verify(p, made).problem;
    }
};

using test::contains;

} // namespace

TEST_CASE("a parameter unsharded for its operator, kept or resharded, is right") {
    two_layers const t;
    CHECK(t.problem(t.program(false), true) == "");
    CHECK(t.problem(t.program(true), false) == "");
    CHECK(contains(t.problem(t.program(false), false), "saves"));
    CHECK(contains(t.problem(t.program(true), true), "saves"));
}

TEST_CASE("what is wrong with an unsharded parameter is said") {
    two_layers const t;
    auto const changed = [&](bool is_resharded, std::function<void(std::vector<instruction>&)> const& change) {
        auto list = t.program(is_resharded);
        change(list);
        return t.problem(list, !is_resharded);
    };
    // Steps: read x, read w, layer, read v, unshard v, layer, reshard v, sum.
    CHECK(contains(changed(true, [](auto& l) { l.erase(l.begin() + 6); }), "stays after its operator"));
    CHECK(contains(changed(true, [](auto& l) { std::swap(l[6], l[7]); }), "stays after its operator"));
    CHECK(contains(changed(false, [&](auto& l) { l.insert(l.begin() + 6, instruction::reshard(t.v, whole, rows)); }),
                   "was not unsharded"));
    CHECK(contains(changed(true, [&](auto& l) { l.insert(l.begin() + 7, instruction::reshard(t.v, whole, rows)); }),
                   "was not unsharded"));
    CHECK(contains(changed(true, [&](auto& l) { l[6] = instruction::reshard(t.v, whole, tensor_form::shard(1)); }),
                   "other forms"));
    CHECK(contains(changed(true, [](auto& l) { std::swap(l[2], l[3]), std::swap(l[3], l[4]); }),
                   "is unsharded, but not for"));
    CHECK(contains(
        changed(false,
                [&](auto& l) { l.insert(l.begin() + 5, instruction::convert(t.v, whole, tensor_form::shard(1))); }),
        "unsharded for the next"));
    CHECK(contains(changed(false, [&](auto& l) { l[3] = instruction::read(t.v, whole); }), "is not held"));
    CHECK(
        contains(changed(false, [&](auto& l) { l[4] = instruction::unshard(t.v, rows, tensor_form::shard(1), false); }),
                 "not to whole copies"));
    CHECK(contains(changed(false, [&](auto& l) { l.push_back(instruction::unshard(t.x, rows, whole, false)); }),
                   "not a parameter used once"));
    // An input's state cannot be in shards, nor can that of a parameter read in shards.
    CHECK(contains(changed(false, [&](auto& l) { l[0] = instruction::read(t.x, rows, whole); }), "optimiser state"));
    CHECK(contains(changed(false, [&](auto& l) { l[1] = instruction::read(t.w, tensor_form::shard(1), rows); }),
                   "optimiser state"));
    CHECK(contains(changed(false, [&](auto& l) { l[1] = instruction::read(t.w, whole, rows); }), "optimiser state"));
}

TEST_CASE("a tied parameter is not unsharded") {
    program_builder b;
    auto const w = b.parameter("w", {4, 4});
    auto const p = index_program(
        b.finish(b.apply("sum", "(i j) -> (); 0", {b.apply("gram", "(i !k), (j !k) -> (i j); 0*1", {w, w})})));
    plan made = blank_plan(p);
    made.devices = {{"a", bytes(1e9)}, {"b", bytes(1e9)}};
    made.ratios = {{0.5, 0.5}};
    std::vector<instruction> const list{instruction::read(w, rows), instruction::unshard(w, rows, whole, false)};
    for (auto const& i : list) made.steps.push_back({i, make_step(p, i, {}), {}});
    made.cuts = atom_classes(p, list);
    apportion(made.cuts, made.ratios);
    CHECK(contains(verify(p, made).problem, "not a parameter used once"));
}

TEST_CASE("gathers of updated parameters are a term of their own, which older files have in the update") {
    auto const c = test::two_devices();
    auto const p = test::zero_plan();
    // The first parameter is stored in shards and read whole: 64 bytes, of which each device has half.
    double const gathered = model_of(c, collective::all_gather).time(bytes(64)).value;
    CHECK(p.time.parameter_communication == doctest::Approx(gathered));
    CHECK(p.time.update < gathered);
    auto older = p;
    older.time.update += std::exchange(older.time.parameter_communication, 0);
    CHECK(verify_figures(p, c).problem == "");
    CHECK(verify_figures(older, c).problem == "");
    older.time.update = p.time.update;
    older.lower_bound = 0;
    CHECK(verify_figures(older, c).problem.starts_with("the time of the update and the parameters' communication"));
}
