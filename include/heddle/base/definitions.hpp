// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where functions are compiled: in every unit that includes them, or once, in the library heddle::compiled.
///
/// Headers declare first. What is no template and longer than a few lines is defined at their end, under
/// `HEDDLE_DEFINITIONS`, with the includes that definitions alone need: everywhere, unless `HEDDLE_COMPILED` says that
/// heddle::compiled is linked, which has it.
/// `HEDDLE_TEMPLATE` begins the declaration of an instantiation that the library has.
#pragma once

#include <heddle/base/requirements.hpp>

#if !defined(HEDDLE_COMPILED)
#define HEDDLE_DEFINITIONS 1
#define HEDDLE_INLINE inline
#elif defined(HEDDLE_COMPILING) // heddle::compiled itself
#define HEDDLE_DEFINITIONS 1
#define HEDDLE_INLINE
#define HEDDLE_TEMPLATE template
#else
#define HEDDLE_DEFINITIONS 0
#define HEDDLE_TEMPLATE extern template
#endif
