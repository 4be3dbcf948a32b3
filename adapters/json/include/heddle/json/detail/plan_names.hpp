// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What plan files call roles and actions.
#pragma once

#include <heddle/json/names.hpp>
#include <heddle/plan/plan.hpp>

#include <array>

namespace heddle::json::detail {

inline constexpr std::array roles{named{"input", tensor_role::input}, named{"parameter", tensor_role::parameter},
                                  named{"buffer", tensor_role::buffer}, named{"value", tensor_role::value}};

inline constexpr std::array actions{
    named{"read", instruction::kind::read}, named{"convert", instruction::kind::convert},
    named{"compute", instruction::kind::compute}, named{"unshard", instruction::kind::unshard},
    named{"reshard", instruction::kind::reshard}};

inline constexpr std::array recomputations{named{"none", recomputation::none},
                                           named{"selective", recomputation::selective},
                                           named{"full", recomputation::full}};
inline constexpr std::array inside_steps{named{"reduce", inside_step::reduce},
                                         named{"gather", inside_step::gather},
                                         named{"broadcast", inside_step::broadcast},
                                         named{"scatter", inside_step::scatter},
                                         named{"all_reduce", inside_step::all_reduce},
                                         named{"all_gather", inside_step::all_gather},
                                         named{"reduce_scatter", inside_step::reduce_scatter},
                                         named{"all_to_all", inside_step::all_to_all}};

} // namespace heddle::json::detail
