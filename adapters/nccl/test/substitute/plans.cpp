// SPDX-License-Identifier: BSL-1.0
#include "ranks.hpp"

#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/plan/verify.hpp>

#include <support/catalogue_programs.hpp>
#include <support/device_groups.hpp>
#include <support/random_plans.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

extern template class heddle::eigen_kernels<double>; // support/kernels.cpp

using namespace heddle;

namespace {

/// Brings what ranks on the host exchange to the device, and back: computation on the host stands for kernels.
class staged_communicator {
public:
    staged_communicator(nccl::communicator on_devices, cudaStream_t on) : devices_(std::move(on_devices)), on_(on) {}

    [[nodiscard]] std::size_t rank() const { return devices_.rank(); }
    [[nodiscard]] std::size_t size() const { return devices_.size(); }
    [[nodiscard]] heddle::traffic const& traffic() const { return devices_.traffic(); }
    void charge_elements_as(std::size_t element_size) { devices_.charge_elements_as(element_size); }
    [[nodiscard]] staged_communicator group(std::vector<std::size_t> const& members) {
        return {devices_.group(members), on_};
    }

    void all_reduce(std::span<double> data, reduction how = reduction::sum) {
        auto there = array(data);
        devices_.all_reduce(there.out(), how);
        bring(there, data);
    }
    void all_gather_v(std::span<double const> mine, std::span<double> whole, shard_counts counts, uneven how) {
        auto const from = array(mine);
        auto to = array(whole);
        devices_.all_gather_v(from.in(), to.out(), counts, how);
        bring(to, whole);
    }
    void reduce_scatter_v(std::span<double const> whole, std::span<double> mine, shard_counts counts, uneven how) {
        auto const from = array(whole);
        auto to = array(mine);
        devices_.reduce_scatter_v(from.in(), to.out(), counts, how);
        bring(to, mine);
    }
    void all_to_all_v(std::span<double const> send, shard_counts send_counts, std::span<double> receive,
                      shard_counts receive_counts) {
        auto const from = array(send);
        auto to = array(receive);
        devices_.all_to_all_v(from.in(), send_counts, to.out(), receive_counts);
        bring(to, receive);
    }
    void broadcast(std::span<double> data, std::size_t root) {
        auto there = array(data);
        devices_.broadcast(there.out(), root);
        bring(there, data);
    }
    void send(std::span<double const> data, std::size_t to) { devices_.send(array(data).in(), to); }
    void receive(std::span<double> data, std::size_t from) {
        auto there = array(data);
        devices_.receive(there.out(), from);
        bring(there, data);
    }

private:
    [[nodiscard]] test::device_array<double> array(std::span<double const> values) const {
        return {std::vector<double>(values.begin(), values.end()), on_};
    }
    static void bring(test::device_array<double> const& from, std::span<double> to) {
        std::ranges::copy(from.values(), to.begin());
    }

    nccl::communicator devices_;
    cudaStream_t on_;
};

static_assert(point_to_point_of<staged_communicator, double>);

/// Runs a plan twice on devices: when ranks have met, hosts need not wait.
void compare(program const& p, plan const& plan, std::uint64_t seed) {
    static eigen_kernels<double> const backend;
    REQUIRE(verify(p, plan));
    plan_proof<eigen_kernels<double>> first(p, plan, backend, {.seed = seed}), second(p, plan, backend, {.seed = seed});
    test::on_ranks(ranks_of(plan), [&](nccl::communicator& world, cudaStream_t on) {
        staged_communicator staged(world, on);
        on_device<double>(plan, staged, [&](auto& mine) {
            first.run_rank(mine);
            test::substitute::iteration const marked;
            second.run_rank(mine);
        });
    });
    CHECK(first.compared().problem == "");
    CHECK(second.compared().problem == "");
}

} // namespace

TEST_CASE("random plans compute on devices what the single device does, without a wait of the host") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::catalogue_program(random, 1 + static_cast<int>(seed % 5));
        auto const indexed = index_program(p, test::random_segments(p, random));
        compare(p, test::random_plan(indexed, 2 + seed % 7, random), seed);
    }
}

TEST_CASE("so do plans of device groups") {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        CAPTURE(seed);
        auto const made = test::random_grouped_case(seed);
        compare(made.program, made.plan, seed);
    }
}
