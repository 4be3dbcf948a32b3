// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sums of products of tensors of libtorch, by the indices of a call.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/detail/contraction.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/program/index_rule.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::libtorch::detail {

[[nodiscard]] inline std::vector<std::uint16_t> indices_of(indexed_access const& access) {
    std::vector<std::uint16_t> all;
    for (auto const& dimension : access) all.insert(all.end(), dimension.begin(), dimension.end());
    return all;
}
[[nodiscard]] inline bool has_repeated_index(indexed_access const& access) {
    auto all = indices_of(access);
    algorithm::sort(all);
    return std::adjacent_find(all.begin(), all.end()) != all.end();
}

/// Computes sums of products of tensors over the indices of one call.
class contraction {
public:
    using factor_list = std::vector<std::pair<at::Tensor, indexed_access const*>>;

    explicit contraction(kernel_call const& call) : extents_(heddle::detail::held_extents(call)) {}

    /// Computes result[access] = the sum over all other indices of the product of the factors. An index that only the
    /// result has repeats. *Precondition:* no index is twice in the access.
    [[nodiscard]] at::Tensor operator()(factor_list const& factors, indexed_access const& access,
                                        tensor_shape const& dims) const {
        if (factors.size() == 1 && !has_repeated_index(*factors[0].second))
            return of_one(factors[0].first, *factors[0].second, access, dims);
        if (factors.size() == 2 && !has_repeated_index(*factors[0].second) && !has_repeated_index(*factors[1].second))
            return of_two(factors[0], factors[1], access, dims);
        std::map<std::uint16_t, char> letters;
        std::string text;
        std::vector<at::Tensor> views;
        for (auto const& [tensor, of] : factors) {
            text += views.empty() ? "" : ",";
            for (auto const& dimension : *of)
                for (auto i : dimension) {
                    constexpr std::string_view alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
                    if (letters.size() == alphabet.size() && !letters.contains(i))
                        throw input_error("", "has more indices than libtorch's einsum takes");
                    text += letters.try_emplace(i, alphabet[letters.size()]).first->second;
                }
            views.push_back(by_index(tensor, *of));
        }
        text += "->";
        tensor_shape shape, expanded;
        for (auto const& dimension : access)
            for (auto i : dimension) {
                auto const letter = letters.find(i);
                if (letter != letters.end()) text += letter->second;
                shape.push_back(letter != letters.end() ? extents_[i] : 1);
                expanded.push_back(extents_[i]);
            }
        return at::einsum(text, views).reshape(shape).expand(expanded).reshape(dims);
    }

    /// Adds one more factor to the above, as a row to all rows of a product of two matrices where it is one.
    [[nodiscard]] at::Tensor operator()(factor_list const& factors, indexed_access const& access,
                                        tensor_shape const& dims, factor_list::value_type const& addend) const {
        if (factors.size() == 2 && !has_repeated_index(*factors[0].second) && !has_repeated_index(*factors[1].second))
            return of_two(factors[0], factors[1], access, dims, &addend);
        return (*this)(factors, access, dims) + (*this)({addend}, access, dims);
    }

    /// Returns a tensor with one dimension for each index.
    [[nodiscard]] at::Tensor by_index(at::Tensor const& x, indexed_access const& access) const {
        tensor_shape shape;
        for (auto const& dimension : access)
            for (auto i : dimension) shape.push_back(extents_[i]);
        return shaped(x, shape);
    }
    [[nodiscard]] extent size(std::uint16_t index) const { return extents_[index]; }

private:
    using index_list = std::vector<std::uint16_t>;

    /// Reshapes where that changes anything, since a call costs the host a microsecond.
    [[nodiscard]] static at::Tensor shaped(at::Tensor const& x, tensor_shape const& shape) {
        return x.sizes() == at::IntArrayRef(shape) ? x : x.reshape(shape);
    }
    [[nodiscard]] static bool has(index_list const& all, std::uint16_t i) {
        return algorithm::find(all, i) != all.end();
    }
    /// Returns the indices of a list that `test` holds for, in its order.
    template <class Test>
    [[nodiscard]] static index_list those(index_list const& all, Test const& test) {
        index_list result;
        for (auto i : all)
            if (test(i)) result.push_back(i);
        return result;
    }
    [[nodiscard]] static index_list joined(index_list all, index_list const& second, index_list const& third) {
        all.insert(all.end(), second.begin(), second.end());
        all.insert(all.end(), third.begin(), third.end());
        return all;
    }
    /// A tensor with one dimension for each of its indices.
    using indexed_tensor = std::pair<at::Tensor, index_list>;

    /// Returns a tensor of the indices that `is_kept`, summed over the others.
    template <class Test>
    [[nodiscard]] indexed_tensor summed(at::Tensor const& x, indexed_access const& of, Test const& is_kept) const {
        auto const all = indices_of(of);
        std::vector<extent> over;
        for (std::size_t n = 0; n < all.size(); ++n)
            if (!is_kept(all[n])) over.push_back(static_cast<extent>(n));
        auto const view = by_index(x, of);
        return {over.empty() ? view : view.sum(over), those(all, is_kept)};
    }
    /// Returns a tensor of these indices with one dimension for each wanted one, of one place where it is not held.
    [[nodiscard]] at::Tensor in_order(at::Tensor const& x, index_list const& held, index_list const& wanted) const {
        std::vector<extent> order;
        for (auto i : wanted)
            if (auto const at = algorithm::find(held, i); at != held.end()) order.push_back(at - held.begin());
        auto result = x.permute(order);
        for (std::size_t n = 0; n < wanted.size(); ++n)
            if (!has(held, wanted[n])) result = result.unsqueeze(static_cast<extent>(n));
        return result;
    }
    [[nodiscard]] tensor_shape shape_of(index_list const& indices) const {
        tensor_shape shape;
        for (auto i : indices) shape.push_back(extents_[i]);
        return shape;
    }
    [[nodiscard]] extent count(index_list const& indices) const {
        extent product = 1;
        for (auto i : indices) product *= extents_[i];
        return product;
    }
    /// Brings a tensor of these indices into the order of the result, where an index that it lacks repeats.
    [[nodiscard]] at::Tensor as_result(at::Tensor const& x, index_list const& held, index_list const& wanted,
                                       tensor_shape const& dims) const {
        auto const view = in_order(x, held, wanted);
        return (held.size() == wanted.size() ? view : view.expand(shape_of(wanted))).reshape(dims);
    }

    // What follows does the same for one factor and for two at less cost to the host than einsum.

    [[nodiscard]] at::Tensor of_one(at::Tensor const& x, indexed_access const& of, indexed_access const& access,
                                    tensor_shape const& dims) const {
        if (of == access) return shaped(x, dims);
        auto const wanted = indices_of(access);
        auto const [sum, held] = summed(x, of, [&](std::uint16_t i) { return has(wanted, i); });
        return as_result(sum, held, wanted, dims);
    }
    [[nodiscard]] at::Tensor of_two(factor_list::value_type const& one, factor_list::value_type const& other,
                                    indexed_access const& access, tensor_shape const& dims,
                                    factor_list::value_type const* addend = nullptr) const {
        auto const with_addend = [&](at::Tensor const& product) {
            return addend ? product + (*this)({*addend}, access, dims) : product;
        };
        auto const wanted = indices_of(access), mine = indices_of(*one.second), theirs = indices_of(*other.second);
        indexed_tensor const left = summed(one.first, *one.second,
                                           [&](auto i) { return has(wanted, i) || has(theirs, i); }),
                             right = summed(other.first, *other.second,
                                            [&](auto i) { return has(wanted, i) || has(mine, i); });
        auto const &x = left.first, &y = right.first;
        auto const &x_held = left.second, &y_held = right.second;
        auto const inner = those(x_held, [&](auto i) { return !has(wanted, i); });
        if (inner.empty()) {
            auto const all = those(wanted, [&](auto i) { return has(x_held, i) || has(y_held, i); });
            return with_addend(as_result(in_order(x, x_held, all) * in_order(y, y_held, all), all, wanted, dims));
        }
        auto const batch = those(x_held, [&](auto i) { return has(wanted, i) && has(y_held, i); }),
                   rows = those(x_held, [&](auto i) { return !has(y_held, i); }),
                   columns = those(y_held, [&](auto i) { return !has(x_held, i); });
        // As a matrix of these indices, or one for each place of the batch.
        auto const matrix = [&](at::Tensor const& t, index_list const& held, index_list const& first,
                                index_list const& second) {
            auto const order = joined(batch, first, second);
            auto const view = held == order ? t : in_order(t, held, order);
            return batch.empty() ? shaped(view, {count(first), count(second)})
                                 : shaped(view, {count(batch), count(first), count(second)});
        };
        auto const a = matrix(x, x_held, rows, inner), b = matrix(y, y_held, inner, columns);
        auto const order = joined(batch, rows, columns);
        if (addend && batch.empty() && order == wanted && indices_of(*addend->second) == columns)
            return shaped(at::addmm(shaped(addend->first, {count(columns)}), a, b), dims);
        auto const product = batch.empty() ? a.mm(b) : a.bmm(b);
        return with_addend(order == wanted ? shaped(product, dims)
                                           : as_result(shaped(product, shape_of(order)), order, wanted, dims));
    }

    std::vector<extent> extents_;
};

} // namespace heddle::libtorch::detail
