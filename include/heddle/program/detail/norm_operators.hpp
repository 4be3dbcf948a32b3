// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Catalogue entries of softmax and norms.
///
/// What a norm reduces over inside is an index with statistics: it may be split, and then the devices combine a number
/// per row.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/pointwise_operators.hpp>

namespace heddle::detail {

/// Returns the index of an entry with this many statistics, if the entry has an index.
inline std::string with_statistics(std::string const& index, std::size_t count) {
    return index == "1" ? index : std::string(count, '~') + index;
}

inline description softmax(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    entries access = numbered(c.shape_of(x));
    if (access.empty() || !c.find(1, "dim")) return {};
    std::size_t const dimension = c.axis(c.integer(1, "dim"), access.size());
    entries result = access;
    access[dimension] = with_statistics(access[dimension], 2); // a maximum and a sum
    result[dimension] = with_statistics(result[dimension], 1);
    described_operator op{rule_text({access}, {result}), {x}};
    op.options.category = operator_class::normalisation;
    op.options.forward = flops(5 * element_count(c.shape_of(x)));
    op.options.saved_operands = operand_numbers{};
    op.options.saved_results = {0};
    op.options.attributes["dim"] = just(dimension);
    return op;
}

/// A norm of its first operand, (x - mean) / deviation * weight + bias or a part of that; it is linear in weight and
/// bias.
struct norm_description {
    call_view const& call;
    described_operator op{};
    /// The accesses of the first operand, and of the parameters.
    entries access{}, parameters{};
    std::vector<entries> moments{};

    /// `normalised` says for each dimension whether rows extend along it; `statistics` is the count of numbers per row,
    /// which is the same in both passes.
    [[nodiscard]] described_operator finish(std::vector<bool> const& normalised, std::size_t statistics,
                                            std::size_t weight_position) {
        entries marked = access;
        for (std::size_t d = 0; d < marked.size(); ++d)
            if (normalised[d])
                marked[d] = marked[d].starts_with("(")
                                ? marked[d].insert(marked[d].find(' ') + 1, std::string(statistics, '~'))
                                : with_statistics(marked[d], statistics);
        std::vector<entries> operands{marked};
        operands.insert(operands.end(), moments.begin(), moments.end());
        std::string terms;
        for (bool const is_weight : {true, false}) {
            auto const* const name = is_weight ? "weight" : "bias";
            auto const tensor = call.find_tensor(weight_position + (is_weight ? 0 : 1), name);
            if (!tensor) continue;
            op.operands.push_back(*tensor);
            operands.push_back(parameters);
            name_operand(op, name);
            // Without a weight the norm is affine in the bias: the rest would be added once per summand.
            if (is_weight || !terms.empty())
                terms += (terms.empty() ? "" : " + ") + std::to_string(operands.size() - 1);
        }
        op.rule = rule_text(operands, {marked}, terms);
        double const elements = element_count(call.shape_of(op.operands[0]));
        op.options.category = operator_class::normalisation;
        op.options.forward = flops(8 * elements);
        op.options.backward = flops(14 * elements);
        op.options.saved_operands = operand_numbers{0};
        return std::move(op);
    }
    void set_epsilon(std::size_t position, double absent) {
        op.options.attributes["eps"] = just(call.number(position, "eps").value_or(absent));
    }
};

inline norm_description norm_of(call_view const& c) {
    tensor_id const x = c.tensor(0, "input");
    return {c, {{}, {x}}, numbered(c.shape_of(x))};
}

/// Returns the distance from one to the next number of a type, which a root-mean-square norm adds by default.
inline double rounding_of(element_type type) {
    switch (type) {
    case element_type::float16: return 0x1p-10;
    case element_type::bfloat16: return 0x1p-7;
    case element_type::float64: return 0x1p-52;
    default: return 0x1p-23;
    }
}

/// Layer norm or, if not `centred`, root-mean-square norm over the last dimensions.
inline description trailing_norm(call_view const& c, bool centred) {
    auto norm = norm_of(c);
    std::size_t const rank = norm.access.size(), normalised = c.integers(1, "normalized_shape").size();
    tensor_shape const& dims = c.shape_of(norm.op.operands[0]);
    if (auto const sizes = c.integers(1, "normalized_shape");
        normalised == 0 || normalised > rank ||
        !algorithm::equal(sizes, tensor_shape(dims.end() - static_cast<std::ptrdiff_t>(normalised), dims.end())))
        c.fail("normalized_shape",
               "is " + to_text(tensor_shape(sizes.begin(), sizes.end())) + ", expected the last of " + to_text(dims));
    std::vector<bool> is_normalised(rank);
    std::fill(is_normalised.end() - static_cast<std::ptrdiff_t>(normalised), is_normalised.end(), true);
    norm.parameters.assign(norm.access.end() - static_cast<std::ptrdiff_t>(normalised), norm.access.end());
    norm.set_epsilon(centred ? 4 : 3, 1e-5);
    norm.op.options.attributes["normalised"] = just(normalised);
    return norm.finish(is_normalised, centred ? 2 : 1, 2);
}
inline description layer_norm(call_view const& c) { return trailing_norm(c, true); }
inline description rms_norm(call_view const& c) {
    auto op = trailing_norm(c, false);
    if (op && !c.number(3, "eps")) op->options.attributes["eps"] = just(rounding_of(c.type_of(op->operands[0])));
    return op;
}

/// Says whose moments a batch norm in training takes: those of the batch, or on each device those of its own samples.
enum class batch_moments { whole, per_shard };

/// A norm of each channel over everything else, by the batch's moments in training and otherwise by given ones.
inline description batch_norm_by(call_view const& c, batch_moments moments) {
    auto norm = norm_of(c);
    if (norm.access.size() < 2) return {};
    bool const training = c.flag(5, "training", false);
    norm.parameters = {norm.access[1]};
    for (std::size_t const position : {std::size_t{1}, std::size_t{2}}) {
        char const* const name = position == 1 ? "running_mean" : "running_var";
        auto const moment = c.find_tensor(position, name);
        if (!moment) continue;
        norm.op.operands.push_back(*moment);
        norm.moments.push_back(norm.parameters);
        name_operand(norm.op, name);
    }
    std::vector<bool> is_normalised(norm.access.size(), training);
    is_normalised[1] = false;
    norm.set_epsilon(7, 1e-5);
    norm.op.options.attributes["training"] = just(training);
    if (!training || moments == batch_moments::whole) return norm.finish(is_normalised, 2, 3);
    // The samples are cut as if rows did not extend along them; everything else along which rows extend stays whole.
    for (std::size_t d = 2; d < norm.access.size(); ++d)
        if (norm.access[d] != "1") norm.access[d].insert(0, "!");
    return norm.finish(std::vector<bool>(norm.access.size()), 0, 3);
}
inline description batch_norm(call_view const& c) { return batch_norm_by(c, batch_moments::whole); }
inline description batch_norm_per_shard(call_view const& c) { return batch_norm_by(c, batch_moments::per_shard); }

/// A norm of the channels of each sample, in groups.
inline description group_norm(call_view const& c) {
    auto norm = norm_of(c);
    tensor_shape const& dims = c.shape_of(norm.op.operands[0]);
    extent const groups = c.integer(1, "num_groups");
    if (dims.size() < 2) return {};
    if (groups < 1 || dims[1] % groups != 0)
        c.fail("num_groups",
               "is " + std::to_string(groups) + ", expected a divisor of " + std::to_string(dims[1]) + " channels");
    bool const is_whole = groups == 1, is_single = groups == dims[1]; // one group, one channel each
    if (!is_whole && !is_single) {
        norm.access[1] = "(g c)";
        norm.op.options.extents = {{"g", groups}};
    }
    norm.parameters = {norm.access[1]};
    std::vector<bool> is_normalised(dims.size(), true);
    is_normalised[0] = false;
    is_normalised[1] = !is_single;
    norm.set_epsilon(4, 1e-5);
    norm.op.options.attributes["groups"] = just(groups);
    return norm.finish(is_normalised, 2, 2);
}

/// A norm of each channel of each sample.
inline description instance_norm(call_view const& c) {
    if (!c.flag(5, "use_input_stats", true)) return {};
    auto norm = norm_of(c);
    if (norm.access.size() < 2) return {};
    norm.parameters = {norm.access[1]};
    std::vector<bool> is_normalised(norm.access.size(), true);
    is_normalised[0] = is_normalised[1] = false;
    norm.set_epsilon(7, 1e-5);
    return norm.finish(is_normalised, 2, 3);
}

} // namespace heddle::detail
