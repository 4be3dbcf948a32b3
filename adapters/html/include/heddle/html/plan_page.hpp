// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan as one page for a browser, which needs nothing else.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/cluster.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace heddle::html {

/// Writes what a plan decides, and why, as one HTML file: times by term, well-known strategies beside it, a timeline of
/// the iteration, memory, and how every parameter and operator is cut, in the words of PyTorch's DTensor (`Shard(0)`,
/// `Replicate`, `Partial`). Everything shown is data that the page carries, in the element `data`, so that a script can
/// read it too. Of devices that are alike the timeline shows the first, and of very many unlike ones some.
/// `beside` has what else was found out, as `heddle plan --json` has it: `sensitivity` and `sweep`.
/// *Precondition.* `p` is a plan of this program, and the timeline is its; of a plan without steps, both are not read.
[[nodiscard]] std::string plan_page(plan const& p, indexed_program const& program, timeline const& events,
                                    nlohmann::ordered_json const& beside);
[[nodiscard]] std::string plan_page(plan const& p, indexed_program const& program, timeline const& events);

/// Writes a plan of stages in the same way; the timeline is `simulate`'s, of stages.
/// *Precondition.* `p` is a plan of this program. *Throws* as `simulate` does.
[[nodiscard]] std::string plan_page(staged_plan const& p, program const& program, cluster const& c,
                                    nlohmann::ordered_json const& beside);
[[nodiscard]] std::string plan_page(staged_plan const& p, program const& program, cluster const& c);

} // namespace heddle::html

#if HEDDLE_DEFINITIONS

#include <heddle/html/detail/page_data.hpp>
#include <heddle/html/detail/page_frame.hpp>
#include <heddle/html/detail/script.hpp>
#include <heddle/html/detail/staged_page_data.hpp>
#include <heddle/html/detail/style.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>

namespace heddle::html {

namespace detail {

[[nodiscard]] HEDDLE_INLINE std::string page(nlohmann::ordered_json shown, nlohmann::ordered_json const& beside) {
    shown.update(beside);
    return framed(shown, "Plan", style, R"html(<header>
<h1 id="title"></h1>
<p class="soft" id="origin"></p>
<div class="figures" id="figures"></div>
<ul id="words"></ul>
<noscript><p>This page shows its data by a script, which the browser has turned off.</p></noscript>
</header>
<main>
<section id="staged"><h2>Stages</h2><div id="stages"></div></section>
<section><h2>Where the time goes</h2><div id="time"></div></section>
<section><h2>Other plans beside it</h2><div id="families"></div></section>
<section id="changes"><h2>How far the cluster may change</h2><div id="sensitivity"></div></section>
<section id="sizes"><h2>Over numbers of devices</h2><div id="sweep"></div></section>
<section id="timeline"><h2>One iteration</h2>
<p class="soft" id="kinds"></p>
<p class="screen"><button id="closer">closer</button> <button id="wider">wider</button> <button id="earlier">earlier</button> <button id="later">later</button> <button id="all">all</button>
<span class="soft">or Ctrl and wheel, drag, double click; keys: arrows, + and -, 0. A bar that is pointed at, or tapped, is told of below.</span></p>
<canvas id="chart" tabindex="0" role="img" aria-label="Timeline of one iteration; the table below has its sums"></canvas>
<p class="soft" id="note"></p>
<p id="tip" role="status"></p>
<div class="scroll" id="busy"></div></section>
<section><h2>Memory</h2><div id="memory"></div></section>
<section id="blocks"><h2>Blocks</h2><div id="repeated"></div></section>
<section><h2>Parameters</h2><div id="parameters"></div></section>
<section><h2>Operators</h2><div id="operators"></div></section>
</main>
<footer id="warnings"></footer>
)html",
                  script);
}

} // namespace detail

HEDDLE_INLINE std::string plan_page(plan const& p, indexed_program const& program, timeline const& events,
                                    nlohmann::ordered_json const& beside) {
    return detail::page(detail::page_data(p, program, events).object(), beside);
}

HEDDLE_INLINE std::string plan_page(staged_plan const& p, program const& program, cluster const& c,
                                    nlohmann::ordered_json const& beside) {
    return detail::page(detail::staged_page_data(p, program, c).object(), beside);
}

HEDDLE_INLINE std::string plan_page(plan const& p, indexed_program const& program, timeline const& events) {
    return plan_page(p, program, events, nlohmann::ordered_json::object());
}
HEDDLE_INLINE std::string plan_page(staged_plan const& p, program const& program, cluster const& c) {
    return plan_page(p, program, c, nlohmann::ordered_json::object());
}

} // namespace heddle::html

#endif
