// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What programs of one axis of a mesh cost beside a bounding program of the other axis.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/synthesis/mesh_choices.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/loosened_space.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

/// Prices the moves of an axis's programs on a mesh of two axes, where a bounding program of the other axis is given.
/// What the other axis computes and reads is known. A conversion is priced where the other axis makes it cheapest, since
/// that may convert the tensor there and back.
class prices_beside {
public:
    /// `other` is a path in the graph of `bounding`; `forms` are those that the other axis may have each tensor in while
    /// it is converted. *Precondition:* both spaces have the operators in one order. *Lifetime:* refers to all but the
    /// path.
    prices_beside(axis_number axis, cut_space const& own, loosened_space const& bounding,
                  std::vector<cut_space::action> const& other, form_table const& forms, mesh_prices const& price);
    prices_beside(prices_beside const&) = delete;

    /// Levels of one number and of one segment have the same costs.
    [[nodiscard]] std::uint64_t alike(std::size_t level) const { return kind_of_level_[level]; }
    /// Returns at least `never` for what does not go together with the other axis.
    [[nodiscard]] double operator()(std::size_t level, cut_space::action a) const;

private:
    /// Numbers the levels by what the other axis does there.
    void number_levels(std::vector<cut_space::action> const& other);
    [[nodiscard]] double price(instruction const& i) const;
    [[nodiscard]] double price_computation(instruction const& i) const;
    [[nodiscard]] double price_read(instruction::read const& i) const;
    [[nodiscard]] double price_change(instruction const& i) const;
    [[nodiscard]] mesh_instruction both(instruction const& mine, instruction const& others) const {
        return axis_ == 0 ? mesh_instruction({mine, others}) : mesh_instruction({others, mine});
    }

    axis_number axis_;
    cut_space const& own_;
    mesh_prices const& price_;
    form_table const& forms_;
    /// How the other axis computes each operator, and reads each source.
    std::vector<instruction> computed_;
    std::vector<std::vector<instruction>> reads_;
    std::vector<std::uint32_t> kind_of_level_;
    /// By kind of level and instruction, its price where it is known.
    mutable std::vector<std::vector<double>> known_;
    static constexpr double unknown = -1;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/theory.hpp>

#include <algorithm>

namespace heddle {

HEDDLE_INLINE prices_beside::prices_beside(axis_number axis, cut_space const& own, loosened_space const& bounding,
                                           std::vector<cut_space::action> const& other, form_table const& forms,
                                           mesh_prices const& price)
    : axis_(axis), own_(own), price_(price), forms_(forms),
      computed_(own.program().operators.size(), instruction::compute{}), reads_(own.program().tensors.size()) {
    for (auto& i : bounding.space->instructions_of(other)) {
        if (i.is<instruction::read>()) {
            auto const t = i.change()->tensor = bounding.program.of(i.change()->tensor);
            reads_[t].push_back(std::move(i));
        } else if (auto const* compute = i.as<instruction::compute>()) {
            computed_[compute->op] = std::move(i);
        }
    }
    number_levels(other);
}

HEDDLE_INLINE void prices_beside::number_levels(std::vector<cut_space::action> const& other) {
    auto const &program = own_.program(), &given = price_.searched.given();
    search::numbering<std::vector<std::uint64_t>, search::list_hash<std::uint64_t>> numbers;
    for (std::size_t level = 0; level < other.size(); ++level) {
        std::vector<std::uint64_t> key{other[level]};
        if (level < program.operators.size())
            for (auto t : program.operators[level].operands) {
                key.insert(key.end(),
                           {forms_[t].size(), reads_[t].size(), t < given.tensors.size() && is_saved(given, t)});
                key.insert(key.end(), forms_[t].begin(), forms_[t].end());
                for (auto const& i : reads_[t]) key.insert(key.end(), {i.change()->from.code(), i.change()->to.code()});
            }
        kind_of_level_.push_back(numbers.insert(std::move(key)).first);
    }
    known_.resize(numbers.size());
}

HEDDLE_INLINE double prices_beside::operator()(std::size_t level, cut_space::action a) const {
    auto& known = known_[kind_of_level_[level]];
    known.resize(own_.instructions().size(), unknown);
    double sum = 0;
    for (auto n : own_.moves()[a].instructions) {
        if (known[n] == unknown) known[n] = price(own_.at(own_.operator_of(level, a), own_.instructions()[n]));
        sum += known[n];
    }
    return sum;
}

HEDDLE_INLINE double prices_beside::price(instruction const& i) const {
    if (i.is<instruction::compute>()) return price_computation(i);
    auto const* const read = i.as<instruction::read>();
    return read ? price_read(*read) : price_change(i);
}

HEDDLE_INLINE double prices_beside::price_computation(instruction const& i) const {
    auto const all = both(i, computed_[i.as<instruction::compute>()->op]);
    return goes_together(price_.searched, all) ? price_(all) : never;
}

HEDDLE_INLINE double prices_beside::price_read(instruction::read const& i) const {
    double least = never;
    for (auto const& others : reads_[i.tensor]) {
        auto const all = both(i, others);
        if (is_read_together(own_.program().tensors[i.tensor], all)) least = std::min(least, price_(all));
    }
    return least;
}

HEDDLE_INLINE double prices_beside::price_change(instruction const& i) const {
    double least = never;
    auto const& change = *i.change();
    auto const& tensor = own_.program().tensors[change.tensor];
    for (auto const code : forms_[change.tensor]) {
        auto const there = tensor_form::from_code(code);
        auto const all = both(i, instruction::convert(change.tensor, there, there));
        if (find_conversion(all.from(), axis_, change.to, tensor)) least = std::min(least, price_(all));
    }
    return least;
}

} // namespace heddle

#endif
