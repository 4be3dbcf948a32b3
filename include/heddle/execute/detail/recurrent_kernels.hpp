// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of recurrent layers.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/cell_kernels.hpp>

#include <algorithm>
#include <utility>

namespace heddle::detail {

/// The kernel of a cell that takes the input, this many states (plus the first once more, if it reads that unit by unit
/// too) and weights.
template <class Scalar>
struct recurrent_cell_kernel {
    operator_kernel<Scalar> kernel;
    std::size_t states;
    bool repeats_state;

    [[nodiscard]] std::size_t first_weight() const { return 1 + states + (repeats_state ? 1 : 0); }
};

/// Runs layers of a cell along a sequence, in one direction or both, and keeps all states on the way.
///
/// Operands are the sequence, the states before it (run, batch, hidden), and the cell's weights for each run, that is,
/// for each layer and direction. Results are the last layer's outputs, with the directions side by side, and the states
/// after the sequence.
template <class Scalar>
class recurrence {
public:
    using tensor = dense_tensor<Scalar>;

    recurrence(dense_call<Scalar> const& call, recurrent_cell_kernel<Scalar> const& cell, tensor_view<Scalar> x)
        : call_(call), cell_(cell), x_(x), directions_(static_cast<std::size_t>(call.number("directions", 1))),
          runs_(static_cast<std::size_t>(x[1]->dims[0])), batch_(x[1]->dims[1]), hidden_(x[1]->dims[2]),
          is_batch_first_(call.flag("batch_first")), sequences_{steps_of(*x[0])} {
        for (std::size_t run = 0; run < runs_; ++run) {
            if (run % directions_ == 0)
                sequences_.emplace_back(length(), tensor({batch_, static_cast<extent>(directions_) * hidden_}));
            auto const& from = input_of(run);
            auto& states = states_.emplace_back(1, states_of(x_.subspan(1, cell_.states), run));
            for (std::size_t n = 0; n < length(); ++n) {
                states.push_back(cell_.kernel.forward(call_, view(operands(run, from[time(run, n)], states[n]))));
                if (batch_ > 0) output_of(sequences_.back()[time(run, n)], run) = matrix_of(states.back()[0]);
            }
        }
    }

    [[nodiscard]] tensors<Scalar> results() const {
        tensors<Scalar> y{sequence_of(sequences_.back())};
        for (std::size_t s = 0; s < cell_.states; ++s) {
            y.emplace_back(x_[1 + s]->dims);
            for (std::size_t run = 0; run < runs_; ++run) put_state(y.back(), run, states_[run].back()[s]);
        }
        return y;
    }

    [[nodiscard]] gradients<Scalar> backward(tensor_view<Scalar> g) const {
        gradients<Scalar> result;
        for (auto const* t : x_) result.push_back(tensor(t->dims));
        auto to_outputs = steps_of(*g[0]);
        tensors<Scalar> to_inputs;
        for (std::size_t run = runs_; run-- > 0;) {
            auto const& from = input_of(run);
            if ((run + 1) % directions_ == 0) to_inputs.assign(length(), tensor(from[0].dims));
            auto to_states = states_of(g.subspan(1), run);
            for (std::size_t n = length(); n-- > 0;) {
                std::size_t const t = time(run, n);
                if (batch_ > 0) matrix_of(to_states[0]) += output_of(to_outputs[t], run);
                auto const d = cell_.kernel.backward(call_, view(operands(run, from[t], states_[run][n])), {},
                                                     view(pointers(to_states)));
                to_inputs[t] += *d[0];
                for (std::size_t s = 0; s < cell_.states; ++s) to_states[s] = *d[1 + s];
                if (cell_.repeats_state) to_states[0] += *d[2];
                for (std::size_t w = 0; w < weights(); ++w) *result[weight(run, w)] += *d[cell_.first_weight() + w];
            }
            for (std::size_t s = 0; s < cell_.states; ++s) put_state(*result[1 + s], run, to_states[s]);
            if (run % directions_ == 0) to_outputs = std::exchange(to_inputs, {});
        }
        result[0] = sequence_of(to_outputs);
        return result;
    }

private:
    using pointer_list = std::vector<tensor const*>;

    [[nodiscard]] std::size_t length() const { return sequences_[0].size(); }
    [[nodiscard]] std::size_t weights() const { return (x_.size() - 1 - cell_.states) / runs_; }
    [[nodiscard]] std::size_t weight(std::size_t run, std::size_t w) const {
        return 1 + cell_.states + run * weights() + w;
    }
    [[nodiscard]] tensors<Scalar> const& input_of(std::size_t run) const { return sequences_[run / directions_]; }
    /// The second direction goes from the end to the start.
    [[nodiscard]] std::size_t time(std::size_t run, std::size_t n) const {
        return run % directions_ == 0 ? n : length() - 1 - n;
    }

    [[nodiscard]] static tensor_view<Scalar> view(pointer_list const& list) { return list; }
    [[nodiscard]] static pointer_list pointers(tensors<Scalar> const& list) {
        pointer_list result;
        for (auto const& t : list) result.push_back(&t);
        return result;
    }
    [[nodiscard]] pointer_list operands(std::size_t run, tensor const& input, tensors<Scalar> const& states) const {
        pointer_list list{&input};
        for (auto const& s : states) list.push_back(&s);
        if (cell_.repeats_state) list.push_back(&states[0]);
        for (std::size_t w = 0; w < weights(); ++w) list.push_back(x_[weight(run, w)]);
        return list;
    }

    [[nodiscard]] static matrix_map<Scalar> matrix_of(tensor& t) { return {t.data.data(), t.dims[0], t.dims[1]}; }
    [[nodiscard]] static const_matrix_map<Scalar> matrix_of(tensor const& t) {
        return {t.data.data(), t.dims[0], t.dims[1]};
    }
    /// Returns a run's columns of what its layer has at one time. *Precondition:* the batch is not empty, because Eigen
    /// offsets the pointer.
    [[nodiscard]] auto output_of(tensor& step, std::size_t run) const {
        return matrix_of(step).middleCols(static_cast<extent>(run % directions_) * hidden_, hidden_);
    }

    /// Returns a run's part of the states.
    [[nodiscard]] tensors<Scalar> states_of(tensor_view<Scalar> all, std::size_t run) const {
        tensors<Scalar> states;
        for (auto const* state : all) {
            auto& part = states.emplace_back(tensor_shape{batch_, hidden_});
            std::copy_n(state->data.begin() + first_of(run), part.elements(), part.data.begin());
        }
        return states;
    }
    void put_state(tensor& all, std::size_t run, tensor const& part) const {
        algorithm::copy(part.data, all.data.begin() + first_of(run));
    }
    [[nodiscard]] extent first_of(std::size_t run) const { return static_cast<extent>(run) * batch_ * hidden_; }

    /// Turns a sequence into one matrix (batch, features) for each time; the next function turns it back.
    [[nodiscard]] tensors<Scalar> steps_of(tensor const& sequence) const {
        tensors<Scalar> steps(static_cast<std::size_t>(sequence.dims[is_batch_first_ ? 1 : 0]),
                              tensor({batch_, sequence.dims[2]}));
        for_each_row(
            steps, [&](extent row, auto step, extent width) { std::copy_n(sequence.data.begin() + row, width, step); });
        return steps;
    }
    [[nodiscard]] tensor sequence_of(tensors<Scalar> steps) const {
        auto const time = static_cast<extent>(steps.size()), width = steps[0].dims[1];
        tensor sequence(is_batch_first_ ? tensor_shape{batch_, time, width} : tensor_shape{time, batch_, width});
        for_each_row(steps,
                     [&](extent row, auto step, extent) { std::copy_n(step, width, sequence.data.begin() + row); });
        return sequence;
    }
    template <class Visitor>
    void for_each_row(tensors<Scalar>& steps, Visitor&& visit) const {
        auto const time = static_cast<extent>(steps.size()), width = steps[0].dims[1];
        for (extent t = 0; t < time; ++t)
            for (extent n = 0; n < batch_; ++n)
                visit((is_batch_first_ ? n * time + t : t * batch_ + n) * width,
                      steps[static_cast<std::size_t>(t)].data.begin() + n * width, width);
    }

    dense_call<Scalar> const& call_;
    recurrent_cell_kernel<Scalar> const& cell_;
    tensor_view<Scalar> x_;
    std::size_t directions_, runs_;
    extent batch_, hidden_;
    bool is_batch_first_;
    /// The operand, then what each layer passes to the next, by layer and time.
    std::vector<tensors<Scalar>> sequences_;
    /// The states before each step, and after the last, by run and step of the run.
    std::vector<std::vector<tensors<Scalar>>> states_;
};

/// The backward pass runs the forward pass again.
template <class Scalar>
operator_kernel<Scalar> recurrent_kernel(recurrent_cell_kernel<Scalar> cell) {
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) {
                return recurrence<Scalar>(call, cell, x).results();
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return recurrence<Scalar>(call, cell, x).backward(g);
            }};
}

/// *Precondition:* the table has the cells' kernels.
template <class Scalar>
void add_recurrent_kernels(kernel_table<Scalar>& table) {
    table["rnn_tanh"] = recurrent_kernel<Scalar>({table.at("rnn_tanh_cell"), 1, false});
    table["rnn_relu"] = recurrent_kernel<Scalar>({table.at("rnn_relu_cell"), 1, false});
    table["lstm"] = recurrent_kernel<Scalar>({table.at("lstm_cell"), 2, false});
    table["gru"] = recurrent_kernel<Scalar>({table.at("gru_cell"), 1, true});
}

} // namespace heddle::detail
