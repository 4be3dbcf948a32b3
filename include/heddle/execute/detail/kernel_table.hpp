// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The table of kernels, and what several of them need.
#pragma once

#include <heddle/execute/detail/contraction.hpp>

#include <cmath>
#include <concepts>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace heddle::detail {

template <class Scalar>
using dense_call = tensor_call<dense_tensor<Scalar>>;

template <class Scalar>
struct operator_kernel {
    std::function<tensors<Scalar>(dense_call<Scalar> const&, tensor_view<Scalar>)> forward;
    /// No cotangent is null here.
    std::function<gradients<Scalar>(dense_call<Scalar> const&, tensor_view<Scalar>, tensor_view<Scalar>,
                                    tensor_view<Scalar>)>
        backward;
};
template <class Scalar>
using kernel_table = std::map<std::string, operator_kernel<Scalar>, std::less<>>;

/// Replaces this rank's numbers, one per row, by those of all ranks together, if a call is joined to others.
template <class Scalar>
void combine(dense_call<Scalar> const& call, std::size_t which, reduction how, std::vector<double>& rows) {
    if (!call.combine) return;
    dense_tensor<Scalar> joined(tensor_shape{static_cast<extent>(rows.size())});
    std::ranges::transform(rows, joined.data.begin(), [](double x) { return static_cast<Scalar>(x); });
    call.combine(which, how, joined);
    algorithm::copy(joined.data, rows.begin());
}

/// Returns the number in the whole tensor of every element of a part.
[[nodiscard]] inline std::vector<extent> whole_numbers(tensor_shape const& whole, held_part const& part) {
    std::vector<extent> numbers{0};
    for (std::size_t d = 0; d < whole.size(); ++d) {
        std::vector<extent> next;
        for (extent n : numbers)
            if (part[d])
                for (extent p : *part[d]) next.push_back(n * whole[d] + p);
            else
                for (extent p = 0; p < whole[d]; ++p) next.push_back(n * whole[d] + p);
        numbers = std::move(next);
    }
    return numbers;
}

/// A view of a tensor as `outer` times `size` times `inner` elements around one or several of its dimensions.
struct axis_view {
    extent outer = 1, size = 1, inner = 1;

    axis_view(tensor_shape const& dims, std::size_t first, std::size_t count = 1) {
        for (std::size_t d = 0; d < dims.size(); ++d) (d < first ? outer : d < first + count ? size : inner) *= dims[d];
    }
    [[nodiscard]] extent lines() const { return outer * inner; }
    /// Calls `visit` with the number of the first element of each line and, if it takes two arguments, the number of
    /// the line. The next elements of a line are `inner` apart.
    template <class Visitor>
    void for_each_line(Visitor&& visit) const {
        for (extent o = 0; o < outer; ++o)
            for (extent i = 0; i < inner; ++i) {
                if constexpr (std::invocable<Visitor&, extent, extent>) visit(o * size * inner + i, o * inner + i);
                else visit(o * size * inner + i);
            }
    }
};

/// Returns the attribute `dim`, or the dimension that the rule blocks or gives statistics.
[[nodiscard]] inline std::size_t axis_of(kernel_call const& call) {
    if (call.has("dim")) return static_cast<std::size_t>(call.number("dim", 0));
    auto const& access = call.rule->results[0];
    for (std::size_t d = 0; d < access.size(); ++d)
        if (!access[d].empty())
            if (auto const& index = call.rule->indices[access[d][0]];
                index.kind == index_kind::blocked || index.forward_statistics > 0)
                return d;
    return 0;
}

template <class Scalar>
gradients<Scalar> only(dense_tensor<Scalar> first, std::size_t operands = 1) {
    gradients<Scalar> result(operands);
    result[0] = std::move(first);
    return result;
}

/// Returns the same elements in another shape.
template <class Scalar>
dense_tensor<Scalar> reshaped(dense_tensor<Scalar> const& x, tensor_shape dims) {
    return dense_tensor<Scalar>(std::move(dims), x.data);
}

} // namespace heddle::detail
