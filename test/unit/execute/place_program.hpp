// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs of traced calls on integers.
#pragma once

#include <heddle/program/operators.hpp>
#include <support/literals.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// Traced calls on integers, truth values and a table of rows.
struct place_program {
    program_builder builder{};
    int calls = 0;

    tensor_id call(std::string const& target, std::vector<literal> arguments, tensor_shape result,
                   element_type type = element_type::int64) {
        std::vector<tensor_id> operands;
        auto const gather = [&](auto const& self, literal const& argument) -> void {
            if (auto const* t = argument.as<literal::tensor>()) operands.push_back(t->id);
            if (auto const* list = argument.as<literal::list>())
                for (auto const& item : *list) self(self, item);
        };
        for (auto const& argument : arguments) gather(gather, argument);
        auto const added = add_call(builder, {target + "_" + std::to_string(calls++),
                                              target,
                                              std::move(arguments),
                                              {},
                                              std::move(operands),
                                              {{std::move(result), type}}});
        CHECK(added.is_known);
        return added.results.front();
    }
    tensor_id ids(char const* name, tensor_shape dims, element_type type = element_type::int64) {
        return builder.input(name, std::move(dims), type);
    }
    tensor_id table(extent rows) { return builder.parameter("table" + std::to_string(calls), {rows, 3}); }
    /// Rows of a table at these places.
    tensor_id look_up(char const* target, extent rows, tensor_id places) {
        tensor_shape dims = builder.tensor(places).shape;
        dims.push_back(3);
        std::string const name = target;
        if (name == "torch.nn.functional.embedding")
            return call(name, {T(places), T(table(rows))}, dims, element_type::float32);
        if (name == "torch.index_select")
            return call(name, {T(table(rows)), number(0), T(places)}, dims, element_type::float32);
        return call(name, {T(table(rows)), T(places)}, dims, element_type::float32);
    }
    tensor_id rows_of_mask(extent rows, extent ones, tensor_id mask) {
        return call("operator.getitem", {T(table(rows)), T(mask)}, {ones, 3}, element_type::float32);
    }
    program finish(std::vector<tensor_id> const& results) {
        std::vector<tensor_id> sums;
        for (auto t : results) sums.push_back(call("torch.sum", {T(t)}, {}, element_type::float32));
        std::vector<detail::entries> const scalars(sums.size());
        return builder.finish(
            builder.apply("total", detail::rule_text(scalars, {{}}, detail::all_terms(sums.size(), " + ")), sums));
    }
};

/// One operator of integers with a number or two.
struct integer_operator {
    std::string target;
    std::vector<literal> after{};
    bool is_first = true;
};

inline std::vector<literal> arguments(integer_operator const& op, tensor_id x) {
    std::vector<literal> result = op.after;
    result.insert(op.is_first ? result.begin() : result.end(), T(x));
    return result;
}

inline integer_operator random_operator(random_source& random) {
    auto const some = [&](int low, int high) { return number(random.between(low, high)); };
    int const other = random.between(1, 5) * (random.chance(0.3) ? -1 : 1);
    int const least = random.between(-6, 6);
    return random.of(
        std::vector<integer_operator>{{"operator.add", {some(-6, 6)}},
                                      {"operator.sub", {some(-6, 6)}},
                                      {"operator.sub", {some(-6, 6)}, false},
                                      {"operator.mul", {number(other)}},
                                      {"operator.floordiv", {number(other)}},
                                      {"operator.mod", {number(other * 3)}},
                                      {"torch.clamp", {number(least), number(least + random.between(0, 9))}},
                                      {"operator.neg"},
                                      {"torch.abs"}});
}

} // namespace heddle::test
