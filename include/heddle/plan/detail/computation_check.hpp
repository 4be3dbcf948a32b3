// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Checks of single computations against index rules, without the theory's triples.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/instruction.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// What a check found wrong.
struct violation {
    std::string text;
};

inline void require(bool good, std::string const& problem) {
    if (!good) throw violation{problem};
}

/// Checks that an index rule allows a computation on one axis; throws `violation` if it does not.
class computation_check {
public:
    /// `class_of` has the class of each factor that is cut. References are kept.
    computation_check(indexed_program const& program, std::map<cut_factor, std::size_t> const& class_of)
        : program_(program), class_of_(class_of) {}

    /// *Precondition:* the operator is there, and every shard is of a class.
    void operator()(instruction::compute const& i) const;

    /// Checks that each term's summands add up over the devices: exactly one operand is partial, or the term itself is
    /// cut along the loop and no operand is partial.
    static void check_terms(indexed_operator const& op, std::vector<bool> const& partial, split_loop const* loop);

private:
    void check_split(instruction::compute const& i, indexed_operator const& op) const;
    void check_whole(instruction::compute const& i, indexed_operator const& op) const;
    /// Checks that whole gradients follow from what has the loop, which is gathered after the backward pass: the
    /// backward pass may read nothing else but whole operands.
    static void check_factors(indexed_operator const& op, split_loop const& loop);

    /// Tells whether a form is the wanted one; without a cotangent `replicated` and `mirrored` are the same.
    [[nodiscard]] bool is_whole(tensor_id t, tensor_form f, tensor_form wanted) const {
        return f == wanted || (f == tensor_form::replicated() && wanted == tensor_form::mirrored() &&
                               !program_.tensors[t].has_cotangent);
    }

    indexed_program const& program_;
    std::map<cut_factor, std::size_t> const& class_of_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void computation_check::operator()(instruction::compute const& i) const {
    auto const& op = program_.operators[i.op];
    if (i.loop >= 0) check_split(i, op);
    else check_whole(i, op);
}

HEDDLE_INLINE void computation_check::check_split(instruction::compute const& i, indexed_operator const& op) const {
    require(i.loop < static_cast<int>(op.loops.size()), "'" + op.name + "' has no such loop");
    auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
    require(!loop.exchanges() || !program_.is_split_inside,
            "'" + op.name + "' sends rows to other devices, which device groups do not");
    std::set<std::size_t> classes, destinations;
    auto const check = [&](tensor_id t, tensor_form f, factor_number expected, bool is_destination = false) {
        if (expected == no_factor) return f == tensor_form::replicated();
        if (!f.is_shard() || f.factor() != expected) return false;
        (is_destination ? destinations : classes).insert(class_of_.at({t, expected}));
        return true;
    };
    std::vector<bool> partial(op.operands.size());
    bool const factors = gathers_factors(i);
    if (factors) check_factors(op, loop);
    for (std::size_t k = 0; k < i.operands.size(); ++k) {
        partial[k] = i.operands[k] == tensor_form::partial();
        bool const mirrored = factors && loop.operands[k] == no_factor && i.operands[k] == tensor_form::mirrored();
        if (mirrored)
            require(program_.tensors[op.operands[k]].is_parameter(),
                    "operand " + std::to_string(k) + " of '" + op.name +
                        "' is mirrored where the operator is split, but is no parameter");
        bool const is_destination = loop.exchanges() && loop.is_destination[k];
        require(partial[k] || mirrored || check(op.operands[k], i.operands[k], loop.operands[k], is_destination),
                "operand " + std::to_string(k) + " of '" + op.name + "' does not have the form that the loop asks for");
    }
    if (loop.is_reduction) {
        for (tensor_form f : i.results)
            require(f == tensor_form::partial(), "'" + op.name + "' sums over the loop, but its result is not partial");
        check_terms(op, partial, &loop);
    } else {
        require(algorithm::find(partial, true) == partial.end(),
                "'" + op.name + "' has a partial operand and a loop that is no reduction");
        for (std::size_t k = 0; k < i.results.size(); ++k)
            require(loop.results[k] != no_factor && check(op.results[k], i.results[k], loop.results[k]),
                    "result " + std::to_string(k) + " of '" + op.name + "' does not have the form that the loop gives");
    }
    require(classes.size() <= 1 && destinations.size() <= 1,
            "'" + op.name + "' is split along factors that are cut at different points");
}

HEDDLE_INLINE void computation_check::check_factors(indexed_operator const& op, split_loop const& loop) {
    std::string const what = "'" + op.name + "' has mirrored parameters and is split, but ";
    require(!loop.is_reduction, what + "its result is a sum over the loop");
    require(!loop.exchanges(), what + "other devices compute its rows");
    require(op.work.saved_results.empty() && op.work.extra_saved == bytes(0),
            what + "its backward reads more than operands and cotangents");
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        bool const saved = algorithm::find(op.work.saved_operands, k) != op.work.saved_operands.end();
        require(loop.operands[k] == no_factor || saved,
                what + "operand " + std::to_string(k) + " has the loop and is not saved");
    }
}

HEDDLE_INLINE void computation_check::check_whole(instruction::compute const& i, indexed_operator const& op) const {
    if (algorithm::find(i.operands, tensor_form::partial()) != i.operands.end()) {
        std::vector<bool> partial;
        for (tensor_form f : i.operands) {
            partial.push_back(f == tensor_form::partial());
            require(partial.back() || f == tensor_form::replicated(),
                    "'" + op.name + "' has operands that are neither partial nor replicated");
        }
        check_terms(op, partial, nullptr);
        for (tensor_form f : i.results)
            require(f == tensor_form::partial(),
                    "'" + op.name + "' has partial operands, but its result is not partial");
        return;
    }
    for (tensor_form wanted : {tensor_form::replicated(), tensor_form::mirrored()}) {
        bool all = true;
        for (std::size_t k = 0; k < i.operands.size(); ++k) all &= is_whole(op.operands[k], i.operands[k], wanted);
        for (std::size_t k = 0; k < i.results.size(); ++k) all &= is_whole(op.results[k], i.results[k], wanted);
        if (all) return;
    }
    require(false,
            "'" + op.name + "' is computed whole, but its operands and results are not all replicated or all mirrored");
}

HEDDLE_INLINE void computation_check::check_terms(indexed_operator const& op, std::vector<bool> const& partial,
                                                  split_loop const* loop) {
    std::vector<bool> named(partial.size());
    for (auto const& term : op.terms)
        for (auto k : term) named[k] = true;
    for (std::size_t k = 0; k < partial.size(); ++k)
        require(named[k] || !partial[k],
                "operand " + std::to_string(k) + " of '" + op.name + "' enters non-linearly, but is partial");
    auto const has_loop = [&](auto const& term) { return loop && cuts_term(op, *loop, term); };
    // An index that only operands outside the terms have is an index of every term.
    bool const of_every_term = loop && algorithm::none_of(op.terms, has_loop);
    if (!loop) require(!op.terms.empty(), "'" + op.name + "' is linear in no operand");
    for (auto const& term : op.terms) {
        auto const count = algorithm::count_if(term, [&](auto k) { return static_cast<bool>(partial[k]); });
        bool const cut = of_every_term || has_loop(term);
        require(count == (cut ? 0 : 1),
                cut ? "a term of '" + op.name + "' is cut and partial at once"
                    : "a term of '" + op.name +
                          "' would be added once per device: exactly one of its operands must be partial");
    }
}

} // namespace heddle::detail

#endif
