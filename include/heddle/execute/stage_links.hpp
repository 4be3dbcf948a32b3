// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which ranks of other stages a rank exchanges what with.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/execute/tensor_part.hpp>
#include <heddle/program/indexed_program.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

/// A part of a tensor that two ranks of different stages have in common, as one of them sees it.
struct common_part {
    /// The other rank.
    std::size_t rank = 0;
    /// The ranges of each dimension of what this rank holds; empty if it is all of it.
    std::vector<std::vector<place_range>> ranges{};
};
/// What passes between this rank and others, by tensor and, of the parts of a micro-batch that take turns here, by the
/// number of the part. Messages of two ranks follow each other in this order.
using common_parts = std::map<std::pair<tensor_id, std::size_t>, std::vector<common_part>>;

/// A rank's ties to the ranks of other stages and of other copies of its stage.
struct stage_links {
    /// Values pass from earlier stages to later ones, and cotangents back.
    enum class way : std::uint8_t { values, cotangents };
    struct passing {
        common_parts sent, received;
    };

    [[nodiscard]] passing const& of(way w) const { return passings[static_cast<std::size_t>(w)]; }
    [[nodiscard]] passing& of(way w) { return passings[static_cast<std::size_t>(w)]; }

    std::array<passing, 2> passings;
    /// How many parts of a micro-batch take turns in its stage.
    std::size_t turns = 1;
    /// The ranks that hold the same part of its stage, one of each copy; this rank is among them.
    std::vector<std::size_t> copies;
    /// Of each trained parameter that several stages use: all ranks of these stages.
    std::map<tensor_id, std::vector<std::size_t>> shared{};
    /// Tells whether this is the first rank of its stage, which speaks for it, and of which parameters it is the stage
    /// that counts.
    bool is_first = true;
    std::vector<bool> counts_here;
};

namespace detail {

/// Calls `visit(sender, receiver)`, both positions in the lists, for each message that brings every receiver its part
/// of a tensor of which each sender has a part. Those that have the same part serve receivers in turn. Ranks without a
/// part take no part.
template <class Visit>
void for_each_message(std::span<std::optional<tensor_part> const> senders,
                      std::span<std::optional<tensor_part> const> receivers, Visit&& visit) {
    std::map<tensor_part, std::vector<std::size_t>> holders;
    for (std::size_t s = 0; s < senders.size(); ++s)
        if (senders[s]) holders[*senders[s]].push_back(s);
    for (std::size_t r = 0; r < receivers.size(); ++r)
        for (auto const& [part, who] : holders)
            if (receivers[r] && count_common(part, *receivers[r]) > 0) visit(who[r % who.size()], r);
}

/// Returns what a rank that holds `mine` and another one that holds `theirs` have in common.
[[nodiscard]] common_part common_with(std::size_t rank, tensor_part const& mine, tensor_part const& theirs);

/// Returns the elements of a tensor in some ranges of each dimension.
template <rank_tensor Tensor>
[[nodiscard]] Tensor elements_in(Tensor x, std::vector<std::vector<place_range>> const& ranges) {
    for (std::size_t d = 0; d < ranges.size(); ++d) {
        auto const all = x.shape();
        extent left = 0;
        for (auto const& r : ranges[d]) left += r.count;
        if (left == all[d]) continue;
        auto const dimension = static_cast<std::uint16_t>(d);
        factor const whole{dimension, all[d]}, part{dimension, left};
        Tensor taken(part_shape(all, whole, left));
        extent at = 0;
        for (auto const& r : ranges[d]) {
            put(taken, part, at, r.count, take(x, whole, r.begin, r.count));
            at += r.count;
        }
        x = std::move(taken);
    }
    return x;
}
/// Returns a tensor of this shape that is zero but for these elements, which undoes `elements_in`.
template <rank_tensor Tensor>
[[nodiscard]] Tensor spread_over(tensor_shape const& shape, std::vector<std::vector<place_range>> const& ranges,
                                 Tensor x) {
    for (std::size_t d = 0; d < ranges.size(); ++d) {
        auto larger = x.shape();
        if (larger[d] == shape[d]) continue;
        auto const dimension = static_cast<std::uint16_t>(d);
        factor const part{dimension, larger[d]}, whole{dimension, shape[d]};
        larger[d] = shape[d];
        Tensor spread(larger);
        extent at = 0;
        for (auto const& r : ranges[d]) {
            put(spread, whole, r.begin, r.count, take(x, part, at, r.count));
            at += r.count;
        }
        x = std::move(spread);
    }
    return x;
}
/// Returns the shape of the elements in some ranges of a tensor of this shape.
[[nodiscard]] tensor_shape shape_in(tensor_shape shape, std::vector<std::vector<place_range>> const& ranges);

} // namespace detail

/// Returns the links of a rank of a plan that is the only stage: it has none.
[[nodiscard]] inline stage_links links_of_only_stage(indexed_program const& p) {
    stage_links links;
    links.counts_here.assign(p.tensors.size(), true);
    return links;
}
/// Returns the links of a rank of a pipeline plan, whose stages hand values on mirrored. `p` is the program that the
/// layout is of.
[[nodiscard]] stage_links links_of(indexed_program const& p, pipeline_layout const& layout, std::size_t rank);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/pipeline/layers.hpp>

namespace heddle::detail {

HEDDLE_INLINE common_part common_with(std::size_t rank, tensor_part const& mine, tensor_part const& theirs) {
    common_part result{rank};
    if (count_common(mine, theirs) == mine.elements()) return result;
    for (std::size_t d = 0; d < mine.dimensions.size(); ++d) {
        auto& ranges = result.ranges.emplace_back();
        for (auto const& common : common_ranges(mine.dimensions[d], theirs.dimensions[d]))
            ranges.push_back({common.in_first, common.count});
    }
    return result;
}

HEDDLE_INLINE tensor_shape shape_in(tensor_shape shape, std::vector<std::vector<place_range>> const& ranges) {
    for (std::size_t d = 0; d < ranges.size(); ++d) {
        shape[d] = 0;
        for (auto const& r : ranges[d]) shape[d] += r.count;
    }
    return shape;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE stage_links links_of(indexed_program const& p, pipeline_layout const& layout, std::size_t rank) {
    using way = stage_links::way;
    auto const at = layout.place_of(rank);
    auto const whole = [&](std::size_t stage) { // every device has all of it
        return std::vector<std::optional<tensor_part>>(layout.degree(stage), tensor_part{});
    };
    stage_links links;
    auto const pass = [&](std::size_t from, std::size_t to, way w) {
        auto const crossing = values_across(p, layout.operators(std::max(from, to)).first);
        detail::for_each_message(whole(from), whole(to), [&](std::size_t s, std::size_t r) {
            auto const sender = layout.rank({from, at.copy, s}), receiver = layout.rank({to, at.copy, r});
            for (auto t : crossing) {
                if (w == way::cotangents && !p.tensors[t].has_cotangent) continue;
                if (sender == rank) links.of(w).sent[{t, 0}].push_back({receiver});
                if (receiver == rank) links.of(w).received[{t, 0}].push_back({sender});
            }
        });
    };
    for (std::size_t s = at.stage == 0 ? 1 : at.stage; s < layout.stages() && s <= at.stage + 1; ++s) {
        pass(s - 1, s, way::values);
        pass(s, s - 1, way::cotangents);
    }
    for (std::size_t copy = 0; copy < layout.copies(); ++copy)
        links.copies.push_back(layout.rank({at.stage, copy, at.part}));
    links.is_first = at.copy == 0 && at.part == 0;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        std::vector<std::size_t> users;
        for (auto o : p.tensors[t].consumers)
            if (auto const s = layout.stage_of(o); users.empty() || users.back() != s) users.push_back(s);
        links.counts_here.push_back(at.copy == 0 && !users.empty() && users.front() == at.stage);
        if (users.size() < 2 || !p.tensors[t].is_parameter() || !p.tensors[t].has_cotangent) continue;
        for (auto const s : users)
            for (std::size_t copy = 0; copy < layout.copies(); ++copy)
                for (std::size_t part = 0; part < layout.degree(s); ++part)
                    links.shared[t].push_back(layout.rank({s, copy, part}));
    }
    return links;
}

} // namespace heddle

#endif
