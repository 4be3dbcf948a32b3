// SPDX-License-Identifier: BSL-1.0
#include "../../json/test/mutations.hpp"
#include "graphs.hpp"

#include <heddle/program/indexed_program.hpp>
#include <heddle/pt2/all.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace heddle;

namespace {

/// Graphs called in place, in-place changes, views, complex numbers and several results.
test::exported_graph varied_graph() {
    auto g = test::small_network();
    auto const x = g.parameter("f(2,3,4)", "x");
    test::exported_graph inner;
    inner.declare(x, "f(2,3,4)");
    auto const turned = inner.node("aten.transpose.int self=%" + x + " dim0=-2 dim1=2 -> f(2,4,3)")[0];
    auto y = g.graph_call("wrap_with_set_grad_enabled", inner.inner({x}, {turned}),
                          std::vector{nlohmann::json{{"as_bool", false}}}, {x}, "f(2,4,3)")[0];
    auto const parts = g.node("aten.split.Tensor self=%" + y + " split_size=2 dim=1 -> [f(2,2,3),f(2,2,3)]");
    g.node("aten.mul_.Tensor self=%" + parts[1] + " other=%" + parts[0] + " -> f(2,2,3)");
    auto const c = g.node("aten.view_as_complex.default self=f(2,3,2) -> c(2,3)")[0];
    g.node("aten.index_put_.default self=i(6) indices=[i(6)] values=i(6) -> i(6)");
    g.node("aten.abs.default self=%" + c + " -> f(2,3)");
    g.output(g.node("aten.sum.default self=%" + y + " -> f()")[0]);
    return g;
}

} // namespace

TEST_CASE("mutated graphs read or are refused, and those that read can be indexed") {
    auto const read = [](std::string const& text) {
        static_cast<void>(index_program(pt2::parse_model(text, "fuzzed").program));
    };
    test::check_mutations(1, 1500, test::small_network().text(), true, read);
    test::check_mutations(2, 1500, varied_graph().text(), true, read);
    for (bool const compressed : {false, true})
        test::check_mutations(
            3, 700,
            test::archive_of({{"m/data/weights/weight_0", "w"}, {"m/models/model.json", test::small_network().text()}},
                             compressed),
            false, read);
}
