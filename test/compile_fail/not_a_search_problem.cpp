// expect: problem
#include <heddle/search/best_first.hpp>

struct countdown {
    using state = int;
    using label = double;
    using action = int;
    std::pair<state, label> initial() const { return {3, 0.0}; }
    bool is_goal(state s) const { return s == 0; }
    double total(label l) const { return l; }
    bool dominates(label a, label b) const { return a <= b; }
#ifdef HEDDLE_TEST_POSITIVE
    double bound(state, label l) const { return l; }
#endif
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        visit(s, s - 1, l + 1);
    }
};

int main() { return heddle::search::best_first(countdown{}).cost == 3.0 ? 0 : 1; }
