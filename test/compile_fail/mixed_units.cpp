// expect: no match for .operator\+.|invalid operands to binary expression
#include <heddle/base/quantity.hpp>

int main() {
    heddle::seconds const time(1);
#ifdef HEDDLE_TEST_POSITIVE
    heddle::seconds const other(2);
#else
    heddle::bytes const other(2);
#endif
    return (time + other).value > 0 ? 0 : 1;
}
