// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the parts of tensors lie on a mesh, seen by one of its devices.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/product_form.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Calls `visit(form)` for each factor that a form cuts, once, outermost first.
template <class Visit>
void for_each_cut(product_form const& f, Visit&& visit) {
    for (auto at = f.begin(); at != f.end(); ++at)
        if (at->is_shard() && std::find(f.begin(), at, *at) == at) visit(*at);
}

/// Tells which part of each tensor a device of a mesh holds in a form. It keeps references to what it is given.
class mesh_layout {
public:
    using coordinates = heddle::mesh::coordinates;

    mesh_layout(indexed_program const& program, mesh_program const& p, std::size_t device);

    [[nodiscard]] heddle::mesh const& mesh() const { return what_.mesh; }
    /// Returns this device's place.
    [[nodiscard]] coordinates const& here() const { return here_; }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return program_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }
    /// Returns the places of a factor of the whole tensor that a device holds: each axis that cuts it divides the atoms
    /// that the axes outside left.
    [[nodiscard]] place_range range(tensor_id t, product_form const& f, tensor_form cut,
                                    coordinates const& place) const;
    /// Returns how many places of a factor the devices hold together that differ from one along some axes, of which
    /// those count that cut the factor.
    [[nodiscard]] extent count(tensor_id t, product_form const& f, tensor_form cut, coordinates place,
                               std::span<axis_number const> along = {}) const;
    /// Returns the shape of what this device holds.
    [[nodiscard]] tensor_shape held_shape(tensor_id t, product_form const& f) const;
    /// Returns this device's part of a whole tensor. *Precondition:* no axis has it partial.
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor cut(tensor_id t, product_form const& f, Tensor whole) const;

private:
    indexed_program const& program_;
    mesh_program const& what_;
    coordinates here_;
    std::map<cut_factor, atom_class const*> cut_of_;
};

/// A tensor as the devices of a line along an axis hold it together: their slice of it is the whole, and its shards are
/// those of this axis. It keeps references to what it is given.
class line_layout : public shard_arithmetic<line_layout> {
public:
    /// The tensor is in a form, and was gathered along some axes without regard to axes inside them.
    line_layout(indexed_program const& program, mesh_layout const& layout, tensor_id t, product_form const& f,
                axis_number axis, std::vector<axis_number> gathered = {});

    [[nodiscard]] tensor_shape const& whole_shape(tensor_id) const { return shape_; }
    [[nodiscard]] factor const& factor_of(tensor_id, tensor_form f) const {
        return factors_[static_cast<std::size_t>(f.factor())];
    }
    [[nodiscard]] std::vector<extent> places(tensor_id t, tensor_form f) const;

private:
    mesh_layout const& layout_;
    product_form form_;
    axis_number axis_;
    std::vector<axis_number> gathered_;
    tensor_shape shape_;
    std::vector<factor> factors_;
};

/// Restricts a tensor to some places of a factor, and its factors to what is left of them; of factors that overlap it,
/// nothing is left.
void restrict_to(tensor_shape& shape, std::vector<factor>& factors, factor_number number, extent count);

template <rank_tensor Tensor>
Tensor mesh_layout::cut(tensor_id t, product_form const& f, Tensor whole) const {
    auto factors = program_.tensors[t].factors;
    auto shape = program_.tensors[t].info.shape;
    auto so_far = product_form(f.size(), tensor_form::replicated());
    for (axis_number a = 0; a < f.size(); ++a) {
        if (!f[a].is_shard()) continue;
        extent const before = range(t, so_far, f[a], here_).begin;
        so_far = so_far.with(a, f[a]);
        auto const [begin, count] = range(t, so_far, f[a], here_);
        whole = take(whole, factors[static_cast<std::size_t>(f[a].factor())], begin - before, count);
        restrict_to(shape, factors, f[a].factor(), count);
    }
    return whole;
}

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE mesh_layout::mesh_layout(indexed_program const& program, mesh_program const& p, std::size_t device)
    : program_(program), what_(p), here_(p.mesh.place_of(device)) {
    for (auto const& cut : p.cuts)
        for (auto const& m : cut.members) cut_of_[m] = &cut;
}

HEDDLE_INLINE place_range mesh_layout::range(tensor_id t, product_form const& f, tensor_form cut,
                                             coordinates const& place) const {
    auto const& of = *cut_of_.at({t, cut.factor()});
    place_range atoms{0, of.atoms};
    for (axis_number a = 0; a < f.size(); ++a) {
        if (f[a] != cut) continue;
        auto const& counts = of.parts(a, atoms.count);
        atoms = {atoms.begin + shard_layout::begin_of(counts, place[a]), counts[place[a]]};
    }
    extent const unit = factor_of(t, cut).extent / of.atoms;
    return {atoms.begin * unit, atoms.count * unit};
}

HEDDLE_INLINE extent mesh_layout::count(tensor_id t, product_form const& f, tensor_form cut, coordinates place,
                                        std::span<axis_number const> along) const {
    if (along.empty()) return range(t, f, cut, place).count;
    axis_number const axis = along.front();
    if (f[axis] != cut) return count(t, f, cut, std::move(place), along.subspan(1));
    extent all = 0;
    for (place[axis] = 0; place[axis] < mesh().size(axis); ++place[axis])
        all += count(t, f, cut, place, along.subspan(1));
    return all;
}

HEDDLE_INLINE tensor_shape mesh_layout::held_shape(tensor_id t, product_form const& f) const {
    tensor_shape shape = program_.tensors[t].info.shape;
    for_each_cut(f, [&](tensor_form cut) { shape = part_shape(shape, factor_of(t, cut), count(t, f, cut, here_)); });
    return shape;
}

HEDDLE_INLINE void restrict_to(tensor_shape& shape, std::vector<factor>& factors, factor_number number, extent count) {
    auto const cut = factors[static_cast<std::size_t>(number)];
    if (count == cut.extent) return;
    shape = part_shape(shape, cut, count);
    for (auto& f : factors) f = within(f, cut, count);
    factors[static_cast<std::size_t>(number)].extent = count;
}

HEDDLE_INLINE line_layout::line_layout(indexed_program const& program, mesh_layout const& layout, tensor_id t,
                                       product_form const& f, axis_number axis, std::vector<axis_number> gathered)
    : layout_(layout), form_(f), axis_(axis), gathered_(std::move(gathered)), shape_(program.tensors[t].info.shape),
      factors_(program.tensors[t].factors) {
    auto along = gathered_;
    along.push_back(axis);
    for_each_cut(f, [&](tensor_form cut) {
        restrict_to(shape_, factors_, cut.factor(), layout.count(t, f, cut, layout.here(), along));
    });
}

HEDDLE_INLINE std::vector<extent> line_layout::places(tensor_id t, tensor_form f) const {
    std::vector<extent> counts;
    auto place = layout_.here();
    for (place[axis_] = 0; place[axis_] < layout_.mesh().size(axis_); ++place[axis_])
        counts.push_back(layout_.count(t, form_.with(axis_, f), f, place, gathered_));
    return counts;
}

} // namespace heddle::detail

#endif
