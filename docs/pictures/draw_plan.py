"""Draws the plan that README.md shows: who computes what when, and the best of each family of plans beside it.

Usage: draw_plan.py ROOT HEDDLE [--check]; without --check it writes the picture, with it it fails where the picture is another.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

LEFT, WIDTH, ROW, BAR, MARGIN = 190, 650, 34, 18, 16
COLOURS = {
    "forward": "#3b6fb6",
    "backward": "#7aa6dd",
    "send": "#e2c9a0",
    "receive": "#e2c9a0",
    "reduce": "#d98032",
    "update": "#8d6bb0",
}
LEGEND = [
    ("forward", "forward"),
    ("backward", "backward"),
    ("send", "activations and their cotangents sent"),
    ("reduce", "gradients reduced"),
    ("update", "update"),
]


def text(x, y, words, size=12, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def box(x, y, width, height, colour, words=""):
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{height}" fill="{colour}"><title>{words}</title></rect>'


def timeline(plan, events, top):
    end = max(e["ts"] + e["dur"] for e in events)
    parts = []
    for n, stage in enumerate(plan["pipeline"]):
        y = top + n * ROW
        types = stage["plan"]["devices"]
        parts += [
            text(MARGIN, y + 11, ", ".join(f"{types.count(t)} × {t}" for t in dict.fromkeys(types)), weight="bold"),
            text(MARGIN, y + 25, f'operators {stage["first"]} to {stage["end"] - 1}', 11),
        ]
        for e in events:
            if e["tid"] == n:
                words = f'{e["name"]}: {e["dur"] / 1e3:.2f} ms'
                parts.append(box(LEFT + e["ts"] / end * WIDTH, y, e["dur"] / end * WIDTH, ROW - 8, COLOURS[e["name"].split()[0]], words))
    y = top + len(plan["pipeline"]) * ROW + 8
    parts += [
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y - 8}" y2="{y - 8}" stroke="#999"/>',
        text(LEFT, y + 6, "0 ms", 11),
        text(LEFT + WIDTH, y + 6, f"{end / 1e3:.0f} ms", 11, "end"),
    ]
    x, y = LEFT, y + 24
    for kind, words in LEGEND:
        parts += [box(x, y - 10, 11, 11, COLOURS[kind]), text(x + 16, y, words, 11)]
        x += 34 + 6.1 * len(words)
    return parts, y + 12


def families(plan, top):
    """Bars of the best of each family, the plan's own first."""
    others = [(name, found["cost"]) for name, found in plan["families"].items() if found["cost"] > plan["cost"]]
    rows = [("this plan", plan["cost"])] + sorted(others, key=lambda row: row[1])
    longest = max(s for _, s in rows)
    parts = []
    for n, (name, s) in enumerate(rows):
        y = top + n * BAR
        parts += [
            text(LEFT - 10, y + 10, name, 11, "end", "bold" if n == 0 else "normal"),
            box(LEFT, y, s / longest * (WIDTH - 70), BAR - 6, "#3b6fb6" if n == 0 else "#b9c3d0"),
            text(LEFT + s / longest * (WIDTH - 70) + 6, y + 10, f"{s:.3f} s", 11),
        ]
    return parts, top + len(rows) * BAR


def picture(plan, trace):
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    model, cluster = plan["provenance"]["model"], plan["provenance"]["cluster"]
    parts = [text(MARGIN, 26, f"One iteration of {model} on {cluster}, as planned", 14, weight="bold")]
    more, y = timeline(plan, events, 44)
    parts += more + [text(MARGIN, y + 22, "Seconds per iteration, beside the best of each family", 14, weight="bold")]
    more, y = families(plan, y + 36)
    parts += more
    width, height = LEFT + WIDTH + MARGIN, y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#222">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def planned(root, heddle):
    """The plan and its trace, as read from heddle's files."""
    with tempfile.TemporaryDirectory() as folder:
        plan, trace = pathlib.Path(folder, "plan.json"), pathlib.Path(folder, "trace.json")
        model, cluster = root / "examples/models/vgg19.json.gz", root / "examples/clusters/v100x2_p100x6.json"
        command = [heddle, "plan", "--model", model, "--cluster", cluster, "--out", plan, "--trace", trace]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(plan.read_text()), json.loads(trace.read_text())


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    path = root / "docs/pictures/plan.svg"
    drawn = picture(*planned(root, sys.argv[2]))
    if "--check" not in sys.argv:
        path.write_text(drawn)
    elif path.read_text() != drawn:
        sys.exit(f"{path} shows another plan; {sys.argv[0]} ROOT HEDDLE draws it anew")
