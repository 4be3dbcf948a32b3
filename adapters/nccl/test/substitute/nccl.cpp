// SPDX-License-Identifier: BSL-1.0
// The calls of NCCL that the adapter uses.
#include "bfloat16.hpp"
#include "machine.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>

using namespace heddle::test::substitute;

namespace {

enum class kind { all_reduce, all_gather, reduce_scatter, reduce, broadcast, send, receive, split };
constexpr std::array names{"all-reduce", "all-gather", "reduce-scatter", "reduce",
                           "broadcast",  "send",       "receive",        "split"};

/// What one rank asks for in one call.
struct part {
    kind what = kind::all_reduce;
    void const* send = nullptr;
    void* receive = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat64;
    ncclRedOp_t op = ncclSum;
    int root = 0;
    bool is_done = false;
    std::size_t group_size = 1;

    [[nodiscard]] std::size_t element() const {
        return type == ncclFloat64 ? sizeof(double) : type == ncclFloat32 ? sizeof(float) : sizeof(bfloat16);
    }
    [[nodiscard]] std::string text() const {
        std::string result = names.at(static_cast<std::size_t>(what));
        if (what == kind::split) return result;
        result += " of " + std::to_string(count) +
                  (type == ncclFloat64   ? " doubles"
                   : type == ncclFloat32 ? " floats"
                                         : " numbers of 16 bits");
        if (what == kind::all_reduce && op != ncclSum) result += " by their maximum";
        if (what == kind::broadcast) result += " from rank " + std::to_string(root);
        if (what == kind::reduce) result += " at rank " + std::to_string(root);
        return result;
    }
    /// What all ranks have to agree upon.
    [[nodiscard]] auto agreed() const { return std::tuple(what, count, type, op, root); }
};
using part_ptr = std::shared_ptr<part>;

/// A call that ranks make together; a message is one of two.
struct meeting {
    part_ptr first; // as the first to call it has it
    std::size_t first_rank = 0;
    std::vector<part_ptr> parts; // of the ranks whose streams have come there
    std::size_t come = 0;
};

struct split_request {
    int color = 0, key = 0;
    ncclComm_t* result = nullptr;
};

/// The ranks that one id, or one division, joins.
struct clique {
    std::string name;
    std::vector<std::size_t> ranks; // of the threads
    std::size_t joined = 0;
    /// The collectives, in their order, and the messages by sender and receiver.
    std::deque<meeting> collectives;
    std::map<std::pair<int, int>, std::deque<meeting>> messages;
    std::map<std::size_t, std::map<int, split_request>> splits; // by number and rank
};

/// One rank's end, as long as something of it is enqueued.
struct end {
    std::shared_ptr<clique> ranks;
    int rank = 0;
    bool is_aborted = false;
    ncclResult_t failure = ncclSuccess;
    std::size_t unfinished = 0;
    std::size_t collectives = 0, splits = 0;
    std::map<std::pair<int, int>, std::size_t> messages;
    bool has_launched = false, is_splitting = false, is_new = true;
    cudaStream_t launching = nullptr;
    vector_clock enqueued; // its own calls alone
};

struct call {
    std::shared_ptr<end> by;
    part_ptr what;
    cudaStream_t on = nullptr;
};

thread_local std::vector<call> group;

std::map<std::string, std::shared_ptr<clique>>& cliques() {
    static std::map<std::string, std::shared_ptr<clique>> all;
    return all;
}

[[noreturn]] void refuse(std::string const& problem) {
    auto& m = machine::get();
    m.violate("rank " + std::to_string(m.rank()) + ": " + problem);
}

template <class Scalar>
void combine(std::vector<part_ptr> const& parts, std::size_t begin, std::size_t count, void* to) {
    auto& m = machine::get();
    std::vector<Scalar> result(count);
    for (std::size_t r = 0; r < parts.size(); ++r) {
        auto const* const from = static_cast<Scalar const*>(m.view(parts[r]->send)) + begin;
        for (std::size_t n = 0; n < count; ++n)
            result[n] = r == 0                    ? from[n]
                        : parts[r]->op == ncclSum ? Scalar(result[n] + from[n])
                                                  : std::max(result[n], from[n]);
    }
    std::memcpy(to, result.data(), count * sizeof(Scalar));
}

/// Moves the data of a call to which all have come.
void carry_out(meeting& all) {
    auto& m = machine::get();
    auto const& parts = all.parts;
    auto const& first = *parts.front();
    std::size_t const count = first.count, size = count * first.element();
    auto const move = [&](void const* from, void* to) {
        if (size > 0) std::memmove(m.view(to), m.view(from), size);
    };
    auto const reduced = [&](std::size_t begin) {
        std::vector<std::byte> result(size);
        if (count == 0) return result;
        if (first.type == ncclFloat64) combine<double>(parts, begin, count, result.data());
        else if (first.type == ncclFloat32) combine<float>(parts, begin, count, result.data());
        else if (first.type == ncclBfloat16) combine<bfloat16>(parts, begin, count, result.data());
        else refuse("adds elements of a type that the substitute does not know");
        return result;
    };
    auto const put = [&](std::vector<std::byte> const& from, void* to) {
        if (size > 0) std::memcpy(m.view(to), from.data(), size);
    };
    auto const root = static_cast<std::size_t>(first.root);
    switch (first.what) {
    case kind::all_reduce: {
        auto const result = reduced(0);
        for (auto const& p : parts) put(result, p->receive);
        break;
    }
    case kind::reduce: put(reduced(0), parts[root]->receive); break;
    case kind::reduce_scatter: {
        std::vector<std::vector<std::byte>> results;
        for (std::size_t r = 0; r < parts.size(); ++r) results.push_back(reduced(r * count));
        for (std::size_t r = 0; r < parts.size(); ++r) put(results[r], parts[r]->receive);
        break;
    }
    case kind::broadcast:
        for (auto const& p : parts) move(parts[root]->send, p->receive);
        break;
    case kind::all_gather:
        for (auto const& p : parts)
            for (std::size_t r = 0; r < parts.size(); ++r)
                move(parts[r]->send, static_cast<char*>(p->receive) + r * size);
        break;
    case kind::send:
    case kind::receive: move(parts[0]->send, parts[1]->receive); break;
    case kind::split: break;
    }
    for (auto const& p : parts) p->is_done = true;
}

/// The ranges that a call uses on a rank of so many.
std::pair<ranges, ranges> used(part const& p, std::size_t rank, std::size_t ranks) {
    auto const of = [&](void const* data, std::size_t count) {
        return range(std::span<std::byte const>(static_cast<std::byte const*>(data), count * p.element()));
    };
    bool const is_root = static_cast<std::size_t>(p.root) == rank;
    switch (p.what) {
    case kind::all_reduce: return {{of(p.send, p.count)}, {of(p.receive, p.count)}};
    case kind::all_gather: return {{of(p.send, p.count)}, {of(p.receive, p.count * ranks)}};
    case kind::reduce_scatter: return {{of(p.send, p.count * ranks)}, {of(p.receive, p.count)}};
    case kind::reduce: return {{of(p.send, p.count)}, is_root ? ranges{of(p.receive, p.count)} : ranges{}};
    case kind::broadcast: return {is_root ? ranges{of(p.send, p.count)} : ranges{}, {of(p.receive, p.count)}};
    case kind::send: return {{of(p.send, p.count)}, {}};
    case kind::receive: return {{}, {of(p.receive, p.count)}};
    case kind::split: break;
    }
    return {};
}

bool overlap(range const& a, range const& b) {
    auto const *const x = static_cast<char const*>(a.begin), *const y = static_cast<char const*>(b.begin);
    return x < y + b.size && y < x + a.size;
}

/// A call may work in place in one way only; calls of one group may not use what others write.
void check_places(std::vector<call> const& calls) {
    std::vector<std::pair<ranges, ranges>> all;
    for (auto const& c : calls) {
        auto const ranks = c.by->ranks->ranks.size(), rank = static_cast<std::size_t>(c.by->rank);
        all.push_back(used(*c.what, rank, ranks));
        auto const& [reads, writes] = all.back();
        if (reads.empty() || writes.empty() || !overlap(reads[0], writes[0])) continue;
        auto const* const from = static_cast<char const*>(c.what->send);
        auto const* const to = static_cast<char const*>(c.what->receive);
        std::size_t const shift = rank * c.what->count * c.what->element();
        bool const is_in_place = c.what->what == kind::all_gather       ? from == to + shift
                                 : c.what->what == kind::reduce_scatter ? to == from + shift
                                                                        : from == to;
        if (!is_in_place) refuse(c.what->text() + " overlaps what it is made of, otherwise than in place");
    }
    for (std::size_t a = 0; a < all.size(); ++a)
        for (std::size_t b = 0; b < all.size(); ++b)
            for (auto const& written : all[a].second) {
                auto const clashes = [&](range const& r) { return a != b && overlap(written, r); };
                if (std::ranges::any_of(all[b].first, clashes) || std::ranges::any_of(all[b].second, clashes))
                    refuse("calls of one group, " + calls[a].what->text() + " and " + calls[b].what->text() +
                           ", use the same memory");
            }
}

/// Returns the place of the next call of an end among those of all ranks, and makes sure that they agree.
meeting& next_meeting(end& by, part_ptr const& what) {
    auto& of = *by.ranks;
    bool const is_message = what->what == kind::send || what->what == kind::receive;
    auto const between = what->what == kind::send ? std::pair(by.rank, what->root) : std::pair(what->root, by.rank);
    auto& all = is_message ? of.messages[between] : of.collectives;
    auto& number = is_message ? (what->what == kind::send ? by.messages[between]
                                                          : by.messages[{-1 - between.first, between.second}])
                              : by.collectives;
    if (all.size() <= number) all.resize(number + 1);
    auto& found = all[number++];
    if (!found.first) {
        found.first = what;
        found.first_rank = of.ranks[static_cast<std::size_t>(by.rank)];
        found.parts.resize(is_message ? 2 : of.ranks.size());
        return found;
    }
    auto const told = [&](part const& p) {
        return p.text() + (p.group_size == 1 ? "" : " in a group of " + std::to_string(p.group_size));
    };
    bool const agree = is_message
                           ? found.first->count == what->count && found.first->type == what->type
                           : found.first->agreed() == what->agreed() && found.first->group_size == what->group_size;
    if (!agree)
        refuse("call " + std::to_string(number) + " of communicator '" + of.name + "' is " + told(*what) + ", rank " +
               std::to_string(found.first_rank) + " makes " + told(*found.first));
    return found;
}

/// Enqueues calls as one group: it is done when all of them are.
void enqueue_group(std::vector<call> const& calls) {
    auto& m = machine::get();
    check_places(calls);
    std::map<end*, std::size_t> sizes;
    for (auto const& c : calls)
        if (c.what->what != kind::send && c.what->what != kind::receive) ++sizes[c.by.get()];
    std::map<cudaStream_t, std::vector<call>> by_stream;
    for (auto const& c : calls) by_stream[m.stream_of(c.on)].push_back(c);
    for (auto& [on, some] : by_stream) {
        ranges reads, writes;
        std::string name;
        struct posting {
            call what;
            meeting* at;
            bool is_posted;
        };
        auto const all = std::make_shared<std::vector<posting>>();
        for (auto const& c : some) {
            if (auto const size = sizes.find(c.by.get()); size != sizes.end()) c.what->group_size = size->second;
            auto const r = used(*c.what, static_cast<std::size_t>(c.by->rank), c.by->ranks->ranks.size());
            reads.insert(reads.end(), r.first.begin(), r.first.end());
            writes.insert(writes.end(), r.second.begin(), r.second.end());
            if (name.empty()) name = c.what->text();
            ++m.mine().calls[names.at(static_cast<std::size_t>(c.what->what))];
            all->push_back({c, &next_meeting(*c.by, c.what), false});
            ++c.by->unfinished;
            if (!c.by->has_launched) { // it connects to others first
                c.by->has_launched = true;
                c.by->launching = on;
                ++on->launching;
            }
        }
        m.enqueue(on, name, reads, writes, [all] {
            bool done = true;
            for (auto& p : *all) {
                if (p.what.by->is_aborted) continue;
                if (!std::exchange(p.is_posted, true)) {
                    auto const kind = p.what.what->what;
                    auto const place = kind == kind::send ? 0 : kind == kind::receive ? 1 : p.what.by->rank;
                    p.at->parts[static_cast<std::size_t>(place)] = p.what.what;
                    if (++p.at->come == p.at->parts.size()) carry_out(*p.at);
                }
                done &= p.what.what->is_done;
            }
            if (done)
                for (auto& p : *all) --p.what.by->unfinished;
            return done;
        });
        for (auto const& c : some) c.by->enqueued[on->id] = on->length;
    }
}

} // namespace

struct ncclComm {
    std::shared_ptr<end> own;
    bool is_finalized = false;
};

namespace {

/// Returns a failure that a test has asked for.
ncclResult_t injected(ncclComm_t comm) {
    auto& mine = machine::get().mine();
    auto const code = std::exchange(mine.next_failure, ncclSuccess);
    if (mine.fails_later) return comm->own->failure = code, ncclSuccess;
    return code;
}

bool is_in_progress(ncclComm_t comm) {
    auto& own = *comm->own;
    if (own.launching || own.is_splitting || own.is_new) return true;
    return own.ranks->joined < own.ranks->ranks.size() || (comm->is_finalized && own.unfinished > 0);
}

ncclResult_t make(ncclComm_t comm, cudaStream_t on, part const& what) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    if (is_in_progress(comm)) refuse("a communicator is used before NCCL is done with what it was asked before");
    if (auto const code = injected(comm); code != ncclSuccess) return code;
    call const c{comm->own, std::make_shared<part>(what), on};
    if (m.mine().open_groups > 0) {
        group.push_back(c);
        return ncclSuccess;
    }
    enqueue_group({c});
    return comm->own->launching ? ncclInProgress : ncclSuccess;
}

ncclComm_t new_comm(std::shared_ptr<clique> of, int rank) {
    ++machine::get().communicators;
    auto own = std::make_shared<end>();
    own->ranks = std::move(of);
    own->rank = rank;
    return new ncclComm{std::move(own)};
}

/// Once all ranks have come, those of one color form a clique.
void divide(clique& whole, std::size_t number, std::map<int, split_request> const& asked) {
    std::map<int, std::vector<std::pair<int, int>>> by_color; // keys and ranks
    for (auto const& [rank, r] : asked)
        if (r.color != NCCL_SPLIT_NOCOLOR) by_color[r.color].emplace_back(r.key, rank);
    for (auto& [color, members] : by_color) {
        std::ranges::sort(members);
        auto const of = std::make_shared<clique>();
        of->name = whole.name + " split " + std::to_string(number) + " color " + std::to_string(color);
        of->joined = members.size();
        for (auto const& [key, rank] : members) of->ranks.push_back(whole.ranks[static_cast<std::size_t>(rank)]);
        for (std::size_t r = 0; r < members.size(); ++r)
            *asked.at(members[r].second).result = new_comm(of, static_cast<int>(r));
    }
}

} // namespace

char const* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclInProgress: return "in progress";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "unhandled system error";
    }
}
char const* ncclGetLastError(ncclComm_t) { return "as the test asked for"; }

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    static std::size_t made = 0;
    auto const name = "id " + std::to_string(++made);
    std::memset(id->internal, 0, sizeof id->internal);
    std::memcpy(id->internal, name.data(), name.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    if (!config || config->blocking != 0) refuse("a communicator blocks, which nobody could end in time");
    auto& of = cliques()[id.internal];
    if (!of) {
        of = std::make_shared<clique>();
        of->name = id.internal;
        of->ranks.resize(static_cast<std::size_t>(ranks));
    }
    if (of->ranks.size() != static_cast<std::size_t>(ranks) || rank < 0 || rank >= ranks)
        refuse("ranks of one communicator do not agree how many they are");
    of->ranks[static_cast<std::size_t>(rank)] = m.rank();
    ++of->joined;
    *result = new_comm(of, rank);
    m.changed.notify_all();
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t* config) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    if (is_in_progress(comm)) refuse("a communicator is divided before NCCL is done with what it was asked before");
    if (!config || config->blocking != 0) refuse("a communicator blocks, which nobody could end in time");
    auto& own = *comm->own;
    auto const what = std::make_shared<part>();
    what->what = kind::split;
    (void)next_meeting(own, what);
    *result = nullptr;
    auto& asked = own.ranks->splits[own.splits];
    asked[own.rank] = {color, key, result};
    own.is_splitting = true;
    if (asked.size() == own.ranks->ranks.size()) divide(*own.ranks, own.splits, asked);
    ++own.splits;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    if (!comm->is_finalized) m.go_on();
    else if (m.has_problem()) return ncclInternalError;
    m.pump();
    auto& own = *comm->own;
    *state = own.failure != ncclSuccess ? own.failure : is_in_progress(comm) ? ncclInProgress : ncclSuccess;
    if (*state == ncclInProgress && !comm->is_finalized) {
        // The background is done the next time; a host that asks till then waits for it.
        own.is_new = false;
        if (own.launching) --std::exchange(own.launching, nullptr)->launching;
        if (own.is_splitting && own.ranks->splits[own.splits - 1].size() == own.ranks->ranks.size())
            own.is_splitting = false;
        m.refuse_wait("ncclCommGetAsyncError");
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    comm->is_finalized = true;
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    if (comm->own->unfinished > 0) m.note("a communicator is destroyed before its calls are done");
    --m.communicators;
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    auto& own = *comm->own;
    own.is_aborted = true;
    merge(m.mine().clock, own.enqueued); // nothing of it runs any more
    if (own.launching) --own.launching->launching;
    ++m.mine().aborted;
    --m.communicators;
    delete comm;
    m.pump();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
    *rank = comm->own->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
    *count = static_cast<int>(comm->own->ranks->ranks.size());
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.go_on();
    ++m.mine().open_groups;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    if (m.mine().open_groups == 0) refuse("a group of calls of NCCL ends that was not begun");
    if (--m.mine().open_groups > 0) return ncclSuccess;
    auto const calls = std::exchange(group, {});
    m.go_on();
    enqueue_group(calls);
    bool const launches = std::ranges::any_of(calls, [](auto const& c) { return c.by->launching != nullptr; });
    return launches ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclAllReduce(void const* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t on) {
    return make(comm, on, {kind::all_reduce, send, receive, count, type, op});
}
ncclResult_t ncclAllGather(void const* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t on) {
    return make(comm, on, {kind::all_gather, send, receive, count, type});
}
ncclResult_t ncclReduceScatter(void const* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t on) {
    return make(comm, on, {kind::reduce_scatter, send, receive, count, type, op});
}
ncclResult_t ncclReduce(void const* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t on) {
    return make(comm, on, {kind::reduce, send, receive, count, type, op, root});
}
ncclResult_t ncclBroadcast(void const* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t on) {
    return make(comm, on, {kind::broadcast, send, receive, count, type, ncclSum, root});
}
ncclResult_t ncclSend(void const* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t on) {
    return make(comm, on, {kind::send, data, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t on) {
    return make(comm, on, {kind::receive, nullptr, data, count, type, ncclSum, peer});
}
