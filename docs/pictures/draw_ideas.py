"""Draws the pictures of docs/explanation: forms, duality, cuts, meshes, micro-batches in turn, pipelines.

Usage: draw_ideas.py ROOT [--check]; without --check it writes the pictures, with it it fails where one is another.
"""
import pathlib
import sys

INK, PALE, LINE = "#222", "#eef3fa", "#335"
PARTS = ["#3b6fb6", "#d98032", "#5f9e6e"]  # by device
LIGHT = ["#b9cfea", "#f2d2b3", "#c5dfcb"]
NETWORK = "#e2c9a0"


def dashes(dashed, lengths="4 3"):
    """The attribute of a dashed line; nothing for others."""
    return f' stroke-dasharray="{lengths}"' if dashed else ""


class picture:
    """Shapes in pixels, of which the file's size follows."""

    def __init__(self, words):
        self.words, self.parts, self.width, self.height = words, [], 0, 0

    def grow(self, x, y):
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(self, x, y, words, size=13, anchor="middle", weight="normal", colour=INK):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">{words}</text>')
        self.grow(x + (0 if anchor == "end" else len(words) * size * (0.28 if anchor == "middle" else 0.56)), y + 4)

    def box(self, x, y, width, height, fill="none", stroke=LINE, words="", dashed=False, size=13, colour=INK):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{stroke}"{dashes(dashed)}/>')
        self.grow(x + width, y + height)
        if words:
            self.text(x + width / 2, y + height / 2 + size * 0.36, words, size, colour=colour)

    def arrow(self, x, y, u, v, dashed=False):
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="#555"{dashes(dashed)} marker-end="url(#head)"/>')
        self.grow(max(x, u), max(y, v))

    def line(self, points, colour, width=2, dashed=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes(dashed, "6 4")}/>')
        self.grow(max(x for x, _ in points), max(y for _, y in points))

    def svg(self):
        width, height = self.width + 16, self.height + 16
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" font-family="sans-serif">\n'
            f"<title>{self.words}</title>\n"
            '<defs><marker id="head" markerWidth="9" markerHeight="7" refX="9" refY="3.5" orient="auto"><path d="M0,0 L9,3.5 L0,7 z" fill="#555"/></marker></defs>\n'
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def forms():
    """One tensor, and what three devices hold of it in each form."""
    p = picture("A tensor of twelve rows as three unequal devices hold it: replicated, partial, in shards, mirrored")
    shares, row, wide = [6, 4, 2], 11, 54
    p.text(60, 30, "the tensor", weight="bold")
    for d, y in zip(range(3), (0, 6, 10)):
        p.box(60 - wide / 2, 60 + y * row, wide, shares[d] * row, LIGHT[d])
    columns = [("replicated", "every device has all of it"), ("partial", "the sum of theirs is it"), ("shard(f)", "each has its share"), ("mirrored", "one variable, stored thrice")]
    for n, (name, words) in enumerate(columns):
        left = 150 + n * 235
        p.text(left + 97, 30, name, weight="bold")
        p.text(left + 97, 48, words, 11)
        first = 0
        for d in range(3):
            x = left + d * 70
            if name in ("replicated", "mirrored"):
                for e, y in zip(range(3), (0, 6, 10)):
                    p.box(x, 60 + y * row, wide, shares[e] * row, LIGHT[e])
            elif name == "partial":
                p.box(x, 60, wide, 12 * row, "#f4f4f4", dashed=True, words=f"e{'₀₁₂'[d]}")
                if d < 2:
                    p.text(x + 62, 60 + 6 * row, "+", 16)
            else:
                p.box(x, 60, wide, 12 * row, "none", "#ccc", dashed=True)
                p.box(x, 60 + first * row, wide, shares[d] * row, LIGHT[d])
                first += shares[d]
            p.text(x + wide / 2, 210, f"device {d}", 11)
        if name == "mirrored":
            p.box(left - 7, 54, 208, 12 * row + 12, dashed=True)
    p.text(150, 240, "Cotangents: partial of what is replicated, replicated of what is partial, in shards of shards, mirrored of what is mirrored.", 12, "start")
    return p


def duality():
    """A distributed program and its transpose, step by step."""
    p = picture("A distributed program and its transpose: each step of the backward program is the adjoint of one of the forward program, and forms become their duals")
    steps = [("x: shard(b)", None), ("all-gather", "reduce-scatter"), ("x: replicated", "partial"), ("linear, split along n", "its derivative"), ("h: shard(n)", "shard(n)"), ("linear, reduced over n", "its derivative"), ("y: partial", "replicated"), ("reduce-scatter", "all-gather"), ("y: shard(b)", "shard(b)")]
    p.text(90, 28, "forward", weight="bold")
    p.text(330, 28, "backward: cotangents", weight="bold")
    for n, (forward, backward) in enumerate(steps):
        y = 44 + n * 42
        step = n % 2 == 1
        p.box(10, y, 160, 28, NETWORK if "-" in forward and step else PALE if step else "#fff", LINE if step else "#bbb", forward)
        words = backward or "shard(b)"
        p.box(250, y, 160, 28, NETWORK if "-" in words and step else PALE if step else "#fff", LINE if step else "#bbb", words)
        p.arrow(170, y + 14, 250, y + 14, dashed=True)
        if n + 1 < len(steps):
            p.arrow(90, y + 28, 90, y + 42)
            p.arrow(330, y + 42, 330, y + 28)
    p.text(440, 80, "an all-gather's adjoint", 12, "start")
    p.text(440, 97, "adds up and scatters", 12, "start")
    p.text(440, 166, "a sum over a loop reads", 12, "start")
    p.text(440, 183, "replicated cotangents", 12, "start")
    p.text(440, 332, "dashed: dual forms,", 12, "start")
    p.text(440, 349, "adjoint steps", 12, "start")
    return p


def cuts():
    """A cut of the operator graph, and the forms that cross it."""
    p = picture("A cut of an operator graph: a state of the search is the set of forms in which the tensors that cross the cut are held")
    place = {"x": (52, 90), "norm": (140, 90), "q": (235, 40), "k": (235, 90), "v": (235, 140), "attention": (360, 90), "add": (480, 90), "mlp": (580, 90), "loss": (680, 90)}
    for a, b in [("x", "norm"), ("norm", "q"), ("norm", "k"), ("norm", "v"), ("q", "attention"), ("k", "attention"), ("v", "attention"), ("attention", "add"), ("add", "mlp"), ("mlp", "loss")]:
        (x, y), (u, v) = place[a], place[b]
        p.arrow(x + 36, y, u - 38, v)
    p.line([(70, 76), (110, 18), (430, 12), (464, 72)], "#555", 1)
    p.arrow(464, 72, 468, 77)
    for name, (x, y) in place.items():
        p.box(x - 36, y - 14, 72, 28, PALE, words=name)
    p.line([(300, 0), (300, 170)], PARTS[1], 2.5, dashed=True)
    p.text(300, 190, "the cut: done to the left, open to the right", 12, colour=PARTS[1])
    p.text(300, 216, "one state: x as shard(b), q, k and v as shard(heads)", 12)
    p.text(300, 234, "another: x replicated, q, k and v as shard(b)", 12)
    return p


def mesh():
    """A matrix on two by three devices, cut on both axes."""
    p = picture("A matrix on a mesh of two machines of three unequal devices: rows cut across machines, columns inside")
    left, top, columns, rows = 130, 60, [124, 88, 72], [90, 70]
    y = top
    for m, height in enumerate(rows):
        x = left
        for d, width in enumerate(columns):
            p.box(x, y, width, height, LIGHT[d] if m == 0 else PARTS[d], words=f"device {m * 3 + d}", colour=INK if m == 0 else "#fff")
            x += width
        p.text(left - 12, y + height / 2 + 4, f"machine {m}", 12, "end")
        y += height
    p.text(left + 130, 30, "axis 1, inside: shard(columns)", weight="bold")
    p.text(left + 130, 48, "lines: three devices each, on the fast link", 11)
    x = left + 300
    p.text(x, top + 60, "axis 0, across: shard(rows)", 13, "start", "bold")
    p.text(x, top + 78, "lines: devices 0 and 3, 1 and 4, 2 and 5,", 11, "start")
    p.text(x, top + 93, "on the network, all three at once", 11, "start")
    p.text(x, top + 125, "its form: (shard(rows), shard(columns))", 12, "start")
    return p


def lanes(p, top, rows, scale, left=120):
    """Rows of (name, [(start, length, fill, words)])."""
    for n, (name, spans) in enumerate(rows):
        y = top + n * 34
        p.text(left - 12, y + 17, name, 12, "end")
        for start, length, fill, words in spans:
            p.box(left + start * scale, y, length * scale, 26, fill, "#fff", words, size=11, colour="#fff" if fill in PARTS else INK)
    return top + len(rows) * 34


def turns():
    """Two micro-batches in turn: the collectives of one beside the computation of the other."""
    p = picture("One device without and with micro-batches in turn: in turn, the collectives of one micro-batch run beside the computation of the other")
    a, b = LIGHT[0], LIGHT[1]
    p.text(10, 24, "One batch: the network waits for the device and the device for the network", 13, "start", "bold")
    whole = "#d9dee6"
    y = lanes(p, 36, [("computation", [(0, 4, whole, "layer 1"), (7, 4, whole, "layer 2"), (14, 4, whole, "layer 3")]), ("network", [(4, 3, NETWORK, "reduce"), (11, 3, NETWORK, "reduce")])], 40)
    p.text(10, y + 28, "Two micro-batches in turn: each computes while the other communicates", 13, "start", "bold")
    compute = [(2.2 * n, 2.2, (a, b)[n % 2], f"layer {n // 2 + 1}") for n in range(6)]
    network = [(2.2 * (n + 1), 1.7, (a, b)[n % 2], "reduce") for n in range(4)]
    y = lanes(p, y + 40, [("computation", compute), ("network", network)], 40)
    p.box(120, y + 8, 14, 14, a, "#fff")
    p.text(140, y + 20, "first micro-batch", 11, "start")
    p.box(260, y + 8, 14, 14, b, "#fff")
    p.text(280, y + 20, "second", 11, "start")
    return p


def pipeline():
    """One forward, one backward: three stages, four micro-batches."""
    p = picture("A pipeline of three stages and four micro-batches, one forward and one backward pass at a time")
    stages, batches = 3, 4
    order = []
    for s in range(stages):
        ahead = min(stages - s - 1, batches)
        passes = [("F", m) for m in range(ahead)]
        for m in range(batches - ahead):
            passes += [("F", ahead + m), ("B", m)]
        order.append(passes + [("B", m) for m in range(batches - ahead, batches)])
    length, ends, clock, at = {"F": 1, "B": 2}, {}, [0] * stages, [0] * stages
    while any(at[s] < len(order[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(order[s]):
                kind, m = order[s][at[s]]
                needs = (kind, s - 1, m) if kind == "F" and s > 0 else (kind, s + 1, m) if kind == "B" and s + 1 < stages else None
                if needs and needs not in ends:
                    break
                start = max(clock[s], ends.get(needs, 0))
                clock[s] = ends[kind, s, m] = start + length[kind]
                at[s] += 1
    rows = []
    for s in range(stages):
        spans = [(ends[k, t, m] - length[k], length[k], LIGHT[0] if k == "F" else PARTS[0], f"{k}{m}") for k, t, m in ends if t == s]
        spans += [(clock[s], 1.8, LIGHT[1], "gradients")]
        rows.append((f"stage {s}", spans))
    y = lanes(p, 20, rows, 38, 80)
    p.box(80, y + 8, 14, 14, LIGHT[0], "#fff")
    p.text(100, y + 20, "F: forward pass of a micro-batch", 11, "start")
    p.box(310, y + 8, 14, 14, PARTS[0], "#fff")
    p.text(330, y + 20, "B: backward pass", 11, "start")
    return p


PICTURES = {"forms": forms, "duality": duality, "cuts": cuts, "mesh": mesh, "turns": turns, "pipeline": pipeline}

if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    for name, draw in PICTURES.items():
        path, drawn = root / "docs/pictures" / f"{name}.svg", draw().svg()
        if "--check" not in sys.argv:
            path.write_text(drawn)
        elif not path.exists() or path.read_text() != drawn:
            sys.exit(f"{path} is another picture; {sys.argv[0]} ROOT draws it anew")
