// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs operators by libtorch, on any device that it knows.
#pragma once

#include <heddle/libtorch/detail/layer_kernels.hpp>
#include <heddle/libtorch/tensor.hpp>

#include <c10/util/Exception.h>

namespace heddle::libtorch {

namespace detail {

/// Says as an `input_error` what libtorch throws.
template <class Function>
[[nodiscard]] auto checked(kernel_call const& call, Function&& f) {
    try {
        return f();
    } catch (c10::Error const& e) { call.fail(e.what_without_backtrace()); }
}

/// Lets kernels take operands of 16 bits on a GPU whose results libtorch computes in float and rounds once.
inline void take_16_bits(kernel_table& table) {
    for (char const* kind : {"linear",  "matmul",
                             "mm",      "bmm",
                             "mv",      "dot",
                             "einsum",  "transpose",
                             "permute", "t",
                             "getattr", "expand",
                             "add",     "sub",
                             "mul",     "relu",
                             "gelu",    "dropout",
                             "conv1d",  "conv2d",
                             "conv3d",  "scaled_dot_product_attention"})
        table.at(kind).takes_16_bits = true;
}

} // namespace detail

/// Holds kernels on tensors of libtorch by the kind of an operator. A kind without a kernel is computed from its rule
/// if the rule is the sum of products of all operands. It models `kernel_backend`.
///
/// Results are on the operands' device, those of sources on that of the thread's `device_scope`. Kernels enqueue work
/// and do not wait for it, except that `grouped_mm` reads on the host where runs end, and that a part with scattered
/// positions sends them to the device. Places out of range are errors of libtorch where all places are held, and
/// nothing elsewhere. Results may share memory with operands, until one of them is changed. If `Scalar` has 16 bits,
/// each operator computes in float, and what it makes is rounded; on a GPU attention rounds its scores too, and its
/// weights.
///
/// *Throws* `input_error`, naming the operator, for an operator without a kernel, for tensors of wrong shapes, and for
/// errors of libtorch.
/// *Thread safety.* Const calls may be made from several threads at once.
template <class Scalar>
class kernels {
public:
    using tensor = libtorch::tensor<Scalar>;
    using tensor_span = std::span<tensor const* const>;

    kernels() {
        detail::add_product_kernels(table_);
        detail::add_functions(table_);
        detail::add_broadcast_kernels(table_);
        detail::add_random_kernels(table_);
        detail::add_norm_kernels(table_);
        detail::add_reduction_kernels(table_);
        detail::add_loss_kernels(table_);
        detail::add_place_kernels(table_);
        detail::add_lookup_kernels(table_);
        detail::add_routing_kernels(table_);
        detail::add_window_kernels(table_);
        detail::add_attention_kernels(table_);
        detail::add_recurrent_kernels(table_);
        detail::take_16_bits(table_);
    }

    /// Adds a kernel of the user's own, or replaces one.
    void set(std::string kind, operator_kernel kernel) { table_.insert_or_assign(std::move(kind), std::move(kernel)); }

    [[nodiscard]] bool has_kernel(std::string_view kind) const { return table_.contains(kind); }
    [[nodiscard]] bool can_run(kernel_call const& call) const { return lookup(call) != nullptr; }

    [[nodiscard]] std::vector<tensor> forward(tensor_call<tensor> const& given, tensor_span operands) const {
        at::NoGradGuard const no_graph;
        auto const call = joined(given);
        auto const& kernel = find(call);
        return detail::checked(call, [&] {
            std::vector<tensor> results;
            auto const made = run(call, kernel, operands_of(call, kernel, operands));
            for (std::size_t r = 0; r < made.size(); ++r) results.emplace_back(made[r], type_of(call, r));
            return results;
        });
    }

    /// *Precondition:* a result may be null if its kernel does not read it.
    [[nodiscard]] std::vector<std::optional<tensor>> backward(tensor_call<tensor> const& given, tensor_span operands,
                                                              tensor_span results, tensor_span cotangents) const {
        at::NoGradGuard const no_graph;
        auto const call = joined(given);
        auto const& kernel = find(call);
        return detail::checked(call, [&] {
            auto const x = operands_of(call, kernel, operands);
            tensor_list y, g;
            for (auto const* r : results) y.push_back(r ? computed_with(*r, kernel) : at::Tensor());
            for (std::size_t r = 0; r < cotangents.size(); ++r)
                g.push_back(cotangents[r] ? computed_with(*cotangents[r], kernel)
                                          : at::zeros(call.result_shape(r), options_for(x)));
            auto const gradients =
                kernel.backward ? kernel.backward(call, x, y, g)
                                : detail::differentiate({[&](joined_call const& again, tensor_list const& leaves) {
                                                            return run(again, kernel, leaves);
                                                        }},
                                                        call, x, g);
            std::vector<std::optional<tensor>> given_back;
            for (auto const& d : gradients) given_back.push_back(d ? std::optional(tensor(*d)) : std::nullopt);
            return given_back;
        });
    }

private:
    using wide = wide_of<tensor>;

    [[nodiscard]] static at::Tensor computed_with(tensor const& x, operator_kernel const& kernel) {
        return kernel.takes_16_bits && x.value().is_cuda() ? x.value() : x.value().to(wide::type);
    }
    /// A call that was made by hand has results of floating-point numbers.
    [[nodiscard]] static element_type type_of(kernel_call const& call, std::size_t result) {
        return result < call.result_types.size() ? call.result_types[result] : element_type::float32;
    }
    [[nodiscard]] static joined_call joined(tensor_call<tensor> const& call) {
        joined_call result{call};
        if (call.combine)
            result.combine_rows = [&call](std::size_t which, reduction how, at::Tensor const& mine) {
                wide rows(mine);
                call.combine(which, how, rows);
                return rows.value();
            };
        return result;
    }
    [[nodiscard]] static at::TensorOptions options_for(tensor_list const& x) {
        return x.empty() ? wide::options() : x.front().options();
    }
    [[nodiscard]] static tensor_list run(joined_call const& call, operator_kernel const& kernel, tensor_list const& x) {
        auto y = kernel.forward(call, x);
        if (y.size() != call.results.size()) call.fail("has another number of results than its rule");
        for (std::size_t r = 0; r < y.size(); ++r) {
            if (y[r].sizes() != call.result_shape(r))
                call.fail("result " + std::to_string(r) + " is not of the shape that its rule states");
            y[r] = y[r].to(options_for(x));
        }
        return y;
    }
    [[nodiscard]] static tensor_list operands_of(kernel_call const& call, operator_kernel const& kernel,
                                                 tensor_span operands) {
        if (operands.size() != call.operands.size()) call.fail("has another number of operands than its rule");
        tensor_list x;
        for (std::size_t k = 0; k < operands.size(); ++k) {
            x.push_back(computed_with(*operands[k], kernel));
            if (x.back().sizes() != call.operand_shape(k))
                call.fail("operand " + std::to_string(k) + " is not of the shape that is held of it");
        }
        return x;
    }

    /// Returns null if there is none.
    [[nodiscard]] operator_kernel const* lookup(kernel_call const& call) const {
        if (!call.flag("unknown_arguments"))
            if (auto const found = table_.find(call.kind); found != table_.end()) return &found->second;
        return heddle::detail::is_multilinear(*call.rule) ? &table_.find("einsum")->second : nullptr;
    }
    [[nodiscard]] operator_kernel const& find(kernel_call const& call) const {
        if (auto const* found = lookup(call)) return *found;
        call.fail("no kernel computes '" + std::string(call.kind) + "'" +
                  (table_.contains(call.kind) ? " with these arguments" : ""));
    }

    detail::kernel_table table_;
};

static_assert(kernel_backend<kernels<float>, float> && kernel_backend<kernels<double>, double>);
static_assert(kernel_backend<kernels<c10::BFloat16>, c10::BFloat16> && kernel_backend<kernels<c10::Half>, c10::Half>);

} // namespace heddle::libtorch
