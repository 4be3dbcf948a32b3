// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random data for a program: what its sources may hold, so that it runs and every gradient is of use.
#pragma once

#include <heddle/execute/random.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Numbers from `low` on that are below `high`.
struct number_range {
    double low, high;
};
inline constexpr number_range positive_range{0.5, 1.5}, probability_range{0.1, 0.9}, log_probability_range{-2, -0.1};

/// What the users of a tensor ask of its elements.
struct wanted_values {
    /// Integers are below this: what they look up in. None if nobody looks anything up.
    std::optional<extent> bound{};
    /// A label that does not count; it need not be below the bound.
    std::optional<extent> ignored{};
    /// Where an operator is a function at all: variances, class weights, operands of roots and logarithms, probabilities.
    std::optional<number_range> range{};
    /// Of truth values, whether those that are set take part; elsewhere those that are not.
    bool takes_part = false;
    /// Of a mask that elements are taken by, how many are set.
    std::optional<extent> ones{};
    /// Terms that one element of a result adds up.
    extent fan_in = 1;

    void restrict_to(extent size) { bound = std::min(bound.value_or(size), size); }
    /// Of ranges that have nothing in common the first holds.
    void restrict_to(number_range r) {
        number_range const both = range ? number_range{std::max(range->low, r.low), std::min(range->high, r.high)} : r;
        if (both.low < both.high) range = both;
    }
    /// What the user of a copy asks.
    void take_over(wanted_values const& other) {
        if (other.bound) restrict_to(*other.bound);
        if (other.ignored) ignored = other.ignored;
        if (other.range) restrict_to(*other.range);
        takes_part |= other.takes_part;
        fan_in = std::max(fan_in, other.fan_in);
    }
};

/// Walks the operators backwards: what is asked of a copy is asked of what it copies.
class value_requests {
public:
    explicit value_requests(program const& p) : program_(p), wanted_(p.tensor_count()) {
        for (auto o = static_cast<operator_id>(p.operator_count()); o-- > 0;) visit(o);
    }
    [[nodiscard]] wanted_values const& of(tensor_id t) const { return wanted_[t]; }

private:
    [[nodiscard]] std::optional<double> attribute(operator_id o, char const* name) const {
        auto const found = program_.attributes(o).find(name);
        return found == program_.attributes(o).end() || found->second.empty() ? std::nullopt : std::optional(found->second.front());
    }
    [[nodiscard]] wanted_values& operand(operator_id o, std::size_t k) { return wanted_[program_.operands(o)[k]]; }
    [[nodiscard]] shape const& operand_shape(operator_id o, std::size_t k) const { return program_.tensor(program_.operands(o)[k]).shape; }

    void visit(operator_id o) {
        auto const& kind = program_.kind(o);
        auto const among = [&](std::initializer_list<char const*> kinds) { return std::ranges::find(kinds, kind) != kinds.end(); };
        auto const positive = [&](char const* name) {
            if (auto const k = attribute(o, name)) operand(o, static_cast<std::size_t>(*k)).restrict_to(positive_range);
        };
        if (program_.work(o).is_view || among({"cat", "stack", "clone", "to", "repeat", "tile", "repeat_interleave", "roll", "flip"}))
            for (std::size_t k = 0; k < program_.operands(o).size(); ++k)
                for (auto r : program_.results(o)) {
                    operand(o, k).take_over(wanted_[r]);
                    bool const same = program_.tensor(program_.operands(o)[k]).elements() == program_.tensor(r).elements();
                    if (same && wanted_[r].ones) operand(o, k).ones = wanted_[r].ones;
                }
        else if (among({"embedding", "embedding_bag"})) operand(o, 0).restrict_to(operand_shape(o, 1)[0]);
        else if (among({"nll_loss", "nll", "cross_entropy"})) label(o);
        else if (among({"sqrt", "log", "rsqrt", "log1p", "log2", "reciprocal", "pow"})) operand(o, 0).restrict_to(positive_range);
        else if (among({"gather", "index_select", "index_add", "scatter_add", "scatter", "getitem", "index"})) places(o);
        else if (kind == "one_hot") operand(o, 0).restrict_to(program_.tensor(program_.results(o)[0]).shape.back());
        else if (kind == "binary_cross_entropy") operand(o, 0).restrict_to(probability_range);
        else if (kind == "kl_div") operand(o, 0).restrict_to(log_probability_range);
        if (kind == "binary_cross_entropy" || (kind == "kl_div" && attribute(o, "log_target").value_or(0) == 0)) operand(o, 1).restrict_to(probability_range);
        else if (kind == "kl_div") operand(o, 1).restrict_to(log_probability_range);
        if (kind == "scaled_dot_product_attention" && program_.operands(o).size() > 3) operand(o, 3).takes_part = true;
        positive("running_var");
        if (among({"nll_loss", "cross_entropy"})) positive("weight");
        for (std::size_t k = 0; k < program_.operands(o).size(); ++k) count_terms(o, k);
    }

    /// The second operand holds places of the first one's dimension.
    void places(operator_id o) {
        auto const axis = attribute(o, "dim");
        if (axis && attribute(o, "is_mask")) operand(o, 1).ones = program_.tensor(program_.results(o)[0]).shape[static_cast<std::size_t>(*axis)];
        else if (axis && program_.operands(o).size() > 1) operand(o, 1).restrict_to(operand_shape(o, 0)[static_cast<std::size_t>(*axis)]);
    }

    void label(operator_id o) {
        auto const &scores = operand_shape(o, 0), &target = operand_shape(o, 1);
        if (target.size() >= scores.size()) return; // probabilities
        operand(o, 1).restrict_to(scores[scores.size() > 1 ? 1 : 0]);
        if (auto const ignored = attribute(o, "ignore_index")) operand(o, 1).ignored = static_cast<extent>(*ignored);
    }

    /// A result adds up over indices that it has not. A rule names indices of an operator's inside too (heads): there are no more
    /// terms than the dimensions of a weight but the first make.
    void count_terms(operator_id o, std::size_t k) {
        auto const& rule = program_.rule(o);
        if (std::ranges::find(program_.work(o).sparse_operands, k) != program_.work(o).sparse_operands.end()) return;
        auto const has = [](indexed_access const& access, std::uint16_t i) {
            return std::ranges::any_of(access, [&](auto const& dimension) { return std::ranges::find(dimension, i) != dimension.end(); });
        };
        extent terms = 1, rest = 1;
        for (std::uint16_t i = 0; i < rule.indices.size(); ++i)
            if (has(rule.operands[k], i) && std::ranges::none_of(rule.results, [&](auto const& access) { return has(access, i); })) terms *= rule.indices[i].extent;
        shape const& dims = operand_shape(o, k);
        for (std::size_t d = 1; d < dims.size(); ++d) rest *= dims[d];
        operand(o, k).fan_in = std::max(operand(o, k).fan_in, std::min(terms, rest));
    }

    program const& program_;
    std::vector<wanted_values> wanted_;
};

/// Element `n` of a source; its last dimension has `line` elements.
template <class Scalar>
[[nodiscard]] Scalar random_element(tensor_info const& info, wanted_values const& wanted, extent line, random_key key, extent n) {
    double const u = random_unit(key, static_cast<std::uint64_t>(n));
    if (info.type == element_type::boolean) return Scalar((u < 0.25 && n % line != 0) != wanted.takes_part);
    if (!is_floating(info.type)) {
        double const size = static_cast<double>(wanted.bound.value_or(10));
        if (!wanted.ignored) return static_cast<Scalar>(std::floor(u * size));
        double const ignored = static_cast<double>(*wanted.ignored);
        if (n > 0) return static_cast<Scalar>(u < 0.125 ? ignored : std::floor((u - 0.125) / 0.875 * size));
        double const first = std::floor(u * size);
        return static_cast<Scalar>(first == ignored ? std::fmod(first + 1, size) : first);
    }
    if (wanted.range) return static_cast<Scalar>(wanted.range->low + u * (wanted.range->high - wanted.range->low));
    double const range = info.role == tensor_role::input ? 1 : std::min(1.0, std::sqrt(6 / static_cast<double>(wanted.fan_in)));
    return static_cast<Scalar>(range * (2 * u - 1));
}

/// Sets as many elements of a mask as are wanted, anywhere, and no others.
template <class Scalar>
void set_ones(dense_tensor<Scalar>& mask, extent ones, random_key key) {
    std::vector<extent> order(static_cast<std::size_t>(mask.elements()));
    std::iota(order.begin(), order.end(), extent{0});
    std::ranges::sort(order, {}, [&](extent n) { return std::pair(random_unit(key, static_cast<std::uint64_t>(n)), n); });
    for (extent n : order) mask[n] = Scalar(ones-- > 0);
}

} // namespace detail

/// Random values of every source, the same for a seed whoever draws them.
///
/// Floating-point inputs are uniform in [-1, 1], parameters and buffers in [-r, r] with r^2 = 6 / fan-in and at most 1, so that deep
/// stacks of products neither explode nor vanish (He et al. 2015). What must be positive is in [0.5, 1.5), a probability in [0.1, 0.9), its
/// logarithm in [-2, -0.1). Integers are below the size of what their users look up in, also through views and copies; of labels that
/// may be ignored an eighth is, but never the first, for a mean over none is no number. A quarter of a mask is set, or where what is set takes
/// part the other three, but never so the first place of a line, for attention to nothing is no number either; of a mask that elements are
/// taken by, as many as the result has. What a program computes places or masks from is not known to be that: see `heddle verify`.
/// *Complexity.* Linear in the sources' elements and the program; masks that elements are taken by are sorted.
template <class Scalar>
[[nodiscard]] source_values<Scalar> random_sources(program const& p, std::uint64_t seed) {
    detail::value_requests const requests(p);
    source_values<Scalar> sources;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& info = p.tensor(t);
        if (info.role == tensor_role::value) continue;
        // Operators draw from the streams of their own numbers.
        random_key const key{seed, (std::uint64_t{1} << 32) + t};
        auto& value = sources.emplace(t, dense_tensor<Scalar>(info.shape)).first->second;
        extent const line = info.shape.empty() ? 1 : info.shape.back();
        for (extent n = 0; n < value.elements(); ++n) value[n] = detail::random_element<Scalar>(info, requests.of(t), line, key, n);
        if (auto const ones = requests.of(t).ones; ones && info.type == element_type::boolean) detail::set_ones(value, *ones, key);
    }
    return sources;
}

} // namespace heddle
