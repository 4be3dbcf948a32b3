// SPDX-License-Identifier: BSL-1.0
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>

#include <support/catalogue_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace heddle;

static_assert(kernel_backend<eigen_kernels<float>, float> && !kernel_backend<eigen_kernels<float>, double>);

TEST_CASE("random programs in float give what they give in double, but for rounding") {
    eigen_kernels<float> const in_single;
    eigen_kernels<double> const in_double;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 2);
        source_values<float> sources;
        source_values<double> rounded;
        for (auto const& [t, value] : random_sources<double>(p, seed)) {
            sources.emplace(t, dense_tensor<float>(value.dims));
            rounded.emplace(t, dense_tensor<double>(value.dims));
            for (extent n = 0; n < value.elements(); ++n)
                rounded.at(t)[n] = sources.at(t)[n] = static_cast<float>(value[n]);
        }
        auto const single = run_single_device(p, sources, in_single, seed);
        auto const twice = run_single_device(p, rounded, in_double, seed);
        double scale = 1e-3 * std::abs(twice.loss) + 1e-6;
        for (auto const& [t, gradient] : twice.gradients)
            for (double g : gradient.second.data) scale = std::max(scale, std::abs(g));
        CHECK(std::abs(static_cast<double>(single.loss) - twice.loss) <= 1e-3 * std::max(scale, std::abs(twice.loss)));
        for (auto const& [t, gradient] : twice.gradients)
            for (extent n = 0; n < gradient.second.elements(); ++n)
                CHECK(std::abs(static_cast<double>(single.gradients.at(t).second[n]) - gradient.second[n]) <=
                      1e-3 * scale);
    }
}
