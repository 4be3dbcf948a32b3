// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which extents of a program depend on each other, and how small all of them can be together.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/execute/detail/inverse_ranges.hpp>
#include <heddle/execute/detail/known_ranges.hpp>
#include <heddle/execute/detail/lookups.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Holds classes of factors that an index ties to one extent, and what kernels need of dimensions beside their rules:
/// linear relations (a concatenation's sum, a window's reach), and that what is known to be looked up exists.
///
/// Blocked dimensions of an operator that is not known here stay whole, and so do those that a relation contradicts.
class size_ties {
public:
    /// Segments do not matter here: the copies of a factor for each segment are one factor.
    size_ties(program const& p, std::span<atom_class const> cuts);

    /// Returns an extent for every index of every operator.
    [[nodiscard]] std::vector<std::vector<extent>> small_extents();

private:
    static constexpr extent smallest = 3; // a norm over two is a sign

    struct dimension {
        tensor_id tensor;
        std::size_t number;
    };
    /// target = slope * (the sum of sources) + constant
    struct relation {
        dimension target;
        std::vector<dimension> sources;
        extent slope = 1, constant = 0;
    };
    /// What two cut points of an index bound: one factor wherever the index occurs, or else something without members.
    struct index_piece {
        extent size;
        std::vector<std::size_t> members;
    };

    // ---- classes of factors; a factor is numbered among all factors of all tensors

    [[nodiscard]] std::size_t find(std::size_t n) const;
    void tie(std::size_t a, std::size_t b);
    [[nodiscard]] std::vector<std::size_t> members_of(dimension d) const;
    void keep_whole(dimension d) {
        for (auto m : members_of(d)) whole_[m] = true;
    }
    void keep_at_least(dimension d, extent size);
    /// Ties two dimensions factor by factor, if both have the same factors.
    void tie(dimension a, dimension b);
    [[nodiscard]] extent size_of(dimension d) const;

    // ---- what rules tie

    /// Calls `visit(dimension, its tensor's access)` wherever an operator has an index.
    template <class Visitor>
    void for_each_place(operator_id o, std::size_t index, Visitor&& visit) const {
        auto const look = [&](std::span<tensor_id const> tensors, std::vector<indexed_access> const& accesses) {
            for (std::size_t k = 0; k < accesses.size(); ++k)
                for (std::size_t d = 0; d < accesses[k].size(); ++d)
                    if (algorithm::find(accesses[k][d], index) != accesses[k][d].end())
                        visit(dimension{tensors[k], d}, accesses[k]);
        };
        look(program_.operands(o), program_.rule(o).operands);
        look(program_.results(o), program_.rule(o).results);
    }
    [[nodiscard]] std::vector<index_piece> pieces_of(operator_id o, std::size_t index) const;
    void tie_indices(operator_id o);
    /// Ties what is cut if an index is cut into shares of its pieces.
    void tie_shares(operator_id o, std::size_t index);

    // ---- what kernels need beside the rules

    [[nodiscard]] std::vector<extent> attribute(operator_id o, char const* name) const;
    [[nodiscard]] dimension operand(operator_id o, std::size_t k, std::size_t d) const {
        return {program_.operands(o)[k], d};
    }
    [[nodiscard]] dimension result(operator_id o, std::size_t k, std::size_t d) const {
        return {program_.results(o)[k], d};
    }
    [[nodiscard]] std::size_t rank(operator_id o, std::size_t k) const {
        return program_.tensor(program_.operands(o)[k]).shape.size();
    }

    void relate(operator_id o);

    /// Tells whether kernels take blocked dimensions of any size: what is looked up in, reduced or resampled may have
    /// any.
    [[nodiscard]] static bool takes_any_size(std::string_view kind);
    /// Tells whether it looks up in places that are beyond drawing, and takes them as they are.
    [[nodiscard]] bool looks_up_values(operator_id o) const;
    /// Tells whether a second result has the windows of the first.
    [[nodiscard]] bool pools_with_places(operator_id o) const {
        return program_.results(o).size() > 1 && program_.kind(o).find("max_pool") != std::string::npos;
    }
    /// Tells whether it is known what integers are, whatever sources hold.
    [[nodiscard]] bool is_known(tensor_id t) const { return known_[t].is_finite(); }
    /// Tells whether drawing other sources is not known to bring integers into a range, nor what they are: they follow
    /// from floating-point numbers, or from an operator whose inverse is not known.
    [[nodiscard]] bool are_beyond_drawing(tensor_id t) const;
    [[nodiscard]] bool has_index(operator_id o, std::string_view name) const {
        auto const& indices = program_.rule(o).indices;
        return algorithm::find(indices, name, &loop_index::name) != indices.end();
    }
    /// Keeps an index of the rule, by its name, on whose extent a kernel relies.
    void keep_index(operator_id o, std::string_view name);
    /// Ties two indices of the rule, by their names, that have one extent.
    void tie_pair(operator_id o, std::string_view first, std::string_view second);
    /// Keeps blocked indices that occur once: only the kernel knows how their extents are related to others.
    void keep_lone_indices(operator_id o);
    void add_sum(operator_id o);
    /// Pieces of different lengths keep different ones: equal pieces may be cut in shares where those may not.
    void keep_apart(std::vector<dimension> const& pieces);
    /// Relates an input to windows; the least one is (output - 1) * stride + dilation * (window - 1) + 1 - 2 * padding.
    void slide(operator_id o, std::size_t first, std::vector<extent> const& window, extent absent_stride);
    void slide_weight(operator_id o);
    /// The output of a transposed convolution follows from its input.
    void spread_weight(operator_id o);
    void slide_pool(operator_id o);
    /// Blocked dimensions of the first operand are the result's.
    void tie_axes(operator_id o);
    /// Keeps what is added before and after; what is reflected must exist.
    void add_padding(operator_id o);
    /// What slices pick stays in the tensor, and keeps its size.
    void pick(operator_id o);
    /// Dimensions have all places that are known to be looked up in them. *Returns* whether they had.
    bool reach_places();
    /// The labels of a mean are whole and have no index in common with the scores.
    void match_labels(operator_id o);
    /// Masks are (batch, sequence, expert, slot); there may be any number of slots.
    void match_routes(operator_id o);

    // ---- choosing extents

    /// Tells whether extents were found for which all relations hold; if not, what one contradicts will stay whole.
    bool choose();
    /// The relation holds with the program's own extents.
    [[nodiscard]] bool is_whole(relation const& r) const;

    program const& program_;
    indexed_program indexed_;
    factor_refinement<program> refinement_;
    std::vector<std::size_t> first_, parent_;
    /// The extents are by factor. What is asked of a class is noted at its root when extents are chosen.
    std::vector<extent> original_, least_, atoms_, value_;
    std::vector<bool> whole_;
    std::vector<relation> relations_;
    std::vector<number_range> known_;
    /// Those of places that are known.
    std::vector<lookup> lookups_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE size_ties::size_ties(program const& p, std::span<atom_class const> cuts)
    : program_(p), indexed_(index_program(p)), refinement_(p), known_(known_ranges(p)) {
    for (auto const& t : indexed_.tensors) {
        first_.push_back(original_.size());
        for (auto const& f : t.factors) original_.push_back(f.extent);
    }
    parent_.resize(original_.size());
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    least_.assign(original_.size(), 1);
    atoms_.assign(original_.size(), 1);
    whole_.assign(original_.size(), false);
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        tie_indices(o);
        relate(o);
        for (auto const& l : lookups_of(p, o))
            if (is_known(l.places)) lookups_.push_back(l);
    }
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        for (std::size_t d = 0; d < p.tensor(t).shape.size() && p.data_of(t) != t; ++d) tie({t, d}, {p.data_of(t), d});
    for (auto const& cut : cuts)
        for (auto const& m : cut.members) {
            std::size_t const place = static_cast<std::size_t>(m.factor) % indexed_.tensors[m.tensor].factors.size();
            auto& atoms = atoms_[find(first_[m.tensor] + place)];
            atoms = std::lcm(atoms, cut.atoms);
        }
}

HEDDLE_INLINE std::vector<std::vector<extent>> size_ties::small_extents() {
    while (!choose()) {} // each time more stays whole
    std::vector<std::vector<extent>> extents;
    for (operator_id o = 0; o < program_.operator_count(); ++o) {
        auto& mine = extents.emplace_back();
        for (std::size_t i = 0; i < program_.rule(o).indices.size(); ++i) {
            extent size = 1;
            for (auto const& piece : pieces_of(o, i))
                size *= piece.members.empty() ? piece.size : value_[find(piece.members.front())];
            mine.push_back(size);
        }
    }
    return extents;
}

HEDDLE_INLINE std::size_t size_ties::find(std::size_t n) const {
    while (parent_[n] != n) n = parent_[n];
    return n;
}

HEDDLE_INLINE void size_ties::tie(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
}

HEDDLE_INLINE std::vector<std::size_t> size_ties::members_of(dimension d) const {
    std::vector<std::size_t> members;
    auto const& factors = indexed_.tensors[d.tensor].factors;
    for (std::size_t f = 0; f < factors.size(); ++f)
        if (factors[f].dimension == d.number && factors[f].widths.empty()) members.push_back(first_[d.tensor] + f);
    return members;
}

HEDDLE_INLINE void size_ties::keep_at_least(dimension d, extent size) {
    auto const members = members_of(d);
    if (members.size() > 1) keep_whole(d);
    else if (!members.empty()) least_[members[0]] = std::max(least_[members[0]], size);
}

HEDDLE_INLINE void size_ties::tie(dimension a, dimension b) {
    auto const left = members_of(a), right = members_of(b);
    bool const alike =
        algorithm::equal(left, right, {}, [&](auto m) { return original_[m]; }, [&](auto m) { return original_[m]; });
    for (std::size_t n = 0; alike && n < left.size(); ++n) tie(left[n], right[n]);
    if (alike) return;
    keep_whole(a);
    keep_whole(b);
}

HEDDLE_INLINE extent size_ties::size_of(dimension d) const {
    extent size = 1;
    for (auto m : members_of(d)) size *= value_[find(m)];
    return size;
}

HEDDLE_INLINE std::vector<size_ties::index_piece> size_ties::pieces_of(operator_id o, std::size_t index) const {
    auto const& rule = program_.rule(o);
    auto const& strides = refinement_.index(o, index);
    std::vector<index_piece> pieces;
    extent high = rule.indices[index].extent;
    for (auto stride = strides.rbegin(); high > 1;) {
        extent const low = stride == strides.rend() ? 1 : *stride++;
        auto& piece = pieces.emplace_back(index_piece{high / low, {}});
        bool whole = true;
        for_each_place(o, index, [&](dimension d, indexed_access const& access) {
            auto const f = find_factor(rule, access, indexed_.tensors[d.tensor].factors, 0, index, low, high, whole);
            if (whole) piece.members.push_back(first_[d.tensor] + static_cast<std::size_t>(f));
        });
        if (!whole) piece.members.clear();
        high = low;
    }
    return pieces;
}

HEDDLE_INLINE void size_ties::tie_indices(operator_id o) {
    for (std::size_t i = 0; i < program_.rule(o).indices.size(); ++i)
        for (auto const& piece : pieces_of(o, i)) {
            for (auto m : piece.members) tie(m, piece.members.front());
            if (piece.members.empty()) for_each_place(o, i, [&](dimension d, auto const&) { keep_whole(d); });
        }
    for (std::size_t i = 0; i < program_.rule(o).indices.size(); ++i) tie_shares(o, i);
}

HEDDLE_INLINE void size_ties::tie_shares(operator_id o, std::size_t index) {
    auto const& rule = program_.rule(o);
    auto const* shares = refinement_.index_shares(o, index);
    if (!shares || !has_shares(rule.indices[index])) return;
    bool whole = true;
    std::vector<std::size_t> members;
    auto const look = [&](std::span<tensor_id const> tensors, std::vector<indexed_access> const& accesses) {
        for (std::size_t k = 0; k < accesses.size(); ++k) {
            auto const& factors = indexed_.tensors[tensors[k]].factors;
            auto const f = find_shares(rule, accesses[k], factors, 0, index, *shares, whole);
            if (f != no_factor) members.push_back(first_[tensors[k]] + static_cast<std::size_t>(f));
        }
    };
    look(program_.operands(o), rule.operands);
    look(program_.results(o), rule.results);
    for (auto m : members)
        if (whole) tie(m, members.front());
}

HEDDLE_INLINE std::vector<extent> size_ties::attribute(operator_id o, char const* name) const {
    auto const found = program_.attributes(o).find(name);
    return found == program_.attributes(o).end() ? std::vector<extent>{}
                                                 : std::vector<extent>(found->second.begin(), found->second.end());
}

HEDDLE_INLINE void size_ties::relate(operator_id o) {
    std::string_view const kind =
        program_.attributes(o).contains("unknown_arguments") ? std::string_view{} : program_.kind(o);
    auto const among = [&](std::initializer_list<std::string_view> kinds) {
        return algorithm::find(kinds, kind) != kinds.end();
    };
    if (among({"cat", "split", "split_with_sizes", "chunk"})) add_sum(o);
    else if (kind == "append_cls_token") relations_.push_back({result(o, 0, 1), {operand(o, 0, 1)}, 1, 1});
    else if (among({"conv1d", "conv2d", "conv3d"})) slide_weight(o);
    else if (among({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})) spread_weight(o);
    else if (among({"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"})) slide_pool(o);
    else if (among({"select", "narrow", "slice"}) || (among({"getitem", "index"}) && program_.operands(o).size() == 1))
        pick(o);
    else if (among({"roll", "flip", "cumsum", "index_add", "scatter_add", "scatter"})) tie_axes(o);
    else if (kind == "pad") add_padding(o);
    else if (among({"nll_loss", "cross_entropy"})) match_labels(o);
    else if (among({"top_2_gating", "switch_gating"})) match_routes(o);
    else if (kind == "grouped_mm") tie(operand(o, 1, 0), operand(o, 2, 0)); // a matrix for each run
    else if (among({"getitem", "index"}) && !attribute(o, "is_mask").empty())
        keep_lone_indices(o); // as many as the mask has ones
    else if (!takes_any_size(kind) || looks_up_values(o) || pools_with_places(o)) keep_lone_indices(o);
    if (among({"lstm_cell", "gru_cell"})) keep_index(o, "q");
    if (among({"lstm", "gru", "rnn_tanh", "rnn_relu"})) {
        for (auto const* index : {"q", "d", "s"}) keep_index(o, index); // gates, directions, layers
        tie_pair(o, "h", "k"); // hidden units, as rows and as columns of weights
    }
    if (kind == "one_hot" && are_beyond_drawing(program_.operands(o)[0])) keep_index(o, "classes");
    if (among({"embedding", "embedding_bag"}) && are_beyond_drawing(program_.operands(o)[0])) keep_index(o, "v");
    if (kind == "routed_experts" && are_beyond_drawing(program_.operands(o)[1])) keep_index(o, "e");
    if (kind == "group_norm" && attribute(o, "groups") != std::vector<extent>{1}) keep_whole(operand(o, 0, 1));
    if (among({"embedding", "embedding_bag"}) && !attribute(o, "padding_idx").empty())
        keep_at_least(operand(o, 1, 0), attribute(o, "padding_idx")[0] + 1);
}

HEDDLE_INLINE bool size_ties::takes_any_size(std::string_view kind) {
    constexpr auto kinds = std::to_array<std::string_view>({"adaptive_avg_pool1d",
                                                            "adaptive_avg_pool2d",
                                                            "adaptive_avg_pool3d",
                                                            "adaptive_max_pool1d",
                                                            "adaptive_max_pool2d",
                                                            "adaptive_max_pool3d",
                                                            "interpolate",
                                                            "get_cls_token",
                                                            "gather",
                                                            "index_select",
                                                            "getitem",
                                                            "index",
                                                            "argmax",
                                                            "argmin",
                                                            "amax",
                                                            "amin",
                                                            "max",
                                                            "min",
                                                            "prod",
                                                            "logsumexp",
                                                            "var",
                                                            "std",
                                                            "var_mean",
                                                            "std_mean",
                                                            "norm"});
    return algorithm::find(kinds, kind) != kinds.end();
}

HEDDLE_INLINE bool size_ties::looks_up_values(operator_id o) const {
    return algorithm::any_of(program_.operands(o) | std::views::drop(1), [&](tensor_id t) {
        return !is_floating(program_.tensor(t).type) && are_beyond_drawing(t);
    });
}

HEDDLE_INLINE bool size_ties::are_beyond_drawing(tensor_id t) const {
    if (is_known(t)) return false;
    for (operator_id o = 0; o < program_.operator_count(); ++o) {
        auto const made = program_.results(o);
        auto const operands = program_.operands(o);
        auto const r = static_cast<std::size_t>(algorithm::find(made, t) - made.begin());
        for (std::size_t k = 0; r < made.size() && k < operands.size(); ++k) {
            if (is_floating(program_.tensor(operands[k]).type)) return true;
            auto const asked = inverse_of(number_range{0, 3}, {program_, o, r, k, known_});
            if (!asked) return true;
            bool const may_be_any = asked->contains({});
            if (!may_be_any && are_beyond_drawing(operands[k])) return true;
        }
    }
    return false;
}

HEDDLE_INLINE void size_ties::keep_index(operator_id o, std::string_view name) {
    auto const& indices = program_.rule(o).indices;
    auto const found = algorithm::find(indices, name, &loop_index::name);
    if (found == indices.end()) return keep_lone_indices(o);
    for (auto const& piece : pieces_of(o, static_cast<std::size_t>(found - indices.begin())))
        for (auto m : piece.members) whole_[m] = true;
}

HEDDLE_INLINE void size_ties::tie_pair(operator_id o, std::string_view first, std::string_view second) {
    auto const& indices = program_.rule(o).indices;
    auto const number = [&](std::string_view name) {
        return static_cast<std::size_t>(algorithm::find(indices, name, &loop_index::name) - indices.begin());
    };
    if (number(first) == indices.size() || number(second) == indices.size()) return;
    auto const left = pieces_of(o, number(first)), right = pieces_of(o, number(second));
    bool const is_tied = algorithm::equal(left, right, [](index_piece const& a, index_piece const& b) {
        return a.size == b.size && !a.members.empty() && !b.members.empty();
    });
    for (std::size_t n = 0; is_tied && n < left.size(); ++n) tie(left[n].members.front(), right[n].members.front());
    for (auto const index : {number(first), number(second)})
        if (!is_tied) for_each_place(o, index, [&](dimension d, auto const&) { keep_whole(d); });
}

HEDDLE_INLINE void size_ties::keep_lone_indices(operator_id o) {
    for (std::size_t i = 0; i < program_.rule(o).indices.size(); ++i) {
        if (program_.rule(o).indices[i].kind != index_kind::blocked) continue;
        std::vector<dimension> places;
        for_each_place(o, i, [&](dimension d, auto const&) { places.push_back(d); });
        if (places.size() == 1) keep_index(o, program_.rule(o).indices[i].name);
    }
}

HEDDLE_INLINE void size_ties::add_sum(operator_id o) {
    if (attribute(o, "dim").empty() || has_index(o, "pieces")) return keep_lone_indices(o);
    auto const d = static_cast<std::size_t>(attribute(o, "dim")[0]);
    auto whole = program_.results(o), parts = program_.operands(o);
    if (program_.kind(o) != "cat") std::swap(whole, parts);
    auto& sum = relations_.emplace_back(relation{{whole[0], d}, {}});
    for (auto t : parts) sum.sources.push_back({t, d});
    keep_apart(sum.sources);
}

HEDDLE_INLINE void size_ties::keep_apart(std::vector<dimension> const& pieces) {
    auto const original = [&](dimension piece) { return program_.tensor(piece.tensor).shape[piece.number]; };
    std::set<extent> lengths;
    for (auto const& piece : pieces) lengths.insert(original(piece));
    for (auto const& piece : pieces)
        if (auto const members = members_of(piece); members.size() == 1)
            least_[members[0]] =
                std::max(least_[members[0]], smallest + std::distance(lengths.begin(), lengths.find(original(piece))));
}

HEDDLE_INLINE void size_ties::slide(operator_id o, std::size_t first, std::vector<extent> const& window,
                                    extent absent_stride) {
    auto const stride = attribute(o, "stride"), padding = attribute(o, "padding"), dilation = attribute(o, "dilation");
    for (std::size_t w = 0; w < window.size(); ++w) {
        auto const side = [&](std::vector<extent> const& list, extent absent) {
            return w < list.size() ? list[w] : absent;
        };
        extent const slope = side(stride, absent_stride == 0 ? window[w] : absent_stride);
        extent const reach = side(dilation, 1) * (window[w] - 1) + 1 - 2 * side(padding, 0);
        relations_.push_back({operand(o, 0, first + w), {result(o, 0, first + w)}, slope, reach - slope});
    }
}

HEDDLE_INLINE void size_ties::slide_weight(operator_id o) {
    tensor_shape const& weight = program_.tensor(program_.operands(o)[1]).shape;
    for (std::size_t d = 2; d < weight.size(); ++d) keep_whole(operand(o, 1, d));
    std::size_t const first = rank(o, 0) + 2 - weight.size();
    slide(o, first, {weight.begin() + 2, weight.end()}, 1);
}

HEDDLE_INLINE void size_ties::spread_weight(operator_id o) {
    tensor_shape const &weight = program_.tensor(program_.operands(o)[1]).shape,
                       &input = program_.tensor(program_.operands(o)[0]).shape,
                       &output = program_.tensor(program_.results(o)[0]).shape;
    std::size_t const samples = rank(o, 0) + 2 - weight.size() - 1; // dimensions before the channels
    auto const stride = attribute(o, "stride");
    for (std::size_t d = 2; d < weight.size(); ++d) {
        keep_whole(operand(o, 1, d));
        extent const slope = d - 2 < stride.size() ? stride[d - 2] : 1;
        std::size_t const at = d + samples - 1;
        relations_.push_back({result(o, 0, at), {operand(o, 0, at)}, slope, output[at] - slope * input[at]});
    }
}

HEDDLE_INLINE void size_ties::slide_pool(operator_id o) {
    auto const window = attribute(o, "kernel_size");
    if (window.empty() || rank(o, 0) < window.size() || pools_with_places(o)) return keep_lone_indices(o);
    slide(o, rank(o, 0) - window.size(), window, 0);
}

HEDDLE_INLINE void size_ties::tie_axes(operator_id o) {
    auto dims = attribute(o, "dims");
    if (dims.empty()) dims = attribute(o, "dim");
    if (dims.empty() || looks_up_values(o)) return keep_lone_indices(o);
    for (auto d : dims) tie(operand(o, 0, static_cast<std::size_t>(d)), result(o, 0, static_cast<std::size_t>(d)));
}

HEDDLE_INLINE void size_ties::add_padding(operator_id o) {
    auto const pad = attribute(o, "pad");
    if (pad.size() != 2 * rank(o, 0)) return keep_lone_indices(o);
    for (std::size_t d = 0; d < rank(o, 0); ++d) {
        extent const before = pad[2 * d], after = pad[2 * d + 1];
        if (before == 0 && after == 0) continue;
        relations_.push_back({result(o, 0, d), {operand(o, 0, d)}, 1, before + after});
        keep_at_least(operand(o, 0, d), std::max(std::abs(before), std::abs(after)) + 1);
    }
}

HEDDLE_INLINE void size_ties::pick(operator_id o) {
    auto const start = attribute(o, "start"), step = attribute(o, "step"), count = attribute(o, "count"),
               pieces = attribute(o, "pieces");
    if (count.size() != rank(o, 0)) return keep_lone_indices(o);
    auto const& access = program_.rule(o).results[0];
    auto const is_blocked = [&](std::size_t d) {
        return !access[d].empty() && program_.rule(o).indices[access[d][0]].kind == index_kind::blocked;
    };
    tensor_shape const& from = program_.tensor(program_.operands(o)[0]).shape;
    tensor_shape const& to = program_.tensor(program_.results(o)[0]).shape;
    // Whether as many places are left out of a dimension of any size; `is_aligned` if each has its place in the result.
    auto const leaves_out = [&](std::size_t d) { return step[d] == 1 && count[d] <= 0 && start[d] - count[d] > 0; };
    auto const taken = [&](std::size_t d) {
        if (d < pieces.size() && pieces[d] > 0) return count[d] * (from[d] / pieces[d]);
        return count[d] > 0 ? count[d] : (from[d] + count[d] - start[d] + step[d] - 1) / step[d];
    };
    bool is_aligned = to.size() == from.size();
    for (std::size_t d = 0; is_aligned && d < from.size(); ++d) is_aligned = to[d] == taken(d);
    for (std::size_t d = 0; d < count.size(); ++d) {
        bool is_even = false;
        for (auto const& name : {"pieces" + std::to_string(d), "step" + std::to_string(d)}) {
            if (!has_index(o, name)) continue;
            keep_index(o, name);
            is_even = true;
        }
        if (has_index(o, "run" + std::to_string(d))) {
            keep_whole(operand(o, 0, d)); // what lies before and after the run is no tensor's
            continue;
        }
        if (leaves_out(d) && !is_aligned) keep_whole(operand(o, 0, d));
        else if (leaves_out(d)) relations_.push_back({operand(o, 0, d), {result(o, 0, d)}, 1, start[d] - count[d]});
        if (is_even || count[d] <= 0) continue;
        if (step[d] < 1) keep_whole(operand(o, 0, d));
        else keep_at_least(operand(o, 0, d), start[d] + (count[d] - 1) * step[d] + 1);
    }
    for (std::size_t d = 0; d < access.size(); ++d)
        if (is_blocked(d) && !(is_aligned && leaves_out(d))) keep_whole(result(o, 0, d));
}

HEDDLE_INLINE void size_ties::match_labels(operator_id o) {
    std::size_t const classes = rank(o, 0) > 1 ? 1 : 0;
    for (std::size_t d = 0, to = 0; rank(o, 1) < rank(o, 0) && d < rank(o, 0); ++d)
        if (d != classes) tie(operand(o, 0, d), operand(o, 1, to++));
    if (auto const weight = attribute(o, "weight"); !weight.empty())
        tie(operand(o, 0, classes), operand(o, static_cast<std::size_t>(weight[0]), 0));
    if (auto const ignored = attribute(o, "ignore_index"); !ignored.empty())
        keep_at_least(operand(o, 0, classes), ignored[0] + 1);
}

HEDDLE_INLINE void size_ties::match_routes(operator_id o) {
    tie(operand(o, 0, 2), operand(o, 1, 0));
    for (std::size_t mask = 0; mask < 2; ++mask) {
        tie(result(o, mask, 1), operand(o, 0, 1));
        tie(result(o, mask, 2), operand(o, 1, 1));
        tie(result(o, mask, 3), result(o, 0, 3));
    }
}

HEDDLE_INLINE bool size_ties::choose() {
    for (std::size_t n = 0; n < whole_.size(); ++n) {
        if (whole_[n]) whole_[find(n)] = true;
        least_[find(n)] = std::max(least_[find(n)], least_[n]);
    }
    value_ = original_;
    for (std::size_t n = 0; n < value_.size(); ++n) {
        if (find(n) != n || whole_[n]) continue;
        extent const least = std::max(least_[n], atoms_[n] > 1 ? extent{2} : smallest);
        value_[n] = std::min(original_[n], (least + atoms_[n] - 1) / atoms_[n] * atoms_[n]);
    }
    std::vector<relation const*> owner(value_.size());
    // What is set may be a source of others, at most once along every chain.
    for (std::size_t pass = 0; pass <= relations_.size() + 1; ++pass) {
        bool changed = false;
        for (auto const& r : relations_) {
            extent wanted = r.constant;
            for (auto const& s : r.sources) wanted += r.slope * size_of(s);
            if (size_of(r.target) == wanted || is_whole(r)) continue;
            auto const set = [&](dimension d, extent size) {
                auto const members = members_of(d);
                auto const c = members.size() == 1 ? find(members[0]) : 0;
                bool const can_be_set = members.size() == 1 && !whole_[c] && atoms_[c] == 1 &&
                                        (!owner[c] || owner[c] == &r) && size >= std::max(extent{2}, least_[c]) &&
                                        size <= original_[c] && pass <= relations_.size();
                if (can_be_set) value_[c] = size, owner[c] = &r;
                return can_be_set;
            };
            bool const is_shift = r.slope == 1 && r.sources.size() == 1;
            if (!set(r.target, wanted) && !(is_shift && set(r.sources[0], size_of(r.target) - r.constant))) {
                keep_whole(r.target);
                for (auto const& s : r.sources) keep_whole(s);
                return false;
            }
            changed = true;
        }
        if (!changed) break;
    }
    return reach_places();
}

HEDDLE_INLINE bool size_ties::reach_places() {
    auto const known = known_ranges(program_, [&](tensor_id t, std::size_t d) { return size_of({t, d}); });
    bool all = true;
    for (auto const& l : lookups_) {
        dimension const d{l.table, l.dimension};
        auto const& places = known[l.places];
        auto const size = size_of(d), reach = static_cast<extent>(std::max(places.high, -places.low));
        if (l.range(size).contains(places) || size == program_.tensor(l.table).shape[l.dimension]) continue;
        keep_at_least(d, std::max(reach, size + 1));
        all = false;
    }
    return all;
}

HEDDLE_INLINE bool size_ties::is_whole(relation const& r) const {
    auto const all = [&](dimension d) {
        return algorithm::all_of(members_of(d), [&](auto m) { return static_cast<bool>(whole_[find(m)]); });
    };
    return all(r.target) && algorithm::all_of(r.sources, all);
}

} // namespace heddle::detail

#endif
