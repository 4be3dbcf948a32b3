// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Feeds arbitrary bytes to one reader, HEDDLE_FUZZED; anything but an `error` is a failure.
#include <heddle/json/cluster.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/templates.hpp>
#include <heddle/json/theory.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        static_cast<void>(heddle::json::HEDDLE_FUZZED({reinterpret_cast<char const*>(data), size}, "fuzzed"));
    } catch (heddle::error const&) {}
    return 0;
}
