// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The ranks of a line turn tensors of a plan from one form into another.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/held.hpp>
#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <concepts>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace heddle::detail {

/// One rank's end of the collectives on tensors, which are views of the layout; the shards of a factor travel one after
/// the other. Collectives are started; what they bring is waited for where it is used. It keeps references to what it
/// is given.
template <rank_tensor Tensor, communicator_of<typename Tensor::scalar_type> Communicator>
class tensor_exchange {
public:
    using scalar = typename Tensor::scalar_type;
    using start = starter<scalar, Communicator>;
    using request = typename start::request;
    using tensor = held<Tensor>;
    using result = arriving<tensor, request>;

    tensor_exchange(line_layout const& layout, Communicator& communicator)
        : layout_(layout), communicator_(communicator) {}

    /// Counts what follows as of this tensor's elements.
    void count_as(tensor_id t) {
        if constexpr (requires { communicator_.charge_elements_as(std::size_t{}); })
            communicator_.charge_elements_as(static_cast<std::size_t>(element_size(layout_.type(t))));
    }
    /// Tells whether there is nobody to exchange anything with; otherwise counts what follows as of this tensor's
    /// elements.
    [[nodiscard]] bool is_alone(tensor_id t) {
        count_as(t);
        return communicator_.size() == 1;
    }

    [[nodiscard]] result reduced(tensor_id t, tensor value) {
        if (is_alone(t)) return value;
        if constexpr (is_narrow)
            if (is_whole(t)) return in_wide(t, value, [&](auto& all, auto x) { return all.reduced(t, x); });
        auto const data = value.own().flat();
        auto started = start::all_reduce(communicator_, data);
        return {std::move(started), [value = std::move(value)] { return value; }};
    }
    [[nodiscard]] result gathered(tensor_id t, tensor_form f, tensor part, uneven how) {
        if (is_alone(t)) return part;
        if constexpr (is_narrow)
            if (is_whole(t)) return in_wide(t, part, [&](auto& all, auto x) { return all.gathered(t, f, x, how); });
        auto const sizes = layout_.shard_sizes(t, f);
        bool const in_place =
            is_major(whole_shape(t), factor_of(t, f)); // the shards, one after the other, are the whole
        tensor flat(Tensor(in_place ? whole_shape(t) : tensor_shape{count_elements(whole_shape(t))}));
        auto started = start::all_gather_v(communicator_, part->flat(), flat.own().flat(), sizes, how);
        if (in_place) return {std::move(started), [part = std::move(part), flat = std::move(flat)] { return flat; }};
        return {std::move(started), [this, t, f, sizes, part = std::move(part), flat = std::move(flat)]() -> tensor {
                    Tensor whole(whole_shape(t));
                    auto const counts = layout_.places(t, f);
                    for (std::size_t r = 0, at = 0; r < counts.size(); at += sizes[r++])
                        put(whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r],
                            flat->flat().subspan(at, sizes[r]));
                    return whole;
                }};
    }
    [[nodiscard]] result scattered(tensor_id t, tensor_form f, tensor whole, uneven how) {
        if (is_alone(t)) return whole;
        if constexpr (is_narrow)
            if (is_whole(t)) return in_wide(t, whole, [&](auto& all, auto x) { return all.scattered(t, f, x, how); });
        auto const sizes = layout_.shard_sizes(t, f);
        if (!is_major(whole_shape(t), factor_of(t, f))) {
            Tensor flat(tensor_shape{count_elements(whole_shape(t))});
            auto const counts = layout_.places(t, f);
            for (std::size_t r = 0, at = 0; r < counts.size(); at += sizes[r++])
                take(*whole, factor_of(t, f), layout_.begin_of(counts, r), counts[r],
                     flat.flat().subspan(at, sizes[r]));
            whole = std::move(flat);
        }
        tensor part(Tensor(layout_.held_shape(t, f, communicator_.rank())));
        auto started = start::reduce_scatter_v(communicator_, whole->flat(), part.own().flat(), sizes, how);
        return {std::move(started), [whole = std::move(whole), part = std::move(part)] { return part; }};
    }
    [[nodiscard]] result exchanged(tensor_id t, tensor_form from, tensor_form to, tensor part) {
        if (is_alone(t)) return part;
        if constexpr (is_narrow)
            if (is_whole(t)) return in_wide(t, part, [&](auto& all, auto x) { return all.exchanged(t, from, to, x); });
        auto const &f = factor_of(t, from), &g = factor_of(t, to);
        auto const before = layout_.places(t, from), after = layout_.places(t, to);
        bool const has_pieces = !f.widths.empty() || !g.widths.empty();
        if (is_same_place(f, g))
            return before == after ? result(part) : sent(t, g, after, part, common_places(f, before, after));
        if (f.dimension == g.dimension && has_pieces)
            return sent(t, g, after, part, common_positions(whole_shape(t)[f.dimension], f, g, before, after));
        return sent(t, g, after, part, crossing_places(f, g, before, after));
    }

    /// Several tensors of one element type that one collective reduces.
    using results = std::shared_ptr<arriving<std::vector<tensor>, request>>;
    /// `tensors` says which they are.
    [[nodiscard]] results reduced_together(std::span<tensor_id const> tensors, std::vector<tensor> values) {
        if (is_alone(tensors.front())) return there(std::move(values));
        extent all = 0;
        for (auto const& v : values) all += v->elements();
        tensor flat(Tensor(tensor_shape{all}));
        auto const data = flat.own().flat();
        for_each_span(data, values, [](auto const& v, auto at) { Tensor::copy(v->flat(), at); });
        auto started = start::all_reduce(communicator_, data);
        return std::make_shared<arriving<std::vector<tensor>, request>>(
            std::move(started), [flat = std::move(flat), values = std::move(values)]() mutable {
                for_each_span(flat->flat(), values, [](auto& v, auto at) { Tensor::copy(at, v.own().flat()); });
                return std::move(values);
            });
    }
    /// As `scattered`, each to the shards of its form. Each padded shard is padded by itself.
    [[nodiscard]] results scattered_together(std::span<tensor_id const> tensors, std::span<tensor_form const> forms,
                                             std::vector<tensor> wholes, uneven how) {
        if (is_alone(tensors.front())) return there(std::move(wholes));
        std::size_t const ranks = communicator_.size(), rank = communicator_.rank();
        std::vector<std::vector<std::size_t>> shards, sizes;
        for (std::size_t k = 0; k < tensors.size(); ++k) {
            shards.push_back(layout_.shard_sizes(tensors[k], forms[k]));
            sizes.push_back(shards.back());
            if (how == uneven::padded) algorithm::fill(sizes.back(), algorithm::max(sizes.back()));
        }
        std::vector<std::size_t> counts(ranks);
        for (auto const& of : sizes)
            for (std::size_t r = 0; r < ranks; ++r) counts[r] += of[r];
        tensor flat(Tensor(tensor_shape{static_cast<extent>(total_count(counts))})),
            mine(Tensor(tensor_shape{static_cast<extent>(counts[rank])}));
        for (std::size_t r = 0, at = 0; r < ranks; ++r)
            for (std::size_t k = 0; k < tensors.size(); at += sizes[k++][r]) {
                auto const places = layout_.places(tensors[k], forms[k]);
                take(*wholes[k], factor_of(tensors[k], forms[k]), layout_.begin_of(places, r), places[r],
                     flat.own().flat().subspan(at, shards[k][r]));
            }
        std::vector<tensor> parts;
        for (std::size_t k = 0; k < tensors.size(); ++k)
            parts.emplace_back(Tensor(layout_.held_shape(tensors[k], forms[k], rank)));
        auto started = start::reduce_scatter_v(communicator_, flat->flat(), mine.own().flat(), counts, how);
        return std::make_shared<arriving<std::vector<tensor>, request>>(
            std::move(started),
            [rank, sizes, flat = std::move(flat), mine = std::move(mine), parts = std::move(parts)]() mutable {
                for (std::size_t k = 0, at = 0; k < parts.size(); at += sizes[k++][rank]) {
                    auto const part = parts[k].own().flat();
                    Tensor::copy(mine->flat().subspan(at, part.size()), part);
                }
                return std::move(parts);
            });
    }

    [[nodiscard]] tensor scaled(tensor t) const {
        t.own() *= host_number<Tensor>{1} / static_cast<host_number<Tensor>>(communicator_.size());
        return t;
    }

    [[nodiscard]] result convert(tensor_id t, tensor_form from, tensor_form to, tensor value, uneven how) {
        if (to == tensor_form::partial()) return scaled(std::move(value));
        if (from == tensor_form::partial())
            return to.is_shard() ? scattered(t, to, std::move(value), how) : reduced(t, std::move(value));
        if (from.is_shard())
            return to.is_shard() ? exchanged(t, from, to, std::move(value)) : gathered(t, from, std::move(value), how);
        return to.is_shard() ? cut(t, to, *value) : value;
    }

    /// Computes the adjoint of a conversion, on cotangents in the dual forms.
    [[nodiscard]] result transpose(tensor_id t, tensor_form from, tensor_form to, tensor cotangent, uneven how) {
        if (from.is_shard()) {
            if (to.is_shard()) return exchanged(t, to, from, std::move(cotangent));
            return to == tensor_form::replicated() ? scattered(t, from, std::move(cotangent), how)
                                                   : result(cut(t, from, *cotangent));
        }
        if (to.is_shard())
            return from == tensor_form::replicated() ? result(layout_.padded(t, to, *cotangent, communicator_.rank()))
                                                     : gathered(t, to, std::move(cotangent), how);
        // Between whole forms: if the value is replicated the cotangents are summands; otherwise each is the whole
        // cotangent.
        if (from == tensor_form::replicated()) return scaled(std::move(cotangent));
        return to == tensor_form::replicated() ? reduced(t, std::move(cotangent)) : result(cotangent);
    }

private:
    /// Whole numbers, for which the scalars may have too few bits, travel in the wide type.
    static constexpr bool is_narrow = !std::same_as<wide_of<Tensor>, Tensor>;
    [[nodiscard]] bool is_whole(tensor_id t) const { return !is_floating(layout_.type(t)); }
    template <class Work>
    [[nodiscard]] result in_wide(tensor_id t, tensor const& x, Work&& work) {
        using wide_exchange = tensor_exchange<wide_of<Tensor>, Communicator>;
        auto const wide = std::make_shared<wide_exchange>(layout_, communicator_);
        auto const arriving =
            std::make_shared<typename wide_exchange::result>(work(*wide, held<wide_of<Tensor>>(wide_of<Tensor>(*x))));
        return {request{},
                [wide, arriving, type = layout_.type(t)]() -> tensor { return Tensor(*arriving->get(), type); }};
    }

    /// A range of places of a factor, as it is in a rank's part.
    struct piece {
        heddle::factor factor;
        extent begin = 0, count = 0;
    };
    /// What this rank sends to each rank and receives from each, in the order in which it travels.
    struct route {
        std::vector<std::vector<piece>> sent, received;
        explicit route(std::size_t ranks) : sent(ranks), received(ranks) {}
    };

    /// The same factor at other places: each rank sends what others have of its part from now on.
    [[nodiscard]] route common_places(factor const& f, std::vector<extent> const& before,
                                      std::vector<extent> const& after) const {
        std::size_t const rank = communicator_.rank();
        route way(before.size());
        // Adds what rank r has before that rank s has after, as it is in the part of one of them.
        auto const add = [&](std::vector<piece>& to, std::size_t r, std::size_t s, extent held, extent part_begin) {
            extent const from = layout_.begin_of(before, r), now = layout_.begin_of(after, s);
            extent const begin = std::max(from, now), end = std::min(from + before[r], now + after[s]);
            if (begin >= end) return;
            to.push_back({f, begin - part_begin, end - begin});
            to.back().factor.extent = held;
        };
        for (std::size_t r = 0; r < before.size(); ++r) {
            add(way.sent[r], rank, r, before[rank], layout_.begin_of(before, rank));
            add(way.received[r], r, rank, after[rank], layout_.begin_of(after, rank));
        }
        return way;
    }
    /// Another factor of the same dimension, where one has pieces: each rank sends runs of positions that it has and
    /// others will have.
    [[nodiscard]] route common_positions(extent size, factor const& f, factor const& g,
                                         std::vector<extent> const& before, std::vector<extent> const& after) const {
        std::size_t const rank = communicator_.rank();
        auto const held = [&](factor const& by, std::vector<extent> const& counts, std::size_t r) {
            return positions_of(size, by, layout_.begin_of(counts, r), counts[r]);
        };
        auto const add_runs = [&](std::vector<piece>& to, std::vector<extent> const& mine,
                                  std::vector<extent> const& others) {
            factor const all{f.dimension, static_cast<extent>(mine.size()), 1};
            extent last = -2;
            for (std::size_t n = 0; n < mine.size(); ++n) {
                if (!algorithm::binary_search(others, mine[n])) continue;
                if (mine[n] == last + 1) ++to.back().count;
                else to.push_back({all, static_cast<extent>(n), 1});
                last = mine[n];
            }
        };
        auto const mine = held(f, before, rank), now = held(g, after, rank);
        route way(before.size());
        for (std::size_t r = 0; r < before.size(); ++r) {
            add_runs(way.sent[r], mine, held(g, after, r));
            add_runs(way.received[r], now, held(f, before, r));
        }
        return way;
    }
    /// A factor of another place: each rank sends what lies in the others' places of it.
    [[nodiscard]] route crossing_places(factor const& f, factor const& g, std::vector<extent> const& before,
                                        std::vector<extent> const& after) const {
        std::size_t const rank = communicator_.rank();
        route way(before.size());
        for (std::size_t r = 0; r < before.size(); ++r) {
            if (before[rank] > 0 && after[r] > 0)
                way.sent[r].push_back({within(g, f, before[rank]), layout_.begin_of(after, r), after[r]});
            if (before[r] > 0 && after[rank] > 0)
                way.received[r].push_back({within(f, g, after[rank]), layout_.begin_of(before, r), before[r]});
        }
        return way;
    }
    /// Returns the part of a tensor that lies in this rank's places of a factor, from the parts that ranks have.
    [[nodiscard]] result sent(tensor_id t, factor const& f, std::vector<extent> const& counts, tensor part,
                              route const& way) {
        auto const size_of = [](tensor_shape const& dims, piece const& p) {
            return static_cast<std::size_t>(count_elements(part_shape(dims, p.factor, p.count)));
        };
        auto const sizes = [&](tensor_shape const& dims, std::vector<std::vector<piece>> const& pieces) {
            std::vector<std::size_t> all;
            for (auto const& of_rank : pieces) {
                all.push_back(0);
                for (auto const& p : of_rank) all.back() += size_of(dims, p);
            }
            return all;
        };
        auto const had = part->shape(), has = part_shape(whole_shape(t), f, counts[communicator_.rank()]);
        auto const sending = sizes(had, way.sent), receiving = sizes(has, way.received);
        tensor out(Tensor(tensor_shape{static_cast<extent>(total_count(sending))})),
            in(Tensor(tensor_shape{static_cast<extent>(total_count(receiving))}));
        std::size_t at = 0;
        for (auto const& of_rank : way.sent)
            for (auto const& p : of_rank) {
                take(*part, p.factor, p.begin, p.count, out.own().flat().subspan(at, size_of(had, p)));
                at += size_of(had, p);
            }
        auto started = start::all_to_all_v(communicator_, out->flat(), sending, in.own().flat(), receiving);
        return {std::move(started),
                [has, size_of, received = way.received, out = std::move(out), in = std::move(in)]() -> tensor {
                    Tensor made(has);
                    std::size_t from = 0;
                    for (auto const& of_rank : received)
                        for (auto const& p : of_rank) {
                            put(made, p.factor, p.begin, p.count, in->flat().subspan(from, size_of(has, p)));
                            from += size_of(has, p);
                        }
                    return made;
                }};
    }

    [[nodiscard]] static results there(std::vector<tensor> values) {
        return std::make_shared<arriving<std::vector<tensor>, request>>(std::move(values));
    }
    /// Calls `visit(value, span)` with each value's part of a span.
    template <class Span, class Values, class Visit>
    static void for_each_span(Span all, Values& values, Visit&& visit) {
        for (std::size_t at = 0; auto& v : values) {
            auto const size = static_cast<std::size_t>(v->elements());
            visit(v, all.subspan(at, size));
            at += size;
        }
    }
    /// Tells whether the places of a factor lie one after the other in the whole tensor.
    [[nodiscard]] static bool is_major(tensor_shape const& dims, factor const& f) {
        extent before = 1;
        for (std::size_t d = 0; d < f.dimension; ++d) before *= dims[d];
        return before == 1 && f.widths.empty() && f.stride * f.extent == dims[f.dimension];
    }
    [[nodiscard]] tensor_shape const& whole_shape(tensor_id t) const { return layout_.whole_shape(t); }
    [[nodiscard]] factor const& factor_of(tensor_id t, tensor_form f) const { return layout_.factor_of(t, f); }
    [[nodiscard]] tensor cut(tensor_id t, tensor_form f, Tensor const& whole) const {
        return layout_.cut(t, f, whole, communicator_.rank());
    }

    line_layout const& layout_;
    Communicator& communicator_;
};

} // namespace heddle::detail
