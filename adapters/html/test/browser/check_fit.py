#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Opens the page of a fit in a headless Chromium: no script error, what is shown are the fit's numbers, and the mark nearest
to mouse or finger is told of.

    check_fit.py HEDDLE FOLDER

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

SAMPLES = "examples/formats/samples.csv"
folder.mkdir(parents=True, exist_ok=True)
page = folder / "fit.html"
ran = subprocess.run([heddle, "fit", "--samples", SAMPLES, "--html", page, "--json"], stdout=subprocess.PIPE, check=True)
found = json.loads(ran.stdout)
carried = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])["fits"]


def check_marks(browser):
    """The mark that is nearest to mouse or finger is told of, in the chart of all and in that of a fit, and nothing off a chart."""
    def told(figure):
        return browser.ask(f"document.querySelectorAll('figure')[{figure}].querySelector('figcaption').textContent")

    def chart(figure):
        """The places of a chart's marks on the screen."""
        return browser.ask(f"(f => (f.scrollIntoView(), [...f.querySelectorAll('circle.operator, circle.collective')].map(c => (r => [r.x + r.width / 2, r.y + r.height / 2])(c.getBoundingClientRect()))))(document.querySelectorAll('figure')[{figure}])")

    for width in (1280, 390):
        browser.show(width)
        names = {fit["name"] for fit in carried}
        of_all = {next(name for name in names if told_of.startswith(name + ", ")) for told_of in pointed(browser, chart(0), lambda: told(0), width)}
        assert of_all == names, of_all
        several = [fit for fit in carried if len(fit["points"]) > 1]
        for number, fit in enumerate(several, 1):
            seen = set(pointed(browser, chart(number), lambda: told(number), width))
            assert all(words.startswith(fit["name"]) for words in seen), seen
            assert 1 < len(seen) <= len(fit["points"]), (fit["name"], seen)
    browser.show(1280)
    (x, y), *_ = chart(0)
    browser.mouse("mouseMoved", x, y)
    assert told(0)
    browser.mouse("mouseMoved", 1, 1)
    assert not told(0), told(0)


def pointed(browser, places, told, width):
    """What is told at each of some places, by a mouse or, on narrow screens, a finger."""
    for x, y in places:
        browser.mouse("mouseMoved", x, y) if width > 600 else browser.tap(x, y)
        yield told()


with chromium.Chromium() as browser:
    browser.show(1280)
    browser.open(page)
    assert browser.ask("document.documentElement.dataset.shown") == "yes", "the script did not come to its end"
    elements = browser.ask("document.documentElement.outerHTML")
    elements = elements[:elements.index("<script")]
    check_marks(browser)
    assert not browser.complaints, browser.complaints
text = html.unescape(re.sub("<[^>]*>", " ", elements))
fits = found["collectives"] + found["operators"]
for fit in fits:
    for errors in (fit["in_sample"], fit["held_out"]):
        for error in (errors or {}).values():
            assert f"{100 * error:.1f} %" in text, f"{error} is not shown"
for warning in found["warnings"]:
    assert warning in text, f"{warning} is not shown"

# Every size is a mark of the chart of all and, of fits of several, of one of its own; what was held out has a ring.
assert [len(fit["points"]) for fit in carried] == [fit["sizes"] for fit in fits]
marks, rings = len(re.findall('<circle class="(?:operator|collective)"', elements)), elements.count('<circle class="ring"')
sizes = [(fit["sizes"], fit["sizes"] if fit["held_out"] else 0) for fit in fits]
assert marks == sum(n + (n if n > 1 else 0) for n, _ in sizes), (marks, sizes)
assert rings == 2 * sum(held for _, held in sizes), (rings, sizes)
measured = {(float(bytes_), float(work or 0)) for _, _, _, _, work, bytes_, _ in (line.split(",") for line in pathlib.Path(SAMPLES).read_text().splitlines()[2:])}
assert {(point[0], point[1]) for fit in carried for point in fit["points"]} == measured
for fit in carried:
    for size, work, seconds, predicted, held_out, at_rate in fit["points"]:
        assert at_rate <= predicted * (1 + 1e-9), fit["name"]
    errors = sorted(abs(point[3] / point[2] - 1) for point in fit["points"])
    assert abs(errors[-1] - fit["errors"][2]) < 1e-12, fit["name"]
print(f"{len(carried)} fits, {marks} marks, {rings} rings")
