// SPDX-License-Identifier: BSL-1.0
// The cases of the reference kernels' tests run by libtorch, and random programs.
#include "compared.hpp"

#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <support/catalogue_programs.hpp>

#include <cmath>
#include <cstdint>

using namespace heddle;
using namespace heddle::test;

namespace {

[[maybe_unused]] bool const is_set = (checked_kernels() = libtorch_kernels(), true);

} // namespace

TEST_CASE("libtorch has a kernel for every operator of which there is a reference kernel") {
    auto const kinds = eigen_kernels<double>().library_kinds();
    CHECK(kinds.size() > 100);
    for (auto const& kind : kinds) {
        CAPTURE(kind);
        CHECK(libtorch_has_kernel(kind));
    }
}

TEST_CASE("random programs of catalogue operators give by libtorch what the reference gives") {
    auto const kernels = libtorch_kernels();
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        random_source random(seed);
        auto const p = catalogue_program(random, 3);
        auto const result = run_single_device(p, random_sources<double>(p, seed), kernels, seed);
        CHECK(std::isfinite(result.loss));
    }
}
