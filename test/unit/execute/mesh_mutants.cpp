// SPDX-License-Identifier: BSL-1.0
// What `verify` accepts of mesh programs is right: one thing is changed in a random program, which is then refused, or
// computes the same. On one axis it judges as it does of plans.
#include "emulation.hpp"
#include "instruction_mutation.hpp"

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/plan/verify.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_mesh_programs.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// Changes the steps of a mesh program; each says whether it found something to change.
class step_mutation {
public:
    step_mutation(indexed_program const& program, test::random_source& random, std::vector<mesh_instruction>& steps)
        : program_(program), random_(random), steps_(steps) {}

    bool drop() {
        steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(random_.below(steps_.size())));
        return true;
    }
    bool swap() {
        if (steps_.size() < 2) return false;
        std::size_t const n = random_.below(steps_.size() - 1);
        std::swap(steps_[n], steps_[n + 1]);
        return true;
    }
    bool duplicate() {
        auto const copy = random_.of(steps_);
        steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(random_.below(steps_.size())), copy);
        return true;
    }
    /// Computes an operator in another way on one axis.
    bool way() {
        auto& s = one_of(steps_);
        auto* const i = one_of(s.axes).as<instruction::compute>();
        if (!i) return false;
        *i = random_.of(computations(program_, i->op));
        return true;
    }
    /// Changes one form on one axis, and what follows for the next step of the tensor.
    bool form() {
        auto& s = one_of(steps_);
        auto& i = one_of(s.axes);
        auto* const change = i.change();
        if (!change) return false;
        auto const code = random_.below(3 + program_.tensors[change->tensor].factors.size());
        auto const f = tensor_form::from_code(static_cast<std::uint16_t>(code));
        (random_.chance(0.5) ? change->to : change->from) = f;
        if (i.is<instruction::read>() && random_.chance(0.5)) change->from = change->to;
        return true;
    }
    /// Lets two axes convert a tensor in the other order.
    bool order() {
        for (int tries = 0; tries < 20; ++tries) {
            if (steps_.size() < 2) return false;
            std::size_t const n = random_.below(steps_.size() - 1);
            auto &first = steps_[n], &second = steps_[n + 1];
            auto const a = first.acting(), b = second.acting();
            if (!a || !b || a == b || first.tensor() != second.tensor() || first.to() != second.from()) continue;
            if (!first.axes[*a].is<instruction::convert>() || !second.axes[*b].is<instruction::convert>()) continue;
            auto const from = first.from();
            auto const x = first.to()[*a], y = second.to()[*b];
            auto const t = first.tensor();
            first = mesh_instruction::convert(t, from, *b, y);
            second = mesh_instruction::convert(t, from.with(*b, y), *a, x);
            return true;
        }
        return false;
    }
    /// Lets two axes change places.
    bool axes() {
        auto& s = one_of(steps_);
        std::swap(s.axes.front(), s.axes.back());
        return s.axes.size() > 1;
    }

private:
    template <class T>
    T& one_of(std::vector<T>& list) {
        return list[random_.below(list.size())];
    }

    indexed_program const& program_;
    test::random_source& random_;
    std::vector<mesh_instruction>& steps_;
};

} // namespace

TEST_CASE("a mutant of a mesh program is refused or computes the same") {
    std::vector<std::pair<char const*, bool (step_mutation::*)()>> const kinds{
        {"dropped", &step_mutation::drop},
        {"swapped", &step_mutation::swap},
        {"duplicated", &step_mutation::duplicate},
        {"way to compute", &step_mutation::way},
        {"form", &step_mutation::form},
        {"order", &step_mutation::order},
        {"axes", &step_mutation::axes}};
    struct verdicts {
        int refused = 0, same = 0;
    };
    std::map<std::string, verdicts> table;
    int const wanted = test::cases(3000);
    int failures = 0;
    for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(wanted) && failures < 3; ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(1, 3));
        auto const indexed = index_program(p);
        auto const m = test::random_mesh(random);
        auto steps = test::mesh_walk(indexed, m, random).steps();
        auto const& [name, mutate] = kinds[seed % kinds.size()];
        if (!(step_mutation(indexed, random, steps).*mutate)()) continue;
        auto const mutant = test::mesh_program_of(indexed, m, std::move(steps), random);
        auto& seen = table[name];
        if (!verify(indexed, mutant)) {
            ++seen.refused;
            continue;
        }
        ++seen.same;
        std::string problem;
        try {
            problem = test::emulate(p, mutant, seed).problem;
        } catch (std::exception const& e) { problem = e.what(); }
        if (problem.empty() || test::is_unstable(p, seed)) continue;
        ++failures;
        FAIL_CHECK("seed " << seed << ", " << name << ": " << problem << "\n"
                           << test::describe(p) << test::describe(mutant));
    }
    for (auto const& [name, of_kind] : table) {
        MESSAGE(name << ": " << of_kind.refused << " refused, " << of_kind.same << " the same");
        CHECK(of_kind.refused > 0);
    }
    for (char const* kind : {"swapped", "form", "order"}) CHECK(table[kind].same > 0);
}

TEST_CASE("a plan on a mesh that lies is refused") {
    std::vector<std::pair<char const*, void (*)(plan&, test::random_source&)>> const lies{
        {"work",
         [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].step.forward.operations += flops(1); }},
        {"transfer",
         [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].step.deferred_transfers.push_back({}); }},
        {"inside",
         [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].step.inside_forward.push_back({}); }},
        {"stored", [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].step.stored.whole += bytes(4); }},
        {"saved",
         [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].saved.push_back({0, product_form()}); }},
        {"counts", [](plan& p, auto&) { p.cuts.at(0).counts[0] += 1; }},
        {"inner counts", [](plan& p, auto&) { p.cuts.at(0).inside.at(0).begin()->second[0] += 1; }},
        {"inner ratios", [](plan& p, auto&) { p.inner_ratios.at(0)[0][0] += 0.5; }},
        {"mesh", [](plan& p, auto&) { p.inner_sizes[0] += 1; }},
        {"axes", [](plan& p, auto&) { p.inner_sizes.push_back(1); }},
        {"devices", [](plan& p, auto&) { p.devices[0].group_size += 1; }},
        {"step", [](plan& p, auto& random) { p.steps[random.below(p.steps.size())].inside.pop_back(); }},
        {"tensor", [](plan& p, auto&) { p.tensors[0].shape.push_back(2); }},
        {"micro-batches", [](plan& p, auto&) { p.provenance.training.micro_batches = 2; }}};
    int refused = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        test::random_source random(seed);
        auto const indexed = index_program(test::catalogue_program(random, random.between(1, 3)));
        auto const what = test::random_mesh_program(indexed, test::random_mesh(random), random);
        if (what.mesh.axis_count() == 1 || what.cuts.empty()) continue;
        auto lying = plan_on_mesh(indexed, what);
        CAPTURE(seed);
        REQUIRE(verify(indexed, lying).problem == "");
        auto const& [name, lie] = lies[seed % lies.size()];
        CAPTURE(name);
        lie(lying, random);
        CHECK_FALSE(verify(indexed, lying));
        ++refused;
    }
    CHECK(refused > 100);
}

TEST_CASE("on one axis a mesh program is judged as its plan is") {
    using change = test::instruction_mutation;
    std::vector<bool (change::*)()> const kinds{
        &change::operand_form, &change::result_form, &change::way,  &change::factor,    &change::conversion,
        &change::read_form,    &change::drop,        &change::swap, &change::duplicate, &change::loop};
    int valid = 0, refused = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(3000u); ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, random.between(1, 3));
        auto const indexed = index_program(p);
        auto list = test::theory_walk(indexed, random).instructions();
        if (random.chance(0.8)) (change(indexed, random, list).*kinds[random.below(kinds.size())])();
        auto const ratios = test::random_ratios(3, random);
        auto const divide = [&](auto const& cut) { return apportion(cut.atoms, ratios); };
        auto const as_plan = verify(indexed, test::plan_of(indexed, list, {ratios}, divide));
        mesh_program as_mesh{mesh({3}), {}, {}};
        for (auto const& i : list) as_mesh.steps.push_back(i);
        as_mesh.cuts = mesh_cuts(indexed, as_mesh.mesh, as_mesh.steps, std::vector<ratio_table>{{ratios}});
        auto const verified = verify(indexed, as_mesh);
        CAPTURE(seed);
        CHECK_MESSAGE(verified.valid == as_plan.valid, "plan: " << as_plan.problem << "; mesh: " << verified.problem);
        ++(verified ? valid : refused);
    }
    MESSAGE(valid << " valid, " << refused << " refused");
    CHECK(valid > test::cases(500));
    CHECK(refused > test::cases(500));
}
