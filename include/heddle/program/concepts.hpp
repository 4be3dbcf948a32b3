// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The concept that a foreign intermediate representation models to be planned without a copy.
#pragma once

#include <heddle/program/index_rule.hpp>
#include <heddle/program/tensor.hpp>

#include <concepts>
#include <ranges>
#include <string>

namespace heddle {

/// Tells how Heddle reads a program of type `Program`. The primary template calls members of the same names; specialise
/// it for a type you cannot change.
template <class Program>
struct program_access {
    static auto tensor_count(auto const& p) -> decltype(p.tensor_count()) { return p.tensor_count(); }
    static auto operator_count(auto const& p) -> decltype(p.operator_count()) { return p.operator_count(); }
    static auto tensor(auto const& p, tensor_id t) -> decltype(p.tensor(t)) { return p.tensor(t); }
    static auto name(auto const& p, operator_id o) -> decltype(p.name(o)) { return p.name(o); }
    static auto operands(auto const& p, operator_id o) -> decltype(p.operands(o)) { return p.operands(o); }
    static auto results(auto const& p, operator_id o) -> decltype(p.results(o)) { return p.results(o); }
    static auto rule(auto const& p, operator_id o) -> decltype(p.rule(o)) { return p.rule(o); }
    static auto work(auto const& p, operator_id o) -> decltype(p.work(o)) { return p.work(o); }
    static auto loss(auto const& p) -> decltype(p.loss()) { return p.loss(); }
    // Only programs that are run need it; `single_device_program` does without.
    static auto kind(auto const& p, operator_id o) -> decltype(p.kind(o)) { return p.kind(o); }
    static auto attributes(auto const& p, operator_id o) -> decltype(p.attributes(o)) { return p.attributes(o); }
};

template <class Range>
concept range_of_tensors =
    std::ranges::input_range<Range> && std::convertible_to<std::ranges::range_value_t<Range>, tensor_id>;

template <class Program>
concept tells_tensor_count = requires(Program const& p) {
    { program_access<Program>::tensor_count(p) } -> std::convertible_to<std::size_t>;
};
template <class Program>
concept tells_operator_count = requires(Program const& p) {
    { program_access<Program>::operator_count(p) } -> std::convertible_to<std::size_t>;
};
template <class Program>
concept describes_tensors = requires(Program const& p, tensor_id t) {
    { program_access<Program>::tensor(p, t) } -> std::convertible_to<tensor_info const&>;
};
template <class Program>
concept names_operators = requires(Program const& p, operator_id o) {
    { program_access<Program>::name(p, o) } -> std::convertible_to<std::string>;
};
template <class Program>
concept lists_operands = requires(Program const& p, operator_id o) {
    { program_access<Program>::operands(p, o) } -> range_of_tensors;
};
template <class Program>
concept lists_results = requires(Program const& p, operator_id o) {
    { program_access<Program>::results(p, o) } -> range_of_tensors;
};
template <class Program>
concept has_rules = requires(Program const& p, operator_id o) {
    { program_access<Program>::rule(p, o) } -> std::convertible_to<index_rule const&>;
};
template <class Program>
concept has_work = requires(Program const& p, operator_id o) {
    { program_access<Program>::work(p, o) } -> std::convertible_to<operator_work const&>;
};
template <class Program>
concept has_loss = requires(Program const& p) {
    { program_access<Program>::loss(p) } -> std::convertible_to<tensor_id>;
};

/// A single-device training program in SSA form, read through `program_access`.
///
/// *Axioms.* Tensors and operators are numbered densely from zero. Operators come in topological
/// order: each operand of operator `o` is a source or a result of an operator before `o`. Every
/// tensor of role `value` is a result of exactly one operator, no other tensor is one. The rule of
/// an operator has extents, and one entry per operand and result. The loss has one element.
///
/// *Complexity.* Every expression is expected to take constant time.
template <class Program>
concept single_device_program = tells_tensor_count<Program> && tells_operator_count<Program> &&
                                describes_tensors<Program> && names_operators<Program> && lists_operands<Program> &&
                                lists_results<Program> && has_rules<Program> && has_work<Program> && has_loss<Program>;

template <class Program>
concept tells_kinds = requires(Program const& p, operator_id o) {
    { program_access<Program>::kind(p, o) } -> std::convertible_to<std::string>;
};

/// A program that kernels can run: it tells of every operator what it computes, by the name that a backend knows it by.
/// If an operator needs more numbers than rule and shapes tell, `program_access<Program>::attributes(p, o)` returns
/// them as `operator_attributes`; if there is no such function, no operator has any.
template <class Program>
concept runnable_program = single_device_program<Program> && tells_kinds<Program>;

/// Does not compile unless `Program` models `single_device_program`, and then says in a sentence what is missing.
/// Functions that take a program call it in an overload for other types; it can also be called beside a specialisation
/// of `program_access`.
template <class Program>
consteval bool require_single_device_program() {
    static_assert(tells_tensor_count<Program>,
                  "A program tells how many tensors it has: program_access<Program>::tensor_count(p) is an integer.");
    static_assert(
        tells_operator_count<Program>,
        "A program tells how many operators it has: program_access<Program>::operator_count(p) is an integer.");
    static_assert(describes_tensors<Program>,
                  "A program describes each tensor: program_access<Program>::tensor(p, t) is a heddle::tensor_info.");
    static_assert(names_operators<Program>,
                  "A program names each operator: program_access<Program>::name(p, o) is a string.");
    static_assert(lists_operands<Program>, "A program lists what an operator uses: "
                                           "program_access<Program>::operands(p, o) is a range of heddle::tensor_id.");
    static_assert(lists_results<Program>, "A program lists what an operator computes: "
                                          "program_access<Program>::results(p, o) is a range of heddle::tensor_id.");
    static_assert(
        has_rules<Program>,
        "A program has a rule for each operator: program_access<Program>::rule(p, o) is a heddle::index_rule.");
    static_assert(
        has_work<Program>,
        "A program tells the work of each operator: program_access<Program>::work(p, o) is a heddle::operator_work.");
    static_assert(has_loss<Program>, "A program has a loss: program_access<Program>::loss(p) is a heddle::tensor_id.");
    return single_device_program<Program>;
}

} // namespace heddle
