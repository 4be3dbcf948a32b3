// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the instructions of a program on a mesh make the devices do.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/inside.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/theory/mesh_instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

namespace heddle {

/// Returns into how many parts the axes inside cut what the outermost axis cuts; 1 if it cuts nothing.
[[nodiscard]] extent cuts_inside(product_form const& f, mesh const& m);

/// Returns the share of a tensor that a slice has, where its devices cut it as well.
[[nodiscard]] inline share_ref share_of(tensor_id t, product_form const& f, mesh const& m) {
    return f[0].is_shard() ? share_ref{t, f[0].factor(), cuts_inside(f, m)} : share_ref{};
}

/// Returns the largest part of a slice's tensor that a device of the slice has, if the axes inside the outermost one cut
/// its factors into whole parts as even as can be. `but_for` is an axis that is passed over. A factor that the outermost
/// axis cuts too is cut evenly into `by_share` parts, since its share says how large the largest is; by default these are
/// all. Where axes inside cut it into more, it is cut as if every slice had equally many atoms.
[[nodiscard]] double part_inside(std::vector<factor> const& factors, product_form const& f, mesh const& m,
                                 std::optional<axis_number> but_for = {}, std::optional<extent> by_share = {});

/// Returns what a device holds of a tensor: all of it or, along the factor that the outermost axis cuts, a part; and of
/// that what the axes inside leave to it.
[[nodiscard]] inline holding held_bytes(indexed_tensor const& tensor, product_form const& f, mesh const& m) {
    return part_inside(tensor.factors, f, m) * held_bytes(tensor, f[0]);
}
[[nodiscard]] inline holding saved_bytes(indexed_program const& p, tensor_id t, product_form const& f, mesh const& m,
                                         int micro_batches) {
    return part_inside(p.tensors[t].factors, f, m) * saved_bytes(p, t, f[0], micro_batches);
}

/// Returns the costs of an instruction of a mesh program for the classes of the outermost axis; each stands for the
/// devices of a slice, which are a device group. Work, memory and the bytes of transfers are those of one device, so
/// that nothing of a step is divided inside any more.
///
/// A collective along the outermost axis runs in all lines at once, on what the axes inside leave of the tensor. One
/// along another axis is time of its class, linear in the share. On one axis it is the step of an instruction.
/// *Preconditions.* `verify` has no complaint about the instruction. On several axes the program is not split inside
/// device groups.
[[nodiscard]] step_work make_step(indexed_program const& p, mesh_instruction const& i, mesh const& m,
                                  training_options const& options);

namespace detail {

/// Returns the largest of so many parts of some atoms, relative to all.
[[nodiscard]] inline double largest_part(extent atoms, extent parts) {
    return static_cast<double>(most_atoms(atoms, parts)) / static_cast<double>(atoms);
}

/// Calls `visit(what, parts)` once for each thing that axes inside the outermost cut; `parts` is into how many all of
/// them together cut it. `cut(axis)` is the number of what an axis cuts, negative if it cuts nothing.
template <class Cut, class Visit>
void for_each_cut_inside(mesh const& m, Cut const& cut, Visit const& visit) {
    for (axis_number a = 1; a < m.axis_count(); ++a) {
        auto const what = cut(a);
        if (what < 0) continue;
        bool is_first = true;
        extent parts = 1;
        for (axis_number b = 1; b < m.axis_count(); ++b) {
            if (cut(b) != what) continue;
            is_first = is_first && b >= a;
            parts *= static_cast<extent>(m.size(b));
        }
        if (is_first) visit(what, parts);
    }
}

/// Makes the step of a mesh instruction: that of the outermost axis on what the axes inside leave of it, and what each
/// axis inside adds.
class mesh_step {
public:
    mesh_step(indexed_program const& p, mesh_instruction const& i, mesh const& m, training_options const& options)
        : p_(p), i_(i), mesh_(m), options_(options) {}

    [[nodiscard]] step_work made();

private:
    void compute();
    void read();
    void change(axis_number axis);

    [[nodiscard]] inner_parts parts() const;
    [[nodiscard]] double part(tensor_id t, product_form const& f, std::optional<axis_number> but_for = {}) const {
        return part_inside(p_.tensors[t].factors, f, mesh_, but_for, cuts_by_share(f));
    }
    /// Returns into how many parts a form's share says that it is cut inside; where a tensor goes from one form to another
    /// and both have that share, into those of the form that is cut less.
    [[nodiscard]] extent cuts_by_share(product_form const& f) const;
    /// Returns how many times as large as an even one the largest part is that an axis inside makes of a tensor.
    [[nodiscard]] double unevenness(tensor_id t, product_form const& f, axis_number axis) const {
        return part(t, f) / part(t, f, axis) * (f[axis].is_shard() ? static_cast<double>(mesh_.size(axis)) : 1.0);
    }
    /// Returns the largest part of the operations, or of the rows alone, that the axes inside leave to a device. `but_for`
    /// is an axis that is passed over.
    [[nodiscard]] double part_of_loops(bool of_rows, std::optional<axis_number> but_for = {}) const;
    /// Rounds work on what the outermost axis gathers, which has no share that would say how it is cut inside.
    void round_deferred();
    /// Has shares say into how many parts the axes inside cut a slice's.
    void cut_shares_inside();
    [[nodiscard]] split_loop const* loop_of(axis_number axis) const;
    /// Tells whether an axis cuts the rows that statistics are of.
    [[nodiscard]] bool cuts_rows(axis_number axis) const {
        auto const* const loop = loop_of(axis);
        return loop && !has_statistics(*loop);
    }
    /// Adds what an axis inside exchanges for a computation.
    void add_statistics(axis_number axis, split_loop const& loop, bool differentiated);
    void add_exchange(axis_number axis, split_loop const& loop, inner_parts const& inner, bool differentiated);
    /// Adds the gather of factors along an axis inside, and the work on what it brings.
    void gather_factors(axis_number axis);
    /// Adds communication along an axis inside, of so many bytes, or of the outermost axis's share of them.
    void add(inside_list& list, inside_step kind, axis_number axis, bytes size, bool split) const {
        list.push_back({kind, split ? bytes(0) : size, split ? size : bytes(0), static_cast<int>(mesh_.size(axis)),
                        static_cast<int>(mesh_.devices_inside(axis))});
    }

    indexed_program const& p_;
    mesh_instruction const& i_;
    mesh const& mesh_;
    training_options const& options_;
    step_work s_;
};

} // namespace detail

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE step_work mesh_step::made() {
    bool const computes = i_.axes[0].is<instruction::compute>();
    bool is_for_use = false; // such a gather is of each micro-batch, as on one axis
    if (computes) compute();
    else if (i_.axes[0].is<instruction::read>()) read();
    else {
        auto const axis = *i_.acting();
        is_for_use = i_.axes[axis].is<instruction::unshard>() || i_.axes[axis].is<instruction::reshard>();
        change(axis);
    }
    double const part = computes ? 1 : this->part(i_.tensor(), i_.to()); // for what micro-batches add to a source
    int const lines = static_cast<int>(mesh_.devices_inside(0));
    for_each_transfer(s_, [&](transfer& t) { t.lines = lines; });
    run_again(p_, i_.axes[0], options_, s_);
    if (options_.interleaves()) interleave(p_, i_.axes[0], options_.micro_batches, part, s_);
    if (!is_for_use) accumulate(p_, i_.axes[0], options_, part, s_);
    cut_shares_inside();
    return std::move(s_);
}

HEDDLE_INLINE double mesh_step::part_of_loops(bool of_rows, std::optional<axis_number> but_for) const {
    double part = 1;
    auto const& op = p_.operators[i_.axes[0].as<instruction::compute>()->op];
    auto const cut = [&](axis_number a) {
        return a == but_for || (of_rows && !cuts_rows(a)) ? -1 : i_.axes[a].as<instruction::compute>()->loop;
    };
    for_each_cut_inside(mesh_, cut, [&](int number, extent parts) {
        auto const& loop = op.loops[static_cast<std::size_t>(number)];
        extent atoms = loop.extent;
        if (!of_rows && loop.exchanges()) { // devices compute for the places that they have
            auto const k = loop.destination();
            atoms = p_.tensors[op.operands[k]].factors[static_cast<std::size_t>(loop.operands[k])].extent;
        }
        part *= &loop == loop_of(0) ? 1.0 / static_cast<double>(parts) : largest_part(atoms, parts);
    });
    return part;
}

HEDDLE_INLINE extent mesh_step::cuts_by_share(product_form const& f) const {
    extent least = cuts_inside(f, mesh_);
    if (i_.axes[0].is<instruction::compute>()) return least;
    for (auto const& other : {i_.from(), i_.to()})
        if (other[0] == f[0]) least = std::min(least, cuts_inside(other, mesh_));
    return least;
}

HEDDLE_INLINE void mesh_step::cut_shares_inside() {
    auto const cut = [&](share_ref& ref) {
        auto const by = [&](product_form const& f) {
            if (f[0] == tensor_form::shard(ref.factor)) ref.inside = cuts_by_share(f);
        };
        if (!ref.is_split()) return;
        auto const* const compute = i_.axes[0].as<instruction::compute>();
        if (!compute) return by(i_.from()), by(i_.to());
        auto const& op = p_.operators[compute->op];
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (op.operands[k] == ref.tensor) by(i_.operand(k));
        for (std::size_t k = 0; k < op.results.size(); ++k)
            if (op.results[k] == ref.tensor) by(i_.result(k));
    };
    cut(s_.share);
    bool const reads = i_.axes[0].is<instruction::read>(); // axes inside gather before and scatter after the outermost
    for_each_transfer(s_, [&](transfer& t) {
        for (auto* ref : {&t.from, &t.to})
            if (!reads) cut(*ref);
            else if (ref->is_split()) ref->inside = cuts_inside(i_.to().with(0, i_.from()[0]), mesh_);
    });
}

HEDDLE_INLINE split_loop const* mesh_step::loop_of(axis_number axis) const {
    auto const& i = *i_.axes[axis].as<instruction::compute>();
    return i.loop < 0 ? nullptr : &p_.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
}

HEDDLE_INLINE inner_parts mesh_step::parts() const {
    auto const& op = p_.operators[i_.axes[0].as<instruction::compute>()->op];
    inner_parts inner(op);
    for (std::size_t k = 0; k < inner.operands.size(); ++k) inner.operands[k] = part(op.operands[k], i_.operand(k));
    for (std::size_t k = 0; k < inner.results.size(); ++k) inner.results[k] = part(op.results[k], i_.result(k));
    inner.operations = part_of_loops(false);
    inner.rows = part_of_loops(true);
    return inner;
}

HEDDLE_INLINE void mesh_step::compute() {
    auto const inner = parts();
    auto const& outside = *i_.axes[0].as<instruction::compute>();
    s_ = step_of(p_, outside, inner);
    leave_groups(s_);
    round_deferred();
    bool const differentiated =
        algorithm::any_of(p_.operators[outside.op].results, [&](tensor_id t) { return p_.tensors[t].has_cotangent; });
    for (axis_number a = mesh_.axis_count(); a-- > 1;) {
        auto const* const loop = loop_of(a);
        if (!loop) continue;
        if (has_statistics(*loop)) add_statistics(a, *loop, differentiated);
        if (loop->exchanges()) add_exchange(a, *loop, inner, differentiated);
        if (gathers_factors(*i_.axes[a].as<instruction::compute>())) gather_factors(a);
    }
}

HEDDLE_INLINE void mesh_step::round_deferred() {
    auto const* const loop = loop_of(0);
    if (!loop) return;
    extent parts = 1;
    for (axis_number a = 1; a < mesh_.axis_count(); ++a)
        if (loop_of(a) == loop) parts *= static_cast<extent>(mesh_.size(a));
    double const unevenness =
        largest_part(most_atoms(loop->extent, static_cast<extent>(mesh_.size(0))), parts) * static_cast<double>(parts);
    auto& work = s_.deferred;
    work.operations = work.operations * unevenness;
    work.whole *= unevenness;
    work.split *= unevenness;
}

HEDDLE_INLINE void mesh_step::add_statistics(axis_number axis, split_loop const& loop, bool differentiated) {
    double const rows = part_of_loops(true, axis);
    auto const add_all = [&](inside_list& list, int count) {
        for (int n = 0; n < count; ++n)
            add(list, inside_step::all_reduce, axis, loop.statistic * rows, cuts_rows(0) && s_.share.is_split());
    };
    add_all(s_.inside_forward, loop.forward_statistics);
    if (differentiated) add_all(s_.inside_backward, loop.backward_statistics);
}

HEDDLE_INLINE void mesh_step::add_exchange(axis_number axis, split_loop const& loop, inner_parts const& inner,
                                           bool differentiated) {
    // The parts are those of one device; all devices of the line send them, and how many they are for all places.
    double const members = static_cast<double>(mesh_.size(axis));
    auto const [sent, returned] = exchanged_bytes(loop, inner);
    bool const split = cuts_rows(0) && s_.share.is_split();
    auto const send = [&](inside_list& list, bytes there, bytes back) {
        add(list, inside_step::all_to_all, axis, there * members, split);
        add(list, inside_step::all_to_all, axis, back * members, split);
    };
    send(s_.inside_forward, sent, returned);
    add(s_.inside_forward, inside_step::all_to_all, axis, loop.counted * inner.rows * members * members, split);
    if (differentiated) send(s_.inside_backward, returned, sent);
}

HEDDLE_INLINE void mesh_step::gather_factors(axis_number axis) {
    auto const& i = *i_.axes[axis].as<instruction::compute>();
    auto const& op = p_.operators[i.op];
    auto const& outside = *i_.axes[0].as<instruction::compute>();
    double const members = static_cast<double>(mesh_.size(axis));
    auto const gather = [&](tensor_id t, product_form const& f) {
        if (!f[axis].is_shard()) return;
        bytes const all = p_.tensors[t].info.size() * (part(t, f, axis) * unevenness(t, f, axis));
        add(s_.inside_backward, inside_step::all_gather, axis, all, f[0].is_shard());
        (f[0].is_shard() ? s_.backward.split : s_.backward.whole) += all * (1 - 1 / members);
    };
    for (std::size_t k = 0; k < op.operands.size(); ++k) gather(op.operands[k], i_.operand(k));
    for (std::size_t k = 0; k < op.results.size(); ++k)
        if (p_.tensors[op.results[k]].has_cotangent) gather(op.results[k], i_.result(k));
    // Every device of the line does the parameters' part in full: at once, or when the outermost axis brings the rest.
    double const own = part_of_loops(false) / part_of_loops(false, axis);
    double const others = 1 / own - 1;
    if (gathers_factors(outside)) s_.deferred.operations += s_.deferred.operations * others;
    else s_.backward.operations += s_.backward.operations * (part_of_backward(p_, op, i.operands) * others);
}

HEDDLE_INLINE void mesh_step::read() {
    tensor_id const t = i_.tensor();
    auto const& tensor = p_.tensors[t];
    auto const from = i_.from(), to = i_.to();
    read_parts inner{part(t, to), part(t, from), 1, false};
    for (axis_number a = 1; a < mesh_.axis_count(); ++a)
        inner.reduces = inner.reduces || to[a] == tensor_form::replicated();
    // Axes that scatter the gradient do so from outside in; then others add up what is left.
    inner.gradient = from[0] == to[0] ? inner.state : inner.value;
    instruction::read outside(t, to[0]);
    outside.from = from[0];
    s_ = step_of(p_, outside, inner, options_);
    leave_groups(s_);
    if (!tensor.has_cotangent) return;
    auto const cut_in = [&](product_form const& f, axis_number axis) { return tensor.info.size() * part(t, f, axis); };
    auto const padded = [&](product_form const& f, axis_number axis) {
        return cut_in(f, axis) * unevenness(t, f, axis);
    };
    product_form form = to.with(0, from[0]);
    for (axis_number a = 1; a < mesh_.axis_count(); ++a) {
        if (to[a] == tensor_form::partial()) {
            bytes const copy = cut_in(to, a);
            s_.forward.launches = true;
            s_.category = operator_class::elementwise;
            (to[0].is_shard() ? s_.forward.split : s_.forward.whole) += copy * 2;
        }
        if (from[a] == to[a]) continue;
        // The gradient is scattered from outside in.
        if (to[a] == tensor_form::replicated())
            add(s_.inside_backward, inside_step::reduce_scatter, a, padded(form.with(a, from[a]), a),
                form[0].is_shard());
        form = form.with(a, from[a]);
    }
    for (axis_number a = 1; a < mesh_.axis_count(); ++a)
        if (from[a] == tensor_form::replicated())
            add(s_.inside_backward, inside_step::all_reduce, a, cut_in(from, a), from[0].is_shard());
    for (axis_number a = mesh_.axis_count(); a-- > 1;) { // whole copies are brought up to date from inside out
        if (from[a] != to[a])
            add(s_.inside_update, inside_step::all_gather, a, padded(form.with(a, from[a]), a), from[0].is_shard());
        form = form.with(a, to[a]);
    }
}

HEDDLE_INLINE void mesh_step::change(axis_number axis) {
    s_ = i_.axes[axis].visit([](instruction::read const&) { return step_work{}; },
                             [](instruction::compute const&) { return step_work{}; },
                             [&](auto const& what) { return step_of(p_, what); });
    leave_groups(s_);
    auto const f = i_.from();
    auto const tensor = i_.tensor();
    double const part = this->part(tensor, f, axis);
    bool const split = axis > 0 && f[0].is_shard();
    double const unevenness = std::max(this->unevenness(tensor, f, axis), this->unevenness(tensor, i_.to(), axis));
    auto const& cut = i_.to()[axis].is_shard() ? i_.to() : f; // as work and memory are
    double const on_one = this->unevenness(tensor, cut, axis) / static_cast<double>(mesh_.size(axis));
    auto const on_device = [&](bytes& whole, bytes& share) {
        whole = whole * part, share = share * part;
        if (axis == 0) return;
        bytes const all = whole + share * on_one;
        whole = split ? bytes(0) : all;
        share = split ? all : bytes(0);
    };
    for (auto* work : {&s_.forward, &s_.backward}) {
        on_device(work->whole, work->split);
        on_device(work->beside.whole, work->beside.split);
    }
    on_device(s_.saved.whole, s_.saved.split);
    s_.transient *= part;
    for_each_transfer(s_, [&](transfer& t) { t.size *= part; });
    if (axis == 0) return;
    s_.share = split ? share_ref{tensor, f[0].factor()} : share_ref{};
    auto const inside = [&](transfer_list& transfers, inside_list& list) {
        for (auto const& t : transfers) // parts of one factor along an axis inside are cut at the same points
            if (!t.redistributes)
                add(list, inside_step_of(t.kind), axis, t.kind == collective::all_reduce ? t.size : t.size * unevenness,
                    split);
        transfers.clear();
    };
    inside(s_.forward_transfers, s_.inside_forward);
    inside(s_.backward_transfers, s_.inside_backward);
    inside(s_.deferred_transfers, s_.inside_backward);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE extent cuts_inside(product_form const& f, mesh const& m) {
    extent parts = 1;
    for (axis_number a = 1; a < f.size(); ++a)
        if (f[0].is_shard() && f[a] == f[0]) parts *= static_cast<extent>(m.size(a));
    return parts;
}

HEDDLE_INLINE double part_inside(std::vector<factor> const& factors, product_form const& f, mesh const& m,
                                 std::optional<axis_number> but_for, std::optional<extent> by_share) {
    double part = 1;
    auto const cut = [&](axis_number a) { return f[a].is_shard() && but_for != a ? int{f[a].factor()} : -1; };
    detail::for_each_cut_inside(m, cut, [&](int number, extent parts) {
        extent atoms = factors[static_cast<std::size_t>(number)].extent;
        if (f[0].is_shard() && f[0].factor() == number) {
            extent const even = std::gcd(parts, by_share.value_or(parts));
            part /= static_cast<double>(even);
            atoms = most_atoms(atoms, static_cast<extent>(m.size(0)) * even);
            parts /= even;
        }
        part *= detail::largest_part(atoms, parts);
    });
    return part;
}

HEDDLE_INLINE step_work make_step(indexed_program const& p, mesh_instruction const& i, mesh const& m,
                                  training_options const& options) {
    return m.axis_count() == 1 ? make_step(p, i.axes[0], options) : detail::mesh_step(p, i, m, options).made();
}

} // namespace heddle

#endif
