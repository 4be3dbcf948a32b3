// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Sets of properties as bits.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/requirements.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace heddle::search {

/// A set of small numbers; all sets of one problem have the same capacity.
class property_set {
public:
    property_set() = default;
    explicit property_set(std::size_t capacity) : words_((capacity + 63) / 64) {}

    void insert(std::size_t id) { words_[id / 64] |= std::uint64_t{1} << (id % 64); }
    void erase(std::size_t id) { words_[id / 64] &= ~(std::uint64_t{1} << (id % 64)); }
    [[nodiscard]] bool contains(std::size_t id) const { return (words_[id / 64] >> (id % 64)) & 1; }
    [[nodiscard]] bool includes(property_set const& other) const;
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t w = 0; w < words_.size(); ++w)
            for (std::uint64_t rest = words_[w]; rest; rest &= rest - 1)
                visit(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
    }
    /// Returns the least number from `from` on that is not in the set; `capacity` or more if there is none below it.
    [[nodiscard]] std::size_t first_missing(std::size_t from = 0) const;
    [[nodiscard]] std::size_t hash() const;
    friend bool operator==(property_set const&, property_set const&) = default;

    [[nodiscard]] std::span<std::uint64_t const> words() const { return words_; }

private:
    std::vector<std::uint64_t> words_;
};

/// Numbered sets, to find those that may include a given one. They are listed by each property that few sets have. Some
/// that include the given set are missed if all its properties are common.
class superset_index {
public:
    void insert(std::uint32_t number, property_set const& s);
    /// Returns numbers of sets, among them those with the rarest property of `s`.
    [[nodiscard]] std::span<std::uint32_t const> candidates(property_set const& s);

private:
    template <class Visit>
    void for_each_rare(property_set const& s, Visit&& visit) {
        auto const words = s.words();
        common_.resize(words.size());
        lists_.resize(words.size() * 64);
        for (std::size_t w = 0; w < words.size(); ++w)
            for (std::uint64_t rest = words[w] & ~common_[w]; rest; rest &= rest - 1)
                visit(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
    }

    std::vector<std::uint64_t> common_;
    std::vector<std::vector<std::uint32_t>> lists_;
    std::size_t count_ = 0;
};

} // namespace heddle::search

template <>
struct std::hash<heddle::search::property_set> {
    std::size_t operator()(heddle::search::property_set const& s) const { return s.hash(); }
};

#if HEDDLE_DEFINITIONS

namespace heddle::search {

HEDDLE_INLINE bool property_set::includes(property_set const& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
        if (other.words_[w] & ~words_[w]) return false;
    return true;
}

HEDDLE_INLINE std::size_t property_set::first_missing(std::size_t from) const {
    for (std::size_t w = from / 64; w < words_.size(); ++w) {
        std::uint64_t absent = ~words_[w];
        if (w == from / 64) absent &= ~std::uint64_t{0} << (from % 64);
        if (absent) return w * 64 + static_cast<std::size_t>(std::countr_zero(absent));
    }
    return words_.size() * 64;
}

HEDDLE_INLINE std::size_t property_set::hash() const {
    std::uint64_t h = 0x9e3779b97f4a7c15u;
    for (auto w : words_) h = (std::rotl(h, 23) ^ w) * 0xff51afd7ed558ccdu;
    return static_cast<std::size_t>(h ^ (h >> 32));
}

HEDDLE_INLINE void superset_index::insert(std::uint32_t number, property_set const& s) {
    ++count_;
    for_each_rare(s, [&](std::size_t id) {
        lists_[id].push_back(number);
        if (lists_[id].size() <= 32 + count_ / 8) return;
        common_[id / 64] |= std::uint64_t{1} << (id % 64);
        lists_[id] = {};
    });
}

HEDDLE_INLINE std::span<std::uint32_t const> superset_index::candidates(property_set const& s) {
    std::vector<std::uint32_t> const* rarest = nullptr;
    for_each_rare(s, [&](std::size_t id) {
        if (!rarest || lists_[id].size() < rarest->size()) rarest = &lists_[id];
    });
    return rarest ? std::span<std::uint32_t const>(*rarest) : std::span<std::uint32_t const>{};
}

} // namespace heddle::search

#endif
