// SPDX-License-Identifier: BSL-1.0
// heddle plan --from: training goes on from another plan, whose parameters have to move.
#include "plan_note.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/detail/device_places.hpp>
#include <heddle/execute/spare_plans.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

/// What the devices of a plan store, by device of its cluster, with their types; those that are left out store nothing, and
/// have no type.
struct stored_state {
    std::vector<stored_parts> parts;
    std::vector<std::string> types;
};

/// *Throws* `input_error` for a plan by AMP or Ditto, and if the plan is none of the program.
stored_state stored_by(any_plan const& made, program const& p, std::string const& name) {
    auto const require = [&](verification const& v) {
        if (!v) throw input_error(name, v.problem);
    };
    stored_state state;
    if (auto const* whole = std::get_if<plan>(&made)) {
        require(verify(p, *whole));
        state.parts = stored_parts_of(p, *whole);
        for (auto const& d : whole->devices)
            state.types.insert(state.types.end(), static_cast<std::size_t>(d.group_size), d.type);
    } else if (auto const* staged = std::get_if<staged_plan>(&made)) {
        require(verify(p, *staged));
        state.parts.resize(staged->device_count), state.types.resize(staged->device_count);
        auto ranks = staged->is_plain() ? stored_parts_of(p, staged->stages.front().plan) : stored_parts_of(p, *staged);
        std::size_t rank = 0;
        for (auto const& s : staged->stages) {
            auto device = s.devices.begin();
            for (auto const& d : s.plan.devices)
                for (int n = 0; n < d.group_size; ++n, ++device) {
                    state.types[*device] = d.type;
                    state.parts[*device] = std::move(ranks[rank++]);
                }
        }
    } else throw input_error(name, "is a strategy of layers; expected a plan by hap, hidup or joint");
    return state;
}

/// Tells whether devices are of the types of those of a plan, which are empty where it leaves a device out.
bool are_same_devices(std::vector<std::string> const& types, std::vector<std::string> const& before) {
    return std::ranges::equal(types, before,
                              [](auto const& now, auto const& then) { return then.empty() || now == then; });
}

/// Returns for each device of a cluster which one it was: that of the same number if all are of their types, else the next
/// one of its type, as long as there are such.
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

/// The part of an iteration that moving has to take for plans that move less to be looked for.
constexpr double worth_planning = 1e-3;

/// What moves, and the seconds of it.
struct move {
    bytes received, from_checkpoint;
    double time = 0;
};

/// Each device gets what it lacks: from the next devices of its machine that have it, what these lack from devices of other
/// machines, and the rest from a checkpoint, whose time is not counted. Devices receive beside each other; so do machines,
/// over all of their links, and what they send takes as long.
move move_between(std::vector<stored_parts> const& had, std::vector<stored_parts> const& wanted,
                  std::vector<double> const& bytes_per_element, cluster const& c) {
    detail::device_places const places(c);
    std::size_t const count = wanted.size();
    std::vector<double> inside(count), received(count), sent(count); // the last two by machine
    move result;
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

/// Returns a plan that was priced on a cluster, of which nothing else is known there.
template <class Plan>
any_plan known_by_price_alone(Plan p, cluster const& c) {
    p.warnings.clear(), p.space.clear();
    p.provenance.cluster = c.name;
    p.which_limit = search::limit_kind::none;
    search::conclude(p, std::optional(p.cost()), 0.0, p.cost());
    return p;
}

/// Returns the plan at its price on a cluster, or nothing if it is for other devices or does not fit.
std::optional<any_plan> priced_on(any_plan const& made, plan_arguments const& arguments, cluster const& c) {
    try {
        if (auto const* whole = std::get_if<plan>(&made)) {
            auto p = *whole;
            auto const on = counted_by(p, c, p.has_groups() || arguments.hap.group_machines);
            auto cost = evaluate(p, on);
            if (!cost.fits) return std::nullopt;
            p.time = cost.time, p.memory = std::move(cost.memory);
            auto const types = on.devices();
            for (std::size_t d = 0; d < types.size(); ++d) p.devices[d].memory_limit = on.types[types[d]].memory;
            p.baselines.clear(), p.other_baselines.clear(), p.trajectory.clear();
            p.global_lower_bound.reset();
            return known_by_price_alone(std::move(p), c);
        }
        auto p = std::get<staged_plan>(made);
        if (!price(p, c)) return std::nullopt;
        p.families.clear();
        return known_by_price_alone(std::move(p), c);
    } catch (input_error const&) { return std::nullopt; } // of another number of devices
}

/// Returns the forms in which a plan of one stage reads its parameters, those of most bytes first, as `--pin` has them;
/// none of others, or where planning may not pin.
std::vector<std::string> forms_that_stay(any_plan const& old, plan_arguments const& arguments) {
    auto const* whole = std::get_if<plan>(&old);
    if (!whole || whole->is_on_mesh() || whole->has_groups() || !arguments.hap.mesh.empty() ||
        arguments.hap.group_machines)
        return {};
    std::vector<std::pair<double, std::string>> forms;
    for (auto const& s : whole->steps) {
        auto const* read = s.instruction.as<instruction::read>();
        if (!read || whole->tensors[read->tensor].role != tensor_role::parameter) continue;
        auto const& tensor = whole->tensors[read->tensor];
        std::string form = to_string(read->to);
        if (read->to.is_shard()) { // of factors of its dimension, the one of this number
            auto const number = static_cast<std::ptrdiff_t>(read->to.factor());
            auto const dimension = tensor.factors[static_cast<std::size_t>(number)].dimension;
            auto const before = std::count_if(tensor.factors.begin(), tensor.factors.begin() + number,
                                              [&](factor const& f) { return f.dimension == dimension; });
            form = "shard(" + std::to_string(dimension) + '.' + std::to_string(before) + ')';
        }
        forms.emplace_back(-tensor.size().value, tensor.name + '=' + form);
    }
    heddle::algorithm::sort(forms);
    std::vector<std::string> result;
    for (auto& form : forms) result.push_back(std::move(form.second));
    return result;
}

bool is_same_training(provenance const& one, provenance const& other) {
    auto const &a = one.training, &b = other.training;
    return one.batch == other.batch && one.type == other.type && a.keeps_master_weights == b.keeps_master_weights &&
           a.optimizer_bytes_per_element == b.optimizer_bytes_per_element;
}

} // namespace

plan_note going_on(plan_arguments const& arguments, plan_input const& input, any_plan& made, attended_run& attended) {
    auto old = read_any_plan(arguments.from);
    auto const model = read_planned_model(arguments.model, arguments.inputs, origin_of(old));
    if (!model.warnings.empty() && origin_of(old).model_digest != model.digest)
        throw input_error(arguments.from, "is not a plan of " + arguments.model);
    auto const& c = input.cluster;
    auto const then = stored_by(old, model.program, arguments.from);
    std::vector<std::string> types;
    for (auto const& m : c.machines)
        types.insert(types.end(), static_cast<std::size_t>(m.devices) * static_cast<std::size_t>(m.count),
                     c.types[m.type].name);
    auto const before = devices_before(types, then.types);
    std::vector<stored_parts> had(types.size());
    for (std::size_t d = 0; d < types.size(); ++d)
        if (before[d]) had[d] = then.parts[*before[d]];
    auto const& training = origin_of(made).training;
    std::vector<double> bytes_per_element;
    for (tensor_id t = 0; t < input.model.program.tensor_count(); ++t) {
        auto const& info = input.model.program.tensor(t);
        bool const is_trained = info.role == tensor_role::parameter && info.trainable;
        bytes_per_element.push_back(element_size(info.type) +
                                    (is_trained ? training.state_bytes_per_element(info.type) : 0));
    }
    auto const moved_for = [&](any_plan const& p) {
        return move_between(had, stored_by(p, input.model.program, "the new plan").parts, bytes_per_element, c);
    };
    auto moved = moved_for(made);
    double anew = cost_of(made) + moved.time / arguments.iterations;

    // Where moving is dear, plans that leave the largest parameters in their forms may take less with their part of it.
    auto const forms = forms_that_stay(old, arguments);
    std::size_t stay = 0;
    for (std::size_t pinned = forms.size(); pinned > 0 && moved.time / arguments.iterations > worth_planning * anew;
         pinned /= 4) {
        auto asked = arguments;
        if (asked.planner == "joint") asked.planner = "hap";
        auto& pins = asked.hap.pins;
        pins.insert(pins.end(), forms.begin(), forms.begin() + static_cast<std::ptrdiff_t>(pinned));
        try {
            auto other = make_plan(asked, input, c, attended);
            if (!exists(other)) continue;
            auto const moves = moved_for(other);
            double const cost = cost_of(other) + moves.time / arguments.iterations;
            if (cost >= anew) continue;
            made = std::move(other), moved = moves, anew = cost, stay = pinned;
        } catch (input_error const&) { continue; } // of forms that the model has no more, or that are to be others
    }

    std::optional<any_plan> kept;
    if (are_same_devices(types, then.types) && is_same_training(origin_of(old), origin_of(made)))
        kept = priced_on(old, arguments, c);
    bool const stays = kept && cost_of(*kept) <= anew;

    using heddle::detail::fixed, heddle::detail::add_paragraph;
    int const decimals = heddle::detail::decimals_for(cost_of(made));
    plan_note note{"Going on from " + arguments.from + "\n", "from", nlohmann::ordered_json::object()};
    heddle::detail::text_columns table("lrrrr");
    table.add({"", "seconds", "GB that move", "in seconds", "with a part of that"});
    table.add({"as before", kept ? fixed(cost_of(*kept), decimals) : "-", "0.000", "0.000",
               kept ? fixed(cost_of(*kept), decimals) : "-"});
    table.add({stay > 0 ? "planned anew, forms kept" : "planned anew", fixed(cost_of(made), decimals),
               fixed(moved.received.value / 1e9, 3), fixed(moved.time, 3), fixed(anew, decimals)});
    note.section += table.print(2, 0);
    auto const say = [&](std::string const& text) { add_paragraph(note.section, "  ", text); };
    if (stay > 0)
        say("The new plan leaves " + heddle::detail::count(stay, "parameter") + " of " + std::to_string(forms.size()) +
            " in the forms that they have: others move more than they gain.");
    if (moved.from_checkpoint.value > 0)
        say(fixed(moved.from_checkpoint.value / 1e9, 3) +
            " GB have to come from a checkpoint; the time of that is not counted.");
    if (!kept)
        say("The plan before cannot go on as it is: it is for other devices, another batch or optimizer, or does not "
            "fit.");
    else if (cost_of(made) < cost_of(*kept))
        say("Moving pays after " + fixed(moved.time / (cost_of(*kept) - cost_of(made)), 0) + " iterations, of which " +
            fixed(arguments.iterations, 0) +
            " are to pay for it: " + (stays ? "the plan before is kept." : "it pays."));
    else say("The plan before is no dearer: it is kept.");
    note.value = {{"iterations", arguments.iterations},
                  {"moved_bytes", moved.received.value},
                  {"from_checkpoint_bytes", moved.from_checkpoint.value},
                  {"seconds_to_move", moved.time},
                  {"cost_before", kept ? nlohmann::ordered_json(cost_of(*kept)) : nlohmann::ordered_json()},
                  {"cost_anew", cost_of(made)},
                  {"forms_kept", stay},
                  {"kept", stays}};
    if (stays) {
        made = std::move(*kept);
        add_origin(made, input);
    }
    if (auto* whole = std::get_if<plan>(&made); whole && arguments.planner == "joint")
        made = staged(std::move(*whole), c); // as that planner's plans are
    return note;
}

} // namespace heddle::cli
