// SPDX-License-Identifier: BSL-1.0
// heddle plan --spare: plans for the loss of machines.
#include "plan_note.hpp"

#include <heddle/execute/spare_plans.hpp>
#include <heddle/json/file.hpp>
#include <heddle/plan/detail/report_text.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

/// What has to move after a loss, whichever machines of a group are lost: the most of it.
moved_state most_moved(spare_plans const& spares, std::vector<int> const& lost, cluster const& c) {
    constexpr int most_sets = 10'000;
    moved_state most;
    int sets = 0;
    std::vector<std::size_t> machines;
    auto const choose = [&](auto const& self, std::size_t group, std::size_t first, std::size_t next,
                            int left) -> void {
        if (left > 0) {
            for (auto m = next; m < first + static_cast<std::size_t>(c.machines[group].count); ++m) {
                machines.push_back(m);
                self(self, group, first, m + 1, left - 1);
                machines.pop_back();
            }
        } else if (group + 1 < lost.size()) {
            first += static_cast<std::size_t>(c.machines[group].count);
            self(self, group + 1, first, first, lost[group + 1]);
        } else if (sets++ < most_sets) {
            auto const state = spares.find(machines).state;
            most.stored = state.stored;
            most.lost = std::max(most.lost, state.lost);
            if (sets == 1 || state.kept < most.kept) most.kept = state.kept;
        }
    };
    choose(choose, 0, 0, 0, lost.front());
    return most;
}

struct lost_machines {
    std::string in_words, in_file_name;
};
lost_machines name_of(std::vector<int> const& lost, cluster const& c) {
    lost_machines result;
    for (std::size_t g = 0; g < lost.size(); ++g) {
        result.in_file_name += "-" + std::to_string(lost[g]);
        if (lost[g] == 0) continue;
        auto const& m = c.machines[g];
        result.in_words += (result.in_words.empty() ? "" : ", ") + std::to_string(lost[g]) + " of " +
                           std::to_string(m.devices) + " x " + c.types[m.type].name;
    }
    return result;
}

/// Says what there is for each loss.
plan_note note_of(spare_plans const& spares, cluster const& c) {
    plan_note note{"Plans for the loss of machines (GB of state, at most)\n", "spares",
                   nlohmann::ordered_json::array()};
    detail::text_columns table("lrrrrr");
    table.add({"machines lost", "seconds", "stages", "stored", "moves", "from a checkpoint"});
    for (auto const& [lost, plan] : spares.entries()) {
        if (&plan == &spares.entries().front().plan) continue;
        auto const state = plan.exists() ? most_moved(spares, lost, c) : moved_state{};
        auto& one = note.value.emplace_back(nlohmann::ordered_json{{"lost", lost}});
        if (plan.exists())
            one.update({{"seconds", plan.cost()},
                        {"stored", state.stored.value},
                        {"received", state.received().value},
                        {"from_checkpoint", state.lost.value}});
        else one["reason"] = plan.reason;
        auto const gigabytes = [&](bytes b) { return plan.exists() ? detail::fixed(b.value / 1e9, 3) : std::string(); };
        table.add({name_of(lost, c).in_words,
                   plan.exists() ? detail::fixed(plan.cost(), detail::decimals_for(plan.cost())) : "-",
                   plan.exists() ? std::to_string(plan.stages.size()) : detail::clip(plan.reason, 30),
                   gigabytes(state.stored), gigabytes(state.received()), gigabytes(state.lost)});
    }
    note.section += table.print(2, 0);
    return note;
}

} // namespace

plan_note plan_for_losses(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                          attended_run& attended, std::vector<json::staged_file>& files) {
    spare_plans const spares(
        input.model.program, input.cluster, std::get<staged_plan>(p), arguments.spare,
        [&](cluster const& left) { return std::get<staged_plan>(make_plan(arguments, input, left, attended)); });
    std::filesystem::path const out(arguments.out);
    for (auto const& [lost, spare] : spares.entries()) {
        if (arguments.out.empty() || !spare.exists() || &spare == &spares.entries().front().plan) continue;
        auto beside = out;
        beside.replace_filename(out.stem().string() + ".lost" + name_of(lost, input.cluster).in_file_name +
                                out.extension().string());
        files.emplace_back(beside, text_of(spare, arguments));
    }
    return note_of(spares, input.cluster);
}

} // namespace heddle::cli
