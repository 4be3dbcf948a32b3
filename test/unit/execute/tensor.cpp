// SPDX-License-Identifier: BSL-1.0
#include <heddle/execute/random.hpp>
#include <heddle/execute/tensor.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

using namespace heddle;

static_assert(!rank_tensor<std::vector<double>>);

namespace {

dense_tensor<double> counted(tensor_shape dims) {
    dense_tensor<double> t(std::move(dims));
    std::iota(t.data.begin(), t.data.end(), 1.0);
    return t;
}

} // namespace

TEST_CASE("a part of any factor is what its positions say, and is put back") {
    tensor_shape const dims{2, 12, 3};
    auto const whole = counted(dims);
    for (factor const& f :
         {factor{0, 2, 1}, factor{1, 12, 1}, factor{1, 3, 4}, factor{1, 4, 1}, factor{1, 2, 2}, factor{2, 3, 1}})
        for (extent begin = 0; begin <= f.extent; ++begin)
            for (extent count = 0; begin + count <= f.extent; ++count) {
                auto const part = take(whole, f, begin, count);
                auto const positions = positions_of(dims[f.dimension], f, begin, count);
                CHECK(static_cast<extent>(positions.size()) == part.dims[f.dimension]);
                dense_tensor<double> expected(part.dims);
                extent to = 0;
                tensor_shape at(3);
                for (at[0] = 0; at[0] < dims[0]; ++at[0])
                    for (at[1] = 0; at[1] < dims[1]; ++at[1])
                        for (at[2] = 0; at[2] < dims[2]; ++at[2]) {
                            extent const place = at[f.dimension] / f.stride % f.extent;
                            if (place >= begin && place < begin + count)
                                expected[to++] = whole[(at[0] * dims[1] + at[1]) * dims[2] + at[2]];
                        }
                CHECK(part == expected);
                auto const padded = pad(part, dims, f, begin, count);
                CHECK(take(padded, f, begin, count) == part);
                CHECK(std::accumulate(padded.data.begin(), padded.data.end(), 0.0) ==
                      std::accumulate(part.data.begin(), part.data.end(), 0.0));
                auto rest = whole;
                put(rest, f, begin, count, dense_tensor<double>(part.dims));
                rest += padded;
                CHECK(rest == whole);
            }
}

TEST_CASE("a share of pieces is the same share of each") {
    auto const whole = counted({2, 12, 2});
    factor const f{.dimension = 1, .extent = 2, .stride = 6, .widths = {3, 1, 2}}; // pieces of 6, 2 and 4
    CHECK(positions_of(12, f, 0, 1) == std::vector<extent>{0, 1, 2, 6, 8, 9});
    CHECK(positions_of(12, f, 1, 1) == std::vector<extent>{3, 4, 5, 7, 10, 11});
    CHECK(positions_of(12, f, 1, 0).empty());
    auto const first = take(whole, f, 0, 1), second = take(whole, f, 1, 1);
    CHECK(first.dims == tensor_shape{2, 6, 2});
    for (std::size_t n = 0; n < 12; ++n) // the second row of the part
        CHECK(first.data[12 + n] == whole[24 + positions_of(12, f, 0, 1)[n / 2] * 2 + static_cast<extent>(n % 2)]);
    auto both = pad(first, whole.dims, f, 0, 1);
    both += pad(second, whole.dims, f, 1, 1);
    CHECK(both == whole);
}

TEST_CASE("tensors may be empty") {
    dense_tensor<float> const empty(tensor_shape{3, 0, 2});
    CHECK(empty.elements() == 0);
    CHECK(take(empty, factor{0, 3, 1}, 1, 2).dims == tensor_shape{2, 0, 2});
    CHECK(pad(empty, {3, 4, 2}, factor{1, 4, 1}, 2, 0) == dense_tensor<float>(tensor_shape{3, 4, 2}));
    CHECK(dense_tensor<float>().elements() == 1);
}

TEST_CASE("random numbers depend on their key alone and are spread evenly") {
    static_assert(random_bits({1, 2}, 3) == random_bits({1, 2}, 3));
    std::set<std::uint64_t> seen;
    for (std::uint64_t seed = 0; seed < 10; ++seed)
        for (std::uint64_t stream = 0; stream < 10; ++stream)
            for (std::uint64_t n = 0; n < 100; ++n) seen.insert(random_bits({seed, stream}, n));
    CHECK(seen.size() == 10000);
    for (random_key const key : {random_key{0, 0}, random_key{1, 0}, random_key{0, 1}}) {
        int const count = 100000;
        double sum = 0, squares = 0, product = 0, kept = 0, previous = 0.5;
        for (std::uint64_t n = 0; n < count; ++n) {
            double const u = random_unit(key, n);
            CHECK_UNARY(u >= 0 && u < 1);
            sum += u;
            squares += u * u;
            product += (u - 0.5) * (previous - 0.5);
            kept += dropout_factor(key, n, 0.25) != 0;
            previous = u;
        }
        CHECK(std::abs(sum / count - 0.5) < 0.005);
        CHECK(std::abs(squares / count - 1.0 / 3) < 0.005);
        CHECK(std::abs(product / count) < 0.002);
        CHECK(std::abs(kept / count - 0.75) < 0.01);
    }
    CHECK(dropout_factor({}, 0, 0) == 1);
}
