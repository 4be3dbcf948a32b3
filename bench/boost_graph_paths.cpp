// SPDX-License-Identifier: BSL-1.0
// Runs Boost.Graph's search for shortest paths with resource constraints beside ours, on perceptrons of a number of
// layers. Both have the same graph of programs, the same labels, the same dominance and memory limits, and so the same
// least time. Ours has a bound, for which Boost's has no place.
#include <heddle/all.hpp>

#include <benchmark/benchmark.h>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/r_c_shortest_paths.hpp>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace heddle;

program perceptron(std::size_t layers) {
    program_builder b;
    auto y = b.input("x", {512, 1024});
    for (std::size_t n = 0; n < layers; ++n) {
        auto const w = b.parameter("w" + std::to_string(n), {1024, 1024});
        y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {y, w}, {.category = operator_class::matmul});
        y = b.apply("relu", "(b n) -> (b n)", {y}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
}

cluster two_types() {
    cluster c;
    for (double speed : {12e12, 4e12})
        c.types.push_back({speed > 5e12 ? "fast" : "slow",
                           bytes(16e9),
                           bytes_per_second(speed / 15),
                           seconds(5e-6),
                           {{element_type::float32, {flops_per_second(speed)}}}});
    c.machines = {{.type = 0}, {.type = 1}};
    c.inter = network_link{bytes_per_second(6e9), seconds(2e-5)};
    return c;
}

/// The graph of a perceptron's programs, and its prices.
struct setting {
    indexed_program program;
    cluster devices = two_types();
    cut_space space;
    cut_graph graph;
    std::vector<step_work> steps;
    cost_model model;
    std::optional<priced_graph> priced;

    explicit setting(std::size_t layers)
        : program(index_program(perceptron(layers))), space(program, operator_kinds(program), 1),
          model(devices, device_types(devices).classes, element_type::float32) {
        graph = search::explore(space);
        for (auto const& i : space.instructions()) steps.push_back(make_step(program, i, {}));
        priced.emplace(space, graph, steps, model, uniform_shares(share_vector{0.75, 0.25}));
    }
};

/// Has the same times without relaxations: a label is bounded by the time of its own moves.
struct unbounded : serial {
    using serial::serial;
    static constexpr auto relaxation = relaxation_kind::none;
};

struct vertex {
    std::size_t num = 0;
};
struct edge {
    std::size_t num = 0;
    std::optional<std::size_t> level;
    cut_space::action action = 0;
};
using boost_graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, vertex, edge>;

/// Makes the graph with one more vertex, to which the states of the last level lead.
boost_graph graph_of(setting const& s) {
    boost_graph g;
    for (std::size_t node = 0; node <= s.graph.node_count(); ++node) boost::add_vertex(vertex{node}, g);
    std::size_t count = 0;
    for (std::size_t node = 0; node < s.graph.node_count(); ++node) {
        if (s.graph.is_last(node)) boost::add_edge(node, s.graph.node_count(), edge{count++, {}, {}}, g);
        for (auto const& out : s.graph.out(node))
            boost::add_edge(node, out.to, edge{count++, s.graph.level_of(node), out.action}, g);
    }
    return g;
}

struct resources {
    cost_label<serial> label;
    double total = 0;
    friend bool operator<(resources const& a, resources const& b) { return a.total < b.total; }
};

/// Adds an edge; returns false if memory does not suffice.
struct extension {
    program_clock<serial> const* clock;
    priced_graph const* priced;
    bool operator()(boost_graph const& g, resources& next, resources const& before,
                    boost_graph::edge_descriptor const& e) const {
        next = before;
        if (g[e].level) clock->extend(next.label, *g[e].level, g[e].action);
        next.total = clock->time().total(next.label.time);
        for (std::size_t k = 0; k < next.label.memory.size(); ++k)
            if (next.label.memory[k] + next.label.buffer > priced->model().memory_limit(k)) return false;
        return true;
    }
};

struct domination {
    priced_graph_problem<serial> const* problem;
    bool operator()(resources const& a, resources const& b) const { return problem->dominates(a.label, b.label); }
};

double by_boost(setting const& s, boost_graph const& g) {
    program_clock<serial> const clock(*s.priced);
    priced_graph_problem<serial> const problem(*s.priced, {}, true);
    std::vector<boost_graph::edge_descriptor> path;
    resources found;
    boost::r_c_shortest_paths(g, boost::get(&vertex::num, g), boost::get(&edge::num, g), boost::vertex(0, g),
                              boost::vertex(boost::num_vertices(g) - 1, g), path, found, resources{clock.start(), 0},
                              extension{&clock, &*s.priced}, domination{&problem},
                              std::allocator<boost::r_c_shortest_paths_label<boost_graph, resources>>(),
                              boost::default_r_c_shortest_paths_visitor());
    return found.total;
}

template <time_accumulator Accumulator>
auto by_heddle(setting const& s) {
    std::vector<relaxation> relaxations;
    if constexpr (Accumulator::relaxation != relaxation_kind::none)
        relaxations = improve_bounds<Accumulator>(*s.priced, 20).tightest;
    return search::best_first(priced_graph_problem<Accumulator>(*s.priced, relaxations, true));
}

void require_equal(double a, double b) {
    if (std::abs(a - b) > 1e-12 * b) throw std::logic_error("the searches disagree");
}

void boost_search(benchmark::State& state) {
    setting const s(static_cast<std::size_t>(state.range(0)));
    auto const g = graph_of(s);
    for (auto _ : state) benchmark::DoNotOptimize(by_boost(s, g));
    state.counters["edges"] = static_cast<double>(boost::num_edges(g));
}

template <time_accumulator Accumulator>
void heddle_search(benchmark::State& state) {
    setting const s(static_cast<std::size_t>(state.range(0)));
    auto const found = by_heddle<Accumulator>(s);
    require_equal(*found.cost, by_boost(s, graph_of(s)));
    for (auto _ : state) benchmark::DoNotOptimize(by_heddle<Accumulator>(s));
    state.counters["labels"] = static_cast<double>(found.statistics.expanded);
}

BENCHMARK(boost_search)->RangeMultiplier(2)->Range(1, 32)->Unit(benchmark::kMillisecond);
BENCHMARK(heddle_search<unbounded>)->RangeMultiplier(2)->Range(1, 32)->Unit(benchmark::kMillisecond);
BENCHMARK(heddle_search<serial>)->RangeMultiplier(2)->Range(1, 32)->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
