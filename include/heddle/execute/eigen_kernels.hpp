// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The reference kernels: every operator of the catalogue on dense tensors, products by Eigen.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/attention_kernels.hpp>
#include <heddle/execute/detail/cell_kernels.hpp>
#include <heddle/execute/detail/expert_kernels.hpp>
#include <heddle/execute/detail/linear_kernels.hpp>
#include <heddle/execute/detail/lookup_kernels.hpp>
#include <heddle/execute/detail/loss_kernels.hpp>
#include <heddle/execute/detail/norm_kernels.hpp>
#include <heddle/execute/detail/place_kernels.hpp>
#include <heddle/execute/detail/pointwise_kernels.hpp>
#include <heddle/execute/detail/pool_kernels.hpp>
#include <heddle/execute/detail/recurrent_kernels.hpp>
#include <heddle/execute/detail/reduction_kernels.hpp>
#include <heddle/execute/detail/routing_kernels.hpp>
#include <heddle/execute/detail/source_kernels.hpp>
#include <heddle/execute/detail/window_kernels.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Holds kernels by the kind of an operator. A kind without a kernel is computed from its rule if the rule is the sum
/// of products of all operands, as an einsum is.
///
/// It is made to be right, not fast. It models `kernel_backend`.
template <class Scalar>
class eigen_kernels {
public:
    using tensor = dense_tensor<Scalar>;
    using tensor_span = std::span<tensor const* const>;

    eigen_kernels();

    /// A forward and a backward function, called as those of a backend are, but never with a null cotangent.
    using kernel = detail::operator_kernel<Scalar>;

    /// Adds a kernel of the user's own, which goes before the library's.
    void set(std::string kind, kernel k) { own_.insert_or_assign(std::move(kind), std::move(k)); }
    /// Returns the library's kernel of a kind, to be set for another kind too. *Throws* `input_error` if there is none.
    [[nodiscard]] kernel const& library_kernel(std::string_view kind) const {
        auto const found = table_.find(kind);
        if (found == table_.end()) throw input_error("", "no kernel computes '" + std::string(kind) + "'");
        return found->second;
    }

    /// Returns the kinds of which the library has kernels.
    [[nodiscard]] std::vector<std::string> library_kinds() const {
        std::vector<std::string> kinds;
        for (auto const& [kind, k] : table_) kinds.push_back(kind);
        return kinds;
    }

    [[nodiscard]] bool can_run(kernel_call const& call) const { return lookup(call) != nullptr; }

    [[nodiscard]] std::vector<tensor> forward(tensor_call<tensor> const& call, tensor_span operands) const {
        check_operands(call, operands);
        return find(call).forward(call, operands);
    }
    [[nodiscard]] std::vector<std::optional<tensor>> backward(tensor_call<tensor> const& call, tensor_span operands,
                                                              tensor_span results, tensor_span cotangents) const {
        check_operands(call, operands);
        std::vector<tensor> zeros;
        zeros.reserve(cotangents.size());
        std::vector<tensor const*> complete(cotangents.begin(), cotangents.end());
        for (std::size_t r = 0; r < complete.size(); ++r)
            if (!complete[r]) complete[r] = &zeros.emplace_back(call.result_shape(r));
        return find(call).backward(call, operands, results, complete);
    }

private:
    static void check_operands(kernel_call const& call, tensor_span operands) {
        if (operands.size() != call.operands.size()) call.fail("has another number of operands than its rule");
        for (std::size_t k = 0; k < operands.size(); ++k)
            if (operands[k]->dims != call.operand_shape(k))
                call.fail("operand " + std::to_string(k) + " is not of the shape that is held of it");
    }

    /// Returns null if there is none.
    [[nodiscard]] kernel const* lookup(kernel_call const& call) const {
        if (auto const found = own_.find(call.kind); found != own_.end()) return &found->second;
        if (!call.flag("unknown_arguments"))
            if (auto const found = table_.find(call.kind); found != table_.end()) return &found->second;
        return detail::is_multilinear(*call.rule) ? &table_.find("einsum")->second : nullptr;
    }
    [[nodiscard]] kernel const& find(kernel_call const& call) const {
        if (auto const* found = lookup(call)) return *found;
        call.fail("no kernel computes '" + std::string(call.kind) + "'" +
                  (table_.contains(call.kind) ? " with these arguments" : ""));
    }

    detail::kernel_table<Scalar> table_, own_;
};

// It is outside the class, so that heddle::compiled spares a program all kernels.
template <class Scalar>
eigen_kernels<Scalar>::eigen_kernels() {
    detail::add_linear_kernels(table_);
    detail::add_pointwise_kernels(table_);
    detail::add_norm_kernels(table_);
    detail::add_reduction_kernels(table_);
    detail::add_place_kernels(table_);
    detail::add_cell_kernels(table_);
    detail::add_recurrent_kernels(table_);
    detail::add_loss_kernels(table_);
    detail::add_window_kernels(table_);
    detail::add_pool_kernels(table_);
    detail::add_attention_kernels(table_);
    detail::add_lookup_kernels(table_);
    detail::add_routing_kernels(table_);
    table_["routed_experts"] = detail::routed_experts_kernel<Scalar>(table_);
    detail::add_source_kernels(table_);
}

#if defined(HEDDLE_COMPILED)
HEDDLE_TEMPLATE class eigen_kernels<float>;
HEDDLE_TEMPLATE class eigen_kernels<double>;
#endif

static_assert(kernel_backend<eigen_kernels<float>, float> && kernel_backend<eigen_kernels<double>, double>);

} // namespace heddle
