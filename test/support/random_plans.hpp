// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random walks through the theory of a program: plans that no planner would choose.
#pragma once

#include <heddle/plan/plan.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/theory.hpp>
#include <support/random_programs.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace heddle::test {

/// Makes a plan of instructions, with the records that follow from them and no times. `counts(cut)` returns each
/// device's atoms.
template <class Counts>
[[nodiscard]] plan plan_of(indexed_program const& program, std::vector<instruction> const& instructions,
                           ratio_table ratios, Counts counts) {
    plan p = blank_plan(program);
    p.devices.resize(ratios[0].size(), {"device", bytes(1e12)});
    // A parameter takes no further memory in the form in which it is stored; whole copies are stored as one. What is
    // resharded is gathered again.
    std::map<tensor_id, tensor_form> stored;
    std::set<std::pair<tensor_id, tensor_form>> resharded;
    for (auto const& i : instructions)
        if (auto const* read = i.as<instruction::read>(); read && program.tensors[read->tensor].is_parameter())
            stored.emplace(read->tensor, read->to);
    for (auto const& i : instructions)
        if (auto const* reshard = i.as<instruction::reshard>()) resharded.insert({reshard->tensor, reshard->from});
    std::set<std::pair<tensor_id, tensor_form>> saved;
    for (auto const& i : instructions) {
        // A mutant may ask for a loop that does not exist, of which nothing can be said.
        auto const* const compute = i.as<instruction::compute>();
        bool const has_step = !compute || compute->loop < static_cast<int>(program.operators[compute->op].loops.size());
        auto& s = p.steps.emplace_back(plan_step{i, has_step ? make_step(program, i, {}) : step_work{}, {}});
        for_each_saved(program, i, [&](tensor_id t, tensor_form f) {
            auto const home = stored.find(t);
            bool const is_home =
                home != stored.end() && (home->second == f || (home->second.is_whole() && f.is_whole()));
            if (!is_home && !resharded.contains({t, f}) && saved.insert({t, f}).second) s.saved.emplace_back(t, f);
        });
    }
    p.ratios = std::move(ratios);
    p.cuts = atom_classes(program, instructions);
    for (auto& cut : p.cuts) cut.counts = counts(cut);
    return p;
}

/// Walks operator by operator: a random way to compute each, a random way to bring its operands.
class theory_walk {
public:
    theory_walk(indexed_program const& program, random_source& random)
        : program_(program), random_(random), held_(program.tensors.size()) {}

    std::vector<instruction> instructions() {
        for (operator_id o = 0; o < program_.operators.size(); ++o) {
            auto const i = computation(o);
            auto const& op = program_.operators[o];
            for (std::size_t k = 0; k < i.operands.size(); ++k)
                if (!unshard(op.operands[k], i.operands[k], i)) bring(op.operands[k], i.operands[k]);
            emit(i);
            for (auto& r : reshards_) emit(std::move(r));
            reshards_.clear();
            for (std::size_t k = 0; k < i.results.size(); ++k) held_[op.results[k]].push_back(i.results[k]);
        }
        auto const& forms = held_[program_.loss];
        auto const ends = [&](tensor_form f) { return std::ranges::find(forms, f) != forms.end(); };
        if (!ends(tensor_form::partial()) && !ends(tensor_form::mirrored()))
            bring(program_.loss, random_.chance(0.5) ? tensor_form::partial() : tensor_form::mirrored());
        return std::move(result_);
    }

private:
    /// Chooses a computation that is split (with partial sums or without), replicated, mirrored or on partial sums:
    /// first which of these, then how.
    instruction::compute computation(operator_id o) {
        std::map<int, std::vector<instruction::compute>> ways;
        for (auto& i : computations(program_, o)) {
            bool const partial = std::ranges::find(i.operands, tensor_form::partial()) != i.operands.end();
            bool const mirrored = std::ranges::find(i.results, tensor_form::mirrored()) != i.results.end();
            ways[i.loop >= 0 && !partial ? 0
                 : i.loop >= 0           ? 1
                 : partial               ? 2
                 : mirrored              ? 3
                                         : 4]
                .push_back(std::move(i));
        }
        if (ways.contains(1) && random_.chance(0.4)) return random_.of(ways[1]);
        if (ways.contains(0) && random_.chance(0.4)) return random_.of(ways[0]);
        return random_.of(std::next(ways.begin(), static_cast<std::ptrdiff_t>(random_.below(ways.size())))->second);
    }
    void emit(instruction i) { result_.push_back(std::move(i)); }
    [[nodiscard]] bool holds(tensor_id t, tensor_form f) const {
        return std::ranges::find(held_[t], f) != held_[t].end();
    }

    factor_number random_factor(indexed_tensor const& tensor) {
        return static_cast<factor_number>(random_.below(tensor.factors.size()));
    }

    void read(tensor_id t, tensor_form f) {
        emit(instruction::read(t, f));
        held_[t].push_back(f);
    }
    void convert(tensor_id t, tensor_form from, tensor_form to) {
        emit(instruction::convert(t, from, to));
        held_[t].push_back(to);
    }
    /// Gathers a parameter for its one operator, now and then.
    bool unshard(tensor_id t, tensor_form f, instruction::compute const& computation) {
        auto const& tensor = program_.tensors[t];
        if (!tensor.is_parameter() || tensor.factors.empty() || !f.is_whole() || !is_used_once(program_, t) ||
            !held_[t].empty())
            return false;
        if ((gathers_factors(computation) && f == tensor_form::mirrored()) || random_.chance(0.5)) return false;
        tensor_form const shard = tensor_form::shard(random_factor(tensor));
        read(t, shard);
        bool const is_resharded = random_.chance(0.5);
        emit(instruction::unshard(t, shard, f, is_resharded));
        if (is_resharded) reshards_.push_back(instruction::reshard(t, f, shard));
        else held_[t].push_back(f);
        return true;
    }
    /// Reads the source again or converts what is held of it, now and then by a detour.
    void bring(tensor_id t, tensor_form f) {
        if (holds(t, f)) return;
        auto const& tensor = program_.tensors[t];
        auto const readable = tensor.is_source() ? readable_forms(tensor) : form_list{};
        bool const may_read = !readable.empty() && (held_[t].empty() || !tensor.is_parameter());
        if (may_read && (held_[t].empty() || random_.chance(0.4))) {
            bool const direct = std::ranges::find(readable, f) != readable.end() && random_.chance(0.6);
            tensor_form const first = direct ? f : random_.of(readable);
            if (!holds(t, first)) {
                bool const cuts_state = first.is_whole() && tensor.is_parameter() && tensor.has_cotangent &&
                                        !tensor.factors.empty() && random_.chance(0.4);
                if (cuts_state) emit(instruction::read(t, tensor_form::shard(random_factor(tensor)), first));
                else emit(instruction::read(t, first));
                held_[t].push_back(first);
            }
            if (first == f) return;
        }
        tensor_form const from = random_.of(held_[t]);
        std::vector<tensor_form> between;
        for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code)
            if (tensor_form const h = tensor_form::from_code(code);
                is_possible(h, tensor) && !holds(t, h) && h != f && find_conversion(from, h) && find_conversion(h, f))
                between.push_back(h);
        bool const straight = find_conversion(from, f).has_value();
        // Nothing leads straight from a shard to partial; if whole copies are held already, they lead there.
        if (!straight && between.empty())
            return convert(t, holds(t, tensor_form::replicated()) ? tensor_form::replicated() : tensor_form::mirrored(),
                           f);
        if (straight && (between.empty() || random_.chance(0.8))) return convert(t, from, f);
        tensor_form const h = random_.of(between);
        convert(t, from, h);
        convert(t, h, f);
    }

    indexed_program const& program_;
    random_source& random_;
    std::vector<form_list> held_;
    std::vector<instruction> reshards_, result_;
};

[[nodiscard]] inline std::vector<double> random_ratios(std::size_t ranks, random_source& random) {
    std::vector<double> ratios;
    double sum = 0;
    for (std::size_t r = 0; r < ranks; ++r)
        sum += ratios.emplace_back(random.chance(0.2) ? 0.0 : random.between(0.05, 1.0));
    if (sum == 0) sum = ratios[0] = 1;
    for (auto& x : ratios) x /= sum;
    return ratios;
}

/// Returns one segment, or some, of operators in a row or here and there.
[[nodiscard]] inline std::vector<segment_number> random_segments(program const& p, random_source& random) {
    if (random.chance(0.6)) return {};
    std::vector<segment_number> segments(p.operator_count());
    int const count = random.between(2, 3);
    bool const in_a_row = random.chance(0.5);
    for (std::size_t o = 0; o < segments.size(); ++o)
        segments[o] = static_cast<segment_number>(in_a_row ? o * static_cast<std::size_t>(count) / segments.size()
                                                           : random.below(static_cast<std::size_t>(count)));
    return segments;
}

/// Makes a plan at random ratios, some of them zero. Its cuts are apportioned, or divided at random, and its shards
/// move in random ways.
[[nodiscard]] inline plan random_plan(indexed_program const& program, std::size_t ranks, random_source& random) {
    ratio_table ratios;
    for (std::size_t s = 0; s < segment_count(program); ++s)
        ratios.push_back(s > 0 && random.chance(0.2) ? ratios[0] : random_ratios(ranks, random));
    auto const instructions = theory_walk(program, random).instructions();
    bool const apportioned = random.chance(0.6);
    ratio_table carry(ratios.size(), std::vector<double>(ranks));
    auto p = plan_of(program, instructions, ratios, [&](atom_class const& cut) {
        return apportion(cut.atoms, apportioned ? ratios[cut.segment] : random_ratios(ranks, random),
                         apportioned ? &carry[cut.segment] : nullptr);
    });
    for (auto& s : p.steps)
        for_each_transfer(s.step, [&](transfer& t) {
            if (has_grouped_kind(t.kind)) t.how = random.chance(0.5) ? uneven::grouped : uneven::padded;
        });
    return p;
}

} // namespace heddle::test
