// expect: annealing_problem
#include <heddle/search/anneal.hpp>

struct dial {
    using state = int;
    state initial() const { return 0; }
    double cost(state s) const { return s; }
#ifdef HEDDLE_TEST_POSITIVE
    state neighbour(state, heddle::search::random_stream& random) const { return random.below(2) ? 1 : 0; }
#else
    state neighbour(state) const { return 1; }
#endif
};

int main() { return heddle::search::anneal(dial{}).cost ? 0 : 1; }
