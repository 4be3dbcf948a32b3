// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Kernels that are sums of products, moves of elements, or both.
#pragma once

#include <heddle/execute/detail/kernel_table.hpp>

#include <cmath>

namespace heddle::detail {

/// Computes the operator from the rule; each term is multiplied by what `coefficients` makes of the call.
template <class Scalar, class Coefficients>
operator_kernel<Scalar> from_rule(Coefficients coefficients) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) {
                return multilinear_forward(call, x, coefficients(call));
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return multilinear_backward(call, x, *g[0], coefficients(call));
            }};
}

/// Computes one operand and a number, element by element.
template <class Scalar, class Forward, class Backward>
operator_kernel<Scalar> from_number(Forward f, Backward derivative) {
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto y = *x[0];
                auto const c = static_cast<Scalar>(call.number("number", 0));
                for (auto& e : y.data) e = f(e, c, call.flag("number_is_first"));
                return {std::move(y)};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                auto dx = *g[0];
                auto const c = static_cast<Scalar>(call.number("number", 0));
                for (extent n = 0; n < dx.elements(); ++n)
                    dx[n] *= derivative((*x[0])[n], c, call.flag("number_is_first"));
                return only(std::move(dx));
            }};
}

/// Takes one of two kernels: for a tensor and a number, or for tensors.
template <class Scalar>
operator_kernel<Scalar> number_or(operator_kernel<Scalar> number, operator_kernel<Scalar> tensor) {
    return {[=](dense_call<Scalar> const& call, tensor_view<Scalar> x) {
                return (call.has("number") ? number : tensor).forward(call, x);
            },
            [=](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar> y, tensor_view<Scalar> g) {
                return (call.has("number") ? number : tensor).backward(call, x, y, g);
            }};
}

/// Computes x / y with broadcasting, as the product of x and 1 / y.
template <class Scalar>
operator_kernel<Scalar> division() {
    auto const inverse = [](dense_tensor<Scalar> y) {
        for (auto& e : y.data) e = 1 / e;
        return y;
    };
    return {[=](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                auto const& rule = *call.rule;
                auto const y = inverse(*x[1]);
                return {contraction<Scalar>(call)({{x[0], &rule.operands[0]}, {&y, &rule.operands[1]}}, rule.results[0],
                                                  call.result_shape(0))};
            },
            [=](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                auto const& rule = *call.rule;
                contraction<Scalar> const contract(call);
                auto const y = inverse(*x[1]);
                gradients<Scalar> result;
                result.push_back(
                    contract({{g[0], &rule.results[0]}, {&y, &rule.operands[1]}}, rule.operands[0], x[0]->dims));
                result.push_back(
                    contract({{g[0], &rule.results[0]}, {x[0], &rule.operands[0]}}, rule.operands[1], x[1]->dims));
                for (extent n = 0; n < y.elements(); ++n) (*result[1])[n] *= -y[n] * y[n];
                return result;
            }};
}

/// Elements keep their order, so a part of one shape holds the elements of that part of the other.
template <class Scalar>
operator_kernel<Scalar> reshape_kernel() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                return {reshaped(*x[0], call.result_shape(0))};
            },
            [](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return only(reshaped(*g[0], x[0]->dims));
            }};
}

/// Copies lines of an axis between a tensor and a piece of it that begins at `at`, into the piece or out of it.
template <class Scalar, class Whole>
void copy_piece(Whole& whole, axis_view const& w, dense_tensor<Scalar>& piece, extent size, extent at,
                bool into_piece) {
    if (at < 0 || at + size > w.size || piece.elements() != w.lines() * size)
        throw input_error("", "has a piece of " + std::to_string(size) + " places from " + std::to_string(at) +
                                  " on, expected it in " + std::to_string(w.size) + " places");
    for (extent o = 0; o < w.outer; ++o)
        for (extent n = 0; n < size * w.inner; ++n) {
            auto& a = whole[(o * w.size + at) * w.inner + n];
            auto& b = piece[o * size * w.inner + n];
            if (into_piece) b = a;
            else if constexpr (!std::is_const_v<Whole>) a = b;
        }
}

template <class Scalar>
dense_tensor<Scalar> joined(std::vector<dense_tensor<Scalar> const*> const& pieces, tensor_shape dims,
                            std::size_t axis) {
    dense_tensor<Scalar> whole(std::move(dims));
    extent at = 0;
    for (auto const* p : pieces) {
        auto piece = *p;
        copy_piece(whole, axis_view(whole.dims, axis), piece, piece.dims[axis], at, false);
        at += piece.dims[axis];
    }
    return whole;
}
template <class Scalar>
dense_tensor<Scalar> piece_of(dense_tensor<Scalar> const& whole, tensor_shape dims, std::size_t axis, extent at) {
    dense_tensor<Scalar> piece(std::move(dims));
    copy_piece(whole, axis_view(whole.dims, axis), piece, piece.dims[axis], at, true);
    return piece;
}

/// This is `cat`.
template <class Scalar>
operator_kernel<Scalar> joining() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                return {joined<Scalar>({x.begin(), x.end()}, call.result_shape(0), axis_of(call))};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result;
                extent at = 0;
                for (auto const* t : x) {
                    result.push_back(piece_of(*g[0], t->dims, axis_of(call), at));
                    at += t->dims[axis_of(call)];
                }
                return result;
            }};
}

/// These are `split` and `chunk`.
template <class Scalar>
operator_kernel<Scalar> dividing() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) {
                tensors<Scalar> result;
                extent at = 0;
                for (std::size_t r = 0; r < call.results.size(); ++r) {
                    result.push_back(piece_of(*x[0], call.result_shape(r), axis_of(call), at));
                    at += result.back().dims[axis_of(call)];
                }
                return result;
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                return only(joined<Scalar>({g.begin(), g.end()}, x[0]->dims, axis_of(call)));
            }};
}

/// Calls `visit(from, to)` for every element that slices pick from a tensor.
template <class Visitor>
void for_each_picked(kernel_call const& call, tensor_shape const& dims, Visitor&& visit) {
    auto start = call.numbers("start"), count = call.numbers("count");
    auto const step = call.numbers("step"), pieces = call.numbers("pieces");
    if (start.size() != dims.size() || step.size() != dims.size() || count.size() != dims.size())
        call.fail("its slices are not known");
    std::vector<extent> box(dims.size()), strides(dims.size());
    extent stride = 1, first = 0, to = 0;
    for (std::size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
        if (d < pieces.size() && pieces[d] > 0) { // a part has the same places of every piece
            start[d] *= static_cast<double>(dims[d]) / pieces[d];
            count[d] *= static_cast<double>(dims[d]) / pieces[d];
        }
        box[d] = static_cast<extent>(
            count[d] > 0 ? count[d] : std::ceil((static_cast<double>(dims[d]) + count[d] - start[d]) / step[d]));
        strides[d] = stride * static_cast<extent>(step[d]);
        if (dims[d] > 0 && (start[d] < 0 || step[d] < 1 ||
                            start[d] + static_cast<double>(box[d] - 1) * step[d] >= static_cast<double>(dims[d])))
            call.fail("takes " + std::to_string(box[d]) + " places of " + std::to_string(dims[d]) + " in dimension " +
                      std::to_string(d));
        first += stride * static_cast<extent>(start[d]);
    }
    if (stride == 0) return;
    for_each_point<1>(box, {strides}, [&](auto const& at) { visit(first + at[0], to++); });
}

template <class Scalar>
operator_kernel<Scalar> picking() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                for_each_picked(call, x[0]->dims, [&](extent from, extent to) { y[to] = (*x[0])[from]; });
                return {std::move(y)};
            },
            [](kernel_call const& call, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                for_each_picked(call, dx.dims, [&](extent from, extent to) { dx[from] = (*g[0])[to]; });
                return only(std::move(dx));
            }};
}

/// This is `append_cls_token`: one token, equal for the whole batch, goes before each sequence.
template <class Scalar>
operator_kernel<Scalar> class_token_appending() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                dense_tensor<Scalar> y(call.result_shape(0));
                extent const length = y.dims[1], width = y.dims[2];
                for (extent b = 0; b < y.dims[0]; ++b) {
                    auto const to = y.data.begin() + b * length * width;
                    std::copy_n(x[1]->data.begin(), width, to);
                    std::copy_n(x[0]->data.begin() + b * (length - 1) * width, (length - 1) * width, to + width);
                }
                return {std::move(y)};
            },
            [](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                gradients<Scalar> result{dense_tensor<Scalar>(x[0]->dims), dense_tensor<Scalar>(x[1]->dims)};
                extent const length = g[0]->dims[1], width = g[0]->dims[2];
                for (extent b = 0; b < g[0]->dims[0]; ++b) {
                    auto const from = g[0]->data.begin() + b * length * width;
                    for (extent w = 0; w < width; ++w) (*result[1])[w] += from[w];
                    std::copy_n(from + width, (length - 1) * width, result[0]->data.begin() + b * (length - 1) * width);
                }
                return result;
            }};
}

/// This is `get_cls_token`: the first place of each sequence.
template <class Scalar>
operator_kernel<Scalar> class_token_getting() {
    return {[](kernel_call const& call, tensor_view<Scalar> x) -> tensors<Scalar> {
                return {reshaped(piece_of(*x[0], {x[0]->dims[0], 1, x[0]->dims[2]}, 1, 0), call.result_shape(0))};
            },
            [](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>, tensor_view<Scalar> g) {
                dense_tensor<Scalar> dx(x[0]->dims);
                auto piece = reshaped(*g[0], {x[0]->dims[0], 1, x[0]->dims[2]});
                copy_piece(dx, axis_view(dx.dims, 1), piece, 1, 0, false);
                return only(std::move(dx));
            }};
}

template <class Scalar>
void add_linear_kernels(kernel_table<Scalar>& table) {
    using numbers = std::vector<double>;
    auto const plain = from_rule<Scalar>([](kernel_call const&) { return numbers{}; });
    for (char const* kind :
         {"linear", "matmul", "mm", "bmm", "mv", "dot", "einsum", "sum", "transpose", "permute", "t", "getattr",
          "expand", "expand_as", "repeat", "tile", "repeat_interleave", "pixel_shuffle", "pixel_unshuffle"})
        table[kind] = plain;
    table["neg"] = from_rule<Scalar>([](kernel_call const&) { return numbers{-1}; });
    for (char const* kind : {"clone", "contiguous", "to", "type_as", "float", "double", "half", "bfloat16"})
        table[kind] = {[plain](dense_call<Scalar> const& call, tensor_view<Scalar> x) {
                           if (!call.flag("truncate") && !call.flag("to_truth")) return plain.forward(call, x);
                           auto y = *x[0];
                           for (auto& e : y.data) e = call.flag("to_truth") ? Scalar(e != 0) : std::trunc(e);
                           return tensors<Scalar>{std::move(y)};
                       },
                       [plain](dense_call<Scalar> const& call, tensor_view<Scalar> x, tensor_view<Scalar> y,
                               tensor_view<Scalar> g) {
                           return call.flag("truncate") || call.flag("to_truth")
                                      ? only(dense_tensor<Scalar>(x[0]->dims))
                                      : plain.backward(call, x, y, g);
                       }};
    table["detach"] = {plain.forward, [](kernel_call const&, tensor_view<Scalar> x, tensor_view<Scalar>,
                                         tensor_view<Scalar>) { return only(dense_tensor<Scalar>(x[0]->dims)); }};
    table["mean"] = from_rule<Scalar>([](kernel_call const& call) {
        double points = 1;
        for (auto const& index : call.rule->indices)
            if (index.kind == index_kind::reduction) points *= static_cast<double>(index.extent);
        return numbers{1 / points};
    });

    table["addmm"] = table["baddbmm"] = from_rule<Scalar>(
        [](kernel_call const& call) { return numbers{call.number("beta", 1), call.number("alpha", 1)}; });
    auto const plus = from_rule<Scalar>([](kernel_call const& call) { return numbers{1, call.number("alpha", 1)}; });
    auto const minus = from_rule<Scalar>([](kernel_call const& call) { return numbers{1, -call.number("alpha", 1)}; });
    auto const one = [](Scalar, Scalar, bool) { return Scalar(1); };
    auto const factor = [](Scalar, Scalar c, bool) { return c; };
    table["add"] = number_or(from_number<Scalar>([](Scalar x, Scalar c, bool) { return x + c; }, one), plus);
    table["sub"] = number_or(from_number<Scalar>([](Scalar x, Scalar c, bool first) { return first ? c - x : x - c; },
                                                 [](Scalar, Scalar, bool first) { return Scalar(first ? -1 : 1); }),
                             minus);
    table["mul"] = number_or(from_number<Scalar>([](Scalar x, Scalar c, bool) { return x * c; }, factor), plain);
    table["div"] =
        number_or(from_number<Scalar>([](Scalar x, Scalar c, bool first) { return first ? c / x : x / c; },
                                      [](Scalar x, Scalar c, bool first) { return first ? -c / (x * x) : 1 / c; }),
                  division<Scalar>());

    for (char const* kind :
         {"reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"})
        table[kind] = reshape_kernel<Scalar>();
    table["cat"] = joining<Scalar>();
    for (char const* kind : {"split", "split_with_sizes", "tensor_split", "chunk"}) table[kind] = dividing<Scalar>();
    for (char const* kind : {"select", "narrow", "slice"}) table[kind] = picking<Scalar>();
    table["append_cls_token"] = class_token_appending<Scalar>();
    table["get_cls_token"] = class_token_getting<Scalar>();
}

} // namespace heddle::detail
