// SPDX-License-Identifier: BSL-1.0
// The operator graph of random programs: Boost.Graph finds in it what the library finds without it.
#include "support/random_programs.hpp"

#include <heddle/program/indexed_program.hpp>
#include <heddle/program/operator_graph.hpp>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

using namespace heddle;

namespace {

template <class Graph>
void reach(Graph const& g, std::size_t from, std::vector<boost::default_color_type>& colors) {
    auto const map = make_iterator_property_map(colors.begin(), get(boost::vertex_index, g));
    if (colors[from] == boost::white_color)
        boost::breadth_first_visit(g, from, boost::visitor(boost::default_bfs_visitor()).color_map(map));
}

bool uses_trained(program const& p, operator_id o) {
    return std::ranges::any_of(p.operands(o), [&](tensor_id t) { return p.tensor(t).trainable; });
}

} // namespace

TEST_CASE("a program's order is one of its graph, and the loss comes last") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.most_operators = 12});
        auto const g = make_operator_graph(p);
        REQUIRE(num_vertices(g) == p.operator_count());
        for (auto [e, end] = edges(g); e != end; ++e) CHECK(source(*e, g) < target(*e, g));
        std::vector<std::size_t> order;
        topological_sort(g, std::back_inserter(order));
        CHECK(order.front() == p.operator_count() - 1);
        CHECK(out_degree(p.operator_count() - 1, g) == 0);
    }
}

TEST_CASE("an operator has a backward pass if a trained parameter reaches it, and it the loss") {
    int without = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.most_operators = 12});
        auto const indexed = index_program(p);
        auto const g = make_operator_graph(p);
        std::vector<boost::default_color_type> depends(num_vertices(g)), is_needed(num_vertices(g));
        for (operator_id o = 0; o < p.operator_count(); ++o)
            if (uses_trained(p, o)) reach(g, o, depends);
        reach(boost::make_reverse_graph(g), p.operator_count() - 1, is_needed);
        for (operator_id o = 0; o < p.operator_count(); ++o) {
            CAPTURE(o);
            bool const reached = depends[o] != boost::white_color && is_needed[o] != boost::white_color;
            bool const differentiated =
                std::ranges::any_of(p.results(o), [&](tensor_id t) { return indexed.tensors[t].has_cotangent; });
            CHECK(differentiated == reached);
            without += !reached;
        }
    }
    CHECK(without > 0);
}
