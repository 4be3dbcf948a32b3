// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief How processes that were started together find each other.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/nccl/store.hpp>
#include <heddle/nccl/tcp_store.hpp>

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace heddle::nccl {

/// Where a process is among those that were started together.
struct placement {
    std::size_t rank = 0, ranks = 1;
    /// The number of this process on its machine, which is that of its device.
    std::size_t local_rank = 0;
};

namespace detail {

/// Returns the number that the first of these environment variables to be there holds. *Throws* `input_error` if none
/// is there, or it is no number up to `most`.
inline std::size_t number_from_environment(std::initializer_list<char const*> names, std::size_t most) {
    std::string all;
    for (char const* name : names) {
        all += (all.empty() ? "" : " or ") + std::string(name);
        char const* const text = std::getenv(name);
        if (!text) continue;
        std::string const value = text;
        std::size_t number = 0;
        auto const [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (code != std::errc{} || end != value.data() + value.size() || number > most)
            throw input_error(name, "is '" + value + "', expected a number up to " + std::to_string(most));
        return number;
    }
    throw input_error(all, "is not set; mpirun and torchrun set it");
}

} // namespace detail

/// Returns what `torchrun` or Open MPI's `mpirun` has told this process by environment variables. *Throws*
/// `input_error` naming the variable that is missing or wrong.
[[nodiscard]] inline placement placement_from_environment() {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
    placement const p{detail::number_from_environment({"RANK", "OMPI_COMM_WORLD_RANK"}, most),
                      detail::number_from_environment({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}, most),
                      detail::number_from_environment({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}, most)};
    if (p.rank >= p.ranks)
        throw input_error("the rank of this process",
                          "is " + std::to_string(p.rank) + " of " + std::to_string(p.ranks) + ", expected one below");
    return p;
}

/// Returns the store of a job that was told the address of its rank 0 by `MASTER_ADDR` and `MASTER_PORT`. It is on the
/// port after that, as torchrun keeps a store of its own on that one.
[[nodiscard]] inline std::unique_ptr<store> store_from_environment(placement const& where,
                                                                   seconds time_out = seconds(300)) {
    constexpr std::size_t last_port = 65535;
    auto const port = static_cast<std::uint16_t>(detail::number_from_environment({"MASTER_PORT"}, last_port - 1) + 1);
    char const* const host = std::getenv("MASTER_ADDR");
    if (!host) throw input_error("MASTER_ADDR", "is not set; it is the host of rank 0");
    if (where.rank == 0) return std::make_unique<tcp_store>(port, time_out, where.ranks);
    return std::make_unique<tcp_store>(host, port, time_out);
}

/// Returns a store for the ranks of a communicator of host memory, such as MPI's: rank 0 keeps it, and broadcasts
/// where. All ranks call it.
template <communicator_of<double> Communicator>
[[nodiscard]] std::unique_ptr<store> store_beside(Communicator& hosts, seconds time_out = seconds(300)) {
    std::array<char, 256> host{};
    std::array<double, 1 + host.size()> address{}; // the port, and the name's characters
    std::unique_ptr<tcp_store> mine;
    if (hosts.rank() == 0) {
        mine = std::make_unique<tcp_store>(std::uint16_t{0}, time_out, hosts.size());
        if (::gethostname(host.data(), host.size() - 1) != 0) throw error("this machine does not know its name");
        address[0] = mine->port();
        for (std::size_t n = 0; n < host.size(); ++n) address[1 + n] = host[n];
    }
    hosts.broadcast(std::span<double>(address), 0);
    if (mine) return mine;
    for (std::size_t n = 0; n < host.size(); ++n) host[n] = static_cast<char>(address[1 + n]);
    return std::make_unique<tcp_store>(host.data(), static_cast<std::uint16_t>(address[0]), time_out);
}

} // namespace heddle::nccl
