// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells whether two programs are the same except for their extents, or for their names.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>

namespace heddle {

/// Tells whether two programs differ in extents alone: factors, loops and derivatives have the same numbers.
[[nodiscard]] bool have_equal_structure(indexed_program const& a, indexed_program const& b);

/// Returns the program with no names: equal ones have the same plans.
[[nodiscard]] indexed_program without_names(indexed_program p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE indexed_program without_names(indexed_program p) {
    for (auto& t : p.tensors) {
        t.info.name.clear();
        if (!t.info.whole_of.empty()) t.info.whole_of = "whole";
    }
    for (auto& o : p.operators) o.name.clear();
    return p;
}

HEDDLE_INLINE bool have_equal_structure(indexed_program const& a, indexed_program const& b) {
    auto const same = [](auto const& left, auto const& right, auto&& equal) {
        return algorithm::equal(left, right, equal);
    };
    return same(a.tensors, b.tensors,
                [&](auto const& x, auto const& y) {
                    return x.has_cotangent == y.has_cotangent && x.inside == y.inside &&
                           same(x.factors, y.factors,
                                [](factor const& f, factor const& g) { return f.dimension == g.dimension; });
                }) &&
           same(a.operators, b.operators, [&](auto const& x, auto const& y) {
               return same(x.loops, y.loops,
                           [](split_loop const& l, split_loop const& m) {
                               return l.is_reduction == m.is_reduction && l.operands == m.operands &&
                                      l.results == m.results;
                           }) &&
                      x.inside_loop == y.inside_loop;
           });
}

} // namespace heddle

#endif
