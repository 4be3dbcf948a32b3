// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What instructions make the devices do: their steps in both directions.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/detail/conversion_steps.hpp>
#include <heddle/cost/detail/small_kernels.hpp>
#include <heddle/cost/work.hpp>
#include <heddle/program/program_part.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Tells whether the gradients' collectives of some instructions, given in the order of the forward pass, follow all of
/// their work in the backward pass.
template <std::ranges::input_range Instructions>
[[nodiscard]] bool gradients_follow_work(Instructions const& instructions, std::span<step_work const> steps) {
    bool works = false;
    for (auto i : instructions) {
        auto const& s = steps[i];
        if (works && !s.deferred_transfers.empty()) return false;
        works |= s.backward != local_work{} || !s.inside_backward.empty();
    }
    return true;
}

/// Visits the transfers of a step, forward ones first.
template <class Step, class Visit>
void for_each_transfer(Step& s, Visit&& visit) {
    for (auto* list : {&s.forward_transfers, &s.backward_transfers, &s.deferred_transfers, &s.update_transfers})
        for (auto& t : *list) visit(t);
}

/// Tells whether axes inside the outermost one cut what is split.
[[nodiscard]] inline bool is_cut_inside(step_work const& s) {
    bool result = s.share.inside > 1;
    for_each_transfer(s, [&](transfer const& t) { result = result || t.from.inside > 1 || t.to.inside > 1; });
    return result;
}

struct step_cost;
struct training_options;

/// Holds a `time_accumulator` behind one type.
struct named_accumulator {
    /// If empty, the other options of training determine the accumulator.
    std::string name{};
    /// Returns the seconds of a program's steps, which are priced by class of devices; stages begin at `stages`. It is
    /// null if only the name is known.
    double (*total)(std::size_t class_count, training_options const& training, std::span<step_cost const> steps,
                    std::span<std::size_t const> stages) = nullptr;
    friend bool operator==(named_accumulator const& a, named_accumulator const& b) { return a.name == b.name; }
};

/// How gradients are reduced: in buckets of this size, if it is not zero; one run of the program pays a part of that
/// and of the update.
struct gradient_reduction {
    bytes bucket{};
    double part = 1;

    gradient_reduction(bytes size = {}, double of_one_run = 1) : bucket(size), part(of_one_run) {}
};

/// What the memory and time of training depend on beside program and cluster.
struct training_options {
    /// Bytes of optimiser state per parameter element (8: Adam in float32), beside master weights.
    double optimizer_bytes_per_element = 8;
    /// The optimiser holds parameters of less than 4 bytes per element in float32 too, and updates these.
    bool keeps_master_weights = true;
    /// If set, gradients are reduced during the backward pass, as data-parallel trainers do; otherwise after it (HAP).
    bool overlaps_gradients = false;
    /// If set, gradients are copied into the buffers of their collectives, scaled there, and copied back before the
    /// update, as trainers do that reduce several at once.
    bool copies_gradients = false;
    /// What is not held until the backward pass, but made again for it, region by region.
    recomputation recomputes = recomputation::none;
    /// Gradients of one kind are reduced together in buckets of this size. A larger gradient is reduced alone; if the
    /// size is zero, all are.
    bytes bucket{25e6};
    /// The batch, or in a stage of a pipeline each micro-batch of it, is run in this many parts that take turns, one
    /// communicating while another computes (HiDup); the program is then that of one part. With one part nothing
    /// interleaves.
    int micro_batches = 1;
    /// The program, or what takes turns together, is one of so many micro-batches between two updates, as in a stage of
    /// a pipeline. A micro-batch costs its part of the reduction of gradients and of the update.
    int accumulated = 1;
    /// So many of them hold activations at one time.
    int in_flight = 1;
    /// The time that it takes to turn from one part to the next.
    seconds turn{};
    /// An accumulator of the user's own, if it has a name.
    named_accumulator accumulator{};
    [[nodiscard]] bool interleaves() const { return micro_batches > 1; }
    /// Returns of how many programs activations are held.
    [[nodiscard]] int held() const { return micro_batches * in_flight; }
    /// Tells whether a region is made again. The last one is still there if one micro-batch is in flight.
    [[nodiscard]] bool runs_again(region_number region) const { return region > 0 || (region == 0 && in_flight > 1); }
    [[nodiscard]] gradient_reduction reduction() const { return {bucket, 1.0 / accumulated}; }
    /// Bytes of what the optimiser holds per parameter element of this type.
    [[nodiscard]] double state_bytes_per_element(element_type type) const {
        return optimizer_bytes_per_element + (keeps_master_weights && element_size(type) < 4 ? 4 : 0);
    }
    friend bool operator==(training_options const&, training_options const&) = default;
};

namespace detail {

/// What the axes inside the outermost one of a mesh leave to each device of a source: the part of its value, of its
/// optimiser state, and of the gradient that the outermost axis reduces. On one axis it is all of them.
struct read_parts {
    double value = 1, state = 1, gradient = 1;
    /// Tells whether summands of the gradient are added up inside.
    bool reduces = false;
};

step_work step_of(indexed_program const& p, instruction::read const& i, read_parts const& inner,
                  training_options const& options);
step_work step_of(indexed_program const& p, instruction::compute const& i, inner_parts const& inner);

/// Returns the part of an operator's backward work that the gradients of the given parameters are. All factors of
/// products cost the same; if there is no product, all that is differentiated does.
double part_of_backward(indexed_program const& p, indexed_operator const& op, form_list const& operands);

/// Splits the backward work of a computation that gathers factors. What does not belong to the mirrored parameters
/// stays; the parameters' part waits for the factors and is done in full by every device. The cotangents are kept until
/// then.
void defer_factors(indexed_program const& p, instruction::compute const& i, inner_parts const& inner, step_work& s);

[[nodiscard]] inline bool has_statistics(split_loop const& loop) {
    return loop.forward_statistics + loop.backward_statistics > 0;
}

/// Tells whether an operator is made of products and of kernels between them, which move what it saves inside.
[[nodiscard]] inline bool has_parts(indexed_operator const& op) {
    return op.work.category == operator_class::attention ||
           algorithm::any_of(op.loops, [](split_loop const& loop) { return loop.exchanges(); });
}

/// Returns the bytes of rows that are sent and of what is brought back.
std::pair<bytes, bytes> exchanged_bytes(split_loop const& loop, inner_parts const& inner);

/// Adds the exchange of rows: how many there are for each place, the rows, and what is made of them; in the backward
/// pass the cotangents of these go the same ways. How many rows each place gets is known when the program runs; this is
/// the time if each gets as many. The work is that of the places that a device has.
void exchange_rows(indexed_program const& p, instruction::compute const& i, split_loop const& loop,
                   inner_parts const& inner, bool differentiated, step_work& s);

/// Adds what the devices of a group exchange for a computation: sums of results and cotangents if it is split inside,
/// otherwise all that is cut.
void communicate_inside(indexed_program const& p, instruction::compute const& i, bool differentiated, step_work& s);

/// Turns the costs of a micro-batch into those of a batch of `count` of them: activations and inputs of all are held, a
/// gradient is held to which the others are added, and there is room for what is unsharded next. `part` is the part of
/// a source that axes inside leave to each device.
void interleave(indexed_program const& p, instruction const& i, int count, double part, step_work& s);

/// Makes the costs of one micro-batch of those that are added up before an update. Inputs of those in flight are held,
/// their activations unless these are made again, and sufficient factors of all, which wait for the end. Parameters
/// are gathered once and stay; a gradient is read twice and written for each that is added, in the form in which it
/// waits for its reduction, and once more as it is stored. `part` is what axes inside leave to each device, of a source
/// or of what it is converted to.
void accumulate(indexed_program const& p, instruction const& i, training_options const& options, double part,
                step_work& s);

/// Notes with which region a step runs again, and adds the transfers of that. Statistics are known then.
void run_again(indexed_program const& p, instruction const& i, training_options const& options, step_work& s);

/// Takes off what device groups do for a collective, and what they do among themselves.
void leave_groups(step_work& s);

} // namespace detail

/// Returns the costs of an instruction. If micro-batches take turns, work and transfers are those of one micro-batch.
[[nodiscard]] step_work make_step(indexed_program const& p, instruction const& i, training_options const& options);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE step_work step_of(indexed_program const& p, instruction::read const& i, read_parts const& inner,
                                training_options const& options) {
    auto const& [t, updated, to] = i; // a device updates the part of form `updated`
    auto const& tensor = p.tensors[t];
    step_work s;
    s.type = tensor.info.type;
    if (updated.is_shard()) s.share = {t, updated.factor()};
    // A parameter that is read as partial is stored whole.
    holding const value = inner.value * held_bytes(tensor, to), state = inner.state * held_bytes(tensor, updated);
    s.stored = value;
    if (!tensor.has_cotangent) return s;
    if (!tensor.is_parameter()) { // its cotangent leaves, added up
        sum_cotangents(tensor, value, 1, s.backward);
        if (to == tensor_form::replicated())
            s.backward_transfers.push_back({collective::all_reduce,
                                            tensor.info.size() * inner.gradient,
                                            {},
                                            {},
                                            {},
                                            inside_step::none,
                                            inside_step::broadcast});
        return s;
    }
    double const per_byte = options.state_bytes_per_element(tensor.info.type) / element_size(tensor.info.type);
    s.stored = {value.whole * 2 + state.whole * per_byte, value.split * 2 + state.split * per_byte};
    // The update reads value, gradient and state, and writes value and state.
    s.update = {state.whole * (3 + 2 * per_byte), state.split * (3 + 2 * per_byte)};
    if (to == tensor_form::partial()) {
        s.forward = local_kernel(conversion_half::work::scale, tensor.info.size() * inner.value, {});
        s.category = operator_class::elementwise;
    }
    sum_cotangents(tensor, value, options.micro_batches, s.backward);
    bool const is_cut = updated != to;
    if (to == tensor_form::replicated())
        s.deferred_transfers.push_back({is_cut ? collective::reduce_scatter : collective::all_reduce,
                                        tensor.info.size() * inner.gradient,
                                        {},
                                        s.share,
                                        {}});
    if (options.copies_gradients && (to == tensor_form::replicated() || inner.reduces)) {
        for (int kernels = 0; kernels < 2; ++kernels) add_beside(s.backward, 2 * value);
        s.update += 2 * value;
        s.stored += value;
    }
    if (is_cut)
        s.update_transfers.push_back({collective::all_gather,
                                      tensor.info.size() * inner.value,
                                      s.share,
                                      {},
                                      {},
                                      inside_step::none,
                                      inside_step::broadcast});
    // Until here the gradient of a group is on its first device only.
    s.inside_update.push_back(inside_of(inside_step::broadcast, tensor.info.size(), updated));
    return s;
}

HEDDLE_INLINE double part_of_backward(indexed_program const& p, indexed_operator const& op, form_list const& operands) {
    double all = 0, mirrored = 0;
    for (bool const of_products : {true, false}) {
        for (std::size_t k = 0; k < op.operands.size(); ++k) {
            bool const is_factor = algorithm::any_of(
                op.terms, [&](auto const& term) { return term.size() > 1 && algorithm::find(term, k) != term.end(); });
            if (!p.tensors[op.operands[k]].has_cotangent || is_factor != of_products) continue;
            all += 1;
            mirrored += operands[k] == tensor_form::mirrored();
        }
        if (all > 0) break;
    }
    return mirrored / all;
}

HEDDLE_INLINE void defer_factors(indexed_program const& p, instruction::compute const& i, inner_parts const& inner,
                                 step_work& s) {
    auto const& op = p.operators[i.op];
    double const part = part_of_backward(p, op, i.operands);
    s.deferred = {s.backward.operations * part, bytes(0), bytes(0), true};
    auto const gathered_inside = [&](tensor_id t) {
        return p.tensors[t].inside != no_factor ? inside_step::gather : inside_step::none;
    };
    s.backward.operations = s.backward.operations * (1 - part);
    s.backward.launches = false;
    auto const gather = [&](tensor_id t, tensor_form f, bytes size) {
        s.deferred_transfers.push_back(
            {collective::all_gather, size, {t, f.factor()}, {}, {}, gathered_inside(t), inside_step::none});
        s.deferred.whole += size;
    };
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        auto const& tensor = p.tensors[op.operands[k]];
        bytes const size = tensor.info.size() * inner.operands[k];
        if (i.operands[k].is_shard()) gather(op.operands[k], i.operands[k], size);
        else if (tensor.inside != no_factor) s.inside_update.push_back({inside_step::gather, size, bytes(0)});
        if (i.operands[k] == tensor_form::mirrored()) {
            s.deferred.whole += size;
            s.backward.whole -= size;
        } else {
            s.backward.launches |= tensor.has_cotangent;
        }
    }
    for (std::size_t k = 0; k < op.results.size(); ++k) {
        auto const& tensor = p.tensors[op.results[k]];
        if (!tensor.has_cotangent) continue;
        bytes const size = tensor.info.size() * inner.results[k];
        gather(op.results[k], i.results[k], size);
        s.saved += held_bytes(size, i.results[k], samples_of(tensor, i.results[k]));
    }
    if (!s.backward.launches) s.backward = {};
}

/// Tells whether the devices of a group combine statistics of rows for a computation, before all else that they
/// exchange for it.
[[nodiscard]] HEDDLE_INLINE bool exchanges_statistics_inside(indexed_operator const& op,
                                                             instruction::compute const& i) {
    bool const are_across = i.loop >= 0 && has_statistics(op.loops[static_cast<std::size_t>(i.loop)]);
    return op.inside_loop >= 0 && has_statistics(op.loops[static_cast<std::size_t>(op.inside_loop)]) && !are_across;
}

HEDDLE_INLINE void communicate_inside(indexed_program const& p, instruction::compute const& i, bool differentiated,
                                      step_work& s) {
    auto const& op = p.operators[i.op];
    auto const is_cut = [&](tensor_id t) { return p.tensors[t].inside != no_factor; };
    auto const add = [&](inside_list& list, inside_step kind, tensor_id t, tensor_form f) {
        list.push_back(inside_of(kind, p.tensors[t].info.size(), f));
    };
    if (op.inside_loop < 0) {
        for (std::size_t k = 0; k < op.operands.size(); ++k) {
            if (!is_cut(op.operands[k])) continue;
            add(s.inside_forward, inside_step::all_gather, op.operands[k], i.operands[k]);
            if (differentiated) add(s.inside_backward, inside_step::all_gather, op.operands[k], i.operands[k]);
        }
        for (std::size_t k = 0; k < op.results.size() && differentiated; ++k) {
            if (!is_cut(op.results[k])) continue;
            add(s.inside_backward, inside_step::all_gather, op.results[k], i.results[k]);
            if (p.tensors[op.results[k]].has_cotangent)
                add(s.inside_backward, inside_step::all_gather, op.results[k], i.results[k]);
        }
        return;
    }
    auto const& inside = op.loops[static_cast<std::size_t>(op.inside_loop)];
    if (exchanges_statistics_inside(op, i)) {
        inside_transfer const statistic = inside_of(inside_step::all_reduce, inside.statistic,
                                                    i.loop < 0 ? tensor_form::replicated() : tensor_form::shard(0));
        s.inside_forward.assign(inside.forward_statistics, statistic);
        if (differentiated) s.inside_backward.assign(inside.backward_statistics, statistic);
    }
    for (std::size_t k = 0; k < op.results.size(); ++k)
        if (!is_cut(op.results[k])) add(s.inside_forward, inside_step::all_reduce, op.results[k], i.results[k]);
    for (std::size_t k = 0; k < op.operands.size() && differentiated; ++k) {
        auto const& tensor = p.tensors[op.operands[k]];
        bool const from_factors = i.loop >= 0 && i.operands[k] == tensor_form::mirrored();
        if (!tensor.has_cotangent || is_cut(op.operands[k]) || from_factors) continue;
        add(s.inside_backward, tensor.is_parameter() ? inside_step::reduce : inside_step::all_reduce, op.operands[k],
            i.operands[k]);
    }
}

HEDDLE_INLINE std::pair<bytes, bytes> exchanged_bytes(split_loop const& loop, inner_parts const& inner) {
    std::size_t rows = 0; // the first operand that has them
    while (loop.is_destination[rows] || loop.operands[rows] == no_factor) ++rows;
    return {loop.sent * inner.operands[rows], loop.returned * inner.results[0]};
}

HEDDLE_INLINE void exchange_rows(indexed_program const& p, instruction::compute const& i, split_loop const& loop,
                                 inner_parts const& inner, bool differentiated, step_work& s) {
    auto const& op = p.operators[i.op];
    share_ref const rows{op.results[0], loop.results[0]};
    auto const k = loop.destination();
    share_ref const places = s.share = {op.operands[k], loop.operands[k]};
    auto const send = [&](transfer_list& list, bytes there, bytes back) {
        list.push_back({collective::all_to_all, there, rows, places});
        list.push_back({collective::all_to_all, back, places, rows});
    };
    auto const [sent, returned] = exchanged_bytes(loop, inner);
    s.forward_transfers.push_back({collective::all_to_all, loop.counted * inner.rows, {}, {}});
    send(s.forward_transfers, sent, returned);
    if (differentiated) send(s.backward_transfers, returned, sent);
}

HEDDLE_INLINE step_work step_of(indexed_program const& p, instruction::compute const& i, inner_parts const& inner) {
    auto const& op = p.operators[i.op];
    step_work s;
    s.category = op.work.category;
    s.kind = op.kind;
    bool first = true;
    holding forward{}, backward{};
    auto const visit = [&](tensor_id t, tensor_form f, double part) {
        if (f.is_shard() && !s.share.is_split()) s.share = {t, f.factor()};
        return touched(p, op, t, f, part);
    };
    bool differentiated = false;
    for (std::size_t k = 0; k < op.results.size(); ++k) {
        auto const& tensor = p.tensors[op.results[k]];
        holding const h = visit(op.results[k], i.results[k], inner.results[k]);
        if (std::exchange(first, false)) s.type = tensor.info.type;
        forward += h;
        if (tensor.has_cotangent) {
            backward += h;
            differentiated = true;
        }
        if (contains(op.work.saved_results, k)) backward += h;
    }
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        auto const& tensor = p.tensors[op.operands[k]];
        holding const h = visit(op.operands[k], i.operands[k], inner.operands[k]);
        if (!contains(op.work.sparse_operands, k)) forward += h;
        if (contains(op.work.saved_operands, k)) backward += h;
        if (tensor.has_cotangent) backward += h;
    }
    bool const split = i.loop >= 0;
    bool const is_divided = op.inside_loop >= 0;
    std::optional<samples_inside> samples;
    if (is_divided) samples = {op.loops[static_cast<std::size_t>(op.inside_loop)].extent, i.loop == op.inside_loop};
    if (differentiated)
        s.saved = held_bytes(op.work.extra_saved * inner.operations,
                             split ? tensor_form::shard(0) : tensor_form::replicated(), samples);
    bool const is_composed = has_parts(op);
    if (!is_composed) forward += s.saved, backward += s.saved;
    if (!op.work.is_view) {
        s.forward = {op.work.forward * inner.operations,
                     forward.whole,
                     forward.split,
                     true,
                     is_divided,
                     forward.whole_inside,
                     forward.split_inside,
                     {},
                     0,
                     forward.samples};
        if (differentiated)
            s.backward = {op.work.backward * inner.operations,
                          backward.whole,
                          backward.split,
                          true,
                          is_divided,
                          backward.whole_inside,
                          backward.split_inside,
                          {},
                          0,
                          backward.samples};
    }
    if (is_composed) beside_products(s);
    if (differentiated) {
        add_biases(p, i, inner, s);
        for (std::size_t k = 0; k < op.results.size(); ++k)
            sum_cotangents(p.tensors[op.results[k]], touched_result(p, i, inner, k), 1, s.backward);
    }
    if (split) {
        auto const& loop = op.loops[static_cast<std::size_t>(i.loop)];
        transfer statistic{collective::all_reduce, loop.statistic * inner.rows, {}, {}, {},
                           inside_step::none,      inside_step::broadcast};
        if (is_divided) {
            bool const are_summands = has_statistics(op.loops[static_cast<std::size_t>(op.inside_loop)]);
            statistic.before = are_summands
                                   ? inside_step::all_reduce
                                   : inside_step::gather; // summands, or maxima, which are not reduced to one device
            if (!are_summands) statistic.after = inside_step::scatter;
        }
        s.forward_transfers.assign(loop.forward_statistics, statistic);
        if (differentiated) s.backward_transfers.assign(loop.backward_statistics, statistic);
        if (loop.exchanges()) exchange_rows(p, i, loop, inner, differentiated, s);
    }
    communicate_inside(p, i, differentiated, s);
    if (gathers_factors(i)) defer_factors(p, i, inner, s);
    return s;
}

HEDDLE_INLINE void leave_groups(step_work& s) {
    for_each_transfer(s, [](transfer& t) { t.before = t.after = inside_step::none; });
    s.inside_forward = s.inside_backward = s.inside_update = {};
}

HEDDLE_INLINE void interleave(indexed_program const& p, instruction const& i, int count, double part, step_work& s) {
    s.transient *= 2;
    auto const* const read = i.as<instruction::read>();
    s.waits = i.is<instruction::compute>();
    if (s.waits || !p.tensors[i.change()->tensor].is_parameter()) {
        s.saved = static_cast<double>(count) * s.saved;
        auto const factors = s.deferred_transfers; // each micro-batch gathers its own
        for (int n = 1; n < count; ++n)
            s.deferred_transfers.insert(s.deferred_transfers.end(), factors.begin(), factors.end());
        s.deferred.operations *= count, s.deferred.whole *= count, s.deferred.split *= count;
        auto const is_of_each = [](tensor_info const& t) { // also what comes back to a stage for each part
            return t.role == tensor_role::input || t.name.ends_with(cotangent_suffix);
        };
        if (read && is_of_each(p.tensors[read->tensor].info)) s.stored = static_cast<double>(count) * s.stored;
        return;
    }
    s.once = true;
    if (!read || !p.tensors[read->tensor].has_cotangent) return;
    holding const gradient = part * held_bytes(p.tensors[read->tensor], read->to);
    s.stored.whole += gradient.whole, s.stored.split += gradient.split;
    s.update.whole += gradient.whole * (3.0 * (count - 1)),
        s.update.split += gradient.split * (3.0 * (count - 1)); // two read, one written
}

HEDDLE_INLINE void accumulate(indexed_program const& p, instruction const& i, training_options const& options,
                              double part, step_work& s) {
    auto const* const change = i.change();
    if (!change || !p.tensors[change->tensor].is_parameter()) {
        if (s.region == no_region) s.saved = static_cast<double>(options.in_flight) * s.saved;
        if (i.is<instruction::read>() && p.tensors[change->tensor].info.role == tensor_role::input)
            s.stored = static_cast<double>(options.in_flight) * s.stored;
        for (auto const& factor : s.deferred_transfers)
            if (s.region == no_region) s.saved.split += (options.accumulated - options.in_flight) * factor.size;
            else s.stored.split += options.accumulated * factor.size;
        return;
    }
    auto const& tensor = p.tensors[change->tensor];
    if (options.accumulated == 1 || i.is<instruction::unshard>() || i.is<instruction::reshard>()) return;
    bool const is_read = i.is<instruction::read>(),
               is_gathered = !is_read && !(s.forward_transfers.empty() && s.inside_forward.empty()),
               is_reduced = !is_read && !(s.deferred_transfers.empty() && s.inside_backward.empty());
    auto const once = [](auto& from, auto& to) {
        to.insert(to.end(), from.begin(), from.end());
        from.clear();
    };
    once(s.forward_transfers, s.update_transfers);
    once(s.inside_forward, s.inside_update);
    once(s.inside_backward, s.inside_update);
    auto const had = part * held_bytes(tensor, change->to);
    if (is_gathered && !is_saved(p, change->tensor)) s.stored += had;
    if (tensor.has_cotangent && (is_read || is_reduced))
        s.update += (3.0 * options.micro_batches * (options.accumulated - 1)) * had;
}

HEDDLE_INLINE void run_again(indexed_program const& p, instruction const& i, training_options const& options,
                             step_work& s) {
    auto const* const convert = i.as<instruction::convert>();
    auto const* const compute = i.as<instruction::compute>();
    if (!convert && !compute) return;
    s.region = p.tensors[convert ? convert->tensor : p.operators[compute->op].results.front()].region;
    s.counted = p.counted_of(s.region);
    s.runs_again = options.runs_again(s.region);
    if (!s.runs_again) return;
    auto const also = [](auto const& from, std::ptrdiff_t first, auto& to) {
        to.insert(to.end(), from.begin() + first, from.end());
    };
    if (convert) {
        also(s.forward_transfers, 0, s.backward_transfers);
        also(s.inside_forward, 0, s.inside_backward);
    } else if (p.is_split_inside) {
        auto const& op = p.operators[compute->op];
        std::ptrdiff_t const known = exchanges_statistics_inside(op, *compute)
                                         ? op.loops[static_cast<std::size_t>(op.inside_loop)].forward_statistics
                                         : 0;
        also(s.inside_forward, known, s.inside_backward);
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE step_work make_step(indexed_program const& p, instruction const& i, training_options const& options) {
    step_work s = i.visit([&](instruction::read const& read) { return detail::step_of(p, read, {}, options); },
                          [&](instruction::compute const& compute) {
                              return detail::step_of(p, compute, detail::inner_parts(p.operators[compute.op]));
                          },
                          [&](auto const& other) { return detail::step_of(p, other); });
    if (!p.is_split_inside) detail::leave_groups(s);
    detail::run_again(p, i, options, s);
    if (options.interleaves()) detail::interleave(p, i, options.micro_batches, 1, s);
    detail::accumulate(p, i, options, 1, s);
    return s;
}

} // namespace heddle

#endif
