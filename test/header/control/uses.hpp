// SPDX-License-Identifier: BSL-1.0
// What it uses is declared by the header read before it, which it does not include, and what it defines is not inline.
#pragma once

inline int uses() { return declared(); }

int twice() { return 2; }
int variable = 3;

struct two_units {
    int method();
};
int two_units::method() { return 4; }
template <class>
struct any_units {
    int method();
};
template <class type>
int any_units<type>::method() {
    return 5;
}
inline constexpr int constant = 6;
