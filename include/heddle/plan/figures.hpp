// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Checks whether what a plan says of itself is so: memory, shares and status by its own steps, and every second
/// by a cluster.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/verification.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Is thrown at the first figure that is wrong.
struct wrong_figure {
    std::string text;
};

inline void require_figure(bool good, std::string const& problem) {
    if (!good) throw wrong_figure{problem};
}
[[nodiscard]] std::string in_words(double v, char const* unit);
/// Tells whether two numbers are equal up to the rounding of a difference of terms up to `of`.
[[nodiscard]] inline bool is_near(double a, double b, double of = 0) {
    return a == b || std::abs(a - b) <= std::max(1e-9 * std::max(std::abs(a), std::abs(b)), 1e-12 * of);
}
inline void require_near(double said, double found, double of, std::string const& what, char const* unit) {
    if (!is_near(said, found, of))
        throw wrong_figure{what + " is " + in_words(said, unit) + ", derived anew it is " + in_words(found, unit)};
}

/// Turns what the checks of a plan throw, `input_error` included, into their result.
template <class Check>
[[nodiscard]] verification verified(Check const& check) {
    try {
        check();
        return {};
    } catch (wrong_figure const& wrong) { return {false, wrong.text}; } catch (input_error const& e) {
        return {false, e.what()};
    }
}

/// Checks whether the status, limit, bound and cost of a plan of either kind can be true together.
template <class Plan>
void check_status(Plan const& p) {
    double const cost = p.cost(), bound = p.lower_bound;
    require_figure(std::isfinite(cost) && cost >= 0, "the cost is negative or no number");
    require_figure(p.status != search::status::infeasible, "the status is 'infeasible', but there is a plan");
    require_figure((p.status == search::status::limit) == (p.which_limit != search::limit_kind::none),
                   p.which_limit == search::limit_kind::none ? "the status is 'limit', but which it is is not said"
                                                             : "a limit is named, but the status is not 'limit'");
    require_figure(bound >= 0 && bound <= cost * (1 + 1e-9), "the lower bound, " + in_words(bound, " s") +
                                                                 ", is above the cost, " + in_words(cost, " s") +
                                                                 ", or no number");
    if (p.status == search::status::optimal)
        require_figure(bound >= cost * (1 - 1e-9), "the status is 'optimal', but the lower bound, " +
                                                       in_words(bound, " s") + ", is below the cost, " +
                                                       in_words(cost, " s"));
    else
        require_figure(bound < cost || cost == 0,
                       std::string("the status is '") + search::name(p.status) + "', but the lower bound is the cost");
}

/// Checks that devices of one type have one limit.
class one_limit_per_type {
public:
    void check(std::string const& type, bytes limit, std::string const& device);

private:
    std::map<std::string, bytes> limits_;
};

/// Checks that each limit is the cluster's, or a lower one that was asked for and is then the same for all.
class limits_of_cluster {
public:
    void add(std::string const& device, bytes said, bytes theirs);
    void check() const;

private:
    struct limit {
        std::string device;
        bytes said, theirs;
    };
    std::vector<limit> devices_;
    std::optional<bytes> asked_;
};

/// Returns a cluster with devices like a plan's that are all equally fast; what they hold does not depend on their
/// speed.
[[nodiscard]] cluster stand_in_for(plan const& p);

/// Tells whether each count is its ratio's part of the atoms or next to it: rounding moves less than an atom, and
/// carries what is owed to the next class.
[[nodiscard]] bool follow_ratios(plan const& p);

/// Returns the plan with the shares that its ratios round to, and collectives in whichever way is best at them.
[[nodiscard]] plan as_rounded(plan rounded);

/// Tells whether the pair that was kept is one of those that were priced.
[[nodiscard]] inline bool is_in_trajectory(plan const& p) {
    return algorithm::any_of(p.trajectory, [&](trajectory_point const& t) {
        return t.cost && is_near(*t.cost, p.cost()) && t.ratios == p.ratios;
    });
}

/// Returns the plan for a check of its memory alone, for which an accumulator of the user's own need not be known.
[[nodiscard]] inline plan untimed(plan p) {
    p.provenance.training.accumulator = {};
    return p;
}
/// Checks counts that differ from the rounded ratios by more. They were then moved for memory or for time: the rounded
/// shares do not fit, or were priced too and cost more, which only a cluster can show.
void check_ratios(plan const& p, cluster const& like);
void check_moved(plan const& p, cluster const& c);

/// Checks that a term of time is there only if the plan has collectives that it can come from, and that no term is
/// negative.
void check_signs(plan const& p);

/// Tells whether each gather says how its shards move, as in every plan that was made for a cluster. Buffers depend on
/// it.
[[nodiscard]] bool is_decided(plan const& p);

void check_memory(plan const& p, std::vector<memory_terms> const& found, bool with_buffers);

void check_own_figures(plan const& p);

} // namespace detail

/// Checks whether the figures of a plan agree with its steps and with each other: memory by term and device, within its
/// limits; counts with ratios; bounds and status with the cost; no time of collectives that are not there. It cannot
/// check seconds, which need a cluster.
/// *Precondition.* `verify` of the plan's program, or a reader, has accepted it. *Complexity.* That of `evaluate`.
[[nodiscard]] inline verification verify_figures(plan const& p) {
    return detail::verified([&] { detail::check_own_figures(p); });
}

/// As above, and checks whether the plan is for the devices of the cluster, in their order and within their memory, and
/// whether each of its times and bytes is what the cluster's prices give.
[[nodiscard]] verification verify_figures(plan const& p, cluster const& c);

/// Returns the fields of a plan's file that nobody can derive from the plan, its model and its cluster: what a search
/// says of all that it did not choose and, if no cluster is given, what the plan costs.
[[nodiscard]] std::vector<std::string> claims_of(plan const& p, bool has_cluster);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/atoms.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::string in_words(double v, char const* unit) {
    char text[48];
    std::snprintf(text, sizeof text, "%.9g%s", v, unit);
    return text;
}

HEDDLE_INLINE void one_limit_per_type::check(std::string const& type, bytes limit, std::string const& device) {
    require_figure(limit.value > 0, device + ": its memory limit is no positive number");
    auto const [known, is_new] = limits_.try_emplace(type, limit);
    require_figure(is_new || known->second == limit, device + ": its memory limit is " +
                                                         in_words(limit.value, " bytes") + ", that of another " + type +
                                                         " " + in_words(known->second.value, " bytes"));
}

HEDDLE_INLINE void limits_of_cluster::add(std::string const& device, bytes said, bytes theirs) {
    devices_.push_back({device, said, theirs});
    if (said < theirs && (!asked_ || said < *asked_)) asked_ = said;
}

HEDDLE_INLINE void limits_of_cluster::check() const {
    for (auto const& [device, said, theirs] : devices_) {
        bytes const expected = asked_ ? std::min(*asked_, theirs) : theirs;
        require_near(said.value, expected.value, 0, device + ": its memory limit", " bytes");
    }
}

HEDDLE_INLINE cluster stand_in_for(plan const& p) {
    cluster c;
    c.name = "the plan's devices";
    for (auto const& d : p.devices) {
        bool const is_another = c.types.empty() || c.types.back().name != d.type ||
                                c.types.back().memory != d.memory_limit ||
                                c.machines.back().group_size() != d.group_size;
        if (is_another) {
            c.types.push_back(
                {d.type, d.memory_limit, bytes_per_second(1), seconds(0), {{main_type(p), {flops_per_second(1)}}}});
            c.machines.push_back({c.types.size() - 1, d.group_size, 0, d.group_size > 1});
        }
        ++c.machines.back().count;
    }
    c.intra = c.inter = network_link{bytes_per_second(1), seconds(0)};
    return c;
}

HEDDLE_INLINE bool follow_ratios(plan const& p) {
    return algorithm::all_of(p.cuts, [&](atom_class const& cut) {
        auto const& ratios = p.ratios.at(cut.segment);
        for (std::size_t d = 0; d < ratios.size(); ++d)
            if (!(std::abs(static_cast<double>(cut.counts.at(d)) - ratios[d] * static_cast<double>(cut.atoms)) < 2))
                return false;
        return true;
    });
}

HEDDLE_INLINE plan as_rounded(plan rounded) {
    for (auto& row : rounded.ratios) { // to one, however many atoms there are
        double const total = std::accumulate(row.begin(), row.end(), 0.0);
        for (double& ratio : row) ratio /= total;
    }
    apportion(rounded.cuts, rounded.ratios);
    for (auto& s : rounded.steps) for_each_transfer(s.step, [](transfer& t) { t.how.reset(); });
    return rounded;
}

HEDDLE_INLINE void check_ratios(plan const& p, cluster const& like) {
    bool const was_priced = is_in_trajectory(p);
    if (!follow_ratios(p) && !was_priced)
        require_figure(!evaluate(untimed(as_rounded(p)), like).fits,
                       "the counts of a cut are not what the ratios give, rounded, though that would fit into memory");
    require_figure(p.trajectory.empty() || was_priced, "no point of the trajectory has the plan's ratios and cost");
}

HEDDLE_INLINE void check_moved(plan const& p, cluster const& c) {
    if (follow_ratios(p)) return;
    auto const rounded = evaluate(as_rounded(p), c);
    require_figure(!rounded.fits || rounded.time.total() >= p.cost() * (1 - 1e-9),
                   "the counts of a cut are not what the ratios give, rounded, though that would fit and be cheaper");
}

HEDDLE_INLINE void check_signs(plan const& p) {
    auto const has = [&](transfer_list step_work::* direction) {
        return algorithm::any_of(p.steps, [&](plan_step const& s) { return !(s.step.*direction).empty(); });
    };
    double const cost = p.cost();
    auto const check = [&](char const* name, double term, bool may_be) {
        require_figure(std::isfinite(term) && term >= -1e-9 * cost,
                       std::string("the time of ") + name + " is negative or no number");
        require_figure(may_be || is_near(term, 0, 1e3 * cost),
                       std::string("the time of ") + name + " is " + in_words(term, " s") + ", but no step has any");
    };
    check("computation", p.time.compute, true);
    check("forward communication", p.time.forward_communication, has(&step_work::forward_transfers));
    check("backward communication", p.time.backward_communication, has(&step_work::backward_transfers));
    check("the gradients' communication", p.time.gradient_communication, has(&step_work::deferred_transfers));
    check("the update", p.time.update, true);
    check("the parameters' communication", p.time.parameter_communication, has(&step_work::update_transfers));
    bool const inside = algorithm::any_of(p.steps, [](plan_step const& s) { return communicates_inside(s.step); });
    check("communication inside", p.time.compute_inside, inside);
    check("the update's communication inside", p.time.update_inside, inside);
}

HEDDLE_INLINE bool is_decided(plan const& p) {
    bool result = true;
    for (auto const& s : p.steps)
        for_each_transfer(s.step, [&](transfer const& t) { result = result && (t.how || !has_grouped_kind(t.kind)); });
    return result;
}

HEDDLE_INLINE void check_memory(plan const& p, std::vector<memory_terms> const& found, bool with_buffers) {
    require_figure(p.memory.size() == p.devices.size(), "there is not one entry of memory per device");
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        auto const &mine = p.memory[d], &theirs = found[d];
        std::string const device = "device " + std::to_string(d);
        auto const check = [&](char const* what, double said, double again) {
            if (!is_near(said, again, theirs.total()))
                require_near(said, again, theirs.total(), device + ": its memory for " + what, " bytes");
        };
        check("parameters", mine.parameters, theirs.parameters);
        check("gradients", mine.gradients, theirs.gradients);
        check("the optimiser", mine.optimizer, theirs.optimizer);
        check("inputs", mine.inputs, theirs.inputs);
        check("activations", mine.activations, theirs.activations);
        if (with_buffers) check("communication", mine.communication, theirs.communication);
        if (!(mine.total() <= p.devices[d].memory_limit.value * (1 + 1e-9)))
            throw wrong_figure{device + " holds " + in_words(mine.total(), " bytes") + ", its limit is " +
                               in_words(p.devices[d].memory_limit.value, " bytes")};
    }
}

HEDDLE_INLINE void check_own_figures(plan const& p) {
    require_figure(p.exists(), "the plan has no program");
    check_status(p);
    require_figure(!p.global_lower_bound ||
                       (*p.global_lower_bound >= 0 && *p.global_lower_bound <= p.lower_bound * (1 + 1e-9)),
                   "the lower bound at any ratios is above that at the plan's, or no number");
    check_signs(p);
    one_limit_per_type limits;
    for (std::size_t d = 0; d < p.devices.size(); ++d)
        limits.check(p.devices[d].type, p.devices[d].memory_limit, "device " + std::to_string(d));
    auto const like = stand_in_for(p);
    check_memory(p, evaluate(untimed(p), like).memory, is_decided(p));
    check_ratios(p, like);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE verification verify_figures(plan const& p, cluster const& c) {
    return detail::verified([&] {
        detail::check_own_figures(p);
        auto const found = evaluate(p, c);
        auto const types = c.devices();
        auto const sizes = c.group_sizes();
        detail::limits_of_cluster limits;
        for (std::size_t d = 0; d < types.size(); ++d) {
            auto const& theirs = c.types[types[d]];
            std::string const device = "device " + std::to_string(d);
            plan_device const expected{theirs.name, theirs.memory, sizes[d]};
            detail::require_figure(p.devices[d].name() == expected.name(), device + " is '" + p.devices[d].name() +
                                                                               "', the cluster's is '" +
                                                                               expected.name() + "'");
            limits.add(device, p.devices[d].memory_limit, theirs.memory);
        }
        limits.check();
        double const cost = found.time.total();
        auto const check = [&](char const* what, double said, double again) {
            detail::require_near(said, again, cost, std::string("the time of ") + what, " s");
        };
        check("computation", p.time.compute, found.time.compute);
        check("forward communication", p.time.forward_communication, found.time.forward_communication);
        check("backward communication", p.time.backward_communication, found.time.backward_communication);
        check("the gradients' communication", p.time.gradient_communication, found.time.gradient_communication);
        // Older files have the communication of parameters in the update.
        check("the update and the parameters' communication", p.time.update + p.time.parameter_communication,
              found.time.update + found.time.parameter_communication);
        if (p.time.compute_inside != 0 || p.time.update_inside != 0) { // older files have neither
            check("communication inside", p.time.compute_inside, found.time.compute_inside);
            check("the update's communication inside", p.time.update_inside, found.time.update_inside);
        }
        detail::check_memory(p, found.memory, true);
        detail::check_moved(p, c);
    });
}

HEDDLE_INLINE std::vector<std::string> claims_of(plan const& p, bool has_cluster) {
    std::vector<std::string> claims{"status", "lower_bound", "space"};
    if (p.global_lower_bound) claims.push_back("global_lower_bound");
    if (!p.baselines.empty()) claims.push_back("baselines");
    if (!p.other_baselines.empty()) claims.push_back("other_baselines");
    if (!p.trajectory.empty()) claims.push_back("trajectory");
    for (char const* counter : {"expanded", "generated", "dominated", "bounded", "kept", "compared", "seconds"})
        claims.push_back(counter);
    if (!detail::follow_ratios(p)) claims.push_back("ratios"); // moved from
    if (has_cluster) return claims;
    for (char const* field : {"cost", "time", "devices", "memory_limit_bytes"}) claims.push_back(field);
    if (!detail::is_decided(p)) claims.push_back("memory.communication");
    return claims;
}

} // namespace heddle

#endif
