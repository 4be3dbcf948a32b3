// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Proof by execution: runs a plan on in-process ranks, and the program on a single device, on the same random
/// data.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/devices.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/plan/evaluate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct proof_options {
    std::uint64_t seed = 1;
    /// The largest relative error that rounding may explain.
    double tolerance = 1e-10;
};

/// What executing a plan showed.
struct proof {
    std::size_t ranks = 0, steps = 0;
    /// The loss of the plan, and that of the single device.
    double loss = 0, expected_loss = 0;
    /// The largest relative error of the loss and of the parameters' gradients.
    double worst_error = 0;
    /// Where that error is: a parameter's name, or the loss's.
    std::string worst_tensor;
    /// The payload bytes of an iteration on each rank by kind of collective; and what the plan's cost charges for them.
    std::array<bytes, collective_count> executed{};
    std::array<charged_bytes, collective_count> charged{};
    /// The payload bytes of the collectives inside device groups, summed over the groups, or along the inner axes of a
    /// mesh, of one line of each in every slice; `ranks` then counts all devices.
    std::array<bytes, collective_count> executed_inside{}, charged_inside{};
    bool has_groups = false;
    /// The first thing found wrong; empty if plan and single device agree and the bytes do.
    std::string problem;
    /// Tells whether loss and gradients agree, whatever is carried.
    bool is_equal = false;

    explicit operator bool() const { return problem.empty(); }
};

namespace detail {

/// Returns the layer of a parameter: its name up to the last dot, which is empty for those of the model itself.
[[nodiscard]] std::string layer_of(std::string const& name);

/// Returns payload bytes by kind of collective.
[[nodiscard]] std::array<bytes, collective_count> payloads(traffic const& t);

template <class Scalar>
[[nodiscard]] Scalar largest_magnitude(dense_tensor<Scalar> const& x) {
    Scalar most = 0;
    for (Scalar e : x.data) most = std::max(most, std::abs(e));
    return most;
}

/// Errors are measured on a scale: the largest gradient entry of a layer.
///
/// A gradient that is zero up to rounding (a bias before a norm) is measured by its layer, a layer with such gradients
/// by the model, and a model with such gradients (a sum of probabilities) by the loss: no layer's scale is less than a
/// millionth of the largest, nor than a ten-thousandth of the loss. If all of it is zero, the scale is one.
class gradient_scale {
public:
    gradient_scale(program const& p, iteration_result<double> const& expected);
    [[nodiscard]] double of(std::string const& name) const;
    /// The loss is measured on itself, or on what a step would change it by, because its terms may cancel.
    [[nodiscard]] double of_loss(double loss) const {
        return std::max({std::abs(loss), largest_, std::numeric_limits<double>::min()});
    }

private:
    std::map<std::string, double> of_layer_;
    double largest_ = 0, least_ = 0;
};

[[nodiscard]] std::string rounded(double number, int digits);

/// Nothing can be compared with what is no number.
void require_finite(program const& p, iteration_result<double> const& expected);

/// Collects errors and keeps the first problem.
class proof_builder {
public:
    proof_builder(program const& p, iteration_result<double> const& expected, proof& into)
        : program_(p), expected_(expected), scale_(p, expected), proof_(into) {}

    void compare_loss(double loss);
    /// Compares a rank's gradients with those parts of the expected ones that it should have.
    template <rank_tensor Tensor>
    void compare_gradients(gradients_of<Tensor> const& mine, tensor_values<Tensor> const& expected) {
        for (auto const& [t, whole] : expected)
            if (auto const found = mine.find(t); found != mine.end())
                compare(t, found->second.second.on_host(), whole.on_host());
            else fail("the plan gives no gradient of '" + program_.tensor(t).name + "'");
    }
    void fail(std::string problem) {
        if (proof_.problem.empty()) proof_.problem = std::move(problem);
    }
    /// Says whether all that was compared is equal, as far as the tolerance goes.
    void conclude(double tolerance);

private:
    void compare(tensor_id t, dense_tensor<double> const& mine, dense_tensor<double> const& expected);
    void note(double error, std::string const& name);

    program const& program_;
    iteration_result<double> const& expected_;
    gradient_scale scale_;
    proof& proof_;
};

} // namespace detail

/// A proof whose ranks are somebody else's: threads, as for `prove`, or processes, each of which has an object of its
/// own.
///
/// *Precondition:* `verify(p, what)`. References to all arguments are kept.
template <kernel_backend<double> Backend>
class plan_proof {
public:
    /// Runs the program on a single device, on random data. *Throws* as `prove` does.
    plan_proof(program const& p, plan const& what, Backend const& backend, proof_options const& options = {})
        : program_(p), plan_(what), backend_(backend), options_(options), indexed_(index_for(p, what)) {
        if constexpr (requires(kernel_call const& call) {
                          { backend.can_run(call) } -> std::convertible_to<bool>;
                      })
            for (operator_id o = 0; o < p.operator_count(); ++o)
                if (!backend.can_run(whole_call(p, o)))
                    throw input_error("operator '" + p.name(o) + "'",
                                      "the backend has no kernel for '" + p.kind(o) +
                                          "' as it is called; add one, or verify the plan without running it");
        sources_ = random_sources<double>(p, options.seed);
        expected_ = run_on_random_sources(p, sources_, backend, options.seed);
        detail::require_finite(p, expected_);
        for (auto const& [t, gradient] : expected_.gradients) gradients_.emplace(t, gradient.second);
        result_.ranks = ranks_of(what);
        result_.has_groups = what.has_groups() || what.is_on_mesh();
        result_.steps = what.steps.size();
        result_.expected_loss = expected_.loss;
        result_.charged = charged_traffic(what);
        auto const charged_by_step = charged_inside(what);
        for (std::size_t k = 1; k < inside_step_count; ++k)
            result_.charged_inside[static_cast<std::size_t>(detail::carrier(static_cast<inside_step>(k)))] +=
                charged_by_step[k];
        builder_.emplace(p, expected_, result_);
    }
    plan_proof(plan_proof const&) = delete;

    /// Runs the plan on one rank, and compares what this rank has. *Thread safety.* All ranks may call it at once.
    template <ranks_of_plan<double> Ranks>
    void run_rank(Ranks& ranks) {
        interpreter<double, Ranks, Backend> run(program_, indexed_, plan_, ranks, backend_, options_.seed);
        auto const mine = run.run(run.place(sources_));
        std::optional<traffic> across;
        std::vector<traffic> inside;
        if constexpr (requires { ranks.inside(); }) {
            if (ranks.across()) {
                across = ranks.across()->traffic();
                inside.push_back(ranks.inside().traffic());
            }
        } else if constexpr (detail::has_lines<Ranks>) {
            auto const place = plan_.mesh().place_of(ranks.device());
            if (std::all_of(place.begin() + 1, place.end(), [](auto at) { return at == 0; })) {
                across = ranks.line(0).traffic();
                for (axis_number a = 1; a < place.size(); ++a) inside.push_back(ranks.line(a).traffic());
            }
        } else {
            across = ranks.traffic();
        }
        double const loss = run.whole_loss(mine);
        std::scoped_lock const guard(lock_);
        builder_->compare_loss(loss);
        builder_->compare_gradients(mine.gradients, run.place(gradients_));
        if (across) result_.executed = detail::payloads(*across);
        for (auto const& t : inside)
            std::ranges::transform(result_.executed_inside, detail::payloads(t), result_.executed_inside.begin(),
                                   std::plus<>{});
    }

    /// Returns what the ranks that were run have shown of loss and gradients.
    [[nodiscard]] proof const& compared() {
        builder_->conclude(options_.tolerance);
        return result_;
    }

    /// As above, and compares what was carried with what the plan's cost charges; on a mesh if that is the same for all
    /// devices of a slice (`is_even_inside`). *Precondition:* all ranks were run.
    [[nodiscard]] proof const& finish() {
        (void)compared();
        if (!is_even_inside(plan_)) return result_;
        auto const compare = [&](std::size_t kind, std::string const& where, double executed, double charged) {
            // Shares are rounded fractions; counts of elements are not.
            if (std::abs(executed - charged) > 1e-9 * std::max(executed, charged))
                builder_->fail(std::string(name(static_cast<collective>(kind))) + where + " carries " +
                               detail::rounded(executed, 17) + " bytes, the plan's cost charges " +
                               detail::rounded(charged, 17));
        };
        // How many rows go where is charged as expected, and known when the program runs.
        bool const is_expected = algorithm::any_of(plan_.steps, [](plan_step const& s) { return sends_rows(s); });
        for (std::size_t k = 0; k < collective_count; ++k) {
            if (is_expected && k == static_cast<std::size_t>(collective::all_to_all)) continue;
            compare(k, "", result_.executed[k].value, result_.charged[k].total().value);
            compare(k, plan_.is_on_mesh() ? " along inner axes" : " inside device groups",
                    result_.executed_inside[k].value, result_.charged_inside[k].value);
        }
        return result_;
    }

private:
    program const& program_;
    plan const& plan_;
    Backend const& backend_;
    proof_options options_;
    indexed_program indexed_;
    source_values<double> sources_, gradients_;
    iteration_result<double> expected_;
    proof result_;
    std::optional<detail::proof_builder> builder_;
    std::mutex lock_;
};

/// Runs one iteration of a plan on as many threads as it has devices, and of the program on a single device, on the
/// same random data in double precision.
///
/// An error is max |a - b| over the largest entry of the gradients of the parameter's layer (names up to the last dot).
/// Proven false: an error above the tolerance, a missing or non-finite gradient, ranks that carry other bytes than the
/// plan's cost charges (where rows are sent to places that the data choose, of collectives other than all-to-all).
/// *Precondition:* `verify(p, what)`. *Throws* `input_error` naming the operator if the backend cannot run one, or if a
/// single device gives no finite loss and gradients of these data.
/// *Complexity.* About `size_of_execution`.
template <kernel_backend<double> Backend>
[[nodiscard]] proof prove(program const& p, plan const& what, Backend const& backend,
                          proof_options const& options = {}) {
    plan_proof<Backend> all(p, what, backend, options);
    run_devices<double>(what, [&](auto& communicator) { all.run_rank(communicator); });
    return all.finish();
}

/// As above, for a program of another type.
template <single_device_program Program, kernel_backend<double> Backend>
    requires(!std::same_as<Program, program>)
[[nodiscard]] proof prove(Program const& p, plan const& what, Backend const& backend,
                          proof_options const& options = {}) {
    static_assert(tells_kinds<Program>, "A program that is run tells what each operator computes: "
                                        "program_access<Program>::kind(p, o) is a string that the backend knows.");
    return prove(program_of(p), what, backend, options);
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE std::string layer_of(std::string const& name) {
    auto const dot = name.rfind('.');
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

HEDDLE_INLINE std::array<bytes, collective_count> payloads(traffic const& t) {
    std::array<bytes, collective_count> result{};
    for (std::size_t k = 0; k < collective_count; ++k) {
        auto const kind = static_cast<collective>(k);
        result[k] = t.of(kind).payload + t.of(kind, uneven::grouped).payload;
    }
    return result;
}

HEDDLE_INLINE gradient_scale::gradient_scale(program const& p, iteration_result<double> const& expected) {
    least_ = 1e-4 * std::abs(static_cast<double>(expected.loss));
    for (auto const& [t, gradient] : expected.gradients) {
        auto& layer = of_layer_[layer_of(p.tensor(t).name)];
        layer = std::max(layer, largest_magnitude(gradient.second));
        largest_ = std::max(largest_, layer);
    }
}

HEDDLE_INLINE double gradient_scale::of(std::string const& name) const {
    double const scale = std::max({of_layer_.at(layer_of(name)), 1e-6 * largest_, least_});
    return scale == 0 ? 1 : scale;
}

HEDDLE_INLINE std::string rounded(double number, int digits) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*g", digits, number);
    return text.data();
}

HEDDLE_INLINE void proof_builder::conclude(double tolerance) {
    if (!(proof_.worst_error <= tolerance))
        fail("the relative error of '" + proof_.worst_tensor + "' is " + rounded(proof_.worst_error, 3) +
             ", expected at most " + rounded(tolerance, 3));
    proof_.is_equal = proof_.problem.empty();
}

HEDDLE_INLINE void proof_builder::compare_loss(double loss) {
    proof_.loss = loss;
    note(std::abs(loss - expected_.loss) / scale_.of_loss(expected_.loss), program_.tensor(program_.loss()).name);
}

HEDDLE_INLINE void require_finite(program const& p, iteration_result<double> const& expected) {
    auto const require = [](bool good, std::string const& name) {
        if (!good)
            throw input_error("'" + name + "'", "a single device gives no finite number of it on random data, "
                                                "expected data that it is a function of");
    };
    require(std::isfinite(expected.loss), p.tensor(p.loss()).name);
    for (auto const& [t, gradient] : expected.gradients)
        require(algorithm::all_of(gradient.second.data, [](double x) { return std::isfinite(x); }), p.tensor(t).name);
}

HEDDLE_INLINE void proof_builder::compare(tensor_id t, dense_tensor<double> const& mine,
                                          dense_tensor<double> const& expected) {
    auto const& name = program_.tensor(t).name;
    if (mine.dims != expected.dims)
        return fail("the gradient of '" + name + "' is not of the shape in which it is stored");
    double most = 0;
    for (std::size_t n = 0; n < mine.data.size(); ++n) {
        double const difference = std::abs(mine.data[n] - expected.data[n]);
        if (!(difference <= most)) most = difference;
        if (!std::isfinite(most)) break;
    }
    note(most / scale_.of(name), name);
}

HEDDLE_INLINE void proof_builder::note(double error, std::string const& name) {
    if (!std::isfinite(error)) fail("'" + name + "' is no finite number");
    if (!(error <= proof_.worst_error) || proof_.worst_tensor.empty()) {
        proof_.worst_error = error;
        proof_.worst_tensor = name;
    }
}

} // namespace heddle::detail

#endif
