// SPDX-License-Identifier: BSL-1.0
// A library to be loaded before MPI's. It makes a rank as slow as one with $BED_SHARE of a processor, once there is a
// file $BED_LIMITED: at each call of MPI it sleeps until what was computed since the last one has taken as long. Where
// others slow its core down, two short products take longer than $BED_LOOP seconds, and the rank sleeps that much less.
// What MPI and the network do is no computation: they run on processor $BED_NETWORK, and so do the timers of a link
// that they start. And it writes when each rank started and ended which operation, and when it only waited, as events
// of Chrome's trace viewer; the time between is computation. The file is $HEDDLE_TRACE.RANK.
#include <mpi.h>

#include <dlfcn.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

struct event {
    char const* name;
    double begin, end;
    bool is_wait;
};
struct started {
    char const* name;
    double begin, first_test = 0;
};
std::vector<event> events;
std::map<MPI_Request, started> under_way;

/// Microseconds on a clock that all ranks of one machine have.
double now() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Microseconds that this thread has computed.
double computed() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

constexpr double short_computation = 300; // microseconds

double from_environment(char const* name, double otherwise) {
    char const* const given = std::getenv(name);
    return given ? std::atof(given) : otherwise;
}

} // namespace

/// Seconds that this thread takes for two short products by the library that multiplies for libtorch: as much as a
/// trained network is slowed down by what the other threads of the core do, so are these.
extern "C" double bed_loop() {
    using product = void(char const*, char const*, int const*, int const*, int const*, float const*, float const*,
                         int const*, float const*, int const*, float const*, float*, int const*);
    static auto* const multiply = [] {
        void* const library = dlopen("libblas.so.3", RTLD_LAZY);
        return reinterpret_cast<product*>(library ? dlsym(library, "sgemm_") : nullptr);
    }();
    if (!multiply) return 0;
    constexpr int rows = 128, columns = 4;
    static thread_local float a[rows * rows], x[rows * columns], y[rows * columns];
    float const one = 1, half = 0.5F;
    auto const both = [&] {
        for (char const* how : {"T", "N"})
            multiply(how, "N", &rows, &columns, &rows, &one, a, &rows, x, &rows, &half, y, &rows);
    };
    both(); // caches are warm
    double const begin = computed();
    both();
    return 1e-6 * (computed() - begin);
}

namespace {

/// Has this thread run on a processor from now on.
void move_to(int processor) {
    if (processor < 0 || processor == sched_getcpu()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

int network_processor() {
    static int const processor = static_cast<int>(from_environment("BED_NETWORK", -1));
    return processor;
}

/// A call of MPI, before which the computation since the last one takes as long as on the slower rank.
class call {
public:
    call() {
        if (is_limited()) sleep(last_computed_, last_);
        begin_ = now();
        if (sched_getcpu() != network_processor()) computes_on_ = sched_getcpu(), move_to(network_processor());
    }
    ~call() {
        if (!waits_on_) move_to(computes_on_);
        last_ = now(), last_computed_ = computed();
    }
    call(call const&) = delete;
    call& operator=(call const&) = delete;
    [[nodiscard]] double begin() const { return begin_; }
    /// Says that the rank has nothing to compute before its next call.
    void waits_on() { waits_on_ = true, left_ = 0; }

    int starts(char const* name, int code, MPI_Request* request) const {
        if (code == MPI_SUCCESS) under_way[*request] = {name, begin_};
        return code;
    }

private:
    static bool is_limited() {
        static char const* const file = std::getenv("BED_LIMITED");
        static bool limited = false;
        if (!limited && file && last_ > 0) limited = access(file, F_OK) == 0;
        return limited;
    }
    /// Sleeps until what was computed has taken as long as with the share. What is slept too long, or was waited for
    /// the processor, is slept less the next time, until the rank has to wait for others.
    static void sleep(double computed_before, double before) {
        static double const share = from_environment("BED_SHARE", 1), loop = from_environment("BED_LOOP", 0);
        double const taken = computed() - computed_before;
        if (loop > 0 && taken > short_computation) speed_ = loop / bed_loop();
        left_ += taken * speed_ / share - (now() - before);
        if (left_ <= 0) return;
        timespec const rest{static_cast<time_t>(left_ * 1e-6), static_cast<long>(std::fmod(left_, 1e6) * 1e3)};
        double const begin = now();
        nanosleep(&rest, nullptr);
        left_ -= now() - begin;
    }

    inline static double last_ = 0, last_computed_ = 0, left_ = 0, speed_ = 1;
    inline static int computes_on_ = -1;
    double begin_ = 0;
    bool waits_on_ = false;
};

} // namespace

extern "C" {

int MPI_Iallreduce(void const* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
    call const here;
    return here.starts("all_reduce", PMPI_Iallreduce(send, receive, count, type, op, comm, request), request);
}
int MPI_Iallgatherv(void const* send, int count, MPI_Datatype type, void* receive, int const* counts, int const* begins,
                    MPI_Datatype received, MPI_Comm comm, MPI_Request* request) {
    call const here;
    return here.starts("all_gather",
                       PMPI_Iallgatherv(send, count, type, receive, counts, begins, received, comm, request), request);
}
int MPI_Ireduce_scatter(void const* send, void* receive, int const* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request* request) {
    call const here;
    return here.starts("reduce_scatter", PMPI_Ireduce_scatter(send, receive, counts, type, op, comm, request), request);
}
int MPI_Ialltoallv(void const* send, int const* counts, int const* begins, MPI_Datatype type, void* receive,
                   int const* received, int const* places, MPI_Datatype received_type, MPI_Comm comm,
                   MPI_Request* request) {
    call const here;
    return here.starts(
        "all_to_all",
        PMPI_Ialltoallv(send, counts, begins, type, receive, received, places, received_type, comm, request), request);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    call const here;
    return here.starts("broadcast", PMPI_Ibcast(data, count, type, root, comm, request), request);
}
int MPI_Isend(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    call const here;
    return here.starts("send", PMPI_Isend(data, count, type, to, tag, comm, request), request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    call const here;
    return here.starts("receive", PMPI_Irecv(data, count, type, from, tag, comm, request), request);
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    call here;
    auto const found = under_way.find(*request);
    if (found != under_way.end() && found->second.first_test == 0) found->second.first_test = here.begin();
    int const code = PMPI_Test(request, done, status);
    if (code == MPI_SUCCESS && *done != 0 && found != under_way.end()) {
        double const end = now();
        events.push_back({found->second.name, found->second.begin, end, false});
        events.push_back({"waits", found->second.first_test, end, true});
        under_way.erase(found);
    }
    if (code == MPI_SUCCESS && *done == 0) here.waits_on();
    return code;
}

/// What the thread that has MPI go on calls, while its rank computes.
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* is_there, MPI_Status* status) {
    if (gettid() != getpid()) move_to(network_processor());
    return PMPI_Iprobe(from, tag, comm, is_there, status);
}

int MPI_Finalize() {
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (char const* const path = std::getenv("HEDDLE_TRACE"))
        if (std::FILE* const out = std::fopen((std::string(path) + "." + std::to_string(rank)).c_str(), "w")) {
            for (auto const& e : events)
                std::fprintf(out,
                             R"({"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f})"
                             "\n",
                             e.name, rank, e.is_wait ? 0 : 1, e.begin, e.end - e.begin);
            std::fclose(out);
        }
    return PMPI_Finalize();
}
}
