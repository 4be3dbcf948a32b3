// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What the scripts of all pages begin with: the page's data, numbers in words, and elements.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle::html::detail {

inline constexpr char const* shared_script = R"js(
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const section = id => document.getElementById(id);

const seconds = s => {
  if (s === 0) return "0 s";
  if (s >= 0.1) return s.toPrecision(4) + " s";
  const [by, unit] = [[1e3, " ms"], [1e6, " µs"], [1e9, " ns"]].find(([by]) => s * by >= 0.1) || [1e9, " ns"];
  return (s * by).toPrecision(3) + unit;
};
const percent = part => (100 * part).toFixed(1) + " %";

const drawing = Object.assign(document.createElement("div"), { innerHTML: "<svg></svg>" }).firstChild.namespaceURI;
function element(tag, attributes, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS(drawing, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) name === "style" ? made.style.cssText = value : made.setAttribute(name, value);
  for (const child of children) if (child != null) made.append(child);
  return made;
}
)js";

} // namespace heddle::html::detail
