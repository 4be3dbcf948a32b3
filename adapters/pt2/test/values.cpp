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
