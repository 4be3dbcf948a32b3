// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The instructions of a distributed program.
#pragma once

#include <heddle/theory/form.hpp>

#include <boost/container/small_vector.hpp>

#include <cstdint>

namespace heddle {

using form_list = boost::container::small_vector<form, 6>;

/// One instruction, run by all devices together.
struct instruction {
    enum class kind : std::uint8_t {
        read,    ///< bring `tensor`, a source, in form `to`
        convert, ///< `tensor` from form `from` to form `to`
        compute  ///< operator `op` on operands in `operands`, giving results in `results`
    };
    kind what = kind::compute;
    std::uint32_t tensor = 0;
    form from, to;
    operator_id op = 0;
    form_list operands, results;
    /// The loop a computation is split along, or -1: all devices do all of it.
    std::int16_t loop = -1;

    friend bool operator==(instruction const& a, instruction const& b) = default;

    static instruction read(tensor_id t, form to) { return {kind::read, t, to, to, 0, {}, {}, -1}; }
    static instruction convert(tensor_id t, form from, form to) { return {kind::convert, t, from, to, 0, {}, {}, -1}; }
};

} // namespace heddle
