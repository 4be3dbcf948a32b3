// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Re-derives every property of a plan from the program's index rules, without the theory's
/// triples and without the search.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/detail/computation_check.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/verification.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

/// Walks once over a plan's instructions; `check` throws `violation` at the first that is not justified.
class plan_verifier {
public:
    plan_verifier(indexed_program const& program, plan const& p)
        : program_(program), plan_(p), check_computation_(program, class_of_) {}

    /// Returns the place of what is checked now, for a message.
    [[nodiscard]] std::string place() const {
        return number_ < plan_.steps.size() ? "step " + std::to_string(number_) + ": " : "";
    }
    void check();

private:
    void check_tables();

    /// Checks that what an operator makes and uses of values that are made again is of one region, and that it makes
    /// all of its results again or none.
    void check_regions() const;

    /// An unsharded copy is made for one stage, so a stage must begin after the computation before.
    [[nodiscard]] bool unshards_in_time(std::size_t n) const;

    /// Checks that a group splits an operator along a loop of everything that is cut inside, and that its devices'
    /// results are parts or add up.
    void check_inside(indexed_operator const& op, split_loop const& loop) const;

    /// Checks a plan on a mesh by the rules of meshes.
    void check_mesh();

    /// Checks that there are shares of one for each segment and place.
    void check_ratios(ratio_table const& ratios, std::size_t places) const;

    /// Checks that shards are whole, of one class per factor, and cover the factor.
    void check_cuts();

    void check_form(tensor_id t, tensor_form f) const;
    [[nodiscard]] bool holds(tensor_id t, tensor_form f) const { return held_.contains({t, f.code()}); }
    void require_held(tensor_id t, tensor_form f) const {
        require(holds(t, f), "'" + program_.tensors[t].info.name + "' is not held " + to_string(f));
    }

    /// Notes a form, which may be made once only: otherwise its cotangent would be passed back twice.
    void hold(tensor_id t, tensor_form f) {
        require(held_.insert({t, f.code()}).second,
                "'" + program_.tensors[t].info.name + "' is held " + to_string(f) + " already");
    }

    void check(instruction::read const& i);

    void check(instruction::convert const& i);

    /// Checks that a parameter is unsharded between the operator before and the one that uses it, and that no other
    /// uses it.
    void check(instruction::unshard const& i);

    /// Finds the instruction that made the copies, among those before the computation that was just done.
    void check(instruction::reshard const& i);

    void check(instruction::compute const& i);

    /// Checks that the costs the plan carries are those of its instruction.
    void check_work(step_work const& expected) const;

    /// Checks that, and that what it saves is saved once.
    void check_step();

    [[nodiscard]] bool is_stored(tensor_id t, tensor_form f) const;

    indexed_program const& program_;
    plan const& plan_;
    std::size_t number_ = 0;
    std::set<std::pair<tensor_id, std::uint16_t>> held_, saved_;
    /// The forms in which parameters are stored.
    std::map<tensor_id, tensor_form> stored_;
    /// The step, by parameter, that unshards it for the next computation; and the step that did so for the computation
    /// just done and is to be undone.
    std::map<tensor_id, std::size_t> unsharded_, resharding_;
    std::set<operator_id> computed_;
    std::map<cut_factor, std::size_t> class_of_;
    computation_check check_computation_;
};

/// Checks that a plan in segments has one for each operator of the model.
[[nodiscard]] inline verification check_segments(plan const& p, std::size_t operators) {
    if (p.segments.empty() || p.segments.size() == operators) return {};
    return {false, "there is not one segment per operator of the model"};
}

} // namespace detail

/// Checks whether a plan's program computes what the single-device program does: every operand is held in the form its
/// instruction asks for, every computation is one that its index rule allows, shards line up, the loss ends partial or
/// mirrored, and the work that the plan carries is that of its instructions. `verify_figures` (plan/figures.hpp) checks
/// what it says of time, memory and bounds.
/// *Complexity.* O(n log n) in the size of the plan.
[[nodiscard]] verification verify(indexed_program const& program, plan const& p);

/// As above, of a program in the plan's segments. If micro-batches take turns, it is that of one of them.
[[nodiscard]] verification verify_part(program const& program, plan const& p);

/// If the plan's micro-batches take turns, `p` is the program of the whole batch.
template <single_device_program Program>
[[nodiscard]] verification verify(Program const& program, plan const& p) {
    auto const operators = static_cast<std::size_t>(program_access<Program>::operator_count(program));
    if (auto const checked = detail::check_segments(p, operators); !checked) return checked;
    auto const indexed = index_program(program, p.segments);
    if (!p.provenance.training.interleaves()) return verify(indexed, p);
    auto const [statistic, operation] = obstacles_to_micro_batches(indexed);
    if (statistic || operation)
        return {false, "micro-batches that take turns do not compute '" +
                           indexed.operators[operation ? *operation : *statistic].name + "' of the whole batch"};
    try {
        return verify_part(micro_batch_of(program_of(program), p.provenance.training.micro_batches), p);
    } catch (input_error const& e) { return {false, e.what()}; }
}

} // namespace heddle

#ifdef HEDDLE_COMPILED
namespace heddle {
HEDDLE_TEMPLATE verification verify(program const&, plan const&);
}
#endif

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_step.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/mesh_instruction.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/recomputation.hpp>

namespace heddle::detail {

/// Tells whether a plan makes values again for the backward pass.
[[nodiscard]] inline bool has_regions(plan const& p) {
    return algorithm::any_of(p.tensors, [](plan_tensor const& t) { return t.region != no_region; });
}

HEDDLE_INLINE void plan_verifier::check() {
    check_tables();
    check_ratios(plan_.ratios, plan_.devices.size());
    if (plan_.is_on_mesh()) return check_mesh();
    check_cuts();
    for (number_ = 0; number_ < plan_.steps.size(); ++number_) {
        plan_.steps[number_].instruction.visit([&](auto const& i) { check(i); });
        check_step();
        bool const goes_on =
            number_ + 1 < plan_.steps.size() && plan_.steps[number_ + 1].instruction.is<instruction::reshard>();
        require(resharding_.empty() || goes_on, "what is to be resharded stays after its operator");
    }
    require(unsharded_.empty(), "at the end a parameter is unsharded for no operator");
    require(held_.contains({program_.loss, tensor_form::partial().code()}) ||
                held_.contains({program_.loss, tensor_form::mirrored().code()}),
            "at the end the loss is neither partial nor mirrored");
}

HEDDLE_INLINE void plan_verifier::check_tables() {
    number_ = plan_.steps.size();
    require(plan_.exists(), "the plan has no program");
    require(plan_.tensors.size() == program_.tensors.size() && plan_.operators.size() == program_.operators.size(),
            "the plan is of a model with another number of tensors or operators");
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
        auto const& mine = plan_.tensors[t];
        auto const& theirs = program_.tensors[t];
        require(mine.name == theirs.info.name && mine.shape == theirs.info.shape && mine.type == theirs.info.type &&
                    mine.role == theirs.info.role && mine.trainable == theirs.info.trainable &&
                    mine.whole_of == theirs.info.whole_of && mine.factors == theirs.factors &&
                    mine.inside == theirs.inside,
                "tensor " + std::to_string(t) + " is '" + mine.name + "' in the plan and '" + theirs.info.name +
                    "' in the model, or of another shape");
    }
    for (auto const& t : plan_.tensors)
        require(t.inside == no_factor || t.role != tensor_role::parameter,
                "parameter '" + t.name + "' is cut inside device groups");
    for (auto const& op : program_.operators)
        if (op.inside_loop >= 0) check_inside(op, op.loops[static_cast<std::size_t>(op.inside_loop)]);
    require(!plan_.has_groups() || segment_count(program_) == 1, "device groups with several segments");
    auto const& training = plan_.provenance.training;
    require(training.micro_batches >= 1 && (training.micro_batches == 1 || !plan_.has_groups()),
            "device groups whose micro-batches take turns");
    require(training.interleaves() || plan_.stages.empty(), "stages, but no micro-batches that take turns");
    require(std::ranges::adjacent_find(plan_.stages, std::ranges::greater_equal{}) == plan_.stages.end(),
            "stages that do not ascend");
    require(plan_.stages.empty() || plan_.stages.back() < plan_.steps.size(),
            "a stage that begins after the last step");
    if (training.interleaves())
        for (std::size_t n = 0; n < plan_.steps.size(); ++n)
            require(!plan_.steps[n].instruction.is<instruction::unshard>() || unshards_in_time(n),
                    "step " + std::to_string(n) + ": a parameter is unsharded within a stage");
    if (has_regions(plan_)) check_regions();
    require(plan_.segments.empty() || plan_.segments.size() == plan_.operators.size(),
            "there is not one segment per operator");
    for (std::size_t o = 0; o < plan_.operators.size(); ++o) {
        require(program_.operators[o].segment == (plan_.segments.empty() ? 0 : plan_.segments[o]),
                "operator " + std::to_string(o) + " is in another segment");
        require(plan_.operators[o] == program_.operators[o].name, "operator " + std::to_string(o) + " is '" +
                                                                      plan_.operators[o] + "' in the plan and '" +
                                                                      program_.operators[o].name + "' in the model");
    }
}

HEDDLE_INLINE void plan_verifier::check_regions() const {
    auto const& training = plan_.provenance.training;
    require(training.recomputes != recomputation::none && !training.interleaves(),
            "values that are made again, but its training recomputes none");
    for (auto const& t : plan_.tensors)
        require(t.region >= no_region && (t.region == no_region || t.role == tensor_role::value),
                "'" + t.name + "' is no value that can be made again");
    for (operator_id o = 0; o < program_.operators.size(); ++o) {
        auto const& op = program_.operators[o];
        auto const region = region_of(program_, o);
        for (auto t : op.results)
            require(program_.tensors[t].region == program_.tensors[op.results.front()].region,
                    "'" + op.name + "' makes a part of its results again");
        require(op.results.empty() || program_.tensors[op.results.front()].region == no_region ||
                    algorithm::none_of(op.loops, [](split_loop const& loop) { return loop.exchanges(); }),
                "'" + op.name + "' exchanges rows, and is not made again");
        for_each_tensor(op, [&](tensor_id t) {
            auto const other = program_.tensors[t].region;
            require(other == no_region || other == region, "'" + op.name + "' is of regions " + std::to_string(region) +
                                                               " and " + std::to_string(other) +
                                                               ", which are not made again together");
        });
    }
}

HEDDLE_INLINE bool plan_verifier::unshards_in_time(std::size_t n) const {
    std::size_t first = n;
    while (first > 0 && !plan_.steps[first - 1].instruction.is<instruction::compute>() &&
           !plan_.steps[first - 1].instruction.is<instruction::reshard>())
        --first;
    auto const stage = algorithm::lower_bound(plan_.stages, first);
    return stage != plan_.stages.end() && *stage <= n;
}

HEDDLE_INLINE void plan_verifier::check_inside(indexed_operator const& op, split_loop const& loop) const {
    std::string const what = "inside device groups '" + op.name + "' is split, but ";
    for (std::size_t k = 0; k < op.operands.size(); ++k)
        require(plan_.tensors[op.operands[k]].inside == loop.operands[k],
                what + "operand " + std::to_string(k) + " is not cut along its loop");
    for (std::size_t k = 0; k < op.results.size(); ++k) {
        require(plan_.tensors[op.results[k]].inside == loop.results[k],
                what + "result " + std::to_string(k) + " is not cut along its loop");
        require(loop.results[k] != no_factor || loop.is_reduction,
                what + "its devices compute result " + std::to_string(k) + " more than once");
    }
    if (loop.is_reduction) computation_check::check_terms(op, std::vector<bool>(op.operands.size()), &loop);
}

HEDDLE_INLINE void plan_verifier::check_mesh() {
    auto const& sizes = plan_.inner_sizes;
    require(!plan_.devices.empty() && sizes.size() < most_axes, "a mesh of no device, or of too many axes");
    int together = 1;
    for (auto const size : sizes) {
        require(size > 0, "a mesh with an axis of no device");
        together *= static_cast<int>(size);
    }
    for (auto const& d : plan_.devices)
        require(d.group_size == together, "a place of the outermost axis does not have the devices of its slice");
    require(algorithm::all_of(plan_.tensors, [](auto const& t) { return t.inside == no_factor; }),
            "a tensor that device groups cut, on a mesh");
    require(!plan_.provenance.training.interleaves(), "micro-batches that take turns on a mesh");
    require(plan_.inner_ratios.size() == sizes.size(), "there are not ratios for each axis of the mesh");
    for (std::size_t a = 0; a < sizes.size(); ++a) check_ratios(plan_.inner_ratios[a], sizes[a]);
    auto const program = program_on_mesh(plan_);
    mesh_verifier rules(program_, program);
    try {
        rules.check();
    } catch (violation const& v) { throw violation{rules.place() + v.text}; }
    saved_so_far saved(program_);
    for (number_ = 0; number_ < plan_.steps.size(); ++number_) {
        check_work(make_step(program_, program.steps[number_], program.mesh, plan_.provenance.training));
        auto stated = plan_.steps[number_].saved, expected = saved.by(program.steps[number_]);
        algorithm::sort(stated);
        algorithm::sort(expected);
        require(stated == expected, "what it saves for the backward pass is not what its rule says");
    }
}

HEDDLE_INLINE void plan_verifier::check_ratios(ratio_table const& table, std::size_t places) const {
    require(table.size() == segment_count(program_), "there are not ratios for each segment");
    for (auto const& ratios : table) {
        require(ratios.size() == places, "there is not one ratio per device");
        double total = 0;
        for (double ratio : ratios) {
            require(ratio >= 0, "a ratio is negative or no number");
            total += ratio;
        }
        require(std::abs(total - 1) <= 1e-6, "the ratios add up to " + std::to_string(total) + ", not to one");
    }
}

HEDDLE_INLINE void plan_verifier::check_cuts() {
    for (std::size_t c = 0; c < plan_.cuts.size(); ++c) {
        auto const& cut = plan_.cuts[c];
        std::string const place = "cut " + std::to_string(c);
        require(cut.atoms > 0 && cut.counts.size() == plan_.devices.size(),
                place + " does not have one count per device");
        extent sum = 0;
        for (extent count : cut.counts) {
            require(count >= 0, place + " has a negative count");
            sum += count;
        }
        require(sum == cut.atoms,
                place + " distributes " + std::to_string(sum) + " of " + std::to_string(cut.atoms) + " atoms");
        for (auto const& m : cut.members) {
            require(m.tensor < program_.tensors.size() && m.factor >= 0 &&
                        m.factor < static_cast<factor_number>(program_.tensors[m.tensor].factors.size()),
                    place + " names a factor that is not there");
            auto const& member = program_.tensors[m.tensor].factors[static_cast<std::size_t>(m.factor)];
            require(member.extent % cut.atoms == 0, place + " does not divide the extent of a member");
            require(member.segment == cut.segment, place + " is not of the segment of a member");
            require(class_of_.try_emplace({m.tensor, m.factor}, c).second,
                    place + " has a member that another cut has too");
        }
    }
}

HEDDLE_INLINE void plan_verifier::check_form(tensor_id t, tensor_form f) const {
    require(t < program_.tensors.size(), "names a tensor that is not there");
    auto const& tensor = program_.tensors[t];
    require(is_possible(f, tensor), "'" + tensor.info.name + "' cannot be " + to_string(f));
    if (f.is_shard())
        require(class_of_.contains({t, f.factor()}), "no cut says how '" + tensor.info.name + "' is sharded");
}

HEDDLE_INLINE void plan_verifier::check(instruction::read const& i) {
    check_form(i.tensor, i.to);
    auto const& tensor = program_.tensors[i.tensor];
    require(tensor.is_source(), "reads '" + tensor.info.name + "', which is computed");
    bool const cuts_state =
        i.from != i.to && i.from.is_shard() && (i.to == tensor_form::replicated() || i.to == tensor_form::mirrored());
    check_form(i.tensor, i.from);
    require(i.from == i.to || (cuts_state && tensor.is_parameter() && tensor.has_cotangent),
            "only whole copies of a trained parameter can have their optimiser state in another form, a shard");
    bool const mask = i.to == tensor_form::partial();
    require(!mask || (tensor.is_parameter() && tensor.has_cotangent), "only a trained parameter can be read partial");
    if (tensor.is_read_once())
        require(stored_.emplace(i.tensor, i.to).second,
                std::string(tensor.is_parameter() ? "reads parameter '" : "reads '") + tensor.info.name +
                    "' a second time");
    hold(i.tensor, i.to);
}

HEDDLE_INLINE void plan_verifier::check(instruction::convert const& i) {
    check_form(i.tensor, i.from);
    check_form(i.tensor, i.to);
    require_held(i.tensor, i.from);
    bool const same = i.from == i.to, unreachable = i.from.is_shard() && i.to == tensor_form::partial();
    require(!same && !unreachable, "nothing turns " + to_string(i.from) + " into " + to_string(i.to));
    require(!unsharded_.contains(i.tensor),
            "converts '" + program_.tensors[i.tensor].info.name + "', which is unsharded for the next operator");
    hold(i.tensor, i.to);
}

HEDDLE_INLINE void plan_verifier::check(instruction::unshard const& i) {
    check_form(i.tensor, i.from);
    check_form(i.tensor, i.to);
    require_held(i.tensor, i.from);
    auto const& tensor = program_.tensors[i.tensor];
    std::size_t uses = 0;
    for (auto const& op : program_.operators) uses += static_cast<std::size_t>(algorithm::count(op.operands, i.tensor));
    require(tensor.is_parameter() && uses == 1,
            "unshards '" + tensor.info.name + "', which is not a parameter used once");
    require(i.from.is_shard() && (i.to == tensor_form::replicated() || i.to == tensor_form::mirrored()),
            "unshards what is not a shard, or not to whole copies");
    hold(i.tensor, i.to);
    unsharded_.emplace(i.tensor, number_);
}

HEDDLE_INLINE void plan_verifier::check(instruction::reshard const& i) {
    auto const made = resharding_.find(i.tensor);
    require(made != resharding_.end(), "reshards what was not unsharded for the operator before, or is to stay");
    auto const& unshard = *plan_.steps[made->second].instruction.as<instruction::unshard>();
    require(i.from == unshard.to && i.to == unshard.from, "reshards other forms than were unsharded");
    resharding_.erase(made);
    held_.erase({i.tensor, i.from.code()});
}

HEDDLE_INLINE void plan_verifier::check(instruction::compute const& i) {
    require(i.op < program_.operators.size(), "names an operator that is not there");
    auto const& op = program_.operators[i.op];
    require(computed_.insert(i.op).second, "computes '" + op.name + "' a second time");
    require(i.operands.size() == op.operands.size() && i.results.size() == op.results.size(),
            "does not fit '" + op.name + "'");
    for (std::size_t k = 0; k < i.operands.size(); ++k) {
        check_form(op.operands[k], i.operands[k]);
        require_held(op.operands[k], i.operands[k]);
    }
    for (std::size_t k = 0; k < i.results.size(); ++k) check_form(op.results[k], i.results[k]);
    check_computation_(i);
    for (std::size_t k = 0; k < i.results.size(); ++k) hold(op.results[k], i.results[k]);
    for (auto const& [t, step] : unsharded_) {
        auto const k = static_cast<std::size_t>(algorithm::find(op.operands, t) - op.operands.begin());
        auto const& unshard = *plan_.steps[step].instruction.as<instruction::unshard>();
        require(k < i.operands.size() && i.operands[k] == unshard.to,
                "'" + program_.tensors[t].info.name + "' is unsharded, but not for '" + op.name + "'");
        require(!gathers_factors(i) || unshard.to == tensor_form::replicated(),
                "'" + program_.tensors[t].info.name + "' is unsharded, but its gradient waits for the factors of '" +
                    op.name + "'");
        if (unshard.is_resharded) resharding_.emplace(t, step);
    }
    unsharded_.clear();
}

HEDDLE_INLINE void plan_verifier::check_work(step_work const& expected) const {
    auto stated = plan_.steps[number_].step;
    for_each_transfer(stated, [](transfer& t) {
        if (has_grouped_kind(t.kind)) t.how.reset(); // the planner's choice
    });
    std::string const older =
        plan_.is_on_mesh() ? ", in which every axis cuts whole parts; older plans have even ones" : "";
    require(stated == expected, "the work it carries is not that of its instruction" + older);
}

HEDDLE_INLINE void plan_verifier::check_step() {
    auto const& s = plan_.steps[number_];
    require(s.inside.empty(), "has instructions of further axes, but the plan has one");
    check_work(make_step(program_, s.instruction, plan_.provenance.training));
    std::set<std::pair<tensor_id, std::uint16_t>> wanted;
    for_each_saved(program_, s.instruction, [&](tensor_id t, tensor_form f) {
        if (program_.tensors[t].is_parameter() && (is_stored(t, f) || resharding_.contains(t))) return;
        if (!saved_.contains({t, f.code()})) wanted.insert({t, f.code()});
    });
    std::set<std::pair<tensor_id, std::uint16_t>> stated;
    for (auto const& [t, f] : s.saved) stated.insert({t, f[0].code()});
    require(stated.size() == s.saved.size() && stated == wanted,
            "what it saves for the backward pass is not what its rule says");
    saved_.insert(wanted.begin(), wanted.end());
}

HEDDLE_INLINE bool plan_verifier::is_stored(tensor_id t, tensor_form f) const {
    auto const found = stored_.find(t);
    if (found == stored_.end()) return false;
    tensor_form const stored = found->second;
    return stored == f ||
           (!stored.is_shard() && stored != tensor_form::partial() && !f.is_shard() && f != tensor_form::partial());
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE verification verify_part(program const& program, plan const& p) {
    if (auto const checked = detail::check_segments(p, program.operator_count()); !checked) return checked;
    return verify(index_program(program, p.segments), p);
}

HEDDLE_INLINE verification verify(indexed_program const& program, plan const& p) {
    indexed_program planned;
    bool const is_regrouped = p.has_groups() && !program.is_split_inside, has_regions = detail::has_regions(p);
    if (is_regrouped || has_regions) planned = program;
    if (is_regrouped) split_inside(planned);
    if (has_regions && p.tensors.size() == planned.tensors.size())
        for (tensor_id t = 0; t < p.tensors.size(); ++t) planned.tensors[t].region = p.tensors[t].region;
    detail::plan_verifier verifier(is_regrouped || has_regions ? planned : program, p);
    try {
        verifier.check();
        return {};
    } catch (detail::violation const& v) { return {false, verifier.place() + v.text}; }
}

} // namespace heddle

#endif
