// expect: Heddle reports bad input by exceptions
// flags: -fno-exceptions
#include <heddle/search/best_first.hpp>

int main() {}
