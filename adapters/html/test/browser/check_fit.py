#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Opens the page of a fit in a headless Chromium: no script error, and what is shown are the fit's numbers.

    check_fit.py HEDDLE FOLDER

Ends with 77 if there is no Chromium."""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

heddle, folder = sys.argv[1], pathlib.Path(sys.argv[2])
browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if not browser:
    print("skipped: there is no Chromium")
    sys.exit(77)

SAMPLES = "examples/formats/samples.csv"
folder.mkdir(parents=True, exist_ok=True)
page = folder / "fit.html"
ran = subprocess.run([heddle, "fit", "--samples", SAMPLES, "--html", page, "--json"], stdout=subprocess.PIPE, check=True)
found = json.loads(ran.stdout)
with tempfile.TemporaryDirectory() as profile:
    opened = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={profile}",
         "--virtual-time-budget=5000", "--window-size=1200,2000", "--dump-dom", page.resolve().as_uri()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
assert opened.returncode == 0, opened.stderr
complaints = [line for line in opened.stderr.splitlines() if "CONSOLE" in line]
assert not complaints, complaints
assert 'data-shown="yes"' in opened.stdout, "the script did not come to its end"
elements = opened.stdout[:opened.stdout.index("<script")]
text = html.unescape(re.sub("<[^>]*>", " ", elements))
fits = found["collectives"] + found["operators"]
for fit in fits:
    for errors in (fit["in_sample"], fit["held_out"]):
        for error in (errors or {}).values():
            assert f"{100 * error:.1f} %" in text, f"{error} is not shown"
for warning in found["warnings"]:
    assert warning in text, f"{warning} is not shown"

# Every size is a mark of the chart of all and, of fits of several, of one of its own; what was held out has a ring.
carried = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])["fits"]
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
