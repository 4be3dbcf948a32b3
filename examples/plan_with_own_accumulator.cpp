// SPDX-License-Identifier: BSL-1.0
// Times programs in a way of one's own: wherever devices meet, they wait for the one that is late.
#include <heddle/clp/all.hpp>
#include <heddle/cost/accumulator_axioms.hpp>
#include <heddle/heddle.hpp>
#include <heddle/planner/hap_by_accumulator.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

/// Is like `serial`, but a collective of the forward or the backward pass begins later by a constant. It takes longer
/// than `serial` says, so a bound of `serial` is a bound of this, and what dominates there dominates here.
class skewed {
public:
    static constexpr char const* name = "skewed";
    static constexpr auto relaxation = heddle::relaxation_kind::clocks;
    using label = heddle::serial::label;

    skewed(std::size_t class_count, heddle::training_options const& training) : in_step_(class_count, training) {}

    label initial() const { return in_step_.initial(); }
    void extend(label& l, heddle::step_cost s) const {
        constexpr double late = 0.002;
        if (s.forward_transfer > 0) s.forward_transfer += late;
        if (s.backward_transfer > 0) s.backward_transfer += late;
        in_step_.extend(l, s);
    }
    double total(label const& l) const { return in_step_.total(l); }
    bool dominates(label const& a, label const& b) const { return in_step_.dominates(a, b); }
    double most_later(label const& a, label const& b) const { return in_step_.most_later(a, b); }
    label joined(label const& a, label const& b, heddle::relaxation_weights const& w) const {
        return in_step_.joined(a, b, w);
    }
    double relaxed(label const& l, heddle::relaxation_weights const& w, std::size_t level) const {
        return in_step_.relaxed(l, w, level);
    }

private:
    heddle::serial in_step_;
};

int main() {
    using namespace heddle;

    for (auto const& sentence : broken_axioms<skewed>()) std::printf("broken: %s\n", sentence.c_str());

    program_builder b;
    auto y = b.input("x", {4096, 1024});
    char const* const linear = "(b k), (n k) -> (b n); 0*1";
    for (int layer = 0; layer < 4; ++layer) {
        auto const w = b.parameter("w" + std::to_string(layer),
                                   layer % 2 == 0 ? tensor_shape{4096, 1024} : tensor_shape{1024, 4096});
        y = b.apply("linear", linear, {y, w}, {.category = operator_class::matmul});
        y = b.apply("relu", "(b n) -> (b n)", {y}, {.saved_results = {0}});
    }
    program const model = b.finish(b.apply("sum", "(b n) -> (); 0", {y}));

    cluster c;
    c.types = {{"gpu",
                bytes(16e9),
                bytes_per_second(800e9),
                seconds(5e-6),
                {{element_type::float32, {flops_per_second(12e12)}}}}};
    c.machines = {{.type = 0}, {.type = 0}};
    c.inter = network_link{bytes_per_second(6e9), seconds(2e-5)};

    clp::ratio_solver const solver;
    plan const in_step = plan_hap(model, c, solver);
    plan const own = plan_hap<skewed>(model, c, solver);
    auto const collectives = [](plan const& p) {
        std::size_t count = 0;
        for (auto const& s : p.steps) count += s.step.forward_transfers.size() + s.step.backward_transfers.size();
        return count;
    };
    std::printf("in step: %.2f ms, devices meet %zu times; skewed, that is %.2f ms\n", in_step.cost() * 1e3,
                collectives(in_step), evaluate<skewed>(in_step, c).time.total() * 1e3);
    std::printf("planned for that: %.2f ms, at least %.2f ms, %s; devices meet %zu times\n", own.cost() * 1e3,
                own.lower_bound * 1e3, name(own.status), collectives(own));
    std::printf("verified: %s\n", verify(model, own) && verify_figures(own, c) ? "yes" : "no");
}
