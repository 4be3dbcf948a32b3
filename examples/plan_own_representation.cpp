// SPDX-License-Identifier: BSL-1.0
// Plans a program in a representation of one's own, a structure of arrays. It is planned in place: nothing is copied or
// converted.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/axioms.hpp>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace mine {

enum class opcode { matmul, relu, sum };

/// The columns of tensors and the columns of operators; operands and results lie in one list, operator after operator.
struct graph {
    std::vector<std::string> tensor_names;
    std::vector<long> rows, columns; // 0 columns: a vector of `rows`; 0 rows as well: a scalar
    std::vector<bool> is_parameter, is_computed;

    std::vector<opcode> opcodes;
    std::vector<std::uint32_t> edges, first_operand{0}, first_result; // results follow the operands
    std::vector<heddle::index_rule> rules;
    std::vector<heddle::operator_work> works;

    std::uint32_t add_tensor(std::string name, long r, long c, bool parameter, bool computed = false) {
        tensor_names.push_back(std::move(name));
        rows.push_back(r);
        columns.push_back(c);
        is_parameter.push_back(parameter);
        is_computed.push_back(computed);
        return static_cast<std::uint32_t>(rows.size() - 1);
    }

    std::uint32_t add(opcode code, std::vector<std::uint32_t> const& operands) {
        bool const sum = code == opcode::sum;
        auto const result = add_tensor("t" + std::to_string(rows.size()), sum ? 0 : rows[operands[0]],
                                       sum ? 0 : columns[operands.back()], false, true);
        opcodes.push_back(code);
        edges.insert(edges.end(), operands.begin(), operands.end());
        first_result.push_back(static_cast<std::uint32_t>(edges.size()));
        edges.push_back(result);
        first_operand.push_back(static_cast<std::uint32_t>(edges.size()));
        describe(operands);
        return result;
    }

private:
    /// Adds what Heddle needs to know of an operator beside its tensors: the rule, and the work.
    void describe(std::vector<std::uint32_t> const& operands) {
        static char const* const texts[] = {"(m k), (k n) -> (m n); 0*1", "(m n) -> (m n)", "(m n) -> (); 0"};
        auto const code = opcodes.back();
        auto& rule = rules.emplace_back(heddle::parse_index_rule(texts[static_cast<int>(code)]));
        std::vector<heddle::tensor_shape> shapes;
        double elements = 1;
        for (auto t : operands) shapes.push_back({rows[t], columns[t]});
        heddle::bind_extents(rule, shapes);
        for (auto const& index : rule.indices) elements *= static_cast<double>(index.extent);
        auto& work = works.emplace_back();
        bool const matmul = code == opcode::matmul;
        work.forward = heddle::flops(matmul ? 2 * elements : elements);
        work.backward = matmul ? 2 * work.forward : work.forward;
        work.category = matmul ? heddle::operator_class::matmul : heddle::operator_class::elementwise;
        if (matmul) work.saved_operands = {0, 1};
        if (code == opcode::relu) work.saved_results = {0};
    }
};

} // namespace mine

/// Tells how Heddle reads it.
template <>
struct heddle::program_access<mine::graph> {
    using graph = mine::graph;
    static std::size_t tensor_count(graph const& g) { return g.rows.size(); }
    static std::size_t operator_count(graph const& g) { return g.opcodes.size(); }
    static tensor_info tensor(graph const& g, tensor_id t) {
        heddle::tensor_shape dims;
        for (long extent : {g.rows[t], g.columns[t]})
            if (extent > 0) dims.push_back(extent);
        auto const role = g.is_computed[t]    ? tensor_role::value
                          : g.is_parameter[t] ? tensor_role::parameter
                                              : tensor_role::input;
        return {g.tensor_names[t], dims, element_type::float32, role, g.is_parameter[t]};
    }
    static std::string name(graph const& g, operator_id o) {
        static char const* const names[] = {"matmul", "relu", "sum"};
        return names[static_cast<int>(g.opcodes[o])] + std::to_string(o);
    }
    static std::span<tensor_id const> operands(graph const& g, operator_id o) {
        return slice(g, g.first_operand[o], g.first_result[o]);
    }
    static std::span<tensor_id const> results(graph const& g, operator_id o) {
        return slice(g, g.first_result[o], g.first_operand[o + 1]);
    }
    static index_rule const& rule(graph const& g, operator_id o) { return g.rules[o]; }
    static operator_work const& work(graph const& g, operator_id o) { return g.works[o]; }
    static tensor_id loss(graph const& g) { return g.edges.back(); }

private:
    static std::span<tensor_id const> slice(graph const& g, std::size_t begin, std::size_t end) {
        return std::span(g.edges).subspan(begin, end - begin);
    }
};
static_assert(heddle::require_single_device_program<mine::graph>());

int main() {
    using mine::opcode;
    mine::graph g;
    auto const x = g.add_tensor("x", 2048, 1024, false), w1 = g.add_tensor("w1", 1024, 4096, true),
               w2 = g.add_tensor("w2", 4096, 1024, true);
    g.add(opcode::sum, {g.add(opcode::matmul, {g.add(opcode::relu, {g.add(opcode::matmul, {x, w1})}), w2})});

    auto const broken = heddle::broken_axioms(g);
    for (auto const& sentence : broken) std::printf("%s\n", sentence.c_str());
    std::printf("%zu axioms broken\n", broken.size());

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
    auto const p = heddle::plan_hap(g, c, heddle::clp::ratio_solver{});
    std::printf("%s: %.2f ms per iteration\n", name(p.status), p.cost() * 1e3);
    for (auto const& cut : p.cuts)
        std::printf("  %s is cut %lld : %lld\n", p.tensors[cut.members[0].tensor].name.c_str(),
                    static_cast<long long>(cut.counts[0]), static_cast<long long>(cut.counts[1]));
    std::printf("verified: %s\n", heddle::verify(g, p) ? "yes" : "no");
}
