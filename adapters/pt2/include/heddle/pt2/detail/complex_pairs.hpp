// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Operators on complex tensors, which in a program are pairs of numbers in a last dimension of their own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/aten_calls.hpp>
#include <heddle/program/call_recorder.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::pt2::detail {

/// A call that takes or gives complex tensors.
struct complex_call {
    std::string name, qualified;
    std::vector<aten_argument> arguments;
    /// That of the first tensor, without the dimension of the pairs.
    std::size_t rank = 0;
    /// Tells of each tensor among the arguments, in order, whether it is one of pairs.
    std::vector<bool> is_pair;
    /// The results as they are stored.
    std::vector<traced_call::result> results;
};

/// Adds the operators of such a call, one by one.
class pair_operators {
public:
    pair_operators(call_recorder& recorder, complex_call call) : recorder_(recorder), call_(std::move(call)) {
        for (auto const& a : call_.arguments) collect_tensors(a.value, operands_);
        all_pairs_ = algorithm::find(call_.is_pair, false) == call_.is_pair.end();
    }

    /// The results, or none where there is no rule for these arguments.
    std::optional<std::vector<std::optional<tensor_id>>> add() {
        if (!call_.qualified.starts_with("aten::") || call_.results.empty()) return {};
        auto const name = heddle::detail::plain_name(call_.qualified);
        constexpr std::array<std::string_view, 6> zeros{"zeros", "zeros_like", "new_zeros",
                                                        "empty", "empty_like", "new_empty"};
        if (algorithm::find(zeros, name) != zeros.end()) return plain();
        if (operands_.empty()) return {};
        constexpr std::array<std::string_view, 28> moved{"view",        "reshape",    "unsqueeze",
                                                         "squeeze",     "transpose",  "permute",
                                                         "flatten",     "expand",     "slice",
                                                         "select",      "index",      "cat",
                                                         "stack",       "clone",      "_to_copy",
                                                         "to",          "contiguous", "detach",
                                                         "alias",       "repeat",     "split",
                                                         "chunk",       "unbind",     "neg",
                                                         "roll",        "flip",       "split_with_sizes",
                                                         "index_select"};
        if (name == "view_as_real" || name == "view_as_complex") return one(operands_[0]);
        if (name == "real" || name == "imag") return one(part(operands_[0], name == "imag"));
        if (name == "complex" && operands_.size() == 2) return one(joined(operands_[0], operands_[1]));
        if (name == "polar" && operands_.size() == 2) return one(polar(operands_[0], operands_[1]));
        if (name == "conj" || name == "_conj" || name == "conj_physical") return one(conjugate(operands_[0]));
        if (name == "abs") return one(one_of("torch.sqrt", squared(operands_[0])));
        if (name == "exp") {
            auto const size = one_of("torch.exp", part(operands_[0], false));
            return one(polar(size, part(operands_[0], true)));
        }
        constexpr std::array<std::string_view, 4> products{"einsum", "mm", "bmm", "matmul"};
        if (algorithm::find(products, name) != products.end()) return contraction();
        if ((name == "sum" || name == "mean") && heddle::detail::value_of(call_.arguments, "dim")) return plain();
        if (name == "pad" || name == "constant_pad_nd") return padded();
        if (algorithm::find(moved, name) != moved.end() && all_pairs_but_places(name)) return plain();
        if (name == "add" || name == "sub") return all_pairs_ && operands_.size() == 2 ? plain() : none();
        if (name == "mul" || name == "div") return product(name);
        if (name.starts_with("_fft_")) return plain();
        if (name.starts_with("fft_")) return transform(name.substr(std::string_view("fft_").size()));
        return {};
    }

private:
    using result_ids = std::optional<std::vector<std::optional<tensor_id>>>;

    [[nodiscard]] static result_ids none() { return {}; }
    [[nodiscard]] static result_ids one(tensor_id id) { return std::vector<std::optional<tensor_id>>{id}; }

    [[nodiscard]] tensor_info info(tensor_id t) const { return recorder_.builder.tensor(t); }
    /// An index into the first tensor is of integers.
    [[nodiscard]] bool all_pairs_but_places(std::string_view name) const {
        if (name != "index" && name != "index_select") return all_pairs_;
        return call_.is_pair.front() && algorithm::count(call_.is_pair, true) == 1;
    }

    std::vector<tensor_id> call(std::string target, functional_call made, std::vector<traced_call::result> results) {
        traced_call traced;
        traced.name = call_.name + (count_ == 0 ? "" : "_" + std::to_string(count_));
        ++count_;
        traced.target = std::move(target);
        for (auto const& name : made.keyword_order) collect_tensors(made.keywords.at(name), traced.operands);
        traced.keywords = std::move(made.keywords);
        traced.results = std::move(results);
        return recorder_.add(std::move(traced));
    }
    tensor_id one_of(std::string target, tensor_id x) {
        functional_call made;
        made.add("input", {literal::tensor{x}});
        return call(std::move(target), std::move(made), {{info(x).shape, info(x).type}}).front();
    }
    tensor_id two(std::string target, tensor_id x, tensor_id y) {
        functional_call made;
        made.add("input", {literal::tensor{x}});
        made.add("other", {literal::tensor{y}});
        auto const &a = info(x).shape, &b = info(y).shape;
        tensor_shape result = a.size() < b.size() ? b : a;
        for (auto const& dims : {a, b})
            for (std::size_t d = dims.size(), r = result.size(); d > 0; --d, --r)
                if (dims[d - 1] != 1) result[r - 1] = dims[d - 1];
        return call(std::move(target), std::move(made), {{std::move(result), info(x).type}}).front();
    }
    /// The first or second number of each pair.
    tensor_id part(tensor_id x, bool second) {
        functional_call made;
        tensor_shape dims = info(x).shape;
        made.add("input", {literal::tensor{x}});
        made.add("index", heddle::detail::index_at(static_cast<std::int64_t>(dims.size()) - 1,
                                                   literal{std::int64_t{second ? 1 : 0}}));
        dims.pop_back();
        return call("operator.getitem", std::move(made), {{std::move(dims), info(x).type}}).front();
    }
    tensor_id joined(tensor_id re, tensor_id im) {
        functional_call made;
        made.add("tensors", {literal::list{{literal::tensor{re}}, {literal::tensor{im}}}});
        made.add("dim", {std::int64_t{-1}});
        tensor_shape dims = info(re).shape;
        dims.push_back(2);
        return call("torch.stack", std::move(made), {{std::move(dims), info(re).type}}).front();
    }

    tensor_id polar(tensor_id size, tensor_id angle) {
        auto const re = two("torch.mul", size, one_of("torch.cos", angle));
        return joined(re, two("torch.mul", size, one_of("torch.sin", angle)));
    }
    tensor_id conjugate(tensor_id x) {
        auto const re = part(x, false);
        return joined(re, one_of("torch.neg", part(x, true)));
    }
    /// The squares of what pairs are from zero.
    tensor_id squared(tensor_id x) {
        auto const re = one_of("torch.square", part(x, false));
        return two("torch.add", re, one_of("torch.square", part(x, true)));
    }

    /// A product of two tensors, of which one is of pairs at least, by that of their parts.
    result_ids contraction() {
        if (operands_.size() != 2) return {};
        auto const parts_of = [&](std::size_t k) {
            std::vector<tensor_id> parts{operands_[k]};
            if (call_.is_pair[k]) parts = {part(operands_[k], false), part(operands_[k], true)};
            return parts;
        };
        auto const left = parts_of(0), right = parts_of(1);
        auto dims = call_.results[0].shape;
        dims.pop_back();
        auto const made = [&](tensor_id x, tensor_id y) {
            auto arguments = call_.arguments;
            std::size_t count = 0;
            for (auto& a : arguments) put_tensors(a.value, {x, y}, count);
            auto product = functional_call_of(call_.qualified, std::move(arguments), call_.rank);
            auto const target = std::move(product.target);
            return call(target, std::move(product), {{dims, call_.results[0].type}}).front();
        };
        auto re = made(left[0], right[0]);
        if (left.size() == 1) return one(joined(re, made(left[0], right[1])));
        auto im = made(left[1], right[0]);
        if (right.size() == 1) return one(joined(re, im));
        re = two("torch.sub", re, made(left[1], right[1]));
        return one(joined(re, two("torch.add", im, made(left[0], right[1]))));
    }
    /// Puts tensors in place of those of an argument, in order.
    static void put_tensors(literal& value, std::array<tensor_id, 2> const& tensors, std::size_t& count) {
        if (auto* t = std::get_if<literal::tensor>(&value.value)) t->id = tensors[count++];
        if (auto* list = std::get_if<literal::list>(&value.value))
            for (auto& item : *list) put_tensors(item, tensors, count);
    }

    /// Surrounded by zeros; the padding begins with that of the last dimension.
    result_ids padded() {
        for (auto& a : call_.arguments) {
            auto const* const mode = a.value.as<std::string>();
            auto const* const real = a.value.as<double>();
            auto const* const number = a.value.as<std::int64_t>();
            if ((mode && *mode != "constant") || (real && *real != 0) || (number && *number != 0)) return {};
            if (auto* list = std::get_if<literal::list>(&a.value.value))
                list->insert(list->begin(), 2, literal{std::int64_t{0}});
        }
        return plain();
    }

    /// With the last dimension, which the call does not know of, left as it is.
    result_ids plain() {
        auto const name = heddle::detail::plain_name(call_.qualified);
        auto const rank = static_cast<std::int64_t>(call_.rank);
        for (auto& a : call_.arguments) {
            auto* number = std::get_if<std::int64_t>(&a.value.value);
            auto* list = std::get_if<literal::list>(&a.value.value);
            if (number && (a.name == "dim" || a.name.starts_with("dim") || a.name.ends_with("_dim"))) {
                if (*number < 0) *number += rank + (name == "unsqueeze" || name == "stack" ? 1 : 0);
            } else if (list && (a.name == "dims" || a.name == "dim")) {
                for (auto& item : *list)
                    if (auto* d = std::get_if<std::int64_t>(&item.value); d && *d < 0) *d += rank;
                if (name == "permute") list->emplace_back().value = rank;
            } else if (list && (a.name == "size" || a.name == "shape")) {
                list->emplace_back().value = std::int64_t{name == "expand" ? -1 : 2};
            } else if (list && a.name == "repeats") {
                list->emplace_back().value = std::int64_t{1};
            }
        }
        if (name == "flatten") {
            bool const ends = algorithm::any_of(call_.arguments, [](auto const& a) { return a.name == "end_dim"; });
            if (!ends) call_.arguments.push_back({"end_dim", {rank - 1}});
        }
        auto made = functional_call_of(call_.qualified, std::move(call_.arguments), call_.rank);
        auto const target = std::move(made.target);
        auto const ids = call(target, std::move(made), call_.results);
        return std::vector<std::optional<tensor_id>>(ids.begin(), ids.end());
    }

    /// A Fourier transform as it is called, `rfft` or `ifft2`, of some dimensions, or of as much of them as is asked
    /// for.
    result_ids transform(std::string_view name) {
        bool const inverse = name.starts_with('i');
        if (inverse) name.remove_prefix(1);
        bool const half = name.starts_with('r'), all_dims = name.ends_with('n');
        bool const of_pairs = call_.is_pair.front(), to_real = inverse && half;
        if (operands_.size() != 1 || (inverse ? !of_pairs : half && of_pairs)) return {};
        auto const rank = static_cast<std::int64_t>(call_.rank);
        literal::list dims;
        for (std::int64_t d = name.ends_with('2') ? rank - 2 : all_dims ? 0 : rank - 1; d < rank; ++d)
            dims.emplace_back().value = d;
        std::string norm = "backward";
        literal::list sizes;
        for (auto const& a : call_.arguments) {
            if (a.value.is_none()) continue;
            if (a.name == "dim")
                dims = a.value.as<literal::list>() ? *a.value.as<literal::list>() : literal::list{a.value};
            else if (a.name == "norm") norm = a.value.as<std::string>() ? *a.value.as<std::string>() : "";
            else if (a.name == "n") sizes = {a.value};
            else if (a.name == "s" && a.value.as<literal::list>()) sizes = *a.value.as<literal::list>();
            else if (a.name != "self") return {};
        }
        for (auto& d : dims)
            if (auto* at = std::get_if<std::int64_t>(&d.value); at && *at < 0) *at += rank;
        if (!sizes.empty() && sizes.size() != dims.size()) return {};
        auto x = operands_[0];
        for (std::size_t k = 0; k < sizes.size(); ++k) {
            auto const *at = dims[k].as<std::int64_t>(), *size = sizes[k].as<std::int64_t>();
            if (!at || !size || *at < 0 || *at >= rank || *size < 1) return {};
            bool const is_half = to_real && k + 1 == sizes.size();
            x = resized(x, static_cast<std::size_t>(*at), is_half ? *size / 2 + 1 : *size);
        }
        functional_call made;
        made.add("input", {literal::tensor{x}});
        made.add("dim", {std::move(dims)});
        bool const divides = norm == (inverse ? "backward" : "forward");
        made.add("normalization", {std::int64_t{norm == "ortho" ? 1 : divides ? 2 : 0}});
        if (!of_pairs) made.add("onesided", {half});
        else if (!to_real) made.add("forward", {!inverse});
        auto const target = !of_pairs ? "torch._fft_r2c" : to_real ? "torch._fft_c2r" : "torch._fft_c2c";
        return one(call(target, std::move(made), call_.results).front());
    }

    /// Cut to a size along a dimension, or followed by zeros.
    tensor_id resized(tensor_id x, std::size_t axis, extent size) {
        tensor_shape dims = info(x).shape;
        if (dims[axis] == size) return x;
        functional_call made;
        made.add("input", {literal::tensor{x}});
        bool const is_cut = size < dims[axis];
        if (is_cut) {
            literal::list index(axis, literal{literal::slice{}});
            index.emplace_back().value = literal::slice{0, size, {}};
            made.add("index", {std::move(index)});
        } else {
            literal::list pad(2 * (dims.size() - axis), literal{std::int64_t{0}});
            pad.back().value = size - dims[axis];
            made.add("pad", {std::move(pad)});
        }
        dims[axis] = size;
        return call(is_cut ? "operator.getitem" : "torch.pad", std::move(made), {{std::move(dims), info(x).type}})
            .front();
    }

    /// Makes the complex product of pairs; real numbers multiply each of a pair.
    result_ids product(std::string_view name) {
        if (operands_.size() == 1) return plain();
        if (operands_.size() != 2) return {};
        if (name == "div" && call_.is_pair[1]) { // times the conjugate, by the square
            auto const by = operands_[1];
            operands_[1] = conjugate(by);
            auto const times = *product("mul")->front();
            return one(by_each("torch.div", times, squared(by)));
        }
        if (all_pairs_) {
            functional_call made;
            made.add("input", {literal::tensor{operands_[0]}});
            made.add("other", {literal::tensor{operands_[1]}});
            return one(call("heddle.complex_mul", std::move(made), call_.results).front());
        }
        auto const real = operands_[call_.is_pair[0] ? 1 : 0], pair = operands_[call_.is_pair[0] ? 0 : 1];
        return one(by_each("torch." + std::string(name), pair, real));
    }
    /// An operator on pairs and a real number for both of each.
    tensor_id by_each(std::string target, tensor_id pair, tensor_id real) {
        functional_call wider;
        tensor_shape dims = info(real).shape;
        wider.add("input", {literal::tensor{real}});
        wider.add("dim", {std::int64_t{-1}});
        dims.push_back(1);
        auto const each = call("torch.unsqueeze", std::move(wider), {{std::move(dims), info(real).type}}).front();
        return two(std::move(target), pair, each);
    }

    call_recorder& recorder_;
    complex_call call_;
    std::vector<tensor_id> operands_;
    bool all_pairs_ = true;
    std::size_t count_ = 0;
};

inline std::optional<std::vector<std::optional<tensor_id>>> add_pairs(call_recorder& recorder, complex_call call) {
    return pair_operators(recorder, std::move(call)).add();
}

} // namespace heddle::pt2::detail
