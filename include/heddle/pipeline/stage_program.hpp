// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the devices of a tensor group compute of one stage: a part of a distributed program, with forms at both
/// ends.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The operators [first, end) of a distributed program on one group of devices. Values pass from stage to stage
/// mirrored, as in Megatron-LM: they are whole on every device, and so are their cotangents. A group therefore need not
/// know the forms, nor the size, of the group before it.
struct stage_program {
    /// Instructions on sources, which run once per iteration; then instructions on values, which run for every
    /// micro-batch. Both are in the program's order.
    std::vector<instruction> once, each;
    /// Values of earlier stages, in the forms other than mirrored in which they are used here.
    std::vector<formed_tensor> enter;
    /// Values that are made here and that later stages use, or the loss, in a form in which they are held: mirrored, if
    /// they are held so.
    std::vector<formed_tensor> leave;
};

namespace detail {

/// Follows what a stage uses back to where it comes from.
class stage_cutter {
public:
    stage_cutter(indexed_program const& p, std::span<instruction const> program, operator_id first, operator_id end);

    stage_program cut();

private:
    static constexpr operator_id none = std::numeric_limits<operator_id>::max();

    [[nodiscard]] bool is_here(operator_id o) const { return o >= first_ && o < end_; }

    void take(std::size_t n);
    void need(tensor_id t, tensor_form f);
    /// Returns a form in which the stage has a value that it makes.
    [[nodiscard]] tensor_form held(tensor_id t) const;

    indexed_program const& program_;
    std::span<instruction const> all_;
    operator_id first_, end_;
    /// The operator that makes each tensor; for sources, none.
    std::vector<operator_id> maker_of_;
    /// The instruction that first makes a tensor in a form.
    std::map<formed_tensor, std::size_t> maker_;
    std::set<std::size_t> taken_;
    std::set<formed_tensor> enter_;
    stage_program out_;
};

} // namespace detail

/// Returns the part of a distributed program that computes the operators [first, end): their instructions, and those
/// that make what they use.
///
/// *Precondition:* the program is a whole one of the theory of `p`, as a plan's instructions are. *Complexity.* O(n log
/// n).
[[nodiscard]] inline stage_program program_of_stage(indexed_program const& p, std::span<instruction const> program,
                                                    operator_id first, operator_id end) {
    return detail::stage_cutter(p, program, first, end).cut();
}

/// Returns the program in which every device does everything.
[[nodiscard]] std::vector<instruction> undivided_program(indexed_program const& p);

/// *Throws* `input_error` that names an operator or a tensor if the distributed program has what pipelines cannot run:
/// the batch cut among a group's devices, gradients from gathered factors, or only optimiser state in shards.
void check_for_stages(indexed_program const& p, std::span<instruction const> program, batch_split const& batch);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/layers.hpp>

namespace heddle::detail {

HEDDLE_INLINE stage_cutter::stage_cutter(indexed_program const& p, std::span<instruction const> program,
                                         operator_id first, operator_id end)
    : program_(p), all_(program), first_(first), end_(end), maker_of_(p.tensors.size(), none) {
    for (operator_id o = 0; o < p.operators.size(); ++o)
        for (auto t : p.operators[o].results) maker_of_[t] = o;
    for (std::size_t n = 0; n < all_.size(); ++n) {
        auto const& i = all_[n];
        if (i.is<instruction::reshard>()) continue;
        if (auto const* change = i.change()) maker_.try_emplace({change->tensor, change->to}, n);
        if (auto const* compute = i.as<instruction::compute>())
            for (std::size_t k = 0; k < compute->results.size(); ++k)
                maker_.try_emplace({p.operators[compute->op].results[k], compute->results[k]}, n);
    }
}

HEDDLE_INLINE stage_program stage_cutter::cut() {
    for (std::size_t n = 0; n < all_.size(); ++n)
        if (auto const* compute = all_[n].as<instruction::compute>(); compute && is_here(compute->op)) take(n);
    auto leaving = values_across(program_, end_);
    leaving.push_back(program_.loss);
    for (auto t : leaving)
        if (is_here(maker_of_[t])) out_.leave.emplace_back(t, held(t));
    for (auto n : taken_) {
        auto const& i = all_[n];
        bool const is_source = i.change() && program_.tensors[i.change()->tensor].is_source();
        (is_source ? out_.once : out_.each).push_back(i);
    }
    out_.enter.assign(enter_.begin(), enter_.end());
    return std::move(out_);
}

HEDDLE_INLINE void stage_cutter::take(std::size_t n) {
    if (!taken_.insert(n).second) return;
    auto const& i = all_[n];
    if (auto const* compute = i.as<instruction::compute>())
        for (std::size_t k = 0; k < compute->operands.size(); ++k)
            need(program_.operators[compute->op].operands[k], compute->operands[k]);
    else if (!i.is<instruction::read>()) need(i.change()->tensor, i.change()->from);
}

HEDDLE_INLINE void stage_cutter::need(tensor_id t, tensor_form f) {
    if (maker_of_[t] == none || is_here(maker_of_[t])) take(maker_.at({t, f}));
    else if (f != canonical(tensor_form::mirrored(), program_.tensors[t])) enter_.emplace(t, f);
}

HEDDLE_INLINE tensor_form stage_cutter::held(tensor_id t) const {
    tensor_form const whole = canonical(tensor_form::mirrored(), program_.tensors[t]);
    if (auto const found = maker_.find({t, whole}); found != maker_.end() && taken_.contains(found->second))
        return whole;
    for (auto n : taken_) {
        auto const* const compute = all_[n].as<instruction::compute>();
        if (!compute || compute->op != maker_of_[t]) continue;
        auto const& results = program_.operators[compute->op].results;
        return compute->results[static_cast<std::size_t>(algorithm::find(results, t) - results.begin())];
    }
    return whole;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE std::vector<instruction> undivided_program(indexed_program const& p) {
    std::vector<instruction> all;
    auto const forms = [&](std::vector<tensor_id> const& tensors) {
        form_list whole;
        for (auto t : tensors) whole.push_back(canonical(tensor_form::mirrored(), p.tensors[t]));
        return whole;
    };
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        if (p.tensors[t].is_source() && !p.tensors[t].consumers.empty())
            all.push_back(instruction::read(t, canonical(tensor_form::mirrored(), p.tensors[t])));
    for (operator_id o = 0; o < p.operators.size(); ++o)
        all.push_back(instruction::compute{o, forms(p.operators[o].operands), forms(p.operators[o].results)});
    return all;
}

HEDDLE_INLINE void check_for_stages(indexed_program const& p, std::span<instruction const> program,
                                    batch_split const& batch) {
    auto const fail = [](std::string const& place, char const* problem) {
        throw input_error(place, std::string(problem) + ", which stages of a pipeline cannot run");
    };
    for (auto const& i : program) {
        if (auto const* compute = i.as<instruction::compute>()) {
            auto const& op = p.operators[compute->op];
            auto const& along_batch = batch.computations[compute->op];
            std::string const place = "operator '" + op.name + "'";
            if (compute->loop >= 0 && compute->loop == along_batch.loop) fail(place, "is split along the batch");
            if (gathers_factors(*compute)) fail(place, "has gradients from gathered factors");
            for (std::size_t k = 0; k < compute->results.size(); ++k)
                if (tensor_form const f = compute->results[k]; f.is_shard() && f == batch.forms[op.results[k]])
                    fail(place, "has its result cut along the batch");
            for (std::size_t k = 0; k < compute->operands.size(); ++k)
                if (tensor_form const f = compute->operands[k]; f.is_shard() && f == along_batch.operands[k])
                    fail(place, "has an operand cut along the batch");
            continue;
        }
        auto const& [t, from, to] = *i.change();
        std::string const place = "tensor '" + p.tensors[t].info.name + "'";
        for (tensor_form const f : {from, to})
            if (f.is_shard() && f == batch.forms[t]) fail(place, "is cut along the batch");
        if (i.is<instruction::read>() && from != to) fail(place, "has its optimiser state alone in shards");
    }
}

} // namespace heddle

#endif
