// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The operator catalogue: makes an operator of a traced call.
///
/// Every entry writes an index rule for the call's arguments and states what rule and shapes do not tell: the flops,
/// what the backward pass reads, and the class under which its time is looked up.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/attention_operators.hpp>
#include <heddle/program/detail/cell_operators.hpp>
#include <heddle/program/detail/expert_operators.hpp>
#include <heddle/program/detail/lookup_operators.hpp>
#include <heddle/program/detail/loss_operators.hpp>
#include <heddle/program/detail/norm_operators.hpp>
#include <heddle/program/detail/piece_operators.hpp>
#include <heddle/program/detail/place_operators.hpp>
#include <heddle/program/detail/pointwise_operators.hpp>
#include <heddle/program/detail/product_operators.hpp>
#include <heddle/program/detail/reduction_operators.hpp>
#include <heddle/program/detail/routed_operators.hpp>
#include <heddle/program/detail/source_operators.hpp>
#include <heddle/program/detail/view_operators.hpp>
#include <heddle/program/detail/window_operators.hpp>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The user's rules: each target has the text of a rule, or the name of a variant that the catalogue has of it (see
/// `rule_variants`). They go before the catalogue's.
using rule_table = std::map<std::string, std::string, std::less<>>;

struct added_call {
    std::vector<tensor_id> results;
    /// Tells whether there is a rule; if not, every device computes the operator in full.
    bool is_known = true;
};

namespace detail {

using catalogue = std::map<std::string_view, description (*)(call_view const&)>;

/// Has the functions of torch and the methods of its tensors, by the last part of their name.
[[nodiscard]] inline catalogue const& torch_catalogue() {
    static catalogue const table{
        {"linear", linear},
        {"matmul", matmul},
        {"mm", matmul},
        {"bmm", matmul},
        {"mv", matmul},
        {"dot", matmul},
        {"einsum", einsum},
        {"addmm", matmul_added},
        {"baddbmm", matmul_added},
        {"conv1d", convolution<1>},
        {"conv2d", convolution<2>},
        {"conv3d", convolution<3>},
        {"conv_transpose1d", convolution_transpose<1>},
        {"conv_transpose2d", convolution_transpose<2>},
        {"conv_transpose3d", convolution_transpose<3>},
        {"scaled_dot_product_attention", dot_product_attention},
        {"embedding", embedding},
        {"embedding_bag", embedding_bag},

        {"full_like", [](call_view const& c) { return filled_like(c, c.number(1, "fill_value")); }},
        {"rand_like", drawn_like},
        {"randn_like", drawn_like},
        {"bernoulli", drawn_by},
        {"prelu", weighted_relu},
        {"glu", gated_linear},
        {"addcdiv", add_quotient},
        {"argmax", place_of_extreme},
        {"argmin", place_of_extreme},
        {"add", binary<arithmetic::add>},
        {"sub", binary<arithmetic::subtract>},
        {"mul", binary<arithmetic::multiply>},
        {"div", binary<arithmetic::divide>},
        {"floor_divide", floored_quotient},
        {"remainder", remainder},
        {"neg", linear_copy},
        {"clone", linear_copy},
        {"detach", detached},
        {"to", linear_copy},
        {"float", linear_copy},
        {"half", linear_copy},
        {"bfloat16", linear_copy},
        {"double", linear_copy},
        {"type_as", linear_copy},
        {"contiguous", [](call_view const& c) { return unary(c, {.linear = true, .is_view = true}); }},
        {"relu", [](call_view const& c) { return unary(c, {.saves_result = true}); }},
        {"tanh", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 8}); }},
        {"sigmoid", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 4}); }},
        {"exp", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 4}); }},
        {"sqrt", [](call_view const& c) { return unary(c, {.saves_result = true}); }},
        {"log", [](call_view const& c) { return unary(c, {.saves_operand = true, .flops_per_element = 4}); }},
        {"gelu", [](call_view const& c) { return unary(c, {.saves_operand = true, .flops_per_element = 8}); }},
        {"silu", [](call_view const& c) { return unary(c, {.saves_operand = true, .flops_per_element = 5}); }},
        {"rsqrt", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 2}); }},
        {"reciprocal", [](call_view const& c) { return unary(c, {.saves_result = true}); }},
        {"expm1", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 4}); }},
        {"log1p", [](call_view const& c) { return function_of(c, 4); }},
        {"log2", [](call_view const& c) { return function_of(c, 4); }},
        {"sin", [](call_view const& c) { return function_of(c, 4); }},
        {"cos", [](call_view const& c) { return function_of(c, 4); }},
        {"tan", [](call_view const& c) { return function_of(c, 5); }},
        {"atan", [](call_view const& c) { return function_of(c, 5); }},
        {"sinh", [](call_view const& c) { return function_of(c, 8); }},
        {"cosh", [](call_view const& c) { return function_of(c, 8); }},
        {"exp2", [](call_view const& c) { return unary(c, {.saves_result = true, .flops_per_element = 4}); }},
        {"log10", [](call_view const& c) { return function_of(c, 4); }},
        {"erfc", [](call_view const& c) { return function_of(c, 6); }},
        {"erf", [](call_view const& c) { return function_of(c, 6); }},
        {"abs", [](call_view const& c) { return function_of(c, 1); }},
        {"square", [](call_view const& c) { return function_of(c, 1); }},
        {"pow", power},
        {"clamp", clamp},
        {"clamp_min", [](call_view const& c) { return clamp_at(c, "min"); }},
        {"clamp_max", [](call_view const& c) { return clamp_at(c, "max"); }},
        {"relu6", [](call_view const& c) { return function_of(c, 2); }},
        {"hardsigmoid", [](call_view const& c) { return function_of(c, 3); }},
        {"hardswish", [](call_view const& c) { return function_of(c, 4); }},
        {"mish", [](call_view const& c) { return function_of(c, 12); }},
        {"selu", [](call_view const& c) { return function_of(c, 6); }},
        {"logsigmoid", [](call_view const& c) { return function_of(c, 6); }},
        {"softsign", [](call_view const& c) { return function_of(c, 3); }},
        {"tanhshrink", [](call_view const& c) { return function_of(c, 9); }},
        {"leaky_relu", [](call_view const& c) { return function_of(c, 2, {{1, "negative_slope", 0.01}}); }},
        {"elu", [](call_view const& c) { return function_of(c, 5, {{1, "alpha", 1}}); }},
        {"softshrink", [](call_view const& c) { return function_of(c, 2, {{1, "lambd", 0.5}}); }},
        {"hardshrink", [](call_view const& c) { return function_of(c, 1, {{1, "lambd", 0.5}}); }},
        {"threshold", threshold},
        {"celu", [](call_view const& c) { return function_of(c, 6, {{1, "alpha", 1}}); }},
        {"softplus", [](call_view const& c) { return function_of(c, 6, {{1, "beta", 1}, {2, "threshold", 20}}); }},
        {"hardtanh", [](call_view const& c) { return function_of(c, 2, {{1, "min_val", -1}, {2, "max_val", 1}}); }},
        {"dropout", dropout<0>},
        {"dropout1d", dropout<1>},
        {"dropout2d", dropout<2>},
        {"dropout3d", dropout<3>},
        {"sign", step_of},
        {"floor", step_of},
        {"ceil", step_of},
        {"trunc", step_of},
        {"round", rounded},
        {"logical_not", step_of},
        {"eq", compare},
        {"ne", compare},
        {"lt", compare},
        {"le", compare},
        {"gt", compare},
        {"ge", compare},
        {"logical_and", compare},
        {"logical_or", compare},
        {"minimum", function_of_two},
        {"maximum", function_of_two},
        {"atan2", function_of_two},
        {"logaddexp", function_of_two},
        {"lerp", interpolated},
        {"where", where},
        {"masked_fill", masked_fill},
        {"addcmul", add_product},

        {"softmax", softmax},
        {"log_softmax", softmax},
        {"layer_norm", layer_norm},
        {"rms_norm", rms_norm},
        {"batch_norm", batch_norm},
        {"group_norm", group_norm},
        {"instance_norm", instance_norm},

        {"sum", reduce},
        {"mean", reduce},
        {"amax", reduce_whole},
        {"amin", reduce_whole},
        {"max", extreme_of},
        {"min", extreme_of},
        {"prod", reduce_whole},
        {"logsumexp", reduce_whole},
        {"var", variance<1>},
        {"std", variance<1>},
        {"var_mean", variance<2>},
        {"std_mean", variance<2>},
        {"norm", vector_norm},
        {"cumsum", cumulative_sum},
        {"max_pool1d", max_pool<1>},
        {"max_pool2d", max_pool<2>},
        {"max_pool3d", max_pool<3>},
        {"avg_pool1d", average_pool<1>},
        {"avg_pool2d", average_pool<2>},
        {"avg_pool3d", average_pool<3>},
        {"adaptive_avg_pool1d", adaptive_average_pool<1>},
        {"adaptive_avg_pool2d", adaptive_average_pool<2>},
        {"adaptive_avg_pool3d", adaptive_average_pool<3>},
        {"adaptive_max_pool1d", adaptive_max_pool<1>},
        {"adaptive_max_pool2d", adaptive_max_pool<2>},
        {"adaptive_max_pool3d", adaptive_max_pool<3>},
        {"interpolate", interpolate},
        {"nll_loss", nll_loss},
        {"cross_entropy", cross_entropy},
        {"mse_loss", squared_error},
        {"l1_loss", absolute_error},
        {"smooth_l1_loss", smooth_absolute_error},
        {"huber_loss", huber},
        {"kl_div", divergence},
        {"binary_cross_entropy", binary_cross_entropy},
        {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
        {"rnn_tanh_cell", rnn_cell},
        {"rnn_relu_cell", rnn_cell},
        {"lstm_cell", lstm_cell},
        {"gru_cell", gru_cell},
        {"rnn_tanh", rnn_layers},
        {"rnn_relu", rnn_layers},
        {"lstm", lstm_layers},
        {"gru", gru_layers},

        {"transpose", transpose},
        {"permute", permute},
        {"t", reversed},
        {"getattr", attribute},
        {"reshape", reshape_to},
        {"view", reshape_to},
        {"flatten", reshape},
        {"unflatten", reshape},
        {"squeeze", squeeze},
        {"unsqueeze", unsqueeze},
        {"view_as", reshape_like},
        {"reshape_as", reshape_like},
        {"expand", expand},
        {"expand_as", expand},
        {"tile", repeat},
        {"cat", concatenate},
        {"split", divide},
        {"chunk", divide},
        {"split_with_sizes", divide},
        {"tensor_split", divide},
        {"getitem", get_item_at},
        {"index", index_list},
        {"repeat", repeat},
        {"repeat_interleave", repeat_interleave},
        {"roll", roll},
        {"flip", flip},
        {"pad", padding},
        {"unbind", unbind},
        {"stack", stack},
        {"select", select},
        {"narrow", narrow},
        {"slice", slice},
        {"index_select", index_select},
        {"gather", gather_elements},
        {"index_add", index_add},
        {"scatter_add", scatter_add},
        {"scatter", scatter},
        {"pixel_shuffle", pixel_shuffle},
        {"pixel_unshuffle", pixel_unshuffle},
        {"diagonal", diagonal},
        {"triu", triangle},
        {"tril", triangle},
        {"topk", largest},
        {"one_hot", one_hot},
        {"index_put", index_put},
        {"histc", histogram},
        {"grouped_mm", grouped_product},

        {"arange", range_of},
        {"full", [](call_view const& c) { return filled(c, value_at(c, 1, "fill_value")); }},
        {"rand", [](call_view const& c) { return drawn(c, "rand"); }},
        {"randn", [](call_view const& c) { return drawn(c, "randn"); }},

        {"acos", [](call_view const& c) { return function_of(c, 6); }},
        {"asin", [](call_view const& c) { return function_of(c, 6); }},
        {"acosh", [](call_view const& c) { return function_of(c, 8); }},
        {"asinh", [](call_view const& c) { return function_of(c, 8); }},
        {"atanh", [](call_view const& c) { return function_of(c, 8); }},
        {"isnan", step_of},
        {"isinf", step_of},
    };
    return table;
}

/// Has calls that are another operator of the catalogue with other arguments.
[[nodiscard]] inline catalogue const& torch_forms() {
    static catalogue const table{
        {"addmv", [](call_view const& c) { return product_added(c, false); }},
        {"addbmm", [](call_view const& c) { return product_added(c, true); }},
        {"outer", outer_product},
        {"bilinear", bilinear},
        {"rsub", subtracted_from},
        {"sort", sorted},
        {"movedim", move_dimensions},
        {"and_", [](call_view const& c) { return bit_function(c, "logical_and", true); }},
        {"or_", [](call_view const& c) { return bit_function(c, "logical_or", true); }},
        {"xor", [](call_view const& c) { return bit_function(c, "ne", true); }},
        {"invert", [](call_view const& c) { return bit_function(c, "logical_not", false); }},
        {"logical_xor", [](call_view const& c) { return truth_function(c, "ne", true); }},
        {"zeros_like", [](call_view const& c) { return filled_like(c, 0); }},
        {"ones_like", [](call_view const& c) { return filled_like(c, 1); }},
        {"empty_like", [](call_view const& c) { return filled_like(c, 0); }},
        {"zero", [](call_view const& c) { return filled_like(c, 0); }},
        {"fill", [](call_view const& c) { return filled_like(c, value_at(c, 1, "value")); }},
        {"zeros", [](call_view const& c) { return filled(c, 0); }},
        {"ones", [](call_view const& c) { return filled(c, 1); }},
        {"empty", [](call_view const& c) { return filled(c, 0); }},
        {"empty_strided", [](call_view const& c) { return filled(c, 0); }},
        {"empty_permuted", [](call_view const& c) { return filled(c, 0); }},
        {"new_zeros", [](call_view const& c) { return filled(c, 0); }},
        {"new_ones", [](call_view const& c) { return filled(c, 1); }},
        {"new_empty", [](call_view const& c) { return filled(c, 0); }},
        {"new_empty_strided", [](call_view const& c) { return filled(c, 0); }},
        {"new_full", [](call_view const& c) { return filled(c, value_at(c, 2, "fill_value")); }},
        {"scalar_tensor", [](call_view const& c) { return filled(c, value_at(c, 0, "s")); }},
        {"linspace", linear_space},
    };
    return table;
}

/// Has other names of operators in the catalogue: sources differ in which they use. A program has the catalogue's
/// names.
[[nodiscard]] inline std::map<std::string_view, std::string_view> const& operator_aliases() {
    static std::map<std::string_view, std::string_view> const table{
        {"truediv", "div"},
        {"multiply", "mul"},
        {"concat", "cat"},
        {"log_sigmoid", "logsigmoid"},
        {"swapaxes", "transpose"},
        {"swapdims", "transpose"},
        {"true_divide", "div"},
        {"divide", "div"},
        {"subtract", "sub"},
        {"negative", "neg"},
        {"absolute", "abs"},
        {"clip", "clamp"},
        {"broadcast_to", "expand"},
        {"ravel", "reshape"},
        {"concatenate", "cat"},
        {"greater", "gt"},
        {"greater_equal", "ge"},
        {"less", "lt"},
        {"less_equal", "le"},
        {"not_equal", "ne"},
        {"_threshold", "threshold"},
        {"_grouped_mm", "grouped_mm"},
        {"numpy_T", "t"},
        {"_adaptive_avg_pool2d", "adaptive_avg_pool2d"},
        {"_adaptive_avg_pool3d", "adaptive_avg_pool3d"},
        {"_unsafe_view", "reshape"},
        {"_reshape_alias", "reshape"},
        {"floordiv", "floor_divide"},
        {"mod", "remainder"},
        {"long", "to"},
        {"int", "to"},
        {"bool", "to"},
        {"moveaxis", "movedim"},
        {"ger", "outer"},
        {"bitwise_and", "and_"},
        {"bitwise_or", "or_"},
        {"bitwise_xor", "xor"},
        {"bitwise_not", "invert"},
        {"__and__", "and_"},
        {"__or__", "or_"},
        {"__xor__", "xor"},
        {"__invert__", "invert"},
        {"max_pool1d_with_indices", "max_pool1d"},
        {"max_pool2d_with_indices", "max_pool2d"},
        {"max_pool3d_with_indices", "max_pool3d"},
        {"adaptive_max_pool1d_with_indices", "adaptive_max_pool1d"},
        {"adaptive_max_pool2d_with_indices", "adaptive_max_pool2d"},
        {"adaptive_max_pool3d_with_indices", "adaptive_max_pool3d"},
    };
    return table;
}

/// Has helpers that models wrap because tracing cannot see through them.
[[nodiscard]] inline catalogue const& helper_catalogue() {
    static catalogue const table{
        {"top_2_gating", gating},
        {"switch_gating", gating},
        {"append_cls_token", append_class_token},
        {"get_cls_token", get_class_token},
        {"stochastic_depth", stochastic_depth},
        {"complex_mul", complex_product},
        {"routed_experts", routed_experts},
    };
    return table;
}

/// Other readings of an operator, by its name and the reading's.
using variant_table = std::map<std::pair<std::string_view, std::string_view>, description (*)(call_view const&)>;
/// With `per_shard`, each device's part of the batch has moments of its own, as in data parallelism without
/// synchronised norms; what is computed then depends on how the batch is cut.
[[nodiscard]] inline variant_table const& rule_variants() {
    static variant_table const table{
        {{"batch_norm", "per_shard"}, batch_norm_per_shard},
    };
    return table;
}

/// Splits a target into its module and its name; a method has no module.
[[nodiscard]] inline std::pair<std::string_view, std::string_view> split_target(std::string_view target) {
    std::size_t const dot = target.rfind('.');
    if (dot == std::string_view::npos) return {{}, target};
    return {target.substr(0, dot), target.substr(dot + 1)};
}

/// Tells whether functions of this module are torch's; a method has no module.
[[nodiscard]] inline bool is_torch_module(std::string_view module) {
    constexpr std::array<std::string_view, 7> modules{
        "", "torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "operator", "_operator"};
    return algorithm::find(modules, module) != modules.end();
}

/// Returns the kind that an operator with this target has in a program.
[[nodiscard]] inline std::string_view kind_of(std::string_view target) {
    auto const [module, name] = split_target(target);
    auto const alias = operator_aliases().find(name);
    return is_torch_module(module) && alias != operator_aliases().end() ? alias->second : name;
}

/// Returns the variant of this name of one of torch's targets; null if there is none.
[[nodiscard]] inline auto find_variant(std::string_view target, std::string_view variant)
    -> description (*)(call_view const&) {
    auto const [module, name] = split_target(target);
    auto const found = rule_variants().find({name, variant});
    return is_torch_module(module) && found != rule_variants().end() ? found->second : nullptr;
}

[[nodiscard]] inline description describe(call_view const& c) {
    auto const module = split_target(c.call().target).first;
    bool const is_helper = module == "heddle" || module == "models" || module == "torchvision.ops.stochastic_depth";
    if (!is_helper && !is_torch_module(module)) return {};
    auto const name = kind_of(c.call().target);
    catalogue const& table = is_helper                      ? helper_catalogue()
                             : torch_forms().contains(name) ? torch_forms()
                                                            : torch_catalogue();
    auto const found = table.find(name);
    return found == table.end() ? description{} : found->second(c);
}

/// Shapes of results must follow from the operands and arguments; a call that states others contradicts itself.
inline void check_results(call_view const& c, index_rule rule, described_operator const& op) {
    std::vector<tensor_shape> operands;
    for (tensor_id t : op.operands) operands.push_back(c.shape_of(t));
    std::vector<tensor_shape> expected;
    try {
        expected = bind_extents(rule, operands, op.options.results, op.options.extents);
    } catch (input_error const& e) { throw input_error("operator '" + c.call().name + "'", e.what()); }
    c.expect_results(expected.size());
    for (std::size_t r = 0; r < expected.size(); ++r)
        if (auto const& stated = c.call().results[r].shape; stated != expected[r])
            throw input_error("operator '" + c.call().name + "', result " + std::to_string(r),
                              "has shape " + to_text(stated) + ", its operands and arguments give " +
                                  to_text(expected[r]));
}

/// Counts one operation per element touched, as nothing else is known of an operator without products.
[[nodiscard]] inline flops touched_elements(call_view const& c) {
    double total = 0;
    for (tensor_id t : c.call().operands) total += element_count(c.shape_of(t));
    for (auto const& r : c.call().results) total += element_count(r.shape);
    return flops(total);
}

/// Returns the rule of an operator that the catalogue does not know, or that a user's rule describes.
[[nodiscard]] inline index_rule foreign_rule(call_view const& c, std::string const* text) {
    if (text) return parse_index_rule(*text);
    std::vector<tensor_shape> operands, results;
    for (tensor_id t : c.call().operands) operands.push_back(c.shape_of(t));
    for (auto const& r : c.call().results) results.push_back(r.shape);
    return blocked_rule(operands, results);
}

/// Returns what the backward pass may read: every operand in which the result is not linear, and the factors of
/// products.
[[nodiscard]] inline std::vector<std::uint8_t> read_again(index_rule const& rule) {
    std::vector<std::uint8_t> result;
    for (std::size_t k = 0; k < rule.operands.size(); ++k) {
        auto const number = static_cast<std::uint8_t>(k);
        bool const is_summand =
            algorithm::any_of(rule.terms, [&](auto const& term) { return term.size() == 1 && term.front() == number; });
        if (!is_summand) result.push_back(number);
    }
    return result;
}

/// Returns what the catalogue says of a call that a user's rule describes; nothing if it refuses these arguments.
[[nodiscard]] inline description describe_if_allowed(call_view const& c) {
    try {
        return describe(c);
    } catch (input_error const&) { return {}; }
}

/// Adds an operator by a foreign rule. If the catalogue does not describe these arguments, a kernel of the same name
/// may compute something else; then the attribute `unknown_arguments` is set.
inline std::vector<tensor_id> add_foreign(program_builder& builder, call_view const& c, std::string const* text,
                                          operator_options options) {
    index_rule rule = foreign_rule(c, text);
    if (auto described = describe_if_allowed(c); described && described->operands == c.call().operands)
        options.attributes = described->options.attributes;
    else options.attributes["unknown_arguments"] = just(true);
    bool const product = algorithm::any_of(rule.terms, [](auto const& term) { return term.size() > 1; });
    if (!product) options.forward = touched_elements(c);
    if (rule.operands.size() == c.call().operands.size()) options.saved_operands = read_again(rule);
    return builder.apply_multi(kind_of(c.call().target), std::move(rule), c.call().operands, std::move(options));
}

} // namespace detail

/// The operands, or results, that one operator has at most: they are numbered in a byte.
inline constexpr std::size_t most_operands = 255;

/// Adds the operator of a traced call to a program by the user's rule for its target or, if there is none, by the
/// catalogue's. If neither has a rule, nothing of the operator may be split.
///
/// *Throws* `input_error` that names the operator if its arguments or shapes contradict the rule.
inline added_call add_call(program_builder& builder, traced_call const& call, rule_table const& rules = {}) {
    if (call.operands.size() > most_operands || call.results.size() > most_operands)
        throw input_error("operator '" + call.name + "'", "has more than 255 operands or results");
    if (call.results.empty()) throw input_error("operator '" + call.name + "'", "has no result that is a tensor");
    detail::call_view const view(call, builder);
    auto const complete = [&](operator_options options) {
        options.name = call.name;
        options.results.clear();
        for (auto const& r : call.results) {
            options.results.push_back(r.shape);
            options.result_types.push_back(r.type);
        }
        return options;
    };
    auto const user = rules.find(call.target);
    auto const variant = user == rules.end() ? nullptr : detail::find_variant(call.target, user->second);
    if (user != rules.end() && !variant) return {detail::add_foreign(builder, view, &user->second, complete({})), true};
    auto described = variant ? variant(view) : detail::describe(view);
    if (!described) return {detail::add_foreign(builder, view, nullptr, complete({})), false};
    auto rule = parse_index_rule(described->rule);
    detail::check_results(view, rule, *described);
    auto const kind = described->kind.empty() ? std::string(detail::kind_of(call.target)) : described->kind;
    return {builder.apply_multi(kind, std::move(rule), std::move(described->operands),
                                complete(std::move(described->options))),
            true};
}

/// Checks a user's rule without an operator. *Throws* `input_error` if it is neither an index rule nor a variant of the
/// target's rule.
inline void check_rule(std::string_view target, std::string_view text) {
    if (!detail::find_variant(target, text)) static_cast<void>(parse_index_rule(text));
}

/// Returns what to tell the user, once per target, about an operator without a rule.
[[nodiscard]] inline std::string missing_rule_warning(std::string_view target) {
    return "operator '" + std::string(target) +
           "' has no rule for these arguments and is computed in full on every device; "
           "give it one, such as \"(b s) -> (b s)\", under its name in the model's 'rules', or in C++ in those given "
           "to add_call";
}

} // namespace heddle
