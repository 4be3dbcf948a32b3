// SPDX-License-Identifier: BSL-1.0
// Reads forms of tensors: NAME=replicated, NAME=shard(0.1).
#include "form_rules.hpp"

#include <heddle/base/error.hpp>
#include <heddle/program/indexed_program.hpp>

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace heddle::cli {

namespace {

pinned_tensor rule_of(indexed_program const& p, std::string const& option, std::string const& text) {
    auto const fail = [&](std::string const& problem) { throw input_error(option + ' ' + text, problem); };
    auto const at = text.rfind('=');
    if (at == std::string::npos) fail("expected NAME=FORM");
    std::string const name = text.substr(0, at), wanted = text.substr(at + 1);
    tensor_id t = 0;
    while (t < p.tensors.size() && p.tensors[t].info.name != name) ++t;
    if (t == p.tensors.size()) fail("there is no tensor '" + name + "'");
    auto const& tensor = p.tensors[t];
    for (tensor_form f : {tensor_form::replicated(), tensor_form::mirrored(), tensor_form::partial()})
        if (to_string(f) == wanted) {
            if (!is_possible(f, tensor)) fail("the tensor cannot be " + wanted);
            return {t, f};
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
    return {t, tensor_form::shard(cuts[nth])};
}

} // namespace

std::vector<pinned_tensor> form_rules_of(program const& p, hap_arguments const& arguments) {
    std::vector<pinned_tensor> rules;
    if (arguments.pins.empty() && arguments.forbidden.empty()) return rules;
    auto const indexed = index_program(p);
    for (auto const& pin : arguments.pins) rules.push_back(rule_of(indexed, "--pin", pin));
    for (auto const& form : arguments.forbidden) {
        rules.push_back(rule_of(indexed, "--forbid", form));
        rules.back().is_forbidden = true;
    }
    return rules;
}

} // namespace heddle::cli
