// SPDX-License-Identifier: BSL-1.0
// The one planner for all against every plan of small programs: stages of any layers on any devices in any order, any
// micro-batches, every program of each stage at shares in eighths; and how its plans change with the problem.
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/theory/rescale.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Two or three linear operators one behind the other, of sizes in eights, with activations behind them.
program random_chain(random_source& random) {
    program_builder b;
    extent columns = 8 * random.between(1, 2);
    auto x = b.input("x", {8, columns});
    operator_options relu{.category = operator_class::elementwise};
    relu.saved_results = {0};
    bool const is_active = random.chance(0.5);
    for (int n = 0, layers = random.chance(0.2) ? 3 : 2; n < layers; ++n) {
        extent const rows = random.chance(0.7) ? columns : 8 * random.between(1, 3);
        auto const w = b.parameter("layers." + std::to_string(n) + ".weight", {rows, columns});
        x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        if (is_active) x = b.apply("relu", "(b n) -> (b n)", {x}, relu);
        columns = rows;
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {x}, {.category = operator_class::reduction}));
}

/// Two devices, or three now and then, on one machine or several; some collectives may be measured.
cluster random_devices(random_source& random) {
    std::size_t const count = random.chance(0.15) ? 3 : 2;
    auto c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
    while (c.devices().size() != count) c = test::random_cluster(random, {.most_types = 2, .most_devices = 3});
    measure_lines(random, c);
    return c;
}

struct drawn_case {
    random_source random;
    program p = random_chain(random);
    cluster c = random_devices(random);

    explicit drawn_case(std::uint64_t seed) : random(seed) {}
    [[nodiscard]] std::string description() const { return test::describe(p) + test::describe(c); }
};

joint_options options_of_exhaustion() {
    joint_options options;
    options.stage.training.bucket = bytes(0);
    return options;
}

/// Every plan of whole layers with each stage at one of its devices' shares in eighths.
class exhaustion {
public:
    exhaustion(program const& p, cluster const& c, joint_options const& options)
        : program_(p), indexed_(index_program(p)), cluster_(c), options_(options), layers_(repeated_layers(indexed_)) {}

    /// Returns the cost of the cheapest plan that costs less than this.
    double cheapest_below(double limit) {
        best_ = limit;
        for (micro_batches_ = 1; micro_batches_ <= 8; micro_batches_ *= 2) {
            micro_ = micro_batches_ == 1 ? program_ : with_batch_size(program_, 8 / micro_batches_);
            micro_indexed_ = index_program(micro_);
            known_.clear();
            parts_.clear();
            stages_.clear();
            extend(0, 0);
        }
        return best_;
    }
    [[nodiscard]] staged_plan const& found() const { return found_; }

private:
    struct part {
        part(program_part made, training_options const& training)
            : given(std::move(made)), indexed(index_program(given.program)), space(indexed) {
            graph = search::explore(space);
            for (auto const& i : space.instructions()) steps.push_back(make_step(indexed, i, training));
        }
        program_part given;
        indexed_program indexed;
        cut_space space;
        cut_graph graph;
        std::vector<step_work> steps;
    };
    struct candidate {
        heddle::plan plan;
        double passes, end;
    };
    struct stage {
        std::size_t first, end, devices; // a set of devices in bits
    };
    using stage_key = std::tuple<std::size_t, std::size_t, std::size_t>;

    void extend(std::size_t first, std::size_t used) {
        if (first == layers_.size()) return price();
        for (std::size_t end = first + 1; end <= layers_.size(); ++end)
            for (std::size_t on = 1; on < std::size_t{1} << cluster_.devices().size(); ++on) {
                if (on & used) continue;
                stages_.push_back({first, end, on});
                extend(end, used | on);
                stages_.pop_back();
            }
    }

    static std::vector<std::size_t> devices_of(std::size_t set) {
        std::vector<std::size_t> devices;
        for (std::size_t d = 0; set >> d; ++d)
            if (set >> d & 1) devices.push_back(d);
        return devices;
    }
    static double end_of(plan const& p) {
        return p.time.gradient_communication + p.time.update + p.time.parameter_communication;
    }
    /// The forms and parts in which values enter and leave.
    static std::string ends_of(plan const& p) {
        std::string text;
        for (auto const& s : p.steps)
            if (auto const* const read = s.instruction.as<instruction::read>();
                read && p.tensors[read->tensor].role != tensor_role::parameter)
                text += std::to_string(read->tensor) + to_string(read->to) + ' ';
        for (auto const& cut : p.cuts)
            for (auto const n : cut.counts) text += std::to_string(n) + ',';
        return text;
    }

    /// Adds all programs of a part at some shares that are not worse than others.
    void add_programs(part& what, cluster const& on, share_vector const& ratios, training_options const& training,
                      std::map<std::string, std::vector<candidate>>& into) {
        auto const model = per_device_model(on, element_type::float32, training.reduction());
        priced_graph const prices(what.space, what.graph, what.steps, model, integral_shares(what.indexed, ratios));
        serial const clock(model.class_count());
        struct program {
            move_list path;
            double passes, end;
        };
        auto const add = [](auto& others, auto made) {
            auto const is_no_worse = [](auto const& a, auto const& b) {
                return a.passes <= b.passes && a.end <= b.end;
            };
            if (std::ranges::any_of(others, [&](auto const& o) { return is_no_worse(o, made); })) return;
            std::erase_if(others, [&](auto const& o) { return is_no_worse(made, o); });
            others.push_back(std::move(made));
        };
        std::map<std::string, std::vector<program>> found; // by the forms in which values enter and leave
        move_list path;
        auto const walk = [&](auto const& self, std::size_t node, serial::label const& label,
                              std::string const& ends) -> void {
            if (static_cast<double>(micro_batches_) * clock.total(label) >= best_) return;
            if (what.graph.is_last(node)) {
                double const end = label.deferred + std::ranges::max(label.update);
                return add(found[ends], program{path, clock.total(label) - end, end});
            }
            for (auto const& e : what.graph.out(node)) {
                auto next = label;
                auto after = ends;
                auto const op = what.space.operator_of(path.size(), e.action);
                for (auto const i : what.space.moves()[e.action].instructions) {
                    clock.extend(next, prices.instruction(op, i));
                    auto const given = what.space.at(op, what.space.instructions()[i]);
                    if (auto const* const read = given.as<instruction::read>();
                        read && !what.indexed.tensors[read->tensor].is_parameter())
                        after += std::to_string(read->tensor) + to_string(read->to) + ' ';
                }
                path.push_back(e.action);
                self(self, e.to, next, after);
                path.pop_back();
            }
        };
        walk(walk, 0, clock.initial(), {});
        for (auto const& [ends, programs] : found)
            for (auto const& p : programs) {
                auto made = realise(p.path, what.space, what.steps, on, {ratios}, training).first;
                auto const& t = made.time;
                double const passes = t.compute + t.forward_communication + t.backward_communication;
                double const end = end_of(made);
                CHECK(passes + end <= (p.passes + p.end) * (1 + 1e-9)); // less where other counts of atoms are faster
                auto& others = into[ends_of(made)];
                add(others, candidate{std::move(made), passes, end});
            }
    }

    /// The programs of a stage that may be a part of the best plan.
    std::vector<candidate> const& programs_of(stage const& s) {
        auto const [at, is_new] = known_.try_emplace({s.first, s.end, s.devices});
        if (!is_new) return at->second;
        auto& what = parts_[{s.first, s.end}];
        auto training = options_.stage.training;
        training.accumulated = static_cast<int>(micro_batches_);
        if (!what)
            what = std::make_unique<part>(part_of(micro_, micro_indexed_, layers_.cuts[s.first], layers_.cuts[s.end]),
                                          training);
        auto const devices = devices_of(s.devices);
        auto const on = cluster_of(cluster_, devices, std::vector<int>(devices.size(), 1));
        std::map<std::string, std::vector<candidate>> by_ends;
        share_vector ratios(devices.size());
        auto const divide = [&](auto const& self, std::size_t d, int eighths) -> void {
            if (d + 1 == ratios.size()) {
                ratios[d] = eighths / 8.0;
                return add_programs(*what, on, ratios, training, by_ends);
            }
            for (int n = 0; n <= eighths; ++n) {
                ratios[d] = n / 8.0;
                self(self, d + 1, eighths - n);
            }
        };
        divide(divide, 0, 8);
        for (auto& [ends, list] : by_ends)
            for (auto& c : list) at->second.push_back(std::move(c));
        return at->second;
    }

    void price() {
        std::vector<std::vector<candidate> const*> choices;
        for (auto const& s : stages_) {
            choices.push_back(&programs_of(s));
            if (choices.back()->empty()) return;
        }
        staged_plan made;
        made.status = search::status::feasible;
        made.device_count = cluster_.devices().size();
        made.micro_batches = static_cast<int>(micro_batches_);
        double const m = static_cast<double>(micro_batches_);
        auto const choose = [&](auto const& self, std::size_t s, double sum, double slowest, double end) -> void {
            if ((m - 1) * slowest + sum + m * end >= best_) return;
            if (s == stages_.size()) {
                double const cost = evaluate(made, cluster_).time.total().value;
                if (cost < best_) best_ = cost, found_ = made;
                return;
            }
            auto const& what = *parts_.at({stages_[s].first, stages_[s].end});
            for (auto const& c : *choices[s]) {
                made.stages.push_back({what.given.first, what.given.end, devices_of(stages_[s].devices), c.plan, {}});
                self(self, s + 1, sum + c.passes, std::max(slowest, c.passes), std::max(end, c.end));
                made.stages.pop_back();
            }
        };
        choose(choose, 0, 0, 0, 0);
    }

    program const& program_;
    indexed_program indexed_;
    cluster const& cluster_;
    joint_options options_;
    program_layers layers_;
    std::int64_t micro_batches_ = 1;
    program micro_;
    indexed_program micro_indexed_;
    std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<part>> parts_;
    std::map<stage_key, std::vector<candidate>> known_;
    std::vector<stage> stages_;
    double best_ = 0;
    staged_plan found_;
};

[[nodiscard]] std::string describe(staged_plan const& p) {
    std::string text = std::to_string(p.micro_batches) + " micro-batches:";
    for (auto const& s : p.stages) {
        text += " operators " + std::to_string(s.first) + " to " + std::to_string(s.end) + " on";
        for (auto d : s.devices) text += ' ' + std::to_string(d);
        if (s.plan.provenance.training.interleaves()) text += " in turns";
        for (auto const& cut : s.plan.cuts) {
            text += ", parts";
            for (auto n : cut.counts) text += ' ' + std::to_string(n);
        }
        text += ';';
    }
    return text;
}

} // namespace

TEST_CASE("no plan of stages at shares in eighths is below the bound, or cheaper than the plan found") {
    constexpr int cases = test::cases(300);
    int in_grid = 0, optimal = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        drawn_case const given(seed + 120'000);
        auto const& [random, p, c] = given;
        CAPTURE(seed);
        INFO(given.description());
        auto const options = options_of_exhaustion();
        auto const plan = find_plan(p, c, clp::ratio_solver{}, options);
        REQUIRE(plan.exists());
        auto const verified = verify(p, plan);
        CHECK_MESSAGE(verified, verified.problem);
        exhaustion all(p, c, options);
        double const least = all.cheapest_below(plan.cost() * (1 + 1e-9));
        CHECK(plan.lower_bound <= least * (1 + 1e-9));
        INFO(describe(plan) << "\n" << describe(all.found()));
        CHECK(plan.cost() <= least * (1 + 1e-9));
        in_grid += least < plan.cost() * (1 + 1e-9);
        optimal += plan.status == search::status::optimal;
    }
    MESSAGE(in_grid << " plans are in the grid, " << optimal << " optimal");
    CHECK(in_grid >= cases / 4);
    CHECK((optimal > 0 || test::sanitized));
}

TEST_CASE("with a price on moving, the plan that takes least with it is chosen") {
    constexpr int cases = test::cases(64);
    int others = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        drawn_case given(seed + 150'000);
        auto& [random, p, c] = given;
        CAPTURE(seed);
        INFO(given.description());
        auto options = options_of_exhaustion();
        auto const free = find_plan(p, c, clp::ratio_solver{}, options);
        REQUIRE(free.exists());
        double each = 0;
        options.moving = [&](staged_plan const& to) { // to that plan alone
            return seconds(describe(to) == describe(free) ? each : 0);
        };
        CHECK(find_plan(p, c, clp::ratio_solver{}, options).cost() == free.cost());
        each = random.log_between(0.01, 10.0) * free.cost();
        auto const chosen = find_plan(p, c, clp::ratio_solver{}, options);
        REQUIRE(chosen.exists());
        auto const total = [&](staged_plan const& plan) { return plan.cost() + options.moving(plan).value; };
        CHECK(total(chosen) <= total(free) * (1 + 1e-9));
        CHECK(chosen.lower_bound <= free.cost() * (1 + 1e-9));
        auto const verified = verify_figures(chosen, c);
        CHECK_MESSAGE(verified, verified.problem);
        others += chosen.cost() > free.cost() * (1 + 1e-9);
    }
    MESSAGE(others << " are others than without it");
    CHECK(others >= cases / 4);
}

TEST_CASE("collectives that were measured to take what links say change nothing") {
    constexpr int cases = test::cases(24);
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        drawn_case given(seed + 140'000);
        auto& [random, p, c] = given;
        CAPTURE(seed);
        INFO(given.description());
        c.measured.clear();
        c.measured_inside = c.measured_across = {};
        auto measured = c;
        measured.measured_inside.devices = random.between(2, 4);
        measured.measured_across.devices = random.between(2, 4);
        for (std::size_t k = 0; k < collective_count; ++k) {
            auto const kind = static_cast<collective>(k);
            measured.measured[kind] = model_of(c, kind);
            measured.measured_inside.models[kind].pieces = {
                line_inside(kind, measured.measured_inside.devices, *c.intra)};
            measured.measured_across.models[kind].pieces = {
                line_inside(kind, measured.measured_across.devices, *c.inter)};
        }
        auto const options = options_of_exhaustion();
        auto const derived = find_plan(p, c, clp::ratio_solver{}, options);
        auto const plan = find_plan(p, measured, clp::ratio_solver{}, options);
        CHECK(plan.cost() == doctest::Approx(derived.cost()).epsilon(1e-9));
        CHECK(plan.lower_bound == doctest::Approx(derived.lower_bound).epsilon(1e-9));
    }
}

TEST_CASE("more bandwidth, memory, devices that may stay out, and choices never cost more") {
    constexpr int cases = test::cases(32);
    int strictly = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        drawn_case given(seed + 130'000);
        auto& [random, p, c] = given;
        c.measured_inside = c.measured_across = {};
        c.measured.clear(); // a faster link makes estimates of parts slower, where those of all are measured
        CAPTURE(seed);
        INFO(given.description());
        auto const planned = [&](cluster const& on, joint_options const& options) {
            return find_plan(p, on, clp::ratio_solver{}, options);
        };
        auto const options = options_of_exhaustion();
        auto const before = planned(c, options);
        auto const check = [&](std::string const& what, staged_plan const& worse, staged_plan const& better,
                               double at_most = 1 + 1e-9) {
            if (!worse.exists()) return;
            CAPTURE(what);
            REQUIRE(better.exists());
            INFO(describe(worse) << "\n" << describe(better));
            CHECK(better.cost() <= worse.cost() * at_most);
            strictly += better.cost() < worse.cost() * (1 - 1e-6);
        };
        double const factor = random.log_between(1.1, 10.0);
        for (bool const inside : {false, true}) {
            auto faster = c;
            auto& link = inside ? faster.intra : faster.inter;
            link->bandwidth = factor * link->bandwidth;
            check(inside ? "links inside" : "network", before, planned(faster, options));
        }
        auto tight = c;
        double most = 0;
        for (auto const& s : before.stages)
            for (auto const& m : s.plan.memory) most = std::max(most, m.total());
        for (auto& type : tight.types) type.memory = bytes(most * random.between(0.5, 1.0));
        auto roomier = tight;
        for (auto& type : roomier.types) type.memory = random.between(1.0, 2.0) * type.memory;
        // Where memory binds, programs and shares alternate from more starts, and whole atoms are moved from other
        // shares.
        check("memory", planned(tight, options), planned(roomier, options), 1.05);
        auto more = c;
        more.machines.push_back({.type = random.below(c.types.size())});
        check("a device", before, planned(more, options));
        auto other = options;
        other.sends_beside = true;
        check("sends beside", before, planned(c, other));
        other = options;
        other.most_micro_batches = 2;
        check("micro-batches", planned(c, other), before);
    }
    MESSAGE(strictly << " are strictly cheaper");
    CHECK(strictly >= cases);
}

#endif
