// SPDX-License-Identifier: BSL-1.0
// Plans run piece by piece: every piece is a valid plan that agrees with a single device, all of them have every step,
// and what is wrong with one step shows in the piece that has it.
#include "kernels.hpp"
#include "trap.hpp"

#include <heddle/execute/prove_pieces.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/forms.hpp>
#include <support/interleaved_plans.hpp>
#include <support/random_mesh_programs.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

using namespace heddle;

namespace {

using test::M;
using test::P;
using test::R;

/// The piece is valid and computes what its own program does. Returns whether that is a function of the data drawn.
bool check_piece(plan_piece const& piece) {
    auto const& [program, plan, planned] = piece.what;
    INFO(test::describe(program), test::describe(plan));
    auto const verified = verify(program, plan);
    CAPTURE(verified.problem);
    REQUIRE(verified);
    try {
        auto const shown = prove(program, plan, test::kernels());
        CHECK_MESSAGE(shown.is_equal, shown.problem);
        return true;
    } catch (input_error const& e) {
        CHECK(std::string(e.what()).find("no finite number") != std::string::npos);
        return false;
    }
}

/// Every piece of one computation, and some of several. Returns how many there were.
int check_pieces(program const& p, plan const& what, test::random_source& random) {
    plan_pieces const pieces(one_in_turn(p, what), what);
    int made = 0;
    std::set<std::size_t> had;
    auto const check = [&](std::size_t first, std::size_t last) {
        CAPTURE(first);
        CAPTURE(last);
        auto const piece = pieces.of(first, last);
        if (!piece || !check_piece(*piece)) return;
        had.insert(piece->steps.begin(), piece->steps.end());
        ++made;
    };
    for (auto n : pieces.steps())
        if (pieces.computes(n)) check(n, n + 1);
    for (int k = 0; k < 2; ++k) {
        auto const first = random.below(what.steps.size());
        check(first, first + 1 + random.below(what.steps.size() - first));
    }
    check(0, what.steps.size());
    for (auto n : pieces.steps()) CHECK(had.contains(n));
    return made;
}

/// In pieces no larger than the largest of one computation.
piecewise_proof prove_apart(program const& p, plan const& what, eigen_kernels<double> const& kernels) {
    plan_pieces const pieces(one_in_turn(p, what), what);
    execution_size most{};
    for (auto n : pieces.steps()) {
        if (!pieces.computes(n)) continue;
        auto const piece = pieces.of(n, n + 1);
        REQUIRE(piece);
        auto const small = shrink(piece->what.program, piece->what.plan);
        auto const size = size_of_execution(index_for(small.program, small.plan), small.plan);
        most = {std::max(most.memory, size.memory), std::max(most.work, size.work)};
    }
    return prove_in_pieces(p, what, kernels, {.most = most});
}

} // namespace

TEST_CASE("pieces of random plans agree with a single device") {
    int pieces = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(150u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 7, .most_extent = 8});
        auto const plan = test::random_plan(index_program(p, test::random_segments(p, random)),
                                            static_cast<std::size_t>(random.between(1, 4)), random);
        CAPTURE(seed);
        pieces += check_pieces(p, plan, random);
    }
    CHECK(pieces > test::cases(500));
}

TEST_CASE("pieces of random plans of every operator agree with a single device") {
    int pieces = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(250u); ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 2);
        auto const plan = test::random_plan(index_program(p), static_cast<std::size_t>(random.between(1, 3)), random);
        CAPTURE(seed);
        pieces += check_pieces(p, plan, random);
    }
    CHECK(pieces > test::cases(500));
}

TEST_CASE("of micro-batches that take turns a piece runs one") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(600u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 7, .most_extent = 24});
        int const count = test::divisor_of_batch(p, random);
        if (count == 0) continue;
        auto const indexed = index_program(micro_batch_of(p, count));
        auto const plan =
            test::interleaved(test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random),
                              indexed, {.micro_batches = count}, random);
        CAPTURE(seed);
        check_pieces(p, plan, random);
        ++run;
    }
    CHECK(run > test::cases(8));
}

TEST_CASE("of device groups a piece has one device of each, and what they exchange is not counted as run") {
    int run = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::optional<test::grouped_case> made;
        try {
            made = test::random_grouped_case(seed);
        } catch (input_error const&) {
            continue; // no program of the catalogue
        }
        auto const shown = prove_in_pieces(made->program, made->plan, test::kernels());
        CHECK_MESSAGE(shown.shown.is_equal, shown.shown.problem);
        CHECK(shown.executed + shown.left.size() == shown.distinct);
        CHECK(shown.left.front().find("device groups") == 0);
        ++run;
    }
    CHECK(run > 20);
}

TEST_CASE("a plan in pieces has every step, equal ones once") {
    std::size_t distinct = 0, all = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 4, .most_operators = 9, .most_extent = 8});
        auto const plan = test::random_plan(index_program(p), static_cast<std::size_t>(random.between(2, 4)), random);
        CAPTURE(seed);
        auto const shown = prove_apart(p, plan, test::kernels());
        CHECK_MESSAGE(shown, shown.shown.problem);
        CHECK(shown.pieces > 0);
        INFO(test::describe(p), test::describe(plan));
        CHECK(shown.share() == 1);
        CHECK_MESSAGE(shown.left.empty(), shown.left.front());
        distinct += shown.distinct;
        all += plan_pieces(p, plan).steps().size();
    }
    CHECK(distinct < all);
}

TEST_CASE("what takes too much or cannot be run is left out and told") {
    test::trap t;
    auto const x = t.input({6, 4}), w = t.weight({4, 4});
    auto const y = t.add("matmul", {x, w}, {6, 4});
    t.finish(t.add("sum", {t.add("tanh", {y}, {6, 4})}, {}));
    t.read(x, R).read(w, R).compute({R, R}, {R}).compute({R}, {R}).compute({R}, {R}).convert(t.indexed().loss, R, M);
    auto const plan = t.planned({0.5, 0.5});
    auto const none = prove_in_pieces(t.single_device(), plan, test::kernels(), {.most = {bytes(1), flops(1e9)}});
    CHECK(none.pieces == 0);
    CHECK(none.share() == 0);
    CHECK(none.left.size() == 3);
    CHECK(none.left.front().find("memory") != std::string::npos);
    auto const late = prove_in_pieces(t.single_device(), plan, test::kernels(), {.seconds = -1});
    CHECK(late.share() == 0);
    CHECK(late.left.front().find("time is up") != std::string::npos);
    program_builder builder;
    auto const v = builder.parameter("v", {4});
    auto const known = builder.apply("tanh", "(a) -> (a)", {v});
    auto const p =
        builder.finish(builder.apply("sum", "(a) -> (); 0", {builder.apply("magic", "(a) -> (a)", {known})}));
    test::random_source random(1);
    auto const part = prove_in_pieces(p, test::random_plan(index_program(p), 2, random), test::kernels());
    CHECK(part);
    CHECK(part.share() > 0);
    CHECK(part.share() < 1);
    REQUIRE(part.left.size() == 1);
    CHECK(part.left.front().find("magic") != std::string::npos);
}

TEST_CASE("a plan on a mesh has no pieces, and says so") {
    test::random_source random(1);
    auto const p = test::random_program(random);
    auto const indexed = index_program(p);
    auto const what = plan_on_mesh(indexed, test::random_mesh_program(indexed, mesh({2, 2}), random), {});
    REQUIRE(verify(p, what).problem == "");
    auto const shown = prove_in_pieces(p, what, test::kernels());
    CHECK(shown);
    CHECK(shown.share() == 0);
    CHECK(shown.left == std::vector<std::string>{"the plan is on a mesh of 2 x 2, which is run whole or not at all"});
}

TEST_CASE("a piece finds a sum that is missing, a wrong form, a loss that is counted twice") {
    test::trap t;
    auto const x = t.input({6, 4}), w = t.weight({4, 5});
    auto const y = t.add("matmul", {x, w}, {6, 5});
    auto const z = t.add("tanh", {y}, {6, 5});
    t.finish(t.add("sum", {z}, {}));
    auto const S = tensor_form::shard(0), T = tensor_form::shard(1);
    auto const piece = [&](std::size_t n) {
        auto const plan = t.planned({0.5, 0.3, 0.2});
        auto const made = plan_pieces(t.single_device(), plan).of(n, n + 1);
        REQUIRE(made);
        return prove(made->what.program, made->what.plan, test::kernels());
    };
    t.read(x, T).read(w, S).compute({T, S}, {P}).convert(y, P, R).compute({R}, {R}).compute({R}, {R});
    t.convert(t.indexed().loss, R, M);
    for (std::size_t n : {2u, 4u, 5u}) CHECK_MESSAGE(piece(n).is_equal, piece(n).problem);
    // A function that is not linear of summands: as if an all-reduce were dropped.
    t.again().read(x, T).read(w, S).compute({T, S}, {P}).compute({P}, {P}).compute({P}, {P});
    CHECK(piece(2).is_equal);
    CHECK_FALSE(piece(3).is_equal);
    CHECK(piece(4).is_equal);
    // Summands said to be whole.
    bool found = false;
    auto const& loops = t.indexed().operators[0].loops;
    for (std::size_t l = 0; l < loops.size(); ++l) {
        if (!loops[l].is_reduction) continue;
        t.again()
            .read(x, T)
            .read(w, S)
            .compute({T, S}, {R})
            .along(static_cast<std::int16_t>(l))
            .compute({R}, {R})
            .compute({R}, {R});
        t.convert(t.indexed().loss, R, M);
        CHECK_FALSE(piece(2).is_equal);
        CHECK(piece(3).is_equal);
        found = true;
    }
    CHECK(found);
    // Whole copies whose cotangents add up, said to be mirrored: gradients as often as there are devices.
    t.again().read(x, R).read(w, R).compute({R, R}, {M}).compute({M}, {M}).compute({M}, {M});
    CHECK_FALSE(piece(2).is_equal);
    CHECK(piece(3).is_equal);
}

TEST_CASE("pieces find a kernel that is wrong on parts, and which") {
    auto kernels = test::kernels();
    auto tanh = kernels.library_kernel("tanh");
    tanh.backward = [right = tanh.backward](auto const& call, auto x, auto y, auto g) {
        auto gradients = right(call, x, y, g);
        if (call.operands[0][0] && !gradients[0]->data.empty()) gradients[0]->data[0] += 1e-6;
        return gradients;
    };
    kernels.set("tanh", tanh);
    test::trap t;
    auto const x = t.input({6, 4}), w = t.weight({4});
    auto const y = t.add("mul", {x, w}, {6, 4});
    t.finish(t.add("sum", {t.add("tanh", {y}, {6, 4})}, {}));
    auto const S = tensor_form::shard(0);
    t.read(x, S).read(w, R).compute({S, R}, {S}).compute({S}, {S}).compute({S}, {P});
    auto const plan = t.planned({0.5, 0.5});
    auto const shown = prove_apart(t.single_device(), plan, kernels);
    CHECK_FALSE(shown);
    CHECK(shown.shown.worst_error > 1e-9);
    CHECK(prove_apart(t.single_device(), plan, test::kernels()).share() == 1);
}
