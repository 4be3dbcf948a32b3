// SPDX-License-Identifier: BSL-1.0
// The options of heddle plan, by planner.
#include "plan_options.hpp"
#include "validators.hpp"

#include <heddle/planner/hidup.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli {

void add_input_option(CLI::App& command, std::vector<std::string>& inputs) {
    command
        .add_option("--input", inputs,
                    "Input of a TorchScript module: NAME=4x128:int64, with the real batch; float32 if no type is named")
        ->type_name("NAME=SIZES")
        ->take_all();
}

namespace {

/// Returns the options that say which plan is made, as they were given, in the order of the table.
std::vector<std::string> planning_options_of(CLI::App const& command) {
    static std::set<std::string> const others{"--model", "--cluster", "--profile",  "--out",         "--json",
                                              "--trace", "--html",    "--no-times", "--cache",       "--details",
                                              "--spare", "--from",    "--sweep",    "--sensitivity", "--why-not"};
    std::vector<std::string> texts;
    auto const add = [&](CLI::App const& of) {
        for (auto const* option : of.get_options()) {
            if (option->count() == 0 || others.contains(option->get_name())) continue;
            auto& text = texts.emplace_back(option->get_name());
            for (auto const& value : option->results()) text += ' ' + value;
        }
    };
    add(command);
    for (auto const* group : command.get_subcommands([](CLI::App const* a) { return a->get_name().empty(); }))
        add(*group);
    return texts;
}

} // namespace

void add_plan_options(CLI::App& command, plan_arguments& plan) {
    command.add_option("--model", plan.model, "Model file")->type_name("FILE");
    add_input_option(command, plan.inputs);
    command.add_option("--cluster", plan.cluster, "Cluster file")->type_name("FILE");
    command
        .add_option(
            "--profile", plan.profile,
            "For amp and ditto, in place of model and cluster: layer profile, or layers and machines for templates")
        ->type_name("FILE");
    command
        .add_option("--planner", plan.planner,
                    "Planner; without it hap for what hap alone has options for, and for device groups")
        ->check(CLI::IsMember({"hap", "hidup", "amp", "ditto", "joint"}))
        ->capture_default_str();
    command.add_option("--memory-limit", plan.memory_limit, "Bytes that a device may use at most")
        ->type_name("BYTES")
        ->check(positive);
    command.add_option("--optimizer-bytes", plan.optimizer_bytes, "Bytes of optimizer state per parameter element")
        ->type_name("BYTES")
        ->check(up_to(1024))
        ->capture_default_str();
    command
        .add_option_function<std::string>(
            "--optimizer",
            [&](std::string const& name) { plan.optimizer_bytes = name == "adam"       ? 8
                                                                  : name == "momentum" ? 4
                                                                                       : 0; },
            "Optimizer, for the bytes of its state in float32")
        ->check(CLI::IsMember({"sgd", "momentum", "adam"}))
        ->excludes("--optimizer-bytes");
    command.add_flag("!--no-master-weights", plan.master_weights,
                     "The optimizer holds no float32 copy of parameters in half precision");
    command.add_option("--batch", plan.batch, "Another size of the batch")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
    command.add_option("--dtype", plan.element_type, "Another type of the floating-point tensors")
        ->type_name("TYPE")
        ->check(CLI::IsMember({"float32", "float16", "bfloat16", "float64"}));
    command.add_option("--out", plan.out, "Write the plan to this file")->type_name("FILE");
    command.add_flag("--json", plan.json, "Print one JSON object instead of the table");
    command.add_flag("!--no-times", plan.times, "Leave out what differs from run to run");
    command.add_option("--time-limit", plan.time_limit, "Stop after this many seconds with the best found")
        ->type_name("SECONDS")
        ->check(positive);

    command
        .add_option("--cache", plan.cache,
                    "Folder of plans made before, read where model, cluster, options and version are the same")
        ->type_name("FOLDER");

    auto* const joint = command.add_option_group("joint", "Options of the planner joint");
    joint->add_flag("--sends-beside", plan.sends_beside, "Stages compute while they send to each other");
    joint->add_flag("--compare", plan.compare, "Show where the time of the best of each family goes");
    joint->add_option("--spare", plan.spare, "Plan for the loss of up to N machines too, into files beside --out")
        ->type_name("N")
        ->check(CLI::Range(1, 3));

    auto* const recorded = command.add_option_group("recorded", "Options of the planners amp and joint");
    recorded
        ->add_option("--record", plan.record,
                     "amp: best strategies kept, which bounds the search (default 10); joint: best plans of different "
                     "families written to files beside --out, to be tried")
        ->type_name("N")
        ->check(positive);

    auto* const recomputed = command.add_option_group("recomputed", "Options of the planners hap and joint");
    recomputed
        ->add_option("--recompute", plan.recompute,
                     "What of activations is made again for the backward pass: 'selective', what is cheap to make, or "
                     "'full'; without it hap holds all, and joint does as memory asks")
        ->check(CLI::IsMember({"none", "selective", "full"}));

    auto* const hap = command.add_option_group("hap", "Options of the planner hap");
    hap->add_flag("--group-machines", plan.hap.group_machines, "Plan each machine as one device, data parallel inside");
    hap->add_option(
           "--mesh", plan.hap.mesh,
           "Plan machines and their devices as the axes of a mesh, such as 8x4: 8 machines of 4; on three axes, "
           "such as 2x4x4; or on all meshes that there are")
        ->type_name("MxD|auto")
        ->check(mesh_or_auto);
    hap->add_option(
        "--segments", plan.hap.segments,
        "Ratios per segment: 'layers', a number of balanced parts, or names of first operators, with commas");
    hap->add_option("--solver", plan.hap.solver,
                    "Of ratios: 'clp', or 'ipopt', which follows efficiencies that are not convex too")
        ->check(CLI::IsMember({"clp", "ipopt"}))
        ->capture_default_str();
    hap->add_flag("--gradient-overlap", plan.hap.overlap, "Reduce gradients beside the backward pass, not after it");

    auto* const forms = command.add_option_group("forms", "Options of the planners hap, hidup and joint");
    forms
        ->add_option("--pin", plan.hap.pins,
                     "Form of a tensor: NAME=replicated, NAME=mirrored, NAME=partial, NAME=shard(DIMENSION) or "
                     "NAME=shard(DIMENSION.FACTOR); on a mesh one for each axis, with commas, where 'any' is no form")
        ->type_name("NAME=FORM")
        ->take_all();
    forms->add_option("--forbid", plan.hap.forbidden, "Form that a tensor may not have, written as for --pin")
        ->type_name("NAME=FORM")
        ->take_all();
    forms->add_flag("--why-not", plan.hap.why_not,
                    "Plan without --pin and --forbid too, and say by term what they cost");

    auto* const buckets = command.add_option_group("buckets", "Options of the planners hap and hidup");
    buckets->add_option("--bucket", plan.hap.bucket, "Bytes of gradients that are reduced together; 0: each on its own")
        ->type_name("BYTES")
        ->check(up_to(1e15))
        ->capture_default_str();

    auto* const shown = command.add_option_group("shown", "Options of the planners hap, hidup and joint");
    shown->add_flag("--details", plan.details, "Print operators, memory by kind, and the search too");
    shown->add_option("--trace", plan.trace, "Write the timeline of one iteration to this file (Chrome trace)")
        ->type_name("FILE");
    shown->add_option("--html", plan.html, "Write the plan and its timeline to this file as a page for browsers")
        ->type_name("FILE");

    auto* const from =
        shown
            ->add_option("--from", plan.from,
                         "The plan that training goes on from: it is kept unless another pays for what has to move")
            ->type_name("FILE");
    shown->add_option("--iterations", plan.iterations, "Iterations that are to pay for what moves")
        ->needs(from)
        ->type_name("N")
        ->check(positive)
        ->capture_default_str();
    shown->add_flag(
        "--sensitivity", plan.sensitivity,
        "Say how far bandwidths, speeds and memories may change before the strategy does, by planning anew");
    shown->add_flag("--sweep", plan.sweep,
                    "Plan on parts of the cluster too, and say what an iteration takes over devices");

    auto* const hidup = command.add_option_group("hidup", "Options of the planner hidup");
    hidup->add_option("--micro-batches", plan.hidup.micro_batches, "Parts of the batch that take turns")
        ->check(CLI::Range(2, 64))
        ->capture_default_str();
    hidup->add_option("--turn", plan.hidup.turn, "Seconds to turn from one part to the next")
        ->type_name("SECONDS")
        ->check(up_to(1e3))
        ->capture_default_str();
    hidup
        ->add_option("--labels-per-cut", plan.hidup.labels_per_cut,
                     "Labels expanded per cut; more take longer and prove more")
        ->check(positive)
        ->default_str(std::to_string(hidup_options().planning.synthesis.beam));
    hidup
        ->add_option("--cuts", plan.hidup.cuts,
                     "Cuts of equally many operators that are kept, each some orders of them")
        ->check(positive)
        ->default_str(std::to_string(hidup_options().planning.cuts));
    hidup->add_flag("--batch-statistics", plan.hidup.batch_statistics,
                    "Allow batch norms, whose statistics are then those of each part");

    auto* const limited = command.add_option_group("limited", "Options of the planners hap, hidup and ditto");
    limited
        ->add_option("--label-limit", plan.label_limit,
                     "Labels a search keeps at most; without it 10000 in hap, any number in ditto")
        ->check(positive);

    auto* const pipelines = command.add_option_group("pipelines", "Options of the planners amp and ditto");
    pipelines
        ->add_option("--layers", plan.layers,
                     "Layers of a model: 'repeats', 'names', a number of balanced ones, or prefixes of parameters' "
                     "names, with commas")
        ->capture_default_str();

    auto* const amp = command.add_option_group("amp", "Options of the planner amp");
    amp->add_option("--pipeline-degree", plan.amp.pipeline, "Stages")->check(positive);
    amp->add_option("--data-degree", plan.amp.data, "Copies of the model")->check(positive);
    amp->add_option("--tensor-degrees", plan.amp.tensor_degrees, "Devices that share a layer, numbers with commas")
        ->type_name("LIST")
        ->delimiter(',')
        ->check(positive);
    amp->add_flag("--even", plan.amp.even, "Only copies with equal numbers of samples");
    amp->add_option("--placements", plan.amp.placements, "All placements of a shape are tried if there are no more")
        ->capture_default_str();
    amp->add_option("--machine-orders", plan.amp.machine_orders, "Else so many orders of machines")
        ->check(positive)
        ->capture_default_str();
    amp->add_option("--annealing-steps", plan.amp.annealing_steps, "Steps of annealing afterwards")
        ->capture_default_str();

    auto* const ditto = command.add_option_group("ditto", "Options of the planner ditto");
    ditto
        ->add_option("--micro-batch", plan.ditto.micro_batch,
                     "Samples of a model's micro-batch; without it all that divide the batch are tried")
        ->check(positive);
    ditto->add_option("--method", plan.ditto.method, "Fold and recover, the exact optimum, or both")
        ->check(CLI::IsMember({"recover", "exact", "both"}))
        ->capture_default_str();
    ditto
        ->add_option("--split", plan.ditto.split,
                     "How stages share a machine; without it 'halves', or as the profile says")
        ->check(CLI::IsMember({"halves", "free"}));
    ditto->add_option("--schedule", plan.ditto.schedule, "What an iteration is taken to cost")
        ->check(CLI::IsMember({"1f1b", "oobleck"}))
        ->capture_default_str();
    ditto->add_option("--more-slots", plan.ditto.more_slots, "Slots of the slowest stage added to Oobleck's estimate")
        ->check(CLI::Range(-65536, 65536))
        ->capture_default_str();
    ditto
        ->add_option("--reference", plan.ditto.reference,
                     "Device type that machines are folded onto; without it the slowest")
        ->type_name("TYPE");
    ditto->add_flag("--fold-communication", plan.ditto.fold_communication, "Fold with what devices tell each other");
    ditto
        ->add_option("--across-machines", plan.ditto.across_machines,
                     "Seconds for each machine more that shares the layers, when folding with communication")
        ->type_name("SECONDS")
        ->check(up_to(1e9));
    ditto->add_flag("--fold-memory", plan.ditto.fold_memory, "Fold no more than memory holds");
    ditto->add_option("--beam", plan.ditto.beam, "Orders of devices followed in recovery")
        ->check(positive)
        ->capture_default_str();
    ditto
        ->add_option("--slack", plan.ditto.slack, "Folded devices that a stage may have more or fewer than it is worth")
        ->capture_default_str();
    ditto->add_option("--exchanges", plan.ditto.exchanges, "Exchanges of machines tried after recovery")
        ->capture_default_str();
    ditto
        ->add_option("--most-machines", plan.ditto.most_machines,
                     "Of a profile: equal copies of a template of so many machines at most")
        ->check(positive);

    command.parse_complete_callback([&command, &plan, joint, recorded, recomputed, hap, forms, buckets, shown, hidup,
                                     limited, pipelines, amp, ditto] {
        plan.is_free = command.count("--planner") == 0;
        for (auto const* group : {hap, buckets, limited})
            for (auto const* option : group->get_options())
                if (plan.is_free && option->count() > 0) plan.planner = "hap";
        auto const allow = [&](CLI::App const& group, std::initializer_list<char const*> planners) {
            if (std::ranges::find(planners, plan.planner) != planners.end()) return;
            for (auto const* option : group.get_options())
                if (option->count() > 0) throw CLI::ValidationError(option->get_name(), "is no option of this planner");
        };
        allow(*joint, {"joint"});
        allow(*recorded, {"amp", "joint"});
        allow(*recomputed, {"hap", "joint"});
        if (plan.planner == "joint" && plan.record) {
            if (plan.out.empty()) throw CLI::ValidationError("--record", "needs --out, beside which plans are written");
            if (!plan.cache.empty()) throw CLI::ValidationError("--record", "is not for plans from a --cache");
        }
        allow(*hap, {"hap"});
        for (char const* name : {"--group-machines", "--segments", "--label-limit"})
            if (!plan.hap.mesh.empty() && command.count(name) > 0)
                throw CLI::ValidationError(name, "is no option of plans on meshes");
        allow(*forms, {"hap", "hidup", "joint"});
        allow(*buckets, {"hap", "hidup"});
        allow(*shown, {"hap", "hidup", "joint"});
        allow(*hidup, {"hidup"});
        allow(*limited, {"hap", "hidup", "ditto"});
        allow(*pipelines, {"amp", "ditto"});
        allow(*amp, {"amp"});
        allow(*ditto, {"ditto"});
        if (plan.hap.why_not && plan.hap.pins.empty() && plan.hap.forbidden.empty())
            throw CLI::ValidationError("--why-not", "needs --pin or --forbid");
        auto const file = [](std::string const& name) { return std::filesystem::path(name).lexically_normal(); };
        std::map<std::filesystem::path, std::string> written;
        for (auto const& [option, name] :
             {std::pair<std::string, std::string>("--out", plan.out), {"--trace", plan.trace}, {"--html", plan.html}})
            if (!name.empty() && !written.try_emplace(file(name), option).second)
                throw CLI::ValidationError(option, "is the file that " + written.at(file(name)) + " writes");
        auto const refuse = [&](std::initializer_list<char const*> options, char const* why) {
            for (auto const* option : options)
                if (command.count(option) > 0) throw CLI::ValidationError(option, why);
        };
        plan.planning = planning_options_of(command);
        if (plan.profile.empty()) {
            for (auto const* option : {"--model", "--cluster"})
                if (command.count(option) == 0) throw CLI::RequiredError(option);
            return refuse({"--most-machines"}, "needs a profile");
        }
        if (plan.planner == "hap" || plan.planner == "hidup" || plan.planner == "joint")
            refuse({"--profile"}, "is no option of this planner");
        refuse({"--model", "--input", "--cluster", "--cache", "--layers", "--micro-batch", "--dtype",
                "--optimizer-bytes", "--optimizer", "--no-master-weights"},
               "is not for a profile");
        if (plan.planner == "ditto") refuse({"--batch"}, "is not for a profile");
    });
}

} // namespace heddle::cli
