// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The style of the page: light and dark, narrow and printed.
#pragma once

#include <heddle/base/requirements.hpp>

namespace heddle::html::detail {

inline constexpr char const* style = R"css(
:root { color-scheme: light;
  --paper: #fff; --ink: #1b1f24; --soft: #5a6472; --line: #d8dde3; --field: #f4f6f8;
  --forward: #3b78c2; --backward: #7fa9dc; --communication: #d9822b; --update: #6f9a45; --accent: #0b5cad;
  --memory-0: #3b78c2; --memory-1: #8cb8e8; --memory-2: #8a5fb0; --memory-3: #c9a227; --memory-4: #2f9e77; --memory-5: #d9822b; }
@media screen and (prefers-color-scheme: dark) { :root { color-scheme: dark;
  --paper: #14171b; --ink: #e4e8ec; --soft: #9aa5b1; --line: #343b44; --field: #1d2228;
  --forward: #5b97e0; --backward: #34588a; --communication: #e39a4a; --update: #8bb860; --accent: #7db7f5;
  --memory-0: #5b97e0; --memory-1: #a9cdf5; --memory-2: #a97fd0; --memory-3: #d8b545; --memory-4: #3fae88; --memory-5: #e39a4a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, li { max-width: 46rem; } ul { padding-left: 1.2rem; margin: .3rem 0; }
a { color: var(--accent); }
.soft { color: var(--soft); } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2rem; margin: .8rem 0; }
.figures div { min-width: 8rem; } .figures b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: break-word; }
th { color: var(--soft); font-weight: 600; } th.number { text-align: right; } td.form { min-width: 5.5rem; } td.name { overflow-wrap: anywhere; } td:first-child { min-width: 7.5rem; }
.scroll { overflow-x: auto; } .tall { max-height: 32rem; overflow: auto; } .tall thead th { position: sticky; top: 0; background: var(--paper); }
.bar { display: flex; height: 1.1rem; min-width: 6rem; background: var(--field); border-radius: 2px; overflow: hidden; }
.bar i { display: block; height: 100%; } .bar .beyond { mask-image: linear-gradient(105deg, #000 calc(100% - 1.4rem), #0000 0 calc(100% - 1rem), #000 0); }
.named { white-space: nowrap; } .key { display: inline-block; outline: 1px solid var(--line); width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .3rem 0 .8rem; vertical-align: -.05rem; }
.mine { font-weight: 600; }
input[type=search] { font: inherit; width: 100%; max-width: 24rem; padding: .35rem .5rem; margin: .4rem 0; border: 1px solid var(--line);
  border-radius: 4px; background: var(--field); color: inherit; }
button { font: inherit; padding: .15rem .6rem; border: 1px solid var(--line); border-radius: 4px; background: var(--field); color: inherit; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
#chart { display: block; width: 100%; touch-action: pan-y; border: 1px solid var(--line); border-radius: 4px; }
#tip { min-height: 1.5rem; margin: .3rem 0; font-size: .9rem; }
@media (max-width: 40rem) { body { padding: .6rem; font-size: 15px; } th, td { padding-right: .4rem; } .bar { min-width: 3rem; } }
@media print { @page { margin: 12mm; } body { max-width: none; padding: 0; font-size: 9pt; } .bar, .key { print-color-adjust: exact; }
  .scroll { overflow: visible; max-height: none; } th, td { padding-right: .3rem; } td.form, td:first-child { min-width: 0; } .bar { min-width: 2rem; }
  table { font-size: 7pt; } thead th { position: static; } input, button, .screen, #tip { display: none; } h2 { break-after: avoid; } tr { break-inside: avoid; } }
)css";

} // namespace heddle::html::detail
