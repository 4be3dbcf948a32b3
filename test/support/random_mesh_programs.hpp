// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Random walks through what axes of a mesh may do together: programs that no planner would choose.
#pragma once

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/theory/theory.hpp>
#include <support/random_plans.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace heddle::test {

/// Returns every form of a tensor on a mesh that exists.
[[nodiscard]] inline std::vector<product_form> possible_forms(indexed_tensor const& tensor, std::size_t axes) {
    std::vector<product_form> all{product_form()};
    for (std::size_t a = 0; a < axes; ++a) {
        std::vector<product_form> longer;
        for (auto const& f : all)
            for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code) {
                auto next = f;
                next.push_back(tensor_form::from_code(code));
                if (is_possible(next, tensor)) longer.push_back(next);
            }
        all = std::move(longer);
    }
    return all;
}

/// A conversion on one axis.
struct axis_conversion {
    product_form from;
    axis_number axis = 0;
    tensor_form to;
};

/// Returns a shortest list of conversions, chosen at random among those, from one of the forms that are held to
/// another; it makes no form that is held or barred. It is empty if there is no such list.
[[nodiscard]] inline std::vector<axis_conversion> shortest_way(indexed_tensor const& tensor,
                                                               std::set<product_form> const& held,
                                                               product_form const& f, random_source& random,
                                                               std::set<product_form> const& barred = {}) {
    std::map<product_form, axis_conversion> last;
    std::vector<product_form> front(held.begin(), held.end());
    while (!held.contains(f) && !last.contains(f)) {
        std::map<product_form, std::vector<axis_conversion>> next;
        for (auto const& g : front)
            for (axis_number a = 0; a < g.size(); ++a)
                for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code) {
                    auto const to = tensor_form::from_code(code);
                    auto const h = g.with(a, to);
                    if (!held.contains(h) && !barred.contains(h) && !last.contains(h) &&
                        find_conversion(g, a, to, tensor))
                        next[h].push_back({g, a, to});
                }
        if (next.empty()) return {};
        front.clear();
        for (auto const& [h, ways] : next) {
            last.emplace(h, random.of(ways));
            front.push_back(h);
        }
    }
    std::vector<axis_conversion> way;
    for (auto at = f; !held.contains(at); at = last.at(at).from) way.push_back(last.at(at));
    std::ranges::reverse(way);
    return way;
}

/// Walks operator by operator: on each axis a random way to compute it, and random conversions that bring its operands.
class mesh_walk {
public:
    mesh_walk(indexed_program const& program, mesh const& m, random_source& random)
        : program_(program), axes_(m.axis_count()), random_(random), held_(program.tensors.size()) {}

    std::vector<mesh_instruction> steps() {
        for (operator_id o = 0; o < program_.operators.size(); ++o) {
            auto const& op = program_.operators[o];
            auto const i = computation(o);
            for (std::size_t k = 0; k < op.operands.size(); ++k)
                if (!unshard(op.operands[k], i.operand(k), i)) bring(op.operands[k], i.operand(k));
            steps_.push_back(i);
            for (auto r = reshards_.rbegin(); r != reshards_.rend(); ++r) steps_.push_back(std::move(*r));
            reshards_.clear();
            for (std::size_t k = 0; k < op.results.size(); ++k) held_[op.results[k]].insert(i.result(k));
        }
        product_form end;
        for (std::size_t a = 0; a < axes_; ++a)
            end.push_back(random_.chance(0.5) ? tensor_form::partial() : tensor_form::mirrored());
        bool const ends = std::ranges::any_of(held_[program_.loss], is_end);
        std::size_t const first = steps_.size();
        if (!ends) bring(program_.loss, end);
        for (std::size_t n = first; n < steps_.size(); ++n) // what is made of an end would have no cotangent
            if (is_end(steps_[n].to())) steps_.resize(n + 1);
        return std::move(steps_);
    }

private:
    /// Chooses first, on each axis, whether to compute split, replicated, mirrored or on partial sums, then how; again
    /// if the forms do not go together.
    mesh_instruction computation(operator_id o) {
        std::map<int, std::vector<instruction::compute>> ways;
        auto const& op = program_.operators[o];
        for (auto& i : computations(program_, o)) {
            bool const partial = std::ranges::find(i.operands, tensor_form::partial()) != i.operands.end();
            bool const mirrored = std::ranges::find(i.results, tensor_form::mirrored()) != i.results.end();
            bool const exchanges = i.loop >= 0 && op.loops[static_cast<std::size_t>(i.loop)].exchanges();
            ways[exchanges     ? 6
                 : i.loop >= 0 ? (gathers_factors(i) ? 5
                                  : partial          ? 1
                                                     : 0)
                 : partial     ? 2
                 : mirrored    ? 3
                               : 4]
                .push_back(std::move(i));
        }
        for (int tries = 0; tries < 20; ++tries) {
            mesh_instruction result;
            for (std::size_t a = 0; a < axes_; ++a) {
                if (a > 0 && random_.chance(0.3)) { // one loop on several axes
                    result.axes.push_back(result.axes.back());
                    continue;
                }
                auto const likely = std::vector<int>{1, 5, 6, 0}[random_.below(4)];
                auto const& some =
                    ways.contains(likely) && random_.chance(0.7)
                        ? ways[likely]
                        : std::next(ways.begin(), static_cast<std::ptrdiff_t>(random_.below(ways.size())))->second;
                result.axes.push_back(random_.of(some));
            }
            if (goes_together(op, result)) return result;
        }
        return mesh_instruction(std::vector<instruction>(axes_, computations_whole(o)));
    }
    [[nodiscard]] instruction computations_whole(operator_id o) const {
        for (auto& i : computations(program_, o))
            if (i.loop < 0 && std::ranges::find(i.operands, tensor_form::partial()) == i.operands.end()) return i;
        return {};
    }
    [[nodiscard]] bool goes_together(indexed_operator const& op, mesh_instruction const& i) const {
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (!is_possible(i.operand(k), program_.tensors[op.operands[k]])) return false;
        for (std::size_t k = 0; k < op.results.size(); ++k)
            if (!is_possible(i.result(k), program_.tensors[op.results[k]])) return false;
        for (std::size_t a = 0; a < axes_; ++a) {
            auto const* const exchange = loop_of(op, i, a);
            if (!exchange || !exchange->exchanges()) continue;
            auto const k = exchange->destination();
            for (std::size_t b = 0; b < axes_; ++b)
                if (auto const* const other = loop_of(op, i, b);
                    b != a && other && other->operands[k] == exchange->operands[k])
                    return false;
        }
        return true;
    }
    [[nodiscard]] static split_loop const* loop_of(indexed_operator const& op, mesh_instruction const& i,
                                                   std::size_t a) {
        auto const number = i.axes[a].as<instruction::compute>()->loop;
        return number < 0 ? nullptr : &op.loops[static_cast<std::size_t>(number)];
    }

    void read(tensor_id t, product_form const& from, product_form const& to) {
        steps_.push_back(mesh_instruction::read(t, from, to));
        held_[t].insert(to);
    }
    void convert(tensor_id t, product_form const& from, axis_number axis, tensor_form to) {
        steps_.push_back(mesh_instruction::convert(t, from, axis, to));
        held_[t].insert(from.with(axis, to));
    }
    /// Tells whether a source may be read in a form at once.
    [[nodiscard]] bool is_readable(tensor_id t, product_form const& f) const {
        auto const readable = readable_forms(program_.tensors[t]);
        return is_possible(f, program_.tensors[t]) &&
               std::ranges::all_of(f, [&](tensor_form x) { return std::ranges::find(readable, x) != readable.end(); });
    }
    /// Returns a form with which a parameter's optimiser state may be stored if it is read in another.
    product_form state_form(tensor_id t, product_form const& to) {
        auto const& tensor = program_.tensors[t];
        if (!tensor.is_parameter() || !tensor.has_cotangent || tensor.factors.empty()) return to;
        product_form from = to;
        for (axis_number a = axes_; a-- > 0;) {
            if (!to[a].is_whole() || random_.chance(0.5)) continue;
            auto const shard = tensor_form::shard(static_cast<factor_number>(random_.below(tensor.factors.size())));
            product_form inside = to; // as it is when this axis brings whole copies
            inside = inside.with(a, shard);
            for (axis_number b = 0; b < a; ++b) inside = inside.with(b, tensor_form::replicated());
            if (find_conversion(inside, a, to[a], tensor) && is_possible(from.with(a, shard), tensor))
                from = from.with(a, shard);
        }
        return from;
    }

    /// Stores a parameter in shards on some axes for its one operator, now and then.
    bool unshard(tensor_id t, product_form const& f, mesh_instruction const& computation) {
        auto const& tensor = program_.tensors[t];
        if (!tensor.is_parameter() || tensor.factors.empty() || !is_used_once(program_, t) || !held_[t].empty() ||
            random_.chance(0.5))
            return false;
        for (auto const& of_axis : computation.axes) {
            auto const& i = *of_axis.as<instruction::compute>();
            for (std::size_t k = 0; k < i.operands.size(); ++k)
                if (program_.operators[i.op].operands[k] == t && gathers_factors(i) &&
                    i.operands[k] == tensor_form::mirrored())
                    return false;
        }
        product_form stored = f;
        std::vector<axis_number> axes; // from outside in
        for (axis_number a = 0; a < axes_; ++a) {
            auto const shard = tensor_form::shard(static_cast<factor_number>(random_.below(tensor.factors.size())));
            if (!f[a].is_whole() || random_.chance(0.3) || !is_possible(stored.with(a, shard), tensor)) continue;
            if (!may_change_cut(f, a, shard.factor(), tensor)) continue;
            stored = stored.with(a, shard);
            axes.push_back(a);
        }
        if (axes.empty() || !is_readable(t, stored)) return false;
        read(t, stored, stored);
        bool is_resharded = false;
        for (auto a : std::vector<axis_number>(axes.rbegin(), axes.rend())) {
            auto const from = stored;
            stored = stored.with(a, f[a]);
            is_resharded = is_resharded || random_.chance(0.4); // what stays is what was made first
            steps_.push_back(mesh_instruction::on_axis(a, instruction::unshard(t, from[a], f[a], is_resharded), from));
            if (is_resharded)
                reshards_.push_back(mesh_instruction::on_axis(a, instruction::reshard(t, f[a], from[a]), stored));
            else held_[t].insert(stored);
        }
        return true;
    }

    /// Reads the source again or converts what is held of it, now and then by a detour.
    void bring(tensor_id t, product_form const& f) {
        if (held_[t].contains(f)) return;
        auto const& tensor = program_.tensors[t];
        auto const forms = possible_forms(tensor, axes_);
        if (tensor.is_source() && (held_[t].empty() || (!tensor.is_parameter() && random_.chance(0.4)))) {
            std::vector<product_form> readable;
            for (auto const& g : forms)
                if (is_readable(t, g) && !held_[t].contains(g)) readable.push_back(g);
            bool const direct = is_readable(t, f) && random_.chance(0.6);
            if (direct || !readable.empty()) {
                product_form const first = direct ? f : random_.of(readable);
                read(t, state_form(t, first), first);
                if (first == f) return;
            }
        }
        auto const held = held_[t];
        if (auto const via = random_.of(forms); random_.chance(0.3) && via != f) { // of which what follows is made
            auto const there = shortest_way(tensor, held, via, random_);
            std::set<product_form> made(held.begin(), held.end());
            for (auto const& c : there) made.insert(c.from.with(c.axis, c.to));
            made.erase(via);
            auto const on = shortest_way(tensor, {via}, f, random_, made);
            if ((there.empty() && !held.contains(via)) || on.empty())
                return go(t, shortest_way(tensor, held, f, random_));
            go(t, there);
            return go(t, on);
        }
        go(t, shortest_way(tensor, held, f, random_));
    }
    void go(tensor_id t, std::vector<axis_conversion> const& way) {
        for (auto const& [from, axis, to] : way) convert(t, from, axis, to);
    }

    indexed_program const& program_;
    std::size_t axes_;
    random_source& random_;
    std::vector<std::set<product_form>> held_;
    std::vector<mesh_instruction> reshards_, steps_;
};

/// Makes a mesh program of steps. How atoms are divided is drawn for each axis, class and number of atoms, or even on
/// the axes inside the outermost.
[[nodiscard]] inline mesh_program mesh_program_of(indexed_program const& program, mesh const& m,
                                                  std::vector<mesh_instruction> steps, random_source& random) {
    bool const even_inside = random.chance(0.4);
    auto const even = even_ratios(program, m);
    mesh_program p{m, std::move(steps), {}, {}};
    p.cuts = mesh_cuts(program, m, p.steps, [&](atom_class const&, axis_number axis, extent atoms) {
        return apportion(atoms, axis > 0 && even_inside ? even[axis][0] : random_ratios(m.size(axis), random));
    });
    return p;
}

[[nodiscard]] inline mesh random_mesh(random_source& random) {
    static std::vector<std::vector<std::size_t>> const sizes{{2, 2},    {2, 3}, {3, 2}, {3, 4}, {2, 4},
                                                             {2, 2, 2}, {1, 3}, {3, 1}, {4},    {3, 3}};
    return mesh(random.of(sizes));
}

[[nodiscard]] inline mesh_program random_mesh_program(indexed_program const& program, mesh const& m,
                                                      random_source& random) {
    auto steps = mesh_walk(program, m, random).steps();
    return mesh_program_of(program, m, std::move(steps), random);
}

[[nodiscard]] inline std::string describe(mesh_instruction const& i) {
    std::string text;
    for (auto const& of_axis : i.axes)
        text += (text.empty() ? "" : "  |  ") + (is_keep(of_axis) ? "keep" : describe(of_axis));
    return text;
}

[[nodiscard]] inline std::string describe(mesh_program const& what) {
    std::string text = "  mesh: " + to_string(what.mesh) + "\n";
    for (auto const& s : what.steps) text += "  " + describe(s) + "\n";
    for (auto const& cut : what.cuts) {
        text += "  cut of " + std::to_string(cut.atoms) + ":";
        for (auto const& m : cut.members) text += " " + std::to_string(m.tensor) + "." + std::to_string(m.factor);
        text += " |";
        for (extent n : cut.counts) text += " " + std::to_string(n);
        for (auto const& axis : cut.inside) {
            text += " |";
            for (auto const& [atoms, counts] : axis) {
                text += " " + std::to_string(atoms) + " =";
                for (extent n : counts) text += " " + std::to_string(n);
                text += ";";
            }
        }
        text += "\n";
    }
    return text;
}

} // namespace heddle::test
