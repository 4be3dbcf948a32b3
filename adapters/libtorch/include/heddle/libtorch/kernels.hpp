// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs operators by libtorch, on any device that it knows.
#pragma once

#include <heddle/libtorch/detail/layer_kernels.hpp>

#include <c10/core/GradMode.h>
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

} // namespace detail

/// Holds kernels on `at::Tensor` by the kind of an operator. A kind without a kernel is computed from its rule if the
/// rule is the sum of products of all operands.
///
/// Tensors stay on the operands' device. Numbers of results, whole numbers and truth values among them, are of the type
/// of the first floating-point operand; without one, of `numbers`, which also says where sources are. Operands that
/// hold places may be of an integer type.
///
/// Kernels enqueue work and do not wait for it, except that `grouped_mm` reads on the host where runs end, and that a
/// part with scattered positions sends them to the device. Places out of range are errors of libtorch where all places
/// are held, and nothing elsewhere. Results may share memory with operands.
///
/// *Throws* `input_error`, naming the operator, for an operator without a kernel, for tensors of wrong shapes, and for
/// errors of libtorch.
/// *Thread safety.* Const calls may be made from several threads at once.
class kernels {
public:
    using tensor_span = std::span<at::Tensor const* const>;

    explicit kernels(at::TensorOptions numbers = at::kFloat) : numbers_(numbers) {
        detail::add_product_kernels(table_);
        detail::add_functions(table_);
        detail::add_broadcast_kernels(table_);
        detail::add_random_kernels(table_, numbers);
        detail::add_norm_kernels(table_);
        detail::add_reduction_kernels(table_);
        detail::add_loss_kernels(table_);
        detail::add_place_kernels(table_);
        detail::add_lookup_kernels(table_);
        detail::add_routing_kernels(table_);
        detail::add_window_kernels(table_);
        detail::add_attention_kernels(table_);
        detail::add_recurrent_kernels(table_);
    }

    /// Adds a kernel of the user's own, or replaces one.
    void set(std::string kind, operator_kernel kernel) { table_.insert_or_assign(std::move(kind), std::move(kernel)); }

    [[nodiscard]] bool has_kernel(std::string_view kind) const { return table_.contains(kind); }
    [[nodiscard]] bool can_run(kernel_call const& call) const { return lookup(call) != nullptr; }

    [[nodiscard]] tensor_list forward(joined_call const& call, tensor_span operands) const {
        at::NoGradGuard const no_graph;
        auto const& kernel = find(call);
        return detail::checked(call, [&] { return run(call, kernel, operands_of(call, operands)); });
    }

    /// *Precondition:* a result may be null if its kernel does not read it.
    [[nodiscard]] gradient_list backward(joined_call const& call, tensor_span operands, tensor_span results,
                                         tensor_span cotangents) const {
        at::NoGradGuard const no_graph;
        auto const& kernel = find(call);
        return detail::checked(call, [&] {
            auto const x = operands_of(call, operands);
            tensor_list y, g;
            for (auto const* r : results) y.push_back(r ? *r : at::Tensor());
            for (std::size_t r = 0; r < cotangents.size(); ++r)
                g.push_back(cotangents[r] ? *cotangents[r] : at::zeros(call.result_shape(r), options_for(x)));
            if (kernel.backward) return kernel.backward(call, x, y, g);
            return detail::differentiate(
                {[&](joined_call const& again, tensor_list const& leaves) { return run(again, kernel, leaves); }}, call,
                x, g);
        });
    }

private:
    [[nodiscard]] at::TensorOptions options_for(tensor_list const& x) const {
        for (auto const& t : x)
            if (t.is_floating_point()) return t.options();
        return x.empty() ? numbers_ : numbers_.device(x[0].device());
    }
    [[nodiscard]] tensor_list run(joined_call const& call, operator_kernel const& kernel, tensor_list const& x) const {
        auto y = kernel.forward(call, x);
        auto const options = options_for(x);
        if (y.size() != call.results.size()) call.fail("has another number of results than its rule");
        for (std::size_t r = 0; r < y.size(); ++r) {
            if (y[r].sizes() != call.result_shape(r))
                call.fail("result " + std::to_string(r) + " is not of the shape that its rule states");
            y[r] = y[r].to(options);
        }
        return y;
    }
    [[nodiscard]] static tensor_list operands_of(kernel_call const& call, tensor_span operands) {
        if (operands.size() != call.operands.size()) call.fail("has another number of operands than its rule");
        tensor_list x;
        for (std::size_t k = 0; k < operands.size(); ++k) {
            if (operands[k]->sizes() != call.operand_shape(k))
                call.fail("operand " + std::to_string(k) + " is not of the shape that is held of it");
            x.push_back(*operands[k]);
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

    at::TensorOptions numbers_;
    detail::kernel_table table_;
};

} // namespace heddle::libtorch
