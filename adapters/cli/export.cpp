// SPDX-License-Identifier: BSL-1.0
// heddle export: a plan as arguments of Megatron-LM, as a configuration of DeepSpeed or torchtitan, as placements of
// DTensor, or as annotations of Shardy.
#include "commands.hpp"
#include "even_pipelines.hpp"
#include "exported_plan.hpp"
#include "output.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/words.hpp>
#include <heddle/planner/strategies.hpp>
#include <heddle/search/outcome.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

namespace {

using ordered_json = nlohmann::ordered_json;

/// Says why a framework cannot express a plan.
[[noreturn]] void refuse(std::string const& why) { throw inexpressible(why); }

using parameters_by_stage = std::vector<std::vector<plan_tensor>>;

/// How many devices share what, in every stage alike.
struct degrees {
    std::size_t data = 1, tensor = 1, expert = 1;
    /// Of ZeRO: 0, 1 for the optimiser's state, 2 for gradients too, 3 for parameters too; and on how many of the devices
    /// of `data`.
    int sharded = 0;
    std::size_t shards = 1;
    friend bool operator==(degrees const&, degrees const&) = default;
};

/// What a framework is told of a plan.
struct told_plan {
    degrees shared;
    parameters_by_stage parameters;
    /// Samples of an iteration, and the parts that follow each other.
    std::int64_t batch = 0, micro_batches = 1;
    /// How often these pass the devices.
    std::size_t rounds = 1;
    /// What of activations all stages make again.
    recomputation recomputes = recomputation::none;
    /// The most regions of a stage that are recomputed one after another.
    std::size_t regions = 1;
    training_options training;

    [[nodiscard]] std::size_t stages() const { return parameters.size(); }
};

/// Returns the bytes of parameters by the ways of an axis that matter: not those that all have and nobody changes, and
/// beside parameters that are stored in parts none that are stored in larger ones if these are next to nothing, such as
/// biases: frameworks cut them too.
std::map<std::string, double> ways_on(plan const& p, std::size_t axis) {
    std::map<std::string, double> ways;
    double all = 0;
    for (auto use : parameter_uses(p)) {
        double const size = p.tensors[use.tensor].size().value;
        all += size;
        use.storage = {use.storage[axis]};
        if (p.tensors[use.tensor].trainable || use.storage[0] != parameter_holding::replicated)
            ways[way_of(use)] += size;
    }
    ways.erase("alike");
    constexpr double next_to_nothing = 0.01;
    auto const is_little = [&](char const* way) { return ways.contains(way) && ways[way] < next_to_nothing * all; };
    if (ways.contains("FSDP") && is_little("ZeRO")) ways.erase("ZeRO");
    if ((ways.contains("FSDP") || ways.contains("ZeRO")) && is_little("data parallel")) ways.erase("data parallel");
    return ways;
}

/// Tells whether what is gathered on an axis stays gathered for the backward pass, as in ZeRO-2.
bool gathers_once(plan const& p, std::size_t axis) {
    auto const uses = parameter_uses(p);
    auto const is_so = [&](parameter_holding how) {
        return algorithm::any_of(uses, [&](parameter_use const& use) { return use.storage[axis] == how; });
    };
    return is_so(parameter_holding::gathered_once) && !is_so(parameter_holding::gathered_twice);
}

/// Tells whether devices have parts of the batch: an input is cut along its first dimension.
bool cuts_batch(plan const& p, std::size_t axis) {
    return algorithm::any_of(p.steps, [&](plan_step const& s) {
        if (!s.instruction.is<instruction::read>()) return false;
        auto const& read = *s.on_axis(static_cast<axis_number>(axis)).change();
        auto const& tensor = p.tensors[read.tensor];
        return tensor.role == tensor_role::input && tensor.whole_of.empty() && read.to.is_shard() &&
               tensor.factors[static_cast<std::size_t>(read.to.factor())].dimension == 0;
    });
}

/// Refuses shares that differ by more than what is left when all but one are rounded.
void require_even(plan const& p) {
    for (auto const& c : p.cuts) {
        auto const [least, most] = std::ranges::minmax(c.counts);
        if (most - least > 1)
            refuse("devices have uneven parts, of one cut from " + std::to_string(least) + " to " +
                   std::to_string(most) + " of " + std::to_string(c.atoms));
    }
}

degrees degrees_of(plan const& p) {
    if (p.provenance.training.interleaves()) refuse("its micro-batches take turns on the same devices");
    require_even(p);
    degrees d;
    for (auto const& device : p.devices) {
        if (p.is_on_mesh()) break;
        if (device.group_size != p.devices.front().group_size) refuse("its device groups are not equally large");
    }
    if (p.has_groups()) d.data *= static_cast<std::size_t>(p.devices.front().group_size);
    for (std::size_t axis = 0; axis <= p.inner_sizes.size(); ++axis) {
        std::size_t const size = axis == 0 ? p.devices.size() : p.inner_sizes[axis - 1];
        if (size == 1) continue;
        auto ways = ways_on(p, axis);
        bool const has_experts = ways.erase("expert parallel") > 0;
        if (!cuts_batch(p, axis)) { // then nobody has a part of the batch
            if (ways.contains("FSDP") || ways.contains("ZeRO") || has_experts || !ways.contains("tensor parallel"))
                refuse("on one axis neither the batch is divided nor parameters as tensor parallelism has them");
            d.tensor *= size;
            continue;
        }
        if (ways.contains("tensor parallel"))
            refuse("some parameters are tensor parallel on the axis on which others are data parallel");
        if (has_experts) d.expert *= size;
        d.data *= size;
        if (ways.contains("FSDP") || ways.contains("ZeRO")) {
            if (d.sharded > 0) refuse("parameters are sharded on several axes");
            if (ways.size() > 1) {
                std::string held;
                for (auto const& way : ways) held += (held.empty() ? "" : ", others ") + way.first;
                refuse("some parameters are " + held);
            }
            d.sharded = ways.contains("ZeRO") ? 1 : gathers_once(p, axis) ? 2 : 3;
            d.shards = size;
        }
    }
    return d;
}

/// Returns what all stages have alike. Refuses plans of which a stage has something else, for a reason that names it.
template <class Property, class Reason>
auto common_to_stages(exported_plan const& whole, Property const& of, Reason const& reason) {
    auto const first = of(*whole.stages.front());
    for (std::size_t s = 1; s < whole.stages.size(); ++s)
        if (of(*whole.stages[s]) != first) refuse(reason(std::to_string(s)));
    return first;
}

parameters_by_stage parameters_of(exported_plan const& whole, program const*) {
    parameters_by_stage all(whole.stages.size());
    for (std::size_t s = 0; s < all.size(); ++s)
        for (auto const& t : whole.stages[s]->tensors)
            if (t.role == tensor_role::parameter) all[s].push_back(t);
    return all;
}

/// The parameters of a stage are those that its operators are the first to use, as the model says.
parameters_by_stage parameters_of(pipeline_plan const& p, program const* model) {
    if (!model) refuse("it is a strategy of layers, of which --model says what parameters they have");
    auto const indexed = index_program(*model);
    if (p.operator_count() != indexed.operators.size())
        throw inexpressible::model("it is of " + std::to_string(p.operator_count()) + " operators, and the model has " +
                                   std::to_string(indexed.operators.size()));
    auto const described = blank_plan(indexed);
    parameters_by_stage all(p.stages.size());
    std::set<tensor_id> known;
    std::size_t op = 0;
    for (std::size_t s = 0; s < p.stages.size(); ++s)
        for (std::size_t l = p.stages[s].first; l < p.stages[s].end; ++l)
            for (std::size_t const end = op + p.layers[l].operators; op < end; ++op)
                for (tensor_id const t : indexed.operators[op].operands)
                    if (indexed.tensors[t].is_parameter() && known.insert(t).second)
                        all[s].push_back(described.tensors[t]);
    return all;
}

/// Returns the samples of an iteration, from the first input.
std::int64_t batch_of(exported_plan const& whole) {
    auto const& tensors = whole.stages.front()->tensors;
    auto const input = algorithm::find_if(
        tensors, [](plan_tensor const& t) { return t.role == tensor_role::input && t.whole_of.empty(); });
    if (input == tensors.end() || input->shape.empty())
        throw inexpressible::model("it has no input that begins with the batch");
    return input->shape[0] * whole.micro_batches;
}

told_plan told(exported_plan const& whole) {
    told_plan t;
    t.batch = batch_of(whole);
    t.micro_batches = whole.micro_batches;
    t.rounds = whole.rounds;
    t.training = whole.stages.front()->provenance.training;
    t.shared = common_to_stages(whole, degrees_of, [](std::string const& s) {
        return "stage " + s + " divides its work in another way than stage 0";
    });
    t.recomputes = common_to_stages(
        whole, [](plan const& p) { return p.provenance.training.recomputes; },
        [](std::string const& s) { return "stages 0 and " + s + " recompute their activations in other ways"; });
    for (auto const* stage : whole.stages)
        for (auto const& tensor : stage->tensors)
            t.regions = std::max(t.regions, static_cast<std::size_t>(tensor.region + 1));
    return t;
}

/// A strategy of layers: copies of a pipeline, each with tensor groups, at even shares.
told_plan told(pipeline_plan const& p) {
    told_plan t;
    t.batch = p.global_batch;
    t.micro_batches = p.micro_batches;
    t.training = p.provenance.training;
    t.shared.data = p.copies();
    t.shared.tensor = p.stages.front().degree();
    for (auto const& s : p.stages)
        if (s.degree() != t.shared.tensor) refuse("its stages have tensor groups of different sizes");
    if (t.batch != p.micro_batch_size * p.micro_batches * static_cast<std::int64_t>(p.copies()))
        refuse("its copies do not take equal numbers of samples");
    return t;
}

/// The number in the name of a parameter of a repeated block: 7 of `layers.7.weight`; with what stands before and
/// after.
struct block_name {
    std::string before, after;
    std::size_t number = 0;
};

std::optional<block_name> block_of(std::string const& name) {
    for (std::size_t begin = 0; begin < name.size();) {
        auto const end = std::min(name.find('.', begin), name.size());
        auto const part = std::string_view(name).substr(begin, end - begin);
        if (!part.empty() && part.size() < 6 && part.find_first_not_of("0123456789") == part.npos)
            return block_name{name.substr(0, begin), name.substr(end), std::stoul(std::string(part))};
        begin = end + 1;
    }
    return {};
}

/// Tells whether the model is a stack of equal blocks.
bool has_equal_blocks(parameters_by_stage const& parameters) {
    std::map<std::size_t, std::map<std::string, tensor_shape>> contents; // by block and name inside
    std::set<std::string> before;
    for (auto const& of_stage : parameters)
        for (auto const& t : of_stage)
            if (auto const block = block_of(t.name)) {
                before.insert(block->before);
                contents[block->number].try_emplace(block->after, t.shape);
            }
    return before.size() == 1 &&
           algorithm::all_of(contents, [&](auto const& c) { return c.second == contents.begin()->second; });
}

/// Returns how many blocks each stage has. Refuses stages that divide one.
std::vector<std::size_t> blocks_by_stage(told_plan const& t) {
    std::vector<std::size_t> counts;
    std::size_t next = 0;
    for (std::size_t s = 0; s < t.stages(); ++s) {
        std::set<std::size_t> here;
        for (auto const& parameter : t.parameters[s])
            if (auto const block = block_of(parameter.name)) here.insert(block->number);
        for (auto const number : here)
            if (number != next++) refuse("stage " + std::to_string(s) + " has not only whole blocks of the model");
        counts.push_back(here.size());
    }
    return counts;
}

std::int64_t micro_batch_of(told_plan const& t) {
    auto const parts = t.micro_batches * static_cast<std::int64_t>(t.shared.data);
    if (t.batch % parts != 0)
        refuse("a batch of " + std::to_string(t.batch) + " is not divided evenly into " + std::to_string(parts) +
               " parts");
    return t.batch / parts;
}

/// Refuses hybrid sharding.
void require_one_storage(degrees const& d) {
    if (d.sharded > 0 && d.shards != d.data)
        refuse("parameters are in parts inside groups of " + std::to_string(d.shards) +
               " devices, of which there are copies");
}

std::string megatron(told_plan const& t) {
    auto const& d = t.shared;
    require_one_storage(d);
    auto const blocks = blocks_by_stage(t);
    std::string text;
    auto const add = [&](std::string const& option, std::string const& value) {
        text += option + (value.empty() ? "" : " " + value) + '\n';
    };
    add("--tensor-model-parallel-size", std::to_string(d.tensor));
    add("--pipeline-model-parallel-size", std::to_string(blocks.size() / t.rounds));
    if (d.expert > 1) add("--expert-model-parallel-size", std::to_string(d.expert));
    add("--micro-batch-size", std::to_string(micro_batch_of(t)));
    add("--global-batch-size", std::to_string(t.batch));
    bool const has_unequal = std::ranges::count(blocks, blocks.front()) != std::ssize(blocks);
    if (blocks.size() > 1 && (has_unequal || t.rounds > 1)) { // Megatron-LM counts rounds by this
        std::string layout = "E";                             // the embedding, blocks by stage, the loss
        for (std::size_t s = 0; s < blocks.size(); ++s)
            layout += (s ? "|" : "") + (blocks[s] > 0 ? "t*" + std::to_string(blocks[s]) : "");
        add("--pipeline-model-parallel-layout", '"' + layout + "L\"");
    }
    std::size_t const places = blocks.size() / t.rounds;
    if (auto const group = one_f_one_b{t.rounds}.group({places, t.micro_batches});
        t.rounds > 1 && group != static_cast<std::int64_t>(places))
        add("--microbatch-group-size-per-virtual-pipeline-stage", std::to_string(group));
    if (t.recomputes == recomputation::selective)
        refuse("it recomputes what is cheap to make, which Megatron-LM chooses by modules");
    if (t.recomputes == recomputation::full) { // regions of as many blocks as they have about
        auto const most = std::ranges::max(blocks);
        add("--recompute-granularity", "full");
        add("--recompute-method", "uniform");
        add("--recompute-num-layers", std::to_string((most + t.regions - 1) / t.regions));
    }
    if (d.sharded > 0) add("--use-distributed-optimizer", "");
    if (d.sharded > 1) { // with what it asks for
        add("--use-megatron-fsdp", "");
        add("--data-parallel-sharding-strategy", d.sharded == 2 ? "optim_grads" : "optim_grads_params");
        add("--no-gradient-accumulation-fusion", "");
        add("--ckpt-format", "fsdp_dtensor");
    }
    return text;
}

std::string deepspeed(told_plan const& t) {
    if (t.stages() > 1) refuse("DeepSpeed's configuration does not say which layers a stage has");
    auto const& d = t.shared;
    require_one_storage(d);
    if (t.recomputes != recomputation::none)
        refuse("it recomputes activations, which DeepSpeed has in the model, not in the configuration");
    if (d.tensor > 1 || d.expert > 1)
        refuse("its parameters are cut for good, which DeepSpeed has in the model, not in the configuration");
    ordered_json out{{"train_batch_size", t.batch},
                     {"train_micro_batch_size_per_gpu", micro_batch_of(t)},
                     {"gradient_accumulation_steps", t.micro_batches}};
    auto const is_of = [&](element_type type) {
        return algorithm::any_of(t.parameters.front(), [&](plan_tensor const& p) { return p.type == type; });
    };
    if (is_of(element_type::bfloat16)) out["bf16"] = {{"enabled", true}};
    if (is_of(element_type::float16)) out["fp16"] = {{"enabled", true}};
    out["zero_optimization"] = {{"stage", d.sharded}, {"overlap_comm", t.training.overlaps_gradients}};
    if (auto const bucket = t.training.bucket.value; bucket > 0) { // counted in elements
        double const element = is_of(element_type::bfloat16) || is_of(element_type::float16) ? 2 : 4;
        out["zero_optimization"]["reduce_bucket_size"] = static_cast<std::int64_t>(bucket / element);
    }
    return out.dump(2) + '\n';
}

/// Returns the modules that have some parameters, each block and what else stands first in a name, in order.
std::vector<std::string> modules_of(std::vector<plan_tensor> const& parameters) {
    std::vector<std::string> modules;
    for (auto const& t : parameters) {
        auto const block = block_of(t.name);
        auto const name = block ? block->before + std::to_string(block->number) : t.name.substr(0, t.name.find('.'));
        if (algorithm::find(modules, name) == modules.end()) modules.push_back(name);
    }
    return modules;
}

std::string torchtitan(told_plan const& t) {
    auto const& d = t.shared;
    if (d.sharded == 1) refuse("the optimiser's state alone is sharded, where torchtitan shards parameters too");
    if (d.expert > 1 && d.sharded == 0)
        refuse("experts are spread over devices that have the other parameters whole, which torchtitan shards");
    std::size_t const stages = t.stages();
    if (stages > 1) blocks_by_stage(t); // which refuses stages of parts of blocks
    auto const micro_batch = micro_batch_of(t);
    std::string text = "from torchtitan.config import " +
                       std::string(t.recomputes != recomputation::none ? "ActivationCheckpointConfig, " : "") +
                       "ParallelismConfig, TrainingConfig\n\nparallelism = ParallelismConfig(\n";
    auto const add = [&](std::string const& field, std::string const& value) {
        text += "    " + field + '=' + value + ",\n";
    };
    add("data_parallel_replicate_degree", std::to_string(d.data / d.shards));
    add("data_parallel_shard_degree", std::to_string(d.shards));
    if (d.sharded == 2) add("fsdp_reshard_after_forward", "\"never\"");
    add("tensor_parallel_degree", std::to_string(d.tensor));
    if (d.expert > 1) add("expert_parallel_degree", std::to_string(d.expert));
    add("pipeline_parallel_degree", std::to_string(stages / t.rounds));
    if (stages > 1) {
        add("pipeline_parallel_schedule", t.rounds > 1 ? "\"Interleaved1F1B\"" : "\"1F1B\"");
        add("pipeline_parallel_microbatch_size", std::to_string(micro_batch));
        ordered_json modules = ordered_json::array();
        for (auto const& of_stage : t.parameters) modules.push_back(modules_of(of_stage));
        add("module_fqns_per_model_part", modules.dump());
    }
    // Without a pipeline, gradients of as many local batches are added as the global one takes.
    auto const local = stages > 1 ? micro_batch * t.micro_batches : micro_batch;
    text += ")\n";
    if (t.recomputes == recomputation::full) // by blocks
        text += "activation_checkpoint = ActivationCheckpointConfig(mode=\"full\")\n";
    if (t.recomputes == recomputation::selective)
        text += "activation_checkpoint = ActivationCheckpointConfig(mode=\"selective\")\n";
    return text + "training = TrainingConfig(local_batch_size=" + std::to_string(local) +
           ", global_batch_size=" + std::to_string(t.batch) + ")\n";
}

/// Returns what a framework that takes a plan as numbers is told of it.
template <class Plan>
std::string options_of(Plan const& plan, std::string const& to, program const* model) {
    auto parameters = parameters_of(plan, model);
    if (to == "megatron" && !has_equal_blocks(parameters))
        throw inexpressible::model("the model is no stack of equal blocks, which Megatron-LM has");
    if (to == "torchtitan" && parameters.size() > 1 && !has_equal_blocks(parameters))
        refuse("the model is no stack of equal blocks, which pipelines of torchtitan have");
    auto t = told(plan);
    t.parameters = std::move(parameters);
    return to == "megatron" ? megatron(t) : to == "deepspeed" ? deepspeed(t) : torchtitan(t);
}

/// Returns the axes of a mesh along which each dimension of a tensor is cut, outermost first.
std::vector<std::vector<std::size_t>> axes_of(plan const& p, product_form const& f, tensor_id t) {
    auto const& tensor = p.tensors[t];
    std::vector<std::vector<std::size_t>> axes(tensor.shape.size());
    for (std::size_t axis = 0; axis < f.size(); ++axis) {
        auto const of_axis = f[static_cast<axis_number>(axis)];
        if (!of_axis.is_shard()) continue;
        auto const& cut = tensor.factors[static_cast<std::size_t>(of_axis.factor())];
        if (!cut.widths.empty() || cut.extent * cut.stride != tensor.shape[cut.dimension])
            refuse("'" + tensor.name + "' is cut in steps of a dimension, where Shardy cuts it at once");
        axes[cut.dimension].push_back(axis);
    }
    return axes;
}

std::string shardy(exported_plan const& whole) {
    std::string meshes, tensors;
    for (std::size_t s = 0; s < whole.stages.size(); ++s) {
        auto const& p = *whole.stages[s];
        if (p.has_groups()) refuse("it has a machine as one device, of which Shardy wants an axis");
        for (auto const& c : p.cuts)
            if (std::ranges::count(c.counts, c.counts.front()) != std::ssize(c.counts))
                refuse("devices have unequal parts, which Shardy does not know");
        std::string const name = "@stage" + std::to_string(s);
        auto const axis_name = [](std::size_t axis) { return "\"axis" + std::to_string(axis) + '"'; };
        meshes += "sdy.mesh " + name + " = <[";
        auto const m = p.mesh();
        for (std::size_t axis = 0; axis < m.sizes().size(); ++axis)
            meshes += (axis ? ", " : "") + axis_name(axis) + '=' + std::to_string(m.sizes()[axis]);
        meshes += "]>\n";
        tensors += "// Stage " + std::to_string(s) + ": what is read, as it is stored\n";
        for (auto const& step : p.steps) {
            if (!step.instruction.is<instruction::read>()) continue;
            tensor_id const t = step.acting().change()->tensor;
            tensors += p.tensors[t].name + " {sdy.sharding = #sdy.sharding<" + name + ", [";
            bool is_first = true;
            for (auto const& of_dimension : axes_of(p, step.from(), t)) {
                tensors += is_first ? "{" : ", {";
                is_first = false;
                for (std::size_t k = 0; k < of_dimension.size(); ++k)
                    tensors += (k ? ", " : "") + axis_name(of_dimension[k]);
                tensors += '}';
            }
            tensors += "]>}\n";
        }
    }
    return meshes + tensors;
}

/// Returns placements, with a model also what its modules do. What they cannot do is an obstacle if something nearer is
/// looked for, and said in the text else.
std::string dtensor(exported_plan const& whole, program const* model, bool wants_nearest) {
    if (model && (whole.stages.size() > 1 || whole.micro_batches > 1))
        refuse("it has several stages or micro-batches, expected one of each for what modules do");
    auto const placements = placements_of(whole, model);
    auto const& stage = placements["stages"][0];
    if (wants_nearest && stage.contains("obstacle")) refuse(stage["obstacle"]);
    return placements.dump(1) + '\n';
}

/// Says that forms alone, which the framework is told of, leave out what a plan counts on.
void warn_of_turns(exported_plan const& p) {
    if (algorithm::any_of(p.stages, [](auto const* s) { return s->provenance.training.interleaves(); }))
        std::cerr << "warning: the plan's micro-batches take turns, one communicating while another computes; what is "
                     "written does not say so, and an iteration may take longer without\n";
}

/// Returns the text that a framework is told of a plan with. *Throws* `inexpressible`.
std::string text_for(exported_plan const& p, export_arguments const& arguments, program const* model) {
    if (arguments.to != "shardy" && arguments.to != "dtensor") return options_of(p, arguments.to, model);
    auto text = arguments.to == "shardy" ? shardy(p) : dtensor(p, model, arguments.nearest);
    warn_of_turns(p);
    return text;
}
std::string text_for(pipeline_plan const& p, export_arguments const& arguments, program const* model) {
    if (arguments.to == "shardy" || arguments.to == "dtensor")
        refuse("it is a strategy of layers, expected one of stages, which heddle plan makes without --planner");
    return options_of(p, arguments.to, model);
}

std::optional<double> cost_of(std::optional<double> const& strategy) { return strategy; }
std::optional<double> cost_of(family_result const& family) { return family.cost; }

/// A strategy by its name in plans and here, and the frameworks that can do it at even shares.
struct known_strategy {
    char const *in_plans, *name;
    std::vector<std::string> frameworks;
};

std::vector<known_strategy> known_strategies() {
    return {{"DP-EV", "data parallelism", {"megatron", "deepspeed", "torchtitan", "shardy", "dtensor"}},
            {"DP-CP", "data parallelism at shares by speed", {"dtensor"}},
            {"ZeRO-1", "ZeRO-1", {"megatron", "deepspeed", "shardy", "dtensor"}},
            {"ZeRO-2", "ZeRO-2", {"megatron", "deepspeed", "torchtitan", "shardy", "dtensor"}},
            {"fully sharded", "full sharding", {"megatron", "deepspeed", "torchtitan", "shardy", "dtensor"}},
            {"tensor parallel", "tensor parallelism", {"megatron", "torchtitan", "shardy"}}};
}

/// A strategy's name here; one on a mesh is named by those of its axes.
std::string name_of(std::string const& in_plans) {
    for (auto const& s : known_strategies())
        if (in_plans == s.in_plans) return s.name;
    return in_plans;
}

/// Returns the cheapest strategy that a framework can do of those that the plan has the costs of, beside itself. What
/// was priced on unequal devices has shares by speed, unless its name says otherwise, which PyTorch's tensors alone can
/// have.
template <class Costs>
std::optional<priced_strategy> nearest_of(exported_plan const& p, Costs const& costs, std::string const& to) {
    std::size_t devices = 0;
    bool are_equal = true;
    for (std::size_t s = 0; s < p.stages.size() / p.rounds; ++s)
        for (auto const& d : p.stages[s]->devices) {
            devices += static_cast<std::size_t>(d.group_size);
            are_equal = are_equal && d.type == p.stages.front()->devices.front().type;
        }
    bool const has_parts = to == "dtensor" || batch_of(p) % static_cast<std::int64_t>(devices) == 0;
    std::optional<priced_strategy> best;
    for (auto const& s : known_strategies()) {
        auto const found = costs.find(s.in_plans);
        if (found == costs.end() || algorithm::find(s.frameworks, to) == s.frameworks.end()) continue;
        if (!are_equal && to != "dtensor" && s.in_plans != std::string("DP-EV")) continue;
        if (!has_parts && s.in_plans != std::string("tensor parallel")) continue;
        double const cost = cost_of(found->second).value_or(std::numeric_limits<double>::infinity());
        if (std::abs(cost - p.cost) <= search::equal_costs * p.cost) continue;
        std::string const shares = s.in_plans == std::string("DP-EV") ? " at even shares" : "";
        if (!best || cost < best->cost) best = {s.name + shares, cost};
    }
    return best;
}

exported_plan exported(plan const& p, std::string const& to) {
    exported_plan e{{&p}, 1, p.cost(), {}};
    e.nearest = nearest_of(e, p.baselines, to);
    return e;
}

exported_plan exported(staged_plan const& p, std::string const& to) {
    exported_plan e{{}, p.micro_batches, p.cost(), {}};
    for (auto const& s : p.stages) e.stages.push_back(&s.plan);
    e.rounds = p.rounds();
    e.nearest = nearest_of(e, p.families, to);
    return e;
}

pipeline_plan const& exported(pipeline_plan const& p, std::string const&) { return p; }

std::string more_time(double cost, double than) {
    return "at " + heddle::detail::fixed(100 * (cost / than - 1), 1) + " % more time";
}

/// Names the nearest plan that is known from the plan's own file.
std::string nearest_text(exported_plan const& p) {
    if (!p.nearest) return "";
    if (!std::isfinite(p.nearest->cost)) return "; " + p.nearest->name + " does not fit into memory";
    return "; nearest is " + p.nearest->name + ", " + more_time(p.nearest->cost, p.cost);
}
std::string nearest_text(pipeline_plan const&) { return ""; }

/// Reads the model of a plan.
json::model model_of(any_plan& p, export_arguments const& arguments) {
    auto model = std::visit([&](auto const& of) { return read_planned_model(arguments.model, {}, of); }, p);
    auto const* planned = std::get_if<plan>(&p);
    if (auto const* s = std::get_if<staged_plan>(&p); s && s->is_plain()) planned = &s->stages.front().plan;
    if (!planned) return model;
    if (auto const checked = verify(model.program, *planned); !checked)
        throw input_error(arguments.plan, "is none of " + arguments.model + ": " + checked.problem);
    return model;
}

/// Returns the cheapest of the well-known strategies at even shares that the framework can express, in one stage or in
/// each of several, and what it is told.
struct expressible_strategy {
    std::string name;
    std::variant<heddle::plan, staged_plan> plan;
    double cost = 0;
    std::string text{};
};
std::optional<expressible_strategy> nearest_strategy(any_plan& of, program const& model,
                                                     export_arguments const& arguments) {
    std::vector<std::string> warnings;
    auto const c = read_planned_cluster(arguments.cluster, origin_of(of), warnings);
    for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
    auto training = origin_of(of).training;
    training.micro_batches = training.accumulated = training.in_flight = 1;
    training.recomputes = recomputation::none;
    std::vector<expressible_strategy> candidates;
    auto const add = [&](std::string name, auto found) {
        double const cost = found.cost();
        candidates.push_back({std::move(name), std::move(found), cost});
    };
    for (auto& [name, found] : plan_strategies(model, c, training)) {
        found.provenance = origin_of(of);
        found.provenance.planner = "strategies";
        found.provenance.training = training;
        add(name_of(name), std::move(found));
    }
    staged_plan given;
    if (auto const* const of_stages = std::get_if<staged_plan>(&of)) given = *of_stages;
    given.provenance = origin_of(of);
    given.device_count = c.devices().size();
    bool const has_pipelines = arguments.to != "deepspeed" && arguments.to != "dtensor"; // with a model
    for (auto& [name, found] : has_pipelines ? even_pipelines(given, model, c) : std::vector<even_pipeline>{}) {
        auto const where = " in each of " + std::to_string(found.stages.size()) + " stages";
        add(name_of(name) + where, std::move(found));
    }
    std::ranges::stable_sort(candidates, {}, &expressible_strategy::cost);
    for (auto& candidate : candidates) {
        try {
            candidate.text =
                std::visit([&](auto const& kind) { return text_for(exported(kind, arguments.to), arguments, &model); },
                           candidate.plan);
            return std::move(candidate);
        } catch (inexpressible const&) { continue; }
    }
    return {};
}

} // namespace

int run_export(export_arguments const& arguments) {
    for (auto const& file : {arguments.out, arguments.plan_out})
        if (!file.empty()) heddle::json::require_writable(file);
    auto p = read_any_plan(arguments.plan);
    bool const has_layers = std::holds_alternative<pipeline_plan>(p);
    if (!arguments.model.empty() && arguments.to != "dtensor" && !arguments.nearest && !has_layers)
        throw input_error("--model", "is read for strategies of layers, for --nearest and for --to dtensor alone");
    if (!exists(p)) throw input_error(arguments.plan, "has no plan: " + reason_of(p));
    std::optional<json::model> model;
    if (!arguments.model.empty()) model = model_of(p, arguments);
    std::vector<heddle::json::staged_file> files;
    std::string text;
    try {
        text = std::visit(
            [&](auto const& kind) {
                return text_for(exported(kind, arguments.to), arguments, model ? &model->program : nullptr);
            },
            p);
        if (!arguments.plan_out.empty()) files.emplace_back(arguments.plan_out, json::read_text(arguments.plan));
    } catch (inexpressible const& obstacle) {
        auto const refuse_plan = [&](std::string const& more) {
            throw input_error("the plan cannot be expressed", obstacle.what() + more);
        };
        if (obstacle.is_of_model()) refuse_plan("");
        if (!arguments.nearest)
            refuse_plan(std::visit([&](auto const& kind) { return nearest_text(exported(kind, arguments.to)); }, p));
        auto found = nearest_strategy(p, model->program, arguments);
        if (!found) refuse_plan("; nor can any well-known strategy that fits into memory");
        std::cerr << "heddle: the plan cannot be expressed: " << printable(obstacle.what(), 1000) << "; this is "
                  << found->name << " at even shares, " << more_time(found->cost, cost_of(p)) << '\n';
        text = std::move(found->text);
        if (!arguments.plan_out.empty())
            files.emplace_back(arguments.plan_out,
                               std::visit([](auto const& kind) { return json::write_plan(kind); }, found->plan));
    }
    if (arguments.out.empty()) std::cout << text;
    else files.emplace_back(arguments.out, text);
    deliver(std::move(files));
    return done;
}

} // namespace heddle::cli
