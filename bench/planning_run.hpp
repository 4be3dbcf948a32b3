// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a bench plans, from a file, and the time that it takes.
#pragma once

#include <heddle/json/model.hpp>
#if __has_include(<heddle/pt2/all.hpp>)
#include <heddle/pt2/all.hpp>
#define HEDDLE_BENCH_HAS_PT2 1
#endif

#include <ctime>
#include <filesystem>
#include <string>

namespace heddle::bench {

/// Returns the CPU time that this process has taken.
inline double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Reads a model file, or an exported program if heddle::pt2 is linked.
inline program read_program(std::filesystem::path const& file) {
#ifdef HEDDLE_BENCH_HAS_PT2
    if (file.string().find(".pt2") != std::string::npos) return pt2::read_model(file).program;
#endif
    return json::read_model(file).program;
}

} // namespace heddle::bench
