// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What was fitted to measurements, as one page for a browser, which needs nothing else.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/fit.hpp>

#include <string>
#include <vector>

namespace heddle::html {

/// Writes what a fit found as one HTML file: predicted beside measured seconds, also by models that are fitted without the
/// size that they predict; errors by fit; and the efficiency of each over its sizes. Everything shown is data that the page
/// carries, in the element `data`.
[[nodiscard]] std::string fit_page(fit_report const& report, std::string const& title,
                                   std::vector<std::string> const& warnings);

} // namespace heddle::html

#if HEDDLE_DEFINITIONS

#include <heddle/html/detail/fit_script.hpp>
#include <heddle/html/detail/page_frame.hpp>
#include <heddle/html/detail/style.hpp>
#include <heddle/json/fit_report.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>

namespace heddle::html {

namespace detail {

/// Returns the seconds that a size takes at its model's rate, without what each call takes; zero if there is no rate.
[[nodiscard]] HEDDLE_INLINE double at_rate(collective_fit const& f, timed_transfer const& p) {
    return f.model.pieces.back().slope.value * p.size;
}
[[nodiscard]] HEDDLE_INLINE double at_rate(operator_fit const& f, timed_kernel const& p) {
    return std::max(f.speed.rate ? p.work / f.speed.rate->value : 0,
                    f.speed.bandwidth ? p.size / f.speed.bandwidth->value : 0);
}

/// Returns the seconds that a model predicts as the largest of lines, `[fixed, slope]`, over bytes or over the seconds at
/// its rate.
[[nodiscard]] HEDDLE_INLINE nlohmann::ordered_json lines_of(collective_fit const& f) {
    auto lines = nlohmann::ordered_json::array();
    for (auto const& p : f.model.pieces) lines.push_back({p.latency.value, p.slope.value});
    return lines;
}
[[nodiscard]] HEDDLE_INLINE nlohmann::ordered_json lines_of(operator_fit const& f) {
    auto lines = nlohmann::ordered_json::array();
    lines.push_back({f.speed.overhead.value_or(seconds(0)).value, 1});
    return lines;
}

[[nodiscard]] inline double work_of(timed_transfer const&) { return 0; }
[[nodiscard]] inline double work_of(timed_kernel const& p) { return p.work; }

[[nodiscard]] HEDDLE_INLINE nlohmann::ordered_json errors_of(error_summary const& e) {
    return {e.median, e.ninth_decile, e.worst};
}

/// A fit: of each size bytes, work, the seconds measured, predicted and predicted without it, and those at its rate.
template <class Fit>
[[nodiscard]] nlohmann::ordered_json shown(Fit const& f, bool is_collective) {
    auto const& q = f.quality;
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < f.points.size(); ++i) {
        auto const& p = f.points[i];
        points.push_back({p.size, work_of(p), p.time, q.times[i], nullptr, at_rate(f, p)});
        if (!q.held_out_times.empty()) points.back()[4] = q.held_out_times[i];
    }
    return {{"name", json::subject(f)},
            {"collective", is_collective},
            {"model", json::formula(f)},
            {"lines", lines_of(f)},
            {"samples", q.samples},
            {"errors", errors_of(q.in_sample)},
            {"heldOut", q.held_out ? errors_of(*q.held_out) : nlohmann::ordered_json(nullptr)},
            {"points", std::move(points)}};
}

} // namespace detail

HEDDLE_INLINE std::string fit_page(fit_report const& report, std::string const& title,
                                   std::vector<std::string> const& warnings) {
    nlohmann::ordered_json all{{"title", title}, {"warnings", warnings}, {"fits", nlohmann::ordered_json::array()}};
    for (auto const& f : report.collectives) all["fits"].push_back(detail::shown(f, true));
    for (auto const& f : report.operators) all["fits"].push_back(detail::shown(f, false));
    return detail::framed(all, "Fit", std::string(detail::style) + detail::fit_style, R"html(<header>
<h1 id="title"></h1>
<p class="soft">Seconds are of single calls, each size's the median of its measurements. A prediction is held out if its model was fitted without the size.</p>
<div class="figures" id="figures"></div>
<noscript><p>This page shows its data by a script, which the browser has turned off.</p></noscript>
</header>
<main>
<p class="screen"><input type="search" id="search" aria-label="Fits whose names have these words" placeholder="search fits"></p>
<section><h2>Predicted beside measured</h2>
<p class="soft"><span class="named"><span class="key mark operator"></span>operator</span> <span class="named"><span class="key mark collective"></span>collective</span> <span class="named"><span class="key ring"></span>held out</span>; lines: as measured, and twice or half of that</p>
<div id="all"></div></section>
<section><h2>Errors by fit</h2><div class="scroll" id="errors"></div></section>
<section><h2>Efficiency over size</h2>
<p class="soft">What a call would take at its model's rate alone, as part of what it takes: as measured (dots), predicted (line) and held out (rings). Small calls are short of it by what each call takes.</p>
<div class="charts" id="charts"></div></section>
</main>
<footer id="warnings"></footer>
)html",
                          detail::fit_script);
}

} // namespace heddle::html

#endif
