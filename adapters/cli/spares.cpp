// SPDX-License-Identifier: BSL-1.0
// heddle plan --spare and heddle recover: plans for the loss of machines.
#include "output.hpp"
#include "plan_note.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/spare_plans.hpp>
#include <heddle/json/file.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/search/deadline.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
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

/// Machines of a group in words.
std::string name_of(machine_group const& m, cluster const& c) {
    return std::to_string(m.devices) + " x " + c.types[m.type].name;
}

std::string in_words(std::vector<int> const& lost, cluster const& c) {
    std::string words;
    for (std::size_t g = 0; g < lost.size(); ++g)
        if (lost[g] > 0)
            words += (words.empty() ? "" : ", ") + std::to_string(lost[g]) + " of " + name_of(c.machines[g], c);
    return words;
}

/// Returns the file of the plan for a loss, beside that for all machines.
std::filesystem::path file_for(std::filesystem::path const& all, std::vector<int> const& lost) {
    auto name = all.stem().string() + ".lost";
    for (int const n : lost) name += "-" + std::to_string(n);
    auto beside = all;
    beside.replace_filename(name + all.extension().string());
    return beside;
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
        table.add({in_words(lost, c),
                   plan.exists() ? detail::fixed(plan.cost(), detail::decimals_for(plan.cost())) : "-",
                   plan.exists() ? std::to_string(plan.stages.size()) : "none", gigabytes(state.stored),
                   gigabytes(state.received()), gigabytes(state.lost)});
    }
    note.section += table.print(2, 0);
    for (auto const& [lost, plan] : spares.entries())
        if (!plan.exists())
            detail::add_paragraph(note.section, "  - ", "without " + in_words(lost, c) + ": " + plan.reason);
    return note;
}

/// Returns a plan that was read, of stages or of one, for these machines. *Throws* `input_error` if it is none of the
/// program.
staged_plan planned_for(any_plan made, std::string const& path, program const& p, cluster const& c) {
    auto result = as_staged(std::move(made), path, c);
    if (auto const checked = verify(p, result); !checked) throw input_error(path, checked.problem);
    return result;
}

} // namespace

plan_note plan_for_losses(plan_arguments const& arguments, plan_input const& input, any_plan const& p,
                          attended_run& attended, std::vector<json::staged_file>& files) {
    spare_plans const spares(
        input.model.program, input.cluster, std::get<staged_plan>(p), arguments.spare,
        [&](cluster const& left) { return std::get<staged_plan>(make_plan(arguments, input, left, attended)); });
    for (auto const& [lost, spare] : spares.entries()) {
        if (arguments.out.empty() || !spare.exists() || &spare == &spares.entries().front().plan) continue;
        files.emplace_back(file_for(arguments.out, lost), text_of(spare, arguments));
    }
    return note_of(spares, input.cluster);
}

int run_recover(recover_arguments const& arguments) {
    auto all = read_any_plan(arguments.plan);
    auto from = std::visit([](auto const& p) { return p.provenance; }, all);
    auto model =
        std::visit([&](auto const& p) { return read_planned_model(arguments.model, arguments.inputs, p); }, all);
    auto const c = read_planned_cluster(arguments.cluster, from, model.warnings);
    auto const& p = model.program;
    std::vector<spare_plans::entry> spares;
    auto const read_for = [&](std::vector<std::size_t> const& machines) {
        auto lost = spare_plans::numbers_of(c, machines);
        auto const file = file_for(arguments.plan, lost);
        if (machines.empty()) return std::string(arguments.plan);
        if (!std::filesystem::exists(file))
            throw input_error(file.string(), "is not there: no plan was made for the loss of " + in_words(lost, c) +
                                                 ", expected one that heddle plan --spare " +
                                                 std::to_string(machines.size()) + " wrote");
        auto spare = planned_for(read_any_plan(file.string()), file.string(), p, spare_plans::without(c, lost));
        spares.push_back({std::move(lost), std::move(spare)});
        return file.string();
    };
    auto const file = read_for(arguments.lost);
    if (arguments.lost_before != arguments.lost) read_for(arguments.lost_before);
    spare_plans const library(p, c, planned_for(std::move(all), arguments.plan, p, c), std::move(spares));
    search::deadline const clock;
    auto const found = library.find(arguments.lost, arguments.lost_before);
    double const seconds = clock.elapsed();
    auto const& next = *found.plan;
    auto const& state = found.state;
    for (auto const& w : model.warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
    if (arguments.json) {
        nlohmann::ordered_json out{{"plan", file},
                                   {"cost", next.cost()},
                                   {"stages", next.stages.size()},
                                   {"micro_batches", next.micro_batches},
                                   {"machines", found.machines},
                                   {"stored", state.stored.value},
                                   {"kept", state.kept.value},
                                   {"received", state.received().value},
                                   {"from_checkpoint", state.lost.value}};
        if (arguments.times) out["seconds"] = seconds;
        std::cout << out.dump() << '\n';
        return done;
    }
    auto const gigabytes = [](bytes b) { return detail::fixed(b.value / 1e9, 3) + " GB"; };
    std::string text;
    detail::add_paragraph(text, "lost       ", in_words(spare_plans::numbers_of(c, arguments.lost), c));
    detail::add_paragraph(text, "next plan  ", file);
    detail::add_paragraph(
        text, "seconds    ",
        detail::fixed(next.cost(), detail::decimals_for(next.cost())) + " per iteration, " +
            detail::count(next.stages.size(), "stage") + ", " +
            (next.micro_batches == 1 ? "1 micro-batch" : std::to_string(next.micro_batches) + " micro-batches"));
    detail::add_paragraph(text, "state      ",
                          gigabytes(state.stored) + ", of which " + gigabytes(state.received()) +
                              " move; only lost machines had " + gigabytes(state.lost) +
                              ", which come from a checkpoint");
    if (arguments.times) detail::add_paragraph(text, "looked up  ", "in " + detail::fixed(1e3 * seconds, 3) + " ms");
    detail::text_columns table("rrl");
    table.add({"machine of the plan", "is machine", ""});
    std::vector<machine_group> groups;
    for (auto const& m : c.machines) groups.insert(groups.end(), static_cast<std::size_t>(m.count), m);
    for (std::size_t n = 0; n < found.machines.size(); ++n)
        table.add({std::to_string(n), std::to_string(found.machines[n]), name_of(groups[found.machines[n]], c)});
    print_report(text + '\n' + table.print(2, 0));
    return done;
}

} // namespace heddle::cli
