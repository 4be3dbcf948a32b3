// SPDX-License-Identifier: BSL-1.0
// What a program computes is what the graph says: in-place changes, sub-graphs, complex numbers, calls of several
// operators. A graph is compared with another one that says the same in plain operators of the same sources.
#include "graphs.hpp"

#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/pt2/all.hpp>
#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

using namespace heddle;

namespace {

using test::exported_graph;
using line = std::string;

/// The program of a graph that `build` makes the last tensor of.
program program_of(std::function<line(exported_graph&)> const& build, std::vector<line> const& sources) {
    exported_graph g;
    for (std::size_t n = 0; n < sources.size(); ++n) {
        auto const number = std::to_string(n);
        if (sources[n][0] == 'p') g.parameter(sources[n].substr(2), "x" + number);
        else g.input(sources[n].substr(2), sources[n].substr(0, 1) + number);
    }
    auto const last = build(g);
    g.output(g.node("aten.mean.default self=%" + last + " -> f()")[0]);
    auto model = pt2::parse_model(g.text(), "m");
    CHECK(model.missing_rules.empty());
    return std::move(model.program);
}

void check_same(std::vector<line> const& sources, std::function<line(exported_graph&)> const& one,
                std::function<line(exported_graph&)> const& other) {
    auto const first = program_of(one, sources), second = program_of(other, sources);
    auto const values = random_sources<double>(first, 7);
    auto const run = [&](program const& p) {
        return run_on_random_sources<double>(p, values, eigen_kernels<double>());
    };
    auto const a = run(first), b = run(second);
    CHECK(a.loss == doctest::Approx(b.loss));
    REQUIRE(a.gradients.size() == b.gradients.size());
    for (auto const& [t, gradient] : a.gradients) {
        auto const &g = gradient.second, &h = b.gradients.at(t).second;
        REQUIRE(g.dims == h.dims);
        for (extent n = 0; n < g.elements(); ++n) CHECK(g[n] == doctest::Approx(h[n]));
    }
}

} // namespace

TEST_CASE("in-place operators change what is used afterwards, and its views") {
    check_same(
        {"p f(4,6)", "p f(4,6)"},
        [](exported_graph& g) {
            auto const y = g.node("aten.mul.Tensor self=%p_x0 other=2.0 -> f(4,6)")[0];
            auto const rows = g.node("aten.view.default self=%" + y + " size=(2,12) -> f(2,12)")[0];
            auto const turned = g.node("aten.transpose.int self=%" + rows + " dim0=0 dim1=1 -> f(12,2)")[0];
            auto const part = g.node("aten.slice.Tensor self=%" + turned + " dim=0 start=0 end=6 -> f(6,2)")[0];
            g.node("aten.add_.Tensor self=%" + y + " other=%p_x1 -> f(4,6)");
            g.node("aten.mul_.Tensor self=%" + part + " other=3.0 -> f(6,2)");
            return g.node("aten.mul.Tensor self=%" + y + " other=%" + y + " -> f(4,6)")[0];
        },
        [](exported_graph& g) {
            auto y = g.node("aten.mul.Tensor self=%p_x0 other=2.0 -> f(4,6)")[0];
            y = g.node("aten.add.Tensor self=%" + y + " other=%p_x1 -> f(4,6)")[0];
            auto const rows = g.node("aten.view.default self=%" + y + " size=(2,12) -> f(2,12)")[0];
            auto const first = g.node("aten.slice.Tensor self=%" + rows + " dim=1 start=0 end=6 -> f(2,6)")[0],
                       second = g.node("aten.slice.Tensor self=%" + rows + " dim=1 start=6 end=12 -> f(2,6)")[0];
            auto const more = g.node("aten.mul.Tensor self=%" + first + " other=3.0 -> f(2,6)")[0];
            auto const all = g.node("aten.cat.default tensors=[%" + more + ",%" + second + "] dim=1 -> f(2,12)")[0];
            return g.node("aten.mul.Tensor self=%" + all + " other=%" + all + " -> f(2,12)")[0];
        });
}

TEST_CASE("pieces of a tensor are written one by one") {
    check_same(
        {"p f(2,4)"},
        [](exported_graph& g) {
            auto const y = g.node("aten.new_zeros.default self=%p_x0 size=(2,4) -> f(2,4)")[0];
            auto const from = g.node("aten.slice.Tensor self=%p_x0 dim=1 start=0 end=-1 -> f(2,3)")[0];
            auto const to =
                g.node("aten.slice.Tensor self=%" + y + " dim=1 start=1 end=9223372036854775807 -> f(2,3)")[0];
            g.node("aten.copy_.default self=%" + to + " src=%" + from + " -> f(2,3)");
            auto const place = g.node("aten.select.int self=%" + y + " dim=1 index=0 -> f(2)")[0];
            g.node("aten.fill_.Scalar self=%" + place + " value=5 -> f(2)");
            return g.node("aten.mul.Tensor self=%" + y + " other=%p_x0 -> f(2,4)")[0];
        },
        [](exported_graph& g) {
            auto const from = g.node("aten.slice.Tensor self=%p_x0 dim=1 start=0 end=3 -> f(2,3)")[0];
            auto const five = g.node("aten.full.default size=(2,1) fill_value=5 -> f(2,1)")[0];
            auto const y = g.node("aten.cat.default tensors=[%" + five + ",%" + from + "] dim=1 -> f(2,4)")[0];
            return g.node("aten.mul.Tensor self=%" + y + " other=%p_x0 -> f(2,4)")[0];
        });
}

TEST_CASE("a change through elements that are shared in an unknown way is refused") {
    exported_graph g;
    auto const x = g.parameter("f(2,1)", "x");
    auto const y = g.node("aten.mul.Tensor self=%" + x + " other=2.0 -> f(2,1)")[0];
    auto const wide = g.node("aten.expand.default self=%" + y + " size=(2,3) -> f(2,3)")[0];
    g.node("aten.add_.Tensor self=%" + y + " other=1.0 -> f(2,1)");
    g.output(g.node("aten.mean.default self=%" + wide + " -> f()")[0]);
    CHECK(test::contains(test::error_of<error>([&] { static_cast<void>(pt2::parse_model(g.text(), "m")); }),
                         "shares elements with one that is changed in place"));
}

TEST_CASE("derivatives do not pass a graph that is called without them") {
    for (bool const enabled : {false, true}) {
        CAPTURE(enabled);
        check_same(
            {"p f(2,3)", "p f(2,3)"},
            [&](exported_graph& g) {
                exported_graph inner;
                inner.declare("p_x0", "f(2,3)");
                auto const twice = inner.node("aten.mul.Tensor self=%p_x0 other=2.0 -> f(2,3)")[0];
                auto const y = g.graph_call("wrap_with_set_grad_enabled", inner.inner({"p_x0"}, {twice}),
                                            std::vector{nlohmann::json{{"as_bool", enabled}}}, {"p_x0"}, "f(2,3)")[0];
                auto const z = g.node("aten.mul.Tensor self=%" + y + " other=%p_x1 -> f(2,3)")[0];
                return g.node("aten.add.Tensor self=%" + z + " other=%p_x0 -> f(2,3)")[0];
            },
            [&](exported_graph& g) {
                line x = "p_x0";
                if (!enabled) x = g.node("aten.detach.default self=%p_x0 -> f(2,3)")[0];
                auto const y = g.node("aten.mul.Tensor self=%" + x + " other=2.0 -> f(2,3)")[0];
                auto const z = g.node("aten.mul.Tensor self=%" + y + " other=%p_x1 -> f(2,3)")[0];
                return g.node("aten.add.Tensor self=%" + z + " other=%p_x0 -> f(2,3)")[0];
            });
    }
}

TEST_CASE("a rotary embedding by complex numbers is one by sines and cosines") {
    check_same(
        {"p f(2,5,3,2)", "p f(5,3)", "p f(2,5,3,2)"},
        [](exported_graph& g) {
            auto const x = g.node("aten.view_as_complex.default self=%p_x0 -> c(2,5,3)")[0];
            auto const one = g.node("aten.ones_like.default self=%p_x1 -> f(5,3)")[0];
            auto const turn = g.node("aten.polar.default abs=%" + one + " angle=%p_x1 -> c(5,3)")[0];
            auto const wide = g.node("aten.unsqueeze.default self=%" + turn + " dim=-3 -> c(1,5,3)")[0];
            auto const y = g.node("aten.mul.Tensor self=%" + x + " other=%" + wide + " -> c(2,5,3)")[0];
            auto const real = g.node("aten.view_as_real.default self=%" + y + " -> f(2,5,3,2)")[0];
            return g.node("aten.mul.Tensor self=%" + real + " other=%p_x2 -> f(2,5,3,2)")[0];
        },
        [](exported_graph& g) {
            auto const a = g.node("aten.select.int self=%p_x0 dim=3 index=0 -> f(2,5,3)")[0],
                       b = g.node("aten.select.int self=%p_x0 dim=3 index=1 -> f(2,5,3)")[0];
            auto const cos = g.node("aten.cos.default self=%p_x1 -> f(5,3)")[0],
                       sin = g.node("aten.sin.default self=%p_x1 -> f(5,3)")[0];
            auto const times = [&](line const& x, line const& y) {
                return g.node("aten.mul.Tensor self=%" + x + " other=%" + y + " -> f(2,5,3)")[0];
            };
            auto const re =
                g.node("aten.sub.Tensor self=%" + times(a, cos) + " other=%" + times(b, sin) + " -> f(2,5,3)")[0];
            auto const im =
                g.node("aten.add.Tensor self=%" + times(a, sin) + " other=%" + times(b, cos) + " -> f(2,5,3)")[0];
            auto const y = g.node("aten.stack.default tensors=[%" + re + ",%" + im + "] dim=3 -> f(2,5,3,2)")[0];
            return g.node("aten.mul.Tensor self=%" + y + " other=%p_x2 -> f(2,5,3,2)")[0];
        });
}

TEST_CASE("calls of several operators compute what they are called") {
    struct pair {
        std::vector<line> sources;
        line call;
        std::vector<line> steps; // `$` is the result of the step before
    };
    std::vector<pair> const table{
        {{"p f(2,4)", "p f(2,1)"},
         "aten.diff.default self=%p_x0 dim=-1 prepend=%p_x1 -> f(2,4)",
         {"aten.cat.default tensors=[%p_x1,%p_x0] dim=1 -> f(2,5)",
          "aten.slice.Tensor self=$ dim=1 start=0 end=4 -> f(2,4)", "aten.sub.Tensor self=%p_x0 other=$ -> f(2,4)"}},
        {{"p f(2,4)"},
         "aten.fmod.Scalar self=%p_x0 other=0.3 -> f(2,4)",
         {"aten.div.Tensor self=%p_x0 other=0.3 -> f(2,4)", "aten.trunc.default self=$ -> f(2,4)",
          "aten.mul.Tensor self=$ other=0.3 -> f(2,4)", "aten.sub.Tensor self=%p_x0 other=$ -> f(2,4)"}},
        {{"p f(2,4)", "p f(4)", "p f(2,1)"},
         "aten.clamp.Tensor self=%p_x0 min=%p_x1 max=%p_x2 -> f(2,4)",
         {"aten.maximum.default self=%p_x0 other=%p_x1 -> f(2,4)",
          "aten.minimum.default self=$ other=%p_x2 -> f(2,4)"}},
        {{"p f(4,3)", "p f(3)"},
         "aten.select_scatter.default self=%p_x0 src=%p_x1 dim=0 index=-2 -> f(4,3)",
         {"aten.slice.Tensor self=%p_x0 dim=0 start=0 end=2 -> f(2,3)",
          "aten.unsqueeze.default self=%p_x1 dim=0 -> f(1,3)",
          "aten.slice.Tensor self=%p_x0 dim=0 start=3 end=4 -> f(1,3)",
          "aten.cat.default tensors=[$3,$2,$1] dim=0 -> f(4,3)"}},
        {{"p f(4,3)", "p f(2,3)"},
         "aten.slice_scatter.default self=%p_x0 src=%p_x1 dim=0 start=-2 -> f(4,3)",
         {"aten.slice.Tensor self=%p_x0 dim=0 start=0 end=2 -> f(2,3)",
          "aten.cat.default tensors=[$1,%p_x1] dim=0 -> f(4,3)"}},
        {{"p f(2,3)", "b b(2)", "p f()"},
         "aten.index_put.default self=%p_x0 indices=[%b1] values=%p_x2 -> f(2,3)",
         {"aten.unsqueeze.default self=%b1 dim=1 -> b(2,1)",
          "aten.where.self condition=$ self=%p_x2 other=%p_x0 -> f(2,3)"}},
        {{"p f(4,3)", "i i(2)", "p f(3)"},
         "aten.index_put.default self=%p_x0 indices=[%i1] values=%p_x2 accumulate=true -> f(4,3)",
         {"aten.expand.default self=%p_x2 size=(2,3) -> f(2,3)",
          "aten.index_add.default self=%p_x0 dim=0 index=%i1 source=$ -> f(4,3)"}},
        {{"p f(2,4)"},
         "aten.elu.default self=%p_x0 alpha=1.5 scale=2.0 input_scale=0.5 -> f(2,4)",
         {"aten.mul.Tensor self=%p_x0 other=0.5 -> f(2,4)", "aten.elu.default self=$ alpha=1.5 -> f(2,4)",
          "aten.mul.Tensor self=$ other=2.0 -> f(2,4)"}},
        {{"p f(2,3)", "p f(2,1)"},
         "aten.remainder.Tensor self=%p_x0 other=%p_x1 -> f(2,3)",
         {"aten.div.Tensor self=%p_x0 other=%p_x1 -> f(2,3)", "aten.floor.default self=$ -> f(2,3)",
          "aten.mul.Tensor self=$ other=%p_x1 -> f(2,3)", "aten.sub.Tensor self=%p_x0 other=$ -> f(2,3)"}},
        {{"p f(9,3)", "i i(6)"},
         "aten._embedding_bag.default weight=%p_x0 indices=%i1 offsets=%OFFSETS mode=1 -> f(2,3) i(6) i(2) i(0)",
         {"aten.embedding.default weight=%p_x0 indices=%i1 -> f(6,3)",
          "aten.view.default self=$ size=(2,3,3) -> f(2,3,3)", "aten.mean.dim self=$ dim=(1) -> f(2,3)"}},
        {{"p f(3)"},
         "aten.pow.Scalar self=10.0 exponent=%p_x0 -> f(3)",
         {"aten.mul.Tensor self=%p_x0 other=2.302585092994046 -> f(3)", "aten.exp.default self=$ -> f(3)"}},
    };
    for (auto const& [sources, call, steps] : table) {
        CAPTURE(call);
        check_same(
            sources,
            [&](exported_graph& g) {
                auto text = call;
                if (auto const at = text.find("OFFSETS"); at != line::npos)
                    text.replace(at, 7, g.node("aten.arange.start_step start=0 end=6 step=3 -> i(2)")[0]);
                return g.node(text)[0];
            },
            [&](exported_graph& g) {
                std::vector<line> made;
                for (auto text : steps) {
                    for (std::size_t at; (at = text.find('$')) != line::npos;) {
                        bool const numbered = at + 1 < text.size() && text[at + 1] >= '1' && text[at + 1] <= '9';
                        auto const back = numbered ? static_cast<std::size_t>(text[at + 1] - '0') : 1;
                        text.replace(at, numbered ? 2 : 1, "%" + made[made.size() - back]);
                    }
                    made.push_back(g.node(text)[0]);
                }
                return made.back();
            });
    }
}

TEST_CASE("a mixture of experts by sorting computes what each expert does on its tokens") {
    // Six tokens, each to one of three experts; by sorting, and by all experts on all tokens and a mask.
    check_same(
        {"p f(6,4)", "p f(3,4,5)", "i i(6)"},
        [](exported_graph& g) {
            auto const capped = g.node("aten.clamp.default self=%i2 min=0 max=2 -> i(6)")[0];
            auto const sorted = g.node("aten.sort.default self=%" + capped + " -> i(6) i(6)");
            auto const rows = g.node("aten.index.Tensor self=%p_x0 indices=[%" + sorted[1] + "] -> f(6,4)")[0];
            auto const expert = g.node("aten.to.dtype self=%" + sorted[0] + " dtype=ty3 -> j(6)")[0];
            auto const counts = g.node("aten.histc.default self=%" + expert + " bins=3 min=0 max=2 -> j(3)")[0];
            auto const ends = g.node("aten.cumsum.default self=%" + counts + " dim=0 -> j(3)")[0];
            auto const made = g.node("transformers.grouped_mm_fallback.default input=%" + rows +
                                     " weight=%p_x1 offs=%" + ends + " -> f(6,5)")[0];
            auto const place = g.node("aten.empty_like.default self=%" + sorted[1] + " -> i(6)")[0];
            auto const number = g.node("aten.arange.default end=6 -> i(6)")[0];
            g.node("aten.index_put_.default self=%" + place + " indices=[%" + sorted[1] + "] values=%" + number +
                   " -> i(6)");
            auto const back = g.node("aten.index.Tensor self=%" + made + " indices=[%" + place + "] -> f(6,5)")[0];
            return g.node("aten.mul.Tensor self=%" + back + " other=%" + back + " -> f(6,5)")[0];
        },
        [](exported_graph& g) {
            auto const capped = g.node("aten.clamp.default self=%i2 min=0 max=2 -> i(6)")[0];
            line total;
            for (int e = 0; e < 3; ++e) {
                auto const number = std::to_string(e);
                auto const w = g.node("aten.select.int self=%p_x1 dim=0 index=" + number + " -> f(4,5)")[0];
                auto const y = g.node("aten.mm.default self=%p_x0 mat2=%" + w + " -> f(6,5)")[0];
                auto const is = g.node("aten.eq.Scalar self=%" + capped + " other=" + number + " -> b(6)")[0];
                auto const wide = g.node("aten.unsqueeze.default self=%" + is + " dim=1 -> b(6,1)")[0];
                auto const mine =
                    g.node("aten.where.ScalarOther condition=%" + wide + " self=%" + y + " other=0 -> f(6,5)")[0];
                total = e == 0 ? mine : g.node("aten.add.Tensor self=%" + total + " other=%" + mine + " -> f(6,5)")[0];
            }
            return g.node("aten.mul.Tensor self=%" + total + " other=%" + total + " -> f(6,5)")[0];
        });
}

namespace {

/// How experts are written: what differs between models, and what is no mixture of experts by sorting.
struct written {
    bool gated = true, normalises = true, is_summed_with_kept_dimension = false, is_biased = false, is_clamped = false;
    line function = "silu", least = "-0.3", last_bin = "2", order = "sorted", divisor = "2";
};

/// Four tokens, each of which goes to two of three experts.
line experts(exported_graph& g, written const& how) {
    auto const node = [&](line const& text) { return g.node(text)[0]; };
    auto weights = line("p_x1");
    if (how.normalises) {
        auto const sum = node("aten.sum.dim_IntList self=%p_x1 dim=(-1) keepdim=true -> f(4,1)");
        weights = node("aten.div.Tensor self=%p_x1 other=%" + sum + " -> f(4,2)");
    }
    auto const ids = node("aten.clamp.default self=%i4 min=0 max=2 -> i(4,2)");
    auto const flat_weights = node("aten.reshape.default self=%" + weights + " shape=(-1) -> f(8)"),
               flat = node("aten.reshape.default self=%" + ids + " shape=(-1) -> i(8)");
    auto const sorted = g.node("aten.sort.default self=%" + flat + " -> i(8) i(8)");
    auto const& order = sorted[1];
    auto const token = node("aten.floor_divide.default self=%" + order + " other=" + how.divisor + " -> i(8)");
    auto const rows = node("aten.index.Tensor self=%p_x0 indices=[%" + token + "] -> f(8,4)"),
               mine = node("aten.index.Tensor self=%" + flat_weights + " indices=[%" + order + "] -> f(8)");
    auto const counted = how.order == "sorted" ? sorted[0] : flat;
    auto const number = node("aten.to.dtype self=%" + counted + " dtype=ty3 -> j(8)");
    auto const counts = node("aten.histc.default self=%" + number + " bins=3 min=0 max=" + how.last_bin + " -> j(3)");
    auto const ends = node("aten.cumsum.default self=%" + counts + " dim=0 -> j(3)");
    line const width = how.gated ? "6" : "3";
    auto const up = node("aten.transpose.int self=%p_x2 dim0=-2 dim1=-1 -> f(3,4," + width + ")"),
               down = node("aten.transpose.int self=%p_x3 dim0=-2 dim1=-1 -> f(3,3,5)");
    auto first = node("transformers.grouped_mm_fallback.default input=%" + rows + " weight=%" + up + " offs=%" + ends +
                      " -> f(8," + width + ")");
    if (how.is_biased) {
        auto const added = node("aten.index.Tensor self=%p_x5 indices=[%" + sorted[0] + "] -> f(8," + width + ")");
        first = node("aten.add_.Tensor self=%" + first + " other=%" + added + " -> f(8," + width + ")");
    }
    line inside;
    if (how.is_clamped) {
        auto const half = [&](line const& start, line const& bounds) {
            auto const all = node("aten.slice.Tensor self=%" + first + " dim=1 start=" + start +
                                  " end=9223372036854775807 step=2 -> f(8,3)");
            return node("aten.clamp.default self=%" + all + " " + bounds + " -> f(8,3)");
        };
        auto const gate = half("0", "max=0.3"), other = half("1", "min=" + how.least + " max=0.3");
        auto const scaled = node("aten.mul.Tensor self=%" + gate + " other=1.702 -> f(8,3)");
        auto const part = node("aten.sigmoid.default self=%" + scaled + " -> f(8,3)");
        auto const active = node("aten.mul.Tensor self=%" + gate + " other=%" + part + " -> f(8,3)");
        auto const raised = node("aten.add.Tensor self=%" + other + " other=1 -> f(8,3)");
        inside = node("aten.mul.Tensor self=%" + raised + " other=%" + active + " -> f(8,3)");
    } else if (how.gated) {
        auto const halves = g.node("aten.chunk.default self=%" + first + " chunks=2 dim=-1 -> [f(8,3),f(8,3)]");
        auto const gate = node("aten." + how.function + ".default self=%" + halves[0] + " -> f(8,3)");
        inside = node("aten.mul.Tensor self=%" + gate + " other=%" + halves[1] + " -> f(8,3)");
    } else {
        inside = node("aten." + how.function + ".default self=%" + first + " -> f(8,3)");
    }
    auto second = node("transformers.grouped_mm_fallback.default input=%" + inside + " weight=%" + down + " offs=%" +
                       ends + " -> f(8,5)");
    if (how.is_biased) {
        auto const added = node("aten.index.Tensor self=%p_x6 indices=[%" + sorted[0] + "] -> f(8,5)");
        second = node("aten.add_.Tensor self=%" + second + " other=%" + added + " -> f(8,5)");
    }
    auto const factor = node("aten.unsqueeze.default self=%" + mine + " dim=-1 -> f(8,1)");
    auto const weighted = node("aten.mul.Tensor self=%" + second + " other=%" + factor + " -> f(8,5)");
    auto const place = node("aten.empty_like.default self=%" + order + " -> i(8)");
    auto const all = node("aten.arange.default end=8 -> i(8)");
    auto const back =
        node("aten.index_put_.default self=%" + place + " indices=[%" + order + "] values=%" + all + " -> i(8)");
    auto const by_token = node("aten.index.Tensor self=%" + weighted + " indices=[%" + back + "] -> f(8,5)");
    auto const split = node("aten.view.default self=%" + by_token + " size=(4,2,5) -> f(4,2,5)");
    line y;
    if (how.is_summed_with_kept_dimension) {
        y = node("aten.sum.dim_IntList self=%" + split + " dim=(1) keepdim=true -> f(4,1,5)");
        y = node("aten.squeeze.dim self=%" + y + " dim=1 -> f(4,5)");
    } else {
        y = node("aten.sum.dim_IntList self=%" + split + " dim=(1) -> f(4,5)");
    }
    return node("aten.mul.Tensor self=%" + y + " other=%" + y + " -> f(4,5)");
}

std::vector<line> sources_of(written const& how) {
    std::vector<line> sources{"p f(4,4)", "p f(4,2)", how.gated ? "p f(3,6,4)" : "p f(3,3,4)", "p f(3,5,3)",
                              "i i(4,2)"};
    if (how.is_biased) sources.insert(sources.end(), {how.gated ? "p f(3,6)" : "p f(3,3)", "p f(3,5)"});
    return sources;
}

int count_kind(program const& p, std::string_view kind) {
    int count = 0;
    for (operator_id o = 0; o < p.operator_count(); ++o) count += p.kind(o) == kind;
    return count;
}

} // namespace

TEST_CASE("a mixture of experts by sorting is one operator, which computes the same") {
    auto const is_folded = [](written const& how) {
        auto other = how;
        other.is_summed_with_kept_dimension = true; // is not recognised
        auto const folded = program_of([&](exported_graph& g) { return experts(g, how); }, sources_of(how)),
                   plain = program_of([&](exported_graph& g) { return experts(g, other); }, sources_of(how));
        CHECK(count_kind(folded, "routed_experts") == 1);
        CHECK(count_kind(folded, "grouped_mm") == 0);
        CHECK(count_kind(folded, "topk") == 0);
        CHECK(count_kind(plain, "routed_experts") == 0);
        CHECK(count_kind(plain, "grouped_mm") == 2);
        check_same(
            sources_of(how), [&](exported_graph& g) { return experts(g, how); },
            [&](exported_graph& g) { return experts(g, other); });
    };
    for (bool const gated : {false, true})
        for (bool const normalises : {false, true})
            for (char const* function : {"silu", "gelu", "relu"}) {
                CAPTURE(gated);
                CAPTURE(normalises);
                CAPTURE(function);
                is_folded({.gated = gated, .normalises = normalises, .function = function});
            }
    for (bool const gated : {false, true}) is_folded({.gated = gated, .is_biased = true});
    for (bool const biased : {false, true}) is_folded({.is_biased = biased, .is_clamped = true});
}

TEST_CASE("what is no mixture of experts by sorting stays as it is written") {
    for (written const& how : {written{.function = "softplus"}, written{.last_bin = "3"}, written{.order = "unsorted"},
                               written{.divisor = "3"}, written{.is_clamped = true, .least = "-0.4"}}) {
        auto const p = program_of([&](exported_graph& g) { return experts(g, how); }, sources_of(how));
        CHECK(count_kind(p, "routed_experts") == 0);
        CHECK(count_kind(p, "grouped_mm") == 2);
    }
}

TEST_CASE("more tensors than one operator takes are joined in groups") {
    constexpr int count = 300;
    std::vector<line> const sources{"p f(300,4)", "p f(4,300)"};
    auto const of_rows = [&](exported_graph& g, std::string const& kind) {
        line tensors;
        for (int k = 0; k < count; ++k) {
            auto const n = std::to_string(k), next = std::to_string(k + 1);
            tensors +=
                (k == 0 ? "%" : ",%") +
                (kind == "stack"
                     ? g.node("aten.select.int self=%p_x0 dim=0 index=" + n + " -> f(4)")
                     : g.node("aten.slice.Tensor self=%p_x0 dim=0 start=" + n + " end=" + next + " -> f(1,4)"))[0];
        }
        return kind == "stack" ? g.node("aten.stack.default tensors=[" + tensors + "] dim=-1 -> f(4,300)")[0]
                               : g.node("aten.cat.default tensors=[" + tensors + "] -> f(300,4)")[0];
    };
    auto const times = [](exported_graph& g, line const& x) {
        return g.node("aten.mul.Tensor self=%" + x + " other=%p_x1 -> f(4,300)")[0];
    };
    auto const turned = [](exported_graph& g, line const& x) {
        return g.node("aten.transpose.int self=%" + x + " dim0=0 dim1=1 -> f(4,300)")[0];
    };
    check_same(
        sources, [&](auto& g) { return times(g, of_rows(g, "stack")); },
        [&](auto& g) { return times(g, turned(g, "p_x0")); });
    check_same(
        sources, [&](auto& g) { return times(g, turned(g, of_rows(g, "cat"))); },
        [&](auto& g) { return times(g, turned(g, "p_x0")); });
}

TEST_CASE("numbers and tensors are added and subtracted so many times") {
    auto const one_call = [](line const& call) {
        return [call](exported_graph& g) { return g.node(call + " -> f(2,3)")[0]; };
    };
    auto const scaled = [](double factor, double offset) {
        return [=](exported_graph& g) {
            auto const x = g.node("aten.mul.Tensor self=%p_x0 other=" + std::to_string(factor) + " -> f(2,3)")[0];
            return g.node("aten.add.Tensor self=%" + x + " other=" + std::to_string(offset) + " -> f(2,3)")[0];
        };
    };
    std::vector<line> const sources{"p f(2,3)"};
    check_same(sources, one_call("aten.add.Tensor self=0.25 other=%p_x0 alpha=0.75"), scaled(0.75, 0.25));
    check_same(sources, one_call("aten.sub.Tensor self=0.25 other=%p_x0 alpha=2.0"), scaled(-2, 0.25));
    check_same(sources, one_call("aten.add.Scalar self=%p_x0 other=0.5 alpha=2.0"), scaled(1, 1));
    check_same(sources, one_call("aten.sub.Scalar self=%p_x0 other=0.5 alpha=3.0"), scaled(1, -1.5));
}
