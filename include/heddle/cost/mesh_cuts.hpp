// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Atoms on a mesh: how each axis divides what the axes outside leave of a class.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/theory/mesh_instruction.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// Divides `atoms` of a class among the places on an axis.
using atom_division = std::function<std::vector<extent>(atom_class const& cut, axis_number axis, extent atoms)>;

/// Divides anew, on every axis inside the outermost, every number of atoms that the axes outside may leave, as
/// `divide(axis, atoms)` says, which may still ask for the axis's parts as they were.
template <class Divide>
void divide_inside(atom_class& cut, Divide&& divide) {
    std::set<extent> left(cut.counts.begin(), cut.counts.end()); // what some of the axes outside leave
    left.insert(cut.atoms);
    for (axis_number a = 1; a <= cut.inside.size(); ++a) {
        std::map<extent, std::vector<extent>> parts;
        for (extent atoms : left) parts.emplace(atoms, divide(a, atoms));
        for (auto const& [atoms, counts] : parts) left.insert(counts.begin(), counts.end());
        cut.inside[a - 1] = std::move(parts);
    }
}

/// Returns one class for each tie over all that the program shards on any axis, in the order of their first use, with
/// the parts of every number of atoms that axes outside may leave.
[[nodiscard]] std::vector<atom_class> mesh_cuts(indexed_program const& p, mesh const& m,
                                                std::span<mesh_instruction const> steps, atom_division const& divide);

/// As above; an axis apportions atoms by its ratios, `ratios[axis][segment]`.
[[nodiscard]] std::vector<atom_class> mesh_cuts(indexed_program const& p, mesh const& m,
                                                std::span<mesh_instruction const> steps,
                                                std::vector<ratio_table> const& ratios);

/// Returns ratios for every segment that are equal along every axis.
[[nodiscard]] std::vector<ratio_table> even_ratios(indexed_program const& p, mesh const& m);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<atom_class> mesh_cuts(indexed_program const& p, mesh const& m,
                                                std::span<mesh_instruction const> steps, atom_division const& divide) {
    std::vector<instruction> all;
    for (auto const& s : steps) all.insert(all.end(), s.axes.begin(), s.axes.end());
    auto cuts = atom_classes(p, all);
    for (auto& cut : cuts) {
        cut.counts = divide(cut, 0, cut.atoms);
        cut.inside.resize(m.axis_count() - 1);
        divide_inside(cut, [&](axis_number a, extent atoms) { return divide(cut, a, atoms); });
    }
    return cuts;
}

HEDDLE_INLINE std::vector<atom_class> mesh_cuts(indexed_program const& p, mesh const& m,
                                                std::span<mesh_instruction const> steps,
                                                std::vector<ratio_table> const& ratios) {
    return mesh_cuts(p, m, steps, [&](atom_class const& cut, axis_number axis, extent atoms) {
        return apportion(atoms, ratios.at(axis).at(cut.segment));
    });
}

HEDDLE_INLINE std::vector<ratio_table> even_ratios(indexed_program const& p, mesh const& m) {
    std::vector<ratio_table> ratios;
    for (auto size : m.sizes())
        ratios.emplace_back(segment_count(p), std::vector<double>(size, 1.0 / static_cast<double>(size)));
    return ratios;
}

} // namespace heddle

#endif
