// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A distributed program on a mesh, and an independent check of it.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/mesh.hpp>
#include <heddle/plan/detail/computation_check.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/verification.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/mesh_instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// What the devices of a mesh do, and how its axes divide what they cut.
struct mesh_program {
    heddle::mesh mesh;
    std::vector<mesh_instruction> steps;
    std::vector<atom_class> cuts;
    /// The segment of each operator; if empty, the program is one segment.
    std::vector<segment_number> segments{};
};

/// Returns what a plan's devices do, without what it says of cost.
[[nodiscard]] mesh_program program_on_mesh(plan const& p);

/// Returns a plan of a program for devices without names, which is not priced. Ratios are even: cuts say what each
/// place has. *Precondition:* `program` has the segments of `what`.
[[nodiscard]] plan plan_on_mesh(indexed_program const& program, mesh_program const& what,
                                training_options const& training = {});

namespace detail {

/// Walks once over a mesh program; `check` throws `violation` at the first thing that is not justified.
class mesh_verifier {
public:
    mesh_verifier(indexed_program const& program, mesh_program const& p)
        : program_(program), what_(p), axes_(p.mesh.axis_count()), check_computation_(program, class_of_) {}

    /// Returns the place of what is checked now, for a message.
    [[nodiscard]] std::string place() const {
        return number_ < what_.steps.size() ? "step " + std::to_string(number_) + ": " : "";
    }
    void check();

private:
    /// Checks that shards are whole, of one class per factor, and cover what each axis divides.
    void check_cuts();
    /// Checks that all axes do the same to one tensor or operator, and calls the check of what they do.
    void check(mesh_instruction const& i);
    void check_form(tensor_id t, product_form const& f) const;
    /// Notes a form, which may be made once only: otherwise its cotangent would be passed back twice.
    void hold(tensor_id t, product_form const& f);

    void read(mesh_instruction const& i);
    /// Checks an axis's change of form: that there is a conversion, and that no axis inside is in its way.
    void change(tensor_id t, product_form const& from, axis_number axis, tensor_form to) const;
    void convert(mesh_instruction const& i, axis_number axis);
    void unshard(mesh_instruction const& i, axis_number axis);
    void reshard(mesh_instruction const& i);
    void compute(mesh_instruction const& i);
    /// Checks that rows are exchanged on one axis, and that no other cuts the places that they are sent to.
    void check_exchange(mesh_instruction const& i, indexed_operator const& op) const;

    [[nodiscard]] std::string name_of(tensor_id t) const { return "'" + program_.tensors[t].info.name + "'"; }

    indexed_program const& program_;
    mesh_program const& what_;
    std::size_t axes_, number_ = 0;
    std::map<cut_factor, std::size_t> class_of_;
    computation_check check_computation_;
    std::set<std::pair<tensor_id, product_form>> held_;
    std::set<tensor_id> read_;
    std::set<operator_id> computed_;
    /// The steps that unshard parameters for the next computation, by parameter; and those that did so for the one just
    /// done and are to be undone, last first.
    std::map<tensor_id, std::vector<std::size_t>> unsharded_, resharding_;
};

} // namespace detail

/// Checks whether a mesh program computes what the single-device program does. Every axis must do what one axis may do,
/// and together they keep to the rules of meshes: forms that exist, conversions that no axis inside is in the way of,
/// one class for what is cut at the same points, and parts that every slice divides alike. The problem says which rule
/// is broken.
/// *Complexity.* O(n log n) in the size of the program.
[[nodiscard]] verification verify(indexed_program const& program, mesh_program const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/cost/mesh_step.hpp>

namespace heddle::detail {

HEDDLE_INLINE void mesh_verifier::check() {
    number_ = what_.steps.size();
    check_cuts();
    for (number_ = 0; number_ < what_.steps.size(); ++number_) {
        check(what_.steps[number_]);
        bool const goes_on = number_ + 1 < what_.steps.size() &&
                             algorithm::any_of(what_.steps[number_ + 1].axes,
                                               [](auto const& i) { return i.template is<instruction::reshard>(); });
        require(resharding_.empty() || goes_on, "what is to be resharded stays after its operator");
    }
    require(unsharded_.empty(), "at the end a parameter is unsharded for no operator");
    require(algorithm::any_of(held_, [&](auto const& h) { return h.first == program_.loss && is_end(h.second); }),
            "at the end the loss is not partial or mirrored on every axis");
}

HEDDLE_INLINE void mesh_verifier::check_cuts() {
    for (std::size_t c = 0; c < what_.cuts.size(); ++c) {
        auto const& cut = what_.cuts[c];
        std::string const place = "cut " + std::to_string(c);
        require(cut.atoms > 0 && cut.inside.size() + 1 == axes_, place + " does not have parts for every axis");
        for (auto const& m : cut.members) {
            require(m.tensor < program_.tensors.size() && m.factor >= 0 &&
                        m.factor < static_cast<factor_number>(program_.tensors[m.tensor].factors.size()),
                    place + " names a factor that is not there");
            auto const& member = program_.tensors[m.tensor].factors[static_cast<std::size_t>(m.factor)];
            require(member.extent % cut.atoms == 0, place + " does not divide the extent of a member");
            require(member.segment == cut.segment, place + " is not of the segment of a member");
            require(class_of_.try_emplace({m.tensor, m.factor}, c).second,
                    place + " has a member that another cut has too: what is cut at the same points on any axis is one "
                            "class");
        }
        std::set<extent> left{cut.atoms};
        auto const divides = [&](axis_number a, extent atoms, std::vector<extent> const& counts) {
            auto const on_axis = place + " on axis " + std::to_string(a);
            require(counts.size() == what_.mesh.size(a), on_axis + " does not have one count per place");
            require(algorithm::none_of(counts, [](extent n) { return n < 0; }), on_axis + " has a negative count");
            extent const sum = std::accumulate(counts.begin(), counts.end(), extent{0});
            require(sum == atoms,
                    on_axis + " distributes " + std::to_string(sum) + " of " + std::to_string(atoms) + " atoms");
            left.insert(counts.begin(), counts.end());
        };
        divides(0, cut.atoms, cut.counts);
        for (axis_number a = 1; a < axes_; ++a) {
            for (extent atoms : left)
                require(cut.inside[a - 1].contains(atoms), place + " on axis " + std::to_string(a) +
                                                               " does not say how " + std::to_string(atoms) +
                                                               " atoms are divided");
            for (auto const& [atoms, counts] : cut.inside[a - 1]) divides(a, atoms, counts);
        }
    }
}

HEDDLE_INLINE void mesh_verifier::check(mesh_instruction const& i) {
    require(i.axes.size() == axes_,
            "is of " + std::to_string(i.axes.size()) + " axes, expected " + std::to_string(axes_));
    auto const is_all = [&](auto const& test) { return algorithm::all_of(i.axes, test); };
    if (is_all([](auto const& x) { return x.template is<instruction::compute>(); })) return compute(i);
    require(is_all([&](auto const& x) { return x.change() && x.change()->tensor == i.axes[0].change()->tensor; }),
            "axes compute and convert at once, or convert unlike tensors");
    require(i.tensor() < program_.tensors.size(), "names a tensor that is not there");
    if (is_all([](auto const& x) { return x.template is<instruction::read>(); })) return read(i);
    auto const axis = i.acting();
    require(axis.has_value(), "does not convert on exactly one axis");
    if (i.axes[*axis].is<instruction::unshard>()) return unshard(i, *axis);
    if (i.axes[*axis].is<instruction::reshard>()) return reshard(i);
    convert(i, *axis);
}

HEDDLE_INLINE void mesh_verifier::check_form(tensor_id t, product_form const& f) const {
    require(t < program_.tensors.size(), "names a tensor that is not there");
    auto const& tensor = program_.tensors[t];
    for (tensor_form of_axis : f) {
        require(is_possible(of_axis, tensor), name_of(t) + " cannot be " + to_string(of_axis));
        if (of_axis.is_shard())
            require(class_of_.contains({t, of_axis.factor()}), "no cut says how " + name_of(t) + " is sharded");
    }
    require(is_possible(f, tensor),
            name_of(t) + " cannot be " + to_string(f) + ": an axis inside cuts what is no factor of the slice");
}

HEDDLE_INLINE void mesh_verifier::hold(tensor_id t, product_form const& f) {
    require(held_.insert({t, f}).second, name_of(t) + " is held " + to_string(f) + " already");
}

HEDDLE_INLINE void mesh_verifier::change(tensor_id t, product_form const& from, axis_number axis,
                                         tensor_form to) const {
    auto const& tensor = program_.tensors[t];
    for (tensor_form f : {from[axis], to})
        require(!f.is_shard() || may_change_cut(from, axis, f.factor(), tensor),
                "axis " + std::to_string(axis) + " begins or ends to cut " + name_of(t) + " along factor " +
                    std::to_string(f.factor()) + ", which an axis inside it cuts in " + to_string(from));
    require(find_conversion(from[axis], to).has_value(),
            "nothing turns " + to_string(from[axis]) + " into " + to_string(to));
}

HEDDLE_INLINE void mesh_verifier::read(mesh_instruction const& i) {
    tensor_id const t = i.tensor();
    auto const& tensor = program_.tensors[t];
    check_form(t, i.to());
    check_form(t, i.from());
    require(tensor.is_source(), "reads " + name_of(t) + ", which is computed");
    bool const is_trained = tensor.is_parameter() && tensor.has_cotangent;
    product_form form = i.from(); // axes bring whole copies from inside out
    for (axis_number a = axes_; a-- > 0; form = form.with(a, i.to()[a])) {
        tensor_form const from = i.from()[a], to = i.to()[a];
        require(to != tensor_form::partial() || is_trained, "only a trained parameter can be read partial");
        if (from == to) continue;
        require(is_trained && from.is_shard() && to.is_whole(),
                "only whole copies of a trained parameter can have their optimiser state in another form, a shard");
        change(t, form, a, to);
    }
    if (tensor.is_read_once())
        require(read_.insert(t).second,
                (tensor.is_parameter() ? "reads parameter " : "reads ") + name_of(t) + " a second time");
    hold(t, i.to());
}

HEDDLE_INLINE void mesh_verifier::convert(mesh_instruction const& i, axis_number axis) {
    tensor_id const t = i.tensor();
    check_form(t, i.from());
    check_form(t, i.to());
    require(held_.contains({t, i.from()}), name_of(t) + " is not held " + to_string(i.from()));
    change(t, i.from(), axis, i.to()[axis]);
    require(!unsharded_.contains(t), "converts " + name_of(t) + ", which is unsharded for the next operator");
    hold(t, i.to());
}

HEDDLE_INLINE void mesh_verifier::unshard(mesh_instruction const& i, axis_number axis) {
    tensor_id const t = i.tensor();
    check_form(t, i.from());
    check_form(t, i.to());
    require(held_.contains({t, i.from()}), name_of(t) + " is not held " + to_string(i.from()));
    std::size_t uses = 0;
    for (auto const& op : program_.operators) uses += static_cast<std::size_t>(algorithm::count(op.operands, t));
    require(program_.tensors[t].is_parameter() && uses == 1,
            "unshards " + name_of(t) + ", which is not a parameter used once");
    require(i.from()[axis].is_shard() && i.to()[axis].is_whole(),
            "unshards what is not a shard, or not to whole copies");
    change(t, i.from(), axis, i.to()[axis]);
    auto& before = unsharded_[t];
    require(before.empty() || what_.steps[before.back()].to() == i.from(),
            "unshards " + name_of(t) + " from another form than it was unsharded to");
    before.push_back(number_);
    hold(t, i.to());
}

HEDDLE_INLINE void mesh_verifier::reshard(mesh_instruction const& i) {
    auto const made = resharding_.find(i.tensor());
    require(made != resharding_.end(), "reshards what was not unsharded for the operator before, or is to stay");
    auto const& unshard = what_.steps[made->second.back()];
    require(i.from() == unshard.to() && i.to() == unshard.from(), "reshards other forms than were unsharded last");
    made->second.pop_back();
    if (made->second.empty()) resharding_.erase(made);
    held_.erase({i.tensor(), i.from()});
}

HEDDLE_INLINE void mesh_verifier::compute(mesh_instruction const& i) {
    operator_id const o = i.axes[0].as<instruction::compute>()->op;
    require(o < program_.operators.size(), "names an operator that is not there");
    auto const& op = program_.operators[o];
    require(computed_.insert(o).second, "computes '" + op.name + "' a second time");
    for (auto const& of_axis : i.axes) {
        auto const& compute = *of_axis.as<instruction::compute>();
        require(compute.op == o, "axes compute unlike operators");
        require(compute.operands.size() == op.operands.size() && compute.results.size() == op.results.size(),
                "does not fit '" + op.name + "'");
    }
    for (std::size_t k = 0; k < op.operands.size(); ++k) {
        check_form(op.operands[k], i.operand(k));
        require(held_.contains({op.operands[k], i.operand(k)}),
                name_of(op.operands[k]) + " is not held " + to_string(i.operand(k)));
    }
    for (std::size_t k = 0; k < op.results.size(); ++k) check_form(op.results[k], i.result(k));
    for (auto const& of_axis : i.axes) check_computation_(*of_axis.as<instruction::compute>());
    check_exchange(i, op);
    for (std::size_t k = 0; k < op.results.size(); ++k) hold(op.results[k], i.result(k));
    for (auto& [t, steps] : unsharded_) {
        auto const k = static_cast<std::size_t>(algorithm::find(op.operands, t) - op.operands.begin());
        require(k < op.operands.size() && i.operand(k) == what_.steps[steps.back()].to(),
                name_of(t) + " is unsharded, but not for '" + op.name + "'");
        for (auto const& of_axis : i.axes) {
            auto const& compute = *of_axis.as<instruction::compute>();
            require(!gathers_factors(compute) || compute.operands[k] != tensor_form::mirrored(),
                    name_of(t) + " is unsharded, but its gradient waits for the factors of '" + op.name + "'");
        }
        bool is_last = true; // what stays cannot be resharded further
        for (auto n = steps.rbegin(); n != steps.rend(); ++n) {
            auto const& unshard = what_.steps[*n];
            bool const is_resharded = unshard.axes[*unshard.acting()].as<instruction::unshard>()->is_resharded;
            require(is_last || !is_resharded, name_of(t) + " is resharded in part though all of it stays");
            is_last = is_last && is_resharded;
            if (is_resharded) resharding_[t].insert(resharding_[t].begin(), *n);
        }
    }
    unsharded_.clear();
}

HEDDLE_INLINE void mesh_verifier::check_exchange(mesh_instruction const& i, indexed_operator const& op) const {
    auto const loop_of = [&](axis_number a) -> split_loop const* {
        auto const number = i.axes[a].as<instruction::compute>()->loop;
        return number < 0 ? nullptr : &op.loops[static_cast<std::size_t>(number)];
    };
    for (axis_number a = 0; a < axes_; ++a) {
        auto const* const exchange = loop_of(a);
        if (!exchange || !exchange->exchanges()) continue;
        auto const k = exchange->destination();
        for (axis_number b = 0; b < axes_; ++b) {
            auto const* const other = b == a ? nullptr : loop_of(b);
            require(!other || other->operands[k] != exchange->operands[k],
                    "'" + op.name + "' sends rows along axis " + std::to_string(a) + ", and axis " + std::to_string(b) +
                        " cuts the places that they are sent to");
        }
    }
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE mesh_program program_on_mesh(plan const& p) {
    mesh_program result{p.mesh(), {}, p.cuts, p.segments};
    for (auto const& s : p.steps) result.steps.push_back(s.on_mesh());
    return result;
}

HEDDLE_INLINE plan plan_on_mesh(indexed_program const& program, mesh_program const& what,
                                training_options const& training) {
    auto p = blank_plan(program);
    p.provenance.training = training;
    auto const& sizes = what.mesh.sizes();
    auto ratios = even_ratios(program, what.mesh);
    p.devices.assign(sizes.front(), {{}, {}, static_cast<int>(what.mesh.device_count() / sizes.front())});
    p.inner_sizes.assign(sizes.begin() + 1, sizes.end());
    p.ratios = std::move(ratios.front());
    p.inner_ratios.assign(ratios.begin() + 1, ratios.end());
    p.cuts = what.cuts;
    saved_so_far saved(program);
    for (auto const& i : what.steps)
        p.steps.push_back({i.axes.front(),
                           make_step(program, i, what.mesh, training),
                           saved.by(i),
                           {i.axes.begin() + 1, i.axes.end()}});
    for (auto& s : p.steps) s.step.counted = 1;
    return p;
}

HEDDLE_INLINE verification verify(indexed_program const& program, mesh_program const& p) {
    detail::mesh_verifier verifier(program, p);
    try {
        verifier.check();
        return {};
    } catch (detail::violation const& v) { return {false, verifier.place() + v.text}; }
}

} // namespace heddle

#endif
