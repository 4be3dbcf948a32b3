// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Where the shards of tensors lie.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>

#include <map>
#include <numeric>
#include <vector>

namespace heddle::detail {

/// Places of a factor, [begin, begin + count).
struct place_range {
    extent begin = 0, count = 0;
};

/// What follows from where shards lie. A layout says, of a tensor `t` and a shard `f`, what shape the tensor has without
/// it, `whole_shape(t)`, what factor it names, `factor_of(t, f)`, and how many places of it each rank holds,
/// `places(t, f)`.
template <class Layout>
class shard_arithmetic {
public:
    [[nodiscard]] static extent begin_of(std::vector<extent> const& counts, std::size_t rank) {
        return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), extent{0});
    }
    /// Returns how many elements each rank's shard has.
    [[nodiscard]] std::vector<std::size_t> shard_sizes(tensor_id t, tensor_form f) const {
        std::vector<std::size_t> sizes;
        for (extent c : self().places(t, f))
            sizes.push_back(
                static_cast<std::size_t>(count_elements(part_shape(self().whole_shape(t), self().factor_of(t, f), c))));
        return sizes;
    }
    /// Returns the shape of what a rank holds.
    [[nodiscard]] tensor_shape held_shape(tensor_id t, tensor_form f, std::size_t rank) const {
        return f.is_shard() ? part_shape(self().whole_shape(t), self().factor_of(t, f), self().places(t, f)[rank])
                            : tensor_shape(self().whole_shape(t));
    }

    template <rank_tensor Tensor>
    [[nodiscard]] Tensor cut(tensor_id t, tensor_form f, Tensor const& whole, std::size_t rank) const {
        auto const counts = self().places(t, f);
        return take(whole, self().factor_of(t, f), begin_of(counts, rank), counts[rank]);
    }
    template <rank_tensor Tensor>
    [[nodiscard]] Tensor padded(tensor_id t, tensor_form f, Tensor const& part, std::size_t rank) const {
        auto const counts = self().places(t, f);
        return pad(part, self().whole_shape(t), self().factor_of(t, f), begin_of(counts, rank), counts[rank]);
    }

private:
    [[nodiscard]] Layout const& self() const { return static_cast<Layout const&>(*this); }
};

/// Holds the places of each factor that a plan gives each rank. It keeps references to what it is given.
class shard_layout : public shard_arithmetic<shard_layout> {
public:
    shard_layout(indexed_program const& program, plan const& p);

    [[nodiscard]] tensor_shape const& whole_shape(tensor_id t) const { return program_.tensors[t].info.shape; }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const {
        return program_.tensors[t].factors[static_cast<std::size_t>(f.factor())];
    }
    /// Returns how many places of a factor each rank holds.
    [[nodiscard]] std::vector<extent> places(tensor_id t, tensor_form f) const;

private:
    indexed_program const& program_;
    std::map<cut_factor, atom_class const*> cut_of_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE shard_layout::shard_layout(indexed_program const& program, plan const& p) : program_(program) {
    for (auto const& cut : p.cuts)
        for (auto const& m : cut.members) cut_of_[m] = &cut;
}

HEDDLE_INLINE std::vector<extent> shard_layout::places(tensor_id t, tensor_form f) const {
    auto const& cut = *cut_of_.at({t, f.factor()});
    extent const unit = factor_of(t, f).extent / cut.atoms;
    std::vector<extent> counts;
    for (extent c : cut.counts) counts.push_back(c * unit);
    return counts;
}

} // namespace heddle::detail

#endif
