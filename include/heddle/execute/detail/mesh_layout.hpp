// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the parts of tensors lie on the devices of a plan, which are a mesh of one or more axes.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/execute/tensor_part.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/product_form.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Calls `visit(form)` for each factor that a form cuts, once, outermost first.
template <class Visit>
void for_each_cut(product_form const& f, Visit&& visit) {
    for (auto at = f.begin(); at != f.end(); ++at)
        if (at->is_shard() && std::find(f.begin(), at, *at) == at) visit(*at);
}

/// Restricts a tensor to some places of a factor, and its factors to what is left of them; of factors that overlap it,
/// nothing is left.
void restrict_to(tensor_shape& shape, std::vector<factor>& factors, factor_number number, extent count);

/// Returns the form in which a rank stores a parameter that it reads in this one: on each axis a shard, or replicated.
[[nodiscard]] product_form stored_form(product_form read);

/// Tells which part of each tensor a device of a mesh holds in a form. It keeps references to what it is given.
class mesh_layout {
public:
    using coordinates = heddle::mesh::coordinates;

    mesh_layout(indexed_program const& program, std::span<atom_class const> cuts, heddle::mesh m, std::size_t device);

    [[nodiscard]] heddle::mesh const& mesh() const { return mesh_; }
    /// Returns this device's place.
    [[nodiscard]] coordinates const& here() const { return here_; }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return program_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }
    /// Returns the places of a factor of the whole tensor that a device holds: each axis that cuts it divides the atoms
    /// that the axes outside left.
    [[nodiscard]] place_range range(tensor_id t, product_form const& f, tensor_form cut,
                                    coordinates const& place) const;
    [[nodiscard]] place_range range(tensor_id t, product_form const& f, tensor_form cut) const {
        return range(t, f, cut, here_);
    }
    /// Returns how many places of a factor the devices hold together that differ from one along some axes, of which
    /// those count that cut the factor.
    [[nodiscard]] extent count(tensor_id t, product_form const& f, tensor_form cut, coordinates place,
                               std::span<axis_number const> along = {}) const;
    /// Returns the shape of what this device holds.
    [[nodiscard]] tensor_shape held_shape(tensor_id t, product_form const& f) const;
    /// Returns a factor of a tensor within what this device holds of it.
    [[nodiscard]] factor held_factor(tensor_id t, product_form const& f, factor of) const;
    /// Calls `visit(factor, begin, count)` for each step from a whole tensor to this device's part, which takes some
    /// places of a factor of what is left. *Precondition:* no axis has it partial.
    template <class Visit>
    void for_each_take(tensor_id t, product_form const& f, Visit&& visit) const {
        auto factors = program_.tensors[t].factors;
        auto shape = program_.tensors[t].info.shape;
        auto so_far = product_form(f.size(), tensor_form::replicated());
        for (axis_number a = 0; a < f.size(); ++a) {
            if (!f[a].is_shard()) continue;
            extent const before = range(t, so_far, f[a]).begin;
            so_far = so_far.with(a, f[a]);
            auto const [begin, count] = range(t, so_far, f[a]);
            visit(factors[static_cast<std::size_t>(f[a].factor())], begin - before, count);
            restrict_to(shape, factors, f[a].factor(), count);
        }
    }
    /// Returns this device's part of a whole tensor. *Precondition:* no axis has it partial.
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor cut(tensor_id t, product_form const& f, Tensor const& whole) const {
        std::optional<Tensor> part;
        for_each_take(t, f, [&](factor const& cut, extent begin, extent count) {
            part = take(part ? *part : whole, cut, begin, count);
        });
        return part ? std::move(*part) : whole;
    }
    /// Returns the places that this device's part has in the whole tensor. *Precondition:* no axis has it partial.
    [[nodiscard]] tensor_part part(tensor_id t, product_form const& f) const;

private:
    indexed_program const& program_;
    heddle::mesh mesh_;
    coordinates here_;
    std::map<cut_factor, atom_class const*> cut_of_;
};

/// Tensors as the devices of a line along an axis hold them together: their slice of one is a *view*, whose shards are
/// those of this axis. Whole tensors are views too, which have the tensors' numbers. It keeps references to what it is
/// given.
class line_layout {
public:
    line_layout(indexed_program const& program, mesh_layout const& layout, axis_number axis)
        : program_(program), layout_(layout), axis_(axis) {}

    /// Returns the view of a tensor in a form, which was gathered along some axes without regard to axes inside them.
    [[nodiscard]] tensor_id view(tensor_id t, product_form const& f, std::vector<axis_number> const& gathered = {});

    [[nodiscard]] element_type type(tensor_id v) const { return program_.tensors[tensor_of(v)].info.type; }
    [[nodiscard]] tensor_shape const& whole_shape(tensor_id v) const {
        return is_whole(v) ? program_.tensors[v].info.shape : slice(v).shape;
    }
    [[nodiscard]] factor const& factor_of(tensor_id v, tensor_form f) const {
        return (is_whole(v) ? program_.tensors[v].factors : slice(v).factors)[static_cast<std::size_t>(f.factor())];
    }
    /// Returns how many places of a factor each device of the line holds.
    [[nodiscard]] std::vector<extent> places(tensor_id v, tensor_form f) const;

    [[nodiscard]] static extent begin_of(std::vector<extent> const& counts, std::size_t rank) {
        return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), extent{0});
    }
    /// Returns how many elements each rank's shard has.
    [[nodiscard]] std::vector<std::size_t> shard_sizes(tensor_id v, tensor_form f) const {
        std::vector<std::size_t> sizes;
        for (extent c : places(v, f))
            sizes.push_back(static_cast<std::size_t>(count_elements(part_shape(whole_shape(v), factor_of(v, f), c))));
        return sizes;
    }
    /// Returns the shape of what a rank holds.
    [[nodiscard]] tensor_shape held_shape(tensor_id v, tensor_form f, std::size_t rank) const {
        return f.is_shard() ? part_shape(whole_shape(v), factor_of(v, f), places(v, f)[rank])
                            : tensor_shape(whole_shape(v));
    }
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor cut(tensor_id v, tensor_form f, Tensor const& whole, std::size_t rank) const {
        auto const counts = places(v, f);
        return take(whole, factor_of(v, f), begin_of(counts, rank), counts[rank]);
    }
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor padded(tensor_id v, tensor_form f, Tensor const& part, std::size_t rank) const {
        auto const counts = places(v, f);
        return pad(part, whole_shape(v), factor_of(v, f), begin_of(counts, rank), counts[rank]);
    }

private:
    struct slice_of {
        tensor_id tensor = 0;
        product_form form;
        std::vector<axis_number> gathered;
        tensor_shape shape;
        std::vector<factor> factors;
    };

    [[nodiscard]] bool is_whole(tensor_id v) const { return v < program_.tensors.size(); }
    [[nodiscard]] slice_of const& slice(tensor_id v) const { return slices_[v - program_.tensors.size()]; }
    [[nodiscard]] tensor_id tensor_of(tensor_id v) const { return is_whole(v) ? v : slice(v).tensor; }

    indexed_program const& program_;
    mesh_layout const& layout_;
    axis_number axis_;
    std::deque<slice_of> slices_;
    std::map<std::tuple<tensor_id, product_form, std::vector<axis_number>>, tensor_id> known_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE void restrict_to(tensor_shape& shape, std::vector<factor>& factors, factor_number number, extent count) {
    auto const cut = factors[static_cast<std::size_t>(number)];
    if (count == cut.extent) return;
    shape = part_shape(shape, cut, count);
    for (auto& f : factors) f = within(f, cut, count);
    factors[static_cast<std::size_t>(number)].extent = count;
}

HEDDLE_INLINE product_form stored_form(product_form read) {
    for (axis_number a = 0; a < read.size(); ++a)
        if (!read[a].is_shard()) read = read.with(a, tensor_form::replicated());
    return read;
}

HEDDLE_INLINE mesh_layout::mesh_layout(indexed_program const& program, std::span<atom_class const> cuts, heddle::mesh m,
                                       std::size_t device)
    : program_(program), mesh_(std::move(m)), here_(mesh_.place_of(device)) {
    for (auto const& cut : cuts)
        for (auto const& member : cut.members) cut_of_[member] = &cut;
}

HEDDLE_INLINE place_range mesh_layout::range(tensor_id t, product_form const& f, tensor_form cut,
                                             coordinates const& place) const {
    auto const& of = *cut_of_.at({t, cut.factor()});
    place_range atoms{0, of.atoms};
    for (axis_number a = 0; a < f.size(); ++a) {
        if (f[a] != cut) continue;
        auto const& counts = of.parts(a, atoms.count);
        atoms = {atoms.begin + line_layout::begin_of(counts, place[a]), counts[place[a]]};
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

HEDDLE_INLINE factor mesh_layout::held_factor(tensor_id t, product_form const& f, factor of) const {
    auto factors = program_.tensors[t].factors;
    tensor_shape shape = program_.tensors[t].info.shape;
    for_each_cut(f, [&](tensor_form cut) {
        extent const held = count(t, f, cut, here_);
        of = within(of, factors[static_cast<std::size_t>(cut.factor())], held);
        restrict_to(shape, factors, cut.factor(), held);
    });
    return of;
}

HEDDLE_INLINE tensor_part mesh_layout::part(tensor_id t, product_form const& f) const {
    auto result = tensor_part::whole(program_.tensors[t].info.shape);
    for_each_take(t, f,
                  [&](factor const& cut, extent begin, extent count) { result = result.take(cut, begin, count); });
    return result;
}

HEDDLE_INLINE tensor_id line_layout::view(tensor_id t, product_form const& f,
                                          std::vector<axis_number> const& gathered) {
    if (layout_.mesh().axis_count() == 1) return t;
    auto const number = static_cast<tensor_id>(program_.tensors.size() + slices_.size());
    auto const [known, is_new] = known_.try_emplace({t, f, gathered}, number);
    if (!is_new) return known->second;
    auto along = gathered;
    along.push_back(axis_);
    slice_of made{t, f, gathered, program_.tensors[t].info.shape, program_.tensors[t].factors};
    for_each_cut(f, [&](tensor_form cut) {
        restrict_to(made.shape, made.factors, cut.factor(), layout_.count(t, f, cut, layout_.here(), along));
    });
    slices_.push_back(std::move(made));
    return number;
}

HEDDLE_INLINE std::vector<extent> line_layout::places(tensor_id v, tensor_form f) const {
    auto const t = tensor_of(v);
    auto form = is_whole(v) ? product_form(layout_.mesh().axis_count(), tensor_form::replicated()) : slice(v).form;
    form = form.with(axis_, f);
    std::vector<extent> counts;
    auto place = layout_.here();
    for (place[axis_] = 0; place[axis_] < layout_.mesh().size(axis_); ++place[axis_])
        counts.push_back(layout_.count(t, form, f, place,
                                       is_whole(v) ? std::span<axis_number const>{} : std::span(slice(v).gathered)));
    return counts;
}

} // namespace heddle::detail

#endif
