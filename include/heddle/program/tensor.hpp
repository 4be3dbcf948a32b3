// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tensors and operators of a single-device program: identifiers, element types, roles.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/quantity.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

/// The dense number of a tensor, `0 .. tensor_count-1`.
using tensor_id = std::uint32_t;
/// The dense number of an operator, in topological order.
using operator_id = std::uint32_t;
/// Elements, extents and counts of them.
using extent = std::int64_t;
using tensor_shape = std::vector<extent>;

enum class element_type : std::uint8_t { float16, bfloat16, float32, float64, int8, int32, int64, boolean };
inline constexpr std::size_t element_type_count = 8;

[[nodiscard]] constexpr int element_size(element_type type) {
    switch (type) {
    case element_type::int8:
    case element_type::boolean: return 1;
    case element_type::float16:
    case element_type::bfloat16: return 2;
    case element_type::float32:
    case element_type::int32: return 4;
    case element_type::float64:
    case element_type::int64: return 8;
    }
    return 0;
}

[[nodiscard]] constexpr char const* name(element_type type) {
    switch (type) {
    case element_type::float16: return "float16";
    case element_type::bfloat16: return "bfloat16";
    case element_type::float32: return "float32";
    case element_type::float64: return "float64";
    case element_type::int8: return "int8";
    case element_type::int32: return "int32";
    case element_type::int64: return "int64";
    case element_type::boolean: return "bool";
    }
    return "";
}

/// Tells whether a tensor of this type can be a sum of summands and can have a derivative.
[[nodiscard]] constexpr bool is_floating(element_type type) { return type <= element_type::float64; }

enum class tensor_role : std::uint8_t {
    input,     ///< read anew in each iteration
    parameter, ///< lives on the devices; trained unless frozen
    buffer,    ///< constant that lives on the devices
    value      ///< result of an operator
};

/// What one tensor of a program is.
struct tensor_info {
    std::string name;
    tensor_shape shape;
    element_type type = element_type::float32;
    tensor_role role = tensor_role::value;
    /// Tells whether the loss is differentiated by it: the optimiser changes a parameter; the cotangent of an input is
    /// wanted by whoever gave the input, such as the stage before. Only these may set it.
    bool trainable = false;
    /// Of an input that every part of the batch has whole, such as labels whose number divides a mean: the name of the
    /// input whose data it is, its own or that of one which is divided. Empty for all other tensors.
    std::string whole_of{};

    [[nodiscard]] bool is_divided_input() const { return role == tensor_role::input && whole_of.empty(); }
    [[nodiscard]] extent elements() const;
    [[nodiscard]] bytes size() const { return bytes(static_cast<double>(elements()) * element_size(type)); }
    friend bool operator==(tensor_info const&, tensor_info const&) = default;
};

/// The class under which an operator's time is looked up.
enum class operator_class : std::uint8_t {
    matmul,
    convolution,
    attention,
    normalisation,
    elementwise,
    reduction,
    other
};
inline constexpr std::size_t operator_class_count = 7;

/// The work of one operator on whole tensors. Traffic is not stated: it follows from the sizes of the tensors that an
/// operator touches.
struct operator_work {
    flops forward;
    flops backward;
    /// The bytes kept for the backward pass that are no operand or result (dropout masks, attention weights). They
    /// shrink with the work when the operator is split.
    bytes extra_saved;
    /// The operands and results that the backward pass reads.
    std::vector<std::uint8_t> saved_operands;
    std::vector<std::uint8_t> saved_results;
    /// The operands of which only looked-up rows are read (an embedding's table).
    std::vector<std::uint8_t> sparse_operands;
    operator_class category = operator_class::other;
    /// A view moves no data and launches nothing.
    bool is_view = false;
    /// Its results are constants to the backward pass (`detach`).
    bool stops_gradient = false;
    friend bool operator==(operator_work const&, operator_work const&) = default;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE extent tensor_info::elements() const {
    extent product = 1;
    for (extent e : shape) product *= e;
    return product;
}

} // namespace heddle

#endif
