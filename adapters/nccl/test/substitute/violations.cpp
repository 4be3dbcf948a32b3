// SPDX-License-Identifier: BSL-1.0
// What the substitute has to catch, and what the adapter does about errors.
#include "ranks.hpp"

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace heddle;
using test::contains;
using test::device_array;
using test::on_ranks;
using test::problem_of;

namespace substitute = test::substitute;

namespace {

/// Returns what a process of its own writes and its exit status, when it does this.
template <class Work>
std::pair<std::string, int> in_process(Work&& work) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    auto const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        work();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    std::array<char, 256> some{};
    for (ssize_t n = 0; (n = ::read(ends[0], some.data(), some.size())) > 0;)
        said.append(some.data(), static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return {said, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

/// Returns the only clique of two ranks and its stream, by calls of NCCL without the adapter.
struct raw {
    nccl::detail::link link;
    raw(test::shared_store& shared, std::size_t rank)
        : link(
              [&] {
                  if (rank == 0) shared.set("raw", nccl::detail::new_id());
                  return shared.get("raw", seconds(60));
              }(),
              2, rank, seconds(60), {.name = "joining"}, std::make_shared<nccl::detail::watchdog>(seconds(60))) {
        link.settle({.name = "joining"});
    }
};
template <class Work>
std::string problem_of_raw(Work&& work) {
    test::shared_store shared;
    return problem_of([&] {
        substitute::run(2, [&](std::size_t rank) {
            raw own(shared, rank);
            ncclComm_t comm = nullptr;
            own.link.enqueue({.name = "asking"}, [&](ncclComm_t c, cudaStream_t) { return comm = c, ncclSuccess; });
            work(rank, comm, own.link.stream());
        });
    });
}

} // namespace

TEST_CASE("a dropped wait is caught: what uses the output of a collective, and what changes its input") {
    auto const read = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> data({1.0, 2.0}, on);
            auto const dropped = world.start_all_reduce(data.out());
            (void)data.values("kernel");
        });
    });
    CHECK(contains(read, "kernel reads what all-reduce of 2 doubles writes, and does not wait for it"));
    auto const changed = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> const mine({1.0}, on);
            device_array<double> whole({0.0, 0.0}, on);
            auto const dropped =
                world.start_all_gather_v(mine.in(), whole.out(), std::vector<std::size_t>{1, 1}, uneven::grouped);
            const_cast<device_array<double>&>(mine).write("kernel", {3.0});
        });
    });
    CHECK(contains(changed, "kernel writes what broadcast of 1 doubles"));
}

TEST_CASE("a collective on what is still being computed is caught") {
    auto const on_another_stream = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> data({1.0}, on);
            nccl::stream const other; // on which the communicator does not wait
            nccl::event made;
            made.record(on);
            made.hold(other.get());
            substitute::launch(other.get(), "kernel", {}, {data.out()}, [] {});
            world.all_reduce(data.out());
        });
    });
    CHECK(contains(on_another_stream, "all-reduce of 1 doubles reads what kernel writes, and does not wait for it"));
    auto const without_an_event = problem_of_raw([](std::size_t, ncclComm_t comm, cudaStream_t on) {
        nccl::stream const computation;
        device_array<double> data({1.0}, computation.get());
        ncclAllReduce(data.in().data(), data.out().data(), 1, ncclDouble, ncclSum, comm, on);
    });
    CHECK(contains(without_an_event, "all-reduce of 1 doubles reads what filling writes"));
}

TEST_CASE("what a graph cannot record is caught") {
    auto const recorded = [](auto&& work) {
        return problem_of([&] {
            on_ranks(2, [&](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0, 2.0}, on);
                world.all_reduce(data.out());
                nccl::event before;
                before.record(on);
                substitute::recording graph(on);
                work(world, data, on, before);
                graph.end();
            });
        });
    };
    CHECK(recorded([](auto& world, auto& data, cudaStream_t, auto&) {
              for (int n = 0; n < 2; ++n) world.all_reduce(data.out());
          }) == "nothing thrown");
    CHECK(contains(recorded([](auto& world, auto& data, cudaStream_t, auto&) {
                       auto const dropped = world.start_all_reduce(data.out());
                   }),
                   "what is recorded on a stream is not waited for at the end"));
    CHECK(contains(recorded([](auto&, auto&, cudaStream_t on, auto& before) { before.hold(on); }),
                   "a stream waits for an event of another recording, or of none"));
    CHECK(contains(recorded([](auto&, auto&, cudaStream_t, auto&) {
                       nccl::stream const other;
                       nccl::device_memory<double> const more(1, other.get());
                   }),
                   "taking memory is enqueued on a stream that is not recorded"));
    CHECK(contains(recorded([](auto&, auto&, cudaStream_t on, auto& event) {
                       event.record(on);
                       (void)event.is_past();
                   }),
                   "a recorded event is asked for"));
    CHECK(contains(recorded([](auto& world, auto&, cudaStream_t, auto&) { world.synchronise(); }), "recorded"));
}

TEST_CASE("a graph's run that does not end in time is given up") {
    auto const late = problem_of([] {
        on_ranks(
            2,
            [](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0}, on);
                world.all_reduce(data.out());
                if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(2));
                world.all_reduce(data.out()); // stands for a graph, in which rank 1 is missing
                world.watch("an iteration");
                std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                world.watch("another iteration");
            },
            seconds(1));
    });
    CHECK(contains(late, "another iteration"));
    CHECK(contains(late, "is not done on the device in 1.0"));
}

TEST_CASE("calls in another order are caught") {
    auto const swapped = problem_of([] {
        on_ranks(3, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> a({1.0, 2.0}, on), b({1.0}, on);
            if (world.rank() == 1) world.broadcast(b.out(), 2);
            world.all_reduce(a.out());
            if (world.rank() != 1) world.broadcast(b.out(), 2);
        });
    });
    CHECK(contains(swapped, "call 1 of communicator"));
    CHECK(contains(swapped, "broadcast of 1 doubles from rank 2"));
    CHECK(contains(swapped, "all-reduce of 2 doubles"));
    auto const another_size = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> data(std::vector<double>(3 + world.rank()), on);
            world.all_reduce(data.out());
        });
    });
    CHECK(contains(another_size, "all-reduce of 3 doubles"));
    CHECK(contains(another_size, "all-reduce of 4 doubles"));
    auto const another_message = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            device_array<double> data({1.0, 2.0}, on);
            if (world.rank() == 0) world.send(data.in(), 1);
            else world.receive(data.out().first(1), 0);
        });
    });
    CHECK(contains(another_message, "send of 2 doubles"));
    CHECK(contains(another_message, "receive of 1 doubles"));
}

TEST_CASE("unbalanced groups are caught: of other calls than another rank's, left open, ended twice") {
    auto const fewer = problem_of([] {
        on_ranks(2, [](nccl::communicator& world, cudaStream_t on) {
            std::vector<std::size_t> const two{2, 3}, one{2, 0};
            auto const& shards = world.rank() == 0 ? two : one;
            device_array<double> const mine(std::vector<double>(shards[world.rank()]), on);
            device_array<double> whole(std::vector<double>(total_count(shards)), on);
            world.all_gather_v(mine.in(), whole.out(), shards, uneven::grouped);
        });
    });
    CHECK(contains(fewer, "broadcast of 2 doubles from rank 0"));
    CHECK(contains(fewer, "in a group of 2"));
    auto const open = problem_of_raw([](std::size_t, ncclComm_t comm, cudaStream_t on) {
        device_array<double> data({1.0}, on);
        ncclGroupStart();
        ncclAllReduce(data.in().data(), data.out().data(), 1, ncclDouble, ncclSum, comm, on);
        nccl::event().record(on);
    });
    CHECK(contains(open, "an event is recorded while a group of calls of NCCL is open"));
    auto const left = problem_of_raw([](std::size_t, ncclComm_t, cudaStream_t) { ncclGroupStart(); });
    CHECK(contains(left, "a group of calls of NCCL is still open at the end"));
    auto const twice = problem_of_raw([](std::size_t, ncclComm_t, cudaStream_t) { ncclGroupEnd(); });
    CHECK(contains(twice, "a group of calls of NCCL ends that was not begun"));
    auto const shared = problem_of_raw([](std::size_t, ncclComm_t comm, cudaStream_t on) {
        device_array<double> data({1.0}, on);
        ncclGroupStart();
        ncclBroadcast(data.in().data(), data.out().data(), 1, ncclDouble, 0, comm, on);
        ncclBroadcast(data.in().data(), data.out().data(), 1, ncclDouble, 1, comm, on);
        ncclGroupEnd();
    });
    CHECK(contains(shared, "use the same memory"));
}

TEST_CASE("an event that is recorded before NCCL has enqueued its calls is caught") {
    auto const early = problem_of_raw([](std::size_t, ncclComm_t comm, cudaStream_t on) {
        device_array<double> data({1.0}, on);
        CHECK(ncclAllReduce(data.in().data(), data.out().data(), 1, ncclDouble, ncclSum, comm, on) == ncclInProgress);
        nccl::event().record(on);
    });
    CHECK(contains(early, "an event is recorded before NCCL has enqueued its calls"));
}

TEST_CASE("device memory that the host reads or writes is caught") {
    auto const used_by_host = [](auto&& use) {
        return in_process([&] {
            substitute::run(1, [&](std::size_t) {
                nccl::stream const computation;
                device_array<double> data({1.0, 2.0}, computation.get());
                use(data.out());
            });
        });
    };
    auto const [read, status] = used_by_host([](std::span<double> data) {
        double volatile const x = data[1];
        (void)x;
    });
    CHECK(status == 86);
    CHECK(contains(read, "the host uses device memory: byte 8 of 16 that rank 0 has taken"));
    auto const [written, its_status] = used_by_host([](std::span<double> data) { data[0] = 3; });
    CHECK(its_status == 86);
    CHECK(contains(written, "the host uses device memory: byte 0 of 16"));
    CHECK(used_by_host([](std::span<double>) {}).second == 0);
}

TEST_CASE("memory of the host, of others, too small or given back is caught") {
    auto const problem = [](auto&& use) {
        return problem_of([&] {
            on_ranks(1, [&](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0, 2.0}, on);
                use(world, data, on);
            });
        });
    };
    std::vector<double> host(2);
    CHECK(contains(problem([&](auto& world, auto&, cudaStream_t) { world.all_reduce(std::span<double>(host)); }),
                   "all-reduce of 2 doubles is given memory that is none of the device's"));
    CHECK(contains(problem([](auto& world, auto& data, cudaStream_t) {
                       world.all_reduce(std::span<double>(data.out().data(), 3));
                   }),
                   "uses 24 bytes from byte 0 of 16 that rank 0 has taken"));
    CHECK(contains(problem([](auto& world, auto&, cudaStream_t on) {
                       auto const gone = device_array<double>({1.0}, on).out();
                       world.all_reduce(gone);
                   }),
                   "uses memory that was given back"));
    CHECK(contains(problem([](auto& world, auto&, cudaStream_t on) { // before the collective that uses it is done
                       device_array<double> gone({1.0}, on);
                       auto const dropped = world.start_all_reduce(gone.out());
                   }),
                   "giving back memory writes what all-reduce of 1 doubles"));
}

TEST_CASE("a host that waits inside an iteration is caught") {
    auto const problem = [](auto&& wait) {
        return problem_of([&] {
            on_ranks(2, [&](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0}, on);
                world.all_reduce(data.out());
                substitute::iteration const marked;
                world.all_reduce(data.out());
                wait(world, data, on);
            });
        });
    };
    CHECK(problem([](auto&, auto&, cudaStream_t) {}) == "nothing thrown");
    CHECK(contains(problem([](auto&, auto&, cudaStream_t on) { cudaStreamSynchronize(on); }),
                   "the host waits inside an iteration: cudaStreamSynchronize"));
    CHECK(contains(problem([](auto&, auto& data, cudaStream_t) {
                       double x = 0;
                       cudaMemcpy(&x, data.in().data(), sizeof x, cudaMemcpyDeviceToHost);
                   }),
                   "the host waits inside an iteration: cudaMemcpy"));
    CHECK(contains(problem([](auto& world, auto& data, cudaStream_t) {
                       if (world.rank() != 0) return;
                       world.all_reduce(data.out()); // the other does not come
                       world.synchronise();
                   }),
                   "the host waits inside an iteration"));
    CHECK(contains(problem([](auto& world, auto&, cudaStream_t) { (void)world.group({0, 1}); }),
                   "the host waits inside an iteration: ncclCommGetAsyncError"));
}

TEST_CASE("what is left at the end is caught") {
    CHECK(contains(problem_of([] {
                       std::optional<nccl::event> left;
                       on_ranks(2, [&](nccl::communicator& world, cudaStream_t) {
                           if (world.rank() == 0) left.emplace();
                       });
                   }),
                   "1 events are still there at the end"));
}

TEST_CASE("an error of NCCL is an exception with rank and operation, and the communicator is aborted") {
    for (bool const later : {false, true}) {
        CAPTURE(later);
        auto const told = problem_of([&] {
            on_ranks(
                2,
                [&](nccl::communicator& world, cudaStream_t on) {
                    device_array<double> data({1.0}, on);
                    world.all_reduce(data.out());
                    if (world.rank() == 1) return; // and is gone
                    substitute::fail_next(ncclRemoteError, later);
                    auto const first = problem_of([&] { world.all_reduce(data.out()); });
                    CHECK(contains(first,
                                   "rank 0 of 2, all-reduce of 1 elements (operation 2 of its group): NCCL says: "
                                   "remote process exited"));
                    CHECK(substitute::aborted() == 1);
                    CHECK(contains(problem_of([&] { world.all_reduce(data.out()); }),
                                   "the communicator was aborted after an error"));
                    throw error(first);
                },
                seconds(20));
        });
        CAPTURE(told);
        CHECK(contains(told, "remote process exited"));
    }
}

TEST_CASE("what a rank has started ends in time though its host does not wait") {
    auto const problem = problem_of([] {
        on_ranks(
            2,
            [](nccl::communicator& world, cudaStream_t on) {
                if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(2)); // it never comes
                device_array<double> data({1.0}, on);
                auto const started = world.start_all_reduce(data.out());
                while (substitute::aborted() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                (void)world.start_all_reduce(data.out());
            },
            seconds(0.5));
    });
    CHECK(contains(problem, "the communicator was aborted after an error: rank 0 of 2, all-reduce of 1 elements"));
    CHECK(contains(problem, "is not done on the device in 0.5"));
}

TEST_CASE("a rank that does not come ends the others' wait in time") {
    auto const late = problem_of([] {
        on_ranks(
            3,
            [](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0}, on);
                if (world.rank() == 2) return;
                world.all_reduce(data.out());
                try {
                    world.synchronise();
                } catch (error const&) {
                    CHECK(substitute::aborted() == 1);
                    throw;
                }
            },
            seconds(1));
    });
    CHECK(contains(late, "waiting for all that was enqueued"));
    // whoever looks first says so: the one that waits, or the watchdog
    CHECK((contains(late, "no end after 1 s; another rank has died, hangs, or does something else") ||
           contains(late, "is not done on the device in 1.0")));
    auto const missing = problem_of([] {
        test::shared_store shared;
        substitute::run(1,
                        [&](std::size_t) { nccl::communicator const world(shared, 0, 2, {.time_out = seconds(1)}); });
    });
    CHECK(contains(missing, "rank 0 of 2, joining"));
    CHECK(contains(missing, "no end after 1 s"));
    auto const silent = problem_of([] {
        on_ranks(
            2,
            [](nccl::communicator& world, cudaStream_t on) {
                device_array<double> data({1.0}, on);
                if (world.rank() == 0) world.receive(data.out(), 1);
            },
            seconds(1));
    });
    CHECK(contains(silent, "rank 0 of 2, receiving a message of 1 elements"));
}
