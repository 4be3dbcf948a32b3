// SPDX-License-Identifier: BSL-1.0
// What steps of random programs on meshes cost: by the one-axis theory where one axis has a single place, and by a
// count of what each device holds, computes and sends where all have several.
#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/mesh_step.hpp>
#include <support/catalogue_programs.hpp>
#include <support/random_mesh_programs.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace heddle;

cluster machines(int count, int devices, bool grouped) {
    cluster c;
    c.types = {{"gpu", bytes(1e9), bytes_per_second(900), seconds(0.25), {}}};
    c.types[0].rates[element_type::float32].fallback = flops_per_second(7000);
    c.machines = {{0, devices, count, grouped && devices > 1}};
    c.intra = network_link{bytes_per_second(300), seconds(0.03)};
    c.inter = network_link{bytes_per_second(40), seconds(0.2)};
    validate(c);
    return c;
}

struct random_steps {
    program model;
    indexed_program indexed;
    std::vector<mesh_instruction> steps;
    random_steps(std::uint64_t seed, mesh const& m) {
        test::random_source random(seed);
        model = test::catalogue_program(random, random.between(1, 5));
        indexed = index_program(model);
        steps = test::mesh_walk(indexed, m, random).steps();
    }
    [[nodiscard]] std::string told(std::uint64_t seed, mesh_instruction const& i) const {
        return "seed " + std::to_string(seed) + "\n" + test::describe(model) + test::describe(i);
    }
};

bool gathers(instruction const& i) {
    auto const* const compute = i.as<instruction::compute>();
    return compute && gathers_factors(*compute);
}
bool is_partial_read(instruction const& i) {
    return i.is<instruction::read>() && i.change()->to == tensor_form::partial();
}

/// The seconds of both directions, and the bytes kept.
void check_equal(step_cost const& a, step_cost const& b) {
    auto const close = [](double x, double y) { CHECK(x == doctest::Approx(y).epsilon(1e-9)); };
    close(a.forward_transfer + a.forward[0], b.forward_transfer + b.forward[0]);
    auto const rest = [](step_cost const& s) {
        return s.backward_transfer + s.backward[0] + s.deferred + s.refresh + s.update[0];
    };
    close(rest(a), rest(b));
    close(a.memory[0], b.memory[0]);
}

constexpr std::uint64_t cases = 150;

/// Counts what a device does from the forms of an instruction alone: the one that has most, where every axis cuts whole
/// atoms as evenly as can be.
struct device_count {
    indexed_program const& p;
    mesh const& m;

    /// Returns the part that is left of what axes cut one after another: `cut(a)` is the number of what an axis cuts, or
    /// negative, and `extent_of(number)` of how many atoms that is.
    template <class Cut, class Extent>
    [[nodiscard]] double left(Cut const& cut, Extent const& extent_of, axis_number but_for = most_axes) const {
        std::map<int, extent> atoms;
        for (axis_number a = 0; a < m.axis_count(); ++a) {
            if (cut(a) < 0 || a == but_for) continue;
            auto& here = atoms.try_emplace(cut(a), extent_of(cut(a))).first->second;
            auto const size = static_cast<extent>(m.size(a));
            here = here / size + (here % size > 0);
        }
        double result = 1;
        for (auto const& [what, here] : atoms)
            result *= static_cast<double>(here) / static_cast<double>(extent_of(what));
        return result;
    }
    [[nodiscard]] double part(tensor_id t, product_form const& f, axis_number but_for = most_axes) const {
        return left([&](axis_number a) { return f[a].is_shard() ? f[a].factor() : -1; },
                    [&](int factor) { return p.tensors[t].factors[static_cast<std::size_t>(factor)].extent; }, but_for);
    }
    [[nodiscard]] double size(tensor_id t) const { return p.tensors[t].info.size().value; }
    /// Returns the bytes of all shards along an axis, if all are as large as the largest.
    [[nodiscard]] double padded(tensor_id t, product_form const& f, axis_number a) const {
        return size(t) * (f[a].is_shard() ? part(t, f) * static_cast<double>(m.size(a)) : part(t, f, a));
    }
    [[nodiscard]] double operations(mesh_instruction const& i) const {
        auto const& op = p.operators[i.axes[0].as<instruction::compute>()->op];
        return op.work.forward.value *
               left([&](axis_number a) { return i.axes[a].as<instruction::compute>()->loop; },
                    [&](int number) {
                        auto const& loop = op.loops[static_cast<std::size_t>(number)];
                        if (!loop.exchanges()) return loop.extent;
                        auto const k = loop.destination(); // work is that of places, such as experts
                        return p.tensors[op.operands[k]].factors[static_cast<std::size_t>(loop.operands[k])].extent;
                    });
    }
    [[nodiscard]] double stored(tensor_id t, product_form const& from, product_form const& to) const {
        auto const& tensor = p.tensors[t];
        if (!tensor.has_cotangent) return size(t) * part(t, to);
        return size(t) * (2 * part(t, to) + 2 * part(t, from)); // value and gradient; Adam's two moments
    }
    /// Bytes of what the devices of the device's lines have in all, by axis and kind of collective.
    using sent = std::map<std::pair<axis_number, collective>, double>;
    [[nodiscard]] sent conversion(mesh_instruction const& i, bool backward) const {
        sent result;
        auto const a = *i.acting();
        auto const how = find_conversion(i.from()[a], i.to()[a]);
        auto const& half = backward ? how->backward : how->forward;
        bool const has_adjoint = p.tensors[i.tensor()].has_cotangent;
        if (half.collective && (!backward || has_adjoint))
            result[{a, *half.collective}] +=
                *half.collective == collective::all_reduce
                    ? size(i.tensor()) * part(i.tensor(), i.from(), a)
                    : std::max(padded(i.tensor(), i.from(), a), padded(i.tensor(), i.to(), a));
        return result;
    }
    /// What the reduction of a parameter's gradient sends, and then the gathers of its updated copies.
    [[nodiscard]] sent gradient(mesh_instruction const& i) const {
        sent result;
        auto form = i.to();
        for (axis_number a = 0; a < form.size(); ++a) {
            if (i.from()[a] == form[a]) continue;
            if (form[a] == tensor_form::replicated())
                result[{a, collective::reduce_scatter}] += padded(i.tensor(), form.with(a, i.from()[a]), a);
            form = form.with(a, i.from()[a]);
        }
        for (axis_number a = 0; a < form.size(); ++a)
            if (form[a] == tensor_form::replicated())
                result[{a, collective::all_reduce}] += size(i.tensor()) * part(i.tensor(), form);
        for (axis_number a = form.size(); a-- > 0; form = form.with(a, i.to()[a]))
            if (form[a] != i.to()[a]) result[{a, collective::all_gather}] += padded(i.tensor(), form, a);
        return result;
    }
};

/// What a step says that the devices send, padded. The axes inside are told apart by their sizes.
device_count::sent sent_by(mesh const& m, std::vector<transfer_list const*> const& across,
                           std::vector<inside_list const*> const& inside, share_ref cut, largest_shares const& shares) {
    double const share = cut.is_split() ? shares(cut)[0] : 1, places = static_cast<double>(m.size(0));
    static std::map<inside_step, collective> const kinds{{inside_step::all_reduce, collective::all_reduce},
                                                         {inside_step::all_gather, collective::all_gather},
                                                         {inside_step::reduce_scatter, collective::reduce_scatter},
                                                         {inside_step::all_to_all, collective::all_to_all}};
    device_count::sent result;
    for (auto const* list : across)
        for (auto const& t : *list)
            result[{0, t.kind}] +=
                payload(t, static_cast<int>(m.size(0)), shares).value * (t.kind == collective::all_to_all ? places : 1);
    for (auto const* list : inside)
        for (auto const& t : *list) {
            axis_number axis = 1;
            while (static_cast<int>(m.size(axis)) != t.members) ++axis;
            result[{axis, kinds.at(t.kind)}] += t.whole.value + t.split.value * share;
        }
    return result;
}

void check_equal(device_count::sent const& found, device_count::sent const& expected) {
    REQUIRE(found.size() == expected.size());
    for (auto const& [what, bytes_sent] : expected) CHECK(found.at(what) == doctest::Approx(bytes_sent));
}

} // namespace

TEST_CASE("a mesh step on one axis, and outside an axis of one place, is the step of its instruction") {
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        random_steps const one(seed, mesh({3})), x(seed, mesh({4, 1}));
        for (auto const& i : one.steps) {
            INFO(one.told(seed, i));
            CHECK(make_step(one.indexed, i, mesh({3}), {}) == make_step(one.indexed, i.axes[0], {}));
        }
        cost_model const model(machines(4, 1, false), {{0, 4}});
        uniform_shares const shares({0.25});
        for (auto const& i : x.steps) {
            if (gathers(i.axes[1]) || is_partial_read(i.axes[1]) || i.acting() == 1) continue;
            INFO(x.told(seed, i));
            check_equal(model.price(make_step(x.indexed, i, mesh({4, 1}), {}), shares),
                        model.price(make_step(x.indexed, i.axes[0], {}), shares));
        }
    }
}

TEST_CASE("the devices of one machine take as long inside as they take as an axis of their own") {
    cost_model const grouped(machines(1, 4, true), {{0, 1, 4}}), single(machines(1, 4, false), {{0, 4}});
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        random_steps const x(seed, mesh({1, 4}));
        largest_shares const whole({x.indexed, std::vector<double>{1.0}}, {0}),
            even({x.indexed, std::vector<double>(4, 0.25)}, std::vector<std::size_t>(4, 0));
        for (auto const& i : x.steps) {
            // Factors are gathered for work in a kernel of its own across, and inside in the operator's.
            if (gathers(i.axes[0]) || gathers(i.axes[1]) || is_partial_read(i.axes[0]) || i.acting() == 0) continue;
            INFO(x.told(seed, i));
            auto alone = make_step(x.indexed, i.axes[1], {});
            for_each_transfer(alone, [](transfer& t) { t.how = uneven::padded; }); // as all are inside
            check_equal(grouped.price(make_step(x.indexed, i, mesh({1, 4}), {}), whole), single.price(alone, even));
        }
    }
}

TEST_CASE("a mesh step is what each device holds, computes and sends") {
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        mesh const m(seed % 2 == 0 ? std::vector<std::size_t>{3, 4} : std::vector<std::size_t>{3, 4, 2});
        random_steps const x(seed, m);
        largest_shares const shares({x.indexed, std::vector<double>(3, 1 / 3.0)}, {0, 0, 0});
        device_count const count{x.indexed, m};
        for (auto const& i : x.steps) {
            auto const s = make_step(x.indexed, i, m, {});
            INFO(x.told(seed, i));
            double const share = s.share.is_split() ? shares(s.share)[0] : 1;
            auto const at = [&](holding const& h) { return h.whole.value + h.split.value * share; };
            if (i.axes[0].is<instruction::compute>()) {
                CHECK(s.forward.operations.value * share * (s.forward.launches ? 1 : 0) ==
                      doctest::Approx(s.forward.launches ? count.operations(i) : 0.0));
            } else if (i.axes[0].is<instruction::read>()) {
                CHECK(at(s.stored) == doctest::Approx(count.stored(i.tensor(), i.from(), i.to())));
                // One share stands for what one and what two axes inside have cut of what the outermost cuts.
                if (cuts_inside(i.from(), m) == 8 && cuts_inside(i.to(), m) == 1) continue;
                auto const found = sent_by(m, {&s.deferred_transfers, &s.update_transfers},
                                           {&s.inside_backward, &s.inside_update}, s.share, shares);
                check_equal(found,
                            x.indexed.tensors[i.tensor()].has_cotangent ? count.gradient(i) : device_count::sent{});
            } else if (!i.axes[*i.acting()].is<instruction::reshard>()) {
                check_equal(sent_by(m, {&s.forward_transfers}, {&s.inside_forward}, s.share, shares),
                            count.conversion(i, false));
                check_equal(
                    sent_by(m, {&s.backward_transfers, &s.deferred_transfers}, {&s.inside_backward}, s.share, shares),
                    count.conversion(i, true));
            }
        }
    }
}

TEST_CASE("what micro-batches gather for a use, on whichever axis, each of them gathers") {
    training_options several;
    several.accumulated = 4;
    int seen = 0;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        mesh const m({3, 4});
        random_steps const x(seed, m);
        for (auto const& i : x.steps) {
            auto const axis = i.acting();
            if (!axis || !x.indexed.tensors[i.tensor()].is_parameter()) continue;
            bool const is_for_use = i.axes[*axis].is<instruction::unshard>();
            if (!is_for_use && !i.axes[*axis].is<instruction::convert>()) continue;
            INFO(x.told(seed, i));
            auto const one = make_step(x.indexed, i, m, {}), all = make_step(x.indexed, i, m, several);
            CHECK(all.inside_forward.size() == (is_for_use ? one.inside_forward.size() : 0));
            CHECK(all.forward_transfers.size() == (is_for_use ? one.forward_transfers.size() : 0));
            seen += is_for_use && *axis == 1 && !one.inside_forward.empty();
        }
    }
    CHECK(seen > 10);
}

TEST_CASE("lines share the network cards of a machine") {
    auto c = machines(3, 4, true);
    auto const time = [&](int lines) {
        cost_model const model(c, {{0, 3, 4}});
        transfer t{collective::all_reduce, bytes(300), {}, {}, {}};
        t.lines = lines;
        return model.time(t, uniform_shares({1 / 3.0}));
    };
    double const latency = 4 * 0.2, alone = 2 * 2 / 3.0 * 300 / 40;
    CHECK(time(1) == doctest::Approx(latency + alone));
    CHECK(time(4) == doctest::Approx(latency + 4 * alone));
    c.machines[0].network_cards = 2;
    CHECK(time(4) == doctest::Approx(latency + 2 * alone));
    c.machines[0].network_cards = 8;
    CHECK(time(4) == doctest::Approx(latency + alone));
    c.machines[0].network_cards = 0;
    CHECK_THROWS_AS(validate(c), input_error);
}
