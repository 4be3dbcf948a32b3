// SPDX-License-Identifier: BSL-1.0
// The worked example of HAP (EuroSys '24, section 4.3, figure 11): a batch, a parameter, their product and its sum,
// with the batch cut along its first dimension and the parameter along its second.
#include <heddle/cost/cost_model.hpp>
#include <heddle/program/program.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace {

using namespace heddle;

struct example {
    tensor_id e1, e2, e3, loss;
    indexed_program program;
    property_table properties;
    theory<instruction> all;

    static example make(extent batch) {
        program_builder b;
        auto const x = b.input("e1", {batch, 64}), w = b.parameter("e2", {64, 32});
        auto const y = b.apply("matmul", "(b k), (k n) -> (b n); 0*1", {x, w}, {.category = operator_class::matmul});
        auto const sum = b.apply("sum", "(b n) -> (); 0", {y});
        auto indexed = index_program(b.finish(sum));
        property_table properties(indexed);
        example made{x, w, y, sum, std::move(indexed), std::move(properties), {}};
        made.all = make_theory(made.program, made.properties);
        std::erase_if(made.all.triples, [&](auto const& t) { return !made.is_of_example(t.action); });
        return made;
    }

    /// Returns the form of a tensor cut along a dimension: HAP's All-Gather(d).
    [[nodiscard]] tensor_form cut(tensor_id t, std::uint16_t dimension) const {
        auto const& factors = program.tensors[t].factors;
        auto const found = std::ranges::find(factors, dimension, &factor::dimension);
        return tensor_form::shard(static_cast<factor_number>(found - factors.begin()));
    }

    /// Allows HAP's instructions alone: whole copies (Identity), shards (All-Gather(d)) and, for the loss, summands
    /// (All-Reduce). The batch is read in shards only (Placeholder-Shard), and the parameter is not communicated
    /// (section 4.5).
    [[nodiscard]] bool is_of_example(instruction const& i) const {
        auto const allowed = [&](tensor_id t, tensor_form f) {
            if (t == e1) return f == tensor_form::replicated() || f == cut(e1, 0);
            if (t == e2) return f == tensor_form::replicated() || f == cut(e2, 1);
            if (t == e3) return f == tensor_form::replicated() || f == cut(e3, 0) || f == cut(e3, 1);
            return true;
        };
        if (auto const* change = i.change()) {
            auto const& [t, from, to] = *change;
            if (i.is<instruction::read>() && from != to) return false;
            if (i.is<instruction::read>() && t == e1) return to == cut(e1, 0);
            if (i.is<instruction::convert>() && t == e2) return false;
            return allowed(t, from) && allowed(t, to);
        }
        auto const& compute = *i.as<instruction::compute>();
        auto const& op = program.operators[compute.op];
        for (std::size_t k = 0; k < op.operands.size(); ++k)
            if (!allowed(op.operands[k], compute.operands[k])) return false;
        return allowed(op.results[0], compute.results[0]);
    }

    [[nodiscard]] bool has_triple(std::vector<property_id> pre, std::vector<property_id> add) const {
        return std::ranges::any_of(all.triples, [&](auto const& t) { return t.pre == pre && t.add == add; });
    }

    /// Returns the seconds of each triple on two equal devices, with all its costs added up.
    [[nodiscard]] std::vector<double> prices() const {
        cluster c;
        c.types = {{"any",
                    bytes(1e12),
                    bytes_per_second(4e9),
                    seconds(1e-6),
                    {{element_type::float32, {flops_per_second(1e9)}}}}};
        c.machines = {{0, 1, 2}};
        c.inter = network_link{bytes_per_second(1e8), seconds(1e-6)};
        cost_model const model(c, {{0, 2}});
        uniform_shares const shares({0.5});
        std::vector<double> result;
        for (auto const& t : all.triples) {
            auto const cost = model.price(make_step(program, t.action, {}), shares);
            result.push_back(cost.forward_transfer + cost.backward_transfer + cost.deferred + cost.forward[0] +
                             cost.backward[0] + cost.update[0]);
        }
        return result;
    }

    /// Returns the least cost of all programs: takes sets of properties in order of cost, and tries every triple on
    /// each.
    [[nodiscard]] double least_cost(std::vector<double> const& prices) const {
        std::map<std::set<property_id>, double> known{{{all.initial.begin(), all.initial.end()}, 0}};
        std::set<std::set<property_id>> done;
        for (;;) {
            auto best = known.end();
            for (auto it = known.begin(); it != known.end(); ++it)
                if (!done.contains(it->first) && (best == known.end() || it->second < best->second)) best = it;
            REQUIRE(best != known.end());
            auto const [held, cost] = *best;
            if (std::ranges::all_of(all.goal, [&](auto id) { return held.contains(id); })) return cost;
            done.insert(held);
            for (std::size_t n = 0; n < all.triples.size(); ++n) {
                auto const& t = all.triples[n];
                if (!std::ranges::all_of(t.pre, [&](auto id) { return held.contains(id); })) continue;
                auto next = held;
                for (auto id : t.remove) next.erase(id);
                next.insert(t.add.begin(), t.add.end());
                auto const [slot, is_new] = known.try_emplace(next, cost + prices[n]);
                slot->second = std::min(slot->second, cost + prices[n]);
            }
        }
    }

    struct outcome {
        double cost = 0;
        std::vector<instruction> instructions;
    };
    [[nodiscard]] outcome search(std::vector<double> const& prices) const {
        std::vector<search::property_action> actions;
        for (auto const& t : all.triples) actions.push_back({t.pre, t.add, t.remove});
        search::property_task const task(all.property_count, actions, all.initial, all.goal);
        search::property_space const space(task, search::additive_cost(prices), search::blind_bound{});
        auto const found = search::best_first(space, {});
        REQUIRE(found.status == search::status::optimal);
        outcome result{*found.cost, {}};
        for (auto a : found.actions)
            if (auto const& i = all.triples[a].action;
                !i.is<instruction::convert>() || i.change()->from != i.change()->to)
                result.instructions.push_back(i);
        return result;
    }
};

} // namespace

TEST_CASE("figure 11: the theory has the triples of the example") {
    auto const e = example::make(256);
    auto const held = [&](tensor_id t, tensor_form f) { return e.properties.held(t, f); };
    auto const unread = e.properties.unread(e.e2);
    CHECK(e.has_triple({}, {held(e.e1, e.cut(e.e1, 0))}));
    CHECK(e.has_triple({unread}, {held(e.e2, tensor_form::replicated())}));
    CHECK(e.has_triple({unread}, {held(e.e2, e.cut(e.e2, 1))}));
    CHECK(e.has_triple({held(e.e1, e.cut(e.e1, 0)), held(e.e2, tensor_form::replicated())},
                       {held(e.e3, e.cut(e.e3, 0))}));
    CHECK(e.has_triple({held(e.e1, tensor_form::replicated()), held(e.e2, e.cut(e.e2, 1))},
                       {held(e.e3, e.cut(e.e3, 1))}));
    CHECK(e.has_triple({held(e.e3, e.cut(e.e3, 0))}, {held(e.loss, tensor_form::partial())}));
    CHECK(e.has_triple({held(e.e3, e.cut(e.e3, 1))}, {held(e.loss, tensor_form::partial())}));
    CHECK(e.has_triple({held(e.e1, e.cut(e.e1, 0))}, {held(e.e1, tensor_form::replicated())}));
    CHECK(e.has_triple({held(e.e3, e.cut(e.e3, 0))}, {held(e.e3, e.cut(e.e3, 1))}));
}

namespace {

/// Returns the computation that is split along the loop that these operands have.
instruction compute(example const& e, operator_id op, form_list operands, tensor_form result) {
    auto const& loops = e.program.operators[op].loops;
    auto const is_split = [&](split_loop const& l) {
        for (std::size_t k = 0; k < operands.size(); ++k)
            if (operands[k] !=
                (l.operands[k] == no_factor ? tensor_form::replicated() : tensor_form::shard(l.operands[k])))
                return false;
        return true;
    };
    auto const loop = std::ranges::find_if(loops, is_split) - loops.begin();
    return instruction::compute{op, std::move(operands), {result}, static_cast<std::int16_t>(loop)};
}

void check_program(example const& e, std::vector<instruction> const& wanted) {
    auto const prices = e.prices();
    auto const found = e.search(prices);
    CHECK(found.cost == doctest::Approx(e.least_cost(prices)).epsilon(1e-12));
    CHECK(found.instructions.size() == wanted.size());
    for (auto const& i : wanted) CHECK(std::ranges::count(found.instructions, i) == 1);
}

} // namespace

TEST_CASE("figure 11: of a large batch the program is four instructions along it, with the loss in summands") {
    auto const e = example::make(4096);
    tensor_form const rows = e.cut(e.e1, 0);
    check_program(e, {instruction::read(e.e1, rows), instruction::read(e.e2, tensor_form::replicated()),
                      compute(e, 0, {rows, tensor_form::replicated()}, e.cut(e.e3, 0)),
                      compute(e, 1, {e.cut(e.e3, 0)}, tensor_form::partial())});
}

TEST_CASE("figure 11: of a small batch it is gathered, and the parameter is in shards") {
    auto const e = example::make(2);
    tensor_form const columns = e.cut(e.e2, 1);
    check_program(e, {instruction::read(e.e1, e.cut(e.e1, 0)),
                      instruction::convert(e.e1, e.cut(e.e1, 0), tensor_form::replicated()),
                      instruction::read(e.e2, columns),
                      compute(e, 0, {tensor_form::replicated(), columns}, e.cut(e.e3, 1)),
                      compute(e, 1, {e.cut(e.e3, 1)}, tensor_form::partial())});
}
