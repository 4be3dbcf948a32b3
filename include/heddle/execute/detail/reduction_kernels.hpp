// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels of reductions that are no sums; a rank holds their rows whole.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/detail/kernel_table.hpp>

#include <limits>

namespace heddle::detail {

/// Returns, in order, the elements of each row from which a reduction makes one number. The attribute `dim` lists the
/// dimensions.
[[nodiscard]] inline std::vector<std::vector<extent>> reduced_rows(kernel_call const& call, tensor_shape const& dims) {
    auto const over = call.numbers("dim");
    std::vector<std::size_t> row{0};
    std::size_t rows = 1;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        bool const reduced = algorithm::find(over, static_cast<double>(d)) != over.end();
        auto const size = static_cast<std::size_t>(dims[d]);
        std::vector<std::size_t> next;
        for (auto r : row)
            for (std::size_t p = 0; p < size; ++p) next.push_back(reduced ? r : r * size + p);
        row = std::move(next);
        if (!reduced) rows *= size;
    }
    std::vector<std::vector<extent>> elements(rows);
    for (std::size_t n = 0; n < row.size(); ++n) elements[row[n]].push_back(static_cast<extent>(n));
    return elements;
}

/// Computes `value(row)` of a row's elements, with the derivative `derivative(row, y, k)` in its element `k`.
template <class Scalar, class Value, class Derivative>
operator_kernel<Scalar> row_kernel(Value value, Derivative derivative) {
    auto const gather = [](dense_tensor<Scalar> const& x, std::vector<extent> const& row) {
        std::vector<Scalar> values;
        for (auto n : row) values.push_back(x[n]);
        return values;
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                auto const rows = reduced_rows(call, x[0]->dims);
                for (std::size_t r = 0; r < rows.size(); ++r) y.data[r] = value(call, gather(*x[0], rows[r]));
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                auto const rows = reduced_rows(call, x[0]->dims);
                for (std::size_t r = 0; r < rows.size(); ++r) {
                    auto const row = gather(*x[0], rows[r]);
                    for (std::size_t k = 0; k < row.size(); ++k)
                        dx[rows[r][k]] = g[0]->data[r] * derivative(call, row, y[0]->data[r], k);
                }
                return only(std::move(dx));
            }};
}

/// Finds the largest or smallest element; equal elements have equal parts of the derivative.
template <class Scalar, class Compare>
operator_kernel<Scalar> extreme_kernel(Compare before) {
    using row = std::vector<Scalar>;
    return row_kernel<Scalar>([=](kernel_call const&, row const& x) { return *algorithm::min_element(x, before); },
                              [](kernel_call const&, row const& x, Scalar y, std::size_t k) {
                                  return x[k] == y ? 1 / static_cast<Scalar>(algorithm::count(x, y)) : Scalar(0);
                              });
}

template <class Scalar>
Scalar mean_of(std::vector<Scalar> const& x) {
    Scalar sum = 0;
    for (auto e : x) sum += e;
    return sum / static_cast<Scalar>(x.size());
}
template <class Scalar>
Scalar variance_of(kernel_call const& call, std::vector<Scalar> const& x) {
    Scalar const mean = mean_of(x);
    Scalar sum = 0;
    for (auto e : x) sum += (e - mean) * (e - mean);
    return sum / (static_cast<Scalar>(x.size()) - static_cast<Scalar>(call.number("correction", 1)));
}

/// Joins two kernels that each have one result, of the same operand.
template <class Scalar>
operator_kernel<Scalar> side_by_side(operator_kernel<Scalar> const& first, operator_kernel<Scalar> const& second) {
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) {
                auto y = first.forward(call, x);
                y.push_back(second.forward(call, x).front());
                return y;
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                auto dx = first.backward(call, x, y.first(1), g.first(1));
                *dx.front() += *second.backward(call, x, y.subspan(1), g.subspan(1)).front();
                return dx;
            }};
}

/// Computes running sums along a dimension; running sums backwards are the adjoint.
template <class Scalar>
dense_tensor<Scalar> accumulated(dense_tensor<Scalar> x, std::size_t axis, bool backwards) {
    axis_view const view(x.dims, axis);
    view.for_each_line([&](extent first) {
        for (extent k = 1; k < view.size; ++k) {
            extent const at = backwards ? view.size - 1 - k : k;
            x[first + at * view.inner] += x[first + (backwards ? at + 1 : at - 1) * view.inner];
        }
    });
    return x;
}

template <class Scalar>
void add_reduction_kernels(kernel_table<Scalar>& table) {
    using row = std::vector<Scalar>;
    table["amax"] = extreme_kernel<Scalar>(std::ranges::greater{});
    table["amin"] = extreme_kernel<Scalar>(std::ranges::less{});
    auto const product_but = [](row const& x, std::size_t but) {
        Scalar product = 1;
        for (std::size_t k = 0; k < x.size(); ++k)
            if (k != but) product *= x[k];
        return product;
    };
    table["prod"] =
        row_kernel<Scalar>([=](kernel_call const&, row const& x) { return product_but(x, x.size()); },
                           [=](kernel_call const&, row const& x, Scalar, std::size_t k) { return product_but(x, k); });
    table["logsumexp"] = row_kernel<Scalar>(
        [](kernel_call const&, row const& x) {
            Scalar const most = *algorithm::max_element(x);
            Scalar sum = 0;
            for (auto e : x) sum += std::exp(e - most);
            return most + std::log(sum);
        },
        [](kernel_call const&, row const& x, Scalar y, std::size_t k) { return std::exp(x[k] - y); });
    auto const of_variance = [](kernel_call const& call, row const& x, std::size_t k) {
        return 2 * (x[k] - mean_of(x)) /
               (static_cast<Scalar>(x.size()) - static_cast<Scalar>(call.number("correction", 1)));
    };
    table["var"] = row_kernel<Scalar>(
        [](kernel_call const& call, row const& x) { return variance_of(call, x); },
        [=](kernel_call const& call, row const& x, Scalar, std::size_t k) { return of_variance(call, x, k); });
    table["std"] =
        row_kernel<Scalar>([](kernel_call const& call, row const& x) { return std::sqrt(variance_of(call, x)); },
                           [=](kernel_call const& call, row const& x, Scalar y, std::size_t k) {
                               return of_variance(call, x, k) / (2 * y);
                           });
    auto const mean = row_kernel<Scalar>(
        [](kernel_call const&, row const& x) { return mean_of(x); },
        [](kernel_call const&, row const& x, Scalar, std::size_t) { return 1 / static_cast<Scalar>(x.size()); });
    for (std::string const spread : {"var", "std"}) table[spread + "_mean"] = side_by_side<Scalar>(table[spread], mean);
    table["norm"] = row_kernel<Scalar>(
        [](kernel_call const&, row const& x) {
            Scalar sum = 0;
            for (auto e : x) sum += e * e;
            return std::sqrt(sum);
        },
        [](kernel_call const&, row const& x, Scalar y, std::size_t k) { return y == 0 ? Scalar(0) : x[k] / y; });
    table["cumsum"] = {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                           return {accumulated(*x[0], axis_of(call), false)};
                       },
                       [](kernel_call const& call, tensor_view<Scalar>, tensor_view<Scalar>, tensor_view<Scalar> g) {
                           return only(accumulated(*g[0], axis_of(call), true));
                       }};
}

} // namespace heddle::detail
