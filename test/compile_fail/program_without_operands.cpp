// expect: A program lists what an operator uses: program_access<Program>::operands\(p, o\) is a range of
// heddle::tensor_id
#include <heddle/program/indexed_program.hpp>

#include <string>
#include <vector>

namespace mine {

struct graph {
    std::vector<heddle::tensor_info> tensors;
    std::vector<std::vector<heddle::tensor_id>> reads, writes;
    std::vector<heddle::index_rule> rules;
    std::vector<heddle::operator_work> works;
};

} // namespace mine

template <>
struct heddle::program_access<mine::graph> {
    static std::size_t tensor_count(mine::graph const& g) { return g.tensors.size(); }
    static std::size_t operator_count(mine::graph const& g) { return g.rules.size(); }
    static tensor_info const& tensor(mine::graph const& g, tensor_id t) { return g.tensors[t]; }
    static std::string name(mine::graph const&, operator_id o) { return std::to_string(o); }
#ifdef HEDDLE_TEST_POSITIVE
    static auto const& operands(mine::graph const& g, operator_id o) { return g.reads[o]; }
#else
    static std::size_t operands(mine::graph const& g, operator_id o) { return g.reads[o].size(); }
#endif
    static auto const& results(mine::graph const& g, operator_id o) { return g.writes[o]; }
    static index_rule const& rule(mine::graph const& g, operator_id o) { return g.rules[o]; }
    static operator_work const& work(mine::graph const& g, operator_id o) { return g.works[o]; }
    static tensor_id loss(mine::graph const&) { return 0; }
};

int main() { return heddle::index_program(mine::graph{}).operators.empty() ? 0 : 1; }
