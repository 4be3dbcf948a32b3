// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The best program on a mesh of two or three axes.
#pragma once

#include <heddle/balance/ratio_problem.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>

namespace heddle {

namespace detail {

[[nodiscard]] mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             mesh_search_options const& options, ratio_function const& solve);

} // namespace detail

/// Finds a program on a mesh of machines and their devices, for devices that are alike inside every machine; on three
/// axes a machine may be several that are joined.
///
/// Each axis is planned at the others' fixed programs, in turn, until nothing changes; the outermost axis's shares are
/// balanced between. Two axes begin with programs that cut data, with those that are cheapest as the bound splits costs
/// between the axes, and with programs that cut tensors, in both orders, until one is close to the bound. Three begin
/// with what is found for two of them, and the bound leaves one out: each instruction has there what is cheapest.
/// Axes inside cut as evenly as whole parts allow.
/// *Throws* `input_error` if the machines are not as many as the mesh's outer size, each with as many devices as its
/// inner axes; for pins and strategies of other numbers of axes; and for more than three.
/// *Returns* status and bound at the program's shares; the bound is zero if gradients overlap.
template <ratio_solver Solver>
[[nodiscard]] mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             Solver&& solver, mesh_search_options const& options = {}) {
    return detail::search_mesh(program, c, m, options, detail::solve_with(solver));
}

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/error.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/synthesis/three_axes_search.hpp>
#include <heddle/synthesis/two_axes_search.hpp>

namespace heddle::detail {

HEDDLE_INLINE mesh_search_result search_mesh(indexed_program const& program, cluster const& c, mesh const& m,
                                             mesh_search_options const& options, ratio_function const& solve) {
    auto const by = options.training.overlaps_gradients ? searches_by<overlapped>() : searches_by<serial>();
    if (m.axis_count() > 3) throw input_error("mesh", "is " + to_string(m) + ", expected at most three axes to search");
    if ((!options.strategy.empty() && options.strategy.size() != m.axis_count()) ||
        (m.axis_count() == 2 && !options.pinned[2].empty()))
        throw input_error("mesh", "is " + to_string(m) + ", expected as many axes as pins and strategies are of");
    if (m.axis_count() == 2) return two_axes_searcher(by, program, c, m, options, solve).run();
    return three_axes_searcher(by, program, c, m, options, solve).run();
}

} // namespace heddle::detail

#endif
