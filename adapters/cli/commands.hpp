// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The commands of the command line: what each takes, and the statuses they exit with.
#pragma once

#include <heddle/cost/step.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

enum exit_status { done = 0, bad_input = 1, usage = 2, infeasible = 3, nothing_found = 4 };

struct hap_arguments {
    std::string segments, solver = "clp";
    /// Each `NAME=FORM`.
    std::vector<std::string> pins, forbidden{};
    /// `auto`, or the sizes of a mesh's axes, outermost first, with `x`; empty for one axis.
    std::string mesh{};
    bool group_machines = false, overlap = false;
    /// Whether it is said what pins and forbidden forms cost.
    bool why_not = false;
    double bucket = training_options{}.bucket.value;
};

struct hidup_arguments {
    int micro_batches = 2;
    double turn = 0;
    std::optional<std::size_t> labels_per_cut, cuts;
    bool batch_statistics = false;
};

struct amp_arguments {
    std::vector<std::size_t> tensor_degrees;
    std::optional<std::size_t> pipeline, data;
    std::size_t placements = 1000, machine_orders = 48, annealing_steps = 500;
    bool even = false;
};

struct ditto_arguments {
    std::optional<std::int64_t> micro_batch;
    std::string method = "both", split, schedule = "1f1b", reference;
    std::int64_t more_slots = 0;
    bool fold_communication = false, fold_memory = false;
    double across_machines = 0;
    std::size_t beam = 16, slack = 0, exchanges = 40;
    std::optional<std::size_t> most_machines;
};

struct plan_arguments {
    /// `trace` and `html` are files in which the plan and its timeline are shown.
    std::string model, cluster, profile, out, trace, html;
    std::vector<std::string> inputs;
    std::string planner = "joint", layers = "repeats";
    /// Whether no planner was asked for; then device groups are for hap.
    bool is_free = false;
    std::optional<double> time_limit, memory_limit;
    std::optional<std::size_t> label_limit;
    double optimizer_bytes = 8;
    std::string recompute;
    bool master_weights = true;
    /// Of stages: whether devices compute while they send.
    bool sends_beside = false;
    /// Whether the best of each family is shown with where its time goes.
    bool compare = false;
    /// For the loss of how many machines there are plans too.
    int spare = 0;
    /// Of `amp` how many strategies are kept, 10 if that is not said; of `joint` how many plans are to be tried.
    std::optional<std::size_t> record{};
    std::optional<std::int64_t> batch;
    std::string element_type;
    bool json = false, times = true, details = false;
    /// A folder of plans that were made before, and what says which plan is made: options as they were given.
    std::string cache;
    std::vector<std::string> planning;
    /// The plan that training goes on from, and how many iterations pay for what moves.
    std::string from;
    double iterations = 1000;
    /// Whether it is said how far the cluster may change, and what the plan costs on parts of it.
    bool sensitivity = false, sweep = false;
    hap_arguments hap{};
    hidup_arguments hidup{};
    amp_arguments amp{};
    ditto_arguments ditto{};
};
int run_plan(plan_arguments const& arguments);

struct verify_arguments {
    std::string plan, model, cluster;
    std::vector<std::string> inputs;
    std::uint64_t seed = 1;
    /// Bytes that what is run may take, and seconds after which no further piece is begun.
    double run_memory = 1e9, run_seconds = 60;
    bool shrink = false, run = true, json = false, group_machines = false;
};
int run_verify(verify_arguments const& arguments);
int run_verify_pipeline(verify_arguments const& arguments);
int run_verify_stages(verify_arguments const& arguments, std::string const& text);

struct cost_arguments {
    std::string plan, cluster, model;
    /// `changes` are numbers of the cluster, each `PLACE=NUMBER`.
    std::vector<std::string> inputs, changes;
    bool group_machines = false, json = false;
};
int run_cost(cost_arguments const& arguments);

struct diff_arguments {
    std::string one, other;
    bool json = false;
};
int run_diff(diff_arguments const& arguments);

struct export_arguments {
    std::string plan, model, cluster, to, out, plan_out;
    /// Whether the nearest plan that can be expressed is written in place of one that cannot.
    bool nearest = false;
};
int run_export(export_arguments const& arguments);

struct search_arguments {
    std::string theory;
    std::optional<double> time_limit, memory_limit;
    std::size_t label_limit = 4'000'000, solutions = 1;
    bool json = false;
};
int run_search(search_arguments const& arguments);

struct fit_arguments {
    std::string samples, cluster, out, html;
    std::optional<int> ranks;
    bool json = false;
};
int run_fit(fit_arguments const& arguments);

struct calibrate_arguments {
    /// `measured` is a list of plans with their times.
    std::string cluster, measured, out;
    bool json = false;
};
int run_calibrate(calibrate_arguments const& arguments);

struct model_arguments {
    std::string model;
    std::vector<std::string> inputs;
    bool json = false;
};
int run_model(model_arguments const& arguments);

struct train_arguments {
    std::string plan, model, optimizer = "sgd", precision = "float64";
    /// `reference` or `libtorch`, and `cpu` or `cuda`.
    std::string kernels = "reference", device = "cpu";
    /// Launches iterations as a CUDA graph.
    bool graph = false;
    /// Files of parameters and of inputs; what they lack is random.
    std::string weights, data;
    /// Folders of checkpoints: to save at the end, or so many steps apart, and to go on from. Their steps are among
    /// `steps`.
    std::string save, resume;
    std::optional<std::uint64_t> save_every;
    std::uint64_t steps = 10, accumulate = 1, seed = 1;
    /// The optimiser's own rate if none is given.
    std::optional<double> rate;
    double momentum = 0, decay = 0.01, time_out = 300;
    /// The largest norm of all gradients together.
    std::optional<double> clip;
    /// The first scale of gradients in float16.
    double gradient_scale = 32768;
    /// A list of plans that this one is in, which takes its time.
    std::string trials;
    /// Runs the same training on a single device too.
    bool check = false;
    bool json = false;
};
/// Becomes the program heddle-train, which lies beside this one, with the same arguments. *Throws* `file_error` if it
/// cannot.
int run_train(char** argv);

struct profile_arguments {
    std::string model, out, precision = "float32", kernels = "reference";
    /// The type of each rank's device, or of all.
    std::vector<std::string> devices;
    int repeats = 5;
    /// What a measurement takes at least, by repeating the call.
    double least_seconds = 2e-3;
    double time_out = 300;
};
/// Becomes heddle-train as `run_train` does.
int run_profile(char** argv);

struct reshard_arguments {
    std::string from, plan, model, to;
    bool json = false;
};
int run_reshard(reshard_arguments const& arguments);

struct recover_arguments {
    /// The plan that training ran by before anything was lost, beside which those of `heddle plan --spare` are.
    std::string plan, model, cluster;
    std::vector<std::string> inputs;
    /// Machines, by their numbers in the cluster; those of the second were lost before the others.
    std::vector<std::size_t> lost, lost_before{};
    bool json = false, times = true;
};
int run_recover(recover_arguments const& arguments);

} // namespace heddle::cli
