// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Documents with a few bytes or values changed, for readers to refuse in one line or to read.
#pragma once

#include "documents.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace heddle::test {

/// Numbers from 0 to n - 1, the same on every platform.
class dice {
public:
    explicit dice(std::uint64_t seed) : engine_(seed) {}
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }

private:
    std::mt19937_64 engine_;
};

/// Flips, deletes, copies or inserts a few bytes.
inline std::string mutate_bytes(std::string text, dice& d) {
    for (std::size_t n = 1 + d.below(4); n > 0 && !text.empty(); --n) {
        std::size_t const at = d.below(text.size()), length = std::min(text.size() - at, 1 + d.below(12));
        switch (d.below(5)) {
        case 0: text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << d.below(8))); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(d.below(text.size()), length)); break;
        case 3: text[at] = "0123456789-+.eE{}[]\",:"[d.below(22)]; break;
        default: text.resize(at); break;
        }
    }
    return text;
}

/// Swaps, replaces or removes values anywhere in a document; the result is JSON.
inline std::string mutate_values(nlohmann::json root, dice& d) {
    static nlohmann::json const strange{nullptr,
                                        true,
                                        -1,
                                        0,
                                        1,
                                        2,
                                        3,
                                        255,
                                        4096,
                                        1099511627776,
                                        1e300,
                                        -0.0,
                                        18446744073709551615u,
                                        "",
                                        "x",
                                        "float32",
                                        nlohmann::json::array(),
                                        nlohmann::json::object(),
                                        {{"node", 0}},
                                        {{"slice", {0, 1, nullptr}}},
                                        {{"ellipsis", true}}};
    for (std::size_t n = 1 + d.below(3); n > 0; --n) {
        std::vector<nlohmann::json*> all;
        collect(root, all);
        auto &one = *all[d.below(all.size())], &other = *all[d.below(all.size())];
        switch (d.below(4)) {
        case 0: one = strange[d.below(strange.size())]; break;
        case 1: {
            nlohmann::json const copy = other; // may contain `one`
            one = copy;
            break;
        }
        case 2:
            if (one.is_number_integer()) one = one.get<std::int64_t>() + static_cast<std::int64_t>(d.below(5)) - 2;
            break;
        default:
            if (one.is_object() && !one.empty())
                one.erase(std::next(one.begin(), static_cast<std::ptrdiff_t>(d.below(one.size()))));
            else if (one.is_array() && !one.empty()) one.erase(d.below(one.size()));
        }
    }
    return root.dump();
}

/// Reads mutated documents: each reads or throws an `error` of one line, and nothing else happens.
inline void check_mutations(std::uint64_t seed, int count, std::string const& text, bool is_json,
                            std::function<void(std::string const&)> const& read) {
    CAPTURE(seed);
    auto const root = is_json ? nlohmann::json::parse(text) : nlohmann::json();
    dice d(seed);
    int good = 0;
    for (int i = 0; i < count; ++i) {
        std::string const mutated = is_json && i % 2 ? mutate_values(root, d) : mutate_bytes(text, d);
        try {
            read(mutated);
            ++good;
        } catch (error const& e) {
            std::string const message = e.what();
            bool const one_line =
                message.starts_with("fuzzed") && message.find('\n') == std::string::npos && message.size() < 1000;
            if (!one_line) FAIL_CHECK("mutation " << i << ": " << message);
        } catch (...) { FAIL_CHECK("mutation " << i << " throws something else: " << mutated); }
    }
    CHECK(good > 0);
    CHECK(good < count);
}

} // namespace heddle::test
