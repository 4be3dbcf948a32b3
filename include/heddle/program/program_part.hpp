// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A run of a program's operators as a program of its own, as one stage of a pipeline computes it.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The operators [first, end) of a program, and before them those that make constants which they use.
///
/// A value of before enters as an input of its name, by which the loss is differentiated. A value that is used behind
/// leaves: the loss is the sum over these of the products with their cotangents, which are buffers. So the gradient of
/// what enters is its cotangent. Tensors have their names.
struct program_part {
    heddle::program program;
    operator_id first = 0, end = 0;
    /// The whole's tensors that enter, and those that leave.
    std::vector<tensor_id> enters, leaves;
    /// The numbers in the whole of the part's tensors and operators. Those behind them stand for what leaves.
    std::vector<tensor_id> tensors;
    std::vector<operator_id> operators;
};

/// A cotangent that a part has as a source is named after its tensor and this.
inline constexpr std::string_view cotangent_suffix = ".cotangent";

/// *Precondition:* `indexed` is of the program, and the range is not empty.
/// *Throws* `input_error` if a value without a cotangent passes an end, and is no constant that can be made anew; or if
/// nothing in the part is differentiated.
[[nodiscard]] program_part part_of(program const& p, indexed_program const& indexed, operator_id first,
                                   operator_id end);

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

class part_maker {
public:
    part_maker(program const& p, indexed_program const& indexed)
        : program_(p), indexed_(indexed), maker_(p.tensor_count(), no_operator) {
        for (operator_id o = 0; o < p.operator_count(); ++o)
            for (auto t : p.results(o)) maker_[t] = o;
    }

    program_part make(operator_id first, operator_id end) {
        out_.first = first, out_.end = end;
        std::vector<bool> constants(first);
        for (operator_id o = first; o < end; ++o)
            for (auto t : program_.operands(o)) need(t, constants);
        for (operator_id o = 0; o < first; ++o)
            if (constants[o]) add(o);
        for (operator_id o = first; o < end; ++o) add(o);
        auto const own = std::move(out_.operators);
        out_.operators.clear();
        bool const has_loss = maker_[program_.loss()] >= first && maker_[program_.loss()] < end;
        auto const loss = has_loss ? number_.at(program_.loss()) : leave();
        auto const kept = operators_behind(builder_.operators(), loss);
        out_.program = std::move(builder_).finish(loss);
        for (std::size_t n = 0; n < own.size(); ++n) {
            if (!kept[n]) continue;
            auto const mine = static_cast<operator_id>(out_.operators.size());
            out_.operators.push_back(own[n]);
            note(out_.program.operands(mine), program_.operands(own[n]));
            note(out_.program.results(mine), program_.results(own[n]));
        }
        return std::move(out_);
    }

private:
    static constexpr operator_id no_operator = ~operator_id{0};

    /// Notes which operators of before make a tensor, if it is a constant.
    void need(tensor_id t, std::vector<bool>& constants) {
        auto const o = maker_[t];
        if (o == no_operator || o >= out_.first || indexed_.tensors[t].has_cotangent || constants[o]) return;
        constants[o] = true;
        for (auto operand : program_.operands(o)) {
            if (indexed_.tensors[operand].has_cotangent)
                throw input_error("tensor '" + program_.tensor(t).name + "'",
                                  "passes from stage to stage and has no cotangent, expected what has, or constants");
            need(operand, constants);
        }
    }

    /// Notes the numbers that tensors of the part have in the whole.
    void note(std::span<tensor_id const> mine, std::span<tensor_id const> whole) {
        for (std::size_t k = 0; k < mine.size(); ++k) {
            out_.tensors.resize(std::max<std::size_t>(out_.tensors.size(), mine[k] + std::size_t{1}));
            out_.tensors[mine[k]] = whole[k];
        }
    }

    void add_source(tensor_id t) {
        auto const& info = program_.tensor(t);
        auto& number = number_[t];
        if (info.role == tensor_role::value) {
            number = builder_.input(info.name, info.shape, info.type, true);
            out_.enters.push_back(t);
        } else {
            number = builder_.source(info);
        }
    }

    void add(operator_id o) {
        std::vector<tensor_id> operands;
        for (auto t : program_.operands(o)) {
            if (!number_.contains(t)) add_source(t);
            operands.push_back(number_.at(t));
        }
        auto const results =
            builder_.apply_multi(program_.kind(o), program_.rule(o), std::move(operands), options_of(program_, o));
        for (std::size_t k = 0; k < results.size(); ++k) number_[program_.results(o)[k]] = results[k];
        out_.operators.push_back(o);
    }

    /// Returns the loss of a part that the program's is not in.
    tensor_id leave() {
        std::vector<tensor_id> products;
        for (operator_id o = out_.first; o < out_.end; ++o)
            for (auto t : program_.results(o)) {
                auto const& tensor = indexed_.tensors[t];
                if (!tensor.has_cotangent || tensor.consumers.empty() || tensor.consumers.back() < out_.end) continue;
                products.push_back(product(t));
            }
        if (products.empty())
            throw input_error("operators " + std::to_string(out_.first) + " to before " + std::to_string(out_.end),
                              "nothing that is differentiated leaves them, expected a stage that the loss depends on");
        auto sum = products.front();
        for (std::size_t k = 1; k < products.size(); ++k)
            sum =
                builder_.apply("add", "(), () -> (); 0 + 1", {sum, products[k]}, costless("left." + std::to_string(k)));
        return sum;
    }

    tensor_id product(tensor_id t) {
        auto const& info = program_.tensor(t);
        std::string const name = info.name + std::string(cotangent_suffix);
        auto const cotangent = builder_.buffer(name, info.shape, info.type);
        out_.leaves.push_back(t);
        std::string dims;
        for (std::size_t d = 0; d < info.shape.size(); ++d)
            dims += (d > 0 ? " " : "") + (info.shape[d] == 1 ? std::string("1") : "d" + std::to_string(d));
        // Without a term, what leaves is never summands.
        return builder_.apply("einsum", "(" + dims + "), (" + dims + ") -> ()", {number_.at(t), cotangent},
                              costless(info.name + ".leaves"));
    }

    [[nodiscard]] operator_options costless(std::string name) const {
        return {.name = std::move(name),
                .forward = flops(0),
                .backward = flops(0),
                .saved_operands = std::vector<std::uint8_t>{},
                .is_view = true};
    }

    program const& program_;
    indexed_program const& indexed_;
    std::vector<operator_id> maker_;
    program_builder builder_;
    /// The numbers of the whole's tensors in the part, while it is made.
    std::map<tensor_id, tensor_id> number_;
    program_part out_;
};

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE program_part part_of(program const& p, indexed_program const& indexed, operator_id first,
                                   operator_id end) {
    return detail::part_maker(p, indexed).make(first, end);
}

} // namespace heddle

#endif
