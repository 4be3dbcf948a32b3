// SPDX-License-Identifier: BSL-1.0
// The command `heddle` parses arguments, runs one command, and turns what it throws into one line.
#include "commands.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "plan_options.hpp"
#include "torchscript.hpp"
#include "train_options.hpp"
#include "usage.hpp"
#include "validators.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/plan/plan.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace heddle::cli {

namespace {

/// Names the files of a run in what it refuses, unless the message begins with one of them or with an option.
template <class Run>
int of_files(std::string const& place, std::initializer_list<std::string_view> files, Run&& run) {
    try {
        return run();
    } catch (input_error const& e) {
        std::string_view const message = e.what();
        auto const names = [&](std::string_view file) {
            return !file.empty() && message.starts_with(printable(file, file.size()));
        };
        if (message.starts_with("--") || std::ranges::any_of(files, names)) throw;
        throw input_error(place, e.what());
    }
}

int run(int argc, char** argv) {
    CLI::App app{"Plans how a neural-network training program is split over unequal devices", "heddle"};
    app.formatter(std::make_shared<help_formatter>());
    app.set_version_flag("--version", std::string("heddle ") + library_version);
    app.require_subcommand(1);
    int status = done;

    plan_arguments plan;
    auto* const plan_command = app.add_subcommand("plan", "Plan a model on a cluster");
    add_plan_options(*plan_command, plan);
    plan_command->final_callback([&] {
        status = of_files(plan.profile.empty() ? plan.model + " on " + plan.cluster : plan.profile,
                          {plan.model, plan.cluster, plan.profile}, [&] { return run_plan(plan); });
    });

    verify_arguments verify;
    auto* const verify_command =
        app.add_subcommand("verify", "Re-derive that a plan computes what its model does, then run both");
    verify_command->add_option("--plan", verify.plan, "Plan file")->type_name("FILE")->required();
    verify_command->add_option("--model", verify.model, "Model file")->type_name("FILE")->required();
    add_input_option(*verify_command, verify.inputs);
    auto* const on =
        verify_command
            ->add_option("--cluster", verify.cluster, "Cluster file, to derive every second and byte of the plan anew")
            ->type_name("FILE");
    verify_command->add_flag("--group-machines", verify.group_machines, "Take each of its machines as one device")
        ->needs(on);
    verify_command->add_option("--seed", verify.seed, "Seed of the random data both are run on")->capture_default_str();
    auto* const shrink = verify_command->add_flag("--shrink", verify.shrink,
                                                  "Run with smaller dimensions but every operator, form and share");
    verify_command
        ->add_option("--run-memory", verify.run_memory, "Bytes that what is run at once may take, as estimated")
        ->type_name("BYTES")
        ->check(positive)
        ->capture_default_str();
    verify_command->add_option("--run-seconds", verify.run_seconds, "Seconds after which no further piece is begun")
        ->type_name("SECONDS")
        ->check(positive)
        ->capture_default_str();
    verify_command->add_flag("!--no-run", verify.run, "Run nothing")->excludes(shrink);
    verify_command->add_flag("--json", verify.json, "Print one JSON object");
    verify_command->final_callback([&] {
        status = of_files(verify.plan, {verify.plan, verify.model, verify.cluster}, [&] { return run_verify(verify); });
    });

    cost_arguments cost;
    auto* const cost_command = app.add_subcommand("cost", "Price a plan on this or another cluster");
    cost_command->add_option("--plan", cost.plan, "Plan file")->type_name("FILE")->required();
    cost_command->add_option("--cluster", cost.cluster, "Cluster file")->type_name("FILE")->required();
    cost_command->add_option("--model", cost.model, "Model file, of a pipeline plan")->type_name("FILE");
    add_input_option(*cost_command, cost.inputs);
    cost_command
        ->add_option("--set", cost.changes,
                     "Another number of the cluster, such as inter.bandwidth=25e9 or V100.memory=32e9; may be repeated")
        ->type_name("PLACE=N")
        ->take_all();
    cost_command->add_flag("--group-machines", cost.group_machines, "Take each machine as one device");
    cost_command->add_flag("--json", cost.json, "Print one JSON object");
    cost_command->final_callback([&] {
        status = of_files(cost.plan + " on " + cost.cluster, {cost.plan, cost.model, cost.cluster},
                          [&] { return run_cost(cost); });
    });

    diff_arguments diff;
    auto* const diff_command = app.add_subcommand("diff", "Say in what two plans differ, and what that costs");
    diff_command->add_option("ONE", diff.one, "Plan file")->type_name("FILE")->required();
    diff_command->add_option("OTHER", diff.other, "Plan file")->type_name("FILE")->required();
    diff_command->add_flag("--json", diff.json, "Print one JSON object");
    diff_command->final_callback([&] {
        status = of_files(diff.one + " and " + diff.other, {diff.one, diff.other}, [&] { return run_diff(diff); });
    });

    export_arguments exported;
    auto* const export_command = app.add_subcommand("export", "Write a plan as arguments of another framework");
    export_command->add_option("--plan", exported.plan, "Plan file")->type_name("FILE")->required();
    export_command->add_option("--to", exported.to, "What to write for")
        ->check(CLI::IsMember({"megatron", "deepspeed", "torchtitan", "dtensor", "shardy"}))
        ->required();
    auto* const exported_model =
        export_command
            ->add_option("--model", exported.model,
                         "Model file: for strategies of layers, for --nearest, and for dtensor, what modules do")
            ->type_name("FILE");
    auto* const exported_cluster =
        export_command->add_option("--cluster", exported.cluster, "Cluster file")->type_name("FILE");
    auto* const nearest = export_command
                              ->add_flag("--nearest", exported.nearest,
                                         "In place of a plan that cannot be expressed write the cheapest well-known "
                                         "strategy that can")
                              ->needs(exported_model)
                              ->needs(exported_cluster);
    exported_cluster->needs(nearest);
    export_command->add_option("--out", exported.out, "Write to this file, not to standard output")->type_name("FILE");
    export_command->add_option("--plan-out", exported.plan_out, "Write the plan that was expressed to this file")
        ->type_name("FILE")
        ->needs(nearest);
    export_command->final_callback([&] {
        status = of_files(exported.plan, {exported.plan, exported.model}, [&] { return run_export(exported); });
    });

    search_arguments search;
    auto* const search_command = app.add_subcommand("search", "Find the cheapest program of a bare theory");
    search_command->add_option("--theory", search.theory, "Theory file")->type_name("FILE")->required();
    search_command->add_option("--solutions", search.solutions, "Cheapest programs to find")
        ->check(positive)
        ->capture_default_str();
    search_command->add_option("--memory-limit", search.memory_limit, "Bytes that the search's labels may take")
        ->type_name("BYTES")
        ->check(positive);
    search_command->add_flag("--json", search.json, "Print one JSON object");
    search_command->add_option("--time-limit", search.time_limit, "Stop after this many seconds with the best found")
        ->type_name("SECONDS")
        ->check(positive);
    search_command->add_option("--label-limit", search.label_limit, "Labels a search keeps at most")
        ->check(positive)
        ->capture_default_str();
    search_command->final_callback([&] { status = run_search(search); });

    fit_arguments fit;
    auto* const fit_command = app.add_subcommand("fit", "Fit models of collectives and operators to measurements");
    fit_command->add_option("--samples", fit.samples, "Samples file (CSV)")->type_name("FILE")->required();
    fit_command->add_option("--cluster", fit.cluster, "Put the models into this cluster")->type_name("FILE");
    fit_command->add_option("--ranks", fit.ranks, "Write the collectives on this number of ranks")
        ->check(CLI::Range(1, 65536));
    fit_command->add_option("--out", fit.out, "Write the models, or the cluster with them, to this file")
        ->type_name("FILE");
    fit_command
        ->add_option("--html", fit.html, "Write predicted and measured times to this file as a page for browsers")
        ->type_name("FILE");
    fit_command->add_flag("--json", fit.json, "Print one JSON object instead of the table");
    fit_command->final_callback(
        [&] { status = of_files(fit.samples, {fit.samples, fit.cluster}, [&] { return run_fit(fit); }); });

    calibrate_arguments calibrated;
    auto* const calibrate_command =
        app.add_subcommand("calibrate", "Fit a cluster's speeds and links to the times of plans that were run");
    calibrate_command->add_option("--cluster", calibrated.cluster, "Cluster file")->type_name("FILE")->required();
    calibrate_command
        ->add_option("--measured", calibrated.measured,
                     "List of plans with the seconds of an iteration (CSV), as heddle plan --record begins it")
        ->type_name("FILE")
        ->required();
    calibrate_command->add_option("--out", calibrated.out, "Write the cluster, as it was found to be, to this file")
        ->type_name("FILE");
    calibrate_command->add_flag("--json", calibrated.json, "Print one JSON object");
    calibrate_command->final_callback([&] {
        status = of_files(calibrated.measured, {calibrated.measured, calibrated.cluster},
                          [&] { return run_calibrate(calibrated); });
    });

    model_arguments model;
    auto* const model_command =
        app.add_subcommand("model", "Summarise a model: operators, parameters, work, memory, repeats, atoms");
    model_command->add_option("FILE", model.model, "Model file")->type_name("FILE")->required();
    add_input_option(*model_command, model.inputs);
    model_command->add_flag("--json", model.json, "Print one JSON object");
    model_command->final_callback([&] { status = run_model(model); });

    train_arguments train;
    add_train_options(app, train)->final_callback([&] { status = run_train(argv); });

    profile_arguments profile;
    add_profile_options(app, profile)->final_callback([&] { status = run_profile(argv); });

    reshard_arguments reshard;
    auto* const reshard_command =
        app.add_subcommand("reshard", "Save a checkpoint as another plan's ranks would, and count the bytes that move");
    reshard_command->add_option("--from", reshard.from, "Folder of the checkpoint")->type_name("FOLDER")->required();
    reshard_command->add_option("--plan", reshard.plan, "Plan file")->type_name("FILE")->required();
    reshard_command->add_option("--model", reshard.model, "Model file")->type_name("FILE")->required();
    reshard_command->add_option("--to", reshard.to, "Folder to save it in")->type_name("FOLDER")->required();
    reshard_command->add_flag("--json", reshard.json, "Print one JSON object");
    reshard_command->final_callback([&] {
        status = of_files(reshard.plan, {reshard.plan, reshard.model, reshard.from, reshard.to},
                          [&] { return run_reshard(reshard); });
    });

    recover_arguments recover;
    auto* const recover_command = app.add_subcommand(
        "recover", "Look up what to go on with after a loss of machines, and count the bytes that move");
    recover_command->add_option("--plan", recover.plan, "Plan file, which heddle plan --spare --out wrote")
        ->type_name("FILE")
        ->required();
    recover_command->add_option("--model", recover.model, "Model file")->type_name("FILE")->required();
    recover_command->add_option("--cluster", recover.cluster, "Cluster file, with all machines")
        ->type_name("FILE")
        ->required();
    recover_command->add_option("--lost", recover.lost, "Lost machines, counted from 0 in the cluster file")
        ->type_name("M,N")
        ->delimiter(',')
        ->check(up_to(65535))
        ->required();
    recover_command
        ->add_option("--lost-before", recover.lost_before, "Of these, those lost before: training went on without them")
        ->type_name("M,N")
        ->delimiter(',')
        ->check(up_to(65535));
    add_input_option(*recover_command, recover.inputs);
    recover_command->add_flag("--json", recover.json, "Print one JSON object");
    recover_command->add_flag("!--no-times", recover.times, "Leave out what differs from run to run");
    recover_command->final_callback([&] {
        status = of_files(recover.plan, {recover.plan, recover.model, recover.cluster},
                          [&] { return run_recover(recover); });
    });

    add_help(app);

    try {
        app.parse(argc, argv);
    } catch (CLI::ParseError const& e) {
        if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(e);
        std::cerr << "heddle: " << explain(app, e) << '\n';
        return usage;
    }
    return status;
}

} // namespace
} // namespace heddle::cli

int main(int argc, char** argv) {
    heddle::cli::keep_arguments(argv);
    std::signal(SIGPIPE, SIG_IGN); // who reads no further has not made the command fail
    try {
        int const status = heddle::cli::run(argc, argv);
        heddle::cli::finish_printing();
        return status;
    } catch (heddle::error const& e) { std::cerr << "heddle: " << e.what() << '\n'; } catch (std::bad_alloc const&) {
        std::cerr << "heddle: out of memory\n";
    } catch (std::exception const& e) { // the system's: no threads, no space
        std::cerr << "heddle: " << heddle::printable(e.what(), 1000) << '\n';
    }
    return heddle::cli::bad_input;
}
