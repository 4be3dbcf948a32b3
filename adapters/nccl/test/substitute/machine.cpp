// SPDX-License-Identifier: BSL-1.0
#include "machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <thread>

namespace heddle::test::substitute {

namespace {

constexpr std::size_t memory_size = std::size_t{4} << 30U; // addresses; pages are there once they are used
constexpr std::size_t alignment = 256;
constexpr std::chrono::seconds patience{60};
constexpr std::size_t of_host = 0; // what the host does is done before it does anything else

std::string of_rank(std::size_t rank) { return "rank " + std::to_string(rank) + ": "; }

thread_local std::size_t rank_of_thread = 0;
thread_local bool is_host_of_rank = false;
struct sigaction before{};

void say_host_use(int, siginfo_t* info, void*) {
    auto& m = machine::get();
    if (m.is_device(info->si_addr)) {
        std::string const text = "violation: the host uses device memory: " + m.describe(info->si_addr) + "\n";
        [[maybe_unused]] auto const written = ::write(STDERR_FILENO, text.data(), text.size());
        ::_exit(86);
    }
    ::sigaction(SIGSEGV, &before, nullptr); // it happens again
}

/// Test frameworks have a handler of their own.
void handle_host_use() {
    struct sigaction action{};
    struct sigaction old{};
    action.sa_sigaction = say_host_use;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &old);
    if (old.sa_sigaction != say_host_use) before = old;
}

} // namespace

std::size_t machine::rank() { return rank_of_thread; }
void machine::become(std::size_t rank) {
    rank_of_thread = rank;
    is_host_of_rank = true;
}
void machine::help(std::size_t rank) { rank_of_thread = rank; }
bool machine::is_host() { return is_host_of_rank; }

void merge(vector_clock& into, vector_clock const& other) {
    for (auto const& [stream, number] : other) into[stream] = std::max(into[stream], number);
}

machine& machine::get() {
    static machine one;
    return one;
}

machine::machine() : file_(::memfd_create("device memory", MFD_CLOEXEC)) {
    if (file_ < 0 || ::ftruncate(file_, memory_size) != 0) throw std::runtime_error("no memory for a device");
    auto const map = [&](int protection) {
        void* const at = ::mmap(nullptr, memory_size, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
        if (at == MAP_FAILED) throw std::runtime_error("no addresses for a device");
        return static_cast<char*>(at);
    };
    device_ = map(PROT_NONE);
    view_ = map(PROT_READ | PROT_WRITE);
}

void machine::reset(std::size_t ranks) {
    handle_host_use();
    hosts_.assign(ranks, {});
    streams_.clear();
    events_.clear();
    memory_.clear();
    defaults_.assign(ranks, nullptr);
    taken_ = communicators = last_stream_ = last_recording_ = 0;
    problem_.reset();
    if (::ftruncate(file_, 0) != 0 || ::ftruncate(file_, memory_size) != 0) throw std::runtime_error("no memory");
    for (std::size_t r = 0; r < ranks; ++r) {
        become(r);
        defaults_[r] = new_stream();
    }
    become(0);
}

void machine::check_left() {
    pump();
    for (auto const& s : streams_)
        if (!s.queue.empty())
            violate(of_rank(s.rank) + s.queue.front()->name + " is never done: no other rank does its part");
    for (auto const& h : hosts_)
        if (h.open_groups > 0) violate("a group of calls of NCCL is still open at the end");
    auto const left = [&](std::size_t count, char const* what) {
        if (count > 0) violate(std::to_string(count) + " " + what + " are still there at the end");
    };
    left(communicators, "communicators");
    left(events_.size(), "events");
    left(static_cast<std::size_t>(
             std::count_if(streams_.begin(), streams_.end(), [](auto const& s) { return s.is_there; })) -
             defaults_.size(),
         "streams");
    left(static_cast<std::size_t>(
             std::count_if(memory_.begin(), memory_.end(), [](auto const& a) { return a.second.is_there; })),
         "pieces of device memory");
}

void machine::note(std::string const& problem) {
    if (!problem_) problem_ = problem;
    changed.notify_all();
}
void machine::violate(std::string const& problem) {
    note(problem);
    throw violation(*problem_);
}
void machine::go_on() const {
    if (problem_) throw violation(*problem_);
}

void* machine::take(std::size_t size) {
    auto const begin = taken_;
    taken_ += (size + alignment - 1) / alignment * alignment;
    if (taken_ > memory_size) violate("the device has no more memory");
    memory_.emplace(begin, allocation{begin, size, rank(), true, {}});
    return device_ + begin;
}

bool machine::is_device(void const* address) const {
    auto const* const at = static_cast<char const*>(address);
    return at >= device_ && at < device_ + memory_size;
}

void* machine::view(void const* device) const { return view_ + (static_cast<char const*>(device) - device_); }

std::string machine::describe(void const* device) const {
    auto const at = static_cast<std::size_t>(static_cast<char const*>(device) - device_);
    auto next = memory_.upper_bound(at);
    if (next == memory_.begin()) return "an address that nobody has taken";
    auto const& a = (--next)->second;
    return "byte " + std::to_string(at - a.begin) + " of " + std::to_string(a.size) + " that rank " +
           std::to_string(a.rank) + " has taken";
}

allocation& machine::allocation_of(void const* begin, std::size_t size, std::string const& what) {
    if (!is_device(begin)) violate(of_rank(rank()) + what + " is given memory that is none of the device's");
    auto const at = static_cast<std::size_t>(static_cast<char const*>(begin) - device_);
    auto next = memory_.upper_bound(at);
    if (next == memory_.begin()) violate(of_rank(rank()) + what + " is given memory that nobody has taken");
    auto& a = (--next)->second;
    if (at + size > a.begin + a.size)
        violate(of_rank(rank()) + what + " uses " + std::to_string(size) + " bytes from " + describe(begin));
    if (a.rank != rank()) violate(of_rank(rank()) + what + " uses " + describe(begin));
    if (!a.is_there) violate(of_rank(rank()) + what + " uses memory that was given back");
    return a;
}

cudaStream_t machine::stream_of(cudaStream_t given) { return given ? given : defaults_.at(rank()); }

cudaStream_t machine::new_stream() {
    auto& s = streams_.emplace_back();
    s.id = ++last_stream_;
    s.rank = rank();
    return &s;
}

void machine::use(vector_clock const& known, access const& now, allocation& a, bool may_throw) {
    for (auto const& past : a.accesses) {
        if (past.end <= now.begin || now.end <= past.begin || (!past.writes && !now.writes)) continue;
        if (past.stream == now.stream && past.number == now.number) continue;
        auto const done = known.find(past.stream);
        if (done != known.end() && done->second >= past.number) continue;
        auto const problem = of_rank(a.rank) + now.what + (now.writes ? " writes" : " reads") + " what " + past.what +
                             (past.writes ? " writes" : " reads") + ", and does not wait for it";
        if (may_throw) violate(problem);
        return note(problem);
    }
    // What happens before this, and is all within what this writes, is found out by this from now on.
    std::erase_if(a.accesses, [&](auto const& past) {
        bool const is_same = past.stream == now.stream && past.number == now.number;
        return !is_same && past.begin >= now.begin && past.end <= now.end && (now.writes || !past.writes) &&
               known.contains(past.stream) && known.at(past.stream) >= past.number;
    });
    if (now.stream != of_host) a.accesses.push_back(now);
}

void machine::use_all(vector_clock const& known, access now, ranges const& reads, ranges const& writes,
                      bool may_throw) {
    auto const each = [&](ranges const& all, bool is_written) {
        for (auto const& r : all) {
            if (r.size == 0) continue;
            auto& a = allocation_of(r.begin, r.size, now.what);
            now.writes = is_written;
            now.begin = static_cast<std::size_t>(static_cast<char const*>(r.begin) - device_);
            now.end = now.begin + r.size;
            use(known, now, a, may_throw);
        }
    };
    each(reads, false);
    each(writes, true);
}

work_ptr machine::enqueue(cudaStream_t on, std::string name, ranges const& reads, ranges const& writes,
                          std::function<bool()> advance, bool may_throw) {
    if (mine().recording > 0 && on->recording != mine().recording && may_throw)
        violate(of_rank(rank()) + name + " is enqueued on a stream that is not recorded");
    merge(on->clock, mine().clock);
    auto const number = ++on->length;
    use_all(on->clock, {on->id, number, name, false, 0, 0}, reads, writes, may_throw);
    on->clock[on->id] = number;
    on->queue.push_back(std::make_shared<work>(work{std::move(name), std::move(advance), false}));
    changed.notify_all();
    return on->queue.back();
}

void machine::host_access(std::string const& name, ranges const& reads, ranges const& writes, bool may_throw) {
    use_all(mine().clock, {of_host, 0, name, false, 0, 0}, reads, writes, may_throw);
}

void machine::pump() {
    for (bool moved = true; moved;) {
        moved = false;
        for (auto& s : streams_)
            while (!s.queue.empty() && s.queue.front()->advance()) {
                s.queue.front()->is_done = true;
                s.queue.pop_front();
                moved = true;
            }
    }
    changed.notify_all();
}

void machine::wait(std::unique_lock<std::mutex>& guard, work_ptr const& for_it) {
    auto const until = std::chrono::steady_clock::now() + patience;
    for (;;) {
        go_on();
        if (!for_it->is_done) pump();
        if (for_it->is_done) return;
        if (changed.wait_until(guard,
                               std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(20))),
            std::chrono::steady_clock::now() > until)
            violate(of_rank(rank()) + "waits for ever: " + for_it->name);
    }
}

void machine::refuse_wait(std::string const& how) {
    if (mine().iterations > 0) violate(of_rank(rank()) + "the host waits inside an iteration: " + how);
}

void machine::begin_recording(cudaStream_t origin) { origin->recording = mine().recording = ++last_recording_; }
void machine::join_recording(cudaStream_t on, cudaEvent_t event) {
    if (event->recording == on->recording) return;
    if (on->recording > 0 || event->recording != mine().recording)
        violate(of_rank(rank()) + "a stream waits for an event of another recording, or of none");
    on->recording = event->recording;
}
void machine::check_recording(cudaStream_t origin) {
    for (auto const& s : streams_)
        if (s.recording == origin->recording && origin->clock[s.id] < s.length)
            violate(of_rank(rank()) + "what is recorded on a stream is not waited for at the end");
}
void machine::end_recording() {
    for (auto& s : streams_)
        if (s.recording == mine().recording) s.recording = 0;
    mine().recording = 0;
}

void run(std::size_t ranks, std::function<void(std::size_t)> const& work) {
    auto& m = machine::get();
    m.reset(ranks);
    std::exception_ptr first;
    {
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r < ranks; ++r)
            threads.emplace_back([&, r] {
                machine::become(r);
                try {
                    work(r);
                } catch (...) {
                    std::scoped_lock const guard(m.lock);
                    if (!first) first = std::current_exception();
                }
            });
    }
    if (m.has_problem()) throw violation(*m.problem());
    if (first) std::rethrow_exception(first);
    m.check_left();
}

iteration::iteration() { ++machine::get().mine().iterations; }
iteration::~iteration() { --machine::get().mine().iterations; }

recording::recording(cudaStream_t origin) : origin_(origin) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.begin_recording(origin_);
}
recording::~recording() {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.end_recording();
}
void recording::end() {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.check_recording(origin_);
}

void* view(void const* device) { return machine::get().view(device); }

void launch(cudaStream_t on, std::string const& name, ranges const& reads, ranges const& writes,
            std::function<void()> kernel) {
    auto& m = machine::get();
    std::unique_lock guard(m.lock);
    m.go_on();
    m.enqueue(m.stream_of(on), name, reads, writes, [kernel = std::move(kernel)] { return kernel(), true; });
}

void launch_now(cudaStream_t on, std::string const& name, ranges const& reads, ranges const& writes,
                std::function<void()> const& kernel) {
    auto& m = machine::get();
    {
        std::unique_lock guard(m.lock);
        m.go_on();
        m.wait(guard, m.enqueue(m.stream_of(on), name, reads, writes, [] { return true; }));
    }
    kernel();
}

void fail_next(ncclResult_t code, bool later) {
    auto& m = machine::get();
    std::scoped_lock const guard(m.lock);
    m.mine().next_failure = code;
    m.mine().fails_later = later;
}
std::size_t aborted() { return machine::get().mine().aborted; }
std::size_t calls_of(std::string const& name) { return machine::get().mine().calls[name]; }

} // namespace heddle::test::substitute
