// SPDX-License-Identifier: BSL-1.0
#include <heddle/base/quantity.hpp>
#include <heddle/search/anneal.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/result.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <stop_token>

using namespace heddle;
using search::limit_kind;
using search::status;

namespace {

search::outcome<> concluded(limit_kind which, std::optional<double> cost, double bound, double wanted) {
    search::outcome<> out;
    out.which_limit = which;
    search::conclude(out, cost, bound, wanted);
    return out;
}

} // namespace

TEST_CASE("a bound at the cost is a proof, whatever ended the search") {
    for (auto const which : {limit_kind::none, limit_kind::time, limit_kind::width}) {
        auto const out = concluded(which, 10.0, 10.0 * (1 - 1e-10), 10.0);
        CHECK(out.status == status::optimal);
        CHECK(out.which_limit == limit_kind::none);
        CHECK(out.lower_bound == 10.0);
    }
}

TEST_CASE("a bound below the cost leaves what was found feasible, or limited where something stopped the search") {
    auto const done = concluded(limit_kind::none, 10.0, 9.0, 10.0),
               stopped = concluded(limit_kind::time, 10.0, 9.0, 10.0);
    CHECK(done.status == status::feasible);
    CHECK(stopped.status == status::limit);
    CHECK(stopped.which_limit == limit_kind::time);
    CHECK(done.lower_bound == 9.0);
    CHECK(concluded(limit_kind::none, -10.0, -11.0, -10.0).status == status::feasible);
    CHECK(concluded(limit_kind::none, -10.0, -10.0, -10.0).status == status::optimal);
}

TEST_CASE("without a solution a search that ended has proven that there is none") {
    CHECK(concluded(limit_kind::none, {}, 5.0, 5.0).status == status::infeasible);
    CHECK(concluded(limit_kind::stopped, {}, 3.0, 5.0).status == status::limit);
    CHECK(concluded(limit_kind::stopped, {}, 3.0, 5.0).lower_bound == 3.0);
}

TEST_CASE("a bound on the best few proves nothing of the first where the last is still wanted") {
    CHECK(concluded(limit_kind::none, 10.0, 10.0, std::numeric_limits<double>::infinity()).status == status::feasible);
}

TEST_CASE("costs may be quantities") {
    search::outcome<seconds> out;
    search::conclude(out, seconds(2), seconds(1.5));
    CHECK(out.status == status::feasible);
    CHECK(out.lower_bound == seconds(1.5));
    CHECK(out.plain().lower_bound == 1.5);
    CHECK(out.plain().status == status::feasible);
}

TEST_CASE("a budget ends with the first limit that is reached, and stays so") {
    search::limits const o{.labels = 10, .comparisons = 20, .bytes = 30};
    search::budget left(o);
    CHECK_FALSE(left.is_spent(9, 19, 29));
    CHECK(left.reached() == limit_kind::none);
    CHECK(left.is_spent(10, 0, 0));
    CHECK(left.reached() == limit_kind::labels);
    CHECK(left.is_spent(0));
    CHECK(search::budget(o).is_spent(0, 20));
    search::budget memory(o);
    CHECK(memory.is_spent(0, 0, 30));
    CHECK(memory.reached() == limit_kind::memory);
}

TEST_CASE("a budget ends with time, a request or the visitor's word") {
    search::limits o;
    CHECK_FALSE(search::budget(o).is_spent(std::numeric_limits<std::size_t>::max() - 1));
    o.seconds = 0;
    search::budget late(o);
    CHECK(late.is_spent(0));
    CHECK(late.reached() == limit_kind::time);
    std::stop_source source;
    source.request_stop();
    o.stop = source.get_token();
    search::budget asked(o);
    CHECK(asked.is_spent(0));
    CHECK(asked.reached() == limit_kind::stopped);
    search::budget told{search::limits{}};
    told.stop();
    CHECK(told.is_spent(0));
    CHECK(told.reached() == limit_kind::stopped);
}
