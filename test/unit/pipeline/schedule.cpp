// SPDX-License-Identifier: BSL-1.0
#include <heddle/plan/schedule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
static_assert(pipeline_schedule<gpipe>);
static_assert(pipeline_schedule<one_f_one_b>);
static_assert(pipeline_schedule<oobleck_estimate>);
static_assert(!pipeline_schedule<pipeline_shape>);

/// The most activations each stage holds when every device runs its passes in the published order, warm-up first.
std::vector<std::int64_t> held(std::size_t k, std::size_t v, std::size_t m) {
    std::vector<std::int64_t> most(k * v);
    for (std::size_t d = 0; d < k; ++d) {
        std::vector<std::pair<std::size_t, std::size_t>> forward; // chunk, micro-batch
        for (std::size_t group = 0; group < m; group += k)
            for (std::size_t c = 0; c < v; ++c)
                for (std::size_t i = 0; i < k; ++i) forward.emplace_back(c, group + i);
        if (v == 1) std::ranges::sort(forward);
        auto backward = forward;
        for (auto& [c, i] : backward) c = v - 1 - c;
        std::size_t const warm_up = std::min(forward.size(), v == 1 ? k - d - 1 : 2 * (k - d - 1) + (v - 1) * k);
        std::vector<std::int64_t> now(v);
        auto const run = [&](std::size_t n) {
            most[forward[n].first * k + d] = std::max(most[forward[n].first * k + d], ++now[forward[n].first]);
        };
        for (std::size_t n = 0; n < warm_up; ++n) run(n);
        for (std::size_t n = 0; n < backward.size(); ++n) {
            if (warm_up + n < forward.size()) run(warm_up + n);
            --now[backward[n].first];
        }
    }
    return most;
}

} // namespace

TEST_CASE("1F1B holds a micro-batch per stage still to come") {
    for (std::size_t k : {1u, 2u, 5u})
        for (std::int64_t m : {1, 2, 3, 4, 5, 6, 20}) {
            CAPTURE(k);
            CAPTURE(m);
            CHECK(one_f_one_b{}.bottleneck_weight({k, m}) == m - 1);
            for (std::size_t s = 0; s < k; ++s)
                CHECK(one_f_one_b{}.in_flight(s, {k, m}) == std::min(m, static_cast<std::int64_t>(k - s)));
        }
    CHECK(gpipe{}.in_flight(3, {4, 7}) == 7);
    CHECK(gpipe{}.bottleneck_weight({4, 7}) == 6);
}

TEST_CASE("interleaved 1F1B divides the idle time by the chunks") {
    pipeline_shape const x{4, 8};
    double const stage = 6; // seconds
    for (std::size_t v : {1u, 2u, 3u}) {
        auto const chunk = stage / static_cast<double>(v);
        double const all = static_cast<double>(one_f_one_b{v}.bottleneck_weight(x)) * chunk + 4 * stage;
        CHECK(all == doctest::Approx(8 * stage + 3 * chunk));
    }
    CHECK(one_f_one_b{2}.can_run({4, 6})); // in one group
    CHECK_FALSE(one_f_one_b{2}.can_run({4, 9}));
    CHECK_FALSE(one_f_one_b{2}.can_run({4, 3}));
    CHECK_FALSE(one_f_one_b{0}.can_run({4, 8}));
    CHECK(one_f_one_b{1}.can_run({4, 6}));
}

TEST_CASE("interleaved 1F1B holds what its order of passes makes it hold") {
    for (std::size_t k : {1u, 2u, 3u, 4u})
        for (std::size_t v : {1u, 2u, 3u, 4u})
            for (std::size_t m = k; m <= 12 * k; m += k) {
                auto const most = held(k, v, m);
                for (std::size_t s = 0; s < k * v; ++s) {
                    CAPTURE(k);
                    CAPTURE(v);
                    CAPTURE(m);
                    CAPTURE(s);
                    auto const claimed = one_f_one_b{v}.in_flight(s, {k, static_cast<std::int64_t>(m)});
                    CHECK(claimed >= most[s]);
                    if (m >= 4 * k) CHECK(claimed == most[s]);
                }
            }
}

TEST_CASE("passes run every micro-batch once in either direction, in order, with no more in flight than is said") {
    auto const check = [](auto const& schedule) {
        for (std::size_t stages = 1; stages <= 4; ++stages)
            for (std::int64_t m = 1; m <= 6; ++m)
                for (std::size_t s = 0; s < stages; ++s) {
                    std::int64_t forward = 0, backward = 0, most = 0;
                    for (auto const& pass : schedule.passes(s, {stages, m})) {
                        CHECK(pass.micro_batch == (pass.is_forward ? forward++ : backward++));
                        CHECK(backward <= forward);
                        most = std::max(most, forward - backward);
                    }
                    CHECK(forward == m);
                    CHECK(backward == m);
                    CHECK(most == schedule.in_flight(s, {stages, m}));
                }
    };
    check(one_f_one_b{});
    check(gpipe{});
    auto const order = one_f_one_b{}.passes(1, {3, 3});
    CHECK(order == std::vector<pipeline_pass>{{true, 0}, {true, 1}, {false, 0}, {true, 2}, {false, 1}, {false, 2}});
}

TEST_CASE("passes of several rounds end, hold what is said, and take messages in the order in which they are sent") {
    for (std::size_t k : {2u, 3u, 4u})
        for (std::size_t v : {1u, 2u, 3u, 4u})
            for (std::size_t m = 1; m <= 5 * k; ++m) {
                CAPTURE(k);
                CAPTURE(v);
                CAPTURE(m);
                one_f_one_b const schedule{v};
                pipeline_shape const x{k, static_cast<std::int64_t>(m)};
                if (!schedule.can_run(x)) continue;
                std::vector<std::vector<pipeline_pass>> passes;
                for (std::size_t d = 0; d < k; ++d) passes.push_back(schedule.passes(d, x));
                // Messages by device that sends and that receives: the stage that has them, micro-batch and way.
                using message = std::tuple<std::size_t, std::int64_t, bool>;
                std::map<std::pair<std::size_t, std::size_t>, std::vector<message>> sent, received;
                std::vector<std::int64_t> held(k * v), most(k * v), forward(k * v), backward(k * v);
                std::vector<std::size_t> next(k);
                std::set<std::tuple<std::size_t, std::int64_t, bool>> done;
                for (bool moves = true; moves;) {
                    moves = false;
                    for (std::size_t d = 0; d < k; ++d) {
                        if (next[d] == passes[d].size()) continue;
                        auto const [is_forward, i, round] = passes[d][next[d]];
                        std::size_t const s = round * k + d, last = k * v - 1;
                        auto const before = is_forward ? s - 1 : s + 1, behind = is_forward ? s + 1 : s - 1;
                        bool const is_first = s == (is_forward ? 0 : last), ends = s == (is_forward ? last : 0);
                        if (!is_first && !done.contains({before, i, is_forward})) continue;
                        if (is_first && !is_forward) CHECK(done.contains({s, i, true}));
                        if (!is_first) received[{before % k, d}].emplace_back(before, i, is_forward);
                        if (!ends) sent[{d, behind % k}].emplace_back(s, i, is_forward);
                        done.emplace(s, i, is_forward);
                        held[s] += is_forward ? 1 : -1;
                        most[s] = std::max(most[s], held[s]);
                        CHECK(i == (is_forward ? forward : backward)[s]++);
                        ++next[d];
                        moves = true;
                    }
                }
                CHECK(done.size() == 2 * k * v * m);
                CHECK(sent == received);
                for (std::size_t s = 0; s < k * v; ++s) CHECK(most[s] == schedule.in_flight(s, x));
            }
}

TEST_CASE("devices of two rounds run Megatron's order") {
    auto const f = [](std::int64_t m, std::size_t round) { return pipeline_pass{true, m, round}; };
    auto const b = [](std::int64_t m, std::size_t round) { return pipeline_pass{false, m, round}; };
    CHECK(one_f_one_b{2}.passes(0, {2, 4}) == std::vector{f(0, 0), f(1, 0), f(0, 1), f(1, 1), f(2, 0), b(0, 1), f(3, 0),
                                                          b(1, 1), f(2, 1), b(0, 0), f(3, 1), b(1, 0), b(2, 1), b(3, 1),
                                                          b(2, 0), b(3, 0)});
    CHECK(one_f_one_b{2}.passes(1, {2, 2}) ==
          std::vector{f(0, 0), f(1, 0), f(0, 1), b(0, 1), f(1, 1), b(1, 1), b(0, 0), b(1, 0)});
    CHECK(one_f_one_b{2}.group({2, 4}) == 2);
    CHECK(one_f_one_b{2}.group({11, 16}) == 16);
    CHECK(one_f_one_b{2}.group({4, 10}) == 5);
}
