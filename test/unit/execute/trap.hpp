// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A program and its distributed program, written down by hand.
#pragma once

#include "emulation.hpp"

#include <heddle/plan/verify.hpp>
#include <heddle/program/operators.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <support/literals.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// A program under construction, then its distributed program, instruction by instruction.
class trap {
public:
    tensor_id input(tensor_shape dims, element_type type = element_type::float32) {
        return builder_.input(fresh("input"), std::move(dims), type);
    }
    tensor_id weight(tensor_shape dims, bool trained = true) {
        return builder_.parameter(fresh("weight"), std::move(dims), element_type::float32, trained);
    }
    tensor_id add(char const* target, std::vector<tensor_id> operands, tensor_shape result,
                  std::vector<literal> more = {}, std::map<std::string, literal, std::less<>> named = {}) {
        return add_multi(target, std::move(operands), {std::move(result)}, std::move(more), std::move(named)).front();
    }
    std::vector<tensor_id> add_multi(char const* target, std::vector<tensor_id> operands,
                                     std::vector<tensor_shape> results, std::vector<literal> more = {},
                                     std::map<std::string, literal, std::less<>> named = {}) {
        traced_call call{fresh(target), target, {}, std::move(named), operands, {}};
        for (auto t : operands) call.arguments.push_back(T(t));
        call.arguments.insert(call.arguments.end(), more.begin(), more.end());
        for (auto& s : results) call.results.push_back({std::move(s), element_type::float32});
        for (auto const& [name, argument] : call.keywords)
            if (auto const* tensor = argument.as<literal::tensor>()) call.operands.push_back(tensor->id);
        return add_call(builder_, call, rules).results;
    }
    /// For operators added from here on.
    rule_table rules{};
    void finish(tensor_id loss) {
        program_ = builder_.finish(loss);
        indexed_ = index_program(program_);
    }

    trap& read(tensor_id t, tensor_form f) { return emit(instruction::read(t, f)); }
    trap& convert(tensor_id t, tensor_form from, tensor_form to) { return emit(instruction::convert(t, from, to)); }
    /// The next operator, split along the loop that gives these forms, or along none.
    trap& compute(form_list operands, form_list results) {
        auto const op = next_++;
        auto const& loops = indexed_.operators[op].loops;
        instruction::compute i{op, std::move(operands), std::move(results)};
        auto const fits = [](form_list const& forms, std::vector<factor_number> const& factors) {
            for (std::size_t k = 0; k < forms.size(); ++k)
                if (forms[k].is_shard() && forms[k].factor() != factors[k]) return false;
            return true;
        };
        bool const any = std::ranges::any_of(i.operands, &tensor_form::is_shard) ||
                         std::ranges::any_of(i.results, &tensor_form::is_shard);
        for (std::size_t l = 0; any && l < loops.size() && i.loop < 0; ++l)
            if (fits(i.operands, loops[l].operands) && fits(i.results, loops[l].results))
                i.loop = static_cast<std::int16_t>(l);
        return emit(std::move(i));
    }
    trap& along(std::int16_t loop) {
        list_.back().as<instruction::compute>()->loop = loop;
        return *this;
    }

    [[nodiscard]] plan planned(std::vector<double> ratios) const {
        return plan_of(indexed_, list_, {ratios}, [&](atom_class const& c) { return apportion(c.atoms, ratios); });
    }
    /// The same in two micro-batches that take turns, on equal ranks.
    [[nodiscard]] plan planned_in_turn(std::size_t ranks) const {
        auto const part = index_program(micro_batch_of(program_, 2));
        std::vector<double> const ratios(ranks, 1.0 / static_cast<double>(ranks));
        auto made = plan_of(part, list_, {ratios}, [&](atom_class const& c) { return apportion(c.atoms, ratios); });
        made.provenance.training.micro_batches = 2;
        for (auto& s : made.steps) s.step = make_step(part, s.instruction, made.provenance.training);
        return made;
    }
    /// Accepted, and equal to the single device on three seeds.
    void emulates(std::vector<double> ratios = {0.5, 0.3, 0.2}) const {
        auto const p = planned(std::move(ratios));
        INFO(describe(program_), describe(p));
        auto const verified = verify(indexed_, p);
        CAPTURE(verified.problem);
        REQUIRE(verified);
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            auto const shown = emulate(program_, p, seed);
            CAPTURE(seed);
            CHECK_MESSAGE(shown, shown.problem);
        }
    }
    [[nodiscard]] std::string problem(std::vector<double> ratios = {0.5, 0.5}) const {
        return verify(indexed_, planned(std::move(ratios))).problem;
    }
    [[nodiscard]] bool is_refused_for(char const* reason) const {
        CAPTURE(problem());
        return problem().find(reason) != std::string::npos;
    }
    [[nodiscard]] heddle::program const& single_device() const { return program_; }
    [[nodiscard]] indexed_program const& indexed() const { return indexed_; }
    /// Forgets the distributed program.
    trap& again() {
        list_.clear();
        next_ = 0;
        return *this;
    }

private:
    std::string fresh(std::string const& stem) { return stem + std::to_string(++names_); }
    trap& emit(instruction i) {
        list_.push_back(std::move(i));
        return *this;
    }

    program_builder builder_;
    program program_;
    indexed_program indexed_;
    std::vector<instruction> list_;
    operator_id next_ = 0;
    int names_ = 0;
};

} // namespace heddle::test
