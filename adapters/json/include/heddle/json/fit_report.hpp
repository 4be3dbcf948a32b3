// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Prints what a fit found, as a table for people and as one JSON object.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/fit.hpp>

#include <string>
#include <vector>

namespace heddle::json {

namespace detail {

/// Median, 95th percentile and largest error.
[[nodiscard]] std::string percentages(error_summary const& e);

} // namespace detail

/// What a fit is about, for people, and its formula.
[[nodiscard]] std::string subject(collective_fit const& f);
[[nodiscard]] std::string subject(operator_fit const& f);
[[nodiscard]] std::string formula(collective_fit const& f);
[[nodiscard]] std::string formula(operator_fit const& f);

/// Returns everything to be said about a report's fits, each with what it is about.
[[nodiscard]] std::vector<std::string> warnings_of(fit_report const& report);

/// Returns two lines for each fit: its errors in percent, and the model.
[[nodiscard]] std::string fit_table(fit_report const& report);

/// One object with the models, their errors, and `warnings`.
[[nodiscard]] std::string fit_summary(fit_report const& report, std::vector<std::string> const& warnings);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/cluster_values.hpp>
#include <heddle/json/names.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <utility>

namespace heddle::json {

namespace detail {

HEDDLE_INLINE std::string with_unit(double value, char const* unit) {
    std::array<char, 64> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.4g %s", value, unit);
    return buffer.data();
}

HEDDLE_INLINE std::string describe(collective_model::piece const& p) {
    std::string text = with_unit(p.latency.value * 1e6, "us");
    if (p.slope.value > 0) text += " + bytes / " + with_unit(1e-9 / p.slope.value, "GB/s");
    return text;
}

HEDDLE_INLINE std::string describe(collective_model const& model) {
    std::string text;
    for (auto const& p : model.pieces) text += (text.empty() ? "" : ", ") + describe(p);
    return model.pieces.size() == 1 ? text : "max(" + text + ")";
}

HEDDLE_INLINE std::string describe(class_speed const& speed) {
    std::string const overhead = with_unit(speed.overhead.value_or(seconds(0)).value * 1e6, "us");
    std::string const work = speed.rate ? "flops / " + with_unit(speed.rate->value * 1e-12, "TFLOP/s") : "";
    std::string const traffic = speed.bandwidth ? "bytes / " + with_unit(speed.bandwidth->value * 1e-9, "GB/s") : "";
    if (!work.empty() && !traffic.empty()) return overhead + " + max(" + work + ", " + traffic + ")";
    return overhead + (work.empty() && traffic.empty() ? "" : " + ") + work + traffic;
}

HEDDLE_INLINE std::string percentages(error_summary const& e) {
    std::array<char, 64> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%7.1f %6.1f %6.1f", 100 * e.median, 100 * e.ninth_decile,
                  100 * e.worst);
    return buffer.data();
}

HEDDLE_INLINE std::string fit_rows(std::string const& subject, std::size_t width, std::string const& model,
                                   fit_quality const& q) {
    std::array<char, 64> count{};
    std::snprintf(count.data(), count.size(), "%7zu %6zu", q.samples, q.sizes);
    std::string padded = subject;
    padded.resize(std::max(padded.size(), width), ' ');
    std::string const held_out = q.held_out ? percentages(*q.held_out) : "      -      -      -";
    return padded + count.data() + " " + percentages(q.in_sample) + " " + held_out + "\n    " + model + "\n";
}

HEDDLE_INLINE nlohmann::ordered_json to_json(error_summary const& e) {
    return {{"median", e.median}, {"ninth_decile", e.ninth_decile}, {"worst", e.worst}};
}

/// A fit's entry: what it is about, its model, and how well that fits.
HEDDLE_INLINE nlohmann::ordered_json fit_entry(nlohmann::ordered_json out, nlohmann::ordered_json model,
                                               fit_quality const& q) {
    out["model"] = std::move(model);
    out["samples"] = q.samples;
    out["sizes"] = q.sizes;
    out["in_sample"] = to_json(q.in_sample);
    out["held_out"] = q.held_out ? to_json(*q.held_out) : nlohmann::ordered_json(nullptr);
    return out;
}

} // namespace detail

HEDDLE_INLINE std::string subject(collective_fit const& f) {
    return name(f.kind) + std::string(f.is_across ? " across " : " on ") + std::to_string(f.ranks) +
           (f.is_across ? " machines" : " ranks");
}

HEDDLE_INLINE std::string subject(operator_fit const& f) {
    std::string const of =
        f.of ? printable(f.of->kind, 40) + ' ' + f.of->pass() : std::string(name_of(operator_classes, f.category));
    return of + " on " + printable(f.device, 40) + ", " + std::string(name_of(element_types, f.type));
}

HEDDLE_INLINE std::string formula(collective_fit const& f) { return detail::describe(f.model); }
HEDDLE_INLINE std::string formula(operator_fit const& f) { return detail::describe(f.speed); }

HEDDLE_INLINE std::vector<std::string> warnings_of(fit_report const& report) {
    std::vector<std::string> result;
    auto const add = [&](auto const& fits) {
        for (auto const& f : fits)
            for (auto const& w : f.quality.warnings) result.push_back(subject(f) + ": " + w);
    };
    add(report.collectives);
    add(report.operators);
    return result;
}

HEDDLE_INLINE std::string fit_table(fit_report const& report) {
    std::size_t width = 34;
    for (auto const& f : report.collectives) width = std::max(width, subject(f).size());
    for (auto const& f : report.operators) width = std::max(width, subject(f).size());
    std::string const margin(width, ' ');
    std::string text = margin + "                      in sample, %         held out, %\n" + margin +
                       "samples  sizes  median   90 %  worst  median   90 %  worst\n";
    auto const add = [&](auto const& f) { text += detail::fit_rows(subject(f), width, formula(f), f.quality); };
    for (auto const& f : report.collectives) add(f);
    for (auto const& f : report.operators) add(f);
    return text;
}

HEDDLE_INLINE std::string fit_summary(fit_report const& report, std::vector<std::string> const& warnings) {
    nlohmann::ordered_json out{{"collectives", nlohmann::ordered_json::array()},
                               {"operators", nlohmann::ordered_json::array()}};
    for (auto const& f : report.collectives)
        out["collectives"].push_back(
            detail::fit_entry({{"collective", name(f.kind)}, {f.is_across ? "machines" : "ranks", f.ranks}},
                              detail::to_json(f.model), f.quality));
    for (auto const& f : report.operators) {
        nlohmann::ordered_json about{{"class", name_of(operator_classes, f.category)},
                                     {"device", f.device},
                                     {"dtype", name_of(element_types, f.type)}};
        if (f.of) about["operator"] = f.of->kind, about["pass"] = f.of->pass();
        out["operators"].push_back(detail::fit_entry(std::move(about), detail::to_json(f.speed), f.quality));
    }
    out["warnings"] = warnings;
    return out.dump();
}

} // namespace heddle::json

#endif
