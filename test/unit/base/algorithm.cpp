// SPDX-License-Identifier: BSL-1.0
// They mean what those of std::ranges mean.
#include <heddle/base/algorithm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

namespace {

using namespace heddle;

struct item {
    int key = 0, place = 0;
    [[nodiscard]] int twice() const { return 2 * key; }
    friend bool operator==(item const&, item const&) = default;
};

/// Few keys, so that many are equal.
std::vector<item> some_items(std::uint32_t seed, int count) {
    std::vector<item> items;
    for (int n = 0; n < count; ++n) items.push_back({static_cast<int>((seed = seed * 1664525 + 1013904223) >> 29), n});
    return items;
}

} // namespace

TEST_CASE("searching, counting and comparing are those of std::ranges") {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        CAPTURE(seed);
        auto const items = some_items(seed, static_cast<int>(seed) % 12);
        for (int key = 0; key < 9; ++key) {
            auto const is_key = [key](item const& i) { return i.key == key; };
            auto const is_less = [key](int k) { return k < key; };
            CHECK(algorithm::find(items, key, &item::key) == std::ranges::find(items, key, &item::key));
            CHECK(algorithm::find(items, 2 * key, &item::twice) == std::ranges::find(items, 2 * key, &item::twice));
            CHECK(algorithm::find_if(items, is_key) == std::ranges::find_if(items, is_key));
            CHECK(algorithm::find_if(items, is_less, &item::key) == std::ranges::find_if(items, is_less, &item::key));
            CHECK(algorithm::any_of(items, is_key) == std::ranges::any_of(items, is_key));
            CHECK(algorithm::none_of(items, is_key) == std::ranges::none_of(items, is_key));
            CHECK(algorithm::all_of(items, is_less, &item::key) == std::ranges::all_of(items, is_less, &item::key));
            CHECK(algorithm::any_of(items, &item::key) == std::ranges::any_of(items, &item::key));
            CHECK(algorithm::count(items, key, &item::key) == std::ranges::count(items, key, &item::key));
            CHECK(algorithm::count_if(items, is_key) == std::ranges::count_if(items, is_key));
        }
        auto other = items;
        CHECK(algorithm::equal(items, other));
        CHECK(algorithm::equal(items, other, std::equal_to<>{}, &item::key, &item::key));
        if (!other.empty()) ++other.back().place;
        CHECK(algorithm::equal(items, other) == std::ranges::equal(items, other));
        CHECK(algorithm::equal(items, other, {}, &item::key, &item::key));
        other.emplace_back();
        CHECK_FALSE(algorithm::equal(items, other));
        CHECK_FALSE(algorithm::equal(other, items));
    }
}

TEST_CASE("the extremes are the first of equal elements") {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        auto const items = some_items(seed, 1 + static_cast<int>(seed) % 12);
        CHECK(algorithm::max_element(items, {}, &item::key) == std::ranges::max_element(items, {}, &item::key));
        CHECK(algorithm::min_element(items, {}, &item::key) == std::ranges::min_element(items, {}, &item::key));
        CHECK(algorithm::max(items, {}, &item::key) == std::ranges::max(items, {}, &item::key));
        CHECK(algorithm::min(items, std::greater<>{}, &item::key) ==
              std::ranges::min(items, std::greater<>{}, &item::key));
    }
    CHECK(algorithm::max(std::array{3.0, 7.0, 5.0}) == 7.0);
    CHECK(algorithm::max_element(std::vector<int>{}) == std::vector<int>{}.end());
}

TEST_CASE("sorted ranges and what is found in them are those of std::ranges, equals too") {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        auto mine = some_items(seed, 40), theirs = mine;
        algorithm::sort(mine, {}, &item::key);
        std::ranges::sort(theirs, {}, &item::key);
        CHECK(mine == theirs);
        for (int key = -1; key < 9; ++key) {
            CHECK(algorithm::lower_bound(mine, key, {}, &item::key) ==
                  std::ranges::lower_bound(mine, key, {}, &item::key));
            CHECK(algorithm::upper_bound(mine, key, {}, &item::key) ==
                  std::ranges::upper_bound(mine, key, {}, &item::key));
            CHECK(algorithm::binary_search(mine, key, {}, &item::key) ==
                  std::ranges::binary_search(mine, key, {}, &item::key));
        }
        auto const falling = [](item const& a, item const& b) { return a.key > b.key; };
        algorithm::sort(mine, falling);
        std::ranges::sort(theirs, falling);
        CHECK(mine == theirs);
        algorithm::reverse(mine);
        std::ranges::reverse(theirs);
        CHECK(mine == theirs);
    }
}

TEST_CASE("ranges may be of any kind") {
    int numbers[] = {3, 1, 2};
    algorithm::sort(numbers);
    CHECK(numbers[0] == 1);
    CHECK(algorithm::find(std::span<int const>(numbers), 2) != std::span<int const>(numbers).end());
    std::list<int> const list{1, 2, 3};
    CHECK(algorithm::equal(list, numbers));
    std::vector<bool> flags(3);
    algorithm::fill(flags, true);
    CHECK(algorithm::all_of(flags, [](bool b) { return b; }));
    std::vector<int> copied(3);
    CHECK(algorithm::copy(list, copied.begin()) == copied.end());
    CHECK(copied == std::vector{1, 2, 3});
}
