// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What is held at a cut of a program.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/theory/form.hpp>

#include <boost/container/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace heddle {

/// A form in which a tensor is held at a cut, packed: the tensor's slot among those live there, whether it is what the
/// backward pass keeps, and the form; codes compare in this order.
class held_form {
public:
    using code_type = std::uint32_t;

    constexpr held_form(std::uint32_t slot, tensor_form f, bool is_saved)
        : code_(slot << slot_shift | std::uint32_t{is_saved} << saved_shift | f.code()) {}
    constexpr explicit held_form(code_type code) : code_(code) {}

    [[nodiscard]] constexpr code_type code() const { return code_; }
    [[nodiscard]] constexpr std::uint32_t slot() const { return code_ >> slot_shift; }
    [[nodiscard]] constexpr bool is_saved() const { return (code_ >> saved_shift & 1) != 0; }
    [[nodiscard]] constexpr tensor_form form() const {
        return tensor_form::from_code(static_cast<std::uint16_t>(code_ & ((1u << saved_shift) - 1)));
    }
    /// This form, held by the tensor in another slot.
    [[nodiscard]] constexpr held_form at(std::uint32_t slot) const { return {slot, form(), is_saved()}; }

private:
    static constexpr int saved_shift = 14, slot_shift = 15;
    code_type code_;
};

/// The slot of a tensor among those live at a cut; none if it is not.
[[nodiscard]] inline std::optional<std::uint32_t> slot_of(std::vector<tensor_id> const& live, tensor_id t) {
    auto const found = algorithm::find(live, t);
    if (found == live.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - live.begin());
}

/// Codes of held forms, ascending.
using held_codes = boost::container::small_vector<held_form::code_type, 8>;

/// What is held at a cut. As a tensor is known by its slot, cuts between the same
/// operators of repeated blocks have the same states.
struct cut_state {
    held_codes held;
    /// Which of the cuts of its level it is.
    std::uint32_t cut = 0;
    friend bool operator==(cut_state const&, cut_state const&) = default;
};

} // namespace heddle

template <>
struct std::hash<heddle::cut_state> {
    std::size_t operator()(heddle::cut_state const& s) const {
        std::uint64_t h = 0x9e3779b97f4a7c15u + s.cut;
        for (auto id : s.held) h = (h ^ id) * 0xff51afd7ed558ccdu, h ^= h >> 29;
        return static_cast<std::size_t>(h);
    }
};
