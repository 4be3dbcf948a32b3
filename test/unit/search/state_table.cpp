// SPDX-License-Identifier: BSL-1.0
#include <heddle/search/block_vector.hpp>
#include <heddle/search/state_table.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace {

using namespace heddle;

/// All alike to the hash table, as bad as a hash can be.
struct colliding {
    int value;
    friend bool operator==(colliding, colliding) = default;
};

} // namespace

template <>
struct std::hash<colliding> {
    std::size_t operator()(colliding) const { return 7; }
};

TEST_CASE("block_vector: elements stay where they are and need not be copied") {
    search::block_vector<std::unique_ptr<int>> values;
    CHECK(values.size() == 0);
    auto const* const first = &values.push_back(std::make_unique<int>(0));
    for (int n = 1; n < 5000; ++n) CHECK(*values.push_back(std::make_unique<int>(n)) == n);
    CHECK(&values[0] == first);
    CHECK(values.size() == 5000);
    for (std::size_t n : {0u, 1u, 511u, 512u, 513u, 4999u}) CHECK(*values[n] == static_cast<int>(n));
}

TEST_CASE("state_table numbers states in the order in which they are first met") {
    search::state_table<std::string> table;
    auto const text = [](std::uint32_t n) { return "state " + std::to_string(n * 7919); };
    auto const first = table.insert(text(0));
    CHECK(first.first == 0);
    CHECK(first.second);
    auto const* const place = &table[0];
    std::uint32_t const count = 10'000;
    for (std::uint32_t n = 1; n < count; ++n) {
        auto const [number, is_new] = table.insert(text(n));
        CHECK(number == n);
        CHECK(is_new);
        auto const again = table.insert(text(n / 2));
        CHECK(again.first == n / 2);
        CHECK_FALSE(again.second);
    }
    CHECK(table.size() == count);
    CHECK(&table[0] == place);
    for (std::uint32_t n = 0; n < count; ++n) CHECK(table[n] == text(n));
    auto const states = std::move(table).states();
    REQUIRE(states.size() == count);
    for (std::uint32_t n = 0; n < count; ++n) CHECK(states[n] == text(n));
}

TEST_CASE("state_table finds what is there, and takes from what it is given only what is new") {
    search::state_table<std::string> table;
    CHECK_FALSE(table.find("a state"));
    std::string given(100, 'x');
    table.insert(std::as_const(given));
    CHECK(given == std::string(100, 'x'));
    CHECK(table.find(given) == 0u);
    CHECK_FALSE(table.find("a state"));
    auto again = given;
    table.insert(std::move(again));
    CHECK(again == given);
    auto other = given + "y";
    CHECK(table.insert(std::move(other)) == std::pair(1u, true));
    CHECK(other.empty());
}

TEST_CASE("state_table: states whose hashes agree are still told apart") {
    search::state_table<colliding> table;
    for (int n = 0; n < 300; ++n) CHECK(table.insert({n}) == std::pair(static_cast<std::uint32_t>(n), true));
    for (int n = 0; n < 300; ++n) CHECK(table.insert({n}) == std::pair(static_cast<std::uint32_t>(n), false));
}

TEST_CASE("state_table tells apart states that differ in their upper bits alone, or in their lower ones") {
    for (int shift : {0, 20, 32, 46}) {
        search::state_table<std::uint64_t> table;
        for (std::uint32_t n = 0; n < 200'000; ++n) REQUIRE(table.insert(std::uint64_t{n} << shift).first == n);
    }
}
