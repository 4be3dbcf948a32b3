// SPDX-License-Identifier: BSL-1.0
// The options of heddle train and heddle profile.
#include "train_options.hpp"
#include "validators.hpp"

namespace heddle::cli {

CLI::App* add_train_options(CLI::App& app, train_arguments& a) {
    auto* const command =
        app.add_subcommand("train", "Train a model as a plan says: in threads, or in the processes that mpirun starts");
    command->add_option("--plan", a.plan, "Plan file")->type_name("FILE")->required();
    command->add_option("--model", a.model, "Model file")->type_name("FILE")->required();
    auto* const save = command->add_option("--save", a.save, "Folder to save a checkpoint in, after the last step")
                           ->type_name("FOLDER");
    command->add_option("--save-every", a.save_every, "Save it every so many steps too")->check(positive)->needs(save);
    auto* const resume =
        command->add_option("--resume", a.resume, "Folder of a checkpoint to go on from, by this plan or any other")
            ->type_name("FOLDER");
    command
        ->add_option("--data", a.data, "Safetensors file of inputs, of one iteration or of several; others are random")
        ->type_name("FILE")
        ->check(CLI::ExistingFile);
    command->add_option("--weights", a.weights, "Safetensors file of first parameters; others are random")
        ->type_name("FILE")
        ->check(CLI::ExistingFile)
        ->excludes(resume);
    command->add_option("--steps", a.steps, "Steps to make, with those before a checkpoint")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--optimizer", a.optimizer, "sgd, adam or adamw")
        ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
        ->capture_default_str();
    command->add_option("--rate", a.rate, "Learning rate; 0.01 for sgd, 0.001 for the others")->check(positive);
    command->add_option("--momentum", a.momentum, "Momentum of sgd")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    command->add_option("--decay", a.decay, "Weight decay of adamw")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--clip", a.clip, "Largest norm of all gradients together")->check(positive);
    command->add_option("--accumulate", a.accumulate, "Iterations of each step")
        ->check(positive)
        ->capture_default_str();
    command
        ->add_option("--precision", a.precision,
                     "float64, float32, bfloat16 or float16; the last two with libtorch, and with float32 weights")
        ->check(CLI::IsMember({"float64", "float32", "bfloat16", "float16"}))
        ->capture_default_str();
    command->add_option("--gradient-scale", a.gradient_scale, "First scale of gradients in float16, a power of two")
        ->check(CLI::Range(1.0, 32768.0))
        ->capture_default_str();
    command
        ->add_option("--kernels", a.kernels,
                     "What computes: reference, which comes with heddle, or libtorch, if there is one")
        ->check(CLI::IsMember({"reference", "libtorch"}))
        ->capture_default_str();
    auto* const device =
        command->add_option("--device", a.device, "cpu, or cuda: a GPU for each process, by libtorch and NCCL")
            ->check(CLI::IsMember({"cpu", "cuda"}))
            ->capture_default_str();
    command->add_flag("--graph", a.graph, "On cuda, record an iteration as a CUDA graph and launch that")
        ->needs(device);
    command->add_option("--seed", a.seed, "Seed of what is random")->capture_default_str()->excludes(resume);
    command->add_option("--time-out", a.time_out, "Seconds that a process waits for others")
        ->type_name("SECONDS")
        ->check(positive)
        ->capture_default_str();
    command
        ->add_option("--trials", a.trials,
                     "List of plans to try that has this one; its time is noted there, the median of all steps but the "
                     "first, by iteration")
        ->type_name("FILE");
    command->add_flag("--check", a.check, "Train on a single device too, and compare the losses");
    command->add_flag("--json", a.json, "Print one JSON object");
    return command;
}

CLI::App* add_profile_options(CLI::App& app, profile_arguments& a) {
    auto* const command = app.add_subcommand(
        "profile", "Measure the operators of a model, and collectives between the processes that mpirun starts");
    command->add_option("--model", a.model, "Model file; without one, collectives alone are measured")
        ->type_name("FILE");
    command->add_option("--devices", a.devices, "The type of each process's device, with commas, or of all")
        ->type_name("TYPES")
        ->delimiter(',')
        ->required();
    command->add_option("--out", a.out, "Samples file to write, for heddle fit")->type_name("FILE")->required();
    command->add_option("--precision", a.precision, "float32 or float64")
        ->check(CLI::IsMember({"float32", "float64"}))
        ->capture_default_str();
    command->add_option("--kernels", a.kernels, "What computes: reference or libtorch")
        ->check(CLI::IsMember({"reference", "libtorch"}))
        ->capture_default_str();
    command->add_option("--repeats", a.repeats, "Measurements of which the median is taken")
        ->check(positive)
        ->capture_default_str();
    command
        ->add_option(
            "--least-seconds", a.least_seconds,
            "What a measurement of an operator takes at least; much more than the period of a processor's quota")
        ->type_name("SECONDS")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--time-out", a.time_out, "Seconds that a process waits for others")
        ->type_name("SECONDS")
        ->check(positive)
        ->capture_default_str();
    return command;
}

} // namespace heddle::cli
