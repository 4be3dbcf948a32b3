// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a device of a group holds of the group's tensors, and how the group puts them together.
#pragma once

#include <heddle/cluster/inside.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/form.hpp>

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Returns the collective that carries a step inside a group. Steps to and from the first device alone are a
/// reduce-scatter that leaves the others nothing, and an all-to-all.
[[nodiscard]] constexpr collective carrier(inside_step kind) {
    switch (kind) {
    case inside_step::reduce:
    case inside_step::reduce_scatter: return collective::reduce_scatter;
    case inside_step::gather:
    case inside_step::scatter:
    case inside_step::all_to_all: return collective::all_to_all;
    case inside_step::broadcast: return collective::broadcast;
    case inside_step::all_gather: return collective::all_gather;
    case inside_step::all_reduce:
    case inside_step::none: break;
    }
    return collective::all_reduce;
}

/// The communicator of the devices of a group, if `Communicator` is that of a member. A single device has none, so any
/// type will do.
template <class Communicator>
struct devices_inside {
    using type = Communicator;
};
template <class Communicator>
    requires requires(Communicator& c) { c.inside(); }
struct devices_inside<Communicator> {
    using type = std::remove_reference_t<decltype(std::declval<Communicator&>().inside())>;
};

/// One device's end of its group. On a single device, which has no `inside`, everything here is the identity. Each
/// device has a contiguous range of the group's part of the factor that is cut inside; none has more than the first. It
/// keeps references to what it is given.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Inner>
class inside_exchange {
public:
    using tensor = Tensor;
    using scalar = typename Tensor::scalar_type;

    inside_exchange(indexed_program const& program, line_layout const& layout, std::size_t group, Inner* inside)
        : program_(program), layout_(layout), group_(group), inside_(inside && inside->size() > 1 ? inside : nullptr) {}

    [[nodiscard]] bool is_group() const { return inside_; }
    [[nodiscard]] bool is_first() const { return rank() == 0; }
    [[nodiscard]] bool is_cut(tensor_id t) const { return inside_ && program_.tensors[t].inside != no_factor; }

    /// Returns the places of the factor cut inside that this device holds, in the whole tensor: the first and their
    /// number.
    [[nodiscard]] std::pair<extent, extent> range(tensor_id t, tensor_form f) const {
        auto const [begin, count] = group_range(t, f);
        return {begin + begin_of(count, rank()), part_of(count, rank())};
    }
    /// Returns the shape of what this device holds.
    [[nodiscard]] tensor_shape held_shape(tensor_id t, tensor_form f) const {
        return is_cut(t) ? shape_of_part(t, f, rank()) : layout_.held_shape(t, f, group_);
    }

    /// Returns this device's part of the group's tensor.
    [[nodiscard]] tensor part(tensor_id t, tensor_form f, tensor whole) const {
        return is_cut(t) ? part(t, f, whole, rank()) : whole;
    }
    /// Returns the group's tensor with zeros outside this device's part.
    [[nodiscard]] tensor padded(tensor_id t, tensor_form f, tensor const& mine) const {
        extent const count = group_range(t, f).second;
        tensor whole(layout_.held_shape(t, f, group_));
        if (count > 0) put(whole, factor_inside(t, f), begin_of(count, rank()), part_of(count, rank()), mine);
        return whole;
    }

    /// Sends parts to the first device, which gets the group's tensor; other devices get nothing.
    [[nodiscard]] tensor gathered(tensor_id t, tensor_form f, tensor const& mine) {
        if (!is_cut(t)) return mine;
        auto const sizes = sizes_of_parts(t, f);
        auto const all = to_first(mine, sizes);
        return is_first() ? assembled(t, f, all, sizes) : tensor(tensor_shape{0});
    }
    /// Sends parts of the first device's tensor to all devices.
    [[nodiscard]] tensor scattered(tensor_id t, tensor_form f, tensor const& whole) {
        if (!is_cut(t)) return whole;
        auto const sizes = sizes_of_parts(t, f);
        tensor all(tensor_shape{is_first() ? static_cast<extent>(total_count(sizes)) : 0});
        for (std::size_t r = 0, begin = 0; is_first() && r < size(); begin += sizes[r++])
            tensor::copy(part(t, f, whole, r).flat(), all.flat().subspan(begin, sizes[r]));
        tensor mine(held_shape(t, f));
        from_first(all, mine, sizes);
        return mine;
    }
    /// Sends parts to all devices, which get the group's tensor.
    [[nodiscard]] tensor all_gathered(tensor_id t, tensor_form f, tensor const& mine) {
        if (!is_cut(t)) return mine;
        auto const sizes = sizes_of_parts(t, f);
        tensor all(tensor_shape{static_cast<extent>(total_count(sizes))});
        inside_->all_gather_v(mine.flat(), all.flat(), sizes, uneven::grouped);
        return assembled(t, f, all, sizes);
    }
    /// Returns the sum of all devices' tensors on the first device; what other devices get is meaningless.
    [[nodiscard]] tensor reduced(tensor value) {
        if (!inside_) return value;
        std::vector<std::size_t> counts(size(), 0);
        counts[0] = value.flat().size();
        tensor sum(is_first() ? tensor_shape(value.shape()) : tensor_shape{0});
        inside_->reduce_scatter_v(std::as_const(value).flat(), sum.flat(), counts, uneven::grouped);
        return is_first() ? sum : value;
    }
    [[nodiscard]] tensor all_reduced(tensor value) {
        if (inside_) inside_->all_reduce(value.flat());
        return value;
    }
    /// Returns the first device's tensor; the other devices pass only its shape.
    template <rank_tensor Any>
    [[nodiscard]] Any broadcast(Any value) {
        if (inside_) inside_->broadcast(value.flat(), 0);
        return value;
    }

    /// As above, for numbers: `counts` are by device.
    template <rank_tensor Any>
    [[nodiscard]] Any to_first(Any const& mine, std::vector<std::size_t> const& counts) {
        std::vector<std::size_t> const none(size(), 0);
        std::vector<std::size_t> sent(none);
        sent[0] = mine.flat().size();
        Any all(tensor_shape{is_first() ? static_cast<extent>(total_count(counts)) : 0});
        inside_->all_to_all_v(mine.flat(), sent, all.flat(), is_first() ? counts : none);
        return all;
    }
    template <rank_tensor Any>
    void from_first(Any const& all, Any& mine, std::vector<std::size_t> const& counts) {
        std::vector<std::size_t> const none(size(), 0);
        std::vector<std::size_t> received(none);
        received[0] = mine.flat().size();
        inside_->all_to_all_v(all.flat(), is_first() ? counts : none, mine.flat(), received);
    }
    /// Returns, for each device, how many numbers it has; this one has `mine`, and the others in proportion to their
    /// places of the factor cut inside.
    [[nodiscard]] std::vector<std::size_t> counts_like(tensor_id t, tensor_form f, std::size_t mine) const {
        extent const count = group_range(t, f).second, places = part_of(count, rank());
        std::vector<std::size_t> result;
        for (std::size_t r = 0; r < size(); ++r)
            result.push_back(places == 0 ? 0
                                         : mine / static_cast<std::size_t>(places) *
                                               static_cast<std::size_t>(part_of(count, r)));
        return result;
    }
    template <class Number>
    void broadcast(std::span<Number> data) {
        inside_->broadcast(data, 0);
    }
    template <class Number>
    void all_reduce(std::span<Number> data, reduction how) {
        inside_->all_reduce(data, how);
    }

private:
    [[nodiscard]] std::size_t rank() const { return inside_ ? static_cast<std::size_t>(inside_->rank()) : 0; }
    [[nodiscard]] std::size_t size() const { return inside_ ? static_cast<std::size_t>(inside_->size()) : 1; }

    [[nodiscard]] extent begin_of(extent count, std::size_t r) const {
        extent const n = static_cast<extent>(size());
        return (count * static_cast<extent>(r) + n - 1) / n;
    }
    [[nodiscard]] extent part_of(extent count, std::size_t r) const {
        return begin_of(count, r + 1) - begin_of(count, r);
    }

    [[nodiscard]] factor const& whole_factor(tensor_id t) const {
        auto const& indexed = program_.tensors[t];
        return indexed.factors[static_cast<std::size_t>(indexed.inside)];
    }
    [[nodiscard]] bool is_cut_across(tensor_id t, tensor_form f) const {
        return f.is_shard() && f.factor() == program_.tensors[t].inside;
    }
    /// Returns the places of the factor cut inside that the group has.
    [[nodiscard]] std::pair<extent, extent> group_range(tensor_id t, tensor_form f) const {
        if (!is_cut_across(t, f)) return {0, whole_factor(t).extent};
        auto const counts = layout_.places(t, f);
        return {layout_.begin_of(counts, group_), counts[group_]};
    }
    /// Returns the factor in the group's tensor.
    [[nodiscard]] factor factor_inside(tensor_id t, tensor_form f) const {
        factor result = whole_factor(t);
        if (is_cut_across(t, f)) result.extent = group_range(t, f).second;
        else if (f.is_shard()) result = within(result, layout_.factor_of(t, f), layout_.places(t, f)[group_]);
        return result;
    }
    [[nodiscard]] tensor part(tensor_id t, tensor_form f, tensor const& whole, std::size_t r) const {
        extent const count = group_range(t, f).second;
        return count == 0 ? whole : take(whole, factor_inside(t, f), begin_of(count, r), part_of(count, r));
    }
    [[nodiscard]] tensor_shape shape_of_part(tensor_id t, tensor_form f, std::size_t r) const {
        auto const whole = layout_.held_shape(t, f, group_);
        extent const count = group_range(t, f).second;
        return count == 0 ? whole : part_shape(whole, factor_inside(t, f), part_of(count, r));
    }
    [[nodiscard]] std::vector<std::size_t> sizes_of_parts(tensor_id t, tensor_form f) const {
        std::vector<std::size_t> sizes;
        for (std::size_t r = 0; r < size(); ++r)
            sizes.push_back(static_cast<std::size_t>(count_elements(shape_of_part(t, f, r))));
        return sizes;
    }
    [[nodiscard]] tensor assembled(tensor_id t, tensor_form f, tensor const& all,
                                   std::vector<std::size_t> const& sizes) const {
        tensor whole(layout_.held_shape(t, f, group_));
        extent const count = group_range(t, f).second;
        for (std::size_t r = 0, begin = 0; r < size() && count > 0; begin += sizes[r++])
            put(whole, factor_inside(t, f), begin_of(count, r), part_of(count, r), all.flat().subspan(begin, sizes[r]));
        return whole;
    }

    indexed_program const& program_;
    line_layout const& layout_;
    std::size_t group_;
    Inner* inside_;
};

} // namespace heddle::detail
