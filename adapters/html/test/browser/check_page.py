#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Opens pages of plans in a headless Chromium: no script error, and what is shown are the plan's numbers.

    check_page.py HEDDLE FOLDER

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


def shown(page):
    """Returns the page's elements as its script left them, and what the script complained of."""
    with tempfile.TemporaryDirectory() as profile:
        ran = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={profile}",
             "--virtual-time-budget=5000", "--window-size=1200,2000", "--dump-dom", page.as_uri()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def seconds(value):
    return f"{value:.4g}"


def size(value):
    return f"{value / 1e9:.3f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"


def check(name, *arguments):
    plan, page = folder / (name + ".json"), folder / (name + ".html")
    subprocess.run([heddle, "plan", *arguments, "--out", plan, "--html", page, "--no-times"], stdout=subprocess.PIPE, check=True)
    elements, complaints = shown(page.resolve())
    assert not complaints, complaints
    assert 'data-shown="yes"' in elements, "the script did not come to its end"
    elements = elements[:elements.index("<script")]
    text = html.unescape(re.sub("<[^>]*>", " ", elements))
    of = json.loads(plan.read_text())
    others = of["baselines"].values() if "baselines" in of else [family["cost"] for family in of["families"].values()]
    for value in (of["cost"], *others):
        if value is not None and value >= 0.1:
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
    beside = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    for field, place in (("sensitivity", "changes"), ("sweep", "sizes")):
        assert (field not in beside) == (f'<section id="{place}" hidden' in elements), f"{name}: {field}"
    for row in beside.get("sensitivity", {}).get("numbers", []):
        assert row["name"] in text, f"{name}: {row['name']} is not shown"
    assert elements.count("<circle") == sum("cost" in row for row in beside.get("sweep", [])), f"{name}: points are missing"
    print(f"{name}: {len(elements)} bytes shown, {len(plans)} plan(s), {parameters} parameters")


folder.mkdir(parents=True, exist_ok=True)
models, clusters = "examples/models/", "examples/clusters/"
check("uneven", "--planner", "hap", "--model", models + "vit_2.json.gz", "--cluster", clusters + "v100x2_p100x6.json")
check("turns", "--planner", "hidup", "--model", models + "bert_moe_2.json.gz", "--cluster", clusters + "v100x2_p100x6.json",
      "--labels-per-cut", "2", "--cuts", "1")
check("mesh", "--mesh", "8x4", "--model", models + "bert_moe_2.json.gz", "--cluster", clusters + "v100x8_p100x24.json")
check("stages", "--planner", "joint", "--model", models + "vgg19.json.gz", "--cluster", clusters + "v100x8_p100x24.json")
check("changes", "--planner", "hap", "--model", "examples/formats/model.json", "--cluster", clusters + "p100x4.json", "--sensitivity", "--sweep")
