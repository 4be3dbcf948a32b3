// expect: single_device_program
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

struct list_of_operators {};

int main() {
#ifdef HEDDLE_TEST_POSITIVE
    heddle::program_builder builder;
    auto const w = builder.parameter("w", {2});
    auto const program = builder.finish(builder.apply("sum", "(n) -> (); 0", {w}));
#else
    list_of_operators const program;
#endif
    return heddle::index_program(program).operators.size() == 1 ? 0 : 1;
}
