// expect: on_expand takes a progress const& and returns bool
#include <heddle/search/best_first.hpp>

struct countdown {
    using state = int;
    using label = double;
    using action = int;
    std::pair<state, label> initial() const { return {3, 0.0}; }
    bool is_goal(state s) const { return s == 0; }
    double total(label l) const { return l; }
    double bound(state, label l) const { return l; }
    bool dominates(label a, label b) const { return a <= b; }
    template <class Visit>
    void for_each_successor(state s, label l, Visit&& visit) const {
        visit(s, s - 1, l + 1);
    }
};

struct watcher {
    void on_solution(heddle::search::progress const&) {}
#ifdef HEDDLE_TEST_POSITIVE
    bool on_expand(heddle::search::progress const&) { return true; }
#else
    bool on_expand(int) { return true; }
#endif
};

int main() { return heddle::search::best_first(countdown{}, {}, watcher{}).cost == 3.0 ? 0 : 1; }
