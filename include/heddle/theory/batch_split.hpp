// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How a program runs on a part of its batch, which is what micro-batches and copies of a model compute.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// A program that is cut along its batch into parts that are independent until their gradients are added.
///
/// Forms are those of the theory, with parts of the batch in place of devices: a value is whole in every part
/// (`replicated`), a range of the batch (`shard`), or a summand (`partial`). An operator may use the part's range of a
/// whole tensor, or its share of it as a summand: the tensor times one over the number of parts. So means, which divide
/// by the whole batch, and sums add up to those of the single device; by duality the gradients of whole tensors,
/// parameters among them, are the sum of what the parts compute.
struct batch_split {
    /// The number of places of the batch that can be told apart.
    extent places = 1;
    /// The form of each tensor; for a source, the form in which it is read.
    std::vector<tensor_form> forms;
    /// The computation of each operator, with the loop of the batch if it has one.
    std::vector<instruction::compute> computations;
    /// What prevents the split: an operator, and why it cannot work on parts. Nothing after it is split.
    std::optional<std::pair<operator_id, char const*>> obstacle{};
    /// The first operator with statistics of the whole batch (a batch norm), which differ from those of the parts.
    std::optional<operator_id> statistic{};
};

namespace detail {

class batch_splitter {
public:
    batch_splitter(indexed_program const& p, std::vector<cut_factor> const& divided);

    batch_split run();

private:
    [[nodiscard]] bool has_form(instruction::compute const& i, tensor_form::kind kind) const {
        return algorithm::any_of(i.operands, [&](tensor_form f) { return f.type() == kind; });
    }
    void fail(instruction::compute const& i, char const* problem) {
        if (!out_.obstacle) out_.obstacle.emplace(i.op, problem);
    }
    /// Notes what an operator uses a range of and needs whole, where every part can compute it whole, as it has no
    /// cotangent: labels in another shape. Returns whether there was any.
    [[nodiscard]] bool make_whole(indexed_operator const& op, instruction::compute const& i);

    void split(operator_id o);

    /// Lets summands pass through an operator that is linear in them: every term has one of them.
    void pass_summands(indexed_operator const& op, instruction::compute& i);
    /// Lets each part add its share of a term that every part has whole.
    void share(instruction::compute& i, std::vector<std::uint8_t> const& term);

    /// Returns the loop along which the batch is split here, or -1. A loop with statistics is taken only if there is no
    /// other.
    [[nodiscard]] std::int16_t find_loop(indexed_operator const& op, instruction::compute const& i) const;

    void split_along(indexed_operator const& op, std::int16_t number, instruction::compute& i);

    indexed_program const& program_;
    std::vector<cut_factor> const& divided_;
    factor_set batch_;
    batch_split out_;
    /// Tells for each tensor whether every part computes all of it.
    std::vector<bool> whole_;
    bool is_to_repeat_ = false;
};

} // namespace detail

/// Splits a program along its batch, operator by operator, as far as that goes. Sources are whole in every part, to be
/// read as is needed, but for those `divided`, of which a part has no more than its own. What has no cotangent and is
/// needed whole is computed whole in every part.
/// *Complexity.* Linear in the program, times one more than the operators on the longest way to what is needed whole.
[[nodiscard]] inline batch_split find_batch_split(indexed_program const& p,
                                                  std::vector<cut_factor> const& divided = {}) {
    return detail::batch_splitter(p, divided).run();
}

/// Splits all of a program along its batch. *Throws* `input_error` that names an operator which needs the whole batch
/// at once, such as a norm over it.
[[nodiscard]] batch_split split_along_batch(indexed_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE batch_splitter::batch_splitter(indexed_program const& p, std::vector<cut_factor> const& divided)
    : program_(p), divided_(divided), batch_(batch_factors(p)), whole_(p.tensors.size()) {}

HEDDLE_INLINE batch_split batch_splitter::run() {
    do {
        is_to_repeat_ = false;
        out_ = {};
        if (auto const inputs = batch_of_inputs(program_); !inputs.empty())
            out_.places = program_.tensors[inputs[0].tensor].factors[static_cast<std::size_t>(inputs[0].factor)].extent;
        out_.forms.assign(program_.tensors.size(), tensor_form::replicated());
        for (auto const& [t, f] : divided_) out_.forms[t] = tensor_form::shard(f);
        for (operator_id o = 0; o < program_.operators.size() && !out_.obstacle && !is_to_repeat_; ++o) split(o);
    } while (is_to_repeat_);
    return std::move(out_);
}

HEDDLE_INLINE bool batch_splitter::make_whole(indexed_operator const& op, instruction::compute const& i) {
    bool any = false;
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        auto const& tensor = program_.tensors[op.operands[k]];
        if (!i.operands[k].is_shard() || tensor.has_cotangent || tensor.is_source()) continue;
        whole_[op.operands[k]] = any = true;
    }
    return any;
}

HEDDLE_INLINE void batch_splitter::split(operator_id o) {
    auto const& op = program_.operators[o];
    instruction::compute i{o, {}, {}};
    for (auto t : op.operands) i.operands.push_back(out_.forms[t]);
    bool const is_whole = algorithm::any_of(op.results, [&](tensor_id t) { return whole_[t]; });
    if (has_form(i, tensor_form::kind::partial)) {
        pass_summands(op, i);
    } else if (auto const loop = is_whole ? std::int16_t{-1} : find_loop(op, i); loop >= 0) {
        split_along(op, loop, i);
    } else {
        is_to_repeat_ = make_whole(op, i);
        if (!is_to_repeat_ && has_form(i, tensor_form::kind::shard))
            fail(i, "needs the whole batch, so the program cannot run in micro-batches");
        i.results.assign(op.results.size(), tensor_form::replicated());
    }
    for (std::size_t k = 0; k < op.results.size(); ++k) out_.forms[op.results[k]] = i.results[k];
    out_.computations.push_back(std::move(i));
}

HEDDLE_INLINE void batch_splitter::pass_summands(indexed_operator const& op, instruction::compute& i) {
    auto outside = algorithm::count(i.operands, tensor_form::partial()); // of all terms
    for (auto const& term : op.terms) {
        auto const summands =
            algorithm::count_if(term, [&](auto k) { return i.operands[k] == tensor_form::partial(); });
        if (summands > 1) fail(i, "multiplies sums over the batch, so the program cannot run in micro-batches");
        outside -= summands;
        if (summands == 0) share(i, term);
    }
    if (has_form(i, tensor_form::kind::shard) || outside > 0)
        fail(i, "needs a sum over the whole batch, so the program cannot run in micro-batches");
    i.results.assign(op.results.size(), tensor_form::partial());
}

HEDDLE_INLINE void batch_splitter::share(instruction::compute& i, std::vector<std::uint8_t> const& term) {
    if (term.empty()) fail(i, "needs a sum over the whole batch, so the program cannot run in micro-batches");
    else i.operands[term.front()] = tensor_form::partial();
}

HEDDLE_INLINE std::int16_t batch_splitter::find_loop(indexed_operator const& op, instruction::compute const& i) const {
    std::int16_t last_resort = -1;
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
        auto const& loop = op.loops[l];
        if (!is_of(op, loop, batch_) || loop.extent != out_.places) continue;
        bool fits = true, any_operand = false, wanted = false;
        for (std::size_t k = 0; k < op.operands.size(); ++k) {
            bool const has_loop = loop.operands[k] != no_factor;
            fits = fits && (!i.operands[k].is_shard() || loop.operands[k] == i.operands[k].factor());
            any_operand = any_operand || has_loop;
            wanted = wanted || (has_loop &&
                                (i.operands[k].is_shard() || program_.tensors[op.operands[k]].info.is_divided_input()));
        }
        for (auto f : loop.results) fits = fits && (f == no_factor) == loop.is_reduction;
        // What has only parameters and buffers as operands is left whole; a value without operands is made in parts.
        if (!fits || (any_operand && !wanted)) continue;
        if (loop.forward_statistics + loop.backward_statistics == 0) return static_cast<std::int16_t>(l);
        if (has_form(i, tensor_form::kind::shard)) last_resort = static_cast<std::int16_t>(l);
    }
    return last_resort;
}

HEDDLE_INLINE void batch_splitter::split_along(indexed_operator const& op, std::int16_t number,
                                               instruction::compute& i) {
    auto const& loop = op.loops[static_cast<std::size_t>(number)];
    i.loop = number;
    if (!out_.statistic && loop.forward_statistics + loop.backward_statistics > 0) out_.statistic = i.op;
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (loop.operands[k] != no_factor) i.operands[k] = tensor_form::shard(loop.operands[k]);
    for (auto f : loop.results) i.results.push_back(f == no_factor ? tensor_form::partial() : tensor_form::shard(f));
    if (!loop.is_reduction) return;
    for (auto const& term : op.terms)
        if (!cuts_term(op, loop, term)) share(i, term);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE batch_split split_along_batch(indexed_program const& p) {
    auto split = find_batch_split(p);
    auto const fail = [&](operator_id o, char const* problem) {
        throw input_error("operator '" + p.operators[o].name + "'", problem);
    };
    if (split.statistic) fail(*split.statistic, "needs the whole batch, so the program cannot run in micro-batches");
    if (split.obstacle) fail(split.obstacle->first, split.obstacle->second);
    return split;
}

} // namespace heddle

#endif
