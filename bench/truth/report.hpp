// SPDX-License-Identifier: BSL-1.0
// What the programs that compare predictions with measurements share: their arguments, which rows are fitted on,
// figures of errors, and rows of predictions as CSV.
#pragma once

#include "../table_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace heddle::bench {

namespace fs = std::filesystem;

struct truth_arguments {
    fs::path data, csv;
    /// The part of the rows that is fitted on.
    double fit = 0.05;
};

/// Reads `--data DIR [--fit PART] [--csv FILE]`; ends the program where they are none.
inline truth_arguments read_arguments(int count, char** text, double fit) {
    truth_arguments a;
    a.fit = fit;
    for (int i = 1; i + 1 < count; i += 2) {
        std::string const name = text[i];
        if (name == "--data") a.data = text[i + 1];
        else if (name == "--csv") a.csv = text[i + 1];
        else if (name == "--fit") a.fit = std::atof(text[i + 1]);
        else a.data.clear(), i = count;
    }
    if (a.data.empty() || count % 2 == 0 || !(a.fit >= 0 && a.fit <= 1)) {
        std::fprintf(stderr, "usage: %s --data DIR [--fit PART, from 0 to 1] [--csv FILE]\n", text[0]);
        std::exit(2);
    }
    return a;
}

/// Returns the rows to fit on, ascending: the part of all that a fixed hash of their numbers puts first.
inline std::vector<std::size_t> rows_to_fit(std::vector<std::int64_t> const& numbers, double part) {
    auto const hash = [&](std::size_t i) {
        auto x = static_cast<std::uint64_t>(numbers[i]) + 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    };
    std::vector<std::size_t> rows(numbers.size());
    std::iota(rows.begin(), rows.end(), std::size_t{0});
    std::ranges::sort(rows, {}, hash);
    rows.resize(static_cast<std::size_t>(std::ceil(part * static_cast<double>(rows.size()) - 1e-9)));
    std::ranges::sort(rows);
    return rows;
}

struct prediction {
    std::string what, set;
    double predicted = 0, measured = 0;
    bool is_fitted = false;

    [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// Equal values share the mean of their ranks.
inline std::vector<double> ranks(std::vector<double> const& x) {
    std::vector<double> out;
    for (double v : x) {
        double below = 0, equal = 0;
        for (double w : x) below += w < v, equal += w == v;
        out.push_back(below + (equal - 1) / 2);
    }
    return out;
}

inline double spearman(std::vector<double> const& a, std::vector<double> const& b) {
    auto const x = ranks(a), y = ranks(b);
    double const mean = (static_cast<double>(x.size()) - 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    return xy / std::sqrt(xx * yy);
}

/// Returns by how much the fastest of the first `count` by prediction is slower than the best.
inline double regret(std::vector<double> const& predicted, std::vector<double> const& measured, std::size_t count) {
    std::vector<std::size_t> order(predicted.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](auto i) { return std::pair(predicted[i], i); });
    double best = measured[order[0]];
    for (std::size_t i = 1; i < std::min(count, order.size()); ++i) best = std::min(best, measured[order[i]]);
    return best / *std::ranges::min_element(measured) - 1;
}

/// Prints errors on the rows of a set that were not fitted on, beside what others report.
inline void print_errors(std::vector<prediction> const& all, std::string const& set, char const* anchor) {
    std::vector<double> predicted, measured, errors;
    double mean = 0, bias = 0;
    for (auto const& p : all) {
        if (p.set != set || p.is_fitted) continue;
        predicted.push_back(p.predicted);
        measured.push_back(p.measured);
        errors.push_back(std::abs(p.error()));
        mean += errors.back();
        bias += p.error();
    }
    if (errors.empty()) return;
    auto const count = static_cast<double>(errors.size());
    std::ranges::sort(errors);
    std::printf("| %s | %zu | %.1f %% | %.1f %% | %.1f %% | %+.1f %% | %.3f | %s |\n", set.c_str(), errors.size(),
                100 * mean / count, 100 * errors[errors.size() / 2], 100 * errors.back(), 100 * bias / count,
                errors.size() > 1 ? spearman(predicted, measured) : 1.0, anchor);
}

inline void print_errors_header() {
    std::puts("| rows | number | mean error | median | largest | bias | Spearman | others report |");
    std::puts("|---|---|---|---|---|---|---|---|");
}

inline void write_predictions(fs::path const& path, std::vector<prediction> const& all) {
    if (path.empty()) return;
    std::ofstream out(path);
    out << "set,row,predicted_s,measured_s,error,fitted_on\n";
    for (auto const& p : all)
        out << '"' << p.set << "\",\"" << p.what << "\"," << p.predicted << ',' << p.measured << ',' << p.error() << ','
            << p.is_fitted << '\n';
}

} // namespace heddle::bench
