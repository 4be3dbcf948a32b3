// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A program seen through its indices: the factors that a shard can name, the loops along which an operator can
/// be split, who uses what, and what has a derivative.
///
/// Everything after `program/` reads this alone, whatever representation the program came in.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/detail/factor_refinement.hpp>
#include <heddle/program/factor.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// What a search makes of a tensor that is in use at a cut.
enum class tensor_at_cuts : std::uint8_t {
    held,  ///< any of its forms may be held, and converted
    fixed, ///< it has a form for each way to compute an operator, and keeps it
    free,  ///< nothing is: it is had in any form, for nothing, where it is used
    restored ///< as `held`, but it is had for nothing where it is used first, as another tensor was given up; see `loosened_program`
};

/// Numbers regions of a program that are made again for the backward pass, the last one first; see
/// theory/recomputation.hpp.
using region_number = std::int16_t;
inline constexpr region_number no_region = -1;

/// What is made again for the backward pass: nothing; all but what is costly to make; or all but what passes from one
/// region to another.
enum class recomputation : std::uint8_t { none, selective, full };

struct indexed_tensor {
    tensor_info info;
    std::vector<heddle::factor> factors;
    /// The operators that use the tensor, ascending, each once.
    std::vector<operator_id> consumers;
    /// The number of places in which operators have it as an operand.
    std::uint32_t uses = 0;
    /// Tells for each factor whether shards along it are contiguous in memory. A view's result lies where its operand
    /// does.
    std::vector<bool> is_contiguous;
    /// The tensor depends on a trained parameter, and the loss on the tensor, both through operators that are
    /// differentiated; so the backward pass has a cotangent of it.
    bool has_cotangent = false;
    /// The factor that device groups cut among their devices, or `no_factor` if each device has the whole tensor; see
    /// `split_inside`.
    factor_number inside = no_factor;
    /// Other than `held` only in programs made to be searched; see `searched_program`.
    tensor_at_cuts at_cuts = tensor_at_cuts::held;
    /// The region in which the value is made again, if it is not kept for the backward pass. All that an operator makes
    /// or uses of such values is of one region.
    region_number region = no_region;

    [[nodiscard]] bool is_source() const { return info.role != tensor_role::value; }
    [[nodiscard]] bool is_parameter() const { return info.role == tensor_role::parameter; }
    /// Tells whether a source is read once alone, in one form: a parameter is stored so, and of an input the cotangent.
    [[nodiscard]] bool is_read_once() const { return is_parameter() || (is_source() && has_cotangent); }
    friend bool operator==(indexed_tensor const&, indexed_tensor const&) = default;
};

/// An index, or a factor of one, along which an operator can be split.
struct split_loop {
    heddle::extent extent = 1;
    bool is_reduction = false;
    /// The factor that the loop is in each operand and result, or `no_factor`.
    std::vector<factor_number> operands;
    std::vector<factor_number> results;
    /// The all-reduces of one number per row by which the devices complete their parts, and the size of each.
    std::uint8_t forward_statistics = 0, backward_statistics = 0;
    bytes statistic{};
    /// If devices exchange rows: the operands that are cut along the index to whose places rows are sent, at points of
    /// their own; the bytes of what is sent and of what is brought back, and of the rows' counts for all places. The
    /// extent is that of the rows.
    std::vector<bool> is_destination{};
    bytes sent{}, returned{}, counted{};
    [[nodiscard]] bool exchanges() const { return !is_destination.empty(); }
    /// Returns the last of these operands. *Precondition:* `exchanges()`.
    [[nodiscard]] std::size_t destination() const {
        std::size_t k = is_destination.size() - 1;
        while (!is_destination[k]) --k;
        return k;
    }
    friend bool operator==(split_loop const&, split_loop const&) = default;
};

/// Returns the loop of an exchange's rows alone, and that of the places to which they are sent.
[[nodiscard]] std::pair<split_loop, split_loop> sides_of(split_loop const& loop);

/// A way to compute an operator that is there beside its loops: forms by their codes, of operands and of results.
struct listed_computation {
    std::vector<std::uint16_t> operands, results;
    std::int16_t loop = -1;
    friend bool operator==(listed_computation const&, listed_computation const&) = default;
};

struct indexed_operator {
    /// The kind is empty if the program does not tell kinds.
    std::string name, kind;
    operator_work work;
    std::vector<tensor_id> operands;
    std::vector<tensor_id> results;
    std::vector<split_loop> loops;
    std::vector<std::vector<std::uint8_t>> terms;
    segment_number segment = 0;
    /// The loop that device groups split among their devices, or -1 if each device does all of it.
    std::int16_t inside_loop = -1;
    /// If there are any, all the ways to compute it; of programs made to be searched.
    std::vector<listed_computation> listed{};
    friend bool operator==(indexed_operator const&, indexed_operator const&) = default;
};

/// Tells whether a loop cuts a term of an operator's result: an operand that the term lists has the loop; if the term
/// lists none, an operand that no term lists has it.
[[nodiscard]] bool cuts_term(indexed_operator const& op, split_loop const& loop, std::vector<std::uint8_t> const& term);

/// The refined view of a program. It owns copies of names and numbers, but not the program.
struct indexed_program {
    std::vector<indexed_tensor> tensors;
    std::vector<indexed_operator> operators;
    tensor_id loss = 0;
    /// Tells whether devices may be groups that split the program among their devices; see `split_inside`.
    bool is_split_inside = false;
    /// The part of what each region saves that a search counts; see `count_regions`.
    std::vector<double> counted_of_regions{};
    [[nodiscard]] double counted_of(region_number region) const {
        auto const r = static_cast<std::size_t>(region);
        return region != no_region && r < counted_of_regions.size() ? counted_of_regions[r] : 1;
    }
    friend bool operator==(indexed_program const&, indexed_program const&) = default;
};

/// Tells whether an operator keeps a tensor that it uses for its backward pass.
[[nodiscard]] inline bool is_saved(indexed_program const& p, tensor_id t) {
    return algorithm::any_of(p.tensors[t].consumers, [&](operator_id o) {
        auto const& op = p.operators[o];
        return algorithm::any_of(op.work.saved_operands, [&](auto k) { return op.operands[k] == t; });
    });
}

/// Returns one more than the highest segment of an operator.
[[nodiscard]] std::size_t segment_count(indexed_program const& p);

namespace detail {

/// Returns the segments that make or use each tensor, ascending; each tensor has one at least.
template <class Program>
[[nodiscard]] std::vector<std::vector<segment_number>> segments_of_tensors(Program const& p,
                                                                           std::span<segment_number const> segments) {
    using access = program_access<Program>;
    std::vector<std::vector<segment_number>> touching(static_cast<std::size_t>(access::tensor_count(p)));
    auto const operators = static_cast<std::size_t>(access::operator_count(p));
    if (!segments.empty() && segments.size() != operators)
        throw input_error("segments", "there are " + std::to_string(segments.size()) + ", expected one for each of " +
                                          std::to_string(operators) + " operators");
    for (operator_id o = 0; o < segments.size(); ++o) {
        for (tensor_id t : access::operands(p, o)) touching.at(t).push_back(segments[o]);
        for (tensor_id t : access::results(p, o)) touching.at(t).push_back(segments[o]);
    }
    for (auto& list : touching) {
        if (list.empty()) list.push_back(segment_number{0});
        algorithm::sort(list);
        list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    return touching;
}

/// Tells whether an access of a rule describes a tensor of this shape.
bool fits(index_rule const& rule, indexed_access const& access, tensor_shape const& dims);

/// *Throws* `input_error` unless every rule describes the operands and results of its operator.
template <class Program>
void check_rules(Program const& p) {
    using access = program_access<Program>;
    auto const tensor_count = static_cast<std::size_t>(access::tensor_count(p));
    for (operator_id o = 0; o < static_cast<std::size_t>(access::operator_count(p)); ++o) {
        index_rule const& rule = access::rule(p, o);
        auto const fail = [&](std::string const& problem) {
            throw input_error("operator '" + std::string(access::name(p, o)) + "'", problem);
        };
        auto const check = [&](auto&& tensors, std::vector<indexed_access> const& accesses) {
            std::size_t n = 0;
            for (tensor_id t : tensors) {
                if (t >= tensor_count)
                    fail("has tensor " + std::to_string(t) + ", the program has " + std::to_string(tensor_count));
                if (n == accesses.size()) break;
                tensor_info const& info = access::tensor(p, t);
                if (!fits(rule, accesses[n++], info.shape)) fail("its rule does not fit tensor '" + info.name + "'");
            }
            for (auto const& index : rule.indices) {
                extent sum = 0;
                for (auto piece : index.pieces) sum += rule.indices.at(piece).extent;
                if (!index.pieces.empty() && sum != index.extent) fail("its rule has pieces that do not make a whole");
            }
            if (n != accesses.size() || n != static_cast<std::size_t>(std::ranges::distance(tensors)))
                fail("its rule is of another number of operands or results");
        };
        check(access::operands(p, o), rule.operands);
        check(access::results(p, o), rule.results);
    }
}

/// Returns the number of places of an operand's indices that have no statistics.
[[nodiscard]] extent row_count(index_rule const& rule, indexed_access const& access);

/// Tells whether a factor is the major one of the first dimension whose extent is not one.
[[nodiscard]] inline bool is_outermost(tensor_shape const& dims, factor const& f) {
    return f.widths.empty() && f.extent * f.stride == dims[f.dimension] &&
           std::all_of(dims.begin(), dims.begin() + f.dimension, [](extent e) { return e == 1; });
}

/// Adds a loop for each way to cut rows and the places to which they may be sent, after the loops that cut either.
void add_exchanges(index_rule const& rule, std::span<std::uint16_t const> index_of_loop,
                   std::vector<indexed_tensor> const& tensors, indexed_operator& op);

/// Lays the results of a view where its operand lies.
void place_results(indexed_operator const& op, std::vector<indexed_tensor>& tensors);

/// Takes the backward pass from what the loss does not depend on, or only through operators that are not
/// differentiated.
void keep_backward_of_loss(indexed_program& p);

} // namespace detail

/// Refines a program's factorisations and collects what later modules need.
///
/// An index is split into the pieces that its dimensions' factors give it. A piece is a loop if it is not blocked and
/// is one whole factor wherever it occurs. `segments` has the segment of each operator; if it is empty, the program is
/// one segment.
/// *Complexity.* Linear in the program if no dimension has several factors.
/// *Throws* `input_error` if operators are not in topological order or a rule does not fit.
template <single_device_program Program>
[[nodiscard]] indexed_program index_program(Program const& p, std::span<segment_number const> segments = {}) {
    using access = program_access<Program>;
    detail::check_rules(p);
    auto const touching = detail::segments_of_tensors(p, segments);
    detail::factor_refinement<Program> const refinement(p);
    indexed_program result;
    result.loss = access::loss(p);
    std::vector<bool> defined;
    for (tensor_id t = 0; t < static_cast<std::size_t>(access::tensor_count(p)); ++t) {
        auto& tensor = result.tensors.emplace_back();
        tensor.info = access::tensor(p, t);
        auto factors =
            detail::factors_of(tensor.info.shape, [&](std::size_t d) -> auto& { return refinement.dimension(t, d); });
        for (std::size_t d = 0; d < tensor.info.shape.size(); ++d)
            if (auto const& shares = refinement.dimension_shares(t, d); !shares.seams.empty())
                if (auto f = shares.within(d, 0, tensor.info.shape[d])) factors.push_back(*std::move(f));
        for (auto segment : touching[t])
            for (auto f : factors) {
                f.segment = segment;
                tensor.factors.push_back(f);
            }
        for (auto const& f : tensor.factors) tensor.is_contiguous.push_back(detail::is_outermost(tensor.info.shape, f));
        tensor.has_cotangent = tensor.info.trainable;
        defined.push_back(tensor.is_source());
    }
    for (operator_id o = 0; o < static_cast<std::size_t>(access::operator_count(p)); ++o) {
        index_rule const& rule = access::rule(p, o);
        auto& op = result.operators.emplace_back();
        op.name = access::name(p, o);
        if constexpr (tells_kinds<Program>) op.kind = access::kind(p, o);
        op.work = access::work(p, o);
        op.terms = rule.terms;
        if (!segments.empty()) op.segment = segments[o];
        bool has_cotangent = false;
        for (tensor_id t : access::operands(p, o)) {
            auto& tensor = result.tensors.at(t);
            if (!defined[t])
                throw input_error("operator '" + op.name + "'",
                                  "uses tensor '" + tensor.info.name + "' before it is computed");
            if (tensor.consumers.empty() || tensor.consumers.back() != o) tensor.consumers.push_back(o);
            ++tensor.uses;
            has_cotangent |= tensor.has_cotangent;
            op.operands.push_back(t);
        }
        for (tensor_id t : access::results(p, o)) {
            auto& tensor = result.tensors.at(t);
            if (defined[t])
                throw input_error("operator '" + op.name + "'",
                                  "computes tensor '" + tensor.info.name + "' a second time");
            defined[t] = true;
            tensor.has_cotangent = has_cotangent && is_floating(tensor.info.type) && !op.work.stops_gradient;
            op.results.push_back(t);
        }
        std::vector<std::uint16_t> index_of_loop;
        for (std::size_t i = 0; i < rule.indices.size(); ++i) {
            auto const& index = rule.indices[i];
            // `find(access, factors, whole)` tells which factor the loop is there.
            auto const add_loop = [&](extent size, auto const& find) {
                split_loop loop{size,
                                index.kind == index_kind::reduction,
                                {},
                                {},
                                index.forward_statistics,
                                index.backward_statistics};
                bool whole = true;
                for (std::size_t k = 0; k < op.operands.size(); ++k)
                    loop.operands.push_back(find(rule.operands[k], result.tensors[op.operands[k]].factors, whole));
                for (std::size_t k = 0; k < op.results.size(); ++k)
                    loop.results.push_back(find(rule.results[k], result.tensors[op.results[k]].factors, whole));
                if (index.forward_statistics + index.backward_statistics > 0)
                    if (auto const k = algorithm::find_if(loop.operands, [](auto f) { return f != no_factor; });
                        k != loop.operands.end()) {
                        auto const operand = static_cast<std::size_t>(k - loop.operands.begin());
                        auto const rows = detail::row_count(rule, rule.operands[operand]);
                        loop.statistic =
                            bytes(static_cast<double>(rows) * element_size(result.tensors[op.results[0]].info.type));
                    }
                if (!whole) return;
                op.loops.push_back(std::move(loop));
                index_of_loop.push_back(static_cast<std::uint16_t>(i));
            };
            if (index.kind != index_kind::blocked) {
                auto const& strides = refinement.index(o, i);
                extent high = index.extent;
                for (auto stride = strides.rbegin(); high > 1;) {
                    extent const low = stride == strides.rend() ? 1 : *stride++;
                    add_loop(high / low, [&](auto const& at, auto const& factors, bool& whole) {
                        return detail::find_factor(rule, at, factors, op.segment, i, low, high, whole);
                    });
                    high = low;
                }
            }
            auto const* shares = refinement.index_shares(o, i);
            if (detail::has_shares(index) && shares && shares->count > 1)
                add_loop(shares->count, [&](auto const& at, auto const& factors, bool& whole) {
                    return detail::find_shares(rule, at, factors, op.segment, i, *shares, whole);
                });
        }
        detail::add_exchanges(rule, index_of_loop, result.tensors, op);
    }
    for (auto const& op : result.operators) detail::place_results(op, result.tensors);
    detail::keep_backward_of_loss(result);
    return result;
}

/// Refuses what is no program, with a sentence that says why.
template <class Program>
    requires(!single_device_program<Program>)
indexed_program index_program(Program const&, std::span<segment_number const> = {}) {
    static_assert(require_single_device_program<Program>());
    return {};
}

} // namespace heddle

#ifdef HEDDLE_COMPILED
namespace heddle {
HEDDLE_TEMPLATE indexed_program index_program(program const&, std::span<segment_number const>);
}
#endif

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE bool cuts_term(indexed_operator const& op, split_loop const& loop,
                             std::vector<std::uint8_t> const& term) {
    auto const has_loop = [&](std::size_t k) { return loop.operands[k] != no_factor; };
    if (!term.empty()) return algorithm::any_of(term, has_loop);
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        bool const is_listed =
            algorithm::any_of(op.terms, [&](auto const& other) { return algorithm::find(other, k) != other.end(); });
        if (!is_listed && has_loop(k)) return true;
    }
    return false;
}

HEDDLE_INLINE std::pair<split_loop, split_loop> sides_of(split_loop const& loop) {
    std::pair<split_loop, split_loop> sides{{loop.extent, false, loop.operands, loop.results},
                                            {loop.extent, true, loop.operands, {}}};
    sides.second.results.assign(loop.results.size(), no_factor);
    for (std::size_t k = 0; k < loop.operands.size(); ++k)
        (loop.is_destination[k] ? sides.first : sides.second).operands[k] = no_factor;
    return sides;
}

HEDDLE_INLINE std::size_t segment_count(indexed_program const& p) {
    std::size_t count = 1;
    for (auto const& op : p.operators) count = std::max<std::size_t>(count, op.segment + std::size_t{1});
    return count;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE bool fits(index_rule const& rule, indexed_access const& access, tensor_shape const& dims) {
    if (access.size() != dims.size()) return false;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        extent product = 1;
        for (auto i : access[d]) {
            if (i >= rule.indices.size() || rule.indices[i].extent < 1 || rule.indices[i].extent > dims[d])
                return false;
            product *= rule.indices[i].extent;
            if (product > dims[d]) return false;
        }
        if (product != dims[d]) return false;
    }
    return true;
}

HEDDLE_INLINE extent row_count(index_rule const& rule, indexed_access const& access) {
    extent rows = 1;
    for (auto const& dimension : access)
        for (auto i : dimension)
            if (auto const& index = rule.indices[i]; index.forward_statistics + index.backward_statistics == 0)
                rows *= index.extent;
    return rows;
}

HEDDLE_INLINE void add_exchanges(index_rule const& rule, std::span<std::uint16_t const> index_of_loop,
                                 std::vector<indexed_tensor> const& tensors, indexed_operator& op) {
    if (!rule.exchange) return;
    auto const& [rows, places, sent, returned] = *rule.exchange;
    double const size = element_size(tensors[op.operands[0]].info.type);
    constexpr double count_size = 8;
    for (std::size_t l = 0; l < index_of_loop.size(); ++l)
        for (std::size_t m = 0; m < index_of_loop.size(); ++m) {
            if (index_of_loop[l] != rows || index_of_loop[m] != places) continue;
            auto both = op.loops[l];
            auto const& other = op.loops[m].operands;
            for (std::size_t k = 0; k < other.size(); ++k) {
                both.is_destination.push_back(other[k] != no_factor);
                if (both.is_destination[k]) both.operands[k] = other[k];
            }
            both.sent = bytes(size * static_cast<double>(place_count(rule, sent)));
            both.returned = bytes(size * static_cast<double>(place_count(rule, returned)));
            both.counted = bytes(count_size * static_cast<double>(rule.indices[places].extent));
            op.loops.push_back(std::move(both));
        }
}

HEDDLE_INLINE void place_results(indexed_operator const& op, std::vector<indexed_tensor>& tensors) {
    if (!op.work.is_view || op.operands.size() != 1) return;
    auto const& from = tensors[op.operands[0]];
    for (auto const& loop : op.loops)
        for (std::size_t k = 0; k < op.results.size(); ++k) {
            if (loop.operands[0] == no_factor || loop.results[k] == no_factor) continue;
            auto& to = tensors[op.results[k]];
            auto const& factor = to.factors[static_cast<std::size_t>(loop.results[k])];
            for (std::size_t f = 0; f < to.factors.size(); ++f) // in every segment
                if (is_same_place(factor, to.factors[f]))
                    to.is_contiguous[f] = from.is_contiguous[static_cast<std::size_t>(loop.operands[0])];
        }
}

HEDDLE_INLINE void keep_backward_of_loss(indexed_program& p) {
    std::vector<bool> reaches(p.tensors.size());
    reaches[p.loss] = true;
    for (auto& op : p.operators | std::views::reverse) {
        if (algorithm::any_of(op.results, [&](tensor_id t) { return reaches[t] && p.tensors[t].has_cotangent; })) {
            for (tensor_id t : op.operands) reaches[t] = true;
            continue;
        }
        op.work.backward = {};
        op.work.extra_saved = {};
        op.work.saved_operands.clear();
        op.work.saved_results.clear();
    }
    for (tensor_id t = 0; t < p.tensors.size(); ++t)
        p.tensors[t].has_cotangent = p.tensors[t].has_cotangent && reaches[t];
}

} // namespace heddle::detail

#endif
