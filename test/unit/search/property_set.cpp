// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/properties/property_set.hpp>

#include "support/random_programs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace {

using namespace heddle;

search::property_set set_of(std::size_t capacity, std::initializer_list<std::size_t> ids) {
    search::property_set s(capacity);
    for (auto id : ids) s.insert(id);
    return s;
}

} // namespace

TEST_CASE("property_set inserts, removes and compares numbers") {
    auto a = set_of(130, {0, 63, 64, 129});
    auto const b = set_of(130, {0, 64});
    CHECK(a.contains(129));
    CHECK_FALSE(a.contains(128));
    CHECK(a.includes(b));
    CHECK_FALSE(b.includes(a));
    CHECK(a.includes(a));
    CHECK_FALSE(b.includes(set_of(130, {128})));
    std::vector<std::size_t> ids;
    a.for_each([&](std::size_t id) { ids.push_back(id); });
    CHECK(ids == std::vector<std::size_t>{0, 63, 64, 129});
    a.erase(63);
    a.erase(129);
    CHECK(a == b);
    CHECK(a.hash() == b.hash());
}

TEST_CASE("property_set finds the first missing number, across words") {
    search::property_set s(130);
    CHECK(s.first_missing() == 0);
    CHECK(s.first_missing(70) == 70);
    for (std::size_t id = 0; id < 130; ++id) {
        s.insert(id);
        CHECK(s.first_missing() == id + 1);
        CHECK(s.first_missing(id) == id + 1);
    }
    s.erase(64);
    CHECK(s.first_missing() == 64);
    CHECK(s.first_missing(64) == 64);
    CHECK(s.first_missing(65) == 130);

    auto full = search::property_set(64);
    for (std::size_t id = 0; id < 64; ++id) full.insert(id);
    CHECK(full.first_missing() == 64);
    CHECK(full.first_missing(64) == 64);
    CHECK(search::property_set().first_missing() == 0);
    CHECK(search::property_set().includes(search::property_set()));
}

TEST_CASE("superset_index finds every superset while one property is rare, and only sets that have that property") {
    test::random_source random(1);
    std::size_t const capacity = 200;
    std::vector<search::property_set> sets;
    search::superset_index index;
    std::size_t supersets = 0;
    for (std::uint32_t n = 0; n < 400; ++n) {
        // Property 0 is in all, so it is soon common; the others are in a few each.
        search::property_set s(capacity);
        s.insert(0);
        for (int i = random.between(1, 5); i-- > 0;) s.insert(1 + random.below(capacity - 1));
        auto const candidates = index.candidates(s);
        for (std::uint32_t other = 0; other < n; ++other) {
            if (!sets[other].includes(s)) continue;
            ++supersets;
            CHECK(std::ranges::find(candidates, other) != candidates.end());
        }
        bool share_one = candidates.empty();
        s.for_each([&](std::size_t id) {
            share_one |=
                std::ranges::all_of(candidates, [&](auto other) { return other < n && sets[other].contains(id); });
        });
        CHECK(share_one);
        index.insert(n, s);
        sets.push_back(std::move(s));
    }
    CHECK(supersets > 20);
}

TEST_CASE("superset_index claims nothing if all properties are common") {
    search::superset_index index;
    auto const common = set_of(70, {0, 69});
    for (std::uint32_t n = 0; n < 30; ++n) {
        CHECK(index.candidates(common).size() == n);
        index.insert(n, common);
    }
    for (std::uint32_t n = 30; n < 100; ++n) index.insert(n, common);
    CHECK(index.candidates(common).empty());
    index.insert(100, set_of(70, {0, 5, 69}));
    CHECK(index.candidates(set_of(70, {0, 5})).size() == 1);
    CHECK(index.candidates(set_of(70, {5})).front() == 100);
    CHECK(index.candidates(search::property_set(70)).empty());
}
