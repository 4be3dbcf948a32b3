// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A communicator whose ranks are processes that MPI joins.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/mpi/detail/operation.hpp>
#include <heddle/mpi/detail/progress.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::mpi {

namespace detail {

/// The elements of the ranks' pieces and where they begin, as MPI counts: one after the other, or all at the same
/// place.
struct pieces {
    std::vector<int> counts, begins;

    pieces() = default;
    pieces(shard_counts of, operation const& what, bool one_after_the_other = true) {
        (void)count(one_after_the_other ? total_count(of) : largest_count(of), what);
        for (int begin = 0; auto const n : of) {
            counts.push_back(static_cast<int>(n));
            begins.push_back(begin);
            if (one_after_the_other) begin += static_cast<int>(n);
        }
    }
};

} // namespace detail

/// An operation that MPI carries out. MPI may go on only while the process is in one of its calls, or its thread of
/// progress is; see `job_options`.
///
/// *Throws* `error` from a wait, which names the rank and the operation, if it does not end in time. A request that
/// goes without having been waited for leaves MPI to write to what its spans were: the job has to end.
class request {
public:
    request() = default;
    request(request&& other) noexcept { *this = std::move(other); }
    request& operator=(request&& other) noexcept {
        std::swap(what_, other.what_);
        std::swap(time_out_, other.time_out_);
        std::swap(request_, other.request_);
        std::swap(sent_, other.sent_);
        std::swap(received_, other.received_);
        std::swap(expected_, other.expected_);
        std::swap(operands_, other.operands_);
        std::swap(combine_, other.combine_);
        return *this;
    }

    void wait() {
        if (request_ == MPI_REQUEST_NULL) return;
        MPI_Status status{};
        detail::wait_in_time(time_out_, what_, request_, &status);
        --detail::under_way;
        int length = 0;
        if (expected_ >= 0) MPI_Get_elements(&status, MPI_BYTE, &length);
        if (expected_ >= 0 && length != expected_)
            throw error(what_.text() + ": rank " + std::to_string(status.MPI_SOURCE) + " has sent " +
                        std::to_string(length) + " bytes, expected " + std::to_string(expected_));
        if (combine_) combine_(operands_);
        operands_ = {};
    }

private:
    friend class communicator;

    detail::operation what_;
    seconds time_out_;
    MPI_Request request_ = MPI_REQUEST_NULL;
    /// MPI reads them until the end.
    detail::pieces sent_, received_;
    /// The bytes of a message that is received, or -1.
    int expected_ = -1;
    /// What MPI reads or gives that is not the caller's, and what is made of it in the end.
    std::vector<std::byte> operands_;
    std::function<void(std::vector<std::byte> const&)> combine_;
};

/// One process's end of a group of ranks, for elements of type float, double, or a type of 16 bits that is added and
/// compared as they are; it models
/// `asynchronous_communicator_of` and `point_to_point_of`.
///
/// Shards are sent as large as they are: `padded` and `grouped` differ in what is counted, not in what is sent. Gathers
/// and scatters are exchanges of pieces between each two ranks, both ways at once: Open MPI's own gathers use a link
/// one way at a time, and its scatters reduce all of it on one rank first.
/// *Throws* `error`, which names the rank and the operation, if MPI reports an error, and if an operation does not end
/// in time, because another rank has died, hangs or makes another call. MPI gives no way back from that: buffers may
/// still be written to, so the job has to end, as `run_job` sees to.
/// *Thread safety.* One thread per process.
class communicator : public waits_at_once<communicator>, public counts_traffic {
public:
    using request = mpi::request;

    /// Duplicates a communicator of MPI, which all its ranks do together.
    /// *Precondition:* MPI is initialised, and is finalised after this object and its groups are gone.
    explicit communicator(MPI_Comm comm, seconds time_out = seconds(300)) : time_out_(time_out) {
        MPI_Comm own = MPI_COMM_NULL;
        detail::check(MPI_Comm_dup(comm, &own), {.name = "duplicating a communicator"});
        take(own);
    }

    [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(size_); }

    /// Returns the communicator of some ranks of this one, among which this rank must be; their order gives their new
    /// ranks.
    [[nodiscard]] communicator group(std::vector<std::size_t> const& members);

    /// Returns the first rank on each machine, ascending. All ranks call it.
    [[nodiscard]] std::vector<std::size_t> first_ranks_of_machines();

    /// Two or three ranks give each other all they have, and each adds. More of them leave that to MPI; from a copy,
    /// since Open MPI does it in place by a tree, and otherwise round a ring.
    template <class Scalar>
    [[nodiscard]] request start_all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        auto result = next("all-reduce", data.size());
        if (size() < 4) {
            std::vector<std::size_t> const all(size(), data.size());
            auto const into = operands<Scalar>(result, size() * data.size());
            exchange<Scalar>(result, data, {all, result.what_, false}, into, {all, result.what_});
            combine(result, data, how);
        } else {
            auto const from = operands<Scalar>(result, data.size());
            algorithm::copy(data, from.begin());
            start(result, [&](MPI_Request* r) {
                return MPI_Iallreduce(from.data(), data.data(), detail::count(data.size(), result.what_),
                                      detail::datatype<Scalar>(), detail::operation_of<Scalar>(how), comm(), r);
            });
        }
        count<Scalar>(collective::all_reduce, uneven::padded, size(), data.size());
        return result;
    }

    template <class Scalar>
    [[nodiscard]] request start_all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts,
                                             uneven how) {
        auto result = next("all-gather", whole.size());
        require_shards(result.what_, counts, rank(), size(), mine.size(), whole.size());
        std::vector<std::size_t> const sent(size(), mine.size());
        exchange<Scalar>(result, mine, {sent, result.what_, false}, whole, {counts, result.what_});
        count<Scalar>(collective::all_gather, how, size(), carried_count(counts, how));
        return result;
    }

    template <class Scalar>
    [[nodiscard]] request start_reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine,
                                                 shard_counts counts, uneven how) {
        auto result = next("reduce-scatter", whole.size());
        require_shards(result.what_, counts, rank(), size(), mine.size(), whole.size());
        std::vector<std::size_t> const received(size(), mine.size());
        auto const into = operands<Scalar>(result, size() * mine.size());
        exchange<Scalar>(result, whole, {counts, result.what_}, into, {received, result.what_});
        combine(result, mine, reduction::sum);
        count<Scalar>(collective::reduce_scatter, how, size(), carried_count(counts, how));
        return result;
    }

    /// Counts the larger of what this rank sends and receives, which another rank may exceed.
    template <class Scalar>
    [[nodiscard]] request start_all_to_all_v(std::span<Scalar const> send, shard_counts send_counts,
                                             std::span<Scalar> receive, shard_counts receive_counts) {
        auto result = next("all-to-all", send.size());
        require_pieces(result.what_, send_counts, receive_counts, size(), send.size(), receive.size());
        exchange<Scalar>(result, send, {send_counts, result.what_}, receive, {receive_counts, result.what_});
        count<Scalar>(collective::all_to_all, uneven::padded, size(), std::max(send.size(), receive.size()));
        return result;
    }

    template <class Scalar>
    [[nodiscard]] request start_broadcast(std::span<Scalar> data, std::size_t root) {
        auto result = next("broadcast", data.size());
        start(result, [&](MPI_Request* r) {
            return MPI_Ibcast(data.data(), detail::count(data.size(), result.what_), detail::datatype<Scalar>(),
                              static_cast<int>(root), comm(), r);
        });
        count<Scalar>(collective::broadcast, uneven::padded, size(), data.size());
        return result;
    }

    /// Keeps a copy until it is sent, and returns at once.
    template <class Scalar>
    void send(std::span<Scalar const> data, std::size_t to) {
        drop_sent();
        auto const raw = std::as_bytes(data);
        auto& message = state_->sent.emplace_back(std::vector<std::byte>{raw.begin(), raw.end()}, request{});
        message.started = send_bytes(message.data, to);
    }
    template <class Scalar>
    [[nodiscard]] request start_send(std::span<Scalar const> data, std::size_t to) {
        return send_bytes(std::as_bytes(data), to);
    }
    /// The wait *throws* `error` if the message is not of this size.
    template <class Scalar>
    [[nodiscard]] request start_receive(std::span<Scalar> data, std::size_t from) {
        auto result = next("receiving a message", data.size());
        result.expected_ = detail::count(data.size_bytes(), result.what_);
        start(result, [&](MPI_Request* r) {
            return MPI_Irecv(data.data(), result.expected_, MPI_BYTE, static_cast<int>(from), message_tag, comm(), r);
        });
        return result;
    }

    /// Waits until all ranks have come.
    void barrier() {
        auto all = next("barrier", 0);
        start(all, [&](MPI_Request* r) { return MPI_Ibarrier(comm(), r); });
        all.wait();
    }

    /// Makes sure that all ranks have the same `value`, such as the digest of a plan. *Throws* `error` on all of them,
    /// naming the first that differs from rank 0, if they do not.
    void require_equal(std::string_view name, std::string const& value);

private:
    static constexpr int message_tag = 0, group_tag = 1;

    /// A message that MPI may still read.
    struct sent_message {
        std::vector<std::byte> data;
        request started;
    };
    struct state {
        MPI_Comm comm = MPI_COMM_NULL;
        std::list<sent_message> sent;
        std::size_t operations = 0;
    };
    communicator(seconds time_out, counts_traffic const& like) : time_out_(time_out) { charge_as(like); }

    /// Owns a communicator of MPI from now on.
    void take(MPI_Comm own) {
        auto const release = [](state* s) {
            // What is still to be sent is received by a rank that goes on; if none does, the job is about to end.
            try {
                for (auto& message : s->sent) message.started.wait();
            } catch (error const&) {} // NOLINT(bugprone-empty-catch)
            MPI_Comm_free(&s->comm);
            delete s;
        };
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        state_ = {new state{.comm = own, .sent = {}}, release};
        MPI_Comm_rank(own, &rank_);
        MPI_Comm_size(own, &size_);
    }

    [[nodiscard]] MPI_Comm comm() const { return state_->comm; }
    [[nodiscard]] request next(std::string_view name, std::size_t elements) {
        request result;
        result.what_ = {name, elements, rank_, size_, ++state_->operations};
        result.time_out_ = time_out_;
        return result;
    }
    template <class Start>
    static void start(request& r, Start&& call) {
        detail::check(call(&r.request_), r.what_);
        ++detail::under_way;
    }
    /// Starts to send each rank a piece and to receive one of it.
    template <class Scalar>
    void exchange(request& r, std::span<Scalar const> from, detail::pieces sent, std::span<Scalar> into,
                  detail::pieces received) {
        r.sent_ = std::move(sent);
        r.received_ = std::move(received);
        start(r, [&](MPI_Request* started) {
            return MPI_Ialltoallv(from.data(), r.sent_.counts.data(), r.sent_.begins.data(), detail::datatype<Scalar>(),
                                  into.data(), r.received_.counts.data(), r.received_.begins.data(),
                                  detail::datatype<Scalar>(), comm(), started);
        });
    }
    /// Gives an operation room for elements that are not the caller's.
    template <class Scalar>
    [[nodiscard]] static std::span<Scalar> operands(request& r, std::size_t elements) {
        r.operands_.resize(elements * sizeof(Scalar));
        return {reinterpret_cast<Scalar*>(r.operands_.data()), elements};
    }
    /// Lets an operation end by adding up what ranks have given, in their order, or by taking the largest.
    template <class Scalar>
    static void combine(request& r, std::span<Scalar> into, reduction how) {
        r.combine_ = [into, how](std::vector<std::byte> const& operands) {
            if (into.empty()) return;
            auto const* of_rank = reinterpret_cast<Scalar const*>(operands.data());
            auto const* const end = of_rank + operands.size() / sizeof(Scalar);
            std::copy_n(of_rank, into.size(), into.begin());
            while ((of_rank += into.size()) != end)
                if (how == reduction::sum)
                    std::transform(into.begin(), into.end(), of_rank, into.begin(), std::plus<>{});
                else
                    std::transform(into.begin(), into.end(), of_rank, into.begin(),
                                   [](Scalar x, Scalar y) { return std::max(x, y); });
        };
    }
    [[nodiscard]] request send_bytes(std::span<std::byte const> data, std::size_t to) {
        auto result = next("a message", data.size());
        start(result, [&](MPI_Request* r) {
            return MPI_Isend(data.data(), detail::count(data.size(), result.what_), MPI_BYTE, static_cast<int>(to),
                             message_tag, comm(), r);
        });
        return result;
    }
    void drop_sent() {
        std::erase_if(state_->sent, [](auto& message) {
            int done = 0;
            MPI_Test(&message.started.request_, &done, MPI_STATUS_IGNORE);
            detail::under_way -= done;
            return done != 0;
        });
    }

    seconds time_out_;
    std::shared_ptr<state> state_;
    int rank_ = 0, size_ = 0;
};

static_assert(asynchronous_communicator_of<communicator, float> && point_to_point_of<communicator, double>);

inline std::vector<std::size_t> communicator::first_ranks_of_machines() {
    barrier(); // MPI forms groups in a call that waits for ever
    MPI_Comm machine = MPI_COMM_NULL;
    detail::check(MPI_Comm_split_type(comm(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
                  {.name = "finding machines"});
    int place = 0;
    MPI_Comm_rank(machine, &place);
    MPI_Comm_free(&machine);
    std::vector<double> is_first(size(), 0.0);
    if (place == 0) is_first[rank()] = 1;
    all_reduce(std::span(is_first));
    std::vector<std::size_t> result;
    for (std::size_t r = 0; r < size(); ++r)
        if (is_first[r] > 0) result.push_back(r);
    return result;
}

inline communicator communicator::group(std::vector<std::size_t> const& members) {
    auto const what = next("forming a group", members.size()).what_;
    auto sorted = members;
    algorithm::sort(sorted);
    if (algorithm::find(members, rank()) == members.end() || sorted.back() >= size() ||
        std::ranges::adjacent_find(sorted) != sorted.end())
        throw error(what.text() + ": in which this rank is not, or a rank is twice, or that are none of its ranks");
    std::vector<int> ranks;
    for (auto const m : members) ranks.push_back(static_cast<int>(m));
    // MPI forms a group in a call that waits for ever, so its members meet first, at the first of them.
    auto const meet = [&](auto&& call) {
        MPI_Request met = MPI_REQUEST_NULL;
        detail::check(call(&met), what);
        detail::wait_in_time(time_out_, what, met);
    };
    auto const tell = [&](int to) {
        meet([&](MPI_Request* r) { return MPI_Isend(nullptr, 0, MPI_BYTE, to, group_tag, comm(), r); });
    };
    auto const hear = [&](int from) {
        meet([&](MPI_Request* r) { return MPI_Irecv(nullptr, 0, MPI_BYTE, from, group_tag, comm(), r); });
    };
    if (rank_ == ranks.front()) {
        std::for_each(ranks.begin() + 1, ranks.end(), hear);
        std::for_each(ranks.begin() + 1, ranks.end(), tell);
    } else {
        tell(ranks.front());
        hear(ranks.front());
    }
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm own = MPI_COMM_NULL;
    detail::check(MPI_Comm_group(comm(), &all), what);
    detail::check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), what);
    int const formed = MPI_Comm_create_group(comm(), some, group_tag, &own);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    detail::check(formed, what);
    communicator result(time_out_, *this);
    result.take(own);
    return result;
}

inline void communicator::require_equal(std::string_view name, std::string const& value) {
    std::size_t const longest = 64; // enough for digests; longer values are told by their hash
    std::string const mine = value.size() <= longest ? value : std::to_string(std::hash<std::string>{}(value));
    std::vector<char> all(size() * (longest + 1));
    std::vector<char> padded(longest + 1);
    algorithm::copy(mine, padded.begin());
    auto compared = next("comparing what ranks were given", padded.size());
    start(compared, [&](MPI_Request* r) {
        return MPI_Iallgather(padded.data(), static_cast<int>(padded.size()), MPI_CHAR, all.data(),
                              static_cast<int>(padded.size()), MPI_CHAR, comm(), r);
    });
    compared.wait();
    for (std::size_t r = 1; r < size(); ++r)
        if (char const* const theirs = &all[r * (longest + 1)]; std::strcmp(theirs, all.data()) != 0)
            throw error("ranks 0 and " + std::to_string(r) + " differ in the " + std::string(name) + ": " + all.data() +
                        " and " + theirs);
}

} // namespace heddle::mpi
