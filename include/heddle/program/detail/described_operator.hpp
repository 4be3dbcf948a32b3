// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a catalogue entry makes of a call, and the notation in which it writes rules.
#pragma once

#include <heddle/program/program.hpp>
#include <heddle/program/traced_call.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// An operator that is about to be added; its name and result types come from the call. If the rule and
/// `options.extents` leave an extent open, `options.results` has the shapes of the results that follow from the
/// operands and arguments. The call's own shapes must agree.
struct described_operator {
    std::string rule;
    std::vector<tensor_id> operands;
    operator_options options{};
    /// The kind of the operator if the target's name does not say it: `max` of two tensors is a `maximum`.
    std::string kind{};
};
/// Is empty if the catalogue has no rule for these arguments.
using description = std::optional<described_operator>;

using operand_numbers = std::vector<std::uint8_t>;

[[nodiscard]] inline std::string to_text(tensor_shape const& dims) {
    std::string text = "[";
    for (std::size_t d = 0; d < dims.size(); ++d) text += (d ? ", " : "") + std::to_string(dims[d]);
    return text + "]";
}

/// The arguments of a call to a builder's tensors.
class call_view : public call_arguments {
public:
    call_view(traced_call const& call, program_builder const& builder) : call_arguments(call), builder_(&builder) {}

    [[nodiscard]] tensor_shape const& shape_of(tensor_id t) const { return builder_->tensor(t).shape; }
    [[nodiscard]] element_type type_of(tensor_id t) const { return builder_->tensor(t).type; }
    [[nodiscard]] bool is_differentiable(tensor_id t) const { return builder_->is_differentiable(t); }
    [[nodiscard]] std::size_t result_count() const { return call().results.size(); }
    [[nodiscard]] tensor_shape const& result_shape() const {
        if (call().results.empty())
            throw input_error("operator '" + call().name + "'", "has no result that is a tensor");
        return call().results.front().shape;
    }

    // These check arguments and throw `input_error`.

    void expect_within(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) const {
        if (value < least || value > most)
            fail(name, "is " + std::to_string(value) + ", expected " +
                           (least > most ? "nothing" : std::to_string(least) + " to " + std::to_string(most)));
    }
    void expect_shape(std::string_view name, tensor_id t, tensor_shape const& expected) const {
        if (shape_of(t) != expected)
            fail(name, "has shape " + to_text(shape_of(t)) + ", expected " + to_text(expected));
    }
    /// Checks that a tensor of places, labels or numbers of rows has integers.
    void expect_integers(std::string_view name, tensor_id t) const {
        if (is_floating(type_of(t))) fail(name, "is of a floating-point type, expected integers");
        if (type_of(t) == element_type::boolean) fail(name, "is of truth values, expected integers");
    }
    void expect_results(std::size_t count) const {
        if (result_count() != count)
            throw input_error("operator '" + call().name + "'",
                              "has " + std::to_string(result_count()) + " results, expected " + std::to_string(count));
    }
    /// Turns an index that may be counted from the end, if negative, into one from the start.
    [[nodiscard]] extent place(std::string_view name, std::int64_t index, extent size) const {
        expect_within(name, index, -size, size - 1);
        return index < 0 ? index + size : index;
    }
    [[nodiscard]] double probability(std::size_t position, std::string_view name, double absent) const {
        double const p = number(position, name).value_or(absent);
        if (!(p >= 0 && p <= 1)) fail(name, "is " + std::to_string(p) + ", expected 0 to 1");
        return p;
    }

private:
    program_builder const* builder_;
};

/// Holds one text per dimension of a tensor: an index, `1`, `_`, `!index` or `(major minor)`.
using entries = std::vector<std::string>;

[[nodiscard]] inline double element_count(tensor_shape const& dims) {
    double product = 1;
    for (extent e : dims) product *= static_cast<double>(e);
    return product;
}

/// Returns the index if there is something to cut, else `1`.
[[nodiscard]] inline std::string entry(std::string index, extent e) { return e == 1 ? "1" : std::move(index); }

/// A dimension of equal pieces, one after the other, of which each has all of `place`: pieces are never cut from each
/// other, but all of them at the same places.
[[nodiscard]] inline std::string in_pieces(std::string const& place, std::string const& number = {}) {
    return place == "1" ? "_" : "(!pieces" + number + " " + place + ")";
}

[[nodiscard]] inline entries numbered(tensor_shape const& dims, std::string const& prefix = "i") {
    entries result;
    for (std::size_t d = 0; d < dims.size(); ++d) result.push_back(entry(prefix + std::to_string(d), dims[d]));
    return result;
}

/// Blocks dimensions from `first` on, so that nothing may be cut from them.
[[nodiscard]] inline entries blocked_from(entries dims, std::size_t first) {
    for (std::size_t d = first; d < dims.size(); ++d)
        if (dims[d] != "1") dims[d] = "_";
    return dims;
}

[[nodiscard]] inline entries blocked(tensor_shape const& dims) { return blocked_from(numbered(dims), 0); }

[[nodiscard]] inline std::string to_text(std::vector<entries> const& side) {
    std::string text;
    for (auto const& access : side) {
        text += text.empty() ? "(" : ", (";
        for (std::size_t d = 0; d < access.size(); ++d) text += (d ? " " : "") + access[d];
        text += ')';
    }
    return text;
}

[[nodiscard]] inline std::string rule_text(std::vector<entries> const& operands, std::vector<entries> const& results,
                                           std::string const& terms = {}) {
    return to_text(operands) + " -> " + to_text(results) + (terms.empty() ? "" : "; " + terms);
}

/// Returns one number for each of `rank` sides; an integer stands for all of them. It is empty if there is no argument.
[[nodiscard]] inline std::vector<double> sides(call_view const& c, std::size_t position, std::string_view name,
                                               std::size_t rank) {
    auto const* found = c.find(position, name);
    if (!found) return {};
    std::vector<double> result;
    auto const add = [&](literal const& item) {
        auto const* number = item.as<std::int64_t>();
        if (!number) c.fail(name, "expected integers");
        result.push_back(static_cast<double>(*number));
    };
    if (auto const* list = found->as<literal::list>()) std::ranges::for_each(*list, add);
    else add(*found);
    if (result.size() == 1) result.resize(rank, result.front());
    if (!result.empty() && result.size() != rank) c.fail(name, "expected one integer or " + std::to_string(rank));
    return result;
}

/// Returns a number, or a flag as 0 or 1, as an attribute's value.
template <class Number>
    requires std::is_arithmetic_v<Number>
[[nodiscard]] std::vector<double> just(Number number) {
    return {static_cast<double>(number)};
}

/// Notes under `name` which operand is this optional one.
inline void name_operand(described_operator& op, char const* name) {
    op.options.attributes[name] = just(op.operands.size() - 1);
}

/// Returns `0 + 1 + ...` or `0*1*...` over all operands.
[[nodiscard]] inline std::string all_terms(std::size_t count, std::string_view joint) {
    std::string text;
    for (std::size_t k = 0; k < count; ++k) text += (k ? std::string(joint) : "") + std::to_string(k);
    return text;
}

} // namespace heddle::detail
