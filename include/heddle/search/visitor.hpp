// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The visitors that may watch a label search, and stop it.
#pragma once

#include <heddle/search/result.hpp>

#include <concepts>
#include <type_traits>

namespace heddle::search {

/// A visitor may have `bool on_expand(progress const&)`; if it returns false, the search stops. It may also have `void
/// on_solution(progress const&)`, which is called for each new incumbent; if one expansion finds several, only for the
/// last.
struct no_visitor {};

template <class Visitor>
concept expansion_visitor = requires(Visitor& v, progress const& p) {
    { v.on_expand(p) } -> std::convertible_to<bool>;
};
template <class Visitor>
concept solution_visitor = requires(Visitor& v, progress const& p) { v.on_solution(p); };

/// Refuses what is no visitor, with a sentence that says why.
template <class Visitor>
consteval void require_visitor() {
    using plain = std::remove_cvref_t<Visitor>;
    using visitor = std::remove_reference_t<Visitor>;
    static_assert(std::same_as<plain, no_visitor> || expansion_visitor<visitor> || solution_visitor<visitor>,
                  "a search's visitor has bool on_expand(progress const&), void on_solution(progress const&) or both");
    static_assert(
        expansion_visitor<visitor> || !requires { &plain::on_expand; },
        "a search's visitor's on_expand takes a progress const& and returns bool");
    static_assert(
        solution_visitor<visitor> || !requires { &plain::on_solution; },
        "a search's visitor's on_solution takes a progress const&");
}

} // namespace heddle::search
