// expect: Heddle needs C[+][+]20
// flags: -std=c++17
#include <heddle/search/best_first.hpp>

int main() {}
