// SPDX-License-Identifier: BSL-1.0
// A library to be loaded before MPI's: writes when each rank started and ended which operation, and when it only waited,
// as events of Chrome's trace viewer. The time between is computation. The file is $HEDDLE_TRACE.RANK.
#include <mpi.h>

#include <chrono>
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

int noted(char const* name, double begin, int code, MPI_Request* request) {
    if (code == MPI_SUCCESS) under_way[*request] = {name, begin};
    return code;
}

} // namespace

extern "C" {

int MPI_Iallreduce(void const* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
    double const begin = now();
    return noted("all_reduce", begin, PMPI_Iallreduce(send, receive, count, type, op, comm, request), request);
}
int MPI_Iallgatherv(void const* send, int count, MPI_Datatype type, void* receive, int const* counts, int const* begins,
                    MPI_Datatype received, MPI_Comm comm, MPI_Request* request) {
    double const begin = now();
    return noted("all_gather", begin,
                 PMPI_Iallgatherv(send, count, type, receive, counts, begins, received, comm, request), request);
}
int MPI_Ireduce_scatter(void const* send, void* receive, int const* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request* request) {
    double const begin = now();
    return noted("reduce_scatter", begin, PMPI_Ireduce_scatter(send, receive, counts, type, op, comm, request),
                 request);
}
int MPI_Ialltoallv(void const* send, int const* counts, int const* begins, MPI_Datatype type, void* receive,
                   int const* received, int const* places, MPI_Datatype received_type, MPI_Comm comm,
                   MPI_Request* request) {
    double const begin = now();
    return noted("all_to_all", begin,
                 PMPI_Ialltoallv(send, counts, begins, type, receive, received, places, received_type, comm, request),
                 request);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    double const begin = now();
    return noted("broadcast", begin, PMPI_Ibcast(data, count, type, root, comm, request), request);
}
int MPI_Isend(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    double const begin = now();
    return noted("send", begin, PMPI_Isend(data, count, type, to, tag, comm, request), request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    double const begin = now();
    return noted("receive", begin, PMPI_Irecv(data, count, type, from, tag, comm, request), request);
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    auto const found = under_way.find(*request);
    if (found != under_way.end() && found->second.first_test == 0) found->second.first_test = now();
    int const code = PMPI_Test(request, done, status);
    if (code == MPI_SUCCESS && *done != 0 && found != under_way.end()) {
        double const end = now();
        events.push_back({found->second.name, found->second.begin, end, false});
        events.push_back({"waits", found->second.first_test, end, true});
        under_way.erase(found);
    }
    return code;
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
