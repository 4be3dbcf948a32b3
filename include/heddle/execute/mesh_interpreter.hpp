// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a mesh program on one device: forward, then backward by transposing the distributed program.
///
/// Every step is one of each axis, so what `interpreter` does on one axis is done here along the lines of each.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/detail/row_exchange.hpp>
#include <heddle/execute/detail/run_operator.hpp>
#include <heddle/execute/detail/tensor_exchange.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/mesh_communicator.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/theory/mesh_instruction.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {

/// What one device of a mesh has after an iteration: the loss, or its summand of it, and the gradient of each trained
/// parameter in the form in which the parameter is stored.
template <rank_tensor Tensor>
struct mesh_iteration_result {
    typename Tensor::scalar_type loss{};
    tensor_values<Tensor> gradients;
};

/// Executes a mesh program on one device of the mesh.
///
/// *Preconditions.* `verify(indexed, what)`, with `indexed` of `p`; every device runs the same program. References to
/// all arguments are kept. Collectives are waited for where they are started.
template <class Scalar, class MeshCommunicator, kernel_backend<Scalar> Backend>
class mesh_interpreter {
public:
    using tensor = typename Backend::tensor;
    using values_type = tensor_values<tensor>;
    using result_type = mesh_iteration_result<tensor>;

    mesh_interpreter(program const& p, indexed_program const& indexed, mesh_program const& what,
                     MeshCommunicator& communicator, Backend const& backend, std::uint64_t seed = 0)
        : program_(p), indexed_(indexed), what_(what), communicator_(communicator), backend_(backend), seed_(seed),
          layout_(indexed, what, communicator.device()), calls_(indexed.operators.size()) {
        for (auto const& s : what.steps)
            if (is_read(s) && indexed.tensors[s.tensor()].is_parameter()) stored_as_[s.tensor()] = stored_form(s);
    }

    /// Turns whole sources into what this device keeps between iterations, or whole gradients into its parts of them:
    /// parameters are in the form in which they are stored, other sources are whole.
    [[nodiscard]] values_type place(source_values<Scalar> const& whole) const {
        values_type mine;
        for (auto const& [t, value] : whole) {
            auto const stored = stored_as_.find(t);
            mine.emplace(t, stored == stored_as_.end() ? tensor(value) : layout_.cut(t, stored->second, tensor(value)));
        }
        return mine;
    }

    /// Runs one iteration on placed sources.
    [[nodiscard]] result_type run(values_type const& sources) {
        state_.emplace(indexed_.tensors.size());
        for (auto const& s : what_.steps) forward(s, sources);
        result_type result{seed_loss(), {}};
        for (std::size_t n = what_.steps.size(); n-- > 0;) backward(what_.steps[n], result);
        state_.reset();
        return result;
    }

    /// Returns the whole loss of an iteration; this is a collective along the axes on which it is a sum.
    [[nodiscard]] Scalar whole_loss(result_type const& result) {
        tensor loss(tensor_shape{}, result.loss);
        for (axis_number a = 0; a < loss_form_.size(); ++a)
            if (loss_form_[a] == tensor_form::partial()) communicator_.line(a).all_reduce(loss.flat());
        return loss.number();
    }

private:
    using line_type = std::remove_reference_t<decltype(std::declval<MeshCommunicator&>().line(0))>;
    using exchange = detail::tensor_exchange<tensor, line_type, detail::line_layout>;
    using held = detail::held<tensor>;
    using state = detail::micro_batch_state<tensor, typename exchange::request, product_form>;

    [[nodiscard]] static bool is_read(mesh_instruction const& s) { return s.axes[0].is<instruction::read>(); }
    [[nodiscard]] static instruction::compute const* computation(mesh_instruction const& s, axis_number axis = 0) {
        return s.axes[axis].as<instruction::compute>();
    }
    [[nodiscard]] std::size_t axis_count() const { return layout_.mesh().axis_count(); }
    /// Returns the form in which a parameter that a step reads is stored: cut, or whole.
    [[nodiscard]] static product_form stored_form(mesh_instruction const& read) {
        product_form f = read.from();
        for (axis_number a = 0; a < f.size(); ++a)
            if (!f[a].is_shard()) f = f.with(a, tensor_form::replicated());
        return f;
    }

    [[nodiscard]] held& value(tensor_id t, product_form const& f) { return state_->values.find(t, f)->get(); }
    void set_value(tensor_id t, product_form const& f, held x) {
        state_->values.set(t, f, typename exchange::result(std::move(x)));
    }
    void accumulate(tensor_id t, product_form const& f, held gradient) {
        detail::accumulate(state_->cotangents, t, f, typename exchange::result(std::move(gradient)));
    }
    [[nodiscard]] held zeros(tensor_id t, product_form const& f) const { return tensor(layout_.held_shape(t, f)); }
    /// Returns this device's cotangent in a form, which is not kept; zeros if nothing was differentiated.
    [[nodiscard]] held take_cotangent(tensor_id t, product_form const& f) {
        auto taken = state_->cotangents.take(t, f);
        return taken ? std::move(taken->get()) : zeros(t, f);
    }

    /// Calls `work(exchange)` with the line along an axis, for a tensor in a form; see `line_layout`.
    template <class Work>
    [[nodiscard]] held along(axis_number axis, tensor_id t, product_form const& f, Work&& work,
                             std::vector<axis_number> gathered = {}) {
        detail::line_layout const layout(indexed_, layout_, t, f, axis, std::move(gathered));
        exchange over(indexed_, layout, communicator_.line(axis));
        return work(over).get();
    }
    [[nodiscard]] held converted(tensor_id t, product_form const& from, axis_number axis, tensor_form to, held x) {
        if (to == tensor_form::partial()) return masked(axis, std::move(x));
        return along(axis, t, from,
                     [&](exchange& over) { return over.convert(t, from[axis], to, std::move(x), uneven::padded); });
    }
    [[nodiscard]] held transposed(tensor_id t, product_form const& from, axis_number axis, tensor_form to,
                                  held cotangent) {
        return along(axis, t, from, [&](exchange& over) {
            return over.transpose(t, from[axis], to, std::move(cotangent), uneven::padded);
        });
    }
    /// Scales a copy so that those of its line add up to the whole.
    [[nodiscard]] held masked(axis_number axis, held x) const {
        x.own() *= Scalar{1} / static_cast<Scalar>(layout_.mesh().size(axis));
        return x;
    }

    // ---- forward

    void forward(mesh_instruction const& s, values_type const& sources) {
        if (computation(s)) return compute(s);
        if (is_read(s)) return read(s, sources);
        auto const axis = *s.acting();
        tensor_id const t = s.tensor();
        if (s.axes[axis].is<instruction::reshard>()) return state_->values.drop(t, s.from());
        set_value(t, s.to(), converted(t, s.from(), axis, s.to()[axis], value(t, s.from())));
    }

    void read(mesh_instruction const& s, values_type const& sources) {
        tensor_id const t = s.tensor();
        product_form form = s.from();
        held mine = held::of(sources.at(t));
        if (!stored_as_.contains(t)) mine = layout_.cut(t, form, *mine);
        for (axis_number a = form.size(); a-- > 0;) { // whole copies are made from inside out
            if (form[a] != s.to()[a]) mine = converted(t, form, a, s.to()[a], std::move(mine));
            else if (form[a] == tensor_form::partial()) mine = masked(a, std::move(mine));
            form = form.with(a, s.to()[a]);
        }
        set_value(t, s.to(), std::move(mine));
    }

    void compute(mesh_instruction const& s) {
        auto const& i = *computation(s);
        detail::run_forward(
            backend_, i, call(s), [&](std::size_t k) { return value(program_.operands(i.op)[k], s.operand(k)); },
            [&](std::size_t k, tensor made) { set_value(program_.results(i.op)[k], s.result(k), std::move(made)); });
    }

    [[nodiscard]] split_loop const* loop_of(mesh_instruction const& s, axis_number axis) const {
        auto const& i = *computation(s, axis);
        return i.loop < 0 ? nullptr : &indexed_.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
    }
    /// Returns the places of an axis's loop that a device computes.
    [[nodiscard]] detail::place_range range(mesh_instruction const& s, axis_number axis,
                                            mesh::coordinates const& place) const {
        auto const& i = *computation(s, axis);
        for (std::size_t k = 0; k < i.operands.size(); ++k)
            if (i.operands[k].is_shard())
                return layout_.range(program_.operands(i.op)[k], s.operand(k), i.operands[k], place);
        for (std::size_t k = 0; k < i.results.size(); ++k)
            if (i.results[k].is_shard())
                return layout_.range(program_.results(i.op)[k], s.result(k), i.results[k], place);
        return {0, loop_of(s, axis)->extent};
    }

    [[nodiscard]] tensor_call<tensor> const& call(mesh_instruction const& s) {
        auto& known = calls_[computation(s)->op];
        if (!known) known = make_call(s);
        known->random.seed = seed_;
        return *known;
    }
    [[nodiscard]] tensor_call<tensor> make_call(mesh_instruction const& s) {
        operator_id const o = computation(s)->op;
        tensor_call<tensor> result = whole_call(program_, o, seed_);
        std::vector<axis_number> with_statistics;
        for (axis_number a = 0; a < axis_count(); ++a) {
            auto const* const loop = loop_of(s, a);
            if (!loop) continue;
            if (loop->exchanges()) {
                exchange_rows(result, s, a);
                continue;
            }
            auto const [begin, count] = range(s, a, layout_.here());
            split_call(result, program_, indexed_, o, *loop, begin, count);
            if (detail::has_statistics(*loop)) with_statistics.push_back(a);
        }
        if (!with_statistics.empty())
            result.combine = [this, o, with_statistics](std::size_t which, reduction how, tensor& rows) {
                detail::combine_once(*state_, o, which, rows, [&](tensor& mine) {
                    for (auto a : with_statistics) communicator_.line(a).all_reduce(mine.flat(), how);
                });
            };
        return result;
    }
    /// Lets a computation send rows along an axis to the devices that have what they choose.
    void exchange_rows(tensor_call<tensor>& call, mesh_instruction const& s, axis_number axis) {
        auto const& i = *computation(s, axis);
        auto const& loop = *loop_of(s, axis);
        auto const [rows, places] = sides_of(loop);
        auto const k = loop.destination();
        tensor_id const result = program_.results(i.op)[0], destination = program_.operands(i.op)[k];
        auto const of_rows = layout_.range(result, s.result(0), i.results[0], layout_.here());
        split_call(call, program_, indexed_, i.op, rows, of_rows.begin, of_rows.count);
        std::vector<detail::place_range> of_places;
        auto place = layout_.here();
        for (place[axis] = 0; place[axis] < layout_.mesh().size(axis); ++place[axis])
            of_places.push_back(layout_.range(destination, s.operand(k), i.operands[k], place));
        auto const mine = of_places[layout_.here()[axis]];
        split_call(call, program_, indexed_, i.op, places, mine.begin, mine.count);
        detail::own_places(call.destinations, program_.tensor(destination).shape,
                           layout_.factor_of(destination, i.operands[k]), of_places);
        call.send = [this, axis, o = i.op](std::size_t which, tensor const& rows_of_all, shard_counts sent,
                                           shard_counts received) {
            auto& known = state_->statistics;
            if (auto const found = known.find({o, which}); found != known.end()) return found->second;
            return known
                .try_emplace({o, which}, detail::exchanged(communicator_.line(axis), rows_of_all, sent, received))
                .first->second;
        };
    }

    // ---- backward

    /// Returns the loss, in the first form in which it is partial or mirrored on every axis, and begins with its
    /// cotangent.
    [[nodiscard]] Scalar seed_loss() {
        tensor_id const t = program_.loss();
        auto const& found = *algorithm::find_if(what_.steps, [&](mesh_instruction const& s) {
            auto const f = form_made(s, t);
            return f && is_end(*f);
        });
        loss_form_ = *form_made(found, t);
        accumulate(t, loss_form_, tensor(program_.tensor(t).shape, Scalar{1}));
        return value(t, loss_form_)->number();
    }
    /// Returns the form in which a step makes a tensor; nothing if it does not.
    [[nodiscard]] std::optional<product_form> form_made(mesh_instruction const& s, tensor_id t) const {
        if (!computation(s)) return s.tensor() == t ? std::optional(s.to()) : std::nullopt;
        auto const& results = program_.results(computation(s)->op);
        auto const at = algorithm::find(results, t);
        return at == results.end() ? std::nullopt
                                   : std::optional(s.result(static_cast<std::size_t>(at - results.begin())));
    }

    /// Runs the adjoint of a step. What the step made, nobody needs after that.
    void backward(mesh_instruction const& s, result_type& result) {
        if (computation(s)) return backward_compute(s);
        tensor_id const t = s.tensor();
        if (is_read(s)) {
            if (indexed_.tensors[t].has_cotangent && stored_as_.contains(t))
                result.gradients.insert_or_assign(t, gradient(s));
            return state_->values.drop(t, s.to());
        }
        auto const axis = *s.acting();
        if (s.axes[axis].is<instruction::reshard>())
            return set_value(t, s.from(), converted(t, s.to(), axis, s.from()[axis], value(t, s.to())));
        state_->values.drop(t, s.to());
        if (auto taken = state_->cotangents.take(t, s.to()))
            accumulate(t, s.from(), transposed(t, s.from(), axis, s.to()[axis], std::move(taken->get())));
    }

    /// Returns the gradient of a parameter in the form in which it is stored. Axes that cut it do so from outside in,
    /// and the summands of others are added up.
    [[nodiscard]] tensor gradient(mesh_instruction const& read) {
        tensor_id const t = read.tensor();
        product_form form = read.to();
        held mine = take_cotangent(t, form);
        for (axis_number a = 0; a < form.size(); ++a) {
            tensor_form const stored = read.from()[a];
            if (stored == form[a]) continue;
            form = form.with(a, stored);
            mine = transposed(t, form, a, read.to()[a], std::move(mine));
        }
        for (axis_number a = 0; a < form.size(); ++a)
            if (read.from()[a] == tensor_form::replicated())
                mine = along(a, t, form, [&](exchange& over) { return over.reduced(t, std::move(mine)); });
        return std::move(mine).release();
    }

    void backward_compute(mesh_instruction const& s) {
        auto const& i = *computation(s);
        auto const &operands = program_.operands(i.op), &results = program_.results(i.op);
        auto const has_cotangent = [&](tensor_id t) { return indexed_.tensors[t].has_cotangent; };
        if (algorithm::none_of(results, has_cotangent)) {
            for (std::size_t k = 0; k < operands.size(); ++k) // they are zero, but others wait for them
                if (has_cotangent(operands[k])) accumulate(operands[k], s.operand(k), zeros(operands[k], s.operand(k)));
        } else {
            std::vector<held> mine(results.size());
            for (std::size_t k = 0; k < mine.size(); ++k)
                if (has_cotangent(results[k])) mine[k] = take_cotangent(results[k], s.result(k));
            detail::run_backward(
                backend_, i, call(s), [&](std::size_t k) { return value(operands[k], s.operand(k)); },
                [&](std::size_t k) { return value(results[k], s.result(k)); }, mine,
                [&](std::size_t k, tensor gradient) {
                    if (has_cotangent(operands[k]) && gathering(s, k).empty())
                        accumulate(operands[k], s.operand(k), std::move(gradient));
                });
            multiply_factors(s, mine);
        }
        for (std::size_t k = 0; k < results.size(); ++k) {
            state_->values.drop(results[k], s.result(k));
            state_->cotangents.drop(results[k], s.result(k));
        }
    }

    /// Returns the axes along which the factors of an operand's gradient are gathered, from inside out.
    [[nodiscard]] std::vector<axis_number> gathering(mesh_instruction const& s, std::size_t k) const {
        std::vector<axis_number> axes;
        for (axis_number a = axis_count(); a-- > 0;) {
            auto const& i = *computation(s, a);
            if (i.loop >= 0 && i.operands[k] == tensor_form::mirrored()) axes.push_back(a);
        }
        return axes;
    }

    /// Computes the gradients of parameters from their factors, which are gathered along the axes that have them
    /// mirrored; the other axes take what comes as the gradient in their dual form.
    void multiply_factors(mesh_instruction const& s, std::vector<held> const& mine) {
        auto const& i = *computation(s);
        auto const &operands = program_.operands(i.op), &results = program_.results(i.op);
        std::map<std::vector<axis_number>, std::vector<std::size_t>> wanted;
        for (std::size_t k = 0; k < operands.size(); ++k)
            if (auto axes = gathering(s, k); !axes.empty()) wanted[std::move(axes)].push_back(k);
        for (auto const& [axes, parameters] : wanted) {
            auto const gather = [&](tensor_id t, product_form const& f, held x) {
                std::vector<axis_number> gathered;
                for (auto a : axes)
                    if (f[a].is_shard()) {
                        auto const work = [&](exchange& over) {
                            return over.gathered(t, f[a], std::move(x), uneven::padded);
                        };
                        x = along(a, t, f, work, gathered);
                        gathered.push_back(a);
                    }
                return x;
            };
            std::vector<held> all;
            std::vector<tensor const*> of_operands, of_results(results.size()), cotangents(results.size());
            for (std::size_t k = 0; k < operands.size(); ++k)
                of_operands.push_back(
                    all.emplace_back(gather(operands[k], s.operand(k), value(operands[k], s.operand(k)))).get());
            for (std::size_t k = 0; k < results.size(); ++k)
                if (mine[k]) cotangents[k] = all.emplace_back(gather(results[k], s.result(k), mine[k])).get();
            auto made = backend_.backward(factors_call(s, axes), of_operands, of_results, cotangents);
            for (auto k : parameters)
                if (indexed_.tensors[operands[k]].has_cotangent)
                    accumulate(operands[k], s.operand(k),
                               made[k] ? held(std::move(*made[k])) : zeros(operands[k], s.operand(k)));
        }
    }
    /// Returns the call on what is held once factors are gathered along some axes: of a loop that another axis cuts
    /// too, the places of all devices of their lines.
    [[nodiscard]] tensor_call<tensor> factors_call(mesh_instruction const& s,
                                                   std::vector<axis_number> const& axes) const {
        operator_id const o = computation(s)->op;
        auto result = whole_call(program_, o, seed_);
        auto const is_gathered = [&](axis_number a) { return algorithm::find(axes, a) != axes.end(); };
        for (axis_number a = 0; a < axis_count(); ++a) {
            auto const* const loop = loop_of(s, a);
            if (!loop || is_gathered(a)) continue;
            std::vector<kernel_call> parts;
            for (std::size_t device = 0; device < layout_.mesh().device_count(); ++device) {
                auto const place = layout_.mesh().place_of(device);
                bool is_in_lines = true;
                for (axis_number b = 0; b < axis_count(); ++b)
                    is_in_lines &= place[b] == layout_.here()[b] || (is_gathered(b) && loop_of(s, b) == loop);
                if (!is_in_lines) continue;
                auto const [begin, count] = range(s, a, place);
                parts.push_back(split_call(program_, indexed_, o, *loop, begin, count));
            }
            restrict_to_any(result, parts);
        }
        return result;
    }

    program const& program_;
    indexed_program const& indexed_;
    mesh_program const& what_;
    MeshCommunicator& communicator_;
    Backend const& backend_;
    std::uint64_t seed_;
    detail::mesh_layout layout_;
    /// The form in which a device keeps each parameter.
    std::map<tensor_id, product_form> stored_as_;
    std::vector<std::optional<tensor_call<tensor>>> calls_;
    std::optional<state> state_;
    product_form loss_form_;
};

} // namespace heddle
