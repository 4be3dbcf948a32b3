// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What runs one operator, forward and backward, on the part of its tensors that a rank holds.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/random.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/program/index_rule.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The positions that are held of each dimension of one tensor.
using held_part = std::vector<held_positions>;

/// Who has the places that an operator sends rows to; see `row_exchange`.
struct place_owners {
    std::size_t ranks = 1;
    /// The rank that has each place. It is empty if no rows are sent.
    std::vector<std::size_t> of{};
};

/// One operator as one rank runs it: the whole operator, and what the rank holds of its tensors.
///
/// If a loop is split, the tensors that have it are held in part; all others are whole. A partial operand is whole too,
/// and a summand of the tensor: a kernel adds or multiplies it like any other. A split reduction gives this rank's
/// summand of the result. Parts may be empty.
/// *Invariant.* A call lives no longer than the program of which it was made.
struct kernel_call {
    std::string_view name, kind;
    /// Has the extents of the whole operator.
    index_rule const* rule = nullptr;
    operator_attributes const* attributes = nullptr;
    std::vector<held_part> operands, results;
    /// Is the key of dropout, which draws by the element's number in the whole tensor.
    random_key random{};
    place_owners destinations{};
    /// The program's types of the results' elements.
    std::vector<element_type> result_types{};

    [[nodiscard]] std::vector<double> numbers(std::string const& attribute) const;
    [[nodiscard]] bool has(std::string const& attribute) const { return !numbers(attribute).empty(); }
    [[nodiscard]] double number(std::string const& attribute, double absent) const;
    [[nodiscard]] bool flag(std::string const& attribute, bool absent = false) const {
        return number(attribute, absent ? 1 : 0) != 0;
    }
    /// Returns the number of an optional operand.
    [[nodiscard]] std::optional<std::size_t> operand(std::string const& attribute) const;

    /// Returns the shape of a whole operand or result.
    [[nodiscard]] tensor_shape whole_shape(indexed_access const& access) const;
    /// Returns the shape of the part of it that this rank holds.
    [[nodiscard]] tensor_shape held_shape(indexed_access const& access, held_part const& part) const;
    [[nodiscard]] tensor_shape operand_shape(std::size_t k) const { return held_shape(rule->operands[k], operands[k]); }
    [[nodiscard]] tensor_shape result_shape(std::size_t k) const { return held_shape(rule->results[k], results[k]); }

    [[noreturn]] void fail(std::string const& problem) const {
        throw input_error("operator '" + std::string(name) + "'", problem);
    }
};

/// A call as it is made to a backend: with what joins it to the same call on other ranks.
template <rank_tensor Tensor>
struct tensor_call : kernel_call {
    /// Replaces this rank's numbers, one per row, by those of all ranks together. It is empty if no loop with
    /// statistics is split: then a rank has whole rows. `which` counts the operator's statistics, forward ones first.
    /// If the backward pass asks for one of the forward pass, it gets it without communication.
    std::function<void(std::size_t which, reduction how, wide_of<Tensor>& rows)> combine{};
    /// Returns what ranks send to this one, by rank; counts are of numbers, by rank. It is empty if no rows are sent.
    /// `which` counts the operator's exchanges, forward ones first. If the backward pass asks for one of the forward
    /// pass, it gets it without communication.
    std::function<Tensor(std::size_t which, Tensor const& rows, shard_counts sent, shard_counts received)> send{};

    tensor_call() = default;
    /// A call that is joined to none.
    tensor_call(kernel_call&& alone) : kernel_call(std::move(alone)) {}
};

/// Returns the call that runs a whole operator.
[[nodiscard]] kernel_call whole_call(program const& p, operator_id o, std::uint64_t seed = 0);

/// Restricts the call of operator `o` to the places [begin, begin + count) of a loop, that is, of the factor that the
/// loop is in each operand and result that has it. *Precondition:* the loop is one of operator `o` of `indexed`, which
/// is of `p`.
void split_call(kernel_call& call, program const& p, indexed_program const& indexed, operator_id o,
                split_loop const& loop, extent begin, extent count);

/// Returns the call that runs an operator on these places of a loop.
[[nodiscard]] kernel_call split_call(program const& p, indexed_program const& indexed, operator_id o,
                                     split_loop const& loop, extent begin, extent count, std::uint64_t seed = 0);

namespace detail {

/// Keeps of the positions that are held those that are given, ascending.
void restrict_to(held_positions& held, std::vector<extent> positions);

} // namespace detail

/// Restricts a call to what some of several parts of it hold. *Precondition:* the parts are restricted along one loop.
void restrict_to_any(kernel_call& call, std::span<kernel_call const> parts);

/// What runs operators on tensors of `Scalar`.
///
/// *Notation.* `b` is a const backend, `Backend::tensor` its type of tensors and `call` a `tensor_call` of it;
/// `operands`, `results` and `cotangents` are spans of pointers to tensors of the parts that the call states.
///
/// *Valid expressions.*
/// - `b.forward(call, operands)` returns the results' parts.
/// - `b.backward(call, operands, results, cotangents)` returns the cotangent of each operand's part, nothing if there
///   is no derivative (integers, masks). A null cotangent stands for zero.
///
/// *Axioms.* Let a loop be split into ranges. The parts that `forward` returns for them make up the whole result: they
/// are pieces of it for a parallel loop, and summands for a reduction. So do the cotangents that `backward` returns:
/// they are pieces for an operand that has the loop, and summands for one that has not. `backward` is linear in the
/// cotangents and is the adjoint of the derivative of `forward`. All ranks call `call.combine` for the statistics that
/// the loop states, each once and in order; it completes what they hold in part, and the above holds with it. So do
/// they call `call.send` if there is one: rows are computed where the places are that they choose. Otherwise both are
/// pure; random draws depend only on `call.random` and the place in the whole.
///
/// *Throws* `input_error`, naming the operator, if the backend cannot run it.
/// *Thread safety.* Const calls may be made from several threads at once.
template <class Backend, class Scalar>
concept kernel_backend =
    rank_tensor<typename Backend::tensor> && std::same_as<typename Backend::tensor::scalar_type, Scalar> &&
    requires(Backend const& b, tensor_call<typename Backend::tensor> const& call,
             std::span<typename Backend::tensor const* const> tensors) {
        { b.forward(call, tensors) } -> std::same_as<std::vector<typename Backend::tensor>>;
        {
            b.backward(call, tensors, tensors, tensors)
        } -> std::same_as<std::vector<std::optional<typename Backend::tensor>>>;
    };

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::vector<double> kernel_call::numbers(std::string const& attribute) const {
    auto const found = attributes->find(attribute);
    return found == attributes->end() ? std::vector<double>{} : found->second;
}

HEDDLE_INLINE double kernel_call::number(std::string const& attribute, double absent) const {
    auto const values = numbers(attribute);
    return values.empty() ? absent : values.front();
}

HEDDLE_INLINE std::optional<std::size_t> kernel_call::operand(std::string const& attribute) const {
    auto const values = numbers(attribute);
    return values.empty() ? std::nullopt : std::optional(static_cast<std::size_t>(values.front()));
}

HEDDLE_INLINE tensor_shape kernel_call::whole_shape(indexed_access const& access) const {
    tensor_shape dims;
    for (auto const& dimension : access) {
        extent& size = dims.emplace_back(1);
        for (auto i : dimension) size *= rule->indices[i].extent;
    }
    return dims;
}

HEDDLE_INLINE tensor_shape kernel_call::held_shape(indexed_access const& access, held_part const& part) const {
    tensor_shape dims = whole_shape(access);
    for (std::size_t d = 0; d < dims.size(); ++d)
        if (part[d]) dims[d] = static_cast<extent>(part[d]->size());
    return dims;
}

HEDDLE_INLINE kernel_call whole_call(program const& p, operator_id o, std::uint64_t seed) {
    kernel_call call{p.name(o), p.kind(o), &p.rule(o), &p.attributes(o), {}, {}, {seed, o}};
    for (auto const& access : call.rule->operands) call.operands.emplace_back(access.size());
    for (auto const& access : call.rule->results) call.results.emplace_back(access.size());
    for (auto t : p.results(o)) call.result_types.push_back(p.tensor(t).type);
    return call;
}

} // namespace heddle

namespace heddle::detail {

HEDDLE_INLINE void restrict_to(held_positions& held, std::vector<extent> positions) {
    if (held) std::erase_if(positions, [&](extent at) { return !algorithm::binary_search(*held, at); });
    held = std::move(positions);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void split_call(kernel_call& call, program const& p, indexed_program const& indexed, operator_id o,
                              split_loop const& loop, extent begin, extent count) {
    auto const cut = [&](std::span<tensor_id const> tensors, std::vector<factor_number> const& factors,
                         std::vector<held_part>& parts) {
        for (std::size_t k = 0; k < parts.size(); ++k) {
            if (factors[k] == no_factor) continue;
            auto const& tensor = indexed.tensors[tensors[k]];
            factor const& f = tensor.factors[static_cast<std::size_t>(factors[k])];
            auto positions = positions_of(tensor.info.shape[f.dimension], f, begin, count);
            detail::restrict_to(parts[k][f.dimension], std::move(positions));
        }
    };
    cut(p.operands(o), loop.operands, call.operands);
    cut(p.results(o), loop.results, call.results);
}

HEDDLE_INLINE void restrict_to_any(kernel_call& call, std::span<kernel_call const> parts) {
    auto const restrict_all = [&](std::vector<held_part> kernel_call::* tensors) {
        for (std::size_t k = 0; k < (call.*tensors).size(); ++k)
            for (std::size_t d = 0; d < (call.*tensors)[k].size(); ++d) {
                held_positions any;
                for (auto const& part : parts)
                    if (auto const& held = (part.*tensors)[k][d]) {
                        if (!any) any.emplace();
                        any->insert(any->end(), held->begin(), held->end());
                    }
                if (any) {
                    algorithm::sort(*any);
                    detail::restrict_to((call.*tensors)[k][d], *std::move(any));
                }
            }
    };
    restrict_all(&kernel_call::operands);
    restrict_all(&kernel_call::results);
}

HEDDLE_INLINE kernel_call split_call(program const& p, indexed_program const& indexed, operator_id o,
                                     split_loop const& loop, extent begin, extent count, std::uint64_t seed) {
    kernel_call call = whole_call(p, o, seed);
    split_call(call, p, indexed, o, loop, begin, count);
    return call;
}

} // namespace heddle

#endif
