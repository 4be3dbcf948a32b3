// SPDX-License-Identifier: BSL-1.0
// What it uses is declared by the header read before it, which it does not include.
#pragma once

inline int uses() { return declared(); }
