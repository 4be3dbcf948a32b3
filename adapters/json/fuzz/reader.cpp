// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Feeds arbitrary bytes to one reader, HEDDLE_FUZZED; anything but an `error` is a failure.
#include <heddle/json/checkpoint.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/safetensors.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/templates.hpp>
#include <heddle/json/theory.hpp>
#include <heddle/json/trials.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::json {

/// Reads a header of a file that has a hundred bytes of elements.
static auto parse_safetensors(std::string_view text, std::string const& file) {
    return parse_safetensors_header(text, file, 0, 100);
}

} // namespace heddle::json

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    try {
        static_cast<void>(heddle::json::HEDDLE_FUZZED({reinterpret_cast<char const*>(data), size}, "fuzzed"));
    } catch (heddle::error const&) {}
    return 0;
}
