"""Draws which folders of the core include which, as docs/explanation/architecture.svg shows it.

Usage: draw_includes.py ROOT [--check]; without --check it writes the picture, with it it fails where the picture is another.

An arrow that follows from others is left out. A folder stands above all that it includes.
"""
import collections
import pathlib
import re
import sys

ROLES = {
    "base": "errors, quantities",
    "search": "generic searches",
    "program": "operators, index rules",
    "cluster": "devices, collectives",
    "theory": "forms, instructions, cuts",
    "cost": "prices, accumulators",
    "plan": "results, verification",
    "balance": "ratios as a problem",
    "pipeline": "stages, degrees, templates",
    "synthesis": "the program of one stage",
    "planner": "HAP, HiDup, AMP, Ditto",
    "execute": "running a plan",
}
WIDTH, HEIGHT, ACROSS, DOWN, GAP = 190, 52, 40, 46, 10


def included(root):
    """By folder, the other folders that its headers include."""
    folders = collections.defaultdict(set)
    for path in (root / "include/heddle").glob("*/**/*.hpp"):
        mine = path.relative_to(root / "include/heddle").parts[0]
        folders[mine] |= set(re.findall(r"^#include <heddle/(\w+)/", path.read_text(), re.MULTILINE)) - {mine}
    return folders


def picture(root):
    folders = included(root)
    assert set(folders) | {"base"} == set(ROLES), "a folder has no role here"

    def reached(folder):
        return set().union(*(reached(other) | {other} for other in folders[folder])) if folders[folder] else set()

    def level(folder):
        return 1 + max((level(other) for other in folders[folder]), default=-1)

    direct = {f: {o for o in folders[f] if not any(o in reached(p) for p in folders[f])} for f in ROLES}
    rows = collections.defaultdict(list)
    for folder in ROLES:
        rows[level(folder)].append(folder)
    for folder in ROLES:  # an arrow that passes a row has a gap there, on the side to which it goes
        for other in sorted(direct[folder]):
            goal = rows[level(other)]
            for row in range(level(other) + 1, level(folder)):
                rows[row].insert(len(rows[row]) if goal.index(other) >= len(goal) / 2 else 0, (folder, other))
    top = max(rows)
    spans = {row: [WIDTH if name in ROLES else GAP for name in names] for row, names in rows.items()}
    width = max(sum(span) + ACROSS * (len(span) + 1) for span in spans.values())
    height = (top + 1) * (HEIGHT + DOWN) + DOWN
    place, gaps = {}, {}
    for row, names in rows.items():
        x = (width - sum(spans[row]) - ACROSS * (len(names) - 1)) / 2
        for name, span in zip(names, spans[row]):
            y = DOWN + (top - row) * (HEIGHT + DOWN)
            if name in ROLES:
                place[name] = (x, y)
            else:
                gaps.setdefault(name, []).append((x + span / 2, y))
            x += span + ACROSS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" text-anchor="middle">',
        '<defs><marker id="head" markerWidth="9" markerHeight="7" refX="9" refY="3.5" orient="auto"><path d="M0,0 L9,3.5 L0,7 z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for folder, others in direct.items():
        for n, other in enumerate(sorted(others, key=lambda o: place[o])):
            above = sorted((f for f in direct if other in direct[f]), key=lambda f: place[f])
            x, y = place[folder][0] + WIDTH * (n + 1) / (len(others) + 1), place[folder][1] + HEIGHT
            path = f"M{x:.0f},{y:.0f}"
            ends = [(place[other][0] + WIDTH * (above.index(folder) + 1) / (len(above) + 1), place[other][1])]
            passed = [end for u, v in gaps.get((folder, other), []) for end in ((u, v), (u, v + HEIGHT))]
            for u, v in sorted(passed, key=lambda end: end[1]) + ends:
                path += f" C{x:.0f},{(y + v) / 2:.0f} {u:.0f},{(y + v) / 2:.0f} {u:.0f},{v:.0f}"
                x, y = u, v
            lines.append(f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#head)"/>')
    for folder, (x, y) in place.items():
        lines.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3fa" stroke="#335"/>')
        lines.append(f'<text x="{x + WIDTH / 2:.0f}" y="{y + 21:.0f}" font-size="16" font-weight="bold">{folder}/</text>')
        lines.append(f'<text x="{x + WIDTH / 2:.0f}" y="{y + 41:.0f}" font-size="13">{ROLES[folder]}</text>')
    return "\n".join([*lines, "</svg>", ""])


root = pathlib.Path(sys.argv[1])
file = root / "docs/explanation/architecture.svg"
drawn = picture(root)
if "--check" not in sys.argv:
    file.write_text(drawn)
elif file.read_text() != drawn:
    sys.exit(f"{file}: is not what headers include; test/header/draw_includes.py {root} draws it anew")
