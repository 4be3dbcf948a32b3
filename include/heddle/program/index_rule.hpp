// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Index rules: an operator described by its loop indices, as in an einsum.
///
/// The language, by example: `linear` is `(b s k), (n k), (n) -> (b s n); 0*1 + 2`.
/// - One parenthesis per operand and result, one entry per dimension.
/// - An entry is an index name; `1`, a dimension of extent one without an index; `_`, a dimension
///   of any extent that is never cut; `!name`, an index that several dimensions share and that is
///   never cut; `~name`, an index that something is reduced over inside the operator, as a softmax's
///   classes; a list of indices in parentheses, major first: `(h d)`; or pieces that lie side by side in brackets,
///   each an index or `_`: `[q k v]`. Pieces are never cut alone, but all of them in the same shares.
/// - An index that occurs in a result is *parallel*; one that occurs in none is a *reduction*: the
///   result is a sum over it.
/// - A row is a place of the indices without `~`. If an index with `~` is cut, the devices combine one number
///   per row for each `~`: in the forward pass for those in an operand, in the backward pass for those in a result.
///   `log_softmax` is `(b ~~c) -> (b ~c)`: a maximum and a sum, and a sum. A batch norm is
///   `(~~b c ~~h ~~w) -> (~~b c ~~h ~~w)`; its rows are channels.
/// - After `;` the result is a sum of products of those operands (by number) in which it is linear. Operands that
///   are not named there enter non-linearly. A term `_` is what these make by themselves, linear in nothing: an
///   affine operator is `(i), (j) -> (j); _ + 1`.
/// - After another `;` stands that rows may be exchanged: with `(t k c) @ e -> (t k d)` the operator may be cut along
///   `t` and operands along `e` at once. For each place of `t` and `k` the `c` numbers are brought to where the
///   operands have a place of `e`, which the data choose, and `d` numbers are brought back. Tokens and their experts
///   are so.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

enum class index_kind : std::uint8_t {
    parallel,  ///< splitting it splits the result
    reduction, ///< the result is a sum over it
    blocked    ///< may not be split
};

struct loop_index {
    std::string name;
    heddle::extent extent = 0;
    index_kind kind = index_kind::parallel;
    /// The numbers per row that the devices combine if the index is cut.
    std::uint8_t forward_statistics = 0, backward_statistics = 0;
    /// The indices that lie side by side in this one, if it is made of pieces.
    std::vector<std::uint16_t> pieces{};
};

/// The indices of one dimension, major first; empty for an extent of one.
using indexed_dimension = std::vector<std::uint16_t>;
/// Holds one entry per dimension of an operand or result.
using indexed_access = std::vector<indexed_dimension>;

/// Rows that devices may send to where the places of an index are, and get an answer of; all of the first operand's
/// type.
struct row_exchange {
    /// The index of the rows, which devices hold in parts, and the one whose places they are sent to.
    std::uint16_t rows = 0, places = 0;
    /// What is sent and what is brought back: the dimensions of all of it.
    indexed_access sent, returned;
};

/// Tells how an operator's result depends on its operands, index by index.
///
/// *Axioms.* Take a set of an index's places, contiguous or strided. For a parallel index, computing with those places
/// of every operand that has it gives those places of each result. For a reduction index, the results so computed over
/// a partition of its places sum to the result, if every term without the index is given to one part only; such a term
/// depends on no operand that has the index. The result is linear in each operand of a term while the others are fixed.
/// A result that depends on no operand of the terms belongs to the term that lists none. For an index with statistics
/// all of this holds if the parts use the statistics of the whole rows. With an exchange it holds for the rows' index
/// also if each part has some places of the other index alone, and sends rows to the parts that have those they choose.
struct index_rule {
    std::vector<loop_index> indices;
    std::vector<indexed_access> operands;
    std::vector<indexed_access> results;
    /// The result is the sum of these terms; each lists the operands in which it is multilinear. At most one term lists
    /// none: it depends on the operands outside the terms.
    std::vector<std::vector<std::uint8_t>> terms;
    std::optional<row_exchange> exchange{};
};

/// Returns the places of an access, given the extents of indices.
[[nodiscard]] extent place_count(index_rule const& rule, indexed_access const& access);

namespace detail {

/// A recursive-descent reader of the rule language.
class rule_parser {
public:
    explicit rule_parser(std::string_view text) : text_(text) {}

    index_rule parse();

private:
    [[noreturn]] void fail(std::string const& expected) const;
    void skip() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    }
    bool accept(std::string_view token);
    [[nodiscard]] bool is_next(std::string_view token) {
        skip();
        return text_.substr(at_, token.size()) == token;
    }
    void expect(std::string_view token) {
        if (!accept(token)) fail("'" + std::string(token) + "'");
    }
    bool at_end_or(std::string_view token);

    using statistics = std::uint8_t loop_index::*;

    void read_side(std::vector<indexed_access>& side, std::string_view stop, statistics marked);

    indexed_dimension read_dimension(statistics marked);

    std::uint16_t read_pieces();

    std::uint16_t add_blocked();

    std::uint16_t read_index(statistics marked);

    std::uint16_t add_index(std::string name, index_kind kind);

    void read_terms();

    void read_exchange();

    /// A parenthesis of indices that are there already.
    indexed_access read_known();

    void check_exchange();

    void classify();

    std::string_view text_;
    std::size_t at_ = 0;
    index_rule rule_;
};

} // namespace detail

/// Reads a rule, whose extents are then zero. *Throws* `input_error` with the place in the text.
[[nodiscard]] inline index_rule parse_index_rule(std::string_view text) { return detail::rule_parser(text).parse(); }

/// The extents of indices by name, for factored dimensions that shapes alone do not determine.
using index_extents = std::map<std::string, extent, std::less<>>;

/// Determines every extent from the operands' shapes, the results' shapes (none if they are not known) and given
/// extents; returns the results' shapes.
/// *Throws* `input_error` if shapes contradict the rule or leave an extent open.
std::vector<tensor_shape> bind_extents(index_rule& rule, std::span<tensor_shape const> operands,
                                       std::span<tensor_shape const> results = {}, index_extents const& given = {});

/// Returns the rule under which nothing may be split: the operator is replicated.
[[nodiscard]] index_rule blocked_rule(std::span<tensor_shape const> operands, std::span<tensor_shape const> results);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE index_rule rule_parser::parse() {
    read_side(rule_.operands, "->", &loop_index::forward_statistics);
    expect("->");
    read_side(rule_.results, ";", &loop_index::backward_statistics);
    if (accept(";") && !is_next(";")) read_terms();
    if (accept(";")) read_exchange();
    skip();
    if (at_ != text_.size()) fail("nothing more");
    classify();
    check_exchange();
    return std::move(rule_);
}

HEDDLE_INLINE void rule_parser::fail(std::string const& expected) const {
    throw input_error("index rule '" + std::string(text_) + "', character " + std::to_string(at_ + 1),
                      "expected " + expected);
}

HEDDLE_INLINE bool rule_parser::accept(std::string_view token) {
    if (!is_next(token)) return false;
    at_ += token.size();
    return true;
}

HEDDLE_INLINE bool rule_parser::at_end_or(std::string_view token) { return is_next(token) || at_ == text_.size(); }

HEDDLE_INLINE void rule_parser::read_side(std::vector<indexed_access>& side, std::string_view stop, statistics marked) {
    if (at_end_or(stop)) return;
    do {
        expect("(");
        indexed_access access;
        while (!accept(")")) access.push_back(read_dimension(marked));
        side.push_back(std::move(access));
    } while (accept(","));
}

HEDDLE_INLINE indexed_dimension rule_parser::read_dimension(statistics marked) {
    if (accept("1")) return {};
    if (accept("_")) return {add_blocked()};
    if (accept("[")) return {read_pieces()};
    if (!accept("(")) return {read_index(marked)};
    indexed_dimension factors;
    while (!accept(")")) factors.push_back(read_index(marked));
    if (factors.empty()) fail("an index name");
    return factors;
}

HEDDLE_INLINE std::uint16_t rule_parser::read_pieces() {
    auto const whole = add_blocked();
    std::vector<std::uint16_t> pieces;
    while (!accept("]")) {
        pieces.push_back(accept("_") ? add_blocked() : read_index(&loop_index::forward_statistics));
        if (algorithm::count(pieces, pieces.back()) > 1) fail("a piece that is not there yet");
        rule_.indices[pieces.back()].kind = index_kind::blocked;
    }
    if (pieces.empty()) fail("an index name or '_'");
    rule_.indices[whole].pieces = std::move(pieces);
    return whole;
}

HEDDLE_INLINE std::uint16_t rule_parser::add_blocked() {
    return add_index("_" + std::to_string(rule_.indices.size()), index_kind::blocked);
}

HEDDLE_INLINE std::uint16_t rule_parser::read_index(statistics marked) {
    constexpr std::uint8_t most_statistics = 8;
    bool const blocked = accept("!");
    std::uint8_t count = 0;
    while (count < most_statistics && accept("~")) ++count;
    skip();
    std::size_t const begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    std::string const name(text_.substr(begin, at_ - begin));
    if (name.empty() || name[0] == '_' || std::isdigit(static_cast<unsigned char>(name[0]))) {
        at_ = begin;
        fail("an index name, '1', '_' or '('");
    }
    auto const found = algorithm::find(rule_.indices, name, &loop_index::name);
    auto const number = found == rule_.indices.end() ? add_index(name, index_kind::reduction)
                                                     : static_cast<std::uint16_t>(found - rule_.indices.begin());
    if (blocked) rule_.indices[number].kind = index_kind::blocked;
    auto& most = rule_.indices[number].*marked;
    most = std::max(most, count);
    return number;
}

HEDDLE_INLINE std::uint16_t rule_parser::add_index(std::string name, index_kind kind) {
    constexpr std::size_t most = 4096; // numbers are of 16 bits, and names are searched one by one
    if (rule_.indices.size() == most) fail("at most " + std::to_string(most) + " indices");
    rule_.indices.push_back({.name = std::move(name), .kind = kind});
    return static_cast<std::uint16_t>(rule_.indices.size() - 1);
}

HEDDLE_INLINE void rule_parser::read_terms() {
    std::vector<bool> seen(rule_.operands.size());
    do {
        auto& term = rule_.terms.emplace_back();
        if (accept("_")) {
            bool const is_second = algorithm::count_if(rule_.terms, [](auto const& t) { return t.empty(); }) > 1;
            if (is_second) fail("one term '_' at most");
            continue;
        }
        do {
            skip();
            std::size_t number = 0;
            std::size_t const begin = at_;
            while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && at_ - begin < 3)
                number = number * 10 + static_cast<std::size_t>(text_[at_++] - '0');
            if (begin == at_ || number >= rule_.operands.size() || seen[number]) {
                at_ = begin;
                fail("the number of an operand that is in no term yet");
            }
            seen[number] = true;
            term.push_back(static_cast<std::uint8_t>(number));
        } while (accept("*"));
    } while (accept("+"));
    bool const all_named = algorithm::find(seen, false) == seen.end();
    if (all_named && algorithm::any_of(rule_.terms, [](auto const& t) { return t.empty(); }))
        fail("an operand in no term, which '_' is made of");
}

HEDDLE_INLINE indexed_access rule_parser::read_known() {
    expect("(");
    indexed_access access;
    auto const known = rule_.indices.size();
    while (!accept(")")) {
        auto const begin = at_;
        access.push_back({read_index(&loop_index::forward_statistics)});
        if (rule_.indices.size() == known) continue;
        at_ = begin;
        fail("an index of an operand");
    }
    return access;
}

HEDDLE_INLINE void rule_parser::read_exchange() {
    row_exchange made;
    made.sent = read_known();
    if (made.sent.empty()) fail("an index of rows");
    made.rows = made.sent.front().front();
    expect("@");
    auto const known = rule_.indices.size();
    made.places = read_index(&loop_index::forward_statistics);
    if (rule_.indices.size() != known) fail("an index of an operand");
    expect("->");
    made.returned = read_known();
    rule_.exchange = std::move(made);
}

HEDDLE_INLINE void rule_parser::check_exchange() {
    if (!rule_.exchange) return;
    auto const has = [](indexed_access const& access, std::uint16_t i) {
        return algorithm::any_of(
            access, [&](auto const& dimension) { return algorithm::find(dimension, i) != dimension.end(); });
    };
    auto const [rows, places] = std::pair(rule_.exchange->rows, rule_.exchange->places);
    for (auto const& access : rule_.results)
        if (!has(access, rows)) fail("rows of an index that all results have");
    if (rule_.indices[rows].kind != index_kind::parallel || rule_.indices[places].kind != index_kind::reduction)
        fail("rows that may be cut, and places that may be cut and that no result has");
    for (auto const& access : rule_.operands)
        if (has(access, rows) && has(access, places)) fail("operands that have either the rows or the places");
}

HEDDLE_INLINE void rule_parser::classify() {
    for (auto const& access : rule_.results)
        for (auto const& dimension : access)
            for (auto i : dimension)
                if (rule_.indices[i].kind == index_kind::reduction) rule_.indices[i].kind = index_kind::parallel;
    if (rule_.results.empty()) fail("a result");
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE extent place_count(index_rule const& rule, indexed_access const& access) {
    extent count = 1;
    for (auto const& dimension : access)
        for (auto i : dimension) count *= rule.indices[i].extent;
    return count;
}

HEDDLE_INLINE std::vector<tensor_shape> bind_extents(index_rule& rule, std::span<tensor_shape const> operands,
                                                     std::span<tensor_shape const> results,
                                                     index_extents const& given) {
    auto const describe = [](std::string const& what, std::size_t n, std::size_t d) {
        return what + " " + std::to_string(n) + ", dimension " + std::to_string(d);
    };
    auto const check_positive = [](extent e, std::string const& what) {
        if (e < 1) throw input_error(what, "extent " + std::to_string(e) + ", expected at least 1");
    };
    for (std::size_t n = 0; n < operands.size() + results.size(); ++n)
        for (extent e : n < operands.size() ? operands[n] : results[n - operands.size()])
            check_positive(e, "operand or result");
    for (auto const& [name, value] : given) {
        check_positive(value, "index '" + name + "'");
        auto found = algorithm::find(rule.indices, name, &loop_index::name);
        if (found != rule.indices.end()) found->extent = value;
    }
    bool progress = true;
    auto const solve = [&](std::vector<indexed_access> const& accesses, std::span<tensor_shape const> shapes,
                           std::string const& what) {
        for (std::size_t n = 0; n < shapes.size(); ++n) {
            if (accesses[n].size() != shapes[n].size())
                throw input_error(what + " " + std::to_string(n), "has " + std::to_string(shapes[n].size()) +
                                                                      " dimensions, the rule expects " +
                                                                      std::to_string(accesses[n].size()));
            for (std::size_t d = 0; d < shapes[n].size(); ++d) {
                extent rest = shapes[n][d];
                loop_index* open = nullptr;
                int unknown = 0;
                for (auto i : accesses[n][d]) {
                    auto& index = rule.indices[i];
                    if (index.extent == 0) {
                        open = &index;
                        ++unknown;
                        continue;
                    }
                    if (rest % index.extent != 0)
                        throw input_error(describe(what, n, d),
                                          "extent " + std::to_string(shapes[n][d]) +
                                              (accesses[n][d].size() == 1
                                                   ? ", the rule expects " + std::to_string(index.extent)
                                                   : " is not a multiple of index '" + index.name +
                                                         "' = " + std::to_string(index.extent)));
                    rest /= index.extent;
                }
                if (unknown == 1) {
                    open->extent = rest;
                    progress = true;
                } else if (unknown == 0 && rest != 1)
                    throw input_error(describe(what, n, d), "extent " + std::to_string(shapes[n][d]) +
                                                                ", the rule expects " +
                                                                std::to_string(shapes[n][d] / rest));
            }
        }
    };
    if (operands.size() != rule.operands.size())
        throw input_error("", "the rule has " + std::to_string(rule.operands.size()) + " operands, " +
                                  std::to_string(operands.size()) + " were given");
    if (!results.empty() && results.size() != rule.results.size())
        throw input_error("", "the rule has " + std::to_string(rule.results.size()) + " results, " +
                                  std::to_string(results.size()) + " were given");
    while (progress) {
        progress = false;
        solve(rule.operands, operands, "operand");
        solve(rule.results, results, "result");
        for (auto& index : rule.indices) {
            if (index.pieces.empty()) continue;
            extent sum = 0;
            loop_index* open = nullptr;
            int unknown = 0;
            for (auto piece : index.pieces) {
                sum += rule.indices[piece].extent;
                if (rule.indices[piece].extent > 0) continue;
                open = &rule.indices[piece];
                ++unknown;
            }
            if (index.extent > 0 && (unknown == 0 ? sum != index.extent : sum + unknown > index.extent))
                throw input_error("index '" + index.name + "'", "has extent " + std::to_string(index.extent) +
                                                                    ", its pieces make " + std::to_string(sum));
            if (unknown + (index.extent == 0 ? 1 : 0) != 1) continue;
            (unknown == 1 ? open->extent : index.extent) = unknown == 1 ? index.extent - sum : sum;
            progress = true;
        }
    }
    for (auto const& index : rule.indices)
        if (index.extent == 0)
            throw input_error("", "the extent of index '" + index.name + "' does not follow from the shapes");
    std::vector<tensor_shape> solved;
    for (auto const& access : rule.results) {
        auto& result = solved.emplace_back();
        for (auto const& dimension : access) {
            extent product = 1;
            for (auto i : dimension) product *= rule.indices[i].extent;
            result.push_back(product);
        }
    }
    return solved;
}

HEDDLE_INLINE index_rule blocked_rule(std::span<tensor_shape const> operands, std::span<tensor_shape const> results) {
    index_rule rule;
    auto const block = [&](std::span<tensor_shape const> shapes, std::vector<indexed_access>& side) {
        for (auto const& s : shapes) {
            auto& access = side.emplace_back();
            for (extent e : s) {
                rule.indices.push_back(
                    {.name = "_" + std::to_string(rule.indices.size()), .extent = e, .kind = index_kind::blocked});
                access.push_back({static_cast<std::uint16_t>(rule.indices.size() - 1)});
            }
        }
    };
    block(operands, rule.operands);
    block(results, rule.results);
    return rule;
}

} // namespace heddle

#endif
