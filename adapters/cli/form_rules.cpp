// SPDX-License-Identifier: BSL-1.0
// Reads forms of tensors: NAME=replicated, NAME=shard(0.1).
#include "form_rules.hpp"
#include "plan_input.hpp"

#include <heddle/base/error.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/product_form.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

/// What `--pin` or `--forbid` is given: a tensor, and what stands behind its name.
struct given_rule {
    std::string option, text;
    tensor_id tensor = 0;
    std::string wanted{};

    given_rule(indexed_program const& p, std::string of, std::string what)
        : option(std::move(of)), text(std::move(what)) {
        auto const at = text.rfind('=');
        if (at == std::string::npos) fail("expected NAME=FORM");
        std::string const name = text.substr(0, at);
        wanted = text.substr(at + 1);
        while (tensor < p.tensors.size() && p.tensors[tensor].info.name != name) ++tensor;
        if (tensor == p.tensors.size()) fail("there is no tensor '" + name + "'");
    }
    [[noreturn]] void fail(std::string const& problem) const { throw input_error(option + ' ' + text, problem); }
};

/// Returns the form of a name.
tensor_form form_of(given_rule const& rule, indexed_tensor const& tensor, std::string const& wanted) {
    auto const fail = [&](std::string const& problem) { rule.fail(problem); };
    for (tensor_form f : {tensor_form::replicated(), tensor_form::mirrored(), tensor_form::partial()})
        if (to_string(f) == wanted) {
            if (!is_possible(f, tensor)) fail("the tensor cannot be " + wanted);
            return f;
        }
    if (!wanted.starts_with("shard(") || !wanted.ends_with(")"))
        fail("expected replicated, mirrored, partial, shard(DIMENSION) or shard(DIMENSION.FACTOR)");
    auto const numbers = std::string_view(wanted).substr(6, wanted.size() - 7);
    auto const point = numbers.find('.');
    auto const read = [&](std::string_view digits) {
        std::size_t number = 0;
        auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error != std::errc() || end != digits.data() + digits.size())
            fail("expected numbers in shard(DIMENSION) or shard(DIMENSION.FACTOR)");
        return number;
    };
    std::size_t const dimension = read(numbers.substr(0, point)),
                      nth = point == std::string_view::npos ? 0 : read(numbers.substr(point + 1));
    std::vector<factor_number> cuts;
    for (std::size_t f = 0; f < tensor.factors.size(); ++f)
        if (tensor.factors[f].dimension == dimension) cuts.push_back(static_cast<factor_number>(f));
    if (nth >= cuts.size())
        fail("dimension " + std::to_string(dimension) + " of the tensor has " + std::to_string(cuts.size()) +
             " factors that can be cut, numbered from 0");
    return tensor_form::shard(cuts[nth]);
}

template <class Add>
void for_each_rule(program const& p, hap_arguments const& arguments, Add const& add) {
    if (arguments.pins.empty() && arguments.forbidden.empty()) return;
    auto const indexed = index_program(p);
    for (auto const& pin : arguments.pins) add(indexed, given_rule(indexed, "--pin", pin), false);
    for (auto const& form : arguments.forbidden) add(indexed, given_rule(indexed, "--forbid", form), true);
}

} // namespace

std::vector<pinned_tensor> form_rules_of(program const& p, hap_arguments const& arguments) {
    std::vector<pinned_tensor> rules;
    for_each_rule(p, arguments, [&](indexed_program const& indexed, given_rule const& given, bool is_forbidden) {
        rules.push_back({given.tensor, form_of(given, indexed.tensors[given.tensor], given.wanted), {}, is_forbidden});
    });
    return rules;
}

pins_of_axes mesh_form_rules_of(program const& p, hap_arguments const& arguments, std::size_t axes) {
    pins_of_axes rules;
    for_each_rule(p, arguments, [&](indexed_program const& indexed, given_rule const& given, bool is_forbidden) {
        auto const& tensor = indexed.tensors[given.tensor];
        auto const forms = split_at_commas(given.wanted);
        if (axes > rules.size()) given.fail("expected a mesh of at most " + std::to_string(rules.size()) + " axes");
        if (forms.size() != axes)
            given.fail("expected a form for each of the " + std::to_string(axes) +
                       " axes of the mesh, the outer one first, such as shard(0),any");
        product_form together(axes, tensor_form::replicated());
        std::size_t named = 0;
        for (axis_number a = 0; a < axes; ++a) {
            if (forms[a] == "any") continue;
            ++named;
            together = together.with(a, form_of(given, tensor, forms[a]));
            rules[a].push_back({given.tensor, together[a], {}, is_forbidden});
        }
        if (is_forbidden && named != 1)
            given.fail("expected a form of one axis that is forbidden whatever others have, and 'any' for these");
        if (!is_possible(together, tensor)) given.fail("the tensor cannot be " + to_string(together));
    });
    return rules;
}

} // namespace heddle::cli
