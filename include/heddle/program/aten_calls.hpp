// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief From an ATen operator and its arguments to the call that the operator catalogue knows: what readers of
/// TorchScript and of exported programs have in common. Needs no libtorch.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/traced_call.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// An argument by the name its schema has.
struct aten_argument {
    std::string name;
    literal value;
};

/// A call by keywords, as the functional names and orders them.
struct functional_call {
    std::string target;
    std::map<std::string, literal, std::less<>> keywords{};
    std::vector<std::string> keyword_order{};
    /// How many of the operator's results the functional has, where it has fewer: the others are of use to a backward
    /// pass alone.
    std::optional<std::size_t> result_count{};

    void add(std::string name, literal value) {
        if (keywords.emplace(name, std::move(value)).second) keyword_order.push_back(std::move(name));
    }
};

namespace detail {

/// A functional of PyTorch that has another name than the ATen operator, or other names or another order of arguments.
struct functional_form {
    std::string_view target;
    /// The arguments in the functional's order, from their ATen names; those that are not named follow in the order of
    /// the schema.
    std::vector<std::pair<std::string_view, std::string_view>> arguments{};
    std::optional<std::size_t> result_count{};
};

[[nodiscard]] inline std::map<std::string_view, functional_form> const& functional_forms() {
    static std::map<std::string_view, functional_form> const table{
        {"embedding", {"embedding", {{"indices", "input"}, {"weight", "weight"}}}},
        {"batch_norm",
         {"batch_norm", {{"input", "input"}, {"running_mean", "running_mean"}, {"running_var", "running_var"}}}},
        {"nll_loss_nd", {"nll_loss"}},
        {"nll_loss2d", {"nll_loss"}},
        {"cross_entropy_loss", {"cross_entropy"}},
        {"_softmax", {"softmax"}},
        {"_log_softmax", {"log_softmax"}},
        {"convolution", {"conv"}},
        {"_convolution", {"conv"}},
        {"_to_copy", {"to"}},
        {"native_layer_norm", {"layer_norm", {}, 1}},
        {"_fused_rms_norm", {"rms_norm", {}, 1}},
        {"native_group_norm", {"group_norm", {{"input", "input"}, {"group", "num_groups"}}, 1}},
        {"native_dropout", {"dropout", {}, 1}},
        {"native_batch_norm", {"batch_norm", {}, 1}},
        {"cudnn_batch_norm", {"batch_norm", {}, 1}},
        {"_native_batch_norm_legit", {"batch_norm", {}, 1}},
        {"_native_batch_norm_legit_functional", {"batch_norm", {}, 1}},
        {"_native_batch_norm_legit_no_training", {"batch_norm", {}, 1}},
        {"embedding_bag", {"embedding_bag", {{"indices", "input"}, {"weight", "weight"}}, 1}},
        {"_embedding_bag", {"embedding_bag", {{"indices", "input"}, {"weight", "weight"}}, 1}},
        {"_embedding_bag_forward_only", {"embedding_bag", {{"indices", "input"}, {"weight", "weight"}}, 1}},
        {"_scaled_dot_product_flash_attention", {"scaled_dot_product_attention", {}, 1}},
        {"_scaled_dot_product_flash_attention_for_cpu", {"scaled_dot_product_attention", {}, 1}},
        {"_scaled_dot_product_efficient_attention", {"scaled_dot_product_attention", {{"attn_bias", "attn_mask"}}, 1}},
        {"_scaled_dot_product_cudnn_attention", {"scaled_dot_product_attention", {{"attn_bias", "attn_mask"}}, 1}},
        {"constant_pad_nd", {"pad"}},
        {"max_pool2d_with_indices", {"max_pool2d"}},
        {"max_pool3d_with_indices", {"max_pool3d"}},
        {"lstm", {"lstm", {{"train", "train"}}}},
        {"gru", {"gru", {{"train", "train"}}}},
        {"linalg_vector_norm", {"norm", {{"self", "input"}, {"ord", "p"}}}},
        {"rnn_tanh", {"rnn_tanh", {{"train", "train"}}}},
        {"rnn_relu", {"rnn_relu", {{"train", "train"}}}},
    };
    return table;
}

/// Operators of other libraries that are one of PyTorch's.
[[nodiscard]] inline std::map<std::string_view, std::string_view> const& foreign_operators() {
    static std::map<std::string_view, std::string_view> const table{
        {"transformers::grouped_mm_fallback", "aten::_grouped_mm"},
    };
    return table;
}

/// Returns the name of an ATen operator without its namespace, its overload and the mark of an operator that works in
/// place.
[[nodiscard]] inline std::string_view plain_name(std::string_view qualified) {
    if (auto const colon = qualified.rfind(':'); colon != std::string_view::npos) qualified.remove_prefix(colon + 1);
    bool const in_place = qualified.size() > 1 && qualified.ends_with('_') && !qualified.ends_with("__");
    if (in_place) qualified.remove_suffix(1);
    return qualified;
}

[[nodiscard]] inline std::int64_t integer_of(std::vector<aten_argument> const& arguments, std::string_view name,
                                             std::int64_t absent) {
    auto const found = algorithm::find(arguments, name, &aten_argument::name);
    auto const* number = found == arguments.end() ? nullptr : found->value.as<std::int64_t>();
    return number ? *number : absent;
}

[[nodiscard]] inline literal const* value_of(std::vector<aten_argument> const& arguments, std::string_view name) {
    auto const found = algorithm::find(arguments, name, &aten_argument::name);
    return found == arguments.end() || found->value.is_none() ? nullptr : &found->value;
}

/// Tells whether an argument is no part of a model: devices, memory layouts, how a library is to compute.
[[nodiscard]] inline bool is_left_out(aten_argument const& a) {
    constexpr std::array<std::string_view, 13> names{
        "device",        "layout",    "pin_memory",    "memory_format", "non_blocking", "copy",     "cudnn_enable",
        "cudnn_enabled", "benchmark", "deterministic", "allow_tf32",    "implicit",     "generator"};
    auto const* factor = a.value.as<std::int64_t>();
    return a.value.is_none() || algorithm::find(names, a.name) != names.end() ||
           (a.name == "alpha" && factor && *factor == 1);
}

/// Returns `x[:, 1:3, 0]` as the index with which it is written: the dimensions before are taken whole, then comes the
/// item.
[[nodiscard]] inline literal index_at(std::int64_t dimension, literal item) {
    literal::list items(static_cast<std::size_t>(dimension), literal{literal::slice{}});
    items.push_back(std::move(item));
    return {std::move(items)};
}

/// Handles resizing, for which ATen has one operator for each mode and rank: `upsample_bilinear2d`. Factors come as a
/// list or one by one.
[[nodiscard]] inline functional_call interpolation(std::string_view name, std::vector<aten_argument> arguments) {
    functional_call call{"torch.nn.functional.interpolate"};
    literal::list factors;
    for (auto& a : arguments) {
        if (a.value.is_none()) continue;
        if (a.name.starts_with("scales")) factors.push_back(std::move(a.value));
        else
            call.add(a.name == "self"            ? "input"
                     : a.name == "output_size"   ? "size"
                     : a.name == "scale_factors" ? "scale_factor"
                                                 : a.name,
                     std::move(a.value));
    }
    if (!factors.empty()) call.add("scale_factor", {std::move(factors)});
    constexpr auto before = std::string_view("upsample_").size(), after = std::string_view("2d").size();
    call.add("mode", {std::string(name.substr(before, name.size() - before - after))});
    return call;
}

} // namespace detail

/// Returns the call of the functional that is `qualified` (`aten::linear`, with or without an underscore at its end);
/// `rank` is that of its first tensor. An operator of another namespace keeps its names: `mine::scale` is `mine.scale`.
[[nodiscard]] inline functional_call functional_call_of(std::string_view qualified,
                                                        std::vector<aten_argument> arguments, std::size_t rank) {
    if (auto const same = detail::foreign_operators().find(qualified); same != detail::foreign_operators().end())
        qualified = same->second;
    bool const is_aten = qualified.starts_with("aten::");
    if (!is_aten) {
        functional_call call{std::string(qualified)};
        for (std::size_t colon; (colon = call.target.find("::")) != std::string::npos;)
            call.target.replace(colon, 2, ".");
        for (auto& a : arguments) call.add(a.name, std::move(a.value));
        return call;
    }
    std::string_view name = detail::plain_name(qualified);
    functional_call call;
    auto const dimension = [&](std::int64_t d) { return d < 0 ? d + static_cast<std::int64_t>(rank) : d; };
    auto const is_there = [&](std::int64_t d) { return d >= 0 && d < static_cast<std::int64_t>(rank); };
    bool const is_piece = (name == "select" || name == "slice") && !arguments.empty();
    if (is_piece && is_there(dimension(detail::integer_of(arguments, "dim", 0)))) {
        literal item;
        if (name == "select") item = literal{detail::integer_of(arguments, "index", 0)};
        else
            item = literal{literal::slice{detail::integer_of(arguments, "start", 0),
                                          detail::integer_of(arguments, "end", INT64_MAX),
                                          detail::integer_of(arguments, "step", 1)}};
        if (auto* s = std::get_if<literal::slice>(&item.value); s && *s->stop == INT64_MAX) s->stop.reset();
        call.target = "operator.getitem";
        call.add("input", arguments.front().value);
        call.add("index", detail::index_at(dimension(detail::integer_of(arguments, "dim", 0)), std::move(item)));
        return call;
    }
    if (name == "index" && arguments.size() > 1 && arguments[1].value.as<literal::list>()) {
        literal::list items;
        for (auto const& item : *arguments[1].value.as<literal::list>())
            items.push_back(item.is_none() ? literal{literal::slice{}} : item);
        call.target = "operator.getitem";
        call.add("input", arguments.front().value);
        call.add("index", {std::move(items)});
        return call;
    }
    if (name.starts_with("upsample_") && name.ends_with('d')) return detail::interpolation(name, std::move(arguments));
    if (name == "rsub" && arguments.size() > 1) { // other - self
        call.target = "torch.sub";
        std::swap(arguments[0].value, arguments[1].value);
        name = "sub";
    }
    bool const is_bag = name.find("embedding_bag") != std::string_view::npos;
    if (is_bag) { // sums where nothing is said, where the functional has means
        auto const number = detail::integer_of(arguments, "mode", 0);
        std::erase_if(arguments, [](auto const& a) { return a.name == "mode"; });
        arguments.push_back({"mode", {std::string(number == 0 ? "sum" : number == 1 ? "mean" : "max")}});
    }
    if ((name == "embedding" || is_bag) &&
        detail::integer_of(arguments, "padding_idx", -1) < 0) // none, where the functional would count from the end
        std::erase_if(arguments, [](auto const& a) { return a.name == "padding_idx"; });
    auto const form = detail::functional_forms().find(name);
    call.target = "torch." + std::string(form == detail::functional_forms().end() ? name : form->second.target);
    if (form != detail::functional_forms().end()) {
        call.result_count = form->second.result_count;
        if (form->second.target == "conv") {
            auto const* transposed = detail::value_of(arguments, "transposed");
            bool const is_transposed = transposed && transposed->as<bool>() && *transposed->as<bool>();
            call.target += std::string(is_transposed ? "_transpose" : "") + std::to_string(rank - 2) + "d";
            if (!is_transposed) std::erase_if(arguments, [](auto const& a) { return a.name == "output_padding"; });
            std::erase_if(arguments, [](auto const& a) { return a.name == "transposed"; });
        }
        for (auto const& [from, to] : form->second.arguments)
            if (auto const* value = detail::value_of(arguments, from)) call.add(std::string(to), *value);
        std::erase_if(arguments, [&](auto const& a) {
            return algorithm::any_of(form->second.arguments,
                                     [&](auto const& renamed) { return renamed.first == a.name; });
        });
    }
    constexpr std::array<char const*, 3> reductions{"none", "mean", "sum"};
    for (auto& a : arguments) {
        if (detail::is_left_out(a)) continue;
        if (auto const* number = a.value.as<std::int64_t>();
            a.name == "reduction" && number && *number >= 0 && *number < 3)
            a.value = literal{std::string(reductions[static_cast<std::size_t>(*number)])};
        call.add(a.name == "self" ? "input" : a.name == "train" ? "training" : a.name, std::move(a.value));
    }
    return call;
}

} // namespace heddle
