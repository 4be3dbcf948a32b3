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
        auto x = b_.input("x", {batch, tokens, width});
        for (; number_ < count; ++number_) {
            x = add(x, dropout(attend(normalised("norm1", x))));
            auto const h = linear("up", normalised("norm2", x), width, 4 * width);
            auto const g = b_.apply("gelu", "(b s k) -> (b s k)", {h}, {.category = operator_class::elementwise, .saved_operands = {{0}}});
            x = add(x, dropout(linear("down", dropout(g), 4 * width, width)));
        }
        return b_.finish(b_.apply("sum", "(b s k) -> (); 0", {x}, {.category = operator_class::reduction}));
    }

private:
    static constexpr extent batch = 256, tokens = 65, width = 768, heads = 12;

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
    tensor_id dropout(tensor_id x) {
        return b_.apply("dropout", "(b s k) -> (b s k); 0", {x}, {.category = operator_class::elementwise, .extra_saved = bytes(static_cast<double>(b_.tensor(x).elements()))});
    }
    tensor_id swapped(tensor_id x) { return b_.apply("transpose", "(b s k) -> (s b k); 0", {x}, {.is_view = true}); }
    tensor_id attend(tensor_id x) {
        auto const w = parameter("attention", "in_weight", {3 * width, width}), bias = parameter("attention", "in_bias", {3 * width});
        auto const out = parameter("attention", "out_weight", {width, width}), out_bias = parameter("attention", "out_bias", {width});
        auto const t = swapped(x);
        flops const work(2.0 * batch * tokens * width * (4 * width + 2 * tokens));
        return swapped(b_.apply("attention", "(!s b !e), (!t b !e), (!t b !e), ((!three h !d) !e), ((!three h !d)), (!o (h !d)), (!o) -> (!s b !o); 5 + 6",
                                {t, t, t, w, bias, out, out_bias},
                                {.category = operator_class::attention, .extents = {{"three", 3}, {"h", heads}}, .forward = work, .backward = 2 * work,
                                 .extra_saved = bytes(4.0 * batch * heads * tokens * tokens), .saved_operands = {{0, 1, 2, 3, 5}}}));
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
