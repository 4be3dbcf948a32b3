// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels without operands: each element by its place in the whole tensor.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <cstdint>

namespace heddle::detail {

/// Element by element of `value(call, number in the whole tensor)`.
template <class Scalar, class Value>
operator_kernel<Scalar> source_kernel(Value value) {
    return {[=](kernel_call const& call, tensor_view<Scalar>) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const places = whole_numbers(call.whole_shape(call.rule->results[0]), call.results[0]);
                for (std::size_t n = 0; n < places.size(); ++n)
                    y.data[n] = static_cast<Scalar>(value(call, static_cast<std::uint64_t>(places[n])));
                return {std::move(y)};
            },
            [](kernel_call const&, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar>) {
                return gradients<Scalar>();
            }};
}

template <class Scalar>
void add_source_kernels(kernel_table<Scalar>& table) {
    table["full"] = source_kernel<Scalar>([](kernel_call const& c, std::uint64_t) { return c.number("value", 0); });
    table["arange"] = source_kernel<Scalar>([](kernel_call const& c, std::uint64_t n) {
        return c.number("start", 0) + c.number("step", 1) * static_cast<double>(n);
    });
    table["rand"] =
        source_kernel<Scalar>([](kernel_call const& c, std::uint64_t n) { return random_unit(c.random, n); });
    table["randn"] =
        source_kernel<Scalar>([](kernel_call const& c, std::uint64_t n) { return random_normal(c.random, n); });
}

} // namespace heddle::detail
