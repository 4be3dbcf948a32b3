// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution, piece by piece, of plans that are too large to run whole, however small their dimensions.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/piece.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct piecewise_options {
    /// What one piece may take.
    execution_size most{bytes(5e8), flops(4e9)};
    /// How each piece is shrunk.
    shrink_options shrink{};
    /// No piece is begun after so many seconds.
    double seconds = 60;
    proof_options each{};
};

/// What executing the pieces of a plan showed.
struct piecewise_proof {
    /// Errors, bytes and the first problem of all pieces together. There is no loss.
    proof shown = nothing_wrong();
    std::size_t pieces = 0;
    /// Distinct steps of the plan, and those of them that were run. A distinct step is an operator with its attributes,
    /// extents, forms and shares, or a read or conversion with its.
    std::size_t distinct = 0, executed = 0;
    /// Whether every piece had the planned atoms and counts.
    bool has_planned_counts = true;
    /// Why single steps were not run.
    std::vector<std::string> left;

    [[nodiscard]] double share() const {
        return distinct > 0 ? static_cast<double>(executed) / static_cast<double>(distinct) : 1;
    }
    /// Whether nothing that was run is wrong; `share` says how much that is.
    explicit operator bool() const { return static_cast<bool>(shown); }
    piecewise_proof& operator+=(piecewise_proof const& other);
    /// Notes a distinct step that was not run, and why.
    void leave(std::string why) {
        ++distinct;
        left.push_back(std::move(why));
    }

private:
    [[nodiscard]] static proof nothing_wrong() {
        proof all;
        all.loss = all.expected_loss = std::numeric_limits<double>::quiet_NaN();
        all.is_equal = true;
        return all;
    }
};

namespace detail {

/// Divides a plan until its pieces are small enough, and leaves out what was run before.
class piece_prover {
public:
    piece_prover(program part, plan const& what, piecewise_options const& options);

    /// Calls `prove(planned_program)` for one piece after the other until all is run, something is wrong, or time is
    /// up.
    template <class Prove>
    piecewise_proof run(Prove&& prove) {
        std::vector<range> open{{0, what_.steps.size()}};
        while (!open.empty() && out_.shown) {
            auto const next = trimmed(open.back());
            open.pop_back();
            if (next.first == next.last) continue;
            if (is_late()) {
                leave(next, "time is up");
                continue;
            }
            auto problem = run_piece(next, prove);
            if (problem.empty()) continue;
            auto const middle = middle_of(next);
            if (middle == next.first) {
                leave(next, problem);
                continue;
            }
            open.push_back({middle, next.last});
            open.push_back({next.first, middle});
        }
        out_.executed = executed_.size();
        return std::move(out_);
    }

private:
    struct range {
        std::size_t first, last;
    };
    using clock = std::chrono::steady_clock;

    /// Why a piece was not run, or nothing.
    template <class Prove>
    std::string run_piece(range r, Prove&& prove) {
        try {
            auto piece = pieces_.of(r.first, r.last);
            if (!piece) return "its factors are known by other operators alone";
            auto const small = smaller(*piece);
            if (!small) return "it takes more memory or work than a piece may";
            piecewise_proof one;
            one.shown = prove(*small);
            one.pieces = 1;
            one.has_planned_counts = small->has_planned_counts;
            out_ += one;
            for (auto n : piece->steps) executed_.insert(kinds_.at(n));
            return {};
        } catch (input_error const& e) { return e.what(); }
    }
    /// Without the computations at either end that were run before, with all that they take.
    [[nodiscard]] range trimmed(range r) const;
    /// A step that halves the computations that are still to be run; the first step if there is only one.
    [[nodiscard]] std::size_t middle_of(range r) const;
    /// The kinds of step that a computation takes; none of another step.
    [[nodiscard]] std::vector<std::size_t> kinds_of(std::size_t n) const {
        std::vector<std::size_t> kinds;
        for (auto k : pieces_.of_computation(n)) kinds.push_back(kinds_.at(k));
        return kinds;
    }
    [[nodiscard]] bool is_open(std::size_t n) const {
        auto const kinds = kinds_of(n);
        return algorithm::any_of(kinds, [&](auto kind) { return !executed_.contains(kind); }) && !left_.contains(kinds);
    }
    [[nodiscard]] bool is_late() const {
        return std::chrono::duration<double>(clock::now() - began_).count() > options_.seconds;
    }
    void leave(range r, std::string const& why);
    [[nodiscard]] std::optional<planned_program> smaller(plan_piece const& piece) const;

    plan const& what_;
    piecewise_options const& options_;
    plan_pieces pieces_;
    /// A number for each kind of step, by step.
    std::map<std::size_t, std::size_t> kinds_;
    std::set<std::size_t> executed_;
    /// Kinds of the steps of computations that cannot be run by themselves.
    std::set<std::vector<std::size_t>> left_;
    clock::time_point began_ = clock::now();
    piecewise_proof out_;
};

/// As `prove_in_pieces` of a plan, of a program that is `one_in_turn`.
template <kernel_backend<double> Backend>
[[nodiscard]] piecewise_proof prove_part_in_pieces(program part, plan const& what, Backend const& backend,
                                                   piecewise_options const& options) {
    if (what.is_on_mesh()) {
        piecewise_proof none;
        none.leave("the plan is on a mesh of " + to_string(what.mesh()) + ", which is run whole or not at all");
        return none;
    }
    return piece_prover(std::move(part), what, options).run([&](planned_program const& piece) {
        return prove(piece.program, piece.plan, backend, options.each);
    });
}

} // namespace detail

/// Runs every distinct step of a plan, in pieces whose dimensions are as small as their cuts allow (`shrink`): all of
/// it, if that is small enough, else halves, and so on. Steps that are equal but for data are run once.
///
/// What cannot be run by itself is left out and told; so is what device groups exchange inside, as one step. See
/// `plan_pieces` for what the pieces prove, `prove` for what is compared.
/// A plan on a mesh has no pieces; it is left out as one step.
/// *Precondition:* `verify(p, what)`.
template <kernel_backend<double> Backend>
[[nodiscard]] piecewise_proof prove_in_pieces(program const& p, plan const& what, Backend const& backend,
                                              piecewise_options const& options = {}) {
    return detail::prove_part_in_pieces(one_in_turn(p, what), what, backend, options);
}

/// Proves the tensor groups of a pipeline plan in pieces. What stages and copies send each other is no part of a piece:
/// each boundary of stages is a distinct step that is left out, and so are the gradients of copies.
template <kernel_backend<double> Backend>
[[nodiscard]] piecewise_proof prove_in_pieces(program const& p, pipeline_plan const& what, Backend const& backend,
                                              piecewise_options const& options = {}) {
    piecewise_proof all;
    for (auto const& [degree, group] : what.groups) all += prove_in_pieces(p, group, backend, options);
    for (std::size_t s = 1; s < what.stages.size(); ++s)
        all.leave("stage " + std::to_string(s) + ": pieces do not send what enters it");
    if (what.copies() > 1) all.leave("copies: pieces do not add up their gradients");
    return all;
}

/// Proves the stages of a plan in pieces, each as a plan of its part of the program for one micro-batch. What stages
/// send each other is no part of a piece: each boundary is a distinct step that is left out, and so is a stage on a
/// mesh.
template <kernel_backend<double> Backend>
[[nodiscard]] piecewise_proof prove_in_pieces(program const& p, staged_plan const& what, Backend const& backend,
                                              piecewise_options options = {}) {
    if (what.is_plain()) return prove_in_pieces(p, what.stages.front().plan, backend, options);
    piecewise_proof all;
    auto const parts = parts_of(p, what);
    for (std::size_t s = 0; s < parts.size(); ++s) {
        std::string const place = "stage " + std::to_string(s) + ": ";
        if (s > 0) all.leave(place + "pieces do not send what enters it");
        if (what.stages[s].plan.is_on_mesh()) {
            all.leave(place + "is on a mesh, which is run whole or not at all");
            continue;
        }
        auto const began = std::chrono::steady_clock::now();
        auto const& part = parts[s].program;
        auto one = detail::prove_part_in_pieces(part, what.stages[s].plan, backend, options);
        for (auto o = parts[s].operators.size(); o < part.operator_count(); ++o) // what stands for sending
            std::erase_if(one.left, [start = "'" + part.name(static_cast<operator_id>(o)) +
                                             "'"](std::string const& why) { return why.starts_with(start); });
        all += one;
        options.seconds -= std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    return all;
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE piece_prover::piece_prover(program part, plan const& what, piecewise_options const& options)
    : what_(what), options_(options), pieces_(std::move(part), what) {
    std::map<std::string, std::size_t> numbers;
    for (auto n : pieces_.steps()) kinds_[n] = numbers.try_emplace(pieces_.kind_of(n), numbers.size()).first->second;
    out_.distinct = numbers.size();
    if (what.has_groups())
        out_.leave("device groups: a piece has one device of each, so what these exchange inside is not sent");
}

HEDDLE_INLINE piece_prover::range piece_prover::trimmed(range r) const {
    while (r.first < r.last && !is_open(r.first)) ++r.first;
    while (r.first < r.last && !is_open(r.last - 1)) --r.last;
    return r;
}

HEDDLE_INLINE std::size_t piece_prover::middle_of(range r) const {
    std::size_t all = 0;
    for (auto n = r.first; n < r.last; ++n) all += pieces_.computes(n) ? 1 : 0;
    if (all < 2) return r.first;
    for (std::size_t n = r.first, seen = 0;; ++n)
        if (pieces_.computes(n) && seen++ == all / 2) return n;
}

HEDDLE_INLINE void piece_prover::leave(range r, std::string const& why) {
    for (auto n = r.first; n < r.last; ++n)
        if (is_open(n)) {
            left_.insert(kinds_of(n));
            out_.left.push_back("'" + what_.operators[what_.steps[n].instruction.as<instruction::compute>()->op] +
                                "': " + why);
        }
}

HEDDLE_INLINE std::optional<planned_program> piece_prover::smaller(plan_piece const& piece) const {
    auto const fits = [&](planned_program const& run) {
        auto const size = size_of_execution(index_for(run.program, run.plan), run.plan);
        return size.memory <= options_.most.memory && size.work <= options_.most.work;
    };
    auto small = shrink(piece.what.program, piece.what.plan, options_.shrink);
    if (!fits(small)) return {};
    return small;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE piecewise_proof& piecewise_proof::operator+=(piecewise_proof const& other) {
    shown.ranks = std::max(shown.ranks, other.shown.ranks);
    shown.steps += other.shown.steps;
    if (shown.worst_tensor.empty() || !(other.shown.worst_error <= shown.worst_error)) {
        shown.worst_error = other.shown.worst_error;
        shown.worst_tensor = other.shown.worst_tensor;
    }
    for (std::size_t k = 0; k < collective_count; ++k) {
        shown.executed[k] += other.shown.executed[k];
        shown.charged[k].forward += other.shown.charged[k].forward;
        shown.charged[k].backward += other.shown.charged[k].backward;
        shown.charged[k].gradient += other.shown.charged[k].gradient;
    }
    shown.is_equal &= other.shown.is_equal;
    if (shown.problem.empty()) shown.problem = other.shown.problem;
    pieces += other.pieces;
    distinct += other.distinct;
    executed += other.executed;
    has_planned_counts &= other.has_planned_counts;
    left.insert(left.end(), other.left.begin(), other.left.end());
    return *this;
}

} // namespace heddle

#endif
