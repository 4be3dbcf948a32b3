// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Physical quantities as types: seconds, bytes, flops and their rates.
#pragma once

#include <heddle/base/requirements.hpp>

#include <compare>

namespace heddle {

/// A number of one unit. Closed under addition and scaling; two quantities of one unit divide to a
/// plain ratio. Conversion from and to `double` is explicit.
template <class Unit>
struct quantity {
    double value = 0;

    constexpr quantity() = default;
    constexpr explicit quantity(double number) : value(number) {}

    constexpr quantity& operator+=(quantity other) {
        value += other.value;
        return *this;
    }
    constexpr quantity& operator-=(quantity other) {
        value -= other.value;
        return *this;
    }
    constexpr quantity& operator*=(double factor) {
        value *= factor;
        return *this;
    }

    friend constexpr quantity operator+(quantity a, quantity b) { return a += b; }
    friend constexpr quantity operator-(quantity a, quantity b) { return a -= b; }
    friend constexpr quantity operator*(quantity a, double factor) { return a *= factor; }
    friend constexpr quantity operator*(double factor, quantity a) { return a *= factor; }
    friend constexpr quantity operator/(quantity a, double divisor) { return quantity(a.value / divisor); }
    friend constexpr double operator/(quantity a, quantity b) { return a.value / b.value; }
    friend constexpr auto operator<=>(quantity, quantity) = default;
};

using seconds = quantity<struct second_unit>;
using bytes = quantity<struct byte_unit>;
/// Floating-point operations; a multiply-add counts as two.
using flops = quantity<struct flop_unit>;
using flops_per_second = quantity<struct flop_rate_unit>;
using bytes_per_second = quantity<struct byte_rate_unit>;
using seconds_per_byte = quantity<struct byte_cost_unit>;

constexpr seconds operator/(flops work, flops_per_second rate) { return seconds(work.value / rate.value); }
constexpr seconds operator/(bytes size, bytes_per_second rate) { return seconds(size.value / rate.value); }
constexpr seconds operator*(seconds_per_byte cost, bytes size) { return seconds(cost.value * size.value); }

} // namespace heddle
