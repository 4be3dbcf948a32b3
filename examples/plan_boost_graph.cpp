// SPDX-License-Identifier: BSL-1.0
// Plans a program that is a Boost.Graph adjacency_list with bundled properties, where it is: a vertex is an operator or
// a source, and an edge is the use of a vertex's tensor.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/axioms.hpp>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <ranges>
#include <string>
#include <vector>

namespace mine {

/// A vertex has the tensor that it yields and, unless it is a source, how.
struct node {
    heddle::tensor_info tensor;
    heddle::index_rule rule{};
    heddle::operator_work work{};
};
/// An edge says which operand of its target it is.
struct use {
    int operand = 0;
};

using graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, node, use>;
using vertex = boost::graph_traits<graph>::vertex_descriptor;

vertex add_source(graph& g, std::string name, heddle::tensor_shape dims, heddle::tensor_role role) {
    return add_vertex({{std::move(name), std::move(dims), heddle::element_type::float32, role,
                        role == heddle::tensor_role::parameter}},
                      g);
}

vertex add_operator(graph& g, std::string name, char const* rule, std::vector<vertex> const& operands) {
    node n{{std::move(name), {}}, heddle::parse_index_rule(rule)};
    std::vector<heddle::tensor_shape> shapes;
    for (auto v : operands) shapes.push_back(g[v].tensor.shape);
    n.tensor.shape = heddle::bind_extents(n.rule, shapes).front();
    double points = operands.size() > 1 ? 2 : 1; // a product multiplies and adds
    for (auto const& index : n.rule.indices) points *= static_cast<double>(index.extent);
    n.work.forward = heddle::flops(points);
    n.work.backward = static_cast<double>(operands.size()) * n.work.forward;
    n.work.category = operands.size() > 1 ? heddle::operator_class::matmul : heddle::operator_class::elementwise;
    if (operands.size() > 1) n.work.saved_operands = {0, 1};
    auto const v = add_vertex(n, g);
    for (int k = 0; auto operand : operands) add_edge(operand, v, {k++}, g);
    return v;
}

/// Holds the graph and the order of its operators, which an adjacency_list does not keep.
class ordered_graph {
public:
    explicit ordered_graph(graph const& g) : graph_(&g) {
        std::vector<vertex> order;
        topological_sort(g, std::back_inserter(order));
        for (auto v : order | std::views::reverse)
            if (g[v].tensor.role == heddle::tensor_role::value) operators_.push_back(v);
    }

    // These are the members for which Heddle asks.
    std::size_t tensor_count() const { return num_vertices(*graph_); }
    std::size_t operator_count() const { return operators_.size(); }
    heddle::tensor_info const& tensor(heddle::tensor_id t) const { return (*graph_)[t].tensor; }
    std::string const& name(heddle::operator_id o) const { return (*graph_)[operators_[o]].tensor.name; }
    std::vector<heddle::tensor_id> operands(heddle::operator_id o) const {
        std::vector<heddle::tensor_id> tensors(in_degree(operators_[o], *graph_));
        for (auto [e, end] = in_edges(operators_[o], *graph_); e != end; ++e)
            tensors[static_cast<std::size_t>((*graph_)[*e].operand)] =
                static_cast<heddle::tensor_id>(source(*e, *graph_));
        return tensors;
    }
    auto results(heddle::operator_id o) const {
        return std::views::single(static_cast<heddle::tensor_id>(operators_[o]));
    }
    heddle::index_rule const& rule(heddle::operator_id o) const { return (*graph_)[operators_[o]].rule; }
    heddle::operator_work const& work(heddle::operator_id o) const { return (*graph_)[operators_[o]].work; }
    heddle::tensor_id loss() const { return static_cast<heddle::tensor_id>(operators_.back()); }

private:
    graph const* graph_;
    std::vector<vertex> operators_;
};
static_assert(heddle::require_single_device_program<ordered_graph>());

} // namespace mine

int main() {
    using heddle::tensor_role;
    mine::graph g;
    auto const x = add_source(g, "x", {2048, 1024}, tensor_role::input);
    auto const w1 = add_source(g, "w1", {1024, 4096}, tensor_role::parameter),
               w2 = add_source(g, "w2", {4096, 1024}, tensor_role::parameter);
    auto const h = add_operator(g, "up", "(m k), (k n) -> (m n); 0*1", {x, w1});
    auto const y = add_operator(g, "down", "(m k), (k n) -> (m n); 0*1", {h, w2});
    add_operator(g, "sum", "(m n) -> (); 0", {y});

    mine::ordered_graph const p(g);
    for (auto const& sentence : heddle::broken_axioms(p)) std::printf("%s\n", sentence.c_str());

    heddle::cluster c;
    c.types = {{"fast",
                heddle::bytes(16e9),
                heddle::bytes_per_second(800e9),
                heddle::seconds(5e-6),
                {{heddle::element_type::float32, {heddle::flops_per_second(12e12)}}}},
               {"slow",
                heddle::bytes(16e9),
                heddle::bytes_per_second(400e9),
                heddle::seconds(5e-6),
                {{heddle::element_type::float32, {heddle::flops_per_second(4e12)}}}}};
    c.machines = {{.type = 0}, {.type = 1}};
    c.inter = heddle::network_link{heddle::bytes_per_second(3e9), heddle::seconds(2e-5)};
    auto const plan = heddle::plan_hap(p, c, heddle::clp::ratio_solver{});
    std::printf("%s: %.2f ms per iteration\n", name(plan.status), plan.cost() * 1e3);
    for (auto const& cut : plan.cuts)
        std::printf("  %s is cut %lld : %lld\n", plan.tensors[cut.members[0].tensor].name.c_str(),
                    static_cast<long long>(cut.counts[0]), static_cast<long long>(cut.counts[1]));
    std::printf("verified: %s\n", heddle::verify(p, plan) ? "yes" : "no");
}
