// SPDX-License-Identifier: BSL-1.0
// What has to move where training goes on from another plan.
#include "plan_before.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/detail/device_places.hpp>
#include <heddle/execute/spare_plans.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

std::vector<std::string> types_of(cluster const& c) {
    std::vector<std::string> types;
    for (auto const& m : c.machines)
        types.insert(types.end(), static_cast<std::size_t>(m.devices) * static_cast<std::size_t>(m.count),
                     c.types[m.type].name);
    return types;
}
std::vector<std::string> types_of(plan const& p) {
    std::vector<std::string> types;
    for (auto const& d : p.devices) types.insert(types.end(), static_cast<std::size_t>(d.group_size), d.type);
    return types;
}
std::vector<std::string> types_of(staged_plan const& p) {
    std::vector<std::string> types(p.device_count);
    for (auto const& s : p.stages) {
        auto const of_stage = types_of(s.plan);
        for (std::size_t n = 0; n < s.devices.size(); ++n) types[s.devices[n]] = of_stage[n];
    }
    return types;
}

/// Returns what each device of the cluster stores.
std::vector<stored_parts> stored_by(program const& p, plan const& what) { return stored_parts_of(p, what); }
std::vector<stored_parts> stored_by(program const& p, staged_plan const& what) {
    auto ranks = what.is_plain() ? stored_parts_of(p, what.stages.front().plan) : stored_parts_of(p, what);
    std::vector<stored_parts> parts(what.device_count);
    auto next = ranks.begin();
    for (auto const device : what.ranks()) parts[device] = std::move(*next++);
    return parts;
}

/// Tells whether devices are of the types of those of a plan, which are empty where it leaves a device out.
bool are_same_devices(std::vector<std::string> const& types, std::vector<std::string> const& before) {
    return std::ranges::equal(types, before,
                              [](auto const& now, auto const& then) { return then.empty() || now == then; });
}

/// Returns for each device of a cluster which one it was: that of the same number if all are of their types, else the
/// next one of its type, as long as there are such.
std::vector<std::optional<std::size_t>> devices_before(std::vector<std::string> const& types,
                                                       std::vector<std::string> const& before) {
    bool const are_same = are_same_devices(types, before);
    std::vector<std::optional<std::size_t>> result(types.size());
    std::map<std::string, std::size_t> next;
    for (std::size_t d = 0; d < types.size(); ++d) {
        auto& at = are_same ? next[""] : next[types[d]];
        while (!are_same && at < before.size() && before[at] != types[d]) ++at;
        if (at < before.size()) result[d] = at++;
    }
    return result;
}

/// Each device gets what it lacks: from the next devices of its machine that have it, what these lack from devices of
/// other machines, and the rest from a checkpoint, whose time is not counted. Devices receive beside each other; so do
/// machines, over all of their links, and what they send takes as long.
state_move move_between(std::vector<stored_parts> const& had, std::vector<stored_parts> const& wanted,
                        std::vector<double> const& bytes_per_element, cluster const& c) {
    detail::device_places const places(c);
    std::size_t const count = wanted.size();
    std::vector<double> inside(count), received(count), sent(count); // the last two by machine
    state_move result;
    for (std::size_t d = 0; d < count; ++d)
        for (auto const& [t, part] : wanted[d]) {
            std::vector<tensor_part> left{part};
            // Takes from a device what it has, and returns its bytes.
            auto const take = [&, tensor = t](std::size_t from) {
                auto const there = had[from].find(tensor);
                if (there == had[from].end()) return 0.0;
                double taken = 0;
                std::vector<tensor_part> rest;
                for (auto const& l : left) {
                    taken += static_cast<double>(count_common(l, there->second)) * bytes_per_element[tensor];
                    for (auto& other : detail::difference(l, there->second)) rest.push_back(std::move(other));
                }
                left = std::move(rest);
                return taken;
            };
            take(d);
            for (bool const is_inside : {true, false})
                for (std::size_t k = 1; k < count && !left.empty(); ++k) {
                    std::size_t const from = (d + k) % count;
                    if ((places.machine[from] == places.machine[d]) != is_inside) continue;
                    double const taken = take(from);
                    result.received += bytes(taken);
                    if (is_inside) inside[d] += taken;
                    else received[places.machine[d]] += taken, sent[places.machine[from]] += taken;
                }
            for (auto const& l : left)
                result.from_checkpoint += bytes(static_cast<double>(l.elements()) * bytes_per_element[t]);
        }
    double within = 0, across = 0;
    for (std::size_t d = 0; d < count; ++d) {
        auto const& machine = c.machines[places.group_of_machine[d]];
        if (inside[d] > 0) within = std::max(within, (c.intra->latency + bytes(inside[d]) / c.intra->bandwidth).value);
        auto const m = places.machine[d];
        if (double const most = std::max(received[m], sent[m]); most > 0)
            across =
                std::max(across, (c.inter->latency + bytes(most / machine.network_cards) / c.inter->bandwidth).value);
    }
    result.time = within + across;
    return result;
}

} // namespace

plan_before::plan_before(plan_arguments const& arguments, plan_input const& input)
    : input_(input), plan_(read_any_plan(arguments.from)), types_(types_of(input.cluster)) {
    auto const model =
        std::visit([&](auto const& p) { return read_planned_model(arguments.model, arguments.inputs, p); }, plan_);
    if (!model.warnings.empty() && origin_of(plan_).model_digest != model.digest)
        throw input_error(arguments.from, "is not a plan of " + arguments.model);
    auto stored = std::visit(
        [&]<class Plan>(Plan const& before) -> std::vector<stored_parts> {
            if constexpr (std::is_same_v<Plan, pipeline_plan>) {
                throw input_error(arguments.from, "is a strategy of layers; expected a plan by hap, hidup or joint");
            } else {
                if (auto const v = verify(model.program, before); !v) throw input_error(arguments.from, v.problem);
                types_before_ = types_of(before);
                return stored_by(model.program, before);
            }
        },
        plan_);
    auto const before = devices_before(types_, types_before_);
    had_.resize(types_.size());
    for (std::size_t d = 0; d < types_.size(); ++d)
        if (before[d]) had_[d] = std::move(stored[*before[d]]);
    bytes_per_element_ = stored_bytes_per_element(input.model.program, training_of(arguments));
}

bool plan_before::has_same_devices() const { return are_same_devices(types_, types_before_); }

state_move plan_before::move_to(any_plan const& p) const {
    if (auto const* staged = std::get_if<staged_plan>(&p)) return move_to(*staged);
    return move_between(had_, stored_by(input_.model.program, std::get<heddle::plan>(p)), bytes_per_element_,
                        input_.cluster);
}
state_move plan_before::move_to(staged_plan const& p) const {
    return move_between(had_, stored_by(input_.model.program, p), bytes_per_element_, input_.cluster);
}

} // namespace heddle::cli
