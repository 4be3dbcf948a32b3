// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks of a communicator turn tensors of a plan from one form into another.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/shard_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// One rank's end of the collectives on tensors; the shards of a factor travel one after the other. It keeps references
/// to what it is given.
template <class Scalar, communicator_of<Scalar> Communicator>
class tensor_exchange {
public:
    using tensor = dense_tensor<Scalar>;

    tensor_exchange(indexed_program const& program, shard_layout const& layout, Communicator& communicator)
        : program_(program), layout_(layout), communicator_(communicator) {}

    /// Counts what follows as of this tensor's elements.
    void count_as(tensor_id t) {
        if constexpr (requires { communicator_.charge_elements_as(std::size_t{}); })
            communicator_.charge_elements_as(static_cast<std::size_t>(element_size(program_.tensors[t].info.type)));
    }
    /// Tells whether there is nobody to exchange anything with; otherwise counts what follows as of this tensor's
    /// elements.
    [[nodiscard]] bool is_alone(tensor_id t) {
        count_as(t);
        return communicator_.size() == 1;
    }
    [[nodiscard]] tensor reduced(tensor_id t, tensor value) {
        if (!is_alone(t)) communicator_.all_reduce(std::span<Scalar>(value.data));
        return value;
    }
    /// Returns the sums of several tensors of one element type by one collective; `tensors` says which they are.
    [[nodiscard]] std::vector<tensor> reduced_together(std::span<tensor_id const> tensors, std::vector<tensor> values) {
        if (is_alone(tensors.front())) return values;
        std::vector<Scalar> all;
        for (auto const& v : values) all.insert(all.end(), v.data.begin(), v.data.end());
        communicator_.all_reduce(std::span<Scalar>(all));
        auto from = all.begin();
        for (auto& v : values) {
            auto const next = from + static_cast<std::ptrdiff_t>(v.data.size());
            std::copy(from, next, v.data.begin());
            from = next;
        }
        return values;
    }
    /// As `scattered`, for several tensors, each to the shards of its form. Each padded shard is padded by itself.
    [[nodiscard]] std::vector<tensor> scattered_together(std::span<tensor_id const> tensors,
                                                         std::span<tensor_form const> forms, std::vector<tensor> wholes,
                                                         uneven how) {
        if (is_alone(tensors.front())) return wholes;
        std::size_t const ranks = communicator_.size(), rank = communicator_.rank();
        std::vector<std::vector<std::size_t>> sizes;
        for (std::size_t k = 0; k < tensors.size(); ++k) {
            sizes.push_back(layout_.shard_sizes(tensors[k], forms[k]));
            if (how == uneven::padded) algorithm::fill(sizes.back(), algorithm::max(sizes.back()));
        }
        std::vector<std::size_t> counts(ranks);
        std::vector<Scalar> flat;
        for (std::size_t r = 0; r < ranks; ++r)
            for (std::size_t k = 0; k < tensors.size(); ++k) {
                auto const places = layout_.places(tensors[k], forms[k]);
                auto const piece =
                    take(wholes[k], factor_of(tensors[k], forms[k]), layout_.begin_of(places, r), places[r]);
                flat.insert(flat.end(), piece.data.begin(), piece.data.end());
                flat.resize(flat.size() + sizes[k][r] - piece.data.size());
                counts[r] += sizes[k][r];
            }
        std::vector<Scalar> mine(counts[rank]);
        communicator_.reduce_scatter_v(std::span<Scalar const>(flat), std::span<Scalar>(mine), counts, how);
        std::vector<tensor> parts;
        auto from = mine.begin();
        for (std::size_t k = 0; k < tensors.size(); ++k) {
            auto& part = parts.emplace_back(part_shape(whole_shape(tensors[k]), factor_of(tensors[k], forms[k]),
                                                       layout_.places(tensors[k], forms[k])[rank]));
            std::copy_n(from, part.data.size(), part.data.begin());
            from += static_cast<std::ptrdiff_t>(sizes[k][rank]);
        }
        return parts;
    }
    [[nodiscard]] tensor gathered(tensor_id t, tensor_form f, tensor const& part, uneven how) {
        if (is_alone(t)) return part;
        auto const counts = layout_.places(t, f);
        auto const sizes = layout_.shard_sizes(t, f);
        tensor flat(tensor_shape{count_elements(whole_shape(t))});
        communicator_.all_gather_v(std::span<Scalar const>(part.data), std::span<Scalar>(flat.data), sizes, how);
        tensor whole(whole_shape(t));
        auto from = flat.data.begin();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const next = from + static_cast<std::ptrdiff_t>(sizes[r]);
            tensor const piece(part_shape(whole.dims, factor_of(t, f), counts[r]), std::vector<Scalar>(from, next));
            put(whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r], piece);
            from = next;
        }
        return whole;
    }
    [[nodiscard]] tensor scattered(tensor_id t, tensor_form f, tensor const& whole, uneven how) {
        if (is_alone(t)) return whole;
        auto const counts = layout_.places(t, f);
        auto const sizes = layout_.shard_sizes(t, f);
        std::vector<Scalar> flat;
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const piece = take(whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r]);
            flat.insert(flat.end(), piece.data.begin(), piece.data.end());
        }
        tensor part(part_shape(whole_shape(t), factor_of(t, f), counts[communicator_.rank()]));
        communicator_.reduce_scatter_v(std::span<Scalar const>(flat), std::span<Scalar>(part.data), sizes, how);
        return part;
    }
    [[nodiscard]] tensor exchanged(tensor_id t, tensor_form from, tensor_form to, tensor const& part) {
        if (is_alone(t)) return part;
        auto const rank = communicator_.rank();
        auto const &f = factor_of(t, from), &g = factor_of(t, to);
        auto const before = layout_.places(t, from), after = layout_.places(t, to);
        if (is_same_place(f, g)) return redistributed(t, f, before, after, part);
        bool const has_pieces = !f.widths.empty() || !g.widths.empty();
        if (f.dimension == g.dimension && has_pieces) return rearranged(t, f, g, before, after, part);
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const piece = part.data.empty()
                                   ? tensor(tensor_shape{0})
                                   : take(part, within(g, f, before[rank]), layout_.begin_of(after, r), after[r]);
            send_sizes.push_back(piece.data.size());
            send.insert(send.end(), piece.data.begin(), piece.data.end());
            auto const theirs = part_shape(whole_shape(t), f, before[r]);
            bool const nothing = before[r] == 0;
            receive_sizes.push_back(nothing ? 0
                                            : static_cast<std::size_t>(count_elements(
                                                  part_shape(theirs, within(g, f, before[r]), after[rank]))));
        }
        tensor result(part_shape(whole_shape(t), g, after[rank]));
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive),
                                   receive_sizes);
        auto at = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const local = within(f, g, after[rank]);
            auto const next = at + static_cast<std::ptrdiff_t>(receive_sizes[r]);
            if (at != next)
                put(result, local, layout_.begin_of(before, r), before[r],
                    tensor(part_shape(result.dims, local, before[r]), std::vector<Scalar>(at, next)));
            at = next;
        }
        return result;
    }
    /// Moves to another factor of the same dimension, of which one has pieces: each rank sends the positions that it has
    /// and others will have.
    [[nodiscard]] tensor rearranged(tensor_id t, factor const& f, factor const& g, std::vector<extent> const& before,
                                    std::vector<extent> const& after, tensor const& part) {
        auto const rank = communicator_.rank();
        auto const held = [&](factor const& by, std::vector<extent> const& counts, std::size_t r) {
            return positions_of(whole_shape(t)[by.dimension], by, layout_.begin_of(counts, r), counts[r]);
        };
        auto const mine = held(f, before, rank), now = held(g, after, rank);
        tensor result(part_shape(whole_shape(t), g, after[rank]));
        // Calls `visit(at, length)` for each run of elements of a part that lies at positions that another has too.
        auto const for_each_common = [&](tensor_shape const& dims, std::vector<extent> const& positions,
                                         std::vector<extent> const& others, auto&& visit) {
            extent inner = 1, outer = 1;
            for (std::size_t d = 0; d < dims.size(); ++d)
                if (d != f.dimension) (d < f.dimension ? outer : inner) *= dims[d];
            auto const size = static_cast<extent>(positions.size());
            for (extent o = 0; o < outer; ++o)
                for (extent p = 0; p < size; ++p)
                    if (std::ranges::binary_search(others, positions[static_cast<std::size_t>(p)]))
                        visit((o * size + p) * inner, inner);
        };
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            std::size_t const had = send.size();
            for_each_common(part.dims, mine, held(g, after, r), [&](extent at, extent length) {
                send.insert(send.end(), part.data.begin() + at, part.data.begin() + at + length);
            });
            send_sizes.push_back(send.size() - had);
            receive_sizes.push_back(0);
            for_each_common(result.dims, now, held(f, before, r),
                            [&](extent, extent length) { receive_sizes.back() += static_cast<std::size_t>(length); });
        }
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive),
                                   receive_sizes);
        auto from = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r)
            for_each_common(result.dims, now, held(f, before, r), [&](extent at, extent length) {
                std::copy_n(from, length, result.data.begin() + at);
                from += length;
            });
        return result;
    }
    /// Moves the same factor to other places: each rank sends what others have of its part from now on.
    [[nodiscard]] tensor redistributed(tensor_id t, factor const& f, std::vector<extent> const& before,
                                       std::vector<extent> const& after, tensor const& part) {
        if (before == after) return part;
        auto const rank = communicator_.rank();
        struct range {
            extent begin, count;
        };
        auto mine = f, now = f; // as they are in this rank's parts
        mine.extent = before[rank];
        now.extent = after[rank];
        // Returns what rank r has before that rank s has after.
        auto const common = [&](std::size_t r, std::size_t s) {
            extent const from = layout_.begin_of(before, r), to = layout_.begin_of(after, s);
            extent const begin = std::max(from, to), end = std::min(from + before[r], to + after[s]);
            return range{begin, std::max<extent>(0, end - begin)};
        };
        std::vector<std::size_t> send_sizes, receive_sizes;
        std::vector<Scalar> send;
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const given = common(rank, r);
            if (given.count > 0) {
                auto const piece = take(part, mine, given.begin - layout_.begin_of(before, rank), given.count);
                send.insert(send.end(), piece.data.begin(), piece.data.end());
            }
            send_sizes.push_back(send.size());
            receive_sizes.push_back(
                static_cast<std::size_t>(count_elements(part_shape(whole_shape(t), f, common(r, rank).count))));
        }
        std::adjacent_difference(send_sizes.begin(), send_sizes.end(), send_sizes.begin());
        tensor result(part_shape(whole_shape(t), f, after[rank]));
        std::vector<Scalar> receive(result.data.size());
        communicator_.all_to_all_v(std::span<Scalar const>(send), send_sizes, std::span<Scalar>(receive),
                                   receive_sizes);
        auto at = receive.begin();
        for (std::size_t r = 0; r < before.size(); ++r) {
            auto const got = common(r, rank);
            auto const next = at + static_cast<std::ptrdiff_t>(receive_sizes[r]);
            if (at != next)
                put(result, now, got.begin - layout_.begin_of(after, rank), got.count,
                    tensor(part_shape(result.dims, now, got.count), std::vector<Scalar>(at, next)));
            at = next;
        }
        return result;
    }
    [[nodiscard]] tensor scaled(tensor t) const {
        t *= Scalar{1} / static_cast<Scalar>(communicator_.size());
        return t;
    }

    [[nodiscard]] tensor convert(tensor_id t, tensor_form from, tensor_form to, tensor const& value, uneven how) {
        if (to == tensor_form::partial()) return scaled(value);
        if (from == tensor_form::partial()) return to.is_shard() ? scattered(t, to, value, how) : reduced(t, value);
        if (from.is_shard()) return to.is_shard() ? exchanged(t, from, to, value) : gathered(t, from, value, how);
        return to.is_shard() ? cut(t, to, value) : value;
    }

    /// Computes the adjoint of a conversion, on cotangents in the dual forms.
    [[nodiscard]] tensor transpose(tensor_id t, tensor_form from, tensor_form to, tensor const& cotangent, uneven how) {
        if (from.is_shard()) {
            if (to.is_shard()) return exchanged(t, to, from, cotangent);
            return to == tensor_form::replicated() ? scattered(t, from, cotangent, how) : cut(t, from, cotangent);
        }
        if (to.is_shard())
            return from == tensor_form::replicated() ? layout_.padded(t, to, cotangent, communicator_.rank())
                                                     : gathered(t, to, cotangent, how);
        // Between whole forms: if the value is replicated the cotangents are summands; otherwise each is the whole
        // cotangent.
        if (from == tensor_form::replicated()) return scaled(cotangent);
        return to == tensor_form::replicated() ? reduced(t, cotangent) : cotangent;
    }

private:
    [[nodiscard]] tensor_shape const& whole_shape(tensor_id t) const { return layout_.whole_shape(t); }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const { return layout_.factor_of(t, f); }
    [[nodiscard]] tensor cut(tensor_id t, tensor_form f, tensor const& whole) const {
        return layout_.cut(t, f, whole, communicator_.rank());
    }

    indexed_program const& program_;
    shard_layout const& layout_;
    Communicator& communicator_;
};

} // namespace heddle::detail
