// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reference data that are CSV without quotes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace heddle::bench {

using row = std::map<std::string, std::string>;

[[nodiscard]] inline std::vector<std::string> split(std::string line) {
    std::vector<std::string> cells;
    if (line.ends_with('\r')) line.pop_back();
    std::istringstream in(line + ",");
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
}

/// The rows of a CSV file by column name; none if there is no such file.
[[nodiscard]] inline std::vector<row> read_table(std::filesystem::path const& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    auto const header = split(line);
    std::vector<row> rows;
    while (std::getline(in, line)) {
        auto const cells = split(line);
        auto& r = rows.emplace_back();
        for (std::size_t c = 0; c < std::min(header.size(), cells.size()); ++c) r[header[c]] = cells[c];
    }
    return rows;
}

} // namespace heddle::bench
