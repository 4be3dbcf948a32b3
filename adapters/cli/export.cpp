// SPDX-License-Identifier: BSL-1.0
// heddle export: a plan as arguments of Megatron-LM, as a configuration of DeepSpeed or torchtitan, as placements of
// DTensor, or as annotations of Shardy.
#include "commands.hpp"
#include "exported_plan.hpp"
#include "output.hpp"
#include "plan_file.hpp"
#include "plan_input.hpp"

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/model.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/words.hpp>

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

/// Says that a framework cannot express a plan, and what the nearest that it can costs.
[[noreturn]] void refuse(exported_plan const& p, std::string const& why) {
    std::string nearest;
    if (p.nearest)
        nearest = std::isfinite(p.nearest->cost)
                      ? "; nearest is " + p.nearest->name + ", at " +
                            heddle::detail::fixed(100 * (p.nearest->cost / p.cost - 1), 1) + " % more time"
                      : "; " + p.nearest->name + " does not fit into memory";
    throw input_error("the plan cannot be expressed", why + nearest);
}

/// How many devices share what, in every stage alike.
struct degrees {
    std::size_t data = 1, tensor = 1, expert = 1;
    /// Of ZeRO: 0, 1 for the optimiser's state, 3 for parameters too.
    int sharded = 0;
    friend bool operator==(degrees const&, degrees const&) = default;
};

/// Returns the ways of an axis that matter: not of what all have and nobody changes.
std::set<std::string> ways_on(plan const& p, std::size_t axis) {
    std::set<std::string> ways;
    for (auto use : parameter_uses(p)) {
        use.storage = {use.storage[axis]};
        if (p.tensors[use.tensor].trainable || use.storage[0] != parameter_holding::replicated)
            ways.insert(way_of(use));
    }
    ways.erase("alike");
    return ways;
}

/// Tells whether devices have parts of the batch: an input is cut along its first dimension.
bool cuts_batch(plan const& p, std::size_t axis) {
    return algorithm::any_of(p.steps, [&](plan_step const& s) {
        if (!s.instruction.is<instruction::read>()) return false;
        auto const& read = *s.on_axis(static_cast<axis_number>(axis)).change();
        auto const& tensor = p.tensors[read.tensor];
        return tensor.role == tensor_role::input && read.to.is_shard() &&
               tensor.factors[static_cast<std::size_t>(read.to.factor())].dimension == 0;
    });
}

/// Refuses shares that differ by more than what is left when all but one are rounded.
void require_even(exported_plan const& whole, plan const& p) {
    for (auto const& c : p.cuts) {
        auto const [least, most] = std::ranges::minmax(c.counts);
        if (most - least > 1)
            refuse(whole, "devices have uneven parts, of one cut from " + std::to_string(least) + " to " +
                              std::to_string(most) + " of " + std::to_string(c.atoms));
    }
}

degrees degrees_of(exported_plan const& whole, plan const& p) {
    if (p.provenance.training.interleaves()) refuse(whole, "its micro-batches take turns on the same devices");
    require_even(whole, p);
    degrees d;
    for (auto const& device : p.devices) {
        if (p.is_on_mesh()) break;
        if (device.group_size != p.devices.front().group_size) refuse(whole, "its device groups are not equally large");
    }
    if (p.has_groups()) d.data *= static_cast<std::size_t>(p.devices.front().group_size);
    for (std::size_t axis = 0; axis <= p.inner_sizes.size(); ++axis) {
        std::size_t const size = axis == 0 ? p.devices.size() : p.inner_sizes[axis - 1];
        if (size == 1) continue;
        auto ways = ways_on(p, axis);
        bool const has_experts = ways.erase("expert parallel") > 0;
        if (!cuts_batch(p, axis)) { // then nobody has a part of the batch
            if (ways.contains("FSDP") || ways.contains("ZeRO") || has_experts || !ways.contains("tensor parallel"))
                refuse(whole, "on one axis neither the batch is divided nor parameters as tensor parallelism has them");
            d.tensor *= size;
            continue;
        }
        if (ways.contains("tensor parallel"))
            refuse(whole, "some parameters are tensor parallel on the axis on which others are data parallel");
        if (has_experts) d.expert *= size;
        d.data *= size;
        if (ways.contains("FSDP") || ways.contains("ZeRO")) {
            if (ways.size() > 1) refuse(whole, "some parameters are sharded, others are not");
            d.sharded = ways.contains("FSDP") ? 3 : 1;
        }
    }
    return d;
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

/// Returns how many blocks each stage has. Refuses models that are no stack of equal blocks, and stages that divide
/// one.
std::vector<std::size_t> blocks_by_stage(exported_plan const& whole) {
    std::vector<std::size_t> counts;
    std::map<std::size_t, std::map<std::string, tensor_shape>> contents; // by block and name inside
    std::set<std::string> before;
    std::size_t next = 0;
    for (std::size_t s = 0; s < whole.stages.size(); ++s) {
        std::set<std::size_t> here;
        for (auto const& t : whole.stages[s]->tensors) {
            if (t.role != tensor_role::parameter) continue;
            auto const block = block_of(t.name);
            if (!block) continue;
            before.insert(block->before);
            here.insert(block->number);
            contents[block->number].try_emplace(block->after, t.shape);
        }
        for (auto const number : here)
            if (number != next++)
                refuse(whole, "stage " + std::to_string(s) + " has not only whole blocks of the model");
        counts.push_back(here.size());
    }
    if (contents.empty() || before.size() != 1 ||
        algorithm::any_of(contents, [&](auto const& c) { return c.second != contents.begin()->second; }))
        refuse(whole, "the model is no stack of equal blocks, which Megatron-LM has");
    return counts;
}

/// Returns the samples of an iteration, from the first input.
std::int64_t batch_of(exported_plan const& whole) {
    auto const& tensors = whole.stages.front()->tensors;
    auto const input = algorithm::find(tensors, tensor_role::input, &plan_tensor::role);
    if (input == tensors.end() || input->shape.empty()) refuse(whole, "it has no input that begins with the batch");
    return input->shape[0] * whole.micro_batches;
}

std::int64_t micro_batch_of(exported_plan const& whole, degrees const& d) {
    auto const parts = whole.micro_batches * static_cast<std::int64_t>(d.data), batch = batch_of(whole);
    if (batch % parts != 0)
        refuse(whole, "a batch of " + std::to_string(batch) + " is not divided evenly into " + std::to_string(parts) +
                          " parts");
    return batch / parts;
}

/// Returns what all stages have alike. Refuses plans of which a stage has something else, for a reason that names it.
template <class Property, class Reason>
auto common_to_stages(exported_plan const& whole, Property const& of, Reason const& reason) {
    auto const first = of(*whole.stages.front());
    for (std::size_t s = 1; s < whole.stages.size(); ++s)
        if (of(*whole.stages[s]) != first) refuse(whole, reason(std::to_string(s)));
    return first;
}

degrees same_degrees(exported_plan const& whole) {
    return common_to_stages(
        whole, [&](plan const& p) { return degrees_of(whole, p); },
        [](std::string const& s) { return "stage " + s + " divides its work in another way than stage 0"; });
}

/// Tells whether all stages recompute their activations. Refuses plans of which some do.
bool recomputes(exported_plan const& whole) {
    return common_to_stages(
        whole, [](plan const& p) { return p.provenance.training.recomputes; },
        [](std::string const& s) { return "of stages 0 and " + s + " one recomputes its activations alone"; });
}

std::string megatron(exported_plan const& whole) {
    auto const d = same_degrees(whole);
    auto const blocks = blocks_by_stage(whole);
    std::string text;
    auto const add = [&](std::string const& option, std::string const& value) {
        text += option + (value.empty() ? "" : " " + value) + '\n';
    };
    add("--tensor-model-parallel-size", std::to_string(d.tensor));
    add("--pipeline-model-parallel-size", std::to_string(blocks.size()));
    if (d.expert > 1) add("--expert-model-parallel-size", std::to_string(d.expert));
    add("--micro-batch-size", std::to_string(micro_batch_of(whole, d)));
    add("--global-batch-size", std::to_string(batch_of(whole)));
    if (blocks.size() > 1 && std::ranges::count(blocks, blocks.front()) != std::ssize(blocks)) {
        std::string layout = "E"; // the embedding, blocks by stage, the loss
        for (std::size_t s = 0; s < blocks.size(); ++s)
            layout += (s ? "|" : "") + (blocks[s] > 0 ? "t*" + std::to_string(blocks[s]) : "");
        add("--pipeline-model-parallel-layout", '"' + layout + "L\"");
    }
    if (recomputes(whole)) { // of a stage what enters is kept alone
        add("--recompute-granularity", "full");
        add("--recompute-method", "uniform");
        add("--recompute-num-layers", std::to_string(std::ranges::max(blocks)));
    }
    if (d.sharded == 1) add("--use-distributed-optimizer", "");
    if (d.sharded == 3) {
        add("--use-megatron-fsdp", "");
        add("--data-parallel-sharding-strategy", "optim_grads_params");
    }
    return text;
}

std::string deepspeed(exported_plan const& whole) {
    if (whole.stages.size() > 1) refuse(whole, "DeepSpeed's configuration does not say which layers a stage has");
    auto const& p = *whole.stages.front();
    auto const d = same_degrees(whole);
    if (recomputes(whole))
        refuse(whole, "it recomputes activations, which DeepSpeed has in the model, not in the configuration");
    if (d.tensor > 1 || d.expert > 1)
        refuse(whole, "its parameters are cut for good, which DeepSpeed has in the model, not in the configuration");
    ordered_json out{{"train_batch_size", batch_of(whole)},
                     {"train_micro_batch_size_per_gpu", micro_batch_of(whole, d)},
                     {"gradient_accumulation_steps", whole.micro_batches}};
    auto const is_of = [&](element_type type) {
        return algorithm::any_of(
            p.tensors, [&](plan_tensor const& t) { return t.role == tensor_role::parameter && t.type == type; });
    };
    if (is_of(element_type::bfloat16)) out["bf16"] = {{"enabled", true}};
    if (is_of(element_type::float16)) out["fp16"] = {{"enabled", true}};
    out["zero_optimization"] = {{"stage", d.sharded}, {"overlap_comm", p.provenance.training.overlaps_gradients}};
    if (auto const bucket = p.provenance.training.bucket.value; bucket > 0) { // counted in elements
        double const element = is_of(element_type::bfloat16) || is_of(element_type::float16) ? 2 : 4;
        out["zero_optimization"]["reduce_bucket_size"] = static_cast<std::int64_t>(bucket / element);
    }
    return out.dump(2) + '\n';
}

/// Returns the modules whose parameters a stage has, each block and what else stands first in a name, in order.
std::vector<std::string> modules_of(plan const& p) {
    std::vector<std::string> modules;
    for (auto const& t : p.tensors) {
        if (t.role != tensor_role::parameter) continue;
        auto const block = block_of(t.name);
        auto const name = block ? block->before + std::to_string(block->number) : t.name.substr(0, t.name.find('.'));
        if (algorithm::find(modules, name) == modules.end()) modules.push_back(name);
    }
    return modules;
}

std::string torchtitan(exported_plan const& whole) {
    auto const d = same_degrees(whole);
    if (d.sharded == 1) refuse(whole, "the optimiser's state alone is sharded, where torchtitan shards parameters too");
    if (d.expert > 1 && d.sharded == 0)
        refuse(whole, "experts are spread over devices that have the other parameters whole, which torchtitan shards");
    std::size_t const stages = whole.stages.size();
    if (stages > 1) blocks_by_stage(whole); // which refuses stages of parts of blocks
    auto const micro_batch = micro_batch_of(whole, d);
    bool const checkpoints = recomputes(whole);
    std::string text = "from torchtitan.config import " +
                       std::string(checkpoints ? "ActivationCheckpointConfig, " : "") +
                       "ParallelismConfig, TrainingConfig\n\nparallelism = ParallelismConfig(\n";
    auto const add = [&](std::string const& field, std::string const& value) {
        text += "    " + field + '=' + value + ",\n";
    };
    add("data_parallel_replicate_degree", std::to_string(d.sharded == 0 ? d.data : 1));
    add("data_parallel_shard_degree", std::to_string(d.sharded == 0 ? 1 : d.data));
    add("tensor_parallel_degree", std::to_string(d.tensor));
    if (d.expert > 1) add("expert_parallel_degree", std::to_string(d.expert));
    add("pipeline_parallel_degree", std::to_string(stages));
    if (stages > 1) {
        add("pipeline_parallel_schedule", "\"1F1B\"");
        add("pipeline_parallel_microbatch_size", std::to_string(micro_batch));
        ordered_json modules = ordered_json::array();
        for (auto const* p : whole.stages) modules.push_back(modules_of(*p));
        add("module_fqns_per_model_part", modules.dump());
    }
    // Without a pipeline, gradients of as many local batches are added as the global one takes.
    auto const local = stages > 1 ? micro_batch * whole.micro_batches : micro_batch;
    text += ")\n";
    if (checkpoints) text += "activation_checkpoint = ActivationCheckpointConfig(mode=\"full\")\n"; // by blocks
    return text + "training = TrainingConfig(local_batch_size=" + std::to_string(local) +
           ", global_batch_size=" + std::to_string(batch_of(whole)) + ")\n";
}

/// Returns the axes of a mesh along which each dimension of a tensor is cut, outermost first.
std::vector<std::vector<std::size_t>> axes_of(exported_plan const& whole, plan const& p, product_form const& f,
                                              tensor_id t) {
    auto const& tensor = p.tensors[t];
    std::vector<std::vector<std::size_t>> axes(tensor.shape.size());
    for (std::size_t axis = 0; axis < f.size(); ++axis) {
        auto const of_axis = f[static_cast<axis_number>(axis)];
        if (!of_axis.is_shard()) continue;
        auto const& cut = tensor.factors[static_cast<std::size_t>(of_axis.factor())];
        if (!cut.widths.empty() || cut.extent * cut.stride != tensor.shape[cut.dimension])
            refuse(whole, "'" + tensor.name + "' is cut in steps of a dimension, where Shardy cuts it at once");
        axes[cut.dimension].push_back(axis);
    }
    return axes;
}

std::string shardy(exported_plan const& whole) {
    std::string meshes, tensors;
    for (std::size_t s = 0; s < whole.stages.size(); ++s) {
        auto const& p = *whole.stages[s];
        if (p.has_groups()) refuse(whole, "it has a machine as one device, of which Shardy wants an axis");
        for (auto const& c : p.cuts)
            if (std::ranges::count(c.counts, c.counts.front()) != std::ssize(c.counts))
                refuse(whole, "devices have unequal parts, which Shardy does not know");
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
            for (auto const& of_dimension : axes_of(whole, p, step.from(), t)) {
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

std::optional<double> cost_of(std::optional<double> const& strategy) { return strategy; }
std::optional<double> cost_of(family_result const& family) { return family.cost; }

/// A strategy by its name in plans and here, and the frameworks that can do it at even shares.
struct known_strategy {
    char const *in_plans, *name;
    std::vector<std::string> frameworks;
};

std::vector<known_strategy> known_strategies() {
    return {{"DP-EV", "data parallelism at even shares", {"megatron", "deepspeed", "torchtitan", "shardy", "dtensor"}},
            {"DP-CP", "data parallelism at shares by speed", {"dtensor"}},
            {"ZeRO-1", "ZeRO-1", {"megatron", "deepspeed", "shardy", "dtensor"}},
            {"ZeRO-2", "ZeRO-2", {"shardy", "dtensor"}},
            {"fully sharded", "full sharding", {"megatron", "deepspeed", "torchtitan", "shardy", "dtensor"}},
            {"tensor parallel", "tensor parallelism", {"megatron", "torchtitan", "shardy"}}};
}

/// Returns the cheapest strategy that a framework can do. What was priced on unequal devices has shares by speed,
/// unless its name says otherwise, which PyTorch's tensors alone can have.
template <class Costs>
std::optional<priced_strategy> nearest_of(Costs const& costs, std::string const& to, bool are_equal) {
    std::optional<priced_strategy> best;
    for (auto const& s : known_strategies()) {
        auto const found = costs.find(s.in_plans);
        if (found == costs.end() || algorithm::find(s.frameworks, to) == s.frameworks.end()) continue;
        if (!are_equal && to != "dtensor" && s.in_plans != std::string("DP-EV")) continue;
        double const cost = cost_of(found->second).value_or(std::numeric_limits<double>::infinity());
        if (!best || cost < best->cost) best = {s.name, cost};
    }
    return best;
}

template <class Costs>
exported_plan exported(std::vector<plan const*> stages, int micro_batches, double cost, Costs const& costs,
                       std::string const& to) {
    bool const are_equal = algorithm::all_of(stages, [&](plan const* p) {
        return algorithm::all_of(p->devices,
                                 [&](auto const& d) { return d.type == stages.front()->devices.front().type; });
    });
    return {std::move(stages), micro_batches, cost, nearest_of(costs, to, are_equal)};
}

exported_plan exported(plan const& p, std::string const& to) { return exported({&p}, 1, p.cost(), p.baselines, to); }

exported_plan exported(staged_plan const& p, std::string const& to) {
    std::vector<plan const*> stages;
    for (auto const& s : p.stages) stages.push_back(&s.plan);
    return exported(std::move(stages), p.micro_batches, p.cost(), p.families, to);
}

exported_plan exported(pipeline_plan const&, std::string const&) {
    throw input_error("the plan cannot be exported",
                      "it is a strategy of layers, expected one of stages, which heddle plan makes without --planner");
}

} // namespace

int run_export(export_arguments const& arguments) {
    if (!arguments.out.empty()) heddle::json::require_writable(arguments.out);
    auto const p = read_any_plan(arguments.plan);
    auto const whole = std::visit([&](auto const& of_kind) { return exported(of_kind, arguments.to); }, p);
    std::optional<json::model> model;
    if (!arguments.model.empty()) {
        if (arguments.to != "dtensor") throw input_error("--model", "is read for --to dtensor alone");
        if (whole.stages.size() != 1 || whole.micro_batches != 1)
            throw input_error("--model", "is read for a plan of one stage and one micro-batch");
        auto const& planned = *whole.stages.front();
        model = read_planned_model(arguments.model, {}, planned.provenance);
        if (auto const checked = verify(model->program, planned); !checked)
            throw input_error(arguments.plan, "is none of " + arguments.model + ": " + checked.problem);
    }
    auto const text = arguments.to == "megatron"     ? megatron(whole)
                      : arguments.to == "deepspeed"  ? deepspeed(whole)
                      : arguments.to == "torchtitan" ? torchtitan(whole)
                      : arguments.to == "shardy"
                          ? shardy(whole)
                          : placements_of(whole, model ? &model->program : nullptr).dump(1) + '\n';
    std::vector<heddle::json::staged_file> files;
    if (arguments.out.empty()) std::cout << text;
    else files.emplace_back(arguments.out, text);
    deliver(std::move(files));
    return done;
}

} // namespace heddle::cli
