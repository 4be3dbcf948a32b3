// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One operator of the catalogue in a program of its own: its rule, work and loops.
#pragma once

#include "loops.hpp"

#include <heddle/program/operators.hpp>
#include <support/literals.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// One call on trained parameters of given shapes, `T` in the arguments standing for the next of them.
struct one_call {
    std::string target;
    std::vector<tensor_shape> operands;
    std::vector<literal> arguments{};
    std::map<std::string, literal, std::less<>> keywords{};
    std::vector<tensor_shape> results{};
    std::vector<element_type> operand_types{};
    element_type result_type = element_type::float32;
};

struct outcome {
    index_rule rule;
    operator_work work;
    std::string loops;
    bool is_known = false;
    indexed_program indexed{};
};

/// As a graph source has it, of parameters that are added to the program.
inline traced_call traced(one_call const& c, program_builder& b) {
    traced_call call{"op", c.target, c.arguments, c.keywords, {}, {}};
    for (std::size_t k = 0; k < c.operands.size(); ++k) {
        auto const type = k < c.operand_types.size() ? c.operand_types[k] : element_type::float32;
        call.operands.push_back(b.parameter("w" + std::to_string(k), c.operands[k], type, is_floating(type)));
    }
    for (auto const& s : c.results) call.results.push_back({s, c.result_type});
    return call;
}

inline outcome add(one_call const& c, rule_table const& rules = {}) {
    program_builder b;
    traced_call const call = traced(c, b);
    auto const added = add_call(b, call, rules);
    std::vector<tensor_id> sums;
    for (auto t : added.results) {
        std::vector<detail::entries> const all{detail::numbered(b.tensor(t).shape)};
        sums.push_back(b.apply("sum", detail::rule_text(all, {{}}, "0"), {t}));
    }
    std::vector<detail::entries> const scalars(sums.size());
    auto const loss = b.apply("add", detail::rule_text(scalars, {{}}, detail::all_terms(sums.size(), " + ")), sums);
    auto const p = b.finish(loss);
    auto const indexed = index_program(p);
    return {p.rule(0), p.work(0), loops(indexed, 0), added.is_known, indexed};
}

inline std::string terms(index_rule const& rule) {
    std::string result;
    for (auto const& term : rule.terms) {
        result += result.empty() ? "" : " + ";
        if (term.empty()) result += '_';
        for (std::size_t i = 0; i < term.size(); ++i) result += (i ? "*" : "") + std::to_string(term[i]);
    }
    return result;
}

inline std::string message_of(one_call const& c, rule_table const& rules = {}) {
    try {
        static_cast<void>(add(c, rules));
    } catch (input_error const& e) { return e.what(); }
    return "nothing thrown";
}

} // namespace heddle::test
