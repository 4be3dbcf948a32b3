// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The script of the page of a fit, and what it adds to the style of pages. It asks for nothing from elsewhere.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle::html::detail {

inline constexpr char const* fit_style = R"css(
h1 { overflow-wrap: anywhere; } .charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .9rem; min-height: 2.6em; } figcaption b { overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; } #all svg { max-width: 42rem; } svg text { fill: var(--soft); font-size: 11px; }
.axis { stroke: var(--line); fill: none; } .line { stroke: var(--soft); fill: none; } .far { stroke: var(--line); fill: none; stroke-dasharray: 4 3; }
.operator { fill: var(--forward); background: var(--forward); } .collective { fill: var(--communication); background: var(--communication); }
.ring { fill: none; stroke: var(--ink); } .key.ring { border: 1.5px solid var(--ink); border-radius: 50%; outline: none; } .key.mark { border-radius: 50%; outline: none; }
@media print { .operator, .collective, .key { print-color-adjust: exact; } }
)css";

inline constexpr char const* fit_script = R"js(
const scaled = (v, unit) => { const at = v >= 1e12 ? 4 : v >= 1e9 ? 3 : v >= 1e6 ? 2 : v >= 1e3 ? 1 : 0; return +(v / 1e3 ** at).toPrecision(3) + " " + ["", "k", "M", "G", "T"][at] + unit; };
const off = p => { const at = 100 * (p - 1); return (at < 0 ? "" : "+") + at.toFixed(1) + " %"; };

const points = data.fits.flatMap(fit => fit.points.map(([bytes, work, measured, predicted, heldOut, atRate]) => ({ fit, bytes, work, measured, predicted, heldOut, atRate })));
const told = p => [p.work ? scaled(p.work, "flop") : "", p.bytes ? scaled(p.bytes, "B") : ""].filter(t => t).join(", ") + ": measured " + seconds(p.measured) + ", predicted " + seconds(p.predicted) + " (" + off(p.predicted / p.measured) + ")"
  + (p.heldOut == null ? "" : ", held out " + seconds(p.heldOut) + " (" + off(p.heldOut / p.measured) + ")");

// ---- a chart: axes, marks, and what is told of the mark that is nearest to mouse or finger

const decades = ([low, high]) => { const found = []; for (let d = Math.ceil(Math.log10(low) - 1e-9); d <= Math.log10(high) + 1e-9; ++d) found.push(d); return found; };
const span = values => { const low = Math.min(...values), high = Math.max(...values); return [low / 1.3, high * 1.3]; };

function chart({ width, height, x, y, ySteps, xName, yName, label, marks, lines, tell }) {
  const left = 52, bottom = 34, top = 8, right = 24;
  const along = v => left + (width - left - right) * Math.log(v / x[0]) / Math.log(x[1] / x[0]);
  const up = v => height - bottom - (height - bottom - top) * (ySteps ? v / y[1] : Math.log(v / y[0]) / Math.log(y[1] / y[0]));
  const made = element("svg:svg", { viewBox: [0, 0, width, height].join(" "), role: "img", "aria-label": label });
  const text = (at, down, anchor, words) => element("svg:text", { x: at, y: down, "text-anchor": anchor }, words);
  const path = (steps, kind) => element("svg:path", { class: kind, d: steps.map(([a, b], n) => (n ? "L" : "M") + along(a).toFixed(1) + " " + up(b).toFixed(1)).join("") });
  const every = Math.ceil(decades(x).length / (width / 75));
  decades(x).forEach((d, n) => { const at = along(10 ** d); made.append(element("svg:path", { class: "axis", d: `M${at} ${top}V${height - bottom}` })); if (n % every === 0) made.append(text(at, height - bottom + 14, "middle", xName.of(10 ** d))); });
  for (const v of ySteps || decades(y).map(d => 10 ** d)) made.append(element("svg:path", { class: "axis", d: `M${left} ${up(v)}H${width - right}` }), text(left - 5, up(v) + 4, "end", yName.of(v)));
  made.append(text((left + width - right) / 2, height - 4, "middle", xName.title), text(left + 5, top + 9, "start", yName.title || ""));
  for (const [kind, steps] of lines) if (steps.length > 1) made.append(path(steps, kind));
  for (const m of marks) {
    const at = [along(m.x).toFixed(1), m.y == null ? null : up(m.y).toFixed(1)];
    if (m.heldOut != null) made.append(element("svg:circle", { class: "ring", cx: at[0], cy: up(m.heldOut).toFixed(1), r: 3.6 }));
    made.append(element("svg:circle", { class: m.of.fit.collective ? "collective" : "operator", cx: at[0], cy: at[1], r: 2.4 }));
  }
  const find = event => {
    const box = made.getBoundingClientRect(), scale = width / box.width, at = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = null, least = 24 ** 2;
    for (const m of marks) for (const v of m.heldOut == null ? [m.y] : [m.y, m.heldOut]) { const far = (along(m.x) - at[0]) ** 2 + (up(v) - at[1]) ** 2; if (far < least) { least = far; best = m.of; } }
    tell(best);
  };
  for (const kind of ["pointermove", "pointerdown"]) made.addEventListener(kind, find);
  made.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") tell(null); });
  return made;
}

function showAll(shown) {
  section("all").replaceChildren();
  if (!shown.length) return;
  const both = span(shown.flatMap(p => [p.measured, p.predicted, p.heldOut ?? p.predicted].filter(v => v > 0)));
  const tip = element("figcaption", { role: "status" });
  const timesOf = factor => [[both[0] * Math.max(1, 1 / factor), both[0] * Math.max(1, factor)], [both[1] * Math.min(1, 1 / factor), both[1] * Math.min(1, factor)]];
  section("all").append(element("figure", null, chart({ width: 480, height: 350, x: both, y: both, xName: { title: "measured", of: seconds1 }, yName: { title: "predicted", of: seconds1 }, label: "Predicted seconds over measured seconds, " + shown.length + " sizes",
    marks: shown.filter(p => p.predicted > 0).map(p => ({ of: p, x: p.measured, y: p.predicted, heldOut: p.heldOut > 0 ? p.heldOut : null })),
    lines: [["far", timesOf(2)], ["far", timesOf(0.5)], ["line", timesOf(1)]],
    tell: p => tip.textContent = p ? p.fit.name + ", " + told(p) : "" }), tip));
}
const seconds1 = s => s >= 0.999 ? +s.toPrecision(1) + " s" : s >= 0.999e-3 ? +(s * 1e3).toPrecision(1) + " ms" : +(s * 1e6).toPrecision(1) + " µs";

function showErrors(fits) {
  const head = element("tr", null, ...["fit", "samples", "sizes", "median", "90 %", "worst", "held out: median", "90 %", "worst"].map((t, n) => element("th", n ? { class: "number", scope: "col" } : { scope: "col" }, t)));
  const rows = fits.map(f => element("tr", null, element("td", { class: "name" }, f.name, element("br"), element("span", { class: "soft" }, f.model)),
    ...[String(f.samples), String(f.points.length), ...f.errors.map(percent), ...(f.heldOut || [null, null, null]).map(e => e == null ? "-" : percent(e))].map(t => element("td", { class: "number" }, t))));
  section("errors").replaceChildren(element("table", null, element("thead", null, head), element("tbody", null, ...rows)));
}

function showCharts(fits) {
  section("charts").replaceChildren(...fits.filter(f => f.points.length > 1 && f.points.some(p => p[5] > 0)).map(f => {
    const own = points.filter(p => p.fit === f && p.atRate > 0);
    const size = f.collective ? p => p.bytes : p => p.atRate;
    const marks = own.map(p => ({ of: p, x: size(p), y: p.atRate / p.measured, heldOut: p.heldOut > 0 ? p.atRate / p.heldOut : null }));
    const most = Math.max(1, ...marks.map(m => Math.max(m.y, m.heldOut ?? 0))) * 1.05;
    const along = span(marks.map(m => m.x)), rate = f.lines.at(-1)[1];
    const line = Array.from({ length: 81 }, (_, n) => along[0] * (along[1] / along[0]) ** (n / 80)).map(v => [v, rate * v / Math.max(...f.lines.map(([fixed, slope]) => fixed + slope * v))]);
    const tip = element("figcaption", null), tell = p => tip.replaceChildren(element("b", null, f.name), element("br"), element("span", { class: "soft" }, p ? told(p) : f.model));
    tell(null);
    const steps = most > 2.5 ? [0, 1, ...[2, 5, 10, 20, 50, 100, 1000].filter(v => v <= most).slice(-1)] : [0, 0.5, 1, ...(most >= 1.5 ? [1.5] : []), ...(most >= 2 ? [2] : [])];
    return element("figure", null, chart({ width: 300, height: 190, x: along, y: [0, most], ySteps: steps, label: "Efficiency of " + f.name + " over size",
      xName: f.collective ? { title: "bytes", of: v => scaled(v, "B") } : { title: "time at the model's rate", of: seconds1 }, yName: { of: v => 100 * v + " %" }, marks, lines: [["line", line]], tell }), tip);
  }));
}

function show() {
  const words = section("search").value.toLowerCase().split(/\s+/).filter(w => w);
  const fits = data.fits.filter(f => words.every(w => f.name.toLowerCase().includes(w)));
  showAll(points.filter(p => fits.includes(p.fit)));
  showErrors(fits);
  showCharts(fits);
}

document.title = data.title;
section("title").textContent = data.title;
const held = points.filter(p => p.heldOut != null).map(p => Math.abs(p.heldOut / p.measured - 1)).sort((a, b) => a - b);
const at = part => held.length ? percent(held[Math.ceil(part * held.length) - 1]) : "-";
section("figures").append(...[["fits", String(data.fits.length)], ["sizes", String(points.length)], ["samples", String(data.fits.reduce((sum, f) => sum + f.samples, 0))], ["error held out, median", at(0.5)], ["90 % are within", at(0.9)], ["worst", at(1)]]
  .map(([name, value]) => element("div", null, element("b", null, value), element("span", { class: "soft" }, name))));
if (data.warnings.length) section("warnings").append(element("h2", null, "Warnings"), element("ul", null, ...data.warnings.map(w => element("li", null, w))));
section("search").addEventListener("input", show);
show();
document.documentElement.dataset.shown = "yes";
)js";

} // namespace heddle::html::detail
