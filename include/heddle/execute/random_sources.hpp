// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random data for a program's sources, such that it runs and every gradient is of use.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/detail/wanted_values.hpp>
#include <heddle/execute/random.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Returns where integers are drawn that may be anywhere in a range: not below zero if they need not be, and from ten
/// values if there is no end.
[[nodiscard]] number_range drawn_range(number_range const& wanted);

/// Returns element `n` of a source; its last dimension has `line` elements.
template <class Scalar>
[[nodiscard]] Scalar random_element(tensor_info const& info, wanted_values const& wanted, extent line, random_key key,
                                    extent n) {
    double const u = random_unit(key, static_cast<std::uint64_t>(n));
    if (info.type == element_type::boolean)
        return Scalar(truth_range.contains(wanted.places) ? wanted.places.low
                                                          : (u < 0.25 && n % line != 0) != wanted.takes_part);
    if (!is_floating(info.type)) {
        auto const [low, high] = drawn_range(wanted.places);
        double const size = high - low;
        if (!wanted.may_be_ignored()) return static_cast<Scalar>(low + std::floor(u * size));
        double const ignored = static_cast<double>(*wanted.ignored);
        if (n > 0) return static_cast<Scalar>(u < 0.125 ? ignored : low + std::floor((u - 0.125) / 0.875 * size));
        double const first = std::floor(u * size);
        return static_cast<Scalar>(low + (low + first == ignored ? std::fmod(first + 1, size) : first));
    }
    if (wanted.range) return static_cast<Scalar>(wanted.range->low + u * (wanted.range->high - wanted.range->low));
    double const range =
        info.role == tensor_role::input ? 1 : std::min(1.0, std::sqrt(6 / static_cast<double>(wanted.fan_in)));
    return static_cast<Scalar>(range * (2 * u - 1));
}

/// Sets as many elements of a mask as are wanted, anywhere, and no others.
template <class Scalar>
void set_ones(dense_tensor<Scalar>& mask, extent ones, random_key key) {
    std::vector<extent> order(static_cast<std::size_t>(mask.elements()));
    std::iota(order.begin(), order.end(), extent{0});
    algorithm::sort(order, {}, [&](extent n) { return std::pair(random_unit(key, static_cast<std::uint64_t>(n)), n); });
    for (extent n : order) mask[n] = Scalar(ones-- > 0);
}

} // namespace detail

/// Returns random values of the sources that are `wanted`, which are equal for a seed whoever draws them.
///
/// Floating-point inputs are uniform in [-1, 1]. Parameters and buffers are uniform in [-r, r] with r^2 = 6 / fan-in
/// and at most 1, so that deep stacks of products neither explode nor vanish (He et al. 2015). Probabilities and what
/// must be positive are in [0.25, 0.75), so that one less a probability is positive too; logarithms of probabilities
/// are in [-2, -0.1). Integers are below the size of what their users look up in, also if copies, arithmetic with
/// numbers, sums and clamps are between (`detail::inverse_ranges`). Of labels that may be ignored, and are nothing
/// else, an eighth is ignored, but never the first, because a mean over none is no number. A quarter of a mask is set
/// or, if what is set takes part, the other three quarters, but always so that the first place of a line takes part,
/// because attention to nothing is no number either. Of a mask by which elements are taken, as many elements are set as
/// the result has; this holds also for the opposite of a mask, and for numbers that are compared with one. What other
/// operators compute places and masks from is left to chance; see `run_on_random_sources`.
/// *Complexity.* Linear in the sources' elements and the program; masks by which elements are taken are sorted.
template <class Scalar, std::predicate<tensor_id> Wanted>
[[nodiscard]] source_values<Scalar> random_sources(program const& p, std::uint64_t seed, Wanted&& wanted) {
    detail::value_requests const requests(p);
    source_values<Scalar> sources;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& info = p.tensor(t);
        if (info.role == tensor_role::value || !wanted(t)) continue;
        auto const data = p.data_of(t);
        // Operators draw from the streams of their own numbers.
        random_key const key{seed, (std::uint64_t{1} << 32) + data};
        auto& value = sources.emplace(t, dense_tensor<Scalar>(info.shape)).first->second;
        extent const line = info.shape.empty() ? 1 : info.shape.back();
        for (extent n = 0; n < value.elements(); ++n)
            value[n] = detail::random_element<Scalar>(info, requests.of(data), line, key, n);
        if (requests.has_ones(data)) detail::set_ones(value, *requests.of(data).ones, key);
    }
    return sources;
}

/// As above, of every source.
template <class Scalar>
[[nodiscard]] source_values<Scalar> random_sources(program const& p, std::uint64_t seed) {
    return random_sources<Scalar>(p, seed, [](tensor_id) { return true; });
}

/// Runs `run_single_device` on random sources of the program, and brings what it gives to the host. *Throws*
/// `input_error` as it does, and says where data left to chance may be the cause.
template <class Scalar, kernel_backend<Scalar> Backend>
[[nodiscard]] iteration_result<Scalar> run_on_random_sources(program const& p, source_values<Scalar> const& sources,
                                                             Backend const& backend, std::uint64_t seed = 0) {
    try {
        if constexpr (std::same_as<typename Backend::tensor, dense_tensor<Scalar>>) {
            return run_single_device(p, sources, backend, seed);
        } else {
            tensor_values<typename Backend::tensor> there;
            for (auto const& [t, value] : sources) there.emplace(t, typename Backend::tensor(value));
            auto const result = run_single_device(p, there, backend, seed);
            iteration_result<Scalar> here{result.loss, {}};
            for (auto const& [t, gradient] : result.gradients)
                here.gradients.emplace(t, std::pair(gradient.first, gradient.second.on_host()));
            return here;
        }
    } catch (input_error const& e) {
        std::string all;
        detail::value_requests const requests(p);
        for (auto const& what : requests.left_to_chance()) all += (all.empty() ? "" : ", and ") + what;
        if (all.empty()) throw;
        throw input_error(e.what(), "no random data are known for which " + all +
                                        "; make it an input of the model, or do not run it");
    }
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE number_range drawn_range(number_range const& wanted) {
    constexpr double several = 10;
    if (wanted.high <= 0) return {std::max(wanted.low, wanted.high - several), wanted.high};
    double const low = std::max(wanted.low, 0.0);
    return {low, std::isfinite(wanted.high) ? wanted.high : low + several};
}

} // namespace heddle::detail

#endif
