// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The forms in which devices hold a tensor together, and how one form becomes another.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/program/indexed_program.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The relation of a distributed tensor to the single-device one, over one mesh axis.
///
/// Duality: the cotangent of a tensor is held in the dual form (`shard` and `mirrored` are their own dual; `replicated`
/// and `partial` are each other's). So a forward program fixes its backward program.
class tensor_form {
public:
    enum class kind : std::uint8_t {
        replicated, ///< every device has all of it; the cotangent is a sum over devices
        partial,    ///< the devices hold summands; every device has the whole cotangent
        mirrored,   ///< every device has all of it, and all of the cotangent
        shard       ///< every device has a range of one factor, of value and cotangent
    };

    constexpr tensor_form() = default;
    static constexpr tensor_form replicated() { return tensor_form(0); }
    static constexpr tensor_form partial() { return tensor_form(1); }
    static constexpr tensor_form mirrored() { return tensor_form(2); }
    static constexpr tensor_form shard(factor_number f) { return tensor_form(static_cast<std::uint16_t>(3 + f)); }
    static constexpr tensor_form from_code(std::uint16_t code) { return tensor_form(code); }

    [[nodiscard]] constexpr kind type() const { return code_ < 3 ? static_cast<kind>(code_) : kind::shard; }
    [[nodiscard]] constexpr bool is_shard() const { return code_ >= 3; }
    /// Tells whether every device has all of it.
    [[nodiscard]] constexpr bool is_whole() const { return *this == replicated() || *this == mirrored(); }
    /// *Precondition:* `is_shard()`.
    [[nodiscard]] constexpr factor_number factor() const { return static_cast<factor_number>(code_ - 3); }
    [[nodiscard]] constexpr std::uint16_t code() const { return code_; }

    friend constexpr bool operator==(tensor_form, tensor_form) = default;
    friend constexpr auto operator<=>(tensor_form, tensor_form) = default;

private:
    constexpr explicit tensor_form(std::uint16_t code) : code_(code) {}
    std::uint16_t code_ = 0;
};

/// A tensor in a form.
using formed_tensor = std::pair<tensor_id, tensor_form>;

/// Writes `shard(2)` for the third factor, and the other forms by their names.
[[nodiscard]] std::string to_string(tensor_form f);

/// Returns the form in which whole copies of a tensor are held if no backward pass needs it: without a cotangent
/// `mirrored` and `replicated` are the same.
[[nodiscard]] inline tensor_form canonical(tensor_form f, indexed_tensor const& tensor) {
    return f == tensor_form::mirrored() && !tensor.has_cotangent ? tensor_form::replicated() : f;
}

/// Tells whether devices can hold a tensor in this form at all.
[[nodiscard]] bool is_possible(tensor_form f, indexed_tensor const& tensor);
/// Returns all such forms, by their codes.
[[nodiscard]] std::vector<tensor_form> possible_forms(indexed_tensor const& tensor);

/// One direction of a conversion: a collective, local work over the tensor, or nothing.
struct conversion_half {
    enum class work : std::uint8_t {
        none,
        slice, ///< read a shard, write a shard
        pad,   ///< read a shard, write the whole
        scale  ///< read the whole, write the whole
    };
    std::optional<heddle::collective> collective{};
    work local = work::none;
};

/// What turns one form into another, and the adjoint that turns the cotangent back.
struct conversion {
    conversion_half forward, backward;
};

/// Returns the conversion from one form to another in one instruction; nothing if there is none (for equal forms, and
/// from `shard` to `partial`).
[[nodiscard]] std::optional<conversion> find_conversion(tensor_form from, tensor_form to);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::string to_string(tensor_form f) {
    switch (f.type()) {
    case tensor_form::kind::replicated: return "replicated";
    case tensor_form::kind::partial: return "partial";
    case tensor_form::kind::mirrored: return "mirrored";
    case tensor_form::kind::shard: break;
    }
    return "shard(" + std::to_string(f.factor()) + ")";
}

HEDDLE_INLINE bool is_possible(tensor_form f, indexed_tensor const& tensor) {
    switch (f.type()) {
    case tensor_form::kind::partial: return is_floating(tensor.info.type);
    case tensor_form::kind::mirrored: return tensor.has_cotangent;
    case tensor_form::kind::shard:
        if (f.factor() >= static_cast<factor_number>(tensor.factors.size())) return false;
        if (tensor.inside != no_factor) { // a dimension is cut twice along factors without pieces alone
            auto const &across = tensor.factors[static_cast<std::size_t>(f.factor())],
                       &inside = tensor.factors[static_cast<std::size_t>(tensor.inside)];
            return across.dimension != inside.dimension || (across.widths.empty() && inside.widths.empty());
        }
        return true;
    case tensor_form::kind::replicated: break;
    }
    return true;
}

HEDDLE_INLINE std::vector<tensor_form> possible_forms(indexed_tensor const& tensor) {
    std::vector<tensor_form> forms;
    for (std::uint16_t code = 0; code < tensor_form::shard(0).code() + tensor.factors.size(); ++code)
        if (auto const f = tensor_form::from_code(code); is_possible(f, tensor)) forms.push_back(f);
    return forms;
}

HEDDLE_INLINE std::optional<conversion> find_conversion(tensor_form from, tensor_form to) {
    using enum tensor_form::kind;
    using enum heddle::collective;
    using work = conversion_half::work;
    auto const local = [](work w) { return conversion_half{{}, w}; };
    auto const over = [](heddle::collective c) { return conversion_half{c, work::none}; };
    if (from == to) return std::nullopt;
    switch (from.type()) {
    case replicated:
        switch (to.type()) {
        case shard: return conversion{local(work::slice), local(work::pad)};
        case partial: return conversion{local(work::scale), local(work::scale)};
        case mirrored: return conversion{local(work::none), local(work::scale)};
        case replicated: break;
        }
        break;
    case partial:
        switch (to.type()) {
        case replicated: return conversion{over(all_reduce), over(all_reduce)};
        case shard: return conversion{over(reduce_scatter), over(all_gather)};
        case mirrored: return conversion{over(all_reduce), {}};
        case partial: break;
        }
        break;
    case mirrored:
        switch (to.type()) {
        case replicated: return conversion{{}, over(all_reduce)};
        case shard: return conversion{local(work::slice), over(all_gather)};
        case partial: return conversion{local(work::scale), {}};
        case mirrored: break;
        }
        break;
    case shard:
        switch (to.type()) {
        case replicated: return conversion{over(all_gather), over(reduce_scatter)};
        case shard: return conversion{over(all_to_all), over(all_to_all)};
        case mirrored: return conversion{over(all_gather), local(work::slice)};
        case partial: break;
        }
        break;
    }
    return std::nullopt;
}

} // namespace heddle

#endif
