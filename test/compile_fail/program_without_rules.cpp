// expect: A program has a rule for each operator: program_access<Program>::rule\(p, o\) is a heddle::index_rule
#include <heddle/program/concepts.hpp>

#include <string>
#include <vector>

struct graph {
    std::size_t tensor_count() const { return 0; }
    std::size_t operator_count() const { return 0; }
    heddle::tensor_info tensor(heddle::tensor_id) const { return {}; }
    std::string name(heddle::operator_id) const { return {}; }
    std::vector<heddle::tensor_id> operands(heddle::operator_id) const { return {}; }
    std::vector<heddle::tensor_id> results(heddle::operator_id) const { return {}; }
#ifdef HEDDLE_TEST_POSITIVE
    heddle::index_rule rule(heddle::operator_id) const { return {}; }
#else
    char const* rule(heddle::operator_id) const { return "(b) -> (b)"; } // a text is parsed first
#endif
    heddle::operator_work work(heddle::operator_id) const { return {}; }
    heddle::tensor_id loss() const { return 0; }
};

static_assert(heddle::require_single_device_program<graph>());

int main() {}
