// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ways to bring the operands of one computation.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/theory/instruction_filter.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// What a computation takes beside itself: reads and conversions before it, and what is resharded after it.
struct preparation {
    std::vector<instruction> before, after;
    /// What `before` makes, in its order.
    std::vector<formed_tensor> gained;
};

/// All ways to prepare a computation where some forms of its operands are held.
///
/// A conversion goes straight to a form that is needed, or through a whole copy where nothing leads there straight. A
/// parameter that is not held is read in the form needed or, where that is whole, along its finest factor of those that
/// are allowed, and converted, or, where one operator uses it, unsharded. One that is held is not read again.
/// *Invariant.* What stands before the computation is allowed, and none of it makes what is held.
class preparations {
public:
    explicit preparations(indexed_program const& p) : program_(p) {}

    void restrict_to(instruction_filter allowed) { allowed_ = std::move(allowed); }
    [[nodiscard]] instruction_filter const& allowed() const { return allowed_; }
    /// Adds, where a computation has more ways than are tried, one that is no dearer than any of them: its operands are
    /// there in all forms, for nothing. Then no program is lost.
    void bound_what_is_left_out() { bounds_ = true; }
    /// False once ways were lost.
    [[nodiscard]] bool is_complete() const { return is_complete_; }

    /// Calls `visit` for every way, in the order in which it is found; what it gets is good until it returns. `held`:
    /// the forms of tensors that conversions may start from, in the order in which they are tried.
    void for_each(instruction::compute const& computation, std::span<formed_tensor const> held,
                  std::function<void(preparation const&)> const& visit);

private:
    static constexpr std::size_t most_ways = 4096;

    /// What one computation is prepared with: the forms that it needs, each once, and what is there.
    struct request {
        instruction::compute const& computation;
        std::vector<formed_tensor> needs;
        std::span<formed_tensor const> held;
        std::function<void(preparation const&)> const& visit;
        std::size_t ways = 0;
        bool is_cut_short = false;
    };

    /// Tries every way to hold the needs from number `at` on.
    void fulfil(request& r, std::size_t at);
    /// Makes a need of these instructions, where they are allowed, and tries every way to hold the others.
    void make(request& r, std::size_t at, std::initializer_list<instruction> steps);
    void convert(request& r, std::size_t at);
    void read(request& r, std::size_t at);

    [[nodiscard]] bool holds(request const& r, formed_tensor const& wanted) const {
        return algorithm::find(way_.gained, wanted) != way_.gained.end() ||
               algorithm::find(r.held, wanted) != r.held.end();
    }
    /// The forms in which a tensor is held.
    [[nodiscard]] form_list forms_of(request const& r, tensor_id t) const;
    /// Returns the factor with the most atoms among those along which a parameter may be read; if it may be read along
    /// none, among all.
    [[nodiscard]] factor_number gathered_along(tensor_id t) const;

    indexed_program const& program_;
    instruction_filter allowed_ = instruction_filter::everything();
    bool is_complete_ = true, bounds_ = false;
    preparation way_; // the one under way
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle {

HEDDLE_INLINE void preparations::for_each(instruction::compute const& computation, std::span<formed_tensor const> held,
                                          std::function<void(preparation const&)> const& visit) {
    request r{computation, {}, held, visit};
    for (std::size_t k = 0; k < computation.operands.size(); ++k) {
        formed_tensor const wanted{program_.operators[computation.op].operands[k], computation.operands[k]};
        if (algorithm::find(r.needs, wanted) == r.needs.end()) r.needs.push_back(wanted);
    }
    fulfil(r, 0);
    if (!r.is_cut_short) return;
    is_complete_ = is_complete_ && bounds_;
    if (!bounds_) return;
    preparation all;
    for (auto t : program_.operators[computation.op].operands) {
        auto const& tensor = program_.tensors[t];
        if (tensor.at_cuts == tensor_at_cuts::fixed) continue; // there already
        for (tensor_form f : possible_forms(tensor)) all.gained.push_back({t, f});
    }
    visit(all);
}

HEDDLE_INLINE void preparations::fulfil(request& r, std::size_t at) {
    if (r.ways == most_ways) {
        r.is_cut_short = true;
        return;
    }
    if (at == r.needs.size()) {
        ++r.ways;
        return r.visit(way_);
    }
    if (holds(r, r.needs[at])) return fulfil(r, at + 1);
    if (program_.tensors[r.needs[at].first].at_cuts == tensor_at_cuts::fixed) return;
    convert(r, at);
    read(r, at);
}

HEDDLE_INLINE void preparations::make(request& r, std::size_t at, std::initializer_list<instruction> steps) {
    if (!algorithm::all_of(steps, std::cref(allowed_))) return;
    auto const before = way_.before.size(), gained = way_.gained.size();
    for (auto const& i : steps) {
        formed_tensor const made{i.change()->tensor, i.change()->to};
        if (holds(r, made)) continue; // a whole copy on the way may be there for another operand
        way_.before.push_back(i);
        way_.gained.push_back(made);
    }
    fulfil(r, at + 1);
    way_.before.resize(before);
    way_.gained.resize(gained);
}

HEDDLE_INLINE void preparations::convert(request& r, std::size_t at) {
    auto const [t, f] = r.needs[at];
    for (tensor_form from : forms_of(r, t)) {
        if (find_conversion(from, f)) {
            make(r, at, {instruction::convert(t, from, f)});
            continue;
        }
        for (tensor_form hub : {tensor_form::replicated(), tensor_form::mirrored()})
            if (is_possible(hub, program_.tensors[t]))
                make(r, at, {instruction::convert(t, from, hub), instruction::convert(t, hub, f)});
    }
}

HEDDLE_INLINE void preparations::read(request& r, std::size_t at) {
    auto const [t, f] = r.needs[at];
    auto const& tensor = program_.tensors[t];
    // A parameter is stored once, in the form of its first read; what has no cotangent can be read again.
    if (!tensor.is_source() || (tensor.is_read_once() && !forms_of(r, t).empty())) return;
    auto const readable = readable_forms(tensor);
    if (algorithm::find(readable, f) != readable.end()) make(r, at, {instruction::read(t, f)});
    else
        make(r, at,
             {instruction::read(t, tensor_form::replicated()), instruction::convert(t, tensor_form::replicated(), f)});
    if (!tensor.is_parameter() || tensor.factors.empty() || !f.is_whole()) return;
    tensor_form const stored = tensor_form::shard(gathered_along(t));
    if (tensor.has_cotangent) make(r, at, {instruction::read(t, stored, f)});
    make(r, at, {instruction::read(t, stored), instruction::convert(t, stored, f)});
    // What gathers factors has its gradient after the backward pass only.
    if (!is_used_once(program_, t) || (gathers_factors(r.computation) && f == tensor_form::mirrored())) return;
    make(r, at, {instruction::read(t, stored), instruction::unshard(t, stored, f, false)});
    if (!is_read_again(program_, t)) return; // nothing stays of it
    way_.after.push_back(instruction::reshard(t, f, stored));
    make(r, at, {instruction::read(t, stored), instruction::unshard(t, stored, f, true)});
    way_.after.pop_back();
}

HEDDLE_INLINE form_list preparations::forms_of(request const& r, tensor_id t) const {
    form_list forms;
    for (auto const& list : {r.held, std::span<formed_tensor const>(way_.gained)})
        for (auto const& [owner, f] : list)
            if (owner == t) forms.push_back(f);
    return forms;
}

HEDDLE_INLINE factor_number preparations::gathered_along(tensor_id t) const {
    auto const& tensor = program_.tensors[t];
    std::optional<factor_number> best;
    for (factor_number f = 0; f < static_cast<factor_number>(tensor.factors.size()); ++f) {
        auto const atoms = [&](factor_number g) { return tensor.factors[static_cast<std::size_t>(g)].extent; };
        if (allowed_(instruction::read(t, tensor_form::shard(f))) && (!best || atoms(f) > atoms(*best))) best = f;
    }
    return best.value_or(finest_factor(tensor));
}

} // namespace heddle

#endif
