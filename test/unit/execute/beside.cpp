// SPDX-License-Identifier: BSL-1.0
// What runs beside what: the order in which a rank starts collectives, waits for them and computes.
#include "kernels.hpp"
#include "trap.hpp"

#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/theory/micro_batch.hpp>

#include <support/forms.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

using script = std::vector<std::string>;
using test::P, test::R, test::S0, test::S1;

/// Writes down what one rank starts and waits for.
class recording_communicator : public waits_at_once<recording_communicator> {
public:
    class request {
    public:
        request() = default;
        request(in_process_request started, script& log, std::string name)
            : started_(std::move(started)), log_(&log), name_(std::move(name)) {}
        void wait() {
            if (log_) std::exchange(log_, nullptr)->push_back("wait " + name_);
            started_.wait();
        }

    private:
        in_process_request started_;
        script* log_ = nullptr;
        std::string name_;
    };

    recording_communicator(in_process_communicator& ranks, script& log) : ranks_(ranks), log_(log) {}
    [[nodiscard]] std::size_t rank() const { return ranks_.rank(); }
    [[nodiscard]] std::size_t size() const { return ranks_.size(); }

    [[nodiscard]] request start_all_reduce(std::span<double> data, reduction how = reduction::sum) {
        return started("all_reduce", ranks_.start_all_reduce(data, how));
    }
    [[nodiscard]] request start_all_gather_v(std::span<double const> mine, std::span<double> whole, shard_counts counts,
                                             uneven how) {
        return started("all_gather", ranks_.start_all_gather_v(mine, whole, counts, how));
    }
    [[nodiscard]] request start_reduce_scatter_v(std::span<double const> whole, std::span<double> mine,
                                                 shard_counts counts, uneven how) {
        return started("reduce_scatter", ranks_.start_reduce_scatter_v(whole, mine, counts, how));
    }
    [[nodiscard]] request start_all_to_all_v(std::span<double const> send, shard_counts send_counts,
                                             std::span<double> receive, shard_counts receive_counts) {
        return started("all_to_all", ranks_.start_all_to_all_v(send, send_counts, receive, receive_counts));
    }
    [[nodiscard]] request start_broadcast(std::span<double> data, std::size_t root) {
        return started("broadcast", ranks_.start_broadcast(data, root));
    }

private:
    [[nodiscard]] request started(std::string const& name, in_process_request what) {
        std::string const numbered = name + " " + std::to_string(++count_);
        log_.push_back("start " + numbered);
        return {std::move(what), log_, numbered};
    }

    in_process_communicator& ranks_;
    script& log_;
    int count_ = 0;
};
static_assert(asynchronous_communicator_of<recording_communicator, double>);

/// Writes down what one rank computes.
class recording_kernels {
public:
    using tensor = dense_tensor<double>;
    using tensor_span = std::span<tensor const* const>;

    explicit recording_kernels(script& log) : log_(log) {}
    [[nodiscard]] std::vector<tensor> forward(tensor_call<tensor> const& call, tensor_span x) const {
        log_.push_back(std::string(call.kind));
        return test::kernels().forward(call, x);
    }
    [[nodiscard]] std::vector<std::optional<tensor>> backward(tensor_call<tensor> const& call, tensor_span x,
                                                              tensor_span y, tensor_span g) const {
        log_.push_back(std::string(call.kind) + "*");
        return test::kernels().backward(call, x, y, g);
    }

private:
    script& log_;
};

/// Returns what the first rank does in an iteration.
script done(program const& p, plan const& what) {
    script log;
    auto const indexed = index_for(p, what);
    auto const sources = random_sources<double>(p, 1);
    run_ranks(what.devices.size(), [&](in_process_communicator& world) {
        script of_another;
        script& mine = world.rank() == 0 ? log : of_another;
        recording_communicator communicator(world, mine);
        recording_kernels const kernels(mine);
        interpreter<double, recording_communicator, recording_kernels> run(p, indexed, what, communicator, kernels, 1);
        static_cast<void>(run.run(run.place(sources)));
    });
    return log;
}

} // namespace

TEST_CASE("a gradient is started when it is there, and waited for at the end") {
    test::trap t;
    auto const x = t.input({4, 6}), w = t.weight({6}), v = t.weight({6});
    auto const y = t.add("mul", {x, w}, {4, 6});
    auto const z = t.add("add", {y, v}, {4, 6});
    t.finish(t.add("sum", {z}, {}));
    t.read(x, S0).read(w, R).compute({S0, R}, {S0}).read(v, R).compute({S0, R}, {S0}).compute({S0}, {P});
    auto what = t.planned({0.5, 0.5});
    what.provenance.training.bucket = bytes(0);
    CHECK(done(t.single_device(), what) == script{"mul", "add", "sum", "sum*", "add*", "start all_reduce 1", "mul*",
                                                  "start all_reduce 2", "wait all_reduce 1", "wait all_reduce 2"});
    what.provenance.training.bucket = bytes(1e6); // both in one
    CHECK(done(t.single_device(), what) ==
          script{"mul", "add", "sum", "sum*", "add*", "mul*", "start all_reduce 1", "wait all_reduce 1"});
}

TEST_CASE("what a collective brings is waited for where it is used first") {
    test::trap t;
    auto const x = t.input({4, 6}), w = t.weight({4, 6}), v = t.weight({4, 6});
    auto const y = t.add("mul", {x, w}, {4, 6});
    auto const z = t.add("mul", {x, v}, {4, 6});
    t.finish(t.add("sum", {t.add("add", {y, z}, {4, 6})}, {}));
    t.read(x, S1).read(w, S1).compute({S1, S1}, {S1}).convert(y, S1, S0);
    t.read(v, S0).convert(x, S1, S0).compute({S0, S0}, {S0});
    t.compute({S0, S0}, {S0}).compute({S0}, {P});
    CHECK(done(t.single_device(), t.planned({0.5, 0.5})) ==
          script{"mul", "start all_to_all 1", "start all_to_all 2", "wait all_to_all 2", "mul", "wait all_to_all 1",
                 "add", "sum", "sum*", "add*", "mul*", "start all_to_all 3", "wait all_to_all 3", "mul*"});
}

TEST_CASE("a micro-batch computes beside the collectives of the other") {
    test::trap t;
    auto const x = t.input({8, 6}), w = t.weight({6});
    auto const y = t.add("mul", {x, w}, {8, 6});
    t.finish(t.add("sum", {t.add("relu", {y}, {8, 6})}, {}));
    t.read(x, S1).read(w, S0).compute({S1, S0}, {S1}).convert(y, S1, S0).compute({S0}, {S0}).compute({S0}, {P});
    auto const& p = t.single_device();
    CHECK(done(p, t.planned_in_turn(2)) ==
          script{"mul",
                 "start all_to_all 1", // of the first, beside the computation of the second
                 "mul",
                 "start all_to_all 2", // of the second, beside that of the first
                 "wait all_to_all 1",
                 "relu",
                 "sum",
                 "wait all_to_all 2",
                 "relu",
                 "sum",
                 "sum*",
                 "relu*",
                 "start all_to_all 3", // of the first, beside that of the second
                 "sum*",
                 "relu*",
                 "start all_to_all 4",
                 "wait all_to_all 3",
                 "mul*",
                 "wait all_to_all 4",
                 "mul*"});
}

TEST_CASE("a kernel waits for statistics of rows when its micro-batch has its turn, with nothing beside") {
    test::trap t;
    auto const x = t.input({8, 6}), w = t.weight({6});
    auto const y = t.add("mul", {x, w}, {8, 6});
    t.finish(t.add("sum", {t.add("softmax", {y}, {8, 6}, {test::number(1)})}, {}));
    t.read(x, S1).read(w, S0).compute({S1, S0}, {S1}).compute({S1}, {S1}).compute({S1}, {P});
    auto const& p = t.single_device();
    CHECK(done(p, t.planned_in_turn(2)) == script{"mul",
                                                  "softmax",
                                                  "start all_reduce 1",
                                                  "wait all_reduce 1",
                                                  "start all_reduce 2",
                                                  "wait all_reduce 2",
                                                  "sum",
                                                  "mul", // the second, after all of that
                                                  "softmax",
                                                  "start all_reduce 3",
                                                  "wait all_reduce 3",
                                                  "start all_reduce 4",
                                                  "wait all_reduce 4",
                                                  "sum",
                                                  "sum*",
                                                  "softmax*",
                                                  "start all_reduce 5",
                                                  "wait all_reduce 5",
                                                  "mul*",
                                                  "sum*",
                                                  "softmax*",
                                                  "start all_reduce 6",
                                                  "wait all_reduce 6",
                                                  "mul*"});
}
