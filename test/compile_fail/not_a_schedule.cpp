// expect: pipeline_schedule
#include <heddle/pipeline/layer_assignment.hpp>

struct one_at_a_time {
    static constexpr bool counts_tail = false;
    std::size_t stages_per_device() const { return 1; }
    bool can_run(heddle::pipeline_shape) const { return true; }
    std::int64_t in_flight(std::size_t, heddle::pipeline_shape) const { return 1; }
#ifdef HEDDLE_TEST_POSITIVE
    std::int64_t bottleneck_weight(heddle::pipeline_shape) const { return 0; }
#else
    double bottleneck_weight(heddle::pipeline_shape) const { return 0.5; }
#endif
};

int main() {
    return heddle::assign_layers(heddle::layer_assignment_problem{}, {}, one_at_a_time{}).cuts.empty() ? 0 : 1;
}
