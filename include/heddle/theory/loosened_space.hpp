// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The programs of a loosened program whose cuts are narrow, as a layered graph.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/loosened_program.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle {

/// A loosened program and all of its programs.
struct loosened_space {
    explicit loosened_space(indexed_program p, tokens told = tokens::none) : program(std::move(p), told) {}
    loosened_space(loosened_space const&) = delete;

    loosened_program program;
    std::optional<cut_space> space;
    search::state_graph<cut_space::action> graph;
};

/// Codes of forms for each tensor.
using form_table = std::vector<std::set<std::uint16_t>>;

/// Adds the forms that a loosened program has tensors in, to those of the other's tensors.
void add_forms(loosened_space const& of, std::vector<cut_space::action> const& path, form_table& forms);
/// Adds whole copies where nothing else leads from one of a tensor's forms to another.
void join_by_whole_copies(form_table& forms);
/// Allows, of what is allowed of a program, what makes the tensors that are kept in these forms alone.
[[nodiscard]] instruction_filter in_forms(indexed_program const& p, instruction_filter const& allowed,
                                          form_table const& forms, std::function<bool(tensor_id)> const& is_kept);

/// Loosens tensors of a program in `result`, which is new, until no cut has more than `most` states, under a
/// restriction of the program; `in_stages` has programs divided into stages. Tokens are dropped where that does not
/// suffice. False if nothing is left to be loosened, or time is over.
[[nodiscard]] bool loosen_until_narrow(loosened_space& result, instruction_filter const& allowed, std::size_t most,
                                       bool in_stages, search::deadline const& until);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/search/numbering.hpp>
#include <heddle/theory/theory.hpp>

namespace heddle {

HEDDLE_INLINE bool loosen_until_narrow(loosened_space& result, instruction_filter const& allowed, std::size_t most,
                                       bool in_stages, search::deadline const& until) {
    auto& loose = result.program;
    auto& space = result.space.emplace(loose.program(), loose.kinds(), 1);
    if (in_stages) space.divide_into_stages();
    space.bound_what_is_left_out();
    space.restrict_to(loose.as_loosened(allowed));
    search::exploration explored(space);
    while (!until.is_over()) {
        explored.go_on([&] { return most; }, 0);
        if (explored.graph().is_complete) {
            result.graph = std::move(explored).graph();
            return true;
        }
        auto const& first = explored.graph().first_of_level;
        std::size_t level = 0;
        while (first[level + 1] - first[level] < most) ++level;
        auto changed = loose.loosen_at(level);
        if (!changed && loose.drop_tokens()) changed = 0;
        if (!changed) return false;
        explored.cut_back(*changed);
        space.change_from(*changed, loose.kinds(), loose.restorations(), loose.as_loosened(allowed));
    }
    return false;
}

HEDDLE_INLINE void add_forms(loosened_space const& of, std::vector<cut_space::action> const& path, form_table& forms) {
    auto const add = [&](tensor_id t, tensor_form f) { forms[of.program.of(t)].insert(f.code()); };
    for (auto const& i : of.space->instructions_of(path)) {
        if (auto const* change = i.change()) {
            add(change->tensor, change->from), add(change->tensor, change->to);
            continue;
        }
        auto const& compute = *i.as<instruction::compute>();
        auto const& op = of.space->program().operators[compute.op];
        for (std::size_t k = 0; k < op.operands.size(); ++k) add(op.operands[k], compute.operands[k]);
        for (std::size_t k = 0; k < op.results.size(); ++k) add(op.results[k], compute.results[k]);
    }
}

HEDDLE_INLINE void join_by_whole_copies(form_table& forms) {
    for (auto& of_tensor : forms)
        for (auto from : of_tensor)
            if (!algorithm::all_of(of_tensor, [&](auto to) {
                    return from == to || find_conversion(tensor_form::from_code(from), tensor_form::from_code(to));
                })) {
                of_tensor.insert(tensor_form::replicated().code());
                break;
            }
}

HEDDLE_INLINE instruction_filter in_forms(indexed_program const& p, instruction_filter const& allowed,
                                          form_table const& forms, std::function<bool(tensor_id)> const& is_kept) {
    auto kept = std::make_shared<std::vector<std::optional<std::set<std::uint16_t>>>>(p.tensors.size());
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    std::vector<std::uint64_t> marks;
    for (tensor_id t = 0; t < p.tensors.size(); ++t) {
        if (is_kept(t)) (*kept)[t] = forms[t];
        std::vector<std::uint64_t> key{allowed.mark ? allowed.mark(t) : 0, (*kept)[t].has_value()};
        if (auto const& of_tensor = (*kept)[t]) key.insert(key.end(), of_tensor->begin(), of_tensor->end());
        marks.push_back(numbers.insert(std::move(key)).first);
    }
    auto const allows = [&p, allowed, kept](instruction const& i) {
        auto const has = [&](tensor_id t, tensor_form f) { return !(*kept)[t] || (*kept)[t]->contains(f.code()); };
        if (auto const* change = i.change()) return has(change->tensor, change->to) && allowed(i);
        auto const& compute = *i.as<instruction::compute>();
        auto const& op = p.operators[compute.op];
        for (std::size_t k = 0; k < op.results.size(); ++k)
            if (!has(op.results[k], compute.results[k])) return false;
        return allowed(i);
    };
    if (!allowed.mark) return allows;
    return {allows, [marks = std::move(marks)](tensor_id t) { return marks[t]; }};
}

} // namespace heddle

#endif
