// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A number of 16 bits on the host, with the exponents of float.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>

namespace heddle::test::substitute {

/// The first half of a float's bits, rounded to even. Arithmetic is that of float.
class bfloat16 {
public:
    bfloat16() = default;
    bfloat16(float x) {
        auto const all = std::bit_cast<std::uint32_t>(x);
        bits_ = static_cast<std::uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    template <std::integral Number>
    explicit bfloat16(Number n) : bfloat16(static_cast<float>(n)) {}
    operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }
    bfloat16& operator+=(bfloat16 x) { return *this = float(*this) + float(x); }

private:
    std::uint16_t bits_ = 0;
};

} // namespace heddle::test::substitute

template <>
class std::numeric_limits<heddle::test::substitute::bfloat16> {
public:
    static constexpr bool is_specialized = true, is_integer = false;
    static constexpr int max_exponent = std::numeric_limits<float>::max_exponent;
};
