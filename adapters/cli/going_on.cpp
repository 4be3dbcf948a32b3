// SPDX-License-Identifier: BSL-1.0
// heddle plan --from: training goes on from another plan, whose parameters have to move.
#include "plan_note.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/evaluate.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

/// The part of an iteration that moving has to take for plans that move less to be looked for.
constexpr double worth_planning = 1e-3;

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

plan_note going_on(plan_before& before, plan_arguments const& arguments, plan_input const& input, any_plan& made,
                   attended_run& attended) {
    auto& old = before.plan();
    auto moved = before.move_to(made);
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
            auto other = make_plan(asked, input, input.cluster, attended);
            if (!exists(other)) continue;
            auto const moves = before.move_to(other);
            double const cost = cost_of(other) + moves.time / arguments.iterations;
            if (cost >= anew) continue;
            made = std::move(other), moved = moves, anew = cost, stay = pinned;
        } catch (input_error const&) { continue; } // of forms that the model has no more, or that are to be others
    }

    std::optional<any_plan> kept;
    if (before.has_same_devices() && is_same_training(origin_of(old), origin_of(made)))
        kept = priced_on(old, arguments, input.cluster);
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
        made = staged(std::move(*whole), input.cluster); // as that planner's plans are
    return note;
}

} // namespace heddle::cli
