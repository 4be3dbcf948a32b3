// expect: ratio_solver
#include <heddle/planner/joint.hpp>
#include <heddle/program/program.hpp>

struct solver {
#ifdef HEDDLE_TEST_POSITIVE
    heddle::ratio_solution solve(heddle::ratio_problem const& p) {
        return {true, p.preferred, p.objective(p.preferred)};
    }
#else
    double solve(heddle::ratio_problem const& p) { return p.objective(p.preferred); }
#endif
};

int main() {
    heddle::program_builder builder;
    auto const w = builder.parameter("w", {2});
    auto const program = builder.finish(builder.apply("sum", "(n) -> (); 0", {w}));
    return heddle::find_plan(program, heddle::cluster{}, solver{}).exists() ? 0 : 1;
}
