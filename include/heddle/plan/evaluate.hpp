// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a plan costs on a cluster, device by device, at its integral shares.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/alike_devices.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/plan/plan.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Returns a model with a class of its own for every device, in the cluster's order.
[[nodiscard]] cost_model per_device_model(cluster const& c, element_type main, gradient_reduction reduction = {});

/// Returns the element type that most of a plan's work is done in.
[[nodiscard]] element_type main_type(plan const& p);

/// Returns the model that a plan is priced with.
[[nodiscard]] inline cost_model per_device_model(cluster const& c, plan const& p) {
    return per_device_model(c, main_type(p), p.provenance.training.reduction());
}

[[nodiscard]] inline integral_shares shares_of(plan const& p) { return integral_shares(p.ratios, p.cuts); }

/// The bytes that a plan's cost charges for one kind of collective in one iteration, by direction.
struct charged_bytes {
    bytes forward, backward;
    /// The bytes of parameter gradients' collectives, and of those that bring whole copies up to date.
    bytes gradient;
    [[nodiscard]] bytes total() const { return forward + backward + gradient; }
};

/// Returns what `evaluate` takes the plan's transfers to carry, by kind of collective, in the unit of `traffic`.
[[nodiscard]] std::array<charged_bytes, collective_count> charged_traffic(plan const& p);

/// Returns what a plan's cost charges for each step inside its device groups, summed over the groups, in bytes of their
/// tensors; on a mesh, for each collective along an inner axis, summed over the slices, in the unit of `traffic`.
[[nodiscard]] std::array<bytes, inside_step_count> charged_inside(plan const& p);

/// Tells whether the axes inside the outermost divide evenly all that they may have to, and slices have equally much of
/// what is cut inside further before a step than after it, or the other way round. Then what costs count for the device
/// with most is that of all in its slice.
[[nodiscard]] bool is_even_inside(plan const& p);

namespace detail {

template <time_accumulator Accumulator>
[[nodiscard]] time_terms time_of(Accumulator const& clock, std::span<step_cost const> steps) {
    time_terms time;
    auto label = clock.initial(), without_gradients = label;
    per_class update(label.update.size(), 0.0);
    for (auto s : steps) {
        clock.extend(label, s);
        time.forward_communication += s.forward_transfer;
        time.backward_communication += s.backward_transfer;
        time.parameter_communication += s.refresh;
        for (std::size_t k = 0; k < update.size(); ++k) update[k] += s.update[k];
        s.deferred = 0;
        clock.extend(without_gradients, s);
    }
    double const rest = clock.total(without_gradients);
    time.gradient_communication = clock.total(label) - rest;
    time.update = algorithm::max(update);
    time.compute =
        rest - time.forward_communication - time.backward_communication - time.update - time.parameter_communication;
    return time;
}

/// Returns the steps, ascending, with which a stage begins: those given, and those that end one in any case.
[[nodiscard]] std::vector<std::size_t> stage_begins(duplex const& clock, std::span<step_cost const> steps,
                                                    std::span<std::size_t const> stages);

/// Returns the terms of micro-batches that take turns: computation as if nothing were communicated, then what
/// collectives add to it, forward ones first.
[[nodiscard]] time_terms time_of(duplex const& clock, std::span<step_cost const> steps,
                                 std::span<std::size_t const> stages);

/// Returns the terms under an accumulator of the user's own: computation alone, then what each kind of collectives adds
/// to it, then the update and what follows it.
[[nodiscard]] time_terms time_of(named_accumulator const& clock, training_options const& training,
                                 std::size_t class_count, std::span<step_cost const> steps,
                                 std::span<std::size_t const> stages);

/// Returns the terms under the accumulator that the options of training ask for.
[[nodiscard]] time_terms time_by(training_options const& training, std::size_t class_count,
                                 std::span<step_cost const> steps, std::span<std::size_t const> stages);

/// Returns what steps cost in the forward pass.
[[nodiscard]] std::vector<step_cost> forward_passes(std::vector<step_cost> steps);

} // namespace detail

struct plan_cost {
    time_terms time;
    std::vector<memory_terms> memory;
    /// Tells whether every device can hold what it must.
    bool fits = true;
};

/// A plan's devices on a cluster. Those that are alike are one class; it has their prices and the shares of one device
/// of each class.
/// *Precondition:* the plan is for as many devices as the cluster has.
struct plan_devices {
    alike_devices alike;
    cost_model model;
    integral_shares shares;

    plan_devices(plan const& p, cluster const& c)
        : alike(parted(p, c)), model(c, alike.classes, main_type(p), p.provenance.training.reduction()),
          shares({}, cuts_of(p, alike.first_devices())) {}

private:
    static alike_devices parted(plan const& p, cluster const& c);
    static std::vector<atom_class> cuts_of(plan const& p, std::vector<std::size_t> const& devices);
};

/// Prices a plan on the cluster it was made for, or on another one with as many devices.
/// Of a plan on a mesh the cluster has each place on the outermost axis as a group of the devices there.
/// *Throws* `input_error` if the numbers of devices differ, if the cluster has device groups and the plan is not made
/// for any, or if only the name of the plan's accumulator is known.
[[nodiscard]] plan_cost evaluate(plan const& p, cluster const& c);

/// Prices a plan by an accumulator of the user's own.
template <time_accumulator Accumulator>
[[nodiscard]] plan_cost evaluate(plan p, cluster const& c) {
    p.provenance.training.accumulator = accumulator_of<Accumulator>();
    return evaluate(p, c);
}

/// Returns the events of one iteration of a plan.
[[nodiscard]] timeline run_serial(plan const& p, cluster const& c);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_step.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/detail/region_memory.hpp>

namespace heddle {

HEDDLE_INLINE cost_model per_device_model(cluster const& c, element_type main, gradient_reduction reduction) {
    std::vector<device_class> classes;
    auto const types = c.devices();
    auto const sizes = c.group_sizes();
    for (std::size_t d = 0; d < types.size(); ++d) classes.push_back({types[d], 1, sizes[d]});
    return cost_model(c, std::move(classes), main, reduction);
}

HEDDLE_INLINE element_type main_type(plan const& p) {
    std::array<double, element_type_count> work{};
    for (auto const& s : p.steps) work[static_cast<std::size_t>(s.step.type)] += s.step.forward.operations.value;
    return static_cast<element_type>(algorithm::max_element(work) - work.begin());
}

HEDDLE_INLINE std::array<charged_bytes, collective_count> charged_traffic(plan const& p) {
    std::array<charged_bytes, collective_count> charged{};
    auto const shares = shares_of(p);
    double times = 1;
    auto const add = [&](transfer_list const& transfers, bytes charged_bytes::* direction) {
        for (auto const& t : transfers)
            charged[static_cast<std::size_t>(t.kind)].*direction +=
                payload(t, static_cast<int>(p.devices.size()), shares) * times;
    };
    for (auto const& s : p.steps) {
        times = s.step.once ? 1 : p.provenance.training.micro_batches;
        add(s.step.forward_transfers, &charged_bytes::forward);
        add(s.step.backward_transfers, &charged_bytes::backward);
        times = 1;
        add(s.step.deferred_transfers, &charged_bytes::gradient);
        add(s.step.update_transfers, &charged_bytes::gradient);
    }
    return charged;
}

HEDDLE_INLINE std::array<bytes, inside_step_count> charged_inside(plan const& p) {
    std::array<bytes, inside_step_count> charged{};
    auto const shares = shares_of(p);
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        if (p.devices[d].group_size == 1) continue;
        auto const share = [&](share_ref ref) { return ref.is_split() ? shares(ref)[d] : 1; };
        for (auto const& s : p.steps) {
            for_each_transfer(s.step, [&](transfer const& t) {
                charged[static_cast<std::size_t>(t.before)] += t.size * share(t.from);
                charged[static_cast<std::size_t>(t.after)] += t.size * share(t.to);
            });
            for (auto const* list : {&s.step.inside_forward, &s.step.inside_backward, &s.step.inside_update})
                for (auto const& t : *list) {
                    if (t.members == 1) continue;
                    bool const is_part = t.kind == inside_step::all_to_all && t.members > 0; // what one of them sends
                    charged[static_cast<std::size_t>(t.kind)] +=
                        (t.whole + t.split * share(s.step.share)) * (is_part ? 1.0 / t.members : 1.0);
                }
        }
    }
    charged[static_cast<std::size_t>(inside_step::none)] = {};
    return charged;
}

HEDDLE_INLINE bool is_even_inside(plan const& p) {
    auto const is_even = [](std::vector<extent> const& counts) {
        return algorithm::all_of(counts, [&](extent n) { return n == counts.front(); });
    };
    for (auto const& cut : p.cuts)
        for (auto const& of_axis : cut.inside)
            for (auto const& [atoms, parts] : of_axis)
                if (!is_even(parts)) return false;
    auto const mesh = p.mesh();
    for (auto const& s : p.steps) {
        if (s.instruction.is<instruction::compute>()) continue;
        auto const from = s.from(), to = s.to();
        if (from[0] != to[0] || cuts_inside(from, mesh) == cuts_inside(to, mesh)) continue;
        cut_factor const cut_further{s.instruction.change()->tensor, from[0].factor()};
        for (auto const& cut : p.cuts)
            if (algorithm::find(cut.members, cut_further) != cut.members.end() && !is_even(cut.counts)) return false;
    }
    return true;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE std::vector<std::size_t> stage_begins(duplex const& clock, std::span<step_cost const> steps,
                                                    std::span<std::size_t const> stages) {
    std::vector<std::size_t> begins;
    auto label = clock.initial();
    auto stage = stages.begin();
    for (std::size_t n = 0; n < steps.size(); ++n) {
        bool const is_given = stage != stages.end() && *stage == n;
        if (is_given) ++stage;
        if (is_given || duplex::ends_stage(label, steps[n])) {
            clock.close(label);
            begins.push_back(n);
        }
        clock.extend(label, steps[n]);
    }
    return begins;
}

HEDDLE_INLINE time_terms time_of(duplex const& clock, std::span<step_cost const> steps,
                                 std::span<std::size_t const> stages) {
    enum { nothing, forward, backward, all };
    duplex::label ends[4];
    auto const begins = stage_begins(clock, steps, stages);
    for (int which = nothing; which <= all; ++which) {
        auto& label = ends[which] = clock.initial();
        auto stage = begins.begin();
        for (std::size_t n = 0; n < steps.size(); ++n) {
            auto s = steps[n];
            if (stage != begins.end() && *stage == n) clock.close(label), ++stage;
            if (which < all) s.deferred = 0;
            if (which < backward) s.backward_transfer = 0;
            if (which < forward) s.forward_transfer = 0;
            clock.extend(label, s);
        }
    }
    time_terms time;
    time.update = algorithm::max(ends[all].update);
    time.parameter_communication = ends[nothing].refresh; // without gradients, which may follow the passes
    time.compute = clock.total(ends[nothing]) - time.update - time.parameter_communication;
    time.forward_communication = clock.total(ends[forward]) - clock.total(ends[nothing]);
    time.backward_communication = clock.total(ends[backward]) - clock.total(ends[forward]);
    time.gradient_communication = clock.total(ends[all]) - clock.total(ends[backward]);
    return time;
}

HEDDLE_INLINE std::vector<step_cost> forward_passes(std::vector<step_cost> steps) {
    for (auto& s : steps) {
        s.backward_transfer = s.deferred = s.refresh = 0;
        algorithm::fill(s.backward, 0.0);
        algorithm::fill(s.update, 0.0);
    }
    return steps;
}

HEDDLE_INLINE time_terms time_by(training_options const& training, std::size_t class_count,
                                 std::span<step_cost const> steps, std::span<std::size_t const> stages) {
    auto const& own = training.accumulator;
    if (own.total) return time_of(own, training, class_count, steps, stages);
    if (!own.name.empty())
        throw input_error("plan", "is timed by the accumulator '" + own.name +
                                      "', which is not one of heddle's, expected it from whoever made the plan");
    if (training.interleaves()) return time_of(duplex(class_count, training), steps, stages);
    return training.overlaps_gradients ? time_of(overlapped(class_count), steps) : time_of(serial(class_count), steps);
}

HEDDLE_INLINE time_terms time_of(named_accumulator const& clock, training_options const& training,
                                 std::size_t class_count, std::span<step_cost const> steps,
                                 std::span<std::size_t const> stages) {
    std::vector<step_cost> some(steps.begin(), steps.end());
    for (auto& s : some) {
        s.forward_transfer = s.backward_transfer = s.deferred = s.refresh = 0;
        algorithm::fill(s.update, 0.0);
    }
    double before = 0;
    auto const added = [&] {
        double const now = clock.total(class_count, training, some, stages);
        return now - std::exchange(before, now);
    };
    auto const add = [&](auto step_cost::* part) {
        for (std::size_t n = 0; n < some.size(); ++n) some[n].*part = steps[n].*part;
    };
    time_terms time;
    time.compute = added();
    add(&step_cost::forward_transfer);
    time.forward_communication = added();
    add(&step_cost::backward_transfer);
    time.backward_communication = added();
    add(&step_cost::deferred);
    time.gradient_communication = added();
    add(&step_cost::update);
    time.update = added();
    add(&step_cost::refresh);
    time.parameter_communication = added();
    return time;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE alike_devices plan_devices::parted(plan const& p, cluster const& c) {
    alike_devices result(c);
    for (auto const& cut : p.cuts) result.refine(cut.counts);
    return result;
}

HEDDLE_INLINE std::vector<atom_class> plan_devices::cuts_of(plan const& p, std::vector<std::size_t> const& devices) {
    std::vector<atom_class> cuts;
    for (auto const& cut : p.cuts) {
        auto& mine = cuts.emplace_back(atom_class{cut.atoms, cut.members, {}, cut.segment});
        for (auto d : devices) mine.counts.push_back(cut.counts[d]);
    }
    return cuts;
}

HEDDLE_INLINE plan_cost evaluate(plan const& p, cluster const& c) {
    if (auto const count = c.devices().size(); count != p.devices.size())
        throw input_error("cluster '" + c.name + "'", "has " + std::to_string(count) + " devices, the plan is for " +
                                                          std::to_string(p.devices.size()) + ", expected as many");
    if (has_groups(c) && !p.has_groups() && !p.is_on_mesh())
        throw input_error("cluster '" + c.name + "'",
                          "has device groups, the plan is for single devices, expected those");
    auto const sizes = c.group_sizes();
    for (std::size_t d = 0; d < sizes.size() && p.is_on_mesh(); ++d)
        if (sizes[d] != p.devices[d].group_size)
            throw input_error("cluster '" + c.name + "'",
                              "has " + std::to_string(sizes[d]) + " devices at place " + std::to_string(d) +
                                  " of the outermost axis, the plan's mesh is " + to_string(p.mesh()) +
                                  ", expected as many as its slices have");
    plan_devices const devices(p, c);
    auto const& [alike, model, shares] = devices;
    auto const& training = p.provenance.training;
    if (training.interleaves() && p.has_groups())
        throw input_error("plan", "has device groups, whose micro-batches do not take turns");
    double const activations = training.held(), gradients = training.interleaves() ? 2 : 1;
    plan_cost cost;
    std::vector<memory_terms> of_class(model.class_count());
    std::vector<step_cost> prices, without_inside;
    momentary_memory momentary;
    detail::region_memory regions(p.steps.size(), model.class_count());
    auto const mesh = p.mesh();
    bool const is_inside = algorithm::any_of(p.steps, [](plan_step const& s) { return communicates_inside(s.step); });
    for (auto const& s : p.steps) {
        auto const& price = prices.emplace_back(model.price(s.step, shares));
        regions.next(s);
        if (is_inside)
            without_inside.push_back(communicates_inside(s.step) ? model.price(heddle::without_inside(s.step), shares)
                                                                 : price);
        momentary.add(s.acting().type(), price);
        share_vector const* const split = s.step.share.is_split() ? &shares(s.step.share) : nullptr;
        for (std::size_t k = 0; k < model.class_count(); ++k) {
            double const share = split ? (*split)[k] : 1;
            auto& memory = of_class[k];
            if (auto const* read = s.instruction.as<instruction::read>()) {
                auto const& tensor = p.tensors[read->tensor];
                holding const held = held_bytes(tensor.size(), read->to, samples_of(tensor, read->to));
                double const value =
                    cost_model::at(model.on_member(part_inside(tensor.factors, s.to(), mesh) * held, k, share), share);
                double const stored = cost_model::at(model.on_member(s.step.stored, k, share), share);
                (tensor.role == tensor_role::parameter ? memory.parameters : memory.inputs) +=
                    tensor.role == tensor_role::parameter ? value : stored;
                if (tensor.trainable && tensor.role == tensor_role::parameter) {
                    double const copies =
                        gradients + (training.copies_gradients && read->to == tensor_form::replicated() ? 1 : 0);
                    memory.gradients += copies * value;
                    memory.optimizer += stored - (1 + copies) * value;
                }
            } else { // a parameter that is gathered once for all micro-batches
                memory.parameters += cost_model::at(model.on_member(s.step.stored, k, share), share);
            }
            auto const* const convert = s.acting().as<instruction::convert>();
            bool const is_gradient = convert && p.tensors[convert->tensor].role == tensor_role::parameter;
            double const saved = cost_model::at(model.on_member(s.step.saved, k, share), share);
            if (s.step.region != no_region) regions.add(s.step.region, s.step.runs_again, k, saved);
            else (is_gradient ? memory.gradients : memory.activations) += saved;
            for (auto const& [t, form] : s.saved) {
                tensor_form const f = form[0];
                auto const& tensor = p.tensors[t];
                double const part = f.is_shard() ? shares(share_of(t, form, mesh))[k] : 1;
                holding const held =
                    part_inside(tensor.factors, form, mesh) * held_bytes(tensor.size(), f, samples_of(tensor, f));
                double const bytes_held = cost_model::at(model.on_member(held, k, part), part);
                if (tensor.role == tensor_role::parameter) memory.parameters += bytes_held;
                else if (tensor.region != no_region)
                    regions.add(tensor.region, training.runs_again(tensor.region), k, bytes_held);
                else memory.activations += activations * bytes_held;
            }
        }
    }
    auto const gradients_sent = gradient_collectives(p, model, shares);
    auto const timed = [&](std::vector<step_cost> of) {
        for (std::size_t n = 0; n < of.size(); ++n)
            if (p.steps[n].step.reduces_gradients()) of[n].deferred = gradients_sent[n].seconds;
        return detail::time_by(training, model.class_count(), of, p.stages);
    };
    cost.time = timed(std::move(prices));
    if (is_inside) {
        auto const alone = timed(std::move(without_inside));
        cost.time.compute_inside = cost.time.compute - alone.compute;
        cost.time.update_inside = cost.time.update - alone.update;
    }
    for (std::size_t k = 0; k < model.class_count(); ++k) {
        of_class[k].activations += regions.most(k);
        of_class[k].communication = momentary.most();
        cost.fits = cost.fits && of_class[k].total() <= model.memory_limit(k);
    }
    for (auto const k : alike.of_device) cost.memory.push_back(of_class[k]);
    return cost;
}

HEDDLE_INLINE timeline run_serial(plan const& p, cluster const& c) {
    std::vector<step_work> steps;
    for (auto const& s : p.steps) steps.push_back(s.step);
    auto const model = per_device_model(c, p);
    auto const shares = shares_of(p);
    std::vector<double> gradients;
    for (auto const& sent : gradient_collectives(p, model, shares)) gradients.push_back(sent.seconds);
    auto const& training = p.provenance.training;
    return run_serial(steps, model, shares, training.overlaps_gradients, gradients);
}

} // namespace heddle

#endif
