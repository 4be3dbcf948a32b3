// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How ranks turn a plan's tensors from one form into another, with the devices of their groups.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/inside_exchange.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/form.hpp>
#include <heddle/theory/product_form.hpp>

#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Returns a program in the places of a micro-batch: every value that is cut along the batch has only that many places;
/// sources are whole.
[[nodiscard]] indexed_program part_of_batch(indexed_program p, batch_split const& batch, extent places);

/// One rank's tensors of a program, of one size of micro-batch. Their collectives go along the axes of the plan's mesh,
/// and, in a group, through `inside`. Where the plan has one axis, all its ranks are a line.
///
/// A device of a group has its part of the group's tensors if they are cut inside, and a copy otherwise. The same holds
/// for cotangents, except that only the first device has a parameter's gradient until the end.
/// *Lifetime:* keeps references, and is not moved, as its parts refer to each other.
template <rank_tensor Tensor, ranks_of_plan<typename Tensor::scalar_type> Ranks>
class rank_tensors {
    using line = line_of<Ranks>;
    using inner = typename devices_inside<line>::type;

public:
    using exchange = tensor_exchange<Tensor, line>;
    using tensor = held<Tensor>;
    using arriving_tensor = typename exchange::result;
    /// An axis of the mesh: the line along it on which this rank is.
    struct axis {
        axis(indexed_program const& p, mesh_layout const& all, axis_number number, line& devices)
            : ranks(devices), layout(p, all, number), over(layout, ranks) {}

        line& ranks;
        line_layout layout;
        exchange over;
    };

    rank_tensors(indexed_program const& p, plan const& what, Ranks& ranks)
        : indexed(p), layout(p, what.cuts, mesh_of(ranks), device_of(ranks)), axes_(lines_of(p, layout, ranks)),
          inside(p, outermost().layout, outermost().ranks.rank(), devices_of(outermost().ranks)) {}
    rank_tensors(rank_tensors const&) = delete;

    indexed_program const& indexed;
    mesh_layout layout;

private:
    std::deque<axis> axes_;

public:
    inside_exchange<Tensor, inner> inside;

    /// Gives parameters, and what kernels wait for, lanes of their own where the plan is priced as if values'
    /// collectives did not hold them up, nor they those. All ranks call it.
    void open_lanes(plan const& what) {
        auto const& training = what.provenance.training;
        if (!training.interleaves() && !training.overlaps_gradients) return;
        bool const waits = algorithm::any_of(what.steps, [](plan_step const& s) {
            return s.instruction.is<instruction::compute>() &&
                   !(s.step.forward_transfers.empty() && s.step.backward_transfers.empty());
        });
        for (auto& a : axes_) {
            if (a.ranks.size() < 2) continue;
            open_lane(a.ranks, lane::parameters);
            if (waits) open_lane(a.ranks, lane::kernels);
        }
    }
    [[nodiscard]] std::size_t axis_count() const { return axes_.size(); }
    [[nodiscard]] axis& on(axis_number a) { return axes_[a]; }
    [[nodiscard]] axis& outermost() { return axes_.front(); }
    /// Tells whether this rank is the one that counts of those that hold the same parts in a form.
    [[nodiscard]] bool is_first_of(product_form const& f) const {
        for (axis_number a = 0; a < f.size(); ++a)
            if (!f[a].is_shard() && layout.here()[a] != 0) return false;
        return true;
    }
    [[nodiscard]] bool is_parameter(tensor_id t) const { return indexed.tensors[t].is_parameter(); }
    /// Tells whether this device has a tensor's cotangent.
    [[nodiscard]] bool has_cotangent(tensor_id t) const {
        return indexed.tensors[t].has_cotangent && (inside.is_first() || !is_parameter(t));
    }
    [[nodiscard]] bool is_split_inside(operator_id o) const {
        return inside.is_group() && indexed.operators[o].inside_loop >= 0;
    }
    /// Returns zeros in the shape of what this device holds.
    [[nodiscard]] tensor zeros(tensor_id t, product_form const& f) const {
        return Tensor(inside.is_group() ? inside.held_shape(t, f[0]) : layout.held_shape(t, f));
    }

    /// Turns a form into one that differs from it on one axis.
    [[nodiscard]] arriving_tensor converted(tensor_id t, product_form const& from, product_form const& to, tensor value,
                                            uneven how) {
        auto const a = changed_axis(from, to);
        auto const turn = [&](tensor x) {
            return through(on(a).ranks, lane_of(t), [&] {
                return on(a).over.convert(on(a).layout.view(t, from), from[a], to[a], std::move(x), how);
            });
        };
        if (!inside.is_group()) return turn(std::move(value));
        return turned(t, from[0], to[0], std::move(value),
                      find_conversion(from[0], to[0])->forward.collective.has_value(), turn);
    }
    /// A parameter's gradient stays on the first device.
    [[nodiscard]] arriving_tensor transposed(tensor_id t, product_form const& from, product_form const& to,
                                             tensor cotangent, uneven how) {
        auto const a = changed_axis(from, to);
        auto const turn = [&](tensor x) {
            return through(on(a).ranks, lane_of(t), [&] {
                return on(a).over.transpose(on(a).layout.view(t, from), from[a], to[a], std::move(x), how);
            });
        };
        if (!inside.is_group() || is_parameter(t)) return turn(std::move(cotangent));
        return turned(t, to[0], from[0], std::move(cotangent),
                      find_conversion(from[0], to[0])->backward.collective.has_value(), turn);
    }
    /// Turns what a device keeps of a source into what it reads: whole copies are made from inside out, and those that
    /// are to be summands are scaled.
    [[nodiscard]] arriving_tensor read(tensor_id t, product_form form, product_form const& to, tensor kept,
                                       uneven how) {
        arriving_tensor result(std::move(kept));
        for (axis_number a = form.size(); a-- > 0; form = form.with(a, to[a]))
            if (form[a] != to[a]) result = converted(t, form, form.with(a, to[a]), std::move(result.get()), how);
            else if (to[a] == tensor_form::partial()) result = on(a).over.scaled(std::move(result.get()));
        return result;
    }
    /// Turns the cotangent of what was read of a parameter into the gradient of what is kept of it: axes that cut it do
    /// so from outside in, and the summands of others are added up from inside out, so that it is the outermost axis's
    /// that are under way when this returns.
    [[nodiscard]] arriving_tensor gradient(tensor_id t, product_form const& kept, product_form form, tensor cotangent,
                                           uneven how) {
        if (kept[0] != form[0]) {
            auto const read = std::exchange(form, form.with(0, kept[0]));
            auto cut = through(outermost().ranks, lane::parameters, [&] {
                return outermost().over.transpose(outermost().layout.view(t, form), kept[0], read[0],
                                                  std::move(cotangent), how);
            });
            return gradient_inside(t, kept, form, std::move(cut.get()));
        }
        auto result = gradient_inside(t, kept, form, std::move(cotangent));
        if (form[0] != tensor_form::replicated()) return result;
        auto all = std::move(result.get());
        return through(outermost().ranks, lane::parameters,
                       [&] { return outermost().over.reduced(outermost().layout.view(t, kept), std::move(all)); });
    }
    /// As above, but for the outermost axis's part.
    [[nodiscard]] arriving_tensor gradient_inside(tensor_id t, product_form const& kept, product_form form,
                                                  tensor cotangent) {
        arriving_tensor result(std::move(cotangent));
        for (axis_number a = 1; a < form.size(); ++a) {
            if (kept[a] == form[a]) continue;
            auto const read = std::exchange(form, form.with(a, kept[a]));
            result = on(a).over.transpose(on(a).layout.view(t, form), kept[a], read[a], std::move(result.get()),
                                          uneven::padded);
        }
        for (axis_number a = form.size(); a-- > 1;)
            if (form[a] == tensor_form::replicated())
                result = on(a).over.reduced(on(a).layout.view(t, form), std::move(result.get()));
        return result;
    }
    /// Brings the group's tensor together for an operator that is not split inside.
    [[nodiscard]] tensor whole_inside(operator_id o, tensor_id t, product_form const& f, tensor mine) {
        if (!mine || !inside.is_cut(t) || is_split_inside(o)) return mine;
        outermost().over.count_as(t);
        return inside.all_gathered(t, f[0], *mine);
    }
    /// Gives each device of the group its part of what its first device has.
    [[nodiscard]] arriving_tensor spread(tensor_id t, product_form const& f, arriving_tensor whole) {
        if (!inside.is_group()) return whole;
        outermost().over.count_as(t);
        auto& all = whole.get();
        return tensor(inside.is_cut(t) ? inside.scattered(t, f[0], *all) : inside.broadcast(std::move(all).release()));
    }
    /// Brings the group's tensor together on its first device.
    [[nodiscard]] tensor collected(tensor_id t, product_form const& f, tensor mine) {
        if (!inside.is_cut(t)) return mine;
        outermost().over.count_as(t);
        return inside.gathered(t, f[0], *mine);
    }
    /// Brings a tensor together along some axes, from inside out; in a group on the first device. `how()` says how the
    /// shards of an axis move.
    template <class Ways>
    [[nodiscard]] arriving_tensor whole_along(std::span<axis_number const> axes, tensor_id t, product_form const& f,
                                              tensor const& mine, Ways&& how) {
        outermost().over.count_as(t);
        arriving_tensor result(inside.is_cut(t) ? tensor(inside.gathered(t, f[0], *mine)) : mine);
        std::vector<axis_number> gathered;
        for (auto a : axes) {
            if (!f[a].is_shard()) continue;
            uneven const moves = how();
            if (!inside.is_first()) continue;
            result = on(a).over.gathered(on(a).layout.view(t, f, gathered), f[a], std::move(result.get()), moves);
            gathered.push_back(a);
        }
        return result;
    }
    /// Returns this device's part of what an operator has made, or its sum over the devices if they have summands.
    [[nodiscard]] Tensor made(operator_id o, tensor_id t, product_form const& f, Tensor value) {
        if (!inside.is_group()) return value;
        if (!is_split_inside(o)) return inside.part(t, f[0], std::move(value));
        if (inside.is_cut(t)) return value;
        outermost().over.count_as(t);
        return inside.all_reduced(std::move(value));
    }
    /// As above, of the cotangent that an operator gives an operand; the sum of a parameter's is on the first device.
    [[nodiscard]] Tensor given(operator_id o, tensor_id t, product_form const& f, Tensor cotangent) {
        if (!inside.is_group() || !is_split_inside(o) || inside.is_cut(t) || !is_parameter(t))
            return made(o, t, f, std::move(cotangent));
        outermost().over.count_as(t);
        return inside.reduced(std::move(cotangent));
    }
    /// Returns the sum of tensors along the axes on which a form is partial, of which the devices of a group have the
    /// same.
    template <rank_tensor Any>
    [[nodiscard]] Any total(Any mine, product_form const& f) {
        for (axis_number a = 0; a < f.size(); ++a)
            if (f[a] == tensor_form::partial() && inside.is_first()) on(a).ranks.all_reduce(mine.flat());
        return inside.broadcast(std::move(mine));
    }

private:
    [[nodiscard]] lane lane_of(tensor_id t) const { return is_parameter(t) ? lane::parameters : lane::values; }
    static std::deque<axis> lines_of(indexed_program const& p, mesh_layout const& all, Ranks& ranks) {
        std::deque<axis> axes;
        for (axis_number a = 0; a < all.mesh().axis_count(); ++a) axes.emplace_back(p, all, a, line_along(ranks, a));
        return axes;
    }
    static inner* devices_of(line& c) {
        if constexpr (requires { c.inside(); }) return &c.inside();
        else return nullptr;
    }
    [[nodiscard]] static axis_number changed_axis(product_form const& from, product_form const& to) {
        for (axis_number a = 0; a < from.size(); ++a)
            if (from[a] != to[a]) return a;
        return 0;
    }

    /// Applies `turn` to the group's tensor: to this device's part if that is possible; otherwise to all of it on the
    /// first device, which gives each device its part of the result.
    template <class Turn>
    [[nodiscard]] arriving_tensor turned(tensor_id t, tensor_form from, tensor_form to, tensor mine, bool is_collective,
                                         Turn&& turn) {
        if (!is_collective) {
            auto const cuts_batch = [&](tensor_form f) {
                return f.is_shard() && f.factor() == indexed.tensors[t].inside;
            };
            if (!inside.is_cut(t)) return turn(std::move(mine));
            if (cuts_batch(from) == cuts_batch(to))
                return tensor(inside.part(t, to, *turn(inside.padded(t, from, *mine)).get()));
        }
        outermost().over.count_as(t);
        auto const whole = inside.gathered(t, from, *mine);
        auto const result = inside.is_first() ? turn(whole).get() : tensor(Tensor(layout.held_shape(t, to)));
        return tensor(inside.is_cut(t) ? inside.scattered(t, to, *result) : inside.broadcast(*result));
    }
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE indexed_program part_of_batch(indexed_program p, batch_split const& batch, extent places) {
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        if (!batch.forms[t].is_shard()) continue;
        auto const number = static_cast<std::size_t>(batch.forms[t].factor());
        auto const cut = p.tensors[t].factors[number];
        p.tensors[t].info.shape = part_shape(p.tensors[t].info.shape, cut, places);
        for (auto& f : p.tensors[t].factors) f = within(f, cut, places);
        p.tensors[t].factors[number].extent = places;
    }
    return p;
}

} // namespace heddle::detail

#endif
