// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan of stages, each of which has a program of its own, and its price. One stage is the plain case.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/plan/staged_run.hpp>
#include <heddle/search/outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

struct planned_stage {
    /// The operators of the program that it computes, [first, end).
    operator_id first = 0, end = 0;
    /// The cluster's devices, machine by machine; each of the plan's has the next ones, as many as it stands for.
    std::vector<std::size_t> devices;
    /// How they compute a micro-batch of `part_of` the program, or each of the parts of one that take turns. Its costs
    /// are those of one micro-batch, with its part of the reduction of gradients and of the update.
    heddle::plan plan;
    /// The time in which a micro-batch comes from the stage before, and its cotangents go back.
    seconds boundary;
    /// Returns the number of parts of a micro-batch that take turns here.
    [[nodiscard]] int turns() const { return plan.provenance.training.micro_batches; }
};

/// The predicted seconds of an iteration; the terms add up.
struct staged_times {
    /// All stages' and boundaries' times for the first micro-batch, the slowest stage's for the others, and what stages
    /// hold each other up beyond that. In several rounds: the time of the slowest devices, and what they wait.
    seconds pipeline;
    /// The sum of the gradients of parameters that several stages use.
    seconds shared;
    /// The reduction of gradients, the update, and what gathers updated parameters, on the devices for which they take
    /// longest.
    seconds gradients, update, parameters;
    [[nodiscard]] seconds total() const { return pipeline + shared + gradients + update + parameters; }
};

/// The seconds of an iteration as the devices of the slowest stage pass them; the terms add up. Then the memory of the
/// device that is fullest, and its limit.
struct staged_terms {
    /// Their own work, and their collectives on the outermost axis and inside it: on other axes, in device groups.
    seconds compute, outer, inner;
    /// What passes between them and other stages, as far as they wait for that.
    seconds sends;
    /// The reduction of gradients, also over stages, the update, and what gathers updated parameters.
    seconds gradients, update, parameters;
    /// While the pipeline fills and drains, and while neighbours hold it up.
    seconds idle;
    bytes used, limit;

    [[nodiscard]] seconds total() const {
        return compute + outer + inner + sends + gradients + update + parameters + idle;
    }
};

/// The best plan of a family of plans that was looked at.
struct family_result {
    /// Absent if there is none.
    std::optional<double> cost;
    /// Absent if they were not asked for, or the plan was priced beside another.
    std::optional<staged_terms> terms{};
    /// The seconds that looking took, zero if it was priced beside another; and why there is no plan.
    double seconds = 0;
    std::string reason{};
};

/// Micro-batches pass through the stages in turn, one forward, one backward (1F1B). Stages may pass the devices in
/// several rounds: then these have a stage of each round, and the schedule is interleaved (`one_f_one_b`).
struct staged_plan : search::outcome<> {
    heddle::provenance provenance;
    /// The number of devices of the cluster that it is for; some may be left out.
    std::size_t device_count = 0;
    std::vector<planned_stage> stages;
    int micro_batches = 1;
    /// Whether devices compute while they send to other stages. Frameworks block by default.
    bool sends_beside = false;
    staged_times time;
    /// What status and lower bound refer to, in words that follow "optimal among".
    std::string space;
    /// By the name of a family.
    std::map<std::string, family_result> families;
    double seconds = 0;
    std::vector<std::string> warnings;

    [[nodiscard]] bool exists() const { return !stages.empty(); }
    /// Returns the number of sets of devices: stage s is on that of stage `s % places()` (`check_devices`).
    [[nodiscard]] std::size_t places() const { return stages_of_round(stages); }
    [[nodiscard]] std::size_t rounds() const { return exists() ? stages.size() / places() : 1; }
    [[nodiscard]] one_f_one_b schedule() const { return {rounds()}; }
    [[nodiscard]] pipeline_shape shape() const { return {places(), micro_batches}; }
    /// Returns the devices that have a stage, in the order of ranks: stage by stage of a round.
    [[nodiscard]] std::vector<std::size_t> ranks() const;
    /// Tells whether it is no more than a plan: one stage, which has the batch as a whole.
    [[nodiscard]] bool is_plain() const { return stages.size() == 1 && micro_batches == 1; }
    [[nodiscard]] double cost() const { return time.total().value; }
    /// Returns the relative distance between cost and bound.
    [[nodiscard]] double gap() const { return cost() > 0 ? 1 - lower_bound / cost() : 0; }
};

/// *Throws* `input_error` unless each stage has as many devices as its plan is for, which no other stage has; or, in
/// rounds, those of the first round's stage, as the same mesh, and the schedule can run (`one_f_one_b::can_run`).
void check_devices(staged_plan const& p);

/// Returns the devices of a cluster as a cluster. `members` has how many of them, one after the other, each planned
/// device stands for; they are of one machine. If all are on one machine, the links inside are those between groups.
/// *Throws* `input_error` if devices do not exist, are not ascending, or those of a group are not of one machine.
[[nodiscard]] cluster cluster_of(cluster const& c, std::span<std::size_t const> devices, std::span<int const> members);

/// Returns the cluster of a stage, as its plan has the devices.
[[nodiscard]] cluster cluster_of(cluster const& c, planned_stage const& s);

/// The time in which a micro-batch's values pass between two stages, and that in which their cotangents go back.
struct boundary_times {
    seconds values, cotangents;
    [[nodiscard]] seconds both() const { return values + cotangents; }
};

struct staged_cost {
    staged_times time;
    /// By stage: its plan's cost, and what passes between it and the stage before.
    std::vector<plan_cost> stages;
    std::vector<boundary_times> boundaries;
    /// By place and planned device: what its stages hold.
    std::vector<std::vector<bytes>> memory;
    bool fits = true;
};

/// Prices a plan on the cluster that it is for or on another one with as many devices, from what the plan says alone.
///
/// With m micro-batches, an iteration takes `(m - 1) * max + sum`, as AMP's eq. (5) has it: of one micro-batch's time
/// in the stages and, in the sum, between them. A stage that blocks is as long as its own time and that of sending and
/// receiving at both ends; one that does not is as long as the longest of these. Where stages hold each other up, so
/// that the iteration takes longer pass by pass (`simulate`), it takes that. In several rounds it is, pass by pass, at
/// least what the slowest devices have to do in all of them, and memory is what their stages hold together. A value
/// that crosses is sent once to each machine that has a part of it, and then spread inside; its cotangent goes back the
/// same way. A value that a later stage uses is handed on by each stage between, whose devices hold it in equal parts.
/// What no stage before sends is the program's own.
/// *Throws* `input_error` as `check_devices`, `cluster_of` and `evaluate` of a plan do.
[[nodiscard]] staged_cost evaluate(staged_plan const& p, cluster const& c);

/// Returns the events of an iteration, pass by pass (`run_stages`), which takes no longer than the plan costs: stages
/// that are done early reduce their gradients early. *Throws* as `evaluate` does.
[[nodiscard]] staged_timeline simulate(staged_plan const& p, cluster const& c);

/// A plan of one stage, on all devices of a cluster or on some of them.
[[nodiscard]] staged_plan staged(plan p, cluster const& c, std::vector<std::size_t> devices = {});

/// Takes over what `evaluate` says. Returns whether it fits.
bool price(staged_plan& p, cluster const& c);

namespace detail {

/// Returns what each stage does for a micro-batch and for all of them, as `run_stages` takes it.
[[nodiscard]] std::vector<stage_times> times_of_stages(staged_plan const& p, cluster const& c, staged_cost const& cost);

/// The seconds that devices take for a micro-batch in all of their stages: their own work, what passes at both ends,
/// and what is the longest of these if devices compute while they send.
struct place_times {
    seconds own, before, after, pace;
};
[[nodiscard]] std::vector<place_times> times_of_places(staged_plan const& p, staged_cost const& cost);

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cluster/detail/device_places.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <heddle/program/program_part.hpp>

namespace heddle::detail {

/// A tensor at an end of a stage: the part that each planned device has, and from where on if it is cut across them.
struct tensor_at_end {
    /// Of all that take turns together, each of which has messages of its own.
    bytes size;
    int messages = 1;
    std::optional<factor> cut;
    std::vector<double> from, share;
    /// The part of a device's share that each of its members has.
    double inside = 1;
};

/// The values that enter a stage, or leave it, by name.
using stage_end = std::map<std::string, tensor_at_end>;

HEDDLE_INLINE stage_end end_of(plan const& p, bool enters) {
    stage_end end;
    auto const shares = shares_of(p);
    auto const mesh = p.mesh();
    for (auto const& s : p.steps) {
        if (!s.instruction.is<instruction::read>()) continue;
        auto const t = s.instruction.change()->tensor;
        auto const& tensor = p.tensors[t];
        std::string name = tensor.name;
        if (enters ? tensor.role != tensor_role::input || !tensor.trainable
                   : tensor.role != tensor_role::buffer || !name.ends_with(cotangent_suffix))
            continue;
        if (!enters) name.resize(name.size() - cotangent_suffix.size());
        auto const form = s.to();
        auto const turns = p.provenance.training.micro_batches;
        tensor_at_end at{turns * tensor.size(), turns, {}, {}, {}, part_inside(tensor.factors, form, mesh)};
        if (form[0].is_shard()) at.cut = tensor.factors[static_cast<std::size_t>(form[0].factor())];
        double next = 0;
        for (std::size_t d = 0; d < p.devices.size(); ++d) {
            at.share.push_back(at.cut ? shares({t, form[0].factor()})[d] : 1);
            at.from.push_back(at.cut ? std::exchange(next, next + at.share[d]) : 0);
        }
        end.insert_or_assign(std::move(name), std::move(at));
    }
    return end;
}

/// Prices what passes from stage to stage.
class boundary_price {
public:
    boundary_price(staged_plan const& p, cluster const& c) : plan_(p), cluster_(c), places_(c) {}

    /// The time of a value one way.
    [[nodiscard]] seconds between(planned_stage const& from, tensor_at_end const& held, planned_stage const& to,
                                  tensor_at_end const& wanted) const {
        auto const has = by_machine(from, held), wants = by_machine(to, wanted);
        bool const are_alike = held.cut && wanted.cut && is_same_place(*held.cut, *wanted.cut);
        double into = 0, all = 0, most = 0, whole = 0, on_device = 0;
        for (auto const& [machine, part] : wants) {
            auto const there = has.find(machine);
            double here = 0; // what it has already
            if (there != has.end())
                here = are_alike ? std::max(0.0, std::min(part.end, there->second.end) -
                                                     std::max(part.begin, there->second.begin))
                                 : part.size * there->second.size;
            into = std::max(into, part.size - here);
            all += part.size - here;
            bool const moves_inside = here > equal_parts || part.on_devices > part.size + equal_parts;
            if (moves_inside) on_device = std::max(on_device, part.most);
            if (here > equal_parts) { // whoever has copies here sends as many of the parts that are asked for
                auto const& sent = there->second;
                on_device = std::max(on_device, part.on_devices * (here / part.size) * sent.most / sent.on_devices);
            }
        }
        for (auto const& [machine, part] : has) most = std::max(most, part.size), whole += part.size;
        seconds time{0};
        // Parts follow each other at both ends: one more message for each end of one inside another.
        double const messages = held.messages + wanted.messages - std::gcd(held.messages, wanted.messages);
        if (into > equal_parts) { // whoever has copies sends as many of the parts that are asked for
            if (!cluster_.inter) fail("between machines");
            double const busiest = std::max(into, all * most / whole) / network_cards(cluster_);
            time += messages * cluster_.inter->latency + held.size * busiest / cluster_.inter->bandwidth;
        }
        if (on_device > 0) {
            if (!cluster_.intra) fail("inside machines");
            time += messages * cluster_.intra->latency + held.size * on_device / cluster_.intra->bandwidth;
        }
        return time;
    }

    /// By stage: the time of what comes from the stage before and goes back, and what is only handed on.
    struct passing {
        std::vector<boundary_times> times;
        std::vector<bytes> handed_on;
    };
    [[nodiscard]] passing all() const {
        passing result{std::vector<boundary_times>(plan_.stages.size()), std::vector<bytes>(plan_.stages.size())};
        std::map<std::string, std::pair<std::size_t, tensor_at_end>> last; // the stage that has a value, and how
        auto const pass = [&](std::pair<std::size_t, tensor_at_end>& value, tensor_at_end wanted) {
            auto& [at, held] = value;
            auto const &from = plan_.stages[at], &to = plan_.stages[at + 1];
            result.times[at + 1].values += between(from, held, to, wanted);
            result.times[at + 1].cotangents += between(to, wanted, from, held);
            ++at, held = std::move(wanted);
        };
        for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
            for (auto const& [name, wanted] : end_of(plan_.stages[s].plan, true)) {
                auto const found = last.find(name);
                if (found == last.end()) continue; // an input of the program
                for (auto& value = found->second; value.first + 1 < s;) {
                    result.handed_on[value.first + 1] += wanted.size;
                    pass(value, in_equal_parts(plan_.stages[value.first + 1], wanted.size));
                }
                pass(found->second, wanted);
            }
            for (auto& [name, held] : end_of(plan_.stages[s].plan, false))
                last.insert_or_assign(name, std::pair(s, held));
        }
        return result;
    }

private:
    static constexpr double equal_parts = 1e-9;

    /// What the devices of a machine have of a tensor, from the first to the last of it; what they have counted
    /// together, and the most that one of them has.
    struct machine_part {
        double begin = 1, end = 0, size = 0, on_devices = 0, most = 0;
    };

    [[nodiscard]] static tensor_at_end in_equal_parts(planned_stage const& s, bytes size) {
        double const planned = static_cast<double>(s.plan.devices.size()), all = static_cast<double>(s.devices.size());
        tensor_at_end at{size, 1, {}, {}, {}, planned / all};
        double next = 0;
        for (auto const& d : s.plan.devices) {
            at.share.push_back(d.group_size / all);
            at.from.push_back(std::exchange(next, next + at.share.back()));
        }
        return at;
    }

    [[noreturn]] void fail(char const* where) const {
        throw input_error("cluster '" + cluster_.name + "'", std::string("has no link ") + where + ", expected one");
    }

    [[nodiscard]] std::map<std::size_t, machine_part> by_machine(planned_stage const& s,
                                                                 tensor_at_end const& at) const {
        std::map<std::size_t, machine_part> result;
        auto device = s.devices.begin();
        for (std::size_t d = 0; d < s.plan.devices.size(); ++d)
            for (int n = 0; n < s.plan.devices[d].group_size; ++n) {
                auto& part = result[places_.machine[*device++]];
                part.begin = std::min(part.begin, at.from[d]);
                part.end = std::max(part.end, at.from[d] + at.share[d]);
                part.size = part.end - part.begin;
                part.on_devices += at.share[d] * at.inside;
                part.most = std::max(part.most, at.share[d] * at.inside);
            }
        return result;
    }

    staged_plan const& plan_;
    cluster const& cluster_;
    device_places places_;
};

/// The time to add up the gradients of parameters that several stages use: each stage sends its sum to the next one
/// that uses it, and the last sends all back, as a ring does.
HEDDLE_INLINE seconds shared_gradients(staged_plan const& p, cluster const& c) {
    std::map<std::string, std::pair<std::size_t, bytes>> users;
    for (auto const& s : p.stages)
        for (auto const& t : s.plan.tensors) {
            if (t.role != tensor_role::parameter || !t.trainable) continue;
            auto& [count, size] = users[t.name];
            ++count;
            size = t.size();
        }
    seconds sum{0};
    auto const& link = c.inter ? c.inter : c.intra;
    for (auto const& [name, used] : users) {
        double const n = static_cast<double>(used.first);
        if (used.first > 1) sum += 2 * (n - 1) * link->latency + used.second * (2 * (n - 1) / n) / link->bandwidth;
    }
    return sum;
}

/// Returns the part of a micro-batch's passes through a stage that is the forward pass.
HEDDLE_INLINE double forward_part(plan const& p, cluster const& c) {
    auto const [alike, model, shares] = plan_devices(p, c);
    std::vector<step_cost> prices;
    for (auto const& s : p.steps) {
        auto& price = prices.emplace_back(model.price(s.step, shares));
        price.deferred = price.refresh = 0;
        algorithm::fill(price.update, 0.0);
    }
    auto const& training = p.provenance.training;
    auto const begins = training.interleaves() ? stage_begins(duplex(model.class_count(), training), prices, p.stages)
                                               : std::vector<std::size_t>{};
    auto const time_of = [&](std::vector<step_cost> const& steps) {
        return training.interleaves() ? total_time<duplex>(model.class_count(), training, steps, begins)
                                      : total_time<serial>(model.class_count(), training, steps);
    };
    double const passes = time_of(prices);
    return passes > 0 ? time_of(forward_passes(prices)) / passes : 1;
}

HEDDLE_INLINE std::vector<stage_times> times_of_stages(staged_plan const& p, cluster const& c,
                                                       staged_cost const& cost) {
    std::vector<stage_times> stages;
    double const m = p.micro_batches;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& t = cost.stages[s].time;
        double const whole = t.compute + t.forward_communication + t.backward_communication,
                     forward = whole * forward_part(p.stages[s].plan, cluster_of(c, p.stages[s]));
        stages.push_back({forward, whole - forward, cost.boundaries[s].values.value,
                          cost.boundaries[s].cotangents.value, m * t.gradient_communication,
                          m * (t.update + t.parameter_communication)});
    }
    return stages;
}

HEDDLE_INLINE staged_timeline run_stages(staged_plan const& p, cluster const& c, staged_cost const& cost) {
    return heddle::run_stages(times_of_stages(p, c, cost), p.places(), p.micro_batches, cost.time.shared.value,
                              p.sends_beside);
}

HEDDLE_INLINE std::vector<place_times> times_of_places(staged_plan const& p, staged_cost const& cost) {
    std::size_t const places = p.places();
    std::vector<place_times> result(places);
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& t = cost.stages[s].time;
        auto& at = result[s % places];
        at.own += seconds(t.compute + t.forward_communication + t.backward_communication);
        at.before += cost.boundaries[s].both();
        if (s + 1 < p.stages.size()) at.after += cost.boundaries[s + 1].both();
    }
    for (auto& at : result) {
        auto const beside = places == 2 ? at.before + at.after : std::max(at.before, at.after); // one link, or two
        at.pace = p.sends_beside ? std::max(at.own, beside) : at.own + at.before + at.after;
    }
    return result;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<std::size_t> staged_plan::ranks() const {
    std::vector<std::size_t> result;
    for (std::size_t s = 0; s < places(); ++s)
        result.insert(result.end(), stages[s].devices.begin(), stages[s].devices.end());
    return result;
}

HEDDLE_INLINE void check_devices(staged_plan const& p) {
    auto const places = p.places();
    auto const fail = [](std::size_t stage, std::string const& problem) {
        throw input_error("stage " + std::to_string(stage), problem);
    };
    std::set<std::size_t> taken;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const &here = p.stages[s], &first = p.stages[s % places];
        std::size_t count = 0;
        for (auto const& d : here.plan.devices) count += static_cast<std::size_t>(d.group_size);
        if (count != here.devices.size())
            fail(s, "has " + std::to_string(here.devices.size()) + " devices, expected " + std::to_string(count) +
                        ", as its plan is for");
        for (auto const d : here.devices)
            if (d >= p.device_count || (s < places && !taken.insert(d).second))
                fail(s, "device " + std::to_string(d) + " does not exist, or has a place already");
        bool const is_as_first = here.devices == first.devices && here.plan.inner_sizes == first.plan.inner_sizes &&
                                 algorithm::equal(here.plan.devices, first.plan.devices, {}, &plan_device::group_size,
                                                  &plan_device::group_size);
        if (!is_as_first)
            fail(s, "expected the devices and mesh of stage " + std::to_string(s % places) +
                        ", as stages pass the devices in rounds");
    }
    if (places == p.stages.size()) return;
    if (places == 1) fail(1, "is on the devices of the stage before, expected others");
    if (p.stages.size() % places != 0)
        fail(p.stages.size() - 1, "ends the plan within a round, expected all " + std::to_string(places) + " stages");
    if (!p.schedule().can_run(p.shape()))
        fail(places, "begins another round of " + std::to_string(places) + " stages, for which " +
                         std::to_string(p.micro_batches) + " micro-batches do not make equal groups");
}

HEDDLE_INLINE cluster cluster_of(cluster const& c, std::span<std::size_t const> devices, std::span<int const> members) {
    auto const fail = [&](std::string const& problem) {
        throw input_error("stage of cluster '" + c.name + "'", problem);
    };
    detail::device_places const places(c);
    cluster result;
    result.name = c.name;
    result.types = c.types;
    result.intra = c.intra;
    result.inter = c.inter;
    result.measured_inside = detail::known_inside(c);
    result.measured_across = c.measured_across;
    std::size_t at = 0;
    std::optional<std::size_t> machine;
    for (int const n : members) {
        if (n < 1 || at + static_cast<std::size_t>(n) > devices.size()) fail("has fewer devices than its plan");
        for (std::size_t k = at; k < at + static_cast<std::size_t>(n); ++k) {
            if (devices[k] >= places.machine.size() || (k > 0 && devices[k] <= devices[k - 1]))
                fail("expected devices of the cluster, ascending");
        }
        auto const& given = c.machines[places.group_of_machine[devices[at]]];
        auto const here = places.machine[devices[at]];
        int const joined = std::max(1, n / given.devices); // whole machines of one kind make a group too
        for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k) {
            auto const d = devices[at + k];
            if (places.machine[d] != here + k / static_cast<std::size_t>(given.devices) ||
                places.group_of_machine[d] != places.group_of_machine[devices[at]] ||
                (joined > 1 && n % given.devices != 0))
                fail("a group is on several machines, and not all of them");
        }
        at += static_cast<std::size_t>(n);
        if (joined > 1) {
            result.machines.push_back({given.type, n, 1, true, given.network_cards * joined, joined});
            machine = places.machine[devices[at - 1]];
            continue;
        }
        if (n == 1 && machine == here && !result.machines.back().is_group) ++result.machines.back().devices;
        else result.machines.push_back({given.type, n, 1, n > 1, given.network_cards});
        if (machine == here) result.measured_across = {}; // what is of one machine is no line
        machine = here;
    }
    if (at != devices.size()) fail("has more devices than its plan");
    bool const is_in_one_machine =
        !devices.empty() && places.machine[devices.front()] == places.machine[devices.back()];
    if (is_in_one_machine) join_in_one_machine(result);
    if (!is_in_one_machine || !has_several_machines(c)) {
        result.measured = measured_on(result, c);
    } else { // what was measured inside machines is of these devices, whatever their groups
        auto in_one = result;
        in_one.machines = {{.type = result.machines.front().type, .devices = static_cast<int>(devices.size())}};
        result.measured = measured_on(result, in_one);
    }
    return result;
}

HEDDLE_INLINE cluster cluster_of(cluster const& c, planned_stage const& s) {
    std::vector<int> members;
    for (auto const& d : s.plan.devices) members.push_back(d.group_size);
    return cluster_of(c, s.devices, members);
}

HEDDLE_INLINE staged_cost evaluate(staged_plan const& p, cluster const& c) {
    validate(c);
    if (detail::device_places const places(c); places.machine.size() != p.device_count)
        throw input_error("cluster '" + c.name + "'", "has " + std::to_string(places.machine.size()) +
                                                          " devices, the plan is for " +
                                                          std::to_string(p.device_count) + ", expected as many");
    check_devices(p);
    staged_cost cost;
    if (!p.exists()) return cost;
    for (auto const& s : p.stages) {
        cost.stages.push_back(evaluate(s.plan, cluster_of(c, s)));
        cost.fits = cost.fits && cost.stages.back().fits;
    }
    auto const passing = detail::boundary_price(p, c).all();
    cost.boundaries = passing.times;
    std::size_t const places = p.places();
    double const m = p.micro_batches;
    seconds sum{0};
    struct once {
        seconds gradients, update, parameters;
        [[nodiscard]] seconds all() const { return gradients + update + parameters; }
    };
    std::vector<once> ends(places);
    cost.memory.resize(places);
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        auto const& t = cost.stages[s].time;
        sum += seconds(t.compute + t.forward_communication + t.backward_communication) + cost.boundaries[s].both();
        auto& end = ends[s % places];
        end.gradients += seconds(m * t.gradient_communication);
        end.update += seconds(m * t.update);
        end.parameters += seconds(m * t.parameter_communication);
        auto const handed_on = passing.handed_on[s] * p.stages[s].plan.provenance.training.in_flight /
                               static_cast<double>(p.stages[s].devices.size());
        auto& held = cost.memory[s % places];
        held.resize(cost.stages[s].memory.size());
        for (std::size_t d = 0; d < held.size(); ++d) held[d] += bytes(cost.stages[s].memory[d].total()) + handed_on;
    }
    for (std::size_t n = 0; n < places; ++n) {
        auto const on = cluster_of(c, p.stages[n]);
        auto const types = on.devices();
        for (std::size_t d = 0; d < types.size(); ++d)
            cost.fits = cost.fits && cost.memory[n][d] <= on.types[types[d]].memory;
        if (auto const& end = ends[n]; end.all() >= cost.time.gradients + cost.time.update + cost.time.parameters)
            cost.time.gradients = end.gradients, cost.time.update = end.update, cost.time.parameters = end.parameters;
    }
    auto const times = detail::times_of_places(p, cost);
    auto const slowest = algorithm::max_element(times, {}, &detail::place_times::pace);
    cost.time.pipeline = (p.rounds() == 1 ? sum : slowest->pace) + (m - 1) * slowest->pace;
    cost.time.shared = detail::shared_gradients(p, c);
    if (p.stages.size() > 1 && p.micro_batches > 1) {
        seconds const run(detail::run_stages(p, c, cost).total);
        cost.time.pipeline += std::max(seconds(0), run - cost.time.total());
    }
    return cost;
}

HEDDLE_INLINE staged_timeline simulate(staged_plan const& p, cluster const& c) {
    return detail::run_stages(p, c, evaluate(p, c));
}

HEDDLE_INLINE bool price(staged_plan& p, cluster const& c) {
    auto const cost = evaluate(p, c);
    p.time = cost.time;
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        p.stages[s].plan.time = cost.stages[s].time;
        p.stages[s].plan.memory = cost.stages[s].memory;
        p.stages[s].boundary = cost.boundaries[s].both();
    }
    return cost.fits;
}

HEDDLE_INLINE staged_plan staged(plan p, cluster const& c, std::vector<std::size_t> devices) {
    staged_plan result;
    static_cast<search::outcome<>&>(result) = p;
    result.provenance = p.provenance;
    result.space = p.space;
    result.warnings = p.warnings;
    result.device_count = detail::device_places(c).machine.size();
    if (!p.exists()) return result;
    planned_stage stage;
    stage.end = static_cast<operator_id>(p.operators.size());
    for (std::size_t d = 0; devices.empty() && d < result.device_count; ++d) stage.devices.push_back(d);
    if (!devices.empty()) stage.devices = std::move(devices);
    stage.plan = std::move(p);
    result.stages.push_back(std::move(stage));
    price(result, c);
    return result;
}

} // namespace heddle

#endif
