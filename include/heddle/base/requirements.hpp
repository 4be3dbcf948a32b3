// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a compiler has to offer, said before anything else fails. Every header includes it, by way of others.
#pragma once

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "Heddle needs C++20: compile with -std=c++20, or link heddle::heddle, which asks CMake for it"
#elif defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 16
#error "Heddle needs clang 16 or newer: older ones lack parts of C++20"
#elif defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error "Heddle needs g++ 12 or newer: older ones lack parts of C++20"
#elif !defined(__cpp_exceptions)
#error "Heddle reports bad input by exceptions: compile without -fno-exceptions"
#endif
