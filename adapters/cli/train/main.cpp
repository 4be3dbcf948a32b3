// SPDX-License-Identifier: BSL-1.0
// The command `heddle-train`, which `heddle train` and `heddle profile` become: trains a model as a plan says, in
// threads of one process or, started by mpirun, as one rank of a job; or measures there.
#include "checkpoints.hpp"
#include "given_values.hpp"
#include "measure.hpp"
#include "profile.hpp"
#include "train.hpp"

#include "../program_beside.hpp"
#include "../torchscript.hpp"
#include "../train_options.hpp"
#include "../usage.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/trials.hpp>
#include <heddle/theory/batch_split.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/all.hpp>
#endif

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace heddle::cli {

json::model read_torchscript(std::string const& path, std::vector<torchscript_input> const&) {
    throw input_error(path, "is a TorchScript module, which is planned but not trained; export it with "
                            "adapters/libtorch/export_pt2.py");
}

namespace {

/// Returns the number of a plan in a list of plans to try, of which this is the text.
std::size_t find_trial(std::string const& text, std::string const& list, std::string const& plan) {
    auto const trials = json::parse_trials(text, list);
    auto const folder = std::filesystem::path(list).parent_path();
    for (std::size_t n = 0; n < trials.size(); ++n) {
        std::error_code missing;
        if (std::filesystem::equivalent(folder / trials[n].plan, plan, missing)) return n;
    }
    throw input_error("--trials " + list, "has no line for " + plan);
}

/// Reads a plan and its model, and checks them and the files of given values and of the checkpoint.
training read(train_arguments const& a) {
    auto result = read_training(a.plan, a.model);
    given_values const checked_files(a, result.model.program);
    checkpoints const checked_folders(a, result);
    return result;
}

/// What an iteration has of: tokens if an input has several whole numbers a sample, else samples.
std::pair<char const*, double> counted(program const& p) {
    double tokens = 0;
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (auto const& info = p.tensor(t);
            info.role == tensor_role::input && !is_floating(info.type) && info.shape.size() > 1)
            tokens = std::max(tokens, static_cast<double>(count_elements(info.shape)));
    if (tokens > 0) return {"tokens", tokens};
    return {"samples", static_cast<double>(split_along_batch(index_program(p)).places)};
}

/// Prints steps as they come, or one object at the end.
class report {
public:
    report(train_arguments const& a, training const& what)
        : arguments_(a), what_(counted(what.model.program)),
          per_step_(what_.second * static_cast<double>(a.accumulate)) {
        if (!a.trials.empty()) {
            static_cast<void>(find_trial(json::read_text(a.trials), a.trials, a.plan));
            json::require_writable(a.trials);
        }
        if (a.json) return;
        for (auto const& w : what.model.warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
        std::printf("%s on %zu ranks, %s, %s\n%6s %22s %10s %14s%s\n", printable(what.model.name).c_str(), what.ranks(),
                    a.optimizer.c_str(), a.precision.c_str(), "step", "loss", "seconds",
                    (std::string(what_.first) + "/s").c_str(), a.check ? "   single device" : "");
    }

    void operator()(train_step const& s) {
        steps_.push_back(s);
        if (s.next_scale) ++left_out_;
        // Differences are relative, as losses are; a loss of nothing is as it is.
        if (s.expected)
            worst_ = std::max(worst_, std::abs(s.loss - *s.expected) / std::max(std::abs(*s.expected), 1e-300));
        if (arguments_.json) return;
        std::printf("%6llu %22.15g %10.4f %14.1f", static_cast<unsigned long long>(s.number), s.loss, s.seconds,
                    per_step_ / s.seconds);
        if (s.expected) std::printf("   %.15g", *s.expected);
        if (s.next_scale) std::printf("   left out: gradients too large; their scale is %g now", *s.next_scale);
        std::printf("\n");
        std::fflush(stdout);
    }

    void finish() const {
        if (!arguments_.trials.empty() && !steps_.empty()) note_time();
        if (!arguments_.json) {
            if (arguments_.check) std::printf("largest relative difference of the losses %.2g\n", worst_);
            return;
        }
        nlohmann::ordered_json out;
        out["steps"] = steps_.size() - left_out_;
        double seconds = 0;
        for (auto const& s : steps_) {
            out["losses"].push_back(s.loss);
            out["seconds"].push_back(s.seconds);
            seconds += s.seconds;
        }
        out[std::string(what_.first) + "_per_second"] = per_step_ * static_cast<double>(steps_.size()) / seconds;
        if (left_out_ > 0) out["left_out"] = left_out_;
        if (arguments_.check) out["max_relative_difference"] = worst_;
        std::cout << out.dump() << '\n';
    }

private:
    /// Notes the median time of an iteration in the list of trials; the first step, which warms up, counts if it is the
    /// only one.
    void note_time() const {
        std::vector<double> times;
        for (auto const& s : steps_) times.push_back(s.seconds / static_cast<double>(arguments_.accumulate));
        if (times.size() > 1) times.erase(times.begin());
        // The list as it is now: other plans may have run meanwhile.
        auto const& list = arguments_.trials;
        auto const text = json::read_text(list);
        auto const number = find_trial(text, list, arguments_.plan);
        json::write_file_atomically(list, json::with_time(text, number, seconds(median(std::move(times))), list));
    }

    train_arguments const& arguments_;
    std::pair<char const*, double> what_;
    double per_step_ = 0, worst_ = 0;
    std::size_t left_out_ = 0;
    std::vector<train_step> steps_;
};

bool is_of_16_bits(train_arguments const& a) { return a.precision == "bfloat16" || a.precision == "float16"; }

int run_in_threads(train_arguments const& a) {
    auto const what = read(a);
    report told(a, what);
    auto const tell = [&](train_step const& s) { told(s); };
    if (is_of_16_bits(a)) train_in_threads_in_16_bits(a, what, tell);
    else if (a.precision == "float32") train_in_threads<float>(a, what, tell);
    else train_in_threads<double>(a, what, tell);
    told.finish();
    return done;
}

#ifdef HEDDLE_HAS_MPI
int run_in_job(train_arguments const& a, mpi::communicator& world) {
    auto const what = read(a);
    auto const processes = what.processes(world.size(), a.plan);
    world.require_equal("plan", what.plan_digest);
    world.require_equal("model", what.model.digest);
    if (std::ranges::find(processes, world.rank()) == processes.end()) return done; // the plan leaves its device out
    auto ranks = world.group(processes);
    std::optional<report> told;
    if (ranks.rank() == 0) told.emplace(a, what);
    auto const tell = [&](train_step const& s) { (*told)(s); };
    if (is_of_16_bits(a)) train_in_job_in_16_bits(a, what, ranks, tell);
    else if (a.precision == "float32") train_in_job<float>(a, what, ranks, tell);
    else train_in_job<double>(a, what, ranks, tell);
    if (told) told->finish();
    return done;
}
#endif

/// Runs in the process of one GPU; the first tells.
int run_on_gpu(train_arguments const& a) {
    auto const what = read(a);
    std::optional<report> told;
    auto const train = is_of_16_bits(a) ? train_on_gpu_in_16_bits : train_on_gpu;
    train(a, what, [&](train_step const& s) {
        if (!told) told.emplace(a, what);
        (*told)(s);
    });
    if (told) told->finish();
    return done;
}

/// Tells whether a starter of processes, such as mpirun, has started this one beside others.
bool is_in_job() {
    for (auto const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (auto const* const size = std::getenv(name); size && std::string_view(size) != "1") return true;
    return false;
}

/// Runs alone, or as one rank of the job that this process is started in.
template <class Alone, class InJob>
int run_where_started(int argc, char** argv, double time_out, Alone&& alone, InJob&& in_job) {
    if (!is_in_job()) return alone();
#ifdef HEDDLE_HAS_MPI
    return mpi::run_job(argc, argv, {.time_out = seconds(time_out)}, in_job);
#else
    (void)argc, (void)argv, (void)time_out, (void)in_job;
    throw error("this heddle was built without MPI; install an MPI and build it again, or run it without mpirun");
#endif
}

int run(int argc, char** argv) {
    CLI::App app{"Trains a model as a plan says, or measures what a plan is made of", "heddle"};
    app.require_subcommand(1);
    train_arguments train;
    profile_arguments profile;
    add_train_options(app, train);
    auto const* const profiles = add_profile_options(app, profile);
    try {
        app.parse(argc, argv);
    } catch (CLI::ParseError const& e) {
        if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(e);
        std::cerr << "heddle: " << explain(app, e) << '\n';
        return usage;
    }
    bool const is_profile = profiles->parsed();
    if (train.graph && train.device != "cuda") throw input_error("--graph", "is for --device cuda");
    if (train.device == "cuda") train.kernels = "libtorch";
    if (auto const& kernels = is_profile ? profile.kernels : train.kernels; kernels != kernels_of_program()) {
        bool const has_libtorch = kernels == "libtorch";
        become(has_libtorch ? "heddle-train-libtorch" : "heddle-train", argv);
        throw error(has_libtorch ? "this heddle was built without libtorch, whose kernels are asked for; install a "
                                   "libtorch and build it again, or use the reference kernels"
                                 : "heddle-train, which has the reference kernels, is missing beside this command");
    }
    if (is_profile)
        return run_where_started(
            argc, argv, profile.time_out, [&] { return run_profile_alone(profile); },
            [&](auto& world) { return run_profile_in_job(profile, world); });
    if (train.device == "cuda") return run_on_gpu(train);
    return run_where_started(
        argc, argv, train.time_out, [&] { return run_in_threads(train); },
        [&](auto& world) { return run_in_job(train, world); });
}

} // namespace
} // namespace heddle::cli

int main(int argc, char** argv) {
    try {
        return heddle::cli::run(argc, argv);
    } catch (std::bad_alloc const&) { std::cerr << "heddle: out of memory\n"; } catch (std::exception const& e) {
        std::cerr << "heddle: " << heddle::printable(e.what(), 1200) << '\n';
    }
    return heddle::cli::bad_input;
}
