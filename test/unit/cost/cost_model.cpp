// SPDX-License-Identifier: BSL-1.0
#include "support/forms.hpp"

#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/kernel_sample.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/cost/timeline.hpp>

#include <heddle/program/program.hpp>
#include <heddle/theory/theory.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

namespace {

using namespace heddle;
using test::M;
using test::P;
using test::R;
using test::S0;
using test::S1;

device_type device(char const* name, double rate, double bandwidth, double overhead = 0) {
    device_type d{name, bytes(1e9), bytes_per_second(bandwidth), seconds(overhead), {}};
    d.rates[element_type::float32].fallback = flops_per_second(rate);
    return d;
}

/// One fast and two slow machines of one device; links of 10 bytes per second, half a second of latency.
cluster small_cluster() {
    cluster c;
    c.types = {device("fast", 100, 50), device("slow", 40, 20, 1)};
    c.machines = {{0, 1, 1}, {1, 1, 2}};
    c.inter = network_link{bytes_per_second(10), seconds(0.5)};
    validate(c);
    return c;
}

cost_model small_model() { return {small_cluster(), {{0, 1}, {1, 2}}}; }

/// x (4 6), w (3 6), loss = sum of relu of x w.
struct small_program {
    tensor_id x, w, h, y;
    indexed_program p;
    small_program() {
        program_builder b;
        x = b.input("x", {4, 6});
        w = b.parameter("w", {3, 6});
        operator_options linear;
        linear.category = operator_class::matmul;
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, linear);
        operator_options relu;
        relu.saved_results = {0};
        y = b.apply("relu", "(b n) -> (b n)", {h}, relu);
        p = index_program(b.finish(b.apply("sum", "(b n) -> (); 0", {y})));
    }
    [[nodiscard]] step_work of(instruction const& i) const { return make_step(p, i, {}); }
};

} // namespace

TEST_CASE("collectives over links are a ring over the slowest link") {
    auto const c = small_cluster();
    auto const time = [&](collective kind) { return model_of(c, kind).time(bytes(30)).value; };
    CHECK(time(collective::all_reduce) == doctest::Approx(2 * 2 * 0.5 + 2 * 2.0 / 3 * 30 / 10));
    CHECK(time(collective::all_gather) == doctest::Approx(2 * 0.5 + 2.0 / 3 * 30 / 10));
    CHECK(time(collective::reduce_scatter) == doctest::Approx(time(collective::all_gather)));
    CHECK(time(collective::all_to_all) == doctest::Approx(2 * 0.5 + 2.0 / 3 * (2.0 / 2) * 30 / 10));
    CHECK(time(collective::broadcast) == doctest::Approx(2 * 0.5 + 30.0 / 10));
}

TEST_CASE("a ring leaves every machine once: all other hops have the latency inside") {
    cluster c;
    c.types = {device("gpu", 100, 50)};
    c.machines = {{0, 4, 2}, {0, 1, 1}};
    c.intra = network_link{bytes_per_second(100), seconds(0.01)};
    c.inter = network_link{bytes_per_second(10), seconds(1)};
    validate(c);
    auto const latency = [&](collective kind) { return model_of(c, kind).time(bytes(0)).value; };
    CHECK(latency(collective::all_reduce) == doctest::Approx(2 * (3 * 1 + 5 * 0.01)));
    CHECK(latency(collective::reduce_scatter) == doctest::Approx(3 * 1 + 5 * 0.01));
    CHECK(latency(collective::all_gather) == doctest::Approx(3 * 1 + 5 * 0.01));
    c.machines = {{0, 1, 3}}; // no more than all hops
    CHECK(latency(collective::all_gather) == doctest::Approx(2 * 1));
    c.machines = {{0, 4, 1}};
    CHECK(latency(collective::all_gather) == doctest::Approx(3 * 0.01));
}

TEST_CASE("a gradient takes its part of its bucket's latency, and a bucket one latency") {
    cluster c;
    c.types = {device("gpu", 100, 50)};
    c.machines = {{0, 1, 2}};
    c.inter = network_link{bytes_per_second(10), seconds(0.5)};
    cost_model const model(c, {{0, 1}, {0, 1}}, element_type::float32, bytes(100)), alone(c, {{0, 1}, {0, 1}});
    uniform_shares const shares({0.75, 0.25});
    transfer const small{collective::all_reduce, bytes(40), {}, {}, {}},
        large{collective::all_reduce, bytes(100), {}, {}, {}};
    CHECK(model.time_in_bucket(small, shares) == doctest::Approx(0.4 * 1 + 4));
    CHECK(alone.time_in_bucket(small, shares) == doctest::Approx(1 + 4));
    CHECK(model.time_in_bucket(large, shares) == doctest::Approx(1 + 10));
    auto all = model.load(small, shares);
    all += model.load(small, shares);
    CHECK(model.time_of_bucket(small, all) == doctest::Approx(1 + 8));
    transfer scattered{collective::reduce_scatter, bytes(40), {}, {0, 0}, uneven::padded};
    CHECK(model.time_in_bucket(scattered, shares) == doctest::Approx(0.4 * 0.5 + 0.5 * 60 / 10));
    scattered.how = uneven::grouped;
    auto shards = model.load(scattered, shares);
    shards += model.load(scattered, shares);
    CHECK(model.time_of_bucket(scattered, shards) == doctest::Approx(2 * 0.5 + 80.0 / 10)); // a broadcast each
    // Measured in two lines: on that of a full bucket, which a small one may exceed.
    c.measured[collective::all_reduce].pieces = {{seconds(5), seconds_per_byte(0)}, {seconds(1), seconds_per_byte(1)}};
    cost_model const measured(c, {{0, 1}, {0, 1}}, element_type::float32, bytes(100));
    CHECK(measured.time_in_bucket({collective::all_reduce, bytes(2), {}, {}, {}}, shares) ==
          doctest::Approx(0.02 * 1 + 2));
    CHECK(measured.time_of_bucket(small, {bytes(2), {}}) == doctest::Approx(5));
}

TEST_CASE("measured pieces of collectives go before links, and their maximum counts") {
    auto c = small_cluster();
    c.measured[collective::all_reduce].pieces = {{seconds(5), seconds_per_byte(0)}, {seconds(1), seconds_per_byte(1)}};
    CHECK(model_of(c, collective::all_reduce).time(bytes(2)) == seconds(5));
    CHECK(model_of(c, collective::all_reduce).time(bytes(10)) == seconds(11));
}

TEST_CASE("a single device does not communicate") {
    cluster c;
    c.types = {device("only", 100, 50)};
    c.machines = {{0, 1, 1}};
    cost_model const model(c, {{0, 1}});
    CHECK(model_of(c, collective::all_reduce).time(bytes(1e6)) == seconds(0));
    CHECK(model.time(transfer{collective::all_reduce, bytes(100), {}, {}, {}}, uniform_shares({1})) == 0);
}

TEST_CASE("an all-to-all shares each machine's link among its devices") {
    cluster c;
    c.types = {device("gpu", 100, 50)};
    c.machines = {{0, 4, 2}};
    c.intra = network_link{bytes_per_second(1000), seconds(0)};
    c.inter = network_link{bytes_per_second(10), seconds(0)};
    validate(c);
    // 4 of the 7 peers are outside; 4 devices send through one link.
    CHECK(model_of(c, collective::all_to_all).time(bytes(8)).value == doctest::Approx(7.0 / 8 * 4 * 4 / 7 * 8 / 10));
}

TEST_CASE("the payload is that of the busiest rank, padding included") {
    auto const model = small_model();
    auto const payload = [&](collective kind, std::optional<uneven> how = {}) {
        return heddle::payload(transfer{kind, bytes(60), {}, {}, how}, model.ranks(), 0.5, 0.4).value;
    };
    CHECK(payload(collective::all_reduce) == 60);
    CHECK(payload(collective::all_gather) == doctest::Approx(3 * 0.5 * 60));
    CHECK(payload(collective::reduce_scatter) == doctest::Approx(3 * 0.4 * 60));
    CHECK(payload(collective::all_to_all) == doctest::Approx(0.5 * 60));
    CHECK(payload(collective::broadcast) == 60);
    CHECK(payload(collective::all_gather, uneven::grouped) == 60);
    CHECK(payload(collective::reduce_scatter, uneven::grouped) == 60);
}

TEST_CASE("a gather is padded or grouped, whichever is faster at the shares it is priced at (HAP Fig. 4)") {
    // Eight equal devices on a ring of 100 bytes/s, 0.1 s per hop.
    cluster c;
    c.types = {device("gpu", 100, 50)};
    c.machines = {{0, 1, 8}};
    c.inter = network_link{bytes_per_second(100), seconds(0.1)};
    cost_model const model(c, std::vector<device_class>(8, {0, 1}));
    transfer const gather{collective::all_gather, bytes(800), {0, 0}, {}, {}};
    auto const cut = [](double largest) {
        return uniform_shares([&] {
            share_vector s(8, (1 - largest) / 7);
            s[0] = largest;
            return s;
        }());
    };
    // Padded: 8 shards as long as the largest, of which 7 pass each link. Grouped: 8 broadcasts of 3 hops, all shards
    // pass.
    auto const done = [&](uneven how, double largest) {
        auto one = gather;
        one.how = how;
        return model.time(one, cut(largest));
    };
    auto const padded = [&](double largest) { return done(uneven::padded, largest); };
    auto const grouped = [&](double largest) { return done(uneven::grouped, largest); };
    CHECK(padded(0.125) == doctest::Approx(7 * 0.1 + 7.0 / 8 * 800 / 100));
    CHECK(padded(0.5) == doctest::Approx(7 * 0.1 + 7.0 / 8 * 8 * 0.5 * 800 / 100));
    CHECK(grouped(0.125) == doctest::Approx(8 * 3 * 0.1 + 800 / 100.0));
    CHECK(grouped(0.5) == doctest::Approx(grouped(0.125)));
    CHECK(model.decided(gather, cut(0.125)).what.how == uneven::padded);
    CHECK(model.decided(gather, cut(0.5)).what.how == uneven::grouped);
    step_work s;
    s.forward_transfers = {gather};
    s.backward_transfers = {{collective::all_reduce, bytes(800), {}, {}, {}}};
    CHECK(model.price(s, cut(0.5)).forward_transfer == doctest::Approx(grouped(0.5)));
    CHECK(model.price(s, cut(0.5)).buffer == 800);
    auto const fixed = model.decided(s, cut(0.5));
    CHECK(fixed.forward_transfers[0].how == uneven::grouped);
    CHECK_FALSE(fixed.backward_transfers[0].how);
    // What is decided stays so at other shares.
    CHECK(model.price(fixed, cut(0.125)).forward_transfer == doctest::Approx(grouped(0.125)));
}

TEST_CASE("a roofline is the slower of arithmetic and traffic, and the start of the kernel") {
    auto const model = small_model();
    auto const time = [&](local_work const& k, std::size_t c, bool split, double s) {
        return model.time(k, c, {element_type::float32, operator_class::other}, split, s);
    };
    local_work const heavy{flops(1000), bytes(10), bytes(20), true}, light{flops(1), bytes(10), bytes(20), true};
    CHECK(time(heavy, 0, false, 1) == doctest::Approx(10));
    CHECK(time(heavy, 1, true, 0.5) == doctest::Approx(1000 * 0.5 / 40 + 1));
    CHECK(time(light, 0, true, 0.5) == doctest::Approx((10 + 20 * 0.5) / 50));
    CHECK(time(light, 1, true, 0.5) == doctest::Approx((10 + 20 * 0.5) / 20 + 1));
    CHECK(time(local_work{flops(1000), bytes(0), bytes(0), false}, 1, false, 1) == 0);
}

TEST_CASE("a group's devices have whole samples") {
    auto c = small_cluster();
    c.intra = network_link{bytes_per_second(100), seconds(0)};
    cost_model const model(c, {{0, 1, 4}, {1, 2, 1}});
    auto const parts = [&](extent samples, bool are_shared, std::optional<double> share) {
        holding const held{bytes(10), bytes(100), bytes(8), bytes(100), {samples, are_shared}};
        holding const mine = model.on_member(held, 0, share);
        CHECK(model.on_member(held, 1, share) == held); // a single device
        return std::pair((mine.whole.value - 2) / 8, mine.split.value / 100);
    };
    using pair = std::pair<double, double>;
    CHECK(parts(16, true, 0.125) == pair(0.25, 0.5)); // two of sixteen samples: a device has one
    CHECK(parts(16, true, 0.5) == pair(0.25, 0.25));
    CHECK(parts(16, true, std::nullopt) == pair(0.25, 0.25));
    CHECK(parts(2, false, 0.125) == pair(0.5, 0.5));
    CHECK(parts(6, false, std::nullopt).second == doctest::Approx(1 / 3.0));
    CHECK(parts(0, false, 0.5) == pair(0.25, 0.25));
    local_work const work{flops(1600), bytes(0), bytes(0), true, true, {}, {}, {}, 0, {16, true}};
    auto const time = [&](double share) {
        return model.time(work, 0, {element_type::float32, operator_class::other}, true, share);
    };
    CHECK(time(0.125) == doctest::Approx(1)); // a sample's flops
    CHECK(time(0.5) == doctest::Approx(2));
    for (double share = 0; share <= 1; share += 1.0 / 16)
        CHECK(model.least_time(work, 0, {element_type::float32, operator_class::other}, true, share) <= time(share));
}

TEST_CASE("efficiency by size follows the device's share, is above lines, and is none without arithmetic") {
    auto c = small_cluster();
    auto& efficiency = c.types[0].rates[element_type::float32].by_class[operator_class::matmul].efficiency;
    local_work const work{flops(1000), bytes(10), bytes(20), true};
    for (double least : {0.0, 0.3}) {
        efficiency = saturation{flops(200), least};
        cost_model const model(c, {{0, 1}, {1, 2}});
        auto const time = [&](local_work const& k, double share) {
            return model.time(k, 0, {element_type::float32, operator_class::matmul}, true, share);
        };
        CHECK(model.has_curves());
        double const part = 1 - (1 - least) * std::exp(-2.5);
        CHECK(time(work, 0.5) == doctest::Approx(500 / part / 100));
        CHECK(time(work, 1) == model.time(work, 0, {element_type::float32, operator_class::matmul}, false, 0.5));
        CHECK(time({flops(0), bytes(10), bytes(20), true}, 0.5) == doctest::Approx(20.0 / 50));
        CHECK(time(work, 0) == doctest::Approx(least == 0 ? 2 : 0.2)); // the scale, or what is moved
        for (double share = 0; share <= 1; share += 1.0 / 32) {
            double const below =
                model.least_time(work, 0, {element_type::float32, operator_class::matmul}, true, share);
            CHECK(below <= time(work, share) * (1 + 1e-12));
            CHECK(below >= (least == 0 ? 0.98 : 0.3) * time(work, share));
            CHECK(model.least_time(work, 1, {element_type::float32, operator_class::matmul}, true, share) ==
                  model.time(work, 1, {element_type::float32, operator_class::matmul}, true, share));
        }
    }
    for (saturation const wrong :
         {saturation{flops(0)}, saturation{flops(-1)}, saturation{flops(1), 1}, saturation{flops(1), -0.1}}) {
        efficiency = wrong;
        CHECK_THROWS_AS(validate(c), input_error);
    }
    CHECK_FALSE(small_model().has_curves());
}

TEST_CASE("speeds are those of the class, else of the device, else of another element type") {
    auto c = small_cluster();
    auto& by_class = c.types[0].rates[element_type::float32].by_class;
    by_class[operator_class::matmul] = {flops_per_second(500), {}, {}};
    by_class[operator_class::elementwise] = {{}, bytes_per_second(30), seconds(2)};
    cost_model const model(c, {{0, 1}, {1, 2}});
    auto const speed = [&](element_type e, operator_class o) {
        auto const& r = model.speed(0, {e, o});
        return std::array{r.rate, r.bandwidth, r.overhead};
    };
    CHECK(speed(element_type::float32, operator_class::matmul) == std::array{500.0, 50.0, 0.0});
    CHECK(speed(element_type::float32, operator_class::elementwise) == std::array{100.0, 30.0, 2.0});
    CHECK(speed(element_type::float32, operator_class::other) == std::array{100.0, 50.0, 0.0});
    CHECK(speed(element_type::float16, operator_class::matmul) == std::array{500.0, 50.0, 0.0});
    CHECK(model.time(local_work{flops(100), bytes(0), bytes(60), true}, 0,
                     {element_type::float32, operator_class::elementwise}, true, 0.5) == 0.5 * 60 / 30 + 2);
    CHECK(model.ranks() == 3);
    CHECK_THROWS_AS(cost_model(c, {{0, 1}}, element_type::float16), input_error);
    by_class[operator_class::other].bandwidth = bytes_per_second(0);
    CHECK_THROWS_AS(validate(c), input_error);
    by_class[operator_class::other] = {{}, {}, seconds(-1)};
    CHECK_THROWS_AS(validate(c), input_error);
}

TEST_CASE("conversions cost their collective and its adjoint, which is deferred for a parameter's gradient") {
    small_program const s;
    auto const check = [&](step_work const& t, std::optional<collective> forward, std::optional<collective> backward,
                           std::optional<collective> deferred) {
        auto const kind = [](transfer_list const& x) { return x.empty() ? std::nullopt : std::optional(x.at(0).kind); };
        CHECK(kind(t.forward_transfers) == forward);
        CHECK(kind(t.backward_transfers) == backward);
        CHECK(kind(t.deferred_transfers) == deferred);
    };
    using enum collective;
    check(s.of(instruction::convert(s.h, P, S0)), reduce_scatter, all_gather, {});
    check(s.of(instruction::convert(s.h, P, M)), all_reduce, {}, {});
    check(s.of(instruction::convert(s.h, M, R)), {}, all_reduce, {});
    check(s.of(instruction::convert(s.w, S1, R)), all_gather, {}, reduce_scatter);
    check(s.of(instruction::convert(s.x, S0, S1)), all_to_all, {}, {}); // no cotangent, no way back
    auto const cut = s.of(instruction::convert(s.h, R, S1));
    check(cut, {}, {}, {});
    CHECK(cut.forward == local_work{flops(0), bytes(0), bytes(2 * 48), true});
    CHECK(cut.backward == local_work{flops(0), bytes(48), bytes(48), true});
    CHECK(cut.share == share_ref{s.h, 1});
}

TEST_CASE("reads cost memory, the update, and the sum of a whole parameter's gradient") {
    small_program const s;
    auto const whole = s.of(instruction::read(s.w, R)), shard = s.of(instruction::read(s.w, S0)),
               mirrored = s.of(instruction::read(s.w, M));
    // Value, gradient, and 8 bytes of state per element of 4 bytes.
    CHECK(whole.stored == holding{bytes(72 * 4), bytes(0)});
    CHECK(shard.stored == holding{bytes(0), bytes(72 * 4)});
    CHECK(whole.update == holding{bytes(72 * 7), bytes(0)});
    CHECK(whole.deferred_transfers == transfer_list{{collective::all_reduce, bytes(72), {}, {}, {}}});
    CHECK(shard.deferred_transfers.empty());
    CHECK(mirrored.deferred_transfers.empty());
    auto const input = s.of(instruction::read(s.x, S0));
    CHECK(input.stored == holding{bytes(0), bytes(96)});
    CHECK(input.update == holding{});
}

TEST_CASE("the stages of ZeRO cost less memory: the state is in shards, then the gradient, then the value") {
    small_program const s;
    transfer const gather{collective::all_gather, bytes(72), {s.w, 1}, {}, {}},
        scatter{collective::reduce_scatter, bytes(72), {}, {s.w, 1}, {}};
    auto const state = s.of(instruction::read(s.w, S1, R)), mirrored = s.of(instruction::read(s.w, S1, M));
    // Value and gradient are whole; a device has the state of its shard, and updates that.
    CHECK(state.stored == holding{bytes(72 * 2), bytes(72 * 2)});
    CHECK(state.update == holding{bytes(0), bytes(72 * 7)});
    CHECK(state.share == share_ref{s.w, 1});
    CHECK(state.forward_transfers.empty());
    CHECK(state.backward_transfers.empty());
    CHECK(state.deferred_transfers == transfer_list{scatter});
    CHECK(state.update_transfers == transfer_list{gather});
    CHECK(mirrored.stored == state.stored);
    CHECK(mirrored.deferred_transfers.empty());
    CHECK(mirrored.update_transfers == transfer_list{gather});

    auto const kept = s.of(instruction::convert(s.w, S1, R));
    CHECK(kept.saved == holding{bytes(72), bytes(0)}); // the gradient, until the end
    CHECK(kept.transient == bytes(0));
    for (bool const is_resharded : {false, true}) {
        auto const unshard = s.of(instruction::unshard(s.w, S1, R, is_resharded));
        CHECK(unshard.forward_transfers == transfer_list{gather});
        CHECK(unshard.backward_transfers == transfer_list{scatter});
        CHECK(unshard.deferred_transfers.empty());
        CHECK(unshard.saved == holding{});
        CHECK(unshard.transient == bytes(72));
    }
    auto const reshard = s.of(instruction::reshard(s.w, R, S1));
    CHECK(reshard.forward_transfers.empty());
    CHECK(reshard.backward_transfers == transfer_list{gather});
    CHECK(s.of(instruction::unshard(s.w, S1, M, true)).backward ==
          local_work{flops(0), bytes(0), bytes(2 * 72), true}); // every device has the gradient
}

TEST_CASE("an operator's whole copies come and go with their gradients or a buffer") {
    using enum instruction::kind;
    auto const step = [](double buffer, double transient) {
        return step_cost{0, 0, 0, {}, {}, {}, {}, buffer, transient};
    };
    momentary_memory m;
    m.add(convert, step(150, 0));
    CHECK(m.most() == 150);
    m.add(compute, step(0, 0));
    m.add(read, step(0, 0));
    m.add(unshard, step(100, 80)); // the copy and a padded buffer
    CHECK(m.most() == 180);
    m.add(unshard, step(12, 10));
    CHECK(m.most() == 180); // two copies and two gradients
    m.add(compute, step(0, 0));
    m.add(reshard, step(100, 0)); // both copies, the first of them just gathered again
    CHECK(m.most() == 190);
    m.add(reshard, step(12, 0));
    m.add(unshard, step(90, 90)); // those before are gone
    CHECK(m.most() == 190);
    m.add(compute, step(0, 0));
    m.add(convert, step(95, 0));
    CHECK(m.most() == 190);
}

TEST_CASE("an unsharded parameter closes a stage before its operator's backward work and one after it") {
    serial const clock(2);
    auto l = clock.initial();
    per_class const none(2, 0.0);
    clock.extend(l, {2, 3, 0, none, none, none, none, 0}); // unshard: gather, and backward scatter
    clock.extend(l, {0, 0, 0, {4, 1}, {5, 1}, none, none, 0});
    clock.extend(l, {0, 2, 0, none, none, none, none, 0}); // reshard: backward gather
    clock.extend(l, {0, 0, 0, none, {1, 6}, none, none, 0});
    // Gather; then forward work 4 and 1 with the last operator's backward work 1 and 6; gather; backward work 5 and 1;
    // scatter.
    CHECK(clock.total(l) == 2 + 7 + 2 + 5 + 3);
}

TEST_CASE("a computation costs its operands' bytes, and its operations") {
    small_program const s;
    for (auto const& i : computations(s.p, 0)) {
        auto const t = s.of(i);
        CHECK(t.category == operator_class::matmul);
        CHECK(t.forward.operations == flops(2 * 4 * 6 * 3));
        CHECK(t.backward.operations == flops(2 * 4 * 6 * 3)); // of the weight alone
        CHECK(t.share.is_split() == (i.loop >= 0));
        if (i.operands[0] != S0) continue;
        // x and h are cut, w is whole.
        CHECK(t.forward.split == bytes(96 + 48));
        CHECK(t.forward.whole == bytes(72));
        // Read: the saved x and h's cotangent; written: w's gradient.
        CHECK(t.backward.split == bytes(96 + 48));
        CHECK(t.backward.whole == bytes(72));
    }
    std::vector<std::pair<tensor_id, tensor_form>> saved;
    for (auto const& i : computations(s.p, 1))
        if (i.operands[0] == S1) for_each_saved(s.p, i, [&](tensor_id t, tensor_form f) { saved.push_back({t, f}); });
    CHECK(saved == std::vector<std::pair<tensor_id, tensor_form>>{{s.y, S1}});
}

TEST_CASE("a kind of operator may have a speed of its own in each pass, which nothing else limits") {
    auto c = small_cluster();
    auto& table = c.types[0].rates[element_type::float32];
    table.by_class[operator_class::elementwise] = {flops_per_second(200), bytes_per_second(30), seconds(2)};
    table.by_operator[{"gelu", true}] = {{}, bytes_per_second(10), seconds(1)};
    cost_model const model(c, {{0, 1}, {1, 2}});
    step_work s;
    s.category = operator_class::elementwise;
    s.kind = "gelu";
    s.forward = s.backward = {flops(1000), bytes(20), bytes(0), true};
    auto const cost = model.price(s, uniform_shares({0.5, 0.25}));
    CHECK(cost.forward[0] == 1000.0 / 200 + 2);
    CHECK(cost.backward[0] == 20.0 / 10 + 1);
    CHECK(cost.backward[1] ==
          model.time(s.backward, 1, {element_type::float32, operator_class::elementwise}, false, 1));
    s.kind = "relu";
    CHECK(model.price(s, uniform_shares({0.5, 0.25})).backward[0] == 1000.0 / 200 + 2);
    table.by_operator[{"gelu", true}].bandwidth = bytes_per_second(0);
    CHECK_THROWS_AS(validate(c), input_error);
}

TEST_CASE("a kernel that was measured, whole or a half of what is split, takes as long as it did then") {
    auto c = small_cluster();
    auto& table = c.types[0].rates[element_type::float32];
    table.by_operator[{"gelu", false}] = {flops_per_second(100),
                                          bytes_per_second(10),
                                          seconds(1),
                                          {},
                                          {{flops(400), bytes(60), 3}, {flops(800), bytes(20), 0.5}}};
    validate(c);
    cost_model const model(c, {{0, 2}});
    kernel_kind const gelu{element_type::float32, operator_class::elementwise, "gelu", false};
    auto const time = [&](local_work const& work, bool split, double share) {
        double const t = model.time(work, 0, gelu, split, share);
        CHECK(t == doctest::Approx(model.least_time(work, 0, gelu, split, share)));
        return t;
    };
    CHECK(time({flops(800), bytes(20), bytes(0), true}, false, 1) == doctest::Approx(0.5 * (8 + 1)));
    CHECK(time({flops(801), bytes(20), bytes(0), true}, false, 1) == doctest::Approx(8.01 + 1));
    CHECK(time({flops(800), bytes(21), bytes(0), true}, false, 1) == doctest::Approx(8 + 1));
    // A half of this was measured: 400 flops and 60 bytes.
    local_work const cut{flops(800), bytes(20), bytes(80), true};
    CHECK(time(cut, true, 0.5) == doctest::Approx(3 * (6 + 1)));
    CHECK(time(cut, true, 0.25) == doctest::Approx(3 * (4 + 1)));
    table.by_operator[{"gelu", false}].measured[0].factor = 0;
    CHECK_THROWS_AS(validate(c), input_error);
}

TEST_CASE("a sample of a kernel has the share of what it computes and moves, in the type of the device") {
    step_work s;
    s.category = operator_class::elementwise;
    s.kind = "gelu";
    s.forward = {flops(1000), bytes(20), bytes(40), true};
    s.backward = {flops(3000), bytes(0), bytes(80), true, false, {}, {}, {bytes(4), bytes(8)}, 2};
    auto const forward = sample_of(s, false, "A", element_type::float64, 0.5);
    CHECK(std::get<operator_class>(forward.what) == operator_class::elementwise);
    CHECK(forward.device == "A");
    CHECK(forward.type == element_type::float64);
    CHECK(forward.work == flops(500));
    CHECK(forward.size == bytes(80)); // of float32 it is half
    CHECK(forward.of == operator_pass{"gelu", false});
    CHECK(forward.kernels_beside == 0);
    auto const backward = sample_of(s, true, "A", element_type::float32);
    CHECK(backward.size == bytes(80));
    CHECK(backward.beside == bytes(12));
    CHECK(backward.kernels_beside == 2);
    s.kind = "";
    CHECK(!sample_of(s, true, "A", element_type::float32).of);

    program_builder b; // what is used twice has cotangents that no call adds up
    auto const x = b.apply("exp", "(b k) -> (b k)", {b.parameter("w", {2, 3})}, {});
    auto const y = b.apply("add", "(b k), (b k) -> (b k); 0 + 1", {x, x}, {});
    auto const p = b.finish(b.apply("sum", "(b k) -> (); 0", {y}, {.category = operator_class::reduction}));
    auto const beside = [](indexed_program const& of) {
        return make_step(of, whole_computation(of, 0), {}).backward.kernels_beside;
    };
    CHECK(beside(index_program(p)) == 1);
    CHECK(beside(index_calls(p)) == 0);
}

TEST_CASE("small kernels beside copy parts that are not contiguous, and gradients") {
    small_program const s; // h (4 3)
    // Rows are contiguous, columns are not: on the whole side all 12 elements are read and written, between two cuts
    // the shard of columns.
    CHECK(s.of(instruction::convert(s.h, S0, R)).forward.kernels_beside == 0);
    auto const columns = s.of(instruction::convert(s.h, S1, R));
    CHECK(columns.forward.kernels_beside == 1);
    CHECK(columns.forward.beside == holding{bytes(2 * 48), bytes(0)});
    CHECK(columns.backward.beside == columns.forward.beside);
    CHECK_FALSE(columns.forward.launches);
    auto const exchange = s.of(instruction::convert(s.h, S0, S1));
    CHECK(exchange.forward.beside == holding{bytes(0), bytes(2 * 48)});
    CHECK(exchange.forward.kernels_beside == 1);
    CHECK(s.of(instruction::convert(s.h, R, S1)).forward.kernels_beside == 0);  // a slice, but
    CHECK(s.of(instruction::convert(s.h, R, S1)).backward.kernels_beside == 0); // no collective
    CHECK(s.of(instruction::convert(s.w, S1, R)).forward.kernels_beside == 0);  // stored as sent

    auto const read = instruction::read(s.w, R);
    auto const plain = make_step(s.p, read, {}), copied = make_step(s.p, read, {.copies_gradients = true});
    CHECK(plain.backward.kernels_beside == 0);
    CHECK(copied.backward.beside == holding{bytes(4 * 72), bytes(0)}); // in, and scaled
    CHECK(copied.backward.kernels_beside == 2);
    CHECK(copied.update.whole == plain.update.whole + bytes(2 * 72)); // back
    CHECK(copied.stored.whole == plain.stored.whole + bytes(72));

    auto const model = small_model();
    local_work const work{flops(1000), bytes(10), bytes(20), true, false, {}, {}, {bytes(40), bytes(80)}, 2};
    local_work const alone{{}, {}, {}, false, false, {}, {}, {bytes(40), bytes(80)}, 2};
    auto const time = [&](local_work const& k) {
        return model.time(k, 1, {element_type::float32, operator_class::other}, true, 0.5);
    };
    CHECK(time(alone) == doctest::Approx((40 + 40) / 20.0 + 2 * 1));
    CHECK(time(work) == doctest::Approx(500 / 40.0 + 1 + time(alone)));
}

TEST_CASE("a step is priced in seconds and bytes per class") {
    auto const model = small_model();
    uniform_shares const shares({0.5, 0.25});
    step_work s;
    s.share = {0, 0};
    s.forward = {flops(1000), bytes(0), bytes(0), true};
    s.forward_transfers = {{collective::all_gather, bytes(20), {0, 0}, {}, {}}};
    s.update = {bytes(10), bytes(40)};
    s.stored = {bytes(100), bytes(1000)};
    auto const cost = model.price(s, shares);
    CHECK(cost.forward[0] == doctest::Approx(5));
    CHECK(cost.forward[1] == doctest::Approx(250.0 / 40 + 1));
    CHECK(cost.forward_transfer == doctest::Approx(1 + 2.0 / 3 * (3 * 0.5 * 20) / 10));
    CHECK(cost.buffer == doctest::Approx(30));
    CHECK(cost.update[0] == doctest::Approx((10 + 20) / 50.0));
    CHECK(cost.update[1] == doctest::Approx((10 + 10) / 20.0));
    CHECK(cost.memory[0] == doctest::Approx(600));
    CHECK(cost.memory[1] == doctest::Approx(350));

    cost_model const of_first(small_cluster(), {{0, 1}, {1, 2}}, element_type::float32, {},
                              1); // the others take part in collectives alone
    CHECK(of_first.class_count() == 1);
    auto const less = of_first.price(s, shares);
    CHECK(less.forward.size() == 1);
    CHECK(less.forward[0] == cost.forward[0]);
    CHECK(less.memory[0] == cost.memory[0]);
    for (auto how : {uneven::padded, uneven::grouped}) {
        transfer t{collective::all_gather, bytes(20), {0, 0}, {}, {}};
        t.how = how;
        CHECK(of_first.time(t, shares) == model.time(t, shares));
    }
}

TEST_CASE("under serial a collective waits for the slowest, in its own direction only") {
    serial const clock(2);
    auto l = clock.initial();
    auto const none = per_class(2, 0.0);
    clock.extend(l, {0, 0, 0, {3, 1}, {1, 5}, {2, 0}, none, 0});
    CHECK(clock.total(l) == 6 + 2);
    clock.extend(l, {10, 0, 4, none, none, none, none, 0});
    // The first's three seconds are closed; backward work stays open.
    CHECK(l.closed == 13);
    CHECK(clock.total(l) == 13 + 5 + 4 + 2);
    clock.extend(l, {0, 0, 0, {0, 2}, none, {0, 3}, none, 0});
    CHECK(clock.total(l) == 13 + 7 + 4 + 3);
}

TEST_CASE("comparing closed time alone would be wrong") {
    // After less closed time and more open work on one class, a step on that class shows it.
    serial const clock(2);
    serial::label const a{1, 0, {9, 0}, {0, 0}, {0, 0}}, b{2, 0, {0, 9}, {0, 0}, {0, 0}};
    CHECK(a.closed < b.closed);
    CHECK_FALSE(clock.dominates(a, b));
    CHECK_FALSE(clock.dominates(b, a));
    serial::label const c{1, 0, {1, 9}, {0, 0}, {0, 0}};
    CHECK(clock.dominates(c, b)); // one second behind on the first class, one ahead in closed time
}

TEST_CASE("two operators between two collectives take what HAP's Fig. 11 shows") {
    // Uneven shares balance the stage before the collective and leave the one after it to the slow device.
    auto const model = cost_model(small_cluster(), {{0, 1}, {1, 1}, {1, 1}});
    step_work first, second;
    first.share = second.share = {0, 0};
    first.forward = {flops(800), bytes(0), bytes(0), true};
    second.forward = {flops(400), bytes(0), bytes(0), true};
    second.forward_transfers = {{collective::all_reduce, bytes(30), {}, {}, {}}};
    uniform_shares const shares({0.5, 0.25, 0.25});
    std::array const steps{first, second};
    auto const run = run_serial(steps, model, shares);
    // Stage 1: 4 on the fast, 5 + 1 on the slow ones; the collective; stage 2: 2, and 2.5 + 1.
    double const collective_seconds = 2 + 4.0 / 3 * 3;
    CHECK(run.total == doctest::Approx(6 + collective_seconds + 3.5));
    CHECK(run.events.size() == 9);
    CHECK(run.events[3].transfer == 0);
    CHECK(run.events[3].start == doctest::Approx(6));
}
