// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A communicator whose ranks are GPUs that NCCL joins.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/nccl/cuda.hpp>
#include <heddle/nccl/detail/link.hpp>
#include <heddle/nccl/store.hpp>

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::nccl {

/// Returns the version of the library that is loaded, as NCCL codes it: 22809 for 2.28.9.
[[nodiscard]] inline int runtime_version() {
    int version = 0;
    if (auto const code = ncclGetVersion(&version); code != ncclSuccess)
        throw error(std::string("asking for NCCL's version: NCCL says: ") + ncclGetErrorString(code));
    return version;
}

/// Tells whether the library runs a grouped all-gather as one kernel: from 2.29.2 on it does, unless the environment
/// says `NCCL_ALLGATHERV_ENABLE=0`. Times measured with and without are not of the same collective.
[[nodiscard]] inline bool fuses_grouped_gathers(int version = runtime_version()) {
    constexpr int first = 22902;
    char const* const enabled = std::getenv("NCCL_ALLGATHERV_ENABLE");
    return version >= first && !(enabled && std::string_view(enabled) == "0");
}

/// An operation that was started. An object that goes without a wait leaves nothing undone, but nothing may use the
/// data.
class request {
public:
    request() = default;

    /// Makes what is enqueued on the computation stream from now on wait for the operation. The host waits only for a
    /// first message from a rank that has not come yet.
    void wait() {
        auto const own = std::move(own_);
        if (!own) return;
        if (!own->is_enqueued) enqueue_();
        own->done.hold(computation_);
    }

private:
    friend class communicator;

    std::shared_ptr<detail::started> own_;
    cudaStream_t computation_ = nullptr;
    /// Waits until the operation is enqueued.
    std::function<void()> enqueue_;
};

struct communicator_options {
    /// The stream on which the elements that are sent are computed, and those that come are used.
    cudaStream_t computation = nullptr;
    /// How long a rank waits for others, and an operation may take on the device.
    seconds time_out{300};
};

/// One rank's end of a group of ranks, each with a GPU of its own, for elements of type float, double, or a type of 16
/// bits that NCCL adds and rounds; it models `point_to_point_of`.
///
/// *Device memory.* Spans are of device memory, which is never read or written by the host.
/// *Order.* Where a communicator of host memory returns once something holds, here it holds for what is enqueued on the
/// computation stream afterwards. A collective that was started runs on the communicator's own stream, after what was
/// enqueued on the computation stream before, and after what was started before it through the same lane;
/// `request::wait` lets what comes after wait for it. Until then its output may not be used, nor its input changed. The
/// host waits in `synchronise`, and where ranks meet for the first time: in constructors, `group`, `split`, `open`, a
/// message between two ranks that is their first, and a collective that is the first of its kind.
/// *Recording.* Once ranks have met, what a CUDA graph records of the computation stream may have operations of this
/// communicator, if each is waited for before the recording ends. They are not looked after when the graph runs;
/// `watch` does that.
/// *Throws* `error`, which names the rank and the operation, if CUDA or NCCL report an error, at once or by the next
/// call, and if ranks do not come in time. The communicator is aborted then, and so are those that an exception
/// destroys, so that no stream is stuck. While the host does something else, a thread looks for errors and for
/// operations that take longer than the time-out on the device, and aborts; the next call throws.
/// *Thread safety.* One thread per rank, whose current device is the rank's.
class communicator : public waits_at_once<communicator>, public counts_traffic {
public:
    using request = nccl::request;

    /// Joins `ranks` ranks, which all construct it, with the same name if there are several on one store.
    /// *Precondition:* the store outlives this object and its groups.
    communicator(store& shared, std::size_t rank, std::size_t ranks, communicator_options const& options = {},
                 std::string const& name = "world")
        : communicator(shared, rank, ranks, options, name, std::make_shared<detail::watchdog>(options.time_out)) {}

    [[nodiscard]] std::size_t rank() const { return state_->rank; }
    [[nodiscard]] std::size_t size() const { return state_->ranks; }

    /// Returns the communicator of some ranks of this one, among which this rank must be; their order gives their new
    /// ranks. They alone call it.
    [[nodiscard]] communicator group(std::vector<std::size_t> const& members);
    /// Divides the ranks, which all call it: those of the same color, which is not negative, form a communicator, in
    /// the order of their keys; a rank without a color has none. NCCL makes them faster than groups.
    [[nodiscard]] std::optional<communicator> split(std::optional<int> color, int key);

    /// Gives a lane a stream and a communicator of NCCL of its own. Without that, it is that of values.
    void open(lane which);
    template <class Work>
    decltype(auto) through(lane which, Work&& work) {
        auto const found = state_->apart.find(which);
        struct going_back {
            detail::link*& used;
            detail::link* before;
            ~going_back() { used = before; }
        } const back{state_->used, state_->used};
        state_->used = found == state_->apart.end() ? state_->link.get() : found->second.get();
        return work();
    }

    template <class Scalar>
    [[nodiscard]] request start_all_reduce(std::span<Scalar> data, reduction how = reduction::sum) {
        auto const what = next("all-reduce", data.size());
        count<Scalar>(collective::all_reduce, uneven::padded, size(), data.size());
        return start(what, [&](ncclComm_t comm, cudaStream_t on) {
            return ncclAllReduce(data.data(), data.data(), data.size(), detail::type_of<Scalar>(),
                                 detail::operator_of(how), comm, on);
        });
    }

    /// Padded shards go through device memory taken for it, unless they are equal; grouped ones are broadcast where
    /// they are.
    template <class Scalar>
    [[nodiscard]] request start_all_gather_v(std::span<Scalar const> mine, std::span<Scalar> whole, shard_counts counts,
                                             uneven how) {
        auto const what = next("all-gather", whole.size());
        require_shards(what, counts, rank(), size(), mine.size(), whole.size());
        count<Scalar>(collective::all_gather, how, size(), carried_count(counts, how));
        if (how == uneven::grouped)
            return start(what, [&](ncclComm_t comm, cudaStream_t on) {
                return for_each_shard(whole, counts, [&](std::size_t r, std::span<Scalar> shard) {
                    return ncclBroadcast(mine.data(), shard.data(), shard.size(), detail::type_of<Scalar>(),
                                         static_cast<int>(r), comm, on);
                });
            });
        return start(what, link(), [&](detail::link& link) {
            std::size_t const each = largest_count(counts);
            auto const gather = [&](Scalar const* from, Scalar* to) {
                link.enqueue(what, [&](ncclComm_t comm, cudaStream_t on) {
                    return ncclAllGather(from, to, each, detail::type_of<Scalar>(), comm, on);
                });
            };
            if (each * size() == whole.size()) return gather(mine.data(), whole.data());
            device_memory<Scalar> const padded(each * size(), link.stream());
            Scalar* const place = padded.get() + each * rank();
            copy(mine.data(), mine.size(), place, link.stream());
            gather(place, padded.get());
            for_each_shard(whole, counts, [&](std::size_t r, std::span<Scalar> shard) {
                copy(padded.get() + each * r, shard.size(), shard.data(), link.stream());
                return ncclSuccess;
            });
        });
    }

    /// Padded shards go through device memory taken for it, unless they are equal; grouped ones are reduced one by one.
    template <class Scalar>
    [[nodiscard]] request start_reduce_scatter_v(std::span<Scalar const> whole, std::span<Scalar> mine,
                                                 shard_counts counts, uneven how) {
        auto const what = next("reduce-scatter", whole.size());
        require_shards(what, counts, rank(), size(), mine.size(), whole.size());
        count<Scalar>(collective::reduce_scatter, how, size(), carried_count(counts, how));
        if (how == uneven::grouped)
            return start(what, [&](ncclComm_t comm, cudaStream_t on) {
                return for_each_shard(whole, counts, [&](std::size_t r, std::span<Scalar const> shard) {
                    return ncclReduce(shard.data(), mine.data(), shard.size(), detail::type_of<Scalar>(), ncclSum,
                                      static_cast<int>(r), comm, on);
                });
            });
        return start(what, link(), [&](detail::link& link) {
            std::size_t const each = largest_count(counts);
            auto const scatter = [&](Scalar const* from, Scalar* to) {
                link.enqueue(what, [&](ncclComm_t comm, cudaStream_t on) {
                    return ncclReduceScatter(from, to, each, detail::type_of<Scalar>(), ncclSum, comm, on);
                });
            };
            if (each * size() == whole.size()) return scatter(whole.data(), mine.data());
            device_memory<Scalar> const padded(each * size(), link.stream());
            for_each_shard(whole, counts, [&](std::size_t r, std::span<Scalar const> shard) {
                copy(shard.data(), shard.size(), padded.get() + each * r, link.stream());
                return ncclSuccess;
            });
            Scalar* const place = padded.get() + each * rank();
            scatter(padded.get(), place);
            copy(place, mine.size(), mine.data(), link.stream());
        });
    }

    /// Counts the larger of what this rank sends and receives, which another rank may exceed.
    template <class Scalar>
    [[nodiscard]] request start_all_to_all_v(std::span<Scalar const> send, shard_counts send_counts,
                                             std::span<Scalar> receive, shard_counts receive_counts) {
        auto const what = next("all-to-all", send.size());
        require_pieces(what, send_counts, receive_counts, size(), send.size(), receive.size());
        count<Scalar>(collective::all_to_all, uneven::padded, size(), std::max(send.size(), receive.size()));
        return start(what, [&](ncclComm_t comm, cudaStream_t on) {
            auto const sent = for_each_shard(send, send_counts, [&](std::size_t r, std::span<Scalar const> shard) {
                return ncclSend(shard.data(), shard.size(), detail::type_of<Scalar>(), static_cast<int>(r), comm, on);
            });
            if (!detail::is_good(sent)) return sent;
            return for_each_shard(receive, receive_counts, [&](std::size_t r, std::span<Scalar> shard) {
                return ncclRecv(shard.data(), shard.size(), detail::type_of<Scalar>(), static_cast<int>(r), comm, on);
            });
        });
    }

    template <class Scalar>
    [[nodiscard]] request start_broadcast(std::span<Scalar> data, std::size_t root) {
        auto const what = next("broadcast", data.size());
        count<Scalar>(collective::broadcast, uneven::padded, size(), data.size());
        return start(what, [&](ncclComm_t comm, cudaStream_t on) {
            return ncclBroadcast(data.data(), data.data(), data.size(), detail::type_of<Scalar>(),
                                 static_cast<int>(root), comm, on);
        });
    }

    /// Starts to send to a rank. Messages to another rank are on a stream of their own, so that they wait for no
    /// others.
    template <class Scalar>
    [[nodiscard]] request start_send(std::span<Scalar const> data, std::size_t to) {
        return start_message(next("a message", data.size()), rank(), to, [data](ncclComm_t comm, cudaStream_t on) {
            return ncclSend(data.data(), data.size(), detail::type_of<Scalar>(), 1, comm, on);
        });
    }
    /// Starts to receive the next message that a rank has sent to this one.
    template <class Scalar>
    [[nodiscard]] request start_receive(std::span<Scalar> data, std::size_t from) {
        auto const what = next("receiving a message", data.size());
        return start_message(what, from, rank(), [data](ncclComm_t comm, cudaStream_t on) {
            return ncclRecv(data.data(), data.size(), detail::type_of<Scalar>(), 0, comm, on);
        });
    }

    /// Sends a copy.
    template <class Scalar>
    void send(std::span<Scalar const> data, std::size_t to) {
        auto const computation = state_->options.computation;
        auto kept = std::make_shared<device_memory<Scalar>>(data.size(), computation);
        copy(data.data(), data.size(), kept->get(), computation);
        auto const what = next("a message", data.size());
        (void)start_message(what, rank(), to, [kept, size = data.size()](ncclComm_t comm, cudaStream_t on) {
            kept->until(on);
            return ncclSend(kept->get(), size, detail::type_of<Scalar>(), 1, comm, on);
        });
    }

    /// Sees to it that what is enqueued on the computation stream by now ends in time, such as a graph; see
    /// *Recording*.
    void watch(std::string_view name);
    /// Waits on the host until all is done that was enqueued on the computation stream and on this communicator's. To
    /// be called before the host reads results by means that know no time-out.
    void synchronise();

private:
    struct message {
        detail::operation what;
        /// What this rank has computed before.
        event computed;
        std::function<ncclResult_t(ncclComm_t, cudaStream_t)> call;
        std::shared_ptr<detail::started> own;
    };
    /// The messages from one rank to another. They wait until both have come.
    struct mailbox {
        std::unique_ptr<detail::link> link;
        std::deque<message> pending;
    };
    struct state {
        store& shared;
        communicator_options options;
        std::string name;
        std::size_t rank = 0, ranks = 0, operations = 0, splits = 0;
        std::shared_ptr<detail::watchdog> dog{};
        std::unique_ptr<detail::link> link{};
        /// Those of lanes that are open, and that which operations go through; null if it is that of values.
        std::map<lane, std::unique_ptr<detail::link>> apart{};
        detail::link* used = nullptr;
        event computed{};
        /// By sender and receiver.
        std::map<std::pair<std::size_t, std::size_t>, mailbox> mailboxes{};
        std::map<std::vector<std::size_t>, std::size_t> groups{};

        /// Begins to join the ranks of a mailbox, if that is possible yet. Returns whether they are joined.
        [[nodiscard]] bool is_open(std::pair<std::size_t, std::size_t> const& between, mailbox& m);
        /// Enqueues the messages of mailboxes that are open.
        void enqueue_messages();
        ~state();
    };

    communicator(store& shared, std::size_t rank, std::size_t ranks, communicator_options const& options,
                 std::string const& name, std::shared_ptr<detail::watchdog> dog);
    explicit communicator(std::shared_ptr<state> s) : state_(std::move(s)) {}

    [[nodiscard]] detail::link& link() const { return state_->used ? *state_->used : *state_->link; }

    [[nodiscard]] detail::operation next(std::string_view name, std::size_t elements) {
        return {name, elements, static_cast<int>(rank()), static_cast<int>(size()), ++state_->operations};
    }

    /// Calls `work(rank, shard)`, which returns NCCL's result, up to the first that fails. An empty shard is no call,
    /// on any rank.
    template <class Element, class Work>
    static ncclResult_t for_each_shard(std::span<Element> whole, shard_counts counts, Work&& work) {
        auto code = ncclSuccess;
        std::size_t begin = 0;
        for (std::size_t r = 0; r < counts.size() && detail::is_good(code); begin += counts[r++])
            if (counts[r] > 0) code = work(r, whole.subspan(begin, counts[r]));
        return code;
    }

    [[nodiscard]] request make_request(std::shared_ptr<detail::started> own) const {
        request result;
        result.own_ = std::move(own);
        result.computation_ = state_->options.computation;
        return result;
    }
    /// Starts what `enqueue(link)` enqueues on the stream of a link, which waits for what is computed by now.
    template <class Enqueue>
    [[nodiscard]] request start(detail::operation const& what, detail::link& link, Enqueue&& enqueue) {
        state_->enqueue_messages();
        (void)link.is_ready(what); // errors of earlier calls
        state_->computed.record(state_->options.computation);
        state_->computed.hold(link.stream());
        enqueue(link);
        auto own = std::make_shared<detail::started>();
        link.watch(what, own);
        return make_request(std::move(own));
    }
    /// Starts calls of NCCL, as one group.
    template <class Calls>
    [[nodiscard]] request start(detail::operation const& what, Calls&& calls) {
        return start(what, link(), [&](detail::link& link) { link.enqueue(what, calls); });
    }

    template <class Call>
    [[nodiscard]] request start_message(detail::operation const& what, std::size_t from, std::size_t to, Call&& call);
    /// Begins to join ranks under a name that only they use.
    [[nodiscard]] static std::unique_ptr<detail::link> join(store& shared, std::string const& name, std::size_t rank,
                                                            std::size_t ranks, seconds time_out,
                                                            detail::operation const& what,
                                                            std::shared_ptr<detail::watchdog> dog);

    std::shared_ptr<state> state_;
};

static_assert(point_to_point_of<communicator, float> && point_to_point_of<communicator, double>);

inline communicator::communicator(store& shared, std::size_t rank, std::size_t ranks,
                                  communicator_options const& options, std::string const& name,
                                  std::shared_ptr<detail::watchdog> dog)
    : state_(new state{
          .shared = shared, .options = options, .name = name, .rank = rank, .ranks = ranks, .dog = std::move(dog)}) {
    detail::operation const what{"joining", 0, static_cast<int>(rank), static_cast<int>(ranks), 0};
    state_->link = join(shared, name, rank, ranks, options.time_out, what, state_->dog);
    state_->link->settle(what);
}

inline std::unique_ptr<detail::link> communicator::join(store& shared, std::string const& name, std::size_t rank,
                                                        std::size_t ranks, seconds time_out,
                                                        detail::operation const& what,
                                                        std::shared_ptr<detail::watchdog> dog) {
    std::string id;
    if (rank == 0) shared.set(name, id = detail::new_id());
    else id = shared.get(name, time_out);
    return std::make_unique<detail::link>(id, ranks, rank, time_out, what, std::move(dog));
}

inline communicator communicator::group(std::vector<std::size_t> const& members) {
    auto const what = next("forming a group", members.size());
    auto sorted = members;
    algorithm::sort(sorted);
    auto const mine = algorithm::find(members, rank());
    if (mine == members.end() || sorted.back() >= size() || std::ranges::adjacent_find(sorted) != sorted.end())
        throw error(what.text() + ": in which this rank is not, or a rank is twice, or that are none of its ranks");
    std::string name = state_->name + "/group";
    for (auto const m : members) name += " " + std::to_string(m);
    name += " #" + std::to_string(++state_->groups[members]);
    communicator result(state_->shared, static_cast<std::size_t>(mine - members.begin()), members.size(),
                        state_->options, name, state_->dog);
    result.charge_as(*this);
    return result;
}

inline std::optional<communicator> communicator::split(std::optional<int> color, int key) {
    auto const what = next("dividing the ranks", size());
    if (color && *color < 0)
        throw error(what.text() + ": a color is " + std::to_string(*color) + ", expected 0 or more");
    auto const number = ++state_->splits;
    auto link = std::make_unique<detail::link>(*state_->link, color.value_or(NCCL_SPLIT_NOCOLOR), key, what);
    if (!color) return std::nullopt;
    auto const [rank, ranks] = link->rank_and_ranks(what);
    auto name = state_->name + "/split " + std::to_string(number) + " " + std::to_string(*color);
    communicator result(std::shared_ptr<state>(new state{.shared = state_->shared,
                                                         .options = state_->options,
                                                         .name = std::move(name),
                                                         .rank = static_cast<std::size_t>(rank),
                                                         .ranks = static_cast<std::size_t>(ranks),
                                                         .dog = state_->dog,
                                                         .link = std::move(link)}));
    result.charge_as(*this);
    return result;
}

inline void communicator::open(lane which) {
    if (which == lane::values || state_->apart.contains(which)) return;
    auto const what = next("opening a lane", size());
    state_->apart.emplace(which, std::make_unique<detail::link>(*state_->link, 0, static_cast<int>(rank()), what));
}

template <class Call>
request communicator::start_message(detail::operation const& what, std::size_t from, std::size_t to, Call&& call) {
    if (from >= size() || to >= size())
        throw error(what.text() + ": between ranks " + std::to_string(from) + " and " + std::to_string(to));
    auto own = std::make_shared<detail::started>();
    message m{.what = what, .computed = {}, .call = std::forward<Call>(call), .own = own};
    m.computed.record(state_->options.computation);
    state_->mailboxes[{from, to}].pending.push_back(std::move(m));
    state_->enqueue_messages();
    auto result = make_request(own);
    result.enqueue_ = [what, own, kept = state_] {
        kept->link->in_time(what, [&] { return kept->enqueue_messages(), own->is_enqueued; });
    };
    return result;
}

inline bool communicator::state::is_open(std::pair<std::size_t, std::size_t> const& between, mailbox& m) {
    auto const& what = m.pending.front().what;
    if (m.link) return m.link->is_ready(what);
    auto const key = name + "/from " + std::to_string(between.first) + " to " + std::to_string(between.second);
    bool const sends = between.first == rank;
    if (sends && between.second == rank) throw error(what.text() + ": a rank sends to itself");
    if (!sends && !shared.find(key)) return false;
    m.link = join(shared, key, sends ? 0 : 1, 2, options.time_out, what, dog);
    return false;
}

inline void communicator::state::enqueue_messages() {
    for (auto& [between, m] : mailboxes)
        while (!m.pending.empty() && is_open(between, m)) {
            auto const next = std::move(m.pending.front());
            m.pending.pop_front();
            next.computed.hold(m.link->stream());
            m.link->enqueue(next.what, next.call);
            m.link->watch(next.what, next.own);
        }
}

inline communicator::state::~state() {
    if (std::uncaught_exceptions() > 0 || !link || !link->has_ranks()) return;
    // What is still to be sent is received by a rank that goes on; if none does, the job is about to end.
    try {
        link->in_time({.name = "sending messages"}, [&] {
            enqueue_messages();
            return algorithm::all_of(mailboxes, [](auto const& m) { return m.second.pending.empty(); });
        });
    } catch (...) {} // NOLINT(bugprone-empty-catch)
}

inline void communicator::watch(std::string_view name) {
    auto const what = next(name, 0);
    (void)state_->link->is_ready(what);
    state_->link->watch(what, std::make_shared<detail::started>(), state_->options.computation);
}

inline void communicator::synchronise() {
    auto const what = next("waiting for all that was enqueued", 0);
    event computed, communicated;
    computed.record(state_->options.computation);
    communicated.record(state_->link->stream());
    state_->link->in_time(what, [&] {
        state_->enqueue_messages();
        for (auto& [between, m] : state_->mailboxes)
            if (m.link) (void)m.link->is_ready(what);
        for (auto& [which, apart] : state_->apart) (void)apart->is_ready(what);
        (void)state_->link->is_ready(what);
        return computed.is_past() && communicated.is_past();
    });
}

} // namespace heddle::nccl
