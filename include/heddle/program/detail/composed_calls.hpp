// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Calls that are several operators of the catalogue.
#pragma once

#include <heddle/program/detail/composed_attention.hpp>
#include <heddle/program/detail/composed_cells.hpp>
#include <heddle/program/detail/composed_places.hpp>
#include <heddle/program/detail/composed_samples.hpp>
#include <heddle/program/detail/composed_values.hpp>
#include <heddle/program/detail/composer.hpp>

#include <map>
#include <string_view>
#include <utility>

namespace heddle::detail {

/// Makes operators of a call by a member function of one of these classes.
template <auto Make>
composer::results composed(composer const& c) {
    return [&]<class Topic>(composer::results (Topic::*make)()) { return (Topic(c).*make)(); }(Make);
}

/// Makes several operators of one call of torch. Where it returns nothing, it has added nothing.
inline composer::results compose(program_builder const& builder, traced_call const& call, composer::adder add) {
    auto const [module, name] = split_target(call.target);
    if (!is_torch_module(module) || call.results.empty()) return {};
    static std::map<std::string_view, composer::results (*)(composer const&)> const table{
        {"_cdist_forward", composed<&composed_values::distances>},
        {"_fft_c2c", composed<&composed_samples::transformed>},
        {"_fft_c2r", composed<&composed_samples::transformed>},
        {"_fft_r2c", composed<&composed_samples::transformed>},
        {"_pdist_forward", composed<&composed_values::distances_of_pairs>},
        {"_weight_norm", composed<&composed_values::normed_weight>},
        {"add", composed<&composed_values::sum_with_multiple>},
        {"adjoint", composed<&composed_places::last_swapped>},
        {"affine_grid_generator", composed<&composed_samples::affine_grid>},
        {"all", composed<&composed_values::truth_of_all>},
        {"any", composed<&composed_values::truth_of_all>},
        {"argsort", composed<&composed_values::places_in_order>},
        {"as_strided", composed<&composed_places::strided>},
        {"bernoulli", composed<&composed_values::bernoulli>},
        {"broadcast_tensors", composed<&composed_places::broadcast_all>},
        {"cat", composed<&composed_places::joined_in_groups>},
        {"cdist", composed<&composed_values::distances>},
        {"clamp", composed<&composed_values::clamped>},
        {"col2im", composed<&composed_places::summed_windows>},
        {"copy", composed<&composed_places::copied>},
        {"cosine_similarity", composed<&composed_values::cosine>},
        {"cumprod", composed<&composed_values::scanned>},
        {"diff", composed<&composed_values::differences>},
        {"div", composed<&composed_values::rounded_quotient>},
        {"elu", composed<&composed_values::scaled_elu>},
        {"embedding_bag", composed<&composed_places::bags_of_one_length>},
        {"eye", composed<&composed_values::identity>},
        {"exponential", composed<&composed_values::drawn_of_waits>},
        {"floor_divide", composed<&composed_values::rounded_quotient>},
        {"fmod", composed<&composed_values::remainder>},
        {"frac", composed<&composed_values::fraction>},
        {"grid_sampler", composed<&composed_samples::sampled>},
        {"grid_sampler_2d", composed<&composed_samples::sampled>},
        {"gru", composed<&composed_cells::layers_with_dropout>},
        {"im2col", composed<&composed_places::windows>},
        {"index_put", composed<&composed_places::put_by_mask>},
        {"isfinite", composed<&composed_values::is_finite>},
        {"logcumsumexp", composed<&composed_values::scanned>},
        {"logical_xor", composed<&composed_values::exclusive>},
        {"lstm", composed<&composed_cells::layers_with_dropout>},
        {"masked_scatter", composed<&composed_places::scattered_by_mask>},
        {"mT", composed<&composed_places::last_swapped>},
        {"multi_head_attention_forward", composed<&composed_attention::multi_head>},
        {"norm", composed<&composed_values::norm>},
        {"normal", composed<&composed_values::drawn_in_place>},
        {"pairwise_distance", composed<&composed_values::distance_of_vectors>},
        {"pow", composed<&composed_values::power_of_number>},
        {"randint", composed<&composed_values::random_integers>},
        {"randperm", composed<&composed_values::random_order>},
        {"reflection_pad1d", composed<&composed_places::padded>},
        {"reflection_pad2d", composed<&composed_places::padded>},
        {"reflection_pad3d", composed<&composed_places::padded>},
        {"remainder", composed<&composed_values::remainder>},
        {"replication_pad1d", composed<&composed_places::padded>},
        {"replication_pad2d", composed<&composed_places::padded>},
        {"replication_pad3d", composed<&composed_places::padded>},
        {"rnn_relu", composed<&composed_cells::layers_with_dropout>},
        {"rnn_tanh", composed<&composed_cells::layers_with_dropout>},
        {"scatter_reduce", composed<&composed_places::scattered_together>},
        {"select_scatter", composed<&composed_places::with_piece>},
        {"slice_scatter", composed<&composed_places::with_piece>},
        {"stack", composed<&composed_places::joined_in_groups>},
        {"sub", composed<&composed_values::sum_with_multiple>},
        {"unfold", composed<&composed_places::windows_along>},
        {"uniform", composed<&composed_values::drawn_in_place>},
    };
    auto const found = table.find(kind_of(call.target));
    return found == table.end() ? composer::results{} : found->second(composer(builder, call, std::move(add)));
}

} // namespace heddle::detail
