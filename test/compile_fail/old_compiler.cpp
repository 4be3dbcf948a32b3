// expect: Heddle needs (clang 16|g[+][+] 12) or newer
// flags: -U__GNUC__ -D__GNUC__=11 -U__clang_major__ -D__clang_major__=14
#include <heddle/search/best_first.hpp>

int main() {}
