#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Opens pages of plans in a headless Chromium: no script error, what is shown are the plan's numbers, and all of it can be
had with a mouse, a finger or keys, on a narrow screen, in the dark and on paper.

    check_page.py HEDDLE FOLDER

Ends with 77 if there is no Chromium."""
import html
import json
import pathlib
import re
import subprocess
import sys

import chromium

heddle, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if not chromium.path:
    print("skipped: there is no Chromium")
    sys.exit(77)


def seconds(value):
    """Writes seconds as the page does."""
    if value == 0:
        return "0 s"
    if value >= 0.1:
        return significant(value, 4) + " s"
    for factor, unit in ((1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if value * factor >= 0.1:
            break
    return significant(value * factor, 3) + " " + unit


def significant(value, digits):
    """Writes so many digits, those that are zero too."""
    return f"{value:#.{digits}g}".rstrip(".")


def size(value):
    return f"{value / 1e9:.3f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"


def check_timeline(browser, timeline):
    """A bar is told of under the mouse, where a finger taps, and by keys."""
    def tip():
        return browser.ask("document.getElementById('tip').textContent")

    def told(lane, event):
        label, start, duration = timeline["lanes"][lane]["events"][event]
        return f"{timeline['lanes'][lane]['name']}: {timeline['labels'][label][0]} ({timeline['labels'][label][1]}), {seconds(duration / 1e9)} from"

    events = timeline["lanes"][0]["events"]
    longest = max(range(len(events)), key=lambda n: events[n][2])
    for width in (1280, 390):
        browser.show(width)
        left, top, across, down = browser.ask(
            "document.getElementById('chart').scrollIntoView(), (r => [r.x, r.y, r.width, r.height])(document.getElementById('chart').getBoundingClientRect())")
        y = top + (down - 22) / len(timeline["lanes"]) - 8
        for x in (left + across * n / 100 for n in range(100)):
            browser.mouse("mouseMoved", x, y)
            if tip().startswith(told(0, longest)):
                break
        else:
            raise AssertionError(f"{width}: the mouse finds no {told(0, longest)}")
    browser.mouse("mouseMoved", left + across - 1, y)
    browser.tap(x, y)
    assert tip().startswith(told(0, longest)), ("tap", tip(), told(0, longest))
    browser.show(1280)
    browser.mouse("mouseMoved", 1, 1)
    browser.ask("document.getElementById('chart').focus()")
    for _ in events:
        browser.press("ArrowLeft")
    for event in range(min(3, len(events))):
        assert tip().startswith(told(0, event)), (tip(), told(0, event))
        browser.press("ArrowRight")


def check_written(browser, timeline):
    """The chart has the name of each line, and numbers of micro-batches where passes have them."""
    labels = {label for label, _ in timeline["labels"]}
    for width in (1280, 390):
        browser.show(width)
        written = set(browser.ask("""(() => {
            const written = [], context = CanvasRenderingContext2D.prototype, write = context.fillText;
            context.fillText = function (text, ...more) { written.push(text); write.call(this, text, ...more); };
            dispatchEvent(new Event("resize")); // draws
            context.fillText = write;
            return written;
        })()"""))
        missing = {lane["name"] for lane in timeline["lanes"]} - written
        assert not missing, f"of {width} pixels, the chart has no {missing}"
        if width == 1280 and "forward 15" in labels:
            assert {"1", "10", "15"} <= written, written


def check_search(browser, name):
    """Of the parameters, those stay that have what is searched for."""
    browser.ask("document.querySelector('#parameters input').focus()")
    browser.write(name)
    names = browser.ask("[...document.querySelectorAll('#parameters tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].textContent)")
    assert name in names and all(name in one for one in names), (name, names)


def check_room(browser, name):
    """No table is cut off on a desk or on paper, where all is light; on a phone, tables alone are wider than the page."""
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.slice(0, 60))"
    paper = 703  # pixels, which are the 210 mm of A4 without two margins of 12 mm
    for width, media, tables in ((1280, "", cut), (paper, "print", cut), (390, "", "[]")):
        for dark in (False, True):
            browser.show(width, dark, media)
            assert browser.ask("document.documentElement.scrollWidth") <= width, f"{name}: the page is wider than {width} pixels"
            assert not (found := browser.ask(tables)), f"{name}: of {width} pixels {media}, tables are cut off: {found}"
            colour = browser.ask("getComputedStyle(document.body).backgroundColor")
            assert (colour == "rgb(255, 255, 255)") == (media == "print" or not dark), (name, media, dark, colour)
    assert browser.printed().startswith(b"%PDF"), name


def check_colours(browser, name):
    """What is written on a bar stands out from it by the factor of 4.5 that WCAG 2 asks for, and no two kinds of memory look alike."""
    def luminance(colour):
        parts = [int(colour[n:n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for dark in (False, True):
        browser.show(1280, dark)
        for kind, fill, written in browser.ask("Object.keys(colours).map(k => [k, colour(k), inkOn(colour(k))])"):
            least, most = sorted((luminance(fill), luminance(written)))
            assert (most + 0.05) / (least + 0.05) >= 4.5, (name, dark, kind, fill, written)
        kinds = browser.ask("Object.keys(plan.devices[0].memory).map((k, n) => ink('--memory-' + n))")
        assert all(kinds) and len(set(kinds)) == len(kinds), (name, kinds)


def check_none(browser, name, *arguments):
    """Without a plan the page says why."""
    page = folder / (name + ".html")
    made = subprocess.run([heddle, "plan", *arguments, "--html", page, "--json"], stdout=subprocess.PIPE)
    assert made.returncode == 3, made
    browser.open(page)
    text = browser.ask("document.body.innerText")
    assert json.loads(made.stdout)["reason"] in text and "infeasible" in text and "NaN" not in text, text
    assert browser.ask("[...document.querySelectorAll('section')].every(s => s.hidden)"), name
    assert not browser.complaints, f"{name}: {browser.complaints}"


def check(browser, name, *arguments):
    plan, page = folder / (name + ".json"), folder / (name + ".html")
    subprocess.run([heddle, "plan", *arguments, "--out", plan, "--html", page, "--no-times"], stdout=subprocess.PIPE, check=True)
    browser.show(1280)
    browser.open(page)
    elements = browser.ask("document.documentElement.outerHTML")
    assert 'data-shown="yes"' in elements, "the script did not come to its end"
    elements = elements[:elements.index("<script")]
    text = html.unescape(re.sub("<[^>]*>", " ", elements.replace("<wbr>", "")))
    of = json.loads(plan.read_text())
    others = of["baselines"].values() if "baselines" in of else [family["cost"] for family in of["families"].values()]
    for value in (of["cost"], *others):
        if value is not None:
            assert seconds(value) in text, f"{name}: {seconds(value)} is not shown"
    plans = [stage["plan"] for stage in of["pipeline"]] if "pipeline" in of else [of]
    parameters = 0
    for part in plans:
        read = {s["tensor"] for s in part["steps"] if s["do"] == "read"}
        for number, tensor in enumerate(part["tensors"]):
            if number in read and tensor["role"] == "parameter":
                parameters += 1
                assert tensor["name"] in text, f"{name}: {tensor['name']} is not shown"
        fullest = max(sum(memory.values()) for memory in part["memory"])
        assert size(fullest) in text, f"{name}: {size(fullest)} of memory is not shown"
    assert "times that" not in text and not re.search(r"0\.00\d+ µs", text), name
    beside = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    longer = sum(cost is not None and cost > 3 * of["cost"] for _, cost, _ in beside["families"])
    assert browser.ask("document.querySelectorAll('#families .beyond').length") == longer, f"{name}: bars that are cut"
    for field, place in (("sensitivity", "changes"), ("sweep", "sizes")):
        assert (field not in beside) == (f'<section id="{place}" hidden' in elements), f"{name}: {field}"
    for row in beside.get("sensitivity", {}).get("numbers", []):
        assert row["name"] in text, f"{name}: {row['name']} is not shown"
    assert elements.count("<circle") == sum("cost" in row for row in beside.get("sweep", [])), f"{name}: points are missing"
    check_room(browser, name)
    check_colours(browser, name)
    check_written(browser, beside["timeline"])
    check_timeline(browser, beside["timeline"])
    check_search(browser, next(tensor["name"] for tensor in plans[-1]["tensors"] if tensor["role"] == "parameter"))
    assert not browser.complaints, f"{name}: {browser.complaints}"
    print(f"{name}: {len(elements)} bytes shown, {len(plans)} plan(s), {parameters} parameters")


folder.mkdir(parents=True, exist_ok=True)
models, clusters = "examples/models/", "examples/clusters/"
with chromium.Chromium() as browser:
    check(browser, "uneven", "--planner", "hap", "--model", models + "vit_2.json.gz", "--cluster", clusters + "v100x2_p100x6.json")
    check(browser, "turns", "--planner", "hidup", "--model", models + "bert_moe_2.json.gz", "--cluster", clusters + "v100x2_p100x6.json",
          "--labels-per-cut", "2", "--cuts", "1")
    check(browser, "mesh", "--mesh", "8x4", "--model", models + "bert_moe_2.json.gz", "--cluster", clusters + "v100x8_p100x24.json")
    check(browser, "pipeline", "--model", models + "gpt2_12.json.gz", "--cluster", clusters + "h100x8_rtx4090x16.json")
    check(browser, "rounds", "--sends-beside", "--model", models + "vit_12.json.gz", "--cluster", clusters + "v100x2_p100x6.json")
    check(browser, "turning stages", "--model", models + "bert_moe_12.json.gz", "--cluster", clusters + "v100x8_p100x24.json")
    check(browser, "fewer", "--planner", "joint", "--model", models + "vgg19.json.gz", "--cluster", clusters + "v100x8_p100x24.json")
    check(browser, "changes", "--planner", "hap", "--model", "examples/formats/model.json", "--cluster", clusters + "p100x4.json", "--sensitivity", "--sweep")
    check_none(browser, "none", "--planner", "hap", "--model", models + "vit_2.json.gz", "--cluster", clusters + "p100x4.json", "--memory-limit", "1e8")
