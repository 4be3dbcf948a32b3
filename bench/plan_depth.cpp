// SPDX-License-Identifier: BSL-1.0
// Whole planning runs of vision transformers of 12 to 1200 equal layers on the shipped cluster of 2 V100 and 6 P100. Every plan is verified.
// Counters: seconds per iteration of the plan, proven gap in percent, seconds of planning per layer, which stay the same where
// planning is linear.
#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#include <benchmark/benchmark.h>

#include <string>

namespace {

using namespace heddle;

/// Layers of attention and a perceptron, each after a normalisation and beside what it adds to; 256 images of 65 tokens, 12 heads.
class layer_builder {
public:
    program build(int count) {
        auto x = b_.input("x", {256, 65, width});
        for (; number_ < count; ++number_) {
            x = add(x, attend(normalised("norm1", x)));
            auto const h = linear("up", normalised("norm2", x), width, 4 * width);
            auto const g = b_.apply("gelu", "(b s k) -> (b s k)", {h}, {.category = operator_class::elementwise, .saved_operands = {{0}}});
            x = add(x, linear("down", g, 4 * width, width));
        }
        return b_.finish(b_.apply("sum", "(b s k) -> (); 0", {x}, {.category = operator_class::reduction}));
    }

private:
    static constexpr extent width = 768, heads = 12;

    tensor_id parameter(char const* what, char const* part, shape dims) {
        return b_.parameter("layer" + std::to_string(number_) + "." + what + "." + part, std::move(dims));
    }
    tensor_id linear(char const* what, tensor_id x, extent from, extent to) {
        return b_.apply("linear", "(b s k), (n k), (n) -> (b s n); 0*1 + 2", {x, parameter(what, "weight", {to, from}), parameter(what, "bias", {to})},
                        {.category = operator_class::matmul});
    }
    tensor_id normalised(char const* what, tensor_id x) {
        return b_.apply("layer_norm", "(b s !k), (!k), (!k) -> (b s !k)", {x, parameter(what, "weight", {width}), parameter(what, "bias", {width})},
                        {.category = operator_class::normalisation, .saved_operands = {{0, 1}}});
    }
    tensor_id add(tensor_id x, tensor_id y) {
        return b_.apply("add", "(b s k), (b s k) -> (b s k); 0 + 1", {x, y}, {.category = operator_class::elementwise});
    }
    tensor_id projected(char const* what, tensor_id x) {
        return b_.apply("split_heads", "(b s (h d)) -> (b h s d); 0", {linear(what, x, width, width)}, {.extents = {{"h", heads}}, .is_view = true});
    }
    tensor_id attend(tensor_id x) {
        auto const q = projected("query", x), k = projected("key", x), v = projected("value", x);
        auto const scores = b_.apply("scores", "(b h s d), (b h t d) -> (b h s t); 0*1", {q, k}, {.category = operator_class::matmul});
        auto const weights = b_.apply("softmax", "(b h s !t) -> (b h s !t)", {scores}, {.category = operator_class::normalisation, .saved_operands = {{}}, .saved_results = {0}});
        auto const values = b_.apply("values", "(b h s t), (b h t d) -> (b h s d); 0*1", {weights, v}, {.category = operator_class::matmul});
        return linear("project", b_.apply("merge_heads", "(b h s d) -> (b s (h d)); 0", {values}), width, width);
    }

    program_builder b_;
    int number_ = 0;
};

void run(benchmark::State& state) {
    program const model = layer_builder().build(static_cast<int>(state.range(0)));
    auto c = json::read_cluster(HEDDLE_EXAMPLES "/clusters/v100x2_p100x6.json");
    for (auto& type : c.types) type.memory = 100 * type.memory; // room for the deepest
    plan result;
    for (auto _ : state) result = find_plan(model, c, clp::ratio_solver{});
    if (!result.exists()) { state.SkipWithError(result.reason.c_str()); return; }
    if (auto const checked = verify(model, result); !checked) { state.SkipWithError(checked.problem.c_str()); return; }
    state.counters["plan_s"] = result.cost();
    state.counters["gap_%"] = 100 * result.gap();
    state.counters["per_layer"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(run)->Name("layers")->Arg(12)->Arg(24)->Arg(48)->Arg(96)->Arg(300)->Arg(1200)->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
