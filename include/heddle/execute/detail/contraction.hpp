// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sums of products over the indices of a rule, which every multilinear operator and its adjoints are.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/kernel.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace heddle::detail {

template <class Scalar>
using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using matrix_map = Eigen::Map<matrix<Scalar>>;
template <class Scalar>
using const_matrix_map = Eigen::Map<matrix<Scalar> const>;

/// Returns the values of each index that a rank holds, ascending; those of a split index come from any tensor that has
/// it.
///
/// A shard names one factor, on a mesh one for each axis, so what is held of a dimension is the product of what is held
/// of its indices. If nothing is held of a dimension, those of its indices of which nothing is held elsewhere are
/// empty.
[[nodiscard]] inline std::vector<std::vector<extent>> held_values(kernel_call const& call) {
    auto const& rule = *call.rule;
    std::vector<std::vector<extent>> values(rule.indices.size());
    std::vector<bool> known(values.size());
    auto const read_whole = [&](std::vector<indexed_access> const& accesses, std::vector<held_part> const& parts) {
        for (std::size_t k = 0; k < accesses.size(); ++k)
            for (std::size_t d = 0; d < accesses[k].size(); ++d)
                if (!parts[k][d])
                    for (auto i : accesses[k][d]) known[i] = true;
    };
    read_whole(rule.operands, call.operands);
    read_whole(rule.results, call.results);
    auto const is_whole = known;
    auto const read = [&](std::vector<indexed_access> const& accesses, std::vector<held_part> const& parts) {
        for (std::size_t k = 0; k < accesses.size(); ++k)
            for (std::size_t d = 0; d < accesses[k].size(); ++d) {
                if (!parts[k][d] || parts[k][d]->empty()) continue;
                extent low = 1;
                for (auto i = accesses[k][d].rbegin(); i != accesses[k][d].rend(); ++i) {
                    extent const size = rule.indices[*i].extent;
                    if (!known[*i]) {
                        known[*i] = true;
                        for (extent p : *parts[k][d]) values[*i].push_back(p / low % size);
                        algorithm::sort(values[*i]);
                        values[*i].erase(std::unique(values[*i].begin(), values[*i].end()), values[*i].end());
                    }
                    low *= size;
                }
            }
    };
    read(rule.operands, call.operands);
    read(rule.results, call.results);
    for (std::size_t i = 0; i < values.size(); ++i)
        if (is_whole[i])
            for (extent v = 0; v < rule.indices[i].extent; ++v) values[i].push_back(v);
    return values;
}

[[nodiscard]] inline std::vector<extent> held_extents(kernel_call const& call) {
    std::vector<extent> extents;
    for (auto const& values : held_values(call)) extents.push_back(static_cast<extent>(values.size()));
    return extents;
}

/// Calls `visit` for every point of a box, with the offset of the point for each list of strides.
template <std::size_t Count, class Visitor>
void for_each_point(std::vector<extent> const& box, std::array<std::vector<extent>, Count> const& strides,
                    Visitor&& visit) {
    if (algorithm::find(box, extent{0}) != box.end()) return;
    std::vector<extent> at(box.size(), 0);
    std::array<extent, Count> offset{};
    for (;;) {
        visit(offset);
        std::size_t d = box.size();
        for (; d-- > 0;) {
            for (std::size_t k = 0; k < Count; ++k) offset[k] += strides[k][d];
            if (++at[d] < box[d]) break;
            for (std::size_t k = 0; k < Count; ++k) offset[k] -= strides[k][d] * box[d];
            at[d] = 0;
        }
        if (d == static_cast<std::size_t>(-1)) return;
    }
}

/// A tensor whose dimensions are indices of a rule.
template <class Scalar>
struct indexed_operand {
    dense_tensor<Scalar> const* tensor = nullptr;
    indexed_access const* access = nullptr;
};

/// Computes sums of products of tensors over the indices of one call.
template <class Scalar>
class contraction {
public:
    explicit contraction(kernel_call const& call) : extents_(held_extents(call)) {}

    /// Computes result[access] = the sum over all other indices of the product of the factors. An index that only the
    /// result has repeats.
    [[nodiscard]] dense_tensor<Scalar> operator()(std::vector<indexed_operand<Scalar>> const& factors,
                                                  indexed_access const& access, tensor_shape dims) const {
        dense_tensor<Scalar> result(std::move(dims));
        std::vector<std::vector<extent>> strides;
        for (auto const& f : factors) strides.push_back(strides_of(*f.access));
        strides.push_back(strides_of(access));
        std::vector<std::size_t> used;
        for (std::size_t i = 0; i < extents_.size(); ++i)
            if (algorithm::any_of(strides, [&](auto const& s) { return s[i] != 0; })) {
                if (extents_[i] == 0) return result;
                if (extents_[i] > 1) used.push_back(i);
            }
        if (factors.size() == 2 && is_product(strides, used)) multiply(factors, strides, used, result);
        else if (factors.size() == 1) loop<1>(factors, strides, used, result);
        else if (factors.size() == 2) loop<2>(factors, strides, used, result);
        else loop_over_many(factors, strides, used, result);
        return result;
    }

private:
    /// Returns the stride of every index, which is zero for one that the access lacks.
    [[nodiscard]] std::vector<extent> strides_of(indexed_access const& access) const {
        std::vector<extent> strides(extents_.size());
        extent stride = 1;
        for (auto d = access.rbegin(); d != access.rend(); ++d)
            for (auto i = d->rbegin(); i != d->rend(); ++i) {
                strides[*i] += stride;
                stride *= extents_[*i];
            }
        return strides;
    }

    using stride_lists = std::vector<std::vector<extent>>;

    static std::vector<extent> pick(std::vector<extent> const& list, std::vector<std::size_t> const& which) {
        std::vector<extent> result;
        for (auto i : which) result.push_back(list[i]);
        return result;
    }

    /// Tells whether every index is in two or three of the three tensors: it counts rows, columns, summed or batched
    /// places.
    static bool is_product(stride_lists const& s, std::vector<std::size_t> const& used) {
        return algorithm::all_of(used, [&](auto i) { return (s[0][i] != 0) + (s[1][i] != 0) + (s[2][i] != 0) >= 2; });
    }

    void multiply(std::vector<indexed_operand<Scalar>> const& factors, stride_lists const& s,
                  std::vector<std::size_t> const& used, dense_tensor<Scalar>& result) const {
        std::vector<std::size_t> batch, rows, columns, summed;
        for (auto i : used) (s[0][i] == 0 ? columns : s[1][i] == 0 ? rows : s[2][i] == 0 ? summed : batch).push_back(i);
        auto const size = [&](std::vector<std::size_t> const& list) { return count_elements(pick(extents_, list)); };
        extent const b = size(batch), m = size(rows), n = size(columns), k = size(summed);
        auto const order = [](std::vector<std::size_t> first, std::vector<std::size_t> const& second,
                              std::vector<std::size_t> const& third) {
            first.insert(first.end(), second.begin(), second.end());
            first.insert(first.end(), third.begin(), third.end());
            return first;
        };
        auto const packed = [&](std::size_t f, std::vector<std::size_t> const& list) {
            std::vector<Scalar> data;
            data.reserve(static_cast<std::size_t>(size(list)));
            for_each_point<1>(pick(extents_, list), {pick(s[f], list)},
                              [&](auto const& at) { data.push_back((*factors[f].tensor)[at[0]]); });
            return data;
        };
        auto const left = packed(0, order(batch, rows, summed)), right = packed(1, order(batch, summed, columns));
        std::vector<Scalar> product(static_cast<std::size_t>(b * m * n));
        for (extent i = 0; i < b; ++i)
            matrix_map<Scalar>(product.data() + i * m * n, m, n).noalias() =
                const_matrix_map<Scalar>(left.data() + i * m * k, m, k) *
                const_matrix_map<Scalar>(right.data() + i * k * n, k, n);
        auto const to = order(batch, rows, columns);
        std::size_t from = 0;
        for_each_point<1>(pick(extents_, to), {pick(s[2], to)},
                          [&](auto const& at) { result[at[0]] += product[from++]; });
    }

    template <std::size_t Count>
    void loop(std::vector<indexed_operand<Scalar>> const& factors, stride_lists const& s,
              std::vector<std::size_t> const& used, dense_tensor<Scalar>& result) const {
        std::array<std::vector<extent>, Count + 1> strides;
        for (std::size_t f = 0; f <= Count; ++f) strides[f] = pick(s[f], used);
        for_each_point<Count + 1>(pick(extents_, used), strides, [&](auto const& at) {
            Scalar product = (*factors[0].tensor)[at[0]];
            for (std::size_t f = 1; f < Count; ++f) product *= (*factors[f].tensor)[at[f]];
            result[at[Count]] += product;
        });
    }

    void loop_over_many(std::vector<indexed_operand<Scalar>> const& factors, stride_lists const& s,
                        std::vector<std::size_t> const& used, dense_tensor<Scalar>& result) const {
        auto const box = pick(extents_, used);
        std::vector<Scalar> product(static_cast<std::size_t>(count_elements(box)), Scalar(1));
        for (std::size_t f = 0; f < factors.size(); ++f) {
            std::size_t n = 0;
            for_each_point<1>(box, {pick(s[f], used)},
                              [&](auto const& at) { product[n++] *= (*factors[f].tensor)[at[0]]; });
        }
        std::size_t n = 0;
        for_each_point<1>(box, {pick(s.back(), used)}, [&](auto const& at) { result[at[0]] += product[n++]; });
    }

    std::vector<extent> extents_;
};

template <class Scalar>
using tensors = std::vector<dense_tensor<Scalar>>;
template <class Scalar>
using tensor_view = std::span<dense_tensor<Scalar> const* const>;
template <class Scalar>
using gradients = std::vector<std::optional<dense_tensor<Scalar>>>;

/// Tells whether a rule alone says what its operator computes: one result, the sum of products of all operands.
[[nodiscard]] inline bool is_multilinear(index_rule const& rule) {
    std::size_t named = 0;
    for (auto const& term : rule.terms) named += term.size();
    return rule.results.size() == 1 && named == rule.operands.size() && named > 0 &&
           algorithm::none_of(rule.indices, [](auto const& i) { return i.name.starts_with('_'); });
}

/// Computes the sum of a rule's terms, each times a coefficient.
template <class Scalar>
tensors<Scalar> multilinear_forward(kernel_call const& call, tensor_view<Scalar> operands,
                                    std::vector<double> const& coefficients) {
    auto const& rule = *call.rule;
    if (!is_multilinear(rule))
        call.fail("its rule is not multilinear, so it does not tell what '" + std::string(call.kind) + "' computes");
    contraction<Scalar> const contract(call);
    dense_tensor<Scalar> result(call.result_shape(0));
    for (std::size_t t = 0; t < rule.terms.size(); ++t) {
        std::vector<indexed_operand<Scalar>> factors;
        for (auto k : rule.terms[t]) factors.push_back({operands[k], &rule.operands[k]});
        auto term = contract(factors, rule.results[0], result.dims);
        if (t < coefficients.size()) term *= static_cast<Scalar>(coefficients[t]);
        result += term;
    }
    return {std::move(result)};
}

template <class Scalar>
gradients<Scalar> multilinear_backward(kernel_call const& call, tensor_view<Scalar> operands,
                                       dense_tensor<Scalar> const& cotangent, std::vector<double> const& coefficients) {
    auto const& rule = *call.rule;
    contraction<Scalar> const contract(call);
    gradients<Scalar> result(operands.size());
    for (std::size_t t = 0; t < rule.terms.size(); ++t)
        for (auto k : rule.terms[t]) {
            std::vector<indexed_operand<Scalar>> factors{{&cotangent, &rule.results[0]}};
            for (auto other : rule.terms[t])
                if (other != k) factors.push_back({operands[other], &rule.operands[other]});
            result[k] = contract(factors, rule.operands[k], operands[k]->dims);
            if (t < coefficients.size()) *result[k] *= static_cast<Scalar>(coefficients[t]);
        }
    return result;
}

} // namespace heddle::detail
