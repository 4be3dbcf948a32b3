// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan of stages in the numbers of the program that it is of: which rank runs what, and what it exchanges
/// with the ranks of other stages.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/detail/rank_program.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/execute/stage_links.hpp>
#include <heddle/execute/tensor_part.hpp>
#include <heddle/plan/schedule.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/program/program_part.hpp>
#include <heddle/theory/batch_split.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The stages of a plan as parts of a program.
///
/// Ranks are numbered by stage, then as the stage's plan has its devices. In several rounds a rank has a stage of each,
/// and the number that it has by its first one. A value goes from the stage that makes it to
/// each stage that uses it, and cotangents go back the same way; what a device has to get of them, one device sends
/// that has it. In a device group that is the first, which gives the others their parts. Micro-batches pass one
/// forward, one backward. Where parts of one take turns, each part has messages of its own.
class staged_layout {
public:
    /// *Precondition:* `verify(p, what)`. *Throws* `input_error` if the batch is in pieces that micro-batches, or parts
    /// of them that take turns, would divide.
    staged_layout(program const& p, staged_plan const& what);

    [[nodiscard]] std::size_t stages() const { return stages_.size(); }
    [[nodiscard]] std::size_t ranks() const { return first_rank_.back(); }
    /// Returns the stages of a rank, one of each round.
    [[nodiscard]] std::vector<std::size_t> stages_of(std::size_t rank) const;
    [[nodiscard]] std::vector<std::size_t> ranks_of(std::size_t stage) const;
    /// Returns the passes of a rank through all of its stages, in order.
    [[nodiscard]] std::vector<pipeline_pass> passes_of(std::size_t rank) const {
        return schedule_.passes(place_of(rank), shape_);
    }
    /// Returns a stage's plan; its tensors and operators are numbered as the program's.
    [[nodiscard]] plan const& plan_of(std::size_t stage) const { return stages_[stage].plan; }
    /// Returns the program of a micro-batch, or of a part of one that takes turns, of which the tensors and operators
    /// of a stage can be cut as its plan does.
    [[nodiscard]] indexed_program const& indexed(std::size_t stage) const { return stages_[stage].indexed; }
    /// Returns what the ranks of a stage do. It refers to this object.
    [[nodiscard]] detail::rank_program program_of(std::size_t stage) const;
    /// Returns the links of a rank in one of its stages.
    [[nodiscard]] stage_links links_of(std::size_t stage, std::size_t rank) const;

private:
    /// The form in which a stage holds each value that it gets or gives.
    using forms = std::map<tensor_id, product_form>;
    struct placed_stage {
        heddle::plan plan;
        indexed_program indexed;
        forms enters, leaves;
        bool has_loss = false;
        [[nodiscard]] std::size_t turns() const {
            return static_cast<std::size_t>(plan.provenance.training.micro_batches);
        }
    };
    using parts = std::vector<std::optional<tensor_part>>;

    /// Takes a stage's plan over into the numbers of the whole program.
    void take(plan const& what, program_part const& part, placed_stage& into) const;
    /// Returns what each rank of a stage sends or gets of a tensor that is held in this form, for each of the parts of
    /// a micro-batch that take turns: which part of the first micro-batch, as a part of the whole batch.
    [[nodiscard]] std::vector<parts> parts_in(std::size_t stage, tensor_id t, product_form const& f) const;
    /// Tells whether what a stage has of a tensor when one part takes its turn comes from what another had when one
    /// of its own did, if it is in all parts of the batch, or each part has a summand. Every part gets what is whole
    /// once, and each summand goes to one part.
    [[nodiscard]] bool comes_from(tensor_id t, std::size_t part, std::size_t of, std::size_t from,
                                  std::size_t of_from) const;
    [[nodiscard]] bool reads(std::size_t stage, tensor_id t) const;
    /// Returns the number of a rank's devices among those of a round.
    [[nodiscard]] std::size_t place_of(std::size_t rank) const {
        return static_cast<std::size_t>(algorithm::upper_bound(first_rank_, rank) - first_rank_.begin()) - 1;
    }
    [[nodiscard]] std::size_t first_rank(std::size_t stage) const { return first_rank_[stage % shape_.devices]; }

    indexed_program whole_;
    batch_split split_;
    std::size_t micro_batches_ = 1;
    one_f_one_b schedule_;
    pipeline_shape shape_;
    std::vector<placed_stage> stages_;
    /// By stage of a round.
    std::vector<std::size_t> first_rank_{0};
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/execute/detail/mesh_layout.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/rescale.hpp>

namespace heddle {

HEDDLE_INLINE staged_layout::staged_layout(program const& p, staged_plan const& what)
    : whole_(index_program(p)), micro_batches_(static_cast<std::size_t>(what.micro_batches)),
      schedule_(what.schedule()), shape_(what.shape()) {
    auto const all = parts_of(p, what);
    auto micro = whole_;
    split_ = detail::undivided_batch(whole_);
    if (algorithm::any_of(what.stages, [&](auto const& s) { return what.micro_batches * s.turns() > 1; }))
        split_ = find_batch_split(whole_, batch_of_inputs(whole_));
    extent of = 1;
    for (std::size_t s = 0; s < all.size(); ++s) {
        auto& here = stages_.emplace_back();
        if (extent const count = extent{what.micro_batches} * what.stages[s].turns(); count != of) {
            if (split_.places % count != 0)
                throw input_error("micro-batches", std::to_string(count) + ", expected a number that divides the " +
                                                       std::to_string(split_.places) + " pieces of the batch");
            micro = index_program(with_part_of_batch(p, batch_size_of(whole_) / count));
            of = count;
        }
        here.indexed = micro;
        take(what.stages[s].plan, all[s], here);
        if (s < shape_.devices) first_rank_.push_back(first_rank_.back() + heddle::ranks_of(here.plan));
    }
}

HEDDLE_INLINE std::vector<std::size_t> staged_layout::stages_of(std::size_t rank) const {
    std::vector<std::size_t> mine;
    for (auto s = place_of(rank); s < stages(); s += shape_.devices) mine.push_back(s);
    return mine;
}

HEDDLE_INLINE std::vector<std::size_t> staged_layout::ranks_of(std::size_t stage) const {
    std::vector<std::size_t> ranks;
    for (auto r = first_rank(stage); r < first_rank_[stage % shape_.devices + 1]; ++r) ranks.push_back(r);
    return ranks;
}

HEDDLE_INLINE bool staged_layout::reads(std::size_t stage, tensor_id t) const {
    return algorithm::any_of(stages_[stage].plan.steps, [&](plan_step const& s) {
        return s.instruction.is<instruction::read>() && s.instruction.change()->tensor == t;
    });
}

HEDDLE_INLINE void staged_layout::take(plan const& what, program_part const& part, placed_stage& into) const {
    auto const mine = index_part_for(part.program, what);
    for (tensor_id t = 0; t < part.tensors.size(); ++t) {
        auto& to = into.indexed.tensors[part.tensors[t]];
        to.factors = mine.tensors[t].factors;
        to.is_contiguous = mine.tensors[t].is_contiguous;
        to.inside = mine.tensors[t].inside;
        to.region = mine.tensors[t].region;
    }
    for (operator_id o = 0; o < part.operators.size(); ++o) {
        auto& to = into.indexed.operators[part.operators[o]];
        to.loops = mine.operators[o].loops;
        to.inside_loop = mine.operators[o].inside_loop;
        to.segment = mine.operators[o].segment;
    }
    into.indexed.is_split_inside = mine.is_split_inside;
    into.has_loss = part.leaves.empty();
    into.plan = what;
    into.plan.tensors.clear();
    into.plan.operators.clear();
    into.plan.segments.clear();
    into.plan.steps.clear();
    auto const is_own = [&](tensor_id t) { return t < part.tensors.size(); }; // and stands for nothing that leaves
    into.plan.stages.clear();
    auto stage = what.stages.begin();
    for (std::size_t n = 0; n < what.steps.size(); ++n) {
        if (stage != what.stages.end() && *stage == n) { // begins with the next step that is kept
            auto& begins = into.plan.stages;
            if (begins.empty() || begins.back() < into.plan.steps.size()) begins.push_back(into.plan.steps.size());
            ++stage;
        }
        auto s = what.steps[n];
        auto const each_axis = [&](auto&& renumber) {
            renumber(s.instruction);
            for (auto& i : s.inside) renumber(i);
        };
        if (auto const* const compute = s.instruction.as<instruction::compute>()) {
            auto const o = compute->op;
            if (o >= part.operators.size()) { // the product of what leaves with its cotangent, or a sum of products
                auto const t = mine.operators[o].operands[0];
                if (is_own(t)) into.leaves.emplace(part.tensors[t], s.operand(0));
                continue;
            }
            each_axis([&](instruction& i) { i.as<instruction::compute>()->op = part.operators[o]; });
        } else {
            auto const t = s.instruction.change()->tensor;
            if (!is_own(t)) continue;
            auto const whole = part.tensors[t];
            if (s.instruction.is<instruction::read>() && !whole_.tensors[whole].is_source()) {
                into.enters.emplace(whole, s.to());
                continue;
            }
            each_axis([&](instruction& i) { i.change()->tensor = whole; });
        }
        into.plan.steps.push_back(std::move(s));
    }
    std::erase(into.plan.stages, into.plan.steps.size());
    for (auto& cut : into.plan.cuts) {
        std::erase_if(cut.members, [&](cut_factor const& f) { return !is_own(f.tensor); });
        for (auto& f : cut.members) f.tensor = part.tensors[f.tensor];
    }
}

HEDDLE_INLINE detail::rank_program staged_layout::program_of(std::size_t number) const {
    auto const& here = stages_[number];
    auto const& p = here.indexed;
    detail::rank_program result;
    auto const taking_turns = here.turns();
    result.layout = &here.plan;
    result.parts = micro_batches_ * taking_turns;
    if (result.parts > 1) result.whole = whole_, result.split = split_;
    else result.split = detail::undivided_batch(p);
    extent const each = result.split.places / static_cast<extent>(result.parts);
    for (std::size_t n = 0; n < result.parts; ++n) result.places.push_back({static_cast<extent>(n) * each, each});
    for (auto const& t : p.tensors)
        result.is_common.push_back(t.is_parameter() || (result.parts == 1 && t.is_read_once()));

    // What enters comes first and what leaves goes last, so that messages are in the same order at both ends.
    auto& steps = result.steps;
    for (auto const& [t, f] : here.enters) steps.push_back(detail::receive_value{t, f});
    auto const first = steps.size();
    for (auto const& s : here.plan.steps) steps.push_back(s);
    for (auto const& [t, f] : here.leaves) steps.push_back(detail::send_value{t, f});
    if (here.has_loss) steps.push_back(detail::add_loss{detail::form_of_loss(p, here.plan)});

    // Parameters are brought once for all micro-batches, but for those that are dropped in between.
    auto const is_once = [&](std::size_t n) {
        if (micro_batches_ == 1 || n < first || n >= first + here.plan.steps.size()) return false;
        auto const& i = here.plan.steps[n - first].acting();
        auto const* const unshard = i.as<instruction::unshard>();
        return i.change() && p.tensors[i.change()->tensor].is_parameter() && !i.is<instruction::reshard>() &&
               !(unshard && unshard->is_resharded);
    };
    using kind = detail::rank_turn::kind;
    auto& turns = result.turns;
    std::vector<tensor_id> leaving;
    for (auto const& [t, f] : here.leaves) leaving.push_back(t);
    if (here.has_loss) leaving.push_back(p.loss);
    detail::region_turns const regions(here.plan, p, leaving);
    auto const order = detail::turns_of(here.plan);
    auto const behind = first + here.plan.steps.size();
    auto const add = [&](kind what, detail::region_turns::steps const& list, std::size_t part) {
        for (auto const n : list) turns.push_back({what, first + n, part});
    };
    // What passes between stages does so for one part of the micro-batch after the other, tensor by tensor.
    auto const each_part = [&](kind what, std::size_t n, std::size_t m) {
        for (std::size_t part = 0; part < taking_turns; ++part) turns.push_back({what, n, m * taking_turns + part});
    };
    auto const forward = [&](std::size_t m) {
        for (std::size_t n = 0; n < first; ++n) each_part(kind::forward, n, m);
        for (auto const& t : order.forward) {
            auto const part = m * taking_turns + t.micro_batch;
            if (!is_once(first + t.step)) turns.push_back({kind::forward, first + t.step, part});
            add(kind::drop, regions.dropped_after(t.step), part);
        }
        for (std::size_t n = behind; n < steps.size(); ++n) each_part(kind::forward, n, m);
        for (std::size_t part = 0; part < taking_turns; ++part)
            add(kind::drop, regions.dropped_at_end(), m * taking_turns + part);
    };
    auto const backward = [&](std::size_t m) {
        for (std::size_t n = steps.size(); n-- > behind;) each_part(kind::backward, n, m);
        for (auto const& t : order.backward) {
            auto const part = m * taking_turns + t.micro_batch;
            add(kind::forward, regions.again_before(t.step), part);
            if (!is_once(first + t.step)) turns.push_back({kind::backward, first + t.step, part});
        }
        for (std::size_t n = first; n-- > 0;) each_part(kind::backward, n, m);
    };
    for (auto n = first; n < behind; ++n)
        if (is_once(n)) turns.push_back({kind::forward, n, detail::rank_turn::all});
    result.pauses.push_back(turns.size());
    for (auto const& pass : schedule_.passes(number % shape_.devices, shape_)) {
        if (pass.round != number / shape_.devices) continue;
        auto const m = static_cast<std::size_t>(pass.micro_batch);
        if (pass.is_forward) {
            forward(m);
        } else {
            backward(m);
            if (result.parts > 1) each_part(kind::end, 0, m);
        }
        result.pauses.push_back(turns.size());
    }
    for (auto n = behind; n-- > first;)
        if (is_once(n)) turns.push_back({kind::backward, n, detail::rank_turn::all});
    result.take_buckets(here.plan, first, [&](std::size_t n) { return micro_batches_ == 1 || is_once(n + first); });
    return result;
}

HEDDLE_INLINE std::vector<staged_layout::parts> staged_layout::parts_in(std::size_t number, tensor_id t,
                                                                        product_form const& f) const {
    auto const& here = stages_[number];
    auto const& tensor = whole_.tensors[t];
    auto const m = here.plan.mesh();
    extent const each = split_.places / static_cast<extent>(micro_batches_ * here.turns());
    std::vector<parts> result(here.turns());
    for (std::size_t turn = 0; turn < result.size(); ++turn) {
        auto& of_turn = result[turn];
        auto whole = tensor_part::whole(tensor.info.shape);
        if (auto const batch = split_.forms[t]; batch.is_shard())
            whole = whole.take(tensor.factors[static_cast<std::size_t>(batch.factor())],
                               static_cast<extent>(turn) * each, each);
        for (std::size_t device = 0; device < m.device_count(); ++device) {
            detail::mesh_layout const layout(here.indexed, here.plan.cuts, m, device);
            auto& part = of_turn.emplace_back(whole);
            layout.for_each_take(t, detail::stored_form(f), [&](factor const& cut, extent begin, extent count) {
                part = part->take(cut, begin, count);
            });
            if (here.plan.has_groups()) // the others have no messages
                of_turn.resize(of_turn.size() + static_cast<std::size_t>(here.plan.devices[device].group_size) - 1);
        }
    }
    return result;
}

HEDDLE_INLINE bool staged_layout::comes_from(tensor_id t, std::size_t part, std::size_t of, std::size_t from,
                                             std::size_t of_from) const {
    auto const batch = split_.forms[t];
    if (batch == tensor_form::partial()) return part == from * of / of_from;
    return batch.is_shard() || from == part * of_from / of;
}

HEDDLE_INLINE stage_links staged_layout::links_of(std::size_t mine, std::size_t rank) const {
    using way = stage_links::way;
    stage_links links;
    links.turns = stages_[mine].turns();
    struct turn_of_stage {
        std::size_t stage, number;
        parts const& held;
    };
    auto const pass = [&](turn_of_stage const& from, turn_of_stage const& to, tensor_id t, way w) {
        detail::for_each_message(from.held, to.held, [&](std::size_t s, std::size_t r) {
            auto const sender = first_rank(from.stage) + s, receiver = first_rank(to.stage) + r;
            auto const &sent = *from.held[s], &got = *to.held[r];
            auto& of = links.of(w);
            if (sender == rank) of.sent[{t, from.number}].push_back(detail::common_with(receiver, sent, got));
            if (receiver == rank) of.received[{t, to.number}].push_back(detail::common_with(sender, got, sent));
        });
    };
    for (std::size_t from = 0; from <= mine; ++from)
        for (auto const& [t, held] : stages_[from].leaves)
            for (std::size_t to = from + 1; to < stages(); ++to) {
                auto const wanted = stages_[to].enters.find(t);
                if (wanted == stages_[to].enters.end() || (from != mine && to != mine)) continue;
                auto const have = parts_in(from, t, held), want = parts_in(to, t, wanted->second);
                for (std::size_t a = 0; a < have.size(); ++a)
                    for (std::size_t b = 0; b < want.size(); ++b) {
                        if (!comes_from(t, b, want.size(), a, have.size())) continue;
                        pass({from, a, have[a]}, {to, b, want[b]}, t, way::values);
                        pass({to, b, want[b]}, {from, a, have[a]}, t, way::cotangents);
                    }
            }
    links.copies = {rank};
    links.is_first = rank == first_rank(mine);
    for (tensor_id t = 0; t < whole_.tensors.size(); ++t) {
        std::vector<std::size_t> users;
        for (std::size_t s = 0; s < stages(); ++s)
            if (reads(s, t)) users.push_back(s);
        links.counts_here.push_back(!users.empty() && users.front() == mine);
        bool const is_mine = algorithm::find(users, mine) != users.end();
        if (!is_mine || users.size() < 2 || !whole_.tensors[t].is_parameter() || !whole_.tensors[t].has_cotangent)
            continue;
        for (auto const s : users)
            for (auto const r : ranks_of(s)) links.shared[t].push_back(r);
    }
    return links;
}

} // namespace heddle

#endif
