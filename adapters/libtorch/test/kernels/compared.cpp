// SPDX-License-Identifier: BSL-1.0
// The only unit that includes libtorch.
#include <heddle/libtorch/kernels.hpp>
#undef CHECK // one of libtorch's and one of doctest's

#include "compared.hpp"

#include <algorithm>
#include <cmath>

namespace heddle::test {

namespace {

using libtorch::gradient_list, libtorch::tensor_list;

libtorch::kernels const& kernels() {
    static libtorch::kernels const all(at::kDouble);
    return all;
}

at::Tensor to_tensor(dense const& x) { return at::tensor(x.data, at::kDouble).reshape(x.dims); }
dense to_dense(at::Tensor const& x) {
    auto const flat = x.to(at::kDouble).contiguous();
    auto const* data = flat.data_ptr<double>();
    return {x.sizes().vec(), std::vector<double>(data, data + flat.numel())};
}

/// A view of dense tensors, null ones among them, as tensors.
struct tensors_of {
    explicit tensors_of(std::span<dense const* const> list) : values(list.size()) {
        for (std::size_t k = 0; k < list.size(); ++k) {
            if (list[k]) values[k] = to_tensor(*list[k]);
            pointers.push_back(list[k] ? &values[k] : nullptr);
        }
    }
    tensor_list values;
    std::vector<at::Tensor const*> pointers;
};

void compare(kernel_call const& call, std::string const& what, dense const& x, dense const& expected) {
    if (x.dims != expected.dims) call.fail(what + " has another shape than by the reference");
    double scale = 1;
    for (double v : expected.data) scale = std::max(scale, std::abs(v));
    for (extent n = 0; n < x.elements(); ++n)
        if (!(std::abs(x[n] - expected[n]) <= 1e-10 * scale))
            call.fail(what + " differs at " + std::to_string(n) + ": " + std::to_string(x[n]) + ", by the reference " +
                      std::to_string(expected[n]));
}

/// Joins a call by the dense tensors by which the other is joined.
libtorch::joined_call joined(tensor_call<dense> const& call) {
    libtorch::joined_call result{kernel_call(call)};
    if (call.combine)
        result.combine_rows = [&call](std::size_t which, reduction how, at::Tensor const& rows) {
            auto all = to_dense(rows);
            call.combine(which, how, all);
            return to_tensor(all);
        };
    return result;
}

std::vector<dense> forward(tensor_call<dense> const& call, std::span<dense const* const> x) {
    std::vector<dense> y;
    for (auto const& t : kernels().forward(joined(call), tensors_of(x).pointers)) y.push_back(to_dense(t));
    auto const expected = reference_kernels().forward(call, x);
    for (std::size_t r = 0; r < y.size(); ++r) compare(call, "result " + std::to_string(r), y[r], expected[r]);
    return y;
}

std::vector<std::optional<dense>> backward(tensor_call<dense> const& call, std::span<dense const* const> x,
                                           std::span<dense const* const> y, std::span<dense const* const> g) {
    std::vector<std::optional<dense>> dx;
    for (auto const& t :
         kernels().backward(joined(call), tensors_of(x).pointers, tensors_of(y).pointers, tensors_of(g).pointers))
        dx.push_back(t ? std::optional(to_dense(*t)) : std::nullopt);
    auto const expected = reference_kernels().backward(call, x, y, g);
    for (std::size_t k = 0; k < dx.size(); ++k)
        if (dx[k] || expected[k]) { // what has no derivative may be zero instead
            dense const zero(x[k]->dims);
            compare(call, "cotangent " + std::to_string(k), dx[k].value_or(zero), expected[k].value_or(zero));
        }
    return dx;
}

} // namespace

case_kernels libtorch_kernels() { return {forward, backward}; }

bool libtorch_has_kernel(std::string_view kind) { return kernels().has_kernel(kind); }

} // namespace heddle::test
