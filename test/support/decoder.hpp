// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Small decoders whose loss is a mean over labels that may be ignored, as today's are exported.
#pragma once

#include <heddle/program/program.hpp>
#include <heddle/theory/whole_inputs.hpp>
#include <support/random_plans.hpp>
#include <support/traced_program.hpp>

namespace heddle::test {

struct decoder_sizes {
    extent batch = 4, length = 3, width = 4, classes = 6;
    /// Labels are the tokens, one place later.
    bool has_labels_of_tokens = true;
};

/// Embeds tokens and gives scores to the next ones: the labels are padded, shifted and flattened.
[[nodiscard]] inline program decoder(decoder_sizes const& s) {
    traced_program t;
    auto const tokens = t.builder.input("tokens", {s.batch, s.length}, element_type::int64);
    auto const labels =
        s.has_labels_of_tokens ? tokens : t.builder.input("labels", {s.batch, s.length}, element_type::int64);
    auto const table = t.builder.parameter("table", {s.classes, s.width});
    auto const x = t.call("torch.nn.functional.embedding", {T(tokens), T(table)}, {s.batch, s.length, s.width});
    auto const h = t.call("torch.tanh", {T(t.linear(x, "up", s.width))}, {s.batch, s.length, s.width});
    auto const scores = t.linear(h, "head", s.classes);
    auto const flat =
        t.call("view", {T(scores), number(s.batch * s.length), number(s.classes)}, {s.batch * s.length, s.classes});
    auto const padded = t.call("torch.nn.functional.pad", {T(labels), ints({0, 1})}, {s.batch, s.length + 1},
                               {{"value", number(-100)}}, element_type::int64);
    auto const shifted = t.call("narrow", {T(padded), number(1), number(1), number(s.length)}, {s.batch, s.length}, {},
                                element_type::int64);
    auto const targets = t.call("view", {T(shifted), number(-1)}, {s.batch * s.length}, {}, element_type::int64);
    auto const loss = t.call("torch.nn.functional.cross_entropy", {T(flat), T(targets)}, {});
    return with_whole_inputs(t.builder.finish(loss));
}

[[nodiscard]] inline program random_decoder(random_source& random) {
    return decoder({.batch = 2 * random.between(1, 4),
                    .length = random.between(2, 12),
                    .width = random.between(2, 4),
                    .classes = random.between(3, 6),
                    .has_labels_of_tokens = random.chance(0.6)});
}

} // namespace heddle::test
