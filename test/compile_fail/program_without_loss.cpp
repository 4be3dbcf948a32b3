// expect: A program has a loss: program_access<Program>::loss\(p\) is a heddle::tensor_id
#include <heddle/planner/joint.hpp>
#include <heddle/program/program.hpp>

/// Heddle's own program, but for the loss.
struct inference {
    heddle::program inner;
    std::size_t tensor_count() const { return inner.tensor_count(); }
    std::size_t operator_count() const { return inner.operator_count(); }
    heddle::tensor_info const& tensor(heddle::tensor_id t) const { return inner.tensor(t); }
    std::string const& name(heddle::operator_id o) const { return inner.name(o); }
    auto operands(heddle::operator_id o) const { return inner.operands(o); }
    auto results(heddle::operator_id o) const { return inner.results(o); }
    heddle::index_rule const& rule(heddle::operator_id o) const { return inner.rule(o); }
    heddle::operator_work const& work(heddle::operator_id o) const { return inner.work(o); }
#ifdef HEDDLE_TEST_POSITIVE
    heddle::tensor_id loss() const { return inner.loss(); }
#endif
};

struct solver {
    heddle::ratio_solution solve(heddle::ratio_problem const& p) {
        return {true, p.preferred, p.objective(p.preferred)};
    }
};

int main() { return heddle::find_plan(inference{}, heddle::cluster{}, solver{}).exists() ? 0 : 1; }
