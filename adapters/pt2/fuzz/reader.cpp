// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Feeds arbitrary bytes to the reader of exported programs; anything but an `error` is a failure.
#include <heddle/pt2/model.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        static_cast<void>(heddle::pt2::parse_model({reinterpret_cast<char const*>(data), size}, "fuzzed"));
    } catch (heddle::error const&) {}
    return 0;
}
