// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The instructions of a distributed program.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle {

using form_list = std::vector<tensor_form>;

/// What every instruction but a computation says: a tensor that is in form `from` is then in form `to`.
struct form_change {
    tensor_id tensor = 0;
    tensor_form from, to;

    form_change() = default;
    form_change(tensor_id t, tensor_form before, tensor_form after) : tensor(t), from(before), to(after) {}
    friend bool operator==(form_change const&, form_change const&) = default;
};

/// One instruction, run by all devices together: one of the kinds below, each of which converts to it.
class instruction {
public:
    enum class kind : std::uint8_t { read, convert, compute, unshard, reshard };

    /// Bring a source in form `to`; `from` is that or, where only a parameter's optimiser state is in shards, a shard.
    struct read : form_change {
        using form_change::form_change;
        read() = default;
        read(tensor_id t, tensor_form f) : form_change(t, f, f) {}
    };
    struct convert : form_change {
        using form_change::form_change;
    };
    /// Apply operator `op` to operands in the forms `operands`, which gives results in the forms `results`.
    struct compute {
        operator_id op = 0;
        form_list operands, results;
        /// The loop that is split over the devices, or -1: all devices do all of it.
        std::int16_t loop = -1;
        friend bool operator==(compute const&, compute const&) = default;
    };
    /// Convert a parameter from a shard to whole copies for its one operator; the gradient is reduced as soon as it is
    /// there.
    struct unshard : form_change {
        /// Whether a reshard follows, so that nothing stays for the backward pass.
        bool is_resharded = false;
        unshard() = default;
        unshard(tensor_id t, tensor_form before, tensor_form after, bool resharded)
            : form_change(t, before, after), is_resharded(resharded) {}
        friend bool operator==(unshard const&, unshard const&) = default;
    };
    /// Right after that operator, drop the copies in form `from`, which the backward pass gathers again from `to`.
    struct reshard : form_change {
        using form_change::form_change;
    };

    instruction() = default;
    instruction(read i) : what_(i) {}
    instruction(convert i) : what_(i) {}
    instruction(compute i) : what_(std::move(i)) {}
    instruction(unshard i) : what_(i) {}
    instruction(reshard i) : what_(i) {}

    template <class Kind>
    [[nodiscard]] bool is() const {
        return std::holds_alternative<Kind>(what_);
    }
    /// Null if it is of another kind.
    template <class Kind>
    [[nodiscard]] Kind const* as() const {
        return std::get_if<Kind>(&what_);
    }
    template <class Kind>
    [[nodiscard]] Kind* as() {
        return std::get_if<Kind>(&what_);
    }
    /// Null if it is a computation.
    [[nodiscard]] form_change const* change() const {
        if (auto const* i = as<read>()) return i;
        if (auto const* i = as<convert>()) return i;
        if (auto const* i = as<unshard>()) return i;
        return as<reshard>();
    }
    [[nodiscard]] form_change* change() { return const_cast<form_change*>(std::as_const(*this).change()); }
    [[nodiscard]] kind type() const { return static_cast<kind>(what_.index()); }

    /// Calls the one of `cases` that takes its kind best; one that takes a `form_change` takes all kinds that no other
    /// does.
    template <class... Cases>
    decltype(auto) visit(Cases&&... cases) const {
        return std::visit(overload<std::remove_cvref_t<Cases>...>{std::forward<Cases>(cases)...}, what_);
    }

    friend bool operator==(instruction const&, instruction const&) = default;

private:
    template <class... Cases>
    struct overload : Cases... {
        using Cases::operator()...;
    };

    std::variant<read, convert, compute, unshard, reshard> what_; // in the order of `kind`
};

/// Tells whether a computation is split and has mirrored parameters. Their whole gradients come from the gathered
/// operands and cotangents that have the loop, which are their *sufficient factors* (HAP section 2.5.2).
[[nodiscard]] inline bool gathers_factors(instruction::compute const& i) {
    return i.loop >= 0 && algorithm::find(i.operands, tensor_form::mirrored()) != i.operands.end();
}

/// Whether it is a computation that is split over the devices.
[[nodiscard]] inline bool is_split(instruction const& i) {
    auto const* const compute = i.as<instruction::compute>();
    return compute && compute->loop >= 0;
}

/// The forms of a computation's operands and results by their codes.
using computation_codes = std::vector<std::uint16_t>;
[[nodiscard]] inline computation_codes codes_of(instruction::compute const& i) {
    computation_codes codes;
    for (tensor_form f : i.operands) codes.push_back(f.code());
    for (tensor_form f : i.results) codes.push_back(f.code());
    return codes;
}

/// Tells whether an operator that runs again needs a tensor kept for that. Sources are there, and what a searched
/// program has beside the given one is nothing.
[[nodiscard]] inline bool keeps_to_run_again(indexed_program const& p, tensor_id t) {
    auto const& tensor = p.tensors[t];
    return tensor.region == no_region && !tensor.is_source() && tensor.at_cuts != tensor_at_cuts::fixed;
}

/// The (tensor, form) pairs a computation keeps for the backward pass. A pair kept by several computations is kept
/// once; a parameter in the form it is stored in is no extra memory, nor is one that is resharded. A computation that
/// runs again keeps its operands that are not made again.
template <class Visit>
void for_each_saved(indexed_program const& p, instruction::compute const& i, Visit&& visit) {
    auto const& op = p.operators[i.op];
    for (auto k : op.work.saved_operands) visit(op.operands[k], i.operands[k]);
    for (auto k : op.work.saved_results) visit(op.results[k], i.results[k]);
    if (!op.results.empty() && p.tensors[op.results.front()].region != no_region)
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (keeps_to_run_again(p, op.operands[k])) visit(op.operands[k], i.operands[k]);
}
/// None if it is no computation.
template <class Visit>
void for_each_saved(indexed_program const& p, instruction const& i, Visit&& visit) {
    if (auto const* compute = i.as<instruction::compute>()) for_each_saved(p, *compute, visit);
}

} // namespace heddle
