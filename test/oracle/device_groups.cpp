// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The costs of plans on device groups are those of a simulation from forms alone, and move with the groups as
/// they must.
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <support/device_groups.hpp>
#if __has_include(<heddle/clp/ratio_solver.hpp>)
#include <heddle/clp/ratio_solver.hpp>
#include <support/cases.hpp>
#define HEDDLE_TEST_HAS_SOLVER 1
#endif

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

/// Simulates one iteration, clock by clock, from the forms of a plan's instructions.
class simulation {
public:
    simulation(indexed_program const& program, plan const& p, cluster const& c)
        : program_(program), plan_(p), cluster_(c), shares_(shares_of(p)), clocks_(p.devices.size()) {}

    double seconds() {
        for (auto const& s : plan_.steps) run_forward(s);
        for (auto s = plan_.steps.rbegin(); s != plan_.steps.rend(); ++s) run_backward(*s);
        meet();
        for (auto const& s : plan_.steps) run_deferred(s);
        for (auto const& s : plan_.steps) run_update(s);
        meet();
        for (auto const& s : plan_.steps)
            if (auto const* i = s.instruction.as<instruction::read>(); i && i->from != i->to)
                across(collective::all_gather, i->tensor, i->from, i->to, way(s.step.update_transfers), false, 'b');
        return clocks_[0];
    }

private:
    using devices = std::vector<double>;

    [[nodiscard]] double members(std::size_t d) const { return plan_.devices[d].group_size; }
    [[nodiscard]] bool is_cut(tensor_id t) const { return program_.tensors[t].inside != no_factor; }
    [[nodiscard]] double size(tensor_id t) const { return program_.tensors[t].info.size().value; }
    [[nodiscard]] double share(tensor_id t, tensor_form f, std::size_t d) const {
        return f.is_shard() ? shares_({t, f.factor()})[d] : 1;
    }
    /// Returns the part that the first of a group's devices has of so many samples, each of which one device has.
    [[nodiscard]] double part_of_first(double samples, std::size_t d) const {
        samples = std::round(samples);
        return samples > 0 ? std::ceil(samples / members(d)) / samples : 1;
    }
    /// Returns the part that it has of what the group has in a form.
    [[nodiscard]] double part_inside(tensor_id t, tensor_form f, std::size_t d) const {
        auto const& tensor = program_.tensors[t];
        if (!is_cut(t)) return 1;
        auto const samples = static_cast<double>(tensor.factors[static_cast<std::size_t>(tensor.inside)].extent);
        return part_of_first(f == tensor_form::shard(tensor.inside) ? samples * share(t, f, d) : samples, d);
    }
    [[nodiscard]] double held(tensor_id t, tensor_form f, std::size_t d, bool divided) const {
        return size(t) * share(t, f, d) * (divided ? part_inside(t, f, d) : 1);
    }
    [[nodiscard]] static uneven way(transfer_list const& list) {
        return list.empty() ? uneven::padded : list[0].how.value_or(uneven::padded);
    }
    [[nodiscard]] static bool has_statistics(split_loop const& l) {
        return l.forward_statistics + l.backward_statistics > 0;
    }

    void meet() { std::ranges::fill(clocks_, std::ranges::max(clocks_)); }
    /// Returns the time of a step inside group `d`: reduce, broadcast, gather, scatter, Gather to all, All-reduce.
    [[nodiscard]] double inside(char step, double bytes, std::size_t d) const {
        double const n = members(d), a = cluster_.intra->latency.value, b = bytes / cluster_.intra->bandwidth.value;
        if (n == 1) return 0;
        switch (step) {
        case 'r':
        case 'b': return std::ceil(std::log2(n)) * a + b;
        case 'g':
        case 's':
        case 'G': return (n - 1) * a + b * (n - 1) / n;
        default: return 2 * (n - 1) * a + 2 * b * (n - 1) / n;
        }
    }
    void inside_all(char step, double bytes, tensor_id t, tensor_form f) {
        for (std::size_t d = 0; d < clocks_.size(); ++d) clocks_[d] += inside(step, bytes * share(t, f, d), d);
    }
    void inside_all(char step, tensor_id t, tensor_form f) { inside_all(step, size(t), t, f); }

    /// Runs a collective of a tensor: what is cut inside, or `gathers`, goes to the first devices, across, and back as
    /// `after` says (0: not at all).
    void across(collective kind, tensor_id t, tensor_form from, tensor_form to, uneven how, bool gathers, char after) {
        double whole = size(t), most_from = 0, most_to = 0, first = 0, last = 0, each = 0;
        for (std::size_t d = 0; d < clocks_.size(); ++d) {
            most_from = std::max(most_from, share(t, from, d));
            most_to = std::max(most_to, share(t, to, d));
            if (gathers) first = std::max(first, inside('g', whole * share(t, from, d), d));
            if (after) last = std::max(last, inside(after, whole * share(t, to, d), d));
            each += model_of(cluster_, collective::broadcast)
                        .time(bytes(whole * share(t, kind == collective::all_gather ? from : to, d)))
                        .value;
        }
        double const n = static_cast<double>(clocks_.size());
        double payload = whole;
        if (kind == collective::all_gather) payload = n * whole * most_from;
        if (kind == collective::reduce_scatter) payload = n * whole * most_to;
        if (kind == collective::all_to_all) payload = whole * std::max(most_from, most_to);
        double time = first + last;
        if (n > 1)
            time += how == uneven::grouped && has_grouped_kind(kind)
                        ? each
                        : model_of(cluster_, kind).time(bytes(payload)).value;
        if (time == 0) return;
        meet();
        for (auto& clock : clocks_) clock += time;
    }
    void kernel(operator_class category, element_type type, std::size_t d, double flops, double bytes) {
        auto const& device = cluster_.types[cluster_.devices()[d]];
        clocks_[d] += std::max(flops / device.rates.at(type).at(category).value, bytes / device.bandwidth.value) +
                      device.overhead.value;
    }

    void copy(tensor_id t, std::size_t d, double bytes) {
        kernel(operator_class::elementwise, program_.tensors[t].info.type, d, 0, bytes);
    }

    /// Tells whether a factor's parts are each in one piece, in the tensor or in what it is a view of.
    bool is_first_in_memory(tensor_id t, factor_number f) const {
        for (auto const& op : program_.operators) {
            auto const k = static_cast<std::size_t>(std::ranges::find(op.results, t) - op.results.begin());
            if (k == op.results.size() || !op.work.is_view || op.operands.size() != 1) continue;
            for (auto const& loop : op.loops)
                if (loop.results[k] == f && loop.operands[0] != no_factor)
                    return is_first_in_memory(op.operands[0], loop.operands[0]);
        }
        auto const& tensor = program_.tensors[t];
        auto const& factor = tensor.factors[static_cast<std::size_t>(f)];
        extent before = tensor.info.shape[factor.dimension] / (factor.extent * factor.stride);
        for (std::size_t d = 0; d < factor.dimension; ++d) before *= tensor.info.shape[d];
        return before == 1;
    }
    /// Adds the cotangents of all uses except the first.
    void sum_uses(tensor_id t, std::size_t d, double bytes) {
        if (!program_.tensors[t].has_cotangent) return;
        std::ptrdiff_t uses = 0;
        for (auto const& op : program_.operators) uses += std::ranges::count(op.operands, t);
        for (; uses > 1; --uses) copy(t, d, 3 * bytes);
    }

    /// Reads and writes once more what is cut or joined along an inner factor.
    void pack(tensor_id t, tensor_form from, tensor_form to, tensor_form cut) {
        auto const& tensor = program_.tensors[t];
        for (tensor_form f : {from, to}) {
            if (!f.is_shard() || tensor.is_parameter()) continue;
            if (is_first_in_memory(t, f.factor())) continue;
            for (std::size_t d = 0; d < clocks_.size(); ++d)
                copy(t, d, 2 * held(t, from.is_shard() && to.is_shard() ? cut : tensor_form::replicated(), d, true));
        }
    }

    /// Runs one half of a conversion, from one form to another.
    void convert(tensor_id t, tensor_form from, tensor_form to, conversion_half const& half, uneven how,
                 tensor_form cut, bool forward) {
        if (half.collective) {
            auto const& factors = program_.tensors[t].factors;
            auto const factor_of = [&](tensor_form f) { return factors[static_cast<std::size_t>(f.factor())]; };
            bool const packs = !(from.is_shard() && to.is_shard() && is_same_place(factor_of(from), factor_of(to)));
            if (packs && !forward) pack(t, from, to, cut);
            across(*half.collective, t, from, to, how, is_cut(t), is_cut(t) ? 's' : 'b');
            if (packs && forward) pack(t, from, to, cut);
            return;
        }
        for (std::size_t d = 0; d < clocks_.size(); ++d) {
            double const mine = held(t, tensor_form::replicated(), d, true), part = held(t, cut, d, true);
            using enum conversion_half::work;
            if (half.local == none) continue;
            kernel(operator_class::elementwise, program_.tensors[t].info.type, d, 0,
                   half.local == heddle::conversion_half::work::slice ? 2 * part
                   : half.local == pad                                ? mine + part
                                                                      : 2 * mine);
        }
        if (is_cut(t) && (from.is_shard() != to.is_shard()) && cut.factor() == program_.tensors[t].inside) {
            inside_all('g', t, from);
            inside_all('s', t, to);
        }
    }

    void run_forward(plan_step const& s) {
        s.instruction.visit(
            [&](instruction::read const& i) {
                if (i.to != tensor_form::partial() || !program_.tensors[i.tensor].has_cotangent) return;
                for (std::size_t d = 0; d < clocks_.size(); ++d)
                    kernel(operator_class::elementwise, program_.tensors[i.tensor].info.type, d, 0, 2 * size(i.tensor));
            },
            [&](instruction::reshard const&) {}, [&](instruction::compute const& i) { compute(i, true); },
            [&](form_change const& i) {
                convert(i.tensor, i.from, i.to, find_conversion(i.from, i.to)->forward, way(s.step.forward_transfers),
                        i.from.is_shard() && !i.to.is_shard() ? i.from : i.to, true);
            });
    }
    void run_backward(plan_step const& s) {
        auto const transfers = way(s.step.backward_transfers);
        s.instruction.visit(
            [&](instruction::read const& i) {
                for (std::size_t d = 0; d < clocks_.size(); ++d)
                    sum_uses(i.tensor, d, held(i.tensor, i.to, d, is_cut(i.tensor)));
            },
            [&](instruction::reshard const& i) {
                across(collective::all_gather, i.tensor, i.to, i.from, transfers, false, 'b');
            },
            [&](instruction::compute const& i) { compute(i, false); },
            [&](form_change const& i) {
                auto const half = find_conversion(i.from, i.to)->backward;
                if (!program_.tensors[i.tensor].has_cotangent) return;
                if (program_.tensors[i.tensor].is_parameter() && half.collective) {
                    if (s.instruction.is<instruction::unshard>())
                        across(*half.collective, i.tensor, i.to, i.from, transfers, false, 0);
                    return;
                }
                convert(i.tensor, i.to, i.from, half, transfers, i.from.is_shard() && !i.to.is_shard() ? i.from : i.to,
                        false);
            });
    }
    void run_deferred(plan_step const& s) {
        if (s.instruction.is<instruction::compute>()) return;
        auto const& [t, from, to] = *s.instruction.change();
        if (!program_.tensors[t].is_parameter() || !program_.tensors[t].has_cotangent) return;
        if (s.instruction.is<instruction::read>() && to == tensor_form::replicated())
            across(from == to ? collective::all_reduce : collective::reduce_scatter, t, to, from,
                   way(s.step.deferred_transfers), false, 0);
        if (s.instruction.is<instruction::convert>())
            if (auto const half = find_conversion(from, to)->backward; half.collective)
                across(*half.collective, t, to, from, way(s.step.deferred_transfers), false, 0);
    }
    void run_update(plan_step const& s) {
        auto const* const i = s.instruction.as<instruction::read>();
        if (!i || !program_.tensors[i->tensor].has_cotangent) return;
        double const state = 8.0 / static_cast<double>(element_size(program_.tensors[i->tensor].info.type));
        for (std::size_t d = 0; d < clocks_.size(); ++d)
            clocks_[d] += size(i->tensor) * share(i->tensor, i->from, d) * (3 + 2 * state) /
                          cluster_.types[cluster_.devices()[d]].bandwidth.value;
        inside_all('b', i->tensor, i->from);
    }

    void compute(instruction::compute const& i, bool forward) {
        auto const& op = program_.operators[i.op];
        auto const* const inner = op.inside_loop < 0 ? nullptr : &op.loops[static_cast<std::size_t>(op.inside_loop)];
        auto const* const outer = i.loop < 0 ? nullptr : &op.loops[static_cast<std::size_t>(i.loop)];
        bool const derived = std::ranges::any_of(op.results, [&](auto t) { return program_.tensors[t].has_cotangent; });
        if (!forward && !derived) return;
        std::pair<tensor_id, tensor_form> cut{0, tensor_form::replicated()};
        for (std::size_t k = op.operands.size(); k-- > 0;)
            if (i.operands[k].is_shard()) cut = {op.operands[k], i.operands[k]};
        for (std::size_t k = op.results.size(); k-- > 0;)
            if (i.results[k].is_shard()) cut = {op.results[k], i.results[k]};
        auto const statistics = [&] {
            if (!outer) return;
            for (int n = forward ? outer->forward_statistics : outer->backward_statistics; n > 0; --n) {
                double first = 0, last = 0;
                for (std::size_t d = 0; d < clocks_.size(); ++d) {
                    char const before = !inner                   ? 0
                                        : has_statistics(*inner) ? 'A'
                                                                 : 'g',
                               after = inner && !has_statistics(*inner) ? 's' : 'b';
                    if (before) first = std::max(first, inside(before, outer->statistic.value, d));
                    last = std::max(last, inside(after, outer->statistic.value, d));
                }
                double const time =
                    first + last +
                    (clocks_.size() > 1 ? model_of(cluster_, collective::all_reduce).time(outer->statistic).value : 0);
                if (time == 0) continue;
                meet();
                for (auto& clock : clocks_) clock += time;
            }
        };
        if (forward) statistics();
        auto const contains = [](auto const& list, std::size_t k) { return std::ranges::find(list, k) != list.end(); };
        auto const part = [&](std::size_t d) {
            double const mine = outer ? share(cut.first, cut.second, d) : 1;
            if (!inner) return mine;
            return mine * part_of_first(static_cast<double>(inner->extent) * (inner == outer ? mine : 1), d);
        };
        auto const kept = [&](std::size_t d) { return derived ? op.work.extra_saved.value * part(d) : 0; };
        bool const has_parts = op.work.category == operator_class::attention ||
                               std::ranges::any_of(op.loops, [](auto const& loop) { return loop.exchanges(); });
        for (std::size_t d = 0; d < clocks_.size() && !op.work.is_view; ++d) {
            double moved = has_parts ? 0 : kept(d);
            for (std::size_t k = 0; k < op.results.size(); ++k) {
                double const mine = held(op.results[k], i.results[k], d, inner);
                if (forward || program_.tensors[op.results[k]].has_cotangent) moved += mine;
                if (!forward && contains(op.work.saved_results, k)) moved += mine;
            }
            for (std::size_t k = 0; k < op.operands.size(); ++k) {
                double const mine = held(op.operands[k], i.operands[k], d, inner);
                if (forward) moved += contains(op.work.sparse_operands, k) ? 0 : mine;
                else
                    moved +=
                        mine * (contains(op.work.saved_operands, k) + program_.tensors[op.operands[k]].has_cotangent);
            }
            double const flops = (forward ? op.work.forward : op.work.backward).value * part(d);
            kernel(op.work.category, program_.tensors[op.results[0]].info.type, d, flops, moved);
        }
        for (std::size_t d = 0; d < clocks_.size() && derived; ++d) {
            tensor_id const result = op.results[0];
            for (int n = 0; n < 6 && has_parts && op.work.extra_saved.value > 0; ++n)
                copy(result, d, (forward ? 2 : 3) * kept(d) / 6);
            bool const has_product = std::ranges::any_of(op.terms, [](auto const& term) { return term.size() > 1; });
            bool reduces = false;
            for (auto const& term : op.terms) {
                if (term.empty()) continue;
                tensor_id const t = op.operands[term[0]];
                bool const repeats = !has_parts && !op.work.is_view && term.size() == 1 &&
                                     program_.tensors[t].info.elements() < program_.tensors[result].info.elements();
                if (!repeats || contains(op.work.sparse_operands, term[0])) continue;
                if (forward && has_product) copy(result, d, 2 * held(result, i.results[0], d, inner));
                reduces = reduces || program_.tensors[t].has_cotangent;
            }
            if (forward) continue;
            if (reduces) {
                double read = held(result, i.results[0], d, inner);
                for (auto k : op.work.saved_operands)
                    read += has_product ? 0 : held(op.operands[k], i.operands[k], d, inner);
                copy(result, d, read);
            }
            for (std::size_t k = 0; k < op.results.size(); ++k)
                sum_uses(op.results[k], d, held(op.results[k], i.results[k], d, inner));
        }
        auto const each = [&](auto const& tensors, form_list const& forms, auto&& visit) {
            for (std::size_t k = 0; k < tensors.size(); ++k) visit(tensors[k], forms[k]);
        };
        if (!inner) {
            auto const gather = [&](tensor_id t, tensor_form f) {
                if (is_cut(t)) inside_all('G', t, f);
            };
            each(op.operands, i.operands, gather);
            if (!forward)
                each(op.results, i.results, [&](tensor_id t, tensor_form f) {
                    gather(t, f);
                    if (program_.tensors[t].has_cotangent) gather(t, f);
                });
        } else {
            if (!(outer && has_statistics(*outer)))
                for (int n = forward ? inner->forward_statistics : inner->backward_statistics; n > 0; --n)
                    inside_all('A', inner->statistic.value, cut.first, cut.second);
            if (forward)
                each(op.results, i.results, [&](tensor_id t, tensor_form f) {
                    if (!is_cut(t)) inside_all('A', t, f);
                });
            else
                each(op.operands, i.operands, [&](tensor_id t, tensor_form f) {
                    if (!is_cut(t) && program_.tensors[t].has_cotangent)
                        inside_all(program_.tensors[t].is_parameter() ? 'r' : 'A', t, f);
                });
        }
        if (!forward) statistics();
    }

    indexed_program const& program_;
    plan const& plan_;
    cluster const& cluster_;
    integral_shares shares_;
    devices clocks_;
};

/// Has gradients reduced after the backward pass, as the simulation does, where that can be chosen.
template <class Options>
void reduce_gradients_last(Options& options) {
    if constexpr (requires { options.overlaps_gradients; }) options.overlaps_gradients = false;
}

bool has_factors(plan const& p) {
    return std::ranges::any_of(p.steps, [](auto const& s) {
        auto const* const compute = s.instruction.template as<instruction::compute>();
        return compute && gathers_factors(*compute);
    });
}

/// Whether the plan sends rows to where the data choose, which the simulation does not know of.
bool sends_rows(indexed_program const& program, plan const& p) {
    return std::ranges::any_of(p.steps, [&](auto const& s) {
        auto const* const i = s.instruction.template as<instruction::compute>();
        return i && i->loop >= 0 && program.operators[i->op].loops[static_cast<std::size_t>(i->loop)].exchanges();
    });
}

template <class Check>
void for_each_case(std::uint64_t count, Check&& check) {
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
        std::optional<test::grouped_case> made;
        try {
            made = test::random_grouped_case(seed);
        } catch (input_error const&) {
            continue; // no program of the catalogue
        }
        CAPTURE(seed);
        INFO(test::describe(made->program));
        check(*made);
    }
}

double seconds_of(plan const& p, cluster const& c) { return evaluate(p, c).time.total(); }

} // namespace

TEST_CASE("a plan on device groups costs what a simulation of its devices takes") {
    int compared = 0;
    for_each_case(400, [&](test::grouped_case const& made) {
        if (has_factors(made.plan) || sends_rows(made.indexed, made.plan)) return;
        auto p = made.plan;
        reduce_gradients_last(p.provenance.training);
        p.provenance.training.bucket = bytes(0); // as the simulation does
        auto const c = test::cluster_of(p);
        CHECK(seconds_of(p, c) == doctest::Approx(simulation(made.indexed, p, c).seconds()).epsilon(1e-9));
        CHECK(run_serial(p, c).total == doctest::Approx(seconds_of(p, c)).epsilon(1e-9));
        ++compared;
    });
    CHECK(compared > 200);
}

TEST_CASE("a faster link inside never costs more") {
    for_each_case(200, [](test::grouped_case const& made) {
        double const slow = seconds_of(made.plan, test::cluster_of(made.plan, 1e9)),
                     fast = seconds_of(made.plan, test::cluster_of(made.plan, 2e9));
        CHECK(fast <= slow);
        CHECK(seconds_of(made.plan, test::cluster_of(made.plan, 1e9, 2e-5)) >= slow);
    });
}

TEST_CASE("a group costs no less than a device as fast as all of it, and with a free link inside no more than one of "
          "its devices") {
    for_each_case(200, [](test::grouped_case const& made) {
        auto const c = test::cluster_of(made.plan), free = test::cluster_of(made.plan, 1e300, 0);
        cluster single = c, united = c;
        united.types.clear();
        for (std::size_t d = 0; d < c.machines.size(); ++d) {
            double const n = c.machines[d].group_size();
            auto type = c.types[c.machines[d].type];
            type.bandwidth *= n;
            for (auto& [e, rates] : type.rates) rates.fallback *= n;
            united.types.push_back(type);
            united.machines[d] = {d, 1, 1};
            single.machines[d].devices = 1;
        }
        double const cost = seconds_of(made.plan, c);
        CHECK(cost >= seconds_of(made.plan, united) * (1 - 1e-12));
        CHECK(seconds_of(made.plan, free) <= seconds_of(made.plan, single) * (1 + 1e-12));
    });
}

TEST_CASE("memory of a group's device is between a part and all of a single one's") {
    for_each_case(100, [](test::grouped_case const& made) {
        auto const c = test::cluster_of(made.plan);
        cluster single = c;
        for (auto& m : single.machines) m.devices = 1;
        auto const grouped = evaluate(made.plan, c), alone = evaluate(made.plan, single);
        for (std::size_t d = 0; d < grouped.memory.size(); ++d) {
            auto const &mine = grouped.memory[d], &all = alone.memory[d];
            double const n = c.machines[d].group_size();
            CHECK(mine.parameters == all.parameters);
            CHECK(mine.optimizer == all.optimizer);
            CHECK(mine.activations <= all.activations);
            CHECK(mine.activations >= all.activations / n * (1 - 1e-12));
            CHECK(mine.inputs >= all.inputs / n * (1 - 1e-12));
        }
    });
}

TEST_CASE("a plan for single devices is not priced on groups") {
    auto made = test::random_grouped_case(3);
    auto const c = test::cluster_of(made.plan);
    for (auto& d : made.plan.devices) d.group_size = 1;
    CHECK_THROWS_AS((void)evaluate(made.plan, c), input_error);
}

#ifdef HEDDLE_TEST_HAS_SOLVER
TEST_CASE("a group of one device is planned as the plain device, bit for bit") {
    for_each_case(12, [](test::grouped_case const& made) {
        auto grouped = test::cluster_of(made.plan);
        for (auto& m : grouped.machines) m.devices = 1;
        auto plain = grouped;
        for (auto& m : plain.machines) m.is_group = false;
        auto const a = plan_hap(made.program, grouped, clp::ratio_solver{}),
                   b = plan_hap(made.program, plain, clp::ratio_solver{});
        CHECK(a.cost() == b.cost());
        CHECK(a.lower_bound == b.lower_bound);
        CHECK(a.ratios == b.ratios);
        CHECK(std::ranges::equal(a.steps, b.steps, [](auto const& x, auto const& y) {
            return x.instruction == y.instruction && x.step == y.step && x.saved == y.saved;
        }));
        CHECK_FALSE(a.has_groups());
    });
}

TEST_CASE("plans on groups fit, are verified and bounded") {
    for_each_case(test::cases(25u), [](test::grouped_case const& made) {
        auto const c = test::cluster_of(made.plan);
        auto const p = plan_hap(made.program, c, clp::ratio_solver{});
        REQUIRE(p.exists());
        CHECK(p.has_groups());
        auto const verified = verify(made.program, p);
        CHECK_MESSAGE(verified, verified.problem);
        CHECK(p.lower_bound <= p.cost());
        CHECK(p.lower_bound > 0);
        CHECK(evaluate(p, c).time.total() == doctest::Approx(p.cost()).epsilon(1e-12));
        for (std::size_t d = 0; d < p.devices.size(); ++d) CHECK(p.devices[d].group_size == c.machines[d].devices);
    });
}
#endif
