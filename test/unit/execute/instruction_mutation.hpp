// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One thing wrong with a distributed program.
#pragma once

#include <heddle/theory/theory.hpp>
#include <support/random_programs.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::test {

/// Changes a plan's instructions; says whether it found something to change.
class instruction_mutation {
public:
    instruction_mutation(indexed_program const& program, random_source& random, std::vector<instruction>& list)
        : program_(program), random_(random), list_(list) {}

    /// Changes the form of an operand; if there is a way, it is brought in that form, so that it is held.
    bool operand_form() {
        auto const n = pick<instruction::compute>([](auto const& i) { return !i.operands.empty(); });
        if (!n) return false;
        auto& i = *list_[*n].as<instruction::compute>();
        std::size_t const k = random_.below(i.operands.size());
        tensor_id const t = program_.operators[i.op].operands[k];
        tensor_form const before = i.operands[k], after = other_form(t, before);
        if (after == before) return false;
        i.operands[k] = after;
        if (random_.chance(0.7)) bring(*n, t, after);
        return true;
    }
    /// Changes the form of a result; if there is a way, it is turned into the form that was there.
    bool result_form() {
        auto const n = pick<instruction::compute>();
        if (!n) return false;
        auto& i = *list_[*n].as<instruction::compute>();
        std::size_t const k = random_.below(i.results.size());
        tensor_id const t = program_.operators[i.op].results[k];
        tensor_form const before = i.results[k], after = other_form(t, before);
        if (after == before) return false;
        i.results[k] = after;
        if (random_.chance(0.7)) bring(*n + 1, t, before);
        return true;
    }
    /// Changes everything about a computation at once, mostly to what some loop asks for; what it needs is brought.
    bool way() {
        auto const n = pick<instruction::compute>();
        if (!n) return false;
        auto const before = *list_[*n].as<instruction::compute>();
        auto mutant = before;
        auto const& op = program_.operators[mutant.op];
        auto const loop = random_.between(-1, static_cast<int>(op.loops.size()) - 1);
        mutant.loop = static_cast<std::int16_t>(loop);
        tensor_form const whole = random_.chance(0.7) ? tensor_form::replicated() : tensor_form::mirrored();
        bool const reduction = loop >= 0 && op.loops[static_cast<std::size_t>(loop)].is_reduction;
        auto const form_for = [&](tensor_id t, factor_number f, tensor_form otherwise) {
            tensor_form const asked = f == no_factor ? otherwise : tensor_form::shard(f);
            tensor_form const taken = random_.chance(0.2)    ? tensor_form::partial()
                                      : random_.chance(0.05) ? other_form(t, asked)
                                                             : asked;
            return canonical(is_possible(taken, program_.tensors[t]) ? taken : asked, program_.tensors[t]);
        };
        auto const factor_in = [&](std::vector<factor_number> split_loop::* side, std::size_t k) {
            return loop < 0 ? no_factor : (op.loops[static_cast<std::size_t>(loop)].*side)[k];
        };
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            mutant.operands[k] = form_for(op.operands[k], factor_in(&split_loop::operands, k),
                                          loop < 0 ? whole : tensor_form::replicated());
        bool const partial =
            reduction || std::ranges::find(mutant.operands, tensor_form::partial()) != mutant.operands.end();
        for (std::size_t k = 0; k < op.results.size(); ++k)
            mutant.results[k] =
                form_for(op.results[k], factor_in(&split_loop::results, k), partial ? tensor_form::partial() : whole);
        if (mutant == before) return false;
        list_[*n] = mutant;
        for (std::size_t k = 0; k < op.results.size(); ++k) bring(*n + 1, op.results[k], before.results[k]);
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            bring(place_of(mutant.op), op.operands[k], mutant.operands[k]);
        return true;
    }
    bool factor() {
        auto const n = pick_if([](instruction const& i) {
            if (auto const* change = i.change()) return change->to.is_shard();
            auto const& compute = *i.as<instruction::compute>();
            return any_shard(compute.operands) || any_shard(compute.results);
        });
        if (!n) return false;
        auto& i = list_[*n];
        std::vector<std::pair<tensor_id, tensor_form*>> shards;
        auto const add = [&](tensor_id t, tensor_form& f) {
            if (f.is_shard() && program_.tensors[t].factors.size() > 1) shards.emplace_back(t, &f);
        };
        if (auto* change = i.change()) {
            if (!i.is<instruction::read>()) add(change->tensor, change->from);
            add(change->tensor, change->to);
        } else {
            auto& compute = *i.as<instruction::compute>();
            auto const& op = program_.operators[compute.op];
            for (std::size_t k = 0; k < op.operands.size(); ++k) add(op.operands[k], compute.operands[k]);
            for (std::size_t k = 0; k < op.results.size(); ++k) add(op.results[k], compute.results[k]);
        }
        if (shards.empty()) return false;
        auto const& [t, f] = random_.of(shards);
        auto const count = program_.tensors[t].factors.size();
        *f = tensor_form::shard(
            static_cast<factor_number>((static_cast<std::size_t>(f->factor()) + 1 + random_.below(count - 1)) % count));
        return true;
    }
    bool conversion() {
        auto const n = pick<instruction::convert>();
        if (!n) return false;
        auto& i = *list_[*n].as<instruction::convert>();
        (random_.chance(0.5) ? i.from : i.to) = other_form(i.tensor, i.from);
        return true;
    }
    bool read_form() {
        auto const n = pick<instruction::read>();
        if (!n) return false;
        auto& i = *list_[*n].as<instruction::read>();
        auto const [t, state, before] = i;
        i.to = i.from = other_form(t, before);
        if (random_.chance(0.5)) bring(*n + 1, t, before);
        return true;
    }
    bool drop() {
        list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(random_.below(list_.size())));
        return true;
    }
    bool swap() {
        std::swap(list_[random_.below(list_.size())], list_[random_.below(list_.size())]);
        return true;
    }
    bool duplicate() {
        std::size_t const from = random_.below(list_.size());
        insert(from + random_.below(list_.size() - from + 1), instruction(list_[from]));
        return true;
    }
    bool loop() {
        auto const n =
            pick<instruction::compute>([&](auto const& i) { return !program_.operators[i.op].loops.empty(); });
        if (!n) return false;
        auto& i = *list_[*n].as<instruction::compute>();
        auto const before = i.loop;
        i.loop =
            static_cast<std::int16_t>(random_.between(-1, static_cast<int>(program_.operators[i.op].loops.size())));
        return i.loop != before;
    }
    bool tensor() {
        auto const n = pick_if([](instruction const& i) { return i.change() != nullptr; });
        if (!n) return false;
        auto const t = static_cast<tensor_id>(random_.below(program_.tensors.size()));
        auto& change = *list_[*n].change();
        if (change.to.is_shard() || change.from.is_shard()) return false; // no such factor, most times
        return std::exchange(change.tensor, t) != t;
    }

private:
    static bool any_shard(form_list const& forms) { return std::ranges::any_of(forms, &tensor_form::is_shard); }
    template <class Good>
    std::optional<std::size_t> pick_if(Good good) {
        std::vector<std::size_t> fitting;
        for (std::size_t n = 0; n < list_.size(); ++n)
            if (good(list_[n])) fitting.push_back(n);
        return fitting.empty() ? std::nullopt : std::optional(random_.of(fitting));
    }
    /// One of a kind.
    template <class Kind, class Good>
    std::optional<std::size_t> pick(Good good) {
        return pick_if([&](instruction const& i) { return i.is<Kind>() && good(*i.as<Kind>()); });
    }
    template <class Kind>
    std::optional<std::size_t> pick() {
        return pick_if([](instruction const& i) { return i.is<Kind>(); });
    }
    tensor_form other_form(tensor_id t, tensor_form f) {
        form_list others;
        for (std::uint16_t code = 0; code < 3 + program_.tensors[t].factors.size(); ++code)
            if (tensor_form const g = tensor_form::from_code(code); g != f && is_possible(g, program_.tensors[t]))
                others.push_back(g);
        return others.empty() ? f : random_.of(others);
    }
    void insert(std::size_t n, instruction i) {
        list_.insert(list_.begin() + static_cast<std::ptrdiff_t>(n), std::move(i));
    }
    [[nodiscard]] std::size_t place_of(operator_id op) const {
        auto const at = std::ranges::find_if(list_, [&](instruction const& i) {
            auto const* const compute = i.as<instruction::compute>();
            return compute && compute->op == op;
        });
        return static_cast<std::size_t>(at - list_.begin());
    }
    /// Makes the tensor in a form before instruction `n`, if it is not there and one conversion or two lead there.
    void bring(std::size_t n, tensor_id t, tensor_form f) {
        form_list made;
        for (std::size_t m = 0; m < std::min(n, list_.size()); ++m) {
            auto const& i = list_[m];
            if (auto const* change = i.change(); change && change->tensor == t) made.push_back(change->to);
            if (auto const* compute = i.as<instruction::compute>())
                for (std::size_t k = 0; k < compute->results.size(); ++k)
                    if (program_.operators[compute->op].results[k] == t) made.push_back(compute->results[k]);
        }
        if (made.empty() || std::ranges::find(made, f) != made.end()) return;
        auto const place = [&](tensor_form from, tensor_form to) {
            for (std::size_t m = list_.size(); m-- > n;) // a form is made once
                if (auto const* i = list_[m].as<instruction::convert>(); i && i->tensor == t && i->to == to)
                    list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(m));
            insert(n, instruction::convert(t, from, to));
        };
        for (tensor_form g : made)
            if (find_conversion(g, f)) return place(g, f);
        place(tensor_form::replicated(), f);
        place(made.front(), tensor_form::replicated());
    }

    indexed_program const& program_;
    random_source& random_;
    std::vector<instruction>& list_;
};

} // namespace heddle::test
