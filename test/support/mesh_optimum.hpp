// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Small random programs and clusters, and the least cost of a program on a mesh by a dynamic programme over all
/// product forms.
#pragma once

#include <heddle/cost/mesh_step.hpp>
#include <heddle/plan/mesh_program.hpp>
#include <heddle/synthesis/mesh_search_options.hpp>
#include <heddle/theory/axis_program.hpp>
#include <heddle/theory/theory.hpp>
#include <support/random_programs.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::test {

/// A tree of linear layers, activations and sums; every value is used once.
inline program random_tree(random_source& random, int most_depth = 3) {
    program_builder b;
    int parameters = 0;
    auto const rows = static_cast<extent>(2 * random.between(1, 3));
    auto const width = [&] { return static_cast<extent>(random.between(1, 4)); };
    auto const grow = [&](auto& self, extent columns, int depth) -> tensor_id {
        switch (depth == 0 ? 0 : random.between(1, 4)) {
        case 0: return b.input("x", {rows, columns});
        case 1: return b.apply("relu", "(b n) -> (b n)", {self(self, columns, depth - 1)});
        case 2: return b.apply("tanh", "(b n) -> (b n)", {self(self, columns, depth - 1)});
        case 3: {
            auto const left = self(self, columns, depth - 1), right = self(self, columns, depth - 1);
            return b.apply("add", "(b n), (b n) -> (b n); 0 + 1", {left, right});
        }
        default: break;
        }
        extent const inner = width();
        auto const x = self(self, inner, depth - 1);
        auto const w = b.parameter("w" + std::to_string(parameters++), {columns, inner});
        operator_options options;
        options.category = operator_class::matmul;
        return b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, options);
    };
    extent const columns = width();
    auto const last = grow(grow, columns, random.between(1, most_depth));
    auto const w = b.parameter("head", {width(), columns});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {last, w});
    return b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
}

inline cluster random_cluster(random_source& random, int machines, int devices) {
    cluster c;
    c.types = {
        {"gpu", bytes(1e9), bytes_per_second(random.log_between(30, 3e4)), seconds(random.log_between(1e-3, 0.3)), {}}};
    c.types[0].rates[element_type::float32].fallback = flops_per_second(random.log_between(10, 1e4));
    c.machines = {{0, devices, machines, true, random.between(1, 2)}};
    c.intra = network_link{bytes_per_second(random.log_between(30, 1e4)), seconds(random.log_between(1e-3, 1))};
    c.inter = network_link{bytes_per_second(random.log_between(10, 1e3)), seconds(random.log_between(1e-3, 1))};
    if (devices % 2 == 0) measure_lines(random, c);
    validate(c);
    return c;
}

/// Returns forms of a tensor on one axis or, unless they are forbidden, on all, at random.
inline pins_of_axes random_pins(random_source& random, indexed_program const& p, tensor_id t, std::size_t axes,
                                bool is_forbidden) {
    auto const form_of_axis = [&] {
        auto const count = static_cast<int>(p.tensors[t].factors.size());
        for (;;)
            if (auto const f = tensor_form::from_code(static_cast<std::uint16_t>(random.between(0, 2 + count)));
                is_possible(f, p.tensors[t]))
                return f;
    };
    pins_of_axes pinned;
    auto const only = static_cast<axis_number>(random.between(0, static_cast<int>(axes)));
    for (axis_number a = 0; a < axes; ++a)
        if (only == a || (only == axes && !is_forbidden)) pinned[a] = {{t, form_of_axis(), {}, is_forbidden}};
    return pinned;
}

/// Returns what tells whether an instruction keeps the pins of every axis.
inline std::function<bool(mesh_instruction const&)> keeps_of(indexed_program const& p, pins_of_axes pinned) {
    for (auto& of_axis : pinned) find_cuts(p, of_axis);
    return [&p, pinned = std::move(pinned)](mesh_instruction const& i) {
        for (axis_number a = 0; a < i.axes.size(); ++a)
            if (!keeps_pins(p, pinned[a], i.axes[a])) return false;
        return true;
    };
}

/// The least cost of programs in which every value has one form where it is made and one where it is used: of all, with
/// any lists of conversions, or of those in which each axis converts as it does in the search of one axis.
class optimum {
public:
    /// With `keeps`, of programs whose reads and computations it holds for.
    optimum(indexed_program const& p, cluster const& c, mesh const& m, training_options const& training, bool all,
            std::function<bool(mesh_instruction const&)> keeps = {})
        : p_(p), mesh_(m), training_(training), all_(all), keeps_(std::move(keeps)),
          model_(c, {{0, static_cast<int>(m.size(0)), static_cast<int>(m.devices_inside(0))}}),
          shares_(integral_shares(p, std::vector<double>(m.size(0), 1.0 / static_cast<double>(m.size(0)))),
                  std::vector<std::size_t>(m.size(0), 0)) {}

    [[nodiscard]] double price(mesh_instruction const& i) const {
        return relaxation_weights{{1.0}}.price(model_.price(make_step(p_, i, mesh_, training_), shares_), 0);
    }

    double find() {
        std::map<std::map<tensor_id, product_form>, double> states{{{}, 0.0}};
        for (operator_id o = 0; o < p_.operators.size(); ++o) {
            auto const& op = p_.operators[o];
            decltype(states) next;
            auto const all = computations(p_, o);
            for_each_tuple(std::vector<instruction>(all.begin(), all.end()),
                           [&](std::vector<instruction> const& of_axes) {
                               mesh_instruction const i(of_axes);
                               if (!goes_together(p_, i) || !is_kept(i)) return;
                               double const own = price(i);
                               for (auto const& [held, before] : states) {
                                   auto after = held;
                                   double cost = before + own;
                                   for (std::size_t k = 0; k < op.operands.size(); ++k) {
                                       cost += bring(op.operands[k], held, i.operand(k));
                                       after.erase(op.operands[k]);
                                   }
                                   after.emplace(op.results[0], i.result(0));
                                   if (cost == infinite) continue;
                                   auto const [slot, is_new] = next.try_emplace(std::move(after), cost);
                                   if (!is_new) slot->second = std::min(slot->second, cost);
                               }
                           });
            states = std::move(next);
        }
        double best = infinite;
        for (auto const& [held, cost] : states)
            for (auto const& f : forms(p_.loss))
                if (is_end(f)) best = std::min(best, cost + between(p_.loss, held.at(p_.loss), f));
        return best;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();

    /// Calls `visit(tuple)` for every way of taking one of a list for each axis.
    template <class Element, class Visit>
    void for_each_tuple(std::vector<Element> const& choices, Visit const& visit) const {
        for_each_tuple_of(std::vector(mesh_.axis_count(), choices), visit);
    }
    /// As above, of a list for each axis.
    template <class Element, class Visit>
    void for_each_tuple_of(std::vector<std::vector<Element>> const& lists, Visit const& visit) const {
        std::vector<Element> tuple;
        auto const add = [&](auto& self) -> void {
            if (tuple.size() == lists.size()) return visit(std::as_const(tuple));
            for (auto const& element : lists[tuple.size()]) {
                tuple.push_back(element);
                self(self);
                tuple.pop_back();
            }
        };
        add(add);
    }
    [[nodiscard]] static product_form product(std::vector<tensor_form> const& of_axes) {
        product_form f;
        for (auto x : of_axes) f.push_back(x);
        return f;
    }
    [[nodiscard]] std::vector<product_form> const& forms(tensor_id t) {
        auto [slot, is_new] = forms_.try_emplace(t);
        if (!is_new) return slot->second;
        std::vector<tensor_form> of_axis;
        for (std::uint16_t code = 0; code < 3 + p_.tensors[t].factors.size(); ++code)
            of_axis.push_back(tensor_form::from_code(code));
        for_each_tuple(of_axis, [&](std::vector<tensor_form> const& of_axes) {
            if (auto const f = product(of_axes); is_possible(f, p_.tensors[t])) slot->second.push_back(f);
        });
        return slot->second;
    }
    /// The least cost of any list of conversions.
    double between(tensor_id t, product_form const& from, product_form const& to) {
        auto [slot, is_new] = ways_.try_emplace(t);
        auto& way = slot->second;
        auto const& all = forms(t);
        if (is_new) {
            way.assign(all.size(), std::vector<double>(all.size(), infinite));
            for (std::size_t f = 0; f < all.size(); ++f)
                for (std::size_t g = 0; g < all.size(); ++g) {
                    if (f == g) way[f][g] = 0;
                    for (axis_number a = 0; a < mesh_.axis_count(); ++a)
                        if (all[f].with(a, all[g][a]) == all[g] && find_conversion(all[f], a, all[g][a], p_.tensors[t]))
                            way[f][g] = price(mesh_instruction::convert(t, all[f], a, all[g][a]));
                }
            for (std::size_t via = 0; via < all.size(); ++via)
                for (std::size_t f = 0; f < all.size(); ++f)
                    for (std::size_t g = 0; g < all.size(); ++g)
                        way[f][g] = std::min(way[f][g], way[f][via] + way[via][g]);
        }
        auto const number = [&](product_form const& f) {
            return static_cast<std::size_t>(std::ranges::find(all, f) - all.begin());
        };
        return way[number(from)][number(to)];
    }
    using list = std::vector<tensor_form>;
    /// How one axis brings a form from another: straight or, where nothing leads there straight, by a whole copy.
    [[nodiscard]] std::vector<list> routes(tensor_id t, tensor_form from, tensor_form to) const {
        if (from == to) return {{}};
        if (find_conversion(from, to)) return {{to}};
        std::vector<list> result;
        for (tensor_form hub : {tensor_form::replicated(), tensor_form::mirrored()})
            if (is_possible(hub, p_.tensors[t]) && find_conversion(from, hub) && find_conversion(hub, to))
                result.push_back({hub, to});
        return result;
    }
    /// What converting on one axis costs, or `infinite` if it cannot be done.
    double one_conversion(tensor_id t, product_form const& from, axis_number a, tensor_form to) {
        auto const [slot, is_new] = one_.try_emplace({t, from, from.with(a, to)}, infinite);
        if (is_new && find_conversion(from, a, to, p_.tensors[t]))
            slot->second = price(mesh_instruction::convert(t, from, a, to));
        return slot->second;
    }
    /// The least cost of making these conversions, of which each axis has a list, in some order; `done` of them are.
    double interleaved(tensor_id t, product_form const& from, std::vector<list> const& all,
                       std::array<std::size_t, most_axes> done = {}) {
        double best = infinite;
        bool is_done = true;
        for (axis_number a = 0; a < all.size(); ++a) {
            if (done[a] == all[a].size()) continue;
            is_done = false;
            tensor_form const to = all[a][done[a]];
            double const cost = one_conversion(t, from, a, to);
            if (cost == infinite) continue;
            auto then = done;
            ++then[a];
            best = std::min(best, cost + interleaved(t, from.with(a, to), all, then));
        }
        return is_done ? 0 : best;
    }
    double as_axes_do(tensor_id t, product_form const& from, product_form const& to) {
        auto const [slot, is_new] = converted_.try_emplace({t, from, to}, infinite);
        double& best = slot->second;
        if (!is_new) return best;
        std::vector<std::vector<list>> ways;
        for (axis_number a = 0; a < mesh_.axis_count(); ++a) ways.push_back(routes(t, from[a], to[a]));
        for_each_tuple_of(ways,
                          [&](std::vector<list> const& lists) { best = std::min(best, interleaved(t, from, lists)); });
        return best;
    }
    /// A parameter is read in the form needed or, where that is whole, along its finest factor, and gathered when it is
    /// read or after it.
    double read_as_axes_do(tensor_id t, product_form const& f) {
        auto const& tensor = p_.tensors[t];
        struct way {
            tensor_form from, to;
            list then{};
        };
        auto const ways = [&](tensor_form needed) {
            std::vector<way> result{{needed, needed}};
            if (!needed.is_whole() || tensor.factors.empty()) return result;
            auto const finest = std::ranges::max_element(tensor.factors, {}, &factor::extent);
            auto const stored = tensor_form::shard(static_cast<factor_number>(finest - tensor.factors.begin()));
            result.push_back({stored, needed});
            result.push_back({stored, stored, {needed}});
            return result;
        };
        double best = infinite;
        std::vector<std::vector<way>> of_axes;
        for (tensor_form needed : f) of_axes.push_back(ways(needed));
        for_each_tuple_of(of_axes, [&](std::vector<way> const& chosen) {
            product_form from, to;
            std::vector<list> then;
            for (auto const& w : chosen) from.push_back(w.from), to.push_back(w.to), then.push_back(w.then);
            auto const read = mesh_instruction::read(t, from, to);
            if (is_read_together(tensor, read) && is_kept(read))
                best = std::min(best, price(read) + interleaved(t, to, then));
        });
        return best;
    }
    /// The forms in which a source can be read, and the least cost of it.
    std::map<product_form, double> const& read_in_forms(tensor_id t) {
        auto const [slot, is_new] = read_in_.try_emplace(t);
        auto& costs = slot->second;
        if (!is_new) return costs;
        auto const& tensor = p_.tensors[t];
        auto const readable = readable_forms(tensor);
        auto const may_read = [&](tensor_form from, tensor_form to) {
            bool const is_read = std::ranges::find(readable, to) != readable.end();
            return is_read && (from == to || (tensor.has_cotangent && from.is_shard() && to.is_whole()));
        };
        for (auto const& from : forms(t))
            for (auto const& to : forms(t)) {
                bool is_read = true;
                auto halfway = from;
                for (axis_number a = mesh_.axis_count(); a-- > 0 && is_read; halfway = halfway.with(a, to[a]))
                    is_read =
                        may_read(from[a], to[a]) && (from[a] == to[a] || find_conversion(halfway, a, to[a], tensor));
                if (!is_read) continue;
                auto const read = mesh_instruction::read(t, from, to);
                if (!is_kept(read)) continue;
                auto const [known, is_first] = costs.try_emplace(to, infinite);
                known->second = std::min(known->second, price(read));
            }
        return costs;
    }
    double bring(tensor_id t, std::map<tensor_id, product_form> const& held, product_form const& f) {
        auto const& tensor = p_.tensors[t];
        if (!tensor.is_source()) return all_ ? between(t, held.at(t), f) : as_axes_do(t, held.at(t), f);
        auto const [slot, is_new] = read_.try_emplace({t, f}, infinite);
        double& best = slot->second;
        if (!is_new) return best;
        if (!all_ && tensor.is_parameter()) return best = read_as_axes_do(t, f);
        for (auto const& [to, cost] : read_in_forms(t)) best = std::min(best, cost + between(t, to, f));
        return best;
    }

    [[nodiscard]] bool is_kept(mesh_instruction const& i) const { return !keeps_ || keeps_(i); }

    indexed_program const& p_;
    mesh const& mesh_;
    training_options const& training_;
    bool all_;
    std::function<bool(mesh_instruction const&)> keeps_;
    cost_model model_;
    largest_shares shares_;
    std::map<tensor_id, std::vector<product_form>> forms_;
    /// By tensor, the costs between its forms, by their places.
    std::map<tensor_id, std::vector<std::vector<double>>> ways_;
    std::map<std::pair<tensor_id, product_form>, double> read_;
    std::map<tensor_id, std::map<product_form, double>> read_in_;
    std::map<std::tuple<tensor_id, product_form, product_form>, double> one_, converted_;
};

} // namespace heddle::test
