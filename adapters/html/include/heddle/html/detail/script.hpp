// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The script of the page, which shows the data that the page carries. It asks for nothing from elsewhere.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle::html::detail {

inline constexpr char const* script = R"js(
const plan = data;
const colours = { forward: "--forward", backward: "--backward", communication: "--communication", update: "--update" };
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = name => ink(colours[name]);
// Of black and white, what is easier to read on a colour.
const inkOn = paper => {
  const [red, green, blue] = paper.match(/[0-9a-f]{2}/g).map(part => parseInt(part, 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
};

// ---- words and numbers

const size = b => b >= 1e9 ? (b / 1e9).toFixed(3) + " GB" : b >= 1e6 ? (b / 1e6).toFixed(1) + " MB" : (b / 1e3).toFixed(1) + " kB";
const rounded = v => v >= 1000 ? v.toFixed(0) : v.toPrecision(3);

// Names break where their parts meet.
const broken = name => name.split(/(?<=[._])/).flatMap((part, n) => n ? [element("wbr"), part] : [part]);
function table(columns, rows) {
  const head = element("tr", null, ...columns.map(c => element("th", c.number ? { class: "number", scope: "col" } : { scope: "col" }, c.title)));
  const body = element("tbody", null, ...rows.map(row => {
    const line = element("tr", row.mine ? { class: "mine" } : null, ...columns.map(c => element("td", c.number ? { class: "number" } : c.form ? { class: "form" } : c.name ? { class: "name" } : null, ...(c.name ? broken(c.of(row)) : [c.of(row)]))));
    line.dataset.text = columns.map(c => c.of(row)).filter(t => typeof t === "string").join(" ").toLowerCase();
    return line;
  }));
  return element("table", null, element("thead", null, head), body);
}
function bar(parts, whole) {
  return element("div", { class: "bar", role: "img", "aria-label": parts.map(p => p.name + " " + percent(p.value / whole)).join(", ") },
    ...parts.map(p => element("i", { title: p.name + ": " + p.text, class: p.value > whole ? "beyond" : "", style: "background:var(" + p.colour + ");width:" + 100 * Math.min(1, p.value / whole) + "%" })));
}
const key = (colour, name) => element("span", { class: "named" }, element("span", { class: "key", style: "background:var(" + colour + ")" }), name);
const scrolled = made => element("div", { class: "scroll" }, made);

// ---- what was decided

function showSummary() {
  const status = ["status", plan.status + (plan.limit ? " (" + plan.limit + ")" : "")];
  const figures = !plan.exists ? [status] : [["per iteration", seconds(plan.seconds)], status, ["gap", plan.gap < 5e-7 ? "0 %" : (100 * plan.gap).toPrecision(2) + " %"],
    [plan.ofFamilies ? "the best of another family" : "the best well-known strategy", plan.best ? (plan.best.seconds / plan.seconds).toFixed(2) + " times as long" : plan.families.length ? "none" : "none tried"]];
  section("figures").append(...figures.map(([name, value]) => element("div", null, element("b", null, value), element("span", { class: "soft" }, name))));
  section("words").append(...plan.words.map(text => element("li", null, text)));
  if (plan.warnings.length) section("warnings").append(element("h2", null, "Warnings"), element("ul", null, ...plan.warnings.map(w => element("li", null, w))));
}

function showStages() {
  if (!plan.stages) { section("staged").hidden = true; return; }
  section("stages").append(scrolled(table(
    [{ title: "stage", of: r => r[0] }, { title: "operators", number: true, of: r => String(r[3]) }, { title: "from", name: true, of: r => r[1] }, { title: "to", name: true, of: r => r[2] },
     { title: "forward", number: true, of: r => seconds(r[4]) }, { title: "backward", number: true, of: r => seconds(r[5]) }, { title: "entered in", number: true, of: r => seconds(r[6]) }], plan.stages)),
    element("p", { class: "soft" }, "Times are of one micro-batch; what enters a stage comes from the one before, and its cotangent goes back."));
}

function showTime() {
  const terms = Object.entries(plan.time);
  const colourOf = name => name === "compute" || name === "pipeline" ? "--forward" : name === "update" ? "--update" : "--communication";
  section("time").append(scrolled(table(
    [{ title: "term", of: r => r[0] }, { title: "seconds", number: true, of: r => seconds(r[1]) },
     { title: "part", number: true, of: r => percent(r[1] / plan.seconds) },
     { title: "", of: r => bar([{ name: r[0], text: seconds(r[1]), value: r[1], colour: colourOf(r[0]) }], plan.seconds) }], terms)));
}

function showFamilies() {
  const rows = plan.families.map(([name, s, note]) => ({ name, s, note }));
  const chosen = plan.ofFamilies && rows.find(r => r.s === plan.seconds); // families have the plan's own among them
  if (chosen) chosen.mine = true;
  else rows.push({ name: "this plan", s: plan.seconds, note: "", mine: true });
  rows.sort((a, b) => (a.s ?? Infinity) - (b.s ?? Infinity));
  const longest = Math.max(...rows.map(r => r.s ?? 0)), most = Math.min(3 * plan.seconds, longest); // what is much longer would hide the rest
  section("families").append(scrolled(table(
    [{ title: plan.ofFamilies ? "family" : "strategy", of: r => r.name + (r.note ? " (" + r.note + ")" : "") }, { title: "seconds", number: true, of: r => r.s == null ? (plan.ofFamilies ? "none" : "does not fit") : seconds(r.s) },
     { title: "times the plan", number: true, of: r => r.s == null ? "" : (r.s / plan.seconds).toFixed(2) },
     { title: "", of: r => r.s == null ? "" : bar([{ name: r.name, text: seconds(r.s), value: r.s, colour: r.mine ? "--accent" : "--soft" }], most) }], rows)));
  const bounds = [["lower bound among " + plan.space, plan.lowerBound]];
  if (plan.globalLowerBound != null) bounds.push(["lower bound at any ratios", plan.globalLowerBound]);
  if (longest > most) section("families").append(element("p", { class: "soft" }, "A bar that ends in a gap is longer: it is cut at 3 times the plan."));
  section("families").append(element("p", { class: "soft" }, bounds.map(([name, s]) => name + ": " + seconds(s)).join("; ") + "."));
}

function showMemory() {
  const kinds = Object.keys(plan.devices[0].memory);
  const most = Math.max(...plan.devices.map(d => Math.max(d.limit, total(d))));
  function total(d) { return Object.values(d.memory).reduce((a, b) => a + b, 0); }
  const parts = d => kinds.map((k, n) => ({ name: k, text: size(d.memory[k]), value: d.memory[k], colour: "--memory-" + n }));
  section("memory").append(
    element("p", { class: "soft" }, "Of devices that are alike, the fullest. Bars are of the largest limit:", ...kinds.map((k, n) => key("--memory-" + n, k))),
    scrolled(table(
      [{ title: "devices", of: r => r.numbers }, { title: "type", of: r => r.name }, { title: "share", number: true, of: r => r.ratios.map(percent).join(", ") },
       ...kinds.map(k => ({ title: k, number: true, of: r => size(r.memory[k]) })),
       { title: "total", number: true, of: r => size(total(r)) }, { title: "of the limit", number: true, of: r => percent(total(r) / r.limit) },
       { title: "", of: r => bar(parts(r), most) }], plan.devices)));
}

// ---- other clusters

function showSensitivity() {
  if (!plan.sensitivity) { section("changes").hidden = true; return; }
  const unit = (v, u) => { const [by, prefix] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]].find(p => v >= p[0]) || [1, ""]; return (v / by).toPrecision(3) + " " + prefix + u; };
  const cell = (r, side) => unit(r[side].same, r.unit) + (r[side].changed == null ? " +" : "");
  // Bars on a scale of factors, from an eighth to eight times.
  const span = r => {
    const at = v => 50 + 50 * Math.log(v / r.now) / Math.log(8), from = Math.max(0, at(r.down.same)), to = Math.min(100, at(r.up.same));
    return element("div", { class: "bar span", role: "img", "aria-label": "from " + (r.down.same / r.now).toFixed(2) + " to " + (r.up.same / r.now).toFixed(2) + " times" },
      element("i", { style: "width:" + from + "%" }), element("i", { style: "background:var(--accent);width:" + (to - from) + "%" }));
  };
  const then = r => ["down", "up"].filter(side => r[side].then).map(side => unit(r[side].changed, r.unit) + ": " + r[side].then).join("; ");
  section("sensitivity").append(
    element("p", { class: "soft" }, "Each number alone, the others as they are; within " + Math.round(100 * plan.sensitivity.tolerance) + " %, up to a factor of 8 (+: no further tried). Bars are from an eighth of the number to eight times it."),
    scrolled(table([{ title: "number", of: r => r.name }, { title: "now", number: true, of: r => unit(r.now, r.unit) }, { title: "down to", number: true, of: r => cell(r, "down") },
      { title: "up to", number: true, of: r => cell(r, "up") }, { title: "", of: span }, { title: "beyond", of: then }], plan.sensitivity.numbers)));
}

function showSweep() {
  if (!plan.sweep) { section("sizes").hidden = true; return; }
  const rows = plan.sweep, known = rows.filter(r => r.cost != null), width = 640, height = 260, left = 70, foot = 40;
  const most = Math.max(...rows.map(r => r.devices)), fastest = Math.max(...known.map(r => r.samples_per_second));
  const x = n => left + (width - left - 20) * n / most, y = s => height - foot - (height - foot - 20) * s / fastest;
  const draw = (name, attributes, text) => element("svg:" + name, attributes, text);
  const picture = draw("svg", { viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Samples per second over devices; the table below has the numbers", style: "max-width:40rem;width:100%" });
  const line = (points, style) => picture.append(draw("polyline", { points: points.map(p => p.join(",")).join(" "), fill: "none", style }));
  line([[left, 20], [left, height - foot], [width - 20, height - foot]], "stroke:var(--soft)");
  line(known.map(r => [x(r.devices), y(r.samples_per_second)]), "stroke:var(--accent);stroke-width:2");
  let free = -Infinity; // where the next number below may begin
  for (const r of known) {
    const dot = draw("circle", { cx: x(r.devices), cy: y(r.samples_per_second), r: 4, style: "fill:var(--accent)" });
    dot.append(draw("title", {}, r.types + ": " + seconds(r.cost) + ", " + r.strategy));
    picture.append(dot);
    if (x(r.devices) < free) continue;
    picture.append(draw("text", { x: x(r.devices), y: height - foot + 18, "text-anchor": "middle", style: "fill:var(--soft);font-size:12px" }, r.devices));
    free = x(r.devices) + 22;
  }
  for (const part of [0.5, 1]) picture.append(draw("text", { x: left - 6, y: y(part * fastest) + 4, "text-anchor": "end", style: "fill:var(--soft);font-size:12px" }, rounded(part * fastest)));
  picture.append(draw("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", style: "fill:var(--soft);font-size:12px" }, "devices"),
    draw("text", { x: left + 8, y: 16, style: "fill:var(--soft);font-size:12px" }, "samples per second"));
  section("sweep").append(picture, scrolled(table([{ title: "devices", number: true, of: r => String(r.devices) }, { title: "types", of: r => r.types },
    { title: "seconds", number: true, of: r => r.cost == null ? "none" : seconds(r.cost) }, { title: "samples per second", number: true, of: r => r.cost == null ? "" : rounded(r.samples_per_second) },
    { title: "of each device", number: true, of: r => r.cost == null ? "" : rounded(r.samples_per_second / r.devices) }, { title: "strategy", of: r => r.strategy || r.reason }], rows)));
}

// ---- tables to search

function searchable(id, columns, rows, what) {
  const made = table(columns, rows), count = element("span", { class: "soft", role: "status" });
  const field = element("input", { type: "search", placeholder: "search " + what, "aria-label": "search " + what });
  const lines = [...made.tBodies[0].rows];
  const filter = () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const line of lines) { line.hidden = !wanted.every(w => line.dataset.text.includes(w)); shown += !line.hidden; }
    count.textContent = " " + shown + " of " + rows.length;
  };
  field.addEventListener("input", filter);
  filter();
  section(id).append(field, count, element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": what }, made));
}

// Parameters of blocks that are alike but for their number, in one row.
function showBlocks() {
  const ranges = numbers => {
    const runs = [];
    for (const n of [...numbers].sort((a, b) => a - b)) runs.length && runs.at(-1)[1] === n - 1 ? runs.at(-1)[1] = n : runs.push([n, n]);
    return runs.map(([a, b]) => a === b ? String(a) : a + "-" + b).join(", ");
  };
  const kinds = new Map();
  for (const row of plan.parameters) {
    const parts = row[0].split("."), at = parts.findIndex(part => /^\d+$/.test(part)), number = parts[at];
    if (at >= 0) parts[at] = null; // where the number was
    const key = JSON.stringify([parts, ...row.slice(1)]);
    if (!kinds.has(key)) kinds.set(key, { parts, row, numbers: [] });
    kinds.get(key).numbers.push(Number(number));
  }
  const rows = [...kinds.values()];
  if (2 * rows.length > plan.parameters.length) { section("blocks").hidden = true; return; }
  const name = r => r.parts.map(part => part ?? ranges(r.numbers)).join(".");
  const stage = plan.stages ? [{ title: "stage", number: true, of: r => String(r.row[6]) }] : [];
  searchable("repeated", [{ title: "parameters", name: true, of: name }, { title: "blocks", number: true, of: r => String(r.numbers.length) }, { title: "shape", of: r => r.row[1] },
    { title: "stored", form: true, of: r => r.row[2] }, { title: "used", form: true, of: r => r.row[3] }, { title: "that is", of: r => r.row[4] },
    { title: "each", number: true, of: r => size(r.row[5]) }, ...stage], rows, "blocks");
}

function showTables() {
  const ofStage = at => plan.stages ? [{ title: "stage", number: true, of: r => String(r[at]) }] : [];
  searchable("parameters", [{ title: "parameter", name: true, of: r => r[0] }, { title: "shape", of: r => r[1] }, { title: "stored", form: true, of: r => r[2] }, { title: "used", form: true, of: r => r[3] }, { title: "that is", of: r => r[4] },
    { title: "whole", number: true, of: r => size(r[5]) }, ...ofStage(6)], plan.parameters, "parameters");
  searchable("operators", [{ title: "step", name: true, of: r => r[0] }, { title: "cut dimension (extent)", of: r => r[1] }, { title: "operands", form: true, of: r => r[2] }, { title: "results", form: true, of: r => r[3] },
    { title: "forward", number: true, of: r => r[4] ? seconds(r[4]) : "" }, { title: "backward", number: true, of: r => r[5] ? seconds(r[5]) : "" }, { title: "communication", number: true, of: r => r[6] ? seconds(r[6]) : "" }, ...ofStage(7)],
    plan.operators, "operators and conversions");
}

// ---- the timeline

function showTimeline() {
  const canvas = section("chart"), tip = section("tip"), lanes = plan.timeline.lanes, labels = plan.timeline.labels;
  if (!lanes.length) { section("timeline").hidden = true; return; }
  section("kinds").append(...Object.entries({ ...colours, idle: "--field" }).map(([name, of]) => key(of, name)));
  section("note").textContent = plan.timeline.note || "";
  const bars = 26, foot = 22, whole = plan.timeline.total;
  let from = 0, to = whole, at = null, left = 0, head = 0, row = bars; // each line's name is left of its bars, or at their head
  const context = canvas.getContext("2d");
  const x = (t, width) => left + (t - from) / (to - from) * (width - left);
  function draw() {
    const width = canvas.clientWidth, font = size => { context.font = size + "px system-ui, sans-serif"; };
    font(12);
    const widest = Math.max(...lanes.map(lane => context.measureText(lane.name).width)) + 10;
    left = widest < 0.35 * width ? widest : 0; head = left ? 0 : 16; row = head + bars;
    const height = lanes.length * row + foot, scale = window.devicePixelRatio || 1;
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + "px";
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.textBaseline = "middle";
    const fills = Object.fromEntries(Object.keys(colours).map(name => [name, colour(name)])), inks = Object.fromEntries(Object.entries(fills).map(([name, fill]) => [name, inkOn(fill)]));
    lanes.forEach((lane, n) => {
      const top = n * row + head, middle = top + bars / 2;
      context.fillStyle = ink("--field"); context.fillRect(left, top + 2, width - left, bars - 4);
      for (const [label, start, duration] of lane.events) {
        if (start + duration < from || start > to) continue;
        const begin = Math.max(left, x(start, width)), end = Math.min(width, x(start + duration, width));
        const room = end - begin, [name, kind] = labels[label];
        context.fillStyle = fills[kind];
        context.fillRect(begin, top + 2, Math.max(room - (room > 3 ? 0.7 : 0), 0.4), bars - 4);
        if (room < 6) continue;
        // Where a pass's name does not fit, the number of its micro-batch may, if it is small.
        font(12);
        const length = text => context.measureText(text).width, pass = /^(?:forward|backward) (\d+)$/.exec(name);
        const text = pass && length(name) + 8 > room ? pass[1] : name;
        if (pass && length(text) + 4 > room) font(9);
        const fits = length(text) + 2 <= room;
        if (!fits && (pass || room <= 60)) continue;
        context.save(); context.beginPath(); context.rect(begin, top, room - 1, bars); context.clip();
        context.fillStyle = inks[kind]; context.fillText(text, fits ? (begin + end - length(text)) / 2 : begin + 4, middle); context.restore();
      }
      font(12);
      context.fillStyle = ink("--ink"); context.fillText(lane.name, 2, head ? n * row + head / 2 + 2 : middle);
    });
    const least = (to - from) * 90 / Math.max(width - left, 90), power = Math.pow(10, Math.floor(Math.log10(least)));
    const every = power * [1, 2, 5, 10].find(n => n * power >= least); // ticks at least 90 pixels apart
    context.fillStyle = ink("--soft");
    for (let t = Math.ceil(from / every) * every; t <= to; t += every) {
      context.fillRect(x(t, width), 0, 0.5, lanes.length * row);
      const label = seconds(t / 1e9);
      if (x(t, width) + 2 + context.measureText(label).width < width) context.fillText(label, x(t, width) + 2, height - foot / 2);
    }
    if (at) { context.strokeStyle = ink("--ink"); context.lineWidth = 2; const [label, start, duration] = lanes[at[0]].events[at[1]];
      context.strokeRect(x(start, width), at[0] * row + head + 2, Math.max(x(start + duration, width) - x(start, width), 2), bars - 4); }
  }
  function tell() {
    if (!at) { tip.textContent = ""; return; }
    const [label, start, duration] = lanes[at[0]].events[at[1]];
    tip.textContent = lanes[at[0]].name + ": " + labels[label][0] + " (" + labels[label][1] + "), " + seconds(duration / 1e9) + " from " + seconds(start / 1e9);
  }
  function zoom(factor, around) {
    const span = Math.min(whole, Math.max((to - from) * factor, whole * 1e-6));
    from = Math.min(Math.max(0, around - (around - from) / (to - from) * span), whole - span); to = from + span; draw();
  }
  function move(part) {
    const by = Math.min(Math.max(part * (to - from), -from), whole - to);
    from += by; to += by; draw();
  }
  const timeAt = event => from + Math.max(0, event.offsetX - left) / (canvas.clientWidth - left) * (to - from);
  function find(event) {
    const n = Math.floor(event.offsetY / row), t = timeAt(event);
    if (!lanes[n] || event.offsetX < left) return null;
    const reach = (event.pointerType === "mouse" ? 2 : 12) / (canvas.clientWidth - left) * (to - from); // a finger is not exact
    let nearest = null, least = reach;
    lanes[n].events.forEach(([, start, duration], k) => {
      const off = Math.max(start - t, t - start - duration, 0);
      if (off < least) { nearest = [n, k]; least = off; }
    });
    return nearest;
  }
  let held = null;
  canvas.addEventListener("wheel", event => { if (event.ctrlKey || event.shiftKey) { event.preventDefault(); zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, timeAt(event)); } }, { passive: false });
  const pick = event => { at = find(event); tell(); draw(); };
  canvas.addEventListener("pointerdown", event => { held = { x: event.offsetX, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", event => { if (held && !held.moved) pick(event); held = null; });
  canvas.addEventListener("pointercancel", () => held = null);
  canvas.addEventListener("pointermove", event => {
    if (!held) return pick(event);
    if (!held.moved && Math.abs(event.offsetX - held.x) < 4) return; // a tap trembles
    move((held.x - event.offsetX) / (canvas.clientWidth - left)); held = { x: event.offsetX, moved: true };
  });
  canvas.addEventListener("dblclick", event => zoom(0.4, timeAt(event)));
  canvas.addEventListener("keydown", event => {
    const keys = { "+": () => zoom(0.7, (from + to) / 2), "=": () => zoom(0.7, (from + to) / 2), "-": () => zoom(1.4, (from + to) / 2), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
      ArrowUp: () => lane(-1), ArrowDown: () => lane(1), "0": () => { from = 0; to = whole; draw(); } };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  function show() {
    const [, start, duration] = lanes[at[0]].events[at[1]];
    if (start < from || start + duration > to) { const span = to - from; from = Math.min(Math.max(0, start - span / 4), whole - span); to = from + span; }
    tell(); draw();
  }
  function step(by) { at = at ? [at[0], Math.min(Math.max(0, at[1] + by), lanes[at[0]].events.length - 1)] : [0, 0]; show(); }
  function lane(by) {
    if (!at) return step(0);
    const start = lanes[at[0]].events[at[1]][1];
    let n = at[0] + by;
    while (lanes[n] && !lanes[n].events.length) n += by; // a device that is left out
    if (!lanes[n]) return;
    const later = lanes[n].events.findIndex(e => e[1] + e[2] > start);
    at = [n, later < 0 ? lanes[n].events.length - 1 : later]; show();
  }
  for (const [id, act] of [["closer", () => zoom(0.5, (from + to) / 2)], ["wider", () => zoom(2, (from + to) / 2)], ["earlier", () => move(-0.5)], ["later", () => move(0.5)], ["all", () => { from = 0; to = whole; draw(); }]])
    section(id).addEventListener("click", act);
  window.addEventListener("resize", draw);
  for (const media of ["(prefers-color-scheme: dark)", "print"]) window.matchMedia(media).addEventListener("change", draw);
  draw();
  const sums = lanes.map(l => { const sum = { name: l.name, rounding: l.events.length, forward: 0, backward: 0, communication: 0, update: 0 }; for (const [label, , duration] of l.events) sum[labels[label][1]] += duration; return sum; });
  const idle = r => { const rest = whole - r.forward - r.backward - r.communication - r.update; return rest > r.rounding ? rest : 0; }; // times are whole nanoseconds
  section("busy").append(table([{ title: "line", of: r => r.name }, ...["forward", "backward", "communication", "update"].map(k => ({ title: k, number: true, of: r => seconds(r[k] / 1e9) })),
    { title: "idle", number: true, of: r => seconds(idle(r) / 1e9) }], sums));
}

document.title = plan.title;
section("title").textContent = plan.title;
section("origin").textContent = plan.origin;
showSummary();
if (plan.exists) { showStages(); showTime(); showFamilies(); showSensitivity(); showSweep(); showTimeline(); showMemory(); showBlocks(); showTables(); }
else for (const part of document.querySelectorAll("section")) part.hidden = true;
document.documentElement.dataset.shown = "yes";
)js";

} // namespace heddle::html::detail
