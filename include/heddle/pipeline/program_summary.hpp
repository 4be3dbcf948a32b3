// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a program consists of, in numbers: operators, parameters, work, memory, repeats, atoms.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

struct program_summary {
    struct operators_of_kind {
        std::string kind;
        std::size_t count = 0;
        flops forward, backward;
    };
    /// The tensors of one role.
    struct tensors_of_role {
        std::size_t count = 0;
        extent elements = 0;
        bytes size;
    };
    /// Equal blocks of operators in a row, each named as a layer is.
    struct repeated_block {
        std::string first, last;
        std::size_t count = 0, operators = 0;
    };
    /// Classes that are alike. A class is the factors that loops tie, so that a plan cuts them at the same points
    /// wherever it cuts them.
    struct atoms_of_classes {
        extent atoms = 0;
        /// The number of tensors in each class.
        std::size_t tensors = 0;
        std::size_t classes = 0;
        /// A tensor of the first class, a source if there is one, and the dimension that is cut.
        std::string tensor;
        std::size_t dimension = 0;
    };

    std::size_t operators = 0;
    /// Is sorted by work, most first.
    std::vector<operators_of_kind> kinds;
    tensors_of_role inputs, trained, frozen, buffers;
    flops forward, backward;
    /// What operators keep for the backward pass, each tensor once, without sources.
    bytes activations;
    std::vector<repeated_block> repeats;
    /// Is sorted by tensors, most first.
    std::vector<atoms_of_classes> atoms;
};

namespace detail {

std::vector<program_summary::repeated_block> repeats_of(indexed_program const& p);

std::vector<program_summary::atoms_of_classes> atoms_of(indexed_program const& p);

} // namespace detail

/// *Complexity.* Quadratic in the operators, for the repeats. *Throws* `input_error` where `index_program` does.
[[nodiscard]] program_summary summarise(program const& p);

/// Prints tables for people.
void print(std::ostream& out, program_summary const& s);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/operator_kinds.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::vector<program_summary::repeated_block> repeats_of(indexed_program const& p) {
    auto const layers = repeated_layers(p);
    auto const kinds = operator_kinds(p, kinds_alike::in_size);
    auto const kinds_of = [&](std::size_t l) {
        return std::span(kinds).subspan(layers.cuts[l], layers.cuts[l + 1] - layers.cuts[l]);
    };
    std::vector<program_summary::repeated_block> repeats;
    for (std::size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
        while (end < layers.size() && algorithm::equal(kinds_of(begin), kinds_of(end))) ++end;
        if (end - begin > 1)
            repeats.push_back({layers.names[begin], layers.names[end - 1], end - begin, kinds_of(begin).size()});
    }
    return repeats;
}

HEDDLE_INLINE std::vector<program_summary::atoms_of_classes> atoms_of(indexed_program const& p) {
    std::map<cut_factor, cut_factor> parent;
    auto const find = [&](cut_factor f) {
        while (parent.at(f) != f) f = parent[f] = parent.at(parent.at(f));
        return f;
    };
    for (auto const& op : p.operators)
        for (auto const& loop : op.loops) {
            std::optional<cut_factor> first;
            for_each_factor_of(op, loop, [&](cut_factor f) {
                parent.try_emplace(f, f);
                if (!first) first = f;
                auto const m = find(*first), n = find(f);
                parent[std::max(m, n)] = std::min(m, n);
            });
        }
    struct factor_class {
        extent atoms = 0;
        std::size_t tensors = 0;
        cut_factor example;
    };
    std::map<cut_factor, factor_class> classes;
    for (auto const& [f, up] : parent) {
        auto& c = classes.try_emplace(find(f), factor_class{0, 0, f}).first->second;
        c.atoms = std::gcd(c.atoms, p.tensors[f.tensor].factors[static_cast<std::size_t>(f.factor)].extent);
        ++c.tensors;
        if (!p.tensors[c.example.tensor].is_source() && p.tensors[f.tensor].is_source()) c.example = f;
    }
    std::map<std::pair<std::size_t, extent>, program_summary::atoms_of_classes, std::greater<>> alike;
    for (auto const& [root, c] : classes) {
        auto const& tensor = p.tensors[c.example.tensor];
        auto& row = alike
                        .try_emplace({c.tensors, c.atoms},
                                     program_summary::atoms_of_classes{
                                         c.atoms, c.tensors, 0, tensor.info.name,
                                         tensor.factors[static_cast<std::size_t>(c.example.factor)].dimension})
                        .first->second;
        ++row.classes;
    }
    std::vector<program_summary::atoms_of_classes> atoms;
    for (auto& [key, row] : alike) atoms.push_back(std::move(row));
    return atoms;
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program_summary summarise(program const& p) {
    auto const indexed = index_program(p);
    program_summary s;
    s.operators = p.operator_count();
    for (tensor_id n = 0; n < p.tensor_count(); ++n) {
        auto const& t = indexed.tensors[n];
        if (!t.is_source() || p.data_of(n) != n) continue;
        auto& role = t.info.role == tensor_role::input ? s.inputs
                     : !t.is_parameter()               ? s.buffers
                     : t.info.trainable                ? s.trained
                                                       : s.frozen;
        ++role.count;
        role.elements += t.info.elements();
        role.size += t.info.size();
    }
    std::map<std::string, program_summary::operators_of_kind> kinds;
    std::vector<bool> saved(indexed.tensors.size());
    auto const save = [&](tensor_id t) {
        if (indexed.tensors[t].is_source() || saved[t]) return;
        saved[t] = true;
        s.activations += indexed.tensors[t].info.size();
    };
    for (operator_id o = 0; o < p.operator_count(); ++o) {
        auto const& work = indexed.operators[o].work;
        auto& kind =
            kinds.try_emplace(p.kind(o), program_summary::operators_of_kind{p.kind(o), 0, {}, {}}).first->second;
        ++kind.count;
        kind.forward += work.forward;
        kind.backward += work.backward;
        s.forward += work.forward;
        s.backward += work.backward;
        s.activations += work.extra_saved;
        for (auto k : work.saved_operands) save(p.operands(o)[k]);
        for (auto k : work.saved_results) save(p.results(o)[k]);
    }
    for (auto& [name, kind] : kinds) s.kinds.push_back(std::move(kind));
    algorithm::sort(s.kinds, {},
                    [](auto const& k) { return std::pair(-(k.forward + k.backward).value, std::string_view(k.kind)); });
    s.repeats = detail::repeats_of(indexed);
    s.atoms = detail::atoms_of(indexed);
    return s;
}

HEDDLE_INLINE void print(std::ostream& out, program_summary const& s) {
    using detail::fixed;
    std::string text = "Operators (Gflop)\n";
    detail::text_columns operators("lrrr");
    operators.add({"", "count", "forward", "backward"});
    auto const add = [&](std::string const& name, std::size_t count, flops forward, flops backward) {
        operators.add({name, std::to_string(count), fixed(forward.value / 1e9, 3), fixed(backward.value / 1e9, 3)});
    };
    for (auto const& k : s.kinds) add(k.kind, k.count, k.forward, k.backward);
    add("total", s.operators, s.forward, s.backward);
    text += operators.print(2, 0) + "\nMemory (MB)\n";
    detail::text_columns memory("lrrr");
    memory.add({"", "tensors", "elements", "size"});
    for (auto const& [name, role] : {std::pair("inputs", &s.inputs),
                                     {"trained parameters", &s.trained},
                                     {"frozen parameters", &s.frozen},
                                     {"buffers", &s.buffers}})
        if (role->count > 0)
            memory.add(
                {name, std::to_string(role->count), std::to_string(role->elements), fixed(role->size.value / 1e6, 3)});
    memory.add({"activations", "", "", fixed(s.activations.value / 1e6, 3)});
    text += memory.print(2, 0);
    if (!s.repeats.empty()) {
        text += "\nRepeated blocks\n";
        detail::text_columns repeats("rlrl");
        repeats.add({"count", "of", "operators", ""});
        for (auto const& r : s.repeats)
            repeats.add({std::to_string(r.count), r.first, std::to_string(r.operators), "to " + r.last});
        text += repeats.print(2, 3);
    }
    text += "\nAtoms (factors that are cut at the same points)\n";
    detail::text_columns atoms("rrrl");
    atoms.add({"atoms", "classes", "tensors", "such as"});
    for (auto const& a : s.atoms)
        atoms.add({std::to_string(a.atoms), std::to_string(a.classes), std::to_string(a.tensors),
                   a.tensor + ", dimension " + std::to_string(a.dimension)});
    out << text + atoms.print(2, 3);
}

} // namespace heddle

#endif
