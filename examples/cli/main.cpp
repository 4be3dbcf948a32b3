// SPDX-License-Identifier: BSL-1.0
// The command `heddle`: parses arguments, runs one command, turns what it throws into one line.
#include "commands.hpp"

#include <heddle/base/error.hpp>
#include <heddle/plan/plan.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <exception>
#include <iostream>
#include <new>

namespace heddle::cli {

bool is_watched() { return isatty(STDERR_FILENO) == 1; }

namespace {

void add_limits(CLI::App& command, std::optional<double>& time_limit, std::size_t& label_limit) {
    command.add_option("--time-limit", time_limit, "Stop after this many seconds with the best found")->check(CLI::PositiveNumber);
    command.add_option("--label-limit", label_limit, "Labels a search keeps at most")->check(CLI::PositiveNumber)->capture_default_str();
}

int run(int argc, char** argv) {
    CLI::App app{"Plans how a neural-network training program is split over unequal devices"};
    app.set_version_flag("--version", std::string("heddle ") + library_version);
    app.require_subcommand(1);
    int status = done;

    plan_arguments plan;
    auto* const plan_command = app.add_subcommand("plan", "Plan a model on a cluster");
    plan_command->add_option("--model", plan.model, "Model file")->required();
    plan_command->add_option("--cluster", plan.cluster, "Cluster file")->required();
    plan_command->add_flag("--group-machines", plan.group_machines, "Plan each machine as one device, data parallel inside");
    plan_command->add_option("--planner", plan.planner, "Planner")->check(CLI::IsMember({"hap", "hidup"}))->capture_default_str();
    plan_command->add_option("--memory-limit", plan.memory_limit, "Bytes that a device may use at most")->check(CLI::PositiveNumber);
    plan_command->add_option("--optimizer-bytes", plan.optimizer_bytes, "Bytes of optimizer state per parameter element")
        ->check(CLI::Range(0.0, 1024.0))->capture_default_str();
    plan_command->add_option_function<std::string>("--optimizer", [&](std::string const& name) { plan.optimizer_bytes = name == "adam" ? 8 : name == "momentum" ? 4 : 0; },
                                                   "Optimizer, for the bytes of its state in float32")
        ->check(CLI::IsMember({"sgd", "momentum", "adam"}))->excludes("--optimizer-bytes");
    plan_command->add_option("--batch", plan.batch, "Another size of the batch")->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
    plan_command->add_option("--dtype", plan.element_type, "Another type of the floating-point tensors")->check(CLI::IsMember({"float32", "float16", "bfloat16", "float64"}));
    plan_command->add_option("--segments", plan.segments, "Ratios per segment: 'layers', a number of balanced parts, or names of first operators, with commas");
    plan_command->add_option("--pin", plan.pins, "Form of a tensor: NAME=replicated, NAME=mirrored, NAME=partial or NAME=shard(DIMENSION)")->take_all();
    plan_command->add_flag("--gradient-overlap", plan.overlap, "Reduce gradients beside the backward pass, not after it");
    plan_command->add_option("--micro-batches", plan.micro_batches, "hidup: parts of the batch that take turns")->check(CLI::Range(2, 64))->capture_default_str();
    plan_command->add_option("--turn", plan.turn, "hidup: seconds to turn from one part to the next")->check(CLI::Range(0.0, 1e3))->capture_default_str();
    plan_command->add_option("--beam", plan.beam, "hidup: labels expanded per cut; more take longer and prove more")->check(CLI::PositiveNumber);
    plan_command->add_flag("--batch-statistics", plan.batch_statistics, "hidup: allow batch norms, whose statistics are then those of each part");
    plan_command->add_option("--out", plan.out, "Write the plan to this file");
    plan_command->add_option("--trace", plan.trace, "Write the timeline of one iteration to this file (Chrome trace)");
    plan_command->add_flag("--json", plan.json, "Print one JSON object instead of the table");
    plan_command->add_flag("!--no-times", plan.times, "Leave out what differs from run to run");
    add_limits(*plan_command, plan.time_limit, plan.label_limit);
    plan_command->final_callback([&] { status = run_plan(plan); });

    verify_arguments verify;
    auto* const verify_command = app.add_subcommand("verify", "Re-derive that a plan computes what its model does, then run both");
    verify_command->add_option("--plan", verify.plan, "Plan file")->required();
    verify_command->add_option("--model", verify.model, "Model file")->required();
    verify_command->add_option("--seed", verify.seed, "Seed of the random data both are run on")->capture_default_str();
    auto* const shrink = verify_command->add_flag("--shrink", verify.shrink, "Run with smaller dimensions but every operator, form and share");
    verify_command->add_flag("!--no-run", verify.run, "Run nothing")->excludes(shrink);
    verify_command->add_flag("--json", verify.json, "Print one JSON object");
    verify_command->final_callback([&] { status = run_verify(verify); });

    cost_arguments cost;
    auto* const cost_command = app.add_subcommand("cost", "Price a plan on this or another cluster");
    cost_command->add_option("--plan", cost.plan, "Plan file")->required();
    cost_command->add_option("--cluster", cost.cluster, "Cluster file")->required();
    cost_command->add_flag("--group-machines", cost.group_machines, "Take each machine as one device");
    cost_command->add_flag("--json", cost.json, "Print one JSON object");
    cost_command->final_callback([&] { status = run_cost(cost); });

    search_arguments search;
    auto* const search_command = app.add_subcommand("search", "Find the cheapest program of a bare theory");
    search_command->add_option("--theory", search.theory, "Theory file")->required();
    search_command->add_option("--solutions", search.solutions, "Cheapest programs to find")->check(CLI::PositiveNumber)->capture_default_str();
    search_command->add_option("--memory-limit", search.memory_limit, "Bytes that the search's labels may take")->check(CLI::PositiveNumber);
    search_command->add_flag("--json", search.json, "Print one JSON object");
    add_limits(*search_command, search.time_limit, search.label_limit);
    search_command->final_callback([&] { status = run_search(search); });

    fit_arguments fit;
    auto* const fit_command = app.add_subcommand("fit", "Fit models of collectives and operators to measurements");
    fit_command->add_option("--samples", fit.samples, "Samples file (CSV)")->required();
    fit_command->add_option("--cluster", fit.cluster, "Put the models into this cluster");
    fit_command->add_option("--ranks", fit.ranks, "Write the collectives on this number of ranks")->check(CLI::Range(1, 65536));
    fit_command->add_option("--out", fit.out, "Write the models, or the cluster with them, to this file");
    fit_command->add_flag("--json", fit.json, "Print one JSON object instead of the table");
    fit_command->final_callback([&] { status = run_fit(fit); });

    try {
        app.parse(argc, argv);
    } catch (CLI::ParseError const& e) {
        if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(e);
        std::cerr << "heddle: " << e.what() << "; heddle --help says more\n";
        return usage;
    }
    return status;
}

} // namespace
} // namespace heddle::cli

int main(int argc, char** argv) {
    try {
        return heddle::cli::run(argc, argv);
    } catch (heddle::error const& e) {
        std::cerr << "heddle: " << e.what() << '\n';
    } catch (std::bad_alloc const&) {
        std::cerr << "heddle: out of memory\n";
    }
    return heddle::cli::bad_input;
}
