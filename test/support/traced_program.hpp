// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Programs written as calls of the catalogue, as tracers find them in models.
#pragma once

#include <heddle/program/operators.hpp>
#include <support/literals.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

class traced_program {
public:
    using keywords = std::map<std::string, literal, std::less<>>;

    program_builder builder;

    [[nodiscard]] tensor_shape dims(tensor_id t) const { return builder.tensor(t).shape; }

    /// Results are of one type. *Throws* `error` if the catalogue has no rule.
    std::vector<tensor_id> calls(std::string const& target, std::vector<literal> arguments,
                                 std::vector<tensor_shape> const& results, keywords named = {},
                                 element_type type = element_type::float32) {
        traced_call call{
            target + "_" + std::to_string(++calls_), target, std::move(arguments), std::move(named), {}, {}};
        auto const collect = [&](auto& self, literal const& l) -> void {
            if (auto const* t = l.as<literal::tensor>()) call.operands.push_back(t->id);
            if (auto const* items = l.as<literal::list>())
                for (auto const& item : *items) self(self, item);
        };
        for (auto const& a : call.arguments) collect(collect, a);
        for (auto const& s : results) call.results.push_back({s, type});
        auto added = add_call(builder, call);
        if (!added.is_known) throw error("the catalogue does not know " + target);
        return std::move(added.results);
    }
    tensor_id call(std::string const& target, std::vector<literal> arguments, tensor_shape const& result,
                   keywords named = {}, element_type type = element_type::float32) {
        return calls(target, std::move(arguments), {result}, std::move(named), type).front();
    }

    /// A linear operator with a bias, of parameters of this name.
    tensor_id linear(tensor_id x, std::string const& name, extent width) {
        tensor_shape result = dims(x);
        auto const weight = builder.parameter(name + ".weight", {width, std::exchange(result.back(), width)}),
                   bias = builder.parameter(name + ".bias", {width});
        return call("torch.nn.functional.linear", {T(x), T(weight), T(bias)}, result);
    }

private:
    int calls_ = 0;
};

} // namespace heddle::test
