// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The space of cuts has a program as cheap as any of the full theory under added costs, and `synthesise` finds
/// the best of its paths under serial costs.
#include "support/random_programs.hpp"

#include <heddle/cost/atoms.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/serial_actions.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/theory.hpp>
#include <support/cases.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>

namespace {

using namespace heddle;
using test::random_source;

using test::infinite;

// ---- added costs

/// Has a price for every instruction of a program's theory.
///
/// Reads and conversions of one tensor cost within 15 % of each other, so that a straight conversion is never dearer
/// than two steps, and no set of forms is cheaper to reach by way of a form that nobody uses. Masking the loss is not
/// cheaper than mirroring it, and the finest sharded storage is the cheapest. What saves memory alone costs what it
/// would cost without it.
class random_prices {
public:
    random_prices(random_source& random, indexed_program const& p) {
        for (tensor_id t = 0; t < p.tensors.size(); ++t) {
            double const scale = random.chance(0.1) ? 0 : random.log_between(0.1, 10);
            auto const codes = static_cast<std::uint16_t>(3 + p.tensors[t].factors.size());
            for (std::uint16_t a = 0; a < codes; ++a) {
                read_[{t, a}] = scale * random.between(1.0, 1.15);
                for (std::uint16_t b = 0; b < codes; ++b)
                    if (a != b) convert_[{t, {a, b}}] = scale * random.between(1.0, 1.15);
            }
        }
        auto const code = [](tensor_form f) { return f.code(); };
        for (tensor_id t = 0; t < p.tensors.size(); ++t) {
            if (p.tensors[t].factors.empty()) continue;
            auto const finest = code(tensor_form::shard(finest_factor(p.tensors[t])));
            for (std::uint16_t from = 3; from < 3 + p.tensors[t].factors.size(); ++from) {
                read_.at({t, finest}) = std::min(read_.at({t, finest}), read_.at({t, from}));
                for (auto to : {code(tensor_form::replicated()), code(tensor_form::mirrored())}) {
                    auto& price = convert_.at({t, {finest, to}});
                    price = std::min(price, convert_.at({t, {from, to}}));
                }
            }
        }
        auto const of_loss = [&](tensor_form to) -> double& {
            return convert_.at({p.loss, {code(tensor_form::replicated()), code(to)}});
        };
        of_loss(tensor_form::partial()) = std::max(of_loss(tensor_form::partial()), of_loss(tensor_form::mirrored()));
        for (operator_id o = 0; o < p.operators.size(); ++o) {
            computations_.push_back(computations(p, o));
            auto& prices = compute_.emplace_back();
            double const scale = random.log_between(0.1, 10);
            for (std::size_t n = 0; n < computations_.back().size(); ++n)
                prices.push_back(random.chance(0.1) ? 0 : scale * random.between(0.1, 2.0));
        }
    }
    [[nodiscard]] double of(instruction const& one) const {
        return one.visit([&](instruction::read const& i) { return read_.at({i.tensor, i.to.code()}); },
                         [&](instruction::compute const& i) { return of(i); },
                         [&](instruction::reshard const&) { return 0.0; },
                         [&](form_change const& i) {
                             return i.from == i.to ? 0 : convert_.at({i.tensor, {i.from.code(), i.to.code()}});
                         });
    }
    [[nodiscard]] double of(instruction::compute const& i) const {
        auto const n = std::ranges::find(computations_[i.op], i) - computations_[i.op].begin();
        return compute_[i.op].at(static_cast<std::size_t>(n));
    }

private:
    std::map<std::pair<tensor_id, std::uint16_t>, double> read_;
    std::map<std::pair<tensor_id, std::pair<std::uint16_t, std::uint16_t>>, double> convert_;
    std::vector<std::vector<instruction::compute>> computations_;
    std::vector<std::vector<double>> compute_;
};

/// Returns the least cost to hold each set of forms of one tensor at once, from the form that its operator gives it or
/// from reads, by enumeration of sets. A set's entry is the least cost of any set that includes it. A parameter's read
/// is fused with its first use: it is stored in the form used there or, if that is whole, along its finest factor.
std::vector<double> cheapest_sets(indexed_program const& p, tensor_id t, std::optional<tensor_form> given,
                                  std::optional<tensor_form> first_use, random_prices const& prices) {
    auto const& tensor = p.tensors[t];
    auto const forms = possible_forms(tensor);
    auto readable = readable_forms(tensor);
    if (tensor.is_parameter() && std::ranges::find(readable, *first_use) != readable.end()) {
        readable = {*first_use};
        bool const whole = *first_use == tensor_form::replicated() || *first_use == tensor_form::mirrored();
        if (whole && !tensor.factors.empty()) readable.push_back(tensor_form::shard(finest_factor(tensor)));
    }
    std::vector<double> cost(std::size_t{1} << forms.size(), infinite);
    cost[0] = 0;
    if (given) {
        cost[0] = infinite;
        cost[std::size_t{1} << (std::ranges::find(forms, *given) - forms.begin())] = 0;
    }
    // Sets grow, so ascending masks are an order of evaluation.
    for (std::size_t held = 0; held < cost.size(); ++held) {
        if (cost[held] == infinite) continue;
        for (std::size_t to = 0; to < forms.size(); ++to) {
            if ((held >> to) & 1) continue;
            auto& next = cost[held | (std::size_t{1} << to)];
            if (tensor.is_source() && (held == 0 || !tensor.is_parameter()) &&
                std::ranges::find(readable, forms[to]) != readable.end())
                next = std::min(next, cost[held] + prices.of(instruction::read(t, forms[to])));
            for (std::size_t from = 0; from < forms.size(); ++from)
                if (((held >> from) & 1) && find_conversion(forms[from], forms[to]))
                    next = std::min(next, cost[held] + prices.of(instruction::convert(t, forms[from], forms[to])));
        }
    }
    for (std::size_t bit = 0; bit < forms.size(); ++bit)
        for (std::size_t held = 0; held < cost.size(); ++held)
            if (!((held >> bit) & 1)) cost[held] = std::min(cost[held], cost[held | (std::size_t{1} << bit)]);
    return cost;
}

/// Returns the least added cost of a program that computes each operator once: over all choices of a computation for
/// every operator, with the cheapest way to the forms that they need, tensor by tensor.
double cheapest_program(indexed_program const& p, random_prices const& prices) {
    using optional_form = std::optional<tensor_form>;
    std::map<std::pair<tensor_id, std::pair<optional_form, optional_form>>, std::vector<double>> sets;
    auto const cost_of = [&](tensor_id t, optional_form given, optional_form first_use,
                             std::set<tensor_form> const& needed) {
        auto& table = sets[{t, {given, first_use}}];
        if (table.empty()) table = cheapest_sets(p, t, given, first_use, prices);
        auto const forms = possible_forms(p.tensors[t]);
        std::size_t set = 0;
        for (tensor_form f : needed) set |= std::size_t{1} << (std::ranges::find(forms, f) - forms.begin());
        return table[set];
    };
    std::vector<std::vector<instruction::compute>> ways;
    for (operator_id o = 0; o < p.operators.size(); ++o) ways.push_back(computations(p, o));
    std::vector<instruction::compute const*> chosen;
    double best = infinite;
    std::function<void()> const choose = [&] {
        if (chosen.size() < ways.size()) {
            for (auto const& i : ways[chosen.size()]) {
                chosen.push_back(&i);
                choose();
                chosen.pop_back();
            }
            return;
        }
        double sum = 0;
        std::map<tensor_id, tensor_form> given, first_use;
        std::map<tensor_id, std::set<tensor_form>> needed;
        for (auto const* i : chosen) {
            sum += prices.of(*i);
            auto const& op = p.operators[i->op];
            for (std::size_t k = 0; k < op.operands.size(); ++k) {
                needed[op.operands[k]].insert(i->operands[k]);
                first_use.try_emplace(op.operands[k], i->operands[k]);
            }
            for (std::size_t k = 0; k < op.results.size(); ++k) given[op.results[k]] = i->results[k];
        }
        auto const found = [](std::map<tensor_id, tensor_form> const& forms, tensor_id t) {
            return forms.contains(t) ? optional_form(forms.at(t)) : std::nullopt;
        };
        double const computing = sum;
        for (tensor_form end : {tensor_form::partial(), tensor_form::mirrored()}) {
            sum = computing;
            auto all = needed;
            all[p.loss].insert(end);
            for (auto const& [t, forms] : all) sum += cost_of(t, found(given, t), found(first_use, t), forms);
            best = std::min(best, sum);
        }
    };
    choose();
    return best;
}

double shortest_path(cut_space const& space, cut_graph const& graph, random_prices const& prices) {
    auto const paths = search::paths_to_goal(graph, [&](auto a) {
        double sum = 0;
        for (auto i : space.moves()[a].instructions) sum += prices.of(space.instructions()[i]);
        return sum;
    });
    return paths.to_goal();
}

std::size_t choices(indexed_program const& p) {
    std::size_t product = 1;
    for (operator_id o = 0; o < p.operators.size(); ++o) product *= computations(p, o).size();
    return product;
}

struct instance {
    program made;
    indexed_program indexed;
};

instance random_instance(random_source& random, int least, int most) {
    auto p = test::random_program(random, {.least_operators = least, .most_operators = most});
    auto indexed = index_program(p);
    return {std::move(p), std::move(indexed)};
}

} // namespace

TEST_CASE("under added costs the shortest path over cuts is the cheapest program of all") {
    int checked = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(400u); ++seed) {
        random_source random(seed);
        auto const [made, p] = random_instance(random, 2, 5);
        if (choices(p) > 20000) continue;
        random_prices const prices(random, p);
        cut_space space(p);
        auto const graph = search::explore(space);
        CAPTURE(seed);
        INFO(test::describe(made));
        CHECK(graph.is_complete);
        CHECK(shortest_path(space, graph, prices) == doctest::Approx(cheapest_program(p, prices)).epsilon(1e-9));
        ++checked;
    }
    CHECK(checked > test::cases(250));
}

namespace {

/// Bounds what must still be spent on operators whose results nobody holds and on sources that are not held at all.
class unmet_bound : public search::memoryless_bound {
public:
    unmet_bound(indexed_program const& p, property_table const& table, random_prices const& prices) {
        for (operator_id o = 0; o < p.operators.size(); ++o) {
            auto& item = items_.emplace_back();
            item.cost = infinite;
            for (auto const& i : computations(p, o)) item.cost = std::min(item.cost, prices.of(i));
            for (auto t : p.operators[o].results)
                for (auto f : possible_forms(p.tensors[t])) item.any_of.push_back(table.held(t, f));
        }
        for (tensor_id t = 0; t < p.tensors.size(); ++t) {
            if (!p.tensors[t].is_source() || p.tensors[t].consumers.empty()) continue;
            auto& item = items_.emplace_back();
            item.cost = infinite;
            for (auto f : readable_forms(p.tensors[t]))
                item.cost = std::min(item.cost, prices.of(instruction::read(t, f)));
            for (auto f : possible_forms(p.tensors[t])) item.any_of.push_back(table.held(t, f));
        }
    }
    double operator()(search::additive_cost const&, search::property_set const& s, double spent, memory) const {
        for (auto const& item : items_)
            if (std::ranges::none_of(item.any_of, [&](auto id) { return s.contains(id); })) spent += item.cost;
        return spent;
    }

private:
    struct unmet {
        double cost = 0;
        std::vector<property_id> any_of;
    };
    std::vector<unmet> items_;
};

struct planning_task {
    std::size_t properties = 0;
    std::vector<std::uint32_t> initial, goal;
    std::vector<search::property_action> actions;
    std::vector<double> costs;
};

/// Makes the background theory as it is, or with a budget that lets each operator be computed once.
planning_task task_of(indexed_program const& p, property_table const& table, random_prices const& prices,
                      bool compute_once) {
    auto const all = make_theory(p, table);
    planning_task task{all.property_count, all.initial, all.goal, {}, {}};
    auto const first_budget = static_cast<std::uint32_t>(task.properties);
    if (compute_once) {
        task.properties += p.operators.size();
        for (operator_id o = 0; o < p.operators.size(); ++o) task.initial.push_back(first_budget + o);
    }
    for (auto const& t : all.triples) {
        search::property_action a{t.pre, t.add, t.remove};
        if (auto const* compute = t.action.as<instruction::compute>(); compute && compute_once) {
            a.pre.push_back(first_budget + compute->op);
            a.remove.push_back(first_budget + compute->op);
        }
        task.actions.push_back(std::move(a));
        task.costs.push_back(prices.of(t.action));
    }
    return task;
}

} // namespace

TEST_CASE("under added costs best_first over the theory agrees with the cuts") {
    int checked = 0, limited = 0;
    for (std::uint64_t seed = 1001; seed <= 1000 + test::cases(100u); ++seed) {
        random_source random(seed);
        auto const [made, p] = random_instance(random, 2, 4);
        random_prices const prices(random, p);
        cut_space space(p);
        auto const graph = search::explore(space);
        property_table const table(p);
        auto const task = task_of(p, table, prices, true);
        search::property_task const indexed(task.properties, task.actions, task.initial, task.goal);
        search::property_space<search::additive_cost, unmet_bound> const whole(
            indexed, search::additive_cost(task.costs), unmet_bound(p, table, prices));
        auto const found = search::best_first(whole, {.limits = {.labels = 20000}});
        CAPTURE(seed);
        INFO(test::describe(made));
        double const shortest = shortest_path(space, graph, prices);
        CHECK(found.lower_bound <= shortest * (1 + 1e-9));
        if (found.status == search::status::limit) {
            ++limited;
            continue;
        }
        REQUIRE(found.status == search::status::optimal);
        // The theory may store a parameter with several uses in a form of a later one.
        bool const tied =
            std::ranges::any_of(p.tensors, [](auto const& t) { return t.is_parameter() && t.consumers.size() > 1; });
        if (tied) CHECK(*found.cost <= shortest * (1 + 1e-9));
        else CHECK(*found.cost == doctest::Approx(shortest).epsilon(1e-9));
        ++checked;
    }
    MESSAGE("solved " << checked << ", stopped at the limit " << limited);
    CHECK(checked > test::cases(30));
}

// ---- serial costs

namespace {

/// A program on a cluster, priced at random shares.
struct priced_instance {
    program made;
    indexed_program p;
    cluster on;
    cut_space space;
    cut_graph graph;
    std::vector<step_work> steps;
    cost_model model;
    share_vector ratios;
    priced_graph priced;
    /// The costs of each instruction.
    std::vector<step_cost> costs;

    priced_instance(random_source& random, test::cluster_limits limits, int most_operators)
        : made(
              test::random_program(random, {.least_operators = 2, .most_operators = most_operators, .most_extent = 4})),
          p(index_program(made)), on(test::random_cluster(random, limits)), space(p), graph(search::explore(space)),
          steps(make_steps()), model(on, classes()), ratios(make_ratios(random)),
          priced(space, graph, steps, model, integral_shares(p, ratios)), costs(make_costs()) {}

    [[nodiscard]] std::string text() const { return test::describe(made) + test::describe(on); }

private:
    std::vector<step_work> make_steps() const {
        std::vector<step_work> result;
        for (auto const& i : space.instructions()) result.push_back(make_step(p, i, {}));
        return result;
    }
    std::vector<step_cost> make_costs() const {
        std::vector<step_cost> result;
        integral_shares const shares(p, ratios);
        for (auto const& s : steps) result.push_back(model.price(s, shares));
        return result;
    }
    /// Makes one class per device: shares are then integral and sum to one.
    std::vector<device_class> classes() const {
        std::vector<device_class> result;
        for (auto type : on.devices()) result.push_back({type, 1});
        return result;
    }
    share_vector make_ratios(random_source& random) const {
        share_vector result;
        double sum = 0;
        for (std::size_t d = 0; d < model.class_count(); ++d) sum += result.emplace_back(random.between(0.1, 1.0));
        for (auto& r : result) r /= sum;
        return result;
    }
};

/// Returns the number of paths from the start, at most `most`.
double path_count(cut_graph const& graph) {
    std::vector<double> count(graph.node_count());
    for (std::size_t n = graph.node_count(); n-- > 0;) {
        if (graph.is_last(n)) {
            count[n] = 1;
            continue;
        }
        for (auto const& e : graph.out(n)) count[n] += count[e.to];
    }
    return count[0];
}

/// Returns the most bytes that come and go: for every collective its buffer, beside the whole copies unsharded so far
/// for the operator that it is for; and these copies with their gradients.
double most_that_passes(priced_instance const& x, std::vector<std::uint32_t> const& instructions) {
    double most = 0;
    std::map<operator_id, double> unsharded;
    for (std::size_t n = 0; n < instructions.size(); ++n) {
        auto const& i = x.space.instructions()[instructions[n]];
        std::size_t next = n; // what is converted for an operator stands before it
        for (;
             next + 1 < instructions.size() && !x.space.instructions()[instructions[next]].is<instruction::compute>();)
            ++next;
        auto const* const of = x.space.instructions()[instructions[next]].as<instruction::compute>();
        bool const is_one_operators = i.is<instruction::reshard>() || i.is<instruction::unshard>();
        auto const op = is_one_operators ? x.p.tensors[i.change()->tensor].consumers.at(0)
                        : of             ? of->op
                                         : ~operator_id{};
        double& copies = unsharded[op];
        if (auto const* unshard = i.as<instruction::unshard>())
            copies += x.p.tensors[unshard->tensor].info.size().value;
        most = std::max({most, copies + x.costs[instructions[n]].buffer, 2 * copies});
    }
    return most;
}

/// Returns the seconds and bytes of a list of instructions by the definition: forward, then the adjoints in reverse on
/// one clock per class, then the gradients' collectives, then the update.
path_cost cost_by_definition(priced_instance const& x, std::vector<std::uint32_t> const& instructions) {
    auto const classes = x.model.class_count();
    std::vector<double> clock(classes), memory(classes);
    double gradients = 0;
    auto const synchronise = [&](double transfer) {
        if (transfer > 0) clock.assign(classes, std::ranges::max(clock) + transfer);
    };
    for (auto i : instructions) {
        auto const& cost = x.costs[i];
        synchronise(cost.forward_transfer);
        for (std::size_t k = 0; k < classes; ++k) {
            clock[k] += cost.forward[k];
            memory[k] += cost.memory[k];
        }
        gradients += cost.deferred + cost.refresh;
    }
    for (auto i = instructions.rbegin(); i != instructions.rend(); ++i) {
        auto const& cost = x.costs[*i];
        for (std::size_t k = 0; k < classes; ++k) clock[k] += cost.backward[k];
        synchronise(cost.backward_transfer);
    }
    clock.assign(classes, std::ranges::max(clock) + gradients);
    for (auto i : instructions)
        for (std::size_t k = 0; k < classes; ++k) clock[k] += x.costs[i].update[k];
    // The backward pass keeps each tensor once in each form, but not a parameter in the form in which it is stored
    // (replicated and mirrored copies are the same bytes).
    integral_shares const shares(x.p, x.ratios);
    std::map<tensor_id, tensor_form> stored;
    std::set<std::pair<tensor_id, tensor_form>> kept;
    for (auto number : instructions) {
        auto const& i = x.space.instructions()[number];
        if (auto const* read = i.as<instruction::read>(); read && x.p.tensors[read->tensor].is_parameter())
            stored[read->tensor] = read->to;
        if (auto const* unshard = i.as<instruction::unshard>(); unshard && unshard->is_resharded)
            stored[unshard->tensor] = unshard->to; // nothing stays of it
        for_each_saved(x.p, i, [&](tensor_id t, tensor_form f) {
            if (x.p.tensors[t].is_parameter()) {
                tensor_form const s = stored.at(t);
                auto const is_whole = [](tensor_form g) {
                    return g == tensor_form::replicated() || g == tensor_form::mirrored();
                };
                if (s == f || (is_whole(s) && is_whole(f))) return;
            }
            if (!kept.insert({t, f}).second) return;
            for (std::size_t k = 0; k < classes; ++k)
                memory[k] +=
                    x.p.tensors[t].info.size().value * (f.is_shard() ? shares(share_ref{t, f.factor()})[k] : 1);
        });
    }
    for (auto& m : memory) m += most_that_passes(x, instructions);
    return {std::ranges::max(clock), memory};
}

struct exhaustive {
    double best = infinite, best_that_fits = infinite;
};

exhaustive enumerate(priced_instance const& x) {
    exhaustive result;
    std::vector<std::uint32_t> instructions;
    std::function<void(std::size_t)> const walk = [&](std::size_t node) {
        if (x.graph.is_last(node)) {
            auto const cost = cost_by_definition(x, instructions);
            bool fits = true;
            for (std::size_t k = 0; k < cost.memory.size(); ++k)
                fits = fits && cost.memory[k] <= x.on.types[x.model.classes()[k].type].memory.value;
            result.best = std::min(result.best, cost.seconds);
            if (fits) result.best_that_fits = std::min(result.best_that_fits, cost.seconds);
            return;
        }
        for (auto const& e : x.graph.out(node)) {
            auto const before = instructions.size();
            for (auto i : x.space.moves()[e.action].instructions) instructions.push_back(i);
            walk(e.to);
            instructions.resize(before);
        }
    };
    walk(0);
    return result;
}

} // namespace

TEST_CASE("under serial costs the theory searched in any order is never dearer than the cuts, and mostly equal") {
    int checked = 0, limited = 0, equal = 0;
    std::size_t blindly = 0, with_cuts = 0;
    for (std::uint64_t seed = 1; seed <= test::cases(60u); ++seed) {
        random_source random(seed + 500);
        priced_instance const x(random, {}, 3);
        if (path_count(x.graph) > 20'000) continue;
        double const best = enumerate(x).best;
        property_table const table(x.p);
        auto const all = make_theory(x.p, table);
        std::vector<search::property_action> actions;
        std::vector<std::vector<step_cost>> costs;
        integral_shares const shares(x.p, x.ratios);
        for (auto const& t : all.triples) {
            actions.push_back({t.pre, t.add, t.remove});
            costs.emplace_back();
            if (!t.action.is<instruction::convert>() || t.action.change()->from != t.action.change()->to)
                costs.back().push_back(x.model.price(make_step(x.p, t.action, {}), shares));
        }
        search::property_task const task(all.property_count, actions, all.initial, all.goal);
        serial_actions const clocks(x.model.class_count(), std::move(costs));
        search::options const options{.limits = {.labels = 20'000}, .cutoff = best * (1 + 1e-9)};
        CAPTURE(seed);
        INFO(x.text());
        auto const found = search::best_first(
            search::property_space(task, clocks, search::landmark_bound(task, clocks, table.groups())), options);
        CHECK(found.lower_bound <= best * (1 + 1e-9));
        if (found.status == search::status::limit) {
            ++limited;
            continue;
        }
        REQUIRE(found.status == search::status::optimal);
        CHECK(*found.cost <= best * (1 + 1e-9));
        ++checked;
        equal += *found.cost >= best * (1 - 1e-9);
        with_cuts += found.statistics.expanded;
        blindly += search::best_first(search::property_space(task, clocks), options).statistics.expanded;
    }
    MESSAGE(checked << " solved, " << equal << " as the cuts have it, " << limited << " stopped; expanded " << with_cuts
                    << " with landmark cuts by class, " << blindly << " without");
    CHECK(checked > test::cases(30));
    CHECK(equal > checked * 8 / 10);
    CHECK(with_cuts < blindly);
}

namespace {

/// Checks what `synthesise` says with the best of all paths.
void check_synthesis(priced_instance const& x, synthesis_result const& r, double best) {
    if (best == infinite) {
        CHECK(r.status == search::status::infeasible);
        CHECK_FALSE(r.path);
        return;
    }
    CHECK(r.lower_bound <= best * (1 + 1e-9));
    REQUIRE(r.path);
    CHECK(r.status != search::status::infeasible);
    CHECK(r.cost.seconds >= best * (1 - 1e-9));
    CHECK(r.lower_bound <= r.cost.seconds * (1 + 1e-9));
    CHECK(x.priced.fits(r.cost));
    if (r.status == search::status::optimal || r.status == search::status::feasible)
        CHECK(r.cost.seconds == doctest::Approx(best).epsilon(1e-9));
    std::vector<std::uint32_t> instructions;
    for (auto a : *r.path)
        for (auto i : x.space.moves()[a].instructions) instructions.push_back(i);
    auto const again = cost_by_definition(x, instructions);
    CHECK(again.seconds == doctest::Approx(r.cost.seconds).epsilon(1e-9));
    for (std::size_t k = 0; k < again.memory.size(); ++k)
        CHECK(again.memory[k] == doctest::Approx(r.cost.memory[k]).epsilon(1e-9));
}

template <class Check>
void for_random_instances(std::uint64_t first, int count, test::cluster_limits limits, Check&& check) {
    int const wanted = test::cases(count);
    int checked = 0;
    for (std::uint64_t seed = first; checked < wanted && seed < first + 20u * static_cast<unsigned>(wanted); ++seed) {
        random_source random(seed);
        priced_instance const x(random, limits, 4);
        if (path_count(x.graph) > 4000) continue;
        ++checked;
        CAPTURE(seed);
        INFO(x.text());
        check(random, x);
    }
    CHECK(checked == wanted);
}

} // namespace

TEST_CASE("synthesise finds the best of all paths") {
    int optimal = 0, feasible = 0;
    for_random_instances(1, 150, {.most_types = 3, .most_devices = 4}, [&](auto& random, priced_instance const& x) {
        synthesis_options options;
        options.relaxation_rounds = random.between(1, 20); // a poor bound leaves more to the search
        auto const r = synthesise(x.priced, options);
        auto const all = enumerate(x);
        CHECK(all.best == all.best_that_fits);
        check_synthesis(x, r, all.best);
        CHECK(r.which_limit == search::limit_kind::none);
        ++(r.status == search::status::optimal ? optimal : feasible);
    });
    MESSAGE("optimal " << optimal << ", feasible " << feasible);
}

TEST_CASE("synthesise finds the best of all paths that fit") {
    int binding = 0, impossible = 0;
    for_random_instances(5001, 450, {.most_types = 3, .most_devices = 4, .memory = test::memory_kind::tight},
                         [&](auto& random, priced_instance const& x) {
                             synthesis_options options;
                             options.relaxation_rounds = random.between(1, 20);
                             auto const r = synthesise(x.priced, options);
                             auto const all = enumerate(x);
                             check_synthesis(x, r, all.best_that_fits);
                             binding += all.best_that_fits > all.best && all.best_that_fits < infinite;
                             impossible += all.best_that_fits == infinite;
                         });
    MESSAGE("memory binds " << binding << ", forbids " << impossible);
    CHECK(binding > test::cases(20));
    CHECK(impossible > test::cases(10));
}

TEST_CASE("a limit on labels leaves bound and incumbent valid") {
    int stopped = 0;
    for_random_instances(9001, 60, {.most_types = 3, .most_devices = 4}, [&](auto& random, priced_instance const& x) {
        synthesis_options options;
        options.relaxation_rounds = random.between(1, 2);
        options.search.limits.labels = random.below(20);
        auto const r = synthesise(x.priced, options);
        check_synthesis(x, r, enumerate(x).best);
        stopped += r.status == search::status::limit;
    });
    MESSAGE("stopped " << stopped);
}

TEST_CASE("synthesise is never above a baseline, nor below its bound") {
    for (std::uint64_t seed = 20001; seed <= 20000 + test::cases(120u); ++seed) {
        random_source random(seed);
        priced_instance const x(random, {}, 6);
        CAPTURE(seed);
        INFO(x.text());
        auto const r = synthesise(x.priced, {});
        REQUIRE(r.path);
        CHECK(r.lower_bound <= r.cost.seconds * (1 + 1e-9));
        for (auto storage : {parameter_storage::replicated, parameter_storage::sharded_state,
                             parameter_storage::sharded_gradients, parameter_storage::sharded}) {
            // The space has the same instructions and moves, numbered alike, but only some are in the graph.
            auto restricted = x.space;
            restricted.restrict_to(data_parallel(x.p, storage));
            auto const graph = search::explore(restricted);
            REQUIRE(restricted.moves().size() == x.space.moves().size());
            auto const baseline =
                improve_bounds(priced_graph(x.space, graph, x.steps, x.model, integral_shares(x.p, x.ratios)), 6);
            if (!baseline.path) continue;
            if (r.status != search::status::limit) CHECK(r.cost.seconds <= baseline.cost.seconds * (1 + 1e-9));
            CHECK(r.lower_bound <= baseline.cost.seconds * (1 + 1e-9));
            synthesis_options options;
            options.relaxation_rounds = 1;
            options.start = baseline.path;
            options.search.limits.labels = 1;
            CHECK(synthesise(x.priced, options).cost.seconds <= baseline.cost.seconds * (1 + 1e-9));
        }
    }
}

TEST_CASE("a program known at the start is an incumbent") {
    for_random_instances(30001, 40, {.most_types = 2, .most_devices = 3}, [&](auto& random, priced_instance const& x) {
        synthesis_options options;
        auto& path = options.start.emplace();
        for (std::size_t node = 0; !x.graph.is_last(node);) {
            auto const out = x.graph.out(node);
            if (out.empty()) return; // a dead end
            auto const e = *std::next(out.begin(), static_cast<std::ptrdiff_t>(random.below(out.size())));
            path.push_back(e.action);
            node = e.to;
        }
        check_synthesis(x, synthesise(x.priced, options), enumerate(x).best);
    });
}
