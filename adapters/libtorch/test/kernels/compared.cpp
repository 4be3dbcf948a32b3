// SPDX-License-Identifier: BSL-1.0
// The only unit that includes libtorch.
#include <heddle/libtorch/kernels.hpp>
#undef CHECK // one of libtorch's and one of doctest's

#include "compared.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::test {

namespace {

using tensor = libtorch::tensor<double>;

libtorch::kernels<double> const& kernels() {
    static libtorch::kernels<double> const all;
    return all;
}

/// A view of dense tensors, null ones among them, as tensors.
struct tensors_of {
    explicit tensors_of(std::span<dense const* const> list) : values(list.size()) {
        for (std::size_t k = 0; k < list.size(); ++k) {
            if (list[k]) values[k] = tensor(*list[k]);
            pointers.push_back(list[k] ? &values[k] : nullptr);
        }
    }
    std::vector<tensor> values;
    std::vector<tensor const*> pointers;
};

/// Returns a call whose statistics are combined on dense tensors.
tensor_call<tensor> call_of(tensor_call<dense> const& call) {
    tensor_call<tensor> result = kernel_call(call);
    if (call.combine)
        result.combine = [&call](std::size_t which, reduction how, tensor& rows) {
            auto all = rows.on_host();
            call.combine(which, how, all);
            rows = tensor(all);
        };
    return result;
}

void compare(kernel_call const& call, std::string const& what, dense const& x, dense const& expected) {
    if (x.dims != expected.dims) call.fail(what + " has another shape than by the reference");
    double scale = 1;
    for (double v : expected.data) scale = std::max(scale, std::abs(v));
    for (extent n = 0; n < x.elements(); ++n)
        if (!(std::abs(x[n] - expected[n]) <= 1e-10 * scale))
            call.fail(what + " differs at " + std::to_string(n) + ": " + std::to_string(x[n]) + ", by the reference " +
                      std::to_string(expected[n]));
}

std::vector<dense> forward(tensor_call<dense> const& call, std::span<dense const* const> x) {
    std::vector<dense> y;
    for (auto const& t : kernels().forward(call_of(call), tensors_of(x).pointers)) y.push_back(t.on_host());
    auto const expected = reference_kernels().forward(call, x);
    for (std::size_t r = 0; r < y.size(); ++r) compare(call, "result " + std::to_string(r), y[r], expected[r]);
    return y;
}

std::vector<std::optional<dense>> backward(tensor_call<dense> const& call, std::span<dense const* const> x,
                                           std::span<dense const* const> y, std::span<dense const* const> g) {
    std::vector<std::optional<dense>> dx;
    for (auto const& t :
         kernels().backward(call_of(call), tensors_of(x).pointers, tensors_of(y).pointers, tensors_of(g).pointers))
        dx.push_back(t ? std::optional(t->on_host()) : std::nullopt);
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

TEST_CASE("a tensor of libtorch is cut and joined as a dense tensor is, and keeps what is changed in its copies") {
    using namespace heddle;
    tensor_shape const dims{2, 12, 3};
    test::dense whole(dims), other(dims);
    for (extent n = 0; n < whole.elements(); ++n) {
        whole[n] = static_cast<double>(n);
        other[n] = -1;
    }
    libtorch::tensor<double> const x(whole), y(other);
    CHECK(x.shape() == dims);
    CHECK(x.on_host() == whole);
    for (factor const& f : {factor{0, 2, 1}, factor{1, 12, 1}, factor{1, 3, 4}, factor{1, 2, 1}, factor{1, 3, 2},
                            factor{1, 4, 3, 0, {1, 2}}, factor{2, 3, 1}})
        for (extent begin = 0; begin <= f.extent; ++begin)
            for (extent count = 0; begin + count <= f.extent; ++count) {
                auto const part = take(whole, f, begin, count);
                auto const mine = take(x, f, begin, count);
                CHECK(mine.on_host() == part);
                auto expected = other;
                auto joined = y;
                put(expected, f, begin, count, part);
                put(joined, f, begin, count, mine);
                CHECK(joined.on_host() == expected);
            }
    CHECK(y.on_host() == other);

    auto changed = x;
    CHECK(std::as_const(changed).flat().data() == x.flat().data());
    changed += y;
    changed *= 2.0;
    CHECK(x.on_host() == whole);
    CHECK(changed.on_host()[5] == 8);
    auto const* const storage = changed.flat().data();
    auto const moved = std::move(changed);
    CHECK(moved.flat().data() == storage);
    CHECK(sum_of_squares(y).number() == static_cast<double>(other.elements()));
    libtorch::tensor<double> copied(dims);
    libtorch::tensor<double>::copy(x.flat(), copied.flat());
    CHECK(copied.on_host() == whole);
    CHECK(libtorch::tensor<float>(tensor_shape{}, 3.0F).number() == 3.0F);
}
