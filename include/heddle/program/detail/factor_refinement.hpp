// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Factorises the dimensions of a program's tensors so that they agree along the indices that tie them.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/factor.hpp>
#include <heddle/program/program.hpp>

#include <boost/container/flat_set.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::detail {

/// The cut points of an extent as strides, each a proper divisor. After refinement each divides the next.
using stride_set = boost::container::flat_set<extent>;

/// The places at which pieces of an extent meet.
using seam_set = boost::container::flat_set<extent>;

/// How a dimension or index of pieces is cut: into this many shares of every piece, or not at all if it is one.
struct piece_shares {
    seam_set seams;
    /// Zero while nothing has been asked of them.
    extent count = 0;

    /// Returns the factor of an extent that lies from `first` on, or nothing if it has none. Each of its places is
    /// `unit` elements of the dimension.
    [[nodiscard]] std::optional<factor> within(std::size_t dimension, extent first, extent size, extent unit = 1) const;
    /// Asks for a number of shares. Two numbers do not go together.
    bool meet(extent other) {
        extent const before = count;
        if (other > 0) count = count == 0 || count == other ? other : 1;
        return count != before;
    }
};

/// Refines the factorisations of all dimensions against each other along the indices that tie them. If two have no
/// common refinement, the dimension keeps only the major factor on which both agree.
///
/// A dimension that is made of pieces has one more factor, if the major factors of its pieces are all of one extent.
template <class Program>
class factor_refinement {
public:
    explicit factor_refinement(Program const& p) {
        using access = program_access<Program>;
        first_dimension_.push_back(0);
        for (tensor_id t = 0; t < static_cast<std::size_t>(access::tensor_count(p)); ++t) {
            for (extent e : tensor_info(access::tensor(p, t)).shape) dimensions_.push_back({e, {}, false, {}});
            first_dimension_.push_back(dimensions_.size());
        }
        for (operator_id o = 0; o < static_cast<std::size_t>(access::operator_count(p)); ++o) {
            index_rule const& rule = access::rule(p, o);
            first_index_.push_back(index_strides_.size());
            index_strides_.resize(index_strides_.size() + rule.indices.size());
            tie_pieces(rule, first_index_.back());
            auto const tie = [&](auto&& tensors, std::vector<indexed_access> const& accesses) {
                std::size_t n = 0;
                for (tensor_id t : tensors) tie_access(rule, first_index_.back(), first_dimension_[t], accesses[n++]);
            };
            tie(access::operands(p, o), rule.operands);
            tie(access::results(p, o), rule.results);
        }
        do propagate();
        while (resolve_conflicts());
        if (pieces_.empty()) return;
        index_shares_.resize(index_strides_.size());
        spread_seams();
        agree_on_shares();
    }

    [[nodiscard]] stride_set const& dimension(tensor_id t, std::size_t d) const {
        return dimensions_[first_dimension_[t] + d].strides;
    }
    [[nodiscard]] stride_set const& index(operator_id o, std::size_t i) const {
        return index_strides_[first_index_[o] + i];
    }
    [[nodiscard]] piece_shares const& dimension_shares(tensor_id t, std::size_t d) const {
        return dimensions_[first_dimension_[t] + d].shares;
    }
    /// Returns nothing if the index is not made of pieces.
    [[nodiscard]] piece_shares const* index_shares(operator_id o, std::size_t i) const {
        auto const at = first_index_[o] + i;
        return at < index_shares_.size() && !index_shares_[at].seams.empty() ? &index_shares_[at] : nullptr;
    }

private:
    struct dimension_state {
        extent size;
        stride_set strides;
        bool frozen;
        piece_shares shares;
    };
    /// Index `piece` is what lies from `first` on in index `whole`.
    struct piece_place {
        std::size_t whole, piece;
        extent first, size;
    };
    /// Index `index` spans the strides [low, high) of dimension `dimension`.
    struct occurrence {
        std::size_t index, dimension;
        extent low, high;
    };

    void tie_access(index_rule const& rule, std::size_t first_index, std::size_t first_dimension,
                    indexed_access const& access) {
        for (std::size_t d = 0; d < access.size(); ++d) {
            extent low = 1;
            for (auto i = access[d].rbegin(); i != access[d].rend(); ++i) {
                extent const high = low * rule.indices[*i].extent;
                auto& dimension = dimensions_[first_dimension + d];
                occurrences_.push_back({first_index + *i, first_dimension + d, low, high});
                if (low > 1 && low < dimension.size) dimension.strides.insert(low);
                low = high;
            }
        }
    }

    void tie_pieces(index_rule const& rule, std::size_t first_index) {
        for (std::size_t i = 0; i < rule.indices.size(); ++i) {
            extent first = 0;
            for (auto piece : rule.indices[i].pieces) {
                extent const size = rule.indices[piece].extent;
                pieces_.push_back({first_index + i, first_index + piece, first, size});
                first += size;
            }
        }
    }

    /// Tells whether a run of places of the index is one of the dimension, which is `low` times as long.
    [[nodiscard]] bool is_outermost(occurrence const& o) const { return o.high == dimensions_[o.dimension].size; }

    /// Where an index is the outermost of a dimension, both have the seams of each other, and a piece has those of its
    /// whole that lie within it.
    void spread_seams() {
        constexpr std::size_t most = 64; // a factor has a width for each piece
        auto const add = [](seam_set& seams, extent at) { return seams.size() < most && seams.insert(at).second; };
        for (bool changed = true; changed;) {
            changed = false;
            for (auto const& p : pieces_) {
                seam_set &whole = index_shares_[p.whole].seams, &piece = index_shares_[p.piece].seams;
                if (p.first > 0) changed |= add(whole, p.first);
                for (extent at : piece) changed |= add(whole, p.first + at);
                for (extent at : whole)
                    if (at > p.first && at < p.first + p.size) changed |= add(piece, at - p.first);
            }
            for (auto const& o : occurrences_) {
                if (!is_outermost(o)) continue;
                seam_set &index = index_shares_[o.index].seams, &dimension = dimensions_[o.dimension].shares.seams;
                for (extent at : index) changed |= add(dimension, at * o.low);
                for (extent at : dimension)
                    if (at % o.low == 0) changed |= add(index, at / o.low);
            }
        }
    }

    /// What has no seams is cut along its major factor, and what has some as all of its pieces are.
    void agree_on_shares() {
        for (auto& d : dimensions_)
            if (d.shares.seams.empty()) d.shares.count = d.strides.empty() ? d.size : d.size / *d.strides.rbegin();
        for (bool changed = true; changed;) {
            changed = false;
            for (auto const& o : occurrences_) {
                if (!is_outermost(o)) continue;
                auto &index = index_shares_[o.index], &dimension = dimensions_[o.dimension].shares;
                changed |= index.meet(dimension.count);
                if (!dimension.seams.empty()) changed |= dimension.meet(index.count);
            }
            for (auto const& p : pieces_) {
                auto &whole = index_shares_[p.whole], &piece = index_shares_[p.piece];
                changed |= whole.meet(piece.count);
                if (!piece.seams.empty()) changed |= piece.meet(whole.count);
            }
        }
    }

    void propagate() {
        for (bool changed = true; changed;) {
            changed = false;
            for (auto const& [index, number, low, high] : occurrences_) {
                auto& strides = index_strides_[index];
                auto& dimension = dimensions_[number];
                for (extent s : dimension.strides)
                    if (s > low && s < high && s % low == 0 && high % s == 0) changed |= strides.insert(s / low).second;
                if (dimension.frozen) continue;
                for (extent s : strides) changed |= dimension.strides.insert(s * low).second;
            }
        }
    }

    /// Freezes every dimension whose strides are no chain at the least stride all of them divide; indices forget
    /// theirs, to have those of the dimensions as they are now.
    bool resolve_conflicts() {
        bool any = false;
        for (auto& dimension : dimensions_) {
            if (dimension.frozen) continue;
            extent previous = 1, common = 1;
            bool chain = true;
            for (extent s : dimension.strides) {
                chain &= s % previous == 0;
                previous = s;
                common = std::lcm(common, s);
            }
            if (chain) continue;
            dimension.frozen = any = true;
            dimension.strides.clear();
            if (common < dimension.size && dimension.size % common == 0) dimension.strides.insert(common);
        }
        if (any)
            for (auto& strides : index_strides_) strides.clear();
        return any;
    }

    std::vector<std::size_t> first_dimension_, first_index_;
    std::vector<dimension_state> dimensions_;
    std::vector<stride_set> index_strides_;
    std::vector<occurrence> occurrences_;
    std::vector<piece_place> pieces_;
    /// Empty if no index is made of pieces.
    std::vector<piece_shares> index_shares_;
};

inline std::vector<factor> factors_of(tensor_shape const& dims, auto&& strides_of) {
    std::vector<factor> factors;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        extent high = dims[d];
        stride_set const& strides = strides_of(d);
        for (auto s = strides.rbegin(); s != strides.rend(); high = *s++)
            factors.push_back({static_cast<std::uint16_t>(d), high / *s, *s});
        if (high > 1) factors.push_back({static_cast<std::uint16_t>(d), high, 1});
    }
    return factors;
}

/// Returns the factor that the piece [low, high) of an index is in an access, or `no_factor` if the access lacks the
/// index. Clears `whole` if the piece is there but is no factor, or occurs twice.
factor_number find_factor(index_rule const& rule, indexed_access const& access, std::vector<factor> const& factors,
                          segment_number segment, std::size_t index, extent low, extent high, bool& whole);

/// Returns the factor along which an access is cut if an index is cut into shares of its pieces, or `no_factor` if it
/// has neither the index nor a piece of it. Clears `whole` if such shares are no factor of it.
factor_number find_shares(index_rule const& rule, indexed_access const& access, std::vector<factor> const& factors,
                          segment_number segment, std::size_t index, piece_shares const& shares, bool& whole);

/// Tells whether an index may be cut into shares of pieces: it is made of some, or it runs along what is.
[[nodiscard]] inline bool has_shares(loop_index const& index) {
    return index.kind != index_kind::blocked || !index.pieces.empty();
}

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE factor_number find_factor(index_rule const& rule, indexed_access const& access,
                                        std::vector<factor> const& factors, segment_number segment, std::size_t index,
                                        extent low, extent high, bool& whole) {
    factor_number found = no_factor;
    for (std::size_t d = 0; d < access.size(); ++d) {
        extent base = 1;
        for (auto i = access[d].rbegin(); i != access[d].rend(); ++i) {
            if (*i == index) {
                auto const match =
                    algorithm::find(factors, factor{static_cast<std::uint16_t>(d), high / low, base * low, segment});
                if (match == factors.end() || found != no_factor) whole = false;
                else found = static_cast<factor_number>(match - factors.begin());
            }
            base *= rule.indices[*i].extent;
        }
    }
    return found;
}

HEDDLE_INLINE std::optional<factor> piece_shares::within(std::size_t dimension, extent first, extent size,
                                                         extent unit) const {
    if (count < 2 || size % count != 0) return {};
    factor f{static_cast<std::uint16_t>(dimension), count, size / count * unit};
    extent at = first;
    auto const add = [&](extent end) {
        f.widths.push_back((end - at) / count * unit);
        return (end - std::exchange(at, end)) % count == 0;
    };
    for (extent seam : seams)
        if (seam > first && seam < first + size && !add(seam)) return {};
    if (!add(first + size)) return {};
    if (f.widths.size() == 1) f.widths.clear();
    return f;
}

HEDDLE_INLINE factor_number find_shares(index_rule const& rule, indexed_access const& access,
                                        std::vector<factor> const& factors, segment_number segment, std::size_t index,
                                        piece_shares const& shares, bool& whole) {
    factor_number found = no_factor;
    auto const look = [&](std::size_t i, extent first) {
        for (std::size_t d = 0; d < access.size(); ++d) {
            if (algorithm::find(access[d], i) == access[d].end()) continue;
            extent unit = 1;
            for (std::size_t n = 1; n < access[d].size(); ++n) unit *= rule.indices[access[d][n]].extent;
            auto place = access[d].front() == i ? shares.within(d, first, rule.indices[i].extent, unit) : std::nullopt;
            if (place) place->segment = segment;
            auto const match = place ? algorithm::find(factors, *place) : factors.end();
            if (match == factors.end() || found != no_factor) whole = false;
            else found = static_cast<factor_number>(match - factors.begin());
        }
    };
    look(index, 0);
    extent first = 0;
    for (auto piece : rule.indices[index].pieces) {
        look(piece, first);
        first += rule.indices[piece].extent;
    }
    return found;
}

} // namespace heddle::detail

#endif
