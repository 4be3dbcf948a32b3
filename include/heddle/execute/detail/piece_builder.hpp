// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Builds a piece of a plan: its program, and the plan of it.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

/// Builds a piece: its program while it walks the steps, then the plan, when the program's factors are known.
class piece_builder {
public:
    piece_builder(program const& p, indexed_program const& indexed, plan const& what,
                  std::vector<std::size_t> const& step_of, std::size_t first, std::size_t last);

    [[nodiscard]] std::vector<std::size_t> const& steps() const { return steps_; }
    [[nodiscard]] std::optional<planned_program> build();

private:
    using held = std::pair<tensor_id, tensor_form>;
    /// A form by the factor that it cuts, whose number the piece's program will tell.
    struct placed_form {
        tensor_form as;
        factor place{};
    };
    /// An instruction of the piece. Its loop is the one that a factor of an operand, or else of a result, is in.
    struct draft {
        /// Its forms are told by places until the program is there.
        instruction what;
        placed_form from{}, to{};
        std::vector<placed_form> operands{}, results{};
        bool has_loop = false, loop_of_result = false;
        std::size_t loop_of = 0;
        factor loop{};
        /// The plan's step, if it is one.
        std::optional<std::size_t> step{};
    };

    [[nodiscard]] bool is_inside(std::size_t n) const { return n >= first_ && n < last_; }
    [[nodiscard]] bool is_used_after(tensor_id t) const;
    [[nodiscard]] placed_form place(tensor_id t, tensor_form f) const;

    // ---- which steps

    void choose();
    void choose_loss();

    // ---- program and drafts

    void add_source(tensor_id t);
    void add_compute(std::size_t n);
    void add_conversion(std::size_t n);
    void enter(tensor_id t, tensor_form f);
    /// The product of a value with a parameter, partial.
    tensor_id leave(held const& what);
    /// A source for the boundary of the piece: `t` itself, or independent summands of it.
    tensor_id add_boundary(tensor_id t, std::string const& name, bool is_trained, bool in_summands);
    void read(tensor_id t, placed_form const& f);
    /// The last operator that was added, split along a loop if `loop` names one of its first operand.
    void compute(std::vector<placed_form> operands, placed_form const& result, factor const* loop = nullptr);
    /// A rule's dimensions of a tensor, an index for each factor.
    [[nodiscard]] std::string dimensions(tensor_id t, index_extents& extents) const;
    [[nodiscard]] tensor_id apply(char const* kind, std::string const& rule, std::vector<tensor_id> operands,
                                  operator_options options, segment_number segment);
    [[nodiscard]] extent summands() const { return std::max<extent>(2, static_cast<extent>(plan_.devices.size())); }
    /// The factor of a boundary's summands.
    [[nodiscard]] factor summand(segment_number s) const { return {0, summands(), 1, s}; }
    /// Cuts a new tensor as the plan does another one.
    void cut_like(tensor_id made, held original);

    // ---- plan

    /// The form by the number of its factor in the piece; nothing if there is none.
    [[nodiscard]] std::optional<tensor_form> number_of(tensor_id t, placed_form const& f) const;
    /// As above; where there is none the tensor is to leave the piece, so that the product has all factors.
    [[nodiscard]] std::optional<tensor_form> resolve(tensor_id t, placed_form const& f);
    [[nodiscard]] std::optional<instruction> resolve(draft const& d);
    [[nodiscard]] std::optional<planned_program> try_to_build();
    /// Forgets all of an attempt but what leaves.
    void forget();
    void miss(held const& what);
    [[nodiscard]] std::vector<atom_class> cuts() const;

    program const& program_;
    indexed_program const& indexed_;
    plan const& plan_;
    std::vector<std::size_t> const& step_of_;
    std::size_t first_, last_;
    std::set<std::pair<tensor_id, std::uint16_t>> needed_;
    std::vector<std::size_t> steps_;
    /// Values computed before that a step enters, by number; values that leave.
    std::map<std::size_t, std::vector<held>> entering_;
    std::vector<held> leaving_;

    program_builder builder_;
    std::vector<segment_number> segments_;
    std::map<tensor_id, tensor_id> number_;
    /// Maps a new tensor to the plan's and to a form in which the piece has it first.
    std::map<tensor_id, held> first_held_;
    /// What the piece is to give too, for a tensor to have the cotangent or the factors that it has in the plan.
    std::vector<held> missed_;
    /// Where its factors are those of a segment.
    std::map<tensor_id, segment_number> segment_of_;
    std::vector<draft> drafts_;
    /// New tensors by the plan's class that cuts one of their factors.
    std::map<std::size_t, std::vector<std::pair<tensor_id, factor>>> members_;
    std::map<cut_factor, std::size_t> class_of_;
    std::vector<std::pair<tensor_id, factor>> summed_;
    indexed_program made_;
};

} // namespace heddle::detail

#if HEDDLE_DEFINITIONS

namespace heddle::detail {

HEDDLE_INLINE piece_builder::piece_builder(program const& p, indexed_program const& indexed, plan const& what,
                                           std::vector<std::size_t> const& step_of, std::size_t first, std::size_t last)
    : program_(p), indexed_(indexed), plan_(what), step_of_(step_of), first_(first), last_(last) {
    for (std::size_t c = 0; c < what.cuts.size(); ++c)
        for (auto const& m : what.cuts[c].members) class_of_[m] = c;
    choose();
}

HEDDLE_INLINE bool piece_builder::is_used_after(tensor_id t) const {
    return algorithm::any_of(indexed_.tensors[t].consumers, [&](operator_id o) { return !is_inside(step_of_[o]); });
}

HEDDLE_INLINE piece_builder::placed_form piece_builder::place(tensor_id t, tensor_form f) const {
    return {f, f.is_shard() ? indexed_.tensors[t].factors[static_cast<std::size_t>(f.factor())] : factor{}};
}

HEDDLE_INLINE void piece_builder::choose_loss() {
    std::optional<tensor_form> end;
    auto const note = [&](tensor_id t, tensor_form f) {
        if (t == indexed_.loss &&
            (f == tensor_form::partial() || (f == tensor_form::mirrored() && end != tensor_form::partial())))
            end = f;
    };
    for (std::size_t n = 0; n < plan_.steps.size(); ++n) {
        auto const& i = plan_.steps[n].instruction;
        if (auto const* convert = i.as<instruction::convert>()) note(convert->tensor, convert->to);
        auto const* const compute = i.as<instruction::compute>();
        if (!compute) continue;
        auto const& results = indexed_.operators[compute->op].results;
        for (std::size_t k = 0; k < results.size(); ++k) {
            note(results[k], compute->results[k]);
            if (results[k] == indexed_.loss && !is_inside(n)) return;
        }
    }
    if (!end) return;
    needed_.insert({indexed_.loss, end->code()});
    leaving_.emplace_back(indexed_.loss, *end);
}

HEDDLE_INLINE void piece_builder::choose() {
    choose_loss();
    for (std::size_t n = plan_.steps.size(); n-- > 0;) {
        auto const& i = plan_.steps[n].instruction;
        bool chosen = false;
        if (auto const* compute = i.as<instruction::compute>()) {
            auto const& op = indexed_.operators[compute->op];
            chosen = is_inside(n);
            for (std::size_t k = 0; k < op.results.size(); ++k)
                if (held const result{op.results[k], compute->results[k]}; chosen && is_used_after(result.first))
                    leaving_.push_back(result);
                else if (!chosen && needed_.contains({result.first, result.second.code()}))
                    entering_[n].push_back(result);
            for (std::size_t k = 0; chosen && k < op.operands.size(); ++k)
                needed_.insert({op.operands[k], compute->operands[k].code()});
        } else if (auto const& [t, from, to] = *i.change(); i.is<instruction::reshard>()) {
            chosen = is_inside(step_of_[indexed_.tensors[t].consumers.front()]);
        } else {
            chosen = needed_.contains({t, to.code()});
            if (chosen && !i.is<instruction::read>()) needed_.insert({t, from.code()});
        }
        if (chosen) steps_.push_back(n);
    }
    std::ranges::reverse(steps_);
}

HEDDLE_INLINE std::string piece_builder::dimensions(tensor_id t, index_extents& extents) const {
    auto const& tensor = indexed_.tensors[t];
    std::string text;
    for (std::size_t d = 0; d < tensor.info.shape.size(); ++d) {
        std::string indices;
        std::size_t count = 0;
        for (auto const& f : tensor.factors)
            if (f.dimension == d && f.widths.empty() && f.segment == tensor.factors.front().segment) {
                auto name = "d" + std::to_string(d) + "f" + std::to_string(count);
                extents[name] = f.extent;
                indices += (count++ > 0 ? " " : "") + name;
            }
        if (d > 0) text += ' ';
        text += count == 0 ? "1" : count == 1 ? indices : "(" + indices + ")";
    }
    return text;
}

HEDDLE_INLINE tensor_id piece_builder::apply(char const* kind, std::string const& rule, std::vector<tensor_id> operands,
                                             operator_options options, segment_number segment) {
    segments_.push_back(segment);
    return builder_.apply(kind, rule, std::move(operands), std::move(options));
}

HEDDLE_INLINE void piece_builder::cut_like(tensor_id made, held original) {
    auto const [t, f] = original;
    if (!f.is_shard()) return;
    if (auto const c = class_of_.find({t, f.factor()}); c != class_of_.end())
        members_[c->second].emplace_back(made, place(t, f).place);
}

HEDDLE_INLINE void piece_builder::read(tensor_id t, placed_form const& f) {
    drafts_.push_back({.what = instruction::read(t, f.as), .from = f, .to = f});
}

HEDDLE_INLINE void piece_builder::compute(std::vector<placed_form> operands, placed_form const& result,
                                          factor const* loop) {
    drafts_.push_back({.what = instruction::compute{static_cast<operator_id>(builder_.operators().size() - 1), {}, {}},
                       .operands = std::move(operands),
                       .results = {result},
                       .has_loop = loop != nullptr,
                       .loop = loop ? *loop : factor{}});
}

HEDDLE_INLINE void piece_builder::add_source(tensor_id t) {
    auto const& info = program_.tensor(t);
    auto const [slot, is_new] = number_.try_emplace(t);
    if (!is_new) return;
    auto source = info;
    source.trainable &= info.role == tensor_role::parameter; // nothing is handed to whoever gave an input
    slot->second = builder_.source(std::move(source));
}

HEDDLE_INLINE tensor_id piece_builder::add_boundary(tensor_id t, std::string const& name, bool is_trained,
                                                    bool in_summands) {
    auto const& info = program_.tensor(t);
    auto dims = info.shape;
    if (in_summands) dims.insert(dims.begin(), summands());
    return is_trained ? builder_.parameter(info.name + name, std::move(dims),
                                           is_floating(info.type) ? info.type : element_type::float32)
                      : builder_.input(info.name + name, std::move(dims), info.type);
}

HEDDLE_INLINE void piece_builder::enter(tensor_id t, tensor_form f) {
    bool const in_summands = f == tensor_form::partial();
    auto const as = place(t, f);
    auto const source = add_boundary(t, ".before", indexed_.tensors[t].has_cotangent, in_summands);
    operator_options options;
    options.name = program_.tensor(t).name;
    auto const dims = dimensions(t, options.extents);
    auto const rule = in_summands ? "(part" + std::string(dims.empty() ? "" : " ") + dims + ") -> (" + dims + "); 0"
                                  : "(" + dims + ") -> (" + dims + "); 0";
    auto const segment = as.place.segment;
    number_[t] = apply(in_summands ? "sum" : "clone", rule, {source}, std::move(options), segment);
    first_held_.emplace(number_[t], held(t, f));
    auto const part = summand(segment);
    if (in_summands) {
        summed_.emplace_back(source, part);
        read(source, {tensor_form::shard(0), part});
        compute({{tensor_form::shard(0), part}}, as, &part);
    } else {
        cut_like(source, {t, f});
        read(source, as);
        compute({as}, as, f.is_shard() ? &as.place : nullptr);
    }
}

HEDDLE_INLINE tensor_id piece_builder::leave(held const& what) {
    auto const& [t, f] = what;
    auto const as = place(t, f);
    auto const in = segment_of_.find(t);
    auto const segment = f.is_shard() || in == segment_of_.end() ? as.place.segment : in->second;
    bool const in_summands = f == tensor_form::replicated();
    tensor_id value = number_.at(t);
    if (!indexed_.tensors[t].has_cotangent) { // whose value alone matters
        operator_options options;
        options.name = program_.tensor(t).name + ".value";
        options.result_type = element_type::float32;
        options.stops_gradient = true;
        auto const dims = dimensions(t, options.extents);
        value = apply("detach", "(" + dims + ") -> (" + dims + "); 0", {value}, std::move(options), segment);
        cut_like(value, {t, f});
        compute({as}, as, f.is_shard() ? &as.place : nullptr);
    }
    auto const weight = add_boundary(t, ".after", true, in_summands);
    operator_options options;
    options.name = program_.tensor(t).name + ".product";
    auto const dims = dimensions(t, options.extents);
    auto const rule =
        "(" + std::string(in_summands ? dims.empty() ? "part" : "part " : "") + dims + "), (" + dims + ") -> (); 0*1";
    auto const product = apply("einsum", rule, {weight, value}, std::move(options), segment);
    auto const part = summand(segment);
    if (in_summands) {
        summed_.emplace_back(weight, part);
        read(weight, {tensor_form::shard(0), part});
        compute({{tensor_form::shard(0), part}, as}, {tensor_form::partial()}, &part);
    } else if (f.is_shard()) {
        cut_like(weight, {t, f});
        read(weight, as);
        compute({as, as}, {tensor_form::partial()}, &as.place);
    } else if (f == tensor_form::partial()) {
        read(weight, {tensor_form::replicated()});
        compute({{tensor_form::replicated()}, as}, {tensor_form::partial()});
    } else {
        read(weight, as);
        compute({as, as}, as);
        drafts_.push_back({.what = instruction::convert(product, as.as, tensor_form::partial()),
                           .from = as,
                           .to = {tensor_form::partial()}});
    }
    return product;
}

HEDDLE_INLINE void piece_builder::add_compute(std::size_t n) {
    auto const& i = *plan_.steps[n].instruction.as<instruction::compute>();
    draft d{.what = instruction::compute{static_cast<operator_id>(builder_.operators().size()), {}, {}}, .step = n};
    std::vector<tensor_id> operands;
    auto const of = program_.operands(i.op), to = program_.results(i.op);
    for (std::size_t k = 0; k < of.size(); ++k) {
        operands.push_back(number_.at(of[k]));
        d.operands.push_back(place(of[k], i.operands[k]));
    }
    for (std::size_t k = 0; k < to.size(); ++k) d.results.push_back(place(to[k], i.results[k]));
    if (i.loop >= 0) {
        auto const& loop = indexed_.operators[i.op].loops[static_cast<std::size_t>(i.loop)];
        auto const has = [](factor_number f) { return f != no_factor; };
        auto const k = algorithm::find_if(loop.operands, has);
        d.has_loop = true;
        d.loop_of_result = k == loop.operands.end();
        auto const& numbers = d.loop_of_result ? loop.results : loop.operands;
        d.loop_of = static_cast<std::size_t>(algorithm::find_if(numbers, has) - numbers.begin());
        d.loop = indexed_.tensors[(d.loop_of_result ? to : of)[d.loop_of]]
                     .factors[static_cast<std::size_t>(numbers[d.loop_of])];
    }
    segments_.push_back(indexed_.operators[i.op].segment);
    auto const made =
        builder_.apply_multi(program_.kind(i.op), program_.rule(i.op), std::move(operands), options_of(program_, i.op));
    for (std::size_t k = 0; k < to.size(); ++k) {
        number_[to[k]] = made[k];
        first_held_.emplace(made[k], held(to[k], i.results[k]));
    }
    drafts_.push_back(std::move(d));
}

HEDDLE_INLINE void piece_builder::add_conversion(std::size_t n) {
    auto const& i = plan_.steps[n].instruction;
    auto const& [t, from, to] = *i.change();
    if (i.is<instruction::read>()) {
        add_source(t);
        first_held_.emplace(number_.at(t), held(t, to));
    }
    draft d{.what = i, .from = place(t, from), .to = place(t, to), .step = n};
    d.what.change()->tensor = number_.at(t);
    drafts_.push_back(std::move(d));
}

HEDDLE_INLINE std::optional<planned_program> piece_builder::build() {
    if (leaving_.empty()) return {};
    auto made = try_to_build();
    if (missed_.empty()) return made;
    algorithm::copy(missed_, std::back_inserter(leaving_));
    forget();
    made = try_to_build();
    return missed_.empty() ? std::move(made) : std::nullopt;
}

HEDDLE_INLINE void piece_builder::forget() {
    builder_ = {};
    segments_.clear();
    number_.clear();
    first_held_.clear();
    drafts_.clear();
    members_.clear();
    summed_.clear();
    missed_.clear();
}

HEDDLE_INLINE void piece_builder::miss(held const& what) {
    if (algorithm::find(missed_, what) == missed_.end()) missed_.push_back(what);
}

HEDDLE_INLINE std::optional<planned_program> piece_builder::try_to_build() {
    auto next = steps_.begin();
    for (std::size_t n = 0; n < plan_.steps.size(); ++n) {
        if (auto const found = entering_.find(n); found != entering_.end())
            for (auto const& [t, f] : found->second) enter(t, f);
        if (next == steps_.end() || *next != n) continue;
        ++next;
        if (plan_.steps[n].instruction.is<instruction::compute>()) add_compute(n);
        else add_conversion(n);
    }
    std::vector<tensor_id> products;
    for (auto const& what : leaving_) products.push_back(leave(what));
    tensor_id loss = products.front();
    if (products.size() > 1) {
        std::string operands, terms;
        for (std::size_t k = 0; k < products.size(); ++k) {
            operands += k > 0 ? ", ()" : "()";
            terms += (k > 0 ? " + " : "") + std::to_string(k);
        }
        loss = apply("einsum", operands + " -> (); " + terms, products, {.name = "loss"}, 0);
        compute(std::vector<placed_form>(products.size(), {tensor_form::partial()}), {tensor_form::partial()});
    }
    auto const most = algorithm::any_of(segments_, [](auto s) { return s > 0; });
    planned_program result{std::move(builder_).finish(loss), {}};
    made_ = index_program(result.program, most ? segments_ : std::vector<segment_number>{});
    for (auto const& [t, original] : first_held_)
        if (indexed_.tensors[original.first].has_cotangent && !made_.tensors[t].has_cotangent) miss(original);
    auto& made = result.plan = blank_plan(made_);
    made.provenance = plan_.provenance;
    made.provenance.training.micro_batches = 1;
    made.devices = plan_.devices;
    for (auto& d : made.devices) d.group_size = 1;
    made.ratios = plan_.ratios;
    made.ratios.resize(segment_count(made_));
    made.cuts = cuts();
    for (auto const& d : drafts_) {
        auto const i = resolve(d);
        if (!i) {
            if (missed_.empty()) return {};
            continue; // there may be more
        }
        auto& s = made.steps.emplace_back(plan_step{*i, make_step(made_, *i, made.provenance.training), {}});
        if (d.step) copy_ways(plan_.steps[*d.step].step, s.step);
    }
    saved_so_far saved(made_);
    for (auto& s : made.steps) s.saved = saved.by(s.instruction);
    return result;
}

HEDDLE_INLINE std::optional<tensor_form> piece_builder::number_of(tensor_id t, placed_form const& f) const {
    if (!f.as.is_shard()) return f.as;
    auto const& factors = made_.tensors[t].factors;
    auto const found = algorithm::find(factors, f.place);
    if (found == factors.end()) return {};
    return tensor_form::shard(static_cast<factor_number>(found - factors.begin()));
}

HEDDLE_INLINE std::optional<tensor_form> piece_builder::resolve(tensor_id t, placed_form const& f) {
    auto const found = number_of(t, f);
    if (auto const original = first_held_.find(t); !found && original != first_held_.end()) {
        segment_of_.emplace(original->second.first, f.place.segment);
        miss(original->second);
    }
    return found;
}

HEDDLE_INLINE std::optional<instruction> piece_builder::resolve(draft const& d) {
    auto i = d.what;
    if (auto* const change = i.change()) {
        auto const from = resolve(change->tensor, d.from), to = resolve(change->tensor, d.to);
        if (!from || !to) return {};
        change->from = *from;
        change->to = *to;
        return i;
    }
    auto& computed = *i.as<instruction::compute>();
    auto const& op = made_.operators[computed.op];
    auto const all = [&](std::vector<tensor_id> const& tensors, std::vector<placed_form> const& forms,
                         form_list& into) {
        for (std::size_t k = 0; k < forms.size(); ++k) {
            auto const f = resolve(tensors[k], forms[k]);
            if (!f) return false;
            into.push_back(*f);
        }
        return true;
    };
    if (!all(op.operands, d.operands, computed.operands) || !all(op.results, d.results, computed.results)) return {};
    if (!d.has_loop) return i;
    auto const cut =
        number_of((d.loop_of_result ? op.results : op.operands)[d.loop_of], {tensor_form::shard(0), d.loop});
    if (!cut) return {};
    // Rows that are exchanged are cut as they may be alone, so all that is cut tells the loop.
    auto const cuts = [](std::vector<factor_number> const& numbers, form_list const& forms) {
        return algorithm::equal(numbers, forms, [](factor_number f, tensor_form form) {
            return f == no_factor ? !form.is_shard() : form == tensor_form::shard(f);
        });
    };
    auto const loop = algorithm::find_if(op.loops, [&](split_loop const& l) {
        return (d.loop_of_result ? l.results : l.operands)[d.loop_of] == cut->factor() &&
               cuts(l.operands, computed.operands) && cuts(l.results, computed.results);
    });
    if (loop == op.loops.end()) return {};
    computed.loop = static_cast<std::int16_t>(loop - op.loops.begin());
    return i;
}

HEDDLE_INLINE std::vector<atom_class> piece_builder::cuts() const {
    std::vector<atom_class> result;
    auto const add = [&](atom_class& to, tensor_id t, factor const& place) {
        auto const f = number_of(t, {tensor_form::shard(0), place});
        if (f && algorithm::find(to.members, cut_factor{t, f->factor()}) == to.members.end())
            to.members.push_back({t, f->factor()});
    };
    for (std::size_t c = 0; c < plan_.cuts.size(); ++c) {
        auto const& cut = plan_.cuts[c];
        atom_class mine{cut.atoms, {}, cut.counts, cut.segment};
        for (auto const& m : cut.members)
            if (auto const t = number_.find(m.tensor); t != number_.end())
                add(mine, t->second, indexed_.tensors[m.tensor].factors[static_cast<std::size_t>(m.factor)]);
        if (auto const more = members_.find(c); more != members_.end())
            for (auto const& [t, place] : more->second) add(mine, t, place);
        if (!mine.members.empty()) result.push_back(std::move(mine));
    }
    auto const devices = plan_.devices.size();
    for (auto const& [t, part] : summed_)
        add(result.emplace_back(
                atom_class{static_cast<extent>(devices), {}, std::vector<extent>(devices, 1), part.segment}),
            t, part);
    return result;
}

} // namespace heddle::detail

#endif
