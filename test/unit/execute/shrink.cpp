// SPDX-License-Identifier: BSL-1.0
// Shrunk plans: smaller, of the same structure and shares, and they still compute what their programs do.
#include "emulation.hpp"
#include "kernels.hpp"

#include <heddle/execute/detail/size_ties.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <support/cases.hpp>
#include <support/catalogue_programs.hpp>
#include <support/interleaved_plans.hpp>
#include <support/random_plans.hpp>
#include <support/traced_program.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

using namespace heddle;

namespace {

/// Images in patches behind a class token, mean of labels: all that relates extents beside rules.
program image_program() {
    program_builder builder;
    auto const x = builder.input("x", {6, 4, 32, 32}), target = builder.input("target", {6}, element_type::int64);
    auto const w = builder.parameter("patch.weight", {24, 4, 4, 4}), token = builder.parameter("token", {6, 1, 24}),
               head = builder.parameter("head.weight", {10, 24});
    operator_options convolution;
    convolution.results = {{6, 24, 8, 8}};
    convolution.attributes = {{"stride", {4, 4}}, {"padding", {0, 0}}, {"dilation", {1, 1}}};
    auto const patches = builder.apply("conv2d", "(b i _ _), (o i _ _) -> (b o _ _); 0*1", {x, w}, convolution);
    operator_options pool;
    pool.results = {{6, 24, 4, 4}};
    pool.attributes = {{"kernel_size", {2, 2}}, {"stride", {}}, {"padding", {}}, {"dilation", {}}};
    auto const pooled = builder.apply("max_pool2d", "(b c _ _) -> (b c _ _)", {patches}, pool);
    auto const flat = builder.apply("flatten", "(b c h w) -> (b c (h w)); 0", {pooled}, {.is_view = true});
    auto const sequence = builder.apply("transpose", "(b c s) -> (b s c); 0", {flat}, {.is_view = true});
    operator_options joining;
    joining.results = {{6, 17, 24}};
    joining.attributes = {{"dim", {1}}};
    auto const joined = builder.apply("cat", "(b _ c), (b _ c) -> (b _ c); 0 + 1", {token, sequence}, joining);
    operator_options picking;
    picking.is_view = true;
    picking.attributes = {{"start", {0, 1, 0}}, {"step", {1, 1, 1}}, {"count", {0, 1, 0}}};
    auto const picked = builder.apply("getitem", "(b _ c) -> (b c); 0", {joined}, picking);
    auto const scores = builder.apply("linear", "(b k), (n k) -> (b n); 0*1", {picked, head});
    operator_options labels;
    labels.attributes = {{"ignore_index", {-100}}, {"mean", {1}}};
    return builder.finish(builder.apply("cross_entropy", "(b !c), (_) -> ()", {scores, target}, labels));
}

tensor_info const& named(program const& p, std::string const& name) {
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (p.tensor(t).name == name) return p.tensor(t);
    throw error("no tensor " + name);
}

void check_shrunk(program const& p, plan const& what, planned_program const& small) {
    auto const checked = verify(small.program, small.plan);
    INFO(checked.problem);
    CHECK(checked);
    REQUIRE(small.plan.steps.size() == what.steps.size());
    for (std::size_t n = 0; n < what.steps.size(); ++n)
        CHECK(small.plan.steps[n].instruction == what.steps[n].instruction);
    for (std::size_t k = 0; k < what.cuts.size(); ++k) CHECK(small.plan.cuts[k].counts == what.cuts[k].counts);
    CHECK(small.plan.stages == what.stages);
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        for (std::size_t d = 0; d < p.tensor(t).shape.size(); ++d) {
            CHECK(small.program.tensor(t).shape[d] <= p.tensor(t).shape[d]);
            CHECK((small.program.tensor(t).shape[d] > 1) == (p.tensor(t).shape[d] > 1));
        }
    auto const shown = prove(small.program, small.plan, test::kernels());
    CHECK_MESSAGE(shown, shown.problem);
}

/// Shrinks random plans of a program on one to four ranks, checks them, and calls `visit(shrunk program)`.
template <class Visit>
void for_each_shrunk(program const& p, std::uint64_t seeds, Visit&& visit) {
    auto const indexed = index_program(p);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        visit(small.program);
    }
}

/// Shrinks a plan whose cuts keep their counts. Returns how many tensors are smaller.
int check_shrinks(program const& p, plan const& what) {
    INFO(test::describe(p));
    auto const small = shrink(p, what);
    CHECK(small.has_planned_counts);
    check_shrunk(p, what, small);
    int smaller = 0;
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        smaller += small.program.tensor(t).elements() < p.tensor(t).elements();
    return smaller;
}

} // namespace

TEST_CASE("random plans of random programs survive being shrunk") {
    int smaller = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(300u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 7, .most_extent = 12});
        auto const plan = test::random_plan(index_program(p, test::random_segments(p, random)),
                                            static_cast<std::size_t>(random.between(1, 4)), random);
        CAPTURE(seed);
        smaller += check_shrinks(p, plan);
    }
    CHECK(smaller > test::cases(300));
}

TEST_CASE("random plans of every operator survive being shrunk") {
    int smaller = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 2);
        auto const plan = test::random_plan(index_program(p), static_cast<std::size_t>(random.between(1, 3)), random);
        CAPTURE(seed);
        smaller += check_shrinks(p, plan);
    }
    CHECK(smaller > test::cases(100));
}

TEST_CASE("recurrent layers shrink but for gates, directions and layers") {
    using test::T, test::flag, test::number;
    program_builder builder;
    std::vector<tensor_id> operands{builder.input("x", {12, 8, 10}), builder.buffer("states", {4, 8, 16})};
    std::vector<literal> weights;
    for (extent run = 0; run < 4; ++run)
        for (extent const columns : {extent{run < 2 ? 10 : 32}, extent{16}}) {
            operands.push_back(builder.parameter("weight" + std::to_string(weights.size()), {48, columns}));
            weights.push_back(T(operands.back()));
        }
    auto const layers =
        add_call(builder, {"gru",
                           "torch.gru",
                           {T(operands[0]), T(operands[1]), test::list(weights), flag(false), number(2), test::real(0),
                            flag(true), flag(true), flag(false)},
                           {},
                           operands,
                           {{{12, 8, 32}, element_type::float32}, {{4, 8, 16}, element_type::float32}}});
    auto const p = builder.finish(builder.apply("sum", "(t b f) -> (); 0", {layers.results[0]}));
    test::random_source random(1);
    CHECK(check_shrinks(p, test::random_plan(index_program(p), 2, random)) > 0);
    auto const small = p.resized(detail::size_ties(p, {}).small_extents()); // where nothing is cut
    CHECK(named(small, "x").shape == tensor_shape{3, 3, 3});
    CHECK(named(small, "states").shape == tensor_shape{4, 3, 3});
    CHECK(named(small, "weight0").shape == tensor_shape{9, 3});
    CHECK(named(small, "weight4").shape == tensor_shape{9, 6});
}

TEST_CASE("random plans whose micro-batches take turns survive being shrunk") {
    int run = 0, smaller = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(4000u); ++seed) {
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 7, .most_extent = 24});
        int const count = test::divisor_of_batch(p, random);
        if (count == 0) continue;
        auto const indexed = index_program(micro_batch_of(p, count));
        auto const plan =
            test::interleaved(test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random),
                              indexed, {.micro_batches = count}, random);
        CAPTURE(seed);
        CAPTURE(count);
        REQUIRE(verify(p, plan));
        smaller += check_shrinks(p, plan);
        ++run;
    }
    MESSAGE(run << " programs of batches that can be divided");
    CHECK(run > test::cases(100));
    CHECK(smaller > run / 2);
}

TEST_CASE("the part of each micro-batch shrinks, not their number") {
    program_builder builder;
    auto const x = builder.input("x", {240, 50}), w = builder.parameter("w", {50, 70});
    auto const p = builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {x, w})}));
    auto const indexed = index_program(micro_batch_of(p, 3));
    test::random_source random(2);
    for (int n = 0; n < 20; ++n) {
        auto const plan =
            test::interleaved(test::random_plan(indexed, 2, random), indexed, {.micro_batches = 3}, random);
        auto const small = shrink(p, plan, {.memory = bytes(20'000)});
        CHECK(small.plan.provenance.training.micro_batches == 3);
        CHECK(named(small.program, "x").shape[0] % 3 == 0);
        CHECK(named(small.program, "x").shape[0] >= 6);
        auto const shown = prove(small.program, small.plan, test::kernels());
        CHECK_MESSAGE(shown, shown.problem);
    }
}

TEST_CASE("moved, padded and resampled dimensions shrink together") {
    program_builder builder;
    auto const x = builder.parameter("x", {20, 6, 30, 40});
    auto const add = [&](char const* target, std::vector<literal> more, tensor_shape result, tensor_id t) {
        more.insert(more.begin(), test::T(t));
        return add_call(builder, {target, target, more, {}, {t}, {{result, element_type::float32}}}).results[0];
    };
    auto y = add("torch.nn.functional.interpolate", {test::ints({15, 20})}, {20, 6, 15, 20}, x);
    y = add("torch.nn.functional.pad", {test::ints({1, 2, 0, 3}), test::text("reflect")}, {20, 6, 18, 23}, y);
    y = add("torch.roll", {test::ints({1}), test::ints({2})}, {20, 6, 18, 23}, y);
    y = add("torch.cumsum", {test::number(3)}, {20, 6, 18, 23}, y);
    auto const w = builder.parameter("w", {6, 4, 3, 3});
    y = add_call(builder, {"spread",
                           "torch.conv_transpose2d",
                           {test::T(y), test::T(w), test::none(), test::number(2)},
                           {},
                           {y, w},
                           {{{20, 4, 37, 47}, element_type::float32}}})
            .results[0];
    y = add("torch.amax", {test::ints({2, 3})}, {20, 4}, y);
    auto const p = builder.finish(builder.apply("sum", "(a b) -> (); 0", {y}));
    test::random_source random(1);
    auto const plan = test::random_plan(index_program(p), 1, random);
    auto const small = shrink(p, plan);
    check_shrunk(p, plan, small);
    tensor_shape const &padded = named(small.program, "torch.nn.functional.pad").shape,
                       &spread = named(small.program, "spread").shape;
    CHECK(padded[2] < 18);
    CHECK(padded == named(small.program, "torch.cumsum").shape);
    CHECK(spread[2] == 2 * padded[2] + 1);
    CHECK(named(small.program, "x").shape[2] < 30);
}

TEST_CASE("windows, concatenations, slices and labels stay consistent") {
    auto const p = image_program();
    auto const indexed = index_program(p);
    extent smallest = 32 * 32;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        // Pools of 2 and patches of 4; a token beside the pools, which a plan may cut into all their 4 rows or columns.
        auto const &x = named(small.program, "x").shape, &pools = named(small.program, "max_pool2d_1").shape;
        for (std::size_t d : {2u, 3u}) {
            CHECK((pools[d] == 3 || pools[d] == 4));
            CHECK(x[d] == 8 * pools[d]);
        }
        CHECK(named(small.program, "cat_4").shape[1] == 1 + pools[2] * pools[3]);
        smallest = std::min(smallest, x[2] * x[3]);
        CHECK(named(small.program, "target").shape[0] == x[0]);
        CHECK(named(small.program, "head.weight").shape[0] <= 10);
    }
    CHECK(smallest == 24 * 24);
}

TEST_CASE("labels of a sequence shrink with its scores") {
    program_builder b;
    auto const x = b.input("x", {6, 16, 24}), target = b.input("target", {6, 16}, element_type::int64);
    auto const scores = b.apply("linear", "(b s k), (n k) -> (b s n); 0*1", {x, b.parameter("head.weight", {40, 24})});
    auto const rows = b.apply("view", "(b s n) -> ((b s) n); 0", {scores}, {.is_view = true});
    auto const labels = b.apply("view", "(b s) -> ((b s)); 0", {target}, {.is_view = true});
    operator_options mean;
    mean.attributes = {{"ignore_index", {-100}}, {"mean", {1}}};
    auto const p = b.finish(b.apply("cross_entropy", "(b !c), (_) -> ()", {rows, labels}, mean));
    extent smallest = 16;
    for_each_shrunk(p, 20, [&](program const& small) {
        auto const &x_shape = named(small, "x").shape, &target_shape = named(small, "target").shape;
        CHECK(target_shape == tensor_shape{x_shape[0], x_shape[1]});
        smallest = std::min(smallest, x_shape[1]);
    });
    CHECK(smallest == 3); // where the plan does not cut it
}

TEST_CASE("slices that leave out few places at either end leave out as many of a smaller dimension") {
    test::traced_program t;
    auto const x = t.builder.input("x", {6, 40});
    auto const y = t.call("operator.mul", {test::T(x), test::T(t.builder.parameter("w", {40}))}, {6, 40});
    auto const slice = [&](std::optional<std::int64_t> start, std::optional<std::int64_t> stop) {
        return t.call("operator.getitem", {test::T(y), test::list({test::whole(), test::slice(start, stop)})}, {6, 37});
    };
    auto const difference = t.call("operator.sub", {test::T(slice(3, {})), test::T(slice({}, -3))}, {6, 37});
    auto const inner = t.call("operator.mul", {test::T(difference), test::T(slice(1, -2))}, {6, 37});
    auto const p = t.builder.finish(t.call("torch.sum", {test::T(inner)}, {}));
    extent smallest = 40;
    for_each_shrunk(p, 20, [&](program const& small) { smallest = std::min(smallest, named(small, "x").shape[1]); });
    CHECK(smallest == 6);
}

TEST_CASE("slices that leave out few places keep a dimension whole where places of others go or come") {
    for (bool has_new : {false, true}) {
        test::traced_program t;
        auto const x = t.builder.input("x", {6, 4, 40});
        auto const y = t.call("operator.mul", {test::T(x), test::T(t.builder.parameter("w", {40}))}, {6, 4, 40});
        std::vector<literal> items{test::whole(), test::number(1), test::slice(2, {})};
        if (has_new) items.insert(items.begin() + 1, test::none());
        tensor_shape const taken = has_new ? tensor_shape{6, 1, 38} : tensor_shape{6, 38};
        auto const z = t.call("operator.getitem", {test::T(y), test::list(items)}, taken);
        auto const p = t.builder.finish(t.call("torch.sum", {test::T(t.call("torch.tanh", {test::T(z)}, taken))}, {}));
        for_each_shrunk(p, 10, [&](program const& small) { CHECK(named(small, "x").shape[2] == 40); });
    }
}

TEST_CASE("runs of a grouped product keep as many ends as there are matrices") {
    program_builder builder;
    auto const x = builder.input("x", {64, 32}), ends = builder.input("ends", {8}, element_type::int64);
    auto const w = builder.parameter("w", {8, 32, 48});
    auto const y =
        builder.apply("grouped_mm", "(n k), (e k m), (_) -> (n m); 0*1", {x, w, ends}, {.saved_operands = {{0, 1, 2}}});
    program const p = builder.finish(builder.apply("sum", "(n m) -> (); 0", {y}));
    extent fewest = 8;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const plan = test::random_plan(index_program(p), static_cast<std::size_t>(random.between(1, 3)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        CHECK(named(small.program, "ends").shape[0] == named(small.program, "w").shape[0]);
        fewest = std::min(fewest, named(small.program, "w").shape[0]);
    }
    CHECK(fewest == 3); // where the plan does not cut them
}

TEST_CASE("classes reach as far as the places of extremes") {
    program_builder b;
    auto const scores = b.input("scores", {6, 8}), w = b.parameter("w", {8, 12});
    operator_options largest;
    largest.attributes = {{"dim", {1}}};
    largest.result_type = element_type::int64;
    auto const best = b.apply("argmax", "(b _) -> (b)", {scores}, largest);
    operator_options one_hot;
    one_hot.extents = {{"classes", 8}};
    one_hot.result_type = element_type::int64;
    auto const routes = b.apply("one_hot", "(b) -> (b classes)", {best}, one_hot);
    auto const mask = b.apply("to", "(b e) -> (b e); 0", {routes}, {.result_type = element_type::float32});
    auto const p =
        b.finish(b.apply("sum", "(b h) -> (); 0", {b.apply("matmul", "(b e), (e h) -> (b h); 0*1", {mask, w})}));
    auto const indexed = index_program(p);
    int smaller = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 3)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        CHECK(named(small.program, "w").shape[0] >= named(small.program, "scores").shape[1]);
        smaller += named(small.program, "scores").shape[1] < 8;
    }
    CHECK(smaller > 5);
}

TEST_CASE("tables and labels reach as far as places that are counted") {
    program_builder b;
    auto const add = [&](char const* target, std::vector<literal> arguments, std::vector<tensor_id> operands,
                         tensor_shape result, element_type type = element_type::int64) {
        return add_call(b, {target, target, std::move(arguments), {}, std::move(operands), {{std::move(result), type}}})
            .results[0];
    };
    // Positions begin at 2, images and texts of a batch are each other's labels.
    auto const images = b.input("images", {16, 12}), texts = b.input("texts", {16, 9, 12}),
               table = b.parameter("table", {24, 12}), w = b.parameter("w", {12, 12});
    auto const counted = add("torch.arange", {test::number(9)}, {}, {9});
    auto const places = add("operator.add", {test::T(counted), test::number(2)}, {counted}, {9});
    auto const rows = b.apply("embedding", "(s), (v d) -> (s d); 1", {places, table});
    auto const placed = b.apply("add", "(b s d), (s d) -> (b s d); 0 + 1", {texts, rows});
    auto const pooled = b.apply("mean", "(b s d) -> (b d); 0", {placed});
    auto const mapped = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {images, w});
    auto const scores = b.apply("einsum", "(b d), (t d) -> (b t); 0*1", {mapped, pooled});
    auto const turned = b.apply("t", "(b t) -> (t b); 0", {scores}, {.is_view = true});
    operator_options mean;
    mean.attributes = {{"ignore_index", {-100}}, {"mean", {1}}};
    std::vector<tensor_id> losses;
    for (auto const s : {scores, turned})
        losses.push_back(b.apply("cross_entropy", "(b !c), (_) -> ()",
                                 {s, add("torch.arange", {test::number(16)}, {}, {16})}, mean));
    auto const p = b.finish(b.apply("add", "(), () -> (); 0 + 1", losses));
    auto const smallest = p.resized(detail::size_ties(p, {}).small_extents());
    CHECK(named(smallest, "texts").shape == tensor_shape{3, 3, 3});
    CHECK(named(smallest, "images").shape == tensor_shape{3, 3});
    CHECK(named(smallest, "table").shape == tensor_shape{5, 3});
    auto const indexed = index_program(p);
    extent fewest_rows = 24; // random plans cut most of all else
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 3)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        auto const extent_of = [&](char const* name, std::size_t d) { return named(small.program, name).shape[d]; };
        CHECK(extent_of("table", 0) >= extent_of("texts", 1) + 2);
        CHECK(extent_of("images", 0) == extent_of("texts", 0));
        fewest_rows = std::min(fewest_rows, extent_of("table", 0));
    }
    CHECK(fewest_rows == 11);
}

TEST_CASE("a table whose places are computed by what has no inverse stays whole") {
    program_builder b;
    auto const ids = b.input("ids", {6, 16}, element_type::int64), table = b.parameter("table", {20, 8});
    auto const add = [&](char const* target, std::vector<literal> arguments, std::vector<tensor_id> operands) {
        return add_call(
                   b, {target, target, std::move(arguments), {}, std::move(operands), {{{6, 16}, element_type::int64}}})
            .results[0];
    };
    auto const before = add("torch.cumsum", {test::T(ids), test::number(1)}, {ids});
    auto const counted = add("operator.mul", {test::T(before), test::T(ids)}, {before, ids});
    auto const rows = b.apply("embedding", "(b s), (v d) -> (b s d); 1", {counted, table});
    auto const p = b.finish(b.apply("sum", "(b s d) -> (); 0", {rows}));
    extent fewest = 6 * 16;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        test::random_source random(seed);
        auto const small = shrink(p, test::random_plan(index_program(p), 2, random));
        CHECK(named(small.program, "table").shape[0] == 20);
        fewest = std::min(fewest, named(small.program, "ids").elements());
    }
    CHECK(fewest < 6 * 16);
}

TEST_CASE("a dimension shrinks whose places follow from integers that can be drawn") {
    auto const rows_left = [](char const* between, std::vector<literal> more) {
        program_builder b;
        auto const ids = b.input("ids", {16}, element_type::int64), table = b.parameter("table", {20, 8});
        auto const call = [&](char const* target, std::vector<literal> arguments, std::vector<tensor_id> operands,
                              tensor_shape result, element_type type) {
            return add_call(b, {target, target, std::move(arguments), {}, std::move(operands), {{result, type}}})
                .results[0];
        };
        more.insert(more.begin(), test::T(ids));
        auto const places = call(between, std::move(more), {ids}, {16}, element_type::int64);
        auto const rows = call("torch.index_select", {test::T(table), test::number(0), test::T(places)},
                               {table, places}, {16, 8}, element_type::float32);
        auto const p = b.finish(b.apply("sum", "(s d) -> (); 0", {rows}));
        auto const small = p.resized(detail::size_ties(p, {}).small_extents());
        auto const sources = random_sources<double>(small, 1);
        CHECK(std::isfinite(run_on_random_sources(small, sources, test::kernels()).loss));
        return named(small, "table").shape[0];
    };
    CHECK(rows_left("torch.clone", {}) == 3);
    CHECK(rows_left("operator.sub", {test::number(5)}) == 3);
    CHECK(rows_left("operator.mul", {test::number(2)}) == 3);
}

TEST_CASE("pieces of different lengths keep different ones, and runs keep what lies beside them") {
    program_builder b;
    auto const add = [&](char const* target, std::vector<literal> arguments, std::vector<tensor_id> operands,
                         tensor_shape result) {
        return add_call(
                   b,
                   {target, target, std::move(arguments), {}, std::move(operands), {{result, element_type::float32}}})
            .results[0];
    };
    auto const x = b.parameter("x", {12, 64}), y = b.parameter("y", {12, 32}), z = b.parameter("z", {12, 32});
    auto const joined =
        add("torch.cat", {test::list({test::T(x), test::T(y), test::T(z)}), test::number(1)}, {x, y, z}, {12, 128});
    auto const w = b.parameter("w", {12, 18});
    auto const run =
        add("torch.narrow", {test::T(w), test::number(1), test::number(0), test::number(16)}, {w}, {12, 16});
    auto const p = b.finish(b.apply("add", "(), () -> (); 0 + 1",
                                    {b.apply("sum", "(a b) -> (); 0", {b.apply("tanh", "(a b) -> (a b)", {joined})}),
                                     b.apply("sum", "(a b) -> (); 0", {run})}));
    auto const indexed = index_program(p);
    int smaller = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 3)), random);
        auto const small = shrink(p, plan);
        check_shrunk(p, plan, small);
        CHECK(named(small.program, "w").shape[1] == 18);
        auto const length = [&](char const* name) { return named(small.program, name).shape[1]; };
        CHECK(length("x") != length("y"));
        smaller += length("x") < 64 ? 1 : 0;
    }
    CHECK(smaller > 0);
}

TEST_CASE("a dimension that two views divide in ways without a common refinement stays as it is") {
    program_builder b;
    auto const x = b.input("x", {6, 56, 10}), w = b.parameter("w", {10});
    auto const y = b.apply("mul", "(a s c), (c) -> (a s c); 0*1", {x, w});
    std::vector<tensor_id> sums;
    for (extent const inner : {7, 2}) {
        auto const parts =
            b.apply("view", "(a (i j) c) -> (a i j c); 0", {y}, {.extents = {{"j", inner}}, .is_view = true});
        sums.push_back(b.apply("sum", "(a i j c) -> (); 0", {b.apply("tanh", "(a i j c) -> (a i j c)", {parts})}));
    }
    auto const p = b.finish(b.apply("add", "(), () -> (); 0 + 1", sums));
    auto const indexed = index_program(p);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        test::random_source random(seed);
        CAPTURE(seed);
        auto const plan = test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        check_shrunk(p, plan, shrink(p, plan));
    }
}

TEST_CASE("what is not known of an operator stays whole") {
    program_builder builder;
    auto const x = builder.parameter("x", {20, 30});
    auto const y = builder.apply("magic", "(a _) -> (a _)", {x}, {.results = {{20, 15}}});
    auto const p = builder.finish(builder.apply("sum", "(a b) -> (); 0", {y}));
    test::random_source random(1);
    auto const small = shrink(p, test::random_plan(index_program(p), 1, random));
    CHECK(named(small.program, "x").shape[1] == 30);
    CHECK(named(small.program, "magic_0").shape[1] == 15);
    CHECK(verify(small.program, small.plan));
}

TEST_CASE("atoms stay as planned while they fit, then shares are rounded") {
    program_builder builder;
    auto const x = builder.input("x", {640, 50}), w = builder.parameter("w", {50, 70});
    auto const p = builder.finish(
        builder.apply("sum", "(a b) -> (); 0", {builder.apply("matmul", "(a k), (k b) -> (a b); 0*1", {x, w})}));
    auto const indexed = index_program(p);
    test::random_source random(3);
    plan what;
    do what = test::random_plan(indexed, 3, random);
    while (std::ranges::none_of(what.cuts, [](auto const& cut) { return cut.atoms == 640; }));
    CHECK(shrink(p, what).has_planned_counts);
    auto const coarse = shrink(p, what, {.memory = bytes(20'000)});
    CHECK_FALSE(coarse.has_planned_counts);
    CHECK(verify(coarse.program, coarse.plan));
    CHECK(size_of_execution(index_program(coarse.program), coarse.plan).memory <= bytes(20'000));
    for (std::size_t k = 0; k < what.cuts.size(); ++k)
        for (std::size_t d = 0; d < 3; ++d) {
            auto const share = [&](atom_class const& cut) {
                return static_cast<double>(cut.counts[d]) / static_cast<double>(cut.atoms);
            };
            CHECK(std::abs(share(coarse.plan.cuts[k]) - share(what.cuts[k])) <=
                  1.0 / static_cast<double>(coarse.plan.cuts[k].atoms));
        }
    CHECK(prove(coarse.program, coarse.plan, test::kernels()));
}
