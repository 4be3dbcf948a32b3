// SPDX-License-Identifier: BSL-1.0
// What is explored, priced and searched once for all repeated blocks agrees with the same for each block.
#include "support/cases.hpp"
#include "support/random_programs.hpp"

#include <heddle/cost/priced_graph.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using test::random_source;

/// Says what one block does to a value of (b k), now and then differently.
struct block {
    std::vector<int> operators;
    program_builder& b;
    extent width;
    tensor_id shared;
    int& weights;

    tensor_id weight(bool trained) const {
        return b.parameter("weight" + std::to_string(++weights), {width, width}, element_type::float32, trained);
    }

    /// In the block at which `odd` is not negative, the operator of that number differs in one detail.
    tensor_id apply(tensor_id x, int odd) const {
        tensor_id const before = x;
        int number = 0;
        for (int what : operators) {
            bool const differs = number++ == odd;
            switch (what) {
            case 0:
                x = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, weight(!differs)},
                            {.category = operator_class::matmul});
                break;
            case 1:
                x = b.apply("relu", "(b k) -> (b k)", {x},
                            {.extra_saved = bytes(differs ? 64 : 0), .saved_results = {0}});
                break;
            case 2:
                x = b.apply("add", "(b k), (b k) -> (b k); 0 + 1", {x, before},
                            {.category = differs ? operator_class::other : operator_class::elementwise});
                break;
            case 3:
                x = b.apply("norm", differs ? "(b ~k) -> (b ~k)" : "(b !k) -> (b !k)", {x}, {.saved_operands = {{0}}});
                break;
            case 5:
                x = b.apply("transpose", "(b k) -> (k b); 0", {x}, {.is_view = true});
                x = b.apply("linear", "(k b), (n k) -> (b n); 0*1", {x, weight(!differs)},
                            {.category = operator_class::matmul});
                break;
            case 4: x = b.apply("mixed", "(b k), (n k) -> (b n); 0*1", {x, differs ? weight(true) : shared}); break;
            }
        }
        return x;
    }
};

struct repeated {
    program made;
    indexed_program p;
    explicit repeated(random_source& random) : made(make(random)), p(index_program(made)) {}

private:
    static program make(random_source& random) {
        program_builder b;
        extent const width = random.between(2, 6);
        int weights = 0;
        block one{{}, b, width, b.parameter("shared", {width, width}), weights};
        auto x = b.input("x", {random.between(2, 9), width});
        x = b.apply("mixed", "(b k), (n k) -> (b n); 0*1", {x, one.shared});
        for (int n = random.between(1, 3); n > 0; --n) one.operators.push_back(random.between(0, 5));
        int const count = random.between(2, 5), odd_block = random.chance(0.5) ? random.between(0, count - 1) : -1;
        int const odd = random.between(0, static_cast<int>(one.operators.size()) - 1);
        for (int n = 0; n < count; ++n) x = one.apply(x, n == odd_block ? odd : -1);
        return b.finish(b.apply("sum", "(b k) -> (); 0", {x}));
    }
};

/// A space in which repeated operators are or are not of one kind, and its graph.
struct explored {
    cut_space space;
    cut_graph graph;
    std::vector<step_work> steps;

    explored(indexed_program const& p, std::vector<operator_id> kinds, instruction_filter const& filter)
        : space(p, std::move(kinds)) {
        space.restrict_to(filter);
        graph = search::explore(space);
        for (auto const& i : space.instructions()) steps.push_back(make_step(p, i, {}));
    }
    /// Returns the instructions of a move at a level, and what it saves.
    [[nodiscard]] std::pair<std::vector<instruction>, std::vector<std::pair<tensor_id, tensor_form>>> at(
        std::size_t level, cut_space::action a) const {
        std::pair<std::vector<instruction>, std::vector<std::pair<tensor_id, tensor_form>>> result;
        for (auto i : space.moves()[a].instructions) result.first.push_back(space.at(level, space.instructions()[i]));
        for (auto const& [t, f] : space.moves()[a].saved) result.second.push_back({space.at(level, t), f});
        return result;
    }
};

std::vector<instruction_filter> filters(indexed_program const& p) {
    using enum parameter_storage;
    std::vector<instruction_filter> result{instruction_filter::everything(), fastest_programs(p),
                                           converting_before_views(p, fastest_programs(p))};
    for (auto storage : {replicated, sharded_state, sharded_gradients, sharded})
        result.push_back(data_parallel(p, storage));
    // This filter does not tell what it depends on.
    result.push_back([](instruction const& i) {
        return !i.change() || i.change()->tensor % 3 != 0 || i.change()->to != tensor_form::shard(1);
    });
    return result;
}

template <class Check>
void for_random_repeats(std::uint64_t first, unsigned count, Check&& check) {
    for (auto seed = first; seed < first + test::cases(count); ++seed) {
        random_source random(seed);
        repeated const r(random);
        CAPTURE(seed);
        INFO(test::describe(r.made));
        check(random, r);
    }
}

} // namespace

TEST_CASE("what repeats is explored once and leads where it leads each time") {
    std::size_t segments = 0, levels = 0;
    for_random_repeats(1, 60, [&](random_source&, repeated const& r) {
        for (auto const& filter : filters(r.p)) {
            explored const once(r.p, operator_kinds(r.p), filter), each(r.p, {}, filter);
            CHECK(each.graph.segments.size() == each.graph.segment_of_level.size());
            segments += once.graph.segments.size();
            levels += once.graph.segment_of_level.size();
            REQUIRE(once.graph.first_of_level == each.graph.first_of_level);
            for (std::size_t level = 0; level + 1 < once.graph.level_count(); ++level) {
                auto const &a = once.graph.from_level(level), &b = each.graph.from_level(level);
                REQUIRE(a.first_link == b.first_link);
                for (std::size_t l = 0; l < a.links.size(); ++l) {
                    REQUIRE(a.links[l].to == b.links[l].to);
                    auto const x = once.graph.bundle(a.bundles[a.links[l].bundle]),
                               y = each.graph.bundle(b.bundles[b.links[l].bundle]);
                    REQUIRE(x.size() == y.size());
                    for (std::size_t n = 0; n < x.size(); ++n) REQUIRE(once.at(level, x[n]) == each.at(level, y[n]));
                }
            }
        }
    });
    MESSAGE(segments << " of " << levels << " levels explored");
    CHECK(segments * 4 < levels * 3);
}

TEST_CASE("what repeats has the prices and the best programs that it has each time") {
    for_random_repeats(1001, 150, [&](random_source& random, repeated const& r) {
        auto const c = test::random_cluster(
            random, {.most_types = 2,
                     .most_devices = 3,
                     .memory = random.chance(0.3) ? test::memory_kind::tight : test::memory_kind::loose});
        auto const model = per_device_model(c, element_type::float32);
        explored const once(r.p, operator_kinds(r.p), instruction_filter::everything()),
            each(r.p, {}, instruction_filter::everything());
        share_vector ratios;
        double sum = 0;
        for (std::size_t d = 0; d < model.class_count(); ++d) sum += ratios.emplace_back(random.between(0.1, 1.0));
        for (auto& ratio : ratios) ratio /= sum;
        // These atoms of some factors differ from block to block.
        std::vector<atom_class> cuts;
        if (random.chance(0.7))
            for (tensor_id t = 0; t < r.p.tensors.size(); ++t)
                for (std::size_t f = 0; f < r.p.tensors[t].factors.size(); ++f) {
                    if (random.chance(0.5)) continue;
                    atom_class cut{r.p.tensors[t].factors[f].extent,
                                   {{t, static_cast<factor_number>(f)}},
                                   std::vector<extent>(model.class_count(), 0)};
                    for (extent n = 0; n < cut.atoms; ++n) ++cut.counts[random.below(cut.counts.size())];
                    cuts.push_back(std::move(cut));
                }
        integral_shares const shares(r.p, ratios, cuts);
        priced_graph const a(once.space, once.graph, once.steps, model, shares),
            b(each.space, each.graph, each.steps, model, shares);
        auto const check_prices = [&](std::size_t level, cut_space::action x, cut_space::action y) {
            auto const left = a.instructions_of(x), right = b.instructions_of(y);
            REQUIRE(left.size() == right.size());
            for (std::size_t n = 0; n < left.size(); ++n) {
                auto const &one = a.instruction(level, left[n]), &other = b.instruction(level, right[n]);
                REQUIRE(std::ranges::equal(one.forward, other.forward));
                REQUIRE(std::ranges::equal(one.backward, other.backward));
                REQUIRE(std::ranges::equal(one.update, other.update));
                REQUIRE(std::array{one.forward_transfer, one.backward_transfer, one.deferred, one.refresh} ==
                        std::array{other.forward_transfer, other.backward_transfer, other.deferred, other.refresh});
            }
            REQUIRE(std::ranges::equal(a.memory(level, x), b.memory(level, y)));
            REQUIRE(a.buffer(level, x) == b.buffer(level, y));
        };
        for (std::size_t level = 0; level + 1 < once.graph.level_count(); ++level)
            for (std::size_t l = 0; l < once.graph.from_level(level).links.size(); ++l) {
                auto const &p = once.graph.from_level(level), &q = each.graph.from_level(level);
                auto const x = once.graph.bundle(p.bundles[p.links[l].bundle]),
                           y = each.graph.bundle(q.bundles[q.links[l].bundle]);
                REQUIRE(x.size() == y.size());
                for (std::size_t e = 0; e < x.size(); ++e) check_prices(level, x[e], y[e]);
            }
        auto const found = synthesise(a, {}), expected = synthesise(b, {});
        REQUIRE(found.status == expected.status);
        CHECK(found.cost.seconds == expected.cost.seconds);
        CHECK(found.lower_bound == expected.lower_bound);
        if (!found.path) return;
        CHECK(program_clock<serial>(a).evaluate(*found.path).seconds ==
              program_clock<serial>(b).evaluate(*expected.path).seconds);
        auto const plan = realise(*found.path, once.space, once.steps, c, {ratios}, {}).first,
                   same = realise(*expected.path, each.space, each.steps, c, {ratios}, {}).first;
        CHECK(plan.cost() == same.cost());
        REQUIRE(plan.steps.size() == same.steps.size());
        for (std::size_t n = 0; n < plan.steps.size(); ++n) {
            CHECK(plan.steps[n].instruction == same.steps[n].instruction);
            CHECK(plan.steps[n].step == same.steps[n].step);
            CHECK(plan.steps[n].saved == same.steps[n].saved);
        }
    });
}
